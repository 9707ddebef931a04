"""Text that drives a figure: every link of the book is an order its page's figure takes, and links, numbers and
addresses move it in a page."""

import json
import re
from html import escape

import pytest
from explorable_kit import NAMES, NOTEBOOKS, REPOSITORY, explorables_of, functions_of, links_of, order_of, state_of

import geolib.explorables

STATIC = REPOSITORY / "book" / "_static"
HOST = (STATIC / "widget-host.js").read_text("utf-8")
call = functions_of("clock.js", "export { address, readMove, sift };")

# The book's links ----------------------------------------------------------------------------------------------------

every_page = pytest.mark.parametrize("path", [p for p in NOTEBOOKS if links_of(p)], ids=lambda path: path.stem)


@every_page
def test_a_link_gives_its_pages_figure_values_that_it_takes(path, call):
    links, here = links_of(path), explorables_of(path)
    for link, move in zip(links, call("readMove", [[link] for link in links]), strict=True):
        assert tuple(move.values()) == order_of(link)
        assert move["name"] in here, f"{link}: {path.name} has {', '.join(here) or 'no explorable'}"
        copies = here[move["name"]]
        assert 0 <= move["copy"] <= len(copies), link
        widget = copies[max(0, move["copy"] - 1)]
        start = {name: getattr(widget, name) for name in widget.parameters()}
        asked = dict(move["asked"])
        if move["kind"] == "drag":
            step, ends = asked.pop("step", 0.01), [asked.pop(end) for end in ("min", "max") if end in asked]
            ((trait, _),) = asked.items()
            assert step > 0, link
            for end in ends:
                type(widget)(**(start | {trait: end}))
        together = type(widget)(**(start | asked))  # Python takes it as well
        assert {trait: getattr(together, trait) for trait in asked} == asked, link


# What a link asks for, read and judged -------------------------------------------------------------------------------


def test_an_address_is_read(call):
    read = {
        "#move-mirrors?m=90&n=0": ("move", "mirrors", 0, {"m": 90, "n": 0}),
        "#move-circle.2?tokens=[0,60]&query=-20.5": ("move", "circle", 2, {"tokens": [0, 60], "query": -20.5}),
        "#move-skew?motion=square": ("move", "skew", 0, {"motion": "square"}),
        "#move-clock": ("move", "clock", 0, {}),
        "#drag-circle?query=5&min=0": ("drag", "circle", 0, {"query": 5, "min": 0}),
    }
    wanted = [dict(zip(("kind", "name", "copy", "asked"), each)) for each in read.values()]
    assert call("readMove", [[link] for link in read]) == wanted
    assert call("readMove", [["#section"], [""], ["#move-"], ["#movemirrors?m=1"]]) == [None] * 4


def test_an_address_says_what_differs_from_the_start_and_leads_back_to_it(call):
    start = {"m": 80, "law": "free", "tokens": [1, 2]}
    (link,) = call("address", [["mirrors", 2, {"m": 1 / 3, "law": "free", "tokens": [1, 2.5]}, start]])
    assert link.startswith("#move-mirrors.2?")
    assert call("readMove", [[link]])[0]["asked"] == {"m": 0.333333, "tokens": [1, 2.5]}
    for text in ("anne red / philip 7", "12", '"a" b', "true", "ä + b & c=d\ne f", "ß 1 & 2\n" * 75):
        (link,) = call("address", [["page", 1, {"text": text, "gate": 1}, {"text": "", "gate": 1}]])
        assert call("readMove", [[link]])[0]["asked"] == {"text": text}
        assert len(link) < 2000


@pytest.mark.parametrize("name", NAMES)
def test_every_start_obeys_its_own_rules_and_has_an_address(name, call):
    state = state_of(name)
    asked = {trait: state[trait] for trait in state["_rules"]}
    assert call("sift", [[asked, state["_rules"]]])[0] == {"good": asked, "bad": []}
    (link,) = call("address", [[name, 1, asked, dict.fromkeys(asked)]])
    for trait, value in call("readMove", [[link]])[0]["asked"].items():
        assert value == pytest.approx(asked[trait], rel=1e-5) if not isinstance(value, str) else value == asked[trait]


# In a page -----------------------------------------------------------------------------------------------------------

TEXT = """<p>Here <a id="right" href="#move-mirrors?m=90&amp;n=0&amp;mirrors=2">a right angle</a>,
<a id="bad" href="#move-mirrors?m=900&amp;n=10&amp;mirrors=2">too much</a>,
<a id="gone" href="#move-nowhere?m=90">nowhere</a>,
<a id="second" href="#move-circle.2?query=90">the second circle</a>, <a id="near" href="#move-circle?query=-45">near</a>
and a number, <a id="number" href="#drag-circle.1?temperature=0.5&amp;min=0.05&amp;max=5&amp;step=0.05">0.5</a>.</p>"""


