"""The bench that says where the time of a training step goes, and its record."""

import itertools
import time

import pytest
import torch

from geolib.lab import Config
from geolib.lab.benches import parts, saved

TINY = Config("cifar10", "riemannformer", width=16, heads=2, layers=1, batch=2, patch=8)


def test_an_operation_of_the_passes_belongs_to_its_kind():
    assert parts.part_of("addmm") == "products with weights"
    assert parts.part_of("_scaled_dot_product_flash_attention_for_cpu_backward") == "attention"
    assert parts.part_of("bmm") == "attention"
    assert parts.part_of("gelu") == "number by number"


def test_the_clocks_count_operations_and_not_what_lies_between(monkeypatch):
    ticks = itertools.count(0, 5)  # each look at the clock is 5 nanoseconds after the one before
    monkeypatch.setattr(time, "thread_time_ns", lambda: next(ticks))
    x = torch.ones(2, 2)
    with parts.Clocks() as clocks:
        x = x @ x
        x = x + 1
        clocks.part = "optimiser"
        x = x @ x
    assert clocks.spent == {"products with weights": 5, "number by number": 5, "optimiser": 5}


def test_shares_are_of_the_time_in_operations():
    found = parts.shares({"attention": 1.0, "optimiser": 3.0})
    assert found == dict.fromkeys(parts.PARTS, 0.0) | {"attention": 0.25, "optimiser": 0.75}


@pytest.mark.parametrize("precision", parts.PRECISIONS)
def test_a_real_step_trains_and_has_every_part(precision):
    step = parts.Step(TINY, precision)
    before = [p.detach().clone() for p in step.model.parameters()]
    found = step.watched()
    assert set(found) == set(parts.PARTS)
    assert any(not torch.equal(p, old) for p, old in zip(step.model.parameters(), before))


def test_the_record_has_every_size_once():
    record = saved.read("parts")
    sizes = [tuple(row[key] for key in ("batch", "width", "tokens", "precision")) for row in record["rows"]]
    assert sizes == list(itertools.product(parts.BATCHES, parts.WIDTHS, parts.TOKENS, parts.PRECISIONS))
    for row in record["rows"]:
        assert tuple(row["shares"]) == parts.PARTS
        assert sum(row["shares"].values()) == pytest.approx(1, abs=1e-3)
        assert row["cpu_seconds"] > 0
