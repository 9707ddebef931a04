"""Checkers for the exercises of the chapter on symmetric powers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from geolib.check._register import checker, differs, far


@checker("sympow: with a constant")
def _with_a_constant(answer: Callable[[Tensor, int], Tensor]) -> str | None:
    """answer(v, p): features of v (d,) whose inner products are (1 + v.w)^p, no more of them than needed."""
    generator = torch.Generator().manual_seed(8)
    for d, p in ((2, 2), (3, 4), (1, 3)):
        vectors = torch.randn(6, d, generator=generator, dtype=torch.float64)
        features = torch.stack([torch.as_tensor(answer(v, p)) for v in vectors])
        if wrong := differs(features @ features.mT, (1 + vectors @ vectors.mT) ** p, f"d = {d} and p = {p}"):
            return wrong
        fewest = math.comb(d + p, p)
        if features.shape[1] != fewest:
            return f"d = {d} and p = {p}: {features.shape[1]} features, {fewest} are enough"
    return None


@checker("sympow: lifted mirror")
def _lifted_mirror(answer: Callable[[int, int], Any]) -> str | None:
    """answer(d, p): the determinant of the lift of a mirror, counted from its eigenvalues."""
    for d, p in ((2, 2), (3, 2), (2, 3), (4, 2), (3, 4), (5, 3)):
        # A mirror flips one feature: monomials of odd degree in it change their sign.
        flipped = sum(math.comb(d - 2 + p - a, p - a) for a in range(1, p + 1, 2))
        if float(answer(d, p)) != (-1) ** flipped:
            return f"d = {d} and p = {p}: {flipped} features change their sign"
    return None


@checker("sympow: how many keys")
def _how_many_keys(answer: Callable[[int, int, float], float]) -> str | None:
    """answer(d, p, share): random keys beside one that equals the query, which then has this share of the weight."""
    for d, p, share in ((64, 2, 0.5), (64, 4, 0.9), (16, 6, 0.25), (2, 2, 0.5)):
        moment = 1.0
        for i in range(p // 2):
            moment *= (2 * i + 1) / (d + 2 * i)
        got = float(answer(d, p, share))
        left = 1 / (1 + got * moment)
        if far(left, share):
            return f"d = {d}, p = {p}: {got:.6g} random keys leave it {left:.4g} of the weight, not {share}"
    return None
