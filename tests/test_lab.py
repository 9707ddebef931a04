"""The lab: data and its errors, configurations, the loop and its resumption, records, tables, the command line."""

import itertools
import math
import os
import re
import signal
import subprocess
import sys
import types
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from afresh import Started

from geolib.encodings import METHODS, is_name
from geolib.lab import Config, LabError, load, optimiser, read_all, run, text_attention, train
from geolib.lab import records as lab_records
from geolib.lab.__main__ import main
from geolib.lab.data.augmentation import channel_moments, crop_and_flip
from geolib.lab.experiments import EXPERIMENTS, estimates, table
from geolib.lab.experiments.estimates import GPU, assumed_seconds
from geolib.lab.optimiser import learning_rate
from geolib.lab.train import Run, subset
from geolib.lab.vit import ViT, patches
from geolib.lab.watch import Diverged, Stopped, Watch

ROOT = Path(__file__).resolve().parents[1]
TINY = {"width": 16, "heads": 2, "layers": 1, "batch": 32, "epochs": 3, "dropout": 0.2}


pytestmark = pytest.mark.usefixtures("one_thread")


def cifar_arrays(classes=10, train=160, test=40):
    random = np.random.RandomState(3)
    labels = {"train": random.randint(0, classes, train), "test": random.randint(0, classes, test)}
    arrays = {f"y_{part}": y.astype(np.uint8) for part, y in labels.items()}
    for part, y in labels.items():
        arrays[f"x_{part}"] = random.randint(0, 256, (len(y), 32, 32, 3)).astype(np.uint8)
    return arrays | {"classes": np.array([f"class {i}" for i in range(classes)])}


@pytest.fixture
def prepared(tmp_path, monkeypatch):
    """A folder of prepared arrays in $GEOLIB_DATA: a small CIFAR-10 and CIFAR-100 of noise."""
    folder = tmp_path / "data"
    folder.mkdir()
    np.savez(folder / "cifar10.npz", **cifar_arrays())
    np.savez(folder / "cifar100.npz", **cifar_arrays(100))
    monkeypatch.setenv("GEOLIB_DATA", str(folder))
    return folder


@pytest.fixture
def no_torchvision(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)


def stand_in_torchvision(monkeypatch, tmp_path, fail=None, cache="cache"):
    """torchvision as far as the lab uses it, or an error when it is asked to download."""
    arrays = cifar_arrays()

    class CIFAR10:
        def __init__(self, root, train, download):
            assert Path(root) == tmp_path / cache / "geolib"
            assert download, "without being asked it fetches nothing"
            if fail is not None:
                raise fail
            part = "train" if train else "test"
            self.data, self.targets = arrays[f"x_{part}"], arrays[f"y_{part}"].tolist()
            self.classes = arrays["classes"].tolist()

    class CIFAR100(CIFAR10):
        def __init__(self, root, train, download):
            super().__init__(root, train, download)
            self.classes.reverse()

    module = types.ModuleType("torchvision")
    module.datasets = types.SimpleNamespace(CIFAR10=CIFAR10, CIFAR100=CIFAR100)
    monkeypatch.setitem(sys.modules, "torchvision", module)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return arrays


def timeless(metrics):
    return [{key: value for key, value in row.items() if key != "seconds"} for row in metrics]


def one_line(capsys):
    """The one line that a command left on stderr."""
    err = capsys.readouterr().err
    assert err.startswith("geolib.lab: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    return err


# Data ---------------------------------------------------------------------------------------------------------------


def test_fingerprint_changes_with_one_pixel(prepared):
    cifar = load("cifar10")
    changed = cifar.x_test.clone()
    changed[0, 0, 0, 0] ^= 1
    assert replace(cifar, x_test=changed).fingerprint != cifar.fingerprint


def _truncate(path):
    path.write_bytes(path.read_bytes()[:200_000])


def _damage(path):
    content = bytearray(path.read_bytes())
    content[100_000] ^= 255  # inside x_train: the archive's checksum finds it
    path.write_bytes(bytes(content))


def _drop(key):
    return lambda path: np.savez(path, **{k: v for k, v in cifar_arrays().items() if k != key})


def _with(key, change):
    return lambda path: np.savez(path, **(cifar_arrays() | {key: change(cifar_arrays()[key])}))


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (_truncate, "cut off or damaged"),
        (_damage, "cut off or damaged"),
        (lambda path: path.write_bytes(b""), "cut off or damaged"),
        (lambda path: path.write_text("<html>not found</html>"), "cut off or damaged"),
        (lambda path: np.save(path.open("wb"), np.zeros(3)), "cut off or damaged"),
        (_drop("y_test"), "y_test is missing"),
        (_with("x_train", lambda x: x[:, :28]), "x_train is uint8 (160, 28, 32, 3)"),
        (_with("x_train", lambda x: x.transpose(0, 3, 1, 2)), "x_train is uint8 (160, 3, 32, 32)"),
        (_with("x_test", lambda x: x / 255.0), "x_test is float64"),
        (_with("y_train", lambda y: y[:-1]), "y_train is uint8 (159,)"),
        (_with("y_test", lambda y: y + 1), "y_test has labels from 1 to 10, not 0 to 9"),
        (_with("y_train", lambda y: y.astype(int) - 1), "y_train has labels from -1 to 8, not 0 to 9"),
        (_with("y_train", lambda y: y / 2), "y_train is float64 (160,), not whole numbers"),
        (_with("classes", lambda c: c[:9]), "classes has shape (9,)"),
        (_with("classes", lambda c: c.astype(object)), "cut off or damaged"),
    ],
)
def test_spoilt_arrays_are_one_line_that_names_the_file(prepared, no_torchvision, capsys, tmp_path, spoil, says):
    spoil(prepared / "cifar10.npz")
    out = tmp_path / "out"
    assert main(["run", "riemannformer-table1", "--scale", "smoke", "--only", "cifar10", "--out", str(out)]) == 2
    line = one_line(capsys)
    assert says in line
    assert str(prepared / "cifar10.npz") in line
    assert "data prepare cifar10" in line
    assert not out.exists()


