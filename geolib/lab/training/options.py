"""How a run is made, beside what it is: nothing here changes its numbers but the device and the form of a step."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

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
    checkpoint : Path or None
        The run continues from this file when it is there, and keeps its state in it. With None nothing is written and
        signals are left alone.
    checkpoint_seconds : float
        At most this much work is lost when the process is killed.
    time_budget : float or None
        Seconds from now. A run that cannot end in them is given up as soon as its speed is known.
    quiet : bool
        No progress bar.

    Examples
    --------
    >>> from dataclasses import replace
    >>> replace(Options(device="cpu"), quiet=True)
    Options(device='cpu', step='auto', checkpoint=None, checkpoint_seconds=15.0, time_budget=None, quiet=True)
    """

    device: str | None = None
    step: str = "auto"
    checkpoint: Path | None = None
    checkpoint_seconds: float = 15.0
    time_budget: float | None = None
    quiet: bool = False
