"""Build the book: run what must be run, make the site, and fail when anything is wrong.

``python book/build.py [ROOT]`` builds the book at ROOT (this repository when left out) into ROOT/_build/html with
Jupyter Book, every warning an error. Around it stand four rules that Jupyter Book does not have:

- notebooks run side by side, as many as there are processors, before the pages are made; each has one thread, so what a
  page prints does not depend on which others ran beside it;
- their outputs are kept only as long as the library, the records and the packages that made them are the same;
- pages are read afresh unless the last build ended well, so what failed once fails again until it is mended; where the
  last build ended well and nothing has changed since, nothing is done;
- chapters run on the CPU, with this Python, whatever kernels the machine has.
"""

import hashlib
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent
EVIDENCE = HERE / "evidence.py"  # runs in each chapter's kernel and tells what the checks found
PHONE = HERE / "phone.py"  # runs there too and draws each plot a second time, for a phone
# constraints.txt settles the others. What tests alone need is not here: ``make test`` after ``make book`` must not run
# every chapter again.
PACKAGES = ("torch", "numpy", "scipy", "matplotlib", "anywidget", "scikit-learn", "jupyter-book", "myst-nb", "sphinx")

# What has changed since -----------------------------------------------------------------------------------------------


def digest(files: Iterable[Path], *more: str) -> str:
    """A hash of the files' paths and contents, of Python's and the packages' versions, and of further strings."""
    total = hashlib.sha256()
    for path in sorted(files):
        total.update(f"{path}\0".encode() + path.read_bytes())
    for text in (platform.python_version(), *map(metadata.version, PACKAGES), *more):
        total.update(text.encode() + b"\0")
    return total.hexdigest()


def library_stamp() -> str:
    """Changes when a chapter's outputs could: geolib's sources, the records, Python, the packages."""
    library, records = REPOSITORY / "geolib", REPOSITORY / "book" / "results"
    files = [path for kind in ("*.py", "*.js", "*.css") for path in library.rglob(kind)] + [*records.rglob("*.json")]
    return digest([*files, REPOSITORY / "constraints.txt", EVIDENCE, PHONE])


def pages_stamp(root: Path) -> str:
    """Changes when every page must be read again: the library, the extensions, the table of contents."""
    extensions = (root / "book" / "_ext").glob("*.[pj]*")
    return digest([*extensions, root / "_toc.yml", root / "_config.yml"], library_stamp())


def whole_stamp(root: Path) -> str:
    """Changes when anything changes that a page could show: the book, its chapters, the library, its tests."""
    folders = [root / "book", root / "chapters", REPOSITORY / "geolib", REPOSITORY / "tests"]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    files = [path for path in files if not {"__pycache__", ".ipynb_checkpoints"} & set(path.parts)]
    return digest([*files, root / "_toc.yml", root / "_config.yml"])


def holds(stamp: Path, now: str) -> bool:
    """Whether a stamp was written for what is there now."""
    return stamp.is_file() and stamp.read_text() == now


# The notebooks --------------------------------------------------------------------------------------------------------


def notebooks(root: Path) -> list[Path]:
    """The notebooks of the table of contents, those with most to run first."""
    contents = yaml.safe_load((root / "_toc.yml").read_text("utf-8"))
    parts = contents.get("parts", [contents])
    paths = [root / f"{chapter['file']}.ipynb" for part in parts for chapter in part["chapters"]]
    return sorted((path for path in paths if path.is_file()), key=lambda path: -path.read_text("utf-8").count('"code"'))


def execute(path: Path, timeout: int) -> Any:
    """Run a notebook in its own folder, as Jupyter Book would; jupyter-cache's result."""
    import nbformat
    from jupyter_cache.executors.utils import single_nb_execution

    quiet = ["--log-level=40"]  # a kernel's warnings about its own sockets are no news for readers
    options = {"cwd": str(path.parent), "timeout": timeout, "allow_errors": False, "extra_arguments": quiet}
    return single_nb_execution(nbformat.read(path, 4), **options)


