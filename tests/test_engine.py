"""The engine: steps recorded and put back, batches made ahead, processes that share a run, jobs, failures."""

import contextlib
import errno
import itertools
import math
import os
import signal
import subprocess
import sys
import time
import types
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from geolib.lab import Config, LabError, read_all, run, runner, train, training
from geolib.lab import gpu_step as steps
from geolib.lab import records as lab_records
from geolib.lab.__main__ import main
from geolib.lab.config import STEP_FORMS, Options
from geolib.lab.data.augmentation import crop_and_flip
from geolib.lab.data.batches import Stream, augmented, batches_ahead
from geolib.lab.data.sets import Dataset
from geolib.lab.experiments import EXPERIMENTS
from geolib.lab.gpu_step import MODELS, CapturedStep, EagerStep, compiled, put_back
from geolib.lab.records import Folders, device_name
from geolib.lab.runner import Job, side_by_side
from geolib.lab.train import Run, is_out_of_memory
from geolib.lab.watch import Stopped, Watch

ROOT = Path(__file__).resolve().parents[1]
TINY = {"patch": 8, "width": 16, "heads": 2, "layers": 1, "batch": 32, "epochs": 2}
CPU = torch.device("cpu")


pytestmark = pytest.mark.usefixtures("one_thread")


@contextlib.contextmanager
def stopped_after(step, monkeypatch):
    """What trains inside gets SIGTERM after this step."""
    usual = Watch.after_step

    def after_step(self, live):
        if live.done == step:
            signal.raise_signal(signal.SIGTERM)
        usual(self, live)

    with monkeypatch.context() as patch:
        patch.setattr(Watch, "after_step", after_step)
        yield


def noise(train=144, test=40, classes=10):
    """A small CIFAR-10 of noise: 144 images are four full batches of 32 and one of 16."""
    g = torch.Generator().manual_seed(3)
    parts = []
    for count in (train, test):
        parts.append(torch.randint(0, 256, (count, 3, 32, 32), generator=g, dtype=torch.uint8))
        parts.append(torch.randint(0, classes, (count,), generator=g))
    return Dataset("cifar10", *parts, classes=tuple(map(str, range(classes))), source="noise")


def prepare(folder, data):
    """The same set as prepared arrays in $GEOLIB_DATA, for another process."""
    arrays = {"classes": np.array(data.classes)}
    for part in ("train", "test"):
        arrays[f"x_{part}"] = getattr(data, f"x_{part}").permute(0, 2, 3, 1).numpy()
        arrays[f"y_{part}"] = getattr(data, f"y_{part}").numpy().astype(np.uint8)
    folder.mkdir()
    np.savez(folder / "cifar10.npz", **arrays)


def timeless(metrics):
    return [{key: value for key, value in row.items() if key != "seconds"} for row in metrics]


# Batches ------------------------------------------------------------------------------------------------------------


def test_batches_made_ahead_hold_each_image_once_with_its_label():
    images = torch.arange(50, dtype=torch.uint8).view(50, 1, 1, 1)
    order = torch.randperm(50)
    for ahead in (1, 3, 100):
        made = list(augmented(images, torch.arange(50), order, 8, ahead, 0, Stream(CPU), lambda x: x))
        assert [len(labels) for _, labels in made] == [8] * 6 + [2]
        assert torch.cat([labels for _, labels in made]).equal(order)
        assert all(x.flatten().equal(labels.to(torch.uint8)) for x, labels in made)


def test_a_gpu_augments_as_many_whole_batches_at_a_time_as_make_8192_images_and_a_processor_one():
    wanted = {1: 8192, 32: 256, 100: 81, 4096: 2, 5000: 1, 8192: 1, 10_000: 1}
    assert {size: batches_ahead(size, torch.device("cuda", 1)) for size in wanted} == wanted
    assert {batches_ahead(size, CPU) for size in wanted} == {1}


@pytest.mark.parametrize("first", range(7))
def test_an_epoch_that_goes_on_inside_a_block_draws_the_same_images(first):
    images = torch.randint(0, 256, (50, 3, 8, 8), dtype=torch.uint8)
    order, ahead = torch.randperm(50), 3

    def epoch(stream, first):
        return augmented(images, torch.arange(50), order, 8, ahead, first, stream, crop_and_flip)

    whole, stopped = Stream(CPU), Stream(CPU)
    whole.seed(7)
    stopped.seed(7)
    everything = [x for x, _ in epoch(whole, 0)]
    batches = epoch(stopped, 0)
    for _ in range(first):
        next(batches)
        torch.rand(3)  # others draw from the default generator in between
    resumed = Stream(CPU)
    resumed.states = stopped.marked if first % ahead else stopped.states  # what a checkpoint holds
    rest = [x for x, _ in epoch(resumed, first)]
    assert len(rest) == 7 - first
    assert all(a.equal(b) for a, b in zip(rest, everything[first:]))


def test_a_stream_keeps_the_state_of_its_gpu_and_puts_it_back(monkeypatch):
    gpu, put = torch.device("cuda", 1), []
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: torch.tensor([device.index]))
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: put.append((state.item(), device)))
    stream = Stream(gpu)
    assert len(stream.states) == 2
    stream.resume(stream.states)
    assert put == [(1, gpu)]


