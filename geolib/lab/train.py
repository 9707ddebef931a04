"""Training, to be read from top to bottom: the data of a run, its optimiser, the loop, what the loop leaves.

A run is decided by its configuration and its data. All randomness comes from (seed, epoch, purpose): a run that was
killed at any moment and started again ends in the numbers of one left alone, on a like device with as many threads.
"""

import hashlib
import math
import signal
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from geolib.lab.capture import CapturedStep, compiled
from geolib.lab.checkpoint import restore, save
from geolib.lab.config import Config
from geolib.lab.data.augmentation import channel_moments, crop_and_flip, full_recipe
from geolib.lab.data.documents import Documents, read_windows, windows
from geolib.lab.data.sets import load
from geolib.lab.device import isolated, peak_memory, pick_device, precision_of, repeatably, requests_to_stop
from geolib.lab.files import LabError
from geolib.lab.gpt import GPT
from geolib.lab.vit import ViT

COMPILE_STEPS = 20_000  # of a run on a GPU, from which on its model is compiled


class Diverged(Exception):
    """The loss or a weight is no longer finite."""


class Stopped(Exception):
    """A run was stopped by a signal before its end; a checkpoint continues it."""

    def __init__(self, number: int, where: str):
        super().__init__(f"stopped by {signal.Signals(number).name}{where}")
        self.signal = number


def seed_of(config: Config, epoch: int, purpose: str) -> int:
    """Derive a seed of 63 bits for one purpose in one epoch, unrelated to all others."""
    return int.from_bytes(hashlib.sha256(f"{config.seed}/{epoch}/{purpose}".encode()).digest()[:8], "big") >> 1


