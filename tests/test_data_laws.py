"""Laws of every data set and of every run: labels go with their examples, parts share nothing, seeds decide the order.

Labels are read from the examples again, by other means than those that made them. What must be downloaded or read from
a file is made up here, with examples that tell which they are.
"""

import hashlib
import math
import re
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from test_experiments import record
from test_lab_options import AWAY, AWAY_READING

from geolib.attention import MultiHeadAttention, Placed
from geolib.lab import Config, LabError, analysis, load, training
from geolib.lab.config import Options
from geolib.lab.data import documents, motion, order_task, sets, turns
from geolib.lab.data.documents import Bytes, read_folder, windows
from geolib.lab.experiments import EXPERIMENTS
from geolib.lab.experiments.estimates import CPU as CPU_SPEED
from geolib.lab.experiments.estimates import assumed_seconds
from geolib.lab.experiments.stats import paired_differences
from geolib.lab.experiments.tables import cells_of, provenance, table
from geolib.lab.records import read, record_files, record_of
from geolib.lab.train import DocumentRun, Run
from geolib.lab.vit import Block
from geolib.lab.watch import Diverged

CPU = torch.device("cpu")
BOARDS = ("turns", "turns-stairs", "turns-0", "turns-0.5", "turns-2")
RENDERED = ("digits", "digits-field", "digits-varied", *BOARDS, "motion")
rendered = pytest.mark.parametrize("name", RENDERED)


@pytest.fixture(scope="module")
def known():
    """known(name): a rendered set, made once for all tests."""
    made = {}
    return lambda name: made.setdefault(name, None) or made.update({name: load(name)}) or made[name]


def parts(data):
    """Images as NumPy has them, and labels, of both parts."""
    return (data.x_train.numpy(), data.y_train.numpy()), (data.x_test.numpy(), data.y_test.numpy())


def contents(images):
    """The bytes of each image."""
    return {image.tobytes() for image in images}


# What is rendered -----------------------------------------------------------------------------------------------------


@rendered
def test_a_set_is_the_one_that_runs_were_recorded_with(known, name):
    records = [read(path) for path in record_files() if path.name.startswith(f"{name}-")]
    recorded = [each.data for each in records if each.config.dataset == name]
    for told in ("name", "source", "fingerprint"):
        assert {getattr(known(name), told)} == {data[told] for data in recorded}


