"""Experiments: the runs they plan, the tables that come of records, and statistics over seeds and test images."""

import math
from dataclasses import replace
from itertools import product

import pytest

from geolib.lab import Config, LabError, read_all
from geolib.lab.experiments import EXPERIMENTS, find, stats
from geolib.lab.experiments.plan import SCALES, Experiment, Row
from geolib.lab.experiments.tables import cells_of, column, difference_table, learned, strongest, table, tables_of
from geolib.lab.files import ON_GPU, RECORDED
from geolib.lab.records import Record, packed_bits


def record(config, accuracy, experiment=None, **changes):
    """The record of a run that ended in this accuracy."""
    rows = [{"epoch": i + 1, "train_loss": 1.0, "seconds": 1.0} for i in range(config.epochs)]
    rows[-1] |= {"test_loss": 1.0, "test_accuracy": accuracy}
    fields = {"config": config.to_dict(), "hash": config.hash, "schema": 1, "experiment": experiment, "scale": None}
    fields |= {"metrics": rows, "wall_seconds": 1.0, "images_per_second": 1.0, "versions": {}, "commit": None}
    fields |= {"peak_memory": {"bytes": 1, "of": "process"}, "device": "a device", "precision": "float32"}
    return replace(Record.from_dict(fields | {"data": {}, "started": ""}), **changes)


def seeds_of(*accuracies, first=0):
    return [record(Config("cifar10", seed=first + i), accuracy) for i, accuracy in enumerate(accuracies)]


# The runs they plan ---------------------------------------------------------------------------------------------------


def test_every_recorded_run_is_one_of_its_experiments():
    planned = {(e.name, scale): e.cells(scale) for e in EXPERIMENTS.values() for scale in e.scales}
    for kept in (*read_all(), *read_all(RECORDED / ON_GPU)):
        assert planned[kept.experiment, kept.scale][kept.config.cell][1] == kept.config.dataset, kept.name


def test_only_takes_rows_and_data_sets_and_what_an_experiment_does_not_have_is_refused():
    both, grid = find("riemannformer-table1"), find("riemannformer-baselines")
    found = [(c.method, c.dataset) for c in both.configs("full", [0], ["rope/cifar10", "lf/cifar100"])]
    assert found == [("rope", "cifar10"), ("lf", "cifar100")]
    assert [c.width for c in grid.configs("full", words=["w192-mlp2.none"])] == [192]
    with pytest.raises(LabError, match=r"--only 'w1': there are w256-mlp4\.none"):
        grid.configs("full", words=["w1"])
    with pytest.raises(LabError, match="riemannformer-baselines has no scale 'laptop'; it has smoke, cpu, full"):
        grid.configs("laptop")
    with pytest.raises(LabError, match="unknown experiment 'digit'; there are "):
        find("digit")
    slip = replace(find("digits-encodings"), rows={"none": Row("none"), "rope-axail": Row("RoPE")})
    with pytest.raises(ValueError, match="method: got 'rope-axail'; the methods are none"):
        slip.configs("cpu")
    with pytest.raises(ValueError, match="lines: got "):
        replace(SMALL, lines={"both": ("none", "rope")})
    with pytest.raises(ValueError, match="columns: got cifar10, digits at cpu scale; one data set a scale"):
        replace(SMALL, columns={"more": column(learned("more"))})


# Tables: one by hand, two methods with numbers in a paper, one without; digits and CIFAR-10 at two scales -------------

SMALL = Experiment(
    name="small",
    about="a table small enough to write down",
    datasets=("digits", "cifar10"),
    rows={"none": Row("No-Pos"), "rope": Row("RoPE"), "lf": Row("LF")},
    settings={"smoke": {"epochs": 1}, "cpu": {"epochs": 2, "test_size": 400}},
    seeds={"smoke": (0,), "cpu": (0, 1)},
    against=(("rope", "none"), ("lf", "rope")),
    source="RF-T1",
    paper={("none", "digits"): 20.0, ("rope", "digits"): 90.5},
    paper_setting={"epochs": 2, "train_size": 7, "test_size": None},
    chosen="The rest is ours.",
    parts={"smoke": (("none", "digits"), ("rope", "digits"))},
)
OURS = replace(SMALL, paper={}, paper_setting={}, chosen="")
SPREAD = "± is the standard deviation over seeds ({}); a number without it is of one seed."


