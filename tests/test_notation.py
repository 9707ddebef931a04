"""One symbol, one meaning: the tables of symbols of the chapters against the notation page."""

import json
import re
from collections import defaultdict
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
PAGE = REPOSITORY / "book" / "notation.md"
CHAPTERS = [*sorted((REPOSITORY / "chapters").glob("*.ipynb")), REPOSITORY / "book" / "how-to-compare.ipynb"]

HEAD = re.compile(r"\| *symbol *\| *meaning *\|")
FONTS = ("mathcal", "mathbf", "mathrm", "mathbb", "hat", "breve", "bar", "tilde")
LETTER = re.compile(rf"\\(?:{'|'.join(FONTS)})(?:\{{\w+\}}| ?\w)|\\?[A-Za-z]+")


def rows_of(text):
    """(symbol, meaning) for each symbol in the tables of symbols of a text."""
    in_table = False
    for line in text.splitlines():
        if HEAD.match(line):
            in_table = True
        elif not line.startswith("|"):
            in_table = False
        elif in_table and not re.fullmatch(r"[|\-: ]+", line):
            symbols, meanings = (cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:3])
            symbols, meanings = symbols.split(";"), outside_formulas(meanings)
            assert len(symbols) == len(meanings), f"as many meanings as symbols, with semicolons between: {line}"
            yield from zip(map(bare, symbols), meanings)


def outside_formulas(text, mark=";"):
    """A text split at marks that stand in no formula."""
    formulas = re.findall(r"\$[^$]*\$", text)
    parts = re.sub(r"\$[^$]*\$", "\0", text).split(mark)
    waiting = iter(formulas)
    return [re.sub("\0", lambda _: next(waiting), part).strip() for part in parts]


def bare(symbol):
    """A symbol without dollars and spaces: one alone, in its own dollars."""
    found = re.fullmatch(r"\$([^$]+)\$", symbol.strip())
    assert found, f"one symbol in dollars, with semicolons between several: {symbol.strip()}"
    assert not re.search(r",|\\[;,]", re.sub(r"[_^]\{[^}]*\}|\([^)]*\)", "", found[1])), f"two symbols: {found[1]}"
    return re.sub(r"\s", "", found[1])


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
    """A chapter's symbols."""
    cells = json.loads(chapter.read_text("utf-8"))["cells"]
    return list(rows_of("\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")))


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


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_a_chapter_keeps_to_the_page(chapter):
    table = table_of(chapter)
    assert table, "a chapter starts with a table of its symbols: | symbol | meaning |"
    assert clashes(settled(), {chapter.stem: table}) == []


def test_chapters_agree_with_each_other():
    tables = {path.stem: table_of(path) for path in CHAPTERS}
    assert clashes(settled(), tables) == []


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ("| $S$ | reflection |", "S is 'scores', not 'reflection'"),
        ("| $S(a)$ | reflection |", "S(a) ('reflection') is near ['S']"),
        ("| $q$; $k$ | query; a kernel |", "k is 'key', not 'a kernel'"),
        (
            r"| $\Omega$ | frequencies in several dimensions: one row a pair |",
            "not 'frequencies in several dimensions'",
        ),
        (r"| $\zeta$ | one thing |" + "\n" + r"| $\zeta$ | another |", "is 'one thing' in one, not 'another'"),
    ],
)
def test_a_clash_is_seen(table, complaint):
    found = clashes(settled(), {"one": list(rows_of(f"| symbol | meaning |\n|---|---|\n{table}"))})
    assert len(found) == 1
    assert complaint in found[0]


def test_a_table_is_found_folded_or_bare():
    table = "| symbol | meaning |\n|---|---|\n| $q$; $k$ | query; key |\n"
    folded = f":::{{admonition}} Symbols of this chapter\n:class: symbols dropdown\n{table}:::\n\nText."
    assert list(rows_of(folded)) == list(rows_of(f"Text.\n\n{table}\nText.")) == [("q", "query"), ("k", "key")]


def test_what_agrees_is_no_clash():
    table = "| symbol | meaning |\n|---|---|\n| $q$; $k$ | query; key (12 numbers) |\n| $\\kappa$ | steepness |\n"
    assert clashes(settled(), {"one": list(rows_of(table)), "two": list(rows_of(table))}) == []


@pytest.mark.parametrize("row", [r"| $m,\;n$ | position of the query; position of the key |", "| $q$; $k$ | vectors |"])
def test_a_row_that_hides_a_symbol_is_refused(row):
    with pytest.raises(AssertionError):
        list(rows_of(f"| symbol | meaning |\n|---|---|\n{row}"))
