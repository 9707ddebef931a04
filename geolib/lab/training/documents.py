"""A run on documents: the loop's ``Run`` with windows for images and bits a token for accuracy."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from geolib.lab.data.documents import Documents, read_windows, windows
from geolib.lab.files import LabError
from geolib.lab.gpt import GPT
from geolib.lab.training.device import without_waiting
from geolib.lab.training.loop import KINDS, Run, derived_seed, possible

EVALUATION_TOKENS = {"cpu": 16_384, "cuda": 262_144}  # read at a time


class Reading(Run):
    """A GPT in training on documents.

    An epoch is ``train_size`` windows in an order that the seed decides; the next epoch goes on in that order, so that
    no window is read twice before all have been read once. ``test_size`` windows are tested on, always the same ones.

    Attributes
    ----------
    metrics : list of dict
        For each finished epoch: epoch, train_loss (nats a token), seconds and, where it was evaluated, test_loss and
        test_bits, which is the same in bits a token.
    """

    unit = "tokens"

    def lay_out(self) -> None:
        """Cut the documents into windows."""
        config, data, context = self.config, self.data, self.context
        self.windows, self.test_windows = windows(data.train, context), windows(data.test, context)
        self.examples = some_of(len(self.windows), config.train_size, "train_size")
        self.test_examples = some_of(len(self.test_windows), config.test_size, "test_size")
        chosen = torch.randperm(len(self.test_windows), generator=torch.Generator().manual_seed(0))
        self.test_windows = self.test_windows[chosen[: self.test_examples]]

    def made(self) -> nn.Module:
        """The model at its start."""
        return possible(GPT, self.config, self.data.vocabulary)

    @property
    def context(self) -> int:
        """Tokens of a window."""
        assert self.config.context is not None  # a configuration of documents has one
        return self.config.context

    def some(self) -> tuple[Tensor, Tensor]:
        """A batch to measure with."""
        return self.read(self.data.train, self.windows[: self.config.batch])

    def read(self, part: Any, places: Tensor) -> tuple[Tensor, Tensor]:
        """The tokens of windows and those that follow each, (windows, context) both."""
        tokens = without_waiting(read_windows(part, places, self.context), self.device)
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def begin_epoch(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of the epoch; those that are left, when it goes on."""
        self.model.train()
        order = torch.randperm(
            len(self.windows), generator=torch.Generator().manual_seed(derived_seed(self.config.seed, 0, "order"))
        )
        places = torch.arange(self.epoch * self.examples, (self.epoch + 1) * self.examples) % len(order)
        for rows in order[places].split(self.config.batch)[self.step :]:
            yield self.read(self.data.train, self.windows[rows])

    def loss(self, model: nn.Module, tokens: Tensor, following: Tensor) -> Tensor:
        """The mean loss of a batch, (), in nats a token."""
        return F.cross_entropy(self.scores(tokens, model).flatten(0, 1), following.flatten())

    def scores(self, tokens: Tensor, model: nn.Module | None = None) -> Tensor:
        """The model's output for tokens, float32 (batch, tokens, vocabulary)."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16", cache_enabled=False):
            return (self.model if model is None else model)(tokens).float()

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Mean loss on the windows tested on."""
        before = time.monotonic()
        self.model.eval()
        loss = torch.zeros((), device=self.device)
        for places in self.test_windows.split(max(1, EVALUATION_TOKENS[self.device.type] // self.context)):
            tokens, following = self.read(self.data.test, places)
            loss += F.cross_entropy(self.scores(tokens).flatten(0, 1), following.flatten(), reduction="sum")
        nats = loss.item() / (self.test_examples * self.context)
        self.evaluation_seconds += time.monotonic() - before
        return {"test_loss": nats, "test_bits": nats / math.log(2)}

    @property
    def told(self) -> int:
        """What the bar counts, which is tokens trained on so far."""
        return self.seen * self.context

    @property
    def tellings(self) -> int:
        """What the bar counts, of the whole run."""
        return super().tellings * self.context

    @property
    def merit(self) -> dict[str, str]:
        """The last evaluation, as the bar shows it; before the first one, the last step's loss in bits."""
        bits = [row["test_bits"] for row in self.metrics if "test_bits" in row]
        return {"bits": f"{bits[-1] if bits else self.losses[self.step - 1].item() / math.log(2):.3f}"}

    @property
    def sizes(self) -> dict[str, int]:
        """What the record says of the data's sizes."""
        return {"train_windows": self.examples, "test_windows": self.test_examples, "context": self.context}


def some_of(count: int, size: int | None, argument: str) -> int:
    """How many of the windows are used; LabError when there are fewer."""
    if size is not None and size > count:
        raise LabError(f"{argument}: got {size}; there are only {count} windows")
    return count if size is None else size


KINDS[Documents] = Reading
