"""A table of the site's pages: what each weighs, asks for and costs, and what on it is cut or hard to reach.

``python tests/measure_site.py SITE [--pages PART ...] [--repeats 3] [--json OUT] [--before OUT]`` visits the site at
SITE with a headless Chromium and prints one line a page: bytes as served, requests (and those to other hosts), seconds
of the main thread's own processor time while the page loads (the least of some repeats), stops of the Tab key, formulas
and blocks of code that are cut at 390 and 1440 pixels, kinds of violations that axe-core finds, light and dark
together, elements, and how much the page shifts while one scrolls fast to its end, at both widths. ``--before`` puts an
earlier run's numbers before the new ones. The records in tests/site, which the page "How this was built" shows, were
made with ``--json``.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import json
import threading
from pathlib import Path
from typing import Any

import torch
from conftest import QUIET, browser_on_path
from explorable_kit import WCAG, axe_violations
from playwright.sync_api import Browser, Page, sync_playwright

from geolib.lab.records import device_name

SKIPPED = {"index.html", "genindex.html", "py-modindex.html", "prf-prf.html"}
DESK, PHONE = 1440, 390
COLUMNS = ("kB", "requests", "foreign", "work", "tabs", "cut_390", "cut_1440", "code_390", "code_1440", "axe")
COLUMNS += ("nodes", "shift_390", "shift_1440")

TABS = """() => [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]")]
  .filter((e) => e.tabIndex >= 0 && !e.disabled && e.getClientRects().length).length"""

# A formula whose glyphs leave its place or run under its number, and has no cue that it scrolls.
FORMULAS = """() => [...document.querySelectorAll("article div.math")].filter((formula) => {
  const place = (formula.querySelector(".formula") ?? formula).getBoundingClientRect();
  const number = formula.querySelector(".eqno")?.getBoundingClientRect();
  const glyphs = [...formula.querySelectorAll("mjx-c")].map((glyph) => glyph.getBoundingClientRect());
  return place.width && glyphs.some((glyph) => glyph.right > place.right + 1 || glyph.left < place.left - 1
    || (number && glyph.right > number.left && glyph.bottom > number.top + 2 && glyph.top < number.bottom - 2));
}).length"""

# A block of code that is wider than its place, and has no cue that it scrolls.
CODE = """() => [...document.querySelectorAll("article pre")].filter((code) => code.getClientRects().length
  && code.scrollWidth > code.clientWidth + 1 && !code.classList.contains("scrolls")).length"""


SHIFTS = """() => { window.shifted = 0; new PerformanceObserver((list) => list.getEntries().forEach((each) => {
  window.shifted += each.value; })).observe({ type: "layout-shift", buffered: true }); }"""
AT_END = "innerHeight + scrollY >= document.documentElement.scrollHeight - 2"


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files and says nothing."""

    def log_message(self, *args: object) -> None:
        """Say nothing."""


def pages(site: Path) -> list[str]:
    """The site's pages, the sources' copies and lists left out."""
    found = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))
    return [name for name in found if name not in SKIPPED and not name.startswith(("_modules", "_static"))]


def load(browser: Browser, address: str, width: int) -> tuple[Page, dict[str, Any]]:
    """The page, open, and what its loading cost."""
    page = browser.new_context(viewport={"width": width, "height": 900}, color_scheme="light").new_page()
    page.set_default_timeout(300_000)
    host, seen = "/".join(address.split("/")[:3]), {"kB": 0.0, "requests": 0, "foreign": 0}

    def let_through(route: Any) -> None:
        if route.request.url.startswith((host, "data:", "blob:")):
            return route.continue_()
        seen["foreign"] += 1
        return route.abort()

    def weigh(reply: Any) -> None:
        if reply.url.startswith("http"):
            seen["requests"] += 1
            seen["kB"] += int(reply.headers.get("content-length", 0)) / 1000

    page.route("**/*", let_through)
    page.on("response", weigh)
    chrome = page.context.new_cdp_session(page)
    chrome.send("Performance.enable", {"timeDomain": "threadTicks"})  # the thread's own time, whatever else runs
    page.goto(address, wait_until="load")
    page.wait_for_timeout(1500)
    numbers = {each["name"]: each["value"] for each in chrome.send("Performance.getMetrics")["metrics"]}
    return page, seen | {"work": numbers["TaskDuration"]}


