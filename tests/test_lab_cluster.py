"""Engines: what several processes or a Ray cluster make is what one process makes, also when one of them is killed."""

import contextlib
import os
import re
import signal
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from geolib.lab import Config, LabError, load, read_all
from geolib.lab.cluster import Here, Processes, RayCluster, make_on_a_machine
from geolib.lab.runner import DONE, FAILED, Task, Times, make, make_all

DATA = {"digits": load("digits")}


@pytest.fixture(scope="module", autouse=True)
def one_core():
    """All engines compute with one thread, so that their numbers are the same."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def epochs(tmp_path_factory):
    """So many that a run lasts for a second and a half, on whatever machine this is."""
    folders = [tmp_path_factory.mktemp("two epochs") for _ in range(2)]
    seconds = [make(three(folder, 2)[0], DATA["digits"]).record.wall_seconds for folder in folders]
    return 3 + int(2 * 1.5 / min(seconds))


@pytest.fixture(scope="module")
def alone(tmp_path_factory, epochs):
    """What one process makes of three runs: from a seed to its numbers."""
    made, code = make_all(three(tmp_path_factory.mktemp("alone"), epochs), DATA, Here("cpu"), Times("none"))
    assert code == DONE
    return {record.config.seed: numbers(record) for record in made}


def three(folder, epochs, **keywords):
    """Three runs, which keep a checkpoint of every twentieth of a second."""
    config = Config("digits", "rope", patch=2, width=16, heads=2, layers=1, epochs=epochs, batch=50, train_size=800)
    keywords = {"device": "cpu", "quiet": True, "save_every": 0.05} | keywords
    (folder / "runs").mkdir(exist_ok=True)
    return [Task(replace(config, seed=seed), "e", "smoke", folder, keywords) for seed in range(3)]


def numbers(record):
    return [{key: value for key, value in row.items() if key != "seconds"} for row in record.metrics], record.answers


def at_the_first_checkpoint(tasks, act):
    """Act on the first run that has a checkpoint, beside the test; what it did to which run comes into a list."""
    done = []

    def wait():
        while not (begun := [task for task in tasks if task.checkpoint.is_file()]):
            time.sleep(0.01)
        done.append((begun[0].config.seed, act(begun[0])))

    threading.Thread(target=wait, daemon=True).start()
    return done


def kill(task, with_parent=False):
    """Kill the process that makes a run, and where it has one that would notice, first that."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if task.log.resolve() in {path.resolve() for path in (process / "fd").iterdir()}:
                parent = re.search(r"PPid:\s*(\d+)", (process / "status").read_text())[1]
                for pid in [parent] * with_parent + [process.name]:
                    os.kill(int(pid), signal.SIGKILL)


def begun(task):
    """When a run was started for the first time, from its checkpoint."""
    return torch.load(task.checkpoint)["times"][0]


def check_all(folder, alone):
    """Every run is recorded once, with the numbers of one process, and nothing else is left."""
    kept = read_all(folder)
    assert {record.config.seed: numbers(record) for record in kept} == alone
    assert len(kept) == 3
    assert {path.suffix for path in (folder / "runs").iterdir()} <= {".lock"}  # of killed processes
    return kept


# Processes ------------------------------------------------------------------------------------------------------------


def test_a_killed_process_is_told_with_its_log_and_the_rest_goes_on(tmp_path, alone, epochs, capsys):
    tasks = three(tmp_path, epochs)
    killed = at_the_first_checkpoint(tasks, kill)
    made, code = make_all(tasks, DATA, Processes(2, "cpu"), Times("none"))
    ((seed, _),) = killed
    assert code == FAILED
    assert {record.config.seed: numbers(record) for record in made} == {s: alone[s] for s in alone if s != seed}
    assert {record.engine["jobs"] for record in made} == {2}
    told = capsys.readouterr().err
    assert told.startswith(f"geolib.lab: {tasks[seed].config.name}: its process was killed")
    assert told.endswith(f"log {tasks[seed].log}\n")
    assert make_all([tasks[seed]], DATA, Here("cpu"), Times("none"))[1] == DONE
    check_all(tmp_path, alone)


