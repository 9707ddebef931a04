"""The methods, as modules with the hooks of ``geolib.attention.Encoding``, and the registry that names them.

In one's own transformer::

    rope = RoPE(language_frequencies(64))          # once, in __init__; 64 features a head
    q, k = rope.to_reference(q, k, positions)      # in forward, before the inner product

By name, as models here do::

    encoding = build("rope-axial", width=192, heads=3, grid=(8, 8))

A new method is one class and one line of ``METHODS``; every test that runs over the registry then covers it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from geolib._checks import check_positions, require
from geolib.attention import Encoding, on_placed
from geolib.rotations import axial_frequencies, language_frequencies, pair_angles, rotate_pairs


class Sinusoidal(Encoding):
    """Sines and cosines of the position, added to the embeddings.

    The feature pairs are split over the axes and turn at the frequencies of axial RoPE: pair j of the table is
    (sin a_j, cos a_j).

    Parameters
    ----------
    width : int
        Features of a token, even.
    axes : int
    base : float

    Source: RF-T1 (the Sinusoidal column).
    """

    frequencies: Tensor

    def __init__(self, width: int, axes: int = 1, base: float = 10000.0):
        super().__init__()
        self.register_buffer("frequencies", axial_frequencies(width, axes, base), persistent=False)

    def table(self, positions: Tensor) -> Tensor:
        """The vectors that are added, (tokens, width) in float32 or float64."""
        angles = pair_angles(positions, self.frequencies)
        return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """x plus the table's row at each placed token."""
        table = self.table(positions).to(x.dtype)
        return on_placed(lambda placed: placed + table, x, positions)


class Learned(Encoding):
    """One learned vector for each cell of a grid, added to the embeddings.

    Parameters
    ----------
    width : int
    grid : tuple of int
        Cells along each axis. A position is rounded to its cell; one off the grid is an IndexError.

    Source: LR-T1 (the absolute-position column).
    """

    def __init__(self, width: int, grid: tuple[int, ...]):
        super().__init__()
        self.grid = tuple(grid)
        self.vectors = nn.Parameter(0.02 * torch.randn(*self.grid, width))

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """x plus the learned vector of each placed token's cell."""
        check_positions(positions, len(self.grid))
        vectors = self.vectors[positions.round().long().unbind(-1)].to(x.dtype)
        return on_placed(lambda placed: placed + vectors, x, positions)


class RoPE(Encoding):
    """Rotary encoding: pair j of queries and keys turns by p . frequencies[j].

    ``to_reference`` applies R(m theta) to both (the sign of RoPE), so the score depends on n - m alone.

    Parameters
    ----------
    frequencies : Tensor, (pairs, axes)
        From ``geolib.rotations``; fewer pairs than head_dim / 2 leave the last features as they are.

    Source: LR-A2, RF-13 with s = 1.
    """

    frequencies: Tensor

    def __init__(self, frequencies: Tensor):
        super().__init__()
        self.register_buffer("frequencies", frequencies, persistent=False)

    def to_reference(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys, turned."""
        angles = pair_angles(positions, self.frequencies)
        return (
            on_placed(lambda placed: rotate_pairs(placed, angles), q, positions),
            on_placed(lambda placed: rotate_pairs(placed, angles), k, positions),
        )


@dataclass(frozen=True)
class Setting:
    """What a model tells a method about the place it will work in."""

    width: int
    heads: int
    grid: tuple[int, ...]
    layers: int = 1

    @property
    def head_dim(self) -> int:
        """Features of one head."""
        return self.width // self.heads

    @property
    def axes(self) -> int:
        """Number of position coordinates."""
        return len(self.grid)


def _rope(setting: Setting, base: float = 10000.0) -> RoPE:
    """One-dimensional RoPE; a token of a grid is placed by its index in reading order."""
    if setting.axes == 1:
        return RoPE(language_frequencies(setting.head_dim, base))
    # The index of a cell is linear in its coordinates, so reading order is one more frequency matrix.
    strides = torch.tensor([float(math.prod(setting.grid[i + 1 :])) for i in range(setting.axes)])
    return RoPE(language_frequencies(setting.head_dim, base) * strides)


METHODS: dict[str, Callable[..., Encoding]] = {
    "none": lambda setting: Encoding(),
    "sinusoidal": lambda setting, **options: Sinusoidal(setting.width, setting.axes, **options),
    "learned": lambda setting: Learned(setting.width, setting.grid),
    "rope": _rope,
    "rope-axial": lambda setting, **options: RoPE(axial_frequencies(setting.head_dim, setting.axes, **options)),
}


def build(name: str, *, width: int, heads: int, grid: tuple[int, ...], layers: int = 1, **options: Any) -> Encoding:
    """A method by name.

    Parameters
    ----------
    name : str
        A key of ``METHODS``.
    width, heads, layers : int
        The model's.
    grid : tuple of int
        Cells along each axis; its length is the number of axes.
    **options
        The method's own (``base`` for RoPE).

    Returns
    -------
    Encoding

    Raises
    ------
    ValueError
        For an unknown name, heads that do not divide the width, or options the method does not have.
    """
    require(name in METHODS, "name", repr(name), f"the methods are {', '.join(METHODS)}")
    require(heads > 0 and width % heads == 0, "heads", heads, f"it must divide the width {width}")
    try:
        return METHODS[name](Setting(width, heads, tuple(grid), layers), **options)
    except TypeError as error:
        raise ValueError(f"options: got {options}; {name} does not take them ({error})") from None
