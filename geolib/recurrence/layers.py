"""A layer of symmetric-power attention; its gates alone, and its powers alone, are ``geolib.encodings.sympow``."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from geolib._checks import check_heads, check_tensor, check_whole, check_width, require
from geolib._precision import WideBuffers, numbered
from geolib.attention import largest
from geolib.recurrence._shared import check_count, check_power
from geolib.recurrence.chunks import chunked_form
from geolib.recurrence.forms import recurrent_form
from geolib.recurrence.gates import GATE_BIAS, log_gates, rotation_rates, turns_of
from geolib.recurrence.state import Attended, State
from geolib.rotations import document_frequencies

__all__ = ["SympowAttention"]


class SympowAttention(WideBuffers):
    """Causal multi-head attention by symmetric powers, with gates and rotations that depend on the data.
    Source: CS-gate, CS-beta, CS-conf, CS-cost, CS-GATE0, CS-N.

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
    """

    frequencies: Tensor
    settings = ("heads", "power", "gate_bias")

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
        check_heads(heads, width)
        check_power(power)
        own = heads if key_heads is None else key_heads
        check_whole(own, "key_heads")
        require(own > 0 and heads % own == 0, "key_heads", own, f"it must divide the {heads} heads")
        if chunk is not None:
            check_count(chunk, "chunk")
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
        check_width(x, self.qkv.in_features)
        trace = "torch.compile and torch.export take this layer; a trace would keep the numbers of one text"
        require(not torch.jit.is_tracing(), "x", "torch.jit.trace", trace)
        kept = state is None or isinstance(state, State)
        require(kept, "state", type(state).__name__, "a State, as forward hands it on; a mask is handed over by name")
        batch, tokens, width = x.shape
        seen = None
        if mask is not None:
            of_keys = isinstance(mask, Tensor) and mask.dim() == 4 and mask.shape[1:3] == (1, 1)  # for all queries
            seen = _flags(mask[:, 0, 0] if of_keys else mask, "mask", batch, tokens)
            x = x.masked_fill(~seen[..., None], 0.0)  # without a bias queries, keys and values are 0, too
        require(largest(x) < float("inf"), "x", "inf or NaN", "the layer's input must be finite where no mask hides it")
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
        return attended, last if shared == 1 else _each(last, lambda t: t[:, ::shared].contiguous())


def _each(state: State, change: Callable[[Tensor], Tensor]) -> State:
    """Every tensor of a state, changed."""
    S, Z, mu, exponent = state
    return State(change(S), change(Z), change(mu), None if exponent is None else change(exponent))


def _flags(flags: Tensor, name: str, batch: int, tokens: int) -> Tensor:
    """Bool (tokens,) or (batch or 1, tokens) as (batch or 1, tokens)."""
    check_tensor(flags, name)
    require(flags.dtype == torch.bool, name, flags.dtype, "it must be bool")
    fits = tuple(flags.shape) in ((tokens,), (1, tokens), (batch, tokens))
    require(fits, name, flags.shape, lambda: f"it must be {(batch, tokens)} or {(tokens,)}")
    return flags if flags.dim() == 2 else flags[None]
