"""The built site, opened page by page in a headless browser: what holds of every page, and what hands do on some."""

import functools
import re
from urllib.parse import urldefrag, urljoin

import pytest
from explorable_kit import CONTRAST_RULES, REPOSITORY, WCAG, axe_contrast, axe_violations, serving

SITE = REPOSITORY / "_build" / "html"
# Pages that Sphinx makes by itself, and the redirection to the landing page.
GENERATED = {"index.html", "search.html", "py-modindex.html", "prf-prf.html"}
PHONE, DESK = {"width": 390, "height": 844}, {"width": 1280, "height": 900}

pytestmark = pytest.mark.site


def pages():
    """Every page of the book as a path below the site; the sources' copies and the lists that Sphinx makes left out."""
    found = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html"))
    return [name for name in found if name not in GENERATED and not name.startswith(("_modules", "_static"))]


def lively():
    """The pages that hold explorables: a widget's view stands in them."""
    return [name for name in pages() if "widget-view+json" in (SITE / name).read_text("utf-8")]


# The site on localhost, the browser, and one visit to each page ------------------------------------------------------


@pytest.fixture(scope="session")
def address():
    """The site's address while it is served."""
    assert (SITE / "index.html").is_file(), "there is no site in _build/html: run make book first"
    with serving(SITE) as address:
        yield address


# Explorables start when they come near the window; tests do not wait for that.
WAKE = "() => document.querySelectorAll('.explorable').forEach((box) => box.wake())"
TWO_FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
# Colours that fade from one to the other have arrived.
FADED = "() => !document.getAnimations().some((a) => a instanceof CSSTransition && a.playState === 'running')"


class Visit:
    """A page open in the browser, and all it complained of on the way."""

    def __init__(self, browser, address, name, viewport):
        """Open the page with every request to another host refused."""
        self.foreign, self.failed, self.errors, self.weight = [], [], [], 0
        self.page = browser.new_context(viewport=viewport, color_scheme="light").new_page()
        self.page.route("**/*", lambda route: self.let_through(route, address))
        self.page.on("requestfailed", lambda request: self.failed.append(request.url))
        self.page.on("response", self.weigh)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)
        self.page.goto(address + name, wait_until="load")
        self.page.evaluate(WAKE)
        self.page.wait_for_function(
            "() => [...document.querySelectorAll('.explorable')].every(e => e.dataset.alive || e.textContent)"
        )

    def weigh(self, reply):
        """Add a reply's bytes, and note a failed one."""
        self.weight += int(reply.headers.get("content-length", 0))
        if reply.status >= 400:
            self.failed.append(reply.url)

    def let_through(self, route, address):
        """Pass local requests on, note and refuse the others."""
        if route.request.url.startswith((address, "data:", "blob:")):
            route.continue_()
        else:
            self.foreign.append(route.request.url)
            route.abort()


@pytest.fixture(scope="session")
def visit(browser, address):
    """Visits by page and circumstances; the last few stay open, for a browser with every page open fills the memory."""
    opened = {}

    def go(name, narrow=False, scheme="light"):
        key = (name, narrow)
        if key not in opened:
            if len(opened) == 4:
                opened.pop(next(iter(opened))).page.context.close()
            opened[key] = Visit(browser, address, name, PHONE if narrow else DESK)
        page = opened[key].page
        if page.evaluate("() => document.documentElement.dataset.theme") not in (scheme, None):
            page.emulate_media(color_scheme=scheme)  # as by a reader's evening switch
            page.wait_for_function("(scheme) => document.documentElement.dataset.theme === scheme", arg=scheme)
            page.evaluate(TWO_FRAMES)
            page.wait_for_function(FADED)
        return opened[key]

    return go


@pytest.fixture
def fresh(browser):
    """fresh(**circumstances): an empty page, closed after the test."""
    contexts = []

    def go(**circumstances):
        contexts.append(browser.new_context(**circumstances))
        return contexts[-1].new_page()

    yield go
    for context in contexts:
        context.close()


