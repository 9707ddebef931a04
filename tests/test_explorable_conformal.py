"""The conformal scale: its numbers are geolib's, and it answers the reader's hand."""

from __future__ import annotations

import math
import random
import re

import pytest
import torch
from explorable_kit import Place, node_functions, state_of
from scipy.stats import entropy
from torch.testing import assert_close

from geolib.conformal import SCALE_LAWS, scalar_metric, unit_ball
from geolib.explorables import ConformalScale
from geolib.transport import rotation_preset

# In Node: the numbers ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def call(tmp_path_factory):
    """call(name, [arguments, ...]): the results of the module's function of that name."""
    return node_functions("conformal.js", tmp_path_factory.mktemp("modules"))


def random_states(count, seed=0):
    draw = random.Random(seed)
    states = []
    for i in range(count):
        law, tokens = ("bounded", "free", "slow")[i % 3], draw.randint(2, 32)
        w = draw.uniform(-0.3, 0.3) if law == "free" else draw.uniform(-1, 6)
        alpha, query = 10 ** draw.uniform(-3, 1), draw.randrange(tokens)
        states.append({"law": law, "w": w, "alpha": alpha, "tokens": tokens, "query": query})
    return states


def float64(values):
    return torch.tensor(values, dtype=torch.float64)


def law_of(state):
    return SCALE_LAWS[state["law"]](**({} if state["law"] == "free" else {"alpha": state["alpha"]}))


def log_scale_and_exponents(state):
    law = law_of(state)
    return law.log_scale(float64(state["w"])), law.exponent(torch.arange(state["tokens"], dtype=torch.float64))


def test_three_laws_make_the_scale_of_w(call):  # RF-6a
    states = random_states(30)
    for s, found in zip(states, call("logScale", [[s] for s in states])):
        assert found == pytest.approx(float(law_of(s).log_scale(float64(s["w"]))), abs=1e-6)


def test_w_of_a_scale_is_found_again(call):  # RF-6a
    states = random_states(30, seed=1)
    scales = [random.Random(i).uniform(0.01, 0.99) for i in range(30)]
    found = call("rawOf", [[s["law"], scale, s["alpha"]] for s, scale in zip(states, scales)])
    expected = [float(law_of(s).raw(float64(scale))) for s, scale in zip(states, scales)]
    assert found == pytest.approx(expected, abs=1e-6)


def test_lengths_are_those_that_the_metric_measures(call):  # RF-6
    states = random_states(30, seed=2)
    for s, found in zip(states, call("lengths", [[s] for s in states])):
        log_scale, exponents = log_scale_and_exponents(s)
        metric = scalar_metric(exponents, log_scale, 2)
        assert_close(float64(found), metric[:, 1, 1].sqrt(), rtol=1e-6, atol=1e-6)
        assert_close(1 / float64(found), unit_ball(metric, 5).norm(dim=-1)[:, 0], rtol=1e-6, atol=1e-6)


def test_factor_is_what_the_metric_makes_of_the_score_of_any_rotation(call):  # RF-9, RF-13
    states = random_states(30, seed=3)
    for s, found in zip(states, call("factors", [[s] for s in states])):
        log_scale, exponents = log_scale_and_exponents(s)
        q, k, theta = torch.randn(s["tokens"], 4).double(), torch.randn(s["tokens"], 4).double(), float64([0.7, 0.1])
        scores = rotation_preset(log_scale, theta).literal_scores(q, k, exponents)
        expected = scores / rotation_preset(0 * log_scale, theta).literal_scores(q, k, exponents)
        assert_close(float64(found), expected, rtol=1e-6, atol=1e-6)


def test_row_is_the_softmax_of_the_presets_scores(call):  # RF-9
    states = random_states(30, seed=4)
    for s, found in zip(states, call("attentionRow", [[s] for s in states])):
        log_scale, exponents = log_scale_and_exponents(s)
        # A query (1, 0) and keys (l_n, 0): without a metric the scores are l_n.
        k = torch.zeros(s["tokens"], 2).double()
        k[:, 0] = 3 * torch.cos(2.4 * torch.arange(s["tokens"]).double())
        q = torch.zeros_like(k)
        q[:, 0] = 1
        scaled = rotation_preset(log_scale, float64([0.0])).scores(q, k, exponents)[s["query"]]
        expected = {"scores": k[:, 0], "scaled": scaled, "before": k[:, 0].softmax(0), "after": scaled.softmax(0)}
        for name, row in expected.items():
            assert_close(float64(found[name]), row, rtol=1e-6, atol=1e-6)


def test_weights_cover_e_to_their_entropy(call):
    rows = [torch.rand(n).double().softmax(0).tolist() for n in range(1, 20)] + [[1, 0, 0]]
    assert call("spread", [[row] for row in rows]) == pytest.approx([math.exp(entropy(row)) for row in rows], abs=1e-6)


def test_the_sentence_for_screen_readers_names_the_state(call):
    (said,) = call("describe", [[{"law": "bounded", "w": 0, "alpha": 0.1, "query": 10, "tokens": 16}]])
    s = 1 / 1.1
    assert said.startswith(
        f"s = 0.909, query at 10: lengths times {s**5:.2f}, scores times {s**5:.2f} at key 0 "
        f"and {s**12.5:.2f} at key 15, weights spread over "
    )


# In Python: the traits -----------------------------------------------------------------------------------------------


