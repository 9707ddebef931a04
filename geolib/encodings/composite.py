"""Encodings made of encodings: several at once, one for each layer, one for half-split pairs."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from geolib._checks import check_even, require
from geolib.attention import Encoding, Placed, ScoreMod
from geolib.encodings.rotary import Carried, turn_halves, turn_pairs
from geolib.rotations import to_half_split, to_interleaved

__all__ = [
    "ByLayer", "Composed", "Composite", "HalfSplit", "PerLayer", "PlacedHalfSplit", "chained", "check_encoding",
    "check_inside", "joined", "turned_features", "widest",
]  # fmt: skip


class Composed(Encoding):
    """Several encodings at once, as ``Composite``; embeddings by each in turn.

    >>> both = Composed([RoPE(torch.ones(1, 1)), ALiBi(heads=2)]).place(torch.arange(3.0)[:, None])
    >>> both.log_gate(None).shape
    torch.Size([2, 3, 3])
    """

    def __init__(self, parts: Iterable[Encoding]):
        super().__init__()
        self.parts = nn.ModuleList(_encodings(parts, "parts"))
        check_inside(self, "parts")

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


class Composite(Placed):
    """Several encodings at once: vectors are carried by one after the other, gates add, attenuations multiply.

    Classes made of it stand around one encoding, ``Composite([inner])``, and change some of what it does.

    >>> ones, near = ScoreBias(Matrix(torch.ones(3, 3))), Attenuated(Matrix(torch.eye(3).log()))
    >>> both = Composite([ones, near, ones])
    >>> both.log_gate(None)[0], both.attenuation()[0]
    (tensor([2., 2., 2.]), tensor([1., 0., 0.]))
    """

    def __init__(self, parts: Sequence[Placed]):
        self.parts = parts
        self.counts = next((part.counts for part in parts if part.counts is not None), None)
        self.own = widest(*(part.own for part in parts))

    def to_reference(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """By each in turn."""
        for part in self.parts:
            q, k = part.to_reference(q, k)
        return q, k

    def log_gate(self, x: Tensor | None) -> Tensor | None:
        """The sum of the gates, where there is one."""
        return joined(torch.add, [part.log_gate(x) for part in self.parts])

    def masked_log_gate(self, x: Tensor | None, mask: Tensor | None) -> Tensor | None:
        """The same under a mask."""
        return joined(torch.add, [part.masked_log_gate(x, mask) for part in self.parts])

    def attenuation(self) -> Tensor | None:
        """The product of the attenuations, where there is one."""
        return joined(torch.mul, [part.attenuation() for part in self.parts])

    def as_score_mod(self, x: Tensor | None = None) -> ScoreMod | None:
        """One after the other."""
        return chained(part.as_score_mod(x) for part in self.parts)

    def as_attenuation_mod(self) -> ScoreMod | None:
        """One after the other."""
        return chained(part.as_attenuation_mod() for part in self.parts)

    def layer(self, index: int) -> Placed:
        """What each uses in the layer."""
        parts = [part.layer(index) for part in self.parts]
        if all(own is part for own, part in zip(parts, self.parts)):
            return self
        other = copy.copy(self)  # tokens without a place stay without one
        other.parts = parts
        return other


def widest(*own: tuple[int, int]) -> tuple[int, int]:
    """The most samples and the most heads for which any of them differs.

    >>> widest((1, 4), (2, 1))
    (2, 4)
    """
    samples, heads = zip((1, 1), *own)
    return max(samples), max(heads)


def joined(join: Callable[[Tensor, Tensor], Tensor], made: Iterable[Tensor | None]) -> Tensor | None:
    """Those that are there, joined; None where none is.

    >>> joined(torch.add, [None, torch.ones(1), torch.ones(1)])
    tensor([2.])
    """
    given = [x for x in made if x is not None]
    return functools.reduce(join, given) if given else None


def chained(mods: Iterable[ScoreMod | None]) -> ScoreMod | None:
    """Modifications of scores one after the other, those that are None left out; None where all are.

    >>> chained([None, lambda score, *indices: score + 1, lambda score, *indices: 2 * score])(torch.tensor(3.0))
    tensor(8.)
    """
    given = [mod for mod in mods if mod is not None]

    def modify(score: Tensor, *indices: Tensor) -> Tensor:
        for mod in given:
            score = mod(score, *indices)
        return score

    return modify if given else None


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


class ByLayer(Placed):
    """What each layer uses, where layers have parameters of their own.

    >>> ByLayer([Placed(), ScoreBias(Matrix(torch.zeros(2, 2)))]).layer(1).log_gate(torch.zeros(1, 2, 8)).shape
    torch.Size([2, 2])
    """

    def __init__(self, layers: Sequence[Placed]):
        self.parts = layers

    def layer(self, index: int) -> Placed:
        """What layer ``index`` uses, counted from 0."""
        require(0 <= index < len(self.parts), "index", index, f"there are {len(self.parts)} layers, counted from 0")
        return self.parts[index].layer(index)

    def to_reference(self, *given: Any, **named: Any) -> Any:
        """RuntimeError: without a layer's index all layers would silently share the parameters of one."""
        raise RuntimeError("this encoding has its own parameters for each layer: use placed.layer(index)")

    log_gate = attenuation = to_reference


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
        inner, size = self.parts[0], self.turned or q.shape[-1]
        if isinstance(inner, Carried) and inner.act is turn_pairs and 2 * inner.tables[0].shape[-2] == size:
            direct = copy.copy(inner)
            direct.act = turn_halves
            return direct.to_reference(q, k)
        a, b = inner.to_reference(to_interleaved(q, self.turned), to_interleaved(k, self.turned))
        return to_half_split(a, self.turned), to_half_split(b, self.turned)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, *given: Any, **options: Any) -> Tensor:
        """As inside."""
        return self.parts[0].attend(q, k, v, *given, **options)

    def weights(self, q: Tensor, k: Tensor, *given: Any, **options: Any) -> Tensor:
        """As inside."""
        return self.parts[0].weights(q, k, *given, **options)


