"""Images made ready for the model, a batch at a time on the device: crop, mirror, erase, and what a run asks for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from geolib._checks import require
from geolib.lab.data.policies import auto_augment, auto_augment_moves, rand_augment, rand_augment_moves

AUGMENTATIONS = ("none", "crop-flip", "crop-flip-autoaugment", "crop-flip-randaugment")


def augmentation(config, shape):
    return lambda images: images


def old_augmentation(config: Any, mean: Tensor, shape: Sequence[int]) -> Callable[[Tensor], Tensor]:
    """The configuration's augmentation, from a batch of stored images to one that is ready to be standardised.

    ``config`` is a ``Config``; its ``augment`` names the order: "crop-flip"; "crop-flip-autoaugment", which is crop,
    flip, AutoAugment, as in common scripts for CIFAR; "crop-flip-randaugment", which is RandAugment, crop, flip, as in
    LieRE's code (with randaugment (2, 14)). Erasing, where ``erase`` is above 0, comes last. ``mean`` (channels, 1, 1)
    is the grey level that standardising takes to 0, on the device of the batches to come; ``shape`` is an image's.

    What comes out goes from uint8 (batch, channels, height, width) to the same shape in grey levels, float32 with
    erasing. All draws come from the device's default generator, each image's own; the host waits for nothing.
    ValueError for a policy on images that are neither grey nor RGB, and for anything but "none" on volumes and clips.
    """
    flat = len(shape) == 3 or (config.augment == "none" and config.erase == 0)
    require(flat, "augment", repr(config.augment), "volumes and clips are taken as they are: none, and no erasing")
    steps: list[Callable[[Tensor], Tensor]] = []
    if config.augment == "crop-flip-randaugment":
        ops, magnitude = config.randaugment
        moves = rand_augment_moves(shape, magnitude).to(mean.device)
        steps.append(lambda images: rand_augment(images, moves, ops))
    if config.augment.startswith("crop-flip"):
        steps.append(crop_and_flip)
    if config.augment == "crop-flip-autoaugment":
        policy = [part.to(mean.device) for part in auto_augment_moves(shape)]
        steps.append(lambda images: auto_augment(images, *policy))
    if config.erase > 0:
        steps.append(lambda images: random_erasing(images, mean, config.erase))

    def augment(images: Tensor) -> Tensor:
        for step in steps:
            images = step(images)
        return images

    return augment


# Crop, flip, erase


PADDING = 4


MAGNITUDES = 31


def erasing(config):
    return lambda images: images


def crop_and_flip(images: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """A random crop of each image after padding by zeros, mirrored half of the time; same shape and dtype."""
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


SHARE, RATIO = (0.02, 0.33), (0.3, 3.3)  # of a rectangle: its least and most of the area, and of height over width
_ATTEMPTS = 10  # at a rectangle that is smaller than the image


def random_erasing(images: Tensor, value: Tensor, probability: float) -> Tensor:
    """A rectangle of each image gets one value, with a probability; float32.

    torchvision's RandomErasing acts on standardised images and writes 0. The same comes out when the channel's mean is
    written before standardising, since (mean - mean) / deviation = 0: pass the mean as ``value``, (channels, 1, 1).

    The rectangle's share of the area is uniform; height over width is log-uniform. One as high or as wide as the image
    is drawn again; after ten draws the image stays whole.
    """
    batch, _, height, width = images.shape
    share, shape, row, column = torch.rand(4, _ATTEMPTS, batch, device=images.device)
    area = height * width * (SHARE[0] + (SHARE[1] - SHARE[0]) * share)
    aspect = torch.exp(math.log(RATIO[0]) + math.log(RATIO[1] / RATIO[0]) * shape)
    high, wide = (area * aspect).sqrt().round(), (area / aspect).sqrt().round()
    fits = (high < height) & (wide < width)
    first = fits.long().argmax(0, keepdim=True)  # the first that fits, where one does
    top, left = (row * (height - high + 1)).floor(), (column * (width - wide + 1)).floor()
    top, left, high, wide, fits = (t.gather(0, first)[0, :, None] for t in (top, left, high, wide, fits))
    chosen = fits & (torch.rand(batch, 1, device=images.device) < probability)
    y, x = torch.arange(height, device=images.device), torch.arange(width, device=images.device)
    rows, columns = (y >= top) & (y < top + high) & chosen, (x >= left) & (x < left + wide)
    return torch.where((rows[:, :, None] & columns[:, None, :])[:, None], value, images.float())


# What the data set's images are like


def channel_moments(images: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel's pixels, (channels, 1, ...); a constant channel has deviation 1."""
    values = torch.arange(256, dtype=torch.float64)
    moments = []
    for channel in images.unbind(1):
        share = torch.bincount(channel.flatten(), minlength=256) / channel.numel()  # counting is exact, and fast
        mean = (share.double() * values).sum()
        moments.append((mean, ((share.double() * (values - mean) ** 2).sum()).sqrt()))
    ones = (1,) * (images.dim() - 2)
    mean, deviation = (torch.stack(m).float().view(-1, *ones) for m in zip(*moments))
    return mean, torch.where(deviation > 0, deviation, 1.0)
