"""Records: one JSON file for each finished run, from which every table, figure and number of the book is read.

From the top: what a record holds, where records lie and how they are written and read, and ``run``, which makes one.
"""

from __future__ import annotations

import base64
import json
import math
import platform
import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import geolib
from geolib.lab.config import Config
from geolib.lab.files import BENCHES, ON_GPU, RECORDED, LabError, checkout, remove, write_text
from geolib.lab.train import Run, train

_SCHEMA = 1


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
        step (the form of a training step) and why; processes and devices that trained it together, one of each; jobs
        (runs at a time). Empty in records older than it, as is the next one.
    learned : dict
        What was read from the trained model.
    answers : str
        Which test images the trained model classified rightly, a bit each (``bits_of``); empty for documents, and in
        older records.
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
    answers: str = ""

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
        return f"{self.bits:.3f} bits a token" if self.config.is_text else f"{100 * self.accuracy:.2f}%"

    @property
    def speed(self) -> str:
        """How fast it trained, in words."""
        each, unit = (self.config.context or 1, "tokens") if self.config.is_text else (1, "images")
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
        named = {"schema": _SCHEMA, "name": self.name, "hash": self.config.hash, "seed": self.config.seed}
        return named | fields | {"config": self.config.to_dict(), "metrics": list(self.metrics)}

    @classmethod
    def from_dict(cls, values: Any) -> Record:
        """A record from its JSON; LabError that names what is wrong."""
        _require(isinstance(values, dict), "it is not a JSON object")
        _require(values.get("schema") == _SCHEMA, f"schema is {values.get('schema')!r}, this version reads {_SCHEMA}")
        for key, kinds in _TYPES.items():
            _require(key in values, f"{key} is missing")
            _require(isinstance(values[key], kinds), f"{key} is {values[key]!r}")
        for key, kind in _OPTIONAL.items():
            _require(isinstance(values.get(key, kind()), kind), f"{key} is {values.get(key)!r}")
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
_OPTIONAL: dict[str, type] = {"engine": dict, "learned": dict, "answers": str}


def packed_bits(right: Sequence[bool] | Tensor | np.ndarray) -> str:
    """Pack booleans, eight to a byte, the first in the highest bit, as base64.

    >>> packed_bits([True, False, False, True])
    'kA=='
    """
    return base64.b64encode(np.packbits(np.asarray(right, dtype=bool)).tobytes()).decode()


def bits_of(text: str, count: int) -> np.ndarray:
    """Unpack the first ``count`` booleans of what ``packed_bits`` made, (count,) bool.

    >>> bits_of("kA==", 4).tolist()
    [True, False, False, True]
    """
    return np.unpackbits(np.frombuffer(base64.b64decode(text), np.uint8), count=count).astype(bool)


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
    if config.is_text:
        _require(rows[-1].get("test_bits", -1) >= 0, "metrics: the last test_bits is not a number of at least 0")
    else:
        _require(0 <= rows[-1].get("test_accuracy", -1) <= 1, "metrics: the last test_accuracy is not in [0, 1]")


# Where records and checkpoints lie ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Folders:
    """Where records and checkpoints go."""

    records: Path
    checkpoints: Path

    @classmethod
    def below(cls, out: Path | str) -> Folders:
        """Records in ``out`` and checkpoints in ``out/runs``."""
        return cls(Path(out), Path(out) / "runs")

    @classmethod
    def usual(cls) -> Folders:
        """In a checkout book/results and the ignored folder runs; LabError elsewhere."""
        root = checkout()
        if root is None:
            raise LabError(
                "geolib is an installed package here, and new records do not belong among its files: "
                "name a folder for them with --out DIR"
            )
        return cls(root / "book" / "results", root / "runs")

    def check(self) -> None:
        """LabError now, not after the training, when a file cannot be written."""
        for folder in (self.records, self.checkpoints):
            try:
                folder.mkdir(parents=True, exist_ok=True)
                tempfile.TemporaryFile(dir=folder).close()
            except OSError as error:
                raise LabError(
                    f"{folder}: cannot write there ({error.strerror}); name another with --out DIR"
                ) from None

    def checkpoint(self, config: Config) -> Path:
        """The checkpoint of a run."""
        return self.checkpoints / f"{config.name}.pt"


def path_of(config: Config, experiment: str | None, folder: Path) -> Path:
    """Where the record of a run belongs."""
    return folder / (experiment or "") / f"{config.name}.json"


def write(record: Record, folder: Path) -> Path:
    """Write a record, whole or not at all, below the folder of all records; its path."""
    text = json.dumps(record.to_dict(), indent=1, allow_nan=False) + "\n"
    # A row of metrics takes one line: shorter files, and differences one can read.
    text = re.sub(r"\{\s+(\"epoch\"[^{}]*?)\s+\}", lambda row: "{" + re.sub(r"\s+", " ", row[1]) + "}", text)
    path = path_of(record.config, record.experiment, folder)
    write_text(path, text)
    return path


