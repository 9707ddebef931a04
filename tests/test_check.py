"""The checker accepts right answers by any means and turns wrong ones away with a reason."""

import math

import pytest
import torch

from geolib.check import CHECKERS, check
from geolib.connection import Connection, to_frames
from geolib.lie import exp_skew, log_rotation, upper_entries
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
    """Where X1 + u X2 is singular: a real root u of its determinant, which has three roots, each twice."""
    roots = torch.linalg.eigvals(torch.linalg.solve(X2, -X1))
    u = roots[roots.imag.abs().argmin()].real
    return torch.stack([torch.ones_like(u), u]) / torch.hypot(torch.ones_like(u), u)


def with_one(v, p):
    """The features of a vector with a constant in front."""
    return embed(torch.cat([torch.ones(1), v]), p)


RIGHT = {
    "attention: temperature": lambda lead, weight: lead / math.log(weight / (1 - weight)),
    "attention: count": lambda weight, score: math.exp(score) * (1 / weight - 1),
    "attention: gate": with_gate,
    "rotations: three mirrors": lambda a, b, c: a - b + c,
    "rotations: smallest base": lambda dim, tokens: (tokens / (2 * math.pi)) ** (dim / (dim - 2)),
    "rotations: which shift": lambda q, k, theta: (
        (math.atan2(float(q[1]), float(q[0])) - math.atan2(float(k[1]), float(k[0]))) / float(theta)
    ),
    "lie: another logarithm": lambda X: X - 4 * math.pi * QUARTER,
    "lie: axis and angle": rotation_vector,
    "lie: Cayley": cayley_back,
    "manifolds: pendulum": lambda latitude: 23.934 / math.sin(math.radians(latitude)),
    "transport: metrics": lambda P, metric: P[0].mT @ metric @ P[0],
    "conformal: take a factor apart": lambda a, c: (a * c, a / c),
    "sympow: with a constant": lambda v, p: with_one(v, p),
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
    "documents: gate for a distance": lambda t: (1 - 1 / (t + 1)) ** 0.5,
}


@pytest.mark.parametrize("exercise", RIGHT)
def test_right_answers_pass(exercise, capsys):
    assert check(exercise, RIGHT[exercise])
    assert "correct" in capsys.readouterr().out