def test_no_data_names_both_ways(monkeypatch, no_torchvision):
    monkeypatch.delenv("GEOLIB_DATA", raising=False)
    with pytest.raises(LabError, match=r"cifar10\.npz.*GEOLIB_DATA.*torchvision"):
        load("cifar10")


def test_unknown_data_set_names_the_known_ones():
    with pytest.raises(LabError, match=r"'mnist'.*digits, .*cifar10, cifar100"):
        load("mnist")


def test_download_gives_torchvisions_arrays_and_prepare_writes_them_whole(monkeypatch, tmp_path, capsys):
    arrays = stand_in_torchvision(monkeypatch, tmp_path)
    monkeypatch.setenv("GEOLIB_DATA", str(tmp_path / "data"))
    downloaded = load("cifar10")
    assert downloaded.source == "torchvision's download"
    assert main(["data", "prepare", "cifar10"]) == 0
    assert "wrote" in capsys.readouterr().out
    assert [p.name for p in (tmp_path / "data").iterdir()] == ["cifar10.npz"]
    prepared = load("cifar10")
    assert prepared.source.startswith("prepared arrays")
    assert prepared.fingerprint == downloaded.fingerprint
    with np.load(tmp_path / "data" / "cifar10.npz") as kept:
        for name, array in arrays.items():
            assert np.array_equal(kept[name], array), name
            assert kept[name].dtype == array.dtype, name
    assert main(["data", "prepare", "cifar10"]) == 0
    assert "there already and is whole" in capsys.readouterr().out


def test_where_nothing_else_is_said_downloads_are_kept_in_the_users_cache(monkeypatch, tmp_path):
    stand_in_torchvision(monkeypatch, tmp_path, cache=".cache")
    for name in ("XDG_CACHE_HOME", "GEOLIB_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert load("cifar10").source == "torchvision's download"


def test_each_set_of_images_is_downloaded_as_itself(monkeypatch, tmp_path):
    words = stand_in_torchvision(monkeypatch, tmp_path)["classes"].tolist()
    monkeypatch.delenv("GEOLIB_DATA", raising=False)
    for name, classes in (("cifar10", words), ("cifar100", words[::-1])):
        data = load(name)
        assert (data.name, list(data.classes)) == (name, classes)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError("<urlopen error [Errno -3] no name>"), "(<urlopen error [Errno -3] no name>)"),
        (RuntimeError("File not found\nor bad"), "(File not found)"),
        (OSError(), "(OSError)"),
    ],
)
def test_no_network_is_one_line_and_writes_nothing(monkeypatch, tmp_path, capsys, error, says):
    stand_in_torchvision(monkeypatch, tmp_path, fail=error)
    monkeypatch.setenv("GEOLIB_DATA", str(tmp_path / "data"))
    assert main(["data", "prepare", "cifar10"]) == 2
    assert f"download failed {says}" in one_line(capsys)
    assert not (tmp_path / "data").exists()


def test_a_torchvision_that_is_missing_and_one_that_does_not_import_are_told_apart(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("GEOLIB_DATA", str(tmp_path / "data"))
    monkeypatch.setitem(sys.modules, "torchvision", None)
    assert main(["data", "prepare", "cifar10"]) == 2
    assert one_line(capsys).endswith("names, or install torchvision for its download\n")
    (tmp_path / "torchvision.py").write_text("raise RuntimeError('operator nms does not exist')\n")
    monkeypatch.delitem(sys.modules, "torchvision")
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["data", "prepare", "cifar10"]) == 2
    assert one_line(capsys).endswith("for torchvision does not import (operator nms does not exist)\n")


def test_a_download_of_something_else_is_one_line_and_writes_nothing(monkeypatch, tmp_path, capsys):
    arrays = stand_in_torchvision(monkeypatch, tmp_path)
    monkeypatch.setenv("GEOLIB_DATA", str(tmp_path / "data"))
    arrays["y_train"][3] = 10
    assert main(["data", "prepare", "cifar10"]) == 2
    wrong = "download is not what it should be (y_train has labels from 0 to 10, not 0 to 9); put cifar10.npz into"
    assert f"cifar10: torchvision's {wrong}" in one_line(capsys)
    assert not (tmp_path / "data").exists()


def test_prepare_keeps_a_damaged_file_until_the_new_arrays_are_there(prepared, monkeypatch, tmp_path, capsys):
    _truncate(prepared / "cifar10.npz")
    stand_in_torchvision(monkeypatch, tmp_path, fail=OSError("no network"))
    assert main(["data", "prepare", "cifar10"]) == 2
    assert (prepared / "cifar10.npz").stat().st_size == 200_000
    stand_in_torchvision(monkeypatch, tmp_path)
    assert main(["data", "prepare", "cifar10"]) == 0
    assert len(load("cifar10").y_train) == 160


def test_subsets_are_nested_and_without_repetition():
    small, large = subset(1000, 50, "train_size"), subset(1000, 200, "train_size")
    assert torch.equal(large[:50], small)
    assert len(set(large.tolist())) == 200
    with pytest.raises(LabError, match=r"train_size: got 1001.*1000"):
        subset(1000, 1001, "train_size")


# Augmentation and the model -----------------------------------------------------------------------------------------


