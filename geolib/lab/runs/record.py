"""Records: one JSON file for each finished run, from which every table, figure and number of the book is read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from geolib.lab.config import Config
from geolib.lab.files import LabError

SCHEMA = 1


@dataclass(frozen=True)
class Record:
    """What one finished run leaves.

    Parameters
    ----------
    config : Config
    experiment, scale : str or None
        What the run was part of; None for a run of its own.
    metrics : tuple of dict
        One row for each epoch: epoch, train_loss, seconds (since the start) and, where it was evaluated, test_loss and
        test_accuracy (in [0, 1]), or for documents test_bits (a token).
    wall_seconds : float
        Training and evaluation, over all starts.
    images_per_second : float
        Training alone; of documents, windows.
    peak_memory : dict
        bytes, and of what: "device" (its tensors) or "process" (all its memory).
    device : str
        The GPU's or the processor's name; for a processor with the number of threads.
    precision : str
        Of products: "bf16" or "float32".
    versions : dict
        python, torch, geolib.
    commit : dict or None
        id, and dirty: whether the library differed from that commit; None where there is no git.
    data : dict
        name, source, fingerprint, train_images, test_images; of documents train_windows, test_windows and context.
    started : str
        UTC, ISO 8601.
    engine : dict
        step (the form of a training step) and why; precision (the measurement that chose it, in a sentence, where one
        did); processes, devices (of all processes) and jobs (runs at a time). Empty in records older than it, as is
        the next one.
    learned : dict
        What was read from the trained model.
    """

    config: Config
    experiment: str | None
    scale: str | None
    metrics: tuple[dict[str, float], ...]
    wall_seconds: float
    images_per_second: float
    peak_memory: Mapping[str, Any]
    device: str
    precision: str
    versions: Mapping[str, str]
    commit: Mapping[str, Any] | None
    data: Mapping[str, Any]
    started: str
    engine: Mapping[str, Any] = field(default_factory=dict)
    learned: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The run's name, which is also its file's."""
        return self.config.name

    @property
    def accuracy(self) -> float:
        """Test accuracy after the last epoch, in [0, 1]."""
        return self.metrics[-1]["test_accuracy"]

    @property
    def bits(self) -> float:
        """Bits a token after the last epoch, on the windows of documents tested on."""
        return self.metrics[-1]["test_bits"]

    @property
    def result(self) -> str:
        """What the last evaluation came to, in words."""
        return f"{self.bits:.3f} bits a token" if self.config.is_read else f"{100 * self.accuracy:.2f}%"

    @property
    def speed(self) -> str:
        """How fast it trained, in words."""
        each, unit = (self.config.context or 1, "tokens") if self.config.is_read else (1, "images")
        return f"{self.images_per_second * each:.0f} {unit}/s"

    def curve(self, metric: str) -> tuple[list[int], list[float]]:
        """Epochs and the values of a metric there, ready to plot."""
        rows = [row for row in self.metrics if metric in row]
        if not rows:
            known = sorted({key for row in self.metrics for key in row})
            raise LabError(f"metric: got {metric!r}; this record has {', '.join(known)}")
        return [int(row["epoch"]) for row in rows], [row[metric] for row in rows]

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON holds it."""
        fields = {key: getattr(self, key) for key in _TYPES}
        fields |= {key: getattr(self, key) for key in _OPTIONAL if getattr(self, key)}
        named = {"schema": SCHEMA, "name": self.name, "hash": self.config.hash, "seed": self.config.seed}
        return named | fields | {"config": self.config.to_dict(), "metrics": list(self.metrics)}

    @classmethod
    def from_dict(cls, values: Any) -> Record:
        """A record from its JSON; LabError that names what is wrong."""
        _require(isinstance(values, dict), "it is not a JSON object")
        _require(values.get("schema") == SCHEMA, f"schema is {values.get('schema')!r}, this version reads {SCHEMA}")
        for key, kinds in _TYPES.items():
            _require(key in values, f"{key} is missing")
            _require(isinstance(values[key], kinds), f"{key} is {values[key]!r}")
        for key in _OPTIONAL:
            _require(isinstance(values.get(key, {}), dict), f"{key} is {values.get(key)!r}")
        try:
            config = Config.from_dict(values["config"])
        except (ValueError, TypeError) as error:
            raise LabError(f"config: {error}") from None
        _require(values.get("hash") == config.hash, f"hash is {values.get('hash')!r}, the config's is {config.hash!r}")
        _check_metrics(values["metrics"], config)
        fields = {key: values[key] for key in (*_TYPES, *_OPTIONAL) if key in values}
        return cls(**fields | {"config": config, "metrics": tuple(values["metrics"])})


_TYPES: dict[str, Any] = {
    "config": dict,
    "experiment": str | None,
    "scale": str | None,
    "metrics": list,
    "wall_seconds": int | float,
    "images_per_second": int | float,
    "peak_memory": dict,
    "device": str,
    "precision": str,
    "versions": dict,
    "commit": dict | None,
    "data": dict,
    "started": str,
}
_OPTIONAL = ("engine", "learned")


def _require(holds: bool, problem: str) -> None:
    if not holds:
        raise LabError(problem)


def _check_metrics(rows: list[Any], config: Config) -> None:
    """One row of finite numbers for each epoch, the last one evaluated."""
    whole = all(isinstance(row, dict) and row.get("epoch") == i + 1 for i, row in enumerate(rows))
    _require(whole and len(rows) == config.epochs, f"metrics are not one row for each of the {config.epochs} epochs")
    numbers = [value for row in rows for value in row.values()]
    finite = all(isinstance(v, int | float) and math.isfinite(v) for v in numbers)
    _require(finite, "metrics hold something that is not a finite number")
    if config.is_read:
        _require(rows[-1].get("test_bits", -1) >= 0, "metrics: the last test_bits is not a number of at least 0")
    else:
        _require(0 <= rows[-1].get("test_accuracy", -1) <= 1, "metrics: the last test_accuracy is not in [0, 1]")
