"""The ledger in the site: its tables, and a link wherever one of its ids is written.

- ``ledger-table`` renders one group of book/ledger.yml: each statement, and a line that says what stands behind it
  and opens to the places. Beside the section that a row names it links the numbered statements of the chapters that
  name the row, found by reading the chapters: what is written cannot be missed.
- ``proved`` is what a chapter proved: a folded table of the rows that its statements name or that belong to it. A line
  of its body, ``RF-13 prop-flip prop-slope``, adds statements that bear on a row and do not name it.
- An id such as RF-9 in the text of any page, notebook or docstring becomes a link to its row; an id of a known kind
  that is not in the ledger is a warning, and warnings fail the build. Code, formulas and links are left alone.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import folds
import yaml
from docutils import nodes
from docutils.statemachine import StringList
from house import chapter_number
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.environment import BuildEnvironment
from sphinx.transforms import SphinxTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

log = logging.getLogger(__name__)

ID = re.compile(r"(?<![\w-])(?:RF|CS|LR|NT|BK)-\w+")
PLANNED = "planned"
HEAD = ("id", "statement; under it, what stands behind it")
LEFT_ALONE = (
    addnodes.desc_signature,
    addnodes.pending_xref,
    nodes.comment,
    nodes.FixedTextElement,
    nodes.literal,
    nodes.math,
    nodes.raw,
    nodes.reference,
    nodes.system_message,
)

# The data -----------------------------------------------------------------------------------------------------------


@cache
def _read(path: Path, changed: int) -> list[dict[str, Any]]:
    return yaml.safe_load(path.read_text("utf-8"))


def groups(path: Path) -> list[dict[str, Any]]:
    """The ledger's groups, each with its key, title and rows."""
    return _read(path, path.stat().st_mtime_ns)


def rows(path: Path) -> dict[str, dict[str, Any]]:
    """All rows by id."""
    return {row["id"]: row for group in groups(path) for row in group["rows"]}


# A numbered statement of a chapter: its kind, its label, its text.
STATEMENT = re.compile(r"(?ms)^(:{3,})\{prf:(\w+)\}.*?\n:label: ([\w-]+)\n(.*?)^\1$")


def statements(chapters: Path) -> dict[str, list[str]]:
    """The labels of the numbered statements that name an id, by id, in the order of the chapters."""
    found: dict[str, list[str]] = {}
    for path in sorted(chapters.glob("*.ipynb")):
        for ledger_id, labels in statements_of(path).items():
            found.setdefault(ledger_id, []).extend(labels)
    return found


def statements_of(chapter: Path) -> dict[str, list[str]]:
    """The same for one chapter's notebook."""
    cells = json.loads(chapter.read_text("utf-8"))["cells"]
    text = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    found: dict[str, list[str]] = {}
    for _, _, label, body in STATEMENT.findall(text):
        for ledger_id in dict.fromkeys(ids_in(body)):
            found.setdefault(ledger_id, []).append(label)
    return found


def proved(
    ledger: dict[str, dict[str, Any]], number: int, stated: dict[str, list[str]], more: Iterable[str]
) -> dict[str, list[str]]:
    """The rows of what a chapter proved, in the ledger's order, each with the labels of its statements.

    Parameters
    ----------
    ledger : dict
        All rows by id.
    number : int
        The chapter's number.
    stated : dict
        What `statements_of` finds in the chapter.
    more : iterable of str
        Lines of an id and the labels of statements that bear on it; ValueError for an id that is no row.
    """
    found = {ledger_id: list(labels) for ledger_id, labels in stated.items() if ledger_id in ledger}
    for line in more:
        ledger_id, *labels = line.split()
        if ledger_id not in ledger:
            raise ValueError(f"{ledger_id} is no row of the ledger")
        found[ledger_id] = [*found.get(ledger_id, []), *labels]
    own = [name for name, row in ledger.items() if row["chapter"] == number and row.get("section", PLANNED) != PLANNED]
    return {name: found.get(name, []) for name in ledger if name in found or name in own}


def ids_in(text: str) -> Iterator[str]:
    """The ids in a text; "RF-16 to RF-18" are three."""
    for kind, first, last in re.findall(r"\b(RF|CS|LR|NT)-(\d+) to \1-(\d+)", text):
        yield from (f"{kind}-{number}" for number in range(int(first), int(last) + 1))
    yield from (found.group() for found in ID.finditer(text))


def ledger_path(env: BuildEnvironment) -> Path:
    """Where the ledger's data lies."""
    return Path(env.srcdir) / "book" / "ledger.yml"


def anchor(ledger_id: str) -> str:
    """The label of an id's row."""
    return f"ledger-{ledger_id.lower()}"


# Links --------------------------------------------------------------------------------------------------------------


