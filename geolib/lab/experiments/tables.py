"""Tables from records: means with their spread over seeds, and differences taken seed by seed."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from geolib.lab.experiments.plan import Experiment, Pipeline
from geolib.lab.experiments.stats import PairedDifference, paired_differences, sampling_error
from geolib.lab.experiments.text import Table, spread
from geolib.lab.records import Record

# The records of one row and data set.
Cells = Mapping[tuple[str, str], list[Record]]


def cells_of(experiment: Experiment, scale: str, records: Iterable[Record]) -> dict[tuple[str, str], list[Record]]:
    """The records of each (row, data set) that has any, seeds ascending.

    Those of other configurations are passed over. A configuration recorded by two experiments counts once.
    """
    places = experiment.cells(scale)
    # One record for each configuration; the experiment's own stands before one that another experiment made.
    ordered = sorted(records, key=lambda record: record.experiment == experiment.name)
    once = {record.config.hash: record for record in ordered if record.config.cell in places}
    cells: dict[tuple[str, str], list[Record]] = {}
    for record in sorted(once.values(), key=lambda record: record.config.seed):
        cells.setdefault(places[record.config.cell], []).append(record)
    return cells


# The usual table ----------------------------------------------------------------------------------------------------


def table(experiment: Experiment, scale: str, records: Iterable[Record]) -> Table:
    """The experiment's table at one scale: the paper's number, ours with its spread over seeds, what differs.

    Rows and data sets without a record are left out; the first note says how many runs there are to come.

    Source: RF-T1.
    """
    if experiment.tabulate is not None:
        return experiment.tabulate(experiment, scale, records)
    cells = cells_of(experiment, scale, records)
    by_paper, datasets = bool(experiment.paper), _recorded_sets(experiment, cells)
    rows = []
    for name in [name for name in experiment.methods if any((name, dataset) in cells for dataset in datasets)]:
        row = [experiment.methods[name]]
        for dataset in datasets:
            number = experiment.paper.get((name, dataset))
            row += ["-" if number is None else f"{number:.2f}"] if by_paper else []
            row.append(_ours(cells.get((name, dataset))))
        rows.append(row)
    title = f"{experiment.name} ({scale} scale): top-1 test accuracy in % after the last epoch"
    notes = [to_come(experiment, scale, cells), *(_notes(experiment, scale, cells) if cells else [])]
    return Table(title, _header("method", datasets, by_paper), rows, notes)


def provenance(experiment: Experiment, scale: str, cells: Cells) -> list[str]:
    """Notes under a table of means: how many runs are to come, and the seeds and devices of those recorded."""
    runs = [record for group in cells.values() for record in group]
    seeds = sorted({record.config.seed for record in runs})
    alone = ", and a number without it is one seed's" if {1} < {len(group) for group in cells.values()} else ""
    spread = f"± is over the seeds {seeds}{alone}." if len(seeds) > 1 else f"One seed, {seeds}, so no ±."
    notes = [spread] if runs else []
    notes += [f"Ran on {device}." for device in devices_of(cells)]
    return [to_come(experiment, scale, cells), *notes]


def devices_of(cells: Cells) -> list[str]:
    """The devices of all records, each with its precision."""
    return sorted({f"{record.device} ({record.precision})" for found in cells.values() for record in found})


def by_row(
    experiment: Experiment,
    scale: str,
    records: Iterable[Record],
    about: str,
    header: Sequence[str],
    columns: Callable[[list[Record]], Sequence[str]],
) -> Table:
    """A table of means: for each row and data set that has records the row's title and the columns made of them.

    ``about`` ends the table's title; ``header`` names the column of titles and then the others.
    """
    cells = cells_of(experiment, scale, records)
    places = [(row, dataset) for row in experiment.rows(scale) for dataset in experiment.sets(scale)]
    rows = [[experiment.methods[place[0]], *columns(cells[place])] for place in places if place in cells]
    title = f"{experiment.name} ({scale} scale): {about}"
    return Table(title, header, rows, provenance(experiment, scale, cells))


def by_rate(
    experiment: Experiment,
    scale: str,
    records: Iterable[Record],
    about: str,
    trained: Callable[[Record], float],
    judged: tuple[str, Callable[[Record], float | None], Callable[[Sequence[float]], str]],
) -> Table:
    """A table of rows named METHOD@RATE: for each method what training ended with at each rate, and how it was judged.

    A method's rate is that of the least training loss, which ``trained`` reads from a record. ``judged`` has words for
    what methods are then compared by, reads that from a record, and makes a cell of what some seeds have.
    """
    words, read, tell = judged
    cells = cells_of(experiment, scale, records)
    pairs = [(row.split("@"), experiment.sets(scale)[0]) for row in experiment.rows(scale)]
    rates, rows = list(dict.fromkeys(rate for (_, rate), _ in pairs)), []
    for method, dataset in dict.fromkeys((method, dataset) for (method, _), dataset in pairs):
        groups = [cells.get((f"{method}@{rate}", dataset), []) for rate in rates]
        if not any(groups):
            continue
        found = [[v for record in group if (v := read(record)) is not None] for group in groups]
        losses = [spread([trained(record) for record in group], times=1, digits=3) for group in groups]
        rows.append([method, *losses, best_rate(groups, rates, trained), *map(tell, found)])
    header = ["method", *(f"training, {rate}" for rate in rates), "its rate", *(f"{words}, {rate}" for rate in rates)]
    title = f"{experiment.name} ({scale} scale): {about}"
    return Table(title, header, rows, provenance(experiment, scale, cells))


def best_rate(groups: Sequence[Sequence[Record]], rates: Sequence[str], trained: Callable[[Record], float]) -> str:
    """The rate of the least training loss over the seeds that all rates have; none without such seeds."""
    common = set.intersection(*({record.config.seed for record in group} for group in groups))
    losses = [sum(trained(record) for record in group if record.config.seed in common) for group in groups]
    return rates[losses.index(min(losses))] if common else ""


def to_come(experiment: Experiment, scale: str, cells: Cells) -> str:
    """How many of the experiment's runs have no record yet, in one sentence."""
    planned = {config.hash for config in experiment.configs(scale)}
    recorded = {record.config.hash for found in cells.values() for record in found}
    missing = len(planned - recorded)
    if not recorded:
        return f"None of the {len(planned)} runs is recorded yet."
    return f"{missing} of {len(planned)} runs not run yet." if missing else f"All {len(planned)} runs are recorded."


