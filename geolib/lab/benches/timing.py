"""Timing for all benches: PyTorch's own clock, which waits for the GPU, and where to measure."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.benchmark import timer

LEAST = 1e-9  # seconds of a piece of work: a clock that ticks seldom may not have moved, and rates are divided by it


def at_hand(device: str | None) -> str:
    """The device that was named, else the GPU where there is one."""
    return device or ("cuda" if torch.cuda.is_available() else "cpu")


def timed(work: Callable[[], Any], repeats: int) -> dict[str, float]:
    """Median time of a piece of work, after one call that does not count.

    ``seconds`` run until the GPU has done all of it; ``cpu_seconds`` are the processor's, which other programs disturb
    less, and which on a GPU are those of launching.
    """
    work()
    walls, cpus = [], []
    for _ in range(repeats):
        wall, cpu = timer(), time.process_time()
        work()
        cpus.append(max(time.process_time() - cpu, LEAST))
        walls.append(max(timer() - wall, LEAST))
    return {"seconds": statistics.median(walls), "cpu_seconds": statistics.median(cpus)}


def in_turns(works: Sequence[Callable[[], Any]], repeats: int) -> list[dict[str, float]]:
    """Best times of several pieces of work, in ``timed``'s units; they take turns, so that all are disturbed alike."""
    best = [{"seconds": math.inf, "cpu_seconds": math.inf} for _ in works]
    for repeat in range(1 + repeats):
        for least, work in zip(best, works):
            wall, cpu = timer(), time.process_time()
            work()
            took = {"cpu_seconds": max(time.process_time() - cpu, LEAST), "seconds": max(timer() - wall, LEAST)}
            if repeat:
                least.update({key: min(least[key], took[key]) for key in least})
    return best
