"""Documents for language models: bytes of text files, all of an author in one part, and windows cut inside them."""

import hashlib
import os
import sysconfig
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

from geolib._checks import require
from geolib.lab.files import LabError

FOLDER_VARIABLE, DOCUMENTS_VARIABLE = "GEOLIB_DATA", "GEOLIB_DOCUMENTS"
VOCABULARY = 256  # tokens: one for each byte
_FAULTS = (EOFError, ImportError, LookupError, OSError, RuntimeError, TypeError, ValueError, BadZipFile, zlib.error)


@dataclass(frozen=True)
class Bytes:
    """Documents in memory, a token for each byte."""

    titles: Sequence[str]
    texts: Sequence[bytes] = field(repr=False)

    @property
    def lengths(self) -> list[int]:
        """Bytes of each document."""
        return [len(text) for text in self.texts]


@dataclass(frozen=True)
class Documents:
    """Documents to train on and others to test on; ``source`` is in words, never a machine's path."""

    name: str
    train: Bytes = field(repr=False)
    test: Bytes = field(repr=False)
    source: str

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 of the sha256 of each part's titles, lengths and texts."""
        pairs = [zip(part.titles, part.texts) for part in (self.train, self.test)]
        whole = [b"".join(f"{title} {len(text)} ".encode() + text for title, text in part) for part in pairs]
        digests = " ".join(hashlib.sha256(part).hexdigest() for part in whole)
        return hashlib.sha256(f"{VOCABULARY} {digests}".encode()).hexdigest()


def windows(part: Bytes, context: int) -> Tensor:
    """Every window of a part, (windows, 2): its document, and where it starts; LabError where one has too few tokens.

    A window has ``context`` tokens as inputs and those that follow each as targets, and the next starts where it ends;
    a shorter rest at a document's end is left out.

    >>> windows(Bytes(["one", "two"], [b"abcdefg", b"abcd"]), 3).tolist()
    [[0, 0], [0, 3], [1, 0]]
    """
    least, title = min(zip(part.lengths, part.titles))
    if least <= context:
        told = f"{title} has {least} tokens, and a window takes {context + 1}"
        raise LabError(f"context: got {context}; {told}: choose a shorter context, or take this document out")
    starts = [torch.arange(0, length - context, context) for length in part.lengths]
    counts = torch.tensor([len(each) for each in starts])
    return torch.stack([torch.arange(len(starts)).repeat_interleave(counts), torch.cat(starts)], 1)


def read_windows(part: Bytes, starts: Tensor, context: int) -> Tensor:
    """The tokens of some windows (windows, 2), inputs and targets: (windows, context + 1) of int64."""
    cuts = [np.frombuffer(part.texts[i], np.uint8, context + 1, start) for i, start in starts.tolist()]
    return torch.from_numpy(np.stack(cuts).astype(np.int64))


def pieces(part: Bytes, length: int, each: int) -> Tensor:
    """Pieces (pieces, length + 1), int64, evenly spread: ``each`` from every document of enough length, or LabError."""
    long = [(i, size) for i, size in enumerate(part.lengths) if size > each * (length + 1)]
    starts = [(i, (size - length - 1) * (2 * number + 1) // (2 * each)) for i, size in long for number in range(each)]
    if not starts:
        raise LabError(f"no document has {each} pieces of {length + 1} tokens; ask for shorter ones")
    return read_windows(part, torch.tensor(starts), length)


def in_folder(name: str) -> Path:
    """A file or folder in the folder that $GEOLIB_DATA names, there or not."""
    return Path(os.environ.get(FOLDER_VARIABLE) or f"${FOLDER_VARIABLE}").expanduser() / name


@contextmanager
def explained(problem: str, remedy: str) -> Iterator[None]:
    """Whatever is wrong with a file, a download or an import is a LabError of one line that says what to do."""
    try:
        yield
    except _FAULTS as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise LabError(f"{problem} ({reason}); {remedy}") from None


def read_text(path: Path) -> bytes:
    """The bytes of a text file; LabError when it is empty, binary or not UTF-8, or cannot be read."""
    with explained(f"{path}: not a text in UTF-8", "convert it, or take it out of the directory"):
        text = path.read_bytes()
        holds = len(text) > 0 and "\0" not in text.decode("utf-8")
        require(holds, "text", f"{len(text)} bytes", "there must be some, and none that is 0")
    return text


def read_folder(folder: Path, name: str, source: str) -> Documents:
    """The text files of a directory and of the folders in it but hidden ones, by authors: folders, or files in none.

    Where the directory has the folders ``train`` and ``heldout``, those are the parts; elsewhere a tenth of the
    authors, and one at least, is held out. LabError when there are no two authors, and when a file is no text.
    """
    inside = [path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()]
    authors = {folder / path: path.parts[0] for path in inside if not any(part[0] == "." for part in path.parts)}
    return _split(folder, authors, name, source)


def _split(folder: Path, authors: Mapping[Path, str], name: str, source: str) -> Documents:
    """Documents of a folder's files with their authors, of whom the same ones are held out everywhere."""
    names = sorted(set(authors.values()), key=lambda author: hashlib.sha256(author.encode()).hexdigest())
    if len(names) < 2:
        raise LabError(f"{folder}: got {len(names)} authors (files, or folders of them); name a directory with two")
    count = max(1, len(names) // 10)
    parts = (["train"], ["heldout"]) if {"train", "heldout"} <= set(names) else (names[count:], names[:count])
    files = [[path for path, author in authors.items() if author in part] for part in parts]
    train, test = (Bytes([path.stem for path in part], [read_text(path) for path in part]) for part in files)
    return Documents(name, train, test, source)


def load_books() -> Documents:
    """The text files in the folder ``books`` of $GEOLIB_DATA."""
    return read_folder(in_folder("books"), "books", "text files (books in $GEOLIB_DATA), authors split")


def load_stdlib() -> Documents:
    """The source text of Python's standard library: its modules of 20,000 bytes or more, every tenth held out."""
    root = Path(sysconfig.get_paths()["stdlib"])
    modules = {path: path.name for path in sorted(root.glob("*.py")) if path.stat().st_size >= 20_000}
    return _split(root, modules, "stdlib", "the source text of Python's standard library, every tenth module held out")


def load_documents() -> Documents:
    """The directory in $GEOLIB_DOCUMENTS, else the books, else the source text of Python's standard library."""
    if named := os.environ.get(DOCUMENTS_VARIABLE):
        return read_folder(Path(named).expanduser(), "documents", f"text files (${DOCUMENTS_VARIABLE})")
    return replace(load_books() if in_folder("books").is_dir() else load_stdlib(), name="documents")
