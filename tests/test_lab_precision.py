"""The precision of a run: its rule, kept where it goes on; what stays float32; attention written out for training."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from test_engine import TINY, noise, stopped_after, timeless
from torch import nn

from geolib import _written
from geolib.attention import attention
from geolib.encodings import METHODS
from geolib.lab import Config, LabError, read_all, run, runner, train, training
from geolib.lab.__main__ import main
from geolib.lab.config import Options
from geolib.lab.counting import Counting
from geolib.lab.experiments.papers.precision import PRECISION_CIFAR10, PRECISION_DIGITS
from geolib.lab.gpt import GPT
from geolib.lab.gpu_step import with_narrow_weights
from geolib.lab.text_attention import METHODS as READERS
from geolib.lab.train import Run, precision_of
from geolib.lab.vit import ViT
from geolib.lab.watch import Stopped

CPU = torch.device("cpu")
CONFIG = Config("cifar10", "riemannformer+lf", augment="crop-flip", **TINY)

pytestmark = pytest.mark.usefixtures("one_thread")


# Which one ----------------------------------------------------------------------------------------------------------


def test_a_fixed_rule_decides_where_nothing_is_named(monkeypatch):
    options = (None, "auto", "float32", "bfloat16")
    for able, automatic in ((False, "float32"), (True, "bf16")):
        monkeypatch.setattr(training, "multiplies_bfloat16", lambda able=able: able)
        assert [precision_of(None, p, CPU) for p in options] == ["float32", automatic, "float32", "bf16"]
    for able, usual in ((True, "bf16"), (False, "float32")):
        # A card without units for it (a T4) counts as able where emulation does, which is slow.
        found = {True: True, False: able}
        monkeypatch.setattr(
            torch.cuda, "is_bf16_supported", lambda including_emulation, f=found: f[including_emulation]
        )
        gpu = torch.device("cuda")
        assert [precision_of(None, p, gpu) for p in options] == [usual, usual, "float32", "bf16"]
    with pytest.raises(LabError, match="precision: got 'half'; it is one of auto, float32, bfloat16"):
        train(CONFIG, noise(), quiet=True, precision="half")


def test_products_of_bfloat16_are_those_that_the_processor_names():
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.is_file():
        pytest.skip("not Linux")
    named = set(cpuinfo.read_text().split())
    assert training.multiplies_bfloat16() == bool({"amx_tile", "avx512_bf16"} & named)


def test_the_configuration_decides_where_it_names_a_precision():
    narrow = replace(CONFIG, precision="bfloat16")
    assert CONFIG.precision is None
    assert len({config.name for config in (CONFIG, narrow, replace(CONFIG, precision="float32"))}) == 3
    for option in (None, "auto", "bfloat16"):
        assert Run(narrow, noise(), CPU, Options(precision=option)).precision == "bf16"
    with pytest.raises(LabError, match="precision: got 'float32'; the run's configuration says 'bfloat16'"):
        train(narrow, noise(), quiet=True, precision="float32")
    with pytest.raises(ValueError, match="precision: got 'auto'; it is None or one of float32, bfloat16"):
        replace(CONFIG, precision="auto")


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_configured_precision_is_used_and_recorded(tmp_path, precision):
    told = run(CONFIG, data=noise(), quiet=True, precision=precision)
    record = run(replace(CONFIG, precision=precision), data=noise(), out=tmp_path, quiet=True, precision="auto")
    assert timeless(record.metrics) == timeless(told.metrics)
    assert record.precision == told.precision == training.RECORDED_PRECISION[precision]
    assert read_all(tmp_path)[0].config.precision == precision


def test_the_experiments_on_precision_pair_runs_that_differ_in_it_alone():
    for experiment in (PRECISION_DIGITS, PRECISION_CIFAR10):
        assert experiment.against
        for scale in experiment.scales:
            for narrow, wide in experiment.against:
                for seed in experiment.seeds[scale]:
                    a, b = (experiment.config(scale, row, experiment.datasets[0], seed) for row in (narrow, wide))
                    assert (a.precision, b.precision) == ("bfloat16", "float32")
                    assert replace(a, precision=None) == replace(b, precision=None)


def test_precisions_differ_little_and_repeat():
    wide, narrow, again = (train(CONFIG, noise(), quiet=True, precision=p) for p in ("float32", "bfloat16", "bfloat16"))
    assert timeless(narrow.metrics) == timeless(again.metrics)
    assert timeless(narrow.metrics) != timeless(wide.metrics)
    for a, b in zip(wide.metrics, narrow.metrics):
        assert a["train_loss"] == pytest.approx(b["train_loss"], abs=0.01)


# A run that goes on -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("able", [False, True])
def test_a_run_goes_on_in_the_precision_that_it_began_with(tmp_path, monkeypatch, able):
    own, other, recorded = ("bfloat16", "float32", "bf16") if able else ("float32", "bfloat16", "float32")
    undisturbed = run(CONFIG, data=noise(), quiet=True, precision=own)
    monkeypatch.setattr(training, "multiplies_bfloat16", lambda: able)
    with stopped_after(3, monkeypatch), pytest.raises(Stopped):
        run(CONFIG, data=noise(), out=tmp_path, quiet=True, precision="auto")
    monkeypatch.setattr(training, "multiplies_bfloat16", lambda: not able)  # it goes on elsewhere
    with pytest.raises(LabError, match=f"made with precision {recorded}, not .*; delete it"):
        run(CONFIG, data=noise(), out=tmp_path, quiet=True, precision=other)
    record = run(CONFIG, data=noise(), out=tmp_path, quiet=True, precision="auto")
    assert timeless(record.metrics) == timeless(undisturbed.metrics)
    assert record.precision == recorded


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--scale", "smoke"], None),
        (["--scale", "smoke", "--precision", "bfloat16"], "bfloat16"),
        (["--scale", "laptop"], "auto"),
        (["--scale", "laptop", "--precision", "float32"], "float32"),
    ],
)
def test_the_laptop_scale_takes_what_is_fast_and_the_others_float32(monkeypatch, tmp_path, words, expected):
    seen = []

    def do(self, data=None):
        seen.append(self.options.precision)
        raise LabError("enough")

    monkeypatch.setattr(runner.Job, "do", do)
    monkeypatch.setattr("geolib.lab.runner.load", lambda name: noise())
    main(["run", "riemannformer-table1", *words, "--only", "none/cifar10", "--out", str(tmp_path), "--quiet"])
    assert set(seen) == {expected}


# What stays in float32 ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method", ["none", "sinusoidal", "learned", "rope-axial", "alibi", "riemannformer+lf", "liere"]
)
def test_weights_moments_and_residual_stream_stay_in_float32(method):
    config = replace(CONFIG, method=method, layers=2)
    live = Run(config, noise(), CPU, Options(precision="bfloat16"))
    streams, products = [], []
    for block in live.model.blocks:
        block.register_forward_hook(lambda module, inputs, output: streams.append(output.dtype))
        block.mlp[0].register_forward_hook(lambda module, inputs, output: products.append(output.dtype))
    live.update(next(live.begin_epoch()))
    assert streams == [torch.float32] * 2
    assert products == [torch.bfloat16] * 2
    state = [value for values in live.optimizer.state.values() for value in values.values()]
    gradients = [p.grad for p in live.model.parameters()]
    assert {x.dtype for x in (*live.model.parameters(), *gradients, *state)} == {torch.float32}


SMALL = {"layers": 2, "heads": 2, "width": 32}


def small_model(method):
    """A model of images or of documents, and what it takes."""
    if method in READERS:
        return GPT(Config("books", method, context=40, **SMALL)), torch.randint(0, 256, (2, 40))
    return ViT(Config("cifar10", method, patch=4, **SMALL), (3, 16, 16), 10), torch.randn(4, 3, 16, 16)


def in_bfloat16(how, model, x):
    """Output and gradients of all weights."""
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        scores = how(model, x).float()
    return [scores, *torch.autograd.grad(scores.sin().sum(), list(model.parameters()), allow_unused=True)]


def counted(how, model, x):
    """The same, and the kernels that it took; places in memory are no kernels."""
    with Counting() as counting:
        found = in_bfloat16(how, model, x)
    return found, sum(n for name, n in counting.kernels.items() if "empty" not in name)


@pytest.mark.parametrize("method", [*METHODS, "riemannformer+lf", *(name for name in READERS if name not in METHODS)])
def test_weights_narrowed_at_once_change_no_digit_and_save_kernels(method):
    model, x = small_model(method)
    (expected, before), (found, after) = (counted(how, model, x) for how in (nn.Module.__call__, with_narrow_weights))
    assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(expected, found) if a is not None)
    assert [a is None for a in expected] == [b is None for b in found]
    assert before - after >= 10 * SMALL["layers"]


def test_a_compiled_model_takes_narrow_weights_in_one_graph():
    graphs = []

    def backend(graph, inputs):
        graphs.append([t.dtype for t in inputs])
        return graph

    model, x = small_model("riemannformer")
    torch._dynamo.reset()
    fast = torch.compile(model, fullgraph=True, dynamic=False, backend=backend)
    for _ in range(3):
        assert torch.equal(*(in_bfloat16(how, fast, x)[0] for how in (with_narrow_weights, type(fast).__call__)))
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(0.9)
    assert len(graphs) == 2  # with narrow weights, and with wide ones
    weights = [weight for one in model.modules() if isinstance(one, nn.Linear) for weight in one.parameters()]
    assert [dtypes.count(torch.bfloat16) for dtypes in graphs] == [len(weights), 0]


# Attention written out ----------------------------------------------------------------------------------------------


def parts(batch=3, heads=2, tokens=7, dim=6, dtype=torch.bfloat16):
    """Queries, keys and values as a layer has them: strided, narrow, large enough for uneven weights."""
    qkv = (2 * torch.randn(batch, tokens, 3, heads, dim)).to(dtype)
    return [part.transpose(1, 2) for part in qkv.unbind(2)]


def results(act, tensors, dtype):
    """What act makes of tensors in a dtype, and the gradients of a fixed product with it, in float64."""
    leaves = [
        t.detach().to(dtype if i < 3 else torch.promote_types(dtype, torch.float32)) for i, t in enumerate(tensors)
    ]
    leaves = [leaf.requires_grad_() for leaf in leaves]
    out = act(*leaves)
    out.backward(torch.linspace(-1, 1, out.numel()).view(out.shape).to(out.dtype))
    return [x.double() for x in (out.detach(), *(leaf.grad for leaf in leaves))]


@pytest.mark.parametrize("scale", [None, 0.7])
@pytest.mark.parametrize("attenuated", [None, (7, 7), (2, 7, 7), (3, 2, 7, 7)])
@pytest.mark.parametrize("gated", [None, (7, 7), (2, 1, 7), (3, 1, 7, 7)])
def test_written_out_it_is_attention_with_all_its_gradients(gated, attenuated, scale):  # RF-19, RF-20
    extra = {}
    if gated:
        extra["log_gate"] = -torch.randn(*gated).abs()
    if attenuated:
        extra["attenuation"] = torch.rand(*attenuated)

    def act(q, k, v, *others):
        return attention(q, k, v, scale=scale, **dict(zip(extra, others)))

    tensors = [*parts(), *extra.values()]
    exact = results(act, tensors, torch.float64)
    got = results(act, tensors, torch.bfloat16)
    # The factors of the last product are rounded to 8 bits, half a unit being 2^-9; gradients pass two such products.
    for x, y, name in zip(got, exact, ("output", "q", "k", "v", *extra)):
        assert (x - y).norm() < (2**-8 if name == "output" else 2**-6.5) * y.norm(), name


@pytest.mark.parametrize("piece", [1, 2 * 2 * 7 * 7])  # a sample at a time; two, and one is left
@pytest.mark.parametrize("attenuated", [(7, 7), (1, 2, 1, 7), (2, 7, 7), (3, 1, 7, 7)])
def test_written_out_in_pieces_nothing_changes(monkeypatch, attenuated, piece):
    tensors = [*parts(), torch.rand(*attenuated)]

    def act(q, k, v, omega):
        return attention(q, k, v, attenuation=omega)

    whole = results(act, tensors, torch.bfloat16)
    monkeypatch.setattr(_written, "_PIECE", piece)
    for x, y in zip(results(act, tensors, torch.bfloat16), whole):
        torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-6)


def test_written_out_without_samples_gradients_are_zero():
    q, k, v, omega = *(part[:0].requires_grad_() for part in parts()), torch.rand(7, 7, requires_grad=True)
    attention(q, k, v, attenuation=omega).sum().backward()
    assert q.grad.shape == q.shape
    assert not omega.grad.any()


def test_written_out_heads_without_samples_have_an_attenuation_each():
    q, k, v = (part[0] for part in parts())
    omega = torch.rand(2, 7, 7)

    def act(q, k, v, omega):
        return attention(q, k, v, attenuation=omega)

    for x, y in zip(results(act, [q, k, v, omega], torch.bfloat16), results(act, [q, k, v, omega], torch.float64)):
        assert (x - y).norm() < 2**-6.5 * y.norm()


def test_written_out_scores_are_not_rounded():
    # Scores near 300 have a unit of 2 in bfloat16: rounded ones would give other weights altogether.
    q = torch.tensor([[[1.0, 16.0]]]).bfloat16().requires_grad_()
    k = torch.tensor([[[0.5, 18.75], [0.0, 18.75]]]).bfloat16()
    v = torch.eye(2)[None].bfloat16()
    assert _written.pays(q, k, v, fused=True)
    expected = torch.sigmoid(torch.tensor([0.5, -0.5]))
    assert torch.allclose(attention(q, k, v, scale=1.0).float(), expected, atol=2**-9)


def test_it_is_written_out_where_a_processor_trains_in_bfloat16():
    q = parts()[0]
    long = torch.zeros(1, 1, _written.LONGEST + 1, 2, dtype=torch.bfloat16)
    assert _written.pays(q, q, q, fused=True)
    assert not _written.pays(q.float(), q.float(), q.float(), fused=True)
    assert not _written.pays(long, long, long, fused=True)
    assert _written.pays(long, long, long, fused=False)
    assert not _written.pays(q, q[:1], q, fused=True)
    with torch.no_grad():
        assert not _written.pays(q, q, q, fused=True)


@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_trains_in_bfloat16_as_in_float32(method):
    losses, gradients = [], []
    for precision in ("float32", "bfloat16"):
        live = Run(replace(CONFIG, method=method, width=32), noise(), CPU, Options(precision=precision))
        losses.append(live.loss(live.model, live.images[:64], live.labels[:64]))
        losses[-1].backward()
        gradients.append(torch.cat([p.grad.flatten() for p in live.model.parameters()]).double())
    assert losses[1].item() == pytest.approx(losses[0].item(), abs=2e-3)
    assert torch.cosine_similarity(*gradients, dim=0) > 0.999
    assert math.isclose(*(g.norm().item() for g in gradients), rel_tol=0.02)
