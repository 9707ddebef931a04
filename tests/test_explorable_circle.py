"""Attention on a circle: its numbers are geolib's, and it answers the reader's hand."""

from __future__ import annotations

import math
import random

import pytest
import torch
from explorable_kit import Place, node_functions, state_of
from torch.testing import assert_close

from geolib.attention import attention, attention_weights

# In Node: the numbers ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def call(tmp_path_factory):
    """call(name, [arguments, ...]): the results of the module's function of that name."""
    return node_functions("circle.js", tmp_path_factory.mktemp("modules"))


def random_states(count):
    draw = random.Random(0)
    angle = lambda: draw.uniform(-180, 180)  # noqa: E731
    return [
        {"query": angle(), "temperature": 0.05 * 100 ** draw.random(), "tokens": [angle() for _ in range(2 + i % 7)]}
        for i in range(count)
    ]


def points(angles):
    a = torch.tensor(angles, dtype=torch.float64).deg2rad()
    return torch.stack([a.cos(), a.sin()], -1)


def test_weights_and_mean_are_those_of_the_library(call):  # RF-20
    states = random_states(40)
    for s, found in zip(states, call("attend", [[s] for s in states])):
        q, k = points([s["query"]]), points(s["tokens"])
        scale = 1 / s["temperature"]
        expected = attention_weights(q, k, scale=scale)[0]
        assert_close(torch.tensor(found["weights"]).double(), expected, rtol=0, atol=1e-6)
        assert_close(torch.tensor(found["mean"]).double(), attention(q, k, k, scale=scale)[0], rtol=0, atol=1e-6)


def test_scores_are_cosines_of_the_angles_between(call):
    states = random_states(20)
    for s, found in zip(states, call("attend", [[s] for s in states])):
        assert found["scores"] == pytest.approx([math.cos(math.radians(s["query"] - t)) for t in s["tokens"]])


def test_winners_are_all_tokens_with_the_largest_weight(call):
    found = call("winners", [[[0.2, 0.5, 0.3]], [[0.4, 0.2, 0.4]]])
    assert found == [{"top": 0.5, "who": [2]}, {"top": 0.4, "who": [1, 3]}]


def test_the_sentence_for_screen_readers_names_the_state(call):
    (said,) = call("describe", [[{"query": 90, "temperature": 0.5, "tokens": [0, 180]}]])
    assert said == (
        "query at 90 degrees, temperature 0.50: scores 0.00, 0.00; weights 0.50, 0.50; "
        "the mean is at 0.00, 0.00, 0.00 from the centre"
    )


# In a browser --------------------------------------------------------------------------------------------------------


@pytest.fixture
def place(browser):
    """A page with one explorable; what goes wrong in it fails the test."""
    place = Place(browser, "AttentionCircle", state_of("AttentionCircle", query=0, tokens=[90, 180]))
    yield place
    place.close()


def radius_of(place):
    return place.page.locator("#one .ring").bounding_box()["width"] / 2


@pytest.mark.parametrize("way", ["drag", "swipe"])
def test_the_query_and_the_tokens_follow_a_hand(place, way):
    page, radius = place.page, radius_of(place)
    query = page.locator("#one .geo-reach").last
    getattr(place, way)(query, -1.24 * radius, -1.24 * radius)
    assert place.values()["query"] == pytest.approx(90, abs=1)
    token = page.locator("#one .geo-reach").first
    getattr(place, way)(token, radius, radius)
    assert place.values()["tokens"] == pytest.approx([0, 180], abs=1)


def test_the_table_shows_the_weights_and_grows_with_the_tokens(place):
    shown = lambda: [float(text) for text in place.page.locator("#one .weight").all_text_contents()]  # noqa: E731
    assert shown() == pytest.approx([1 / (1 + math.exp(-2)), 1 / (1 + math.exp(2))], abs=1e-3)
    place.page.get_by_role("button", name="eight around").click()
    place.settle()
    assert len(shown()) == 8
    assert sum(shown()) == pytest.approx(1, abs=5e-3)
    place.page.get_by_role("button", name="two opposite").click()
    place.settle()
    assert len(shown()) == 2


def test_the_temperatures_slider_goes_by_equal_factors(place):
    page = place.page
    way = page.get_by_role("slider", name="Temperature")
    seen = []
    for value in ("0", "0.5", "1"):
        way.fill(value)
        place.settle()
        seen.append(place.values()["temperature"])
    assert seen == pytest.approx([0.05, 0.5, 5])


LABEL_ON = """() => {
  const box = (part) => part.getBoundingClientRect(), word = (text) => [...document.querySelectorAll("#one text")]
    .find((each) => each.textContent === text);
  const mean = box(word("mean")), query = box(word("query"));
  const gap = (at, low, high) => Math.max(low - at, 0, at - high);
  const hidden = [...document.querySelectorAll("#one .geo-dot")].filter((dot) => {
    const { x, y, width } = box(dot), [cx, cy] = [x + width / 2, y + width / 2];
    return Math.hypot(gap(cx, mean.left, mean.right), gap(cy, mean.top + 2, mean.bottom - 2)) < width / 2 - 1;
  }).length;
  const meet = mean.left < query.right && query.left < mean.right && mean.top < query.bottom && query.top < mean.bottom;
  return hidden + Number(meet);
}"""


@pytest.mark.parametrize("tokens", [[0, 60, 180], [-90, 90], [10, 20, 30, 40, -150]])
def test_the_means_name_lies_on_no_dot_and_on_no_other_word(place, tokens):
    for temperature in (0.05, 0.5):
        for query in range(-180, 180, 24):
            place.set(tokens=tokens, temperature=temperature, query=query)
            assert place.page.evaluate(LABEL_ON) == 0, (temperature, query)
