"""What folds on a page under one line: it opens by a click, also without scripts; the search in a page opens it too.

Code of cells that follow each other and only prepare what the last of them shows folds under one line.
"""

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


def only_folded_code(node: nodes.Node | None) -> bool:
    """Whether it is a cell that shows nothing but code, folded."""
    return isinstance(node, nodes.container) and node.get("hide_mode") == "input" and len(node.children) == 1


def join_code(app: Sphinx, document: nodes.document) -> None:
    """Put the folded code of a cell that shows nothing into the next cell's, where that one's is folded too."""
    for cell in [node for node in document.findall(nodes.container) if only_folded_code(node)]:
        after = cell.next_node(descend=False, siblings=True)
        if isinstance(after, nodes.container) and after.get("hide_mode") == "input":
            for block in cell.children[0].children:
                block["classes"] += [name for name in cell["classes"] if name.startswith("tag_")]  # print hides set-ups
            after.children[0][:0] = cell.children[0].children
            cell.parent.remove(cell)


def setup(app: Sphinx) -> dict[str, object]:
    """Register the fold."""
    app.add_node(folded, html=(begin, end))
    app.connect("doctree-read", join_code, priority=600)  # after checks.py has taken what folds otherwise
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
