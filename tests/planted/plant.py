"""Plant an error for each numbered statement of a chapter and see a check of that statement fail.

``python tests/planted/plant.py [CHAPTER ...]`` reads ``tests/planted/CHAPTER.yml`` (all chapters with one when none is
named) and writes what it found to ``tests/planted/CHAPTER.json``; it exits 1 when an error goes unseen. A list holds
one entry for each planted error::

    - statement: prop-mirrors       # the label of a theorem, proposition, lemma or corollary
      breaks: rule 3                # what is wrong with the error in place, in words
      module: geolib/rotations.py   # where it is planted; or ``cell: the-id`` where the library has no part in a check
      old: cos, sin = (2 * angle).cos(), (2 * angle).sin()    # occurs once
      new: cos, sin = angle.cos(), angle.sin()

A statement's checks are the cells tagged ``check`` between the text cell that holds the statement and the next text
cell that holds another statement or a heading. Only the set-up, the cells whose names these checks use, and the checks
themselves are executed, in a copy of the library; earlier cells lose their assertions, so that what fails is a check of
this statement. Without an error all of them must pass.

``python tests/planted/plant.py library`` plants the errors of ``library.yml``, one at a time, and runs tests until one
fails. Its entries have a ``room`` in place of a statement, ``breaks`` says what a user would meet, ``tests`` are the
files that should notice, in order, and ``only``, where it is there, chooses among their tests as pytest's ``-k``. The
record keeps for each error the test that found it at ``first``, None for none, and the one that finds it ``now``; what
has been found is not tried again until its entry changes or that test is gone, so that a run may be broken off. With
``--again`` all are tried, each first against the test that found it: for when code around the errors has changed.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import json
import multiprocessing
import os
import re
import shutil
import signal
import symtable
import sys
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
STATEMENT = re.compile(r"(?m)^:{3,}\{prf:(?:theorem|proposition|lemma|corollary)\}[^\n]*\n:label: ([\w-]+)")
HEADING = re.compile(r"(?m)^#{1,4} ")


# Reading a chapter --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """A code cell: its id, its Python, and the labels of the statements that it checks."""

    name: str
    text: str
    checks: tuple[str, ...]

    @property
    def stores(self) -> set[str]:
        """The global names that it binds."""
        return {s.get_name() for s in self._table.get_symbols() if s.is_assigned() or s.is_imported()}

    @property
    def loads(self) -> set[str]:
        """The global names that it, or a function in it, reads."""
        tables, names = [self._table], set()
        while tables:
            table = tables.pop()
            tables += table.get_children()
            top = table is self._table
            names |= {s.get_name() for s in table.get_symbols() if s.is_referenced() and (top or s.is_global())}
        return names

    @property
    def _table(self) -> symtable.SymbolTable:
        return symtable.symtable(self.text, self.name, "exec")


def chapter_path(chapter: str) -> Path:
    """The notebook of a chapter, or of a page beside them."""
    folder = "chapters" if chapter[:2].isdigit() else "book"
    return REPOSITORY / folder / f"{chapter}.ipynb"


def statements(notebook: dict[str, Any]) -> list[str]:
    """The labels of a chapter's numbered statements, definitions left out."""
    texts = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "markdown"]
    return [label for text in texts for label in STATEMENT.findall(text)]


def code_cells(notebook: dict[str, Any]) -> list[Cell]:
    """The code cells of a notebook in order, magics left out."""
    cells, current = [], ()
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "code":
            python = re.sub(r"(?m)^(\s*)[%!].*$", r"\1pass", text)
            tagged = "check" in cell["metadata"].get("tags", [])
            cells.append(Cell(cell["id"], python, current if tagged else ()))
        elif found := STATEMENT.findall(text):
            current = tuple(found)
        elif HEADING.search(text):
            current = ()
    return cells


def needed(cells: list[Cell], label: str) -> list[Cell]:
    """The checks of a statement, every earlier cell that binds a name they use, and the first two cells."""
    keep = {i for i, cell in enumerate(cells) if label in cell.checks}
    if not keep:
        raise ValueError(f"{label}: no cell tagged check follows this statement")
    last, open_ = max(keep), sorted(keep)
    while open_:
        at = open_.pop()
        uses = cells[at].loads
        makers = {i for i in range(last) if i not in keep and cells[i].stores & uses}
        keep |= makers
        open_ += makers
    return [cells[i] for i in sorted(keep | {0, 1})]


# Running with an error in place -------------------------------------------------------------------------------------


def without_assertions(text: str) -> ast.Module:
    """The cell, its assertions replaced by nothing."""

    class Drop(ast.NodeTransformer):
        def visit_Assert(self, node: ast.Assert) -> ast.Pass:
            return ast.Pass()

    return ast.fix_missing_locations(Drop().visit(ast.parse(text)))


