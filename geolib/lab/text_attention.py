"""Causal attention by name, for language models.

A method has three parts: a rotation of queries and keys (by the position, by the data, or none), gates that forget, and
a kernel that makes a score a weight (softmax, an even power, or the features of linear attention).

Shapes in this module: x (batch, tokens, width), the layer's input; q, k, v (batch, heads, tokens, d), as what attention
makes of them; gates (batch, heads, tokens), the logarithms of forget gates, or None. A cache is what a kernel keeps of
the tokens so far, None at the start: of constant size for powers and linear attention, which decode from a state.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from geolib import recurrence
from geolib._checks import angle_dtype, check_even, require
from geolib._precision import WideBuffers, full_precision, numbered
from geolib.attention import attention
from geolib.encodings import cis, turn_pairs
from geolib.rotations import document_frequencies


class Rotary(WideBuffers):
    """Rotary embeddings: pairs of features rotate by the document's frequencies with each token. Source: CS-rot."""

    frequencies: Tensor

    @numbered
    def __init__(self, width: int, heads: int, dim: int, longest: float):
        super().__init__()
        self.register_buffer("frequencies", document_frequencies(dim, longest), persistent=False)

    def steps(self, x: Tensor) -> Tensor:
        """Compute the angle that each token adds to each pair, in radians, (batch or 1, heads or 1, tokens, pairs)."""
        return self.frequencies[:, 0].double().expand(1, 1, x.shape[1], -1)

    def forward(self, q: Tensor, k: Tensor, x: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Rotate queries and keys; also returns the total rotation, which the next tokens take as ``before``."""
        angles = self.steps(x).double().cumsum(-2)
        if before is not None:
            angles = angles + before[..., None, :]
        table = cis(angles).to(angle_dtype(q))
        return turn_pairs(q, table), turn_pairs(k, table), angles[..., -1, :]


class DataRotation(Rotary):
    """Pairs rotate by the frequencies times a rate between 0 and 2 that each token gives each head. Source: CS-beta."""

    def __init__(self, width: int, heads: int, dim: int, longest: float):
        super().__init__(width, heads, dim, longest)
        self.W_beta = nn.Linear(width, heads, bias=False)

    def rates(self, x: Tensor) -> Tensor:
        """Compute beta, (batch, heads, tokens)."""
        return recurrence.rotation_rates(self.W_beta(x).transpose(1, 2))

    def steps(self, x: Tensor) -> Tensor:
        """Compute beta theta, (batch, heads, tokens, pairs)."""
        return recurrence.turns_of(self.rates(x), self.frequencies)


# On a CPU, tokens up to which a window of a power is one chunk, and those of a chunk in a longer one: measured on heads
# of 16 and 32 features at p = 2, where a chunk's pairs and the state stay in a core's cache.
ONE_CHUNK, CHUNK, LINEAR_CHUNK = 384, 256, 128


def attend(kernel: str, power: int, q: Tensor, k: Tensor, v: Tensor, gates: Tensor | None) -> Tensor:
    """Attend in a whole window with a kernel of ``METHODS``; only "power" uses the power.

    It takes all pairs in a short window, else chunks; on a GPU what needs fewer operations. Source: CS-att, CS-chunk.
    """
    if kernel != "power":
        return attend_after(kernel, power, q, k, v, gates, None)[0]
    tokens, on_cpu = q.shape[2], q.device.type == "cpu"
    if tokens > (ONE_CHUNK if on_cpu else recurrence.crossing_length(q.shape[-1], power)):
        return recurrence.chunked_form(q, k, v, power, gates, chunk=CHUNK if on_cpu else None)[0].output
    if on_cpu:
        return recurrence.one_chunk_form(q, k, v, power, gates)
    return recurrence.attention_form(q, k, v, power, gates).output


def attend_after(
    kernel: str, power: int, q: Tensor, k: Tensor, v: Tensor, gates: Tensor | None, cache: Any
) -> tuple[Tensor, Any]:
    """Attend over tokens after those of a cache, and hand on the cache after them, S and Z of a power.

    Source: CS-rec, CS-chunk.
    """
    if kernel != "power":
        return {"softmax": softmax, "linear": linear}[kernel](q, k, v, gates, cache)
    form: Any = recurrence.recurrent_form if q.shape[2] == 1 else recurrence.chunked_form
    attended, state = form(q, k, v, power, gates, None, cache)
    return attended.output, state


def softmax(q: Tensor, k: Tensor, v: Tensor, gates: Tensor | None, cache: Any) -> tuple[Tensor, Any]:
    """Attend by softmax; the cache holds keys and values so far, and the last sum of log gates.

    Gates add their logarithms to the scores, as FoX has it. A gate's sum up to the query is the same for a whole row
    and cancels. What is left is one more feature of the keys, times 1 of every query, and the fused kernel stays.
    """
    size, scale, last = v.shape[-1], q.shape[-1] ** -0.5, None
    q, k, v = (t.to(angle_dtype(t)) for t in (q, k, v))
    if gates is not None:
        sums = gates.double().cumsum(-1) + (0.0 if cache is None else cache[2])
        last = sums[..., -1:]
        q = torch.cat([q, torch.ones_like(q[..., :1])], -1)
        k = torch.cat([k, (-sums / scale).to(k.dtype)[..., None]], -1)
        v = F.pad(v, (0, 1))
    if cache is not None:
        k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
    with full_precision(q.device):
        return attention(q, k, v, causal=True, scale=scale)[..., :size], (k, v, last)


def linear(q: Tensor, k: Tensor, v: Tensor, gates: Tensor | None, cache: Any) -> tuple[Tensor, Tensor]:
    """Attend by linear attention on elu + 1, chunk by chunk; the cache is its state, (batch, heads, d, d + 1)."""
    dtype = angle_dtype(v)
    q, k = (F.elu(t.to(dtype)) + 1 for t in (q, k))
    counted = F.pad(v.to(dtype), (0, 1), value=1.0)
    state = counted.new_zeros(*q.shape[:2], q.shape[-1], counted.shape[-1]) if cache is None else cache
    gates = q.new_zeros(q.shape[:3]) if gates is None else gates
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


class Method(NamedTuple):
    """The parts of a method: a kernel's name, a rotation (None: queries and keys stay), and whether there are gates."""

    kernel: str
    rotation: Callable[..., nn.Module] | None
    gates: bool = False


METHODS: dict[str, Method] = {  # in the order of the tables
    "none": Method("softmax", None),
    "softmax": Method("softmax", Rotary),
    "fox": Method("softmax", Rotary, gates=True),
    "sympow": Method("power", Rotary),
    "sympow+gates": Method("power", Rotary, gates=True),
    "sympow+rotations": Method("power", DataRotation),
    "conformal-sympow": Method("power", DataRotation, gates=True),
    "linear": Method("linear", Rotary),
    "linear+gates": Method("linear", Rotary, gates=True),
}


class DecodeState(NamedTuple):
    """What one layer hands from the tokens so far to the next ones; empty at the start."""

    rotation: Tensor | None = None  # in total, radians (batch, heads, pairs) in float64
    cache: Any = None


class CausalAttention(nn.Module):
    """Multi-head causal attention of one of ``METHODS``.

    ``longest`` is N in the frequencies. ``gate_bias`` is added to the logits of gates: ``GATE_BIAS`` starts them at
    0.999, 0 at 1/2. A head has ``head_dim`` features, width / heads when None. ``beta_scale`` multiplies the start of
    W_beta: 0 starts every rate at 1. ValueError for an unknown method and for sizes that do not fit.
    Source: CS-gate, CS-beta, CS-conf, CS-GATE0, CS-N.
    """

    def __init__(
        self,
        method: str,
        width: int,
        heads: int,
        longest: float,
        power: int = 2,
        gate_bias: float = recurrence.GATE_BIAS,
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
        self.kernel, self.power = parts.kernel, power
        self.turning = parts.rotation(width, heads, dim, longest) if parts.rotation else None
        if isinstance(self.turning, DataRotation):
            self.turning.W_beta.weight.data.mul_(beta_scale)
        self.qkv = nn.Linear(width, 3 * heads * dim, bias=False)
        self.out = nn.Linear(heads * dim, width)
        self.W_gamma = nn.Linear(width, heads, bias=False) if parts.gates else None

    def log_gates(self, x: Tensor) -> Tensor | None:
        """Compute log gamma, (batch, heads, tokens); None without gates."""
        return None if self.W_gamma is None else recurrence.log_gates(self.W_gamma(x).transpose(1, 2), self.gate_bias)

    def rotated(self, x: Tensor, before: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Project x to rotated queries and keys and to values; also returns the total rotation."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, self.dim)).permute(2, 0, 3, 1, 4)
        q, k, after = (q, k, None) if self.turning is None else self.turning(q, k, x, before)
        return q, k, v, after

    def forward(self, x: Tensor) -> Tensor:
        """Attend in whole windows, (batch, tokens, width) to the same shape."""
        q, k, v, _ = self.rotated(x)
        y = attend(self.kernel, self.power, q, k, v, self.log_gates(x))
        return self.out(y.transpose(1, 2).flatten(2).to(x.dtype))

    def resume(self, x: Tensor, state: DecodeState) -> tuple[Tensor, DecodeState]:
        """Attend over tokens that follow those of a state, and hand on the state after them.

        >>> layer, x = CausalAttention("conformal-sympow", 16, 2, longest=64), torch.randn(1, 6, 16)
        >>> _, state = layer.resume(x[:, :5], DecodeState())
        >>> torch.allclose(layer.resume(x[:, 5:], state)[0], layer(x)[:, 5:], atol=1e-4)
        True
        """
        q, k, v, rotation = self.rotated(x, state.rotation)
        y, cache = attend_after(self.kernel, self.power, q, k, v, self.log_gates(x), state.cache)
        return self.out(y.transpose(1, 2).flatten(2).to(x.dtype)), DecodeState(rotation, cache)
