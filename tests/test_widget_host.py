"""The script that brings a page's explorables to life: several on a page, one twice, one broken, none by a kernel."""

import base64
import json
import re

import pytest
import stills
from explorable_kit import NAMES, REPOSITORY
from explorables import without_pieces

import geolib.explorables

HOST = (REPOSITORY / "book" / "_static" / "widget-host.js").read_text("utf-8")

# Shows its number, adds one at each press, and says what it heard.
COUNTER = """export default { render({ model, el }) {
  const button = el.appendChild(document.createElement("button"));
  const draw = () => { button.textContent = `${model.get("label")} ${model.get("count")}`; };
  button.addEventListener("click", () => { model.set("count", model.get("count") + 1); model.save_changes(); });
  model.on("change:count", draw);
  model.on("change:label", draw);
  draw();
} };"""


VIEW = '<script type="application/vnd.jupyter.widget-view+json">{"model_id": "%s"}</script>'
STATE = '<script type="application/vnd.jupyter.widget-state+json">%s</script>'


@pytest.fixture
def shown(browser):
    """shown(states, views): a page with these widgets' states and a view for each name; all requests are refused."""
    pages = []

    def go(states, views, **more):
        whole = {name: {"state": state} | more for name, state in states.items()}
        text = json.dumps({"state": whole}).replace("</", "<\\/")
        pages.append(page := browser.new_page())
        page.route("**/*", lambda route: route.abort())
        views = "".join(f"<div>{VIEW % name}</div>" for name in views)
        page.set_content(f'<html lang="en"><body>{views}{STATE % text}<script>{HOST}</script></body></html>')
        page.wait_for_function(
            "(n) => [...document.querySelectorAll('.explorable')].filter((e) => e.textContent).length === n",
            arg=views.count("model_id"),
        )
        return page

    yield go
    for page in pages:
        page.close()


def texts(page):
    """What each explorable's box shows."""
    return page.evaluate("[...document.querySelectorAll('.explorable')].map((e) => e.textContent)")


def test_two_widgets_with_the_same_code_are_apart_and_two_views_of_one_are_together(shown):
    states = {name: {"_esm": COUNTER, "label": name, "count": 0} for name in ("a", "b")}
    page = shown(states, ["a", "b", "a"])
    page.get_by_role("button", name="a 0").first.click()
    assert texts(page) == ["a 1", "b 0", "a 1"]
    assert page.locator(".explorable[data-alive=yes]").count() == 3


BROKEN = {  # a module, and what its box says
    "throws": ("export default { render() { throw new Error('no such matrix'); } };", "no such matrix"),
    "does not parse": ("export default { render( };", "Unexpected token"),
    "exports nothing": ("export const nothing = 1;", "could not start"),
    "imports what is gone": ("import { a } from './gone.js'; export default { render() {} };", "could not start"),
    "has no code": (None, "this page holds no code"),
}


def test_a_broken_module_says_so_in_its_own_box_and_leaves_the_rest_alive(shown):
    states = {"sound": {"_esm": COUNTER, "label": "sound", "count": 0}}
    states |= {name: {"_esm": code} for name, (code, _) in BROKEN.items()}
    page = shown(states, ["sound", *BROKEN, "sound", "gone"])
    first, *broken, last, gone = texts(page)
    assert (first, last) == ("sound 0", "sound 0")
    assert "this page holds no code" in gone
    for said, (_, complaint) in zip(broken, BROKEN.values(), strict=True):
        assert "could not start" in said
        assert complaint in said
    assert page.locator(".explorable-broken").count() == len(BROKEN) + 1


def test_the_model_hears_what_it_subscribed_to_and_nothing_after_off(shown):
    code = """export default { render({ model, el }) {
      const heard = [], note = (name) => () => heard.push(name);
      const x = note("x");
      model.on("change:x", x);
      model.on("change:y", note("y"));
      model.on("change", note("any"));
      model.set("x", 1); model.set("x", 1); model.set({ x: 2, y: 5 });
      model.off("change:x", x);
      model.set("x", 3);
      model.off();
      model.set("y", 6);
      model.save_changes();
      el.textContent = heard.join(" ") + ` ${model.get("x")}${model.get("y")}`;
    } };"""
    page = shown({"m": {"_esm": code, "x": 0, "y": 0}}, ["m"])
    assert texts(page) == ["x any x any y any any 36"]