# What holds of every page ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", pages())
def test_a_page_asks_no_other_host_and_nothing_fails(visit, name):
    seen = visit(name)
    assert seen.foreign == []
    assert seen.failed == []
    assert seen.errors == []
    assert seen.weight < 2_000_000  # bytes as they are served, uncompressed


# A cell with an interval that takes more than two lines, and a table of such cells that is wider than the page.
TORN = r"""() => {
  const cells = [...document.querySelectorAll(".tag_stacked td")].filter((cell) => {
    const range = document.createRange();
    range.selectNodeContents(cell);
    return /\(\S+\sto\s\S+\)/.test(cell.textContent)
      && new Set([...range.getClientRects()].map((line) => Math.round(line.top))).size > 2;
  });
  const tables = [...document.querySelectorAll(".tag_stacked .pst-scrollable-table-container")]
    .filter((box) => box.scrollWidth > box.clientWidth);
  return [...cells, ...tables].map((part) => part.textContent.slice(0, 80));
}"""
PICTURES = r"""async () => {
  const all = [...document.querySelectorAll("article img")];
  all.forEach((img) => { img.loading = "eager"; });
  await Promise.all(all.map((img) => img.decode().catch(() => null)));
  return all.filter(({ alt, naturalWidth }) => !naturalWidth || alt.trim().length < 15
    || /\.(png|svg|jpe?g|gif)$|[0-9a-f]{32}/.test(alt)).map(({ alt, src }) => `${src}: ${alt}`);
}"""
# A formula whose glyphs leave its place or run under its number.
CUT = """() => [...document.querySelectorAll("article div.math")].filter((formula) => {
  const place = formula.querySelector(".formula").getBoundingClientRect();
  const number = formula.querySelector(".eqno")?.getBoundingClientRect();
  const glyphs = [...formula.querySelectorAll("mjx-c")].map((glyph) => glyph.getBoundingClientRect());
  return place.width && glyphs.some((glyph) => glyph.right > place.right + 1 || glyph.left < place.left - 1
    || (number && glyph.right > number.left && glyph.bottom > number.top + 2 && glyph.top < number.bottom - 2));
}).map((formula) => formula.textContent.trim())"""
# A mark that touches a formula and starts a line; a formula so long that it breaks itself is left out.
ALONE = """() => [...document.querySelectorAll("article mjx-container.math:not(:has(mjx-run))")].filter((formula) => {
  const after = formula.nextSibling ?? formula.closest(".held")?.nextSibling, range = document.createRange();
  if (after?.nodeType !== Node.TEXT_NODE || !/^[,.;:)]/.test(after.data)) return false;
  range.setStart(after, 0);
  range.setEnd(after, 1);
  const mark = range.getBoundingClientRect();
  const end = [...formula.querySelectorAll("mjx-c")].at(-1)?.getBoundingClientRect();
  return end?.width && mark.width && mark.left < end.left && mark.top > end.top;
}).map((formula) => formula.parentElement.textContent.slice(0, 60))"""
FAULTS = {  # what no page may have, and what finds it
    "raw TeX": r"""() => {
      const article = (document.querySelector("article") ?? document.body).cloneNode(true);
      article.querySelectorAll("pre, code, script, style").forEach((node) => node.remove());
      return article.textContent.match(/\\[a-zA-Z]+|\\\(|\\\[|\$[^$\n]{1,80}\$/g) ?? [];
    }""",
    "an id twice": """() => [...document.querySelectorAll("article [id]")].map(({ id }) => id)
      .filter((id, i, all) => all.indexOf(id) < i)""",
    "a picture that is not there or has no words": PICTURES,
    "a formula cut": CUT,
    "a formula cut on a phone": CUT,
    "code cut on a phone": """() => [...document.querySelectorAll("article pre")]
      .filter((code) => code.scrollWidth > code.clientWidth + 1).map((code) => code.textContent.slice(0, 80))""",
    "more than the width of a phone": """() => [document.documentElement.scrollWidth].filter((x) => x > innerWidth)""",
    "an explorable wider than a phone": """() =>
      [...document.querySelectorAll(".explorable, .explorable :is(svg, canvas, input, text, button)")]
      .filter((e) => e.getBoundingClientRect().right > innerWidth + 0.5).map((e) => e.outerHTML.slice(0, 120))""",
    "a narrow entry of the library on a phone": """() => [...document.querySelectorAll("dl.py > dd, dl.py > dt")]
      .filter((e) => e.getClientRects().length && e.getBoundingClientRect().width < 200).map((e) => e.id)""",
    "punctuation away from its formula on a phone": ALONE,
    "an interval or its table torn on a phone": TORN,
}


