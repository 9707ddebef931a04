"""Tables from records: means with their spread over seeds, and differences taken seed by seed."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from operator import attrgetter
from typing import Any

from geolib.lab.experiments.plan import Experiment, Line
from geolib.lab.experiments.stats import PairedDifference, paired_differences, sampling_error
from geolib.lab.files import LabError
from geolib.lab.records import Record

Cells = Mapping[tuple[str, str], Sequence[Record]]  # the records of one row and data set, seeds ascending
Columns = Mapping[str, Callable[[Any], str]]  # from a title to the text that it has in a line
Reader = Callable[[Record], float | None]


@dataclass(frozen=True)
class Table:
    """Rows of text under a header, with a title above and notes below; without rows the title and the notes alone."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()

    def markdown(self) -> str:
        """As Markdown."""
        rows = [self.header, ["---"] * len(self.header), *self.rows, []] if self.rows else []
        lines = [f"| {' | '.join(row)} |" if row else "" for row in rows]
        return "\n".join([f"**{self.title}**", "", *lines, *(f"- {note}" for note in self.notes)])

    def plain(self) -> str:
        """As text in columns."""
        widths = [max(len(row[i]) for row in (self.header, *self.rows)) for i in range(len(self.header))]
        rows = [self.header, ["-" * width for width in widths], *self.rows, []] if self.rows else []
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
        return "\n".join([self.title, "", *lines, *self.notes]).rstrip()


def cells_of(experiment: Experiment, scale: str, records: Iterable[Record]) -> dict[tuple[str, str], list[Record]]:
    """The records of each (row, data set) that has any, seeds ascending, each configuration once."""
    pairs = experiment.cells(scale)
    # One record for each configuration, the last of these: the experiment's own, before one that another made.
    ordered = sorted(records, key=lambda record: record.experiment == experiment.name)
    once = {record.config.hash: record for record in ordered if record.config.cell in pairs}
    cells: dict[tuple[str, str], list[Record]] = {}
    for record in sorted(once.values(), key=lambda record: record.config.seed):
        cells.setdefault(pairs[record.config.cell], []).append(record)
    return cells


def strongest(experiment: Experiment, records: Iterable[Record], *rows: str, seeds: int = 1) -> str:
    """The scale of the strongest records of a claim: "full" if it has them, else "laptop", else "cpu", or LabError.

    A claim compares some rows, or all, on one data set, where they have so many seeds in common: 3 for an interval.
    """
    kept = list(records)
    for scale in [scale for scale in ("full", "laptop", "cpu") if scale in experiment.scales]:
        cells, pairs = cells_of(experiment, scale, kept), experiment.pairs(scale)
        for dataset in experiment.datasets:
            wanted = rows or [row for row, data in pairs if data == dataset]
            found = [{record.config.seed for record in cells.get((row, dataset), ())} for row in wanted]
            if found and len(set.intersection(*found)) >= seeds:
                return scale
    whose = ", ".join(rows) or "all rows"
    raise LabError(f"{experiment.name}: no scale has records of {whose} with {seeds} seeds in common")


accuracy = attrgetter("accuracy")  # after the last epoch, in [0, 1]


def spread(values: Sequence[float], times: float = 100, digits: int = 1) -> str:
    """The mean, ± the standard deviation where there are two or more: of numbers of [0, 1] in percent, or ``times``."""
    mean = f"{times * statistics.mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean}±{times * statistics.stdev(values):.{digits}f}"


decimals = partial(spread, times=1, digits=3)


def mean(values: Sequence[float]) -> str:
    """The mean alone, to three digits."""
    return f"{statistics.mean(values):.3f}"


def learned(key: str) -> Reader:
    """What was measured of the trained model under this name; None where the record has no such number."""
    return lambda record: record.learned.get(key)


