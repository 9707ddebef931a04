"""Locality focusing, fused against literal: time of forward and backward, and the memory above the inputs."""

from __future__ import annotations

import multiprocessing
import resource
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch
from torch import Tensor

from geolib.lab.benches.timing import at_hand, timed
from geolib.locality import focused_attention, fused_focused_attention
from geolib.rotations import grid_positions

FORMS = {"literal": focused_attention, "fused": fused_focused_attention}


def run(
    side: int = 64, heads: int = 8, dim: int = 64, repeats: int = 5, device: str | None = None
) -> list[dict[str, Any]]:
    """Measure both forms on a square grid, each in a process of its own on the CPU.

    Parameters
    ----------
    side : int
        The grid has side x side tokens: 4,096 at 64.
    heads, dim : int
    repeats : int
        Timings a form, of which the median counts, after one that does not.
    device : str or None
        "cuda" where there is one when None, else "cpu".

    Returns
    -------
    list of dict
        One row a form: tokens, heads, dim, device, threads, seconds, cpu_seconds, peak_bytes, and, relative to the
        literal form, speedup and memory.

    Source: RF-FUSED.
    """
    device = at_hand(device)
    rows = []
    for form in FORMS:
        # The high-water mark of a process never falls, so each form needs a fresh one.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            rows.append(pool.submit(measure, form, side, heads, dim, repeats, device).result())
    for row in rows:
        row["speedup"] = rows[0]["seconds"] / row["seconds"]
        row["memory"] = row["peak_bytes"] / rows[0]["peak_bytes"]
    return rows


def measure(form: str, side: int, heads: int, dim: int, repeats: int, device: str) -> dict[str, Any]:
    """One row of ``run``, measured in this process."""
    torch.manual_seed(0)
    positions = grid_positions(side, side).to(device)
    q, k, v = torch.randn(3, 1, heads, side * side, dim, device=device).requires_grad_().unbind(0)
    sigma = torch.full((heads, 1), side / 8, device=device, requires_grad=True)
    _step(form, q[..., :64, :], k[..., :64, :], v[..., :64, :], positions[:64], sigma)
    before = _peak(device)
    times = timed(lambda: _step(form, q, k, v, positions, sigma), repeats)
    return {
        "form": form,
        "tokens": side * side,
        "heads": heads,
        "dim": dim,
        "device": device,
        "threads": torch.get_num_threads(),
        **times,
        "peak_bytes": _peak(device) - before,
    }


def _step(form: str, q: Tensor, k: Tensor, v: Tensor, positions: Tensor, sigma: Tensor) -> None:
    """Forward and backward once."""
    y = FORMS[form](q, k, v, positions, sigma)
    torch.autograd.grad(y, (q, k, v, sigma), torch.ones_like(y))


def _peak(device: str) -> int:
    """The most memory held so far, in bytes: this process's on the CPU, the allocator's on a GPU."""
    if device == "cpu":
        return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return torch.cuda.max_memory_allocated()


if __name__ == "__main__":
    for row in run():
        print(row)
