"""Records of the lab: what one holds, how it is written and read, what is refused, and where it says it was made."""

import errno
import io
import json
import math
import os
import platform
import re
import stat
import subprocess
import sys
import types
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from test_lab_options import little_documents

import geolib
from geolib.lab import Config, LabError, files, load, read_all, records, run, train
from geolib.lab.config import Options
from geolib.lab.files import BENCHES, ON_GPU, RECORDED, remove, write_atomically
from geolib.lab.records import Folders, Record, load_records, path_of, read, record_files, write

pytestmark = pytest.mark.usefixtures("one_thread")

TINY = {"width": 8, "heads": 2, "layers": 1, "batch": 16, "epochs": 3, "eval_every": 2, "train_size": 32}
CONFIGS = {
    "images": Config("digits", "rope", {"base": 9.0}, patch=4, test_size=20, **TINY),
    "documents": Config("documents", "sympow+gates", context=8, test_size=16, **TINY),
}
kinds = pytest.mark.parametrize("kind", CONFIGS)


@pytest.fixture(scope="module")
def made():
    """made(kind): the record of a run, made once for all tests."""
    found = {}

    def of(kind):
        data = little_documents() if kind == "documents" else None
        return found.get(kind) or found.setdefault(kind, run(CONFIGS[kind], data=data, device="cpu", quiet=True))

    return of


# What it holds -------------------------------------------------------------------------------------------------------


@kinds
def test_a_record_says_what_was_run_on_what_and_comes_back_from_its_file(made, kind, tmp_path, monkeypatch):
    record = made(kind)
    monkeypatch.setattr(records, "commit", lambda: {"id": "a commit", "dirty": True})
    data = little_documents() if kind == "documents" else None
    told = run(
        record.config,
        data=data,
        out=tmp_path,
        experiment="a table",
        scale="cpu",
        jobs=3,
        after=lambda finished: {"numbers": (1, 2.5), "parts": len(list(finished.model.parameters()))},
        device="cpu",
        quiet=True,
    )
    path = tmp_path / "a table" / f"{record.config.name}.json"
    assert [p.relative_to(tmp_path) for p in tmp_path.rglob("*") if p.is_file()] == [path.relative_to(tmp_path)]
    assert read(path) == told == Record.from_dict(json.loads(path.read_text()))
    assert told.learned == {"numbers": [1, 2.5], "parts": told.learned["parts"]}
    assert (told.experiment, told.scale, told.engine["jobs"]) == ("a table", "cpu", 3)
    assert (record.experiment, record.scale, record.engine["jobs"], record.learned) == (None, None, 1, {})
    assert told.engine == {"step": "eager", "why": "", "processes": 1, "devices": ["cpu"], "jobs": 3}
    text, values = path.read_text(), json.loads(path.read_text())
    assert (values["name"], values["hash"], values["seed"]) == (told.name, told.config.hash, told.config.seed)
    assert values["schema"] == 1
    assert values["config"] == json.loads(json.dumps(told.config.to_dict()))
    assert len(re.findall(r'^ *\{"epoch": \d, [^\n]*\},?$', text, re.M)) == len(told.metrics) == 3
    assert text.startswith('{\n "schema": 1,\n')
    assert text.endswith("}\n")
    assert str(tmp_path) not in text
    assert not {"learned", "engine"} & set(replace(told, learned={}, engine={}).to_dict())
    sizes = {"train_windows": 32, "test_windows": 16, "context": 8}
    sizes = sizes if kind == "documents" else {"train_images": 32, "test_images": 20}
    assert {key: told.data[key] for key in sizes} == sizes
    assert set(told.data) == {"name", "source", "fingerprint", *sizes}
    assert told.data["fingerprint"] == (data or load("digits")).fingerprint
    assert told.commit == {"id": "a commit", "dirty": True}
    assert told.versions == {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "geolib": geolib.__version__,
    }
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", told.started)
    assert 0 < told.metrics[0]["seconds"] < told.metrics[-1]["seconds"] <= told.wall_seconds
    assert told.images_per_second > 3 * 32 / told.wall_seconds
    assert told.peak_memory["of"] == "process"
    assert told.peak_memory["bytes"] > 1e8
    assert (told.device, told.precision) == (records.device_name(torch.device("cpu")), "float32")


