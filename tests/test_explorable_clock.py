"""The clock of RoPE: its numbers are geolib's, and a shift turns its hands alone."""

from __future__ import annotations

import random
from functools import partial

import pytest
import torch
from explorable_kit import float64, functions_of, place_of, states
from torch.testing import assert_close

from geolib.explorables import RopeClock
from geolib.rotations import language_frequencies, pair_angles, rope

call = functions_of("clock.js")
opened, place = place_of("RopeClock")
random_states = partial(
    states, query=(0, 64), key=(0, 64), shift=(0, 64), base=lambda draw: 10 ** draw.uniform(0, 6), pairs=range(1, 33)
)


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
        assert all(-1e-12 <= found[name] <= length + 1e-12 for name in ("key", "query"))
        if 0 <= key - delta <= length:
            assert found["key"] == key


def test_nothing_on_a_clock_stands_beyond_its_length():
    for name in ("query", "key", "shift"):
        clock = RopeClock(**{"query": 1.0, "key": 1.0, "shift": 1.0} | {name: 60.0})
        with pytest.raises(ValueError, match=r"^length: got .*query, key and shift reach up to 60"):
            clock.length = 50.0
        clock.length = 60.0
        with pytest.raises(ValueError, match=rf"^{name}: got 65.*between 0 and length = 60"):
            setattr(clock, name, 65)
        assert getattr(clock, name) == 60


def test_shifting_both_turns_the_hands_and_leaves_the_score_where_it_is(place):
    def pictures():
        place.settle()
        return [place.page.locator(f"#one .{part} svg").inner_html() for part in ("face", "curve")]

    (face, curve), before = pictures(), place.values()
    place.page.get_by_label("Shift both by t").press("ArrowRight")
    turned, same = pictures()
    assert turned != face
    assert same == curve
    assert {name for name, value in place.values().items() if value != before[name]} == {"shift"}


def test_a_finger_moves_the_mark_along_the_curve_as_far_as_it_goes(place):
    curve = place.page.locator("#one .curve svg")
    inner = curve.bounding_box()["width"] - 24 - 8  # the curve's margins
    for delta in (-40, 50):
        now = place.values()
        start = now["key"] - now["query"]
        middle = 128 * (curve.bounding_box()["width"] / 2 - 24) / inner - 64  # where the finger goes down
        place.swipe(curve, inner * (delta - middle) / 128, 0)
        assert place.values()["key"] - place.values()["query"] == pytest.approx(delta, abs=1), start


def test_a_dot_under_the_mouse_lights_its_ring_and_many_hands_are_no_dust(place):
    place.set(pairs=32)
    assert place.page.locator("#one .hand").evaluate_all("(all) => all.every((e) => !e.getClientRects().length)")
    place.set(pairs=6)
    place.page.locator("#one .dot").nth(2).hover(force=True)
    assert place.page.locator("#one .lit .ring").count() == 1
    assert place.text(".face .geo-note").startswith("Pair 3: θ = ")
    place.page.mouse.move(2, 2)
    assert place.page.locator("#one .lit").count() == 0