def execute(cells: list[Cell], label: str) -> dict[str, str] | None:
    """Run cells in one namespace: None when all of them pass, else the cell, its line and the error that stopped it."""
    space: dict[str, Any] = {"__name__": "__main__"}
    for cell in cells:
        checks = label in cell.checks
        try:
            program = ast.parse(cell.text) if checks else without_assertions(cell.text)
            exec(compile(program, cell.name, "exec"), space)
        except Exception as error:
            frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == cell.name]
            line = cell.text.splitlines()[frames[-1].lineno - 1].strip() if frames else ""
            caught = {"cell": cell.name, "line": line, "error": type(error).__name__}
            return caught if checks else caught | {"too early": "yes"}
    return None


def replaced(text: str, old: str, new: str, where: str) -> str:
    """The text with the one occurrence of old replaced; ValueError when there is none or more than one."""
    count = text.count(old)
    if count != 1 or old == new:
        raise ValueError(
            f"{where}: {old!r} occurs {count} times and is to become {new!r}; it must occur once and change"
        )
    return text.replace(old, new)


def planted(cells: list[Cell], plant: dict[str, str]) -> list[Cell]:
    """The cells, with an error that is planted in one of them."""
    if "cell" not in plant:
        return cells
    if plant["cell"] not in {cell.name for cell in cells}:
        raise ValueError(f"{plant['statement']}: there is no cell {plant['cell']!r}")
    return [
        Cell(c.name, replaced(c.text, plant["old"], plant["new"], c.name), c.checks) if c.name == plant["cell"] else c
        for c in cells
    ]


def break_library(copy: Path, plant: dict[str, str]) -> None:
    """Plant an error in a copy of the library."""
    if "module" in plant:
        path = copy / plant["module"]
        path.write_text(replaced(path.read_text("utf-8"), plant["old"], plant["new"], plant["module"]), "utf-8")


def in_copy(cells: list[Cell], label: str, plant: dict[str, str] | None) -> dict[str, str] | None:
    """What ``execute`` finds in a process of its own, which imports a copy of the library with the error in it."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / "geolib", copy / "geolib", ignore=ignored)
        (copy / "geolib" / "lab" / "results").symlink_to(REPOSITORY / "book" / "results")
        if plant:
            break_library(copy, plant)
            cells = planted(cells, plant)
        fork = multiprocessing.get_context("fork")  # torch is imported once, in the parent
        mine, theirs = fork.Pipe()
        child = fork.Process(target=_child, args=(theirs, copy, needed(cells, label), label))
        child.start()
        theirs.close()
        try:
            return mine.recv()
        except EOFError:
            raise RuntimeError(f"{label}: the process that ran its cells died") from None
        finally:
            child.join()


def _child(pipe: Any, copy: Path, cells: list[Cell], label: str) -> None:
    import torch

    torch.set_num_threads(1)
    for name in [name for name in sys.modules if name.split(".")[0] == "geolib"]:
        del sys.modules[name]  # the parent may have imported the library itself
    sys.path.insert(0, str(copy))
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        pipe.send(execute(cells, label))


def run(chapter: str) -> Iterator[dict[str, Any]]:
    """Each planted error of a chapter with what caught it; ``caught`` is None where nothing did."""
    cells = code_cells(json.loads(chapter_path(chapter).read_text("utf-8")))
    plants = read_list(chapter)
    for label in dict.fromkeys(plant["statement"] for plant in plants):
        if found := in_copy(cells, label, None):
            raise RuntimeError(f"{chapter}, {label}: fails without any planted error: {found}")
        for plant in [plant for plant in plants if plant["statement"] == label]:
            caught = in_copy(cells, label, plant)
            if caught and "too early" in caught:
                raise RuntimeError(f"{chapter}, {label}, {plant['breaks']}: stopped before its own check: {caught}")
            yield plant | {"caught": caught}


# The library and its own tests --------------------------------------------------------------------------------------

LIBRARY = "library"
LINKED = ("book", "chapters", "README.md", "pyproject.toml", "_config.yml", "_toc.yml", "Makefile")
PATIENCE = 240  # seconds of the clock: a test that goes on for longer has noticed something


@contextlib.contextmanager
def working_copy() -> Iterator[Path]:
    """A copy of the library and of its tests; the rest of the checkout is linked."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in ("geolib", "tests"):
            shutil.copytree(REPOSITORY / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in LINKED:
            (copy / name).symlink_to(REPOSITORY / name)
        yield copy


def first_failure(copy: Path, tests: list[str], only: str = "") -> str | None:
    """The first that fails of these tests, paths or names in the copy, in a process of its own; None if all pass."""
    fork = multiprocessing.get_context("fork")  # torch is imported once, in the parent
    mine, theirs = fork.Pipe()
    child = fork.Process(target=_tests, args=(theirs, copy, tests, only))
    child.start()
    theirs.close()
    try:
        return mine.recv() if mine.poll(PATIENCE) else "no end"
    except EOFError:
        return "the process died"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid or 0, signal.SIGKILL)  # with the programs that its tests have started
        child.join()


