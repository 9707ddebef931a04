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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from geolib._checks import angle_dtype, check_positions, check_positive, require
from geolib._compile import uncompiled
from geolib.attention import Encoding, on_placed
from geolib.conformal import SCALE_LAWS, ScaleLaw, bounded_law
from geolib.lie import (
    Rays,
    check_width,
    entry_count,
    find_rays,
    mixed_frequencies,
    position_rotations,
    skew_matrix,
    turn_blocks,
    uniform_entries,
)
from geolib.locality import fused_focused_attention, precision_matrix, precision_root, squared_distances
from geolib.recurrence import GATE_BIAS, SympowEncoding
from geolib.rotations import (
    alternating_frequencies,
    axial_frequencies,
    document_frequencies,
    language_frequencies,
    pair_angles,
    reflect_pairs,
    rotate_pairs,
)
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
    std : float
        Of the normal distribution that the vectors start from.

    Source: LR-T1 (the absolute-position column).
    """

    def __init__(self, width: int, grid: tuple[int, ...], std: float = 1.0):
        super().__init__()
        check_positive(std, "std")
        self.grid = tuple(grid)
        self.vectors = nn.Parameter(std * torch.randn(*self.grid, width))

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
        1 for scales, and learned angles, that all heads share.
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
    turns = 1.0
    """How many times theta the score turns by, for a step of one."""

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

    def angles(self, positions: Tensor) -> Tensor:
        """m theta of each pair, (heads or 1, placed tokens, pairs) or (placed tokens, pairs), radians."""
        return pair_angles(positions, self.frequencies * self.follows)

    def exponents(self, positions: Tensor) -> Tensor:
        """m/2 log s of each feature, (heads or 1, placed tokens, features)."""
        rates = self.follows * self.log_scale()[:, None, :] / 2
        return pair_angles(self.law.exponent(positions), rates).repeat_interleave(2, -1)

    def pull_back(self, x: Tensor, positions: Tensor) -> Tensor:
        """T_m^-1 x_m for placed tokens only, (batch, heads, placed tokens, head_dim), in x's dtype."""
        turned = rotate_pairs(x.to(angle_dtype(x)), -self.angles(positions))
        return scale_features(turned, self.exponents(positions)).to(x.dtype)

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

    def exponents(self, positions: Tensor) -> Tensor:
        """m/2 log s of each feature, (heads or 1, placed tokens, features)."""
        steps = pair_angles(self.law.exponent(positions), self.follows)
        return (steps[:, :, None] * self.log_scale()[:, None] / 2).flatten(-2)

    def pull_back(self, x: Tensor, positions: Tensor) -> Tensor:
        """T_m^-1 x_m for placed tokens only, (batch, heads, placed tokens, head_dim), in x's dtype."""
        turned = rotate_pairs(x.to(angle_dtype(x)), self.angles(positions))
        return scale_features(turned, self.exponents(positions)).to(x.dtype)


class RiemannFormerDiagonal(RiemannFormerGeneral):
    """A diagonal metric: T_m^-1 = R(-m theta) S^(m/2), with two learned scales for each plane of each head.

    The scales stand outside the rotation: the tangent mapping scales first and turns then. A common shift by c scales
    each feature of queries and keys by its s^(c/2). Parameters are those of ``RiemannFormer``.

    Source: RF-5, RF-6.
    """

    def pull_back(self, x: Tensor, positions: Tensor) -> Tensor:
        """T_m^-1 x_m for placed tokens only, (batch, heads, placed tokens, head_dim), in x's dtype."""
        scaled = scale_features(x.to(angle_dtype(x)), self.exponents(positions))
        return rotate_pairs(scaled, -self.angles(positions)).to(x.dtype)


