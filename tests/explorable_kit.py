"""What the tests of explorables share: functions called in Node, pages in a browser, the book's links."""

import contextlib
import importlib
import json
import random
import re
import shutil
import subprocess
import threading
from functools import cache, partial
from html import unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl

import numpy as np
import pytest
import torch

import geolib.explorables
from geolib.explorables._widget import Explorable, assemble
from geolib.lab import Config
from geolib.lab.vit import ViT

REPOSITORY = Path(__file__).resolve().parents[1]
FOLDER = REPOSITORY / "geolib" / "explorables"
HELPER = Path(__file__).with_name("explorables.mjs")
NAMES = geolib.explorables.__all__

PAGE = """<!doctype html><html lang="en" data-theme="light"><head><meta charset="utf-8"><title>Explorables</title>
<meta name="viewport" content="width=device-width"></head><body style="margin: 0">
<main><h1 style="margin: 0; font-size: 20px">Explorables</h1><div id="one"></div><div id="two"></div></main>
</body></html>"""

SETUP = """async ([text, css, states]) => {
  window.frames = [], window.due = 0, window.touched = false;
  window.addEventListener("pointerdown", () => { window.touched = true; }, true);
  const later = window.setTimeout.bind(window); // what is spoken waits until a hand has rested; tests need not
  window.setTimeout = (call, wait, ...rest) => later(call, wait === 600 ? 30 : wait, ...rest);
  const request = window.requestAnimationFrame.bind(window);
  window.requestAnimationFrame = (callback) => {
    window.due += 1;
    return request((now) => {
      const before = performance.now();
      window.due -= 1;
      callback(now);
      window.frames.push(performance.now() - before);
    });
  };
  const frozen = (value) => {
    if (value && typeof value === "object") Object.values(Object.freeze(value)).forEach(frozen);
    return value;
  };
  const model = (came) => {
    const calls = {}, values = { ...frozen(came) };
    return {
      values, calls, saves: 0,
      changed: () => Object.fromEntries(Object.entries(values).filter(([name, value]) => value !== came[name])),
      get: (name) => values[name],
      set(name, value) {
        if (values[name] === value) return;
        values[name] = value;
        for (const call of [...(calls[`change:${name}`] ?? [])]) call();
      },
      on(event, call) { (calls[event] ??= new Set()).add(call); },
      off(event, call) { calls[event]?.delete(call); },
      save_changes() { this.saves += 1; },
    };
  };
  window.models = {}, window.closers = {};
  document.head.appendChild(document.createElement("style")).textContent = css;
  window.begin = async (id) => {
    const module = await import(URL.createObjectURL(new Blob([text], { type: "text/javascript" })));
    window.models[id] = model(states[id]);
    window.closers[id] = module.default.render({ model: window.models[id], el: document.getElementById(id) });
  };
  for (const id of Object.keys(states)) await window.begin(id);
  window.restore = () => {
    document.activeElement.blur();
    document.documentElement.dataset.theme = "light";
    document.body.style.background = "";
    delete document.body.dataset.jpThemeLight;
    scrollTo(0, 0);
    for (const [id, model] of Object.entries(window.models)) {
      Object.entries(states[id]).forEach(([name, value]) => model.set(name, value));
      model.saves = 0;
    }
    document.querySelectorAll("details").forEach((each) => { each.open = true; });
    return window.settle();
  };
  const frame = () => new Promise((done) => request(() => setTimeout(done)));
  window.settle = () => frame().then(() => (window.due ? frame() : null)); // a second where the first asked for one
  window.drawing = (id) => [...document.querySelectorAll(`#${id} svg, #${id} canvas, #${id} output, #${id} .geo-say`)]
    .map((part) => (part.toDataURL ? part.toDataURL() : part.outerHTML)).join();
  await window.restore();
}"""


