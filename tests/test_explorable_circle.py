"""Attention on a circle: its numbers are geolib's, and its words keep clear of its dots."""

from __future__ import annotations

import math
import random

import pytest
import torch
from explorable_kit import float64, functions_of, place_of
from torch.testing import assert_close

from geolib.attention import attention, attention_weights

call = functions_of("circle.js")
opened, place = place_of("AttentionCircle", query=0, tokens=[90, 180])


def random_states(count):
    draw = random.Random(0)
    angle = lambda: draw.uniform(-180, 180)  # noqa: E731
    return [
        {"query": angle(), "temperature": 0.05 * 100 ** draw.random(), "tokens": [angle() for _ in range(2 + i % 7)]}
        for i in range(count)
    ]


def points(angles):
    a = float64(angles).deg2rad()
    return torch.stack([a.cos(), a.sin()], -1)


def test_scores_weights_and_mean_are_those_of_the_library(call):  # RF-20
    states = random_states(40)
    for s, found in zip(states, call("attend", [[s] for s in states])):
        q, k, scale = points([s["query"]]), points(s["tokens"]), 1 / s["temperature"]
        expected = {"scores": (q @ k.mT)[0], "weights": attention_weights(q, k, scale=scale)[0]}
        expected |= {"mean": attention(q, k, k, scale=scale)[0]}
        for name, value in expected.items():
            assert_close(float64(found[name]), value, rtol=0, atol=1e-6)


def test_winners_are_all_tokens_with_the_largest_weight(call):
    found = call("winners", [[[0.2, 0.5, 0.3]], [[0.4, 0.2, 0.4]]])
    assert found == [{"top": 0.5, "who": [2]}, {"top": 0.4, "who": [1, 3]}]


def test_the_table_shows_the_weights_and_grows_with_the_tokens(place):
    shown = lambda: [float(text) for text in place.page.locator("#one .weight").all_text_contents()]  # noqa: E731
    assert shown() == pytest.approx([1 / (1 + math.exp(-2)), 1 / (1 + math.exp(2))], abs=1e-3)
    for name, count in (("eight around", 8), ("two opposite", 2)):
        place.page.get_by_role("button", name=name).click()
        place.settle()
        assert len(shown()) == count
        assert sum(shown()) == pytest.approx(1, abs=5e-3)


def test_the_temperatures_slider_goes_by_equal_factors(place):
    way, seen = place.page.get_by_role("slider", name="Temperature"), []
    for value in ("0", "0.5", "1"):
        way.fill(value)
        place.settle()
        seen.append(place.values()["temperature"])
    assert seen == pytest.approx([0.05, 0.5, 5])


LABEL_ON = """async (states) => {
  const box = (part) => part.getBoundingClientRect(), word = (text) => [...document.querySelectorAll("#one text")]
    .find((each) => each.textContent === text);
  const gap = (at, low, high) => Math.max(low - at, 0, at - high), wrong = [];
  for (const state of states) {
    Object.entries(state).forEach(([name, value]) => models.one.set(name, value));
    await settle();
    const mean = box(word("mean")), query = box(word("query"));
    const hidden = [...document.querySelectorAll("#one .geo-dot")].some((dot) => {
      const { x, y, width } = box(dot), [cx, cy] = [x + width / 2, y + width / 2];
      return Math.hypot(gap(cx, mean.left, mean.right), gap(cy, mean.top + 2, mean.bottom - 2)) < width / 2 - 1;
    });
    const beside = mean.right <= query.left || query.right <= mean.left;
    if (hidden || !(beside || mean.bottom <= query.top || query.bottom <= mean.top)) wrong.push(state);
  }
  return wrong;
}"""
