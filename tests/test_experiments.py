"""The experiments' rows and runs, the rule for what a paper leaves out, and statistics over seeds."""

import math
from dataclasses import replace
from itertools import permutations, product

import pytest
import torch

from geolib.encodings import build
from geolib.lab import Config, LabError, read_all
from geolib.lab.__main__ import main
from geolib.lab.experiments import EXPERIMENTS
from geolib.lab.experiments.estimates import GPU, Estimate, Kind, assumed_seconds, counted, estimate, flops
from geolib.lab.experiments.papers.block_width import BLOCKS
from geolib.lab.experiments.papers.liere import CIFAR100 as LIERE
from geolib.lab.experiments.papers.riemannformer import (
    ABLATIONS,
    BASELINES,
    FROZEN,
    GRID,
    LEASE,
    PAPER,
    TABLE1,
    TRAININGS,
    choose,
    chosen_of,
    distance,
    distances,
    grid_table,
)
from geolib.lab.experiments.papers.scales import SCALE, start_of
from geolib.lab.experiments.papers.shifts import FIELD, SHIFT, accuracies
from geolib.lab.experiments.plan import Experiment, Pipeline, Stage, Variant
from geolib.lab.experiments.stats import difference_error, mcnemar, paired_differences, sampling_error, verdict
from geolib.lab.experiments.tables import cells_of, difference_table, ordering, provenance, table, tables_of
from geolib.lab.probes.vit import learned_scales
from geolib.lab.records import Record
from geolib.lab.runner import Machine, packed
from geolib.lab.vit import ViT

ROPE = FROZEN[1]  # the row that stands for the paper's RoPE


def record(config, accuracy, experiment=None):
    """The record of a run that ended in this accuracy."""
    rows = [{"epoch": i + 1, "train_loss": 1.0, "seconds": 1.0} for i in range(config.epochs)]
    rows[-1] |= {"test_loss": 1.0, "test_accuracy": accuracy}
    return Record.from_dict(
        {
            "schema": 1,
            "hash": config.hash,
            "config": config.to_dict(),
            "experiment": experiment,
            "scale": None,
            "metrics": rows,
            "wall_seconds": 1.0,
            "images_per_second": 1.0,
            "peak_memory": {"bytes": 1, "of": "process"},
            "device": "a device",
            "precision": "float32",
            "versions": {},
            "commit": None,
            "data": {},
            "started": "",
        }
    )


def seeds_of(method, accuracies, first_seed=0):
    configs = (Config("cifar10", method, seed=first_seed + i) for i in range(len(accuracies)))
    return [record(config, accuracy) for config, accuracy in zip(configs, accuracies)]


# Rows and runs ------------------------------------------------------------------------------------------------------


def test_configurations_of_recorded_runs_keep_their_names():
    # These names stand in book/results; the settings of the cpu scale and the methods' options must not move.
    names = {c.name for c in TABLE1.configs("cpu", [0])}
    assert {
        "cifar10-none-seed0-895972b014",
        "cifar10-rope-seed0-e13aae2e39",
        "cifar10-sinusoidal-seed0-79cb2ca693",
    } <= names


def test_a_row_carries_its_methods_options():
    config = TABLE1.config("full", "liere+lf", "cifar100", 2)
    assert (config.method, config.method_options, config.seed) == ("liere+lf", {"block": 8}, 2)
    assert TABLE1.config("full", "learned", "cifar10", 0).method_options == {}


def test_the_tables_columns_are_the_papers_and_ours_with_and_without_locality():  # RF-T1
    rows = list(TABLE1.methods)
    assert rows[:6] == ["none", "sinusoidal", FROZEN[1], "lf", "riemannformer", "riemannformer+lf"]
    ours = {"learned", "rope-axial", "rope", "rope-mixed", "liere"}
    assert set(rows[6:]) == (ours | {f"{name}+lf" for name in ours}) - {FROZEN[1]}
    assert {row for row, _ in TABLE1.paper} == set(rows[:6])


def test_the_papers_rows_run_before_ours_and_seed_by_seed():
    order = [(c.method, c.dataset, c.seed) for c in TABLE1.configs("full")]
    published = {row for row, _ in TABLE1.paper}
    first = order[: 6 * 2 * 3]
    assert {method for method, _, _ in first} == published
    assert [seed for _, _, seed in first] == [0] * 12 + [1] * 12 + [2] * 12
    assert len(order) == 15 * 2 * 3


def test_only_takes_rows_and_data_sets():
    assert {c.method for c in TABLE1.configs("full", [0], ["rope/cifar10"])} == {"rope"}
    (one,) = BASELINES.configs("full", words=["w192-mlp2.none"])
    assert (one.method, one.width) == ("none", 192)
    with pytest.raises(LabError, match=r"--only 'w1': there are w256-mlp4\.none"):
        BASELINES.configs("full", words=["w1"])


def test_a_row_whose_method_the_library_lacks_is_told_and_not_left_out():
    slip = Experiment("x", "x", ("digits",), {"none": "none", "rope-axail": "RoPE"}, {"cpu": {}}, {"cpu": (0,)})
    with pytest.raises(ValueError, match="method: got 'rope-axail'; the methods are none"):
        slip.configs("cpu")


def test_estimates_grow_with_the_work():
    config = TABLE1.config("full", "rope", "cifar10", 0)

    def work(other):
        return assumed_seconds(other, GPU) - GPU.preparing

    assert work(replace(config, epochs=100)) == pytest.approx(work(config) / 2)
    assert work(replace(config, width=1024)) > 4 * work(config)
    assert work(replace(config, method="riemannformer+lf")) > work(config) > work(replace(config, method="none"))


def test_the_arithmetic_of_a_step_is_what_torch_counts():
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    config = replace(TABLE1.config("full", "none", "cifar10", 0), batch=2)
    model, count = ViT(config, (3, 32, 32), 10), FlopCounterMode(display=False)
    with sdpa_kernel(SDPBackend.MATH), count:  # of the fused kernel it does not know the arithmetic
        model(torch.zeros(2, 3, 32, 32)).sum().backward()
    assert flops(config) == pytest.approx(count.get_total_flops(), rel=0.01)  # but for embedding and head


