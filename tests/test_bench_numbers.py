"""What stands under a bench's names: ratios the right way round, units, what is timed, and what is tested on."""

import inspect
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close
from vision import import_torchvision

from geolib.attention import attention
from geolib.encodings import build
from geolib.lab import export
from geolib.lab.benches import augment, ladder, lie, locality, memory, operations, pairs, parts, peers, recall
from geolib.lab.benches import sympow as power
from geolib.lab.benches import words as followed
from geolib.lab.experiments import EXPERIMENTS
from geolib.rotations import grid_positions
from geolib.sympow import dimension


@pytest.fixture
def clock(monkeypatch):
    """clock(module, seconds): works take these seconds by name, and half of them of the processor."""

    def stopped(module, seconds):
        def in_turns(works, repeats):
            return {name: {"seconds": seconds(name), "cpu_seconds": seconds(name) / 2} for name in works}

        monkeypatch.setattr(module, "in_turns", in_turns)
        monkeypatch.setattr(module, "peak", lambda work, device: 3.0, raising=False)

    return stopped


# Ratios and units -----------------------------------------------------------------------------------------------------


def test_a_rung_twice_as_fast_has_the_gain_two(monkeypatch):
    monkeypatch.setattr(ladder, "rungs", lambda config, data, ladder: dict.fromkeys(ladder))
    took = {"plain loop": 8.0, "data as tensors": 4.0, "placed once": 2.0}
    monkeypatch.setattr(ladder, "best", lambda steps, repeats: {name: took.get(name, 1.0) for name in steps})
    found = {row["rung"]: row for row in ladder.run(width=16, layers=1, batch=16)}
    assert [found[rung]["gain"] for rung in (*took, "bf16")] == [1, 2, 4, 8]
    assert [found[rung]["images_per_cpu_second"] for rung in (*took, "bf16")] == [2, 4, 8, 16]


def test_times_of_focusing_are_over_the_literal_form_and_in_multiples_of_plain_attention(clock, monkeypatch):
    took = {"literal": 6.0, "fused": 2.0, "features": 3.0, "plain": 0.5}
    clock(locality, lambda name: took.get(name.removeprefix("focusing, "), 1.0))
    monkeypatch.setattr(locality, "_SIDES", ())
    speedups = {row["form"]: row["speedup"] for row in locality.run(side=3, heads=1, dim=4, repeats=1)}
    assert speedups == {"literal": 1, "fused": 3, "features": 2}
    multiples = {row["form"]: row["multiple"] for row in locality.turns(3, 1, 4, 1, "cpu")}
    assert multiples["plain"] == 1
    assert [multiples[f"focusing, {form}"] for form in locality.FORMS] == [12, 4, 6]


def test_forms_of_the_exponential_are_compared_with_one_a_layer_and_evaluation_with_turning(clock):
    took = {lie.BASELINE: 8.0, "evaluation": 6.0, "turning alone": 3.0}
    clock(lie, lambda name: took.get(name, 2.0))
    rows = lie.run(layers=1, heads=1, head_dim=8, widths=(8,), grid=(2, 2), repeats=1)
    ratios = {row["ratio"]: (row["value"], row["cpu_value"]) for row in rows if "ratio" in row}
    others = {f"{lie.BASELINE} / {form}": (4, 4) for form in lie.FORMS if form != lie.BASELINE}
    assert ratios == others | {"evaluation / turning alone": (2, 2)}


def test_both_queries_and_keys_are_turned_in_every_layer(monkeypatch):
    turned = []
    monkeypatch.setattr(lie, "turn_blocks", lambda x, R: turned.append(R))
    entries = torch.randn(3, 1, 1, 2, 28)
    lie._evaluation(grid_positions(2, 2), entries, 8)["turning alone"]()
    assert len(turned) == 2 * 3


