"""Build the book: run what must be run, make the site, and fail when anything is wrong.

``python book/build.py [ROOT]`` builds the book at ROOT (this repository when left out) into ROOT/_build/html with
Jupyter Book, every warning an error. Around it stand four rules that Jupyter Book does not have:

- chapters run side by side, as many as there are processors, before the pages are made, and slides are made after;
- outputs of chapters are kept only as long as the library, the records and the packages that made them are the same;
- pages are read afresh unless the last build ended well, so what failed once fails again until it is mended; where the
  last build ended well and nothing has changed since, nothing is done;
- chapters run on the CPU, with this Python, whatever kernels the machine has.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from functools import cache
from importlib import metadata
from pathlib import Path

import slides
import yaml
from packaging.requirements import Requirement

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent
EVIDENCE = HERE / "evidence.py"  # runs in each chapter's kernel and tells what the checks found
PHONE = HERE / "phone.py"  # runs there too and draws each plot a second time, for a phone


def digest(files: Iterable[Path], *more: str) -> str:
    """A hash of the files' names and contents and of further strings."""
    total = hashlib.sha256()
    for path in sorted(files):
        total.update(f"{path.name}\0".encode() + path.read_bytes())
    for text in more:
        total.update(text.encode() + b"\0")
    return total.hexdigest()


@cache
def needed_packages(wanted: str = "geometry-of-attention[book]") -> list[str]:
    """The installed versions of all that a requirement leads to, by default this book.

    Not of all that is installed: ``make book`` followed by ``make test`` must not run every chapter again because the
    tests' packages have come.
    """
    versions: dict[str, str] = {}
    open_, seen = [Requirement(wanted)], set()
    while open_:
        requirement = open_.pop()
        asked = (requirement.name, *sorted(requirement.extras))
        if asked in seen:
            continue
        seen.add(asked)
        try:
            package = metadata.distribution(requirement.name)
        except metadata.PackageNotFoundError:
            versions[requirement.name] = "missing"
            continue
        versions[requirement.name] = package.version
        further = [Requirement(line) for line in package.requires or []]
        open_ += [each for each in further if applies(each, requirement.extras)]
    return sorted(f"{name}=={version}" for name, version in versions.items())


def applies(requirement: Requirement, extras: Iterable[str]) -> bool:
    """Whether a package asked for with these extras has this requirement here."""
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in (*extras, ""))


def library_stamp() -> str:
    """Changes when a chapter's outputs could: geolib's sources, the records, Python, the packages."""
    library = REPOSITORY / "geolib"
    sources = [path for kind in ("*.py", "*.js", "*.css") for path in library.rglob(kind)]
    sources += [*(REPOSITORY / "book" / "results").rglob("*.json"), EVIDENCE, PHONE]
    return digest(sources, platform.python_version(), *needed_packages())


def pages_stamp(root: Path) -> str:
    """Changes when every page must be read again: the library, the extensions, the table of contents."""
    extensions = (root / "book" / "_ext").glob("*.[pj]*")
    return digest([*extensions, root / "_toc.yml", root / "_config.yml"], library_stamp())


def whole_stamp(root: Path) -> str:
    """Changes when anything changes that a page could show: the book, its chapters, the library, what tests found."""
    folders = [root / name for name in ("book", "chapters")] + [REPOSITORY / name for name in ("geolib", "tests")]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    files = [path for path in files if not {"__pycache__", ".ipynb_checkpoints"} & set(path.parts)]
    total = hashlib.sha256()
    for path in [*sorted(files), root / "_toc.yml", root / "_config.yml"]:
        total.update(f"{path}\0".encode() + path.read_bytes())
    return digest([], total.hexdigest(), platform.python_version(), *needed_packages())


def forget_stale_outputs(build: Path) -> None:
    """Drop the outputs of chapters that another library or other packages made."""
    stamp, now = build / "library.stamp", library_stamp()
    if not stamp.exists() or stamp.read_text() != now:
        shutil.rmtree(build / ".jupyter_cache", ignore_errors=True)
        stamp.write_text(now)


def forget_stale_pages(build: Path, good: Path, now: str) -> None:
    """Drop what Sphinx remembers of the pages, unless the last build ended well and nothing they stand on changed."""
    if not good.exists() or good.read_text() != now:
        shutil.rmtree(build / ".doctrees", ignore_errors=True)
        shutil.rmtree(build / "html", ignore_errors=True)
    good.unlink(missing_ok=True)


