"""Digits as other hands would draw them: turned, leaned, stretched, moved a little, in thicker and thinner ink."""

from __future__ import annotations

import numpy as np


def varied(images: np.ndarray, copies: int, seed: int) -> np.ndarray:
    """Each image, uint8 (images, 8, 8) of 0 to 16, so many times, each time drawn a little differently.

    A copy is turned by up to 15 degrees, leaned by up to 0.2, made 0.75 to 1.15 times as large along each axis, moved
    by up to a pixel, and its ink is 0.8 to 1.6 times as strong.
    """
    from scipy.ndimage import affine_transform  # scikit-learn, which has the digits, brings SciPy

    random, made, middle = np.random.RandomState(seed), [], 3.5  # RandomState's stream is frozen by NumPy's promise
    for image in np.tile(images, (copies, 1, 1)).astype(float):
        angle = np.deg2rad(random.uniform(-15, 15))
        turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
        lean = np.array([[1.0, random.uniform(-0.2, 0.2)], [0.0, 1.0]])
        linear = np.diag(1 / random.uniform(0.75, 1.15, 2)) @ lean @ turn  # of (row, column), from a copy to its image
        move, ink = random.uniform(-1, 1, 2), random.uniform(0.8, 1.6)
        copy = affine_transform(image, linear, middle - linear @ (middle + move), order=1, mode="grid-constant")
        made.append(np.clip(np.rint(ink * copy), 0, 16))
    return np.array(made, dtype=np.uint8)