@pytest.mark.parametrize("name", pages())
@pytest.mark.parametrize("width", ["desk", "phone"])
def test_a_page_has_no_fault(visit, name, width):
    page = visit(name, narrow=width == "phone").page
    found = {fault: page.evaluate(find) for fault, find in FAULTS.items() if ("phone" in fault) == (width == "phone")}
    assert {fault: what for fault, what in found.items() if what} == {}
    assert name != "book/what-repeated.html" or page.locator(".tag_stacked td").count() > 15  # else none is looked at


@pytest.mark.parametrize("name", pages())
def test_axe_finds_no_violation(visit, name):
    assert axe_violations(visit(name).page, tags=(*WCAG, "best-practice"), without=CONTRAST_RULES) == []


@pytest.mark.parametrize(
    ("scheme", "name"),
    [*(("light", name) for name in pages()), *(("dark", name) for name in pages() if "api/" not in name)],
)
def test_there_is_enough_contrast(visit, name, scheme):
    """By night, the pages of the library have the colours of the others."""
    page = visit(name, scheme=scheme).page
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    assert axe_contrast(page) == []


@pytest.mark.parametrize("name", pages())
def test_links_within_the_site_lead_somewhere(visit, address, name):
    links = visit(name).page.evaluate(
        "() => [...document.querySelectorAll('a[href]')].map((a) => a.getAttribute('href'))"
    )
    for link in set(links):
        target, anchor = urldefrag(urljoin(address + name, link))
        if target.startswith(address):
            file = SITE / target.removeprefix(address)
            assert file.is_file(), link
            # Links that move an explorable are held by tests/test_moves.py.
            if anchor and file.suffix == ".html" and not anchor.startswith(("move-", "drag-")):
                assert anchor in ids_in(file), link


@functools.cache
def ids_in(file):
    """The ids of a page."""
    return set(re.findall(r'\bid="([^"]+)"', file.read_text("utf-8")))


# What holds of explorables ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", lively())
def test_explorables_are_alive_with_numbered_captions_in_place_of_their_stills(visit, name):
    page = visit(name).page
    alive = page.evaluate("[...document.querySelectorAll('.explorable')].map((e) => e.dataset.alive ?? e.textContent)")
    assert alive == ["yes"] * page.locator("script[type$='widget-view+json']").count()
    assert page.locator(".explorable-still:visible").count() == 0
    captions = page.locator(".explorable + .explorable-caption").all_text_contents()
    assert len(captions) == len(alive)
    assert all(re.match(r"\s*Fig(ure|\.) \d", each) and "with scripts" not in each.lower() for each in captions)


FEW = ["book/gallery.html", "chapters/06_lie.html"]  # all explorables, and some beside a chapter's formulas


@pytest.mark.parametrize("name", FEW)
def test_explorables_live_without_a_server_and_without_scripts_a_still_stands_for_each(fresh, address, name):
    page, bare = fresh(), fresh(java_script_enabled=False)
    page.goto((SITE / name).as_uri())
    page.evaluate(WAKE)
    views = page.locator("script[type$='widget-view+json']").count()
    page.wait_for_function("(n) => document.querySelectorAll('.explorable[data-alive]').length === n", arg=views)
    bare.goto(address + name)
    assert bare.locator(".explorable-still:visible").count() == views > 0


DRAWING = """(slider) => [...slider.closest(".explorable").querySelectorAll("canvas, svg, output")]
  .map((part) => (part.toDataURL ? part.toDataURL() : part.outerHTML)).join()"""


