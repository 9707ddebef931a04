"""A memory to type into: its answers are those of the recurrence's forms, and it reads what a reader writes."""

from __future__ import annotations

import random

import pytest
import torch
from explorable_kit import float64, functions_of, numbers_in, place_of
from torch.testing import assert_close

from geolib.recurrence import attention_form, recurrent_form
from geolib.sympow import dimension, embed

WORDS = ("anne", "philip", "laura", "marian", "hester", "walter", "straße", "red", "blue", "green", "gold", "naïve")
call = functions_of("memory.js")
opened, place = place_of("LiveMemory")


def random_states(count, seed, tokens=14):
    """States of some pairs, with what each pair is: (state, [(key, value, strokes before it), ...])."""
    draw, states = random.Random(seed), []
    for _ in range(count):
        triples = [(draw.choice(WORDS), draw.choice(WORDS), int(n > 0 and draw.random() < 0.2)) for n in range(tokens)]
        text = ", ".join(f"{'/ ' * shut}{key} {value}" for key, value, shut in triples)
        state = {"text": text, "ask": draw.choice(WORDS), "power": draw.choice([2, 4, 6])}
        state |= {"features": draw.randint(2, 12), "gate": draw.choice([1.0, draw.uniform(0.5, 1)])}
        states.append((state, triples))
    return states


def as_heads(call, state, triples):
    """The line as one head: keys, one value a word, log gates; the key that is asked is the query of each token."""
    keys, (asked,) = (
        call("vector", [[word, state["features"]] for word in words])
        for words in ([key for key, _, _ in triples], [state["ask"]])
    )
    words = list(dict.fromkeys(value for _, value, _ in triples))
    values = torch.eye(len(words), dtype=torch.float64)[[words.index(value) for _, value, _ in triples]]
    gates = float64([state["gate"] * 0.01**shut for _, _, shut in triples])
    q = float64(asked).expand(len(triples), -1)
    return q[None, None], float64(keys)[None, None], values[None, None], gates.log()[None, None]


def test_the_state_is_what_was_written_each_time_shrunk_by_the_gate(call):  # CS-rec
    states = random_states(6, seed=11)
    asked = [[state] for state, _ in states]
    for (state, triples), found, gates, left in zip(
        states, *(call(name, asked) for name in ("written", "gates", "memory"))
    ):
        vectors = float64(call("vector", [[key, state["features"]] for key, _, _ in triples]))
        z, tokens = torch.zeros(dimension(state["features"], state["power"]), dtype=torch.float64), 0.0
        rows = {value: z.clone() for _, value, _ in triples}
        for m, (_, value, shut) in enumerate(triples):
            assert gates[m] == pytest.approx(state["gate"] * 0.01**shut)
            phi = embed(vectors[m], state["power"])
            z, tokens = phi + gates[m] * z, 1 + gates[m] * tokens
            rows = {word: gates[m] * row + (word == value) * phi for word, row in rows.items()}
        assert found["words"] == list(rows)
        assert_close(float64(found["z"]), z)
        assert_close(float64(found["rows"]), torch.stack(list(rows.values())))
        assert left == pytest.approx(tokens, rel=1e-9)


def test_answers_are_those_of_both_forms_of_the_recurrence(call):  # CS-rec, CS-gate
    states = random_states(25, seed=0)
    by_state, by_attention = (call(name, [[s] for s, _ in states]) for name in ("byState", "byAttention"))
    for (state, triples), stored, looked in zip(states, by_state, by_attention):
        q, k, v, log_gates = as_heads(call, state, triples)
        forms = [form(q, k, v, state["power"], log_gates) for form in (attention_form, recurrent_form)]
        outputs = [forms[0].output[0, 0, -1], forms[1][0].output[0, 0, -1]]
        weights = (log_gates[0, 0].flip(0).cumsum(0).flip(0) - log_gates[0, 0]).exp()
        weights = weights * (k[0, 0] @ q[0, 0, 0]) ** state["power"]  # the sum written out, without an epsilon
        exact = weights @ v[0, 0] / weights.sum()
        for found in (stored, looked):
            for expected in outputs:
                assert_close(float64(found), expected, rtol=0, atol=2e-6)
            assert_close(float64(found), exact, rtol=1e-9, atol=1e-11)


def test_a_word_has_one_direction_of_length_one_and_two_words_have_two(call):
    found = float64(call("vector", [[word, 8] for word in WORDS]))
    scores = found @ found.T
    assert_close(scores.diag(), torch.ones(len(WORDS), dtype=torch.float64))
    assert (scores - scores.diag().diag()).abs().max() < 0.95
    many = float64(call("vector", [[f"word{i}", 8] for i in range(2000)]))
    assert many.mean(0).abs().max() < 0.03
    assert_close(many.T @ many / 2000, torch.eye(8, dtype=torch.float64) / 8, rtol=0, atol=0.015)


def test_a_line_is_read_in_pairs_and_strokes_shut_the_next_gate(call):
    line = "/ Anne red, philip: BLUE / / laura=green; left"
    found = [tuple(pair.values()) for pair in call("pairs", [[line]])[0]]
    assert found == [("anne", "red", 0), ("philip", "blue", 0), ("laura", "green", 2)]
    assert len(call("pairs", [["a b " * 40]])[0]) == 24
    assert call("pairs", [[""], ["alone"]]) == [[], []]


# In a browser --------------------------------------------------------------------------------------------------------


def test_typing_stores_pairs_and_the_key_that_is_asked_changes_the_answer(place):
    line, asked = place.page.get_by_label("Pairs: key value"), place.page.get_by_label("Key that is asked")
    line.fill("hester rust")
    assert place.text(".geo-say").startswith("anne brings back rust, 100\u00a0%. Nothing is stored under it")
    line.fill("")
    assert place.text(".geo-say").startswith("No pair is stored yet")
    line.press_sequentially("walter teal, anne gold, walter mint")
    asked.fill("walter")
    assert place.values()["ask"] == "walter"
    place.settle()
    assert place.page.locator("#one .bar.stored").count() == 2
    place.page.get_by_role("button", name="anne gold").press("Enter")
    assert place.text(".geo-say").startswith("anne brings back gold")
    assert asked.input_value() == "anne"


def test_one_pair_more_stores_another_until_there_are_no_more_and_a_shut_gate_leaves_the_last(place):
    chips, more = place.page.locator("#one .chips button"), place.page.get_by_role("button", name="One pair more")
    for _ in range(12):
        more.click()
        place.settle()
    assert chips.count() == 14
    assert numbers_in(place.text(".geo-say"))[-2:] == [14, 14]
    place.page.get_by_label("Pairs: key value").fill("anne red, philip blue")
    place.page.get_by_role("button", name="Shut the gate before the next pair").click()
    more.click()
    assert numbers_in(place.text(".geo-say"))[-2:] == [1, 3]
    assert numbers_in(chips.first.get_attribute("title")) == [1]