def test_operations_are_counted_for_each_method_without_views():
    small = Config("cifar10", "none", width=16, heads=2, layers=1, patch=8)
    operations = {method: counted(replace(small, method=method))[0] for method in ("none", "rope", "rope-mixed")}
    assert 20 < operations["none"] < operations["rope"] < operations["rope-mixed"]
    deep = counted(replace(small, layers=3))[0]
    assert deep - operations["none"] == 2 * (counted(replace(small, layers=2))[0] - operations["none"])


def measured(config, seconds, device="here", jobs=1):
    return replace(record(config, 0.5), wall_seconds=seconds, device=device, engine={"jobs": jobs})


def test_an_estimate_rests_on_the_nearest_runs_of_this_device():
    config = TABLE1.config("full", "rope", "cifar10", 0)
    assumed, slow = assumed_seconds(config, GPU), measured(config, 3 * assumed_seconds(config, GPU), "elsewhere")
    guess = estimate(config, [slow], "here", GPU)
    assert (guess.seconds, guess.basis) == (assumed, "assumed speeds, nothing measured here")

    small = replace(config, width=64, method="lf")
    others = [slow, measured(small, 5 * assumed_seconds(small, GPU))]
    guess = estimate(config, others, "here", GPU)
    assert (guess.seconds, guess.basis[:28]) == (pytest.approx(5 * assumed), "other methods at another siz")

    small = replace(config, width=64)
    others.append(measured(small, 4 * assumed_seconds(small, GPU)))
    guess = estimate(config, others, "here", GPU)
    assert (guess.seconds, guess.basis[:14]) == (pytest.approx(4 * assumed), "this method at")

    none = TABLE1.config("full", "none", "cifar10", 0)
    others.append(measured(none, 2 * assumed_seconds(none, GPU)))
    guess = estimate(config, others, "here", GPU)
    assert guess.seconds == pytest.approx(2 * assumed)
    assert guess.basis == "other methods at this size, measured here (1 run)"

    # Half as many epochs of the same model, a run of ten and one of twelve times the assumed time.
    half = replace(config, epochs=100, seed=4)
    others += [measured(half, ratio * assumed_seconds(half, GPU)) for ratio in (10, 12)]
    guess = estimate(config, others, "here", GPU)
    assert guess.seconds == pytest.approx(11 * assumed)
    assert guess.basis == "this method at this size, measured here (2 runs)"


def test_an_estimate_rests_first_on_the_newest_run_of_its_experiment_scale_and_precision():
    config, kind = TABLE1.config("full", "rope", "cifar10", 0), Kind("mine", "full", "bf16", on_gpu=True)

    def made(seconds, method="rope", device="here", day=1, **changes):
        done = measured(replace(TABLE1.config("full", method, "cifar10", 1), epochs=config.epochs), seconds)
        memory = {"bytes": 1, "of": "device"}
        usual = {"experiment": "mine", "scale": "full", "precision": "bf16", "peak_memory": memory}
        return replace(done, **usual | {"device": device, "started": f"2026-01-0{day}T00:00:00+00:00"} | changes)

    def guess(*records):
        return estimate(config, records, "here", GPU, kind)

    other_kinds = [made(7.0, **{name: "other"}) for name in ("experiment", "scale", "precision")]
    other_kinds.append(made(7.0, peak_memory={"bytes": 1, "of": "process"}))
    assert guess(*other_kinds).basis == "this method at this size, measured here (4 runs)"
    elsewhere = made(500.0, device="there", day=9)
    assert guess(*other_kinds, elsewhere).seconds == pytest.approx(500)
    assert guess(*other_kinds, elsewhere).basis.endswith("this method in this experiment, measured on there")
    other_method = made(3.0, method="none", day=8)
    assert guess(elsewhere, other_method).basis.endswith("another method in this experiment, measured here")
    old, new = made(100.0, day=2), made(41.0, day=3)
    assert guess(*other_kinds, elsewhere, other_method, new, old).seconds == pytest.approx(41)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(("engine", "seconds"), [({"jobs": 4}, 25), ({"jobs": 2}, 50), ({"jobs": 1}, 100), ({}, 100)])
def test_a_run_beside_others_counts_as_it_would_alone(named, engine, seconds):
    config = TABLE1.config("full", "rope", "cifar10", 0)
    made = replace(measured(config, 100.0), engine=engine)
    kind = Kind(made.experiment, made.scale, made.precision, made.peak_memory.get("of") == "device") if named else None
    guess = Machine("here", GPU, is_gpu=True).estimate(config, [made], kind)
    assert guess.seconds == pytest.approx(seconds)
    assert ("in this experiment" in guess.basis) == named


# What a time budget holds -------------------------------------------------------------------------------------------


def some_run(number):
    return BASELINES, Config("digits", seed=number)


def planned(groups_of_stages, seconds, done=(), devices=1):
    """The numbers of the runs that fit; a run takes as many seconds as its number."""
    stages = [Stage([[some_run(n) for n in group] for group in groups]) for groups in groups_of_stages]
    plan = packed(stages, lambda c: c.seed not in done, lambda e, c: Estimate(float(c.seed), ""), seconds, devices)
    assert len({item.config.seed for item in plan}) == len(plan)
    return [item.config.seed for item in plan if item.fits]


def test_a_budget_is_packed_by_importance():
    assert planned([[[5], [4], [3], [1]]], None) == [5, 4, 3, 1]
    assert planned([[[5], [4], [3], [1]]], 13) == [5, 4, 3, 1]
    assert planned([[[5], [4], [3], [1]]], 8.5) == [5, 3]  # 4 is too long for what is left, 3 is not
    assert planned([[[5], [4], [3], [1]]], 4.5) == [4]
    assert planned([[[5], [4], [3], [1]]], 4.5, done=[4]) == [3, 1]
    assert planned([[[5], [4], [3], [1]]], 4.5, devices=2) == [5, 4]
    assert planned([[[5], [4]]], 1) == []


def test_the_runs_of_a_group_are_made_together_or_not_at_all():
    assert planned([[[2, 3], [4, 5], [6]]], 11.5) == [2, 3, 6]
    assert planned([[[2, 3], [2, 6], [4]]], 11.5) == [2, 3, 6]  # a run that two groups share is made once
    assert planned([[[2, 3], [2, 6], [4]]], 11.5, done=[2]) == [3, 6]


