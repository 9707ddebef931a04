"""The errata in the site: entries of book/errata.yml, each with the paper's words above what we find.

``errata RF slip`` renders the entries of one paper and one kind; ``version-read RF`` the version that we read.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml
from docutils import nodes
from ledger import link_to_test, named
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


@cache
def _read(path: Path, changed: int) -> dict[str, list[dict[str, Any]]]:
    return yaml.safe_load(path.read_text("utf-8"))


def contents(path: Path) -> dict[str, list[dict[str, Any]]]:
    """The file's sources and entries."""
    return _read(path, path.stat().st_mtime_ns)


def entries_of(path: Path, paper: str, kind: str) -> list[dict[str, Any]]:
    """The slips or the remarks of one paper, in order."""
    found = contents(path)["entries"]
    return [entry for entry in found if entry["id"].split("-")[0] == paper and entry["kind"] == kind]


class FromErrata(SphinxDirective):
    """A directive that reads book/errata.yml."""

    def file(self) -> Path:
        """The file, noted as what the page depends on."""
        path = Path(self.env.srcdir) / "book" / "errata.yml"
        self.env.note_dependency(str(path))
        return path

    def inline(self, text: str) -> list[nodes.Node]:
        """The nodes of a line of text."""
        return self.state.inline_text(text.strip(), self.lineno)[0]


class Errata(FromErrata):
    """The entries of one paper and one kind: id and place, quotation, finding, tests."""

    required_arguments = 2

    def run(self) -> list[nodes.Node]:
        """A definition list."""
        chosen = entries_of(self.file(), *self.arguments)
        if not chosen:
            raise self.error(f"no entries of {' '.join(self.arguments)}")
        return [nodes.definition_list("", *map(self.entry, chosen), classes=["errata"])]

    def entry(self, entry: dict[str, Any]) -> nodes.definition_list_item:
        """One entry."""
        term = nodes.term("", "", *self.inline(f"{entry['id']}, {entry['place']}"))
        quotations = [self.quotation(each["quote"]) for each in entry["words"]]
        finding = nodes.paragraph("", "", *self.inline(entry["finds"]))
        if not entry["shown"]:  # a matter of record: the finding cites it
            return nodes.definition_list_item("", term, nodes.definition("", *quotations, finding))
        shown = nodes.paragraph("", "Shown by: ", classes=["ledger-where"])
        for i, name in enumerate(named(entry, "shown")):
            shown += [nodes.Text("  ·  ")] if i else []
            shown += link_to_test(self.config, name)
        return nodes.definition_list_item("", term, nodes.definition("", *quotations, finding, shown))

    def quotation(self, quote: str) -> nodes.block_quote:
        """The paper's words."""
        return nodes.block_quote("", nodes.paragraph("", "", *self.inline(quote)), classes=["quotation"])


class Version(FromErrata):
    """Which version of a paper the book reads."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """One paragraph."""
        versions = {source["key"]: source["version"] for source in contents(self.file())["sources"]}
        if self.arguments[0] not in versions:
            raise self.error(f"no source {self.arguments[0]}")
        return [nodes.paragraph("", "", *self.inline(f"We read: {versions[self.arguments[0]]}"))]


def setup(app: Sphinx) -> dict[str, object]:
    """Register the directives."""
    app.add_directive("errata", Errata)
    app.add_directive("version-read", Version)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