@rendered
def test_what_is_known_of_a_set_before_it_is_loaded_is_so(known, name):
    data, spec = known(name), sets.spec(name)
    assert (data.name, data.shape, len(data.y_train)) == (name, spec.shape, spec.images)
    sides = sets.patch_sides(spec.patch, len(data.shape) - 1)
    assert sets.patch_grid(data.shape, spec.patch) == tuple(size // side for size, side in zip(data.shape[1:], sides))
    assert spec.tokens(spec.patch) == math.prod(sets.patch_grid(data.shape, spec.patch))
    axes, pixels = len(data.shape) - 1, "x".join(map(str, data.shape[1:]))
    for patch, allowed in (
        ((1,) * len(data.shape), f"one number, or one for each of the {axes} axes"),
        (data.shape[-1] + 1, f"it must divide the image, {pixels} pixels"),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(f'patch: got {patch}; {allowed}')}$"):
            sets.patch_grid(data.shape, patch)


@pytest.mark.parametrize("name", ["digits", "digits-field", "digits-varied", "motion"])
def test_what_is_made_of_digits_says_where_these_come_from(monkeypatch, name):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(LabError, match=r"^digits come with scikit-learn: pip install scikit-learn$"):
        load(name)


@rendered
def test_no_example_is_in_both_parts(known, name):
    (train, _), (test, _) = parts(known(name))
    assert not contents(train) & contents(test)


def digit_of():
    """From a digit's pixels to what scikit-learn says it is."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return {image.astype(np.uint8).tobytes(): int(label) for image, label in zip(bunch.images, bunch.target)}


@pytest.mark.parametrize("name", ["digits", "digits-field", "digits-varied"])
def test_labels_of_digits_are_scikit_learns(known, name):
    truth, seen = digit_of(), []
    for part, (images, labels) in zip(("train", "test"), parts(known(name))):
        if name == "digits-varied" and part == "train":
            images, labels = images[: len(images) // 6], labels[: len(images) // 6]
        if name == "digits-field":
            assert images[:, :, :8, :8].sum() == images.sum()
        corner = np.ascontiguousarray(images[:, 0, :8, :8])
        seen += list(corner)
        assert [truth[image.tobytes()] for image in corner] == labels.tolist()
    assert contents(seen) == set(truth)


def test_digits_drawn_anew_look_like_their_labels(known):
    (images, labels), _ = parts(known("digits-varied"))
    plain = len(images) // 6
    flat = images.reshape(len(images), -1) / np.linalg.norm(images.reshape(len(images), -1), axis=1, keepdims=True)
    nearest = (flat[plain::7] @ flat[:plain].T).argmax(1)
    assert (labels[nearest] == labels[plain::7]).mean() > 0.5  # a tenth by chance


def test_digits_are_drawn_anew_from_the_training_part_alone(monkeypatch):
    handed = []
    monkeypatch.setattr(
        sets, "varied", lambda images, copies, seed: handed.append(images) or np.tile(images, (5, 1, 1))
    )
    data = load("digits-varied")
    assert contents(handed[0]) == contents(load("digits").x_train[:, 0].numpy())
    assert data.y_train.tolist() == 6 * data.y_train[: len(data.y_train) // 6].tolist()


@pytest.mark.parametrize("name", BOARDS)
def test_the_label_of_a_board_is_the_sign_of_the_twist_or_of_counts_and_the_twist(known, name):
    order = float(name.removeprefix("turns-")) if name[-1].isdigit() else None
    classes = order_task.CLASSES if order is None else ("below", "above")
    assert known(name).classes == classes
    # A tip by an eighth of a turn as a quaternion a + b j of two complex numbers: about j to the right, about i down.
    c, s = math.cos(math.pi / 8), math.sin(math.pi / 8)
    tips = {0: (1, 0), 1: (c, s), 2: (c + 1j * s, 0)}
    for images, labels in parts(known(name)):
        for picture, label in zip(images[:150], labels[:150]):
            (start,), (end,) = (np.argwhere(picture[channel]).tolist() for channel in (2, 3))
            corner = [[start[0], j] for j in range(start[1], end[1])] + [[i, end[1]] for i in range(start[0], end[0])]
            way = sorted(np.argwhere(picture[4]).tolist(), key=sum) if len(picture) == 5 else [*corner, end]
            assert way[0] == start
            assert way[-1] == end
            a, b, more = 1 + 0j, 0j, 0
            for i, j in way[1:-1]:
                more += bool(picture[0, i, j]) - bool(picture[1, i, j])
                u, v = tips[1 if picture[0, i, j] else 2 if picture[1, i, j] else 0]
                a, b = u * a - v * b.conjugate(), u * b + v * a.conjugate()
            twist = 4 * a.real * b.imag  # twice the sine of the turn times the upright axis, k
            assert abs(twist) > 1e-9
            assert label == (twist > 0 if order is None else more + order * twist > 0)


def test_the_class_of_a_clip_is_the_way_its_digit_goes(known):
    data = known("motion")
    rows = torch.arange(motion.SIDE, dtype=torch.float64)
    for x, y in ((data.x_train, data.y_train), (data.x_test, data.y_test)):
        bright = (x[:400, 0].double() - (motion.NOISE - 1)).clamp(min=0)  # what noise alone never reaches
        whole = bright.sum((-1, -2))
        at = torch.stack([(bright.sum(-1) * rows).sum(-1), (bright.sum(-2) * rows).sum(-1)], -1) / whole[..., None]
        legs = at[:, 3] - at[:, 0], at[:, 7] - at[:, 4]  # before the turn, and after it, wherever it is
        ways = torch.tensor(list(motion.DIRECTIONS.values()), dtype=torch.float64)
        first, then = ((leg @ ways.T).argmax(1).tolist() for leg in legs)
        names = list(motion.DIRECTIONS)
        told = [f"{names[a]}, then {names[b]}" for a, b in zip(first, then)]
        right = [word == data.classes[label] for word, label in zip(told, y[:400].tolist())]
        assert np.mean(right) > 0.95
        assert set(y[:16].tolist()) == set(range(8)), "a few clips have all classes"


def test_clips_share_neither_noise_nor_digits_between_the_parts(known):
    (train, _), (test, said) = parts(known("motion"))
    rows = [
        set(clips[:, 0].reshape(-1, motion.SIDE).view(f"V{motion.SIDE}").ravel().tolist()) for clips in (train, test)
    ]
    assert not rows[0] & rows[1]
    assert len(rows[1]) == test[:, 0].size // motion.SIDE, "the noise of a frame is its own"
    (mine, _), (others, _) = parts(load("digits"))
    originals = 7.0 * np.concatenate([mine, others]).reshape(-1, 64)
    sizes = (originals**2).sum(1)
    held_out = 0
    for clip, label in zip(test[:40, 0].astype(float), said):
        found = []
        for turn in (3, 4):
            way = motion.path(int(label), turn)
            way = way - way.min(0)
            room = motion.SIDE - 8 - way.max(0)
            for top in range(room[0] + 1):
                for left in range(room[1] + 1):
                    cut = [f[top + i : top + i + 8, left + j : left + j + 8] for f, (i, j) in zip(clip, way)]
                    mean = np.mean(cut, 0).ravel() - (motion.NOISE - 1) / 2
                    far = sizes - 2 * originals @ mean + mean @ mean
                    found.append((far.min(), far.argmin()))
        held_out += min(found)[1] >= len(mine)
    assert held_out >= 38


# What is read from files ----------------------------------------------------------------------------------------------


def numbered(count, shape, seed):
    """Images of which each tells its number, and labels that no rule gives."""
    images = np.zeros((count, *shape), np.uint8)
    images[:, 1, 2], images[:, 3, 5] = np.arange(count)[:, None] // 256, np.arange(count)[:, None] % 256
    return images, np.random.RandomState(seed).randint(100, size=count)


def number_of(images):
    """The numbers that images tell."""
    return 256 * images[:, 0, 1, 2].astype(int) + images[:, 0, 3, 5]


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "cifar100-20"])
def test_prepared_images_keep_their_labels_and_their_part(tmp_path, monkeypatch, name):
    (x, y), (u, v) = numbered(900, (32, 32, 3), 0), numbered(700, (32, 32, 3), 1)
    u[:, 9, 9] = 255
    classes = 10 if name == "cifar10" else 100
    words = np.array([f"class {i}" for i in range(classes)])
    file = tmp_path / f"{name.partition('-')[0]}.npz"
    np.savez(file, x_train=x, y_train=y % classes, x_test=u, y_test=v % classes, classes=words)
    monkeypatch.setenv("GEOLIB_DATA", str(tmp_path))
    data = load(name)
    for (images, labels), truth, mark in zip(parts(data), (y, v), (0, 255)):
        assert labels.tolist() == (truth % classes)[number_of(images)].tolist()
        assert (images[:, :, 9, 9] == mark).all()
        kept = (truth % classes < len(data.classes)).sum()
        assert len(images) == len(contents(images)) == kept
    assert data.name == name
    assert data.classes == tuple(words[: 20 if name.endswith("20") else classes])
    assert data.source.startswith(f"prepared arrays ({file.name} in $GEOLIB_DATA)")
    assert ("the first 20 classes" in data.source) == name.endswith("20")


def test_every_volume_has_the_label_of_its_object_and_stands_as_it_was(tmp_path):
    objects, azimuths = 24, 3
    random = np.random.RandomState(5)
    voxels = random.rand(objects, azimuths, 32, 32, 32) < 0.02
    voxels[:, :, 0, 0] = (np.arange(objects)[:, None, None] >> np.arange(32)) & 1 == 1
    label, held_out = random.randint(10, size=objects), random.rand(objects) < 0.3
    file = tmp_path / "modelnet10.npz"
    np.savez(file, voxels=voxels, label=label, is_test=held_out, classes=np.array([*"abcdefghij"]))
    seen = []
    data = sets.read_voxels(file)
    assert (data.name, data.classes) == ("modelnet10", tuple("abcdefghij"))
    assert data.source == "voxels (modelnet10.npz in $GEOLIB_DATA), 3 azimuths an object, split by object"
    for part, (images, labels) in enumerate(parts(data)):
        which = (images[:, 0, 0, 0].astype(int) << np.arange(32)).sum(1)
        assert labels.tolist() == label[which].tolist()
        assert (held_out[which] == bool(part)).all()
        assert all(np.bincount(which)[np.unique(which)] == azimuths)
        for image, own in zip(images, which):
            assert any(np.array_equal(image[0], view) for view in voxels[own])
        seen += which.tolist()
    assert sorted(seen) == sorted(azimuths * list(range(objects)))


# Documents ------------------------------------------------------------------------------------------------------------


def test_no_author_is_in_both_parts_and_every_text_is_in_one(tmp_path):
    for author in range(25):
        for work in range(1 + author % 3):
            path = tmp_path / f"author {author}" / f"work {work}.txt"
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"{author}: café {work}", "utf-8")
    data = read_folder(tmp_path, "documents", "made up")
    authors = [{text.decode().partition(":")[0] for text in part.texts} for part in (data.train, data.test)]
    assert not authors[0] & authors[1]
    assert [len(part) for part in authors] == [23, 2]
    assert len({*data.train.texts, *data.test.texts}) == sum(1 + author % 3 for author in range(25))
    assert max(data.train.texts[0]) > 127, "a letter with an accent is bytes above those of ASCII"


@pytest.mark.parametrize("length", [6, 7, 8, 12, 13])
def test_a_window_never_leaves_its_document(length):
    part = Bytes(["one", "two"], [bytes(length), b"x" * 20])
    for document, start in windows(part, 3).tolist():
        assert start + 3 + 1 <= part.lengths[document]


@pytest.mark.parametrize("count", [1, 2, 3, 25])
def test_of_so_many_modules_or_authors_a_tenth_and_at_least_one_is_held_out(tmp_path, monkeypatch, count):
    for i in range(count):
        (tmp_path / f"m{i}.py").write_text(f"# {i}".ljust(documents.STDLIB_BYTES))  # just long enough
    # Those whose names have the first fingerprints, so that they are the same everywhere.
    names = sorted((path.name for path in tmp_path.iterdir()), key=lambda n: hashlib.sha256(n.encode()).hexdigest())
    monkeypatch.setattr(documents.sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    monkeypatch.setenv("GEOLIB_DOCUMENTS", str(tmp_path))
    for name in ("stdlib", "documents"):
        if count == 1:
            with pytest.raises(LabError, match=r"stdlib: Python.s source is not here|all of it is by one author"):
                load(name)
        else:
            data, held = load(name), max(1, count // 10)
            assert (data.name, len(data.test.texts), len(data.train.texts)) == (name, held, count - held)
            assert {f"{title}.py" for title in data.test.titles} == {*names[:held]}
            assert str(tmp_path) not in data.source
            assert {"stdlib": "Python's standard library", "documents": "GEOLIB_DOCUMENTS"}[name] in data.source


def test_pythons_library_is_read_whole_each_module_in_one_part_and_most_of_them_to_train():
    data = load("stdlib")
    assert not set(data.train.titles) & set(data.test.titles)
    assert not {*data.train.texts} & {*data.test.texts}
    assert len(data.train.titles) > 8 * len(data.test.titles)


@pytest.mark.parametrize("half", ["train", "test"])
def test_what_a_set_is_told_by_covers_both_parts(half):
    data = load("stdlib")
    other = replace(data, **{half: Bytes(getattr(data, half).titles[:1], getattr(data, half).texts[:1])})
    assert other.fingerprint != data.fingerprint


# What a run makes of a set --------------------------------------------------------------------------------------------


TINY = {"width": 8, "heads": 2, "layers": 1, "batch": 50, "epochs": 2}


def telling(count=230, tests=60):
    """A set of images of which each tells its number; labels that no rule gives; another light in the part to test."""
    (x, y), (u, v) = numbered(count, (8, 8, 1), 0), numbered(tests, (8, 8, 1), 1)
    x, u = (torch.from_numpy(images.transpose(0, 3, 1, 2).copy()) for images in (x, u))
    y, v = (torch.from_numpy(labels % 10).long() for labels in (y, v))
    return sets.Dataset("digits", x, y, u + 100, v, tuple("0123456789"), "made up")


def a_run(data, **changes):
    """A run that has not begun."""
    return Run(Config("digits", **TINY | changes), data, CPU, Options(device="cpu", quiet=True))


def order_of(run):
    """The images' numbers in the order of an epoch, and the labels that come with them."""
    batches = list(run.begin_epoch())
    numbers = [number for images, _ in batches for number in number_of(images.numpy()).tolist()]
    return numbers, [label for _, labels in batches for label in labels.tolist()]


@pytest.mark.parametrize("size", [None, 120])
def test_an_epoch_has_each_chosen_image_once_with_its_own_label(size):
    data = telling()
    run = a_run(data, train_size=size)
    numbers, labels = order_of(run)
    assert len(set(numbers)) == len(numbers) == (size or len(data.y_train))
    assert numbers != sorted(numbers)
    assert labels == data.y_train[numbers].tolist()
    tested = number_of(run.test_images.numpy() - 100)
    assert run.test_labels.tolist() == data.y_test[tested].tolist()
    assert int(run.test_images.min()) == 100


def test_a_seed_decides_the_order_the_start_and_what_is_drawn_and_each_epoch_has_its_own():
    data = telling()
    orders, starts, drawn = set(), set(), set()
    for seed in (0, 0, 1):
        run = a_run(data, seed=seed, augment="crop-flip")
        starts.add(float(next(run.model.parameters()).detach().sum()))
        for epoch in (0, 1):
            run.epoch = epoch
            run.augment = lambda images: (drawn.add(float(torch.rand(()))), images)[1]
            orders.add(tuple(order_of(run)[0]))
    assert (len(orders), len(starts)) == (4, 2)
    assert len(drawn) == 4 * run.steps


@pytest.mark.parametrize("size", [None, 120])
def test_images_are_standardised_by_the_moments_of_those_trained_on(size):
    data = telling()
    run = a_run(data, train_size=size)
    chosen = run.images.double()
    assert float(run.mean) == pytest.approx(float(chosen.mean()), rel=1e-6)
    assert float(run.deviation) == pytest.approx(float(chosen.std(correction=0)), rel=1e-6)
    dark = a_run(replace(data, x_test=torch.zeros_like(data.x_test)), train_size=size)
    assert float(run.mean) == float(dark.mean)
    assert float(run.deviation) == float(dark.deviation)


def test_a_model_is_handed_standardised_images():
    run, handed = a_run(telling()), []
    run.model.register_forward_pre_hook(lambda model, given: handed.append(given[0].double()))
    run.scores(run.images)
    assert float(handed[0].mean()) == pytest.approx(0, abs=1e-5)
    assert float(handed[0].std(correction=0)) == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("every", [1, 2, 3, 4, 9])
def test_a_run_is_evaluated_every_so_many_epochs_and_at_its_end(every):
    run = a_run(telling(), epochs=8, eval_every=every)
    run.evaluate = lambda: {"test_accuracy": 0.5}
    for _ in range(8):
        run.end_epoch()
    evaluated = [row["epoch"] for row in run.metrics if "test_accuracy" in row]
    assert evaluated == [*range(every, 8, every), 8]


def test_dropout_differs_from_step_to_step_and_is_away_in_evaluation():
    run = a_run(telling(), dropout=0.5, epochs=3)
    drawn = []
    run.take_step = lambda *batch: drawn.append(float(torch.rand(()))) or torch.zeros(())
    modes = []
    for epoch in range(2):
        for batch in run.begin_epoch():
            modes.append(run.model.training)
            run.update(batch)
        assert len(set(drawn)) == run.steps * (epoch + 1)
        run.losses.zero_()
        run.model.register_forward_pre_hook(lambda model, _: modes.append(not model.training))
        run.end_epoch()
    assert all(modes)


def test_a_subset_is_drawn_from_all_rows():
    numbers = number_of(a_run(telling(), train_size=120, test_size=30).images.numpy())
    assert 40 < (numbers >= 120).sum() < 80


@pytest.mark.parametrize("stop", [1, 2, 3, 4])
def test_a_run_that_goes_on_inside_a_block_meets_the_images_that_it_would_have_met(tmp_path, stop):
    def images_of(run, most):
        found = []
        for _, batch in zip(range(most), run.begin_epoch()):  # not one more is drawn
            run.update(batch)
            found.append(batch[0])
        return found

    def begun():
        run = a_run(telling(), augment="crop-flip", epochs=1)
        run.ahead = 2
        return run

    whole, cut, again = begun(), begun(), begun()
    wanted, before = images_of(whole, 9), images_of(cut, stop)
    cut.save(tmp_path / "run.pt")
    again.restore(tmp_path / "run.pt")
    again.ahead = 2
    for found, expected in zip(before + images_of(again, 9), wanted, strict=True):
        assert torch.equal(found, expected)


def test_both_branches_of_a_block_are_dropped():
    x = torch.randn(2, 5, 8)
    assert torch.equal(Block(MultiHeadAttention(8, 2), 8, 16, dropout=1.0)(x, Placed()), x)


def test_a_moved_picture_stands_one_shift_further_at_every_patch(monkeypatch):
    run, stood = a_run(telling(), method="rope-axial"), []
    kept = analysis.standing_at
    monkeypatch.setattr(analysis, "standing_at", lambda net, positions: stood.append(positions) or kept(net, positions))
    analysis.moved_accuracy(run, 3)
    assert torch.equal(stood[0], run.model.positions + 3)


def test_rates_fall_along_the_whole_run_and_a_row_is_the_mean_of_its_epoch():
    run = a_run(telling(), epochs=3, warmup=2, eval_every=2, lr=0.25)
    rates, losses = [], []

    def take_step(*batch):
        rates.append(float(run.optimizer.param_groups[0]["lr"]))
        losses.append(float(len(losses) ** 2))
        return torch.tensor(losses[-1])

    run.take_step = take_step
    for _ in range(3):
        for batch in run.begin_epoch():
            run.update(batch)
        run.end_epoch()
    total = 3 * run.steps
    cosine = [0.125 * (1 + math.cos(math.pi * k / (total - 2))) for k in range(total - 2)]
    assert rates == pytest.approx([0.125, 0.25, *cosine])
    parts_of = np.array(losses).reshape(3, -1)
    assert [row["train_loss"] for row in run.metrics] == pytest.approx(parts_of.mean(1))
    assert [row["epoch"] for row in run.metrics if "test_accuracy" in row] == [2, 3]


def a_reading(**changes):
    """A run on documents that has not begun."""
    texts = [bytes((31 * letter + i) % 251 for i in range(41)) for letter in range(8)]
    part = Bytes([f"text {i}" for i in range(8)], texts)
    settings = {"method": "softmax", "width": 8, "heads": 2, "layers": 1, "context": 8, "batch": 5}
    settings |= {"test_size": 16, "train_size": 16, **changes}
    data = sets.Documents("documents", part, part, "made up")
    return DocumentRun(Config("documents", **settings), data, CPU, Options(device="cpu", quiet=True))


def test_data_of_another_kind_than_the_configurations_are_named():
    for mine, other, words in (
        (a_run(telling()), a_reading(), "Documents for the data set digits"),
        (a_reading(), a_run(telling()), "Dataset for the data set documents"),
    ):
        with pytest.raises(LabError, match=f"^data: got {words}, which is of another kind"):
            training.new_run(mine.config, other.data, CPU, Options())
        assert type(training.new_run(mine.config, mine.data, CPU, Options())) is type(mine)


KINDS = pytest.mark.parametrize("begun", [lambda **c: a_run(telling(), **c), a_reading], ids=["images", "documents"])


@KINDS
def test_what_is_done_is_counted_in_steps_and_in_what_was_read(begun):
    run, each, read, steps = begun(epochs=2), [], 0, 0
    assert (run.epoch, run.step, run.metrics, run.notes) == (0, 0, [], [])
    assert (run.evaluation_seconds, run.preparing_seconds) == (0.0, 0.0)
    assert abs(datetime.fromisoformat(run.started) - datetime.now(UTC)) < timedelta(minutes=1)
    assert run.started.endswith("+00:00")
    run.take_step = lambda inputs, labels: each.append(len(inputs)) or torch.tensor(2.0)
    unit, context = run.unit, getattr(run, "context", 1)
    assert unit == ("tokens" if run.config.is_text else "images")
    for epoch in (1, 2):
        for batch in run.begin_epoch():
            assert (run.done, run.seen, run.progress) == (steps, read, context * read)
            run.update(batch)
            steps, read = steps + 1, read + each[-1]
            assert (run.done, run.seen, run.progress) == (steps, read, context * read)
        before = dict(run.headline)
        run.end_epoch()
        assert run.epoch == epoch
        row = run.metrics[-1]
        figure = "test_bits" if run.config.is_text else "test_accuracy"
        assert {*row} == {"epoch", "train_loss", "seconds", "test_loss", figure}
        shown = f"{row['test_bits']:.3f}" if run.config.is_text else f"{100 * row['test_accuracy']:.1f}%"
        assert run.headline == {"bits" if run.config.is_text else "accuracy": shown}
        if epoch == 1:  # nothing has been tested yet
            assert before == ({"bits": f"{2 / math.log(2):.3f}"} if run.config.is_text else {})
    assert (run.total, run.progress_total) == (steps, context * read)
    assert read == 2 * run.examples
    assert set(run.sizes.values()) >= {run.examples, run.test_examples}


@KINDS
@pytest.mark.parametrize("name", ["train_size", "test_size"])
def test_more_than_there_is_cannot_be_asked_for(begun, name):
    whole = begun(**{name: None})
    there = whole.examples if name == "train_size" else whole.test_examples
    assert {begun(**{name: there}).sizes[key] for key in whole.sizes} == set(whole.sizes.values())
    unit = "windows" if whole.config.is_text else "images"
    with pytest.raises(LabError, match=f"^{name}: got {there + 1}; there are only {there} {unit}$"):
        begun(**{name: there + 1})


@KINDS
def test_runs_that_differ_in_anything_but_the_size_asked_for_are_tested_on_the_same(begun):
    reads = begun is a_reading
    usual = {"method": "softmax" if reads else "rope-axial", "test_size": 16}

    def tested_on(**changes):
        run = begun(**usual | changes)
        return (run.test_windows if reads else run.test_images).tolist()

    same = tested_on()
    for name, (value, beside) in (AWAY_READING if reads else AWAY).items():
        if name not in ("test_size", "context"):
            assert tested_on(**beside | {name: value}) == same, f"{name} decides what is tested on"


@KINDS
def test_a_run_draws_from_the_seeds_that_recorded_runs_drew_from(begun, monkeypatch):
    asked, derived = [], training.derived_seed
    monkeypatch.setattr(training, "derived_seed", lambda *given: asked.append(given) or derived(*given))
    run = begun(seed=3, **({} if begun is a_reading else {"dropout": 0.5}))
    run.epoch = 1
    batches = run.begin_epoch()
    for _ in range(2):
        run.update(next(batches))
    dropped = [(3, 1, f"dropout in step {step} of process 0") for step in (0, 1)]
    of_images = [(3, 1, "order"), (3, 1, "augmentation and dropout"), *dropped]
    assert asked == ([(3, 0, "order")] if begun is a_reading else of_images)  # documents have one order for all epochs
    for seed, epoch, purpose in asked:
        named = f"{seed}/{epoch}/{purpose}".encode()
        assert derived(seed, epoch, purpose) == int(hashlib.sha256(named).hexdigest()[:16], 16) // 2


@KINDS
def test_the_order_of_an_epoch_is_the_same_whatever_others_draw(begun):
    run, read = begun(), []
    for _ in range(2):
        torch.rand(3)
        read.append([labels.tolist() for _, labels in run.begin_epoch()])
    assert read[0] == read[1]


@KINDS
def test_a_run_is_tested_on_the_part_that_recorded_runs_were_tested_on(begun):
    whole, some = begun(test_size=None), begun(test_size=12)
    reads = some.config.is_text
    if reads:
        every, tested = windows(some.data.test, some.context), some.test_windows
    else:
        every, tested = whole.test_images, some.test_images
        assert torch.equal(every, some.data.x_test)
    drawn = torch.randperm(len(every), generator=torch.Generator().manual_seed(0))[:12]
    assert torch.equal(tested, every[drawn])


NOWHERE = torch.device("meta")
"""A device without numbers, in a GPU's stead."""


def parts_elsewhere(run):
    """The names of what a run holds that does not lie on its device."""
    held = vars(run) | dict(run.model.named_parameters()) | dict(run.model.named_buffers())
    return {name for name, x in held.items() if isinstance(x, torch.Tensor) and x.device != run.device}


@KINDS
def test_what_a_run_computes_with_lies_on_its_device(begun, monkeypatch):
    here, ahead = begun(), []
    monkeypatch.setattr(training, "batches_ahead", lambda *given: ahead.append(given) or 1)
    run = type(here)(here.config, here.data, NOWHERE, here.options)
    assert ahead == [(run.config.batch, NOWHERE)]
    assert parts_elsewhere(run) == ({"windows", "test_windows"} if run.config.is_text else set())
    monkeypatch.setattr(training, "without_waiting", lambda x, device: x.to(device))
    order = []
    monkeypatch.setattr(training, "augmented", lambda *given: order.append(given[2]) or iter([given[:2]]))
    assert {part.device for part in next(run.begin_epoch())} | {rows.device for rows in order} == {NOWHERE}
    for most in (training.EVALUATION_BATCH, training.EVALUATION_TOKENS):
        monkeypatch.setitem(most, NOWHERE.type, 24)
    read_back = []
    monkeypatch.setattr(torch.Tensor, "item", lambda x: read_back.append(x.device) or 0.0)
    run.evaluate()
    assert set(read_back) == {NOWHERE}


@KINDS
def test_a_run_multiplies_in_the_precision_of_its_configuration_else_of_its_options(begun):
    plain, asked = begun(), begun(precision="bfloat16")
    told = type(plain)(plain.config, plain.data, CPU, replace(plain.options, precision="bfloat16"))
    assert [run.precision for run in (plain, asked, told)] == ["float32", "bf16", "bf16"]


@KINDS
def test_products_in_bfloat16_keep_no_narrowed_weight_from_one_pass_to_the_next(begun, monkeypatch):
    asked, autocast = [], torch.autocast
    monkeypatch.setattr(torch, "autocast", lambda *given, **how: asked.append((*given, how)) or autocast(*given, **how))
    for precision, wanted in ((None, []), ("bfloat16", [("cpu", torch.bfloat16, {"cache_enabled": False})])):
        run = begun(precision=precision)
        inputs, _ = next(run.begin_epoch())
        assert run.scores(inputs).dtype == torch.float32
        assert [one for one in asked if one[-1] != {"enabled": False}] == wanted


@KINDS
def test_the_loss_is_that_of_the_model_that_is_handed(begun):
    run, other = begun(), begun(seed=1).model
    inputs, labels = next(run.begin_epoch())
    mine, theirs = run.loss(run.model, inputs, labels), run.loss(other, inputs, labels)
    assert not torch.equal(mine, theirs)
    scores = run.scores(inputs, other).double().log_softmax(-1)
    expected = -scores.gather(-1, labels[..., None]).mean()
    assert theirs.item() == pytest.approx(expected.item(), rel=1e-5)
    assert torch.equal(run.scores(inputs), run.scores(inputs, run.model))


@KINDS
def test_what_a_checkpoint_keeps_comes_back(begun, tmp_path, monkeypatch):
    clock = SimpleNamespace(monotonic=lambda: clock.now, now=100.0)
    monkeypatch.setattr("geolib.lab.train.time", clock)
    run, path = begun(epochs=3, dropout=0.0), tmp_path / "run.pt"
    for batches in (None, 2):
        for _, batch in zip(range(batches or run.steps), run.begin_epoch()):
            run.update(batch)
            clock.now += 1
        run.end_epoch() if batches is None else None
    run.evaluation_seconds, run.prepared_seconds, run.peak_bytes = 0.25, 0.5, 2**60
    run.started = "some time ago"
    run.save(path)
    clock.now += 1000
    again = begun(epochs=3, dropout=0.0)
    again.restore(path)
    for name in ("epoch", "step", "metrics", "started", "seconds", "evaluation_seconds", "preparing_seconds"):
        wanted = run.seconds - 1000 if name == "seconds" else getattr(run, name)
        assert getattr(again, name) == wanted, name
    assert (again.peak_bytes, again.precision) == (2**60, "float32")
    assert torch.equal(again.losses, run.losses)
    for mine, theirs in ((run.model, again.model), (run.optimizer, again.optimizer)):
        torch.testing.assert_close(mine.state_dict(), theirs.state_dict(), rtol=0, atol=0)
    narrow = begun(epochs=3, dropout=0.0, precision="bfloat16")
    with pytest.raises(LabError, match=r"run\.pt: made with configuration .*; delete it to start over$"):
        narrow.restore(path)
    again.options = replace(again.options, precision="bfloat16")
    with pytest.raises(LabError, match=r"run\.pt: made with precision float32, not bf16; delete it to start over$"):
        again.restore(path)


def test_a_rate_that_a_recorded_step_reads_comes_back_to_its_device(tmp_path):
    run, path = a_run(telling()), tmp_path / "run.pt"
    run.device = NOWHERE
    for group in run.optimizer.param_groups:
        group["lr"] = torch.tensor(0.5)
    run.save(path)
    run.restore(path)
    assert {group["lr"].device for group in run.optimizer.param_groups} == {NOWHERE}


def test_a_checkpoint_is_opened_on_the_host_whatever_device_wrote_it(tmp_path, monkeypatch):
    path, opened, load = tmp_path / "run.pt", [], torch.load
    a_run(telling()).save(path)
    monkeypatch.setattr(torch, "load", lambda path, **how: opened.append(how) or load(path, **how))
    a_run(telling()).restore(path)
    assert opened == [{"map_location": "cpu", "weights_only": True}]


@pytest.mark.parametrize("content", [{}, [], torch.zeros(3), {"identity": {}}])
def test_a_file_that_holds_no_run_is_named_as_one_of_another_run(tmp_path, content):
    torch.save(content, tmp_path / "run.pt")
    with pytest.raises(LabError, match=r"run\.pt: made with format None, not 3; delete it to start over$"):
        a_run(telling()).restore(tmp_path / "run.pt")


def test_a_checkpoint_is_read_and_never_run(tmp_path):
    class Code:
        def __reduce__(self):
            return Path.touch, (tmp_path / "ran",)

    torch.save({"identity": Code()}, tmp_path / "run.pt")
    with pytest.raises(LabError, match=r"run\.pt: not a whole checkpoint"):
        a_run(telling()).restore(tmp_path / "run.pt")
    assert not (tmp_path / "ran").exists()


def test_a_loss_or_a_weight_that_is_not_finite_is_told_with_its_step():
    run = a_run(telling())
    batches = run.begin_epoch()
    run.update(next(batches))
    run.update(next(batches))
    run.check_finite()
    with torch.no_grad():
        next(run.model.parameters()).flatten()[0] = math.inf
    with pytest.raises(Diverged, match=r"^a weight is not finite after step 2 of epoch 1$"):
        run.check_finite()
    run.losses[1] = math.nan
    with pytest.raises(Diverged, match=r"^the loss is nan at step 2 of epoch 1$"):
        run.check_finite()


@pytest.mark.parametrize("amx", [False, True])
@pytest.mark.parametrize("avx", [False, True])
def test_a_processor_multiplies_bfloat16_by_either_set_of_instructions(monkeypatch, amx, avx):
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx)
    assert training.multiplies_bfloat16() is (amx or avx)


