"""Plaquettes: the links and squares are geolib's connection, sites change the gauge alone, and hands move both."""

from __future__ import annotations

import math
import random

import pytest
import torch
from explorable_kit import Place, node_functions, state_of
from torch.testing import assert_close

from geolib import connection as cn
from geolib.rotations import rotation_matrix

# In Node: the numbers ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def call(tmp_path_factory):
    """call(name, [arguments, ...]): the results of the plaquettes' function of that name."""
    return node_functions("plaquettes.js", tmp_path_factory.mktemp("modules"))


def random_states(count, group, seed=0):
    draw = random.Random(seed)

    def angles(size):
        return [draw.uniform(-180, 180) for _ in range(size)]

    return [{"links": angles(12), "sites": angles(9), "group": group, "part": "link 1"} for _ in range(count)]


def about(degrees, axis):
    """The rotation by an angle about an axis of space, or of the plane."""
    angle = torch.tensor(degrees, dtype=torch.float64).deg2rad()
    if axis is None:
        return rotation_matrix(angle)
    return cn.cayley_rotation((angle / 2).tan() * torch.tensor(axis, dtype=torch.float64))


def connection_of(state):
    """The same links in the library: before and after the change of gauge."""
    plane = state["group"] == "plane"
    axes = [None] * 3 if plane else [(0.0, 1.0, 0.0), (-1.0, 0.0, 0.0), (0.0, 0.0, 1.0)]
    right = torch.stack([about(a, axes[0]) for a in state["links"][:6]]).unflatten(0, (2, 3))
    up = torch.stack([about(a, axes[1]) for a in state["links"][6:]]).unflatten(0, (3, 2))
    change = torch.stack([about(a, axes[2]) for a in state["sites"]]).unflatten(0, (3, 3))
    plain = cn.Connection((right, up))
    return plain, cn.gauge_transform(plain, change)


def size_of(turn):
    """Degrees, with a sign in the plane."""
    if len(turn) == 2:
        return math.degrees(math.atan2(turn[1, 0], turn[0, 0]))
    return math.degrees(math.acos(max(-1.0, min(1.0, (float(turn.diagonal().sum()) - 1) / 2))))


both = pytest.mark.parametrize("group", ["plane", "space"])


@both
def test_links_are_those_of_the_library_in_the_turned_gauge(call, group):  # RF-FLAT
    states = random_states(8, group)
    for state, found in zip(states, call("linkMatrices", [[s] for s in states])):
        _, changed = connection_of(state)
        expected = torch.cat([steps.flatten(0, 1) for steps in changed.steps])
        assert_close(torch.tensor(found, dtype=torch.float64), expected, rtol=0, atol=1e-6)


@both
def test_squares_and_rim_are_holonomies_whatever_the_gauge(call, group):  # RF-FLAT
    states = random_states(8, group, seed=1)
    for state, found in zip(states, call("holonomies", [[s] for s in states])):
        plain, _ = connection_of(state)
        expected = [size_of(turn) for turn in cn.plaquettes(plain).flatten(0, 1)]
        assert found["squares"] == pytest.approx(expected, abs=1e-4)
        assert found["rim"] == pytest.approx(size_of(cn.holonomy(plain, cn.rectangle((0, 0), (2, 2)))), abs=1e-4)


def test_in_the_plane_the_squares_add_up_to_the_rim_and_in_space_they_do_not(call):
    for group, same in (("plane", True), ("space", False)):
        states = random_states(5, group, seed=2)
        for found in call("holonomies", [[s] for s in states]):
            left = (sum(found["squares"]) - found["rim"]) % 360
            assert (min(left, 360 - left) < 1e-6) == same


def test_with_all_links_at_a_right_angle_space_is_a_rolling_die(call):
    state = {"links": [90.0] * 12, "sites": [0.0] * 9, "group": "space", "part": "link 1"}
    (found,) = call("holonomies", [[state]])
    assert found["squares"] == pytest.approx([120] * 4, abs=1e-6)


def test_the_sentence_for_screen_readers_names_the_state(call):
    state = {"links": [60.0] + [0.0] * 11, "sites": [0.0] * 9, "group": "plane", "part": "link 1"}
    (said,) = call("describe", [[state]])
    assert said == (
        "lower left square 60°, upper left square 0°, lower right square 0°, upper right square 0°; round the rim 60°"
    )


# In a browser --------------------------------------------------------------------------------------------------------


@pytest.fixture
def place(browser):
    """A page with one grid."""
    opened = Place(browser, "Plaquettes", state_of("Plaquettes"))
    yield opened
    opened.close()


def words(place):
    return place.page.locator("#one svg text").all_text_contents()


def test_a_dragged_link_changes_its_two_squares(place):
    place.drag(place.page.locator("#one .geo-reach").nth(1), -21, -21)  # of link 2, from the middle left site
    values = place.values()
    assert values["part"] == "link 2"
    assert values["links"][1] == pytest.approx(90, abs=3)
    assert words(place)[0] == f"\u2212{values['links'][1]}°"
    assert words(place)[1] == f"{values['links'][1]}°"
    assert words(place)[2:] == ["0°", "0°"]


def test_a_dragged_site_changes_links_and_no_square(place):
    place.set(links=[30.0] * 3 + [-70.0] * 3 + [20.0] * 6)
    before, hands = words(place), place.drawing()
    place.swipe(place.page.locator("#one .geo-reach").nth(12 + 4), -16, -16)
    assert place.values()["sites"][4] == pytest.approx(90, abs=4)
    assert place.values()["links"] == [30.0] * 3 + [-70.0] * 3 + [20.0] * 6
    assert words(place) == before
    assert place.drawing() != hands


def test_a_link_dragged_between_turned_sites_stands_under_the_hand(place):
    place.set(sites=[40.0, 0, 0, -25.0] + [0] * 5)
    reach = place.page.locator("#one .geo-reach").first  # at -25 - 40 = -65 degrees
    x, y = 21 * math.cos(math.radians(-65)), -21 * math.sin(math.radians(-65))
    place.drag(reach, -x, -21 - y)
    assert place.values()["links"][0] == pytest.approx(90 + 25 + 40, abs=3)


def test_keys_move_what_is_chosen_and_buttons_draw_links_and_gauges(place):
    place.page.get_by_label("Move").select_option("site 5")
    slider = place.page.get_by_label("Its own turn")
    slider.press("ArrowRight")
    place.page.wait_for_function("models.one.values.sites[4] === 5")
    place.page.get_by_role("button", name="Random links").click()
    place.settle()
    before = words(place)
    assert before != ["0°"] * 4
    place.page.get_by_role("button", name="Random frames").click()
    place.settle()
    assert words(place) == before
    place.page.get_by_role("button", name="All at 0").click()
    place.settle()
    assert words(place) == ["0°"] * 4
