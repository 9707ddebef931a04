"""What a reader hears: marks of the finished pages that the theme and Sphinx leave out or set wrongly.

- The side bar, with the book's name and the search in it, is a landmark.
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


def mended(page: str) -> str:
    """The page with its marks set."""
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