def test_a_module_may_be_a_function_prepare_its_model_and_get_bytes(shown):
    code = """export default async () => ({
      async initialize({ model }) { model.set("ready", "ready"); },
      async render({ model, el }) { el.textContent = model.get("ready") + model.get("data").getUint8(1); },
    });"""
    numbers = base64.b64encode(bytes([7, 42])).decode()
    buffers = [{"path": ["data"], "data": numbers, "encoding": "base64"}]
    assert texts(shown({"m": {"_esm": code, "data": None}}, ["m"], buffers=buffers)) == ["ready42"]


def test_style_that_two_widgets_wear_is_put_on_the_page_once_and_one_may_hold_it_for_all(shown):
    states = {name: {"_esm": COUNTER, "label": name, "count": 0} for name in ("a", "b", "c")}
    for name, css in (("a", {"of": "b"}), ("b", "button { padding: 7px }"), ("c", "button { padding: 7px }")):
        states[name]["_css"] = css
    page = shown(states, ["a", "b", "c"])
    paddings = page.evaluate("[...document.querySelectorAll('button')].map((b) => getComputedStyle(b).paddingLeft)")
    assert paddings == ["7px"] * 3
    styles = "[...document.querySelectorAll('style')].filter((s) => s.textContent.includes('padding: 7px')).length"
    assert page.evaluate(styles) == 1


# Pieces of a page in scripts of their own ----------------------------------------------------------------------------


def test_code_and_long_lists_travel_apart_and_come_back_whole_when_they_are_needed(browser, tmp_path):
    head = "// shared\n" + COUNTER.replace("export default", "const widget =") + "\n"
    states = {
        name: {"state": {"_esm": f"{head}// {name}\nexport default widget;", "_css": "b {}", "label": name, "count": 0}}
        for name in ("a", "b")
    }
    states["b"]["state"]["long"] = list(range(3000))
    text = json.dumps({"state": states})
    pieces = {}
    light = without_pieces(text, head, pieces)
    assert len(light) < 700 < len(text)
    assert len(pieces) == 4  # what is shared, two rests, one list
    assert without_pieces(light, head, {}) == light  # a page that is built again stays
    (tmp_path / "explorables").mkdir()
    for name, script in pieces.items():
        (tmp_path / "explorables" / f"{name}.js").write_text(script, "utf-8")
    (tmp_path / "widget-host.js").write_text(HOST, "utf-8")
    (tmp_path / "page.html").write_text(
        f'<body>{VIEW % "a"}<div style="height: 4000px"></div>{VIEW % "b"}{STATE % light}'
        '<script src="widget-host.js"></script></body>'
    )
    page, asked = browser.new_page(), []
    page.on("request", lambda request: asked.append(request.url.split("/")[-1]))
    page.goto((tmp_path / "page.html").as_uri())
    page.wait_for_selector(".explorable[data-alive]")
    assert texts(page) == ["a 0", ""]
    assert sum(each.startswith(("widget-", "shared-")) for each in asked) == 3  # the host, what is shared, a's rest
    page.evaluate("scrollTo(0, 4000)")
    page.wait_for_function("document.querySelectorAll('.explorable[data-alive]').length === 2")
    assert texts(page) == ["a 0", "b 0"]
    assert len([each for each in asked if "." in each]) == 6


# The stills ----------------------------------------------------------------------------------------------------------


def test_every_explorable_stands_in_the_gallery_with_a_still_of_its_present_state_and_on_a_page_of_the_library():
    widgets = stills.explorables()
    assert sorted(type(widget).__name__ for widget in widgets.values()) == sorted(NAMES)
    marks = {name: stills.stamp(widget) for name, widget in widgets.items()}
    assert marks == json.loads(stills.MANIFEST.read_text("utf-8")), "run: make stills"
    for name in marks:
        data = (stills.STILLS / f"{name}.png").read_bytes()
        assert data.startswith(b"\x89PNG")
        assert len(data) < 200_000
    page = (REPOSITORY / "book" / "api" / "companions.md").read_text("utf-8")
    assert sorted(re.findall(r"autoclass:: geolib\.explorables\.\w+\.(\w+)", page)) == sorted(NAMES)


def test_what_stands_for_an_explorable_in_a_saved_notebook_is_light_and_leads_to_its_place_in_the_gallery():
    gallery = (REPOSITORY / "book" / "gallery.ipynb").read_text("utf-8")
    for name in NAMES:
        shown = getattr(geolib.explorables, name)._in_its_place()
        assert f'"({re.search(r"gallery.html#([a-z-]+)", shown)[1]})=\\n"' in gallery, name
        assert 4000 < len(shown) < 40_000, name
