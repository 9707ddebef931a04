"""What the three forms cost: counted by loops over single numbers, and where one overtakes another."""

import collections
import itertools
import math
import typing

import pytest

from geolib.recurrence import (
    Work,
    attention_work,
    best_chunk,
    chunked_work,
    crossing_length,
    ideal_chunk,
    practical_chunk,
    recurrent_work,
)
from geolib.sympow import dimension


class Counted:
    """A number that counts the multiplications it takes part in, by a label."""

    counts: typing.ClassVar = collections.Counter()
    label = ""

    def __mul__(self, other):
        Counted.counts[Counted.label] += 1
        return Counted()

    def __add__(self, other):
        return Counted()

    __radd__ = __add__


def row(n):
    return [Counted() for _ in range(n)]


def dot(a, b):
    return sum((x * y for x, y in zip(a, b)), Counted())


def one_embedding(v, power):
    Counted.label = "powers"
    monomial = {(i,): v[i] for i in range(len(v))}
    for _ in range(power - 1):
        monomial = {(i, *w): v[i] * m for w, m in monomial.items() for i in range(w[0] + 1)}
    return [m * Counted() for m in monomial.values()]


def attend_by_scalars(tokens, dim, power):
    keys, values, decays = [], [], []
    for _ in range(tokens):
        q, g = row(dim), Counted()
        Counted.label = "gates"
        decays = [g if b is None else b * g for b in decays] + [None]
        keys.append(row(dim))
        values.append(row(dim))
        weights = []
        for key, b in zip(keys, decays):
            Counted.label = "products"
            score = dot(q, key)
            Counted.label = "powers"
            weight = score
            for _ in range(power - 1):
                weight = weight * score
            Counted.label = "gates"
            weights.append(weight if b is None else weight * b)
        Counted.label = "products"
        for value, weight in zip(values, weights):
            [weight * x for x in value]


def recur_by_scalars(tokens, dim, power):
    for i in range(tokens):
        q, key, value = one_embedding(row(dim), power), one_embedding(row(dim), power), row(dim)
        if i == 0:
            Z, S = key, [row(len(key)) for _ in range(dim)]
        else:
            Counted.label = "gates"
            Z, S = [z * Counted() for z in Z], [[s * Counted() for s in r] for r in S]
        Counted.label = "products"
        [[x * m for m in key] for x in value]
        [dot(r, q) for r in [*S, Z]]


def chunk_by_scalars(tokens, dim, power, chunk):
    sizes = [min(chunk, tokens - start) for start in range(0, tokens, chunk)]
    big = dimension(dim, power)
    for index, size in enumerate(sizes):
        attend_by_scalars(size, dim, power)
        first, last = index == 0, index == len(sizes) - 1
        from_start = to_end = None
        for _ in range(size):
            if not first:
                q = one_embedding(row(dim), power)
                Counted.label = "products"
                read = [dot(row(big), q) for _ in range(dim + 1)]
                Counted.label = "gates"
                from_start = Counted() if from_start is None else from_start * Counted()
                [from_start * x for x in read]
            if not last:
                key = one_embedding(row(dim), power)
                Counted.label = "gates"
                to_end = Counted() if to_end is None else to_end * Counted()
                written = [to_end * x for x in row(dim + 1)]
                Counted.label = "products"
                [[x * m for m in key] for x in written]
        if not first and not last:
            Counted.label = "gates"
            [[s * Counted() for s in row(big)] for _ in range(dim + 1)]


def counts_of(run, *args):
    Counted.counts.clear()
    run(*args)
    return tuple(Counted.counts[name] for name in ("products", "powers", "gates"))


@pytest.mark.parametrize(("tokens", "dim", "power"), [(1, 2, 2), (5, 3, 2), (4, 2, 4), (7, 2, 6)])
def test_work_of_attention_and_recurrent_forms_is_what_a_loop_over_numbers_counts(tokens, dim, power):  # CS-CROSS
    assert counts_of(attend_by_scalars, tokens, dim, power) == attention_work(tokens, dim, power)
    assert counts_of(recur_by_scalars, tokens, dim, power) == recurrent_work(tokens, dim, power)


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 8, 20])
def test_work_of_the_chunked_form_is_what_a_loop_over_numbers_counts(chunk):  # CS-CROSS, CS-chunk
    for tokens, dim, power in ((8, 3, 2), (7, 2, 4), (1, 2, 2)):
        assert counts_of(chunk_by_scalars, tokens, dim, power, chunk) == chunked_work(tokens, dim, power, chunk)


