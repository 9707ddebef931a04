"""The house rules of the site: what is set right while pages are read, in docstrings, and in written pages.

While pages are read: a progress bar is shown in its last state; in a table an interval or a number with its spread
stays on one line, and its minus is a minus; an image without a text alternative is a warning, and warnings fail the
build; a paragraph that opens with *Known:*, *Ours:* or *Ours.* is a credit; the library's names stay out of the index,
which is that of the text's own marks.

In docstrings: ``Source:`` is a field beside Parameters and Returns, examples stand apart, bars and asterisks stay what
they are, and a named tuple's fields stand in its docstring alone.

In written pages: what a reader hears (landmarks, the text before the side bar), what a page need not carry (icons'
collection, the search's scripts, elements around names), and what makes code fit its place.
"""

import re
from functools import cache
from pathlib import Path
from typing import Any

import explorables
import palettes
import pybtex.plugin
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms import SphinxTransform
from sphinx.util import logging
from sphinx_proof.nodes import proof_node

from geolib.explorables import embed

log = logging.getLogger(__name__)

# Pages as they are read -----------------------------------------------------------------------------------------------

FILE_NAME = re.compile(r"\S+\.(png|svg|jpe?g|gif|webp)")
PROGRESS = re.compile(r"(.*?):? +\d+%\|")
NUMBER = r"[-−+]?\d[\d.,]*"
RANGE = rf"{NUMBER} to {NUMBER}"
SPREAD = re.compile(rf"(?<![\w.])(?:{NUMBER} )?\({RANGE}\)|(?<=interval ){RANGE}|{NUMBER} ?± ?{NUMBER}|\(\d+ seeds?\)")
JOINER = "\N{WORD JOINER}"
CREDIT = ("Known:", "Ours:", "Ours.")
SHARED_IDS = {"proof", "proof-content", "exercise-content", "solution-content"}
LIBRARY, WHICH = "book/api/", "book/which-encoding"


class NamesStayOut(SphinxTransform):
    """The library's names have pages of their own, and are no entries of the index."""

    default_priority = 840  # before the entries are gathered

    def apply(self, **kwargs: Any) -> None:
        """Empty the marks of a page of the library."""
        if self.env.docname.startswith(LIBRARY):
            for mark in self.document.findall(addnodes.index):
                mark["entries"] = []


def in_one_piece(found: re.Match[str]) -> str:
    """A number and its spread, which break between number and bracket alone."""
    text = re.sub(r"(?<!\d)-(?=\d)", "−", found[0]).replace("±", f"{JOINER}±{JOINER}")
    return text.replace(" ", "\N{NO-BREAK SPACE}").replace("\N{NO-BREAK SPACE}(", " (")


def tidy(app: Sphinx, document: nodes.document) -> None:
    """Check alternatives, leave of progress bars the last state, keep intervals whole, and mark credits."""
    for image in document.findall(nodes.image):
        alternative = image.get("alt", "").strip()
        if not alternative or FILE_NAME.fullmatch(alternative):
            said = "an image has no text alternative (%s): in a notebook set the cell's metadata mystnb.image.alt"
            log.warning(said, image.get("uri"), location=image, type="house", subtype="alt")
    for block in document.findall(nodes.literal_block):
        if isinstance(block.parent, nodes.Element) and PROGRESS.match(block.astext()):
            kept: dict[str, str] = {}  # by the bar's name, in the order in which the bars began
            for line in filter(str.strip, block.astext().splitlines()):
                bar = PROGRESS.match(line)
                kept[bar.group(1) if bar else line] = line
            block.rawsource = "\n".join(kept.values())
            block[:] = [nodes.Text(block.rawsource)]
    for text in [text for entry in document.findall(nodes.entry) for text in entry.findall(nodes.Text)]:
        if (kept_whole := SPREAD.sub(in_one_piece, text)) != text:
            text.parent.replace(text, nodes.Text(kept_whole))
    for paragraph in document.findall(nodes.paragraph):
        opening = paragraph[0] if paragraph.children else None
        if isinstance(opening, nodes.emphasis) and opening.astext() in CREDIT:
            paragraph["classes"].append("credit")
            home, at = paragraph.parent, paragraph.parent.index(paragraph)
            while at and isinstance(home[at - 1], proof_node):  # beside the statement, and not below its proofs
                home[at - 1], home[at] = paragraph, home[at - 1]
                at -= 1


