"""Training: against a loop written out by hand, interrupted at any step, out of time, memory, disk and numbers."""

import io
import itertools
import math
import os
import random
import signal
import sys
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from test_lab_config import AWAY
from vision import import_torchvision

from geolib.encodings import METHODS
from geolib.lab import Config, LabError, train
from geolib.lab.capture import unchanged
from geolib.lab.data.augmentation import channel_moments, crop_and_flip
from geolib.lab.data.documents import Bytes, Documents
from geolib.lab.data.sets import Dataset
from geolib.lab.device import isolated, pick_device, precision_of
from geolib.lab.gpt import GPT
from geolib.lab.vit import ViT

import_torchvision()  # whichever build there is: full recipes take its transforms
loop = sys.modules["geolib.lab.train"]  # the name in the package is the function
CPU = torch.device("cpu")
pytestmark = pytest.mark.usefixtures("one_thread")

IMAGES = Config(
    "cifar10", "liere", {"block": 4}, width=16, heads=2, layers=2, epochs=3, batch=10, train_size=34, test_size=30,
    augment="crop-flip", dropout=0.1, warmup=3, patch=8, weight_decay=0.3, lr=0.01, eval_every=2, pool="cls", seed=5,
)  # fmt: skip
TEXT = Config(
    "documents", "conformal-sympow", width=16, heads=2, layers=2, epochs=3, batch=4, train_size=10, test_size=9,
    context=12, lr=0.01, schedule="constant", seed=6,
)  # fmt: skip


