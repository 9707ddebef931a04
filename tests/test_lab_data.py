"""The data sets: labels go with their examples, parts share nothing, and damaged files are named; augmentation.

Labels are read from the examples again, by other means than those that made them. What comes from files is made up.
Crops are held against brute force, and full recipes against torchvision's transforms one by one.
"""

import functools
import hashlib
import itertools
import json
import re
import sys
import sysconfig
import types
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation
from scipy.stats import chisquare
from sklearn.datasets import load_digits
from vision import import_torchvision

from geolib.lab.data import load, motion, order_task, sets
from geolib.lab.data.augmentation import AUGMENTATIONS, PADDING, channel_moments, crop_and_flip, full_recipe
from geolib.lab.data.documents import Bytes, Documents, pieces, read_folder, read_windows, windows
from geolib.lab.files import LabError, recorded

import_torchvision()
from torchvision.transforms import v2  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")

BOARDS = ("turns", "turns-stairs", "turns-0", "turns-0.5", "turns-2")
known = functools.cache(load)  # a rendered set, made once for all tests


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder that $GEOLIB_DATA names; $GEOLIB_DOCUMENTS names none."""
    monkeypatch.delenv("GEOLIB_DOCUMENTS", raising=False)
    monkeypatch.setenv("GEOLIB_DATA", str(tmp_path / "data"))
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def parts(data):
    """Images as NumPy has them, and labels, of both parts."""
    return (data.x_train.numpy(), data.y_train.numpy()), (data.x_test.numpy(), data.y_test.numpy())


def error_of(call, *given):
    """The one line of the LabError that a call ends in."""
    with pytest.raises(LabError) as raised:
        call(*given)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("name", ["digits", "digits-field", "digits-varied", *BOARDS, "motion"])
def test_a_set_is_the_one_that_runs_were_recorded_with_as_told_before_it_is_loaded(name):
    data, spec = known(name), sets.spec(name)
    records = [json.loads(path.read_text("utf-8")) for path in recorded().rglob(f"{name}-*.json")]
    assert {each["data"]["fingerprint"] for each in records if each["data"]["name"] == name} == {data.fingerprint}
    assert (data.name, data.shape, len(data.y_train), spec.is_text) == (name, spec.shape, spec.images, False)
    grid, sides = sets.patch_grid(data.shape, spec.patch), sets.patch_sides(spec.patch, len(data.shape) - 1)
    assert tuple(n * side for n, side in zip(grid, sides)) == data.shape[1:]
    for patch, allowed in (((1,) * 9, f"one for each of the {len(sides)} axes"), (17, "must divide the image, ")):
        with pytest.raises(ValueError, match=f"^patch: got {re.escape(str(patch))}; .*{allowed}"):
            sets.patch_grid(data.shape, patch)
    train, test = ({image.tobytes() for image in images} for images, _ in parts(data))
    assert not train & test, "no example is in both parts"


def test_what_cannot_be_loaded_is_told_with_what_can_or_with_what_helps(monkeypatch):
    for call in (load, sets.spec, sets.prepare):
        assert error_of(call, "mnist") == f"unknown data set 'mnist'; there are {', '.join(sets.DATASETS)}"
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    for name in ("digits", "digits-field", "digits-varied", "motion"):
        assert re.search("^digits come with scikit-learn .*; pip install scikit-learn$", error_of(load, name))


@pytest.mark.parametrize("name", ["digits", "digits-field", "digits-varied"])
def test_labels_of_digits_are_scikit_learns(name):
    bunch = load_digits()
    truth = {image.astype(np.uint8).tobytes(): int(label) for image, label in zip(bunch.images, bunch.target)}
    for images, labels in ((images[:1438], labels[:1438]) for images, labels in parts(known(name))):
        assert images[:, :, :8, :8].sum() == images.sum(), "all ink is in the top left corner"
        corner = np.ascontiguousarray(images[:, 0, :8, :8])
        assert [truth[image.tobytes()] for image in corner] == labels.tolist()


def turned_by(letters):
    """The twist that letters leave, by SciPy's rotations, and how many more of them are right than down."""
    turned = Rotation.identity()
    for letter in letters:  # to the right about y, down about x
        turned = Rotation.from_rotvec(np.pi / 4 * np.array([letter == 2, letter == 1, 0])) * turned
    matrix = turned.as_matrix()
    return matrix[1, 0] - matrix[0, 1], letters.count(1) - letters.count(2)


