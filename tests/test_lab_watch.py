"""What watches a run: it ends within its time or says why not, loses little when it is killed, and hears signals.

The runs are made of numbers alone: steps, evaluations and checkpoints take as long as a test says, on its own clock.
"""

import math
import random
import re
import signal
import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from geolib.lab import watch
from geolib.lab.config import Options
from geolib.lab.files import LabError
from geolib.lab.watch import Diverged, Stopped, Watch


class Clock:
    """time.monotonic that runs with what is done."""

    def __init__(self, monkeypatch):
        self.now = 1000.0
        monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=lambda: self.now))


class Numbers:
    """A run that takes time and does nothing else."""

    unit, progress, headline = "images", 0, {}

    def __init__(self, clock, step=1.0, evaluation=0.0, saving=0.0, preparing=0.0, epochs=3, steps=10, begun=0):
        self.clock, self.began, self.took = clock, clock.now, (step, evaluation, saving, preparing)
        self.config = SimpleNamespace(epochs=epochs, batch=10, dataset="digits", method="none", seed=4)
        self.epoch, self.step, self.steps, self.test_examples = begun, 0, steps, 10
        self.metrics, self.evaluation_seconds = [], 0.0
        self.take_step = SimpleNamespace(preparing_seconds=0.0)
        self.losses, self.looked, self.saved = torch.ones(steps), [], []
        self.total, self.progress_total = epochs * steps, epochs * steps

    @property
    def done(self):
        return self.epoch * self.steps + self.step

    @property
    def seconds(self):
        return self.clock.now - self.began

    def check_finite(self):
        self.looked.append(self.clock.now)

    def save(self, path):
        self.clock.now += self.took[2]
        self.saved.append((self.clock.now, self.done))
        Path(path).touch()

    def go(self, watching):
        step, evaluation, _, preparing = self.took
        with watching as watching:
            watching.begin(self)
            for _ in range(self.epoch, self.config.epochs):
                for _ in range(self.steps):
                    self.clock.now += step + preparing
                    self.take_step.preparing_seconds += preparing
                    preparing = 0.0
                    self.step += 1
                    watching.after_step(self)
                self.clock.now += evaluation
                self.evaluation_seconds += evaluation
                self.metrics.append({"test_loss": 1.0})
                self.epoch, self.step = self.epoch + 1, 0
                watching.after_epoch(self)
        return self.seconds


def stopped(run, watching):
    """What stopped a run, or None."""
    try:
        run.go(watching)
    except Stopped as reason:
        return reason
    return None


def test_a_run_that_fits_its_budget_ends_and_another_stops_in_time_and_says_whether_to_go_on(monkeypatch, tmp_path):
    draw, seen = random.Random(0), set()
    for trial in range(300):
        clock, path = Clock(monkeypatch), tmp_path / f"{trial}.pt"
        step, evaluation, saving = draw.choice([0.1, 1.0, 30.0]), draw.choice([0.0, 1.0, 20.0]), draw.choice([0.0, 2.0])
        took = {"step": step, "evaluation": evaluation, "saving": saving, "preparing": draw.choice([0.0, 60.0])}
        took["epochs"] = draw.choice([1, 3])
        needed = Numbers(clock, **took).go(Watch(Options(quiet=True)))
        run, began = Numbers(clock, **took), clock.now
        budget = needed * draw.choice([0.3, 0.9, 1.05, 2.0]) + draw.choice([0.0, 10.0])
        options = Options(quiet=True, time_budget=budget, checkpoint=path, checkpoint_seconds=math.inf)
        reason = stopped(run, Watch(options))
        if reason is None:
            seen.add("ended")
            assert clock.now - began <= budget + evaluation + step
            continue
        told = re.fullmatch(r"(the time budget is spent|given up) after epoch (\d), step (\d+) of 10(.*)", str(reason))
        seen.add(told[1])
        assert (int(told[2]), int(told[3])) == (run.epoch, run.step)
        assert budget < needed + 1 + 1.5 * max(evaluation, step) + 2 * step + 2 * saving
        assert clock.now <= began + budget or run.done == 1 or (run.epoch, run.step) == (1, 0)  # not yet measured
        assert bool(run.saved) == reason.keep
        assert reason.signal is None
        if told[1] == "given up":
            rest, left = (
                float(n) for n in re.fullmatch(r": the rest takes about (\d+) s and (\d+) s are left", told[4]).groups()
            )
            spent = run.done * step + run.epoch * evaluation
            assert rest == pytest.approx((run.total - run.done) * spent / run.done, abs=0.6)
            assert left == pytest.approx(began + budget - clock.now + saving * reason.keep, abs=0.6)
            assert rest >= left - 1
            assert reason.keep == (rest <= budget) or abs(rest - budget) < 1
        else:
            assert reason.keep
        advice = "the same command goes on from its checkpoint" if reason.keep else "give it a larger time budget"
        assert reason.advice == advice
    assert seen == {"ended", "the time budget is spent", "given up"}


