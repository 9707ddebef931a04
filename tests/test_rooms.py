"""The lab's rooms: imports run downward only, and no module imports what imports it."""

import ast
from pathlib import Path

import pytest

import geolib
from geolib.lab import LabError

ROOT = Path(geolib.__file__).parents[1]
LAB = ROOT / "geolib" / "lab"

# From the cellar up: a module imports from its own room and from those before it.
ROOMS = (
    "files", "data", "text_attention", "device", "config", "checkpoint", "capture", "vit", "gpt", "progress", "train",
    "records", "probes", "experiments", "runner", "cluster", "benches",
)  # fmt: skip
# Above all rooms, imported by none of them: the front and the command line.
ABOVE = ("", "__main__")


def modules(folder, package):
    """From a module's name to its file."""
    names = {}
    for path in folder.rglob("*.py"):
        parts = path.relative_to(folder).with_suffix("").parts
        names[".".join((package, *(part for part in parts if part != "__init__")))] = path
    return names


def imported(path, known):
    """The known modules that a file imports anywhere in it, also for types alone or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            below = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= below & known.keys() | ({node.module} if below - known.keys() else set())
    return found & known.keys()


def graph_of(folder, package):
    """From each module to those that it imports."""
    known = modules(folder, package)
    return {name: imported(path, known) - {name} for name, path in known.items()}


def room_of(name):
    return name.removeprefix("geolib.lab").lstrip(".").partition(".")[0]


def a_circle(graph):
    """The modules of one circle of imports, in order, or nothing."""
    done = set()

    def walk(name, way):
        if name in way:
            return way[way.index(name) :]
        if name in done:
            return []
        found = next((c for c in (walk(other, [*way, name]) for other in sorted(graph[name])) if c), [])
        done.add(name)
        return found

    return next((c for c in (walk(name, []) for name in sorted(graph)) if c), [])


def lines(paths):
    """The lines of files, all of them counted."""
    return sum(len(path.read_text("utf-8").splitlines()) for path in paths)


def test_the_lab_stays_one_that_a_person_can_carry():
    """What a new feature needs beyond these limits, another gives up."""
    assert lines(LAB.rglob("*.py")) <= 6200
    assert lines((ROOT / "tests").glob("test_lab*.py")) <= 3800
    longest = max(ROOT.glob("geolib/lab/**/*.py"), key=lambda path: lines([path]))
    assert lines([longest]) <= 600, longest


def test_every_module_stands_in_a_room():
    assert {room_of(name) for name in modules(LAB, "geolib.lab")} == {*ROOMS, *ABOVE}


def test_imports_run_downward_only():
    upward = [
        f"{name} imports {other}"
        for name, others in graph_of(LAB, "geolib.lab").items()
        if room_of(name) in ROOMS
        for other in others
        if room_of(other) in ABOVE or ROOMS.index(room_of(other)) > ROOMS.index(room_of(name))
    ]
    assert not upward


def test_no_module_imports_what_imports_it():
    assert a_circle(graph_of(LAB, "geolib.lab")) == []


@pytest.mark.parametrize(
    "line", ["import house.b", "from house import b", "from house.b import x", "def f():\n    from house.b import x"]
)
def test_a_circle_is_found_however_it_is_written(tmp_path, line):
    (tmp_path / "a.py").write_text(line)
    (tmp_path / "b.py").write_text("import house.c")
    (tmp_path / "c.py").write_text("if False:\n    from house import a")
    assert sorted(a_circle(graph_of(tmp_path, "house"))) == ["house.a", "house.b", "house.c"]
    (tmp_path / "c.py").write_text("import os")
    assert a_circle(graph_of(tmp_path, "house")) == []


def test_the_mathematics_does_not_know_the_lab():
    known = modules(ROOT / "geolib", "geolib")
    own = [name for name in known if name.count(".") == 1 and name not in ("geolib.lab", "geolib.explorables")]
    assert not [f"{n} imports {o}" for n in own for o in imported(known[n], known) if o.startswith("geolib.lab")]


def test_a_new_file_among_the_papers_is_found_and_nothing_else_has_to_change(tmp_path, monkeypatch):
    from geolib.lab.experiments import EXPERIMENTS, collected, papers

    lines = ["from dataclasses import replace", "from geolib.lab.experiments.papers.digits import ENCODINGS"]
    (tmp_path / "novelty.py").write_text("\n".join([*lines, 'EXPERIMENTS = (replace(ENCODINGS, name="novelty"),)']))
    monkeypatch.setattr(papers, "__path__", [*papers.__path__, str(tmp_path)])
    assert collected().keys() - EXPERIMENTS.keys() == {"novelty"}
    (tmp_path / "copy.py").write_text("from geolib.lab.experiments.papers.digits import EXPERIMENTS")
    with pytest.raises(LabError, match="two experiments have one name"):
        collected()
