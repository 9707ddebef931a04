"""The repository's address, everywhere: ``make address REPO=owner/name`` writes it, ``make address`` looks for strays.

It stands in _config.yml. The set-up cells, the citation, the package's metadata and the site's first page repeat it.
The address of the site on GitHub Pages follows from it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
TITLE = "geometry-of-attention"  # what the repository was called first, and the distribution is
TAGS = ["setup", "hide-input"]  # of the set-up cell; the second folds it on the page
SETUP = """\
# Set-up, the same in all chapters: install this book's library where it is
# missing, as in Colab. It leaves torch and NumPy as they are.
try:
    import geolib.rotations
except ImportError:
    book = "github.com/{address}"
    %pip install -q "{title}[chapters] @ git+https://{{book}}"
    try:
        import geolib.rotations  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"nothing could be installed from https://{{book}}. In a clone of"
            " this book run: pip install -e '.[chapters]'"
        ) from error
"""


def address() -> str:
    """The repository's owner and name, joined by a slash."""
    text = (REPOSITORY / "_config.yml").read_text("utf-8")
    return re.search(r"(?m)^  url: https://github\.com/(\S+/\S+)$", text)[1]


def setup_cell() -> str:
    """The text of the set-up cell; its shell line takes the address from a line above, so that both fit a screen."""
    return SETUP.format(address=address(), title=TITLE).rstrip("\n")


def texts() -> list[Path]:
    """The repository's own files that can hold an address, but for records and this one."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    if listed.returncode:  # a source distribution is under no version control
        names = [str(path.relative_to(REPOSITORY)) for path in REPOSITORY.rglob("*") if path.is_file()]
    else:
        names = listed.stdout.splitlines()
    kinds = (".md", ".ipynb", ".yml", ".toml", ".cff", ".html", ".py", ".js", ".txt", "Dockerfile", "Makefile")
    out = ("_build/", ".venv/", "book/results/", "release/address.py", "geometry_of_attention.egg-info/")
    found = (REPOSITORY / name for name in names if name.endswith(kinds) and not name.startswith(out))
    return [path for path in found if path.is_file()]


def spellings(address: str) -> list[str]:
    """How an address is written: the repository's, and its site's on GitHub Pages."""
    owner, name = address.split("/")
    return [f"github.com/{owner}/{name}", f"{owner.lower()}.github.io/{name}"]


def move(new: str) -> None:
    """Write a new address wherever the old one stands."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+", new):
        raise SystemExit(f"REPO: got {new!r}; it must be an owner and a name, such as jane/{TITLE}")
    pairs = [*zip(spellings(address()), spellings(new))]
    for path in texts():
        text = moved = path.read_text("utf-8")
        for old, there in pairs:
            moved = re.sub(rf"{re.escape(old)}(?![\w-])", there, moved)
        if moved != text:
            path.write_text(moved, "utf-8")
            print(f"{path.relative_to(REPOSITORY)}: written")


def write_setup_cells() -> None:
    """Write the set-up cell as the first code cell of the chapters and of the pages that are notebooks."""
    for path in sorted([*(REPOSITORY / "chapters").glob("*.ipynb"), *(REPOSITORY / "book").glob("*.ipynb")]):
        notebook = json.loads(path.read_text("utf-8"))
        cell = next(cell for cell in notebook["cells"] if cell["cell_type"] == "code")
        lines = setup_cell().splitlines(keepends=True)
        if cell["source"] != lines or cell["metadata"].get("tags") != TAGS:
            cell["source"], cell["metadata"]["tags"] = lines, TAGS
            path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")
            print(f"{path.name}: set-up cell written")


def strays() -> list[str]:
    """The places that give this repository, or its site, another address; a line each."""
    name = f"(?:{re.escape(address().split('/')[1])}|{TITLE})"
    pattern = re.compile(rf"github\.com[/:][\w-]+/{name}(?![\w-])|[\w-]+\.github\.io/{name}(?![\w-])")
    known = spellings(address())
    return [
        f"{path.relative_to(REPOSITORY)}: {found[0]}"
        for path in texts()
        for found in pattern.finditer(path.read_text("utf-8"))
        if found[0] not in known
    ]


def main(arguments: list[str]) -> int:
    """Write the address if one is given, then the set-up cells; print strays, and exit with 1 when there are any."""
    for new in arguments:
        move(new)
    write_setup_cells()
    found = strays()
    print("\n".join(found) or f"github.com/{address()} everywhere")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
