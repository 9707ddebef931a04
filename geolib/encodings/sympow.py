"""Symmetric powers as encodings of any model: their gates and rotations alone, and their powers alone."""

from typing import Any

import torch
from torch import Tensor, nn

from geolib._checks import angle_dtype, check_heads, check_scale, readable, require
from geolib._precision import without_autocast
from geolib.attention import Encoding, Placed, ScoreMod, add_up, as_places, input_of, is_grouped, repeat_heads
from geolib.attention import _check_attended as check_attended
from geolib.encodings.composite import Composite, check_encoding
from geolib.encodings.rotary import Carried, Paired, at_both, cis, counts, for_heads, turn_pairs
from geolib.masks import visible
from geolib.recurrence import GATE_BIAS, log_gates, score_modifier
from geolib.recurrence._shared import check_power, decay_of, gate_sums, in_parts, power_of, read_twice
from geolib.rotations import pair_angles

__all__ = ["PowerScores", "Powered", "SympowEncoding"]


class SympowEncoding(Paired):
    """The gates and the fixed rotations of symmetric-power attention, as an encoding for softmax attention.

    Queries and keys turn by the document's frequencies (pairs, axes), in radians per unit of position:
    ``document_frequencies``, times the strides of the axes on a grid. What the gates between a key and a query multiply
    the score by is added in logarithms. The gates look at the past only, so a query gives -inf to later keys; on a
    grid, tokens come in reading order. Rotations that depend on the data need the layer's input where queries turn;
    ``SympowAttention`` has them.

    >>> from geolib.rotations import document_frequencies
    >>> encoding = SympowEncoding(width=8, heads=1, frequencies=document_frequencies(8, 64))
    >>> gates = encoding.place(torch.arange(3.0)[:, None]).log_gate(torch.zeros(1, 3, 8))
    >>> gates.shape, bool((gates[0, 0].triu(1) <= 0).all())
    (torch.Size([1, 1, 3, 3]), True)

    Source: CS-gate, CS-rot, CS-A1.
    """

    settings = ("gate_bias",)

    def __init__(self, width: int, heads: int, frequencies: Tensor, gate_bias: float = GATE_BIAS):
        super().__init__()
        check_heads(heads, width)
        self.gate_bias = gate_bias
        self.register_buffer("frequencies", frequencies, persistent=False)
        self.W_gamma = nn.Linear(width, heads, bias=False)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, gate_bias={self.gate_bias}"

    def place(self, positions: Tensor, keys: Tensor | None = None) -> Placed:
        """Cosines and sines, for all layers; the gates come with each layer's input.

        Gates follow the order of the tokens: queries are the last of the keys. ValueError where they stand elsewhere,
        on a CPU.
        """
        positions, keys = as_places(positions, keys, self.frequencies.shape[-1])
        if keys is not None:
            allowed, n = "gates follow the order of tokens: queries must be the last of the keys", positions.shape[-2]
            require(n <= keys.shape[-2], "positions", lambda: f"{n} for {keys.shape[-2]} keys", allowed)
            if readable(positions) and readable(keys):
                alike = bool((positions == keys[..., keys.shape[-2] - n :, :]).all())
                require(alike, "positions", "positions that are not those of the last keys", allowed)
        tables = at_both(lambda p: cis(pair_angles(for_heads(p), self.frequencies)), positions, keys)
        return _Gated(self, tables, counts(positions, keys))


