"""A finger does what a mouse does: five ways on each handle and pad, while empty ground still scrolls the page."""

import json

import pytest
from explorable_kit import NAMES, NOTEBOOKS, REPOSITORY, file_of, links_of, state_of

import geolib.explorables
from geolib.explorables._widget import assemble

STATIC = REPOSITORY / "book" / "_static"
PAGE = """<!doctype html><html lang="en" data-theme="light"><head><meta charset="utf-8"><title>Touch</title>
<meta name="viewport" content="width=device-width"><style>{house}</style></head><body style="margin: 0"><main
class="bd-article"><div style="height: 900px"></div><p>Put it <a
href="#move-{module}?{trait}=0">there</a>.</p><div style="height: 1400px"></div>
<p><a href="#drag-{module}?{trait}=0">0</a></p><script
type="application/vnd.jupyter.widget-view+json">{{"model_id": "one"}}</script><div style="height: 1800px"></div></main>
<script type="application/vnd.jupyter.widget-state+json">{states}</script><script>{listen}</script>
<script>{host}</script>
</body></html>"""
# What each model was told, by what it came with: the page's own models are out of reach.
TOLD = """export default { ...made, render({ model, el }) {
  const { set } = model, came = window.came = {}, told = window.told = {};
  window.put = (values) => Object.entries(values).forEach(([name, value]) => set.call(model, name, value));
  model.set = (name, value) => {
    for (const [key, each] of typeof name === "object" ? Object.entries(name) : [[name, value]]) {
      if (!(key in came)) came[key] = structuredClone(model.get(key));
      told[key] = each;
    }
    set.call(model, name, value);
  };
  return made.render({ model, el });
} };"""
LISTEN = "cancelled = 0; addEventListener('pointercancel', () => { cancelled += 1; }, true);"
RESET = "() => { put(came); for (const name of Object.keys(told)) delete told[name]; }"
WAYS = {"right": (44, 0), "up": (0, -44), "left": (-44, 0), "down": (0, 44), "down-right": (31, 31)}
# What a hand can take; a drawing that a hand turns is taken by its faces, a chart's bars by their fill.
HOLDS = ".explorable :is(.geo-reach, [data-drag=pad], .geo-turns .geo-face, .field .sheet):visible"
# The figures that a sentence of the book moves.
MOVED = {name for path in NOTEBOOKS for name in NAMES for link in links_of(path) if f"-{file_of(name)[:-3]}?" in link}
WITHOUT = {"LabNotebook", "LiveMemory", "PageLeft", "StepTime"}  # nothing in them is dragged, or only along an axis
FULL = {"GateCurves", "LiereGrid", "LocalityFocus", "ScoreMaps"}  # their pictures answer from edge to edge
# A point of a picture that is open ground, at least a finger away from what a hand can take.
GROUND = """() => {
  for (const picture of document.querySelectorAll(".explorable svg")) {
    const { left, top, width, height } = picture.getBoundingClientRect();
    if (height < 60 || picture.getAttribute("role") !== "img" || picture.closest("details")) continue;
    picture.scrollIntoView({ block: "center", behavior: "instant" });
    const box = picture.getBoundingClientRect();
    for (let x = box.left + 6; x < box.right - 6; x += 12) for (let y = box.top + 6; y < box.bottom - 6; y += 12) {
      const at = (dx, dy) => document.elementFromPoint(x + dx, y + dy);
      const near = [[0, 0], [12, 0], [-12, 0], [0, 12], [0, -12]].map(([dx, dy]) => at(dx, dy)).filter(Boolean);
      if (at(0, 0) === picture && near.every((e) => getComputedStyle(e).touchAction !== "none")) return [x, y];
    }
  }
  return null;
}"""


class Phone:
    """An explorable on a page of the book under a finger."""

    def __init__(self, browser, name):
        """Open the page and wait until the explorable is drawn."""
        context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
        self.page = context.new_page()
        state = state_of(name)
        state["_esm"] = assemble(file_of(name)).replace("export default", "const made =") + TOLD
        state["_css"] = str(getattr(geolib.explorables, name)._css)
        self.trait = next(
            (key for key, value in state.items() if type(value) in (int, float) and key in state["_rules"]), "none"
        )
        house, host = ((STATIC / file).read_text("utf-8") for file in ("house.css", "widget-host.js"))
        states = json.dumps({"state": {"one": {"state": state}}}).replace("</", "<\\/")
        module = file_of(name).removesuffix(".js")
        self.page.set_content(
            PAGE.format(house=house, host=host, states=states, listen=LISTEN, module=module, trait=self.trait)
        )
        self.page.evaluate("document.querySelector('.explorable').wake()")
        self.page.wait_for_selector(".explorable[data-alive]")
        self.page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        self.touch = context.new_cdp_session(self.page)
        self.settle()

    def settle(self):
        """Two frames."""
        self.page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def middle(self, hold):
        """Where to take it, in the middle of the window."""
        hold.evaluate("(e) => e.scrollIntoView({ block: 'center', behavior: 'instant' })")
        self.settle()
        box = hold.bounding_box()
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def finger(self, x, y, dx, dy):
        """A real finger's way, and how far the page went with it."""
        before = self.page.evaluate("scrollY")
        send = lambda kind, *at: self.touch.send(  # noqa: E731
            "Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": a, "y": b} for a, b in at]}
        )
        send("touchStart", (x, y))
        for step in (1, 2):
            send("touchMove", (x + dx * step / 2, y + dy * step / 2))
            self.page.evaluate("new Promise(requestAnimationFrame)")
        send("touchEnd")
        self.settle()
        return self.page.evaluate("scrollY") - before

    def mouse(self, x, y, dx, dy):
        """The same with a mouse."""
        self.page.mouse.move(x, y)
        self.page.mouse.down()
        for step in (1, 2):
            self.page.mouse.move(x + dx * step / 2, y + dy * step / 2)
            self.page.evaluate("new Promise(requestAnimationFrame)")
        self.page.mouse.up()
        self.page.mouse.move(0, 0)
        self.settle()

    def told(self):
        """What the model was told since the last time."""
        told = self.page.evaluate("({ ...told })")
        self.page.evaluate(RESET)
        self.settle()
        return told


