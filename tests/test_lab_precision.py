"""The precision of a run: given, measured, kept; what stays in float32; attention written out for training."""

import math
from dataclasses import replace

import pytest
import torch
from test_engine import TINY, noise, stopped_after, timeless

from geolib import _written
from geolib.attention import attention
from geolib.encodings import METHODS
from geolib.lab import Config, LabError, run, train
from geolib.lab.__main__ import main
from geolib.lab.experiments.papers.precision import CIFAR, DIGITS
from geolib.lab.runs import jobs, read_all
from geolib.lab.training import precision as precisions
from geolib.lab.training.loop import Run
from geolib.lab.training.options import Options
from geolib.lab.training.watch import Stopped

CPU = torch.device("cpu")
CONFIG = Config("cifar10", "riemannformer+lf", augment="crop-flip", **TINY)

pytestmark = pytest.mark.usefixtures("one_thread")


def fake_clock(monkeypatch, seconds):
    """A processor's clock by which a step takes the seconds of its precision; the steps that were taken."""
    taken, now = [], [0.0]

    def step(precision):
        taken.append(precision)
        # The first step of each is slow whatever it is, and one of the others is disturbed.
        now[0] += 100.0 if taken.count(precision) in (1, 3) else seconds[precision]

    monkeypatch.setattr(precisions.time, "process_time", lambda: now[0])
    return step, taken


def tried(run, monkeypatch, choice):
    """Let a run's measurement take its steps and then choose this."""
    usual = precisions.measured

    def measured(step, images):
        usual(step, images)
        return choice, "told to"

    monkeypatch.setattr(precisions, "measured", measured)


# Which one ----------------------------------------------------------------------------------------------------------


def test_a_cpu_is_in_float32_unless_asked():
    assert [precisions.given(p, CPU) for p in (None, "auto", "float32", "bfloat16")] == [*["float32"] * 3, "bf16"]
    with pytest.raises(LabError, match="precision: got 'half'; it is one of auto, float32, bfloat16"):
        train(CONFIG, noise(), quiet=True, precision="half")


@pytest.mark.parametrize(
    ("wide", "narrow", "sentence"),
    [
        (
            0.5,
            0.125,
            "bf16 products, attention written out, chosen by measurement: 256 images/s of one thread's time against 64 "
            "with float32",
        ),
        # Too little for it.
        (0.5, 0.48, "float32 products, chosen by measurement: 64 images/s of one thread's time against 67 with bf16"),
        (0.5, 1.0, "float32 products, chosen by measurement: 64 images/s of one thread's time against 32 with bf16"),
    ],
)
def test_the_faster_precision_is_chosen_and_says_why(monkeypatch, wide, narrow, sentence):
    step, taken = fake_clock(monkeypatch, {"float32": wide, "bf16": narrow})
    choice, why = precisions.measured(step, 32)
    assert why == f"{sentence} products"
    assert choice == sentence.split()[0]
    assert taken == ["float32", "bf16"] * (1 + precisions.TIMED)  # in turns: what disturbs one disturbs the other


def test_the_measurement_counts_work_and_not_waiting(monkeypatch):
    wall = [0.0]
    step, _ = fake_clock(monkeypatch, {"float32": 0.5, "bf16": 0.125})

    def kept_waiting(precision):
        wall[0] += 2.0 if precision == "bf16" else 0.5
        return step(precision)

    for clock in ("perf_counter", "monotonic", "time"):
        monkeypatch.setattr(precisions.time, clock, lambda: wall[0])
    assert precisions.measured(kept_waiting, 32)[0] == "bf16"


def test_the_measurement_is_on_one_thread_and_leaves_as_many_as_before():
    # Threads that wait for each other count as busy, the more the more other programs run.
    seen = []
    torch.set_num_threads(2)  # the fixture puts back what was
    precisions.measured(lambda precision: seen.append(torch.get_num_threads()), 32)
    assert set(seen) == {1}
    assert torch.get_num_threads() == 2


def test_the_configuration_decides_where_it_names_a_precision():
    narrow = replace(CONFIG, precision="bfloat16")
    assert CONFIG.precision is None
    assert len({config.name for config in (CONFIG, narrow, replace(CONFIG, precision="float32"))}) == 3
    for option in (None, "auto", "bfloat16"):
        assert Run(narrow, noise(), CPU, options=Options(precision=option)).asked_precision == "bfloat16"
    assert Run(CONFIG, noise(), CPU, options=Options(precision="auto")).asked_precision == "auto"
    with pytest.raises(LabError, match="precision: got 'float32'; the run's configuration says 'bfloat16'"):
        train(narrow, noise(), quiet=True, precision="float32")
    with pytest.raises(ValueError, match="precision: got 'auto'; it is None or one of float32, bfloat16"):
        replace(CONFIG, precision="auto")


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_configured_precision_is_used_unmeasured_and_recorded(monkeypatch, tmp_path, precision):
    monkeypatch.setattr(precisions, "measured", lambda step, images: pytest.fail("it is settled"))
    told = run(CONFIG, data=noise(), quiet=True, precision=precision)
    record = run(replace(CONFIG, precision=precision), data=noise(), out=tmp_path, quiet=True, precision="auto")
    assert timeless(record.metrics) == timeless(told.metrics)
    assert record.precision == told.precision == precisions.RECORDED[precision]
    assert read_all(tmp_path)[0].config.precision == precision


