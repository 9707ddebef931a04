"""Draw the gallery's stills anew: ``make stills``.

Each explorable of the gallery has a still picture, for readers without scripts and for paper. It is a photograph of the
explorable itself, as the gallery starts it, taken in a headless browser. A manifest beside the pictures says which code
and which values each shows; a test compares it with the gallery, so that no still is older than its explorable.
"""

import hashlib
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
GALLERY = HERE / "gallery.ipynb"
STILLS = HERE / "images" / "explorables"
MANIFEST = STILLS / "stills.json"
KEPT = HERE.parent / "geolib" / "explorables" / "stills"  # for notebooks without a kernel
WIDTH = 728  # of the column a page gives an explorable

PAGE = """<!doctype html><html lang="en" data-theme="light"><head><meta charset="utf-8"><title>Still</title>
<style>body {{ margin: 0; padding: 4px; width: {width}px; background: #fff; font-family: Arial, sans-serif; }}
.geo .geo-foot {{ display: none !important; }}</style>
</head><body><script type="application/vnd.jupyter.widget-state+json">{states}</script>
<script type="application/vnd.jupyter.widget-view+json">{{"model_id": "it"}}</script><script>{host}</script>
</body></html>"""


def explorables() -> dict[str, Any]:
    """The gallery's explorables by the name of their still, as its cells make them."""
    found: dict[str, Any] = {}
    name = ""
    for cell in json.loads(GALLERY.read_text("utf-8"))["cells"]:
        text = "".join(cell["source"])
        if still := re.search(r"images/explorables/([a-z]+)\.png", text):
            name = still[1]
        if cell["cell_type"] == "code" and name:
            scope: dict[str, Any] = {}
            *lines, last = text.strip().split("\n\n")
            exec("\n".join(lines), scope)
            found[name] = eval(last, scope)
            name = ""
    return found


def state(widget: Any) -> dict[str, Any]:
    """What a page gets of a widget."""
    later = [name for name in widget.keys if name.startswith("_later")]
    return widget.get_state([*widget.parameters(), *later, "share", "_rules", "_anywidget_id", "_esm", "_css"])


def stamp(widget: Any) -> str:
    """A hash of the code and the values that a still shows; recorded runs and models may grow without a new picture."""
    shown = {k: v for k, v in state(widget).items() if k not in ("runs", "_rules") and not k.startswith("_later")}
    return hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()[:16]


def photograph(browser: Any, widget: Any, path: Path) -> None:
    """Write a PNG of the explorable on a light page, with few colours so that it is small.

    Beside it its thumbnail for the gallery, the upper left of it, four by three; in the library all of it, smaller.
    """
    from PIL import Image

    host = (HERE / "_static" / "widget-host.js").read_text("utf-8")
    states = json.dumps({"state": {"it": {"state": state(widget)}}}).replace("</", "<\\/")
    page = browser.new_page(viewport={"width": WIDTH + 8, "height": 1200}, device_scale_factor=1.5)
    page.set_content(PAGE.format(states=states, host=host, width=WIDTH))
    page.wait_for_selector(".explorable[data-alive=yes]")
    page.wait_for_timeout(300)
    page.wait_for_function("!document.querySelector('[aria-busy=true]')")
    picture = Image.open(io.BytesIO(page.locator(".explorable").screenshot())).convert("RGB")
    page.close()
    picture = picture.quantize(128, dither=Image.Dither.NONE)
    picture.save(path, "PNG", optimize=True)
    whole = picture.convert("RGB")
    kept = whole.resize((480, 480 * whole.height // whole.width), Image.Resampling.LANCZOS)
    kept.save(KEPT / f"{path.stem}.webp", "WEBP", quality=40, method=6)
    width = min(whole.width, 4 * whole.height // 3)
    upper = whole.crop((0, 0, width, 3 * width // 4)).resize((224, 168), Image.Resampling.LANCZOS)
    upper.save(path.with_name(f"small-{path.stem}.webp"), "WEBP", quality=45, method=6)


def main() -> None:
    """Photograph what has changed and write the manifest."""
    sys.path.insert(0, str(HERE.parent / "tests"))
    from conftest import browser_on_path
    from playwright.sync_api import sync_playwright

    known = json.loads(MANIFEST.read_text("utf-8"))
    now = {name: (widget, stamp(widget)) for name, widget in sorted(explorables().items())}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_on_path(), args=["--no-sandbox", "--disable-gpu"])
        for name, (widget, mark) in now.items():
            path = STILLS / f"{name}.png"
            if known.get(name) != mark or not path.is_file():
                photograph(browser, widget, path)
                print(f"{path.name}: drawn, {path.stat().st_size // 1024} kB")
        browser.close()
    MANIFEST.write_text(json.dumps({name: mark for name, (_, mark) in now.items()}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
