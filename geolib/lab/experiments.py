"""Experiments: which configurations belong together at each scale, and the table they fill."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from geolib.encodings import is_name
from geolib.lab.config import Config
from geolib.lab.data import DATASETS
from geolib.lab.files import LabError
from geolib.lab.records import Record

SCALES = ("smoke", "cpu", "full")
NO_RECORD, NO_METHOD = "no record yet", "not in the library yet"


@dataclass(frozen=True)
class Experiment:
    """A table of methods against data sets, at three scales.

    Parameters
    ----------
    name, about : str
    source : str or None
        The ledger's id of the paper's table.
    datasets : sequence of str
    methods : mapping
        From a method's name to its row's title. A name that ``geolib.encodings.build`` does not know yet has no runs.
    settings : mapping
        From a scale to the fields of Config that are the same for all its runs.
    seeds : mapping
        From a scale to its seeds.
    paper : mapping
        From (method, data set) to the paper's accuracy in percent.
    paper_setting : mapping
        The fields of Config that the paper states.
    chosen : str
        What the paper does not state and how we chose it.
    importance : int
        Lower comes first among the pending runs.
    """

    name: str
    about: str
    datasets: Sequence[str]
    methods: Mapping[str, str]
    settings: Mapping[str, Mapping[str, Any]]
    seeds: Mapping[str, Sequence[int]]
    source: str | None = None
    paper: Mapping[tuple[str, str], float] = field(default_factory=dict)
    paper_setting: Mapping[str, Any] = field(default_factory=dict)
    chosen: str = ""
    importance: int = 0

    @property
    def needs(self) -> str:
        """What must be there to run it."""
        return "; ".join(dict.fromkeys(DATASETS[name].needs for name in self.datasets))

    def config(self, scale: str, method: str, dataset: str, seed: int) -> Config:
        """One run."""
        return Config(dataset=dataset, method=method, seed=seed, **self.settings[scale])

    def configs(self, scale: str, seeds: Sequence[int] | None = None) -> list[Config]:
        """All runs of a scale whose method exists, the first seed of every cell before the second of any."""
        if scale not in SCALES:
            raise LabError(f"unknown scale {scale!r}; there are {', '.join(SCALES)}")
        methods = [method for method in self.methods if is_name(method)]
        return [
            self.config(scale, method, dataset, seed)
            for seed in (self.seeds[scale] if seeds is None else seeds)
            for dataset in self.datasets
            for method in methods
        ]

    def only(self, configs: Iterable[Config], words: Sequence[str]) -> list[Config]:
        """The runs that one of the words picks: "rope", "cifar10" or "rope/cifar10"; LabError for any other word."""
        for part in (part for word in words for part in word.split("/")):
            if part not in self.methods and part not in self.datasets:
                raise LabError(f"--only {part!r}: there are {', '.join((*self.methods, *self.datasets))}")
            if part in self.methods and not is_name(part):
                raise LabError(f"--only {part!r}: this method is not in the library yet")
        picks = [set(word.split("/")) for word in words]
        return [c for c in configs if not picks or any(pick <= {c.method, c.dataset} for pick in picks)]


EXPERIMENTS: dict[str, Experiment] = {}


def find(name: str) -> Experiment:
    """An experiment by name; LabError for an unknown one."""
    if name not in EXPERIMENTS:
        raise LabError(f"unknown experiment {name!r}; there are {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]


def _register(*experiments: Experiment) -> None:
    EXPERIMENTS.update((experiment.name, experiment) for experiment in experiments)


# Tables -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """Rows of text under a header, with a title above and notes below."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()

    def markdown(self) -> str:
        """As Markdown."""
        lines = [
            f"**{self.title}**",
            "",
            _row(self.header),
            _row(["---"] * len(self.header)),
            *map(_row, self.rows),
            "",
        ]
        return "\n".join(lines + [f"- {note}" for note in self.notes])

    def plain(self) -> str:
        """As text in columns."""
        widths = [max(len(row[i]) for row in (self.header, *self.rows)) for i in range(len(self.header))]
        rows = [self.header, ["-" * w for w in widths], *self.rows]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip() for row in rows]
        return "\n".join([self.title, "", *lines, "", *self.notes]).rstrip()


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def table(experiment: Experiment, scale: str, records: Iterable[Record]) -> Table:
    """The experiment's table at one scale: the paper's number, ours with its spread over seeds, what differs.

    Parameters
    ----------
    experiment : Experiment
    scale : str
    records : iterable of Record
        Those of other configurations are passed over.

    Returns
    -------
    Table
    """
    cells = _cells(experiment, scale, records)
    by_paper = bool(experiment.paper)
    header = ["method"]
    for dataset in experiment.datasets:
        header += [f"{dataset}, paper", f"{dataset}, ours"] if by_paper else [dataset]
    rows = []
    for method, title in experiment.methods.items():
        row = [title]
        for dataset in experiment.datasets:
            number = experiment.paper.get((method, dataset))
            row += ["-" if number is None else f"{number:.2f}"] if by_paper else []
            row.append(_ours(cells.get((method, dataset)), method))
        rows.append(row)
    title = f"{experiment.name} ({scale} scale): top-1 test accuracy in % after the last epoch"
    return Table(title, header, rows, _notes(experiment, scale, cells))


