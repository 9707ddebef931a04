"""Causal attention by name: what a token makes of those before it, and what is carried on to the next ones.

A method is three parts: what turns queries and keys (nothing, positions, the data, a dense rotation), whether gates let
go of what is old, and what a score becomes (a weight by softmax, by an even power, or as it is). ``CausalAttention``
puts them together. Its ``forward`` reads a whole window and carries nothing; its ``resume`` goes on from what is
carried: for powers and for linear attention a state of constant size, for softmax all keys and values so far.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from geolib._checks import check_even, require
from geolib._precision import WideBuffers, full_precision, numbered
from geolib.attention import attention
from geolib.lie import exp_skew
from geolib.placed import cis, turn_pairs
from geolib.recurrence import (
    GATE_BIAS,
    State,
    attention_form,
    chunked_form,
    crossing_length,
    log_gates,
    one_chunk_form,
    recurrent_form,
    rotation_rates,
    turns_of,
)
from geolib.rotations import document_frequencies
from geolib.sympow import state_numbers

# On a processor, tokens up to which a window is one chunk, and those of a chunk in a longer one: measured on heads of
# 16 and 32 features at p = 2, where a chunk's pairs and the state stay in a core's cache.
ONE_CHUNK, CHUNK = 384, 256


class DecodeState(NamedTuple):
    """What one layer carries from the tokens so far to the next ones."""

    # How far queries and keys have turned: radians (batch, heads, pairs) in float64, or (heads, d, d) matrices.
    turned: Tensor | None
    # The state of a power or of linear attention; the keys and values of softmax, and the last sum of log gates.
    kept: Any


# What turns queries and keys ----------------------------------------------------------------------------------------


class NoRotation(nn.Module):
    """Nothing turns."""

    def forward(self, q: Tensor, k: Tensor, x: Tensor, turned: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Queries, keys (batch, heads, tokens, d) and the layer's input; the first two, and what is carried on."""
        return q, k, None


