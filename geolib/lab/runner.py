"""Making the runs of an experiment: what has no record yet, in order, alone or beside other processes.

From the top: the machine and what a time budget holds; locks, by which processes that share a folder make no run twice;
jobs, which are runs in processes of their own; and the ``Runner``, which carries out a ``Request``.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import IO

import torch

import geolib
from geolib.lab import records as store
from geolib.lab.config import PRECISIONS, Config, Options
from geolib.lab.data.sets import Dataset, load
from geolib.lab.experiments.estimates import CPU, GPU, H100, Estimate, Kind, Speed, estimate
from geolib.lab.experiments.plan import Experiment, Pipeline, Stage
from geolib.lab.experiments.tables import tables_of
from geolib.lab.files import LabError, remove
from geolib.lab.gpu_step import give_back
from geolib.lab.probes.vit import after_training
from geolib.lab.records import Folders, Record, device_name, run
from geolib.lab.train import RECORDED_PRECISION, precision_of
from geolib.lab.watch import Diverged, Stopped, requests_to_stop

_POLL_SECONDS = 0.5  # between two looks at what other processes have done
_CHILD_POLL_SECONDS = 0.1  # between two looks at child processes
LOCKED = 4  # the exit code of a process whose run another process makes


def torchrun_size() -> int:
    """How many processes torchrun has started, on all machines; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", 1))


def torchrun_rank() -> int:
    """This process' number among them, 0 when it is alone."""
    return int(os.environ.get("RANK", 0))


# The machine and its time -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Machine:
    """Where runs are to be made, one on each of ``devices``, its speed assumed until it is measured."""

    name: str
    speed: Speed
    is_gpu: bool
    devices: int = 1

    @classmethod
    def at_hand(cls, device: torch.device, devices: int = 1) -> Machine:
        """The device that is here."""
        if device.type == "cuda":
            return cls(device_name(device), GPU, True, devices)
        cores = torch.get_num_threads()
        speed = Speed(CPU.flops * cores, CPU.operation, CPU.number / cores, CPU.preparing)
        return cls(device_name(device), speed, False, devices)

    @classmethod
    def h100(cls) -> Machine:
        """The GPU for which the full runs are planned where there is none."""
        return cls(H100, GPU, True)

    def estimate(self, config: Config, records: Iterable[Record], kind: Kind | None = None) -> Estimate:
        """The time of a run that has one device to itself."""
        return estimate(config, records, self.name, self.speed, kind)

    def kind(self, experiment: Experiment, scale: str, config: Config, option: str | None) -> Kind:
        """What an estimate compares a run by: its experiment, scale and the precision that it will have here."""
        if self.is_gpu:
            named = config.precision or option
            precision = RECORDED_PRECISION[named] if named in PRECISIONS else "bf16"
        else:
            precision = precision_of(config.precision, option, torch.device("cpu"))
        return Kind(experiment.name, scale, precision, self.is_gpu)


@dataclass(frozen=True)
class Planned:
    """A run that is still to be made: its estimate alone, its stage, and whether the time budget holds it."""

    experiment: Experiment
    config: Config
    estimate: Estimate
    stage: int
    fits: bool


def packed(
    stages: Sequence[Stage],
    is_missing: Callable[[Config], bool],
    estimated: Callable[[Experiment, Config], Estimate],
    seconds: float | None,
    devices: int,
) -> list[Planned]:
    """The runs that are missing, in their order and each once, and which of them a time holds (all when None).

    Groups are taken by importance, whole, as long as there is time for them and for all later stages; a group that is
    too long is passed over, and a shorter one after it may still fit. The first group of a stage need not leave time
    for what follows: without it there is nothing to go on from. Each of ``devices`` makes one at a time.
    """
    left = math.inf if seconds is None else seconds * devices
    plan: dict[str, Planned] = {}
    for number, stage in enumerate(stages):
        later = {config.hash: (e, config) for other in stages[number + 1 :] for e, config in other.runs}
        for place, group in enumerate(stage.groups):
            new = {c.hash: (e, c) for e, c in group if is_missing(c) and not (c.hash in plan and plan[c.hash].fits)}
            costs = {key: estimated(e, config) for key, (e, config) in new.items()}
            needed = sum(cost.seconds for cost in costs.values())
            settled = {key for key, item in plan.items() if item.fits} | new.keys()
            reserve = sum(estimated(e, c).seconds for h, (e, c) in later.items() if is_missing(c) and h not in settled)
            fits = needed + (reserve if place else 0.0) <= left
            left -= needed if fits else 0.0
            plan |= {key: Planned(e, c, costs[key], number, fits) for key, (e, c) in new.items()}
    return list(plan.values())


# Locks --------------------------------------------------------------------------------------------------------------


class Locked(Exception):
    """Another process makes the run."""


