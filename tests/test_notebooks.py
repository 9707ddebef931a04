"""What a reader of a notebook may rely on: cells and words. The book's build runs the notebooks; here they are read."""

import ast
import importlib
import importlib.util
import json
import re

import address
import pytest
from explorable_kit import REPOSITORY, text_of
from pybtex.database import parse_file

NOTEBOOKS = [path for folder in ("chapters", "book") for path in sorted((REPOSITORY / folder).glob("*.ipynb"))]

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


def imports(text):
    """The modules that a cell imports, each with the names that it takes; lines of magic are none."""
    for node in ast.walk(ast.parse(re.sub(r"(?m)^(\s*)[%!].*$", r"\1pass", text))):
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


def faults(cell):
    """What a cell lacks."""
    text, lines = source(cell), [line for line in source(cell).splitlines() if line.strip()]
    check, drawn = "check" in tags(cell), re.search(r"\bplt\.(show|subplots|figure)\b", text)
    told = cell["metadata"].get("mystnb", {}).get("image", {}).get("alt", "")  # what one would see
    if len(lines) > (MOST_LINES_OF_A_CHECK if check else MOST_LINES) or max(map(len, lines)) > WIDEST:
        yield "it does not fit a screen"
    if check and not re.search(r"\bassert|assert_close|\bcheck\(", text):  # geolib.check raises
        yield "it is a check that asserts nothing"
    if drawn and "no-picture" not in tags(cell) and len(told) < 20:
        yield "its picture has no text alternative"
    if "from geolib.explorables import" in text and "mystnb" in cell["metadata"]:
        yield "its explorable has a caption besides that of its still"


@every
def test_a_cell_fits_a_screen_a_check_asserts_and_pictures_have_words(path):
    assert {cell["id"]: found for cell in code_cells(path) if (found := [*faults(cell)])} == {}


# Words that lead somewhere --------------------------------------------------------------------------------------------


def test_every_term_of_the_glossary_is_marked_where_it_is_defined():
    mark = re.compile(r"\{index\}`([^`<]+?)(?: <([^>]+)>)?`")
    found = {entry or word for path in NOTEBOOKS for word, entry in mark.findall(text_of(path))}
    page = (REPOSITORY / "book" / "glossary.md").read_text("utf-8")
    terms = re.findall(r"(?m)^(\S.*)\n  \S", page.partition("```{glossary}\n")[2])
    assert len(terms) >= 60
    assert set(terms) <= found
    assert terms == sorted(terms, key=str.casefold)


RULE = re.compile(r"\s*\|?[\s:|-]*-{2,}[\s:|-]*\|[\s:|-]*$")  # under a table's head


def swallowed(prose):
    """Lines right below a table, without a bar: Markdown makes rows of them."""
    found, inside = [], False
    for line in prose.split("\n"):
        inside = bool(RULE.match(line)) or (
            inside and bool(line.strip()) and not line.lstrip().startswith((":::", "```"))
        )
        if inside and "|" not in line:
            found.append(line)
    return found


def test_no_table_swallows_the_paragraph_below_it():
    pages = {path.name: path.read_text("utf-8") for path in (REPOSITORY / "book").rglob("*.md")}
    pages |= {path.name: text_of(path) for path in NOTEBOOKS}
    assert {name: lines for name, prose in pages.items() if (lines := swallowed(prose))} == {}
    assert swallowed("| a |\n|---|\n| 1 |\nlost") == ["lost"]


def test_every_work_that_is_cited_is_in_the_bibliography():
    pages = [path.read_text("utf-8") for path in (REPOSITORY / "book").rglob("*.md")] + [*map(text_of, NOTEBOOKS)]
    cited = {
        key.strip()
        for page in pages
        for keys in re.findall(r"\{cite(?::\w+)?\}`([^`]+)`", page)
        for key in keys.split(",")
    }
    assert cited
    assert cited - set(parse_file(str(REPOSITORY / "book" / "references.bib")).entries) == set()