def made(accuracies, experiment=SMALL, scale="cpu", **changes):
    """Records from {(row, data set): accuracies in %, one a seed}."""
    return [
        record(experiment.config(scale, *cell, seed), a / 100, experiment.name, **changes)
        for cell, values in accuracies.items()
        for seed, a in enumerate(values)
    ]


def test_a_table_is_what_one_would_write_down():  # RF-T1
    cells = {("none", "digits"): [20, 22], ("rope", "digits"): [90, 92], ("lf", "cifar10"): [41.234]}
    shown = table(SMALL, "cpu", made(cells))
    assert shown.title == "small (cpu scale): top-1 test accuracy in % after the last epoch"
    assert shown.header == ["method", "digits, paper", "digits, ours", "cifar10"]
    assert shown.rows == [
        ["No-Pos", "20.00", "21.00 ± 1.41 (2 seeds)", ""],
        ["RoPE", "90.50", "91.00 ± 1.41 (2 seeds)", ""],
        ["LF", "-", "", "41.23 (1 seed)"],
    ]
    order = "digits: the paper's order holds (none < rope)."
    assert shown.notes == [
        "7 of 12 runs not run yet.",
        "RF-T1. Where the settings differ, paper: train_size 7, ours all; test_size all, ours 400.",
        "The rest is ours.",
        f"{order} Too few common seeds (fewer than 3) to know the noise: none < rope.",
        SPREAD.format("0, 1"),
        "Ran on a device (float32).",
    ]
    lines = "| --- | --- | --- | --- |", "| No-Pos | 20.00 | 21.00 ± 1.41 (2 seeds) |  |"
    assert tuple(shown.markdown().splitlines()[3:5]) == lines
    assert shown.plain().splitlines()[4] == "No-Pos  20.00          21.00 ± 1.41 (2 seeds)"


def test_the_notes_say_what_test_images_add_and_name_all_devices():  # RF-T1
    one, two = made({("none", "digits"): [20, 50]}, OURS, data={"test_images": 400})
    notes = table(OURS, "cpu", [one, replace(two, device="another", precision="bf16")]).notes
    blur = " Other test images would move each accuracy by about 2.25 points."
    devices = "Ran on a device (float32); another (bf16)."
    assert notes == ["10 of 12 runs not run yet.", SPREAD.format("0, 1") + blur, devices]


def test_a_table_without_records_has_its_title_and_says_how_many_runs_there_are():
    shown = table(SMALL, "cpu", [])
    assert (shown.rows, shown.notes) == ([], ["None of the 12 runs is recorded yet."])
    assert shown.plain() == f"{shown.title}\n\n{shown.notes[0]}"
    assert shown.markdown() == f"**{shown.title}**\n\n- {shown.notes[0]}"
    whole = table(OURS, "cpu", made({cell: [50, 60] for cell in product(SMALL.rows, SMALL.datasets)}, OURS))
    assert (whole.header, whole.notes[0]) == (["method", "digits", "cifar10"], "All 12 runs are recorded.")


def test_a_scale_shows_its_own_rows_and_sets_and_what_differs_there():  # RF-T1
    cpu = made({cell: [50, 60] for cell in product(SMALL.rows, SMALL.datasets)})
    shown = table(SMALL, "smoke", [*cpu, *made({("none", "digits"): [20]}, scale="smoke")])
    assert (shown.header[1:], [row[0] for row in shown.rows]) == (["digits, paper", "digits, ours"], ["No-Pos"])
    assert shown.notes[:2] == [
        "1 of 2 runs not run yet.",
        "RF-T1. Where the settings differ, paper: epochs 2, ours 1; train_size 7, ours all.",
    ]
    assert "digits: too few records to compare the order of methods." in shown.notes
    agreed = replace(SMALL, paper_setting={"epochs": 2})
    assert table(agreed, "cpu", cpu).notes[1] == "RF-T1. Where the settings differ, paper: nowhere it states one."
    alone = replace(SMALL, paper={("none", "digits"): 20.0})
    assert not [note for note in table(alone, "cpu", cpu).notes if "order" in note]


