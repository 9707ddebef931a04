"""A skew matrix and its exponential: a square that is open by what Baker and others foretell, and words of the axis.

The box itself, its turns and its axis are read from the picture in ``test_drawings.py``.
"""

from __future__ import annotations

import math
import random
import re

import numpy as np
import pytest
from explorable_kit import float64, functions_of, numbers_in, place_of
from torch.testing import assert_close

from geolib.lie import commutator, exp_skew, log_rotation, skew_matrix, upper_entries

call = functions_of("skew.js")
opened, place = place_of("SkewExponential", t=1)


def random_entries(count, seed=0, most=3.0):
    draw = random.Random(seed)
    return [[draw.uniform(-most, most) for _ in range(3)] for _ in range(count)]


def matrices(entries):
    return skew_matrix(float64(entries), 3)


def size(A):
    """The angle of exp(A), for small A: the length of its axis vector."""
    return upper_entries(A).norm(dim=-1)


def square(A, B, e):
    """exp(-eB) exp(-eA) exp(eB) exp(eA), by the library."""
    return exp_skew(-e * B) @ exp_skew(-e * A) @ exp_skew(e * B) @ exp_skew(e * A)


def test_what_the_square_leaves_is_its_logarithm_and_what_is_foretold_the_bracket(call):  # LR-1
    first, second = random_entries(20, seed=7, most=1), random_entries(20, seed=8, most=1)
    A, B = matrices(first), matrices(second)
    for e in (1.0, 0.3, 0.02):
        found = call("squareTurn", [[a, b, e] for a, b in zip(first, second)])
        left, foretold, ratio = (float64([each[name] for each in found]) for name in ("left", "foretold", "ratio"))
        assert_close(left, size(log_rotation(square(A, B, e))), rtol=0, atol=1e-6)
        assert_close(foretold, e**2 * size(commutator(A, B)), rtol=0, atol=1e-6)
        assert_close(ratio, left / foretold)


def test_both_orders_are_the_products_of_the_two_exponentials(call):  # LR-1
    first, second = random_entries(10, seed=6), random_entries(10, seed=7)
    found = float64(call("ordersAt", [[a, b, 1] for a, b in zip(first, second)]))
    A, B = exp_skew(matrices(first)), exp_skew(matrices(second))
    assert_close(found[:, 0], B @ A, rtol=0, atol=1e-6)
    assert_close(found[:, 1], A @ B, rtol=0, atol=1e-6)
    apart = float64(call("ordersApart", list(zip(first, second))))
    cosine = (((B @ A).mT @ (A @ B)).diagonal(dim1=-2, dim2=-1).sum(-1) - 1) / 2
    assert_close(apart.cos(), cosine, rtol=0, atol=1e-6)


def test_a_line_leaves_the_box_by_the_face_it_reaches_first(call):
    half = np.array([0.72, 0.45, 0.26])
    directions = np.random.default_rng(3).standard_normal((20, 3))
    for direction, at in zip(directions, call("leaves", [[each] for each in directions.tolist()])):
        point = at["out"] * direction  # on that face, and inside the others
        assert abs(point[at["face"]]) == pytest.approx(half[at["face"]])
        assert (np.abs(point) <= half + 1e-12).all()


# In a browser --------------------------------------------------------------------------------------------------------


def test_the_words_multiply_time_and_angle_and_name_no_axis_where_nothing_turns(place):
    place.set(first=[-0.6, 0.8, 0.0], t=0.25)
    assert numbers_in(place.text(".geo-say")) == [14.3, 57.3, 0, 0.8, 0.6]
    entries = numbers_in(place.page.locator("#one .matrix").get_attribute("aria-label"))
    assert entries == [0, -0.6, 0.8, 0.6, 0, 0, -0.8, 0, 0]
    place.set(first=[0.0, 0.0, 0.0], t=1)
    assert "no turn has no axis" in place.text(".geo-say")


def gap_of(place):
    """How wide the square is open in the picture, in pixels; nothing before it has been gone round."""
    place.settle()
    ends = re.findall(r"-?[0-9.]+", place.page.locator("#one .gap").get_attribute("d"))
    return math.dist(map(float, ends[:2]), map(float, ends[2:])) if ends else None


def test_the_square_has_its_own_slider_and_is_open_when_it_has_been_gone_round(place):
    place.set(motion="square", t=0.9, e=0.5)
    assert place.page.get_by_label("a₁₂").count() == 0
    assert gap_of(place) is None
    place.set(t=1.0)
    wide = gap_of(place)
    place.set(e=0.25)
    assert gap_of(place) / wide == pytest.approx(0.25, abs=0.06)  # half the step
    place.page.get_by_label("Step ε").press("Home")
    assert place.values()["e"] == 0.02
    place.set(second=place.values()["first"])
    assert "A and B commute" in place.text(".geo-say")


def test_two_boxes_stand_side_by_side_for_the_two_orders_alone(place):
    for motion, boxes in (("orders", 2), ("A", 1)):
        place.set(motion=motion)
        assert place.page.locator("#one .scene").count() == boxes
    place.set(motion="orders")
    assert numbers_in(place.text(".geo-say"))[0] > 20
    place.set(second=place.values()["first"])
    assert numbers_in(place.text(".geo-say"))[0] == 0
