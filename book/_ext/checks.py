"""Under each check of a chapter: what it checks, and the tests of the library that check the same.

What the check found was told by the kernel (book/evidence.py); this adds the numbered statement that stands before it
in its section and, by the ledger, the tests of the ids that the statement names.
"""

from __future__ import annotations

import html
import re
import shutil
from pathlib import Path

from docutils import nodes
from house import chapter_number
from ledger import ids_in, ledger_path, link_to_test, named, reference, rows
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment


def is_check(node: nodes.Node) -> bool:
    """Whether it is a cell with the tag ``check``."""
    return isinstance(node, nodes.container) and {"cell", "tag_check"} <= set(node["classes"])


def label_of(node: nodes.Node) -> str | None:
    """The label of a numbered statement."""
    return node.get("label") if isinstance(node, nodes.Element) and "proof" in node.get("classes", []) else None


def name_statements(app: Sphinx, document: nodes.document) -> None:
    """Append a line to each check that follows a statement in its section."""
    env = app.env
    label, text = None, ""
    for node in list(document.findall(nodes.Element)):
        if isinstance(node, nodes.section):
            label, text = None, ""
        elif label_of(node):
            label, text = label_of(node), node.astext()
        elif is_check(node) and label:
            node += line_of_evidence(env, label, text)


def line_of_evidence(env: BuildEnvironment, label: str, text: str) -> nodes.paragraph:
    """The statement, and the tests."""
    line = nodes.paragraph("", "Belongs to ", classes=["evidence-of"])
    statement = reference("prf", "ref", label, label, env.docname)
    statement["refexplicit"] = False
    line += statement
    known = rows(ledger_path(env))
    tests = [test for each in dict.fromkeys(ids_in(text)) if each in known for test in named(known[each], "tests")]
    for i, test in enumerate(dict.fromkeys(tests[:3])):
        line += nodes.Text("; in the library: " if i == 0 else ", ")
        line += link_to_test(env.config, test)
    line += nodes.Text(".")
    return line


WORDS_A_MINUTE = 180  # mathematics is read slowly


def tell_reading_time(app: Sphinx, document: nodes.document) -> None:
    """Under a chapter's title: how long its text takes to read, and how many checks stand in it."""
    title = next(document.findall(nodes.title), None)
    if chapter_number(app.env.docname) is None or title is None:
        return
    words = sum(len(paragraph.astext().split()) for paragraph in document.findall(nodes.paragraph))
    checks = sum(map(is_check, document.findall(nodes.container)))
    held = f" {checks} checks held when this page was built." if checks else ""
    line = nodes.paragraph(
        "", f"About {max(1, round(words / WORDS_A_MINUTE))} minutes to read.{held}", classes=["reading"]
    )
    title.parent.insert(title.parent.index(title) + 1, line)


def describe(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, object], doctree: nodes.document
) -> None:
    """The page's description and picture, for previews of links to it."""
    if doctree is None:
        return
    openings = (each for each in doctree.findall(nodes.paragraph) if "reading" not in each["classes"])
    opening = next((each.astext() for each in openings if len(each.astext()) > 60), "")
    text = html.escape(" ".join(opening.split())[:200], quote=True)
    base = app.config.html_baseurl or context["content_root"]
    title = html.escape(re.sub("<[^>]+>", "", str(context["title"])), quote=True)
    context["metatags"] = f"""{context.get("metatags", "")}
    <meta name="description" content="{text}" />
    <meta property="og:title" content="{title}" />
    <meta property="og:description" content="{text}" />
    <meta property="og:type" content="article" />
    <meta property="og:image" content="{base}_static/preview.png" />"""


def copy_picture(app: Sphinx, problem: Exception | None) -> None:
    """The picture of a page, for previews of links."""
    picture = Path(app.srcdir) / "book" / "images" / "page.png"
    if not problem and app.builder.format == "html" and picture.is_file():
        shutil.copy(picture, Path(app.outdir) / "_static" / "preview.png")


def setup(app: Sphinx) -> dict[str, object]:
    """Register the lines."""
    app.connect("doctree-read", name_statements)
    app.connect("doctree-read", tell_reading_time)
    app.connect("html-page-context", describe)
    app.connect("build-finished", copy_picture)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
