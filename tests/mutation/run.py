"""Change the library in one small place at a time and see whether a test fails: mutation testing with mutmut.

``python tests/mutation/run.py [MODULE ...] [--minutes 60] [--sample N]`` works through the mutants of the modules
named, or of all, and writes what it found to ``tests/mutation/records/MODULE.json``. mutmut makes the mutants and the
detours that switch one on; ``trials.py`` tries them, first against the module's own tests, then the survivors of the
mathematics against those that run over the registry of methods. Interrupted, or out of time, it goes on where it
stopped: verdicts and the map from functions to tests lie in ``_build/mutants``, until the function or the tests change.
A record is written either way. It says how many mutants wait; those tried are a random sample of the module's, drawn by
its name. Of a part there is an interval for the whole's score, by what was found at the first try: tests written for
the survivors of a sample say nothing about the rest.

mutmut and not cosmic-ray: it writes all mutants of a file at once and switches between them in a running process; to
import PyTorch anew for each would take four seconds a mutant. Its own loop collected the tests anew for each mutant and
ran them in no order. What it leaves alone: code outside functions, and decorated functions.

A mutant that survives is killed by a new test or shown to change nothing, with the reason, in ``harmless.yml``; words
of messages are told apart by their spaces. Neither is tried.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from statistics import NormalDist
from typing import Any

from changes import mutants_of
from modules import MODULES

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
RECORDS = HERE / "records"
CONFIDENCE = 0.95  # of the interval for a module's score that a sample gives
EAGER = {"TORCHDYNAMO_DISABLE": "1", "OMP_NUM_THREADS": "1"}
COPIED = ("geolib", "tests", "book", "chapters", "pyproject.toml", "README.md", "_config.yml", "_toc.yml", "Makefile")


def prepare(copy: Path) -> None:
    """Make a copy of the working tree to mutate, or bring it up to date, with mutmut's settings."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", *COPIED], cwd=REPOSITORY, check=True, capture_output=True
    )
    wanted = {Path(line) for line in listed.stdout.decode().splitlines()}
    for path in wanted:
        source, target = REPOSITORY / path, copy / path
        if source.is_symlink() or not source.is_file():
            continue
        # An unchanged file keeps its time: mutmut mutates anew what it finds changed.
        if not target.exists() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    for folder in ("geolib", "tests"):
        for path in (copy / folder).rglob("*.py"):
            if path.relative_to(copy) not in wanted:
                path.unlink()
    config = copy / "setup.cfg"
    if not config.exists() or config.read_text("utf-8") != settings():
        config.write_text(settings(), "utf-8")
        shutil.rmtree(copy / "reach", ignore_errors=True)  # of what was not mutated no test was seen to reach anything
        for path in (copy / "geolib").rglob("*.py"):
            path.touch()  # mutmut has copied files that it is now to mutate


def settings() -> str:
    """What mutmut reads."""
    lists = {
        "source_paths": ["geolib"],
        "only_mutate": sorted(pattern for module in MODULES.values() for pattern in module.files),
        "also_copy": [path for path in COPIED if path != "geolib"],  # that would put back what has been mutated
    }
    lines = ["[mutmut]", "use_git_change_detection = false"]
    for key, values in lists.items():
        lines += [f"{key} =", *(f"    {value}" for value in values)]
    return "\n".join(lines) + "\n"


def attempt(names: list[str], copy: Path, until: float, most: int | None) -> None:
    """Try these modules' mutants until that time."""
    environment = os.environ | EAGER | {"PYTHONPATH": str(copy / "mutants")}
    command = [sys.executable, str(HERE / "trials.py"), *names, "--until", str(until)]
    command += ["--most", str(most)] if most else []
    with (copy / "log.txt").open("wb") as log:
        process = subprocess.Popen(command, cwd=copy, env=environment, stdout=log, stderr=log)
    if process.wait():
        raise SystemExit(f"the trials ended early; {copy / 'log.txt'} says why")


