"""Single heads of attention trained on sequences made by a rule; ``recall`` and ``words`` return rows of a record."""

from collections.abc import Callable, Iterable
from functools import cache, partial
from itertools import accumulate, product
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from geolib.lab import text_attention
from geolib.lie import exp_skew, skew_matrix
from geolib.recurrence import GATE_BIAS, attention_form, log_gates, rotation_rates, turns_of
from geolib.rotations import block_diagonal, document_frequencies, rotation_matrix


class Sequences(NamedTuple):
    """Sequences, (count, tokens) each: the tokens, the answer at each, and whether it is asked for there."""

    tokens: Tensor
    answers: Tensor
    asked: Tensor


Task = Callable[[Generator], Sequences]


class Heads(nn.Module):
    """Heads of one layer that share nothing and are trained in one pass; heads of one seed start alike.

    A token has a query, a key, a value, other numbers (``dims``) and two logits. ``attend(heads, tokens, q, k, v)`` is
    the attention, (count, heads, tokens, value_dim). ``counts`` are those of tokens and answers.
    """

    def __init__(self, seeds: Iterable[int], attend: Any, counts: tuple[int, int], dims: tuple[int, int, int]):
        super().__init__()
        draws = [Generator().manual_seed(seed) for seed in seeds]
        drawn = lambda *shape: nn.Parameter(torch.stack([torch.randn(*shape, generator=draw) for draw in draws]))  # noqa: E731
        self.qk, self.v = drawn(2, counts[0], dims[0]), drawn(counts[0], dims[1])
        self.numbers, self.out = drawn(counts[0], dims[2]), drawn(dims[1], counts[1])
        self.logits, self.attend = nn.Parameter(torch.zeros(len(draws), 2, counts[0])), attend

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of the answers at each token, (count, heads, tokens, answers)."""
        q, k = self.qk[:, :, tokens].permute(1, 2, 0, 3, 4)
        return self.attend(self, tokens, q, k, self.v[:, tokens].transpose(0, 1)) @ self.out


def trained(heads: Heads, task: Task, steps: int, rate: float = 0.03) -> Tensor:
    """Train by Adam with a cosine schedule, on new sequences in each step; the losses, (steps, heads)."""
    optimizer = torch.optim.Adam(heads.parameters(), rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    draw, losses = Generator().manual_seed(1), []
    for _ in range(steps):
        tokens, answers, asked = task(draw)
        scores = heads(tokens).transpose(1, 2)[asked].transpose(0, 1)  # (heads, questions, answers)
        wanted = answers[asked].expand(len(scores), -1)
        loss = F.cross_entropy(scores.transpose(1, 2), wanted, reduction="none").mean(-1)
        optimizer.zero_grad()
        loss.sum().backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())
    return torch.stack(losses)


@torch.no_grad()
def accuracy(heads: Heads, task: Task) -> list[float]:
    """Each head's share of right answers, to four digits, on sequences that training does not draw."""
    tokens, answers, asked = task(Generator().manual_seed(2))
    right = heads(tokens).argmax(-1).transpose(1, 2)[asked] == answers[asked, None]
    return [round(share, 4) for share in right.float().mean(0).tolist()]


# Recall: flip-flops and copying, with gates and rotations -------------------------------------------------------------
def flip_flop(count: int, length: int, draw: Generator, writes: float = 0.1) -> Sequences:
    """Draw writes of a bit (tokens 0, 1), bits to ignore (2, 3) and reads (4), the last token among them."""
    kind, bit = torch.rand(count, length, generator=draw), torch.randint(0, 2, (count, length), generator=draw)
    at = torch.arange(length)
    asked = (kind > 0.85) & (at > 0) | (at == length - 1)
    write = ((kind < writes) | (at == 0)) & ~asked
    last = torch.where(write, at, 0).cummax(-1).values
    return Sequences(torch.where(write, bit, bit + 2).masked_fill(asked, 4), bit.gather(1, last), asked)


