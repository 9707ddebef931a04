"""What holds of every explorable: honest traits, answers to every kind of hand, words that fit the book."""

import json
import re
import subprocess
import sys

import pytest
from explorable_kit import (
    NAMES,
    NOTEBOOKS,
    REPOSITORY,
    Place,
    axe_contrast,
    axe_violations,
    explorables_of,
    functions_of,
    links_of,
    numbers_in,
    order_of,
    state_of,
)

import geolib.explorables
from geolib.explorables._widget import Choice, Real, Reals, Text, Whole, assemble

every = pytest.mark.parametrize("name", NAMES)
call = functions_of("clock.js", "\nexport { sift };")


def traits_of(name):
    cls = getattr(geolib.explorables, name)
    return {trait: cls.class_traits()[trait] for trait in cls.parameters()}


# The module ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("others", ["", 'import b from "c";\n', 'import { b } from "./clock.js";\n'])
def test_a_file_that_imports_anything_but_the_shared_ones_is_refused(others, tmp_path):
    path = tmp_path / "other.js"
    path.write_text((others and 'import { a } from "./stage.js";\n') + others, encoding="utf-8")
    with pytest.raises(ValueError, match=r"it must import \./stage\.js and only shared files"):
        assemble(str(path))


def test_anywidget_is_loaded_with_the_first_explorable_and_named_when_it_is_missing():
    program = """
import sys, geolib.explorables
assert "anywidget" not in sys.modules
sys.modules["anywidget"] = None
geolib.explorables.RopeClock"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stderr.splitlines()[-1]
    assert said.startswith("ImportError")
    assert "pip install anywidget" in said


# The traits, in Python and in a page ---------------------------------------------------------------------------------

# Traits that Python holds to others as well, or to a list of its own.
FITS = {"RopeClock": {"length"}, "ConformalScale": {"query", "tokens"}, "LiveModel": {"method"}}
FITS |= {"SphereTransport": {"corners"}}


def candidates(kind, usual):
    """Values for a trait, near and beyond its borders."""
    if isinstance(kind, Real | Whole):
        steps = [kind.low + 1] if getattr(kind, "step", 1) > 1 else []
        return [None, "much", float("nan"), kind.low, kind.high, kind.low - 1, kind.high + 1, *steps]
    if isinstance(kind, Choice):
        return [None, "no such word", *kind.options]
    if isinstance(kind, Reals):
        wrong = [None, 3, [], [float("nan")] * kind.least, [0.0] * (kind.most + 1), [[0]] * kind.least]
        return [*wrong, [*usual[:-1], kind.low], [*usual[:-1], kind.low - 1], [*usual[:-1], kind.high + 1]]
    return [None, 3, "a" * kind.most, "a" * (kind.most + 1)] if isinstance(kind, Text) else [None]


@every
def test_python_and_a_page_take_and_refuse_the_same_values(name, call):
    cls, asked, named = getattr(geolib.explorables, name), [], []
    rules, fits = cls()._rules, FITS.get(name, set())
    for trait, kind in traits_of(name).items():
        usual = getattr(cls(), trait)
        for value in [usual, *candidates(kind, usual)]:
            try:
                cls(**{trait: value})
                taken = True
            except ValueError as error:
                named.append(f"{trait}: got " in str(error) or trait in fits)
                taken = False
            if trait in rules and trait not in fits and not re.search("NaN|Infinity", json.dumps(value)):
                asked.append(({trait: value}, taken))
    found = call("sift", [[values, rules] for values, _ in asked])
    for (values, taken), there in zip(asked, found, strict=True):
        assert taken == (values == there["good"]), values
    assert named
    assert all(named)
    assert call("sift", [[{"constructor": 1, "__proto__": 2, "nothing": 3}, rules]])[0]["good"] == {}
    with pytest.raises(ValueError, match=r"^share: got "):
        cls(share={"nothing": "common"})


LAB = "digits-encodings/digits/cpu"
REFUSED = [  # what an explorable begins with, and a value that does not fit that or is in no list of its own
    ("RopeClock", {}, {"query": 65}, "got 65.*between 0 and length = 64"),
    ("RopeClock", {"query": 60.0}, {"length": 50.0}, "got .*query, key and shift reach up to 60"),
    ("RopeClock", {"key": 60.0}, {"length": 50.0}, "got .*query, key and shift reach up to 60"),
    ("RopeClock", {"shift": 60.0}, {"length": 50.0}, "got .*query, key and shift reach up to 60"),
    ("ConformalScale", {}, {"query": 16}, "got 16; .*tokens - 1 = 15"),
    ("ConformalScale", {"tokens": 8, "query": 7}, {"tokens": 7}, "got 7; the query stands at 7"),
    ("StepTime", {}, {"batch": 3}, "got 3; it is one of 2, 8, 32"),
    ("StepTime", {}, {"part": "lunch"}, "got 'lunch'"),
    ("StepTime", {}, {"rows": []}, "got "),
    ("LabNotebook", {}, {"experiment": "table9"}, f"got .*there are {LAB}"),
    ("LabNotebook", {}, {"experiment": "digits"}, "got .*there are"),
    ("LabNotebook", {}, {"run": "nobody"}, "got .*there are digits-none-seed0"),
    ("LabNotebook", {}, {"hidden": ["nothing"]}, "got .*methods, which are none, sinusoidal"),
    ("LabNotebook", {}, {"hidden": "none"}, "got .*must be a list"),
    ("LabNotebook", {}, {"runs": [{"name": "a"}]}, "got .*must be a list of runs with commit"),
]


@pytest.mark.parametrize(("name", "start", "change", "message"), REFUSED)
def test_what_does_not_fit_is_refused_by_name_and_what_was_there_stays(name, start, change, message):
    widget = getattr(geolib.explorables, name)(**start)
    ((trait, value),) = change.items()
    before = getattr(widget, trait)
    with pytest.raises(ValueError, match=f"^{trait}: {message}"):
        setattr(widget, trait, value)
    assert getattr(widget, trait) == before


# In a browser --------------------------------------------------------------------------------------------------------

# Some begin with a part of what they can show; what holds of all is tested where all is shown.
UNFOLDED = {
    "ConformalScale": {"view": "scores"},
    "ConformalState": {"example": "wander", "token": 8},
    "SphereTransport": {"progress": 3},
    "TwoMirrors": {"mirrors": 2},
    "TwoOrders": {"t": 1},
}


@pytest.fixture(scope="module")
def opened(browser, request):
    """Two copies of an explorable on a page, for all tests that look at them."""
    state = state_of(request.param, **UNFOLDED.get(request.param, {}))
    place = Place(browser, request.param, state, state)
    yield place
    place.close()


@pytest.fixture
def pair(opened):
    """The page as it was made."""
    yield opened
    opened.restore()


every_pair = pytest.mark.parametrize("opened", NAMES, indirect=True)


@every_pair
def test_two_on_a_page_begin_with_a_question_look_alike_share_no_id_and_stay_still(pair):
    one, two = (re.sub(r"geo-[a-z0-9]{8,}", "id", pair.drawing(which)) for which in ("one", "two"))
    assert one == two
    assert len(one) > 200
    asked = pair.page.locator("#one .geo-ask")  # a question comes first
    assert asked.text_content().endswith("?")
    first = pair.page.locator("#one :is(svg, input):visible").first
    assert asked.bounding_box()["y"] < first.bounding_box()["y"]
    ids = pair.page.evaluate("[...document.querySelectorAll('[id]')].map((e) => e.id)")
    assert len(ids) == len(set(ids))
    made = state_of(pair.name, **UNFOLDED.get(pair.name, {}))
    assert pair.values() == json.loads(json.dumps(made))
    assert pair.page.evaluate("models.one.saves") == 0


CONTROLS = "#one :is(input, textarea, select, button, summary, [tabindex='0']):not(:disabled, [hidden] *)"
FOCUSED = f"""() => {{ const e = document.activeElement; return e.closest("#one") ? [...document.querySelectorAll(
  "{CONTROLS}")].indexOf(e) : -1; }}"""


@every_pair
def test_tab_reaches_every_control_and_nothing_else(pair):
    count = pair.page.locator(CONTROLS).count()
    assert count >= 1
    pair.page.locator("body").press("Tab")
    reached = []
    for _ in range(count):
        reached.append(pair.page.evaluate(FOCUSED))
        pair.page.keyboard.press("Tab")
    assert reached == list(range(count))


FILL = """(e) => [parseFloat(e.style.getPropertyValue("--fill")), (100 * (e.value - e.min)) / (e.max - e.min)]"""


@every_pair
def test_every_control_has_a_name_and_the_keyboard_moves_it_and_the_picture(pair):
    for slider in pair.page.locator("#one input[type=range]").all():
        label, seen = slider.evaluate("(e) => e.labels[0].textContent"), {}
        assert label
        slider.focus()
        for key in ("Home", "ArrowRight", "End", "ArrowLeft"):
            pair.page.keyboard.press(key)
            seen[key] = (pair.drawing(), slider.input_value(), slider.get_attribute("aria-valuetext"))
            fill, knob = slider.evaluate(FILL)
            assert fill == pytest.approx(knob, abs=1e-6), f"{label}: the coloured part ends beside the knob"
        assert seen["Home"][1] == slider.get_attribute("min"), label
        assert float(seen["End"][1]) == pytest.approx(float(slider.get_attribute("max")), abs=1e-6), label
        drawings, values, texts = zip(*seen.values())
        assert min(len(set(drawings)), len(set(values))) >= 3, label
        assert all(texts), label
        pair.page.keyboard.press("Home")
    for select in pair.page.locator("#one select").all():
        assert select.evaluate("(e) => e.labels[0].textContent")
        before, value = pair.drawing(), select.input_value()
        select.focus()
        pair.page.keyboard.press("ArrowDown")
        if select.input_value() == value:
            pair.page.keyboard.press("ArrowUp")
        assert select.input_value() != value
        assert pair.drawing() != before
    assert all(name.strip() for name in pair.page.locator("#one button").all_text_contents())


WAYS = [(32, 0), (0, 32), (23, 23), (-23, 23), (-32, 0), (0, -32), (-23, -23), (23, -23)]


@every_pair
def test_a_handle_stands_as_near_to_the_hand_as_it_can_and_the_other_copy_does_not_move(pair):
    other, middle = pair.drawing("two"), lambda box: (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    handles = pair.page.locator("#one .geo-reach:visible")
    count = handles.count()
    for i in sorted({0, 1, count // 2, count - 1}) if count > 1 else range(count):  # the clock has twelve of one kind
        apart = []
        for way in WAYS:
            if len(apart) >= 4 and min(apart) < 0.4:
                break
            handles.nth(i).scroll_into_view_if_needed()
            (x, y), before = middle(handles.nth(i).bounding_box()), pair.values()
            pair.page.mouse.move(x, y)
            pair.page.mouse.down()
            pair.page.mouse.move(x + way[0], y + way[1], steps=3)
            pair.settle()
            at = middle(handles.nth(i).bounding_box())
            pair.page.mouse.up()
            if pair.values() != before:
                apart.append(abs(complex(at[0] - x - way[0], at[1] - y - way[1])) / abs(complex(*way)))
            pair.page.evaluate("restore()")
        assert apart, f"handle {i} does not follow"
        assert min(apart) < 0.4, f"handle {i}: {apart}"
        assert sum(far > 1.1 for far in apart) <= 1, f"handle {i}: {apart}"  # an ellipse's tip may change its side
    for i, slider in enumerate(pair.page.locator("#one input[type=range]").all()):
        seen = []
        for share in (0.25, 0.8):
            box = slider.bounding_box()
            pair.page.mouse.click(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
            pair.settle()
            seen.append(pair.values())
        assert seen[0] != seen[1], f"slider {i}"
    assert pair.drawing("two") == other


# A hand turns what it holds: to the right, the front goes along, so that the eye's longitude falls.
HELD = [("SkewExponential", ".scene"), ("TwoOrders", ".dice"), ("SphereTransport", ".ball")]


@pytest.mark.parametrize(("opened", "part"), HELD, indirect=["opened"])
def test_a_box_or_globe_turns_as_one_holds_it(pair, part):
    before, drawn = pair.values(), pair.drawing()
    pair.drag(pair.page.locator(f"#one {part}"), 40, 20)
    after = pair.values()
    assert before["turn"] - after["turn"] == pytest.approx(2 * (after["tilt"] - before["tilt"]), abs=1)
    assert before["turn"] - after["turn"] > 5
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"turn", "tilt"}
    assert pair.drawing() != drawn


# A press on a map of cells means the cell under it: where the map is, its columns and rows, and what each sets.
PADS = [
    ("LocalityFocus", ".surface", 8, 8, "column", "row"),
    ("LiereGrid", "canvas", 15, 15, "column", "row"),
    ("ConformalScale", ".surface", 16, 16, None, "query"),
]


@pytest.mark.parametrize(("opened", "part", "columns", "rows", "across", "down"), PADS, indirect=["opened"])
def test_a_press_on_a_map_means_the_cell_under_it(pair, part, columns, rows, across, down):
    box = pair.page.locator(f"#one {part}").first.bounding_box()
    for tap, (column, row) in ((pair.page.mouse.click, (2, 6)), (pair.page.touchscreen.tap, (5, 1))):
        tap(box["x"] + (column + 0.5) * box["width"] / columns, box["y"] + (row + 0.5) * box["height"] / rows)
        pair.settle()
        assert pair.values()[down] == row
        assert across is None or pair.values()[across] == column


@every_pair
def test_every_picture_says_what_it_shows_and_the_words_follow_the_state(pair):
    labels = """() => [...document.querySelectorAll("#one svg, #one canvas")]
        .filter((e) => !e.closest("[aria-hidden=true]") && e.getClientRects().length)
        .map((e) => [e.getAttribute("role"), e.getAttribute("aria-label") ?? ""])"""
    before = pair.page.evaluate(labels)
    assert before
    assert all(role == "img" and len(label) >= 20 for role, label in before), before
    pair.page.locator("#one input[type=range]").first.focus()
    pair.page.keyboard.press("End")
    pair.settle()
    first = pair.page.evaluate(labels)
    pair.page.keyboard.press("Home")
    pair.settle()
    assert pair.page.evaluate(labels) != first
    pair.page.wait_for_function("document.querySelector('#one [aria-live=polite]').textContent.length > 10")


@every_pair
def test_axe_finds_no_violation_on_a_wide_a_narrow_and_a_dark_page(pair):
    for scheme, ground, width, look in (
        ("light", "#ffffff", 760, axe_violations),
        ("light", "#ffffff", 360, axe_violations),
        ("dark", "#14181e", 760, axe_contrast),  # in the dark colours alone are others
    ):
        pair.page.evaluate(f"document.documentElement.dataset.theme = '{scheme}'")
        pair.page.evaluate(f"document.body.style.background = '{ground}'")
        pair.page.set_viewport_size({"width": width, "height": 1400})
        pair.settle()
        assert look(pair.page, "#one") == [], (scheme, width)


@every_pair
def test_on_a_phone_a_picture_that_moves_stays_in_view_while_its_slider_is_moved(pair):
    pair.page.set_viewport_size({"width": 390, "height": 844})
    pair.settle()
    pictures = """() => [...document.querySelectorAll("#one :is(svg, canvas)")].map((e) => {
        const { top, bottom } = e.getBoundingClientRect(), high = bottom - top;
        const seen = Math.max(0, Math.min(bottom, innerHeight) - Math.max(top, 0));
        return [high > 50 ? seen / high : 0, e.toDataURL ? e.toDataURL() : e.outerHTML]; })"""
    hidden = []
    for slider in pair.page.locator("#one input[type=range]").all():
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


@every_pair
def test_a_dark_page_gets_light_ink(pair):
    look = "() => [getComputedStyle(document.querySelector('#one .geo')).color, drawing('one')]"
    light = pair.page.evaluate(look)
    pair.page.evaluate("document.documentElement.dataset.theme = 'dark'")
    pair.settle()
    dark = pair.page.evaluate(look)
    assert dark[0] != light[0]
    if pair.page.locator("#one canvas").evaluate_all("(all) => all.some((e) => e.getClientRects().length)"):
        assert dark[1] != light[1]  # a canvas is painted anew
    # A notebook says it in another way, and where nothing is said the reader's own choice counts.
    pair.page.emulate_media(color_scheme="dark")
    pair.page.evaluate("delete document.documentElement.dataset.theme")
    for lab, wanted in ((" = 'true'", light), (" = 'false'", dark), ("", dark)):
        pair.page.evaluate(f"{'' if lab else 'delete '}document.body.dataset.jpThemeLight{lab}")
        pair.settle()
        assert pair.page.evaluate(look)[0] == wanted[0], lab


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


@every_pair
def test_run_goes_until_it_is_told_to_pause_stops_at_the_end_and_waits_for_calm_readers(pair):
    button = pair.page.locator("#one").get_by_role("button", name="Run", exact=True)
    assert button.count() == (pair.name in RUNS)
    if pair.name not in RUNS:
        return
    name, end = RUNS[pair.name]
    pair.set(**{name: end // 4})
    button.click()
    pair.page.wait_for_function("([name, start]) => models.one.values[name] > start", arg=[name, end // 4])
    pause = pair.page.locator("#one").get_by_role("button", name="Pause")
    pause.click()
    paused = pair.values()[name]
    pair.settle()
    assert pair.values()[name] == paused < end
    pair.set(**{name: end - 1 if end == 32 else 0.99 * end})
    button.click()
    pair.page.wait_for_function("([name, end]) => models.one.values[name] === end", arg=[name, end])
    button.wait_for()
    pair.page.emulate_media(reduced_motion="reduce")  # a step a second, not one a frame
    pair.set(**{name: end // 4})
    pair.page.evaluate("models.one.saves = frames.length = 0")
    button.click()
    pair.page.wait_for_function("frames.length > 8")
    assert pair.page.evaluate("models.one.saves") <= 1
    pause.click()


@every_pair
def test_many_inputs_between_two_frames_make_one_redraw(pair):
    pair.page.evaluate("frames.length = 0")
    pair.page.locator("#one input[type=range]").first.evaluate(
        """(e) => { for (let i = 0; i < 20; i++) {
            e.value = Number(e.min) + (e.max - e.min) * ((7 * i) % 97) / 97;
            e.dispatchEvent(new Event("input", { bubbles: true }));
        } }"""
    )
    pair.settle()
    assert 1 <= len(pair.page.evaluate("frames")) <= 3  # not 20


@every_pair
def test_a_shared_name_ties_two_on_a_page_and_only_those(pair):
    traits = [(trait, kind) for trait, kind in traits_of(pair.name).items() if isinstance(kind, Real | Whole)]
    state = pair.values()
    for tied, (trait, kind) in zip((True, False), traits):
        for which in ("one", "two"):
            pair.set(which, share={trait: "common"} if tied else {})
        value = state[trait]
        others = [v for v in (value + 1, value - 1, value / 2 + 0.1, kind.low) if kind.low <= v <= kind.high]
        other = next(v for v in others if v != value)
        pair.set(**{trait: other})
        assert pair.values("two")[trait] == (other if tied else value)


# What the book recommends --------------------------------------------------------------------------------------------

MEASURE = """async ([states, narrow]) => {
  const inside = document.querySelector("#one"), shown = (e) => e.checkVisibility({ visibilityProperty: true });
  const wrong = [];
  for (const [where, state] of states) {
    Object.entries(state).forEach(([name, value]) => models.one.set(name, value));
    await settle();
    const texts = [...inside.querySelectorAll("svg text")].filter((e) => e.textContent.trim() && shown(e)
      && e.getAttribute("opacity") !== "0");
    const boxes = texts.map((e) => {
      const { left, right, top, bottom } = e.getBoundingClientRect(), thin = 0.2 * (bottom - top);
      return { text: e.textContent, left: left + 1, right: right - 1, top: top + thin, bottom: bottom - thin };
    });
    boxes.forEach((a, i) => boxes.slice(i + 1).forEach((b) => {
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > 0 && high > 0) wrong.push(`${where}: ${a.text} lies on ${b.text}`);
    }));
    const sizes = texts.map((e) => {
      const m = e.getScreenCTM();
      return [parseFloat(getComputedStyle(e).fontSize) * Math.sqrt(Math.abs(m.a * m.d - m.b * m.c)), e.textContent];
    });
    const walk = document.createTreeWalker(inside, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
      const e = walk.currentNode.parentElement;
      if (walk.currentNode.data.trim() && !e.closest("svg, style, .geo-hidden") && shown(e)) {
        sizes.push([parseFloat(getComputedStyle(e).fontSize), walk.currentNode.data]);
      }
    }
    wrong.push(...sizes.filter(([size]) => size < 10.99).map(([size, text]) => `${where}: ${text} is ${size} high`));
    const ruler = document.createElement("canvas").getContext("2d");
    if (!narrow) [...inside.querySelectorAll("select")].filter(shown).forEach((e) => {
      const { font, paddingLeft, paddingRight } = getComputedStyle(e), text = e.selectedOptions[0]?.text ?? "";
      ruler.font = font;
      const room = e.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight) - 16;
      if (ruler.measureText(text).width > room) wrong.push(`${where}: ${text} is cut`);
    });
  }
  return wrong;
}"""


def recommended(name):
    """Where from and which state: each start of the book, and each link from its page's start."""
    yield "default", state_of(name)
    for path in NOTEBOOKS:
        for module, widgets in explorables_of(path).items():
            for i, widget in enumerate(widgets):
                if type(widget).__name__ != name:
                    continue
                start = {trait: widget.get_state([trait])[trait] for trait in widget.parameters()}
                yield path.stem, start
                for link in links_of(path):
                    kind, called, copy, values = order_of(link)
                    if kind == "move" and called == module and copy in (0, i + 1):
                        yield path.stem + link, start | values


