"""The methods, as modules that ``geolib.attention.Encoding`` describes, and the registry that names them.

In one's own transformer::

    rope = RoPE.text(64)                           # once, in __init__; 64 features a head
    placed = rope.place(positions)                 # once in forward
    y = placed.attention(q, k, v, x)               # in each layer, all that the encoding does there

By name, as models here do::

    encoding = build("rope-axial", width=192, heads=3, grid=(8, 8))

A new method is one class that overrides ``place``, one line of ``METHODS`` and one entry of ``tests/methods.py``; every
test that runs over the registry then covers it (the page "Add a method, an experiment, a chapter").
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Any, Self, Unpack

import torch
from torch import Tensor, nn

from geolib._checks import (
    angle_dtype,
    as_places,
    check_even,
    check_floating,
    check_positive,
    check_tensor,
    readable,
    require,
)
from geolib._options import Options
from geolib._precision import full_precision, numbered, wide_default
from geolib.attention import Encoding, Placed, check_encoding
from geolib.conformal import SCALE_LAWS, ScaleLaw, bounded_law
from geolib.connection.compass import TRANSPORTS, Compass
from geolib.lie import (
    check_width,
    entry_count,
    mixed_frequencies,
    placed_rotations,
    skew_matrix,
    turn_blocks,
    uniform_entries,
)
from geolib.locality import MANHATTAN_SLOPES, alibi_slopes, precision_matrix, precision_root
from geolib.placed import (
    Attenuated,
    ByLayer,
    Carried,
    Composite,
    FocusedByBlocks,
    Gaussian,
    PlacedHalfSplit,
    ScoreBias,
    Steps,
    at_both,
    cis,
    counts,
    described,
    for_heads,
    map_pairs,
    turn_pairs,
)
from geolib.recurrence import GATE_BIAS, PowerScores, SympowEncoding
from geolib.rotations import (
    alternating_frequencies,
    axial_frequencies,
    document_frequencies,
    language_frequencies,
    pair_angles,
)

__all__ = [
    "METHODS",
    "WRAPPERS",
    "ALiBi",
    "Composed",
    "GaussianGate",
    "HalfSplit",
    "Learned",
    "LieRE",
    "LocalityFocusing",
    "ManhattanDecay",
    "Options",
    "PerLayer",
    "PerLayerFocusing",
    "RiemannFormer",
    "RiemannFormerDiagonal",
    "RiemannFormerGeneral",
    "RiemannFormerReflection",
    "RiemannFormerRelative",
    "RoPE",
    "Setting",
    "Sinusoidal",
    "SphericalRoPE",
    "build",
    "check_name",
    "is_name",
    "options_of",
    "turned_features",
]


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
        """What it is."""
        return f"width={2 * len(self.frequencies)}, {described(self.frequencies)}"

    def table(self, positions: Tensor) -> Tensor:
        """The vectors that are added, (tokens, width) in float32 or float64."""
        angles = pair_angles(positions, self.frequencies)
        return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """x plus the table's row at each token."""
        positions, _ = as_places(positions, None, self.frequencies.shape[1])
        _check_embedded(x, positions)
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
        _check_grid(grid)
        self.grid = tuple(grid)
        self.vectors = nn.Parameter(std * torch.randn(*self.grid, width))

    def extra_repr(self) -> str:
        """What it is."""
        return f"width={self.vectors.shape[-1]}, grid={self.grid}"

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """x plus the learned vector of each token's cell."""
        positions, _ = as_places(positions, None, len(self.grid))
        cells = positions.round().long()
        _check_embedded(x, positions)
        if readable(cells):
            grid = tuple(self.vectors.shape[:-1])
            off = ((cells < 0) | (cells >= torch.tensor(grid, device=cells.device))).any(-1)
            if bool(off.any()):
                cell = tuple(cells[off][0].tolist())
                raise IndexError(f"positions: got the cell {cell}; the grid has {grid}, from 0 on")
        return x + self.vectors[cells.unbind(-1)].to(x.dtype)


def _check_embedded(x: Tensor, positions: Tensor) -> None:
    """Embeddings of real numbers, and a position for each."""
    check_floating(x, "x")
    hint = "embed before a class token is put in front; x is (batch, tokens, width)"
    rows, tokens = positions.shape[-2], x.shape[-2]
    require(rows == tokens, "positions", lambda: f"{rows} rows", lambda: f"there are {tokens} tokens: {hint}")


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
        _check_frequencies(frequencies, "(pairs, axes)", "(heads, pairs, axes)")
        check_positive(length, "length")
        self.length = length
        self.register_buffer("frequencies", frequencies, persistent=False)

    @classmethod
    @numbered
    def text(cls, head_dim: int, base: float = 10000.0) -> Self:
        """RoPE for one axis, as language models have it: ``language_frequencies`` of a head's features.

        >>> RoPE.text(64)
        RoPE(pairs=32, axes=1)

        Source: LR-A2.
        """
        return cls(language_frequencies(head_dim, base))

    @classmethod
    @numbered
    def image(cls, head_dim: int, axes: int = 2, base: float = 100.0) -> Self:
        """RoPE for a grid, half of the pairs an axis: ``axial_frequencies`` of a head's features.

        >>> RoPE.image(64)
        RoPE(pairs=32, axes=2)

        Source: RF-S.
        """
        return cls(axial_frequencies(head_dim, axes, base))

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


class ALiBi(Encoding):
    """A penalty inside the softmax that grows linearly with the distance: -2^(-8h/H) |p_m - p_n|, h = 1 ... H.

    With more axes the distance is the sum over them: the factor is then the product of one gate a step along any
    shortest path on the grid. ``axes``, where it is given, is how many positions have. For a number of heads that is
    no power of two the slopes are the published ones, ``geolib.locality.alibi_slopes``; ``slopes``, one number above 0
    for each head, stand in their place.

    Source: CS-A1.

    >>> ALiBi(heads=1).place(torch.arange(3.0)[:, None]).log_gate(None)[0] * 2**8
    tensor([[-0., -1., -2.],
            [-1., -0., -1.],
            [-2., -1., -0.]])
    """

    slopes: Tensor

    @numbered
    def __init__(self, heads: int, slopes: Tensor | Sequence[float] | None = None, axes: int | None = None):
        super().__init__()
        self.axes = axes
        given = alibi_slopes(heads) if slopes is None else torch.as_tensor(slopes, dtype=torch.float32)
        _check_slopes(given)
        require(len(given) == heads, "slopes", f"{len(given)} numbers", f"one for each of {heads} heads")
        self.register_buffer("slopes", given, persistent=False)

    def extra_repr(self) -> str:
        """What it is."""
        return f"heads={len(self.slopes)}"

    def place(self, positions: Tensor, keys: Tensor | None = None) -> Placed:
        """The penalty, (heads, queries, keys) or (batch, heads, queries, keys), for all layers."""
        return ScoreBias(_steps(self.slopes, positions, keys, self.axes))


