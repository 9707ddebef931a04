"""Records of measurements: what a bench returned, with the machine, the versions, the date and the load beside it."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from geolib.lab.files import BENCHES, RECORDED, LabError, write_text
from geolib.lab.records import commit, device_name, versions
from geolib.lab.train import pick_device


def measured(bench: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """A record of the rows of a bench that ran just now."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {
        "bench": bench,
        "device": device_name(pick_device(None)),
        "cores": os.cpu_count(),
        "load": load,  # processes that wanted to run, over the last minute
        "versions": versions(),
        "commit": commit(),
        "measured": datetime.now(UTC).isoformat(timespec="seconds"),
        "rows": rows,
    }


def write(record: dict[str, Any], path: Path) -> None:
    """Write a record, whole or not at all; LabError when it cannot be written."""
    write_text(path, json.dumps(record, indent=1) + "\n")


def read(bench: str, folder: Path | None = None) -> dict[str, Any]:
    """The record of a bench, in the book's records when no folder is named; LabError when there is none."""
    path = (RECORDED if folder is None else folder) / BENCHES / f"{bench}.json"
    try:
        return json.loads(path.read_text("utf-8"))
    except OSError:
        raise LabError(f"{path}: no such record; python -m geolib.lab bench {bench} --record FILE makes one") from None
