"""The clock of RoPE: its numbers are geolib's, and it answers the reader's hand."""

from __future__ import annotations

import math
import random

import pytest
import torch
from explorable_kit import Place, node_functions
from torch.testing import assert_close

from geolib.explorables import RopeClock
from geolib.rotations import language_frequencies, pair_angles, rope

STATE = {"query": 12.0, "key": 5.0, "shift": 0.0, "base": 100.0, "pairs": 6, "length": 64.0}

# In Node: the numbers ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def call(tmp_path_factory):
    """call(name, [arguments, ...]): the results of the clock's function of that name."""
    return node_functions("clock.js", tmp_path_factory.mktemp("modules"))


def random_states(count, seed=0):
    draw = random.Random(seed)
    return [
        {name: draw.uniform(0, 64) for name in ("query", "key", "shift")}
        | {"base": 10 ** draw.uniform(0, 6), "pairs": draw.randint(1, 32)}
        for _ in range(count)
    ]


def float64(values):
    return torch.tensor(values, dtype=torch.float64)


def test_frequencies_are_those_of_rope(call):  # LR-A2
    states = random_states(30)
    for s, found in zip(states, call("frequencies", [[s["pairs"], s["base"]] for s in states])):
        expected = language_frequencies(2 * s["pairs"], s["base"])[:, 0].double()
        assert_close(float64(found), expected, rtol=0, atol=1e-6)


def test_hands_stand_at_the_pair_angles_of_the_shifted_positions(call):  # LR-A2
    states = random_states(30, seed=1)
    for s, found in zip(states, call("clockAngles", [[s] for s in states])):
        positions = float64([[s["query"] + s["shift"]], [s["key"] + s["shift"]]])
        expected = pair_angles(positions, language_frequencies(2 * s["pairs"], s["base"]))
        # geolib's frequencies are float32: relative to the angle, since 128 tokens multiply their last digit.
        assert_close(float64([found["query"], found["key"]]), expected, rtol=1e-6, atol=1e-6)


def test_score_is_the_inner_product_of_turned_vectors_of_ones_whatever_the_shift(call):  # LR-A2
    states = random_states(30, seed=2)
    scores = call("score", [[s["key"] - s["query"], s["pairs"], s["base"]] for s in states])
    thetas = call("frequencies", [[s["pairs"], s["base"]] for s in states])
    for s, found, theta in zip(states, scores, thetas):
        positions = float64([[s["query"]], [s["key"]]]) + s["shift"]
        query, key = rope(torch.ones(2, 2 * s["pairs"], dtype=torch.float64), positions, float64(theta)[:, None])
        assert found == pytest.approx(float(query @ key) / (2 * s["pairs"]), abs=1e-6)


def test_curve_is_the_score_of_rope_at_each_delta(call):  # LR-A2
    deltas = [-64 + 2 * i for i in range(65)]
    (curve,) = call("scoreCurve", [[deltas, 16, 10000]])
    (theta,) = call("frequencies", [[16, 10000]])
    turned = rope(torch.ones(65, 32, dtype=torch.float64), float64(deltas)[:, None], float64(theta)[:, None])
    assert_close(float64(curve), turned.sum(-1) / 32, rtol=0, atol=1e-6)


def test_a_wanted_delta_is_met_within_the_limits_and_moves_the_key_only_where_it_must(call):
    draw = random.Random(3)
    calls = [[draw.uniform(0, 64), draw.uniform(-64, 64), 64] for _ in range(50)]
    for (key, delta, length), found in zip(calls, call("atDelta", calls)):
        assert found["key"] - found["query"] == pytest.approx(delta)
        assert 0 <= found["key"] <= length
        assert -1e-12 <= found["query"] <= length + 1e-12
        if 0 <= key - delta <= length:
            assert found["key"] == key


def test_the_sentence_for_screen_readers_names_the_state(call):
    (said,) = call("describe", [[STATE | {"shift": 8.25}]])
    score = sum(math.cos(7 * 100 ** (-i / 6)) for i in range(6)) / 6
    assert said == f"query at 20.25, key at 13.25, Δ = −7, score {score:.2f}"


