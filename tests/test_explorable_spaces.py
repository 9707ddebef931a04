"""Three spaces: metric, frames, arrival and score are geolib's, and the picture shows what the numbers say."""

from __future__ import annotations

import math
import random
import re

import pytest
import torch
from explorable_kit import Place, axe_violations, node_functions, state_of
from torch.testing import assert_close

from geolib.transport import literal_scores, rotation_preset, squared_length, transports

# In Node: the numbers ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def call(tmp_path_factory):
    """call(name, [arguments, ...]): the results of the module's function of that name."""
    return node_functions("spaces.js", tmp_path_factory.mktemp("modules"))


def random_states(count, seed=0):
    draw = random.Random(seed)
    ranges = {"query": (0, 8), "key": (0, 8), "scale": (0.7, 1.3), "angle": (-1.5, 1.5)}
    ranges |= dict.fromkeys(("key_x", "key_y", "query_x", "query_y"), (-1.25, 1.25))
    return [{name: draw.uniform(*between) for name, between in ranges.items()} for _ in range(count)]


def float64(values):
    return torch.tensor(values, dtype=torch.float64)


def preset_of(s):
    return rotation_preset(float64(s["scale"]).log(), float64([s["angle"]]))


def positions_of(s):
    return float64([s["query"], s["key"]])


def query_and_key(s):
    return float64([[s["query_x"], s["query_y"]], [s["key_x"], s["key_y"]]])


def test_metrics_and_frames_are_those_of_the_rotation_preset(call):  # RF-6, RF-7, RF-11
    states = random_states(30)
    arguments = [[s, s["query"]] for s in states]
    metrics, frames, back = (call(name, arguments) for name in ("metricAt", "frameAt", "tangentMapping"))
    for s, metric, frame, inverse in zip(states, metrics, frames, back):
        preset, m = preset_of(s), float64([s["query"]])
        assert_close(float64(metric), preset.metrics(m)[0], rtol=0, atol=1e-6)
        assert_close(float64(frame), preset.frames(m)[0], rtol=0, atol=1e-6)
        assert_close(float64(inverse), preset.frames(m)[0].inverse(), rtol=0, atol=1e-6)


def test_the_key_arrives_as_the_transport_carries_it(call):  # RF-2, RF-8
    states = random_states(30, seed=1)
    for s, found, carry in zip(states, call("spaces", [[s] for s in states]), call("transport", [[s] for s in states])):
        expected, (q, k) = transports(preset_of(s).frames(positions_of(s)))[0, 1], query_and_key(s)
        assert_close(float64(carry), expected, rtol=0, atol=1e-6)
        assert_close(float64(found["arrival"]["k"]), expected @ k, rtol=0, atol=1e-6)
        assert found["home"]["k"] == k.tolist()
        assert found["arrival"]["q"] == q.tolist()


def test_both_scores_are_the_literal_score_and_the_middle_holds_what_is_pulled_back(call):  # RF-9, RF-13, RF-14
    states = random_states(30, seed=2)
    for s, found in zip(states, call("spaces", [[s] for s in states])):
        preset, positions, both = preset_of(s), positions_of(s), query_and_key(s)
        expected = literal_scores(both, both, preset.metrics(positions), preset.frames(positions))[0, 1].item()
        assert found["score"] == pytest.approx(expected, abs=1e-6)
        assert found["reference"] == pytest.approx(expected, abs=1e-6)
        assert found["plain"] == pytest.approx(float(both[0] @ both[1]), abs=1e-12)
        middle = float64([found["middle"]["q"], found["middle"]["k"]])
        assert_close(middle, preset.pull_back(both, positions), rtol=0, atol=1e-6)


def test_the_key_is_as_long_on_arrival_as_at_home(call):  # RF-1
    states = random_states(30, seed=3)
    for s, found in zip(states, call("spaces", [[s] for s in states])):
        metric = preset_of(s).metrics(float64([s["key"]]))[0]
        expected = squared_length(query_and_key(s)[1], metric).sqrt().item()
        for where in ("home", "middle", "arrival"):
            assert found["lengths"][where] == pytest.approx(expected, abs=1e-6)


