"""Attention on a circle: its numbers are geolib's, and its words keep clear of its dots."""

from __future__ import annotations

import math

import pytest
from explorable_kit import functions_of, place_of

call = functions_of("circle.js")
opened, place = place_of("AttentionCircle", query=0, tokens=[90, 180])


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


@pytest.mark.parametrize("tokens", [[0, 60, 180], [-90, 90], [10, 20, 30, 40, -150]])
def test_the_means_name_lies_on_no_dot_and_on_no_other_word(place, tokens):
    states = [
        {"tokens": tokens, "temperature": temperature, "query": query}
        for temperature in (0.05, 0.5)
        for query in range(-180, 180, 24)
    ]
    assert place.page.evaluate(LABEL_ON, states) == []
