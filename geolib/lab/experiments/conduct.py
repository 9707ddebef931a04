"""Making the runs of an experiment: what has no record yet, in order, alone or beside other processes."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from geolib.lab.config import Config
from geolib.lab.data.sets import Dataset, load
from geolib.lab.experiments.budget import Machine, Planned, packed
from geolib.lab.experiments.estimates import Estimate
from geolib.lab.experiments.plan import Course, Experiment, Stage
from geolib.lab.experiments.tables import tables_of
from geolib.lab.files import LabError, remove
from geolib.lab.runs import store
from geolib.lab.runs.claims import Claimed, is_claimed
from geolib.lab.runs.jobs import CLAIMED, ChildFailed, Job, abreast_of, side_by_side
from geolib.lab.runs.record import Record
from geolib.lab.runs.store import Folders
from geolib.lab.training.options import Options
from geolib.lab.training.ranks import World
from geolib.lab.training.watch import Diverged, Stopped

POLL_SECONDS = 0.5  # between two looks at what other processes have done


@dataclass(frozen=True)
class Order:
    """What is to be run, and how.

    Parameters
    ----------
    what : Experiment or Course
    scale : str
    folders : Folders
    machine : Machine
    seeds : sequence of int or None
        Instead of the experiment's own.
    words : sequence of str
        What ``Experiment.only`` picks by.
    options : Options
        Of every run.
    jobs : int
        Runs at a time, each in a process of its own.
    abreast : int
        Runs at a time in this process, their steps in turn.
    again : bool
        Also what has a record.
    time_budget : float or None
        Seconds from now.
    """

    what: Experiment | Course
    scale: str
    folders: Folders
    machine: Machine
    seeds: Sequence[int] | None = None
    words: Sequence[str] = ()
    options: Options = field(default_factory=Options)
    jobs: int = 1
    abreast: int = 1
    again: bool = False
    time_budget: float | None = None


class Conduct:
    """An order being carried out.

    Parameters
    ----------
    order : Order
    world : World
        The processes that train each run together; one when each makes runs of its own.

    Attributes
    ----------
    troubles : list of (str, Exception)
        What failed, by the run's name; the other runs went on.
    left_out : list of Planned
        What the time budget did not hold.
    """

    def __init__(self, order: Order, world: World | None = None):
        self.order, self.world = order, world or World()
        self.deadline = None if order.time_budget is None else time.time() + order.time_budget
        self.kept, self.problems = store.sift(order.folders.records)  # of all experiments: some share runs
        self.ended: set[str] = set()  # the hashes of runs that this process has done with
        self.troubles: list[tuple[str, Exception]] = []
        self.begun: set[str] = set()  # by processes of this one
        self.left_out: list[Planned] = []
        self.sets: dict[str, Dataset] = {}

    # What is to be done

    @cached_property
    def stages(self) -> list[Stage]:
        """As the records of the last look decide them; LabError when there is nothing to run at all."""
        o = self.order
        stages = o.what.stages(o.scale, self.kept, o.seeds, o.words)
        if not any(stage.runs for stage in stages):
            raise LabError("--only leaves no run; give fewer words")
        return stages

    def plan(self) -> list[Planned]:
        """Every run that is missing, with what it should take and whether the budget holds it."""
        left = None if self.deadline is None else self.deadline - time.time()
        return packed(self.stages, self.is_missing, self.estimate, left, self.order.machine.gain)

    def estimate(self, config: Config) -> Estimate:
        """Of a run alone on the machine; of one that is under way, what it asks of the budget from now on."""
        if self.is_under_way(config):
            return Estimate(0.0, "under way")
        return self.order.machine.estimate(config, self.kept)

    def is_under_way(self, config: Config) -> bool:
        """Whether a process is at work on a run."""
        return config.hash in self.begun or is_claimed(self.order.folders.checkpoint(config))

    def is_missing(self, config: Config) -> bool:
        """Whether a run is still to be made: a damaged record counts as one, for only its owner may delete it."""
        return config.hash not in self.ended and (self.order.again or self.recorded(config) is None)

    def recorded(self, config: Config) -> str | None:
        """The experiment that has the run's record, or None."""
        folder = self.order.folders.records
        return next((n for n in self.names[config.hash] if store.path_of(config, n, folder).is_file()), None)

    @cached_property
    def names(self) -> dict[str, list[str]]:
        """From a run's hash to the experiments that it may be recorded under, as far as the last look has shown."""
        found: dict[str, dict[str, None]] = {}
        for experiment, config in self.runs:
            found.setdefault(config.hash, {})[experiment.name] = None
        for record in self.kept:
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
        self.order.folders.check()
        self.say_what_is_recorded()
        if self.order.jobs > 1:
            self.side_by_side()
        elif self.order.abreast > 1:
            while items := self.next_ones(self.order.abreast):
                self.several(items)
        else:
            while (item := self.world.same(self.next())) is not None:
                self.one(item)
        self.say_what_was_left_out()

    def next(self) -> Planned | None:
        """The next run for this process, once there is one; None when all is done, also by others."""
        if not self.world.first:
            return None  # the first process decides for all that share a run
        return next(iter(self.next_ones(1)), None)

    def next_ones(self, count: int) -> list[Planned]:
        """The next runs for this process, as many as asked for or fewer; none when all is done."""
        while True:
            self.look()
            todo = self.startable()
            free = [item for item in todo if not self.is_under_way(item.config)]
            if free or not todo:
                return free[:count]
            time.sleep(POLL_SECONDS)

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
        self.kept, self.problems = store.sift(self.order.folders.records)
        for known in ("stages", "names"):  # they follow from the records
            vars(self).pop(known, None)

    def job(self, item: Planned) -> Job:
        """The job of one run."""
        o = self.order
        return Job(
            item.config, item.experiment.name, o.scale, o.folders, o.options, deadline=self.deadline, again=o.again
        )

    def data(self, name: str) -> Dataset:
        """A data set, loaded once."""
        if name not in self.sets:
            self.sets[name] = load(name)
        return self.sets[name]

    def one(self, item: Planned) -> None:
        """Make one run here."""
        job, name = self.job(item), item.config.name
        try:
            record = job.do(self.data(item.config.dataset), self.world)
        except Claimed:
            return  # somebody was faster: there is more to do, or it is waited for
        except (Stopped, Diverged, LabError) as trouble:
            by_signal = isinstance(trouble, Stopped) and trouble.signal is not None
            if by_signal or self.world.size > 1:  # the other processes may not know of it
                raise
            self.troubles.append((name, trouble))
        else:
            self.report(record, job, print)
        self.ended.add(item.config.hash)

    def several(self, items: Sequence[Planned]) -> None:
        """Make some runs here, a step of each in turn."""
        sets = {item.config.dataset: self.data(item.config.dataset) for item in items}
        stopped: Stopped | None = None
        for job, outcome in abreast_of([self.job(item) for item in items], sets):
            if isinstance(outcome, Claimed):
                continue
            self.ended.add(job.config.hash)
            if isinstance(outcome, Record):
                self.report(outcome, job, print)
            elif isinstance(outcome, Stopped) and outcome.signal is not None:
                stopped = outcome  # the others write their checkpoints first
            else:
                self.troubles.append((job.config.name, outcome))
        if stopped is not None:
            raise stopped

    def side_by_side(self) -> None:
        """Make runs in processes of their own, several at a time, with one line for each and a bar for all."""

        def waiting() -> Iterator[Job | None]:
            looked = -math.inf
            while True:
                if time.monotonic() - looked < POLL_SECONDS:
                    yield None
                    continue
                self.look()
                todo, looked = self.startable(), time.monotonic()
                if not todo:
                    return
                free = [item for item in todo if not self.is_under_way(item.config)]
                self.begun |= {item.config.hash for item in free[:1]}
                yield self.job(free[0]) if free else None

        with _total_bar(len(self.plan()), self.order.options.quiet) as (say, advance):
            for job, code, error in side_by_side(waiting(), self.order.jobs):
                self.begun.discard(job.config.hash)
                if code == CLAIMED:
                    continue
                advance()
                self.ended.add(job.config.hash)
                if code == 0:
                    self.report(store.read(job.record_path), job, say)
                else:
                    self.troubles.append((job.config.name, ChildFailed(error, code)))

    # What is said of it

    def say_what_is_recorded(self) -> None:
        """A line for each run that has a record already."""
        for _, config in self.runs:
            experiment = None if self.order.again else self.recorded(config)
            if experiment is None:
                continue
            path = store.path_of(config, experiment, self.order.folders.records)
            with contextlib.suppress(LabError):  # named at the end
                print(f"{config.name}: recorded already, {store.read(path).result} ({path}); --again repeats it")
                remove(self.order.folders.checkpoint(config))

    def say_what_was_left_out(self) -> None:
        """A line for each run that the time budget did not hold."""
        left = 0.0 if self.deadline is None else max(self.deadline - time.time(), 0.0)
        for item in self.left_out:
            needs = f"it takes about {rounded(item.estimate.seconds)} s ({item.estimate.basis})"
            print(f"{item.config.name}: not started, {rounded(left)} s of the time budget are left, {needs}")

    def report(self, record: Record, job: Job, say: Callable[[str], object]) -> None:
        """The line of a run that has just been recorded."""
        speed = f"{record.wall_seconds:.1f} s, {record.speed}"
        say(f"{record.name}: {record.result}, {speed}; wrote {job.record_path}")
        sys.stdout.flush()

    def dry_run(self) -> str:
        """The plan in words: each run, what it should take, what that rests on, and what the budget does not hold."""
        plan, machine = self.plan(), self.order.machine
        lines = []
        for item in plan:
            minutes = f"{item.estimate.seconds / 60:6.1f} min"
            where = f"stage {item.stage + 1}" if item.fits else "left out"
            lines.append(f"{where:9}{minutes}  {item.experiment.name}  {item.config.name}  [{item.estimate.basis}]")
        total = sum(item.estimate.seconds for item in plan if item.fits)
        at_a_time = f", {machine.gain:g} times that side by side" if machine.gain != 1 else ""
        lines.append(
            f"{sum(item.fits for item in plan)} of {len(plan)} missing runs, about {total / machine.gain / 60:.1f} min "
            f"on {machine.name}{at_a_time}"
            + ("" if self.order.time_budget is None else f", of a budget of {self.order.time_budget / 60:.1f} min")
        )
        return "\n".join(lines)

    def tables(self) -> str:
        """The tables, from the records as they are now."""
        self.look()
        return "\n\n".join(t.plain() for t in tables_of(self.order.what, self.order.scale, self.kept))


def rounded(seconds: float) -> str:
    """Whole seconds, and a digit more where they are few."""
    return f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.1f}"


@contextlib.contextmanager
def _total_bar(total: int, quiet: bool) -> Iterator[tuple[Callable[[str], object], Callable[[], object]]]:
    """A function that prints a line and one that counts a finished run, with a bar on stderr unless it is unwanted."""
    if quiet:
        yield print, lambda: None
        return
    try:
        from tqdm import tqdm
    except ImportError:
        raise LabError("the progress bar needs tqdm: pip install tqdm, or give --quiet") from None
    with tqdm(total=total, unit="run") as bar:
        yield bar.write, bar.update