# In Python: the traits -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("query", -1, "0 or more"),
        ("key", 65, "between 0 and length = 64"),
        ("shift", float("nan"), "0 or more"),
        ("base", 0.5, "1 or more"),
        ("base", float("inf"), "1 or more"),
        ("pairs", 0, "from 1 to 32"),
        ("pairs", 33, "from 1 to 32"),
        ("length", 4, "reach up to 12"),
        ("length", 0, "above 0"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(name, value, message):
    with pytest.raises(ValueError, match=f"^{name}: got .*{message}"):
        RopeClock(**{name: value})
    clock = RopeClock()
    with pytest.raises(ValueError, match=f"^{name}: got .*{message}"):
        setattr(clock, name, value)
    assert getattr(clock, name) == STATE[name]


def test_the_traits_travel_to_the_page():
    clock = RopeClock(query=90, length=100)
    assert clock.get_state(list(STATE)) == STATE | {"query": 90.0, "length": 100.0}


# In a browser --------------------------------------------------------------------------------------------------------


@pytest.fixture
def page(browser):
    """A page with two clocks; what goes wrong in it fails the test."""
    place = Place(browser, "RopeClock", STATE, STATE)
    yield place.page
    place.close()


def pictures(page, place="one"):
    """What the clock face and the curve of one explorable show."""
    page.evaluate("settle()")
    return [page.locator(f"#{place} .{part} svg").inner_html() for part in ("face", "curve")]


def values(page, place="one"):
    return page.evaluate(f"models.{place}.values")


def test_two_clocks_on_a_page_draw_and_answer_the_keyboard_apart_from_each_other(page):
    face, curve = pictures(page)
    assert face.count("<path") == 6
    other = pictures(page, "two")
    assert other == [face, curve]

    page.locator("#one input").first.focus()
    for key, expected in [("ArrowRight", 12.25), ("ArrowLeft", 12), ("End", 64), ("Home", 0)]:
        page.keyboard.press(key)
        assert values(page)["query"] == expected
        shown = pictures(page)
        assert (shown == [face, curve]) == (expected == 12)
    assert page.evaluate("[models.one.saves, models.two.saves]") == [4, 0]
    assert pictures(page, "two") == other

    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((e) => e.id)")
    assert len(ids) == len(set(ids))


def test_every_control_is_reached_by_tab_has_a_name_and_goes_to_both_ends(page):
    page.locator("body").press("Tab")
    seen = {}
    for _ in range(9):
        name, tag = page.evaluate("""[document.activeElement.labels?.[0]?.textContent ??
            document.activeElement.textContent, document.activeElement.tagName]""")
        if tag == "INPUT":
            ends = []
            for key in ("Home", "End"):
                page.keyboard.press(key)
                ends.append(page.evaluate("document.activeElement.getAttribute('aria-valuetext')"))
                page.evaluate("settle()")
                ends[-1] = page.evaluate("document.activeElement.getAttribute('aria-valuetext')")
            seen[name] = ends
        else:
            seen[name] = tag
        page.keyboard.press("Tab")
    assert seen == {
        **dict.fromkeys(("Rise", "Fall", "Stay"), "BUTTON"),
        "Query position m": ["0", "64"],
        "Key position n": ["0", "64"],
        "Run": "BUTTON",
        "Shift both by t": ["0", "64"],
        "Base b": ["1", "1000000"],
        "Pairs d/2": ["1", "32"],
    }


def test_shifting_both_turns_the_hands_and_leaves_the_score_where_it_is(page):
    face, curve = pictures(page)
    slider = page.get_by_label("Shift both by t").first
    box = slider.bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert values(page)["shift"] == pytest.approx(32, abs=1)
    turned, same = pictures(page)
    assert turned != face
    assert same == curve
    assert values(page) == STATE | {"shift": values(page)["shift"]}


def test_the_mouse_moves_the_mark_along_the_curve_and_a_finger_turns_a_hand(page):
    before = pictures(page)
    box = page.locator("#one .curve svg").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + 50)
    page.mouse.up()
    assert values(page)["key"] - values(page)["query"] > 45
    after = pictures(page)
    assert after[0] != before[0]
    assert after[1] != before[1]

    # A hand of the slowest pair: a small turn is a long way in position.
    page.evaluate("models.one.set('query', 12), models.one.set('key', 30)")
    page.evaluate("settle()")
    reach = page.locator("#one .face circle.geo-reach").last.bounding_box()
    x, y = reach["x"] + reach["width"] / 2, reach["y"] + reach["height"] / 2
    face = page.locator("#one .face svg").bounding_box()
    cx, cy = face["x"] + face["width"] / 2, face["y"] + face["height"] / 2
    turn = 0.3
    across, up = x - cx, cy - y
    to = {
        "x": cx + across * math.cos(turn) - up * math.sin(turn),
        "y": cy - across * math.sin(turn) - up * math.cos(turn),
    }
    touch = page.context.new_cdp_session(page)
    touch.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]})
    touch.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [to]})
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    assert values(page)["query"] == pytest.approx(12 + turn / 100 ** (-5 / 6), abs=1)
    assert values(page)["key"] == 30


