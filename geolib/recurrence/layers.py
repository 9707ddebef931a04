"""A layer of symmetric-power attention, and its gates as an encoding for softmax attention."""

from __future__ import annotations

from torch import Tensor, nn

from geolib._checks import check_places, require
from geolib._precision import WideBuffers
from geolib.attention import Encoding, Placed
from geolib.placed import Carried, at_both, cis, counts, for_heads, turn_pairs
from geolib.recurrence.chunks import chunked_form
from geolib.recurrence.gates import GATE_BIAS, decay_of, log_gates, rotation_rates, turns_of
from geolib.recurrence.state import State, check_power
from geolib.rotations import document_frequencies, pair_angles


class SympowAttention(WideBuffers):
    """Causal multi-head attention by symmetric powers, with gates and rotations that depend on the data.

    Parameters
    ----------
    width : int
        Features of a token; a multiple of heads, with an even number of features a head.
    heads : int
    power : int
        p, even.
    longest : float
        N in the frequencies 2 pi / N^(2(i-1)/d): a constant of the model, not the length at hand.
    gate_bias : float
        ``GATE_BIAS`` starts gates at 0.999; 0 starts them at 1/2, as the paper's formula has it.
    chunk : int or None
        Tokens in a chunk; ``practical_chunk`` when None.

    Notes
    -----
    ``W_gamma`` and ``W_beta`` hold one row of ``width`` numbers for each head.

    Source: CS-gate, CS-beta, CS-conf, CS-cost, CS-GATE0, CS-N.
    """

    frequencies: Tensor

    def __init__(
        self,
        width: int,
        heads: int,
        power: int = 2,
        longest: float = 65536.0,
        gate_bias: float = GATE_BIAS,
        chunk: int | None = None,
    ):
        super().__init__()
        require(heads > 0 and width % heads == 0, "heads", heads, f"it must divide the width {width}")
        check_power(power)
        self.heads, self.power, self.gate_bias, self.chunk = heads, power, gate_bias, chunk
        self.register_buffer("frequencies", document_frequencies(width // heads, longest), persistent=False)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width)
        self.W_gamma = nn.Linear(width, heads, bias=False)
        self.W_beta = nn.Linear(width, heads, bias=False)

    def log_gates(self, x: Tensor) -> Tensor:
        """log gamma for each head and token.

        Parameters
        ----------
        x : Tensor, (batch, tokens, width)

        Returns
        -------
        Tensor, (batch, heads, tokens)
        """
        return log_gates(self.W_gamma(x).transpose(1, 2), self.gate_bias)

    def turns(self, x: Tensor) -> Tensor:
        """beta theta for each head, token and pair.

        Parameters
        ----------
        x : Tensor, (batch, tokens, width)

        Returns
        -------
        Tensor, (batch, heads, tokens, head_dim / 2)
            Radians.
        """
        return turns_of(rotation_rates(self.W_beta(x).transpose(1, 2)), self.frequencies)

    def forward(self, x: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Attend, from a carried state on.

        Parameters
        ----------
        x : Tensor, (batch, tokens, width)
        state : State or None
            What earlier tokens left; empty when None.

        Returns
        -------
        tuple of Tensor, (batch, tokens, width), and State
        """
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)  # (3, batch, heads, tokens, d)
        attended, state = chunked_form(q, k, v, self.power, self.log_gates(x), self.turns(x), state, self.chunk)
        return self.out(attended.output.transpose(1, 2).flatten(2)), state


class SympowEncoding(Encoding):
    """The gates and the fixed rotations of symmetric-power attention, as an encoding for softmax attention.

    Queries and keys turn by the document's frequencies; what the gates between a key and a query multiply the score by
    is added in logarithms. The gates look at the past only, so a query gives -inf to later keys; on a grid, tokens come
    in reading order.

    Parameters
    ----------
    width, heads : int
    frequencies : Tensor, (pairs, axes)
        Radians per unit of position: ``document_frequencies``, times the strides of the axes on a grid.
    gate_bias : float

    Notes
    -----
    Rotations that depend on the data need the layer's input where queries turn; ``SympowAttention`` has them.

    Source: CS-gate, CS-rot, CS-A1.
    """

    frequencies: Tensor

    def __init__(self, width: int, heads: int, frequencies: Tensor, gate_bias: float = GATE_BIAS):
        super().__init__()
        require(heads > 0 and width % heads == 0, "heads", heads, f"it must divide the width {width}")
        self.gate_bias = gate_bias
        self.register_buffer("frequencies", frequencies, persistent=False)
        self.W_gamma = nn.Linear(width, heads, bias=False)

    def place(self, positions: Tensor, keys: Tensor | None = None) -> Placed:
        """Cosines and sines, for all layers; the gates come with each layer's input."""
        check_places(positions, keys, self.frequencies.shape[-1])
        tables = at_both(lambda p: cis(pair_angles(for_heads(p), self.frequencies)), positions, keys)
        return _Gated(self, tables, counts(positions, keys))


class _Gated(Carried):
    """Turned queries and keys, and the gates of the layer's input."""

    def __init__(self, source: SympowEncoding, tables: tuple[Tensor, Tensor], sizes: tuple[int, int]):
        super().__init__(turn_pairs, tables, sizes)
        self.source = source

    def log_gate(self, x: Tensor) -> Tensor:
        """log b_ij, (batch, heads, queries, keys); the last query stands beside the last key."""
        queries, keys = self.counts
        gates = log_gates(self.source.W_gamma(x[:, x.shape[1] - keys :]).transpose(1, 2), self.source.gate_bias)
        return decay_of(gates.double().cumsum(-1)).to(gates.dtype)[..., keys - queries :, :]
