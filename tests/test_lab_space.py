"""Volumes and clips in the lab: their data, patches in any number of axes, resized images, LieRE's experiments."""

import itertools
import json
import math
import os
import signal
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from afresh import Started
from test_experiments import record as a_record

from geolib.encodings import build
from geolib.exponential import _TAYLOR
from geolib.lab import Config, LabError, load, run, train
from geolib.lab.__main__ import main
from geolib.lab.counting import Counting
from geolib.lab.data import motion
from geolib.lab.data.augmentation import channel_moments
from geolib.lab.data.sets import read_voxels
from geolib.lab.experiments import EXPERIMENTS
from geolib.lab.experiments.papers import liere, liere_flops
from geolib.lab.experiments.tables import best_rate, cells_of, tables_of
from geolib.lab.probes.vit import extended_accuracy, rescaled_accuracy, resized, shuffle_patches
from geolib.lab.records import read_all
from geolib.lab.vit import ViT, patches
from geolib.lie import Rays, entry_count, position_rotations, skew_matrix, spectrum, uniform_entries

TINY = {"width": 16, "heads": 2, "layers": 1, "batch": 16, "epochs": 2, "dropout": 0.2}

pytestmark = pytest.mark.usefixtures("one_thread")


def voxel_arrays(objects=10, azimuths=2):
    random = np.random.RandomState(3)
    return {
        "voxels": random.rand(objects, azimuths, 32, 32, 32) < 0.1,
        "label": (np.arange(objects) % 3).astype(np.uint8),
        "is_test": np.arange(objects) % 4 == 3,
        "classes": np.array(["bed", "chair", "desk"]),
    }


@pytest.fixture
def voxels(tmp_path, monkeypatch):
    """A folder in $GEOLIB_DATA with a few objects of noise."""
    folder = tmp_path / "data"
    folder.mkdir()
    np.savez(folder / "modelnet10.npz", **voxel_arrays())
    monkeypatch.setenv("GEOLIB_DATA", str(folder))
    return folder


def timeless(metrics):
    return [{key: value for key, value in row.items() if key != "seconds"} for row in metrics]


# Motion -------------------------------------------------------------------------------------------------------------


def test_a_clip_shows_a_digit_on_the_path_of_its_label():
    digits = np.full((1, 8, 8), 100, dtype=np.uint8)
    video, labels = motion.clips(digits, 40, seed=5)
    for clip, label in zip(video[:, 0].astype(int), labels):
        lit = clip >= 100  # of the digit's pixels, noise on top, and some of the ground's
        corners = [
            max(
                ((top, left) for top in range(9) for left in range(9)),
                key=lambda c: lit[frame, c[0] : c[0] + 8, c[1] : c[1] + 8].sum(),
            )
            for frame in range(motion.FRAMES)
        ]
        steps = [(b[0] - a[0], b[1] - a[1]) for a, b in itertools.pairwise(corners)]
        words = {step: word for word, step in motion.DIRECTIONS.items()}
        said = list(dict.fromkeys(words[step] for step in steps))
        assert ", then ".join(said) == motion.CLASSES[label]
        assert sorted(Counter(steps).values()) == [3, 4]


def test_two_orders_of_the_same_steps_are_two_classes():
    assert len(motion.CLASSES) == len(set(motion.CLASSES)) == 8
    for label, words in enumerate(motion.CLASSES):
        other = motion.CLASSES.index(", then ".join(reversed(words.split(", then "))))
        steps = [Counter(map(tuple, np.diff(motion.path(*pair), axis=0))) for pair in ((label, 3), (other, 4))]
        assert steps[0] == steps[1]


# Voxels -------------------------------------------------------------------------------------------------------------