def test_drawing_from_a_stream_leaves_the_default_generator_alone():
    stream = Stream(CPU)
    stream.seed(5)
    before = torch.get_rng_state()
    with stream.drawing():
        first = torch.rand(4)
    with stream.drawing():
        second = torch.rand(4)
    assert torch.get_rng_state().equal(before)
    expected = torch.rand(8, generator=torch.Generator().manual_seed(5))
    assert torch.cat([first, second]).equal(expected)


# Steps --------------------------------------------------------------------------------------------------------------


class Graph:
    """Stands in for a CUDA graph: a recording is done again at each replay, and not when it is made."""

    def __init__(self, work, state):
        self.work, self.state = work, state

    def replay(self):
        self.state.copy_(self.work())


def record_on_the_cpu(work):
    result = torch.full((), math.nan)
    return Graph(work, result), result


@pytest.fixture
def recording(monkeypatch):
    """CapturedStep on the CPU, with stand-ins for what needs a GPU; the list of warm-up calls."""
    warmed = []

    def warm_up(work, device):
        for _ in range(3):
            warmed.append(work())

    monkeypatch.setattr(steps, "warm_up", warm_up)
    monkeypatch.setattr(steps, "record", record_on_the_cpu)
    usual = Run.step_of_form

    def step_of_form(self, form):
        if form == "eager":
            return usual(self, form)
        return CapturedStep(self.model, self.loss, self.optimizer, self.config.batch, compiles=form == "compiled")

    monkeypatch.setattr(Run, "step_of_form", step_of_form)
    return warmed


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_a_recorded_step_trains_to_the_same_numbers(recording, dropout):
    config, data = Config("cifar10", "rope", augment="crop-flip", dropout=dropout, **TINY), noise()
    eager = train(config, data, device="cpu", step="eager", quiet=True)
    assert recording == []
    captured = train(config, data, device="cpu", step="captured", quiet=True)
    assert len(recording) == 3  # once for the whole run
    assert (captured.take_step.form, captured.take_step.why) == ("captured", "")
    assert timeless(captured.metrics) == timeless(eager.metrics)


def test_a_recorded_run_that_was_stopped_ends_in_the_same_numbers(recording, tmp_path, monkeypatch):
    config, data = Config("cifar10", "riemannformer+lf", augment="crop-flip", dropout=0.2, **TINY), noise()
    undisturbed = train(config, data, device="cpu", step="captured", quiet=True)
    checkpoint = tmp_path / "run.pt"
    with stopped_after(7, monkeypatch), pytest.raises(Stopped):
        train(config, data, device="cpu", step="captured", checkpoint=checkpoint, quiet=True)
    resumed = train(config, data, device="cpu", step="captured", checkpoint=checkpoint, quiet=True)
    assert timeless(resumed.metrics) == timeless(undisturbed.metrics)


def test_a_compiled_step_is_the_eager_one(recording, monkeypatch):
    compile_usually = torch.compile
    seen = []

    def compile_without_a_compiler(model, **options):
        seen.append(options)
        return compile_usually(model, backend="eager", **options)

    monkeypatch.setattr(torch, "compile", compile_without_a_compiler)
    config, data = Config("cifar10", "rope-axial", **(TINY | {"epochs": 1})), noise()
    eager = train(config, data, device="cpu", step="eager", quiet=True)
    made = train(config, data, device="cpu", step="compiled", quiet=True)
    assert made.take_step.form == "compiled and captured"
    assert seen == [{"dynamic": False, "fullgraph": True}]
    assert made.metrics[0]["train_loss"] == pytest.approx(eager.metrics[0]["train_loss"], rel=1e-5)


def test_what_cannot_be_recorded_is_taken_eagerly_and_the_record_says_why(recording, monkeypatch, tmp_path):
    def warm_up(work, device):
        work()
        raise RuntimeError("called a synchronizing CUDA operation\nmore lines")

    def no_compiler(model, **options):
        raise RuntimeError("Failed to find C compiler")

    config, data = Config("cifar10", "rope", augment="crop-flip", dropout=0.2, **TINY), noise()
    eager = train(config, data, device="cpu", step="eager", quiet=True)
    monkeypatch.setattr(steps, "warm_up", warm_up)
    monkeypatch.setattr(torch, "compile", no_compiler)
    record = run(config, data=data, out=tmp_path, device="cpu", step="compiled", quiet=True)
    assert timeless(record.metrics) == timeless(eager.metrics)
    assert record.engine["step"] == "eager"
    assert record.engine["why"] == (
        "not compiled and captured: Failed to find C compiler; not captured: called a synchronizing CUDA operation"
    )
    assert lab_records.read(tmp_path / f"{config.name}.json") == record


LACK = "CUDA out of memory. Tried to allocate 2.00 GiB.\nSee documentation"


