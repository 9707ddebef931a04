"""How far back a gated state can be read."""

import math

import pytest
import torch
import torch.nn.functional as F

from geolib.recurrence import gate_for_distance, memory_length, recurrent_form, signal_to_noise
from geolib.sympow import direction_moment, embed

ENDLESS = 10**7


@pytest.mark.parametrize(("distance", "tokens", "gate", "dim", "power"), [(3, 20, 0.9, 6, 2), (2, 12, 1.0, 4, 4)])
def test_signal_and_noise_are_those_of_pairs_that_are_stored_and_read(distance, tokens, gate, dim, power):  # CS-REACH
    draw = torch.Generator().manual_seed(0)
    k = F.normalize(torch.randn(6000, 1, tokens, dim, generator=draw, dtype=torch.float64), dim=-1)
    signs = torch.randint(0, 2, (6000, 1, tokens, 1), generator=draw).double() * 2 - 1
    _, state = recurrent_form(k, k, signs, power, torch.full((6000, 1, tokens), gate).double().log())
    H = state.S[:, 0, 0] * 2.0 ** state.exponent.view(-1, 1)
    at = tokens - 1 - distance
    read = (H * embed(k[:, 0, at], power)).sum(-1) * signs[:, 0, at, 0]
    assert float(read.mean()) == pytest.approx(gate**distance, abs=5 * float(read.std()) / 6000**0.5)
    found = gate ** (2 * distance) / float(read.var())
    assert found == pytest.approx(signal_to_noise(distance, tokens, gate, dim, power), rel=0.12)


def test_without_gates_only_the_length_counts():
    found = {signal_to_noise(t, 50, 1.0, 8, 2) for t in (0, 7, 49)}
    assert len(found) == 1
    assert found.pop() == pytest.approx(1 / (direction_moment(8, 4) * 49))
    assert signal_to_noise(0, 1, 1.0, 8, 2) == math.inf
    assert signal_to_noise(2, 3, 0.9, 8, 2) == pytest.approx(0.81**2 / (direction_moment(8, 4) * (1 + 0.81)))


def test_with_gates_an_endless_document_costs_no_more_than_a_long_one():
    assert signal_to_noise(30, 10**4, 0.99, 32, 2) == pytest.approx(signal_to_noise(30, ENDLESS, 0.99, 32, 2))


@pytest.mark.parametrize("distance", [1, 4, 30, 500])
def test_the_best_gate_for_a_distance_is_the_square_root_of_t_over_t_plus_one(distance):  # CS-REACH
    best = gate_for_distance(distance)
    top = signal_to_noise(distance, ENDLESS, best, 32, 2)
    near = [best * (1 - 1e-2 / distance), 1 - (1 - best) * 0.98]
    assert all(signal_to_noise(distance, ENDLESS, gate, 32, 2) < top for gate in near)
    length = (distance + 1) * (1 + 1 / distance) ** distance
    assert top == pytest.approx(1 / (direction_moment(32, 4) * (length - 1)))


def test_the_best_gate_remembers_about_twice_the_distance():
    assert memory_length(gate_for_distance(5000)) == pytest.approx(10_001, rel=1e-3)


@pytest.mark.parametrize(
    ("argument", "values"),
    [
        ("distance", (5, 5, 0.9)),
        ("distance", (-1, 5, 0.9)),
        ("gate", (1, 5, 0.0)),
        ("gate", (1, 5, 1.001)),
        ("tokens", (0, 0, 0.9)),
    ],
)
def test_what_cannot_be_is_refused(argument, values):
    with pytest.raises(ValueError, match=rf"^{argument}: got"):
        signal_to_noise(*values, 8, 2)


@pytest.mark.parametrize("distance", [0, math.inf])
def test_a_distance_is_above_zero_and_finite(distance):
    with pytest.raises(ValueError, match=f"^distance: got {distance}"):
        gate_for_distance(distance)
