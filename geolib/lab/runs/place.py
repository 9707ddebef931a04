"""Where a run takes place: the device, the versions of what it stands on, the commit."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

import geolib
from geolib.lab.files import checkout


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
        return {"id": number, "dirty": bool(_git(root, "status", "--porcelain", "--", "geolib").strip())}
    except (OSError, subprocess.SubprocessError):
        return None


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=True, timeout=20)
    return done.stdout
