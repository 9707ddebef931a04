"""The device of a run: which one, alone with its own random numbers, and what its memory holds."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from geolib.lab.config import Config
from geolib.lab.files import LabError
from geolib.lab.training import ranks


def pick_device(name: str | None) -> torch.device:
    """The named device, or a GPU where there is one; LabError when it is not there.

    Of several processes on a machine each takes the GPU of its own number where none is named by number.
    """
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and ranks.local_rank():
        name = f"cuda:{ranks.local_rank()}"
    kind, _, index = name.partition(":")
    if kind == "cpu" and not index:
        return torch.device("cpu")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if kind == "cuda" and (index or "0").isdecimal() and int(index or 0) < count:
        return torch.device("cuda", int(index or 0))
    there = ", ".join(["cpu", *(f"cuda:{i}" for i in range(count))])
    raise LabError(f"device {name!r} is not here; there is {there}")


@contextmanager
def isolated(device: torch.device) -> Iterator[None]:
    """Inside: repeatable algorithms, and random generators of our own; after it, the caller's are as they were."""
    on_gpu = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if on_gpu else []):
        if not on_gpu:  # the CPU's algorithms repeat as they are
            yield
            return
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS is first used
        settings: Any = torch.utils.deterministic
        was, filled = torch.get_deterministic_debug_mode(), settings.fill_uninitialized_memory
        torch.use_deterministic_algorithms(True)  # geolib.lab.training.step.repeatably yields where that cannot be
        settings.fill_uninitialized_memory = False  # it only costs time: nothing here reads unwritten memory
        torch.cuda.reset_peak_memory_stats(device)
        try:
            with torch.cuda.device(device):
                yield
        finally:
            torch.set_deterministic_debug_mode(was)
            settings.fill_uninitialized_memory = filled


def peak_memory(device: torch.device) -> int:
    """Bytes: of tensors on a GPU, of the whole process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@contextmanager
def memory_errors_named(config: Config, device: torch.device, checkpoint: Path | None) -> Iterator[None]:
    """A lack of memory inside becomes a LabError that says which setting to lower."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        kept = f"; the last checkpoint is {checkpoint}" if checkpoint is not None and checkpoint.is_file() else ""
        raise LabError(
            f"out of memory on {device}; lower batch (now {config.batch}), then width (now "
            f"{config.width}), or run fewer jobs at a time{kept}"
        ) from None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory was lacking, on a GPU or on the host, where PyTorch has no error of its own for it."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    words = ("not enough memory", "can't allocate memory", "Cannot allocate memory", "out of memory")
    return isinstance(error, RuntimeError) and any(word in str(error) for word in words)


def without_waiting(x: Tensor, device: torch.device) -> Tensor:
    """A tensor on the device; a GPU fetches it by itself."""
    return x.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else x
