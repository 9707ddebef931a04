"""Clips of a handwritten digit that moves: the class is the way it goes, not the digit.

A digit goes straight on, turns once by a right angle and goes on. A class is the two directions in their order: right
and then up is another class than up and then right, though both clips show the same steps. Whoever does not know when
a step was taken cannot tell the two apart.
"""

from __future__ import annotations

import numpy as np

FRAMES, SIDE, NOISE = 8, 16, 128
"""Frames of a clip, pixels along a side of each, and the grey levels of the noise in every pixel of every frame."""
DIRECTIONS = {"right": (0, 1), "up": (-1, 0), "left": (0, -1), "down": (1, 0)}
"""A step of one pixel as (rows down, columns to the right)."""
CLASSES = tuple(
    f"{first}, then {then}"
    for first, (y, x) in DIRECTIONS.items()
    for then, (v, u) in DIRECTIONS.items()
    if y * v + x * u == 0
)


def path(label: int, turn: int) -> np.ndarray:
    """Where a digit stands in each frame relative to the first, (frames, 2): rows down, columns to the right.

    ``label`` is an index into ``CLASSES``, ``turn`` the number of steps before the turn.

    >>> CLASSES[0], path(0, turn=4)[[4, 7]].tolist()
    ('right, then up', [[0, 4], [-3, 4]])
    """
    first, then = (np.array(DIRECTIONS[word]) for word in CLASSES[label].split(", then "))
    steps = np.where(np.arange(FRAMES - 1)[:, None] < turn, first, then)
    return np.concatenate([np.zeros((1, 2), dtype=int), steps.cumsum(0)])


def clips(digits: np.ndarray, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rendered clips, uint8 (clips, 1, frames, side, side), and their labels, the same ones for the same seed.

    Each clip takes one of the digits, uint8 (images, height, width) below 256 - ``NOISE``, at a place where its whole
    path fits.
    """
    random = np.random.RandomState(seed)  # its stream is frozen by NumPy's promise; default_rng's is not
    height, width = digits.shape[1:]
    video = random.randint(NOISE, size=(count, 1, FRAMES, SIDE, SIDE)).astype(np.uint8)
    labels = np.arange(count) % len(CLASSES)
    for clip, label in zip(video[:, 0], labels):
        digit, turn = digits[random.randint(len(digits))], random.randint(3, 5)
        way = path(int(label), turn)
        room = np.array([SIDE - height, SIDE - width]) - np.ptp(way, axis=0)
        corners = way - way.min(0) + [random.randint(free + 1) for free in room]
        for frame, (top, left) in zip(clip, corners):
            frame[top : top + height, left : left + width] += digit
    return video, labels
