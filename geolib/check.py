"""A checker for the exercises: ``check("rotations: three mirrors", answer)``.

The checkers stand in the order of the chapters. Each recomputes what it needs by its own means and names a case in
which a wrong answer fails.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from geolib._checks import require
from geolib.attention import attention_weights
from geolib.connection import Connection
from geolib.lie import cayley, entry_count, exp_skew, skew_matrix, spectrum
from geolib.locality import attenuation
from geolib.manifolds import segment, sphere_spherical, transport_matrix
from geolib.recurrence import alibi_log_gates, log_decay, signal_to_noise

Faults = Iterator[str | None]  # what is wrong with an answer, one after the other; None where nothing is
Checker = Callable[[Any], Faults]
Half = tuple[Tensor, Tensor]  # of a text: the product of its gates, and its state

CHECKERS: dict[str, Checker] = {}


def _checker(exercise: str) -> Callable[[Checker], Checker]:
    """Register a function as the checker of an exercise."""

    def register(function: Checker) -> Checker:
        CHECKERS[exercise] = function
        return function

    return register


def _far(got: float, wanted: float, most: float = 1e-6) -> bool:
    """Whether a number is farther from what it should be than this; NaN is far from every number."""
    return not abs(got - wanted) <= most


def _differs(got: Any, expected: Tensor, case: str) -> str | None:
    """What is wrong with a tensor of numbers, by more than 1e-5, or None."""
    got = torch.as_tensor(got, dtype=torch.float64)
    if got.shape != expected.shape:
        return f"{case} gives shape {tuple(got.shape)}, it should be {tuple(expected.shape)}"
    gap = float((got - expected).abs().max())
    return None if gap < 1e-5 else f"{case} is off by {gap:.2g}"


def check(exercise: str, answer: Any) -> bool:
    """Whether an answer, a number or a function, to the exercise of this name is right; what was found is printed.

    ValueError for an unknown exercise.

    >>> check("rotations: smallest base", lambda dim, tokens: 10000.0)
    rotations: smallest base: not yet: dim 64 and 4096 tokens: at base 10000 the slowest pair makes 0.08693 turns
    False
    """
    require(exercise in CHECKERS, "exercise", repr(exercise), f"one of {', '.join(map(repr, CHECKERS))}")
    try:
        found = next(filter(None, CHECKERS[exercise](answer)), None)
    except Exception as error:  # the reader's function may fail in any way; say how instead of stopping the notebook
        found = f"your answer raised {type(error).__name__}: {error}"
    print(f"{exercise}: " + ("correct" if found is None else f"not yet: {found}"))
    return found is None


@_checker("attention: temperature")
def _temperature(answer: Callable[[float, float], float]) -> Faults:
    """answer(c, a): the temperature at which a lead of c has the weight a, by the weights there."""
    query = torch.ones(1, 1, dtype=torch.float64)
    for lead, weight in ((1.0, 0.6), (3.0, 0.95), (0.2, 0.999)):
        keys = torch.tensor([[lead], [0.0]], dtype=torch.float64)
        found = float(attention_weights(query, keys, scale=1 / float(answer(lead, weight)))[0, 0])
        if _far(found, weight):
            yield f"with a lead of {lead} your temperature gives the weight {found:.4f}, not {weight}"


@_checker("attention: count")
def _count(answer: Callable[[float, float], float]) -> Faults:
    """answer(a, c): the place that finds the weight a on a start token of score c, by counting there."""
    for place, score in ((0, 0.0), (5, 0.0), (9, 2.0), (30, -1.0)):
        weight = math.exp(score) / (math.exp(score) + sum(1 for _ in range(place)))
        found = float(answer(weight, score))
        if _far(found, place):
            yield f"at place {place} with c = {score:g} you say {found:.3f}"


@_checker("attention: gate")
def _gate(answer: Callable[[Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor]]) -> Faults:
    """answer(q, k, positions, c): longer queries and keys; their causal weights are those of the gate -c (m - n)."""
    draw = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 7, 4, generator=draw, dtype=torch.float64)
    positions = torch.arange(7, dtype=torch.float64)
    gate = -0.3 * (positions[:, None] - positions)
    longer = answer(q, k, positions, 0.3)
    found = attention_weights(*longer, causal=True, scale=1.0)
    yield _differs(found, attention_weights(q, k, log_gate=gate, causal=True, scale=1.0), "the causal weights")


@_checker("manifolds: pendulum")
def _pendulum(answer: Callable[[float], float]) -> Faults:
    """answer(latitude): hours for a full turn, positive for clockwise, by carrying an arrow for one day."""
    for latitude in (48.85, -35.0, 80.0):
        colatitude = math.radians(90 - latitude)
        day = segment(torch.tensor([colatitude, 0.0]), torch.tensor([colatitude, 0.01 * math.tau]))  # a hundredth
        arrow = transport_matrix(sphere_spherical(), day)[:, 0]  # the vector that pointed south
        east = float(arrow[1]) * math.sin(colatitude)
        expected = 0.01 * 23.934 * math.tau / -math.atan2(east, float(arrow[0]))  # south to east is counter-clockwise
        hours = float(answer(latitude))
        if _far(hours, expected, 1e-3 * abs(expected)):
            yield f"at latitude {latitude} a full turn takes {expected:.2f} hours, you say {hours:.2f}"


@_checker("rotations: three mirrors")
def _three_mirrors(answer: Callable[[float, float, float], float]) -> Faults:
    """The angle of the mirror that S(a) S(b) S(c) is, by following two vectors."""
    for a, b, c in [(0.0, 0.0, 0.3), (0.2, 1.1, -0.4), (2.0, -3.0, 0.5)]:
        images = []
        for z in (1 + 0j, 1j):
            for line in (c, b, a):  # a mirror at angle t sends z to e^{2it} conj(z)
                z = complex(math.cos(2 * line), math.sin(2 * line)) * z.conjugate()
            images.append([z.real, z.imag])
        t = float(answer(a, b, c))
        expected = torch.tensor(images, dtype=torch.float64)
        got = [[math.cos(2 * t), math.sin(2 * t)], [math.sin(2 * t), -math.cos(2 * t)]]
        yield _differs(got, expected, f"the mirror at your angle for ({a}, {b}, {c})")


@_checker("rotations: smallest base")
def _smallest_base(answer: Callable[[int, int], float]) -> Faults:
    """answer(dim, tokens): the base at which the slowest pair makes one full turn in that many tokens."""
    for dim, tokens in [(64, 4096), (32, 1000), (128, 65536)]:
        base = float(answer(dim, tokens))
        slowest = min(base ** (-2 * i / dim) for i in range(dim // 2))
        turns = slowest * tokens / (2 * math.pi)
        if _far(turns, 1):
            yield f"dim {dim} and {tokens} tokens: at base {base:.6g} the slowest pair makes {turns:.4g} turns"


def _turned_score(q: Tensor, k: Tensor, turn: Tensor) -> Tensor:
    """The score of one pair when the key has turned by these radians."""
    return q[0] * (turn.cos() * k[0] - turn.sin() * k[1]) + q[1] * (turn.sin() * k[0] + turn.cos() * k[1])


@_checker("rotations: which shift")
def _which_shift(answer: Callable[[Tensor, Tensor, Tensor], float]) -> Faults:
    """answer(q, k, theta): the shift n - m at which the score of one pair is largest, within one turn."""
    generator = torch.Generator().manual_seed(5)
    for _ in range(4):
        q, k = torch.randn(2, 2, generator=generator, dtype=torch.float64)
        theta = 0.2 + torch.rand((), generator=generator, dtype=torch.float64)
        best = float(_turned_score(q, k, torch.linspace(0, 2 * math.pi, 20001, dtype=torch.float64)).max())
        got = float(_turned_score(q, k, torch.tensor(float(answer(q, k, theta)) * float(theta), dtype=torch.float64)))
        if _far(got, best, 1e-5):
            yield f"at your shift the score is {got:.5f}, but {best:.5f} can be reached"


@_checker("transport: metrics")
def _metrics(answer: Callable[[Tensor, Tensor], Tensor]) -> Faults:
    """answer(P, metric): the metrics under which transports keep lengths, from frames that are written down."""
    generator = torch.Generator().manual_seed(4)
    for d in (1, 3):
        frames, common = torch.randn(2, 5, d, d, generator=generator, dtype=torch.float64) + 2 * torch.eye(d)
        inverses = torch.linalg.inv(frames)
        root = common[0]
        expected = inverses.mT @ (root @ root.mT) @ inverses  # T^T M T is root root^T at every token
        transports = torch.einsum("mij,njk->mnik", frames, inverses)
        yield _differs(answer(transports, expected[0]), expected, f"five tokens with {d} features")


@_checker("conformal: take a factor apart")
def _apart(answer: Callable[[float, float], Sequence[float]]) -> Faults:
    """answer(a, c): the scales s and t with a^m c^n = s^((m+n)/2) t^((m-n)/2)."""
    for a, c in [(0.9, 1.0), (0.8, 1.3), (2.0, 0.5)]:
        s, t = (float(scale) for scale in answer(a, c))
        if not (s > 0 and t > 0):
            yield f"a = {a}, c = {c}: your scales {s:.4g} and {t:.4g} must both be above 0"
        for m, n in [(1, 1), (2, -2), (5, 3)]:
            given, made = a**m * c**n, s ** ((m + n) / 2) * t ** ((m - n) / 2)
            if not math.isclose(given, made, rel_tol=1e-6):
                yield f"a = {a}, c = {c}: at m = {m}, n = {n} the factor is {given:.5g}, yours make {made:.5g}"


@_checker("lie: another logarithm")
def _another_logarithm(answer: Callable[[Tensor], Tensor]) -> Faults:
    """answer(X): a skew 2x2 matrix other than X with the same exponential."""
    for entry in (0.5, -2.0, 3.1):
        X = skew_matrix(torch.tensor([entry], dtype=torch.float64), 2)
        other = torch.as_tensor(answer(X), dtype=torch.float64)
        if other.shape != X.shape:
            yield f"the answer has shape {tuple(other.shape)}, it should be (2, 2)"
        if not torch.allclose(other, -other.mT, atol=1e-8):
            yield "the answer is not skew"
        if torch.allclose(other, X, atol=1e-3):
            yield "the answer is X itself"
        yield _differs(exp_skew(other), exp_skew(X), f"the exponential of the answer for x_12 = {entry}")


@_checker("lie: axis and angle")
def _axis_and_angle(answer: Callable[[Tensor], Tensor]) -> Faults:
    """answer(R): the vector a with R x turned about a by |a| < pi."""
    generator = torch.Generator().manual_seed(6)
    for angle in (0.01, 1.0, math.pi / 2, 3.0):
        a = torch.randn(3, generator=generator, dtype=torch.float64)
        a = angle * a / a.norm()
        R = exp_skew(skew_matrix(torch.stack([-a[2], a[1], -a[0]]), 3))
        yield _differs(answer(R), a, f"a turn by {angle:.2f}")


@_checker("lie: Cayley")
def _cayley_for_the_exponential(answer: Callable[[Tensor], Tensor]) -> Faults:
    """answer(X): the skew Z whose Cayley transform is exp(X), the rates of X below pi."""
    generator = torch.Generator().manual_seed(7)
    for width in (2, 5):
        entries = torch.randn(width * (width - 1) // 2, generator=generator, dtype=torch.float64)
        X = skew_matrix(0.8 * entries / entries.norm() * math.pi, width)
        Z = torch.as_tensor(answer(X), dtype=torch.float64)
        if Z.shape != X.shape or not torch.allclose(Z, -Z.mT, atol=1e-6):
            yield f"for {width} features the answer is no skew matrix of that size"
        yield _differs(cayley((Z - Z.mT) / 2), exp_skew(X), f"Cayley of the answer for {width} features")


@_checker("locality: half width")
def _half_width(answer: Callable[[float], float]) -> Faults:
    """answer(sigma): the distance at which the Gaussian is one half."""
    for sigma in (0.5, 2.0, 7.0):
        distance = float(answer(sigma))
        places = torch.tensor([[0.0], [distance]], dtype=torch.float64)
        found = float(attenuation(places, torch.tensor([sigma], dtype=torch.float64))[0, 1])
        if distance < 0:
            yield f"sigma = {sigma}: a distance is not negative, yours is {distance:.5g}"
        if _far(found, 0.5):
            yield f"sigma = {sigma}: at your distance the Gaussian is {found:.5g}"


@_checker("locality: half axes")
def _half_axes(answer: Callable[[float, Tensor], Sequence[float]]) -> Faults:
    """answer(sigma, E): the half axes of the ellipse Omega = e^(-1/2), the shorter first."""
    for sigma, axes, turn in ((1.0, (1.0, 3.0), 0.0), (2.0, (0.5, 1.5), 0.7)):
        c, s = math.cos(turn), math.sin(turn)
        frame = torch.tensor([[c, -s], [s, c]], dtype=torch.float64)
        shape = frame @ torch.diag(torch.tensor(axes, dtype=torch.float64) ** -2) @ frame.mT
        expected = sigma * torch.tensor(axes, dtype=torch.float64)
        got = torch.tensor([float(x) for x in answer(sigma, shape)], dtype=torch.float64)
        yield _differs(got, expected, f"sigma = {sigma}, E = {shape.tolist()}")


@_checker("locality: symmetries of a distance")
def _symmetries(answer: Callable[[Tensor], int]) -> Faults:
    """answer(E): how many of the square's eight symmetries keep |p|_E, by moving the cells of a grid."""
    cells = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
    moves: list[Callable[[int, int], tuple[int, int]]] = [
        lambda i, j: (i, j), lambda i, j: (-i, j), lambda i, j: (i, -j), lambda i, j: (-i, -j),
        lambda i, j: (j, i), lambda i, j: (-j, i), lambda i, j: (j, -i), lambda i, j: (-j, -i),
    ]  # fmt: skip
    for a, b, c in [(1.0, 0.0, 1.0), (1.0, 0.0, 2.0), (1.0, 0.3, 2.0), (1.0, 0.3, 1.0)]:
        length = {(i, j): a * i * i + 2 * b * i * j + c * j * j for i, j in cells}
        expected = sum(all(math.isclose(length[move(*cell)], length[cell]) for cell in cells) for move in moves)
        matrix = torch.tensor([[a, b], [b, c]])
        if int(answer(matrix)) != expected:
            yield f"for E = {matrix.tolist()} your count is {int(answer(matrix))}, it should be {expected}"


