"""Runs spread over processes that share one folder: locks, takeovers, and four processes, one of them killed."""

import contextlib
import errno
import fcntl
import multiprocessing
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from afresh import Started

from geolib.lab import Config, LabError, read_all, train
from geolib.lab.config import Options
from geolib.lab.data.sets import Dataset
from geolib.lab.records import Folders
from geolib.lab.runner import Job, Locked, is_locked, lock

pytestmark = pytest.mark.usefixtures("one_thread")


def names(folder):
    return sorted(path.name for path in folder.iterdir())


HOLD = """
import sys, time
from pathlib import Path
from geolib.lab.runner import lock
with lock(Path(sys.argv[1])):
    print("mine", flush=True)
    time.sleep(600)
"""


def test_a_lock_holds_while_it_lasts_and_leaves_nothing(tmp_path):
    run, other = tmp_path / "run.pt", tmp_path / "run2.pt"
    assert not is_locked(run)
    with lock(run):
        assert names(tmp_path) == ["run.lock"]
        assert is_locked(run)
        assert not is_locked(other)
        with pytest.raises(Locked, match="run: another process makes this run"), lock(run):
            pass
        with lock(other):
            pass
    assert names(tmp_path) == []


def test_a_lock_is_given_back_after_trouble(tmp_path):
    with pytest.raises(ZeroDivisionError), lock(tmp_path / "run.pt"):
        raise ZeroDivisionError
    assert names(tmp_path) == []


def test_the_lock_of_a_killed_process_is_free_at_once(tmp_path, tmp_path_factory):
    run = tmp_path / "run.pt"
    owner = Started(tmp_path_factory.mktemp("said"), HOLD, run)
    while owner.stdout != "mine\n":
        assert owner.poll() is None, owner.stderr
        time.sleep(0.02)
    assert is_locked(run)
    with pytest.raises(Locked), lock(run):
        pass
    owner.kill()
    assert owner.wait() == -signal.SIGKILL
    assert names(tmp_path) == ["run.lock"]  # the file stays, the lock does not
    assert not is_locked(run)
    with lock(run):
        assert is_locked(run)
    assert names(tmp_path) == []


def test_a_file_that_its_last_owner_removed_meanwhile_is_not_locked(tmp_path, monkeypatch):
    run, usual, tried = tmp_path / "run.pt", fcntl.flock, []

    def removed_before(handle, kind):
        tried.append(handle)
        if len(tried) == 1:
            (tmp_path / "run.lock").unlink()
        usual(handle, kind)

    monkeypatch.setattr(fcntl, "flock", removed_before)
    with lock(run):
        assert len(tried) == 2
        assert names(tmp_path) == ["run.lock"]
        assert is_locked(run)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS])
def test_a_folder_without_locks_is_refused_with_a_clear_word(tmp_path, monkeypatch, number):
    def no_locks(handle, kind):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(LabError, match=r"its file system has no file locks .* name another folder with --out DIR$"):
        tiny_job(tmp_path).do()
    assert read_all(tmp_path) == []
    (tmp_path / "run.lock").touch()
    with pytest.raises(LabError, match=f"^{tmp_path}: its file system has no file locks"):
        is_locked(tmp_path / "run.pt")


def take(run, barrier, answers):
    barrier.wait()
    try:
        with lock(run):
            answers.put("mine")
            barrier.wait()  # nobody gives it back before all have tried
    except Locked:
        answers.put("not mine")
        barrier.wait()


def test_of_many_that_try_at_once_one_gets_it(tmp_path):
    run, fork = tmp_path / "run.pt", multiprocessing.get_context("fork")
    barrier, answers = fork.Barrier(6), fork.Queue()
    started = [fork.Process(target=take, args=(run, barrier, answers)) for _ in range(6)]
    for process in started:
        process.start()
    assert sorted(answers.get(timeout=60) for _ in started) == ["mine"] + ["not mine"] * 5
    for process in started:
        process.join(60)
    assert names(tmp_path) == []


def tiny_job(folder):
    config = Config("digits", patch=4, width=8, heads=2, layers=1, epochs=1, train_size=64, test_size=32, batch=32)
    return Job(config, "test", "smoke", Folders.below(folder), Options(device="cpu", quiet=True))


