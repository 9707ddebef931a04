"""One scale, one row: the factors and the weights are geolib's, and the picture answers the reader's hand."""

from __future__ import annotations

import math
import random
import re

import pytest
import torch
from explorable_kit import Place, node_functions, state_of
from torch.testing import assert_close

from geolib.conformal import free_law
from geolib.encodings import RiemannFormer, RiemannFormerRelative

METHODS = {"both": RiemannFormer, "apart": RiemannFormerRelative}

# In Node: the numbers ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def call(tmp_path_factory):
    """call(name, [arguments, ...]): the results of the module's function of that name."""
    return node_functions("scale.js", tmp_path_factory.mktemp("modules"))


def random_states(count, seed=0):
    draw = random.Random(seed)
    return [
        {
            "scale": draw.uniform(0.7, 1.3),
            "query": draw.randint(0, 15),
            "shift": draw.randint(0, 20),
            "sides": ("both", "apart")[i % 2],
        }
        for i in range(count)
    ]


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
            assert_close(torch.tensor(found[name], dtype=torch.float64), row, rtol=1e-6, atol=1e-6)


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
    states = random_states(40, seed=3)
    for state, n in zip(states, call("gripped", [[state] for state in states])):
        (plain,) = call("plainScores", [[]])
        assert plain[n] > 2.5
        power = (state["query"] + n) / 2 + state["shift"] if state["sides"] == "both" else (state["query"] - n) / 2
        assert abs(power) >= 0.4


def test_weights_cover_e_to_their_entropy(call):
    assert call("cover", [[[0.25] * 4], [[1, 0]]]) == pytest.approx([4, 1])


def test_the_sentence_for_screen_readers_names_the_state(call):
    (said,) = call("describe", [[{"scale": 0.9, "query": 4, "shift": 2, "sides": "both"}]])
    assert said.startswith(
        f"s = 0.90 on both sides, query at 6: scores times {0.9**4:.2f} at key 2 and {0.9**11.5:.2f} at key 17, "
    )


# In Python: the traits -----------------------------------------------------------------------------------------------


# In a browser --------------------------------------------------------------------------------------------------------


def test_those_who_hear_the_picture_are_told_the_weights_without_the_scale_first(call):
    """A scale below 1 evens out weights: they cover more tokens with it."""
    state = {"scale": 0.6, "query": 15, "shift": 0, "sides": "both"}
    (said,), ((one),) = call("describe", [[state]]), call("row", [[state]])
    covers = [math.exp(-sum(w * math.log(w) for w in one[part])) for part in ("before", "after")]
    without, with_it = re.search(r"cover ([\d.]+) tokens without the scale and ([\d.]+) with it", said).groups()
    assert float(without) < float(with_it)
    assert [float(without), float(with_it)] == pytest.approx(covers, abs=0.06)


@pytest.fixture
def place(browser):
    """A page with one explorable; what goes wrong in it fails the test."""
    place = Place(browser, "ScaleSlider", state_of("ScaleSlider"))
    yield place
    place.close()


def heights(place, kind):
    """How high the bars of the two charts stand, in pixels."""
    place.settle()
    bars = place.page.evaluate(
        """(kind) => [...document.querySelectorAll("#one svg ." + kind)].map((path) =>
        [...path.getAttribute("d").matchAll(/M\\S+ (\\S+)V([^h]+)/g)].map((bar) => bar[1] - bar[2]))""",
        kind,
    )
    return bars


def test_the_bars_shrink_by_the_factor_and_the_sentence_says_flatter(place):
    before, after = heights(place, "before")[0], heights(place, "after")[0]
    expected = [0.9 ** ((4 + n) / 2) for n in range(16)]
    large = [i for i, height in enumerate(before) if abs(height) > 15]
    assert [after[i] / before[i] for i in large] == pytest.approx([expected[i] for i in large], abs=0.03)
    assert "flatter" in " ".join(place.page.locator("#one .geo-say").all_text_contents())
    place.set(scale=1.0)
    assert "no change" in " ".join(place.page.locator("#one .geo-say").all_text_contents())


def test_the_list_puts_the_scale_apart_and_a_shift_does_nothing_then(place):
    place.page.locator("#one select").select_option("apart")
    place.settle()
    assert place.values()["sides"] == "apart"
    here = heights(place, "after")
    place.set(shift=20)
    assert heights(place, "after") == here
    assert math.isclose(sum(place.values()[name] for name in ("query", "shift")), 24)


@pytest.mark.parametrize("hand", ["drag", "swipe"])
def test_a_hand_pulls_the_dot_on_a_bar_and_the_scale_follows(place, hand):
    dot = place.page.locator("#one svg .geo-reach")
    assert dot.count() == 1  # on the scores alone
    before, top = place.values()["scale"], dot.bounding_box()["y"]
    getattr(place, hand)(dot, 0, 12)
    assert place.values()["scale"] < before
    assert dot.bounding_box()["y"] == pytest.approx(top + 12, abs=4)
    place.set(sides="apart")
    now = place.values()["scale"]
    getattr(place, hand)(dot, 0, 8)
    assert place.values()["scale"] > now  # on a key after the query the power of s is negative
