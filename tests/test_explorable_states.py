"""Explorables of states: strokes of the recurrence, gates, a memory and a letter to write, where a step's time goes."""

import math
import random
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from explorable_kit import float64, functions_of, numbers_in, place_of, states
from PIL import Image
from torch.testing import assert_close

from geolib.explorables import GateCurves, StepTime
from geolib.lab.benches import saved
from geolib.recurrence import (
    alibi_log_gates,
    attention_form,
    log_decay,
    log_gates,
    memory_length,
    recurrent_form,
    signal_to_noise,
)
from geolib.sympow import dimension, embed

# The conformal state: its point is attention's sum, stroke by stroke --------------------------------------------------

state_js = functions_of("state.js")
state_opened, on_state = place_of("ConformalState", example="wander", token=8)
KINDS = {"example": ["wander", "same", "once"], "gamma": (0.3, 1), "turn": (-180, 180), "token": (0, 12)}
state_states = partial(states, **KINDS)


def tokens_of(example):
    """Keys and values by the formulas of the class's docstring, as complex numbers and numbers."""
    place = np.arange(1, 13)
    angle = 2 * np.sin(1.7 * place) if example == "wander" else 0.0 * place
    value = {"wander": 1 + np.cos(2 * place) / 2, "same": np.ones(12), "once": (place == 1).astype(float)}[example]
    return np.exp(1j * angle), value


def test_points_are_those_of_the_recurrence_of_complex_numbers_and_of_the_attention_form(state_js):  # CS-1, CS-2, CS-3
    states = [state | {"token": float(1 + n % 12)} for n, state in enumerate(state_states(24, seed=1))]
    calls = [[state] for state in states]
    assert max(state_js("gap", calls)) < 1e-12
    sums = state_js("attentionState", [[state, int(state["token"])] for state in states])
    shown = state_js("tokens", [[state["example"]] for state in states])
    for state, told, strokes, looked in zip(states, shown, state_js("strokes", calls), sums):
        keys, values = tokens_of(state["example"])
        assert [complex(*key) for key in told["k"]] == pytest.approx(keys, abs=1e-12)
        assert told["v"] == pytest.approx(values, abs=1e-12)
        scale, point, points = state["gamma"] * np.exp(-1j * math.radians(state["turn"])), 0, []
        for k, v, stroke in zip(keys, values, strokes, strict=True):
            expected = {"before": point, "shrunk": state["gamma"] * point, "turned": scale * point}
            point = scale * point + v * k
            points.append(point)
            for name, value in (expected | {"after": point}).items():
                assert complex(*stroke[name]) == pytest.approx(value, abs=1e-9)
        assert complex(*looked) == pytest.approx(points[int(state["token"]) - 1])


def test_a_moment_lies_on_the_stroke_of_its_third(state_js):
    state = state_states(1, seed=4)[0] | {"example": "wander"}
    (strokes,) = state_js("strokes", [[state]])
    before, shrunk, turned, after = (complex(*strokes[5][name]) for name in ("before", "shrunk", "turned", "after"))
    turning = shrunk * np.exp(-1j * math.radians(state["turn"]) / 2)  # half way round the origin
    expected = [before, (before + shrunk) / 2, shrunk, turning, turned, (turned + after) / 2, after]
    found = state_js("moment", [[state | {"token": 5 + sixth / 6}] for sixth in range(7)])
    assert [complex(*point) for point in found] == pytest.approx(expected, abs=1e-9)


def test_the_slider_goes_stroke_by_stroke_and_the_sentence_counts_only_finished_tokens(on_state):
    slider = on_state.page.get_by_label("Token m")
    slider.focus()
    for token, said in [(8 + 1 / 3, "Token 9 shrinks"), (8 + 2 / 3, "Token 9 turns"), (9, "Token 9")]:
        on_state.page.keyboard.press("ArrowRight")
        on_state.settle()
        assert on_state.values()["token"] == pytest.approx(token)
        assert slider.get_attribute("aria-valuetext") == said
        assert numbers_in(on_state.text(".settings > .geo-note"))[0] == math.floor(token)


