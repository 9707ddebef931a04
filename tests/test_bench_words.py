"""Words of groups: answers by matrices of permutations, the outputs of heads link by link, and the rows of a run."""

import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from geolib.lab.benches import words
from geolib.lab.benches.words import DIM, FRONT, LETTERS, SIZE, SPARE, STEPS, Followers, best_by_counts, products


def draw(seed=0):
    return torch.Generator().manual_seed(seed)


def permutations(group):
    return [np.eye(len(letter), dtype=int)[list(letter)] for letter in LETTERS[group]]


@pytest.mark.parametrize(("group", "order"), [("Z5", 5), ("S3", 6), ("A5", 60)])
def test_words_ask_for_the_product_of_permutations(group, order):
    tokens, answers, asked = words.words(group, 200, 9, draw(), asked_last=4)
    assert asked.tolist() == [[False] * (FRONT + 5) + [True] * 4] * 200
    assert tokens[:, :FRONT].tolist() == [list(range(2, 2 + FRONT))] * 200
    of = {}
    for word, said in zip(tokens[:, FRONT:].tolist(), answers[:, FRONT:].tolist()):
        product = np.eye(len(LETTERS[group][0]), dtype=int)
        for letter, element in zip(word, said):
            product = permutations(group)[letter] @ product
            of.setdefault(element, set()).add(product.tobytes())
    assert all(len(found) == 1 for found in of.values())  # one product to an element
    assert len(set.union(*of.values())) == len(of)  # and another one to another
    assert len(products(group)) == order


@pytest.mark.parametrize("group", LETTERS)
def test_the_best_guess_by_counts_is_that_of_all_words(group):
    ways = Counter()
    for word in itertools.product((0, 1), repeat=7):
        element = 0
        for letter in word:
            element = products(group)[element][letter]
        ways[sum(word), element] += 1
    best = Counter()
    for (seconds, _), number in ways.items():
        best[seconds] = max(best[seconds], number)
    assert best_by_counts(group, 7) == sum(best.values()) / 2**7


def test_steps_are_what_their_names_say():
    numbers = torch.randn(3, 4, SPARE, generator=draw()).double()
    torch.set_default_dtype(torch.float64)
    try:
        made = {name: step(numbers) for name, step in STEPS.items()}
    finally:
        torch.set_default_dtype(torch.float32)
    eye = torch.eye(DIM).double()
    for name, step in made.items():
        assert step.shape == (3, 4, DIM, DIM)
        assert_close(step @ step.mT, eye.expand_as(step))
        assert_close(torch.linalg.det(step), torch.full((3, 4), -1.0 if name == "one mirror" else 1.0).double())
        first, second = step[0, 0], step[0, 1]
        commute = (first @ second - second @ first).abs().max() < 1e-12
        assert commute == (name == "pairs turn")
    kept = {name: int(torch.linalg.matrix_rank(step[0, 0] - eye, atol=1e-9)) for name, step in made.items()}
    assert kept == {"pairs turn": 8, "one mirror": 1, "two mirrors": 2, "any turn": 8}


@pytest.mark.parametrize("name", STEPS)
def test_a_head_multiplies_links_from_key_to_query(name):
    heads = Followers(STEPS[name], [3, 5], 6)
    tokens = words.words("S3", 2, 5, draw()).tokens
    links, said = heads.step(heads.steps), heads(tokens)
    for row, h in itertools.product(range(2), range(2)):
        for m in range(tokens.shape[1]):
            total, weights = torch.zeros(SIZE), 0.0
            for n in range(m + 1):
                key = heads.qk[h, 1, tokens[row, n]]
                for between in tokens[row, n + 1 : m + 1]:
                    key = links[h, between] @ key
                weight = (heads.qk[h, 0, tokens[row, m]] @ key) ** 2
                total, weights = total + weight * heads.v[h, tokens[row, n]], weights + weight
            assert_close(said[row, h, m], total / weights @ heads.out[h], rtol=1e-3, atol=1e-3)


def test_a_run_keeps_the_better_rate_of_each_step(monkeypatch):
    made = []

    def learned(group, step, seeds, steps, rate):
        made.append((group, rate, seeds, steps))
        return {"12": [rate, rate], "48": [0.0, 0.0]}

    monkeypatch.setattr(words, "learned", learned)
    rows = words.run(steps=7, seeds=2)
    assert [(row["group"], row["step"]) for row in rows] == list(itertools.product(LETTERS, STEPS))
    assert all(row["rate"] == max(words.RATES) and row["accuracy"]["12"] == [row["rate"]] * 2 for row in rows)
    assert set(made) == {(group, rate, 2, 7) for group in LETTERS for rate in words.RATES}


def test_steps_that_commute_learn_a_group_that_does_and_answer_at_each_length():
    found = words.learned("Z5", STEPS["pairs turn"], seeds=2, steps=150, rate=0.03)
    assert list(found) == ["12", "48", "192"]
    assert max(found["12"]) > 0.8  # chance is a fifth
    assert all(len(shares) == 2 and all(0 <= share <= 1 for share in shares) for shares in found.values())
