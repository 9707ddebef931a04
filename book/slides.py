"""Slides for teachers: ``python book/slides.py`` makes one deck a chapter from the built site, into _build/html/slides.

Nothing is written for slides alone. A deck takes from its chapter's page the title and the opening, the sentences to
take along, the numbered statements without their proofs, and the figures; an explorable stands as its still. Each slide
names the section that it comes from and leads there. A deck is one file: style, fonts and pictures are in it, and it
asks no host for anything. Arrow keys, space, a click or a swipe turn the slides; printed, each slide is a page.
"""

from __future__ import annotations

import base64
import mimetypes
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urljoin

import yaml
from bs4 import BeautifulSoup, Tag

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent
FOLDER = "slides"
LEFT_OUT = "script, button, .headerlink, style, .explorable, picture > source"
STATEMENT = re.compile(r"^(theorem|proposition|lemma|corollary|definition)$")
FONT = re.compile(r'url\(["\']?([^)"\']+)["\']?\)')

DECK = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}: slides</title>
<style>{style}</style></head>
<body><main>
{slides}
</main><p class="count" aria-live="polite"></p><script>{script}</script></body></html>
"""
SLIDE = '<section class="slide {kind}" aria-label="{label}"><div class="fit">{body}</div>{foot}</section>'


class Slide(NamedTuple):
    """What a slide shows, its kind, and the section of the page that it comes from: its title and its id."""

    kind: str
    body: str
    section: str
    anchor: str


# What a chapter has ---------------------------------------------------------------------------------------------------


def title_of(article: Tag) -> Tag:
    """A chapter's title."""
    title = article.select_one("h1")
    assert title is not None, "a chapter has a title"
    return title


def slides_of(article: Tag) -> Iterator[Slide]:
    """The slides of a chapter, in the order of its page."""
    title = title_of(article)
    opening = title.find_next_sibling(lambda tag: tag.name == "p" and not tag.get("class"))
    yield Slide("title", f"<h1>{title.decode_contents()}</h1>{opening or ''}", "", "")
    for part in article.select("div.admonition.takeaways, div.proof, figure, .cell_output img"):
        if part.find_parent(class_=["solution", "exercise", "dropdown"]) or part.find_parent("figure"):
            continue
        section = part.find_parent("section", id=True)
        heading = section.find(re.compile(r"^h[1-4]$")) if section else None
        named = heading.get_text().strip() if heading and heading.name != "h1" else ""
        if made := slide_of(part):
            yield Slide(*made, named, str(section["id"]) if named and section else "")


def slide_of(part: Tag) -> tuple[str, str] | None:
    """A part's kind and what its slide shows; None for what is no slide."""
    classes = set(part.get_attribute_list("class"))
    if "takeaways" in classes:
        return "takeaways", str(part)
    if part.name == "figure":
        return "figure", str(part)
    if part.name == "img":
        return "figure", f"<figure>{part}</figure>"
    return ("statement", str(part)) if any(STATEMENT.match(each) for each in classes) else None


# One file -------------------------------------------------------------------------------------------------------------


def data(path: Path) -> str:
    """A file as an address that holds it."""
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"


def formula_style(site: Path) -> str:
    """The style of formulas, with its fonts in it."""
    sheet = site / "_static" / "formulas.css"
    text = sheet.read_text("utf-8")
    return FONT.sub(lambda found: f'url("{data(sheet.parent / found[1])}")', text)


def alone(article: Tag, site: Path, page: str) -> None:
    """Make the parts of a page stand alone: pictures inside, links as words, no id twice."""
    for extra in article.select(LEFT_OUT):
        extra.decompose()
    for dark in article.select("img.only-dark, .only-dark"):
        dark.decompose()
    for image in article.select("img"):
        source = site / unquote(urljoin(f"{page}.html", str(image["src"])))
        if source.is_file():
            image["src"] = data(source)
        for name in ("loading", "width", "height", "style", "srcset"):
            del image[name]
    for link in article.select("a"):
        link.unwrap()
    for fold in article.select("details"):
        fold["open"] = ""
    for node in article.select("[id]"):
        if node.name != "section":
            del node["id"]


def deck(site: Path, page: str, style: str) -> str:
    """A chapter's deck."""
    text = (site / f"{page}.html").read_text("utf-8")
    text = text[text.index('<article class="bd-article"') : text.rindex("</article>") + len("</article>")]
    article = BeautifulSoup(text, "html.parser").article
    assert article is not None, f"{page} has no text"
    alone(article, site, page)
    made = list(slides_of(article))
    title = " ".join(title_of(article).get_text().split())
    shown = []
    for number, slide in enumerate(made, 1):
        address = f"../{page}.html" + (f"#{slide.anchor}" if slide.anchor else "")
        foot = f'<p class="foot"><a href="{address}">{slide.section or title}</a></p>'
        shown.append(SLIDE.format(kind=slide.kind, label=f"Slide {number}", body=slide.body, foot=foot))
    script = (HERE / "_static" / "slides.js").read_text("utf-8")
    return DECK.format(title=title, style=style, slides="\n".join(shown), script=script)


def main(arguments: list[str]) -> int:
    """Make the decks; 1 where there is no site."""
    root = Path(arguments[0]).resolve() if arguments else REPOSITORY
    site = root / "_build" / "html"
    contents = yaml.safe_load((root / "_toc.yml").read_text("utf-8"))
    files = [each["file"] for part in contents.get("parts", [contents]) for each in part.get("chapters", [])]
    pages = [page for page in files if page.startswith("chapters/")]
    if not all((site / f"{page}.html").is_file() for page in pages):
        print("There is no site yet: run make book first.", file=sys.stderr)
        return 1
    if not pages:
        return 0
    make(site, pages)
    print(f"{len(pages)} decks of slides are in {site / FOLDER}")
    return 0


def make(site: Path, pages: list[str]) -> None:
    """Write the decks that are older than what they are made from."""
    (site / FOLDER).mkdir(exist_ok=True)
    sheets = [site / "_static" / "formulas.css", HERE / "_static" / "slides.css", HERE / "_static" / "slides.js"]
    changed = max(path.stat().st_mtime for path in [*sheets, Path(__file__)])
    style = formula_style(site) + sheets[1].read_text("utf-8")
    for page in pages:
        source, made = site / f"{page}.html", site / FOLDER / f"{Path(page).name}.html"
        if not made.is_file() or made.stat().st_mtime < max(changed, source.stat().st_mtime):
            made.write_text(deck(site, page, style), "utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