class ManhattanDecay(Encoding):
    """RMT's factor: weights are multiplied, after the softmax, by e^(-a_h) for each step between query and key.

    Distances are sums over the axes, as in ``ALiBi``, which adds the logarithm of the same factor inside the softmax.
    The slopes a_h, (heads,), are positive: RMT's decay gamma_h is e^(-a_h). Its published code has it inside.

    >>> decay = ManhattanDecay(torch.tensor([0.5])).place(torch.tensor([[0.0, 0.0], [1.0, 2.0]])).attenuation()
    >>> decay[0, 0]  # e^(-3/2) at three steps
    tensor([1.0000, 0.2231])
    """

    slopes: Tensor

    def __init__(self, slopes: Tensor | Sequence[float], axes: int | None = None):
        super().__init__()
        self.axes = axes
        slopes = torch.as_tensor(slopes)
        _check_slopes(slopes)
        self.register_buffer("slopes", slopes, persistent=False)

    def extra_repr(self) -> str:
        """What it is."""
        return f"heads={len(self.slopes)}"

    def place(self, positions: Tensor, keys: Tensor | None = None) -> Placed:
        """The factor, (heads, queries, keys) or (batch, heads, queries, keys), for all layers."""
        return Attenuated(_steps(self.slopes, positions, keys, self.axes))


def _check_slopes(slopes: Tensor) -> None:
    """One number above 0 for each head."""
    positive = slopes.is_meta or bool((slopes > 0).all())  # a model built without numbers has none to look at
    require(slopes.dim() == 1 and positive, "slopes", slopes, "one number above 0 for each head")


def _steps(slopes: Tensor, positions: Tensor, keys: Tensor | None, axes: int | None) -> Steps:
    """-a_h times the number of steps between query and key."""
    positions, keys = as_places(positions, keys, axes)
    return Steps(slopes, *at_both(lambda x: x.to(angle_dtype(x)), positions, keys))


def _check_frequencies(frequencies: Any, *shapes: str) -> None:
    """A table of frequencies of one of these shapes, in words."""
    made = (
        "language_frequencies(64) and others of geolib.rotations make them, and RoPE.text(64), RoPE.image(64) take them"
    )
    came = f"{type(frequencies).__name__} {frequencies}" if isinstance(frequencies, (int, float)) else None
    came = came or (
        f"shape {tuple(frequencies.shape)}" if isinstance(frequencies, Tensor) else type(frequencies).__name__
    )
    dims = [shape.count(",") + 1 for shape in shapes]
    holds = isinstance(frequencies, Tensor) and frequencies.dim() in dims and frequencies.is_floating_point()
    hint = "of one axis write frequencies[:, None]" if came.endswith(",)") else made
    require(holds, "frequencies", came, f"a tensor of floats, {' or '.join(shapes)}: {hint}")
    _check_finite(frequencies)


def _check_finite(frequencies: Tensor) -> None:
    """Frequencies that are numbers; on a CPU."""
    finite = not readable(frequencies) or bool(frequencies.isfinite().all())
    require(finite, "frequencies", "inf or NaN", "frequencies must be finite")


def _map(x: Tensor, table: tuple[Tensor, Tensor]) -> Tensor:
    """Pairs of features by matrices."""
    return map_pairs(x, *table)


def _by_feature(pairs: Tensor) -> Tensor:
    """(..., pairs, 2) as (..., features)."""
    return pairs.flatten(-2)