@kinds
def test_curves_and_words_are_those_of_the_rows(made, kind):
    record = made(kind)
    measure = "test_bits" if kind == "documents" else "test_accuracy"
    assert record.curve("train_loss") == ([1, 2, 3], [row["train_loss"] for row in record.metrics])
    assert record.curve(measure) == ([2, 3], [record.metrics[1][measure], record.metrics[2][measure]])
    if kind == "documents":
        assert record.result == f"{record.metrics[-1]['test_bits']:.3f} bits a token"
        assert record.speed == f"{8 * record.images_per_second:.0f} tokens/s"
    else:
        assert record.result == f"{100 * record.metrics[-1]['test_accuracy']:.2f}%"
        assert record.speed == f"{record.images_per_second:.0f} images/s"
    known = ", ".join(sorted({"epoch", "train_loss", "seconds", "test_loss", measure} & set(record.metrics[-1])))
    with pytest.raises(LabError, match=f"^metric: got 'accuracy'; this record has {known}$"):
        record.curve("accuracy")


def test_what_json_cannot_hold_is_told_before_anything_is_written(tmp_path):
    for value in ({1}, math.nan):
        with pytest.raises(LabError, match=r"^after: it returned something that JSON cannot hold \("):
            run(CONFIGS["images"], after=lambda _, value=value: {"x": value}, out=tmp_path, device="cpu", quiet=True)
    assert read_all(tmp_path) == []


