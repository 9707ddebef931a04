"""Chapters agree: one symbol has one meaning, and each step of a track or a course builds on earlier ones alone."""

import json
import re
from collections import defaultdict

import pytest
from explorable_kit import REPOSITORY, text_of
from ledger import bare, names_of, rows_of

PAGE = REPOSITORY / "book" / "notation.md"
CHAPTERS = [*sorted((REPOSITORY / "chapters").glob("*.ipynb")), REPOSITORY / "book" / "how-to-compare.ipynb"]

FONTS = ("mathcal", "mathbf", "mathrm", "mathbb", "hat", "breve", "bar", "tilde")
LETTER = re.compile(rf"\\(?:{'|'.join(FONTS)})(?:\{{\w+\}}| ?\w)|\\?[A-Za-z]+")


def letter(symbol):
    """A symbol's letter with its accent or font, without indices and arguments: R for R_m and for R(a)."""
    return LETTER.match(symbol)[0].replace(" ", "")


def gist(meaning):
    """A meaning up to its first comma, colon, semicolon or bracket."""
    return re.split(r"[,:(]", meaning, maxsplit=1)[0].strip().lower()


def clashes(page, tables):
    """What speaks against one meaning for each symbol: tables by name, each a list of (symbol, meaning)."""
    settled, found, own = dict(page), [], {}
    letters = defaultdict(list)
    for symbol, _ in page:
        letters[letter(symbol)].append(symbol)
    for name, table in tables.items():
        for symbol, meaning in table:
            if symbol in settled:
                if gist(meaning) != gist(settled[symbol]):
                    found.append(f"{name}: {symbol} is '{gist(settled[symbol])}', not '{gist(meaning)}'")
            elif letter(symbol) in letters:
                found.append(f"{name}: {symbol} ('{gist(meaning)}') is near {letters[letter(symbol)]} of the page")
            else:
                other, before = own.setdefault(symbol, (name, meaning))
                if gist(before) != gist(meaning):
                    found.append(f"{name}: {symbol} is '{gist(before)}' in {other}, not '{gist(meaning)}'")
    return found


def table_of(chapter):
    """A chapter's symbols: those of the page that it names, and its own."""
    text = text_of(chapter)
    page, named = dict(settled()), re.search(r"^:::\{symbols\} (.*)$", text, re.MULTILINE)
    return [(bare(name), page[bare(name)]) for name in names_of(named[1])] + list(rows_of(text))


def settled():
    """The page's symbols."""
    return list(rows_of(PAGE.read_text("utf-8")))


def test_the_page_gives_each_letter_one_row():
    symbols = [symbol for symbol, _ in settled()]
    assert len(symbols) == len(set(symbols)) > 50
    rows = defaultdict(set)
    for number, line in enumerate(PAGE.read_text("utf-8").splitlines()):
        if line.startswith("| $"):
            for symbol, _ in rows_of(f"| symbol | meaning |\n{line}"):
                rows[letter(symbol)].add(number)
    # A frame and its inverse are one letter in two rows; every other letter has one.
    assert {name for name, where in rows.items() if len(where) > 1} == {"T"}


def test_chapters_keep_to_the_page_and_agree_with_each_other():
    tables = {path.stem: table_of(path) for path in CHAPTERS}
    for name, table in tables.items():
        assert len(table) == len({symbol for symbol, _ in table}) > 0, f"{name} says a symbol twice, or none"
    assert clashes(settled(), tables) == []


# What readers and teachers are led through ---------------------------------------------------------------------------

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
