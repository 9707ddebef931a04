"""The whole book as one file: ``python book/pdf.py`` prints _build/html to the-geometry-of-attention.pdf in it.

The articles stand one after another in the order of the table of contents, in one page that a headless Chromium prints:
$CHROMIUM, or one on the PATH. Explorables are represented by their stills; solutions are open and stand at the end,
chapter by chapter; links lead within the file. Where the file is built, the landing page links it.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import urldefrag, urljoin

import yaml
from bs4 import BeautifulSoup, Tag

REPOSITORY = Path(__file__).resolve().parent.parent
NAME = "the-geometry-of-attention.pdf"
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer", "--virtual-time-budget=60000"]
LINK = f'<p class="whole-book"><a href="../{NAME}">The whole book as one file to print</a> (PDF).</p>'
PAGE = """<!DOCTYPE html><html lang="en" data-theme="light"><head><meta charset="utf-8">
<title>The Geometry of Attention</title>{links}
<style>@page {{ size: A4; margin: 18mm 20mm; }} article {{ break-before: page; }} body {{ background: #fff; }}</style>
</head>
<body><div class="bd-content">{text}</div></body></html>"""


def slug(page: str) -> str:
    """A page's name inside the file."""
    return re.sub(r"\W+", "-", page.removesuffix(".html"))


def article(soup: BeautifulSoup, page: str, known: set[str]) -> Tag:
    """A page's text, with ids and links made those of the one file, and pictures found from the site's root."""
    text = soup.select_one("article.bd-article")
    assert text is not None, f"{page} has no text"
    for extra in text.select("script, button, .headerlink, .whole-book, picture > source"):
        extra.decompose()
    for node in text.select("[id]"):
        node["id"] = f"{slug(page)}--{node['id']}"
    for image in text.select("img"):
        image["src"], image["loading"] = urljoin(f"{page}.html", str(image["src"])), "eager"
    for link in text.select("a[href]"):
        address, anchor = urldefrag(urljoin(f"{page}.html", str(link["href"])))
        if address.removesuffix(".html") in known:
            link["href"] = f"#{slug(address)}{f'--{anchor}' if anchor else ''}"
    text["id"] = slug(page)
    return text


def one_page(site: Path, names: list[str]) -> str:
    """The page that is printed, with the style sheets of all pages, each once, and the solutions at its end."""
    soups = {name: BeautifulSoup((site / f"{name}.html").read_text("utf-8"), "html.parser") for name in names}
    sheets = dict.fromkeys(
        urljoin(f"{name}.html", str(link["href"]))
        for name, soup in soups.items()
        for link in soup.select("head link[rel=stylesheet]")
    )
    articles, solved = [article(soup, name, set(names)) for name, soup in soups.items()], ""
    for text in articles:
        taken, title = [block.extract() for block in text.select(".admonition.solution")], text.select_one("h1")
        if taken and title:
            solved += f"<h2>{title.decode_contents()}</h2>" + "".join(map(str, taken))
    end = f'<article class="bd-article"><h1>Solutions</h1>{solved}</article>' if solved else ""
    links = "\n".join(f'<link rel="stylesheet" href="{sheet}">' for sheet in sheets)
    return PAGE.format(links=links, text="\n".join([*map(str, articles), end]))


def main() -> int:
    """Print the site; a line that says what is missing where it is not built, or nothing was printed."""
    site = REPOSITORY / "_build" / "html"
    contents = yaml.safe_load((REPOSITORY / "_toc.yml").read_text("utf-8"))
    files = [chapter["file"] for part in contents["parts"] for chapter in part["chapters"]]
    names = [contents["root"], *(name for name in files if name != "genindex")]
    browsers = [found for name in (os.environ.get("CHROMIUM"), *BROWSERS) if name and (found := shutil.which(name))]
    if not browsers:
        sys.exit("make pdf needs a Chromium: install one (Debian: apt install chromium) or name it in $CHROMIUM.")
    landing, whole, made = site / f"{names[0]}.html", site / "whole-book.html", site / NAME
    if not landing.is_file():
        sys.exit("There is no site yet: run make book first.")
    whole.write_text(one_page(site, names), "utf-8")
    made.unlink(missing_ok=True)
    command = [browsers[0], *OPTIONS, f"--print-to-pdf={made}", whole.as_uri()]
    try:
        subprocess.run(command, check=False, capture_output=True, timeout=1800)
    finally:
        whole.unlink()
    if not made.is_file():
        sys.exit("The browser printed nothing.")
    page = landing.read_text("utf-8")
    if "whole-book" not in page:
        landing.write_text(page.replace("</h1>", f"</h1>\n{LINK}", 1), "utf-8")
    print(f"The book is one file: {made} ({made.stat().st_size / 1e6:.1f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