def test_vectors_on_the_unit_circle_have_length_one(call):  # RF-6
    states = random_states(30, seed=4)
    for s, radius in zip(states, call("radiusAt", [[s, s["key"]] for s in states])):
        turn = float64(s["angle"])
        on_it = radius * torch.stack([turn.cos(), turn.sin()])
        length = squared_length(on_it, preset_of(s).metrics(float64([s["key"]]))[0])
        assert float(length) == pytest.approx(1, abs=1e-6)


def test_the_pictures_hold_circles_and_vectors_and_drawing_by_hand_never_changes_their_size(call):
    states = random_states(200, seed=5)
    for s, reach in zip(states, call("reachOf", [[s] for s in states])):
        preset, both = preset_of(s), torch.nn.functional.normalize(query_and_key(s), dim=-1) * 1.25
        p = transports(preset.frames(positions_of(s)))[0, 1]
        seen = torch.stack([both[0], both[1], p @ both[1], *preset.pull_back(both, positions_of(s))]).norm(dim=-1)
        circles = [s["scale"] ** (-s[name] / 2) for name in ("query", "key")]
        assert reach >= max(1.45, float(seen.max()), *circles) - 1e-9
        assert reach <= 1.46 or reach < 1.42 * max(float(seen.max()), *circles)
    elsewhere = [s | {"key_x": 0.1, "key_y": -0.2, "query_x": 0} for s in states]
    assert call("reachOf", [[s] for s in elsewhere]) == call("reachOf", [[s] for s in states])


def test_the_sentence_for_screen_readers_names_the_state(call):
    state = {"query": 2, "key": 4, "scale": 0.81, "angle": 0, "key_x": 1, "key_y": 0, "query_x": 1, "query_y": 0}
    (said,) = call("describe", [[state]])
    assert said == (
        "query at 2, key at 4; unit circles of radius 1.23 at the query, 1 in the reference space, 1.52 at the key; "
        "score 0.53 at the query, 0.53 in the reference space; length of the key 0.66 at home, 0.66 on arrival"
    )


# In a browser --------------------------------------------------------------------------------------------------------


@pytest.fixture
def place(browser):
    """A page with one explorable; what goes wrong in it fails the test."""
    opened = Place(browser, "ThreeSpaces", state_of("ThreeSpaces"))
    yield opened
    opened.close()


