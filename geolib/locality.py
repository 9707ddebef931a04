"""Locality focusing: attention whose weights are multiplied, after the softmax, by a Gaussian of the distance.

A token at p_m takes the value at p_n with the weight softmax(S)_mn Omega_mn, where S = q k^T / sqrt(d) and
Omega_mn = exp(-|p_m - p_n|_A^2 / (2 sigma_m^2)). The rows no longer sum to one: what lies far off is lost, not handed
to the neighbours.

sigma is positive, in units of position. Its last dimension is 1 (one width a head) or the number of placed tokens (one
width for each query). A is symmetric positive definite; the identity by default. Tokens in front of the placed ones
have no position: their rows and columns of Omega are ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from geolib._checks import angle_dtype, require
from geolib.attention import attention_weights
from geolib.conformal import metric_root

# Distances and their Gaussian ---------------------------------------------------------------------------------------


def precision_root(raw: Tensor) -> Tensor:
    """The Cholesky factor of a symmetric positive definite matrix, from free numbers.

    Parameters
    ----------
    raw : Tensor, (..., axes, axes)
        Any real numbers; the part above the diagonal is not used. Zeros give the identity.

    Returns
    -------
    Tensor, (..., axes, axes)
        L, lower triangular: raw below the diagonal, exp(raw) on it.

    Source: RF-21.
    """
    return raw.tril(-1) + torch.diag_embed(raw.diagonal(dim1=-2, dim2=-1).exp())


def precision_matrix(raw: Tensor) -> Tensor:
    """A symmetric positive definite matrix from free numbers: A = L L^T with L = ``precision_root(raw)``.

    Parameters
    ----------
    raw : Tensor, (..., axes, axes)
        Any real numbers; the part above the diagonal is not used. Zeros give the identity.

    Returns
    -------
    Tensor, (..., axes, axes)

    Source: RF-21.
    """
    root = precision_root(raw)
    return root @ root.mT


def whiten(positions: Tensor, precision: Tensor | None = None) -> Tensor:
    """Coordinates in which the distance of A is Euclidean: u = L^T p with A = L L^T.

    Parameters
    ----------
    positions : Tensor, (tokens, axes)
    precision : Tensor, (..., axes, axes), or None for the identity
        A.

    Returns
    -------
    Tensor, (..., tokens, axes)

    Raises
    ------
    ValueError
        When A is not symmetric positive definite, or has the wrong size.

    Source: RF-21.
    """
    shape = tuple(positions.shape)
    require(positions.dim() == 2, "positions", f"shape {shape}", "it must be (tokens, axes)")
    if precision is None:
        return positions
    size = tuple(precision.shape[-2:])
    require(size == (shape[1], shape[1]), "precision", f"a matrix of {size}", f"positions have {shape[1]} axes")
    dtype = angle_dtype(positions, precision)
    return positions.to(dtype) @ metric_root(precision.to(dtype))


def squared_distances(positions: Tensor, precision: Tensor | None = None) -> Tensor:
    """|p_m - p_n|_A^2 = (p_m - p_n)^T A (p_m - p_n) for every pair of tokens.

    Parameters
    ----------
    positions : Tensor, (tokens, axes)
    precision : Tensor, (..., axes, axes), or None for the identity
        A, symmetric positive definite.

    Returns
    -------
    Tensor, (..., tokens, tokens)

    Source: RF-21.
    """
    u = whiten(positions, precision)
    return (u.unsqueeze(-2) - u.unsqueeze(-3)).square().sum(-1)


def log_attenuation(positions: Tensor, sigma: Tensor, precision: Tensor | None = None) -> Tensor:
    """log Omega = -|p_m - p_n|_A^2 / (2 sigma_m^2).

    Parameters
    ----------
    positions : Tensor, (tokens, axes)
    sigma : Tensor, (..., 1) or (..., tokens)
        Above 0, in units of position; the width belongs to the query.
    precision : Tensor, (..., axes, axes), or None for the identity
        A.

    Returns
    -------
    Tensor, (..., tokens, tokens)

    Raises
    ------
    ValueError
        When a width is not above 0, or their number fits neither one nor the tokens.

    Source: RF-21.
    """
    return -squared_distances(positions, precision) * _rate(sigma, positions).unsqueeze(-1)


def attenuation(positions: Tensor, sigma: Tensor, precision: Tensor | None = None) -> Tensor:
    """Omega = G_sigma(p_m, p_n) = exp(-|p_m - p_n|_A^2 / (2 sigma_m^2)).

    Parameters and errors are those of ``log_attenuation``.

    Returns
    -------
    Tensor, (..., tokens, tokens)
        Ones on the diagonal, between 0 and 1 elsewhere.

    Source: RF-21.
    """
    return log_attenuation(positions, sigma, precision).exp()


def pad_unplaced(omega: Tensor, tokens: int) -> Tensor:
    """Omega with rows and columns of ones for the tokens in front that have no place.

    Parameters
    ----------
    omega : Tensor, (..., placed tokens, placed tokens)
    tokens : int
        All tokens; at least as many as are placed.

    Returns
    -------
    Tensor, (..., tokens, tokens)

    Source: RF-22.
    """
    extra = tokens - omega.shape[-1]
    require(extra >= 0, "positions", f"{omega.shape[-1]} rows", f"q has {tokens} tokens, so at most {tokens}")
    return F.pad(omega, (extra, 0, extra, 0), value=1.0)


def _rate(sigma: Tensor, positions: Tensor) -> Tensor:
    """1 / (2 sigma^2), after checking the widths."""
    count = sigma.shape[-1] if sigma.dim() else 0
    fits = count in (1, positions.shape[0])
    allowed = f"its last dimension must be 1 or the {positions.shape[0]} placed tokens"
    require(fits, "sigma", f"shape {tuple(sigma.shape)}", allowed)
    if not torch.compiler.is_compiling():
        good = bool(((sigma > 0) & sigma.isfinite()).all())
        require(good, "sigma", "a width that is not a finite number above 0", "widths must be finite and above 0")
    return 0.5 * sigma.to(angle_dtype(sigma, positions)) ** -2


# Three literal forms ------------------------------------------------------------------------------------------------


def focus_one_query(weights: Tensor, decay: Tensor, v: Tensor) -> Tensor:
    """One query's output, s (Lambda V): its weights times the values, each value first shrunk by its decay.

    Parameters
    ----------
    weights : Tensor, (..., keys)
        s, a row of the softmax.
    decay : Tensor, (..., keys)
        The diagonal of Lambda.
    v : Tensor, (..., keys, d)

    Returns
    -------
    Tensor, (..., d)

    Source: RF-19, RF-20.
    """
    return (weights.unsqueeze(-2) @ (decay.unsqueeze(-1) * v)).squeeze(-2)


def bilateral_filter(range_kernel: Tensor, spatial_kernel: Tensor, v: Tensor) -> Tensor:
    """sum_n G_s(q_m, k_n) G_sigma(p_m, p_n) v_n: similarity of content times nearness.

    Parameters
    ----------
    range_kernel : Tensor, (..., queries, keys)
        G_s, the weights of attention.
    spatial_kernel : Tensor, broadcastable to (..., queries, keys)
        G_sigma.
    v : Tensor, (..., keys, d)

    Returns
    -------
    Tensor, (..., queries, d)

    Source: RF-21.
    """
    return torch.einsum("...mn,...mn,...nd->...md", range_kernel, spatial_kernel.expand_as(range_kernel), v)


def focused_attention(
    q: Tensor, k: Tensor, v: Tensor, positions: Tensor, sigma: Tensor, precision: Tensor | None = None
) -> Tensor:
    """(softmax(q k^T / sqrt(d)) * Omega) V with the matrices written out.

    Parameters
    ----------
    q, k : Tensor, (..., heads, tokens, d)
    v : Tensor, (..., heads, tokens, value_dim)
    positions : Tensor, (placed tokens, axes)
    sigma : Tensor, (1,), (placed tokens,), (heads, 1) or (heads, placed tokens)
    precision : Tensor, (axes, axes) or (heads, axes, axes), or None for the identity

    Returns
    -------
    Tensor, (..., heads, tokens, value_dim)

    Source: RF-22.
    """
    omega = pad_unplaced(attenuation(positions, sigma, precision), q.shape[-2])
    return (attention_weights(q, k) * omega.to(q.dtype)) @ v


def focused_attention_by_lse(q: Tensor, k: Tensor, v: Tensor, log_omega: Tensor) -> Tensor:
    """The same as one softmax: softmax(S + log Omega) V, row m scaled by e^(lse(S + log Omega) - lse(S)).

    Parameters
    ----------
    q, k : Tensor, (..., tokens, d)
    v : Tensor, (..., tokens, value_dim)
    log_omega : Tensor, broadcastable to (..., tokens, tokens)

    Returns
    -------
    Tensor, (..., tokens, value_dim)

    Notes
    -----
    The identity with its matrices standing in memory; ``fused_focused_attention`` computes it block by block.

    Source: RF-FUSED.
    """
    scores = q @ k.mT * q.shape[-1] ** -0.5
    gated = scores + log_omega
    row_factor = (gated.logsumexp(-1) - scores.logsumexp(-1)).exp()
    return row_factor.unsqueeze(-1) * (gated.softmax(-1) @ v)


# The fused form -----------------------------------------------------------------------------------------------------


def fused_focused_attention(
    q: Tensor, k: Tensor, v: Tensor, positions: Tensor, sigma: Tensor, precision: Tensor | None = None
) -> Tensor:
    """(softmax(q k^T / sqrt(d)) * Omega) V without a tokens x tokens matrix, forward or backward.

    A block of queries at a time, both log-sum-exps and both products share one pass over the keys: the rows
    e^(S - max) and e^(S - max) Omega stand in one small buffer, the first is summed and the second multiplies V. The
    backward pass computes the block again. Distances come from differences of positions, not from an expansion into
    inner products, which would cancel badly in float32 once positions reach hundreds of widths.

    Parameters
    ----------
    q, k : Tensor, (..., heads, tokens, d)
    v : Tensor, (..., heads, tokens, value_dim)
    positions : Tensor, (placed tokens, axes)
    sigma : Tensor, (1,), (placed tokens,), (heads, 1) or (heads, placed tokens)
    precision : Tensor, (axes, axes) or (heads, axes, axes), or None for the identity

    Returns
    -------
    Tensor, (..., heads, tokens, value_dim)
        In q's dtype. Differentiable once, in every argument.

    Raises
    ------
    ValueError
        As ``focused_attention``; and when q, k and v differ in their leading dimensions or their numbers of tokens.

    Source: RF-FUSED, RF-22.
    """
    require(q.dim() >= 3 and k.shape == q.shape, "k", f"shape {tuple(k.shape)}", f"q has shape {tuple(q.shape)}")
    require(v.shape[:-1] == q.shape[:-1], "v", f"shape {tuple(v.shape)}", f"q and k have shape {tuple(q.shape)}")
    tokens, placed = q.shape[-2], positions.shape[0]
    require(placed <= tokens, "positions", f"{placed} rows", f"q has {tokens} tokens, so at most {tokens}")
    rate, u = _rate(sigma, positions), whiten(positions, precision)
    _check_heads(rate, 1, q, "sigma")
    _check_heads(u, 2, q, "precision")
    dtype = angle_dtype(q, rate, u)
    u = (u if u.dim() == 3 else u.unsqueeze(0)).to(dtype)
    rate = (rate if rate.dim() == 2 else rate.unsqueeze(0)).to(dtype).expand(-1, placed)
    y = _Focused.apply(*(x.to(dtype).reshape(-1, *x.shape[-3:]) for x in (q, k, v)), u, rate)
    return y.reshape(*v.shape).to(q.dtype)


def _check_heads(x: Tensor, inner: int, q: Tensor, argument: str) -> None:
    """One entry for all heads, or one for each."""
    lead, heads = tuple(x.shape[:-inner]), q.shape[-3]
    require(lead in ((), (1,), (heads,)), argument, f"leading shape {lead}", f"one for all, or one for each of {heads}")


# Entries of one block of the score matrix, all heads together (8 MiB in float32): large enough for efficient matrix
# products, small beside the memory that queries, keys and values take.
_BLOCK_ENTRIES = 2**21
_LEAST_ROWS = 32


class _Focused(torch.autograd.Function):
    """Blocks of queries; q, k, v (batch, heads, tokens, d), u (heads or 1, placed, axes), rate (heads or 1, placed).

    With P = softmax(S), W = P Omega and G = W (dy V^T), the gradients are dS = G - (sum_n G) P and d log Omega = G.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, u: Tensor, rate: Tensor) -> Tensor:
        y, lse = torch.empty_like(v), q.new_empty(*q.shape[:-1], 1)
        k_t, extra = k.mT * q.shape[-1] ** -0.5, q.shape[2] - u.shape[1]
        for rows, samples in _blocks(q, u):
            omega = _omega_rows(u, rate, rows, extra)
            for b in samples:
                p = q[b, :, rows] @ k_t[b]
                top = p.amax(-1, keepdim=True)
                total = p.sub_(top).exp_().sum(-1, keepdim=True)
                lse[b, :, rows] = total.log() + top
                y[b, :, rows] = (_times_omega(p, omega) @ v[b]).div_(total)
        ctx.save_for_backward(q, k, v, u, rate, y, lse)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, ...]:
        q, k, v, u, rate, y, lse = ctx.saved_tensors
        scale, extra = q.shape[-1] ** -0.5, q.shape[2] - u.shape[1]
        dq, dk, dv, du, drate = (torch.zeros_like(x) for x in (q, k, v, u, rate))
        k_t, v_t, delta = k.mT * scale, v.mT, (dy * y).sum(-1, keepdim=True)
        for rows, samples in _blocks(q, u):
            omega = _omega_rows(u, rate, rows, extra)
            for b in samples:
                p = (q[b, :, rows] @ k_t[b]).sub_(lse[b, :, rows]).exp_()
                w = _times_omega(p.clone(), omega)
                dv[b] += w.mT @ dy[b, :, rows]
                g = (dy[b, :, rows] @ v_t[b]).mul_(w)
                if omega is not None and any(ctx.needs_input_grad[3:]):
                    here = slice(rows.start - extra, rows.stop - extra)
                    _add_omega_gradients(g[..., extra:].sum(0), u, rate, here, du, drate)
                ds = g.sub_(p.mul_(delta[b, :, rows]))
                dq[b, :, rows] = (ds @ k[b]).mul_(scale)
                dk[b] += (ds.mT @ q[b, :, rows]).mul_(scale)
        return dq, dk, dv, du, drate