def test_each_explorable_of_the_gallery_redraws_when_its_slider_moves(visit):
    """Every slider is moved, by hand and by keys, where each explorable is alone."""
    page = visit("book/gallery.html").page
    page.evaluate("document.querySelectorAll('.explorable details').forEach((more) => { more.open = true; })")
    for box in page.query_selector_all(".explorable"):
        slider = next(each for each in box.query_selector_all("input[type=range]") if each.is_visible())
        slider.press("Home")
        page.evaluate(TWO_FRAMES)
        drawing = slider.evaluate(DRAWING)
        slider.press("ArrowRight")  # at the end of an angle would be what is at its beginning
        assert any(slider.evaluate(DRAWING) != drawing or page.wait_for_timeout(100) for _ in range(50)), "no redraw"


# Which sentence that sets a figure stands two screens and more below it.
FAR = """() => [...document.querySelectorAll('a[href^="#move-"][href*="?"]')].findIndex((link) => {
  const name = /#move-([a-z]+)/.exec(link.hash)[1], top = link.getBoundingClientRect().top;
  const boxes = [...document.querySelectorAll(`.explorable[data-explorable="${name}"]`)];
  return boxes.every((box) => Math.abs(box.getBoundingClientRect().top - top) > 2 * innerHeight);
})"""


@pytest.mark.parametrize("width", [390, 1440])
def test_a_figure_comes_to_the_sentence_that_sets_it_and_goes_back(fresh, address, width):
    page = fresh(viewport={"width": width, "height": 860})
    page.goto(address + "chapters/06_lie.html")
    page.evaluate(WAKE)
    page.wait_for_timeout(500)
    i = page.evaluate(FAR)
    assert i >= 0
    link, figure = page.locator('a[href^="#move-"][href*="?"]').nth(i), page.locator(".explorable[data-docked]")
    link.evaluate("(e) => { e.scrollIntoView({ block: 'start' }); scrollBy(0, -160); }")
    lies = -1.0
    while lies != (lies := link.bounding_box()["y"]):  # what stands above it may still be laid out
        page.wait_for_timeout(300)
    for leave in (page.go_back, page.get_by_role("button", name="Put the figure back").click):
        at, url = link.bounding_box(), page.url
        link.click()
        figure.locator("svg, canvas").first.wait_for(state="visible")
        page.wait_for_timeout(700)
        assert link.bounding_box()["y"] == pytest.approx(at["y"], abs=2)
        box, words = figure.bounding_box(), link.bounding_box()
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= 861
        below, above = box["y"] > words["y"] + words["height"], box["y"] + box["height"] < words["y"]
        assert below or above or box["x"] > words["x"] + words["width"]
        leave()
        figure.wait_for(state="detached")
        assert page.url == url
        assert link.bounding_box()["y"] == pytest.approx(at["y"], abs=2)


@pytest.mark.parametrize("name", lively())
def test_explorables_are_light_and_start_when_they_come_near(browser, address, name):
    """At once, and each piece for a reader who sees all of the page."""
    page, asked = browser.new_context(viewport=DESK).new_page(), set()
    page.on("request", lambda request: asked.add(request.url))
    page.goto(address + name, wait_until="networkidle")
    at_once, boxes = {*asked}, page.locator(".explorable")
    (states,) = re.findall(r'(?s)widget-state\+json">(.*?)</script>', (SITE / name).read_text("utf-8"))
    pieces = {path.stem: path.stat().st_size for path in (SITE / "_static" / "explorables").glob("*.js")}
    ours = [path.stat().st_size for path in (REPOSITORY / "book" / "_static").glob("*.[cj]s*")]
    first = sum(size for piece, size in pieces.items() if any(f"{piece}.js" in url for url in at_once))
    # With a trained model, where one stands on the first screens.
    assert len(states.encode()) + sum(ours) + first < 240_000
    named = {each for found in re.findall(r'"pieces":\[([^\]]+)\]', states) for each in re.findall('"(.+?)"', found)}
    # Records and weights are data; a live model is a whole network, with the sheet that one draws on.
    most = lambda piece: 64_000 if "-later_" in piece else 38_000 if piece.startswith("live-") else 30_000  # noqa: E731
    assert [piece for piece in named if "-runs-" not in piece and pieces[piece] >= most(piece)] == []
    last = boxes.nth(boxes.count() - 1)
    if boxes.count() > 3:
        assert last.get_attribute("data-alive") is None
    last.evaluate("(e) => e.scrollIntoView()")
    page.wait_for_function("(e) => e.dataset.alive === 'yes'", arg=last.element_handle())
    page.context.close()