# Gates and rates: the curves' numbers are those of the recurrence, and a hand draws them ------------------------------

gates_js = functions_of("gates.js")
gates_opened, on_gates = place_of("GateCurves")


def test_map_row_and_memory_are_those_of_the_decay(gates_js):  # CS-gate
    curves, tokens = [s["gamma"] for s in states(10, gamma=(0.3, 1, 32))], [1, 2, 3, 7, 13, 20, 25, 30, 31, 32]
    maps, both = gates_js("decay", [[gamma] for gamma in curves]), [*map(list, zip(curves, tokens))]
    for gamma, i, found, row, memory in zip(curves, tokens, maps, gates_js("logRow", both), gates_js("memory", both)):
        log = log_decay(float64(gamma).log())
        assert_close(float64(found).reshape(32, 32), log.exp(), rtol=0, atol=1e-6)
        assert_close(float64(row), log[i - 1, :i].flip(0), rtol=0, atol=1e-6)
        assert memory == pytest.approx(float(log[i - 1, :i].exp().sum()), abs=1e-6)


def test_memory_of_gates_of_one_half_is_two_tokens_and_of_open_gates_nearly_all(gates_js):  # CS-GATE0
    half, opened = gates_js("preset", [["half"], ["open"]])
    assert_close(float64(half).log(), log_gates(torch.zeros(32, dtype=torch.float64)), rtol=0, atol=1e-6)
    assert_close(float64(opened).log(), log_gates(torch.zeros(32, dtype=torch.float64), 6.906768), rtol=0, atol=1e-6)
    short, long = gates_js("memory", [[half, 32], [opened, 32]])
    assert short == pytest.approx(memory_length(0.5), abs=1e-6)
    assert 31.4 < long < 32


def test_constant_gates_are_alibi_whose_row_is_straight_and_one_other_gate_bends_it(gates_js):  # CS-A1
    gamma, reset = gates_js("preset", [["alibi"], ["reset"]])
    assert_close(float64(gamma).log(), alibi_log_gates(float64([1 / 8]), 32)[0, 0], rtol=0, atol=1e-12)
    (row,) = gates_js("logRow", [[gamma, 32]])
    assert_close(float64(row), -torch.arange(32, dtype=torch.float64) / 8, rtol=0, atol=1e-9)
    straight, bent = gates_js("alibi", [[gamma, 32], [reset, 32]])
    assert straight["slope"] == pytest.approx(1 / 8)
    assert straight["gap"] < 1e-12
    jump = math.log(0.05) + 1 / 8  # of the gate of token 13, at the distance 20 from token 32
    assert bent["slope"] == pytest.approx(1 / 8 - jump / 31)
    assert bent["gap"] == pytest.approx(max(abs(jump) * 19 / 31, abs(jump) * 11 / 31))


def test_a_stroke_sets_every_token_it_passes_within_the_limits(gates_js):
    values = [0.5] * 32
    strokes = [
        [[4, 0.2], [8, 1.4], 0.01],
        [[8, 0.8], [6, 0], 0.01],
        [[3, 0.3], [3, 0.9], 0.01],
        [[32, 0.7], [34, 0.7], 0],
    ]
    on, back, point, outside = gates_js("painted", [[values, *stroke, 1] for stroke in strokes])
    assert on == [0.5] * 3 + [0.2, 0.5, 0.8, 1, 1] + [0.5] * 24
    assert back[5:8] == [0.01, 0.4, 0.8]
    assert point == [0.5, 0.5, 0.9] + [0.5] * 29
    assert outside == [0.5] * 31 + [0.7]


def pixel(on_gates, curve, token, value):
    """Where the value of a token stands on the page, from the curve's own axes."""
    svg = on_gates.page.locator("#one .draw").nth(curve)
    svg.scroll_into_view_if_needed()
    box, bar, high = svg.bounding_box(), svg.locator("rect").nth(token - 1).bounding_box(), 1 if curve == 0 else 2
    zero, top = box["y"] + 130 - 22, box["y"] + 10
    return bar["x"] + bar["width"] / 2, zero - (zero - top) * value / high


