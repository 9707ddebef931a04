"""The register of checkers, and what they share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Checker = Callable[[Any], str | None]  # what is wrong with an answer, or None

CHECKERS: dict[str, Checker] = {}


def checker(exercise: str) -> Callable[[Checker], Checker]:
    """Register a function as the checker of an exercise."""

    def register(function: Checker) -> Checker:
        CHECKERS[exercise] = function
        return function

    return register


def far(got: float, wanted: float, most: float = 1e-6) -> bool:
    """Whether a number is farther from what it should be than this; NaN is far from every number."""
    return not abs(got - wanted) <= most


def differs(got: Any, expected: Tensor, case: str) -> str | None:
    """What is wrong with a tensor of numbers, by more than 1e-5, or None."""
    got = torch.as_tensor(got, dtype=torch.float64)
    if got.shape != expected.shape:
        return f"{case} gives shape {tuple(got.shape)}, it should be {tuple(expected.shape)}"
    gap = float((got - expected).abs().max())
    return None if gap < 1e-5 else f"{case} is off by {gap:.2g}"
