"""Every check of an argument in the library has refused something while the tests ran.

``make units`` sets $GEOLIB_REFUSALS to a folder; the workers' tests then note there where a check said no, and
``python tests/refusals.py FOLDER`` compares that with all the checks that the library's source holds. A check that no
test has seen refuse is printed with its line, and the exit status is 1.

``watch`` has every check, also one that holds, say whose argument it looks at, what came and what would be allowed.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from pathlib import Path
from types import FrameType, FunctionType

REPOSITORY = Path(__file__).resolve().parents[1]
CHECKS = REPOSITORY / "geolib" / "_checks.py"
ASIDE = ("lab", "explorables", "check", "figures.py")  # these have errors of their own kinds

# Guards of searches that have not failed for any input we know, by file and function.
EXCUSED = {
    ("geolib/manifolds/_solver.py", "flat_rate"): "a solver that takes thousands of steps without stopping by itself",
    ("geolib/manifolds/geodesics.py", "logarithm"): "a polygon that gets shorter for ever",
}


def record(folder: Path) -> None:
    """From now on write down every place of the library from which ``require`` refuses."""
    from geolib import _checks

    folder.mkdir(parents=True, exist_ok=True)
    out, seen = folder / f"{os.getpid()}.txt", set()

    def note() -> None:
        frame = sys._getframe(2)
        while frame.f_code.co_filename == __file__:  # where they are watched, too
            frame = frame.f_back
        while frame and Path(frame.f_code.co_filename).is_relative_to(REPOSITORY / "geolib"):
            where = f"{Path(frame.f_code.co_filename).relative_to(REPOSITORY)}:{frame.f_lineno}"
            if where not in seen:
                seen.add(where)
                with out.open("a") as file:
                    file.write(where + "\n")
            frame = frame.f_back

    def require(holds, argument, came, allowed):
        if not holds:
            _refused()  # noqa: F821  put beside it below
            _plain(holds, argument, came, allowed)  # noqa: F821

    plain = _checks.require
    _checks.__dict__.update(_refused=note, _plain=FunctionType(plain.__code__, plain.__globals__))
    plain.__code__ = require.__code__  # other modules hold this very function


def names() -> set[str]:
    """Every parameter and every field of the library."""
    found = set()
    for path in (REPOSITORY / "geolib").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.arg):
                found.add(node.arg)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found.add(node.target.id)
    return found


def is_aside(frame: FrameType) -> bool:
    """Whether the check that was called from there is one outside the mathematics."""
    while frame.f_back and frame.f_code.co_filename == str(CHECKS):
        frame = frame.f_back
    return any(f"geolib/{aside}" in frame.f_code.co_filename for aside in ASIDE)


def watch() -> None:
    """From now on a check fails that names no argument, or does not say what came and what is allowed.

    Whether it holds or not.
    """
    from torch.compiler import is_compiling

    from geolib import _checks

    plain, known, seen = _checks.require, names(), set()

    def require(holds, argument, came, allowed):
        if not is_compiling() and (argument, type(came), type(allowed)) not in seen and not is_aside(sys._getframe(1)):
            came, allowed = (said() if callable(said) else said for said in (came, allowed))
            assert isinstance(allowed, str), f"{argument}: {allowed} does not say what is allowed"
            named = set(re.findall(r"[^\W\d]\w*", str(argument))) & known
            assert named, f"{argument}: the library has no such argument"
            assert came is not None, f"{argument}: it does not say what came"
            seen.add((argument, type(came), type(allowed)))
        return plain(holds, argument, came, allowed)

    _checks.require = require  # before any other module takes it


def checks() -> dict[str, range]:
    """Every call of ``require`` or of a ``check_`` function in the library, and the lines that it spans."""
    found: dict[str, range] = {}
    for path in sorted((REPOSITORY / "geolib").rglob("*.py")):
        inside = path.relative_to(REPOSITORY / "geolib")
        if inside.parts[0] in ASIDE:
            continue
        tree = ast.parse(path.read_text("utf-8"))
        excused = {
            inner
            for outer in ast.walk(tree)
            if isinstance(outer, ast.FunctionDef) and (path.relative_to(REPOSITORY).as_posix(), outer.name) in EXCUSED
            for inner in ast.walk(outer)
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or node in excused:
                continue
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            if name == "require" or name.startswith(("check_", "as_floating")):
                found[f"geolib/{inside.as_posix()}:{node.lineno}"] = range(node.lineno, node.end_lineno + 1)
    return found


def silent(folder: Path) -> list[str]:
    """The checks that have refused nothing."""
    seen = {line for file in folder.glob("*.txt") for line in file.read_text().split()}
    found = checks()
    return [
        where
        for where, lines in found.items()
        if not any(f"{where.rsplit(':', 1)[0]}:{line}" in seen for line in lines)
    ]


def main(folder: Path) -> int:
    """Print the checks that have refused nothing."""
    left = silent(folder)
    for where in left:
        path, line = where.rsplit(":", 1)
        print(
            f"{where} has refused nothing: {(REPOSITORY / path).read_text('utf-8').splitlines()[int(line) - 1].strip()}"
        )
    return int(bool(left))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
