"""Locality focusing: attention whose weights are multiplied, after the softmax, by a Gaussian of the distance.

A token at p_m takes the value at p_n with the weight softmax(S)_mn Omega_mn, where S = q k^T / sqrt(d) and
Omega_mn = exp(-|p_m - p_n|_A^2 / (2 sigma_m^2)). The rows no longer sum to one: what lies far off is lost, not handed
to the neighbours.

sigma is positive, in units of position. Its last dimension is 1 (one width a head) or the number of placed tokens (one
width for each query). A is symmetric positive definite; the identity by default. Tokens in front of the placed ones
have no position: their rows and columns of Omega are ones.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from geolib._checks import angle_dtype, as_widest, require
from geolib._compile import recomputed
from geolib._precision import full_precision, wide_default
from geolib.attention import attention_weights
from geolib.conformal import metric_root

# Distances and their Gaussian ---------------------------------------------------------------------------------------


def precision_root(raw: Tensor) -> Tensor:
    """The Cholesky factor L (..., axes, axes) of a symmetric positive definite matrix, from free numbers.

    raw below the diagonal, exp(raw) on it; what stands above is not used. Zeros give the identity.
    Source: RF-21.

    >>> precision_root(torch.tensor([[math.log(2), 9.0], [3.0, 0.0]])).tolist()
    [[2.0, 0.0], [3.0, 1.0]]
    """
    return raw.tril(-1) + torch.diag_embed(raw.diagonal(dim1=-2, dim2=-1).exp())


def precision_matrix(raw: Tensor) -> Tensor:
    """A symmetric positive definite matrix from free numbers: A = L L^T with L = ``precision_root(raw)``.
    Source: RF-21.

    >>> precision_matrix(torch.tensor([[math.log(2), 9.0], [3.0, 0.0]])).tolist()
    [[4.0, 6.0], [6.0, 10.0]]
    """
    root = precision_root(raw)
    with full_precision(root.device):
        return root @ root.mT


def whiten(positions: Tensor, precision: Tensor | None = None) -> Tensor:
    """Coordinates (..., tokens, axes) in which the distance of A is Euclidean: u = L^T p with A = L L^T.

    Positions are (tokens, axes); the precision A (..., axes, axes) is the identity where it is None. ValueError when A
    is not symmetric positive definite, or has another number of axes.
    Source: RF-21.

    >>> whiten(torch.tensor([[1.0, 2.0]]), torch.diag(torch.tensor([1.0, 4.0]))).tolist()
    [[1.0, 4.0]]
    """
    shape = positions.shape
    require(len(shape) == 2 and shape[1] > 0, "positions", shape, "it must be (tokens, axes) with at least one axis")
    if precision is None:
        return positions.to(angle_dtype(positions))
    size = tuple(precision.shape[-2:])
    require(size == (shape[1], shape[1]), "precision", f"a matrix of {size}", f"positions have {shape[1]} axes")
    dtype = angle_dtype(positions, precision)
    with full_precision(positions.device):
        return positions.to(dtype) @ metric_root(precision.to(dtype))


def squared_distances(positions: Tensor, precision: Tensor | None = None) -> Tensor:
    """|p_m - p_n|_A^2 = (p_m - p_n)^T A (p_m - p_n), (..., tokens, tokens).

    Positions are (tokens, axes), A (..., axes, axes) is the identity where it is None; errors as ``whiten``.
    Source: RF-21.

    >>> squared_distances(torch.tensor([[0.0, 0.0], [1.0, 2.0]]), torch.diag(torch.tensor([1.0, 4.0])))[0, 1].item()
    17.0
    """
    u = whiten(_near(positions), precision)
    return (u.unsqueeze(-2) - u.unsqueeze(-3)).square().sum(-1)


def _near(positions: Tensor) -> Tensor:
    """Positions, whole ones from the first on: a float would round large ones, and differences are all that counts."""
    return positions if positions.is_floating_point() else positions.long() - positions[:1].long()


def log_attenuation(positions: Tensor, sigma: Tensor, precision: Tensor | None = None) -> Tensor:
    """log Omega = -|p_m - p_n|_A^2 / (2 sigma_m^2), (..., tokens, tokens).

    Positions are (tokens, axes); sigma, in units of position, (..., 1) or (..., tokens) for each query its own; A (...,
    axes, axes). ValueError when a width is not above 0, or their number fits neither one nor the tokens.
    Source: RF-21.

    >>> log_attenuation(torch.tensor([[0.0], [2.0]]), torch.tensor([1.0])).tolist()
    [[0.0, -2.0], [-2.0, 0.0]]
    """
    positions = _near(positions).to(angle_dtype(positions, sigma, precision))
    return -squared_distances(positions, precision) * _rate(sigma, positions).unsqueeze(-1)


def attenuation(positions: Tensor, sigma: Tensor, precision: Tensor | None = None) -> Tensor:
    """Omega = exp(-|p_m - p_n|_A^2 / (2 sigma_m^2)): ones on the diagonal; arguments and errors as ``log_attenuation``.
    Source: RF-21.

    >>> attenuation(torch.tensor([[0.0], [2.0]]), torch.tensor([1.0])).tolist()
    [[1.0, 0.135335], [0.135335, 1.0]]
    """
    return log_attenuation(positions, sigma, precision).exp()


def alibi_slopes(heads: int) -> Tensor:
    """ALiBi's slopes a_h = 2^(-8h/H), h = 1 ... H, (heads,): a step costs a score a_h.

    Where H is no power of two, as published: those of the nearest power below it, then every second one of twice that
    power, from the first on.
    Source: CS-A1.

    >>> alibi_slopes(4).tolist(), alibi_slopes(3).tolist()
    ([0.25, 0.0625, 0.015625, 0.00390625], [0.0625, 0.00390625, 0.25])
    """
    require(heads > 0, "heads", heads, "at least one")
    power = 2 ** (heads.bit_length() - 1)
    own, between = (2.0 ** (-8 * torch.arange(1, n + 1, dtype=wide_default()) / n) for n in (power, 2 * power))
    return torch.cat([own, between[0::2][: heads - power]])


def rmt_slopes(heads: int, first: float = 2.0, span: float = 4.0) -> Tensor:
    """-log gamma_h for RMT's decays gamma_h = 1 - 2^(-first - span h/H), h = 0 ... H - 1, (heads,).

    First and span are those of the early stages of its smaller models, as published in its code.

    >>> rmt_slopes(4).neg().exp().tolist()
    [0.75, 0.875, 0.9375, 0.96875]
    """
    return -torch.log1p(-(2.0 ** (-first - span * torch.arange(heads, dtype=wide_default()) / heads)))


MANHATTAN_SLOPES: dict[str, Callable[[int], Tensor]] = {"alibi": alibi_slopes, "rmt": rmt_slopes}
"""Slopes of penalties that grow with the number of steps, by the method that chose them."""


def _tokens_in_front(q: Tensor, positions: Tensor) -> int:
    """How many of q's tokens have no place; ValueError when there are more places than tokens."""
    n, rows = q.shape[-2], positions.shape[0]
    require(rows <= n, "positions", lambda: f"{rows} rows", lambda: f"q has {n} tokens, so at most {n}")
    return n - rows