@contextlib.contextmanager
def serving(folder: Path):
    """The address at which the files of a folder are served, to pages of other hosts too, as a site's host does."""

    class Files(SimpleHTTPRequestHandler):
        def end_headers(self):
            self.send_header("Access-Control-Allow-Origin", "*")
            super().end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


def functions_of(file: str, more: str = ""):
    """A fixture of a test file: call(name, [arguments, ...]), the results, in Node, of that explorable's function."""

    @pytest.fixture(scope="module")
    def call(tmp_path_factory):
        module = tmp_path_factory.mktemp("modules") / file.replace(".js", ".mjs")
        module.write_text(assemble(file) + more, encoding="utf-8")
        program = shutil.which("node") or pytest.fail("the explorables' tests need node on the PATH")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "encoding": "utf-8"}
        with subprocess.Popen([program, str(HELPER), str(module)], **pipes) as node:

            def results(name, calls):
                node.stdin.write(json.dumps([name, calls]) + "\n")
                node.stdin.flush()
                found = node.stdout.readline()
                assert found, f"Node does not know what {name} of {file} is"
                return json.loads(found)

            yield results
            node.stdin.close()

    return call


def place_of(name: str, **values):
    """Two fixtures of a test file: a page with that explorable, and the page as each test finds it, as it was made."""

    @pytest.fixture(scope="module", name=f"opened {name}")
    def opened(browser):
        place = Place(browser, name, state_of(name, **values))
        yield place
        place.close()

    @pytest.fixture
    def place(browser, request):
        opened = request.getfixturevalue(f"opened {name}")
        yield opened
        opened.restore()

    return opened, place


def float64(values):
    """A tensor of what came from Node."""
    return torch.tensor(values, dtype=torch.float64)


def states(count: int, seed: int = 0, **kinds) -> list[dict]:
    """States at random. Of (low, high) a number, of (low, high, n) a list of n; of a list or range one of its entries;
    what a function makes of the stream of random numbers; all else as it is."""
    stream = random.Random(seed)

    def one(kind):
        if isinstance(kind, tuple):
            low, high, *size = kind
            return [stream.uniform(low, high) for _ in range(*size)] if size else stream.uniform(low, high)
        if isinstance(kind, list | range):
            return stream.choice(kind)
        return kind(stream) if callable(kind) else kind

    return [{name: one(kind) for name, kind in kinds.items()} for _ in range(count)]


