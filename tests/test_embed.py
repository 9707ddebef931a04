"""A figure in a page that knows nothing of the book: with a model, with an empty one, with none, and with a goal."""

import re

import nbformat
import pytest
from explorable_kit import NAMES, REPOSITORY, file_of, functions_of, serving
from nbclient import NotebookClient
from nbconvert import HTMLExporter

from geolib.explorables import embed

pytestmark = pytest.mark.browser
PAGE = (REPOSITORY / "book" / "figures-anywhere.md").read_text("utf-8")
call = functions_of("clock.js", "\nexport { readGoal, goalWord, embedding };")


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A host of the figures: its address, and its folder."""
    folder = tmp_path_factory.mktemp("anywhere")
    embed.write(folder / "explorables")
    with serving(folder) as address:
        yield address, folder


@pytest.fixture
def address(served):
    return served[0]


@pytest.fixture
def shown(browser, served):
    """shown(html, query): a page of another host with this body; whatever it complains of fails the test."""
    (address, folder), page, wrong, elsewhere = served, browser.new_page(), [], []
    other = address.replace("127.0.0.1", "localhost")
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    page.on("request", lambda request: elsewhere.append(request.url))

    def go(body, query=""):
        (folder / "plain.html").write_text(f"<!doctype html><title>Plain</title><body>{body}</body>")
        page.goto(f"{other}plain.html{query}")  # another origin than the modules'
        page.wait_for_selector(".explorable svg, .explorable canvas")
        return page

    yield go
    page.close()
    assert wrong == []
    assert [url for url in elsewhere if not url.startswith((address, other, "blob:", "data:"))] == []


def html(address, name, given="el: document.body"):
    return (
        f'<script type="module">import figure from "{address}explorables/{name}.mjs";\n'
        f"window.close = figure.render({{ {given} }});</script>"
    )


@pytest.mark.parametrize("name", NAMES)
def test_each_figure_draws_in_a_page_that_gives_it_nothing(shown, address, name):
    page = shown(html(address, file_of(name).removesuffix(".js")))
    page.wait_for_function("document.querySelector('.explorable').innerText.length > 40")
    page.evaluate("close()")
    assert page.locator(".explorable").count() == 0


def test_the_lines_of_the_page_are_all_that_a_plain_page_needs(shown, address):
    lines = re.search(r"```html\n(.*?)```", PAGE, re.DOTALL)[1].replace("https://HOST/", address)
    page = shown(lines)
    assert "query at 20" in page.locator(".explorable").inner_text()
    assert page.get_by_role("button", name="Copy link").count() == 0  # the address is the other page's


EMPTY = """{ get() {}, set(name, value) { this.came = [name, value]; }, on() {}, off() {} }"""


def test_a_hosts_empty_model_is_filled_and_told_of_changes(shown, address):
    page = shown(html(address, "clock", f"el: document.body, model: window.model = {EMPTY}"))
    page.get_by_label("Query position m").press("ArrowRight")
    assert page.evaluate("model.came") == ["query", 12.25]


def test_a_state_that_is_not_allowed_is_left_out(shown, address):
    page = shown(html(address, "clock", "el: document.body, state: { query: -4, key: 9, nonsense: 1 }"))
    said = page.locator(".explorable").inner_text()
    assert "query at 12" in said
    assert "key at 9" in said


def test_a_goal_is_judged_and_pays_the_word_that_the_teacher_finds(shown, address, call):
    page = shown(html(address, "clock"), "?goal=clock.query:64&class=spring")
    goal = page.locator(".geo-goal")
    assert goal.text_content() == "Goal: bring this figure to query = 64."
    page.get_by_label("Query position m").press("End")
    page.wait_for_function("document.querySelector('.geo-goal').textContent.includes('reached')")
    word = call("goalWord", [["clock", {"value": "query", "target": 64, "class": "spring"}]])[0]
    assert goal.text_content() == f"Goal reached: query = 64. The word is {word}."


TABLE = re.findall(r"(?m)^\| `([a-z]+)` \| `(\w+)` \|", PAGE)


@pytest.mark.parametrize(("name", "value"), TABLE, ids=[".".join(row) for row in TABLE])
def test_each_value_of_the_table_is_a_goal(shown, address, name, value):
    page = shown(html(address, name), f"?goal={name}.{value}:-777")
    assert "−777" in page.locator(".geo-goal").text_content()


def test_goals_are_read_or_refused_and_words_differ(call):
    known = ["score", "query"]
    read = lambda search: call("readGoal", [[search, "clock", known]])[0]  # noqa: E731
    assert read("?goal=clock.score:-0.5") == {"value": "score", "target": -0.5, "class": ""}
    wrong = ("", "?goal=circle.score:1", "?goal=clock.other:1", "?goal=clock.score:x", "?goal=clock.score:", "?goal=1")
    assert [read(search) for search in wrong] == [None] * len(wrong)
    goals = [{"value": "score", "target": t, "class": c} for t in (-1, -0.5, 0, 1) for c in ("", "spring", "autumn")]
    words = call("goalWord", [["clock", goal] for goal in goals])
    assert len(set(words)) == len(goals)
    assert all(re.fullmatch("[a-z]{8}", word) for word in words)


def test_lines_to_embed_hold_what_differs_from_the_start(call):
    lines = call("embedding", [["clock", "https://x/clock.mjs", {"query": 20, "key": 5}, {"query": 12, "key": 5}]])[0]
    assert 'import figure from "https://x/clock.mjs";' in lines
    assert 'state: {"query":20}' in lines


def test_a_saved_notebook_without_a_kernel_shows_the_still_with_a_link(browser, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    monkeypatch.delenv("GEOLIB_WITHOUT_STILLS", raising=False)
    cell = nbformat.v4.new_code_cell("from geolib.explorables import RopeClock\nRopeClock(query=12)")
    ran = NotebookClient(nbformat.v4.new_notebook(cells=[cell]), timeout=120, kernel_name="python3").execute()
    (tmp_path / "it.html").write_text(HTMLExporter().from_notebook_node(ran)[0], "utf-8")
    page = browser.new_page()
    page.route(re.compile("^https?:"), lambda route: route.abort())
    page.goto((tmp_path / "it.html").as_uri())
    still = page.locator(".jp-Cell-outputArea img")
    assert still.bounding_box()["width"] == 480
    assert still.evaluate("(e) => e.complete && e.naturalWidth") == 480
    assert page.locator(".jp-Cell-outputArea a").get_attribute("href").endswith("gallery.html#explorable-clock")
    page.close()
