"""Time and memory for all benches: PyTorch's own clock, which waits for the GPU, and the peak of memory."""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.utils.benchmark import timer

Name = TypeVar("Name", bound=Hashable)
LEAST = 1e-9  # seconds of a piece of work: a clock that ticks seldom may not have moved, and rates are divided by it


def in_turns(works: Mapping[Name, Callable[[], Any]], repeats: int) -> dict[Name, dict[str, float]]:
    """Best times of pieces of work by name, after a first call; they take turns, so that all are disturbed alike.

    ``seconds`` run until the GPU has done all of it; ``cpu_seconds`` are the processor's, which other programs disturb
    less, and which on a GPU are those of launching.
    """
    best = {name: {"seconds": math.inf, "cpu_seconds": math.inf} for name in works}
    for repeat in range(1 + repeats):
        for name, work in works.items():
            least, wall, cpu = best[name], timer(), time.process_time()
            work()
            took = {"cpu_seconds": max(time.process_time() - cpu, LEAST), "seconds": max(timer() - wall, LEAST)}
            if repeat:
                least.update({key: min(least[key], took[key]) for key in least})
    return best


def peak(work: Callable[[], Any], device: torch.device) -> float | None:
    """MiB that a piece of work adds at most; None where the system does not tell."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        held = torch.cuda.memory_allocated(device)
        work()
        return (torch.cuda.max_memory_allocated(device) - held) / 2**20
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # what earlier work has freed goes back first
        Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts again
    except OSError:
        return None
    before = _resident("VmRSS:")
    work()
    return _resident("VmHWM:") - before


def _resident(which: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(which)) / 1024
