"""Locality focusing, fused against literal: time of forward and backward, and the memory above the inputs.

And of one forward pass, in turns, so that only ratios of times count: Gaussians as features of queries and keys against
the forms that add or multiply a matrix or its blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from geolib.lab.benches.timing import in_turns, peak
from geolib.lab.train import pick_device
from geolib.locality import (
    focused_attention,
    focused_by_features,
    fused_focused_attention,
    gated_by_features,
    log_attenuation,
)
from geolib.rotations import grid_positions

FORMS = {"literal": focused_attention, "fused": fused_focused_attention, "features": focused_by_features}
_SIDES = (32, 64, 128)  # of the grids of ``turns``: 1,024, 4,096 and 16,384 tokens


def run(side: int = 64, heads: int = 8, dim: int = 64, repeats: int = 5) -> list[dict[str, Any]]:
    """Measure the forms on a grid of side x side tokens, forward and backward; then ``turns``.

    ``speedup`` is over the literal form; ``mib`` is what a pass adds at most.

    Source: RF-FUSED.
    """
    device = pick_device(None).type
    inputs = _inputs(side, heads, dim, device)
    works = {name: partial(_step, form, *inputs) for name, form in FORMS.items()}
    times = in_turns(works, repeats)
    about = {"tokens": side * side, "heads": heads, "dim": dim, "device": device, "threads": torch.get_num_threads()}
    rows: list[dict[str, Any]] = []
    for form, took in times.items():
        found = {"mib": peak(works[form], torch.device(device))}
        found["speedup"] = times["literal"]["seconds"] / took["seconds"]
        rows.append({"form": form, **about, **took, **found})
    return rows + [row for grid in _SIDES for row in turns(grid, 1, dim, repeats, device)]


def turns(side: int, heads: int, dim: int, repeats: int, device: str) -> list[dict[str, Any]]:
    """Six forms of attention with a Gaussian, forward, in turns: time as a multiple of plain attention's, and memory.

    On the CPU the time is the processor's own, which other programs disturb less.
    """
    inputs = tuple(t.detach() for t in _inputs(side, heads, dim, device))
    q, k, v, p, sigma = inputs
    works: dict[str, Callable[[], Tensor]] = {
        "plain": lambda: F.scaled_dot_product_attention(q, k, v),
        "gate, a given matrix": lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=log_attenuation(p, sigma)),
        "gate, features": lambda: gated_by_features(q, k, v, p, sigma),
        **{f"focusing, {name}": partial(form, *inputs) for name, form in FORMS.items()},
    }
    clock = "cpu_seconds" if device == "cpu" else "seconds"
    times = {name: took[clock] for name, took in in_turns(works, repeats).items()}
    shared = {"tokens": side * side, "heads": heads, "dim": dim, "device": device}
    return [
        {"form": name, **shared, "multiple": took / times["plain"], "mib": peak(works[name], torch.device(device))}
        for name, took in times.items()
    ]


def _inputs(side: int, heads: int, dim: int, device: str) -> tuple[Tensor, ...]:
    """Queries, keys and values on a grid, their positions, and a width for each head."""
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, heads, side * side, dim, device=device).requires_grad_().unbind(0)
    sigma = torch.full((heads, 1), side / 8, device=device, requires_grad=True)
    return q, k, v, grid_positions(side, side).to(device), sigma


def _step(form: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor, positions: Tensor, sigma: Tensor) -> None:
    """Forward and backward once."""
    y = form(q, k, v, positions, sigma)
    torch.autograd.grad(y, (q, k, v, sigma), torch.ones_like(y))