def test_a_stage_leaves_time_for_those_after_it():
    assert planned([[[5], [4], [3]], [[6], [2]]], 16.5) == [5, 3, 6, 2]
    assert planned([[[5], [4], [3]], [[6], [2], [4]]], 21.5) == [5, 4, 3, 6, 2]  # what both stages need counts once
    assert planned([[[5], [4], [3]], [[6], [2]]], 12) == [5, 6]  # the first group is what all else rests on


def leased(scale, records):
    return [[config for _, config in stage.runs] for stage in LEASE.stages(scale, records, None, [])]


def test_the_lease_shares_its_runs_between_grid_and_table():  # RF-T1
    grid, columns = leased("full", [])
    assert {config.hash for config in grid} <= {config.hash for config in BASELINES.configs("full")}
    table_here = {config.hash for config in TABLE1.configs("full", seeds=[0])}
    assert len(columns) == 6
    assert {config.hash for config in columns} <= table_here  # the frozen setting, until the grid says otherwise
    assert len({config.hash for config in grid + columns}) == len(grid) + 4
    assert {config.seed for config in grid + columns} == {0}


@pytest.mark.parametrize("scale", ["smoke", "full"])
def test_the_lease_runs_the_columns_of_what_its_grid_chooses(scale):  # RF-T1
    accuracies = {
        "w256-mlp4.none": 0.9,
        "w256-mlp4.rope": 0.95,
        "w256-mlp4-auto.none": 0.79,
        "w256-mlp4-auto.rope": 0.8,
    }
    accuracies["w256-mlp4-auto.rope-axial"] = 0.87
    made = [record(BASELINES.config(scale, row, "cifar10", 0), a) for row, a in accuracies.items()]
    assert chosen_of(made, scale) == ("w256-mlp4-auto", "rope-axial")
    _, columns = leased(scale, made)
    assert {config.augment for config in columns} == {"crop-flip-autoaugment"}
    assert [c.method for c in columns] == [
        "none",
        "sinusoidal",
        "rope-axial",
        "lf",
        "riemannformer",
        "riemannformer+lf",
    ]
    shown = LEASE.tabulate(scale, made)
    rows = {row[0]: row[2] for row in shown[1].rows}
    assert rows == {"No-Pos": "79.00 (1 seed)", "RoPE": "87.00 (1 seed)"}
    assert "Setting: w256-mlp4-auto with rope-axial" in shown[1].notes[0]


def test_the_lease_fits_into_half_an_hour_with_time_to_set_up():
    stages = LEASE.stages("full", [], None, [])
    machine = Machine.h100()
    plan = packed(stages, lambda config: True, lambda e, c: machine.estimate(c, []), 1500, 1)
    assert {item.config.hash for item in plan if item.fits} >= {config.hash for config in leased("full", [])[1]}
    assert sum(item.fits and item.stage == 0 for item in plan) >= 4


