"""Colours: plots in both palettes and two widths, and methods in tables as they are in plots.

A notebook runs once. Its plots are vector drawings in the colours of geolib.figures, transparent on the page; the copy
for the dark page has each colour's counterpart. The drawing for a phone stands as a comment behind the plot
(book/phone.py). A browser fetches the one that it shows. A table whose first column names methods, as most tables of
recorded runs do, shows before each name a short stroke in the method's style, with a dot where something is added.
"""

import base64
import re
from functools import cache
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

from geolib.figures import COLOURS, DARK_COLOURS, DARK_INK, METHOD_STYLES, PAPER, dark
from geolib.lab.experiments import EXPERIMENTS

# Plots --------------------------------------------------------------------------------------------------------------

FIGURE = '<g id="figure_1">'  # matplotlib drew it
METADATA = re.compile(r"(?s)\s*<metadata>.*?</metadata>")  # the hour at which it was drawn
COLOUR = re.compile(r"#[0-9a-f]{6}\b")
IMAGE = re.compile(r'<img ([^>]*?)src="([^"]*?_images/[\w.-]+)\.svg"([^>]*)>')
PHONE = re.compile(r"<!--phone:([\w+/=]*)-->")
NARROW, DARK = "screen and (max-width: 576px)", "(prefers-color-scheme: dark)"
LENGTH = re.compile(r'<svg\b[^>]*?\b(width|height)="([\d.]+)(pt|px)?"[^>]*?\b(?:width|height)="([\d.]+)')


def apart(svg: str) -> tuple[str, str]:
    """A plot, and the same for a phone; an empty string where there is none."""
    found = PHONE.search(svg)
    return PHONE.sub("", svg), base64.b64decode(found[1]).decode() if found else ""


def darkened(svg: str) -> str:
    """The plot for the dark page; over a picture of values, black and white stay."""
    kept = {DARK_INK, "#000000", "#ffffff"} if "<image" in svg else {DARK_INK}
    if "<image" not in svg:  # black fills are not written down
        svg = svg.replace(FIGURE, f'{FIGURE[:-1]} fill="{DARK_INK}">')
    return COLOUR.sub(lambda found: found[0] if found[0] in kept else dark(found[0]), svg)


def paint(folder: Path) -> set[str]:
    """Write each plot of a folder without its sheet of paper, its dark copy, and both for a phone; the plots' names."""
    plots = set()
    for path in folder.glob("*.svg"):
        svg = path.read_text("utf-8")
        if path.stem.endswith(("-dark", "-phone")) or FIGURE not in svg:
            continue
        plots.add(path.stem)
        for name, each in zip((path.stem, f"{path.stem}-phone"), apart(svg), strict=True):
            if each:
                clear = METADATA.sub("", each).replace(f"fill: {PAPER}", "fill: none")
                (folder / f"{name}.svg").write_text(clear, "utf-8")
                (folder / f"{name}-dark.svg").write_text(darkened(clear), "utf-8")
    return plots


def choose(page: str, folder: Path, plots: set[str]) -> str:
    """A page whose plots are shown as the first of their media that fits.

    The page's script asks for the dark ones by the page's own theme: their ``data-dark`` is what holds then.
    """

    def choice(found: re.Match[str]) -> str:
        name, sources = found[2], ""
        if (plot := name.rsplit("/", 1)[-1]) not in plots:
            return found[0]
        if measures := size(folder / f"{plot}-phone.svg"):
            sides = 'width="{}" height="{}"'.format(*measures)
            dark_one = (
                f'<source media="{NARROW} and {DARK}" data-dark="{NARROW}" srcset="{name}-phone-dark.svg" {sides}>'
            )
            sources = f'{dark_one}<source media="{NARROW}" srcset="{name}-phone.svg" {sides}>'
        sources += f'<source media="screen and {DARK}" data-dark="screen" srcset="{name}-dark.svg">'
        return f"<picture>{sources}{found[0]}</picture>"

    return page if "<picture>" in page else IMAGE.sub(choice, page)


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


# Methods ------------------------------------------------------------------------------------------------------------

DASHES = {"-": "solid", "--": "dashed", ":": "dotted", "-.": "mixed"}


@cache
def methods() -> dict[str, str]:
    """The method that a row's name in the tables stands for; a name that stands for several is left out."""
    found: dict[str, set[str]] = {name: {name} for name in METHOD_STYLES}
    for name, row in [item for experiment in EXPERIMENTS.values() for item in experiment.rows.items()]:
        for shown in (name, row.title):
            found.setdefault(shown, set()).add(row.method or name)
    known = {name: each for name, (each, *others) in found.items() if not others}
    return {name: each for name, each in known.items() if each.split("+")[0] in METHOD_STYLES}


def mark_methods(app: Sphinx, document: nodes.document) -> None:
    """Put the strokes into the tables whose rows are methods: two at least, and at least every second row."""
    for body in document.findall(nodes.tbody):
        cells = [(row[0], row[0].astext().strip().replace("\u2019", "'")) for row in body if len(row) > 1]
        named = [(cell, methods()[text]) for cell, text in cells if text in methods()]
        for cell, method in named if len(named) >= max(2, len(body) / 2) else ():
            name, *added = method.split("+")
            colour, dashes = METHOD_STYLES[name]
            classes = ["stroke", f"stroke-{colour}", f"stroke-{DASHES[dashes]}", *["stroke-more"] * bool(added)]
            place = cell[0] if cell.children and isinstance(cell[0], nodes.paragraph) else cell
            place.insert(0, nodes.inline(classes=classes))


def write_style(app: Sphinx, problem: Exception | None) -> None:
    """Write the strokes' colours, light and dark, beside the site's other styles."""
    if not problem and app.builder.format == "html":
        rule = 'html[data-theme="{}"] .stroke-{} {{ color: {}; }}\n'
        both = [("light", COLOURS), ("dark", DARK_COLOURS)]
        rules = [rule.format(theme, *named) for theme, colours in both for named in colours.items()]
        (Path(app.outdir) / "_static" / "methods.css").write_text("".join(rules), "utf-8")


def setup(app: Sphinx) -> dict[str, object]:
    """Register the strokes; postprocess.py rewrites the pages."""
    app.connect("doctree-read", mark_methods)
    app.connect("build-finished", write_style)
    app.add_css_file("methods.css")
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
