"""The methods, as modules with the hooks of ``geolib.attention.Encoding``, and the registry that names them.

In one's own transformer::

    rope = RoPE(language_frequencies(64))          # once, in __init__; 64 features a head
    q, k = rope.to_reference(q, k, positions)      # in forward, before the inner product

By name, as models here do::

    encoding = build("rope-axial", width=192, heads=3, grid=(8, 8))

A new method is one class and one line of ``METHODS``; every test that runs over the registry then covers it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from geolib._checks import angle_dtype, check_positions, check_positive, require
from geolib.attention import Encoding, on_placed
from geolib.conformal import SCALE_LAWS, ScaleLaw, bounded_law
from geolib.locality import precision_matrix, precision_root, squared_distances
from geolib.rotations import axial_frequencies, language_frequencies, pair_angles, rotate_pairs
from geolib.transport import scale_features


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


class ALiBi(Encoding):
    """A penalty inside the softmax that grows linearly with the distance: -2^(-8h/H) |p_m - p_n|, h = 1 ... H.

    With more than one axis the distance is the sum over the axes: the factor is then the product of one gate a step
    along any shortest path on the grid.

    Parameters
    ----------
    heads : int
        H.

    Source: CS-A1.
    """

    slopes: Tensor

    def __init__(self, heads: int):
        super().__init__()
        require(heads > 0, "heads", heads, "at least one")
        self.register_buffer("slopes", 2.0 ** (-8 * torch.arange(1, heads + 1) / heads), persistent=False)

    def log_gate(self, x: Tensor, positions: Tensor) -> Tensor:
        """The penalty, (heads, tokens, tokens); zero in the rows and columns of tokens without a place."""
        unplaced = x.shape[-2] - positions.shape[0]
        require(unplaced >= 0, "positions", f"{positions.shape[0]} rows", f"x has {x.shape[-2]} tokens")
        p = positions.to(angle_dtype(positions))
        distance = (p[:, None] - p).abs().sum(-1)
        return F.pad(-self.slopes[:, None, None] * distance, (unplaced, 0, unplaced, 0))


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
    start : float
        s at the beginning. Close to 1, or far tokens vanish: their scores carry s^m.
    law : ScaleLaw
        s from the learned number, and the exponents from the positions.
    learn_angles : bool
        Whether the frequencies that are not zero are learned, in each head; otherwise they stay as given.

    Source: RF-6a, RF-11, RF-14, RF-S.
    """

    frequencies: Tensor
    follows: Tensor

    def __init__(
        self,
        frequencies: Tensor,
        heads: int,
        start: float = 0.99,
        law: ScaleLaw | None = None,
        learn_angles: bool = False,
    ):
        super().__init__()
        self.law = bounded_law() if law is None else law
        self.register_buffer("follows", (frequencies != 0).to(frequencies.dtype), persistent=False)
        # In float64: 1 - s has few digits left in float32 when s is close to 1.
        scales = torch.full(self.scale_shape(heads, frequencies), start, dtype=torch.float64)
        self.raw_scale = nn.Parameter(self.law.raw(scales).to(torch.get_default_dtype()))
        if learn_angles:
            self.frequencies = nn.Parameter(frequencies.repeat(heads, 1, 1))
        else:
            self.register_buffer("frequencies", frequencies, persistent=False)

    @staticmethod
    def scale_shape(heads: int, frequencies: Tensor) -> tuple[int, ...]:
        """One scale for each head and axis."""
        return heads, frequencies.shape[1]

    def log_scale(self) -> Tensor:
        """log s, (heads, axes)."""
        return self.law.log_scale(self.raw_scale)

    def pull_back(self, x: Tensor, positions: Tensor) -> Tensor:
        """T_m^-1 x_m for placed tokens only, (batch, heads, placed tokens, head_dim), in x's dtype."""
        angles = pair_angles(positions, self.frequencies * self.follows)
        rates = self.follows * self.log_scale()[:, None, :] / 2
        exponents = pair_angles(self.law.exponent(positions), rates).repeat_interleave(2, -1)
        return scale_features(rotate_pairs(x.to(angle_dtype(x)), -angles), exponents).to(x.dtype)

    def to_reference(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys, carried to the reference space."""
        return (
            on_placed(lambda placed: self.pull_back(placed, positions), q, positions),
            on_placed(lambda placed: self.pull_back(placed, positions), k, positions),
        )


class RiemannFormerGeneral(RiemannFormer):
    """The appendix's metric: T_m^-1 = S^(m/2) R(m theta), with two learned scales for each plane of each head.

    Pairs follow axes as in ``RiemannFormer``, with the sign of RoPE: queries and keys turn by +m theta. The metric
    turns with the frame, so a shift by c multiplies each feature's part of the score, in the turned basis, by its s^c.
    Parameters are those of ``RiemannFormer``.

    Source: RF-A2, RF-A5.
    """

    @staticmethod
    def scale_shape(heads: int, frequencies: Tensor) -> tuple[int, ...]:
        """One scale for each head and feature, in pairs."""
        return heads, frequencies.shape[0], 2

    def pull_back(self, x: Tensor, positions: Tensor) -> Tensor:
        """T_m^-1 x_m for placed tokens only, (batch, heads, placed tokens, head_dim), in x's dtype."""
        angles = pair_angles(positions, self.frequencies * self.follows)
        steps = pair_angles(self.law.exponent(positions), self.follows)
        exponents = (steps[:, :, None] * self.log_scale()[:, None] / 2).flatten(-2)
        return scale_features(rotate_pairs(x.to(angle_dtype(x)), angles), exponents).to(x.dtype)


class LocalityFocusing(Encoding):
    """Any encoding, its weights multiplied after the softmax by exp(-|p_m - p_n|_A^2 / (2 sigma^2)).

    Parameters
    ----------
    encoding : Encoding
        What the other hooks do, and an attenuation that multiplies this one.
    heads, axes : int
    sigma : float
        The initial width, in units of position.
    tokens : int
        1 for one learned width a head; the number of placed tokens for one a head and query.

    Notes
    -----
    The matrix A is learned, one for all heads, and begins as the identity. For long sequences without the matrix of
    weights, ``geolib.locality.fused_focused_attention`` takes ``sigma()`` and ``precision()``.

    Source: RF-19, RF-21, RF-22.
    """

    def __init__(self, encoding: Encoding, heads: int, axes: int, sigma: float, tokens: int = 1):
        super().__init__()
        check_positive(sigma, "sigma")
        self.encoding = encoding
        self.log_sigma = nn.Parameter(torch.full((heads, tokens), math.log(sigma)))
        self.raw_precision = nn.Parameter(torch.zeros(axes, axes))

    def sigma(self) -> Tensor:
        """The widths, (heads, 1) or (heads, placed tokens)."""
        return self.log_sigma.exp()

    def precision(self) -> Tensor:
        """The matrix A, (axes, axes)."""
        return precision_matrix(self.raw_precision)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """What the inner encoding does."""
        return self.encoding.embed(x, positions)

    def to_reference(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """What the inner encoding does."""
        return self.encoding.to_reference(q, k, positions)

    def log_gate(self, x: Tensor, positions: Tensor) -> Tensor | None:
        """What the inner encoding does."""
        return self.encoding.log_gate(x, positions)

    def attenuation(self, positions: Tensor) -> Tensor:
        """The Gaussian, times the inner encoding's attenuation where it has one; (heads, placed, placed)."""
        check_positions(positions, self.raw_precision.shape[0])
        count = self.log_sigma.shape[1]
        require(count in (1, len(positions)), "positions", f"{len(positions)} rows", f"there are {count} widths a head")
        dtype = angle_dtype(positions, self.log_sigma)
        # (u_m - u_n) of u = L^T p is the distance of A = L L^T; a sum of products keeps its digits under autocast.
        u = (positions.to(dtype)[:, :, None] * precision_root(self.raw_precision.to(dtype))).sum(1)
        omega = (-squared_distances(u) / 2 * (-2 * self.log_sigma.to(dtype)).exp().unsqueeze(-1)).exp()
        inner = self.encoding.attenuation(positions)
        return omega if inner is None else omega * inner

    def layer(self, index: int) -> Encoding:
        """This focusing around the inner encoding's view of the layer."""
        inner = self.encoding.layer(index)
        if inner is self.encoding:
            return self
        view = copy.copy(self)
        view._modules = {**self._modules, "encoding": inner}
        return view


class PerLayer(Encoding):
    """One encoding for each layer, with its own parameters.

    Parameters
    ----------
    layers : sequence of Encoding
        Embeddings are those of the first; the other hooks belong to ``layer(index)``.
    """

    def __init__(self, layers: Iterable[Encoding]):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """What the first layer's encoding does."""
        return self.layer(0).embed(x, positions)

    def layer(self, index: int) -> Encoding:
        """The encoding of layer ``index``, counted from 0."""
        require(0 <= index < len(self.layers), "index", index, f"there are {len(self.layers)} layers, counted from 0")
        encoding = self.layers[index]
        return encoding.layer(index)  # type: ignore[operator]

    def to_reference(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """RuntimeError: without a layer's index all layers would silently share the parameters of one."""
        raise _no_layer()

    def log_gate(self, x: Tensor, positions: Tensor) -> Tensor | None:
        """RuntimeError, as ``to_reference``."""
        raise _no_layer()

    def attenuation(self, positions: Tensor) -> Tensor | None:
        """RuntimeError, as ``to_reference``."""
        raise _no_layer()


def _no_layer() -> RuntimeError:
    return RuntimeError("this encoding has its own parameters for each layer: call the hooks of encoding.layer(index)")


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


def _own_layers(make: Callable[[int], Encoding], setting: Setting, per_layer: bool) -> Encoding:
    """One encoding shared by all layers, or one for each."""
    return PerLayer(make(i) for i in range(setting.layers)) if per_layer else make(0)


def _riemannian(
    method: type[RiemannFormer],
    setting: Setting,
    base: float = 100.0,
    law: str = "bounded",
    law_options: dict[str, float] | None = None,
    far: float = 0.9,
    learn_angles: bool = False,
    per_layer: bool = False,
) -> Encoding:
    """Scales that begin so that the metric at the far end of the longest axis is ``far`` times that at the origin."""
    require(law in SCALE_LAWS, "law", repr(law), f"the scale laws are {', '.join(SCALE_LAWS)}")
    check_positive(far, "far")
    scale_law = SCALE_LAWS[law](**(law_options or {}))
    frequencies = axial_frequencies(setting.head_dim, setting.axes, base)
    start = far ** (1 / float(scale_law.exponent(torch.tensor(max(setting.grid) - 1.0).clamp(min=1))))
    return _own_layers(
        lambda i: method(frequencies, setting.heads, start, scale_law, learn_angles=learn_angles), setting, per_layer
    )


def _focused(
    encoding: Encoding,
    setting: Setting,
    sigma: float | None = None,
    per_position: bool = False,
    per_layer: bool = False,
) -> Encoding:
    """Widths that begin at half of the longest axis."""
    width = max(setting.grid) / 2 if sigma is None else sigma
    tokens = math.prod(setting.grid) if per_position else 1
    return _own_layers(
        lambda i: LocalityFocusing(
            encoding.layer(i) if per_layer else encoding, setting.heads, setting.axes, width, tokens
        ),
        setting,
        per_layer,
    )


METHODS: dict[str, Callable[..., Encoding]] = {
    "none": lambda setting: Encoding(),
    "sinusoidal": lambda setting, **options: Sinusoidal(setting.width, setting.axes, **options),
    "learned": lambda setting: Learned(setting.width, setting.grid),
    "rope": _rope,
    "rope-axial": lambda setting, **options: RoPE(axial_frequencies(setting.head_dim, setting.axes, **options)),
    "alibi": lambda setting: ALiBi(setting.heads),
    "riemannformer": lambda setting, **options: _riemannian(RiemannFormer, setting, **options),
    "riemannformer-general": lambda setting, **options: _riemannian(RiemannFormerGeneral, setting, **options),
    "lf": lambda setting, **options: _focused(Encoding(), setting, **options),
}

# What may follow a method's name after a plus sign; its options are passed as a dictionary under the same name.
WRAPPERS: dict[str, Callable[..., Encoding]] = {"lf": _focused}


def build(name: str, *, width: int, heads: int, grid: tuple[int, ...], layers: int = 1, **options: Any) -> Encoding:
    """A method by name.

    Parameters
    ----------
    name : str
        A key of ``METHODS``; keys of ``WRAPPERS`` may follow after plus signs: ``"riemannformer+lf"``.
    width, heads, layers : int
        The model's.
    grid : tuple of int
        Cells along each axis; its length is the number of axes.
    **options
        The method's own (``base`` for RoPE); a wrapper's as a dictionary, ``lf={"sigma": 2.0}``.

    Returns
    -------
    Encoding

    Raises
    ------
    ValueError
        For an unknown name, heads that do not divide the width, or options the method does not have.
    """
    method, *wrappers = name.split("+")
    require(method in METHODS, "name", repr(name), f"the methods are {', '.join(METHODS)}")
    require(set(wrappers) <= set(WRAPPERS), "name", repr(name), f"after a plus sign: {', '.join(WRAPPERS)}")
    require(heads > 0 and width % heads == 0, "heads", heads, f"it must divide the width {width}")
    setting = Setting(width, heads, tuple(grid), layers)
    own = {key: value for key, value in options.items() if key not in wrappers}
    try:
        encoding = METHODS[method](setting, **own)
        for wrapper in wrappers:
            encoding = WRAPPERS[wrapper](encoding, setting, **options.get(wrapper, {}))
        return encoding
    except TypeError as error:
        raise ValueError(f"options: got {options}; {name} does not take them ({error})") from None
