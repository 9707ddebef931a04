"""Augmentation of image batches: crops and flips, and the full recipes of papers, which torchvision carries out."""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from geolib._checks import require
from geolib.lab.data.documents import explained

AUGMENTATIONS = ("none", "crop-flip", "crop-flip-autoaugment", "crop-flip-randaugment")
MAGNITUDES = 31  # steps of a RandAugment magnitude, as in torchvision
TORCHVISION = "pip install --upgrade torch torchvision, both from one index"
PADDING, GROUP = 4, 4  # zeros around an image that is cropped, and images that share a draw of a policy


def crop_and_flip(images: Tensor, generator: Generator | None = None) -> Tensor:
    """Each image is padded by zeros, cropped at random to its old size, and mirrored half of the time.

    ``images`` (batch, channels, height, width) keep their dtype. Draws come from ``generator``, on the images' device.
    """
    batch, channels, height, width = images.shape
    device = images.device
    top, left = torch.randint(0, 2 * PADDING + 1, (2, batch, 1), device=device, generator=generator)
    mirrored = torch.rand(batch, 1, device=device, generator=generator) < 0.5
    rows = top + torch.arange(height, device=device)  # (batch, height)
    columns = left + torch.arange(width, device=device)  # (batch, width)
    columns = torch.where(mirrored, columns.flip(1), columns)
    padded = F.pad(images, (PADDING,) * 4)
    each = torch.arange(batch, device=device)[:, None, None, None]
    channel = torch.arange(channels, device=device)[:, None, None]
    return padded[each, channel, rows[:, None, :, None], columns[:, None, None, :]]


def full_recipe(config: Any, shape: Sequence[int], mean: Tensor) -> Callable[[Tensor], Tensor] | None:
    """The augmentation that a configuration names where it takes more than ``crop_and_flip``, else None.

    The order is crop, flip, AutoAugment (CIFAR-10's policy) or, as in LieRE's code, RandAugment, crop, flip; erasing
    comes last. Policies and erasing are torchvision's. In the papers each image has a draw of its own; here four
    neighbours in a batch share that of a policy, over three times as fast. Erasing draws for each image.

    ``shape`` is an image's. The recipe takes stored images, uint8 (batch, channels, height, width), to augmented ones,
    of float32 with erasing, which writes ``mean`` (channels, 1, 1). ``torch.manual_seed`` decides all draws. ValueError
    for augmented volumes and clips and for policies on neither 1 nor 3 channels; LabError without fitting torchvision.
    """
    augment, plain = config.augment, config.augment in ("none", "crop-flip")
    flat = len(shape) == 3 or (augment == "none" and config.erase == 0)
    require(flat, "augment", repr(augment), "volumes and clips are taken as they are: none, and no erasing")
    require(plain or shape[0] in (1, 3), "augment", repr(augment), f"it takes 1 or 3 channels, not {shape[0]}")
    if plain and config.erase == 0:
        return None
    with explained(f"torchvision is missing, or does not fit torch {torch.__version__}", TORCHVISION):
        from torchvision.transforms import v2
    steps: list[Callable[[Tensor], Tensor]] = [] if augment == "none" else [crop_and_flip]
    if augment == "crop-flip-randaugment":
        steps.insert(0, _in_groups(v2.RandAugment(*config.randaugment, MAGNITUDES), GROUP))
    if augment == "crop-flip-autoaugment":
        steps.append(_in_groups(v2.AutoAugment(v2.AutoAugmentPolicy.CIFAR10), GROUP))
    if config.erase > 0:
        steps += [Tensor.float, _in_groups(v2.RandomErasing(config.erase, value=mean.flatten().tolist()), 1)]
    return lambda images: reduce(lambda images, step: step(images), steps, images)


def _in_groups(transform: Callable[[Tensor], Tensor], size: int) -> Callable[[Tensor], Tensor]:
    """The transform of a batch with a draw for every so many images."""
    return lambda images: torch.cat([transform(group) for group in images.split(size)])


def channel_moments(images: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation of each channel of uint8 images, (channels, 1, ...); a constant channel has deviation 1."""
    values = torch.arange(256, dtype=torch.float64)
    counts = torch.stack([torch.bincount(channel.flatten(), minlength=256) for channel in images.unbind(1)])
    share = (counts / counts[:1].sum()).double()  # counting is exact, and fast
    mean = (share * values).sum(1, keepdim=True)
    deviation = (share * (values - mean) ** 2).sum(1, keepdim=True).sqrt()
    mean, deviation = (m.float().view(-1, *[1] * (images.dim() - 2)) for m in (mean, deviation))
    return mean, torch.where(deviation > 0, deviation, 1.0)
