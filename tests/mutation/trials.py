"""Try mutants, each in a child of one process that has imported and collected the tests; run in the mutated copy.

``python trials.py MODULE ... --until SECONDS --most N`` is called by ``run.py``. A child runs only tests that reach the
changed function and stops at the first that fails: those first that have found a mutant of the same function, then the
quickest. The module's own tests come first; those over the registry of methods see what these let pass, except in the
lab. A test that takes longer than a module's ``slow`` seconds is not run, nor any after twice as long: what only such a
test would notice counts as surviving. A test that finds a mutant has to pass alone on the library as it is. Those that
survived are tried again first, where tests are new, against tests that they have not met; the others in the order of
their names' fingerprints, so that those tried are a random sample, and the modules take turns. All times are seconds of
processor, not of the clock: another's work on the machine makes no mutant endless.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import importlib
import inspect
import json
import os
import re
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from changes import Mutant, mutants_of
from modules import MODULES

# The same examples each time, few of them, and the first that fails is enough: no smaller one is looked for.
hypothesis.settings.register_profile(
    "mutants",
    phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=10,
    suppress_health_check=list(hypothesis.HealthCheck),
)
TURN = 20
SLOWEST = max(module.slow for module in MODULES.values())
# An unmutated test takes a second at most, mostly milliseconds; a changed loop that takes this long does not end.
PATIENCE, TIMES = 6.0, 20.0
ASLEEP = 300  # seconds of the clock, for one that waits and computes nothing
MEMORY = 6 << 30
KILLED, SURVIVED, FAILED_ALONE = 1, 0, 3
# Compiling takes seconds and tells nothing that the eager form does not; the compiler also refuses mutmut's detours,
# which are functions that no row of options knows.
UNCOMPILED = "not graph and not compile and not export and not has_a_row"


def digest(path: Path) -> str:
    """A short fingerprint of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def fingerprint(item: Any) -> str:
    """A short fingerprint of a test's name, text and parameters."""
    try:
        text = inspect.getsource(item.function)
    except OSError:
        text = ""
    given = re.sub(r" at 0x[0-9a-f]+", "", repr(item.callspec.params)) if hasattr(item, "callspec") else ""
    return hashlib.sha256(f"{item.nodeid}\n{text}{given}".encode()).hexdigest()[:8]


def break_off(number: int, frame: Any) -> None:
    """End a test that takes too long."""
    raise TimeoutError


def read(path: Path) -> dict[str, Any]:
    """A store, or an empty one."""
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def write(path: Path, things: dict[str, Any]) -> None:
    """Keep a store; a half-written one is never seen."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".new").write_text(json.dumps(things, indent=0), "utf-8")
    path.with_suffix(".new").replace(path)


@dataclass
class Book:
    """The mutants of a module and what is known of them."""

    module: str
    mutants: list[Mutant]
    verdicts: dict[str, dict[str, Any]]
    killers: dict[str, Counter[str]]

    @property
    def store(self) -> Path:
        """Where the verdicts lie."""
        return Path("..") / "verdicts" / f"{self.module}.json"


def opened(module: str) -> Book:
    """A module's book, its mutants in their drawn order."""
    # A fingerprint is as good as a lot, and another mutant more or less leaves the order of the others alone.
    mutants = sorted(mutants_of(MODULES[module].files), key=lambda m: hashlib.sha256(m.name.encode()).digest())
    book = Book(module, [mutant for mutant in mutants if not mutant.harmless], {}, {})
    book.verdicts = read(book.store)
    for name, verdict in book.verdicts.items():
        if verdict.get("by"):
            book.killers.setdefault(name.partition("__mutmut_")[0], Counter())[verdict["by"]] += 1
    return book