def test_a_recording_that_memory_does_not_hold_is_left_and_the_step_taken_eagerly(recording, monkeypatch, tmp_path):
    def record_nothing(work):
        raise torch.OutOfMemoryError(LACK)

    config, data = Config("cifar10", "rope", augment="crop-flip", dropout=0.2, **TINY), noise()
    eager = train(config, data, device="cpu", step="eager", quiet=True)
    monkeypatch.setattr(steps, "record", record_nothing)
    tried = train(config, data, device="cpu", step="captured", quiet=True)
    assert timeless(tried.metrics) == timeless(eager.metrics)
    assert tried.take_step.form == "eager"
    assert tried.take_step.why == "not captured: CUDA out of memory. Tried to allocate 2.00 GiB."


def test_a_recording_that_leaves_no_memory_for_the_last_batch_is_given_up(recording, monkeypatch, tmp_path):
    usual, lacked = EagerStep.backward, []

    def backward(self, images, labels):
        if len(labels) == 16 and not lacked:
            lacked.append(True)
            raise torch.OutOfMemoryError(LACK)
        return usual(self, images, labels)

    config, data = Config("cifar10", "rope", augment="crop-flip", **TINY), noise()
    eager = train(config, data, device="cpu", step="eager", quiet=True)
    monkeypatch.setattr(EagerStep, "backward", backward)
    record = run(config, data=data, out=tmp_path, device="cpu", step="captured", quiet=True)
    assert lacked
    assert timeless(record.metrics) == timeless(eager.metrics)
    said = "not captured to the end: CUDA out of memory. Tried to allocate 2.00 GiB."
    assert (record.engine["step"], record.engine["why"]) == ("eager", said)
    lacked.clear()
    with pytest.raises(LabError, match="out of memory on cpu; lower batch"):  # there is no recording to give up
        train(config, data, device="cpu", step="eager", quiet=True)


def test_an_evaluation_that_memory_does_not_hold_is_made_in_smaller_batches(monkeypatch, tmp_path):
    usual, asked = Run.scores, []

    def scores(self, images, model=None):
        if model is None:
            asked.append(len(images))
            if len(images) > 12:
                raise torch.OutOfMemoryError(LACK)
        return usual(self, images, model)

    config, data = Config("cifar10", "rope", **TINY), noise()
    whole = train(config, data, device="cpu", quiet=True)
    monkeypatch.setattr(Run, "scores", scores)
    record = run(config, data=data, out=tmp_path, device="cpu", quiet=True)
    assert asked == [40, 20, 10, 10, 10, 10] + [10] * 4  # what fits is remembered
    assert record.engine["why"] == "tested 10 at a time: out of memory at more"
    for row, same in zip(record.metrics, whole.metrics):
        assert row["test_accuracy"] == same["test_accuracy"]
        assert row["test_loss"] == pytest.approx(same["test_loss"], rel=1e-5)


@pytest.mark.parametrize(("fits", "found"), [(9, 8), (8, 8), (7, 4), (2, 2), (1, 1)])
def test_what_memory_does_not_hold_is_done_in_halves_down_to_one(fits, found, monkeypatch):
    asked, given_back = [], []
    monkeypatch.setattr(training, "give_back", lambda: given_back.append(asked[-1]))

    def work(size):
        asked.append(size)
        if size > fits:
            raise torch.OutOfMemoryError(LACK)
        return f"{size} at a time"

    assert training.halving(work, 8) == (f"{found} at a time", found)
    assert asked == [*given_back, found] == [size for size in (8, 4, 2, 1) if size >= found]


def test_an_evaluation_of_one_that_memory_does_not_hold_and_other_errors_are_errors():
    def always(error):
        def work(size):
            raise error

        return work

    for error in (torch.OutOfMemoryError(LACK), RuntimeError("shapes cannot be multiplied")):
        with pytest.raises(RuntimeError, match=str(error)[:10]):
            training.halving(always(error), 4)


@pytest.mark.parametrize(("error", "code"), [(torch.OutOfMemoryError(LACK), 2), (RuntimeError("planted"), 1)])
def test_a_run_that_fails_leaves_nothing_in_memory_and_the_next_one_goes_on(error, code, monkeypatch, tmp_path, capsys):
    usual, models = Run.update, []

    def update(self, batch):
        models.append(weakref.ref(self.model))
        if self.config.seed == 0:
            raise type(error)(*error.args)  # one that nobody else holds
        assert models[0]() is None  # what the first run held would be lacking here
        usual(self, batch)

    monkeypatch.setattr(Run, "update", update)
    words = ["run", "digits-encodings", "--scale", "smoke", "--only", "none", "--seeds", "0", "1", "--quiet"]
    assert main([*words, "--out", str(tmp_path)]) == code
    printed = capsys.readouterr()
    assert "seed1" in printed.out
    assert "seed0" in printed.err
    assert len(list(tmp_path.rglob("*seed1*.json"))) == 1
    assert ("Traceback" in printed.err) == (code == 1)


