"""A table of the chapters: words, cells, open code, the time they take, and how high their pages are.

``python tests/measure_book.py [ROOT] [--site SITE] [--json OUT]`` prints one line a chapter of the book at ROOT: words
of text (a formula as one), cells of code, lines of code that stand open, and minutes to read, with proofs and checks,
with exercises (book/_ext/times.py says how they are counted). With a site, also how many screens of 1440 by 900 pixels
the chapter's text fills, and what share of that is code, folded code as it shows. tests/site/book-before.json and
tests/site/book-now.json were made with ``--json``; the page "How this was built" shows both, and counts anew what it
can.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "book" / "_ext"))
import times  # noqa: E402

SCREEN = {"width": 1440, "height": 900}
COLUMNS = ("words", "cells", "lines", "read", "proofs", "exercises", "screens", "code")

# All of the page laid out; the height of its text, and that of the outermost boxes of code in it.
HEIGHTS = """() => {
  const style = document.head.appendChild(document.createElement("style"));
  style.textContent = "* { content-visibility: visible !important } details:not([open])::details-content "
    + "{ content-visibility: hidden !important }";
  document.querySelectorAll("img").forEach((img) => { img.loading = "eager"; });
  const code = [...document.querySelectorAll("article .cell :is(.cell_input, details.check, details.hide)")]
    .filter((box) => !box.parentElement.closest("details.check, details.hide"));
  const high = (box) => box.getBoundingClientRect().height;
  return [high(document.querySelector("article.bd-article")), code.map(high).reduce((sum, each) => sum + each, 0)];
}"""


def chapters(root: Path) -> dict[str, dict[str, Any]]:
    """What is counted of each notebook."""
    return {
        path.stem: times.numbers(times.cells_of(path))
        for path in sorted((root / "chapters").glob("[0-9][0-9]_*.ipynb"))
    }


def add_heights(lines: dict[str, dict[str, Any]], site: Path) -> None:
    """Open each chapter's page and measure it."""
    from conftest import browser_on_path
    from playwright.sync_api import sync_playwright

    flags = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_on_path(), args=flags)
        for name, line in lines.items():
            page = browser.new_page(viewport=SCREEN)
            page.set_default_timeout(300_000)
            page.goto((site / "chapters" / f"{name}.html").resolve().as_uri())
            page.evaluate(HEIGHTS)
            page.wait_for_timeout(1000)
            height, code = page.evaluate(HEIGHTS)
            line |= {"screens": round(height / SCREEN["height"], 1), "code": round(100 * code / height)}
            page.close()
        browser.close()


def main() -> None:
    """Count and print."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("root", type=Path, nargs="?", default=REPOSITORY)
    words.add_argument("--site", type=Path)
    words.add_argument("--json", type=Path)
    asked = words.parse_args()
    lines = chapters(asked.root)
    if asked.site:
        add_heights(lines, asked.site)
    print(f"| chapter | {' | '.join(COLUMNS)} |\n|{'---|' * (1 + len(COLUMNS))}")
    for name, line in lines.items():
        print(f"| {name} | " + " | ".join(str(line.get(column, "")) for column in COLUMNS) + " |")
    if asked.json:
        asked.json.write_text(json.dumps(lines, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
