"""One symbol, one meaning: the tables of symbols of the chapters against the notation page."""

import re
from collections import defaultdict

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