def test_an_evaluation_two_savings_and_two_steps_are_kept_free():
    """An evaluation at its mean so far, before the first one at a step's speed; half as long again, and one second."""
    eye, run = Watch(Options()), SimpleNamespace(config=SimpleNamespace(batch=100), test_examples=300)
    eye.saving_seconds, run.evaluation_seconds = 3.0, 8.0
    run.metrics = [{"test_loss": 1.0}, {"train_loss": 1.0}, {"test_loss": 2.0}]
    assert eye.reserve(run, 0.5) == 1 + 1.5 * 8 / 2 + 2 * 3 + 2 * 0.5
    run.metrics = [{"train_loss": 1.0}]
    assert eye.reserve(run, 0.5) == 1 + 1.5 * 0.5 * 300 / 100 + 2 * 3 + 2 * 0.5


def test_the_speed_is_that_of_this_start_without_what_the_step_took_to_prepare(monkeypatch):
    clock = Clock(monkeypatch)
    run = Numbers(clock, step=1.0, preparing=50.0, epochs=4, begun=1)
    run.began -= 5000  # what earlier starts took
    assert run.go(Watch(Options(quiet=True, time_budget=95.0))) == 5000 + 50 + 30
    run = Numbers(clock, step=1.0, preparing=50.0, epochs=4, begun=1)
    says = r"^given up after epoch 1, step 7 of 10: the rest takes about 23 s and 13 s are left$"
    with pytest.raises(Stopped, match=says):
        run.go(Watch(Options(quiet=True, time_budget=70.0)))


@pytest.mark.parametrize(
    ("budget", "says"),
    [
        (30.0, "the time budget is spent after epoch 2, step 8 of 10"),  # the rest takes just what is left
        (27.0, "given up after epoch 0, step 3 of 10: the rest takes about 27 s and 24 s are left"),
    ],
)
def test_what_takes_just_the_time_there_is_counts_as_fitting(monkeypatch, budget, says):
    reason = stopped(Numbers(Clock(monkeypatch)), Watch(Options(quiet=True, time_budget=budget)))
    assert (str(reason), reason.keep) == (says, True)