def noise(train=40, test=32):
    """Images of noise; four of the labels lie apart in brightness."""
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randint(0, 256, (train + test, 3, 32, 32), generator=draw), torch.arange(train + test) % 4
    x = (x // 4 + 48 * y[:, None, None, None]).byte()
    return Dataset("cifar10", x[:train], y[:train], x[train:], y[train:], tuple("abcd"), "made here")


def pages():
    """Text of a few letters, in two documents for each part."""

    def part(seed):
        draw = random.Random(seed)
        return Bytes(["a", "b"], [bytes(draw.choices(b"abc ", k=400)) for _ in range(2)])

    return Documents("documents", part(1), part(2), "made here")


KINDS = pytest.mark.parametrize(("config", "data"), [(IMAGES, noise()), (TEXT, pages())], ids=["images", "text"])


def numbers(run):
    """What a run came to, without its times."""
    return [{**row, "seconds": None} for row in run.metrics]


def quietly(config, data, **settings):
    return train(config, data, quiet=True, device="cpu", **settings)


# The loop by hand ---------------------------------------------------------------------------------------------------


def by_hand(config, data):
    """The losses and evaluations of a run, from PyTorch alone and the seeds that recorded runs have."""
    seed = loop.seed_of
    torch.manual_seed(config.seed)
    permuted = lambda count, seed: torch.randperm(count, generator=torch.Generator().manual_seed(seed))  # noqa: E731
    if config.is_text:
        model = GPT(config)
        x, x_test = (
            torch.stack([torch.tensor(list(t[start : start + 13])) for t in part.texts for start in range(0, 396, 12)])
            for part in (data.train, data.test)
        )
        x_test, order = x_test[permuted(len(x_test), 0)[: config.test_size]], permuted(len(x), seed(config, 0, "order"))
        loss_of = lambda windows: F.cross_entropy(model(windows[:, :-1]).mT, windows[:, 1:])  # noqa: E731
    else:
        chosen, tested = permuted(len(data.y_train), 0)[: config.train_size], permuted(32, 0)[: config.test_size]
        model = ViT(config, data.shape, 4)
        mean, std = channel_moments(data.x_train[chosen])
        x, y, x_test, y_test = data.x_train[chosen], data.y_train[chosen], data.x_test[tested], data.y_test[tested]
    spared = {id(p) for p in model.undecayed()} | {id(p) for p in model.parameters() if p.dim() < 2}
    moments = {p: [torch.zeros_like(p), torch.zeros_like(p)] for p in model.parameters()}
    steps, taken, rows = math.ceil(config.train_size / config.batch), 0, []
    for epoch in range(config.epochs):
        model.train()
        losses = []
        crop = torch.Generator().manual_seed(seed(config, epoch, "augmentation and dropout"))
        if config.is_text:
            mine = order[(torch.arange(config.train_size) + epoch * config.train_size) % len(order)]
        else:
            mine = permuted(len(y), seed(config, epoch, "order"))
        for step in range(steps):
            rows_now = mine[step * config.batch : (step + 1) * config.batch]
            if not config.is_text:
                images = (crop_and_flip(x[rows_now], crop).float() - mean) / std
            torch.manual_seed(seed(config, epoch, f"dropout in step {step} of process 0"))
            loss = loss_of(x[rows_now]) if config.is_text else F.cross_entropy(model(images), y[rows_now])
            model.zero_grad()
            loss.backward()
            taken += 1
            rest = (taken - 1 - config.warmup) / (steps * config.epochs - config.warmup)
            share = taken / config.warmup if taken <= config.warmup else (1 + math.cos(math.pi * rest)) / 2
            rate = config.lr * (1 if config.schedule == "constant" else share)
            with torch.no_grad():
                for p, (first, second) in moments.items():
                    first.lerp_(p.grad, 0.1)
                    second.lerp_(p.grad**2, 0.001)
                    p.mul_(1 - rate * (0 if id(p) in spared else config.weight_decay))
                    root = (second / (1 - 0.999**taken)).sqrt() + 1e-8
                    p.sub_(rate * first / (1 - 0.9**taken) / root)
            losses.append(loss.item())
        row = {"epoch": epoch + 1, "train_loss": sum(losses) / len(losses)}
        if (epoch + 1) % config.eval_every == 0 or epoch + 1 == config.epochs:
            model.eval()
            with torch.no_grad():
                if config.is_text:
                    row["test_loss"] = loss_of(x_test).item()
                    row["test_bits"] = row["test_loss"] / math.log(2)
                else:
                    said = model((x_test.float() - mean) / std)
                    row["test_loss"] = F.cross_entropy(said, y_test).item()
                    row["test_accuracy"] = (said.argmax(1) == y_test).double().mean().item()
        rows.append(row)
    return rows


@KINDS
def test_a_run_is_the_loop_written_out_by_hand(config, data):
    before = torch.get_rng_state()
    run = quietly(config, data)
    assert torch.equal(torch.get_rng_state(), before)  # the caller's random numbers are his own
    for got, wanted in zip(run.metrics, by_hand(config, data), strict=True):
        assert got == pytest.approx(wanted | {"seconds": got["seconds"]}, rel=2e-5)
    assert not run.model.training
    assert run.seconds >= run.metrics[-1]["seconds"] > 0
    assert (run.precision, run.step, run.device) == ("float32", "eager", CPU)
    if config.is_text:
        assert run.answers is None
    else:
        assert torch.equal(run.answers, run.scores(run.task.x_test).argmax(1) == run.task.y_test)


BESIDE = {
    "method": {"method_options": {}}, "heads": {"width": 32}, "pool": {"pool": "mean"}, "weight_decay": {"lr": 0.1},
    "method_options": {"method": "rope", "method_options": {}}, "randaugment": {"augment": "crop-flip-randaugment"},
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(AWAY.keys() - {"shifts", "resolutions"}))  # which probes read
def test_every_field_of_a_configuration_changes_the_run(name):
    usual = replace(IMAGES, **BESIDE.get(name, {}))
    assert numbers(quietly(replace(usual, **{name: AWAY[name]}), noise())) != numbers(quietly(usual, noise()))


@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_has_in_bfloat16_the_loss_and_gradient_of_float32(method):
    config = replace(IMAGES, method=method, method_options={}, width=32, dropout=0.0, pool="mean")
    losses, gradients = [], []
    for precision in ("float32", "bf16"):
        run = loop.Run(config, noise(), CPU, precision)
        run.model.train()
        losses.append(F.cross_entropy(run.scores(run.task.x), run.task.y))
        losses[-1].backward()
        gradients.append(torch.cat([p.grad.flatten() for p in run.model.parameters()]).double())
    assert losses[1].item() == pytest.approx(losses[0].item(), abs=5e-3)
    assert torch.cosine_similarity(*gradients, dim=0) > 0.999


# Interrupted --------------------------------------------------------------------------------------------------------


def interrupt_at(monkeypatch, step, kind=signal.SIGTERM):
    """Send the process a signal before a step of the run, counted from 0."""
    usual = loop.learning_rate

    def rate(config, number, total):
        if number == step:
            os.kill(os.getpid(), kind)
        return usual(config, number, total)

    monkeypatch.setattr(loop, "learning_rate", rate)


@KINDS
@pytest.mark.parametrize(("step", "kind"), [(0, signal.SIGTERM), (2, signal.SIGINT), (4, signal.SIGTERM)])
def test_stopped_by_a_signal_a_run_goes_on_to_the_same_numbers(tmp_path, monkeypatch, config, data, step, kind):
    alone, checkpoint = quietly(config, data), tmp_path / "run.pt"
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    with monkeypatch.context() as patched:
        interrupt_at(patched, step, kind)
        with pytest.raises(loop.Stopped, match=f"^stopped by {kind.name}; epoch .* done$") as stopped:
            quietly(config, data, checkpoint=checkpoint)
    assert stopped.value.signal == kind
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == handlers
    resumed = quietly(config, data, checkpoint=checkpoint)
    assert numbers(resumed) == numbers(alone)
    both = zip(resumed.model.parameters(), alone.model.parameters())
    assert all(torch.equal(a, b) for a, b in both)
    assert config.is_text or torch.equal(resumed.answers, alone.answers)


def test_a_signal_in_the_last_evaluation_stops_the_caller_and_loses_nothing(tmp_path, monkeypatch):
    checkpoint, usual = tmp_path / "run.pt", loop.Run.evaluate
    kill = lambda run: len(run.metrics) == IMAGES.epochs - 1 and os.kill(os.getpid(), signal.SIGTERM)  # noqa: E731
    with monkeypatch.context() as patched:
        patched.setattr(loop.Run, "evaluate", lambda run: (kill(run), usual(run))[1])
        with pytest.raises(loop.Stopped):
            quietly(IMAGES, noise(), checkpoint=checkpoint)
    assert numbers(quietly(IMAGES, noise(), checkpoint=checkpoint)) == numbers(quietly(IMAGES, noise()))


def test_a_checkpoint_that_does_not_fit_is_refused_in_one_line(tmp_path, monkeypatch):
    checkpoint = tmp_path / "run.pt"
    with monkeypatch.context() as patched:
        interrupt_at(patched, 2)
        with pytest.raises(loop.Stopped):
            quietly(IMAGES, noise(), checkpoint=checkpoint, precision="float32")
    whole, other = checkpoint.read_bytes(), io.BytesIO()
    torch.save([1, 2], other)
    asked = {"config": IMAGES, "data": noise()}
    for kept, changed in (
        (whole, {"config": replace(IMAGES, seed=1)}),
        (whole, {"data": noise(train=41)}),
        (whole, {"precision": "bfloat16"}),
        *((spoilt, {}) for spoilt in (whole[:1000], other.getvalue())),
    ):
        checkpoint.write_bytes(kept)
        with pytest.raises(LabError, match=rf"^{checkpoint}: [^\n]*delete it to start[^\n]*$"):
            quietly(**asked | changed, checkpoint=checkpoint)
        assert checkpoint.read_bytes() == kept


def test_a_loss_or_a_weight_that_is_not_finite_stops_the_run(tmp_path, monkeypatch):
    with pytest.raises(loop.Diverged, match=r"in epoch 1; try a smaller lr or a longer warm-up$"):
        quietly(replace(IMAGES, lr=1e38, warmup=0), noise())
    usual = loop.Text.loss
    monkeypatch.setattr(loop.Text, "loss", lambda *of: usual(*of) * (math.inf if next(calls) == 4 else 1.0))
    calls, checkpoint = itertools.count(), tmp_path / "run.pt"
    told = rf"^the loss is inf at step 2 in epoch 2; the last good .* {checkpoint}; try"
    with pytest.raises(loop.Diverged, match=told):
        quietly(TEXT, pages(), checkpoint=checkpoint, save_every=0.0)


# What cannot be done ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "data", "says"),
    [
        (IMAGES, pages(), "^data: got Documents for the data set cifar10"),
        (TEXT, noise(), "^data: got Dataset for the data set documents"),
        (replace(IMAGES, train_size=41), noise(), "^train_size: got 41; there are only 40"),
        (replace(IMAGES, test_size=33), noise(), "^test_size: got 33; there are only 32"),
        (replace(TEXT, train_size=67), pages(), "^train_size: got 67; there are only 66"),
        (replace(TEXT, test_size=67), pages(), "^test_size: got 67; there are only 66"),
        (replace(TEXT, context=400), pages(), "^context: got 400; a has 400 tokens"),
        (replace(IMAGES, patch=5), noise(), "^patch: got 5"),
    ],
)
def test_what_the_data_do_not_allow_is_one_line(config, data, says):
    with pytest.raises(LabError, match=rf"{says}[^\n]*$"):
        quietly(config, data)


