"""A guess before the answer: what is asked is told once it has been seen, and the guess stays beside it."""

import pytest
from explorable_kit import Place, state_of

# A guess, which is right, and what ends the wait for the answer.
WAGERS = [
    ("TwoOrders", {}, "The same", "Others", {"t": 1}),
    ("SkewExponential", {}, "1", "3", {"t": 1}),
    ("SphereTransport", {"progress": 0}, "As before", "90° off", {"progress": 3}),
    ("RopeClock", {}, "Rise", "Stay", {"shift": 40}),
    ("TwoMirrors", {"mirrors": 2}, "10°", "20°", {"m": 90}),
    ("TwoMirrors", {}, "At many", "Never", {"n": 40}),
]


@pytest.mark.parametrize(("name", "start", "guess", "right", "end"), WAGERS)
def test_the_answer_waits_until_it_is_seen_and_the_guess_stays_beside_it(browser, name, start, guess, right, end):
    place = Place(browser, name, state_of(name, **start))
    row, ticked = place.page.locator("#one .geo-wager:visible"), "#one .geo-wager:visible button.right"
    shown, answered = "#one .geo-say:visible", place.page.locator(ticked)
    before = place.page.locator(shown).first.text_content()
    button = row.get_by_role("button").filter(has_text=guess).first
    button.click()
    place.settle()
    assert answered.count() == 0
    assert button.get_attribute("aria-pressed") == "true"
    place.set(**end)
    assert answered.all_text_contents() == [right]
    assert button.get_attribute("aria-pressed") == "true"
    assert "?" not in place.page.locator(shown).first.text_content() != before or name == "RopeClock"
    place.page.wait_for_function("document.querySelector('#one [aria-live=polite]').textContent.includes('guessed')")
    place.close()