def reference(domain: str, kind: str, target: str, text: str, docname: str, **more: Any) -> addnodes.pending_xref:
    """A link that Sphinx resolves, and reports when it cannot."""
    return addnodes.pending_xref(
        "",
        nodes.inline(text=text),
        refdomain=domain,
        reftype=kind,
        reftarget=target,
        refexplicit=True,
        refwarn=True,
        refdoc=docname,
        **more,
    )


class LinkLedgerIds(SphinxTransform):
    """Turn ids in running text into links to the ledger."""

    default_priority = 880

    def apply(self, **kwargs: Any) -> None:
        """Visit every text node of the page."""
        texts = [text for text in self.document.findall(nodes.Text) if ID.search(text)]
        if not texts:
            return
        path = ledger_path(self.env)
        self.env.note_dependency(str(path))
        for text in texts:
            if not in_left_alone(text):
                text.parent.replace(text, list(self.linked(text, rows(path))))

    def linked(self, text: nodes.Text, known: dict[str, Any]) -> Iterator[nodes.Node]:
        """The pieces of a text node, ids as links."""
        plain, end = str(text), 0
        for found in ID.finditer(plain):
            ledger_id = found.group()
            if ledger_id not in known:
                log.warning("unknown ledger id %s", ledger_id, location=text.parent, type="ledger", subtype="unknown")
                continue
            yield nodes.Text(plain[end : found.start()])
            yield reference("std", "ref", anchor(ledger_id), ledger_id, self.env.docname, classes=["ledger-link"])
            end = found.end()
        yield nodes.Text(plain[end:])


def in_left_alone(text: nodes.Node) -> bool:
    """Whether a text stands in code, a formula, a link or the ledger's own id column."""
    node = text.parent
    while node is not None:
        if isinstance(node, LEFT_ALONE) or "ledger-id" in node.get("classes", []):
            return True
        node = node.parent
    return False


# The table ----------------------------------------------------------------------------------------------------------


class LedgerTable(SphinxDirective):
    """The rows of one group: id, statement, and where it is derived, implemented, tested and recorded."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """The table's nodes."""
        path = ledger_path(self.env)
        chapters = Path(self.env.srcdir) / "chapters"
        for source in (path, *chapters.glob("*.ipynb")):
            self.env.note_dependency(str(source))
        self.stated = statements(chapters)
        wanted = [group for group in groups(path) if group["key"] == self.arguments[0]]
        if not wanted:
            raise self.error(f"no group {self.arguments[0]} in {path.name}")
        body = nodes.tbody("", *(self.table_row(row) for row in wanted[0]["rows"]))
        group = nodes.tgroup("", *(nodes.colspec(colwidth=width) for width in (14, 86)), cols=2)
        group += nodes.thead("", nodes.row("", *(nodes.entry("", nodes.paragraph(text=text)) for text in HEAD)))
        group += body
        return [nodes.table("", group, classes=["ledger"])]

    def table_row(self, row: dict[str, Any]) -> nodes.row:
        """One row, with the target that ids link to."""
        name = anchor(row["id"])
        label = nodes.paragraph("", "", nodes.strong(text=row["id"]), classes=["ledger-id"], ids=[name], names=[name])
        self.state.document.note_explicit_target(label)
        statement, _ = self.state.inline_text(row["statement"].strip(), self.lineno)
        places = nodes.paragraph("", "", *joined(list(self.places(row)), "  ·  "), classes=["ledger-where"])
        line = standing(row, self.stated.get(row["id"], []))
        where = folds.folded("", places, line=line, line_class="ledger-where", classes=["ledger-fold"])
        return nodes.row("", nodes.entry("", label), nodes.entry("", nodes.paragraph("", "", *statement), where))

    def places(self, row: dict[str, Any]) -> Iterator[nodes.Node]:
        """Chapter, numbered statements, functions, tests, record."""
        yield self.chapter(row)
        for label in self.stated.get(row["id"], []):
            yield from self.state.inline_text(f"{{prf:ref}}`{label}`", self.lineno)[0]
        for name in named(row, "functions"):
            yield self.function(name)
        for name in named(row, "tests"):
            yield link_to_test(self.config, name)
        if "record" in row:
            yield from self.records(row["record"])

    def records(self, record: str | list[str]) -> Iterator[nodes.Node]:
        """Each folder of records, with how many of its runs are named; or why there is none."""
        if isinstance(record, str) and not record.endswith(".json"):
            yield nodes.Text("record planned" if record == PLANNED else f"record: {record}")
            return
        runs = counted_runs(ledger_path(self.env).parent / "results", [record] if isinstance(record, str) else record)
        for folder, count in runs.items():
            yield link_to_records(self.config, folder, count)

    def chapter(self, row: dict[str, Any]) -> nodes.Node:
        """The section that derives the statement, or its chapter alone."""
        text, section = f"Chapter {row['chapter']}", row.get("section", PLANNED)
        if section == PLANNED:
            stated = row["id"] in self.stated  # the statements that follow lead to it
            return nodes.Text(text if stated else f"{text} (planned)")
        return reference("std", "ref", section, text, self.env.docname)

    def function(self, name: str) -> nodes.Node:
        """A function's entry in the API pages."""
        link = reference("py", "obj", name, name.removeprefix("geolib."), self.env.docname)
        link.children = [nodes.literal(text=name.removeprefix("geolib."))]
        return link


