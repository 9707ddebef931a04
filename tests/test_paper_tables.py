"""Each number of the papers' tables stands under its name: every cell is of other numbers, and written down by hand."""

from __future__ import annotations

import math
from dataclasses import replace

from test_experiments import record

from geolib.lab import Config
from geolib.lab.experiments import EXPERIMENTS
from geolib.lab.experiments.papers import documents, liere, liere_flops

BIT = math.log(2)


def cells(table):
    """What stands under each name, by the first cell of each row."""
    assert len({row[0] for row in table.rows}) == len(table.rows)
    return {row[0]: dict(zip(table.header[1:], row[1:], strict=True)) for row in table.rows}


def of_books(experiment, row, scale="cpu", seed=0, *, trained, held_out=None, **read):
    """The record of a run on books that lost so many bits a byte in each epoch, and in windows of several contexts."""
    config = experiment.config(scale, row, "books", seed)
    rows = [{"epoch": i + 1, "train_loss": bits * BIT, "seconds": 1.0} for i, bits in enumerate(trained)]
    for epoch, bits in (held_out or {len(rows): 9.0}).items():
        rows[epoch - 1]["test_loss"] = bits * BIT
    found = {"contexts": read.pop("contexts", [config.context]), **read}
    found |= {key: [None] * len(found["contexts"]) for key in ("bits", "bits_current_N") if key not in found}
    learned = {"extrapolation": found, "state_numbers": None if row.startswith("softmax") else 9248}
    blank = record(Config("digits"), 0.0, experiment.name)
    return replace(blank, config=config, metrics=tuple(rows), learned=learned)


def test_the_parts_of_a_training_stand_in_their_order_and_in_bits():  # CS-GATE0
    read = {"contexts": [64, 256, 1024], "bits": [3.5, 2.25, 2.75]}
    made = [
        of_books(documents.ABLATIONS, "softmax", trained=[4.0, 3.0, 2.5], **read),
        of_books(documents.ABLATIONS, "sympow", trained=[5.0, 3.0, 1.5], **read),
    ]
    found = cells(documents.ABLATIONS.tabulate(documents.ABLATIONS, "cpu", made))
    same = {"held out": "2.250", "at 4 times the context": "2.750"}
    assert (
        found["softmax"] == {"training, first part": "4.000", "training, last part": "2.500", "state": "grows"} | same
    )
    assert found["sympow"] == {"training, first part": "5.000", "training, last part": "1.500", "state": "9,248"} | same


def test_a_context_is_told_where_it_was_trained_and_frequencies_of_each_in_the_second_row():  # CS-F1, CS-F2, CS-N
    read = {"contexts": [256, 1024], "bits": [2.25, 2.75], "bits_current_N": [2.25, 2.625]}
    made = [of_books(documents.CONTEXT, "sympow@256", trained=[2.5], **read)]
    read = {"contexts": [256, 1024], "bits": [3.25, 2.0]}
    made += [of_books(documents.CONTEXT, "sympow@1024", trained=[2.5], **read)]
    found = cells(documents.context_table(documents.CONTEXT, "cpu", made))
    assert found == {"sympow": {"64": "", "256": "2.250", "1024": "2.000"}}
    shown = documents.extrapolation_table(documents.CONTEXT, "cpu", made[:1])
    assert shown.header == ["trained", "256", "1024"]
    assert shown.rows == [["sympow, 256 bytes", "2.250", "2.750"], ["    N of each context", "2.250", "2.625"]]


def test_under_each_rate_stands_what_was_lost_at_it():
    made = []
    for rate, (trained, bits) in {"0.001": (2.5, 2.25), "0.002": (2.0, 2.75), "0.004": (3.0, 3.5)}.items():
        made.append(of_books(documents.RATES, f"sympow@{rate}", trained=[9.0, trained], bits=[bits]))
    shown = documents.RATES.tabulate(documents.RATES, "cpu", made)
    assert cells(shown)["sympow"] == {
        **{"training, 0.001": "2.500", "training, 0.002": "2.000", "training, 0.004": "3.000"},
        **{"its rate": "0.002", "held out, 0.001": "2.250", "held out, 0.002": "2.750", "held out, 0.004": "3.500"},
    }


def test_a_budget_is_told_by_millions_of_bytes():
    epochs = {20: 3.0, 40: 2.5, 60: 2.25, 80: 2.125}
    made = [of_books(documents.BUDGET, "fox@256", trained=[1.0] * 80, held_out=epochs)]
    # 102,400 bytes an epoch.
    wanted = {"2.05 MB": "3.000", "4.1 MB": "2.500", "6.14 MB": "2.250", "8.19 MB": "2.125"}
    assert list(cells(documents.BUDGET.tabulate(documents.BUDGET, "cpu", made)).values()) == [wanted]


