"""The set-up cell, the same in all chapters, and the one place that knows how it reads.

The package is asked for by its address: the one that PyPI calls geolib is another.
"""

from __future__ import annotations

from pathlib import Path

import yaml

REPOSITORY = Path(__file__).resolve().parent.parent

TEMPLATE = """\
# Set-up, the same in all chapters: install this book's library where it is
# missing, as in Colab. It leaves torch and NumPy as they are.
try:
    import geolib.rotations  # noqa: F401
except ImportError:
    book = "{address}"
    %pip install -q "geometry-of-attention[chapters] @ git+https://{{book}}"
"""


def address() -> str:
    """The repository's address, from the one place where it stands."""
    return yaml.safe_load((REPOSITORY / "_config.yml").read_text("utf-8"))["repository"]["url"]


def setup_cell() -> str:
    """The text of the cell; its shell line takes the address from the line above, so that both fit a screen."""
    return TEMPLATE.format(address=address().removeprefix("https://")).rstrip("\n")
