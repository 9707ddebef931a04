"""The data sets by name: images, volumes and clips that are rendered, downloaded or read from files, and documents."""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geolib._checks import require
from geolib.lab.data import documents, motion, order_task
from geolib.lab.data.augmentation import TORCHVISION
from geolib.lab.data.documents import FOLDER_VARIABLE, Documents, explained, in_folder
from geolib.lab.files import LabError, write_atomically

Patch = int | tuple[int, ...]  # pixels along a patch's sides, one number for all axes, or one for each
Parts = list[tuple[np.ndarray, np.ndarray]]  # images (images, channels, *sizes) and labels, to train on and to test on
Raw = tuple[Parts, Sequence[str], str]  # what a set is made of: parts, classes and source


@dataclass(frozen=True)
class Dataset:
    """A labelled set of images, volumes or clips in two parts; ``source`` says in words how they were obtained.

    Images are uint8 (images, channels, *sizes): height and width, three sides of a volume, or frames, height and width.
    Labels are int64 (images,), 0 ... len(classes) - 1.
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


@dataclass(frozen=True)
class Spec:
    """What is known of a data set before it is read; a token of documents counts as an image."""

    needs: str
    patch: Patch
    images: int  # to train on
    shape: tuple[int, ...]  # (channels, *sizes) of an image
    read: Callable[[], Any]  # Raw, or Documents
    is_text: bool = False


def spec(name: str) -> Spec:
    """What is known of a data set; LabError for an unknown name."""
    if name not in DATASETS:
        raise LabError(f"unknown data set {name!r}; there are {', '.join(DATASETS)}")
    return DATASETS[name]


def load(name: str) -> Any:
    """A ``Dataset`` or ``Documents`` by name; LabError when it is unknown, or cannot be had, or is damaged."""
    found = spec(name).read()
    if isinstance(found, Documents):
        return found
    parts, classes, source = found
    images = [torch.from_numpy(np.ascontiguousarray(x, np.uint8)) for x, _ in parts]
    labels = [torch.from_numpy(y.astype(np.int64)) for _, y in parts]
    return Dataset(name, images[0], labels[0], images[1], labels[1], tuple(map(str, classes)), source)


def patch_sides(patch: int | Sequence[int], axes: int) -> tuple[int, ...]:
    """Pixels of a patch along each axis; ValueError where there are not as many as axes."""
    sides = (patch,) * axes if isinstance(patch, int) else tuple(patch)
    require(len(sides) == axes, "patch", patch, f"one number, or one for each of the {axes} axes")
    return sides


def patch_grid(shape: Sequence[int], patch: Patch) -> tuple[int, ...]:
    """Patches along each axis of an image (channels, *sizes); ValueError if they do not fit.

    >>> patch_grid((1, 8, 32, 32), (2, 16, 16))
    (4, 2, 2)
    """
    cut = [divmod(size, side) for size, side in zip(shape[1:], patch_sides(patch, len(shape) - 1))]
    fits = all(rest == 0 for _, rest in cut)
    require(fits, "patch", patch, f"it must divide the image, {'x'.join(map(str, shape[1:]))} pixels")
    return tuple(count for count, _ in cut)


def _digits() -> Raw:
    """1,797 images of 8x8 pixels with values 0 ... 16; a fifth of each class is the test part."""
    with explained("digits come with scikit-learn", "pip install scikit-learn"):
        from sklearn.datasets import load_digits
    pixels, labels = load_digits(return_X_y=True)
    images = pixels.astype(np.uint8).reshape(-1, 1, 8, 8)
    random = np.random.RandomState(0)
    shuffled = [random.permutation(np.flatnonzero(labels == digit)) for digit in range(10)]
    held_out = np.isin(np.arange(len(labels)), np.concatenate([rows[: round(len(rows) / 5)] for rows in shuffled]))
    parts = [(images[rows], labels[rows]) for rows in (~held_out, held_out)]
    return parts, "0123456789", "scikit-learn's load_digits; stratified split, one fifth to test, seed 0"


def _digits_field() -> Raw:
    parts, classes, source = _digits()
    field = [(np.pad(images, ((0, 0), (0, 0), (0, 8), (0, 8))), labels) for images, labels in parts]
    return field, classes, f"{source}; in the top left corner of a blank field of 16x16 pixels"


def varied(images: np.ndarray, copies: int, seed: int) -> np.ndarray:
    """Each image, uint8 (images, 8, 8) of 0 to 16, so many times, as other hands might have drawn it.

    A copy is turned by up to 15 degrees, leaned, stretched along each axis, moved by up to a pixel, in another ink.
    """
    from scipy.ndimage import affine_transform  # scikit-learn, which has the digits, brings SciPy

    random, made, middle = np.random.RandomState(seed), [], 3.5  # RandomState's stream is frozen by NumPy's promise
    for image in np.tile(images, (copies, 1, 1)).astype(float):
        angle = np.deg2rad(random.uniform(-15, 15))
        turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
        lean = np.array([[1.0, random.uniform(-0.2, 0.2)], [0.0, 1.0]])
        linear = np.diag(1 / random.uniform(0.75, 1.15, 2)) @ lean @ turn  # of (row, column), from a copy to its image
        move, ink = random.uniform(-1, 1, 2), random.uniform(0.8, 1.6)
        copy = affine_transform(image, linear, middle - linear @ (middle + move), order=1, mode="grid-constant")
        made.append(np.clip(np.rint(ink * copy), 0, 16))
    return np.array(made, dtype=np.uint8)


def _digits_varied() -> Raw:
    ((images, labels), test), classes, source = _digits()
    images = np.concatenate([images, varied(images[:, 0], copies=5, seed=0)[:, None]])
    source = f"{source}; each training image 5 times more, by geolib.lab.data.sets.varied, seed 0"
    return [(images, np.tile(labels, 6)), test], classes, source


def _turns(order: float | None = None, drawn: bool = False) -> Raw:
    way = order_task.stairs_way if drawn else order_task.corner_way
    asked = order_task.Board.twist if order is None else partial(order_task.Board.tilt, order=order)
    boards = [order_task.boards(count, way, seed, asked) for count, seed in ((6000, 0), (1000, 1))]
    parts = [(np.stack([b.picture(drawn) for b in part]), np.array([asked(b) > 0 for b in part])) for part in boards]
    classes = order_task.CLASSES if order is None else ("below", "above")
    return parts, classes, "rendered by geolib.lab.data.order_task, seeds 0 (train) and 1 (test)"


def _motion() -> Raw:
    (train, _), (test, _) = _digits()[0]
    parts = [motion.clips(7 * train[:, 0], 4000, seed=0), motion.clips(7 * test[:, 0], 1000, seed=1)]
    source = "rendered by geolib.lab.data.motion from scikit-learn's digits, seeds 0 (train) and 1 (test)"
    return parts, motion.CLASSES, source


def _check(parts: Parts, shape: tuple[int, ...], classes: int) -> None:
    allowed = f"they must be uint8 (images, {', '.join(map(str, shape))}) and whole numbers (images,)"
    for part, (x, y) in zip(("train", "test"), parts):
        holds = x.dtype == np.uint8 and x.shape[1:] == shape and y.dtype.kind in "iu" and y.shape == x.shape[:1] > (0,)
        require(holds, f"images and labels to {part}", f"{x.dtype} {x.shape} and {y.dtype} {y.shape}", allowed)
        known = y.min() >= 0 and y.max() < classes
        require(known, f"labels to {part}", f"{y.min()} ... {y.max()}", f"they must be 0 ... {classes - 1}")


def read_voxels(path: Path) -> Raw:
    """Voxels of ModelNet10, each azimuth of an object a volume; LabError for a file missing, damaged or another."""
    layout = "voxels, bool (objects, azimuths, 32, 32, 32), label and is_test, (objects,), and classes"
    remedy = f"put modelnet10.npz into the folder that ${FOLDER_VARIABLE} names, with {layout}"
    with explained(f"{path}: missing, cut off, damaged or another file", remedy), np.load(path) as file:
        voxels, label, is_test, classes = (file[key] for key in ("voxels", "label", "is_test", "classes"))
        both = is_test.dtype == bool and 0 < is_test.sum() < len(is_test)
        require(both, "is_test", f"{is_test.dtype}, {is_test.sum()} set", "it must be bool, with objects of both parts")
        volumes, azimuths = voxels.view(np.uint8)[:, :, None], voxels.shape[1]
        parts = [(np.concatenate(volumes[rows]), label[rows].repeat(azimuths)) for rows in (~is_test, is_test)]
        _check(parts, (1, 32, 32, 32), len(classes))
    return parts, classes, f"voxels ({path.name} in ${FOLDER_VARIABLE}), {azimuths} azimuths an object, split by object"


def _cifar(name: str) -> Raw:
    """Prepared arrays first, then torchvision's download, which keeps its files in a cache folder."""
    path = in_folder(f"{name}.npz")
    if path.exists():
        remedy = f"delete it and run `python -m geolib.lab data prepare {name}`, or copy it again"
        with explained(f"{path}: cut off, damaged or another file", remedy), np.load(path) as file:
            return _cifar_of(name, file, f"prepared arrays ({path.name} in ${FOLDER_VARIABLE})")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "geolib"
    remedy = f"put {name}.npz into the folder that ${FOLDER_VARIABLE} names, or download it: go online, {TORCHVISION}"
    with explained(f"{name}: no images here, and none by torchvision's download", remedy):
        from torchvision import datasets

        make = {"cifar10": datasets.CIFAR10, "cifar100": datasets.CIFAR100}[name]
        train, test = (make(str(cache), train=part, download=True) for part in (True, False))
        arrays = {"x_train": train.data, "y_train": train.targets, "x_test": test.data, "y_test": test.targets}
        return _cifar_of(name, arrays | {"classes": train.classes}, "torchvision's download")