def surroundings(root: Path) -> dict[str, str]:
    """The environment in which chapters run and pages are made."""
    return os.environ | {
        "CUDA_VISIBLE_DEVICES": "",  # chapters must run without a GPU
        "JUPYTER_PREFER_ENV_PATH": "1",  # this environment's kernel before the user's own
        "IPYTHONDIR": str(root / "_build" / "ipython"),  # none of the user's start-up files
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        "PYTHONHASHSEED": "0",
    }


def apart(script: Path) -> str:
    """Python that runs a script in a namespace of its own: its names must not stand beside a chapter's."""
    text = f"__import__('pathlib').Path({str(script)!r}).read_text('utf-8')"
    return f"exec(compile({text}, {script.name!r}, 'exec'), {{'__name__': {script.stem!r}}})\n"


# A package that nbformat and Jupyter Book load, to tell whether an address follows RFC 3987. Nothing here asks that,
# and to load it takes seconds.
WITHOUT = "import sys; sys.modules['rfc3987_syntax'] = None"
RUN = f"""{WITHOUT}
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import side_by_side
sys.exit(side_by_side.main(Path(sys.argv[2]).resolve()))"""


def run_notebooks(root: Path) -> int:
    """Run the notebooks without outputs, side by side; the exit status is 1 when a cell failed."""
    startup = root / "_build" / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True, exist_ok=True)
    for script in (EVIDENCE, PHONE):
        (startup / script.name).write_text(apart(script), "utf-8")
    command = [sys.executable, "-c", RUN, str(HERE), str(root)]
    return subprocess.run(command, env=surroundings(root), check=False).returncode


# Jupyter Book has no option for its number of processes.
CALL = f"""{WITHOUT}
from functools import partial
import jupyter_book.sphinx
jupyter_book.sphinx.build_sphinx = partial(jupyter_book.sphinx.build_sphinx, jobs={{jobs}})
from jupyter_book.cli.main import main
main()"""


def jupyter_book(root: Path) -> int:
    """Run Jupyter Book with every warning an error, pages written side by side; its exit status."""
    call = CALL.format(jobs=os.cpu_count() or 1)
    command = [sys.executable, "-c", call, "build", str(root), "-W", "-n", "--keep-going", "-q"]
    return subprocess.run(command, env=surroundings(root), check=False).returncode


DOOR = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
{metas}
<link rel="icon" href="favicon.ico"><meta http-equiv="refresh" content="0; url={landing}"></head>
<body style="font-family: Georgia, serif; max-width: 38rem; margin: 4rem auto; padding: 0 1rem">
<h1>{title}</h1><p>{description}</p><p><a href="{landing}">Open the book</a></p></body></html>
"""


def open_the_front_door(root: Path) -> None:
    """The page at the site's root: with the landing page's description, for links to the root, and a way in."""
    site = root / "_build" / "html"
    landing = yaml.safe_load((root / "_toc.yml").read_text("utf-8"))["root"] + ".html"
    page = (site / landing).read_text("utf-8")
    metas = re.findall(r'<meta (?:name="description"|property="og:\w+"|name="twitter:card")[^>]*>', page)
    described = next((found[1] for each in metas if (found := re.search(r'"description" content="([^"]*)"', each))), "")
    title = yaml.safe_load((root / "_config.yml").read_text("utf-8"))["title"]
    metas = [each.replace('content="../', 'content="') for each in metas]
    door = DOOR.format(title=title, metas="\n".join(metas), description=described, landing=landing)
    (site / "index.html").write_text(door, "utf-8")


def main(arguments: list[str]) -> int:
    """Build and say where the site is."""
    root = Path(arguments[0]).resolve() if arguments else REPOSITORY
    build = root / "_build"
    build.mkdir(exist_ok=True)
    start, site = time.monotonic(), build / "html" / "index.html"
    finished, whole = build / "whole.stamp", whole_stamp(root)
    if site.is_file() and finished.exists() and finished.read_text() == whole:
        print(f"\nThe book is as it was built last: nothing has changed. Open {site} or run: make serve")
        return 0
    finished.unlink(missing_ok=True)
    good, now = build / "good.stamp", pages_stamp(root)
    forget_stale_outputs(build)
    forget_stale_pages(build, good, now)
    if run_notebooks(root) != 0:
        print(f"\nThe book did not build ({time.monotonic() - start:.0f} s): the cells above failed.")
        return 1
    if jupyter_book(root) != 0:
        print(f"\nThe book did not build ({time.monotonic() - start:.0f} s): the warnings above are errors.")
        return 1
    open_the_front_door(root)
    slides.main([str(root)])
    good.write_text(now)
    finished.write_text(whole)
    print(f"\nThe book is built ({time.monotonic() - start:.0f} s). Open {site} or run: make serve")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