def column(read: Reader, form: Callable[[Sequence[float]], str] = spread, **fields: Any) -> Callable[[Line], str]:
    """A column of what ``read`` takes from the records of a line whose configuration has these fields; "-" for none."""

    def text(line: Line) -> str:
        meant = [x for x in line.records if all(getattr(x.config, name) == value for name, value in fields.items())]
        values = [value for record in meant if (value := read(record)) is not None]
        return form(values) if values else "-"

    return text


def tables_of(experiment: Experiment, scale: str, records: Iterable[Record]) -> list[Table]:
    """The table of an experiment, and that of its differences where there are any."""
    kept = list(records)
    differences = difference_table(experiment, scale, kept)
    return [table(experiment, scale, kept), *([differences] if differences.rows else [])]


def table(experiment: Experiment, scale: str, records: Iterable[Record]) -> Table:
    """The experiment's table at one scale, without lines that have no record and empty columns. Source: RF-T1."""
    cells = cells_of(experiment, scale, records)

    def theirs(dataset: str, line: Line) -> str:
        number = experiment.paper.get((line.rows[0], dataset))
        return "-" if number is None else f"{number:.2f}"

    def ours(dataset: str, line: Line) -> str:
        found = [100 * record.accuracy for record in cells.get((line.rows[0], dataset), ())]
        if len(found) < 2:
            return f"{found[0]:.2f} (1 seed)" if found else ""
        return f"{statistics.mean(found):.2f} ± {statistics.stdev(found):.2f} ({len(found)} seeds)"

    columns = {} if experiment.shows else _by_set(experiment, cells, theirs, ours)
    shows = experiment.shows or "top-1 test accuracy in % after the last epoch"
    lines = []
    for title, rows in experiment.lines.items() or [(row.title, (name,)) for name, row in experiment.rows.items()]:
        if found := [record for (row, _), group in cells.items() if row in rows for record in group]:
            lines.append((title, Line(rows, found, cells)))
    title = f"{experiment.name} ({scale} scale): {shows}"
    return _filled(title, "method", lines, {**columns, **experiment.columns}, _notes(experiment, scale, cells))


def difference_table(experiment: Experiment, scale: str, records: Iterable[Record]) -> Table:
    """The paired differences of ``against`` in points, beside the paper's: mean ± standard error, 95 % t interval.

    Pairs and data sets without a common seed are left out. Source: RF-T1.
    """
    cells = cells_of(experiment, scale, records)

    def theirs(dataset: str, pair: tuple[str, str]) -> str:
        a, b = (experiment.paper.get((row, dataset)) for row in pair)
        return "-" if a is None or b is None else f"{a - b:+.2f}"

    def ours(dataset: str, pair: tuple[str, str]) -> str:
        difference = _difference(cells, *pair, dataset)
        return str(difference) if difference.count else ""

    here = {row for row, _ in experiment.pairs(scale)}
    pairs = [pair for pair in experiment.against if here.issuperset(pair)]
    found = [pair for pair in pairs if any(ours(dataset, pair) for dataset in experiment.datasets)]
    lines = [(" - ".join(experiment.rows[row].title for row in pair), pair) for pair in found]
    missing = len(pairs) - len(found)
    notes = [f"{missing} of {len(pairs)} pairs have no common seed yet."] if missing else []
    title = f"{experiment.name} ({scale} scale): differences over common seeds, in percentage points"
    return _filled(title, "difference", lines, _by_set(experiment, cells, theirs, ours), notes)


def _difference(cells: Cells, a: str, b: str, dataset: str) -> PairedDifference:
    return paired_differences(cells.get((a, dataset), ()), cells.get((b, dataset), ()))


def _by_set(experiment: Experiment, cells: Cells, theirs: Callable[..., str], ours: Callable[..., str]) -> Columns:
    """Columns for each data set that has a record: the paper's number, where it has any of this set, and ours."""
    columns: dict[str, Any] = {}
    recorded, printed = ({dataset for _, dataset in pairs} for pairs in (cells, experiment.paper))
    for dataset in [dataset for dataset in experiment.datasets if dataset in recorded]:
        columns |= {f"{dataset}, paper": partial(theirs, dataset)} if dataset in printed else {}
        columns[f"{dataset}, ours" if dataset in printed else dataset] = partial(ours, dataset)
    return columns


