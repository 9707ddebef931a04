"""Checkers for the exercises of the chapter on manifolds."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor

from geolib.check._register import checker, far
from geolib.manifolds import sphere_spherical, transport_matrix


def _eastward(colatitude: float, longitude: float, t: Tensor) -> Tensor:
    """Along a circle of latitude, by this longitude in unit time."""
    return torch.stack([colatitude + 0 * t, longitude * t], -1)


@checker("manifolds: pendulum")
def _pendulum(answer: Callable[[float], float]) -> str | None:
    """answer(latitude): hours for a full turn, positive for clockwise, by carrying an arrow for one day."""
    for latitude in (48.85, -35.0, 80.0):
        colatitude = math.radians(90 - latitude)
        day = functools.partial(_eastward, colatitude, 0.01 * math.tau)  # a hundredth of it
        arrow = transport_matrix(sphere_spherical(), day)[:, 0]  # the vector that pointed south
        east = float(arrow[1]) * math.sin(colatitude)
        expected = 0.01 * 23.934 * math.tau / -math.atan2(east, float(arrow[0]))  # south to east is counter-clockwise
        hours = float(answer(latitude))
        if far(hours, expected, 1e-3 * abs(expected)):
            return f"at latitude {latitude} a full turn takes {expected:.2f} hours, you say {hours:.2f}"
    return None