# Answers that are right in most cases: what a checker looks at must leave each of them out.
NEARLY = {
    "lie: another logarithm, none other": lambda X: X,
    "lie: axis and angle, from the skew part alone": lambda R: from_the_skew_part(R),
    "lie: axis and angle, a right angle at most": lambda R: rotation_vector(R).clamp(-math.pi / 2, math.pi / 2),
    "lie: Cayley, right for one plane": lambda X: X * math.tan(X.norm() / 8**0.5) / (X.norm() / 8**0.5),
    "attention: temperature, a weight of 0.6": lambda lead, weight: lead / math.log(1.5),
    "attention: count, scores of 0": lambda weight, score: 1 / weight - 1,
    "attention: gate, relative by the first token alone": lambda q, k, p, c: with_gate(q, k, p.clamp(max=1), c),
    "rotations: three mirrors, the middle one at 0": lambda a, b, c: a + c,
    "rotations: smallest base, 64 features": lambda dim, tokens: (tokens / (2 * math.pi)) ** (64 / 62),
    "rotations: which shift, a frequency of 1": lambda q, k, theta: RIGHT["rotations: which shift"](q, k, 1.0),
    "manifolds: pendulum, hours without a sign": lambda latitude: 23.934 / abs(math.sin(math.radians(latitude))),
    "manifolds: pendulum, a day of the sun": lambda latitude: 24 / math.sin(math.radians(latitude)),
    "transport: metrics, orthogonal frames": lambda P, metric: metric.expand(len(P), -1, -1),
    "transport: metrics, the transpose forgotten": lambda P, metric: P[0] @ metric @ P[0],
    "conformal: take a factor apart, c = 1": lambda a, c: (a, a),
    "conformal: take a factor apart, a scale below 0": lambda a, c: (-a * c, -a / c),
    "sympow: with a constant, more features": lambda v, p: torch.cat([with_one(v, p), torch.zeros(1)]),
    "sympow: with a constant, the second power": lambda v, p: with_one(v, 2),
    "sympow: lifted mirror, even powers": lambda d, p: (-1) ** math.comb(d + p - 2, d - 1),
    "sympow: how many keys, a half": lambda d, p, share: 1 / direction_moment(d, p),
    "locality: half width, in front": lambda sigma: -sigma * math.sqrt(2 * math.log(2)),
    "locality: half width, a width of 2": lambda sigma: 2 * math.sqrt(2 * math.log(2)),
    "locality: half axes, the longer first": lambda sigma, E: sigma * torch.linalg.eigvalsh(E).rsqrt(),
    "locality: half axes, a width of 1": lambda sigma, E: torch.linalg.eigvalsh(E).flip(0).rsqrt(),
    "locality: half axes, along the rows": lambda sigma, E: sigma * E.diagonal().rsqrt(),
    "locality: symmetries of a distance, no mixed term": lambda E: 4 * (2 if E[0, 0] == E[1, 1] else 1),
    "locality: symmetries of a distance, equal axes": lambda E: 4 if E[0, 1] else 8,
    "locality: symmetries of a distance, 4 or 8": lambda E: 8 if E[0, 0] == E[1, 1] else 4,
    "locality: window, inwards": lambda sigma, error: -sigma * math.sqrt(-2 * math.log(error)),
    "locality: window, a tenth": lambda sigma, error: sigma * math.sqrt(-2 * math.log(0.1)),
    "locality: sink, a half": lambda lse, kept: lse,
    "locality: sink, lse 0": lambda lse, kept: math.log(1 / kept - 1),
    "riemannformer: paired difference, by order": lambda a, b: in_order(a.values(), b.values()),
    "riemannformer: paired difference, by the sorted order": lambda a, b: in_order(
        *([x[seed] for seed in sorted(x)] for x in (a, b))
    ),
    "riemannformer: paired difference, the number of all seeds": lambda a, b: paired(a, b, len(a)),
    "recurrences: slope, long memories": lambda memory: 1 / memory + 1 / (2 * memory**2),
    "recurrences: scan, the state of the second": lambda one, two: (one[0] * two[0], two[1]),
    "recurrences: scan, no state": lambda one, two: (one[0] * two[0],),
    "recurrences: scan, the gates of the second": lambda one, two: (two[0], two[0] * one[1] + two[1]),
    "connection: comb, the teeth alone": lambda steps: teeth_alone(steps),
    "connection: comb, orthogonal links": lambda steps: to_frames(steps).mT,
    "connection: comb, the other comb": lambda steps: the_other_comb(steps),
    "liere: blind direction, none": lambda X1, X2: torch.zeros(2, dtype=torch.float64),
    "liere: blind direction, twice as long": lambda X1, X2: 2 * blind_direction(X1, X2),
    "liere: velocity, at rest": lambda vy, vx: [[0, 1, 0], [0, 0, 1]],
    "liere: velocity, one clock twice": lambda vy, vx: [[vy + vx, -1, -1]] * 2,
    "documents: bits per byte, bytes for tokens": lambda nats, tokens, size: nats / math.log(2),
    "documents: bits per byte, three bytes a token": lambda nats, tokens, size: nats / 3 / math.log(2),
    "documents: gate for a distance, too open": lambda t: (1 - 1 / (t + 1)) ** 0.25,
    "documents: gate for a distance, long distances": lambda t: math.exp(-1 / (2 * t)),
    "documents: gate for a distance, closed": lambda t: 0.0,
    "documents: gate for a distance, never": lambda t: 1.0,
}


