"""Who found what: the lines of credit under statements, and the works that they cite."""

import importlib
import json
import re
import sys
import unicodedata
from pathlib import Path

import pytest
from docutils import nodes
from docutils.core import publish_doctree
from myst_parser.docutils_ import Parser
from pybtex.database import parse_file

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "book" / "_ext"))
postprocess = importlib.import_module("postprocess")

WORKS = parse_file(str(REPOSITORY / "book" / "references.bib")).entries
CITED = re.compile(r"\{cite(?::\w+)?\}`([^`]+)`")
CREDIT = re.compile(r"(?ms)^\*(Known|Ours)[:.]\*(.*?)(?:\n\s*\n|\Z)")
# What *Ours* must not claim: it says that we know of no earlier place, once for all, in "How to read this book".
BOAST = re.compile(r"(?i)\b(novel|(?:are|were|was) (?:the )?first|for the first time|never been|nobody)\b")


def texts():
    """(name, Markdown) of every page and chapter."""
    for path in sorted((REPOSITORY / "book").rglob("*.md")):
        yield path.name, path.read_text("utf-8")
    for path in sorted([*(REPOSITORY / "chapters").glob("*.ipynb"), *(REPOSITORY / "book").glob("*.ipynb")]):
        cells = json.loads(path.read_text("utf-8"))["cells"]
        yield path.name, "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


# The line -------------------------------------------------------------------------------------------------------------


def paragraphs(markdown):
    """The paragraphs of a page, marked as the site marks them."""
    document = publish_doctree(markdown, parser=Parser(), settings_overrides={"report_level": 5})
    postprocess.tidy(None, document)
    return list(document.findall(nodes.paragraph))


@pytest.mark.parametrize("opening", ["*Known:* Su et al., 2021.", "*Ours:* the second clause.", "*Ours.*"])
def test_a_credit_is_a_line_of_its_own_kind(opening):
    before, credit, after = paragraphs(f"A statement.\n\n{opening}\n\nIt goes on.")
    assert credit["classes"] == ["credit"]
    assert before["classes"] == after["classes"] == []
    assert credit.astext() == opening.replace("*", "")


@pytest.mark.parametrize("text", ["Known: no emphasis.", "*Unknown:* another word.", "It is *Known:* later."])
def test_other_paragraphs_are_left_alone(text):
    assert [each["classes"] for each in paragraphs(text)] == [[]]


def test_a_credit_says_who_and_ours_claims_no_more_than_we_know():
    for name, text in texts():
        for kind, line in CREDIT.findall(text):
            if kind == "Ours":
                assert not BOAST.search(line), f"{name}: {line}"
            else:
                assert CITED.search(line) or "classical" in line, f"{name}: {line}"


def test_what_ours_claims_is_said_where_one_learns_to_read_the_book():
    page = " ".join((REPOSITORY / "book" / "how-to-read.md").read_text("utf-8").split())
    assert re.search(r"\*Ours\* [^.]*know of no earlier place", page)
    assert BOAST.search("We were first.")
    assert not BOAST.search("The first pair does not turn.")


# The works ------------------------------------------------------------------------------------------------------------


def test_every_work_that_is_cited_is_in_the_bibliography():
    cited = {key.strip() for _, text in texts() for keys in CITED.findall(text) for key in keys.split(",")}
    assert cited
    assert cited - set(WORKS) == set()


@pytest.mark.parametrize("key", WORKS)
def test_a_key_is_the_first_author_the_year_and_a_word(key):
    work = WORKS[key]
    family = "".join([*work.persons["author"][0].prelast_names, *work.persons["author"][0].last_names])
    family = re.sub(r"[^a-z]", "", unicodedata.normalize("NFKD", family).lower())
    eprint = work.fields.get("eprint", "")
    first = f"20{eprint[:2]}" if eprint else work.fields["year"]
    assert re.fullmatch(r"[a-z]+\d{4}[a-z][a-z0-9]*", key)
    assert family.startswith(re.match("[a-z]+", key)[0])
    assert key[len(re.match("[a-z]+", key)[0]) :].startswith(first), f"{first} is wanted"
    assert int(first) <= int(work.fields["year"])


@pytest.mark.parametrize("key", WORKS)
def test_a_work_says_where_it_is_and_how_far_it_was_checked(key):
    fields = WORKS[key].fields
    assert re.fullmatch(r"\d{4}\.\d{4,5}", fields.get("eprint", "0000.00000"))
    assert ("eprint" in fields) == (fields.get("archivePrefix") == "arXiv")
    assert fields.get("url", "").startswith("https://") or "eprint" in fields or "isbn" in fields or "doi" in fields
    assert fields["verified"] in ("text", "record", "memory")
