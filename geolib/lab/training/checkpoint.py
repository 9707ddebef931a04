"""The checkpoint: everything that the rest of a run depends on, in one file."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from geolib.lab.files import LabError, write_atomically


def write(state: Mapping[str, Any], path: Path) -> None:
    """Write a state, whole or not at all."""
    content = io.BytesIO()
    torch.save(dict(state), content)
    write_atomically(path, lambda file: file.write(content.getbuffer()))


def read(path: Path, identity: Mapping[str, str]) -> dict[str, Any]:
    """The state in a file; LabError when the file is not whole, or when its identity is another."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, EOFError, RuntimeError, ValueError, KeyError, pickle.UnpicklingError, zipfile.BadZipFile):
        raise LabError(f"{path}: not a whole checkpoint; delete it to start the run from its beginning") from None
    found = state.get("identity", {}) if isinstance(state, dict) else {}
    for key, value in identity.items():
        if found.get(key) != value:
            raise LabError(f"{path}: made with {key} {found.get(key)}, not {value}; delete it to start over")
    return state
