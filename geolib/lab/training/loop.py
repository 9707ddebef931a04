"""The training loop: ``train``, to be read from top to bottom, and ``Run``, the few steps it is made of.

``Run`` trains on images; ``training.documents.Reading`` is the same run on documents, with other batches, another model
and another figure of merit. ``KINDS`` says which kind of run a kind of data takes.

A run is decided by its configuration and its data. All randomness comes from (seed, epoch, step) or stands in the
checkpoint: a run that was killed at any moment and started again ends in the same numbers as one left alone, on the
same device and with the same number of threads.

What makes it fast stands in pieces of its own: the data set lies on the device as it is stored, ``data.batches``
augments many images at once, ``training.step`` launches a whole step as one CUDA graph, and nothing between two
epochs' ends waits for the GPU but a look at the losses once a second.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from geolib.lab.config import Config
from geolib.lab.data.augmentation import augmentation, channel_moments
from geolib.lab.data.batches import AHEAD_IMAGES, Stream, augmented
from geolib.lab.data.sets import Dataset, load
from geolib.lab.files import LabError
from geolib.lab.models import ViT
from geolib.lab.training import checkpoint as checkpoints
from geolib.lab.training import precision as precisions
from geolib.lab.training import ranks
from geolib.lab.training.device import isolated, memory_errors_named, peak_memory, pick_device, without_waiting
from geolib.lab.training.optimiser import adamw, learning_rate, set_rate
from geolib.lab.training.options import FORMS, Options
from geolib.lab.training.ranks import World
from geolib.lab.training.step import COMPILE_STEPS, CapturedStep, EagerStep, SharedStep, Step, put_back
from geolib.lab.training.watch import Diverged, Watch

Thing = TypeVar("Thing")
EVALUATION_BATCH = {"cpu": 500, "cuda": 2500}  # images


def train(config: Config, data: Any = None, options: Options | None = None, **changes: Any) -> Run:
    """Train one model.

    Parameters
    ----------
    config : Config
    data : Dataset, Documents or None
        The set that the configuration names when None.
    options : Options or None
    **changes
        Fields of ``Options`` in which this run differs from them: ``train(config, quiet=True)``.

    Returns
    -------
    Run
        With ``model`` and ``metrics``, one row for each epoch.

    Raises
    ------
    LabError
        When the data, the device or the checkpoint cannot be used, the disk is full or the memory does not suffice.
    Stopped
        After SIGINT or SIGTERM when there is a checkpoint, or for the time budget; the checkpoint is written.
    Diverged
        When the loss is no longer finite.
    """
    chosen = replace(options or Options(), **changes)
    place, file = pick_device(chosen.device), chosen.checkpoint
    with (
        ranks.joined(place.type) if chosen.together else nullcontext(World()) as world,
        Watch(chosen) as watch,
        isolated(place),
        memory_errors_named(config, place, file),
    ):
        run = begun(config, load(config.dataset) if data is None else data, place, world, chosen)
        if file is not None and file.is_file():
            run.restore(file)
        else:
            run.settle_precision()
        watch.begin(run)
        for _ in range(run.epoch, config.epochs):
            for batch in run.begin_epoch():
                run.update(batch)
                watch.after_step(run)
            run.end_epoch()
            watch.after_epoch(run)
        run.finish()
    return run


class Run:
    """A model in training on images: everything that changes, and the steps that change it.

    Parameters
    ----------
    config : Config
    data : Dataset
    device : torch.device
    world : World
        The processes that train it together.
    options : Options or None

    Attributes
    ----------
    model : ViT
    metrics : list of dict
        For each finished epoch: epoch, train_loss, seconds and, where it was evaluated, test_loss and test_accuracy.
    epoch, step : int
        Finished epochs, and finished steps of the present one.
    examples, test_examples : int
        Images of an epoch and of an evaluation; of documents, windows.
    """

    unit = "images"
    model: Any

    def __init__(
        self,
        config: Config,
        data: Any,
        device: torch.device,
        world: World | None = None,
        options: Options | None = None,
    ):
        self.config, self.data, self.device, self.world = config, data, device, world or World()
        self.lay_out()
        self.options = options or Options()
        self.asked_precision = precisions.asked(config.precision, self.options.precision)
        self.precision, self.why_precision = precisions.given(self.asked_precision, device), ""

        torch.manual_seed(config.seed)
        self.model = self.made().to(device)
        self.optimizer = adamw(self.model, config, device)
        self.epoch, self.step = 0, 0
        self.steps = math.ceil(self.examples / config.batch)  # of an epoch
        self.losses = torch.zeros(self.steps, device=device)  # of this epoch; looked at seldom, so the GPU never waits
        self.take_step = self.step_of_form(self.options.step)
        self.stream = Stream(device)  # of the augmentation
        self.ahead = max(1, AHEAD_IMAGES // config.batch) if device.type == "cuda" else 1  # batches augmented at a time
        self.metrics: list[dict[str, float]] = []
        self.evaluation_seconds, self.prepared_seconds, self.peak_bytes = 0.0, 0.0, 0  # prepared: in earlier starts
        self.devices = [str(device)]  # of all processes, once it is finished
        self.started = datetime.now(UTC).isoformat(timespec="seconds")
        self.began, self.total_seconds = time.monotonic(), math.nan

    def lay_out(self) -> None:
        """Put on the device what is trained and tested on."""
        data, config, device = self.data, self.config, self.device
        train_rows = subset(len(data.y_train), config.train_size, "train_size")
        test_rows = subset(len(data.y_test), config.test_size, "test_size")
        self.mean, self.deviation = (m.to(device) for m in channel_moments(data.x_train[train_rows]))
        self.images, self.labels = data.x_train[train_rows].to(device), data.y_train[train_rows].to(device)
        self.test_images, self.test_labels = data.x_test[test_rows].to(device), data.y_test[test_rows].to(device)
        self.examples, self.test_examples = len(self.labels), len(self.test_labels)
        self.augment = possible(augmentation, config, self.mean, data.shape)

    def made(self) -> nn.Module:
        """The model at its start."""
        return possible(ViT, self.config, self.data.shape, len(self.data.classes))

    def some(self) -> tuple[Tensor, Tensor]:
        """A batch to measure with."""
        return self.images[: self.config.batch], self.labels[: self.config.batch]

    def settle_precision(self) -> None:
        """Measure which precision is faster here, where that was asked for; on a GPU it is known."""
        if self.asked_precision != "auto" or self.device.type != "cpu":
            return
        before = time.monotonic()
        choice = self.measured_precision() if self.world.first else ("", "")
        self.precision, self.why_precision = self.world.same(choice)
        self.prepared_seconds += time.monotonic() - before

    def measured_precision(self) -> tuple[str, str]:
        """The faster precision, and why; weights, moments and random numbers are as before."""
        images, labels = self.some()
        alone = EagerStep(self.model, self.loss, self.optimizer)

        def step(precision: str) -> Tensor:
            self.precision = precision
            return alone(images, labels)

        self.model.train()
        with put_back(self.model, self.optimizer):
            return precisions.measured(step, len(labels))

    # The steps of training, in the order of the loop

    def begin_epoch(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of the epoch, images and labels in a new order; those that are left, when it goes on."""
        generator = torch.Generator().manual_seed(derived_seed(self.config.seed, self.epoch, "order"))
        order = without_waiting(torch.randperm(len(self.labels), generator=generator), self.device)
        if self.step == 0:
            self.stream.seed(derived_seed(self.config.seed, self.epoch, "augmentation and dropout"))
        self.model.train()
        size, first = self.config.batch, self.step
        return augmented(self.images, self.labels, order, size, self.ahead, first, self.stream, self.augment)

    def update(self, batch: tuple[Tensor, Tensor]) -> None:
        """One step of AdamW on a batch of images and labels."""
        if self.config.dropout:
            purpose = f"dropout in step {self.step} of process {self.world.rank}"
            torch.manual_seed(derived_seed(self.config.seed, self.epoch, purpose))
        set_rate(self.optimizer, learning_rate(self.config, self.done, self.total))
        self.losses[self.step] = self.take_step(*batch)
        self.step += 1

    def loss(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        """The mean loss of a batch, ()."""
        return F.cross_entropy(self.scores(images, model), labels, label_smoothing=self.config.label_smoothing)

    def scores(self, images: Tensor, model: nn.Module | None = None) -> Tensor:
        """The model's output for images as they are stored, float32 (batch, classes)."""
        standard = (images.float() - self.mean) / self.deviation
        # No weight is used twice in a pass; a cache of casts must not outlive a recording.
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16", cache_enabled=False):
            return (self.model if model is None else model)(standard).float()

    def end_epoch(self) -> None:
        """Add the epoch's row to the metrics, with an evaluation when one is due."""
        self.check_finite()
        row = {"epoch": self.epoch + 1, "train_loss": self.losses.mean().item()}
        if (self.epoch + 1) % self.config.eval_every == 0 or self.epoch + 1 == self.config.epochs:
            row |= self.evaluate()
        self.metrics.append(row | {"seconds": self.seconds})
        self.epoch, self.step = self.epoch + 1, 0

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Mean loss and accuracy on the test images."""
        before = time.monotonic()
        self.model.eval()
        loss, right = torch.zeros((), device=self.device), torch.zeros((), device=self.device)
        size = EVALUATION_BATCH[self.device.type]
        for images, labels in zip(self.test_images.split(size), self.test_labels.split(size)):
            scores = self.scores(images)
            loss += F.cross_entropy(scores, labels, reduction="sum")
            right += (scores.argmax(1) == labels).sum()
        count = len(self.test_labels)
        row = {"test_loss": loss.item() / count, "test_accuracy": right.item() / count}
        self.evaluation_seconds += time.monotonic() - before
        return row

    def finish(self) -> None:
        """Leave the model ready for use."""
        self.model.eval()
        self.devices = self.world.all(str(self.device))
        self.total_seconds = self.seconds
        self.peak_bytes = max(self.peak_bytes, peak_memory(self.device))

    def step_of_form(self, form: str) -> Step:
        """What computes a step here: on a GPU that a process has to itself, a recording."""
        if form not in FORMS:
            raise LabError(f"step: got {form!r}; it is one of {', '.join(FORMS)}")
        if self.world.size > 1:
            return SharedStep(self.model, self.loss, self.optimizer, self.world)
        if self.device.type != "cuda" or form == "eager":
            return EagerStep(self.model, self.loss, self.optimizer)
        compiles = form == "compiled" or (form == "auto" and self.total >= COMPILE_STEPS)
        return CapturedStep(self.model, self.loss, self.optimizer, self.config.batch, compiles)

    # How far it has come

    @property
    def done(self) -> int:
        """Finished steps of the whole run."""
        return self.epoch * self.steps + self.step

    @property
    def total(self) -> int:
        """Steps of the whole run."""
        return self.config.epochs * self.steps

    @property
    def seen(self) -> int:
        """Images (windows) trained on so far, every one counted each time."""
        return self.epoch * self.examples + min(self.step * self.config.batch, self.examples)

    @property
    def told(self) -> int:
        """What the bar counts, which is images trained on so far."""
        return self.seen

    @property
    def tellings(self) -> int:
        """What the bar counts, of the whole run."""
        return self.config.epochs * self.examples

    @property
    def merit(self) -> dict[str, str]:
        """The last evaluation, as the bar shows it."""
        accuracy = [row["test_accuracy"] for row in self.metrics if "test_accuracy" in row]
        return {"accuracy": f"{100 * accuracy[-1]:.1f}%"} if accuracy else {}

    @property
    def sizes(self) -> dict[str, int]:
        """What the record says of the data's sizes."""
        return {"train_images": self.examples, "test_images": self.test_examples}

    @property
    def seconds(self) -> float:
        """Time in training and evaluation, over all starts."""
        return time.monotonic() - self.began

    @property
    def images_per_second(self) -> float:
        """Images (windows) a second of training, with evaluation and the preparation of the step left out."""
        return self.seen / max(self.total_seconds - self.evaluation_seconds - self.preparing_seconds, 1e-9)

    @property
    def preparing_seconds(self) -> float:
        """What compiling and recording the step took, over all starts."""
        return self.prepared_seconds + self.take_step.preparing_seconds

    def check_finite(self) -> None:
        """Diverged when a loss of this epoch, or a weight, is not finite."""
        losses = self.losses[: self.step].isfinite()
        if torch.stack([losses.all(), *(p.isfinite().all() for p in self.model.parameters())]).all():  # waits once
            return
        if not losses.all():
            step = int((~losses).nonzero()[0]) + 1
            raise Diverged(f"the loss is {self.losses[step - 1].item()} at step {step} of epoch {self.epoch + 1}")
        raise Diverged(f"a weight is not finite after step {self.step} of epoch {self.epoch + 1}")

    # The checkpoint

    def save(self, path: Path) -> None:
        """Write everything that the rest of the run depends on."""
        self.check_finite()
        state = {
            "identity": self.identity,
            "progress": (self.epoch, self.step, self.metrics),
            "times": (self.started, self.seconds, self.evaluation_seconds, self.preparing_seconds),
            "peak_bytes": max(self.peak_bytes, peak_memory(self.device)),
            "precision": (self.precision, self.why_precision),
            "losses": self.losses,
            # Within a block of batches, where its augmentation began: the rest of the block is drawn again.
            "stream": self.stream.marked if self.step % self.ahead else self.stream.states,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }
        checkpoints.write(state, path)

    def restore(self, path: Path) -> None:
        """Go on from a checkpoint of the same configuration, data and kind of device, in its precision."""
        state = checkpoints.read(path, self.identity)
        self.precision, self.why_precision = precisions.kept(
            state.get("precision", (self.precision, "")), self.asked_precision, path
        )
        self.epoch, self.step, metrics = state["progress"]
        self.metrics = list(metrics)
        self.started, seconds, self.evaluation_seconds, self.prepared_seconds = state["times"]
        self.began = time.monotonic() - seconds
        self.peak_bytes = state["peak_bytes"]
        self.losses.copy_(state["losses"])
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"] = group["lr"].to(self.device)
        self.stream.states = state["stream"]

    @property
    def identity(self) -> dict[str, str]:
        """What a checkpoint must agree with to be continued."""
        return {
            "format": "2",
            "configuration": self.config.canonical,
            "data": self.data.fingerprint,
            "device": self.device.type,
        }


# From a kind of data to the kind of run that trains on it; ``training.documents`` adds its own.
KINDS: dict[type, type[Run]] = {Dataset: Run}


def begun(config: Config, data: Any, device: torch.device, world: World | None, options: Options) -> Run:
    """The run that trains on such data; LabError where the configuration names another kind of data."""
    if config.is_read is isinstance(data, Dataset):
        raise LabError(f"data: got {type(data).__name__} for the data set {config.dataset}, which is of another kind")
    return KINDS[type(data)](config, data, device, world, options)


def possible(make: Callable[..., Thing], *settings: Any) -> Thing:
    """What ``make`` makes of the settings; LabError where they ask for something that cannot be."""
    try:
        return make(*settings)
    except ValueError as error:
        raise LabError(str(error)) from None


def derived_seed(seed: int, epoch: int, purpose: str) -> int:
    """A seed of 63 bits for one purpose in one epoch, unrelated to the seeds of any other."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{epoch}/{purpose}".encode()).digest()[:8], "big") >> 1


def subset(count: int, size: int | None, argument: str) -> Tensor:
    """The indices of a fixed random subset, or of all; a smaller subset is part of a larger one."""
    if size is not None and size > count:
        raise LabError(f"{argument}: got {size}; there are only {count} images")
    if size is None:
        return torch.arange(count)
    return torch.randperm(count, generator=torch.Generator().manual_seed(0))[:size]
