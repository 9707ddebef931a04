"""The errors planted in the library, statement by statement, and the checks of the chapters that see them.

``python tests/planted/plant.py`` runs them all and writes the records; these tests hold the records to the chapters and
to the library as they are now.
"""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
SPEC = importlib.util.spec_from_file_location("plant", HERE / "planted" / "plant.py")
plant = importlib.util.module_from_spec(SPEC)
sys.modules["plant"] = plant  # dataclasses look their module up
SPEC.loader.exec_module(plant)

CHAPTERS = sorted(path.stem for path in (HERE / "planted").glob("*.yml") if path.stem != plant.LIBRARY)
PAGES = {"how-to-compare"}  # beside the chapters


def chapter(name):
    """A chapter's notebook."""
    return json.loads(plant.chapter_path(name).read_text("utf-8"))


def record(name):
    """What the last run of a chapter's planted errors found."""
    return json.loads((HERE / "planted" / f"{name}.json").read_text("utf-8"))


def test_every_chapter_has_its_list():
    chapters = {path.stem for path in (HERE.parent / "chapters").glob("*.ipynb")}
    assert set(CHAPTERS) == chapters | PAGES


@pytest.mark.parametrize("name", CHAPTERS)
def test_each_statement_has_a_check_and_a_planted_error(name):
    notebook = chapter(name)
    labels = plant.statements(notebook)
    assert len(labels) == len(set(labels))
    checked = {label for cell in plant.code_cells(notebook) for label in cell.checks}
    assert set(labels) == checked
    assert set(labels) == {each["statement"] for each in plant.read_list(name)}


@pytest.mark.parametrize("name", CHAPTERS)
def test_each_planted_error_still_applies(name):
    cells = plant.code_cells(chapter(name))
    for each in plant.read_list(name):
        assert ("module" in each) != ("cell" in each)
        assert {each["statement"]} <= set().union(*(cell.checks for cell in cells))
        plant.planted(cells, each)
        if "module" in each:
            text = (HERE.parent / each["module"]).read_text("utf-8")
            assert plant.replaced(text, each["old"], each["new"], each["module"]) != text


@pytest.mark.parametrize("name", CHAPTERS)
def test_the_record_is_of_these_planted_errors_and_these_cells(name):
    found = record(name)
    assert [{key: value for key, value in each.items() if key != "caught"} for each in found] == plant.read_list(name)
    cells = {cell.name: cell for cell in plant.code_cells(chapter(name))}
    for each in found:
        caught = each["caught"]
        assert caught, f"no check sees {each['statement']}, {each['breaks']}"
        assert each["statement"] in cells[caught["cell"]].checks
        assert caught["line"] in cells[caught["cell"]].text or each.get("cell") == caught["cell"]


# The library's own list -----------------------------------------------------------------------------------------------


def test_each_error_planted_in_the_library_still_applies_and_names_tests_that_are_there():
    plants = plant.read_list(plant.LIBRARY)
    assert len(plants) == len({plant.told(each) for each in plants})
    for each in plants:
        assert set(each) - {"only"} == {"room", "breaks", "module", "old", "new", "tests"}
        text = (HERE.parent / each["module"]).read_text("utf-8")
        assert plant.replaced(text, each["old"], each["new"], each["module"]) != text
        assert all((HERE / f"{test}.py").is_file() for test in each["tests"])


def test_the_librarys_record_is_of_these_errors_and_all_are_found_now():
    found = record(plant.LIBRARY)
    kept = [{key: value for key, value in each.items() if key not in ("first", "now")} for each in found]
    assert kept == plant.read_list(plant.LIBRARY)
    assert [each["breaks"] for each in found if not each["now"]] == []
    assert [each["now"] for each in found if not plant.stands(each["now"])] == []


def test_the_first_test_that_fails_is_told(tmp_path):
    (tmp_path / "tests").mkdir()
    text = "def test_one():\n    pass\n\ndef test_two():\n    assert not 1\n\ndef test_three():\n    assert not 1\n"
    (tmp_path / "tests" / "test_made.py").write_text(text, "utf-8")
    assert plant.first_failure(tmp_path, ["tests"]) == "tests/test_made.py::test_two"
    assert plant.first_failure(tmp_path, ["tests/test_made.py"], "three") == "tests/test_made.py::test_three"
    assert plant.first_failure(tmp_path, ["tests/test_made.py"], "one") is None
    assert plant.first_failure(tmp_path, ["tests/test_made.py"], "four") is None  # no test is none that fails


