"""The score maps: their scores are the library's, their sentence slides by hand, finger and keys, in any page."""

import math
import re
import sys

import numpy as np
import pytest
import torch
from explorable_kit import axe_violations, float64, functions_of, place_of
from test_notebooks import REPOSITORY

from geolib.attention import Encoding
from geolib.conformal import free_law
from geolib.encodings import (
    ALiBi,
    Learned,
    LieRE,
    RiemannFormer,
    RiemannFormerRelative,
    RoPE,
    Sinusoidal,
    SympowEncoding,
)

sys.path.insert(0, str(REPOSITORY / "book" / "_ext"))
import explorables

STATIC = REPOSITORY / "book" / "_static"
INDEX = (REPOSITORY / "book" / "index.md").read_text("utf-8")
ITEMS = re.findall(r"(?m)^- \*\*(.*?)\*\*: (.*)$", INDEX[INDEX.index("maps-why") :].partition("```")[0])
call = functions_of("maps.js")
opened, elsewhere = place_of("ScoreMaps")
METHODS = ["none", "sines", "learned", "rope", "alibi", "xpos", "riemannformer", "liere", "gates", "liere-grid"]
MOVING = {"sines", "learned", "riemannformer", "liere-grid"}


def linked(reason, shown):
    """A reason of the landing page, its links as they are shown."""
    return re.sub(r"\{prf:ref\}`([^<`]+) <.*?>`", shown, reason)


# The scores ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def given(call):
    return call("given", [[]])[0]


def build(method, given):
    """The library's encoding with the page's numbers."""
    settings, weights, rates = given["SETTINGS"], given["WEIGHTS"], float64(given["RATES"])[:, None]
    made = {
        "none": Encoding,
        "sines": lambda: Sinusoidal(width=8, base=settings["base"]),
        "learned": lambda: Learned(width=8, grid=(given["TRAINED"],)),
        "rope": lambda: RoPE(RoPE.text(8, base=settings["base"]).frequencies.double()),
        "alibi": lambda: ALiBi(heads=1, slopes=[settings["slope"]]),
        # An axis, and so a scale, for each pair; RiemannFormer's sign is opposite.
        "xpos": lambda: RiemannFormerRelative(-torch.diag(rates[:, 0]), heads=1, start=1.0, law=free_law()),
        "riemannformer": lambda: RiemannFormer(rates, heads=1, start=settings["scale"]),
        "gates": lambda: SympowEncoding(8, 1, torch.zeros(4, 1).double(), gate_bias=settings["gateBias"]),
    }
    encoding = made.get(method, lambda: LieRE(float64(weights["skew"]).view(1, 1, 2, 2, 6), width=4))().double()
    if method == "learned":
        encoding.vectors.data = float64(weights["learned"])
    if method == "xpos":
        encoding.raw_scale.data = 2 / settings["span"] * float64(given["ZETA"]).log()[None]
    if method == "gates":
        encoding.W_gamma.weight.data = float64(weights["gate"])[None]
    return encoding


@torch.no_grad()
def library(method, places, given):
    """The scores of the library, NaN where it has none."""
    encoding, at = build(method, given), float64(places)[:, None]
    if method == "xpos":
        at = at.expand(-1, 4)
    if method.startswith("liere"):
        rows, columns = torch.arange(8.0).double().div(4).floor(), at[torch.arange(8) % 4, 0]
        at = torch.stack([rows, columns], -1) if method == "liere-grid" else torch.cat([0 * at, at], -1)
    x, off = float64(given["WEIGHTS"]["x"]), torch.zeros(8, dtype=torch.bool)
    if method == "learned":
        cells = at[:, 0].round()
        off = (cells < 0) | (cells >= given["TRAINED"])
        for place in at[off]:
            with pytest.raises(IndexError):
                encoding.embed(x[None, :1], place[None])
        at = at.masked_fill(off[:, None], 0)
    x = encoding.embed(x[None], at)
    q, k = (x @ float64(given["WEIGHTS"][name]).T for name in ("query", "key"))
    placed = encoding.place(at)
    a, b = placed.to_reference(q[:, None], k[:, None])
    scores = a @ b.mT / math.sqrt(8)
    gate = placed.log_gate(x)
    scores = (scores if gate is None else scores + gate)[0, 0]
    return scores.masked_fill(off[:, None] | off | scores.isinf(), torch.nan).numpy()


def some_places(call):
    """Slides and spreads of a hand, and places that lie anywhere."""
    draw = np.random.default_rng(3)
    moved = [[draw.uniform(-1, 6), draw.uniform(0.5, 1.7)] for _ in range(12)] + [[0, 1], [1.5, 1], [5, 1], [0, 1.5]]
    return call("placed", moved) + [list(draw.uniform(0, 13, 8)) for _ in range(6)]


