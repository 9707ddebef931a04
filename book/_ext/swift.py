"""What makes the site's making shorter and leaves the pages as they are.

- Pages are written side by side where the build asks for it, and read one after another.
- A plugin of the bibliography is looked up among all installed packages once, not at every citation.
"""

from __future__ import annotations

from functools import cache

import pybtex.plugin
from sphinx.application import Sphinx


def written_side_by_side(app: Sphinx, config: object) -> None:
    """Allow what is safe. Not asked of each extension: some do not say whether they may read side by side."""
    app.is_parallel_allowed = lambda kind: kind == "write"


def setup(app: Sphinx) -> dict[str, object]:
    """Set both."""
    if not hasattr(pybtex.plugin._load_entry_point, "cache_info"):
        pybtex.plugin._load_entry_point = cache(pybtex.plugin._load_entry_point)
    app.connect("config-inited", written_side_by_side)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