def _rate(sigma: Tensor, positions: Tensor) -> Tensor:
    """1 / (2 sigma^2), after checking the widths."""
    count = sigma.shape[-1] if sigma.dim() else 0
    fits = count in (1, positions.shape[0])
    require(fits, "sigma", sigma.shape, lambda: f"its last dimension must be 1 or the {len(positions)} placed tokens")
    if not torch.compiler.is_compiling():
        good = bool(((sigma > 0) & sigma.isfinite()).all())
        require(good, "sigma", "a width that is not a finite number above 0", "widths must be finite and above 0")
    sigma = sigma.to(angle_dtype(sigma, positions))
    return 0.5 * (sigma**-2).clamp(max=torch.finfo(sigma.dtype).max)  # not inf, which times a distance of 0 is NaN


# Three literal forms ------------------------------------------------------------------------------------------------


def focus_one_query(weights: Tensor, decay: Tensor, v: Tensor) -> Tensor:
    """One query's output, s (Lambda V): its weights times the values, each value first shrunk by its decay.

    s, a row of the softmax, and the diagonal of Lambda are (..., keys), v is (..., keys, d).
    Source: RF-19, RF-20.

    >>> focus_one_query(torch.tensor([0.5, 0.5]), torch.tensor([1.0, 0.1]), torch.tensor([[2.0], [10.0]])).item()
    1.5
    """
    weights, decay, v = as_widest(weights, decay, v)
    return (weights.unsqueeze(-2) @ (decay.unsqueeze(-1) * v)).squeeze(-2)


