"""Checkers for the exercises of the chapter on Lie groups and their algebras."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from geolib.check._register import checker, differs
from geolib.lie import cayley, exp_skew, skew_matrix


@checker("lie: another logarithm")
def _another_logarithm(answer: Callable[[Tensor], Tensor]) -> str | None:
    """answer(X): a skew 2x2 matrix other than X with the same exponential."""
    for entry in (0.5, -2.0, 3.1):
        X = skew_matrix(torch.tensor([entry], dtype=torch.float64), 2)
        other = torch.as_tensor(answer(X), dtype=torch.float64)
        if other.shape != X.shape:
            return f"the answer has shape {tuple(other.shape)}, it should be (2, 2)"
        if not torch.allclose(other, -other.mT, atol=1e-8):
            return "the answer is not skew"
        if torch.allclose(other, X, atol=1e-3):
            return "the answer is X itself"
        if wrong := differs(exp_skew(other), exp_skew(X), f"the exponential of the answer for x_12 = {entry}"):
            return wrong
    return None


@checker("lie: axis and angle")
def _axis_and_angle(answer: Callable[[Tensor], Tensor]) -> str | None:
    """answer(R): the vector a with R x turned about a by |a| < pi."""
    generator = torch.Generator().manual_seed(6)
    for angle in (0.01, 1.0, math.pi / 2, 3.0):
        a = torch.randn(3, generator=generator, dtype=torch.float64)
        a = angle * a / a.norm()
        R = exp_skew(skew_matrix(torch.stack([-a[2], a[1], -a[0]]), 3))
        if wrong := differs(answer(R), a, f"a turn by {angle:.2f}"):
            return wrong
    return None


@checker("lie: Cayley")
def _cayley_for_the_exponential(answer: Callable[[Tensor], Tensor]) -> str | None:
    """answer(X): the skew Z whose Cayley transform is exp(X), the rates of X below pi."""
    generator = torch.Generator().manual_seed(7)
    for width in (2, 5):
        entries = torch.randn(width * (width - 1) // 2, generator=generator, dtype=torch.float64)
        X = skew_matrix(0.8 * entries / entries.norm() * math.pi, width)
        Z = torch.as_tensor(answer(X), dtype=torch.float64)
        if Z.shape != X.shape or not torch.allclose(Z, -Z.mT, atol=1e-6):
            return f"for {width} features the answer is no skew matrix of that size"
        if wrong := differs(cayley((Z - Z.mT) / 2), exp_skew(X), f"Cayley of the answer for {width} features"):
            return wrong
    return None