def _recorded_sets(experiment: Experiment, cells: Cells) -> list[str]:
    return [dataset for dataset in experiment.datasets if any(data == dataset for _, data in cells)]


def _header(first: str, datasets: Iterable[str], by_paper: bool) -> list[str]:
    columns = [[f"{dataset}, paper", f"{dataset}, ours"] if by_paper else [dataset] for dataset in datasets]
    return [first, *(name for column in columns for name in column)]


def tables_of(what: Experiment | Pipeline, scale: str, records: Iterable[Record]) -> list[Table]:
    """The tables of an experiment, accuracies and then differences where there are pairs, or those of a pipeline."""
    kept = list(records)
    if isinstance(what, Pipeline):
        return what.tabulate(scale, kept)
    differences = difference_table(what, scale, kept)
    return [table(what, scale, kept), *([differences] if differences.rows else [])]


def difference_table(experiment: Experiment, scale: str, records: Iterable[Record]) -> Table:
    """The experiment's paired differences: each pair of ``against``, on each data set, beside the paper's difference.

    In percentage points: mean ± standard error over the seeds that both rows have; from three seeds on the paired
    95 % t interval. Pairs and data sets without a common seed are left out.

    Source: RF-T1.
    """
    cells = cells_of(experiment, scale, records)
    by_paper, datasets = bool(experiment.paper), _recorded_sets(experiment, cells)
    rows_here = set(experiment.rows(scale))
    pairs = [pair for pair in experiment.against if rows_here.issuperset(pair)]
    rows = []
    for a, b in pairs:
        ours = [_difference(cells, a, b, dataset) for dataset in datasets]
        row = [f"{experiment.methods[a]} - {experiment.methods[b]}"]
        for dataset, difference in zip(datasets, ours):
            theirs = [experiment.paper.get((name, dataset)) for name in (a, b)]
            row += [_minus(*theirs)] if by_paper else []
            row.append(str(difference) if difference.count else "")
        if any(difference.count for difference in ours):
            rows.append(row)
    title = f"{experiment.name} ({scale} scale): differences over common seeds, in percentage points"
    missing = len(pairs) - len(rows)
    notes = [f"{missing} of {len(pairs)} pairs have no common seed yet."] if missing else []
    return Table(title, _header("difference", datasets, by_paper), rows, notes)