@_checker("locality: window")
def _window(answer: Callable[[float, float], float]) -> Faults:
    """answer(sigma, error): the radius beyond which keys may be dropped, for values of length at most 1."""
    for sigma, error in ((1.0, 0.1), (3.0, 0.001)):
        radius = float(answer(sigma, error))
        found = math.exp(-(radius**2) / (2 * sigma**2))
        if radius < 0:
            yield f"sigma = {sigma}, error {error}: a radius is not negative, yours is {radius:.5g}"
        if not math.isclose(found, error, rel_tol=1e-6):
            yield f"sigma = {sigma}, error {error}: keys just beyond your radius still have the factor {found:.5g}"


@_checker("locality: sink")
def _sink(answer: Callable[[float, float], float]) -> Faults:
    """answer(lse, kept): the score of a key of value zero that leaves the share kept to keys of this log-sum-exp."""
    for lse, kept in ((0.0, 0.5), (2.0, 0.9), (-1.0, 0.01)):
        scores = torch.tensor([lse, float(answer(lse, kept))], dtype=torch.float64)
        yield _differs(scores.softmax(0)[0], torch.tensor(kept, dtype=torch.float64), f"lse {lse}, kept {kept}")


@_checker("sympow: with a constant")
def _with_a_constant(answer: Callable[[Tensor, int], Tensor]) -> Faults:
    """answer(v, p): features of v (d,) whose inner products are (1 + v.w)^p, no more of them than needed."""
    generator = torch.Generator().manual_seed(8)
    for d, p in ((2, 2), (3, 4), (1, 3)):
        vectors = torch.randn(6, d, generator=generator, dtype=torch.float64)
        features = torch.stack([torch.as_tensor(answer(v, p)) for v in vectors])
        yield _differs(features @ features.mT, (1 + vectors @ vectors.mT) ** p, f"d = {d} and p = {p}")
        fewest = math.comb(d + p, p)
        if features.shape[1] != fewest:
            yield f"d = {d} and p = {p}: {features.shape[1]} features, {fewest} are enough"


