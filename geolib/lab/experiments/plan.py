"""What an experiment is: rows, data sets, scales and seeds, and the runs they make."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from geolib.lab.config import Config
from geolib.lab.data.sets import DATASETS
from geolib.lab.experiments.text import Table
from geolib.lab.files import LabError
from geolib.lab.records import Record

SCALES = ("smoke", "cpu", "laptop", "full")

# Scales whose runs take the precision that is fast on their processor (``precision="auto"``), where their configuration
# names none. At the others a CPU computes in float32, so that runs of different computers stand in one table and small
# models, which gain little, are not rounded.
FAST_SCALES = ("laptop",)


@dataclass(frozen=True)
class Variant:
    """A row that is more than a method's name: a method with options, perhaps in settings of its own.

    ``settings`` goes from a scale to the fields of Config in which this row differs from the others.
    """

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Stage:
    """Runs that must be recorded before the next stage is known.

    ``groups`` has the most important first. The runs of a group are worth something together: a time budget holds all
    or none.
    """

    groups: Sequence[Sequence[tuple[Experiment, Config]]]

    @property
    def runs(self) -> list[tuple[Experiment, Config]]:
        """All of them; a run that two groups share comes once."""
        once = {config.hash: (experiment, config) for group in self.groups for experiment, config in group}
        return list(once.values())


@dataclass(frozen=True)
class Pipeline:
    """Several experiments in stages, where what an earlier one finds decides what a later one runs.

    ``plan`` gives the stages; one whose runs are not decided yet holds those that are to be expected.
    """

    name: str
    about: str
    needs: str
    scales: Sequence[str]
    plan: Callable[[str, Sequence[Record]], list[Stage]]
    tabulate: Callable[[str, Sequence[Record]], list[Table]]

    def stages(
        self, scale: str, records: Sequence[Record], seeds: Sequence[int] | None, words: Sequence[str]
    ) -> list[Stage]:
        """Its stages, as far as they are known; LabError for seeds or words, which it has no use for."""
        if scale not in self.scales:
            raise LabError(f"{self.name} has no scale {scale!r}; it has {', '.join(self.scales)}")
        if seeds or words:
            raise LabError(f"{self.name} goes its own way; --seeds and --only are for single experiments")
        return self.plan(scale, records)


@dataclass(frozen=True)
class Experiment:
    """A table of methods against data sets, at several scales.

    Parameters
    ----------
    name, about : str
    source : str or None
        The ledger's id of the paper's table.
    datasets : sequence of str
    methods : mapping
        From a row's name to its title. The name is that of a method, or a key of ``variants``.
    settings : mapping
        From a scale to the fields of Config that are the same for all its runs.
    seeds : mapping
        From a scale to its seeds; the scales of the experiment are those named here.
    variants : mapping
        From a row's name to its method, options and settings.
    against : sequence of (row, row)
        Pairs whose difference is taken seed by seed, first minus second.
    paper : mapping
        From (row, data set) to the paper's accuracy in percent. Rows with such a number run before the others.
    paper_setting : mapping
        The fields of Config that the paper states.
    chosen : str
        What the paper does not state and how we chose it.
    parts : mapping
        From a scale to the (row, data set) pairs that it runs, most important first, where these are not all.
    importance : int
        Lower comes first among the pending runs.
    tabulate : function of (experiment, scale, records), or None
        Makes the table when it is not the usual one; it passes over records of other configurations.
    """

    name: str
    about: str
    datasets: Sequence[str]
    methods: Mapping[str, str]
    settings: Mapping[str, Mapping[str, Any]]
    seeds: Mapping[str, Sequence[int]]
    variants: Mapping[str, Variant] = field(default_factory=dict)
    against: Sequence[tuple[str, str]] = ()
    source: str | None = None
    paper: Mapping[tuple[str, str], float] = field(default_factory=dict)
    paper_setting: Mapping[str, Any] = field(default_factory=dict)
    chosen: str = ""
    parts: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict)
    importance: int = 0
    tabulate: Callable[[Experiment, str, Iterable[Record]], Table] | None = None

    @property
    def needs(self) -> str:
        """What must be there to run it."""
        return "; ".join(dict.fromkeys(DATASETS[name].needs for name in self.datasets))

    @property
    def scales(self) -> list[str]:
        """Those that it has, the smallest first."""
        return [scale for scale in SCALES if scale in self.seeds]

    def pairs(self, scale: str) -> list[tuple[str, str]]:
        """Every (row, data set) of a scale; LabError for a scale that is not there.

        The paper's own rows come first, unless ``parts`` gives the order.
        """
        if scale not in SCALES:
            raise LabError(f"unknown scale {scale!r}; there are {', '.join(SCALES)}")
        if scale not in self.seeds:
            raise LabError(f"{self.name} has no scale {scale!r}; it has {', '.join(self.scales)}")
        if scale in self.parts:
            return list(self.parts[scale])
        return sorted([(row, dataset) for dataset in self.datasets for row in self.methods], key=self._is_ours)

    def _is_ours(self, run: tuple[Any, ...]) -> bool:
        """Whether the paper has no number for a run's row, its first entry."""
        return run[0] not in {row for row, _ in self.paper}

    def rows(self, scale: str) -> list[str]:
        """The rows of a scale's table, in the table's order."""
        chosen = {row for row, _ in self.parts.get(scale, ())}
        return [row for row in self.methods if not chosen or row in chosen]

    def sets(self, scale: str) -> list[str]:
        """The data sets of a scale."""
        chosen = {dataset for _, dataset in self.parts.get(scale, ())}
        return [dataset for dataset in self.datasets if not chosen or dataset in chosen]

    def variant(self, row: str) -> Variant:
        """What a row runs: its entry in ``variants``, or the method of its name."""
        return self.variants.get(row, Variant(row))

    def config(self, scale: str, row: str, dataset: str, seed: int) -> Config:
        """One run."""
        own = self.variant(row)
        settings = {"method_options": own.options, **self.settings[scale], **own.settings.get(scale, {})}
        return Config(dataset=dataset, method=own.method, seed=seed, **settings)

    def configs(self, scale: str, seeds: Sequence[int] | None = None, words: Sequence[str] = ()) -> list[Config]:
        """All runs of a scale, the first seed of every cell before the second of any; with words, those that one picks.

        The paper's own rows come first with all their seeds, unless ``parts`` gives the order. A word is a row or a
        data set, or both: "rope", "cifar10", "rope/cifar10"; LabError for another.
        """
        for part in (part for word in words for part in word.split("/")):
            if part not in self.methods and part not in self.datasets:
                raise LabError(f"--only {part!r}: there are {', '.join((*self.methods, *self.datasets))}")
        picks = [set(word.split("/")) for word in words] or [set[str]()]
        pairs = [pair for pair in self.pairs(scale) if any(pick <= set(pair) for pick in picks)]
        runs = [(*pair, seed) for seed in (self.seeds[scale] if seeds is None else seeds) for pair in pairs]
        if scale not in self.parts:
            runs.sort(key=self._is_ours)
        return [self.config(scale, *run) for run in runs]

    def stages(
        self, scale: str, records: Sequence[Record], seeds: Sequence[int] | None, words: Sequence[str]
    ) -> list[Stage]:
        """One stage: the runs of a scale, of these seeds instead of its own, that one of the words picks."""
        return [Stage([[(self, config)] for config in self.configs(scale, seeds, words)])]

    def cells(self, scale: str) -> dict[str, tuple[str, str]]:
        """From a configuration's ``cell`` to its row and data set."""
        return {self.config(scale, row, dataset, 0).cell: (row, dataset) for row, dataset in self.pairs(scale)}
