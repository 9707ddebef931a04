"""Synthetic sequences follow their rules, heads compute what they say and learn, and rows report what was trained."""

import itertools
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from geolib.lab.benches import saved
from geolib.lab.experiments import synthetic
from geolib.lab.experiments.synthetic import GROUPS, PREFIX, STEPS


def draw(seed=0):
    return torch.Generator().manual_seed(seed)


def test_flip_flop_asks_for_the_bit_written_last():
    tokens, answers, asked = synthetic.flip_flop(40, 30, draw(), writes=0.2)
    assert torch.equal(asked, tokens == 4)
    assert asked[:, -1].all()
    for row, right in zip(tokens.tolist(), answers.tolist()):
        written = None
        for token, answer in zip(row, right):
            written = token if token < 2 else written
            assert token != 4 or answer == written


@pytest.mark.parametrize("symbols", [4, 9])
def test_copying_asks_for_the_symbols_in_order(symbols):
    for tokens, answers, asked in zip(*synthetic.copying(40, 9, draw(), symbols)):
        written = tokens[tokens < 6].tolist()
        assert len(written) == symbols
        assert tokens[9:].tolist() == [7] * symbols
        assert answers[asked].tolist() == written


@pytest.mark.parametrize(("group", "order"), [("Z5", 5), ("S3", 6), ("A5", 60)])
def test_words_ask_for_the_product_of_permutations(group, order):
    tokens, answers, asked = synthetic.word_problem(group, 400, 15, draw())
    assert asked.tolist() == [[False] * (PREFIX + 3) + [True] * 12] * 400
    matrices = [np.eye(len(letter), dtype=int)[list(letter)] for letter in GROUPS[group]]
    products = {}
    for word, right in zip(tokens[:, PREFIX:].tolist(), answers[:, PREFIX:].tolist()):
        product = np.eye(len(matrices[0]), dtype=int)
        for letter, element in zip(word, right):
            product = matrices[letter] @ product
            products.setdefault(element, set()).add(product.tobytes())
    assert all(len(found) == 1 for found in products.values())  # one product to an element
    assert len(set.union(*products.values())) == len(products) == order


def test_heads_of_a_seed_start_alike_and_variants_do_what_they_say():
    names = ("neither", "rotations", "rotations by data", "gates", "gates from 1/2")
    scores = synthetic.recall_heads(names, 1)(synthetic.flip_flop(3, 12, draw()).tokens)
    assert_close(scores[:, 1], scores[:, 2])  # rates start at 1
    turned, near, far = ((scores[:, 0] - scores[:, i]).abs().max() for i in (1, 3, 4))
    assert turned > 1e-2
    assert 0 < near < far  # gates near 1 change little


def test_steps_are_what_their_names_say():  # CS-WORDS
    numbers = torch.randn(3, 4, 28, generator=draw())
    ranks, eye = {"pairs turn": 8, "one mirror": 1, "two mirrors": 2, "any turn": 8}, torch.eye(8)
    for name, step in STEPS.items():
        made = step(numbers)
        assert_close(made @ made.mT, eye.expand_as(made), atol=1e-5, rtol=0)
        assert_close(torch.linalg.det(made), torch.full((3, 4), -1.0 if name == "one mirror" else 1.0))
        assert int(torch.linalg.matrix_rank(made[0, 0] - eye, atol=1e-5)) == ranks[name]
        first, second = made[0, :2]
        assert ((first @ second - second @ first).abs().max() < 1e-5) == (name == "pairs turn")


@pytest.mark.parametrize("name", STEPS)
def test_a_head_of_words_multiplies_steps_from_key_to_query(name):  # CS-WORDS
    heads, tokens = synthetic.word_heads(name, 2, 6), synthetic.word_problem("S3", 2, 5, draw()).tokens
    steps, scores = STEPS[name](heads.numbers), heads(tokens)
    for row, h, m in itertools.product(range(2), range(2), (0, 4, tokens.shape[1] - 1)):
        total, weights = torch.zeros(heads.v.shape[-1]), 0.0
        for n in range(m + 1):
            key = heads.qk[h, 1, tokens[row, n]]
            for between in tokens[row, n + 1 : m + 1]:
                key = steps[h, between] @ key
            weight = (heads.qk[h, 0, tokens[row, m]] @ key) ** 2
            total, weights = total + weight * heads.v[h, tokens[row, n]], weights + weight
        assert_close(scores[row, h, m], total / weights @ heads.out[h], rtol=1e-3, atol=1e-3)


def test_accuracy_is_the_share_of_right_answers_on_sequences_that_training_does_not_draw():
    class Copies(nn.Module):
        """One head that copies what lies six tokens back, and one that always answers 0."""

        def forward(self, tokens):
            back = torch.nn.functional.one_hot(tokens.roll(6, 1) % 6, 6)
            return torch.stack([back, torch.eye(6, dtype=torch.long)[0].expand_as(back)], 1)

    task = lambda generator: synthetic.copying(50, 6, generator, symbols=6)  # noqa: E731
    unseen, trained_on = task(draw(2)), task(draw(1))  # the seeds of ``accuracy`` and ``trained``
    zeros = float((unseen.answers[unseen.asked] == 0).float().mean())
    assert synthetic.accuracy(Copies(), task) == [1.0, pytest.approx(zeros, abs=1e-4)]
    assert not (unseen.tokens == trained_on.tokens).all(1).any()


@pytest.mark.parametrize(
    ("heads", "task"),
    [
        (synthetic.recall_heads(["rotations"], 2), synthetic.RECALL["copying"]["train"]),
        (synthetic.word_heads("pairs turn", 2, 5), partial(synthetic.word_problem, "Z5", 64, 12)),
    ],
)
def test_heads_learn(heads, task):
    assert max(synthetic.accuracy(heads, task)) < 0.53
    losses = synthetic.trained(heads, task, 150, 0.03)
    assert losses.shape == (150, 2)
    assert losses[-10:].mean() < losses[:10].mean()
    assert max(synthetic.accuracy(heads, task)) > 0.8


def test_runs_take_the_rate_that_answers_best(monkeypatch):
    made = []
    monkeypatch.setattr(synthetic, "trained", lambda heads, task, *how: made.append((len(heads.qk), *how)))
    monkeypatch.setattr(synthetic, "accuracy", lambda heads, task: [float(made[-1][2] == 0.03)] * len(heads.qk))
    rows = synthetic.words(steps=10, seeds=2)
    assert {row["rate"] for row in rows} == {0.03}
    assert all(row["accuracy"] == {str(n): [1.0, 1.0] for n in synthetic.LENGTHS} for row in rows)
    assert made[:2] == [(2, 10, 0.01), (2, 10, 0.03)]


def test_the_books_records_are_of_these_tasks():
    recorded = {name: saved.read(name)["rows"] for name in ("recall", "words")}
    assert [row["variant"] for row in recorded["recall"][::3]] == list(synthetic.VARIANTS) * 3
    assert [(row["group"], row["step"]) for row in recorded["words"]] == list(itertools.product(GROUPS, STEPS))
