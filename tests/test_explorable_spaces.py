"""Three spaces: metric, frames, arrival and score are geolib's, and the picture shows what the numbers say."""

from __future__ import annotations

import re
from functools import partial

import pytest
import torch
from explorable_kit import float64, functions_of, numbers_in, place_of, states
from torch.testing import assert_close

from geolib.transport import rotation_preset, squared_length, transports

call = functions_of("spaces.js")
opened, place = place_of("ThreeSpaces")
KINDS = {"query": (0, 8), "key": (0, 8), "scale": (0.7, 1.3), "angle": (-1.5, 1.5)}
KINDS |= dict.fromkeys(("key_x", "key_y", "query_x", "query_y"), (-1.25, 1.25))
random_states = partial(states, **KINDS)


def preset_of(s):
    return rotation_preset(float64(s["scale"]).log(), float64([s["angle"]]))


def positions_of(s):
    return float64([s["query"], s["key"]])


def query_and_key(s):
    return float64([[s["query_x"], s["query_y"]], [s["key_x"], s["key_y"]]])


def transport_of(s):
    """From the key's space to the query's."""
    return transports(preset_of(s).frames(positions_of(s)))[0, 1]


def test_the_pictures_hold_circles_and_vectors_and_drawing_by_hand_never_changes_their_size(call):
    states = random_states(200, seed=5)
    for s, reach in zip(states, call("reachOf", [[s] for s in states])):
        both = torch.nn.functional.normalize(query_and_key(s), dim=-1) * 1.25
        seen = [both[0], both[1], transport_of(s) @ both[1], *preset_of(s).pull_back(both, positions_of(s))]
        circles = [s["scale"] ** (-s[name] / 2) for name in ("query", "key")]
        assert reach >= max(1.45, float(torch.stack(seen).norm(dim=-1).max()), *circles) - 1e-9
        assert reach <= 1.46 or reach < 1.42 * max(float(torch.stack(seen).norm(dim=-1).max()), *circles)
    elsewhere = [s | {"key_x": 0.1, "key_y": -0.2, "query_x": 0} for s in states]
    assert call("reachOf", [[s] for s in elsewhere]) == call("reachOf", [[s] for s in states])


# In a browser --------------------------------------------------------------------------------------------------------


def circles(place, kind):
    """Middle and radius of the three circles of a kind, from left to right: query's, reference, key's."""
    found = place.page.locator(f"#one circle.{kind}")
    return [[float(each.get_attribute(name)) for name in ("cx", "cy", "r")] for each in found.all()]


def tips(place, tone):
    """Where the shafts of a tone end, as numbers of their space, from left to right."""
    ends = []
    for each in place.page.locator(f"#one svg path.geo-vector.{tone}").all():
        line = re.match(r"M(\S+) (\S+)L(\S+) (\S+)$", each.get_attribute("d"))
        if line:
            x0, y0, x1, y1 = map(float, line.groups())
            unit = next(r for cx, cy, r in circles(place, "plain") if abs(cx - x0) < 0.2 and abs(cy - y0) < 0.2)
            ends.append([(x1 - x0) / unit, (y0 - y1) / unit])
    return float64(ends)


@pytest.mark.parametrize("width", [760, 360])
def test_the_picture_shows_rulers_frames_and_arrows_of_the_three_spaces(place, width):
    place.page.set_viewport_size({"width": width, "height": 1400})
    for s in random_states(3, seed=6):
        place.set(**s)
        preset, positions = preset_of(s), positions_of(s)
        unit = circles(place, "plain")[0][2]
        wanted = [unit * s["scale"] ** (-s["query"] / 2), unit, unit * s["scale"] ** (-s["key"] / 2)]
        assert [r for _, _, r in circles(place, "ball")] == pytest.approx(wanted, abs=0.15)
        q, k = query_and_key(s)
        middle = preset.pull_back(query_and_key(s), positions)
        cool = torch.stack([transport_of(s) @ k, middle[1], k])
        assert_close(tips(place, "geo-cool"), cool, rtol=0, atol=0.3 / unit)
        assert_close(tips(place, "geo-warm"), torch.stack([q, middle[0]]), rtol=0, atol=0.3 / unit)
        # The first axis of each frame ends on the ruler's circle, in the direction of T e1.
        drawn = [re.findall(r"[-\d.]+", each.get_attribute("d")) for each in place.page.locator("#one .frame").all()]
        ends = float64([[float(each[2]) - float(each[0]), float(each[1]) - float(each[3])] for each in drawn]) / unit
        axes = torch.cat([preset.frames(positions), torch.eye(2)[None].double()])[[0, 2, 1], :, 0]
        assert_close(ends, axes, rtol=0, atol=0.3 / unit)
        # All words stand inside, and the picture's own pixels are the screen's.
        outside = """() => { const all = document.querySelector("#one svg").getBoundingClientRect();
          return [...document.querySelectorAll("#one svg text")].map((e) => e.getBoundingClientRect())
            .filter((b) => b.left < all.left - 1 || b.right > all.right + 1 || b.bottom > all.bottom + 1).length; }"""
        assert place.page.evaluate(outside) == 0
        picture = place.page.locator("#one svg")
        assert numbers_in(picture.get_attribute("viewBox"))[2] == pytest.approx(picture.bounding_box()["width"], abs=1)


def test_the_sentences_say_equal_scores_and_equal_lengths(place):
    for s in random_states(4, seed=7):
        place.set(**s)
        preset, positions, both = preset_of(s), positions_of(s), query_and_key(s)
        score, length = map(numbers_in, place.page.locator("#one .geo-say").all_text_contents())
        expected = preset.literal_scores(both, both, positions)[0, 1].item()
        assert score == pytest.approx([expected, expected, float(both[0] @ both[1])], abs=0.0051)
        own = squared_length(both[1], preset.metrics(positions)[1]).sqrt().item()
        arrived = (transport_of(s) @ both[1]).norm().item()
        assert length == pytest.approx([own, own, both[1].norm().item(), arrived], abs=0.0051)
    place.set(key_x=0.0, key_y=0.0)  # without length there is no arrow
    assert len(tips(place, "geo-cool")) == 0
