"""Where a run is computed: the device, the precision of its products, repeatable algorithms, signals, memory."""

import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from geolib.lab.files import LabError

PRECISIONS = {"float32": "float32", "bfloat16": "bf16"}  # names of precisions, and the records' names for them


def pick_device(name: str | None) -> torch.device:
    """Find the named device, or a GPU where there is one, of this process's number ($LOCAL_RANK, $SLURM_LOCALID)."""
    name = name or ("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, index = name.partition(":")
    if kind == "cpu" and not index:
        return torch.device("cpu")
    number = index or os.environ.get("LOCAL_RANK") or os.environ.get("SLURM_LOCALID") or "0"
    count = torch.cuda.device_count()
    if kind == "cuda" and number.isdecimal() and int(number) < count:
        return torch.device("cuda", int(number))
    there = ", ".join(["cpu", *(f"cuda:{i}" for i in range(count))])
    raise LabError(f"device {f'cuda:{number}' if kind == 'cuda' else name} is not here; there is {there}")


def precision_of(configured: str | None, option: str | None, device: torch.device) -> str:
    """Settle the precision of products, as records name it: the configuration's, else the option's (``train``).

    "auto" takes bfloat16 also on a CPU that multiplies in it (AMX, AVX-512 BF16): up to twice as fast.
    """
    if option not in (None, "auto", *PRECISIONS):
        raise LabError(f"precision: got {option!r}; it is one of auto, {', '.join(PRECISIONS)}")
    if configured is not None and option not in (None, "auto", configured):
        raise LabError(f"precision: got {option!r}; the run's configuration says {configured!r}")
    asked = configured or option
    if asked in PRECISIONS:
        return PRECISIONS[asked]
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    multiplies = torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()
    return "bf16" if asked == "auto" and multiplies else "float32"


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
        mode, filled = torch.get_deterministic_debug_mode(), settings.fill_uninitialized_memory
        torch.use_deterministic_algorithms(True)  # ``repeatably`` yields where that cannot be
        settings.fill_uninitialized_memory = False  # it only costs time: nothing here reads unwritten memory
        torch.cuda.reset_peak_memory_stats(device)
        try:
            with torch.cuda.device(device):
                yield
        finally:
            torch.set_deterministic_debug_mode(mode)
            settings.fill_uninitialized_memory = filled


def repeatably(step: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a step of training: from the first operation on that has no repeatable form, it does with what there is."""

    def wrapped(*batch: Any) -> Any:
        # Warnings from the start would not do: attention would take the form that adds in any order, and has another.
        try:
            return step(*batch)
        except RuntimeError as error:
            strict = not torch.is_deterministic_algorithms_warn_only_enabled()
            if not strict or "deterministic" not in str(error):
                raise
        torch.use_deterministic_algorithms(True, warn_only=True)
        return step(*batch)

    return wrapped


def peak_memory(device: torch.device) -> int:
    """Read the peak in bytes: of tensors on a GPU, of the whole process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@contextmanager
def requests_to_stop(wanted: bool = True) -> Iterator[list[int]]:
    """Collect the SIGINT and SIGTERM that come inside; a second one of a kind does what it did before.

    Nothing is collected, and signals do what they did, where it is not wanted and outside the main thread.
    """
    asked, before = list[int](), dict[int, Any]()

    def ask(number: int, frame: Any) -> None:
        asked.append(number)
        signal.signal(number, before[number])

    if wanted and threading.current_thread() is threading.main_thread():
        for kind in (signal.SIGINT, signal.SIGTERM):
            before[kind] = signal.signal(kind, ask) or signal.SIG_DFL
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
