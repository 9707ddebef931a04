"""Checkers for the exercises of the chapter on the one connection."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from geolib.check._register import checker, differs
from geolib.connection import Connection


@checker("connection: comb")
def _comb(answer: Callable[[Connection], Tensor]) -> str | None:
    """answer(steps): a change of gauge that makes a comb of the grid trivial, by applying it with plain inverses."""
    generator = torch.Generator().manual_seed(10)
    for rows, columns, d in ((2, 2, 1), (3, 4, 3)):
        case = f"a grid of {rows} x {columns} nodes with {d} features"
        draw = [(rows - 1, columns), (rows, columns - 1)]
        one = 2 * torch.eye(d, dtype=torch.float64)
        links = [one + torch.randn(*cells, d, d, generator=generator, dtype=torch.float64) for cells in draw]
        C = answer(Connection(tuple(links)))
        if not isinstance(C, Tensor) or C.shape != (rows, columns, d, d):
            return f"{case}: expected a tensor {(rows, columns, d, d)}, got {getattr(C, 'shape', type(C).__name__)}"
        teeth = C[:, 1:] @ links[1] @ torch.linalg.inv(C[:, :-1])
        back = C[1:, 0] @ links[0][:, 0] @ torch.linalg.inv(C[:-1, 0])
        for part, what in ((teeth, "steps along axis 1"), (back, "steps along axis 0 in the first column")):
            if wrong := differs(part, (one / 2).expand_as(part), f"{case}: the {what}"):
                return wrong
    return None
