"""When the book's driver runs chapters again: when a package that the book needs has changed, and not else."""

import importlib
import importlib.util
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture
def needed(monkeypatch):
    monkeypatch.syspath_prepend(REPOSITORY / "book")
    spec = importlib.util.spec_from_file_location("build", REPOSITORY / "book" / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.needed_packages.__wrapped__  # anew each time


@pytest.fixture
def install(monkeypatch, tmp_path):
    """Makes an empty package seem installed."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(name, version, *requires):
        for old in tmp_path.glob(f"{name}-*"):
            (old / "METADATA").unlink()
            old.rmdir()
        folder = tmp_path / f"{name}-{version}.dist-info"
        folder.mkdir()
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        (folder / "METADATA").write_text("\n".join([*lines, *(f"Requires-Dist: {each}" for each in requires)]) + "\n")
        importlib.invalidate_caches()

    return make


def test_what_a_requirement_leads_to_is_named_with_its_version(needed, install):
    install("ourbook", "1.0", "ourplot>=2", "ourtests; extra == 'test'", "ourold; python_version < '3'")
    install("ourplot", "2.1", "ourbook[site]", "ourabsent")
    install("ourtests", "5.0")
    install("ourold", "5.0")
    assert needed("ourbook") == ["ourabsent==missing", "ourbook==1.0", "ourplot==2.1"]
    assert needed("ourbook[test]") == ["ourabsent==missing", "ourbook==1.0", "ourplot==2.1", "ourtests==5.0"]


def test_an_extra_asked_for_further_down_counts(needed, install):
    install("ourbook", "1.0", "ourplot")
    install("ourplot", "2.1", "ourcurve[fast]", "ourcurve")
    install("ourcurve", "3.0", "ourspeed; extra == 'fast'")
    install("ourspeed", "0.1")
    assert "ourspeed==0.1" in needed("ourbook")
    install("ourspeed", "0.2")
    assert "ourspeed==0.2" in needed("ourbook")


def test_the_book_needs_no_package_of_its_tests(needed):
    names = {each.split("==")[0] for each in needed()}
    assert {"torch", "matplotlib", "jupyter-book"} <= names
    assert not {"pytest", "playwright", "torchvision", "mypy", "ruff"} & names


@pytest.mark.parametrize("name", ["EVIDENCE", "PHONE"])
def test_what_changes_outputs_changes_their_stamp(monkeypatch, tmp_path, name):
    monkeypatch.syspath_prepend(REPOSITORY / "book")
    build = importlib.import_module("build")
    monkeypatch.setattr(build, "needed_packages", lambda: [])
    monkeypatch.setattr(build, name, tmp_path / "changed.py")
    stamps = []
    for text in ("one", "two"):
        (tmp_path / "changed.py").write_text(text)
        stamps.append(build.library_stamp())
    assert stamps[0] != stamps[1]
