"""What a chapter's checks found, told under each: runs in the chapters' kernel when the site is made.

IPython hands over each cell as a tree. Its assertions are counted; of `assert a < b` with a small bound a is kept, and
of `allclose` the largest difference. The cell computes what it would compute without this.
"""

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


class Keep(ast.NodeTransformer):
    """Lets each assertion of a cell leave what it found."""

    def __init__(self, lines: list[str]) -> None:
        """The cell's lines hold the comments, which trees do not."""
        self.lines = lines

    def visit_Assert(self, node: ast.Assert) -> list[ast.stmt]:
        """The assertion, and after it the note that it held."""
        test = node.test
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Lt):
            node.test = call("_kept_bound", test.left, test.comparators[0])
        comment = re.search(r"#\s*(.+)", self.lines[(node.end_lineno or node.lineno) - 1])
        clause = re.split(r"#|fmt:", comment[1])[0].strip(" ,;:") if comment else ""
        note = ast.Expr(call("_kept_assertion", ast.Constant(clause)))
        return [ast.copy_location(ast.fix_missing_locations(each), node) for each in (node, note)]


def call(name: str, *arguments: ast.expr) -> ast.expr:
    """A call of a function by its name."""
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def keep_bound(left: Any, right: Any) -> Any:
    """Whether left < right; left is kept where it is a difference that a small bound holds."""
    with contextlib.suppress(TypeError, ValueError, RuntimeError):
        if 0 <= float(left) < float(right) <= 1e-3:
            GAPS.append(float(left))
    return left < right


def wide(numbers: Any) -> np.ndarray:
    """Numbers as complex ones in double precision; NumPy itself has no bfloat16."""
    if isinstance(numbers, torch.Tensor):
        numbers = numbers.detach().cpu().to(torch.complex128).numpy()
    return np.asarray(numbers, dtype=complex)


def watched(agree: Any) -> Any:
    """The comparison of two arrays, which also keeps their largest difference if they agree."""

    def compare(left: Any, right: Any, *more: Any, **options: Any) -> Any:
        answer = agree(left, right, *more, **options)
        if np.all(np.asarray(answer)):
            GAPS.append(float(np.abs(wide(left) - wide(right)).max(initial=0.0)))
        return answer

    return compare


def told() -> str:
    """One sentence on what the cell's assertions found, and one that names the clauses."""
    count = "One assertion" if len(HELD) == 1 else f"{len(HELD)} assertions"
    found = "" if not GAPS else f", largest difference {max(GAPS):.1g}" if max(GAPS) else ", no difference"
    clauses = list(dict.fromkeys(filter(None, HELD)))
    return f"{count} held{found}." + (f" Clauses: {'; '.join(clauses)}." if clauses else "")


def before(info: Any) -> None:
    """Begin anew with each cell."""
    HELD.clear()
    GAPS.clear()
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
    shell.push({"_kept_assertion": HELD.append, "_kept_bound": keep_bound})
    shell.events.register("pre_run_cell", before)
    shell.events.register("post_run_cell", after)