def numbers(text):
    return [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", text.replace("−", "-"))]


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


def test_the_question_and_the_keys_position_come_first(place):
    assert place.page.locator("#one p").first.text_content().endswith("which of the three circles change?")
    first = place.page.locator("#one input").first
    assert first.evaluate("(e) => e.labels[0].textContent") == "Key’s position n"


@pytest.mark.parametrize("width", [760, 360])
def test_the_picture_shows_rulers_frames_and_arrows_of_the_three_spaces(place, width):
    place.page.set_viewport_size({"width": width, "height": 1400})
    for s in random_states(5, seed=6):
        place.set(**s)
        preset, positions = preset_of(s), positions_of(s)
        unit = circles(place, "plain")[0][2]
        wanted = [unit * s["scale"] ** (-s["query"] / 2), unit, unit * s["scale"] ** (-s["key"] / 2)]
        assert [r for _, _, r in circles(place, "ball")] == pytest.approx(wanted, abs=0.15)
        q, k = query_and_key(s)
        middle = preset.pull_back(query_and_key(s), positions)
        arrived = transports(preset.frames(positions))[0, 1] @ k
        assert_close(tips(place, "geo-cool"), torch.stack([arrived, middle[1], k]), rtol=0, atol=0.3 / unit)
        assert_close(tips(place, "geo-warm"), torch.stack([q, middle[0]]), rtol=0, atol=0.3 / unit)
        # The first axis of each frame ends on the ruler's circle, in the direction of T e1.
        drawn = [re.findall(r"[-\d.]+", each.get_attribute("d")) for each in place.page.locator("#one .frame").all()]
        ends = float64([[float(each[2]) - float(each[0]), float(each[1]) - float(each[3])] for each in drawn]) / unit
        axes = torch.cat([preset.frames(positions), torch.eye(2)[None].double()])[[0, 2, 1], :, 0]
        assert_close(ends, axes, rtol=0, atol=0.3 / unit)


def test_the_sentences_say_equal_scores_and_equal_lengths(place):
    for s in [state_of("ThreeSpaces"), *random_states(3, seed=7)]:
        s = {name: value for name, value in s.items() if name != "share"}
        place.set(**s)
        preset, positions, both = preset_of(s), positions_of(s), query_and_key(s)
        score, length = map(numbers, place.page.locator("#one .geo-say").all_text_contents())
        expected = preset.literal_scores(both, both, positions)[0, 1].item()
        assert score == pytest.approx([expected, expected, float(both[0] @ both[1])], abs=0.0051)
        own = squared_length(both[1], preset.metrics(positions)[1]).sqrt().item()
        arrived = (transports(preset.frames(positions))[0, 1] @ both[1]).norm().item()
        assert length == pytest.approx([own, own, both[1].norm().item(), arrived], abs=0.0051)


@pytest.mark.parametrize("width", [760, 360])
@pytest.mark.parametrize("hand", ["drag", "swipe"])
def test_a_hand_draws_the_key_and_the_query_where_they_live(place, hand, width):
    place.page.set_viewport_size({"width": width, "height": 1400})
    place.settle()
    unit = circles(place, "plain")[0][2]
    reaches = place.page.locator("#one .geo-reach")
    for i, name in enumerate(["query", "key"]):  # both start at (1, 0)
        getattr(place, hand)(reaches.nth(i), -1.5 * unit, -0.75 * unit)
        values = place.values()
        assert [values[f"{name}_x"], values[f"{name}_y"]] == pytest.approx([-0.5, 0.75], abs=0.6 / unit)
    place.set(scale=0.7, query=8.0, key=0.0)  # a smaller unit
    smaller = circles(place, "plain")[0][2]
    assert smaller < unit / 2
    getattr(place, hand)(reaches.nth(1), 0.5 * smaller, 0)
    assert [place.values()["key_x"], place.values()["key_y"]] == pytest.approx([0, 0.75], abs=1.2 / smaller)


def test_a_vector_drawn_too_long_stops_at_the_longest(place):
    place.drag(place.page.locator("#one .geo-reach").nth(1), 60, -90)
    values = place.values()
    assert math.hypot(values["key_x"], values["key_y"]) == pytest.approx(1.25, abs=0.01)


def test_arrow_keys_move_the_key_along_its_positions(place):
    slider = place.page.get_by_label("Key’s position n")
    slider.press("ArrowRight")
    place.settle()
    assert place.values()["key"] == 4.25
    slider.press("End")
    place.settle()
    assert place.values()["key"] == 8
    assert "key at 8;" in place.page.locator("#one svg").get_attribute("aria-label")


def test_a_vector_without_length_draws_no_arrow_and_breaks_nothing(place):
    place.set(key_x=0.0, key_y=0.0)
    assert len(tips(place, "geo-cool")) == 0
    assert "0.00 at home = 0.00 on arrival" in place.page.locator("#one .geo-say").nth(1).text_content()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [760, 360])
def test_no_text_is_smaller_than_eleven_pixels_or_outside_or_against_the_rules_of_access(place, width, scheme):
    place.page.evaluate(f"document.documentElement.dataset.theme = '{scheme}'")
    place.page.evaluate(f"document.body.style.background = '{'#ffffff' if scheme == 'light' else '#14181e'}'")
    place.page.set_viewport_size({"width": width, "height": 1400})
    place.settle()
    # The picture's own pixels are the screen's, so a font's size is what the reader sees.
    box = place.page.locator("#one svg").bounding_box()
    assert numbers(place.page.locator("#one svg").get_attribute("viewBox"))[2] == pytest.approx(box["width"], abs=1)
    sizes = place.page.evaluate(
        "[...document.querySelectorAll('#one :is(text, tspan, p, output, label)')]"
        ".map((e) => parseFloat(getComputedStyle(e).fontSize))"
    )
    assert min(sizes) >= 11
    for s in [{}, *random_states(4, seed=8)]:
        place.set(**s)
        outside = """() => { const all = document.querySelector("#one svg").getBoundingClientRect();
          return [...document.querySelectorAll("#one svg text")].map((e) => e.getBoundingClientRect())
            .filter((b) => b.left < all.left - 1 || b.right > all.right + 1 || b.bottom > all.bottom + 1).length; }"""
        assert place.page.evaluate(outside) == 0
    assert axe_violations(place.page, "#one") == []