def test_the_bar_starts_where_the_run_does_and_shows_the_figures_of_the_step_it_has_reached(monkeypatch, capsys):
    run = Numbers(Clock(monkeypatch), begun=1)
    run.losses = torch.arange(1.0, 11.0)
    monkeypatch.setattr(Numbers, "progress", property(lambda self: self.done))
    run.go(Watch(Options()))
    begun, *drawn = (line.strip() for line in re.split(r"[\r\n]", capsys.readouterr().err) if line.strip())
    assert re.fullmatch(r"digits none seed 4: +33%\|.{10}\| 10\.0/30\.0 \[00:00<\?, \? images/s\]", begun)
    form = r"digits none seed 4: +\d+%\|.{10}\| (\d+)\.0/30\.0 \[.*(?<= )images/s, epoch=([23])/3, loss=(\d+)\.000\]"
    told = {tuple(map(int, re.fullmatch(form, line).groups())) for line in drawn}
    # The last step of an epoch is looked at before the epoch counts as done, and after.
    wanted = {
        (done, epoch, (done - 1) % 10 + 1) for done in range(11, 31) for epoch in ((done - 1) // 10 + 1, done // 10 + 1)
    }
    assert told == {(done, min(epoch, 3), loss) for done, epoch, loss in wanted}


def test_without_tqdm_a_bar_is_refused_and_no_bar_is_not(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.raises(LabError, match=r"^the progress bar needs tqdm: pip install tqdm, or ask for quiet$"):
        Numbers(Clock(monkeypatch)).go(Watch(Options()))
    assert Numbers(Clock(monkeypatch)).go(Watch(Options(quiet=True))) == 30


@pytest.mark.parametrize("every", [0.0, 2.5, 15.0])
def test_little_is_lost_and_losses_are_looked_at_each_second_and_after_each_epoch(monkeypatch, tmp_path, every):
    run = Numbers(Clock(monkeypatch), step=0.4, saving=0.2)
    began = run.clock.now
    ended = run.go(Watch(Options(quiet=True, checkpoint=tmp_path / "run.pt", checkpoint_seconds=every))) + began
    times = [began, *(at for at, _ in run.saved), ended]
    assert all(later - earlier <= every + 0.4 + 0.2 + 1e-9 for earlier, later in pairwise(times))
    assert all(later - earlier >= every for earlier, later in pairwise(times[:-1]))
    looked = [began, *run.looked]
    assert all(later - earlier <= 1.6 + 1e-9 for earlier, later in pairwise(looked))
    assert len(run.looked) < 25
    alone = Numbers(Clock(monkeypatch))
    alone.go(Watch(Options(quiet=True, checkpoint_seconds=0.0)))
    assert alone.saved == []
    assert len(alone.looked) == 33


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_after_the_step_and_a_second_one_does_what_it_did_before(monkeypatch, tmp_path, number):
    heard = []
    before = signal.signal(number, lambda *_: heard.append(number))
    try:
        run = Numbers(Clock(monkeypatch))
        usual = run.check_finite
        run.check_finite = lambda: (signal.raise_signal(number) if run.done == 3 else None, usual())
        watching = Watch(Options(quiet=True, checkpoint=tmp_path / "run.pt", checkpoint_seconds=math.inf))
        name = signal.Signals(number).name
        with pytest.raises(Stopped, match=f"^stopped by {name} after epoch 0, step 3 of 10$") as stopped:
            run.go(watching)
        assert (stopped.value.signal, stopped.value.keep) == (number, True)
        assert [done for _, done in run.saved] == [3]
        assert heard == []
        signal.raise_signal(number)
        assert heard == [number]
        with watch.requests_to_stop() as asked:
            signal.raise_signal(number)
            signal.raise_signal(number)
        assert asked == [number]
        assert heard == [number, number]
        quiet = Numbers(Clock(monkeypatch), epochs=1)
        quiet.check_finite = lambda: signal.raise_signal(number)
        quiet.go(Watch(Options(quiet=True)))  # nothing to keep: signals are left alone
        assert len(heard) > 2
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("kept", ["before", "now", ""])
def test_a_loss_that_is_not_finite_says_from_where_to_go_on(monkeypatch, tmp_path, kept):
    run, path = Numbers(Clock(monkeypatch), begun=1), tmp_path / "run.pt"

    def fail():
        if run.done == 24:
            raise Diverged("the loss is nan")

    run.check_finite = fail
    if kept == "before":
        path.touch()
    where = "epoch 2, step 2" if kept == "now" else "epoch 1, step 0"
    good = rf"the last good checkpoint is {path} \({where}\)" if kept else "there is no checkpoint yet"
    options = Options(quiet=True, checkpoint=path if kept else None, checkpoint_seconds=12 if kept == "now" else 99)
    watching = Watch(options)
    with pytest.raises(Diverged, match=rf"^the loss is nan; {good}; try a smaller lr or a longer warm-up$"):
        run.go(watching)
