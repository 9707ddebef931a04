"""What pages read from the ledger, the errata and the page of notation, and a link wherever an id is written.

- ``ledger-table RF`` renders one group of book/ledger.yml: each statement, and a line that says what stands behind it
  and opens to the places. Beside the section that a row names it links the numbered statements of the chapters that
  name the row, found by reading the chapters: what is written cannot be missed.
- ``proved`` is what a chapter proved: a folded table of the rows that its statements name or that belong to it. A line
  of its body, ``RF-13 prop-flip prop-slope``, adds statements that bear on a row and do not name it.
- ``errata RF slip`` renders the entries of book/errata.yml of one paper and one kind, each with the paper's words above
  what we find; ``version-read RF`` the version of the paper that we read.
- ``symbols $q$; $k$`` is a chapter's letters: those of the notation page by name, with its words, and in its body a
  table of the chapter's own. So a meaning has one home: the notation page, or the chapter whose letter it is.
- An id such as RF-9 in the text of any page, notebook or docstring becomes a link to its row; an id of a known kind
  that is not in the ledger is a warning, and warnings fail the build. Code, formulas and links are left alone.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from docutils import nodes
from docutils.statemachine import StringList
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.environment import BuildEnvironment
from sphinx.transforms import SphinxTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

log = logging.getLogger(__name__)

ID = re.compile(r"(?<![\w-])(?:RF|CS|LR|NT|BK)-\w+")
STATEMENT = re.compile(r"(?ms)^(:{3,})\{prf:(?:\w+)\}.*?\n:label: ([\w-]+)\n(.*?)^\1$")  # fence, label, text
LEFT_ALONE = (
    *(addnodes.desc_signature, addnodes.pending_xref, nodes.comment, nodes.FixedTextElement, nodes.literal, nodes.math),
    *(nodes.raw, nodes.reference, nodes.system_message),
)
Row = dict[str, Any]


class folded(nodes.container):
    """A part of a page that folds; ``line`` is what shows, ``line_class`` how. checks.py writes it."""


# The data -----------------------------------------------------------------------------------------------------------


@cache
def contents(path: Path) -> Any:
    """What a file holds: the ledger's groups, each with its key, title and rows; the errata's sources and entries."""
    return yaml.safe_load(path.read_text("utf-8"))


def rows(path: Path) -> dict[str, Row]:
    """All rows of the ledger by id."""
    return {row["id"]: row for group in contents(path) for row in group["rows"]}


def named(row: Row, field: str) -> list[str]:
    """The names in a field that may be planned, null or missing; of its section, one or none."""
    value = row.get(field)
    return [] if value in ("planned", None) else [value] if isinstance(value, str) else value


def ids_in(text: str) -> Iterator[str]:
    """The ids in a text; "RF-16 to RF-18" are three."""
    for kind, first, last in re.findall(r"\b(RF|CS|LR|NT)-(\d+) to \1-(\d+)", text):
        yield from (f"{kind}-{number}" for number in range(int(first), int(last) + 1))
    yield from (found.group() for found in ID.finditer(text))


def statements(*chapters: Path) -> dict[str, list[str]]:
    """The labels of the numbered statements of chapters' notebooks that name an id, by id."""
    found: dict[str, list[str]] = {}
    for path in sorted(chapters):
        cells = json.loads(path.read_text("utf-8"))["cells"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        for _, label, body in STATEMENT.findall(text):
            for ledger_id in dict.fromkeys(ids_in(body)):
                found.setdefault(ledger_id, []).append(label)
    return found


def proved(ledger: dict[str, Row], number: int, stated: dict[str, list[str]], more: Iterable[str]) -> dict[str, list]:
    """The rows of what chapter ``number`` proved, in the ledger's order, each with the labels of its statements.

    ``stated`` is what `statements` finds in the chapter; ``more`` are lines of an id and the labels of statements that
    bear on it, with a ValueError for an id that is no row.
    """
    found = {ledger_id: list(labels) for ledger_id, labels in stated.items() if ledger_id in ledger}
    for line in more:
        ledger_id, *labels = line.split()
        if ledger_id not in ledger:
            raise ValueError(f"{ledger_id} is no row of the ledger")
        found[ledger_id] = [*found.get(ledger_id, []), *labels]
    own = [name for name, row in ledger.items() if row["chapter"] == number and named(row, "section")]
    return {name: found.get(name, []) for name in ledger if name in found or name in own}


def is_proved(labels: Iterable[str]) -> bool:
    """Whether one of the labels is that of a statement with a proof; definitions and algorithms have none."""
    return any(label.startswith(("thm-", "prop-", "lem-", "cor-")) for label in labels)


def standing(row: Row, stated: list[str]) -> str:
    """What stands behind a row, in a few words: proved in chapter 3, implemented, 7 tests."""
    tests, record = len(named(row, "tests")), row.get("record")
    written = f"{'proved' if is_proved(stated) else 'derived'} in chapter {row['chapter']}"
    parts = [written if stated or named(row, "section") else "planned"]
    parts += ["implemented"] * bool(named(row, "functions"))
    parts += [f"{tests} {'test' if tests == 1 else 'tests'}"] * bool(tests)
    parts += ["recorded"] * bool(isinstance(record, list) or (record and record.endswith(".json")))
    return ", ".join(parts)


# Links --------------------------------------------------------------------------------------------------------------


def ledger_path(env: BuildEnvironment) -> Path:
    """Where the ledger's data lies."""
    return Path(env.srcdir) / "book" / "ledger.yml"


def anchor(ledger_id: str) -> str:
    """The label of an id's row."""
    return f"ledger-{ledger_id.lower()}"


def reference(domain: str, kind: str, target: str, text: str, docname: str, **more: Any) -> addnodes.pending_xref:
    """A link that Sphinx resolves, and reports when it cannot."""
    options = {"refexplicit": True, "refwarn": True, "refdoc": docname, **more}
    inner = (nodes.literal if domain == "py" else nodes.inline)(text=text)
    return addnodes.pending_xref("", inner, refdomain=domain, reftype=kind, reftarget=target, **options)


def in_repository(config: Config, kind: str, path: str, shown: str) -> nodes.reference:
    """A link to a file (``blob``) or folder (``tree``) of the repository."""
    options = config.html_theme_options
    address = f"{options['repository_url']}/{kind}/{options['repository_branch']}/{path}"
    return nodes.reference("", shown, refuri=address, internal=False)


def link_to_test(config: Config, name: str) -> nodes.reference:
    """The file that holds a test, in the repository."""
    file, _, function = name.partition("::")
    return in_repository(config, "blob", file, f"{Path(file).name}: {function.replace('_', ' ')}")


def joined(parts: Iterable[nodes.Node], mark: str) -> Iterator[nodes.Node]:
    """Parts with a mark between them."""
    for i, part in enumerate(parts):
        yield from [nodes.Text(mark)] * bool(i)
        yield part


class LinkLedgerIds(SphinxTransform):
    """Turn ids in running text into links to the ledger."""

    default_priority = 880

    def apply(self, **kwargs: Any) -> None:
        """Visit every text node of the page."""
        texts = [text for text in self.document.findall(nodes.Text) if ID.search(text)]
        if texts:
            self.env.note_dependency(str(ledger_path(self.env)))
        for text in texts:
            if not in_left_alone(text):
                text.parent.replace(text, list(self.linked(text, rows(ledger_path(self.env)))))

    def linked(self, text: nodes.Text, known: dict[str, Row]) -> Iterator[nodes.Node]:
        """The pieces of a text node, ids as links."""
        plain, end = str(text), 0
        for found in ID.finditer(plain):
            name = found.group()
            if name not in known:
                log.warning("unknown ledger id %s", name, location=text.parent, type="ledger", subtype="unknown")
                continue
            yield nodes.Text(plain[end : found.start()])
            yield reference("std", "ref", anchor(name), name, self.env.docname, classes=["ledger-link"])
            end = found.end()
        yield nodes.Text(plain[end:])


def in_left_alone(node: nodes.Node) -> bool:
    """Whether a text stands in code, a formula, a link or the ledger's own id column."""
    while (node := node.parent) is not None:
        if isinstance(node, LEFT_ALONE) or "ledger-id" in node.get("classes", []):
            return True
    return False


# The directives -------------------------------------------------------------------------------------------------------


class FromData(SphinxDirective):
    """A directive that reads book/ledger.yml or book/errata.yml."""

    has_content = True

    def read(self, name: str) -> Any:
        """What the file holds, noted as what the page depends on."""
        path = Path(self.env.srcdir) / "book" / name
        self.env.note_dependency(str(path))
        return contents(path)

    def inline(self, text: str) -> list[nodes.Node]:
        """The nodes of a line of text."""
        return self.state.inline_text(text.strip(), self.lineno)[0]

    def block(self, text: str) -> list[nodes.Node]:
        """The nodes of some lines of text."""
        box = nodes.container()
        self.state.nested_parse(StringList(text.splitlines(), self.name), 0, box)
        return box.children


class LedgerTable(FromData):
    """The rows of one group: id, statement, and where it is derived, implemented, tested and recorded."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """The table's nodes."""
        chapters = [*(Path(self.env.srcdir) / "chapters").glob("*.ipynb")]
        for source in chapters:
            self.env.note_dependency(str(source))
        self.stated = statements(*chapters)
        wanted = [group for group in self.read("ledger.yml") if group["key"] == self.arguments[0]]
        if not wanted:
            raise self.error(f"the ledger has no group {self.arguments[0]}")
        titles = ("id", "statement; under it, what stands behind it")
        group = nodes.tgroup("", *(nodes.colspec(colwidth=width) for width in (14, 86)), cols=2)
        group += nodes.thead("", nodes.row("", *(nodes.entry("", nodes.paragraph(text=text)) for text in titles)))
        group += nodes.tbody("", *map(self.table_row, wanted[0]["rows"]))
        return [nodes.table("", group, classes=["ledger"])]

    def table_row(self, row: Row) -> nodes.row:
        """One row, with the target that ids link to."""
        name, stated = anchor(row["id"]), self.stated.get(row["id"], [])
        label = nodes.paragraph("", "", nodes.strong(text=row["id"]), classes=["ledger-id"], ids=[name], names=[name])
        self.state.document.note_explicit_target(label)
        statement = nodes.paragraph("", "", *self.inline(row["statement"]))
        places = nodes.paragraph("", "", *joined(self.places(row, stated), "  ·  "), classes=["ledger-where"])
        line = {"line": standing(row, stated), "line_class": "ledger-where"}
        where = folded("", places, **line, classes=["ledger-fold"])
        return nodes.row("", nodes.entry("", label), nodes.entry("", statement, where))

    def places(self, row: Row, stated: list[str]) -> Iterator[nodes.Node]:
        """Chapter, numbered statements, functions, tests, and the folders of records; or why there is none."""
        docname, chapter = self.env.docname, f"Chapter {row['chapter']}"
        for section in named(row, "section"):
            yield reference("std", "ref", section, chapter, docname)
        if not named(row, "section"):
            yield nodes.Text(chapter if stated else f"{chapter} (planned)")
        for label in stated:
            yield from self.inline(f"{{prf:ref}}`{label}`")
        for name in named(row, "functions"):
            yield reference("py", "obj", name, name.removeprefix("geolib."), docname)
        for name in named(row, "tests"):
            yield link_to_test(self.config, name)
        record, results = row.get("record", []), ledger_path(self.env).parent / "results"
        if isinstance(record, str) and not record.endswith(".json"):
            yield nodes.Text("record planned" if record == "planned" else f"record: {record}")
            return
        files = {results / name for name in named(row, "record") if name.endswith(".json")}
        files |= {path for name in named(row, "record") for path in (results / name).glob("*.json")}
        for folder, count in Counter(path.parent.name for path in sorted(files)).items():
            shown = f"{folder}: {count} {'record' if count == 1 else 'records'}"
            yield in_repository(self.config, "tree", f"book/results/{folder}", shown)


BOX = """\
:::{{admonition}} What was proved
:class: proved dropdown
{}

All rows: {{doc}}`/book/ledger`.
:::"""
TITLES = "| ledger | statement | derived in | function | test |\n|---|---|---|---|---|\n"
COMPUTED = "\n\nNo theorem stands behind these rows: a computation, a definition or a record does.\n\n"


class Proved(FromData):
    """``proved``: a chapter's rows of the ledger, folded."""

    def run(self) -> list[nodes.Node]:
        """The folded table."""
        number, chapter = re.match(r"chapters/(\d+)_", self.env.docname), Path(self.env.doc2path(self.env.docname))
        if number is None:
            raise self.error("proved: this page is no chapter")
        ledger = {row["id"]: row for group in self.read("ledger.yml") for row in group["rows"]}
        try:
            found = proved(ledger, int(number[1]), statements(chapter), self.content)
        except ValueError as problem:
            raise self.error(f"proved: {problem}") from problem
        lines: dict[bool, list[str]] = {True: [], False: []}
        for ledger_id, labels in found.items():
            lines[is_proved(labels)].append(self.line(ledger[ledger_id], labels))
        proofs, others = (TITLES + "\n".join(lines[kind]) if lines[kind] else "" for kind in (True, False))
        return self.block(BOX.format(proofs + (COMPUTED + others if others else "")))

    def line(self, row: Row, labels: list[str]) -> str:
        """A row's line of the table."""
        derived = [f"{{prf:ref}}`{label}`" for label in labels]
        derived = derived or [f"{{ref}}`{section}`" for section in named(row, "section")]
        functions = [f"`{name.split('.')[-1]}`" for name in named(row, "functions")]
        tests = [name.partition("::test_")[2].replace("_", " ") for name in named(row, "tests")]
        statement = row["statement"].strip().replace("|", r"\|")
        cells = (row["id"], statement, ", ".join(derived), ", ".join(functions), "; ".join(tests))
        return f"| {' | '.join(cells)} |"


class Errata(FromData):
    """The entries of one paper and one kind: id and place, quotation, finding, tests."""

    required_arguments = 2

    def run(self) -> list[nodes.Node]:
        """A definition list."""
        paper, kind = self.arguments
        entries = self.read("errata.yml")["entries"]
        chosen = [each for each in entries if each["id"].split("-")[0] == paper and each["kind"] == kind]
        if not chosen:
            raise self.error(f"no entries of {paper} {kind}")
        return [nodes.definition_list("", *map(self.entry, chosen), classes=["errata"])]

    def entry(self, entry: dict[str, Any]) -> nodes.definition_list_item:
        """One entry; the finding of one that is a matter of record, and not computed, cites it."""
        term = nodes.term("", "", *self.inline(f"{entry['id']}, {entry['place']}"))
        words = [nodes.paragraph("", "", *self.inline(each["quote"])) for each in entry["words"]]
        parts = [nodes.block_quote("", each, classes=["quotation"]) for each in words]
        parts.append(nodes.paragraph("", "", *self.inline(entry["finds"])))
        if tests := [link_to_test(self.config, name) for name in named(entry, "shown")]:
            parts.append(nodes.paragraph("", "Shown by: ", *joined(tests, "  ·  "), classes=["ledger-where"]))
        return nodes.definition_list_item("", term, nodes.definition("", *parts))


class Version(FromData):
    """Which version of a paper the book reads."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """One paragraph."""
        for source in self.read("errata.yml")["sources"]:
            if source["key"] == self.arguments[0]:
                return [nodes.paragraph("", "", *self.inline(f"We read: {source['version']}"))]
        raise self.error(f"no source {self.arguments[0]}")


# Letters ------------------------------------------------------------------------------------------------------------

SYMBOLS = """\
:::{{admonition}} Symbols of this chapter
:class: symbols dropdown
| symbol | meaning |
|---|---|
{}

All letters: {{doc}}`/book/notation`.
:::"""


def rows_of(text: str) -> Iterator[tuple[str, str]]:
    """(symbol, meaning) for each symbol in a text's tables of symbols; ValueError for a row that hides one."""
    for table in re.findall(r"(?m)^\| *symbol *\| *meaning *\|.*\n((?:\|.*\n?)*)", text):
        for line in [line for line in table.splitlines() if not re.fullmatch(r"[|\-: ]+", line)]:
            symbols, meanings = (cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:3])
            # Semicolons outside formulas are between meanings.
            each = [part.strip() for part in re.findall(r"(?:\$[^$]*\$|[^;$])+", meanings)]
            if len(symbols.split(";")) != len(each):
                raise ValueError(f"as many meanings as symbols, with semicolons between: {line}")
            yield from zip(map(bare, symbols.split(";")), each)


