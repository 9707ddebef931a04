"""What the three forms cost, in multiplications, and where one overtakes another."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from geolib._checks import require
from geolib.recurrence._shared import check_count
from geolib.sympow import dimension

__all__ = [
    "Work", "attention_work", "best_chunk", "chunked_work", "crossing_length", "embedding_work", "ideal_chunk",
    "practical_chunk", "recurrent_work",
]  # fmt: skip


class Work(NamedTuple):
    """Multiplications for one head and one sequence, by what they serve; each comes with at most one addition.

    ``products`` are inner products and products with values, ``powers`` raise scores or make embeddings, ``gates`` are
    products of gates and what they multiply.
    Source: CS-CROSS.

    >>> Work(6, 2, 1).total
    9
    """

    products: int
    powers: int
    gates: int

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self)


def attention_work(tokens: int, dim: int, power: int) -> Work:
    """What the attention form costs for t tokens, d features and power p, values as wide as keys.

    t(t+1)/2 pairs: d for the score, p - 1 for its power, d for the value. Gates: t(t-1)/2 to multiply the weights of
    pairs of different tokens, (t-1)(t-2)/2 for the products b_ij = b_(i-1)j g_i. Divisions are not counted.
    Source: CS-CROSS.

    >>> attention_work(tokens=3, dim=2, power=2)
    Work(products=24, powers=6, gates=4)
    """
    check_count(tokens, "tokens")
    pairs = tokens * (tokens + 1) // 2
    return Work(2 * dim * pairs, (power - 1) * pairs, (tokens - 1) ** 2)


def embedding_work(dim: int, power: int) -> int:
    """What one embedding costs: one multiplication for each monomial of degree 2 ... p, and one for each weight.
    Source: CS-CROSS.

    >>> embedding_work(dim=2, power=2)
    6
    """
    return sum(dimension(dim, degree) for degree in range(2, power + 1)) + dimension(dim, power)


def recurrent_work(tokens: int, dim: int, power: int) -> Work:
    """What the recurrent form costs, values as wide as keys.

    For each token dD to write, (d+1)D to read and two embeddings; (d+1)D for the gate, from the second token on.
    Source: CS-CROSS, CS-cost (a step is O(dD)).

    >>> recurrent_work(tokens=3, dim=2, power=2)
    Work(products=45, powers=36, gates=18)
    """
    check_count(tokens, "tokens")
    big = dimension(dim, power)
    gates = (tokens - 1) * (dim + 1) * big
    return Work(tokens * (2 * dim + 1) * big, 2 * tokens * embedding_work(dim, power), gates)


def chunked_work(tokens: int, dim: int, power: int, chunk: int) -> Work:
    """What the chunked form costs, values as wide as keys; the last chunk may be shorter.

    Attention inside each chunk; outside, every token but the last chunk's is written to the state ((d+1)D) and every
    token but the first chunk's reads it ((d+1)D). Gates: c - 1 products to a chunk's start and to its end, d + 1 for
    each token written and each reading, and (d+1)D for each chunk the state passes whole.
    Source: CS-chunk, CS-CROSS.

    >>> chunked_work(65536, 64, 2, chunk=512).total < recurrent_work(65536, 64, 2).total
    True
    """
    check_count(tokens, "tokens")
    check_count(chunk, "chunk")
    chunk = min(chunk, tokens)
    chunks, last = -(-tokens // chunk), (tokens - 1) % chunk + 1
    full, ragged = attention_work(chunk, dim, power), attention_work(last, dim, power)
    moved = 2 * tokens - chunk - last  # tokens written plus tokens that read
    state = (dim + 1) * dimension(dim, power)
    return Work(
        (chunks - 1) * full.products + ragged.products + moved * state,
        (chunks - 1) * full.powers + ragged.powers + moved * embedding_work(dim, power),
        (chunks - 1) * full.gates + ragged.gates + moved * (dim + 2) - 2 * (chunks - 1) + max(0, chunks - 2) * state,
    )


def ideal_chunk(dim: int, power: int) -> float:
    """The chunk length with the fewest multiplications in a long sequence, sqrt((d+1) D / (d + (p-1)/2 + 1)).

    That is about sqrt(D): a longer chunk has more pairs, a shorter one passes the state on more often.
    Source: CS-CROSS.

    >>> round(ideal_chunk(64, 2), 2)
    45.43
    """
    # Per token: c (d + (p-1)/2 + 1) for the pairs with their gates, (d+1) D / c to pass the state on.
    return math.sqrt(((dim + 1) * dimension(dim, power)) / (dim + (power - 1) / 2 + 1))


def best_chunk(tokens: int, dim: int, power: int) -> int:
    """The chunk length with the fewest multiplications, exactly: in short sequences all tokens, the attention form.
    Source: CS-CROSS.

    >>> best_chunk(2048, 64, 2), best_chunk(65536, 64, 2)
    (2048, 46)
    """
    check_count(tokens, "tokens")
    near = range(1, min(tokens, 4 * math.ceil(ideal_chunk(dim, power))) + 1)
    longer = (-(-tokens // chunks) for chunks in range(1, tokens // len(near) + 2))  # the shortest with so many chunks
    return min((*near, *longer), key=lambda chunk: chunked_work(tokens, dim, power, chunk).total)


def practical_chunk(dim: int, power: int) -> int:
    """The chunk length used when none is given: the ideal one, and at least 512: narrower products do not pay.
    Source: CS-CROSS.

    >>> practical_chunk(64, 2), practical_chunk(64, 4)
    (512, 866)
    """
    return max(512, round(ideal_chunk(dim, power)))


def crossing_length(dim: int, power: int, parts: Sequence[str] = Work._fields) -> int:
    """The shortest sequence for which the recurrent form costs no more than the attention form.

    What is counted are the named fields of ``Work``: ``("products",)`` alone crosses near 2D; with gates, near 3D.
    Source: CS-CROSS.

    >>> crossing_length(64, 2, ("products",)), crossing_length(64, 2)
    (4192, 6287)
    """
    require(len(parts) > 0 and set(parts) <= set(Work._fields), "parts", tuple(parts), f"among {Work._fields}")

    def gain(tokens: int) -> int:
        attention, recurrent = attention_work(tokens, dim, power), recurrent_work(tokens, dim, power)
        return sum(getattr(attention, part) - getattr(recurrent, part) for part in parts)

    low, high = 0, 1
    while gain(high) < 0:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if gain(middle) < 0 else (low, middle)
    return high