class RiemannFormer(Encoding):
    """Transport with a learned conformal metric: T_m^-1 = s^(m/2) R(-m theta), with one s a head and axis.

    Each pair of features follows the axis, or axes, where its frequency is not zero, both in its angle and in its
    scale, so axial frequencies treat the axes separately: the score is the sum of one one-dimensional score an axis. A
    common shift of all positions by c along an axis multiplies that axis' part by s^c; with s = 1 it changes nothing,
    and the encoding is RoPE with the opposite sign.

    Parameters
    ----------
    frequencies : Tensor, (pairs, axes)
        theta, from ``geolib.rotations``.
    heads : int
        1 for scales, and learned angles, that all heads share.
    start : float
        s at the beginning. Close to 1, or far tokens vanish: their scores carry s^m.
    law : ScaleLaw
        s from the learned number, and the exponents from the positions.
    learn_angles : bool
        Whether the frequencies that are not zero are learned, in each head; otherwise they stay as given.

    Notes
    -----
    The score carries s^m, so with s < 1 positions are counted from 0 upwards: far ones fade, and at negative ones
    vectors grow, with s = 0.99 a thousandfold at -1375. Where a vector would become more than ``longest`` times as
    long, ``place`` raises a ValueError on a CPU; on a GPU and in a compiled graph nothing is read, and nothing refused.

    Source: RF-6a, RF-11, RF-14, RF-S.

    >>> method = RiemannFormer(torch.tensor([[0.5]]), heads=1, start=0.9)
    >>> q = k = torch.ones(1, 1, 3, 2)
    >>> a, b = method.place(torch.arange(3.0)[:, None]).to_reference(q, k)
    >>> (a.norm(dim=-1) / q.norm(dim=-1)).detach()  # s^(m/2)
    tensor([[[1.0000, 0.9487, 0.9000]]])
    """

    frequencies: Tensor
    follows: Tensor
    turns = 1.0
    """How many times theta the score turns by, for a step of one."""
    longest = 1e6
    """How many times as long a vector may become, s^(m/2); see the notes."""

    def __init__(
        self,
        frequencies: Tensor,
        heads: int,
        start: float = 0.99,
        law: ScaleLaw | None = None,
        learn_angles: bool = False,
    ):
        super().__init__()
        _check_frequencies(frequencies, "(pairs, axes)")
        self.law = bounded_law() if law is None else law
        self.register_buffer("follows", (frequencies != 0).to(frequencies.dtype), persistent=False)
        # In float64: 1 - s has few digits left in float32 when s is close to 1.
        raw = self.law.raw(torch.tensor(start, dtype=torch.float64, device="cpu"))
        self.raw_scale = nn.Parameter(torch.full(self.scale_shape(heads, frequencies), float(raw)))
        if learn_angles:
            self.frequencies = nn.Parameter(frequencies.repeat(heads, 1, 1))
        else:
            self.register_buffer("frequencies", frequencies, persistent=False)

    def extra_repr(self) -> str:
        """What it is."""
        return f"{described(self.frequencies)}, scales={tuple(self.raw_scale.shape)}"

    @staticmethod
    def scale_shape(heads: int, frequencies: Tensor) -> tuple[int, ...]:
        """One scale for each head and axis."""
        return heads, frequencies.shape[1]

    def log_scale(self) -> Tensor:
        """log s, (heads, axes), in float32 or float64 whatever the parameter's dtype."""
        return self.law.log_scale(self.raw_scale.to(angle_dtype(self.raw_scale)))

    def angles(self, positions: Tensor) -> Tensor:
        """m theta of each pair, (..., tokens, pairs), radians; a leading dimension for heads that learn their own."""
        return pair_angles(for_heads(positions), self.frequencies * self.follows)

    def exponents(self, positions: Tensor) -> Tensor:
        """m/2 log s of each plane, (..., heads or 1, tokens, pairs)."""
        return pair_angles(for_heads(self.law.exponent(positions)), self.follows * self.log_scale()[:, None, :] / 2)

    def table(self, positions: Tensor) -> Any:
        """What ``act`` multiplies by: T_m^-1 of each pair, as a complex number."""
        return self.exponents(positions).exp()[..., None] * cis(-self.angles(positions))

    act: Callable[[Tensor, Any], Tensor] = staticmethod(turn_pairs)

    def place(self, positions: Tensor, keys: Tensor | None = None) -> Placed:
        """The inverse tangent mappings, for all layers."""
        positions, keys = self._sound(positions, keys)
        return Carried(self.act, at_both(self.table, positions, keys), counts(positions, keys), len(self.raw_scale))

    def _sound(self, positions: Tensor, keys: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Positions as ``as_places`` gives them, refused where scales leave the range in which they are sound."""
        places = as_places(positions, keys, self.frequencies.shape[-1])
        if torch.compiler.is_compiling() or not readable(self.raw_scale):
            return places
        for argument, x in zip(("positions", "keys"), places):
            if x is not None and readable(x) and x.numel():
                ends = torch.stack(x.detach().flatten(0, -2).aminmax(dim=0))
                grown = self._growth(ends)
                allowed = (
                    f"scales are sound up to {self.longest:g}: count positions from 0 upwards, or from a nearer origin"
                )
                came = f"{ends[0].tolist()} to {ends[1].tolist()}, where vectors become {grown:.1e} times as long"
                require(grown <= self.longest, argument, came, allowed)
        return places

    @torch.no_grad()
    def _growth(self, ends: Tensor) -> float:
        """How many times as long a vector becomes at most, at the ends of all axes."""
        return float(self.exponents(ends).max().exp())


class RiemannFormerGeneral(RiemannFormer):
    """The appendix's metric: T_m^-1 = S^(m/2) R(m theta), with two learned scales for each plane of each head.

    Pairs follow axes as in ``RiemannFormer``, with the sign of RoPE: queries and keys turn by +m theta. The metric
    turns with the frame, so a shift by c multiplies each feature's part of the score, in the turned basis, by its s^c.
    Parameters are those of ``RiemannFormer``.

    Source: RF-A2, RF-A5.

    >>> RiemannFormerGeneral(torch.ones(4, 1), heads=2).log_scale().shape
    torch.Size([2, 4, 2])
    """

    @staticmethod
    def scale_shape(heads: int, frequencies: Tensor) -> tuple[int, ...]:
        """One scale for each head and feature, in pairs."""
        return heads, frequencies.shape[0], 2

    def exponents(self, positions: Tensor) -> Tensor:
        """m/2 log s of both features of each pair, (..., heads or 1, tokens, pairs, 2)."""
        steps = pair_angles(for_heads(self.law.exponent(positions)), self.follows)
        return steps[..., None] * self.log_scale()[:, None] / 2

    def table(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """What each feature and its neighbour are multiplied by: the rows of S^(m/2) R(m theta)."""
        scale, angles = self.exponents(positions).exp(), self.angles(positions)
        cos, sin = angles.cos(), angles.sin()
        return _by_feature(scale * cos[..., None]), _by_feature(scale * torch.stack([-sin, sin], -1))

    act: Callable[[Tensor, Any], Tensor] = staticmethod(_map)


class RiemannFormerDiagonal(RiemannFormerGeneral):
    """A diagonal metric: T_m^-1 = R(-m theta) S^(m/2), with two learned scales for each plane of each head.

    The scales stand outside the rotation: the tangent mapping scales first and turns then. A common shift by c scales
    each feature of queries and keys by its s^(c/2). Parameters are those of ``RiemannFormer``.

    Source: RF-5, RF-6.

    >>> method = RiemannFormerDiagonal(torch.full((1, 1), 2 * math.pi), heads=1, start=0.25)
    >>> placed = method.place(torch.tensor([[1.0]]))  # once around, scaled by 1/2
    >>> placed.to_reference(torch.ones(1, 1, 1, 2), torch.ones(1, 1, 1, 2))[0].detach()
    tensor([[[[0.5000, 0.5000]]]])
    """

    def table(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """What each feature and its neighbour are multiplied by: the rows of R(-m theta) S^(m/2)."""
        scale, angles = self.exponents(positions).exp(), self.angles(positions)
        cos, sin = angles.cos(), angles.sin()
        return _by_feature(scale * cos[..., None]), _by_feature(scale.flip(-1) * torch.stack([sin, -sin], -1))


class RiemannFormerReflection(RiemannFormer):
    """RiemannFormer with mirrors for rotations: T_m^-1 = s^(m/2) S(m theta), its own inverse when s = 1.

    The score is that of ``RiemannFormer`` with the doubled angles. Parameters are those of ``RiemannFormer``; theta is
    how far a mirror line turns for a step of one.

    Source: RF-16, RF-REFL.

    >>> mirror = RiemannFormerReflection(torch.zeros(1, 1), heads=1).place(torch.tensor([[0.0]]))
    >>> mirror.to_reference(torch.ones(1, 1, 1, 2), torch.ones(1, 1, 1, 2))[0].detach()
    tensor([[[[ 1., -1.]]]])
    """

    turns = 2.0

    def table(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """What each feature and its neighbour are multiplied by: the rows of s^(m/2) S(m theta)."""
        scale, angles = self.exponents(positions).exp(), 2 * self.angles(positions)
        cos, sin = scale * angles.cos(), scale * angles.sin()
        return _by_feature(torch.stack([cos, -cos], -1)), _by_feature(torch.stack([sin, sin], -1))

    act: Callable[[Tensor, Any], Tensor] = staticmethod(_map)


class RiemannFormerRelative(RiemannFormer):
    """RiemannFormer's turns with s^(m/2) on queries and s^(-n/2) on keys, so that the score stays relative.

    The score carries s^((m-n)/2), the power that xPos and RetNet give it, in place of s^((m+n)/2); s is learned here,
    one a head and axis, and constant there. A common shift changes nothing under the laws whose exponent is linear.
    Parameters are those of ``RiemannFormer``.

    Source: RF-6a, CS-1 (constant s).

    What queries lose keys gain, so both may become far longer than in ``RiemannFormer`` before digits are lost.

    >>> method = RiemannFormerRelative(torch.tensor([[0.5]]), heads=1, start=0.25)
    >>> q = k = torch.ones(1, 1, 2, 2)
    >>> a, b = method.place(torch.tensor([[1.0], [2.0]])).to_reference(q, k)
    >>> (a.norm(dim=-1) / q.norm(dim=-1)).detach(), (b.norm(dim=-1) / k.norm(dim=-1)).detach()
    (tensor([[[0.5000, 0.2500]]]), tensor([[[2.0000, 4.0000]]]))
    """

    longest = 1e17

    def place(self, positions: Tensor, keys: Tensor | None = None) -> Placed:
        """Two maps, one for queries and one for keys, for all layers."""
        positions, keys = self._sound(positions, keys)
        at_keys = self.key_table(positions if keys is None else keys)
        return Carried(self.act, (self.table(positions), at_keys), counts(positions, keys), len(self.raw_scale))

    @torch.no_grad()
    def _growth(self, ends: Tensor) -> float:
        """Of queries, or of keys, whose exponents have the other sign."""
        return float(self.exponents(ends).abs().max().exp())

    def key_table(self, positions: Tensor) -> Tensor:
        """What keys are multiplied by: the turns of ``table``, the scales inverted."""
        return (-self.exponents(positions)).exp()[..., None] * cis(-self.angles(positions))


def _encodings(parts: Any, argument: str) -> list[Encoding]:
    """Several of them, at least one."""
    require(isinstance(parts, Iterable), argument, type(parts).__name__, "several encodings, as in a list")
    found = list(parts)
    require(bool(found), argument, found, "at least one encoding")
    for part in found:
        check_encoding(part, argument)
    return found


def _check_inside(encoding: nn.Module, argument: str) -> None:
    """ValueError for what is no encoding, and for powers inside something that would put softmax in their place."""
    check_encoding(encoding, argument)
    holds = not any(isinstance(part, PowerScores) for part in encoding.modules())
    require(holds, argument, "PowerScores inside", "powers of scores go around everything else")


class LocalityFocusing(Encoding):
    """Any encoding, its weights multiplied after the softmax by exp(-|p_m - p_n|_A^2 / (2 sigma^2)).

    Parameters
    ----------
    encoding : Encoding
        What else happens to queries, keys and scores; an attenuation of its own multiplies this one.
    sigma : float
        The initial width, in units of position.
    tokens : int
        1 for one learned width a head; the number of placed tokens for one a head and query.
    learn_precision : bool
        Whether the matrix A, one for all heads, is learned; it begins as the identity and otherwise stays it.

    Source: RF-19, RF-21, RF-22.

    >>> placed = LocalityFocusing(Encoding(), heads=1, axes=1, sigma=1.0).place(torch.arange(3.0)[:, None])
    >>> placed.attenuation()[0, 0].detach()
    tensor([1.0000, 0.6065, 0.1353])
    """

    raw_precision: Tensor
    form: type[Attenuated] | type[ScoreBias] = Attenuated
    """Where the Gaussian goes."""

    def __init__(
        self,
        encoding: Encoding,
        heads: int,
        axes: int,
        sigma: float,
        tokens: int = 1,
        learn_precision: bool = True,
    ):
        super().__init__()
        check_positive(sigma, "sigma")
        _check_inside(encoding, "encoding")
        self.encoding = encoding
        self.log_sigma = nn.Parameter(torch.full((heads, tokens), math.log(sigma)))
        if learn_precision:
            self.raw_precision = nn.Parameter(torch.zeros(axes, axes))
        else:
            self.register_buffer("raw_precision", torch.zeros(axes, axes), persistent=False)

    def extra_repr(self) -> str:
        """What it is, beside what it goes around."""
        heads, widths = self.log_sigma.shape
        learned = isinstance(self.raw_precision, nn.Parameter)
        return f"heads={heads}, axes={len(self.raw_precision)}, widths={widths}, learn_precision={learned}"

    def sigma(self) -> Tensor:
        """The widths, (heads, 1) or (heads, placed tokens)."""
        return self.log_sigma.exp()

    def precision(self) -> Tensor:
        """The matrix A, (axes, axes)."""
        return precision_matrix(self.raw_precision)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """What the inner encoding does."""
        return self.encoding.embed(x, positions)

    def place(self, positions: Tensor, keys: Tensor | None = None) -> Placed:
        """The Gaussian, (heads, queries, keys) or (batch, heads, queries, keys), for all layers.

        On a CPU a long sequence takes a form that needs no matrix of weights.
        """
        return self.around(self.encoding.place(positions, keys), positions, keys)

    def around(self, inner: Placed, positions: Tensor, keys: Tensor | None) -> Placed:
        """The Gaussian around an encoding that is placed already."""
        positions, keys = as_places(positions, keys, self.raw_precision.shape[0])
        count, rows = self.log_sigma.shape[1], positions.shape[-2]
        allowed = f"there are {count} widths a head, one for each place of the grid: place all of it"
        require(count in (1, rows), "positions", lambda: f"{rows} rows", allowed)
        u = at_both(self._whitened, positions, keys)
        rate = (-2 * self.log_sigma.to(u[0].dtype)).exp() / 2
        if self.form is Attenuated and FocusedByBlocks.pays(u[0], keys):
            return FocusedByBlocks(inner, u, rate)
        return Composite([inner, self.form(Gaussian(*u, rate))])

    def _whitened(self, positions: Tensor) -> Tensor:
        """u = L^T p with A = L L^T, so that |u_m - u_n| is the distance of A; (..., tokens, axes)."""
        dtype = angle_dtype(positions, self.log_sigma)
        # A sum of products, not a matrix product, keeps its digits under autocast.
        return (positions.to(dtype).unsqueeze(-1) * precision_root(self.raw_precision.to(dtype))).sum(-2)


class GaussianGate(LocalityFocusing):
    """The Gaussian of ``LocalityFocusing`` inside the softmax: -|p_m - p_n|_A^2 / (2 sigma^2) is added to the scores.

    Rows sum to one: what is taken from far keys goes to near ones. Parameters are those of ``LocalityFocusing``.

    >>> gate = GaussianGate(Encoding(), heads=1, axes=1, sigma=1.0).place(torch.arange(3.0)[:, None])
    >>> gate.log_gate(None)[0, 0].detach(), gate.attenuation() is None
    (tensor([-0.0000, -0.5000, -2.0000]), True)
    """

    form = ScoreBias


class Composed(Encoding):
    """Several encodings at once, as ``geolib.placed.Composite``; embeddings by each in turn.

    >>> both = Composed([RoPE(torch.ones(1, 1)), ALiBi(heads=2)]).place(torch.arange(3.0)[:, None])
    >>> both.log_gate(None).shape
    torch.Size([2, 3, 3])
    """

    def __init__(self, parts: Iterable[Encoding]):
        super().__init__()
        self.parts = nn.ModuleList(_encodings(parts, "parts"))
        _check_inside(self, "parts")

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """x with what each adds."""
        for part in self._all():
            x = part.embed(x, positions)
        return x

    def place(self, positions: Tensor, keys: Tensor | None = None) -> Placed:
        """Each of them, placed."""
        return Composite([part.place(positions, keys) for part in self._all()])

    def _all(self) -> list[Encoding]:
        return list(self.parts)  # type: ignore[arg-type]


class HalfSplit(Encoding):
    """Any encoding for queries and keys whose pairs are half-split, (i, i + d/2), as "rotate_half" has them.

    They are put in this library's order, carried, and put back. ``turned`` is how many features of a head hold pairs,
    the others standing behind them (partial rotary); as many as the encoding turns when None. Where weights may change
    instead, ``interleaved_rows`` converts a checkpoint once.

    >>> placed = HalfSplit(RoPE(torch.tensor([[math.pi / 2], [0.0]]))).place(torch.tensor([1.0]))
    >>> q = torch.tensor([[[[1.0, 2.0, 3.0, 4.0]]]])
    >>> placed.to_reference(q, q)[0].round()  # 1 and 3 make a pair
    tensor([[[[-3., 2., 1., 4.]]]])
    """

    def __init__(self, encoding: Encoding, turned: int | None = None):
        super().__init__()
        check_encoding(encoding, "encoding")
        least = turned_features(encoding)
        if turned is not None:
            check_even(turned, "turned")
            require(turned >= (least or 0), "turned", turned, f"the encoding turns {least} features")
        self.encoding, self.turned = encoding, least if turned is None else turned

    def extra_repr(self) -> str:
        """What it is, beside what it goes around."""
        return "" if self.turned is None else f"turned={self.turned}"

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """What the inner encoding does."""
        return self.encoding.embed(x, positions)

    def place(self, positions: Tensor, keys: Tensor | None = None) -> Placed:
        """The inner encoding's, between two changes of order."""
        return PlacedHalfSplit(self.encoding.place(positions, keys), self.turned)


def turned_features(encoding: Encoding) -> int | None:
    """How many features of a head, the first ones, an encoding turns in pairs; None where it turns none.

    >>> turned_features(Composed([RoPE.text(16), ALiBi(heads=2)])), turned_features(ALiBi(heads=2))
    (16, None)
    """
    found = []
    for part in encoding.modules():
        if isinstance(part, (RoPE, RiemannFormer, SympowEncoding)):
            found.append(2 * part.frequencies.shape[-2])
        elif isinstance(part, LieRE):
            found.append(part.width * part.generators.shape[2])
    return max(found, default=None)


class PerLayer(Encoding):
    """One encoding for each layer, with its own parameters; embeddings are those of the first.

    Layers use ``placed.layer(index)``.

    >>> placed = PerLayer([Encoding(), ALiBi(2)]).place(torch.arange(3.0)[:, None])
    >>> placed.layer(0).log_gate(None) is None, placed.layer(1).log_gate(None).shape
    (True, torch.Size([2, 3, 3]))
    """

    def __init__(self, layers: Iterable[Encoding]):
        super().__init__()
        self.layers = nn.ModuleList(_encodings(layers, "layers"))

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """What the first layer's encoding does."""
        return self._all()[0].embed(x, positions)

    def place(self, positions: Tensor, keys: Tensor | None = None) -> Placed:
        """Each layer's encoding, placed."""
        return ByLayer([encoding.place(positions, keys) for encoding in self._all()])

    def _all(self) -> list[Encoding]:
        return list(self.layers)  # type: ignore[arg-type]


class PerLayerFocusing(PerLayer):
    """An encoding, with a ``LocalityFocusing`` of its own around what each layer uses of it.

    >>> own = [LocalityFocusing(Encoding(), heads=2, axes=1, sigma=s) for s in (1.0, 2.0)]
    >>> placed = PerLayerFocusing(ALiBi(2), own).place(torch.arange(3.0)[:, None])
    >>> placed.layer(1).attenuation()[0, 0].detach()
    tensor([1.0000, 0.8825, 0.6065])
    """

    def __init__(self, encoding: Encoding, layers: Iterable[LocalityFocusing]):
        _check_inside(encoding, "encoding")
        super().__init__(layers)
        self.encoding = encoding

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """What the encoding inside does."""
        return self.encoding.embed(x, positions)

    def place(self, positions: Tensor, keys: Tensor | None = None) -> Placed:
        """The encoding placed once, and the Gaussians of all layers."""
        inner = self.encoding.place(positions, keys)
        each: list[Any] = list(self.layers)
        return ByLayer([focus.around(inner.layer(i), positions, keys) for i, focus in enumerate(each)])


class LieRE(Encoding):
    """Rotations exp(sum_i p_i A_i) with learned skew generators A_i; block width 2 is RoPE-Mixed.

    Parameters
    ----------
    entries : Tensor, (layers or 1, heads or 1, blocks, axes, width (width - 1) / 2)
        Where the generators start: strict upper triangles, radians per unit of position. The size 1 means shared.
    width : int
        Block width b; blocks * b features are turned.
    layers : int
        Layers of the model.
    unit : sequence of float, or None
        Positions are divided by it, axis by axis. LieRE's own choice is the number of cells minus one, so that a
        training image spans [0, 1] and a larger one goes beyond. None: positions as they are.

    Notes
    -----
    One batched exponential makes the rotations of all layers; width 2 takes the angles themselves. They are computed in
    float32 from generators of any narrower dtype, whose rounding remains: 2^-9 of an angle in bfloat16.

    Weight decay would pull the rotations towards the identity: leave ``generators`` out of it.

    The unit is saved beside the generators, and a state of another unit (a model for another grid) is not loaded.

    Source: LR-A1, LR-blk, LR-B5, LR-3D, LR-CODE.

    >>> lie = LieRE(uniform_entries(2, 1, 2, 1, 6), width=4, layers=2)  # 2 layers, 2 blocks of width 4, one axis
    >>> q, k = torch.randn(2, 1, 1, 3, 8)
    >>> a, b = lie.place(torch.arange(3.0)[:, None]).layer(1).to_reference(q, k)
    >>> torch.allclose(a.norm(dim=-1), q.norm(dim=-1))
    True
    """

    unit: Tensor

    def __init__(self, entries: Tensor, width: int, *, layers: int = 1, unit: Sequence[float] | None = None):
        super().__init__()
        check_tensor(entries, "entries")
        came, count = entries.shape, entry_count(width)
        require(len(came) == 5 and came[-1] == count, "entries", came, f"(layers, heads, blocks, axes, {count})")
        require(came[0] in (1, layers), "entries", f"{came[0]} layers", f"1 or the {layers} layers of the model")
        unit = [1.0] * came[3] if unit is None else list(unit)
        require(len(unit) == came[3], "unit", unit, f"one number for each of the {came[3]} axes")
        for u in unit:
            check_positive(u, "unit")
        self.width, self.layers, self._given = width, layers, unit
        self.generators = nn.Parameter(entries.clone())
        self.register_buffer("unit", torch.tensor(unit, dtype=torch.float32))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *given: Any) -> None:
        """A state of another unit is refused: the generators are radians per unit. One without a unit loads as ever."""
        saved = state_dict.setdefault(f"{prefix}unit", torch.tensor(self._given, dtype=torch.float32))
        if not saved.is_meta and saved.tolist() != torch.tensor(self._given, dtype=torch.float32).tolist():
            allowed = f"this one has {self._given}: build it for the grid of training, and place larger grids beyond it"
            given[-1].append(f"{prefix}unit: got {saved.tolist()} in the state; {allowed}")
        super()._load_from_state_dict(state_dict, prefix, *given)

    def extra_repr(self) -> str:
        """What it is."""
        layers, heads, blocks, axes, _ = self.generators.shape
        return f"width={self.width}, blocks={blocks}, axes={axes}, layers={self.layers}, own=({layers}, {heads})"

    def place(self, positions: Tensor, keys: Tensor | None = None) -> Placed:
        """The rotations of all layers, by one exponential; ``layer(i)`` takes its own."""
        positions, keys = as_places(positions, keys, self.generators.shape[3])
        act, table = (turn_pairs, self._turns) if self.width == 2 else (turn_blocks, self.rotations)
        query, key = at_both(table, positions, keys)
        sizes = counts(positions, keys)
        heads = self.generators.shape[1]
        own = [Carried(act, tables, sizes, heads) for tables in zip(query.unbind(0), key.unbind(0))]
        return own[0] if len(own) == 1 else ByLayer(own)

    def skew(self) -> Tensor:
        """The generators as matrices, (layers or 1, heads or 1, blocks, axes, width, width), radians per unit."""
        return skew_matrix(self.generators, self.width)

    def rotations(self, positions: Tensor) -> Tensor:
        """The rotations of all layers, (layers or 1, [batch,] heads or 1, tokens, blocks, width, width).

        Float32 or float64.
        """
        dtype = angle_dtype(positions, self.generators)
        skew = self.skew().to(dtype) / self.unit[:, None, None]
        flat = placed_rotations(positions.flatten(0, -2), skew).permute(1, 2, 0, 3, 4, 5)
        return flat if positions.dim() == 2 else flat.unflatten(2, positions.shape[:2]).transpose(1, 2)

    def _turns(self, positions: Tensor) -> Tensor:
        """The turns of width 2, (layers or 1, [batch,] heads or 1, tokens, blocks, 2): the entry u turns by -u."""
        rates = -self.generators[..., 0].to(angle_dtype(positions, self.generators)) / self.unit
        if positions.dim() == 3:
            rates = rates.unsqueeze(1)
        return cis(pair_angles(for_heads(positions), rates))