def _cells(experiment: Experiment, scale: str, records: Iterable[Record]) -> dict[tuple[str, str], list[Record]]:
    """The records of each (method, data set), all seeds."""
    wanted = {config.cell for config in experiment.configs(scale, seeds=[0])}
    cells: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record.config.cell in wanted:
            cells.setdefault((record.config.method, record.config.dataset), []).append(record)
    return cells


def _ours(records: list[Record] | None, method: str) -> str:
    """Mean and standard deviation over seeds, in percent."""
    if not is_name(method):
        return NO_METHOD
    if not records:
        return NO_RECORD
    accuracies = [100 * record.accuracy for record in records]
    if len(accuracies) == 1:
        return f"{accuracies[0]:.2f} (1 seed)"
    return f"{statistics.mean(accuracies):.2f} ± {statistics.stdev(accuracies):.2f} ({len(accuracies)} seeds)"


def _notes(experiment: Experiment, scale: str, cells: Mapping[tuple[str, str], list[Record]]) -> list[str]:
    """What differs from the paper, what it leaves open, and whether its ordering holds."""
    notes = []
    if experiment.paper:
        usual = experiment.config(scale, "none", experiment.datasets[0], 0).to_dict()
        differ = [
            f"{k} {_spell(v)}, ours {_spell(usual[k])}" for k, v in experiment.paper_setting.items() if usual[k] != v
        ]
        notes.append(
            f"{experiment.source}. Where the settings differ, paper: "
            + ("; ".join(differ) or "nowhere it states one")
            + "."
        )
        notes.append(experiment.chosen)
        notes += [_ordering(experiment, dataset, cells) for dataset in experiment.datasets]
    devices = sorted({f"{record.device} ({record.precision})" for found in cells.values() for record in found})
    if devices:
        notes.append("Ran on " + "; ".join(devices) + ".")
    return notes


def _spell(value: Any) -> str:
    return "all" if value is None else str(value)


def _ordering(experiment: Experiment, dataset: str, cells: Mapping[tuple[str, str], list[Record]]) -> str:
    """Whether our means stand in the paper's order, as far as there are records."""
    ours = {
        method: statistics.mean(record.accuracy for record in cells[method, dataset])
        for method in experiment.methods
        if (method, dataset) in cells and (method, dataset) in experiment.paper
    }
    if len(ours) < 2:
        return f"{dataset}: too few records to compare the order of methods."
    theirs = sorted(ours, key=lambda method: experiment.paper[method, dataset])
    mine = sorted(ours, key=lambda method: ours[method])
    if mine == theirs:
        return f"{dataset}: the paper's order holds ({' < '.join(mine)})."
    return f"{dataset}: the paper's order ({' < '.join(theirs)}) does not hold; ours is {' < '.join(mine)}."


# Time ---------------------------------------------------------------------------------------------------------------

LAUNCH_SECONDS = 1.2e-3  # assumed: a block's forward and backward, launched from Python without compilation
H100_FLOPS = 1e14  # assumed: what such a small model gets in bf16, a tenth of the data sheet