def test_steps_that_were_tried_leave_no_trace():
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)

    def loss(model, x, y):
        return torch.nn.functional.cross_entropy(model(x), y)

    step = EagerStep(model, loss, optimizer)
    x, y = torch.randn(6, 5), torch.tensor([0, 1, 2, 0, 1, 2])
    for started in (False, True):
        weights = [(p, p.data_ptr(), p.detach().clone()) for p in model.parameters()]
        state = torch.get_rng_state()
        with contextlib.suppress(ZeroDivisionError), put_back(model, optimizer):
            first = step(x, y)
            step(x, y)
            raise ZeroDivisionError
        assert torch.get_rng_state().equal(state)
        assert all(p.data_ptr() == place and p.equal(value) for p, place, value in weights)
        assert started or not any(v.any() for s in optimizer.state.values() for v in s.values())
        assert step(x, y).equal(first)  # and the next step is the first one, moments included
        after = [p.detach().clone() for p in model.parameters()]
        if not started:
            fresh = torch.optim.AdamW([w.clone().requires_grad_() for _, _, w in weights], lr=0.1, fused=True)
            for p, (q, _, _) in zip(fresh.param_groups[0]["params"], weights):
                p.grad = q.grad.clone()
            fresh.step()
            assert all(a.equal(b) for a, b in zip(fresh.param_groups[0]["params"], after))


class Recorder:
    """Stands in for torch.cuda: notes in which order the pieces of a recording are used."""

    def __init__(self):
        self.events, self.mode = [], 0

    def note(self, *words):
        self.events.append(" ".join(map(str, words)))

    @contextlib.contextmanager
    def inside(self, name):
        self.note("enter", name)
        yield
        self.note("leave", name)

    def named(self, name):
        return types.SimpleNamespace(wait_stream=lambda other: self.note(name, "waits"))

    def set_sync_debug_mode(self, mode):
        self.note("waiting is", mode)
        self.mode = mode

    def replace_state(self, fresh):
        self.note("the generator goes on from", self.state.equal(fresh.get_state()))

    def install(self, monkeypatch):
        self.state = torch.Generator().manual_seed(3).get_state()
        generator = types.SimpleNamespace(
            device=CPU, get_state=lambda: self.state, graphsafe_set_state=self.replace_state
        )
        for name, stand_in in {
            "Stream": lambda device: self.named("side"),
            "current_stream": lambda device=None: self.named("main"),
            "current_device": lambda: 0,
            "default_generators": (generator,),
            "set_stream": lambda stream: self.note("back to the stream"),
            "synchronize": lambda: self.note("wait for all"),
            "stream": lambda stream: self.inside("side"),
            "get_sync_debug_mode": lambda: self.mode,
            "set_sync_debug_mode": self.set_sync_debug_mode,
            "CUDAGraph": lambda: "graph",
            "graph": self.inside,
        }.items():
            monkeypatch.setattr(torch.cuda, name, stand_in)


def test_a_recording_is_warmed_up_beside_the_stream_and_may_not_wait(monkeypatch):
    recorder = Recorder()
    recorder.install(monkeypatch)
    steps.warm_up(lambda: recorder.note("work"), torch.device("cuda", 0))
    assert recorder.events == [
        "side waits",
        "enter side",
        "work",
        "work",
        "waiting is error",
        "work",
        "waiting is 0",
        "leave side",
        "main waits",
    ]
    recorder.events.clear()
    assert steps.record(lambda: torch.ones(())) == ("graph", torch.ones(()))
    assert recorder.events == ["enter graph", "leave graph"]
    with pytest.raises(ZeroDivisionError), steps.waiting_forbidden():
        raise ZeroDivisionError
    assert recorder.mode == 0


def test_what_a_warm_up_began_is_waited_for_when_it_fails(monkeypatch):
    recorder = Recorder()
    recorder.install(monkeypatch)

    def work():
        recorder.note("work")
        if recorder.mode:
            raise RuntimeError("called a synchronizing CUDA operation")

    with pytest.raises(RuntimeError, match="synchronizing"):
        steps.warm_up(work, torch.device("cuda", 0))
    assert recorder.events[-3:] == ["work", "waiting is 0", "main waits"]


def test_a_recording_that_breaks_off_leaves_stream_and_generator_as_they_were(monkeypatch):
    recorder = Recorder()
    recorder.install(monkeypatch)

    @contextlib.contextmanager
    def broken(graph):  # PyTorch's own does not leave the stream when the recording cannot be ended
        recorder.note("enter", graph)
        yield
        raise RuntimeError("operation failed due to a previous error during capture")

    monkeypatch.setattr(torch.cuda, "graph", broken)
    with pytest.raises(RuntimeError, match="previous error"):
        steps.record(lambda: torch.ones(()))
    assert recorder.events == ["enter graph", "back to the stream", "the generator goes on from True", "wait for all"]


def test_only_an_algorithm_without_a_repeatable_form_gives_repeatability_up():
    modes = []

    def work():
        modes.append(torch.get_deterministic_debug_mode())  # 2: errors, 1: warnings
        if modes[-1] == 2:
            raise RuntimeError("cumsum_cuda_kernel does not have a deterministic implementation")
        return torch.ones(())

    def other_trouble():
        raise RuntimeError("another error")

    try:
        torch.use_deterministic_algorithms(True)
        with pytest.raises(RuntimeError, match="another"):
            steps.repeatably(other_trouble)
        assert torch.get_deterministic_debug_mode() == 2
        assert steps.repeatably(work) == 1
        assert modes == [2, 1]
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_run_without_a_full_batch_says_so(recording, tmp_path):
    config = Config("cifar10", **(TINY | {"batch": 10_000}))
    record = run(config, data=noise(), out=tmp_path, device="cpu", step="captured", quiet=True)
    assert (record.engine["step"], record.engine["why"]) == ("eager", "no batch was full")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("method", ["none", "learned", "riemannformer+lf", "rope-mixed+lf", "liere"])
