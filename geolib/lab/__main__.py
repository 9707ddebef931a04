"""The lab's command line: ``python -m geolib.lab list | run | table | pending | bench | first-contact | data prepare``.

Exit codes: 0, done; 1, a loss that is not finite, an error that nobody foresaw, or a part of ``first-contact`` that
failed; 2, something the user can put right (one line says what); 3, the time budget ended first; 128 + n, stopped by
signal n. After 3 and 128 + n the same command goes on where it was. Of several runs one that fails is reported and the
others go on; the code is then that of the failure.

``torchrun --nproc_per_node N -m geolib.lab run ...`` spreads the runs over N processes, each on the GPU of its number.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch

from geolib.lab.benches import saved
from geolib.lab.config import PRECISIONS, STEP_FORMS, Options
from geolib.lab.data import sets as datasets
from geolib.lab.experiments.plan import FAST_SCALES, SCALES
from geolib.lab.experiments.registry import EXPERIMENTS, PIPELINES, find_runnable
from geolib.lab.experiments.tables import tables_of
from geolib.lab.files import RECORDED, LabError, checkout
from geolib.lab.first_contact import first_contact
from geolib.lab.records import Folders, device_name, load_records
from geolib.lab.runner import (
    LOCKED,
    ChildFailed,
    Job,
    Locked,
    Machine,
    Request,
    Runner,
    lasting,
    torchrun_rank,
    torchrun_size,
)
from geolib.lab.train import pick_device
from geolib.lab.watch import Diverged, Stopped

DONE, DIVERGED, USER_ERROR, OUT_OF_TIME = 0, 1, 2, 3
FAILED = DIVERGED


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the words say, those of the process when None; the exit code."""
    try:
        options = _parser().parse_args(argv)
        return options.act(options)
    except (LabError, Diverged, Stopped) as trouble:
        return _complain(_message(trouble), _code(trouble))
    except KeyboardInterrupt:
        return _complain("interrupted; the same command goes on from the last checkpoint", 128 + signal.SIGINT)
    except BrokenPipeError:  # the reader of our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE


def _bench(options: argparse.Namespace) -> int:
    """Run a module's measurements and print their rows."""
    if options.name not in BENCHES:
        raise LabError(f"unknown bench {options.name!r}; there are {', '.join(BENCHES)}")
    device = device_name(pick_device(None))
    print(f"{options.name}: torch {torch.__version__}, {device}, {os.cpu_count()} cores", flush=True)
    module = importlib.import_module(f"geolib.lab.benches.{options.name}")
    rows = []
    for row in module.run():
        rows.append(row)
        words = (f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items())
        print(", ".join(words))
    if hasattr(module, "table"):
        print(module.table(rows))
    if options.record is not None:
        saved.write(saved.measured(options.name, rows), options.record)
    return DONE


def _complain(text: str, code: int) -> int:
    print("geolib.lab: " + " ".join(text.split()), file=sys.stderr)
    return code


def _message(trouble: Exception) -> str:
    """What the user reads of it."""
    return f"{trouble}; {trouble.advice}" if isinstance(trouble, Stopped) else str(trouble)


def _code(trouble: Exception) -> int:
    """The exit code that stands for it."""
    if isinstance(trouble, Stopped):
        return OUT_OF_TIME if trouble.signal is None else 128 + trouble.signal
    if isinstance(trouble, ChildFailed):
        return trouble.code
    return USER_ERROR if isinstance(trouble, LabError) else DIVERGED  # as of a process that nobody foresaw to fail


BENCHES = (
    "augment", "flops", "speedup_ablation", "lie", "locality", "memory", "operations", "pairs", "parts",
    "vs_libraries", "recall", "sympow", "training", "words",
)  # fmt: skip


