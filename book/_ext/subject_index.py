"""The subject index, made from the marks in the text: ``subject-index``.

A mark is Sphinx's role ``index``, with a word of the text, or with a word and an entry in angle brackets; it stands
where the text defines a term. ``subject-index`` lists the entries of the chapters and of the pages beside them by
letter; each leads to its mark and is named by the section that the mark stands in. The names of the library have pages
of their own, and Sphinx's general index. Each term of the glossary ends with links to the marks of its name; a term
without a mark is a warning, and warnings fail the build.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterable

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

log = logging.getLogger(__name__)

GLOSSARY = "book/glossary"
LIBRARY = "book/api/"
Mark = tuple[str, str, str]  # entry, the id of its mark, the id of its section; none for a page's opening


class subject_index(nodes.General, nodes.Element):
    """The place of the index, filled when all pages are read."""


class SubjectIndex(SphinxDirective):
    """``subject-index``: the place of the index."""

    def run(self) -> list[nodes.Node]:
        """A mark that the last step replaces."""
        self.env.subject_index_page = self.env.docname
        return [subject_index()]


# What there is --------------------------------------------------------------------------------------------------------


def marks(document: nodes.document) -> list[Mark]:
    """The marks of a page, in order."""
    return [
        (entry, target, section_of(node))
        for node in document.findall(addnodes.index)
        for kind, entry, target, *_ in node["entries"]
        if kind == "single"
    ]


def section_of(node: nodes.Node) -> str:
    """The id of the section right under the page's title that holds the node; none in the page's opening."""
    around, found = node.parent, ""
    while around is not None:
        if isinstance(around, nodes.section) and isinstance(around.parent, nodes.section):
            found = str(around["ids"][0])
        around = around.parent
    return found


def note_marks(app: Sphinx, document: nodes.document) -> None:
    """Remember a page's marks, but for those of the library's pages, which are names."""
    if not app.env.docname.startswith(LIBRARY):
        noted(app.env)[app.env.docname] = marks(document)


def noted(env: BuildEnvironment) -> dict[str, list[Mark]]:
    """The marks by page."""
    if not hasattr(env, "subject_marks"):
        env.subject_marks = {}
    return env.subject_marks


def forget(app: Sphinx, env: BuildEnvironment, page: str) -> None:
    """Forget a page's marks."""
    noted(env).pop(page, None)


def merge(app: Sphinx, env: BuildEnvironment, pages: Iterable[str], other: BuildEnvironment) -> None:
    """Take over the marks of pages that another process read."""
    noted(env).update({page: noted(other)[page] for page in pages if page in noted(other)})


