"""The page "Add a method, an experiment, a chapter": its code runs, and what ``make chapter`` lays out is whole."""

import importlib
import json
import math
import re
import shutil
import sys
from pathlib import Path

import methods
import pytest
import test_laws
import test_notation
import test_notebooks
import torch
import yaml
from test_planted import plant

from geolib import encodings
from geolib.figures import COLOURS, method_style

REPOSITORY = Path(__file__).resolve().parent.parent
PAGE = (REPOSITORY / "book" / "add-to-it.md").read_text("utf-8")
BLOCKS = {re.match(r"# (.*)", block)[1]: block for block in re.findall(r"```python\n(.*?)```", PAGE, re.S)}
NAME = "log-distance"


def run(block, names):
    """A block of the page, run among the names of its file."""
    exec(compile(BLOCKS[block], block, "exec"), names)
    return names


@pytest.fixture
def added(monkeypatch):
    """The page's method, added to the registry and to the tests' entries."""
    names = run("geolib/encodings/bias.py", dict(vars(encodings.bias)))
    lines = eval("{" + BLOCKS["geolib/encodings/registry.py, in METHODS"].partition("\n")[2] + "}", names)
    for name, make in lines.items():
        monkeypatch.setitem(encodings.METHODS, name, make)
    monkeypatch.setattr(methods, "METHODS", dict(methods.METHODS))
    run("tests/methods.py", dict(vars(methods)))


def test_the_pages_lines_fit_it():
    assert len(BLOCKS) == 4
    assert all(len(line) <= 76 for block in BLOCKS.values() for line in block.splitlines())
    assert len(BLOCKS["geolib/lab/experiments/papers/nearby.py"].splitlines()) <= 21  # its path above it


@pytest.mark.usefixtures("added")
def test_the_pages_method_obeys_the_laws():
    test_laws.test_every_method_and_wrapper_has_an_entry()
    for grid in ((5,), (3, 2)):
        test_laws.test_weights_are_those_of_the_oracle(NAME, grid)
    test_laws.test_gradients_are_the_numerical_ones(NAME)
    test_laws.test_every_option_of_a_method_has_a_value_away_from_its_default(NAME)
    for option in methods.METHODS[NAME].options:
        test_laws.test_every_option_of_a_method_makes_a_difference(NAME, option)
    state = encodings.build(NAME, **methods.SAVED).state_dict()
    assert {key: tuple(x.shape) for key, x in state.items()} == methods.METHODS[NAME].keys
    assert method_style(NAME)["color"] == COLOURS["gold"]


@pytest.mark.usefixtures("added")
def test_an_entry_with_another_formula_is_seen(monkeypatch):
    monkeypatch.setattr(methods.METHODS[NAME].oracle, "gate", lambda *place: -math.log1p(abs(place[1] - place[2])))
    with pytest.raises(AssertionError):
        test_laws.test_weights_are_those_of_the_oracle(NAME, (3, 2))


def test_the_pages_experiment_can_be_planned():
    (nearby,) = run("geolib/lab/experiments/papers/nearby.py", {})["EXPERIMENTS"]
    for scale, runs in (("smoke", 3), ("cpu", 9)):
        configs = nearby.configs(scale)
        assert len(configs) == runs
        assert all(encodings.is_name(config.method) for config in configs)


# What make chapter lays out -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chapter():
    """book/chapter.py."""
    sys.path.insert(0, str(REPOSITORY / "book"))
    return importlib.import_module("chapter")


