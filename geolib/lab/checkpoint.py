"""The checkpoint of a run: everything that the rest of it depends on, in one file that is whole or not there."""

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from geolib.lab.device import PRECISIONS, peak_memory
from geolib.lab.files import LabError, write_atomically


def save(path: Path, run: Any, optimizer: torch.optim.Optimizer, losses: Tensor, place: tuple[int, int]) -> None:
    """Write everything that the rest of the run depends on, whole or not at all."""
    state = {
        "identity": identity(run),
        "progress": (*place, run.metrics, run.answers),
        "times": (run.started, run.seconds, run.evaluation_seconds, max(run.peak_bytes, peak_memory(run.device))),
        "precision": run.precision,
        "losses": losses,
        "model": run.model.state_dict(),
        "optimizer": optimizer.state_dict(),
    }
    content = io.BytesIO()
    torch.save(state, content)
    write_atomically(path, lambda file: file.write(content.getbuffer()))


def restore(path: Path, run: Any, optimizer: torch.optim.Optimizer, losses: Tensor, precision: Any) -> tuple[int, int]:
    """Go on from a checkpoint of the same configuration, data and kind of device; its epoch and step."""
    try:
        state = torch.load(path, map_location=run.device, weights_only=True)
    except (OSError, EOFError, RuntimeError, ValueError, KeyError, pickle.UnpicklingError, zipfile.BadZipFile):
        raise LabError(f"{path}: not a whole checkpoint; delete it to start the run from its beginning") from None
    found = state.get("identity", {}) if isinstance(state, dict) else {}
    for key, value in identity(run).items():
        if found.get(key) != value:
            raise LabError(f"{path}: made with {key} {found.get(key)}, not {value}; delete it to start over")
    asked = PRECISIONS.get(run.config.precision or precision or "")
    if asked not in (None, state["precision"]):
        raise LabError(f"{path}: made with precision {state['precision']}, not {asked}; delete it to start over")
    run.precision = state["precision"]
    epoch, step, run.metrics, run.answers = state["progress"]
    run.started, run.seconds, run.evaluation_seconds, run.peak_bytes = state["times"]
    losses.copy_(state["losses"])
    run.model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return epoch, step


def identity(run: Any) -> dict[str, str]:
    """Name what a checkpoint must agree with to be continued."""
    config, data = run.config.canonical, run.data.fingerprint
    return {"format": "4", "configuration": config, "data": data, "device": run.device.type}