def test_crops_and_mirrors_are_uniform():
    # Each pixel holds its own coordinates, so that the crop's offsets and the mirror can be read from the result.
    rows, columns = torch.meshgrid(torch.arange(1, 33), torch.arange(1, 33), indexing="ij")
    image = torch.stack([rows, columns, torch.zeros_like(rows)]).to(torch.uint8)
    count = 8100
    torch.manual_seed(0)
    cropped = crop_and_flip(image.expand(count, -1, -1, -1)).long()
    assert cropped.shape == (count, 3, 32, 32)
    top = cropped[:, 0, 16, 16] - 17 + 4
    mirrored = cropped[:, 1, 16, 16] > cropped[:, 1, 16, 17]
    left = torch.where(mirrored, cropped[:, 1, 16, 15], cropped[:, 1, 16, 16]) - 17 + 4
    cells = torch.stack([top, left, mirrored.long()], 1)
    assert cells.min() == 0
    assert cells[:, :2].max() == 8
    counts = torch.bincount(top * 18 + left * 2 + mirrored, minlength=162).double()
    expected = count / 162
    chi_square = ((counts - expected) ** 2 / expected).sum().item()
    assert abs(chi_square - 161) < 4 * math.sqrt(2 * 161)  # all 9 x 9 x 2 cases equally likely
    i = int(torch.nonzero(~mirrored & (top == 0) & (left == 8))[0])
    by_hand = torch.nn.functional.pad(image.long(), (4, 4, 4, 4))[:, 0:32, 8:40]
    assert torch.equal(cropped[i], by_hand)
    j = int(torch.nonzero(mirrored & (top == 3) & (left == 5))[0])
    assert torch.equal(cropped[j], torch.nn.functional.pad(image.long(), (4, 4, 4, 4))[:, 3:35, 5:37].flip(2))


def test_moments_are_those_of_the_pixels():
    torch.manual_seed(1)
    images = torch.randint(0, 256, (20, 3, 8, 8), dtype=torch.uint8)
    images[:, 1] %= 2  # deviates by less than one grey level
    images[:, 2] = 7
    mean, deviation = channel_moments(images)
    flat = images.double().permute(1, 0, 2, 3).flatten(1)
    assert torch.allclose(mean.flatten().double(), flat.mean(1), rtol=1e-6)
    assert torch.allclose(deviation.flatten()[:2].double(), flat.std(1, correction=0)[:2], rtol=1e-6)
    assert deviation.flatten()[1] < 0.6
    assert deviation.flatten()[2] == 1


def test_patches_are_cut_in_reading_order():
    images = torch.randn(2, 3, 8, 12)
    cut = patches(images, 4)
    assert cut.shape == (2, 6, 48)
    assert torch.equal(cut[1, 4], images[1, :, 4:8, 4:8].flatten())


@pytest.mark.parametrize("pool", ["mean", "cls"])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_every_parameter(method, pool):
    torch.manual_seed(0)
    model = ViT(Config("digits", method=method, width=16, heads=2, pool=pool), (1, 8, 8), 10)
    scores = model(torch.randn(3, 1, 8, 8))
    assert scores.shape == (3, 10)
    scores.square().sum().backward()
    unreached = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert unreached == []


@pytest.mark.parametrize("pool", ["mean", "cls"])
def test_an_answer_is_read_from_the_class_token_and_without_one_from_the_mean_of_all(pool):
    model = ViT(Config("digits", width=16, heads=2, pool=pool), (1, 8, 8), 10)
    for block in model.blocks:  # so that nothing goes from one token to another
        for last in (block.attention.out, block.mlp[-1]):
            torch.nn.init.zeros_(last.weight)
            torch.nn.init.zeros_(last.bias)
    images = torch.randn(3, 1, 8, 8)
    tokens = model.embedding(patches(images, 1)) if model.cls is None else model.cls.expand(3, -1, -1)
    torch.testing.assert_close(model(images), model.head(model.norm(tokens).mean(1)))


def test_a_model_without_positions_cannot_tell_shuffled_pixels():
    images = torch.randn(4, 1, 8, 8)
    shuffled = images.flatten(2)[:, :, torch.randperm(64)].reshape(4, 1, 8, 8)
    torch.manual_seed(0)
    blind = ViT(Config("digits", method="none", width=16, heads=2), (1, 8, 8), 10)
    assert torch.allclose(blind(images), blind(shuffled), atol=1e-5)
    aware = ViT(Config("digits", method="sinusoidal", width=16, heads=2), (1, 8, 8), 10)
    assert not torch.allclose(aware(images), aware(shuffled), atol=1e-3)


def test_a_patch_that_does_not_fit_is_an_error():
    with pytest.raises(ValueError, match=r"patch: got 3.*8x8"):
        ViT(Config("digits", patch=3), (1, 8, 8), 10)


# Configurations -----------------------------------------------------------------------------------------------------


def test_learning_rate_is_the_closed_form():
    config = Config("digits", lr=0.5, warmup=10)
    rates = [learning_rate(config, step, 110) for step in range(110)]
    assert rates[:10] == pytest.approx([0.05 * (i + 1) for i in range(10)])
    assert rates[10] == 0.5
    assert rates[60] == pytest.approx(0.25)
    assert rates[109] == pytest.approx(0.5 * math.sin(math.pi / 200) ** 2)
    assert all(a > b for a, b in itertools.pairwise(rates[10:]))
    constant = Config("digits", lr=0.5, schedule="constant")
    assert {learning_rate(constant, step, 110) for step in range(110)} == {0.5}


class Small(torch.nn.Module):
    """A matrix, a vector, and two parameters that the model names."""

    def __init__(self):
        super().__init__()
        shapes = {"matrix": (2, 3), "vector": (3,), "spared_matrix": (2, 2), "spared_number": ()}
        for name, shape in shapes.items():
            setattr(self, name, torch.nn.Parameter(torch.ones(shape)))

    def undecayed(self):
        return [self.spared_matrix, self.spared_number]