@pytest.mark.parametrize("width", [760, 360])
def test_the_marks_of_the_face_are_twelve_pixels_tall_on_the_screen(page, width):
    page.set_viewport_size({"width": width, "height": 800})
    page.evaluate("settle()")
    sizes = page.evaluate("""[...document.querySelectorAll("#one .face text")].map((text) =>
        parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a)""")
    assert len(sizes) == 4
    assert min(sizes) >= 12


def touch_along(page, points):
    """A finger that goes down on the first point and along the others."""
    touch = page.context.new_cdp_session(page)
    kinds = ["touchStart"] + ["touchMove"] * (len(points) - 1)
    for kind, (x, y) in zip(kinds, points):
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y}]})
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    page.evaluate("settle()")


def test_a_finger_moves_the_mark_along_the_curve_as_far_as_it_goes(page):
    box = page.locator("#one .curve svg").bounding_box()
    inner = box["width"] - 24 - 8  # the curve's margins
    at = lambda delta: box["x"] + 24 + inner * (delta + 64) / 128  # noqa: E731
    height = box["y"] + box["height"] / 2
    touch_along(page, [(at(delta), height) for delta in (-7, -10, -20, -30, -40)])
    assert values(page)["key"] - values(page)["query"] == pytest.approx(-40, abs=0.5)
    assert values(page)["key"] == 5
    touch_along(page, [(at(delta), height) for delta in (-40, -20, 0, 20, 50)])
    assert values(page)["key"] - values(page)["query"] == pytest.approx(50, abs=0.5)


def test_a_finger_carries_a_hand_all_the_way_and_the_page_stays_where_it_is(page):
    page.set_viewport_size({"width": 360, "height": 500})
    page.evaluate("models.one.set('pairs', 3), models.one.set('query', 10), models.one.set('key', 0)")
    page.evaluate("settle()")
    reach = page.locator("#one .face circle.geo-reach").last  # the query's slowest hand
    reach.scroll_into_view_if_needed()
    box, face = reach.bounding_box(), page.locator("#one .face svg").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    cx, cy = face["x"] + face["width"] / 2, face["y"] + face["height"] / 2
    radius, start = math.hypot(x - cx, y - cy), math.atan2(cy - y, x - cx)
    turns = [1.2 * i / 12 for i in range(13)]
    scrolled = page.evaluate("scrollY")
    touch_along(page, [(cx + radius * math.cos(start + t), cy - radius * math.sin(start + t)) for t in turns])
    assert page.evaluate("scrollY") == scrolled
    assert values(page)["query"] == pytest.approx(10 + 1.2 / 100 ** (-2 / 3), abs=1)


def test_two_clocks_that_share_their_base_keep_their_own_positions(browser):
    state = STATE | {"share": {"base": "b"}}
    place = Place(browser, "RopeClock", state, state)
    place.page.get_by_label("Base b").first.focus()
    place.page.keyboard.press("End")
    place.settle()
    assert [place.values(which)["base"] for which in ("one", "two")] == [1e6, 1e6]
    assert pictures(place.page) == pictures(place.page, "two")
    place.page.get_by_label("Query position m").nth(1).focus()
    place.page.keyboard.press("Home")
    place.settle()
    assert [place.values(which)["query"] for which in ("one", "two")] == [12, 0]
    place.page.get_by_label("Base b").nth(1).focus()
    place.page.keyboard.press("Home")
    place.settle()
    assert [place.values(which)["base"] for which in ("one", "two")] == [1, 1]
    place.close()