@pytest.mark.parametrize("form", ["captured", "compiled"])
def test_on_a_gpu_every_form_trains_to_the_same_losses_and_resumes_exactly(form, method, tmp_path, monkeypatch):
    options = {"block": 8} if method == "liere" else {}
    augment = {"augment": "crop-flip-autoaugment", "erase": 0.5, "dropout": 0.1 * (form == "captured")}
    config, data = Config("cifar10", method, method_options=options, **augment, **TINY), noise()
    eager = train(config, data, device="cuda", step="eager", quiet=True)
    undisturbed = train(config, data, device="cuda", step=form, quiet=True)
    wanted = "captured" if form == "captured" else "compiled and captured"
    assert undisturbed.take_step.form == wanted, undisturbed.take_step.why
    assert [row["train_loss"] for row in undisturbed.metrics] == pytest.approx(
        [row["train_loss"] for row in eager.metrics], rel=0.02
    )
    checkpoint = tmp_path / "run.pt"
    with stopped_after(7, monkeypatch), pytest.raises(Stopped):
        train(config, data, device="cuda", step=form, checkpoint=checkpoint, quiet=True)
    resumed = train(config, data, device="cuda", step=form, checkpoint=checkpoint, quiet=True)
    assert timeless(resumed.metrics) == timeless(undisturbed.metrics)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_a_recording_that_breaks_off_can_be_followed_by_anything():
    def reads_back():
        return torch.rand(8, device="cuda") * torch.rand(8, device="cuda").sum().item()

    before = torch.cuda.current_stream()
    with pytest.raises(RuntimeError):
        steps.record(reads_back)
    assert torch.cuda.current_stream() == before
    assert torch.rand(8, device="cuda").sum().item() > 0  # the generator works outside a recording
    graph, result = steps.record(lambda: torch.rand(8, device="cuda").sum())
    graph.replay()
    first = result.item()
    graph.replay()
    assert result.item() != first


def test_models_of_one_method_and_shape_are_compiled_once(monkeypatch):
    from geolib.lab.vit import ViT

    graphs, usual = [], torch.compile

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr(torch, "compile", lambda model, **options: usual(model, backend=backend, **options))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    torch.compiler.reset()
    sizes = {key: TINY[key] for key in ("patch", "width", "heads", "layers")}
    for method in ("none", "rope"):
        for seed in range(3):
            torch.manual_seed(seed)
            model = ViT(Config("cifar10", method, **sizes), (3, 32, 32), 10)
            images = torch.randn(4, 3, 32, 32)
            torch.testing.assert_close(compiled(model)(images), model(images))
        assert len(graphs) == ("none", "rope").index(method) + 1
    assert torch._dynamo.config.recompile_limit >= MODELS
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"].endswith("compiled")


def test_an_unknown_form_of_step_is_an_error():
    with pytest.raises(LabError, match="step: got 'fast'; it is one of auto, compiled, captured, eager"):
        train(Config("cifar10", **TINY), noise(), device="cpu", step="fast", quiet=True)


# The device ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_each_form_of_a_step_is_the_one_for_its_device_and_length(kind, monkeypatch):
    live = Run(Config("cifar10", **TINY), noise(), CPU)
    live.device = torch.device(kind)
    for name in ("EagerStep", "CapturedStep"):
        monkeypatch.setattr(training, name, lambda *given, name=name: (name, *given))
    parts = (live.model, live.loss, live.optimizer)
    for form, more in itertools.product(STEP_FORMS, (-1, 0, 1)):
        monkeypatch.setattr(training, "COMPILE_STEPS", live.total + more)
        compiles = form == "compiled" or (form == "auto" and more < 1)
        eager = kind == "cpu" or form == "eager"
        wanted = ("EagerStep", *parts) if eager else ("CapturedStep", *parts, 32, compiles)
        assert live.step_of_form(form) == wanted


class Repeatability:
    """What decides whether algorithms repeat, with stand-ins for what needs a GPU; ``touched``: the devices asked."""

    def __init__(self, monkeypatch):
        self.touched, fork = [], torch.random.fork_rng

        @contextlib.contextmanager
        def touching(device):
            self.touched.append(device)
            yield

        @contextlib.contextmanager
        def fork_rng(devices):
            self.touched += devices
            with fork(devices=[]):
                yield

        monkeypatch.setattr(torch.random, "fork_rng", fork_rng)
        monkeypatch.setattr(torch.cuda, "device", touching)
        monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", self.touched.append)
        monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
        monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)

    @property
    def now(self):
        """(the mode: 2 where an algorithm that does not repeat is an error, whether memory is filled)."""
        return torch.get_deterministic_debug_mode(), torch.utils.deterministic.fill_uninitialized_memory


