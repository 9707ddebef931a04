"""RandAugment and AutoAugment for a whole batch at once, each image with operations of its own.

Images are not sorted by operation: the host would have to know the sizes of the groups, and so wait for the device in
every step. Instead an operation is a row of numbers, a ``Move``, and one pass takes every image through all stages (a
warp, a lookup table of 256 values, a blend); a stage that is not the image's own gets the numbers that leave it as it
is. The rows of all possible operations are computed once; a draw is an index into them. So the work is the same
whatever is drawn: nothing waits, and a pass can be captured in a CUDA graph or compiled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from geolib._checks import require

MAGNITUDES = 31  # steps of a RandAugment magnitude, as in torchvision

# Policies: which operations


def rand_augment(images: Tensor, moves: Tensor, ops: int = 2) -> Tensor:
    """RandAugment: to each image a number of operations one after the other, each drawn uniformly from ``moves``.

    Equal in distribution to torchvision's ``v2.RandAugment(ops, magnitude)`` on each uint8 image; drawn from the
    device's default generator.
    """
    index = torch.randint(len(moves), (ops, len(images)), device=images.device)
    for chosen in moves[index]:
        images = apply_moves(images, chosen)
    return images


def rand_augment_moves(shape: Sequence[int], magnitude: int = 9) -> Tensor:
    """What RandAugment draws from, (28, 14): fourteen operations, each with both signs of its magnitude, 0 ... 30.

    An operation without a sign stands there twice, so that all rows are equally likely.
    """
    require(
        magnitude in range(MAGNITUDES), "magnitude", magnitude, f"it must be a whole number, 0 ... {MAGNITUDES - 1}"
    )
    names = [name for name in OPERATIONS if name != "Invert"]
    return torch.tensor(
        [
            move(name, sign * size_of(name, magnitude, MAGNITUDES, shape), shape)
            for name in names
            for sign in (1, -1 if name in SIGNED else 1)
        ]
    )


def auto_augment(images: Tensor, moves: Tensor, probabilities: Tensor) -> Tensor:
    """AutoAugment: to each image one of the sub-policies, whose two operations each happen with a probability.

    ``moves`` and ``probabilities`` are those of ``auto_augment_moves``. Equal in distribution to torchvision's
    ``v2.AutoAugment(AutoAugmentPolicy.CIFAR10)`` on each uint8 image; drawn from the device's default generator.
    """
    policy = torch.randint(len(moves), (len(images),), device=images.device)
    luck, likely = torch.rand(2, len(images), device=images.device), probabilities[policy]
    for step in range(2):
        # Below p/2: with its sign; below p: with the other sign; else not at all.
        outcome = (luck[step] >= likely[:, step] / 2).long() + (luck[step] >= likely[:, step]).long()
        images = apply_moves(images, moves[policy, step, outcome])
    return images


def auto_augment_moves(shape: Sequence[int]) -> tuple[Tensor, Tensor]:
    """What AutoAugment draws from: the 25 sub-policies found for CIFAR-10, (25, 2, 3, 14) and (25, 2).

    Of each one's two operations: the move with either sign and the one that changes nothing; and the probability that
    it happens.
    """

    def outcomes(name: str, step: int) -> list[Move]:
        size = size_of(name, step, _AUTO_MAGNITUDES, shape)
        return [move(name, size, shape), move(name, -size if name in SIGNED else size, shape), Move()]

    policies = [[part.split() for part in policy.split(", ")] for policy in _CIFAR10_POLICIES]
    moves = [[outcomes(name, int(step)) for name, _, step in policy] for policy in policies]
    return torch.tensor(moves), torch.tensor([[float(p) for _, p, _ in policy] for policy in policies])


# Operations


class Move(NamedTuple):
    """An operation on one image, as numbers for the stages of ``apply_moves``; the defaults change nothing."""

    # The pixel at (x, y) comes from the one nearest to (xx x + xy y + x0, yx x + yy y + y0), and is 0 where that is
    # outside; measured from the image's centre in half widths and half heights.
    xx: float = 1.0
    xy: float = 0.0
    x0: float = 0.0
    yx: float = 0.0
    yy: float = 1.0
    y0: float = 0.0
    solarize: float = 256.0  # grey levels from here on are inverted
    posterize: float = 1.0  # grey levels are rounded down to a multiple of this power of 2
    autocontrast: float = 0.0  # 1 or 0, as the next
    equalize: float = 0.0
    factor: float = 1.0  # of the image in the blend
    mean: float = 0.0  # weights in the blend: of the mean grey level, the grey image, the blurred image minus the image
    gray: float = 0.0
    blur: float = 0.0


def move(name: str, magnitude: float, shape: Sequence[int]) -> Move:
    """An operation's numbers; ``name`` is one of ``OPERATIONS``, named and defined as in torchvision's policies.

    The magnitude is a slope for shears, pixels for translations (their fraction is dropped), degrees for rotations,
    factor minus 1 for Brightness, Color, Contrast and Sharpness, bits for Posterize, share of 255 for Solarize; the
    others need none.
    """
    channels, height, width = shape
    require(channels in (1, 3), "shape", tuple(shape), "the operations know images of 1 or 3 channels")
    require(name in OPERATIONS, "name", repr(name), f"it is one of {', '.join(OPERATIONS)}")
    if name == "Color" and channels == 1:  # a grey image has no colour to change
        return Move()
    turn, tall = math.radians(magnitude), height / width
    return {
        "Identity": Move(),
        "ShearX": Move(xy=magnitude * tall, x0=magnitude * tall),
        "ShearY": Move(yx=magnitude / tall, y0=magnitude / tall),
        "TranslateX": Move(x0=-2 * int(magnitude) / width),
        "TranslateY": Move(y0=-2 * int(magnitude) / height),
        "Rotate": Move(math.cos(turn), -math.sin(turn) * tall, 0.0, math.sin(turn) / tall, math.cos(turn)),
        "Brightness": Move(factor=1 + magnitude),
        "Color": Move(factor=1 + magnitude, gray=-magnitude),
        "Contrast": Move(factor=1 + magnitude, mean=-magnitude),
        "Sharpness": Move(blur=-magnitude),
        "Posterize": Move(posterize=2.0 ** (8 - int(magnitude))),
        "Solarize": Move(solarize=255 * magnitude),
        "AutoContrast": Move(autocontrast=1.0),
        "Equalize": Move(equalize=1.0),
        "Invert": Move(solarize=0.0),
    }[name]


def size_of(name: str, step: int, steps: int, shape: Sequence[int]) -> float:
    """The magnitude of an operation at one of the equal steps of its range, in its unit and without a sign.

    RandAugment has 31 steps and AutoAugment 10; translations reach 150/331 of the side; 0 where there is no magnitude.
    """
    _, height, width = shape
    if name == "Posterize":
        return round(8 - 4 * step / (steps - 1))
    if name == "Solarize":
        return torch.linspace(1.0, 0.0, steps)[step].item()
    side = {"TranslateX": width, "TranslateY": height}.get(name, 1)
    return torch.linspace(0.0, _LARGEST.get(name, 0.0) * side, steps)[step].item()


def apply_moves(images: Tensor, moves: Tensor) -> Tensor:
    """To each image (uint8) its own operation, a row of ``Move`` in ``moves`` (batch, 14).

    As torchvision's functional operations give it, with nearest neighbours and zero fill. Rounding errors decide, here
    as there, where a sheared or turned pixel's source is half-way between two, and whether a whole grey level of a
    blend is one less.
    """
    warp, table, blend = moves.split((6, 4, 4), dim=1)
    x = _blend(_look_up(_warp(images.float(), warp), table), blend)
    return x.to(images.dtype)  # which drops fractions


def _warp(x: Tensor, numbers: Tensor) -> Tensor:
    """The image under the affine map xx ... y0."""
    height, width = x.shape[-2:]
    across = torch.linspace(1 / width - 1, 1 - 1 / width, width, device=x.device)[:, None]
    down = torch.linspace(1 / height - 1, 1 - 1 / height, height, device=x.device)[:, None, None]
    by_x, by_y, offset = numbers[:, None, None].unflatten(3, (2, 3)).unbind(4)  # each (batch, 1, 1, 2)
    source = torch.addcmul(torch.addcmul(offset, by_y, down), by_x, across)  # (batch, height, width, 2)
    return F.grid_sample(x, source, mode="nearest", padding_mode="zeros", align_corners=False)


def _look_up(x: Tensor, numbers: Tensor) -> Tensor:
    """Whatever depends on a pixel's value and its channel's histogram alone, from a table for each channel."""
    solarize, posterize, autocontrast, equalize = numbers[:, :, None, None].unbind(1)  # each (batch, 1, 1)
    value = torch.arange(256.0, device=x.device)
    pixels = x.flatten(2).long()
    table = torch.where(value >= solarize, 255 - value, value)  # (batch, 1, 256)
    table = (table / posterize).floor() * posterize
    least, greatest = (t[..., None] for t in x.flatten(2).aminmax(dim=2))
    stretched = (value - least) / ((greatest - least) * (1 / 255))  # (batch, channels, 256)
    table = torch.where(autocontrast > (least == greatest), stretched, table)
    darker = _darker(pixels)
    most = torch.where(darker < pixels.shape[2], darker, 0).amax(2, keepdim=True)  # all but the brightest
    step = most // 255  # pixels for each of 255 steps
    shared = (darker + step // 2) // step.clamp(min=1)
    table = torch.where(equalize > (step == 0), shared, table)
    return table.clamp(0, 255).floor().gather(2, pixels).view_as(x)


def _darker(pixels: Tensor) -> Tensor:
    """How many pixels of each channel are darker than 0 ... 255, (batch, channels, 256)."""
    if pixels.is_cuda:  # counting would add atomically, which is slow there when repeatable algorithms are asked for
        return _darker_by_sorting(pixels)
    histogram = pixels.new_zeros(*pixels.shape[:2], 256)
    histogram.scatter_add_(2, pixels, pixels.new_ones(1).expand_as(pixels))
    return histogram.cumsum(2) - histogram


def _darker_by_sorting(pixels: Tensor) -> Tensor:
    ordered = pixels.to(torch.uint8).sort(2).values
    values = torch.arange(256, dtype=torch.uint8, device=pixels.device).expand(*pixels.shape[:2], 256)
    return torch.searchsorted(ordered, values.contiguous())


def _blend(x: Tensor, numbers: Tensor) -> Tensor:
    """The image mixed with its mean, its grey image or its blurred image."""
    factor, by_mean, by_gray, by_blur = numbers[:, :, None, None, None].unbind(1)  # each (batch, 1, 1, 1)
    gray = _gray(x) if x.shape[1] == 3 else x
    mixed = torch.addcmul(x * factor, gray.mean((1, 2, 3), keepdim=True), by_mean)
    mixed.addcmul_(gray, by_gray)
    if min(x.shape[-2:]) > 2:
        # Blurring: a pixel counts five times among thirteen, with its eight neighbours; the rim stays.
        inner = x[..., 1:-1, 1:-1]
        rows = x[..., :-2, :] + x[..., 1:-1, :] + x[..., 2:, :]
        around = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]
        mixed[..., 1:-1, 1:-1].addcmul_((around.add(inner, alpha=4) / 13).round() - inner, by_blur)
    return mixed.clamp(0, 255)


def _gray(x: Tensor) -> Tensor:
    """The grey image of an RGB one, (batch, 1, height, width), fractions dropped."""
    red, green, blue = x.split(1, dim=1)
    return (red * 0.2989).add(green, alpha=0.587).add(blue, alpha=0.114).floor()


# The largest magnitude of each operation that has one, in its unit; a translation's is a share of the side.
_LARGEST = {
    "ShearX": 0.3,
    "ShearY": 0.3,
    "TranslateX": 150 / 331,
    "TranslateY": 150 / 331,
    "Rotate": 30.0,
    "Brightness": 0.9,
    "Color": 0.9,
    "Contrast": 0.9,
    "Sharpness": 0.9,
}
SIGNED = tuple(_LARGEST)
OPERATIONS = ("Identity", *SIGNED, "Posterize", "Solarize", "AutoContrast", "Equalize", "Invert")
_AUTO_MAGNITUDES = 10
# AutoAugment's sub-policies for CIFAR-10: operation, probability and step of its magnitude, twice.
_CIFAR10_POLICIES = (
    "Invert 0.1 0, Contrast 0.2 6",
    "Rotate 0.7 2, TranslateX 0.3 9",
    "Sharpness 0.8 1, Sharpness 0.9 3",
    "ShearY 0.5 8, TranslateY 0.7 9",
    "AutoContrast 0.5 0, Equalize 0.9 0",
    "ShearY 0.2 7, Posterize 0.3 7",
    "Color 0.4 3, Brightness 0.6 7",
    "Sharpness 0.3 9, Brightness 0.7 9",
    "Equalize 0.6 0, Equalize 0.5 0",
    "Contrast 0.6 7, Sharpness 0.6 5",
    "Color 0.7 7, TranslateX 0.5 8",
    "Equalize 0.3 0, AutoContrast 0.4 0",
    "TranslateY 0.4 3, Sharpness 0.2 6",
    "Brightness 0.9 6, Color 0.2 8",
    "Solarize 0.5 2, Invert 0.0 0",
    "Equalize 0.2 0, AutoContrast 0.6 0",
    "Equalize 0.2 0, Equalize 0.6 0",
    "Color 0.9 9, Equalize 0.6 0",
    "AutoContrast 0.8 0, Solarize 0.2 8",
    "Brightness 0.1 3, Color 0.7 0",
    "Solarize 0.4 5, AutoContrast 0.9 0",
    "TranslateY 0.9 9, TranslateY 0.7 9",
    "AutoContrast 0.9 0, Solarize 0.8 3",
    "Equalize 0.8 0, Invert 0.1 0",
    "TranslateY 0.7 9, AutoContrast 0.9 0",
)