def test_without_the_file_the_message_says_where_it_belongs(monkeypatch, tmp_path, capsys):
    for folder in (None, str(tmp_path)):
        monkeypatch.delenv("GEOLIB_DATA") if folder is None and "GEOLIB_DATA" in os.environ else None
        monkeypatch.setenv("GEOLIB_DATA", folder) if folder else None
        with pytest.raises(LabError, match=r"modelnet10: no voxels here; put modelnet10.npz into .*GEOLIB_DATA.* bool"):
            load("modelnet10")
    assert main(["run", "liere-voxels", "--scale", "smoke", "--out", str(tmp_path), "--quiet"]) == 2
    assert "no voxels here" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"voxels": np.zeros((10, 2, 16, 32, 32), dtype=bool)}, "voxels is bool .*, not bool"),
        ({"voxels": np.zeros((10, 2, 32, 32, 32))}, "voxels is float64"),
        ({"label": np.zeros(9, dtype=int)}, r"label is int64 \(9,\), not whole numbers \(10,\)"),
        ({"label": np.full(10, 3)}, "none of the 3 classes"),
        ({"is_test": np.zeros(10, dtype=bool)}, "one of the two parts empty"),
        ({"is_test": np.zeros(10)}, "is_test is float64"),
        ({"is_test": np.ones(10, dtype=bool)}, "one of the two parts empty"),
        ({"label": np.zeros(10)}, r"label is float64 \(10,\), not whole numbers"),
        ({"label": np.full(10, -1)}, "none of the 3 classes"),
        ({"classes": np.array([["bed", "chair", "desk"]])}, "none of the 3 classes"),
        ({key: array[:0] for key, array in voxel_arrays().items() if key != "classes"}, "none of the 3 classes"),
    ],
)
def test_a_file_that_holds_something_else_is_named(tmp_path, change, says):
    path = tmp_path / "modelnet10.npz"
    np.savez(path, **voxel_arrays() | change)
    with pytest.raises(LabError, match=f"modelnet10.npz: .*{says}.*put another there"):
        read_voxels(path)


def test_a_file_is_unpacked_once_and_again_when_another_lies_in_its_place(voxels):
    path, arrays = voxels / "modelnet10.npz", voxel_arrays()
    first = load("modelnet10")
    assert load("modelnet10") is first
    before = path.stat().st_mtime_ns
    np.savez(path, **arrays | {"label": 2 - arrays["label"]})
    os.utime(path, ns=(before + 1, before + 1))
    assert load("modelnet10").y_train.tolist() == (2 - first.y_train).tolist()


@pytest.mark.parametrize("spoil", ["cut", "missing"])
def test_a_spoilt_file_is_named(tmp_path, spoil):
    path, arrays = tmp_path / "modelnet10.npz", voxel_arrays()
    if spoil == "missing":
        del arrays["is_test"]
    np.savez(path, **arrays)
    if spoil == "cut":
        path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(LabError, match="is_test is missing" if spoil == "missing" else "not a whole npz file"):
        read_voxels(path)


# Patches in any number of axes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "patch", "grid"),
    [((2, 6), 3, (2,)), ((3, 4, 6), 2, (2, 3)), ((1, 4, 4, 6), (2, 4, 3), (2, 1, 2)), ((2, 4, 4, 4), 2, (2, 2, 2))],
)
def test_patches_are_the_blocks_of_the_image_in_reading_order(shape, patch, grid):
    images = torch.randn(2, *shape)
    cut = patches(images, patch)
    sides = [patch] * len(grid) if isinstance(patch, int) else patch
    for number, cell in enumerate(np.ndindex(*grid)):
        block = tuple(slice(c * s, (c + 1) * s) for c, s in zip(cell, sides))
        assert torch.equal(cut[:, number], images[(slice(None), slice(None), *block)].flatten(1))
    model = ViT(Config("motion", "none", patch=patch, width=8, heads=2, layers=1), shape, 3)
    assert model.positions.tolist() == [list(map(float, cell)) for cell in np.ndindex(*grid)]
    assert model(images).shape == (2, 3)


def test_shuffled_volumes_keep_their_patches():
    volumes = torch.randint(0, 256, (5, 1, 4, 8, 8), dtype=torch.uint8)
    moved = shuffle_patches(volumes, (2, 4, 4), torch.Generator().manual_seed(0))
    assert not torch.equal(moved, volumes)
    for a, b in zip(patches(volumes, (2, 4, 4)), patches(moved, (2, 4, 4))):
        assert sorted(a.tolist()) == sorted(b.tolist())


@pytest.mark.parametrize(
    ("patch", "says"),
    [
        ((2, 4), r"patch: got \(2, 4\); one number, or one for each of the 3 axes"),
        ((3, 4, 4), r"patch: got \(3, 4, 4\); it must divide the image, 8x16x16 pixels"),
        (5, "patch: got 5; it must divide"),
    ],
)
def test_patches_that_do_not_fit_are_named(patch, says):
    with pytest.raises(LabError, match=says):
        train(Config("motion", patch=patch, train_size=16, test_size=8, **TINY), quiet=True)


def test_clips_are_not_cropped():
    config = Config("motion", augment="crop-flip", train_size=16, test_size=8, **TINY)
    with pytest.raises(LabError, match="augment: got 'crop-flip'; volumes and clips"):
        train(config, quiet=True)