def bilateral_filter(range_kernel: Tensor, spatial_kernel: Tensor, v: Tensor) -> Tensor:
    """sum_n G_s(q_m, k_n) G_sigma(p_m, p_n) v_n: similarity of content times nearness.

    The range kernel G_s, the weights of attention, is (..., queries, keys), the spatial kernel G_sigma broadcastable to
    it, v is (..., keys, d).
    Source: RF-21.

    >>> bilateral_filter(torch.tensor([[0.5, 0.5]]), torch.tensor([[1.0, 0.1]]), torch.tensor([[2.0], [10.0]])).item()
    1.5
    """
    range_kernel, spatial_kernel, v = as_widest(range_kernel, spatial_kernel, v)
    return torch.einsum("...mn,...mn,...nd->...md", range_kernel, spatial_kernel.expand_as(range_kernel), v)


def focused_attention(
    q: Tensor, k: Tensor, v: Tensor, positions: Tensor, sigma: Tensor, precision: Tensor | None = None
) -> Tensor:
    """(softmax(q k^T / sqrt(d)) * Omega) V with the matrices written out.

    Shapes and errors are those of ``fused_focused_attention``, with any number of leading dimensions.
    Source: RF-22.

    >>> q = torch.zeros(1, 2, 1)  # equal scores
    >>> v = torch.ones(1, 2, 1)
    >>> focused_attention(q, q, v, torch.tensor([[0.0], [2.0]]), torch.tensor([1.0])).flatten().tolist()
    [0.567668, 0.567668]
    """
    front = _tokens_in_front(q, positions)
    omega = attenuation(_near(positions).to(angle_dtype(q, k, v, positions)), sigma, precision)
    omega = F.pad(omega, (front, 0, front, 0), value=1.0)
    weights, wide = as_widest(attention_weights(q, k, attenuation=omega), v)
    return (weights @ wide).to(q.dtype)


def focused_attention_by_lse(q: Tensor, k: Tensor, v: Tensor, log_omega: Tensor) -> Tensor:
    """The same as one softmax: softmax(S + log Omega) V, row m scaled by e^(lse(S + log Omega) - lse(S)).

    q and k are (..., tokens, d), v (..., tokens, value_dim), log Omega broadcastable to (..., tokens, tokens). The
    identity with its matrices standing in memory; ``fused_focused_attention`` computes it block by block.
    Source: RF-FUSED.

    >>> q, log_omega = torch.zeros(2, 1), log_attenuation(torch.tensor([[0.0], [2.0]]), torch.tensor([1.0]))
    >>> focused_attention_by_lse(q, q, torch.ones(2, 1), log_omega).flatten().tolist()
    [0.567668, 0.567668]
    """
    q, k, v, log_omega = as_widest(q, k, v, log_omega)
    scores = q @ k.mT * q.shape[-1] ** -0.5
    gated = scores + log_omega
    row_factor = (gated.logsumexp(-1) - scores.logsumexp(-1)).exp()
    return row_factor.unsqueeze(-1) * (gated.softmax(-1) @ v)


# Without a matrix of distances: a Gaussian as features ---------------------------------------------------------------


def gaussian_features(
    positions: Tensor, sigma: Tensor, precision: Tensor | None = None, parts: int = 1, dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor]:
    """Features of queries and of keys, (..., tokens, axes + 2 parts), whose inner product is log Omega.

    With u the positions in widths, counted from the middle of their extent, log Omega is u_m . u_n - |u_n|^2/2 -
    |u_m|^2/2: a query has (u_m, 1, -|u_m|^2/2), a key (u_n, -|u_n|^2/2, 1). The last ``parts`` features of both make
    a number of the row: inside a softmax over placed keys they may be left out.

    Positions are (tokens, axes), sigma (..., 1) has one width for all queries of a head, the precision (..., axes,
    axes) is the identity where it is None. Half squares are computed from the rounded u and written as a sum of
    ``parts`` numbers; ``dtype`` is what the features are rounded to, where None that of positions, at least float32.
    ValueError as ``log_attenuation``; when a head has more than one width, or there is no part.
    Source: RF-21.

    >>> a, b = gaussian_features(torch.tensor([[0.0], [2.0]]), torch.tensor([1.0]))
    >>> a.tolist(), b.tolist()
    ([[-1.0, 1.0, -0.5], [1.0, 1.0, -0.5]], [[-1.0, -0.5, 1.0], [1.0, -0.5, 1.0]])
    """
    require(parts >= 1, "parts", parts, "half squares have at least one part")
    width = sigma.shape[-1] if sigma.dim() else 0
    require(width == 1, "sigma", sigma.shape, "its last dimension must be 1, one width for all queries")
    dtype = angle_dtype(positions, sigma, precision) if dtype is None else dtype
    positions = positions.double()
    rate, u = _rate(sigma, positions), whiten(positions, precision)
    if len(positions):
        u = u - (u.amin(-2, keepdim=True) + u.amax(-2, keepdim=True)) / 2
    rounded = (u * (2 * rate).sqrt().unsqueeze(-1)).to(dtype)
    left, halves = -0.5 * rounded.double().square().sum(-1, keepdim=True), []
    for _ in range(parts):
        halves.append(left.to(dtype))
        left = left - halves[-1].double()
    half = torch.cat(halves, -1)
    return torch.cat([rounded, torch.ones_like(half), half], -1), torch.cat([rounded, half, torch.ones_like(half)], -1)


