"""A guess before the answer: what is asked is told once it has been seen, and the guess stays beside it."""

import pytest
from explorable_kit import FOLDER, NAMES, Place, file_of, state_of

# A guess, which is right, and what ends the wait for the answer.
WAGERS = [
    ("TwoOrders", {}, "The same", "Others", {"t": 1}),
    ("SkewExponential", {}, "1", "3", {"t": 1}),
    ("SphereTransport", {"progress": 0}, "As before", "90° off", {"progress": 3}),
    ("RopeClock", {}, "Rise", "Stay", {"shift": 40}),
    ("TwoMirrors", {"mirrors": 2}, "10°", "20°", {"m": 90}),
    ("TwoMirrors", {}, "At many", "Never", {"n": 40}),
    ("LiveModel", {}, "No", "Yes", {"row": 4, "column": 4}),
    ("LiveModel", {"method": "learned"}, "Yes", "No", {"row": 4, "column": 4}),
    ("ScaleSlider", {}, "Apart", "Both sides", {"shift": 20}),
    ("PageLeft", {"gate": 0.98}, "The last", "All alike", {"gate": 1.0}),
    ("PageLeft", {}, "The first", "All alike", {"after": 500}),
]
# What these show is no answer that a question mark could stand for: it is looked at.
OPEN = {"RopeClock", "LiveModel", "ScaleSlider", "PageLeft"}
# Ticked answers two frames after a click: counted in the page, as the live model walks to the answer by itself.
CLICKED = """async (button, ticked) => {
  button.click();
  await new Promise((seen) => requestAnimationFrame(() => requestAnimationFrame(seen)));
  return document.querySelectorAll(ticked.replace(":visible", "")).length;
}"""


def test_every_figure_with_a_guess_is_here():
    asks = {name for name in NAMES if "./guess.js" in (FOLDER / file_of(name)).read_text("utf-8")}
    assert asks == {name for name, *_ in WAGERS}


@pytest.mark.parametrize(("name", "start", "guess", "right", "end"), WAGERS)
def test_the_answer_waits_until_it_is_seen_and_the_guess_stays_beside_it(browser, name, start, guess, right, end):
    place = Place(browser, name, state_of(name, **start))
    row, ticked = place.page.locator("#one .geo-wager:visible"), "#one .geo-wager:visible button.right"
    option = lambda text: row.get_by_role("button").filter(has_text=text).first  # noqa: E731
    shown, answered = "#one .geo-say:visible", place.page.locator(ticked)
    before = place.page.locator(shown).first.text_content()
    first = place.drawing()
    for _ in range(2):  # once more after a Reset, which asks anew
        button = option(guess)
        assert button.evaluate(CLICKED, ticked) == 0
        place.settle()
        assert button.get_attribute("aria-pressed") == "true"
        place.set(**end)
        assert answered.all_text_contents() == [right]
        option(right).click(force=True)  # no guess any more
        place.settle()
        assert row.locator("[aria-pressed=true]").all_text_contents() == [guess]
        place.page.wait_for_function(
            "document.querySelector('#one [aria-live=polite]').textContent.includes('guessed')"
        )
        seen = place.page.locator(shown).first.text_content()
        place.page.get_by_role("button", name="Reset").click()
        place.settle()
        assert row.locator("[aria-pressed=true], .right").count() == 0
        assert place.drawing() == first
    assert "?" not in seen != before or name in OPEN
    place.close()
