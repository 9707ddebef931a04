"""A speedup ablation: processor time of a training step, from a plain loop to the lab's, one change at a time."""

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageOps
from torch import Tensor

from geolib._checks import require
from geolib.lab.benches.timing import in_turns
from geolib.lab.config import Config
from geolib.lab.data.augmentation import channel_moments, crop_and_flip
from geolib.lab.vit import ViT

RUNGS = ("plain loop", "data as tensors", "placed once", "bf16")  # each makes one change more than the one before
NOT_TAKEN = tuple(f"{rung}, {change}" for rung in RUNGS[2:] for change in ("in pieces", "compiled"))


def model_of(config: Config, placed_once: bool = True) -> ViT:
    """Make a model for CIFAR-10, whose encoding is placed once a pass or anew in every layer."""
    torch.manual_seed(config.seed)
    model = ViT(config, (3, 32, 32), 10).train()
    if not placed_once:
        place = model.encoding.place
        model.encoding.place = lambda p: SimpleNamespace(layer=lambda i: place(p).layer(i))  # type: ignore
    return model


def augmented(picture: Image.Image) -> Tensor:
    """Crop and mirror one picture as small repositories do, (channels, height, width)."""
    left, top = random.randint(0, 8), random.randint(0, 8)
    picture = ImageOps.expand(picture, 4).crop((left, top, left + picture.width, top + picture.height))
    return torch.from_numpy(np.array(ImageOps.mirror(picture) if random.random() < 0.5 else picture)).permute(2, 0, 1)


def training_step(config: Config, rung: str) -> Callable[[], Tensor]:
    """Make a rung's step of training on a batch of random images, on the CPU; each call returns the loss, ()."""
    require(rung in RUNGS + NOT_TAKEN, "rung", repr(rung), f"one of {RUNGS + NOT_TAKEN}")
    rung, _, change = rung.partition(", ")
    tensors, placed_once, bf16 = (RUNGS.index(rung) >= least for least in (1, 2, 3))
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (config.batch, 3, 32, 32), generator=draw, dtype=torch.uint8)
    y, (mean, deviation) = torch.randint(0, 10, (config.batch,), generator=draw), channel_moments(x)
    pictures = [Image.fromarray(each) for each in x.permute(0, 2, 3, 1).numpy()]
    model: Any = model_of(config, placed_once)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr)
    model = torch.compile(model, dynamic=False, fullgraph=True) if change == "compiled" else model
    pieces = 4 if change == "in pieces" else 1  # of the batch, whose gradients add up

    def step() -> Tensor:
        images = crop_and_flip(x) if tensors else torch.stack([augmented(each) for each in pictures])
        images, total = (images.float() - mean) / deviation, torch.zeros(())
        optimizer.zero_grad()
        for piece, labels in zip(images.chunk(pieces), y.chunk(pieces)):
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16, cache_enabled=False):
                scores = model(piece)
            loss = F.cross_entropy(scores.float(), labels, reduction="sum") / len(y)
            loss.backward()
            total += loss.detach()
        optimizer.step()
        return total

    return step


def run(width: int = 192, layers: int = 4, batch: int = 32, repeats: int = 5) -> list[dict[str, Any]]:
    """Measure the best step of each rung, and of changes that are not taken; ``gain`` is over the plain loop."""
    about: dict[str, Any] = {"width": width, "layers": layers, "batch": batch, "method": "riemannformer"}
    config, rows = Config("cifar10", patch=4, **about), []
    for rung, took in in_turns({rung: training_step(config, rung) for rung in RUNGS + NOT_TAKEN}, repeats).items():
        rate = {"cpu_seconds": took["cpu_seconds"], "images_per_cpu_second": batch / took["cpu_seconds"]}
        rows.append({"rung": rung, **rate, **about, "threads": torch.get_num_threads()})
    return [row | {"gain": rows[0]["cpu_seconds"] / row["cpu_seconds"]} for row in rows]
