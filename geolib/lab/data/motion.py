"""Clips of a handwritten digit that moves: the class is the way it goes, not the digit.

A digit goes straight on, turns once by a right angle and goes on. A class is the two directions in their order: right
and then up is another class than up and then right, though both clips show the same steps.
"""

from __future__ import annotations

import numpy as np

FRAMES, SIDE, NOISE = 8, 16, 128
"""Frames of a clip, pixels along a side of each, and the grey levels of the noise in every pixel of every frame."""
DIRECTIONS = {"right": (0, 1), "up": (-1, 0), "left": (0, -1), "down": (1, 0)}
"""A step of one pixel as (rows down, columns to the right)."""
CLASSES = tuple(
    f"{one}, then {two}" for one in DIRECTIONS for two in DIRECTIONS if not np.dot(DIRECTIONS[one], DIRECTIONS[two])
)


def path(label: int, turn: int) -> np.ndarray:
    """Positions of a digit, (frames, 2) rows below and columns right of the first; ``turn`` steps precede its turn."""
    first, then = (np.array(DIRECTIONS[word]) for word in CLASSES[label].split(", then "))
    steps = np.where(np.arange(FRAMES - 1)[:, None] < turn, first, then)
    return np.concatenate([np.zeros((1, 2), dtype=int), steps.cumsum(0)])


def clips(digits: np.ndarray, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rendered clips, uint8 (clips, 1, frames, side, side), and their labels, the same ones for the same seed.

    Each clip shows one of the digits, uint8 (images, height, width) below 256 - ``NOISE``, where its whole path fits.
    """
    random = np.random.RandomState(seed)  # its stream is frozen by NumPy's promise; default_rng's is not
    video = random.randint(NOISE, size=(count, 1, FRAMES, SIDE, SIDE)).astype(np.uint8)
    labels = np.arange(count) % len(CLASSES)
    for clip, label in zip(video[:, 0], labels):
        digit, turn = digits[random.randint(len(digits))], random.randint(3, 5)
        way = path(int(label), turn)
        room = SIDE - np.array(digit.shape) - np.ptp(way, axis=0)
        corners = way - way.min(0) + [random.randint(free + 1) for free in room]
        for frame, (top, left) in zip(clip, corners):
            frame[top : top + digit.shape[0], left : left + digit.shape[1]] += digit
    return video, labels
