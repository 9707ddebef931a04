"""The conformal scale: its numbers are geolib's, and its pictures have their lengths."""

from __future__ import annotations

import math
import random
import re

import pytest
import torch
from explorable_kit import float64, functions_of, place_of
from torch.testing import assert_close

from geolib.conformal import SCALE_LAWS
from geolib.explorables import ConformalScale
from geolib.transport import rotation_preset

call = functions_of("conformal.js")
opened, place = place_of("ConformalScale")


def random_states(count, seed=0):
    draw = random.Random(seed)
    states = []
    for i in range(count):
        law, tokens = ("bounded", "free", "slow")[i % 3], draw.randint(2, 32)
        w = draw.uniform(-0.3, 0.3) if law == "free" else draw.uniform(-1, 6)
        alpha, query = 10 ** draw.uniform(-3, 1), draw.randrange(tokens)
        states.append({"law": law, "w": w, "alpha": alpha, "tokens": tokens, "query": query})
    return states


def law_of(state):
    return SCALE_LAWS[state["law"]](**({} if state["law"] == "free" else {"alpha": state["alpha"]}))


def log_scale_and_exponents(state):
    law = law_of(state)
    return law.log_scale(float64(state["w"])), law.exponent(torch.arange(state["tokens"], dtype=torch.float64))


def test_three_laws_make_the_scale_of_w_which_is_found_again(call):  # RF-6a
    states, draw = random_states(30), random.Random(1)
    for s, found in zip(states, call("logScale", [[s] for s in states])):
        assert found == pytest.approx(float(law_of(s).log_scale(float64(s["w"]))), abs=1e-6)
    scales = [draw.uniform(0.01, 0.99) for _ in states]
    found = call("rawOf", [[s["law"], scale, s["alpha"]] for s, scale in zip(states, scales)])
    assert found == pytest.approx([float(law_of(s).raw(float64(x))) for s, x in zip(states, scales)], abs=1e-6)


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


def test_query_and_tokens_must_fit():
    assert ConformalScale(tokens=8, query=7).tokens == 8
    with pytest.raises(ValueError, match=r"^query: got 16; .*tokens - 1 = 15"):
        ConformalScale().query = 16
    with pytest.raises(ValueError, match=r"^tokens: got 10; the query stands at 10"):
        ConformalScale().tokens = 10


# In a browser --------------------------------------------------------------------------------------------------------


def arrow_lengths(place):
    """The arrows' lengths in pixels: each begins at the middle of its circle and goes straight up."""
    place.settle()
    drawn = place.page.locator("#one .ruler").get_attribute("d")
    return [float(start) - float(end) for start, end in re.findall(r"M\S+ (\S+)L\S+ (\S+)M", drawn)]


def test_equal_circles_hold_arrows_that_shrink_as_lengths_do(place):
    found = arrow_lengths(place)
    assert [length / found[0] for length in found] == pytest.approx([1.1 ** (-n / 2) for n in range(16)], abs=0.02)
    (radius,) = set(place.page.locator("#one .ball").evaluate_all("(all) => all.map((e) => e.getAttribute('r'))"))
    assert found[0] == pytest.approx(float(radius), abs=0.1)
    place.set(law="free", w=0.1)
    assert arrow_lengths(place)[-1] > 2 * found[0]


def test_the_bars_of_the_scores_shrink_by_the_factor(place):
    heights = """() => ["before", "after"].map((kind) => [...document.querySelector("#one svg ." + kind)
        .getAttribute("d").matchAll(/M\\S+ (\\S+)V([^h]+)/g)].map((bar) => bar[1] - bar[2]))"""
    place.set(view="row")
    before, after = place.page.evaluate(heights)
    scores = [3 * math.cos(2.4 * n) for n in range(16)]
    for n, (a, b, score) in enumerate(zip(before, after, scores)):
        if abs(a) > 10:
            assert a * score > 0  # up for what is positive
            assert b / a == pytest.approx(1.1 ** (-(10 + n) / 2), abs=0.02)


def test_the_querys_row_is_framed_and_a_tab_shows_one_panel_alone(place):
    parts = ["#one .ball", "#one .surface", "#one .row .after", "#one .weights .after"]
    below = set()
    for i, name in enumerate(("Lengths", "All scores", "One row", "Weights")):
        place.page.get_by_role("button", name=name).click()
        place.settle()
        assert [place.page.locator(part).first.is_visible() for part in parts] == [j == i for j in range(4)]
        below.add(place.page.locator("#one .geo-panel").bounding_box()["y"])
    assert len(below) == 1
    place.set(view="scores", query=12)
    frame, surface = (place.page.locator(f"#one {part}").bounding_box() for part in ("rect.row", ".surface"))
    middle = frame["y"] + frame["height"] / 2 - surface["y"]
    assert middle == pytest.approx(12.5 * surface["height"] / 16, abs=1)
    place.set(view="lengths")
    assert place.page.locator("#one .ball").nth(12).get_attribute("class") == "ball here"


def test_another_law_keeps_the_scale_and_takes_another_w(place):
    select = place.page.locator("#one select")
    for law, w in (("free", -math.log(1.1)), ("slow", 0)):
        select.select_option(law)
        place.settle()
        assert place.values()["w"] == pytest.approx(w, abs=1e-3)
        assert place.page.get_by_label("Constant α").is_visible() == (law == "slow")
        assert "s = 0.909" in place.text(".geo-say")
