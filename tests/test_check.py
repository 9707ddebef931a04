"""The checker accepts right answers by any means and turns wrong ones away with a reason."""

import math

import pytest
import torch

from geolib.check import check
from geolib.connection import to_frames
from geolib.lie import exp_skew, log_rotation, upper_entries
from geolib.rotations import rotate_pairs
from geolib.sympow import direction_moment, embed


def paired(a, b, count):
    """Mean and standard deviation of the differences over common seeds, the latter over the root of count."""
    differences = torch.tensor([a[seed] - b[seed] for seed in a.keys() & b.keys()], dtype=torch.float64)
    return float(differences.mean()), float(differences.std()) / math.sqrt(count)


def with_gate(q, k, positions, c, sign=1):
    """Queries and keys with one more feature: 1 and c times the key's position."""
    longer = lambda x, more: torch.cat([x, more[:, None]], -1)  # noqa: E731
    return longer(q, torch.ones_like(positions)), longer(k, sign * c * positions)


QUARTER = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)


def rotation_vector(R):
    """The vector of a rotation of space, from its logarithm."""
    x12, x13, x23 = upper_entries(log_rotation(R))
    return torch.stack([-x23, x13, -x12])


def cayley_back(X):
    """2 tan(X/2), as 2 (R - I)(R + I)^-1."""
    R, one = exp_skew(X), torch.eye(len(X), dtype=X.dtype)
    return 2 * (R - one) @ torch.linalg.inv(R + one)


def blind_direction(X1, X2):
    """Where the sign of the Pfaffian of width 6 changes: found by bisection over half a circle."""

    def pfaffian(t):
        X = math.cos(t) * X1 + math.sin(t) * X2
        four = lambda a, b, c, d: X[a, b] * X[c, d] - X[a, c] * X[b, d] + X[a, d] * X[b, c]  # noqa: E731
        rest = [[k for k in range(1, 6) if k != j] for j in range(1, 6)]
        return sum((-1) ** (j + 1) * X[0, j] * four(*rest[j - 1]) for j in range(1, 6))

    low, high = 0.0, math.pi  # of opposite signs: the degree is odd
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if pfaffian(low) * pfaffian(middle) > 0 else (low, middle)
    return torch.tensor([math.cos(low), math.sin(low)], dtype=torch.float64)


