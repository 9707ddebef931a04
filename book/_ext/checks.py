"""Each check of a chapter in one line, which opens; how long a chapter takes.

A check's line says what it found, as the kernel told it (book/evidence.py). Under the line fold the code, the clauses,
the numbered statement that stands before the check in its section and, by the ledger, the tests of the ids that the
statement names.
"""

from __future__ import annotations

import html
import re
from pathlib import Path

import folds
import times
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


def fold_checks(app: Sphinx, document: nodes.document) -> None:
    """Fold each check under its line; one that follows a statement in its section names it."""
    env = app.env
    label, text = None, ""
    for node in list(document.findall(nodes.Element)):
        if isinstance(node, nodes.section):
            label, text = None, ""
        elif label_of(node):
            label, text = label_of(node), node.astext()
        elif is_check(node):
            of = line_of_evidence(env, label, text) if label else None
            fold(node, of)


EVIDENCE = re.compile(r'<p class="evidence">(.*?)( Clauses: .*)?</p>', re.DOTALL)


def fold(cell: nodes.container, of: nodes.paragraph | None) -> None:
    """Put a check's code and all that belongs to it under its line; what else it put out stays."""
    cell.attributes.pop("hide_mode", None)  # one fold is enough
    found = take_evidence(cell)
    code = [part for part in cell.children if "cell_input" in part["classes"]]
    line, clauses = (found[1], found[2]) if found else ("This check held.", None)
    inside = folds.folded("", *code, line=html.unescape(line), line_class="evidence", classes=["check"])
    if clauses:
        told = re.sub(r"\bclause (?=\d)", "", html.unescape(clauses.strip()))  # chapters name them either way
        inside += nodes.paragraph("", told, classes=["evidence-of"])
    if of:
        inside += of
    cell.children = [part for part in cell.children if part not in code]
    cell.insert(0, inside)


def take_evidence(cell: nodes.container) -> re.Match[str] | None:
    """Take the line that the kernel told out of a cell's outputs."""
    for raw in cell.findall(nodes.raw):
        if found := EVIDENCE.fullmatch(raw.astext().strip()):
            bundle = raw.parent
            while bundle.get("nb_element") != "mime_bundle":
                bundle = bundle.parent
            outputs = bundle.parent
            outputs.remove(bundle)
            if not outputs.children:
                outputs.parent.remove(outputs)
            return found
    return None


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


def tell_reading_time(app: Sphinx, document: nodes.document) -> None:
    """Under a chapter's title: how long it takes (times.py says how that is counted), and how many checks it has."""
    title = next(document.findall(nodes.title), None)
    if chapter_number(app.env.docname) is None or title is None:
        return
    checks = sum(map(is_check, document.findall(nodes.container)))
    held = f" {checks} checks held when this page was built." if checks else ""
    spent = times.said(times.times(times.cells_of(Path(app.env.doc2path(app.env.docname)))))
    line = nodes.paragraph("", f"{spent}{held}", classes=["reading"])
    title.parent.insert(title.parent.index(title) + 1, line)


def setup(app: Sphinx) -> dict[str, object]:
    """Register the lines."""
    app.connect("doctree-read", fold_checks)
    app.connect("doctree-read", tell_reading_time)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
