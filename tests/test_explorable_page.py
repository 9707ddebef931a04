"""What is left of a page: its numbers are geolib's, and it answers the reader's hand."""

from __future__ import annotations

import math
import random

import pytest
from explorable_kit import Place, node_functions, state_of

from geolib.explorables import PageLeft
from geolib.recurrence import gate_for_distance, signal_to_noise
from geolib.sympow import dimension, direction_moment

BYTES, NAME = 418, 134  # of the letter; where the name begins


@pytest.fixture(scope="module")
def call(tmp_path_factory):
    """call(name, [arguments, ...]): the results of the module's function of that name."""
    return node_functions("page.js", tmp_path_factory.mktemp("modules"))


def random_states(count):
    draw = random.Random(0)
    return [
        {
            "gate": draw.choice([1.0, 1 - 0.5 * 10 ** -draw.uniform(0, 4)]),
            "features": draw.randrange(8, 129, 8),
            "power": draw.choice([2, 4]),
            "after": draw.choice([0, draw.randrange(100_000)]),
        }
        for _ in range(count)
    ]


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


def test_right_signs_are_those_of_a_normal_noise(call):
    etas = [0, 1e-3, 0.3, 1, 5, 30]
    expected = [1 - math.erfc(math.sqrt(eta / 2)) / 2 for eta in etas]
    assert call("right", [[eta] for eta in etas]) == pytest.approx(expected, abs=2e-7)


def test_best_gate_is_the_librarys(call):
    assert call("bestGate", [[t] for t in (1, 30, 5000)]) == pytest.approx(
        [gate_for_distance(t) for t in (1, 30, 5000)]
    )


def test_without_gates_all_bytes_are_alike_and_with_them_the_last_is_best(call):
    plain, gated = call("shares", [[{"gate": gate, "features": 32, "power": 2, "after": 50}] for gate in (1, 0.99)])
    assert len(plain) == BYTES
    assert max(plain) == min(plain)
    assert gated == sorted(gated)
    assert gated[-1] > gated[0] + 0.2


def test_the_sentence_for_screen_readers_names_the_state(call):
    (said,) = call("describe", [[{"gate": 0.99, "features": 32, "power": 2, "after": 1000}]])
    assert said.startswith("528 features, a memory of 100 tokens, 1,000 bytes read since: the name’s first letter ")


def test_a_power_is_even():
    with pytest.raises(ValueError, match=r"^power: got 5"):
        PageLeft(power=5)


# In a browser --------------------------------------------------------------------------------------------------------


@pytest.fixture
def place(browser):
    """A page with one explorable; what goes wrong in it fails the test."""
    place = Place(browser, "PageLeft", state_of("PageLeft", gate=0.98))
    yield place
    place.close()


def darkness(place):
    """How dark each byte stands."""
    place.settle()
    return place.page.evaluate("() => [...document.querySelectorAll('#one .letter span')].map((s) => +s.style.opacity)")


def test_the_end_is_darker_than_the_beginning_until_the_gates_go(place):
    dark = darkness(place)
    assert len(dark) == BYTES
    assert dark[-1] > 0.9
    assert dark[0] < 0.2
    place.page.get_by_role("button", name="No gates").click()
    alike = darkness(place)
    assert max(alike) == min(alike)
    assert place.values()["gate"] == 1


def test_the_button_sets_the_best_gate_for_the_name(place):
    place.page.get_by_role("button", name="Best gate at its distance, in an endless document").click()
    place.settle()
    assert place.values()["gate"] == pytest.approx(gate_for_distance(BYTES - 1 - NAME))


def test_sliders_move_by_every_key(place):
    slider = place.page.locator("#one input[type=range]").first
    slider.focus()
    seen = []
    for _ in range(3):
        place.page.keyboard.press("ArrowRight")
        place.settle()
        seen.append(place.values()["after"])
    assert seen == [10, 13, 16]