RIGHT = {
    "attention: temperature": lambda lead, weight: lead / math.log(weight / (1 - weight)),
    "attention: count": lambda weight, score: math.exp(score) * (1 / weight - 1),
    "attention: gate": with_gate,
    "rotations: three mirrors": lambda a, b, c: a - b + c,
    "rotations: complex RoPE": lambda x, p, theta: rotate_pairs(x, p[:, None] * theta),
    "rotations: smallest base": lambda dim, tokens: (tokens / (2 * math.pi)) ** (dim / (dim - 2)),
    "rotations: which shift": lambda q, k, theta: (
        (math.atan2(float(q[1]), float(q[0])) - math.atan2(float(k[1]), float(k[0]))) / float(theta)
    ),
    "lie: another logarithm": lambda X: X - 4 * math.pi * QUARTER,
    "lie: axis and angle": rotation_vector,
    "lie: Cayley": cayley_back,
    "manifolds: pendulum": lambda latitude: 23.934 / math.sin(math.radians(latitude)),
    "transport: metrics": lambda P, metric: P[0].mT @ metric @ P[0],
    "conformal: start of the slow law": lambda share, tokens, beta: share ** (math.log(beta) / math.log(tokens)),
    "conformal: take a factor apart": lambda a, c: (a * c, a / c),
    "sympow: with a constant": lambda v, p: embed(torch.cat([torch.ones(1), v]), p),
    "sympow: lifted mirror": lambda d, p: (-1) ** math.comb(d + p - 1, d),
    "sympow: how many keys": lambda d, p, share: (1 / share - 1) / direction_moment(d, p),
    "locality: half width": lambda sigma: sigma * math.sqrt(2 * math.log(2)),
    "locality: half axes": lambda sigma, E: sigma * torch.linalg.eigvalsh(E).flip(0).rsqrt(),
    "locality: symmetries of a distance": lambda E: (2 if E[0, 1] else 4) * (2 if E[0, 0] == E[1, 1] else 1),
    "locality: window": lambda sigma, error: sigma * math.sqrt(-2 * math.log(error)),
    "locality: sink": lambda lse, kept: lse + math.log(1 / kept - 1),
    "riemannformer: paired difference": lambda a, b: paired(a, b, len(a.keys() & b.keys())),
    "recurrences: slope": lambda memory: -math.log(1 - 1 / memory),
    "recurrences: scan": lambda one, two: (one[0] * two[0], two[0] * one[1] + two[1]),
    "connection: comb": lambda steps: torch.linalg.inv(to_frames(steps)),
    "liere: blind direction": blind_direction,
    "liere: velocity": lambda vy, vx: [[2 * vy - vx, -2, 1], [-vx - vy, 1, 1]],
    "documents: bits per byte": lambda nats, tokens, size: nats * tokens / size / math.log(2),
    "documents: second half": lambda short, whole: 2 * whole - short,
    "documents: gate for a distance": lambda t: (1 - 1 / (t + 1)) ** 0.5,
}
WRONG = {
    "attention: temperature": lambda lead, weight: math.log(weight / (1 - weight)) / lead,
    "attention: count": lambda weight, score: 1 / weight - 1,
    "attention: gate": lambda q, k, positions, c: with_gate(q, k, positions, c, sign=-1),
    "rotations: three mirrors": lambda a, b, c: a + b + c,
    "rotations: complex RoPE": lambda x, p, theta: rotate_pairs(x, -p[:, None] * theta),
    "rotations: smallest base": lambda dim, tokens: tokens / (2 * math.pi),
    "rotations: which shift": lambda q, k, theta: 0.0,
    "lie: another logarithm": lambda X: X + math.pi * QUARTER,
    "lie: axis and angle": lambda R: -rotation_vector(R),
    "lie: Cayley": lambda X: X,
    "manifolds: pendulum": lambda latitude: -23.934 / math.sin(math.radians(latitude)),
    "transport: metrics": lambda P, metric: P[:, 0].mT @ metric @ P[:, 0],
    "conformal: start of the slow law": lambda share, tokens, beta: share ** (1 / (tokens - 1)),
    "conformal: take a factor apart": lambda a, c: (a / c, a * c),
    "sympow: with a constant": lambda v, p: torch.cat([torch.ones(1), embed(v, p)]),
    "sympow: lifted mirror": lambda d, p: (-1) ** p,
    "sympow: how many keys": lambda d, p, share: 1 / direction_moment(d, p),
    "locality: half width": lambda sigma: sigma * math.sqrt(math.log(2)),
    "locality: half axes": lambda sigma, E: sigma * torch.linalg.eigvalsh(E).sqrt(),
    "locality: symmetries of a distance": lambda E: 8,
    "locality: window": lambda sigma, error: 3 * sigma,
    "locality: sink": lambda lse, kept: lse - math.log(1 / kept - 1),
    "riemannformer: paired difference": lambda a, b: paired(a, b, 1),
    "recurrences: slope": lambda memory: 1 / memory,
    "recurrences: scan": lambda one, two: (one[0] * two[0], one[0] * two[1] + one[1]),
    "connection: comb": to_frames,
    "liere: blind direction": lambda X1, X2: torch.tensor([0.6, 0.8]),
    "liere: velocity": lambda vy, vx: [[vy, -1, 0], [2 * vy, -2, 0]],
    "documents: bits per byte": lambda nats, tokens, size: nats * size / tokens / math.log(2),
    "documents: second half": lambda short, whole: 2 * short - whole,
    "documents: gate for a distance": lambda t: t / (t + 1),
}


@pytest.mark.parametrize("exercise", RIGHT)
def test_right_answers_pass(exercise, capsys):
    assert check(exercise, RIGHT[exercise])
    assert "correct" in capsys.readouterr().out


@pytest.mark.parametrize("exercise", WRONG)
def test_wrong_answers_fail_with_a_reason(exercise, capsys):
    assert not check(exercise, WRONG[exercise])
    assert "not yet" in capsys.readouterr().out


def test_an_answer_that_raises_is_reported(capsys):
    assert not check("rotations: three mirrors", lambda a, b, c: 1 / 0)
    assert "ZeroDivisionError" in capsys.readouterr().out


def test_an_answer_of_the_wrong_shape_is_reported(capsys):
    assert not check("rotations: complex RoPE", lambda x, p, theta: torch.zeros(2))
    assert "shape (2,)" in capsys.readouterr().out


def test_an_unknown_exercise_is_an_error():
    with pytest.raises(ValueError, match=r"exercise: got 'rotations: nothing'; one of '.*'rotations: three mirrors'"):
        check("rotations: nothing", 1)
