"""Who found what: the lines of credit under statements, and the works that they cite."""

import importlib
import json
import re
import sys
from pathlib import Path

from pybtex.database import parse_file

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "book" / "_ext"))
postprocess = importlib.import_module("postprocess")

WORKS = parse_file(str(REPOSITORY / "book" / "references.bib")).entries
CITED = re.compile(r"\{cite(?::\w+)?\}`([^`]+)`")


def texts():
    """(name, Markdown) of every page and chapter."""
    for path in sorted((REPOSITORY / "book").rglob("*.md")):
        yield path.name, path.read_text("utf-8")
    for path in sorted([*(REPOSITORY / "chapters").glob("*.ipynb"), *(REPOSITORY / "book").glob("*.ipynb")]):
        cells = json.loads(path.read_text("utf-8"))["cells"]
        yield path.name, "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


# The line -------------------------------------------------------------------------------------------------------------


# The works ------------------------------------------------------------------------------------------------------------


def test_every_work_that_is_cited_is_in_the_bibliography():
    cited = {key.strip() for _, text in texts() for keys in CITED.findall(text) for key in keys.split(",")}
    assert cited
    assert cited - set(WORKS) == set()
