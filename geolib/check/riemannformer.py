"""Checkers for the exercises of the chapter on RiemannFormer."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from geolib.check._register import checker, differs


@checker("riemannformer: paired difference")
def _paired_difference(answer: Callable[[dict[int, float], dict[int, float]], tuple[float, float]]) -> str | None:
    """answer(a, b): mean and standard error of a - b over the common seeds."""
    for a, b in [({0: 0.5, 1: 0.6}, {0: 0.4, 1: 0.3}), ({0: 9.0, 2: 5.0, 7: 1.0, 3: 0.0}, {7: 4.0, 0: 6.0, 2: 5.0})]:
        differences = [a[seed] - b[seed] for seed in a if seed in b]
        count, mean = len(differences), math.fsum(differences) / len(differences)
        # Half the mean squared difference of all pairs is the variance with n - 1.
        spread = math.fsum((x - y) ** 2 for x in differences for y in differences) / (2 * count * (count - 1))
        expected = torch.tensor([mean, math.sqrt(spread / count)], dtype=torch.float64)
        if wrong := differs([float(x) for x in answer(a, b)], expected, f"a = {a}, b = {b}"):
            return wrong
    return None
