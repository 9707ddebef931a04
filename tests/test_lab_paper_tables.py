"""The papers' experiments: a row trains what its name says, and each number of their tables is under its name."""

import math
import re
from dataclasses import replace

import pytest
import torch
from test_lab_experiments import SPREAD, record

from geolib.lab import Config, read_all
from geolib.lab.benches import flops
from geolib.lab.data.sets import DATASETS
from geolib.lab.experiments import EXPERIMENTS, cells_of, find, table
from geolib.lab.experiments.papers import digits, documents, liere, riemannformer
from geolib.lab.experiments.papers.riemannformer import FROZEN, TABLE1
from geolib.lab.gpt import GPT
from geolib.lab.vit import ViT

BIT = math.log(2)
FIVE = "learned", "visionllama", "liere-2", "liere-8", "liere-64"
SHARES = ("liere-8@20", "liere-8@40", "liere-8@60", "liere-8@70", "liere-8@80", "liere-8")


def test_the_papers_accuracies_are_those_printed():  # RF-T1, LR-T1, LR-T4
    six = "none", "sinusoidal", "rope", "lf", "riemannformer", "riemannformer+lf"
    ten, hundred = (79.61, 86.06, 87.91, 87.30, 89.87, 90.82), (53.37, 59.81, 62.37, 63.01, 64.51, 66.96)
    printed = {(row, f"cifar{n}"): x for n, numbers in ((10, ten), (100, hundred)) for row, x in zip(six, numbers)}
    assert find("riemannformer-table1").paper == printed
    tiny, base = (57.2, 58.2, 65.4, 65.6, 65.3), (63.9, 65.5, 68.8, 70.3, 70.0)
    for name, numbers in (("liere-cifar100", tiny), ("liere-base", base)):
        assert find(name).paper == {(row, "cifar100"): x for row, x in zip(FIVE, numbers)}


# A row trains what its name and its title say -------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_row_can_be_built(name):
    experiment = EXPERIMENTS[name]
    scale = experiment.scales[-1]
    for row, dataset in experiment.pairs(scale):
        config, spec = experiment.config(scale, row, dataset, 0), DATASETS[dataset]
        with torch.device("meta"):
            small = replace(config, layers=1)
            model = GPT(small) if config.is_text else ViT(small, spec.shape, 10)
        assert sum(p.numel() for p in model.parameters()) > 1000, row


@pytest.mark.parametrize("name", riemannformer.TRAININGS)
def test_a_setting_of_the_grid_is_the_one_it_is_called(name):  # RF-T1
    width, ratio, words = re.fullmatch(r"w(\d+)-mlp(\d)(.*)", name).groups()
    words = words.split("-")[1:]
    config = riemannformer.BASELINES.config("full", f"{name}.none", "cifar10", 0)
    assert (config.width, config.mlp_ratio) == (int(width), float(ratio))
    assert config.augment == ("none" if "plain" in words else "crop-flip" + "-autoaugment" * ("auto" in words))
    assert config.schedule == ("constant" if "constant" in words else "cosine")
    assert (config.erase > 0) == ("erase" in words)
    assert config.warmup == (0 if "cold" in words else 5 * 391)  # epochs of 50,000 images in batches of 128
    assert (config.epochs, config.batch, config.layers, config.heads) == (200, 128, 6, 4)


@pytest.mark.parametrize("row", ["riemannformer", "free-above", "middle-below", "middle-above", "relative-above"])
def test_a_row_of_scales_starts_where_its_table_says(row):  # RF-6a
    model = ViT(digits.SCALE.config("cpu", row, "digits", 0), (1, 8, 8), 10)
    assert model.encoding.log_scale().exp().unique().item() == pytest.approx(digits.start_of(row), rel=1e-5)


@pytest.mark.parametrize("row", [row for row, _ in find("liere-sharing").pairs("full")])
def test_a_row_of_sharing_changes_one_thing(row):  # LR-T2
    config = find("liere-sharing").config("full", row, "cifar100", 0)
    base, _, change = row.partition(".")
    width = base.partition("-")[2]
    wanted = {} if width in ("", "64") else {"block": int(width)}
    wanted |= {"share": change} if change in ("layers", "heads", "all") else {}
    wanted |= {"scale": 1.0} if change == "start-1" else {}
    assert (config.method_options, config.pool) == (wanted, "mean" if change == "mean" else "cls")