def processor_of_children() -> float:
    """Seconds of processor that ended children took."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Trials:
    """What takes the place of pytest's loop over the tests."""

    def __init__(self, given: argparse.Namespace):
        self.given = given
        self.failed, self.why = False, ""
        self.reach: dict[str, dict[str, Any]] = {}
        self.noted: dict[str, str] = {}
        self.passed: dict[str, bool] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Remember that a test failed."""
        self.failed |= report.failed
        self.why = report.longreprtext or self.why

    def pytest_runtestloop(self, session: Any) -> bool:
        """Try the mutants that wait, by turns twenty of each module."""
        if session.testsfailed:
            raise session.Interrupted("the tests could not be collected")
        self.items = {item.nodeid: item for item in session.items}
        self.prints = {name: fingerprint(item) for name, item in self.items.items()}
        write(Path("..") / "machine.json", {"machine": device_name()})  # not before the tests have set up their watch
        gc.freeze()
        books = [opened(module) for module in self.given.modules]
        for book in books:
            for mutant in book.mutants:
                if book.verdicts.get(mutant.name, {}).get("verdict") == "survived" and time.time() < self.given.until:
                    self.try_one(book, mutant, MODULES[book.module].tests)
                    self.try_one(book, mutant, MODULES[book.module].then, last=True)
            write(book.store, book.verdicts)
        for start in range(0, max(len(book.mutants) for book in books), TURN):
            stages = [(b, MODULES[b.module].tests, False) for b in books] + [
                (b, MODULES[b.module].then, True) for b in books
            ]
            for book, tests, last in stages:
                for mutant in book.mutants[: self.given.most][start : start + TURN]:
                    if time.time() > self.given.until:
                        write(book.store, book.verdicts)
                        return True
                    self.try_one(book, mutant, tests, last)
                write(book.store, book.verdicts)
        return True

    def try_one(self, book: Book, mutant: Mutant, tests: Iterable[str], last: bool = False) -> None:
        """Try a mutant against the tests of these files, where it has not been found and they are new to it."""
        verdict = book.verdicts.get(mutant.name)
        if verdict is None or verdict["function"] != mutant.function:
            verdict = {"function": mutant.function, "verdict": "survived", "against": {}, "seconds": 0.0}
        if verdict["verdict"] != "survived":
            return
        texts = {test: self.learn(test) for test in tests}
        if any(verdict["against"].get(test) != text for test, text in texts.items()):
            verdict = book.verdicts[mutant.name] = self.verdict(book, mutant, verdict, texts)
        if verdict["verdict"] == "survived" and last:
            verdict["at first"] = "survived"  # that stays when a test written for it finds it

    # The tests that reach a function ----------------------------------------------------------------------------------

    def learn(self, test: str) -> str:
        """Make known what the tests of a file reach, noted once for each text of it; the text's fingerprint."""
        if test not in self.noted:
            file = Path("tests") / f"{test}.py"
            self.noted[test] = text = digest(file)
            path = Path("..") / "reach" / f"{test}.json"
            items = [item for item in self.items.values() if item.path.name == file.name]
            if read(path).get("text") != text:
                self.in_child(lambda: self.note(items, path, text))
            self.reach |= {n: t for n, t in read(path)["tests"].items() if t["passes"]}
        return self.noted[test]

    def note(self, items: list[Any], path: Path, text: str) -> int:
        """Run tests on the library as it is, and note what each of them reaches."""
        from mutmut.mutation.trampoline import set_mutant_under_test
        from mutmut.state import state

        set_mutant_under_test("stats")
        signal.signal(signal.SIGPROF, break_off)
        tests = {}
        for item, following in zip(items, [*items[1:], None]):
            state()._stats.clear()
            start, self.failed = time.process_time(), False
            signal.setitimer(signal.ITIMER_PROF, 2 * SLOWEST)  # such a test is run on no mutant
            self.run(item, following)
            signal.setitimer(signal.ITIMER_PROF, 0)
            seconds = time.process_time() - start
            if self.failed and seconds < SLOWEST:
                print(f"{item.nodeid} fails on the library as it is: {self.why}", flush=True)
            tests[item.nodeid] = {
                "seconds": seconds,
                "passes": not self.failed,
                "reaches": sorted(state()._stats),
            }
        write(path, {"text": text, "tests": tests})
        return SURVIVED

    def ordered(
        self, function: str, tests: Iterable[str], killers: Counter[str], met: set[str], slow: float
    ) -> list[str]:
        """The tests of these files that reach a function: those that have found its mutants, then the quickest.

        Those that the mutant has met are left out.
        """
        files = {f"tests/{test}.py" for test in tests}
        names = [
            name
            for name, test in self.reach.items()
            if function in test["reaches"] and test["seconds"] <= slow and name.partition("::")[0] in files
        ]
        # A test's name may come from the library, and be gone although its file is the same.
        names = [name for name in names if name in self.prints and self.prints[name] not in met]
        names.sort(key=lambda name: (-killers[name], self.reach[name]["seconds"]))
        total = accumulate(self.reach[name]["seconds"] for name in names)
        return [name for name, seconds in zip(names, total) if seconds <= 2 * slow]

    # A mutant ---------------------------------------------------------------------------------------------------------

    def verdict(self, book: Book, mutant: Mutant, before: dict[str, Any], texts: dict[str, str]) -> dict[str, Any]:
        """What the tests of these files say to a mutant."""
        function = mutant.name.partition("__mutmut_")[0]
        killers = book.killers.setdefault(function, Counter())
        found = before | {"against": before["against"] | texts}
        met = set(before.get("met", ()))
        names = self.ordered(function, texts, killers, met, MODULES[book.module].slow)
        if not names:
            return found
        spent = processor_of_children()
        status, by = self.in_child(lambda: self.attempt(mutant.name, names))
        found["seconds"] = round(before["seconds"] + processor_of_children() - spent, 3)
        if status == SURVIVED:
            return found | {"met": sorted(met.union(self.prints[name] for name in names))}
        found.pop("met", None)
        if by is not None:
            if not self.sound(by):
                del self.reach[by]
                return self.verdict(book, mutant, before, texts)
            killers[by] += 1
        endless = os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGPROF, signal.SIGALRM)
        return found | {"verdict": "endless" if endless else "killed", "by": by}

    def sound(self, test: str) -> bool:
        """Whether a test passes alone, without a mutant; asked once."""
        if test not in self.passed:
            self.passed[test] = self.in_child(lambda: self.attempt("", [test]))[0] == SURVIVED
        return self.passed[test]

    def attempt(self, name: str, tests: list[str]) -> int:
        """Run tests on a mutant until one fails."""
        from mutmut.mutation.trampoline import set_mutant_under_test

        set_mutant_under_test(name)
        signal.alarm(ASLEEP)
        for test, following in zip(tests, [*tests[1:], None]):
            self.tell(test)
            signal.setitimer(signal.ITIMER_PROF, PATIENCE + TIMES * self.reach[test]["seconds"])
            self.run(self.items[test], self.items[following] if following else None)
            if self.failed:
                return KILLED
        return SURVIVED

    @staticmethod
    def run(item: Any, following: Any) -> None:
        """One test, by pytest's own protocol."""
        item.ihook.pytest_runtest_protocol(item=item, nextitem=following)

    def in_child(self, work: Any) -> tuple[int, str | None]:
        """Do work in a child; how it ended, and the test that it told of last."""
        ear, mouth = os.pipe()
        if (child := os.fork()) == 0:
            os.close(ear)
            self.tell = lambda test: os.write(mouth, f"{test}\n".encode())
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
            code = FAILED_ALONE
            try:
                code = work()
            finally:
                os._exit(code)
        os.close(mouth)
        with os.fdopen(ear, encoding="utf-8") as lines:
            told = lines.read().split("\n")
        return os.waitpid(child, 0)[1], told[-2] if len(told) > 1 else None


