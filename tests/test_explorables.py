"""What holds of every explorable: short files, whole modules, honest traits, and answers to every kind of hand."""

from __future__ import annotations

import json
import re
import statistics
import subprocess

import pytest
from afresh import Started
from explorable_kit import FOLDER, NAMES, Place, axe_contrast, axe_violations, find, state_of

import geolib.explorables
from geolib.explorables._widget import Choice, Explorable, Real, Reals, Text, Whole, assemble

every = pytest.mark.parametrize("name", NAMES)


def traits_of(name):
    cls = getattr(geolib.explorables, name)
    return {trait: cls.class_traits()[trait] for trait in cls.parameters()}


# The module ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", sorted(path.name for path in FOLDER.glob("*.js")))
def test_each_file_is_short(file):
    lines = (FOLDER / file).read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 300
    assert max(map(len, lines)) <= 120


@every
def test_the_module_a_page_gets_stands_alone_and_exports_render(name, tmp_path):
    module = tmp_path / "module.mjs"
    module.write_text(getattr(geolib.explorables, name)().get_state()["_esm"], encoding="utf-8")
    program = f"console.log(typeof (await import('{module.as_uri()}')).default.render)"
    command = [find("node"), "--input-type=module", "--eval", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "function", done.stderr


@pytest.mark.parametrize(
    "text",
    [
        "const a = 1;\n",
        'import { a } from "./stage.js";\nimport b from "c";\n',
        'import { a } from "./stage.js";\nimport { b } from "./clock.js";\n',
        'import { a } from "./draw.js";\n',
    ],
)
def test_a_file_that_imports_anything_but_the_shared_ones_is_refused(text, tmp_path):
    path = tmp_path / "other.js"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"it must import \./stage\.js"):
        assemble(str(path))


def test_every_module_and_script_asks_no_other_host():
    for path in [*FOLDER.glob("*.js"), *FOLDER.glob("*.css")]:
        addresses = set(re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}", path.read_text("utf-8")))
        assert addresses <= {"http://www.w3.org"}, path.name


# In Python: the traits -----------------------------------------------------------------------------------------------


@every
def test_the_docstring_explains_every_parameter(name):
    documented = getattr(geolib.explorables, name).__doc__
    assert [
        trait for trait in traits_of(name) if not re.search(rf"^    [\w, ]*\b{trait}\b[\w, ]* :", documented, re.M)
    ] == []


@every
def test_a_value_of_the_wrong_kind_or_range_is_refused_by_name(name):
    widget, refused = getattr(geolib.explorables, name)(), 0
    for trait, kind in traits_of(name).items():
        wrong, usual = [None], getattr(widget, trait)
        if isinstance(kind, (Real, Whole)):
            wrong = ["much", float("nan"), kind.low - 1, kind.high + 1]
            wrong += [kind.low + 1] if getattr(kind, "step", 1) > 1 else []
        elif isinstance(kind, Choice):
            wrong = ["no such word"]
        elif isinstance(kind, Reals):
            wrong = [3, [], [float("nan")] * kind.least, [0.0] * (kind.most + 1)]
            wrong += [[*usual[:-1], kind.low - 1], [*usual[:-1], kind.high + 1]]
        elif isinstance(kind, Text):
            wrong = [3, "a" * (kind.most + 1)]
        for value in wrong:
            with pytest.raises(ValueError, match=f"^{trait}: got "):
                setattr(widget, trait, value)
            assert getattr(widget, trait) == usual
            refused += 1
    assert refused


@every
def test_a_shared_name_must_belong_to_a_parameter(name):
    cls = getattr(geolib.explorables, name)
    assert cls(share={cls.parameters()[0]: "common"}).share
    with pytest.raises(ValueError, match=r"^share: got "):
        cls(share={"nothing": "common"})


def test_anywidget_is_loaded_with_the_first_explorable_and_named_when_it_is_missing(tmp_path):
    program = """
import sys
import geolib, geolib.explorables
assert "anywidget" not in sys.modules
sys.modules["anywidget"] = None
try:
    geolib.explorables.RopeClock
except ImportError as error:
    print(error)
"""
    process = Started(tmp_path, program)
    assert process.wait() == 0, process.stderr
    assert "pip install anywidget" in process.stdout


