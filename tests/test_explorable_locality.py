"""Locality focusing: its numbers are geolib's, and it answers the reader's hand."""

from __future__ import annotations

import math
import random

import pytest
import torch
from explorable_kit import Place, node_functions, state_of
from torch.testing import assert_close

from geolib.locality import focused_attention, focused_attention_by_lse, fused_focused_attention, log_attenuation

POSITIONS = torch.cartesian_prod(torch.arange(8), torch.arange(8)).double()  # (row, column)

# In Node: the numbers ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def call(tmp_path_factory):
    """call(name, [arguments, ...]): the results of the module's function of that name."""
    return node_functions("locality.js", tmp_path_factory.mktemp("modules"))


def random_states(count, seed=0):
    draw = random.Random(seed)
    return [
        {"row": draw.randrange(8), "column": draw.randrange(8), "sigma": draw.uniform(0.25, 8)}
        | {"along": draw.uniform(0.25, 4), "across": draw.uniform(0.25, 4), "angle": draw.uniform(-90, 90)}
        | {"pattern": ("blobs", "stripes", "flat")[i % 3]}
        for i in range(count)
    ]


def float64(values):
    return torch.tensor(values, dtype=torch.float64)


def precision_of(s):
    """A by its eigenvectors, in (row, column): rows count downwards."""
    angle = math.radians(s["angle"])
    axes = float64([[-math.sin(angle), -math.cos(angle)], [math.cos(angle), -math.sin(angle)]])
    return axes @ torch.diag(float64([s["along"], s["across"]]) ** -2) @ axes.T


def log_omega(s):
    return log_attenuation(POSITIONS, float64([s["sigma"]]), precision_of(s))


def content_of(pattern):
    if pattern == "stripes":
        return torch.tensor([1.0, 1, -1, -1, 1, 1, -1, -1]).double().repeat(8)
    if pattern == "flat":
        return torch.zeros(64).double()
    near = [torch.exp(-(POSITIONS - place).square().sum(-1) / 4) for place in (1.5, 5.5)]
    return 2 * torch.maximum(*near) - 1


def focused(function, s, last):
    """A row of focused attention with the patches themselves as values: the weights."""
    c = content_of(s["pattern"])[None, :, None]
    values = torch.eye(64).double()[None]
    return function(3 * c, c, values, *last)[0, 8 * s["row"] + s["column"]]


def test_gaussian_is_the_attenuation_of_the_querys_row(call):  # RF-21
    states = random_states(30)
    for s, found, a in zip(
        states, call("logAttenuation", [[s] for s in states]), call("precision", [[s] for s in states])
    ):
        assert_close(float64(a), precision_of(s), rtol=1e-6, atol=1e-6)
        assert_close(float64(found), log_omega(s)[8 * s["row"] + s["column"]], rtol=1e-6, atol=1e-6)


def test_the_axes_are_the_half_axes_of_the_ellipse(call):  # RF-21
    states = random_states(30, seed=1)
    for s, (e, f) in zip(states, call("directions", [[s["angle"]] for s in states])):
        for direction, length in ((e, s["along"]), (f, s["across"])):
            tip = length * float64(direction)
            assert (tip @ precision_of(s) @ tip).item() == pytest.approx(1, abs=1e-6)


def test_weights_after_are_the_row_of_focused_attention(call):  # RF-19, RF-20, RF-22
    states = random_states(30, seed=2)
    for s, found in zip(states, call("focus", [[s] for s in states])):
        last = (POSITIONS, float64([s["sigma"]]), precision_of(s))
        expected = focused(focused_attention, s, last)
        assert_close(float64(found["after"]), expected, rtol=0, atol=1e-6)
        assert found["left"] == pytest.approx(expected.sum().item(), abs=1e-6)
        unfocused = focused(focused_attention, s, (POSITIONS, float64([1e9])))
        assert_close(float64(found["before"]), unfocused, rtol=0, atol=1e-6)


def test_fused_row_is_the_same_and_its_factor_is_the_mass_that_is_left(call):  # RF-FUSED
    states = random_states(30, seed=3)
    for s, found in zip(states, call("focus", [[s] for s in states])):
        last = (POSITIONS, float64([s["sigma"]]), precision_of(s))
        assert_close(float64(found["fused"]), focused(fused_focused_attention, s, last), rtol=0, atol=1e-6)
        by_lse = focused(focused_attention_by_lse, s, (log_omega(s),))
        assert_close(float64(found["fused"]), by_lse, rtol=0, atol=1e-6)
        assert found["factor"] == pytest.approx(by_lse.sum().item(), abs=1e-6)
        assert found["factor"] == pytest.approx(found["left"], abs=1e-9)


def test_log_sum_exp_stands_large_numbers(call):
    rows = [torch.randn(20).double().mul(300).tolist() for _ in range(10)]
    expected = [float64(row).logsumexp(0).item() for row in rows]
    assert call("logSumExp", [[row] for row in rows]) == pytest.approx(expected, abs=1e-6)


