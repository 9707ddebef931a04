"""What is done to pages: what a check found is said under it, lines of code wrap, solutions come last in print."""

import ast
import re

import numpy as np
import pdf
import postprocess
import pytest
import torch
from bs4 import BeautifulSoup

with pytest.MonkeyPatch.context() as patch:
    patch.setattr("IPython.get_ipython", lambda: None)  # a shell of this process would stay watched
    import evidence

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


# What is said under a check -------------------------------------------------------------------------------------------

AGREE = {"close": evidence.watched(torch.allclose), "near": evidence.watched(np.allclose)}
KEPT = {"_kept_assertion": evidence.HELD.append, "_kept_bound": evidence.keep_bound}


def told(cell):
    """What is told of a cell that ran."""
    evidence.HELD.clear()
    evidence.GAPS.clear()
    tree = evidence.Keep(cell.splitlines()).visit(ast.parse(cell))
    exec(compile(ast.fix_missing_locations(tree), "cell", "exec"), {"torch": torch, "np": np} | AGREE | KEPT)
    return evidence.told()


def test_assertions_are_counted_and_their_comments_are_the_clauses():
    said = told("assert True  # rule 1\nfor i in range(2):\n    assert i < 5, 'no'  # rule 2\nassert not False")
    assert said == "4 assertions held. Clauses: rule 1; rule 2."


def test_what_is_said_to_tools_is_no_clause():
    said = told("assert True  # 3  # fmt: skip\nassert (1 ==\n        1)  # fmt: skip\nassert True  # skew,")
    assert said == "3 assertions held. Clauses: 3; skew."


def test_the_largest_difference_is_told():
    assert ", largest difference 0.0002." in told("assert close(torch.ones(2), torch.ones(2) + 2e-4, atol=1e-3)")
    assert ", largest difference 0.2." in told("assert near([1.0, 2.0], [1.0, 2.25], atol=1)")
    halves = "assert close(torch.ones(1, dtype=torch.bfloat16), torch.tensor([1.5]).bfloat16(), atol=1)"
    assert ", largest difference 0.5." in told(halves)
    assert ", largest difference 3e-07." in told("assert near(1, 1)\nassert abs(torch.tensor(3e-7)) < 1e-6")
    assert told("assert near(1, 1)") == "One assertion held, no difference."


def test_a_difference_that_should_be_large_is_not_told():
    assert "difference" not in told("assert not close(torch.ones(1), torch.zeros(1))\nassert torch.tensor(0.5) < 1")
    assert "difference" not in told("assert torch.tensor(2.0) > 1e-6")


@pytest.mark.parametrize(
    "cell", ["assert 2 < 1", "assert 1 > 2", "assert torch.tensor(2.0) < 1", "assert close(*torch.eye(2))"]
)
def test_what_fails_still_fails(cell):
    with pytest.raises(AssertionError):
        told(cell)
