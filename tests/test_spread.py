"""Runs spread over processes that share one folder: claims, takeovers, and four processes, one of them killed."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from geolib.lab import Config, read_all, train
from geolib.lab.data import Dataset
from geolib.lab.runs import Folders, claims
from geolib.lab.runs.claims import Claimed, claim, is_claimed
from geolib.lab.runs.jobs import Job
from geolib.lab.training import Options

ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.usefixtures("one_thread")


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def left_behind(checkpoint, number=1, **changes):
    """A claim as a process that was killed has left it."""
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    told = {"place": claims._place(), "process": dead.pid, "began": "1"} | changes
    path = checkpoint.with_name(f"{checkpoint.stem}.claim.{number}")
    path.write_text(json.dumps(told))
    return path


def test_a_claim_holds_while_it_lasts_and_leaves_nothing(tmp_path):
    run, other = tmp_path / "run.pt", tmp_path / "run2.pt"
    assert not is_claimed(run)
    with claim(run):
        assert names(tmp_path) == ["run.claim.1"]
        assert is_claimed(run)
        assert not is_claimed(other)
        with pytest.raises(Claimed, match="run: another process makes this run"), claim(run):
            pass
        with claim(other):
            pass
    assert names(tmp_path) == []


def test_a_claim_is_given_back_after_trouble(tmp_path):
    with pytest.raises(ZeroDivisionError), claim(tmp_path / "run.pt"):
        raise ZeroDivisionError
    assert names(tmp_path) == []


def test_the_claim_of_a_dead_process_is_taken_over(tmp_path):
    run = tmp_path / "run.pt"
    left_behind(run, 7)
    assert not is_claimed(run)
    with claim(run):
        assert names(tmp_path) == ["run.claim.7", "run.claim.8"]
        assert is_claimed(run)
        with pytest.raises(Claimed), claim(run):
            pass
    assert names(tmp_path) == []


def test_a_process_of_the_same_number_that_began_later_is_another(tmp_path):
    left_behind(tmp_path / "run.pt", process=os.getpid())
    assert not is_claimed(tmp_path / "run.pt")
    left_behind(tmp_path / "run.pt", process=os.getpid(), began=claims._began(os.getpid()))
    assert is_claimed(tmp_path / "run.pt")


def test_a_claim_from_another_machine_is_judged_by_its_age(tmp_path):
    run = tmp_path / "run.pt"
    path = left_behind(run, place="another machine")
    assert is_claimed(run)  # its process may well live there
    old = time.time() - claims.STALE_SECONDS - 5
    os.utime(path, (old, old))
    assert not is_claimed(run)


def test_a_living_claim_stays_young(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "TOUCH_SECONDS", 0.01)
    with claim(tmp_path / "run.pt"):
        path = tmp_path / "run.claim.1"
        os.utime(path, (1, 1))
        deadline = time.monotonic() + 20
        while path.stat().st_mtime == 1:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_who_was_taken_over_leaves_the_later_claim_alone(tmp_path):
    run = tmp_path / "run.pt"
    with claim(run):
        later = left_behind(run, 2, place="another machine")
    assert names(tmp_path) == [later.name]


def take(run, barrier, answers):
    barrier.wait()
    try:
        with claim(run):
            answers.put("mine")
            barrier.wait()  # nobody gives it back before all have tried
    except Claimed:
        answers.put("not mine")
        barrier.wait()


@pytest.mark.parametrize("dead", [False, True])
def test_of_many_that_try_at_once_one_gets_it(tmp_path, dead):
    run, fork = tmp_path / "run.pt", multiprocessing.get_context("fork")
    if dead:
        left_behind(run)
    barrier, answers = fork.Barrier(6), fork.Queue()
    started = [fork.Process(target=take, args=(run, barrier, answers)) for _ in range(6)]
    for process in started:
        process.start()
    assert sorted(answers.get(timeout=60) for _ in started) == ["mine"] + ["not mine"] * 5
    for process in started:
        process.join(60)
    assert names(tmp_path) == []


def test_a_run_that_was_recorded_in_the_meantime_is_not_made_again(tmp_path):
    config = Config("digits", patch=4, width=8, heads=2, layers=1, epochs=1, train_size=64, test_size=32, batch=32)
    job = Job(config, "test", "smoke", Folders.below(tmp_path), Options(device="cpu", quiet=True))
    first = job.do()
    with pytest.raises(Claimed, match="has just made this run"):
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
from geolib.lab.runs import claims
from geolib.lab.training.watch import Watch

group, out = sys.argv[1:]
place = claims._place()
claims._place = lambda: f"{place} {group}"  # each group on a machine of its own
claims.TOUCH_SECONDS, claims.STALE_SECONDS = 0.2, 3.0
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
    """The run that a process has claimed and keeps a checkpoint of, or None."""
    for path in folder.glob("*.claim.*"):
        try:
            mine = json.loads(path.read_text())["process"] == process.pid
        except (OSError, json.JSONDecodeError):
            continue
        if mine and path.with_name(path.name.partition(".claim.")[0] + ".pt").is_file():
            return path.name.partition(".claim.")[0]
    return None


def test_four_processes_in_two_groups_make_every_run_once_though_one_is_killed(tmp_path):
    data, out = noise(), tmp_path / "out"
    prepare(tmp_path / "data", data)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "GEOLIB_DATA": str(tmp_path / "data"), "OMP_NUM_THREADS": "1"}
    members = []
    for rank in range(4):
        torchruns = {"RANK": str(rank), "WORLD_SIZE": "4", "LOCAL_RANK": str(rank % 2), "LOCAL_WORLD_SIZE": "2"}
        words = [sys.executable, "-c", MEMBER, f"group {rank // 2}", str(out)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        members.append(subprocess.Popen(words, env=environment | torchruns, **pipes))
    victim, deadline, run = members[3], time.monotonic() + 120, None
    while run is None:
        assert time.monotonic() < deadline
        assert victim.poll() is None
        run = begun_by(victim, out / "runs")
        time.sleep(0.02)
    victim.send_signal(signal.SIGKILL)
    said = [member.communicate(timeout=240) for member in members]
    assert [member.returncode for member in members] == [0, 0, 0, -signal.SIGKILL], said

    kept = read_all(out)
    assert {r.config.method for r in kept} == {"none", "sinusoidal", "rope", "lf", "rope-axial", "learned"}
    wrote = [line.partition(":")[0] for text, _ in said for line in text.splitlines() if "; wrote " in line]
    assert sorted(wrote) == sorted(record.name for record in kept)  # each of them once
    assert run in wrote  # taken over
    assert names(out / "runs") == []  # no claim, no checkpoint
    assert sum("riemannformer-table1 (smoke scale)" in text for text, _ in said) == 1  # one table
    taken_over = next(record for record in kept if record.name == run)
    alone = train(taken_over.config, data, device="cpu", quiet=True)
    for ours, theirs in zip(taken_over.metrics, alone.metrics):
        assert ours["train_loss"] == theirs["train_loss"]
        assert ours.get("test_loss") == theirs.get("test_loss")