def turned_features(encoding: Encoding) -> int | None:
    """How many features of a head, the first ones, an encoding turns in pairs; None where it turns none.

    >>> from geolib.encodings import ALiBi, RoPE
    >>> turned_features(Composed([RoPE.text(16), ALiBi(heads=2)])), turned_features(ALiBi(heads=2))
    (16, None)
    """
    found = [part.paired for part in encoding.modules() if isinstance(part, Encoding) and part.paired is not None]
    return max(found, default=None)


def _encodings(parts: Any, argument: str) -> list[Encoding]:
    """Several of them, at least one."""
    require(isinstance(parts, Iterable), argument, type(parts).__name__, "several encodings, as in a list")
    found = list(parts)
    require(bool(found), argument, found, "at least one encoding")
    for part in found:
        check_encoding(part, argument)
    return found


def check_inside(encoding: nn.Module, argument: str) -> None:
    """ValueError for what is no encoding, and for powers inside something that would put softmax in their place.

    >>> check_inside(Encoding(), "encoding")
    """
    check_encoding(encoding, argument)
    for part in encoding.modules():
        if isinstance(part, Encoding) and part.outermost:
            require(False, argument, f"{type(part).__name__} inside", "powers of scores go around everything else")


def check_encoding(encoding: Any, argument: str) -> None:
    """ValueError for what is no encoding, such as its name or its class.

    >>> check_encoding(Encoding, "encoding")
    Traceback (most recent call last):
    ValueError: encoding: got Encoding; it must be an encoding, as build or a class makes one
    """
    came = encoding.__name__ if isinstance(encoding, type) else type(encoding).__name__
    require(isinstance(encoding, Encoding), argument, came, "it must be an encoding, as build or a class makes one")