def test_a_dry_run_shows_the_plan_and_trains_nothing(tmp_path, capsys):
    words = ["run", "riemannformer-lease", "--scale", "full", "--dry-run", "--out", str(tmp_path / "out")]
    assert main([*words, "--time-budget", "900"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("stage 1")
    assert any(line.startswith("left out") for line in lines)
    assert "of 10 missing runs" in lines[-1]
    assert "on one H100, of a budget of 15.0 min" in lines[-1]
    assert not (tmp_path / "out").exists()
    assert main([*words, "--only", "rope"]) == 2
    assert "goes its own way" in capsys.readouterr().err


# The rule for what the paper leaves out -----------------------------------------------------------------------------


def grid_records(accuracies):
    """The grid's records from {row: accuracy in %}."""
    return [record(BASELINES.config("full", row, "cifar10", 0), a / 100) for row, a in accuracies.items()]


def test_distance_is_that_of_the_two_accuracies_from_the_papers():  # RF-T1
    assert distance(79.61, 87.91) == 0
    assert distance(79.61 + 3, 87.91 - 4) == pytest.approx(5)


def test_choice_is_the_nearest_setting_of_those_with_both_runs():  # RF-T1
    made = grid_records(
        {
            "w256-mlp4.none": 79.61,  # 0 and 6 points off: 6
            "w256-mlp4.rope": 81.91,
            "w192-mlp2.none": 76.61,  # 3 and 4 points off: 5
            "w192-mlp2.rope": 83.91,
            "w256-mlp4.rope-axial": 88.91,  # 0 and 1: nearest
            "w384-mlp4.rope": 87.91,  # its other run is missing
        }
    )
    found = distances(made)
    assert list(found) == [("w256-mlp4", "rope"), ("w192-mlp2", "rope"), ("w256-mlp4", "rope-axial")]
    assert list(found.values()) == pytest.approx([6, 5, 1])
    assert choose(made) == ("w256-mlp4", "rope-axial")
    assert choose(made[:4]) == ("w192-mlp2", "rope")
    with pytest.raises(LabError, match="riemannformer-baselines"):
        choose(made[-1:])


def test_only_baselines_decide():  # RF-T1
    methods = {config.method for config in BASELINES.configs("full")}
    assert methods == {"none", "rope", "rope-axial"}
    assert 6 <= len(GRID) <= 12
    for config in BASELINES.configs("full"):
        assert (config.dataset, config.epochs, config.batch, config.layers, config.heads) == ("cifar10", 200, 128, 6, 4)


def test_the_grids_table_shows_distances_the_nearest_and_the_frozen():  # RF-T1
    made = grid_records({"w256-mlp4-auto.none": 79.61, "w256-mlp4-auto.rope": 86.91})
    shown = grid_table(BASELINES, "full", made)
    rows = {(row[0], row[5].split(",")[0]): row for row in shown.rows}
    assert rows["w256-mlp4-auto", "reading order"][6:9] == ["79.61", "86.91", "1.00"]
    assert rows["w256-mlp4-auto", "axial"][6:9] == ["79.61", "", "-"]
    assert [row for row in shown.rows if "nearest" in row[9]] == [rows["w256-mlp4-auto", "reading order"]]
    assert len(rows) == 2  # without a record, no row
    made += grid_records({"w256-mlp4-auto-erase.none": 70, f"{FROZEN[0]}.none": 70})
    rows = {row[0]: row for row in grid_table(BASELINES, "full", made).rows if "reading order" in row[5]}
    assert rows["w256-mlp4-auto-erase"][3] == "crop-flip-autoaugment, erasing 0.25"
    assert [name for name, row in rows.items() if "frozen" in row[-1]] == [FROZEN[0]]
    assert "sum of the squared differences" in shown.notes[0]
    assert f"{len(GRID) - 1} of {len(GRID)} settings have no record yet" in shown.notes[1]


def test_the_command_shows_the_grid(tmp_path, capsys):
    assert main(["table", "riemannformer-baselines", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert f"{len(GRID)} of {len(GRID)} settings have no record yet" in shown
    assert not any(training in shown for training in set(TRAININGS) - {FROZEN[0]})


def test_the_frozen_setting_is_the_rules_choice():  # RF-T1
    full = TABLE1.settings["full"]
    assert {key: full[key] for key in TRAININGS[FROZEN[0]]} == TRAININGS[FROZEN[0]]
    kept = read_all()
    if len(distances(kept)) == len(GRID):
        assert choose(kept) == FROZEN
    else:  # until the grid is whole: the first of the grid, and its runs pending before all others
        assert GRID[0] == FROZEN
        assert BASELINES.importance < min(e.importance for e in EXPERIMENTS.values() if e is not BASELINES)


# Statistics over seeds ----------------------------------------------------------------------------------------------


def test_paired_differences_are_those_computed_by_hand():
    a, b = seeds_of("rope", [0.80, 0.83, 0.86, 0.50]), seeds_of("none", [0.79, 0.80, 0.81])
    difference = paired_differences(a, reversed(b))
    assert difference.seeds == (0, 1, 2)
    assert difference.differences == pytest.approx((1, 3, 5))
    assert difference.mean == pytest.approx(3)
    # Deviations -2, 0, 2: variance 8 / 2 = 4, standard error 2 / sqrt(3); 4.303 is the t table's 97.5 % for 2 degrees.
    assert difference.standard_error == pytest.approx(2 / math.sqrt(3))
    low, high = difference.interval
    assert (low + high) / 2 == pytest.approx(3)
    assert (high - low) / 2 == pytest.approx(4.303 * 2 / math.sqrt(3), rel=1e-3)
    assert difference.within_noise is True
    assert str(difference) == "+3.00 ± 1.15 (3 seeds, 95 % interval -1.97 to +7.97)"


def test_the_variance_of_paired_differences_has_the_correlation_in_it():
    a, b = [0.80, 0.83, 0.86, 0.84], [0.70, 0.75, 0.74, 0.79]
    difference = paired_differences(seeds_of("rope", a), seeds_of("none", b))
    mean_a, mean_b = sum(a) / 4, sum(b) / 4
    of_a, of_b = (sum((x - mean) ** 2 for x in row) / 3 for row, mean in ((a, mean_a), (b, mean_b)))
    common = sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b)) / 3
    assert common > 0
    assert difference.standard_error == pytest.approx(100 * math.sqrt((of_a + of_b - 2 * common) / 4))
    other_order = paired_differences(seeds_of("rope", a), seeds_of("none", sorted(b, reverse=True)))
    assert other_order.mean == pytest.approx(difference.mean)
    assert other_order.standard_error > difference.standard_error


def test_few_seeds_claim_no_interval():
    one = paired_differences(seeds_of("rope", [0.8]), seeds_of("none", [0.7, 0.9]))
    two = paired_differences(seeds_of("rope", [0.8, 0.9]), seeds_of("none", [0.7, 0.7]))
    none = paired_differences(seeds_of("rope", [0.8]), seeds_of("none", [0.7], first_seed=5))
    assert (one.count, one.standard_error, one.interval, one.within_noise) == (1, None, None, None)
    assert two.standard_error == pytest.approx(5)
    assert (two.interval, two.within_noise) == (None, None)
    assert (str(one), str(two), str(none)) == ("+10.00 (1 seed)", "+15.00 ± 5.00 (2 seeds)", "no common seed")
    assert math.isnan(none.mean)


def test_a_seed_counts_once():
    once, twice = seeds_of("none", [0.8]), seeds_of("rope", [0.8]) * 2
    for pair, name in (((twice, once), "records_a"), ((once, twice), "records_b")):
        with pytest.raises(ValueError, match=f"^{name}: got two records of seed 0; one record a seed$"):
            paired_differences(*pair)


def table1_records(accuracies, scale="cpu"):
    """Records of table 1 on CIFAR-10 from {row: accuracies in %, one a seed}."""
    return [
        record(TABLE1.config(scale, row, "cifar10", seed), a / 100, TABLE1.name)
        for row, values in accuracies.items()
        for seed, a in enumerate(values)
    ]


def test_ordering_tells_steps_within_the_noise_from_those_beyond():  # RF-T1
    made = table1_records({"none": [50, 51, 52], ROPE: [60, 61, 62.1], "lf": [59, 63, 60], "sinusoidal": [55, 56]})
    text = ordering(TABLE1, "cifar10", cells_of(TABLE1, "cpu", made))
    assert text.startswith("cifar10: the paper's order holds (none < sinusoidal < lf < " + f"{ROPE}).")
    assert f"Within the seeds' noise: lf < {ROPE}." in text
    assert "Too few common seeds (fewer than 3) to know the noise: none < sinusoidal, sinusoidal < lf." in text
    clear = table1_records({"none": [50, 51, 52], ROPE: [60, 61, 62.1]})
    text = ordering(TABLE1, "cifar10", cells_of(TABLE1, "cpu", clear))
    assert text.endswith("No step is within the seeds' noise.")


def test_no_order_is_told_of_a_set_that_the_paper_has_no_numbers_for():  # LR-T1
    made = [record(LIERE.config("cpu", row, "cifar100-20", 0), 0.3, LIERE.name) for row in ("learned", "liere-8")]
    shown = table(replace(LIERE, tabulate=None), "cpu", made)
    assert not any("order" in note for note in shown.notes if note.startswith("cifar100-20"))


def test_differences_stand_beside_the_papers():  # RF-T1
    made = table1_records({"none": [50, 51, 52], ROPE: [60, 61, 62]})
    shown = difference_table(TABLE1, "cpu", made)
    rows = {row[0]: row[1:] for row in shown.rows}
    assert rows["RoPE - No-Pos"][:2] == ["+8.30", "+10.00 ± 0.00 (3 seeds, 95 % interval +10.00 to +10.00)"]
    assert list(rows) == ["RoPE - No-Pos"]
    assert shown.header == ["difference", "cifar10, paper", "cifar10, ours"]
    assert shown.notes == [f"{len(TABLE1.against) - 1} of {len(TABLE1.against)} pairs have no common seed yet."]
    assert PAPER["rope", "cifar10"] - PAPER["none", "cifar10"] == pytest.approx(8.30)


# A table by hand: two methods with numbers in a paper, one without; digits and CIFAR-10 at two scales.
SMALL = Experiment(
    name="small",
    about="a table small enough to write down",
    datasets=("digits", "cifar10"),
    methods={"none": "No-Pos", "rope": "RoPE", "lf": "LF"},
    settings={"smoke": {"epochs": 1}, "cpu": {"epochs": 2, "test_size": 400}},
    seeds={"smoke": (0,), "cpu": (0, 1)},
    against=(("rope", "none"), ("lf", "rope")),
    source="RF-T1",
    paper={("none", "digits"): 20.0, ("rope", "digits"): 90.5},
    paper_setting={"epochs": 2, "train_size": 7, "test_size": None},
    chosen="The rest is ours.",
    parts={"smoke": (("none", "digits"), ("rope", "digits"))},
)
ORDER = (
    "digits: the paper's order holds (none < rope). Too few common seeds (fewer than 3) to know the noise: none < rope."
)


def small_records(accuracies, scale="cpu", **data):
    """Records of the small table from {(row, data set): accuracies in %, one a seed}."""
    return [
        replace(record(SMALL.config(scale, *cell, seed), a / 100, "small"), data=data)
        for cell, values in accuracies.items()
        for seed, a in enumerate(values)
    ]


def test_a_table_is_what_one_would_write_down():  # RF-T1
    made = small_records({("none", "digits"): [20, 22], ("rope", "digits"): [90, 92], ("lf", "cifar10"): [41.234]})
    shown = table(SMALL, "cpu", made)
    assert shown.title == "small (cpu scale): top-1 test accuracy in % after the last epoch"
    assert shown.header == ["method", "digits, paper", "digits, ours", "cifar10, paper", "cifar10, ours"]
    assert shown.rows == [
        ["No-Pos", "20.00", "21.00 ± 1.41 (2 seeds)", "-", ""],
        ["RoPE", "90.50", "91.00 ± 1.41 (2 seeds)", "-", ""],
        ["LF", "-", "", "-", "41.23 (1 seed)"],
    ]
    assert shown.notes == [
        "7 of 12 runs not run yet.",
        "RF-T1. Where the settings differ, paper: train_size 7, ours all; test_size all, ours 400.",
        "The rest is ours.",
        ORDER,
        "Ran on a device (float32).",
    ]


def test_the_last_notes_tell_of_the_test_images_and_of_all_devices():  # RF-T1
    made = small_records({("none", "digits"): [20, 50]}, test_images=400)
    notes = table(SMALL, "cpu", [made[0], replace(made[1], device="another", precision="bf16")]).notes
    assert notes[-2].startswith("± is over seeds alone")
    assert notes[-2].endswith("each accuracy by about 2.25 points.")
    assert notes[-1] == "Ran on a device (float32); another (bf16)."


def test_a_table_without_a_paper_has_a_column_for_each_set_and_no_word_of_settings():
    ours = replace(SMALL, paper={}, paper_setting={}, chosen="")
    shown = table(ours, "cpu", small_records({("none", "digits"): [20, 22], ("rope", "cifar10"): [30]}))
    assert shown.header == ["method", "digits", "cifar10"]
    assert shown.rows == [["No-Pos", "21.00 ± 1.41 (2 seeds)", ""], ["RoPE", "", "30.00 (1 seed)"]]
    assert shown.notes == ["9 of 12 runs not run yet.", "Ran on a device (float32)."]
    for nothing_yet in (ours, SMALL):
        assert table(nothing_yet, "cpu", []).notes == ["None of the 12 runs is recorded yet."]


def test_no_order_is_told_where_the_paper_has_one_number_alone():
    ours = replace(SMALL, paper={("none", "digits"): 20.0})
    notes = table(ours, "cpu", small_records({("none", "digits"): [20, 22], ("rope", "digits"): [30, 34]})).notes
    assert not [note for note in notes if "order" in note]


def test_differences_without_a_paper_have_a_column_for_each_set():
    ours = replace(SMALL, paper={}, paper_setting={}, chosen="")
    shown = difference_table(ours, "cpu", small_records({("none", "digits"): [20, 22], ("rope", "digits"): [30, 34]}))
    assert shown.header == ["difference", "digits"]
    assert [row[0] for row in shown.rows] == ["RoPE - No-Pos"]
    assert [len(row) for row in shown.rows] == [2]


def test_a_scale_shows_its_own_rows_and_sets_and_what_they_lack():  # RF-T1
    every = [(row, data) for row in SMALL.methods for data in SMALL.datasets]
    made = [*small_records({cell: [50, 60] for cell in every}), *small_records({("none", "digits"): [20]}, "smoke")]
    shown = table(SMALL, "smoke", made)
    assert (shown.header[1:], [row[0] for row in shown.rows]) == (["digits, paper", "digits, ours"], ["No-Pos"])
    assert shown.notes[:2] == [
        "1 of 2 runs not run yet.",
        "RF-T1. Where the settings differ, paper: epochs 2, ours 1; train_size 7, ours all.",
    ]
    assert "digits: too few records to compare the order of methods." in shown.notes
    agreed = replace(SMALL, paper_setting={"epochs": 2})
    assert table(agreed, "cpu", made).notes[1] == "RF-T1. Where the settings differ, paper: nowhere it states one."


def test_differences_are_what_one_would_write_down():  # RF-T1
    made = small_records(
        {
            ("none", "digits"): [20, 22],
            ("rope", "digits"): [90, 94],
            ("rope", "cifar10"): [50, 51],
            ("lf", "cifar10"): [49.5],
        }
    )
    shown = difference_table(SMALL, "cpu", made)
    assert shown.title == "small (cpu scale): differences over common seeds, in percentage points"
    assert shown.header == ["difference", "digits, paper", "digits, ours", "cifar10, paper", "cifar10, ours"]
    assert shown.rows == [
        ["RoPE - No-Pos", "+70.50", "+71.00 ± 1.00 (2 seeds)", "-", ""],
        ["LF - RoPE", "-", "", "-", "-0.50 (1 seed)"],
    ]
    assert shown.notes == []
    none = difference_table(SMALL, "smoke", made)
    assert (none.header, none.rows) == (["difference"], [])
    assert none.notes == ["1 of 1 pairs have no common seed yet."]
    assert [t.title for t in tables_of(SMALL, "cpu", iter(made))] == [table(SMALL, "cpu", made).title, shown.title]
    alone = small_records({("none", "digits"): [20]})
    assert [t.title for t in tables_of(SMALL, "cpu", alone)] == [
        shown.title.replace(
            "differences over common seeds, in percentage points", "top-1 test accuracy in % after the last epoch"
        )
    ]


def test_provenance_says_which_seeds_and_where_one_stands_alone():
    two, one = {("none", "digits"): [20, 22]}, {("rope", "digits"): [90]}

    def notes(accuracies):
        return provenance(SMALL, "cpu", cells_of(SMALL, "cpu", small_records(accuracies)))

    assert notes({}) == ["None of the 12 runs is recorded yet."]
    assert notes(two) == ["10 of 12 runs not run yet.", "± is over the seeds [0, 1].", "Ran on a device (float32)."]
    assert notes(two | one)[1] == "± is over the seeds [0, 1], and a number without it is one seed's."
    assert notes(one)[1] == "One seed, [0], so no ±."
    a, b = small_records(two)
    uneven = provenance(SMALL, "cpu", {("none", "digits"): [a, b], ("rope", "digits"): [a, b, b]})
    assert uneven[1] == "± is over the seeds [0, 1]."


def test_a_pipeline_makes_its_own_tables():
    seen = []
    pipeline = Pipeline(
        *("c", "c", "nothing", ("cpu",)),
        plan=lambda scale, records: [],
        tabulate=lambda scale, records: seen.append((scale, len(records))) or [],
    )
    assert tables_of(pipeline, "cpu", iter(small_records({("none", "digits"): [20]}))) == []
    assert seen == [("cpu", 1)]


def test_sampling_error_is_the_spread_over_test_sets():
    torch.manual_seed(0)
    right = (torch.rand(4000, 500) < 0.8).double().mean(1)  # 4000 test sets of 500 images
    assert sampling_error(0.8, 500) == pytest.approx(100 * right.std().item(), rel=0.05)
    assert sampling_error(0.5, 1) == 50  # one image: right or wrong by the toss of a coin
    assert sampling_error(0.0, 9) == sampling_error(1.0, 9) == 0


def test_blur_of_a_difference_is_that_of_all_test_sets():
    a, b, both = 0.8, 0.7, 0.65  # probabilities: first right, second right, both right
    chances, gaps = (a - both, b - both, 1 - a - b + 2 * both), (1, -1, 0)
    sets = list(product(range(3), repeat=4))
    weights = [math.prod(chances[i] for i in images) for images in sets]
    means = [sum(gaps[i] for i in images) / 4 for images in sets]
    mean = math.fsum(w * x for w, x in zip(weights, means))
    variance = math.fsum(w * (x - mean) ** 2 for w, x in zip(weights, means))
    assert difference_error(a, b, 4, a + b - 2 * both) == pytest.approx(100 * math.sqrt(variance))
    both_errors = math.hypot(sampling_error(a, 500), sampling_error(b, 500))
    assert difference_error(a, b, 500) == pytest.approx(both_errors)  # independent models
    assert difference_error(1.0, 0.0, 9, 1.0) == 0  # always the first
    assert difference_error(0.5, 0.5, 1, 1.0) == 100  # one image: the one or the other
    for u in (-1e-9, 1 + 1e-9):  # so much may be lost to rounding, and no more
        assert difference_error(0.5, 0.5, 1, u) == pytest.approx(100 * (u > 0.5))
        with pytest.raises(ValueError, match=r"^disagreement: got "):
            difference_error(0.5, 0.5, 1, u + math.copysign(1e-11, u - 0.5))
    for u in (0.09, 0.51):
        with pytest.raises(ValueError, match=f"^disagreement: got {u}; between 0.1 and 0.5 for these accuracies$"):
            difference_error(a, b, 500, u)


def test_mcnemar_is_two_tails_of_a_fair_coin():
    for throws in range(1, 12):
        heads = [sum(coins) for coins in product((0, 1), repeat=throws)]
        for k in range(throws + 1):
            far = [abs(h - throws / 2) >= abs(k - throws / 2) for h in heads]
            assert mcnemar(k, throws - k) == pytest.approx(sum(far) / len(far))
    assert mcnemar(0, 0) == 1


@pytest.mark.parametrize(
    ("ends", "named", "expected"),
    [
        ((0.1, 0.4), 0, "seen"),
        ((0.1, 0.4), 0.4, "seen"),
        ((0.1, 0.4), 0.5, "not seen"),  # above zero, and smaller than what is claimed
        ((0.0, 0.4), 0, "undecided"),
        ((-0.1, 0.4), 0.4, "undecided"),
        ((-0.1, 0.4), 0.5, "not seen"),
        ((-0.4, 0.0), 0, "undecided"),
        ((-0.4, 0.0), 0.1, "not seen"),
        ((-0.4, -0.1), 0, "turned round"),
        ((-0.4, -0.1), 0.5, "turned round"),
    ],
)
def test_a_verdict_looks_at_zero_and_at_the_size_named(ends, named, expected):
    assert verdict(*ends, named) == expected


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: verdict(2.0, 1.0), r"low: got 2\.0 above high 1\.0; the ends of an interval, the lower first"),
        (lambda: verdict(0, 1, -0.1), r"named: got -0\.1; it must be 0 or above"),
        (lambda: sampling_error(-0.01, 9), r"accuracy: got -0\.01; it must be in \[0, 1\]"),
        (lambda: sampling_error(1.01, 9), r"accuracy: got 1\.01; it must be in \[0, 1\]"),
        (lambda: sampling_error(0.8, 0), "images: got 0; it must be above 0"),
        (lambda: difference_error(-0.01, 0.5, 9), r"accuracy_a: got -0\.01; it must be in \[0, 1\]"),
        (lambda: difference_error(0.5, 1.01, 9), r"accuracy_b: got 1\.01; it must be in \[0, 1\]"),
        (lambda: difference_error(0.5, 0.5, 0), "images: got 0; it must be above 0"),
        (lambda: mcnemar(-1, 3), "first_only: got -1; a number of images, 0 or more"),
        (lambda: mcnemar(3, -1), "second_only: got -1; a number of images, 0 or more"),
        (lambda: mcnemar(3, 1.5), "second_only: got 1.5; a number of images, 0 or more"),
    ],
)
def test_statistics_refuse_what_is_no_share_or_count(call, complaint):
    with pytest.raises(ValueError, match=f"^{complaint}$"):
        call()