def shuffled(count: int, seed: int) -> Tensor:
    """Draw a permutation of 0 ... count - 1, on the CPU whatever the device, so that all devices see one order."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))


def subset(count: int, size: int | None, argument: str) -> Tensor:
    """Choose a fixed random subset, or all; a smaller one is part of a larger one. LabError where there are fewer."""
    if size is not None and size > count:
        raise LabError(f"{argument}: got {size}; there are only {count}")
    return torch.arange(count) if size is None else shuffled(count, 0)[:size]


class Images:
    """Images, volumes or clips on the device, augmented in batches; cross-entropy and accuracy."""

    unit, each = "images", 1

    def __init__(self, config: Config, data: Any, device: torch.device):
        train = subset(len(data.y_train), config.train_size, "train_size")
        test = subset(len(data.y_test), config.test_size, "test_size")
        self.config, self.device = config, device
        self.mean, self.std = (moment.to(device) for moment in channel_moments(data.x_train[train]))
        self.x, self.y = data.x_train[train].to(device), data.y_train[train].to(device)
        self.x_test, self.y_test = data.x_test[test].to(device), data.y_test[test].to(device)
        self.examples, self.sizes = len(train), {"train_images": len(train), "test_images": len(test)}
        self.recipe = full_recipe(config, data.shape, self.mean)
        self.model = ViT(config, data.shape, len(data.classes))

    def batches(self, epoch: int, first: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the epoch's batches from the first on: standardised images in a new order, and labels."""
        config = self.config
        order = shuffled(self.examples, seed_of(config, epoch, "order")).to(self.device)
        draws = torch.Generator(self.device).manual_seed(seed_of(config, epoch, "augmentation and dropout"))
        crops = config.augment == "crop-flip" and self.recipe is None
        # On a GPU few large crops are faster than many small ones.
        block = config.batch * (max(1, 8192 // config.batch) if self.device.type == "cuda" else 1)
        for start, rows in enumerate(order.split(block)):
            images = crop_and_flip(self.x[rows], draws) if crops else self.x[rows]
            parts = zip(images.split(config.batch), self.y[rows].split(config.batch))
            for step, (x, y) in enumerate(parts, start * block // config.batch):
                if step < first:
                    continue  # drawn all the same, so that a run that goes on draws what it would have drawn
                if self.recipe is not None:
                    torch.manual_seed(seed_of(config, epoch, f"augmentation in step {step}"))
                    x = self.recipe(x)
                yield self.standardised(x), y

    def standardised(self, images: Tensor) -> Tensor:
        """Shift and scale stored images to mean 0 and deviation 1 in each channel of the training images."""
        return (images.float() - self.mean) / self.std

    def loss(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Compute the mean cross-entropy, ()."""
        return F.cross_entropy(scores, labels)

    def evaluate(self, score: Callable[[Tensor], Tensor]) -> tuple[dict[str, float], Tensor]:
        """Compute loss and accuracy on the test images, and which of them are classified rightly, (images,)."""
        size, loss, right = 2500 if self.device.type == "cuda" else 500, torch.zeros((), device=self.device), []
        for x, y in zip(self.x_test.split(size), self.y_test.split(size)):
            scores = score(self.standardised(x))
            loss += F.cross_entropy(scores, y, reduction="sum")
            right.append(scores.argmax(1) == y)
        answers, count = torch.cat(right), len(self.y_test)
        return {"test_loss": loss.item() / count, "test_accuracy": answers.sum().item() / count}, answers.cpu()


class Text:
    """Windows of documents, one token per byte; cross-entropy in nats for training, bits per token in the evaluation.

    An epoch is ``train_size`` windows in an order that the seed decides, in which the next epoch goes on.
    """

    unit = "tokens"

    def __init__(self, config: Config, data: Documents, device: torch.device):
        assert config.context is not None  # a configuration of text has one
        self.config, self.device, self.data = config, device, data
        self.context = self.each = config.context
        self.train_windows, test = windows(data.train, self.context), windows(data.test, self.context)
        self.examples = len(subset(len(self.train_windows), config.train_size, "train_size"))
        self.test_windows = test[shuffled(len(test), 0)[: len(subset(len(test), config.test_size, "test_size"))]]
        self.sizes = {"train_windows": self.examples, "test_windows": len(self.test_windows), "context": self.context}
        self.model = GPT(config)

    def read(self, part: Any, places: Tensor) -> tuple[Tensor, Tensor]:
        """Read windows onto the device: their tokens and those that follow each, (windows, context) both."""
        tokens = read_windows(part, places, self.context)
        if self.device.type == "cuda":
            tokens = tokens.pin_memory().to(self.device, non_blocking=True)
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def batches(self, epoch: int, first: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the epoch's batches from the first on: tokens, and the tokens that follow each."""
        order = shuffled(len(self.train_windows), seed_of(self.config, 0, "order"))
        mine = torch.arange(epoch * self.examples, (epoch + 1) * self.examples) % len(order)
        for rows in order[mine].split(self.config.batch)[first:]:
            yield self.read(self.data.train, self.train_windows[rows])

    def loss(self, scores: Tensor, following: Tensor) -> Tensor:
        """Compute the mean cross-entropy, (), in nats per token."""
        return F.cross_entropy(scores.flatten(0, 1), following.flatten())

    def evaluate(self, score: Callable[[Tensor], Tensor]) -> tuple[dict[str, float], None]:
        """Compute the mean cross-entropy on the windows tested on, in nats and in bits per token."""
        size, loss = 262_144 if self.device.type == "cuda" else 16_384, torch.zeros((), device=self.device)
        for places in self.test_windows.split(max(1, size // self.context)):
            tokens, following = self.read(self.data.test, places)
            loss += F.cross_entropy(score(tokens).flatten(0, 1), following.flatten(), reduction="sum")
        nats = loss.item() / (len(self.test_windows) * self.context)
        return {"test_loss": nats, "test_bits": nats / math.log(2)}, None


def learning_rate(config: Config, step: int, total: int) -> float:
    """Compute the rate of a step, 0 ... total - 1: linear warm-up, then constant or half a cosine down to zero."""
    if step < config.warmup:
        return config.lr * (step + 1) / config.warmup
    if config.schedule == "constant":
        return config.lr
    return config.lr * (1 + math.cos(math.pi * (step - config.warmup) / (total - config.warmup))) / 2


def adamw(model: ViT | GPT, config: Config) -> torch.optim.Optimizer:
    """Make AdamW: matrices decay; vectors (biases, norms) and what the model's ``undecayed`` names do not."""
    spared = {id(p) for p in model.undecayed()}
    decays = [p for p in model.parameters() if p.dim() >= 2 and id(p) not in spared]
    others = [p for p in model.parameters() if p.dim() < 2 or id(p) in spared]
    groups = [{"params": decays, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]
    on_gpu = next(model.parameters()).device.type == "cuda"
    optimizer = torch.optim.AdamW(groups, lr=config.lr, fused=True, capturable=on_gpu)
    for group in optimizer.param_groups if on_gpu else []:
        group["lr"] = torch.full((), config.lr, device=group["params"][0].device)  # a recorded step reads it there
    return optimizer


class Run:
    """A model, trained when ``train`` returns it, and what is known of its training.

    ``metrics`` has a row for each epoch: epoch, train_loss, seconds and, where it was evaluated, test_loss and
    test_accuracy or test_bits. ``answers``: which test images the last evaluation classified rightly, (images,) bool on
    the CPU; None for text. ``seconds``: training and evaluation over all starts. ``task`` has the data on the device.
    """

    def __init__(self, config: Config, data: Any, device: torch.device, precision: str):
        if config.is_text is not isinstance(data, Documents):
            raise LabError(f"data: got {type(data).__name__} for the data set {config.dataset}, of another kind")
        self.config, self.data, self.device, self.precision = config, data, device, precision
        torch.manual_seed(config.seed)
        try:
            self.task: Any = (Text if config.is_text else Images)(config, data, device)
        except ValueError as error:
            raise LabError(str(error)) from None
        self.model: Any = self.task.model.to(device)
        self.metrics: list[dict[str, float]] = []
        self.answers: Tensor | None = None
        self.started, self.step = datetime.now(UTC).isoformat(timespec="seconds"), "eager"
        self.seconds, self.evaluation_seconds, self.peak_bytes = 0.0, 0.0, 0

    def forward(self, inputs: Tensor, model: Any = None) -> Tensor:
        """The output of the model, or of a compiled form of it, float32, its products in the run's precision."""
        # Without a cache of casts: no weight is used twice in a pass, and a cache must not outlive a recording.
        narrow = self.precision == "bf16"
        with torch.autocast(self.device.type, torch.bfloat16, enabled=narrow, cache_enabled=False):
            return (self.model if model is None else model)(inputs).float()

    def scores(self, inputs: Tensor) -> Tensor:
        """Compute the model's output, float32, for stored images (uint8) or for tokens."""
        return self.forward(inputs if self.config.is_text else self.task.standardised(inputs))

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Compute the figures of merit on the test part, and keep ``answers``."""
        began = time.monotonic()
        self.model.eval()
        row, self.answers = self.task.evaluate(self.forward)
        self.evaluation_seconds += time.monotonic() - began
        return row

    @property
    def examples_per_second(self) -> float:
        """Images (or windows) per second of training, evaluation left out."""
        return self.config.epochs * self.task.examples / max(self.seconds - self.evaluation_seconds, 1e-9)


def train(
    config: Config,
    data: Any = None,
    *,
    device: str | None = None,
    precision: str | None = None,
    checkpoint: Path | None = None,
    save_every: float = 15.0,
    quiet: bool = False,
) -> Run:
    """Train one model, and return its Run, with ``model`` in evaluation mode and ``metrics``, one row for each epoch.

    Parameters
    ----------
    data : Dataset, Documents or None, which takes the set that the configuration names
    device : "cpu", "cuda", "cuda:1", or None, which takes a GPU where there is one
    precision : of products where the configuration names none: "float32", "bfloat16", or "auto", which is bfloat16
        where the device multiplies in it. None: float32 on a CPU, so that the records of a table agree; on a GPU "auto"
    checkpoint : file or None. The run continues from it when it is there, and keeps its state in it every
        ``save_every`` seconds. With None nothing is written and signals are left alone
    quiet : no progress bar

    LabError where the data, the device or the checkpoint cannot be used, or the disk is full; Stopped after SIGINT or
    SIGTERM when there is a checkpoint, which is written; Diverged when the loss or a weight is no longer finite.
    """
    place = pick_device(device)
    data = load(config.dataset) if data is None else data
    with isolated(place), requests_to_stop(bool(checkpoint)) as asked:
        run = Run(config, data, place, precision_of(config.precision, precision, place))
        task, model = run.task, run.model
        optimizer = adamw(model, config)
        steps = math.ceil(task.examples / config.batch)
        epoch, step, total = 0, 0, config.epochs * steps
        losses = torch.zeros(steps, device=place)  # of this epoch; read about once a second, so that a GPU never waits
        if checkpoint and checkpoint.is_file():
            epoch, step = restore(checkpoint, run, optimizer, losses, precision)
        # Compiling takes up to a minute and saves a millisecond or two a step.
        compiles = place.type == "cuda" and total >= COMPILE_STEPS
        fast: Any = compiled(model) if compiles else model

        def take_step(inputs: Tensor, targets: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = task.loss(run.forward(inputs, fast), targets)
            loss.backward()
            optimizer.step()
            return loss.detach()

        if place.type == "cuda":
            take_step = CapturedStep(repeatably(take_step), model, optimizer, config.batch)
            run.step = "compiled and captured" if compiles else "captured"
        spent = run.seconds
        bar = None if quiet else progress_bar(run)
        start = looked = saved = time.monotonic()

        while epoch < config.epochs:
            model.train()
            for inputs, targets in task.batches(epoch, step):
                if config.dropout:
                    torch.manual_seed(seed_of(config, epoch, f"dropout in step {step} of process 0"))
                rate = learning_rate(config, epoch * steps + step, total)
                for group in optimizer.param_groups:
                    group["lr"] = group["lr"].fill_(rate) if isinstance(group["lr"], Tensor) else rate
                losses[step] = take_step(inputs, targets)
                step += 1
                now = time.monotonic()
                if not asked and now - looked < min(1.0, save_every):
                    continue  # what follows waits for a GPU
                looked, run.seconds = now, spent + now - start
                check_finite(model, losses[:step], epoch, checkpoint)
                show_progress(bar, run, epoch, step, losses[step - 1])
                if checkpoint and (asked or now - saved >= save_every):
                    save(checkpoint, run, optimizer, losses, (epoch, step))
                    saved = time.monotonic()
                if asked:
                    raise Stopped(asked[0], f"; epoch {epoch}, step {step} of {steps} done")

            check_finite(model, losses, epoch, checkpoint)
            row = {"epoch": epoch + 1, "train_loss": losses.mean().item()}
            if (epoch + 1) % config.eval_every == 0 or epoch + 1 == config.epochs:
                row |= run.evaluate()
            run.seconds = spent + time.monotonic() - start
            run.metrics.append(row | {"seconds": run.seconds})
            epoch, step = epoch + 1, 0
            show_progress(bar, run, epoch, 0, losses[-1])

        if bar is not None:
            bar.close()
        model.eval()
        run.peak_bytes = max(run.peak_bytes, peak_memory(place))
        if checkpoint and asked:  # in the last evaluation: nothing is lost, but the caller is to stop
            save(checkpoint, run, optimizer, losses, (epoch, step))
            raise Stopped(asked[0], " at its end")
    return run


def check_finite(model: ViT | GPT, losses: Tensor, epoch: int, checkpoint: Path | None) -> None:
    """Raise Diverged when a loss of this epoch, or a weight, is not finite."""
    if torch.stack([losses.isfinite().all(), *(p.isfinite().all() for p in model.parameters())]).all():  # waits once
        return
    bad = (~losses.isfinite()).nonzero()
    what = f"the loss is {losses[bad[0]].item()} at step {int(bad[0]) + 1}" if len(bad) else "a weight is not finite"
    kept = f"; the last good checkpoint is {checkpoint}" if checkpoint and checkpoint.is_file() else ""
    raise Diverged(f"{what} in epoch {epoch + 1}{kept}; try a smaller lr or a longer warm-up")


def progress_bar(run: Any) -> Any:
    """Make a bar that counts images or tokens."""
    try:
        from tqdm import tqdm  # plain text: a widget would be dead on a static page
    except ImportError:
        raise LabError("the progress bar needs tqdm: pip install tqdm, or ask for quiet") from None
    config, task = run.config, run.task
    label = f"{config.dataset} {config.method} seed {config.seed}"
    layout: dict[str, Any] = {"bar_format": "{l_bar}{bar:10}{r_bar}", "unit": f" {task.unit}", "unit_scale": True}
    return tqdm(total=config.epochs * task.examples * task.each, desc=label, **layout)


def show_progress(bar: Any, run: Any, epoch: int, step: int, loss: Tensor) -> None:
    """Bring the bar, if there is one, up to date: what was seen, the last loss, the last evaluation's figures."""
    if bar is None:
        return
    last: dict[str, float] = next((row for row in reversed(run.metrics) if "test_loss" in row), {})
    tested = {key.removeprefix("test_"): f"{value:.3f}" for key, value in last.items() if key.startswith("test_")}
    bar.set_postfix({"loss": f"{loss.item():.3f}", **tested}, refresh=False)
    examples = epoch * run.task.examples + min(step * run.config.batch, run.task.examples)
    bar.update(examples * run.task.each - bar.n)
    bar.refresh()
