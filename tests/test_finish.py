"""What is done to finished pages: lines of code that wrap, marks for readers who listen, solutions that come last."""

import importlib
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

from bs4 import BeautifulSoup

BOOK = Path(__file__).resolve().parent.parent / "book"
sys.path[:0] = [str(BOOK), str(BOOK / "_ext")]
listings, landmarks, pdf = (importlib.import_module(name) for name in ("listings", "landmarks", "pdf"))
house = importlib.import_module("house")

CODE = '<span class="k">def</span> f(x):\n    <span class="k">return</span> x\n\n<span class="c">#  end</span>\n'


def text(html):
    """What a copy button copies."""
    return re.sub("<[^>]+>", "", html)


def test_lines_of_code_keep_their_text_and_know_their_indentation():
    made = listings.in_lines(CODE)
    assert text(made) == text(CODE)
    assert made.count('class="line"') == 3  # an empty line is none
    assert re.findall(r"--in:(\d+)", made) == ["4"]  # an empty line has none


def test_numbers_and_the_letter_before_a_string_have_no_element_of_their_own():
    made = listings.in_lines(
        'x = <span class="mi">1</span>, <span class="sa">f</span><span class="s2">&quot;a&quot;</span>'
    )
    assert made == '<span class="line">x = 1, <span class="s2">f&quot;a&quot;</span></span>'


def test_intervals_and_spreads_in_tables_stay_in_one_piece():
    kept = lambda text: house.SPREAD.sub(house.in_one_piece, text).replace("\N{WORD JOINER}", "")  # noqa: E731
    assert kept("-1.8 (-3.1 to -0.5), x") == "−1.8 (−3.1\xa0to\xa0−0.5), x"
    assert kept("22.84 ± 2.01 (3 seeds)") == "22.84\xa0±\xa02.01 (3\xa0seeds)"
    assert kept("95 % interval -4.97 to +2.00)") == "95 % interval −4.97\xa0to\xa0+2.00)"
    for text in ("0.98 to 0.99", "10-20 of (a to b)", "digits-8 (see 3)"):
        assert kept(text) == text


def test_only_listings_are_rewritten():
    page = f'<pre>{CODE}</pre><div class="highlight"><pre><span></span>{CODE}</pre></div>'
    found = listings.LISTING.findall(page)
    assert [body for _, body, _ in found] == [CODE]


def test_a_name_in_a_line_of_text_may_end_a_line_at_its_joints_alone():
    name = '<span class="pre">geolib.lie_re/x</span> <span class="pre">a_b.c</span> <span class="pre">1.5</span>'
    made = listings.with_joints(name)
    assert re.findall("(..)<wbr>", made) == ["b.", "e_", "e/", "a_", "b."]
    assert text(made) == text(name)
    assert listings.with_joints(made) == made


def test_the_option_of_a_command_stays_in_one_piece():
    made = listings.in_lines("geolib run --jobs 3 # --, a--b\n")
    assert made.count('class="option"') == 1
    assert '<span class="option">--jobs</span> 3' in made
    assert '"pre"><span class="option">--dry-run</span><' in listings.with_joints('<span class="pre">--dry-run</span>')


class Balanced(HTMLParser):
    """Fails where a tag closes another than the one that is open."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_pages_get_their_landmark_lists_and_signatures():
    signature = (
        '<dl class="py"><dt>f(\n<dl>\n<dd><em>a</em>,</dd>\n<dd><em>b</em>,</dd>\n</dl>\n)</dt><dd>Text.</dd></dl>'
    )
    work = '<div role="list"><div class="citation" role="doc-biblioentry">A work.</div></div>'
    page = landmarks.mended(f"{landmarks.SIDE_BAR}{signature}{work}</div>")
    assert 'role="complementary" aria-label="' in page
    assert '<span class="sig-line"><em>a</em>,</span>' in page
    assert "<dd>Text.</dd></dl>" in page
    assert 'role="listitem"' in page
    assert "doc-biblioentry" not in page
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    assert landmarks.mended(page) == page
    assert landmarks.mended('<th class="head"><p></p></th><th>m</th>') == '<td class="head"></td><th>m</th>'


def test_in_print_solutions_stand_at_the_end_under_their_chapters():
    chapter = '<article><h1>{0}</h1><div class="solution admonition" id="{0}">By {0}.</div><p>More.</p></article>'
    articles = [BeautifulSoup(chapter.format(name), "html.parser").article for name in ("One", "Two")]
    end = pdf.solutions([*articles, BeautifulSoup("<article><h1>Three</h1></article>", "html.parser").article])
    assert re.findall("<h2>(.*?)</h2>.*?(By .*?)<", end) == [("One", "By One."), ("Two", "By Two.")]
    assert "Three" not in end
    assert all("By" not in text.get_text() and "More." in text.get_text() for text in articles)
    assert pdf.solutions(articles) == ""


def test_a_named_tuples_fields_are_not_documented_twice():
    class Point(NamedTuple):
        x: float

    assert house.skip_aliases(None, "class", "x", Point.x, False, None) is True
    assert house.skip_aliases(None, "class", "_replace", Point._replace, False, None) is None


def test_links_to_sections_lead_inside_the_one_file(tmp_path):
    (tmp_path / "chapters").mkdir()
    links = "".join(f'<a href="{where}">there</a>' for where in ("b.html#here", "b.html", "#top", "c.html#x"))
    body = f'<h1 id="top">A</h1>{links}'
    (tmp_path / "chapters" / "a.html").write_text(f'<article class="bd-article">{body}</article>', "utf-8")
    made = pdf.article(tmp_path, "chapters/a", {"chapters/a", "chapters/b"})
    ids = {node["id"] for node in made.select("[id]")}
    found = [link["href"] for link in made.select("a")]
    assert found == ["#chapters-b--here", "#chapters-b", "#chapters-a--top", "c.html#x"]
    assert found[2].removeprefix("#") in ids