def test_lieres_full_scale_is_the_papers():  # LR-T4, LR-cfg, LR-F3b
    for c in find("liere-cifar100").configs("full", seeds=[0]):
        assert (c.width, c.layers, c.heads, c.mlp_ratio, c.epochs) == (384, 12, 6, 2, 200)
        assert (c.batch, c.lr, c.pool, c.dropout, c.weight_decay) == (512, 1e-4, "cls", 0.1, 0)
    for name in ("liere-voxels", "liere-motion"):
        for (row, _), c in zip(find(name).pairs("full"), find(name).configs("full", seeds=[0])):
            assert (c.batch, c.augment, c.epochs, c.patch == 4) == (64, "none", 50, row.endswith("@4"))
    shares = [find("liere-data").config("full", row, "cifar100", 0).train_size for row in SHARES]
    assert shares == [10_000, 20_000, 30_000, 35_000, 40_000, None]


def test_each_method_has_the_rate_that_the_records_give_it():  # LR-T1
    cells, loss = cells_of(liere.RATES, "laptop", read_all()), lambda run: run.metrics[-1]["train_loss"]
    at_own = {row: f"{row}.own" for row in FIVE} | {"liere-64": "liere-64", "learned-near": "learned.own.near"}
    for row, name in at_own.items():
        groups = [group for (each, _), group in cells.items() if each.split("@")[0] == row]
        assert [len(group) for group in groups] == [3] * 6
        own = liere.CIFAR100.config("laptop", name, "cifar100", 0).lr
        assert own == min(groups, key=lambda group: sum(map(loss, group)))[0].config.lr


def test_rows_of_documents_are_what_their_titles_say():  # CS-F1, CS-GATE0
    for scale in documents.CONTEXT.scales:
        for row, _ in documents.CONTEXT.pairs(scale):
            config, title = documents.CONTEXT.config(scale, row, "books", 0), documents.CONTEXT.methods[row]
            assert f"{config.context:,} bytes" in title
            assert config.batch * config.context == documents.STEP[scale]
            epochs = documents.FOURTH_EPOCHS if "-4@" in row else documents.SETTINGS[scale]["epochs"]
            assert config.train_size * config.context * config.epochs == documents.EPOCH[scale] * epochs
            power = 4 if ", p = 4" in title and "softmax" not in title else 2
            assert config.method_options.get("power", 2) == power, title
    words = {
        r"N = ([\d,]+)": lambda found: {"longest": float(found[1].replace(",", ""))},
        "eleven heads": lambda found: {"heads": 11},
        "start at 1/2": lambda found: {"gate_bias": 0.0},
        "all rates start at 1": lambda found: {"beta_scale": 0.0},
        "p = 4, ten heads of 6": lambda found: {"power": 4, "heads": 10, "head_dim": 6},
    }
    for row, title in documents.ABLATIONS.methods.items():
        wanted = {"head_dim": 16, "longest": 300.0}
        for pattern, said in words.items():
            wanted |= said(found) if (found := re.search(pattern, title)) else {}
        assert documents.ABLATIONS.config("cpu", row, "books", 0).method_options == wanted, title


# Each number of a table is under its name: every cell is of other numbers, written down by hand -----------------------


def cells(shown):
    """What is under each name, by the first cell of each line."""
    assert len({row[0] for row in shown.rows}) == len(shown.rows)
    return {row[0]: dict(zip(shown.header[1:], row[1:], strict=True)) for row in shown.rows}


