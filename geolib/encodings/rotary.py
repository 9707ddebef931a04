"""Rotary encodings: queries and keys turned, each by its own position, before their inner product.

``Carried`` is what every method that turns vectors leaves behind when it is placed: a table for the queries, one for
the keys, and the map that applies them. A table has a row for each placed token; one of queries and keys that stand at
the same positions is one tensor.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor

from geolib import rotations
from geolib._checks import angle_dtype, check_count, check_even, check_floating, check_positive, require, wide
from geolib._precision import numbered
from geolib.attention import Encoding, Placed, as_places, largest
from geolib.encodings.composite import Composite, PerLayer, check_encoding, turned_features
from geolib.rotations import axial_frequencies, language_frequencies, pair_angles, to_half_split, to_interleaved

__all__ = [
    "KINDS", "Carried", "HalfSplit", "LengthRoPE", "Paired", "PlacedHalfSplit", "RoPE", "at_both", "check_frequencies",
    "cis", "counts", "for_heads", "turn_halves", "turn_pairs",
]  # fmt: skip


class Paired(Encoding):
    """An encoding that turns pairs of features at ``frequencies``, (..., pairs, axes).

    >>> RoPE.text(64).paired
    64
    """

    frequencies: Tensor

    @property
    def paired(self) -> int:
        return 2 * self.frequencies.shape[-2]

    def extra_repr(self) -> str:
        return f"pairs={self.frequencies.shape[-2]}, axes={self.frequencies.shape[-1]}"


class RoPE(Paired):
    """Rotary encoding: pair j of queries and keys turns by p . frequencies[j].

    ``to_reference`` applies R(m theta) to both (the sign of RoPE), so the score depends on n - m alone. Frequencies,
    (pairs, axes) or (heads, pairs, axes), come from ``geolib.rotations``. All features of a head turn, or, where
    ``rotary_dim`` says so, the first ones alone. Turned pairs come out ``length`` times as long: 1, or ``yarn_length``
    with YaRN's frequencies.
    Source: LR-A2, RF-13 with s = 1.

    >>> placed = RoPE(torch.tensor([[math.pi / 2]])).place(torch.tensor([[0.0], [1.0]]))
    >>> q = k = torch.tensor([[[[1.0, 0.0], [1.0, 0.0]]]])
    >>> placed.to_reference(q, k)[0].round().abs()  # the second token is a quarter turn away
    tensor([[[[1., 0.],
              [0., 1.]]]])
    """

    settings: tuple[str, ...] = ("length",)

    def __init__(self, frequencies: Tensor, length: float = 1.0, rotary_dim: int | None = None):
        super().__init__()
        check_frequencies(frequencies, "(pairs, axes)", "(heads, pairs, axes)")
        if rotary_dim not in (None, 2 * frequencies.shape[-2]):
            require(False, "rotary_dim", rotary_dim, f"the frequencies turn {2 * frequencies.shape[-2]} features")
        self.rotary_dim = rotary_dim
        if not 0 < length < math.inf:
            check_positive(length, "length")
        self.length = length
        self.register_buffer("frequencies", frequencies, persistent=False)

    @classmethod
    def text(cls, head_dim: int, base: float = 10000.0, rotary_dim: int | None = None) -> Self:
        """RoPE for one axis, as language models have it: ``language_frequencies`` of a head's features.

        With ``rotary_dim`` of those alone that come first, whose frequencies they then are (partial rotary).

        >>> RoPE.text(64)
        RoPE(pairs=32, axes=1)

        Source: LR-A2.
        """
        turned = head_dim if rotary_dim is None else rotary_dim
        if turned > head_dim:
            require(False, "rotary_dim", rotary_dim, f"a head has {head_dim} features")
        frequencies = language_frequencies(turned, base)
        made = numbered(cls.text)(head_dim, base, rotary_dim) if frequencies.is_meta else cls(frequencies)
        made.rotary_dim = rotary_dim
        return made

    @classmethod
    def image(cls, head_dim: int, axes: int = 2, base: float = 100.0) -> Self:
        """RoPE for a grid, half of the pairs an axis: ``axial_frequencies`` of a head's features.

        >>> RoPE.image(64)
        RoPE(pairs=32, axes=2)

        Source: RF-S.
        """
        frequencies = axial_frequencies(head_dim, axes, base)
        return numbered(cls.image)(head_dim, axes, base) if frequencies.is_meta else cls(frequencies)

    @staticmethod
    def from_config(config: Any) -> Encoding:
        """What a language model of Hugging Face's library turns by, from its configuration.

        For ``use_encoding``, or for its checkpoint elsewhere: base, scaling of every ``rope_type`` (default, linear,
        dynamic, yarn, longrope, llama3, proportional), partial rotary, order of pairs, positions on three axes (MRoPE:
        time, height, width). Where layers differ in base, or some do not turn, it is one encoding for each layer. Not
        read: how scores are scaled beside. ValueError for kinds of models outside of ``KINDS``.

        >>> from types import SimpleNamespace
        >>> sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "rope_theta": 500.0}
        >>> RoPE.from_config(SimpleNamespace(model_type="llama", **sizes)).encoding
        RoPE(pairs=4, axes=1)
        """
        require(hasattr(config, "model_type"), "config", type(config).__name__, "a configuration of transformers")
        config = config.get_text_config() if hasattr(config, "get_text_config") else config
        kinds = f"its rotations, or its positions, are of its own; served are {', '.join(sorted(KINDS))}"
        require(config.model_type in KINDS, "config", f"model_type {config.model_type!r}", kinds)
        read = [_layer(config, index) for index in range(config.num_hidden_layers)]
        made = {repr(layer): _encoding(config, *layer) if layer else Encoding() for layer in read}
        return PerLayer(made[repr(layer)] for layer in read) if len(made) > 1 else made[repr(read[0])]

    def extra_repr(self) -> str:
        own = f", heads={self.frequencies.shape[0]}" if self.frequencies.dim() == 3 else ""
        own += f", length={self.length:g}" if self.length != 1 else ""
        return super().extra_repr() + own + (f", rotary_dim={self.rotary_dim}" if self.rotary_dim else "")

    def turns(self, positions: Tensor) -> Tensor:
        """The turn of each pair as a complex number, (..., tokens, pairs, 2)."""
        turns = cis(pair_angles(for_heads(positions), self.frequencies))
        return turns if self.length == 1 else self.length * turns

    def place(self, positions: Tensor, keys: Tensor | None = None) -> Placed:
        positions, keys = as_places(positions, keys, self.frequencies.shape[-1])
        heads = self.frequencies.shape[0] if self.frequencies.dim() == 3 else 1
        tables, features = at_both(self.turns, positions, keys), None if self.rotary_dim else self.paired
        return Carried(turn_pairs, tables, counts(positions, keys), heads, features)


class LengthRoPE(RoPE):
    """RoPE that turns long texts otherwise: the largest position of a pass decides how.

    For texts of more than ``trained`` tokens, ``longer`` stand in place of the frequencies (LongRoPE); or, without
    them, pairs are slowed as by ``ntk_aware``, by ``factor`` tokens / trained - (factor - 1) (dynamic NTK).

    >>> rope = LengthRoPE(torch.tensor([[1.0], [0.1]]), trained=4, longer=torch.tensor([[0.5], [0.05]]))
    >>> rope.at(torch.arange(4)).flatten(), rope.at(torch.arange(5)).flatten()
    (tensor([1.0000, 0.1000]), tensor([0.5000, 0.0500]))
    """

    longer: Tensor | None
    settings = ("length", "trained", "factor")

    def __init__(
        self,
        frequencies: Tensor,
        trained: int,
        longer: Tensor | None = None,
        factor: float = 1.0,
        length: float = 1.0,
        rotary_dim: int | None = None,
    ):
        check_frequencies(frequencies, "(pairs, axes)")
        super().__init__(frequencies, length, rotary_dim)
        for argument, x in (("trained", trained), ("factor", factor)):
            check_positive(x, argument)
        shape = None if longer is None else longer.shape
        require(shape in (None, frequencies.shape), "longer", shape, f"{tuple(frequencies.shape)}, as frequencies")
        self.trained, self.factor = trained, factor
        self.register_buffer("longer", longer, persistent=False)

    def at(self, *positions: Tensor | None) -> Tensor:
        """The frequencies for texts that reach as far as these positions."""
        ends = [wide(p.max()) for p in positions if p is not None and p.numel()]
        reach = torch.stack(ends or [wide(self.frequencies.new_zeros(()))]).max() + 1
        if self.longer is not None:
            return torch.where(reach > self.trained, self.longer, self.frequencies)
        grown = self.factor * (reach / self.trained).clamp(min=1) - (self.factor - 1)
        share = torch.linspace(0, 1, len(self.frequencies), dtype=grown.dtype, device=reach.device)
        return (self.frequencies.to(grown.dtype) * grown ** -share[:, None]).to(self.frequencies.dtype)

    def place(self, positions: Tensor, keys: Tensor | None = None) -> Placed:
        positions, keys = as_places(positions, keys, self.frequencies.shape[-1])
        frequencies = self.at(positions, keys)
        tables = at_both(lambda p: self.length * cis(pair_angles(for_heads(p), frequencies)), positions, keys)
        return Carried(turn_pairs, tables, counts(positions, keys), 1, None if self.rotary_dim else self.paired)


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

    settings = ("turned",)

    def __init__(self, encoding: Encoding, turned: int | None = None):
        super().__init__()
        check_encoding(encoding, "encoding")
        least = turned_features(encoding)
        sizes = {part.paired for part in encoding.modules() if isinstance(part, Encoding) and part.paired}
        if turned is None and len(sizes) > 1:
            require(False, "turned", None, f"parts turn {sorted(sizes)} features: say it, or put HalfSplit around each")
        if turned is not None:
            check_even(turned, "turned")
            require(turned >= (least or 0), "turned", turned, f"the encoding turns {least} features")
        self.encoding, self.turned = encoding, least if turned is None else turned

    def extra_repr(self) -> str:
        return "" if self.turned is None else f"turned={self.turned}"

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return self.encoding.embed(x, positions)

    def place(self, positions: Tensor, keys: Tensor | None = None) -> Placed:
        return PlacedHalfSplit(self.encoding.place(positions, keys), self.turned).direct()


class PlacedHalfSplit(Composite):
    """Queries and keys with half-split pairs, carried by a method that has them interleaved."""

    def __init__(self, inner: Placed, turned: int | None = None):
        super().__init__([inner])
        self.turned = turned

    def to_reference(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Into the other order, to the reference space, and back.

        >>> PlacedHalfSplit(Placed()).to_reference(torch.arange(4.0), torch.arange(4.0))[0]
        tensor([0., 1., 2., 3.])
        """
        a, b = self.parts[0].to_reference(to_interleaved(q, self.turned), to_interleaved(k, self.turned))
        return to_half_split(a, self.turned), to_half_split(b, self.turned)

    def direct(self) -> Placed:
        """The same in one step, where the method turns just these pairs and does nothing else to vectors."""
        inner = self.parts[0]
        if not isinstance(inner, Carried) or inner.act is not turn_pairs:
            return self
        if 2 * inner.tables[0].shape[-2] != self.turned:
            return self
        inner = copy.copy(inner)
        inner.acts_by(turn_halves)
        return inner

    def layer(self, index: int) -> Placed:
        own = super().layer(index)
        return own.direct() if isinstance(own, PlacedHalfSplit) else own

    def attend(self, q: Tensor, k: Tensor, v: Tensor, *given: Any, **options: Any) -> Tensor:
        return self.parts[0].attend(q, k, v, *given, **options)

    def weights(self, q: Tensor, k: Tensor, *given: Any, **options: Any) -> Tensor:
        return self.parts[0].weights(q, k, *given, **options)


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
        if not largest(frequencies) < math.inf:
            require(False, "frequencies", "inf or NaN", "frequencies must be finite")
        return
    made = "language_frequencies(64) and others of geolib.rotations make them, and RoPE.text(64), RoPE.image(64)"
    made += " take them"
    hint = "of one axis write frequencies[:, None]" if came.endswith(",)") else made
    require(False, "frequencies", came, f"a tensor of floats, {' or '.join(shapes)}: {hint}")


