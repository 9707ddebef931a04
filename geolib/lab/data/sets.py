"""What to train on by name: scikit-learn's digits, CIFAR from arrays or torchvision's download, documents."""

from __future__ import annotations

import hashlib
import os
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from geolib._checks import require
from geolib.lab.data import documents, turns
from geolib.lab.data.documents import Documents
from geolib.lab.files import LabError, write_atomically

FOLDER_VARIABLE = "GEOLIB_DATA"


@dataclass(frozen=True)
class Dataset:
    """A labelled set of images in two parts.

    Parameters
    ----------
    name : str
    x_train, x_test : Tensor, (images, channels, height, width)
        uint8.
    y_train, y_test : Tensor, (images,)
        int64, 0 ... len(classes) - 1.
    classes : tuple of str
    source : str
        How the images were obtained, in words; never a machine's path.
    """

    name: str
    x_train: Tensor = field(repr=False)
    y_train: Tensor = field(repr=False)
    x_test: Tensor = field(repr=False)
    y_test: Tensor = field(repr=False)
    classes: tuple[str, ...] = field(repr=False)
    source: str

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width) of an image."""
        channels, height, width = self.x_train.shape[1:]
        return channels, height, width

    def grid(self, patch: int) -> tuple[int, int]:
        """Rows and columns of square patches with ``patch`` pixels a side; ValueError when they do not fit."""
        return patch_grid(self.shape, patch)

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 of the classes and the four arrays, over names, types, shapes and bytes."""
        digest = hashlib.sha256(repr(self.classes).encode())
        for key in ("x_train", "y_train", "x_test", "y_test"):
            array = np.ascontiguousarray(getattr(self, key).numpy())
            digest.update(f"{key} {array.dtype.str} {array.shape}".encode())
            digest.update(array.data)
        return digest.hexdigest()


def patch_grid(shape: tuple[int, int, int], patch: int) -> tuple[int, int]:
    """Rows and columns of an image (channels, height, width) cut into square patches; ValueError if they do not fit."""
    _, height, width = shape
    fits = height % patch == 0 and width % patch == 0
    require(fits, "patch", patch, f"it must divide the image, {height}x{width} pixels")
    return height // patch, width // patch


@dataclass(frozen=True)
class Spec:
    """What the lab knows of a data set before it is loaded; one of documents has no patches, and tokens for images."""

    about: str
    needs: str
    patch: int
    images: int  # to train on
    pixels: int  # of an image
    load: Callable[[], Dataset | Documents]
    vocabulary: int = 0  # of documents: how many tokens there are

    @property
    def is_read(self) -> bool:
        """Whether it holds documents."""
        return self.vocabulary > 0


def load(name: str) -> Any:
    """A data set by name.

    Parameters
    ----------
    name : str
        A key of ``DATASETS``.

    Returns
    -------
    Dataset or Documents

    Raises
    ------
    LabError
        For an unknown name, and when the data cannot be had or are not what they should be.
    """
    return spec(name).load()


def spec(name: str) -> Spec:
    """What is known of a data set; LabError for an unknown name."""
    if name not in DATASETS:
        raise LabError(f"unknown data set {name!r}; there are {', '.join(DATASETS)}")
    return DATASETS[name]


def _images(array: Any) -> Tensor:
    """(images, height, width, channels) as a uint8 tensor with channels first."""
    return torch.from_numpy(np.ascontiguousarray(np.asarray(array, dtype=np.uint8).transpose(0, 3, 1, 2)))


def _labels(array: Any) -> Tensor:
    return torch.from_numpy(np.asarray(array).astype(np.int64))


# Digits -------------------------------------------------------------------------------------------------------------