def h100_seconds(config: Config) -> float:
    """An estimate, not a measurement, of the time a run takes on one H100.

    The greater of two times for each step, that of launching its kernels and that of its arithmetic (6 operations for
    each parameter and token), under the two assumptions above.
    """
    images, pixels = DATASETS[config.dataset].images, DATASETS[config.dataset].pixels
    count = config.train_size or images
    tokens = pixels // (config.patch or 1) ** 2
    parameters = config.layers * config.width**2 * (4 + 2 * config.mlp_ratio)
    arithmetic = 6 * parameters * tokens * config.batch / H100_FLOPS
    steps = config.epochs * -(-count // config.batch)
    return steps * max(LAUNCH_SECONDS * (config.layers + 1), arithmetic)


def similar_seconds(config: Config, records: Iterable[Record], device: str) -> float | None:
    """The longest time that a run of the same size took on this device, whatever its method and seed, or None."""

    def size(other: Config) -> dict[str, Any]:
        return other.to_dict() | {"method": None, "method_options": None, "seed": None}

    times = [r.wall_seconds for r in records if r.device == device and size(r.config) == size(config)]
    return max(times, default=None)


# The experiments ----------------------------------------------------------------------------------------------------

_DIGITS = {"width": 48, "heads": 4, "layers": 3, "mlp_ratio": 2.0, "batch": 24, "lr": 3e-3, "warmup": 60}

_register(
    Experiment(
        name="digits-encodings",
        about="what a position is worth: 8x8 digits as 64 tokens of one pixel",
        datasets=("digits",),
        methods={
            "none": "none",
            "sinusoidal": "sinusoidal",
            "learned": "learned",
            "rope": "RoPE, reading order",
            "rope-axial": "RoPE, axial",
        },
        settings={
            "smoke": {**_DIGITS, "epochs": 1, "train_size": 128, "test_size": 64},
            "cpu": {**_DIGITS, "epochs": 12},
            "full": {**_DIGITS, "epochs": 60},
        },
        seeds={"smoke": (0,), "cpu": (0, 1, 2), "full": (0, 1, 2, 3, 4)},
        importance=2,
    ),
    Experiment(
        name="riemannformer-table1",
        about="Table 1 of RiemannFormer: position methods on CIFAR-10 and CIFAR-100",
        source="RF-T1",
        datasets=("cifar10", "cifar100"),
        methods={
            "none": "No-Pos",
            "sinusoidal": "Sinusoidal",
            "rope": "RoPE",
            "lf": "LF only",
            "riemannformer": "RiemannFormer",
            "riemannformer+lf": "RiemannFormer+LF",
            "learned": "learned (ours)",
            "rope-axial": "RoPE, axial (ours)",
        },
        settings={
            "smoke": {"width": 16, "heads": 4, "layers": 1, "epochs": 1, "train_size": 256, "test_size": 128},
            "cpu": {
                "width": 64,
                "heads": 4,
                "layers": 6,
                "epochs": 8,
                "batch": 64,
                "augment": "crop-flip",
                "train_size": 10_000,
                "test_size": 2_000,
            },
            "full": {
                "width": 256,
                "heads": 4,
                "layers": 6,
                "mlp_ratio": 4.0,
                "epochs": 200,
                "batch": 128,
                "augment": "crop-flip",
            },
        },
        seeds={"smoke": (0,), "cpu": (0,), "full": (0, 1, 2)},
        paper={
            (method, dataset): number
            for dataset, numbers in (
                ("cifar10", (79.61, 86.06, 87.91, 87.30, 89.87, 90.82)),
                ("cifar100", (53.37, 59.81, 62.37, 63.01, 64.51, 66.96)),
            )
            for method, number in zip(
                ("none", "sinusoidal", "rope", "lf", "riemannformer", "riemannformer+lf"), numbers
            )
        },
        paper_setting={
            "heads": 4,
            "layers": 6,
            "patch": 4,
            "epochs": 200,
            "batch": 128,
            "lr": 1e-3,
            "weight_decay": 0.01,
            "train_size": None,
            "test_size": None,
        },
        chosen=(
            "The paper gives no width, MLP ratio, pooling, schedule or augmentation and does not say whether its RoPE "
            "turns along one axis or two; we read its default AdamW as PyTorch's. Ours: mean pooling, cosine to zero "
            "without warm-up, crop and flip; RoPE in reading order in its row and axial in a row of its own; no "
            "weight decay on biases, norms and the encoding's parameters; full scale is 256 wide with MLP ratio 4."
        ),
        importance=1,
    ),
)
