"""What a page holds of its explorables, as a Sphinx extension.

A widget's code, what all of them share of it, and long lists travel in scripts of their own,
``_static/explorables/NAME-HASH.js``, which the page's host asks for when the explorable comes into view; a style that
several widgets of a page share stands there once. In the gallery a line says in which chapters an explorable stands.

A page that is no notebook shows one by ``{explorable} NAME``; its code stands in the page: nothing is waited for.
"""

import hashlib
import itertools
import json
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from geolib import explorables

WIDGETS = re.compile(r'(<script type="application/vnd\.jupyter\.widget-state\+json">)(.*?)(?=</script>)', re.DOTALL)
GALLERY = "book/gallery"
MADE_BY = {module: name for name, module in explorables._MODULES.items()}  # from a still's name to its explorable's
LONG = 4000  # characters of a value that travels apart


def lightened(pages: dict[Path, str], folder: Path) -> dict[Path, str]:
    """The pages without the pieces of their explorables, which are written into a folder."""
    codes = [getattr(explorables, name)._esm for name in explorables._MODULES]
    lines = itertools.takewhile(lambda line: len(set(line)) == 1, zip(*(code.splitlines(True) for code in codes)))
    shared = "".join(line[0] for line in lines)
    pieces: dict[str, str] = {}
    lighter = lambda found: found[1] + without_pieces(found[2], shared, pieces)  # noqa: E731
    made = {path: WIDGETS.sub(lighter, page) for path, page in pages.items()}
    folder.mkdir(parents=True, exist_ok=True)
    for name, script in pieces.items():
        (folder / f"{name}.js").write_text(script, "utf-8")
    return made


def without_pieces(states: str, shared: str, pieces: dict[str, str]) -> str:
    """A page's widget states with pieces taken out and put, as scripts by their names, into ``pieces``.

    Code, and any other value that is long, becomes ``{"pieces": [NAME, ...]}``, to be joined; a style that another
    widget, id, has too becomes ``{"of": id}``. Code that begins as ``shared`` does has that in a piece of its own.
    """
    saved, styles = json.loads(states), dict[str, str]()
    for widget_id, widget in saved["state"].items():
        state = widget["state"]
        module = state.get("_anywidget_id", "widget").split(".")[-2:][0]
        style = state.get("_css")
        if isinstance(style, str) and styles.setdefault(style, widget_id) != widget_id:
            state["_css"] = {"of": styles[style]}
        for key, value in state.items():
            code = key == "_esm" and isinstance(value, str)
            if not code and (key == "_css" or len(json.dumps(value, ensure_ascii=False)) <= LONG):
                continue
            parts = {module if code else f"{module}-{key.strip('_')}": value}
            if code and value.startswith(shared):
                parts = {"shared": shared, module: value.removeprefix(shared)}
            state[key] = {"pieces": [piece(name, part, pieces) for name, part in parts.items()]}
    return json.dumps(saved, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")


def piece(name: str, value: Any, pieces: dict[str, str]) -> str:
    """Put a value's script among the pieces; its name there."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    full = f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"
    pieces[full] = f"(window.geoPieces ??= {{}})[{json.dumps(full)}] = {text};\n"
    return full


def name_chapters(app: Sphinx, document: nodes.document) -> None:
    """Under each explorable of the gallery, the chapters that show it too."""
    if app.env.docname != GALLERY:
        return
    paths = sorted((Path(app.srcdir) / "chapters").glob("*.ipynb"))
    chapters = {f"chapters/{path.stem}": path.read_text("utf-8") for path in paths}
    for figure in [each for each in document.findall(nodes.figure) if "explorable-still" in each[0]["classes"]]:
        name = MADE_BY[Path(figure[0]["uri"]).stem]
        homes = [page for page, source in chapters.items() if f"{name}(" in source]
        line = nodes.paragraph("", "In the book: " if homes else "", classes=["explorable-home"])
        for i, page in enumerate(homes):
            options = {"refdomain": "std", "reftype": "doc", "reftarget": f"/{page}", "refdoc": GALLERY}
            link = addnodes.pending_xref("", nodes.inline("", ""), refexplicit=False, refwarn=True, **options)
            line += [nodes.Text(" and " if i else ""), link]
        figure.parent.insert(figure.parent.index(figure), line)


def held(name: str) -> str:
    """What a page holds of an explorable as it starts: the states of its widgets, which are one, and the view."""
    widget = getattr(explorables, name)()
    state = widget.get_state([*widget.parameters(), "share", "_rules", "_anywidget_id", "_esm", "_css"])
    kind, saved = "application/vnd.jupyter.widget", json.dumps({"state": {"it": {"state": state}}}, ensure_ascii=False)
    text = saved.replace("</", "<\\/")
    view = f'<script type="{kind}-view+json">{{"model_id": "it"}}</script>'
    return f'<script data-whole type="{kind}-state+json">{text}</script>\n{view}'


class Shown(SphinxDirective):
    """``{explorable} NAME`` shows an explorable, the only one of its page."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Its state and its view, as a notebook's page has them."""
        self.env.note_reread()  # what it is made of are no files of the page
        return [nodes.raw("", held(self.arguments[0]), format="html")]


def setup(app: Sphinx) -> dict[str, object]:
    """Register the line and the directive; postprocess.py takes the pieces out of the pages."""
    app.add_directive("explorable", Shown)
    app.connect("doctree-read", name_chapters)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
