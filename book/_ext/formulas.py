"""Formulas are typeset when the site is made, not when it is read.

MathJax writes for each formula CHTML for the eye and MathML for the ear (book/_ext/typesetting.py). A page then needs
neither MathJax nor any other script to show its formulas, no formula stops the Tab key, and the style and the fonts
hold the glyphs that the book uses. What was typeset once is kept in _build/formulas.json; what is not there is noted
while pages are read, and typeset before any is written. TeX that MathJax cannot read is a warning, and warnings fail
the build.

In a part of a page with a picture that gives query, key or value a colour, an explorable or a plot, q, k or v have that
colour too.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from functools import cache
from html import escape
from importlib import metadata
from pathlib import Path

import typesetting
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.search import IndexBuilder
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number
from sphinx.writers.html import HTMLTranslator

from geolib import explorables
from geolib.figures import ROLES

log = logging.getLogger(__name__)


class Typesetter:
    """Formulas by their TeX; the store is one file."""

    def __init__(self, store: Path) -> None:
        """Read the store, unless other code filled it."""
        self.store, self.fresh = store, False
        glue = typesetting.GLUE.read_text("utf-8")
        versions = [metadata.version(name) for name in ("sphinx-mathjax-offline", "mini-racer")]
        self.stamp = hashlib.sha256("\0".join([glue, typesetting.START, *versions]).encode()).hexdigest()
        saved = json.loads(store.read_text("utf-8")) if store.is_file() else {}
        self.known: dict[str, typesetting.Made] = saved["formulas"] if saved.get("stamp") == self.stamp else {}
        self.css: str = saved["css"] if self.known else ""  # MathJax's style, every glyph in it

    def typeset(self, formulas: dict[str, typesetting.Formula], processes: int) -> None:
        """Typeset what is not in the store."""
        new = {name: each for name, each in formulas.items() if name not in self.known}
        if new:
            made, self.css = typesetting.all_of([*new.values()], processes)
            self.known |= dict(zip(new, made, strict=True))
            self.fresh = True

    def __call__(self, tex: str, display: bool) -> typesetting.Made:
        """The formula's html, mathml, and error; one that came up after the pages were read is typeset alone."""
        self.typeset({key(tex, display): (tex, display)}, 1)
        return self.known[key(tex, display)]

    def save(self) -> None:
        """Write the store if it has grown."""
        if self.fresh:
            self.store.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps({"stamp": self.stamp, "css": self.css, "formulas": self.known})
            self.store.write_text(text, "utf-8")


def key(tex: str, display: bool) -> str:
    """A formula's name in the store."""
    return f"{'display' if display else 'inline'} {tex}"


# The pages ----------------------------------------------------------------------------------------------------------


def formula(translator: HTMLTranslator, node: nodes.Element, display: bool) -> str:
    """A formula's element; a warning when MathJax does not understand it."""
    tex = block(node) if display else node.astext()
    made = translator.builder.app.typeset(tex, display)
    if made["error"]:
        log.warning("a formula cannot be read: %s: %s", made["error"], tex, location=node, type="formulas")
    spoken = slim_mathml(made["mathml"])
    if display:
        spoken = spoken.replace("<math", '<math display="block"', 1)
    return slim(in_colour(made["html"], roles_beside(node)), boxes(translator.builder.app.typeset.css)) + spoken


