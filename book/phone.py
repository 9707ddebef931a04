"""Beside each plot of a chapter, the same plot laid out for a phone; runs in the chapters' kernel for the site.

A plot 700 pixels wide, shrunk to a phone's 330, has labels of five pixels. So each figure is drawn a second time as
wide as a phone's column: panels that stood side by side stand one below another, and no label is smaller than eleven
pixels. The second drawing travels as a comment behind the first; book/_ext/palettes.py makes a file of it.
"""

import base64
import pickle
import re
import textwrap
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator

WIDTH = 3.3  # inches: what a phone 360 pixels wide has between its margins
LEAST, MOST = 8.8, 9.4  # points, 4/3 of a pixel each; the page shows 308 of the 328 pixels that are drawn
COMMENT = "<!--phone:{}-->"


def panels_of(figure: Figure) -> list[Axes]:
    """The panels of a figure that stand in one row, from left to right; none where they do not."""
    places = {axes: spec for axes in figure.axes if (spec := axes.get_subplotspec()) is not None}
    numbers, grids = {spec.num1 for spec in places.values()}, {spec.get_gridspec() for spec in places.values()}
    row = len(grids) == 1 and len(numbers) == len(places) > 1 and next(iter(grids)).nrows == 1
    return sorted(places, key=lambda axes: places[axes].num1) if row else []


def stack(figure: Figure, panels: list[Axes]) -> None:
    """Put panels that stand side by side into rows as wide as a phone.

    Two share a row where each is a picture with a shape of its own, or one of many with the same axis.
    """
    together = len(panels) > 3 and all(each.get_shared_y_axes().joined(panels[0], each) for each in panels)
    halves = {axes: together or axes.get_aspect() != "auto" for axes in panels}
    rows: list[list[Axes]] = []
    for axes in panels:
        if rows and len(rows[-1]) == 1 and halves[axes] and halves[rows[-1][0]]:
            rows[-1].append(axes)
        else:
            rows.append([axes])
    width, height = figure.get_size_inches()
    shape = min(max(height / (width / len(panels)), 0.5), 0.72)
    heights = [WIDTH * (0.5 if row[0].get_aspect() != "auto" else shape) for row in rows]
    figure.set_size_inches(WIDTH, sum(heights) + 0.25 * len(rows))
    grid = GridSpec(len(rows), 2, figure=figure, height_ratios=heights)
    for i, row in enumerate(rows):
        for j, axes in enumerate(row):
            axes.set_subplotspec(grid[i, j] if halves[axes] else grid[i, :])
        row[0].tick_params(labelleft=True)


def wrapped(text: str, width: float, size: float) -> str:
    """The text in lines that fit a width in inches; formulas stay whole."""
    letters = max(12, int(width * 72 / (0.54 * size)))
    whole = re.sub(r"\$[^$]*\$", lambda formula: formula[0].replace(" ", "\0"), text)
    return textwrap.fill(whole, letters, break_long_words=False).replace("\0", " ") if len(text) > letters else text


def fit_words(figure: Figure) -> None:
    """Sizes that a phone's reader can read, and titles that fit their panel."""
    for text in figure.findobj(Text):
        text.set_fontsize(min(max(text.get_fontsize(), LEAST), MOST))
    for axes in figure.axes:
        box = axes.get_position()
        wide, high = box.width * WIDTH, box.height * figure.get_size_inches()[1]
        for place in ("left", "center", "right"):
            title = axes.get_title(place)
            if title:
                axes.set_title(wrapped(title, max(wide, 0.9), MOST), loc=place, fontsize=MOST)
        axes.xaxis.label.set_text(wrapped(axes.get_xlabel(), max(wide, 1.4), LEAST))
        axes.yaxis.label.set_text(wrapped(axes.get_ylabel(), max(high, 1.2), LEAST))
    if figure.get_suptitle():
        figure.suptitle(wrapped(figure.get_suptitle(), WIDTH, MOST), fontsize=MOST)


def thin_ticks(figure: Figure) -> None:
    """Fewer numbers along an axis on which they would touch; names lean instead."""
    figure.canvas.draw()
    for axes in figure.axes:
        labels = [label for label in axes.get_xticklabels() if label.get_text() and label.get_visible()]
        boxes = sorted((label.get_window_extent() for label in labels), key=lambda box: box.x0)
        if all(a.x1 + 2 < b.x0 for a, b in pairwise(boxes)):
            continue
        if isinstance(axes.xaxis.get_major_locator(), FixedLocator):
            for label in labels:
                label.set(rotation=40, ha="right", rotation_mode="anchor")
        elif axes.get_xscale() == "linear":
            axes.locator_params(axis="x", nbins=3)


def move_legends(figure: Figure) -> None:
    """A legend stands above its panel, below one with a title, or below all panels: inside there is no room."""
    style = {"fontsize": LEAST, "handlelength": 1.6}
    legends = [(figure, legend) for legend in figure.legends] + [(axes, axes.get_legend()) for axes in figure.axes]
    for place, legend in [(place, legend) for place, legend in legends if legend]:
        handles, names = legend.legend_handles, [text.get_text() for text in legend.get_texts()]
        if place is figure:  # of all panels: in one column it is no wider than the phone
            legend.remove()
            figure.legend(handles, names, loc="outside lower center", **style)
        else:
            titled = any(place.get_title(side) for side in ("left", "center", "right"))
            corner, at = ("upper left", (0, -0.28)) if titled else ("lower left", (0, 1))
            place.legend(handles, names, loc=corner, bbox_to_anchor=at, borderaxespad=0.2, **style)
        width, height = figure.get_size_inches()
        figure.set_size_inches(width, height + 0.18 * len(names))


def lay_out(figure: Figure) -> None:
    """Lay a figure out for a phone, in place."""
    figure.set_size_inches(WIDTH, figure.get_size_inches()[1])
    panels = panels_of(figure)
    if panels:
        stack(figure, panels)
    move_legends(figure)
    figure.canvas.draw()  # a layout, so that panels know their widths
    fit_words(figure)
    thin_ticks(figure)


def with_phone(print_figure: Callable[..., Any]) -> Callable[..., Any]:
    """What prints a figure for a notebook, and behind a vector drawing the same one for a phone."""

    def both(figure: Figure, fmt: str = "png", *more: Any, **options: Any) -> Any:
        """Print as ever; a figure that is as narrow as a phone is not drawn again."""
        drawn = print_figure(figure, fmt, *more, **options)
        if fmt != "svg" or figure.get_size_inches()[0] <= WIDTH + 0.2:
            return drawn
        again = pickle.loads(pickle.dumps(figure))  # the chapter's own figure stays as it is
        lay_out(again)
        phone = print_figure(again, fmt, *more, **options)
        return drawn + COMMENT.format(base64.b64encode(phone.encode()).decode())

    return both


if __name__ == "phone":
    from IPython.core import pylabtools

    pylabtools.print_figure = with_phone(pylabtools.print_figure)
