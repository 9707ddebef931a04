"""What the page "How this was built" tells in numbers, counted while the site is made.

- The role ``counted`` puts a number into a sentence: ``{counted}`planted errors` ``; the names are those of ``COUNTS``.
- ``made-table`` is one of the tables of ``TABLES``.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import times
import yaml
from docutils import nodes
from docutils.parsers.rst.states import Inliner
from ledger import rows
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

REPOSITORY = Path(__file__).resolve().parents[2]
TESTS = REPOSITORY / "tests"
STATEMENT = re.compile(r"\{prf:(?:theorem|proposition|lemma|corollary)\}")
LIBRARY = "library"  # the errors planted there, not for a page
Row = Sequence[str]

# What there is to count -----------------------------------------------------------------------------------------------


@cache
def notebooks() -> dict[str, list[dict[str, Any]]]:
    """The cells of each page whose checks have planted errors."""
    names = {path.stem for path in (TESTS / "planted").glob("*.json")} - {LIBRARY}
    pages = {name: REPOSITORY / "chapters" / f"{name}.ipynb" for name in names}
    found = {name: path if path.exists() else REPOSITORY / "book" / path.name for name, path in pages.items()}
    return {name: json.loads(found[name].read_text("utf-8"))["cells"] for name in sorted(found)}


def statements(cells: list[dict[str, Any]]) -> int:
    """The numbered statements of a page that have a proof."""
    return sum(len(STATEMENT.findall("".join(c["source"]))) for c in cells if c["cell_type"] == "markdown")


def checks(cells: list[dict[str, Any]]) -> int:
    """The cells of a page that check one of them."""
    return sum("check" in cell["metadata"].get("tags", []) for cell in cells)


@cache
def planted(name: str) -> list[dict[str, Any]]:
    """The errors planted for a page, each with the assertion that caught it."""
    return json.loads((TESTS / "planted" / f"{name}.json").read_text("utf-8"))


@cache
def mutants() -> list[dict[str, Any]]:
    """The records of mutation testing, a module each."""
    return [json.loads(p.read_text("utf-8")) for p in sorted((TESTS / "mutation" / "records").glob("*.json"))]


@cache
def runs() -> list[dict[str, Any]]:
    """The records of training runs."""
    paths = sorted((REPOSITORY / "book" / "results").glob("*/*.json"))
    return [json.loads(path.read_text("utf-8")) for path in paths if path.parent.name != "bench"]


@cache
def functions(pattern: str) -> int:
    """The test functions in files of that name."""
    trees = [ast.parse(path.read_text("utf-8")) for path in TESTS.glob(pattern)]
    return sum(isinstance(n, ast.FunctionDef) and n.name.startswith("test_") for tree in trees for n in ast.walk(tree))


def refusals() -> int:
    """The checks of arguments in the library's mathematics."""
    sys.path.insert(0, str(TESTS))
    try:
        import refusals

        return len(refusals.checks())
    finally:
        sys.path.remove(str(TESTS))


def methods() -> int:
    """Methods and wrappers of the registry."""
    from geolib.encodings import METHODS, WRAPPERS

    return len(METHODS) + len(WRAPPERS)


def total(of: Callable[[Any], int], things: Sequence[Any] | dict[str, Any]) -> int:
    """The sum over things, or over the values of a dictionary."""
    return sum(map(of, things.values() if isinstance(things, dict) else things))


