"""Documents to read: the bytes of text files, in parts for training and for testing.

Windows are cut inside documents, never across their ends, and a document is whole in one part: files of one author (a
folder of the directory) stay together.
"""

from __future__ import annotations

import hashlib
import os
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from geolib.lab.files import LabError

_BOOKS_FOLDER = "books"  # in $GEOLIB_DATA, with the folders train and heldout
DOCUMENTS_VARIABLE = "GEOLIB_DOCUMENTS"
VOCABULARY = 256  # tokens: one for each byte
HELD_OUT = 10  # every tenth author is kept for testing where a directory has no split of its own
STDLIB_BYTES = 20_000  # a module of Python's library that is shorter is left out


@dataclass(frozen=True)
class Bytes:
    """Documents in memory, a token for each byte.

    >>> Bytes(["one"], [b"Call me Ishmael."]).lengths
    [16]
    """

    titles: Sequence[str]
    texts: Sequence[bytes] = field(repr=False)

    @property
    def lengths(self) -> list[int]:
        """Bytes of each document."""
        return [len(text) for text in self.texts]

    def digest(self) -> str:
        """Over titles and texts."""
        whole = hashlib.sha256()
        for title, text in zip(self.titles, self.texts):
            whole.update(f"{title} {len(text)} ".encode())
            whole.update(text)
        return whole.hexdigest()


@dataclass(frozen=True)
class Documents:
    """Documents to train on and others to test on; ``source`` is in words, never a machine's path."""

    name: str
    train: Bytes = field(repr=False)
    test: Bytes = field(repr=False)
    source: str

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 of both parts."""
        return hashlib.sha256(f"{VOCABULARY} {self.train.digest()} {self.test.digest()}".encode()).hexdigest()


def windows(part: Bytes, context: int) -> Tensor:
    """Every window of a part: (windows, 2), the document and where in it the window starts.

    A window has ``context`` tokens to read and the same number to tell, moved on by one. The next one starts where it
    ends, so that each token but a document's first is told once; what is left at a document's end is too short and is
    passed over. LabError when a document is too short for one window.

    >>> windows(Bytes(["one", "two"], [b"abcdefg", b"abcd"]), 3).tolist()
    [[0, 0], [0, 3], [1, 0]]
    """
    rows = []
    for document, length in enumerate(part.lengths):
        count = (length - 1) // context
        if count < 1:
            raise LabError(
                f"context: got {context}; {part.titles[document]} has {length} tokens, and a window takes "
                f"{context + 1}: choose a shorter context, or take this document out"
            )
        rows.append(torch.stack([torch.full((count,), document), context * torch.arange(count)], -1))
    return torch.cat(rows)


def read_windows(part: Bytes, places: Tensor, context: int) -> Tensor:
    """The tokens of some windows, (windows, context + 1) of int64."""
    cuts = [np.frombuffer(part.texts[i], np.uint8, context + 1, start) for i, start in places.tolist()]
    return torch.from_numpy(np.stack(cuts).astype(np.int64))


def pieces(part: Bytes, length: int, each: int) -> Tensor:
    """Long pieces of a part, ``each`` from every document, evenly spread over it: (pieces, length + 1) of int64.

    Documents that are too short for them are passed over; LabError when all are.
    """
    places = [
        [document, (whole - length - 1) * (2 * number + 1) // (2 * each)]
        for document, whole in enumerate(part.lengths)
        for number in range(each)
        if whole > each * (length + 1)
    ]
    if not places:
        raise LabError(f"no document has {each} pieces of {length + 1} tokens; ask for shorter ones")
    return read_windows(part, torch.tensor(places), length)


# Reading files ------------------------------------------------------------------------------------------------------


def read_text(path: Path) -> bytes:
    """The bytes of a text file; LabError when it is binary, not UTF-8, or cannot be read."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise LabError(f"{path}: cannot be read ({error.strerror})") from None
    if b"\0" in text:
        raise LabError(f"{path}: not a text file, it holds zero bytes; take it out of the directory")
    try:
        text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise LabError(
            f"{path}: not UTF-8 (byte {error.start} is {text[error.start]:#04x}); convert it, for example with iconv"
        ) from None
    return text


