"""What there is to train on by name: images, volumes and clips, rendered, downloaded or read; documents."""

from __future__ import annotations

import hashlib
import math
import os
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from geolib._checks import require
from geolib.lab.data import documents, motion, order_task
from geolib.lab.data.documents import Documents
from geolib.lab.data.varied import varied
from geolib.lab.files import LabError, write_atomically

FOLDER_VARIABLE = "GEOLIB_DATA"
Patch = int | tuple[int, ...]
"""Pixels along a patch's sides, one number for all axes, or one for each."""


@dataclass(frozen=True)
class Dataset:
    """A labelled set of images, volumes or clips in two parts.

    Parameters
    ----------
    name : str
    x_train, x_test : Tensor, (images, channels, *sizes)
        uint8; the sizes are height and width, of a volume three numbers of voxels, of a clip frames, height and width.
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
    def shape(self) -> tuple[int, ...]:
        """(channels, *sizes) of an image."""
        return tuple(self.x_train.shape[1:])

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 of the classes and the four arrays, over names, types, shapes and bytes."""
        digest = hashlib.sha256(repr(self.classes).encode())
        for key in ("x_train", "y_train", "x_test", "y_test"):
            array = np.ascontiguousarray(getattr(self, key).numpy())
            digest.update(f"{key} {array.dtype.str} {array.shape}".encode())
            digest.update(array.data)
        return digest.hexdigest()


def patch_sides(patch: int | Sequence[int], axes: int) -> tuple[int, ...]:
    """Pixels of a patch along each axis; ValueError where there are not as many as axes.

    >>> patch_sides(4, 2), patch_sides((2, 4, 4), 3)
    ((4, 4), (2, 4, 4))
    """
    sides = (patch,) * axes if isinstance(patch, int) else tuple(patch)
    require(len(sides) == axes, "patch", patch, f"one number, or one for each of the {axes} axes")
    return sides