@pytest.mark.parametrize("method", METHODS)
def test_each_map_is_the_library_s(call, given, method):
    places = some_places(call)
    for at, scores in zip(places, call("scores", [[method, each] for each in places])):
        there = np.array([np.nan if value is None else value for value in scores]).reshape(8, 8)
        np.testing.assert_allclose(there, library(method, at, given), atol=1e-5)


def test_what_training_never_saw_is_marked(call):
    """Past the last place where places count; past the longest distance where only distances do."""
    slid, wide = call("placed", [[5, 1], [0, 1.7]])  # places 6 to 13; places 1 to 12.9
    beyond, apart = (
        {each: sum(marks) for each, marks in zip(METHODS, call("fresh", [[each, places] for each in METHODS]))}
        for places in (slid, wide)
    )
    assert {each for each in METHODS if beyond[each]} == MOVING - {"liere-grid"}
    assert beyond["sines"] == 64 - 4 * 4
    assert [apart[each] for each in ("none", "gates", "rope", "alibi", "xpos", "liere")] == [0, 0, 6, 6, 6, 6]


def test_the_landing_page_lists_the_same_reasons_with_links(given):
    assert [[name, linked(reason, r"\1")] for name, reason in ITEMS] == list(given["METHODS"].values())
    assert all("{prf:ref}" in reason for _, reason in ITEMS)


# The page ------------------------------------------------------------------------------------------------------------

PAGE = """<!doctype html><html lang="en" data-theme="{theme}"><head><meta charset="utf-8"><title>Maps</title>
<meta name="viewport" content="width=device-width"><script>document.documentElement.dataset.scripts = "on";</script>
<style>* {{ box-sizing: border-box }} body {{ margin: 0; color: var(--pst-color-text-base);
background: var(--pst-color-background) }} main {{ max-width: 43rem; margin: auto; padding: 0 20px }}
.bd-article a {{ color: var(--pst-color-link) }} figure {{ margin: 0 }} img {{ width: 100% }} {style}</style></head>
<body class="bd-article"><main><h1>Maps</h1><div class="maps-first"><figure><img class="explorable-still" src="data:,"
alt="A still"><figcaption>Caption</figcaption></figure>{shown}</div><div class="maps-why"><ul>{items}</ul></div>
<p style="height: 60rem">More</p></main><script>{host}</script></body></html>"""


@pytest.fixture
def landing(browser):
    """landing(theme, width, scripts): the maps as the landing page holds them."""
    opened = []

    def go(theme="light", width=760, scripts=True):
        context = browser.new_context(
            viewport={"width": width, "height": 844}, has_touch=True, is_mobile=width < 500, java_script_enabled=scripts
        )
        page = context.new_page()
        page.wrong = []
        page.on("pageerror", lambda error: page.wrong.append(str(error)))
        house, host = ((STATIC / name).read_text("utf-8") for name in ("house.css", "widget-host.js"))
        told = [(name, linked(reason, r"<a href=#>\1</a>")) for name, reason in ITEMS]
        items = "".join(f"<li><p><strong>{name}</strong>: {reason}</p></li>" for name, reason in told)
        shown = explorables.held("ScoreMaps")
        page.set_content(PAGE.format(theme=theme, style=house, items=items, shown=shown, host=host))
        if scripts:
            page.wait_for_selector(".explorable[data-alive]")
        opened.append(page)
        return page

    yield go
    for page in opened:
        assert page.wrong == []
        page.context.close()


def pixels(page):
    """What each canvas shows, by its method's name."""
    names = [re.split(r"on a", each)[0] for each in page.locator(".maps .name").all_text_contents()]
    shown = page.locator(".maps canvas").evaluate_all("(all) => all.map((each) => each.toDataURL())")
    return dict(zip((each.lower() for each in names), shown))


def middle(locator):
    box = locator.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def slide(page, dx, part=".maps .sled"):
    x, y = middle(page.locator(part))
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + dx, y, steps=4)
    page.wait_for_timeout(50)
    moved = pixels(page)
    page.mouse.up()
    return moved


def test_a_slide_moves_no_pixel_of_relative_maps_and_then_says_why(landing):
    page = landing()
    before = pixels(page)
    page.wait_for_timeout(700)
    assert pixels(page) == before  # nothing moves by itself
    assert page.locator(".maps .verdict:not(:empty), .maps a").count() == 0
    for name in ("none", "sines", "RoPE"):  # two right and one wrong, five that should be marked are not
        page.get_by_role("button", name=f"{name} stands still").click()
    moved = slide(page, 150)
    assert {each for each in moved if moved[each] != before[each]} == {"sines", "learned", "riemannformer"}
    page.locator(".maps .geo-say", has_text="on 4 of 9").wait_for()
    verdicts = dict(zip(moved, page.locator(".maps .verdict").all_text_contents()))
    assert {each for each, said in verdicts.items() if said == "moves"} == {"sines", "learned", "riemannformer"}
    assert page.locator(".maps a").count() == 9
    again = slide(page, -300)
    assert {each for each in again if again[each] != before[each]} == {"sines", "learned", "riemannformer"}
    page.get_by_role("button", name="on a grid").click()
    page.locator(".maps .verdict", has_text="moves").nth(3).wait_for()
    assert page.locator(".maps .verdict").nth(7).text_content() == "moves"
    on_grid = pixels(page)["liere"]
    assert slide(page, 60)["liere"] != on_grid


