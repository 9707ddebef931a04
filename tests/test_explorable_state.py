"""The conformal state: its point is attention's sum, and a hand turns the map."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from explorable_kit import Place, node_functions, state_of

# In Node: the numbers ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def call(tmp_path_factory):
    """call(name, [arguments, ...]): the results of the explorable's function of that name."""
    return node_functions("state.js", tmp_path_factory.mktemp("modules"))


def tokens_of(example):
    """Keys and values by the formulas of the class's docstring."""
    place = np.arange(1, 13)
    angle = 2 * np.sin(1.7 * place) if example == "wander" else 0.0 * place
    value = {"wander": 1 + np.cos(2 * place) / 2, "same": np.ones(12), "once": (place == 1).astype(float)}[example]
    circle = lambda a: np.stack([np.cos(a), np.sin(a)], -1)  # noqa: E731
    return circle(angle), value


def random_states(count, seed):
    draw = random.Random(seed)
    return [
        {
            "example": draw.choice(["wander", "same", "once"]),
            "gamma": draw.uniform(0.3, 1),
            "turn": draw.uniform(-180, 180),
            "token": draw.uniform(0, 12),
        }
        for _ in range(count)
    ]


def test_tokens_follow_their_written_formula(call):
    examples = ["wander", "same", "once"]
    for example, found in zip(examples, call("tokens", [[each] for each in examples])):
        for name, expected in zip("kv", tokens_of(example)):
            assert np.array(found[name]) == pytest.approx(expected, abs=1e-12)


def test_point_after_each_token_is_the_recurrence_of_complex_numbers(call):  # CS-1
    states = random_states(12, seed=0)
    for state, found in zip(states, call("strokes", [[state] for state in states])):
        k, v = tokens_of(state["example"])
        scale, point = state["gamma"] * np.exp(-1j * math.radians(state["turn"])), 0
        for j, stroke in enumerate(found):
            assert complex(*stroke["before"]) == pytest.approx(point, abs=1e-9)
            assert complex(*stroke["shrunk"]) == pytest.approx(state["gamma"] * point, abs=1e-9)
            assert complex(*stroke["turned"]) == pytest.approx(scale * point, abs=1e-9)
            point = scale * point + v[j] * complex(*k[j])
            assert complex(*stroke["after"]) == pytest.approx(point, abs=1e-9)


def test_point_is_the_sum_of_the_attention_form(call):  # CS-2, CS-3
    states = [state | {"token": float(1 + n % 12)} for n, state in enumerate(random_states(24, seed=1))]
    assert max(call("gap", [[state] for state in states])) < 1e-12
    sums = call("attentionState", [[state, int(state["token"])] for state in states])
    for state, found in zip(states, sums):
        k, v = tokens_of(state["example"])
        i, angle = int(state["token"]), -math.radians(state["turn"])
        terms = [
            state["gamma"] ** (i - j) * np.exp(1j * (i - j) * angle) * v[j - 1] * complex(*k[j - 1])
            for j in range(1, i + 1)
        ]
        assert complex(*found) == pytest.approx(sum(terms), abs=1e-9)


def test_a_moment_lies_on_the_stroke_of_its_third(call):
    state = random_states(1, seed=4)[0] | {"example": "wander"}
    (strokes,) = call("strokes", [[state]])
    names = ["before", "shrunk", "turned", "after"]
    thirds = call("moment", [[state | {"token": 5 + part / 3}] for part in range(4)])
    for name, found in zip(names, thirds):
        assert found == pytest.approx(strokes[5][name], abs=1e-9)
    shrinking, turning, pushing = call("moment", [[state | {"token": 5 + part / 6}] for part in (1, 3, 5)])
    before, shrunk, turned, after = (np.array(strokes[5][name]) for name in names)
    assert shrinking == pytest.approx((before + shrunk) / 2)
    assert np.linalg.norm(turning) == pytest.approx(np.linalg.norm(shrunk))
    assert pushing == pytest.approx((turned + after) / 2)


# In Python: the traits -----------------------------------------------------------------------------------------------


# In a browser --------------------------------------------------------------------------------------------------------


@pytest.fixture
def place(browser):
    """A page with the explorable; what goes wrong in it fails the test."""
    place = Place(browser, "ConformalState", state_of("ConformalState", example="wander", token=8))
    yield place
    place.close()


@pytest.mark.parametrize("way", ["drag", "swipe"])
def test_the_knob_in_the_disk_sets_the_gate_and_the_turn(place, way):
    knob = place.page.locator("#one .geo-reach")
    # From 0.85 at 30 degrees to 0.5 at 90 degrees, straight down in the disk; its radius is 56 pixels.
    start = 56 * 0.85 * np.array([math.cos(math.pi / 6), math.sin(math.pi / 6)])
    getattr(place, way)(knob, *(np.array([0, 28]) - start))
    place.page.wait_for_function("models.one.values.turn > 85", timeout=3000)
    assert place.values()["gamma"] == pytest.approx(0.5, abs=0.02)
    assert place.values()["turn"] == pytest.approx(90, abs=2)


def test_the_slider_goes_stroke_by_stroke_and_the_sentence_counts_only_finished_tokens(place):
    note, slider = place.page.locator("#one .settings > .geo-note"), place.page.get_by_label("Token m")
    assert note.text_content().startswith("After token 8 the point and attention’s sum over all keys differ by less")
    slider.focus()
    for token, said in [(8 + 1 / 3, "Token 9 shrinks"), (8 + 2 / 3, "Token 9 turns"), (9, "Token 9")]:
        place.page.keyboard.press("ArrowRight")
        place.settle()
        assert place.values()["token"] == pytest.approx(token)
        assert slider.get_attribute("aria-valuetext") == said
        assert f"After token {math.floor(token)} " in note.text_content()
    place.page.keyboard.press("Home")
    place.settle()
    assert note.text_content().startswith("The disk: ")


def test_one_push_without_a_turn_shrinks_along_a_line(place):
    place.set(example="once", turn=0, gamma=0.5, token=4)
    assert "S\u00a0=\u00a0(0.125,\u00a00.000)" in place.page.locator("#one .geo-say").first.text_content()  # 0.5^3
