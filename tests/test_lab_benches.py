"""Benches: what is timed computes the same, ratios are the right way round, rows and records say what they measured."""

import pytest
import torch
import vision
from torch.testing import assert_close

from geolib.attention import attention
from geolib.lab import Config, LabError
from geolib.lab.benches import locality, saved, speedup_ablation, sympow, timing, vs_libraries
from geolib.recurrence import attention_form
from geolib.rotations import grid_positions

CPU, CONFIG = torch.device("cpu"), Config("cifar10", "riemannformer", width=16, heads=2, layers=2, batch=8, patch=8)


@pytest.fixture
def takes(monkeypatch):
    """takes(module, seconds): works take these seconds by name, and half of them of the processor."""

    def fixed(module, seconds):
        times = lambda name: {"seconds": seconds(name), "cpu_seconds": seconds(name) / 2}  # noqa: E731
        monkeypatch.setattr(module, "in_turns", lambda works, repeats: {name: times(name) for name in works})

    return fixed


def test_works_take_turns_and_the_best_after_the_first_counts(monkeypatch):
    now, order = [0.0], []

    def work(name, takes):
        def do():
            order.append(name)
            now[0] += takes.pop(0)

        return do

    monkeypatch.setattr(timing, "timer", lambda: now[0])
    monkeypatch.setattr(timing.time, "process_time", lambda: now[0] / 2)
    works = {"a": work("a", [0.5, 3.0, 2.0]), "b": work("b", [9.0, 4.0, 6.0]), "still": lambda: None}
    found = timing.in_turns(works, 2)
    assert found["a"] == {"seconds": 2.0, "cpu_seconds": 1.0}
    assert found["b"] == {"seconds": 4.0, "cpu_seconds": 2.0}
    assert 0 < found["still"]["seconds"] < 1e-6  # rates are divided by it
    assert order == ["a", "b"] * 3


def test_a_record_is_read_back_with_the_machine_beside_its_rows(tmp_path):
    saved.write(saved.measured("locality", [{"form": "fused"}]), tmp_path / "bench" / "locality.json")
    record = saved.read("locality", tmp_path)
    assert (record["bench"], record["rows"]) == ("locality", [{"form": "fused"}])
    assert record.keys() == saved.read("locality").keys()
    with pytest.raises(LabError, match="no such record"):
        saved.read("sympow", tmp_path)


def test_rungs_and_what_is_not_taken_train_alike():
    losses = {}
    for rung in (*speedup_ablation.RUNGS, "placed once, in pieces"):  # the seed draws the same crops
        step = speedup_ablation.training_step(CONFIG, rung)
        losses[rung] = torch.stack([[torch.manual_seed(i), step()][1] for i in range(12)])
        assert losses[rung][-1] < losses[rung][0]
    assert torch.equal(losses["data as tensors"], losses["placed once"])
    assert_close(losses["placed once, in pieces"], losses["placed once"], atol=1e-4, rtol=1e-3)
    assert_close(losses["bf16"], losses["placed once"], atol=0.05, rtol=0.05)
    with pytest.raises(ValueError, match=r"^rung: got 'bf16, twice'"):
        speedup_ablation.training_step(CONFIG, "bf16, twice")


def test_gain_is_over_the_plain_loop_and_another_library_is_timed_in_multiples_of_ours(takes, monkeypatch):
    takes(speedup_ablation, lambda name: 16.0 if name == "plain loop" else 8.0)
    plain, faster, *_ = speedup_ablation.run(width=16, layers=1, batch=16)
    assert (plain["gain"], faster["gain"]) == (1, 2)
    assert (plain["images_per_cpu_second"], faster["images_per_cpu_second"]) == (2, 4)
    rungs = speedup_ablation.RUNGS + speedup_ablation.NOT_TAKEN
    assert {row["rung"] for row in saved.read("speedup_ablation")["rows"]} == {*rungs}
    monkeypatch.setattr(vs_libraries, "TASKS", {"RoPE": lambda q: [("geolib", max), ("other", max)]})
    takes(vs_libraries, lambda name: 1.0 if name == "geolib" else 3.0)
    assert [(row["who"], row["ratio"]) for row in vs_libraries.run()[:2]] == [("geolib", 1), ("other", 3)]


def test_forms_of_focusing_agree_and_are_compared_the_right_way_round(takes):  # RF-FUSED
    q, k, v = torch.randn(3, 1, 2, 16, 8)
    wanted, *others = (form(q, k, v, grid_positions(4, 4), torch.ones(2, 1)) for form in locality.FORMS.values())
    for found in others:
        assert_close(found, wanted, atol=1e-4, rtol=1e-4)
    took = {"literal": 6.0, "fused": 2.0, "features": 3.0, "plain": 0.5}
    takes(locality, lambda name: took.get(name.removeprefix("focusing, "), 1.0))
    speedups = {row["form"]: row["speedup"] for row in locality.measured(3, 1, True, 4)}
    assert speedups == {"literal": 1, "fused": 3, "features": 2}
    multiples = {row["form"]: row["multiple"] for row in locality.measured(3, 1, False, 4)}
    assert multiples["plain"] == 1
    assert [multiples[f"focusing, {form}"] for form in locality.FORMS] == [12, 4, 6]


def test_a_form_that_makes_a_matrix_holds_it_and_features_do_not():  # RF-FUSED
    matrix = 4 * 48**4 / 2**20  # MiB, one head
    rows = {row["form"]: row["mib"] for row in locality.measured(48, 1, False, 8, repeats=1)}
    assert rows["gate, features"] < matrix / 2 < matrix < rows["gate, a given matrix"]


def test_forms_of_powers_agree_and_softmax_is_causal():  # CS-chunk
    inputs, gates = torch.randn(3, 1, 2, 60, 8), -0.1 * torch.rand(1, 2, 60)
    forms, on_gpu = sympow.forms(CPU, 60), sympow.forms(torch.device("cuda"), 60)
    forms["by chunks"] = on_gpu["chunked form, chunk by chunk"]
    assert_close(forms.pop("scaled_dot_product_attention")(*inputs, gates), attention(*inputs, causal=True))
    fourth = attention_form(*inputs, 4, gates).output
    assert_close(forms.pop("one chunk, p = 4")(*inputs, gates), fourth, rtol=1e-3, atol=1e-3)
    for form in forms.values():
        assert_close(form(*inputs, gates), forms["attention form"](*inputs, gates), rtol=1e-3, atol=1e-3)
    rows = sympow.run(dim=4, lengths=(32,), repeats=1)
    assert len(rows) == 5 * 2  # forms, passes
    assert all(row["seconds"] > 0 for row in rows)
    assert rows[0].keys() == saved.read("sympow")["rows"][0].keys()


@pytest.mark.parametrize("what", vs_libraries.TASKS)
def test_other_libraries_turn_as_ours_do(what):
    vision.import_torchvision()  # which some of them import
    q, k = torch.randn(2, 1, vs_libraries.HEADS, 9, vs_libraries.DIM)
    works = dict(vs_libraries.TASKS[what](q))
    wanted = works.pop("geolib")(q, k)
    for turn in works.values():
        assert_close(tuple(turn(q, k)), wanted, atol=1e-4, rtol=1e-4)
