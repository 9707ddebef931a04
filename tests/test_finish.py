"""What is done to finished pages: lines of code that wrap, marks for readers who listen, solutions that come last."""

import re

import pdf
import postprocess
from bs4 import BeautifulSoup

CODE = '<span class="k">def</span> f(x):\n    <span class="k">return</span> x\n\n<span class="c">#  end</span>\n'


def test_lines_of_code_keep_their_text_and_know_their_indentation_and_other_listings_stay():
    page = f'<pre>{CODE}</pre><div class="highlight"><pre><span></span>{CODE}</pre></div>'
    made, copied = postprocess.fitting(page), re.compile("<[^>]+>")
    assert copied.sub("", made) == copied.sub("", page)
    assert made.startswith(f"<pre>{CODE}</pre>")
    assert made.count('class="line"') == 3  # an empty line is none
    assert re.findall(r"--in:(\d+)", made) == ["4"]
    assert postprocess.fitting(made) == made


def test_intervals_and_spreads_in_tables_stay_in_one_piece():
    kept = lambda text: postprocess.SPREAD.sub(postprocess.in_one_piece, text).replace("\N{WORD JOINER}", "")  # noqa: E731
    assert kept("-1.8 (-3.1 to -0.5), x") == "−1.8 (−3.1\xa0to\xa0−0.5), x"
    assert kept("22.84 ± 2.01 (3 seeds)") == "22.84\xa0±\xa02.01 (3\xa0seeds)"
    assert kept("95 % interval -4.97 to +2.00)") == "95 % interval −4.97\xa0to\xa0+2.00)"
    for text in ("0.98 to 0.99", "10-20 of (a to b)", "digits-8 (see 3)"):
        assert kept(text) == text


def test_in_print_solutions_stand_at_the_end_under_their_chapters(tmp_path):
    solution = '<div class="solution admonition">By {0}.</div>'
    for name, solved in (("One", solution), ("Two", solution), ("Three", "")):
        page = f'<article class="bd-article"><h1>{name}</h1>{solved.format(name)}<p>More.</p></article>'
        (tmp_path / f"{name}.html").write_text(page)
    made = BeautifulSoup(pdf.one_page(tmp_path, ["One", "Two", "Three"]), "html.parser")
    *texts, end = made.select("article")
    assert re.findall("<h2>(.*?)</h2>.*?(By .*?)<", str(end)) == [("One", "By One."), ("Two", "By Two.")]
    assert ["By" in text.get_text() for text in texts] == [False] * 3
    assert "Solutions" not in pdf.one_page(tmp_path, ["Three"])


def test_links_to_sections_lead_inside_the_one_file():
    links = "".join(f'<a href="{where}">there</a>' for where in ("b.html#here", "b.html", "#top", "c.html#x"))
    body = f'<article class="bd-article"><h1 id="top">A</h1>{links}</article>'
    made = pdf.article(BeautifulSoup(body, "html.parser"), "chapters/a", {"chapters/a", "chapters/b"})
    ids = {node["id"] for node in made.select("[id]")}
    found = [link["href"] for link in made.select("a")]
    assert found == ["#chapters-b--here", "#chapters-b", "#chapters-a--top", "c.html#x"]
    assert found[2].removeprefix("#") in ids