COUNTS: dict[str, Callable[[], int]] = {
    "statements": lambda: total(statements, notebooks()),
    "checks": lambda: total(checks, notebooks()),
    "planted errors": lambda: total(lambda name: len(planted(name)), list(notebooks())),
    "planted errors caught": lambda: total(lambda name: sum(bool(e["caught"]) for e in planted(name)), [*notebooks()]),
    "library's errors": lambda: len(planted(LIBRARY)),
    "library's errors found at first": lambda: sum(bool(error["first"]) for error in planted(LIBRARY)),
    "library's errors found": lambda: sum(bool(error["now"]) for error in planted(LIBRARY)),
    "ledger rows": lambda: len(rows(REPOSITORY / "book" / "ledger.yml")),
    "tests": lambda: functions("test_*.py"),
    "tests of pages": lambda: functions("test_site.py"),
    "methods": methods,
    "refusals": refusals,
    "mutants": lambda: total(lambda record: record["mutants"] - record["waits"], mutants()),
    "mutants found": lambda: total(lambda record: record["killed"] + record["endless"], mutants()),
    "mutants that survive": lambda: total(lambda record: record["survived"], mutants()),
    "mutants that wait": lambda: total(lambda record: record["waits"], mutants()),
    "mutants' confidence": lambda: round(100 * mutants()[0]["confidence"]),
    "runs": lambda: len(runs()),
    "experiments": lambda: len({run["experiment"] for run in runs()}),
    "hours": lambda: round(sum(run["wall_seconds"] for run in runs()) / 3600),
}


# Tables ---------------------------------------------------------------------------------------------------------------


def planted_rows() -> list[Row]:
    """A row for each page: statements, cells that check, errors planted, and how many a check caught."""
    return [
        (
            re.sub("[_-]", " ", name.removeprefix("0")),
            str(statements(cells)),
            str(checks(cells)),
            str(len(planted(name))),
            str(sum(bool(error["caught"]) for error in planted(name))),
        )
        for name, cells in notebooks().items()
    ]


def library_rows() -> list[Row]:
    """A row for each room of the library: errors planted, found at the first try, and found now; then their sums."""
    rooms: dict[str, list[dict[str, Any]]] = {}
    for error in planted(LIBRARY):
        rooms.setdefault(error["room"], []).append(error)
    rooms["all"] = planted(LIBRARY)
    found = {
        when: {room: sum(bool(e[when]) for e in each) for room, each in rooms.items()} for when in ("first", "now")
    }
    return [(room, str(len(rooms[room])), str(found["first"][room]), str(found["now"][room])) for room in rooms]


def mutant_rows() -> list[Row]:
    """A row for each module whose mutants have been worked on."""
    return [
        (
            record["module"],
            str(record["mutants"] - record["waits"]),
            str(record["killed"] + record["endless"]),
            str(record["survived at first"]),
            str(record["survived"]),
            str(record["changes nothing"]),
            score(record),
            str(record["waits"]),
        )
        for record in mutants()
    ]


def score(record: dict[str, Any]) -> str:
    """The percentage found of the mutants that change anything; of a sample, the range for the whole module."""
    if record["interval"] is None:
        return f"{100 * record['score']:.1f}"
    low, high = record["interval"]
    return f"{100 * low:.0f} to {100 * high:.0f}"


def machine_rows() -> list[Row]:
    """A row for each machine that made records of runs."""
    count, seconds = Counter(run["device"] for run in runs()), Counter[str]()
    for run in runs():
        seconds[run["device"]] += run["wall_seconds"]
    return [(device, str(number), f"{seconds[device] / 3600:.1f}") for device, number in count.most_common()]


@cache
def measured(site: str) -> dict[str, Any]:
    """What tests/measure_site.py found: of the site now, and of the site as it was before."""
    return json.loads((TESTS / "site" / f"{site}.json").read_text("utf-8"))


def page_rows() -> list[Row]:
    """A row for each page of the site, with what an earlier state of it had before the arrow; times of one machine."""
    before, now = measured("before"), measured("now")
    other = {} if before["device"] == now["device"] else {"work"}
    earlier = {name: {k: v for k, v in page.items() if k not in other} for name, page in before["pages"].items()}
    return [(name.removesuffix(".html"), *page_cells(earlier.get(name), page)) for name, page in now["pages"].items()]


