"""The lab's command line: what a command makes and prints, what it does not repeat, and its exit codes."""

import json
import re
import signal
import subprocess
import sys
import types
from dataclasses import replace

import pytest

from geolib.lab import read_all, runner
from geolib.lab.__main__ import BENCHES, main
from geolib.lab.experiments import EXPERIMENTS
from geolib.lab.records import path_of, write
from geolib.lab.train import Stopped

pytestmark = pytest.mark.usefixtures("one_thread")
NAME = "digits-encodings"
TINY = {"width": 16, "heads": 2, "layers": 1, "patch": 2, "epochs": 2, "train_size": 64, "test_size": 40}


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    """The experiment with runs of a moment at smoke and cpu scale."""
    settings = {**EXPERIMENTS[NAME].settings, "smoke": TINY, "cpu": TINY | {"epochs": 4}}
    monkeypatch.setitem(EXPERIMENTS, NAME, replace(EXPERIMENTS[NAME], settings=settings))
    return EXPERIMENTS[NAME]


@pytest.fixture
def lab(tmp_path, capsys):
    """lab(words...): the exit code of a command on a folder of its own, and what it printed on both outputs."""

    def call(*words):
        added = ["--out", str(tmp_path / "out")] if {"run", "table", "pending"} & {*words} - {"--out"} else []
        added += ["--quiet"] if words[0] == "run" else []
        try:
            code = main([words[0], *added, *words[1:]])
        except SystemExit as ended:  # of argparse
            code = ended.code
        return (code, *capsys.readouterr())

    call.folder = tmp_path / "out"
    return call


def only(errors):
    """The one line of an error."""
    assert re.fullmatch("geolib.lab: [^\n]*\n", errors)
    return errors


def test_run_makes_what_has_no_record_and_prints_the_table(lab, tiny, monkeypatch):
    words = ("run", NAME, "--scale", "smoke", "--only", "rope/digits", "--only", "none")
    code, told, errors = lab(*words)
    made = none, rope = read_all(lab.folder)
    assert (code, errors, none.config.method, rope.config.method) == (0, "", "none", "rope")
    for record in made:
        assert (record.experiment, record.scale, record.engine["jobs"]) == (NAME, "smoke", 1)
        assert f"{record.name}: {record.result}, " in told
        assert f"wrote {path_of(record.config, NAME, lab.folder)}" in told
        assert "shuffled_accuracy" in record.learned
    assert told.count(f"{NAME} (smoke scale)") == 1
    assert list((lab.folder / "runs").iterdir()) == []
    monkeypatch.setitem(EXPERIMENTS, "twin", replace(tiny, name="twin"))
    with monkeypatch.context() as patched:
        patched.setattr(runner, "run", None)  # nothing is made again, not for another experiment either
        assert lab(*words)[1].count("recorded already") == 2
        told = lab("run", "twin", *words[2:])[1]
    assert f"{rope.name}: recorded already, {rope.result} (by {NAME})" in told
    assert f"{100 * rope.accuracy:.2f} (1 seed)" in told
    later = tiny.config("smoke", "rope", "digits", 1)
    assert lab(*words[:4], "--only", later.hash, "--seeds", "0", "1")[0] == 0
    assert [r.config.hash for r in read_all(lab.folder)][-1:] == [later.hash]
    assert lab(*words[:6], "--again", "--jobs", "2")[0] == 0
    again = {r.name: r for r in read_all(lab.folder)}
    assert len(again) == 3
    assert (again[rope.name].accuracy, again[rope.name].engine["jobs"]) == (rope.accuracy, 2)
    assert "(2 seeds)" in lab("table", NAME, "--scale", "smoke", "--format", "markdown")[1]


def test_what_is_pending_is_told_with_the_time_of_the_newest_like_record(lab, tiny):
    assert lab("run", NAME, "--scale", "smoke", "--only", "rope")[0] == 0
    (known,) = read_all(lab.folder)
    write(replace(known, wall_seconds=90.0), lab.folder)
    code, told, _ = lab("pending", "--scale", "smoke", "--json")
    runs = {run["hash"]: run for run in json.loads(told)}
    assert (code, len(runs)) == (0, len(json.loads(told)))  # a run that two experiments share is made once
    ours = [run for run in runs.values() if run["experiment"] == NAME]
    assert {run["hash"] for run in ours} == {c.hash for c in tiny.configs("smoke")} - {known.config.hash}
    assert {(run["scale"], run["seconds"], run["basis"]) for run in ours} == {("smoke", None, "unknown")}
    other = tiny.config("smoke", "rope", "digits", 1)
    code, told, _ = lab("run", NAME, "--scale", "smoke", "--seeds", "0", "1", "--only", "rope", "--dry-run")
    lines = [f"{other.name}  about 1.5 min, as {known.name}", "1 of 2 runs have no record"]
    assert (code, told.splitlines()) == (0, lines)
    code, told, _ = lab("run", NAME, "--scale", "smoke", "--only", "none", "--dry-run")
    assert told.startswith(f"{tiny.config('smoke', 'none', 'digits', 0).name}  time unknown\n")
    code, told, _ = lab("run", NAME, "--scale", "smoke", "--seeds", "1", "--only", "rope", "--time-budget", "80")
    assert code == 3
    assert f"{other.name}: not started, 1.3 min of the time budget left; about 1.5 min, as {known.name}" in told
    assert len(read_all(lab.folder)) == 1


