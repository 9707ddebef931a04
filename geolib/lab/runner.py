"""Making many runs: what a process must know to make one, how long one should take, and the loop over all of them."""

import contextlib
import math
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, SoftFileLock, Timeout

from geolib.lab.config import Config
from geolib.lab.device import requests_to_stop
from geolib.lab.files import LabError, remove
from geolib.lab.probes import after_training
from geolib.lab.records import Record, checkpoint_of, run, write
from geolib.lab.train import Diverged, Stopped

DONE, FAILED, USER_ERROR, OUT_OF_TIME = 0, 1, 2, 3  # exit codes; 128 + n stands for the signal n


@dataclass(frozen=True)
class Task:
    """One run, with all that a process has to know to make it.

    ``out`` is the folder of all records; ``keywords`` are those of ``geolib.lab.train``; ``jobs`` runs share the
    device; ``again`` makes it although there is a record. Its lock and its log are beside its checkpoint.
    """

    config: Config
    experiment: str
    scale: str
    out: Path
    keywords: Mapping[str, Any] = field(default_factory=dict)
    jobs: int = 1
    again: bool = False

    @property
    def checkpoint(self) -> Path:
        """The run's checkpoint."""
        return checkpoint_of(self.config, self.out)

    @property
    def log(self) -> Path:
        """The file of what the run prints in a process of its own."""
        return self.checkpoint.with_suffix(".log")

    @property
    def is_recorded(self) -> bool:
        """Whether there is a record of the run, of whatever experiment, or a damaged file in a record's place."""
        return any(self.out.glob(f"*/{self.config.name}.json"))


@dataclass(frozen=True)
class Outcome:
    """A run's record, or the exit code and words that say why there is none: DONE where another process makes it."""

    record: Record | None = None
    code: int = DONE
    words: str = ""


def make(task: Task, data: Any = None, patience: float = 0.0) -> Outcome:
    """Make one run, and wait ``patience`` seconds for its lock. Its checkpoint stays until the record is written."""
    noted: dict[str, Any] = {"experiment": task.experiment, "scale": task.scale, "jobs": task.jobs}
    try:
        with lock(task.checkpoint, patience):
            if task.is_recorded and not task.again:
                return Outcome(words="recorded by another process meanwhile")
            made = run(
                task.config, data=data, after=after_training, checkpoint=task.checkpoint, **noted, **task.keywords
            )
            return Outcome(made)
    except Timeout:
        return Outcome(words="being made by another process")
    except Stopped as stop:
        return Outcome(None, 128 + stop.signal, f"{stop}; the same command goes on from there")
    except (LabError, Diverged) as error:
        return Outcome(None, USER_ERROR if isinstance(error, LabError) else FAILED, str(error))
    except Exception as error:  # nobody foresaw it: all of it is shown, on the terminal or in the log
        traceback.print_exc()
        return Outcome(None, FAILED, f"{type(error).__name__}: {error}")


@contextmanager
def lock(checkpoint: Path, patience: float = 0.0) -> Iterator[None]:
    """Hold the lock of a run; ``filelock.Timeout`` when a living process on any machine that shares the folder has it.

    LabError where the file system has no locks, without which processes would make runs twice.
    """
    path = checkpoint.with_suffix(".lock")
    held = FileLock(path, timeout=patience)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        held.acquire()
        if isinstance(held, SoftFileLock):  # the mere presence of a file, which would outlive a killed process
            held.release()
            raise NotImplementedError("no flock")
    except (OSError, NotImplementedError) as error:
        if isinstance(error, Timeout):
            raise
        raise LabError(f"{path}: cannot be locked ({error}); name another folder with --out DIR") from None
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()  # before it is given back: who waits for the lock then sees that this file is gone
        held.release()