@pytest.fixture(scope="module")
def phone(browser):
    """phone(name): the explorable's page; one at a time."""
    held = {}

    def go(name):
        if name not in held:
            for other in held.values():
                other.page.context.close()
            held.clear()
            held[name] = Phone(browser, name)
        return held[name]

    yield go
    for other in held.values():
        other.page.context.close()


@pytest.mark.parametrize("name", [name for name in NAMES if name not in WITHOUT])
def test_a_finger_moves_each_handle_as_a_mouse_does_every_way(phone, name):
    place, wrong, moved = phone(name), [], 0
    parts = [
        place.page.locator(HOLDS).and_(place.page.locator(kind)).all() for kind in (".geo-reach", ":not(.geo-reach)")
    ]
    for hold in [each for part in parts for each in part[:1] + part[1:][-1:]]:  # the first and the last of each kind
        for way, (dx, dy) in WAYS.items():
            for _ in range(2):  # a text that grows moves the picture under the first hand alone
                place.mouse(*place.middle(hold), dx, dy)
                expected = place.told()
                scrolled = place.finger(*place.middle(hold), dx, dy)
                found, cancelled = place.told(), place.page.evaluate("cancelled")
                place.page.evaluate("cancelled = 0")
                if alike := found == expected and not scrolled and not cancelled:
                    break
            moved += found != {}
            if not alike:
                wrong.append((hold.evaluate("(e) => e.outerHTML.slice(0, 60)"), way, scrolled, found, expected))
    assert not wrong, wrong[:4]
    assert moved >= 3


@pytest.mark.parametrize("name", [name for name in NAMES if name not in FULL | {"LiveMemory", "PageLeft", "StepTime"}])
def test_on_a_figures_empty_ground_a_finger_scrolls_the_page_and_changes_nothing(phone, name):
    place = phone(name)
    place.told()
    at = place.page.evaluate(GROUND)
    assert at, "no open ground"
    assert place.finger(*at, 3, -200) > 100
    assert place.told() == {}


@pytest.mark.parametrize(("name", "chart"), [("LabNotebook", ".plot svg"), ("RopeClock", ".curve svg")])
def test_along_a_charts_axis_a_finger_moves_it_and_across_it_scrolls(phone, name, chart):
    place, picture = phone(name), phone(name).page.locator(chart)
    x, y = place.middle(picture)
    for dx in (40, -40):
        place.mouse(x + 50, y, dx, 0)
        expected = place.told()
        assert place.finger(x + 50, y, dx, 0) == 0
        assert place.told() == expected != {}
    assert place.finger(x + 50, y, 0, -160) > 60
    assert place.told() == {}


@pytest.mark.parametrize("name", ["AttentionCircle", "TwoMirrors"])
def test_a_number_in_the_text_follows_a_finger(phone, name):
    place = phone(name)
    number = place.page.locator("[data-geo-drag]")
    for dx, dy in WAYS.values():
        place.finger(*place.middle(number), dx, dy)
        assert place.page.evaluate("cancelled") == 0
        came, (now,) = place.page.evaluate("({ ...came })"), place.told().values()
        assert (now > (was := next(iter(came.values())))) == (dx > 0)
        assert (now < was) == (dx < 0)


def test_a_stroke_upwards_is_drawn(phone):
    place = phone("LiveModel")
    place.page.get_by_role("button", name="Draw").click()
    x, y = place.middle(place.page.locator(".explorable .field .sheet"))
    assert place.finger(x, y + 30, 0, -60) == 0
    ink = place.told()["ink"]
    assert sum(any(ink[8 * row : 8 * row + 8]) for row in range(8)) >= 4


@pytest.mark.parametrize("name", sorted(MOVED))
@pytest.mark.parametrize("at", [150, 400, 700])
def test_a_figure_comes_to_its_sentence_with_its_question_and_the_page_stays(phone, name, at):
    place = phone(name)
    page, link = place.page, place.page.locator('a[href^="#move"]')
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = false; })")
    link.evaluate("(e, at) => scrollTo(0, e.getBoundingClientRect().top + scrollY - at)", at)
    place.settle()
    before = page.evaluate("scrollY")
    link.tap()
    page.wait_for_selector("[data-docked]")
    page.wait_for_function("([trait]) => !(trait in came) || told[trait] === 0", arg=[place.trait])  # it glides there
    assert abs(page.evaluate("scrollY") - before) < 20
    box, words = page.locator("[data-docked]").bounding_box(), link.bounding_box()
    assert words["y"] + words["height"] <= box["y"] or box["y"] + box["height"] <= words["y"]
    for part in (".geo-ask", ".geo-wager", ".geo-say"):
        if (shown := page.locator(f".explorable {part}:visible")).count():
            inner = shown.first.bounding_box()
            assert box["y"] <= inner["y"], part
            assert inner["y"] + inner["height"] <= box["y"] + box["height"] + 1, part
    if (stays := page.locator(".explorable .geo-stay svg")).count():
        picture = stays.first.bounding_box()
        assert picture["y"] + 0.65 * picture["height"] <= box["y"] + box["height"]
    assert page.locator(".explorable-place").count() == 1
    page.go_back()
    page.wait_for_selector("[data-docked]", state="detached")
    assert abs(page.evaluate("scrollY") - before) < 20