@pytest.mark.parametrize("name", BOARDS)
def test_the_label_of_a_board_is_the_sign_of_the_twist_or_of_counts_and_the_twist(name):
    order = float(name.removeprefix("turns-")) if name[-1].isdigit() else None
    assert known(name).classes == (order_task.CLASSES if order is None else ("below", "above"))
    for images, labels in parts(known(name)):
        for picture, label in zip(images[:100], labels[:100]):
            (start,), (end,) = (np.argwhere(picture[channel]).tolist() for channel in (2, 3))
            corner = [[start[0], j] for j in range(start[1], end[1])] + [[i, end[1]] for i in range(start[0], end[0])]
            way = sorted(np.argwhere(picture[4]).tolist(), key=sum) if len(picture) == 5 else [*corner, end]
            twist, more = turned_by([1 if picture[0, i, j] else 2 if picture[1, i, j] else 0 for i, j in way[1:-1]])
            assert abs(twist) > 1e-9
            assert label == (twist > 0 if order is None else more + order * twist > 0)


def test_the_class_of_a_clip_is_the_way_its_digit_goes():
    rows, words = np.arange(motion.SIDE), list(motion.DIRECTIONS)
    for x, y in parts(known("motion")):
        bright = np.clip(x[:400, 0].astype(float) - (motion.NOISE - 1), 0, None)  # what noise alone never reaches
        centre = np.stack([bright.sum(3) @ rows, bright.sum(2) @ rows], -1) / bright.sum((2, 3))[..., None]
        legs = centre[:, 3] - centre[:, 0], centre[:, 7] - centre[:, 4]  # before the turn and after it, wherever it is
        first, then = ((leg @ np.array(list(motion.DIRECTIONS.values())).T).argmax(1) for leg in legs)
        told = [motion.CLASSES.index(f"{words[a]}, then {words[b]}") for a, b in zip(first, then)]
        assert (told == y[:400]).mean() > 0.95
    assert {", then ".join(reversed(each.split(", then "))) for each in motion.CLASSES} == {*motion.CLASSES}


def cifar(classes=10, train=90, test=70):
    """Arrays whose images tell their numbers, with labels that no rule gives; those to test are lit in one pixel."""
    arrays, draw = {"classes": np.array([f"class {i}" for i in range(classes)])}, np.random.RandomState(3)
    for part, count in (("train", train), ("test", test)):
        images = np.zeros((count, 32, 32, 3), np.uint8)
        images[:, 1, 2], images[:, 3, 5] = np.arange(count)[:, None] // 256, np.arange(count)[:, None] % 256
        images[:, 9, 9, 1] = 255 * (part == "test")
        arrays |= {f"x_{part}": images, f"y_{part}": draw.randint(classes, size=count).astype(np.uint8)}
    return arrays


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "cifar100-20"])
def test_prepared_images_keep_their_labels_and_their_part(folder, name):
    file = f"{name.partition('-')[0]}.npz"
    arrays = cifar(10 if name == "cifar10" else 100, 900, 700)
    np.savez(folder / file, **arrays)
    data = load(name)
    for (images, labels), part in zip(parts(data), ("train", "test")):
        numbers, truth = 256 * images[:, 0, 1, 2].astype(int) + images[:, 0, 3, 5], arrays[f"y_{part}"]
        assert labels.tolist() == truth[numbers].tolist()
        assert (images[:, :, 9, 9] == [0, 255 * (part == "test"), 0]).all(), "channels come first"
        assert sorted(numbers) == np.flatnonzero(truth < len(data.classes)).tolist()
    first, told = (20, ", the first 20 classes") if name.endswith("20") else (100, "")
    assert (data.name, data.classes) == (name, tuple(arrays["classes"][:first]))
    assert data.source == f"prepared arrays ({file} in $GEOLIB_DATA){told}"
    assert replace(data, y_test=data.y_test.flip(0)).fingerprint != data.fingerprint


