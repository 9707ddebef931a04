"""The memory of a step by count: what is held and let go, tensors with numbers beside those without, the page."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from geolib.lab.benches import memory, saved
from geolib.lab.config import Config
from geolib.lab.experiments import EXPERIMENTS, find
from geolib.lab.models import ViT

PAGE = Path(__file__).resolve().parent.parent / "book" / "repeat-a-table.md"


def test_what_is_let_go_is_not_counted_any_more_and_views_are_counted_once():
    with memory.Held() as held:
        x = torch.zeros(256)
        y = x.view(16, 16)[2:]
        assert held.bytes == 1024
        z = y + 1
        assert held.bytes == 1024 + 14 * 16 * 4
        del z
        assert (held.bytes, held.peak) == (1024, 1024 + 14 * 16 * 4)
        del x
        assert held.bytes == 1024  # the view keeps it
        del y
        assert held.bytes == 0


def test_two_layers_keep_what_their_derivatives_need():
    model = nn.Sequential(nn.Linear(8, 32, bias=False), nn.Tanh(), nn.Linear(32, 1, bias=False))
    x = torch.randn(64, 8)
    with memory.Held() as held:
        y = model(x)
        # the weights; tanh's output for itself and the last layer, the product behind it being gone; y
        assert held.bytes == 4 * (8 * 32 + 32 + 64 * 32 + 64)
        y.sum().backward()
    assert held.bytes >= 2 * 4 * (8 * 32 + 32)  # the gradients too


@pytest.mark.parametrize("method", ["rope-axial", "learned", "liere", "alibi", "lf"])
def test_tensors_without_numbers_are_counted_as_those_with(method):
    config = Config("digits", method, patch=1, batch=4, width=32, heads=2, layers=2)
    model = ViT(config, (1, 8, 8), memory.CLASSES)
    optimizer = memory.adamw(model, config, memory.CPU)
    with memory.Held() as held:
        for tensor in (*model.parameters(), *model.buffers()):
            held.hold(tensor.untyped_storage())
        x, answers = torch.zeros(4, 1, 8, 8), torch.zeros(4, dtype=torch.long)
        for _ in range(2):
            optimizer.zero_grad()
            scores = model(x)
            F.cross_entropy(scores, answers).backward()
            optimizer.step()
            del scores
    assert memory.peak(config, bf16=False) == pytest.approx(held.peak, rel=0.1)


def test_what_a_step_keeps_grows_with_the_batch_and_halves_in_bfloat16():
    config = find("riemannformer-table1").config("full", "rope", "cifar10", seed=0)
    one, two, three = (memory.peak(replace(config, batch=64 * n), False) for n in (1, 2, 3))
    assert three - two == pytest.approx(two - one, rel=0.02)
    assert 0.4 < memory.peak(config, True) / memory.peak(config, False) < 0.7


def test_a_run_tells_the_largest_model_of_each_experiment():
    rows = memory.run(("digits-powers", "sympow-long", "liere-voxel-blocks"))
    assert [(row["experiment"], row["row"]) for row in rows] == [("digits-powers", "power-8")]
    assert rows[0]["batch"] == find("digits-powers").config("full", "power-8", "digits", 0).batch


def test_the_page_says_what_the_record_says():
    recorded = {row["experiment"]: row for row in saved.read("memory")["rows"]}
    assert {name for name, row in recorded.items() if row["fp32"] >= 2} <= set(EXPERIMENTS)
    told = re.findall(r"(?m)^\| `([\w-]+)` \|[^|]*\| ([\d.]+) \| ([\d.]+) \| ([\w, ]+) \|$", PAGE.read_text("utf-8"))
    assert {name for name, *_ in told} == {name for name, row in recorded.items() if row["fp32"] >= 2}
    for name, bf16, fp32, card in told:
        row = recorded[name]
        assert (float(bf16), float(fp32)) == (round(row["bf16"], 1), round(row["fp32"], 1))
        assert card == memory.smallest_card(row)