@pytest.mark.parametrize(("name", "curve", "ends"), [("gamma", 0, (0.3, 0.7)), ("beta", 1, (2, 1))])
def test_the_mouse_draws_over_the_bars_it_passes_and_the_picture_follows(on_gates, name, curve, ends):
    clock = on_gates.page.locator("#one svg.clock").inner_html()
    on_gates.page.mouse.move(*pixel(on_gates, curve, 5, ends[0]))
    on_gates.page.mouse.down()
    on_gates.page.mouse.move(*pixel(on_gates, curve, 9, ends[1]))
    on_gates.page.mouse.up()
    on_gates.settle()
    drawn, start = on_gates.values()[name], getattr(GateCurves(), name)
    assert drawn[4:9] == pytest.approx([ends[0] + i / 4 * (ends[1] - ends[0]) for i in range(5)], abs=0.025)
    assert drawn[:4] + drawn[9:] == start[:4] + start[9:]
    if name == "beta":
        assert on_gates.page.locator("#one svg.clock").inner_html() != clock
        hand = numbers_in(on_gates.page.locator("#one .geo-say").nth(1).text_content())[0]
        assert hand == pytest.approx(10 * sum(drawn[:24]), abs=0.5)


# A memory to type into: its answers are those of the recurrence's forms, and it reads what a reader writes ------------

WORDS = ("anne", "philip", "laura", "marian", "hester", "walter", "straße", "red", "blue", "green", "gold", "naïve")
memory_js = functions_of("memory.js")
memory_opened, on_memory = place_of("LiveMemory")


def memory_states(count, seed, tokens=14):
    """States of some pairs, with what each pair is: (state, [(key, value, strokes before it), ...])."""
    draw, states = random.Random(seed), []
    for _ in range(count):
        triples = [(draw.choice(WORDS), draw.choice(WORDS), n and draw.choice([0, 0, 0, 1, 2])) for n in range(tokens)]
        text = ", ".join(f"{'/ ' * shut}{key} {value}" for key, value, shut in triples)
        state = {"text": text, "ask": draw.choice(WORDS), "power": draw.choice([2, 4, 6])}
        state |= {"features": draw.randint(2, 12), "gate": draw.choice([1.0, draw.uniform(0.5, 1)])}
        states.append((state, triples))
    return states


def as_heads(memory_js, state, triples):
    """The line as one head: keys, one value a word, log gates; the key that is asked is the query of each token."""
    keys, (asked,) = (
        memory_js("vector", [[word, state["features"]] for word in words])
        for words in ([key for key, _, _ in triples], [state["ask"]])
    )
    words = list(dict.fromkeys(value for _, value, _ in triples))
    values = torch.eye(len(words), dtype=torch.float64)[[words.index(value) for _, value, _ in triples]]
    gates = float64([state["gate"] * 0.01**shut for _, _, shut in triples])
    q = float64(asked).expand(len(triples), -1)
    return q[None, None], float64(keys)[None, None], values[None, None], gates.log()[None, None]


def test_the_state_is_what_was_written_each_time_shrunk_by_the_gate(memory_js):  # CS-rec
    states = memory_states(6, seed=11)
    asked = [[state] for state, _ in states]
    for (state, triples), found, gates, left in zip(
        states, *(memory_js(name, asked) for name in ("written", "gates", "memory"))
    ):
        vectors = float64(memory_js("vector", [[key, state["features"]] for key, _, _ in triples]))
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


