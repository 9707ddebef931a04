"""Kernels of the chunked form at p = 2 for a GPU, in Triton: embeddings and pairs never leave the chip.

A vector x has the embedding phi(x) = (x_a x_b, times root 2 where a < b): row a holds the b from a on, and rows follow
one another. A state is a matrix M of values by these coordinates. The operators are those of ``_chunks_cpu``. The last
column of values counts, and stands apart: matrix units take powers of two. Factors of products have the inputs' dtype,
as those of the large products have, and add up in float32.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from geolib.recurrence._products import summed
from geolib.sympow import dimension

# Through the state --------------------------------------------------------------------------------------------------


@triton.jit
def _row(a, b, dim: tl.constexpr, wide: tl.constexpr):
    """Where x_a x_b stands, whether it does, and its weight."""
    weight = tl.where(b == a, tl.full(b.shape, 1.0, wide), tl.full(b.shape, 1.4142135623730951, wide))
    return a * dim - a * (a - 1) // 2 + b - a, (b >= a) & (b < dim), weight


@triton.jit
def _phi(column, xs, here, wide: tl.constexpr):
    """A row of the embeddings of some tokens, without its weight, rounded to their dtype."""
    return (tl.load(column, here, 0.0).to(wide)[:, None] * xs.to(wide)).to(xs.dtype)


@triton.jit
def _write(x, w, state, tokens, dim: tl.constexpr, values: tl.constexpr, size: tl.constexpr,
           T: tl.constexpr, F: tl.constexpr, V: tl.constexpr, wide: tl.constexpr):  # fmt: skip
    """One row of the state of one chunk."""
    n, a = tl.program_id(0).to(tl.int64), tl.program_id(1)
    b, v = tl.arange(0, F), tl.arange(0, V)
    total, counted = tl.zeros((V, F), wide), tl.zeros((F,), wide)
    for first in range(0, tokens, T):
        t = n * tokens + first + tl.arange(0, T)
        here = first + tl.arange(0, T) < tokens
        xs = tl.load(x + t[:, None] * dim + b, here[:, None] & (b < dim), 0.0)
        ws = tl.load(w + t[:, None] * (values + 1) + v, here[:, None] & (v < values), 0.0)
        last = tl.load(w + t * (values + 1) + values, here, 0.0)
        phi = _phi(x + t * dim + a, xs, here, wide)
        total = tl.dot(tl.trans(ws), phi, total, input_precision="ieee", out_dtype=wide)
        counted += tl.sum(last.to(wide)[:, None] * phi.to(wide), 0)
    place, inside, weight = _row(a, b, dim, wide)
    at = state + n * (values + 1) * size + place
    tl.store(at + v[:, None] * size, total * weight, inside & (v < values)[:, None])
    tl.store(at + values * size, counted * weight, inside)


@triton.jit
def _read(x, state, y, tokens, dim: tl.constexpr, values: tl.constexpr, size: tl.constexpr,
          T: tl.constexpr, F: tl.constexpr, V: tl.constexpr, wide: tl.constexpr):  # fmt: skip
    """What some tokens of one chunk read."""
    n, first = tl.program_id(0).to(tl.int64), tl.program_id(1) * T
    b, v, t = tl.arange(0, F), tl.arange(0, V), n * tokens + first + tl.arange(0, T)
    here = first + tl.arange(0, T) < tokens
    xs = tl.load(x + t[:, None] * dim + b, here[:, None] & (b < dim), 0.0)
    total, counted = tl.zeros((T, V), wide), tl.zeros((T,), wide)
    for a in range(dim):
        place, inside, weight = _row(a, b, dim, wide)
        at = state + n * (values + 1) * size + place
        M = (tl.load(at + v[:, None] * size, inside & (v < values)[:, None], 0.0) * weight).to(xs.dtype)
        Z = tl.load(at + values * size, inside, 0.0) * weight
        phi = _phi(x + t * dim + a, xs, here, wide)
        total = tl.dot(phi, tl.trans(M), total, input_precision="ieee", out_dtype=wide)
        counted += tl.sum(phi.to(wide) * Z, 1)
    at = y + t * (values + 1)
    tl.store(at[:, None] + v, total, here[:, None] & (v < values))
    tl.store(at + values, counted, here)


@triton.jit
def _slope(x, w, state, out, tokens, dim: tl.constexpr, values: tl.constexpr, size: tl.constexpr,
           T: tl.constexpr, F: tl.constexpr, V: tl.constexpr, wide: tl.constexpr):  # fmt: skip
    """The derivative at some tokens of one chunk."""
    n, first = tl.program_id(0).to(tl.int64), tl.program_id(1) * T
    b, v, t = tl.arange(0, F), tl.arange(0, V), n * tokens + first + tl.arange(0, T)
    here = first + tl.arange(0, T) < tokens
    xs = tl.load(x + t[:, None] * dim + b, here[:, None] & (b < dim), 0.0)
    ws = tl.load(w + t[:, None] * (values + 1) + v, here[:, None] & (v < values), 0.0)
    last = tl.load(w + t * (values + 1) + values, here, 0.0).to(wide)
    total = tl.zeros((T, F), wide)
    for a in range(dim):
        place, inside, weight = _row(a, b, dim, wide)
        at = state + n * (values + 1) * size + place
        M = (tl.load(at + v[:, None] * size, inside & (v < values)[:, None], 0.0) * weight).to(xs.dtype)
        Z = tl.load(at + values * size, inside, 0.0) * weight
        by_phi = tl.dot(ws, M, last[:, None] * Z, input_precision="ieee", out_dtype=wide)  # of row a
        own = tl.sum(by_phi * xs.to(wide), 1)  # x_a meets all x_b of its row, and each of them meets x_a
        total += by_phi * tl.load(x + t * dim + a, here, 0.0).to(wide)[:, None] + tl.where(b == a, own[:, None], 0.0)
    tl.store(out + t[:, None] * dim + b, total, here[:, None] & (b < dim))


# Pairs --------------------------------------------------------------------------------------------------------------


@triton.jit
def _scores(qs, ks, sums, first, n, i, j, tokens, gated: tl.constexpr, wide: tl.constexpr):
    """Scores of a tile of pairs, and what multiplies their squares: gates, 0 for keys that are not seen."""
    s = tl.dot(qs, tl.trans(ks), input_precision="ieee", out_dtype=wide)
    seen, kept = (j <= i[:, None]) & (i < tokens)[:, None], tl.full(s.shape, 1.0, wide)
    if gated:
        since, till = tl.load(sums + n * tokens + j, j < tokens, 0.0), tl.load(sums + n * tokens + i, i < tokens, 0.0)
        seen &= j >= tl.load(first + n * tokens + i, i < tokens, 0)[:, None]
        kept = tl.exp(tl.minimum(till[:, None] - since, 0.0).to(wide))
    return s, tl.where(seen, kept, 0.0)


@triton.jit
def _pairs(q, k, v, sums, first, y, tokens, gated: tl.constexpr, dim: tl.constexpr, values: tl.constexpr,
           T: tl.constexpr, F: tl.constexpr, V: tl.constexpr, wide: tl.constexpr):  # fmt: skip
    """What some queries of one chunk take from its keys."""
    n, f, c = tl.program_id(0).to(tl.int64), tl.arange(0, F), tl.arange(0, V)
    i = tl.program_id(1) * T + tl.arange(0, T)
    qs = tl.load(q + (n * tokens + i[:, None]) * dim + f, (i < tokens)[:, None] & (f < dim), 0.0)
    total, counted = tl.zeros((T, V), wide), tl.zeros((T,), wide)
    for start in range(0, tl.minimum((tl.program_id(1) + 1) * T, tokens), T):
        j = start + tl.arange(0, T)
        ks = tl.load(k + (n * tokens + j[:, None]) * dim + f, (j < tokens)[:, None] & (f < dim), 0.0)
        at = v + (n * tokens + j) * (values + 1)
        vs = tl.load(at[:, None] + c, (j < tokens)[:, None] & (c < values), 0.0)
        s, kept = _scores(qs, ks, sums, first, n, i, j, tokens, gated, wide)
        weights = (kept * s * s).to(vs.dtype)
        total = tl.dot(weights, vs, total, input_precision="ieee", out_dtype=wide)
        counted += tl.sum(weights.to(wide) * tl.load(at + values, j < tokens, 0.0).to(wide), 1)
    at = y + (n * tokens + i) * (values + 1)
    tl.store(at[:, None] + c, total, (i < tokens)[:, None] & (c < values))
    tl.store(at + values, counted, i < tokens)


@triton.jit
def _pairs_by_queries(q, k, v, sums, first, slope, out, tokens, gated: tl.constexpr, dim: tl.constexpr,
                      values: tl.constexpr, T: tl.constexpr, F: tl.constexpr, V: tl.constexpr,
                      wide: tl.constexpr):  # fmt: skip
    """The derivative by some queries of one chunk; slope is that by y."""
    n, f, c = tl.program_id(0).to(tl.int64), tl.arange(0, F), tl.arange(0, V)
    i = tl.program_id(1) * T + tl.arange(0, T)
    qs = tl.load(q + (n * tokens + i[:, None]) * dim + f, (i < tokens)[:, None] & (f < dim), 0.0)
    to = slope + (n * tokens + i) * (values + 1)
    ys = tl.load(to[:, None] + c, (i < tokens)[:, None] & (c < values), 0.0)
    last = tl.load(to + values, i < tokens, 0.0).to(wide)
    total = tl.zeros((T, F), wide)
    for start in range(0, tl.minimum((tl.program_id(1) + 1) * T, tokens), T):
        j = start + tl.arange(0, T)
        ks = tl.load(k + (n * tokens + j[:, None]) * dim + f, (j < tokens)[:, None] & (f < dim), 0.0)
        at = v + (n * tokens + j) * (values + 1)
        vs = tl.load(at[:, None] + c, (j < tokens)[:, None] & (c < values), 0.0)
        s, kept = _scores(qs, ks, sums, first, n, i, j, tokens, gated, wide)
        by_weight = last[:, None] * tl.load(at + values, j < tokens, 0.0).to(wide)
        by_weight = tl.dot(ys, tl.trans(vs), by_weight, input_precision="ieee", out_dtype=wide)
        by_score = (2 * kept * s * by_weight).to(qs.dtype)
        total = tl.dot(by_score, ks, total, input_precision="ieee", out_dtype=wide)
    tl.store(out + (n * tokens + i[:, None]) * dim + f, total, (i < tokens)[:, None] & (f < dim))


@triton.jit
def _pairs_by_keys(q, k, v, sums, first, slope, by_k, by_v, tokens, gated: tl.constexpr, dim: tl.constexpr,
                   values: tl.constexpr, T: tl.constexpr, F: tl.constexpr, V: tl.constexpr,
                   wide: tl.constexpr):  # fmt: skip
    """The derivatives by some keys and values of one chunk."""
    n, f, c = tl.program_id(0).to(tl.int64), tl.arange(0, F), tl.arange(0, V)
    j = tl.program_id(1) * T + tl.arange(0, T)
    ks = tl.load(k + (n * tokens + j[:, None]) * dim + f, (j < tokens)[:, None] & (f < dim), 0.0)
    at = (n * tokens + j) * (values + 1)
    vs = tl.load(v + at[:, None] + c, (j < tokens)[:, None] & (c < values), 0.0)
    counts = tl.load(v + at + values, j < tokens, 0.0).to(wide)
    keys, vectors, counted = tl.zeros((T, F), wide), tl.zeros((T, V), wide), tl.zeros((T,), wide)
    for start in range(tl.program_id(1) * T, tokens, T):
        i = start + tl.arange(0, T)
        qs = tl.load(q + (n * tokens + i[:, None]) * dim + f, (i < tokens)[:, None] & (f < dim), 0.0)
        to = slope + (n * tokens + i) * (values + 1)
        ys = tl.load(to[:, None] + c, (i < tokens)[:, None] & (c < values), 0.0)
        last = tl.load(to + values, i < tokens, 0.0).to(wide)
        s, kept = _scores(qs, ks, sums, first, n, i, j, tokens, gated, wide)
        by_weight = tl.dot(ys, tl.trans(vs), last[:, None] * counts, input_precision="ieee", out_dtype=wide)
        by_score, weights = (2 * kept * s * by_weight).to(qs.dtype), (kept * s * s).to(ys.dtype)
        keys = tl.dot(tl.trans(by_score), qs, keys, input_precision="ieee", out_dtype=wide)
        vectors = tl.dot(tl.trans(weights), ys, vectors, input_precision="ieee", out_dtype=wide)
        counted += tl.sum(weights * last[:, None], 0)
    tl.store(by_k + (n * tokens + j[:, None]) * dim + f, keys, (j < tokens)[:, None] & (f < dim))
    tl.store(by_v + at[:, None] + c, vectors, (j < tokens)[:, None] & (c < values))
    tl.store(by_v + at + values, counted, j < tokens)


# Operators, shapes (heads, chunks, tokens, features) ----------------------------------------------------------------


def _sizes(x: Tensor, w_width: int) -> dict[str, Any]:
    """What a kernel must know of its tensors; tiles of 16 to 128 tokens and features."""
    dim, values = x.shape[-1], w_width - 1
    F, V = (max(16, triton.next_power_of_2(size)) for size in (dim, values))
    T = min(64, max(16, triton.next_power_of_2(x.shape[2])))
    wide = tl.float64 if x.dtype == torch.float64 else tl.float32
    return {"dim": dim, "values": values, "T": T, "F": F, "V": V, "wide": wide, "num_warps": 8}


def _blocks(x: Tensor, T: int) -> tuple[int, int]:
    return x.shape[0] * x.shape[1], triton.cdiv(x.shape[2], T)


@torch.library.custom_op("geolib::power_write", mutates_args=())
def write(x: Tensor, w: Tensor) -> Tensor:
    """sum_t w_t phi(x_t)^T, (heads, chunks, values + 1, D)."""
    x, w, sizes = x.contiguous(), w.contiguous(), _sizes(x, w.shape[-1])
    size = dimension(x.shape[-1], 2)
    state = x.new_empty(*x.shape[:2], w.shape[-1], size, dtype=summed(x.dtype))
    _write[x.shape[0] * x.shape[1], x.shape[-1]](x, w, state, x.shape[2], size=size, **sizes)
    return state


@torch.library.custom_op("geolib::power_read", mutates_args=())
def read(x: Tensor, state: Tensor) -> Tensor:
    """state phi(x_t), (heads, chunks, tokens, values + 1)."""
    x, state, sizes = x.contiguous(), state.contiguous(), _sizes(x, state.shape[2])
    y = x.new_empty(*x.shape[:3], state.shape[2], dtype=summed(x.dtype))
    _read[_blocks(x, sizes["T"])](x, state, y, x.shape[2], size=state.shape[3], **sizes)
    return y


@torch.library.custom_op("geolib::power_slope", mutates_args=())
def slope(x: Tensor, w: Tensor, state: Tensor) -> Tensor:
    """The derivative of w_t . state phi(x_t) by x_t, in x's shape."""
    x, w, state, sizes = x.contiguous(), w.contiguous(), state.contiguous(), _sizes(x, w.shape[-1])
    out = torch.empty_like(x)
    _slope[_blocks(x, sizes["T"])](x, w, state, out, x.shape[2], size=state.shape[3], **sizes)
    return out


