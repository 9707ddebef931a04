"""Measure how high each explorable of the built site is: ``python book/heights.py`` after ``make book``.

The page keeps an explorable's place from the start; for that it must know its height before its code is there. Each
page with explorables is opened at some widths of the window, and the boxes' widths and heights are written down by the
explorable's name, and also by the values it starts with where they matter. Then ``make book`` puts them into the pages.
A test of the site (nothing jumps) fails when they have become wrong.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median_low
from typing import Any

HERE = Path(__file__).resolve().parent
SITE = HERE.parent / "_build" / "html"
WINDOWS = (360, 390, 430, 600, 768, 1024, 1280, 1440, 1680)
SAME = 4  # pixels

BOXES = """async () => {
  const boxes = [...document.querySelectorAll(".explorable")];
  await Promise.all(boxes.map((box) => box.wake()));
  boxes.forEach((box) => { box.style.minHeight = ""; });
  await new Promise((done) => setTimeout(done, 600));
  const views = [...document.querySelectorAll("script[type$='widget-view+json']")]
    .map((view) => JSON.parse(view.text).model_id);
  return boxes.map((box, i) => [views[i], box.offsetWidth, box.offsetHeight]);
}"""
STATES = "() => JSON.parse(document.querySelector(\"script[type$='widget-state+json']\").text).state"


def heights(seen: dict[str, dict[int, list[int]]]) -> dict[str, dict[int, int]]:
    """One height for each width, by name, and by name and values where these differ from the name's."""
    names = {name.split()[0] for name in seen}
    common: dict[str, dict[int, int]] = {}
    for name in sorted(names):
        widths: dict[int, list[int]] = defaultdict(list)
        for each, found in seen.items():
            if each.split()[0] == name:
                for width, values in found.items():
                    widths[width] += values
        common[name] = {width: median_low(widths[width]) for width in sorted(widths)}
    for each, found in sorted(seen.items()):
        own = {width: median_low(found[width]) for width in sorted(found)}
        if any(abs(height - common[each.split()[0]][width]) > SAME for width, height in own.items()):
            common[each] = own
    return common


def main() -> None:
    """Visit the pages and write the heights."""
    sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent / "tests")]
    from conftest import browser_on_path
    from explorables import HEIGHTS, WIDGETS, shape
    from playwright.sync_api import sync_playwright

    pages = [path for path in sorted(SITE.rglob("*.html")) if WIDGETS.search(path.read_text("utf-8"))]
    seen: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_on_path(), args=["--no-sandbox", "--disable-gpu"])
        for path in pages:
            page = browser.new_page()
            page.goto(path.as_uri())
            states: dict[str, Any] = page.evaluate(STATES)
            for window in WINDOWS:
                page.set_viewport_size({"width": window, "height": 900})
                for model, width, height in page.evaluate(BOXES):
                    seen[shape(states[model]["state"])][width].append(height)
            page.close()
            print(path.relative_to(SITE), flush=True)
        browser.close()
    HEIGHTS.write_text(json.dumps(heights(seen), indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
