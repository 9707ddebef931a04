"""The book stays one that a person can carry: limits of size, and imports that run downward (pyproject.toml).

What a new feature needs beyond these limits, another gives up.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from geolib.lab import LabError

ROOT = Path(__file__).resolve().parents[1]


def files(*patterns, without=()):
    """The files that match, but for those in these folders."""
    found = {path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file()}
    return {path for path in found if not any(str(path.relative_to(ROOT)).startswith(folder) for folder in without)}


def lines(path):
    return len(path.read_text("utf-8").splitlines())


SCRIPTS = ("book/**/*.py", "book/**/*.js")
LIMITS = {
    "the library without lab and explorables": (
        13_000,
        files("geolib/**/*.py", without=("geolib/lab", "geolib/explorables")),
    ),
    "the lab": (5_559, files("geolib/lab/**/*.py")),
    "the builder of the site": (2_900, files(*SCRIPTS)),
    "the tests": (21_900, files("tests/**/*.py")),
    "lists beside the tests": (100, files("tests/**/*.yml", "tests/**/*.json")),
}


@pytest.mark.parametrize("part", LIMITS)
def test_each_part_keeps_its_limit(part):
    most, paths = LIMITS[part]
    assert paths or part.startswith("lists")
    assert sum(map(lines, paths)) <= most


def test_no_file_is_longer_than_can_be_read_in_one_sitting():
    python = files("geolib/**/*.py", "book/**/*.py", "tests/**/*.py", "release/*.py")
    assert {str(path.relative_to(ROOT)): lines(path) for path in python if lines(path) > 600} == {}


def test_imports_run_downward_and_in_no_circle():
    program = Path(sys.executable).with_name("lint-imports")
    found = subprocess.run([program, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout


def test_a_new_file_among_the_papers_is_found_and_nothing_else_has_to_change(tmp_path, monkeypatch):
    from geolib.lab.experiments import EXPERIMENTS, collected, papers

    lines = ["from dataclasses import replace", "from geolib.lab.experiments.papers.digits import ENCODINGS"]
    (tmp_path / "novelty.py").write_text("\n".join([*lines, 'EXPERIMENTS = (replace(ENCODINGS, name="novelty"),)']))
    monkeypatch.setattr(papers, "__path__", [*papers.__path__, str(tmp_path)])
    assert collected().keys() - EXPERIMENTS.keys() == {"novelty"}
    (tmp_path / "copy.py").write_text("from geolib.lab.experiments.papers.digits import EXPERIMENTS")
    with pytest.raises(LabError, match="two experiments have one name"):
        collected()