def test_matrices_decay_and_vectors_and_what_the_model_names_do_not():
    model = Small()
    decays, others = optimiser.adamw(
        model, Config("digits", lr=0.1, weight_decay=0.5), torch.device("cpu")
    ).param_groups
    names = {id(p): name for name, p in model.named_parameters()}
    assert [names[id(p)] for p in decays["params"]] == ["matrix"]
    assert [names[id(p)] for p in others["params"]] == ["vector", "spared_matrix", "spared_number"]
    assert (decays["weight_decay"], others["weight_decay"]) == (0.5, 0.0)


@pytest.mark.parametrize("method", METHODS)
def test_weight_decay_takes_the_linear_maps_outside_the_encoding_and_nothing_else(method):
    config = Config("digits", method=method, width=16, heads=2, pool="cls")
    model = ViT(config, (1, 8, 8), 10)
    decays = optimiser.adamw(model, config, torch.device("cpu")).param_groups[0]["params"]
    linear = [name for name, one in model.named_modules() if isinstance(one, torch.nn.Linear)]
    wanted = [f"{name}.weight" for name in linear if not name.startswith("encoding.")]
    names = {id(p): name for name, p in model.named_parameters()}
    assert {names[id(p)] for p in decays} == set(wanted)


def test_a_step_takes_the_rate_that_was_set_for_it():
    model = Small()
    made = optimiser.adamw(model, Config("digits", lr=0.1, weight_decay=0.5), torch.device("cpu"))
    assert [group["lr"] for group in made.param_groups] == [0.1, 0.1]
    optimiser.set_rate(made, 0.01)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    made.step()  # Adam's first step is the rate, whatever the gradient
    assert model.vector[0].item() == pytest.approx(0.99)
    assert model.matrix[0, 0].item() == pytest.approx(1 - 0.01 * 0.5 - 0.01)
    assert model.spared_number.item() == pytest.approx(0.99)


def test_on_a_gpu_the_rate_is_a_number_in_its_memory_that_a_recording_reads(monkeypatch):
    given = []

    def full(size, value, *, dtype, device):  # what a GPU would hold, here
        given.append((device, dtype))
        return filled(size, value, dtype=dtype)

    filled = torch.full
    monkeypatch.setattr(torch, "full", full)
    made = optimiser.adamw(Small(), Config("digits", lr=0.1), torch.device("cuda"))
    rates = [group["lr"] for group in made.param_groups]
    assert given == [(torch.device("cuda"), torch.float32)] * 2
    assert [(rate.shape, rate.dtype, rate.item()) for rate in rates] == [((), torch.float32, pytest.approx(0.1))] * 2
    assert made.defaults["capturable"]
    optimiser.set_rate(made, 0.25)
    assert [rate.item() for rate in rates] == [0.25, 0.25]
    assert all(group["lr"] is rate for group, rate in zip(made.param_groups, rates))
    here = optimiser.adamw(Small(), Config("digits", lr=0.1), torch.device("cpu"))
    assert not here.defaults["capturable"]


# The loop -----------------------------------------------------------------------------------------------------------


def test_a_few_seconds_on_digits_beat_chance_and_write_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = torch.get_rng_state()
    record = run(Config("digits", "sinusoidal", patch=2, width=32, batch=32, epochs=3, lr=3e-3), quiet=True)
    assert record.accuracy > 0.3
    epochs, losses = record.curve("train_loss")
    assert epochs == [1, 2, 3]
    assert losses[-1] < losses[0] < 2.6
    assert torch.equal(torch.get_rng_state(), before)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(LabError, match="this record has epoch, seconds, test_accuracy"):
        record.curve("accuracy")


def test_evaluation_is_the_mean_over_all_test_images(prepared):
    trained = train(Config("cifar10", "rope", patch=8, eval_every=2, **TINY), quiet=True)
    assert ["test_loss" in row for row in trained.metrics] == [False, True, True]
    images = (trained.test_images.double() - trained.mean.double()) / trained.deviation.double()
    logs = trained.model.double()(images).log_softmax(1)
    losses = [-logs[i, y].item() for i, y in enumerate(trained.test_labels)]
    assert trained.metrics[-1]["test_loss"] == pytest.approx(sum(losses) / 40, rel=1e-4)
    right = (logs.argmax(1) == trained.test_labels).sum().item()
    assert trained.metrics[-1]["test_accuracy"] == right / 40


def test_one_step_is_adamw_on_the_smoothed_cross_entropy(prepared):
    config = Config(
        "cifar10", "rope", patch=8, label_smoothing=0.1, lr=0.01, weight_decay=0.1, **(TINY | {"dropout": 0.0})
    )
    live = Run(config, load("cifar10"), torch.device("cpu"))
    images, labels = batch = next(live.begin_epoch())
    head, bias = live.model.head.weight.detach().double(), live.model.head.bias.detach().double()
    smoothed = 0.9 * torch.nn.functional.one_hot(labels, 10) + 0.01
    logs = live.scores(images).log_softmax(1)
    loss = -(smoothed * logs).sum(1).mean()
    gradient, slope = (g.double() for g in torch.autograd.grad(loss, (live.model.head.weight, live.model.head.bias)))
    live.update(batch)
    assert live.losses[0].item() == pytest.approx(loss.item(), rel=1e-5)
    # The first step of Adam is g / (|g| + eps); only the matrix decays.
    assert torch.allclose(
        live.model.head.weight.double(), head * (1 - 0.001) - 0.01 * gradient / (gradient.abs() + 1e-8), atol=1e-5
    )
    assert torch.allclose(live.model.head.bias.double(), bias - 0.01 * slope / (slope.abs() + 1e-8), atol=1e-5)


