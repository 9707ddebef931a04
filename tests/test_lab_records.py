"""Records of the lab: what one holds, how it is written and read, what is refused, and where it says it was made."""

import errno
import json
import math
import os
import platform
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import geolib
from geolib.lab import Config, LabError, Record, load, read_all, records, run
from geolib.lab.data.documents import Bytes, Documents
from geolib.lab.files import BENCHES, ON_GPU, remove, write_atomically
from geolib.lab.records import bits_of, packed_bits, path_of, read, record_files, write

pytestmark = pytest.mark.usefixtures("one_thread")

TINY = {"width": 8, "heads": 2, "layers": 1, "batch": 16, "epochs": 3, "eval_every": 2, "train_size": 32}
IMAGES = Config("digits", "rope", {"base": 9.0}, patch=4, test_size=20, **TINY)
TEXT = Config("documents", "sympow+gates", context=8, test_size=16, **TINY)
LETTERS = Documents("documents", *(Bytes([name], [bytes(range(97, 123)) * 20]) for name in "ab"), "made here")
KINDS = pytest.mark.parametrize("config", [IMAGES, TEXT], ids=["images", "text"])


@pytest.fixture(scope="module")
def made():
    """From a data set to the record of the run on it, made once."""
    both = ((IMAGES, load("digits")), (TEXT, LETTERS))
    return {config.dataset: run(config, data=data, device="cpu", quiet=True) for config, data in both}


# What it holds --------------------------------------------------------------------------------------------------------


@KINDS
def test_a_record_says_what_was_run_on_what_and_comes_back_from_its_file(config, tmp_path, monkeypatch):
    monkeypatch.setattr(records, "commit", lambda: {"id": "a commit", "dirty": True})
    data = LETTERS if config.is_text else load("digits")
    noted = {"experiment": "a table", "scale": "cpu", "jobs": 3, "after": lambda finished: {"of it": (1, 2.5)}}
    told = run(config, data=data, out=tmp_path, **noted, device="cpu", quiet=True)
    path = tmp_path / "a table" / f"{config.name}.json"
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [path]  # the checkpoint has gone
    text, values = path.read_text(), json.loads(path.read_text())
    assert read(path) == told == Record.from_dict(values)
    assert len(re.findall(r'^ *\{"epoch": \d, [^\n]*\},?$', text, re.M)) == 3  # a line a row
    assert (values["schema"], values["name"], values["hash"], values["seed"]) == (1, config.name, config.hash, 0)
    assert (told.config, told.experiment, told.scale, told.commit["id"]) == (config, "a table", "cpu", "a commit")
    assert (told.learned, told.precision) == ({"of it": [1, 2.5]}, "float32")
    assert told.engine == {"step": "eager", "devices": ["cpu"], "jobs": 3}
    text, images = {"train_windows": 32, "test_windows": 16, "context": 8}, {"train_images": 32, "test_images": 20}
    named = {"name": config.dataset, "source": data.source, "fingerprint": data.fingerprint}
    assert told.data == named | (text if config.is_text else images)
    assert told.versions["geolib"] == geolib.__version__
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", told.started)
    assert 0 < told.metrics[0]["seconds"] < told.metrics[-1]["seconds"] <= told.wall_seconds
    assert told.images_per_second > 3 * 32 / told.wall_seconds
    assert told.peak_memory["of"] == "process"
    assert 2**26 < told.peak_memory["bytes"] <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if not config.is_text:
        right = bits_of(told.answers, 20)
        assert right.mean() == told.accuracy
        assert packed_bits(right.tolist()) == packed_bits(torch.tensor(right)) == told.answers


@KINDS
def test_curves_and_words_are_those_of_the_rows(made, config):
    record, measure = made[config.dataset], "test_bits" if config.is_text else "test_accuracy"
    assert record.curve("train_loss") == ([1, 2, 3], [row["train_loss"] for row in record.metrics])
    assert record.curve(measure) == ([2, 3], [record.metrics[1][measure], record.metrics[2][measure]])
    assert record.result == (f"{record.bits:.3f} bits a token" if config.is_text else f"{100 * record.accuracy:.2f}%")
    with pytest.raises(LabError, match=r"^metric: got 'accuracy'; this record has epoch, .*train_loss$"):
        record.curve("accuracy")