@contextmanager
def lock(checkpoint: Path) -> Iterator[None]:
    """Inside, the run of this checkpoint is this process's own: Locked when a living process has it.

    The lock is the operating system's, on a file beside the checkpoint. It ends with the process that holds it, however
    that ends, so a run whose process died is free at once, on this machine and on others that share the folder. A file
    system that has no locks is a LabError.
    """
    path = checkpoint.with_suffix(".lock")
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise LabError(f"{path}: could not be written ({error.strerror or error}); name another folder") from None
        try:
            if not _acquired(handle, path, fcntl.LOCK_EX):
                raise Locked(f"{checkpoint.stem}: another process makes this run")
            if not _is_still(handle, path):
                continue  # its last owner removed the file between our two calls: lock the next one
            try:
                yield
            finally:
                path.unlink(missing_ok=True)  # before the lock is given back: nobody locks a file that will go
            return
        finally:
            os.close(handle)


def is_locked(checkpoint: Path) -> bool:
    """Whether a living process makes the run of this checkpoint."""
    path = checkpoint.with_suffix(".lock")
    try:
        handle = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        return not _acquired(handle, path, fcntl.LOCK_SH)
    finally:
        os.close(handle)


def _acquired(handle: int, path: Path, kind: int) -> bool:
    """Whether a lock was free, and is ours now."""
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise LabError(
            f"{path.parent}: its file system has no file locks ({error.strerror}), without which processes would make "
            "runs twice; name another folder with --out DIR"
        ) from None
    return True


def _is_still(handle: int, path: Path) -> bool:
    """Whether a path still names the open file."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


# Jobs ---------------------------------------------------------------------------------------------------------------


class ChildFailed(Exception):
    """A process of ``side_by_side`` ended with a code that is not 0."""

    def __init__(self, error: str, code: int):
        super().__init__(error.removeprefix("geolib.lab: ") or f"ended with code {code}")
        self.code = code


@dataclass(frozen=True)
class Job:
    """One run of an experiment, with all that a process has to know to do it.

    Of ``options``, checkpoint and time budget are not used: they follow from the folders and the deadline, which is
    when it has to end, as ``time.time`` counts. ``at_a_time`` runs share the device; ``again`` makes it although there
    is a record.
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
        return store.path_of(self.config, self.experiment, self.folders.records)

    def do(self, data: Dataset | None = None) -> Record:
        """Train, and write the record; raises what ``run`` raises, and Locked when another process has the run."""
        with lock(self.folders.checkpoint(self.config)):
            if self.record_path.is_file() and not self.again:
                raise Locked(f"{self.config.name}: another process has just made this run")
            return run(
                self.config,
                data=data,
                out=self.folders,
                experiment=self.experiment,
                scale=self.scale,
                options=replace(
                    self.options, time_budget=None if self.deadline is None else self.deadline - time.time()
                ),
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
    process: subprocess.Popen[bytes]
    errors: IO[str]

    def last_error(self) -> str:
        """The last line of its errors."""
        self.errors.seek(0)
        lines = self.errors.read().strip().splitlines()
        return lines[-1] if lines else ""


def side_by_side(jobs: Iterable[Job | None], count: int) -> Iterator[tuple[Job, int, str]]:
    """Do jobs in processes of their own, ``count`` at a time, in their order.

    The next job is asked for whenever there is room; None says that there is none right now. Yields a job that has
    ended, its exit code as the command line's, and the last line of its errors. Raises Stopped after SIGINT or SIGTERM,
    when all processes have written their checkpoints and ended.
    """
    waiting, working, more = iter(jobs), list[_Child](), True
    with requests_to_stop() as asked:
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
                    yield child.job, child.process.returncode, child.last_error()
                if asked:
                    raise Stopped(f"stopped by {signal.Signals(asked[0]).name}, with its {len(working)} runs", asked[0])
                if not ended:
                    time.sleep(_CHILD_POLL_SECONDS)
        finally:
            for child in working:
                child.process.terminate()
            for child in working:
                child.process.wait()


def _start(job: Job, count: int) -> _Child:
    """A process that does the job. It is in a session of its own: a key on the terminal reaches the parent alone."""
    root = str(Path(geolib.__file__).resolve().parents[1])
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [root, environment.get("PYTHONPATH")]))
    environment.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // count)))
    errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - open as long as the process is
    with tempfile.TemporaryFile("w+") as told:  # the process has its own handle
        told.write(job.to_json())
        told.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-m", "geolib.lab", "job"],
            stdin=told,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=environment,
            start_new_session=True,
        )
    return _Child(job, process, errors)