def test_answers_are_those_of_both_forms_of_the_recurrence(memory_js):  # CS-rec, CS-gate
    states = memory_states(25, seed=0)
    by_state, by_attention = (memory_js(name, [[s] for s, _ in states]) for name in ("byState", "byAttention"))
    for (state, triples), stored, looked in zip(states, by_state, by_attention):
        q, k, v, log_gates = as_heads(memory_js, state, triples)
        forms = [form(q, k, v, state["power"], log_gates) for form in (attention_form, recurrent_form)]
        outputs = [forms[0].output[0, 0, -1], forms[1][0].output[0, 0, -1]]
        weights = (log_gates[0, 0].flip(0).cumsum(0).flip(0) - log_gates[0, 0]).exp()
        weights = weights * (k[0, 0] @ q[0, 0, 0]) ** state["power"]  # the sum written out, without an epsilon
        exact = weights @ v[0, 0] / weights.sum()
        for found in (stored, looked):
            for expected in outputs:
                assert_close(float64(found), expected, rtol=0, atol=2e-6)
            assert_close(float64(found), exact, rtol=1e-9, atol=1e-11)


def test_a_word_has_one_direction_of_length_one_and_two_words_have_two(memory_js):
    found = float64(memory_js("vector", [[word, 8] for word in WORDS]))
    scores = found @ found.T
    assert_close(scores.diag(), torch.ones(len(WORDS), dtype=torch.float64))
    assert (scores - scores.diag().diag()).abs().max() < 0.95
    many = float64(memory_js("vector", [[f"word{i}", 8] for i in range(2000)]))
    assert many.mean(0).abs().max() < 0.03
    assert_close(many.T @ many / 2000, torch.eye(8, dtype=torch.float64) / 8, rtol=0, atol=0.015)


def test_a_line_is_read_in_pairs_and_strokes_shut_the_next_gate(memory_js):
    line = "/ Anne red, philip: BLUE / / laura=green; left"
    found = [tuple(pair.values()) for pair in memory_js("pairs", [[line]])[0]]
    assert found == [("anne", "red", 0), ("philip", "blue", 0), ("laura", "green", 2)]
    assert len(memory_js("pairs", [["a b " * 40]])[0]) == 24
    assert memory_js("pairs", [[""], ["alone"]]) == [[], []]


def test_typing_stores_pairs_and_the_key_that_is_asked_changes_the_answer(on_memory):
    line, asked = on_memory.page.get_by_label("Pairs: key value"), on_memory.page.get_by_label("Key that is asked")
    line.fill("hester rust")
    assert on_memory.text(".geo-say").startswith("anne brings back rust, 100\u00a0%. Nothing is stored under it")
    line.fill("")
    assert on_memory.text(".geo-say").startswith("No pair is stored yet")
    line.press_sequentially("walter teal, anne gold, walter mint")
    asked.fill("walter")
    assert on_memory.values()["ask"] == "walter"
    on_memory.settle()
    assert on_memory.page.locator("#one .bar.stored").count() == 2
    on_memory.page.get_by_role("button", name="anne gold").press("Enter")
    assert on_memory.text(".geo-say").startswith("anne brings back gold")
    assert asked.input_value() == "anne"


# Where the time goes: its numbers are the record's and Amdahl's, and its bars show them -------------------------------

ROWS = saved.read("parts")["rows"]
SIZES = ("batch", "width", "tokens", "precision")
time_js = functions_of("time.js")
time_opened, on_time = place_of("StepTime", part="attention", gain=10)


def sizes_of(row):
    return {key: row[key] for key in SIZES}


def test_the_rows_are_the_records_each_found_by_its_sizes_and_one_between_two_by_the_nearest(time_js):
    widget = StepTime()
    assert [row["shares"] for row in widget.rows] == [row["shares"] for row in ROWS]
    assert saved.read("parts")["device"] in widget.made
    assert time_js("rowOf", [[ROWS, sizes_of(row)] for row in ROWS]) == ROWS
    between = {"batch": 9.0, "width": 360.0, "tokens": 20.0, "precision": "bf16"}
    assert list(sizes_of(time_js("rowOf", [[ROWS, between]])[0]).values()) == [8, 384, 16, "bf16"]


