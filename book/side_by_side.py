"""Run the notebooks whose outputs are not in the build's cache, as many at a time as there are processors.

``python book/side_by_side.py ROOT`` puts the outputs into ROOT/_build/.jupyter_cache, where Jupyter Book finds them.
The exit status is 1 when a cell failed, and its traceback is printed: nothing is kept of that notebook.

Each notebook has one thread, so what a page prints does not depend on which other notebooks ran beside it.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import nbformat
import yaml
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn, JupyterCacheAbstract
from jupyter_cache.executors.utils import ExecutionResult, single_nb_execution

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


def notebooks(root: Path) -> list[Path]:
    """The notebooks of the table of contents, the last chapter, a lab, first: labs take longest."""
    contents = yaml.safe_load((root / "_toc.yml").read_text("utf-8"))
    parts = contents.get("parts", [contents])
    paths = [root / f"{chapter['file']}.ipynb" for part in parts for chapter in part["chapters"]]
    return [path for path in reversed(paths) if path.is_file()]


def is_stale(cache: JupyterCacheAbstract, path: Path) -> bool:
    """Whether no run of these cells is in the cache."""
    try:
        cache.match_cache_notebook(nbformat.read(path, 4))
    except KeyError:
        return True
    return False


def execute(path: Path, timeout: int) -> ExecutionResult:
    """Run a notebook in its own folder, as Jupyter Book would."""
    quiet = ["--log-level=40"]  # a kernel's warnings about its own sockets are no news for readers
    return single_nb_execution(
        nbformat.read(path, 4), cwd=str(path.parent), timeout=timeout, allow_errors=False, extra_arguments=quiet
    )


def main(root: Path) -> int:
    """Run what is stale; 1 when a cell failed."""
    os.environ.update(ONE_THREAD)  # inherited by the kernels
    cache = get_cache(root / "_build" / ".jupyter_cache")
    timeout = yaml.safe_load((root / "_config.yml").read_text("utf-8"))["execute"]["timeout"]
    stale = [path for path in notebooks(root) if is_stale(cache, path)]
    failed = False
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        runs = [(path, pool.submit(execute, path, timeout)) for path in stale]
        for path, run in runs:
            result = run.result()
            if result.err is None:
                data = {"execution_seconds": result.time}
                cache.cache_notebook_bundle(
                    CacheBundleIn(result.nb, str(path), data=data), check_validity=False, overwrite=True
                )
                print(f"ran {path.relative_to(root)} in {result.time:.0f} s", flush=True)
            else:
                failed = True
                print(f"{path.relative_to(root)} failed:\n{result.exc_string}", file=sys.stderr, flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