@pytest.fixture
def torchvision(monkeypatch):
    """A stand-in for torchvision: a download raises its ``fail``, and its ``arrays`` come instead of the right ones."""

    def download(root, train, download, classes):
        assert download, "without being asked it fetches nothing"
        module.roots.add(root)
        if module.fail is not None:
            raise module.fail
        words, *images = (cifar(classes) | module.arrays).values()
        data, targets = images[:2] if train else images[2:]
        return types.SimpleNamespace(data=data, targets=targets.tolist(), classes=words.tolist())

    module, module.datasets = types.ModuleType("torchvision"), types.ModuleType("datasets")
    module.fail, module.arrays, module.roots = None, {}, set()
    for count in (10, 100):
        setattr(module.datasets, f"CIFAR{count}", functools.partial(download, classes=count))
    monkeypatch.setitem(sys.modules, "torchvision", module)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    return module


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_a_download_is_prepared_whole_and_read_again_as_the_same_set(folder, torchvision, monkeypatch, name):
    monkeypatch.setenv("HOME", str(folder.parent))
    path, downloaded, wanted = folder / f"{name}.npz", load(name), cifar(int(name[5:]))
    assert (downloaded.source, downloaded.classes) == ("torchvision's download", tuple(wanted["classes"]))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    assert sets.prepare(name) == f"{name}: wrote {path}"
    assert torchvision.roots == {str(folder.parent / ".cache" / "geolib"), str(folder / "cache" / "geolib")}
    with np.load(path) as kept:
        assert all(np.array_equal(kept[key], wanted[key]) and kept[key].dtype == wanted[key].dtype for key in wanted)
    torchvision.fail = OSError("it must not be asked again")
    assert load(name).fingerprint == downloaded.fingerprint
    assert sets.prepare(name) == f"{name}: {path} is there already and is whole"


def test_no_download_is_one_line_with_both_ways_and_writes_nothing(monkeypatch, folder, torchvision):
    for spoil, says in (
        ({"fail": RuntimeError("File not found\nor corrupted")}, "(File not found)"),
        ({"fail": OSError()}, "(OSError)"),
        ({"fail": None, "arrays": {"y_train": np.full(90, 10)}}, "(labels to train: got 10 ... 10; they must be 0"),
        (None, "torchvision"),
    ):
        vars(torchvision).update(spoil or {})
        if spoil is None:
            monkeypatch.setitem(sys.modules, "torchvision", None)
        for call in (load, sets.prepare):
            line = error_of(call, "cifar10")
            assert says in line
            assert re.search(r"put cifar10\.npz into .*GEOLIB_DATA.* pip install --upgrade torch torchvision", line)
    assert list(folder.iterdir()) == []
    assert sets.prepare("modelnet10") == "modelnet10: nothing to prepare, it needs modelnet10.npz in $GEOLIB_DATA"
    monkeypatch.delenv("GEOLIB_DATA")
    assert "set GEOLIB_DATA to the folder" in error_of(sets.prepare, "cifar10")


def voxel_arrays(objects=24, azimuths=3):
    """Objects of noise that tell their numbers in the bits of a row, a third of them to test."""
    draw = np.random.RandomState(5)
    voxels = draw.rand(objects, azimuths, 32, 32, 32) < 0.02
    voxels[:, :, 0, 0] = (np.arange(objects)[:, None, None] >> np.arange(32)) & 1 == 1
    label, is_test = draw.randint(10, size=objects), np.arange(objects) % 3 == 1
    return {"voxels": voxels, "label": label, "is_test": is_test, "classes": np.array([*"abcdefghij"])}


def test_every_volume_has_the_label_of_its_object_and_is_as_it_was(folder):
    arrays, seen = voxel_arrays(), []
    np.savez(folder / "modelnet10.npz", **arrays)
    data = load("modelnet10")
    assert data.classes == tuple("abcdefghij")
    assert data.source.endswith(" in $GEOLIB_DATA), 3 azimuths an object, split by object")
    for part, (images, labels) in enumerate(parts(data)):
        which = (images[:, 0, 0, 0].astype(int) << np.arange(32)).sum(1)
        assert labels.tolist() == arrays["label"][which].tolist()
        assert (arrays["is_test"][which] == bool(part)).all()
        assert all(any(np.array_equal(i[0], view) for view in arrays["voxels"][own]) for i, own in zip(images, which))
        seen += which.tolist()
    assert sorted(seen) == sorted(3 * list(range(24)))