def test_a_model_is_asked_for_when_it_is_chosen(fresh, address):
    page, asked = fresh(viewport=DESK), []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address + "book/gallery.html")
    box = page.locator(".explorable[data-explorable=live]")
    box.evaluate("(e) => { e.scrollIntoView(); e.wake(); }")
    box.locator(".said p[aria-busy=false]").wait_for(timeout=60_000)
    models = lambda: {found[1] for url in asked if (found := re.search(r"later_([a-z0-9_]+)-", url))}  # noqa: E731
    before = models()
    page.get_by_label("Method").last.select_option("rope-mixed")
    page.wait_for_function("document.querySelector('.field').ariaLabel.includes('RoPE-Mixed')")
    assert models() - before == {"rope_mixed"}


@pytest.mark.parametrize("name", ["index.html", *(name for name in pages() if name != "genindex.html")])
def test_a_link_to_a_page_shows_what_it_is_and_a_chapter_can_be_run(name):
    page = (SITE / name).read_text("utf-8")
    metas = dict(re.findall(r'<meta (?:name|property)="([\w:]+)" content="([^"]*)"', page))
    assert 30 < len(metas["description"]) < 400
    assert metas["og:image"].startswith("https://")
    assert (SITE / "_images" / metas["og:image"].partition("/_images/")[2]).is_file()
    if name.startswith("chapters/"):
        source, links = name.replace(".html", ".ipynb"), re.findall(r'<a[^>]* href="([^"]+)"', page)
        colab = "https://colab.research.google.com/github/"
        assert any(link.startswith(colab) and link.endswith(source) for link in links)
        assert any(link.endswith(f"_sources/{source}") for link in links)


# What hands do --------------------------------------------------------------------------------------------------------


def test_checks_are_folded_to_a_line_that_opens_and_one_switch_that_is_remembered_opens_all(fresh, address):
    page = fresh()
    first, second = [name for name in pages() if name.startswith("chapters/")][:2]
    page.goto(address + first)
    lines = page.locator("details.check > summary")
    code = page.locator("details.check:not(.admonition *) .cell_input")  # not those of folded solutions
    assert re.match(r"\d+ assertions held|One assertion held", lines.first.locator(".evidence").text_content())
    assert not any(code.nth(i).is_visible() for i in range(code.count()))
    line = page.locator("p.count").first  # one line for a section's checks, until each is asked for
    hidden, said = page.locator("details.check.counted").count(), int(line.text_content().split()[0])
    assert not page.locator("details.check.counted").first.is_visible()
    line.get_by_role("button", name="Show each").click()
    assert page.locator("details.check.counted").count() == hidden - said < hidden - 1
    own = page.locator("details.check:visible")
    own.first.locator("summary").click()
    assert [own.nth(i).locator(".cell_input").is_visible() for i in (0, 1)] == [True, False]
    page.get_by_role("button", name="Open all checks").click()
    assert all(code.nth(i).is_visible() for i in range(code.count()))
    page.goto(address + second)
    assert page.locator("details.check .cell_input").first.is_visible()
    page.get_by_role("button", name="Fold all checks").click()
    page.reload()
    assert not page.locator("details.check .cell_input").first.is_visible()


