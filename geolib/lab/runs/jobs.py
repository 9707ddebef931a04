"""Several runs at a time on one device, each in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import IO, Any

import geolib
from geolib.lab.analysis import after_training
from geolib.lab.config import Config
from geolib.lab.data.sets import Dataset
from geolib.lab.files import LabError
from geolib.lab.runs.claims import Claimed, claim
from geolib.lab.runs.execute import kept, run
from geolib.lab.runs.record import Record
from geolib.lab.runs.store import Folders, path_of
from geolib.lab.training.abreast import Lane, abreast
from geolib.lab.training.device import pick_device
from geolib.lab.training.loop import Run
from geolib.lab.training.options import Options
from geolib.lab.training.ranks import World
from geolib.lab.training.watch import Stopped

POLL_SECONDS = 0.1
CLAIMED = 4  # the exit code of a process whose run another process has


class ChildFailed(Exception):
    """A process of ``side_by_side`` ended with a code that is not 0."""

    def __init__(self, error: str, code: int):
        super().__init__(error.removeprefix("geolib.lab: ") or f"ended with code {code}")
        self.code = code


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
    again : bool
        Whether it is made although there is a record.
    """

    config: Config
    experiment: str
    scale: str
    folders: Folders
    options: Options = field(default_factory=lambda: Options(quiet=True))
    at_a_time: int = 1
    deadline: float | None = None
    again: bool = False

    @property
    def record_path(self) -> Path:
        """Where its record will be."""
        return path_of(self.config, self.experiment, self.folders.records)

    @property
    def seconds_left(self) -> float | None:
        """Until the deadline, or None without one."""
        return None if self.deadline is None else self.deadline - time.time()

    def do(self, data: Dataset | None = None, world: World | None = None) -> Record:
        """Train, and write the record; raises what ``run`` raises, and Claimed when another process has the run.

        Of the processes of a world that train it together, the first claims it for all.
        """
        with self.claimed(world or World()):
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

    @contextmanager
    def claimed(self, world: World) -> Iterator[None]:
        """Inside, the run is this process's own, and has no record that another one made in the meantime."""
        with ExitStack() as stack:
            trouble: Exception | None = None
            if world.first:
                try:
                    stack.enter_context(claim(self.folders.checkpoint(self.config)))
                    if self.record_path.is_file() and not self.again:
                        trouble = Claimed(f"{self.config.name}: another process has just made this run")
                except (Claimed, LabError) as error:
                    trouble = error
            trouble = world.agree(trouble)
            if trouble is not None:
                raise trouble
            yield

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


def abreast_of(jobs: Sequence[Job], sets: Mapping[str, Dataset]) -> Iterator[tuple[Job, Record | Exception]]:
    """Do jobs in this process, a step of each in turn, on a GPU each on a stream of its own.

    Parameters
    ----------
    jobs : sequence of Job
        Of one device.
    sets : mapping
        From a data set's name to the set.

    Yields
    ------
    tuple
        A job that has ended, and its record or what ``Job.do`` would have raised.
    """
    with ExitStack() as stack:
        mine, lanes = list[Job](), list[Lane]()
        for job in jobs:
            try:
                stack.enter_context(job.claimed(World()))
            except (Claimed, LabError) as trouble:
                yield job, trouble
                continue
            checkpoint = job.folders.checkpoint(job.config)
            options = replace(job.options, checkpoint=checkpoint, time_budget=job.seconds_left, quiet=True)
            mine.append(job)
            lanes.append(Lane(job.config, sets[job.config.dataset], options))
        for number, outcome in abreast(lanes, pick_device(jobs[0].options.device)):
            job = mine[number]
            if isinstance(outcome, Run):
                yield job, kept(outcome, job.folders, job.experiment, job.scale, len(lanes), after_training)
            else:
                yield job, outcome


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


def side_by_side(jobs: Iterable[Job | None], count: int) -> Iterator[tuple[Job, int, str]]:
    """Do jobs in processes of their own, some at a time, in their order.

    Parameters
    ----------
    jobs : iterable of Job or None
        Asked for the next one whenever there is room; None says that there is none right now.
    count : int
        Processes at a time.

    Yields
    ------
    tuple
        A job that has ended, its exit code as the command line's, and the last line of its errors.

    Raises
    ------
    Stopped
        After SIGINT or SIGTERM, when all processes have written their checkpoints and ended.
    """
    waiting, working, more = iter(jobs), list[_Child](), True
    with _requests_to_stop() as asked:
        try:
            while more or working:
                while more and len(working) < count and not asked:
                    try:
                        job = next(waiting)
                    except StopIteration:
                        more = False
                        break
                    if job is None:
                        break
                    working.append(_start(replace(job, at_a_time=count), count))
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