BOX = """\
:::{{admonition}} What was proved
:class: proved dropdown
| ledger | statement | derived in | function | test |
|---|---|---|---|---|
{}

All rows: {{doc}}`/book/ledger`.
:::"""


class Proved(SphinxDirective):
    """``proved``: a chapter's rows of the ledger, folded."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """The folded table."""
        path, page = ledger_path(self.env), Path(self.env.doc2path(self.env.docname))
        self.env.note_dependency(str(path))
        number = chapter_number(self.env.docname)
        if number is None:
            raise self.error("proved: this page is no chapter")
        ledger = rows(path)
        try:
            found = proved(ledger, number, statements_of(page), self.content)
        except ValueError as problem:
            raise self.error(f"proved: {problem}") from problem
        lines = [self.line(ledger[ledger_id], labels) for ledger_id, labels in found.items()]
        box = nodes.container()
        self.state.nested_parse(StringList(BOX.format("\n".join(lines)).splitlines(), path.name), 0, box)
        return box.children

    def line(self, row: dict[str, Any], labels: list[str]) -> str:
        """A row's line of the table."""
        section = row.get("section", PLANNED)
        derived = [f"{{prf:ref}}`{label}`" for label in labels]
        derived = derived or [f"{{ref}}`{section}`"] * (section != PLANNED)
        functions = [f"`{name.split('.')[-1]}`" for name in named(row, "functions")]
        tests = [name.partition("::test_")[2].replace("_", " ") for name in named(row, "tests")]
        statement = row["statement"].strip().replace("|", r"\|")
        cells = (row["id"], statement, ", ".join(derived), ", ".join(functions), "; ".join(tests))
        return f"| {' | '.join(cells)} |"


def standing(row: dict[str, Any], stated: list[str]) -> str:
    """What stands behind a row, in a few words: proved in chapter 3, implemented, 7 tests."""
    tests, record = len(named(row, "tests")), row.get("record")
    proved = any(label.startswith(("thm-", "prop-", "lem-", "cor-")) for label in stated)
    written = stated or row.get("section", PLANNED) != PLANNED
    parts = [f"{'proved' if proved else 'derived'} in chapter {row['chapter']}" if written else "planned"]
    parts += ["implemented"] * bool(named(row, "functions"))
    parts += [f"{tests} {'test' if tests == 1 else 'tests'}"] * bool(tests)
    parts += ["recorded"] * bool(isinstance(record, list) or (record and record.endswith(".json")))
    return ", ".join(parts)


def counted_runs(results: Path, names: list[str]) -> dict[str, int]:
    """From each folder among the records' names to how many of its records these are; a folder's name means them all.

    Parameters
    ----------
    results : Path
    names : list of str
        ``folder/file.json`` or ``folder``.
    """
    runs: set[Path] = set()
    for name in names:
        runs.update([results / name] if name.endswith(".json") else (results / name).glob("*.json"))
    return Counter(path.parent.name for path in sorted(runs))


def link_to_records(config: Config, folder: str, count: int) -> nodes.Node:
    """The folder that holds records, in the repository."""
    shown = f"{folder}: {count} {'record' if count == 1 else 'records'}"
    return nodes.reference("", shown, refuri=in_repository(config, "tree", f"book/results/{folder}"), internal=False)


def link_to_test(config: Config, name: str) -> nodes.Node:
    """The file that holds a test, in the repository."""
    file, _, function = name.partition("::")
    shown = f"{Path(file).name}: {function.replace('_', ' ')}"
    return nodes.reference("", shown, refuri=in_repository(config, "blob", file), internal=False)


def in_repository(config: Config, kind: str, path: str) -> str:
    """The address of a file (``blob``) or folder (``tree``) of the repository."""
    options = config.html_theme_options
    return f"{options['repository_url']}/{kind}/{options['repository_branch']}/{path}"


def named(row: dict[str, Any], field: str) -> list[str]:
    """The names in a field that may be planned, null or missing."""
    value = row.get(field, PLANNED)
    return [] if value in (PLANNED, None) else value


def joined(parts: list[nodes.Node], mark: str) -> Iterator[nodes.Node]:
    """Parts with a mark between them."""
    for i, part in enumerate(parts):
        if i:
            yield nodes.Text(mark)
        yield part


def setup(app: Sphinx) -> dict[str, object]:
    """Register the directive and the transform."""
    app.add_directive("ledger-table", LedgerTable)
    app.add_directive("proved", Proved)
    app.add_transform(LinkLedgerIds)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
