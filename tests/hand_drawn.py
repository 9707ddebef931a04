"""Twenty digits drawn by hand on the sheet of ``LiveModel``, as the strokes of the pen, in cells from its corner."""

import itertools
import math


def arc(x, y, a, b, start, stop, steps=14):
    """Points of an ellipse about (x, y), angles in degrees, clockwise from the right."""
    turn = [math.radians(start + (stop - start) * i / steps) for i in range(steps + 1)]
    return [(x + a * math.cos(t), y + b * math.sin(t)) for t in turn]


DRAWN = [
    (0, [arc(4, 4, 2.1, 3.2, -90, 270)]),
    (0, [arc(3.8, 4.1, 1.7, 2.8, -60, 300)]),
    (1, [[(4.2, 0.8), (4.2, 7.2)]]),
    (1, [[(2.8, 2.2), (4.4, 0.8), (4.2, 7.2)]]),
    (2, [[*arc(3.9, 2.5, 1.8, 1.7, -170, 30), (2.2, 7.0), (6.2, 7.0)]]),
    (2, [[*arc(4.0, 2.3, 1.5, 1.5, -160, 40), (2.5, 6.8), (6.0, 6.6)]]),
    (3, [arc(3.7, 2.4, 1.7, 1.5, -150, 90), arc(3.7, 5.5, 1.9, 1.6, -90, 150)]),
    (3, [[(2.2, 1.0), (5.6, 1.0), (3.8, 3.5), *arc(3.8, 5.3, 1.8, 1.8, -80, 140)]]),
    (4, [[(4.0, 0.8), (2.0, 4.6), (6.4, 4.6)], [(5.0, 3.0), (4.6, 7.2)]]),
    (4, [[(2.6, 1.0), (2.3, 4.2), (5.8, 4.2)], [(5.4, 1.0), (5.0, 7.2)]]),
    (5, [[(5.9, 0.9), (2.6, 0.9), (2.4, 3.6), *arc(3.8, 5.1, 1.9, 1.9, -110, 140)]]),
    (5, [[(5.6, 1.0), (2.9, 1.1), (2.7, 3.8), *arc(3.7, 5.3, 1.6, 1.6, -100, 120)]]),
    (6, [[(5.0, 0.9), (3.2, 2.8), (2.4, 5.0), *arc(4.0, 5.5, 1.6, 1.6, 180, 540)]]),
    (6, [[(4.6, 0.8), (2.9, 3.2), *arc(3.9, 5.4, 1.4, 1.5, 190, 540)]]),
    (7, [[(2.1, 1.0), (6.0, 1.0), (3.6, 7.2)]]),
    (7, [[(2.3, 1.2), (5.8, 1.0), (4.0, 7.0)], [(2.9, 4.2), (5.6, 4.0)]]),
    (8, [arc(4, 2.4, 1.4, 1.5, -90, 270), arc(4, 5.6, 1.7, 1.5, -90, 270)]),
    (8, [[*arc(3.9, 2.4, 1.3, 1.4, -60, -270), *arc(3.9, 5.4, 1.5, 1.6, -90, 270)]]),
    (9, [[*arc(3.9, 2.6, 1.5, 1.6, 0, 360), (5.2, 4.6), (4.2, 7.2)]]),
    (9, [[*arc(3.8, 2.7, 1.6, 1.7, -20, 340), (5.2, 5.2), (4.6, 7.0), (2.9, 7.0)]]),
]
"""What each is, and its strokes."""


def dots(strokes, apart=0.12):
    """Points of the strokes as close as the page puts them."""
    for stroke in strokes:
        for (x, y), (u, v) in itertools.pairwise(stroke):
            steps = max(1, math.ceil(math.hypot(u - x, v - y) / apart))
            yield from ((x + (u - x) * i / steps, y + (v - y) * i / steps) for i in range(steps + 1))