@pytest.mark.parametrize(
    ("name", "spoil", "says"),
    [
        ("cifar10", lambda path: path.write_bytes(path.read_bytes()[:200_000]), "not a zip file"),
        ("cifar10", lambda path: path.write_bytes(path.read_bytes().replace(b"\2" * 3, b"\1" * 3, 1)), "Bad CRC-32"),
        ("cifar10", {"y_test": None}, "y_test is not a file in the archive"),
        ("cifar10", {"x_train": lambda x: x.transpose(0, 3, 1, 2)}, "to train: got uint8 (90, 32, 3, 32) and"),
        ("cifar10", {"x_test": lambda x: x[:0], "y_test": lambda y: y[:0]}, "got uint8 (0, 3, 32, 32) and uint8 (0,)"),
        ("cifar10", {"y_test": lambda y: y + 1}, "labels to test: got 1 ... 10; they must be 0 ... 9"),
        ("cifar10", {"classes": lambda c: c[:9]}, "classes: got 9 names; there must be 10"),
        ("modelnet10", {"voxels": lambda v: v[:, :, 16:]}, "images and labels to train: got uint8 (48, 1, 16, 32, 32)"),
        ("modelnet10", {"label": lambda y: y[:9]}, "boolean index did not match"),
        ("modelnet10", {"is_test": lambda part: part | True}, "is_test: got bool, 24 set"),
        ("modelnet10", lambda path: path.unlink(), "No such file or directory"),
    ],
)
def test_spoilt_arrays_are_one_line_that_names_the_file_and_prepare_leaves_them(folder, name, spoil, says):
    path, arrays = folder / f"{name}.npz", cifar() if name == "cifar10" else voxel_arrays()
    changes = {} if callable(spoil) else {key: change and change(arrays[key]) for key, change in spoil.items()}
    np.savez(path, **{key: array for key, array in (arrays | changes).items() if array is not None})
    if callable(spoil):
        spoil(path)
    line = error_of(load, name)
    assert re.match(re.escape(str(path)) + ": (missing, )?cut off, damaged or another file", line)
    assert says in line
    assert {"cifar10": "data prepare cifar10`, or copy it", "modelnet10": "with voxels, bool (objects, "}[name] in line
    if name == "cifar10":
        before = path.read_bytes()
        assert (error_of(sets.prepare, name), path.read_bytes()) == (line, before)


def test_windows_have_every_token_as_a_target_once_and_never_cross_a_documents_end():  # CS-F4
    part = Bytes(["a", "b", "c"], [bytes(range(100)), bytes(range(100, 140)), bytes(range(200, 224))])
    cut = read_windows(part, windows(part, 12), 12)
    assert (cut.shape, cut.dtype) == ((12, 13), torch.int64)
    assert cut[:, 1:].flatten().tolist() == [*range(1, 97), *range(101, 137), *range(201, 213)]
    assert torch.equal(cut[:, 1:] - 1, cut[:, :-1]), "what follows each token"
    assert [len(windows(Bytes(["one"], [bytes(n)]), 12)) for n in (13, 24, 25, 36, 37)] == [1, 1, 2, 2, 3]
    short = Bytes(["long", "short"], [bytes(99), bytes(12)])
    assert "context: got 12; short has 12 tokens, and a window takes 13" in error_of(windows, short, 12)


def test_pieces_are_spread_over_every_document_that_is_long_enough():
    texts = [bytes(range(203)), bytes(202), bytes(range(1, 251))]
    found = pieces(Bytes(["a", "b", "c"], texts), 100, 2)
    starts = [102 // 4, 3 * 102 // 4, 149 // 4, 3 * 149 // 4]  # a quarter and three quarters of where one can begin
    assert [bytes(row) for row in found.tolist()] == [texts[2 * (i > 1)][s : s + 101] for i, s in enumerate(starts)]
    assert "no document has 2 pieces of 101 tokens" in error_of(pieces, Bytes(["b"], texts[1:2]), 100, 2)


def library(folder, authors):
    """Two text files of each author, in a folder of theirs, and hidden files that are no texts."""
    for author, work in itertools.product(range(authors), range(2)):
        path = folder / f"author {author}" / f"work {work}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{author}: café {work}", "utf-8")
    for hidden in (".DS_Store", "author 0/.one.txt.swp", ".git/index"):
        (folder / hidden).parent.mkdir(exist_ok=True)
        (folder / hidden).write_bytes(b"\0")
    return folder