def copying(count: int, length: int, draw: Generator, symbols: int = 4) -> Sequences:
    """Draw symbols (tokens 0 to 5) among blanks (6), ``length`` tokens; then reads (7) ask for the symbols in order."""
    places = torch.rand(count, length, generator=draw).argsort(-1)[:, :symbols].sort(-1).values
    drawn = torch.randint(0, 6, (count, symbols), generator=draw)
    tokens = F.pad(torch.full((count, length), 6).scatter(1, places, drawn), (0, symbols), value=7)
    return Sequences(tokens, F.pad(drawn, (length, 0)), tokens == 7)


VARIANTS = {  # gates, fixed rotations, rotations by the data, the gates' bias at the start
    "neither": (0, 0, 0, GATE_BIAS),
    "rotations": (0, 1, 0, GATE_BIAS),
    "rotations by data": (0, 0, 1, GATE_BIAS),
    "gates": (1, 0, 0, GATE_BIAS),
    "gates from 1/2": (1, 0, 0, 0.0),
    "gates, rotations": (1, 1, 0, GATE_BIAS),
    "gates from 1/2, rotations": (1, 1, 0, 0.0),
    "both by data": (1, 0, 1, GATE_BIAS),
}
RECALL: dict[str, dict[str, Task]] = {  # the task in training, and tests by name
    "flip-flop": {
        "train": partial(flip_flop, 32, 48),
        "48": partial(flip_flop, 64, 48),
        "512": partial(flip_flop, 16, 512),
        "512, a write in 50": partial(flip_flop, 16, 512, writes=0.02),
    },
    "copying": {"train": partial(copying, 64, 6, symbols=6), "6 of 6": partial(copying, 256, 6, symbols=6)},
    "selective copying": {
        "train": partial(copying, 64, 8),
        "4 of 8": partial(copying, 256, 8),
        "4 of 32": partial(copying, 256, 32),
    },
}


