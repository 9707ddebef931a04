"""Making many runs: locks, what is known of times, what a time budget holds, and what failures leave."""

import contextlib
import errno
import fcntl
import itertools
import os
import random
import re
import subprocess
import sys
from concurrent.futures import Future
from dataclasses import replace

import pytest
import test_lab_experiments
from filelock import Timeout

from geolib.lab import Config, LabError, read_all, runner
from geolib.lab.cluster import Here
from geolib.lab.records import write
from geolib.lab.runner import DONE, FAILED, OUT_OF_TIME, USER_ERROR, Outcome, Task, Times, lock, make, make_all, worst
from geolib.lab.train import Diverged

pytestmark = pytest.mark.usefixtures("one_thread")
TINY = Config("digits", patch=4, width=8, heads=2, layers=1, epochs=2, train_size=64, test_size=32, batch=32)


def record(seconds=1.0, device="mine", started="2026", **settings):
    """A record that nobody made."""
    about = {"wall_seconds": seconds, "device": device, "started": started}
    return test_lab_experiments.record(replace(TINY, **settings), 0.5, "e", **about)


@pytest.fixture
def tasks(tmp_path):
    """tasks(count, **changes): as many runs, which differ in their seeds."""

    def some(count, **changes):
        configs = [replace(TINY, seed=seed) for seed in range(count)]
        keywords = {"device": "cpu", "quiet": True, "save_every": 0.0}
        return [Task(config, "e", "smoke", tmp_path, keywords, **changes) for config in configs]

    return some


# Locks ----------------------------------------------------------------------------------------------------------------


def test_a_lock_holds_for_one_run_while_it_lasts_and_leaves_nothing(tmp_path):
    checkpoint, beside = tmp_path / "run.pt", tmp_path / "run2.pt"
    with contextlib.suppress(ZeroDivisionError), lock(checkpoint):
        with pytest.raises(Timeout), lock(checkpoint):
            pass
        with lock(beside):
            raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_the_lock_of_a_killed_process_is_free_and_meanwhile_its_run_is_left_to_it(tmp_path, tasks, capsys):
    (task,) = tasks(1)
    program = "import sys, time\nfrom pathlib import Path\nfrom geolib.lab.runner import lock\n"
    program += "with lock(Path(sys.argv[1])):\n    print('mine', flush=True)\n    time.sleep(600)"
    owner = subprocess.Popen([sys.executable, "-c", program, task.checkpoint], stdout=subprocess.PIPE)
    assert owner.stdout.readline() == b"mine\n"
    made = make_all([task], {"digits": None}, Here("cpu"), Times("mine"))
    assert made == ([], DONE)
    assert capsys.readouterr().out == f"{task.config.name}: being made by another process\n"
    owner.kill()
    owner.wait()
    owner.stdout.close()
    (made,), code = make_all([task], {"digits": None}, Here("cpu"), Times("mine"))
    assert (code, read_all(tmp_path)) == (DONE, [made])
    assert list(task.checkpoint.parent.iterdir()) == []


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS])
@pytest.mark.filterwarnings("ignore:flock not supported")
def test_a_folder_without_locks_is_refused_in_one_line(tasks, monkeypatch, number):
    def no_locks(handle, kind):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    outcome = make(tasks(1)[0])
    assert (outcome.record, outcome.code) == (None, USER_ERROR)
    assert re.search("cannot be locked .*; name another folder with --out DIR$", outcome.words)


# Times ----------------------------------------------------------------------------------------------------------------


def test_a_time_is_that_of_the_newest_record_of_the_cell_else_of_method_and_size_on_the_device():
    months = [(10.0, "01", 1), (20.0, "03", 2), (30.0, "02", 3)]
    known = [record(seconds, started=f"2026-{month}", seed=seed) for seconds, month, seed in months]
    known += [record(40.0, started="2026-09", device="another"), record(50.0, started="2026-04", lr=0.5)]
    for order in itertools.permutations(known):
        times = Times("mine", order)
        assert times.like(TINY).wall_seconds == 20.0
        assert times.like(replace(TINY, lr=0.25)).wall_seconds == 50.0  # another cell, as long
        assert times.like(replace(TINY, width=16)) is times.like(replace(TINY, method="rope")) is None
    assert times.words(TINY) == f"about 20.0 s, as {replace(TINY, seed=2).name}"
    assert times.words(replace(TINY, epochs=9)) == "time unknown"
    assert [runner.lasting(x) for x in (0, 4.25, 59.9, 60, 400)] == ["0.0 s", "4.2 s", "59.9 s", "1.0 min", "6.7 min"]


