"""The page that tells how the book was made: its numbers are counted, and the records of mutants add up."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = (REPOSITORY / "book" / "how-built.md").read_text("utf-8")
RECORDS = sorted((REPOSITORY / "tests" / "mutation" / "records").glob("*.json"))


@pytest.fixture
def making(monkeypatch):
    """The extension that counts."""
    monkeypatch.syspath_prepend(str(REPOSITORY / "book" / "_ext"))
    import making

    return making


def test_every_number_and_table_of_the_page_is_counted(making):
    named = re.findall(r"\{counted\}`([^`]+)`", PAGE)
    assert set(named) <= set(making.COUNTS)
    assert all(making.COUNTS[name]() > 0 for name in named)
    tables = re.findall(r"\{made-table\} (\w+)", PAGE)
    assert sorted(tables) == sorted(making.TABLES)
    for name in tables:
        head, lines = making.TABLES[name]
        assert lines(), name
        assert all(len(line) == len(head) for line in lines()), name


def test_no_number_of_the_page_is_typed():
    text = re.sub(r"\{[\w-]+\}`[^`]*`|`[^`]*`|\$[^$]*\$|\([^)]*\)|WCAG\s+2\.2", "", PAGE)
    assert re.findall(r"\b\d+", text) == []


def test_planted_errors_are_counted_where_they_are_caught(making):
    rows = making.planted_rows()
    assert sum(int(row[3]) for row in rows) == making.COUNTS["planted errors"]()
    assert sum(int(row[4]) for row in rows) == making.COUNTS["planted errors caught"]()


def test_errors_planted_in_the_library_are_counted_by_room(making):
    *rows, total = [[int(number) for number in row[1:]] for row in making.library_rows()]
    assert total == [sum(column) for column in zip(*rows)]
    names = ("library's errors", "library's errors found at first", "library's errors found")
    assert total == [making.COUNTS[name]() for name in names]


def test_every_page_of_the_contents_was_measured():
    measured = json.loads((REPOSITORY / "tests" / "site" / "now.json").read_text("utf-8"))["pages"]
    contents = re.findall(r"(?m)^\s*- file: (\S+)", (REPOSITORY / "_toc.yml").read_text("utf-8"))
    missing = {f"{page}.html" for page in contents} - set(measured)
    assert not missing, "measure the site anew: python tests/measure_site.py _build/html --json tests/site/now.json"


def test_a_page_measured_twice_shows_both_numbers_and_one_where_they_agree(making):
    now = dict(zip(("kB", "work", "tabs", *making.CUT, "requests", "foreign", "axe"), range(10, 20), strict=True))
    assert making.page_cells(None, now) == ["10", "17", "18", "11.00", "12", "58", "19"]
    assert making.page_cells(now | {"tabs": 90}, now)[4:6] == ["90 → 12", "58"]


@pytest.mark.parametrize(("device", "work"), [("one", "2.00 → 1.00"), ("another", "1.00")])
def test_seconds_of_two_machines_never_stand_side_by_side(making, monkeypatch, device, work):
    usual = dict.fromkeys(("kB", "tabs", *making.CUT, "requests", "foreign", "axe"), 0)
    sites = {
        "before": {"device": "one", "pages": {"a.html": usual | {"work": 2.0}}},
        "now": {"device": device, "pages": {"a.html": usual | {"work": 1.0}}},
    }
    monkeypatch.setattr(making, "measured", sites.get)
    assert making.page_rows()[0][4] == work


def test_a_chapter_shows_what_it_was_before_and_what_it_is(making):
    lines = making.chapter_rows()
    assert lines[-1][0] == "all"
    before = making.measured_chapters("before")
    assert sum(chapter["words"] for chapter in before.values()) > 90_000
    assert lines[-1][1].startswith("93")
    assert all(chapter["screens"] > 10 and chapter["code"] > 5 for chapter in before.values())
    cells = making.chapter_cells({"words": 10, "read": 90, "screens": 12.0}, {"words": 9, "read": 90})
    assert cells[0] == "10 → 9"
    assert (cells[3], cells[6]) == ("1.5", "12")


def test_a_word_that_is_in_the_index_is_a_word_of_the_text(making):
    marked = "A {index}`chart` is a {index}`map <chart; as a map>` with {term}`metric`."
    assert making.times.counted(marked) == making.times.counted("A chart is a map with metric.")


def test_what_a_reader_kept_is_held_against_sentences_that_the_pages_have(making):
    for each in making.readers()["pages"]:
        assert len(each["points"]) == 3
        assert len(making.takeaways(each["page"])) == 3
        assert set(each["same"]) <= {1, 2, 3}
        assert each["said"].endswith(".")
    parts = [part["part"] for part in making.readers()["afternoon"]]
    assert len(parts) == len(set(parts)) == len(making.afternoon_rows()) >= 10


def test_a_page_with_explorables_is_made_anew_when_their_heights_change(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(REPOSITORY / "book" / "_ext"))
    import explorables

    for text, wanted in (("from geolib.explorables import Live", [str(explorables.HEIGHTS)]), ("plain", [])):
        page, noted = tmp_path / "page.ipynb", []
        page.write_text(text, "utf-8")
        names = {"docname": "page", "doc2path": lambda name, page=page: str(page), "note_dependency": noted.append}
        explorables.depend_on_heights(SimpleNamespace(env=SimpleNamespace(**names)), None)
        assert noted == wanted


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("plain $x$ words", "read"),
        (":::{prf:proof}\nso it is\n:::", "proof"),
        (":::{exercise} One (routine, paper)\n:label: ex\nfind\n:::", "solve"),
        ("::::{admonition} Hint\n:class: tip dropdown\nlook\n::::", "solve"),
        (":::{admonition} Aside: more\n:class: aside dropdown\nmore\n:::", "proof"),
        (":::{symbols} $q$\n| a | b |\n:::", "none"),
        (":::{admonition} Three sentences\n:class: takeaways\n1. one\n:::", "read"),
    ],
)
def test_what_one_reads_proves_and_solves_is_told_apart(making, text, kind):
    inside = [found for found, part in making.times.parts(text) if part.strip()]
    assert set(inside) == {kind}
    spent = making.times.times([{"cell_type": "markdown", "source": text, "metadata": {}}])
    assert all((getattr(spent, each) > 0) == (each == kind) for each in ("read", "proof", "solve"))
    assert spent.solve >= 600 or "routine" not in text


@pytest.mark.parametrize(
    ("minutes", "words"), [(1, "5 minutes"), (63, "65 minutes"), (90, "1½ hours"), (119, "2 hours"), (151, "2½ hours")]
)
def test_a_time_is_said_as_one_says_it(making, minutes, words):
    assert making.times.in_words(60 * minutes) == words


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_the_records_of_mutants_add_up_and_name_what_survives(path):
    record = json.loads(path.read_text("utf-8"))
    kinds = ("killed", "endless", "survived", "changes nothing", "waits")
    assert sum(record[kind] for kind in kinds) == record["mutants"]
    assert len(record["survivors"]) == record["survived"]
    assert sum(record["harmless"].values()) == record["changes nothing"]
    tried = record["killed"] + record["endless"] + record["survived"]
    assert record["score"] == pytest.approx((tried - record["survived"]) / tried, abs=1e-4)
    assert record["module"] == path.stem
