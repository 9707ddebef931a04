"""Formulas are typeset when the site is made, not when it is read.

MathJax, in V8, writes for each formula CHTML for the eye and MathML for the ear (formulas.js). A page then needs no
script to show its formulas, no formula stops the Tab key, and the style holds the glyphs that the book uses. What was
typeset once is kept in _build/formulas.json. TeX that MathJax cannot read is a warning, and warnings fail the build.

In a part of a page with a picture that gives query, key or value a colour, an explorable or a plot, q, k or v have that
colour too.
"""

import hashlib
import importlib.util
import json
import re
import shutil
from functools import cache
from importlib import metadata
from itertools import product
from pathlib import Path

from docutils import nodes
from py_mini_racer import MiniRacer
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.search import IndexBuilder
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number
from sphinx.writers.html import HTMLTranslator

from geolib import explorables
from geolib.figures import ROLES

log = logging.getLogger(__name__)

PARTS = ("core", "adaptors/liteDOM", "input/tex-full", "output/chtml")
START = """
var global = globalThis, console = {log() {}, warn() {}, error() {}};
var MathJax = {
  loader: {paths: {mathjax: "."}, load: %s, require: (name) => (0, eval)(PARTS[name.replace(/^.*?\\.\\//, "")])},
  startup: {typeset: false}, chtml: {adaptiveCSS: false, fontURL: "fonts"},
};
"""
GLUE = Path(__file__).with_name("formulas.js")
Formula = tuple[str, bool]  # its TeX, and whether it stands on its own
Made = dict[str, str]  # its html, its mathml, and the error, None where there is none


def mathjax() -> Path:
    """The folder that holds MathJax."""
    package = importlib.util.find_spec("sphinx-mathjax-offline")
    assert package is not None, "the package sphinx-mathjax-offline is missing"
    return Path(str(package.origin)).parent / "static" / "mathjax"


def typeset(formulas: list[Formula]) -> tuple[list[Made], str]:
    """The formulas, typeset, and MathJax's style, every glyph in it."""
    engine = MiniRacer()
    try:
        files = {f"{name}.js": (mathjax() / f"{name}.js").read_text("utf-8") for name in PARTS}
        files["output/chtml/fonts/tex.js"] = (mathjax() / "output/chtml/fonts/tex.js").read_text("utf-8")
        engine.eval(f"var PARTS = {json.dumps(files)};{START % json.dumps(PARTS)}")
        engine.eval((mathjax() / "startup.js").read_text("utf-8"))
        engine.eval("var ready = false; MathJax.startup.promise.then(() => { ready = true; })")
        assert engine.eval("ready"), "MathJax has not started"  # nothing of it is fetched, so nothing is left to await
        engine.eval(GLUE.read_text("utf-8"))
        call = f"JSON.stringify({json.dumps(formulas)}.map(([tex, display]) => JSON.parse(typeset(tex, display))))"
        made = json.loads(engine.eval(call))
        return made, engine.eval("MathJax.startup.adaptor.textContent(MathJax.chtmlStylesheet())")
    finally:
        engine.close()  # its thread would outlive the program


class Store:
    """Formulas by their TeX, in one file; what is asked for while pages are read is typeset before any is written."""

    def __init__(self, path: Path) -> None:
        """Read the file, unless other code wrote it."""
        self.path, self.asked, self.fresh = path, dict[str, Formula](), False
        versions = [metadata.version(name) for name in ("sphinx-mathjax-offline", "mini-racer")]
        code = "\0".join([GLUE.read_text("utf-8"), START, *versions])
        self.stamp = hashlib.sha256(code.encode()).hexdigest()
        saved = json.loads(path.read_text("utf-8")) if path.is_file() else {}
        self.known: dict[str, Made] = saved["formulas"] if saved.get("stamp") == self.stamp else {}
        self.css: str = saved["css"] if self.known else ""  # MathJax's style, every glyph in it

    def ask(self, tex: str, display: bool) -> None:
        """Note a formula."""
        self.asked[key(tex, display)] = tex, display

    def make(self) -> None:
        """Typeset what was asked for and is not known."""
        new = {name: each for name, each in self.asked.items() if name not in self.known}
        if new:
            made, self.css = typeset([*new.values()])
            self.known |= dict(zip(new, made, strict=True))
            self.fresh = True

    def __call__(self, tex: str, display: bool) -> Made:
        """The formula, typeset; one that came up after the pages were read is typeset alone."""
        self.ask(tex, display)
        self.make()
        return self.known[key(tex, display)]

    def save(self) -> None:
        """Write the file if there is something new."""
        if self.fresh:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(json.dumps({"stamp": self.stamp, "css": self.css, "formulas": self.known}), "utf-8")


def key(tex: str, display: bool) -> str:
    """A formula's name in the store."""
    return f"{'display' if display else 'inline'} {tex}"


# The pages ----------------------------------------------------------------------------------------------------------


def formula(translator: HTMLTranslator, node: nodes.Element, display: bool) -> str:
    """A formula's element; a warning when MathJax does not understand it."""
    tex = block(node) if display else node.astext()
    made = translator.builder.app.formulas(tex, display)
    if made["error"]:
        log.warning("a formula cannot be read: %s: %s", made["error"], tex, location=node, type="formulas")
    spoken = LONE_WORD.sub(r"\1", SPACE.sub("", made["mathml"]))
    if display:
        spoken = spoken.replace("<math", '<math display="block"', 1)
    return slim(in_colour(made["html"], roles_beside(node))) + spoken