class Carried(Placed):
    """Queries and keys carried to the reference space by ``act(x, table)``, with a table for each.

    A table may be a tuple of tensors; ``counts`` are the placed queries and keys; ``heads`` is how many heads have
    tables of their own, 1 where all share them; ``features`` are those of a head, where no others may stay as they are.
    """

    counts: tuple[int, int]
    layers: int | None = None
    """In how many layers it may be used, where that is known."""
    ready: tuple[Callable[..., Tensor], tuple[Any, Any]] | None = None
    """What it does to vectors of 32 bits or fewer by tables made of its own, once for all layers."""

    def __init__(
        self,
        act: Callable[[Tensor, Any], Tensor],
        tables: tuple[Any, Any],
        counts: tuple[int, int],
        heads: int = 1,
        features: int | None = None,
    ):
        self.tables, self.counts, self.heads, self.features = tables, counts, heads, features
        self.acts_by(act)

    def acts_by(self, act: Callable[[Tensor, Any], Tensor]) -> None:
        """Apply its tables by this act."""
        (own, there), self.act, self.ready = self.tables, act, None
        graph = torch.compiler.is_compiling() or torch.jit.is_tracing()
        if act in _IN_STEPS and not graph and not own.requires_grad:
            prepare, apply = _IN_STEPS[act]
            made = prepare(own, torch.float32)
            self.ready = apply, (made, made if there is own else prepare(there, torch.float32))

    def to_reference(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """The placed queries and keys, each by its table.

        >>> quarter = torch.tensor([[[0.0, 1.0]]])
        >>> placed = Carried(turn_pairs, (quarter, quarter), (1, 1))
        >>> placed.to_reference(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]]))
        (tensor([[0., 1.]]), tensor([[-1.,  0.]]))
        """
        return self._carried("q", q, 0), self._carried("k", k, 1)

    def _carried(self, argument: str, x: Tensor, side: int) -> Tensor:
        """Queries (0) or keys (1); ValueError where they are not what the table was made for."""
        if not isinstance(x, Tensor) or not x.is_floating_point():
            check_floating(x, argument)
        shape, rows, front = x.shape, self.counts[side], self.unplaced[side]
        if rows + front != shape[-2]:
            check_count(rows, shape[-2], front)
        if self.heads not in (1, shape[-3] if x.dim() > 2 else 1):
            own = f"the encoding has {self.heads} heads of its own; where query heads share keys, "
            require(False, argument, shape, own + "repeat_heads(k, heads)")
        if self.features is not None and self.features < shape[-1]:
            said = f"the encoding turns {self.features} features; RoPE leaves others with rotary_dim="
            require(False, argument, shape, f"{said}{self.features}")
        needed = "positions were placed for another number of samples"
        try:
            act, tables = self.ready if self.ready and x.dtype != torch.float64 else (self.act, self.tables)
            y = act(x[..., front:, :] if front else x, tables[side])
        except RuntimeError as error:
            if "match the size" in str(error) or "not broadcast" in str(error):
                raise ValueError(f"{argument}: got shape {tuple(shape)}; {needed}") from error
            if "same device" in str(error) or "expected device" in str(error):
                raise ValueError(f"{argument}: got a tensor on {x.device}; positions: {error}") from error
            raise
        if front:
            y = torch.cat([x[..., :front, :], y], -2)
        if y.shape != shape:
            require(False, argument, shape, f"{needed}, {y.shape[0]}")
        return y

    def layer(self, index: int) -> Placed:
        """Itself, in each of the layers that it was made for."""
        most = self.layers
        require(most is None or index < most, "index", index, f"the encoding was made for layers={most}, from 0 on")
        return self


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
    if torch.compiler.is_compiling():  # the compiler fuses real products into one kernel and has none for complex ones
        return _turned(x, turns.to(angle_dtype(x)))
    return _turned(x, _as_complex(turns, angle_dtype(x)))


def _as_complex(turns: Tensor, dtype: torch.dtype) -> Tensor:
    """A table as complex numbers, (..., tokens, pairs); one of whole positions is float64."""
    return torch.view_as_complex(turns.to(dtype))


def _turned(x: Tensor, turns: Tensor) -> Tensor:
    """Pairs of x times complex numbers, or times their real and imaginary parts."""
    real = not turns.is_complex()
    size, features = 2 * turns.shape[-1 - real], x.shape[-1]
    if size != features:
        require(size < features, "frequencies", f"{size // 2} pairs", lambda: f"x has {features} features")
        return torch.cat([_turned(x[..., :size], turns), x[..., size:]], -1)
    pairs = torch.unflatten(x if x.dtype == torch.float64 else x.float(), -1, (-1, 2))
    if real:
        (a, b), (c, s) = pairs.unbind(-1), turns.unbind(-1)
        return torch.stack([c * a - s * b, s * a + c * b], -1).flatten(-2).to(x.dtype)
    fits = pairs.stride(-1) == 1 and pairs.storage_offset() % 2 == 0
    for step in pairs.stride()[:-1]:
        fits = fits and step % 2 == 0
    if not fits:  # memory lies unlike complex numbers
        pairs = pairs.clone().contiguous()
    return torch.view_as_real(torch.view_as_complex(pairs) * turns).flatten(-2).to(x.dtype)


def turn_halves(x: Tensor, turns: Tensor) -> Tensor:
    """What ``turn_pairs`` does to half-split pairs, (i, i + pairs), without bringing them into another order.

    >>> turn_halves(torch.tensor([[1.0, 5.0, 0.0, 6.0, 7.0]]), torch.tensor([[[0.0, 2.0], [1.0, 0.0]]]))
    tensor([[0., 5., 2., 6., 7.]])
    """
    return _turned_halves(x, _as_halves(turns, angle_dtype(x)))


def _as_halves(turns: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """What each feature and its partner, half the features away, are multiplied by, (..., tokens, 2 pairs) each."""
    c, s = turns.to(dtype).unbind(-1)
    return torch.cat([c, c], -1), torch.cat([-s, s], -1)


def _turned_halves(x: Tensor, table: tuple[Tensor, Tensor]) -> Tensor:
    """``turn_halves`` by its table."""
    own, other = table
    size, features = own.shape[-1], x.shape[-1]
    if size != features:
        require(size < features, "frequencies", f"{size // 2} pairs", lambda: f"x has {features} features")
        return torch.cat([_turned_halves(x[..., :size], table), x[..., size:]], -1)
    wide = x.to(own.dtype)
    return torch.addcmul(wide * own, wide.roll(size // 2, -1), other).to(x.dtype)


_IN_STEPS: dict[Any, tuple[Callable[..., Any], Callable[..., Tensor]]] = {
    turn_pairs: (_as_complex, _turned),
    turn_halves: (_as_halves, _turned_halves),
}
"""What such an act makes of its table, once for all layers, and what it does to vectors by that."""


def cis(angles: Tensor) -> Tensor:
    """(cos a, sin a), (..., 2): a table for ``turn_pairs``.

    >>> cis(torch.tensor(0.0))
    tensor([1., 0.])
    """
    return torch.stack([angles.cos(), angles.sin()], -1)


# Configurations of Hugging Face's library ----------------------------------------------------------------------------

_LIKE_LLAMA = (
    "apertus", "arcee", "aria_text", "bitnet", "cwm", "flex_olmo", "gemma", "gemma2", "gemma3_text", "gemma3n_text",
    "gemma4_text", "granite", "granitemoe", "granitemoeshared", "hy_v3", "hyperclovax", "jais2", "jetmoe", "lfm2",
    "llama", "minimax", "ministral", "ministral3", "mistral", "mixtral", "modernbert", "olmo", "olmo2", "olmo3",
    "olmo_hybrid", "olmoe", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "seed_oss", "smollm3", "starcoder2",
    "vaultgemma",
)  # fmt: skip
_PARTIAL = (
    "glm4_moe", "mellum", "minimax_m2", "nemotron", "persimmon", "phi", "phi3", "qwen3_next", "solar_open", "stablelm",
)  # fmt: skip
KINDS: dict[str, str] = {
    **dict.fromkeys(_LIKE_LLAMA, ""),
    **dict.fromkeys(_PARTIAL, "partial"),  # also where nothing is scaled
    "phimoe": "short",  # long texts turn as short ones
    **dict.fromkeys(["cohere", "ernie4_5", "ernie4_5_moe", "helium"], "interleaved"),
    **dict.fromkeys(["glm", "glm4"], "interleaved partial"),
    **dict.fromkeys(["cohere2", "cohere2_moe"], "interleaved windows"),  # layers without a window do not turn,
    **dict.fromkeys(["afmoe"], "windows"),
    **dict.fromkeys(["exaone4", "exaone_moe", "kolibri1"], "globals"),  # or not where others have one
    **dict.fromkeys(["qwen2_vl_text", "qwen2_5_vl_text"], "chunks"),  # of pairs for time, height and width,
    **dict.fromkeys(["qwen3_vl_text", "qwen3_vl_moe_text"], "rounds"),  # or one pair for each in turn
}
"""Kinds of language models that are served, by a configuration's ``model_type``, and what is their own."""

_TYPES = ("default", "linear", "dynamic", "yarn", "longrope", "llama3", "proportional")


def _layer(config: Any, index: int) -> tuple[dict[str, Any], int] | None:
    """What layer ``index`` turns by, as the configuration words it, and a head's features; None if by nothing."""
    own, kind = KINDS[config.model_type], (getattr(config, "layer_types", None) or {index: None})[index]
    turned = (getattr(config, "no_rope_layers", None) or {index: True})[index]
    windows, sliding = bool(getattr(config, "sliding_window", None)), kind == "sliding_attention"
    if not turned or ("windows" in own and not (windows and sliding)) or ("globals" in own and windows > sliding):
        return None
    said = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    said = said.get(kind, said)
    layer = config.per_layer_config[index] if getattr(config, "is_heterogeneous", False) else config
    size = getattr(layer, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return None if said is None else (said, size)


def _encoding(config: Any, said: dict[str, Any], size: int) -> Encoding:
    """The encoding of layers with these words, whose heads have so many features."""

    def find(key: str, otherwise: Any = None) -> Any:
        return said.get(key) or getattr(config, key, None) or otherwise

    own, name = KINDS[config.model_type], said.get("rope_type") or said.get("type") or "default"
    base, part, most = find("rope_theta"), find("partial_rotary_factor", 1.0), find("max_position_embeddings")
    require(name in _TYPES, "config", f"rope_type {name!r}", f"one of {', '.join(_TYPES)}")
    require(base is not None, "config", "no rope_theta", "the base of the frequencies")
    trained = getattr(config, "original_max_position_embeddings", None) or find(
        "original_max_position_embeddings", most
    )
    factor = said.get("factor") or (most / trained if name in ("yarn", "longrope") else 1.0)
    scaled = name not in ("default", "proportional") or ("partial" in own and name == "default")
    turned = int(size * part) if scaled else size
    usual, length, longer = language_frequencies(turned, base), said.get("attention_factor"), None
    if name in ("linear", "proportional"):
        usual = rotations.interpolated(usual, factor)
    if name == "proportional":  # of a head's pairs the first alone
        usual = usual * (torch.arange(size // 2) < int(part * size // 2))[:, None]
    elif name == "llama3":
        usual = rotations.ntk_by_parts(usual, factor, trained, said["low_freq_factor"], said["high_freq_factor"])
    elif name == "yarn":
        scales = [said.get(key) for key in ("mscale", "mscale_all_dim")]
        length = length or rotations.yarn_length(factor, *(scales if all(scales) else ()))
        slow, fast = said.get("beta_slow") or 1.0, said.get("beta_fast") or 32.0
        usual = rotations.yarn_frequencies(turned, factor, trained, base, slow, fast, said.get("truncate", True))
    elif name == "longrope":
        both = [torch.tensor(said[key])[:, None] for key in ("short_factor", "long_factor")]
        for x in both:
            require(
                len(x) == len(usual), "config", f"{len(x)} factors of longrope", f"one for each of {len(usual)} pairs"
            )
        length = length or math.sqrt(1 + math.log(max(factor, 1.0)) / math.log(trained))
        usual, longer = usual / both[0], usual / both[1]
    if "short" in own and name != "default":
        lengths = said["short_mscale"], said["long_mscale"]
        require(
            lengths[0] == lengths[1], "config", f"short_mscale, long_mscale {lengths}", "one for texts of any length"
        )
        name, length = "default", lengths[0]
    if {"chunks", "rounds"} & {*own.split()}:
        usual = _on_three_axes(usual, own, said.get("mrope_section"))
    part = turned if (turned := 2 * len(usual)) < size else None
    rope = RoPE(usual, length or 1.0, part)
    if name in ("longrope", "dynamic"):
        rope = LengthRoPE(usual, most if name == "dynamic" else trained, longer, factor, length or 1.0, part)
    return rope if "interleaved" in own else HalfSplit(rope)


def _on_three_axes(frequencies: Tensor, own: str, sections: Any) -> Tensor:
    """Each pair on its axis of time, height or width: in chunks one after the other, or in rounds of three."""
    pairs, axis = len(frequencies), torch.zeros(len(frequencies), dtype=torch.long)
    holds = sections is not None and ("rounds" in own or sum(sections) == pairs)
    require(holds, "config", f"mrope_section {sections}", f"sizes that add up to {pairs} pairs")
    if "chunks" in own:
        axis = torch.arange(len(sections)).remainder(3).repeat_interleave(torch.tensor(sections))
    for k in (1, 2) if "rounds" in own else ():
        axis[k : 3 * sections[k] : 3] = k
    return frequencies * torch.eye(3)[axis]
