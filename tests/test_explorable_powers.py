"""Even powers: the kernels and the features are geolib's, and the sentence says them."""

from __future__ import annotations

import math
import random

import pytest
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


def test_the_sentence_gives_both_kernels_and_the_features_make_the_power(place):
    place.set(angle=60.0, beta=2.0, power=2)
    assert numbers_in(place.text(".geo-say"))[-2:] == pytest.approx([0.25, math.exp(-1)], abs=5e-4)
    assert "of 3 features each: 0.250" in place.text(".geo-note")
