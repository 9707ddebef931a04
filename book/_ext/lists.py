"""Lists that are made from what they list, so that they cannot lag: chapters, ways through them, experiments.

A line of ``chapter-map`` is ``FILE | title while it is unwritten | question``. A chapter that the book holds is linked
by its own title; another one says that it is planned. A line of ``tracks`` is ``NAME | FILE FILE ...``: a way through
the book, where each chapter needs those before it. ``experiments`` are all of the lab's registry, with their records.
"""

from __future__ import annotations

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from geolib.lab import read_all
from geolib.lab.experiments import EXPERIMENTS, Experiment
from geolib.lab.experiments.plan import SCALES

MAPPED = ("No.", "Chapter", "Question")
LISTED = ("experiment", "what", "runs recorded of all, by scale")
Cell = list[nodes.Node]


def table(head: tuple[str, ...], rows: list[list[Cell]]) -> nodes.table:
    """A table of rows of cells, each a list of nodes of a line."""

    def row(cells: list[Cell]) -> nodes.row:
        return nodes.row("", *(nodes.entry("", nodes.paragraph("", "", *cell)) for cell in cells))

    group = nodes.tgroup("", *(nodes.colspec(colwidth=33) for _ in head), cols=len(head))
    group += nodes.thead("", row([[nodes.Text(word)] for word in head]))
    group += nodes.tbody("", *map(row, rows))
    return nodes.table("", group, classes=["colwidths-auto"])


def link_to(document: str, page: str) -> nodes.Node:
    """A link from a page that takes the other's title."""
    options = {"refdomain": "std", "reftype": "doc", "reftarget": f"/{document}", "refdoc": page}
    return addnodes.pending_xref("", nodes.inline("", ""), refexplicit=False, refwarn=True, **options)


class OfChapters(SphinxDirective):
    """A directive whose lines name chapters by their files."""

    has_content = True

    def lines(self, parts: int) -> list[list[str]]:
        """The parts of each line."""
        found = [[part.strip() for part in line.split("|")] for line in self.content if line.strip()]
        for each in found:
            if len(each) != parts:
                raise self.error(f"a line must have {parts} parts with bars between: {each}")
        return found

    def number(self, file: str) -> str:
        """A chapter's number."""
        if not file[:2].isdigit():
            raise self.error(f"a chapter's file must begin with its number: {file}")
        return str(int(file[:2]))


class ChapterMap(OfChapters):
    """``chapter-map``: a table of chapters, written and planned."""

    def run(self) -> list[nodes.Node]:
        """The table."""
        rows = []
        for file, title, question in self.lines(3):
            written = f"chapters/{file}" in self.env.found_docs
            name = link_to(f"chapters/{file}", self.env.docname) if written else nodes.Text(f"{title} (planned)")
            rows.append([[nodes.Text(self.number(file))], [name], self.state.inline_text(question, self.lineno)[0]])
        return [nodes.container("", table(MAPPED, rows), classes=["chapter-map"])]


class Tracks(OfChapters):
    """``tracks``: for each paper the chapters that lead to it, in order, as steps that one can follow."""

    def run(self) -> list[nodes.Node]:
        """A name and its steps for each track."""
        made = nodes.container("", classes=["tracks"])
        for name, files in self.lines(2):
            steps = nodes.enumerated_list("", *map(self.step, files.split()), classes=["track"])
            made += nodes.container("", nodes.paragraph("", "", nodes.strong(text=name)), steps)
        return [made]

    def step(self, file: str) -> nodes.list_item:
        """A chapter: its number and its title."""
        number, link = nodes.strong(text=f"{self.number(file)} "), link_to(f"chapters/{file}", self.env.docname)
        return nodes.list_item("", nodes.paragraph("", "", number, link))


class ExperimentList(SphinxDirective):
    """``experiments``: a table of all of them."""

    def run(self) -> list[nodes.Node]:
        """The table."""
        recorded = {record.config.hash for record in read_all()}
        cells = lambda each: [nodes.literal(text=each.name), each.about, runs_of(each, recorded)]  # noqa: E731
        rows = [[[nodes.Text(c) if isinstance(c, str) else c] for c in cells(each)] for each in EXPERIMENTS.values()]
        return [table(LISTED, rows)]


def runs_of(experiment: Experiment, recorded: set[str]) -> str:
    """How many runs of each scale have a record."""
    counts = []
    for scale in (scale for scale in SCALES if scale != "smoke" and scale in experiment.scales):
        planned = {config.hash for config in experiment.configs(scale)}
        if planned:
            counts.append(f"{scale} {len(planned & recorded)} of {len(planned)}")
    return ", ".join(counts) or "nothing is trained"


def setup(app: Sphinx) -> dict[str, object]:
    """Register the directives."""
    app.add_directive("chapter-map", ChapterMap)
    app.add_directive("tracks", Tracks)
    app.add_directive("experiments", ExperimentList)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
