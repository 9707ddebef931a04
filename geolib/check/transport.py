"""Checkers for the exercises of the chapter on transport in attention."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from geolib.check._register import checker, differs


@checker("transport: metrics")
def _metrics(answer: Callable[[Tensor, Tensor], Tensor]) -> str | None:
    """answer(P, metric): the metrics under which transports keep lengths, from frames that are written down."""
    generator = torch.Generator().manual_seed(4)
    for d in (1, 3):
        frames, common = torch.randn(2, 5, d, d, generator=generator, dtype=torch.float64) + 2 * torch.eye(d)
        inverses = torch.linalg.inv(frames)
        root = common[0]
        expected = inverses.mT @ (root @ root.mT) @ inverses  # T^T M T is root root^T at every token
        transports = torch.einsum("mij,njk->mnik", frames, inverses)
        if wrong := differs(answer(transports, expected[0]), expected, f"five tokens with {d} features"):
            return wrong
    return None
