"""The general metric: its numbers are geolib's, and its three panels say one score."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from explorable_kit import float64, functions_of, numbers_in, place_of, states
from torch.testing import assert_close

from geolib.transport import general_preset, squared_length, transports

call = functions_of("metric.js")
opened, place = place_of("GeneralMetric")
KINDS = {"s1": (0.8, 1.2), "s2": (0.8, 1.2), "theta": (-45, 45), "n": (0, 8), "m": (0, 8)}
random_states = partial(states, **KINDS, key_angle=(-180, 180), query_angle=(-180, 180))


def log_scales_and_frequency(s):
    return float64([s["s1"], s["s2"]]).log(), float64([math.radians(s["theta"])])


def preset_of(s):
    return general_preset(*log_scales_and_frequency(s))


def key_and_query(s):
    angles = float64([s["key_angle"], s["query_angle"]]).deg2rad()
    return torch.stack([angles.cos(), angles.sin()], -1)


def test_metrics_frames_and_transport_are_those_of_the_general_preset(call):  # RF-A1, RF-A2, RF-A3
    states, v = random_states(30), [0.3, -1.2]
    metrics, frames = (call(name, [[s, s["m"]] for s in states]) for name in ("metricAt", "frameAt"))
    carried = call("carry", [[s, s["n"], s["m"], v] for s in states])
    for s, metric, frame, there in zip(states, metrics, frames, carried):
        both = preset_of(s).frames(float64([s["m"], s["n"]]))
        assert_close(float64(metric), preset_of(s).metrics(float64([s["m"]]))[0], rtol=0, atol=1e-6)
        assert_close(float64(frame), both[0], rtol=0, atol=1e-6)
        assert_close(float64(there), transports(both)[0, 1] @ float64(v), rtol=0, atol=1e-6)


def test_lengths_and_scores_are_the_presets_in_all_three_places(call):  # RF-A4, RF-A5, RF-1
    states = random_states(30, seed=2)
    for s, found in zip(states, call("places", [[s] for s in states])):
        positions, vectors = float64([s["n"], s["m"]]), key_and_query(s)
        lengths = squared_length(vectors, preset_of(s).metrics(positions)).sqrt().tolist()
        score = preset_of(s).literal_scores(vectors, vectors, positions)[1, 0].item()
        for place in ("n", "reference", "m"):
            measured = [found[place][name] for name in ("keyLength", "queryLength", "score")]
            assert measured == pytest.approx([*lengths, score], abs=1e-6)
        pulled = preset_of(s).pull_back(vectors, positions)
        assert_close(float64([found["reference"][name] for name in "kq"]), pulled, rtol=0, atol=1e-6)
        assert_close(float64([found["n"]["k"], found["m"]["q"]]), vectors, rtol=0, atol=1e-6)


def test_the_three_panels_say_the_same_lengths_and_the_same_score(place):
    (state,) = random_states(1, seed=5)
    place.set(**state)
    assert len(set(place.page.locator("#one .panels p").all_text_contents())) == 1
    score = preset_of(state).scores(*([key_and_query(state)] * 2), float64([state["n"], state["m"]]))[1, 0].item()
    plain = math.cos(math.radians(state["key_angle"] - state["query_angle"]))
    assert numbers_in(place.text(".geo-say")) == pytest.approx([score] * 3 + [plain], abs=0.0051)


def test_what_is_at_home_has_its_own_name_and_what_is_carried_another(place):
    for i, home in ((0, "k"), (1, None), (2, "q")):
        panel = place.page.locator("#one .panels > div").nth(i)
        for name, tone in (("k", "cool"), ("q", "warm")):
            assert (panel.locator(f"svg .carried.geo-{tone}").count() == 1) == (name != home)
            text = panel.locator(f"svg text.geo-{tone}").text_content()
            assert text.endswith(name)
            assert (text != name) == (name != home)
