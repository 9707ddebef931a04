"""Plots in both palettes: transparent, and beside each one, drawn for the light page, its copy for the dark page.

A notebook runs once. Its plots are vector drawings in the colours of geolib.figures; the copy has each colour's
counterpart. A browser fetches the one that it shows.
"""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx

from geolib.figures import DARK_INK, PAPER, dark

FIGURE = '<g id="figure_1">'
METADATA = re.compile(r"(?s)\s*<metadata>.*?</metadata>")
COLOUR = re.compile(r"#[0-9a-f]{6}\b")
IMAGE = re.compile(r'<img ([^>]*?)src="([^"]*?_images/[\w.-]+)\.svg"([^>]*)>')
MEDIA = "screen and (prefers-color-scheme: dark)"


def is_plot(svg: str) -> bool:
    """Whether matplotlib drew it."""
    return FIGURE in svg


def transparent(svg: str) -> str:
    """The plot without its sheet of paper, and without the hour at which it was drawn."""
    return METADATA.sub("", svg).replace(f"fill: {PAPER}", "fill: none")


def darkened(svg: str) -> str:
    """The plot for the dark page; over a picture of values, black and white stay."""
    kept = {"#000000", "#ffffff"} if "<image" in svg else set()
    if not kept:  # black fills are not written down
        svg = svg.replace(FIGURE, f'{FIGURE[:-1]} fill="{DARK_INK}">')
    return COLOUR.sub(lambda found: found[0] if found[0] in kept | {DARK_INK} else dark(found[0]), svg)


def paint(app: Sphinx, problem: Exception | None) -> None:
    """Write the plots, and let each page choose."""
    if problem or app.builder.format != "html":
        return
    plots = set()
    for path in (Path(app.outdir) / "_images").glob("*.svg"):
        svg = path.read_text("utf-8")
        if path.stem.endswith("-dark") or not is_plot(svg):
            continue
        plots.add(path.stem)
        clear = transparent(svg)
        path.write_text(clear, "utf-8")
        path.with_name(f"{path.stem}-dark.svg").write_text(darkened(clear), "utf-8")

    def choice(found: re.Match[str]) -> str:
        """The picture with its dark copy."""
        if found[2].rsplit("/", 1)[-1] not in plots:
            return found[0]
        return f'<picture><source media="{MEDIA}" srcset="{found[2]}-dark.svg">{found[0]}</picture>'

    for path in Path(app.outdir).rglob("*.html"):
        page = path.read_text("utf-8")
        if "_images/" in page and "<picture>" not in page:
            path.write_text(IMAGE.sub(choice, page), "utf-8")


def setup(app: Sphinx) -> dict[str, object]:
    """Register the painting."""
    app.connect("build-finished", paint)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
