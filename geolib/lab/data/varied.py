"""Digits as other hands would draw them: turned, leaned, stretched, moved a little, in thicker and thinner ink."""

from __future__ import annotations

import numpy as np

SIDE, MOST = 8, 16
"""Pixels along a side, and the value of full ink."""


def varied(images: np.ndarray, copies: int, seed: int) -> np.ndarray:
    """Each image, uint8 (images, 8, 8) of 0 to 16, so many times, each time drawn a little differently.

    A copy is turned by up to 15 degrees, leaned by up to 0.2, made 0.75 to 1.15 times as large along each axis, moved
    by up to a pixel, and its ink is 0.8 to 1.6 times as strong.

    >>> varied(np.full((3, 8, 8), 16, dtype=np.uint8), copies=2, seed=0).shape
    (6, 8, 8)
    """
    random = np.random.RandomState(seed)  # its stream is frozen by NumPy's promise
    middle = (SIDE - 1) / 2
    grid = np.stack(np.meshgrid(np.arange(SIDE), np.arange(SIDE), indexing="ij"), -1) - middle  # (row, column)
    made = []
    for image in np.tile(images, (copies, 1, 1)):
        angle = np.deg2rad(random.uniform(-15, 15))
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        lean = np.array([[1.0, 0.0], [random.uniform(-0.2, 0.2), 1.0]])
        size = np.diag(1 / random.uniform(0.75, 1.15, 2))
        move, ink = random.uniform(-1, 1, 2), random.uniform(0.8, 1.6)
        made.append(np.clip(np.rint(ink * _read(image, (grid - move) @ turn @ lean @ size + middle)), 0, MOST))
    return np.array(made, dtype=np.uint8)


def _read(image: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The image between its pixels, linearly; blank outside."""
    blank = np.pad(image.astype(float), 1)
    places = np.clip(places + 1, 0, SIDE + 0.999)
    low = places.astype(int)
    (y, x), (v, u) = np.moveaxis(low, -1, 0), np.moveaxis(places - low, -1, 0)
    above = (1 - u) * blank[y, x] + u * blank[y, x + 1]
    return (1 - v) * above + v * ((1 - u) * blank[y + 1, x] + u * blank[y + 1, x + 1])
