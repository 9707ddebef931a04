"""A memory to type into: its answers are those of the recurrence's forms, and it reads what a reader writes."""

from __future__ import annotations

import random

import pytest
import torch
from explorable_kit import Place, node_functions, state_of
from playwright.sync_api import expect
from torch.testing import assert_close

from geolib.explorables import LiveMemory
from geolib.recurrence import attention_form, recurrent_form
from geolib.sympow import dimension, embed

NAMES = ("anne", "philip", "laura", "marian", "hester", "walter", "straße")
WORDS = (*NAMES, "red", "blue", "green", "gold", "teal", "rust", "naïve")

# In Node: the numbers ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def call(tmp_path_factory):
    """call(name, [arguments, ...]): the results of the explorable's function of that name."""
    return node_functions("memory.js", tmp_path_factory.mktemp("modules"))


def float64(values):
    return torch.tensor(values, dtype=torch.float64)


def random_states(count, seed, tokens=14):
    """States of some pairs, with what each pair is: (state, [(key, value, strokes before it), ...])."""
    draw, states = random.Random(seed), []
    for _ in range(count):
        triples = [(draw.choice(WORDS), draw.choice(WORDS), int(n > 0 and draw.random() < 0.2)) for n in range(tokens)]
        text = ", ".join(f"{'/ ' * shut}{key} {value}" for key, value, shut in triples)
        state = {
            "text": text,
            "ask": draw.choice(WORDS),
            "power": draw.choice([2, 4, 6]),
            "features": draw.randint(2, 12),
            "gate": draw.choice([1.0, draw.uniform(0.5, 1)]),
        }
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
    for state, triples in random_states(6, seed=11):
        found, gates = call("written", [[state]])[0], call("gates", [[state]])[0]
        vectors = float64(call("vector", [[key, state["features"]] for key, _, _ in triples]))
        z = torch.zeros(dimension(state["features"], state["power"]), dtype=torch.float64)
        rows = {value: z.clone() for _, value, _ in triples}
        for m, (_, value, _) in enumerate(triples):
            phi = embed(vectors[m], state["power"])
            z = phi + (gates[m] * z if m else 0)
            rows = {word: (gates[m] * row if m else row) + (word == value) * phi for word, row in rows.items()}
        assert found["words"] == list(rows)
        assert_close(float64(found["z"]), z)
        assert_close(float64(found["rows"]), torch.stack(list(rows.values())))


def test_answers_are_those_of_both_forms_of_the_recurrence(call):  # CS-rec, CS-gate
    states = random_states(25, seed=0)
    by_state, by_attention = (call(name, [[s] for s, _ in states]) for name in ("byState", "byAttention"))
    for (state, triples), stored, looked in zip(states, by_state, by_attention):
        q, k, v, log_gates = as_heads(call, state, triples)
        forms = [form(q, k, v, state["power"], log_gates) for form in (attention_form, recurrent_form)]
        outputs = [forms[0].output[0, 0, -1], forms[1][0].output[0, 0, -1]]
        for found in (stored, looked):
            for expected in outputs:
                assert_close(float64(found), expected, rtol=0, atol=2e-6)
        weights = (log_gates[0, 0].flip(0).cumsum(0).flip(0) - log_gates[0, 0]).exp()
        weights = weights * (k[0, 0] @ q[0, 0, 0]) ** state["power"]  # the sum written out, without an epsilon
        exact = weights @ v[0, 0] / weights.sum()
        assert_close(float64(stored), exact, rtol=1e-9, atol=1e-11)
        assert_close(float64(looked), exact, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["byState", "byAttention"])
def test_a_word_with_a_capital_is_the_same_word(call, name):
    states = [state for state, _ in random_states(9, seed=13)]
    capital = [state | {field: state[field].title()} for field in ("text", "ask") for state in states]
    assert all(one != other for one, other in zip(2 * states, capital))
    found = call(name, [[state] for state in states + capital])
    assert found == 3 * found[: len(states)]


def test_embedding_is_the_librarys_and_has_its_dimension(call):
    for d, p in ((2, 2), (5, 2), (12, 2), (3, 4), (8, 4), (2, 6), (7, 6), (12, 6)):
        v = torch.randn(d, dtype=torch.float64, generator=torch.Generator().manual_seed(d))
        (found,) = call("embed", [[v.tolist(), p]])
        assert_close(float64(found), embed(v, p), rtol=1e-9, atol=1e-12)
        assert call("size", [[{"features": d, "power": p}]]) == [dimension(d, p)] == [len(found)]


def test_tokens_left_are_the_sum_of_the_products_of_gates(call):
    for state, triples in random_states(10, seed=1):
        left = 0.0
        for _, _, shut in triples:  # M_m = 1 + gamma_m M_(m-1)
            left = 1 + state["gate"] * 0.01**shut * left
        assert call("memory", [[state]]) == [pytest.approx(left, rel=1e-9)]


