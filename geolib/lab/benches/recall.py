"""What gates and rotations are for: one head of symmetric-power attention on sequences made by a rule.

Nothing is timed. A head is one layer, without a residual stream: a token has a query, a key, a value, a gate and a
rate, all learned. Many heads that share nothing are trained in one pass, so that a comparison over parts and seeds is
one loop; heads of one seed start alike, whatever parts they have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from geolib.recurrence import GATE_BIAS, attention_form, log_gates, rotation_rates, turns_of
from geolib.rotations import document_frequencies


class Sequences(NamedTuple):
    """Sequences, (count, tokens) each: the tokens, what is to be said at each, and where it is asked for."""

    tokens: Tensor
    answers: Tensor
    asked: Tensor


def flip_flop(count: int, length: int, draw: torch.Generator, writes: float = 0.1) -> Sequences:
    """Writes of a bit (tokens 0, 1), bits to ignore (2, 3) and reads (4), which ask for the bit written last.

    The first token writes, the last one reads, and of the others 15 % read.

    >>> tokens, answers, asked = flip_flop(1, 8, torch.Generator().manual_seed(0))
    >>> tokens[0].tolist(), answers[asked].tolist()
    ([1, 3, 1, 2, 2, 3, 2, 4], [1])
    """
    kind = torch.rand(count, length, generator=draw)
    bit = torch.randint(0, 2, (count, length), generator=draw)
    write = kind < writes
    write[:, 0] = True
    asked = (kind > 0.85) & ~write
    asked[:, -1] = True
    tokens = torch.where(write, bit, bit + 2).masked_fill(asked, 4)
    last = torch.where(write & ~asked, torch.arange(length), 0).cummax(-1).values
    return Sequences(tokens, bit.gather(1, last), asked)


def copying(count: int, room: int, draw: torch.Generator, symbols: int = 4) -> Sequences:
    """Symbols (tokens 0 to 5) among blanks (6) in ``room`` tokens; then as many reads (7) ask for them in order.

    With as many symbols as room there are no blanks, and what is asked for always lies equally far back.

    >>> tokens, answers, asked = copying(1, 6, torch.Generator().manual_seed(2), symbols=2)
    >>> tokens[0].tolist(), answers[asked].tolist()
    ([6, 0, 6, 1, 6, 6, 7, 7], [0, 1])
    """
    places = torch.rand(count, room, generator=draw).argsort(-1)[:, :symbols].sort(-1).values
    drawn = torch.randint(0, 6, (count, symbols), generator=draw)
    told = torch.full((count, room), 6).scatter(1, places, drawn)
    tokens = torch.cat([told, torch.full_like(drawn, 7)], -1)
    return Sequences(tokens, F.pad(drawn, (room, 0)), tokens == 7)


class Parts(NamedTuple):
    """What a head has: gates, with their bias at the start, and rates: fixed + data (1 + tanh)."""

    gates: float = 0.0
    fixed: float = 0.0
    data: float = 0.0
    bias: float = GATE_BIAS


VARIANTS = {
    "neither": Parts(),
    "rotations": Parts(fixed=1.0),
    "rotations by data": Parts(data=1.0),
    "gates": Parts(gates=1.0),
    "gates from 1/2": Parts(gates=1.0, bias=0.0),
    "gates, rotations": Parts(gates=1.0, fixed=1.0),
    "gates from 1/2, rotations": Parts(gates=1.0, fixed=1.0, bias=0.0),
    "both by data": Parts(gates=1.0, data=1.0),
}


def starting(seeds: Iterable[int]) -> Callable[..., nn.Parameter]:
    """What draws a parameter with a leading axis of heads, each head's numbers from its own seed."""
    draws = [torch.Generator().manual_seed(seed) for seed in seeds]
    return lambda *shape: nn.Parameter(torch.stack([torch.randn(*shape, generator=draw) for draw in draws]))