def test_a_table_shows_what_is_recorded_and_counts_the_rest():  # RF-T1
    shown = table(TABLE1, "cpu", table1_records({"none": [50, 51, 52], ROPE: [60]}))
    assert [row[0] for row in shown.rows] == ["No-Pos", "RoPE"]
    assert shown.header == ["method", "cifar10, paper", "cifar10, ours"]
    planned = len(TABLE1.configs("cpu"))
    assert shown.notes[0] == f"{planned - 4} of {planned} runs not run yet."
    assert "cifar100:" not in " ".join(shown.notes)
    empty = table(TABLE1, "cpu", [])
    assert (empty.rows, empty.notes[0]) == ([], f"None of the {planned} runs is recorded yet.")
    assert "|" not in empty.markdown()
    assert "---" not in empty.plain()
    digits = EXPERIMENTS["digits-encodings"]
    whole = [record(config, 0.5, digits.name) for config in digits.configs("cpu")]
    assert table(digits, "cpu", whole).notes[0] == f"All {len(whole)} runs are recorded."


def test_the_table_tells_what_seeds_do_not_show():
    made = [replace(r, data={"test_images": 2000}) for r in table1_records({"none": [50, 50]})]
    assert "would move each accuracy by about 1.12 points." in " ".join(table(TABLE1, "cpu", made).notes)
    assert "would move" not in " ".join(table(TABLE1, "cpu", []).notes)