KILLED = """
import os, signal, sys
from pathlib import Path
from geolib.lab import Config, run
from geolib.lab import files
from geolib.lab.watch import Watch

at, during_write = int(sys.argv[1]), sys.argv[2] == "write"
usual, replace = Watch.after_step, os.replace
last = {"done": 0}

def after_step(self, run):
    last["done"] = run.done
    if run.done >= at and not during_write:
        os.kill(os.getpid(), signal.SIGKILL)
    usual(self, run)

def killed_replace(a, b):
    if during_write and last["done"] >= at:
        os.kill(os.getpid(), signal.SIGKILL)
    replace(a, b)

Watch.after_step, os.replace = after_step, killed_replace
tiny = {"width": 16, "heads": 2, "layers": 1, "batch": 32, "epochs": 3, "dropout": 0.2}
config = Config("cifar10", "rope", patch=8, augment="crop-flip", **tiny)
run(config, out=sys.argv[3], quiet=True, checkpoint_seconds=float(sys.argv[4]), precision=sys.argv[5])
"""


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_killed_and_started_again_it_ends_in_the_same_numbers(prepared, tmp_path, precision):
    config = Config("cifar10", "rope", patch=8, augment="crop-flip", **TINY)  # 5 steps an epoch, 15 in all
    undisturbed = run(config, quiet=True, precision=precision)
    out = tmp_path / "out"
    # In the middle of the first epoch; then in the middle of the second while the checkpoint is being written.
    for at, how in ((4, "step"), (8, "write")):
        process = Started(tmp_path, KILLED, at, how, out, "0", precision)
        assert process.wait() == -signal.SIGKILL, process.stderr
        assert not list(out.glob("*.json"))
    state = torch.load(out / "runs" / f"{config.name}.pt", weights_only=True)
    assert state["progress"][:2] == (1, 2)  # step 8 of the run was being written: the file still holds step 7
    record = run(config, out=out, quiet=True, precision="auto")  # it goes on as it began, and measures nothing
    assert timeless(record.metrics) == timeless(undisturbed.metrics)
    assert record.precision == undisturbed.precision
    assert "precision" not in record.engine
    assert record.started == state["times"][0]
    assert list((out / "runs").glob("*.pt")) == []


@pytest.mark.parametrize("at", [1, 5, 7, 10, 14])
def test_stopped_at_any_step_it_continues_to_the_same_numbers(prepared, tmp_path, monkeypatch, at):
    config = Config("cifar10", "learned", patch=8, augment="crop-flip", **TINY)
    data = load("cifar10")
    undisturbed = train(config, data, quiet=True)
    usual = Watch.after_step

    def after_step(self, live):
        if live.done == at and live.step:
            signal.raise_signal(signal.SIGTERM)
        usual(self, live)

    before = signal.getsignal(signal.SIGTERM)
    checkpoint = tmp_path / "run.pt"
    monkeypatch.setattr(Watch, "after_step", after_step)
    with pytest.raises(Stopped, match="stopped by SIGTERM"):
        train(config, data, checkpoint=checkpoint, quiet=True)
    assert signal.getsignal(signal.SIGTERM) is before
    monkeypatch.setattr(Watch, "after_step", usual)
    resumed = train(config, data, checkpoint=checkpoint, quiet=True)
    assert timeless(resumed.metrics) == timeless(undisturbed.metrics)
    for (name, a), b in zip(undisturbed.model.state_dict().items(), resumed.model.state_dict().values()):
        assert torch.equal(a, b), name


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_leaves_a_checkpoint_and_one_line(prepared, tmp_path, monkeypatch, capsys, number, code):
    usual = Watch.after_step

    def after_step(self, live):
        signal.raise_signal(number)
        usual(self, live)

    monkeypatch.setattr(Watch, "after_step", after_step)
    words = [
        "run",
        "riemannformer-table1",
        "--scale",
        "smoke",
        "--only",
        "rope/cifar10",
        "--out",
        str(tmp_path / "out"),
        "--quiet",
    ]
    shrink(monkeypatch)
    assert main(words) == code
    line = one_line(capsys)
    assert signal.Signals(number).name in line
    assert "goes on from its checkpoint" in line
    assert len(list((tmp_path / "out" / "runs").glob("*.pt"))) == 1
    assert read_all(tmp_path / "out") == []
    monkeypatch.setattr(Watch, "after_step", usual)
    assert main(words) == 0
    assert len(read_all(tmp_path / "out")) == 1


def test_a_signal_in_the_last_evaluation_is_not_lost(prepared, tmp_path, monkeypatch):
    config, checkpoint = Config("cifar10", "rope", patch=8, **TINY), tmp_path / "run.pt"
    undisturbed, usual = train(config, quiet=True), Run.evaluate

    def evaluate(self):
        if self.epoch == 2:
            signal.raise_signal(signal.SIGTERM)
        return usual(self)

    monkeypatch.setattr(Run, "evaluate", evaluate)
    with pytest.raises(Stopped, match="stopped by SIGTERM after epoch 3"):
        train(config, checkpoint=checkpoint, quiet=True)
    monkeypatch.setattr(Run, "evaluate", None)  # nothing is left to do
    assert timeless(train(config, checkpoint=checkpoint, quiet=True).metrics) == timeless(undisturbed.metrics)


def test_a_run_stopped_before_an_evaluation_continues_within_a_budget(prepared, tmp_path):
    config, checkpoint = Config("cifar10", "rope", patch=8, **TINY), tmp_path / "run.pt"
    live = Run(config, load("cifar10"), torch.device("cpu"))
    for batch in live.begin_epoch():
        live.update(batch)
    live.save(checkpoint)
    resumed = train(config, checkpoint=checkpoint, time_budget=1000, quiet=True)
    assert [row["epoch"] for row in resumed.metrics] == [1, 2, 3]