def test_the_gain_is_amdahls(time_js):
    draw = random.Random(0)
    tasks = [[draw.uniform(0.01, 9) for _ in range(6)] for _ in range(20)]
    gains = [draw.uniform(1, 100) for _ in tasks]
    after = [sum(task[1:]) + task[0] / g for task, g in zip(tasks, gains)]
    found = time_js("law", [[task[0] / sum(task), g] for task, g in zip(tasks, gains)])
    assert found == pytest.approx([sum(task) / faster for task, faster in zip(tasks, after)], rel=1e-12)


def test_the_bars_end_where_the_time_does_the_longest_part_first(time_js):
    for row, order in zip(ROWS, time_js("longest", [[row["shares"]] for row in ROWS])):
        assert [row["shares"][part] for part in order] == sorted(row["shares"].values(), reverse=True)
    for part, share in ROWS[0]["shares"].items():
        cuts = time_js("cuts", [[ROWS[0]["shares"], part, g] for g in (1, 4, 1e9)])
        assert [cut[-1][1] for cut in cuts] == pytest.approx([1, 1 - 0.75 * share, 1 - share], abs=1e-3)
        assert all(a[1] == b[0] for cut in cuts for a, b in pairwise(cut))


def test_the_second_bar_is_as_much_shorter_as_the_law_says(on_time):
    row = next(row for row in ROWS if list(sizes_of(row).values()) == [8, 192, 64, "float32"])
    on_time.settle()
    sizes = "(r) => [+r.getAttribute('y'), +r.getAttribute('width')]"
    bars = on_time.page.evaluate(f"() => [...document.querySelectorAll('#one rect.bar')].map({sizes})")
    whole, faster = (sum(width for y, width in bars if y == at) for at in sorted({y for y, _ in bars}))
    assert faster / whole == pytest.approx(1 - 0.9 * row["shares"]["attention"], abs=0.005)


# A letter in a state: its numbers are geolib's, it takes a reader's text, and it can be taken along ------------------

BYTES = 418  # of the letter
page_js = functions_of("page.js")
page_opened, on_page = place_of("PageLeft", gate=0.98)
KINDS_of_pages = {"gate": [1.0, 0.9, 0.98, 0.999, 0.99995], "features": range(8, 129, 8), "power": [2, 4]}
page_states = partial(states, **KINDS_of_pages, after=lambda draw: draw.choice([0, draw.randrange(100_000)]))


def test_signal_over_noise_is_the_librarys(page_js):  # CS-REACH
    states = page_states(40)
    backs = [random.Random(i).randrange(BYTES + state["after"]) for i, state in enumerate(states)]
    found = page_js("signal", [[s, back, BYTES + s["after"]] for s, back in zip(states, backs)])
    expected = [
        signal_to_noise(back, BYTES + s["after"], s["gate"], s["features"], s["power"])
        for s, back in zip(states, backs)
    ]
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-300)


def test_sizes_are_the_librarys(page_js):
    cases = [(8, 2), (32, 2), (128, 2), (8, 4), (128, 4)]
    assert page_js("size", [[{"features": d, "power": p}] for d, p in cases]) == [dimension(d, p) for d, p in cases]


def test_the_best_gate_reads_a_word_of_this_text_better_than_any_other(page_js):  # CS-REACH
    cases = [(0, 9), (3, 9), (4, 9), (8, 9), (30, 418), (100, 418), (283, 418), (300, 4000), (5000, 90_000)]
    for (back, tokens), best in zip(cases, page_js("bestGate", [list(case) for case in cases])):
        read = lambda gate: signal_to_noise(back, tokens, gate, 32, 2)  # noqa: E731, B023
        others = max(read(1 - 0.5 * 10 ** (-step / 40)) for step in range(240))
        assert read(best) >= max(others, read(1.0)) * (1 - 1e-9)
        assert (best == 1) == (back >= (tokens - 1) / 2)


