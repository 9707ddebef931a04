"""What steps that a head takes letter by letter can follow: words of a group, whose product is asked for.

Nothing is timed. Each letter turns what is carried by a rotation of its own; a head compares the last query with the
keys of some tokens in front, so it reads the product of the letters. As in ``recall``, heads of one layer are trained
in one pass, here on short words, and asked for longer ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from geolib.lab.benches.recall import Sequences, accuracy, starting, trained
from geolib.lab.text_attention import Power
from geolib.lie import exp_skew, skew_matrix
from geolib.rotations import block_diagonal, rotation_matrix

Element = tuple[int, ...]  # a permutation: where each place's number comes from
LETTERS: dict[str, tuple[Element, Element]] = {
    "Z5": ((1, 2, 3, 4, 0), (2, 3, 4, 0, 1)),
    "S3": ((1, 0, 2), (1, 2, 0)),
    "A5": ((1, 0, 3, 2, 4), (1, 2, 3, 4, 0)),
}
"""Groups by two letters that make them: of order 5 (commuting), 6, and 60 (each element a product of commutators)."""
FRONT = 8  # tokens in front of a word, each with its own key and value


@cache
def products(group: str) -> tuple[tuple[int, int], ...]:
    """What an element becomes by the one letter or the other; elements are numbers, the first one the identity.

    >>> products("Z5"), len(products("S3")), len(products("A5"))
    (((1, 2), (2, 3), (3, 4), (4, 0), (0, 1)), 6, 60)
    """
    letters = LETTERS[group]
    found = [tuple(range(len(letters[0])))]
    for element in found:
        found += [new for letter in letters if (new := _then(element, letter)) not in found]
    return tuple((found.index(_then(e, letters[0])), found.index(_then(e, letters[1]))) for e in found)


def _then(element: Element, letter: Element) -> Element:
    return tuple(element[place] for place in letter)


def words(group: str, count: int, length: int, draw: torch.Generator, asked_last: int | None = None) -> Sequences:
    """Words behind ``FRONT`` tokens 2, 3, ...; asked for is the product so far, at all letters or at the last ones.

    >>> tokens, answers, asked = words("Z5", 1, 4, torch.Generator().manual_seed(0))
    >>> tokens[asked].tolist(), answers[asked].tolist()
    ([0, 1, 1, 0], [1, 3, 0, 1])
    """
    letters = torch.randint(0, 2, (count, length), generator=draw)
    step, element, answers = torch.tensor(products(group)), torch.zeros(count, dtype=torch.long), []
    for letter in letters.T:
        element = step[element, letter]
        answers.append(element)
    front = torch.arange(2, 2 + FRONT).expand(count, -1)
    asked = torch.arange(FRONT + length) >= FRONT + length - (asked_last or length)
    answer = torch.stack([*[torch.zeros_like(element)] * FRONT, *answers], -1)
    return Sequences(torch.cat([front, letters], 1), answer, asked.expand(count, -1))


def best_by_counts(group: str, length: int) -> float:
    """The share of words of a length whose product is right when the likeliest for its counts of letters is said.

    >>> best_by_counts("Z5", 9), round(best_by_counts("S3", 9), 3)
    (1.0, 0.373)
    """
    ways = Counter({(0, 0): 1})  # (element, how often the second letter stood) to words
    for _ in range(length):
        after: Counter[tuple[int, int]] = Counter()
        for (element, seconds), number in ways.items():
            for letter in (0, 1):
                after[products(group)[element][letter], seconds + letter] += number
        ways = after
    likeliest = Counter(dict.fromkeys(range(length + 1), 0))
    for (_, seconds), number in ways.items():
        likeliest[seconds] = max(likeliest[seconds], number)
    return sum(likeliest.values()) / 2**length


# Heads --------------------------------------------------------------------------------------------------------------

DIM, SIZE, SPARE = 8, 32, 28  # features of a key, of a value, and numbers of a step, of which its kind takes some


def _pairs_turn(numbers: Tensor) -> Tensor:
    """Numbers (..., SPARE) to rotations (..., DIM, DIM) of pairs of features by angles: they commute."""
    return block_diagonal(rotation_matrix(numbers[..., : DIM // 2]))


def _one_mirror(numbers: Tensor) -> Tensor:
    """The reflection along a vector, PaTH's step at beta = 2."""
    normal = numbers[..., :DIM, None]
    return torch.eye(DIM) - 2 * normal @ normal.mT / normal.square().sum(-2, keepdim=True)


