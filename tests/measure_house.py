"""How large the library is and how much of it one meets: lines, public names, and what one short run enters.

``python tests/measure_house.py [--json FILE]`` counts, for each package, files, lines of code, of docstrings and of
comments, functions and the median length of their bodies, public names, and how many of these a chapter, a page or the
README uses; and of one short run on the digits, the files and functions of the library that it enters.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import statistics
import sys
import tokenize
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DOCUMENTED = (ast.Module, ast.ClassDef, *FUNCTIONS)


def package_of(path: Path) -> str:
    """The package that a file is counted with: the lab, the explorables, or the mathematics."""
    parts = path.relative_to(REPOSITORY / "geolib").parts
    return parts[0] if parts[0] in ("lab", "explorables") else "mathematics"


def lines_of(text: str) -> dict[str, int]:
    """A file's lines: code, docstring, comment, blank."""
    count = len(text.splitlines())
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            docstrings |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    silent = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    code = {n for t in tokens if t.type not in silent for n in range(t.start[0], t.end[0] + 1)} - docstrings
    comments = {t.start[0] for t in tokens if t.type == tokenize.COMMENT} - code
    known = {"code": len(code), "docstring": len(docstrings), "comment": len(comments)}
    return known | {"blank": count - sum(known.values())}


def bodies_of(tree: ast.Module) -> list[int]:
    """The lines of each function's body without its docstring."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            found.append((body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0)
    return found


def public_names(tree: ast.Module) -> list[str]:
    """The functions and classes of a module, and the constants, without an underscore in front."""
    names = []
    for node in tree.body:
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            names.append(node.name)
        elif isinstance(node, ast.Assign):
            names += [target.id for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.append(node.target.id)
    return [name for name in names if not name.startswith("_")]


def words_of_the_book() -> set[str]:
    """Every identifier that a chapter, a page or the README has."""
    folders = (REPOSITORY / "chapters", REPOSITORY / "book")
    paths = [p for folder in folders for kind in ("*.ipynb", "*.md") for p in folder.glob(kind)]
    texts = [path.read_text("utf-8") for path in (*paths, REPOSITORY / "README.md")]
    return set(re.findall(r"[A-Za-z_]\w*", "\n".join(texts)))


def measured() -> dict[str, dict[str, Any]]:
    """The counts, by package."""
    words, packages = words_of_the_book(), dict[str, dict[str, Any]]()
    for path in sorted((REPOSITORY / "geolib").rglob("*.py")):
        text = path.read_text("utf-8")
        tree, names = ast.parse(text), public_names(ast.parse(text))
        package = packages.setdefault(package_of(path), {"files": 0, "bodies": [], "names": 0, "used": 0})
        for key, value in lines_of(text).items():
            package[key] = package.get(key, 0) + value
        package["files"] += 1
        package["bodies"] += bodies_of(tree)
        package["names"] += len(names)
        package["used"] += len(set(names) & words)
    for package in packages.values():
        bodies = package.pop("bodies")
        package |= {"functions": len(bodies), "median body": statistics.median(bodies)}
    return packages


def entered() -> dict[str, dict[str, int]]:
    """The files and functions of each package that one run of two epochs on the digits enters."""
    sys.path.insert(0, str(REPOSITORY))
    from geolib.lab import Config, run

    found: set[tuple[str, str, int]] = set()

    def note(frame: Any, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(REPOSITORY / "geolib")):
            found.add((code.co_filename, code.co_name, code.co_firstlineno))

    config = Config("digits", "rope-axial", width=16, heads=2, layers=1, epochs=2, train_size=64, test_size=32)
    sys.setprofile(note)
    try:
        run(config, device="cpu", quiet=True)
    finally:
        sys.setprofile(None)
    counts: dict[str, dict[str, int]] = {}
    for package in {package_of(Path(file)) for file, _, _ in found}:
        own = [(file, name, line) for file, name, line in found if package_of(Path(file)) == package]
        files = len({file for file, _, _ in own})
        counts[package] = {"files entered": files, "functions entered": sum(name[0] != "<" for _, name, _ in own)}
    return counts


def main() -> None:
    """Print the counts, and write them where a file is named."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args()
    packages, run = measured(), entered()
    for name, package in packages.items():
        package |= run.get(name, {"files entered": 0, "functions entered": 0})
        print(name, package)
    if given.json is not None:
        given.json.write_text(json.dumps(packages, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