# A page of this book has hundreds of formulas: what a formula needs not, the browser need not lay out.
LONE_GLYPH = re.compile(
    r'<mjx-(m[ino])((?: (?:space|size)="\w+"| style="[^"]*")*)><mjx-c( class="[^"]*")></mjx-c></mjx-\1>'
)
LONE_ATOM = re.compile(r'<mjx-TeXAtom((?: size="\w+")?) texclass="ORD"><mjx-c( class="[^"]*")></mjx-c></mjx-TeXAtom>')
NO_GLYPH = re.compile(r'<mjx-c class="mjx-c2061"></mjx-c>')  # between a function and its argument, for the ear
LONE_SPACE = re.compile(r"<mjx-mstyle>(<mjx-mspace[^>]*></mjx-mspace>)</mjx-mstyle>")
SCRIPT_OF_ONE = re.compile(r'<mjx-script style="([^"]*)"><mjx-c size="s"( class="[^"]*")></mjx-c></mjx-script>')
SCRIPT_OF_MORE = re.compile(
    r'<mjx-script style="([^"]*)"><mjx-TeXAtom size="s" texclass="ORD">'
    r"((?:(?!<mjx-script).)*?)</mjx-TeXAtom></mjx-script>"
)
GROUP = re.compile(r'<(mjx-msu[bp]|mjx-TeXAtom)(?: texclass="ORD")?>((?:(?!</?\1\b).)*)</\1>')
SPACED = re.compile(r'<(mjx-msu[bp])( space="\d")><mjx-c( class="[^"]*"></mjx-c>(?:(?!</?\1\b).)*)</\1>')
NEXT = r'(?:<mjx-c class="mjx-c[0-9A-F-]+\2"></mjx-c>)+'
ALIKE = re.compile(r'<mjx-c((?: space="\d")?) class="mjx-c[0-9A-F-]+(| [\w-]+)"></mjx-c>' + NEXT)
LONE_WORD = re.compile(r"<mrow>(<m([ino]|text)\b[^>]*>[^<]*</m\2>)</mrow>")
SPACE = re.compile(r"<mstyle[^>]*><mspace[^>]*(?:/>|></mspace>)</mstyle>|<mspace[^>]*(?:/>|></mspace>)")


def slim(html: str, known: dict[tuple[str, str], Box]) -> str:
    """The formula for the eye, with an element for each row of glyphs of a font, each shift and each size.

    A script is lifted in units of its own size, so that its size may stand on itself; ``known`` are glyphs' boxes.
    """
    html = NO_GLYPH.sub("", LONE_GLYPH.sub(r"<mjx-c\2\3></mjx-c>", LONE_SPACE.sub(r"\1", html)))
    html = LONE_GLYPH.sub(r"<mjx-c\2\3></mjx-c>", ALIKE.sub(as_one, html))
    html = LONE_ATOM.sub(r"<mjx-c\1\2></mjx-c>", html)
    html = SCRIPT_OF_ONE.sub(lambda m: f'<mjx-c size="s" script style="{smaller(m[1])}"{m[2]}></mjx-c>', html)
    html = SCRIPT_OF_MORE.sub(lambda m: f'<mjx-script size="s" style="{smaller(m[1])}">{m[2]}</mjx-script>', html)
    found = 1
    while found:
        html, found = GROUP.subn(r"\2", html)
    html = ALIKE.sub(as_one, SPACED.sub(r"<mjx-c\2\3", html))
    return ROW.sub(lambda found: row(found, known), html)


def smaller(lift: str) -> str:
    """A style in em of the line as one in em of a script, which is 70.7 % as large."""
    return re.sub(r"-?[\d.]+(?=em)", lambda found: f"{float(found[0]) / 0.707:.3f}", lift)


def as_one(found: re.Match[str]) -> str:
    """Glyphs of a font beside one another in one element, whose class names them all."""
    codes = re.findall(r'class="mjx-c([0-9A-F-]+)', found[0])
    return f'<mjx-c{found[1]} class="mjx-c{"-".join(codes)}{found[2]}"></mjx-c>'


Box = tuple[str, float, float, float]  # a glyph's character, and how far it reaches above, to the right and below
ROW = re.compile(r'<mjx-c((?: [^>]*)?) class="mjx-c([0-9A-F]+(?:-[0-9A-F]+)+)(?: ([\w-]+))?">')
BOX = re.compile(
    r"(?s)mjx-c\.mjx-c([0-9A-F]+)(?:\.(TEX-\w+))?::before \{\s*padding: "
    r'([\d.]+)(?:em)? ([\d.]+)(?:em)? ([\d.]+)(?:em)? 0;\s*content: "((?:[^"\\]|\\.)*)";'
)


