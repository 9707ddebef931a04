"""A layer of symmetric-power attention; its gates alone, and its powers alone, as encodings of any model."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from geolib._checks import angle_dtype, as_places, check_floating, check_tensor, readable, require
from geolib._precision import WideBuffers, numbered, without_autocast
from geolib.attention import (
    Encoding,
    Placed,
    ScoreMod,
    add_up,
    check_encoding,
    input_of,
    is_grouped,
    repeat_heads,
    visible,
)
from geolib.placed import Carried, Composite, at_both, cis, counts, described, for_heads, turn_pairs
from geolib.recurrence._shared import check_chunk, check_power, decay_of, gate_sums, in_parts, power_of, read_twice
from geolib.recurrence.chunks import chunked_form
from geolib.recurrence.forms import recurrent_form
from geolib.recurrence.fused import score_modifier
from geolib.recurrence.gates import GATE_BIAS, log_gates, rotation_rates, turns_of
from geolib.recurrence.state import Attended, State
from geolib.rotations import document_frequencies, pair_angles

__all__ = ["PowerScores", "Powered", "SympowAttention", "SympowEncoding"]


class SympowAttention(WideBuffers):
    """Causal multi-head attention by symmetric powers, with gates and rotations that depend on the data.

    Parameters
    ----------
    width, heads : int
        Heads divide the features of a token, and each has an even number of them.
    power : int
        p, even.
    longest : float
        N in the frequencies 2 pi / N^(2(i-1)/d): a constant of the model, not the length at hand.
    gate_bias : float
        ``GATE_BIAS`` starts gates at 0.999; 0 starts them at 1/2, as the paper's formula has it.
    chunk : int or None
        Tokens in a chunk; ``practical_chunk`` when None.
    key_heads : int or None
        Heads of keys, values, gates and turns, and of the state, where several heads of queries share one; as many
        as ``heads`` when None.

    ``W_gamma`` and ``W_beta`` hold one row of ``width`` numbers for each head of keys.

    >>> layer, x = SympowAttention(16, heads=2), torch.randn(1, 6, 16)
    >>> whole, _ = layer(x)
    >>> _, state = layer(x[:, :5])
    >>> last, _ = layer(x[:, 5:], state)  # one token from the state on
    >>> torch.allclose(last, whole[:, 5:], atol=1e-4)
    True

    Source: CS-gate, CS-beta, CS-conf, CS-cost, CS-GATE0, CS-N.
    """

    frequencies: Tensor

    @numbered
    def __init__(
        self,
        width: int,
        heads: int,
        power: int = 2,
        longest: float = 65536.0,
        gate_bias: float = GATE_BIAS,
        chunk: int | None = None,
        key_heads: int | None = None,
    ):
        super().__init__()
        require(heads > 0 and width % heads == 0, "heads", heads, f"it must divide the width {width}")
        check_power(power)
        own = heads if key_heads is None else key_heads
        require(own > 0 and heads % own == 0, "key_heads", own, f"it must divide the {heads} heads")
        if chunk is not None:
            check_chunk(chunk)
        self.heads, self.key_heads, self.power, self.gate_bias, self.chunk = heads, own, power, gate_bias, chunk
        self.register_buffer("frequencies", document_frequencies(width // heads, longest), persistent=False)
        self.qkv = nn.Linear(width, width + 2 * own * (width // heads), bias=False)
        self.out = nn.Linear(width, width)
        self.W_gamma = nn.Linear(width, own, bias=False)
        self.W_beta = nn.Linear(width, own, bias=False)

    def extra_repr(self) -> str:
        """What it is, beside its layers."""
        sizes = f"heads={self.heads}, key_heads={self.key_heads}, power={self.power}"
        return f"{sizes}, gate_bias={self.gate_bias}, chunk={self.chunk}"

    def log_gates(self, x: Tensor) -> Tensor:
        """log gamma of x (batch, tokens, width) for each head of keys and token, (batch, key heads, tokens)."""
        return log_gates(self.W_gamma(x).transpose(1, 2), self.gate_bias)

    def turns(self, x: Tensor) -> Tensor:
        """beta theta of x (batch, tokens, width), in radians: (batch, key heads, tokens, head_dim / 2)."""
        return turns_of(rotation_rates(self.W_beta(x).transpose(1, 2)), self.frequencies)

    def forward(
        self, x: Tensor, state: State | None = None, *, mask: Tensor | None = None, starts: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Attend over x (batch, tokens, width) from a carried state on (None: empty), and hand on the state.

        One token takes the recurrent form, several take the chunked form. There may be no token and no sample.

        ``mask``, bool (batch, tokens), is False at padding, on any side or between: what stands there, NaN too, is
        neither read nor written, the state passes it unchanged, and the output there is ``out``'s bias.
        ``padding_mask`` is taken as it comes. ``starts``, bool (tokens,) or (batch, tokens), is True at the first token
        of each document: everything before it, the carried state too, is forgotten. ``document_starts`` and
        ``starts_of`` make it. ValueError for other shapes and dtypes.
        """
        require(x.dim() == 3, "x", x.shape, "it must be (batch, tokens, width)")
        kept = state is None or isinstance(state, State)
        require(kept, "state", type(state).__name__, "a State, as forward hands it on; a mask is handed over by name")
        batch, tokens, width = x.shape
        seen = None if mask is None else _flags(_of_keys(mask), "mask", batch, tokens)
        if seen is not None:
            x = x.masked_fill(~seen[..., None], 0.0)  # without a bias queries, keys and values are 0, too
        sizes = [width, *2 * [self.key_heads * (width // self.heads)]]
        d = width // self.heads
        q, k, v = (t.unflatten(-1, (t.shape[-1] // d, d)).transpose(1, 2) for t in self.qkv(x).split(sizes, -1))
        gates, turns = self.log_gates(x), self.turns(x)
        if seen is not None:
            gates, turns = gates.masked_fill(~seen[:, None], 0.0), turns.masked_fill(~seen[:, None, :, None], 0.0)
        if starts is not None:
            gates = gates.masked_fill(_flags(starts, "starts", batch, tokens)[:, None], float("-inf"))
        attended, state = self._attend(q, k, v, gates, turns, state)
        return self.out(attended.output.transpose(1, 2).flatten(2)), state

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, gates: Tensor, turns: Tensor, state: State | None
    ) -> tuple[Attended, State]:
        """The form that suits, with heads of keys as often as they are shared; their state is carried once."""
        shared = self.heads // self.key_heads

        def repeated(t: Tensor) -> Tensor:
            return t if shared == 1 else t.repeat_interleave(shared, 1)

        if state is not None:
            state = _each(state, repeated)
        form = recurrent_form if q.shape[2] == 1 else partial(chunked_form, chunk=self.chunk)
        attended, last = form(q, repeated(k), repeated(v), self.power, repeated(gates), repeated(turns), state)
        return attended, _each(last, lambda t: t[:, ::shared])


def _each(state: State, change: Callable[[Tensor], Tensor]) -> State:
    """Every tensor of a state, changed."""
    S, Z, mu, exponent = state
    return State(change(S), change(Z), change(mu), None if exponent is None else change(exponent))


def _of_keys(mask: Tensor) -> Tensor:
    """A mask of keys for all queries, (batch, 1, 1, tokens), as (batch, tokens)."""
    check_tensor(mask, "mask")
    return mask[:, 0, 0] if mask.dim() == 4 and mask.shape[1:3] == (1, 1) else mask


def _flags(flags: Tensor, name: str, batch: int, tokens: int) -> Tensor:
    """Bool (tokens,) or (batch or 1, tokens) as (batch or 1, tokens)."""
    check_tensor(flags, name)
    fits = tuple(flags.shape) in ((tokens,), (1, tokens), (batch, tokens))
    require(
        flags.dtype == torch.bool and fits,
        name,
        lambda: f"{flags.dtype} of shape {tuple(flags.shape)}",
        lambda: f"it must be bool, {(batch, tokens)} or {(tokens,)}",
    )
    return flags if flags.dim() == 2 else flags[None]


def _check_last(positions: Tensor, keys: Tensor) -> None:
    """Queries stand where the last keys do; on a GPU and in a graph the numbers are not read back."""
    allowed = "gates follow the order of tokens: queries must be the last of the keys"
    n = positions.shape[-2]
    require(n <= keys.shape[-2], "positions", lambda: f"{n} for {keys.shape[-2]} keys", allowed)
    if readable(positions) and readable(keys):
        alike = bool((positions == keys[..., keys.shape[-2] - n :, :]).all())
        require(alike, "positions", "positions that are not those of the last keys", allowed)


class SympowEncoding(Encoding):
    """The gates and the fixed rotations of symmetric-power attention, as an encoding for softmax attention.

    Queries and keys turn by the document's frequencies (pairs, axes), in radians per unit of position:
    ``document_frequencies``, times the strides of the axes on a grid. What the gates between a key and a query multiply
    the score by is added in logarithms. The gates look at the past only, so a query gives -inf to later keys; on a
    grid, tokens come in reading order. Rotations that depend on the data need the layer's input where queries turn;
    ``SympowAttention`` has them.

    >>> encoding = SympowEncoding(width=8, heads=1, frequencies=document_frequencies(8, 64))
    >>> gates = encoding.place(torch.arange(3.0)[:, None]).log_gate(torch.zeros(1, 3, 8))
    >>> gates.shape, bool((gates[0, 0].triu(1) <= 0).all())
    (torch.Size([1, 1, 3, 3]), True)

    Source: CS-gate, CS-rot, CS-A1.
    """

    frequencies: Tensor

    def __init__(self, width: int, heads: int, frequencies: Tensor, gate_bias: float = GATE_BIAS):
        super().__init__()
        require(heads > 0 and width % heads == 0, "heads", heads, f"it must divide the width {width}")
        self.gate_bias = gate_bias
        self.register_buffer("frequencies", frequencies, persistent=False)
        self.W_gamma = nn.Linear(width, heads, bias=False)

    def extra_repr(self) -> str:
        """What it is, beside its gates."""
        return f"{described(self.frequencies)}, gate_bias={self.gate_bias}"

    def place(self, positions: Tensor, keys: Tensor | None = None) -> Placed:
        """Cosines and sines, for all layers; the gates come with each layer's input.

        Gates follow the order of the tokens: queries are the last of the keys. ValueError where they stand elsewhere,
        on a CPU.
        """
        positions, keys = as_places(positions, keys, self.frequencies.shape[-1])
        if keys is not None:
            _check_last(positions, keys)
        tables = at_both(lambda p: cis(pair_angles(for_heads(p), self.frequencies)), positions, keys)
        return _Gated(self, tables, counts(positions, keys))


class _Gated(Carried):
    """Turned queries and keys, and the gates of the layer's input."""

    def __init__(self, source: SympowEncoding, tables: tuple[Tensor, Tensor], sizes: tuple[int, int]):
        super().__init__(turn_pairs, tables, sizes)
        self.source, self.own = source, (1, source.W_gamma.out_features)

    def log_gate(self, x: Tensor | None) -> Tensor:
        """log b_ij, (batch, heads, queries, keys); the last query stands beside the last key.

        ValueError without x, the layer's input at the keys: the gates are made of it.
        """
        queries, keys = self.counts
        gates = self._gates(x)
        return decay_of(gate_sums(gates)).to(gates.dtype)[..., keys - queries :, :]

    def as_score_mod(self, x: Tensor | None = None) -> ScoreMod:
        """The same from sums of log gates, one number for each head and token."""
        gates, later = self._gates(x), self.counts[1] - self.counts[0]
        sums, first = gate_sums(gates)
        parts, first = read_twice(in_parts(sums, gates.dtype)), first.int()

        def modify(score: Tensor, batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
            for queries, keys in parts:
                score = score + (queries[batch, head, i + later] - keys[batch, head, j])
            hidden = (j > i + later) | (j < first[batch, head, i + later])
            return torch.where(hidden, float("-inf"), score)

        return modify

    def _gates(self, x: Tensor | None) -> Tensor:
        """log gates of the placed keys, (batch, heads, keys)."""
        placed = input_of(x, self.counts[1], self.unplaced[1])
        return log_gates(self.source.W_gamma(placed).transpose(1, 2), self.source.gate_bias)


class PowerScores(Encoding):
    """Any encoding, its weights the even power (q . k)^p of scores, normalised, where others have softmax.

    ValueError for an odd power: weights could be negative.

    Source: CS-att.

    >>> placed = PowerScores(Encoding(), 2).place(torch.zeros(2, 1))
    >>> q = torch.tensor([[[[1.0, 0.0], [3.0, 4.0]]]])  # the key that is orthogonal to a query gets nothing
    >>> placed.attend(q, torch.eye(2).expand(1, 1, 2, 2), torch.eye(2).expand(1, 1, 2, 2))[0, 0]
    tensor([[1.0000, 0.0000],
            [0.3600, 0.6400]])
    """

    def __init__(self, encoding: Encoding, power: int = 2):
        super().__init__()
        check_encoding(encoding, "encoding")
        check_power(power)
        self.encoding, self.power = encoding, power

    def extra_repr(self) -> str:
        """What it is, beside what it goes around."""
        return f"power={self.power}"

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """What the inner encoding does."""
        return self.encoding.embed(x, positions)

    def place(self, positions: Tensor, keys: Tensor | None = None) -> Placed:
        """The inner encoding's, with powers of its scores."""
        return Powered(self.encoding.place(positions, keys), self.power)


class Powered(Composite):
    """What is placed inside, its scores raised to an even power where softmax would take their exponential.

    Weights are (q . k)^p times the gate, divided by their sum over the keys, times the attenuation. A row whose scores
    are all zero has weights 0. The scale of queries and keys cancels.

    Source: CS-att.

    >>> q = torch.tensor([[[[1.0, 0.0], [0.6, 0.8]]]])
    >>> Powered(Placed(), 2).weights(q, q)[0, 0]
    tensor([[0.7353, 0.2647],
            [0.2647, 0.7353]])
    """

    def __init__(self, inner: Placed, power: int):
        super().__init__([inner])
        self.power = power

    def weights(
        self,
        q: Tensor,
        k: Tensor,
        log_gate: Tensor | None = None,
        causal: bool = False,
        *,
        mask: Tensor | None = None,
        scale: float | None = None,
    ) -> Tensor:
        """The weights, (batch, heads, queries, keys), in float32 or float64; a scale cancels."""
        dtype, seen = angle_dtype(q, k), visible(q, k, causal, mask)
        if is_grouped(q, k):
            k = repeat_heads(k, q.shape[1])
        with without_autocast(q.device):
            scores = q.to(dtype) @ k.to(dtype).mT
        if (gate := self.for_all(log_gate, q, k, 0.0)) is not None:
            # The p-th root of the gate, so that one power takes both.
            scores = scores * (gate / self.power).exp()
        if seen is not None:
            scores = scores.masked_fill(~seen, 0.0)
        if not scores.shape[-1]:  # no keys, no largest score
            return scores
        # A common factor of a row cancels; this one keeps its powers from overflow and underflow.
        row = scores.detach().abs().amax(-1, keepdim=True)
        powers = power_of(scores / torch.where(row == 0, 1.0, row), self.power)
        weights = powers / torch.where(row == 0, 1.0, powers.sum(-1, keepdim=True))
        omega = self.for_all(self.attenuation(), q, k, 1.0)
        return weights if omega is None else weights * omega

    def attend(self, q: Tensor, k: Tensor, v: Tensor, *given: Any, dropout: float = 0.0, **options: Any) -> Tensor:
        """The weights times the values, in the values' dtype."""
        check_floating(v, "v")
        weights = self.weights(q, k, *given, **options)
        return add_up(nn.functional.dropout(weights, dropout) if dropout else weights, v)

    def as_score_mod(self, x: Tensor | None = None) -> ScoreMod:
        """p log|score| plus the gate; a score of exactly 0 becomes -inf. ValueError behind tokens without a place."""
        allowed = "FlexAttention would leave the scores of such tokens without their power: use attend"
        require(self.unplaced == (0, 0), "unplaced", self.unplaced, allowed)
        power, gate = score_modifier(self.power), super().as_score_mod(x)
        return power if gate is None else lambda score, *indices: gate(power(score, *indices), *indices)
