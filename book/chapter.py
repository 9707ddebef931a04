"""Lay out a new chapter: ``make chapter NAME=15_topic``, with ``TITLE="A title"`` if the name's word is not one.

It writes a notebook with every part that the tests ask of a chapter, its module, test file and page of the library, a
row of the ledger and an error to plant, and names the chapter where the book lists chapters. What it writes is true and
passes; then every line of it is replaced. Nothing that exists is overwritten.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from setup_cell import setup_cell
from stamp_setup import TAGS

REPOSITORY = Path(__file__).resolve().parent.parent

# The text cells and code cells of the notebook, by id; TOPIC and TITLE are put in.
TEXTS = {
    "title": """\
# TITLE

One sentence that promises what the reader will know at the end.

:::{admonition} Three sentences to take along
:class: takeaways
1. **What the first half of the chapter shows.**
2. **What the second half shows.**
3. **What the data say.**
:::

**Builds on** what the reader has to know.

:::{symbols} $x$
:::
""",
    "halves-text": """\
(TOPIC-halves)=
## A question

Something to look at or to move, before any symbol.
""",
    "halves-statement": """\
:::{prf:proposition} Two halves
:label: prop-TOPIC-halves
(BK-TOPIC) Two halves of $x$ are $x$.
:::

:::{prf:proof}
$x/2+x/2=x$.
:::
""",
    "found": """\
(TOPIC-found)=
## What was found

Verdicts as in [how to compare](../book/how-to-compare).

| claim | verdict | numbers |
|---|---|---|
| **A claim in bold** | undecided | from a record |
""",
    "exercises": """\
## Exercises
""",
    "proved": """\
## The three sentences again

1. {prf:ref}`prop-TOPIC-halves`.
2. Where the second sentence was shown.
3. What the data said, and how sure that is.

**Next.** What the next chapter asks.

## What was proved

:::{proved}
:::
""",
}
IMPORTS = """\
import matplotlib.pyplot as plt
import torch

from geolib.figures import COLOURS, use_house_style
from geolib.TOPIC import halved

use_house_style()
torch.manual_seed(0)
close = lambda a, b, atol=1e-10: torch.allclose(a, b, atol=atol, rtol=0)
"""
FIGURE = """\
_, axes = plt.subplots()
line = torch.linspace(-1, 1, 9)
axes.plot(line, halved(line), color=COLOURS["blue"])
axes.set(xlabel="$x$", ylabel="half of it");
"""
SEEN = {
    "figure": {"caption": "Half of a number, against the number.", "name": "fig-TOPIC-halves"},
    "image": {"alt": "A straight blue line through the origin that rises by one half for each step to the right."},
}
CHECK = """\
x = torch.randn(3, 5).double()
assert close(halved(x) + halved(x), x)
"""
SOLVED = """\
assert close(4 * halved(halved(x)), x)
"""
EXERCISES = {
    "quarter": "A quarter (routine, paper)",
    "another": "Another (routine, computer)",
    "thinking": "Why (thinking, paper)",
    "bug": "Find the bug: a half that is too small (thinking, computer)",
    "open": "What is not known (open, computer)",
}

MODULE = '''\
"""TITLE: what the chapter of this name computes."""

from __future__ import annotations

from torch import Tensor


def halved(x: Tensor) -> Tensor:
    """Half of x, in its shape and dtype.

    Source: BK-TOPIC.

    >>> halved(torch.tensor([2.0]))
    tensor([1.])
    """
    return x / 2
'''
TEST = '''\
"""The module of the chapter "TITLE"."""

import numpy as np
import torch

from geolib.TOPIC import halved


def test_two_halves_are_the_whole():  # BK-TOPIC
    x = torch.randn(4, 3, dtype=torch.float64)
    np.testing.assert_allclose(2 * halved(x).numpy(), x.numpy(), rtol=1e-12)
'''
PAGE = """\
# geolib.TOPIC

```{eval-rst}
.. automodule:: geolib.TOPIC
   :members:
```
"""
PLANTED = """\
- statement: prop-TOPIC-halves
  breaks: a third in place of a half
  module: geolib/TOPIC.py
  old: return x / 2
  new: return x / 3
"""
GROUP = """
- key: BK
  title: Chapters beyond the papers
  rows:
"""
ROW = """\
    - id: BK-TOPIC
      statement: 'Two halves of $x$ are $x$.'
      chapter: NUMBER
      section: TOPIC-halves
      functions: [geolib.TOPIC.halved]
      tests:
        - tests/test_TOPIC.py::test_two_halves_are_the_whole
"""
TABLE = """
## Chapters beyond the papers

```{ledger-table} BK
```
"""


def text(name: str, source: str) -> dict[str, Any]:
    """A text cell."""
    return {"cell_type": "markdown", "id": name, "metadata": {}, "source": lines(source)}


def code(name: str, source: str, *tags: str, **more: Any) -> dict[str, Any]:
    """A code cell without outputs."""
    metadata = {**({"mystnb": more} if more else {}), **({"tags": [*tags]} if tags else {})}
    empty = {"execution_count": None, "outputs": []}
    return {"cell_type": "code", "id": name, "metadata": metadata, **empty, "source": lines(source)}


def lines(source: str) -> list[str]:
    """A cell's lines as notebooks keep them."""
    return source.rstrip("\n").splitlines(keepends=True)