def bare(symbol: str) -> str:
    """A symbol without dollars and spaces: one alone, in its own dollars."""
    found = re.fullmatch(r"\$([^$]+)\$", symbol.strip())
    if not found or re.search(r",|\\[;,]", re.sub(r"[_^]\{[^}]*\}|\([^)]*\)", "", found[1])):
        raise ValueError(f"one symbol in dollars, with semicolons between several: {symbol.strip()}")
    return re.sub(r"\s", "", found[1])


def names_of(said: str) -> list[str]:
    """The letters that a chapter names, as it writes them."""
    return [each.strip() for each in said.split(";") if each.strip()]


class Symbols(FromData):
    """``symbols``: the letters of the notation page by name; in the body a table of the chapter's own."""

    optional_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """The folded table; a letter that the page does not have is told."""
        path = Path(self.env.srcdir) / "book" / "notation.md"
        self.env.note_dependency(str(path))
        page, rows = dict(rows_of(path.read_text("utf-8"))), []
        for name in names_of(" ".join(self.arguments)):
            if bare(name) not in page:
                raise self.error(f"symbols: {name} is not on the notation page; give it a row below")
            rows.append(f"| {name} | {page[bare(name)]} |")
        return self.block(
            SYMBOLS.format("\n".join([*rows, *(line for line in self.content if line.startswith("| $"))]))
        )


def setup(app: Sphinx) -> dict[str, object]:
    """Register the directives and the transform."""
    directives = {"ledger-table": LedgerTable, "proved": Proved, "errata": Errata, "version-read": Version}
    directives |= {"symbols": Symbols}
    for name, directive in directives.items():
        app.add_directive(name, directive)
    app.add_transform(LinkLedgerIds)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
