"""Records: one JSON file for each finished run, from which every table, figure and number of the book is read."""

import base64
import json
import math
import platform
import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

import geolib
from geolib.lab.config import Config
from geolib.lab.files import BENCHES, ON_GPU, RECORDED, LabError, checkout, remove, write_atomically
from geolib.lab.train import Run, train

_SCHEMA = 1


@dataclass(frozen=True)
class Record:
    """A record of one finished run.

    ``experiment`` and ``scale``: what it was part of, or None. ``metrics``: a row for each epoch with epoch,
    train_loss, seconds since the start and, where it was evaluated, test_loss and test_accuracy in [0, 1], or for text
    test_bits per token. ``wall_seconds``: training and evaluation, over all starts; ``images_per_second`` (for text
    windows) of training alone. ``peak_memory``: bytes, and of what, "device" (its tensors) or "process". ``device``:
    the GPU's name, or the processor's with its threads. ``precision`` of products: "bf16" or "float32". ``commit``:
    id, and dirty, whether the library differed from it; None without git. ``data``: name, source, fingerprint, sizes.
    ``started``: UTC, ISO 8601. Older records lack ``engine``: step (how one was taken), devices, jobs (runs at a time);
    ``learned``, read from the trained model; ``answers``, the test images it classified rightly (``bits_of``).
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
        """Bits per token after the last epoch, on the test windows."""
        return self.metrics[-1]["test_bits"]

    @property
    def result(self) -> str:
        """The last evaluation, in words."""
        return f"{self.bits:.3f} bits a token" if self.config.is_text else f"{100 * self.accuracy:.2f}%"

    def curve(self, metric: str) -> tuple[list[int], list[float]]:
        """Epochs and the values of a metric there, ready to plot."""
        rows = [row for row in self.metrics if metric in row]
        if not rows:
            known = sorted({key for row in self.metrics for key in row})
            raise LabError(f"metric: got {metric!r}; this record has {', '.join(known)}")
        return [int(row["epoch"]) for row in rows], [row[metric] for row in rows]

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON holds it."""
        named = {"schema": _SCHEMA, "name": self.name, "hash": self.config.hash, "seed": self.config.seed}
        values = named | {"config": self.config.to_dict(), **{f.name: getattr(self, f.name) for f in fields(self)[1:]}}
        return {key: value for key, value in values.items() if value or key not in ("engine", "learned", "answers")}

    @classmethod
    def from_dict(cls, values: Any) -> Self:
        """A record from its JSON; LabError that names what is wrong."""
        try:
            known = {each.name: values[each.name] for each in fields(cls) if each.name in values}
            config = Config.from_dict(values["config"])
            record = cls(**known | {"config": config, "metrics": tuple(values["metrics"])})
            merit = record.bits if config.is_text else record.accuracy
            numbers = [merit, *(number for row in record.metrics for number in row.values())]
            epochs, whole = [row["epoch"] for row in record.metrics], [*range(1, config.epochs + 1)]
            checks = {
                f"schema {_SCHEMA}": values["schema"] == _SCHEMA,
                f"the hash {config.hash}": values["hash"] == config.hash,
                "a row of metrics for each epoch": epochs == whole,
                "finite numbers in them": all(math.isfinite(number) for number in numbers),
            }
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise LabError(f"{type(error).__name__} {error}") from None
        if missing := [words for words, holds in checks.items() if not holds]:
            raise LabError(f"it lacks {', '.join(missing)}")
        return record


def packed_bits(right: Sequence[bool] | Tensor | np.ndarray) -> str:
    """Pack booleans, eight to a byte, the first in the highest bit, as base64, which ``bits_of`` reads."""
    return base64.b64encode(np.packbits(np.asarray(right, dtype=bool)).tobytes()).decode()


def bits_of(text: str, count: int) -> np.ndarray:
    """Unpack the first ``count`` booleans of what ``packed_bits`` made, (count,) bool."""
    return np.unpackbits(np.frombuffer(base64.b64decode(text), np.uint8), count=count).astype(bool)


def path_of(config: Config, experiment: str | None, folder: Path) -> Path:
    """The path of a run's record below the folder of all records."""
    return folder / (experiment or "") / f"{config.name}.json"


def checkpoint_of(config: Config, folder: Path) -> Path:
    """The path of a run's checkpoint: in ``runs`` below the folder of all records, or, for the book's, the checkout."""
    return (RECORDED.parents[1] if folder == RECORDED else folder) / "runs" / f"{config.name}.pt"


def check_writable(*folders: Path) -> None:
    """Make folders; LabError, now and not after the training, when no file can be written there."""
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            raise LabError(f"{folder}: cannot write there ({error.strerror}); name another with --out DIR") from None