def test_right_signs_are_those_of_a_normal_noise(page_js):
    etas = [0, 1e-3, 0.3, 1, 5, 30]
    expected = [1 - math.erfc(math.sqrt(eta / 2)) / 2 for eta in etas]
    assert page_js("right", [[eta] for eta in etas]) == pytest.approx(expected, abs=2e-7)


def test_bytes_are_counted_letters_are_spelt_and_words_are_there_when_all_their_letters_are(page_js):
    text = "  Straße, \n 10 €\t😀x  "
    (page,) = page_js("spell", [[text]])
    clean = "Straße, 10 € 😀x"
    assert "".join(page["letters"]) == clean
    assert page["bytes"] == len(clean.encode())
    assert page["at"] == [len(clean[:i].encode()) for i in range(len(clean))]
    assert [clean[a : b + 1] for a, b in page["words"]] == clean.split()
    (found,) = page_js("there", [[page, [0.98] * 4 + [0.995] * (len(clean) - 4)]])
    assert [clean[a : b + 1] for a, b in found] == ["10", "€", "😀x"]
    assert page_js("followed", [[page, 1], [page, 200], [{"words": []}, 3]]) == [[8, 9], [13, 14], [0, 0]]
    state = {"text": text, "gate": 0.7, "features": 8, "power": 2, "after": 3}
    expected = [
        1 - math.erfc(math.sqrt(signal_to_noise(page["bytes"] + 2 - at, page["bytes"] + 3, 0.7, 8, 2) / 2)) / 2
        for at in page["at"]
    ]
    assert page_js("shares", [[state]])[0] == pytest.approx(expected, abs=3e-7)


def darkness(on_page):
    """How dark each byte stands."""
    on_page.settle()
    return on_page.page.evaluate(
        "() => [...document.querySelectorAll('#one .letter span')].map((s) => +s.style.opacity)"
    )


def test_the_end_is_darker_than_the_beginning_until_the_gates_go(on_page):
    dark = darkness(on_page)
    assert len(dark) == BYTES
    assert dark[0] < 0.2 < 0.9 < dark[-1]
    on_page.page.get_by_role("button", name="No gates").click()
    assert len(set(darkness(on_page))) == 1
    on_page.page.get_by_role("button", name="Best gate for the coloured word").click()
    on_page.settle()
    assert on_page.values()["gate"] == 1  # more bytes stand after the name than before it
    on_page.page.get_by_label("Coloured word").press("End")
    on_page.page.get_by_role("button", name="Best gate for the coloured word").click()
    on_page.settle()
    assert 0.5 < on_page.values()["gate"] < 0.95


def test_a_readers_own_text_takes_the_letters_place_and_a_tap_follows_a_word(on_page):
    field, word = on_page.page.get_by_label("Text, at most 600 letters"), on_page.page.get_by_label("Coloured word")
    field.fill("Dear Anne, the money lies\nunder the oak.")
    assert len(darkness(on_page)) == len("Dear Anne, the money lies under the oak.")
    assert on_page.page.locator("#one .name").all_text_contents() == list("oak.")  # the last: there are fewer words
    on_page.page.locator("#one .letter span").nth(16).click()
    on_page.settle()
    assert on_page.values()["word"] == 3
    assert "money" in on_page.text(".geo-say")
    word.focus()
    on_page.page.keyboard.press("Home")
    on_page.settle()
    assert word.get_attribute("aria-valuetext") == "Dear"
    field.fill("")
    assert on_page.text(".geo-say").startswith("There is no text")


def test_a_picture_of_the_letter_can_be_kept(on_page):
    with on_page.page.expect_download() as saved:
        on_page.page.get_by_role("button", name="Save a picture").click()
    picture = Image.open(saved.value.path())
    assert saved.value.suggested_filename == "letter.png"
    assert picture.size[0] == 1296
    pixels = np.asarray(picture.convert("L"), dtype=float)
    rows = 255 - pixels[72 : 72 + 50 * 7].reshape(7, 50, -1).min((1, 2))  # seven lines: how dark each is
    assert rows[-1] > 200  # the last line is in full ink, the first ones are pale
    assert rows[0] < 100