def test_the_sentence_for_screen_readers_names_the_state(call):
    state = {"row": 3, "column": 4, "sigma": 2, "along": 1.5, "across": 0.5, "angle": 30, "pattern": "flat"}
    (said,) = call("describe", [[state]])
    left = log_omega(state)[8 * 3 + 4].exp().mean().item()
    assert said == (
        f"query at row 3, column 4: {left:.2f} of its weight is left, {1 - left:.2f} is missing; "
        "the Gaussian has half axes of 3.00 and 1.00 patches, the first at 30 degrees"
    )


# In a browser --------------------------------------------------------------------------------------------------------


@pytest.fixture
def place(browser):
    """A page with one explorable; what goes wrong in it fails the test."""
    place = Place(browser, "LocalityFocus", state_of("LocalityFocus", row=3, column=3, angle=0, along=1.6, across=1))
    yield place
    place.close()


def cell_of(place):
    return place.page.locator("#one .surface").bounding_box()["width"] / 8


@pytest.mark.parametrize("way", ["drag", "swipe"])
def test_the_query_follows_a_hand_and_goes_to_a_patch_that_is_pressed(place, way):
    page, cell = place.page, cell_of(place)
    getattr(place, way)(page.locator("#one .geo-reach").nth(2), 2 * cell, -1 * cell)
    assert (place.values()["row"], place.values()["column"]) == (2, 5)
    box = page.locator("#one .surface").bounding_box()
    tap = page.mouse.click if way == "drag" else page.touchscreen.tap
    tap(box["x"] + 0.5 * cell, box["y"] + 6.5 * cell)
    place.settle()
    assert (place.values()["row"], place.values()["column"]) == (6, 0)
    here = page.locator("#one .here").first.bounding_box()
    assert here["x"] == pytest.approx(box["x"], abs=2)
    assert here["y"] == pytest.approx(box["y"] + 6 * cell, abs=2)


@pytest.mark.parametrize("way", ["drag", "swipe"])
def test_a_hand_stretches_and_turns_the_ellipse_by_its_axes(place, way):
    page, cell = place.page, cell_of(place)
    reaches = page.locator("#one .geo-reach")
    # The first tip stands 1.5 x 1.6 = 2.4 patches to the right of the query; it goes to 3 patches at 45 degrees.
    diagonal = 3 * math.sqrt(0.5) * cell
    getattr(place, way)(reaches.nth(0), diagonal - 2.4 * cell, -diagonal)
    assert place.values()["along"] == pytest.approx(2, abs=0.051)
    assert place.values()["angle"] == pytest.approx(45, abs=1)
    place.set(angle=0)
    # The second tip stands below or above the middle; it goes twice as far.
    middle = page.locator("#one .here").first.bounding_box()
    tip = reaches.nth(1).bounding_box()
    up = tip["y"] + tip["height"] / 2 - middle["y"] - middle["height"] / 2
    assert abs(up) == pytest.approx(1.5 * cell, abs=1)
    getattr(place, way)(reaches.nth(1), 0, up)
    assert place.values()["across"] == pytest.approx(2, abs=0.051)
    assert place.values()["angle"] == pytest.approx(0, abs=1)


def test_what_is_left_and_what_is_missing_make_one_and_the_fused_factor_is_what_is_left(place):
    for values in ({}, {"sigma": 8.0, "along": 4.0}, {"pattern": "stripes", "sigma": 0.5}):
        place.set(**values)
        left, missing = (float(b) for b in place.page.locator("#one .geo-say b").all_text_contents())
        assert left + missing == pytest.approx(1, abs=1.1e-3)
        bars = [place.page.locator(f"#one .{part}").bounding_box()["width"] for part in ("rest", "whole")]
        assert bars[0] / bars[1] == pytest.approx(left, abs=0.01)
        fused = place.page.locator("#one p:not(.geo-say) b").text_content()
        assert float(fused) == pytest.approx(left, abs=1.1e-3)


def test_both_maps_are_shaded_on_one_scale(place):
    # With a Gaussian without bounds both maps are the same picture; with a narrow one only the query's patch is.
    place.set(pattern="flat", sigma=8.0, along=4.0, across=4.0)
    pixel = """([map, row, column]) => {
        const copy = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
        copy.drawImage(document.querySelectorAll("#one canvas")[map], 0, 0);
        return [...copy.getImageData(column, row, 1, 1).data].slice(0, 3);
    }"""
    read = lambda *where: place.page.evaluate(pixel, list(where))  # noqa: E731
    assert read(0, 0, 0) == read(0, 7, 7) == read(0, 3, 3) == read(1, 3, 3) == [179, 71, 0]
    assert read(1, 7, 7) != read(1, 3, 3)
    place.set(sigma=0.25, along=0.25, across=0.25)
    assert read(1, 3, 3) == [179, 71, 0]
    assert read(1, 3, 4) == read(1, 0, 0) == [255, 255, 255]