def of_books(name, row, scale="cpu", *, trained, held_out=None, **read):
    """A record that lost so many bits a byte in each epoch, and in windows of several contexts."""
    config = find(name).config(scale, row, "books", 0)
    rows = [{"epoch": i + 1, "train_loss": bits * BIT, "seconds": 1.0} for i, bits in enumerate(trained)]
    for epoch, bits in (held_out or {}).items():
        rows[epoch - 1]["test_loss"] = bits * BIT
    found = {"contexts": [config.context], "bits_current_N": [None] * len(read.get("contexts", [0])), **read}
    learned = {"extrapolation": found, "state_numbers": None if row.startswith("softmax") else 9248}
    return replace(record(Config("digits"), 0.0, name), config=config, metrics=tuple(rows), learned=learned)


def of_images(name, scale, row, accuracy, seed=0, **learned):
    config = find(name).config(scale, row, dict(find(name).pairs(scale))[row], seed)
    return record(config, accuracy, name, learned=learned)


def line(name, *runs, scale="cpu"):
    """The one line of a table."""
    ((title, found),) = cells(table(find(name), scale, runs)).items()
    return title, found


def test_tables_of_books_have_bits_under_their_names():  # CS-F1, CS-F2, CS-N, CS-GATE0
    read = {"contexts": [64, 256, 1024], "bits": [3.5, 2.25, 2.75]}
    for row, first, last, state in (("softmax", 4.0, 2.5, "grows"), ("sympow", 5.0, 1.5, "9,248")):
        wanted = {"training, first part": f"{first:.3f}", "training, last part": f"{last:.3f}", "state": state}
        wanted |= {"held out": "2.250", "at 4 times the context": "2.750"}
        run = of_books("sympow-ablations", row, trained=[first, 3.0, last], **read)
        assert line("sympow-ablations", run) == (row, wanted)
    read = {"contexts": [256, 1024], "bits": [2.25, 2.75], "bits_current_N": [None, 2.625]}
    runs = [of_books("sympow-context", "sympow@1024", trained=[2.5], contexts=[256, 1024], bits=[3.25, 2.0])]
    runs += [of_books("sympow-context", "sympow@256", trained=[2.5], **read)]
    assert line("sympow-context", *runs) == ("sympow", {"256": "2.250", "1024": "2.000"})
    run = of_books("sympow-context", "sympow@64", trained=[1.0], **read)
    wanted = {"256": "2.250", "1024": "2.750", "1024, N = 1024": "2.625"}
    assert line("sympow-extrapolation", run) == ("sympow, 64 bytes", wanted)
    run = of_books("sympow-context", "softmax-4@1024", "full", trained=[1.0], bits=[2.0])
    assert line("sympow-context", run, scale="full") == ("softmax, beside p = 4", {"1024": "2.000"})


def test_rates_and_budgets_of_books_are_under_their_names():
    rates = {0.001: (2.5, 2.25), 0.002: (2.0, 2.75), 0.004: (3.0, 3.5)}
    runs = [of_books("sympow-rates", f"fox@{r}", trained=[9.0, x], bits=[y]) for r, (x, y) in rates.items()]
    wanted = {
        f"{name}, {r}": f"{both[i]:.3f}" for i, name in enumerate(("training", "held out")) for r, both in rates.items()
    }
    assert line("sympow-rates", *runs) == ("softmax and gates (FoX)", wanted)
    # 102,400 bytes an epoch.
    run = of_books("sympow-budget", "fox@256", trained=[1.0] * 80, held_out={20: 3.0, 40: 2.5, 60: 2.25, 80: 2.125})
    wanted = {"2.05 MB": "3.000", "4.1 MB": "2.500", "6.14 MB": "2.250", "8.19 MB": "2.125"}
    assert line("sympow-budget", run) == ("softmax and gates (FoX), 256 bytes", wanted)


