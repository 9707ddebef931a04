"""The maps of chapters on the landing page, made from the chapters' own titles, so that they cannot lag.

A line of ``chapter-map`` is ``FILE | title while it is unwritten | question``. A chapter that the book holds is linked
by its own title; another one says that it is planned. A line of ``tracks`` is ``NAME | FILE FILE ...``: a way through
the book, where each chapter needs those before it, and how long it takes to read.
"""

from __future__ import annotations

from pathlib import Path

import times
from docutils import nodes
from house import chapter_number
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective

HEAD = ("No.", "Chapter", "Question")


class ChapterMap(SphinxDirective):
    """``chapter-map``: a table of chapters, written and planned."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """The table."""
        group = nodes.tgroup("", *(nodes.colspec(colwidth=25) for _ in HEAD), cols=len(HEAD))
        group += nodes.thead("", self.row([[nodes.Text(word)] for word in HEAD]))
        group += nodes.tbody("", *(self.row(self.cells(line)) for line in self.content if line.strip()))
        return [nodes.container("", nodes.table("", group, classes=["colwidths-auto"]), classes=["chapter-map"])]

    def cells(self, line: str) -> list[list[nodes.Node]]:
        """Number, title and question."""
        parts = [part.strip() for part in line.split("|")]
        document = f"chapters/{parts[0]}"
        number = chapter_number(document)
        if len(parts) != 3 or number is None:
            raise self.error(f"a line must be FILE | title | question: {line}")
        written = document in self.env.found_docs
        title = [self.link(document) if written else nodes.Text(f"{parts[1]} (planned)")]
        return [[nodes.Text(str(number))], title, self.state.inline_text(parts[2], self.lineno)[0]]

    def link(self, document: str) -> nodes.Node:
        """A link that takes the chapter's own title."""
        return link_to(document, self.env.docname)

    def row(self, cells: list[list[nodes.Node]]) -> nodes.row:
        """A row."""
        return nodes.row("", *(nodes.entry("", nodes.paragraph("", "", *cell)) for cell in cells))


def link_to(document: str, page: str) -> nodes.Node:
    """A link from a page that takes the other's title."""
    return addnodes.pending_xref(
        "",
        nodes.inline("", ""),
        refdomain="std",
        reftype="doc",
        reftarget=f"/{document}",
        refdoc=page,
        refexplicit=False,
        refwarn=True,
    )


class Tracks(SphinxDirective):
    """``tracks``: for each paper the chapters that lead to it, in order, as steps that one can follow."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """One list for each track."""
        return [nodes.container("", *(self.track(line) for line in self.content if line.strip()), classes=["tracks"])]

    def track(self, line: str) -> nodes.container:
        """A name, its hours and its steps."""
        name, files = (part.strip() for part in line.split("|"))
        steps = nodes.enumerated_list("", *(self.step(file) for file in files.split()), classes=["track"])
        head = nodes.paragraph("", "", nodes.strong(text=name), nodes.Text(self.hours(files.split())))
        return nodes.container("", head, steps)

    def hours(self, files: list[str]) -> str:
        """How long the chapters take to read; nothing while one of them is planned."""
        paths = [Path(self.env.srcdir) / "chapters" / f"{file}.ipynb" for file in files]
        if not all(path.is_file() for path in paths):
            return ""
        for path in paths:
            self.env.note_dependency(str(path))
        seconds = sum(times.times(times.cells_of(path)).read for path in paths)
        return f", about {times.in_words(seconds)} to read"

    def step(self, file: str) -> nodes.list_item:
        """A chapter: its number and its title."""
        number = chapter_number(f"chapters/{file}")
        if number is None:
            raise self.error(f"a track must name chapters: {file}")
        link = link_to(f"chapters/{file}", self.env.docname)
        return nodes.list_item("", nodes.paragraph("", "", nodes.strong(text=f"{number} "), link))


def setup(app: object) -> dict[str, object]:
    """Register the directive."""
    app.add_directive("chapter-map", ChapterMap)
    app.add_directive("tracks", Tracks)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
