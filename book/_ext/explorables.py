"""What a page holds of its explorables, as a Sphinx extension.

A widget's code, what all of them share of it, and long lists travel in scripts of their own,
``_static/explorables/NAME-HASH.js``, which the page's host asks for when the explorable comes into view; a style that
several widgets of a page share stands there once. Beside each view stands how high it will be at some widths, as
book/heights.py measured it, so that the page keeps its place. In the gallery a line says in which chapters an
explorable stands.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

from geolib.explorables import _MODULES

WIDGETS = re.compile(r'(<script type="application/vnd\.jupyter\.widget-state\+json">)(.*?)(</script>)', re.DOTALL)
VIEWS = re.compile(r'(?s)(<script type="application/vnd\.jupyter\.widget-view\+json")(>\s*(\{.*?\})\s*</script>)')
HEIGHTS = Path(__file__).resolve().parents[1] / "images" / "explorables" / "heights.json"
GALLERY = "book/gallery"
MADE_BY = {module: name for name, module in _MODULES.items()}  # from a still's name to its explorable's
LONG = 4000  # characters of a value that travels apart


def lighten_pages(app: Sphinx, problem: Exception | None) -> None:
    """Write the pieces of all pages with explorables, and the pages without them."""
    if problem or app.builder.format != "html":
        return
    pieces: dict[str, str] = {}
    pages = {path: path.read_text("utf-8") for path in Path(app.outdir).rglob("*.html")}
    states = {path: found for path, page in pages.items() if (found := WIDGETS.search(page))}
    heights = json.loads(HEIGHTS.read_text("utf-8")) if HEIGHTS.is_file() else {}
    texts = [code for found in states.values() for code in codes(found[2])]
    # Of a few pages made anew the code begins as that of all pages did before.
    shared = next((known for known in shared_before(app) if all(code.startswith(known) for code in texts)), "")
    shared = shared or common_start(texts)
    for path, found in states.items():
        page, (light, apart) = pages[path], lighter(found[2], shared)
        pieces |= apart
        if light != found[2]:
            made = page[: found.start(2)] + light + page[found.end(2) :]
            path.write_text(with_heights(made, json.loads(found[2])["state"], heights), "utf-8")
    folder = folder_of(app)
    folder.mkdir(parents=True, exist_ok=True)
    for name, script in pieces.items():
        (folder / f"{name}.js").write_text(script, "utf-8")


def folder_of(app: Sphinx) -> Path:
    """Where the pieces stand."""
    return Path(app.outdir) / "_static" / "explorables"


def shared_before(app: Sphinx) -> list[str]:
    """What the code of all pages began with when they were made before."""
    scripts = (path.read_text("utf-8") for path in sorted(folder_of(app).glob("shared-*.js")))
    return [json.loads(script.partition("] = ")[2].removesuffix(";\n")) for script in scripts]


def depend_on_heights(app: Sphinx, document: nodes.document) -> None:
    """A page with explorables is made anew when the heights that were measured change."""
    if "explorables" in Path(app.env.doc2path(app.env.docname)).read_text("utf-8"):
        app.env.note_dependency(str(HEIGHTS))


def with_heights(page: str, states: dict[str, Any], heights: dict[str, dict[str, int]]) -> str:
    """The page with ``data-heights="WIDTH:HEIGHT ..."`` beside each view that was measured."""

    def mark(found: re.Match[str]) -> str:
        state = states.get(json.loads(found[3])["model_id"], {}).get("state", {})
        measured = heights.get(shape(state), heights.get(shape(state).split()[0], {}))
        pairs = " ".join(f"{width}:{height}" for width, height in measured.items())
        return f'{found[1]} data-heights="{pairs}"{found[2]}' if pairs else found[0]

    return VIEWS.sub(mark, page)


def shape(state: dict[str, Any]) -> str:
    """The name of a widget's explorable, and a mark of the values it starts with."""
    name = state.get("_anywidget_id", "widget").split(".")[-2:][0]
    values = {key: value for key, value in state.items() if not key.startswith("_") and key not in ("runs", "layout")}
    return f"{name} {hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:8]}"