def saved(widget):
    later = [name for name in widget.keys if name.startswith("_later")]
    return widget.get_state([*widget.parameters(), *later, "share", "_rules", "_anywidget_id", "_esm", "_css"])


def page_of(widgets, body):
    """A page of a book: ``body`` with {0}, {1}, ... where the views of the explorables' states stand."""
    text = json.dumps({"state": {f"w{i}": {"state": state} for i, state in enumerate(widgets)}}).replace("</", "<\\/")
    views = [VIEW % f"w{i}" for i in range(len(widgets))]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>A page</title><style>{DOCKED}</style>'
        f"<body>{body.format(*views)}"
        f'<script type="application/vnd.jupyter.widget-state+json">{text}</script><script>{HOST}</script></body></html>'
    )


# What the book's style says of a figure that comes to its sentence.
STYLE = (STATIC / "house.css").read_text("utf-8")
DOCKED = "".join(re.findall(r"(?m)^\.explorable(?:\[|:is\(\[)data-docked[^{]*\{[^}]*\}", STYLE))
VIEW = '<script type="application/vnd.jupyter.widget-view+json">{"model_id": "%s"}</script>'
FAR = '<div style="height: 1500px"></div>'


@pytest.fixture
def book(browser, tmp_path):
    """open(fragment): a page of a book with text, two circles, then mirrors far below, as a reader meets it."""
    figures = geolib.explorables.AttentionCircle, geolib.explorables.AttentionCircle, geolib.explorables.TwoMirrors
    states = [saved(figure()) for figure in figures]
    file = tmp_path / "page.html"
    file.write_text(page_of(states, "{0}" + TEXT + "{1}" + FAR + "{2}" + FAR), "utf-8")
    opened = []

    def go(fragment="", **context):
        page = browser.new_context(viewport={"width": 900, "height": 800}, **context).new_page()
        page.wrong = []
        page.on("pageerror", lambda error: page.wrong.append(str(error)))
        page.goto(file.as_uri() + fragment)
        page.wait_for_selector(".explorable[data-alive=yes] >> nth=1")
        opened.append(page)
        return page

    yield go
    for page in opened:
        assert page.wrong == []
        page.context.close()


def value(page, label, copy=0):
    return float(page.get_by_label(label).nth(copy).input_value())


def wait(page, label, wanted, copy=0):
    page.get_by_label(label).nth(copy).wait_for(state="attached")
    page.wait_for_function(
        "([id, wanted]) => Math.abs(document.getElementById(id).value - wanted) < 1e-6",
        arg=[page.get_by_label(label).nth(copy).get_attribute("id"), wanted],
    )


@pytest.mark.parametrize("how", ["click", "Enter", " "])
def test_a_link_moves_the_figure_into_view_and_keeps_the_focus(book, how):
    page = book()
    link = page.locator("#right")
    assert link.get_attribute("role") == "button"
    link.focus()
    link.click() if how == "click" else page.keyboard.press(how)
    wait(page, "Second mirror at m", 90)
    wait(page, "Mirror at n", 0)
    page.wait_for_function("""() => { const box = document.querySelectorAll('.explorable')[2].getBoundingClientRect();
        return box.top > -200 && box.bottom < innerHeight + 200; }""")
    assert page.evaluate("document.activeElement.id") == "right"
    assert "#" not in page.url
    spoken = "document.querySelectorAll('.explorable')[2].querySelector('[aria-live=polite]').textContent"
    page.wait_for_function(f"() => {spoken}.length > 10")


def test_what_is_not_allowed_is_said_and_a_link_means_the_figure_it_counts_or_the_nearest(book):
    page = book()
    before = value(page, "Query’s angle")
    page.locator("#bad").click()
    wait(page, "Mirror at n", 10)
    assert value(page, "Second mirror at m") == 80
    assert page.locator("#bad + [role=status]").text_content() == " (this figure does not take m)"
    page.locator("#gone").click()
    page.wait_for_function("document.querySelector('#gone + [role=status]').textContent.includes('no such figure')")
    assert value(page, "Query’s angle") == before
    page.locator("#second").click()
    wait(page, "Query’s angle", 90, copy=1)
    assert value(page, "Query’s angle", copy=0) == 20
    page.locator("#near").click()
    near = "[...document.querySelectorAll('input')].some((e) => e.labels[0]?.textContent.startsWith('Query') && e.value"
    page.wait_for_function(f"{near} === '-45')")