@pytest.mark.parametrize("trouble", [None, ZeroDivisionError])
@pytest.mark.parametrize("mode", [0, 1])
def test_on_a_gpu_a_run_repeats_and_what_it_set_for_that_is_put_back(monkeypatch, mode, trouble):
    settings, gpu, drawn = Repeatability(monkeypatch), torch.device("cuda", 1), torch.get_rng_state()
    torch.set_deterministic_debug_mode(mode)
    try:
        with contextlib.suppress(ZeroDivisionError), training.isolated(gpu):
            assert settings.now == (2, False)
            assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
            assert settings.touched == [gpu] * 3
            torch.rand(3)
            if trouble:
                raise trouble
        assert settings.now == (mode, True)
        assert torch.get_rng_state().equal(drawn)
    finally:
        torch.set_deterministic_debug_mode(0)


def test_on_a_processor_a_run_sets_nothing_and_leaves_the_generator_as_it_was(monkeypatch):
    settings, drawn = Repeatability(monkeypatch), torch.get_rng_state()
    with training.isolated(CPU):
        assert settings.now == (0, True)
        assert settings.touched == []
        torch.rand(3)
    assert torch.get_rng_state().equal(drawn)
    assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ


def test_a_workspace_that_the_user_chose_stays(monkeypatch):
    Repeatability(monkeypatch)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    with training.isolated(torch.device("cuda", 0)):
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"


@pytest.mark.parametrize(("platform", "unit"), [("linux", 1024), ("darwin", 1)])
def test_peak_memory_is_in_bytes_of_the_process_or_of_the_gpu_that_is_asked_for(monkeypatch, platform, unit):
    used = {training.resource.RUSAGE_SELF: 7}
    monkeypatch.setattr(training.sys, "platform", platform)
    monkeypatch.setattr(training.resource, "getrusage", lambda who: types.SimpleNamespace(ru_maxrss=used[who]))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 100 + device.index)
    assert training.peak_memory(CPU) == 7 * unit
    assert [training.peak_memory(torch.device("cuda", i)) for i in (0, 3)] == [100, 103]


def test_a_gpu_fetches_what_it_is_given_from_pinned_memory_by_itself_and_a_processor_has_it(monkeypatch):
    x, gpu, moved = torch.arange(3), torch.device("cuda", 1), []

    class Pinned:
        def to(self, *where, **how):
            moved.append((where, how))
            return self

    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: Pinned())
    assert training.without_waiting(x, CPU) is x
    assert isinstance(training.without_waiting(x, gpu), Pinned)
    assert moved == [((gpu,), {"non_blocking": True})]


# Jobs ---------------------------------------------------------------------------------------------------------------


def stand_in(monkeypatch, script):
    """Children that run a script of the test instead of the lab."""
    usual = subprocess.Popen

    def popen(words, **options):
        return usual([sys.executable, "-c", script], **options)

    monkeypatch.setattr(runner.subprocess, "Popen", popen)


def some_jobs(tmp_path, count):
    return [Job(Config("digits", seed=seed), "test", "smoke", Folders.below(tmp_path)) for seed in range(count)]


def test_a_job_comes_back_from_json(tmp_path):
    job = replace(some_jobs(tmp_path, 1)[0], deadline=12.5, options=Options(device="cuda:1"), at_a_time=3)
    assert Job.from_json(job.to_json()) == job


def test_a_child_that_fails_is_reported_and_the_others_go_on(tmp_path, monkeypatch):
    script = "import json, sys; s = json.load(sys.stdin)['config']['seed']; print(f'trouble {s}', file=sys.stderr);"
    stand_in(monkeypatch, script + "sys.exit(2 if s == 1 else 0)")
    begun, start = [], runner._start

    def with_at_most_one_beside_it(job, count):
        assert sum(child.process.poll() is None for child in begun) < 2
        begun.append(start(job, count))
        return begun[-1]

    monkeypatch.setattr(runner, "_start", with_at_most_one_beside_it)
    ended = list(side_by_side(some_jobs(tmp_path, 4), 2))
    assert sorted((job.config.seed, code) for job, code, _ in ended) == [(0, 0), (1, 2), (2, 0), (3, 0)]
    assert all(error == f"trouble {job.config.seed}" for job, _, error in ended)
    assert all(job.at_a_time == 2 for job, _, _ in ended)


def test_a_job_that_is_not_there_yet_is_asked_for_again_and_those_at_work_are_not_ended(tmp_path, monkeypatch):
    stand_in(
        monkeypatch, "import json, sys, time; time.sleep(0.1); sys.exit(3 + json.load(sys.stdin)['config']['seed'])"
    )
    first, second = some_jobs(tmp_path, 2)
    ended = list(side_by_side([first, None, None, second, None], 2))
    assert [(job.config.seed, code, error) for job, code, error in ended] == [(0, 3, ""), (1, 4, "")]


