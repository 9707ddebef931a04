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
        ("key", 65, "between 0 and length = 64"),
        ("length", 4, "reach up to 12"),
        ("length", 0, "above 0"),
    ],
)
def test_a_value_beyond_the_length_is_refused_by_name(name, value, message):
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


def test_a_clock_is_no_shorter_than_what_stands_on_it():
    for name in ("query", "key", "shift"):
        clock = RopeClock(**{"query": 1.0, "key": 1.0, "shift": 1.0} | {name: 60.0})
        with pytest.raises(ValueError, match="query, key and shift reach up to 60"):
            clock.length = 50.0
        clock.length = 60.0


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