# The second of these machines repeats the losses of two epochs that the first has in a record, to the last bit.
TWINS = {"Intel(R) Xeon(R) Processor, 1 thread": "Intel(R) Xeon(R) Processor @ 2.30GHz, 1 thread"}
REPEATED = ("riemannformer-table1", "lf", [1.7118241786956787, 1.3866016864776611])


def test_no_recorded_table_mixes_machines():
    """Numbers of one seed differ between machines, so a paired difference takes both of its runs from one."""
    kept = read_all()
    for experiment in EXPERIMENTS.values():
        for scale in experiment.scales:
            found = [record for records in cells_of(experiment, scale, kept).values() for record in records]
            assert len({TWINS.get(record.device, record.device) for record in found}) <= 1, experiment.name
            places = {(record.config.seed, record.device) for record in found}
            assert len(places) == len({seed for seed, _ in places}), experiment.name


def test_what_the_second_machine_repeated_stands_in_the_firsts_record():
    name, row, losses = REPEATED
    first = cells_of(EXPERIMENTS[name], "laptop", read_all())[row, "cifar10"][0]
    assert (first.device, first.config.seed) == (*TWINS.values(), 0)
    assert [epoch["train_loss"] for epoch in first.metrics[:2]] == losses


def test_a_run_recorded_by_two_experiments_counts_once():
    config = TABLE1.config("cpu", "rope", "cifar10", 0)
    ours, other = record(config, 0.5, TABLE1.name), record(config, 0.6, "another")
    for order in ([ours, other], [other, ours]):
        assert cells_of(TABLE1, "cpu", order) == {("rope", "cifar10"): [ours]}
    assert cells_of(TABLE1, "cpu", [other]) == {("rope", "cifar10"): [other]}