def _filled(title: str, first: str, lines: Sequence[tuple[str, Any]], columns: Columns, notes: Sequence[str]) -> Table:
    """A table of lines, each a title and what columns read, without the columns in which no line has anything."""
    texts = {name: [text(line) for _, line in lines] for name, text in columns.items()}
    texts = {name: cells for name, cells in texts.items() if set(cells) - {"", "-"}}
    rows = [[name, *(cells[i] for cells in texts.values())] for i, (name, _) in enumerate(lines)]
    return Table(title, [first, *texts], rows, notes)


def _notes(experiment: Experiment, scale: str, cells: Cells) -> list[str]:
    """How many runs are to come, what differs from the paper, whether its order holds, what ± is, and the devices."""
    found = [record for group in cells.values() for record in group]
    planned = {config.hash for config in experiment.configs(scale)}
    if not found:
        return [f"None of the {len(planned)} runs is recorded yet."]
    missing = len(planned - {record.config.hash for record in found})
    notes = [f"{missing} of {len(planned)} runs not run yet." if missing else f"All {len(planned)} runs are recorded."]
    if experiment.paper:
        usual = experiment.config(scale, *experiment.pairs(scale)[0], 0).to_dict()
        spelt = lambda value: "all" if value is None else value  # noqa: E731
        both = [(name, spelt(value), spelt(usual[name])) for name, value in experiment.paper_setting.items()]
        where = "; ".join(f"{name} {a}, ours {b}" for name, a, b in both if a != b) or "nowhere it states one"
        notes.append(f"{experiment.source}. Where the settings differ, paper: {where}.")
    notes += [experiment.chosen] if experiment.chosen else []
    printed, recorded = [dataset for _, dataset in experiment.paper], {dataset for _, dataset in cells}
    compared = [dataset for dataset in experiment.datasets if dataset in recorded and printed.count(dataset) > 1]
    notes += [_order(experiment, dataset, cells) for dataset in compared]
    seeds = ", ".join(map(str, sorted({record.config.seed for record in found})))
    notes.append(f"± is the standard deviation over seeds ({seeds}); a number without it is of one seed.")
    if sizes := [(x.accuracy, x.data["test_images"]) for x in found if x.data.get("test_images")]:
        error = statistics.mean(sampling_error(*size) for size in sizes)
        notes[-1] += f" Other test images would move each accuracy by about {error:.2f} points."
    devices = sorted({f"{record.device} ({record.precision})" for record in found})
    return [*notes, f"Ran on {'; '.join(devices)}."]


def _order(experiment: Experiment, dataset: str, cells: Cells) -> str:
    """Whether our means are in the paper's order, and between which neighbours the paired 95 % interval holds 0."""
    both = [row for row in experiment.rows if (row, dataset) in cells and (row, dataset) in experiment.paper]
    if len(both) < 2:
        return f"{dataset}: too few records to compare the order of methods."
    theirs = sorted(both, key=lambda row: experiment.paper[row, dataset])
    ours = sorted(both, key=lambda row: statistics.mean(record.accuracy for record in cells[row, dataset]))
    holds, fails = f"holds ({' < '.join(ours)})", f"({' < '.join(theirs)}) does not hold; ours is {' < '.join(ours)}"
    text = f"{dataset}: the paper's order {holds if ours == theirs else fails}."
    noise = {f"{a} < {b}": _difference(cells, b, a, dataset).within_noise for a, b in pairwise(theirs)}
    blurred, unknown = ([step for step, within in noise.items() if within is known] for known in (True, None))
    text += f" Within the seeds' noise: {', '.join(blurred)}." if blurred else ""
    text += f" Too few common seeds (fewer than 3) to know the noise: {', '.join(unknown)}." if unknown else ""
    return text if blurred or unknown else f"{text} No step is within the seeds' noise."
