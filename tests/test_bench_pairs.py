"""Stored pairs: what is asked for was stored, heads are alone, states have the numbers told, and what a run returns."""

import pytest
import torch
from torch.testing import assert_close

from geolib.lab.benches import pairs
from geolib.lab.benches.pairs import HEADS, KEYS, SIZE, VALUES, Head, Memories
from geolib.recurrence import GATE_BIAS


def draw(seed=0):
    return torch.Generator().manual_seed(seed)


def test_each_key_is_stored_once_and_asked_for_once():
    tokens, answers, asked = pairs.pairs(20, 30, draw())
    assert asked.tolist() == [[False] * 30 + [True] * 30] * 20
    orders = set()
    for row, said in zip(tokens.tolist(), answers.tolist()):
        stored = dict(divmod(token, VALUES) for token in row[:30])
        questions = [token - KEYS * VALUES for token in row[30:]]
        assert len(stored) == 30
        assert max(stored) < KEYS
        assert [stored[key] for key in questions] == said[30:]
        assert sorted(stored) == sorted(questions)
        orders.add(questions == list(stored))
    assert orders == {False}


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
def test_a_state_has_the_numbers_that_it_is_said_to_have(head):
    features = {("power", 2): head.dim * (head.dim + 1) // 2, ("power", 4): 330, ("linear", 2): head.dim}
    expected = None if head.kernel == "softmax" else features[head.kernel, head.power] * (SIZE + 1)
    assert head.numbers == expected


def test_heads_at_an_equal_state_are_compared():
    numbers = {name: head.numbers for name, head in HEADS.items()}
    assert numbers["power 2, 16"] == numbers["linear, 136"]
    assert numbers["power 4, 8"] == numbers["linear, 330"]


@pytest.mark.parametrize(
    "head", [Head("softmax", 4), Head("power", 4, gates=True), Head("linear", 4), Head("power", 4, 4)]
)
def test_a_head_weighs_what_came_before_by_its_score(head):
    heads, tokens = Memories(head, [1, 2]), pairs.pairs(2, 3, draw()).tokens
    if head.gates:
        heads.logits.data = torch.randn(heads.logits.shape, generator=draw())
    said = heads(tokens)
    question = tokens >= KEYS * VALUES
    key = torch.where(question, tokens - KEYS * VALUES + KEYS, tokens // VALUES)
    value = torch.where(question, VALUES, tokens % VALUES)
    phi = lambda x: torch.where(x > 0, x + 1, x.exp())  # noqa: E731
    weigh = {
        "softmax": lambda q, k: (q @ k / 2).exp(),
        "power": lambda q, k: (q @ k) ** head.power,
        "linear": lambda q, k: phi(q) @ phi(k),
    }[head.kernel]
    for row, h, m in [(0, 0, 5), (1, 1, 4), (1, 0, 2)]:
        total, weights = torch.zeros(SIZE), 0.0
        for n in range(m + 1):
            weight = weigh(heads.qk[h, 0, key[row, m]], heads.qk[h, 1, key[row, n]])
            if head.gates:
                weight = weight * torch.sigmoid(heads.logits[h, key[row, n + 1 : m + 1]] + GATE_BIAS).prod()
            total, weights = total + weight * heads.v[h, value[row, n]], weights + weight
        assert_close(said[row, h, m], total / weights @ heads.out[h], rtol=1e-3, atol=1e-3)


def test_heads_trained_together_learn_as_if_alone():
    both, one = (pairs.learned(Head("power", 8), seeds, 8, 60, 0.1) for seeds in ([4, 7], [7]))
    assert abs(both[1] - one[0]) < 0.1
    assert one[0] > 0.3  # chance is a sixteenth


def test_a_run_takes_the_rate_that_answers_best_in_a_fifth_of_the_steps(monkeypatch):
    monkeypatch.setattr(pairs, "HEADS", {"a": Head("linear", 2)})
    made = []

    def learned(head, seeds, stored, steps, rate):
        made.append((seeds, stored, steps))
        return [0.5 if rate == 0.03 else 0.1] * len(seeds)

    monkeypatch.setattr(pairs, "learned", learned)
    rows = pairs.run(steps=10, seeds=2)
    assert [row["stored"] for row in rows] == list(pairs.STORED)
    assert all(row["rate"] == 0.03 and row["accuracy"] == [0.5, 0.5] and row["numbers"] == 34 for row in rows)
    assert made[:5] == [([100], 32, 2)] * 4 + [([0, 1], 32, 10)]
