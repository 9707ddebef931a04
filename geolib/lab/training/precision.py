"""In which precision a run multiplies: as asked, or as a short measurement on the processor at hand says.

In "bf16" the factors of a product are rounded to bfloat16; sums of products, weights, the optimiser's moments, the
residual stream, softmax and norms stay in float32. Some processors have units that multiply so ten times faster, on
others it is slower than float32: they are told apart by a few steps of each on one thread, in time of the processor.
That counts the work, and not what other programs keep it waiting; several threads would count their own waiting too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from geolib.lab.files import LabError
from geolib.lab.training.options import PRECISIONS

TIMED = 3  # steps of each precision, after one that is not timed
GAIN = 1.2  # bfloat16 is taken when it is so many times as fast: nothing is rounded for less

RECORDED = {"float32": "float32", "bfloat16": "bf16"}  # the names that records have
TITLES = {"float32": "float32 products", "bf16": "bf16 products, attention written out"}


def asked(configured: str | None, option: str | None) -> str | None:
    """What a run is asked for: by its configuration where that names a precision, else by its options.

    >>> asked("float32", "auto"), asked(None, "auto")
    ('float32', 'auto')
    """
    if option is not None and option not in PRECISIONS:
        raise LabError(f"precision: got {option!r}; it is one of {', '.join(PRECISIONS)}")
    if configured is not None and option not in (None, "auto", configured):
        raise LabError(f"precision: got {option!r}; the run's configuration says {configured!r}")
    return configured or option


def given(precision: str | None, device: torch.device) -> str:
    """The precision that is asked for, or usual on a device, as records name it; float32 until one is measured."""
    if precision in RECORDED:
        return RECORDED[precision]
    return "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "float32"


def kept(began: tuple[str, str], precision: str | None, checkpoint: Path) -> tuple[str, str]:
    """The precision that a checkpoint began with, and why; LabError when another one is asked for.

    >>> kept(("bf16", "measured"), "auto", Path("run.pt"))
    ('bf16', 'measured')
    """
    asked = RECORDED.get(precision or "", began[0])
    if asked != began[0]:
        raise LabError(f"{checkpoint}: made with precision {began[0]}, not {asked}; delete it to start over")
    return began


def measured(step: Callable[[str], Tensor], images: int) -> tuple[str, str]:
    """The faster precision and the sentence that says so.

    Parameters
    ----------
    step : function of a precision, as records name it
        Takes a step of training in it, in this process.
    images : int
        In a step.
    """
    seconds = {"float32": math.inf, "bf16": math.inf}
    with one_thread():
        for turn in range(1 + TIMED):
            for precision in seconds:
                before = time.process_time()
                step(precision)
                if turn:
                    seconds[precision] = min(seconds[precision], time.process_time() - before)
    rates = {precision: images / max(took, 1e-9) for precision, took in seconds.items()}
    fast = "bf16" if rates["bf16"] > GAIN * rates["float32"] else "float32"
    slow = "float32" if fast == "bf16" else "bf16"
    speeds = f"{rates[fast]:.0f} images/s of one thread's time against {rates[slow]:.0f} with {slow} products"
    return fast, f"{TITLES[fast]}, chosen by measurement: {speeds}"


@contextmanager
def one_thread() -> Iterator[None]:
    """Inside, PyTorch computes on one thread; after it, on as many as before."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