@pytest.mark.parametrize(
    ("rope", "lf", "told"),
    [
        ([60, 61, 62.1], [59, 63, 60], "holds (none < lf < rope). Within the seeds' noise: lf < rope."),
        ([70, 71, 72.1], [59, 60.5, 61], "holds (none < lf < rope). No step is within the seeds' noise."),
        ([60, 61, 62], [64, 66, 68], "(none < lf < rope) does not hold; ours is none < rope < lf. No step is within"),
    ],
)
def test_the_papers_order_and_which_of_its_steps_the_seeds_show(rope, lf, told):  # RF-T1
    theirs = replace(SMALL, paper={("none", "digits"): 1.0, ("lf", "digits"): 2.0, ("rope", "digits"): 3.0})
    found = made({("none", "digits"): [50, 51.5, 52], ("rope", "digits"): rope, ("lf", "digits"): lf})
    assert f"digits: the paper's order {told}" in "\n".join(table(theirs, "cpu", found).notes)


def test_differences_are_what_one_would_write_down():  # RF-T1
    cells = {("none", "digits"): [20, 22], ("rope", "digits"): [90, 94], ("rope", "cifar10"): [50, 51]}
    found = made(cells | {("lf", "cifar10"): [49.5]})
    shown = difference_table(SMALL, "cpu", found)
    assert shown.title == "small (cpu scale): differences over common seeds, in percentage points"
    assert shown.header == ["difference", "digits, paper", "digits, ours", "cifar10"]
    first, second = ["RoPE - No-Pos", "+70.50", "+71.00 ± 1.00 (2 seeds)", ""], ["LF - RoPE", "-", "", "-0.50 (1 seed)"]
    assert (shown.rows, shown.notes) == ([first, second], [])
    none = difference_table(SMALL, "smoke", found)
    assert (none.header, none.rows, none.notes) == (["difference"], [], ["1 of 1 pairs have no common seed yet."])
    assert [t.title for t in tables_of(SMALL, "cpu", iter(found))] == [table(SMALL, "cpu", found).title, shown.title]
    assert len(tables_of(SMALL, "cpu", made({("none", "digits"): [20]}))) == 1


def test_a_run_recorded_by_two_experiments_counts_once():
    config = SMALL.config("cpu", "rope", "cifar10", 0)
    ours, other = record(config, 0.5, "small"), record(config, 0.6, "another")
    stray = record(Config("cifar10", "rope", epochs=7), 0.7, "small")
    for order in ([ours, other, stray], [stray, other, ours]):
        assert cells_of(SMALL, "cpu", order) == {("rope", "cifar10"): [ours]}
    assert cells_of(SMALL, "cpu", [other]) == {("rope", "cifar10"): [other]}


def test_the_strongest_records_are_those_of_the_largest_scale_that_has_the_seeds():
    settings = {scale: {"epochs": i + 1} for i, scale in enumerate(SCALES)}
    every = replace(OURS, settings=settings, seeds=dict.fromkeys(SCALES, (0, 1, 2)), parts={})

    def runs(scale, rope, none, data="digits"):
        return made({("rope", data): [50] * rope, ("none", data): [50] * none}, every, scale)

    records = [*runs("smoke", 3, 3), *runs("cpu", 3, 3), *runs("laptop", 2, 3), *runs("full", 1, 0)]
    assert strongest(every, records, "rope") == "full"
    assert strongest(every, records, "rope", "none") == "laptop"
    assert strongest(every, records, "rope", "none", seeds=3) == "cpu"
    records += runs("full", 0, 1, "cifar10")
    assert strongest(every, records, "rope", "none") == "laptop"  # of one data set
    with pytest.raises(LabError, match="small: no scale has records of lf with 1 seeds in common"):
        strongest(every, records, "lf")
    with pytest.raises(LabError, match="all rows"):
        strongest(every, [*records, *made({("lf", "digits"): [50]}, every, "smoke")])
    assert strongest(find("liere-voxels"), read_all(), seeds=3) == "laptop"


