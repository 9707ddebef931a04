"""What an experiment is: rows, data sets, scales and seeds, the runs they make, and the columns of its table."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from geolib._checks import require
from geolib.lab.config import Config
from geolib.lab.data.sets import DATASETS
from geolib.lab.files import LabError
from geolib.lab.records import Record

SCALES = ("smoke", "cpu", "laptop", "full")
# Scales whose runs take the precision that is fast on their processor, where their configuration names none. At the
# others a CPU computes in float32: tables have runs of several computers, and small models gain little.
FAST_SCALES = ("laptop",)


@dataclass(frozen=True)
class Row:
    """A row of an experiment: its title and the method that it trains, None where its name is the method's.

    ``settings`` are fields of Config that differ at every scale; ``at`` has those of each scale that the row is of.
    """

    title: str
    method: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    at: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Line:
    """What a column reads of a table's line: its rows, their records, and those of all rows and data sets."""

    rows: Sequence[str]
    records: Sequence[Record]
    cells: Mapping[tuple[str, str], Sequence[Record]]


@dataclass(frozen=True)
class Experiment:
    """A table of methods against data sets, at several scales.

    Parameters
    ----------
    rows : mapping from a row's name to the row
    settings : mapping from a scale to the fields of Config that all its runs share
    seeds : mapping from a scale, one that the experiment has, to its seeds
    against : pairs of rows whose difference is taken seed by seed, first minus second
    source : the ledger's id of the paper's table, or None
    paper : mapping from (row, data set) to the paper's accuracy in percent; rows with a number run before the others
    paper_setting : the fields of Config that the paper states
    chosen : what the paper does not state and how we chose it, a note under the table
    parts : mapping from a scale to the (row, data set) pairs that it runs, most important first, if these are not all
    columns : mapping from a title to what makes a text of a line, "" or "-" for nothing; they follow the accuracies.
        ValueError where a scale has several data sets, which a line would mix.
    shows : what the columns show, where they take the place of the accuracies
    lines : mapping from the title of a line of the table to its rows; when it is empty, a line for each row
    """

    name: str
    about: str
    datasets: Sequence[str]
    rows: Mapping[str, Row]
    settings: Mapping[str, Mapping[str, Any]]
    seeds: Mapping[str, Sequence[int]]
    against: Sequence[tuple[str, str]] = ()
    source: str | None = None
    paper: Mapping[tuple[str, str], float] = field(default_factory=dict)
    paper_setting: Mapping[str, Any] = field(default_factory=dict)
    chosen: str = ""
    parts: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict)
    columns: Mapping[str, Callable[[Line], str]] = field(default_factory=dict)
    shows: str = ""
    lines: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self):
        require(not self.lines or self.shows != "", "lines", list(self.lines), "they need columns and what these show")
        for scale in self.scales if self.columns else ():
            sets = sorted({dataset for _, dataset in self.pairs(scale)})
            require(len(sets) == 1, "columns", f"{', '.join(sets)} at {scale} scale", "one data set a scale")

    @property
    def methods(self) -> dict[str, str]:
        """From a row's name to its title."""
        return {name: row.title for name, row in self.rows.items()}

    @property
    def needs(self) -> str:
        """What must be there to run it."""
        return "; ".join(dict.fromkeys(DATASETS[name].needs for name in self.datasets))

    @property
    def scales(self) -> list[str]:
        """Those that it has, the smallest first."""
        return [scale for scale in SCALES if scale in self.seeds]

    def _is_ours(self, run: tuple[Any, ...]) -> bool:
        """Whether the paper has no number for a run's row, its first entry."""
        return run[0] not in {row for row, _ in self.paper}

    def pairs(self, scale: str) -> list[tuple[str, str]]:
        """Every (row, data set) of a scale, the paper's rows first, or as in ``parts``; LabError for another scale."""
        if scale not in self.scales:
            raise LabError(f"{self.name} has no scale {scale!r}; it has {', '.join(self.scales)}")
        if scale in self.parts:
            return list(self.parts[scale])
        rows = [name for name, row in self.rows.items() if not row.at or scale in row.at]
        return sorted([(row, dataset) for dataset in self.datasets for row in rows], key=self._is_ours)

    def config(self, scale: str, row: str, dataset: str, seed: int) -> Config:
        """One run."""
        own = self.rows[row]
        settings = {"method_options": own.options, **self.settings[scale], **own.settings, **own.at.get(scale, {})}
        return Config(dataset=dataset, method=own.method or row, seed=seed, **settings)

    def configs(self, scale: str, seeds: Sequence[int] | None = None, words: Sequence[str] = ()) -> list[Config]:
        """All runs of a scale, by seeds, after the paper's own rows with all theirs; with words, those that one picks.

        A word is a row or a data set, or both: "rope", "cifar10", "rope/cifar10"; LabError for another.
        """
        for part in (part for word in words for part in word.split("/")):
            if part not in self.rows and part not in self.datasets:
                raise LabError(f"--only {part!r}: there are {', '.join((*self.rows, *self.datasets))}")
        picks = [set(word.split("/")) for word in words] or [set[str]()]
        pairs = [pair for pair in self.pairs(scale) if any(pick <= set(pair) for pick in picks)]
        runs = [(*pair, seed) for seed in (self.seeds[scale] if seeds is None else seeds) for pair in pairs]
        ordered = runs if scale in self.parts else sorted(runs, key=self._is_ours)
        return [self.config(scale, *run) for run in ordered]

    def cells(self, scale: str) -> dict[str, tuple[str, str]]:
        """From a configuration's ``cell`` to its row and data set."""
        return {self.config(scale, row, dataset, 0).cell: (row, dataset) for row, dataset in self.pairs(scale)}
