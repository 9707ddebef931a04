"""Where records and checkpoints lie, and how they are written and read."""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from geolib.lab.config import Config
from geolib.lab.files import BENCHES, RECORDED, LabError, checkout, write_atomically
from geolib.lab.runs.record import Record


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
    """Write a record, whole or not at all.

    Parameters
    ----------
    record : Record
    folder : Path
        The folder of all records; the experiment's is below it.

    Returns
    -------
    Path
    """
    text = json.dumps(record.to_dict(), indent=1, allow_nan=False) + "\n"
    # A row of metrics takes one line: shorter files, and differences one can read.
    text = re.sub(r"\{\s+(\"epoch\"[^{}]*?)\s+\}", lambda row: "{" + re.sub(r"\s+", " ", row[1]) + "}", text)
    path = path_of(record.config, record.experiment, folder)
    write_atomically(path, lambda file: file.write(text.encode()))
    return path


def read(path: Path) -> Record:
    """Read and check a record.

    Raises
    ------
    LabError
        When the file cannot be read, is not JSON or is not a record; it names the file and what is wrong.
    """
    try:
        return Record.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise LabError(f"{path}: cannot be read ({error.strerror})") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise LabError(f"{path}: not a record, its JSON does not parse ({error}); delete it and run again") from None
    except LabError as error:
        raise LabError(f"{path}: not a record, {error}; delete it and run again") from None


def read_all(folder: Path | str = RECORDED, experiment: str | None = None) -> list[Record]:
    """All records below a folder, of one experiment if it is named, sorted by file name.

    Without a folder, those that come with the library. A folder that does not exist holds none; a file that is not a
    record is a LabError.
    """
    kept, problems = sift(folder, experiment)
    if problems:
        raise LabError(problems[0])
    return kept


def record_files(folder: Path | str = RECORDED, experiment: str | None = None) -> list[Path]:
    """The files of records below a folder, of one experiment if it is named; measurements of speed are left out."""
    start = Path(folder) / experiment if experiment else Path(folder)
    return [path for path in sorted(start.rglob("*.json")) if path.relative_to(folder).parts[0] != BENCHES]


def sift(folder: Path | str = RECORDED, experiment: str | None = None) -> tuple[list[Record], list[str]]:
    """The records that ``read_all`` would give, and one line for each file there that is not a record."""
    kept, problems = [], []
    for path in record_files(folder, experiment):
        try:
            kept.append(read(path))
        except LabError as error:
            problems.append(str(error))
    return kept, problems
