"""What is added to the embeddings, once, before the layers."""

from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from geolib._checks import check_positive, check_whole, check_width, readable, require
from geolib._precision import numbered
from geolib.attention import Encoding, as_places
from geolib.rotations import axial_frequencies, pair_angles

__all__ = ["Learned", "Sinusoidal", "check_grid"]


class Sinusoidal(Encoding):
    """Sines and cosines of the position, added to the embeddings.

    The pairs of a token's ``width`` features are split over the axes and turn at the frequencies of axial RoPE: pair j
    of the table is (sin a_j, cos a_j).
    Source: RF-T1 (the Sinusoidal column).

    >>> Sinusoidal(width=4).table(torch.tensor([[0.0], [1.0]]))
    tensor([[0.0000, 1.0000, 0.0000, 1.0000],
            [0.8415, 0.5403, 0.0100, 0.9999]])
    """

    frequencies: Tensor

    @numbered
    def __init__(self, width: int, axes: int = 1, base: float = 10000.0):
        super().__init__()
        self.register_buffer("frequencies", axial_frequencies(width, axes, base), persistent=False)

    def extra_repr(self) -> str:
        pairs, axes = self.frequencies.shape
        return f"width={2 * pairs}, pairs={pairs}, axes={axes}"

    def table(self, positions: Tensor) -> Tensor:
        """The vectors that are added, (tokens, width) in float32 or float64."""
        angles = pair_angles(positions, self.frequencies)
        return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        positions, _ = as_places(positions, None, self.frequencies.shape[1])
        _check_embedded(x, positions, 2 * len(self.frequencies))
        return x + self.table(positions).to(x.dtype)


class Learned(Encoding):
    """One learned vector for each cell of a grid, added to the embeddings; normal with deviation ``std`` at the start.

    A position is rounded to its cell; one off the grid is an IndexError (on a GPU, where nothing is read, only beyond
    the far end).
    Source: LR-T1 (the absolute-position column).

    >>> table = Learned(width=4, grid=(3, 3))
    >>> embedded = table.embed(torch.zeros(1, 1, 4), torch.tensor([[2.0, 1.0]]))
    >>> torch.equal(embedded[0, 0], table.vectors[2, 1])
    True
    """

    def __init__(self, width: int, grid: tuple[int, ...], std: float = 1.0):
        super().__init__()
        check_positive(std, "std")
        check_whole(width, "width")
        check_grid(grid)
        self.grid = tuple(grid)
        self.vectors = nn.Parameter(std * torch.randn(*self.grid, width))

    def extra_repr(self) -> str:
        return f"width={self.vectors.shape[-1]}, grid={self.grid}"

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        positions, _ = as_places(positions, None, len(self.grid))
        cells = positions.round().long()
        _check_embedded(x, positions, self.vectors.shape[-1])
        if readable(cells):
            grid = tuple(self.vectors.shape[:-1])
            off = ((cells < 0) | (cells >= torch.tensor(grid, device=cells.device))).any(-1)
            if bool(off.any()):
                cell = tuple(cells[off][0].tolist())
                raise IndexError(f"positions: got the cell {cell}; the grid has {grid}, from 0 on")
        return x + self.vectors[cells.unbind(-1)].to(x.dtype)


def check_grid(grid: Any) -> None:
    """Cells along each axis.

    >>> check_grid((8, 8))
    """
    whole = isinstance(grid, (tuple, list)) and bool(grid) and all(isinstance(n, Integral) and int(n) > 0 for n in grid)
    require(whole, "grid", grid, "cells along each axis, as (1024,) for a text or (8, 8) for an image")


def _check_embedded(x: Tensor, positions: Tensor, width: int) -> None:
    """Embeddings of real numbers with so many features, and a position for each."""
    check_width(x, width)
    hint = "embed before a class token is put in front; x is (batch, tokens, width)"
    rows, tokens = positions.shape[-2], x.shape[-2]
    require(rows == tokens, "positions", lambda: f"{rows} rows", lambda: f"there are {tokens} tokens: {hint}")
    samples = positions.shape[0] if positions.dim() == 3 else 1
    require(samples in (1, *x.shape[:-2]), "positions", lambda: f"{samples} samples", lambda: f"x has {x.shape[:-2]}")
