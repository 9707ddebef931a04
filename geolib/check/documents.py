"""Checkers for the exercises of the chapter on long documents."""

from __future__ import annotations

import math
from collections.abc import Callable

from geolib.check._register import checker, far
from geolib.recurrence import signal_to_noise


@checker("documents: bits per byte")
def _bits(answer: Callable[[float, int, int], float]) -> str | None:
    """answer(nats, tokens, bytes): by the probability of a whole text of tokens that are all alike likely."""
    for kinds, length, tokens in ((256, 1, 50), (256**3, 3, 20), (1000, 2, 7)):
        whole = tokens * math.log2(kinds) / (tokens * length)  # every token is one of `kinds` and `length` bytes long
        found = float(answer(math.log(kinds), tokens, tokens * length))
        if far(found, whole, 1e-9):
            return f"{tokens} tokens of {length} bytes, one of {kinds} each: that is {whole:.4g}, you have {found:.4g}"
    return None


@checker("documents: gate for a distance")
def _gate(answer: Callable[[int], float]) -> str | None:
    """answer(t): the gate that reads best t tokens back, against its neighbours."""
    for t in (1, 10, 500):
        gate = float(answer(t))
        if not 0 < gate < 1:
            return f"for t = {t} your gate {gate:.4g} is not between 0 and 1"
        here, *near = (
            signal_to_noise(t, 10**8, g, 16, 2) for g in (gate, gate * (1 - 1e-3 / t), 1 - (1 - gate) * 0.99)
        )
        if max(near) > here:
            return f"for t = {t} a gate near your {gate:.6g} reads better"
    return None