def _minus(a: float | None, b: float | None) -> str:
    return "-" if a is None or b is None else f"{a - b:+.2f}"


def _difference(cells: Cells, a: str, b: str, dataset: str) -> PairedDifference:
    return paired_differences(cells.get((a, dataset), ()), cells.get((b, dataset), ()))


def _ours(records: Sequence[Record] | None) -> str:
    """Mean and standard deviation over seeds, in percent; nothing without a record."""
    if not records:
        return ""
    accuracies = [100 * record.accuracy for record in records]
    if len(accuracies) == 1:
        return f"{accuracies[0]:.2f} (1 seed)"
    return f"{statistics.mean(accuracies):.2f} ± {statistics.stdev(accuracies):.2f} ({len(accuracies)} seeds)"


def _notes(experiment: Experiment, scale: str, cells: Cells) -> list[str]:
    """What differs from the paper, what it leaves open, and whether its ordering holds."""
    notes = []
    if experiment.paper:
        usual = experiment.config(scale, next(iter(experiment.methods)), experiment.datasets[0], 0).to_dict()
        differ = [
            f"{k} {_spell(v)}, ours {_spell(usual[k])}" for k, v in experiment.paper_setting.items() if usual[k] != v
        ]
        notes.append(
            f"{experiment.source}. Where the settings differ, paper: "
            + ("; ".join(differ) or "nowhere it states one")
            + "."
        )
    if experiment.chosen:
        notes.append(experiment.chosen)
    printed = [dataset for _, dataset in experiment.paper]
    compared = [dataset for dataset in _recorded_sets(experiment, cells) if printed.count(dataset) > 1]
    notes += [ordering(experiment, dataset, cells) for dataset in compared]
    notes += _sampling(cells)
    if devices := devices_of(cells):
        notes.append("Ran on " + "; ".join(devices) + ".")
    return notes


def _spell(value: Any) -> str:
    return "all" if value is None else str(value)


def ordering(experiment: Experiment, dataset: str, cells: Cells) -> str:
    """Whether our means stand in the paper's order, as far as there are records, and which steps are within noise.

    A step between neighbours of the paper's order is within the seeds' noise when the paired 95 % interval of our
    difference holds 0.

    Source: RF-T1.
    """
    ours = {
        row: statistics.mean(record.accuracy for record in cells[row, dataset])
        for row in experiment.methods
        if (row, dataset) in cells and (row, dataset) in experiment.paper
    }
    if len(ours) < 2:
        return f"{dataset}: too few records to compare the order of methods."
    theirs = sorted(ours, key=lambda row: experiment.paper[row, dataset])
    mine = sorted(ours, key=lambda row: ours[row])
    if mine == theirs:
        text = f"{dataset}: the paper's order holds ({' < '.join(mine)})."
    else:
        text = f"{dataset}: the paper's order ({' < '.join(theirs)}) does not hold; ours is {' < '.join(mine)}."
    return text + _noise(theirs, dataset, cells)


def _noise(order: Sequence[str], dataset: str, cells: Cells) -> str:
    """Which neighbours of an order our seeds cannot tell apart."""
    steps = {f"{low} < {high}": _difference(cells, high, low, dataset) for low, high in pairwise(order)}
    blurred = [step for step, difference in steps.items() if difference.within_noise]
    unknown = [step for step, difference in steps.items() if difference.within_noise is None]
    text = f" Within the seeds' noise: {', '.join(blurred)}." if blurred else ""
    if unknown:
        text += f" Too few common seeds (fewer than 3) to know the noise: {', '.join(unknown)}."
    return text or " No step is within the seeds' noise."


def _sampling(cells: Cells) -> list[str]:
    """What the choice of test images adds to the spread over seeds."""
    recorded = [record for found in cells.values() for record in found if record.data.get("test_images")]
    if not recorded:
        return []
    errors = [sampling_error(record.accuracy, record.data["test_images"]) for record in recorded]
    return [
        "± is over seeds alone, which share their test images; other images would move each accuracy by about "
        f"{statistics.mean(errors):.2f} points."
    ]
