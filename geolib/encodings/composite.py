"""Encodings made of encodings: several at once, one for each layer."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from geolib._checks import require
from geolib._compile import Kept, keeps
from geolib.attention import Encoding, Placed, ScoreMod

__all__ = [
    "ByLayer", "Composed", "Composite", "PerLayer", "chained", "check_encoding", "check_inside", "joined",
    "turned_features", "widest",
]  # fmt: skip


class Composed(Encoding):
    """Several encodings at once, as ``Composite``; embeddings by each in turn.

    >>> both = Composed([RoPE(torch.ones(1, 1)), ALiBi(heads=2)]).place(torch.arange(3.0)[:, None])
    >>> both.log_gate(None).shape
    torch.Size([2, 3, 3])
    """

    parts: Any

    def __init__(self, parts: Iterable[Encoding]):
        super().__init__()
        self.parts = nn.ModuleList(_encodings(parts, "parts"))
        check_inside(self, "parts")

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        for part in self.parts:
            x = part.embed(x, positions)
        return x

    def place(self, positions: Tensor, keys: Tensor | None = None) -> Placed:
        return Composite([part.place(positions, keys) for part in self.parts])


class Composite(Placed):
    """Several encodings at once: vectors are carried by one after the other, gates add, attenuations multiply.

    Classes made of it stand around one encoding, ``Composite([inner])``, and change some of what it does.

    >>> ones, near = ScoreBias(Matrix(torch.ones(3, 3))), Attenuated(Matrix(torch.eye(3).log()))
    >>> both = Composite([ones, near, ones])
    >>> both.log_gate(None)[0], both.attenuation()[0]
    (tensor([2., 2., 2.]), tensor([1., 0., 0.]))
    """

    lasting = True

    def __init__(self, parts: Sequence[Placed]):
        self.parts, self.lasting = parts, type(self).lasting and all(part.lasting for part in parts)
        self._kept, self._sums = Kept(), Kept()
        self.counts = next((part.counts for part in parts if part.counts is not None), None)
        self.own = widest(*(part.own for part in parts))

    def to_reference(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        for part in self.parts:
            q, k = part.to_reference(q, k)
        return q, k

    def log_gate(self, x: Tensor | None) -> Tensor | None:
        return self._sum([part.log_gate(x) for part in self.parts])

    def masked_log_gate(self, x: Tensor | None, mask: Tensor | None) -> Tensor | None:
        if type(self).log_gate is not Composite.log_gate:  # a class of one's own that knows no masks
            return self.log_gate(x)
        return self._sum([part.masked_log_gate(x, mask) for part in self.parts])

    def _sum(self, gates: list[Tensor | None]) -> Tensor | None:
        """Their sum, made once where the gates are the same in all layers."""
        add = functools.partial(joined, torch.add, gates)
        several = self.lasting and sum(gate is not None for gate in gates) > 1
        return self._sums(add, *gates) if several and keeps(*gates) else add()

    def attenuation(self) -> Tensor | None:
        return joined(torch.mul, [part.attenuation() for part in self.parts])

    def as_score_mod(self, x: Tensor | None = None) -> ScoreMod | None:
        return chained(part.as_score_mod(x) for part in self.parts)

    def as_attenuation_mod(self) -> ScoreMod | None:
        return chained(part.as_attenuation_mod() for part in self.parts)

    def layer(self, index: int) -> Placed:
        parts = [part.layer(index) for part in self.parts]
        if all(own is part for own, part in zip(parts, self.parts)):
            return self
        other = copy.copy(self)  # tokens without a place stay without one
        other.parts, other.lasting = parts, type(self).lasting and all(part.lasting for part in parts)
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

    layers: Any

    def __init__(self, layers: Iterable[Encoding]):
        super().__init__()
        self.layers = nn.ModuleList(_encodings(layers, "layers"))

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return self.layers[0].embed(x, positions)

    def place(self, positions: Tensor, keys: Tensor | None = None) -> Placed:
        """Each layer's encoding, placed; one that several layers share is placed once."""
        placed = {encoding: encoding.place(positions, keys) for encoding in dict.fromkeys(self.layers)}
        return ByLayer([placed[encoding] for encoding in self.layers])


class ByLayer(Placed):
    """What each layer uses, where layers have parameters of their own.

    >>> ByLayer([Placed(), ScoreBias(Matrix(torch.zeros(2, 2)))]).layer(1).log_gate(torch.zeros(1, 2, 8)).shape
    torch.Size([2, 2])
    """

    def __init__(self, layers: Sequence[Placed]):
        self.parts = layers
        for part in layers:  # what one layer alone uses is not kept for others
            part.lasting = part.lasting and sum(other is part for other in layers) > 1

    def layer(self, index: int) -> Placed:
        require(0 <= index < len(self.parts), "index", index, f"there are {len(self.parts)} layers, counted from 0")
        return self.parts[index].layer(index)

    def to_reference(self, *given: Any, **named: Any) -> Any:
        """RuntimeError: without a layer's index all layers would silently share the parameters of one."""
        raise RuntimeError("this encoding has its own parameters for each layer: use placed.layer(index)")

    log_gate = attenuation = to_reference


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
