"""What a reader hears: marks of the finished pages that the theme and Sphinx leave out or set wrongly.

- The side bar, with the book's name and the search in it, is a landmark, and comes behind the text: who goes from stop
  to stop with the Tab key reaches the text first. It stands on the left as before (house.css).
- What skips to the text leads to its title.
- A long signature's parameters are lines, no list of definitions without terms.
- The empty corner of a table is a cell and no head.
- A work of the bibliography is an item of its list; its older role is deprecated.
"""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx

SIDE_BAR = '<div id="pst-primary-sidebar" class="bd-sidebar-primary bd-sidebar">'
LANDMARK = SIDE_BAR.replace(">", ' role="complementary" aria-label="Contents and search">')
PARAMETERS = re.compile(r"<dl>\s*((?:<dd>(?:(?!</?d[dl]>).)*</dd>\s*)+)</dl>", re.DOTALL)
CORNER = re.compile(r"<th([^>]*)>(?:\s|</?p>)*</th>")


MAIN = '<main id="main-content"'
SKIP, SKIPPED_TO = '<a href="#main-content">', '<a href="#page-title">'
TITLE = re.compile(r'(<article class="bd-article"[^>]*>(?:(?!<h1\b).)*?)<h1>', re.DOTALL)


def text_first(page: str) -> str:
    """The page with its side bar behind its text."""
    bar, text, end = page.find(SIDE_BAR), page.find(MAIN), page.rfind("</main>") + len("</main>")
    if not 0 < bar < text < end:
        return page
    return f"{page[:bar]}{page[text:end]}\n{page[bar:text]}{page[end:]}"


def title_to_skip_to(page: str) -> str:
    """The page whose first link leads to its title; where there is no title, to the text as before."""
    page, found = TITLE.subn(r'\1<h1 id="page-title" tabindex="-1">', page, count=1)
    return page.replace(SKIP, SKIPPED_TO) if found else page


def mended(page: str) -> str:
    """The page with its marks set."""
    page = title_to_skip_to(text_first(page))
    page = page.replace(SIDE_BAR, LANDMARK).replace(' role="doc-biblioentry"', ' role="listitem"')
    page = CORNER.sub(r"<td\1></td>", page)
    return PARAMETERS.sub(lambda found: f'<span class="sig-lines">{in_lines(found[1])}</span>', page)


def in_lines(parameters: str) -> str:
    """A signature's parameters, each an element of a line."""
    return parameters.replace("<dd>", '<span class="sig-line">').replace("</dd>", "</span>")


def mend(app: Sphinx, problem: Exception | None) -> None:
    """Rewrite the site's pages."""
    if problem or app.builder.format != "html":
        return
    for path in Path(app.outdir).rglob("*.html"):
        page = path.read_text("utf-8")
        if (better := mended(page)) != page:
            path.write_text(better, "utf-8")


def setup(app: Sphinx) -> dict[str, object]:
    """Register the rewriting."""
    app.connect("build-finished", mend)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
