"""What hands do on pages: questions of *Which encoding?* narrow its table, folds open wherever they are pressed."""

import pytest
from explorable_kit import axe_violations
from test_site import address  # noqa: F401

pytestmark = pytest.mark.site
PAGE = "book/which-encoding.html"


@pytest.mark.parametrize("way", ["finger", "keys"])
def test_pressed_questions_narrow_the_table_and_the_count_is_spoken(browser, address, way):  # noqa: F811
    page = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True).new_page()
    page.goto(address + PAGE)
    questions, told = page.locator("button.question"), page.locator(".asked [role=status]")
    rows = page.locator("table:has(th:text-is('question')) tbody tr:visible")
    press = lambda i: questions.nth(i).tap() if way == "finger" else questions.nth(i).press("Enter")  # noqa: E731
    assert (questions.count(), whole := rows.count()) == (5, 15)
    press(3)
    assert 0 < (few := rows.count()) < whole
    assert rows.locator("td:nth-child(3)").all_text_contents() == ["yes"] * few  # moved: same weights
    press(1)
    assert rows.locator("td:first-child").all_text_contents() == ["rope", "sympow-gates"]
    assert told.text_content() == f"2 of {whole} methods serve 2 and 4: rope, sympow-gates."
    assert questions.nth(1).get_attribute("aria-pressed") == "true"
    assert axe_violations(page, ".bd-article") == []
    press(4)
    assert rows.count() == 0
    page.get_by_role("button", name="Show all").click()
    assert rows.count() == whole
    page.context.close()


def test_without_scripts_the_whole_table_stands(browser, address):  # noqa: F811
    page = browser.new_context(java_script_enabled=False).new_page()
    page.goto(address + PAGE)
    assert page.locator("table:has(th:text-is('question')) tbody tr:visible").count() == 15
    page.context.close()


def test_a_folds_title_opens_it_wherever_a_finger_presses(browser, address):  # noqa: F811
    page, wrong = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True).new_page(), []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(address + "book/afternoon.html")
    folds = page.locator(".admonition.solution.dropdown")
    for i, fold in enumerate(folds.all()):
        title = fold.locator(".admonition-title")
        (title.locator("a").first if i % 2 else title).tap()
        assert "toggle-hidden" not in fold.get_attribute("class")
        title.tap()
        assert "toggle-hidden" in fold.get_attribute("class")
    assert (folds.count(), wrong) == (5, [])
    page.context.close()