def gated_by_features(
    q: Tensor, k: Tensor, v: Tensor, positions: Tensor, sigma: Tensor, precision: Tensor | None = None, parts: int = 1
) -> Tensor:
    """softmax(q k^T / sqrt(d) + log Omega) V, the Gaussian gate, by one call of a fused kernel that adds no bias.

    q and k are (..., heads, tokens, d), v is (..., heads, tokens, value_dim), tokens in front may have no place; the
    rest and the errors are those of ``gaussian_features``.
    Source: RF-21.

    >>> q, v = torch.zeros(1, 2, 1), torch.tensor([[[1.0], [0.0]]])
    >>> gated_by_features(q, q, v, torch.tensor([[0.0], [2.0]]), torch.tensor([1.0])).flatten().tolist()
    [0.880797, 0.119203]
    """
    a, b = _placed_features(q, positions, sigma, precision, parts)
    if q.shape[-2] == positions.shape[0]:  # keys without a place lack the number of the row: then it has to stay
        a, b = a[..., :-parts], b[..., :-parts]
    return _plain(torch.cat([q * q.shape[-1] ** -0.5, a], -1), torch.cat([k, b], -1), v)


def focused_by_features(
    q: Tensor, k: Tensor, v: Tensor, positions: Tensor, sigma: Tensor, precision: Tensor | None = None, parts: int = 1
) -> Tensor:
    """(softmax(q k^T / sqrt(d)) * Omega) V by one call of a fused kernel that adds no bias and tells no log-sum-exp.

    Each key stands there twice: with the Gaussian's features and its value, and without them, with a value that has a 1
    in a column of its own. With rho the weight that a row keeps, the call gives rho/(1 + rho) times the mean of the
    values and, in that column, 1/(1 + rho), which is at least 1/2. Arguments and errors are those of
    ``gated_by_features``.
    Source: RF-FUSED, RF-22.

    >>> q, v = torch.zeros(1, 2, 1), torch.ones(1, 2, 1)
    >>> focused_by_features(q, q, v, torch.tensor([[0.0], [2.0]]), torch.tensor([1.0])).flatten().tolist()
    [0.567668, 0.567668]
    """
    a, b = _placed_features(q, positions, sigma, precision, parts)
    queries = torch.cat([q * q.shape[-1] ** -0.5, a], -1)
    keys = torch.cat([torch.cat([k, b], -1), F.pad(k, (0, b.shape[-1]))], -2)
    values = torch.cat([F.pad(v, (0, 1)), F.pad(torch.zeros_like(v), (0, 1), value=1.0)], -2)
    y = _plain(queries, keys, values)
    return y[..., :-1] / y[..., -1:]


def _placed_features(
    q: Tensor, positions: Tensor, sigma: Tensor, precision: Tensor | None, parts: int
) -> tuple[Tensor, Tensor]:
    """The Gaussian's features for each of q's heads and tokens, zero for those in front that have no place."""
    extra = _tokens_in_front(q, positions)
    a, b = gaussian_features(positions, sigma, precision, parts, q.dtype)
    a, b = (F.pad(x, (0, 0, extra, 0)).expand(*q.shape[:-1], -1) for x in (a, b))
    return a, b