def exercise(name: str, title: str) -> list[dict[str, Any]]:
    """An exercise with its hint, and its folded solution with a check."""
    ask = f":::{{exercise}} {title}\n:label: ex-TOPIC-{name}\nWhat is asked.\n:::\n\n"
    hint = ":::{admonition} Hint\n:class: tip dropdown\nWhere to begin.\n:::\n"
    solution = f":::{{solution-start}} ex-TOPIC-{name}\n:label: sol-TOPIC-{name}\n:class: dropdown\n:::\nThe answer.\n"
    return [
        text(f"ex-{name}", ask + hint),
        text(f"sol-{name}-start", solution),
        code(f"sol-{name}", SOLVED, "check"),
        text(f"sol-{name}-end", ":::{solution-end}\n:::\n"),
    ]


def notebook() -> dict[str, Any]:
    """All cells, with the chapter's names still to be put in."""
    written = {name: text(name, source) for name, source in TEXTS.items()}
    cells = [
        written["title"],
        code("setup", setup_cell(), *TAGS),
        code("imports", IMPORTS, "hide-input"),
        written["halves-text"],
        code("halves-figure", FIGURE, "hide-input", **SEEN),
        written["halves-statement"],
        code("halves-check", CHECK, "check"),
        written["found"],
        written["exercises"],
        *(cell for each in EXERCISES.items() for cell in exercise(*each)),
        written["proved"],
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def after_last(pattern: str, source: str, line: str) -> str:
    """A text with a line after the last one that matches; as it was where it has that line."""
    if line in source:
        return source
    *_, last = re.finditer(rf"(?m)^{pattern}.*\n", source)
    return source[: last.end()] + line + source[last.end() :]


def with_row(ledger: str, row: str) -> str:
    """The ledger with a row in its last group, which is that of chapters beyond the papers."""
    return ledger.rstrip("\n") + "\n" + ("" if "- key: BK" in ledger else GROUP) + row


def measured_as(site: dict[str, Any], pages: dict[str, str]) -> dict[str, Any]:
    """The site's measurements with pages that stand in with those of others until they are measured."""
    return {
        **site,
        "pages": dict(sorted({**{new: site["pages"][old] for new, old in pages.items()}, **site["pages"]}.items())),
    }


def listed(name: str, topic: str, title: str) -> dict[Path, str]:
    """The files that name all chapters, with this one."""

    def read(path: str) -> str:
        return (REPOSITORY / path).read_text("utf-8")

    toc = after_last(r"      - file: chapters/", read("_toc.yml"), f"      - file: chapters/{name}\n")
    toc = after_last(r"      - file: book/api/connection", toc, f"      - file: book/api/{topic}\n")
    *_, before = sorted((REPOSITORY / "chapters").glob("[0-9][0-9]_*.ipynb"))
    pages = {f"chapters/{name}.html": f"chapters/{before.stem}.html", f"book/api/{topic}.html": "book/api/lie.html"}
    site = measured_as(json.loads(read("tests/site/now.json")), pages)
    ledger_page = read("book/ledger.md")
    row = ROW.replace("TOPIC", topic).replace("NUMBER", str(int(name[:2])))
    made = {
        "_toc.yml": toc,
        "book/index.md": after_last(r"\d\d_\w+ \|", read("book/index.md"), f"{name} | {title} | Which question?\n"),
        "book/ledger.yml": with_row(read("book/ledger.yml"), row),
        "book/ledger.md": ledger_page
        if "{ledger-table} BK" in ledger_page
        else ledger_page.rstrip("\n") + "\n" + TABLE,
        "tests/site/now.json": json.dumps(site, indent=1) + "\n",
    }
    return {REPOSITORY / path: source for path, source in made.items()}


def new_files(name: str, topic: str, title: str) -> dict[Path, str]:
    """The files that are the chapter's own."""
    cells = json.dumps(notebook(), indent=1, ensure_ascii=False) + "\n"
    made = {
        f"chapters/{name}.ipynb": cells,
        f"geolib/{topic}.py": MODULE,
        f"tests/test_{topic}.py": TEST,
        f"tests/planted/{name}.yml": PLANTED,
        f"book/api/{topic}.md": PAGE,
    }
    return {REPOSITORY / path: source.replace("TOPIC", topic).replace("TITLE", title) for path, source in made.items()}


def main() -> None:
    """Lay out the chapter that the command line names."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("name", help="two digits, an underscore, a word: 15_topic")
    asked.add_argument("--title", help="else the word")
    given = asked.parse_args()
    if not re.fullmatch(r"\d\d_[a-z]+", given.name):
        sys.exit(f"NAME: got {given.name!r}; it must be two digits, an underscore and a word, as in 15_topic")
    topic = given.name[3:]
    title = given.title or topic.capitalize()
    files = new_files(given.name, topic, title)
    if there := [path for path in files if path.exists()]:
        sys.exit(f"there is {', '.join(str(path.relative_to(REPOSITORY)) for path in there)} already")
    for path, source in {**files, **listed(given.name, topic, title)}.items():
        path.write_text(source, "utf-8")
        print(path.relative_to(REPOSITORY))
    plant = REPOSITORY / "tests" / "planted" / "plant.py"
    subprocess.run([sys.executable, str(plant), given.name], cwd=REPOSITORY, check=True)
    print("Next: replace the text, cell by cell, and run python tests/planted/plant.py", given.name)


if __name__ == "__main__":
    main()