class SphericalRoPE(Encoding):
    """Spherical RoPE: triples of features turn in space, about one coordinate axis for each axis of positions.

    Triple j turns about its first axis by p_1 theta_j, then about its second by p_2 theta_j, and so on in a circle. The
    turns do not commute, so from two axes on a score does not depend on n - m alone. Which turn comes first, and that
    frequencies are fixed, (triples,), is our reading. Features that fill no triple stay as they are.

    Source: LR-T1 (a row of ours).

    >>> quarter = SphericalRoPE(torch.tensor([math.pi / 2]), axes=2)
    >>> q = torch.tensor([[[[0.0, 1.0, 0.0]]]])  # about the first axis to the third, then about the second to the first
    >>> quarter.place(torch.tensor([[1.0, 1.0]])).to_reference(q, q)[0].round()
    tensor([[[[1., 0., 0.]]]])
    """

    frequencies: Tensor

    def __init__(self, frequencies: Tensor, axes: int):
        super().__init__()
        check_tensor(frequencies, "frequencies")
        holds = frequencies.dim() == 1 and frequencies.is_floating_point()
        require(holds, "frequencies", f"{frequencies.dtype}, {tuple(frequencies.shape)}", "floats, (triples,)")
        _check_finite(frequencies)
        self.axes = axes
        self.register_buffer("frequencies", frequencies, persistent=False)

    def extra_repr(self) -> str:
        """What it is."""
        return f"triples={len(self.frequencies)}, axes={self.axes}"

    def generators(self) -> Tensor:
        """The turn of each triple for a step along each axis, as skew matrices, (axes, triples, 3, 3)."""
        # About axis a from a + 1 to a + 2; of whole tensors, for numbers that are written down come from the host.
        axes = torch.eye(3, dtype=self.frequencies.dtype, device=self.frequencies.device)
        turned = axes.roll(-2, 0)[:, :, None] * axes.roll(-1, 0)[:, None]
        about = torch.stack([(turned - turned.mT)[a % 3] for a in range(self.axes)])
        return self.frequencies[:, None, None] * about[:, None]

    def rotations(self, positions: Tensor) -> Tensor:
        """The rotation of each triple, ([batch,] 1, tokens, triples, 3, 3), float32 or float64."""
        along, flat = self.generators(), positions.flatten(0, -2)
        flat = flat if flat.is_floating_point() else flat.double()  # digits for large angles, as ``pair_angles``
        with full_precision(flat.device):
            turned, *others = (placed_rotations(flat[:, a : a + 1], along[a][:, None]) for a in range(self.axes))
            for other in others:
                turned = other @ turned
        return turned.unflatten(0, positions.shape[:-1]).unsqueeze(-5)

    def place(self, positions: Tensor, keys: Tensor | None = None) -> Placed:
        """The rotations, for all layers."""
        positions, keys = as_places(positions, keys, self.axes)
        return Carried(_turn_triples, at_both(self.rotations, positions, keys), counts(positions, keys))


