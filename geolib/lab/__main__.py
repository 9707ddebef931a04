"""The lab's command line: ``python -m geolib.lab list | run | table | pending | bench | data prepare``.

Exit codes: 0, done; 1, a loss that is not finite; 2, something the user can put right (one line says what); 3, the time
budget ended first; 128 + n, stopped by signal n. After 3 and 128 + n the same command goes on where it was. Of several
runs one that fails is reported and the others go on; the code is then that of the failure.

``torchrun --nproc_per_node N -m geolib.lab run ...`` trains each run with N processes that share every batch.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import torch

from geolib.lab.config import Config
from geolib.lab.data import sets as datasets
from geolib.lab.data.sets import Dataset
from geolib.lab.experiments import EXPERIMENTS, SCALES, find, h100_seconds, similar_seconds, table
from geolib.lab.experiments.plan import MEASURED
from geolib.lab.files import LabError
from geolib.lab.runs import place, store
from geolib.lab.runs.jobs import Job, side_by_side
from geolib.lab.runs.store import Folders
from geolib.lab.training import ranks
from geolib.lab.training.device import pick_device
from geolib.lab.training.options import FORMS, PRECISIONS, Options
from geolib.lab.training.ranks import World
from geolib.lab.training.watch import Diverged, Stopped

DONE, DIVERGED, USER_ERROR, OUT_OF_TIME = 0, 1, 2, 3


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the words say.

    Parameters
    ----------
    argv : sequence of str or None
        The words after the program's name; those of the process when None.

    Returns
    -------
    int
        The exit code.
    """
    try:
        options = _parser().parse_args(argv)
        return options.act(options)
    except (LabError, Diverged, Stopped) as trouble:
        return _complain(_told(trouble), _code(trouble))
    except KeyboardInterrupt:
        return _complain("interrupted; the same command goes on from the last checkpoint", 128 + signal.SIGINT)
    except BrokenPipeError:  # the reader of our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE


def _bench(options: argparse.Namespace) -> int:
    """Run a module's measurements and print their rows."""
    if options.name not in BENCHES:
        raise LabError(f"unknown bench {options.name!r}; there are {', '.join(BENCHES)}")
    device = place.device_name(pick_device(None))
    print(f"{options.name}: torch {torch.__version__}, {device}, {os.cpu_count()} cores", flush=True)
    for row in importlib.import_module(f"geolib.lab.benches.{options.name}").run():
        print(
            ", ".join(
                f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items()
            )
        )
    return DONE


def _complain(text: str, code: int) -> int:
    print("geolib.lab: " + " ".join(text.split()), file=sys.stderr)
    return code


def _told(trouble: Exception) -> str:
    """What the user reads of it."""
    return f"{trouble}; {trouble.advice}" if isinstance(trouble, Stopped) else str(trouble)


def _code(trouble: Exception) -> int:
    """The exit code that stands for it."""
    if isinstance(trouble, Stopped):
        return OUT_OF_TIME if trouble.signal is None else 128 + trouble.signal
    return DIVERGED if isinstance(trouble, Diverged) else USER_ERROR


BENCHES = ("augment", "lie", "locality", "operations", "recurrence", "training")