def _cifar_of(name: str, arrays: Mapping[str, Any], source: str) -> Raw:
    classes, count = arrays["classes"], _CIFAR_CLASSES[name]
    require(len(classes) == count, "classes", f"{len(classes)} names", f"there must be {count}")
    parts = [(arrays[f"x_{part}"].transpose(0, 3, 1, 2), np.asarray(arrays[f"y_{part}"])) for part in ("train", "test")]
    _check(parts, (3, 32, 32), count)
    return parts, classes, source


def _cifar_twenty() -> Raw:
    parts, classes, source = _cifar("cifar100")
    return [(x[y < 20], y[y < 20]) for x, y in parts], classes[:20], f"{source}, the first 20 classes"


def prepare(name: str) -> str:
    """Write a CIFAR set's arrays into $GEOLIB_DATA, unless they are there, and say which; LabError where that fails."""
    needs, path = spec(name).needs, in_folder(f"{name}.npz")
    if name not in _CIFAR_CLASSES:
        return f"{name}: nothing to prepare, it needs {needs}"
    if not os.environ.get(FOLDER_VARIABLE):
        raise LabError(f"set {FOLDER_VARIABLE} to the folder that is to hold {path.name}, and run this again")
    parts, classes, _ = _cifar(name)
    if path.exists():
        return f"{name}: {path} is there already and is whole"
    arrays: dict[str, Any] = {"classes": np.array(classes)}
    for part, (images, labels) in zip(("train", "test"), parts):
        arrays |= {f"x_{part}": images.transpose(0, 2, 3, 1), f"y_{part}": labels.astype(np.uint8)}
    write_atomically(path, lambda file: np.savez(file, **arrays))
    return f"{name}: wrote {path}"


