"""A letter in a state: its numbers are geolib's, it takes a reader's text, and it can be taken along."""

from __future__ import annotations

import math
import random
from functools import partial

import numpy as np
import pytest
from explorable_kit import functions_of, place_of, states
from PIL import Image

from geolib.recurrence import signal_to_noise
from geolib.sympow import dimension, direction_moment

BYTES, NAME = 418, 134  # of the letter; where the name begins
call = functions_of("page.js")
opened, place = place_of("PageLeft", gate=0.98)
KINDS = {"gate": [1.0, 0.9, 0.98, 0.999, 0.99995], "features": range(8, 129, 8), "power": [2, 4]}
random_states = partial(states, **KINDS, after=lambda draw: draw.choice([0, draw.randrange(100_000)]))


def test_signal_over_noise_is_the_librarys(call):  # CS-REACH
    states = random_states(40)
    backs = [random.Random(i).randrange(BYTES + state["after"]) for i, state in enumerate(states)]
    found = call("signal", [[s, back, BYTES + s["after"]] for s, back in zip(states, backs)])
    expected = [
        signal_to_noise(back, BYTES + s["after"], s["gate"], s["features"], s["power"])
        for s, back in zip(states, backs)
    ]
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-300)


def test_moments_and_sizes_are_the_librarys(call):
    cases = [(8, 2), (32, 2), (128, 2), (8, 4), (128, 4)]
    expected = [direction_moment(d, 2 * p) for d, p in cases]
    assert call("moment", [list(case) for case in cases]) == pytest.approx(expected, rel=1e-12)
    assert call("size", [[{"features": d, "power": p}] for d, p in cases]) == [dimension(d, p) for d, p in cases]


def test_the_best_gate_reads_a_word_of_this_text_better_than_any_other(call):  # CS-REACH
    cases = [(0, 9), (3, 9), (4, 9), (8, 9), (30, 418), (100, 418), (283, 418), (300, 4000), (5000, 90_000)]
    for (back, tokens), best in zip(cases, call("bestGate", [list(case) for case in cases])):
        read = lambda gate: signal_to_noise(back, tokens, gate, 32, 2)  # noqa: E731, B023
        others = max(read(1 - 0.5 * 10 ** (-step / 40)) for step in range(240))
        assert read(best) >= max(others, read(1.0)) * (1 - 1e-9)
        assert (best == 1) == (back >= (tokens - 1) / 2)


def test_right_signs_are_those_of_a_normal_noise(call):
    etas = [0, 1e-3, 0.3, 1, 5, 30]
    expected = [1 - math.erfc(math.sqrt(eta / 2)) / 2 for eta in etas]
    assert call("right", [[eta] for eta in etas]) == pytest.approx(expected, abs=2e-7)


def test_bytes_are_counted_letters_are_spelt_and_words_are_there_when_all_their_letters_are(call):
    text = "  Straße, \n 10 €\t😀x  "
    (page,) = call("spell", [[text]])
    clean = "Straße, 10 € 😀x"
    assert "".join(page["letters"]) == clean
    assert page["bytes"] == len(clean.encode())
    assert page["at"] == [len(clean[:i].encode()) for i in range(len(clean))]
    assert [clean[a : b + 1] for a, b in page["words"]] == clean.split()
    (found,) = call("there", [[page, [0.98] * 4 + [0.995] * (len(clean) - 4)]])
    assert [clean[a : b + 1] for a, b in found] == ["10", "€", "😀x"]
    assert call("followed", [[page, 1], [page, 200], [{"words": []}, 3]]) == [[8, 9], [13, 14], [0, 0]]
    state = {"text": text, "gate": 0.7, "features": 8, "power": 2, "after": 3}
    expected = [
        1 - math.erfc(math.sqrt(signal_to_noise(page["bytes"] + 2 - at, page["bytes"] + 3, 0.7, 8, 2) / 2)) / 2
        for at in page["at"]
    ]
    assert call("shares", [[state]])[0] == pytest.approx(expected, abs=3e-7)


# In a browser --------------------------------------------------------------------------------------------------------


def darkness(place):
    """How dark each byte stands."""
    place.settle()
    return place.page.evaluate("() => [...document.querySelectorAll('#one .letter span')].map((s) => +s.style.opacity)")


def test_the_end_is_darker_than_the_beginning_until_the_gates_go(place):
    dark = darkness(place)
    assert len(dark) == BYTES
    assert dark[0] < 0.2 < 0.9 < dark[-1]
    place.page.get_by_role("button", name="No gates").click()
    assert len(set(darkness(place))) == 1
    place.page.get_by_role("button", name="Best gate for the coloured word").click()
    place.settle()
    assert place.values()["gate"] == 1  # more bytes stand after the name than before it
    place.page.get_by_label("Coloured word").press("End")
    place.page.get_by_role("button", name="Best gate for the coloured word").click()
    place.settle()
    assert 0.5 < place.values()["gate"] < 0.95


def test_a_readers_own_text_takes_the_letters_place_and_a_tap_follows_a_word(place):
    field, word = place.page.get_by_label("Text, at most 600 letters"), place.page.get_by_label("Coloured word")
    field.fill("Dear Anne, the money lies\nunder the oak.")
    assert len(darkness(place)) == len("Dear Anne, the money lies under the oak.")
    assert place.page.locator("#one .name").all_text_contents() == list("oak.")  # the last: there are fewer words
    place.page.locator("#one .letter span").nth(16).click()
    place.settle()
    assert place.values()["word"] == 3
    assert "money" in place.text(".geo-say")
    word.focus()
    place.page.keyboard.press("Home")
    place.settle()
    assert word.get_attribute("aria-valuetext") == "Dear"
    field.fill("")
    assert place.text(".geo-say").startswith("There is no text")


def test_a_picture_of_the_letter_can_be_kept(place):
    with place.page.expect_download() as saved:
        place.page.get_by_role("button", name="Save a picture").click()
    picture = Image.open(saved.value.path())
    assert saved.value.suggested_filename == "letter.png"
    assert picture.size[0] == 1296
    pixels = np.asarray(picture.convert("L"), dtype=float)
    rows = 255 - pixels[72 : 72 + 50 * 7].reshape(7, 50, -1).min((1, 2))  # seven lines: how dark each is
    assert rows[-1] > 200  # the last line is in full ink, the first ones are pale
    assert rows[0] < 100