def patch_grid(shape: Sequence[int], patch: Patch) -> tuple[int, ...]:
    """Patches along each axis of an image (channels, *sizes); ValueError if they do not fit.

    >>> patch_grid((1, 8, 32, 32), (2, 16, 16))
    (4, 2, 2)
    """
    sizes = tuple(shape[1:])
    sides = patch_sides(patch, len(sizes))
    fits = all(size % side == 0 for size, side in zip(sizes, sides))
    require(fits, "patch", patch, f"it must divide the image, {'x'.join(map(str, sizes))} pixels")
    return tuple(size // side for size, side in zip(sizes, sides))


@dataclass(frozen=True)
class Spec:
    """What the lab knows of a data set before it is loaded; one of documents has no patches, and tokens for images."""

    needs: str
    patch: Patch
    images: int  # to train on
    shape: tuple[int, ...]  # (channels, *sizes) of an image
    load: Callable[[], Dataset | Documents]
    is_text: bool = False  # whether it holds documents

    def tokens(self, patch: Patch) -> int:
        """Patches of an image."""
        return math.prod(patch_grid(self.shape, patch))


def load(name: str) -> Any:
    """A data set by name: a ``Dataset``, or ``Documents``.

    LabError for an unknown name, and when the data cannot be had or are not what they should be.
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


def _rendered(images: np.ndarray, labels: np.ndarray) -> tuple[Tensor, Tensor]:
    """A part of a set, its images with channels first already."""
    return torch.from_numpy(images), _labels(labels)


# Digits -------------------------------------------------------------------------------------------------------------


def _load_digits() -> Dataset:
    """1,797 images of 8x8 pixels with values 0 ... 16; a fifth of each class is the test part."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise LabError("digits come with scikit-learn: pip install scikit-learn") from None
    bunch = load_digits()
    images, labels = bunch.images[..., None], np.asarray(bunch.target)
    held_out = _stratified_fifth(labels)
    train, test = ((_images(images[part]), _labels(labels[part])) for part in (~held_out, held_out))
    source = "scikit-learn's load_digits; stratified split, one fifth to test, seed 0"
    return Dataset("digits", *train, *test, tuple("0123456789"), source)


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


COPIES = 5  # of each training image, beside the image itself


def _load_varied() -> Dataset:
    """The digits, and beside each one to train on others that another hand might have drawn."""
    digits = _load_digits()
    drawn = torch.from_numpy(varied(digits.x_train[:, 0].numpy(), COPIES, seed=0))[:, None]
    return replace(
        digits,
        name="digits-varied",
        x_train=torch.cat([digits.x_train, drawn]),
        y_train=digits.y_train.repeat(1 + COPIES),
        source=f"{digits.source}; each training image {COPIES} times more, by geolib.lab.data.varied, seed 0",
    )


def _stratified_fifth(labels: np.ndarray) -> np.ndarray:
    """True for a fifth of each class (rounded), the same ones every time."""
    chosen = np.zeros(len(labels), dtype=bool)
    random = np.random.RandomState(0)  # its stream is frozen by NumPy's promise; default_rng's is not
    for value in np.unique(labels):
        members = random.permutation(np.flatnonzero(labels == value))
        chosen[members[: round(len(members) / 5)]] = True
    return chosen


# Turns --------------------------------------------------------------------------------------------------------------


def _load_turns(
    name: str,
    way: Callable[[Any], list[order_task.Cell]] = order_task.corner_way,
    asked: Callable[[order_task.Board], float] = order_task.Board.twist,
    classes: tuple[str, ...] = order_task.CLASSES,
) -> Dataset:
    """Boards of ``geolib.lab.data.order_task``: 6,000 to train and 1,000 to test, from two seeds; staircases are drawn."""
    drawn = way is order_task.stairs_way
    train, test = (
        _rendered(np.stack([board.picture(drawn) for board in part]), np.array([asked(board) > 0 for board in part]))
        for part in (
            order_task.boards(6000, way, seed=0, asked=asked),
            order_task.boards(1000, way, seed=1, asked=asked),
        )
    )
    source = "rendered by geolib.lab.data.order_task, seeds 0 (train) and 1 (test)"
    return Dataset(name, *train, *test, classes, source)


def _load_tilted(order: float) -> Dataset:
    """Boards asked for the letters of their way and their order."""
    return _load_turns(f"turns-{order:g}", asked=lambda board: board.tilt(order), classes=("below", "above"))


# Motion -------------------------------------------------------------------------------------------------------------


def _load_motion() -> Dataset:
    """Clips of ``geolib.lab.data.motion``: 4,000 to train and 1,000 to test, of digits that are in one part alone."""
    digits = _load_digits()
    parts = (digits.x_train, 4000, 0), (digits.x_test, 1000, 1)
    train, test = (_rendered(*motion.clips(7 * images[:, 0].numpy(), count, seed)) for images, count, seed in parts)
    source = "rendered by geolib.lab.data.motion from scikit-learn's digits, seeds 0 (train) and 1 (test)"
    return Dataset("motion", *train, *test, motion.CLASSES, source)


# Voxels -------------------------------------------------------------------------------------------------------------

VOXELS = 32  # along a side
_MODELNET_NEEDS = f"modelnet10.npz in ${FOLDER_VARIABLE}"
_MODELNET_FILE = (
    f"it holds voxels, bool (objects, azimuths, {VOXELS}, {VOXELS}, {VOXELS}), label and is_test (objects,) and classes"
)


def _load_modelnet() -> Dataset:
    """The file that the reader has put into $GEOLIB_DATA."""
    path = _prepared_path("modelnet10")
    if path is None or not path.is_file():
        raise LabError(
            f"modelnet10: no voxels here; put modelnet10.npz into the folder that ${FOLDER_VARIABLE} names; "
            f"{_MODELNET_FILE}"
        )
    return _read_once(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=1)
def _read_once(path: Path, changed: int) -> Dataset:
    """The volumes of a file, for all runs of a process: to unpack them takes as long as a short training."""
    return read_voxels(path)


def read_voxels(path: Path) -> Dataset:
    """Read and check voxels of ModelNet10: every azimuth of an object is a volume, and an object is in one part alone.

    LabError when the file is cut off, damaged or holds something else; the message names the file and what to do.
    """
    keys = ("voxels", "label", "is_test", "classes")
    remedy = f"put another there: {_MODELNET_FILE}"
    arrays = _arrays_of(path, keys, lambda arrays: _problem_of_voxels(**arrays), remedy)
    voxels, label, held_out = arrays["voxels"], arrays["label"], arrays["is_test"]

    def part(chosen: np.ndarray) -> tuple[Tensor, Tensor]:
        volumes = voxels[chosen].reshape(-1, 1, VOXELS, VOXELS, VOXELS).view(np.uint8)
        return _rendered(volumes, np.repeat(label[chosen], voxels.shape[1]))

    source = f"voxels ({path.name} in ${FOLDER_VARIABLE}), {voxels.shape[1]} azimuths an object, split by object"
    return Dataset("modelnet10", *part(~held_out), *part(held_out), tuple(map(str, arrays["classes"])), source)


def _problem_of_voxels(voxels: np.ndarray, label: np.ndarray, is_test: np.ndarray, classes: np.ndarray) -> str | None:
    """What is wrong with arrays of voxels, or None."""
    if voxels.dtype != bool or voxels.ndim != 5 or voxels.shape[2:] != (VOXELS,) * 3:
        return f"voxels is {voxels.dtype} {voxels.shape}, not bool (objects, azimuths, {VOXELS}, {VOXELS}, {VOXELS})"
    objects = (len(voxels),)
    if label.shape != objects or label.dtype.kind not in "iu":
        return f"label is {label.dtype} {label.shape}, not whole numbers {objects}"
    if is_test.shape != objects or is_test.dtype != bool:
        return f"is_test is {is_test.dtype} {is_test.shape}, not bool {objects}"
    if classes.ndim != 1 or not len(label) or label.min() < 0 or label.max() >= len(classes):
        return f"label has numbers that none of the {classes.size} classes has"
    if is_test.all() or not is_test.any():
        return "is_test leaves one of the two parts empty"
    return None


# CIFAR --------------------------------------------------------------------------------------------------------------


def _load_cifar(name: str, classes: int) -> Dataset:
    """Prepared arrays first, then torchvision's download."""
    path = _prepared_path(name)
    if path is not None and path.is_file():
        return _read_prepared(path, name, classes)
    return _cifar(name, _download(name), "torchvision's download")


_TWENTY = 20  # of the 100 classes, first in alphabetical order


def _load_twenty() -> Dataset:
    """The images of CIFAR-100's first classes: enough of each for a small model to tell them apart."""
    whole = _load_cifar("cifar100", 100)
    train, test = whole.y_train < _TWENTY, whole.y_test < _TWENTY
    parts = whole.x_train[train], whole.y_train[train], whole.x_test[test], whole.y_test[test]
    return Dataset("cifar100-20", *parts, whole.classes[:_TWENTY], f"{whole.source}, the first {_TWENTY} classes")


def _prepared_path(name: str) -> Path | None:
    """Where the prepared arrays of a data set belong, or None when $GEOLIB_DATA is not set."""
    folder = os.environ.get(FOLDER_VARIABLE)
    return Path(folder).expanduser() / f"{name}.npz" if folder else None


def _read_prepared(path: Path, name: str, classes: int) -> Dataset:
    """Read and check prepared CIFAR arrays, of so many classes: uint8 images (images, 32, 32, 3), labels and classes.

    LabError when the file is cut off, damaged or holds something else; the message names the file and what to do.
    """
    remedy = f"delete it and run `python -m geolib.lab data prepare {name}`, or copy it again"
    keys = ("x_train", "y_train", "x_test", "y_test", "classes")
    arrays = _arrays_of(path, keys, lambda arrays: _problem(arrays, classes), remedy)
    return _cifar(name, arrays, f"prepared arrays ({path.name} in ${FOLDER_VARIABLE})")


_Arrays = dict[str, np.ndarray]


def _arrays_of(path: Path, keys: Sequence[str], problem_of: Callable[[_Arrays], str | None], remedy: str) -> _Arrays:
    """The arrays of an npz file; LabError with the remedy when it is not whole, or they are not what they should be."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in keys}
    except KeyError as error:
        raise LabError(f"{path}: {str(error.args[0]).split()[0]} is missing from it; {remedy}") from None
    except (OSError, EOFError, ValueError, TypeError, zipfile.BadZipFile, zlib.error):
        raise LabError(f"{path}: not a whole npz file (cut off or damaged); {remedy}") from None
    if problem := problem_of(arrays):
        raise LabError(f"{path}: {problem}; {remedy}")
    return arrays


def _problem(arrays: _Arrays, classes: int) -> str | None:
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


def _cifar(name: str, arrays: _Arrays, source: str) -> Dataset:
    train, test = ((_images(arrays[f"x_{part}"]), _labels(arrays[f"y_{part}"])) for part in ("train", "test"))
    return Dataset(name, *train, *test, tuple(map(str, arrays["classes"])), source)


def _download(name: str) -> _Arrays:
    """The arrays of a CIFAR set through torchvision, which keeps its files in a cache folder."""
    by_hand = f"put {name}.npz into the folder that ${FOLDER_VARIABLE} names"
    try:
        from torchvision import datasets
    except (ImportError, RuntimeError) as error:  # RuntimeError: a torchvision built for another torch
        missing = getattr(error, "name", None) == "torchvision"
        other = "or install torchvision for its download" if missing else f"for torchvision does not import ({error})"
        raise LabError(f"{name}: no images here; {by_hand}, {other}") from None
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
    if problem := _problem(arrays, len(train.classes)):
        raise LabError(f"{name}: torchvision's download is not what it should be ({problem}); {by_hand}")
    return arrays


def prepare(name: str) -> str:
    """Write a data set's prepared arrays into $GEOLIB_DATA, unless they are there; a sentence that says what was done.

    LabError for an unknown name, no $GEOLIB_DATA, no way to download, or a folder that cannot be written.
    """
    spec(name)
    if name not in _CIFAR_CLASSES:
        return f"{name}: nothing to prepare, it needs {DATASETS[name].needs}"
    path = _prepared_path(name)
    if path is None:
        raise LabError(f"set {FOLDER_VARIABLE} to the folder that is to hold {name}.npz, and run this again")
    if path.is_file():
        try:
            _read_prepared(path, name, _CIFAR_CLASSES[name])
            return f"{name}: {path} is there already and is whole"
        except LabError:
            pass  # a damaged file is replaced, once the new arrays are here
    arrays: dict[str, Any] = _download(name)
    write_atomically(path, lambda file: np.savez(file, **arrays))
    return f"{name}: wrote {path}"


_CIFAR_CLASSES = {"cifar10": 10, "cifar100": 100}
_CIFAR_NEEDS = f"prepared arrays in ${FOLDER_VARIABLE}, or torchvision and a network"


def _folder() -> str | None:
    return os.environ.get(FOLDER_VARIABLE)


_SIDE = order_task.SIDE
_BOOKS_NEED = f"text files in books of ${FOLDER_VARIABLE}"

DATASETS: dict[str, Spec] = {
    "digits": Spec("scikit-learn", 1, 1438, (1, 8, 8), _load_digits),
    "digits-field": Spec("scikit-learn", 2, 1438, (1, FIELD, FIELD), _load_field),
    "digits-varied": Spec("scikit-learn", 1, 8628, (1, 8, 8), _load_varied),
    # Which way a ball twists that is tipped along a row and then a column, or along a drawn staircase; and with a
    # number, whether there are more letters right than down, plus that number times the twist.
    "turns": Spec("nothing", 1, 6000, (4, _SIDE, _SIDE), lambda: _load_turns("turns")),
    **{
        f"turns-{order:g}": Spec("nothing", 1, 6000, (4, _SIDE, _SIDE), partial(_load_tilted, order))
        for order in (0, 0.5, 2)
    },
    "turns-stairs": Spec(
        "nothing", 1, 6000, (5, _SIDE, _SIDE), lambda: _load_turns("turns-stairs", order_task.stairs_way)
    ),
    "motion": Spec("scikit-learn", (2, 4, 4), 4000, (1, motion.FRAMES, motion.SIDE, motion.SIDE), _load_motion),
    "modelnet10": Spec(_MODELNET_NEEDS, 8, 8676, (1, VOXELS, VOXELS, VOXELS), _load_modelnet),
    "cifar100-20": Spec(_CIFAR_NEEDS, 4, 10_000, (3, 32, 32), _load_twenty),
    "cifar10": Spec(_CIFAR_NEEDS, 4, 50_000, (3, 32, 32), lambda: _load_cifar("cifar10", 10)),
    "cifar100": Spec(_CIFAR_NEEDS, 4, 50_000, (3, 32, 32), lambda: _load_cifar("cifar100", 100)),
    # Documents: a token for each byte, and tokens in the place of images.
    "books": Spec(_BOOKS_NEED, 1, 71_964_357, (1,), lambda: documents.load_books(_folder()), is_text=True),
    "stdlib": Spec("nothing", 1, 3_600_000, (1,), documents.load_stdlib, is_text=True),
    "documents": Spec("nothing", 1, 3_600_000, (1,), lambda: documents.load_documents(_folder()), is_text=True),
}
