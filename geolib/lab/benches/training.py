"""How many images a second the lab's loop trains on, beside a plain loop as small repositories have it.

The plain loop: PIL images that worker processes crop and mirror one by one, a ``DataLoader``, float32, an optimiser
with its usual settings, and a loss read back after each step. Model, batch and data are the same: random images,
so nothing is downloaded. A rate is that of whole epochs after the first, without evaluation; rates of different runs on
a busy machine are not comparable, ratios of one run are.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from geolib.lab.config import Config
from geolib.lab.data.augmentation import channel_moments
from geolib.lab.data.sets import Dataset
from geolib.lab.files import LabError
from geolib.lab.models import ViT
from geolib.lab.runs import place
from geolib.lab.training.device import pick_device
from geolib.lab.training.loop import train
from geolib.lab.training.options import Options

PADDING = 4


def random_images(count: int) -> Dataset:
    """As many training images as asked for, of CIFAR-10's shape, and a few test images."""
    g = torch.Generator().manual_seed(0)

    def part(size: int) -> tuple[Tensor, Tensor]:
        pixels = torch.randint(0, 256, (size, 3, 32, 32), generator=g, dtype=torch.uint8)
        return pixels, torch.randint(0, 10, (size,), generator=g)

    return Dataset("cifar10", *part(count), *part(100), classes=tuple("0123456789"), source="random")


# The plain loop -----------------------------------------------------------------------------------------------------


class PlainImages(torch.utils.data.Dataset):
    """Training images as PIL holds them, each transformed when it is asked for."""

    def __init__(self, data: Dataset):
        Image = _pil("Image")
        arrays = data.x_train.permute(0, 2, 3, 1).numpy()
        self.images, self.labels = [Image.fromarray(array) for array in arrays], data.y_train.tolist()
        mean, deviation = (m.flatten().tolist() for m in channel_moments(data.x_train))
        self.transform = plain_transform([m / 255 for m in mean], [d / 255 for d in deviation])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.transform(self.images[index]), self.labels[index]


def plain_transform(mean: list[float], deviation: list[float]) -> Callable[[Any], Tensor]:
    """Crop, mirror, standardise one PIL image: torchvision's transforms where it works, else the same by hand."""
    try:
        from torchvision import transforms
    except (ImportError, RuntimeError):  # not installed, or made for another build of PyTorch
        return ByHand(mean, deviation)
    return transforms.Compose(
        [
            transforms.RandomCrop(32, padding=PADDING),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(mean, deviation),
        ]
    )


class ByHand:
    """The same transformation of one PIL image with Pillow alone."""

    def __init__(self, mean: list[float], deviation: list[float]):
        self.mean, self.deviation = torch.tensor(mean)[:, None, None], torch.tensor(deviation)[:, None, None]

    def __call__(self, image: Any) -> Tensor:
        """A PIL image as a float tensor, (3, side, side)."""
        side = image.width
        padded = _pil("ImageOps").expand(image, PADDING)
        left, top = random.randint(0, 2 * PADDING), random.randint(0, 2 * PADDING)
        image = padded.crop((left, top, left + side, top + side))
        if random.random() < 0.5:
            image = _pil("ImageOps").mirror(image)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
        return (pixels.float() / 255 - self.mean) / self.deviation


def _pil(name: str) -> Any:
    """A module of Pillow; LabError where it is not installed."""
    import importlib

    try:
        return importlib.import_module(f"PIL.{name}")
    except ImportError:
        raise LabError("this bench needs Pillow: pip install pillow") from None


def plain_rate(config: Config, data: Dataset, device: torch.device, workers: int) -> float:
    """Images a second of the plain loop, over all epochs but the first."""
    images = PlainImages(data)
    loader = torch.utils.data.DataLoader(
        images, config.batch, shuffle=True, num_workers=workers, pin_memory=device.type == "cuda"
    )
    model = ViT(config, data.shape, len(data.classes)).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr)
    ends, total = [], 0.0
    for _ in range(config.epochs):
        for x, y in loader:
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        ends.append(time.perf_counter())
    return len(images) * (config.epochs - 1) / (ends[-1] - ends[0])


# The lab's loop -----------------------------------------------------------------------------------------------------


def lab_rate(config: Config, data: Dataset, options: Options) -> tuple[float, str, str]:
    """Images a second of the lab's loop, over all epochs but the first, what it is called, and why it is that form."""
    finished = train(config, data, options)
    seconds = [row["seconds"] for row in finished.metrics]
    seconds[-1] -= finished.evaluation_seconds
    rate = len(data.y_train) * (config.epochs - 1) / (seconds[-1] - seconds[0])
    asked = f", {options.precision}: {finished.precision}" if options.precision == "auto" else ""
    why = "; ".join(filter(None, [finished.take_step.why, finished.why_precision]))
    return rate, f"lab, {finished.take_step.form}{asked}", why


def run(
    images: int | None = None,
    epochs: int = 3,
    width: int | None = None,
    layers: int = 6,
    batch: int = 128,
    workers: int | None = None,
) -> list[dict[str, Any]]:
    """Measure.

    Parameters
    ----------
    images : int or None
        In the training set; 51,200 on a GPU and 1,024 on a CPU when None.
    epochs : int
        At least 2; the first does not count.
    width : int or None
        Of the model; 256 on a GPU and 192 on a CPU when None.
    layers, batch : int
    workers : int or None
        Of the plain loop's DataLoader; four or as many as there are cores, whichever is less, when None.

    Returns
    -------
    list of dict
        Rows with ``loop``, ``images_per_second``, the device and the sizes; then rows with ``ratio`` and ``value``.
    """
    if epochs < 2:
        raise LabError(f"epochs: got {epochs}; at least 2, the first does not count")
    device = pick_device(None)
    on_gpu = device.type == "cuda"
    images = images or (51_200 if on_gpu else 1_024)
    width = width or (256 if on_gpu else 192)
    workers = min(4, os.cpu_count() or 1) if workers is None else workers
    sizes: dict[str, Any] = {"width": width, "layers": layers, "batch": batch}
    config = Config("cifar10", "rope-axial", augment="crop-flip", epochs=epochs, eval_every=epochs, **sizes)
    data = random_images(images)
    about = {"device": place.device_name(device), "images": images, **sizes}
    plain = plain_rate(config, data, device, workers)
    rows = [{"loop": "plain", "images_per_second": plain, **about, "workers": workers}]
    ratios = []
    usual = Options(device=str(device), step="eager", quiet=True)
    captured, compiled = replace(usual, step="captured"), replace(usual, step="compiled")
    for options in (usual, captured, compiled) if on_gpu else (usual, replace(usual, precision="auto")):
        rate, loop, why = lab_rate(config, data, options)
        rows.append({"loop": loop, "images_per_second": rate, **about, **({"why": why} if why else {})})
        ratios.append({"ratio": f"{loop} / plain", "value": rate / plain, "device": about["device"]})
    return rows + ratios