_CIFAR_CLASSES = {"cifar10": 10, "cifar100": 100}
_CIFAR = f"prepared arrays in ${FOLDER_VARIABLE}, or torchvision and a network"
_VOXELS, _BOOKS = f"modelnet10.npz in ${FOLDER_VARIABLE}", f"text files in books of ${FOLDER_VARIABLE}"
_BOARD, _CLIP = (order_task.SIDE, order_task.SIDE), (1, motion.FRAMES, motion.SIDE, motion.SIDE)

DATASETS: dict[str, Spec] = {
    "digits": Spec("scikit-learn", 1, 1438, (1, 8, 8), _digits),
    "digits-field": Spec("scikit-learn", 2, 1438, (1, 16, 16), _digits_field),
    "digits-varied": Spec("scikit-learn", 1, 8628, (1, 8, 8), _digits_varied),  # with digits as by other hands
    "turns": Spec("nothing", 1, 6000, (4, *_BOARD), _turns),
    **{f"turns-{n}": Spec("nothing", 1, 6000, (4, *_BOARD), partial(_turns, order=n)) for n in (0, 0.5, 2)},
    "turns-stairs": Spec("nothing", 1, 6000, (5, *_BOARD), partial(_turns, drawn=True)),
    "motion": Spec("scikit-learn", (2, 4, 4), 4000, _CLIP, _motion),
    "modelnet10": Spec(_VOXELS, 8, 8676, (1, 32, 32, 32), lambda: read_voxels(in_folder("modelnet10.npz"))),
    "cifar100-20": Spec(_CIFAR, 4, 10_000, (3, 32, 32), _cifar_twenty),
    "cifar10": Spec(_CIFAR, 4, 50_000, (3, 32, 32), partial(_cifar, "cifar10")),
    "cifar100": Spec(_CIFAR, 4, 50_000, (3, 32, 32), partial(_cifar, "cifar100")),
    "books": Spec(_BOOKS, 1, 71_964_357, (1,), documents.load_books, is_text=True),
    "stdlib": Spec("nothing", 1, 3_600_000, (1,), documents.load_stdlib, is_text=True),
    "documents": Spec("nothing", 1, 3_600_000, (1,), documents.load_documents, is_text=True),
}
