"""Methods in tables have the colour and the dashes that they have in plots, as a Sphinx extension.

A table whose first column names methods, as most tables of recorded runs do, shows before each name a short stroke in
the method's style: geolib.figures.METHOD_STYLES, with a dot where something is added to the method.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

from geolib.figures import COLOURS, DARK_COLOURS, METHOD_STYLES
from geolib.lab.experiments import EXPERIMENTS

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


def named_in(row: nodes.row) -> str | None:
    """The method that a row's first cell names."""
    return methods().get(row[0].astext().strip().replace("\u2019", "'")) if len(row) > 1 else None


def mark_methods(app: Sphinx, document: nodes.document) -> None:
    """Put the strokes into the tables whose rows are methods: two at least, and at least every second row."""
    for body in document.findall(nodes.tbody):
        named = [method for row in body if (method := named_in(row))]
        if len(named) < 2 or 2 * len(named) < len(body):
            continue
        for row in body:
            if method := named_in(row):
                cell = row[0]
                place = cell[0] if cell.children and isinstance(cell[0], nodes.paragraph) else cell
                place.insert(0, nodes.inline(classes=classes_of(method)))


def classes_of(method: str) -> list[str]:
    """The classes of a method's stroke."""
    name, *added = method.split("+")
    colour, dashes = METHOD_STYLES[name]
    return ["stroke", f"stroke-{colour}", f"stroke-{DASHES[dashes]}", *(["stroke-more"] if added else [])]


def colours_css() -> str:
    """The style of the strokes, light and dark."""
    themes = {"light": COLOURS, "dark": DARK_COLOURS}
    return "".join(
        f'html[data-theme="{theme}"] .stroke-{name} {{ color: {colour}; }}\n'
        for theme, colours in themes.items()
        for name, colour in colours.items()
    )


def write_style(app: Sphinx, problem: Exception | None) -> None:
    """Write the strokes' colours beside the site's other styles."""
    if not problem and app.builder.format == "html":
        (Path(app.outdir) / "_static" / "methods.css").write_text(colours_css(), "utf-8")


def setup(app: Sphinx) -> dict[str, object]:
    """Register the strokes."""
    app.connect("doctree-read", mark_methods)
    app.connect("build-finished", write_style)
    app.add_css_file("methods.css")
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
