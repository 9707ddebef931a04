"""Locality focusing, fused against literal: time of forward and backward, and the memory above the inputs.

And of one forward pass: Gaussians as features of queries and keys against the forms that add or multiply a matrix or
its blocks. Their times are taken in turns in one process, so that only their ratios count.
"""

from __future__ import annotations

import multiprocessing
import resource
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from geolib.lab.benches.timing import at_hand, in_turns, timed
from geolib.locality import (
    focused_attention,
    focused_by_features,
    fused_focused_attention,
    gated_by_features,
    log_attenuation,
)
from geolib.rotations import grid_positions

FORMS = {"literal": focused_attention, "fused": fused_focused_attention, "features": focused_by_features}
SIDES = (32, 64, 128)  # of the grids of ``turns``: 1,024, 4,096 and 16,384 tokens


def run(
    side: int = 64, heads: int = 8, dim: int = 64, repeats: int = 5, device: str | None = None
) -> list[dict[str, Any]]:
    """Measure the forms on a grid of side x side tokens, each in a process of its own; then ``turns``.

    ``speedup`` and ``memory`` are relative to the literal form. The median of ``repeats`` timings counts, after one
    that does not.

    Source: RF-FUSED.
    """
    device = at_hand(device)
    rows = [_in_a_new_process(measure, form, side, heads, dim, repeats, device) for form in FORMS]
    for row in rows:
        row["speedup"] = rows[0]["seconds"] / row["seconds"]
        row["memory"] = row["peak_bytes"] / rows[0]["peak_bytes"]
    return rows + [row for side in SIDES for row in turns(side, 1, dim, repeats, device)]


def _in_a_new_process(work: Callable[..., Any], *arguments: Any) -> Any:
    """What ``work`` returns; the high-water mark of a process never falls, so each form needs a fresh one."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


def turns(side: int, heads: int, dim: int, repeats: int, device: str) -> list[dict[str, Any]]:
    """Six forms of attention with a Gaussian, forward: time as a multiple of plain attention's, and memory.

    Whatever else the machine does slows all of them alike, and the least of several turns counts; on the CPU it is the
    processor's own time. ``peak_bytes`` is the most that a process of its own held above the inputs.
    """
    works = _works(side, heads, dim, device)
    clock = "cpu_seconds" if device == "cpu" else "seconds"
    times = [row[clock] for row in in_turns(list(works.values()), repeats)]
    shared = {"tokens": side * side, "heads": heads, "dim": dim, "device": device}
    return [
        {
            "form": name,
            **shared,
            "multiple": took / times[0],
            "peak_bytes": _in_a_new_process(held, name, side, heads, dim, device),
        }
        for name, took in zip(works, times)
    ]


def _works(side: int, heads: int, dim: int, device: str) -> dict[str, Callable[[], Tensor]]:
    """The forms of ``turns`` on inputs of their own."""
    torch.manual_seed(0)
    p = grid_positions(side, side).to(device)
    q, k, v = torch.randn(3, 1, heads, side * side, dim, device=device).unbind(0)
    sigma = torch.full((heads, 1), side / 8, device=device)
    return {
        "plain": lambda: F.scaled_dot_product_attention(q, k, v),
        "gate, a given matrix": lambda: _biased(q, k, v, p, sigma),
        "gate, features": lambda: gated_by_features(q, k, v, p, sigma),
        **{f"focusing, {name}": partial(form, q, k, v, p, sigma) for name, form in FORMS.items()},
    }


def held(name: str, side: int, heads: int, dim: int, device: str) -> int:
    """Bytes that one pass of a form of ``turns`` holds above its inputs, at most, measured in this process."""
    _works(8, heads, dim, device)[name]()  # what a first call leaves
    work, before = _works(side, heads, dim, device)[name], _peak(device)
    work()
    return _peak(device) - before


def _biased(q: Tensor, k: Tensor, v: Tensor, positions: Tensor, sigma: Tensor) -> Tensor:
    """The Gaussian gate as a matrix that is made and added."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=log_attenuation(positions, sigma))


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
    if device != "cpu":
        return torch.cuda.max_memory_allocated()
    try:  # Linux; getrusage's number there begins with what the process that started this one held
        told = Path("/proc/self/status").read_text()
    except OSError:
        return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return 1024 * int(told.partition("VmHWM:")[2].split()[0])


if __name__ == "__main__":
    for row in run():
        print(row)