@pytest.mark.parametrize("able", [False, True])
@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_the_precision_is_the_configurations_else_the_options_else_what_the_device_is_good_at(monkeypatch, kind, able):
    monkeypatch.setattr(training, "multiplies_bfloat16", lambda: able)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: able or including_emulation)
    recorded = {"float32": "float32", "bfloat16": "bf16"}
    for configured, option in product((None, *recorded), (None, "auto", *recorded)):
        asked = (configured, option, torch.device(kind))
        if configured and option in recorded and option != configured:
            says = f"^precision: got '{option}'; the run's configuration says '{configured}'$"
            with pytest.raises(LabError, match=says):
                training.precision_of(*asked)
            continue
        best = "bf16" if able and (kind == "cuda" or option == "auto") else "float32"
        assert training.precision_of(*asked) == recorded.get(configured or option, best)
    for configured in (None, "float32"):
        with pytest.raises(LabError, match=r"^precision: got 'half'; it is one of auto, float32, bfloat16$"):
            training.precision_of(configured, "half", torch.device(kind))


def test_a_run_takes_the_device_that_it_is_told(monkeypatch):
    monkeypatch.setattr(training, "new_run", lambda config, data, device, options: pytest.fail(f"begun on {device}"))
    with pytest.raises(LabError, match=r"^device 'cuda:99' is not here; there is cpu"):
        training.train(Config("digits"), telling(), device="cuda:99", quiet=True)