def test_a_device_is_the_one_named_or_a_gpu_of_ones_own(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert (pick_device("cpu"), pick_device(None)) == (CPU, torch.device("cuda:0"))
    for name in ("cuda:2", "tpu", "cpu:1", "cuda:x"):
        with pytest.raises(LabError, match=f"^device {name} is not here; there is cpu, cuda:0, cuda:1$"):
            pick_device(name)
    for variable in ("SLURM_LOCALID", "LOCAL_RANK"):
        monkeypatch.setenv(variable, "1")
        assert pick_device("cuda") == pick_device(None) == torch.device("cuda:1")
        assert pick_device("cuda:0") == torch.device("cuda:0")
        monkeypatch.setenv(variable, "2")
        with pytest.raises(LabError, match="device cuda:2 is not here"):
            pick_device(None)


def test_a_precision_is_the_configurations_else_the_callers_else_the_devices(monkeypatch):
    options = (None, "auto", "float32", "bfloat16")
    for able, automatic in ((False, "float32"), (True, "bf16")):
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda able=able: able)
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
        assert [precision_of(None, p, CPU) for p in options] == ["float32", automatic, "float32", "bf16"]
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation, able=able: able)
        gpu = [precision_of(None, p, torch.device("cuda")) for p in options]
        assert gpu == [automatic, automatic, "float32", "bf16"]
    assert [precision_of("bfloat16", p, CPU) for p in (None, "auto", "bfloat16")] == ["bf16"] * 3
    with pytest.raises(LabError, match="precision: got 'float32'; the run's configuration says 'bfloat16'"):
        precision_of("bfloat16", "float32", CPU)
    with pytest.raises(LabError, match="precision: got 'half'; it is one of auto, float32, bfloat16"):
        precision_of(None, "half", CPU)


