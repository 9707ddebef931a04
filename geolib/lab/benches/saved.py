"""Records of measurements: rows, with the machine, the versions, the date and the load beside them."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from geolib.lab.files import BENCHES, RECORDED, LabError, write_atomically
from geolib.lab.records import commit, device_name, versions
from geolib.lab.train import pick_device


def measured(bench: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Make the record of rows that were measured just now."""
    machine = {"device": device_name(pick_device(None)), "cores": os.cpu_count(), "load": os.getloadavg()[0]}
    code = {"versions": versions(), "commit": commit(), "measured": datetime.now(UTC).isoformat(timespec="seconds")}
    return {"bench": bench, **machine, **code, "rows": rows}


def write(record: dict[str, Any], path: Path) -> None:
    """Write a record, whole or not at all; LabError when it cannot be written."""
    text = json.dumps(record, indent=1) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))


def read(bench: str, folder: Path = RECORDED) -> dict[str, Any]:
    """Read the record of a bench, by default the book's; LabError when there is none."""
    path = folder / BENCHES / f"{bench}.json"
    if not path.is_file():
        raise LabError(f"{path}: no such record")
    return json.loads(path.read_text("utf-8"))