def test_jobs_work_at_the_same_time_and_a_signal_ends_them_all(tmp_path, monkeypatch):
    folder = tmp_path / "marks"
    folder.mkdir()
    stand_in(
        monkeypatch,
        f"""
import json, pathlib, signal, sys, time
seed, folder = json.load(sys.stdin)["config"]["seed"], pathlib.Path({str(folder)!r})
def end(*_):
    (folder / f"ended {{seed}}").touch()
    sys.exit(143)
signal.signal(signal.SIGTERM, end)
(folder / f"began {{seed}}").touch()
time.sleep(60)
""",
    )
    started = time.monotonic()

    def asked(seconds):
        # The parent sleeps between two looks at its children; the signal comes when two have begun.
        if len(list(folder.glob("began *"))) == 2:
            signal.raise_signal(signal.SIGTERM)
        assert time.monotonic() - started < 50
        usual(seconds)

    usual = time.sleep
    monkeypatch.setattr("geolib.lab.runner.time", types.SimpleNamespace(sleep=asked, time=time.time))
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Stopped, match="SIGTERM") as stop:
        list(side_by_side(some_jobs(tmp_path, 3), 2))
    assert stop.value.signal == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before
    assert sorted(path.name for path in folder.iterdir()) == ["began 0", "began 1", "ended 0", "ended 1"]


def test_run_with_jobs_records_what_one_after_the_other_would(tmp_path, monkeypatch, capsys):
    data = noise()
    prepare(tmp_path / "data", data)
    monkeypatch.setenv("GEOLIB_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    experiment = EXPERIMENTS["riemannformer-table1"]
    changed = replace(experiment, settings=dict(experiment.settings) | {"smoke": TINY})
    monkeypatch.setitem(EXPERIMENTS, experiment.name, changed)
    words = ["run", experiment.name, "--scale", "smoke", "--only", "none/cifar10", "--only", "rope/cifar10", "--quiet"]
    assert main([*words, "--jobs", "2", "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    kept = read_all(tmp_path / "out" / experiment.name)
    assert {record.config.method for record in kept} == {"none", "rope"}
    for record in kept:
        assert f"{record.name}: {100 * record.accuracy:.2f}%" in printed
        assert record.engine["jobs"] == 2
        assert 0 <= record.learned["shuffled_accuracy"] <= 1
        assert timeless(record.metrics) == timeless(train(record.config, data, device="cpu", quiet=True).metrics)


# Failures -----------------------------------------------------------------------------------------------------------


def test_a_disk_that_fills_up_while_a_run_is_saved_keeps_the_checkpoint_before(tmp_path, monkeypatch):
    config, data, usual = Config("cifar10", "rope", **TINY), noise(), os.fsync
    undisturbed = train(config, data, device="cpu", quiet=True)
    calls = []

    def fsync(number):
        calls.append(number)
        if len(calls) == 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        usual(number)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(LabError, match=r"\.pt: could not be written \(No space left on device\); nothing was changed"):
        run(config, data=data, out=tmp_path, device="cpu", checkpoint_seconds=0.0, quiet=True)
    checkpoint = tmp_path / "runs" / f"{config.name}.pt"
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [checkpoint]
    assert torch.load(checkpoint, weights_only=True)["progress"][:2] == (0, 3)
    monkeypatch.setattr(os, "fsync", usual)
    record = run(config, data=data, out=tmp_path, device="cpu", quiet=True)
    assert timeless(record.metrics) == timeless(undisturbed.metrics)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nSee documentation"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:118] . DefaultCPUAllocator: not enough memory: you tried ..."),
        MemoryError(),
    ],
)
def test_out_of_memory_says_which_setting_to_lower(tmp_path, monkeypatch, error):
    usual, checkpoint = Run.update, tmp_path / "run.pt"

    def update(self, batch):
        if self.done == 2:
            raise error
        usual(self, batch)

    monkeypatch.setattr(Run, "update", update)
    said = r"^out of memory on cpu; lower batch \(now 32\), then width \(now 16\).*fewer jobs.*run\.pt$"
    with pytest.raises(LabError, match=said) as told:
        train(Config("cifar10", **TINY), noise(), device="cpu", checkpoint=checkpoint, checkpoint_seconds=0, quiet=True)
    assert "\n" not in str(told.value)
    assert checkpoint.is_file()


def test_the_processors_own_lack_of_memory_is_recognised():
    with pytest.raises(RuntimeError) as error:
        torch.empty(2**50)
    assert is_out_of_memory(error.value)
    assert not is_out_of_memory(RuntimeError("shapes cannot be multiplied"))


def test_a_run_longer_than_its_whole_budget_leaves_no_checkpoint(tmp_path, monkeypatch):
    now = [1000.0]
    for module in ("geolib.lab.watch", "geolib.lab.train"):
        monkeypatch.setattr(f"{module}.time", types.SimpleNamespace(monotonic=lambda: now[0]))
    usual = Run.update

    def update(self, batch):
        usual(self, batch)
        now[0] += 10

    monkeypatch.setattr(Run, "update", update)
    config, checkpoint = Config("cifar10", **TINY), tmp_path / "run.pt"  # 10 steps: 100 s
    with pytest.raises(Stopped, match="given up") as stop:
        train(config, noise(), device="cpu", checkpoint=checkpoint, time_budget=50, checkpoint_seconds=999, quiet=True)
    assert not checkpoint.exists()
    assert stop.value.advice == "give it a larger time budget"
    with pytest.raises(Stopped, match="given up") as stop:
        train(config, noise(), device="cpu", checkpoint=checkpoint, time_budget=95, checkpoint_seconds=999, quiet=True)
    assert checkpoint.exists()
    assert stop.value.advice == "the same command goes on from its checkpoint"