def test_after_a_signal_processes_leave_checkpoints_that_any_engine_goes_on_from(tmp_path, alone, epochs, capsys):
    tasks = three(tmp_path, epochs)
    at_the_first_checkpoint(tasks, lambda task: os.kill(os.getpid(), signal.SIGTERM))
    assert make_all(tasks, DATA, Processes(2, "cpu"), Times("none")) == ([], 128 + signal.SIGTERM)
    stopped = [task for task in tasks if task.checkpoint.is_file()]
    assert {*(tmp_path / "runs").iterdir()} == {task.checkpoint for task in stopped} != set()
    assert capsys.readouterr().err.count("stopped by SIGTERM") == len(stopped) < 3
    started = {task.config.seed: begun(task) for task in stopped}
    assert make_all(tasks, DATA, Here("cpu"), Times("none"))[1] == DONE
    made = check_all(tmp_path, alone)
    assert started.items() <= {record.config.seed: record.started for record in made}.items()  # they went on


def test_what_a_process_prints_of_an_unforeseen_error_is_in_its_log(tmp_path, capsys):
    task = three(tmp_path, 1, none_such=1)[0]
    assert make_all([task], DATA, Processes(2, "cpu"), Times("none")) == ([], FAILED)
    assert capsys.readouterr().err.endswith(f"unexpected keyword argument 'none_such'; log {task.log}\n")
    assert "Traceback" in task.log.read_text()


# Ray ------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A head without a core, and a machine with one; cluster.add_node(num_cpus=1) adds another."""
    pytest.importorskip("ray")
    # Each of Ray's helpers imports jsonschema, and that JupyterLab's grammar of addresses, which takes seconds to
    # compile. On a busy machine Ray would not wait so long for them.
    folder = tmp_path_factory.mktemp("light")
    (folder / "rfc3987_syntax.py").write_text("raise ImportError")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *filter(None, sys.path)]))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.syspath_prepend(folder)
        from ray.cluster_utils import Cluster

        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
        cluster.add_node(num_cpus=1)
        yield cluster
        cluster.shutdown()


def test_a_cluster_makes_every_run_once_though_a_machine_is_killed(cluster, tmp_path, alone, epochs, capsys):
    tasks = three(tmp_path, epochs)
    cluster.add_node(num_cpus=1)
    engine = RayCluster(cluster.address)
    assert (engine.device_name, engine.slots) == (Here("cpu").device_name, 3)  # two, and one that waits
    killed = at_the_first_checkpoint(tasks, lambda task: (kill(task, with_parent=True), begun(task)))
    made, code = make_all(tasks, DATA, engine, Times(engine.device_name))
    assert (code, len(made)) == (DONE, 3)
    ((seed, (_, started)),) = killed
    assert next(record.started for record in made if record.config.seed == seed) == started  # it went on
    check_all(tmp_path, alone)


def test_after_a_signal_a_cluster_leaves_checkpoints(cluster, tmp_path, alone, epochs):
    tasks = three(tmp_path, epochs)
    at_the_first_checkpoint(tasks, lambda task: os.kill(os.getpid(), signal.SIGTERM))
    assert make_all(tasks, DATA, RayCluster(cluster.address), Times("none")) == ([], 128 + signal.SIGTERM)
    assert [task.checkpoint.is_file() for task in tasks] == [True, False, False]
    assert make_all(tasks, DATA, Here("cpu"), Times("none"))[1] == DONE
    check_all(tmp_path, alone)


def test_a_machine_that_does_not_share_the_folder_keeps_its_checkpoints_to_itself(tmp_path, monkeypatch, alone, epochs):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "there"))
    monkeypatch.setattr(os, "dup2", lambda *_: None)  # pytest's own output
    outcome = make_on_a_machine(three(tmp_path, epochs)[0], DATA["digits"], 1)
    assert numbers(outcome.record) == alone[0]
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_cluster_that_is_not_there_or_has_no_room_for_a_run_is_one_line(cluster):
    with pytest.raises(LabError, match="no machine has 1 GPU for a run"):
        RayCluster(cluster.address, "cuda")
    sys.modules["ray"].shutdown()
    with pytest.raises(LabError, match=r"^--ray 127\.0\.0\.1:1: .*Connection refused$"):
        RayCluster("127.0.0.1:1")
