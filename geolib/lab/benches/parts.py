"""Where the time of a training step goes: its parts, for several batches, widths, numbers of tokens and precisions.

A clock of the thread's own processor time stands around each operation, so that what else the machine does falls out.
How long a step takes is measured without these clocks. What lies between two operations, Python and the way to the next
call, is not told apart: the clocks themselves take about as long.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from geolib.lab.benches import speedup_ablation as ladder
from geolib.lab.benches.training import random_images
from geolib.lab.config import Config
from geolib.lab.data.augmentation import channel_moments, crop_and_flip

PARTS = ("pictures", "products with weights", "attention", "number by number", "optimiser")
BATCHES, WIDTHS, TOKENS, PRECISIONS = (2, 8, 32), (96, 192, 384), (16, 64, 256), ("float32", "bf16")
_PATCH_OF = {16: 8, 64: 4, 256: 2}  # of 32 by 32 pixels
PRODUCTS, PAIRS = ("mm", "addmm"), ("bmm", "baddbmm", "_softmax", "_softmax_backward_data")
ENOUGH = 0.4  # seconds of steps, after which no more are taken


def part_of(operation: str) -> str:
    """The part of a model's passes to which an operation belongs, by its name in PyTorch."""
    if operation in PRODUCTS:
        return "products with weights"
    return "attention" if operation in PAIRS or "scaled_dot_product" in operation else "number by number"


class Clocks(TorchDispatchMode):
    """The thread's nanoseconds in each part; ``part`` is that of all operations, or None where their names tell it."""

    def __init__(self) -> None:
        super().__init__()
        self.part: str | None = None
        self.spent: Counter[str] = Counter()

    def __torch_dispatch__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do the operation between two looks at the clock."""
        part, began = self.part or part_of(str(call).split(".")[1]), time.thread_time_ns()
        result = call(*args, **(kwargs or {}))
        self.spent[part] += time.thread_time_ns() - began
        return result


class Step:
    """A training step in three pieces; a call does all of them."""

    def __init__(self, config: Config, precision: str):
        self.data, self.bf16 = random_images(config.batch), precision == "bf16"
        self.moments = channel_moments(self.data.x_train)
        self.model = ladder.model_of(config, self.data, anew=False)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=config.lr)

    def pictures(self) -> Tensor:
        """Cropped, mirrored and standardised, (batch, 3, 32, 32)."""
        mean, deviation = self.moments
        return (crop_and_flip(self.data.x_train).float() - mean) / deviation

    def passes(self, images: Tensor) -> None:
        """Forward and backward."""
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16, cache_enabled=False):
            scores = self.model(images)
        F.cross_entropy(scores.float(), self.data.y_train).backward()

    def update(self) -> None:
        """The optimiser's part."""
        self.optimizer.step()
        self.optimizer.zero_grad()

    def __call__(self) -> None:
        """One step."""
        self.passes(self.pictures())
        self.update()

    def watched(self) -> dict[str, float]:
        """Seconds in the operations of each part of one step."""
        with Clocks() as clocks:
            clocks.part = "pictures"
            images = self.pictures()
            clocks.part = None
            self.passes(images)
            clocks.part = "optimiser"
            self.update()
        return {part: 1e-9 * nanoseconds for part, nanoseconds in clocks.spent.items()}


def _repeated(work: Callable[[], Any]) -> list[Any]:
    """The results of a piece of work, done once, and again while that takes less than enough."""
    began, found = time.process_time(), [work()]
    while time.process_time() - began < ENOUGH and len(found) < 5:
        found.append(work())
    return found


def _seconds(step: Step) -> float:
    before = time.process_time()
    step()
    return time.process_time() - before


def shares(parts: dict[str, float]) -> dict[str, float]:
    """The share of each part in the time of all operations."""
    whole = sum(parts.values()) or 1.0  # a clock that ticks seldom may not have moved
    return {part: round(parts.get(part, 0.0) / whole, 4) for part in PARTS}


def run(layers: int = 4) -> list[dict[str, Any]]:
    """Measure a model with 4 heads, on the processor, with the threads that PyTorch has.

    ``cpu_seconds`` are those of the best step; ``shares`` are those of the parts of the quickest of some steps in the
    time of its operations.
    """
    rows, method = [], "riemannformer"
    others = {"layers": layers, "method": method, "threads": torch.get_num_threads()}
    for batch, width, tokens, precision in itertools.product(BATCHES, WIDTHS, TOKENS, PRECISIONS):
        config = Config("cifar10", method, width=width, layers=layers, batch=batch, patch=_PATCH_OF[tokens])
        step = Step(config, precision)
        step()  # the optimiser makes its moments
        seconds = min(_repeated(partial(_seconds, step)))
        parts = min(_repeated(step.watched), key=lambda found: sum(found.values()))
        sizes = {"batch": batch, "width": width, "tokens": tokens, "precision": precision}
        rows.append({**sizes, "cpu_seconds": seconds, "shares": shares(parts), **others})
    return rows