def _load_digits() -> Dataset:
    """1,797 images of 8x8 pixels with values 0 ... 16; a fifth of each class is the test part."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise LabError("digits come with scikit-learn: pip install scikit-learn") from None
    bunch = load_digits()
    images, labels = bunch.images[..., None], np.asarray(bunch.target)
    test = stratified_fifth(labels)
    return Dataset(
        name="digits",
        x_train=_images(images[~test]),
        y_train=_labels(labels[~test]),
        x_test=_images(images[test]),
        y_test=_labels(labels[test]),
        classes=tuple(str(i) for i in range(10)),
        source="scikit-learn's load_digits; stratified split, one fifth to test, seed 0",
    )


FIELD = 16  # pixels along a side


def _load_field() -> Dataset:
    """The digits, each in the top left corner of a blank field."""
    digits = _load_digits()
    blank = FIELD - digits.shape[1]
    return replace(
        digits,
        name="digits-field",
        x_train=F.pad(digits.x_train, (0, blank, 0, blank)),
        x_test=F.pad(digits.x_test, (0, blank, 0, blank)),
        source=f"{digits.source}; in the top left corner of a blank field of {FIELD}x{FIELD} pixels",
    )


def stratified_fifth(labels: np.ndarray) -> np.ndarray:
    """True for a fifth of each class (rounded), the same ones every time.

    Parameters
    ----------
    labels : array, (images,)

    Returns
    -------
    array of bool, (images,)
    """
    chosen = np.zeros(len(labels), dtype=bool)
    random = np.random.RandomState(0)  # its stream is frozen by NumPy's promise; default_rng's is not
    for value in np.unique(labels):
        members = random.permutation(np.flatnonzero(labels == value))
        chosen[members[: round(len(members) / 5)]] = True
    return chosen


# Turns --------------------------------------------------------------------------------------------------------------


def _load_turns(name: str, way: Callable[[Any], list[turns.Cell]], drawn: bool) -> Dataset:
    """Boards of ``geolib.lab.data.turns``: 6,000 to train and 1,000 to test, from two seeds."""
    parts = turns.boards(6000, way, seed=0), turns.boards(1000, way, seed=1)
    x_train, x_test = (torch.from_numpy(np.stack([board.picture(drawn) for board in part])) for part in parts)
    y_train, y_test = (_labels(np.array([board.twist() > 0 for board in part])) for part in parts)
    source = "rendered by geolib.lab.data.turns, seeds 0 (train) and 1 (test)"
    return Dataset(name, x_train, y_train, x_test, y_test, turns.CLASSES, source)


# CIFAR --------------------------------------------------------------------------------------------------------------


def _load_cifar(name: str, classes: int) -> Dataset:
    """Prepared arrays first, then torchvision's download."""
    path = prepared_path(name)
    if path is not None and path.is_file():
        return read_prepared(path, name, classes)
    arrays = _download(name)
    return _cifar(name, arrays, "torchvision's download")


def prepared_path(name: str) -> Path | None:
    """Where the prepared arrays of a data set belong, or None when $GEOLIB_DATA is not set."""
    folder = os.environ.get(FOLDER_VARIABLE)
    return Path(folder).expanduser() / f"{name}.npz" if folder else None


def read_prepared(path: Path, name: str, classes: int) -> Dataset:
    """Read and check prepared CIFAR arrays.

    Parameters
    ----------
    path : Path
        An npz file with x_train and x_test, uint8 (images, 32, 32, 3), y_train, y_test and classes.
    name : str
    classes : int
        How many there must be.

    Returns
    -------
    Dataset

    Raises
    ------
    LabError
        When the file is cut off, damaged or holds something else; the message names the file and what to do.
    """
    remedy = f"delete it and run `python -m geolib.lab data prepare {name}`, or copy it again"
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in ("x_train", "y_train", "x_test", "y_test", "classes")}
    except KeyError as error:
        raise LabError(f"{path}: {str(error.args[0]).split()[0]} is missing from it; {remedy}") from None
    except (OSError, EOFError, ValueError, TypeError, zipfile.BadZipFile, zlib.error):
        raise LabError(f"{path}: not a whole npz file (cut off or damaged); {remedy}") from None
    problem = _problem(arrays, classes)
    if problem:
        raise LabError(f"{path}: {problem}; {remedy}")
    return _cifar(name, arrays, f"prepared arrays ({path.name} in ${FOLDER_VARIABLE})")


def _problem(arrays: dict[str, np.ndarray], classes: int) -> str | None:
    """What is wrong with CIFAR arrays, or None."""
    if arrays["classes"].shape != (classes,):
        return f"classes has shape {arrays['classes'].shape}, not ({classes},)"
    for part in ("train", "test"):
        x, y = arrays[f"x_{part}"], arrays[f"y_{part}"]
        if x.dtype != np.uint8 or x.ndim != 4 or x.shape[1:] != (32, 32, 3) or not len(x):
            return f"x_{part} is {x.dtype} {x.shape}, not uint8 (images, 32, 32, 3)"
        if y.shape != (len(x),) or y.dtype.kind not in "iu":
            return f"y_{part} is {y.dtype} {y.shape}, not whole numbers ({len(x)},)"
        if y.min() < 0 or y.max() >= classes:
            return f"y_{part} has labels from {y.min()} to {y.max()}, not 0 to {classes - 1}"
    return None


def _cifar(name: str, arrays: dict[str, Any], source: str) -> Dataset:
    return Dataset(
        name=name,
        x_train=_images(arrays["x_train"]),
        y_train=_labels(arrays["y_train"]),
        x_test=_images(arrays["x_test"]),
        y_test=_labels(arrays["y_test"]),
        classes=tuple(str(c) for c in arrays["classes"]),
        source=source,
    )