def test_every_module_of_an_explorable_is_in_the_registry():
    modules = {path.stem for path in FOLDER.glob("*.py")} - {"__init__", "_widget", "export"}
    assert modules == set(geolib.explorables._MODULES.values())
    assert all(issubclass(getattr(geolib.explorables, name), Explorable) for name in NAMES)


# In a browser --------------------------------------------------------------------------------------------------------


# Some begin with a part of what they can show; what holds of all is tested where all is shown.
UNFOLDED = {
    "ConformalScale": {"view": "scores"},
    "ConformalState": {"example": "wander", "token": 8},
    "SphereTransport": {"progress": 3},
    "TwoMirrors": {"mirrors": 2},
    "TwoOrders": {"t": 1},
}


def dressed(place, scheme, width):
    """Show the page so wide, by day or by night."""
    place.page.evaluate(f"document.documentElement.dataset.theme = '{scheme}'")
    place.page.evaluate(f"document.body.style.background = '{'#ffffff' if scheme == 'light' else '#14181e'}'")
    place.page.set_viewport_size({"width": width, "height": 1400})
    place.settle()


def _pair(browser, name):
    state = state_of(name, **UNFOLDED.get(name, {}))
    return Place(browser, name, state, state)


@pytest.fixture
def pair(browser, request):
    """Two copies of an explorable on a page."""
    place = _pair(browser, request.param)
    yield place
    place.close()


@pytest.fixture(scope="module")
def _open(browser, request):
    place = _pair(browser, request.param)
    yield place
    place.close()


@pytest.fixture
def resting(_open):
    """Two copies on a page that several tests look at: it gets back its size and its light, and nothing may move."""
    before = _open.values()
    yield _open
    assert _open.values() == before
    _open.page.emulate_media(color_scheme="light")
    _open.page.evaluate("document.activeElement.blur()")
    dressed(_open, "light", 760)


every_pair = pytest.mark.parametrize("pair", NAMES, indirect=True)
every_resting = pytest.mark.parametrize("_open", NAMES, indirect=True)


@every_resting
def test_two_on_a_page_look_alike_and_have_no_id_in_common(resting):
    one, two = (re.sub(r"geo-[a-z0-9]{8,}", "id", resting.drawing(which)) for which in ("one", "two"))
    assert one == two
    assert len(one) > 200
    ids = resting.page.evaluate("[...document.querySelectorAll('[id]')].map((e) => e.id)")
    assert len(ids) == len(set(ids))


CONTROLS = "#one :is(input, textarea, select, button, summary, [tabindex='0']):not(:disabled, [hidden] *)"
FOCUSED = f"""() => {{ const e = document.activeElement; return e.closest("#one") ? [...document.querySelectorAll(
  "{CONTROLS}")].indexOf(e) : -1; }}"""


@every_resting
def test_tab_reaches_every_control_and_nothing_else(resting):
    count = resting.page.locator(CONTROLS).count()
    assert count >= 1
    resting.page.locator("body").press("Tab")
    reached = []
    for _ in range(count):
        reached.append(resting.page.evaluate(FOCUSED))
        resting.page.keyboard.press("Tab")
    assert reached == list(range(count))