def test_the_bar_shows_loss_accuracy_and_speed(prepared, capsys):
    train(Config("cifar10", "rope", patch=8, **TINY))
    last = capsys.readouterr().err.split("\r")[-1]
    for word in ("cifar10 rope seed 0", "100%", "480/480", "images/s", "epoch=3/3", "loss=", "accuracy="):
        assert word in last


def test_a_checkpoint_of_another_run_or_a_broken_one_is_refused(prepared, tmp_path):
    config = Config("cifar10", "rope", patch=8, **TINY)
    data = load("cifar10")
    checkpoint = tmp_path / "run.pt"
    Run(config, data, torch.device("cpu")).save(checkpoint)
    with pytest.raises(LabError, match=r"run\.pt: made with configuration .*delete it"):
        train(replace(config, lr=0.1), data, checkpoint=checkpoint, quiet=True)
    changed = replace(data, y_test=data.y_test.flip(0))
    with pytest.raises(LabError, match=r"run\.pt: made with data .*delete it"):
        train(config, changed, checkpoint=checkpoint, quiet=True)
    checkpoint.write_bytes(checkpoint.read_bytes()[:500])
    with pytest.raises(LabError, match=r"run\.pt: not a whole checkpoint; delete it"):
        train(config, data, checkpoint=checkpoint, quiet=True)


def test_a_loss_that_is_not_finite_stops_and_names_step_and_checkpoint(prepared, tmp_path, monkeypatch):
    config = Config("cifar10", "rope", patch=8, **TINY)
    usual, checkpoint = Run.update, tmp_path / "run.pt"

    def update(self, batch):
        usual(self, batch)
        if self.done == 8:
            self.losses[self.step - 1] = math.nan

    monkeypatch.setattr(Run, "update", update)
    said = rf"loss is nan at step 3 of epoch 2; .* is {checkpoint} \(epoch 1, step 2\); try a smaller lr"
    with pytest.raises(Diverged, match=said):
        train(config, checkpoint=checkpoint, checkpoint_seconds=0, quiet=True)
    assert torch.load(checkpoint, weights_only=True)["progress"][:2] == (1, 2)
    with pytest.raises(Diverged, match=r"step 3 of epoch 2; there is no checkpoint"):
        train(config, quiet=True)


def test_weights_that_overflow_are_noticed(prepared):
    with pytest.raises(Diverged, match=r"not finite|is nan|is inf"):
        train(Config("cifar10", "rope", patch=8, **(TINY | {"lr": 1e38})), quiet=True)


class Clock:
    """time.monotonic that a test moves."""

    def __init__(self, monkeypatch):
        self.now = 1000.0
        for module in ("geolib.lab.watch", "geolib.lab.train"):
            monkeypatch.setattr(f"{module}.time", types.SimpleNamespace(monotonic=lambda: self.now))


def test_a_run_that_cannot_end_in_the_budget_is_given_up_after_its_first_epoch(prepared, tmp_path, monkeypatch):
    clock, usual, steps = Clock(monkeypatch), Run.update, []

    def update(self, batch):
        usual(self, batch)
        clock.now += 10
        steps.append(self.done)

    monkeypatch.setattr(Run, "update", update)
    config, checkpoint = Config("cifar10", "rope", patch=8, **TINY), tmp_path / "run.pt"  # 15 steps: 150 s
    with pytest.raises(
        Stopped, match=r"given up after epoch 0, step 2 of 5: the rest takes about 130 s and 120 s are left"
    ):
        train(config, checkpoint=checkpoint, time_budget=140, quiet=True)
    assert len(steps) == 2  # a tenth of the budget was enough to know
    train(config, checkpoint=checkpoint, time_budget=190, quiet=True)
    assert steps == list(range(1, 16))


def test_a_run_that_becomes_slow_stops_before_the_budget_ends(prepared, tmp_path, monkeypatch):
    clock, usual = Clock(monkeypatch), Run.update

    def update(self, batch):
        usual(self, batch)
        clock.now += 1 if self.epoch == 0 else 5

    monkeypatch.setattr(Run, "update", update)
    checkpoint = tmp_path / "run.pt"
    with pytest.raises(Stopped, match=r"the time budget is spent after epoch 1, step \d of 5"):
        train(Config("cifar10", "rope", patch=8, **TINY), checkpoint=checkpoint, time_budget=30, quiet=True)
    assert clock.now < 1030
    assert checkpoint.is_file()


# Records ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def record(prepared):
    return run(Config("cifar10", "rope", patch=8, **TINY), quiet=True)


# Experiments, tables and the command line ---------------------------------------------------------------------------


def shrink(monkeypatch):
    """Make the smoke scale of the CIFAR experiment small enough for a test's arrays."""
    experiment = EXPERIMENTS["riemannformer-table1"]
    smoke = {**TINY, "patch": 8, "epochs": 1}
    changed = replace(experiment, settings=dict(experiment.settings) | {"smoke": smoke})
    monkeypatch.setitem(EXPERIMENTS, experiment.name, changed)
    return changed


def test_every_experiment_has_valid_runs_at_every_scale():
    for experiment in EXPERIMENTS.values():
        for scale in experiment.scales:
            configs = experiment.configs(scale)
            assert len({config.name for config in configs}) == len(configs) > 0
            assert all(is_name(config.method) or config.method in text_attention.METHODS for config in configs)
            assert assumed_seconds(configs[-1], GPU) > 0


