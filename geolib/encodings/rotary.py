"""Rotary encodings: queries and keys turned, each by its own position, before their inner product.

``Carried`` is what every method that turns vectors leaves behind when it is placed: a table for the queries, one for
the keys, and the map that applies them. A table has a row for each placed token; one of queries and keys that stand at
the same positions is one tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor

from geolib._checks import angle_dtype, check_count, check_floating, check_positive, require
from geolib._precision import numbered
from geolib.attention import Encoding, Placed, as_places, sound
from geolib.rotations import axial_frequencies, language_frequencies, pair_angles

__all__ = [
    "Carried", "RoPE", "at_both", "check_frequencies", "cis", "counts", "described", "for_heads", "turn_halves",
    "turn_pairs",
]  # fmt: skip


class RoPE(Encoding):
    """Rotary encoding: pair j of queries and keys turns by p . frequencies[j].

    ``to_reference`` applies R(m theta) to both (the sign of RoPE), so the score depends on n - m alone. Frequencies,
    (pairs, axes) or (heads, pairs, axes), come from ``geolib.rotations``; fewer pairs than head_dim / 2 leave the last
    features as they are. Turned pairs come out ``length`` times as long: 1, or ``yarn_length`` with YaRN's frequencies.

    Source: LR-A2, RF-13 with s = 1.

    >>> placed = RoPE(torch.tensor([[math.pi / 2]])).place(torch.tensor([[0.0], [1.0]]))
    >>> q = k = torch.tensor([[[[1.0, 0.0], [1.0, 0.0]]]])
    >>> placed.to_reference(q, k)[0].round().abs()  # the second token is a quarter turn away
    tensor([[[[1., 0.],
              [0., 1.]]]])
    """

    frequencies: Tensor

    def __init__(self, frequencies: Tensor, length: float = 1.0):
        super().__init__()
        check_frequencies(frequencies, "(pairs, axes)", "(heads, pairs, axes)")
        if not 0 < length < math.inf:
            check_positive(length, "length")
        self.length = length
        self.register_buffer("frequencies", frequencies, persistent=False)

    @classmethod
    def text(cls, head_dim: int, base: float = 10000.0) -> Self:
        """RoPE for one axis, as language models have it: ``language_frequencies`` of a head's features.

        >>> RoPE.text(64)
        RoPE(pairs=32, axes=1)

        Source: LR-A2.
        """
        frequencies = language_frequencies(head_dim, base)
        return numbered(cls.text)(head_dim, base) if frequencies.is_meta else cls(frequencies)

    @classmethod
    def image(cls, head_dim: int, axes: int = 2, base: float = 100.0) -> Self:
        """RoPE for a grid, half of the pairs an axis: ``axial_frequencies`` of a head's features.

        >>> RoPE.image(64)
        RoPE(pairs=32, axes=2)

        Source: RF-S.
        """
        frequencies = axial_frequencies(head_dim, axes, base)
        return numbered(cls.image)(head_dim, axes, base) if frequencies.is_meta else cls(frequencies)

    @property
    def paired(self) -> int:
        """Features that turn."""
        return 2 * self.frequencies.shape[-2]

    def extra_repr(self) -> str:
        """What it is."""
        own = f", heads={self.frequencies.shape[0]}" if self.frequencies.dim() == 3 else ""
        return described(self.frequencies) + own + (f", length={self.length:g}" if self.length != 1 else "")

    def turns(self, positions: Tensor) -> Tensor:
        """The turn of each pair as a complex number, (..., tokens, pairs, 2)."""
        turns = cis(pair_angles(for_heads(positions), self.frequencies))
        return turns if self.length == 1 else self.length * turns

    def place(self, positions: Tensor, keys: Tensor | None = None) -> Placed:
        """Cosines and sines, for all layers."""
        positions, keys = as_places(positions, keys, self.frequencies.shape[-1])
        heads = self.frequencies.shape[0] if self.frequencies.dim() == 3 else 1
        return Carried(turn_pairs, at_both(self.turns, positions, keys), counts(positions, keys), heads)


def check_frequencies(frequencies: Any, *shapes: str) -> None:
    """A table of finite frequencies of one of these shapes, in words.

    >>> check_frequencies(64, "(pairs, axes)")
    Traceback (most recent call last):
    ValueError: frequencies: got int 64; a tensor of floats, (pairs, axes): language_frequencies(64) and others of ...
    """
    if not isinstance(frequencies, Tensor):
        came = f"{type(frequencies).__name__} {frequencies}" if isinstance(frequencies, (int, float)) else None
        came = came or type(frequencies).__name__
    elif not frequencies.is_floating_point() or frequencies.dim() not in [shape.count(",") + 1 for shape in shapes]:
        came = f"shape {tuple(frequencies.shape)}"
    else:
        if not sound(frequencies):
            require(False, "frequencies", "inf or NaN", "frequencies must be finite")
        return
    made = "language_frequencies(64) and others of geolib.rotations make them, and RoPE.text(64), RoPE.image(64)"
    made += " take them"
    hint = "of one axis write frequencies[:, None]" if came.endswith(",)") else made
    require(False, "frequencies", came, f"a tensor of floats, {' or '.join(shapes)}: {hint}")


class Carried(Placed):
    """Queries and keys carried to the reference space by ``act(x, table)``, with a table for each.

    A table may be a tuple of tensors; ``counts`` are the placed queries and keys; ``heads`` is how many heads have
    tables of their own, 1 where all share them.
    """

    counts: tuple[int, int]

    def __init__(
        self, act: Callable[[Tensor, Any], Tensor], tables: tuple[Any, Any], counts: tuple[int, int], heads: int = 1
    ):
        self.act, self.tables, self.counts, self.heads = act, tables, counts, heads

    def to_reference(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """The placed queries and keys, each by its table.

        >>> quarter = torch.tensor([[[0.0, 1.0]]])
        >>> placed = Carried(turn_pairs, (quarter, quarter), (1, 1))
        >>> placed.to_reference(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]]))
        (tensor([[0., 1.]]), tensor([[-1.,  0.]]))
        """
        carried = []
        given = zip(("q", "k"), (q, k), self.tables, self.counts, self.unplaced)
        for argument, x, table, placed, front in given:
            if not isinstance(x, Tensor) or not x.is_floating_point():
                check_floating(x, argument)
            if placed + front != x.shape[-2]:
                check_count(placed, x.shape[-2], front)
            if self.heads not in (1, x.shape[-3] if x.dim() > 2 else 1):
                own = f"the encoding has {self.heads} heads of its own; where query heads share keys, "
                require(False, argument, x.shape, own + "repeat_heads(k, heads)")
            y = self.act(x[..., front:, :] if front else x, table)
            if front:
                y = torch.cat([x[..., :front, :], y], -2)
            if y.shape != x.shape:
                needed = f"the encoding has heads, or positions of samples, for {tuple(y.shape)}"
                require(False, argument, x.shape, needed)
            carried.append(y)
        return carried[0], carried[1]


def at_both(table: Callable[[Tensor], Any], positions: Tensor, keys: Tensor | None) -> tuple[Any, Any]:
    """A table at the positions of queries and one at those of keys: the same one where they stand together.

    >>> at_both(torch.neg, torch.tensor([1.0]), None)
    (tensor([-1.]), tensor([-1.]))
    """
    own = table(positions)
    return own, own if keys is None else table(keys)


def counts(positions: Tensor, keys: Tensor | None) -> tuple[int, int]:
    """How many queries and keys are placed.

    >>> counts(torch.zeros(2, 1), torch.zeros(5, 1))
    (2, 5)
    """
    return positions.shape[-2], (positions if keys is None else keys).shape[-2]


def described(frequencies: Tensor) -> str:
    """How many pairs turn along how many axes, for what a method prints.

    >>> described(torch.ones(32, 1))
    'pairs=32, axes=1'
    """
    return f"pairs={frequencies.shape[-2]}, axes={frequencies.shape[-1]}"


def for_heads(x: Tensor) -> Tensor:
    """Positions with a dimension of size 1 for the heads where they differ from sample to sample.

    >>> for_heads(torch.zeros(3, 9, 2)).shape, for_heads(torch.zeros(9, 2)).shape
    (torch.Size([3, 1, 9, 2]), torch.Size([9, 2]))
    """
    return x.unsqueeze(1) if x.dim() == 3 else x


def turn_pairs(x: Tensor, turns: Tensor) -> Tensor:
    """Multiply pairs of features, read as complex numbers x_2j + i x_{2j+1}, by complex numbers.

    ``turns``, broadcastable to (..., tokens, pairs, 2), holds real and imaginary parts: s (cos a, sin a) turns a pair
    by a and scales it by s. Fewer pairs than x has leave its last features as they are. In x's dtype, computed in
    float32 or float64.

    >>> turn_pairs(torch.tensor([[1.0, 0.0, 5.0, 6.0]]), torch.tensor([[[0.0, 2.0]]]))  # a quarter turn, twice as long
    tensor([[0., 2., 5., 6.]])
    """
    size = 2 * turns.shape[-2]
    if size < x.shape[-1]:
        return torch.cat([turn_pairs(x[..., :size], turns), x[..., size:]], -1)
    if size > x.shape[-1]:
        require(False, "frequencies", f"{size // 2} pairs", f"x has {x.shape[-1]} features")
    pairs = (x if x.dtype == torch.float64 else x.float()).unflatten(-1, (-1, 2))
    turns = turns.to(pairs.dtype)  # a table of whole positions is float64
    if torch.compiler.is_compiling():  # the compiler fuses real products into one kernel and has none for complex ones
        (a, b), (c, s) = pairs.unbind(-1), turns.unbind(-1)
        turned = torch.stack([c * a - s * b, s * a + c * b], -1)
    else:
        turned = torch.view_as_real(_complex(pairs) * torch.view_as_complex(turns))
    return turned.flatten(-2).to(x.dtype)


def _complex(pairs: Tensor) -> Tensor:
    """(..., 2) real as complex; a copy only where memory lies unlike complex numbers."""
    odd = [step for step in (pairs.storage_offset(), *pairs.stride()[:-1]) if step % 2]
    return torch.view_as_complex(pairs.clone().contiguous() if odd or pairs.stride(-1) != 1 else pairs)


def turn_halves(x: Tensor, turns: Tensor) -> Tensor:
    """What ``turn_pairs`` does to half-split pairs, (i, i + pairs), without bringing them into another order.

    >>> turn_halves(torch.tensor([[1.0, 5.0, 0.0, 6.0, 7.0]]), torch.tensor([[[0.0, 2.0], [1.0, 0.0]]]))
    tensor([[0., 5., 2., 6., 7.]])
    """
    count, dtype = turns.shape[-2], angle_dtype(x)
    require(2 * count <= x.shape[-1], "frequencies", f"{count} pairs", f"x has {x.shape[-1]} features")
    a, b, rest = x.to(dtype).split([count, count, x.shape[-1] - 2 * count], -1)
    c, s = turns.to(dtype).movedim(-1, 0).contiguous()
    turned = [torch.addcmul(c * a, s, b, value=-1), torch.addcmul(c * b, s, a), rest]
    return torch.cat(turned if rest.shape[-1] else turned[:2], -1).to(x.dtype)


def cis(angles: Tensor) -> Tensor:
    """(cos a, sin a), (..., 2): a table for ``turn_pairs``.

    >>> cis(torch.tensor(0.0))
    tensor([1., 0.])
    """
    return torch.stack([angles.cos(), angles.sin()], -1)