def test_a_proof_folds_and_a_link_into_what_is_folded_opens_it(fresh, address):
    page = fresh(viewport=DESK)
    page.goto(address + "chapters/03_rotations.html", wait_until="load")
    proofs, opened = page.locator("details.proof-body"), page.locator("details.proof-body[open]")
    assert opened.count() == 0
    page.get_by_role("button", name="Open all proofs").click()
    page.reload(wait_until="load")
    assert opened.count() == proofs.count() > 0
    for kind in (".admonition.solution.dropdown [id]", "details.proof-body > p", ".admonition.dropdown.tip"):
        page.evaluate("document.querySelectorAll('details.proof-body').forEach((proof) => { proof.open = false; })")
        anchor = page.locator(kind).last.evaluate("(e) => (e.id ||= 'here')")
        page.evaluate("(id) => { location.hash = id; }", anchor)
        page.wait_for_function(
            "(id) => !document.getElementById(id).closest('.toggle-hidden, details:not([open])')", arg=anchor
        )


def test_a_link_shows_what_it_points_to(fresh, address):
    page, asked = fresh(), []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address + "chapters/03_rotations.html")
    for kind, shown in (
        ("a[href*='#thm-']", ".proof"),
        ("a.internal[href*='#equation-']", "mjx-math"),
        ("a.ledger-link", "tr"),
    ):
        page.locator(f"article :is({kind})").first.focus()
        page.wait_for_selector(f".preview:not([hidden]) {shown}")
        page.keyboard.press("Escape")
        page.wait_for_selector(".preview", state="hidden")
    assert all(url.startswith((address, "blob:", "data:")) for url in asked)


def test_a_plot_is_shown_in_the_colours_of_the_page(fresh, address):
    page = fresh(color_scheme="light")
    page.goto(address + "chapters/03_rotations.html")
    plot = page.locator("picture > img:visible").first
    plot.scroll_into_view_if_needed()
    showing = "([img, dark]) => img.currentSrc.endsWith('-dark.svg') === dark && img.naturalWidth > 0"
    for theme in ("light", "dark", "light"):
        page.evaluate("(theme) => document.documentElement.dataset.theme = theme", theme)
        page.wait_for_function(showing, arg=[plot.element_handle(), theme == "dark"])


# Text and grounds that are hard to read on white paper, and plots that come in their dark copy.
PALE = """() => {
  const part = (c) => (c / 255 <= 0.04045 ? c / 3294.6 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  const light = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map(Number);
    return colour.startsWith("color") ? 1 : 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const texts = [...document.querySelectorAll("article :is(h1, h2, h3, p, li, td, th, figcaption, a, code, pre span)")]
    .filter((e) => e.checkVisibility() && [...e.childNodes].some((node) => node.nodeType === 3 && node.data.trim()))
    .map((e) => getComputedStyle(e).color).filter((colour) => 1.05 / (light(colour) + 0.05) < 4);
  const grounds = [...document.querySelectorAll("body, article, article :is(h1, h2, h3, div, pre, td, img)")]
    .map((e) => getComputedStyle(e).backgroundColor).filter((c) => !/, 0\\)$/.test(c) && light(c) < 0.6);
  const dark = [...document.images].map((img) => img.currentSrc).filter((src) => src.includes("-dark."));
  return [...new Set([...texts, ...grounds, ...dark])];
}"""


@pytest.mark.parametrize("name", ["chapters/03_rotations.html", "book/ledger.html"])
def test_paper_is_light_whatever_the_screen_is_and_shows_what_is_folded(fresh, address, name):
    page = fresh(viewport={"width": 700, "height": 900}, color_scheme="dark")
    page.goto(address + name)
    theme = "document.documentElement.dataset.theme"
    assert page.evaluate(theme) == "dark"
    page.emulate_media(media="print")
    page.evaluate(TWO_FRAMES)
    page.wait_for_function(FADED)
    assert page.evaluate(PALE) == []
    assert page.evaluate(FAULTS["code cut on a phone"]) == []
    if name.startswith("chapters/"):
        assert page.locator(".bd-article h1 .section-number").is_visible()
        assert page.locator(".solution p:not(.admonition-title)").first.is_visible()
        assert page.locator("details.check .cell_input").first.bounding_box()["height"] > 20
        page.evaluate("() => dispatchEvent(new Event('beforeprint'))")  # fetches what was not yet near
        page.locator(".explorable-still").first.wait_for(state="visible")
        assert not page.locator(".explorable").first.is_visible()
    page.emulate_media(media="screen")
    page.wait_for_function(f"{theme} === 'dark'")