def test_a_change_from_outside_moves_the_picture_and_is_spoken_once_it_rests(page):
    before = pictures(page)
    page.evaluate("models.one.set('query', 40), models.one.set('pairs', 3), models.one.set('base', 777)")
    after = pictures(page)
    assert after[0] != before[0]
    assert after[1] != before[1]
    assert after[0].count("<path") == 3
    score = sum(math.cos(35 * 777 ** (-i / 3)) for i in range(3)) / 3
    said = f"query at 40, key at 5, Δ = −35, score {score:.2f}".replace("-", "−")
    for part in ("face", "curve"):
        assert said in page.locator(f"#one .{part} svg").get_attribute("aria-label")
        assert page.locator(f"#one .{part} svg").get_attribute("role") == "img"
    page.wait_for_function("(said) => document.querySelector('#one [aria-live=polite]').textContent === said", arg=said)
    assert page.evaluate("models.one.saves") == 0


def test_dark_pages_get_light_ink_and_phones_get_one_column(page):
    colours = """() => ["q", "k"].map((who) => getComputedStyle(document.querySelector(`#one .hand.${who}`)).stroke)
        .concat(getComputedStyle(document.querySelector("#one .geo")).backgroundColor)"""
    light = page.evaluate(colours)
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    dark = page.evaluate(colours)
    assert all(a != b for a, b in zip(light, dark))
    page.evaluate("delete document.documentElement.dataset.theme, document.body.dataset.jpThemeLight = 'true'")
    assert page.evaluate(colours) == light
    page.evaluate("delete document.body.dataset.jpThemeLight")
    page.emulate_media(color_scheme="dark")
    page.evaluate("settle()")
    assert page.evaluate(colours) == dark

    def corners():
        page.evaluate("settle()")
        return [page.locator(f"#one .{part}").bounding_box() for part in ("face", "curve")]

    face, curve = corners()
    assert curve["x"] > face["x"] + face["width"]
    page.set_viewport_size({"width": 360, "height": 800})
    face, curve = corners()
    assert curve["y"] > face["y"] + face["height"]
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    inside = """() => [...document.querySelectorAll("#one input, #one svg, #one text, #one p")]
        .map((e) => e.getBoundingClientRect()).every((box) => box.left >= 0 && box.right <= 360)"""
    assert page.evaluate(inside)


def test_the_run_button_starts_nothing_by_itself_and_goes_by_whole_tokens_where_less_motion_is_asked_for(page):
    button = page.get_by_role("button", name="Run").first
    page.wait_for_timeout(100)
    assert values(page)["shift"] == 0
    button.click()
    page.wait_for_function("models.one.values.shift > 0.2")
    page.get_by_role("button", name="Pause").first.click()
    stopped = values(page)["shift"]
    page.wait_for_timeout(100)
    assert values(page)["shift"] == stopped
    page.emulate_media(reduced_motion="reduce")
    page.evaluate("models.one.set('shift', 63)")
    button.click()
    page.wait_for_function("models.one.values.shift === 64")
    assert button.text_content() == "Run"


def test_a_dot_under_the_mouse_lights_its_ring_and_many_hands_are_no_dust(page):
    page.evaluate("models.one.set('pairs', 32)")
    page.evaluate("settle()")
    assert page.locator("#one .hand").evaluate_all("(all) => all.every((e) => !e.getClientRects().length)")
    page.evaluate("models.one.set('pairs', 6)")
    page.evaluate("settle()")
    page.locator("#one .dot").nth(2).hover(force=True)
    assert page.locator("#one .lit .ring").count() == 1
    assert page.locator("#one .face .geo-note").text_content().startswith("Pair 3: θ = ")
    page.mouse.move(2, 2)
    assert page.locator("#one .lit").count() == 0


def test_what_the_shift_does_is_told_after_it_was_tried(page):
    note = page.locator("#one .together .geo-note")
    assert "score" not in note.text_content()
    page.get_by_role("button", name="Rise").first.click()
    page.wait_for_function("models.one.values.shift > 1.2")
    page.get_by_role("button", name="Pause").click()
    page.evaluate("settle()")
    assert note.text_content() == "All hands turn; no opening changes, nor does the score."
    assert page.locator("#one button.right").text_content() == "Stay"
    assert page.get_by_role("button", name="Rise").first.get_attribute("aria-pressed") == "true"