@every_pair
def test_in_every_recommended_state_no_label_lies_on_another_and_no_text_is_small_or_cut(pair):
    for width in (820, 340):
        pair.page.set_viewport_size({"width": width, "height": 1400})
        pair.settle()
        long = pair.name == "LabNotebook" and width < 400  # names of experiments
        states = [(where, {k: v for k, v in s.items() if k[0] != "_"}) for where, s in recommended(pair.name)]
        assert pair.page.evaluate(MEASURE, [states, long]) == [], width


GALLERY = REPOSITORY / "book" / "gallery.ipynb"
CROWD = {"tokens": [150, 160, 170, 180, -170, -160, 0], "query": 0}
SAID = [
    ("AttentionCircle", {}, "0.846"),
    ("AttentionCircle", {"temperature": 0.05}, "0.970"),
    ("AttentionCircle", CROWD, "0.892"),
    ("AttentionCircle", CROWD | {"temperature": 5}, "0.198"),
    ("SphereTransport", {"progress": 3}, "90.0"),
    ("SphereTransport", {"progress": 3, "corners": [0, 0, 45, 0, 45, 90]}, "45.0"),
    ("RopeClock", {"shift": 33}, "0.42"),
    ("TwoMirrors", {"m": 80}, "120"),
    ("TwoMirrors", {"m": 110}, "180"),
    ("ThreeSpaces", {}, "1.00 0.05 0.72"),
    ("ThreeSpaces", {"key": 8}, "0.52"),
    ("ThreeSpaces", {"scale": 1}, "0.07"),
    ("ConformalScale", {"view": "weights"}, "0.909 10.6 6.7"),
    ("GeneralMetric", {}, "1.00 0.53"),
    ("GeneralMetric", {"s1": 1, "s2": 1}, "0.17"),
    ("SkewExponential", {"motion": "square", "t": 1, "e": 0.5}, "31.9 33.4 0.955"),
    ("SkewExponential", {"motion": "square", "t": 1, "e": 0.02}, "1.000"),
    ("TwoOrders", {"t": 1}, "120 62.4 70.7"),
    ("TwoOrders", {"t": 1, "size": 10}, "0.87"),
    ("LiereGrid", {"mix": 0}, "0"),
    ("LiereGrid", {}, "68"),
    ("LocalityFocus", {}, "0.405"),
    ("LocalityFocus", {"sigma": 8}, "0.944"),
    ("EvenPowers", {"angle": 180}, "1 0.02"),
    ("GateCurves", {"gamma": [0.5] * 32}, "2.0"),
    ("ConformalState", {"example": "once", "gamma": 0.5, "turn": 0, "token": 4}, "0.125"),
    ("LiveMemory", {}, "36"),
    ("LiveMemory", {"power": 4}, "330"),
    ("Plaquettes", {"group": "space", "links": [90] * 12}, "120"),
]


