"""How long a chapter takes, counted from its notebook: to read, with proofs and checks, with exercises too.

Nobody was timed: this is an estimate, and these are its assumptions. A hard reading of the whole book, every proof
followed and every check understood, was put at 32 hours when the text had 93,000 words; the costs below give that sum
for that text. They are those of a reader who knows linear algebra and meets the subject for the first time.

- *Reading*: the prose, its formulas, the figures, and the code that stands open. Folded tables of symbols and of what
  was proved are looked things up in, and cost nothing.
- *With proofs and checks*: also proofs, with a pencil, asides, and the code of each check.
- *With exercises*: also the exercises, by the grade in their titles, and their solutions.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

SECONDS = {  # what one of each costs, in the text and in a proof; code by the line
    "read": {"word": 60 / 170, "formula": 1.5, "display": 15, "line": 5, "figure": 90},
    "proof": {"word": 60 / 65, "formula": 4, "display": 50, "line": 11, "figure": 90},
    "solve": {"word": 60 / 170, "formula": 1.5, "display": 15, "line": 5, "figure": 90},
}
MINUTES_OF_AN_EXERCISE = {"routine": 10, "thinking": 25, "open": 60}
UNGRADED = 20
KINDS = (
    (re.compile(r"prf:proof|admonition.*\baside\b"), "proof"),
    (re.compile(r"exercise|solution\b|admonition.*\btip\b"), "solve"),
    (re.compile(r"symbols|proved|admonition.*\bproved\b"), "none"),
)
WORD, FORMULA, DISPLAY = re.compile(r"\w+"), re.compile(r"\$[^$]+\$"), re.compile(r"(?s)\$\$.+?\$\$")
MARKED = re.compile(r"\{(?:index|term)\}`([^`<]*?)(?: <[^>]*>)?`")  # words of the text, in the index or the glossary
IMAGE = re.compile(r"!\[|\{figure\}")
FENCE = re.compile(r"(:{3,}|`{3,})(\{[^}]*\})?(.*)")


class Times(NamedTuple):
    """Seconds of each part."""

    read: float
    proof: float
    solve: float


def cells_of(path: Path) -> list[dict[str, Any]]:
    """A notebook's cells."""
    return json.loads(path.read_text("utf-8"))["cells"]


def parts(text: str) -> Iterator[tuple[str, str]]:
    """(kind, text) of the stretches of a cell's Markdown."""
    lines, kinds, stretch = text.splitlines(), [("", "read")], list[str]()
    for i, line in enumerate(lines):
        fence = FENCE.fullmatch(line.strip())
        if not fence:
            stretch.append(line)
            continue
        yield kinds[-1][1], "\n".join(stretch)
        stretch = []
        if fence[2]:
            classes = " ".join(re.findall(r"^:class: (.*)", "\n".join(lines[i + 1 : i + 4]), re.MULTILINE))
            said = f"{fence[2][1:-1]} {classes}"
            kinds.append((fence[1], next((kind for rule, kind in KINDS if rule.match(said)), kinds[-1][1])))
            stretch.append(re.sub(r"^\S*", "", fence[3]))
        elif fence[1] == kinds[-1][0]:
            kinds.pop()
        elif fence[1][0] == "`":
            kinds.append((fence[1], kinds[-1][1]))
    yield kinds[-1][1], "\n".join(stretch)


def counted(text: str) -> Counter[str]:
    """The words, formulas and pictures of a stretch."""
    text = MARKED.sub(r"\1", text)
    text = re.sub(r"(?m)^:(label|class|name|alt):.*$|\{[\w:]+\}`[^`]*`", "", text)
    displays, text = DISPLAY.findall(text), DISPLAY.sub(" ", text)
    formulas, text = FORMULA.findall(text), FORMULA.sub(" ", text)
    figures = len(IMAGE.findall(text))
    return Counter(word=len(WORD.findall(text)), formula=len(formulas), display=len(displays), figure=figures)


def is_open(cell: dict[str, Any]) -> bool:
    """Whether a code cell shows its code without a click."""
    return not {"check", "hide-input", "remove-input", "remove-cell", "hide-cell"} & set(
        cell["metadata"].get("tags", [])
    )


def times(cells: list[dict[str, Any]]) -> Times:
    """What the chapter costs, part by part."""
    spent, solving = Counter[str](), False

    def add(kind: str, things: Counter[str]) -> None:
        spent[kind] += sum(SECONDS[kind][thing] * count for thing, count in things.items())

    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            for each in re.findall(r"\{exercise\} *(.*)", source):
                grade = re.search(r"\((routine|thinking|open)\b", each)
                spent["solve"] += 60 * (MINUTES_OF_AN_EXERCISE[grade[1]] if grade else UNGRADED)
            solving = "{solution-start}" in source or (solving and "{solution-end}" not in source)
            for kind, text in parts(source):
                kind = "solve" if solving else kind
                if kind != "none":
                    add(kind, counted(text))
        elif cell["cell_type"] == "code":
            tags = cell["metadata"].get("tags", [])
            lines = Counter(line=len([line for line in source.splitlines() if line.strip()]))
            if solving:
                add("solve", lines)
            elif "check" in tags:
                add("proof", lines)
            elif is_open(cell):
                add("read", lines)
            if re.search(r"plt\.|explorables import|fig\b", source) and "no-picture" not in tags:
                add("read", Counter(figure=1))
    return Times(spent["read"], spent["proof"], spent["solve"])


def words(cells: list[dict[str, Any]]) -> int:
    """The words of a chapter's text, a formula as one."""
    text = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    return len(WORD.findall(re.sub(r"\$[^$]*\$", "X", text)))


def numbers(cells: list[dict[str, Any]]) -> dict[str, float]:
    """What "How this was built" shows of a chapter: words, cells of code, lines of code that stand open, minutes."""
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    lines = sum(len("".join(cell["source"]).splitlines()) for cell in code if is_open(cell))
    spent = times(cells)
    minutes = {key: round(sum(spent[: i + 1]) / 60) for i, key in enumerate(("read", "proofs", "exercises"))}
    return {"words": words(cells), "cells": len(code), "lines": lines, **minutes}


def in_words(seconds: float) -> str:
    """A time as one says it: 45 minutes, 2½ hours."""
    minutes = seconds / 60
    if minutes < 85:
        return f"{max(5, 5 * round(minutes / 5))} minutes"
    halves = round(minutes / 30)
    return f"{halves // 2 or ''}{'½' if halves % 2 else ''} hours"


def said(spent: Times) -> str:
    """The line under a chapter's title."""
    read, proofs, exercises = (in_words(sum(spent[: i + 1])) for i in range(3))
    return f"About {read} to read, {proofs} with proofs and checks, {exercises} with exercises."
