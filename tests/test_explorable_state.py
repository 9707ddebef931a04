"""The conformal state: its point is attention's sum, stroke by stroke."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from explorable_kit import functions_of, numbers_in, place_of, states

call = functions_of("state.js")
opened, place = place_of("ConformalState", example="wander", token=8)
KINDS = {"example": ["wander", "same", "once"], "gamma": (0.3, 1), "turn": (-180, 180), "token": (0, 12)}
random_states = partial(states, **KINDS)


def tokens_of(example):
    """Keys and values by the formulas of the class's docstring, as complex numbers and numbers."""
    place = np.arange(1, 13)
    angle = 2 * np.sin(1.7 * place) if example == "wander" else 0.0 * place
    value = {"wander": 1 + np.cos(2 * place) / 2, "same": np.ones(12), "once": (place == 1).astype(float)}[example]
    return np.exp(1j * angle), value


def test_tokens_follow_their_written_formula(call):
    examples = ["wander", "same", "once"]
    for example, found in zip(examples, call("tokens", [[each] for each in examples])):
        k, v = tokens_of(example)
        assert [complex(*key) for key in found["k"]] == pytest.approx(k, abs=1e-12)
        assert found["v"] == pytest.approx(v, abs=1e-12)


def test_point_after_each_token_is_the_recurrence_of_complex_numbers(call):  # CS-1
    states = random_states(12, seed=0)
    for state, found in zip(states, call("strokes", [[state] for state in states])):
        scale, point = state["gamma"] * np.exp(-1j * math.radians(state["turn"])), 0
        for k, v, stroke in zip(*tokens_of(state["example"]), found, strict=True):
            expected = {"before": point, "shrunk": state["gamma"] * point, "turned": scale * point}
            point = scale * point + v * k
            for name, value in (expected | {"after": point}).items():
                assert complex(*stroke[name]) == pytest.approx(value, abs=1e-9)


def test_point_is_the_sum_of_the_attention_form(call):  # CS-2, CS-3
    states = [state | {"token": float(1 + n % 12)} for n, state in enumerate(random_states(24, seed=1))]
    assert max(call("gap", [[state] for state in states])) < 1e-12
    sums = call("attentionState", [[state, int(state["token"])] for state in states])
    for state, found in zip(states, sums):
        (k, v), i = tokens_of(state["example"]), int(state["token"])
        step = state["gamma"] * np.exp(-1j * math.radians(state["turn"]))
        assert complex(*found) == pytest.approx(sum(step ** (i - j) * v[j - 1] * k[j - 1] for j in range(1, i + 1)))


def test_a_moment_lies_on_the_stroke_of_its_third(call):
    state = random_states(1, seed=4)[0] | {"example": "wander"}
    (strokes,) = call("strokes", [[state]])
    before, shrunk, turned, after = (np.array(strokes[5][name]) for name in ("before", "shrunk", "turned", "after"))
    found = call("moment", [[state | {"token": 5 + sixth / 6}] for sixth in range(7)])
    expected = [before, (before + shrunk) / 2, shrunk, None, turned, (turned + after) / 2, after]
    for at, point in zip(found, expected):
        assert at == pytest.approx(point, abs=1e-9) if point is not None else True
    assert np.linalg.norm(found[3]) == pytest.approx(np.linalg.norm(shrunk))  # a turn goes round the origin


def test_the_slider_goes_stroke_by_stroke_and_the_sentence_counts_only_finished_tokens(place):
    slider = place.page.get_by_label("Token m")
    slider.focus()
    for token, said in [(8 + 1 / 3, "Token 9 shrinks"), (8 + 2 / 3, "Token 9 turns"), (9, "Token 9")]:
        place.page.keyboard.press("ArrowRight")
        place.settle()
        assert place.values()["token"] == pytest.approx(token)
        assert slider.get_attribute("aria-valuetext") == said
        assert numbers_in(place.text(".settings > .geo-note"))[0] == math.floor(token)
