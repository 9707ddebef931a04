"""Clips of a handwritten digit that moves, turns once by a right angle and goes on.

The class is not the digit but the two directions in their order: right, then up is another than up, then right.
"""

import numpy as np

FRAMES, SIDE, NOISE = 8, 16, 128  # of a clip, pixels along a side of a frame, grey levels of the noise in every pixel
# A step of one pixel as (rows down, columns to the right), and every two at right angles.
DIRECTIONS = {"right": (0, 1), "up": (-1, 0), "left": (0, -1), "down": (1, 0)}
TURNS = [(one, two) for one in DIRECTIONS for two in DIRECTIONS if not np.dot(DIRECTIONS[one], DIRECTIONS[two])]
CLASSES = tuple(f"{one}, then {two}" for one, two in TURNS)


def clips(digits: np.ndarray, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rendered clips, uint8 (clips, 1, frames, side, side), and their labels, the same ones for the same seed.

    Each clip shows one of the digits, uint8 (images, height, width) below 256 - ``NOISE``, where its whole path fits.
    """
    random = np.random.RandomState(seed)  # its stream is frozen by NumPy's promise; default_rng's is not
    video = random.randint(NOISE, size=(count, 1, FRAMES, SIDE, SIDE)).astype(np.uint8)
    labels = np.arange(count) % len(CLASSES)
    for clip, label in zip(video[:, 0], labels):
        digit, turn = digits[random.randint(len(digits))], random.randint(3, 5)
        first, then = (np.array(DIRECTIONS[word]) for word in TURNS[label])
        steps = np.where(np.arange(FRAMES - 1)[:, None] < turn, first, then)
        way = np.concatenate([np.zeros((1, 2), dtype=int), steps.cumsum(0)])
        room = SIDE - np.array(digit.shape) - np.ptp(way, axis=0)
        corners = way - way.min(0) + [random.randint(free + 1) for free in room]
        for frame, (top, left) in zip(clip, corners):
            frame[top : top + digit.shape[0], left : left + digit.shape[1]] += digit
    return video, labels
