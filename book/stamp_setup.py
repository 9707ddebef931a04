"""Write the set-up cell into every chapter's first code cell: ``make setup-cells``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from setup_cell import REPOSITORY, setup_cell

TAGS = ["setup", "hide-input"]  # the second folds it


def stamp(path: Path, text: str) -> bool:
    """Give the first code cell this text, folded on the page; whether the file changed."""
    notebook = json.loads(path.read_text("utf-8"))
    cell = next(cell for cell in notebook["cells"] if cell["cell_type"] == "code")
    lines = text.splitlines(keepends=True)
    if cell["source"] == lines and cell["metadata"].get("tags") == TAGS:
        return False
    cell["source"], cell["metadata"]["tags"] = lines, TAGS
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return True


def main() -> None:
    """Stamp all chapters and the pages that are notebooks."""
    for path in [path for folder in ("chapters", "book") for path in sorted((REPOSITORY / folder).glob("*.ipynb"))]:
        print(f"{path.name}: {'stamped' if stamp(path, setup_cell()) else 'as it should be'}")


if __name__ == "__main__":
    main()
