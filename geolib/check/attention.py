"""Checkers for the exercises of the chapter on attention."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from geolib.attention import attention_weights
from geolib.check._register import checker, differs, far


@checker("attention: temperature")
def _temperature(answer: Callable[[float, float], float]) -> str | None:
    """answer(c, a): the temperature at which a lead of c has the weight a, by the weights there."""
    query = torch.ones(1, 1, dtype=torch.float64)
    for lead, weight in ((1.0, 0.6), (3.0, 0.95), (0.2, 0.999)):
        keys = torch.tensor([[lead], [0.0]], dtype=torch.float64)
        found = float(attention_weights(query, keys, scale=1 / float(answer(lead, weight)))[0, 0])
        if far(found, weight):
            return f"with a lead of {lead} your temperature gives the weight {found:.4f}, not {weight}"
    return None


@checker("attention: count")
def _count(answer: Callable[[float, float], float]) -> str | None:
    """answer(a, c): the place that finds the weight a on a start token of score c, by counting there."""
    for place, score in ((0, 0.0), (5, 0.0), (9, 2.0), (30, -1.0)):
        weight = math.exp(score) / (math.exp(score) + sum(1 for _ in range(place)))
        found = float(answer(weight, score))
        if far(found, place):
            return f"at place {place} with c = {score:g} you say {found:.3f}"
    return None


@checker("attention: gate")
def _gate(answer: Callable[[Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor]]) -> str | None:
    """answer(q, k, positions, c): longer queries and keys; their causal weights are those of the gate -c (m - n)."""
    draw = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 7, 4, generator=draw, dtype=torch.float64)
    positions = torch.arange(7, dtype=torch.float64)
    gate = -0.3 * (positions[:, None] - positions)
    longer = answer(q, k, positions, 0.3)
    found = attention_weights(*longer, causal=True, scale=1.0)
    return differs(found, attention_weights(q, k, log_gate=gate, causal=True, scale=1.0), "the causal weights")