# A page has hundreds of formulas: what a formula needs not, the browser need not lay out, and nobody hear.
LONE_GLYPH = re.compile(
    r'<mjx-(m[ino])((?: (?:space|size)="\w+"| style="[^"]*")*)><mjx-c( class="[^"]*")></mjx-c></mjx-\1>'
)
LONE_ATOM = re.compile(r'<mjx-TeXAtom((?: size="\w+")?) texclass="ORD"><mjx-c( class="[^"]*")></mjx-c></mjx-TeXAtom>')
NO_GLYPH = re.compile(r'<mjx-c class="mjx-c2061"></mjx-c>')  # between a function and its argument, for the ear
GROUP = re.compile(r'<(mjx-msu[bp]|mjx-TeXAtom)(?: texclass="ORD")?>((?:(?!</?\1\b).)*)</\1>')
LONE_WORD = re.compile(r"<mrow>(<m([ino]|text)\b[^>]*>[^<]*</m\2>)</mrow>")
SPACE = re.compile(r"<mstyle[^>]*><mspace[^>]*(?:/>|></mspace>)</mstyle>|<mspace[^>]*(?:/>|></mspace>)")


def slim(html: str) -> str:
    """The formula for the eye without elements around a single glyph and around groups that say nothing."""
    html = LONE_ATOM.sub(r"<mjx-c\1\2></mjx-c>", LONE_GLYPH.sub(r"<mjx-c\2\3></mjx-c>", NO_GLYPH.sub("", html)))
    found = 1
    while found:
        html, found = GROUP.subn(r"\2", html)
    return html


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
    before, after = parent[at - 1] if at else None, parent[at + 1] if at + 1 < len(parent) else None
    opening = BEFORE.search(str(before)) if isinstance(before, nodes.Text) else None
    closing = AFTER.match(str(after)) if isinstance(after, nodes.Text) else None
    if opening or closing:
        marks = [[nodes.Text(found[0])] if found else [] for found in (opening, closing)]
        new: list[nodes.Node] = [nodes.inline("", "", *marks[0], math.deepcopy(), *marks[1], classes=["held"])]
        new[:0] = [nodes.Text(str(before)[: opening.start()])] if opening else []
        new += [nodes.Text(str(after)[closing.end() :])] if closing else []
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


# Style and fonts ----------------------------------------------------------------------------------------------------

GLYPH = re.compile(r'class="(?:role-\w+ )?(mjx-c[0-9A-F]+)(?: (TEX-\w+))?"')
RULE = re.compile(r"(?ms)^(\S[^{]*?) \{\n(.*?)^\}$")
OF_A_GLYPH = re.compile(r"\.(mjx-c[0-9A-F]+)(?:\.(TEX-\w+))?")


def style(css: str, used: set[tuple[str, str]]) -> str:
    """MathJax's style without the glyphs that are not among the used ones, pairs of a glyph and its font."""
    codes = {code for code, _ in used}
    kept = []
    for selector, body in RULE.findall(css):
        glyph = OF_A_GLYPH.search(selector)
        single = selector.endswith("::before") and not selector.startswith("mjx-stretchy")
        if glyph is None or (glyph.groups("") in used if single else glyph[1] in codes):
            kept.append(f"{selector} {{ {' '.join(body.split())} }}\n")
    return "".join(kept)


def write_style(app: Sphinx, problem: Exception | None) -> None:
    """Keep what was typeset, and write the style that the site's pages use and the fonts that it names."""
    app.formulas.save()
    if problem or app.builder.format != "html":
        return
    static = Path(app.outdir) / "_static"
    used = {glyph for page in Path(app.outdir).rglob("*.html") for glyph in GLYPH.findall(page.read_text("utf-8"))}
    rule = 'html[data-theme="{}"] .role-{} {{ color: {}; }}\n'
    roles = [rule.format(*each, ROLES[each[0]][each[1]]) for each in product(ROLES, ("key", "query", "value"))]
    (static / "formulas.css").write_text(style(app.formulas.css, used) + "".join(roles), "utf-8")
    shutil.copytree(mathjax() / "output" / "chtml" / "fonts" / "woff-v2", static / "fonts", dirs_exist_ok=True)


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
    app.formulas = Store(Path(app.outdir).parent / "formulas.json")


def note_formulas(app: Sphinx, document: nodes.document) -> None:
    """Note a page's formulas when it is read."""
    for node in document.findall(nodes.math):
        app.formulas.ask(node.astext(), False)
    for node in document.findall(nodes.math_block):
        app.formulas.ask(block(node), True)


def make_all(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Typeset what was noted; no further page is to be written for it."""
    app.formulas.make()
    return []


def setup(app: Sphinx) -> dict[str, object]:
    """Register the renderer."""
    IndexBuilder.feed = feed_text
    app.add_html_math_renderer("prerendered", (visit_inline, None), (visit_display, None))
    app.connect("builder-inited", begin)
    app.connect("doctree-read", hold_punctuation)
    app.connect("doctree-read", note_formulas, priority=900)
    app.connect("env-updated", make_all)
    app.connect("build-finished", write_style)
    app.add_css_file("formulas.css")
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
