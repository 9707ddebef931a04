"""Symmetric-power attention by loops that read as the paper's equations do: NumPy in float64, one head at a time."""

import itertools
import math

import numpy as np
import torch
from oracles import turn
from scipy.linalg import block_diag


def plane_rotations(angles):
    return block_diag(*map(turn, angles))


def multinomial(word):
    return math.factorial(len(word)) // math.prod(math.factorial(word.count(i)) for i in set(word))


def phi(v, p):
    words = itertools.combinations_with_replacement(range(len(v)), p)
    return np.array([math.sqrt(multinomial(word)) * math.prod(v[i] for i in word) for word in words])


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
    return Y, S, Z, mu


def heads_of(oracle, tensors, power, **more):
    """What an oracle returns, over all batches and heads, as tensors."""
    flat = zip(*(t.detach().double().flatten(0, 1).numpy() for t in tensors))
    found = [oracle(*head[:3], power, *head[3:], **more) for head in flat]
    return [torch.from_numpy(np.stack(part)).unflatten(0, tensors[0].shape[:2]) for part in zip(*found)]


def inputs(batch=2, heads=2, tokens=9, dim=4, value_dim=3, dtype=torch.float64, seed=0, gates=(3, 0), device="cpu"):
    """Queries, keys, values, log gates, whose logits have this spread and mean, and turns."""
    g = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(batch, heads, tokens, *shape, dtype=torch.float64, generator=g)  # noqa: E731
    log_g = torch.nn.functional.logsigmoid(gates[0] * draw() + gates[1])
    return [t.to(device, dtype) for t in (draw(dim), draw(dim), draw(value_dim), log_g, draw(dim // 2))]


def learned(**shape):
    """The same, with gradients."""
    return [t.requires_grad_() for t in inputs(**shape)]


def well_conditioned(**shape):
    """A common component keeps scores away from zero: the question is sizes, not cancellation."""
    q, k, v, log_g, turns = inputs(**shape)
    return [0.3 * q + 1, 0.3 * k + 1, v, log_g, 0.1 * turns]
