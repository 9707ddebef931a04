"""What positions add to the scores inside the softmax, or multiply the weights by after it.

``ScoreBias`` and ``Attenuated`` are what a method here leaves behind when it is placed, each around a ``Pairwise``: one
number for each head, query and key, made of a few numbers a token.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from geolib._checks import angle_dtype, check_count, check_heads, check_positive, check_whole, is_transformed, require
from geolib._precision import numbered
from geolib.attention import Encoding, Placed, ScoreMod, as_places, looked_up
from geolib.encodings.composite import ByLayer, Composite, PerLayer, chained, check_inside, joined, widest
from geolib.encodings.rotary import at_both, for_heads
from geolib.locality import alibi_slopes, fused_focused_attention, precision_matrix, precision_root

__all__ = [
    "ALiBi", "Attenuated", "FocusedByBlocks", "Gaussian", "GaussianGate", "LocalityFocusing", "ManhattanDecay",
    "Matrix", "Pairwise", "PerLayerFocusing", "ScoreBias", "Steps",
]  # fmt: skip


class ManhattanDecay(Encoding):
    """RMT's factor: weights are multiplied, after the softmax, by e^(-a_h) for each step between query and key.

    Distances are sums over the axes; ``axes``, where it is given, is how many positions have. The slopes a_h, (heads,),
    are positive: RMT's decay gamma_h is e^(-a_h). Its published code has it inside.

    >>> decay = ManhattanDecay(torch.tensor([0.5])).place(torch.tensor([[0.0, 0.0], [1.0, 2.0]])).attenuation()
    >>> decay[0, 0]  # e^(-3/2) at three steps
    tensor([1.0000, 0.2231])
    """

    slopes: Tensor
    inside = False
    """Whether the logarithm of the factor goes inside the softmax."""

    def __init__(self, slopes: Tensor | Sequence[float], axes: int | None = None):
        super().__init__()
        self.axes = axes
        slopes = torch.as_tensor(slopes)
        # A model built without numbers has none to look at.
        positive = slopes.is_meta or bool(((slopes > 0) & (slopes < math.inf)).all())
        require(slopes.dim() == 1 and positive, "slopes", slopes, "one finite number above 0 for each head")
        self.register_buffer("slopes", slopes, persistent=False)

    def extra_repr(self) -> str:
        return f"heads={len(self.slopes)}"

    def place(self, positions: Tensor, keys: Tensor | None = None) -> Placed:
        """The factor or its logarithm, (heads, queries, keys) or (batch, heads, queries, keys), for all layers."""
        places = at_both(lambda p: p.to(angle_dtype(p)), *_from_near(*as_places(positions, keys, self.axes)))
        return (ScoreBias if self.inside else Attenuated)(Steps(self.slopes, *places))


class ALiBi(ManhattanDecay):
    """A penalty inside the softmax that grows linearly with the distance: -2^(-8h/H) |p_m - p_n|, h = 1 ... H.

    It is the logarithm of the factor of ``ManhattanDecay``: one gate a step along any shortest path on the grid. For a
    number of heads that is no power of two the slopes are the published ones, ``geolib.locality.alibi_slopes``;
    ``slopes``, one number above 0 for each head, stand in their place.
    Source: CS-A1.

    >>> ALiBi(heads=1).place(torch.arange(3.0)[:, None]).log_gate(None)[0] * 2**8
    tensor([[-0., -1., -2.],
            [-1., -0., -1.],
            [-2., -1., -0.]])
    """

    inside = True

    @numbered
    def __init__(self, heads: int, slopes: Tensor | Sequence[float] | None = None, axes: int | None = None):
        check_heads(heads)
        super().__init__(alibi_slopes(heads) if slopes is None else torch.as_tensor(slopes, dtype=torch.float32), axes)
        require(len(self.slopes) == heads, "slopes", f"{len(self.slopes)} numbers", f"one for each of {heads} heads")


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
    inside = False
    """Whether the Gaussian goes inside the softmax."""

    def __init__(
        self, encoding: Encoding, heads: int, axes: int, sigma: float, tokens: int = 1, learn_precision: bool = True
    ):
        super().__init__()
        check_positive(sigma, "sigma")
        check_inside(encoding, "encoding")
        self.encoding = encoding
        for argument, came in (("heads", heads), ("axes", axes), ("tokens", tokens)):
            check_whole(came, argument)
        self.log_sigma = nn.Parameter(torch.full((heads, tokens), math.log(sigma)))
        if learn_precision:
            self.raw_precision = nn.Parameter(torch.zeros(axes, axes))
        else:
            self.register_buffer("raw_precision", torch.zeros(axes, axes), persistent=False)

    def extra_repr(self) -> str:
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
        u = at_both(self._whitened, *_from_near(positions, keys))
        rate = (-2 * self.log_sigma.to(u[0].dtype)).exp() / 2
        if self.inside:
            return Composite([inner, ScoreBias(Gaussian(*u, rate))])
        if FocusedByBlocks.pays(u[0], keys):
            return FocusedByBlocks(inner, u, rate)
        return Composite([inner, Attenuated(Gaussian(*u, rate))])

    def _whitened(self, positions: Tensor) -> Tensor:
        """u = L^T p with A = L L^T, so that |u_m - u_n| is the distance of A; (..., tokens, axes)."""
        dtype = angle_dtype(positions, self.log_sigma)
        # A sum of products, not a matrix product, keeps its digits under autocast.
        return (positions.to(dtype).unsqueeze(-1) * precision_root(self.raw_precision.to(dtype))).sum(-2)


class GaussianGate(LocalityFocusing):
    """The Gaussian of ``LocalityFocusing`` inside the softmax: -|p_m - p_n|_A^2 / (2 sigma^2) is added to the scores.

    >>> gate = GaussianGate(Encoding(), heads=1, axes=1, sigma=1.0).place(torch.arange(3.0)[:, None])
    >>> gate.log_gate(None)[0, 0].detach(), gate.attenuation() is None
    (tensor([-0.0000, -0.5000, -2.0000]), True)
    """

    inside = True


class PerLayerFocusing(PerLayer):
    """An encoding, with a ``LocalityFocusing`` of its own around what each layer uses of it.

    >>> own = [LocalityFocusing(Encoding(), heads=2, axes=1, sigma=s) for s in (1.0, 2.0)]
    >>> placed = PerLayerFocusing(ALiBi(2), own).place(torch.arange(3.0)[:, None])
    >>> placed.layer(1).attenuation()[0, 0].detach()
    tensor([1.0000, 0.8825, 0.6065])
    """

    def __init__(self, encoding: Encoding, layers: Iterable[LocalityFocusing]):
        check_inside(encoding, "encoding")
        super().__init__(layers)
        self.encoding = encoding

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return self.encoding.embed(x, positions)

    def place(self, positions: Tensor, keys: Tensor | None = None) -> Placed:
        inner = self.encoding.place(positions, keys)
        return ByLayer([own.around(inner.layer(i), positions, keys) for i, own in enumerate(self.layers)])


def _from_near(positions: Tensor, keys: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """The same, none of them the caller's tensor; whole numbers from the first on, so that float32 has near ones."""
    first = (positions if positions.shape[-2] or keys is None else keys)[..., :1, :]
    if positions.is_floating_point() or (keys is not None and keys.is_floating_point()):
        dtype = angle_dtype(positions, keys)
        positions, keys = positions.to(dtype), None if keys is None else keys.to(dtype)
        first = torch.zeros_like(first, dtype=dtype)
    return positions - first, None if keys is None else keys - first