@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.parametrize("rank", [None, 0, 1])
def test_a_device_is_the_one_named_else_a_gpu_of_ones_own_and_one_that_is_not_here_is_told(monkeypatch, count, rank):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    if rank is not None:
        monkeypatch.setenv("LOCAL_RANK", str(rank))
    own = f"cuda:{rank or 0}"
    here = {"cpu": "cpu", **{f"cuda:{i}": f"cuda:{i}" for i in range(count)}}
    here |= {"cuda": own} if own in here else {}
    here |= {None: own} if own in here else {} if count else {None: "cpu"}
    for name in (None, "cpu", "cuda", "cuda:0", "cuda:1", "cuda:2", "cuda:99", "cuda:-1", "gpu", "cpu:1", "cpu:0", ""):
        if name in here:
            assert training.pick_device(name) == torch.device(here[name])
            continue
        there = ", ".join(["cpu", *(f"cuda:{i}" for i in range(count))])
        with pytest.raises(
            LabError,
            match=f"^device '{own if name in (None, 'cuda') and rank else name}' is not here; there is {there}$",
        ):
            training.pick_device(name)


def test_windows_tested_on_come_from_all_documents_and_a_reader_is_told_what_follows():
    run = a_reading(batch=4)
    part = run.data.train
    assert len(run.test_windows[:, 0].unique()) > 4
    read = []
    for epoch in (0, 1):
        run.epoch = epoch
        for tokens, following in run.begin_epoch():
            assert torch.equal(tokens[:, 1:], following[:, :-1])
            read += [bytes(row) for row in torch.cat([tokens, following[:, -1:]], 1).tolist()]
    every = [part.texts[i][start : start + 9] for i, start in windows(part, 8).tolist()]
    assert all(row in every for row in read)
    assert len(read) == len(set(read)) == 32, "new windows as long as there are any"


