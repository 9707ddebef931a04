"""A layer of symmetric-power attention, and its gates as an encoding for softmax attention."""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from geolib._checks import require
from geolib.attention import Encoding, on_placed
from geolib.recurrence._shared import check_chunk, check_power
from geolib.recurrence.chunks import chunked_form
from geolib.recurrence.forms import recurrent_form
from geolib.recurrence.gates import GATE_BIAS, log_decay, log_gates, rotation_rates, turns_of
from geolib.recurrence.state import State
from geolib.rotations import document_frequencies, pair_angles, rotate_pairs


class SympowAttention(nn.Module):
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
        if chunk is not None:
            check_chunk(chunk)
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
        form = recurrent_form if x.shape[1] == 1 else partial(chunked_form, chunk=self.chunk)
        attended, state = form(q, k, v, self.power, self.log_gates(x), self.turns(x), state)
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

    def to_reference(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys, turned."""
        angles = pair_angles(positions, self.frequencies)
        return (
            on_placed(lambda placed: rotate_pairs(placed, angles), q, positions),
            on_placed(lambda placed: rotate_pairs(placed, angles), k, positions),
        )

    def log_gate(self, x: Tensor, positions: Tensor) -> Tensor:
        """log b_ij between placed tokens and 0 for the others, (batch, heads, tokens, tokens)."""
        unplaced = x.shape[1] - positions.shape[0]
        gates = log_gates(self.W_gamma(x[:, unplaced:]).transpose(1, 2), self.gate_bias)
        return nn.functional.pad(log_decay(gates), (unplaced, 0, unplaced, 0))
