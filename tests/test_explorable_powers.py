"""Even powers: the kernels and the features are geolib's, and the sentence says them."""

from __future__ import annotations

import math
import random

import pytest
import torch
from explorable_kit import float64, functions_of, numbers_in, place_of
from torch.testing import assert_close

from geolib import sympow

EVEN = range(2, 17, 2)
call = functions_of("powers.js")
opened, place = place_of("EvenPowers")


def unit(degrees):
    angle = math.radians(degrees)
    return float64([math.cos(angle), math.sin(angle)])


def test_the_features_are_those_of_the_symmetric_power_embedding(call):  # CS-k
    draw = random.Random(1)
    calls = [[[draw.gauss(0, 1) for _ in range(draw.randint(1, 5))], draw.randint(1, 6)] for _ in range(30)]
    for (v, p), found in zip(calls, call("embed", calls)):
        assert_close(float64(found), sympow.embed(float64(v), p), rtol=1e-9, atol=1e-9)


def test_the_power_of_the_inner_product_is_the_inner_product_of_the_features(call):  # CS-k, CS-att
    draw = random.Random(2)
    calls = [[draw.uniform(-180, 180), p] for p in EVEN for _ in range(5)]
    for (degrees, p), power, feature in zip(calls, call("powerKernel", calls), call("featureKernel", calls)):
        q, k = unit(0), unit(degrees)
        assert power == pytest.approx(float(q @ k) ** p, abs=1e-12)
        assert feature == pytest.approx(float(sympow.embed(q, p) @ sympow.embed(k, p)), abs=1e-9)
        assert feature == pytest.approx(power, abs=1e-9)
        assert power >= 0


def test_softmaxs_kernel_is_the_exponential_over_its_value_at_angle_0(call):  # CS-att
    draw = random.Random(3)
    calls = [[draw.uniform(-180, 180), draw.uniform(0, 16)] for _ in range(40)]
    for (degrees, beta), found in zip(calls, call("softmaxKernel", calls)):
        q = unit(0)
        expected = torch.exp(beta * q @ unit(degrees)) / torch.exp(beta * q @ q)
        assert found == pytest.approx(float(expected), abs=1e-9)


def test_with_beta_equal_to_p_both_kernels_begin_alike_and_differ_by_the_mirror_behind(call):
    fronts, behind = ([[angle, p] for p in EVEN] for angle in (2, 180))
    assert call("powerKernel", fronts) == pytest.approx(call("softmaxKernel", fronts), abs=1e-5)
    assert call("powerKernel", behind) == pytest.approx([1] * len(EVEN))
    assert max(call("softmaxKernel", behind)) < 0.02


def test_the_sentence_gives_both_kernels_and_the_features_make_the_power(place):
    place.set(angle=60.0, beta=2.0, power=2)
    assert numbers_in(place.text(".geo-say"))[-2:] == pytest.approx([0.25, math.exp(-1)], abs=5e-4)
    assert "of 3 features each: 0.250" in place.text(".geo-note")
