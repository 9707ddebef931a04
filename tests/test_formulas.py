"""Formulas typeset when the site is made: by MathJax, for eye and ear, in lines that fit a phone."""

import itertools
import re

import formulas
import pytest
from docutils import nodes
from explorable_kit import REPOSITORY
from test_figures import contrast

from geolib.figures import ROLES


@pytest.fixture(scope="module")
def typeset(tmp_path_factory):
    return formulas.Store(tmp_path_factory.mktemp("formulas") / "formulas.json")


def texts(made):
    """What each run of a formula says, glyph by glyph."""
    runs = re.split("<mjx-run>", made["html"])[1:]
    glyphs = [re.findall(r'class="mjx-c([0-9A-F]+)[ "]', run) for run in runs]
    return ["".join(chr(int(code, 16)) for code in run) for run in glyphs if run]


def test_a_formula_is_there_for_eye_and_ear(typeset):
    made = typeset(r"q_m^\top R(m\theta)", True)
    assert made["error"] is None
    assert "mjx-c1D45E TEX-I" in made["html"]  # an italic q
    assert 'aria-hidden="true"' in made["html"]
    assert made["mathml"].startswith("<math><msubsup><mi>q</mi><mi>m</mi>")


def test_a_displayed_formula_may_break_before_its_signs_and_nowhere_else(typeset):
    assert len(texts(typeset(r"a=(b+c)^2-\frac{d+e}{f-g}", True))) == 3
    assert texts(typeset("a=-b", True)) in (["𝑎", "=−𝑏"], ["a", "=−b"])
    assert texts(typeset(r"\big(a+b\big)\sqrt{c-d}", True)) == []


def test_a_long_list_and_a_long_product_break_inside_and_in_a_line_of_text_only_what_is_long_and_after_its_signs(
    typeset,
):
    assert len(texts(typeset(r"u=(" + r"\sin m\theta_1,\ " * 6 + "0)", True))) >= 6
    factor = r"\big(T_m^{-1}W_q(x_m+u_m)\big)"
    assert len(texts(typeset(f"{factor}^\\top{factor}", True))) == 2
    assert texts(typeset("m=n", False)) == []
    runs = texts(typeset(r"R(m\theta_1)^{-\top}R(n\theta_1)=R((n-m)\theta_1)", False))
    assert len(runs) == 2
    assert runs[0].endswith("=")


def test_wide_lines_are_marked_narrow_ones_are_not_and_the_rows_of_a_matrix_are_none(typeset):
    wide, narrow = (rf"\begin{{aligned}}a&={sum_}\\&=c\end{{aligned}}" for sum_ in ("b+" * 20 + "b", "b"))
    assert 'lines="wide"' in typeset(wide, True)["html"]
    assert 'lines="narrow"' in typeset(narrow, True)["html"]
    assert formulas.has_lines(r"\begin{pmatrix}a\\b\end{pmatrix}\\c")
    assert not formulas.has_lines(r"J=\begin{pmatrix}\begin{matrix}a\\b\end{matrix}\\c\end{pmatrix}")


def test_the_store_is_read_again_and_forgotten_with_its_code(tmp_path, monkeypatch):
    store = tmp_path / "formulas.json"
    first = formulas.Store(store)
    made = first("a+b", False)
    first.save()
    second = formulas.Store(store)
    assert second.known == {formulas.key("a+b", False): made}
    assert second.css == first.css
    monkeypatch.setattr(formulas, "START", formulas.START + " ")
    assert formulas.Store(store).known == {}


def test_the_style_holds_the_glyphs_in_use_and_no_others(typeset):
    typeset("q", False)
    style = formulas.style(typeset.css, {("mjx-c1D45E", "TEX-I"), ("mjx-c7B", "")})
    glyphs = re.findall(r"(mjx-c\.\S+)::before", style)
    assert glyphs == ["mjx-c.mjx-c7B", "mjx-c.mjx-c1D45E.TEX-I"]
    assert "@font-face" in style
    assert len(style) < 25_000 < len(typeset.css)


def test_elements_around_single_glyphs_go_and_every_glyph_stays(typeset):
    made = typeset(r"\exp(12)<{a}_{b}", False)["html"]
    html = formulas.slim(made)
    glyphs = [code for code in re.findall(r'class="mjx-c([0-9A-F]+)', made) if code != "2061"]  # for the ear alone
    assert re.findall(r'class="mjx-c([0-9A-F]+)', html) == glyphs
    assert html.count("<") < 0.8 * made.count("<")
    assert formulas.slim(html) == html


def test_q_and_k_have_their_roles_and_an_index_k_has_none(typeset):
    made = typeset(r"q_m^\top k_n+\sum_k\Gamma^k_{ij}+\mathbf q+v", True)["html"]
    html = formulas.in_colour(made, {"query", "key"})
    assert re.findall(r"role-(\w+) mjx-c(\w+)", html) == [("query", "1D45E"), ("key", "1D458"), ("query", "1D42A")]
    assert html.count("1D458") == 3
    assert "role-value mjx-c1D463" in formulas.in_colour(made, {"value"})
    assert formulas.GLYPH.findall(html) == formulas.GLYPH.findall(re.sub(r"role-\w+ ", "", html))


def test_formulas_beside_a_picture_have_its_colours_and_no_others():
    def section(*content):
        return nodes.section("", nodes.title("", "A title"), *content)

    stills = [
        nodes.image(uri=f"images/explorables/{name}.png", classes=["explorable-still"]) for name in ("clock", "circle")
    ]
    near, inner, far, first, values, plotted = (nodes.math("", "q") for _ in range(6))
    statement = nodes.section("", nodes.paragraph("", "", near))  # without a title, as sphinx-proof makes them
    hands_on = section(nodes.figure("", stills[0]), nodes.paragraph("", "", inner))
    section(
        *(nodes.paragraph("", "", first), section(statement, hands_on), section(far)),
        *(section(stills[1], values), section(nodes.literal_block(text="bars(row, color=KEY)"), plotted)),
    )
    roles = [formulas.roles_beside(each) for each in (near, inner, far, first, values, plotted)]
    both = {"query", "key"}
    assert roles == [both, both, set(), set(), both | {"value"}, {"key"}]


def test_coloured_letters_are_read_on_every_ground():
    style = (REPOSITORY / "book" / "_static" / "house.css").read_text("utf-8")
    for theme, colours in ROLES.items():
        rules = re.search(rf'(?s)html\[data-theme="{theme}"\] {{(.*?)}}', style)[1]
        grounds = re.findall(r"(?:ground|background|surface): (#[0-9a-f]{6})", rules)
        assert len(grounds) >= 7
        for role, ground in itertools.product(("query", "key", "value"), grounds):
            assert contrast(colours[role], ground) >= 4.5, (theme, role, ground)