def test_the_bar_shows_progress_loss_and_accuracy_and_needs_tqdm_where_it_is_wanted(capsys, monkeypatch):
    train(replace(IMAGES, epochs=2), noise(), device="cpu")
    shown = capsys.readouterr().err
    for word in ("cifar10 liere seed 5", "68.0/68.0", "images/s", "loss=", "accuracy="):
        assert word in shown
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.raises(LabError, match="the progress bar needs tqdm: pip install tqdm"):
        train(IMAGES, noise(), device="cpu")
    quietly(IMAGES, noise())


# On a GPU -----------------------------------------------------------------------------------------------------------


def test_steps_that_were_tried_leave_no_trace():
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.5))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        model(torch.ones(4, 3)).sum().backward()
        optimizer.step()

    for _ in range(2):
        weights, drawn = [p.clone() for p in model.parameters()], torch.get_rng_state()
        moments = [{k: v.clone() for k, v in optimizer.state.get(p, {}).items()} for p in model.parameters()]
        with unchanged(model, optimizer):
            step()
        assert all(torch.equal(p, before) for p, before in zip(model.parameters(), weights))
        assert torch.equal(torch.get_rng_state(), drawn)
        for p, before in zip(model.parameters(), moments):
            for key, value in optimizer.state[p].items():
                assert torch.equal(value, before.get(key, torch.zeros_like(value))), key
        step()


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["images", "text"])
@pytest.mark.parametrize("steps", [0, loop.COMPILE_STEPS])
def test_on_a_gpu_the_captured_step_trains_to_the_eager_losses_and_goes_on(tmp_path, monkeypatch, kind, steps):
    monkeypatch.setattr(loop, "COMPILE_STEPS", steps)
    config, data = (IMAGES, noise()) if kind == "images" else (TEXT, pages())
    captured = train(config, data, device="cuda", precision="float32", quiet=True)
    assert captured.step == ("captured" if steps else "compiled and captured")
    with monkeypatch.context() as patched:
        interrupt_at(patched, 2)
        with pytest.raises(loop.Stopped):
            train(config, data, device="cuda", precision="float32", quiet=True, checkpoint=tmp_path / "run.pt")
    resumed = train(config, data, device="cuda", precision="float32", quiet=True, checkpoint=tmp_path / "run.pt")
    assert numbers(resumed) == numbers(captured)
    monkeypatch.setattr(loop, "CapturedStep", lambda step, *_: step)
    eager = train(config, data, device="cuda", precision="float32", quiet=True)
    losses = ([row["train_loss"] for row in run.metrics] for run in (captured, eager))
    assert next(losses) == pytest.approx(next(losses), rel=1e-3)


@pytest.mark.gpu
def test_on_a_gpu_what_a_run_sets_is_put_back():
    mode, state = torch.get_deterministic_debug_mode(), torch.cuda.get_rng_state()
    with isolated(torch.device("cuda", 0)):
        torch.randn(3, device="cuda")
    assert torch.get_deterministic_debug_mode() == mode
    assert torch.equal(torch.cuda.get_rng_state(), state)
