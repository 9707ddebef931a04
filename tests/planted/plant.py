"""Plant an error for each numbered statement and each finding of a chapter, and see a check of it fail.

``seen`` plants the errors of ``errors.py`` for a chapter and says what each check made of it.

A statement's checks are the cells tagged ``check`` between the text cell that holds it and the next text cell with
another statement or a heading; a finding names its check itself. Only the set-up, the cells that bind what the checks
read, and the checks are run, in this process, and the cells before the checks lose their assertions: what fails is a
check of this very statement. Without the error all of them must pass.
"""

import ast
import contextlib
import inspect
import json
import os
import pkgutil
import re
import symtable
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

REPOSITORY = Path(__file__).resolve().parent.parent.parent
STATEMENT = re.compile(r"(?m)^:{3,}\{prf:(?:theorem|proposition|lemma|corollary)\}[^\n]*\n:label: ([\w-]+)")
HEADING = re.compile(r"(?m)^#{1,4} ")
SETUP = 2  # the first cells of a chapter: what it installs and what it imports

Notebook = dict[str, Any]
Wrong = Callable[[Any], Any]  # makes of what is right what is wrong


# Reading a chapter --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """A code cell: its id, its Python, and the labels of what it checks: statements, and itself where it is a check."""

    name: str
    text: str
    checks: tuple[str, ...]


def chapter_path(chapter: str) -> Path:
    """The notebook of a chapter, or of a page beside them."""
    return REPOSITORY / ("chapters" if chapter[:2].isdigit() else "book") / f"{chapter}.ipynb"


def read(chapter: str) -> Notebook:
    """The notebook of a chapter."""
    return json.loads(chapter_path(chapter).read_text("utf-8"))


def statements(notebook: Notebook) -> list[str]:
    """The labels of a chapter's numbered statements, definitions left out."""
    texts = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "markdown"]
    return [label for text in texts for label in STATEMENT.findall(text)]


def code_cells(notebook: Notebook) -> list[Cell]:
    """The code cells of a notebook in order, magics left out."""
    cells, current = [], ()
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "code":
            python = re.sub(r"(?m)^(\s*)[%!].*$", r"\1pass", text)
            tagged = "check" in cell["metadata"].get("tags", [])
            cells.append(Cell(cell["id"], python, (*current, cell["id"]) if tagged else ()))
        elif found := STATEMENT.findall(text):
            current = tuple(found)
        elif HEADING.search(text):
            current = ()
    return cells


def names(tree: ast.AST) -> tuple[set[str], set[str]]:
    """The global names that a statement binds, and those that it, or a function in it, reads."""
    top = symtable.symtable(ast.unparse(tree), "", "exec")
    tables, read = [top], set()
    while tables:
        table = tables.pop()
        tables += table.get_children()
        read |= {s.get_name() for s in table.get_symbols() if s.is_referenced() and (table is top or s.is_global())}
    added = [each.target for each in ast.walk(tree) if isinstance(each, ast.AugAssign)]
    read |= {each.id for each in added if isinstance(each, ast.Name)}
    binds = {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported()}
    first = {name: isinstance(ctx, ast.Load) for name, ctx in reversed([*in_turn(tree)])}
    return binds, {name for name in read if name not in binds or first.get(name, True)}


def in_turn(tree: ast.AST) -> Iterator[tuple[str, ast.expr_context]]:
    """The names of a statement in the order in which they are read and bound."""
    if isinstance(tree, ast.Name):
        yield tree.id, tree.ctx
    elif isinstance(tree, ast.AugAssign) and isinstance(tree.target, ast.Name):
        yield tree.target.id, ast.Load()
    late = [name for name in ("target", "targets") if hasattr(tree, name)]
    for field in [name for name in tree._fields if name not in (*late, "body", "orelse")] + late + ["body", "orelse"]:
        inner = getattr(tree, field, [])
        for each in inner if isinstance(inner, list) else [inner]:
            if isinstance(each, ast.AST):
                yield from in_turn(each)


def changes(tree: ast.AST, name: str) -> bool:
    """Whether a statement writes into what a name holds, or calls a method of it for no other end."""
    if isinstance(tree, ast.FunctionDef | ast.ClassDef):
        return False
    written = [
        x for x in ast.walk(tree) if isinstance(getattr(x, "ctx", None), ast.Store) and not isinstance(x, ast.Name)
    ]
    calls = [x.value.func for x in ast.walk(tree) if isinstance(x, ast.Expr) and isinstance(x.value, ast.Call)]
    written += [x for x in calls if isinstance(x, ast.Attribute)]  # a method; to call a function changes no function
    return any(isinstance(x, ast.Name) and x.id == name for each in written for x in ast.walk(each))


Line = tuple[int, int, ast.stmt]  # the place of a cell and of a statement in it


