"""Time and memory of pieces of work, by name; each is a function without arguments."""

import ctypes
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.utils.benchmark import timer  # which waits for the GPU


def in_turns(works: Mapping[Any, Callable[[], Any]], repeats: int) -> dict[Any, dict[str, float]]:
    """Measure best times, by the clock and of the processor; works take turns, and a first turn does not count."""
    best = {name: {"seconds": float("inf"), "cpu_seconds": float("inf")} for name in works}
    for repeat in range(1 + repeats):
        for name, work in works.items():
            wall, cpu = timer(), time.process_time()
            work()
            took = {"cpu_seconds": time.process_time() - cpu, "seconds": timer() - wall}
            if repeat:  # at least a nanosecond: a coarse clock may not have moved, and rates are divided by it
                best[name] = {key: max(min(least, took[key]), 1e-9) for key, least in best[name].items()}
    return best


def peak(work: Callable[[], Any], device: torch.device) -> float | None:
    """Measure the MiB that a piece of work adds at most; None where the system does not say."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        held = torch.cuda.memory_allocated(device)
        work()
        return (torch.cuda.max_memory_allocated(device) - held) / 2**20
    resident = lambda field: int(re.findall(rf"{field}:\s+(\d+)", Path("/proc/self/status").read_text())[0])  # noqa: E731
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # what earlier work has freed goes back first
        Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts again
    except OSError:
        return None
    before = resident("VmRSS")
    work()
    return (resident("VmHWM") - before) / 1024