def write(record: Record, folder: Path) -> Path:
    """Write a record, whole or not at all, below the folder of all records; its path."""
    text = json.dumps(record.to_dict(), indent=1, allow_nan=False) + "\n"
    # A row of metrics takes one line: shorter files, and differences one can read.
    text = re.sub(r"\{\s+(\"epoch\"[^{}]*?)\s+\}", lambda row: "{" + re.sub(r"\s+", " ", row[1]) + "}", text)
    path = path_of(record.config, record.experiment, folder)
    write_atomically(path, lambda file: file.write(text.encode()))
    return path


def read(path: Path) -> Record:
    """Read and check a record; LabError, which names the file and what is wrong, where it is not one."""
    try:
        return Record.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise LabError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:  # of JSON, or a LabError
        raise LabError(f"{path}: not a record, {error}; delete it and run again") from None


def record_files(folder: Path | str = RECORDED) -> list[Path]:
    """The files of records below a folder, sorted; those of the folders ``BENCHES`` and ``ON_GPU`` are left out."""
    apart = (BENCHES, ON_GPU)
    return [path for path in sorted(Path(folder).rglob("*.json")) if path.relative_to(folder).parts[0] not in apart]


def read_all(folder: Path | str = RECORDED) -> list[Record]:
    """All records below a folder, sorted by file name; without a folder, those that come with the library.

    A folder that does not exist holds none; a file that is not a record is a LabError.
    """
    return [read(path) for path in record_files(folder)]


def run(
    config: Config,
    *,
    data: Any = None,
    out: Path | str | None = None,
    experiment: str | None = None,
    scale: str | None = None,
    after: Callable[[Run], Mapping[str, Any]] | None = None,
    jobs: int = 1,
    **keywords: Any,
) -> Record:
    """Train one model and return its record.

    Parameters
    ----------
    config, data, **keywords : as of ``geolib.lab.train``, which also says what is raised
    out : folder of the record, whose folder ``runs`` keeps the checkpoint until then; with None neither is written
    experiment, scale, jobs : noted in the record; ``jobs``: how many runs share the device
    after : function of the finished Run. What it reads from the model, as JSON can hold it, becomes ``learned``
    """
    if out is not None:
        keywords["checkpoint"] = checkpoint_of(config, Path(out))
        check_writable(Path(out), keywords["checkpoint"].parent)
    done = train(config, data, **keywords)
    try:
        learned = json.loads(json.dumps({} if after is None else dict(after(done)), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise LabError(f"after: it returned something that JSON cannot hold ({error})") from None
    record = Record(
        config=config,
        experiment=experiment,
        scale=scale,
        metrics=tuple(done.metrics),
        wall_seconds=done.seconds,
        images_per_second=done.examples_per_second,
        peak_memory={"bytes": done.peak_bytes, "of": "device" if done.device.type == "cuda" else "process"},
        device=device_name(done.device),
        precision=done.precision,
        versions=versions(),
        commit=commit(),
        data={key: getattr(done.data, key) for key in ("name", "source", "fingerprint")} | done.task.sizes,
        started=done.started,
        engine={"step": done.step, "devices": [str(done.device)], "jobs": jobs},
        learned=learned,
        answers="" if done.answers is None else packed_bits(done.answers),
    )
    if out is not None:
        write(record, Path(out))
        remove(keywords["checkpoint"])  # only now: killed before this line, the run is at worst finished twice
    return record


def device_name(device: torch.device, threads: int | None = None) -> str:
    """The GPU's name, or the processor's with the number of threads, those in use when None."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    told = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").is_file() else ""
    named = re.search(r"^model name\s*: (.+)$", told, re.M)
    model, count = named[1] if named else platform.processor() or platform.machine(), threads or torch.get_num_threads()
    return f"{model}, 1 thread" if count == 1 else f"{model}, {count} threads"


def versions() -> dict[str, str]:
    """The versions of Python, torch and geolib."""
    return {"python": platform.python_version(), "torch": torch.__version__, "geolib": geolib.__version__}


def commit() -> dict[str, Any] | None:
    """The commit of the checkout that runs and whether the library in it was changed, or None without git."""
    root = checkout()
    if root is None or not (root / ".git").exists():
        return None
    git = lambda *words: subprocess.check_output(["git", *words], cwd=root, stderr=subprocess.DEVNULL, timeout=20)  # noqa: E731
    try:
        return {"id": git("rev-parse", "HEAD").decode().strip(), "dirty": git("status", "--porcelain", "geolib") != b""}
    except (OSError, subprocess.SubprocessError):
        return None
