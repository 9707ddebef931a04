"""What the methods leave behind when they are placed: small objects that each layer uses.

Tables have a row for each placed token. A table of queries and keys that stand at the same positions is one tensor.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from geolib._checks import angle_dtype, check_floating, is_transformed, require
from geolib.attention import Placed, ScoreMod, check_count, looked_up
from geolib.locality import fused_focused_attention
from geolib.rotations import to_half_split, to_interleaved

__all__ = [
    "Attenuated",
    "ByLayer",
    "Carried",
    "Composite",
    "FocusedByBlocks",
    "Gaussian",
    "Map",
    "Matrix",
    "Pairwise",
    "PlacedHalfSplit",
    "ScoreBias",
    "Steps",
    "at_both",
    "by_axis",
    "chained",
    "cis",
    "counts",
    "described",
    "differences",
    "for_heads",
    "map_pairs",
    "on_placed",
    "turn_halves",
    "turn_pairs",
]

Map = Callable[[Tensor], Tensor]


def on_placed(act: Map, x: Tensor, placed: int) -> Tensor:
    """Apply a map to the last ``placed`` tokens of x, (..., tokens, dim), and leave those in front as they are.

    >>> on_placed(torch.neg, torch.ones(1, 3, 1), 2).flatten()
    tensor([ 1., -1., -1.])
    """
    tokens = x.shape[-2]
    if placed > tokens:
        check_count(placed, tokens, 0)
    if placed == tokens:
        return act(x)
    return torch.cat([x[..., : tokens - placed, :], act(x[..., tokens - placed :, :])], -2)


# Maps of pairs and blocks of features -------------------------------------------------------------------------------


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
    require(size == x.shape[-1], "frequencies", f"{size // 2} pairs", f"x has {x.shape[-1]} features")
    pairs = x.to(angle_dtype(x)).unflatten(-1, (-1, 2))
    turns = turns.to(pairs.dtype)  # a table of whole positions is float64
    if torch.compiler.is_compiling():  # the compiler fuses real products into one kernel and has none for complex ones
        (a, b), (c, s) = pairs.unbind(-1), turns.unbind(-1)
        turned = torch.stack([c * a - s * b, s * a + c * b], -1)
    else:
        turned = torch.view_as_real(_complex(pairs) * torch.view_as_complex(turns))
    return turned.flatten(-2).to(x.dtype)


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


def _complex(pairs: Tensor) -> Tensor:
    """(..., 2) real as complex; a copy only where memory lies unlike complex numbers."""
    even = pairs.storage_offset() % 2 == 0 and all(stride % 2 == 0 for stride in pairs.stride()[:-1])
    return torch.view_as_complex(pairs if even and pairs.stride(-1) == 1 else pairs.clone().contiguous())


def map_pairs(x: Tensor, own: Tensor, other: Tensor) -> Tensor:
    """Each feature times ``own``, plus its neighbour in the pair times ``other``; both (..., tokens, dim).

    >>> map_pairs(torch.tensor([[1.0, 10.0]]), torch.tensor([[2.0, 3.0]]), torch.tensor([[0.0, 1.0]]))
    tensor([[ 2., 31.]])
    """
    wide = x.to(angle_dtype(x))
    own, other = own.to(wide.dtype), other.to(wide.dtype)
    first, second = wide.unflatten(-1, (-1, 2)).unbind(-1)
    return (wide * own + torch.stack([second, first], -1).flatten(-2) * other).to(x.dtype)


def cis(angles: Tensor) -> Tensor:
    """(cos a, sin a), (..., 2): a table for ``turn_pairs``.

    >>> cis(torch.tensor(0.0))
    tensor([1., 0.])
    """
    return torch.stack([angles.cos(), angles.sin()], -1)


# What layers use ----------------------------------------------------------------------------------------------------


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
        (query, key), (queries, keys) = self.tables, self.counts
        for rows, x, front in zip(self.counts, (q, k), self.unplaced):
            check_count(rows, x.shape[-2], front)
        check_floating(q, "q")
        check_floating(k, "k")
        # A message is put into words where it is needed alone: every layer comes here.
        for argument, x in (("q", q), ("k", k)):
            if self.heads not in (1, x.shape[-3] if x.dim() > 2 else 1):
                own = f"the encoding has {self.heads} heads of its own; where query heads share keys, "
                require(False, argument, x.shape, own + "repeat_heads(k, heads)")
        a = on_placed(lambda x: self.act(x, query), q, queries)
        b = on_placed(lambda x: self.act(x, key), k, keys)
        for argument, came, carried in (("q", q, a), ("k", k, b)):
            if carried.shape != came.shape:
                needed = f"the encoding has heads, or positions of samples, for {tuple(carried.shape)}"
                require(False, argument, came.shape, needed)
        return a, b


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


# Logarithms of pairs of tokens ---------------------------------------------------------------------------------------


class Pairwise:
    """A number for each head, query and key: what a score gets, or the logarithm of what multiplies a weight.

    It is <= 0, and made of a few numbers a token: pair by pair, or as a matrix. A matrix is made when it is first asked
    for and kept for all layers; at once where its gradient will be wanted, or a layer that is computed twice
    (activation checkpointing) would make it inside.

    >>> x = torch.arange(3.0)[:, None]
    >>> pairs = Steps(torch.tensor([0.5]), x, x)
    >>> pairs.is_made, pairs.factor() is pairs.factor(), pairs.is_made
    (False, True, True)
    """

    counts: tuple[int, int] | None = None
    """How many queries and keys there are, where that is known."""
    own: tuple[int, int]
    """For how many samples and heads numbers differ."""

    def __init__(self, query: Tensor, key: Tensor, rate: Tensor, learned: bool):
        self.query, self.key, self.rate, self.counts = query, key, rate, (query.shape[-2], key.shape[-2])
        self.own = max(len(x) if x.dim() == 3 else 1 for x in (query, key)), len(rate)
        self._log: Tensor | None = None
        self._factor: Tensor | None = None
        if learned and torch.is_grad_enabled():
            self.log()

    def computed(self) -> Tensor:
        """The matrix, (heads, queries, keys) or (batch, heads, queries, keys)."""
        raise NotImplementedError

    def of_pair(self, rate: Tensor, apart: Iterable[Tensor]) -> Tensor:
        """One number of it, from the rate of its head and query and how far they stand apart along each axis."""
        raise NotImplementedError

    @property
    def is_made(self) -> bool:
        """Whether the matrix stands in memory."""
        return self._log is not None

    def log(self) -> Tensor:
        """The matrix, made once."""
        if self._log is None:
            self._log = self.computed()
        return self._log

    def factor(self) -> Tensor:
        """Its exponential, made once."""
        if self._factor is None:
            self._factor = self.log().exp()
        return self._factor

    def as_mod(self) -> ScoreMod:
        """What adds the pair's number to its score, as FlexAttention takes it."""
        axes = by_axis(self.query, self.key)
        # A rate for each query, also where a head has one: derivatives by an entry at a constant place do not compile.
        rates = self.rate.expand(-1, self.query.shape[-2]).contiguous()

        def modify(score: Tensor, batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return score + self.of_pair(rates[head, i], differences(axes, batch, i, j))

        return modify


class Steps(Pairwise):
    """-a_h times the number of steps between query and key, along all axes together.

    >>> x = torch.arange(3.0)[:, None]
    >>> steps = Steps(torch.tensor([0.5]), x, x)
    >>> score, *place = torch.tensor([0, 0, 0, 0, 2])  # batch, head, query, key
    >>> steps.log()[0, 0], steps.as_mod()(score, *place)
    (tensor([-0.0000, -0.5000, -1.0000]), tensor(-1.))
    """

    def __init__(self, slopes: Tensor, query: Tensor, key: Tensor):
        super().__init__(query, key, slopes[:, None], learned=False)

    def computed(self) -> Tensor:
        """The matrix."""
        p, n = for_heads(self.query), for_heads(self.key)
        distance = (p.unsqueeze(-2) - n.unsqueeze(-3)).abs().sum(-1)
        return -self.rate[..., None] * distance

    def of_pair(self, rate: Tensor, apart: Iterable[Tensor]) -> Tensor:
        """One number of it."""
        return -rate * sum(d.abs() for d in apart)


class Gaussian(Pairwise):
    """-rate |u_m - u_n|^2, with a rate for each head, (heads, 1), or for each head and query: 1 / (2 sigma^2).

    Source: RF-19, RF-21.

    >>> u = torch.tensor([[0.0], [2.0]])
    >>> Gaussian(u, u, torch.tensor([[0.5]])).log()
    tensor([[[-0., -2.],
             [-2., -0.]]])
    """

    def __init__(self, query: Tensor, key: Tensor, rate: Tensor):
        super().__init__(query, key, rate, learned=rate.requires_grad or query.requires_grad)

    def computed(self) -> Tensor:
        """The matrix."""
        query, key = for_heads(self.query), for_heads(self.key)
        distances = (query.unsqueeze(-2) - key.unsqueeze(-3)).square().sum(-1)
        return -distances * self.rate.unsqueeze(-1)

    def of_pair(self, rate: Tensor, apart: Iterable[Tensor]) -> Tensor:
        """One number of it."""
        return -rate * sum(d.square() for d in apart)


def by_axis(query: Tensor, key: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Coordinates of queries and keys along each axis, from (tokens, axes) or (batch, tokens, axes).

    Each is a tensor of its own: FlexAttention has no derivative of one that is indexed in two places.

    >>> by_axis(torch.tensor([[5.0]]), torch.tensor([[2.0], [1.0]]))
    [(tensor([5.]), tensor([2., 1.]))]
    """
    return [(p.clone(), n.clone()) for p, n in zip(query.unbind(-1), key.unbind(-1))]


def differences(axes: Iterable[tuple[Tensor, Tensor]], batch: Tensor, i: Tensor, j: Tensor) -> Iterator[Tensor]:
    """Along each axis, how far query i stands from key j; ``axes`` as ``by_axis`` makes them.

    >>> list(differences(by_axis(torch.tensor([[5.0]]), torch.tensor([[2.0], [1.0]])), 0, 0, 1))
    [tensor(4.)]
    """
    for p, n in axes:
        yield (p[batch, i] if p.dim() == 2 else p[i]) - (n[batch, j] if n.dim() == 2 else n[j])


class Matrix(Pairwise):
    """Any numbers, (queries, keys) or with dimensions before them that broadcast to (batch, heads), as given.

    >>> Matrix(torch.tensor([[0.0, -5.0]])).as_mod()(torch.tensor(1.0), 0, 0, 3, 1)
    tensor(-4.)
    """

    def __init__(self, log: Tensor):
        self._log, self._factor = log, None
        samples, heads, queries, keys = (1,) * (4 - log.dim()) + log.shape
        self.own, self.counts = (samples, heads), None if 1 in (queries, keys) else (queries, keys)

    def as_mod(self) -> ScoreMod:
        """What adds the entry to the score."""
        return looked_up(self.log())


class ScoreBias(Placed):
    """A gate that depends on positions alone, not made for all pairs where it is asked for pair by pair.

    >>> x = torch.arange(2.0)[:, None]
    >>> ScoreBias(Steps(torch.tensor([0.5]), x, x)).log_gate(None)
    tensor([[[-0.0000, -0.5000],
             [-0.5000, -0.0000]]])
    """

    def __init__(self, pairs: Pairwise):
        self.pairs, self.counts, self.own = pairs, pairs.counts, pairs.own

    def log_gate(self, x: Tensor | None) -> Tensor:
        """The gate."""
        return self.pairs.log()

    def as_score_mod(self, x: Tensor | None = None) -> ScoreMod:
        """The same, pair by pair."""
        return self.pairs.as_mod()


class Attenuated(Placed):
    """An attenuation that depends on positions alone, its logarithm given.

    >>> u = torch.tensor([[0.0], [1.0]])
    >>> Attenuated(Gaussian(u, u, torch.tensor([[1.0]]))).attenuation()
    tensor([[[1.0000, 0.3679],
             [0.3679, 1.0000]]])

    Source: RF-19.
    """

    def __init__(self, pairs: Pairwise):
        self.pairs, self.counts, self.own = pairs, pairs.counts, pairs.own
        if pairs.is_made:
            pairs.factor()

    def attenuation(self) -> Tensor:
        """The factor."""
        return self.pairs.factor()

    def as_attenuation_mod(self) -> ScoreMod:
        """Its logarithm, pair by pair."""
        return self.pairs.as_mod()


# Around one another --------------------------------------------------------------------------------------------------


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
        self.own = _widest(*(part.own for part in parts))

    def to_reference(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """By each in turn."""
        for part in self.parts:
            q, k = part.to_reference(q, k)
        return q, k

    def log_gate(self, x: Tensor | None) -> Tensor | None:
        """The sum of the gates, where there is one."""
        return _joined(torch.add, [part.log_gate(x) for part in self.parts])

    def attenuation(self) -> Tensor | None:
        """The product of the attenuations, where there is one."""
        return _joined(torch.mul, [part.attenuation() for part in self.parts])

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


def _widest(*own: tuple[int, int]) -> tuple[int, int]:
    """The most samples and the most heads for which any of them differs."""
    samples, heads = zip((1, 1), *own)
    return max(samples), max(heads)


def _joined(join: Callable[[Tensor, Tensor], Tensor], made: Iterable[Tensor | None]) -> Tensor | None:
    """Those that are there, joined; None where none is."""
    given = [x for x in made if x is not None]
    return functools.reduce(join, given) if given else None


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


class FocusedByBlocks(Composite):
    """What is placed inside and a Gaussian after the softmax, for a long sequence on a CPU: no matrix of weights.

    The numbers are those of ``Composite([inner, Attenuated(Gaussian(*u, rate))])``, whose matrix is made where
    something else asks for one.
    It works through blocks of queries that stay in the cache: slower than the literal form at some hundreds of tokens,
    faster from a thousand on without gradients, and with them for larger batches. Compiled and on a GPU the literal
    form is a few large kernels. Inside vmap, jvp and other transforms, and for second derivatives, it is the literal
    form.

    Source: RF-FUSED, RF-22.
    """

    def __init__(self, inner: Placed, u: tuple[Tensor, Tensor], rate: Tensor):
        super().__init__([inner])
        self.u, self.rate = u, rate
        with torch.no_grad():  # so that no matrix is made here
            self.pairs = Gaussian(*u, rate)
        self.counts, self.own = self.pairs.counts, _widest(self.own, self.pairs.own)

    def attenuation(self) -> Tensor | None:
        """The Gaussian, times the factor inside; made whenever it is asked for."""
        return _joined(torch.mul, [super().attenuation(), self.pairs.computed().exp()])

    def as_attenuation_mod(self) -> ScoreMod | None:
        """The Gaussian's logarithm, pair by pair, after what is inside."""
        return chained([super().as_attenuation_mod(), self.pairs.as_mod()])

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, log_gate: Tensor | None = None, causal: bool = False, **options: Any
    ) -> Tensor:
        """By blocks where all keys are seen, without gate, dropout and groups, else as ``Placed.attend``."""
        nothing = {"mask": None, "dropout": 0.0, "scale": None}
        plain = log_gate is None and not causal and nothing | options == nothing
        plain = plain and not any(is_transformed(x) for x in (q, k, v))
        plain = plain and all(x.is_floating_point() for x in (q, k, v))  # else refused there
        plain = plain and q.dim() > 2 and q.shape == k.shape and q.shape[:-1] == v.shape[:-1]
        if plain and super().attenuation() is None:
            check_count(len(self.u[0]), q.shape[-2], self.unplaced[0])
            return fused_focused_attention(q, k, v, self.u[0], (2 * self.rate).rsqrt()).to(v.dtype)
        return super().attend(q, k, v, log_gate, causal, **options)

    least = 1024
    """Positions from which on it is meant."""

    @classmethod
    def pays(cls, u: Tensor, keys: Tensor | None) -> bool:
        """Whether it is meant for these positions.

        >>> FocusedByBlocks.pays(torch.zeros(64, 2), None), FocusedByBlocks.pays(torch.zeros(1024, 2), None)
        (False, True)
        """
        if torch.compiler.is_compiling():  # asked for, a number of tokens would become a constant of the graph
            return False
        long = u.dim() == 2 and len(u) >= cls.least and keys is None
        return long and not is_transformed(u) and u.device.type == "cpu"


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