@cache
def boxes(css: str) -> dict[tuple[str, str], Box]:
    """The boxes of MathJax's glyphs, by code and font."""
    return {
        (code, font): (unescaped(content), float(above), float(wide), float(below))
        for code, font, above, wide, below, content in BOX.findall(css)
    }


def unescaped(content: str) -> str:
    """The characters of a string of a style sheet."""
    return re.sub(r"\\([0-9A-Fa-f]{1,6}) ?|\\(.)", lambda m: chr(int(m[1], 16)) if m[1] else m[2], content)


def row(found: re.Match[str], known: dict[tuple[str, str], Box]) -> str:
    """The element of glyphs beside one another: as high as the highest, as deep as the deepest, as wide as all."""
    attributes, codes, font = found[1], found[2].split("-"), found[3] or ""
    signs, above, wide, below = zip(*(known[code, font] for code in codes))
    own = re.search(r' style="([^"]*)"', attributes)
    box = f"--box: {max(above):g}em {sum(wide):.3f}em {max(below):g}em 0"
    rest, lift = (attributes.replace(own[0], ""), f"{own[1]} ") if own else (attributes, "")
    named = f' class="{font}"' if font else ""
    return f'<mjx-c{rest}{named} row="{escape("".join(signs))}" style="{lift}{box}">'


def slim_mathml(mathml: str) -> str:
    """The formula for the ear, without rows of one and without space, which nobody hears."""
    return LONE_WORD.sub(r"\1", SPACE.sub("", mathml))


def block(node: nodes.Element) -> str:
    """The TeX of a displayed formula: paragraphs under one another, lines in a split."""
    if node["nowrap"] or "amsmath" in node["classes"]:
        return node.astext()
    parts = [part for part in node.astext().split("\n\n") if part.strip()]
    parts = [f"\\begin{{split}}{part}\\end{{split}}" if has_lines(part) else part for part in parts]
    return parts[0] if len(parts) == 1 else r"\begin{aligned}" + r"\\".join(parts) + r"\end{aligned}"


def has_lines(tex: str) -> bool:
    """Whether a line ends outside all environments: the rows of a matrix are no lines of the formula."""
    inner, count = re.compile(r"(?s)\\begin\{(\w+\*?)\}((?!\\begin\{).)*?\\end\{\1\}"), 1
    while count:
        tex, count = inner.subn("", tex)
    return r"\\" in tex


def visit_inline(translator: HTMLTranslator, node: nodes.math) -> None:
    """A formula in a line of text."""
    opening = translator.starttag(node, "mjx-container", "", CLASS="math notranslate nohighlight", jax="CHTML")
    translator.body.append(f"{opening}{formula(translator, node, False)}</mjx-container>")
    raise nodes.SkipNode


def visit_display(translator: HTMLTranslator, node: nodes.math_block) -> None:
    """A formula on its own, with its number beside it."""
    translator.body.append(translator.starttag(node, "div", CLASS="math notranslate nohighlight"))
    made = f'<mjx-container jax="CHTML" display="true">{formula(translator, node, True)}</mjx-container>'
    translator.body.append(f'<div class="formula">{made}</div>')
    if node["number"]:
        translator.body.append(f'<span class="eqno">({get_node_equation_number(translator, node)})')
        translator.add_permalink_ref(node, "Link to this equation")
        translator.body.append("</span>")
    translator.body.append("</div>\n")
    raise nodes.SkipNode


# Punctuation --------------------------------------------------------------------------------------------------------

BEFORE, AFTER = re.compile(r"[(\[“‘\"]+$"), re.compile(r"[,.;:!?)\]”’\"]+")