def test_a_number_in_the_text_is_drawn_and_follows(book):
    page = book()
    number = page.locator("#number")
    assert [number.get_attribute(name) for name in ("role", "aria-valuenow", "aria-valuemax")] == ["slider", "0.5", "5"]
    assert number.text_content() == "0.50"
    number.focus()
    keys = {"ArrowRight": "0.55", "ArrowLeft": "0.50", "End": "5.00", "Home": "0.05", "PageUp": "0.55"}
    for key, text in keys.items():
        page.keyboard.press(key)
        page.wait_for_function("(text) => document.getElementById('number').textContent === text", arg=text)
    box = number.bounding_box()
    page.mouse.move(box["x"] + 5, box["y"] + 5)
    page.mouse.down()
    page.mouse.move(box["x"] + 85, box["y"] + 5, steps=4)
    page.mouse.up()
    page.wait_for_function("Number(document.getElementById('number').textContent) > 0.7")
    page.get_by_label("Temperature").nth(0).focus()
    page.keyboard.press("End")  # the figure moves the number
    page.wait_for_function("document.getElementById('number').textContent === '5.00'")
    assert value(page, "Query’s angle", copy=1) == 20
    assert number.get_attribute("aria-valuetext") == "5.00"


def test_an_address_opens_a_state_and_reset_leaves_it(book):
    page = book("#move-circle.2?query=120&temperature=9")
    wait(page, "Query’s angle", 120, copy=1)
    assert value(page, "Query’s angle", copy=0) == 20
    assert "does not take temperature" in page.locator(".explorable >> nth=1").text_content()
    page.get_by_role("button", name="Reset").nth(1).click()
    wait(page, "Query’s angle", 20, copy=1)
    page.evaluate("location.hash = '#move-mirrors?mirrors=2&m=33'")
    wait(page, "Second mirror at m", 33)


def test_a_link_to_a_state_is_made_without_spamming_the_history(book):
    page = book()
    length = page.evaluate("history.length")
    page.get_by_label("Query’s angle").nth(1).focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    assert "#" not in page.url
    page.get_by_role("button", name="Copy link").nth(1).click()
    page.wait_for_function("location.hash === '#move-circle.2?query=23'")  # and such a link opens it, above
    assert page.evaluate("history.length") == length


def test_readers_who_asked_for_less_motion_get_the_end_at_once(book):
    page = book(reduced_motion="reduce")
    page.evaluate("document.querySelectorAll('.explorable')[2].wake()")
    page.wait_for_selector(".explorable[data-alive=yes] >> nth=2")
    seen = page.evaluate("""async () => {
        const mirror = () => [...document.querySelectorAll(".explorable")][2]?.querySelectorAll("input")[1]?.value;
        document.getElementById("right").click();
        for (let i = 0; i < 4; i++) await new Promise((done) => requestAnimationFrame(done));
        return mirror();
    }""")
    assert seen == "90"


@every_page
def test_every_link_of_a_page_moves_its_figure_there(browser, tmp_path, path, call):
    widgets = [widget for copies in explorables_of(path).values() for widget in copies]
    moves = [link for link in links_of(path) if link.startswith("#move-")]
    text = "".join(f'<p><a href="{escape(link)}">{i}</a></p>' for i, link in enumerate(moves))
    file = tmp_path / "page.html"
    file.write_text(page_of([saved(each) for each in widgets], text + "{}" * len(widgets)), "utf-8")
    page = browser.new_context(reduced_motion="reduce").new_page()
    page.goto(file.as_uri())
    page.evaluate("Promise.all([...document.querySelectorAll('.explorable')].map((each) => each.wake()))")
    assert page.locator(".explorable[data-alive]").count() == len(widgets)
    for link, move in zip(moves, call("readMove", [[link] for link in moves]), strict=True):
        page.locator(f'a[href="{link}"]').click()
        shown = page.evaluate(
            """([name, copy]) => { const boxes = [...document.querySelectorAll(`[data-explorable=${name}]`)];
                return [...geoExplorables].find((e) => e.box === boxes[Math.max(0, copy - 1)]).read(); }""",
            [move["name"], move["copy"]],
        )
        assert {trait: shown[trait] for trait in move["asked"]} == move["asked"], link
        assert page.locator(f'a[href="{link}"] + [role=status]').count() == 0
        page.keyboard.press("Escape")  # a figure that came to its sentence goes back, and frees the next link
        page.wait_for_selector(".explorable[data-docked]", state="detached")
    page.context.close()