def report(name: str, copy: Path) -> dict[str, Any]:
    """The record of a module."""
    with contextlib.chdir(copy / "mutants"):
        mutants = mutants_of(MODULES[name].files)
    store = copy / "verdicts" / f"{name}.json"
    verdicts = json.loads(store.read_text("utf-8")) if store.exists() else {}
    counts: Counter[str] = Counter()
    survivors, seconds, harmless = [], 0.0, Counter[str]()
    for mutant in mutants:
        verdict = verdicts.get(mutant.name)
        known = verdict is not None and verdict["function"] == mutant.function
        if mutant.harmless and not (known and verdict["verdict"] != "survived"):  # found, it is no excuse that counts
            counts["changes nothing"] += 1
            harmless[mutant.harmless] += 1
        elif not known:
            counts["waits"] += 1
        else:
            counts[verdict["verdict"]] += 1
            seconds += verdict["seconds"]
            counts["survived at first"] += "at first" in verdict or verdict["verdict"] == "survived"
            if verdict["verdict"] == "survived":
                survivors.append({"file": mutant.file, "old": mutant.old, "new": mutant.new})
    found = counts["killed"] + counts["endless"]
    tried = found + counts["survived"]
    at_first = tried - counts["survived at first"]
    return {
        "module": name,
        "tool": f"mutmut {version('mutmut')}",
        **json.loads((copy / "machine.json").read_text("utf-8")),
        "mutants": len(mutants),
        **{key: counts[key] for key in ("killed", "endless", "survived", "changes nothing", "waits")},
        "survived at first": counts["survived at first"],
        "score": round(found / tried, 4) if tried else None,
        "confidence": CONFIDENCE,
        "interval": [round(end, 4) for end in interval(at_first, tried)] if counts["waits"] and tried else None,
        "seconds": round(seconds, 1),
        "survivors": survivors,
        "harmless": harmless,
    }


def interval(found: int, tried: int) -> tuple[float, float]:
    """Wilson's interval for a share of which a sample is known.

    >>> [round(end, 3) for end in interval(90, 100)]
    [0.826, 0.945]
    """
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    share, slack = found / tried, z * z / tried
    half = (slack * (share * (1 - share) + slack / 4)) ** 0.5
    return (share + slack / 2 - half) / (1 + slack), (share + slack / 2 + half) / (1 + slack)


def main() -> int:
    """Run the modules named and write their records; 1 where a mutant survived."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=", ".join(MODULES))
    parser.add_argument("--minutes", type=float, default=60.0, help="for all of them; 0 only writes the records")
    parser.add_argument("--sample", type=int, metavar="N", help="so many mutants of each module, drawn by its name")
    given = parser.parse_args()
    if unknown := set(given.modules) - set(MODULES):
        parser.error(f"modules: got {', '.join(sorted(unknown))}; there are {', '.join(MODULES)}")
    names = given.modules or list(MODULES)
    copy = REPOSITORY / "_build" / "mutants"
    if given.minutes > 0:
        prepare(copy)
        attempt(names, copy, time.time() + 60 * given.minutes, given.sample)
    RECORDS.mkdir(parents=True, exist_ok=True)
    survived = 0
    for name in names:
        record = report(name, copy)
        if record["score"] is None:
            print(f"{name}: none of {record['mutants']} mutants has been tried")
            continue
        (RECORDS / f"{name}.json").write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", "utf-8")
        survived += record["survived"]
        waiting = f"{record['survived']} survive, {record['waits']} wait"
        print(f"{name}: {100 * record['score']:.1f} % of {record['mutants']} mutants, {waiting}")
        for mutant in record["survivors"]:
            print(f"  {mutant['file']}\n    - {mutant['old']}\n    + {mutant['new']}")
    return int(survived > 0)


if __name__ == "__main__":
    sys.exit(main())
