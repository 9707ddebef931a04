"""Each numbered statement and each finding of a chapter has a check that sees an error planted in a function."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "planted"))
import errors
import plant


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
