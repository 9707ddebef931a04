"""RiemannFormer: queries and keys carried by a rotation and a learned metric, in five forms."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from geolib._checks import angle_dtype, check_heads, readable, require
from geolib.attention import Placed, as_places
from geolib.conformal import ScaleLaw, bounded_law
from geolib.encodings.rotary import Carried, Paired, at_both, check_frequencies, cis, counts, for_heads, turn_pairs
from geolib.rotations import pair_angles

__all__ = [
    "RiemannFormer", "RiemannFormerDiagonal", "RiemannFormerGeneral", "RiemannFormerReflection",
    "RiemannFormerRelative", "map_pairs",
]  # fmt: skip


class RiemannFormer(Paired):
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
        check_frequencies(frequencies, "(pairs, axes)")
        self.law = bounded_law() if law is None else law
        self.register_buffer("follows", (frequencies != 0).to(frequencies.dtype), persistent=False)
        # In float64: 1 - s has few digits left in float32 when s is close to 1.
        raw = self.law.raw(torch.tensor(start, dtype=torch.float64, device="cpu"))
        check_heads(heads)
        self.raw_scale = nn.Parameter(torch.full(self.scale_shape(heads, frequencies), float(raw)))
        if learn_angles:
            self.frequencies = nn.Parameter(frequencies.repeat(heads, 1, 1))
        else:
            self.register_buffer("frequencies", frequencies, persistent=False)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, scales={tuple(self.raw_scale.shape)}"

    @staticmethod
    def scale_shape(heads: int, frequencies: Tensor) -> tuple[int, ...]:
        """One scale for each head and axis."""
        return heads, frequencies.shape[1]

    def told(self) -> dict[str, Any]:
        """What it is; the law by log s of w = 0 and 1, and by the exponents of positions 0 and 3."""
        w, places = torch.tensor([[0.0, 1.0], [0.0, 3.0]], device="cpu")
        return super().told() | {"law": torch.cat([self.law.log_scale(w), self.law.exponent(places)])}

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
        positions, keys = self._sound(positions, keys)
        tables, sizes = at_both(self.table, positions, keys), counts(positions, keys)
        return Carried(self.act, tables, sizes, len(self.raw_scale), self.paired)

    def _sound(self, positions: Tensor, keys: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Positions as ``as_places`` gives them, refused where scales leave the range in which they are sound."""
        places = as_places(positions, keys, self.frequencies.shape[-1])
        if torch.compiler.is_compiling() or not readable(self.raw_scale):
            return places
        for argument, x in zip(("positions", "keys"), places):
            if x is not None and readable(x) and x.numel():
                rows = x.detach().flatten(0, -2)
                grown, ends = self._growth(rows), torch.stack(rows.aminmax(dim=0))
                allowed = "count positions from 0 upwards, or from a nearer origin"
                came = f"{ends[0].tolist()} to {ends[1].tolist()}, where vectors become {grown:.1e} times as long"
                require(grown <= self.longest, argument, came, f"scales are sound up to {self.longest:g}: {allowed}")
        return places

    @torch.no_grad()
    def _growth(self, positions: Tensor) -> float:
        """How many times as long a vector becomes at most."""
        return float(self.exponents(positions).max().exp())


def map_pairs(x: Tensor, table: tuple[Tensor, Tensor]) -> Tensor:
    """Each feature times the table's first, plus its neighbour in the pair times the second; both (..., tokens, dim).

    >>> map_pairs(torch.tensor([[1.0, 10.0]]), (torch.tensor([[2.0, 3.0]]), torch.tensor([[0.0, 1.0]])))
    tensor([[ 2., 31.]])
    """
    wide = x.to(angle_dtype(x))
    own, other = (t.to(wide.dtype) for t in table)
    first, second = wide.unflatten(-1, (-1, 2)).unbind(-1)
    return (wide * own + torch.stack([second, first], -1).flatten(-2) * other).to(x.dtype)


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
        return (scale * cos[..., None]).flatten(-2), (scale * torch.stack([-sin, sin], -1)).flatten(-2)

    act: Callable[[Tensor, Any], Tensor] = staticmethod(map_pairs)


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
        return (scale * cos[..., None]).flatten(-2), (scale.flip(-1) * torch.stack([sin, -sin], -1)).flatten(-2)


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
        return torch.stack([cos, -cos], -1).flatten(-2), torch.stack([sin, sin], -1).flatten(-2)

    act: Callable[[Tensor, Any], Tensor] = staticmethod(map_pairs)


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
        """The maps of queries and of keys, whose scales are inverted."""
        positions, keys = self._sound(positions, keys)
        there = positions if keys is None else keys
        at_keys = (-self.exponents(there)).exp()[..., None] * cis(-self.angles(there))
        tables, sizes = (self.table(positions), at_keys), counts(positions, keys)
        return Carried(self.act, tables, sizes, len(self.raw_scale), self.paired)

    @torch.no_grad()
    def _growth(self, positions: Tensor) -> float:
        """Of queries, or of keys, whose exponents have the other sign."""
        return float(self.exponents(positions).abs().max().exp())
