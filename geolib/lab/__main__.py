"""The lab's command line: ``python -m geolib.lab list | run | table | pending | bench | data prepare``.

Exit codes: 0, done; 1, a run diverged, or an error that nobody foresaw; 2, something the user can put right (one line
says what); 3, the time budget did not hold all; 128 + n, stopped by signal n; of several runs the worst. After 3 and
128 + n the same command goes on where it was.
"""

import argparse
import importlib
import json
import math
import os
import re
import signal
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from geolib.lab.benches import saved
from geolib.lab.cluster import Here, Processes, RayCluster
from geolib.lab.config import Config
from geolib.lab.data import sets
from geolib.lab.device import PRECISIONS, pick_device
from geolib.lab.experiments import EXPERIMENTS, Experiment, find, papers
from geolib.lab.experiments.plan import FAST_SCALES, SCALES
from geolib.lab.experiments.tables import tables_of
from geolib.lab.files import RECORDED, LabError, checkout
from geolib.lab.records import Record, check_writable, device_name, read, record_files
from geolib.lab.runner import DONE, USER_ERROR, Task, Times, complain, lasting, make_all, worst

BENCHES = ("flops", "locality", "speedup_ablation", "sympow", "vs_libraries")


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the words say, those of the process when None; the exit code."""
    try:
        options = parser().parse_args(argv)
        return options.act(options)
    except LabError as error:
        complain(str(error))
        return USER_ERROR
    except KeyboardInterrupt:
        complain("interrupted; the same command goes on from the last checkpoint")
        return 128 + signal.SIGINT
    except BrokenPipeError:  # the reader of our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE


def run(options: Namespace) -> int:
    """Make the runs of an experiment that have no record yet, and print its tables."""
    experiment = find(options.name)
    configs = chosen(experiment, options)
    if options.out is None and checkout() is None and not options.dry_run:
        raise LabError("geolib is an installed package, which keeps no new records: name a folder with --out DIR")
    out = options.out or RECORDED
    records, code = known(out)
    recorded = {record.config.hash: record for record in records}
    quiet = options.quiet or options.jobs > 1 or options.ray is not None
    precision = options.precision or ("auto" if options.scale in FAST_SCALES else None)
    keywords = {"device": options.device, "precision": precision, "quiet": quiet}
    tasks = [Task(each, experiment.name, options.scale, out, keywords, again=options.again) for each in configs]
    missing = [task for task in tasks if options.again or not (task.config.hash in recorded or task.is_recorded)]
    if options.dry_run:
        times = Times(device_name(pick_device(options.device)), records)
        lines = [f"{task.config.name}  {times.words(task.config)}" for task in missing]
        print(*lines, f"{len(missing)} of {len(tasks)} runs have no record", sep="\n")
        return code
    for task in tasks:
        if task not in missing and (record := recorded.get(task.config.hash)):
            print(f"{record.name}: recorded already, {record.result} (by {record.experiment}); --again repeats it")
    if missing:
        engine = Processes(options.jobs, options.device) if options.jobs > 1 else Here(options.device)
        engine = engine if options.ray is None else RayCluster(options.ray, options.device)
        data = {name: sets.load(name) for name in dict.fromkeys(task.config.dataset for task in missing)}
        check_writable(out, missing[0].checkpoint.parent)  # and the data before: an error now, not after a run
        made, outcome = make_all(missing, data, engine, Times(engine.device_name, records), options.time_budget)
        records, code = records + made, worst([outcome, code])
    if code < 128:
        print("\n" + "\n\n".join(table.plain() for table in tables_of(experiment, options.scale, records)))
    return code


def chosen(experiment: Experiment, options: Namespace) -> list[Config]:
    """The runs of a scale that one of the words picks: a run's hash, a row, a data set, or row and data set."""
    if options.jobs < 1 or min(options.seeds or [0]) < 0:
        raise LabError("--jobs is 1 or more, and a seed 0 or more")
    hashes = {word for word in options.only if re.fullmatch("[0-9a-f]{10}", word)}
    words = [word for word in options.only if word not in hashes]
    configs = experiment.configs(options.scale, options.seeds)
    if unknown := hashes - {config.hash for config in configs}:
        raise LabError(f"--only {', '.join(unknown)}: {experiment.name} has no such run at scale {options.scale}")
    if words or not hashes:
        hashes |= {config.hash for config in experiment.configs(options.scale, options.seeds, words)}
    if not hashes:
        raise LabError("--only leaves no run; give fewer words")
    return [config for config in configs if config.hash in hashes]


def known(folder: Path) -> tuple[list[Record], int]:
    """The records in a folder, and the exit code where one is damaged, which is told."""
    records, code = [], DONE
    for path in record_files(folder):
        try:
            records.append(read(path))
        except LabError as error:
            complain(str(error))
            code = USER_ERROR
    return records, code


def list_all(options: Namespace) -> int:
    """Print the experiments and what each needs."""
    for experiment in EXPERIMENTS.values():
        counts = ", ".join(f"{scale} {len(experiment.configs(scale))}" for scale in experiment.scales)
        print(f"{experiment.name}: {experiment.about}\n    needs: {experiment.needs}\n    runs: {counts}")
    return DONE


def table(options: Namespace) -> int:
    """Print an experiment's tables: of the scale asked for, else the full one and what else has records."""
    experiment, (records, code), tables = find(options.name), known(options.out or RECORDED), []
    for scale in experiment.scales if options.scale is None else [options.scale]:
        found = tables_of(experiment, scale, records)
        tables += found if scale in ("full", options.scale) or any(each.rows for each in found) else []
    print("\n\n".join(each.markdown() if options.format == "markdown" else each.plain() for each in tables))
    return code