def test_a_word_has_one_direction_of_length_one_and_two_words_have_two(call):
    found = [float64(each) for each in call("vector", [[word, 8] for word in WORDS])]
    assert call("vector", [["anne", 8]])[0] == found[0].tolist()
    scores = torch.stack(found) @ torch.stack(found).T
    assert_close(scores.diag(), torch.ones(len(WORDS), dtype=torch.float64))
    assert (scores - scores.diag().diag()).abs().max() < 0.95
    many = float64(call("vector", [[f"word{i}", 8] for i in range(2000)]))
    assert many.mean(0).abs().max() < 0.03
    assert_close(many.T @ many / 2000, torch.eye(8, dtype=torch.float64) / 8, rtol=0, atol=0.015)


def test_a_line_is_read_in_pairs_and_strokes_shut_the_next_gate(call):
    line = "/ Anne red, philip: BLUE / / laura=green; left"
    assert call("pairs", [[line]]) == [
        [
            {"key": "anne", "value": "red", "shut": 0},
            {"key": "philip", "value": "blue", "shut": 0},
            {"key": "laura", "value": "green", "shut": 2},
        ]
    ]
    state = {"text": line, "gate": 0.5, "features": 4, "power": 2, "ask": "anne"}
    assert call("gates", [[state]])[0] == pytest.approx([0.5, 0.5, 0.5e-4])
    assert len(call("pairs", [["a b " * 40]])[0]) == 24
    assert call("pairs", [[""], ["alone"]]) == [[], []]


def test_a_key_stored_twice_brings_back_both_and_a_gate_prefers_the_later(call):
    state = {"text": "anne red, anne blue", "ask": "ANNE", "power": 2, "features": 8, "gate": 1}
    plain, gated = call("byState", [[state], [state | {"gate": 0.6}]])
    assert plain == pytest.approx([0.5, 0.5])
    assert gated == pytest.approx([0.6 / 1.6, 1 / 1.6])


def test_the_sentence_names_what_comes_back_and_what_was_stored(call):
    state = {"text": "anne red, philip blue", "ask": "anne", "power": 6, "features": 12, "gate": 1}
    said, empty, unknown = call("describe", [[state], [state | {"text": "anne"}], [state | {"ask": "rosa"}]])
    assert said.startswith("Asked for anne: red, ")
    assert said.endswith("stored last under it: red. The gates have left 2.0 of 2 tokens.")
    assert empty.startswith("No pair is stored yet")
    assert "nothing is stored under it" in unknown


# In Python: the traits -----------------------------------------------------------------------------------------------


# In a browser --------------------------------------------------------------------------------------------------------


@pytest.fixture
def place(browser):
    """A page with the explorable; what goes wrong in it fails the test."""
    place = Place(browser, "LiveMemory", state_of("LiveMemory"))
    yield place
    place.close()


def told(place):
    place.settle()
    return place.page.locator("#one .geo-say").text_content()


def test_typing_stores_pairs_and_the_key_that_is_asked_changes_the_answer(place):
    place.page.get_by_label("Pairs: key value").fill("hester rust")
    said = "Nothing is stored under it; it is answered all the same. The gates have left 1.0 of 1 token."
    assert told(place) == f"anne brings back rust, 100\u00a0%. {said}"
    place.page.get_by_label("Pairs: key value").fill("")
    assert told(place).startswith("No pair is stored yet")
    place.page.get_by_label("Pairs: key value").press_sequentially("walter teal, anne gold, walter mint", delay=1)
    place.page.get_by_label("Key that is asked").fill("walter")
    assert place.values()["ask"] == "walter"
    expect(place.page.locator("#one .bar.stored")).to_have_count(2)  # drawn a frame later
    place.page.get_by_role("button", name="anne gold").press("Enter")
    assert told(place).startswith("anne brings back gold")
    assert place.page.get_by_label("Key that is asked").input_value() == "anne"


def test_one_pair_more_stores_another_until_there_are_no_more_and_a_shut_gate_leaves_the_last(place):
    chips = place.page.locator("#one .chips button")
    for _ in range(12):
        place.page.get_by_role("button", name="One pair more").click()
        place.settle()
    assert chips.count() == 14
    assert "14.0 of 14 tokens" in told(place)
    place.page.get_by_label("Pairs: key value").fill("anne red, philip blue")
    place.page.get_by_role("button", name="Shut the gate before the next pair").click()
    place.page.get_by_role("button", name="One pair more").click()
    assert "left 1.0 of 3 tokens" in told(place)
    assert chips.first.get_attribute("title") == "1\u00a0% left by the gates"


def test_what_is_written_travels_in_the_address(place):
    for text in ("anne red / philip 7", "12", '"a" b', "true", "ä + b & c=d\ne f"):
        made = place.page.evaluate(
            """async ([module, values, start]) => {
              const url = URL.createObjectURL(new Blob([module], { type: "text/javascript" }));
              const { address, readMove } = await import(url);
              return readMove(address("memory", 1, values, start)).asked; }""",
            [LiveMemory().get_state()["_esm"] + "\nexport { address, readMove };", {"text": text}, {"text": ""}],
        )
        assert made == {"text": text}
