"""The house rules of the site, as a Sphinx extension.

- Chapters are numbered by their file names (``chapters/03_rotations`` is chapter 3), also while others are unwritten.
- A progress bar in a chapter's output is shown in its last state.
- In a table an interval or a number with its spread stays on one line, and its minus is a minus.
- An image without a text alternative is a warning, and warnings fail the build.
- The ids that statements and exercises repeat are dropped; proofs get a class.
- A paragraph that opens with *Known:*, *Ours:* or *Ours.* is a credit: one small line that says who found a statement.
- A docstring's ``Source:`` line becomes a field beside Parameters and Returns; bars and asterisks of formulas stay what
  they are, and examples stand apart. A named tuple's fields stand in its docstring alone.
- ``package-versions`` lists the versions that this build ran with.
"""

from __future__ import annotations

import platform
import re
from importlib import metadata

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx_external_toc.collectors import TocTreeCollectorWithStyles as Collector

log = logging.getLogger(__name__)

# Chapter numbers ----------------------------------------------------------------------------------------------------


def chapter_number(docname: str) -> int | None:
    """3 for chapters/03_rotations, None for a page that is no chapter."""
    found = re.match(r"chapters/(\d+)_", docname)
    return int(found.group(1)) if found else None


def renumber(env: BuildEnvironment, docname: str, chapter: int) -> None:
    """Put the chapter's number in front of all section numbers of a page."""
    numbers = env.toc_secnumbers[docname]
    for anchor, number in numbers.items():
        if number:
            numbers[anchor] = (chapter, *number[1:])
    for node in [*env.tocs[docname].findall(nodes.reference), env.titles[docname]]:
        if node.get("secnumber"):
            node["secnumber"] = [chapter, *node["secnumber"][1:]]


def number_by_file_name(self: Collector, env: BuildEnvironment) -> list[str]:
    """Sphinx's section numbers with the chapters' own numbers in them; returns the pages whose numbers changed."""
    before = env.toc_secnumbers
    count_from_one(self, env)
    for docname in env.toc_secnumbers:
        chapter = chapter_number(docname)
        if chapter is not None:
            renumber(env, docname, chapter)
    return [docname for docname, numbers in env.toc_secnumbers.items() if numbers != before.get(docname)]


count_from_one = Collector.assign_section_numbers

# Text alternatives --------------------------------------------------------------------------------------------------


def check_alternatives(app: Sphinx, document: nodes.document) -> None:
    """Warn of each image whose alternative is missing or is a file name."""
    for image in document.findall(nodes.image):
        alternative = image.get("alt", "").strip()
        if not alternative or re.fullmatch(r"\S+\.(png|svg|jpe?g|gif|webp)", alternative):
            log.warning(
                "an image has no text alternative (%s): in a notebook set the cell's metadata mystnb.image.alt",
                image.get("uri"),
                location=image,
                type="house",
                subtype="alt",
            )


# Outputs ------------------------------------------------------------------------------------------------------------

PROGRESS = re.compile(r"(.*?):? +\d+%\|")


def collapse_progress(app: Sphinx, document: nodes.document) -> None:
    """Leave of each progress bar its last state: on a page there is no carriage return."""
    for block in document.findall(nodes.literal_block):
        if isinstance(block.parent, nodes.Element) and PROGRESS.match(block.astext()):
            kept: dict[str, str] = {}  # by the bar's name, in the order in which the bars began
            for line in filter(str.strip, block.astext().splitlines()):
                bar = PROGRESS.match(line)
                kept[bar.group(1) if bar else line] = line
            block.rawsource = "\n".join(kept.values())
            block[:] = [nodes.Text(block.rawsource)]


NUMBER = r"[-−+]?\d[\d.,]*"
RANGE = rf"{NUMBER} to {NUMBER}"
SPREAD = re.compile(rf"(?<![\w.])(?:{NUMBER} )?\({RANGE}\)|(?<=interval ){RANGE}|{NUMBER} ?± ?{NUMBER}|\(\d+ seeds?\)")
JOINER = "\N{WORD JOINER}"


def in_one_piece(found: re.Match[str]) -> str:
    """A number and its spread, which break between number and bracket alone."""
    text = re.sub(r"(?<!\d)-(?=\d)", "−", found[0]).replace("±", f"{JOINER}±{JOINER}")
    return text.replace(" ", "\N{NO-BREAK SPACE}").replace("\N{NO-BREAK SPACE}(", " (")


def keep_numbers_together(app: Sphinx, document: nodes.document) -> None:
    """Let no cell of a table break within an interval or before a spread."""
    for entry in document.findall(nodes.entry):
        for text in list(entry.findall(nodes.Text)):
            kept = SPREAD.sub(in_one_piece, text)
            if kept != text:
                text.parent.replace(text, nodes.Text(kept))


# Docstrings ---------------------------------------------------------------------------------------------------------


