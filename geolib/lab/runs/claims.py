"""Claims: which process makes which run, where several share one folder and nothing else.

A claim is a file beside the run's checkpoint, made by the one process for which its name did not exist yet, and touched
every few seconds. A claim whose process has died is stale. Whoever finds it takes the run over by making the next
claim, one number higher, which again only one process can: no claim is ever changed or moved, so none is lost between
two looks. The highest number counts.
"""

from __future__ import annotations

import json
import os
import re
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from geolib.lab.files import LabError

TOUCH_SECONDS = 10.0  # between two touches of a claim
STALE_SECONDS = 120.0  # a claim that was not touched for so long is that of a dead process, wherever it was


class Claimed(Exception):
    """Another process makes the run."""


@contextmanager
def claim(checkpoint: Path) -> Iterator[None]:
    """Inside, the run of this checkpoint is this process's own.

    Raises
    ------
    Claimed
        When a living process has it.
    LabError
        When no file can be made beside the checkpoint.
    """
    mine = _take(checkpoint)
    done = threading.Event()
    touching = threading.Thread(target=_touch, args=(mine, done), daemon=True)
    touching.start()
    try:
        yield
    finally:
        done.set()
        touching.join()
        number = int(mine.suffix[1:])
        for other, path in _claims(checkpoint):
            if other <= number:  # those of the dead too, but no later one
                path.unlink(missing_ok=True)


def is_claimed(checkpoint: Path) -> bool:
    """Whether a living process makes the run of this checkpoint."""
    found = _claims(checkpoint)
    return bool(found) and not _is_stale(found[-1][1])


def _take(checkpoint: Path) -> Path:
    """A new claim of this process."""
    found = _claims(checkpoint)
    if found and not _is_stale(found[-1][1]):
        raise Claimed(f"{checkpoint.stem}: another process makes this run")
    path = checkpoint.with_name(f"{checkpoint.stem}.claim.{found[-1][0] + 1 if found else 1}")
    # Written first and then linked: a claim that is there is whole, and the link fails where the name exists.
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{checkpoint.stem}.", dir=path.parent)
        with os.fdopen(handle, "w") as file:
            json.dump({"place": _place(), "process": os.getpid(), "began": _began(os.getpid())}, file)
        try:
            os.link(temporary, path)
        finally:
            os.unlink(temporary)
    except FileExistsError:
        raise Claimed(f"{checkpoint.stem}: another process makes this run") from None
    except OSError as error:
        raise LabError(f"{path}: could not be written ({error.strerror or error}); name another folder") from None
    return path


def _touch(path: Path, done: threading.Event) -> None:
    while not done.wait(TOUCH_SECONDS):
        with suppress(OSError):  # the folder may be away for a moment
            os.utime(path)


def _claims(checkpoint: Path) -> list[tuple[int, Path]]:
    """The claims of a run with their numbers, the one that counts last."""
    pattern = re.compile(re.escape(checkpoint.stem) + r"\.claim\.(\d+)")
    try:
        names = os.listdir(checkpoint.parent)
    except FileNotFoundError:
        return []
    found = [(int(match[1]), checkpoint.parent / name) for name in names if (match := pattern.fullmatch(name))]
    return sorted(found)


def _is_stale(path: Path) -> bool:
    """Whether the process of a claim is dead: seen at once in the same place, elsewhere by the claim's age."""
    try:
        told = json.loads(path.read_text())
        age = _now_there(path.parent) - path.stat().st_mtime
    except FileNotFoundError:
        return False  # given back between two looks: the next look sees that
    except (OSError, json.JSONDecodeError):
        return False
    if told["place"] == _place():
        return _began(told["process"]) != told["began"]
    return age > STALE_SECONDS


def _now_there(folder: Path) -> float:
    """The time as the folder's own machine has it: clocks of different machines differ."""
    probe = folder / f".probe.{uuid.uuid4().hex}"
    try:
        probe.touch()
        return probe.stat().st_mtime
    except OSError:
        return time.time()
    finally:
        probe.unlink(missing_ok=True)


def _place() -> str:
    """Where process numbers mean the same: the machine, since its last start, and the container."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


def _began(process: int) -> str | None:
    """When a process of this place began, which tells it from a later one of its number; None when it is dead."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] in "ZX" else fields[19]
    except (OSError, IndexError):
        pass
    try:  # not Linux: that it is there must do
        os.kill(process, 0)
    except ProcessLookupError:
        return None
    except OSError:
        pass
    return "" if not Path("/proc/self/stat").exists() else None