def hold_punctuation(app: Sphinx, document: nodes.document) -> None:
    """Keep a comma with the formula that it follows, and a parenthesis with the one that it opens for."""
    for math in list(document.findall(nodes.math)):
        parent = math.parent
        if isinstance(parent, (nodes.title, nodes.TextElement)) and parent.tagname not in ("title", "term", "caption"):
            hold(parent, math)


def hold(parent: nodes.Element, math: nodes.math) -> None:
    """Put a formula and the marks that touch it into one element, in which no line ends between them."""
    at = parent.index(math)
    before = parent[at - 1] if at else None
    after = parent[at + 1] if at + 1 < len(parent) else None
    opening = BEFORE.search(str(before)) if isinstance(before, nodes.Text) else None
    closing = AFTER.match(str(after)) if isinstance(after, nodes.Text) else None
    if not opening and not closing:
        return
    held = nodes.inline(classes=["held"])
    new: list[nodes.Node] = [held]
    if opening:
        held += nodes.Text(opening[0])
        new.insert(0, nodes.Text(str(before)[: opening.start()]))
    held += math.deepcopy()
    if closing:
        held += nodes.Text(closing[0])
        new.append(nodes.Text(str(after)[closing.end() :]))
    parent[at - bool(opening) : at + 1 + bool(closing)] = new


# Colours ------------------------------------------------------------------------------------------------------------

ROLE_OF_A_LETTER = {  # q, k and v, also in bold
    **{"1D45E": "query", "1D458": "key", "1D463": "value"},
    **{"1D42A": "query", "1D424": "key", "1D42F": "value"},
}
# Not in an index, where k may count.
LETTER = re.compile(rf'(<mjx-m\w+(?![^>]*size="s")[^>]*>)<mjx-c class="mjx-c({"|".join(ROLE_OF_A_LETTER)})\b')
WIDGETS = Path(explorables.__file__).parent


def in_colour(html: str, roles: set[str]) -> str:
    """The formula with marks on the letters of these roles."""

    def mark(found: re.Match[str]) -> str:
        role = ROLE_OF_A_LETTER[found[2]]
        return f'{found[1]}<mjx-c class="role-{role} mjx-c{found[2]}' if role in roles else found[0]

    return LETTER.sub(mark, html) if roles else html


def roles_beside(node: nodes.Node) -> set[str]:
    """The roles with a colour in the formula's part of the page: a section with its subsections, or the opening."""
    part = part_of(node)
    if part is None:
        return set()
    if "roles" not in part:
        opening = not is_titled(part.parent)
        near = [each for each in part.children if not (opening and is_titled(each))]
        images = [each for child in near for each in child.findall(nodes.image)]
        pictures = [image["uri"] for image in images if "explorable-still" in image["classes"]]
        plots = [block.astext() for child in near for block in child.findall(nodes.literal_block)]
        part["roles"] = set().union(*map(roles_of_explorable, pictures), *map(roles_of_plot, plots))
    return part["roles"]


@cache
def roles_of_explorable(still: str) -> set[str]:
    """The roles that an explorable, told by its still, shows: query and key all, value the one that names it."""
    code = WIDGETS / f"{Path(still).stem}.js"  # of a plot that is a still there is none
    return {"query", "key"} | ({"value"} if code.is_file() and "--value" in code.read_text("utf-8") else set())


def roles_of_plot(code: str) -> set[str]:
    """The roles by whose names a cell's code colours what it draws; to import a name is not to draw."""
    return set() if "import " in code else {name.lower() for name in re.findall(r"\b(QUERY|KEY|VALUE)\b", code)}


def is_titled(node: nodes.Node | None) -> bool:
    """Whether it is a section with a title: statements are sections without one."""
    return isinstance(node, nodes.section) and isinstance(node[0], nodes.title)


def part_of(node: nodes.Node) -> nodes.Element | None:
    """The section right under the page's title that the node stands in; in the page's opening, the page's section."""
    around: list[nodes.Element] = []
    while (node := node.parent) is not None:
        if is_titled(node):
            around.append(node)
    return around[-2:][0] if around else None


