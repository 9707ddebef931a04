"""Checkers for the exercises of the chapter on conformal metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from geolib.check._register import checker


@checker("conformal: take a factor apart")
def _apart(answer: Callable[[float, float], Sequence[float]]) -> str | None:
    """answer(a, c): the scales s and t with a^m c^n = s^((m+n)/2) t^((m-n)/2)."""
    for a, c in [(0.9, 1.0), (0.8, 1.3), (2.0, 0.5)]:
        s, t = (float(scale) for scale in answer(a, c))
        if not (s > 0 and t > 0):
            return f"a = {a}, c = {c}: your scales {s:.4g} and {t:.4g} must both be above 0"
        for m, n in [(1, 1), (2, -2), (5, 3)]:
            given, made = a**m * c**n, s ** ((m + n) / 2) * t ** ((m - n) / 2)
            if not math.isclose(given, made, rel_tol=1e-6):
                return f"a = {a}, c = {c}: at m = {m}, n = {n} the factor is {given:.5g}, yours make {made:.5g}"
    return None
