"""The lab's command line: ``python -m geolib.lab list | run | table | pending | bench | data prepare``.

Exit codes: 0, done; 1, a loss that is not finite; 2, something the user can put right (one line says what); 3, the time
budget ended first; 128 + n, stopped by signal n. After 3 and 128 + n the same command goes on where it was.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import torch

from geolib.lab import data as datasets
from geolib.lab import records
from geolib.lab.config import Config
from geolib.lab.data import Dataset
from geolib.lab.experiments import EXPERIMENTS, SCALES, Experiment, find, h100_seconds, similar_seconds, table
from geolib.lab.files import LabError
from geolib.lab.runs import Folders, run
from geolib.lab.training import pick_device
from geolib.lab.watch import Diverged, Stopped

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
    except LabError as error:
        return _complain(str(error), USER_ERROR)
    except Diverged as error:
        return _complain(str(error), DIVERGED)
    except Stopped as stop:
        return _complain(f"{stop}; the same command goes on from its checkpoint", _code(stop))
    except KeyboardInterrupt:
        return _complain("interrupted; the same command goes on from the last checkpoint", 128 + signal.SIGINT)
    except BrokenPipeError:  # the reader of our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE


def _bench(options: argparse.Namespace) -> int:
    """Run a module's measurements and print their rows."""
    if options.name not in BENCHES:
        raise LabError(f"unknown bench {options.name!r}; there are {', '.join(BENCHES)}")
    device = records.device_name(pick_device(None))
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


def _code(stop: Stopped) -> int:
    return OUT_OF_TIME if stop.signal is None else 128 + stop.signal


BENCHES = ("augment", "lie", "locality", "recurrence")


