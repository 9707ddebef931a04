"""How a run is made, beside what it is: only device, form of a step and precision reach its digits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from geolib.lab import config

PRECISIONS = ("auto", *config.PRECISIONS)
FORMS = ("auto", "compiled", "captured", "eager")


@dataclass(frozen=True)
class Options:
    """Where a run is made, how fast, and what it keeps.

    Parameters
    ----------
    device : str or None
        "cpu", "cuda", "cuda:1"; a GPU where there is one when None.
    step : str
        The form of a step on a GPU: "eager", "captured", "compiled" (and captured), or "auto", the fastest that pays.
    precision : str or None
        Of products, where the configuration names none: "float32", "bfloat16", or "auto", the faster one by a short
        measurement on a CPU. When None: float32 on a CPU, so that the records of a table agree, and bfloat16 on a GPU
        that has it. A run that goes on keeps the precision it began with.
    checkpoint : Path or None
        The run continues from this file when it is there, and keeps its state in it. With None nothing is written and
        signals are left alone.
    checkpoint_seconds : float
        At most this much work is lost when the process is killed.
    time_budget : float or None
        Seconds from now. A run that cannot end in them is given up as soon as its speed is known.
    quiet : bool
        No progress bar.
    together : bool
        Under ``torchrun``: all its processes train this one run and share every batch. Else each goes its own way.

    Examples
    --------
    >>> from dataclasses import replace
    >>> replace(Options(device="cpu"), quiet=True).quiet
    True
    """

    device: str | None = None
    step: str = "auto"
    precision: str | None = None
    checkpoint: Path | None = None
    checkpoint_seconds: float = 15.0
    time_budget: float | None = None
    quiet: bool = False
    together: bool = False
