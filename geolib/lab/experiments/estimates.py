"""How long runs should take."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from geolib.lab.config import Config
from geolib.lab.data.sets import DATASETS
from geolib.lab.runs.record import Record

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