def test_the_cifar_experiment_has_the_papers_setting_at_full_scale():  # RF-T1
    for config in EXPERIMENTS["riemannformer-table1"].configs("full", seeds=[0]):
        assert (config.heads, config.layers, config.epochs, config.batch) == (4, 6, 200, 128)
        assert ViT(config, (3, 32, 32), 10).positions.shape == (64, 2)
    paper = EXPERIMENTS["riemannformer-table1"].paper
    assert (paper["none", "cifar10"], paper["riemannformer+lf", "cifar100"]) == (79.61, 66.96)


def with_accuracy(record, config, accuracy):
    rows = [{"epoch": i + 1, "train_loss": 1.0, "seconds": 1.0} for i in range(config.epochs)]
    rows[-1] |= {"test_loss": 1.0, "test_accuracy": accuracy}
    return replace(record, config=config, metrics=tuple(rows), experiment="riemannformer-table1")


def test_the_table_sets_the_papers_numbers_beside_ours(record):  # RF-T1
    experiment = EXPERIMENTS["riemannformer-table1"]
    rope = list(experiment.methods)[2]  # in reading order or axial, as the grid decides
    made = [
        with_accuracy(record, experiment.config("full", method, "cifar10", seed), accuracy)
        for method, seed, accuracy in [("none", 0, 0.8), (rope, 0, 0.88), (rope, 1, 0.90), ("sinusoidal", 0, 0.7)]
    ]
    made.append(with_accuracy(record, experiment.config("cpu", "learned", "cifar10", 0), 0.5))  # another scale
    full = table(experiment, "full", made)
    rows = {row[0]: row[1:] for row in full.rows}
    assert rows["RoPE"] == ["87.91", "89.00 ± 1.41 (2 seeds)"]
    assert rows["No-Pos"] == ["79.61", "80.00 (1 seed)"]
    assert "learned (ours)" not in rows
    notes = " ".join(full.notes)
    assert (
        f"cifar10: the paper's order (none < sinusoidal < {rope}) does not hold; ours is sinusoidal < none < {rope}"
        in notes
    )
    assert "cifar100: " not in notes
    assert "epochs 200, ours 8" in " ".join(table(experiment, "cpu", made).notes)
    assert "| RoPE | 87.91 | 89.00 ± 1.41 (2 seeds) |" in full.markdown().splitlines()
    widths = {len(line) for line in full.plain().splitlines()[3:4]}
    assert max(len(line) for line in full.plain().splitlines()[2 : 4 + len(full.rows)]) <= max(widths)


def test_run_records_prints_the_table_and_does_not_repeat_itself(prepared, tmp_path, monkeypatch, capsys):
    shrink(monkeypatch)
    out = tmp_path / "out"
    words = ["run", "riemannformer-table1", "--scale", "smoke", "--only", "rope", "--out", str(out), "--quiet"]
    assert main(words) == 0
    first = capsys.readouterr().out
    kept = read_all(out / "riemannformer-table1")
    assert {(r.config.method, r.config.dataset) for r in kept} == {("rope", "cifar10"), ("rope", "cifar100")}
    assert all(r.scale == "smoke" and r.metrics[-1]["test_accuracy"] == r.accuracy for r in kept)
    assert "riemannformer-table1 (smoke scale)" in first
    monkeypatch.setattr(Run, "update", None)  # nothing trains now
    assert main(words) == 0
    assert capsys.readouterr().out.count("recorded already") == 2
    monkeypatch.undo()
    monkeypatch.setenv("GEOLIB_DATA", str(prepared))
    shrink(monkeypatch)
    assert main([*words, "--again", "--seeds", "0", "1"]) == 0
    assert len(read_all(out)) == 4
    assert main(["table", "riemannformer-table1", "--out", str(out), "--scale", "smoke", "--format", "markdown"]) == 0
    assert "(2 seeds)" in capsys.readouterr().out


def test_only_picks_cells():
    experiment = EXPERIMENTS["riemannformer-table1"]
    assert {(c.method, c.dataset) for c in experiment.configs("smoke", words=["rope/cifar10", "none"])} == {
        ("rope", "cifar10"),
        ("none", "cifar10"),
        ("none", "cifar100"),
    }
    with pytest.raises(LabError, match="'ropes': there are none"):
        experiment.configs("smoke", words=["ropes/cifar10"])


def test_a_run_known_to_be_too_long_is_not_started(prepared, tmp_path, monkeypatch, capsys):
    shrink(monkeypatch)
    out = tmp_path / "out"
    words = ["run", "riemannformer-table1", "--scale", "smoke", "--only", "none/cifar10", "--out", str(out), "--quiet"]
    assert main(words) == 0
    (done,) = read_all(out)
    lab_records.write(replace(done, wall_seconds=500.0), out)
    monkeypatch.setattr(Run, "update", None)
    capsys.readouterr()
    assert main([*words, "--seeds", "1", "--time-budget", "400"]) == 3
    said = capsys.readouterr().out
    needs = r"it takes about 8.3 min \(the newest run with this method in this experiment"
    assert re.search(rf"not started, 6.[4-7] min of the time budget are left, {needs}", said)  # on a busy machine less
    assert len(read_all(out)) == 1


def test_what_is_tested_does_not_depend_on_how_many_images_at_a_time():
    settings = {"width": 16, "heads": 2, "layers": 1, "patch": 2, "epochs": 1, "train_size": 64, "test_size": 50}
    done = train(Config("digits", "rope", **settings), quiet=True, device="cpu")
    whole = done.tested(50)
    scores = done.scores(done.test_images).argmax(1)
    assert whole["test_accuracy"] == (scores == done.test_labels).double().mean().item() > 0
    for size in (1, 7, 49):
        assert done.tested(size) == pytest.approx(whole, rel=1e-5)


