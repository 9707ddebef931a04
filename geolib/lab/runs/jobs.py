"""Several runs at a time on one device, each in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import IO, Any

import geolib
from geolib.lab.analysis import after_training
from geolib.lab.config import Config
from geolib.lab.data.sets import Dataset
from geolib.lab.runs.execute import run
from geolib.lab.runs.record import Record
from geolib.lab.runs.store import Folders, path_of
from geolib.lab.training.options import Options
from geolib.lab.training.watch import Stopped

POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Job:
    """One run of an experiment, with all that a process has to know to do it.

    Parameters
    ----------
    config : Config
    experiment, scale : str
    folders : Folders
    options : Options
        Its checkpoint and time budget are not used: they follow from the folders and the deadline.
    at_a_time : int
        How many runs share the device.
    deadline : float or None
        When it has to end, as ``time.time`` counts.
    """

    config: Config
    experiment: str
    scale: str
    folders: Folders
    options: Options = field(default_factory=lambda: Options(quiet=True))
    at_a_time: int = 1
    deadline: float | None = None

    @property
    def record_path(self) -> Path:
        """Where its record will be."""
        return path_of(self.config, self.experiment, self.folders.records)

    @property
    def seconds_left(self) -> float | None:
        """Until the deadline, or None without one."""
        return None if self.deadline is None else self.deadline - time.time()

    def do(self, data: Dataset | None = None) -> Record:
        """Train, and write the record; raises what ``run`` raises."""
        return run(
            self.config,
            data=data,
            out=self.folders,
            experiment=self.experiment,
            scale=self.scale,
            options=replace(self.options, time_budget=self.seconds_left),
            jobs=self.at_a_time,
            after=after_training,
        )

    def to_json(self) -> str:
        """The job as a child process reads it."""
        return json.dumps(asdict(self), default=str)  # a path becomes its text

    @classmethod
    def from_json(cls, text: str) -> Job:
        """The job that ``to_json`` wrote."""
        values = json.loads(text)
        folders = Folders(**{key: Path(path) for key, path in values["folders"].items()})
        parts = {"config": Config.from_dict(values["config"]), "folders": folders}
        return cls(**values | parts | {"options": Options(**values["options"])})


@dataclass
class _Child:
    """A process at work on a job, and the file that takes its errors."""

    job: Job
    process: subprocess.Popen[str]
    errors: IO[str]

    def said(self) -> str:
        """The last line of its errors."""
        self.errors.seek(0)
        lines = self.errors.read().strip().splitlines()
        return lines[-1] if lines else ""


def side_by_side(
    jobs: Sequence[Job], count: int, may_start: Callable[[Job], bool] = lambda job: True
) -> Iterator[tuple[Job, int, str]]:
    """Do jobs in processes of their own, some at a time, in their order.

    Parameters
    ----------
    jobs : sequence of Job
    count : int
        Processes at a time.
    may_start : function of a Job
        Asked before each start; a job it refuses is left out.

    Yields
    ------
    tuple
        A job that has ended, its exit code as the command line's, and the last line of its errors.

    Raises
    ------
    Stopped
        After SIGINT or SIGTERM, when all processes have written their checkpoints and ended.
    """
    waiting, working = list(jobs), list[_Child]()
    with _requests_to_stop() as asked:
        try:
            while waiting or working:
                while waiting and len(working) < count and not asked:
                    job = replace(waiting.pop(0), at_a_time=count)
                    if may_start(job):
                        working.append(_start(job, count))
                ended = [child for child in working if child.process.poll() is not None]
                working = [child for child in working if child not in ended]
                for child in ended:
                    yield child.job, child.process.returncode, child.said()
                if asked:
                    raise Stopped(f"stopped by {signal.Signals(asked[0]).name}, with its {len(working)} runs", asked[0])
                if not ended:
                    time.sleep(POLL_SECONDS)
        finally:
            _end(working)


def _start(job: Job, count: int) -> _Child:
    """A process that does the job. It is in a session of its own: a key on the terminal reaches the parent alone."""
    root = str(Path(geolib.__file__).resolve().parents[1])
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [root, environment.get("PYTHONPATH")]))
    environment.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // count)))
    errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - open as long as the process is
    told = tempfile.TemporaryFile("w+")  # noqa: SIM115 - the process has its own handle
    told.write(job.to_json())
    told.seek(0)
    process = subprocess.Popen(
        [sys.executable, "-m", "geolib.lab", "job"],
        stdin=told,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        text=True,
        env=environment,
        start_new_session=True,
    )
    told.close()
    return _Child(job, process, errors)


def _end(working: Sequence[_Child]) -> None:
    """Ask processes to end, and wait until they have written their checkpoints."""
    for child in working:
        child.process.terminate()
    for child in working:
        child.process.wait()


@contextmanager
def _requests_to_stop() -> Iterator[list[int]]:
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
