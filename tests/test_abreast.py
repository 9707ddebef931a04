"""Several runs in one process: each has the numbers it has alone; one compilation for all seeds of a shape."""

import os
import signal

import pytest
import torch

from geolib.lab import Config, read_all, train
from geolib.lab.__main__ import main
from geolib.lab.data import Dataset
from geolib.lab.experiments import EXPERIMENTS
from geolib.lab.training import Options, Run, Stopped
from geolib.lab.training import abreast as module
from geolib.lab.training.abreast import Lane, abreast
from geolib.lab.training.step import MODELS, compiled
from geolib.lab.training.watch import Diverged, Watch

TINY = {"patch": 8, "width": 16, "heads": 2, "layers": 1, "batch": 32, "epochs": 2, "augment": "crop-flip"}
CPU = torch.device("cpu")

pytestmark = pytest.mark.usefixtures("one_thread")


def noise():
    g = torch.Generator().manual_seed(3)
    x = [torch.randint(0, 256, (count, 3, 32, 32), generator=g, dtype=torch.uint8) for count in (144, 40)]
    y = [torch.randint(0, 10, (count,), generator=g) for count in (144, 40)]
    return Dataset("cifar10", x[0], y[0], x[1], y[1], classes=tuple(map(str, range(10))), source="noise")


def timeless(metrics):
    return [{key: value for key, value in row.items() if key != "seconds"} for row in metrics]


def configs():
    """Runs that draw from every generator, of different lengths."""
    return [
        Config("cifar10", "rope", dropout=0.2, **TINY),
        Config("cifar10", "none", seed=1, **(TINY | {"epochs": 3, "augment": "crop-flip-randaugment"})),
        Config("cifar10", "lf", seed=2, dropout=0.1, **(TINY | {"epochs": 1})),
    ]


def lanes(folder=None):
    checkpoints = [None if folder is None else folder / f"{i}.pt" for i in range(3)]
    return [Lane(c, noise(), Options(quiet=True, checkpoint=file)) for c, file in zip(configs(), checkpoints)]


def test_each_run_has_the_numbers_it_has_alone_and_comes_when_it_ends():
    before = torch.get_rng_state()
    ended = list(abreast(lanes(), CPU))
    assert torch.equal(torch.get_rng_state(), before)
    assert [number for number, _ in ended] == [2, 0, 1]  # the shortest first
    for number, run in ended:
        assert timeless(run.metrics) == timeless(train(configs()[number], noise(), quiet=True).metrics)
        assert not run.model.training


def test_steps_are_taken_in_turn_each_on_its_own_stream(monkeypatch):
    order = []

    class OnStream:
        def __init__(self, stream):
            self.stream = stream

        def __enter__(self):
            order.append(self.stream)

        def __exit__(self, *_):
            pass

    made = iter("abc")
    monkeypatch.setattr(module, "isolated", lambda device: OnStream("all"))
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: next(made))
    monkeypatch.setattr(module, "on", OnStream)
    monkeypatch.setattr(module, "steps", lambda lane, watch, device: iter([None, None, "run"]))
    ended = list(abreast(lanes(), torch.device("cuda", 0)))
    assert order == ["all", *"abc" * 3]
    assert ended == [(0, "run"), (1, "run"), (2, "run")]


def test_after_a_signal_all_keep_a_checkpoint_and_go_on_to_the_same_numbers(tmp_path, monkeypatch):
    usual = Watch.after_step

    def after_step(self, run):
        if run.config.method == "none" and run.done == 4:
            signal.raise_signal(signal.SIGTERM)
        usual(self, run)

    before = signal.getsignal(signal.SIGTERM)
    with monkeypatch.context() as patch:
        patch.setattr(Watch, "after_step", after_step)
        ended = dict(abreast(lanes(tmp_path), CPU))
    assert signal.getsignal(signal.SIGTERM) is before
    assert all(isinstance(ended[n], Stopped) and ended[n].signal == signal.SIGTERM for n in (0, 1, 2))
    for number, run in abreast(lanes(tmp_path), CPU):
        assert timeless(run.metrics) == timeless(train(configs()[number], noise(), quiet=True).metrics)


def test_a_run_that_fails_leaves_the_others_alone(monkeypatch):
    usual = Run.update

    def update(self, batch):
        usual(self, batch)
        if self.config.method == "rope":
            self.losses[0] = float("nan")

    monkeypatch.setattr(Run, "update", update)
    ended = dict(abreast(lanes(), CPU))
    assert isinstance(ended[0], Diverged)
    assert isinstance(ended[1], Run)
    assert isinstance(ended[2], Run)


def test_the_command_records_what_it_trains_abreast(tmp_path, monkeypatch, capsys):
    from dataclasses import replace

    monkeypatch.setattr("geolib.lab.experiments.conduct.load", lambda name: noise())
    experiment = EXPERIMENTS["riemannformer-table1"]
    changed = replace(experiment, settings=dict(experiment.settings) | {"smoke": TINY})
    monkeypatch.setitem(EXPERIMENTS, experiment.name, changed)
    rows = [word for row in ("none", "rope", "lf") for word in ("--only", f"{row}/cifar10")]
    words = ["run", experiment.name, "--scale", "smoke", "--abreast", "2", "--quiet", "--out", str(tmp_path), *rows]
    assert main(words) == 0
    kept = read_all(tmp_path)
    assert sorted((r.config.method, r.engine["jobs"]) for r in kept) == [("lf", 1), ("none", 2), ("rope", 2)]
    for record in kept:
        assert timeless(record.metrics) == timeless(train(record.config, noise(), quiet=True).metrics)
        assert 0 <= record.learned["shuffled_accuracy"] <= 1
    assert list((tmp_path / "runs").iterdir()) == []
    assert capsys.readouterr().out.count("; wrote ") == 3
    assert main([*words, "--jobs", "2"]) == 2


def test_models_of_one_method_and_shape_are_compiled_once(monkeypatch):
    from geolib.lab.models import ViT

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
