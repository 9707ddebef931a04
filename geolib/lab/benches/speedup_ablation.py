"""From a plain loop to the lab's, one change at a time: processor time of a training step on each rung.

Rungs take their steps in turn, so that what else the machine does falls on all of them; what counts is the best step
of each. Rungs that were tried and are not taken stand beside the ladder: a batch in pieces, and compiled models, whose
compilation is not counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from geolib.attention import Encoding, Placed
from geolib.lab.benches.timing import in_turns
from geolib.lab.benches.training import PlainImages, random_images
from geolib.lab.config import Config
from geolib.lab.data.augmentation import channel_moments, crop_and_flip
from geolib.lab.data.sets import Dataset
from geolib.lab.vit import ViT

Work = Callable[[], Tensor]
PIECES = 4  # of a batch whose gradients are added up


class _PlacedAnew(Placed):
    """Positions that are placed again for each layer."""

    def __init__(self, encoding: Encoding, positions: Tensor):
        self.encoding, self.positions = encoding, positions

    def layer(self, index: int) -> Placed:
        """What the layer uses, made from the start."""
        return self.encoding.place(self.positions).layer(index).behind(*self.unplaced)


class _PlacedInEveryLayer(Encoding):
    """An encoding whose positions are placed once in each layer instead of once a pass."""

    def __init__(self, encoding: Encoding):
        super().__init__()
        self.encoding = encoding

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """As the encoding does."""
        return self.encoding.embed(x, positions)

    def place(self, positions: Tensor, keys: Tensor | None = None) -> Placed:
        """Nothing is computed yet."""
        return _PlacedAnew(self.encoding, positions)


class _Rung(NamedTuple):
    """How a step is taken."""

    one_by_one: bool = False
    anew: bool = False
    precision: str = "float32"
    pieces: int = 1
    compiled: bool = False


LADDER = {
    "plain loop": _Rung(one_by_one=True, anew=True),
    "data as tensors": _Rung(anew=True),
    "placed once": _Rung(),
    "bf16": _Rung(precision="bf16"),
}
BESIDE = {
    "placed once, in pieces": _Rung(pieces=PIECES),
    "placed once, compiled": _Rung(compiled=True),
    "bf16, in pieces": _Rung(precision="bf16", pieces=PIECES),
    "bf16, compiled": _Rung(precision="bf16", compiled=True),
}
"""What was tried: what the last two rungs become when the batch is cut or the model compiled."""


def rungs(config: Config, data: Dataset, ladder: dict[str, _Rung] = LADDER) -> dict[str, Work]:
    """A training step on each rung, on batches in the order in which the images stand; each returns its loss, ()."""
    plain, labels = PlainImages(data), data.y_train[: config.batch]
    mean, deviation = channel_moments(data.x_train)

    def one_by_one() -> Tensor:
        return torch.stack([plain[i][0] for i in range(config.batch)])

    def at_once() -> Tensor:
        return (crop_and_flip(data.x_train[: config.batch]).float() - mean) / deviation

    steps = {}
    for name, rung in ladder.items():
        model: Any = model_of(config, data, rung.anew)
        model = torch.compile(model, dynamic=False, fullgraph=True) if rung.compiled else model
        images = one_by_one if rung.one_by_one else at_once
        steps[name] = step_of(model, config, images, labels, rung.precision, rung.pieces)
    return steps


def model_of(config: Config, data: Dataset, anew: bool) -> ViT:
    """The model, the same weights each time; ``anew``: its positions are placed in every layer."""
    torch.manual_seed(config.seed)
    model = ViT(config, data.shape, len(data.classes)).train()
    if anew:
        model.encoding = _PlacedInEveryLayer(model.encoding)
    return model


def step_of(model: nn.Module, config: Config, images: Work, labels: Tensor, precision: str, pieces: int) -> Work:
    """A step of training, with the gradients of the batch's pieces added up."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr)

    def step() -> Tensor:
        total = torch.zeros(())
        optimizer.zero_grad()
        for x, y in zip(images().chunk(pieces), labels.chunk(pieces)):
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16", cache_enabled=False):
                scores = model(x)
            loss = F.cross_entropy(scores.float(), y) * (len(y) / len(labels))
            loss.backward()
            total += loss.detach()
        optimizer.step()
        return total

    return step


def best(steps: dict[str, Work], repeats: int) -> dict[str, float]:
    """Processor seconds of the best step of each, taken in turn, after one that does not count."""
    return {name: took["cpu_seconds"] for name, took in in_turns(steps, repeats).items()}


def run(width: int = 192, layers: int = 4, batch: int = 32, repeats: int = 5) -> list[dict[str, Any]]:
    """Measure a model with 64 patches of 4x4 pixels and 4 heads, on the processor, with the threads that PyTorch has.

    ``cpu_seconds`` are those of the best of ``repeats`` steps; ``gain`` is over the plain loop.
    """
    method = "riemannformer"
    config = Config("cifar10", method, width=width, layers=layers, batch=batch, patch=4)
    data = random_images(batch)
    seconds = best(rungs(config, data, LADDER | BESIDE), repeats)
    plain, sizes = seconds["plain loop"], {"width": width, "layers": layers, "batch": batch, "method": method}
    sizes["threads"] = torch.get_num_threads()
    return [
        {"rung": name, "cpu_seconds": took, "images_per_cpu_second": batch / took, "gain": plain / took, **sizes}
        for name, took in seconds.items()
    ]