@pytest.fixture
def house(tmp_path, chapter, monkeypatch):
    """A folder with the files that name all chapters, and one chapter more."""
    for name in ("_toc.yml", "book/index.md", "book/ledger.yml", "book/ledger.md", "tests/site/now.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, tmp_path / name)
    for name in ("chapters", "geolib", "book/api", "tests/planted"):
        (tmp_path / name).mkdir(exist_ok=True)
    shutil.copy(REPOSITORY / "chapters" / "03_rotations.ipynb", tmp_path / "chapters")
    monkeypatch.setattr(chapter, "REPOSITORY", tmp_path)
    lay_out(chapter, "95_topic", "A title")
    return tmp_path


def lay_out(chapter, name, title):
    """All that ``make chapter`` writes."""
    files = {**chapter.new_files(name, name[3:], title), **chapter.listed(name, name[3:], title)}
    for path, source in files.items():
        path.write_text(source, "utf-8")


def test_a_new_chapter_has_what_is_asked_of_its_notebook(house):
    path = house / "chapters" / "95_topic.ipynb"
    test_notebooks.test_a_notebook_is_committed_without_outputs(path)
    test_notebooks.test_cell_ids_are_words_and_unique(path)
    test_notebooks.test_the_first_code_cell_is_the_set_up(path)
    test_notebooks.test_a_notebook_starts_with_its_title_and_names_python3(path)
    test_notebooks.test_set_up_and_imports_fold_on_the_page(path)
    test_notebooks.test_a_cell_imports_only_what_readers_have(path)
    test_notebooks.test_a_cell_fits_a_screen(path)
    test_notebooks.test_a_check_asserts(path)
    test_notebooks.test_a_picture_has_a_text_alternative(path)
    test_notation.test_a_chapter_keeps_to_the_page(path)
    text = path.read_text("utf-8")
    assert text.count(":::{exercise}") == text.count("class: tip dropdown") == text.count("{solution-start}") == 5
    assert "TOPIC" not in text
    assert "TITLE" not in text


def test_a_new_chapters_statement_has_a_check_a_planted_error_and_a_row(house):
    notebook = json.loads((house / "chapters" / "95_topic.ipynb").read_text("utf-8"))
    (planted,) = yaml.safe_load((house / "tests" / "planted" / "95_topic.yml").read_text("utf-8"))
    labels = plant.statements(notebook)
    assert labels == [planted["statement"]]
    assert {label for cell in plant.code_cells(notebook) for label in cell.checks} == set(labels)
    module = (house / planted["module"]).read_text("utf-8")
    assert plant.replaced(module, planted["old"], planted["new"], planted["module"]) != module
    *_, group = yaml.safe_load((house / "book" / "ledger.yml").read_text("utf-8"))
    (row,) = group["rows"]
    assert (group["key"], row["id"], row["chapter"]) == ("BK", "BK-topic", 95)
    markdown = "\n".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "markdown")
    assert f"({row['section']})=" in markdown
    assert f"({row['id']}) " in markdown
    file, name = row["tests"][0].split("::")
    assert f"def {name}(" in (house / file).read_text("utf-8")


def test_a_new_chapters_check_sees_its_planted_error(house):
    names = {"torch": torch}
    exec((house / "geolib" / "topic.py").read_text("utf-8"), names)
    notebook = json.loads((house / "chapters" / "95_topic.ipynb").read_text("utf-8"))
    names["close"] = lambda a, b: torch.allclose(a, b, atol=1e-10, rtol=0)
    (check,) = (cell.text for cell in plant.code_cells(notebook) if cell.checks)
    exec(check, names)
    names["halved"] = lambda x: x / 3
    with pytest.raises(AssertionError):
        exec(check, names)


def test_a_new_chapter_is_named_where_chapters_are_named(house, chapter):
    lay_out(chapter, "96_more", "More")
    contents = yaml.safe_load((house / "_toc.yml").read_text("utf-8"))
    files = [entry["file"] for part in contents["parts"] for entry in part["chapters"]]
    assert files.index("chapters/96_more") == files.index("chapters/95_topic") + 1
    measured = json.loads((house / "tests" / "site" / "now.json").read_text("utf-8"))["pages"]
    assert {f"{file}.html" for file in files} <= set(measured)
    assert "95_topic | A title | " in (house / "book" / "index.md").read_text("utf-8")
    *_, group = yaml.safe_load((house / "book" / "ledger.yml").read_text("utf-8"))
    assert [row["id"] for row in group["rows"]] == ["BK-topic", "BK-more"]
    assert (house / "book" / "ledger.md").read_text("utf-8").count("{ledger-table} BK") == 1


@pytest.mark.parametrize(("name", "said"), [("topic", "two digits"), ("95_topic", "already")])
def test_a_name_that_is_none_or_taken_is_refused(house, chapter, monkeypatch, name, said):
    monkeypatch.setattr(sys, "argv", ["chapter.py", name])
    with pytest.raises(SystemExit, match=said):
        chapter.main()
