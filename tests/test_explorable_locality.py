"""Locality focusing: its numbers are geolib's, and its bar and maps show them."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from explorable_kit import float64, functions_of, place_of, states
from torch.testing import assert_close

from geolib.locality import focused_attention, focused_attention_by_lse, fused_focused_attention, log_attenuation

POSITIONS = torch.cartesian_prod(torch.arange(8), torch.arange(8)).double()  # (row, column)
call = functions_of("locality.js")
opened, place = place_of("LocalityFocus", row=3, column=3, angle=0, along=1.6, across=1)
KINDS = {"row": range(8), "column": range(8), "sigma": (0.25, 8), "pattern": ["blobs", "stripes", "flat"]}
random_states = partial(states, **KINDS, along=(0.25, 4), across=(0.25, 4), angle=(-90, 90))


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


def test_gaussian_is_the_attenuation_of_the_querys_row_and_its_axes_are_half_axes(call):  # RF-21
    states = random_states(30)
    logs, precisions = (call(name, [[s] for s in states]) for name in ("logAttenuation", "precision"))
    axes = call("directions", [[s["angle"]] for s in states])
    for s, found, a, both in zip(states, logs, precisions, axes):
        assert_close(float64(a), precision_of(s), rtol=1e-6, atol=1e-6)
        assert_close(float64(found), log_omega(s)[8 * s["row"] + s["column"]], rtol=1e-6, atol=1e-6)
        for direction, length in zip(both, (s["along"], s["across"])):
            tip = length * float64(direction)
            assert (tip @ precision_of(s) @ tip).item() == pytest.approx(1, abs=1e-6)


def test_weights_are_those_of_focused_attention_however_they_are_computed(call):  # RF-19, RF-20, RF-22, RF-FUSED
    states = random_states(30, seed=2)
    for s, found in zip(states, call("focus", [[s] for s in states])):
        last = (POSITIONS, float64([s["sigma"]]), precision_of(s))
        after = focused(focused_attention, s, last)
        by_lse = focused(focused_attention_by_lse, s, (log_omega(s),))
        rows = {"after": after, "before": focused(focused_attention, s, (POSITIONS, float64([1e9])))}
        rows |= {"fused": focused(fused_focused_attention, s, last)}
        for name, row in rows.items():
            assert_close(float64(found[name]), row, rtol=0, atol=1e-6)
        assert_close(float64(found["fused"]), by_lse, rtol=0, atol=1e-6)
        assert found["left"] == pytest.approx(after.sum().item(), abs=1e-6)
        assert found["factor"] == pytest.approx(by_lse.sum().item(), abs=1e-6)
        assert found["factor"] == pytest.approx(found["left"], abs=1e-9)


# In a browser --------------------------------------------------------------------------------------------------------


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
    full = read(0, 0, 0)
    assert full == read(0, 7, 7) == read(0, 3, 3) == read(1, 3, 3) != read(1, 7, 7)
    place.set(sigma=0.25, along=0.25, across=0.25)
    assert read(1, 3, 3) == full
    assert read(1, 3, 4) == read(1, 0, 0) == [255, 255, 255]
