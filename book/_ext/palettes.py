"""Plots in both palettes and two widths: transparent, for the light page and the dark one, for a desk and a phone.

A notebook runs once. Its plots are vector drawings in the colours of geolib.figures; the copy for the dark page has
each colour's counterpart. The drawing for a phone stands as a comment behind the plot (book/phone.py). A browser
fetches the one that it shows.
"""

from __future__ import annotations

import base64
import re
from pathlib import Path

from sphinx.application import Sphinx

from geolib.figures import DARK_INK, PAPER, dark

FIGURE = '<g id="figure_1">'
METADATA = re.compile(r"(?s)\s*<metadata>.*?</metadata>")
COLOUR = re.compile(r"#[0-9a-f]{6}\b")
IMAGE = re.compile(r'<img ([^>]*?)src="([^"]*?_images/[\w.-]+)\.svg"([^>]*)>')
PHONE = re.compile(r"<!--phone:([\w+/=]*)-->")
NARROW, DARK = "(max-width: 576px)", "(prefers-color-scheme: dark)"


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


def apart(svg: str) -> tuple[str, str]:
    """A plot, and the same for a phone; an empty string where there is none."""
    found = PHONE.search(svg)
    return PHONE.sub("", svg), base64.b64decode(found[1]).decode() if found else ""


def write(path: Path, svg: str) -> None:
    """A plot and its dark copy."""
    clear = transparent(svg)
    path.write_text(clear, "utf-8")
    path.with_name(f"{path.stem}-dark.svg").write_text(darkened(clear), "utf-8")


def measures(path: Path) -> str:
    """Width and height of a plot as attributes, in pixels."""
    start = path.read_text("utf-8")[:2000]
    width, height = (
        round(float(re.search(rf'\b{side}="([\d.]+)pt"', start)[1]) * 4 / 3) for side in ("width", "height")
    )
    return f'width="{width}" height="{height}"'


def choice(found: re.Match[str], folder: Path) -> str:
    """A plot's element with the others it may be: the first whose media fit is shown.

    The page's script asks for the dark ones by the page's own theme: their ``data-dark`` is what holds then.
    """
    plot = folder / found[2].rsplit("/", 1)[-1]
    sources = ""
    if plot.with_name(f"{plot.name}-phone.svg").is_file():
        size = measures(plot.with_name(f"{plot.name}-phone.svg"))
        at = f"screen and {NARROW}"
        sources = (
            f'<source media="{at} and {DARK}" data-dark="{at}" srcset="{found[2]}-phone-dark.svg" {size}>'
            f'<source media="{at}" srcset="{found[2]}-phone.svg" {size}>'
        )
    sources += f'<source media="screen and {DARK}" data-dark="screen" srcset="{found[2]}-dark.svg">'
    return f"<picture>{sources}{found[0]}</picture>"


def paint(app: Sphinx, problem: Exception | None) -> None:
    """Write the plots, and let each page choose."""
    if problem or app.builder.format != "html":
        return
    folder, plots = Path(app.outdir) / "_images", set()
    for path in folder.glob("*.svg"):
        svg = path.read_text("utf-8")
        if path.stem.endswith(("-dark", "-phone")) or not is_plot(svg):
            continue
        plots.add(path.stem)
        desk, phone = apart(svg)
        write(path, desk)
        if phone:
            write(path.with_name(f"{path.stem}-phone.svg"), phone)

    for path in Path(app.outdir).rglob("*.html"):
        page = path.read_text("utf-8")
        if "_images/" in page and "<picture>" not in page:
            chosen = lambda found: choice(found, folder) if found[2].rsplit("/", 1)[-1] in plots else found[0]  # noqa: E731
            path.write_text(IMAGE.sub(chosen, page), "utf-8")


def setup(app: Sphinx) -> dict[str, object]:
    """Register the painting."""
    app.connect("build-finished", paint)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