def _turn_triples(x: Tensor, rotations: Tensor) -> Tensor:
    """As ``turn_blocks``; features beyond the last triple stay."""
    size = 3 * rotations.shape[-3]
    require(size <= x.shape[-1], "frequencies", f"{size // 3} triples", f"x has {x.shape[-1]} features")
    turned = turn_blocks(x[..., :size], rotations)
    return torch.cat([turned, x[..., size:]], -1) if size < x.shape[-1] else turned


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
    return RoPE(_in_reading_order(language_frequencies(setting.head_dim, base), setting))


def _in_reading_order(frequencies: Tensor, setting: Setting) -> Tensor:
    """Frequencies of one axis, (pairs, 1), for a grid whose cells count in reading order, (pairs, axes)."""
    # The index of a cell is linear in its coordinates, so reading order is one more frequency matrix.
    cells = [float(math.prod(setting.grid[i + 1 :])) for i in range(setting.axes)]
    return frequencies * torch.tensor(cells, dtype=frequencies.dtype)


def _sympow_gates(setting: Setting, longest: float = 65536.0, gate_bias: float = GATE_BIAS) -> SympowEncoding:
    """Data-dependent gates along the tokens' order, and the frequencies of the longest document."""
    frequencies = _in_reading_order(document_frequencies(setting.head_dim, longest), setting)
    return SympowEncoding(setting.width, setting.heads, frequencies, gate_bias)


