"""One scale, one row: the factors and the weights are geolib's, and the bars show them."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from explorable_kit import float64, functions_of, place_of, states
from torch.testing import assert_close

from geolib.conformal import free_law
from geolib.encodings import RiemannFormer, RiemannFormerRelative

METHODS = {"both": RiemannFormer, "apart": RiemannFormerRelative}
call = functions_of("scale.js")
opened, place = place_of("ScaleSlider")
KINDS = {"scale": (0.7, 1.3), "query": range(16), "shift": range(21), "sides": ["both", "apart"]}
random_states = partial(states, **KINDS)


def scores_of(state):
    """The row of a query (1, 0) and keys (3 cos 2.4 n, 0) that the library's encoding makes."""
    encoding = METHODS[state["sides"]](torch.full((1, 1), 1e-12), 1, state["scale"], free_law()).double()
    positions = torch.arange(16.0, dtype=torch.float64)
    q, k = torch.zeros(2, 1, 1, 16, 2, dtype=torch.float64)
    q[..., 0], k[..., 0] = 1, 3 * torch.cos(2.4 * positions)
    a, b = encoding.place((positions + state["shift"])[:, None]).to_reference(q, k)
    return k[0, 0, :, 0], (a @ b.mT)[0, 0, state["query"]].detach()


def test_the_row_is_the_librarys(call):  # RF-9, RF-13
    states = random_states(30)
    for state, found in zip(states, call("row", [[state] for state in states])):
        plain, scaled = scores_of(state)
        expected = {"scores": plain, "scaled": scaled, "before": plain.softmax(0), "after": scaled.softmax(0)}
        for name, row in expected.items():
            assert_close(float64(found[name]), row, rtol=1e-6, atol=1e-6)


def test_a_shift_changes_the_factors_on_both_sides_and_not_apart(call):  # RF-13
    states = random_states(20, seed=1)
    moved = [{**state, "shift": state["shift"] + 3} for state in states]
    for state, here, there in zip(states, *(call("factors", [[s] for s in group]) for group in (states, moved))):
        ratio = state["scale"] ** 3 if state["sides"] == "both" else 1
        assert [b / a for a, b in zip(here, there)] == pytest.approx([ratio] * 16, rel=1e-9)


def test_a_pulled_bar_asks_for_the_scale_that_gives_its_score(call):  # RF-13
    states = random_states(20, seed=2)
    rows = call("row", [[state] for state in states])
    calls = [[state, n, row["scaled"][n]] for state, row in zip(states, rows) for n in (3, 11)]
    for (state, n, _), found in zip(calls, call("scaleFor", calls)):
        (plain,) = call("factors", [[{**state, "scale": 2}]])
        if abs(math.log2(plain[n])) >= 0.4:
            assert found == pytest.approx(state["scale"], abs=0.0051)
    state = {"scale": 0.9, "query": 4, "shift": 0, "sides": "both"}
    assert call("scaleFor", [[state, 0, -1], [state, 0, 1e9], [state | {"sides": "apart"}, 4, 1]]) == [0.9, 1.3, 0.9]


def test_the_dot_stands_on_a_high_bar_that_every_scale_moves(call):
    states, plain = random_states(40, seed=3), [3 * math.cos(2.4 * n) for n in range(16)]
    for state, n in zip(states, call("gripped", [[state] for state in states])):
        assert plain[n] > 2.5
        power = (state["query"] + n) / 2 + state["shift"] if state["sides"] == "both" else (state["query"] - n) / 2
        assert abs(power) >= 0.4


# In a browser --------------------------------------------------------------------------------------------------------


def heights(place, kind):
    """How high the bars of the two charts stand, in pixels."""
    place.settle()
    return place.page.evaluate(
        """(kind) => [...document.querySelectorAll("#one svg ." + kind)].map((path) =>
        [...path.getAttribute("d").matchAll(/M[\\d.]+ ([\\d.]+)V([\\d.]+)h/g)].map((bar) => bar[1] - bar[2]))""",
        kind,
    )


def test_the_bars_shrink_by_the_factor_and_the_sentence_says_flatter(place):
    before, after = heights(place, "before")[0], heights(place, "after")[0]
    assert len(before) == len(after) == 16
    for n, (a, b) in enumerate(zip(before, after)):
        if abs(a) > 15:
            assert a * math.cos(2.4 * n) > 0
            assert b / a == pytest.approx(0.9 ** ((4 + n) / 2), abs=0.01)
    said = lambda: " ".join(place.page.locator("#one .geo-say").all_text_contents())  # noqa: E731
    assert "flatter" in said()
    place.set(scale=1.0)
    assert "no change" in said()


def test_an_axis_does_not_change_while_a_hand_holds_something(place):
    ticks = lambda: place.page.locator("#one svg text").all_text_contents()  # noqa: E731
    before, box = ticks(), place.page.get_by_label("Scale s").bounding_box()
    place.page.mouse.move(box["x"] + box["width"] / 3, box["y"] + box["height"] / 2)
    place.page.mouse.down()
    place.page.mouse.move(box["x"] + box["width"] - 9, box["y"] + box["height"] / 2, steps=3)
    place.settle()
    assert place.values()["scale"] > 1.2
    assert ticks() == before
    assert max(heights(place, "after")[0]) == pytest.approx(64, abs=0.2)  # cut off at the frame
    place.page.mouse.up()
    place.settle()
    assert "50" in ticks()


def test_a_pulled_dot_takes_the_scale_along(place):
    dot, scale = place.page.locator("#one svg .geo-reach"), place.values()["scale"]
    place.drag(dot, 0, 12)
    assert place.values()["scale"] < scale
    place.set(sides="apart")
    scale = place.values()["scale"]
    place.drag(dot, 0, 8)
    assert place.values()["scale"] > scale  # on a key after the query the power of s is negative
