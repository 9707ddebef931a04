"""Gates and rates: the curves' numbers are those of the recurrence, and a hand draws them."""

from __future__ import annotations

import math
import random

import pytest
import torch
from explorable_kit import float64, functions_of, numbers_in, place_of
from torch.testing import assert_close

from geolib.explorables import GateCurves
from geolib.recurrence import alibi_log_gates, log_decay, log_gates, memory_length

call = functions_of("gates.js")
opened, place = place_of("GateCurves")


def random_curves(count, seed, low=0.01, high=1.0):
    draw = random.Random(seed)
    return [[draw.uniform(low, high) for _ in range(32)] for _ in range(count)]


def test_map_row_and_memory_are_those_of_the_decay(call):  # CS-gate
    curves, tokens = random_curves(10, seed=0, low=0.3), [1, 2, 3, 7, 13, 20, 25, 30, 31, 32]
    maps, both = call("decay", [[gamma] for gamma in curves]), list(map(list, zip(curves, tokens)))
    for gamma, token, found, row, memory in zip(curves, tokens, maps, call("logRow", both), call("memory", both)):
        log = log_decay(float64(gamma).log())
        assert_close(float64(found).reshape(32, 32), log.exp(), rtol=0, atol=1e-6)
        products = [[math.prod(gamma[j + 1 : i + 1]) if j <= i else 0.0 for j in range(32)] for i in range(32)]
        assert_close(float64(found).reshape(32, 32), float64(products), rtol=0, atol=1e-12)
        assert_close(float64(row), log[token - 1, :token].flip(0), rtol=0, atol=1e-6)
        assert memory == pytest.approx(float(log[token - 1, :token].exp().sum()), abs=1e-6)


def test_memory_of_gates_of_one_half_is_two_tokens_and_of_open_gates_nearly_all(call):  # CS-GATE0
    half, opened = call("preset", [["half"], ["open"]])
    assert_close(float64(half).log(), log_gates(torch.zeros(32, dtype=torch.float64)), rtol=0, atol=1e-6)
    assert_close(float64(opened).log(), log_gates(torch.zeros(32, dtype=torch.float64), 6.906768), rtol=0, atol=1e-6)
    short, long = call("memory", [[half, 32], [opened, 32]])
    assert short == pytest.approx(memory_length(0.5), abs=1e-6)
    assert 31.4 < long < 32


def test_constant_gates_are_alibi_whose_row_is_straight_and_one_other_gate_bends_it(call):  # CS-A1
    gamma, reset = call("preset", [["alibi"], ["reset"]])
    assert_close(float64(gamma).log(), alibi_log_gates(float64([1 / 8]), 32)[0, 0], rtol=0, atol=1e-12)
    (row,) = call("logRow", [[gamma, 32]])
    assert_close(float64(row), -torch.arange(32, dtype=torch.float64) / 8, rtol=0, atol=1e-9)
    straight, bent = call("alibi", [[gamma, 32], [reset, 32]])
    assert straight["slope"] == pytest.approx(1 / 8)
    assert straight["gap"] < 1e-12
    jump = math.log(0.05) + 1 / 8  # of the gate of token 13, at the distance 20 from token 32
    assert bent["slope"] == pytest.approx(1 / 8 - jump / 31)
    assert bent["gap"] == pytest.approx(max(abs(jump) * 19 / 31, abs(jump) * 11 / 31))


def test_a_stroke_sets_every_token_it_passes_within_the_limits(call):
    values = [0.5] * 32
    strokes = [
        [[4, 0.2], [8, 1.4], 0.01],
        [[8, 0.8], [6, 0], 0.01],
        [[3, 0.3], [3, 0.9], 0.01],
        [[32, 0.7], [34, 0.7], 0],
    ]
    on, back, point, outside = call("painted", [[values, *stroke, 1] for stroke in strokes])
    assert on == [0.5] * 3 + [0.2, 0.5, 0.8, 1, 1] + [0.5] * 24
    assert back[5:8] == [0.01, 0.4, 0.8]
    assert point == [0.5, 0.5, 0.9] + [0.5] * 29
    assert outside == [0.5] * 31 + [0.7]


# In a browser --------------------------------------------------------------------------------------------------------


def pixel(place, curve, token, value):
    """Where the value of a token stands on the page, from the curve's own axes."""
    svg = place.page.locator("#one .draw").nth(curve)
    svg.scroll_into_view_if_needed()
    box, bar, high = svg.bounding_box(), svg.locator("rect").nth(token - 1).bounding_box(), 1 if curve == 0 else 2
    zero, top = box["y"] + 130 - 22, box["y"] + 10
    return bar["x"] + bar["width"] / 2, zero - (zero - top) * value / high


@pytest.mark.parametrize(("name", "curve", "ends"), [("gamma", 0, (0.3, 0.7)), ("beta", 1, (2, 1))])
def test_the_mouse_draws_over_the_bars_it_passes_and_the_picture_follows(place, name, curve, ends):
    clock = place.page.locator("#one svg.clock").inner_html()
    place.page.mouse.move(*pixel(place, curve, 5, ends[0]))
    place.page.mouse.down()
    place.page.mouse.move(*pixel(place, curve, 9, ends[1]))
    place.page.mouse.up()
    place.settle()
    drawn, start = place.values()[name], getattr(GateCurves(), name)
    assert drawn[4:9] == pytest.approx([ends[0] + i / 4 * (ends[1] - ends[0]) for i in range(5)], abs=0.025)
    assert drawn[:4] + drawn[9:] == start[:4] + start[9:]
    if name == "beta":
        assert place.page.locator("#one svg.clock").inner_html() != clock
        hand = numbers_in(place.page.locator("#one .geo-say").nth(1).text_content())[0]
        assert hand == pytest.approx(10 * sum(drawn[:24]), abs=0.5)


def test_the_list_offers_curves_and_says_when_one_is_drawn_by_hand(place):
    gates = place.page.get_by_label("Draw gates γ")
    assert gates.input_value() == "reset"
    gates.select_option("alibi")
    place.settle()
    assert place.values()["gamma"] == pytest.approx([math.exp(-1 / 8)] * 32)
    assert 0.125 in numbers_in(place.text(".effect > .geo-note"))
    place.set(gamma=[0.5] * 31 + [0.6])
    assert gates.input_value() == ""
    place.page.get_by_label("Draw rates β").select_option("rope")
    place.settle()
    assert numbers_in(place.page.locator("#one .geo-say").nth(1).text_content()) == [240, 240]
