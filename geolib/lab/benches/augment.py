"""Augmentation in batches on the device against torchvision's transforms image by image."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

from geolib.lab.benches.timing import in_turns
from geolib.lab.config import Config
from geolib.lab.data.augmentation import augmentation
from geolib.lab.files import LabError
from geolib.lab.train import pick_device

POLICIES = ("crop-flip", "crop-flip-autoaugment", "crop-flip-randaugment")
SIDE = 32  # pixels


def run(batch: int = 128, repeats: int = 5) -> Iterator[dict[str, Any]]:
    """Measure each policy on smooth random images, on one thread of the CPU, and ours on a GPU where there is one.

    ``form`` is "batched" for ours, a batch a call, and "tensor" or "pil" for torchvision's transforms of the same
    images one by one. The best of ``repeats`` timings counts.
    """
    device = pick_device(None).type
    images = (255 * F.interpolate(torch.rand(batch, 3, 4, 4), size=SIDE, mode="bilinear")).to(torch.uint8)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for policy in POLICIES:
            ours, mean = images.to(device), torch.zeros(3, 1, 1, device=device)
            augment = augmentation(Config("cifar10", augment=policy), mean, (3, SIDE, SIDE))
            each = {"batched": lambda augment=augment, ours=ours: augment(ours)} | _one_by_one(policy, images)
            for form, took in in_turns(each, repeats).items():
                place = device if form == "batched" else "cpu"
                yield {"policy": policy, "form": form, "device": place, "images_per_second": batch / took["seconds"]}
    finally:
        torch.set_num_threads(threads)


def _one_by_one(policy: str, images: torch.Tensor) -> dict[str, Callable[[], Any]]:
    """torchvision's transforms in the same order, on tensors and on PIL images."""
    try:
        from torchvision.transforms import v2
    except (ImportError, RuntimeError):  # RuntimeError: a torchvision built for another torch
        raise LabError("the bench compares with torchvision; install the one made for this torch") from None
    steps: list[Any] = [v2.RandomCrop(SIDE, padding=4), v2.RandomHorizontalFlip()]
    if policy == "crop-flip-autoaugment":
        steps.append(v2.AutoAugment(v2.AutoAugmentPolicy.CIFAR10))
    if policy == "crop-flip-randaugment":
        steps.insert(0, v2.RandAugment())
    transform, pictures = v2.Compose(steps), [v2.functional.to_pil_image(image) for image in images]
    return {
        "tensor": lambda: [transform(image) for image in images],
        "pil": lambda: [v2.functional.pil_to_tensor(transform(picture)) for picture in pictures],
    }