def test_the_ledger_says_the_statement_first_and_filters(fresh, address):
    page = fresh(viewport=DESK)
    page.goto(address + "book/ledger.html")
    rows = page.locator("table.ledger tbody tr")
    first = rows.first.locator("details.ledger-fold")
    assert re.match(r"(proved|derived) in chapter \d+", first.locator("summary").text_content().strip())
    assert not first.locator("p").is_visible()
    first.locator("summary").click()
    assert first.locator("p").is_visible()
    shown = "[...document.querySelectorAll('table.ledger tbody tr')].filter((e) => e.checkVisibility()).length"
    count = rows.count()
    assert page.evaluate(shown) == count > 50
    page.get_by_label("Show the rows that have").fill("rf-1")
    assert page.evaluate(shown) == 1
    page.get_by_label("Show the rows that have").fill("holonomy")
    assert 0 < page.evaluate(shown) < count / 4


def test_a_keyboard_reaches_the_text_soon(fresh, address):
    page = fresh(viewport=DESK)
    page.goto(address + "chapters/06_lie.html")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_function("document.activeElement.localName === 'h1'")
    page.reload()
    inside = "Boolean(document.activeElement.closest('article'))"
    assert any(page.keyboard.press("Tab") or page.evaluate(inside) for _ in range(15))
    assert page.locator("#pst-primary-sidebar").bounding_box()["x"] < page.locator("main").bounding_box()["x"]


def test_a_search_shows_the_word_and_leads_to_its_section(fresh, address):
    page = fresh(viewport=DESK)
    for word in ("holonomy", "symmetric power"):  # the index has a stem that is no word, and no pair of words
        page.goto(f"{address}search.html?q={word}")
        chapter = page.locator("#search-results li", has=page.locator('a[href*="chapters/"]')).first
        chapter.locator("p.context a").wait_for()
        assert word in chapter.locator("p.context").text_content()
        page.goto(chapter.locator("p.context a").get_attribute("href"))
        section = page.locator(f"section#{page.url.partition('#')[2]}")
        assert word in section.text_content().lower()


def test_the_search_index_holds_no_tex():
    index = (SITE / "searchindex.js").read_text("utf-8")
    assert '"commut"' in index or "commut:" in index
    assert re.findall(r"[\"{,](mathcal|operatornam|pmatrix|qquad)[\":]", index) == []


@pytest.mark.parametrize("way", ["finger", "keys"])
def test_pressed_questions_narrow_the_table_and_the_count_is_spoken(fresh, address, way):
    page, bare = fresh(viewport=PHONE, has_touch=True), fresh(java_script_enabled=False)
    page.goto(address + "book/which-encoding.html")
    questions, told = page.locator("button.question"), page.locator(".asked [role=status]")
    methods = "table:has(th:text-is('question')) tbody tr:visible"
    rows, press = (
        page.locator(methods),
        lambda i: questions.nth(i).tap() if way == "finger" else questions.nth(i).press("Enter"),
    )
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
    bare.goto(page.url.partition("#")[0])  # without scripts all of it stands
    assert bare.locator(methods).count() == whole


def test_a_folds_title_opens_it_wherever_a_finger_presses(fresh, address):
    page = fresh(viewport=PHONE, has_touch=True)
    page.goto(address + "book/afternoon.html")
    folds = page.locator(".admonition.solution.dropdown")
    assert folds.count() == 5
    for i, fold in enumerate(folds.all()):
        title = fold.locator(".admonition-title")
        (title.locator("a").first if i % 2 else title).tap()
        assert "toggle-hidden" not in fold.get_attribute("class")
        title.tap()
        assert "toggle-hidden" in fold.get_attribute("class")