def test_the_experiments_on_precision_pair_runs_that_differ_in_it_alone():
    for experiment in (DIGITS, CIFAR):
        assert experiment.against
        for scale in experiment.scales:
            for narrow, wide in experiment.against:
                for seed in experiment.seeds[scale]:
                    a, b = (experiment.config(scale, row, experiment.datasets[0], seed) for row in (narrow, wide))
                    assert (a.precision, b.precision) == ("bfloat16", "float32")
                    assert replace(a, precision=None) == replace(b, precision=None)


@pytest.mark.parametrize("choice", ["float32", "bf16"])
def test_a_measured_run_has_the_numbers_of_one_that_was_told(monkeypatch, choice):
    asked = {"float32": "float32", "bf16": "bfloat16"}[choice]
    told = train(replace(CONFIG, dropout=0.2), noise(), quiet=True, precision=asked)
    tried(run, monkeypatch, choice)
    measured = train(replace(CONFIG, dropout=0.2), noise(), quiet=True, precision="auto")
    assert (measured.precision, measured.why_precision) == (choice, "told to")
    assert timeless(measured.metrics) == timeless(told.metrics)
    for (name, a), b in zip(told.model.state_dict().items(), measured.model.state_dict().values()):
        assert torch.equal(a, b), name
    assert measured.preparing_seconds > 0 == told.preparing_seconds


def test_precisions_differ_little_and_repeat():
    wide, narrow, again = (train(CONFIG, noise(), quiet=True, precision=p) for p in ("float32", "bfloat16", "bfloat16"))
    assert timeless(narrow.metrics) == timeless(again.metrics)
    assert timeless(narrow.metrics) != timeless(wide.metrics)
    for a, b in zip(wide.metrics, narrow.metrics):
        assert a["train_loss"] == pytest.approx(b["train_loss"], abs=0.01)


# A run that goes on -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("choice", ["float32", "bf16"])
def test_a_run_goes_on_in_the_precision_that_was_measured_at_its_beginning(tmp_path, monkeypatch, choice):
    asked = {"float32": "float32", "bf16": "bfloat16"}[choice]
    undisturbed = run(CONFIG, data=noise(), quiet=True, precision=asked)
    with monkeypatch.context() as patch, stopped_after(3, monkeypatch):
        tried(run, patch, choice)
        with pytest.raises(Stopped):
            run(CONFIG, data=noise(), out=tmp_path, quiet=True, precision="auto")
    monkeypatch.setattr(precisions, "measured", lambda step, images: pytest.fail("it is settled"))
    other = {"float32": "bfloat16", "bf16": "float32"}[choice]
    with pytest.raises(LabError, match=f"made with precision {choice}, not {precisions.RECORDED[other]}; delete it"):
        run(CONFIG, data=noise(), out=tmp_path, quiet=True, precision=other)
    record = run(CONFIG, data=noise(), out=tmp_path, quiet=True, precision="auto")
    assert timeless(record.metrics) == timeless(undisturbed.metrics)
    assert (record.precision, record.engine["precision"]) == (choice, "told to")
    assert "precision" not in undisturbed.engine
    assert read_all(tmp_path)[0].engine == record.engine


def test_a_checkpoint_that_names_no_precision_is_in_float32(tmp_path, monkeypatch):
    file = tmp_path / "run.pt"
    undisturbed = train(CONFIG, noise(), quiet=True)
    with stopped_after(3, monkeypatch), pytest.raises(Stopped):
        train(CONFIG, noise(), quiet=True, checkpoint=file)
    state = torch.load(file, weights_only=True)
    del state["precision"]
    torch.save(state, file)
    resumed = train(CONFIG, noise(), quiet=True, checkpoint=file, precision="auto")
    assert resumed.precision == "float32"
    assert timeless(resumed.metrics) == timeless(undisturbed.metrics)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--scale", "smoke"], None),
        (["--scale", "smoke", "--precision", "bfloat16"], "bfloat16"),
        (["--scale", "laptop"], "auto"),
        (["--scale", "laptop", "--precision", "float32"], "float32"),
    ],
)
def test_the_laptop_scale_measures_and_the_others_do_not(monkeypatch, tmp_path, words, expected):
    seen = []

    def do(self, data=None, world=None):
        seen.append(self.options.precision)
        raise LabError("enough")

    monkeypatch.setattr(jobs.Job, "do", do)
    monkeypatch.setattr("geolib.lab.experiments.conduct.load", lambda name: noise())
    main(["run", "riemannformer-table1", *words, "--only", "none/cifar10", "--out", str(tmp_path), "--quiet"])
    assert set(seen) == {expected}


# What stays in float32 ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method", ["none", "sinusoidal", "learned", "rope-axial", "alibi", "riemannformer+lf", "liere"]
)
def test_weights_moments_and_residual_stream_stay_in_float32(method):
    config = replace(CONFIG, method=method, layers=2)
    live = Run(config, noise(), CPU, options=Options(precision="bfloat16"))
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
        live = Run(replace(CONFIG, method=method, width=32), noise(), CPU, options=Options(precision=precision))
        losses.append(live.loss(live.model, live.images[:64], live.labels[:64]))
        losses[-1].backward()
        gradients.append(torch.cat([p.grad.flatten() for p in live.model.parameters()]).double())
    assert losses[1].item() == pytest.approx(losses[0].item(), abs=2e-3)
    assert torch.cosine_similarity(*gradients, dim=0) > 0.999
    assert math.isclose(*(g.norm().item() for g in gradients), rel_tol=0.02)