def run_notebooks(root: Path) -> bool:
    """Run the notebooks whose outputs are not in the build's cache; whether all their cells ran.

    Jupyter Book finds the outputs in the cache. Of a notebook with a failing cell nothing is kept. (jupyter-cache's own
    parallel executor deals notebooks out in packs, at whose end processors wait for one another.)
    """
    import nbformat
    from jupyter_cache import get_cache
    from jupyter_cache.base import CacheBundleIn

    startup = root / "_build" / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True, exist_ok=True)
    for script in (EVIDENCE, PHONE):  # in a namespace of its own: its names must not stand beside a chapter's
        text = f"__import__('pathlib').Path({str(script)!r}).read_text('utf-8')"
        run = f"exec(compile({text}, {script.name!r}, 'exec'), {{'__name__': {script.stem!r}}})\n"
        (startup / script.name).write_text(run, "utf-8")
    kept, stale, sound = get_cache(root / "_build" / ".jupyter_cache"), [], True
    for path in notebooks(root):
        try:
            kept.match_cache_notebook(nbformat.read(path, 4))
        except KeyError:
            stale.append(path)
    timeout = yaml.safe_load((root / "_config.yml").read_text("utf-8"))["execute"]["timeout"]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        runs = [pool.submit(execute, path, timeout) for path in stale]
        for path, result in zip(stale, (run.result() for run in runs), strict=True):
            if result.err is not None:
                sound = False
                print(f"{path.relative_to(root)} failed:\n{result.exc_string}", file=sys.stderr, flush=True)
                continue
            bundle = CacheBundleIn(result.nb, str(path), data={"execution_seconds": result.time})
            kept.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)
            print(f"ran {path.relative_to(root)} in {result.time:.0f} s", flush=True)
    return sound


# The site -------------------------------------------------------------------------------------------------------------

SURROUNDINGS = {  # of the chapters that run, and of the making of pages
    "CUDA_VISIBLE_DEVICES": "",  # chapters must run without a GPU
    "JUPYTER_PREFER_ENV_PATH": "1",  # this environment's kernel before the user's own
    "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    "GEOLIB_WITHOUT_STILLS": "1",  # pages have stills of their own
    "KINETO_LOG_LEVEL": "99",  # PyTorch's profiler tells when it starts
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
}


def make_pages(root: Path) -> bool:
    """Make the site with every warning an error, side by side; whether there was none."""
    # To load this tells nbformat whether an address follows RFC 3987; nothing here asks that, and it takes seconds.
    sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]
    from jupyter_book.sphinx import build_sphinx

    options = {"warningiserror": True, "keep_going": True, "quiet": True, "jobs": os.cpu_count()}
    overrides = {"external_toc_path": str(root / "_toc.yml"), "nitpicky": True, "latex_individualpages": False}
    config = {"noconfig": True, "path_config": root / "_config.yml", "confoverrides": overrides}
    return build_sphinx(root, root / "_build" / "html", **config, **options) == 0


def main(arguments: list[str]) -> int:
    """Build and say where the site is."""
    root = Path(arguments[0]).resolve() if arguments else REPOSITORY
    build, start = root / "_build", time.monotonic()
    build.mkdir(exist_ok=True)
    site, (library, good, finished) = build / "html", (build / f"{n}.stamp" for n in ("library", "good", "whole"))
    whole, outputs, pages = whole_stamp(root), library_stamp(), pages_stamp(root)
    if (site / "index.html").is_file() and holds(finished, whole):
        print(f"\nThe book is as it was built last: nothing has changed. Open {site}/index.html or run: make serve")
        return 0
    if not holds(library, outputs):
        shutil.rmtree(build / ".jupyter_cache", ignore_errors=True)
        library.write_text(outputs)
    if not holds(good, pages):
        shutil.rmtree(build / ".doctrees", ignore_errors=True)
        shutil.rmtree(site, ignore_errors=True)
    finished.unlink(missing_ok=True)
    good.unlink(missing_ok=True)
    os.environ |= SURROUNDINGS | {"IPYTHONDIR": str(build / "ipython")}  # none of the user's start-up files
    for step, what in ((run_notebooks, "the cells above failed"), (make_pages, "the warnings above are errors")):
        if not step(root):
            print(f"\nThe book did not build ({time.monotonic() - start:.0f} s): {what}.")
            return 1
    good.write_text(pages)
    finished.write_text(whole)
    print(f"\nThe book is built ({time.monotonic() - start:.0f} s). Open {site}/index.html or run: make serve")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
