"""The set-up cell, the same in all chapters: ``make setup-cells`` writes it as every notebook's first code cell.

The package is asked for by its address, which stands in _config.yml alone: the one that PyPI calls geolib is another.
"""

from __future__ import annotations

import json
from pathlib import Path

import yaml

REPOSITORY = Path(__file__).resolve().parent.parent
TAGS = ["setup", "hide-input"]  # the second folds it on the page
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
    """The repository's address."""
    return yaml.safe_load((REPOSITORY / "_config.yml").read_text("utf-8"))["repository"]["url"]


def setup_cell() -> str:
    """The text of the cell; its shell line takes the address from the line above, so that both fit a screen."""
    return TEMPLATE.format(address=address().removeprefix("https://")).rstrip("\n")


def main() -> None:
    """Write the cell where it is missing, in the chapters and the pages that are notebooks."""
    for path in sorted([*(REPOSITORY / "chapters").glob("*.ipynb"), *(REPOSITORY / "book").glob("*.ipynb")]):
        notebook = json.loads(path.read_text("utf-8"))
        cell = next(cell for cell in notebook["cells"] if cell["cell_type"] == "code")
        lines = setup_cell().splitlines(keepends=True)
        if cell["source"] != lines or cell["metadata"].get("tags") != TAGS:
            cell["source"], cell["metadata"]["tags"] = lines, TAGS
            path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")
            print(f"{path.name}: written")


if __name__ == "__main__":
    main()