def read_folder(folder: Path, name: str, source: str) -> Documents:
    """The text files of a directory and of the folders in it; hidden ones are passed over.

    Where the directory has the folders ``train`` and ``heldout``, those are the parts. Elsewhere every tenth author is
    held out: an author is a folder of the directory, or a file that lies in none. LabError when there is no directory
    or nothing in it, when a file is no text, or when all is by one author.
    """
    if not folder.is_dir():
        raise LabError(f"{folder}: there is no such directory; name one that holds text files")
    halves = [folder / "train", folder / "heldout"]
    if all(half.is_dir() for half in halves):
        train, test = (_files(half) for half in halves)
    else:
        files = _files(folder)
        authors = sorted({path.relative_to(folder).parts[0] for path in files}, key=_shuffled)
        if len(authors) < 2:
            raise LabError(f"{folder}: all of it is by one author; it takes two files or two folders to hold one out")
        held = set(authors[: max(1, len(authors) // HELD_OUT)])
        train, test = ([p for p in files if (p.relative_to(folder).parts[0] in held) is part] for part in (False, True))
    return Documents(name, _read(train), _read(test), source)


def _files(folder: Path) -> list[Path]:
    """The files below a folder by name; LabError when there are none."""
    found = sorted(p for p in folder.rglob("*") if p.is_file() and not _is_hidden(p.relative_to(folder)))
    if not found:
        raise LabError(f"{folder}: there is no file in it; put text files there")
    return found


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _shuffled(name: str) -> str:
    """A key that sorts names in an order that has nothing to do with them, the same everywhere."""
    return hashlib.sha256(name.encode()).hexdigest()


def _read(files: Sequence[Path]) -> Bytes:
    texts = [read_text(path) for path in files]
    empty = next((path for path, text in zip(files, texts) if not text), None)
    if empty is not None:
        raise LabError(f"{empty}: the file is empty; take it out of the directory")
    return Bytes([path.stem for path in files], texts)


# The sets by name ---------------------------------------------------------------------------------------------------


def load_books(data: str | None) -> Documents:
    """The books in the folder ``books`` of $GEOLIB_DATA, ``data``; LabError where there are none."""
    folder = Path(data).expanduser() / _BOOKS_FOLDER if data else None
    if folder is None or not folder.is_dir():
        raise LabError(
            "books: there are none here; put text files into the folders train and heldout of books in $GEOLIB_DATA, "
            "or take the data set documents, which reads any directory or else Python's own source"
        )
    return read_folder(folder, "books", f"text files ({_BOOKS_FOLDER} in $GEOLIB_DATA), authors split")


def load_stdlib() -> Documents:
    """The source text of Python's standard library: its modules of 20,000 bytes or more, every tenth held out."""
    root = Path(sysconfig.get_paths()["stdlib"])
    files = [p for p in sorted(root.glob("*.py")) if p.stat().st_size >= STDLIB_BYTES]
    if len(files) < 2:
        raise LabError("stdlib: Python's source is not here; take the data set documents and name a directory")
    names = sorted((path.name for path in files), key=_shuffled)
    held = set(names[: max(1, len(names) // HELD_OUT)])
    train, test = (_read([p for p in files if (p.name in held) is part]) for part in (False, True))
    source = "the source text of Python's standard library, every tenth module held out"
    return Documents("stdlib", train, test, source)


def load_documents(data: str | None) -> Documents:
    """The directory in $GEOLIB_DOCUMENTS, else the books, else the source text of Python's standard library."""
    named = os.environ.get(DOCUMENTS_VARIABLE)
    if named:
        return read_folder(Path(named).expanduser(), "documents", f"text files (${DOCUMENTS_VARIABLE})")
    try:
        found = load_books(data)
    except LabError:
        found = load_stdlib()
    return Documents("documents", found.train, found.test, found.source)