def _plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention with the scores q k^T, all three padded to one number of features, as fused kernels want them."""
    width = -(-max(q.shape[-1], v.shape[-1]) // 8) * 8
    q, k, wide = (F.pad(x, (0, width - x.shape[-1])) for x in (q, k, v))
    flat = [x.reshape(-1, *x.shape[-3:]) for x in (q, k, wide)]  # kernels take four dimensions
    y = F.scaled_dot_product_attention(flat[0], flat[1], flat[2], scale=1.0)
    return y.reshape(*q.shape[:-1], width)[..., : v.shape[-1]]


# The fused form -----------------------------------------------------------------------------------------------------


def fused_focused_attention(
    q: Tensor, k: Tensor, v: Tensor, positions: Tensor, sigma: Tensor, precision: Tensor | None = None
) -> Tensor:
    """(softmax(q k^T / sqrt(d)) * Omega) V without a tokens x tokens matrix, forward or backward.

    A block of queries at a time, both log-sum-exps share one pass over the keys: e^(S - lse(S)) stands in a small
    buffer, is multiplied by Omega there, and the product with V carries the row factor of RF-FUSED in it. The backward
    pass makes the block again. Distances come from differences of positions, not from an expansion into inner
    products, which would cancel badly in float32 once positions reach hundreds of widths.

    q and k are (..., heads, tokens, d), v is (..., heads, tokens, value_dim), positions (placed tokens, axes), sigma
    (1,), (placed tokens,), (heads, 1) or (heads, placed tokens), the precision (axes, axes), (heads, axes, axes), or
    None for the identity. The result has v's shape and q's dtype, and is differentiable in every argument, any number
    of times. ValueError as ``log_attenuation``; when q, k and v differ in their leading dimensions or their numbers of
    tokens.
    Source: RF-FUSED, RF-22.

    >>> q, v = torch.zeros(1, 2, 1), torch.ones(1, 2, 1)
    >>> fused_focused_attention(q, q, v, torch.tensor([[0.0], [2.0]]), torch.tensor([1.0])).flatten().tolist()
    [0.567668, 0.567668]
    """
    require(q.dim() >= 3 and k.shape == q.shape, "k", k.shape, lambda: f"q has shape {tuple(q.shape)}")
    require(v.shape[:-1] == q.shape[:-1], "v", v.shape, lambda: f"q and k have shape {tuple(q.shape)}")
    _tokens_in_front(q, positions)
    dtype = angle_dtype(q, k, v, positions, sigma, precision)
    positions = _near(positions).to(dtype)
    rate, u = _rate(sigma, positions), whiten(positions, precision)
    _check_heads(rate, 1, q, "sigma")
    _check_heads(u, 2, q, "precision")
    require(q.shape[-1] > 0, "q", q.shape, "a query has at least one feature")
    if v.numel() == 0:
        return v.to(q.dtype)
    u = u if u.dim() == 3 else u.unsqueeze(0)
    rate = (rate if rate.dim() == 2 else rate.unsqueeze(0)).expand(-1, positions.shape[0])
    with full_precision(q.device):
        flat_q, flat_k, flat_v = (x.to(dtype).reshape(-1, *x.shape[-3:]) for x in (q, k, v))
        y = _by_blocks(flat_q, flat_k, flat_v, u, rate)
    return y.reshape(*v.shape).to(q.dtype)


def _check_heads(x: Tensor, inner: int, q: Tensor, argument: str) -> None:
    """One entry for all heads, or one for each."""
    lead, heads = tuple(x.shape[:-inner]), q.shape[-3]
    require(lead in ((), (1,), (heads,)), argument, f"leading shape {lead}", f"one for all, or one for each of {heads}")


# Entries of one block of the score matrix: on a CPU few, so that it stays in the cache; a GPU must be kept busy.
_BLOCK_ENTRIES = {"cpu": 2**20, "cuda": 2**25}
# Fewer rows than this make matrix products inefficient, more bring nothing while they leave the cache.
_LEAST_ROWS, _MOST_ROWS = 32, 256


def _by_blocks(q: Tensor, k: Tensor, v: Tensor, u: Tensor, rate: Tensor) -> Tensor:
    """q, k, v (batch, heads, tokens, d), u (heads or 1, placed, axes), rate (heads or 1, placed)."""
    tokens, placed = q.shape[2], u.shape[1]
    entries = _BLOCK_ENTRIES["cpu" if q.device.type == "cpu" else "cuda"]
    count = min(max(entries // q[..., 0].numel(), _LEAST_ROWS), _MOST_ROWS)
    front, rest = q.split([tokens - placed, placed], 2)
    found = [recomputed(_block, rows, k, v) for rows in front.split(count, 2)]
    for rows, *here in zip(rest.split(count, 2), u.split(count, 1), rate.split(count, 1)):
        found.append(recomputed(_block, rows, k, v, u, *here))
    return torch.cat(found, 2)


def _block(q: Tensor, k: Tensor, v: Tensor, u: Tensor | None = None, *here: Tensor) -> Tensor:
    """Some queries, with their own places and rates among u; those without a place see every key as it is."""
    weights = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1)
    if u is not None:
        own, rate = here
        # One axis at a time: a tensor of differences with an axis dimension would be as large again for each axis.
        axes = zip(own[:, :, None].unbind(-1), u[:, None].unbind(-1))
        omega = torch.exp(-rate[..., None] * sum((a - b).square() for a, b in axes))
        weights = weights * F.pad(omega, (k.shape[2] - u.shape[1], 0), value=1.0)
    return weights @ v
