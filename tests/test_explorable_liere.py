"""LieRE on a grid: rotations, scores and their deviations are geolib's, and the maps answer the reader's hand."""

from __future__ import annotations

import random

import pytest
import torch
from explorable_kit import Place, node_functions, state_of
from torch.testing import assert_close

from geolib import lie

SIDE = 15
QUERY = torch.full((4,), 0.5, dtype=torch.float64)

# In Node: the numbers ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def call(tmp_path_factory):
    """call(name, [arguments, ...]): the results of the module's function of that name."""
    return node_functions("liere.js", tmp_path_factory.mktemp("modules"))


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
    before = call("turnedGrid", [[s["mix"], s["size"], 0] for s in states])
    after = call("turnedGrid", [[s["mix"], s["size"], s["shift"]] for s in states])
    return list(zip(states, generators, before, after))


def float64(values):
    return torch.tensor(values, dtype=torch.float64)


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
    pairs = call("rotationPair", [[matrix] for matrix in matrices.tolist()])
    turned = float64(call("turn", [list(each) for each in zip(pairs, vectors)]))
    expected = (lie.exp_skew(matrices) @ float64(vectors)[..., None])[..., 0]
    assert_close(turned, expected, rtol=0, atol=1e-9)


def test_generators_are_skew_commute_at_0_only_and_keep_their_norms(call):  # LR-2
    dials = [0, 0.05, 0.5, 1]
    found = float64(call("generators", [[c, 0.3] for c in dials]))
    assert_close(found.mT, -found)
    norms = torch.linalg.matrix_norm(found)
    assert_close(norms, norms[:1].expand_as(norms))
    brackets = torch.linalg.matrix_norm(lie.commutator(found[:, 0], found[:, 1]))
    relative = brackets / norms.prod(-1)
    assert float(relative[0]) == 0
    assert bool((relative.diff() > 0).all())
    shown = call("commutator", [[a.tolist(), b.tolist()] for a, b in found])
    assert_close(float64(shown), relative)


def test_the_fastest_plane_of_the_first_generator_turns_by_the_size(call):
    (first, _), = call("generators", [[0.7, 0.42]])  # fmt: skip
    assert float(lie.spectrum(float64(first))[0]) == pytest.approx(0.42)


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
        here, there = maps
        assert_close(float64(found["here"]), here, rtol=0, atol=1e-6)
        assert_close(float64(found["there"]), there, rtol=0, atol=1e-6)
        assert_close(float64(found["difference"]), there - here, rtol=0, atol=1e-6)
        assert found["change"] == pytest.approx(float((there - here).norm() / here.norm()), abs=1e-6)
        assert found["here"][patch] == pytest.approx(1)


def test_the_deviation_is_the_root_mean_square_of_shift_deviation_over_the_keys(call, example):  # LR-SHIFT
    arguments = [[before, after, state["row"], state["column"]] for state, _, before, after in example]
    for (state, generators, *_), found in zip(example, call("deviation", arguments)):
        query, shift = float64([state["column"], state["row"]]), float64([state["shift"]] * 2)
        each = torch.stack([lie.shift_deviation(generators, query, key, shift) for key in patches()])
        assert found == pytest.approx(float(each.square().mean().sqrt()), abs=1e-6)


def test_nothing_changes_with_a_shift_when_the_generators_commute(call):  # LR-2, LR-SHIFT
    before, after = call("turnedGrid", [[0, 0.4, 0], [0, 0.4, 9]])
    state = {"row": 3, "column": 11, "mix": 0, "size": 0.4}
    (found,) = call("compare", [[before, after, state]])
    assert found["change"] == pytest.approx(0, abs=1e-9)
    assert found["deviation"] == pytest.approx(0, abs=1e-6)
    assert found["order"] == 0


def test_nothing_changes_without_a_shift(call):  # LR-SHIFT
    (grid,) = call("turnedGrid", [[0.8, 0.4, 0]])
    (found,) = call("compare", [[grid, grid, {"row": 3, "column": 11, "mix": 0.8, "size": 0.4}]])
    assert found["change"] == 0
    assert found["deviation"] == pytest.approx(0, abs=1e-6)
    assert found["order"] > 0.2


# In a browser --------------------------------------------------------------------------------------------------------


@pytest.fixture
def place(browser):
    """A page with one explorable; what goes wrong in it fails the test."""
    place = Place(browser, "LiereGrid", state_of("LiereGrid"))
    yield place
    place.close()


def maps(place):
    place.settle()
    return place.page.evaluate("[...document.querySelectorAll('#one canvas')].map((c) => c.toDataURL())")


@pytest.mark.parametrize("way", ["drag", "swipe"])
def test_a_hand_on_the_first_map_moves_the_patch(place, way):
    step = place.page.locator("#one canvas").first.bounding_box()["width"] / SIDE
    getattr(place, way)(place.page.locator("#one .geo-reach"), 3 * step, -2 * step)
    values = place.values()
    assert (values["row"], values["column"]) == (5, 10)
    getattr(place, way)(place.page.locator("#one .geo-reach"), 30 * step, 0)
    assert place.values()["column"] == 14


def test_a_click_chooses_the_patch_below_it(place):
    box = place.page.locator("#one canvas").first.bounding_box()
    step = box["width"] / SIDE
    place.page.mouse.click(box["x"] + 2.5 * step, box["y"] + 11.5 * step)
    assert (place.values()["row"], place.values()["column"]) == (11, 2)


def test_commuting_generators_make_both_maps_one_and_the_difference_blank(place):
    assert len(set(maps(place))) == 3
    place.page.locator("#one input").first.focus()
    place.page.keyboard.press("Home")
    here, there, _ = maps(place)
    assert here == there
    (sentence,) = place.page.locator("#one .geo-say").all_text_contents()
    assert sentence.startswith("Moved together, 8 right and 8 down, the patches change their scores by 0\u00a0%.")
    assert sentence.endswith("Commutator: 0.00")
    blank = """() => { const c = document.querySelectorAll("#one canvas")[2];
        return c.getContext("2d").getImageData(0, 0, c.width, c.height).data.every((shade) => shade === 255); }"""
    assert place.page.evaluate(blank)
    place.page.keyboard.press("End")
    here, there, _ = maps(place)
    assert here != there


def test_the_shift_moves_the_second_map_and_leaves_the_first(place):
    first = maps(place)
    place.set(shift=3.0)
    second = maps(place)
    assert [a == b for a, b in zip(first, second)] == [True, False, False]
    label = place.page.locator("#one canvas").first.get_attribute("aria-label")
    assert "row 7, column 7" in label
    assert "shift by 3, the scores change by" in label