@every_pair
def test_every_control_has_a_name_and_the_keyboard_moves_it_and_the_picture(pair):
    for i in range(pair.page.locator("#one input[type=range]").count()):
        slider = pair.page.locator("#one input[type=range]").nth(i)
        label = slider.evaluate("(e) => e.labels[0].textContent")
        assert len(label) >= 1
        seen = {}
        for key in ("Home", "ArrowRight", "End", "ArrowLeft"):
            slider.focus()
            pair.page.keyboard.press(key)
            seen[key] = (pair.drawing(), slider.input_value(), slider.get_attribute("aria-valuetext"))
        assert seen["Home"][1] == slider.get_attribute("min"), label
        assert float(seen["End"][1]) == pytest.approx(float(slider.get_attribute("max")), abs=1e-6), label
        drawings, values, texts = zip(*seen.values())
        assert len(set(drawings)) >= 3, label
        assert len(set(values)) >= 3, label
        assert all(texts), label
        pair.page.keyboard.press("Home")
        pair.page.evaluate("models.one.saves = 0")
    for i in range(pair.page.locator("#one select").count()):
        select = pair.page.locator("#one select").nth(i)
        assert select.evaluate("(e) => e.labels[0].textContent")
        before, value = pair.drawing(), select.input_value()
        select.focus()
        pair.page.keyboard.press("ArrowDown")
        if select.input_value() == value:
            pair.page.keyboard.press("ArrowUp")
        assert select.input_value() != value
        assert pair.drawing() != before
    assert all(name.strip() for name in pair.page.locator("#one button").all_text_contents())


@every_resting
def test_the_coloured_part_of_a_slider_ends_at_its_knob(resting):
    ends = resting.page.evaluate("""[...document.querySelectorAll("#one input[type=range]")].map((e) =>
      [parseFloat(e.style.getPropertyValue("--fill")), (100 * (e.value - e.min)) / (e.max - e.min)])""")
    assert [fill for fill, _ in ends] == pytest.approx([knob for _, knob in ends], abs=1e-6)


@every_pair
def test_mouse_and_finger_take_every_handle_and_slider_and_leave_the_other_copy_alone(pair):
    other = pair.drawing("two")
    for move in (pair.drag, pair.swipe):
        handles = pair.page.locator("#one :is(.geo-reach, [data-drag]):visible")
        for i in range(min(handles.count(), 6)):  # the clock has twelve of one kind
            before = pair.values()
            for way in ((24, -16), (-24, 16), (24, 16), (-24, -16), (0, 30), (0, -30)):
                move(handles.nth(i), *way)
                if pair.values() != before:
                    break
            assert pair.values() != before, f"{move.__name__}: handle {i} does not follow"
        sliders = pair.page.locator("#one input[type=range]")
        for i in range(sliders.count()):
            tap, seen = pair.page.mouse.click if move == pair.drag else pair.page.touchscreen.tap, []
            for share in (0.25, 0.8):
                box = sliders.nth(i).bounding_box()
                tap(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
                pair.settle()
                seen.append(pair.values())
            assert seen[0] != seen[1], f"slider {i}"
    assert pair.drawing("two") == other


@every_pair
def test_every_picture_says_what_it_shows_and_the_words_follow_the_state(pair):
    labels = """() => [...document.querySelectorAll("#one svg, #one canvas")]
        .filter((e) => !e.closest("[aria-hidden=true]") && e.getClientRects().length)
        .map((e) => [e.getAttribute("role"), e.getAttribute("aria-label") ?? ""])"""
    before = pair.page.evaluate(labels)
    assert before
    assert all(role == "img" and len(label) >= 20 for role, label in before), before
    slider = pair.page.locator("#one input[type=range]").first
    slider.focus()
    pair.page.keyboard.press("End")
    pair.settle()
    first = pair.page.evaluate(labels)
    pair.page.keyboard.press("Home")
    pair.settle()
    assert pair.page.evaluate(labels) != first
    pair.page.wait_for_function("document.querySelector('#one [aria-live=polite]').textContent.length > 10")


@every_resting
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [760, 360])
def test_axe_finds_no_violation(resting, scheme, width):
    dressed(resting, scheme, width)
    look = axe_violations if scheme == "light" else axe_contrast  # in the dark colours alone are others
    assert look(resting.page, "#one") == []


@every_resting
def test_a_phone_shows_all_of_it(resting):
    resting.page.set_viewport_size({"width": 360, "height": 800})
    resting.settle()
    assert resting.page.evaluate("document.documentElement.scrollWidth") <= 360
    parts = "#one :is(input, select, button, svg, canvas, text, p, output, label)"
    outside = """(parts) => [...document.querySelectorAll(parts)].filter((e) => {
            const box = e.getBoundingClientRect();
            return box.width && (box.left < -0.5 || box.right > 360.5);
        }).map((e) => e.outerHTML.slice(0, 150))"""
    assert resting.page.evaluate(outside, parts) == []
    small = """() => [...document.querySelectorAll("#one svg text")].filter((e) => e.textContent.trim()
        && e.getClientRects().length && e.getBoundingClientRect().height < 9).map((e) => e.textContent)"""
    assert resting.page.evaluate(small) == []


