"""The chunked form: pairs inside a chunk as attention, older tokens through the state."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.autograd import forward_ad

from geolib._checks import angle_dtype, require
from geolib._compile import exported_up_to
from geolib._precision import full_precision
from geolib.recurrence._chunks_cpu import attend_in_one_chunk, attend_on_cpu
from geolib.recurrence._chunks_gpu import attend_on_gpu
from geolib.recurrence._prepared import carried, prepared, turned
from geolib.recurrence._shared import (
    Sums,
    above_rounding,
    check_count,
    check_forms,
    exponent_of,
    finite_part,
    normalised,
    unit,
)
from geolib.recurrence.costs import practical_chunk
from geolib.recurrence.gates import cumulative_angles
from geolib.recurrence.state import Attended, State, _nothing

__all__ = ["by_chunks", "by_large_products", "chunked_form", "chunked_with", "one_chunk_form"]


def chunked_form(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    power: int,
    log_gates: Tensor | None = None,
    turns: Tensor | None = None,
    state: State | None = None,
    chunk: int | None = None,
) -> tuple[Attended, State]:
    """Symmetric-power attention in chunks: pairs inside a chunk as attention, older tokens through the state.

    The last chunk may be shorter; ``practical_chunk`` gives the length for None. ValueError as ``recurrent_form``, and
    for a chunk that is no whole number above 0.
    Source: CS-chunk, CS-2.

    Notes
    -----
    Time and memory grow linearly with the tokens: the backward pass makes embeddings again, and a state or two for
    each chunk is stored. On a CPU this is ``by_chunks``: differentiable once, and ``torch.compile`` leaves its
    operators as they are. On a GPU it is ``by_large_products``, in one graph.

    >>> q, v = torch.randn(1, 1, 50, 4), torch.randn(1, 1, 50, 3)
    >>> attended, state = chunked_form(q, q, v, 2, chunk=16)
    >>> torch.allclose(attended.output, attention_form(q, q, v, 2).output, atol=1e-4)
    True
    """
    choose = by_chunks if q.device.type == "cpu" else by_large_products
    return chunked_with(choose, q, k, v, power, log_gates, turns, state, chunk)


def chunked_with(
    choose: Choice,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    power: int,
    log_gates: Tensor | None = None,
    turns: Tensor | None = None,
    state: State | None = None,
    chunk: int | None = None,
) -> tuple[Attended, State]:
    """The chunked form by ``by_chunks`` or ``by_large_products``, whatever the device: to compare them.
    Source: CS-chunk.

    >>> q, v = torch.randn(1, 1, 50, 4), torch.randn(1, 1, 50, 3)
    >>> ours, other = (chunked_with(by, q, q, v, 2, chunk=16)[0] for by in (by_chunks, by_large_products))
    >>> torch.allclose(ours.output, other.output, atol=1e-4)
    True
    """
    check_forms(q, k, v, power, log_gates, turns)
    allowed = "a backward pass: of jvp and hessian attention_form and recurrent_form know"
    require(forward_ad._current_level < 0, "q", "forward derivatives", allowed)
    chunk = practical_chunk(q.shape[-1], power) if chunk is None else chunk
    check_count(chunk, "chunk")
    if (most := exported_up_to(q.shape[2])) is not None:
        allowed = f"an exported graph takes lengths that vary, here up to {most}, in one chunk: at least as many"
        require(chunk >= most, "chunk", chunk, allowed)
    chunk = q.shape[2] if q.shape[2] <= chunk else chunk  # as ``min``, which an exported graph would keep
    if q.numel() == 0:
        return _nothing(q, k, v), carried(state, q, v, power)
    with full_precision(q.device):
        ready = prepared(state, q, k, v, power, log_gates, turns, chunk)
        values, spoilt = finite_part(ready.v, log_gates)
        counted = torch.cat([values, torch.ones_like(values[..., :1])], -1)
        start = torch.cat([ready.S, ready.Z[:, :, None]], 2) * ready.shift[..., None, None]
        attend = choose(q, k, v, start.dtype)
        sums = attend(ready.q, ready.k, counted, log_gates, start, power, chunk)
        normaliser = above_rounding(sums.total[..., -1], sums.floor)
        value, logarithm = normalised(sums.total[..., :-1], normaliser, ready.log_scale)
        S = sums.last[:, :, :-1] + spoilt[:, :, -1, :, None]
        last = State(S, sums.last[:, :, -1].contiguous(), ready.mu, ready.exponent)
        return Attended((value + spoilt).to(v.dtype), logarithm), last


def one_chunk_form(
    q: Tensor, k: Tensor, v: Tensor, power: int, log_gates: Tensor | None = None, turns: Tensor | None = None
) -> Tensor:
    """The attention form's output on a processor: one chunk of the chunked form, and no state.

    Pairs are made a few queries at a time and again in the backward pass, so that they stay in the cache; it is
    differentiable once. ValueError as ``attention_form``.
    Source: CS-att.

    >>> q, v = torch.randn(1, 1, 5, 4), torch.randn(1, 1, 5, 3)
    >>> torch.allclose(one_chunk_form(q, q, v, 2), attention_form(q, q, v, 2).output, atol=1e-4)
    True
    """
    check_forms(q, k, v, power, log_gates, turns)
    if q.numel() == 0:
        return _nothing(q, k, v).output
    with full_precision(q.device):
        dtype = angle_dtype(q, k, v)
        q, k = turned(q, k, None if turns is None else cumulative_angles(turns), dtype)
        exponent = exponent_of(k, k.new_full(k.shape[:2], float("-inf")), power)
        q, k = unit(q, power)[0], k / torch.exp2(exponent / power)[..., None, None]
        values, spoilt = finite_part(v.to(dtype), log_gates)
        counted = torch.cat([values, torch.ones_like(values[..., :1])], -1)
        total = attend_in_one_chunk(q, k, counted, log_gates, power)
        output = normalised(total[..., :-1], total[..., -1], total[..., -1] * 0)[0]
        return (output + spoilt).to(v.dtype)


Engine = Callable[..., Sums]
Choice = Callable[[Tensor, Tensor, Tensor, torch.dtype], Engine]


def by_chunks(q: Tensor, k: Tensor, v: Tensor, dtype: torch.dtype) -> Engine:
    """Chunk after chunk, in numbers that stay in a CPU's cache; for ``chunked_with``.

    >>> q = torch.ones(1, 1, 2, 2)
    >>> chunked_with(by_chunks, q, q, q, 2)[0].output.flatten()
    tensor([1., 1., 1., 1.])
    """
    return attend_on_cpu


def by_large_products(q: Tensor, k: Tensor, v: Tensor, dtype: torch.dtype) -> Engine:
    """All chunks at once, for a GPU; for ``chunked_with``.

    Where queries, keys and values are bfloat16, so are the factors of products, which add up in float32. ``torch.vmap``
    takes it and autograd derives it; under ``torch.func.grad`` its products raise RuntimeError.

    >>> q = torch.ones(1, 1, 2, 2, dtype=torch.bfloat16)
    >>> chunked_with(by_large_products, q, q, q, 2)[0].output.flatten()
    tensor([1., 1., 1., 1.], dtype=torch.bfloat16)
    """
    return partial(attend_on_gpu, products=_factors(q, k, v, dtype))


def _factors(q: Tensor, k: Tensor, v: Tensor, dtype: torch.dtype) -> torch.dtype:
    """The dtype of the factors of products, which add up in the computation's."""
    half = dtype == torch.float32 and all(t.dtype == torch.bfloat16 for t in (q, k, v))
    return torch.bfloat16 if half else dtype