@pytest.mark.parametrize("count", [2, 3, 29])
def test_a_tenth_of_authors_or_modules_and_at_least_one_is_held_out(tmp_path, monkeypatch, count):
    data = read_folder(library(tmp_path / "texts", count), "documents", "made up")
    authors = [{text.decode().partition(":")[0] for text in part.texts} for part in (data.train, data.test)]
    assert not authors[0] & authors[1]
    assert [len(authors[1]), len({*data.train.texts, *data.test.texts})] == [max(1, count // 10), 2 * count]
    for i in range(count):
        (tmp_path / f"m{i}.py").write_text(f"# {i}".ljust(20_000))  # just long enough
    (tmp_path / "short.py").write_text("#".ljust(19_999))
    names = sorted((f"m{i}.py" for i in range(count)), key=lambda n: hashlib.sha256(n.encode()).hexdigest())
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    data = load("stdlib")
    assert [f"{title}.py" for title in data.test.titles] == sorted(names[: max(1, count // 10)])
    assert len(data.train.titles) == count - len(data.test.titles), "short modules are left out"


def test_documents_are_a_directory_else_the_books_else_pythons_library(folder, monkeypatch):
    found = load("documents")
    assert (found.name, found.fingerprint) == ("documents", load("stdlib").fingerprint)
    for half in ("train", "heldout", "other"):
        (folder / "books" / half).mkdir(parents=True)
        (folder / "books" / half / f"{half}.txt").write_text(half * 50)
    books, found = load("books"), load("documents")
    assert (books.train.titles, books.test.titles) == (["train"], ["heldout"])
    assert (books.name, found.name, found.fingerprint) == ("books", "documents", books.fingerprint)
    assert books.source == found.source == "text files (books in $GEOLIB_DATA), authors split"
    monkeypatch.setenv("GEOLIB_DOCUMENTS", str(library(folder / "mine", 3)))
    assert (load("documents").source, len(load("documents").test.titles)) == ("text files ($GEOLIB_DOCUMENTS)", 2)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda text: [path.unlink() for path in text.parents[1].rglob("*.txt")], "library: got 0 authors"),
        (lambda text: [path.unlink() for path in text.parents[1].glob("author [12]/*")], "library: got 1 authors"),
        (lambda text: text.write_bytes(b"abc\0def"), "work 0.txt: not a text in UTF-8 (text: got 7 bytes"),
        (lambda text: text.write_bytes("café".encode("latin-1")), "byte 0xe9 in position 3"),
    ],
)
def test_texts_that_cannot_be_read_are_one_line_that_names_them(folder, monkeypatch, spoil, says):
    monkeypatch.setenv("GEOLIB_DOCUMENTS", str(library(folder / "library", 3)))
    spoil(folder / "library" / "author 1" / "work 0.txt")
    assert says in error_of(load, "documents")
    assert f"{folder / 'books'}: got 0 authors" in error_of(load, "books")


def test_a_fingerprint_of_documents_changes_with_one_byte_of_either_part_and_with_a_title():
    part, other, third = Bytes(["a"], [b"text"]), Bytes(["a"], [b"test"]), Bytes(["b"], [b"text"])
    pairs = itertools.product((part, other, third), repeat=2)
    assert len({Documents("documents", train, test, "made up").fingerprint for train, test in pairs}) == 9


# Augmentation ---------------------------------------------------------------------------------------------------------

MEAN = torch.tensor([99.5, 120.25, 7.0]).view(3, 1, 1)


def asked(augment, erase=0.0):
    """A configuration, as far as recipes read it."""
    return types.SimpleNamespace(augment=augment, erase=erase, randaugment=(3, 14))


def pictures(count, shape=(3, 32, 32)):
    """Smooth images, and noise."""
    images = torch.randint(0, 256, (count, *shape), dtype=torch.uint8)
    smooth = torch.nn.functional.interpolate(torch.rand(count, shape[0], 4, 4), size=shape[1:], mode="bilinear")
    images[1::2] = (255 * smooth[1::2]).to(torch.uint8)
    return images


def seeded(seed, make, *given):
    torch.manual_seed(seed)
    return make(*given)


def test_each_image_is_a_crop_of_itself_with_a_margin_of_zeros_perhaps_mirrored_and_all_are_as_frequent():
    image, batch = pictures(1, (2, 5, 7)), 5000
    padded = np.pad(image[0].numpy(), ((0, 0), (PADDING, PADDING), (PADDING, PADDING)))
    cuts = [padded[:, i : i + 5, j : j + 7] for i, j in np.ndindex(2 * PADDING + 1, 2 * PADDING + 1)]
    possible = {crop.tobytes() for cut in cuts for crop in (cut, cut[:, :, ::-1])}
    counts = Counter(each.tobytes() for each in crop_and_flip(image.expand(batch, -1, -1, -1)).numpy())
    assert {*counts} == possible
    assert 1e-4 < chisquare([*counts.values()]).pvalue < 1 - 1e-4


def test_crops_and_flips_are_drawn_as_in_recorded_runs_from_the_default_generator_or_from_ones_own():
    images = torch.arange(3 * 32 * 32).remainder(251).to(torch.uint8).view(3, 32, 32).expand(64, -1, -1, -1)
    before, own = torch.get_rng_state(), crop_and_flip(images, torch.Generator().manual_seed(5))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(seeded(5, crop_and_flip, images), own)
    assert hashlib.sha256(own.numpy().tobytes()).hexdigest()[:16] == "50774359f1e37d49"


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 17, 24)])
@pytest.mark.parametrize("erased", [0.0, 0.9])
@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_a_recipe_has_the_order_of_its_name_a_policy_is_drawn_in_fours_and_erasing_for_each(name, erased, shape):
    images, recipe = pictures(10, shape), full_recipe(asked(name, erased), shape, MEAN[: shape[0]])
    first, last = v2.RandAugment(3, 14), v2.AutoAugment(v2.AutoAugmentPolicy.CIFAR10)
    erase = v2.RandomErasing(erased, value=MEAN[: shape[0]].flatten().tolist())
    assert (recipe is None) == (name in ("none", "crop-flip") and not erased), "a crop alone is no recipe"

    def one_by_one(policy, batch):  # neighbours in fours begin at the same state of the generator
        changed = []
        for group in batch.split(4):
            state = torch.get_rng_state()
            changed += [(torch.set_rng_state(state), policy(image))[1] for image in group]
        return torch.stack(changed)

    def by_hand():
        batch = one_by_one(first, images) if name == "crop-flip-randaugment" else images
        batch = batch if name == "none" else crop_and_flip(batch)
        batch = one_by_one(last, batch) if name == "crop-flip-autoaugment" else batch
        return torch.stack([erase(image.float()) for image in batch]) if erased else batch

    for seed in range(5 if recipe else 0):  # each from the same images, which stay what they are
        made = seeded(seed, recipe, images)
        assert made.dtype == (torch.float32 if erased else torch.uint8)
        assert torch.equal(made, seeded(seed, by_hand))


