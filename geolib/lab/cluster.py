"""Engines: where runs are made. In this process, in several processes of this machine, or on a cluster by Ray."""

import importlib
import multiprocessing
import os
import platform
import signal
import socket
import tempfile
import threading
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from geolib.lab.data import sets
from geolib.lab.device import pick_device
from geolib.lab.files import LabError, remove
from geolib.lab.records import device_name
from geolib.lab.runner import DONE, FAILED, USER_ERROR, Outcome, Task, make


class Here:
    """An engine: one run at a time, in this process. Records have ``device_name`` for the device.

    ``submit`` takes a task and gives a future of its outcome; ``slots`` tasks are to be given at a time. ``stop`` makes
    the runs at work write their checkpoints and end.
    """

    slots = 1

    def __init__(self, device: str | None = None):
        self.device_name = device_name(pick_device(device))

    def close(self) -> None:
        """End processes or a connection; here there are none."""

    def submit(self, task: Task, data: Any) -> Future[Outcome]:
        """Make the run now. A signal that ended it ends the command, too."""
        future: Future[Outcome] = Future()
        future.set_result(make(task, data))
        if future.result().code > 128:
            signal.raise_signal(future.result().code - 128)
        return future

    def stop(self) -> None:
        """Do nothing: a run of this process has taken the signal itself."""


class Processes(Here):
    """Several runs at a time on this machine, each in a process of its own: a killed one takes no other along."""

    def __init__(self, jobs: int, device: str | None = None):
        self.slots = jobs
        self.threads = int(os.environ.get("OMP_NUM_THREADS", 0)) or max(1, (os.cpu_count() or 1) // jobs)
        self.device_name = device_name(pick_device(device), self.threads)

    def submit(self, task: Task, data: Any) -> Future[Outcome]:
        """Begin the run in a new process, which loads the data by itself and ends with its run."""
        pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _begin, (self.threads,))
        future = pool.submit(make_with_log, replace(task, jobs=self.slots), None)
        pool.shutdown(wait=False)
        return future

    def stop(self) -> None:
        """Pass SIGTERM on."""
        for process in multiprocessing.active_children():
            process.terminate()


def _begin(threads: int) -> None:
    """Prepare a process: its share of the cores; keys on the terminal are its parent's, and it ends with its parent."""
    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def follow(parent: Any) -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=follow, args=(multiprocessing.parent_process(),), daemon=True).start()


def make_with_log(task: Task, data: Any, patience: float = 0.0) -> Outcome:
    """Make a run in a process whose output goes to the run's log."""
    task.log.parent.mkdir(parents=True, exist_ok=True)
    with task.log.open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    outcome = make(task, sets.load(task.config.dataset) if data is None else data, patience)
    parent = multiprocessing.parent_process()
    if parent is not None and not parent.is_alive():
        os._exit(outcome.code)  # nobody waits for it; the checkpoint is there
    failed = outcome.code in (FAILED, USER_ERROR)
    return replace(outcome, words=f"{outcome.words}; log {task.log}") if failed else outcome


class RayCluster(Here):
    """Runs on the machines of a Ray cluster, each a task that asks for one GPU or for the cores of its threads.

    Ray makes a task again whose machine has died. It goes on from its checkpoint where the machines share the disk of
    ``--out``, else it begins anew. Data are sent to the machines, records come back.
    """

    def __init__(self, address: str = "", device: str | None = None):
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            self.ray: Any = importlib.import_module("ray")
        except ImportError:
            install = 'pip install "geometry-of-attention[cluster]", or in a clone pip install -e ".[cluster]"'
            raise LabError(f"--ray needs Ray: {install}") from None
        where = address or os.environ.get("RAY_ADDRESS") or "local"
        host, _, port = where.rpartition(":")
        try:
            if host:  # Ray itself would try for minutes
                socket.create_connection((host, int(port)), timeout=10).close()
            self.ray.init(where, log_to_driver=False, logging_level="error")
        except Exception as error:  # of many kinds
            raise LabError(f"--ray {where}: {str(error).strip().partition(chr(10))[0]}") from None
        self.data, self.refs, self.threads = dict[str, Any](), list[Any](), int(os.environ.get("OMP_NUM_THREADS", 1))
        wanted = device or ("cuda" if self.ray.cluster_resources().get("GPU") else "cpu")
        self.device = "cuda:0" if wanted == "cuda" else wanted  # Ray lets a run see its own GPU alone
        self.kind, self.amount = ("CPU", self.threads) if self.device == "cpu" else ("GPU", 1)
        if self.slots == 1:
            raise LabError(f"--ray {where}: no machine has {self.amount} {self.kind} for a run; see --device")
        needs = {f"num_{self.kind.lower()}s": self.amount}
        self.make = self.ray.remote(**needs, max_retries=3)(make_on_a_machine)
        named = lambda device, threads: device_name(pick_device(device), threads)  # noqa: E731
        self.device_name = self.ray.get(self.ray.remote(**needs)(named).remote(self.device, self.threads))

    def close(self) -> None:
        """Leave the cluster, or end the one that was begun here."""
        self.ray.shutdown()

    @property
    def slots(self) -> int:  # type: ignore[override]
        """As many as the machines of now have room for, and one that waits."""
        return int(self.ray.cluster_resources().get(self.kind, 0) // self.amount) + 1

    def submit(self, task: Task, data: Any) -> Future[Outcome]:
        """Have Ray make the run as soon as a machine has room for it."""
        task.log.touch()  # where a machine sees this file, the folder is shared
        if task.config.dataset not in self.data:
            self.data[task.config.dataset] = self.ray.put(data)
        task = replace(task, out=task.out.absolute(), keywords={**task.keywords, "device": self.device})
        self.refs.append(self.make.remote(task, self.data[task.config.dataset], self.threads))
        return self.refs[-1].future()

    def stop(self) -> None:
        """Cancel all tasks, which is a SIGINT to those at work."""
        for ref in self.refs:
            self.ray.cancel(ref)


def make_on_a_machine(task: Task, data: Any, threads: int) -> Outcome:
    """Make a run on whatever machine this is, with a folder of its own where none is shared."""
    torch.set_num_threads(threads)
    shared = task.log.is_file()
    if not shared:
        task = replace(task, out=Path(tempfile.gettempdir()) / "geolib-lab")
    outcome = make_with_log(task, data, patience=60.0)  # a dead machine's lock may live for a while
    if not shared and outcome.code == DONE:
        remove(task.checkpoint)
        remove(task.log)
    return outcome if outcome.code == DONE else replace(outcome, words=f"{outcome.words} on {platform.node()}")
