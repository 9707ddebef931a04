"""Slides for teachers: one deck a chapter, made from the built site alone."""

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
SITE = REPOSITORY / "_build" / "html"
CHAPTERS = sorted(path.stem for path in (REPOSITORY / "chapters").glob("[0-9][0-9]_*.ipynb"))

PAGE = """<html><body><article class="bd-article"><section id="title"><h1>2. Two<a class="headerlink">#</a></h1>
<p class="reading">About an hour.</p><p>What is two?</p>
<div class="admonition takeaways"><p class="admonition-title">Take along</p><p>It is even.</p></div>
<section id="half"><h2>Half of it<a class="headerlink">#</a></h2>
<div class="proof proposition admonition"><p class="admonition-title">Proposition 2.1</p>
<p>See <a href="a.html">a</a>.</p></div>
<div class="proof admonition"><p>Proof. Count.</p></div>
<figure id="fig"><img alt="one" src="one.svg"><figcaption><p>One.</p></figcaption></figure>
<div class="exercise"><figure><img alt="no" src="one.svg"></figure></div>
</section></section></article></body></html>"""


@pytest.fixture
def slides(monkeypatch):
    """The program that makes them."""
    monkeypatch.syspath_prepend(str(REPOSITORY / "book"))
    import slides

    return slides


@pytest.fixture
def made(slides, tmp_path):
    """The deck of a small page."""
    (tmp_path / "chapters").mkdir()
    (tmp_path / "chapters" / "02_two.html").write_text(PAGE, "utf-8")
    (tmp_path / "chapters" / "one.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>", "utf-8")
    return slides.deck(tmp_path, "chapters/02_two", "")


def test_a_deck_has_the_opening_the_takeaways_statements_without_proofs_and_figures(made):
    assert re.findall(r'class="slide (\w+)"', made) == ["title", "takeaways", "statement", "figure"]
    assert "What is two?" in made
    assert "About an hour" not in made
    assert "Count" not in made


def test_a_slide_leads_to_its_section_and_nowhere_else(made):
    body = made[made.index("<main>") : made.index("</main>")]
    assert re.findall(r'href="([^"]*)"', body) == [
        *["../chapters/02_two.html"] * 2,
        *["../chapters/02_two.html#half"] * 2,
    ]


def test_pictures_are_in_the_deck(made):
    assert re.findall(r'src="([^"]{0,24})', made) == ["data:image/svg+xml;base64"[:24]]


# The built site -------------------------------------------------------------------------------------------------------

OVERFLOWS = """() => [...document.querySelectorAll(".slide")].flatMap((slide, i) => {
  const box = slide.querySelector(".fit"), place = slide.getBoundingClientRect();
  const wide = [...box.querySelectorAll("*")].some((each) => {
    const { left, top, right, bottom, width, height } = each.getBoundingClientRect();
    return width > 1 && height > 1 && !each.closest("math")
      && (left < place.left - 1 || top < place.top - 1 || right > place.right + 1 || bottom > place.bottom + 1);
  });
  return wide || box.scrollHeight > box.clientHeight + 1 || box.scrollWidth > box.clientWidth + 1 ? [i + 1] : [];
})"""
RAW = """() => [...document.querySelectorAll("main *")].flatMap((each) => [...each.childNodes])
  .filter((node) => node.nodeType === 3 && !node.parentElement.closest("code, annotation, pre")
    && /\\\\\\(|\\\\\\[|\\$[^$]+\\$|\\\\(frac|mathbb|theta)/.test(node.data)).map((node) => node.data)"""


@pytest.mark.site
@pytest.mark.parametrize("name", CHAPTERS)
def test_a_deck_asks_nobody_and_no_slide_overflows(browser, name):
    deck = SITE / "slides" / f"{name}.html"
    page = browser.new_context(viewport={"width": 1280, "height": 720}).new_page()
    page.set_default_timeout(120_000)
    asked, errors = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(deck.as_uri())
    page.wait_for_selector("body[data-ready=yes]")
    assert [url for url in asked if not url.startswith("data:")] == [deck.as_uri()]
    assert errors == []
    assert page.evaluate(OVERFLOWS) == []
    assert page.evaluate(RAW) == []
    formulas = page.evaluate("[...document.querySelectorAll('main .math')].map((e) => !!e.querySelector('mjx-math'))")
    assert formulas
    assert all(formulas)
    page.keyboard.press("ArrowRight")
    assert page.locator(".slide.now").get_attribute("aria-label") == "Slide 2"
    assert page.evaluate("document.querySelector('.slide.now .fit').style.fontSize") >= "14px"
    page.context.close()


@pytest.mark.site
@pytest.mark.parametrize("name", CHAPTERS)
def test_a_deck_has_every_statement_of_its_chapter(name):
    page, deck = (SITE / folder / f"{name}.html" for folder in ("chapters", "slides"))
    numbered = r"(?:Theorem|Proposition|Lemma|Corollary|Definition) \d+\.\d+"
    titles = [set(re.findall(rf'caption-number">\s*({numbered})', each.read_text("utf-8"))) for each in (page, deck)]
    assert titles[1]
    assert titles[0] >= titles[1]
    assert len(titles[0] - titles[1]) <= 2, "those of asides that fold"


@pytest.mark.parametrize("kind", ["theorem", "proposition", "lemma", "corollary", "definition"])
def test_each_kind_of_statement_has_a_slide(slides, tmp_path, kind):
    (tmp_path / "chapters").mkdir()
    page = PAGE.replace('class="proof proposition admonition"', f'class="proof {kind} admonition"')
    (tmp_path / "chapters" / "02_two.html").write_text(page, "utf-8")
    (tmp_path / "chapters" / "one.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>", "utf-8")
    assert 'class="slide statement"' in slides.deck(tmp_path, "chapters/02_two", "")
