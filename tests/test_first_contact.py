"""What works on a machine is told part by part, and no part takes the report of another with it."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from geolib.encodings import METHODS
from geolib.lab import first_contact
from geolib.lab.__main__ import main
from geolib.lab.benches.saved import read
from geolib.lab.experiments.registry import EXPERIMENTS
from geolib.lab.first_contact import CONTEXTS, Part, attempt, parts, steps
from geolib.lab.text_attention import METHODS as READERS
from geolib.recurrence import crossing_length

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_every_method_and_every_experiment_is_a_part(tmp_path, kind):
    found = list(parts(tmp_path, torch.device(kind)))
    names = [part.name for part in found]
    assert len(names) == len(set(names))
    assert {f"steps on documents: {name} at {tokens}" for name in READERS for tokens in CONTEXTS} <= set(names)
    assert {f"steps: {name}" for name in METHODS} | {f"run: {name}" for name in EXPERIMENTS} <= set(names)
    assert ({"compiled: rope", "bench: training", "bench: sympow", "tests that need a GPU"} <= set(names)) == (
        kind == "cuda"
    )
    captured = [part for part in found if "captured" in part.words]
    assert len(captured) == (len(METHODS) + len(CONTEXTS) * len(READERS) if kind == "cuda" else 0)


def test_documents_are_read_by_all_pairs_and_in_chunks():
    dim = 16
    assert CONTEXTS[0] <= crossing_length(dim, 2) < CONTEXTS[1]
    (line,) = steps("sympow+gates@40", ["eager"])
    assert line.startswith("eager: was eager, loss ")


@pytest.mark.parametrize(
    ("code", "limit", "status", "said"),
    [
        ("print('all', 'well')", 60, "passed", "all well"),
        ("raise RuntimeError('no such kernel')", 60, "failed", "RuntimeError: no such kernel"),
        ("raise SystemExit(2)", 60, "skipped", ""),
        ("import os; os.abort()", 60, "failed", ""),
        ("import time; print('begun', flush=True); time.sleep(60)", 1.0, "stopped", "begun"),
    ],
)
def test_a_part_that_fails_or_hangs_or_crashes_is_told(code, limit, status, said):
    outcome = attempt(Part("it", ("-c", code), limit))
    assert (outcome.name, outcome.status) == ("it", status)
    assert outcome.said.endswith(said)
    assert outcome.seconds < 30


def test_a_part_that_hangs_takes_its_children_along(tmp_path):
    child = f"import time, pathlib; time.sleep(2); pathlib.Path({str(tmp_path / 'left')!r}).touch()"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    assert attempt(Part("it", ("-c", parent), 1.0)).status == "stopped"
    assert attempt(Part("wait", ("-c", "import time; time.sleep(2)"), 9)).status == "passed"
    assert not (tmp_path / "left").exists()


def test_the_report_is_there_after_each_part_and_says_what_failed(tmp_path, monkeypatch, capsys):
    seen = []

    def three(folder, device):
        yield Part("one: good", ("-c", "print('fine')"), 60)
        seen.append(json.loads((folder / "first-contact.json").read_text())["parts"])
        yield Part("one: bad", ("-c", "print('before'); raise ValueError('a kernel')"), 60)
        yield Part("two: other", ("-c", "print('never asked')"), 60)

    monkeypatch.setattr(first_contact, "parts", three)
    assert main(["first-contact", "--out", str(tmp_path), "--only", "one", "--only", "absent"]) == 1
    assert [part["name"] for part in seen[0]] == ["one: good"]
    record = json.loads((tmp_path / "first-contact.json").read_text())
    assert [(part["name"], part["status"]) for part in record["parts"]] == [
        ("one: good", "passed"),
        ("one: bad", "failed"),
    ]
    assert record["versions"]["torch"] == torch.__version__
    assert record["device"]
    text = (tmp_path / "first-contact.txt").read_text()
    assert text.splitlines()[0].endswith(": 1 passed, 1 failed")
    assert "--- one: bad\nbefore\nTraceback" in text
    assert "--- one: good" not in text
    assert "fine" in capsys.readouterr().out


def test_words_that_no_part_has_are_refused_with_the_parts(tmp_path, capsys):
    assert main(["first-contact", "--out", str(tmp_path), "--only", "nosuch"]) == 2
    assert "--only: got nosuch; the parts are" in (said := capsys.readouterr().err)
    assert "steps: rope-axial" in said


def test_steps_are_compared_with_the_cpu_s(monkeypatch):
    (line,) = steps("rope-pair", ["eager"])
    assert line.startswith("eager: was eager, loss ")
    monkeypatch.setattr(first_contact, "AGREE", 0.0)
    with pytest.raises(ValueError, match=r"rope-pair, eager: loss \d.\d+, the CPU's \d"):
        list(steps("rope-pair", ["eager"]))


def test_the_cpu_s_step_in_float32_is_what_every_form_of_the_device_at_hand_is_compared_with(monkeypatch):
    asked = []

    def trained(config, options):
        asked.append((options.device, options.step, options.precision))
        return SimpleNamespace(metrics=[{"train_loss": 2.0}], take_step=SimpleNamespace(form=options.step, why=""))

    monkeypatch.setattr(first_contact, "train", trained)
    assert len(list(steps("rope-pair", ["eager", "captured"]))) == 2
    assert asked[0][::2] == ("cpu", "float32")
    assert asked[1:] == [(None, "eager", "float32"), (None, "captured", "float32")]


def test_a_real_part_on_this_machine(tmp_path):
    (part,) = [part for part in parts(tmp_path, torch.device("cpu")) if part.name == "steps: riemannformer"]
    outcome = attempt(part)
    assert outcome.status == "passed", outcome.said
    assert "the CPU's" in outcome.said


def test_on_the_gpu_of_the_record_every_method_was_recorded_and_lost_what_it_loses_on_a_processor():
    seen = read("first-contact")
    last = {row["method"]: row for row in seen["rows"]}
    assert set(last) == {*METHODS, *(f"{reader}@{context}" for reader in READERS for context in CONTEXTS)}
    assert {row["form"] for row in last.values()} == {"captured"}
    assert all(abs(row["loss"] - row["on_cpu"]) < 1e-5 for row in seen["rows"])
    fell_back = [row["method"] for row in seen["rows"] if row["form"] == "eager"]
    page = (REPOSITORY / "book" / "repeat-a-table.md").read_text("utf-8")
    assert (sorted(fell_back), seen["device"]) == (["compass", "spherical"], "NVIDIA H200")
    assert "On an H200" in page
    assert "spherical RoPE and the compass could not be recorded" in page