# What a record says ---------------------------------------------------------------------------------------------------


def falling(accuracies=(0.5, 0.9, 0.7), seed=0, method="rope-axial"):
    """The record of a run whose last epoch is not its best, evaluated every second epoch and at the end."""
    config = Config("cifar10", method, epochs=5, eval_every=2, seed=seed)
    made = record(config, accuracies[-1])
    rows = [dict(row) for row in made.metrics]
    for row, accuracy in zip((rows[1], rows[3], rows[4]), accuracies):
        row |= {"test_loss": 1 - accuracy, "test_accuracy": accuracy, "test_bits": 3 - accuracy}
    return replace(made, metrics=tuple(rows))


def test_a_records_accuracy_is_that_of_the_last_epoch_not_of_the_best():
    made = falling()
    assert made.accuracy == 0.7
    assert made.bits == pytest.approx(2.3)
    assert made.result == "70.00%"
    assert made.curve("test_accuracy") == ([2, 4, 5], [0.5, 0.9, 0.7])


def test_differences_are_those_of_last_epochs_and_pair_runs_by_their_seeds():
    ours = [falling((0.5, 0.9, 0.6 + 0.1 * seed), seed) for seed in (2, 0, 1)]
    theirs = [falling((0.5, 0.2, 0.5), seed) for seed in (0, 1, 2)]
    assert paired_differences(ours, theirs).differences == pytest.approx((10, 20, 30))


