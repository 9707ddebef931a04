"""What a finished page need not carry.

- An icon is a drawing in the page, taken from the theme's collection; the collection, 1.5 MB, is left out.
- A picture is fetched when it comes near; its place has its size before.
- The search's script and index come with the search page alone.
- The palette is known before the first line is drawn: the theme asks late, and then the whole page is styled anew.
- A cell of a table that holds one paragraph holds its text.
- The search shows a stretch of a page's text, not of its margins.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from sphinx.application import Sphinx

COLLECTION = "_static/scripts/fontawesome.js"
ICON = re.compile(r'<(i|span) class="([^"]*\bfa-[^"]*)"([^>]*)></\1>')
STYLES = {"fa-solid", "fas", "fa-regular", "far", "fa-brands", "fab"}
PICTURE = re.compile(r"<img (?![^>]*\bloading=)[^>]*>")
SOURCE = re.compile(r'\bsrc="([^":?]+)"')
LENGTH = re.compile(r'<svg\b[^>]*?\b(width|height)="([\d.]+)(pt|px)?"[^>]*?\b(?:width|height)="([\d.]+)')
CELL = re.compile(r"(<t[dh]\b[^>]*>)<p>((?:(?!</?p\b).)*)</p>(?=</t[dh]>)", re.DOTALL)
SCRIPT_OF_ICONS = re.compile(r'\s*<script defer src="[^"]*scripts/fontawesome\.js[^"]*"></script>')
SCRIPTS_OF_SEARCH = re.compile(r'\s*<script src="[^"]*(?:searchtools|language_data|searchindex)\.js[^"]*"></script>')
THEME_ASKED_LATE = 'dataset.theme = localStorage.getItem("theme") || "auto";'
THEME_KNOWN = """dataset.theme = { light: "light", dark: "dark" }[document.documentElement.dataset.mode]
      ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");"""


def drawing(collection: str, found: re.Match[str]) -> str:
    """An icon's element as a drawing; the solid form of a name stands last in the collection."""
    classes = [name for name in found[2].split() if name not in STYLES]
    for name in (each.removeprefix("fa-") for each in classes if each.startswith("fa-")):
        entry = rf'[{{,]"?{re.escape(name)}"?:\[(\d+),(\d+),\[[^\]]*\],"\w+","([^"]*)"\]'
        shapes = re.findall(entry, collection)
        if shapes:
            width, height, path = shapes[-1]
            rest = found[3].replace(' aria-hidden="true"', "")
            return (
                f'<svg class="svg-inline--fa {" ".join(classes)}"{rest} aria-hidden="true" '
                f'viewBox="0 0 {width} {height}"><path fill="currentColor" d="{path}"></path></svg>'
            )
    return found[0]


@cache
def size(path: Path) -> tuple[int, int] | None:
    """A picture's width and height in pixels of a page, as far as its first bytes tell."""
    start = path.read_bytes()[:4000] if path.is_file() else b""
    if start.startswith(b"\x89PNG"):
        return int.from_bytes(start[16:20], "big"), int.from_bytes(start[20:24], "big")
    found = LENGTH.search(start.decode("utf-8", "ignore"))
    if not found:
        return None
    first, second = (round(float(found[i]) * (4 / 3 if found[3] == "pt" else 1)) for i in (2, 4))
    return (first, second) if found[1] == "width" else (second, first)


def waiting(tag: str, folder: Path) -> str:
    """A picture's element, to be fetched late, with its size."""
    source = SOURCE.search(tag)
    ours = source and "_images/" in source[1] and " width=" not in tag
    known = size((folder / source[1]).resolve()) if ours else None
    sizes = f'width="{known[0]}" height="{known[1]}" ' if known else ""
    return tag.replace("<img ", f'<img loading="lazy" {sizes}', 1)


def lighten(app: Sphinx, problem: Exception | None) -> None:
    """Rewrite the site's pages."""
    source = Path(app.outdir) / COLLECTION
    if problem or app.builder.format != "html" or not source.is_file():
        return
    collection = source.read_text("utf-8")

    @cache
    def draw(element: str) -> str:
        """Each kind of icon is looked for once."""
        return drawing(collection, ICON.fullmatch(element))

    for path in Path(app.outdir).rglob("*.html"):
        page = path.read_text("utf-8")
        lean = SCRIPT_OF_ICONS.sub("", page).replace(THEME_ASKED_LATE, THEME_KNOWN)
        lean = ICON.sub(lambda found: draw(found[0]), lean)
        lean = PICTURE.sub(lambda found, folder=path.parent: waiting(found[0], folder), lean)
        if path.name != "ledger.html":  # its cells scroll by the paragraph
            lean = CELL.sub(r"\1\2", lean)
        if path.name != "search.html":
            lean = SCRIPTS_OF_SEARCH.sub("", lean)
        if lean != page:
            path.write_text(lean, "utf-8")


def search_script(app: Sphinx, pagename: str, templatename: str, context: dict[str, object], doctree: object) -> None:
    """Add the script that finds a page's text to the search page."""
    if pagename == "search":
        app.add_js_file("search-text.js", defer="defer")


def setup(app: Sphinx) -> dict[str, object]:
    """Register the rewriting, and the search page's own script."""
    app.connect("build-finished", lighten)
    app.connect("html-page-context", search_script)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