class RiemannFormerReflection(RiemannFormer):
    """RiemannFormer with mirrors for rotations: T_m^-1 = s^(m/2) S(m theta), its own inverse when s = 1.

    The score is that of ``RiemannFormer`` with the doubled angles. Parameters are those of ``RiemannFormer``; theta is
    how far a mirror line turns for a step of one.

    Source: RF-16, RF-REFL.
    """

    turns = 2.0

    def pull_back(self, x: Tensor, positions: Tensor) -> Tensor:
        """T_m^-1 x_m for placed tokens only, (batch, heads, placed tokens, head_dim), in x's dtype."""
        mirrored = reflect_pairs(x.to(angle_dtype(x)), self.angles(positions))
        return scale_features(mirrored, self.exponents(positions)).to(x.dtype)


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
    learn_precision : bool
        Whether the matrix A, one for all heads, is learned; it begins as the identity and otherwise stays it.

    Notes
    -----
    Long sequences on a CPU take the fused form,
    which needs no matrix of weights.

    Source: RF-19, RF-21, RF-22.
    """

    raw_precision: Tensor

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
        self.encoding = encoding
        self.log_sigma = nn.Parameter(torch.full((heads, tokens), math.log(sigma)))
        if learn_precision:
            self.raw_precision = nn.Parameter(torch.zeros(axes, axes))
        else:
            self.register_buffer("raw_precision", torch.zeros(axes, axes), persistent=False)

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
        u = self._whitened(positions)
        omega = (-squared_distances(u) / 2 * (-2 * self.log_sigma.to(u.dtype)).exp().unsqueeze(-1)).exp()
        inner = self.encoding.attenuation(positions)
        return omega if inner is None else omega * inner

    def _whitened(self, positions: Tensor) -> Tensor:
        """u = L^T p with A = L L^T, so that |u_m - u_n| is the distance of A; (placed tokens, axes)."""
        check_positions(positions, self.raw_precision.shape[0])
        count = self.log_sigma.shape[1]
        require(count in (1, len(positions)), "positions", f"{len(positions)} rows", f"there are {count} widths a head")
        dtype = angle_dtype(positions, self.log_sigma)
        # A sum of products, not a matrix product, keeps its digits under autocast.
        return (positions.to(dtype)[:, :, None] * precision_root(self.raw_precision.to(dtype))).sum(1)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, positions: Tensor, log_gate: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """Attention with the Gaussian after its softmax, by whichever form is faster; both give the same numbers.

        Parameters and return value are those of ``Encoding.attend``.

        Source: RF-FUSED, RF-22.
        """
        plain = log_gate is None and not causal and self.encoding.attenuation(positions) is None
        if plain and self._long(q):
            return fused_focused_attention(q, k, v, self._whitened(positions), self.sigma())
        return super().attend(q, k, v, positions, log_gate=log_gate, causal=causal)

    @staticmethod
    def _long(q: Tensor) -> bool:
        """Whether the fused form pays.

        It works through blocks of queries that stay in a CPU's cache: slower by a tenth or two at 64 tokens, faster
        from about 256 on. Compiled and on a GPU the literal form is a few large kernels and stays.
        """
        return q.shape[-2] >= 256 and q.device.type == "cpu" and not torch.compiler.is_compiling()

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


@dataclass
class _Kept:
    """Rotations between calls: for which positions, and in which state of the generators."""

    positions: Tensor
    values: Tensor
    version: Any
    rays: Rays
    state: tuple[Any, ...] = ()
    rotations: Tensor | None = None
    opened_by: int = -1

    def at(self, positions: Tensor) -> bool:
        """Whether these are the same positions; the same tensor, unchanged, is not read again."""
        if positions is self.positions and _version(positions) == self.version:
            return True
        like = (positions.shape, positions.dtype, positions.device)
        return like == (self.values.shape, self.values.dtype, self.values.device) and torch.equal(
            positions, self.values
        )

    def drop(self) -> None:
        """Let go of the rotations and their graph; the rays stay."""
        self.rotations = None


def _version(x: Tensor) -> Any:
    """A tensor's count of in-place changes; inference tensors do not count, so theirs equals nothing."""
    return object() if x.is_inference() else x._version