def test_a_record_that_no_file_can_hold_leaves_none(made, tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        write(replace(made("images"), wall_seconds=math.nan), tmp_path)
    assert not any(tmp_path.iterdir())


def test_options_are_those_given_and_the_words_beside_them_and_the_memory_is_that_of_the_device(monkeypatch):
    options = Options(device="cpu", precision="bfloat16")
    assert run(CONFIGS["images"], options=options, quiet=True).precision == "bf16"
    assert run(CONFIGS["images"], options=options, precision="float32", quiet=True).precision == "float32"
    finished = train(CONFIGS["images"], options=replace(options, quiet=True))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    finished.device = torch.device("cuda", 1)
    told = records.record_of(finished)
    assert (told.device, told.peak_memory["of"]) == ("a GPU", "device")
    assert told.engine == {"step": "eager", "why": "", "processes": 1, "devices": ["cuda:1"], "jobs": 1}


@kinds
def test_memory_is_told_in_bytes_more_than_pytorch_alone_takes_and_no_more_than_there_is(made, kind):
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 2**26 < made(kind).peak_memory["bytes"] <= there


# What is refused -----------------------------------------------------------------------------------------------------

WRONG = {
    **dict.fromkeys(("config", "peak_memory", "versions", "data"), ([], None)),
    **dict.fromkeys(("experiment", "scale"), (3, [])),
    **dict.fromkeys(("device", "precision", "started"), (3, None)),
    **dict.fromkeys(("wall_seconds", "images_per_second"), ("1", None)),
    "metrics": ({}, None),
    "commit": ("abc", []),
}


def refused(values, says):
    with pytest.raises(LabError, match=f"^{re.escape(says)}$"):
        Record.from_dict(values)


def test_a_field_that_is_missing_or_of_another_kind_is_named(made):
    whole = made("images").to_dict()
    assert set(WRONG) | {"schema", "name", "hash", "seed", "engine"} == set(whole)
    for key, values in WRONG.items():
        refused({k: v for k, v in whole.items() if k != key}, f"{key} is missing")
        for value in values:
            refused(whole | {key: value}, f"{key} is {value!r}")
    for key in ("engine", "learned"):
        refused(whole | {key: [1]}, f"{key} is [1]")
        assert getattr(Record.from_dict({k: v for k, v in whole.items() if k != key}), key) == {}
    for value in ([], "a record", None):
        refused(value, "it is not a JSON object")
    refused(whole | {"schema": 2}, "schema is 2, this version reads 1")
    name = whole["hash"]
    refused(whole | {"hash": "0"}, f"hash is '0', the config's is {name!r}")
    refused({k: v for k, v in whole.items() if k != "hash"}, f"hash is None, the config's is {name!r}")
    for config, says in (
        ({"dataset": "digits", "method": "gone"}, "config: method: got 'gone'"),
        ({}, "config: config: "),
    ):
        with pytest.raises(LabError, match=f"^{says}"):
            Record.from_dict(whole | {"config": config})


@kinds
def test_metrics_are_a_row_of_finite_numbers_for_each_epoch_and_end_in_an_evaluation(made, kind):
    whole = made(kind).to_dict()
    first, second, last = whole["metrics"]
    uneven = "metrics are not one row for each of the 3 epochs"
    for rows in ([first, second], [first, second, last, last], [second, first, last], [first, second, "row"], []):
        refused(whole | {"metrics": rows}, uneven)
    for value in (math.nan, -math.inf, "1", None):
        rows = [first | {"train_loss": value}, second, last]
        refused(whole | {"metrics": rows}, "metrics hold something that is not a finite number")
    key = "test_bits" if kind == "documents" else "test_accuracy"
    says = f"metrics: the last {key} is not " + ("a number of at least 0" if kind == "documents" else "in [0, 1]")
    for value in (-0.001, *([] if kind == "documents" else [1.001])):
        refused(whole | {"metrics": [first, second, last | {key: value}]}, says)
    refused(whole | {"metrics": [first, second, {k: v for k, v in last.items() if k != key}]}, says)
    for value in (0, 1, 1.0, *([8.5] if kind == "documents" else [])):
        assert Record.from_dict(whole | {"metrics": [first, second, last | {key: value}]}).metrics[-1][key] == value


# Where it lies -------------------------------------------------------------------------------------------------------


def test_what_stands_apart_was_made_on_a_gpu_where_a_processor_has_made_the_table():
    apart, others = read_all(RECORDED / ON_GPU), read_all()
    assert apart
    assert {record.peak_memory["of"] for record in apart} == {"device"}
    of_processors = {(r.experiment, r.scale) for r in others if r.peak_memory["of"] == "process"}
    assert {(record.experiment, record.scale) for record in apart} <= of_processors


def test_all_records_below_a_folder_are_read_in_the_order_of_their_names_and_what_is_none_is_named(made, tmp_path):
    ours = [replace(made("images"), config=replace(CONFIGS["images"], seed=seed)) for seed in (2, 0, 1)]
    for record, experiment in zip(ours, ("b", "b", None)):
        write(replace(record, experiment=experiment), tmp_path)
    (tmp_path / BENCHES).mkdir()
    (tmp_path / BENCHES / "speed.json").write_text("{}")
    write(replace(ours[0], experiment="b"), tmp_path / ON_GPU)  # in a table of its own
    assert [r.config.seed for r in read_all(tmp_path / ON_GPU)] == [2]
    (tmp_path / "b" / "notes.txt").write_text("{}")
    assert [(r.config.seed, r.experiment) for r in read_all(tmp_path)] == [(0, "b"), (2, "b"), (1, None)]
    assert [r.config.seed for r in read_all(str(tmp_path / "b"))] == [0, 2]
    assert read_all(tmp_path / "none") == []
    assert record_files(tmp_path / "b") == [path_of(ours[i].config, "b", tmp_path) for i in (1, 0)]
    bad = {
        "0": (b"{", "its JSON does not parse"),
        "1": (b"\xff{}", "its JSON does not parse"),
        "2": (b"[]", "it is not"),
    }
    for name, (content, _) in bad.items():
        (tmp_path / "b" / f"{name}.json").write_bytes(content)
    found, problems = load_records(tmp_path / "b")
    assert [record.config.seed for record in found] == [0, 2]
    for problem, (name, (_, says)) in zip(problems, bad.items(), strict=True):
        assert re.match(
            f"{re.escape(str(tmp_path / 'b' / name))}.json: not a record, {says}.*; delete it and run again$", problem
        )
    with pytest.raises(LabError, match=f"^{re.escape(problems[0])}$"):
        read_all(tmp_path / "b")
    with pytest.raises(LabError, match=r"none\.json: cannot be read \(No such file or directory\)$"):
        read(tmp_path / "none.json")


def test_records_go_to_the_folder_named_else_to_the_books_and_never_among_an_installed_library(tmp_path, monkeypatch):
    config = CONFIGS["images"]
    assert Folders.below(str(tmp_path)) == Folders(tmp_path, tmp_path / "runs")
    assert Folders.below(tmp_path).checkpoint(config) == tmp_path / "runs" / f"{config.name}.pt"
    assert path_of(config, None, tmp_path) == tmp_path / f"{config.name}.json"
    monkeypatch.setattr(records, "checkout", lambda: tmp_path)
    assert Folders.usual() == Folders(tmp_path / "book" / "results", tmp_path / "runs")
    monkeypatch.setattr(records, "checkout", lambda: None)
    with pytest.raises(LabError, match=r"^geolib is an installed package here.* --out DIR$"):
        Folders.usual()
    assert records.commit() is None
    new = Folders.below(tmp_path / "a" / "b")
    new.check()
    assert [*new.records.iterdir(), *new.checkpoints.iterdir()] == [new.checkpoints]
    (tmp_path / "file").touch()
    for wrong in (Folders(tmp_path / "file", tmp_path), Folders(tmp_path, tmp_path / "file")):
        with pytest.raises(LabError, match=r"file: cannot write there \(File exists\); name another with --out DIR$"):
            wrong.check()
    monkeypatch.setattr(
        records.tempfile, "TemporaryFile", lambda dir: full_disk() if dir == new.checkpoints else io.BytesIO()
    )
    with pytest.raises(
        LabError, match=r"b/runs: cannot write there \(No space left on device\); name another with --out DIR$"
    ):
        new.check()


def full_disk(*words, **options):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("project", [True, False])
@pytest.mark.parametrize("book", [True, False])
def test_a_checkout_is_a_project_with_the_books_records_and_elsewhere_they_lie_beside_the_lab(
    tmp_path, monkeypatch, project, book
):
    lab = tmp_path / "geolib" / "lab"
    lab.mkdir(parents=True)
    monkeypatch.setattr(files, "__file__", str(lab / "files.py"))
    if project:
        (tmp_path / "pyproject.toml").touch()
    if book:
        (tmp_path / "book" / "results").mkdir(parents=True)
    assert files.checkout() == (tmp_path if project and book else None)
    assert files.recorded() == (tmp_path / "book" / "results" if project and book else lab / "results")


def test_a_run_that_cannot_be_recorded_does_not_begin_and_its_checkpoint_lies_with_the_record(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(LabError, match="cannot write there"):
        run(CONFIGS["images"], data="no data at all", out=tmp_path / "file", device="cpu", quiet=True)
    seen = []
    elsewhere = Options(device="cpu", checkpoint=tmp_path / "elsewhere.pt", quiet=True)
    kept = Folders(tmp_path / "records", tmp_path / "checkpoints")
    after = lambda finished: seen.append(finished.options.checkpoint) or {}  # noqa: E731
    run(CONFIGS["images"], out=kept, options=elsewhere, after=after)
    assert seen == [kept.checkpoint(CONFIGS["images"])]
    assert not any(kept.checkpoints.iterdir())


# Where it was made ---------------------------------------------------------------------------------------------------


def test_the_commit_is_that_of_the_checkout_and_says_whether_the_library_was_changed(tmp_path, monkeypatch):
    def git(*words):
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        return subprocess.run(
            ["git", "-C", str(tmp_path), *who, *words], check=True, capture_output=True, text=True
        ).stdout

    monkeypatch.setattr(records, "checkout", lambda: tmp_path)
    assert records.commit() is None
    git("init", "-q")
    (tmp_path / "geolib").mkdir()
    (tmp_path / "geolib" / "a.py").write_text("1")
    assert records.commit() is None, "there is no commit yet"
    git("add", ".")
    git("commit", "-qm", "a")
    number = git("rev-parse", "HEAD").strip()
    (tmp_path / "notes.txt").write_text("beside the library")
    assert records.commit() == {"id": number, "dirty": False}
    (tmp_path / "geolib" / "a.py").write_text("2")
    assert records.commit() == {"id": number, "dirty": True}


@pytest.mark.parametrize(
    "error", [OSError("no git"), subprocess.CalledProcessError(128, "git"), subprocess.TimeoutExpired("git", 20)]
)
def test_where_git_fails_or_does_not_answer_no_commit_is_told(tmp_path, monkeypatch, error):
    def fail(words, *, timeout, **options):
        assert 1 < timeout <= 60
        raise error

    (tmp_path / ".git").mkdir()
    monkeypatch.setattr(records, "checkout", lambda: tmp_path)
    monkeypatch.setattr(subprocess, "run", fail)
    assert records.commit() is None


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ("processor\t: 0\nmodel name\t: A fast one: 3 GHz\nmodel name\t: Another\n", "A fast one: 3 GHz"),
        ("processor\t: 0\n", "a processor"),
        (None, "a processor"),
    ],
)
@pytest.mark.parametrize(("count", "threads"), [(1, "1 thread"), (2, "2 threads")])
def test_a_processor_is_told_by_its_name_and_threads(monkeypatch, told, name, count, threads):
    def read_text(path, *_):
        assert path == Path("/proc/cpuinfo")
        if told is None:
            raise OSError("not Linux")
        return told

    monkeypatch.setattr(Path, "read_text", read_text)
    monkeypatch.setattr(torch, "get_num_threads", lambda: count)
    monkeypatch.setattr(
        records, "platform", types.SimpleNamespace(processor=lambda: "a processor", machine=lambda: "m")
    )
    assert records.device_name(torch.device("cpu")) == f"{name}, {threads}"
    monkeypatch.setattr(records, "platform", types.SimpleNamespace(processor=lambda: "", machine=lambda: "a processor"))
    assert records.device_name(torch.device("cpu")) == f"{name}, {threads}"
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU {device.index}")
    assert records.device_name(torch.device("cuda", 1)) == "GPU 1"