def test_lieres_main_table_has_shuffled_resized_and_how_soon_the_baseline_was_reached():  # LR-T3, LR-T6, LR-F2, LR-F4b
    read = {"shuffled_accuracy": 0.125, "extended_accuracy": [0.5, 0.51], "rescaled_accuracy": [0.25, 0.26]}
    # Seed 0 reaches the baseline two epochs before the end, seed 1 never; seed 2 has no baseline.
    curves = {("learned", 0): [0.5, 0.625], ("learned", 1): [0.5, 0.625]}
    curves |= {("liere-8", 0): [0.625, 0.5, 0.75], ("liere-8", 1): [0.5, 0.5, 0.5], ("liere-8", 2): [0.75, 0.75, 0.75]}
    runs = []
    for (row, seed), accuracies in curves.items():
        run = of_images("liere-cifar100", "laptop", row, accuracies[-1], seed, **read)
        kept, late = run.metrics[: -len(accuracies)], run.metrics[-len(accuracies) :]
        late = [x | {"test_accuracy": a, "test_loss": 1.5} for x, a in zip(late, accuracies)]
        runs.append(replace(run, metrics=(*kept, *late)))
    assert cells(table(find("liere-cifar100"), "laptop", runs))["LieRE8"] == {
        "cifar100, paper": "65.60", "cifar100, ours": "66.67 ± 14.43 (3 seeds)", "shuffled": "12.5±0.0",
        "loss": "1.500", "24 px, extended": "50.0±0.0", "24 px, rescaled": "25.0±0.0", "48 px, extended": "51.0±0.0",
        "48 px, rescaled": "26.0±0.0", "epochs to the baseline": "10.0 (1 of 2 seeds)",
    }  # fmt: skip


def test_lieres_other_tables_have_each_number_under_its_name():  # LR-T1, LR-F3b, LR-F4a, LR-T2, LR-SHIFT
    runs, wanted = [], {}
    for rate, lost, accuracy in (("0.0015", 2.5, 0.25), ("0.003", 2.0, 0.5), ("0.006", 2.25, 0.375)):
        run = of_images("liere-rates", "laptop", f"liere-8@{rate}", accuracy)
        runs.append(replace(run, metrics=(*run.metrics[:-1], run.metrics[-1] | {"train_loss": lost})))
        wanted |= {f"training, {rate}": f"{lost:.3f}", f"tested, {rate}": f"{100 * accuracy:.1f}"}
    assert line("liere-rates", *runs, scale="laptop") == ("LieRE8", wanted)
    runs = [of_images("liere-data", "cpu", row, 0.1 + i / 100) for i, row in enumerate(SHARES)]
    shares = {f"{share} %": f"{10 + i}.0" for i, share in enumerate((20, 40, 60, 70, 80, 100))}
    assert line("liere-data", *runs) == ("LieRE8", shares)
    read = {"shuffled_accuracy": 0.25, "shift_deviation_start": 0.5, "shift_deviation": 0.375}
    wanted = {"in place": "75.0", "shuffled": "25.0", "loss": "1.000", "deviation at the start": "0.500"}
    for name in ("liere-blocks", "liere-voxels", "liere-motion", "liere-sharing"):
        _, shown = line(name, of_images(name, "full", "liere-8", 0.75, **read), scale="full")
        assert shown == wanted | {"trained": "0.375"}


def test_tables_of_digits_have_each_number_under_its_name():  # RF-PE, RF-6a, LR-blk
    def shown(name, row, **learned):
        title, found = line(name, of_images(name, "cpu", row, 0.9, **learned))
        return title, " ".join(f"{key}: {text};" for key, text in found.items())

    moved = {"moved_accuracy": [0.71, 0.72, 0.73, 0.74, 0.75, 0.76, 0.77, 0.78]}
    wanted = "RoPE, reading order", "0: 90.0; 1: 71.0; 2: 72.0; 4: 74.0; 8: 76.0; 16: 78.0;"
    assert shown("digits-shift", "rope", **moved) == wanted
    carried = {"moved_accuracy": [0.1] * 4, "carried_accuracy": [0.4, 0.3, 0.2, 0.1]}
    assert shown("digits-field", "learned", **carried) == ("learned", "0: 90.0; 1: 40.0; 2: 30.0; 4: 10.0;")
    assert shown("digits-doors", "none", shuffled_accuracy=0.3) == ("none", "in place: 90.0; shuffled: 30.0;")
    wanted = "starts at: 0.9851; ends between: 0.9000 to 1.2000; went up: 2 of 4; accuracy: 90.0;"
    assert shown("digits-scale", "free-below", scales=[[[0.98, 1.2], [0.99, 0.9]]])[1] == wanted
    read = {"shift_deviation_start": 0.5, "shift_deviation": 0.25, "commuting_accuracy": 0.6, "shaken_accuracy": 0.3}
    wanted = "in place: 90.0; moved by 4: 74.0; deviation at the start: 0.500; trained: 0.250; "
    wanted += "commuting: 60.0; shaken: 30.0;"
    assert shown("digits-blocks", "liere-4", **moved, **read) == ("LieRE, width 4", wanted)