class _Parser(argparse.ArgumentParser):
    """argparse, with its errors in one line."""

    def error(self, message: str) -> NoReturn:
        raise LabError(f"{message}; see {self.prog} --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m geolib.lab", description="Train small models on real data and keep records.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)

    command = commands.add_parser("list", help="the experiments and what each needs")
    command.set_defaults(act=_list)

    command = commands.add_parser("run", help="run an experiment and record it")
    command.add_argument("name", metavar="NAME")
    command.add_argument("--scale", default="cpu", metavar="|".join(SCALES))
    command.add_argument("--seeds", nargs="+", type=_seed, metavar="SEED", help="instead of the experiment's own")
    command.add_argument("--only", action="append", default=[], metavar="METHOD/DATASET", help="either part, or both")
    command.add_argument("--time-budget", type=_seconds, metavar="SECONDS", help="start nothing that cannot end in it")
    command.add_argument("--out", type=Path, metavar="DIR", help="records here, checkpoints in DIR/runs")
    command.add_argument("--device", help="cpu, cuda, cuda:1; a GPU where there is one")
    command.add_argument("--again", action="store_true", help="also what has a record")
    command.add_argument("--quiet", action="store_true", help="no progress bar")
    command.set_defaults(act=_run)

    command = commands.add_parser("table", help="an experiment's table, from its records")
    command.add_argument("name", metavar="NAME")
    command.add_argument("--scale", metavar="|".join(SCALES), help="full, and what else has records")
    command.add_argument("--format", choices=("plain", "markdown"), default="plain")
    command.add_argument("--out", type=Path, metavar="DIR", help="where the records are")
    command.set_defaults(act=_table)

    command = commands.add_parser("pending", help="full runs without a record, most important first")
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
        counts = (f"{scale} {len(experiment.configs(scale))}" for scale in SCALES)
        print(f"    runs: {', '.join(counts)}")
    return DONE


def _run(options: argparse.Namespace) -> int:
    started = time.monotonic()
    experiment, folders = find(options.name), _folders(options.out)
    device = records.device_name(pick_device(options.device))
    configs = experiment.only(experiment.configs(options.scale, options.seeds), options.only)
    if not configs:
        raise LabError("--only leaves no run; give fewer words")
    kept = records.read_all(folders.records, experiment.name)
    todo = [c for c in configs if options.again or not _recorded(c, experiment, folders)]
    sets = {name: datasets.load(name) for name in dict.fromkeys(c.dataset for c in todo)}
    folders.check()
    code = DONE
    for config in todo:
        left = None if options.time_budget is None else options.time_budget - (time.monotonic() - started)
        if left is not None and not _fits(config, kept, device, left):
            code = OUT_OF_TIME
            continue
        try:
            kept.append(_one(config, sets, experiment, folders, options, left))
        except Stopped as stop:
            if stop.signal is not None:
                raise
            _complain(f"{config.name}: {stop}; the same command goes on from its checkpoint", OUT_OF_TIME)
            code = OUT_OF_TIME
    print("\n" + table(experiment, options.scale, records.read_all(folders.records, experiment.name)).plain())
    return code


def _recorded(config: Config, experiment: Experiment, folders: Folders) -> bool:
    """Whether the run has a record, which is then named."""
    path = records.path_of(config, experiment.name, folders.records)
    if not path.is_file():
        return False
    print(f"{config.name}: recorded already, {100 * records.read(path).accuracy:.2f}% ({path}); --again repeats it")
    folders.checkpoint(config).unlink(missing_ok=True)
    return True


def _fits(config: Config, kept: list[records.Record], device: str, left: float) -> bool:
    """Whether a run may be started with so many seconds left; says so when not."""
    expected = similar_seconds(config, kept, device)
    if left > (expected or 0.0):
        return True
    needs = "" if expected is None else f" takes about {expected:.0f} s and"
    print(f"{config.name}:{needs} not started, {max(left, 0):.0f} s of the time budget are left")
    return False


def _one(
    config: Config,
    sets: dict[str, Dataset],
    experiment: Experiment,
    folders: Folders,
    options: argparse.Namespace,
    left: float | None,
) -> records.Record:
    """Run one configuration and print its result."""
    record = run(
        config,
        data=sets[config.dataset],
        out=folders,
        experiment=experiment.name,
        scale=options.scale,
        device=options.device,
        time_budget=left,
        quiet=options.quiet,
    )
    speed = f"{record.wall_seconds:.1f} s, {record.images_per_second:.0f} images/s"
    path = records.path_of(config, experiment.name, folders.records)
    print(f"{config.name}: {100 * record.accuracy:.2f}%, {speed}; wrote {path}", flush=True)
    return record


def _table(options: argparse.Namespace) -> int:
    experiment, folders = find(options.name), _folders(options.out)
    kept = records.read_all(folders.records, experiment.name)
    if options.scale is not None:
        scales = [options.scale]
    else:
        cells = {record.config.cell for record in kept}
        scales = [s for s in SCALES if s == "full" or cells & {c.cell for c in experiment.configs(s)}]
    made = [table(experiment, scale, kept) for scale in scales]
    print("\n\n".join(t.markdown() if options.format == "markdown" else t.plain() for t in made))
    return DONE


def _pending(options: argparse.Namespace) -> int:
    folders = _folders(options.out)
    total, lines = 0.0, []
    for experiment in sorted(EXPERIMENTS.values(), key=lambda e: e.importance):
        for config in experiment.configs("full"):
            if not records.path_of(config, experiment.name, folders.records).is_file():
                seconds = h100_seconds(config)
                total += seconds
                lines.append(f"{experiment.name}  {config.name}  about {seconds / 60:.1f} min")
    print("\n".join(lines) if lines else "no full run is pending")
    if lines:
        print(
            f"{len(lines)} runs, about {total / 3600:.1f} h on one H100 (estimated from assumed speeds, not measured)"
        )
    return DONE


def _prepare(options: argparse.Namespace) -> int:
    print(datasets.prepare(options.name))
    return DONE


if __name__ == "__main__":
    sys.exit(main())
