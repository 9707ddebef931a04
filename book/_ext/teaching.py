"""``slide-decks``, for the page for teachers: a list of the chapters' decks, which book/slides.py makes of the site."""

from __future__ import annotations

from pathlib import Path

from docutils import nodes
from house import chapter_number
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

FOLDER = "slides"


class slide_decks(nodes.General, nodes.Element):
    """The place of the list, filled when titles are known."""


class SlideDecks(SphinxDirective):
    """``slide-decks``: a link to each chapter's deck."""

    def run(self) -> list[nodes.Node]:
        """The place of the list."""
        return [slide_decks()]


def fill(app: Sphinx, document: nodes.document, page: str) -> None:
    """Put the list in its place."""
    for place in list(document.findall(slide_decks)):
        chapters = sorted(each for each in app.env.found_docs if chapter_number(each) is not None)
        place.replace_self(nodes.bullet_list("", *(item(app, page, each) for each in chapters)))


def item(app: Sphinx, page: str, chapter: str) -> nodes.list_item:
    """A chapter's deck, by the chapter's number and title."""
    address = f"{'../' * page.count('/')}{FOLDER}/{Path(chapter).name}.html"
    title = f"{chapter_number(chapter)}. {app.env.titles[chapter].astext()}"
    link = nodes.reference("", title, internal=True, refuri=address)
    return nodes.list_item("", addnodes.compact_paragraph("", "", link))


def setup(app: Sphinx) -> dict[str, object]:
    """Register the directive and what fills it."""
    app.add_node(slide_decks)
    app.add_directive("slide-decks", SlideDecks)
    app.connect("doctree-resolved", fill)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
