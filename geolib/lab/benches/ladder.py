"""From a plain loop to the lab's, one change at a time: processor time of a training step on each rung.

Rungs take their steps in turn, so that what else the machine does falls on all of them; what counts is the best step
of each. Rungs that were tried and are not taken stand beside the ladder: a batch in pieces, and compiled models, whose
compilation is not counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from geolib.attention import Encoding, Placed
from geolib.lab.benches.timing import in_turns
from geolib.lab.benches.training import PlainImages, random_images
from geolib.lab.config import Config
from geolib.lab.data.augmentation import channel_moments, crop_and_flip
from geolib.lab.data.sets import Dataset
from geolib.lab.models import ViT

Work = Callable[[], Tensor]
PIECES = 4  # of a batch whose gradients are added up


class PlacedAnew(Placed):
    """Positions that are placed again for each layer."""

    def __init__(self, encoding: Encoding, positions: Tensor):
        self.encoding, self.positions = encoding, positions

    def layer(self, index: int) -> Placed:
        """What the layer uses, made from the start."""
        return self.encoding.place(self.positions).layer(index).behind(*self.unplaced)


class PlacedInEveryLayer(Encoding):
    """An encoding whose positions are placed once in each layer instead of once a pass."""

    def __init__(self, encoding: Encoding):
        super().__init__()
        self.encoding = encoding

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """As the encoding does."""
        return self.encoding.embed(x, positions)

    def place(self, positions: Tensor, keys: Tensor | None = None) -> Placed:
        """Nothing is computed yet."""
        return PlacedAnew(self.encoding, positions)


def rungs(config: Config, data: Dataset) -> dict[str, Work]:
    """A training step on each rung, on batches in the order in which the images stand; each returns its loss, ()."""
    plain, size, at_once = PlainImages(data), config.batch, images_at_once(config, data)

    def one_by_one() -> Tensor:
        return torch.stack([plain[i][0] for i in range(size)])

    def rung(images: Work, precision: str = "float32", anew: bool = False, pieces: int = 1) -> Work:
        return step_of(model_of(config, data, anew), config, images, data.y_train[:size], precision, pieces)

    return {
        "plain loop": rung(one_by_one, anew=True),
        "data as tensors": rung(at_once, anew=True),
        "placed once": rung(at_once),
        "bf16": rung(at_once, "bf16"),
    }


def beside(config: Config, data: Dataset) -> dict[str, Work]:
    """Steps that were tried: what the last two rungs become when the batch is cut or the model compiled."""
    images, labels = images_at_once(config, data), data.y_train[: config.batch]

    def tried(precision: str, pieces: int, compiles: bool) -> Work:
        model = model_of(config, data, anew=False)
        chosen: Any = torch.compile(model, dynamic=False, fullgraph=True) if compiles else model
        return step_of(chosen, config, images, labels, precision, pieces)

    return {
        "placed once, in pieces": tried("float32", PIECES, False),
        "placed once, compiled": tried("float32", 1, True),
        "bf16, in pieces": tried("bf16", PIECES, False),
        "bf16, compiled": tried("bf16", 1, True),
    }


def images_at_once(config: Config, data: Dataset) -> Work:
    """What crops, mirrors and standardises a batch as one tensor."""
    mean, deviation = channel_moments(data.x_train)
    return lambda: (crop_and_flip(data.x_train[: config.batch]).float() - mean) / deviation


def model_of(config: Config, data: Dataset, anew: bool) -> ViT:
    """The model, the same weights each time; ``anew``: its positions are placed in every layer."""
    torch.manual_seed(config.seed)
    model = ViT(config, data.shape, len(data.classes)).train()
    if anew:
        model.encoding = PlacedInEveryLayer(model.encoding)
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
    times = in_turns(list(steps.values()), repeats)
    return {name: took["cpu_seconds"] for name, took in zip(steps, times)}


def run(
    width: int = 192, layers: int = 4, batch: int = 32, repeats: int = 5, method: str = "riemannformer"
) -> list[dict[str, Any]]:
    """Measure a model with 64 patches of 4x4 pixels and 4 heads, on the processor, with the threads that PyTorch has.

    ``cpu_seconds`` are those of the best of ``repeats`` steps; ``gain`` is over the plain loop.
    """
    config = Config("cifar10", method, width=width, layers=layers, batch=batch, patch=4)
    data = random_images(batch)
    seconds = best(rungs(config, data) | beside(config, data), repeats)
    plain, sizes = seconds["plain loop"], {"width": width, "layers": layers, "batch": batch, "method": method}
    sizes["threads"] = torch.get_num_threads()
    return [
        {"rung": name, "cpu_seconds": took, "images_per_cpu_second": batch / took, "gain": plain / took, **sizes}
        for name, took in seconds.items()
    ]