def _blocks(q: Tensor, u: Tensor) -> Iterator[tuple[slice, list[slice]]]:
    """Rows of queries, those without a place apart from the others, and the slices of the batch to take them in."""
    batch, heads, tokens, _ = q.shape
    extra = tokens - u.shape[1]
    at_once = min(batch, max(1, _BLOCK_ENTRIES // (heads * tokens * _LEAST_ROWS)))
    count = max(_LEAST_ROWS, _BLOCK_ENTRIES // (at_once * heads * tokens))
    samples = [slice(b, b + at_once) for b in range(0, batch, at_once)]
    for start, stop in ((0, extra), (extra, tokens)):
        for row in range(start, stop, count):
            yield slice(row, min(row + count, stop)), samples


def _omega_rows(u: Tensor, rate: Tensor, rows: slice, extra: int) -> Tensor | None:
    """Omega for a block of queries, (heads or 1, rows, placed); None where the queries have no place."""
    if rows.start < extra:
        return None
    here = slice(rows.start - extra, rows.stop - extra)
    # One axis at a time: a tensor of differences with an axis dimension would be as large again for each axis.
    distances = sum((u[:, here, None, a] - u[:, None, :, a]).square_() for a in range(u.shape[-1]))
    return (distances * -rate[:, here, None]).exp_()


def _times_omega(p: Tensor, omega: Tensor | None) -> Tensor:
    """p, changed in place: its last columns, those of the placed keys, times Omega."""
    if omega is not None:
        p[..., p.shape[-1] - omega.shape[-1] :].mul_(omega)
    return p


def _add_omega_gradients(g: Tensor, u: Tensor, rate: Tensor, rows: slice, du: Tensor, drate: Tensor) -> None:
    """Add what d log Omega = g, (heads, rows, placed), gives u and rate, from log Omega = -rate_m |u_m - u_n|^2.

    The sums over keys are matrix products with 1, z and |z|^2, where z are coordinates from the middle of the block:
    far keys, for which these would cancel, have no weight.
    """
    middle = u[:, rows].mean(1, keepdim=True)
    x, z, c = u[:, rows] - middle, u - middle, rate[:, rows, None]
    g0, g1, g2 = (g @ torch.cat([torch.ones_like(z[..., :1]), z, z.square().sum(-1, keepdim=True)], -1)).split(
        [1, u.shape[-1], 1], -1
    )
    spread = x.square().sum(-1, keepdim=True) * g0 - 2 * (x * g1).sum(-1, keepdim=True) + g2
    drate[:, rows] -= spread.squeeze(-1).sum_to_size(drate[:, rows].shape)
    du[:, rows] -= (2 * c * (x * g0 - g1)).sum_to_size(x.shape)
    moved = g.mT @ torch.cat([c * x, c + torch.zeros_like(x[..., :1])], -1)
    du += (2 * (moved[..., :-1] - z * moved[..., -1:])).sum_to_size(u.shape)