class Times:
    """How long runs took on one device: the newest record of each cell of a table, and of each method and size."""

    def __init__(self, device: str, records: Iterable[Record] = ()):
        self.device, self.newest = device, dict[Any, Record]()
        for record in sorted(records, key=lambda record: record.started):
            self.add(record)

    def add(self, record: Record) -> None:
        """Take a newer record into account."""
        if record.device == self.device:
            self.newest |= {record.config.cell: record, self._size(record.config): record}

    def like(self, config: Config) -> Record | None:
        """The newest record of the same cell, else of the same method and size; None when nothing is known."""
        return self.newest.get(config.cell) or self.newest.get(self._size(config))

    def words(self, config: Config) -> str:
        """A run's time as far as it is known, and the record that it rests on."""
        like = self.like(config)
        return "time unknown" if like is None else f"about {lasting(like.wall_seconds)}, as {like.name}"

    @staticmethod
    def _size(c: Config) -> tuple[Any, ...]:
        model = c.method, repr(c.method_options), c.width, c.heads, c.layers, c.mlp_ratio
        return *model, c.dataset, c.patch, c.context, c.train_size, c.test_size, c.batch, c.epochs


def make_all(
    tasks: Sequence[Task], data: Mapping[str, Any], engine: Any, times: Times, budget: float = math.inf
) -> tuple[list[Record], int]:
    """Make runs in their order, and write their records: these, and the exit code for what became of the others.

    A run is reported when it ends; one that fails does not keep the others from being made. None is started that by
    what is known of times cannot end within the budget, in seconds from now. After SIGINT or SIGTERM those at work
    write their checkpoints and end.
    """

    def fits(task: Task) -> bool:
        like = times.like(task.config)
        return deadline - time.time() > (0.0 if like is None else like.wall_seconds)

    deadline, stopping = time.time() + budget, False
    waiting, running, records, codes, notes = list(tasks), dict[Future[Outcome], Task](), [], [], []
    with requests_to_stop() as asked, closing(engine):
        while True:
            while not asked and len(running) < engine.slots and (task := next(filter(fits, waiting), None)):
                waiting.remove(task)
                running[engine.submit(task, data[task.config.dataset])] = task
            if asked and not stopping:
                engine.stop()
                stopping = True
            if not running:
                break
            for future in wait(running, timeout=0.5, return_when=FIRST_COMPLETED).done:
                task = running.pop(future)
                if stopping and future.exception():  # it had not begun
                    task.log.unlink(missing_ok=True)
                    continue
                outcome = settled(task, future)
                codes.append(outcome.code)
                if outcome.record is not None:
                    records.append(outcome.record)
                    times.add(outcome.record)
                elif outcome.code == DONE:
                    notes.append(f"{task.config.name}: {outcome.words}")
    for task in [] if asked else waiting:
        left = lasting(max(deadline - time.time(), 0.0))
        notes.append(f"{task.config.name}: not started, {left} of the time budget left; {times.words(task.config)}")
        codes.append(OUT_OF_TIME)
    print(*notes, sep="\n", end="\n" if notes else "", flush=True)
    return records, worst([*(128 + number for number in asked), *codes])


def settled(task: Task, future: Future[Outcome]) -> Outcome:
    """The outcome of a run that has ended: its record is written, or a line says why there is none."""
    name = task.config.name
    try:
        outcome = future.result()
        if (record := outcome.record) is not None:
            path, speed = write(record, task.out), f"{record.images_per_second:.0f} examples/s"
            print(f"{name}: {record.result}, {record.wall_seconds:.1f} s, {speed}; wrote {path}", flush=True)
            remove(task.checkpoint)
    except LabError as error:  # of the record: the checkpoint is still there
        outcome = Outcome(None, USER_ERROR, str(error))
    except Exception as error:  # of the engine: the run's process, or its machine, has gone
        words = f"its process was killed ({type(error).__name__}); the same command goes on from its checkpoint"
        outcome = Outcome(None, FAILED, f"{words}; log {task.log}")
    if outcome.code != DONE:
        complain(f"{name}: {outcome.words}")
    if outcome.code not in (FAILED, USER_ERROR):
        task.log.unlink(missing_ok=True)
    return outcome


def worst(codes: Iterable[int]) -> int:
    """The exit code of a command whose parts had these: of a signal, else of what the user can put right, and so on."""
    order = {USER_ERROR: 3, FAILED: 2, OUT_OF_TIME: 1, DONE: 0}
    return max(codes, key=lambda code: order.get(code, 4), default=DONE)


def complain(text: str) -> None:
    """Print one line on stderr."""
    print("geolib.lab: " + " ".join(text.split()), file=sys.stderr, flush=True)


def lasting(seconds: float) -> str:
    """A time in words: in minutes from one minute on."""
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.1f} s"