# Files that are whole or not there -----------------------------------------------------------------------------------


def test_a_file_is_replaced_whole_with_the_permissions_of_any_other_and_kept_when_writing_fails(tmp_path):
    path, beside = tmp_path / "new" / "folder" / "file.bin", tmp_path / "beside"
    before = os.umask(0o026)
    try:
        write_atomically(path, lambda file: file.write(b"first"))
        beside.touch()
    finally:
        assert os.umask(before) == 0o026
    assert path.read_bytes() == b"first"
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(beside.stat().st_mode) == 0o640

    with pytest.raises(ZeroDivisionError):
        write_atomically(path, lambda file: 1 / 0)
    assert [p.name for p in path.parent.iterdir()] == ["file.bin"]
    assert path.read_bytes() == b"first"
    with pytest.raises(LabError, match=r"file\.bin: cannot write there \(File exists\); name another folder$"):
        write_atomically(path / "below", lambda file: None)


@pytest.mark.parametrize("call", ["open", "write", "fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_whole_and_nothing_else(tmp_path, monkeypatch, call):
    path = tmp_path / "a.json"
    write_atomically(path, lambda file: file.write(b"old"))

    def half(file):
        file.write(b"ne")
        assert next(p for p in tmp_path.iterdir() if p != path).name.startswith(".a.json.")
        full_disk()

    if call != "write":
        monkeypatch.setattr(f"geolib.lab.files.{'Path' if call == 'open' else 'os'}.{call}", full_disk)
    told = r": cannot write there" if call == "open" else r"a\.json: could not be written"
    after = "name another folder" if call == "open" else "nothing was changed"
    with pytest.raises(LabError, match=rf"{told} \(No space left on device\); {after}$"):
        write_atomically(path, half if call == "write" else lambda file: file.write(b"new"))
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_removed_file_takes_what_killed_writers_left_of_it(tmp_path):
    kill = "file.write(b'half'), file.flush(), os.kill(os.getpid(), 9)"
    script = f"import os; from geolib.lab.files import *; write_atomically(Path('run-[1].pt'), lambda file: ({kill}))"
    assert subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=False).returncode == -9
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".run-[1].pt.")
    others = {tmp_path / name for name in ("run-10.pt", ".run-1.pt.abc", ".run-[1].abc", "run-[1].pt.txt")}
    for path in (tmp_path / "run-[1].pt", *others):
        path.touch()
    remove(tmp_path / "run-[1].pt")
    remove(tmp_path / "run-[1].pt")
    assert set(tmp_path.iterdir()) == others