def test_variants_differ_from_the_shared_settings_scale_by_scale():
    rows = Experiment(
        "x",
        "x",
        ("digits",),
        {"wide": "wide"},
        {"cpu": {"width": 16}, "full": {"width": 16}},
        {"cpu": (0,), "full": (0,)},
        variants={"wide": Variant("rope", {"base": 9.0}, {"full": {"width": 32}})},
    )
    assert [rows.config(scale, "wide", "digits", 0).width for scale in ("cpu", "full")] == [16, 32]
    assert rows.config("cpu", "wide", "digits", 0).method_options == {"base": 9.0}


# Ablations ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("experiment", [TABLE1, ABLATIONS, BASELINES], ids=lambda e: e.name)
def test_every_row_takes_a_step_at_smoke_scale(experiment):
    images, labels = torch.randn(8, 3, 32, 32), torch.randint(0, 10, (8,))
    for row in experiment.methods:
        config = experiment.config("smoke", row, "cifar10", 0)
        torch.manual_seed(0)
        model = ViT(config, (3, 32, 32), 10)
        parameters = list(model.parameters())
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        gradients = torch.autograd.grad(loss, parameters)
        assert all(gradient.any() for gradient in gradients), row
        with torch.no_grad():
            for p, gradient in zip(parameters, gradients):
                p -= 0.01 * gradient
            assert torch.nn.functional.cross_entropy(model(images), labels) < loss, row


@pytest.mark.parametrize("scale", ["cpu", "full"])
def test_every_row_can_be_built_at_its_scale(scale):
    for experiment in (TABLE1, ABLATIONS):
        for row in experiment.methods:
            config = experiment.config(scale, row, "cifar10", 0)
            size = {"width": config.width, "heads": config.heads, "layers": config.layers}
            encoding = build(config.method, grid=(8, 8), **size, **config.method_options)
            assert sum(p.numel() for p in encoding.parameters()) < 300_000, row


def test_the_ablations_start_from_the_tables_own_rows():  # RF-T1
    for row in ("riemannformer", "riemannformer+lf"):
        assert ABLATIONS.config("full", row, "cifar10", 1) == TABLE1.config("full", row, "cifar10", 1)
    changed = {row for row, _ in ABLATIONS.against}
    assert changed == set(ABLATIONS.methods) - {"riemannformer", "riemannformer+lf"}
    assert ABLATIONS.importance > TABLE1.importance


