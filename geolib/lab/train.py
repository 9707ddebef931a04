"""The training loop: ``train``, to be read from top to bottom, and ``Run``, the few steps it is made of.

``Run`` trains on images; ``DocumentRun`` is the same run on documents, with other batches, another model and another
figure of merit.

A run is decided by its configuration and its data. All randomness comes from (seed, epoch, step) or stands in the
checkpoint: a run that was killed at any moment and started again ends in the same numbers as one left alone, on the
same device and with the same number of threads.

What makes it fast stands in modules of its own: ``data.batches`` augments many images at once, ``gpu_step`` launches a
whole step as one CUDA graph, and nothing between two epochs' ends waits for the GPU but a look at the losses once a
second.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
import pickle
import resource
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from geolib.lab.config import PRECISIONS, STEP_FORMS, Config, Options
from geolib.lab.data.augmentation import channel_moments, crop_and_flip, full_recipe
from geolib.lab.data.batches import Stream, augmented, batches_ahead
from geolib.lab.data.documents import Documents, read_windows, windows
from geolib.lab.data.sets import load
from geolib.lab.files import LabError, write_atomically
from geolib.lab.gpt import GPT
from geolib.lab.gpu_step import (
    COMPILE_STEPS,
    CapturedStep,
    EagerStep,
    give_back,
    is_out_of_memory,
    with_narrow_weights,
)
from geolib.lab.optimiser import adamw, learning_rate, set_rate
from geolib.lab.vit import ViT
from geolib.lab.watch import Diverged, Watch

Made = TypeVar("Made")
EVALUATION_BATCH = {"cpu": 500, "cuda": 2500}  # images
EVALUATION_TOKENS = {"cpu": 16_384, "cuda": 262_144}  # read at a time
RECORDED_PRECISION = {"float32": "float32", "bfloat16": "bf16"}  # the names that records have


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
    device, checkpoint = pick_device(chosen.device), chosen.checkpoint
    with Watch(chosen) as watch, isolated(device), memory_errors_named(config, device, checkpoint):
        run = new_run(config, load(config.dataset) if data is None else data, device, chosen)
        if checkpoint is not None and checkpoint.is_file():
            run.restore(checkpoint)
        watch.begin(run)
        for _ in range(run.epoch, config.epochs):
            for batch in run.begin_epoch():
                run.update(batch)
                watch.after_step(run)
            run.end_epoch()
            watch.after_epoch(run)
        run.finish()
    return run


def new_run(config: Config, data: Any, device: torch.device, options: Options) -> Run:
    """The kind of run that trains on such data; LabError where the configuration names another kind of data."""
    if config.is_text is not isinstance(data, Documents):
        raise LabError(f"data: got {type(data).__name__} for the data set {config.dataset}, which is of another kind")
    return (DocumentRun if config.is_text else Run)(config, data, device, options)


class Run:
    """A model in training on images: everything that changes, and the steps that change it.

    ``metrics`` has a row for each finished epoch: epoch, train_loss, seconds and, where it was evaluated, test_loss and
    test_accuracy. ``epoch`` and ``step`` count finished epochs, and finished steps of the present one; ``examples`` and
    ``test_examples`` the images of an epoch and of an evaluation, or windows of documents.
    """

    unit = "images"
    model: Any

    def __init__(self, config: Config, data: Any, device: torch.device, options: Options | None = None):
        self.config, self.data, self.device, self.options = config, data, device, options or Options()
        self.prepare_data()
        self.precision = precision_of(config.precision, self.options.precision, device)

        torch.manual_seed(config.seed)
        self.model = self.build_model().to(device)
        self.optimizer = adamw(self.model, config, device)
        self.epoch, self.step = 0, 0
        self.steps = math.ceil(self.examples / config.batch)  # of an epoch
        self.losses = torch.zeros(self.steps, device=device)  # of this epoch; looked at seldom, so the GPU never waits
        self.take_step = self.step_of_form(self.options.step)
        self.stream = Stream(device)  # of the augmentation
        self.ahead = batches_ahead(config.batch, device)
        self.metrics: list[dict[str, float]] = []
        self.right: Tensor | None = None  # of each test image, whether the last evaluation saw it classified rightly
        self.notes: list[str] = []  # what was done another way for lack of memory
        self.tested_at_a_time: int | None = None  # where fewer fit than usual
        self.evaluation_seconds, self.prepared_seconds, self.peak_bytes = 0.0, 0.0, 0  # prepared: in earlier starts
        self.started = datetime.now(UTC).isoformat(timespec="seconds")
        self.began, self.total_seconds = time.monotonic(), math.nan

    def prepare_data(self) -> None:
        """Put on the device what is trained and tested on."""
        data, config, device = self.data, self.config, self.device
        train_rows = subset(len(data.y_train), config.train_size, "train_size")
        test_rows = subset(len(data.y_test), config.test_size, "test_size")
        self.mean, self.deviation = (m.to(device) for m in channel_moments(data.x_train[train_rows]))
        self.images, self.labels = data.x_train[train_rows].to(device), data.y_train[train_rows].to(device)
        self.test_images, self.test_labels = data.x_test[test_rows].to(device), data.y_test[test_rows].to(device)
        self.examples, self.test_examples = len(self.labels), len(self.test_labels)
        plain = crop_and_flip if config.augment == "crop-flip" else lambda images: images
        self.augment = or_lab_error(full_recipe, config, data.shape, self.mean) or plain

    def build_model(self) -> nn.Module:
        """The model at its start."""
        return or_lab_error(ViT, self.config, self.data.shape, len(self.data.classes))

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
            # "process 0" keeps the numbers of the runs recorded when several processes could share one.
            purpose = f"dropout in step {self.step} of process 0"
            torch.manual_seed(derived_seed(self.config.seed, self.epoch, purpose))
        set_rate(self.optimizer, learning_rate(self.config, self.done, self.total))
        self.losses[self.step] = self.take_step(*batch)
        self.step += 1

    def loss(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        """The mean loss of a batch, ()."""
        return F.cross_entropy(self.scores(images, model), labels, label_smoothing=self.config.label_smoothing)

    def scores(self, images: Tensor, model: nn.Module | None = None) -> Tensor:
        """The model's output for images as they are stored, float32 (batch, classes)."""
        return self.in_precision((images.float() - self.mean) / self.deviation, model)

    def in_precision(self, inputs: Tensor, model: nn.Module | None = None) -> Tensor:
        """The model's output, float32, its products in the precision of the run."""
        model = self.model if model is None else model
        if self.precision != "bf16":
            return model(inputs).float()
        # No weight is used twice in a pass; a cache of casts must not outlive a recording.
        with torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False):
            return with_narrow_weights(model, inputs).float()

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
        """The figures of merit on what is tested on."""
        before = time.monotonic()
        self.model.eval()
        asked = min(self.evaluation_batch, self.test_examples)
        row, size = halving(self.tested, min(asked, self.tested_at_a_time or asked))
        if size < asked:  # kept for the evaluations that follow
            self.tested_at_a_time, self.notes = size, [f"tested {size} at a time: out of memory at more"]
        self.evaluation_seconds += time.monotonic() - before
        return row

    @property
    def evaluation_batch(self) -> int:
        """Images tested at a time, where memory suffices."""
        return EVALUATION_BATCH[self.device.type]

    def tested(self, size: int) -> dict[str, float]:
        """Mean loss and accuracy on the test images, so many at a time."""
        loss, right = torch.zeros((), device=self.device), []
        for images, labels in zip(self.test_images.split(size), self.test_labels.split(size)):
            scores = self.scores(images)
            loss += F.cross_entropy(scores, labels, reduction="sum")
            right.append(scores.argmax(1) == labels)
        count, self.right = len(self.test_labels), torch.cat(right)
        return {"test_loss": loss.item() / count, "test_accuracy": self.right.sum().item() / count}

    def finish(self) -> None:
        """Leave the model ready for use."""
        self.model.eval()
        self.total_seconds = self.seconds
        self.peak_bytes = max(self.peak_bytes, peak_memory(self.device))

    def step_of_form(self, form: str) -> EagerStep | CapturedStep:
        """What computes a step here: on a GPU a recording, compiled before where the run is long enough."""
        if form not in STEP_FORMS:
            raise LabError(f"step: got {form!r}; it is one of {', '.join(STEP_FORMS)}")
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
    def progress(self) -> int:
        """What the bar counts: images trained on so far, or tokens."""
        return self.seen

    @property
    def progress_total(self) -> int:
        """What the bar counts, of the whole run."""
        return self.config.epochs * self.examples

    @property
    def headline(self) -> dict[str, str]:
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
        """Write everything that the rest of the run depends on, whole or not at all."""
        self.check_finite()
        state = {
            "identity": self.identity,
            "progress": (self.epoch, self.step, self.metrics),
            "times": (self.started, self.seconds, self.evaluation_seconds, self.preparing_seconds),
            "peak_bytes": max(self.peak_bytes, peak_memory(self.device)),
            "precision": self.precision,
            "losses": self.losses,
            # Within a block of batches, where its augmentation began: the rest of the block is drawn again.
            "stream": self.stream.marked if self.step % self.ahead else self.stream.states,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }
        content = io.BytesIO()
        torch.save(state, content)
        write_atomically(path, lambda file: file.write(content.getbuffer()))

    def restore(self, path: Path) -> None:
        """Go on from a checkpoint of the same configuration, data and kind of device, in its precision."""
        state = checkpoint_state(path, self.identity)
        asked = self.config.precision or self.options.precision
        if asked in PRECISIONS and RECORDED_PRECISION[asked] != state["precision"]:
            raise LabError(
                f"{path}: made with precision {state['precision']}, not {RECORDED_PRECISION[asked]}; "
                "delete it to start over"
            )
        self.precision = state["precision"]
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
            "format": "3",
            "configuration": self.config.canonical,
            "data": self.data.fingerprint,
            "device": self.device.type,
        }