@pytest.mark.parametrize(("dim", "power"), [(1, 2), (4, 2), (8, 2), (3, 4), (64, 2)])
def test_best_chunk_has_the_least_work_of_all(dim, power):  # CS-CROSS
    for tokens in (1, 7, 86, 100, 999, 4_262, 12_000):
        work = [chunked_work(tokens, dim, power, chunk).total for chunk in range(1, tokens + 1)]
        assert chunked_work(tokens, dim, power, best_chunk(tokens, dim, power)).total == min(work)


@pytest.mark.parametrize(("dim", "power"), [(8, 2), (64, 2), (8, 4)])
def test_ideal_chunk_is_the_square_root_law(dim, power):  # CS-CROSS
    tokens = 3_628_800  # divisible by many lengths
    near = best_chunk(tokens, dim, power)
    least, ideal = (chunked_work(tokens, dim, power, c).total for c in (near, round(ideal_chunk(dim, power))))
    assert ideal <= 1.0001 * least
    assert ideal_chunk(dim, power) == pytest.approx(math.sqrt(dimension(dim, power)), rel=0.1)


def test_recurrent_form_overtakes_attention_near_twice_the_state_without_gates():  # CS-CROSS
    for power, about in ((2, 4160), (4, 1.5e6)):
        crossing = crossing_length(64, power, ("products",))
        assert crossing == pytest.approx(2 * dimension(64, power), rel=0.01)
        assert crossing == pytest.approx(about, rel=0.03)
        assert attention_work(crossing, 64, power).products >= recurrent_work(crossing, 64, power).products
        assert attention_work(crossing - 1, 64, power).products < recurrent_work(crossing - 1, 64, power).products
    assert crossing_length(64, 2) == pytest.approx(3 * dimension(64, 2), rel=0.04)


def test_crossing_length_is_the_first_by_brute_force():  # CS-CROSS
    for dim, power in ((1, 2), (2, 2), (3, 4), (8, 2)):
        gains = (attention_work(t, dim, power).total - recurrent_work(t, dim, power).total for t in itertools.count(1))
        assert crossing_length(dim, power) == next(t for t, gain in enumerate(gains, start=1) if gain >= 0)
    least = []
    for dim, part in itertools.product(range(1, 9), range(len(Work._fields))):
        gains = (attention_work(t, dim, 2)[part] - recurrent_work(t, dim, 2)[part] for t in itertools.count(1))
        first, gain = next((t, gain) for t, gain in enumerate(gains, start=1) if gain >= 0)
        assert crossing_length(dim, 2, (Work._fields[part],)) == first
        least.append(gain)
    assert 0 in least  # where both cost the same, the state is taken
    assert crossing_length(4, 2, ("gates",)) == 1  # before the second token nothing is gated


def test_chunked_form_costs_least_of_the_three_beyond_the_crossing():  # CS-CROSS
    for tokens in (8_192, 65_536):
        chunked = chunked_work(tokens, 64, 2, best_chunk(tokens, 64, 2)).total
        assert chunked < recurrent_work(tokens, 64, 2).total < attention_work(tokens, 64, 2).total
    assert best_chunk(2_048, 64, 2) == 2_048  # in short sequences the best chunk is the whole
    assert practical_chunk(64, 2) == 512
    assert practical_chunk(64, 4) == round(ideal_chunk(64, 4)) > 512


def test_one_recurrent_step_costs_a_constant_times_d_times_the_state():  # CS-cost
    for dim, power in itertools.product((8, 64, 256), (2, 4)):
        step = recurrent_work(1001, dim, power).total - recurrent_work(1000, dim, power).total
        assert 3 <= step / (dim * dimension(dim, power)) <= 3 + (2 + 2 * power) / dim + 1e-9
