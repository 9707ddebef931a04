"""Symmetric-power attention by loops that read as the paper's equations do: NumPy in float64, one head at a time."""

import itertools
import math

import numpy as np
import torch


def plane_rotations(angles):
    R = np.zeros((2 * len(angles), 2 * len(angles)))
    for j, a in enumerate(angles):
        R[2 * j : 2 * j + 2, 2 * j : 2 * j + 2] = [[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]
    return R


def phi(v, p):
    words = itertools.combinations_with_replacement(range(len(v)), p)
    return np.array(
        [
            math.sqrt(math.factorial(p) / math.prod(math.factorial(w.count(i)) for i in set(w)))
            * math.prod(v[i] for i in w)
            for w in words
        ]
    )


def by_pairs(Q, K, V, p, log_g, turns, transpose=True):
    """B_ij = b_ij (Q_i^T R(c_ij theta)^T K_j)^p, Y_i = sum_j B_ij V_j / sum_j B_ij; also the row sums."""
    Y, sums = np.zeros_like(V), np.zeros(len(V))
    for i in range(len(V)):
        B = np.zeros(len(V))
        for j in range(i + 1):
            b = np.prod(np.exp(log_g[j + 1 : i + 1]))
            R = plane_rotations(turns[j + 1 : i + 1].sum(0))
            B[j] = b * (Q[i] @ (R.T if transpose else R) @ K[j]) ** p
        sums[i] = B.sum()
        Y[i] = B @ V / sums[i]
    return Y, sums


def by_recurrence(Q, K, V, p, log_g, turns):
    """S_i = g_i S_(i-1) + V_i phi(R(mu_i) K_i)^T, Z_i likewise, Y_i = S_i phi(R(mu_i) Q_i) / Z_i phi(R(mu_i) Q_i)."""
    size = math.comb(Q.shape[1] + p - 1, p)
    S, Z, mu = np.zeros((V.shape[1], size)), np.zeros(size), np.zeros(turns.shape[1])
    Y = np.zeros_like(V)
    for i in range(len(V)):
        mu = mu + turns[i]
        R = plane_rotations(mu)
        key, query = phi(R @ K[i], p), phi(R @ Q[i], p)
        S = np.exp(log_g[i]) * S + np.outer(V[i], key)
        Z = np.exp(log_g[i]) * Z + key
        Y[i] = S @ query / (Z @ query)
    return Y, (S, Z, mu)


def heads_of(oracle, tensors, *more):
    """An oracle over all batches and heads; its results stacked, as tensors."""
    flat = [t.detach().double().flatten(0, 1).numpy() for t in tensors]
    return [oracle(*(t[h] for t in flat[:3]), *more, *(t[h] for t in flat[3:])) for h in range(len(flat[0]))]


def inputs(batch=2, heads=2, tokens=9, dim=4, value_dim=3, dtype=torch.float64, seed=0):
    g = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(batch, heads, tokens, *shape, dtype=torch.float64, generator=g)  # noqa: E731
    log_g = torch.nn.functional.logsigmoid(3 * draw())
    return [t.to(dtype) for t in (draw(dim), draw(dim), draw(value_dim), log_g, draw(dim // 2))]


def well_conditioned(**shape):
    """A common component keeps scores away from zero: the question is sizes, not cancellation."""
    q, k, v, log_g, turns = inputs(**shape)
    return [0.3 * q + 1, 0.3 * k + 1, v, log_g, 0.1 * turns]
