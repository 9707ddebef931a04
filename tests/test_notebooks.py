"""The chapters' files: what a reader of a notebook may rely on. The book's build runs them; these tests only read."""

import ast
import importlib
import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "release"))
address = importlib.import_module("address")
CHAPTERS = sorted((REPOSITORY / "chapters").glob("*.ipynb"))
NOTEBOOKS = [*CHAPTERS, *sorted((REPOSITORY / "book").glob("*.ipynb"))]

# What cells may import: the library, its light companions, and Python itself.
ALLOWED = {"geolib", "torch", "numpy", "scipy", "matplotlib", "sklearn", "tqdm", "IPython", "mpl_toolkits"}
ALLOWED |= {"anywidget", "traitlets", "dataclasses"}
ALLOWED |= {"math", "cmath", "time", "functools", "itertools", "json", "os", "pathlib", "sys", "collections", "random"}
ALLOWED |= {"tempfile", "textwrap", "zlib"}
MOST_LINES, MOST_LINES_OF_A_CHECK = 25, 10
WIDEST = 76  # what the page's column shows without scrolling


def load(path):
    """A notebook's data."""
    return json.loads(path.read_text("utf-8"))


def source(cell):
    """A cell's text."""
    return "".join(cell["source"])


def tags(cell):
    """A cell's tags."""
    return cell["metadata"].get("tags", [])


def without_magics(text):
    """A cell's Python, its lines of magic replaced by pass."""
    return re.sub(r"(?m)^(\s*)[%!].*$", r"\1pass", text)


def imports(text):
    """The modules that a cell imports, each with the names that it takes."""
    for node in ast.walk(ast.parse(without_magics(text))):
        if isinstance(node, ast.Import):
            yield from ((name.name, []) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module, [name.name for name in node.names]


def lacks(module, name):
    """Whether a module has neither that name nor a module of that name inside."""
    inside = hasattr(module, "__path__") and importlib.util.find_spec(f"{module.__name__}.{name}")
    return not (hasattr(module, name) or inside)


def code_cells(path):
    """A notebook's code cells, without the set-up."""
    return [cell for cell in load(path)["cells"] if cell["cell_type"] == "code"][1:]


def wrong(path, holds):
    """The ids of the code cells of which something does not hold."""
    return [cell["id"] for cell in code_cells(path) if not holds(cell)]


every = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@every
def test_a_notebook_is_committed_without_outputs_with_a_title_and_words_for_ids(path):
    notebook = load(path)
    ran = [cell for cell in notebook["cells"] if cell.get("outputs") or cell.get("execution_count")]
    assert ran == []
    assert source(notebook["cells"][0]).startswith("# ")
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(ids) == len(set(ids))
    # An editor's random id changes with every save elsewhere; a word does not.
    assert all(re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)+|[a-z]+", name) for name in ids), ids


@every
def test_the_first_code_cell_is_the_set_up(path):
    first = next(cell for cell in load(path)["cells"] if cell["cell_type"] == "code")
    assert source(first) == address.setup_cell(), "run: make address"


@every
def test_a_cell_imports_only_what_readers_have_and_the_library_has(path):
    taken = [each for cell in code_cells(path) for each in imports(source(cell))]
    assert {module.partition(".")[0] for module, _ in taken} <= ALLOWED
    own = [each for each in taken if each[0].startswith("geolib") and path.stem != "template"]  # its module is to come
    modules = {name: importlib.import_module(name) for name, _ in own}
    assert [f"{module}: {name}" for module, names in own for name in names if lacks(modules[module], name)] == []


@every
def test_a_cell_fits_a_screen(path):
    def fits(cell):
        lines = [line for line in source(cell).splitlines() if line.strip()]
        most = MOST_LINES_OF_A_CHECK if "check" in tags(cell) else MOST_LINES
        return len(lines) <= most and max(map(len, lines)) <= WIDEST

    assert wrong(path, fits) == []


@every
def test_a_check_asserts(path):
    """By itself or by geolib.check, which raises."""
    asserts = re.compile(r"\bassert|assert_close|\bcheck\(")
    assert wrong(path, lambda cell: "check" not in tags(cell) or asserts.search(source(cell))) == []


@every
def test_a_picture_has_a_text_alternative(path):
    """In the cell's metadata mystnb.image.alt: what one would see."""

    def told(cell):
        drawn = re.search(r"\bplt\.(show|subplots|figure)\b", source(cell)) and "no-picture" not in tags(cell)
        return not drawn or len(cell["metadata"].get("mystnb", {}).get("image", {}).get("alt", "")) >= 20

    assert wrong(path, told) == []


@every
def test_an_explorable_has_the_caption_of_its_still_and_no_other(path):
    drawn = "from geolib.explorables import"
    assert wrong(path, lambda cell: drawn not in source(cell) or "mystnb" not in cell["metadata"]) == []