def test_the_grids_table_has_each_settings_distance_from_the_papers_baselines():  # RF-T1
    accuracies = {"w256-mlp4.none": 79.61, "w256-mlp4.rope": 81.91, "w192-mlp2.none": 76.61, "w192-mlp2.rope": 83.91}
    accuracies |= {"w256-mlp4.rope-axial": 88.91, "w384-mlp4.rope": 87.91, "w256-mlp4-auto-erase.none": 70}
    runs = [of_images("riemannformer-baselines", "full", row, a / 100) for row, a in accuracies.items()]
    shown = cells(table(riemannformer.BASELINES, "full", runs))
    assert {title: list(found.values())[1:] for title, found in shown.items()} == {
        "w256-mlp4 with rope": ["79.61", "81.91", "6.00"],
        "w192-mlp2 with rope": ["76.61", "83.91", "5.00"],  # 3 and 4 points off
        "w384-mlp4 with rope": ["-", "87.91", "-"],
        "w256-mlp4-auto-erase with rope": ["70.00", "-", "-"],
        "w256-mlp4 with rope-axial": ["79.61", "88.91", "1.00"],
    }
    names = ["setting", "No-Pos (paper 79.61)", "RoPE (paper 87.91)", "distance"]
    assert list(shown["w384-mlp4 with rope"]) == names
    training = "augmentation crop-flip-autoaugment, erasing 0.25, cosine learning rate after 1955 steps of warm-up"
    assert shown["w256-mlp4-auto-erase with rope"]["setting"] == f"width 256, MLP ratio 4, {training}"
    assert SPREAD.format("0") in table(riemannformer.BASELINES, "full", runs).notes


def test_the_frozen_setting_is_the_rules_choice_once_the_grid_is_recorded():  # RF-T1
    assert TABLE1.settings["full"].items() >= riemannformer.TRAININGS[FROZEN[0]].items()
    assert (FROZEN[1], "cifar10") in TABLE1.paper
    shown = cells(table(riemannformer.BASELINES, "full", read_all())).values()
    distances = [float(row["distance"]) for row in shown if row.get("distance", "-") != "-"]
    whole = len(distances) == len(riemannformer.GRID)
    assert riemannformer.GRID[distances.index(min(distances)) if whole else 0] == FROZEN


# LieRE's Table 5 ------------------------------------------------------------------------------------------------------


def test_multiply_adds_are_those_of_the_formula(monkeypatch):  # LR-T5
    monkeypatch.setattr(flops, "SIZES", {"tiny": flops.SIZES["tiny"]})
    rows = {row["method"]: row for row in flops.run()}
    width, layers, hidden = 384, 12, 768
    plain = layers * (65 * (4 * width**2 + 2 * width * hidden) + 2 * 65**2 * width) + 64 * 48 * width + 100 * width
    for method, block in zip(FIVE, (0, 2, 2, 8, 64)):
        extra, found = layers * 2 * 64 * width * block, rows[method]
        assert found["products"] + found["turning"] == plain + extra, method
        assert found["percent"] == pytest.approx(100 * extra / plain)
        assert found["percent_with_exponential"] == pytest.approx(100 * (extra + found["exponential"]) / plain)
    assert rows["liere-8"]["parameters"] == 12 * 6 * 8 * 2 * 28
    # Powers and sums need 4 products, the longest rays 6 squarings; a grid of 8 x 8 has 64 - 26 rays, and 26 products.
    largest = 12 * 6 * 8 * 8**3 * (38 * (4 + 6) + 26) + 38 * 2 * 12 * 6 * 8 * 64
    assert 0.8 * largest < rows["liere-8"]["exponential"] <= largest