def test_query_and_tokens_must_fit():
    assert ConformalScale(tokens=8, query=7).tokens == 8
    with pytest.raises(ValueError, match=r"^query: got 16; .*tokens - 1 = 15"):
        ConformalScale().query = 16
    with pytest.raises(ValueError, match=r"^tokens: got 10; the query stands at 10"):
        ConformalScale().tokens = 10


# In a browser --------------------------------------------------------------------------------------------------------


@pytest.fixture
def place(browser):
    """A page with one explorable; what goes wrong in it fails the test."""
    place = Place(browser, "ConformalScale", state_of("ConformalScale"))
    yield place
    place.close()


def arrow_lengths(place):
    """The arrows' lengths in pixels: each begins at the middle of its circle and goes straight up."""
    place.settle()
    drawn = place.page.locator("#one .ruler").get_attribute("d")
    return [float(start) - float(end) for start, end in re.findall(r"M\S+ (\S+)L\S+ (\S+)M", drawn)]


@pytest.mark.parametrize("way", ["drag", "swipe"])
def test_the_query_follows_a_hand_along_the_line_and_on_the_map(place, way):
    page, move = place.page, getattr(place, way)
    ticks = page.locator("#one .line text:not(.halo)")
    one, two = (ticks.nth(n).bounding_box()["x"] for n in (0, 1))
    move(page.locator("#one .line .geo-reach"), -4 * (two - one), 0)
    assert place.values()["query"] == 6
    assert page.locator("#one .ball").nth(6).get_attribute("class") == "ball here"
    place.set(view="scores")
    surface = page.locator("#one .surface")
    cell = surface.bounding_box()["height"] / 16
    box = surface.bounding_box()
    tap = page.mouse.click if way == "drag" else page.touchscreen.tap
    tap(box["x"] + 50, box["y"] + 12.4 * cell)
    place.settle()
    assert place.values()["query"] == 12
    frame = page.locator("#one rect.row").bounding_box()
    assert frame["y"] + frame["height"] / 2 - surface.bounding_box()["y"] == pytest.approx(12.5 * cell, abs=1)


def test_equal_circles_hold_arrows_that_shrink_as_lengths_do(place):
    found = arrow_lengths(place)
    assert [length / found[0] for length in found] == pytest.approx([1.1 ** (-n / 2) for n in range(16)], abs=0.02)
    circles = place.page.locator("#one .ball").evaluate_all("(all) => all.map((e) => e.getAttribute('r'))")
    assert set(circles) == {circles[0]}
    assert found[0] == pytest.approx(float(circles[0]), abs=0.1)
    place.set(law="free", w=0.0)
    assert len(set(arrow_lengths(place))) == 1
    place.set(w=0.1)
    assert arrow_lengths(place)[-1] > 2 * found[0]


@pytest.mark.parametrize(("w", "verdict"), [(-0.1, "flatter."), (0.0, "no change."), (0.1, "sharper.")])
def test_a_row_grows_flatter_below_the_scale_1_and_sharper_above(place, w, verdict):
    place.set(view="weights", law="free", w=w)
    assert place.page.locator("#one .weights .geo-say").text_content().endswith(verdict)


@pytest.mark.parametrize("width", [360, 760])
def test_a_tab_shows_one_panel_alone_and_moves_nothing_below_it(browser, width):
    place = Place(browser, "ConformalScale", state_of("ConformalScale"), viewport={"width": width, "height": 900})
    parts = ["#one .ball", "#one .surface", "#one .row .after", "#one .weights .after"]
    below = set()
    for i, (name, view) in enumerate(
        [("Lengths", "lengths"), ("All scores", "scores"), ("One row", "row"), ("Weights", "weights")]
    ):
        place.page.get_by_role("button", name=name).click()
        place.settle()
        assert place.values()["view"] == view
        assert [place.page.locator(part).first.is_visible() for part in parts] == [j == i for j in range(4)]
        below.add(place.page.locator("#one .geo-panel").bounding_box()["y"])
    assert len(below) == 1
    place.close()


def test_another_law_keeps_the_scale_and_takes_another_w(place):
    select = place.page.locator("#one select")
    select.select_option("free")
    place.settle()
    assert place.values()["w"] == pytest.approx(-math.log(1.1), abs=1e-4)
    assert not place.page.get_by_label("Constant α").is_visible()
    assert "s = 0.909" in place.page.locator("#one .geo-say").first.text_content()
    bounded = arrow_lengths(place)
    select.select_option("slow")
    assert place.values()["w"] == pytest.approx(0, abs=1e-3)
    assert arrow_lengths(place)[-1] > bounded[-1]
    assert place.page.get_by_label("Constant α").is_visible()


def test_the_bars_of_the_scores_shrink_by_the_factor(place):
    heights = """() => ["before", "after"].map((kind) => [...document.querySelector("#one svg ." + kind)
        .getAttribute("d").matchAll(/M\\S+ (\\S+)V([^h]+)/g)].map((bar) => bar[1] - bar[2]))"""
    place.set(view="row")
    before, after = place.page.evaluate(heights)
    expected = [1.1 ** (-(10 + n) / 2) for n in range(16)]
    assert [b / a for a, b in zip(before, after) if abs(a) > 10] == pytest.approx(
        [e for a, e in zip(before, expected) if abs(a) > 10], abs=0.02
    )