class _Parser(argparse.ArgumentParser):
    """argparse, with its errors in one line."""

    def error(self, message: str) -> NoReturn:
        raise LabError(f"{message}; see {self.prog} --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m geolib.lab", description="Train small models on real data and keep records.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)

    command = commands.add_parser("list", help="the experiments and what each needs")
    command.set_defaults(act=_list)

    command = commands.add_parser(
        "run",
        help="run an experiment and record it",
        description="Train what an experiment has no record of yet, record each run, and print the table.",
        epilog=(
            "Stopped or killed, the same command goes on where it was. torchrun --nproc_per_node N -m geolib.lab run "
            "NAME ... trains each run with N processes that share every batch, each on the GPU of its number."
        ),
    )
    command.add_argument("name", metavar="NAME")
    command.add_argument("--scale", default="cpu", metavar="|".join(SCALES))
    command.add_argument("--seeds", nargs="+", type=_seed, metavar="SEED", help="instead of the experiment's own")
    command.add_argument("--only", action="append", default=[], metavar="METHOD/DATASET", help="either part, or both")
    command.add_argument(
        "--time-budget", type=_seconds, metavar="SECONDS", help="for all runs: start nothing that cannot end in it"
    )
    command.add_argument("--out", type=Path, metavar="DIR", help="records here, checkpoints in DIR/runs")
    command.add_argument(
        "--jobs", type=_count, default=1, metavar="N", help="runs at a time, each a process (default 1)"
    )
    command.add_argument("--device", help="cpu, cuda, cuda:1; a GPU where there is one")
    command.add_argument(
        "--step", choices=FORMS, default="auto", help="a training step on a GPU; auto: the fastest that pays and works"
    )
    command.add_argument(
        "--precision",
        choices=PRECISIONS,
        help="of products; auto: the faster one, measured. Usual on a CPU: float32, at scale laptop auto",
    )
    command.add_argument("--again", action="store_true", help="also what has a record")
    command.add_argument("--quiet", action="store_true", help="no progress bar")
    command.set_defaults(act=_run)

    command = commands.add_parser("job")  # for run --jobs alone, so without a line in the help
    command.set_defaults(act=_job)

    command = commands.add_parser("table", help="an experiment's table, from its records")
    command.add_argument("name", metavar="NAME")
    command.add_argument("--scale", metavar="|".join(SCALES), help="full, and what else has records")
    command.add_argument("--format", choices=("plain", "markdown"), default="plain")
    command.add_argument("--out", type=Path, metavar="DIR", help="where the records are")
    command.set_defaults(act=_table)

    command = commands.add_parser("pending", help="runs without a record, most important first")
    command.add_argument("--scale", default="full", metavar="|".join(SCALES), help="full when not given")
    command.add_argument("--out", type=Path, metavar="DIR", help="where the records are")
    command.set_defaults(act=_pending)

    command = commands.add_parser("bench", help="measure what a module's fast form gains; minutes")
    command.add_argument("name", metavar="|".join(BENCHES))
    command.set_defaults(act=_bench)

    command = commands.add_parser("data", help="data sets")
    actions = command.add_subparsers(required=True, metavar="ACTION", parser_class=_Parser)
    action = actions.add_parser("prepare", help=f"write a set's arrays into ${datasets.FOLDER_VARIABLE}")
    action.add_argument("name", metavar="NAME")
    action.set_defaults(act=_prepare)
    return parser


def _seed(word: str) -> int:
    if not word.isdecimal():
        raise argparse.ArgumentTypeError(f"{word!r} is not a whole number, 0 or above")
    return int(word)


def known_scale(name: str) -> str:
    """The name of a scale; LabError for one that no experiment could have."""
    if name not in SCALES:
        raise LabError(f"unknown scale {name!r}; there are {', '.join(SCALES)}")
    return name


def _count(word: str) -> int:
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word!r} is not a whole number above 0")
    return int(word)


def _seconds(word: str) -> float:
    try:
        seconds = float(word)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{word!r} is not a number of seconds above 0")
    return seconds


def _folders(out: Path | None) -> Folders:
    return Folders.usual() if out is None else Folders.below(out)


# The commands -------------------------------------------------------------------------------------------------------


def _list(options: argparse.Namespace) -> int:
    for experiment in EXPERIMENTS.values():
        print(f"{experiment.name}: {experiment.about}")
        print(f"    needs: {experiment.needs}")
        counts = (f"{scale} {len(experiment.configs(scale))}" for scale in experiment.scales)
        print(f"    runs: {', '.join(counts)}")
    return DONE


def _run(options: argparse.Namespace) -> int:
    chosen = pick_device(options.device)
    with ranks.joined(chosen.type) as world, contextlib.ExitStack() as stack:
        if not world.first:
            stack.enter_context(contextlib.redirect_stdout(stack.enter_context(open(os.devnull, "w"))))
        if world.size > 1 and options.jobs > 1:
            raise LabError("--jobs is for one process; under torchrun all processes share each run")
        return _Session(options, place.device_name(chosen), world).run()