class DocumentRun(Run):
    """A GPT in training on documents.

    An epoch is ``train_size`` windows in an order that the seed decides; the next epoch goes on in that order, so that
    no window is read twice before all have been read once. ``test_size`` windows are tested on, always the same ones.
    The train_loss of ``metrics`` is in nats a token; test_bits is test_loss in bits a token.
    """

    unit = "tokens"

    def prepare_data(self) -> None:
        """Cut the documents into windows."""
        config, data, context = self.config, self.data, self.context
        self.windows, self.test_windows = windows(data.train, context), windows(data.test, context)
        self.examples = at_most(len(self.windows), config.train_size, "train_size", "windows")
        self.test_examples = at_most(len(self.test_windows), config.test_size, "test_size", "windows")
        chosen = torch.randperm(len(self.test_windows), generator=torch.Generator().manual_seed(0))
        self.test_windows = self.test_windows[chosen[: self.test_examples]]

    def build_model(self) -> nn.Module:
        """The model at its start."""
        return or_lab_error(GPT, self.config)

    @property
    def context(self) -> int:
        """Tokens of a window."""
        assert self.config.context is not None  # a configuration of documents has one
        return self.config.context

    def read(self, part: Any, places: Tensor) -> tuple[Tensor, Tensor]:
        """The tokens of windows and those that follow each, (windows, context) both."""
        tokens = without_waiting(read_windows(part, places, self.context), self.device)
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def begin_epoch(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of the epoch; those that are left, when it goes on."""
        self.model.train()
        generator = torch.Generator().manual_seed(derived_seed(self.config.seed, 0, "order"))
        order = torch.randperm(len(self.windows), generator=generator)
        places = torch.arange(self.epoch * self.examples, (self.epoch + 1) * self.examples) % len(order)
        for rows in order[places].split(self.config.batch)[self.step :]:
            yield self.read(self.data.train, self.windows[rows])

    def loss(self, model: nn.Module, tokens: Tensor, following: Tensor) -> Tensor:
        """The mean loss of a batch, (), in nats a token."""
        return F.cross_entropy(self.scores(tokens, model).flatten(0, 1), following.flatten())

    def scores(self, tokens: Tensor, model: nn.Module | None = None) -> Tensor:
        """The model's output for tokens, float32 (batch, tokens, vocabulary)."""
        return self.in_precision(tokens, model)

    @property
    def evaluation_batch(self) -> int:
        """Windows tested at a time, where memory suffices."""
        return max(1, EVALUATION_TOKENS[self.device.type] // self.context)

    def tested(self, size: int) -> dict[str, float]:
        """Mean loss on the windows tested on, so many at a time."""
        loss = torch.zeros((), device=self.device)
        for places in self.test_windows.split(size):
            tokens, following = self.read(self.data.test, places)
            loss += F.cross_entropy(self.scores(tokens).flatten(0, 1), following.flatten(), reduction="sum")
        nats = loss.item() / (self.test_examples * self.context)
        return {"test_loss": nats, "test_bits": nats / math.log(2)}

    @property
    def progress(self) -> int:
        """Tokens trained on so far."""
        return self.seen * self.context

    @property
    def progress_total(self) -> int:
        """Tokens of the whole run."""
        return super().progress_total * self.context

    @property
    def headline(self) -> dict[str, str]:
        """The last evaluation, as the bar shows it; before the first one, the last step's loss in bits."""
        bits = [row["test_bits"] for row in self.metrics if "test_bits" in row]
        return {"bits": f"{bits[-1] if bits else self.losses[self.step - 1].item() / math.log(2):.3f}"}

    @property
    def sizes(self) -> dict[str, int]:
        """What the record says of the data's sizes."""
        return {"train_windows": self.examples, "test_windows": self.test_examples, "context": self.context}


# Data and seeds -----------------------------------------------------------------------------------------------------


def or_lab_error(make: Callable[..., Made], *settings: Any) -> Made:
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
    size_taken = at_most(count, size, argument, "images")
    if size is None:
        return torch.arange(count)
    return torch.randperm(count, generator=torch.Generator().manual_seed(0))[:size_taken]


def at_most(count: int, size: int | None, argument: str, unit: str) -> int:
    """How many are used, all when no size is named; LabError when there are fewer."""
    if size is not None and size > count:
        raise LabError(f"{argument}: got {size}; there are only {count} {unit}")
    return count if size is None else size


# The device ---------------------------------------------------------------------------------------------------------


def pick_device(name: str | None) -> torch.device:
    """The named device, or a GPU where there is one; LabError when it is not there.

    Of the processes that torchrun starts on a machine each takes the GPU of its own number where none is numbered.
    """
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    if name == "cuda" and local_rank:
        name = f"cuda:{local_rank}"
    kind, _, index = name.partition(":")
    if kind == "cpu" and not index:
        return torch.device("cpu")
    count = torch.cuda.device_count()
    if kind == "cuda" and (index or "0").isdecimal() and int(index or 0) < count:
        return torch.device("cuda", int(index or 0))
    there = ", ".join(["cpu", *(f"cuda:{i}" for i in range(count))])
    raise LabError(f"device {name!r} is not here; there is {there}")


def precision_of(configured: str | None, option: str | None, device: torch.device) -> str:
    """The precision of products, as records name it: the configuration's, else the option's.

    Without either, float32 on a processor, so that the records of a table agree, and bfloat16 on a GPU that has it.
    "auto" takes bfloat16 also on a processor that multiplies in it (AMX, AVX-512 BF16), which trains twice as fast so.

    >>> precision_of("bfloat16", "auto", torch.device("cpu")), precision_of(None, None, torch.device("cpu"))
    ('bf16', 'float32')
    """
    allowed = ("auto", *PRECISIONS)
    if option is not None and option not in allowed:
        raise LabError(f"precision: got {option!r}; it is one of {', '.join(allowed)}")
    if configured is not None and option not in (None, "auto", configured):
        raise LabError(f"precision: got {option!r}; the run's configuration says {configured!r}")
    asked = configured or option
    if asked in PRECISIONS:
        return RECORDED_PRECISION[asked]
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    return "bf16" if asked == "auto" and multiplies_bfloat16() else "float32"


def multiplies_bfloat16() -> bool:
    """Whether the processor has instructions for products of bfloat16."""
    return bool(torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported())


@contextmanager
def isolated(device: torch.device) -> Iterator[None]:
    """Inside: repeatable algorithms, and random generators of our own; after it, the caller's are as they were."""
    on_gpu = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if on_gpu else []):
        if not on_gpu:  # the CPU's algorithms repeat as they are
            yield
            return
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS is first used
        settings: Any = torch.utils.deterministic
        was, filled = torch.get_deterministic_debug_mode(), settings.fill_uninitialized_memory
        torch.use_deterministic_algorithms(True)  # geolib.lab.gpu_step.repeatably yields where that cannot be
        settings.fill_uninitialized_memory = False  # it only costs time: nothing here reads unwritten memory
        torch.cuda.reset_peak_memory_stats(device)
        try:
            with torch.cuda.device(device):
                yield
        finally:
            torch.set_deterministic_debug_mode(was)
            settings.fill_uninitialized_memory = filled


def peak_memory(device: torch.device) -> int:
    """Bytes: of tensors on a GPU, of the whole process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@contextmanager
def memory_errors_named(config: Config, device: torch.device, checkpoint: Path | None) -> Iterator[None]:
    """A lack of memory inside becomes a LabError that says which setting to lower."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        kept = f"; the last checkpoint is {checkpoint}" if checkpoint is not None and checkpoint.is_file() else ""
        raise LabError(
            f"out of memory on {device}; lower batch (now {config.batch}), then width (now "
            f"{config.width}), or run fewer jobs at a time{kept}"
        ) from None


def halving(work: Callable[[int], Made], size: int) -> tuple[Made, int]:
    """What work makes of a size, and that size: half of it, and again, while memory is lacking.

    >>> halving(lambda size: size + 1, 8)
    (9, 8)
    """
    while True:
        try:
            return work(size), size
        except (RuntimeError, MemoryError) as error:
            if size == 1 or not is_out_of_memory(error):
                raise
        size //= 2
        give_back()  # after the error, whose frames hold what was computed


def without_waiting(x: Tensor, device: torch.device) -> Tensor:
    """A tensor on the device; a GPU fetches it by itself."""
    return x.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else x


def checkpoint_state(path: Path, identity: dict[str, str]) -> dict[str, Any]:
    """The state in a checkpoint; LabError when the file is not whole, or when its identity is another."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, EOFError, RuntimeError, ValueError, KeyError, pickle.UnpicklingError, zipfile.BadZipFile):
        raise LabError(f"{path}: not a whole checkpoint; delete it to start the run from its beginning") from None
    found = state.get("identity", {}) if isinstance(state, dict) else {}
    for key, value in identity.items():
        if found.get(key) != value:
            raise LabError(f"{path}: made with {key} {found.get(key)}, not {value}; delete it to start over")
    return state
