"""Two turns in two orders: a gap that half the bracket foretells; ``test_drawings.py`` reads the dice."""

from __future__ import annotations

import math
import re

import pytest
import torch
from explorable_kit import float64, functions_of, place_of

from geolib.lie import commutator, exp_skew, log_rotation, skew_matrix, upper_entries

call = functions_of("commutator.js", "\nexport { facesSeen, gaze };")
opened, place = place_of("TwoOrders", t=1)
STATES = [(90, 90), (60, 35), (10, 80), (100, 20), (50, 0)]


def by_hand(size, between):
    """The two generators from the library: A v = axis x v."""
    lean, angle = math.radians(between), math.radians(size)
    axes = float64([[0, 0, 1], [math.sin(lean), 0, math.cos(lean)]]) * angle
    return [skew_matrix(torch.stack([-z, y, -x]), 3) for x, y, z in axes]


def size_of(A):
    """The angle of exp(A), for angles below pi: the length of its axis vector."""
    return float(upper_entries(A).norm())


def test_the_gaps_are_logarithms_and_what_is_foretold_is_half_the_bracket(call):  # LR-1
    for (size, between), found in zip(STATES, call("gaps", [[{"size": s, "between": b}] for s, b in STATES])):
        first, second = by_hand(size, between)
        orders = exp_skew(second) @ exp_skew(first), exp_skew(first) @ exp_skew(second)
        assert found["orders"] == pytest.approx(size_of(log_rotation(orders[0].mT @ orders[1])), abs=1e-6)
        for order in orders:  # one misses as much as the other
            missed = size_of(log_rotation(exp_skew(first + second).mT @ order))
            assert found["missed"] == pytest.approx(missed, abs=1e-6)
        assert found["foretold"] == pytest.approx(size_of(commutator(first, second)) / 2, abs=1e-6)


def test_both_dice_rest_alike_and_end_apart_unless_their_axes_are_one(place):
    def shapes():
        place.settle()
        return [
            die.locator(".face").evaluate_all("(all) => all.map((e) => e.getAttribute('d'))")
            for die in place.page.locator("#one .dice svg").all()
        ]

    for values, alike in (({"t": 0}, True), ({"t": 1}, False), ({"between": 0}, True)):
        place.set(**values)
        one, other = shapes()
        assert (one == other) == alike


def test_boxes_are_lit_from_above(call):
    still = [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    for tilt in (40, -40):
        (view,) = call("gaze", [[30, tilt]])
        (faces,) = call("facesSeen", [[still, [1, 1, 1], view]])
        dim = {(f["axis"], f["side"]): int(re.search(r"--dim: (\d+)", f["shade"])[1]) for f in faces}
        level = dim.pop((2, 1 if tilt > 0 else -1))
        assert (level < min(dim.values())) if tilt > 0 else (level > max(dim.values()))
