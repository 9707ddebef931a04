"""The experiments by name, and how long their runs should take."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from geolib.lab import riemannformer
from geolib.lab.config import Config
from geolib.lab.data import DATASETS
from geolib.lab.files import LabError
from geolib.lab.plans import SCALES as SCALES
from geolib.lab.plans import Experiment as Experiment
from geolib.lab.plans import Variant as Variant
from geolib.lab.records import Record
from geolib.lab.tables import NO_METHOD as NO_METHOD
from geolib.lab.tables import NO_RECORD as NO_RECORD
from geolib.lab.tables import Table as Table
from geolib.lab.tables import difference_table as difference_table
from geolib.lab.tables import paired_differences as paired_differences
from geolib.lab.tables import table as table

_DIGITS = {"width": 48, "heads": 4, "layers": 3, "mlp_ratio": 2.0, "batch": 24, "lr": 3e-3, "warmup": 60}

DIGITS = Experiment(
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
    importance=3,
)

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment for experiment in (DIGITS, *riemannformer.EXPERIMENTS)
}


def find(name: str) -> Experiment:
    """An experiment by name; LabError for an unknown one."""
    if name not in EXPERIMENTS:
        raise LabError(f"unknown experiment {name!r}; there are {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]


# Time ---------------------------------------------------------------------------------------------------------------

LAYER_SECONDS = 2.1e-4  # assumed: the kernels of a layer's step, replayed from a CUDA graph: 1.5 ms for 6 layers
H100_FLOPS = 3e14  # assumed: what such a small model gets in bf16, a third of the data sheet


def h100_seconds(config: Config) -> float:
    """An estimate, not a measurement, of the time a run takes on one H100.

    The greater of two times for each step, that of its many short kernels and that of its arithmetic (6 operations for
    each parameter and token), under the two assumptions above.
    """
    images, pixels = DATASETS[config.dataset].images, DATASETS[config.dataset].pixels
    count = config.train_size or images
    tokens = pixels // (config.patch or 1) ** 2
    parameters = config.layers * config.width**2 * (4 + 2 * config.mlp_ratio)
    arithmetic = 6 * parameters * tokens * config.batch / H100_FLOPS
    steps = config.epochs * -(-count // config.batch)
    return steps * max(LAYER_SECONDS * (config.layers + 1), arithmetic)


def similar_seconds(config: Config, records: Iterable[Record], device: str) -> float | None:
    """The longest time that a run of the same size took on this device, whatever its method and seed, or None."""

    def size(other: Config) -> dict[str, Any]:
        return other.to_dict() | {"method": None, "method_options": None, "seed": None}

    times = [r.wall_seconds for r in records if r.device == device and size(r.config) == size(config)]
    return max(times, default=None)