def of_images(row, seed, accuracies, **learned):
    """The record of a laptop run on CIFAR-100 that ends with these accuracies, one an epoch."""
    config = liere.CIFAR100.config("laptop", row, "cifar100", seed)
    made = record(config, accuracies[-1], liere.CIFAR100.name)
    first = config.epochs - len(accuracies)
    late = [
        row | {"test_accuracy": accuracy, "test_loss": 1.5} for row, accuracy in zip(made.metrics[first:], accuracies)
    ]
    return replace(made, metrics=(*made.metrics[:first], *late), learned=learned)


def test_beside_an_accuracy_stand_shuffled_resized_and_how_soon_the_baseline_was_reached():  # LR-T3, LR-F2, LR-F4b
    settings = liere.CIFAR100.settings["laptop"]
    sizes, last = settings["resolutions"], settings["epochs"]
    learned = {
        "shuffled_accuracy": 0.125,
        "extended_accuracy": [0.5 + i / 100 for i in range(len(sizes))],
        "rescaled_accuracy": [0.25 + i / 100 for i in range(len(sizes))],
    }
    made = [of_images("learned", seed, [0.5, 0.625], **learned) for seed in (0, 1)]
    # Seed 0 reaches the baseline two epochs before the end, seed 1 never; seed 2 has no baseline.
    rising = {0: [0.625, 0.5, 0.75], 1: [0.5, 0.5, 0.5], 2: [0.75, 0.75, 0.75]}
    made += [of_images("liere-8", seed, accuracies, **learned) for seed, accuracies in rising.items()]
    shown = cells(liere.main_table(liere.CIFAR100, "laptop", made))[liere.TITLES["liere-8"]]
    resized = {
        f"{pixels} px: extended / rescaled": f"{50 + i}.0±0.0 / {25 + i}.0±0.0" for i, pixels in enumerate(sizes)
    }
    wanted = {"shuffled": "12.5±0.0", "loss": "1.500", "epochs to the baseline": f"{last - 2}.0 (1 of 2 seeds)"}
    assert {name: shown[name] for name in [*resized, *wanted]} == resized | wanted


def test_rates_of_images_and_shares_of_data_stand_under_their_names():  # LR-T1, LR-F3b
    made = []
    for rate, (lost, accuracy) in {"0.0015": (2.5, 0.25), "0.003": (2.0, 0.5), "0.006": (2.25, 0.375)}.items():
        run = record(liere.RATES.config("laptop", f"liere-8@{rate}", "cifar100", 0), accuracy, liere.RATES.name)
        made.append(replace(run, metrics=(*run.metrics[:-1], run.metrics[-1] | {"train_loss": lost})))
    shown = liere.rates_table(liere.RATES, "laptop", made)
    assert {name: cell for name, cell in cells(shown)["liere-8"].items() if cell} == {
        **{"training, 0.0015": "2.500", "training, 0.003": "2.000", "training, 0.006": "2.250"},
        **{"tested, 0.0015": "25.0", "tested, 0.003": "50.0", "tested, 0.006": "37.5"},
    }
    shares = EXPERIMENTS["liere-data"]
    made = [
        record(shares.config("cpu", liere.share_row("liere-8", share), liere.SMALL, 0), share / 200, shares.name)
        for share in liere.SHARES
    ]
    found = cells(liere.share_table(shares, "cpu", made))[liere.TITLES["liere-8"]]
    assert found == {f"{share} %": f"{share / 2:.1f}" for share in liere.SHARES}


def test_operations_are_counted_in_powers_of_ten_and_each_exponential_has_its_own_column(monkeypatch):  # LR-T5
    parts = ("products", "turning", "exponential", "matrix_exp")
    numbers = {"learned": (1000, 0, 0, 0), "liere-8": (1020, 5, 40, 90)}
    counted = {method: {part: 10**6 * n for part, n in zip(parts, found)} for method, found in numbers.items()}
    monkeypatch.setattr(liere_flops, "SIZES", {"tiny": {}})
    monkeypatch.setattr(liere_flops, "METHODS", tuple(counted))
    monkeypatch.setattr(liere_flops, "counted", lambda size, method: counted[method] | {"parameters": 1})
    (shown,) = liere_flops.flop_table("full", [])
    assert dict(zip(shown.header, shown.rows[1], strict=True)) == {
        "size": "tiny", "method": liere.TITLES["liere-8"], "G": "1.025", "paper G": "0.968", "%": "+2.500",
        "paper %": "+0.519", "% of paper's G": "+0.52", "% with ours": "+6.5", "% with matrix_exp": "+11.5",
    }  # fmt: skip


def test_every_special_table_is_held_by_numbers_written_down():
    """A new kind of table wants a test here, or beside the experiment it is made for."""
    kinds = {experiment.tabulate.__name__ for experiment in EXPERIMENTS.values() if experiment.tabulate}
    here = {"_ablation_table", "context_table", "extrapolation_table", "_rates_table", "_budget_table", "main_table"}
    here |= {"rates_table", "share_table"}
    elsewhere = {"grid_table", "shift_table", "_block_table", "_scale_table", "_door_table", "deviation_table"}
    assert kinds == here | elsewhere