def recall_heads(variants: Iterable[str], seeds: int, dim: int = 16) -> Heads:
    """Heads with squared scores for 8 tokens and 6 answers, by variant and seed, the seeds of a variant together."""
    parts = torch.tensor([VARIANTS[name] for name in variants]).repeat_interleave(seeds, 0)
    gates, fixed, data, bias = parts.T[:, :, None]

    def attend(heads: Heads, key: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        gate, rate = heads.logits[:, :, key].permute(1, 2, 0, 3)
        turns = turns_of(fixed + data * rotation_rates(rate), document_frequencies(dim, 64.0))
        return attention_form(q, k, v, 2, gates * log_gates(gate + bias), turns).output

    return Heads([index % seeds for index in range(len(parts))], attend, (8, 6), (dim, dim, 0))


def recall(steps: int = 600, seeds: int = 3, every: int = 20) -> list[dict[str, Any]]:
    """Train every variant on every recall task; ``losses`` are means over ``every`` steps.

    Source: CS-gate, CS-beta, CS-GATE0.
    """
    rows: list[dict[str, Any]] = []
    for task, made in RECALL.items():
        heads = recall_heads(VARIANTS, seeds)
        losses = trained(heads, made["train"], steps).unflatten(0, (-1, every)).mean(1).T.tolist()
        shares = {name: accuracy(heads, test) for name, test in made.items() if name != "train"}
        for index, (variant, seed) in enumerate(product(VARIANTS, range(seeds))):
            right = {name: share[index] for name, share in shares.items()}
            row = {"task": task, "variant": variant, "seed": seed, "steps": steps, "accuracy": right}
            rows.append(row | {"losses": [round(loss, 4) for loss in losses[index]]})
    return rows


# Words: word problems of groups, by the kind of rotation that a token makes -------------------------------------------
GROUPS = {  # of order 5 (commuting), 6 and 60, by two permutations that generate them
    "Z5": ((1, 2, 3, 4, 0), (2, 3, 4, 0, 1)),
    "S3": ((1, 0, 2), (1, 2, 0)),
    "A5": ((1, 0, 3, 2, 4), (1, 2, 3, 4, 0)),
}
# Tokens before a word, its letters in training and in tests, and features of a query.
PREFIX, TRAINED, LENGTHS, DIM = 8, 12, (12, 48, 192), 8


@cache
def products(group: str) -> tuple[tuple[int, ...], ...]:
    """What element n, 0 being the identity, becomes by each letter: products(group)[n][letter]."""
    elements, table = [tuple(range(len(GROUPS[group][0])))], []
    for element in elements:
        after = [tuple(element[i] for i in letter) for letter in GROUPS[group]]
        elements += [each for each in after if each not in elements]
        table.append(tuple(elements.index(each) for each in after))
    return tuple(table)


def word_problem(group: str, count: int, length: int, draw: Generator) -> Sequences:
    """Draw words of letters 0 and 1 behind a prefix 2, 3, ...; the last twelve letters ask for the product so far."""
    tokens = F.pad(torch.randint(0, 2, (count, length), generator=draw), (PREFIX, 0))
    tokens[:, :PREFIX] = torch.arange(2, 2 + PREFIX)
    answers, table = torch.zeros_like(tokens), torch.tensor(products(group))
    for i in range(PREFIX, PREFIX + length):
        answers[:, i] = table[answers[:, i - 1], tokens[:, i]]
    asked = torch.arange(PREFIX + length) >= PREFIX + length - TRAINED
    return Sequences(tokens, answers, asked.expand(count, -1))


def reflection(normal: Tensor) -> Tensor:
    """The reflection along a vector (..., d): PaTH's step at beta = 2."""
    return torch.eye(DIM) - 2 * normal[..., None] * normal[..., None, :] / normal.square().sum(-1)[..., None, None]


STEPS: dict[str, Callable[[Tensor], Tensor]] = {  # from 28 numbers of a token to its orthogonal matrix
    "pairs turn": lambda x: block_diagonal(rotation_matrix(x[..., : DIM // 2])),  # they commute
    "one mirror": lambda x: reflection(x[..., :DIM]),
    "two mirrors": lambda x: reflection(x[..., DIM : 2 * DIM]) @ reflection(x[..., :DIM]),  # turns one plane
    "any turn": lambda x: exp_skew(skew_matrix(x, DIM)),  # LieRE's step
}


def word_heads(step: str, seeds: int, elements: int) -> Heads:
    """A head with squared scores for each seed, in which every token turns what is carried by a matrix of its own."""

    def attend(heads: Heads, key: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        turns = STEPS[step](heads.numbers)[:, key].transpose(0, 1).unbind(2)
        frames = torch.stack([*accumulate(turns, lambda frame, turn: turn @ frame)], 2)
        q, k = ((t[..., None, :] @ frames)[..., 0, :] for t in (q, k))  # q . T_n T_m^-1 k, and frames T are orthogonal
        return text_attention.attend("power", 2, q, k, v, None)

    return Heads(range(seeds), attend, (2 + PREFIX, elements), (DIM, 4 * DIM, 28))


def words(steps: int = 2000, seeds: int = 5) -> list[dict[str, Any]]:
    """Train heads with each kind of step on short words of each group at two rates; the better one there is kept.

    ``accuracy`` goes from a word's length to a share for each seed. Source: CS-beta, LR-lin.
    """
    rows = []
    for group, step in product(GROUPS, STEPS):
        found = {}
        for rate in (0.01, 0.03):
            heads = word_heads(step, seeds, len(products(group)))
            trained(heads, partial(word_problem, group, 64, TRAINED), steps, rate)
            found[rate] = {str(n): accuracy(heads, partial(word_problem, group, 256, n)) for n in LENGTHS}
        rate = max(found, key=lambda rate: sum(found[rate][str(TRAINED)]))
        rows.append({"group": group, "step": step, "steps": steps, "rate": rate, "accuracy": found[rate]})
    return rows