def tidy_statements(app: Sphinx, document: nodes.document, docname: str) -> None:
    """Drop the ids that sphinx-proof and sphinx-exercise repeat.

    A solution names its exercise by the number alone, and an exercise's title stands in no brackets: it has its own.
    """
    for node in document.findall(nodes.Element):
        ids, classes = node.get("ids", []), node.get("classes", [])
        title = node[0] if node.children and isinstance(node[0], nodes.title) else nodes.title()
        if "solution" in classes:
            for link in title.findall(nodes.reference):
                del link[1:]
        elif "exercise" in classes and title.children and title[0].astext() == " (":
            title[0], title[-1] = nodes.Text(""), nodes.Text("")
        if SHARED_IDS.intersection(ids):
            node["ids"] = [each for each in ids if each not in SHARED_IDS]


# Docstrings ---------------------------------------------------------------------------------------------------------


def tidy_docstring(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Make ``Source: RF-9.`` a field, keep |v| a length and (*cells, d) a shape, and set examples apart.

    Two blank lines before a field or an example keep the section above from swallowing it.
    """
    for i, line in enumerate(lines):
        if line.startswith("Source:"):
            end = next((j for j in range(i, len(lines)) if not lines[j].strip()), len(lines))
            text = " ".join(part.strip() for part in lines[i:end])
            lines[i:end] = ["", "", f":Source: {text.removeprefix('Source:').strip()}"]
            break
    plain = lambda text: re.sub(r"(?<![\w*])\*(?=\w+[,)])", r"\\*", text.replace("|", r"\|"))  # noqa: E731
    for i, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            lines[i] = "".join(part if part.startswith("``") else plain(part) for part in re.split(r"(``.*?``)", line))
    if examples := [i for i, line in enumerate(lines) if line.startswith(">>>")]:
        lines[examples[0] : examples[0]] = ["", ""]


def skip_aliases(app: Sphinx, what: str, name: str, obj: object, skip: bool, options: object) -> bool | None:
    """Leave a named tuple's fields to its docstring; None leaves others to autodoc."""
    return True if str(getattr(obj, "__doc__", "")).startswith("Alias for field number") else None


def link_sources_to_their_pages(app: Sphinx, env: BuildEnvironment) -> None:
    """What two pages describe, under two names: its source leads to the page that has it under its module's."""
    objects = env.get_domain("py").data["objects"]
    for entry in filter(None, getattr(env, "_viewcode_modules", {}).values()):
        _, _, used, module = entry
        used.update({name: objects[full].docname for name in used if (full := f"{module}.{name}") in objects})


# Written pages: what a reader hears -----------------------------------------------------------------------------------

SIDE_BAR = '<div id="pst-primary-sidebar" class="bd-sidebar-primary bd-sidebar">'
LANDMARK = SIDE_BAR.replace(">", ' role="complementary" aria-label="Contents and search">')
PARAMETERS = re.compile(r"<dl>\s*((?:<dd>(?:(?!</?d[dl]>).)*</dd>\s*)+)</dl>", re.DOTALL)
CORNER = re.compile(r"<th([^>]*)>(?:\s|</?p>)*</th>")
TITLE = re.compile(r'(<article class="bd-article"[^>]*>(?:(?!<h1\b).)*?)<h1>', re.DOTALL)


def heard(page: str) -> str:
    """The page whose side bar is a landmark behind its text, and which skips to its title.

    A signature's parameters are lines, an empty corner of a table is no head, and a work of the bibliography an item.
    """
    bar, text, end = page.find(SIDE_BAR), page.find('<main id="main-content"'), page.rfind("</main>") + len("</main>")
    if 0 < bar < text < end:
        page = f"{page[:bar]}{page[text:end]}\n{page[bar:text]}{page[end:]}"
    page, titled = TITLE.subn(r'\1<h1 id="page-title" tabindex="-1">', page, count=1)
    if titled:
        page = page.replace('<a href="#main-content">', '<a href="#page-title">')
    page = page.replace(SIDE_BAR, LANDMARK).replace(' role="doc-biblioentry"', ' role="listitem"')
    page = CORNER.sub(r"<td\1></td>", page)
    lines = lambda found: found[1].replace("<dd>", '<span class="sig-line">').replace("</dd>", "</span>")  # noqa: E731
    return PARAMETERS.sub(lambda found: f'<span class="sig-lines">{lines(found)}</span>', page)


# Written pages: what they need not carry ------------------------------------------------------------------------------

COLLECTION = "_static/scripts/fontawesome.js"
ICON = re.compile(r'<(i|span) class="([^"]*\bfa-[^"]*)"([^>]*)></\1>')
STYLES = {"fa-solid", "fas", "fa-regular", "far", "fa-brands", "fab"}
PICTURE = re.compile(r"<img (?![^>]*\bloading=)[^>]*>")
SOURCE = re.compile(r'\bsrc="([^":?]+)"')
CELL = re.compile(r"(<t[dh]\b[^>]*>)<p>((?:(?!</?p\b).)*)</p>(?=</t[dh]>)", re.DOTALL)
SCRIPT_OF_ICONS = re.compile(r'\s*<script defer src="[^"]*scripts/fontawesome\.js[^"]*"></script>')
SCRIPTS_OF_SEARCH = re.compile(r'\s*<script src="[^"]*(?:searchtools|language_data|searchindex)\.js[^"]*"></script>')
THEME_ASKED_LATE = 'dataset.theme = localStorage.getItem("theme") || "auto";'
THEME_KNOWN = """dataset.theme = { light: "light", dark: "dark" }[document.documentElement.dataset.mode]
      ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");"""


@cache
def drawing(element: str, source: Path) -> str:
    """An icon's element as a drawing of the theme's collection, where the solid form of a name stands last."""
    found, collection = ICON.fullmatch(element), source.read_text("utf-8")
    assert found is not None
    classes = [name for name in found[2].split() if name not in STYLES]
    for name in (each.removeprefix("fa-") for each in classes if each.startswith("fa-")):
        shapes = re.findall(rf'[{{,]"?{re.escape(name)}"?:\[(\d+),(\d+),\[[^\]]*\],"\w+","([^"]*)"\]', collection)
        if shapes:
            width, height, path = shapes[-1]
            rest = found[3].replace(' aria-hidden="true"', "")
            about = f'class="svg-inline--fa {" ".join(classes)}"{rest}'
            shape = f'<path fill="currentColor" d="{path}"></path>'
            return f'<svg {about} aria-hidden="true" viewBox="0 0 {width} {height}">{shape}</svg>'
    return element


def waiting(tag: str, folder: Path) -> str:
    """A picture's element, fetched when it comes near, with its size, so that its place is there before."""
    source = SOURCE.search(tag)
    ours = source and "_images/" in source[1] and " width=" not in tag
    known = palettes.size((folder / source[1]).resolve()) if ours else None
    sizes = f'width="{known[0]}" height="{known[1]}" ' if known else ""
    return tag.replace("<img ", f'<img loading="lazy" {sizes}', 1)


def lean(page: str, path: Path, source: Path) -> str:
    """The page without what it need not carry.

    The palette is known before the first line is drawn: the theme asks late, and then the whole page is styled anew.
    """
    page = SCRIPT_OF_ICONS.sub("", page).replace(THEME_ASKED_LATE, THEME_KNOWN)
    page = ICON.sub(lambda found: drawing(found[0], source), page)
    page = PICTURE.sub(lambda found: waiting(found[0], path.parent), page)
    if path.name != "ledger.html":  # its cells scroll by the paragraph
        page = CELL.sub(r"\1\2", page)
    return page if path.name == "search.html" else SCRIPTS_OF_SEARCH.sub("", page)


# Written pages: code that fits its place ------------------------------------------------------------------------------

LISTING = re.compile(r'(<div class="highlight"><pre>)(?:<span></span>)?(.*?)(</pre>)', re.DOTALL)
NAME = re.compile(r'(<code class="[^"]*\bliteral\b[^"]*">)(.*?)(</code>)', re.DOTALL)
PLAIN = re.compile(r'<span class="(?:n|nn|p|o|w|m[fi])">([^<]*)</span>')  # names, signs, numbers
PREFIX = re.compile(r'<span class="sa">(\w+)</span>(<span class="s[12]">)')
WORD = re.compile(r'<span class="pre">([^<]*)</span>')
OPTION = re.compile(r"(?<=[\s>])--[a-z][a-z-]*")
JOINT = re.compile(r"(?<=[^\W\d_][._/])(?=\w)(?![^<]*>)")  # between tags


def in_lines(found: re.Match[str]) -> str:
    """A listing with an element around each line, which knows its indentation: a phone breaks it and sets it in.

    Pygments closes its spans at the end of a line, so a line is a piece of well-formed text.
    """
    made = ""
    for text in PREFIX.sub(r"\2\1", PLAIN.sub(r"\1", found[2])).splitlines(keepends=True):
        bare = re.sub(r"<[^>]+>", "", text)
        indent = len(bare) - len(bare.lstrip(" "))
        style = f' style="--in:{indent}"' if indent else ""
        made += f'<span class="line"{style}>{with_options(text)}</span>' if bare.strip() else text
    return found[1] + made + found[3]


def with_options(code: str) -> str:
    """The code with an element around each option of a command, which stays in one piece."""
    return code if 'class="option"' in code else OPTION.sub(r'<span class="option">\g<0></span>', code)


def fitting(page: str) -> str:
    """The page with the lines of its listings, and with places in long names where a line may end."""
    joints = lambda found: found[1] + JOINT.sub("<wbr>", with_options(WORD.sub(r"\1", found[2]))) + found[3]  # noqa: E731
    page = NAME.sub(joints, page)
    return page if '<span class="line"' in page else LISTING.sub(in_lines, page)


# The whole site -------------------------------------------------------------------------------------------------------


def add_scripts(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: object) -> None:
    """Say that scripts run; the landing page, no notebook, has an explorable, the search page what finds a text."""
    known = '<script>document.documentElement.dataset.scripts = "on";</script>'
    context["metatags"] = f"{context.get('metatags', '')}\n    {known}"
    if "<mjx-container" in context.get("body", ""):  # formulas are laid out once, and not anew as each font comes
        for font in ("Zero", "Main-Regular", "Math-Italic", "Size1-Regular", "Size2-Regular"):
            source = context["pathto"](f"_static/fonts/MathJax_{font}.woff", 1)
            context["metatags"] += f'\n    <link rel="preload" as="font" type="font/woff" href="{source}" crossorigin>'
    own = {app.config.root_doc: "widget-host.js", "search": "search-text.js", WHICH: "which.js"}
    if pagename in own:
        app.add_js_file(own[pagename], defer="defer")


def rewrite(app: Sphinx, problem: Exception | None) -> None:
    """Rewrite the site's pages; one that is left from an earlier build stays as it is."""
    site = Path(app.outdir)
    if problem or app.builder.format != "html":
        return
    plots = palettes.paint(site / "_images")
    pages = {path: path.read_text("utf-8") for path in site.rglob("*.html")}
    better = explorables.lightened(pages, site / "_static" / "explorables")
    embed.write(site / "explorables")
    for path, page in better.items():
        page = palettes.choose(page, site / "_images", plots)
        page = fitting(heard(lean(page, path, site / COLLECTION)))
        if page != pages[path]:
            path.write_text(page, "utf-8")


def setup(app: Sphinx) -> dict[str, object]:
    """Register everything above."""
    pybtex.plugin._load_entry_point = cache(pybtex.plugin._load_entry_point)  # else looked up at every citation
    # Pages are written side by side, and read one after another: sphinx-proof cannot put together what two have read.
    app.connect("config-inited", lambda app, _: setattr(app, "is_parallel_allowed", lambda kind: kind == "write"))
    app.add_transform(NamesStayOut)
    app.connect("doctree-read", tidy)
    app.connect("doctree-resolved", tidy_statements)
    app.connect("env-updated", link_sources_to_their_pages)
    app.connect("autodoc-skip-member", skip_aliases)
    app.connect("autodoc-process-docstring", tidy_docstring, priority=100)
    app.connect("html-page-context", add_scripts)
    app.connect("build-finished", rewrite)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