def page_cells(before: dict[str, Any] | None, now: dict[str, Any]) -> list[str]:
    """A page's numbers as they are shown."""
    states = [{**each, "cut": sum(each[key] for key in CUT)} for each in (before, now) if each]
    shown = {key: [form.format(each[key]) for each in states if key in each] for key, form in SHOWN.items()}
    return [" → ".join(dict.fromkeys(values)) for values in shown.values()]


@cache
def measured_chapters(state: str) -> dict[str, Any]:
    """What tests/measure_book.py found of the chapters: as they were before, and now."""
    path = TESTS / "site" / f"book-{state}.json"
    return json.loads(path.read_text("utf-8")) if path.is_file() else {}


def chapter_rows() -> list[Row]:
    """A row for each chapter, counted now, with what it was before; heights of pages as they were measured last."""
    before, heights = measured_chapters("before"), measured_chapters("now")
    paths = sorted((REPOSITORY / "chapters").glob("[0-9][0-9]_*.ipynb"))
    lines = {path.stem: times.numbers(times.cells_of(path)) for path in paths}
    for name, line in lines.items():
        line |= {key: heights[name][key] for key in ("screens", "code") if key in heights.get(name, {})}
    made = [(name[:2].lstrip("0"), *chapter_cells(before.get(name), line)) for name, line in lines.items()]
    both = [total_of(states) for states in ([*before.values()], [*lines.values()]) if states]
    return [*made, ("all", *chapter_cells(both[0] if len(both) > 1 else None, both[-1]))]


