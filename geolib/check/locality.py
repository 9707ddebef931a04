"""Checkers for the exercises of the chapter on locality."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from geolib.check._register import checker, differs, far
from geolib.locality import attenuation


@checker("locality: half width")
def _half_width(answer: Callable[[float], float]) -> str | None:
    """answer(sigma): the distance at which the Gaussian is one half."""
    for sigma in (0.5, 2.0, 7.0):
        distance = float(answer(sigma))
        places = torch.tensor([[0.0], [distance]], dtype=torch.float64)
        found = float(attenuation(places, torch.tensor([sigma], dtype=torch.float64))[0, 1])
        if distance < 0:
            return f"sigma = {sigma}: a distance is not negative, yours is {distance:.5g}"
        if far(found, 0.5):
            return f"sigma = {sigma}: at your distance the Gaussian is {found:.5g}"
    return None


@checker("locality: half axes")
def _half_axes(answer: Callable[[float, Tensor], Sequence[float]]) -> str | None:
    """answer(sigma, E): the half axes of the ellipse Omega = e^(-1/2), the shorter first."""
    for sigma, axes, turn in ((1.0, (1.0, 3.0), 0.0), (2.0, (0.5, 1.5), 0.7)):
        c, s = math.cos(turn), math.sin(turn)
        frame = torch.tensor([[c, -s], [s, c]], dtype=torch.float64)
        shape = frame @ torch.diag(torch.tensor(axes, dtype=torch.float64) ** -2) @ frame.mT
        expected = sigma * torch.tensor(axes, dtype=torch.float64)
        got = torch.tensor([float(x) for x in answer(sigma, shape)], dtype=torch.float64)
        if wrong := differs(got, expected, f"sigma = {sigma}, E = {shape.tolist()}"):
            return wrong
    return None


@checker("locality: symmetries of a distance")
def _symmetries(answer: Callable[[Tensor], int]) -> str | None:
    """answer(E): how many of the square's eight symmetries keep |p|_E, by moving the cells of a grid."""
    cells = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
    moves: list[Callable[[int, int], tuple[int, int]]] = [
        lambda i, j: (i, j), lambda i, j: (-i, j), lambda i, j: (i, -j), lambda i, j: (-i, -j),
        lambda i, j: (j, i), lambda i, j: (-j, i), lambda i, j: (j, -i), lambda i, j: (-j, -i),
    ]  # fmt: skip
    for a, b, c in [(1.0, 0.0, 1.0), (1.0, 0.0, 2.0), (1.0, 0.3, 2.0), (1.0, 0.3, 1.0)]:
        length = {(i, j): a * i * i + 2 * b * i * j + c * j * j for i, j in cells}
        expected = sum(all(math.isclose(length[move(*cell)], length[cell]) for cell in cells) for move in moves)
        matrix = torch.tensor([[a, b], [b, c]])
        if int(answer(matrix)) != expected:
            return f"for E = {matrix.tolist()} your count is {int(answer(matrix))}, it should be {expected}"
    return None


@checker("locality: window")
def _window(answer: Callable[[float, float], float]) -> str | None:
    """answer(sigma, error): the radius beyond which keys may be dropped, for values of length at most 1."""
    for sigma, error in ((1.0, 0.1), (3.0, 0.001)):
        radius = float(answer(sigma, error))
        found = math.exp(-(radius**2) / (2 * sigma**2))
        if radius < 0:
            return f"sigma = {sigma}, error {error}: a radius is not negative, yours is {radius:.5g}"
        if not math.isclose(found, error, rel_tol=1e-6):
            return f"sigma = {sigma}, error {error}: keys just beyond your radius still have the factor {found:.5g}"
    return None


@checker("locality: sink")
def _sink(answer: Callable[[float, float], float]) -> str | None:
    """answer(lse, kept): the score of a key of value zero that leaves the share kept to keys of this log-sum-exp."""
    for lse, kept in ((0.0, 0.5), (2.0, 0.9), (-1.0, 0.01)):
        scores = torch.tensor([lse, float(answer(lse, kept))], dtype=torch.float64)
        if wrong := differs(scores.softmax(0)[0], torch.tensor(kept, dtype=torch.float64), f"lse {lse}, kept {kept}"):
            return wrong
    return None