def test_what_json_cannot_hold_is_told_before_anything_is_written(made, tmp_path):
    for value in ({1}, math.nan):
        with pytest.raises(LabError, match=r"^after: it returned something that JSON cannot hold \("):
            run(IMAGES, after=lambda _, value=value: {"x": value}, out=tmp_path, device="cpu", quiet=True)
    with pytest.raises(ValueError, match="JSON"):
        write(replace(made["digits"], wall_seconds=math.nan), tmp_path)
    assert read_all(tmp_path) == []


@KINDS
def test_a_damaged_record_is_named_and_says_what_is_wrong(made, config, tmp_path):
    whole = json.loads(json.dumps(made[config.dataset].to_dict()))
    first, second, last = whole["metrics"]
    merit = "test_bits" if config.is_text else "test_accuracy"
    optional = {"name", "seed", "engine", "learned", "answers"}  # old records lack them, or they are said twice
    spoilt = [({key: value for key, value in whole.items() if key != lost}, lost) for lost in whole.keys() - optional]
    spoilt += [
        ([], "list"),
        (whole | {"schema": 2}, "schema 1"),
        (whole | {"hash": "0"}, f"hash {config.hash}"),
        (whole | {"config": {"dataset": "digits", "method": "gone"}}, "'gone'"),
        (whole | {"metrics": []}, "index"),
        (whole | {"metrics": [first, last]}, "epoch"),
        (whole | {"metrics": [second, first, last]}, "epoch"),
        (whole | {"metrics": [first, second, {key: last[key] for key in last.keys() - {merit}}]}, merit),
        (whole | {"metrics": [first | {"train_loss": math.nan}, second, last]}, "finite"),
        (whole | {"metrics": [first | {"train_loss": "1"}, second, last]}, "real number"),
    ]
    path = tmp_path / "record.json"
    for values, says in spoilt:
        path.write_text(json.dumps(values))
        with pytest.raises(LabError, match=f"^{path}: not a record, [^\n]*; delete it and run again$") as refused:
            read(path)
        assert says in str(refused.value)
    path.write_text(json.dumps({key: value for key, value in whole.items() if key not in optional}))
    old = read(path)
    assert (old.engine, old.learned, old.answers, old.metrics) == ({}, {}, "", made[config.dataset].metrics)


# Where it is ----------------------------------------------------------------------------------------------------------


def test_all_records_below_a_folder_are_read_in_the_order_of_their_names_and_what_is_none_is_named(made, tmp_path):
    ours = [replace(made["digits"], config=replace(IMAGES, seed=seed)) for seed in (2, 0, 1)]
    for record, experiment in zip(ours, ("b", "b", None)):
        write(replace(record, experiment=experiment), tmp_path)
    (tmp_path / BENCHES).mkdir()
    (tmp_path / BENCHES / "speed.json").write_text("{}")
    write(replace(ours[0], experiment="b"), tmp_path / ON_GPU)  # in a table of its own
    assert [r.config.seed for r in read_all(tmp_path / ON_GPU)] == [2]
    assert [(r.config.seed, r.experiment) for r in read_all(str(tmp_path))] == [(0, "b"), (2, "b"), (1, None)]
    assert read_all(tmp_path / "none") == []
    assert record_files(tmp_path / "b") == [path_of(ours[i].config, "b", tmp_path) for i in (1, 0)]
    bad = {"0": b"{", "1": b"\xff{}", "2": b"[]"}
    for name, content in bad.items():
        (tmp_path / "b" / f"{name}.json").write_bytes(content)
    for name in bad:
        with pytest.raises(LabError, match=f"^{tmp_path / 'b' / name}.json: not a record, "):
            read_all(tmp_path / "b")
        (tmp_path / "b" / f"{name}.json").unlink()
    with pytest.raises(LabError, match=r"none\.json: cannot be read \(No such file or directory\)$"):
        read(tmp_path / "none.json")


