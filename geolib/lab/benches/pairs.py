"""How many pairs of keys and values a trained head can be asked for, by what its state is.

Nothing is timed. Pairs are stored, then each of their keys is asked for, in another order. As in ``recall``, a head is
one layer without a residual stream, and heads that share nothing (the seeds) are trained in one pass.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from geolib.lab.benches.recall import Sequences, accuracy, starting, trained
from geolib.lab.text_attention import kernel_of
from geolib.recurrence import GATE_BIAS, log_gates

KEYS, VALUES, SIZE = 1024, 16, 16
"""Different keys and values, and the features of a value."""


def pairs(count: int, stored: int, draw: torch.Generator) -> Sequences:
    """Pairs with keys that differ; then a question for each key. A pair is the token key * VALUES + value.

    A question is the token KEYS * VALUES + key.

    >>> tokens, answers, asked = pairs(1, 2, torch.Generator().manual_seed(1))
    >>> [divmod(pair, VALUES) for pair in tokens[~asked].tolist()]
    [(1020, 7), (660, 6)]
    >>> (tokens[asked] - KEYS * VALUES).tolist(), answers[asked].tolist()
    ([660, 1020], [6, 7])
    """
    keys = torch.rand(count, KEYS, generator=draw).argsort(-1)[:, :stored]
    values = torch.randint(0, VALUES, (count, stored), generator=draw)
    order = torch.rand(count, stored, generator=draw).argsort(-1)
    tokens = torch.cat([keys * VALUES + values, KEYS * VALUES + keys.gather(1, order)], 1)
    answers = torch.cat([values, values.gather(1, order)], 1)
    return Sequences(tokens, answers, torch.arange(2 * stored).expand(count, -1) >= stored)


class Head(NamedTuple):
    """A kernel by name (``geolib.lab.text_attention``), its power, a key.s features, and whether there are gates."""

    kernel: str
    dim: int
    power: int = 2
    gates: bool = False

    @property
    def numbers(self) -> int | None:
        """Those of the state, None where it grows."""
        rows = kernel_of(self.kernel, self.power).numbers(self.dim)
        return None if rows is None else rows // (self.dim + 1) * (SIZE + 1)


HEADS = {
    "softmax, 16": Head("softmax", 16),
    "power 2, 16": Head("power", 16),
    "power 2, 16, gates": Head("power", 16, gates=True),
    "linear, 136": Head("linear", 136),
    "linear, 136, gates": Head("linear", 136, gates=True),
    "power 4, 8": Head("power", 8, 4),
    "linear, 330": Head("linear", 330),
    "linear, 16": Head("linear", 16),
}


class Memories(nn.Module):
    """A head for each seed; every key has a query, a key and a gate as part of a pair and others as a question."""

    def __init__(self, head: Head, seeds: list[int]):
        super().__init__()
        start = starting(seeds)
        self.qk, self.v, self.out = start(2, 2 * KEYS, head.dim), start(VALUES + 1, SIZE), start(SIZE, VALUES)
        self.logits = nn.Parameter(torch.zeros(len(seeds), 2 * KEYS)) if head.gates else None
        self.kernel = kernel_of(head.kernel, head.power)

    def forward(self, tokens: Tensor) -> Tensor:
        """What each head says at each token, (count, heads, tokens, VALUES)."""
        question = tokens >= KEYS * VALUES
        key = torch.where(question, tokens - KEYS * VALUES + KEYS, tokens // VALUES)
        value = torch.where(question, VALUES, tokens % VALUES)
        q, k = self.qk[:, :, key].permute(1, 2, 0, 3, 4)
        gates = None if self.logits is None else log_gates(self.logits[:, key].transpose(0, 1), GATE_BIAS)
        return self.kernel.whole(q, k, self.v[:, value].transpose(0, 1), gates) @ self.out


RATES = (0.01, 0.03, 0.1, 0.3)
STORED = (32, 64, 128, 256)


def learned(head: Head, seeds: list[int], stored: int, steps: int, rate: float) -> list[float]:
    """Each seed's share of right answers after training on windows of so many pairs."""
    heads = Memories(head, seeds)
    trained(heads, lambda draw: pairs(16, stored, draw), steps, rate)
    return [round(share, 4) for share in accuracy(heads, pairs(64, stored, torch.Generator().manual_seed(2))).tolist()]


def run(steps: int = 1500, seeds: int = 3) -> list[dict[str, Any]]:
    """Train every head on every number of pairs, its rate chosen in a fifth of the steps.

    Rows have ``head``, ``numbers`` (of the state, None where it grows), ``stored``, ``steps``, ``rate`` and
    ``accuracy``, a share for each seed.

    Source: CS-size.
    """
    rows = []
    for name, head in HEADS.items():
        for stored in STORED:
            # One head more, whose seed is not used again, answers best at this rate.
            rate = max(RATES, key=lambda rate: learned(head, [100], stored, steps // 5, rate)[0])
            row = {"head": name, "numbers": head.numbers, "stored": stored, "steps": steps, "rate": rate}
            rows.append(row | {"accuracy": learned(head, list(range(seeds)), stored, steps, rate)})
    return rows
