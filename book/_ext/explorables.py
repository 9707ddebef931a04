"""What a page holds of its explorables, as a Sphinx extension.

A widget's code and its long lists travel in scripts of their own, ``_static/explorables/NAME-HASH.js``, which the page's
host asks for when the explorable comes into view; a style that several widgets of a page share stands there once.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

WIDGETS = re.compile(r'(<script type="application/vnd\.jupyter\.widget-state\+json">)(.*?)(</script>)', re.DOTALL)
LONG = 4000  # characters of a value that travels apart


def lighten_pages(app: Sphinx, problem: Exception | None) -> None:
    """Write the pieces of all pages with explorables, and the pages without them."""
    if problem or app.builder.format != "html":
        return
    pieces: dict[str, str] = {}
    for path in Path(app.outdir).rglob("*.html"):
        page = path.read_text("utf-8")
        if found := WIDGETS.search(page):
            light, apart = lighter(found[2])
            pieces |= apart
            if light != found[2]:
                path.write_text(page[: found.start(2)] + light + page[found.end(2) :], "utf-8")
    folder = Path(app.outdir) / "_static" / "explorables"
    folder.mkdir(parents=True, exist_ok=True)
    for name, script in pieces.items():
        (folder / f"{name}.js").write_text(script, "utf-8")


def lighter(states: str) -> tuple[str, dict[str, str]]:
    """A page's widget states with pieces taken out, and the scripts of these pieces by name.

    Code, and any other value that is long, becomes ``{"piece": NAME}``; a style that another widget, id, has too
    becomes ``{"of": id}``.
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
            text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
            if key != "_css" and (len(text) > LONG or (key == "_esm" and isinstance(value, str))):
                piece = f"{stem(state, key)}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"
                pieces[piece] = f"(window.geoPieces ??= {{}})[{json.dumps(piece)}] = {text};\n"
                state[key] = {"piece": piece}
    return json.dumps(saved, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/"), pieces


def stem(state: dict[str, Any], key: str) -> str:
    """A name for a piece that a reader of the network's log understands."""
    module = state.get("_anywidget_id", "widget").split(".")[-2:][0]
    return module if key == "_esm" else f"{module}-{key.strip('_')}"


def setup(app: Sphinx) -> dict[str, object]:
    """Register the above."""
    app.connect("build-finished", lighten_pages)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
