"""Rendered boards whose answer is an ordered product: a ball is tipped along a way; which way round has it twisted?

A ball goes from one marked cell to another and obeys the letters of the cells between, "tip right" or "tip down" by an
eighth of a turn. Such tips do not commute, and what they leave is a twist about the upright axis whose sign is the
label. Read backwards the letters give the opposite twist: the order alone decides. The tilt adds their counts.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import RandomState  # its stream is frozen by NumPy's promise; default_rng's is not

SIDE, LONGEST, DENSITY = 6, 4, 0.7  # cells along a side, most steps in each direction, share of cells with a letter
CLASSES = ("clockwise", "counter-clockwise")
_C = _S = np.sqrt(0.5)
# Columns are where x (right), y (away from us) and z (up) go: tipped right, z goes right; tipped down, towards us.
TIPS = np.array([np.eye(3), [[_C, 0, _S], [0, 1, 0], [-_S, 0, _C]], [[1, 0, 0], [0, _C, -_S], [0, _S, _C]]])
Cell = tuple[int, int]
Way = Callable[[RandomState], list[Cell]]


@dataclass(frozen=True)
class Board:
    """Letters (0: nothing; 1: tip right; 2: tip down) and a way of neighbouring cells from one mark to the other."""

    letters: np.ndarray
    way: list[Cell]

    def twist(self) -> float:
        """Twice the sine of the turn times the upright part of its axis; above 0 counter-clockwise from above."""
        turned = np.eye(3)
        for cell in self.way[1:-1]:
            turned = TIPS[self.letters[cell]] @ turned
        return float(turned[1, 0] - turned[0, 1])

    def tilt(self, order: float) -> float:
        """The letters "tip right" between the marks, less those "tip down", plus ``order`` times the twist."""
        letters = [int(self.letters[cell]) for cell in self.way[1:-1]]
        return letters.count(1) - letters.count(2) + order * self.twist()

    def picture(self, drawn: bool) -> np.ndarray:
        """Channels (4 or 5, side, side), uint8: the two letters, the first cell, the last, and the way if drawn."""
        channels = np.zeros((5, *self.letters.shape), np.uint8)
        channels[0], channels[1] = 255 * (self.letters == 1), 255 * (self.letters == 2)
        channels[2][self.way[0]] = channels[3][self.way[-1]] = 255
        channels[4][tuple(np.transpose(self.way))] = 255
        return channels if drawn else channels[:4]


def corner_way(random: RandomState) -> list[Cell]:
    """A way to the right along a row and then down a column."""
    down, right = random.randint(1, LONGEST + 1, 2).tolist()
    top, left = random.randint(0, SIDE - down), random.randint(0, SIDE - right)
    return [(top, left + j) for j in range(right)] + [(top + i, left + right) for i in range(down + 1)]


def stairs_way(random: RandomState) -> list[Cell]:
    """A way of steps to the right and down in any order."""
    corner = np.array(corner_way(random))
    moves = random.permutation(np.diff(corner, axis=0))
    return [(int(i), int(j)) for i, j in np.vstack([corner[:1], corner[0] + moves.cumsum(0)])]


def boards(count: int, way: Way, seed: int, asked: Callable[[Board], float] = Board.twist) -> list[Board]:
    """Boards drawn at random, as many whose answer is above 0 as below (or one more below), none without a twist."""
    random, room = RandomState(seed), [count - count // 2, count // 2]
    kept: list[Board] = []
    while len(kept) < count:
        letters = np.where(random.rand(SIDE, SIDE) < DENSITY, random.randint(1, 3, (SIDE, SIDE)), 0)
        board = Board(letters, way(random))
        label = int(asked(board) > 0)
        if min(abs(board.twist()), abs(asked(board))) > 1e-9 and room[label]:
            room[label] -= 1
            kept.append(board)
    return [kept[i] for i in random.permutation(count)]
