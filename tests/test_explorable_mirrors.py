"""Two mirrors: the matrices are geolib's, the twice reflected figure lies on the turned one, and hands move mirrors."""

from __future__ import annotations

import math
import random
import re

import pytest
import torch
from explorable_kit import Place, node_functions, state_of
from torch.testing import assert_close

from geolib.rotations import reflect_pairs, reflection_matrix, rotate_pairs, rotation_matrix

# In Node: the numbers ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def call(tmp_path_factory):
    """call(name, [arguments, ...]): the results of the mirrors' function of that name."""
    return node_functions("mirrors.js", tmp_path_factory.mktemp("modules"))


def random_states(count, seed=0):
    draw = random.Random(seed)
    return [
        {name: draw.uniform(0, 180) for name in ("m", "n", "shift")}
        | {"distance": draw.uniform(0.2, 0.8), "angle": draw.uniform(-180, 180)}
        for _ in range(count)
    ]


def float64(values):
    return torch.tensor(values, dtype=torch.float64)


def test_a_reflection_is_that_of_the_library(call):  # RF-15
    angles = [-7.0, -1.0, 0.0, 0.3, 2.5, 40.0]
    found = float64(call("reflection", [[a] for a in angles]))
    assert_close(found, reflection_matrix(float64(angles)), rtol=0, atol=1e-6)


def test_two_reflections_are_one_rotation_by_the_doubled_angle_between_the_mirrors(call):  # RF-15, RF-REFL
    states = random_states(30)
    turn = float64([-2 * (s["n"] - s["m"]) for s in states]).deg2rad()
    found = float64(call("twoReflections", [[s] for s in states]))
    assert_close(found, rotation_matrix(turn), rtol=0, atol=1e-6)


def test_the_four_figures_are_the_reflected_and_the_turned_vectors(call):  # RF-15
    states = random_states(20, seed=1)
    for s, found in zip(states, call("images", [[s] for s in states])):
        start = float64(found["start"])
        dot = s["distance"] * float64([math.cos(math.radians(s["angle"])), math.sin(math.radians(s["angle"]))])
        assert_close(start[0], dot, rtol=0, atol=1e-6)
        m, n = (float64([math.radians(s[name] + s["shift"])]) for name in "mn")
        once = reflect_pairs(start, n)
        for name, expected in {
            "once": once,
            "twice": reflect_pairs(once, m),
            "turned": rotate_pairs(start, -2 * (n - m)),
        }.items():
            assert_close(float64(found[name]), expected, rtol=0, atol=1e-6)


def test_the_figure_has_no_mirror_symmetry(call):
    """No rotation brings its mirror image onto it: else one reflection could not be told from a rotation."""
    (found,) = call("images", [[random_states(1)[0]]])
    start, once = (float64(found[name]) - float64(found[name]).mean(0) for name in ("start", "once"))
    turns = torch.linspace(0, 2 * math.pi, 361, dtype=torch.float64)[:, None]
    turned = rotate_pairs(once, turns[:, None])
    nearest = torch.cdist(turned, start.expand(361, -1, -1)).amin(-1).amax(-1)
    assert float(nearest.min()) > 0.03


def test_the_angle_of_a_line_is_less_than_half_a_turn(call):
    assert call("lineAngle", [[-10], [0], [179], [180], [365]]) == [170, 0, 179, 0, 5]


def test_the_sentence_for_screen_readers_names_the_state(call):
    state = {"mirrors": 2, "m": 80, "n": 20, "shift": 5, "distance": 0.65, "angle": -15}
    said, alone = call("describe", [[state], [state | {"mirrors": 1}]])
    assert alone == "one mirror at 25°; the figure, 0.65 from the centre at −15°, and its mirror image"
    assert said == (
        "first mirror at 25°, second mirror at 85°; the figure, 0.65 from the centre at −15°, is reflected twice: it "
        "is turned by 120°"
    )


# In a browser --------------------------------------------------------------------------------------------------------


@pytest.fixture
def place(browser):
    """A page with one pair of mirrors."""
    opened = Place(browser, "TwoMirrors", state_of("TwoMirrors", mirrors=2))
    yield opened
    opened.close()


