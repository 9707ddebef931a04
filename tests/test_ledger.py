"""The ledger keeps its word: every row is well formed and everything it names exists."""

import ast
import importlib
import json
import re
from pathlib import Path

import ledger
import pytest
from explorable_kit import REPOSITORY, text_of

PATH = REPOSITORY / "book" / "ledger.yml"
ROWS = ledger.rows(PATH)
FIELDS = {"id", "statement", "chapter", "section", "functions", "tests", "record"}

# Every item of the sources, written once more, so that no row gets lost.
ITEMS = {
    "RF": "PE PT 1 2 3 4 5 6 6a 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 S A1 A2 A3 A4 A5 T1 FLAT",
    "CS": "k att rec chunk rot Rk P1 1 gate P2 beta conf 2 P3 3 A1 size cost F1 F2 F3 F4",
    "LR": "1 2 A1 A2 blk par B5 T1 T2 T3 T4 T5 T6 F2 F3b F4a F4b cfg 3D lin",
    "NT": "1 2 3 4",
}
FINDINGS = "RF-REFL RF-ORIGIN RF-INV RF-FUSED RF-TURN RF-RANK CS-WORDS CS-FUSED CS-GATE0 CS-N CS-CROSS"
FINDINGS += " CS-REACH LR-INIT LR-SHIFT LR-CODE"


def named(field):
    """(id, name) for each name in a field of any row."""
    return [(row["id"], name) for row in ROWS.values() for name in ledger.named(row, field)]


def labels_in(text):
    """The labels of sections, and of statements, exercises and figures."""
    return set(re.findall(r"(?m)^\(([\w-]+)\)=", text)) | set(re.findall(r"(?m)^:(?:label|name): ([\w-]+)", text))


def test_the_ledger_has_every_item_of_its_sources_once():
    groups = {group["key"]: [row["id"] for row in group["rows"]] for group in ledger.contents(PATH)}
    assert all(name.startswith("BK-") for name in groups.pop("BK", []))  # of chapters beyond the papers
    wanted = {key: [f"{key}-{item}" for item in items.split()] for key, items in ITEMS.items()}
    assert groups == wanted | {"findings": FINDINGS.split()}
    anchors = [ledger.anchor(name) for names in groups.values() for name in names]
    assert len(anchors) == len(set(anchors))


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_a_row_is_well_formed(row):
    assert FIELDS >= row.keys() >= {"id", "statement", "chapter"}
    assert ledger.ID.fullmatch(row["id"])
    assert row["statement"].strip().endswith(".")
    assert row["statement"].count("$") % 2 == 0
    assert 1 <= row["chapter"] <= max(14, len(list((REPOSITORY / "chapters").glob("*.ipynb"))))
    for field in ("functions", "tests"):
        value = row.get(field, "planned")
        assert value == "planned" or (isinstance(value, list) and value)
    if re.fullmatch(r"(RF|CS|LR)-[TF]\d\w?", row["id"]):
        assert "record" in row, "a table or figure says where its record is"


def test_functions_that_the_ledger_names_exist_and_have_an_api_page():
    pages = "\n".join(path.read_text("utf-8") for path in (REPOSITORY / "book" / "api").glob("*.md"))
    whole = set(re.findall(r"automodule:: (\S+)\n +:members:", pages))
    alone = set(re.findall(r"auto(?:class|function):: (\S+)", pages))
    for ledger_id, name in named("functions"):
        module, _, attribute = name.rpartition(".")
        assert callable(getattr(importlib.import_module(module), attribute, None)), f"{ledger_id}: no {name}"
        assert module in whole or name in alone, f"{ledger_id}: {name} is on no page of the library"


def test_tests_that_the_ledger_and_the_errata_name_exist():
    known = {
        f"tests/{path.name}::{node.name}"
        for path in (REPOSITORY / "tests").glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef)
    }
    errata = ledger.contents(REPOSITORY / "book" / "errata.yml")["entries"]
    wanted = [*named("tests"), *((entry["id"], name) for entry in errata for name in entry["shown"])]
    assert [f"{ledger_id}: {name}" for ledger_id, name in wanted if name not in known] == []


def words_of(node):
    """The names in a piece of code: variables, attributes, arguments, and strings that may be a method's."""
    found = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    found |= {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}
    found |= {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)}
    return found | {str(each.value) for each in ast.walk(node) if isinstance(each, ast.Constant)}


def definitions(paths):
    """The names in each function, class and constant of some files, by what it is called."""
    found = {}
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            called = [node.name] if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
            called += [each.id for each in getattr(node, "targets", []) if isinstance(each, ast.Name)]
            called += [node.asname] if isinstance(node, ast.alias) and node.asname else []
            words = {node.name} if isinstance(node, ast.alias) else words_of(node) if called else set()
            for name in called:
                found.setdefault(name, set()).update(words)
    return found


LIBRARY = definitions((REPOSITORY / "geolib").rglob("*.py"))
HELPERS = definitions(path for path in (REPOSITORY / "tests").glob("*.py") if not path.name.startswith("test_"))