@every_pair
def test_on_a_phone_a_picture_that_moves_stays_in_view_while_its_slider_is_moved(pair):
    pair.page.set_viewport_size({"width": 390, "height": 844})
    pair.settle()
    pictures = """() => [...document.querySelectorAll("#one :is(svg, canvas)")].map((e) => {
        const { top, bottom } = e.getBoundingClientRect(), high = bottom - top;
        const seen = Math.max(0, Math.min(bottom, innerHeight) - Math.max(top, 0));
        return [high > 50 ? seen / high : 0, e.toDataURL ? e.toDataURL() : e.outerHTML]; })"""
    hidden = []
    for i in range(pair.page.locator("#one input[type=range]").count()):
        slider = pair.page.locator("#one input[type=range]").nth(i)
        slider.evaluate("(e) => e.scrollIntoView({ block: 'center' })")
        before = pair.page.evaluate(pictures)
        slider.focus()
        for key in ("ArrowRight", "ArrowLeft", "ArrowLeft"):
            pair.page.keyboard.press(key)
            pair.settle()
            moved = [share for (share, now), (_, then) in zip(pair.page.evaluate(pictures), before) if now != then]
            if moved:
                break
        if moved and max(moved) < 0.6:
            hidden.append((slider.evaluate("(e) => e.labels[0].textContent"), moved))
    assert hidden == []


@every_resting
def test_each_begins_with_a_question(resting):
    asked = resting.page.locator("#one .geo-ask")
    assert asked.count() == 1
    assert asked.text_content().endswith("?")
    box, first = asked.bounding_box(), resting.page.locator("#one :is(svg, input):visible").first.bounding_box()
    assert box["y"] < first["y"]


@every_resting
def test_a_dark_page_gets_light_ink(resting):
    look = "() => [getComputedStyle(document.querySelector('#one .geo')).color, drawing('one')]"
    ground = "() => getComputedStyle(document.querySelector('#one .geo')).backgroundColor"
    light, white = resting.page.evaluate(look), resting.page.evaluate(ground)
    resting.page.evaluate("document.documentElement.dataset.theme = 'dark'")
    resting.settle()
    dark = resting.page.evaluate(look)
    assert dark[0] != light[0]
    assert resting.page.evaluate(ground) != white
    if resting.page.locator("#one canvas").evaluate_all("(all) => all.some((e) => e.getClientRects().length)"):
        assert dark[1] != light[1]  # a canvas is painted anew
    resting.page.evaluate("document.documentElement.dataset.theme = 'light'")
    resting.settle()
    assert resting.page.evaluate(look) == light
    # A notebook says it in another way, and where nothing is said the reader's own choice counts.
    resting.page.emulate_media(color_scheme="dark")
    resting.page.evaluate("delete document.documentElement.dataset.theme")
    for lab, wanted in ((" = 'true'", light), (" = 'false'", dark), ("", dark)):
        resting.page.evaluate(f"{'' if lab else 'delete '}document.body.dataset.jpThemeLight{lab}")
        resting.settle()
        assert resting.page.evaluate(look)[0] == wanted[0], lab


@every_resting
def test_nothing_moves_by_itself(resting):
    resting.page.wait_for_timeout(150)
    made = state_of(resting.name, **UNFOLDED.get(resting.name, {}))
    assert resting.values() == json.loads(json.dumps(made))


# What Run moves, and where it ends.
RUNS = {
    "ConformalState": ("token", 12),
    "GateCurves": ("token", 32),
    "RopeClock": ("shift", 64),
    "SkewExponential": ("t", 1),
    "SphereTransport": ("progress", 3),
    "TwoMirrors": ("shift", 180),
    "TwoOrders": ("t", 1),
}