# The script itself, on cells made up for it ---------------------------------------------------------------------------

NOTEBOOK = {
    "cells": [
        {"cell_type": "code", "id": "setup", "metadata": {}, "source": ["%pip install nothing"]},
        {
            "cell_type": "code",
            "id": "imports",
            "metadata": {},
            "source": ["import torch\n", "from geolib import rotations"],
        },
        {
            "cell_type": "markdown",
            "id": "one",
            "metadata": {},
            "source": [":::{prf:lemma} One\n", ":label: lem-one\n", ":::"],
        },
        {
            "cell_type": "code",
            "id": "first",
            "metadata": {"tags": ["check"]},
            "source": ["one = 1\n", "assert one == 2"],
        },
        {"cell_type": "code", "id": "unused", "metadata": {}, "source": ["raise SystemError"]},
        {
            "cell_type": "markdown",
            "id": "two",
            "metadata": {},
            "source": [":::{prf:theorem} Two\n", ":label: thm-two\n", ":::"],
        },
        {
            "cell_type": "code",
            "id": "second",
            "metadata": {"tags": ["check"]},
            "source": [
                "turn = lambda a: rotations.rotation_matrix(torch.tensor(a))[1, 0]\n",
                "assert abs(turn(1.0) - 0.8415) < one / 1000",
            ],
        },
        {"cell_type": "markdown", "id": "end", "metadata": {}, "source": ["## Another matter"]},
        {"cell_type": "code", "id": "third", "metadata": {"tags": ["check"]}, "source": ["assert False"]},
    ]
}
SIGN = {
    "statement": "thm-two",
    "breaks": "the sign",
    "module": "geolib/rotations.py",
    "old": "torch.stack([torch.stack([cos, -sin], -1), torch.stack([sin, cos], -1)], -2)",
    "new": "torch.stack([torch.stack([cos, sin], -1), torch.stack([-sin, cos], -1)], -2)",
}


def test_a_check_belongs_to_the_statement_before_it():
    assert plant.statements(NOTEBOOK) == ["lem-one", "thm-two"]
    checks = {cell.name: cell.checks for cell in plant.code_cells(NOTEBOOK)}
    assert checks == {
        **dict.fromkeys(["setup", "imports", "unused", "third"], ()),
        "first": ("lem-one",),
        "second": ("thm-two",),
    }


def test_only_cells_that_a_check_needs_are_run():
    cells = plant.code_cells(NOTEBOOK)
    assert [cell.name for cell in plant.needed(cells, "thm-two")] == ["setup", "imports", "first", "second"]


def test_a_planted_error_is_seen_by_the_statements_own_check():
    cells = plant.code_cells(NOTEBOOK)
    assert plant.in_copy(cells, "lem-one", None) == {
        "cell": "first",
        "line": "assert one == 2",
        "error": "AssertionError",
    }
    assert plant.in_copy(cells, "thm-two", None) is None
    caught = plant.in_copy(cells, "thm-two", SIGN)
    assert caught == {
        "cell": "second",
        "line": "assert abs(turn(1.0) - 0.8415) < one / 1000",
        "error": "AssertionError",
    }


def test_an_error_in_a_cell_before_the_check_is_told_apart():
    broken = {"statement": "thm-two", "breaks": "all", "cell": "first", "old": "one = 1", "new": "one = 1 / 0"}
    assert plant.in_copy(plant.code_cells(NOTEBOOK), "thm-two", broken)["too early"] == "yes"


def test_a_planted_error_must_occur_once():
    with pytest.raises(ValueError, match="occurs 2 times"):
        plant.replaced("a + a", "a", "b", "there")
    with pytest.raises(ValueError, match="occurs 0 times"):
        plant.replaced("a + a", "c", "b", "there")
    with pytest.raises(ValueError, match="change"):
        plant.replaced("a + b", "a", "a", "there")