def test_elsewhere_the_reasons_have_no_links(elsewhere):
    elsewhere.set(shift=5, spread=1.85, words="grid")  # no word leaves the ruler
    elsewhere.page.locator("#one .maps.open").wait_for()
    plain = [linked(reason, r"\1") for name, reason in ITEMS if name != "LieRE"]
    assert sorted(elsewhere.page.locator("#one .foot p").all_text_contents()) == sorted(plain)
    assert elsewhere.page.locator("#one .maps a").count() == 0
    sled, ruler = (elsewhere.page.locator(f"#one {part}").bounding_box() for part in (".sled", ".ruler"))
    assert sled["x"] + sled["width"] <= ruler["x"] + ruler["width"] + 8


def test_keys_move_both_and_no_word_leaves_the_ruler(landing):
    page = landing()
    for label, keys in (
        ("Places moved", {"Home": -1, "ArrowRight": -0.75, "End": 5, "ArrowLeft": 4.75, "PageUp": 5}),
        ("Places from word to word", {"ArrowRight": 1, "Home": 0.5, "ArrowUp": 0.55, "End": 1}),
    ):
        slider = page.get_by_label(label)
        for key, value in keys.items():
            slider.press(key)
            assert float(slider.input_value()) == pytest.approx(value)
        page.locator(".maps .end:visible").wait_for()
        page.locator(".maps summary").click()
    assert "changed by the slide by up to 0.00" in page.locator("canvas").nth(3).get_attribute("aria-label")


def swipe(page, x, y, dx, dy):
    touch = page.context.new_cdp_session(page)
    touch.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]})
    for i in range(1, 9):
        at = {"x": x + dx * i / 8, "y": y + dy * i / 8}
        touch.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [at]})
        page.wait_for_timeout(16)
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    page.wait_for_timeout(100)


def test_a_finger_slides_the_sentence_scrolls_the_wall_and_finds_the_sentence_docked(landing):
    page = landing(width=390)
    before = pixels(page)
    swipe(page, *middle(page.locator(".maps .sled")), 80, -60)
    assert page.evaluate("scrollY") == 0
    assert float(page.get_by_label("Places moved").input_value()) == pytest.approx(3.5, abs=0.4)
    assert pixels(page)["rope"] == before["rope"]
    assert pixels(page)["riemannformer"] != before["riemannformer"]
    swipe(page, *middle(page.locator("canvas").nth(4)), 0, -300)
    assert page.evaluate("scrollY") > 150
    docked = page.locator(".maps .strip").bounding_box()
    assert docked["y"] == pytest.approx(54.4, abs=1)  # under the theme's bar
    assert page.locator("canvas").nth(8).bounding_box()["y"] + 110 < 844
    swipe(page, *middle(page.locator(".maps .sled")), -60, 0)
    assert float(page.get_by_label("Places moved").input_value()) < 2


@pytest.mark.parametrize(("theme", "width"), [("dark", 390), ("light", 760)])
def test_it_fits_its_words_are_read_and_axe_finds_nothing(landing, theme, width):
    page = landing(theme, width)
    columns = page.locator(".maps .wall").evaluate("(e) => getComputedStyle(e).gridTemplateColumns.split(' ').length")
    assert columns == (3 if width == 390 else 5)
    sizes = "(all) => all.filter((e) => e.textContent.trim()).map((e) => parseFloat(getComputedStyle(e).fontSize))"
    assert min(page.locator(".maps :is(p, b, span, button)").evaluate_all(sizes)) >= 11
    strip, wall = (page.locator(each).bounding_box() for each in (".maps .strip", ".maps .wall"))
    assert wall["y"] + wall["height"] - strip["y"] <= 800  # sentence and maps on one screen
    for _ in range(2):
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert axe_violations(page) == []
        slide(page, 60)


def test_without_scripts_there_is_the_still_and_all_it_would_say(landing):
    page = landing(scripts=False)
    assert page.locator(".maps").count() == 0
    assert page.get_by_alt_text("A still").is_visible()
    assert page.locator(".maps-why li").count() == 10
    assert page.locator(".maps-why").is_visible()
