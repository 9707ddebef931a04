"""The page that tells how the book was made: its numbers are counted, and the records of mutants add up."""

import json
import re
from pathlib import Path

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


def test_every_page_of_the_contents_was_measured():
    measured = json.loads((REPOSITORY / "tests" / "site" / "now.json").read_text("utf-8"))["pages"]
    contents = re.findall(r"(?m)^\s*- file: (\S+)", (REPOSITORY / "_toc.yml").read_text("utf-8"))
    missing = {f"{page}.html" for page in contents} - set(measured)
    assert not missing, "measure the site anew: python tests/measure_site.py _build/html --json tests/site/now.json"


def test_a_page_measured_twice_shows_both_numbers_and_one_where_they_agree(making):
    now = dict(zip(("kB", "work", "tabs", *making.CUT, "requests", "foreign", "axe"), range(10, 20), strict=True))
    assert making.page_cells(None, now) == ["10", "17", "18", "11.00", "12", "58", "19"]
    assert making.page_cells(now | {"tabs": 90}, now)[4:6] == ["90 → 12", "58"]


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
