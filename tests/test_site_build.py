"""The build cannot lie: what is broken fails it, twice; what is sound builds, side by side and once."""

import os
import shutil
import subprocess
import sys

import build
import nbformat
import pytest
from explorable_kit import REPOSITORY

TINY_LEDGER = """\
- key: RF
  title: A tiny ledger
  rows:
    - {id: RF-10, statement: A statement., chapter: 1}
"""
TINY_ROOT = """\
# A tiny book

A statement: RF-10.

```{ledger-table} RF
```
"""
PLOT = "import matplotlib.pyplot as plt\nplt.plot([0, 1])\nplt.show()"


def tiny_book(folder, text="All is well: RF-10.", code="assert 1 + 1 == 2"):
    """A book of two pages with this book's configuration and extensions."""
    book = folder / "book"
    book.mkdir()
    for name in ("_ext", "_static"):
        shutil.copytree(REPOSITORY / "book" / name, book / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPOSITORY / "_config.yml", folder)
    shutil.copy(REPOSITORY / "book" / "references.bib", book)
    (book / "ledger.yml").write_text(TINY_LEDGER)
    (book / "index.md").write_text(TINY_ROOT)
    (folder / "_toc.yml").write_text("format: jb-book\nroot: book/index\nchapters:\n  - file: chapters/01_tiny\n")
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    make = nbformat.v4
    cells = [make.new_markdown_cell(f"# Tiny\n\n{text}", id="text"), make.new_code_cell(code, id="code")]
    (folder / "chapters").mkdir()
    nbformat.write(make.new_notebook(cells=cells, metadata=kernel), folder / "chapters" / "01_tiny.ipynb")


def built(folder):
    """Run the book's own driver; its exit status and all it printed."""
    command = [sys.executable, str(REPOSITORY / "book" / "build.py"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout + done.stderr


ASTRAY = """\
See [nowhere](nowhere.md), {ref}`there` and {prf:ref}`then`.

By {cite}`nobody1999` and by RF-99 it holds."""


@pytest.mark.site
@pytest.mark.parametrize(
    ("broken", "complaints"),
    [
        (
            {"text": f"{ASTRAY}\n\n![](../book/_static/favicon.svg)", "code": PLOT},
            [
                *["nowhere.md", "label: 'there'", "found: then", "nobody1999", "ledger id RF-99"],
                *["no text alternative (book/_static/favicon.svg)", "no text alternative (_build/jupyter_execute/"],
            ],
        ),
        ({"text": r"See $\frac{a$."}, ["a formula cannot be read"]),
    ],
    ids=["as pages are read", "as they are written"],
)
def test_a_broken_book_fails_twice_over_the_same_folder(tmp_path, broken, complaints):
    """Each complaint is a warning, any of which fails the build; those of a process that writes are counted apart."""
    tiny_book(tmp_path, **broken)
    for outputs_are_kept in (False, True):
        status, said = built(tmp_path)
        assert status != 0, said
        assert ("ran chapters/" in said) != outputs_are_kept
        warnings = [line for line in said.splitlines() if "WARNING: " in line]
        assert [each for each in complaints if not any(each in line for line in warnings)] == []


@pytest.mark.site
def test_a_failing_cell_fails_twice_and_a_mended_book_builds(tmp_path):
    tiny_book(tmp_path, code="assert 1 + 1 == 3")
    for _ in range(2):
        status, said = built(tmp_path)
        assert status != 0, said
        assert "AssertionError" in said
    notebook = tmp_path / "chapters" / "01_tiny.ipynb"
    notebook.write_text(notebook.read_text().replace("== 3", "== 2"))
    status, said = built(tmp_path)
    assert status == 0, said


BOXES = """\
:::{admonition} Three sentences to take along
:class: takeaways
1. **A score is an inner product.**
2. **A position turns a pair by $m\\theta$, no more and no less than that, whatever the pair holds.**
3. **What is relative can be moved.**
:::

:::{admonition} Symbols of this chapter
:class: symbols dropdown
| symbol | meaning |
|---|---|
| $q$; $k$ | query; key |
:::

:::{admonition} Aside: what else there is
:class: aside dropdown
Nothing later needs this ($m$, $n$).
:::

*Ours.*

:::{admonition} What was proved
:class: proved dropdown
A table.
:::"""


MEET = """\
import pathlib, time
pathlib.Path("../{mine}").touch()
patience = time.monotonic() + 60
while not pathlib.Path("../{other}").exists():
    assert time.monotonic() < patience, "the other notebook has not begun"
    time.sleep(0.1)"""
TOGETHER = (os.cpu_count() or 1) > 1  # with one processor chapters run one after another


@pytest.fixture(scope="session")
def sound(tmp_path_factory):
    """A sound book of two chapters, which wait for each other where they can, built twice."""
    folder = tmp_path_factory.mktemp("sound")
    tiny_book(folder, text=BOXES, code=MEET.format(mine="first", other="second" if TOGETHER else "first"))
    first = (folder / "chapters" / "01_tiny.ipynb").read_text()
    swapped = first.replace("../first", "../one").replace("../second", "../first").replace("../one", "../second")
    (folder / "chapters" / "02_tiny.ipynb").write_text(swapped)
    with (folder / "_toc.yml").open("a") as contents:
        contents.write("  - file: chapters/02_tiny\n")
    status, said = built(folder)
    assert status == 0, said
    assert said.count("ran chapters/") == 2
    return folder


@pytest.mark.site
def test_a_sound_tiny_book_builds_its_chapters_side_by_side_and_once(sound):
    status, said = built(sound)
    assert status == 0, said
    assert "nothing has changed" in said
    assert "ran chapters/" not in said


@pytest.mark.site
def test_takeaways_are_open_and_tables_and_asides_fold_but_on_paper_and_without_scripts(browser, sound):
    made = sound / "_build" / "html" / "chapters" / "01_tiny.html"
    page = browser.new_page()
    page.goto(made.as_uri())
    kinds = {kind: f".admonition.{kind} > :last-child" for kind in ("takeaways", "symbols", "aside", "proved")}
    seen = {kind: page.locator(place).is_visible() for kind, place in kinds.items()}
    assert seen == {"takeaways": True, "symbols": False, "aside": False, "proved": False}
    page.locator(".admonition.symbols .toggle-button").click()
    assert page.locator(kinds["symbols"]).is_visible()
    page.emulate_media(media="print")
    assert all(page.locator(place).is_visible() for place in kinds.values())
    assert page.locator("p.credit").text_content() == "Ours."
    bare = browser.new_context(java_script_enabled=False).new_page()
    bare.goto(made.as_uri())
    assert all(bare.locator(place).is_visible() for place in kinds.values())


def test_what_changes_outputs_changes_their_stamp_and_tools_of_tests_do_not(monkeypatch, tmp_path):
    assert {"torch", "matplotlib", "jupyter-book", "anywidget"} <= set(build.PACKAGES)
    assert not {"pytest", "playwright", "torchvision", "mypy", "ruff"} & set(build.PACKAGES)
    for name in ("EVIDENCE", "PHONE"):
        monkeypatch.setattr(build, name, tmp_path / "changed.py")
        stamps = [(tmp_path / "changed.py").write_text(text) and build.library_stamp() for text in ("one", "two+")]
        assert stamps[0] != stamps[1]