def test_images_that_a_recipe_is_not_for_are_named():
    clips, boards = torch.zeros(1, 1, 1, 1), torch.full((4, 1, 1), 3.5)
    for config in (asked("crop-flip"), asked("crop-flip-randaugment"), asked("none", erase=0.5)):
        with pytest.raises(ValueError, match=f"augment: got '{config.augment}'; volumes and clips are taken as they"):
            full_recipe(config, (1, 8, 16, 16), clips)
    assert full_recipe(asked("none"), (1, 8, 16, 16), clips) is None
    for name in ("crop-flip-randaugment", "crop-flip-autoaugment"):
        with pytest.raises(ValueError, match=f"augment: got '{name}'; it takes 1 or 3 channels, not 4"):
            full_recipe(asked(name), (4, 6, 6), boards)
    assert full_recipe(asked("none", erase=1.0), (4, 6, 6), boards)(pictures(3, (4, 6, 6))).shape == (3, 4, 6, 6)


@pytest.mark.parametrize("says", ["No module named 'torchvision'", "operator torchvision::nms does not exist"])
def test_a_torchvision_that_is_missing_or_does_not_fit_is_told_with_what_helps(monkeypatch, tmp_path, says):
    kind = "ModuleNotFoundError" if says.startswith("No") else "RuntimeError"
    (tmp_path / "torchvision.py").write_text(f'raise {kind}("{says}\\nin detail")\n')
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    assert full_recipe(asked("crop-flip"), (3, 32, 32), MEAN) is None, "what needs none of it asks for none"
    with pytest.raises(LabError) as raised:
        full_recipe(asked("crop-flip", erase=0.1), (3, 32, 32), MEAN)
    problem = f"torchvision is missing, or does not fit torch {torch.__version__} ({says})"
    assert str(raised.value) == f"{problem}; pip install --upgrade torch torchvision, both from one index"


@pytest.mark.parametrize("sizes", [(5, 7), (4, 4, 4)])
def test_moments_are_those_of_each_channels_pixels(sizes):
    images = torch.randint(0, 256, (30, 3, *sizes), dtype=torch.uint8)
    images[:, 1], images[:, 2] = images[:, 1] // 9, 77
    mean, deviation = channel_moments(images)
    flat = images.double().transpose(0, 1).flatten(1)
    assert mean.shape == deviation.shape == (3, *[1] * len(sizes))
    expected = flat.std(1, correction=0) + torch.tensor([0, 0, 1])  # a constant channel is only moved
    torch.testing.assert_close(mean.flatten(), flat.mean(1).float())
    torch.testing.assert_close(deviation.flatten(), expected.float())