def numbers_in(text: str) -> list[float]:
    """The numbers in a text, true minus signs and all."""
    return [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", text.replace("\u2212", "-").replace(",", ""))]


def file_of(name: str) -> str:
    """The JavaScript file of an explorable."""
    cls = getattr(geolib.explorables, name)
    return Path(importlib.import_module(cls.__module__).__file__).with_suffix(".js").name


def state_of(name: str, **values) -> dict:
    """The values a page gets from Python for an explorable made with these values."""
    widget = getattr(geolib.explorables, name)(**values)
    later = [key for key in widget.keys if key.startswith("_later")]
    return widget.get_state([*widget.parameters(), *later, "share", "_rules", "_anywidget_id"])


_FREE = []  # pages that were closed: to open one takes longer than most tests do with it


def _fresh(browser, viewport):
    """A page of this browser with nothing on it."""
    if not _FREE:
        return browser.new_context(viewport=viewport, has_touch=True).new_page()
    page = _FREE.pop()
    page.goto("about:blank")
    page.emulate_media(color_scheme="light", reduced_motion="no-preference")
    page.set_viewport_size(viewport)
    return page


class Place:
    """A page with one or two copies of an explorable, #one and #two, each with a model of its own."""

    def __init__(self, browser, name, one, two=None, viewport=None):
        """Open the page and wait until all is drawn."""
        self.name, self.wrong, self._size = name, [], viewport or {"width": 760, "height": 1400}
        self.page = _fresh(browser, self._size)
        self.page.on("console", self._hear)
        self.page.on("pageerror", self._hear)
        self.page.set_content(PAGE)
        states = {"one": one} | ({} if two is None else {"two": two})
        self._came = json.loads(json.dumps(states))
        css = getattr(geolib.explorables, name)._css
        self.page.evaluate(SETUP, [assemble(file_of(name)), str(css), states])

    def values(self, which="one"):
        """The model's values; what is still as it came is not sent again, and cannot have been written into."""
        return self._came[which] | self.page.evaluate(f"models.{which}.changed()")

    def set(self, which="one", **values):
        """Change the model from outside, as Python would, and wait for the picture."""
        self.page.evaluate(f"(v) => Object.entries(v).forEach(([k, x]) => models.{which}.set(k, x))", values)
        self.settle()

    def settle(self):
        """Wait until what is due has been drawn."""
        self.page.evaluate("settle()")

    def text(self, selector):
        """What the first part of this kind says, once it is drawn."""
        self.settle()
        return self.page.locator(f"#one {selector}").first.text_content()

    def drawing(self, which="one"):
        """All that an explorable shows, as one string."""
        self.settle()
        return self.page.evaluate(f"drawing('{which}')")

    def drag(self, locator, dx, dy):
        """Take the middle of an element with the mouse and move it by so many pixels."""
        locator.scroll_into_view_if_needed()
        box = locator.bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        self.page.mouse.move(x, y)
        self.page.mouse.down()
        self.page.mouse.move(x + dx, y + dy, steps=3)
        self.page.mouse.up()
        self.settle()

    def restore(self):
        """Bring the page back to how it was made; whatever it complained of fails the test."""
        self.page.emulate_media(color_scheme="light", reduced_motion="no-preference")
        self.page.set_viewport_size(self._size)
        self.page.evaluate("restore()")
        assert self.wrong == []

    def close(self):
        """Close the page; whatever it complained of fails the test."""
        self.page.remove_listener("console", self._hear)
        self.page.remove_listener("pageerror", self._hear)
        if self.page.evaluate("window.touched"):  # the next page might miss the hand that began here
            self.page.context.close()
        else:
            _FREE.append(self.page)
        assert self.wrong == []

    def _hear(self, said):
        """Keep what the page complains of."""
        if getattr(said, "type", "error") in ("error", "warning"):
            self.wrong.append(getattr(said, "text", str(said)))


WCAG = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa")
CONTRAST_RULES = ("color-contrast", "link-in-text-block")


def axe_violations(page, selector=None, tags=WCAG, without=()):
    """What axe-core finds by the rules that have one of the tags, as (rule, elements)."""
    options = {"runOnly": {"type": "tag", "values": list(tags)}}
    options["rules"] = {rule: {"enabled": False} for rule in without}
    return axe(page, "(options, where) => axe.run(where ?? document, options)", options, selector)


def axe_contrast(page, selector="body"):
    """What axe-core finds of contrast, as (rule, elements): of each kind of text it sees one element.

    A chapter has thousands of coloured words of code; to look at all of them takes half a minute.
    """
    return axe(page, ONE_OF_EACH_KIND, {"runOnly": {"type": "rule", "values": list(CONTRAST_RULES)}}, selector)


# Alike are elements of one tag, class, colour, size and weight on one ground. A formula's glyphs, which a style draws,
# are no text to axe-core, and where it looks for what lies over what they are half of all elements.
ONE_OF_EACH_KIND = """(options, where) => {
  const grounds = new Map();
  const ground = (node) => {
    const colour = getComputedStyle(node).backgroundColor, clear = /^rgba\\(.*, 0\\)$/.test(colour);
    if (!grounds.has(node)) grounds.set(node, clear && node.parentElement ? ground(node.parentElement) : colour);
    return grounds.get(node);
  };
  const kinds = new Map();
  for (const node of document.querySelectorAll(`${where} *`)) {
    const speaks = [...node.childNodes].some((each) => each.nodeType === Node.TEXT_NODE && each.data.trim());
    if (!speaks || !node.checkVisibility() || node.closest("mjx-container")) continue;
    const { color, fontSize, fontWeight } = getComputedStyle(node);
    const kind = [node.tagName, node.getAttribute("class"), color, fontSize, fontWeight, ground(node)].join();
    if (!kinds.has(kind)) kinds.set(kind, node);
  }
  const formulas = [...document.querySelectorAll("mjx-container")].map((each) => [each, [...each.childNodes]]);
  for (const [each] of formulas) each.replaceChildren();
  return axe.run({ include: [...kinds.values()] }, options)
    .finally(() => formulas.forEach(([each, glyphs]) => each.append(...glyphs)));
}"""


def axe(page, script, options, selector):
    """The violations that a script finds with axe-core, as (rule, elements)."""
    from importlib.resources import files

    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8"))
        # What waits with its layout has no true place yet: targets of two sections would seem to overlap.
        # A formula's glyphs, which nobody hears or reaches, are half of what it would look for beside each target.
        style = "* { content-visibility: visible !important } mjx-math:not(:has(a)) * { visibility: hidden !important }"
        page.add_style_tag(content=style)
    options = options | {"resultTypes": ["violations"], "selectors": False}
    found = page.evaluate(f"([options, where]) => ({script})(options, where)", [options, selector])
    return [(each["id"], [node["html"][:120] for node in each["nodes"]]) for each in found["violations"]]


def restored(about: dict, numbers: bytes) -> ViT:
    """The model that a page holds, from its two files; among the entries of the one is its configuration."""
    sides = [side * about["patch"] for side in about["grid"]]
    model = ViT(Config.from_dict(about["config"]), (1, *sides), about["classes"])
    flat = torch.from_numpy(np.frombuffer(numbers, "<f2").astype(np.float32))
    shapes = {name: tuple(shape) for name, shape in about["tensors"]}
    sizes = [int(np.prod(shape)) for shape in shapes.values()]
    values = {name: part.view(shapes[name]) for name, part in zip(shapes, flat.split(sizes))}
    if "table" in values:
        rows, columns = about["grid"]
        values["encoding.vectors"] = values.pop("table")[:rows, :columns]
    model.load_state_dict(values)
    return model.eval()


# The book's links that move figures ----------------------------------------------------------------------------------

NOTEBOOKS = sorted([*REPOSITORY.glob("chapters/*.ipynb"), *REPOSITORY.glob("book/*.ipynb")])
LINK = re.compile(r'<a\s+href="(#(?:move|drag)-[^"]*)"')


@cache
def text_of(path: Path) -> str:
    """The text cells of a notebook."""
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def links_of(path: Path) -> list[str]:
    """The links of a notebook that move a figure, each once."""
    return list(dict.fromkeys(unescape(link) for link in LINK.findall(text_of(path))))


def order_of(link: str) -> tuple[str, str, int, dict]:
    """Kind, name, copy and values of a link, read as the page's script reads it."""
    kind, name, copy, query = re.fullmatch(r"#(move|drag)-([a-z]+)(?:\.(\d+))?\?(.*)", link).groups()
    values = {}
    for trait, text in parse_qsl(query):
        try:
            values[trait] = json.loads(text)
        except json.JSONDecodeError:
            values[trait] = text
    return kind, name, int(copy or 0), values


@cache
def explorables_of(path: Path) -> dict[str, list[Explorable]]:
    """The explorables of a notebook as its cells make them, by the names that links call them."""
    found: dict[str, list[Explorable]] = {}
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        last = "".join(cell["source"]).strip().split("\n\n")[-1]
        if cell["cell_type"] == "code" and last.split("(")[0] in NAMES:
            widget = eval(last, {last.split("(")[0]: getattr(geolib.explorables, last.split("(")[0])})
            found.setdefault(type(widget).__module__.split(".")[-1], []).append(widget)
    return found