def total_of(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """The sums over chapters; of the share of code, by the pages' heights."""
    summed = {key: sum(line[key] for line in lines) for key in CHAPTER if all(key in line for line in lines)}
    if "screens" in summed and "code" in summed:
        summed["code"] = sum(line["code"] * line["screens"] for line in lines) / summed["screens"]
    return summed


def chapter_cells(before: dict[str, Any] | None, now: dict[str, Any]) -> list[str]:
    """A chapter's numbers as they are shown."""
    states = [each for each in (before, now) if each]
    shown = [[form(each[key]) for each in states if key in each] for key, form in CHAPTER.items()]
    return [" → ".join(dict.fromkeys(values)) for values in shown]


CHAPTER: dict[str, Callable[[Any], str]] = {
    **dict.fromkeys(("words", "cells", "lines"), "{:.0f}".format),
    **dict.fromkeys(("read", "proofs", "exercises"), lambda minutes: f"{minutes / 60:.1f}"),
    **dict.fromkeys(("screens", "code"), "{:.0f}".format),
}


def house_rows() -> list[Row]:
    """A row for each part of the library, with what an earlier state of it had before the arrow."""
    before, now = measured("house-before"), measured("house-now")
    return [(name, *(_arrow(before[name][key], part[key]) for key in HOUSE)) for name, part in now.items()]


def _arrow(*states: float) -> str:
    return " → ".join(dict.fromkeys(f"{state:g}" for state in states))


HOUSE = (
    *("files", "code", "docstring", "comment", "functions", "median body", "names", "used"),
    *("files entered", "functions entered"),
)
CUT = ("cut_390", "cut_1440", "code_390", "code_1440")
SHOWN = {"kB": "{:.0f}", "requests": "{}", "foreign": "{}", "work": "{:.2f}", "tabs": "{}", "cut": "{}", "axe": "{}"}


def cells_of_page(page: str) -> list[dict[str, Any]]:
    """A page's cells of text."""
    cells = times.cells_of(REPOSITORY / f"{page}.ipynb")
    return [cell for cell in cells if cell["cell_type"] == "markdown"]


def title_of(page: str) -> str:
    """A page's title; a chapter's with its number."""
    title = "".join(cells_of_page(page)[0]["source"]).splitlines()[0].removeprefix("# ")
    number = re.match(r"chapters/0?(\d+)_", page)
    return f"{number[1]}. {title}" if number else title


def takeaways(page: str) -> list[str]:
    """The sentences that a page says to take along."""
    text = "\n".join("".join(cell["source"]) for cell in cells_of_page(page))
    block = re.search(r"(?ms)^:class: takeaways\n(.*?)^:::", text)
    return re.findall(r"(?m)^\d\. (.*)", block[1]) if block else []


@cache
def readers() -> dict[str, list[dict[str, Any]]]:
    """What a reader kept of some pages."""
    return yaml.safe_load((REPOSITORY / "book" / "readers.yml").read_text("utf-8"))


def reader_rows() -> list[Row]:
    """A row for each page that a reader held against its takeaways."""
    return [
        (
            title_of(each["page"]),
            f"{len(each['same'])} of {len(takeaways(each['page']))}",
            " ".join(f"({i}) {point}" for i, point in enumerate(each["points"], 1)),
            each["said"],
        )
        for each in readers()["pages"]
    ]


def afternoon_rows() -> list[Row]:
    """A row for each part of the afternoon page."""
    text = "\n".join("".join(cell["source"]) for cell in cells_of_page("book/afternoon"))
    named = dict(re.findall(r"(?m)^\(([\w-]+)\)=\n## (.*)", text))
    return [(named[each["part"]], each["said"], each["use"]) for each in readers()["afternoon"]]


def site_rows() -> list[Row]:
    """A row for each of the two states that were measured."""
    states = {site: measured(site) for site in ("before", "now")}
    return [(site, str(len(made["pages"])), made["device"], made["browser"]) for site, made in states.items()]


TABLES: dict[str, tuple[Row, Callable[[], list[Row]]]] = {
    "planted": (("page", "statements", "cells that check", "errors planted", "caught"), planted_rows),
    "library": (("room", "errors planted", "found at first", "found now"), library_rows),
    "mutants": (
        ("module", "tried", "found", "survived at first", "now", "change nothing", "score, %", "wait"),
        mutant_rows,
    ),
    "chapters": (
        ("", "words", "cells", "open lines", "read", "proofs", "exercises", "screens", "code, %"),
        chapter_rows,
    ),
    "house": (
        ("part", *HOUSE[:6], "public names", "used in the book", "files a run enters", "functions a run enters"),
        house_rows,
    ),
    "pages": (("page", "kB", "requests", "foreign", "seconds", "tab stops", "cut", "axe"), page_rows),
    "sites": (("site", "pages measured", "machine", "browser"), site_rows),
    "readers": (("page", "takeaways kept", "what the reader wrote down", "what differs"), reader_rows),
    "afternoon": (("part", "what it said", "what one would use"), afternoon_rows),
    "machines": (("machine", "runs", "hours"), machine_rows),
}


class MadeTable(SphinxDirective):
    """One of ``TABLES``, by name."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """The table, with its numbers."""
        self.env.note_reread()
        head, lines = TABLES[self.arguments[0]]
        group = nodes.tgroup("", *(nodes.colspec(colwidth=20) for _ in head), cols=len(head))
        group += nodes.thead("", _row(head))
        group += nodes.tbody("", *map(_row, lines()))
        table = nodes.table("", group, classes=["colwidths-auto"])
        return [nodes.container("", table, classes=["wide"]) if len(head) > 8 else table]


def _row(cells: Row) -> nodes.row:
    return nodes.row("", *(nodes.entry("", nodes.paragraph(text=cell)) for cell in cells))


def counted(
    name: str, rawtext: str, text: str, lineno: int, inliner: Inliner, options: object = None, content: object = None
) -> tuple[list[nodes.Node], list[nodes.system_message]]:
    """The number of that name, with thin gaps between thousands."""
    return [nodes.Text(f"{COUNTS[text]():,}".replace(",", "\u202f"))], []


def setup(app: Sphinx) -> dict[str, object]:
    """Register the role and the directive."""
    app.add_role("counted", counted)
    app.add_directive("made-table", MadeTable)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
