"""LieRE on a grid: rotations, scores and their deviations are geolib's, and its maps show them."""

from __future__ import annotations

import random

import pytest
import torch
from explorable_kit import float64, functions_of, place_of
from torch.testing import assert_close

from geolib import lie

SIDE = 15
QUERY = torch.full((4,), 0.5, dtype=torch.float64)
call = functions_of("liere.js")
opened, place = place_of("LiereGrid")


@pytest.fixture(scope="module")
def example(call):
    """For random parameters: they, the generators and the grids before and after the shift."""
    draw = random.Random(0)
    states = [
        {"mix": draw.random(), "size": draw.uniform(0.05, 0.6), "shift": draw.uniform(0, 15)}
        | {"row": draw.randrange(SIDE), "column": draw.randrange(SIDE)}
        for _ in range(5)
    ]
    generators = [float64(each) for each in call("generators", [[s["mix"], s["size"]] for s in states])]
    grids = [call("turnedGrid", [[s["mix"], s["size"], on * s["shift"]] for s in states]) for on in (0, 1)]
    return list(zip(states, generators, *grids))


def patches(shift=0.0):
    """(column, row) of every patch, row by row."""
    along = torch.arange(SIDE, dtype=torch.float64) + shift
    rows, columns = torch.meshgrid(along, along, indexing="ij")
    return torch.stack([columns.flatten(), rows.flatten()], -1)


def test_a_pair_of_quaternions_is_the_exponential_of_a_skew_matrix(call):  # LR-A1
    draw = random.Random(1)
    entries = [[draw.gauss(0, 3) for _ in range(6)] for _ in range(20)] + [[0.0] * 6, [1e-13] * 6]
    vectors = [[draw.gauss(0, 1) for _ in range(4)] for _ in entries]
    matrices = lie.skew_matrix(float64(entries), 4)
    turned = call("turn", list(map(list, zip(call("rotationPair", [[m] for m in matrices.tolist()]), vectors))))
    expected = (lie.exp_skew(matrices) @ float64(vectors)[..., None])[..., 0]
    assert_close(float64(turned), expected, rtol=0, atol=1e-9)


def test_generators_are_skew_commute_at_0_only_and_keep_their_norms_and_their_speed(call):  # LR-2
    found = float64(call("generators", [[c, 0.3] for c in (0, 0.05, 0.5, 1)]))
    assert_close(found.mT, -found)
    norms = torch.linalg.matrix_norm(found)
    assert_close(norms, norms[:1].expand_as(norms))
    relative = torch.linalg.matrix_norm(lie.commutator(found[:, 0], found[:, 1])) / norms.prod(-1)
    assert float(relative[0]) == 0
    assert bool((relative.diff() > 0).all())
    assert_close(float64(call("commutator", [[a.tolist(), b.tolist()] for a, b in found])), relative)
    assert [float(lie.spectrum(first)[0]) for first in found[:, 0]] == pytest.approx([0.3] * 4)


def test_turned_vectors_are_those_of_position_rotations_at_every_patch(example):  # LR-A1
    for state, generators, before, after in example:
        for grid, shift in ((before, 0.0), (after, state["shift"])):
            rotations = lie.position_rotations(patches(shift), generators)
            assert_close(float64([each["vector"] for each in grid]), rotations @ QUERY, rtol=0, atol=1e-6)


def test_scores_and_their_change_are_those_of_turned_query_and_keys(call, example):  # LR-1, LR-A1
    arguments = [[before, after, state] for state, _, before, after in example]
    for (state, generators, *_), found in zip(example, call("compare", arguments)):
        patch, maps = state["row"] * SIDE + state["column"], []
        for shift in (0.0, state["shift"]):
            R = lie.position_rotations(patches(shift), generators)
            maps.append(torch.einsum("i,ji,njk,k->n", QUERY, R[patch], R, QUERY))
        for name, expected in zip(("here", "there", "difference"), (*maps, maps[1] - maps[0])):
            assert_close(float64(found[name]), expected, rtol=0, atol=1e-6)
        assert found["change"] == pytest.approx(float((maps[1] - maps[0]).norm() / maps[0].norm()), abs=1e-6)


def test_the_deviation_is_the_root_mean_square_of_shift_deviation_over_the_keys(call, example):  # LR-SHIFT
    arguments = [[before, after, state["row"], state["column"]] for state, _, before, after in example]
    for (state, generators, *_), found in zip(example, call("deviation", arguments)):
        query, shift = float64([state["column"], state["row"]]), float64([state["shift"]] * 2)
        each = torch.stack([lie.shift_deviation(generators, query, key, shift) for key in patches()])
        assert found == pytest.approx(float(each.square().mean().sqrt()), abs=1e-6)


# In a browser --------------------------------------------------------------------------------------------------------


def maps(place):
    place.settle()
    return place.page.evaluate("[...document.querySelectorAll('#one canvas')].map((c) => c.toDataURL())")


def test_commuting_generators_make_both_maps_one_and_the_difference_blank(place):
    assert len(set(maps(place))) == 3
    place.set(mix=0)
    here, there, _ = maps(place)
    assert here == there
    blank = """() => { const c = document.querySelectorAll("#one canvas")[2];
        return c.getContext("2d").getImageData(0, 0, c.width, c.height).data.every((shade) => shade === 255); }"""
    assert place.page.evaluate(blank)


def test_the_shift_moves_the_second_map_and_leaves_the_first(place):
    first = maps(place)
    place.set(shift=3.0)
    assert [a == b for a, b in zip(first, maps(place))] == [True, False, False]