# The runner ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    """What is to be run, and how."""

    what: Experiment | Pipeline
    scale: str
    folders: Folders
    machine: Machine
    seeds: Sequence[int] | None = None  # instead of the experiment's own
    words: Sequence[str] = ()  # what ``Experiment.configs`` picks by
    options: Options = field(default_factory=Options)  # of every run
    jobs: int = 1  # runs at a time, each in a process of its own
    again: bool = False  # also what has a record
    time_budget: float | None = None  # seconds from now


class Runner:
    """A request being carried out; ``failures`` by the run's name, and ``left_out``, what the budget did not hold."""

    def __init__(self, request: Request):
        self.request = request
        self.deadline = None if request.time_budget is None else time.time() + request.time_budget
        self.records, self.problems = store.load_records(request.folders.records)  # of all experiments: some share runs
        self.ended: set[str] = set()  # the hashes of runs that this process has done with
        self.failures: list[tuple[str, Exception]] = []  # the other runs went on
        self.working: set[str] = set()  # those that a child process is at
        self.left_out: list[Planned] = []
        self.sets: dict[str, Dataset] = {}

    # What is to be done

    @cached_property
    def stages(self) -> list[Stage]:
        """As the records of the last look decide them; LabError when there is nothing to run at all."""
        r = self.request
        stages = r.what.stages(r.scale, self.records, r.seeds, r.words)
        if not any(stage.runs for stage in stages):
            raise LabError("--only leaves no run; give fewer words")
        return stages

    def plan(self) -> list[Planned]:
        """Every run that is missing, with what it should take and whether the budget holds it."""
        left = None if self.deadline is None else self.deadline - time.time()
        return packed(self.stages, self.is_missing, self.estimate, left, self.request.machine.devices)

    def estimate(self, experiment: Experiment, config: Config) -> Estimate:
        """Of a run alone on the machine; of one that is under way, what it asks of the budget from now on."""
        if self.is_under_way(config):
            return Estimate(0.0, "under way")
        r = self.request
        kind = r.machine.kind(experiment, r.scale, config, r.options.precision)
        return r.machine.estimate(config, self.records, kind)

    def is_under_way(self, config: Config) -> bool:
        """Whether a process is at work on a run."""
        return config.hash in self.working or is_locked(self.request.folders.checkpoint(config))

    def is_missing(self, config: Config) -> bool:
        """Whether a run is still to be made: a damaged record counts as one, for only its owner may delete it."""
        return config.hash not in self.ended and (self.request.again or self.recorded(config) is None)

    def recorded(self, config: Config) -> str | None:
        """The experiment that has the run's record, or None."""
        folder = self.request.folders.records
        return next((n for n in self.names[config.hash] if store.path_of(config, n, folder).is_file()), None)

    @cached_property
    def names(self) -> dict[str, list[str]]:
        """From a run's hash to the experiments that it may be recorded under, as far as the last look has shown."""
        found: dict[str, dict[str, None]] = {}
        for experiment, config in self.runs:
            found.setdefault(config.hash, {})[experiment.name] = None
        for record in self.records:
            if record.config.hash in found:
                found[record.config.hash][str(record.experiment)] = None
        return {key: list(names) for key, names in found.items()}

    @property
    def runs(self) -> list[tuple[Experiment, Config]]:
        """Of all stages, as far as they are decided."""
        return [run for stage in self.stages for run in stage.runs]

    # Doing it

    def run(self) -> None:
        """Make what is missing. Only a signal ends it early; other trouble is kept, and the next run has its turn."""
        for name in dict.fromkeys(c.dataset for _, c in self.runs if self.is_missing(c)):
            self.data(name)  # an error now, not after the first run
        self.request.folders.check()
        self.say_what_is_recorded()
        if self.request.jobs > 1:
            self.run_in_processes()
        else:
            while (item := self.next()) is not None:
                self.run_here(item)
        self.say_what_was_left_out()

    def next(self) -> Planned | None:
        """The next run for this process, once there is one; None when all is done, also by others."""
        while True:
            self.look()
            todo = self.startable()
            free = next((item for item in todo if not self.is_under_way(item.config)), None)
            if free is not None or not todo:
                return free
            time.sleep(_POLL_SECONDS)

    def startable(self) -> list[Planned]:
        """The runs of the first stage that has any, of those that the budget holds."""
        plan = self.plan()
        fitting = [item for item in plan if item.fits]
        unmeasured = all("nothing measured" in item.estimate.basis for item in plan)
        if not fitting and plan and unmeasured and (self.deadline is None or self.deadline > time.time()):
            fitting = plan[:1]  # an assumption alone refuses nothing: this run is the measurement
        first = min((item.stage for item in fitting), default=0)
        self.left_out = [item for item in plan if item not in fitting]
        return [item for item in fitting if item.stage == first]

    def look(self) -> None:
        """Read the records anew: other processes may have made some."""
        self.records, self.problems = store.load_records(self.request.folders.records)
        for known in ("stages", "names"):  # they follow from the records
            vars(self).pop(known, None)

    def job(self, item: Planned) -> Job:
        """The job of one run."""
        r = self.request
        return Job(
            item.config, item.experiment.name, r.scale, r.folders, r.options, deadline=self.deadline, again=r.again
        )

    def data(self, name: str) -> Dataset:
        """A data set, loaded once."""
        if name not in self.sets:
            self.sets[name] = load(name)
        return self.sets[name]

    def run_here(self, item: Planned) -> None:
        """Make one run in this process."""
        job, name = self.job(item), item.config.name
        try:
            record = job.do(self.data(item.config.dataset))
        except Locked:
            return  # somebody was faster: there is more to do, or it is waited for
        except Exception as trouble:
            if isinstance(trouble, Stopped) and trouble.signal is not None:
                raise
            if not isinstance(trouble, Stopped | Diverged | LabError):  # nobody foresaw it: all of it is shown
                traceback.print_exc()
            self.failures.append((name, _without_frames(trouble)))
            give_back()
        else:
            self.report(record, job)
        self.ended.add(item.config.hash)

    def run_in_processes(self) -> None:
        """Make runs in processes of their own, several at a time, with one line for each."""
        for job, code, error in side_by_side(self.jobs(), self.request.jobs):
            self.working.discard(job.config.hash)
            if code == LOCKED:
                continue
            self.ended.add(job.config.hash)
            if code == 0:
                self.report(store.read(job.record_path), job)
            else:
                self.failures.append((job.config.name, ChildFailed(error, code)))

    def jobs(self) -> Iterator[Job | None]:
        """The next job each time it is asked for; None while others are at all that is left."""
        looked = -math.inf
        while True:
            if time.monotonic() - looked < _POLL_SECONDS:
                yield None
                continue
            self.look()
            todo, looked = self.startable(), time.monotonic()
            if not todo:
                return
            free = [item for item in todo if not self.is_under_way(item.config)]
            self.working |= {item.config.hash for item in free[:1]}
            yield self.job(free[0]) if free else None

    # What is said of it

    def say_what_is_recorded(self) -> None:
        """A line for each run that has a record already."""
        for _, config in self.runs:
            experiment = None if self.request.again else self.recorded(config)
            if experiment is None:
                continue
            path = store.path_of(config, experiment, self.request.folders.records)
            with contextlib.suppress(LabError):  # named at the end
                print(f"{config.name}: recorded already, {store.read(path).result} ({path}); --again repeats it")
                remove(self.request.folders.checkpoint(config))

    def say_what_was_left_out(self) -> None:
        """A line for each run that the time budget did not hold."""
        left = 0.0 if self.deadline is None else max(self.deadline - time.time(), 0.0)
        for item in self.left_out:
            needs = f"it takes about {lasting(item.estimate.seconds)} ({item.estimate.basis})"
            print(f"{item.config.name}: not started, {lasting(left)} of the time budget are left, {needs}")

    def report(self, record: Record, job: Job) -> None:
        """The line of a run that has just been recorded."""
        speed = f"{record.wall_seconds:.1f} s, {record.speed}"
        print(f"{record.name}: {record.result}, {speed}; wrote {job.record_path}", flush=True)

    def dry_run(self) -> str:
        """The plan in words: each run, what it should take, what that rests on, and what the budget does not hold."""
        plan, machine, budget = self.plan(), self.request.machine, self.request.time_budget
        lines = []
        for item in plan:
            where = f"stage {item.stage + 1}" if item.fits else "left out"
            needed, name = lasting(item.estimate.seconds), item.experiment.name
            lines.append(f"{where:9}{needed:>10}  {name}  {item.config.name}  [{item.estimate.basis}]")
        total = sum(item.estimate.seconds for item in plan if item.fits)
        at_a_time = f", {machine.devices} at a time" if machine.devices != 1 else ""
        time_needed = f"about {lasting(total / machine.devices)} on {machine.name}{at_a_time}"
        of_budget = "" if budget is None else f", of a budget of {lasting(budget)}"
        lines.append(f"{sum(item.fits for item in plan)} of {len(plan)} missing runs, {time_needed}{of_budget}")
        return "\n".join(lines)

    def tables(self) -> str:
        """The tables, from the records as they are now."""
        self.look()
        return "\n\n".join(t.plain() for t in tables_of(self.request.what, self.request.scale, self.records))


def _without_frames(error: Exception) -> Exception:
    """An error that can be kept: its frames, and those of the error behind it, would hold a run and its memory."""
    error.__context__ = error.__cause__ = None
    return error.with_traceback(None)


def lasting(seconds: float) -> str:
    """A time in words: in minutes from one minute on, and a digit more where seconds are few."""
    if seconds >= 60:
        return f"{seconds / 60:.1f} min"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