def test_other_libraries_stand_with_float32_before_bfloat16():
    common = {"what": peers.ROTARY, "tokens": 8, "version": None, "error": 0.0}
    rows = [
        common | {"who": who, "dtype": dtype, "seconds": seconds, "ratio": ratio}
        for who, dtype, seconds, ratio in (
            (peers.OURS, "bfloat16", 0.002, 1.0),
            (peers.OURS, "float32", 0.001, 1.0),
            ("other", "bfloat16", 0.008, 4.0),
            ("other", "float32", 0.003, 3.0),
        )
    ]
    assert peers.table(rows).splitlines()[-1] == f"| {peers.ROTARY} | 8 | 1 / 2 | 3 / 4 |"


def test_memory_is_in_gibibytes(monkeypatch):
    monkeypatch.setattr(memory, "peak", lambda config, bf16: (1 if bf16 else 2) * 2**30)
    monkeypatch.setattr(memory, "peak_of_test", lambda config, bf16: (3 if bf16 else 4) * 2**30)
    (name,) = [name for name in EXPERIMENTS if name == "liere-cifar100"]
    (row,) = memory.run((name,))
    assert [row[key] for key in ("bf16", "fp32", "test_bf16", "test_fp32")] == [1, 2, 3, 4]


def test_operations_above_none_are_none_for_none():
    none, rope = operations.run(("none", "rope"))
    assert none["above_none"] == 0
    assert rope["above_none"] == rope["operations"] - none["operations"] > 0