class _Gated(Carried):
    """Turned queries and keys, and the gates of the layer's input."""

    def __init__(self, source: SympowEncoding, tables: tuple[Tensor, Tensor], sizes: tuple[int, int]):
        super().__init__(turn_pairs, tables, sizes, features=source.paired)
        self.source, self.own = source, (1, source.W_gamma.out_features)

    def log_gate(self, x: Tensor | None) -> Tensor:
        """log b_ij, (batch, heads, queries, keys); the last query stands beside the last key.

        ValueError without x, the layer's input at the keys: the gates are made of it.
        """
        queries, keys = self.counts
        gates = self._gates(x)
        return decay_of(gate_sums(gates)).to(gates.dtype)[..., keys - queries :, :]

    def masked_log_gate(self, x: Tensor | None, mask: Tensor | None) -> Tensor:
        """The same, the gates of tokens that a query must not see left out: padding, other branches of a tree.

        What stands in such a token, NaN too, changes no gate. A mask that does not fit is ``attend``'s to refuse.
        """
        queries, keys = self.counts
        rows, columns = queries + self.unplaced[0], keys + self.unplaced[1]
        fits = isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.dim() and mask.shape[-1] in (1, columns)
        if mask is None or not fits or (mask.dim() > 1 and mask.shape[-2] not in (1, rows)):
            return self.log_gate(x)
        gates = self._gates(x)[..., None, :]
        if any(m not in (1, n) for m, n in zip(mask.shape[-3::-1], (gates.shape[1], len(gates)))):
            return self.log_gate(x)
        seen = mask.expand(*mask.shape[:-2], rows, columns)[..., self.unplaced[0] :, self.unplaced[1] :]
        past = torch.ones(queries, keys, dtype=torch.bool, device=gates.device).tril(keys - queries)
        faded = torch.where(seen & past, gates, 0.0)[..., 1:].flip(-1).cumsum(-1).flip(-1)
        return nn.functional.pad(faded, (0, 1)).masked_fill(~past, float("-inf"))

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
        placed = input_of(x, self.counts[1], self.unplaced[1], self.source.W_gamma.in_features)
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

    outermost, settings = True, ("power",)

    def __init__(self, encoding: Encoding, power: int = 2):
        super().__init__()
        check_encoding(encoding, "encoding")
        check_power(power)
        self.encoding, self.power = encoding, power

    def extra_repr(self) -> str:
        return f"power={self.power}"

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return self.encoding.embed(x, positions)

    def place(self, positions: Tensor, keys: Tensor | None = None) -> Placed:
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
        check_scale(scale)
        dtype, seen = angle_dtype(q, k), visible(q, k, causal, mask)
        if is_grouped(q, k):
            k = repeat_heads(k, q.shape[1])
        with without_autocast(q.device):
            scores = q.to(dtype) @ k.to(dtype).mT
        if not scores.shape[-1]:  # no keys, no largest score
            return scores
        if (gate := self.for_all(log_gate, q, k, 0.0)) is not None:
            # The p-th root of the gate, so that one power takes both; its largest in a row cancels, too.
            most = (gate if seen is None else torch.where(seen, gate, float("-inf"))).detach().amax(-1, keepdim=True)
            scores = scores * ((gate - torch.where(most.isinf(), 0.0, most)) / self.power).exp()
        if seen is not None:
            scores = scores.masked_fill(~seen, 0.0)
        # A common factor of a row cancels; this one keeps its powers from overflow and underflow.
        row = scores.detach().abs().amax(-1, keepdim=True)
        powers = power_of(scores / torch.where(row == 0, 1.0, row), self.power)
        weights = powers / torch.where(row == 0, 1.0, powers.sum(-1, keepdim=True))
        omega = self.for_all(self.attenuation(), q, k, 1.0)
        return weights if omega is None else weights * omega

    def attend(self, q: Tensor, k: Tensor, v: Tensor, *given: Any, dropout: float = 0.0, **options: Any) -> Tensor:
        """The weights times the values, in the values' dtype."""
        check_attended(q, k, v, None, None, dropout)
        weights = self.weights(q, k, *given, **options)
        return add_up(nn.functional.dropout(weights, dropout) if dropout else weights, v)

    def as_score_mod(self, x: Tensor | None = None) -> ScoreMod:
        """p log|score| plus the gate; a score of exactly 0 becomes -inf. ValueError behind tokens without a place."""
        allowed = "FlexAttention would leave the scores of such tokens without their power: use attend"
        require(self.unplaced == (0, 0), "unplaced", self.unplaced, allowed)
        power, gate = score_modifier(self.power), super().as_score_mod(x)
        return power if gate is None else lambda score, *indices: gate(power(score, *indices), *indices)
