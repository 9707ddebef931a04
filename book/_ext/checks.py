"""What folds on a page under one line: it opens by a click, also without scripts; the search in a page opens it too.

A check's line says what it found, as the kernel told it (book/evidence.py). Under the line fold the code, the clauses,
the numbered statement that stands before the check in its section and, by the ledger, the tests of the ids that the
statement names. A proof folds under its first word. Code of cells that follow each other and only prepare what the
last of them shows folds under one line.
"""

import html
import re

from docutils import nodes
from ledger import folded, ids_in, ledger_path, link_to_test, named, reference, rows
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.writers.html import HTMLTranslator

EVIDENCE = re.compile(r'<p class="evidence">(.*?)( Clauses: .*)?</p>', re.DOTALL)


def begin(translator: HTMLTranslator, node: folded) -> None:
    """The fold and its line."""
    line = f'<span class="{node["line_class"]}">{html.escape(node["line"])}</span>'
    translator.body.append(f'<details class="{" ".join(node["classes"])}"><summary>{line}</summary>')


def end(translator: HTMLTranslator, node: folded) -> None:
    """Its end."""
    translator.body.append("</details>\n")


def fold_checks(app: Sphinx, document: nodes.document) -> None:
    """Fold each check under its line; one that follows a statement in its section names it."""
    label, text = None, ""
    for node in list(document.findall(nodes.Element)):
        classes = node.get("classes", [])
        if isinstance(node, nodes.section):
            label, text = None, ""
        elif "proof" in classes and node.get("label"):
            label, text = node["label"], node.astext()
        elif isinstance(node, nodes.container) and {"cell", "tag_check"} <= set(classes):
            fold(node, [line_of_evidence(app.env, label, text)] if label else [])


def fold_proofs(app: Sphinx, document: nodes.document) -> None:
    """Fold each proof under the word; sphinx-proof gives a proof no class of its own, and writes the word into it."""
    for proof in [node for node in document.findall(nodes.admonition) if node["ids"] == ["proof"]]:
        opening = proof[0][0]
        if isinstance(opening, nodes.Text) and opening.startswith("Proof. "):
            proof[0][0] = nodes.Text(opening.removeprefix("Proof. "))
        body = folded("", *proof.children, line="Proof.", line_class="proof-word", classes=["proof-body"])
        proof.parent.replace(proof, body)


def fold(cell: nodes.container, belongs: list[nodes.paragraph]) -> None:
    """Put a check's code and all that belongs to it under its line; what else it put out stays."""
    cell.attributes.pop("hide_mode", None)  # one fold is enough
    line, clauses = "This check held.", None
    for raw in cell.findall(nodes.raw):
        if found := EVIDENCE.fullmatch(raw.astext().strip()):  # what the kernel told goes out of the outputs
            line, clauses = found.groups()
            bundle = raw.parent
            while bundle.get("nb_element") != "mime_bundle":
                bundle = bundle.parent
            outputs = bundle.parent
            outputs.remove(bundle)
            if not outputs.children:
                outputs.parent.remove(outputs)
            break
    code = [part for part in cell.children if "cell_input" in part["classes"]]
    inside = folded("", *code, line=html.unescape(line), line_class="evidence", classes=["check"])
    if clauses:
        told = re.sub(r"\bclause (?=\d)", "", html.unescape(clauses.strip()))  # chapters name them either way
        inside += nodes.paragraph("", told, classes=["evidence-of"])
    inside += belongs
    cell.children = [part for part in cell.children if part not in code]
    cell.insert(0, inside)


def line_of_evidence(env: BuildEnvironment, label: str, text: str) -> nodes.paragraph:
    """The statement, and the tests."""
    statement = reference("prf", "ref", label, label, env.docname, refexplicit=False)
    line = nodes.paragraph("", "Belongs to ", statement, classes=["evidence-of"])
    known = rows(ledger_path(env))
    tests = [test for each in dict.fromkeys(ids_in(text)) if each in known for test in named(known[each], "tests")]
    for i, test in enumerate(dict.fromkeys(tests[:3])):
        line += [nodes.Text(", " if i else "; in the library: "), link_to_test(env.config, test)]
    line += nodes.Text(".")
    return line


def join_code(app: Sphinx, document: nodes.document) -> None:
    """Put the folded code of a cell that shows nothing else into the next cell's, where that one's is folded too."""
    hidden = lambda node: isinstance(node, nodes.container) and node.get("hide_mode") == "input"  # noqa: E731
    for cell in [node for node in document.findall(nodes.container) if hidden(node) and len(node.children) == 1]:
        after = cell.next_node(descend=False, siblings=True)
        if hidden(after):
            for block in cell.children[0].children:
                block["classes"] += [name for name in cell["classes"] if name.startswith("tag_")]  # print hides set-ups
            after.children[0][:0] = cell.children[0].children
            cell.parent.remove(cell)


def setup(app: Sphinx) -> dict[str, object]:
    """Register the folds."""
    app.add_node(folded, html=(begin, end))
    app.connect("doctree-read", fold_checks)
    app.connect("doctree-read", fold_proofs)
    app.connect("doctree-read", join_code, priority=600)  # after checks have taken what folds otherwise
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
