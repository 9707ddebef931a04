"""``symbols``, a chapter's letters: those of the notation page by name, with its words; the chapter's own in a table.

::

    :::{symbols} $q$; $k$; $\\theta_j$
    | symbol | meaning |
    |---|---|
    | $\\chi$ | training context, in tokens |
    :::

So a meaning has one home: the notation page, or the chapter whose letter it is. A letter of the page has a row in the
chapter where it needs other words there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from docutils import nodes
from ledger import FromData
from sphinx.application import Sphinx

BOX = """\
:::{{admonition}} Symbols of this chapter
:class: symbols dropdown
| symbol | meaning |
|---|---|
{}

All letters: {{doc}}`/book/notation`.
:::"""


def rows_of(text: str) -> Iterator[tuple[str, str]]:
    """(symbol, meaning) for each symbol in a text's tables of symbols; ValueError for a row that hides one."""
    for table in re.findall(r"(?m)^\| *symbol *\| *meaning *\|.*\n((?:\|.*\n?)*)", text):
        for line in [line for line in table.splitlines() if not re.fullmatch(r"[|\-: ]+", line)]:
            symbols, meanings = (cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:3])
            # Semicolons outside formulas are between meanings.
            each = [part.strip() for part in re.findall(r"(?:\$[^$]*\$|[^;$])+", meanings)]
            if len(symbols.split(";")) != len(each):
                raise ValueError(f"as many meanings as symbols, with semicolons between: {line}")
            yield from zip(map(bare, symbols.split(";")), each)


def bare(symbol: str) -> str:
    """A symbol without dollars and spaces: one alone, in its own dollars."""
    found = re.fullmatch(r"\$([^$]+)\$", symbol.strip())
    if not found or re.search(r",|\\[;,]", re.sub(r"[_^]\{[^}]*\}|\([^)]*\)", "", found[1])):
        raise ValueError(f"one symbol in dollars, with semicolons between several: {symbol.strip()}")
    return re.sub(r"\s", "", found[1])


def names_of(said: str) -> list[str]:
    """The letters that a chapter names, as it writes them."""
    return [each.strip() for each in said.split(";") if each.strip()]


class Symbols(FromData):
    """``symbols``: the letters of the notation page by name; in the body a table of the chapter's own."""

    optional_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """The folded table; a letter that the page does not have is told."""
        path = Path(self.env.srcdir) / "book" / "notation.md"
        self.env.note_dependency(str(path))
        page, rows = dict(rows_of(path.read_text("utf-8"))), []
        for name in names_of(" ".join(self.arguments)):
            if bare(name) not in page:
                raise self.error(f"symbols: {name} is not on the notation page; give it a row below")
            rows.append(f"| {name} | {page[bare(name)]} |")
        return self.block(BOX.format("\n".join([*rows, *(line for line in self.content if line.startswith("| $"))])))


def setup(app: Sphinx) -> dict[str, object]:
    """Register the directive."""
    app.add_directive("symbols", Symbols)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