def test_what_a_short_time_on_a_gpu_is_for_is_pending_first(lab):
    code, told, _ = lab("pending", "--json")
    names = [run["name"].rsplit("-", 1)[0] for run in json.loads(told)]
    first = ["rope-axial-seed0", "rope-axial-seed1", "riemannformer-seed1", "rope-seed0", "riemannformer-seed0"]
    assert (code, names[:5]) == (0, [f"cifar10-{name}" for name in first])  # the last two: base 100, and s from 0.906


def test_a_damaged_record_is_named_and_the_others_are_not_lost(lab, tiny):
    words = ("run", NAME, "--scale", "smoke", "--only", "none")
    assert lab(*words)[0] == 0
    (whole,) = read_all(lab.folder)
    damaged = path_of(tiny.config("smoke", "rope", "digits", 0), NAME, lab.folder)
    damaged.write_text("{")
    for command in (("table", NAME, "--scale", "smoke"), words, (*words, "--only", "rope")):
        code, told, errors = lab(*command)
        assert code == 2
        assert f"{100 * whole.accuracy:.2f}" in told
        assert f"{damaged}: not a record" in only(errors)
    code, told, errors = lab("pending", "--scale", "smoke")
    assert (code, str(damaged) in only(errors), damaged.read_text()) == (2, True, "{")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("fly", "invalid choice: 'fly'"),
        ("run table9", "unknown experiment 'table9'; there are "),
        ("run NAME --scale big", "'big'"),
        ("run NAME --only rope2", "--only 'rope2': there are none"),
        ("run NAME --only 0123456789", "--only 0123456789: digits-encodings has no such run at scale cpu"),
        ("run NAME --seeds -1", "a seed 0 or more"),
        ("run NAME --jobs 0", "--jobs is 1 or more"),
        ("run NAME --jobs 2 --ray", "not allowed with argument"),
        ("run NAME --device tpu", "device tpu is not here"),
        ("run NAME --out /dev/null/x", "name another with --out DIR"),
        ("run NAME --ray", "--ray needs Ray: pip install"),
        ("pending --scale big", "'big'"),
        ("bench nothing", f"unknown bench 'nothing'; there are {', '.join(BENCHES)}"),
        ("data prepare mnist", "unknown data set 'mnist'; there are digits"),
    ],
)
def test_what_the_user_can_put_right_is_told_with_code_2(lab, monkeypatch, words, says):
    monkeypatch.setitem(sys.modules, "ray", None)
    words = words.replace("NAME", NAME).split()
    code, _, errors = lab(*words)
    assert code == 2
    assert says in errors
    assert errors.count("\n") == 1 or errors.startswith("usage: ")
    assert read_all(lab.folder) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_command_with_its_number_and_no_other_run_is_begun(lab, monkeypatch, number):
    def stopped(*words, **given):
        raise Stopped(number, " after epoch 1")

    monkeypatch.setattr(runner, "run", stopped)
    before = signal.getsignal(number)
    code, told, errors = lab("run", NAME, "--scale", "smoke")
    assert (code, told) == (128 + number, "")
    assert " after epoch 1; the same command goes on from there" in only(errors)
    assert signal.getsignal(number) is before


def test_list_names_every_experiment(lab):
    told = lab("list")[1]
    assert all(f"{name}: {experiment.about}" in told for name, experiment in EXPERIMENTS.items())


def test_bench_prints_a_modules_rows_and_keeps_them_where_it_is_told(lab, monkeypatch, tmp_path):
    module = types.SimpleNamespace(run=lambda: iter([{"form": "fast", "ms": 3.14159}]))
    monkeypatch.setitem(sys.modules, f"geolib.lab.benches.{BENCHES[0]}", module)
    code, told, _ = lab("bench", BENCHES[0], "--record", str(tmp_path / "kept.json"))
    assert code == 0
    assert told.splitlines()[1:] == ["form fast, ms 3.142"]
    assert json.loads((tmp_path / "kept.json").read_text())["rows"] == [{"form": "fast", "ms": 3.14159}]


def test_the_lab_imports_no_more_than_torch_and_numpy():
    program = "import sys, torch, numpy; held = {*sys.modules}; import geolib.lab; print(*sys.modules.keys() - held)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    added = {name.split(".")[0] for name in done.stdout.split() if "cython" not in name}  # which NumPy adds
    assert added - {*sys.stdlib_module_names, "torch", "numpy"} == {"geolib"}