def needed(cells: list[Cell], labels: set[str]) -> list[tuple[Cell, list[ast.stmt]]]:
    """The set-up, the checks of labels, and of cells before them what binds, and fills, the names that these read."""
    asked = [i for i, cell in enumerate(cells) if labels & {*cell.checks}]
    if missing := labels - {label for i in asked for label in cells[i].checks}:
        raise ValueError(f"{sorted(missing)}: no such cell tagged check, nor one that follows such a statement")
    lines = [(i, j, line) for i, cell in enumerate(cells) for j, line in enumerate(ast.parse(cell.text).body)]
    binds, reads = ({at[:2]: names(at[2])[which] for at in lines} for which in (0, 1))
    open_ = [at for at in lines if at[0] in asked or at[0] < SETUP]
    keep = {at[:2] for at in open_}
    while open_:
        here = open_.pop()[:2]
        for name in reads[here]:
            makers = [at for at in lines if at[:2] < here and name in binds[at[:2]]][-1:]
            fillers = [at for at in lines if makers and makers[0][:2] < at[:2] < here]
            late = [at for at in lines if at[:2] > here and at[0] == here[0] and name in binds[at[:2]]]  # a function's
            more = [*makers, *(at for at in fillers if changes(at[2], name)), *late]
            open_ += [at for at in more if at[:2] not in keep]
            keep |= {at[:2] for at in more}
    kept = [(cell, [line for k, j, line in lines if k == i and (i, j) in keep]) for i, cell in enumerate(cells)]
    return [(cell, body) for cell, body in kept if body]


# Running with an error in place -------------------------------------------------------------------------------------


def run(cell: Cell, body: list[ast.stmt], space: dict[str, Any], name: str | None, checking: bool) -> None:
    """Run statements of a cell, with assertions or without; where one binds the name, what is wrong is bound."""
    wrong = ast.parse(f"{name} = __wrong__({name})").body if name else []
    tree = ast.Module([x for line in body for x in ([line, *wrong] if name in names(line)[0] else [line])], [])
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        exec(compile(tree, cell.name, "exec", optimize=0 if checking else 1), space)  # 1 leaves assertions out


def failures(cells: list[Cell], labels: set[str], name: str | None = None, wrong: Wrong = print) -> dict[str, str]:
    """The first cell to fail of each label, in one namespace; another error than an assertion's passes through."""
    import matplotlib.pyplot as plt
    import torch

    space: dict[str, Any] = {"__name__": "__main__", "__wrong__": wrong}
    found: dict[str, str] = {}
    with plt.rc_context(), torch.random.fork_rng(devices=[]):
        for cell, body in needed(cells, labels):
            checked = labels & {*cell.checks} - found.keys()
            try:
                run(cell, body, space, name, bool(checked))
            except AssertionError:
                found |= dict.fromkeys(checked, cell.name)
                if found.keys() == labels:
                    break
                run(cell, body, space, name, False)  # for what it binds
            finally:
                plt.close("all")
    return found


@contextlib.contextmanager
def broken(path: str, wrong: Wrong) -> Iterator[None]:
    """The library with what is wrong for a function, wherever its modules hold it, or for a method or property."""
    module, _, name = path.rpartition(".")
    owner: Any = pkgutil.resolve_name(module)
    right = inspect.getattr_static(owner, name)
    new = property(wrong(right.fget)) if isinstance(right, property) else wrong(right)
    if inspect.isclass(owner):
        with mock.patch.object(owner, name, new):
            yield
        return
    put(new, right)
    try:
        yield
    finally:
        put(right, new)  # also where a module was imported meanwhile


def put(new: Any, old: Any) -> None:
    """One function for another, wherever the library's modules hold it; the library's caches are emptied."""
    modules = [module for name, module in sys.modules.items() if name.partition(".")[0] == "geolib"]
    for module, at, held in [(each, *item) for each in modules for item in vars(each).items()]:
        for each in (held, new):
            getattr(each, "cache_clear", lambda: None)()
        if held is old:
            setattr(module, at, new)


def caught(cells: list[Cell], labels: set[str], path: str, wrong: Wrong) -> dict[str, str]:
    """The first cell of each label that sees an error; the path is the library's, or a name that a cell binds."""
    if path.startswith("geolib."):
        with broken(path, wrong):
            return failures(cells, labels)
    if not any(path in names(line)[0] for _, body in needed(cells, labels) for line in body):
        raise ValueError(f"{sorted(labels)}: no cell that their checks need binds {path!r}")
    return failures(cells, labels, path, wrong)


def seen(chapter: str) -> list[tuple[str, str, str | None]]:
    """Each statement and finding of a chapter, the function that is wrong, and the check that sees it, or None."""
    from errors import FINDINGS, STATEMENTS

    cells, told = code_cells(read(chapter)), []
    plants = [({label}, *rest) for label, rest in STATEMENTS[chapter].items()]
    plants += [({*checks.split()}, path, wrong) for path, wrong, checks in FINDINGS.get(chapter, [])]
    for labels, path, wrong, *at in plants:
        found = caught(cells, {*at} or labels, path, wrong)
        told += [(label, path, found.get(at[0] if at else label)) for label in labels]
    if flawed := failures(cells, {cell for *_, cell in told if cell}):
        raise RuntimeError(f"{chapter}, {sorted(flawed)}: fails without any planted error")
    return told
