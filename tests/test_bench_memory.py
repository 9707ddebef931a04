"""The memory of a step by count: what is held and let go, tensors with numbers beside those without, the page."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from geolib.lab import text_attention
from geolib.lab.benches import memory, saved
from geolib.lab.config import Config
from geolib.lab.experiments import EXPERIMENTS, find
from geolib.lab.gpt import GPT
from geolib.lab.text_attention import METHODS as READERS
from geolib.lab.vit import ViT

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


def test_a_batch_of_the_test_keeps_nothing_for_derivatives():
    config = Config("books", "softmax", width=32, heads=2, layers=2, context=256, batch=8)
    one, two = (memory.peak_of_test(replace(config, layers=n), False) for n in (2, 4))
    layers = one_layer_weights(config)
    assert two - one == pytest.approx(4 * 2 * layers, rel=1e-3)  # weights, two moments, gradients; buffers
    assert one > memory.EVALUATION_TOKENS["cuda"] * 256 * 4  # the scores of all tokens


def one_layer_weights(config):
    sizes = [sum(4 * p.numel() for p in GPT(replace(config, layers=n)).parameters()) for n in (1, 2)]
    return sizes[1] - sizes[0]


@pytest.mark.parametrize("method", READERS)
def test_a_sample_of_a_document_takes_no_square_a_token(method):
    config = Config("books", method, width=64, heads=2, layers=2, context=256, batch=8)
    one, two = (memory.peak(replace(config, batch=n), False) for n in (8, 16))
    of_a_token = (two - one) / (8 * config.context * config.layers)
    assert of_a_token < 4 * 160 * config.width  # numbers in float32; a rotation for each head would be 2,048 alone


def test_powers_take_the_forms_of_a_gpu():
    config = Config("books", "sympow+gates", width=64, heads=1, layers=1, context=4096, batch=1)
    assert memory.peak(config, False) < 0.9 * 4 * 4096**2  # the fused kernel makes not even one square of pairs
    short, long = (memory.peak(replace(config, context=n), False) for n in (8192, 16_384))
    assert short < long < 2.2 * short  # chunks
    assert text_attention.Power.on_cpu is not text_attention.Power.on_gpu  # what was changed for it is as it was


def test_a_run_tells_the_largest_model_of_each_experiment():
    rows = memory.run(("digits-powers", "liere-voxel-blocks"))
    assert [(row["experiment"], row["row"]) for row in rows] == [("digits-powers", "power-8")]
    assert rows[0]["batch"] == find("digits-powers").config("full", "power-8", "digits", 0).batch
    assert rows[0]["test_bf16"] < rows[0]["test_fp32"]


# Cards, the precision of a run there, and their GB.
CARDS = (("T4", "fp32", 16), ("L4", "bf16", 24), ("A100, 40 GB", "bf16", 40), ("A100 or H100, 80 GB", "bf16", 80))


def smallest_card(sizes):
    """The smallest card that a step's count fits on, in the precision it computes in; a test adapts."""
    return next((card for card, kind, room in CARDS if sizes[kind] * 2**30 < room * 1e9), "none")


def test_the_page_says_what_the_record_says():
    recorded = {row["experiment"]: row for row in saved.read("memory")["rows"]}
    assert {name for name, row in recorded.items() if row["fp32"] >= 2} <= set(EXPERIMENTS)
    line = r"(?m)^\| `([\w-]+)` \|[^|]*\| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\w, ]+) \|$"
    told = re.findall(line, PAGE.read_text("utf-8"))
    assert {name for name, *_ in told} == {name for name, row in recorded.items() if row["fp32"] >= 2}
    for name, bf16, fp32, test, card in told:
        row = recorded[name]
        said = float(bf16), float(fp32), float(test)
        assert said == tuple(round(row[key], 1) for key in ("bf16", "fp32", "test_fp32"))
        assert card == smallest_card(row)
