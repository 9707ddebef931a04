"""Checkers for the exercises of the chapter on recurrences."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from geolib.check._register import checker, differs, far
from geolib.recurrence import alibi_log_gates, log_decay

Half = tuple[Tensor, Tensor]


@checker("recurrences: slope")
def _slope(answer: Callable[[float], float]) -> str | None:
    """answer(memory): ALiBi's slope for this memory, by adding up what it leaves of twenty memories of tokens."""
    for memory in (2.0, 10.0, 100.0):
        slope = torch.tensor([float(answer(memory))], dtype=torch.float64)
        kept = float(log_decay(alibi_log_gates(slope, int(20 * memory)))[0, 0, -1].exp().sum())
        if far(kept / memory, 1, 1e-4):
            return f"for {memory:g} tokens your slope {float(slope):.5g} leaves {kept:.4g} tokens"
    return None


@checker("recurrences: scan")
def _scan(answer: Callable[[Half, Half], Half]) -> str | None:
    """answer(first, second): gates and state of a text from those of its halves, by reading it token by token."""
    draw = torch.Generator().manual_seed(0)
    gates = 0.2 + 0.8 * torch.rand(7, generator=draw, dtype=torch.float64)
    added = torch.randn(7, 3, 5, generator=draw, dtype=torch.float64)  # v phi(k)^T of each token

    def read(tokens: range) -> Half:
        product, state = torch.ones((), dtype=torch.float64), torch.zeros(3, 5, dtype=torch.float64)
        for m in tokens:
            product, state = product * gates[m], gates[m] * state + added[m]
        return product, state

    for cut in (3, 6):
        found = answer(read(range(cut)), read(range(cut, 7)))
        if len(found) != 2:
            return f"the answer has {len(found)} parts, it should be the product of gates and the state"
        for mine, right, what in zip(found, read(range(7)), ("the product of gates", "the state")):
            if wrong := differs(mine, right, f"{what} of seven tokens cut after {cut}"):
                return wrong
    return None
