"""Even powers: the kernels and the features are geolib's, and the picture answers the reader's hand."""

from __future__ import annotations

import math
import random

import pytest
import torch
from explorable_kit import Place, node_functions, state_of
from torch.testing import assert_close

from geolib import sympow

EVEN = range(2, 17, 2)

# In Node: the numbers ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def call(tmp_path_factory):
    """call(name, [arguments, ...]): the results of the module's function of that name."""
    return node_functions("powers.js", tmp_path_factory.mktemp("modules"))


def unit(degrees):
    angle = math.radians(degrees)
    return torch.tensor([math.cos(angle), math.sin(angle)], dtype=torch.float64)


def test_the_features_are_those_of_the_symmetric_power_embedding(call):  # CS-k
    draw = random.Random(1)
    calls = [[[draw.gauss(0, 1) for _ in range(draw.randint(1, 5))], draw.randint(1, 6)] for _ in range(30)]
    for (v, p), found in zip(calls, call("embed", calls)):
        expected = sympow.embed(torch.tensor(v, dtype=torch.float64), p)
        assert_close(torch.tensor(found, dtype=torch.float64), expected, rtol=1e-9, atol=1e-9)


def test_the_power_of_the_inner_product_is_the_inner_product_of_the_features(call):  # CS-k, CS-att
    draw = random.Random(2)
    calls = [[draw.uniform(-180, 180), p] for p in EVEN for _ in range(5)]
    powers, features = call("powerKernel", calls), call("featureKernel", calls)
    for (degrees, p), power, feature in zip(calls, powers, features):
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


@pytest.mark.parametrize("p", EVEN)
def test_with_beta_equal_to_p_both_kernels_begin_alike_and_differ_by_the_mirror_behind(call, p):
    (front, softmax), (behind, gone) = zip(
        call("powerKernel", [[2, p], [180, p]]), call("softmaxKernel", [[2, p], [180, p]])
    )
    assert front == pytest.approx(softmax, abs=1e-5)
    assert behind == pytest.approx(1)
    assert gone < 0.02


def test_the_sentence_for_screen_readers_names_the_state(call):
    (said,) = call("describe", [[{"power": 4, "beta": 4, "angle": 60}]])
    assert said == ("power 4, a key at 60 degrees: power kernel 0.063, softmax kernel with beta 4 0.135")


# In Python: the traits -----------------------------------------------------------------------------------------------


# In a browser --------------------------------------------------------------------------------------------------------


@pytest.fixture
def place(browser):
    """A page with one explorable; what goes wrong in it fails the test."""
    place = Place(browser, "EvenPowers", state_of("EvenPowers"))
    yield place
    place.close()


def test_the_sentence_gives_both_kernels_and_the_features_make_the_power(place):
    place.set(angle=60.0, beta=2.0, power=2)
    assert place.page.locator("#one .geo-say").text_content() == " (q·k)² = 0.250,  exp = 0.368"
    assert "of 3 features each: 0.250" in place.page.locator("#one .geo-note").text_content()


@pytest.mark.parametrize("way", ["drag", "swipe"])
def test_a_hand_moves_the_key_around_the_circle(place, way):
    place.set(angle=0.0)
    tip = place.page.locator("#one .circle .geo-reach")
    box, rim = tip.bounding_box(), place.page.locator("#one .rim").bounding_box()
    radius = rim["width"] / 2
    getattr(place, way)(tip, -radius, -radius)  # from the right of the circle to its top
    assert place.values()["angle"] == pytest.approx(90, abs=1)
    assert box["x"] + box["width"] / 2 == pytest.approx(rim["x"] + rim["width"], abs=2)
    assert place.values()["power"] == 2
