"""What a run keeps an eye on beside its mathematics: the progress bar, the checkpoint's age, signals, the time left."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any

from geolib.lab.config import Options
from geolib.lab.files import LabError

_LOOK_SECONDS = 1.0  # between two looks at the loss; on a GPU each look waits for the device
_MARGIN_SECONDS = 1.0  # kept free at the end of a time budget


class Stopped(Exception):
    """A run ended before its end and can be continued, by a signal or, where that is None, by the time budget.

    ``keep``: whether a checkpoint is worth writing; not for a run that would need more than its whole budget once more.
    """

    def __init__(self, reason: str, signal_number: int | None = None, keep: bool = True):
        super().__init__(reason)
        self.signal, self.keep = signal_number, keep

    @property
    def advice(self) -> str:
        """What the same command would do."""
        return "the same command goes on from its checkpoint" if self.keep else "give it a larger time budget"


class Diverged(Exception):
    """The loss or a weight is no longer finite."""


@contextmanager
def requests_to_stop() -> Iterator[list[int]]:
    """The signals that asked this process to stop, as they come; a second one of a kind does what it did before."""
    asked: list[int] = []

    def ask(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        signal.signal(number, before[number])

    before: dict[int, Any] = {}
    for kind in (signal.SIGINT, signal.SIGTERM):
        before[kind] = signal.signal(kind, ask) or signal.SIG_DFL
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Watch:
    """A context around the training loop that the loop reports to after each step and epoch.

    The runs it is told of are those of ``geolib.lab.train``, which imports this module.
    """

    def __init__(self, options: Options):
        self.checkpoint, self.checkpoint_seconds = options.checkpoint, options.checkpoint_seconds
        self.budget, self.quiet = options.time_budget, options.quiet
        self.started = self.looked = self.saved = time.monotonic()
        self.saving_seconds = 0.0
        self.judged = False  # whether the run was found to fit the budget
        self.signals = ExitStack()
        self.asked: list[int] = []
        self.bar: Any = None

    def __enter__(self) -> Watch:
        if self.checkpoint is not None and threading.current_thread() is threading.main_thread():
            self.asked = self.signals.enter_context(requests_to_stop())
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: object) -> None:
        self.signals.close()
        if self.bar is not None:
            self.bar.close()
        if isinstance(error, Diverged):
            kept = self.checkpoint is not None and self.checkpoint.is_file()
            good = f"the last good checkpoint is {self.checkpoint}{self.last_good}"
            last = good if kept else "there is no checkpoint yet"
            raise Diverged(f"{error}; {last}; try a smaller lr or a longer warm-up") from None

    def begin(self, run: Any) -> None:
        """Start the bar and the measurement of speed."""
        self.first_done, self.first_seconds = run.done, run.seconds
        self.last_good = f" (epoch {run.epoch}, step {run.step})"  # where the checkpoint stands
        if not self.quiet:
            try:
                from tqdm import tqdm  # plain text: a widget would be dead on a static page
            except ImportError:
                raise LabError("the progress bar needs tqdm: pip install tqdm, or ask for quiet") from None
            label = f"{run.config.dataset} {run.config.method} seed {run.config.seed}"
            layout = {"bar_format": "{l_bar}{bar:10}{r_bar}", "unit": f" {run.unit}", "unit_scale": True}
            self.bar = tqdm(total=run.progress_total, initial=run.progress, desc=label, **layout)

    def after_step(self, run: Any) -> None:
        """Look at the loss, save, or stop, each when it is time."""
        now = time.monotonic()
        if now - self.looked >= _LOOK_SECONDS:
            self.look(run)
        if self.checkpoint is not None and now - self.saved >= self.checkpoint_seconds:
            self.save(run)
        reason = self.reason_to_stop(run)
        if reason is None:
            return
        if reason.keep:
            self.save(run)
        raise reason

    def after_epoch(self, run: Any) -> None:
        """As after a step, with the epoch's metrics."""
        self.looked = -math.inf
        self.after_step(run)

    def look(self, run: Any) -> None:
        """Check the losses and bring the bar up to date."""
        self.looked = time.monotonic()
        run.check_finite()
        if self.bar is None:
            return
        figures = {"epoch": f"{min(run.epoch + 1, run.config.epochs)}/{run.config.epochs}"}
        figures["loss"] = f"{run.losses[run.step - 1].item():.3f}"  # step 0 is the last of the epoch before
        self.bar.set_postfix(figures | run.headline, refresh=False)
        self.bar.update(run.progress - self.bar.n)
        self.bar.refresh()

    def save(self, run: Any) -> None:
        """Write the checkpoint, if there is one to write."""
        if self.checkpoint is not None:
            before = time.monotonic()
            run.save(self.checkpoint)
            self.saved = time.monotonic()
            self.saving_seconds = self.saved - before
            self.last_good = f" (epoch {run.epoch}, step {run.step})"

    def reason_to_stop(self, run: Any) -> Stopped | None:
        """Stopped after a signal, or when the budget does not hold what is left to do."""
        where = f"after epoch {run.epoch}, step {run.step} of {run.steps}"
        if self.asked:
            return Stopped(f"stopped by {signal.Signals(self.asked[0]).name} {where}", self.asked[0])
        unmeasured = run.epoch == run.config.epochs or run.done == self.first_done
        if self.budget is None or unmeasured:
            return None
        left = self.budget - (time.monotonic() - self.started)
        # Compiling and recording the step happen once: they say nothing of its speed.
        done = run.done - self.first_done
        seconds = run.seconds - self.first_seconds - run.take_step.preparing_seconds
        if left < self.reserve(run, seconds / done):
            return Stopped(f"the time budget is spent {where}")
        known = run.step == 0 or seconds >= 0.1 * self.budget
        if known and not self.judged:
            self.judged = True
            needed = (run.total - run.done) * seconds / done
            if needed > left:
                rest = f"the rest takes about {needed:.0f} s and {left:.0f} s are left"
                return Stopped(f"given up {where}: {rest}", keep=needed <= self.budget)
        return None

    def reserve(self, run: Any, step_seconds: float) -> float:
        """Seconds to keep: an evaluation may come next, then a checkpoint, and the process has to end."""
        evaluations = sum("test_loss" in row for row in run.metrics)
        unmeasured = step_seconds * run.test_examples / run.config.batch  # a forward pass costs less than a step
        evaluation = run.evaluation_seconds / evaluations if evaluations else unmeasured
        return _MARGIN_SECONDS + 1.5 * evaluation + 2 * self.saving_seconds + 2 * step_seconds
