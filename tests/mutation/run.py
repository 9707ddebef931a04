"""Change the library in one small place at a time and see whether a test fails: mutation testing with mutmut.

``python tests/mutation/run.py [MODULE ...] [--minutes 60]`` works through the mutants of the modules named, or of all,
each against its module's tests and those that run over the registry of methods, and writes what it found to
``tests/mutation/records/MODULE.json``. Interrupted, or out of time, it goes on where it stopped: the verdicts lie
beside the mutated copy, in ``_build/mutants``, until the function or its tests change. A record is written either way
and says how many mutants wait.

mutmut and not cosmic-ray: it forks each mutant from a process that has imported PyTorch and collected the tests, and
runs only tests that reach the changed function; to import PyTorch anew for each would take four seconds a mutant. What
it leaves alone: code outside functions, and decorated functions.

A mutant that survives is killed by a new test or shown to change nothing, with the reason, in ``harmless.yml``; words
of messages are told apart by their spaces.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
RECORDS = HERE / "records"
REGISTRY = (
    *("test_encodings", "test_encodings_lie", "test_encodings_riemann", "test_placed"),
    *("test_batches", "test_options"),
)
# Compiling takes seconds and tells nothing that the eager form does not; the compiler also refuses mutmut's detours,
# which are functions that no row of options knows.
UNCOMPILED = "not graph and not compile and not export and not has_a_row"
EAGER = {"TORCHDYNAMO_DISABLE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": "", "HYPOTHESIS_PROFILE": "mutants"}
# A machine with other work to do is slow; a mutant that it kept waiting must not pass for one that loops for ever.
PATIENCE = ("timeout_constant = 12", "timeout_multiplier = 15")
COPIED = ("geolib", "tests", "book", "chapters", "pyproject.toml", "README.md", "_config.yml", "_toc.yml", "Makefile")


@dataclass(frozen=True)
class Module:
    """Files of the library, as patterns, and the tests of their own."""

    files: tuple[str, ...]
    tests: tuple[str, ...]


MODULES = {
    "attention": Module(("geolib/attention.py", "geolib/_written.py"), ("test_attention", "test_lab_precision")),
    "checks": Module(
        ("geolib/_checks.py", "geolib/_precision.py"),
        ("test_precision", "test_rotations", "test_lie", "test_sympow", "test_refusals"),
    ),
    "conformal": Module(("geolib/conformal.py",), ("test_conformal",)),
    "connection": Module(("geolib/connection/*.py",), ("test_connection",)),
    "encodings": Module(("geolib/encodings.py", "geolib/placed.py"), ("test_attention",)),
    "lie": Module(("geolib/lie.py",), ("test_lie",)),
    "locality": Module(("geolib/locality.py",), ("test_locality",)),
    "manifolds": Module(("geolib/manifolds/*.py",), ("test_manifolds",)),
    "recurrence": Module(("geolib/recurrence/*.py",), ("test_recurrence", "test_chunks", "test_fused")),
    "rotations": Module(("geolib/rotations.py",), ("test_rotations",)),
    "statistics": Module(("geolib/lab/experiments/statistics.py",), ("test_experiments",)),
    "sympow": Module(("geolib/sympow.py",), ("test_sympow",)),
    "transport": Module(("geolib/transport.py",), ("test_transport",)),
}


def prepare(name: str) -> Path:
    """A copy of the working tree to mutate, brought up to date where it exists, with mutmut's settings."""
    copy = REPOSITORY / "_build" / "mutants" / name
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", *COPIED], cwd=REPOSITORY, check=True, capture_output=True
    )
    wanted = {Path(line) for line in listed.stdout.decode().splitlines()}
    for path in wanted:
        source, target = REPOSITORY / path, copy / path
        if source.is_symlink() or not source.is_file():
            continue
        # An unchanged file keeps its time: mutmut tests anew what it finds changed.
        if not target.exists() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    for folder in ("geolib", "tests"):
        for path in (copy / folder).rglob("*.py"):
            if path.relative_to(copy) not in wanted:
                path.unlink()
    (copy / "setup.cfg").write_text(settings(MODULES[name]), "utf-8")
    return copy


def settings(module: Module) -> str:
    """What mutmut reads."""
    tests = [f"tests/{test}.py" for test in dict.fromkeys((*module.tests, *REGISTRY))]
    lists = {
        "source_paths": ["geolib"],
        "only_mutate": list(module.files),
        "also_copy": list(COPIED),
        "pytest_add_cli_args_test_selection": tests,
        "pytest_add_cli_args": ["-m", "not site", "-k", UNCOMPILED, "-p", "no:cacheprovider"],
    }
    lines = ["[mutmut]", "process_isolation = forkserver", "use_git_change_detection = false", *PATIENCE]
    for key, values in lists.items():
        lines += [f"{key} =", *(f"    {value}" for value in values)]
    return "\n".join(lines) + "\n"