# The second of these machines repeats the losses of two epochs that the first has in a record, to the last bit.
TWINS = {"Intel(R) Xeon(R) Processor, 1 thread": "Intel(R) Xeon(R) Processor @ 2.30GHz, 1 thread"}


def test_no_recorded_table_mixes_machines():
    """Numbers of one seed differ between machines, so a paired difference takes both of its runs from one."""
    kept = read_all()
    for experiment in EXPERIMENTS.values():
        for scale in experiment.scales:
            found = [record for records in cells_of(experiment, scale, kept).values() for record in records]
            assert len({TWINS.get(record.device, record.device) for record in found}) <= 1, experiment.name
            places = {(record.config.seed, record.device) for record in found}
            assert len(places) == len({seed for seed, _ in places}), experiment.name
    first = cells_of(find("riemannformer-table1"), "laptop", kept)["lf", "cifar10"][0]
    assert (first.device, first.config.seed) == (*TWINS.values(), 0)
    assert [row["train_loss"] for row in first.metrics[:2]] == [1.7118241786956787, 1.3866016864776611]


# Statistics -----------------------------------------------------------------------------------------------------------


def test_paired_differences_are_those_computed_by_hand():
    a, b = seeds_of(0.80, 0.83, 0.86, 0.50), seeds_of(0.79, 0.80, 0.81)
    difference = stats.paired_differences(a, reversed(b))
    assert difference.seeds == (0, 1, 2)
    assert difference.differences == pytest.approx((1, 3, 5))
    # Deviations -2, 0, 2: variance 8 / 2 = 4, standard error 2 / sqrt(3); 4.303 is the t table's 97.5 % for 2 degrees.
    assert (difference.mean, difference.standard_error) == pytest.approx((3, 2 / math.sqrt(3)))
    half = 4.303 * 2 / math.sqrt(3)
    assert difference.interval == pytest.approx((3 - half, 3 + half), rel=1e-3)
    assert difference.within_noise is True
    assert str(difference) == "+3.00 ± 1.15 (3 seeds, 95 % interval -1.97 to +7.97)"
    same = stats.paired_differences(a, a)
    assert (same.interval, same.within_noise) == ((0, 0), True)


def test_few_seeds_claim_no_interval():
    one = stats.paired_differences(seeds_of(0.8), seeds_of(0.7, 0.9))
    two = stats.paired_differences(seeds_of(0.8, 0.9), seeds_of(0.7, 0.7))
    none = stats.paired_differences(seeds_of(0.8), seeds_of(0.7, first=5))
    assert (one.count, one.standard_error, one.interval, one.within_noise) == (1, None, None, None)
    assert two.standard_error == pytest.approx(5)
    assert (two.interval, two.within_noise) == (None, None)
    assert (str(one), str(two), str(none)) == ("+10.00 (1 seed)", "+15.00 ± 5.00 (2 seeds)", "no common seed")
    assert math.isnan(none.mean)
    once, twice = seeds_of(0.8), seeds_of(0.8) * 2
    for pair, name in (((twice, once), "records_a"), ((once, twice), "records_b")):
        with pytest.raises(ValueError, match=f"^{name}: got two records of seed 0; one record a seed$"):
            stats.paired_differences(*pair)


def test_errors_over_test_images_keep_to_their_ends():  # how-to-compare goes through all test sets
    assert (stats.sampling_error(0.5, 1), stats.sampling_error(0.0, 9), stats.sampling_error(1.0, 9)) == (50, 0, 0)
    assert stats.sampling_error(0.8, 400) == pytest.approx(2)
    assert [stats.difference_error(0.5, 0.5, 1, u) for u in (-1e-9, 1 + 1e-9)] == pytest.approx([0, 100])  # rounding