def shifted(page: Page) -> float:
    """How much an open page shifts while one scrolls fast to its end."""
    page.evaluate(SHIFTS)
    page.mouse.move(195, 400)
    for _ in range(600):
        page.mouse.wheel(0, 700)
        page.wait_for_timeout(60)
        if page.evaluate(AT_END):
            break
    page.wait_for_timeout(800)
    return round(page.evaluate("window.shifted"), 3)


def shift(browser: Browser, address: str, width: int) -> float:
    """How much a page shifts, opened at a width."""
    page, _ = load(browser, address, width)
    found = shifted(page)
    page.context.close()
    return found


def measure(browser: Browser, address: str, repeats: int) -> dict[str, Any]:
    """A page's line."""
    work = []
    for _ in range(repeats):
        page, line = load(browser, address, DESK)
        work.append(line["work"])
        page.context.close()
    page, line = load(browser, address, DESK)
    line["work"] = min(work, default=line["work"])
    line["tabs"] = page.evaluate(TABS)
    line["nodes"] = page.evaluate("document.querySelectorAll('*').length")
    found = {}
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_timeout(300)
        found[scheme] = axe_violations(page, tags=(*WCAG, "best-practice"))
    for width in (PHONE, DESK):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(300)
        line[f"cut_{width}"], line[f"code_{width}"] = page.evaluate(FORMULAS), page.evaluate(CODE)
    page.context.close()
    line |= {f"shift_{width}": shift(browser, address, width) for width in (PHONE, DESK)}
    return line | {
        "axe": sum(map(len, found.values())),
        "rules": sorted({rule for each in found.values() for rule, _ in each}),
    }


def row(name: str, line: dict[str, Any], before: dict[str, Any] | None) -> str:
    """A line of the table."""

    def cell(column: str) -> str:
        values = [each[column] for each in (before, line) if each and column in each]
        shown = [
            f"{value:.2f}" if column == "work" or column.startswith("shift") else f"{value:.0f}" for value in values
        ]
        return " → ".join(dict.fromkeys(shown))

    return f"| {name} | " + " | ".join(map(cell, COLUMNS)) + " |"


def main() -> None:
    """Visit the pages and print."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("site", type=Path)
    words.add_argument("--pages", nargs="*", default=[""], help="only pages with one of these in their names")
    words.add_argument("--repeats", type=int, default=3)
    words.add_argument("--json", type=Path)
    words.add_argument("--before", type=Path)
    asked = words.parse_args()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(asked.site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    earlier = json.loads(asked.before.read_text("utf-8"))["pages"] if asked.before else {}
    lines: dict[str, dict[str, Any]] = {}
    record = {"device": device_name(torch.device("cpu")), "repeats": asked.repeats, "pages": lines}
    print(f"| page | {' | '.join(COLUMNS)} |\n|{'---|' * (1 + len(COLUMNS))}")
    flags = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", *QUIET]
    with sync_playwright() as playwright:
        for name in (each for each in pages(asked.site) if any(part in each for part in asked.pages)):
            browser = playwright.chromium.launch(executable_path=browser_on_path(), args=flags)  # a page a browser
            record["browser"] = f"Chromium {browser.version}"
            line = measure(browser, f"http://127.0.0.1:{server.server_port}/{name}", asked.repeats)
            lines[name] = line | {key: round(line[key], 2) for key in ("kB", "work")}
            browser.close()
            print(row(name, lines[name], earlier.get(name)), flush=True)
            if asked.json:
                asked.json.write_text(json.dumps(record, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