def write_again(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """The index and the glossary are written whenever a page was read."""
    pages = {getattr(env, "subject_index_page", None), GLOSSARY}
    return sorted(page for page in pages if page in env.found_docs)


# The list -------------------------------------------------------------------------------------------------------------


def by_entry(pages: dict[str, list[Mark]]) -> dict[str, dict[str, list[tuple[str, Mark]]]]:
    """Entries in order of the alphabet, each with its subentries ("" for none) and their places."""
    found: dict[str, dict[str, list[tuple[str, Mark]]]] = defaultdict(lambda: defaultdict(list))
    for page, of_page in sorted(pages.items()):
        for mark in of_page:
            entry, _, sub = (part.strip() for part in mark[0].partition(";"))
            found[entry][sub].append((page, mark))
    return {entry: dict(sorted(found[entry].items())) for entry in sorted(found, key=alphabetical)}


def alphabetical(entry: str) -> tuple[str, str]:
    """What an entry is sorted by: its letters, whatever their size and accents."""
    plain = unicodedata.normalize("NFKD", entry)
    return "".join(c for c in plain if not unicodedata.combining(c)).casefold(), entry


def letter(entry: str) -> str:
    """The letter under which an entry stands."""
    return alphabetical(entry)[0][0].upper()


def fill(app: Sphinx, document: nodes.document, page: str) -> None:
    """Put the list in its place, and the links under the terms of the glossary."""
    for place in list(document.findall(subject_index)):
        place.replace_self(listed(app, page))
    if page == GLOSSARY:
        entries = by_entry({each: found for each, found in noted(app.env).items() if each != GLOSSARY})
        for item in document.findall(nodes.definition_list_item):
            lead_on(app, item, entries.get(item[0].astext(), {}).get("", []))


def lead_on(app: Sphinx, item: nodes.definition_list_item, places: list[tuple[str, Mark]]) -> None:
    """End a term's last paragraph with links to where the text defines it."""
    if not places:
        log.warning("no {index} mark defines the term %r", item[0].astext(), location=item, type="subject_index")
        return
    last = list(item[-1].findall(nodes.paragraph))[-1]
    for i, link in enumerate(node for node in links(app, GLOSSARY, places) if isinstance(node, nodes.reference)):
        last += [nodes.Text(", " if i else " See "), link]
    last += nodes.Text(".")


def listed(app: Sphinx, page: str) -> list[nodes.Node]:
    """A heading and a list for each letter."""
    entries = by_entry(noted(app.env))
    made: list[nodes.Node] = []
    for initial in dict.fromkeys(map(letter, entries)):
        lines = [line(app, page, each, entries[each]) for each in entries if letter(each) == initial]
        head = nodes.rubric("", initial, classes=["index-letter"], ids=[f"letter-{initial.lower()}"])
        made += [head, nodes.bullet_list("", *lines, classes=["subject-index"])]
    return made


def line(app: Sphinx, page: str, entry: str, subs: dict[str, list[tuple[str, Mark]]]) -> nodes.list_item:
    """An entry with its places, its subentries under it."""
    item = nodes.list_item("", nodes.paragraph("", entry, *links(app, page, subs.get("", []))))
    under = [nodes.list_item("", nodes.paragraph("", sub, *links(app, page, subs[sub]))) for sub in subs if sub]
    if under:
        item += nodes.bullet_list("", *under)
    return item


def links(app: Sphinx, page: str, places: list[tuple[str, Mark]]) -> list[nodes.Node]:
    """A link to each place; the glossary stands last."""
    made: list[nodes.Node] = []
    for where, (_, target, section) in sorted(places, key=lambda place: place[0] == GLOSSARY):
        address = f"{app.builder.get_relative_uri(page, where)}#{target}"
        name = "glossary" if where == GLOSSARY else named(app.env, where, section)
        link = nodes.reference("", name, internal=True, refuri=address, reftitle=title_of(app.env, where, section))
        made += [nodes.Text(", "), link]
    return made


def named(env: BuildEnvironment, page: str, section: str) -> str:
    """A section's number, or its title where sections have no numbers."""
    number = env.toc_secnumbers.get(page, {}).get(f"#{section}" if section else "")
    return ".".join(map(str, number)) if number else title_of(env, page, section)


def title_of(env: BuildEnvironment, page: str, section: str) -> str:
    """The title of a page's section, or of the page."""
    for entry in env.tocs[page].findall(nodes.reference):
        if section and entry["anchorname"] == f"#{section}":
            return str(entry.astext())
    return str(env.titles[page].astext())


def add_style(app: Sphinx, pagename: str, templatename: str, context: dict[str, object], doctree: object) -> None:
    """Only the index has its style."""
    if doctree is not None and pagename == getattr(app.env, "subject_index_page", None):
        app.add_css_file("words.css")


def setup(app: Sphinx) -> dict[str, object]:
    """Register the directive and what fills it."""
    app.add_node(subject_index)
    app.add_directive("subject-index", SubjectIndex)
    app.connect("doctree-read", note_marks)
    app.connect("env-purge-doc", forget)
    app.connect("env-merge-info", merge)
    app.connect("env-updated", write_again)
    app.connect("doctree-resolved", fill)
    app.connect("html-page-context", add_style)
    return {"version": "1", "env_version": 1, "parallel_read_safe": True, "parallel_write_safe": True}