class Heads(nn.Module):
    """Heads that share nothing: one for each variant and seed, in this order, the seeds of a variant together.

    Tokens are whole numbers below 8 and answers below 6. Queries, keys and values have ``dim`` features each, and their
    scores are squared.
    """

    def __init__(self, variants: list[Parts], seeds: int, dim: int = 16):
        super().__init__()
        start = starting(seed for _ in variants for seed in range(seeds))
        self.qkv, self.out = start(3, 8, dim), start(dim, 6)
        self.logits = nn.Parameter(torch.zeros(len(self.qkv), 2, 8))  # of gates and of rates
        self.parts = torch.tensor(variants).repeat_interleave(seeds, 0)
        self.frequencies = document_frequencies(dim, 64.0)

    def forward(self, tokens: Tensor) -> Tensor:
        """What each head says at each token: (count, heads, tokens, 6)."""
        q, k, v = self.qkv[:, :, tokens].permute(1, 2, 0, 3, 4)
        gate, rate = self.logits[:, :, tokens].permute(1, 2, 0, 3)
        gates, fixed, data, bias = self.parts.T[:, :, None]
        turns = turns_of(fixed + data * rotation_rates(rate), self.frequencies)
        return attention_form(q, k, v, 2, gates * log_gates(gate + bias), turns).output @ self.out


def trained(heads: nn.Module, task: Callable[[torch.Generator], Sequences], steps: int, rate: float = 0.03) -> Tensor:
    """Train all heads by Adam with a cosine to zero, new sequences in each step; the losses, (steps, heads)."""
    optimiser = torch.optim.Adam(heads.parameters(), rate)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    draw, losses = torch.Generator().manual_seed(1), []
    for _ in range(steps):
        tokens, answers, asked = task(draw)
        said = heads(tokens).transpose(1, 2)[asked].transpose(0, 1)  # (heads, questions, 6)
        wanted = answers[asked].expand(len(said), -1)
        loss = F.cross_entropy(said.transpose(1, 2), wanted, reduction="none").mean(-1)
        optimiser.zero_grad()
        loss.sum().backward()
        optimiser.step()
        falling.step()
        losses.append(loss.detach())
    return torch.stack(losses)


@torch.no_grad()
def accuracy(heads: nn.Module, sequences: Sequences) -> Tensor:
    """Each head's share of right answers."""
    said = heads(sequences.tokens).argmax(-1).transpose(1, 2)[sequences.asked]
    return (said == sequences.answers[sequences.asked, None]).float().mean(0)


class _Task(NamedTuple):
    """What is trained on, and what is tested on, by name."""

    train: Callable[[torch.Generator], Sequences]
    tests: dict[str, Callable[[torch.Generator], Sequences]]


_TASKS = {
    "flip-flop": _Task(
        lambda draw: flip_flop(32, 48, draw),
        {
            "48": lambda draw: flip_flop(64, 48, draw),
            "512": lambda draw: flip_flop(16, 512, draw),
            "512, a write in 50": lambda draw: flip_flop(16, 512, draw, writes=0.02),
        },
    ),
    "copying": _Task(
        lambda draw: copying(64, 6, draw, symbols=6), {"6 of 6": lambda draw: copying(256, 6, draw, symbols=6)}
    ),
    "selective copying": _Task(
        lambda draw: copying(64, 8, draw),
        {"4 of 8": lambda draw: copying(256, 8, draw), "4 of 32": lambda draw: copying(256, 32, draw)},
    ),
}


def run(steps: int = 600, seeds: int = 3, every: int = 20) -> list[dict[str, Any]]:
    """Train every variant on every task.

    Rows have ``task``, ``variant``, ``seed``, ``steps``, ``losses`` (means over ``every`` steps) and, for each test,
    its name and the share of right answers.

    Source: CS-gate, CS-beta, CS-GATE0.
    """
    rows = []
    for name, task in _TASKS.items():
        heads = Heads(list(VARIANTS.values()), seeds)
        losses = trained(heads, task.train, steps).unflatten(0, (-1, every)).mean(1)
        tests = {test: accuracy(heads, make(torch.Generator().manual_seed(2))) for test, make in task.tests.items()}
        for index in range(len(VARIANTS) * seeds):
            variant, seed = list(VARIANTS)[index // seeds], index % seeds
            row: dict[str, Any] = {"task": name, "variant": variant, "seed": seed, "steps": steps}
            row["accuracy"] = {test: round(float(found[index]), 4) for test, found in tests.items()}
            rows.append(row | {"losses": [round(float(loss), 4) for loss in losses[:, index]]})
    return rows
