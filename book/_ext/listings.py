"""Code that fits its place.

Each line of a listing is an element, so that its continuation stands in by two characters where a phone cannot show
it whole. Pygments closes its spans at the end of a line, so a line is a piece of well-formed text. Names, signs and
numbers have the colour of the text, without an element: two in three of a page's code were theirs; the letter before
a string has the string's. A long name in a line of text may go on in the next line behind a dot, an underscore or a
slash. The option of a command stays in one piece.
"""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx

LISTING = re.compile(r'(<div class="highlight"><pre>)(?:<span></span>)?(.*?)(</pre>)', re.DOTALL)
TAG = re.compile(r"<[^>]+>")
NAME = re.compile(r'(<code class="[^"]*\bliteral\b[^"]*">)(.*?)(</code>)', re.DOTALL)
PLAIN = re.compile(r'<span class="(?:n|nn|p|o|w|m[fi])">([^<]*)</span>')  # names, signs, numbers
PREFIX = re.compile(r'<span class="sa">(\w+)</span>(<span class="s[12]">)')
WORD = re.compile(r'<span class="pre">([^<]*)</span>')
OPTION = re.compile(r"(?<=[\s>])--[a-z][a-z-]*")
JOINT = re.compile(r"(?<=[^\W\d_][._/])(?=\w)(?![^<]*>)")  # between tags


def in_lines(listing: str) -> str:
    """The listing with an element around each line, its line break inside; a line knows its indentation."""
    return "".join(map(line, PREFIX.sub(r"\2\1", PLAIN.sub(r"\1", listing)).splitlines(keepends=True)))


def line(text: str) -> str:
    """One line; ``--in`` counts the spaces it begins with. An empty one needs no element."""
    plain = TAG.sub("", text)
    if not plain.strip():
        return text
    indent = len(plain) - len(plain.lstrip(" "))
    style = f' style="--in:{indent}"' if indent and plain.strip() else ""
    return f'<span class="line"{style}>{with_options(text)}</span>'


def with_joints(name: str) -> str:
    """The name, marked where a line may end."""
    return JOINT.sub("<wbr>", with_options(name))


def with_options(code: str) -> str:
    """The code with an element around each option of a command."""
    return code if 'class="option"' in code else OPTION.sub(r'<span class="option">\g<0></span>', code)


def rewrite(app: Sphinx, problem: Exception | None) -> None:
    """Put the lines of all listings into elements, and mark the joints of names."""
    if problem or app.builder.format != "html":
        return
    for path in Path(app.outdir).rglob("*.html"):
        page = path.read_text("utf-8")
        better = NAME.sub(lambda found: found[1] + with_joints(WORD.sub(r"\1", found[2])) + found[3], page)
        if '<span class="line"' not in page:
            better = LISTING.sub(lambda found: found[1] + in_lines(found[2]) + found[3], better)
        if better != page:
            path.write_text(better, "utf-8")


def setup(app: Sphinx) -> dict[str, object]:
    """Register the rewriting."""
    app.connect("build-finished", rewrite)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