def role_colours() -> str:
    """The style of the letters that have a role."""
    roles = sorted(set(ROLE_OF_A_LETTER.values()))
    rule = 'html[data-theme="{}"] .role-{} {{ color: {}; }}\n'
    return "".join(rule.format(theme, role, colours[role]) for theme, colours in ROLES.items() for role in roles)


# Style and fonts ----------------------------------------------------------------------------------------------------

GLYPH = re.compile(r'class="(?:role-\w+ )?(mjx-c[0-9A-F]+)(?: (TEX-\w+))?"')
RULE = re.compile(r"(?ms)^(\S[^{]*?) \{\n(.*?)^\}$")
OF_A_GLYPH = re.compile(r"\.(mjx-c[0-9A-F]+)(?:\.(TEX-\w+))?")


OURS = """mjx-c[script], mjx-script[size] { padding-right: .071em; padding-left: .047em; }
mjx-c[row]::before { content: attr(row); padding: var(--box); font-kerning: none; }
"""


def style(css: str, used: set[tuple[str, str]]) -> str:
    """MathJax's style without the glyphs that are not among the used ones, pairs of a glyph and its font."""
    codes = {code for code, _ in used}
    kept = []
    for selector, body in RULE.findall(css):
        glyph = OF_A_GLYPH.search(selector)
        single = selector.endswith("::before") and not selector.startswith("mjx-stretchy")
        if glyph is None or (glyph.groups("") in used if single else glyph[1] in codes):
            kept.append(f"{selector} {{ {' '.join(body.split())} }}\n")
    return "".join(kept) + OURS


def write_style(app: Sphinx, problem: Exception | None) -> None:
    """Keep what was typeset, and write the style that the site's pages use and the fonts that it names."""
    app.typeset.save()
    if problem or app.builder.format != "html":
        return
    static = Path(app.outdir) / "_static"
    used = {glyph for page in Path(app.outdir).rglob("*.html") for glyph in GLYPH.findall(page.read_text("utf-8"))}
    (static / "formulas.css").write_text(style(app.typeset.css, used) + role_colours(), "utf-8")
    shutil.copytree(
        typesetting.mathjax() / "output" / "chtml" / "fonts" / "woff-v2", static / "fonts", dirs_exist_ok=True
    )


# The search index ---------------------------------------------------------------------------------------------------

feed = IndexBuilder.feed


def feed_text(self: IndexBuilder, docname: str, filename: str, title: str, doctree: nodes.document) -> None:
    """Leave formulas out of the words that the search finds."""
    text = doctree.deepcopy()
    for node in [*text.findall(nodes.math), *text.findall(nodes.math_block)]:
        node.children = []
    feed(self, docname, filename, title, text)


def begin(app: Sphinx) -> None:
    """Open the store beside the site."""
    app.typeset, app.noted = Typesetter(Path(app.outdir).parent / "formulas.json"), {}


def note_formulas(app: Sphinx, document: nodes.document) -> None:
    """Note a page's formulas when it is read."""
    asked = [(node.astext(), False) for node in document.findall(nodes.math)]
    asked += [(block(node), True) for node in document.findall(nodes.math_block)]
    app.noted |= {key(*each): each for each in asked}


def typeset_all(app: Sphinx, env: object) -> list[str]:
    """Typeset what was noted, before pages are written; no further page is to be written for it."""
    app.typeset.typeset(app.noted, app.parallel)
    return []


def setup(app: Sphinx) -> dict[str, object]:
    """Register the renderer."""
    IndexBuilder.feed = feed_text
    app.add_html_math_renderer("prerendered", (visit_inline, None), (visit_display, None))
    app.connect("builder-inited", begin)
    app.connect("doctree-read", hold_punctuation)
    app.connect("doctree-read", note_formulas, priority=900)
    app.connect("env-updated", typeset_all)
    app.connect("build-finished", write_style)
    app.add_css_file("formulas.css")
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