def read(path: Path) -> Record:
    """Read and check a record; LabError, which names the file and what is wrong, where it is not one."""
    try:
        return Record.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise LabError(f"{path}: cannot be read ({error.strerror})") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise LabError(f"{path}: not a record, its JSON does not parse ({error}); delete it and run again") from None
    except LabError as error:
        raise LabError(f"{path}: not a record, {error}; delete it and run again") from None


def read_all(folder: Path | str = RECORDED) -> list[Record]:
    """All records below a folder, sorted by file name.

    Without a folder, those that come with the library. A folder that does not exist holds none; a file that is not a
    record is a LabError.
    """
    records, problems = load_records(folder)
    if problems:
        raise LabError(problems[0])
    return records


def record_files(folder: Path | str = RECORDED) -> list[Path]:
    """The files of records below a folder; measurements of speed, and what stands apart in ``ON_GPU``, are left out."""
    apart = (BENCHES, ON_GPU)
    return [path for path in sorted(Path(folder).rglob("*.json")) if path.relative_to(folder).parts[0] not in apart]


def load_records(folder: Path | str = RECORDED) -> tuple[list[Record], list[str]]:
    """The records that ``read_all`` would give, and one line for each file there that is not a record."""
    records, problems = [], []
    for path in record_files(folder):
        try:
            records.append(read(path))
        except LabError as error:
            problems.append(str(error))
    return records, problems


# From a configuration to its record ---------------------------------------------------------------------------------


def run(
    config: Config,
    *,
    data: Any = None,
    out: Path | str | Folders | None = None,
    experiment: str | None = None,
    scale: str | None = None,
    jobs: int = 1,
    after: Callable[[Run], Mapping[str, Any]] | None = None,
    **settings: Any,
) -> Record:
    """Train one model and return its record.

    Parameters
    ----------
    config : Config
    data : Dataset, Documents or None
        The set that the configuration names when None.
    out : folder, Folders or None
        Where the record is written and the checkpoint is kept until then; with None nothing is written.
    experiment, scale : str or None
        Noted in the record.
    jobs : int
        Noted in the record: how many runs share the device.
    after : function of the finished Run, or None
        What it reads from the trained model, as JSON can hold it, becomes the record's ``learned``.
    **settings
        Keywords of ``geolib.lab.train``: ``run(config, quiet=True)``.

    Returns
    -------
    Record

    Raises
    ------
    LabError, Stopped, Diverged
        As for ``geolib.lab.train``.
    """
    folders = out if isinstance(out, Folders) or out is None else Folders.below(out)
    if folders is not None:
        folders.check()
        settings["checkpoint"] = folders.checkpoint(config)
    finished = train(config, data, **settings)
    record = record_of(finished, experiment, scale, jobs)
    if after is not None:
        record = replace(record, learned=_as_json(after(finished)))
    if folders is not None:
        write(record, folders.records)
        # Only now: killed before this line, the run is at worst finished twice.
        remove(folders.checkpoint(config))
    return record


def _as_json(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values as they come back from a file; LabError when JSON cannot hold them."""
    try:
        return json.loads(json.dumps(dict(values), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise LabError(f"after: it returned something that JSON cannot hold ({error})") from None


def record_of(run: Run, experiment: str | None = None, scale: str | None = None, jobs: int = 1) -> Record:
    """The record of a finished run."""
    data = {"name": run.data.name, "source": run.data.source, "fingerprint": run.data.fingerprint, **run.task.sizes}
    return Record(
        config=run.config,
        experiment=experiment,
        scale=scale,
        metrics=tuple(run.metrics),
        wall_seconds=run.seconds,
        images_per_second=run.examples_per_second,
        peak_memory={"bytes": run.peak_bytes, "of": "device" if run.device.type == "cuda" else "process"},
        device=device_name(run.device),
        precision=run.precision,
        versions=versions(),
        commit=commit(),
        data=data,
        started=run.started,
        answers="" if run.answers is None else packed_bits(run.answers),
        engine={"step": run.step, "devices": [str(run.device)], "jobs": jobs},
    )


# Where a run takes place --------------------------------------------------------------------------------------------


def device_name(device: torch.device) -> str:
    """The GPU's name, or the processor's with the number of threads in use."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration, IndexError):
        pass  # not Linux, or a processor without a model name
    count = torch.get_num_threads()
    return f"{model}, {count} thread{'s' if count > 1 else ''}"


def versions() -> dict[str, str]:
    """Of Python, torch and geolib."""
    return {"python": platform.python_version(), "torch": torch.__version__, "geolib": geolib.__version__}


def commit() -> dict[str, Any] | None:
    """The commit of the checkout that runs and whether the library in it was changed, or None without git."""
    root = checkout()
    if root is None or not (root / ".git").exists():
        return None
    try:
        number = _git(root, "rev-parse", "HEAD").strip()
        return {"id": number, "dirty": bool(_git(root, "status", "--porcelain", "geolib").strip())}
    except (OSError, subprocess.SubprocessError):
        return None


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=True, timeout=20)
    return done.stdout