def test_list_and_pending_name_every_experiment(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(estimates, "_counted", lambda model: (1000, 1_000_000))  # another test counts real models
    assert main(["list"]) == 0
    listed = capsys.readouterr().out
    for name, experiment in EXPERIMENTS.items():
        assert f"{name}: {experiment.about}" in listed
    assert main(["pending", "--out", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    # A run that two experiments share is made once.
    full = [e for e in EXPERIMENTS.values() if "full" in e.scales]
    expected = len({config.name for e in full for config in e.configs("full")})
    assert len(lines) == expected + 1
    assert lines[0].startswith("riemannformer-baselines  cifar10-none-seed0-")
    table1 = next(line for line in lines if line.startswith("riemannformer-table1"))
    assert "cifar10-" in table1
    assert "on one H100, estimated" in lines[-1]
    assert "[assumed speeds, nothing measured here]" in table1


def test_pending_rests_on_records_of_the_same_experiment(record, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("geolib.lab.train.multiplies_bfloat16", lambda: True)
    laptop = EXPERIMENTS["riemannformer-table1"].config("laptop", "rope", "cifar10", 0)
    made = with_accuracy(record, laptop, 0.5)
    made = replace(made, experiment="riemannformer-table1", scale="laptop", precision="bf16", wall_seconds=2460.0)
    lab_records.write(replace(made, device="another laptop"), tmp_path)
    assert main(["pending", "--scale", "laptop", "--out", str(tmp_path)]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "cifar10-rope-seed" in line]
    basis = "[the newest run with this method in this experiment, measured on another laptop]"
    assert len(lines) == 2
    assert all("about 41.0 min" in line and line.endswith(basis) for line in lines)


def test_pending_leaves_out_what_is_recorded(record, tmp_path, monkeypatch, capsys):
    table1 = EXPERIMENTS["riemannformer-table1"]
    monkeypatch.setattr("geolib.lab.__main__.EXPERIMENTS", {table1.name: table1})
    done, left = (table1.config("full", "rope", "cifar10", seed) for seed in (0, 1))
    lab_records.write(with_accuracy(record, done, 0.9), tmp_path)
    assert main(["pending", "--out", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert f"{table1.name}  {left.name}  about" in told
    assert done.name not in told


def test_a_run_that_two_experiments_share_is_made_once(record, tmp_path, monkeypatch, capsys):
    grid, table1 = EXPERIMENTS["riemannformer-baselines"], EXPERIMENTS["riemannformer-table1"]
    shared = {c.name: c for c in grid.configs("full")}.keys() & {c.name for c in table1.configs("full")}
    config = next(c for c in table1.configs("full") if c.name in shared and c.method == "rope")
    lab_records.write(replace(with_accuracy(record, config, 0.875), experiment=grid.name), tmp_path)
    monkeypatch.setattr(Run, "update", None)  # nothing may train
    words = ["run", table1.name, "--scale", "full", "--seeds", "0", "--only", "rope/cifar10", "--out", str(tmp_path)]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert f"{config.name}: recorded already, 87.50%" in said
    assert grid.name in said
    assert main(["table", table1.name, "--out", str(tmp_path)]) == 0
    assert "87.50" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "required: COMMAND"),
        (["fly"], "invalid choice: 'fly'"),
        (["run"], "required: NAME"),
        (["run", "table9"], "unknown experiment 'table9'; there are digits-encodings"),
        (["run", "digits-encodings", "--scale", "big"], "unknown scale 'big'; there are smoke, cpu, laptop, full"),
        (["run", "digits-encodings", "--only", "rope2"], "--only 'rope2': there are none"),
        (["run", "digits-encodings", "--seeds", "-1"], "-1"),
        (["run", "digits-encodings", "--time-budget", "soon"], "'soon' is not a number of seconds"),
        (["run", "digits-encodings", "--device", "tpu"], "device 'tpu' is not here"),
        (["run", "digits-encodings", "--out", "/dev/null/x"], "name another with --out DIR"),
        (["table", "table9"], "unknown experiment"),
        (["table", "digits-encodings", "--scale", "big"], "unknown scale 'big'"),
        (["data", "prepare", "mnist"], "unknown data set 'mnist'; there are digits"),
        (["data"], "required: ACTION"),
    ],
)
def test_what_the_user_gets_wrong_is_one_line_and_code_2(words, says, tmp_path, capsys):
    if words[:1] == ["run"] and "--out" not in words:
        words = [*words, "--out", str(tmp_path / "out")]
    assert main(words) == 2
    assert says in one_line(capsys)
    assert not (tmp_path / "out").exists()


def test_preparing_without_a_folder_says_what_to_set(monkeypatch, capsys):
    monkeypatch.delenv("GEOLIB_DATA", raising=False)
    assert main(["data", "prepare", "cifar10"]) == 2
    assert "set GEOLIB_DATA" in one_line(capsys)
    assert main(["data", "prepare", "digits"]) == 0
    assert "nothing to prepare" in capsys.readouterr().out


def test_the_lab_imports_no_more_than_torch_and_numpy():
    code = (
        "import sys, numpy, torch; before = set(sys.modules); import geolib.lab\n"
        "added = {name.split('.')[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)\n"
        "print(sorted(added - {'torch', 'numpy'}))"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['geolib']"


def test_bench_prints_a_modules_measurements(monkeypatch, capsys):
    from geolib.lab.benches import lie

    monkeypatch.setattr(lie, "run", lambda: [{"ratio": "slow / fast", "value": 3.14159}])
    assert main(["bench", "lie"]) == 0
    assert "ratio slow / fast, value 3.142" in capsys.readouterr().out
    assert main(["bench", "nothing"]) == 2
    every = "augment, flops, ladder, lie, locality, memory, operations, pairs, parts, peers, "
    every += "recall, sympow, training, words"
    assert f"unknown bench 'nothing'; there are {every}" in one_line(capsys)
