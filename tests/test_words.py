"""Words that lead somewhere: the glossary's terms, works that are cited; and tables that swallow no paragraph."""

import json
import re
from pathlib import Path

from pybtex.database import parse_file

REPOSITORY = Path(__file__).resolve().parents[1]
CHAPTERS = sorted((REPOSITORY / "chapters").glob("[0-9][0-9]_*.ipynb"))
NOTEBOOKS = [*CHAPTERS, *sorted((REPOSITORY / "book").glob("*.ipynb"))]
MARK = re.compile(r"\{index\}`([^`<]+?)(?: <([^>]+)>)?`")
CITED = re.compile(r"\{cite(?::\w+)?\}`([^`]+)`")
TERM = re.compile(r"(?m)^(\S.*)\n  \S")


def text(path):
    """A notebook's prose."""
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def entries(path):
    """The entries that a notebook's marks make."""
    return [entry or word for word, entry in MARK.findall(text(path))]


def terms():
    """The words of the glossary."""
    page = (REPOSITORY / "book" / "glossary.md").read_text("utf-8")
    return TERM.findall(page[page.index("```{glossary}\n") + len("```{glossary}\n") :])


def test_every_term_of_the_glossary_is_marked_where_it_is_defined():
    found = {entry for path in NOTEBOOKS for entry in entries(path)}
    assert len(terms()) >= 60
    assert set(terms()) <= found
    assert terms() == sorted(terms(), key=str.casefold)


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
    pages |= {path.name: text(path) for path in NOTEBOOKS}
    assert {name: lines for name, prose in pages.items() if (lines := swallowed(prose))} == {}
    assert swallowed("| a |\n|---|\n| 1 |\nlost") == ["lost"]


def test_every_work_that_is_cited_is_in_the_bibliography():
    pages = [path.read_text("utf-8") for path in (REPOSITORY / "book").rglob("*.md")] + [*map(text, NOTEBOOKS)]
    cited = {key.strip() for page in pages for keys in CITED.findall(page) for key in keys.split(",")}
    assert cited
    assert cited - set(parse_file(str(REPOSITORY / "book" / "references.bib")).entries) == set()