def test_disagreement_counts_the_images_that_one_model_alone_has_right():
    config, data = Config("digits", epochs=1), {"fingerprint": "f", "test_images": 10}
    right = [[1, 1, 1, 0, 0, 1, 1, 0, 1, 0], [1, 0, 0, 0, 0, 1, 1, 1, 1, 0]]
    a, b = (record(config, 0.5, data=data, answers=packed_bits(x)) for x in right)
    assert (stats.disagreement(a, b), stats.disagreement(b, a), stats.disagreement(a, a)) == ((2, 1), (1, 2), (0, 0))
    for other in (data | {"fingerprint": "g"}, data | {"test_images": 9}):
        with pytest.raises(LabError, match="have different test images"):
            stats.disagreement(a, replace(b, data=other))
    for pair in ((a, replace(b, answers="")), (replace(a, answers=""), b)):
        with pytest.raises(LabError, match=f"^{config.name}: the record does not say which test images"):
            stats.disagreement(*pair)


@pytest.mark.parametrize(
    ("ends", "named", "expected"),
    [
        *(((0.1, 0.4), 0, "seen"), ((0.1, 0.4), 0.4, "seen")),
        ((0.1, 0.4), 0.5, "not seen"),  # above zero, and smaller than what is claimed
        *(((0.0, 0.4), 0, "undecided"), ((-0.1, 0.4), 0.4, "undecided"), ((-0.1, 0.4), 0.5, "not seen")),
        *(((-0.4, 0.0), 0, "undecided"), ((-0.4, 0.0), 0.1, "not seen")),
        *(((-0.4, -0.1), 0, "turned round"), ((-0.4, -0.1), 0.5, "turned round")),
    ],
)
def test_a_verdict_looks_at_zero_and_at_the_size_named(ends, named, expected):
    assert stats.verdict(*ends, named) == expected
    assert stats.verdict(*ends, named, part=True) == expected.replace("turned round", "not seen")  # of some test images


def test_holm_keeps_what_holds_against_the_tests_that_are_left():
    assert stats.holm([0.02, 0.01, 0.04, 0.03]) == [False, True, False, False]  # 0.01 <= 0.05 / 4, 0.02 > 0.05 / 3
    assert stats.holm([0.024, 0.001, 0.011, 0.5]) == [True] * 3 + [False]  # Bonferroni's 0.0125 leaves the first out
    assert (stats.holm([]), stats.holm([0.0125] * 4), stats.holm([0.06])) == ([], [True] * 4, [False])
    few = stats.PairedDifference((0, 1, 2), (1.0, 2.0, 3.0))  # t = 2 sqrt(3): P(|t| > f) = 1 - f / sqrt(2 + f^2)
    assert few.p_value == pytest.approx(1 - 12**0.5 / 14**0.5)
    for values, p_value in (((1.0, 2.0), None), ((1.0, 1.0, 1.0), 0.0), ((0.0, 0.0, 0.0), 1.0)):
        assert stats.PairedDifference(tuple(range(len(values))), values).p_value == p_value
    with pytest.raises(ValueError, match="p_values: got"):
        stats.holm([math.nan, 0.5])


@pytest.mark.parametrize(
    ("call", "given", "complaint"),
    [
        ("verdict", (2.0, 1.0), r"low: got 2\.0 above high 1\.0; the ends of an interval, the lower first"),
        ("verdict", (0, 1, -0.1), r"named: got -0\.1; it must be 0 or above"),
        ("difference_error", (0.5, 1.01, 9), r"accuracy_b: got 1\.01; it must be in \[0, 1\]"),
        ("difference_error", (0.5, 0.5, 0), "images: got 0; it must be above 0"),
        ("difference_error", (0.8, 0.7, 9, 0.51), "disagreement: got 0.51; between 0.1 and 0.5 for these accuracies"),
        ("mcnemar", (3, 1.5), "second_only: got 1.5; a number of images, 0 or more"),
    ],
)
def test_statistics_refuse_what_is_no_share_or_count(call, given, complaint):
    with pytest.raises(ValueError, match=f"^{complaint}$"):
        getattr(stats, call)(*given)