def _compass(setting: Setting, transport: str = "paths", vectors: int = 3) -> Compass:
    """Turns read from the layer's input, shared by all layers."""
    require(transport in TRANSPORTS, "transport", repr(transport), f"the transports are {', '.join(TRANSPORTS)}")
    return TRANSPORTS[transport](setting.width, setting.heads, setting.grid, vectors)


def _own_layers(make: Callable[[], Encoding], setting: Setting, per_layer: bool) -> Encoding:
    """One encoding shared by all layers, or one for each."""
    return PerLayer(make() for _ in range(setting.layers)) if per_layer else make()


def _riemannian(
    method: type[RiemannFormer],
    setting: Setting,
    base: float = 100.0,
    law: str = "bounded",
    law_options: dict[str, float] | None = None,
    far: float = 0.9,
    learn_angles: bool = False,
    per_head: bool = True,
    per_layer: bool = False,
) -> Encoding:
    """Scales that begin so that the metric at the far end of the longest axis is ``far`` times that at the origin.

    Angles are such that all the methods' scores turn alike: mirrors turn half as far as frames that rotate.
    """
    require(law in SCALE_LAWS, "law", repr(law), f"the scale laws are {', '.join(SCALE_LAWS)}")
    check_positive(far, "far")
    scale_law = SCALE_LAWS[law](**(law_options or {}))
    frequencies = axial_frequencies(setting.head_dim, setting.axes, base) / method.turns
    heads = setting.heads if per_head else 1
    start = far ** (1 / float(scale_law.exponent(torch.tensor(max(max(setting.grid) - 1.0, 1.0)))))
    return _own_layers(
        lambda: method(frequencies, heads, start, scale_law, learn_angles=learn_angles), setting, per_layer
    )


