"""How fast LieRE's exponentials are: one batch along rays beside ``torch.matrix_exp``, and what evaluation pays.

A measurement is forward and backward, from the generators' entries to the rotations of all layers. Figures from
different runs are not comparable: use the ratios of one run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from geolib.encodings import LieRE
from geolib.lab.benches.timing import in_turns
from geolib.lab.train import pick_device
from geolib.lie import Rays, entry_count, position_rotations, skew_matrix, turn_blocks, uniform_entries
from geolib.rotations import grid_positions

BASELINE = "matrix_exp per layer"


def _sums(positions: Tensor, entries: Tensor, width: int) -> Tensor:
    """sum_i p_i A_i of every token, (tokens, ..., b, b)."""
    return torch.tensordot(positions, skew_matrix(entries, width), dims=([1], [entries.dim() - 2]))


def _alone(positions: Tensor) -> Rays:
    """Every token on a ray of its own."""
    return Rays(positions, (), torch.arange(len(positions), device=positions.device))


FORMS: dict[str, Callable[[Tensor, Tensor, int], Tensor]] = {
    BASELINE: lambda p, entries, b: torch.stack([torch.matrix_exp(_sums(p, layer, b)) for layer in entries], 1),
    "matrix_exp of all layers": lambda p, entries, b: torch.matrix_exp(_sums(p, entries, b)),
    "one batch, token by token": lambda p, entries, b: position_rotations(p, skew_matrix(entries, b), _alone(p)),
    "one batch, along rays": lambda p, entries, b: position_rotations(p, skew_matrix(entries, b)),
}


def _training(form: str, positions: Tensor, entries: Tensor, width: int) -> Callable[[], None]:
    """Forward and backward of one form, with a weight for every entry of every rotation."""
    leaf = entries.clone().requires_grad_()
    shape, g = FORMS[form](positions, entries, width).shape, torch.Generator().manual_seed(1)
    weights = torch.randn(shape, generator=g).to(entries.device)

    def work() -> None:
        leaf.grad = None
        FORMS[form](positions, leaf, width).backward(weights)

    return work


def _evaluation(positions: Tensor, entries: Tensor, width: int) -> dict[str, Callable[[], None]]:
    """A pass through all layers in evaluation, and turning the vectors of one sample alone."""
    layers, heads, blocks = entries.shape[:3]
    lie = LieRE(entries, width, layers=layers).eval()
    g = torch.Generator().manual_seed(2)
    x = torch.randn(1, heads, len(positions), blocks * width, generator=g).to(entries.device)
    ready = lie.rotations(positions).detach().contiguous()

    @torch.no_grad()
    def through_all_layers() -> None:
        placed = lie.place(positions)
        for i in range(layers):
            placed.layer(i).to_reference(x, x)

    @torch.no_grad()
    def turning_alone() -> None:
        for R in ready:
            for _ in "qk":
                turn_blocks(x, R)

    return {"evaluation": through_all_layers, "turning alone": turning_alone}


def run(
    layers: int = 12,
    heads: int = 6,
    head_dim: int = 64,
    widths: Sequence[int] = (8, 64),
    grid: Sequence[int] = (8, 8),
    repeats: int = 5,
) -> list[dict[str, Any]]:
    """Measure, for each block width, every form, evaluation, and their ratios by wall and by processor time.

    Positions are those of a grid on [0, 1].

    Source: LR-A1, LR-blk.
    """
    device = pick_device(None).type
    positions = (grid_positions(*grid) / torch.tensor([max(n - 1, 1) for n in grid])).to(device)
    rows = []
    for width in widths:
        g = torch.Generator().manual_seed(0)
        entries = uniform_entries(layers, heads, head_dim // width, len(grid), entry_count(width), generator=g)
        entries = entries.to(device)
        works = {form: _training(form, positions, entries, width) for form in FORMS}
        times = in_turns(works | _evaluation(positions, entries, width), repeats)
        about: dict[str, Any] = {"width": width, "tokens": len(positions), "layers": layers, "heads": heads}
        about |= {"device": device, "threads": torch.get_num_threads()}
        rows += [{"form": form, **about, **row} for form, row in times.items()]
        pairs = [(BASELINE, form) for form in FORMS if form != BASELINE]
        for above, below in [*pairs, ("evaluation", "turning alone")]:
            value, cpu = (times[above][unit] / times[below][unit] for unit in ("seconds", "cpu_seconds"))
            rows.append({"ratio": f"{above} / {below}", **about, "value": value, "cpu_value": cpu})
    return rows
