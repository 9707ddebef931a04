"""The landing page's picture stands in the page itself, so that its script can turn the arrows."""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx

PICTURE = re.compile(r'<img [^>]*?alt="([^"]*)"[^>]*?src="[^"]*cover\.svg"[^>]*>')


def add_script(app: Sphinx, pagename: str, templatename: str, context: dict[str, object], doctree: object) -> None:
    """Only the landing page has the script."""
    if pagename == app.config.root_doc:
        app.add_js_file("cover.js", defer="defer")


def put_in(app: Sphinx, problem: Exception | None) -> None:
    """Replace the link to the picture by the picture."""
    if problem or app.builder.format != "html":
        return
    path = Path(app.outdir) / f"{app.config.root_doc}.html"
    drawing = (Path(app.srcdir) / "book" / "_static" / "cover.svg").read_text("utf-8")
    page = PICTURE.sub(
        lambda found: drawing.replace("<svg ", f'<svg class="cover" role="img" aria-label="{found[1]}" ', 1),
        path.read_text("utf-8"),
    )
    path.write_text(page, "utf-8")


def setup(app: Sphinx) -> dict[str, object]:
    """Register the script and the replacement."""
    app.connect("html-page-context", add_script)
    app.connect("build-finished", put_in)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
