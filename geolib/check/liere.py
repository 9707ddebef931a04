"""Checkers for the exercises of the chapter on LieRE in two and three dimensions."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from geolib.check._register import checker, differs
from geolib.lie import entry_count, skew_matrix, spectrum


@checker("liere: blind direction")
def _blind_direction(answer: Callable[[Tensor, Tensor], Tensor]) -> str | None:
    """answer(X1, X2): a unit direction in which a plane of the skew 6x6 generators stands still."""
    generator = torch.Generator().manual_seed(0)
    entries = torch.randn(8, 2, entry_count(6), generator=generator, dtype=torch.float64)
    for X1, X2 in skew_matrix(entries, 6):
        u = torch.as_tensor(answer(X1, X2), dtype=torch.float64)
        if u.shape != (2,):
            return f"the direction has shape {tuple(u.shape)}, it should be (2,)"
        if wrong := differs(u.norm(), torch.ones((), dtype=torch.float64), "the length of the direction"):
            return wrong
        least = float(spectrum(u[0] * X1 + u[1] * X2)[-1])
        if least > 1e-4:
            return f"the slowest plane of {u[0]:.3g} X1 + {u[1]:.3g} X2 turns at {least:.2g}, it should stand still"
    return None


@checker("liere: velocity")
def _velocity(answer: Callable[[float, float], Tensor]) -> str | None:
    """answer(vy, vx): two rows (f_t, f_y, f_x) of clocks that stand still along that velocity and no other."""
    for vy, vx in ((0.0, 0.0), (1.0, -2.0), (0.5, 3.0)):
        rows = torch.as_tensor(answer(vy, vx), dtype=torch.float64)
        if rows.shape != (2, 3):
            return f"the rows have shape {tuple(rows.shape)}, it should be (2, 3)"
        move = torch.tensor([1.0, vy, vx], dtype=torch.float64)
        if wrong := differs(rows @ move, torch.zeros(2, dtype=torch.float64), f"the turn along ({vy}, {vx})"):
            return wrong
        # Another velocity would solve the same two equations unless their part in space is regular.
        if float(torch.linalg.det(rows[:, 1:]).abs()) < 1e-6:
            return f"at ({vy}, {vx}) the clocks stand still along other velocities too"
    return None