class _Session:
    """One ``run`` command: its jobs, one after the other or several at a time.

    Parameters
    ----------
    options : argparse.Namespace
    device : str
        As records name it.
    world : World
    """

    def __init__(self, options: argparse.Namespace, device: str, world: World):
        self.options, self.device, self.world = options, device, world
        self.deadline = None if options.time_budget is None else time.time() + options.time_budget
        self.experiment, self.folders = find(options.name), _folders(options.out)
        self.codes: list[int] = []

    def run(self) -> int:
        """Do what has no record yet, and print the table."""
        configs = self.experiment.only(
            self.experiment.configs(self.options.scale, self.options.seeds), self.options.only
        )
        if not configs:
            raise LabError("--only leaves no run; give fewer words")
        self.kept, _ = store.sift(self.folders.records)  # of all experiments: some share runs
        todo = self.world.same([c for c in configs if self.options.again or not self.recorded(c)])
        sets = {name: datasets.load(name) for name in dict.fromkeys(c.dataset for c in todo)}
        self.folders.check()
        jobs = [self.job(config) for config in todo]
        if self.options.jobs > 1:
            self.side_by_side(jobs)
        else:
            for job in jobs:
                if self.fits(job):
                    self.one(job, sets[job.config.dataset])
        kept, problems = store.sift(self.folders.records)
        print("\n" + table(self.experiment, self.options.scale, kept).plain())
        self.codes += [_complain(problem, USER_ERROR) for problem in problems]
        return _worst(self.codes)

    def job(self, config: Config) -> Job:
        """The job of one run."""
        o = self.options
        precision = o.precision or ("auto" if o.scale in MEASURED else None)
        options = Options(device=o.device, step=o.step, precision=precision, quiet=o.quiet or o.jobs > 1)
        return Job(config, self.experiment.name, o.scale, self.folders, options, deadline=self.deadline)

    def recorded(self, config: Config) -> bool:
        """Whether the run has a record, which is then named; a damaged one counts: only its owner may delete it."""
        path = store.path_of(config, self.experiment.name, self.folders.records)
        shared = [record for record in self.kept if record.config.hash == config.hash]
        if shared and not path.is_file():
            path = store.path_of(config, shared[0].experiment, self.folders.records)
        if not path.is_file():
            return False
        with contextlib.suppress(LabError):  # named at the end
            accuracy = store.read(path).accuracy
            print(f"{config.name}: recorded already, {100 * accuracy:.2f}% ({path}); --again repeats it")
            self.folders.checkpoint(config).unlink(missing_ok=True)
        return True

    def fits(self, job: Job) -> bool:
        """Whether a run may be started in the time that is left; says so when not."""
        left = self.world.same(job.seconds_left)
        expected = similar_seconds(job.config, self.kept, self.device)
        if left is None or left > (expected or 0.0):
            return True
        needs = "" if expected is None else f", a run of its size took {_rounded(expected)} s"
        print(f"{job.config.name}: not started, {_rounded(max(left, 0.0))} s of the time budget are left{needs}")
        self.codes.append(OUT_OF_TIME)
        return False

    def one(self, job: Job, data: Dataset) -> None:
        """Do one job here. Only a signal ends the command; other trouble is said, and the next job has its turn."""
        name = job.config.name
        try:
            self.kept.append(job.do(data))
            self.report(job, print)
        except (Stopped, Diverged, LabError) as trouble:
            by_signal = isinstance(trouble, Stopped) and trouble.signal is not None
            if by_signal or self.world.size > 1:  # the other processes may not know of it
                raise
            self.codes.append(_complain(f"{name}: {_told(trouble)}", _code(trouble)))

    def side_by_side(self, jobs: list[Job]) -> None:
        """Do jobs in processes of their own, several at a time, with one line for each and a bar for all."""
        with _total_bar(len(jobs), self.options.quiet) as (say, advance):
            for job, code, error in side_by_side(jobs, self.options.jobs, self.fits):
                advance()
                if code == DONE:
                    self.kept.append(store.read(job.record_path))
                    self.report(job, say)
                else:
                    self.codes.append(code)
                    say(f"{job.config.name}: {error.removeprefix('geolib.lab: ') or f'ended with code {code}'}")

    def report(self, job: Job, say: Callable[[str], object]) -> None:
        """The line of a run that has just been recorded."""
        record = self.kept[-1]
        speed = f"{record.wall_seconds:.1f} s, {record.images_per_second:.0f} images/s"
        say(f"{record.name}: {100 * record.accuracy:.2f}%, {speed}; wrote {job.record_path}")
        sys.stdout.flush()


def _rounded(seconds: float) -> str:
    """Whole seconds, and a digit more where they are few."""
    return f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.1f}"


def _worst(codes: list[int]) -> int:
    """The exit code of a command whose runs had these."""
    order = (USER_ERROR, DIVERGED, OUT_OF_TIME)
    return next((code for code in order if code in codes), next((code for code in codes if code), DONE))


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


def _job(options: argparse.Namespace) -> int:
    """Do the job on standard input: what ``run --jobs`` starts."""
    Job.from_json(sys.stdin.read()).do()
    return DONE


def _table(options: argparse.Namespace) -> int:
    experiment, folders = find(options.name), _folders(options.out)
    kept, problems = store.sift(folders.records)
    if options.scale is not None:
        scales = [options.scale]
    else:
        cells = {record.config.cell for record in kept}
        scales = [s for s in experiment.scales if s == "full" or cells & {c.cell for c in experiment.configs(s)}]
    made = [table(experiment, scale, kept) for scale in scales]
    print("\n\n".join(t.markdown() if options.format == "markdown" else t.plain() for t in made))
    return _worst([_complain(problem, USER_ERROR) for problem in problems])


def _pending(options: argparse.Namespace) -> int:
    folders = _folders(options.out)
    total, lines, scale = 0.0, list[str](), known_scale(options.scale)
    kept, problems = store.sift(folders.records)
    done = {record.name for record in kept}
    for experiment in sorted(EXPERIMENTS.values(), key=lambda e: e.importance):
        for config in experiment.configs(scale) if scale in experiment.scales else []:
            if config.name not in done:
                done.add(config.name)  # a run that two experiments share is made once
                seconds = h100_seconds(config)
                total += seconds
                lines.append(f"{experiment.name}  {config.name}  about {seconds / 60:.1f} min")
    print("\n".join(lines) if lines else f"no {scale} run is pending")
    if lines:
        print(
            f"{len(lines)} runs, about {total / 3600:.1f} h on one H100 (estimated from assumed speeds, not measured)"
        )
    return _worst([_complain(problem, USER_ERROR) for problem in problems])


def _prepare(options: argparse.Namespace) -> int:
    print(datasets.prepare(options.name))
    return DONE


if __name__ == "__main__":
    sys.exit(main())