class FirstFailure:
    """Keeps the name of the first test that fails."""

    name: str | None = None

    def pytest_runtest_logreport(self, report: Any) -> None:
        """A test, or its preparation."""
        self.name = self.name or (report.nodeid if report.failed else None)

    pytest_collectreport = pytest_runtest_logreport  # a file that cannot be imported


def _tests(pipe: Any, copy: Path, tests: list[str], only: str) -> None:
    import hypothesis
    import pytest
    import torch

    os.setsid()
    torch.set_num_threads(1)
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)  # the first example that fails is enough
    hypothesis.settings.register_profile("planted", phases=phases, derandomize=True, database=None, deadline=None)
    hypothesis.settings.load_profile("planted")
    os.chdir(copy)
    sys.path[:0] = [str(copy), str(copy / "tests")]
    found = FirstFailure()
    quiet = ["-x", "-q", "--tb=no", "-p", "no:cacheprovider", "-p", "no:randomly", "-m", "not site", "-k", only]
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        code = pytest.main([*quiet, *tests], plugins=[found])
    told = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)  # none sees nothing
    pipe.send(found.name if code in told else found.name or str(code))


def noticed(copy: Path, plant: dict[str, Any], before: str | None = None) -> str | None:
    """The test that notices an error planted in the copy, None where none does; the one that did before comes first."""
    path = copy / plant["module"]
    text = path.read_text("utf-8")
    path.write_text(replaced(text, plant["old"], plant["new"], plant["module"]), "utf-8")
    try:
        if before and "::" in (found := first_failure(copy, [before]) or ""):  # it may be gone
            return found
        return first_failure(copy, [f"tests/{test}.py" for test in plant["tests"]], plant.get("only", ""))
    finally:
        path.write_text(text, "utf-8")


def run_library(again: bool = False) -> int:
    """Plant those of the library's errors that no test is known to notice, or all; 1 where one goes unseen."""
    path = HERE / f"{LIBRARY}.json"
    known = {told(each): each for each in json.loads(path.read_text("utf-8"))} if path.exists() else {}
    plants = read_list(LIBRARY)
    with working_copy() as copy:
        for plant in plants:
            before = known.get(told(plant), {})
            if again or not stands(before.get("now")):
                caught = noticed(copy, plant, before.get("now"))
                print(f"{plant['room']}, {plant['breaks']}:", caught or "NOT SEEN", flush=True)
                known[told(plant)] = {"first": before.get("first", caught), "now": caught}
            found = [each | _found(known[told(each)]) for each in plants if told(each) in known]
            path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")
        names = dict.fromkeys(each["now"] for each in found if "::" in (each["now"] or ""))
        if wrong := first_failure(copy, list(names)):
            raise RuntimeError(f"{wrong} fails without any planted error")
    return int(any(not each["now"] for each in found))


def stands(test: str | None) -> bool:
    """Whether a test is still there; what found an error by never ending has no name, and stands."""
    path, _, name = (test or "").partition("::")
    text = (REPOSITORY / path).read_text("utf-8") if name else ""
    return f"def {name.partition('[')[0]}(" in text if name else bool(test)


def told(plant: dict[str, Any]) -> tuple[str, str, str]:
    """What makes an error another one."""
    return plant["module"], plant["old"], plant["new"]


def _found(known: dict[str, Any]) -> dict[str, Any]:
    return {key: known[key] for key in ("first", "now")}


def read_list(chapter: str) -> list[dict[str, Any]]:
    """The planted errors of a chapter, or of the library."""
    return yaml.safe_load((HERE / f"{chapter}.yml").read_text("utf-8"))


def main(chapters: list[str]) -> int:
    """Run the chapters named, or all that have a list, and write their records."""
    import matplotlib

    matplotlib.use("Agg")
    for name in ("torch", "matplotlib.pyplot", "scipy.linalg"):  # once, before the processes part
        importlib.import_module(name)
    if chapters[:1] == [LIBRARY]:
        return run_library(again=chapters[1:] == ["--again"])

    unseen = 0
    for chapter in chapters or sorted(path.stem for path in HERE.glob("*.yml") if path.stem != LIBRARY):
        found = []
        for each in run(chapter):
            caught = each["caught"]
            print(f"{chapter} {each['statement']}, {each['breaks']}:", caught or "NOT SEEN", flush=True)
            found.append(each)
        (HERE / f"{chapter}.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")
        unseen += sum(not each["caught"] for each in found)
    return 1 if unseen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
