"""The general metric: its numbers are geolib's, and it answers the reader's hand."""

from __future__ import annotations

import math
import random

import pytest
import torch
from explorable_kit import Place, node_functions, state_of
from torch.testing import assert_close

from geolib.conformal import general_metric, unit_ball
from geolib.transport import general_preset, squared_length, transports

# In Node: the numbers ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def call(tmp_path_factory):
    """call(name, [arguments, ...]): the results of the module's function of that name."""
    return node_functions("metric.js", tmp_path_factory.mktemp("modules"))


def random_states(count, seed=0):
    draw = random.Random(seed)
    ranges = {"s1": (0.8, 1.2), "s2": (0.8, 1.2), "theta": (-45, 45), "n": (0, 8), "m": (0, 8)}
    ranges |= {"key_angle": (-180, 180), "query_angle": (-180, 180)}
    return [{name: draw.uniform(*between) for name, between in ranges.items()} for _ in range(count)]


def float64(values):
    return torch.tensor(values, dtype=torch.float64)


def log_scales_and_frequency(s):
    return float64([s["s1"], s["s2"]]).log(), float64([math.radians(s["theta"])])


def preset_of(s):
    return general_preset(*log_scales_and_frequency(s))


def key_and_query(s):
    angles = float64([s["key_angle"], s["query_angle"]]).deg2rad()
    return torch.stack([angles.cos(), angles.sin()], -1)


def test_metrics_and_frames_are_those_of_the_general_preset(call):  # RF-A1, RF-A2, RF-A3
    states = random_states(30)
    metrics, frames = (call(name, [[s, s["m"]] for s in states]) for name in ("metricAt", "frameAt"))
    for s, metric, frame in zip(states, metrics, frames):
        assert_close(float64(metric), preset_of(s).metrics(float64([s["m"]]))[0], rtol=0, atol=1e-6)
        assert_close(float64(frame), preset_of(s).frames(float64([s["m"]]))[0], rtol=0, atol=1e-6)


def test_carried_vectors_are_those_of_the_transport(call):  # RF-A3
    states = random_states(30, seed=1)
    for s, found in zip(states, call("carry", [[s, s["n"], s["m"], [0.3, -1.2]] for s in states])):
        p = transports(preset_of(s).frames(float64([s["m"], s["n"]])))
        assert_close(float64(found), p[0, 1] @ float64([0.3, -1.2]), rtol=0, atol=1e-6)


def test_lengths_and_scores_are_the_presets_in_all_three_places(call):  # RF-A4, RF-A5, RF-1
    states = random_states(30, seed=2)
    for s, found in zip(states, call("places", [[s] for s in states])):
        positions, vectors = float64([s["n"], s["m"]]), key_and_query(s)
        lengths = squared_length(vectors, preset_of(s).metrics(positions)).sqrt().tolist()
        score = preset_of(s).literal_scores(vectors, vectors, positions)[1, 0].item()
        for place in ("n", "reference", "m"):
            measured = [found[place][name] for name in ("keyLength", "queryLength", "score")]
            assert measured == pytest.approx([*lengths, score], abs=1e-6)
        assert_close(
            float64([found["reference"]["k"], found["reference"]["q"]]),
            preset_of(s).pull_back(vectors, positions),
            rtol=0,
            atol=1e-6,
        )
        assert_close(float64([found["n"]["k"], found["m"]["q"]]), vectors, rtol=0, atol=1e-6)


def test_ellipses_lie_on_the_unit_balls_of_the_metric(call):  # RF-A1
    states = random_states(30, seed=3)
    for s, points in zip(states, call("ellipse", [[s, s["m"], 12] for s in states])):
        metric = general_metric(float64([s["m"]]), *log_scales_and_frequency(s))[0]
        assert_close(squared_length(float64(points), metric), torch.ones(13).double(), rtol=0, atol=1e-6)
        ball, own = unit_ball(metric, 2001).norm(dim=-1), float64(points).norm(dim=-1)
        assert own.max() <= ball.max() + 1e-6
        # Every third of twelve points is a half axis.
        assert own.max().item() == pytest.approx(ball.max().item(), abs=1e-4)
        assert own.min().item() == pytest.approx(ball.min().item(), abs=1e-4)


def test_the_sentence_for_screen_readers_names_the_state(call):
    state = {"s1": 1, "s2": 1, "theta": 30, "n": 1, "m": 3.25, "key_angle": 0, "query_angle": 0}
    (said,) = call("describe", [[state]])
    score = f"{math.cos(math.radians(67.5)):.2f}"
    assert said == (
        "at position 1, in the reference space and at position 3.25: length of k 1.00, 1.00, 1.00, "
        f"length of q 1.00, 1.00, 1.00, score {score}, {score}, {score}"
    )


# In a browser --------------------------------------------------------------------------------------------------------


@pytest.fixture
def place(browser):
    """A page with one explorable; what goes wrong in it fails the test."""
    place = Place(browser, "GeneralMetric", state_of("GeneralMetric"))
    yield place
    place.close()


@pytest.mark.parametrize("way", ["drag", "swipe"])
def test_positions_follow_a_hand_along_the_rails(place, way):
    page, move = place.page, getattr(place, way)
    ticks = page.locator("#one .line text:not(.halo)")
    one, two = (ticks.nth(n).bounding_box() for n in (0, 1))
    gap = two["x"] - one["x"]
    reaches = page.locator("#one .line .geo-reach")
    move(reaches.nth(0), 1.5 * gap, 0)
    move(reaches.nth(1), -4 * gap, 0)
    values = place.values()
    assert (values["n"], values["m"]) == (3.5, 2)


@pytest.mark.parametrize("way", ["drag", "swipe"])
def test_a_hand_turns_the_key_and_the_query_where_they_live(place, way):
    page, move = place.page, getattr(place, way)
    for i, (name, turned) in enumerate([("key_angle", 120), ("query_angle", -75)]):
        reach = page.locator("#one .panels .geo-reach").nth(i)
        picture = page.locator("#one .panels svg").nth(2 * i).bounding_box()
        box = reach.bounding_box()
        x, y = picture["x"] + picture["width"] / 2, picture["y"] + picture["height"] / 2
        to = (x + 60 * math.cos(math.radians(turned)), y - 60 * math.sin(math.radians(turned)))
        move(reach, to[0] - box["x"] - box["width"] / 2, to[1] - box["y"] - box["height"] / 2)
        assert place.values()[name] == pytest.approx(turned, abs=1)


def test_the_three_panels_say_the_same_lengths_and_the_same_score(place):
    state = random_states(1, seed=5)[0]
    place.set(**state)
    texts = place.page.locator("#one .panels p").all_text_contents()
    assert len(texts) == 3
    assert len(set(texts)) == 1
    score = preset_of(state).scores(*([key_and_query(state)] * 2), float64([state["n"], state["m"]]))[1, 0].item()
    said = place.page.locator("#one .geo-say").first.text_content().replace("−", "-")
    assert f"{score:.2f} = {score:.2f} = {score:.2f};" in said
    plain = math.cos(math.radians(state["key_angle"] - state["query_angle"]))
    assert f"plain q · k: {plain:.2f}" in said
