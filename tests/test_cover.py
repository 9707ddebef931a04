"""The landing page's words: together they keep their score, apart they lose it, by hand, finger and keys."""

from __future__ import annotations

import math
import sys

import pytest
from explorable_kit import axe_violations
from test_notebooks import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "book"))
import cover

STATIC = REPOSITORY / "book" / "_static"
PAGE = """<!doctype html><html lang="en" data-theme="{theme}"><head><meta charset="utf-8"><title>Cover</title>
<meta name="viewport" content="width=device-width"><style>body {{ margin: 0; background: var(--pst-color-background);
color: var(--pst-color-text-base) }} {style}</style></head><body><main class="bd-article"><h1>Cover</h1>
<figure>{picture}</figure></main><script>{script}</script></body></html>"""


def expected(query, key):
    """The mean cosine between the arrows of the two words at two positions."""
    gaps = [
        cover.start(cover.KEY, j) + key * rate - cover.start(cover.QUERY, j) - query * rate
        for j, rate in enumerate(cover.RATES)
    ]
    return sum(map(math.cos, gaps)) / len(gaps)


@pytest.fixture
def landing(browser):
    """open(theme, width, motion): the drawing as the landing page holds it."""
    opened = []

    def go(theme="light", width=700, motion="reduce"):
        context = browser.new_context(
            viewport={"width": width, "height": 800}, reduced_motion=motion, has_touch=True, is_mobile=width < 500
        )
        page = context.new_page()
        page.wrong = []
        page.on("pageerror", lambda error: page.wrong.append(str(error)))
        picture = cover.picture().replace("<svg ", '<svg class="cover" role="img" aria-label="Six words" ', 1)
        style, script = ((STATIC / name).read_text("utf-8") for name in ("house.css", "cover.js"))
        page.set_content(PAGE.format(theme=theme, style=style, picture=picture, script=script))
        opened.append(page)
        return page

    yield go
    for page in opened:
        assert page.wrong == []
        page.context.close()


def shown(page):
    return float(page.locator(".cover-score b").text_content().replace("\N{MINUS SIGN}", "-"))


def drag(page, where, dx):
    box = page.locator(where).bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + dx, y, steps=3)
    page.mouse.up()


def test_the_whole_sentence_keeps_the_score_and_one_word_changes_it(landing):
    page = landing()
    start = shown(page)
    assert start == pytest.approx(expected(7, 3), abs=0.006)
    drag(page, "svg.cover .sentence", 60)
    assert shown(page) == start
    assert "same" in page.locator(".cover-said").text_content()
    drag(page, "svg.cover .key", -70)
    places = [float(page.locator(f"svg.cover .{who}").get_attribute("aria-valuenow")) for who in ("query", "key")]
    assert places[1] - places[0] < -4.5
    assert shown(page) == pytest.approx(expected(*places), abs=0.01)
    assert shown(page) != start


@pytest.mark.parametrize("who", [".query", ".key", ".sentence"])
def test_a_finger_moves_it_whichever_way_it_goes_and_scrolls_beside_it(landing, who):
    page = landing(width=390)
    page.add_style_tag(content="figure { padding: 700px 0 900px }")
    part, touch = page.locator(f"svg.cover {who}"), page.context.new_cdp_session(page)
    place = lambda: float(part.get_attribute("aria-valuenow"))  # noqa: E731

    def finger(x, y, dx, dy):
        page.evaluate("cancelled = 0; addEventListener('pointercancel', () => { cancelled += 1; }, true)")
        before = page.evaluate("scrollY")
        for kind, share in [("touchStart", 0), *(("touchMove", step / 4) for step in range(1, 5))]:
            touch.send(
                "Input.dispatchTouchEvent",
                {"type": kind, "touchPoints": [{"x": x + share * dx, "y": y + share * dy}]},
            )
            page.evaluate("new Promise(requestAnimationFrame)")
        touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        return page.evaluate("scrollY") - before

    page.evaluate("scrollTo(0, 450)")
    scale = page.locator("svg.cover").evaluate("(e) => e.clientWidth / e.viewBox.baseVal.width") * cover.STEP
    for turn in range(8):
        dx, dy = (round(44 * way(turn * math.pi / 4)) for way in (math.cos, math.sin))
        box, before = part.bounding_box(), place()
        assert finger(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, dx, dy) == 0
        assert page.evaluate("cancelled") == 0
        assert place() - before == pytest.approx(dx / scale, abs=0.02)
    holes = """(e) => { const box = e.getBoundingClientRect(), found = [];
      for (let x = box.left + 3; x < box.right - 3; x += 3) for (let y = box.top + 3; y < box.bottom - 3; y += 3)
        if (!e.contains(document.elementFromPoint(x, y))) found.push([x, y]);
      return found; }"""
    assert who == ".sentence" or part.evaluate(holes) == []  # its ends are round
    ruler = page.locator("svg.cover .places text").last.bounding_box()
    assert finger(ruler["x"] + 4, ruler["y"] - 40, 0, -200) > 100


def test_the_keys_move_each_and_no_word_leaves_the_ruler(landing):
    page = landing()
    for name, low, high in ((".query", 0, 10), (".key", 0, 10)):
        part = page.locator(f"svg.cover {name}")
        part.focus()
        for key, value in (("Home", low), ("ArrowRight", low + 0.5), ("End", high), ("ArrowLeft", high - 0.5)):
            page.keyboard.press(key)
            assert float(part.get_attribute("aria-valuenow")) == value
        assert "score" in part.get_attribute("aria-valuetext")
    page.locator("svg.cover .sentence").focus()
    for key in ("End", "ArrowRight", "Home", "ArrowLeft"):
        page.keyboard.press(key)
        places = [
            float(p)
            for p in page.locator("svg.cover [role=slider]").evaluate_all(
                "(all) => all.slice(0, 2).map((each) => each.getAttribute('aria-valuenow'))"
            )
        ]
        assert all(0 <= place <= 10 for place in places)


def test_it_moves_once_by_itself_and_not_for_readers_who_asked_for_less_motion(landing):
    moved = "(before) => document.querySelector('svg.cover').innerHTML !== before"
    page = landing(motion="no-preference")
    before, start = page.locator("svg.cover").inner_html(), shown(page)
    page.wait_for_function(moved, arg=before, timeout=4000)
    page.wait_for_timeout(5500)
    assert shown(page) == start
    still = page.locator("svg.cover").inner_html()
    page.wait_for_timeout(500)
    assert page.locator("svg.cover").inner_html() == still
    calm = landing()
    before = calm.locator("svg.cover").inner_html()
    calm.wait_for_timeout(2500)
    assert calm.locator("svg.cover").inner_html() == before


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 700])
def test_it_fits_its_words_are_read_and_axe_finds_nothing(landing, theme, width):
    page = landing(theme, width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    heights = "(all) => all.map((each) => parseFloat(getComputedStyle(each).fontSize) * each.getScreenCTM().a)"
    assert min(page.locator("svg.cover text").evaluate_all(heights)) >= 10.5
    assert axe_violations(page) == []