HANDLES = {"n": 0, "n, other end": 1, "m": 2, "m, other end": 3, "figure": 4}


def take(place, hand, which, distance, degrees):
    """Take a handle to a place of the plane, given in parts of its present distance from the centre."""
    picture = place.page.locator("#one svg").bounding_box()
    reach = place.page.locator("#one .geo-reach").nth(HANDLES[which])
    box = reach.bounding_box()
    x = box["x"] + box["width"] / 2 - picture["x"] - picture["width"] / 2
    y = picture["y"] + picture["height"] / 2 - box["y"] - box["height"] / 2
    to = distance * math.hypot(x, y)
    across, up = to * math.cos(math.radians(degrees)), to * math.sin(math.radians(degrees))
    getattr(place, hand)(reach, across - x, -(up - y))


@pytest.mark.parametrize("hand", ["drag", "swipe"])
def test_a_dragged_mirror_follows_the_hand_at_either_end(place, hand):
    for which, degrees, expected in [("n", 45, 45), ("m", 110, 110), ("m, other end", -40, 140), ("n", -15, 165)]:
        take(place, hand, which, 1, degrees)
        assert place.values()[which[0]] == pytest.approx(expected, abs=1)


@pytest.mark.parametrize("hand", ["drag", "swipe"])
def test_the_dragged_figure_follows_the_hand(place, hand):
    take(place, hand, "figure", 0.6, 40)
    values = place.values()
    assert [values["distance"], values["angle"]] == pytest.approx([0.39, 40], abs=1)
    assert values["distance"] == pytest.approx(0.39, abs=0.02)
    assert (values["m"], values["n"]) == (80, 20)


def test_a_mirror_dragged_while_both_are_turned_stands_under_the_hand(place):
    place.set(shift=30.0)
    take(place, "drag", "n", 1, 75)
    assert place.values()["n"] == pytest.approx(45, abs=1)


def points_of(place, name):
    drawn = place.page.locator(f"#one path.{name}").get_attribute("d")
    return float64([float(number) for number in re.findall(r"-?[0-9.]+", drawn)]).view(-1, 2)


def test_turning_both_mirrors_moves_the_once_reflected_figure_and_not_the_result(place):
    once, twice = points_of(place, "once"), points_of(place, "twice")
    slider = place.page.get_by_label("Turn both by t")
    slider.press("End")
    slider.press("ArrowLeft")
    place.page.wait_for_function("models.one.values.shift === 179")
    place.set(shift=50.0)
    assert_close(points_of(place, "twice"), twice, rtol=0, atol=0.11)
    assert not torch.allclose(points_of(place, "once"), once, atol=20)
    sentence = place.page.locator("#one .geo-say")
    assert sentence.text_content() == "Reflected at 70°, then at 130°: turned by ?"
    place.set(n=30)
    place.set(n=20)
    said = sentence.text_content().replace("\u00a0", " ")
    assert said == "Reflected at 70°, then at 130°: turned by −2Δ = −2 (70° − 130°) = 120°"


def test_each_question_is_answered_after_a_mirror_was_turned(place):
    right = place.page.locator("#one button.right")
    place.page.get_by_role("button", name="10°").click()
    place.settle()
    assert right.count() == 0
    assert "120" not in place.page.locator("#one svg").get_attribute("aria-label")
    place.set(m=90)
    assert right.text_content() == "20°"
    place.set(mirrors=1)
    assert place.page.locator("#one .geo-wager:visible").count() == 1
    assert "ends" in place.page.locator("#one .geo-say").text_content()
    place.set(n=40)
    assert place.page.locator("#one button.right:visible").text_content() == "Never"
    assert "No angle" in place.page.locator("#one .geo-say").text_content()


def test_one_mirror_shows_neither_the_second_nor_the_turned_figure(place):
    place.set(mirrors=1)
    shown = "[...document.querySelectorAll('#one .second')].filter((e) => e.getClientRects().length).length"
    assert place.page.evaluate(shown) == 0
    place.page.get_by_role("button", name="Two mirrors").click()
    place.settle()
    assert place.values()["mirrors"] == 2
    assert place.page.evaluate(shown) > 5