def _focused(
    encoding: Encoding,
    setting: Setting,
    sigma: float | None = None,
    per_position: bool = False,
    per_layer: bool = False,
    learn_precision: bool = True,
    method: type[LocalityFocusing] = LocalityFocusing,
) -> Encoding:
    """Widths that begin at half of the longest axis."""
    width = max(setting.grid) / 2 if sigma is None else sigma
    tokens = math.prod(setting.grid) if per_position else 1

    def focusing(inside: Encoding) -> LocalityFocusing:
        return method(inside, setting.heads, setting.axes, width, tokens, learn_precision)

    if not per_layer:
        return focusing(encoding)
    return PerLayerFocusing(encoding, [focusing(Encoding()) for _ in range(setting.layers)])


def _rope_pair(setting: Setting, turn: float = 0.5) -> RoPE:
    """One turning pair, the other features still: along each axis half as fast as along the one before."""
    return RoPE(turn * 0.5 ** torch.arange(setting.axes, dtype=wide_default())[None])


def _manhattan(setting: Setting, slopes: str = "rmt") -> ManhattanDecay:
    """RMT's form, with its own slopes or, to compare the place alone, ALiBi's."""
    require(slopes in MANHATTAN_SLOPES, "slopes", repr(slopes), f"one of {', '.join(MANHATTAN_SLOPES)}")
    return ManhattanDecay(MANHATTAN_SLOPES[slopes](setting.heads), setting.axes)


def _visionllama(setting: Setting, base: float = 10000.0) -> RoPE:
    """Axes alternate from pair to pair; on a grid of another size, ``rescale_positions`` first."""
    # Pairs that do not fill a round of the axes (head_dim 64 in three dimensions) stay as they are.
    turned = setting.head_dim - setting.head_dim % (2 * setting.axes)
    return RoPE(alternating_frequencies(turned, setting.axes, base))


# What layers and heads share, by the rows of the paper's Table 2: (own per layer, own per head).
_SHARING = {"none": (True, True), "layers": (False, True), "heads": (True, False), "all": (False, False)}


def _owners(setting: Setting, share: str) -> tuple[int, int]:
    """How many layers and heads have generators of their own."""
    require(share in _SHARING, "share", repr(share), f"one of {', '.join(_SHARING)}")
    by_layer, by_head = _SHARING[share]
    return setting.layers if by_layer else 1, setting.heads if by_head else 1


def _spherical(setting: Setting, base: float = 100.0) -> SphericalRoPE:
    """Frequencies of axial RoPE's base, one for each triple of features; at least three features a head."""
    triples = setting.head_dim // 3
    require(triples > 0, "heads", setting.heads, f"a head has {setting.head_dim} features; it needs at least 3")
    return SphericalRoPE(language_frequencies(2 * triples, base)[:, 0], setting.axes)


def _rope_mixed(setting: Setting, base: float = 10.0, share: str = "none") -> LieRE:
    """Block width 2, started from axial frequencies along one random direction for each layer and head."""
    axial = axial_frequencies(setting.head_dim, setting.axes, base)
    return LieRE(-mixed_frequencies(axial, *_owners(setting, share))[..., None], 2, layers=setting.layers)


