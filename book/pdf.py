"""The whole book as one file: ``python book/pdf.py`` prints _build/html to the-geometry-of-attention.pdf in it.

The articles stand one after another in the order of the table of contents, in one page that a headless Chromium prints:
$CHROMIUM, or one on the PATH. Explorables are represented by their stills; solutions are open and stand at the end,
chapter by chapter; links lead within the file. Where the file is built, the landing page links it.
"""

from __future__ import annotations

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
PATIENCE = 1800  # seconds
LINK = f'<p class="whole-book"><a href="../{NAME}">The whole book as one file to print</a> (PDF).</p>'


def browser() -> str:
    """The browser to print with."""
    for name in (os.environ.get("CHROMIUM"), *BROWSERS):
        if name and (found := shutil.which(name)):
            return found
    sys.exit("make pdf needs a Chromium or Chrome. Install one (Debian: apt install chromium) or name it in $CHROMIUM.")


def pages(contents: dict) -> list[str]:
    """The pages of the table of contents, in order."""
    parts = contents.get("parts", [contents])
    return [contents["root"], *(chapter["file"] for part in parts for chapter in part["chapters"])]


def slug(page: str) -> str:
    """A page's name inside the file."""
    return re.sub(r"\W+", "-", page.removesuffix(".html"))


def article(site: Path, page: str, known: set[str]) -> Tag:
    """A page's text, with ids and links made those of the one file, and pictures found from the site's root."""
    soup = BeautifulSoup((site / f"{page}.html").read_text("utf-8"), "html.parser")
    text = soup.select_one("article.bd-article")
    assert text is not None, f"{page} has no text"
    for extra in text.select("script, button, .headerlink, .whole-book"):
        extra.decompose()
    for source in text.select("picture > source"):
        source.decompose()
    for node in text.select("[id]"):
        node["id"] = f"{slug(page)}--{node['id']}"
    for image in text.select("img"):
        image["src"] = urljoin(f"{page}.html", str(image["src"]))
        image["loading"] = "eager"
    for link in text.select("a[href]"):
        address, anchor = urldefrag(urljoin(f"{page}.html", str(link["href"])))
        if address.removesuffix(".html") in known:
            link["href"] = f"#{slug(address)}{f'--{anchor}' if anchor else ''}"
    text["id"] = slug(page)
    return text


def solutions(articles: list[Tag]) -> str:
    """The solutions, taken out of the articles, under their chapters' titles; nothing where there is none."""
    parts = []
    for text in articles:
        taken = [block.extract() for block in text.select(".admonition.solution")]
        title = text.select_one("h1")
        if taken and title:
            parts.append(f"<h2>{title.decode_contents()}</h2>" + "".join(map(str, taken)))
    return f'<article class="bd-article"><h1>Solutions</h1>{"".join(parts)}</article>' if parts else ""


def styles(site: Path, names: list[str]) -> list[str]:
    """The style sheets of the pages, each once, in their order."""
    found: dict[str, None] = {}
    for name in names:
        head = (site / f"{name}.html").read_text("utf-8").partition("</head>")[0]
        for link in BeautifulSoup(head, "html.parser").select("link[rel=stylesheet]"):
            found[urljoin(f"{name}.html", str(link["href"]))] = None
    return list(found)


def one_page(site: Path, names: list[str]) -> str:
    """The page that is printed."""
    links = "\n".join(f'<link rel="stylesheet" href="{sheet}">' for sheet in styles(site, names))
    articles = [article(site, name, set(names)) for name in names]
    end = solutions(articles)
    text = "\n".join([*map(str, articles), end])
    return f"""<!DOCTYPE html><html lang="en" data-theme="light"><head><meta charset="utf-8">
<title>The Geometry of Attention</title>{links}
<style>@page {{ size: A4; margin: 18mm 20mm; }} article {{ break-before: page; }} body {{ background: #fff; }}</style>
</head>
<body><div class="bd-content">{text}</div></body></html>"""


def link_from_landing_page(site: Path, landing: str) -> None:
    """Put the link under the landing page's title, once."""
    path = site / f"{landing}.html"
    page = path.read_text("utf-8")
    if "whole-book" not in page:
        path.write_text(page.replace("</h1>", f"</h1>\n{LINK}", 1), "utf-8")


def main(arguments: list[str]) -> int:
    """Print the site; 1 where it is not built."""
    root = Path(arguments[0]).resolve() if arguments else REPOSITORY
    site = root / "_build" / "html"
    names = pages(yaml.safe_load((root / "_toc.yml").read_text("utf-8")))
    if not (site / f"{names[0]}.html").is_file():
        print("There is no site yet: run make book first.", file=sys.stderr)
        return 1
    whole = site / "whole-book.html"
    whole.write_text(one_page(site, names), "utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer", "--virtual-time-budget=60000"]
    made = site / NAME
    made.unlink(missing_ok=True)
    command = [browser(), *options, f"--print-to-pdf={made}", whole.as_uri()]
    try:
        subprocess.run(command, check=False, capture_output=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        print(f"The browser has not ended after {PATIENCE // 60} minutes: is the machine busy?", file=sys.stderr)
        return 1
    finally:
        whole.unlink()
    if not made.is_file():
        print("The browser printed nothing.", file=sys.stderr)
        return 1
    link_from_landing_page(site, names[0])
    print(f"The book is one file: {made} ({made.stat().st_size / 1e6:.1f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