@pytest.mark.parametrize("tokens", parts.TOKENS)
def test_a_picture_has_as_many_patches_as_the_row_says(tokens):
    assert (32 // parts._PATCH_OF[tokens]) ** 2 == tokens


def test_all_pairs_fit_into_half_of_the_memory_that_is_free(monkeypatch):
    monkeypatch.setattr(Path, "exists", lambda self: True)
    monkeypatch.setattr(Path, "read_text", lambda self: "MemTotal: 4194304 kB\nMemAvailable: 1048576 kB\n")
    most = (0.5 * 2**30 / 40) ** 0.5  # ten matrices of float32
    assert power.pairs_fit(int(0.99 * most), torch.device("cpu"))
    assert not power.pairs_fit(int(1.01 * most), torch.device("cpu"))


def test_softmax_is_timed_with_its_causal_mask():
    q, k, v = torch.randn(3, 1, 2, 9, 4)
    assert_close(power._softmax(q, k, v, q), attention(q, k, v, causal=True))


def test_torchvision_changes_images_in_our_order():
    import_torchvision()
    orders = {}
    for policy in augment.POLICIES:
        work = augment._one_by_one(policy, torch.zeros(1, 3, 32, 32, dtype=torch.uint8))["tensor"]
        steps = inspect.getclosurevars(work).nonlocals["transform"].transforms
        orders[policy] = [type(step).__name__ for step in steps]
    plain = ["RandomCrop", "RandomHorizontalFlip"]
    assert orders == {
        "crop-flip": plain,
        "crop-flip-autoaugment": [*plain, "AutoAugment"],
        "crop-flip-randaugment": ["RandAugment", *plain],
    }


# What heads are tested on ---------------------------------------------------------------------------------------------


def test_a_row_has_the_name_of_the_parts_and_the_seed_of_its_head(monkeypatch):
    weights = torch.tensor([1.0, 10.0, 100.0, 1000.0])
    own = recall.Heads([recall.Parts()], 3).qkv[:, 0, 0, 0].detach()
    monkeypatch.setattr(recall, "trained", lambda heads, task, steps: torch.zeros(steps, len(heads.parts)))
    monkeypatch.setattr(recall, "accuracy", lambda heads, test: heads.parts @ weights + heads.qkv[:, 0, 0, 0].detach())
    for row in recall.run(steps=2, seeds=3, every=1):
        wanted = torch.tensor(recall.VARIANTS[row["variant"]]) @ weights + own[row["seed"]]
        for found in row["accuracy"].values():
            assert found == pytest.approx(float(wanted), abs=2e-3)


def test_tests_of_recall_are_what_their_names_say():
    draw = torch.Generator().manual_seed(5)
    flip = recall._TASKS["flip-flop"].tests
    for name, length, share in (("48", 48, 0.1), ("512", 512, 0.1), ("512, a write in 50", 512, 0.02)):
        tokens = torch.cat([flip[name](draw).tokens for _ in range(8)])
        assert tokens.shape[1] == length
        assert (tokens[:, 1:] < 2).float().mean() == pytest.approx(share, rel=0.2)
    for task in ("copying", "selective copying"):
        for name, make in recall._TASKS[task].tests.items():
            symbols, room = (int(word) for word in name.split(" of "))
            tokens, _, asked = make(draw)
            assert (tokens.shape[1], set(asked.sum(1).tolist())) == (room + symbols, {symbols}), name


def drawn(module, monkeypatch, run):
    """What ``run`` trains a bench's heads on in the first step, and all that it tests them on."""
    first, tested = [], []

    def trained(heads, task, *rest):
        first.append(task(torch.Generator().manual_seed(1)))  # as ``recall.trained`` begins
        return torch.zeros(1, 1)

    def accuracy(heads, sequences):
        tested.append(sequences)
        return torch.zeros(1)

    monkeypatch.setattr(module, "trained", trained)
    monkeypatch.setattr(module, "accuracy", accuracy)
    run()
    return first[0], tested


def test_words_are_judged_at_their_last_letters_and_are_not_those_trained_on(monkeypatch):
    step = followed.STEPS["pairs turn"]
    first, tested = drawn(followed, monkeypatch, lambda: followed.learned("S3", step, 1, 1, 0.01))
    assert [test.tokens.shape[1] - followed.FRONT for test in tested] == list(followed.ASKED)
    for test in tested:
        assert set(test.asked.sum(1).tolist()) == {followed.TRAINED}
        assert test.asked[:, -followed.TRAINED :].all()
    same = (tested[0].tokens[: len(first.tokens)] == first.tokens).all(1)
    assert same.float().mean() < 0.1


def test_pairs_and_symbols_tested_on_are_not_those_trained_on(monkeypatch):
    head = pairs.HEADS["linear, 16"]
    first, (test,) = drawn(pairs, monkeypatch, lambda: pairs.learned(head, [0], 8, 1, 0.01))
    assert not (test.tokens[: len(first.tokens)] == first.tokens).all(1).any()
    for name, task in recall._TASKS.items():
        first = task.train(torch.Generator().manual_seed(1)).tokens
        for make in task.tests.values():
            tokens = make(torch.Generator().manual_seed(2)).tokens
            if tokens.shape[1] == first.shape[1]:
                count = min(len(tokens), len(first))
                assert (tokens[:count] == first[:count]).all(1).float().mean() < 0.1, name


@pytest.mark.parametrize("head", [head for head in pairs.HEADS.values() if head.numbers is not None], ids=str)
def test_a_state_is_as_large_as_its_head_says(head):
    monomials = dimension(head.dim, head.power) if head.kernel == "power" else head.dim
    assert head.numbers == monomials * (pairs.SIZE + 1)


# What a page is told of a model ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rope", "rope-axial", "rope-mixed", "riemannformer"])
def test_a_page_turns_and_stretches_as_the_model_does(name):
    """A step along each axis turns a pair of queries and keys by the angle told, and stretches it by the factor."""
    part, cells = build(name, width=16, heads=2, grid=(3, 3)), grid_positions(3, 3)
    with torch.no_grad():
        for p in part.parameters():
            p.add_(0.1 * torch.randn_like(p))
    told = {key: torch.tensor(value) for key, value in export._placing(part, 0).items()}
    rates = torch.view_as_complex(torch.stack(torch.broadcast_tensors(told["stretch"], told["turn"]), -1)).exp()
    q, k = torch.randn(2, 1, 2, 9, 8)
    a, b = part.place(cells).layer(0).to_reference(q, k)
    by_hand = []
    for x in (q, k):
        pairs_of = torch.view_as_complex(x.unflatten(-1, (4, 2)).contiguous())
        powers = (rates[:, None] ** cells[None, :, None, :]).prod(-1)  # (heads or 1, tokens, pairs)
        by_hand.append(torch.view_as_real(pairs_of * powers).flatten(-2))
    assert_close(by_hand[0] @ by_hand[1].mT, a @ b.mT, atol=1e-4, rtol=1e-4)
