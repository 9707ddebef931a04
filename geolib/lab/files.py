"""Files that are whole or not there, and the one kind of error the lab shows to its user."""

import glob
import os
import secrets
import shutil
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO

BENCHES = "bench"  # the folder among the records that holds measurements of speed, which are no runs
ON_GPU = "gpu"  # that of runs that a GPU made at a scale where the tables are a processor's: no table mixes the two


class LabError(ValueError):
    """Something the user can put right; its text is one line that says what to do."""


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file so that at any moment its old or its new content is there whole; LabError when that fails.

    ``write`` fills an open binary file. A missing folder is made.
    """
    temporary = path.parent / f".{path.name}.{secrets.token_hex(4)}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = temporary.open("xb")
    except OSError as error:
        raise LabError(f"{path.parent}: cannot write there ({error.strerror}); name another folder") from None
    try:
        with file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise LabError(f"{path}: could not be written ({error.strerror or error}); nothing was changed") from None
    finally:
        temporary.unlink(missing_ok=True)


def remove(path: Path) -> None:
    """Remove a file, where it is there, and what processes killed while they wrote it have left."""
    for each in (path, *path.parent.glob(f".{glob.escape(path.name)}.*")):
        each.unlink(missing_ok=True)


def checkout() -> Path | None:
    """The root of the checkout that geolib is imported from, or None when geolib is an installed package."""
    root = Path(__file__).resolve().parents[2]
    # Other packages have been seen to leave a pyproject.toml among the installed ones.
    return root if (root / "pyproject.toml").is_file() and (root / "book" / "results").is_dir() else None


def recorded() -> Path:
    """The folder of the book's records: in a checkout the book's own, else what setup.py packed beside the lab."""
    if (root := checkout()) is not None:
        return root / "book" / "results"
    packed = Path(__file__).with_name("results.zip")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "geolib"
    folder = cache / f"results-{zlib.crc32(packed.read_bytes()):08x}"
    if not folder.is_dir():  # unpacked once for each version of the records, and whole or not at all
        try:
            cache.mkdir(parents=True, exist_ok=True)
            unpacked = Path(tempfile.mkdtemp(dir=cache))
        except OSError:  # no home, or none to write in
            folder = unpacked = Path(tempfile.mkdtemp(prefix="geolib-"))
        shutil.unpack_archive(packed, unpacked)
        if unpacked != folder:
            try:
                unpacked.rename(folder)
            except OSError:  # another process was first
                shutil.rmtree(unpacked)
    return folder


RECORDED = recorded()