# What layers use ----------------------------------------------------------------------------------------------------


class ScoreBias(Placed):
    """A gate that depends on positions alone, not made for all pairs where it is asked for pair by pair.

    >>> x = torch.arange(2.0)[:, None]
    >>> ScoreBias(Steps(torch.tensor([0.5]), x, x)).log_gate(None)
    tensor([[[-0.0000, -0.5000],
             [-0.5000, -0.0000]]])
    """

    lasting = True

    def __init__(self, pairs: Pairwise):
        self.pairs, self.counts, self.own = pairs, pairs.counts, pairs.own

    def log_gate(self, x: Tensor | None) -> Tensor:
        return self.pairs.log()

    def as_score_mod(self, x: Tensor | None = None) -> ScoreMod:
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
        if pairs.made is not None:
            pairs.factor()

    def attenuation(self) -> Tensor:
        return self.pairs.factor()

    def as_attenuation_mod(self) -> ScoreMod:
        return self.pairs.as_mod()


class Pairwise:
    """A number for each head, query and key: what a score gets, or the logarithm of what multiplies a weight.

    It is minus a rate, (heads, 1) or (heads, queries), times a distance: the sum over the axes of what ``measure``
    makes of the differences. It is computed pair by pair, or as a matrix. A matrix is made when it is first asked for
    and kept for all layers; at once where its gradient will be wanted, or a layer that is computed twice (activation
    checkpointing) would make it inside.

    >>> x = torch.arange(3.0)[:, None]
    >>> pairs = Steps(torch.tensor([0.5]), x, x)
    >>> pairs.made is None, pairs.factor() is pairs.factor(), pairs.made is None
    (True, True, False)
    """

    counts: tuple[int, int] | None = None
    """How many queries and keys there are, where that is known."""
    own: tuple[int, int]
    """For how many samples and heads numbers differ."""
    made: Tensor | None
    """The matrix, where it stands in memory."""
    _factor: Tensor | None

    @staticmethod
    def measure(apart: Tensor) -> Tensor:
        """What of the differences along each axis is added up."""
        raise NotImplementedError

    def __init__(self, query: Tensor, key: Tensor, rate: Tensor):
        self.query, self.key, self.rate, self.counts = query, key, rate, (query.shape[-2], key.shape[-2])
        if query.device != rate.device:
            require(False, "positions", f"some on {query.device}", f"the encoding is on {rate.device}")
        self.own = max(len(x) if x.dim() == 3 else 1 for x in (query, key)), len(rate)
        self.made, self._factor = None, None
        learns = (rate.requires_grad or query.requires_grad) and torch.is_grad_enabled()
        if learns or torch.jit.is_tracing():
            self.log()

    def computed(self) -> Tensor:
        """The matrix, (heads, queries, keys) or (batch, heads, queries, keys)."""
        apart = for_heads(self.query).unsqueeze(-2) - for_heads(self.key).unsqueeze(-3)
        return -self.rate.unsqueeze(-1) * self.measure(apart).sum(-1)

    def log(self) -> Tensor:
        """The matrix, made once."""
        if self.made is None:
            self.made = self.computed()
        return self.made

    def factor(self) -> Tensor:
        """Its exponential, made once."""
        if self._factor is None:
            self._factor = self.log().exp()
        return self._factor

    def as_mod(self) -> ScoreMod:
        """What adds the pair's number to its score, as FlexAttention takes it."""
        # Each axis is a tensor of its own: FlexAttention has no derivative of one that is indexed in two places.
        axes = [(p.clone(), n.clone()) for p, n in zip(self.query.unbind(-1), self.key.unbind(-1))]
        # A rate for each query, also where a head has one: derivatives by an entry at a constant place do not compile.
        rates = self.rate.expand(-1, self.query.shape[-2]).contiguous()

        def modify(score: Tensor, batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
            far = []
            for p, n in axes:
                apart = (p[batch, i] if p.dim() == 2 else p[i]) - (n[batch, j] if n.dim() == 2 else n[j])
                far.append(self.measure(apart))
            return score - rates[head, i] * sum(far)

        return modify


class Steps(Pairwise):
    """-a_h times the number of steps between query and key, along all axes together.

    >>> x = torch.arange(3.0)[:, None]
    >>> steps = Steps(torch.tensor([0.5]), x, x)
    >>> score, *place = torch.tensor([0, 0, 0, 0, 2])  # batch, head, query, key
    >>> steps.log()[0, 0], steps.as_mod()(score, *place)
    (tensor([-0.0000, -0.5000, -1.0000]), tensor(-1.))
    """

    @staticmethod
    def measure(apart: Tensor) -> Tensor:
        return apart.abs()

    def __init__(self, slopes: Tensor, query: Tensor, key: Tensor):
        super().__init__(query, key, slopes[:, None])


class Gaussian(Pairwise):
    """-rate |u_m - u_n|^2, with a rate for each head, (heads, 1), or for each head and query: 1 / (2 sigma^2).
    Source: RF-19, RF-21.

    >>> u = torch.tensor([[0.0], [2.0]])
    >>> Gaussian(u, u, torch.tensor([[0.5]])).log()
    tensor([[[-0., -2.],
             [-2., -0.]]])
    """

    @staticmethod
    def measure(apart: Tensor) -> Tensor:
        return apart.square()


class Matrix(Pairwise):
    """Any numbers, (queries, keys) or with dimensions before them that broadcast to (batch, heads), as given.

    >>> Matrix(torch.tensor([[0.0, -5.0]])).as_mod()(torch.tensor(1.0), 0, 0, 3, 1)
    tensor(-4.)
    """

    def __init__(self, log: Tensor):
        self.made, self._factor = log, None
        samples, heads, queries, keys = (1,) * (4 - log.dim()) + log.shape
        self.own, self.counts = (samples, heads), None if 1 in (queries, keys) else (queries, keys)

    def as_mod(self) -> ScoreMod:
        return looked_up(self.log())


class FocusedByBlocks(Composite):
    """What is placed inside and a Gaussian after the softmax, for a long sequence on a CPU: no matrix of weights.

    The numbers are those of the literal form, ``Composite([inner, Attenuated(Gaussian(*u, rate))])``. Blocks of queries
    stay in the cache: slower at some hundreds of tokens, faster from a thousand on without gradients, and with them for
    larger batches. Inside vmap, jvp and other transforms, and for second derivatives, it is the literal form.
    Source: RF-FUSED, RF-22.
    """

    def __init__(self, inner: Placed, u: tuple[Tensor, Tensor], rate: Tensor):
        super().__init__([inner])
        self.u, self.rate = u, rate
        with torch.no_grad():  # so that no matrix is made here
            self.pairs = Gaussian(*u, rate)
        self.counts, self.own = self.pairs.counts, widest(self.own, self.pairs.own)

    def attenuation(self) -> Tensor | None:
        """The Gaussian, times the factor inside; made whenever it is asked for."""
        return joined(torch.mul, [super().attenuation(), self.pairs.computed().exp()])

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