def _download(name: str) -> dict[str, np.ndarray]:
    """The arrays of a CIFAR set through torchvision, which keeps its files in a cache folder."""
    by_hand = f"put {name}.npz into the folder that ${FOLDER_VARIABLE} names"
    try:
        from torchvision import datasets
    except (ImportError, RuntimeError):  # RuntimeError: a torchvision built for another torch
        raise LabError(f"{name}: no images here; {by_hand}, or install torchvision for its download") from None
    make = {"cifar10": datasets.CIFAR10, "cifar100": datasets.CIFAR100}[name]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "geolib"
    try:
        train, test = (make(str(cache), train=part, download=True) for part in (True, False))
    except (OSError, RuntimeError) as error:  # URLError is an OSError; a damaged download is a RuntimeError
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise LabError(
            f"{name}: torchvision's download failed ({reason}); go online and try again, or {by_hand}"
        ) from None
    arrays = {
        "x_train": np.asarray(train.data),
        "y_train": np.asarray(train.targets, dtype=np.uint8),
        "x_test": np.asarray(test.data),
        "y_test": np.asarray(test.targets, dtype=np.uint8),
        "classes": np.array(train.classes),
    }
    problem = _problem(arrays, len(train.classes))
    if problem:
        raise LabError(f"{name}: torchvision's download is not what it should be ({problem}); {by_hand}")
    return arrays


def prepare(name: str) -> str:
    """Write a data set's prepared arrays into $GEOLIB_DATA, unless they are there.

    Parameters
    ----------
    name : str

    Returns
    -------
    str
        A sentence that says what was done and where the file is.

    Raises
    ------
    LabError
        For an unknown name, no $GEOLIB_DATA, no way to download, or a folder that cannot be written.
    """
    spec(name)
    if name not in _CIFAR_CLASSES:
        return f"{name}: nothing to prepare, it comes with {DATASETS[name].needs}"
    path = prepared_path(name)
    if path is None:
        raise LabError(f"set {FOLDER_VARIABLE} to the folder that is to hold {name}.npz, and run this again")
    if path.is_file():
        try:
            read_prepared(path, name, _CIFAR_CLASSES[name])
            return f"{name}: {path} is there already and is whole"
        except LabError:
            pass  # a damaged file is replaced, once the new arrays are here
    arrays: dict[str, Any] = _download(name)
    write_atomically(path, lambda file: np.savez(file, **arrays))
    return f"{name}: wrote {path}"


_CIFAR_CLASSES = {"cifar10": 10, "cifar100": 100}
_CIFAR_NEEDS = f"prepared arrays in ${FOLDER_VARIABLE}, or torchvision and a network"


def _documents(about: str, needs: str, tokens: int, load: Callable[[], Documents], vocabulary: int = 256) -> Spec:
    return Spec(about, needs, 1, tokens, 1, load, vocabulary)


def _folder() -> str | None:
    return os.environ.get(FOLDER_VARIABLE)


DATASETS: dict[str, Spec] = {
    "digits": Spec("1,797 handwritten digits, 8x8 grey pixels", "scikit-learn", 1, 1438, 64, _load_digits),
    "digits-field": Spec(
        f"the digits, in the top left corner of a blank field of {FIELD}x{FIELD} pixels",
        "scikit-learn",
        2,
        1438,
        FIELD**2,
        _load_field,
    ),
    "turns": Spec(
        f"boards of {turns.SIDE}x{turns.SIDE} cells: the twist of a ball tipped along a row and then a column",
        "nothing",
        1,
        6000,
        turns.SIDE**2,
        lambda: _load_turns("turns", turns.corner_way, drawn=False),
    ),
    "turns-stairs": Spec(
        f"boards of {turns.SIDE}x{turns.SIDE} cells: the same along a drawn staircase",
        "nothing",
        1,
        6000,
        turns.SIDE**2,
        lambda: _load_turns("turns-stairs", turns.stairs_way, drawn=True),
    ),
    "cifar10": Spec(
        "60,000 colour images, 10 classes", _CIFAR_NEEDS, 4, 50_000, 1024, lambda: _load_cifar("cifar10", 10)
    ),
    "cifar100": Spec(
        "60,000 colour images, 100 classes", _CIFAR_NEEDS, 4, 50_000, 1024, lambda: _load_cifar("cifar100", 100)
    ),
    "books": _documents(
        "103 books, a token for each byte, authors held out",
        f"text files in books of ${FOLDER_VARIABLE}",
        71_964_357,
        lambda: documents.load_books(_folder()),
    ),
    "stdlib": _documents(
        "the source text of Python's standard library, a token for each byte",
        "nothing",
        3_600_000,
        documents.load_stdlib,
    ),
    "documents": _documents(
        f"any directory of text files that ${documents.DOCUMENTS_VARIABLE} names, else books, else stdlib",
        "nothing",
        3_600_000,
        lambda: documents.load_documents(_folder()),
    ),
    "longcrawl64": _documents(
        "LongCrawl64: documents of 65,536 GPT-2 tokens",
        f"zarr, and its arrays in LongCrawl64 of ${FOLDER_VARIABLE}",
        6_609_334 * 65_536,
        lambda: documents.load_longcrawl(_folder()),
        50_257,
    ),
}
