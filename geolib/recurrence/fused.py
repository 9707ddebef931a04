"""The attention form by a fused softmax kernel whose scores can be modified: no matrix of all pairs in memory."""

import importlib.util
from collections.abc import Callable

import torch
from torch import Tensor

from geolib._checks import angle_dtype
from geolib._precision import full_precision
from geolib.flex import BLOCK, flex_kernel, past_blocks
from geolib.recurrence._prepared import turned
from geolib.recurrence._shared import check_forms, check_power, finite_part, following, gate_sums, in_parts, read_twice
from geolib.recurrence.gates import cumulative_angles
from geolib.recurrence.state import Attended, _nothing

__all__ = ["fused_form", "kernel_takes", "score_modifier"]

NARROWEST = 16
"""The fewest features that the kernel takes."""

TRITON = importlib.util.find_spec("triton") is not None
"""Whether kernels can be compiled here."""


def score_modifier(power: int, log_gates: Tensor | None = None) -> Callable[..., Tensor]:
    """The change of scores, p log|score| + log b_ij, with which a fused softmax kernel computes the attention form.

    A function of (score, batch, head, query index, key index), as ``torch.nn.attention.flex_attention`` takes it;
    call that with ``scale=1`` and a causal mask. A score of exactly 0 becomes -inf, with derivative 0,
    and so does that of a key before the query's last reset.
    Source: CS-FUSED.

    >>> score_modifier(2)(torch.tensor(-3.0), 0, 0, 5, 4).exp()
    tensor(9.)
    """
    check_power(power)
    gates = None if log_gates is None else gate_sums(log_gates)
    parts = [] if gates is None else read_twice(in_parts(gates.sums, log_gates.dtype))  # type: ignore[union-attr]
    first = None if gates is None else gates.first.int()

    def modify(score: Tensor, batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
        nothing = score == 0
        powered = power * torch.where(nothing, 1.0, score.abs()).log()
        for queries, keys in parts:
            powered = powered + (queries[batch, head, i] - keys[batch, head, j]).to(score.dtype)
        if first is not None:
            nothing = nothing | (j < first[batch, head, i])
        return torch.where(nothing, float("-inf"), powered)

    return modify


def fused_form(
    q: Tensor, k: Tensor, v: Tensor, power: int, log_gates: Tensor | None = None, turns: Tensor | None = None
) -> Attended:
    """The attention form by PyTorch's FlexAttention, forward and backward, gates and turns included.

    ``attention_form`` comes here by itself where ``kernel_takes`` the tensors. ValueError as there.
    Source: CS-FUSED, CS-gate, CS-conf.

    Notes
    -----
    On a GPU the kernel is compiled at its first call, and memory grows linearly with the tokens. Factors are in the
    inputs' dtype when it is one, in float32 otherwise; turned queries and keys are rounded to it. On a CPU the kernel
    runs uncompiled, holds all pairs, and has no derivative.

    The gates' derivative needs no sum over pairs: b_ij multiplies Q_i by gamma_i^(1/p) and K_j by its inverse, so
    it is (Q_i . dQ_i - K_i . dK_i) / p.

    >>> q, v = torch.randn(1, 1, 5, 16), torch.randn(1, 1, 5, 16)
    >>> gates = torch.full((1, 1, 5), 0.9).log()
    >>> from geolib.recurrence import attention_form
    >>> torch.allclose(fused_form(q, q, v, 2, gates).output, attention_form(q, q, v, 2, gates).output, atol=1e-5)
    True
    """
    check_forms(q, k, v, power, log_gates, turns)
    if q.numel() == 0:
        return _nothing(q, k, v)
    wide = angle_dtype(q, k, v, log_gates)
    dtype = v.dtype if q.dtype == k.dtype == v.dtype else wide
    with full_precision(q.device):
        q, k = turned(q, k, None if turns is None else cumulative_angles(turns), wide)
        if log_gates is not None and log_gates.requires_grad:
            q, k = following(q, k, gate_sums(log_gates).sums, power)
        modify = score_modifier(power, None if log_gates is None else log_gates.detach().to(wide))
        values, spoilt = finite_part(v, log_gates)
        factors = (t.to(dtype).contiguous() for t in (q, k, values))
        kernel, mask = flex_kernel(q.device.type, 1.0, False), past_blocks(q.shape[2], q.device)
        output, log_normaliser = kernel(*factors, modify, mask)
        return Attended(output.to(v.dtype) + spoilt, log_normaliser.to(wide))


def kernel_takes(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether the fused kernel computes the attention form of these: on a GPU, in float32 or less, not too narrow.

    >>> kernel_takes(torch.ones(1, 1, 256, 64), torch.ones(1, 1, 256, 64), torch.ones(1, 1, 256, 64))  # on a CPU
    False
    """
    wide_enough = min(q.shape[-1], v.shape[-1]) >= NARROWEST and q.shape[2] >= BLOCK
    return q.device.type == "cuda" and TRITON and wide_enough and angle_dtype(q, k, v) == torch.float32
