"""A table as text: rows under a header, with a title above and notes below."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """Rows of text under a header, with a title above and notes below; without rows the title and the notes alone."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()

    def markdown(self) -> str:
        """As Markdown."""
        lines = [f"**{self.title}**", ""]
        if self.rows:
            lines += [_row(self.header), _row(["---"] * len(self.header)), *map(_row, self.rows), ""]
        return "\n".join(lines + [f"- {note}" for note in self.notes])

    def plain(self) -> str:
        """As text in columns."""
        widths = [max(len(row[i]) for row in (self.header, *self.rows)) for i in range(len(self.header))]
        rows = [self.header, ["-" * w for w in widths], *self.rows] if self.rows else []
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip() for row in rows]
        table = [*lines, ""] if lines else []
        return "\n".join([self.title, "", *table, *self.notes]).rstrip()


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def spread(values: Sequence[float], times: float = 100, digits: int = 1) -> str:
    """The mean, ± the standard deviation where there are two or more: of numbers of [0, 1] in percent, or ``times``.

    >>> spread([0.5, 0.52]), spread([2.0, 2.2], times=1, digits=3), spread([])
    ('51.0±1.4', '2.100±0.141', '')
    """
    if not values:
        return ""
    mean = f"{times * statistics.mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean}±{times * statistics.stdev(values):.{digits}f}"