def test_the_row_of_reflections_scores_as_the_row_of_rotations():  # RF-REFL
    images = torch.randn(4, 3, 32, 32).double()
    scores = []
    for row in ("riemannformer", "riemannformer-reflection"):
        torch.manual_seed(0)
        scores.append(ViT(ABLATIONS.config("smoke", row, "cifar10", 0), (3, 32, 32), 10).double()(images))
    # Frequencies are made in float32, and halved exactly.
    assert torch.allclose(*scores, rtol=1e-10, atol=1e-12)


def test_the_laptop_scale_is_the_papers_columns_and_axial_rope_seed_by_seed():
    configs = TABLE1.configs("laptop")
    assert [c.seed for c in configs] == [0] * 7 + [1] * 7 + [2] * 7
    papers = {row for row, _ in TABLE1.paper}
    assert {c.method for c in configs[:7]} == papers | {"rope", "rope-axial"}
    for config in configs:
        assert (config.dataset, config.train_size, config.test_size) == ("cifar10", None, None)
        assert (config.layers, config.heads, config.patch) == (6, 4, 4)
    shown = table(TABLE1, "laptop", [record(config, 0.5, TABLE1.name) for config in configs])
    assert shown.header == ["method", "cifar10, paper", "cifar10, ours"]
    assert len(shown.rows) == 7
    assert "All 21 runs" in shown.notes[0]
    every = [record(config, 0.5, TABLE1.name) for scale in ("laptop", "cpu") for config in TABLE1.configs(scale)]
    assert {row[0] for row in difference_table(TABLE1, "laptop", every).rows} < {
        row[0] for row in difference_table(TABLE1, "cpu", every).rows
    }
    with pytest.raises(LabError, match="riemannformer-baselines has no scale 'laptop'; it has smoke, cpu, full"):
        BASELINES.configs("laptop")


# Shifts -------------------------------------------------------------------------------------------------------------


def shift_record(row, seed, accuracy, learned):
    return replace(record(SHIFT.config("cpu", row, "digits", seed), accuracy, SHIFT.name), learned=learned)


def test_the_table_of_shifts_has_a_column_for_each_power_of_two():
    moved = {0: [0.5, 0.25, *[0.125] * 6], 1: [0.7, 0.25, *[0.125] * 6]}
    records = [shift_record("rope", seed, 0.9, {"moved_accuracy": moved[seed]}) for seed in (0, 1)]
    found = table(SHIFT, "cpu", records)
    assert found.header == ["method", "0", "1", "2", "4", "8", "16"]
    rows = {row[0]: row[1:] for row in found.rows}
    assert rows["RoPE, reading order"][:3] == ["90.0±0.0", "60.0±14.1", "25.0±0.0"]
    assert list(rows) == ["RoPE, reading order"]
    planned = len(SHIFT.configs("cpu"))
    assert found.notes[0] == f"{planned - 2} of {planned} runs not run yet."


def test_the_table_of_scales_says_where_they_started_and_how_many_went_up():  # RF-6a
    ends = [[[0.98, 1.2], [0.99, 0.9], [1.0, 1.1], [0.97, 0.96]]]
    one = replace(record(SCALE.config("cpu", "free-below", "digits", 0), 0.9, SCALE.name), learned={"scales": ends})
    found = table(SCALE, "cpu", [one])
    assert found.rows == [["free, from below 1", "0.9851", "0.9000 to 1.2000", "4 of 8", "90.0"]]


@pytest.mark.parametrize("row", ["riemannformer", "free-above", "middle-below", "middle-above", "relative-above"])
def test_a_row_of_scales_starts_where_its_table_says(row):  # RF-6a
    model = ViT(SCALE.config("cpu", row, "digits", 0), (1, 8, 8), 10)
    assert learned_scales(model).unique().item() == pytest.approx(start_of(row), rel=1e-5)


def test_a_carried_picture_stands_before_moved_positions():
    learned = {"moved_accuracy": [0.1, 0.1, 0.1, 0.1], "carried_accuracy": [0.4, 0.3, 0.2, 0.1]}
    one = replace(record(FIELD.config("cpu", "learned", "digits-field", 0), 0.9, FIELD.name), learned=learned)
    assert accuracies(one) == {0: 0.9, 1: 0.4, 2: 0.3, 3: 0.2, 4: 0.1}


def test_the_scale_of_the_far_row_starts_near_nine_tenths():
    config = SHIFT.config("cpu", "riemannformer-far", "digits", 0)
    assert learned_scales(ViT(config, (1, 8, 8), 10)).unique().item() == pytest.approx(0.5 ** (1 / 7), rel=1e-5)


def test_the_lease_does_not_call_nearest_what_nobody_has_measured():
    note = LEASE.tabulate("full", [])[1].notes[0]
    assert note.endswith("our first choice: none of the leased settings is recorded yet.")


def test_of_runs_of_one_kind_the_newest_counts_in_whatever_order_they_are_read(monkeypatch):
    monkeypatch.setattr("geolib.lab.experiments.estimates.assumed_seconds", lambda config, speed: 1.0)
    config, kind = TABLE1.config("full", "rope", "cifar10", 0), Kind("mine", "full", "bf16", on_gpu=True)
    about = {
        "experiment": "mine",
        "scale": "full",
        "precision": "bf16",
        "peak_memory": {"bytes": 1, "of": "device"},
        "device": "here",
    }
    runs = [
        replace(measured(config, 10.0 * day), **about, started=f"2026-01-0{day}T00:00:00+00:00") for day in (1, 2, 3)
    ]
    for read in permutations(runs):
        assert estimate(config, read, "here", GPU, kind).seconds == pytest.approx(30)


def test_the_table_of_blocks_has_each_number_under_its_name():
    learned = {"moved_accuracy": [0.71, 0.72, 0.73, 0.74, 0.75, 0.76, 0.77, 0.78], "shift_deviation_start": 0.5,
               "shift_deviation": 0.25, "commuting_accuracy": 0.6, "shaken_accuracy": 0.3}  # fmt: skip
    one = replace(record(BLOCKS.config("cpu", "liere-4", "digits", 0), 0.9, BLOCKS.name), learned=learned)
    assert SHIFT.settings["cpu"]["shifts"][3] == 4
    found = table(BLOCKS, "cpu", [one])
    assert dict(zip(found.header, found.rows[0], strict=True)) == {
        "method": "LieRE, width 4", "in place": "90.0", "moved by 4": "74.0", "deviation at the start": "0.500",
        "trained": "0.250", "commuting": "60.0", "shaken": "30.0",
    }  # fmt: skip