@pytest.mark.parametrize(("opened", "values", "said"), SAID, indirect=["opened"])
def test_a_readout_says_the_numbers_of_its_state(pair, values, said):
    ((widget,),) = [own for own in explorables_of(GALLERY).values() if type(own[0]).__name__ == pair.name]
    pair.set(m=100) if pair.name == "TwoMirrors" else None  # a mirror that was turned gives the answer away
    pair.set(**{trait: getattr(widget, trait) for trait in widget.parameters()} | values)
    texts = pair.page.locator("#one :is(.geo-say, .geo-note, p, td, output, svg text):visible").all_text_contents()
    shown = numbers_in(" ".join(texts))
    for number in said.split():
        digits = len(number.partition(".")[2])
        assert any(round(abs(each), digits) == float(number) for each in shown), f"{number} is not among {shown}"


@every_pair
def test_closing_takes_the_picture_and_every_listener_away(pair):
    pair.page.evaluate("closers.one()")
    assert pair.page.locator("#one").inner_html() == ""
    assert pair.page.evaluate("Object.values(models.one.calls).every((calls) => calls.size === 0)")
    pair.page.locator("#two input[type=range]").first.focus()
    before = pair.drawing("two")
    for key in ("End", "Home", "ArrowRight"):
        pair.page.keyboard.press(key)
    assert pair.drawing("two") != before
    assert pair.page.locator("#one").inner_html() == ""
    pair.page.evaluate("begin('one')")  # for those who come after
