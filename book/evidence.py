"""What a chapter's checks found, told under each: runs in the chapters' kernel when the site is made.

IPython hands over each cell as a tree. Its assertions are counted; of `assert a < b` both sides are kept, and of
`allclose` the largest difference. The cell computes what it would compute without this.
"""

from __future__ import annotations

import ast
import contextlib
import html
import re
from typing import Any

import numpy as np
import torch
from IPython import get_ipython

HELD: list[str] = []  # the comments of the assertions that held in this cell
GAPS: list[float] = []  # the differences where both sides should agree
BOUNDS: list[tuple[float, str, float]] = []  # the sides of inequalities between numbers


class Keep(ast.NodeTransformer):
    """Lets each assertion of a cell leave what it found."""

    def __init__(self, lines: list[str]) -> None:
        """The cell's lines hold the comments, which trees do not."""
        self.lines = lines

    def visit_Assert(self, node: ast.Assert) -> list[ast.stmt]:
        """The assertion, and after it the note that it held."""
        test = node.test
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Lt, ast.Gt)):
            sign = "<" if isinstance(test.ops[0], ast.Lt) else ">"
            node.test = self.call("_kept_bound", test.left, ast.Constant(sign), test.comparators[0])
        comment = re.search(r"#\s*(.+)", self.lines[(node.end_lineno or node.lineno) - 1])
        clause = re.split(r"#|fmt:", comment[1])[0].strip(" ,;:") if comment else ""
        note = ast.Expr(self.call("_kept_assertion", ast.Constant(clause)))
        return [ast.copy_location(ast.fix_missing_locations(each), node) for each in (node, note)]

    def call(self, name: str, *arguments: ast.expr) -> ast.expr:
        """A call of one of the functions below."""
        return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def keep_assertion(comment: str) -> None:
    """Count an assertion that held."""
    HELD.append(comment)


def keep_bound(left: Any, sign: str, right: Any) -> Any:
    """Whether the inequality holds; its sides are kept where they are numbers."""
    with contextlib.suppress(TypeError, ValueError, RuntimeError):
        BOUNDS.append((float(left), sign, float(right)))
    return left < right if sign == "<" else left > right


def wide(numbers: Any) -> np.ndarray:
    """Numbers as complex ones in double precision; NumPy itself has no bfloat16."""
    if isinstance(numbers, torch.Tensor):
        numbers = numbers.detach().cpu().to(torch.complex128).numpy()
    return np.asarray(numbers, dtype=complex)


def watched(agree: Any) -> Any:
    """The comparison of two arrays, which also keeps their largest difference if they agree."""

    def compare(left: Any, right: Any, *more: Any, **options: Any) -> Any:
        """Compare as ever."""
        answer = agree(left, right, *more, **options)
        if np.all(np.asarray(answer)):
            gap = np.abs(wide(left) - wide(right))
            GAPS.append(float(gap.max()) if gap.size else 0.0)
        return answer

    return compare


def told() -> str:
    """One sentence on what the cell's assertions found, and one that names the clauses."""
    count = "One assertion" if len(HELD) == 1 else f"{len(HELD)} assertions"
    small = [left for left, sign, right in BOUNDS if sign == "<" and left >= 0 and right <= 1e-3]
    gaps = GAPS + small
    found = "" if not gaps else f", largest difference {max(gaps):.1g}" if max(gaps) else ", no difference"
    clauses = list(dict.fromkeys(filter(None, HELD)))
    return f"{count} held{found}." + (f" Clauses: {'; '.join(clauses)}." if clauses else "")


def before(info: Any) -> None:
    """Begin anew with each cell."""
    for kept in (HELD, GAPS, BOUNDS):
        kept.clear()
    shell.ast_transformers[:] = [each for each in shell.ast_transformers if not isinstance(each, Keep)]
    if re.search(r"(?m)^\s*assert ", info.raw_cell):
        shell.ast_transformers.append(Keep(info.raw_cell.splitlines()))


def after(result: Any) -> None:
    """Tell what was found, as the last output of the cell."""
    if HELD and result.success:
        shell.display_pub.publish({"text/html": f'<p class="evidence">{html.escape(told())}</p>', "text/plain": told()})


shell = get_ipython()
if shell is not None:
    torch.allclose, torch.isclose = watched(torch.allclose), watched(torch.isclose)
    np.allclose, np.isclose = watched(np.allclose), watched(np.isclose)
    shell.push({"_kept_assertion": keep_assertion, "_kept_bound": keep_bound})
    shell.events.register("pre_run_cell", before)
    shell.events.register("post_run_cell", after)
