"""How many images a second the lab's loop trains on, beside a plain loop as small repositories have it.

The plain loop: PIL images that are cropped and mirrored one by one (on a GPU by worker processes), a ``DataLoader``,
float32, an optimiser with its usual settings, and a loss read back after each step. Model, batch and data are the same:
random images, so nothing is downloaded.

The loops take an epoch each in turns, and a rate is that of a loop's fastest epoch after the first, without evaluation.
On a CPU ratios are those of processor time, which other programs disturb less; with several threads it counts their
waiting for each other too, so one thread (``OMP_NUM_THREADS=1``) says most.
"""

from __future__ import annotations

import os
import random
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from geolib.lab.benches.timing import in_turns
from geolib.lab.config import PRECISIONS, Config, Options
from geolib.lab.data.augmentation import channel_moments
from geolib.lab.data.sets import Dataset
from geolib.lab.files import LabError
from geolib.lab.records import device_name
from geolib.lab.train import Run, isolated, pick_device
from geolib.lab.vit import ViT

PADDING = 4
GPU_FORMS = ("eager", "captured", "compiled")


def random_images(count: int) -> Dataset:
    """As many training images as asked for, of CIFAR-10's shape, and a few test images."""
    g = torch.Generator().manual_seed(0)

    def part(size: int) -> tuple[Tensor, Tensor]:
        pixels = torch.randint(0, 256, (size, 3, 32, 32), generator=g, dtype=torch.uint8)
        return pixels, torch.randint(0, 10, (size,), generator=g)

    return Dataset("cifar10", *part(count), *part(100), classes=tuple("0123456789"), source="random")


# The plain loop -----------------------------------------------------------------------------------------------------


class PlainImages(torch.utils.data.Dataset):
    """Training images as PIL holds them, each cropped, mirrored and standardised when it is asked for."""

    def __init__(self, data: Dataset):
        try:
            from PIL import Image
        except ImportError:
            raise LabError("this bench needs Pillow: pip install pillow") from None
        arrays = data.x_train.permute(0, 2, 3, 1).numpy()
        self.images, self.labels = [Image.fromarray(array) for array in arrays], data.y_train.tolist()
        self.mean, self.deviation = (m / 255 for m in channel_moments(data.x_train))

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        from PIL import ImageOps

        image, side = self.images[index], self.images[index].width
        left, top = random.randint(0, 2 * PADDING), random.randint(0, 2 * PADDING)
        image = ImageOps.expand(image, PADDING).crop((left, top, left + side, top + side))
        if random.random() < 0.5:
            image = ImageOps.mirror(image)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
        return (pixels.float() / 255 - self.mean) / self.deviation, self.labels[index]


class PlainLoop:
    """The plain loop; each call is an epoch."""

    def __init__(self, config: Config, data: Dataset, device: torch.device, workers: int):
        images = PlainImages(data)
        self.loader = torch.utils.data.DataLoader(
            images, config.batch, shuffle=True, num_workers=workers, pin_memory=device.type == "cuda"
        )
        self.device, self.model = device, ViT(config, data.shape, len(data.classes)).to(device).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=config.lr)
        self.name, self.why = "plain", ""

    def __call__(self) -> None:
        """Train on every image once."""
        total = 0.0
        for x, y in self.loader:
            loss = F.cross_entropy(self.model(x.to(self.device)), y.to(self.device))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item()


# The lab's loop -----------------------------------------------------------------------------------------------------


class LabLoop:
    """The lab's loop; each call is an epoch."""

    def __init__(self, config: Config, data: Dataset, device: torch.device, options: Options):
        with isolated(device):
            self.run = Run(config, data, device, options=options)

    def __call__(self) -> None:
        """Train on every image once."""
        with isolated(self.run.device):
            for batch in self.run.begin_epoch():
                self.run.update(batch)
            self.run.end_epoch()

    @property
    def name(self) -> str:
        """With the form of its step and its precision, which are known after the first epoch."""
        return f"lab, {self.run.take_step.form}, {self.run.precision}"

    @property
    def why(self) -> str:
        """Why it is that form."""
        return self.run.take_step.why


def run(
    images: int | None = None,
    epochs: int = 3,
    width: int | None = None,
    layers: int = 6,
    batch: int = 128,
    workers: int | None = None,
) -> list[dict[str, Any]]:
    """Measure each loop's fastest epoch after the first, and its ratio to the plain loop's.

    On a GPU 25,600 images, a width of 256 and up to four workers of the plain loop's DataLoader, and rates of wall time
    count; on a CPU 1,024, 192 and none, so that all its time is that of one process, and processor time counts.
    """
    device = pick_device(None)
    on_gpu = device.type == "cuda"
    images = images or (25_600 if on_gpu else 1_024)
    width = width or (256 if on_gpu else 192)
    workers = (min(4, os.cpu_count() or 1) if on_gpu else 0) if workers is None else workers
    sizes: dict[str, Any] = {"width": width, "layers": layers, "batch": batch}
    # One epoch more than are taken: the last one would be evaluated.
    config = Config("cifar10", "rope-axial", augment="crop-flip", epochs=epochs + 1, eval_every=epochs + 1, **sizes)
    data = random_images(images)
    kinds = [Options(step=form) for form in GPU_FORMS] if on_gpu else [Options(precision=p) for p in PRECISIONS]
    loops: list[PlainLoop | LabLoop] = [PlainLoop(config, data, device, workers)]
    loops += [LabLoop(config, data, device, kind) for kind in kinds]
    times = in_turns(dict(enumerate(loops)), epochs - 1).values()
    about = {"device": device_name(device), "images": images, **sizes, "workers": workers}
    rows = []
    for loop, took in zip(loops, times):
        rates = {"images_per_second": images / took["seconds"], "images_per_cpu_second": images / took["cpu_seconds"]}
        rows.append({"loop": loop.name, **rates, **about, **({"why": loop.why} if loop.why else {})})
    rate = "images_per_second" if on_gpu else "images_per_cpu_second"
    plain, *ours = rows
    return rows + [
        {"ratio": f"{row['loop']} / plain", "value": row[rate] / plain[rate], "of": rate, "device": about["device"]}
        for row in ours
    ]
