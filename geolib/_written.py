"""Attention written out for training on processors: products in bfloat16, what stands between them in float32.

PyTorch's fused kernel for processors takes ten times as long for bfloat16's backward pass as the products in it do.
Here both passes are products and a softmax, and the weights stand in memory. Scores are not rounded, and the softmax,
gates and attenuations are float32; weights and gradients are rounded where they become factors of a product.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from geolib._checks import angle_dtype, require
from geolib._compile import transformed
from geolib._precision import without_autocast

_PIECE = 2**16  # weights that are worked on at a time, where several float32 copies of them are made
LONGEST = 512  # tokens; from about twice as many on the fused kernel, which makes no matrix of weights, is faster


def pays(q: Tensor, k: Tensor, v: Tensor, fused: bool) -> bool:
    """Whether attention of these is written out; ``fused``: whether the fused kernel is the other choice."""
    narrow = q.device.type == "cpu" and q.dtype == k.dtype == v.dtype == torch.bfloat16
    alike = q.dim() >= 3 and q.shape[:-2] == k.shape[:-2] == v.shape[:-2]
    # A transform of functions, as vmap is, needs operations that it can see through.
    seen_through = torch.compiler.is_compiling() or transformed()
    trained = torch.is_grad_enabled() and not seen_through
    return narrow and alike and trained and not (fused and max(q.shape[-2], k.shape[-2]) > LONGEST)


class WrittenOut(torch.autograd.Function):
    """softmax(scale q k^T + gate) omega v, with a gradient for every tensor, differentiable once.

    q, k, v have equal leading dimensions; gate and omega are broadcastable to (..., queries, keys), or None.
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, scale: float, gate: Tensor | None, omega: Tensor | None
    ) -> Tensor:
        leading = q.shape[:-2]
        q, k, v = q.flatten(0, -3), k.flatten(0, -3), v.flatten(0, -3)
        # Products of two numbers of 8 bits are exact in float32, and so many of them add up without a loss that counts.
        scores = _product(q.float(), k.float().mT, scale).unflatten(0, leading)
        exact = (scores if gate is None else scores + gate).softmax(-1)
        if gate is not None and (closed := (gate == float("-inf")).all(-1, keepdim=True)).any():
            exact = exact.masked_fill(closed, 0.0)  # as the fused kernel: zeros, and not 0/0
        ctx.scale, ctx.gate_shape = scale, None if gate is None else gate.shape
        weights = exact.to(v.dtype)
        used = weights if omega is None else exact.mul_(omega).to(v.dtype)
        ctx.save_for_backward(q, k, v, weights, used, omega)
        return (used.flatten(0, -3) @ v).unflatten(0, leading)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, weights, used, omega = ctx.saved_tensors
        leading, gradient = weights.shape[:-2], gradient.flatten(0, -3)
        of_v = used.flatten(0, -3).mT @ gradient
        of_weights, of_omega, of_gate = (gradient @ v.mT).unflatten(0, leading), None, None
        if omega is not None:
            of_omega = _attenuate(of_weights, weights, omega)
        of_scores = torch._softmax_backward_data(of_weights, weights, -1, v.dtype)
        if ctx.needs_input_grad[4]:
            of_gate = of_scores.float().sum_to_size(ctx.gate_shape)
        of_scores = of_scores.flatten(0, -3)
        of_q, of_k = _product(of_scores, k, ctx.scale), _product(of_scores.mT, q, ctx.scale)
        return *(x.unflatten(0, leading) for x in (of_q, of_k, of_v)), None, of_gate, of_omega


def _attenuate(of_used: Tensor, weights: Tensor, omega: Tensor) -> Tensor:
    """Multiply the gradient of omega times the weights by omega, where it stands; the gradient of omega.

    A few samples at a time: in float32, as the products are made, they stay in the cache.
    """
    of_omega = torch.zeros_like(omega)
    size = max(1, _PIECE // max(1, weights[:1].numel()))
    shared = omega.dim() < weights.dim() or len(omega) == 1
    for first in range(0, len(weights), size):
        piece = slice(first, first + size)
        own = slice(None) if shared else piece
        wide = of_used[piece].float()
        of_omega[own] += weights[piece].float().mul_(wide).sum_to_size(omega[own].shape)
        of_used[piece] = wide.mul_(omega[own])
    return of_omega


def _product(a: Tensor, b: Tensor, scale: float) -> Tensor:
    """scale a b, scaled before it is rounded."""
    return torch.baddbmm(a.new_zeros(()), a, b, beta=0, alpha=scale)


# Heads that share keys, and sums of values ----------------------------------------------------------------------------


def is_grouped(q: Tensor, k: Tensor) -> bool:
    """Whether several query heads share a head of keys.

    >>> is_grouped(torch.zeros(1, 8, 5, 4), torch.zeros(1, 2, 5, 4))
    True
    """
    return q.dim() == k.dim() == 4 and bool(1 < k.shape[1] < q.shape[1])  # in a trace sizes are tensors


def repeat_heads(x: Tensor, heads: int) -> Tensor:
    """Keys or values (..., own heads, tokens, features) for more query heads, as in grouped-query attention.

    Each head stands for heads / own heads query heads that follow one another. ValueError where that is not whole.

    >>> repeat_heads(torch.tensor([[[1.0]], [[2.0]]]), 4).flatten()
    tensor([1., 1., 2., 2.])
    """
    own = x.shape[-3]
    require(heads % own == 0, "heads", heads, f"it must be a multiple of the {own} heads of keys and values")
    return x if own == heads else x.repeat_interleave(heads // own, -3)


def add_up(weights: Tensor, v: Tensor) -> Tensor:
    """Weights (..., heads, queries, keys) times values (..., heads or fewer, keys, value_dim), in the values' dtype.

    >>> add_up(torch.tensor([[0.5, 0.5]]), torch.tensor([[2.0], [4.0]]))
    tensor([[3.]])
    """
    if is_grouped(weights, v):
        v = repeat_heads(v, weights.shape[1])
    with without_autocast(v.device):  # as the fused kernel does: rounded at the end alone
        dtype = angle_dtype(weights, v)
        return (weights.to(dtype) @ v.to(dtype)).to(v.dtype)
