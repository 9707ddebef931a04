"""Two mirrors: turning both moves the once reflected figure alone; ``test_drawings.py`` reads all four figures."""

from __future__ import annotations

import math
import re
from functools import partial

import pytest
import torch
from explorable_kit import Place, float64, functions_of, numbers_in, place_of, state_of, states
from torch.testing import assert_close

from geolib.rotations import rotate_pairs

call = functions_of("mirrors.js")
opened, place = place_of("TwoMirrors", mirrors=2)
KINDS = dict.fromkeys(("m", "n", "shift"), (0, 180))
random_states = partial(states, **KINDS, distance=(0.2, 0.8), angle=(-180, 180))


def test_the_figure_has_no_mirror_symmetry(call):
    """No rotation brings its mirror image onto it: else one reflection could not be told from a rotation."""
    (found,) = call("images", [[random_states(1)[0]]])
    start, once = (float64(found[name]) - float64(found[name]).mean(0) for name in ("start", "once"))
    turned = rotate_pairs(once, torch.linspace(0, 2 * math.pi, 361, dtype=torch.float64)[:, None, None])
    assert float(torch.cdist(turned, start.expand(361, -1, -1)).amin(-1).amax(-1).min()) > 0.03


def test_the_angle_of_a_line_is_less_than_half_a_turn(call):
    assert call("lineAngle", [[-10], [0], [179], [180], [365]]) == [170, 0, 179, 0, 5]


# In a browser --------------------------------------------------------------------------------------------------------


def points_of(place, name):
    drawn = place.page.locator(f"#one path.{name}").get_attribute("d")
    return float64([float(number) for number in re.findall(r"-?[0-9.]+", drawn)]).view(-1, 2)


def test_turning_both_mirrors_moves_the_once_reflected_figure_and_not_the_result(place):
    once, twice = points_of(place, "once"), points_of(place, "twice")
    place.set(shift=50.0)
    assert_close(points_of(place, "twice"), twice, rtol=0, atol=0.11)
    assert not torch.allclose(points_of(place, "once"), once, atol=20)
    place.set(n=30)
    place.set(n=20)
    said = numbers_in(place.text(".geo-say"))
    assert said[:2] == [70, 130]
    assert said[-1] == 120


def test_a_link_that_sets_the_question_does_not_answer_it(browser):
    place = Place(browser, "TwoMirrors", state_of("TwoMirrors"))
    place.page.evaluate("location.hash = '#move-mirrors?mirrors=2&n=20&m=80'")
    place.page.wait_for_function("models.one.values.mirrors === 2 && !document.querySelector('[data-gliding]')")
    assert place.text(".geo-say").endswith("?")
    place.set(shift=60)
    assert place.text(".geo-say").endswith("?")
    assert "Now turn one mirror" in place.text(".together .geo-note")
    place.set(m=90)
    assert "140°" in place.text(".geo-say")
    assert "Now" not in place.text(".together .geo-note")
    place.page.context.close()


def test_one_mirror_shows_neither_the_second_nor_the_turned_figure(place):
    place.set(mirrors=1)
    shown = "[...document.querySelectorAll('#one .second')].filter((e) => e.getClientRects().length).length"
    assert place.page.evaluate(shown) == 0
    place.page.get_by_role("button", name="Two mirrors").click()
    place.settle()
    assert place.values()["mirrors"] == 2
    assert place.page.evaluate(shown) > 5


def test_a_mirror_dragged_while_both_are_turned_stands_under_the_hand(place):
    place.set(shift=30.0)  # the first mirror stands at 50 degrees
    picture = place.page.locator("#one svg").bounding_box()
    box = place.page.locator("#one .geo-reach").first.bounding_box()
    x, y = (box[a] + box[b] / 2 - picture[a] - picture[b] / 2 for a, b in (("x", "width"), ("y", "height")))
    to, at = math.hypot(x, y), math.radians(75)
    place.drag(place.page.locator("#one .geo-reach").first, to * math.cos(at) - x, -to * math.sin(at) - y)
    assert place.values()["n"] == pytest.approx(45, abs=1)
