"""Gates and rates: the curves' numbers are those of the recurrence, and a hand draws them."""

from __future__ import annotations

import math
import random

import pytest
import torch
from explorable_kit import Place, node_functions, state_of
from torch.testing import assert_close

from geolib.explorables import GateCurves
from geolib.recurrence import alibi_log_gates, cumulative_angles, log_decay, log_gates, memory_length, turns_of

# In Node: the numbers ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def call(tmp_path_factory):
    """call(name, [arguments, ...]): the results of the explorable's function of that name."""
    return node_functions("gates.js", tmp_path_factory.mktemp("modules"))


def float64(values):
    return torch.tensor(values, dtype=torch.float64)


def random_curves(count, seed, low=0.01, high=1.0):
    draw = random.Random(seed)
    return [[draw.uniform(low, high) for _ in range(32)] for _ in range(count)]


def test_map_is_the_decay_of_the_gates_and_the_product_of_those_between(call):  # CS-gate
    curves = random_curves(10, seed=0)
    for gamma, found in zip(curves, call("decay", [[gamma] for gamma in curves])):
        found = float64(found).reshape(32, 32)
        assert_close(found, log_decay(float64(gamma).log()).exp(), rtol=0, atol=1e-6)
        products = [[math.prod(gamma[j + 1 : i + 1]) if j <= i else 0.0 for j in range(32)] for i in range(32)]
        assert_close(found, float64(products), rtol=0, atol=1e-12)


def test_row_against_distance_is_the_row_of_the_decay_read_backwards(call):  # CS-gate
    curves, tokens = random_curves(10, seed=1), [1, 2, 3, 7, 13, 20, 25, 30, 31, 32]
    rows = call("logRow", [list(pair) for pair in zip(curves, tokens)])
    for gamma, token, found in zip(curves, tokens, rows):
        expected = log_decay(float64(gamma).log())[token - 1, :token].flip(0)
        assert_close(float64(found), expected, rtol=0, atol=1e-6)


def test_memory_is_the_sum_of_the_row(call):  # CS-gate
    curves = random_curves(10, seed=2, low=0.5)
    for gamma, found in zip(curves, call("memory", [[gamma, 29] for gamma in curves])):
        total, each = 0.0, 0.0
        for gate in gamma[:29]:  # z_i = gamma_i z_(i-1) + 1, as the normaliser of equal keys
            each = gate * each + 1
            total = each
        assert found == pytest.approx(total, abs=1e-9)


def test_memory_of_gates_of_one_half_is_two_tokens_and_of_open_gates_nearly_all(call):  # CS-GATE0
    half, opened = call("preset", [["half"], ["open"]])
    assert_close(float64(half).log(), log_gates(torch.zeros(32, dtype=torch.float64)), rtol=0, atol=1e-6)
    assert_close(float64(opened).log(), log_gates(torch.zeros(32, dtype=torch.float64), 6.906768), rtol=0, atol=1e-6)
    short, long = call("memory", [[half, 32], [opened, 32]])
    assert short == pytest.approx(memory_length(0.5), abs=1e-6)
    assert 31.4 < long < 32


def test_constant_gates_are_alibi_and_their_row_is_straight(call):  # CS-A1
    (gamma,) = call("preset", [["alibi"]])
    assert_close(float64(gamma).log(), alibi_log_gates(float64([1 / 8]), 32)[0, 0], rtol=0, atol=1e-12)
    (row,) = call("logRow", [[gamma, 32]])
    assert_close(float64(row), -torch.arange(32, dtype=torch.float64) / 8, rtol=0, atol=1e-9)
    (line,) = call("alibi", [[gamma, 32]])
    assert line["slope"] == pytest.approx(1 / 8)
    assert line["gap"] < 1e-12


def test_one_other_gate_bends_the_row_by_what_its_logarithm_differs(call):  # CS-A1
    slope, place = 1 / 8, 13
    (gamma,) = call("preset", [["reset"]])
    (line,) = call("alibi", [[gamma, 32]])
    jump = math.log(0.05) + slope  # at the distance 32 - 13 + 1 the row falls by this more than ALiBi's
    assert line["slope"] == pytest.approx(slope - jump / 31)
    before, after = 32 - place, 32 - place + 1
    assert line["gap"] == pytest.approx(max(abs(jump) * before / 31, abs(jump) * (31 - after) / 31))


def test_hand_stands_at_the_sum_of_the_rates_times_theta(call):  # CS-beta
    curves, thetas = random_curves(10, seed=3, low=0, high=2), [0, 1, 5, 10, 22.5, 45, 90, 100, 170, 180]
    for beta, theta, found in zip(curves, thetas, call("angles", [list(pair) for pair in zip(curves, thetas)])):
        turns = turns_of(float64(beta)[None, None], float64([[math.radians(theta)]]))
        expected = cumulative_angles(turns)[0, 0, :, 0]
        assert_close(float64(found).deg2rad(), expected, rtol=0, atol=1e-6)


def test_rates_of_one_are_rope_and_the_wave_is_ahead_of_it_until_it_returns(call):  # CS-beta
    rope, wave = call("preset", [["rope"], ["wind"]])
    hands = call("angles", [[rope, 10], [wave, 10]])
    assert hands[0] == pytest.approx([10 * i for i in range(1, 33)])
    ahead = [b - a for a, b in zip(*hands)]
    assert min(ahead[:30]) > 0.1
    assert ahead[15] == pytest.approx(8 / math.tan(math.pi / 32))  # the closed form of a sum of sines
    assert ahead[31] == pytest.approx(0, abs=1e-9)


