"""How a page looks where others link to it: its description, and a picture of its own for each chapter.

The address of a picture must be whole: that of ``html_baseurl``, else of the repository's pages on GitHub. A chapter's
card shows its title and its first explorable; other pages share one picture.
"""

from __future__ import annotations

import html
import re
import shutil
import textwrap
from pathlib import Path
from urllib.parse import urlsplit

from docutils import nodes
from house import chapter_number
from sphinx.application import Sphinx
from sphinx.config import Config

LONGEST = 300  # characters of a description
SIZE = (1200, 630)
PAPER, INK, TONE = "#fffefb", "#16191f", "#1f4e79"


def base(config: Config) -> str:
    """The site's address, with a slash at its end; empty where it cannot be known."""
    if config.html_baseurl:
        return config.html_baseurl.rstrip("/") + "/"
    repository = urlsplit(config.html_theme_options.get("repository_url", ""))
    owner, _, name = repository.path.strip("/").partition("/")
    return f"https://{owner}.github.io/{name}/" if repository.netloc == "github.com" and name else ""


def described(text: str) -> str:
    """The first sentences of a text, as many whole ones as fit, one at least."""
    sentences = re.split(r"(?<=[.!?])\s+(?=[A-Z“])", " ".join(text.split()))
    sentences = [each for each in sentences if not re.search(r"[\\^_{}]", each)] or sentences  # no formulas
    said = sentences[0]
    for sentence in sentences[1:]:
        if len(said) + len(sentence) >= LONGEST:
            break
        said += f" {sentence}"
    return said if re.search(r"[.!?]$", said) else f"{said.rstrip(' :;,')}."


def describe(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, object], doctree: nodes.document
) -> None:
    """The page's description and picture, for previews of links to it."""
    if doctree is None:
        return
    openings = (each for each in doctree.findall(nodes.paragraph) if "reading" not in each["classes"])
    opening = next((each.astext() for each in openings if len(each.astext()) > 60), "")
    text = html.escape(described(opening), quote=True)
    title = html.escape(re.sub("<[^>]+>", "", str(context["title"])), quote=True)
    picture = card(app, pagename, doctree) or "_static/preview.png"
    address = base(app.config)
    where = f'\n    <meta property="og:url" content="{address}{pagename}.html" />' if address else ""
    context["metatags"] = f"""{context.get("metatags", "")}
    <script>document.documentElement.dataset.scripts = "on";</script>
    <meta name="description" content="{text}" />
    <meta property="og:title" content="{title}" />
    <meta property="og:description" content="{text}" />
    <meta property="og:type" content="article" />{where}
    <meta property="og:image" content="{address or context["content_root"]}{picture}" />
    <meta name="twitter:card" content="summary_large_image" />"""


def card(app: Sphinx, pagename: str, doctree: nodes.document) -> str | None:
    """A chapter's card, drawn where it is not there yet; its path in the site."""
    number = chapter_number(pagename)
    if number is None:
        return None
    name = f"_static/cards/{Path(pagename).name}.png"
    images = [image for image in doctree.findall(nodes.image) if "explorable-still" in image["classes"]]
    still = Path(app.srcdir) / images[0]["uri"] if images else None
    path = Path(app.outdir) / name
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        draw(path, f"{number}. {app.env.titles[pagename].astext()}", app.config.html_title, still)
    return name


def draw(path: Path, title: str, book: str, still: Path | None) -> None:
    """A chapter's title beside its first explorable."""
    from matplotlib import font_manager
    from PIL import Image, ImageDraw, ImageFont

    def font(family: str, size: int) -> ImageFont.FreeTypeFont:
        return ImageFont.truetype(font_manager.findfont(family), size)

    sheet = Image.new("RGB", SIZE, PAPER)
    pen = ImageDraw.Draw(sheet)
    pen.rectangle((0, 0, 14, SIZE[1]), fill=TONE)
    shown = still is not None and still.is_file()
    lines = "\n".join(textwrap.wrap(title, 17 if shown else 30))
    pen.multiline_text((70, 90), lines, fill=INK, font=font("DejaVu Serif", 58), spacing=18)
    pen.text((70, SIZE[1] - 90), book, fill=TONE, font=font("DejaVu Sans", 26))
    if shown and still:
        with Image.open(still) as picture:
            picture = picture.convert("RGB")
            picture.thumbnail((520, 530))
            sheet.paste(picture, (SIZE[0] - picture.width - 40, (SIZE[1] - picture.height) // 2))
    sheet.quantize(128).save(path, optimize=True)


def copy_pictures(app: Sphinx, problem: Exception | None) -> None:
    """The shared picture, and the icon where browsers ask for it unasked."""
    if problem or app.builder.format != "html":
        return
    book = Path(app.srcdir) / "book"
    for source, target in (
        (book / "images" / "maps.png", "_static/preview.png"),
        (book / "_static" / "favicon.ico", "favicon.ico"),
    ):
        if source.is_file():
            shutil.copy(source, Path(app.outdir) / target)


def setup(app: Sphinx) -> dict[str, object]:
    """Register the description and the pictures."""
    app.connect("html-page-context", describe)
    app.connect("build-finished", copy_pictures)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