@torch.library.custom_op("geolib::power_pairs", mutates_args=())
def pairs(q: Tensor, k: Tensor, v: Tensor, sums: Tensor | None, first: Tensor | None) -> Tensor:
    """sum_(j <= i) exp(G_i - G_j) (q_i . k_j)^2 v_j, (heads, chunks, tokens, values + 1)."""
    q, k, v, sums, first = _together(q, k, v, sums, first)
    sizes, y = _sizes(q, v.shape[-1]), v.new_empty(v.shape, dtype=summed(v.dtype))
    _pairs[_blocks(q, sizes["T"])](q, k, v, sums, first, y, q.shape[2], gated=sums is not q, **sizes)
    return y


@torch.library.custom_op("geolib::power_pairs_slope", mutates_args=())
def pairs_slope(
    q: Tensor, k: Tensor, v: Tensor, sums: Tensor | None, first: Tensor | None, by_y: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The derivatives of ``pairs`` by q, k and v."""
    q, k, v, sums, first = _together(q, k, v, sums, first)
    sizes, by_y = _sizes(q, v.shape[-1]), by_y.contiguous()
    by_q, by_k, by_v = (torch.empty_like(t) for t in (q, k, v))
    blocks, gated, tokens = _blocks(q, sizes["T"]), sums is not q, q.shape[2]
    _pairs_by_queries[blocks](q, k, v, sums, first, by_y, by_q, tokens, gated=gated, **sizes)
    _pairs_by_keys[blocks](q, k, v, sums, first, by_y, by_k, by_v, tokens, gated=gated, **sizes)
    return by_q, by_k, by_v


def _together(q: Tensor, k: Tensor, v: Tensor, sums: Tensor | None, first: Tensor | None) -> tuple[Tensor, ...]:
    """Each as it lies in memory, rows after one another; queries stand for gates that are not there."""
    q = q.contiguous()
    gates = (q, q) if sums is None or first is None else (sums.contiguous(), first.contiguous())
    return q, k.contiguous(), v.contiguous(), *gates


write.register_fake(
    lambda x, w: x.new_empty(*x.shape[:2], w.shape[-1], dimension(x.shape[-1], 2), dtype=summed(x.dtype))
)
read.register_fake(lambda x, state: x.new_empty(*x.shape[:3], state.shape[2], dtype=summed(x.dtype)))
slope.register_fake(lambda x, w, state: x.new_empty(x.shape))
pairs.register_fake(lambda q, k, v, sums, first: v.new_empty(v.shape, dtype=summed(v.dtype)))
pairs_slope.register_fake(lambda q, k, v, sums, first, by_y: tuple(t.new_empty(t.shape) for t in (q, k, v)))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _write_pull(ctx: Any, by_state: Tensor) -> tuple[Tensor | None, Tensor | None]:
    x, w = ctx.saved_tensors
    by_x, by_w = ctx.needs_input_grad
    return slope(x, w, by_state) if by_x else None, read(x, by_state).to(w.dtype) if by_w else None


def _read_pull(ctx: Any, by_y: Tensor) -> tuple[Tensor | None, Tensor | None]:
    x, state = ctx.saved_tensors
    by_x, by_state = ctx.needs_input_grad
    by_y = by_y.to(x.dtype)
    return slope(x, by_y, state) if by_x else None, write(x, by_y) if by_state else None


def _pairs_pull(ctx: Any, by_y: Tensor) -> tuple[Tensor | None, ...]:
    q, k, v, sums, first = ctx.saved_tensors
    return *pairs_slope(q, k, v, sums, first, by_y.to(q.dtype)), None, None


write.register_autograd(_write_pull, setup_context=_keep)
read.register_autograd(_read_pull, setup_context=_keep)
pairs.register_autograd(_pairs_pull, setup_context=_keep)