def _liere(setting: Setting, block: int | None = None, share: str = "none", scale: float = 2 * math.pi) -> LieRE:
    """Blocks of the given width (the whole head when None), started uniform on [0, scale)."""
    block = setting.head_dim if block is None else block
    check_width(setting.head_dim, block)
    shape = (*_owners(setting, share), setting.head_dim // block, setting.axes, entry_count(block))
    unit = [max(cells - 1, 1) for cells in setting.grid]
    return LieRE(uniform_entries(*shape, high=scale), block, layers=setting.layers, unit=unit)


METHODS: dict[str, Callable[..., Encoding]] = {
    "none": lambda setting: Encoding(),
    "sinusoidal": lambda setting, base=10000.0: Sinusoidal(setting.width, setting.axes, base),
    "learned": lambda setting, std=1.0: Learned(setting.width, setting.grid, std),
    "rope": _rope,
    "rope-axial": lambda setting, base=100.0: RoPE.image(setting.head_dim, setting.axes, base),
    "alibi": lambda setting, slopes=None: ALiBi(setting.heads, slopes, setting.axes),
    "riemannformer": partial(_riemannian, RiemannFormer),
    "riemannformer-general": partial(_riemannian, RiemannFormerGeneral),
    "riemannformer-diagonal": partial(_riemannian, RiemannFormerDiagonal),
    "riemannformer-reflection": partial(_riemannian, RiemannFormerReflection),
    "riemannformer-relative": partial(_riemannian, RiemannFormerRelative),
    "lf": lambda setting, **options: _focused(Encoding(), setting, **options),
    "gauss": lambda setting, **options: _focused(Encoding(), setting, method=GaussianGate, **options),
    "rmt": _manhattan,
    "rope-pair": _rope_pair,
    "visionllama": _visionllama,
    "rope-mixed": _rope_mixed,
    "liere": _liere,
    "spherical": _spherical,
    "sympow-gates": _sympow_gates,
    "compass": _compass,
}
"""The registry of methods, each a name and what builds it from a ``Setting`` and the options that ``build`` hands on.

:meta hide-value:
"""

# What may follow a method's name after a plus sign; its options are passed as a dictionary under the same name.
WRAPPERS: dict[str, Callable[..., Encoding]] = {
    "lf": _focused,
    "sympow": lambda encoding, setting, power=2: PowerScores(encoding, power),
    "gauss": partial(_focused, method=GaussianGate),
    "alibi": lambda encoding, setting, slopes=None: Composed([encoding, ALiBi(setting.heads, slopes, setting.axes)]),
    "rmt": lambda encoding, setting, slopes="rmt": Composed([encoding, _manhattan(setting, slopes)]),
}


def is_name(name: str) -> bool:
    """Whether ``build`` knows the name: a key of ``METHODS``, perhaps with keys of ``WRAPPERS`` after plus signs.

    >>> is_name("rope+lf"), is_name("lf+rope")
    (True, False)
    """
    method, *wrappers = name.split("+") if isinstance(name, str) else [name]
    return method in METHODS and set(wrappers) <= set(WRAPPERS)


def check_name(name: str, argument: str = "name") -> None:
    """ValueError for a name that ``build`` does not know.

    >>> check_name("ropes")
    Traceback (most recent call last):
    ValueError: name: got 'ropes'; the methods are ...
    """
    allowed = f"the methods are {', '.join(METHODS)}; after a plus sign: {', '.join(WRAPPERS)}"
    require(is_name(name), argument, repr(name), allowed)


def _check_grid(grid: Any) -> None:
    """Cells along each axis."""
    whole = isinstance(grid, Iterable) and bool(grid) and all(isinstance(n, Integral) and int(n) > 0 for n in grid)
    require(whole, "grid", grid, "cells along each axis, as (1024,) for a text or (8, 8) for an image")


def options_of(name: str) -> dict[str, Any]:
    """The options of a method by name with their defaults; those of a wrapper as a dictionary under its name.

    >>> options_of("rope-axial+alibi"), options_of("rope-pair+lf")["lf"]["sigma"] is None
    ({'base': 100.0, 'alibi': {'slopes': None}}, True)
    """
    check_name(name)
    method, *wrappers = name.split("+")
    return _defaults(WRAPPERS.get(method, METHODS[method])) | {key: _defaults(WRAPPERS[key]) for key in wrappers}


def _defaults(made: Callable[..., Encoding]) -> dict[str, Any]:
    """The parameters of a function that have a default, but for the class that it makes."""
    parameters = inspect.signature(made).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty and p.name != "method"}


@numbered
def build(
    name: str, *, width: int, heads: int, grid: tuple[int, ...], layers: int = 1, **options: Unpack[Options]
) -> Encoding:
    """A method by name.

    Parameters
    ----------
    name : str
        A key of ``METHODS``; keys of ``WRAPPERS`` may follow after plus signs, the inner first:
        ``"riemannformer+lf"``. ``sympow`` goes around the others wherever it stands.
    width, heads, layers : int
        The model's.
    grid : tuple of int
        Cells along each axis; its length is the number of axes.
    **options
        The method's own (``base`` for RoPE); a wrapper's as a dictionary, ``lf={"sigma": 2.0}``. ``Options`` has all of
        them, ``options_of(name)`` those of one method with their defaults.

    Raises
    ------
    ValueError
        For an unknown name, a grid that is no tuple, heads that do not divide the width, or options the method does not
        have.

    >>> encoding = build("rope-axial+lf", width=192, heads=3, grid=(8, 8), base=50.0, lf={"sigma": 2.0})
    >>> [name for name, _ in encoding.named_parameters()]
    ['log_sigma', 'raw_precision']
    """
    check_name(name)
    method, *wrappers = name.split("+")
    wrappers.sort(key=lambda wrapper: wrapper == "sympow")
    for argument, n in (("width", width), ("heads", heads), ("layers", layers)):
        require(isinstance(n, Integral) and n > 0, argument, n, "it must be a whole number from 1 on")
    require(width % heads == 0, "heads", heads, f"it must divide the width {width}")
    _check_grid(grid)
    setting = Setting(width, heads, tuple(grid), layers)
    given: dict[str, Any] = dict(options)
    _check_options(name, given)
    own = {key: value for key, value in given.items() if key not in wrappers}
    try:
        encoding = METHODS[method](setting, **own)
        for wrapper in wrappers:
            encoding = WRAPPERS[wrapper](encoding, setting, **given.get(wrapper, {}))
        return encoding
    except TypeError as error:
        allowed = f"values of another kind ({error}); the defaults are {options_of(name)}"
        raise ValueError(f"options: got {given}; {allowed}") from None


def _check_options(name: str, given: dict[str, Any]) -> None:
    """Options that the method has, those of a wrapper in a dictionary of their own."""
    known = options_of(name)
    for key, value in given.items():
        require(key in known, "options", given, f"{name} has no {key}; it has {known}")
        if isinstance(known[key], dict):
            require(isinstance(value, dict), "options", given, f"{key} takes a dictionary, as {known[key]}")
            for inner in value:
                require(inner in known[key], "options", given, f"{key} has no {inner}; it has {known[key]}")
