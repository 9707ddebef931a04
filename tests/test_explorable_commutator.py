"""Two turns in two orders: geolib's rotations, and a gap that half the bracket foretells."""

from __future__ import annotations

import math
import re

import pytest
import torch
from explorable_kit import Place, node_functions, state_of
from torch.testing import assert_close

from geolib.lie import bch, commutator, exp_skew, log_rotation, skew_matrix, upper_entries


@pytest.fixture(scope="module")
def call(tmp_path_factory):
    """call(name, [arguments, ...]): the results of the explorable's function of that name."""
    return node_functions("commutator.js", tmp_path_factory.mktemp("modules"))


def float64(values):
    return torch.tensor(values, dtype=torch.float64)


def by_hand(size, between):
    """The two generators from the library: A v = axis x v."""
    lean, angle = math.radians(between), math.radians(size)
    axes = float64([[0, 0, 1], [math.sin(lean), 0, math.cos(lean)]]) * angle
    return [skew_matrix(torch.stack([-z, y, -x]), 3) for x, y, z in axes]


def size_of(A):
    """The angle of exp(A), for angles below pi: the length of its axis vector."""
    return float(upper_entries(A).norm())


STATES = [(90, 90), (60, 35), (10, 80), (100, 20), (50, 0)]


def test_the_generators_and_the_turned_dice_are_the_librarys(call):  # LR-A1
    states = [{"size": s, "between": b, "t": t} for s, b in STATES for t in (0, 0.25, 0.5, 0.8, 1)]
    for state, found, dice in zip(
        states, call("generators", [[s] for s in states]), call("turned", [[s] for s in states])
    ):
        first, second = by_hand(state["size"], state["between"])
        assert_close(float64(found), torch.stack([first, second]), rtol=0, atol=1e-6)
        one, two = min(1, 2 * state["t"]), max(0, 2 * state["t"] - 1)
        orders = [exp_skew(two * b) @ exp_skew(one * a) for a, b in ((first, second), (second, first))]
        assert_close(float64(dice), torch.stack(orders), rtol=0, atol=1e-6)


def test_the_gaps_are_logarithms_and_what_is_foretold_is_half_the_bracket(call):  # LR-1
    for (size, between), found in zip(STATES, call("gaps", [[{"size": s, "between": b}] for s, b in STATES])):
        first, second = by_hand(size, between)
        one, other, both = (
            exp_skew(second) @ exp_skew(first),
            exp_skew(first) @ exp_skew(second),
            exp_skew(first + second),
        )
        assert found["orders"] == pytest.approx(size_of(log_rotation(one.mT @ other)), abs=1e-6)
        assert found["missed"] == pytest.approx(size_of(log_rotation(both.mT @ one)), abs=1e-6)
        # The other order misses as much.
        assert found["missed"] == pytest.approx(size_of(log_rotation(both.mT @ other)), abs=1e-6)
        assert found["foretold"] == pytest.approx(size_of(commutator(first, second)) / 2, abs=1e-6)


def test_the_miss_tends_to_half_the_bracket_and_the_orders_to_all_of_it(call):  # LR-1
    off = []
    for size in (8, 4, 2):
        (found,) = call("gaps", [[{"size": size, "between": 70}]])
        off.append((abs(found["missed"] / found["foretold"] - 1), abs(found["orders"] / found["foretold"] / 2 - 1)))
        first, second = by_hand(size, 70)
        third = bch(second, first) - first - second
        assert found["missed"] == pytest.approx(size_of(third), rel=2e-3)
    assert all(after < before / 3 for before, after in zip(off[0], off[1]))
    assert max(off[2]) < 1e-3


def test_the_sentence_for_screen_readers_names_the_state(call):
    (said,) = call("describe", [[{"size": 90, "between": 90, "t": 1}]])
    assert said == (
        "Two turns of 90° about axes 90° apart, 100 % made. In two orders they end 120.0° apart; each misses "
        "exp(X1 + X2) by 62.4°, half the bracket foretells 70.7°"
    )


# In a browser --------------------------------------------------------------------------------------------------------


@pytest.fixture
def place(browser):
    """A page with the two dice."""
    opened = Place(browser, "TwoOrders", state_of("TwoOrders", t=1))
    yield opened
    opened.close()


def number(text):
    return float(re.search(r"-?[0-9.]+", text.replace("−", "-")).group())


def test_moving_the_size_shows_both_turns_made_and_small_turns_miss_what_is_foretold(place):
    place.set(t=0.2)
    place.page.get_by_label("Size of both turns").press("Home")
    place.page.get_by_label("Size of both turns").press("PageUp")
    place.settle()
    assert place.values()["t"] == 1
    missed, foretold = (number(b.text_content()) for b in place.page.locator("#one .geo-say b").all()[1:])
    assert 0 < missed == pytest.approx(foretold, rel=0.02)


def test_both_dice_rest_at_the_start_and_differ_at_the_end(place):
    faces = place.page.locator("#one .dice svg")
    shapes = lambda: [die.locator(".face").evaluate_all("(a) => a.map((e) => e.getAttribute('d'))") for die in faces.all()]  # fmt: skip # noqa: E501,E731
    place.set(t=0)
    assert shapes()[0] == shapes()[1]
    place.set(t=1)
    assert shapes()[0] != shapes()[1]
    place.set(between=0)
    assert shapes()[0] == shapes()[1]


@pytest.mark.parametrize("hand", ["drag", "swipe"])
def test_dragging_the_dice_turns_both_as_one_holds_them(place, hand):
    faces = "() => [...document.querySelectorAll('#one .dice svg')].map((die) => die.innerHTML)"
    before = place.page.evaluate(faces)
    getattr(place, hand)(place.page.locator("#one .dice"), 40, 20)
    values = place.values()
    assert [values[name] for name in ("turn", "tilt", "t")] == [15, 34, 1]
    assert all(now != then for now, then in zip(place.page.evaluate(faces), before, strict=True))


def test_faces_are_darker_the_more_they_turn_from_the_lamp(place):
    shades = [
        float(re.search(r"--dim: (\d+)%", style)[1])
        for style in place.page.locator("#one .dice svg")
        .first.locator(".face")
        .evaluate_all("(all) => all.map((face) => face.getAttribute('style'))")
    ]
    assert len(shades) == 3
    assert max(shades) - min(shades) > 8


def test_at_rest_the_dice_are_alike_and_nothing_is_told_until_both_turns_are_made(browser):
    place = Place(browser, "TwoOrders", state_of("TwoOrders"))
    sentence, spoken = place.page.locator("#one .geo-say"), "#one svg"
    assert [b.text_content() for b in sentence.locator("b").all()][:2] == ["?", "?"]
    assert "apart, 0 % made" in place.page.locator(spoken).first.get_attribute("aria-label")
    assert "120" not in place.page.locator("#one .dice").text_content()
    assert place.page.locator("#one .ghost").first.get_attribute("d") == ""
    place.page.get_by_role("button", name="The same").click()
    place.page.wait_for_function("models.one.values.t === 1")
    place.settle()
    assert "120.0° apart" in sentence.text_content()
    assert place.page.locator("#one button.right").text_content() == "Others"
    place.set(between=0)
    assert place.page.locator("#one button.right").text_content() == "The same"
    place.close()