def test_a_stroke_sets_every_token_it_passes_within_the_limits(call):
    values = [0.5] * 32
    (found,) = call("painted", [[values, [4, 0.2], [8, 1.4], 0.01, 1]])
    assert found == [0.5] * 3 + [0.2, 0.5, 0.8, 1, 1] + [0.5] * 24
    back, point, outside = call(
        "painted",
        [
            [values, [8, 0.8], [6, 0], 0.01, 1],
            [values, [3, 0.3], [3, 0.9], 0.01, 1],
            [values, [32, 0.7], [34, 0.7], 0, 1],
        ],
    )
    assert back[5:8] == [0.01, 0.4, 0.8]
    assert point == [0.5, 0.5, 0.9] + [0.5] * 29
    assert outside == [0.5] * 31 + [0.7]


def test_the_presets_of_the_page_are_the_defaults_of_the_class(call):
    reset, wave = call("preset", [["reset"], ["wind"]])
    assert GateCurves().gamma == pytest.approx(reset, abs=1e-12)
    assert GateCurves().beta == pytest.approx(wave, abs=1e-12)


# In Python: the traits -----------------------------------------------------------------------------------------------


# In a browser --------------------------------------------------------------------------------------------------------


@pytest.fixture
def place(browser):
    """A page with the explorable; what goes wrong in it fails the test."""
    place = Place(browser, "GateCurves", state_of("GateCurves"))
    yield place
    place.close()


def pixel(place, curve, token, value):
    """Where the value of a token stands on the page, from the curve's own axes."""
    svg = place.page.locator("#one .draw").nth(curve)
    svg.scroll_into_view_if_needed()
    box, bars = svg.bounding_box(), svg.locator("rect")
    bar, high = bars.nth(token - 1).bounding_box(), 1 if curve == 0 else 2
    zero, top = box["y"] + 130 - 22, box["y"] + 10
    return bar["x"] + bar["width"] / 2, zero - (zero - top) * value / high


def sentence(place, which):
    return place.page.locator("#one .geo-say").nth(which).text_content()


def test_the_mouse_draws_gates_over_the_bars_it_passes(place):
    (x0, y0), (x1, y1) = pixel(place, 0, 5, 0.3), pixel(place, 0, 9, 0.7)
    place.page.mouse.move(x0, y0)
    place.page.mouse.down()
    place.page.mouse.move(x1, y1)
    place.page.mouse.up()
    place.settle()
    gamma = place.values()["gamma"]
    assert gamma[4:9] == pytest.approx([0.3, 0.4, 0.5, 0.6, 0.7], abs=0.011)
    start = GateCurves().gamma
    assert gamma[:4] + gamma[9:] == start[:4] + start[9:]


def test_a_finger_draws_rates_and_the_hand_follows(place):
    before = place.page.locator("#one svg.clock").inner_html()
    (x0, y0), (x1, y1) = pixel(place, 1, 10, 2), pixel(place, 1, 20, 1)
    touch = place.page.context.new_cdp_session(place.page)
    touch.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x0, "y": y0}]})
    touch.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [{"x": x1, "y": y1}]})
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    place.settle()
    beta = place.values()["beta"]
    assert beta[9:20] == pytest.approx([2 - i / 10 for i in range(11)], abs=0.02)
    assert place.page.locator("#one svg.clock").inner_html() != before
    assert f"hand at {10 * sum(beta[:24]):.0f}°" in sentence(place, 1)


def test_the_sliders_set_the_gate_and_the_rate_of_the_chosen_token(place):
    place.page.get_by_label("Token m", exact=True).focus()
    place.page.keyboard.press("Home")
    place.page.keyboard.press("ArrowRight")
    assert place.values()["token"] == 2
    place.settle()
    place.page.get_by_label("Gate γₘ of token m").focus()
    place.page.keyboard.press("Home")
    place.page.get_by_label("Rate βₘ of token m").focus()
    place.page.keyboard.press("End")
    place.settle()
    values, start = place.values(), GateCurves()
    assert values["gamma"] == [*start.gamma[:1], 0.01, *start.gamma[2:]]
    assert values["beta"] == [*start.beta[:1], 2, *start.beta[2:]]
    assert "token 2 remembers Σₙ γₘₙ = 1.0 tokens" in sentence(place, 0)


def test_the_list_offers_curves_and_says_when_one_is_drawn_by_hand(place):
    gates = place.page.get_by_label("Draw gates γ")
    note = place.page.locator("#one .effect > .geo-note").first
    assert gates.input_value() == "reset"
    assert note.text_content().startswith("log γₘₙ bends")
    gates.select_option("alibi")
    place.settle()
    assert place.values()["gamma"] == pytest.approx([math.exp(-1 / 8)] * 32)
    assert note.text_content() == "log γₘₙ is straight: it is ALiBi’s dashed line, slope\u00a00.125"
    gates.select_option("half")
    place.settle()
    assert "remembers Σₙ γₘₙ = 2.0 tokens" in sentence(place, 0)
    place.set(gamma=[0.5] * 31 + [0.6])
    assert gates.input_value() == ""
    place.page.get_by_label("Draw rates β").select_option("rope")
    place.settle()
    assert sentence(place, 1) == "hand at 240°, RoPE’s at 240°: level"


def test_the_frame_on_the_map_stands_around_the_row_of_the_token(place):
    for token in (1, 17, 32):
        place.set(token=token)
        row, canvas = (place.page.locator(f"#one .map {part}").bounding_box() for part in ("span", "canvas"))
        middle = row["y"] + row["height"] / 2 - canvas["y"]
        assert middle == pytest.approx(canvas["height"] * (token - 0.5) / 32, abs=1.5)
