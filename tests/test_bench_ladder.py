"""The bench that climbs from a plain loop to the lab's, and the records of measurements."""

import json
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from geolib.lab import Config, LabError, read_all
from geolib.lab.__main__ import main
from geolib.lab.benches import operations, saved
from geolib.lab.benches import speedup_ablation as ladder
from geolib.lab.benches.training import random_images
from geolib.lab.counting import Counting
from geolib.lab.records import load_records

CONFIG = Config("cifar10", "riemannformer", width=16, heads=2, layers=2, batch=8, patch=8)


@pytest.fixture(scope="module")
def data():
    return random_images(8)


def gradients(model):
    return [p.grad for p in model.parameters()]


def test_every_rung_trains(data):
    pytest.importorskip("PIL")
    for name, step in ladder.rungs(CONFIG, data).items():
        losses = [float(step()) for _ in range(12)]
        assert losses[-1] < losses[0], name


def test_placing_in_every_layer_changes_operations_and_no_number(data):
    images = torch.randn(2, 3, 32, 32)
    outputs, counts = [], []
    for anew in (False, True):
        model = ladder.model_of(CONFIG, data, anew)
        with torch.no_grad(), Counting() as counting:
            outputs.append(model(images))
        counts.append(counting.operations.total())
    assert torch.equal(*outputs)
    assert counts[1] > counts[0]


def test_pieces_of_a_batch_add_up_to_its_gradient_and_loss(data):
    images = torch.randn(8, 3, 32, 32)
    found = []
    for pieces in (1, 3):  # of 3, 3 and 2 images
        model = ladder.model_of(CONFIG, data, anew=False)
        config = replace(CONFIG, lr=1e-9)
        step = ladder.step_of(model, config, lambda: images, data.y_train, "float32", pieces)
        found.append((step(), gradients(model)))
    assert_close(found[0], found[1], atol=1e-6, rtol=1e-4)


def test_the_best_of_the_turns_counts_and_the_first_does_not(monkeypatch):
    now, takes = [0.0], {"a": iter([9.0, 3.0, 2.0]), "b": iter([1.0, 4.0, 5.0])}
    monkeypatch.setattr("time.process_time", lambda: now[0])

    def step_of(name):
        def step():
            now[0] += next(takes[name])

        return step

    assert ladder.best({name: step_of(name) for name in takes}, 2) == {"a": 2.0, "b": 4.0}


def test_a_bench_leaves_a_record_that_is_no_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(operations, "run", lambda: [{"method": "none", "operations": 3}])
    path = tmp_path / "bench" / "operations.json"
    assert main(["bench", "operations", "--record", str(path)]) == 0
    record = saved.read("operations", tmp_path)
    assert record["rows"] == [{"method": "none", "operations": 3}]
    assert {"device", "cores", "load", "versions", "commit", "measured"} <= set(record)
    assert record == json.loads(path.read_text("utf-8"))
    assert load_records(tmp_path) == ([], [])
    with pytest.raises(LabError, match="no such record"):
        saved.read("ladder", tmp_path)


def test_the_books_measurements_are_of_the_benches_as_they_are():
    assert read_all()
    counted = saved.read("operations")
    row = next(row for row in counted["rows"] if row["method"] == "rope-axial")
    assert (
        row["operations"]
        == operations.count("rope-axial", {"layers": 6, "heads": 4, "width": 64, "patch": 4}).operations.total()
    )
    assert set(counted["before"]["operations"]) == {row["method"] for row in counted["rows"]}
    recorded = {row["rung"] for row in saved.read("ladder")["rows"]}
    assert recorded == {"plain loop", "data as tensors", "placed once", "bf16"} | {
        f"{base}, {what}" for base in ("placed once", "bf16") for what in ("in pieces", "compiled")
    }