class Rotary(WideBuffers):
    """Rotary embeddings: pairs turn by the document's frequencies with each token.

    Source: CS-rot.
    """

    frequencies: Tensor

    @numbered
    def __init__(self, width: int, heads: int, dim: int, longest: float):
        super().__init__()
        self.register_buffer("frequencies", document_frequencies(dim, longest), persistent=False)

    def turns(self, x: Tensor) -> Tensor:
        """How far each pair turns at each token: broadcastable to (batch, heads, tokens, pairs), radians."""
        return self.frequencies[:, 0].double().expand(1, 1, x.shape[1], -1)

    def forward(self, q: Tensor, k: Tensor, x: Tensor, turned: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """As ``NoRotation``'s."""
        angles = self.turns(x).double().cumsum(-2)
        if turned is not None:
            angles = angles + turned[..., None, :]
        table = cis(angles).to(torch.float32 if q.dtype != torch.float64 else torch.float64)
        return turn_pairs(q, table), turn_pairs(k, table), angles[..., -1, :]


class TurnedByData(Rotary):
    """Pairs turn by the frequencies times a rate between 0 and 2 that each token gives each head.

    Source: CS-beta.
    """

    def __init__(self, width: int, heads: int, dim: int, longest: float):
        super().__init__(width, heads, dim, longest)
        self.W_beta = nn.Linear(width, heads, bias=False)

    def rates(self, x: Tensor) -> Tensor:
        """beta, (batch, heads, tokens)."""
        return rotation_rates(self.W_beta(x).transpose(1, 2))

    def turns(self, x: Tensor) -> Tensor:
        """beta theta."""
        return turns_of(self.rates(x), self.frequencies)


class Dense(nn.Module):
    """LieRE's rotation in place of pairs: each token turns all features of a head by the exponential of a generator.

    The generator starts as that of rotary embeddings. Powers of one rotation commute, so a score still depends on the
    difference of two positions alone, and the lift of the rotation acts on the state of a power.

    Source: LR-lin, CS-P3.
    """

    def __init__(self, width: int, heads: int, dim: int, longest: float):
        super().__init__()
        start = torch.zeros(heads, dim, dim)
        even = torch.arange(0, dim, 2)
        start[:, even + 1, even] = document_frequencies(dim, longest)[:, 0]
        self.lower = nn.Parameter(start)  # its strictly lower triangle counts

    def step(self) -> Tensor:
        """The rotation of one token, (heads, d, d)."""
        lower = self.lower.tril(-1)
        return exp_skew(lower - lower.mT)

    def forward(self, q: Tensor, k: Tensor, x: Tensor, turned: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """As ``NoRotation``'s."""
        with full_precision(q.device):
            one = self.step()
            powers, reach = one[:, None], one  # R^1 ... R^n, and R^n
            while powers.shape[1] < q.shape[2]:
                powers, reach = torch.cat([powers, reach[:, None] @ powers], 1), reach @ reach
            powers = powers[:, : q.shape[2]]
            if turned is not None:
                powers = powers @ turned[:, None]
            turn = powers.to(torch.float64 if q.dtype == torch.float64 else torch.float32)
            # Not turn @ t: that would lay out each rotation anew for every sample.
            q, k = (torch.einsum("hnij,bhnj->bhni", turn, t.to(turn.dtype)) for t in (q, k))
        return q, k, powers[:, -1]


# What a score becomes -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Softmax:
    """Weights by softmax; gates add their logarithms to the scores, as FoX has it.

    A gate's sum up to the query is the same for a whole row and cancels. What is left stands beside the keys: one more
    feature, which every query meets with 1. So gates cost next to nothing, and the fused kernel stays.
    """

    def whole(self, q: Tensor, k: Tensor, v: Tensor, gates: Tensor | None) -> Tensor:
        """The output of a window, (batch, heads, tokens, d)."""
        return self.resume(q, k, v, gates, None)[0]

    def resume(self, q: Tensor, k: Tensor, v: Tensor, gates: Tensor | None, kept: Any) -> tuple[Tensor, Any]:
        """The output, and the keys and values with those so far."""
        size, scale, last = v.shape[-1], q.shape[-1] ** -0.5, None
        q, k, v = (t.to(torch.float64 if t.dtype == torch.float64 else torch.float32) for t in (q, k, v))
        if gates is not None:
            sums = gates.double().cumsum(-1) + (0.0 if kept is None else kept[2])
            last = sums[..., -1:]
            q = torch.cat([q, torch.ones_like(q[..., :1])], -1)
            k = torch.cat([k, (-sums / scale).to(k.dtype)[..., None]], -1)
            v = F.pad(v, (0, 1))
        if kept is not None:
            k, v = torch.cat([kept[0], k], 2), torch.cat([kept[1], v], 2)
        with full_precision(q.device):
            return attention(q, k, v, causal=True, scale=scale)[..., :size], (k, v, last)

    def numbers(self, dim: int) -> int | None:
        """How many numbers a head carries: None, for they grow with the tokens."""
        return None


@dataclass(frozen=True)
class Power:
    """Weights by an even power of the score; one window is one chunk, a long one several.

    Source: CS-att, CS-chunk, CS-rec.
    """

    power: int

    def whole(self, q: Tensor, k: Tensor, v: Tensor, gates: Tensor | None) -> Tensor:
        """The output of a window."""
        return (self.on_cpu if q.device.type == "cpu" else self.on_gpu)(q, k, v, gates)

    def on_cpu(self, q: Tensor, k: Tensor, v: Tensor, gates: Tensor | None) -> Tensor:
        """In numbers that stay in the cache."""
        if q.shape[2] <= ONE_CHUNK:
            return one_chunk_form(q, k, v, self.power, gates)
        return chunked_form(q, k, v, self.power, gates, chunk=CHUNK)[0].output

    def on_gpu(self, q: Tensor, k: Tensor, v: Tensor, gates: Tensor | None) -> Tensor:
        """By the form with the fewest operations."""
        if q.shape[2] <= crossing_length(q.shape[-1], self.power):
            return attention_form(q, k, v, self.power, gates).output
        return chunked_form(q, k, v, self.power, gates)[0].output

    def resume(self, q: Tensor, k: Tensor, v: Tensor, gates: Tensor | None, kept: State | None) -> tuple[Tensor, State]:
        """The output and the state after it."""
        form = recurrent_form if q.shape[2] == 1 else chunked_form
        attended, state = form(q, k, v, self.power, gates, None, kept)  # type: ignore[operator]
        return attended.output, state

    def numbers(self, dim: int) -> int:
        """Those of S and Z."""
        return state_numbers(dim, self.power)


LINEAR_CHUNK = 128


@dataclass(frozen=True)
class Linear:
    """Plain linear attention: phi = elu + 1 of queries and keys, their products as weights, and a state d by d."""

    def whole(self, q: Tensor, k: Tensor, v: Tensor, gates: Tensor | None) -> Tensor:
        """The output of a window."""
        return self.resume(q, k, v, gates, None)[0]

    def resume(self, q: Tensor, k: Tensor, v: Tensor, gates: Tensor | None, kept: Any) -> tuple[Tensor, Any]:
        """The output and the state after it, chunk by chunk."""
        dtype = torch.float64 if v.dtype == torch.float64 else torch.float32
        q, k = (F.elu(t.to(dtype)) + 1 for t in (q, k))
        counted = F.pad(v.to(dtype), (0, 1), value=1.0)
        state = counted.new_zeros(*q.shape[:2], q.shape[-1], counted.shape[-1]) if kept is None else kept
        if gates is None:
            gates = q.new_zeros(q.shape[:3])
        rows = []
        with full_precision(q.device):
            for q_, k_, v_, g in zip(*(t.split(LINEAR_CHUNK, 2) for t in (q, k, counted, gates))):
                sums = g.double().cumsum(-1)
                decay = (sums[..., :, None] - sums[..., None, :]).to(dtype).tril().exp().tril()
                ends = (sums[..., -1:] - sums).to(dtype).exp()
                rows.append(((q_ @ k_.mT) * decay) @ v_ + sums.to(dtype).exp()[..., None] * (q_ @ state))
                state = sums[..., -1, None, None].to(dtype).exp() * state + (k_ * ends[..., None]).mT @ v_
        total = torch.cat(rows, 2)
        return (total[..., :-1] / total[..., -1:]).to(v.dtype), state

    def numbers(self, dim: int) -> int:
        """A column for each value and one for the normaliser."""
        return dim * (dim + 1)


# The layer ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Method:
    """What a method is made of."""

    kernel: str
    turning: Callable[..., nn.Module]
    gates: bool = False


# In the order of the tables.
METHODS: dict[str, Method] = {
    "none": Method("softmax", lambda *sizes: NoRotation()),
    "softmax": Method("softmax", Rotary),
    "fox": Method("softmax", Rotary, gates=True),
    "sympow": Method("power", Rotary),
    "sympow+gates": Method("power", Rotary, gates=True),
    "sympow+rotations": Method("power", TurnedByData),
    "conformal-sympow": Method("power", TurnedByData, gates=True),
    "sympow+liere": Method("power", Dense, gates=True),
    "linear": Method("linear", Rotary),
    "linear+gates": Method("linear", Rotary, gates=True),
}


def kernel_of(name: str, power: int) -> Softmax | Power | Linear:
    """What a score becomes, by name."""
    kernels: dict[str, Softmax | Power | Linear] = {"softmax": Softmax(), "power": Power(power), "linear": Linear()}
    return kernels[name]


class CausalAttention(nn.Module):
    """Multi-head causal attention of one of ``METHODS``.

    ``longest`` is N in the frequencies, a constant of the model; ``power`` that of the scores, where the method has
    powers. ``GATE_BIAS`` starts gates at 0.999, 0 at 1/2. A head has width / heads features when ``head_dim`` is None.
    ``beta_scale`` multiplies the start of W_beta: 0 starts every rate at 1, PyTorch's own start spreads them from the
    first step.

    Source: CS-gate, CS-beta, CS-conf, CS-GATE0, CS-N.
    """

    def __init__(
        self,
        method: str,
        width: int,
        heads: int,
        longest: float,
        power: int = 2,
        gate_bias: float = GATE_BIAS,
        head_dim: int | None = None,
        beta_scale: float = 1.0,
    ):
        super().__init__()
        require(method in METHODS, "method", repr(method), f"there are {', '.join(METHODS)}")
        require(head_dim is not None or width % heads == 0, "heads", heads, f"it must divide the width {width}")
        dim = width // heads if head_dim is None else head_dim
        check_even(dim, "head_dim")
        parts = METHODS[method]
        self.heads, self.dim, self.gate_bias = heads, dim, gate_bias
        self.kernel = kernel_of(parts.kernel, power)
        self.turning = parts.turning(width, heads, dim, longest)
        if isinstance(self.turning, TurnedByData):
            self.turning.W_beta.weight.data.mul_(beta_scale)
        self.qkv = nn.Linear(width, 3 * heads * dim, bias=False)
        self.out = nn.Linear(heads * dim, width)
        self.W_gamma = nn.Linear(width, heads, bias=False) if parts.gates else None

    def log_gates(self, x: Tensor) -> Tensor | None:
        """log gamma of x (batch, tokens, width), (batch, heads, tokens); None without gates."""
        return None if self.W_gamma is None else log_gates(self.W_gamma(x).transpose(1, 2), self.gate_bias)

    def forward(self, x: Tensor) -> Tensor:
        """Attend in windows, (batch, tokens, width) to the same shape."""
        q, k, v = self.heads_of(x)
        q, k, _ = self.turning(q, k, x, None)
        return self.joined(self.kernel.whole(q, k, v, self.log_gates(x)), x)

    def resume(self, x: Tensor, carry: DecodeState | None) -> tuple[Tensor, DecodeState]:
        """Attend over x from what is carried (None: nothing), and hand on what is carried after it.

        >>> layer, x = CausalAttention("conformal-sympow", 16, 2, longest=64), torch.randn(1, 6, 16)
        >>> _, carry = layer.resume(x[:, :5], None)
        >>> torch.allclose(layer.resume(x[:, 5:], carry)[0], layer(x)[:, 5:], atol=1e-4)
        True
        """
        q, k, v = self.heads_of(x)
        q, k, turned = self.turning(q, k, x, None if carry is None else carry.turned)
        y, kept = self.kernel.resume(q, k, v, self.log_gates(x), None if carry is None else carry.kept)
        return self.joined(y, x), DecodeState(turned, kept)

    def heads_of(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, (batch, heads, tokens, d) each."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, self.dim)).permute(2, 0, 3, 1, 4)
        return q, k, v

    def joined(self, y: Tensor, x: Tensor) -> Tensor:
        """The heads' outputs as one row for each token."""
        return self.out(y.transpose(1, 2).flatten(2).to(x.dtype))
