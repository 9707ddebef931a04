"""When the book's driver runs chapters again: when a package that the book needs has changed, and not else."""

import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "book"))
import build  # noqa: E402


def test_the_book_needs_its_packages_and_none_of_its_tests():
    assert {"torch", "matplotlib", "jupyter-book", "anywidget"} <= set(build.PACKAGES)
    assert not {"pytest", "playwright", "torchvision", "mypy", "ruff"} & set(build.PACKAGES)


@pytest.mark.parametrize("name", ["EVIDENCE", "PHONE"])
def test_what_changes_outputs_changes_their_stamp(monkeypatch, tmp_path, name):
    monkeypatch.setattr(build, name, tmp_path / "changed.py")
    stamps = []
    for text in ("one", "two"):
        (tmp_path / "changed.py").write_text(text)
        stamps.append(build.library_stamp())
    assert stamps[0] != stamps[1]