def in_order(a, b):
    """Paired by where they stand, whatever their seeds."""
    return paired(dict(enumerate(a)), dict(enumerate(b)), min(len(a), len(b)))


def from_the_skew_part(R):
    """The axis as long as the angle, where that is below a right angle."""
    x12, x13, x23 = upper_entries((R - R.mT) / 2)
    a = torch.stack([-x23, x13, -x12])
    return a * a.norm().asin() / a.norm()


def teeth_alone(steps):
    """A change of gauge that makes each row trivial, and leaves the first column as it is."""
    right = torch.linalg.inv(to_frames(steps))
    return torch.linalg.inv(right[:, :1]) @ right


def the_other_comb(steps):
    """The one with its back along axis 1."""
    flipped = Connection((steps.steps[1].transpose(0, 1), steps.steps[0].transpose(0, 1)))
    return torch.linalg.inv(to_frames(flipped)).transpose(0, 1)


@pytest.mark.parametrize("answer", NEARLY)
def test_an_answer_that_is_right_in_some_cases_fails(answer, capsys):
    assert not check(answer.partition(",")[0], NEARLY[answer])
    said = capsys.readouterr().out
    assert "not yet" in said
    assert "raised" not in said


def test_every_exercise_is_held_by_right_and_nearly_right_answers():
    assert RIGHT.keys() == {answer.partition(",")[0] for answer in NEARLY} == CHECKERS.keys()


def over(answer, change):
    """An answer with all its numbers changed."""
    if isinstance(answer, torch.Tensor):
        return change(answer)
    return type(answer)(over(x, change) for x in answer) if isinstance(answer, (tuple, list)) else change(float(answer))


@pytest.mark.parametrize("number", [math.nan, math.inf, 0.0])
@pytest.mark.parametrize("exercise", RIGHT)
def test_what_is_no_number_is_no_answer(exercise, number):
    """NaN is not greater than any tolerance."""
    assert not check(exercise, lambda *given: over(RIGHT[exercise](*given), lambda x: x * number))


@pytest.mark.parametrize(
    ("answer", "reason"), [(lambda R: 1 / 0, "ZeroDivisionError"), (lambda R: torch.zeros(2), "shape (2,)")]
)
def test_an_answer_that_raises_or_has_the_wrong_shape_is_reported(answer, reason, capsys):
    assert not check("lie: axis and angle", answer)
    assert reason in capsys.readouterr().out


def test_an_unknown_exercise_is_an_error():
    with pytest.raises(ValueError, match=r"exercise: got 'rotations: nothing'; one of '.*'rotations: three mirrors'"):
        check("rotations: nothing", 1)


# A transpose that was forgotten ---------------------------------------------------------------------------------------


def flipped(given):
    """Square matrices the other way round, in a tuple too, and whether that makes a difference."""
    if isinstance(given, tuple):
        parts = [flipped(each) for each in given]
        return tuple(each for each, _ in parts), any(other for _, other in parts)
    if isinstance(given, Connection):
        turned, other = flipped(given.steps)
        return Connection(turned), other
    if not isinstance(given, torch.Tensor) or given.dim() < 2 or given.shape[-1] != given.shape[-2]:
        return given, False
    return given.mT, not torch.allclose(given.mT, given)


EVEN = {"liere: blind direction"}  # both generators with the other sign: the same direction


@pytest.mark.parametrize("exercise", sorted(RIGHT.keys() - EVEN))
def test_a_matrix_without_its_transpose_is_turned_away(exercise):
    """Wherever a checker deals in matrices, in an answer or in what the answer reads."""
    different = []

    def transposed(given):
        turned, other = flipped(given)
        different.append(other)
        return turned

    right = RIGHT[exercise]
    for answer in (lambda *given: transposed(right(*given)), lambda *given: right(*transposed(given))):
        different.clear()
        assert check(exercise, answer) != any(different)