def generate() -> None:
    """Have mutmut write the mutated library into the folder mutants, where its text has changed."""
    import mutmut.__main__ as mutmut
    from mutmut.mutation.trampoline import set_mutant_under_test

    set_mutant_under_test("mutant_generation")
    os.makedirs("mutants", exist_ok=True)
    mutmut.copy_src_dir()
    mutmut.copy_also_copy_files()
    mutmut.setup_source_paths()
    mutmut.create_mutants(1)
    set_mutant_under_test("")


def arguments(line: Iterable[str] | None = None) -> argparse.Namespace:
    """What was asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="+")
    parser.add_argument("--until", type=float, required=True, help="the time to stop")
    parser.add_argument("--most", type=int, default=None, help="mutants of each module to try, a random sample")
    return parser.parse_args(line)


def device_name() -> str:
    """The processor's name, as in the records of runs."""
    import torch

    from geolib.lab.records import device_name as name_of

    return name_of(torch.device("cpu"))


def main() -> int:
    """Make the mutants and try them."""
    given = arguments()
    hypothesis.settings.load_profile("mutants")
    generate()
    os.chdir("mutants")
    importlib.invalidate_caches()
    sys.path.insert(0, str(Path("tests").resolve()))
    chosen = [MODULES[name] for name in given.modules]
    tests = [test for module in chosen for test in (*module.tests, *module.then)]
    files = [f"tests/{test}.py" for test in dict.fromkeys(tests)]
    quiet = ["-q", "--tb=native", "--rootdir=.", "-p", "no:cacheprovider", "-p", "no:randomly", "-s"]
    return int(pytest.main([*quiet, "-m", "not site", "-k", UNCOMPILED, *files], plugins=[Trials(given)]))


if __name__ == "__main__":
    sys.exit(main())