every_run = pytest.mark.parametrize("pair", RUNS, indirect=True)


def run_of(place):
    """The button that sets an explorable going."""
    return place.page.locator("#one").get_by_role("button", name="Run", exact=True)


@every_resting
def test_run_is_offered_where_something_goes_on(resting):
    assert run_of(resting).count() == (resting.name in RUNS)


@every_run
def test_calm_readers_get_whole_steps(pair):
    button = pair.page.locator("#one button").nth(pair.page.locator("#one button").all_text_contents().index("Run"))
    start = pair.page.evaluate("JSON.stringify(models.one.values)")
    button.click()
    pair.page.wait_for_function("(start) => JSON.stringify(models.one.values) !== start", arg=start)
    if button.text_content() == "Pause":
        button.click()
    pair.page.emulate_media(reduced_motion="reduce")
    pair.page.evaluate("models.one.saves = 0")
    button.click()
    pair.page.wait_for_timeout(700)
    assert pair.page.evaluate("models.one.saves") <= 1


@every_run
def test_run_goes_until_it_is_told_to_pause_and_stops_at_the_end(pair):
    button = run_of(pair)
    name, end = RUNS[pair.name]
    pair.set(**{name: end // 4})
    button.click()
    pair.page.wait_for_function("([name, start]) => models.one.values[name] > start", arg=[name, end // 4])
    pair.page.locator("#one").get_by_role("button", name="Pause").click()
    paused = pair.values()[name]
    pair.page.wait_for_timeout(100)
    assert pair.values()[name] == paused < end
    pair.set(**{name: end - 1 if end == 32 else 0.99 * end})
    button.click()
    pair.page.wait_for_function("([name, end]) => models.one.values[name] === end", arg=[name, end])
    button.wait_for()


@every_pair
def test_many_inputs_between_two_frames_make_one_redraw_and_its_cost_is_reported(pair):
    slider = pair.page.locator("#one input[type=range]").first
    costs = []
    for start in range(8):
        pair.page.evaluate("frames.length = 0")
        slider.evaluate(
            """(e, start) => { for (let i = 0; i < 20; i++) {
                e.value = Number(e.min) + (e.max - e.min) * ((start * 20 + i) % 97) / 97;
                e.dispatchEvent(new Event("input", { bubbles: true }));
            } }""",
            start,
        )
        pair.settle()
        frames = pair.page.evaluate("frames")
        assert 1 <= len(frames) <= 3  # not 20
        costs.append(max(frames))
    print(f"{pair.name}: {statistics.median(costs):.2f} ms of scripting a frame, median of {len(costs)}")


@every_pair
def test_closing_takes_the_picture_and_every_listener_away(pair):
    pair.page.evaluate("closers.one()")
    assert pair.page.locator("#one").inner_html() == ""
    assert pair.page.evaluate("Object.values(models.one.calls).every((calls) => calls.size === 0)")
    pair.page.locator("#two input[type=range]").first.focus()
    before = pair.drawing("two")
    pair.page.keyboard.press("End")
    pair.page.keyboard.press("Home")
    pair.page.keyboard.press("ArrowRight")
    assert pair.drawing("two") != before
    assert pair.page.locator("#one").inner_html() == ""


@every
def test_a_shared_name_ties_two_on_a_page_and_only_those(browser, name):
    numbers = [trait for trait, kind in traits_of(name).items() if isinstance(kind, (Real, Whole))]
    if not numbers:
        pytest.skip("it has no number to share")
    state = state_of(name, share={numbers[0]: "common"})
    place = Place(browser, name, state, state)
    for trait in numbers[:2]:  # where nothing is shared, hands on one copy leave the other alone: see above
        low, value, high = traits_of(name)[trait].low, state[trait], traits_of(name)[trait].high
        other = next(v for v in (value + 1, value - 1, value / 2 + 0.1, low, high) if low <= v <= high and v != value)
        place.set(**{trait: other})
        assert place.values("two")[trait] == (other if trait == numbers[0] else value)
    place.close()
