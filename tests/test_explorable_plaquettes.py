"""Plaquettes: the links and squares are geolib's connection, and sites change the gauge alone."""

from __future__ import annotations

import math
import random

import pytest
import torch
from explorable_kit import float64, functions_of, place_of
from torch.testing import assert_close

from geolib import connection as cn
from geolib.rotations import rotation_matrix

call = functions_of("plaquettes.js")
opened, place = place_of("Plaquettes")
both = pytest.mark.parametrize("group", ["plane", "space"])


def random_states(count, group, seed=0):
    draw = random.Random(seed)
    angles = lambda size: [draw.uniform(-180, 180) for _ in range(size)]  # noqa: E731
    return [{"links": angles(12), "sites": angles(9), "group": group, "part": "link 1"} for _ in range(count)]


def about(degrees, axis):
    """The rotation by an angle about an axis of space, or of the plane."""
    angle = float64(degrees).deg2rad()
    return rotation_matrix(angle) if axis is None else cn.cayley_rotation((angle / 2).tan() * float64(axis))


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


@both
def test_links_are_those_of_the_library_in_the_turned_gauge(call, group):  # RF-FLAT
    states = random_states(8, group)
    for state, found in zip(states, call("linkMatrices", [[s] for s in states])):
        expected = torch.cat([steps.flatten(0, 1) for steps in connection_of(state)[1].steps])
        assert_close(float64(found), expected, rtol=0, atol=1e-6)


@both
def test_squares_and_rim_are_holonomies_whatever_the_gauge(call, group):  # RF-FLAT
    states = random_states(8, group, seed=1)
    for state, found in zip(states, call("holonomies", [[s] for s in states])):
        plain, _ = connection_of(state)
        expected = [size_of(turn) for turn in cn.plaquettes(plain).flatten(0, 1)]
        assert found["squares"] == pytest.approx(expected, abs=1e-4)
        assert found["rim"] == pytest.approx(size_of(cn.holonomy(plain, cn.rectangle((0, 0), (2, 2)))), abs=1e-4)
        left = (sum(found["squares"]) - found["rim"]) % 360
        assert (min(left, 360 - left) < 1e-6) == (group == "plane")  # a sum of squares in the plane alone


# In a browser --------------------------------------------------------------------------------------------------------


def words(place):
    place.settle()
    return place.page.locator("#one svg text").all_text_contents()


def test_a_dragged_link_changes_its_two_squares(place):
    place.drag(place.page.locator("#one .geo-reach").nth(1), -21, -21)  # of link 2, from the middle left site
    values = place.values()
    assert values["part"] == "link 2"
    assert values["links"][1] == pytest.approx(90, abs=3)
    assert words(place) == [f"\u2212{values['links'][1]}°", f"{values['links'][1]}°", "0°", "0°"]


def test_a_dragged_site_changes_links_and_no_square(place):
    links = [30.0] * 3 + [-70.0] * 3 + [20.0] * 6
    place.set(links=links)
    before, hands = words(place), place.drawing()
    place.drag(place.page.locator("#one .geo-reach").nth(12 + 4), -16, -16)
    assert place.values()["sites"][4] == pytest.approx(90, abs=4)
    assert place.values()["links"] == links
    assert words(place) == before
    assert place.drawing() != hands


def test_a_link_dragged_between_turned_sites_stands_under_the_hand(place):
    place.set(sites=[40.0, 0, 0, -25.0] + [0] * 5)  # its hand stands at -25 - 40 = -65 degrees
    x, y = 21 * math.cos(math.radians(-65)), -21 * math.sin(math.radians(-65))
    place.drag(place.page.locator("#one .geo-reach").first, -x, -21 - y)
    assert place.values()["links"][0] == pytest.approx(90 + 25 + 40, abs=3)


def test_half_a_turn_has_no_sign_whatever_the_gauge(call):  # rounded, it comes out as -180 or as 180 degrees
    turns = [[90.0] + [0.0] * 5 + [-90.0] + [0.0] * 5, [-90.0] + [0.0] * 5 + [90.0] + [0.0] * 5]
    states = [state | {"links": turn} for state in random_states(40, "plane") for turn in turns]
    for found in call("holonomies", [[state] for state in states]):
        assert found["squares"][0] == pytest.approx(180)