def test_a_table_shows_the_last_epoch():
    experiment = EXPERIMENTS["riemannformer-table1"]
    config = experiment.configs("full")[0]
    made = record(config, 0.625)
    rows = [dict(row) for row in made.metrics]
    rows[0] |= {"test_loss": 0.1, "test_accuracy": 0.99}
    shown = str(table(experiment, "full", [replace(made, metrics=tuple(rows))]))
    assert "62.50" in shown
    assert "99.00" not in shown


def test_a_speed_is_that_of_training_alone_and_of_documents_in_tokens():
    run = a_run(telling())
    run.epoch, run.total_seconds, run.evaluation_seconds, run.prepared_seconds = 2, 10.0, 4.0, 2.0
    made = record_of(run)
    assert made.images_per_second == pytest.approx(2 * 230 / 4)
    assert made.speed == "115 images/s"
    config = Config("documents", "softmax", context=512)
    assert replace(made, config=config).speed == f"{512 * 115} tokens/s"


def test_a_table_counts_its_own_runs_whatever_else_is_recorded():
    experiment = EXPERIMENTS["riemannformer-table1"]
    planned = experiment.configs("full")
    others = [replace(planned[0], seed=seed) for seed in range(100, 104)]
    told = provenance(experiment, "full", cells_of(experiment, "full", [record(c, 0.5) for c in (planned[0], *others)]))
    assert told[0].startswith(f"{len(planned) - 1} of {len(planned)} runs")


@pytest.mark.parametrize("name", ["epochs", "train_size", "test_size", "width", "layers"])
def test_half_of_the_work_is_said_to_take_less(name):
    config = Config("cifar10", "rope-axial", epochs=8, train_size=4000, test_size=4000, batch=128, heads=4, layers=4)
    less = replace(config, **{name: getattr(config, name) // 2})
    seconds = [assumed_seconds(each, CPU_SPEED) for each in (config, less)]
    assert seconds[1] < 0.99 * seconds[0]