class _Parser(argparse.ArgumentParser):
    """argparse, with its errors in one line."""

    def error(self, message: str) -> NoReturn:
        raise LabError(f"{message}; see {self.prog} --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m geolib.lab", description="Train small models on real data and keep records.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)

    def add(name: str, act: Callable[[argparse.Namespace], int], **words: Any) -> argparse.ArgumentParser:
        command = commands.add_parser(name, **words)
        command.set_defaults(act=act)
        return command

    add("list", _list, help="the experiments and what each needs")

    command = add(
        "run",
        _run,
        help="run an experiment and record it",
        description="Train what an experiment has no record of yet, record each run, and print the table.",
        epilog=(
            "Stopped or killed, the same command goes on where it was. Under torchrun, on one machine or several with "
            "one folder in common, each process makes runs of its own on the GPU of its number; none is made twice."
        ),
    )
    command.add_argument("name", metavar="NAME")
    command.add_argument("--scale", default="cpu", metavar="|".join(SCALES))
    command.add_argument("--seeds", nargs="+", type=_seed, metavar="SEED", help="instead of the experiment's own")
    command.add_argument("--only", action="append", default=[], metavar="ROW/DATASET", help="either part, or both")
    command.add_argument(
        "--time-budget", type=_seconds, metavar="SECONDS", help="for all runs: start nothing that cannot end in it"
    )
    command.add_argument("--out", type=Path, metavar="DIR", help="records here, checkpoints in DIR/runs")
    command.add_argument(
        "--jobs", type=_count, default=1, metavar="N", help="runs at a time, each a process (default 1)"
    )
    command.add_argument("--device", help="cpu, cuda, cuda:1; a GPU where there is one")
    command.add_argument(
        "--step", choices=STEP_FORMS, default="auto", help="of a training step on a GPU; auto: the fastest"
    )
    command.add_argument(
        "--precision",
        choices=("auto", *PRECISIONS),
        help="of products, where a run names none; auto: bfloat16 where the processor multiplies in it (AMX, AVX-512 "
        "BF16), else float32. Usual on a CPU: float32, at laptop auto; on a GPU: bfloat16",
    )
    command.add_argument("--dry-run", action="store_true", help="show the plan and what it should take; run nothing")
    command.add_argument("--again", action="store_true", help="also what has a record")
    command.add_argument("--quiet", action="store_true", help="no progress bar")

    add("job", _job)  # for run --jobs alone, so without a line in the help

    command = add("table", _table, help="an experiment's table, from its records")
    command.add_argument("name", metavar="NAME")
    command.add_argument("--scale", metavar="|".join(SCALES), help="full, and what else has records")
    command.add_argument("--format", choices=("plain", "markdown"), default="plain")
    command.add_argument("--out", type=Path, metavar="DIR", help="where the records are (default: those of the book)")

    command = add("pending", _pending, help="runs without a record, most important first")
    command.add_argument("--scale", default="full", metavar="|".join(SCALES), help="full when not given")
    command.add_argument("--out", type=Path, metavar="DIR", help="where the records are (default: those of the book)")

    command = add("bench", _bench, help="measure what a module's fast form gains; minutes")
    command.add_argument("name", metavar="|".join(BENCHES))
    command.add_argument("--record", type=Path, metavar="FILE", help="write the rows there, with machine and versions")

    command = add("first-contact", _first_contact, help="what works on this machine: a report; half an hour on a GPU")
    command.add_argument("--out", type=Path, metavar="DIR", required=True, help="the report and what its runs leave")
    command.add_argument("--only", action="append", default=[], metavar="WORD", help="parts with a word in their names")

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


def _folders(options: argparse.Namespace) -> Folders:
    """Where a run reads and writes; a plan alone writes nothing, so the records that ship will do."""
    if options.out is None and options.dry_run and checkout() is None:
        return Folders.below(RECORDED)
    return Folders.usual() if options.out is None else Folders.below(options.out)


# The commands -------------------------------------------------------------------------------------------------------


def _list(options: argparse.Namespace) -> int:
    for experiment in EXPERIMENTS.values():
        print(f"{experiment.name}: {experiment.about}")
        print(f"    needs: {experiment.needs}")
        counts = (f"{scale} {len(experiment.configs(scale))}" for scale in experiment.scales)
        print(f"    runs: {', '.join(counts)}")
    for pipeline in PIPELINES.values():
        print(f"{pipeline.name}: {pipeline.about}\n    needs: {pipeline.needs}")
    return DONE


def _run(options: argparse.Namespace) -> int:
    chosen, first = pick_device(options.device), torchrun_rank() == 0  # torchrun's processes share the folder alone
    if torchrun_size() > 1 and (options.jobs > 1 or options.again):
        raise LabError("--jobs and --again are for one process, not for those of torchrun")
    runner = Runner(_request(options, chosen))
    if options.dry_run:
        if first:
            print(runner.dry_run())
        return DONE
    runner.run()
    if first:
        print("\n" + runner.tables())
    codes = [_complain(f"{name}: {_message(trouble)}", _code(trouble)) for name, trouble in runner.failures]
    codes += [_complain(problem, USER_ERROR) for problem in runner.problems]
    return _worst(codes + [OUT_OF_TIME] * bool(runner.left_out))


def _request(options: argparse.Namespace, chosen: torch.device) -> Request:
    """What the words ask for."""
    planned_for_a_gpu = options.dry_run and options.scale == "full" and chosen.type == "cpu" and options.device is None
    here = Machine.at_hand(chosen, torchrun_size())
    return Request(
        what=find_runnable(options.name),
        scale=options.scale,
        folders=_folders(options),
        machine=Machine.h100() if planned_for_a_gpu else here,
        seeds=options.seeds,
        words=options.only,
        options=Options(
            device=options.device,
            step=options.step,
            precision=options.precision or _usual_precision(options.scale),
            quiet=options.quiet or options.jobs > 1 or torchrun_rank() > 0,
        ),
        jobs=options.jobs,
        again=options.again,
        time_budget=options.time_budget,
    )


def _usual_precision(scale: str) -> str | None:
    """The option of a scale's runs where the words name none."""
    return "auto" if scale in FAST_SCALES else None


def _worst(codes: list[int]) -> int:
    """The exit code of a command whose runs had these."""
    order = (USER_ERROR, DIVERGED, OUT_OF_TIME)
    return next((code for code in order if code in codes), next((code for code in codes if code), DONE))


def _job(options: argparse.Namespace) -> int:
    """Do the job on standard input: what ``run --jobs`` starts."""
    try:
        Job.from_json(sys.stdin.read()).do()
    except Locked as trouble:
        return _complain(str(trouble), LOCKED)
    return DONE


def _table(options: argparse.Namespace) -> int:
    experiment = find_runnable(options.name)
    records, problems = load_records(options.out or RECORDED)
    scales = experiment.scales if options.scale is None else [options.scale]
    made = {scale: tables_of(experiment, scale, records) for scale in scales}
    # Without a scale asked for: the full one, and what else has records.
    shown = [found for scale, found in made.items() if scale in ("full", options.scale) or any(t.rows for t in found)]
    tables = [table for found in shown for table in found]
    print("\n\n".join(table.markdown() if options.format == "markdown" else table.plain() for table in tables))
    return _worst([_complain(problem, USER_ERROR) for problem in problems])


def _pending(options: argparse.Namespace) -> int:
    scale, chosen = options.scale, pick_device(None)
    if scale not in SCALES:
        raise LabError(f"unknown scale {scale!r}; there are {', '.join(SCALES)}")
    records, problems = load_records(options.out or RECORDED)
    done = {record.name for record in records}
    # The full runs are planned for a GPU; where there is none, for the one that is assumed.
    machine = Machine.h100() if scale == "full" and chosen.type == "cpu" else Machine.at_hand(chosen)
    estimates = []
    for experiment in sorted(EXPERIMENTS.values(), key=lambda e: e.importance):
        for config in experiment.configs(scale) if scale in experiment.scales else []:
            if config.name not in done:
                done.add(config.name)  # a run that two experiments share is made once
                kind = machine.kind(experiment, scale, config, _usual_precision(scale))
                estimates.append(machine.estimate(config, records, kind))
                needed, basis = lasting(estimates[-1].seconds), estimates[-1].basis
                print(f"{experiment.name}  {config.name}  about {needed}  [{basis}]")
    if estimates:
        hours = sum(each.seconds for each in estimates) / 3600
        print(f"{len(estimates)} runs, about {hours:.1f} h on {machine.name}, estimated")
    else:
        print(f"no {scale} run is pending")
    return _worst([_complain(problem, USER_ERROR) for problem in problems])


def _first_contact(options: argparse.Namespace) -> int:
    return DONE if first_contact(options.out, options.only) else FAILED


def _prepare(options: argparse.Namespace) -> int:
    print(datasets.prepare(options.name))
    return DONE


if __name__ == "__main__":
    sys.exit(main())