def source_as_field(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Turn the line ``Source: RF-9.`` into a field, two blank lines away so that no section swallows it."""
    for i, line in enumerate(lines):
        if line.startswith("Source:"):
            end = next((j for j in range(i, len(lines)) if not lines[j].strip()), len(lines))
            text = " ".join(part.strip() for part in lines[i:end])
            lines[i:end] = ["", "", f":Source: {text.removeprefix('Source:').strip()}"]
            return


def bars_as_text(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Keep |v| a length and (*cells, d) a shape: outside code, reStructuredText would read them as its own marks."""
    for i, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            pieces = re.split(r"(``.*?``)", line)
            lines[i] = "".join(piece if piece.startswith("``") else plain(piece) for piece in pieces)


def plain(text: str) -> str:
    """The text with its bars, and its asterisks before a name in a shape, escaped."""
    return re.sub(r"(?<![\w*])\*(?=\w+[,)])", r"\\*", text.replace("|", r"\|"))


def examples_apart(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Two blank lines before the first example, so that no section swallows it."""
    first = next((i for i, line in enumerate(lines) if line.startswith(">>>")), None)
    if first is not None:
        lines[first:first] = ["", ""]


def skip_aliases(app: Sphinx, what: str, name: str, obj: object, skip: bool, options: object) -> bool | None:
    """Leave a named tuple's fields to its docstring; None leaves others to autodoc."""
    return True if str(getattr(obj, "__doc__", "")).startswith("Alias for field number") else None


def link_sources_to_their_pages(app: Sphinx, env: BuildEnvironment) -> None:
    """What two pages describe, under two names: its source leads to the page that has it under its module's."""
    objects = env.get_domain("py").data["objects"]
    for entry in filter(None, getattr(env, "_viewcode_modules", {}).values()):
        _, _, used, module = entry
        used.update({name: objects[full].docname for name in used if (full := f"{module}.{name}") in objects})


# Statements and exercises --------------------------------------------------------------------------------------------

SHARED_IDS = {"proof", "proof-content", "exercise-content", "solution-content"}


def tidy_statements(app: Sphinx, document: nodes.document, docname: str) -> None:
    """Drop the ids that sphinx-proof and sphinx-exercise repeat; mark proofs, which have no class of their own.

    A solution names its exercise by the number alone, and an exercise's title stands in no brackets: it has its own.
    """
    for node in document.findall(nodes.Element):
        ids = node.get("ids", [])
        title = node[0] if node.children and isinstance(node[0], nodes.title) else nodes.title()
        if "solution" in node.get("classes", []):
            for link in title.findall(nodes.reference):
                del link[1:]
        elif "exercise" in node.get("classes", []) and title.children and title[0].astext() == " (":
            title[0], title[-1] = nodes.Text(""), nodes.Text("")
        if isinstance(node, nodes.admonition) and ids == ["proof"]:
            node["classes"].append("proof-body")
            opening = node[0][0] if node.children and node[0].children else None
            if isinstance(opening, nodes.Text) and opening.startswith("Proof. "):
                node[0][0:1] = [nodes.emphasis(text="Proof."), nodes.Text(opening[len("Proof.") :])]
        if SHARED_IDS.intersection(ids):
            node["ids"] = [each for each in ids if each not in SHARED_IDS]


# Credits -------------------------------------------------------------------------------------------------------------

CREDIT = ("Known:", "Ours:", "Ours.")


def mark_credits(app: Sphinx, document: nodes.document) -> None:
    """Give the class ``credit`` to each paragraph that opens with one of ``CREDIT``."""
    for paragraph in document.findall(nodes.paragraph):
        opening = paragraph[0] if paragraph.children else None
        if isinstance(opening, nodes.emphasis) and opening.astext() in CREDIT:
            paragraph["classes"].append("credit")


# How this was built -------------------------------------------------------------------------------------------------

SHOWN = (
    *("torch", "numpy", "scipy", "matplotlib", "scikit-learn", "anywidget"),
    *("jupyter-book", "Sphinx", "myst-nb", "sphinx-book-theme"),
    *("sphinx-proof", "sphinx-exercise", "sphinxcontrib-bibtex", "sphinx-mathjax-offline", "mini-racer"),
)


class PackageVersions(SphinxDirective):
    """A list of the packages that this build ran with, with Python and the platform."""

    def run(self) -> list[nodes.Node]:
        """The rows, read from the running environment."""
        rows = [("Python", platform.python_version()), ("platform", f"{platform.system()} {platform.machine()}")]
        rows += [(name, metadata.version(name)) for name in SHOWN]
        return [two_column_table(("package", "version"), rows)]


def two_column_table(head: tuple[str, str], rows: list[tuple[str, str]]) -> nodes.table:
    """A plain table of strings."""

    def row(cells: tuple[str, str]) -> nodes.row:
        return nodes.row("", *(nodes.entry("", nodes.paragraph(text=cell)) for cell in cells))

    group = nodes.tgroup("", *(nodes.colspec(colwidth=50) for _ in head), cols=2)
    group += nodes.thead("", row(head))
    group += nodes.tbody("", *(row(cells) for cells in rows))
    return nodes.table("", group, classes=["colwidths-auto"])


def setup(app: Sphinx) -> dict[str, object]:
    """Register everything above."""
    Collector.assign_section_numbers = number_by_file_name
    app.connect("doctree-read", check_alternatives)
    app.connect("doctree-read", collapse_progress)
    app.connect("doctree-read", keep_numbers_together)
    app.connect("doctree-read", mark_credits)
    app.connect("doctree-resolved", tidy_statements)
    app.connect("env-updated", link_sources_to_their_pages)
    app.connect("autodoc-skip-member", skip_aliases)
    app.connect("autodoc-process-docstring", source_as_field, priority=100)
    app.connect("autodoc-process-docstring", bars_as_text, priority=110)
    app.connect("autodoc-process-docstring", examples_apart, priority=120)
    app.add_directive("package-versions", PackageVersions)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