@pytest.mark.parametrize("path", sorted({name.partition("::")[0] for _, name in named("tests")}))
def test_a_test_exercises_what_its_rows_are_about(path):
    """It names a row's function, itself or in what it calls first; or the row beside its own name."""
    text, own, astray = (REPOSITORY / path).read_text("utf-8"), definitions([REPOSITORY / path]), []
    for ledger_id, name in [(row, name.partition("::")[2]) for row, name in named("tests") if name.startswith(path)]:
        wanted = {each.rpartition(".")[2] for each in ledger.named(ROWS[ledger_id], "functions")}
        reached, open_ = set(), {name}
        while open_:  # among the file's own helpers
            reached |= open_
            open_ = set().union(*(own.get(each, ()) for each in open_)) - reached
        for more in (HELPERS, LIBRARY):
            reached |= set().union(*(more.get(each, ()) for each in reached))
        beside = re.search(rf"def {name}\([^\n]*#[^\n]*\b{ledger_id}\b", text)
        if wanted and not wanted & reached and not beside:
            astray.append(f"{ledger_id}: {name}")
    assert astray == []


def test_sections_that_the_ledger_names_stand_in_their_chapters():
    for row in ROWS.values():
        (notebook,) = (REPOSITORY / "chapters").glob(f"{row['chapter']:02d}_*.ipynb")
        section = row.get("section", "planned")
        assert section == "planned" or section in labels_in(text_of(notebook)), f"{row['id']}: no label {section}"


def test_the_ledger_finds_the_statements_that_name_a_row(tmp_path):
    text = """A paragraph on RF-1.

:::{prf:theorem} Named
:label: thm-a
(RF-9, RF-16 to RF-18) For all $q$.
:::

:::{prf:proof}
By CS-P1.
:::

::::{prf:lemma}
:label: lem-b
:::{note}
RF-9 again.
:::
::::
"""
    (tmp_path / "01_one.ipynb").write_text(json.dumps({"cells": [{"cell_type": "markdown", "source": [text]}]}))
    found = ledger.statements(tmp_path / "01_one.ipynb")
    assert found == {"RF-9": ["thm-a", "lem-b"], "RF-16": ["thm-a"], "RF-17": ["thm-a"], "RF-18": ["thm-a"]}
    of_the_book = ledger.statements(*(REPOSITORY / "chapters").glob("*.ipynb"))
    assert set(of_the_book) <= set(ROWS)
    assert len(of_the_book) >= 10


BODY = re.compile(r"(?ms)^:::\{proved\}\n(.*?)^:::$")


@pytest.mark.parametrize(
    "path", sorted((REPOSITORY / "chapters").glob("[0-9][0-9]_*.ipynb")), ids=lambda path: path.stem
)
def test_what_a_chapter_proved_has_its_rows_and_its_own_statements(path):
    text = text_of(path)
    for body in BODY.findall(text):
        lines = body.splitlines()
        assert {label for line in lines for label in line.split()[1:]} <= labels_in(text)
        stated = ledger.statements(path)
        shown = ledger.proved(ROWS, int(path.stem[:2]), stated, lines)
        assert shown
        assert list(shown) == [ledger_id for ledger_id in ROWS if ledger_id in shown]
        assert set(stated) <= set(shown)
        for labels in shown.values():
            assert len(labels) == len(set(labels)), "a statement that names its row needs no line"


def test_a_chapter_proved_what_it_names_what_is_its_own_and_what_it_adds():
    rows = {
        "RF-1": {"chapter": 4, "section": "here"},
        "RF-2": {"chapter": 5},
        "RF-3": {"chapter": 5, "section": "there"},
        "RF-4": {"chapter": 4},
    }
    found = ledger.proved(rows, 4, {"RF-2": ["thm-a"], "XY-1": ["thm-b"]}, ["RF-2 thm-c", "RF-3"])
    assert found == {"RF-1": [], "RF-2": ["thm-a", "thm-c"], "RF-3": []}
    with pytest.raises(ValueError, match="RF-9"):
        ledger.proved(rows, 4, {}, ["RF-9 thm-a"])


def test_records_that_the_ledger_names_exist():
    for row in ROWS.values():
        record = row.get("record", "planned")
        if isinstance(record, str) and not record.endswith(".json"):
            continue  # why there is none
        for name in [record] if isinstance(record, str) else record:
            path = REPOSITORY / "book" / "results" / name
            assert path.is_file() or any(path.glob("*.json")), f"{row['id']}: no record {name}"


def test_ids_in_the_library_and_its_tests_are_in_the_ledger():
    files = {*(REPOSITORY / "geolib").rglob("*.py"), *(REPOSITORY / "tests").glob("*.py")} - {Path(__file__).resolve()}
    named = {(path.name, name) for path in files for name in ledger.ID.findall(path.read_text("utf-8"))}
    unknown = {(file, name) for file, name in named if name not in ROWS}
    assert unknown <= {("test_site_build.py", "RF-99")}  # its tiny book holds an unknown id on purpose
