"""Each numbered statement and each finding of a chapter has a check that sees an error planted in a function."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "planted"))
import errors
import plant

NOTEBOOK = {
    "cells": [
        {"cell_type": "code", "id": "setup", "metadata": {}, "source": ["%pip install nothing"]},
        {"cell_type": "code", "id": "imports", "metadata": {}, "source": ["from geolib.lie import commutator"]},
        {
            "cell_type": "markdown",
            "id": "a",
            "metadata": {},
            "source": [":::{prf:lemma} One\n", ":label: lem-one\n:::"],
        },
        {
            "cell_type": "code",
            "id": "first",
            "metadata": {"tags": ["check"]},
            "source": ["one, many = 1, []\n", "many.append(one)\n", "unused = 1 / 0\n", "assert one == 2"],
        },
        {"cell_type": "markdown", "id": "b", "metadata": {}, "source": [":::{prf:theorem}\n", ":label: thm-two\n:::"]},
        {
            "cell_type": "code",
            "id": "second",
            "metadata": {"tags": ["check"]},
            "source": ["total = sum(x for x in many)\n", "assert total == 1"],
        },
        {"cell_type": "markdown", "id": "end", "metadata": {}, "source": ["## Another matter"]},
        {"cell_type": "code", "id": "third", "metadata": {"tags": ["check"]}, "source": ["assert False"]},
    ]
}
CELLS = plant.code_cells(NOTEBOOK)


def test_a_check_belongs_to_the_statement_before_it_and_to_itself():
    assert plant.statements(NOTEBOOK) == ["lem-one", "thm-two"]
    checks = {cell.name: cell.checks for cell in CELLS if cell.checks}
    assert checks == {"first": ("lem-one", "first"), "second": ("thm-two", "second"), "third": ("third",)}


def test_only_what_a_check_needs_is_run_and_only_its_own_assertions_count():
    kept = {cell.name: len(body) for cell, body in plant.needed(CELLS, {"thm-two"})}
    assert kept == {"setup": 1, "imports": 1, "first": 2, "second": 2}
    assert plant.failures(CELLS, {"thm-two"}) == {}
    assert plant.failures(CELLS, {"thm-two", "third"}) == {"third": "third"}
    assert plant.caught(CELLS, {"thm-two"}, "one", errors.twice) == {"thm-two": "second"}
    with pytest.raises(ValueError, match="lem-none"):
        plant.needed(CELLS, {"lem-none"})
    with pytest.raises(ValueError, match="binds 'nothing'"):
        plant.caught(CELLS, {"thm-two"}, "nothing", errors.twice)


def test_a_planted_function_is_taken_out_again():
    from geolib import lie

    right = lie.commutator
    with plant.broken("geolib.lie.commutator", errors.times(-1)):
        assert lie.commutator is not right
    assert lie.commutator is right


def test_every_chapter_has_its_errors():
    assert {*errors.STATEMENTS} == {path.stem for path in plant.chapter_path("01").parent.glob("*.ipynb")} | {
        "how-to-compare"
    }


@pytest.mark.parametrize("chapter", errors.STATEMENTS)
def test_the_checks_of_each_statement_and_finding_see_its_error(chapter):
    notebook = plant.read(chapter)
    labels = plant.statements(notebook)
    assert len(labels) == len(set(labels))
    assert {*labels} == errors.STATEMENTS[chapter].keys()
    checked = {label for cell in plant.code_cells(notebook) for label in cell.checks}
    assert {*labels} <= checked
    assert [(label, path) for label, path, cell in plant.seen(chapter) if not cell] == []