def test_moments_of_volumes_are_those_of_their_voxels():
    volumes = torch.randint(0, 256, (3, 2, 4, 4, 4), dtype=torch.uint8)
    mean, deviation = channel_moments(volumes)
    assert mean.shape == deviation.shape == (2, 1, 1, 1)
    assert torch.allclose(mean.flatten(), volumes.float().mean((0, 2, 3, 4)), rtol=1e-5)


# Killed and started again ---------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from geolib.lab import Config, run
from geolib.lab.watch import Watch

usual = Watch.after_step

def after_step(self, run):
    usual(self, run)
    if run.done >= int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)

Watch.after_step = after_step
run(Config.from_dict(eval(sys.argv[1])), out=sys.argv[3], quiet=True, checkpoint_seconds=0.0)
"""


@pytest.mark.parametrize(
    ("dataset", "size", "batch"), [("modelnet10", {}, 4), ("motion", {"train_size": 64, "test_size": 16}, 16)]
)
def test_killed_in_the_middle_it_ends_in_the_same_numbers(voxels, tmp_path, dataset, size, batch):
    config = Config(dataset, "liere", {"block": 4}, pool="cls", **{**TINY, **size, "batch": batch})
    undisturbed, out = run(config, quiet=True), tmp_path / "out"
    for at in (2, 6):  # in the first epoch, of four steps, and in the second
        process = Started(tmp_path, KILLED, config.to_dict(), at, out)
        assert process.wait() == -signal.SIGKILL, process.stderr
        assert not list(out.glob("*.json"))
        assert (out / "runs" / f"{config.name}.pt").is_file()
    assert timeless(run(config, out=out, quiet=True).metrics) == timeless(undisturbed.metrics)


# Resized --------------------------------------------------------------------------------------------------------------


def trained(method, **options):
    config = Config("digits", method, options, patch=2, resolutions=(8, 16), train_size=64, test_size=50, **TINY)
    return train(config, quiet=True)


@pytest.mark.parametrize("method", ["none", "learned", "rope-axial", "liere"])
def test_at_the_trained_size_nothing_changes(method):  # LR-F2
    done = trained(method)
    before = done.model.positions
    assert extended_accuracy(done, 8) == rescaled_accuracy(done, 8) == done.metrics[-1]["test_accuracy"]
    assert done.model.positions is before


def test_resized_images_get_positions_that_go_on_or_are_squeezed():  # LR-F2
    done = trained("liere")
    seen = []
    place = done.model.encoding.place
    done.model.encoding.place = lambda positions: seen.append(positions) or place(positions)
    extended_accuracy(done, 16)
    rescaled_accuracy(done, 16)
    grid = torch.cartesian_prod(torch.arange(8.0), torch.arange(8.0))
    assert torch.equal(seen[0], grid)
    assert torch.equal(seen[1], grid / 2)


def test_a_table_is_drawn_on_or_interpolated_and_then_as_it_was():  # LR-F2
    done = trained("learned", std=0.02)
    table, seen = done.model.encoding, []
    before, place = table.vectors, table.place
    table.place = lambda positions: seen.append(table.vectors.detach().clone()) or place(positions)
    extended_accuracy(done, 16)
    rescaled_accuracy(done, 16)
    assert [tuple(vectors.shape) for vectors in seen] == [(8, 8, 16), (8, 8, 16)]
    assert torch.equal(seen[0][:4, :4], before)
    assert torch.allclose(
        seen[1][1, 1], 0.75**2 * before[0, 0] + 0.1875 * (before[0, 1] + before[1, 0]) + before[1, 1] / 16
    )
    assert table.vectors is before


def test_resizing_keeps_flat_images_and_needs_whole_patches():
    done = trained("none")
    volumes = torch.full((2, 1, 4, 4, 4), 9, dtype=torch.uint8)
    assert (next(resized(volumes, 6)) == 9).all()
    with pytest.raises(ValueError, match="patch: got 2; it must divide the image, 9x9 pixels"):
        extended_accuracy(done, 9)


def test_a_record_keeps_the_accuracy_at_every_resolution(tmp_path):
    words = ["run", "liere-motion", "--scale", "smoke", "--out", str(tmp_path), "--quiet", "--only", "liere-8"]
    assert main(words) == 0
    (path,) = tmp_path.glob("liere-motion/*.json")
    learned = json.loads(path.read_text())["learned"]
    assert {"shuffled_accuracy", "angles", "angles_start", "shift_deviation"} <= learned.keys()
    assert "extended_accuracy" not in learned


# The experiments ------------------------------------------------------------------------------------------------------

NAMES = [name for name in EXPERIMENTS if name.startswith("liere")]


@pytest.mark.parametrize("name", NAMES)
def test_every_row_can_be_built_at_its_scale(name):
    experiment = EXPERIMENTS[name]
    for scale in experiment.scales:
        for config in {c.cell: c for c in experiment.configs(scale, seeds=[0])}.values():
            shapes = {"motion": (1, 8, 16, 16), "modelnet10": (1, 32, 32, 32), "digits": (1, 8, 8)}
            shape = shapes.get(config.dataset, (3, 32, 32))
            with torch.device("meta"):
                small = replace(config, layers=1)
                ViT(small, shape, 10)


def test_the_full_table_is_the_tiny_size_of_the_paper():  # LR-T4, LR-cfg
    for config in EXPERIMENTS["liere-cifar100"].configs("full", seeds=[0]):
        assert (config.width, config.layers, config.heads, config.mlp_ratio) == (384, 12, 6, 2)
        assert (config.epochs, config.batch, config.lr, config.pool) == (200, 512, 1e-4, "cls")
    model = ViT(EXPERIMENTS["liere-cifar100"].config("full", "learned", "cifar100", 0), (3, 32, 32), 100)
    assert 14e6 < sum(p.numel() for p in model.parameters()) < 15e6
    assert EXPERIMENTS["liere-cifar100"].paper["liere-8", "cifar100"] == 65.6


def test_rows_share_the_runs_of_the_main_table():
    main_table = {config.hash for config in EXPERIMENTS["liere-cifar100"].configs("cpu", seeds=[0])}
    for name in ("liere-data", "liere-blocks", "liere-sharing"):
        shared = [c for c in EXPERIMENTS[name].configs("cpu") if c.hash in main_table]
        assert len(shared) >= 3, name


def test_a_share_of_the_data_is_that_share():  # LR-F3b
    data = EXPERIMENTS["liere-data"]
    sizes = [data.config("full", liere.share_row("learned", share), "cifar100", 0).train_size for share in liere.SHARES]
    assert sizes == [10_000, 20_000, 30_000, 35_000, 40_000, None]
    assert data.config("cpu", "liere-8@20", "cifar100-20", 0).train_size == 600


def test_what_is_shared_is_what_the_row_says():  # LR-T2, LR-CODE
    sharing = EXPERIMENTS["liere-sharing"]
    for row, lead in (
        ("liere-8", (12, 6)),
        ("liere-8.layers", (1, 6)),
        ("liere-8.heads", (12, 1)),
        ("liere-8.all", (1, 1)),
    ):
        model = ViT(sharing.config("full", row, "cifar100", 0), (3, 32, 32), 100)
        assert model.encoding.generators.shape[:2] == lead, row
    start = ViT(sharing.config("full", "liere-8.start-1", "cifar100", 0), (3, 32, 32), 100)
    assert 0.9 < start.encoding.generators.max() < 1


def test_epochs_to_reach_is_the_first_that_is_as_accurate():  # LR-F4b
    record = a_record(Config("digits", epochs=4, eval_every=1), 0.9)
    rows = [{"epoch": i + 1, "train_loss": 1.0, "seconds": 1.0, "test_loss": 1.0} for i in range(4)]
    for row, accuracy in zip(rows, (0.2, 0.6, 0.5, 0.9)):
        row["test_accuracy"] = accuracy
    record = replace(record, metrics=tuple(rows))
    assert [liere.epochs_to_reach(record, at) for at in (0.1, 0.55, 0.6, 0.7, 0.95)] == [1, 2, 2, 4, None]


def test_tables_show_what_is_recorded():
    for name in NAMES:
        experiment = EXPERIMENTS[name]
        scale = experiment.scales[-1]
        learned = {"shuffled_accuracy": 0.25, "shift_deviation_start": 0.5, "shift_deviation": 0.25}
        learned |= {"extended_accuracy": [0.4, 0.3, 0.2, 0.1], "rescaled_accuracy": [0.45, 0.35, 0.25, 0.15]}
        found = [
            replace(a_record(config, 0.5, name), learned=learned) for config in experiment.configs(scale, seeds=[0])[:3]
        ]
        text = "\n".join(table.plain() for table in tables_of(experiment, scale, found))
        assert "50.0" in text, name
        if experiment.tabulate is liere.main_table:
            assert "40.0 / 45.0" in text
            assert f"{found[0].config.epochs}.0 (1 of 1 seeds)" in text
        if experiment.tabulate is liere.deviation_table:
            assert "25.0" in text
            assert "0.500" in text


# Table 5 --------------------------------------------------------------------------------------------------------------


def test_multiply_adds_are_those_of_the_formula(monkeypatch):  # LR-T5
    shallow = {**liere_flops.SIZES["base"], "layers": 2}
    monkeypatch.setitem(liere_flops.SIZES, "shallow", shallow)
    for size, width, layers, hidden in (("tiny", 384, 12, 768), ("shallow", 768, 2, 3072)):
        attention = 2 * 65**2 * width
        plain = layers * (65 * (4 * width**2 + 2 * width * hidden) + attention) + 64 * 48 * width + 100 * width
        assert liere_flops.counted(size, "learned")["products"] == plain
        for method, block in (("liere-2", 2), ("liere-8", 8), ("liere-64", 64)):
            found = liere_flops.counted(size, method)
            assert found["products"] + found["turning"] - plain == layers * 2 * 64 * width * block, method
    deep = {name: size["layers"] for name, size in liere_flops.SIZES.items()}
    assert (deep["base"], deep["large"]) == (12, 24)


def test_the_exponential_of_all_layers_is_counted():  # LR-T5
    encoding = build("liere", width=384, heads=12, grid=(8, 8), layers=12, block=8)
    found = liere_flops.counted("tiny", "liere-8")
    assert found["parameters"] == sum(p.numel() for p in encoding.parameters()) == 12 * 12 * 4 * 2 * 28
    # Powers and sums need 4 products, the longest rays 6 squarings; a grid of 8 x 8 has 64 - 26 rays, and 26 products.
    largest = 12 * 12 * 4 * 8**3 * (38 * (4 + 6) + 26) + 38 * 2 * 12 * 12 * 4 * 64
    assert 0.8 * largest < found["exponential"] <= largest
    assert found["exponential"] < found["matrix_exp"]


def test_the_exponential_is_counted_by_its_products():  # LR-T5
    generators = skew_matrix(torch.randn(1, 2, entry_count(8)), 8)
    positions = torch.tensor([[0.0, 0.0], [1.0, 0.5], [0.3, 0.7]])
    rays = Rays(positions, (), torch.arange(3))
    with Counting() as counted:
        position_rotations(positions, generators, rays)
    sums = torch.einsum("ti,ijk->tjk", positions, generators[0])
    largest = (sums.square().sum((-1, -2)) / 2).sqrt().max().item()
    degree, reach = _TAYLOR[torch.float32]
    step = round(degree**0.5)
    squarings = max(0, math.ceil(math.log2(largest / reach)))
    # Powers up to the step, then Horner's sums; and the sum over the axes, 2 * 64 numbers a token.
    powers = (step - 1) + (degree // step - 1)
    assert counted.products == 3 * 8**3 * (powers + squarings) + 3 * 2 * 64


def test_the_table_of_operations_is_a_command(capsys, monkeypatch):
    monkeypatch.setattr(liere_flops, "SIZES", {"tiny": liere_flops.SIZES["tiny"]})
    monkeypatch.setattr(liere_flops, "METHODS", ("learned", "liere-8"))
    assert main(["table", "liere-flops"]) == 0
    assert "+0.491" in capsys.readouterr().out


@pytest.mark.parametrize(("row", "width"), [("liere-8", 8), ("liere-64", 24)])
def test_an_equal_row_starts_with_the_rates_of_width_two_in_the_mean_square(row, width):  # LR-INIT
    high = EXPERIMENTS["liere-cifar100"].variant(f"{row}.equal").options["scale"]
    squares = {}
    for each, scale in ((width, high), (2, 2 * math.pi)):
        entries = uniform_entries(20_000 // each, entry_count(each), high=scale)
        squares[each] = spectrum(skew_matrix(entries.double(), each)).square().mean()
    assert squares[width] == pytest.approx(squares[2].item(), rel=0.03)


def test_each_method_has_the_rate_that_the_records_give_it():
    cells = cells_of(liere.RATES, "laptop", read_all())
    rates = ("0.0015", "0.003", "0.006", "0.012")
    for row in ("learned", "visionllama", "liere-2", "liere-8", "liere-64"):
        groups = [cells[f"{row}@{rate}", "cifar100"] for rate in rates]
        chosen = best_rate(groups, rates, lambda record: record.metrics[-1]["train_loss"])
        assert liere.CIFAR100.config("laptop", liere.own(row), "cifar100", 0).lr == float(chosen)