def mutate(copy: Path, minutes: float) -> float:
    """Run mutmut in the copy for at most that long; the seconds it took."""
    start = time.monotonic()
    environment = os.environ | EAGER
    command = [str(Path(sys.executable).parent / "mutmut"), "run", "--max-children", "1"]
    with (copy / "log.txt").open("ab") as log:
        process = subprocess.Popen(command, cwd=copy, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            process.wait(60 * minutes)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return time.monotonic() - start


def verdicts(copy: Path) -> Iterator[tuple[str, str, str]]:
    """Each mutant's file, name and verdict."""
    from mutmut.stats import status_by_exit_code

    for meta in sorted((copy / "mutants" / "geolib").rglob("*.py.meta")):
        file = str(meta.relative_to(copy / "mutants")).removesuffix(".meta")
        for name, code in json.loads(meta.read_text("utf-8"))["exit_code_by_key"].items():
            yield file, name, status_by_exit_code[code]


def change(copy: Path, file: str, name: str) -> tuple[str, str]:
    """The lines that a mutant replaces, and what it replaces them by."""
    from mutmut.mutation.diff_apply import get_diff_for_mutant

    with contextlib.chdir(copy):
        diff = get_diff_for_mutant(name, path=file).splitlines()[2:]
    old, new = ([line[1:].strip() for line in diff if line.startswith(sign)] for sign in "-+")
    return " ".join(old), " ".join(new)


def only_words(old: str, new: str) -> bool:
    """Whether the two differ in nothing but a text with a space in it: a message, and not an argument's name.

    >>> only_words('f("s", "a zero matrix")', 'f("s", "XXa zero matrixXX")')
    True
    >>> only_words('f("s", "a zero matrix")', 'f("S", "a zero matrix")')
    False
    """
    texts = re.compile(r'f?"[^"]* [^"]*"')
    return texts.sub('""', old) == texts.sub('""', new)


def reason(file: str, old: str, new: str, harmless: list[dict[str, str]]) -> str | None:
    """Why a surviving mutant changes nothing, where that is known."""
    if only_words(old, new):
        return "words of a message"
    for entry in harmless:
        if entry["file"] == file and entry["old"] in old and old.replace(entry["old"], entry["new"], 1) == new:
            return entry["why"]
    return None


def report(name: str, copy: Path, seconds: float) -> dict[str, Any]:
    """The record of a module."""
    harmless = yaml.safe_load((HERE / "harmless.yml").read_text("utf-8")) or []
    counts: Counter[str] = Counter()
    survivors, excused = [], []
    for file, mutant, verdict in verdicts(copy):
        if verdict in ("survived", "no tests"):
            old, new = change(copy, file, mutant)
            why = reason(file, old, new, harmless)
            (excused if why else survivors).append(
                {"file": file, "old": old, "new": new} | ({"why": why} if why else {})
            )
            counts["changes nothing" if why else "survived"] += 1
        elif verdict == "not checked" or "interrupted" in verdict:
            counts["waits"] += 1
        elif verdict == "timeout":
            counts["endless"] += 1
        else:
            counts["killed"] += 1
    old_record = RECORDS / f"{name}.json"
    before = json.loads(old_record.read_text("utf-8"))["seconds"] if old_record.exists() else 0.0
    found = counts["killed"] + counts["endless"]
    tested = found + counts["survived"]
    return {
        "module": name,
        "tool": f"mutmut {version('mutmut')}",
        "mutants": sum(counts.values()),
        **{key: counts[key] for key in ("killed", "endless", "survived", "changes nothing", "waits")},
        "score": round(found / tested, 4) if tested else None,
        "seconds": round(before + seconds),
        "survivors": survivors,
        "harmless": Counter(entry["why"] for entry in excused),
    }


def main() -> int:
    """Run the modules named and write their records; 1 where a mutant survived."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=", ".join(MODULES))
    parser.add_argument("--minutes", type=float, default=60.0, help="for each module")
    given = parser.parse_args()
    if unknown := set(given.modules) - set(MODULES):
        parser.error(f"modules: got {', '.join(sorted(unknown))}; there are {', '.join(MODULES)}")
    RECORDS.mkdir(parents=True, exist_ok=True)
    survived = 0
    for name in given.modules or MODULES:
        copy = prepare(name)
        record = report(name, copy, mutate(copy, given.minutes))
        (RECORDS / f"{name}.json").write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", "utf-8")
        survived += record["survived"]
        score = "-" if record["score"] is None else f"{100 * record['score']:.1f} %"
        print(f"{name}: {score} of {record['mutants']} mutants, {record['survived']} survive, {record['waits']} wait")
        for mutant in record["survivors"]:
            print(f"  {mutant['file']}\n    - {mutant['old']}\n    + {mutant['new']}")
    return int(survived > 0)


if __name__ == "__main__":
    sys.exit(main())