class LieRE(Encoding):
    """Rotations exp(sum_i p_i A_i) with learned skew generators A_i; block width 2 is RoPE-Mixed.

    Ask for a layer before use: ``lie.layer(3).to_reference(q, k, positions)``. Layers that share their generators, or a
    model of one layer, may use the module itself.

    Parameters
    ----------
    entries : Tensor, (layers or 1, heads or 1, blocks, axes, width (width - 1) / 2)
        Where the generators start: strict upper triangles, radians per unit of position. The size 1 means shared.
    width : int
        Block width b; blocks * b features are turned.
    layers : int
        Layers that will ask for a view.
    unit : sequence of float, or None
        Positions are divided by it, axis by axis. LieRE's own choice is the number of cells minus one, so that a
        training image spans [0, 1] and a larger one goes beyond. None: positions as they are.

    Notes
    -----
    The first layer to ask in a forward pass computes the rotations of all layers with one batched exponential; the
    others take theirs from it. In training a pass ends with its backward pass, or when the layer that opened it asks
    again, so every pass has a graph of its own, and activation checkpointing meets the rotations it met before.

    In evaluation (``eval()``, and no gradients asked for) the rotations stay until the generators or the positions
    change: in-place updates, ``load_state_dict``, ``to``, ``train`` and ``eval`` are all noticed. Not noticed: writing
    through ``generators.data`` between two calls in evaluation; call ``forget`` after it.

    Width 2 keeps nothing: its angles cost little. Under ``torch.compile`` wider blocks break the graph at this point.

    Weight decay would pull the rotations towards the identity: leave ``generators`` out of it.

    Source: LR-A1, LR-blk, LR-B5, LR-3D, LR-CODE.
    """

    unit: Tensor

    def __init__(self, entries: Tensor, width: int, *, layers: int = 1, unit: Sequence[float] | None = None):
        super().__init__()
        came, count = tuple(entries.shape), entry_count(width)
        require(
            len(came) == 5 and came[-1] == count, "entries", f"shape {came}", f"(layers, heads, blocks, axes, {count})"
        )
        require(came[0] in (1, layers), "entries", f"{came[0]} layers", f"1 or the {layers} layers of the model")
        unit = [1.0] * came[3] if unit is None else list(unit)
        require(len(unit) == came[3], "unit", unit, f"one number for each of the {came[3]} axes")
        for u in unit:
            check_positive(u, "unit")
        self.width = width
        self.generators = nn.Parameter(entries)
        self.register_buffer("unit", torch.tensor(unit, dtype=torch.float32), persistent=False)
        self._kept: _Kept | None = None
        # Made once, in a tuple: views are no submodules, and hold no parameters of their own.
        self._views = tuple(_LieRELayer(self, i) for i in range(layers))

    def layer(self, index: int) -> Encoding:
        """The encoding of one layer, with that layer's generators."""
        require(0 <= index < len(self._views), "index", index, f"0 to {len(self._views) - 1}: the model's layers")
        return self._views[index]

    def to_reference(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys, turned by generators that all layers share."""
        require(len(self.generators) == 1, "layer", "none", f"{len(self.generators)} layers differ: use layer(index)")
        return self._views[0].to_reference(q, k, positions)

    def skew(self) -> Tensor:
        """The generators as matrices, (layers or 1, heads or 1, blocks, axes, width, width), radians per unit."""
        return skew_matrix(self.generators, self.width)

    def rotations(self, positions: Tensor) -> Tensor:
        """The rotations of all layers, computed afresh.

        Parameters
        ----------
        positions : Tensor, (tokens, axes)

        Returns
        -------
        Tensor, (layers or 1, heads or 1, tokens, blocks, width, width)
            float32 or float64.
        """
        return self._exponentials(positions, None)

    def forget(self) -> None:
        """Drop the rotations that are kept."""
        self._kept = None

    def train(self, mode: bool = True) -> LieRE:
        """Switch between training and evaluation, and drop what is kept."""
        self.forget()
        return super().train(mode)

    def _apply(self, *args: Any, **kwargs: Any) -> LieRE:
        self.forget()
        return super()._apply(*args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        # What is kept has a graph, which neither copies nor pickles.
        return {**self.__dict__, "_kept": None}

    def _exponentials(self, positions: Tensor, rays: Rays | None) -> Tensor:
        check_positions(positions, self.generators.shape[3])
        dtype = angle_dtype(positions, self.generators)
        skew = self.skew().to(dtype) / self.unit.to(dtype)[:, None, None]
        return position_rotations(positions, skew, rays).permute(1, 2, 0, 3, 4, 5)

    def _angles(self, index: int, positions: Tensor) -> Tensor:
        """The angles of width 2, (heads or 1, tokens, blocks): the entry u turns by -u."""
        entries = self.generators[min(index, len(self.generators) - 1), ..., 0]
        dtype = angle_dtype(positions, entries)
        return pair_angles(positions, -entries.to(dtype) / self.unit.to(dtype))

    @uncompiled
    def _layer_rotations(self, index: int, positions: Tensor, dtype: torch.dtype) -> Tensor:
        """One layer's rotations in the wanted dtype, (heads or 1, tokens, blocks, width, width)."""
        recording = torch.is_grad_enabled() and self.generators.requires_grad
        state = (
            recording,
            torch.is_inference_mode_enabled(),
            dtype,
            _version(self.generators),
            self.generators.data_ptr(),
        )
        kept, lasting = self._kept, not (recording or self.training)
        if kept is None or not kept.at(positions):
            kept = self._kept = _Kept(positions, positions.detach().clone(), _version(positions), find_rays(positions))
        if kept.rotations is None or kept.state != state or (index == kept.opened_by and not lasting):
            rotations = self._exponentials(positions, kept.rays).to(dtype)
            kept.state, kept.opened_by = state, index
            kept.rotations = rotations.contiguous() if lasting else rotations
            if recording:
                # The backward pass frees the graph behind these rotations: whoever comes later needs new ones.
                rotations.register_hook(lambda gradient: kept.drop())
        return kept.rotations[min(index, len(kept.rotations) - 1)]


class _LieRELayer(Encoding):
    """One layer's view of a ``LieRE``."""

    def __init__(self, source: LieRE, index: int):
        super().__init__()
        self._source, self._index = (source,), index  # in a tuple: the view does not own the module

    def to_reference(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys, turned by this layer's generators."""
        (source,), index = self._source, self._index
        if source.width == 2:
            angles = source._angles(index, positions)
            return (
                on_placed(lambda placed: rotate_pairs(placed, angles), q, positions),
                on_placed(lambda placed: rotate_pairs(placed, angles), k, positions),
            )
        rotations = source._layer_rotations(index, positions, q.dtype)
        return (
            on_placed(lambda placed: turn_blocks(placed, rotations), q, positions),
            on_placed(lambda placed: turn_blocks(placed, rotations), k, positions),
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
    return RoPE(_in_reading_order(language_frequencies(setting.head_dim, base), setting))


def _in_reading_order(frequencies: Tensor, setting: Setting) -> Tensor:
    """Frequencies of one axis, (pairs, 1), for a grid whose cells count in reading order, (pairs, axes)."""
    # The index of a cell is linear in its coordinates, so reading order is one more frequency matrix.
    return frequencies * torch.tensor([float(math.prod(setting.grid[i + 1 :])) for i in range(setting.axes)])


def _sympow_gates(setting: Setting, longest: float = 65536.0, gate_bias: float = GATE_BIAS) -> SympowEncoding:
    """Data-dependent gates along the tokens' order, and the frequencies of the longest document."""
    frequencies = _in_reading_order(document_frequencies(setting.head_dim, longest), setting)
    return SympowEncoding(setting.width, setting.heads, frequencies, gate_bias)


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
    start = far ** (1 / float(scale_law.exponent(torch.tensor(max(setting.grid) - 1.0).clamp(min=1))))
    return _own_layers(
        lambda i: method(frequencies, heads, start, scale_law, learn_angles=learn_angles), setting, per_layer
    )


def _focused(
    encoding: Encoding,
    setting: Setting,
    sigma: float | None = None,
    per_position: bool = False,
    per_layer: bool = False,
    learn_precision: bool = True,
) -> Encoding:
    """Widths that begin at half of the longest axis."""
    width = max(setting.grid) / 2 if sigma is None else sigma
    tokens = math.prod(setting.grid) if per_position else 1
    return _own_layers(
        lambda i: LocalityFocusing(
            encoding.layer(i) if per_layer else encoding, setting.heads, setting.axes, width, tokens, learn_precision
        ),
        setting,
        per_layer,
    )


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
    "sinusoidal": lambda setting, **options: Sinusoidal(setting.width, setting.axes, **options),
    "learned": lambda setting, **options: Learned(setting.width, setting.grid, **options),
    "rope": _rope,
    "rope-axial": lambda setting, **options: RoPE(axial_frequencies(setting.head_dim, setting.axes, **options)),
    "alibi": lambda setting: ALiBi(setting.heads),
    "riemannformer": lambda setting, **options: _riemannian(RiemannFormer, setting, **options),
    "riemannformer-general": lambda setting, **options: _riemannian(RiemannFormerGeneral, setting, **options),
    "riemannformer-diagonal": lambda setting, **options: _riemannian(RiemannFormerDiagonal, setting, **options),
    "riemannformer-reflection": lambda setting, **options: _riemannian(RiemannFormerReflection, setting, **options),
    "lf": lambda setting, **options: _focused(Encoding(), setting, **options),
    "visionllama": _visionllama,
    "rope-mixed": _rope_mixed,
    "liere": _liere,
    "sympow-gates": _sympow_gates,
}

# What may follow a method's name after a plus sign; its options are passed as a dictionary under the same name.
WRAPPERS: dict[str, Callable[..., Encoding]] = {"lf": _focused}


def is_name(name: str) -> bool:
    """Whether ``build`` knows the name: a key of ``METHODS``, perhaps with keys of ``WRAPPERS`` after plus signs."""
    method, *wrappers = name.split("+")
    return method in METHODS and set(wrappers) <= set(WRAPPERS)


def check_name(name: str, argument: str = "name") -> None:
    """ValueError for a name that ``build`` does not know."""
    allowed = f"the methods are {', '.join(METHODS)}; after a plus sign: {', '.join(WRAPPERS)}"
    require(is_name(name), argument, repr(name), allowed)


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
    check_name(name)
    method, *wrappers = name.split("+")
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