def full_disk(*words, **options):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_run_that_cannot_be_recorded_does_not_begin(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    for out in (tmp_path / "file", tmp_path / "full"):
        with pytest.raises(LabError, match=r"cannot write there \(.*\); name another with --out DIR$"):
            run(IMAGES, data="no data at all", out=out, device="cpu", quiet=True)
        monkeypatch.setattr(records.tempfile, "TemporaryFile", full_disk)


# Where it was made ----------------------------------------------------------------------------------------------------


def test_the_commit_is_that_of_the_checkout_and_says_whether_the_library_was_changed(tmp_path, monkeypatch):
    def git(*words):
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        return subprocess.run(["git", "-C", tmp_path, *who, *words], check=True, capture_output=True, text=True).stdout

    monkeypatch.setattr(records, "checkout", lambda: tmp_path)
    assert records.commit() is None
    git("init", "-q")
    (tmp_path / "geolib").mkdir()
    (tmp_path / "geolib" / "a.py").write_text("1")
    assert records.commit() is None, "there is no commit yet"
    git("add", ".")
    git("commit", "-qm", "a")
    (tmp_path / "notes.txt").write_text("beside the library")
    assert records.commit() == {"id": git("rev-parse", "HEAD").strip(), "dirty": False}
    (tmp_path / "geolib" / "a.py").write_text("2")
    assert records.commit()["dirty"]
    monkeypatch.setenv("PATH", "")
    assert records.commit() is None, "there is no git"


def test_a_device_is_told_by_its_name_and_a_processor_with_its_threads(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU {device.index}")
    assert records.device_name(torch.device("cuda", 1)) == "GPU 1"
    monkeypatch.setattr(platform, "processor", lambda: "a processor")
    for told, name in (("model name\t: A fast one: 3 GHz\nflags", "A fast one: 3 GHz"), ("", "a processor")):
        monkeypatch.setattr(Path, "read_text", lambda path, told=told: told)
        threads = [records.device_name(torch.device("cpu"), number) for number in (None, 3)]
        assert threads == [f"{name}, 1 thread", f"{name}, 3 threads"]


# Files that are whole or not there ------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["open", "write", "fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_whole_and_nothing_else(tmp_path, monkeypatch, call):
    path = tmp_path / "new folder" / "a.json"
    write_atomically(path, lambda file: file.write(b"old"))
    if call != "write":
        monkeypatch.setattr(f"geolib.lab.files.{'Path' if call == 'open' else 'os'}.{call}", full_disk)
    with pytest.raises(LabError, match=r"(cannot write there|could not be written) \(No space left on device\); "):
        write_atomically(path, lambda file: (file.write(b"ne"), full_disk() if call == "write" else None))
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert list(path.parent.iterdir()) == [path]
    before = os.umask(0o026)
    write_atomically(path, lambda file: file.write(b"new"))  # with the permissions of any other file
    os.umask(before)
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", 0o640)


def test_a_removed_file_takes_what_killed_writers_left_of_it(tmp_path):
    kill = "file.write(b'half'), file.flush(), os.kill(os.getpid(), 9)"
    script = f"import os; from geolib.lab.files import *; write_atomically(Path('run-[1].pt'), lambda file: ({kill}))"
    assert subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=False).returncode == -9
    assert [path.name[:12] for path in tmp_path.iterdir()] == [".run-[1].pt."]
    others = {tmp_path / name for name in ("run-10.pt", ".run-1.pt.abc", ".run-[1].abc", "run-[1].pt.txt")}
    for path in (tmp_path / "run-[1].pt", *others):
        path.touch()
    for _ in range(2):
        remove(tmp_path / "run-[1].pt")
    assert set(tmp_path.iterdir()) == others
