"""The landing page has a style and scripts of its own, those of its wall of maps."""

from __future__ import annotations

from sphinx.application import Sphinx


def add_scripts(app: Sphinx, pagename: str, templatename: str, context: dict[str, object], doctree: object) -> None:
    """Only the landing page has them."""
    if pagename == app.config.root_doc:
        app.add_css_file("maps.css")
        for name in ("maps-scores.js", "maps.js"):
            app.add_js_file(name, defer="defer")


def setup(app: Sphinx) -> dict[str, object]:
    """Register the scripts."""
    app.connect("html-page-context", add_scripts)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
