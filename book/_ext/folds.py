"""What folds on a page under one line: it opens by a click, also without scripts; the search in a page opens it too."""

from __future__ import annotations

import html

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.writers.html import HTMLTranslator


class folded(nodes.container):
    """A part of a page that folds; ``line`` is what shows, ``line_class`` how."""


def begin(translator: HTMLTranslator, node: folded) -> None:
    """The fold and its line."""
    line = f'<span class="{node["line_class"]}">{html.escape(node["line"])}</span>'
    translator.body.append(f'<details class="{" ".join(node["classes"])}"><summary>{line}</summary>')


def end(translator: HTMLTranslator, node: folded) -> None:
    """Its end."""
    translator.body.append("</details>\n")


def setup(app: Sphinx) -> dict[str, object]:
    """Register the fold."""
    app.add_node(folded, html=(begin, end))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