def test_a_run_that_was_recorded_in_the_meantime_is_not_made_again(tmp_path):
    job = tiny_job(tmp_path)
    first = job.do()
    with pytest.raises(Locked, match="has just made this run"):
        job.do()
    (kept,) = read_all(tmp_path)
    assert kept == first
    assert names(tmp_path / "runs") == []


# Four processes -----------------------------------------------------------------------------------------------------

MEMBER = """
import sys, time
from dataclasses import replace
from geolib.lab.__main__ import main
from geolib.lab.experiments import EXPERIMENTS
from geolib.lab.watch import Watch

(out,) = sys.argv[1:]
usual = Watch.after_step

def slowly(self, run):
    self.checkpoint_seconds = 0.0
    time.sleep(0.02)
    usual(self, run)

Watch.after_step = slowly
experiment = EXPERIMENTS["riemannformer-table1"]
tiny = {"patch": 8, "width": 16, "heads": 2, "layers": 1, "batch": 32, "epochs": 6}
EXPERIMENTS[experiment.name] = replace(experiment, settings={"smoke": tiny}, seeds={"smoke": (0,)}, parts={})
words = ["run", experiment.name, "--scale", "smoke", "--quiet", "--out", out, "--device", "cpu"]
rows = ["none", "sinusoidal", "rope", "lf", "rope-axial", "learned"]
sys.exit(main(words + [word for row in rows for word in ("--only", f"{row}/cifar10")]))
"""


def noise():
    g = torch.Generator().manual_seed(3)
    x = [torch.randint(0, 256, (count, 3, 32, 32), generator=g, dtype=torch.uint8) for count in (144, 40)]
    y = [torch.randint(0, 10, (count,), generator=g) for count in (144, 40)]
    return Dataset("cifar10", x[0], y[0], x[1], y[1], classes=tuple(map(str, range(10))), source="noise")


def prepare(folder, data):
    folder.mkdir()
    arrays = {f"x_{part}": getattr(data, f"x_{part}").permute(0, 2, 3, 1).numpy() for part in ("train", "test")}
    arrays |= {f"y_{part}": getattr(data, f"y_{part}").numpy().astype(np.uint8) for part in ("train", "test")}
    np.savez(folder / "cifar10.npz", classes=np.array(data.classes), **arrays)


def begun_by(process, folder):
    """The run that a process has locked and keeps a checkpoint of, or None."""
    held = []
    for each in Path(f"/proc/{process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            held.append(Path(os.readlink(each)))
    mine = [path for path in held if path.suffix == ".lock" and path.parent == folder]
    return next((path.stem for path in mine if path.with_suffix(".pt").is_file() and is_locked(path)), None)


def test_four_processes_make_every_run_once_though_one_is_killed(tmp_path):
    data, out = noise(), tmp_path / "out"
    prepare(tmp_path / "data", data)
    members = []
    for rank in range(4):
        torchruns = {"RANK": str(rank), "WORLD_SIZE": "4", "LOCAL_RANK": str(rank % 2), "LOCAL_WORLD_SIZE": "2"}
        members.append(Started(tmp_path, MEMBER, out, GEOLIB_DATA=str(tmp_path / "data"), **torchruns))
    victim, deadline, run = members[3], time.monotonic() + 600, None
    while run is None:
        assert time.monotonic() < deadline
        assert victim.poll() is None
        run = begun_by(victim, out / "runs")
        time.sleep(0.02)
    victim.kill()
    codes = [member.wait() for member in members]
    said = [(member.stdout, member.stderr) for member in members]
    assert codes == [0, 0, 0, -signal.SIGKILL], said

    kept = read_all(out)
    assert {r.config.method for r in kept} == {"none", "sinusoidal", "rope", "lf", "rope-axial", "learned"}
    wrote = [line.partition(":")[0] for text, _ in said for line in text.splitlines() if "; wrote " in line]
    assert sorted(wrote) == sorted(record.name for record in kept)  # each of them once
    assert run in wrote  # taken over
    assert names(out / "runs") == []  # no lock, no checkpoint
    assert sum("riemannformer-table1 (smoke scale)" in text for text, _ in said) == 1  # one table
    taken_over = next(record for record in kept if record.name == run)
    alone = train(taken_over.config, data, device="cpu", quiet=True)
    for ours, theirs in zip(taken_over.metrics, alone.metrics):
        assert ours["train_loss"] == theirs["train_loss"]
        assert ours.get("test_loss") == theirs.get("test_loss")