def _two_mirrors(numbers: Tensor) -> Tensor:
    """The product of two reflections: a rotation of one plane."""
    return _one_mirror(numbers[..., DIM:]) @ _one_mirror(numbers)


def _any_turn(numbers: Tensor) -> Tensor:
    """The exponential of a skew matrix, LieRE's step."""
    return exp_skew(skew_matrix(numbers, DIM))


STEPS: dict[str, Callable[[Tensor], Tensor]] = {
    "pairs turn": _pairs_turn,
    "one mirror": _one_mirror,
    "two mirrors": _two_mirrors,
    "any turn": _any_turn,
}


class Followers(nn.Module):
    """A head for each seed; every token has a query, a key, a value and a step."""

    def __init__(self, step: Callable[[Tensor], Tensor], seeds: list[int], elements: int):
        super().__init__()
        start = starting(seeds)
        self.qk, self.v = start(2, 2 + FRONT, DIM), start(2 + FRONT, SIZE)
        self.steps, self.out, self.step = start(2 + FRONT, SPARE), start(SIZE, elements), step

    def forward(self, tokens: Tensor) -> Tensor:
        """What each head says at each token, (count, heads, tokens, elements)."""
        q, k = self.qk[:, :, tokens].permute(1, 2, 0, 3, 4)
        steps = self.step(self.steps)[:, tokens].transpose(0, 1)  # (count, heads, tokens, DIM, DIM)
        frame, frames = torch.eye(DIM), []
        for each in steps.unbind(2):
            frame = each @ frame
            frames.append(frame)
        # A score is q_n . T_n T_m^-1 k_m, and the frames T are orthogonal.
        q, k = ((t[..., None, :] @ torch.stack(frames, 2))[..., 0, :] for t in (q, k))
        return Power(2).whole(q, k, self.v[:, tokens].transpose(0, 1), None) @ self.out


RATES, TRAINED, ASKED = (0.01, 0.03), 12, (12, 48, 192)


def run(steps: int = 2000, seeds: int = 5) -> list[dict[str, Any]]:
    """Train heads with each kind of step on words of each group, at each rate; the better one at that length stays.

    Rows have ``group``, ``step``, ``rate``, ``steps`` and ``accuracy``: from each length to the share of right products
    at a word's last twelve letters, one for each seed.

    Source: CS-beta, LR-lin.
    """
    rows = []
    for group in LETTERS:
        for name, step in STEPS.items():
            found = [learned(group, step, seeds, steps, rate) for rate in RATES]
            best = max(found, key=lambda accuracies: sum(accuracies[str(TRAINED)]))
            row = {"group": group, "step": name, "steps": steps, "rate": RATES[found.index(best)], "accuracy": best}
            rows.append(row)
    return rows


def learned(
    group: str, step: Callable[[Tensor], Tensor], seeds: int, steps: int, rate: float
) -> dict[str, list[float]]:
    """Each seed's share of right answers at each length."""
    heads = Followers(step, list(range(seeds)), len(products(group)))
    trained(heads, lambda draw: words(group, 64, TRAINED, draw), steps, rate)
    tests = {n: words(group, 256, n, torch.Generator().manual_seed(2), TRAINED) for n in ASKED}
    return {str(n): [round(share, 4) for share in accuracy(heads, test).tolist()] for n, test in tests.items()}