def pending(options: Namespace) -> int:
    """Print the runs without a record, each once: first those of ``papers.FIRST``, then as ``list`` has them."""
    if options.scale not in SCALES:
        raise LabError(f"unknown scale {options.scale!r}; there are {', '.join(SCALES)}")
    records, code = known(options.out or RECORDED)
    times, done, runs = Times(device_name(pick_device(None)), records), {r.config.hash for r in records}, []
    for name, words, seeds in (*papers.FIRST, *((name, (), None) for name in EXPERIMENTS)):
        experiment = find(name)
        for config in experiment.configs(options.scale, seeds, words) if options.scale in experiment.scales else []:
            if config.hash in done:
                continue
            done.add(config.hash)
            like, named = times.like(config), {"hash": config.hash, "name": config.name, "experiment": experiment.name}
            found = {"seconds": like and like.wall_seconds, "basis": like.name if like else "unknown"}
            runs.append({**named, "scale": options.scale, **found})
            if not options.json:
                print(f"{experiment.name}  {config.name}  {times.words(config)}")
    seconds = [each["seconds"] for each in runs if each["seconds"] is not None]
    summary = f"{len(runs)} runs; the {len(seconds)} whose time is known take {lasting(sum(seconds))}"
    print(json.dumps(runs, indent=1) if options.json else summary)
    return code


def bench(options: Namespace) -> int:
    """Run a module's measurements and print their rows."""
    if options.name not in BENCHES:
        raise LabError(f"unknown bench {options.name!r}; there are {', '.join(BENCHES)}")
    print(f"{options.name}: torch {torch.__version__}, {device_name(pick_device(None))}, {os.cpu_count()} cores")
    rows = []
    for row in importlib.import_module(f"geolib.lab.benches.{options.name}").run():
        rows.append(row)
        values = {key: f"{value:.4g}" if isinstance(value, float) else value for key, value in row.items()}
        print(", ".join(f"{key} {value}" for key, value in values.items()), flush=True)
    if options.record is not None:
        saved.write(saved.measured(options.name, rows), options.record)
    return DONE


def prepare(options: Namespace) -> int:
    """Write the arrays of a data set."""
    print(sets.prepare(options.name))
    return DONE


def parser() -> argparse.ArgumentParser:
    """Make the parser of all commands."""
    whole = argparse.ArgumentParser("python -m geolib.lab", description="Train small models on data; keep records.")
    commands = whole.add_subparsers(required=True, metavar="COMMAND")
    scales, here = "|".join(SCALES), "where the records are (default: those of the book)"

    def command(among: Any, name: str, act: Any, about: str, **more: Any) -> Any:
        made = among.add_parser(name, help=about, **more)
        made.set_defaults(act=act)
        return made

    command(commands, "list", list_all, "the experiments and what each needs")
    more = {"description": run.__doc__, "epilog": EPILOG}
    made = command(commands, "run", run, "run an experiment and record it", **more)
    add = made.add_argument
    add("name", metavar="NAME")
    add("--scale", default="cpu", metavar=scales)
    add("--seeds", nargs="+", type=int, metavar="SEED", help="instead of the experiment's own")
    add("--only", action="append", default=[], metavar="ROW/DATASET|HASH", help="either part, or both")
    add("--time-budget", type=float, default=math.inf, metavar="SECONDS", help="start no run that cannot end in it")
    add("--out", type=Path, metavar="DIR", help="records here, checkpoints and logs in DIR/runs")
    many = made.add_mutually_exclusive_group()
    many.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at a time, each a process (default 1)")
    many.add_argument("--ray", nargs="?", const="", metavar="ADDRESS", help="on that Ray cluster, or a new one here")
    add("--device", help="cpu, cuda, cuda:1; a GPU where there is one")
    add("--precision", choices=("auto", *PRECISIONS), help="of products, where a run names none")
    add("--dry-run", action="store_true", help="show what is missing and its time; run nothing")
    add("--again", action="store_true", help="also what has a record")
    add("--quiet", action="store_true", help="no progress bar")
    add = command(commands, "table", table, "an experiment's table, from its records").add_argument
    add("name", metavar="NAME")
    add("--scale", metavar=scales, help="full, and what else has records")
    add("--format", choices=("plain", "markdown"), default="plain")
    add("--out", type=Path, metavar="DIR", help=here)
    add = command(commands, "pending", pending, "runs without a record, most important first").add_argument
    add("--scale", default="full", metavar=scales, help="full when not given")
    add("--out", type=Path, metavar="DIR", help=here)
    add("--json", action="store_true", help="for other programs")
    add = command(commands, "bench", bench, "measure what a module's fast form gains; minutes").add_argument
    add("name", metavar="|".join(BENCHES))
    add("--record", type=Path, metavar="FILE", help="write the rows there, with machine and versions")
    actions = commands.add_parser("data", help="data sets").add_subparsers(required=True, metavar="ACTION")
    written = f"write a set's arrays into ${sets.FOLDER_VARIABLE}"
    command(actions, "prepare", prepare, written).add_argument("name", metavar="NAME")
    return whole


EPILOG = "Stopped or killed, the same command goes on where it was. Processes that share --out make no run twice."

if __name__ == "__main__":
    sys.exit(main())
