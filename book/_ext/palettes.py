"""Colours: plots in both palettes and two widths, and methods in tables as they are in plots.

A notebook runs once. Its plots are vector drawings in the colours of geolib.figures, transparent on the page; the copy
for the dark page has each colour's counterpart. The drawing for a phone stands as a comment behind the plot
(book/phone.py). A browser fetches the one that it shows. A table whose first column names methods, as most tables of
recorded runs do, shows before each name a short stroke in the method's style, with a dot where something is added.
"""

from __future__ import annotations

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
METADATA = re.compile(r"(?s)\s*<metadata>.*?</metadata>")
COLOUR = re.compile(r"#[0-9a-f]{6}\b")
IMAGE = re.compile(r'<img ([^>]*?)src="([^"]*?_images/[\w.-]+)\.svg"([^>]*)>')
PHONE = re.compile(r"<!--phone:([\w+/=]*)-->")
NARROW, DARK = "(max-width: 576px)", "(prefers-color-scheme: dark)"


def apart(svg: str) -> tuple[str, str]:
    """A plot, and the same for a phone; an empty string where there is none."""
    found = PHONE.search(svg)
    return PHONE.sub("", svg), base64.b64decode(found[1]).decode() if found else ""


def transparent(svg: str) -> str:
    """The plot without its sheet of paper, and without the hour at which it was drawn."""
    return METADATA.sub("", svg).replace(f"fill: {PAPER}", "fill: none")


def darkened(svg: str) -> str:
    """The plot for the dark page; over a picture of values, black and white stay."""
    kept = {DARK_INK, "#000000", "#ffffff"} if "<image" in svg else {DARK_INK}
    if "<image" not in svg:  # black fills are not written down
        svg = svg.replace(FIGURE, f'{FIGURE[:-1]} fill="{DARK_INK}">')
    return COLOUR.sub(lambda found: found[0] if found[0] in kept else dark(found[0]), svg)


def paint(folder: Path) -> set[str]:
    """Write each plot of a folder, its dark copy, and both for a phone; the plots' names."""
    plots = set()
    for path in folder.glob("*.svg"):
        svg = path.read_text("utf-8")
        if path.stem.endswith(("-dark", "-phone")) or FIGURE not in svg:
            continue
        plots.add(path.stem)
        for name, each in zip((path.stem, f"{path.stem}-phone"), apart(svg), strict=True):
            if each:
                clear = transparent(each)
                (folder / f"{name}.svg").write_text(clear, "utf-8")
                (folder / f"{name}-dark.svg").write_text(darkened(clear), "utf-8")
    return plots


def choose(page: str, folder: Path, plots: set[str]) -> str:
    """A page whose plots are shown as the first of their media that fits.

    The page's script asks for the dark ones by the page's own theme: their ``data-dark`` is what holds then.
    """

    def choice(found: re.Match[str]) -> str:
        phone = folder / f"{found[2].rsplit('/', 1)[-1]}-phone.svg"
        if phone.stem.removesuffix("-phone") not in plots:
            return found[0]
        sources = ""
        if phone.is_file():
            at, size = f"screen and {NARROW}", measures(phone)
            sources = (
                f'<source media="{at} and {DARK}" data-dark="{at}" srcset="{found[2]}-phone-dark.svg" {size}>'
                f'<source media="{at}" srcset="{found[2]}-phone.svg" {size}>'
            )
        sources += f'<source media="screen and {DARK}" data-dark="screen" srcset="{found[2]}-dark.svg">'
        return f"<picture>{sources}{found[0]}</picture>"

    return page if "<picture>" in page else IMAGE.sub(choice, page)


def measures(path: Path) -> str:
    """Width and height of a plot as attributes, in pixels."""
    start = path.read_text("utf-8")[:2000]
    points = {side: re.search(rf'\b{side}="([\d.]+)pt"', start)[1] for side in ("width", "height")}
    return " ".join(f'{side}="{round(float(length) * 4 / 3)}"' for side, length in points.items())


# Methods ------------------------------------------------------------------------------------------------------------

DASHES = {"-": "solid", "--": "dashed", ":": "dotted", "-.": "mixed"}


@cache
def methods() -> dict[str, str]:
    """The method that a row's name in the tables stands for; a name that stands for several is left out."""
    found: dict[str, set[str]] = {name: {name} for name in METHOD_STYLES}
    for experiment in EXPERIMENTS.values():
        for name, row in experiment.rows.items():
            for shown in (name, row.title):
                found.setdefault(shown, set()).add(row.method or name)
    known = {name: each for name, (each, *others) in found.items() if not others}
    return {name: each for name, each in known.items() if each.split("+")[0] in METHOD_STYLES}


def mark_methods(app: Sphinx, document: nodes.document) -> None:
    """Put the strokes into the tables whose rows are methods: two at least, and at least every second row."""
    for body in document.findall(nodes.tbody):
        cells = [row[0] for row in body if len(row) > 1]
        named = [(cell, methods().get(cell.astext().strip().replace("\u2019", "'"))) for cell in cells]
        named = [(cell, method) for cell, method in named if method]
        if len(named) < 2 or 2 * len(named) < len(body):
            continue
        for cell, method in named:
            name, *added = method.split("+")
            colour, dashes = METHOD_STYLES[name]
            classes = ["stroke", f"stroke-{colour}", f"stroke-{DASHES[dashes]}", *["stroke-more"] * bool(added)]
            place = cell[0] if cell.children and isinstance(cell[0], nodes.paragraph) else cell
            place.insert(0, nodes.inline(classes=classes))


def write_style(app: Sphinx, problem: Exception | None) -> None:
    """Write the strokes' colours, light and dark, beside the site's other styles."""
    if not problem and app.builder.format == "html":
        rules = [
            f'html[data-theme="{theme}"] .stroke-{name} {{ color: {colour}; }}\n'
            for theme, colours in (("light", COLOURS), ("dark", DARK_COLOURS))
            for name, colour in colours.items()
        ]
        (Path(app.outdir) / "_static" / "methods.css").write_text("".join(rules), "utf-8")


def setup(app: Sphinx) -> dict[str, object]:
    """Register the strokes; postprocess.py rewrites the pages."""
    app.connect("doctree-read", mark_methods)
    app.connect("build-finished", write_style)
    app.add_css_file("methods.css")
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