@_checker("sympow: lifted mirror")
def _lifted_mirror(answer: Callable[[int, int], Any]) -> Faults:
    """answer(d, p): the determinant of the lift of a mirror, counted from its eigenvalues."""
    for d, p in ((2, 2), (3, 2), (2, 3), (4, 2), (3, 4), (5, 3)):
        # A mirror flips one feature: monomials of odd degree in it change their sign.
        flipped = sum(math.comb(d - 2 + p - a, p - a) for a in range(1, p + 1, 2))
        if float(answer(d, p)) != (-1) ** flipped:
            yield f"d = {d} and p = {p}: {flipped} features change their sign"


@_checker("sympow: how many keys")
def _how_many_keys(answer: Callable[[int, int, float], float]) -> Faults:
    """answer(d, p, share): random keys beside one that equals the query, which then has this share of the weight."""
    for d, p, share in ((64, 2, 0.5), (64, 4, 0.9), (16, 6, 0.25), (2, 2, 0.5)):
        moment = 1.0
        for i in range(p // 2):
            moment *= (2 * i + 1) / (d + 2 * i)
        got = float(answer(d, p, share))
        left = 1 / (1 + got * moment)
        if _far(left, share):
            yield f"d = {d}, p = {p}: {got:.6g} random keys leave it {left:.4g} of the weight, not {share}"


@_checker("recurrences: slope")
def _slope(answer: Callable[[float], float]) -> Faults:
    """answer(memory): ALiBi's slope for this memory, by adding up what it leaves of twenty memories of tokens."""
    for memory in (2.0, 10.0, 100.0):
        slope = torch.tensor([float(answer(memory))], dtype=torch.float64)
        kept = float(log_decay(alibi_log_gates(slope, int(20 * memory)))[0, 0, -1].exp().sum())
        if _far(kept / memory, 1, 1e-4):
            yield f"for {memory:g} tokens your slope {float(slope):.5g} leaves {kept:.4g} tokens"


@_checker("recurrences: scan")
def _scan(answer: Callable[[Half, Half], Half]) -> Faults:
    """answer(first, second): gates and state of a text from those of its halves, by reading it token by token."""
    draw = torch.Generator().manual_seed(0)
    gates = 0.2 + 0.8 * torch.rand(7, generator=draw, dtype=torch.float64)
    added = torch.randn(7, 3, 5, generator=draw, dtype=torch.float64)  # v phi(k)^T of each token

    def read(tokens: range) -> Half:
        product, state = torch.ones((), dtype=torch.float64), torch.zeros(3, 5, dtype=torch.float64)
        for m in tokens:
            product, state = product * gates[m], gates[m] * state + added[m]
        return product, state

    for cut in (3, 6):
        found = answer(read(range(cut)), read(range(cut, 7)))
        if len(found) != 2:
            yield f"the answer has {len(found)} parts, it should be the product of gates and the state"
        for mine, right, what in zip(found, read(range(7)), ("the product of gates", "the state")):
            yield _differs(mine, right, f"{what} of seven tokens cut after {cut}")


@_checker("connection: comb")
def _comb(answer: Callable[[Connection], Tensor]) -> Faults:
    """answer(steps): a change of gauge that makes a comb of the grid trivial, by applying it with plain inverses."""
    generator = torch.Generator().manual_seed(10)
    for rows, columns, d in ((2, 2, 1), (3, 4, 3)):
        case = f"a grid of {rows} x {columns} nodes with {d} features"
        draw = [(rows - 1, columns), (rows, columns - 1)]
        one = 2 * torch.eye(d, dtype=torch.float64)
        links = [one + torch.randn(*cells, d, d, generator=generator, dtype=torch.float64) for cells in draw]
        C = answer(Connection(tuple(links)))
        if not isinstance(C, Tensor) or C.shape != (rows, columns, d, d):
            yield f"{case}: expected a tensor {(rows, columns, d, d)}, got {getattr(C, 'shape', type(C).__name__)}"
        teeth = C[:, 1:] @ links[1] @ torch.linalg.inv(C[:, :-1])
        back = C[1:, 0] @ links[0][:, 0] @ torch.linalg.inv(C[:-1, 0])
        for part, what in ((teeth, "steps along axis 1"), (back, "steps along axis 0 in the first column")):
            yield _differs(part, (one / 2).expand_as(part), f"{case}: the {what}")


@_checker("riemannformer: paired difference")
def _paired_difference(answer: Callable[[dict[int, float], dict[int, float]], tuple[float, float]]) -> Faults:
    """answer(a, b): mean and standard error of a - b over the common seeds."""
    for a, b in [({0: 0.5, 1: 0.6}, {0: 0.4, 1: 0.3}), ({0: 9.0, 2: 5.0, 7: 1.0, 3: 0.0}, {7: 4.0, 0: 6.0, 2: 5.0})]:
        differences = [a[seed] - b[seed] for seed in a if seed in b]
        count, mean = len(differences), math.fsum(differences) / len(differences)
        # Half the mean squared difference of all pairs is the variance with n - 1.
        spread = math.fsum((x - y) ** 2 for x in differences for y in differences) / (2 * count * (count - 1))
        expected = torch.tensor([mean, math.sqrt(spread / count)], dtype=torch.float64)
        yield _differs([float(x) for x in answer(a, b)], expected, f"a = {a}, b = {b}")


@_checker("liere: blind direction")
def _blind_direction(answer: Callable[[Tensor, Tensor], Tensor]) -> Faults:
    """answer(X1, X2): a unit direction in which a plane of the skew 6x6 generators stands still."""
    generator = torch.Generator().manual_seed(0)
    entries = torch.randn(8, 2, entry_count(6), generator=generator, dtype=torch.float64)
    for X1, X2 in skew_matrix(entries, 6):
        u = torch.as_tensor(answer(X1, X2), dtype=torch.float64)
        if u.shape != (2,):
            yield f"the direction has shape {tuple(u.shape)}, it should be (2,)"
        yield _differs(u.norm(), torch.ones((), dtype=torch.float64), "the length of the direction")
        least = float(spectrum(u[0] * X1 + u[1] * X2)[-1])
        if least > 1e-4:
            yield f"the slowest plane of {u[0]:.3g} X1 + {u[1]:.3g} X2 turns at {least:.2g}, it should stand still"


@_checker("liere: velocity")
def _velocity(answer: Callable[[float, float], Tensor]) -> Faults:
    """answer(vy, vx): two rows (f_t, f_y, f_x) of clocks that stand still along that velocity and no other."""
    for vy, vx in ((0.0, 0.0), (1.0, -2.0), (0.5, 3.0)):
        rows = torch.as_tensor(answer(vy, vx), dtype=torch.float64)
        if rows.shape != (2, 3):
            yield f"the rows have shape {tuple(rows.shape)}, it should be (2, 3)"
        move = torch.tensor([1.0, vy, vx], dtype=torch.float64)
        yield _differs(rows @ move, torch.zeros(2, dtype=torch.float64), f"the turn along ({vy}, {vx})")
        # Another velocity would solve the same two equations unless their part in space is regular.
        if float(torch.linalg.det(rows[:, 1:]).abs()) < 1e-6:
            yield f"at ({vy}, {vx}) the clocks stand still along other velocities too"


@_checker("documents: bits per byte")
def _bits(answer: Callable[[float, int, int], float]) -> Faults:
    """answer(nats, tokens, bytes): by the probability of a whole text of tokens that are all alike likely."""
    for kinds, length, tokens in ((256, 1, 50), (256**3, 3, 20), (1000, 2, 7)):
        whole = tokens * math.log2(kinds) / (tokens * length)  # every token is one of `kinds` and `length` bytes long
        found = float(answer(math.log(kinds), tokens, tokens * length))
        if _far(found, whole, 1e-9):
            yield f"{tokens} tokens of {length} bytes, one of {kinds} each: that is {whole:.4g}, you have {found:.4g}"


@_checker("documents: gate for a distance")
def _best_gate(answer: Callable[[int], float]) -> Faults:
    """answer(t): the gate that reads best t tokens back, against its neighbours."""
    for t in (1, 10, 500):
        gate = float(answer(t))
        if not 0 < gate < 1:
            yield f"for t = {t} your gate {gate:.4g} is not between 0 and 1"
        here, *near = (
            signal_to_noise(t, 10**8, g, 16, 2) for g in (gate, gate * (1 - 1e-3 / t), 1 - (1 - gate) * 0.99)
        )
        if max(near) > here:
            yield f"for t = {t} a gate near your {gate:.6g} reads better"
