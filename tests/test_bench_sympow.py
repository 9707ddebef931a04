"""The bench of symmetric powers: its forms compute the same, what it leaves out says why."""

import json
import sys
import types

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from geolib.lab import __main__ as lab
from geolib.lab.benches import sympow as bench
from geolib.recurrence import attention_form, chunked_form

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _on_the_cpu(monkeypatch):
    monkeypatch.setattr(bench, "pick_device", lambda name: CPU)


@pytest.fixture
def retention(monkeypatch):
    """A package with the interface of the authors' one."""

    def power_retention(Q, K, V, log_G, deg, chunk_size):
        heads_first = (t.transpose(1, 2) for t in (Q, K, V))
        return attention_form(*heads_first, deg, log_G.transpose(1, 2)).output.transpose(1, 2)

    package, reference = types.ModuleType("retention"), types.ModuleType("retention.reference")
    reference.power_retention = power_retention
    package.__spec__ = types.SimpleNamespace()
    monkeypatch.setitem(sys.modules, "retention", package)
    monkeypatch.setitem(sys.modules, "retention.reference", reference)


def test_gated_forms_of_the_bench_compute_the_same(retention):
    tensors = bench.inputs(2, 60, 8, CPU)
    known = bench.forms(CPU)
    others = {"chunked form", "chunked form, large products", "retention, reference"}
    assert set(known) == {"scaled_dot_product_attention", "attention form"} | others
    wanted = known["attention form"].attend(*tensors)
    for name in others:
        assert_close(known[name].attend(*tensors), wanted, rtol=1e-3, atol=1e-3)


def test_a_run_has_times_and_memory():
    rows = bench.run(heads=1, dim=4, lengths=(32, 64), repeats=1)
    assert len(rows) == 4 * 2 * 2  # forms, passes, lengths
    assert all(row["seconds"] > 0 and (row["mib"] is None or row["mib"] >= 0) for row in rows)
    assert bench.table(rows).splitlines()[0].split("  ")[0] == "tokens"


def test_what_would_take_too_long_or_does_not_fit_is_left_out_and_says_why(monkeypatch):
    monkeypatch.setattr(bench, "pairs_fit", lambda tokens, device: tokens < 64)
    rows = bench.run(heads=1, dim=4, lengths=(32, 64), repeats=1, patience=0.0)
    late = [row for row in rows if row["tokens"] == 64]
    assert all("seconds" in row for row in rows if row["tokens"] == 32)
    assert {row["skipped"] for row in late if row["form"] == "attention form"} == {"all pairs do not fit"}
    assert {row["skipped"][:6] for row in late if row["form"] == "chunked form"} == {"about "}
    assert "about" in bench.table(rows)


@pytest.mark.parametrize(("growth", "wanted"), [(2, "about 80 s"), (4, "about 640 s")])
def test_times_are_expected_to_grow_as_the_form_does(growth, wanted):
    form = bench.Form(None, growth)
    assert bench._reason(form, (1024, 10.0), 8192, CPU, 60.0) == wanted
    assert bench._reason(form, (1024, 0.1), 2048, CPU, 60.0) is None


def test_the_peak_of_memory_is_that_of_the_work_alone():
    if bench.peak(lambda: None, CPU) is None:
        pytest.skip("this system does not tell")
    assert bench.peak(lambda: torch.ones(2**24), CPU) == pytest.approx(64, abs=8)
    assert bench.peak(lambda: None, CPU) < 8


def trained_gates(heads, tokens, draw):
    """Log gates as trained models have them, (1, heads, tokens): memories of 10 to 10,000 tokens, and some resets."""
    memory = torch.logspace(1, 4, heads)[:, None]
    sharp = torch.rand(heads, tokens, generator=draw) < 1 / 4096
    return torch.where(sharp, -8.0, -(2 * torch.rand(heads, tokens, generator=draw)) / memory)[None]


def errors_in_bfloat16(heads, tokens, dim, slip=1.0, rows=64):
    """Of softmax and of the chunked form, against sums over all pairs in float64, at some queries; of the worst head.

    A slip multiplies the log gates of the chunked form alone.
    """
    draw = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, heads, tokens, dim, generator=draw).bfloat16() for _ in range(3))
    gates = trained_gates(heads, tokens, draw)
    places = torch.linspace(tokens // rows, tokens - 1, rows).long()
    sees = torch.arange(tokens) <= places[:, None]
    softmax = F.scaled_dot_product_attention(q[:, :, places], k, v, attn_mask=sees)
    chunked = chunked_form(q, k, v, 2, slip * gates)[0].output[:, :, places]
    q, k, v = (t.double() for t in (q, k, v))
    sums = gates.double().cumsum(-1)
    scores = (q[:, :, places] @ k.mT).masked_fill(~sees, 0.0)
    decay = (sums[:, :, places, None] - sums[:, :, None]).clamp(max=0).exp()
    wanted = (scores / dim**0.5).masked_fill(~sees, float("-inf")).softmax(-1) @ v
    wanted_of_powers = F.normalize(decay * scores**2, p=1, dim=-1) @ v
    pairs = (softmax, wanted), (chunked, wanted_of_powers)
    return [float(((a.double() - b).norm(dim=(-2, -1)) / b.norm(dim=(-2, -1))).max()) for a, b in pairs]


def test_bfloat16_inputs_are_as_near_to_the_float64_sums_as_softmax_is():  # CS-chunk, CS-gate
    softmax, ours = errors_in_bfloat16(8, 4096, 64)
    assert 1e-4 < ours <= softmax < 0.02


def test_an_error_of_the_chunked_form_would_show():
    softmax, ours = errors_in_bfloat16(4, 1024, 16, slip=0.99)
    assert ours > softmax


def test_the_bench_prints_its_table_and_writes_its_record(monkeypatch, capsys, tmp_path):
    row = {"form": "a", "pass": bench.PASSES[1], "tokens": 8, "seconds": 0.5, "mib": 3.0}
    monkeypatch.setattr(bench, "run", lambda: [row])
    file = tmp_path / "sympow.json"
    assert lab.main(["bench", "sympow", "--record", str(file)]) == 0
    assert "8  500.0 ms   3 MiB" in capsys.readouterr().out
    assert json.loads(file.read_text())["rows"] == [row]
