"""Images made ready for the model, a batch at a time and on the device."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def crop_and_flip(images: Tensor, padding: int = 4) -> Tensor:
    """A random crop of each zero-padded image, mirrored left-right half of the time.

    Parameters
    ----------
    images : Tensor, (batch, channels, height, width)
    padding : int
        Pixels added on each side; the crop's two offsets are uniform on 0 ... 2 padding.

    Returns
    -------
    Tensor, same shape and dtype
        Drawn from the device's default generator.
    """
    batch, channels, height, width = images.shape
    device = images.device
    top, left = torch.randint(0, 2 * padding + 1, (2, batch, 1), device=device)
    mirrored = torch.rand(batch, 1, device=device) < 0.5
    rows = top + torch.arange(height, device=device)  # (batch, height)
    columns = left + torch.arange(width, device=device)  # (batch, width)
    columns = torch.where(mirrored, columns.flip(1), columns)
    padded = F.pad(images, (padding,) * 4)
    each = torch.arange(batch, device=device)[:, None, None, None]
    channel = torch.arange(channels, device=device)[:, None, None]
    return padded[each, channel, rows[:, None, :, None], columns[:, None, None, :]]


def channel_moments(images: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel's pixels.

    Parameters
    ----------
    images : Tensor, (images, channels, height, width)
        uint8.

    Returns
    -------
    tuple of Tensor, each (channels, 1, 1)
        float32. A constant channel has deviation 1.
    """
    values = torch.arange(256, dtype=torch.float64)
    moments = []
    for channel in images.unbind(1):
        share = torch.bincount(channel.flatten(), minlength=256) / channel.numel()  # counting is exact, and fast
        mean = (share.double() * values).sum()
        moments.append((mean, ((share.double() * (values - mean) ** 2).sum()).sqrt()))
    mean, deviation = (torch.stack(m).float()[:, None, None] for m in zip(*moments))
    return mean, torch.where(deviation > 0, deviation, 1.0)