def test_the_time_that_a_recording_takes_does_not_count_as_slowness(recording, tmp_path, monkeypatch):
    now = [1000.0]
    for module in ("geolib.lab.watch", "geolib.lab.train", "geolib.lab.gpu_step"):
        monkeypatch.setattr(f"{module}.time", types.SimpleNamespace(monotonic=lambda: now[0]))

    def warm_up(work, device):
        now[0] += 40  # a compilation

    usual = Run.update

    def update(self, batch):
        usual(self, batch)
        now[0] += 1

    monkeypatch.setattr(steps, "warm_up", warm_up)
    monkeypatch.setattr(Run, "update", update)
    config, checkpoint = Config("cifar10", **TINY), tmp_path / "run.pt"  # 10 steps: 10 s
    done = train(
        config, noise(), device="cpu", step="captured", checkpoint=checkpoint, checkpoint_seconds=999, time_budget=60
    )
    assert done.seconds == pytest.approx(50)
    assert done.preparing_seconds == pytest.approx(40)
    assert done.images_per_second == pytest.approx(2 * 144 / 10)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"train_size": 145}, "train_size: got 145; there are only 144 images"),
        ({"test_size": 41}, "test_size: got 41; there are only 40 images"),
        ({"patch": 5}, "patch: got 5; it must divide the image"),
        ({"method": "rope", "method_options": {"bse": 3}}, "rope has no bse"),
        ({"method": "rope-axial", "width": 12, "heads": 4}, "got 3"),
    ],
)
def test_a_configuration_that_asks_for_the_impossible_is_one_line(settings, says):
    with pytest.raises(LabError, match=says) as error:
        train(Config("cifar10", **(TINY | settings)), noise(), device="cpu", quiet=True)
    assert "\n" not in str(error.value)


def test_a_damaged_record_is_named_and_the_others_are_not_lost(tmp_path, monkeypatch, capsys):
    prepare(tmp_path / "data", noise())
    monkeypatch.setenv("GEOLIB_DATA", str(tmp_path / "data"))
    experiment = EXPERIMENTS["riemannformer-table1"]
    settings = dict(experiment.settings) | {"smoke": TINY | {"epochs": 1}}
    monkeypatch.setitem(EXPERIMENTS, experiment.name, replace(experiment, settings=settings))
    out = ["--out", str(tmp_path / "out")]
    words = ["run", experiment.name, "--scale", "smoke", "--only", "none/cifar10", "--quiet", *out]
    assert main(words) == 0
    (whole,) = read_all(tmp_path / "out")
    config = experiment.config("laptop", "rope", "cifar10", 0)
    damaged = lab_records.path_of(config, experiment.name, tmp_path / "out")
    damaged.write_text("{")
    for command in (["table", experiment.name, "--scale", "smoke", *out], words):
        capsys.readouterr()
        assert main(command) == 2
        printed = capsys.readouterr()
        assert f"{100 * whole.accuracy:.2f}" in printed.out
        assert printed.err.count("\n") == 1
        assert str(damaged) in printed.err
        assert "delete it and run again" in printed.err
    one = {experiment.name: EXPERIMENTS[experiment.name]}
    monkeypatch.setattr("geolib.lab.__main__.EXPERIMENTS", one)  # of all of them it would take long
    assert main(["pending", "--scale", "laptop", *out]) == 2
    printed = capsys.readouterr()
    assert str(damaged) in printed.err
    assert config.name in printed.out
    assert damaged.read_text() == "{"


# The bench ----------------------------------------------------------------------------------------------------------


def test_the_bench_sets_both_loops_side_by_side():
    from geolib.lab.benches import training

    rows = training.run(images=64, epochs=2, width=16, layers=1, batch=32, workers=0)
    plain, wide, narrow, ratio, other = rows
    assert [row["loop"] for row in rows[:3]] == ["plain", "lab, eager, float32", "lab, eager, bf16"]
    assert (ratio["ratio"], other["ratio"]) == (f"{wide['loop']} / plain", f"{narrow['loop']} / plain")
    rate = "images_per_cpu_second"
    assert ratio["value"] == pytest.approx(wide[rate] / plain[rate])
    assert other["value"] == pytest.approx(narrow[rate] / plain[rate])
    assert all(row["device"] == device_name(CPU) for row in rows)


def test_the_plain_loop_crops_mirrors_and_standardises():
    pytest.importorskip("PIL")
    from geolib.lab.benches.training import PlainImages, random_images

    data = random_images(3)
    images, pixels = PlainImages(data), data.x_train.double()
    mean, deviation = (f((0, 2, 3))[:, None, None] for f in (pixels.mean, lambda axes: pixels.std(axes, correction=0)))
    standard = (torch.nn.functional.pad(pixels[0], (4, 4, 4, 4)) - mean) / deviation
    crops = [standard[:, i : i + 32, j : j + 32] for i in range(9) for j in range(9)]
    allowed = torch.stack(crops + [crop.flip(2) for crop in crops])
    found = {int((allowed - images[0][0]).abs().amax((1, 2, 3)).argmin()) for _ in range(60)}
    nearest = [(allowed - images[0][0]).abs().amax((1, 2, 3)).min().item() for _ in range(20)]
    assert max(nearest) < 1e-5
    assert len(found) > 20
    assert min(found) < 81 <= max(found)