def test_nothing_is_started_that_cannot_end_in_the_time_and_the_first_of_a_kind_is_measured(tasks, monkeypatch, capsys):
    clock, began = [0.0], []
    monkeypatch.setattr(runner.time, "time", lambda: clock[0])

    class Engine(Here):
        def submit(self, task, data):
            seconds = needed[task.config.width]
            clock[0] += seconds
            began.append(task.config.seed)
            future = Future()
            future.set_result(Outcome(replace(record(seconds), config=task.config)))
            return future

    draw = random.Random(0)
    for _ in range(100):
        widths = [draw.choice([8, 16, 32]) for _ in range(6)]
        needed, budget = {width: draw.uniform(1, 5) for width in widths}, draw.uniform(0, 15)
        runs = [replace(t, config=replace(t.config, width=w)) for t, w in zip(tasks(6), widths)]
        expected, now, measured, left = [], 0.0, set(), list(range(6))
        while fitting := [i for i in left if now + needed[widths[i]] * (widths[i] in measured) < budget]:
            expected.append(fitting[0])
            left.remove(fitting[0])
            now += needed[widths[fitting[0]]]
            measured.add(widths[fitting[0]])
        clock[0], began[:] = 0.0, []
        made, code = make_all(runs, {"digits": None}, Engine("cpu"), Times("mine"), budget)
        assert began == [one.config.seed for one in made] == expected
        assert code == (OUT_OF_TIME if left else DONE)
        assert capsys.readouterr().out.count("not started, ") == len(left)


# Failures -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trouble", "code", "says"),
    [
        (LabError("no data"), USER_ERROR, "no data"),
        (Diverged("the loss is not finite"), FAILED, "the loss is not finite"),
        (ZeroDivisionError("by\nzero"), FAILED, "ZeroDivisionError: by zero"),
    ],
)
def test_a_run_that_fails_is_told_at_once_and_the_others_are_made(tasks, monkeypatch, capsys, trouble, code, says):
    usual = runner.run

    def run(config, **given):
        if config.seed == 0:
            raise trouble
        told = capsys.readouterr().err  # by now
        assert says in told
        assert ("Traceback" in told) == isinstance(trouble, ZeroDivisionError)  # which nobody foresaw
        return usual(config, **given)

    monkeypatch.setattr(runner, "run", run)
    first, second = tasks(2)
    made, found = make_all([first, second], {"digits": None}, Here("cpu"), Times("mine"))
    assert ([one.config for one in made], found) == ([second.config], code)


def test_a_disk_too_full_for_a_record_keeps_the_checkpoint_and_loses_nothing(tasks, monkeypatch, capsys):
    (task,), usual = tasks(1), os.fsync
    before = make(task).record
    assert before is not None
    assert task.checkpoint.is_file()

    def full(handle):
        if ".json" in os.readlink(f"/proc/self/fd/{handle}"):
            raise OSError(errno.ENOSPC, "No space left on device")
        usual(handle)

    monkeypatch.setattr(os, "fsync", full)
    assert make_all([task], {"digits": None}, Here("cpu"), Times("mine")) == ([], USER_ERROR)
    assert "could not be written (No space left on device)" in capsys.readouterr().err
    monkeypatch.setattr(os, "fsync", usual)
    (after,), code = make_all([task], {"digits": None}, Here("cpu"), Times("mine"))
    assert (code, after.started, after.accuracy) == (DONE, before.started, before.accuracy)
    assert list(task.checkpoint.parent.iterdir()) == []


def test_a_run_that_another_process_has_recorded_meanwhile_is_not_made_again(tasks, tmp_path):
    (task,) = tasks(1)
    write(replace(record(), experiment="another table"), tmp_path)
    assert make(task) == Outcome(words="recorded by another process meanwhile")
    assert make(replace(task, again=True)).record.config == task.config


def test_the_worst_code_is_a_signals_then_what_the_user_can_put_right():
    order = [143, USER_ERROR, FAILED, OUT_OF_TIME, DONE]
    for first in range(len(order)):
        assert worst(reversed(order[first:])) == order[first]
    assert worst([]) == DONE
