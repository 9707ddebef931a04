"""Under each check of a chapter: what it checks, and the tests of the library that check the same.

What the check found was told by the kernel (book/evidence.py); this adds the numbered statement that stands before it
and, by the ledger, the tests of the ids that the statement names.
"""

from __future__ import annotations

from docutils import nodes
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
    """Append a line to each check that follows a statement."""
    env = app.env
    label, text = None, ""
    for node in list(document.findall(nodes.Element)):
        if label_of(node):
            label, text = label_of(node), node.astext()
        elif is_check(node) and label:
            node += line_of_evidence(env, label, text)


def line_of_evidence(env: BuildEnvironment, label: str, text: str) -> nodes.paragraph:
    """The statement, and the tests."""
    line = nodes.paragraph("", "It checks ", classes=["evidence-of"])
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


def setup(app: Sphinx) -> dict[str, object]:
    """Register the lines."""
    app.connect("doctree-read", name_statements)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