def codes(states: str) -> list[str]:
    """The code of a page's widgets, as far as it has not been taken out."""
    widgets = json.loads(states)["state"].values()
    return [widget["state"]["_esm"] for widget in widgets if isinstance(widget["state"].get("_esm"), str)]


def common_start(texts: list[str]) -> str:
    """The lines with which all the texts begin; none where there are fewer than two different texts."""
    if len(set(texts)) < 2:
        return ""
    lines = zip(*(text.splitlines(True) for text in texts), strict=False)
    return "".join(line[0] for line in itertools.takewhile(lambda line: len(set(line)) == 1, lines))


def lighter(states: str, shared: str) -> tuple[str, dict[str, str]]:
    """A page's widget states with pieces taken out, and the scripts of these pieces by name.

    Code, and any other value that is long, becomes ``{"pieces": [NAME, ...]}``, to be joined; a style that another
    widget, id, has too becomes ``{"of": id}``. Code that begins as ``shared`` does has that in a piece of its own.
    """
    saved = json.loads(states)
    pieces: dict[str, str] = {}
    styles: dict[str, str] = {}
    for name, widget in saved["state"].items():
        state = widget["state"]
        style = state.get("_css")
        if isinstance(style, str) and styles.setdefault(style, name) != name:
            state["_css"] = {"of": styles[style]}
        for key, value in state.items():
            size = len(json.dumps(value, ensure_ascii=False))
            if key != "_css" and (size > LONG or (key == "_esm" and isinstance(value, str))):
                parts = [value]
                if key == "_esm" and shared and value.startswith(shared):
                    parts = [shared, value.removeprefix(shared)]
                names = [piece(part, "shared" if part is shared else stem(state, key), pieces) for part in parts]
                state[key] = {"pieces": names}
    return json.dumps(saved, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/"), pieces


def piece(value: Any, name: str, pieces: dict[str, str]) -> str:
    """Put a value's script among the pieces; its name there."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    full = f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"
    pieces[full] = f"(window.geoPieces ??= {{}})[{json.dumps(full)}] = {text};\n"
    return full


def stem(state: dict[str, Any], key: str) -> str:
    """A name for a piece that a reader of the network's log understands."""
    module = state.get("_anywidget_id", "widget").split(".")[-2:][0]
    return module if key == "_esm" else f"{module}-{key.strip('_')}"


def say_that_it_moves(app: Sphinx, document: nodes.document) -> None:
    """In the caption of a still, for paper and for readers without scripts; the widget host takes it away."""
    for figure in document.findall(nodes.figure):
        caption = figure.next_node(nodes.caption)
        if "explorable-still" in figure[0]["classes"] and caption and "with scripts" not in caption.astext().lower():
            caption += nodes.Text(" With scripts it can be moved.")


def name_chapters(app: Sphinx, document: nodes.document) -> None:
    """Under each explorable of the gallery, the chapters that show it too."""
    if app.env.docname != GALLERY:
        return
    chapters = {
        f"chapters/{path.stem}": path.read_text("utf-8")
        for path in sorted((Path(app.srcdir) / "chapters").glob("*.ipynb"))
    }
    for figure in [each for each in document.findall(nodes.figure) if "explorable-still" in each[0]["classes"]]:
        name = MADE_BY[Path(figure[0]["uri"]).stem]
        homes = [page for page, source in chapters.items() if f"{name}(" in source]
        line = nodes.paragraph("", "In the book: " if homes else "", classes=["explorable-home"])
        for i, page in enumerate(homes):
            line += [nodes.Text(" and " if i else ""), link_to(page, app.env.docname)]
        figure.parent.insert(figure.parent.index(figure), line)


def link_to(page: str, here: str) -> addnodes.pending_xref:
    """A reference to a page, by its title."""
    options = {"reftype": "doc", "refdomain": "std", "reftarget": f"/{page}", "refdoc": here}
    return addnodes.pending_xref("", nodes.inline("", page), refexplicit=False, refwarn=True, **options)


def setup(app: Sphinx) -> dict[str, object]:
    """Register the above."""
    app.connect("doctree-read", depend_on_heights)
    app.connect("doctree-read", say_that_it_moves)
    app.connect("doctree-read", name_chapters)
    app.connect("build-finished", lighten_pages)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
