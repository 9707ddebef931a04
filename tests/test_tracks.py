"""What readers and teachers are led through holds: each step builds on earlier ones alone."""

import json
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
NAMED = re.compile(r"\{(?:prf:ref|eq|ref)\}`(?:[^`<]*<)?([\w-]+)>?`")
TURN = re.compile(r"(?m)^(?=\([\w-]+\)=\n#|(?<!=\n)##+ |:::+\{exercise\})")
LABEL = re.compile(r"(?m)^:label: ([\w-]+)|\((eq-[\w-]+)\)\s*$")
FIRST, FILES, SECTIONS, EXERCISES = {}, {}, {}, {}  # a chapter's opening; of labels; with hints and solutions

for path in sorted((REPOSITORY / "chapters").glob("[0-9][0-9]_*.ipynb")):
    section = exercise = None
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        source = "".join(cell["source"])
        FIRST.setdefault(path.stem, source)
        for part in TURN.split(source) if cell["cell_type"] == "markdown" else [source]:
            if heading := re.match(r"(?:\(([\w-]+)\)=\n)?(##+) ", part):
                section, exercise = heading[1] if heading[2] == "##" else section, None
            if found := re.match(r":::+\{exercise\}.*\n:label: (.*)", part):
                exercise = found[1]
            if exercise:
                EXERCISES[exercise] = EXERCISES.get(exercise, "") + part
            for label in [*map("".join, LABEL.findall(part)), *([heading[1]] if heading else [])]:
                SECTIONS[label], FILES[label] = section, path.stem


def read(page, pattern):
    return re.findall(pattern, (REPOSITORY / "book" / page).read_text("utf-8"))


def needed(step):
    """What a chapter says that it builds on, chapters, pages and statements of others; a lab also on how to compare."""
    if step not in FIRST:
        return set()
    told = re.search(r"(?s)\*\*Builds on\*\*(.*?)(?=\n\n|\Z)", FIRST[step])[1]
    told = re.sub(r"(`[\w-]+`) of \[chapter \d+\]\([^)]*\)", r"\1", told)  # one statement of it
    found = set(re.findall(r"\((?:\.\./book/)?([\w-]+)\.ipynb\)", told))
    for numbers in re.findall(r"[Cc]hapters? (\d+(?:(?:, | and |, and )\d+)*)", told):
        found |= {each for each in FIRST if each[:2] in {f"{int(n):02}" for n in re.findall(r"\d+", numbers)}}
    found |= {label for label in NAMED.findall(told) if FILES.get(label, step) != step}
    return found | ({"how-to-compare"} if step[:2] in {"11", "12", "13"} else set())


TRACKS = read("index.md", r"(?m)^\*\*(.+?)\*\*: .*\n\n((?:1\. .*\n?)+)")


@pytest.mark.parametrize(("name", "steps"), TRACKS)
def test_a_track_has_all_that_its_chapters_build_on_before_them(name, steps):
    done = set()
    for step in map("".join, re.findall(r"([\w-]+)\.ipynb\)|<([\w-]+)>`", steps)):
        missing = {each for each in needed(step) - done if FILES.get(each) not in done}
        bridged = {"02_manifolds", "04_transport"} if "sec-bridge" in done else set()
        assert missing <= bridged, f"{name}: {step} builds on {missing}"
        done.add(step)
    assert len(done) > 6


COURSES = read("for-teachers.md", r"\((\w+)-weeks\)=\n###.*\n\n((?:\|.*\n)+)")
assert (len(TRACKS), len(COURSES)) == (3, 2)


@pytest.mark.parametrize(("name", "table"), COURSES)
def test_an_exercise_of_a_course_names_only_what_was_lectured_by_then(name, table):
    lectured = {None}
    for row in table.splitlines()[2:]:
        sections, exercises = (NAMED.findall(cell) for cell in row.split("|")[3:5])
        assert [each for each in sections if SECTIONS.get(each) != each] == []
        lectured |= {*sections}
        named = {(each, label) for each in exercises for label in NAMED.findall(EXERCISES[each])}
        assert {pair for pair in named if SECTIONS.get(pair[1]) not in lectured} == set()
