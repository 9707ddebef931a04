"""Gates and rotations that depend on the data: what they are, and how they add up along the tokens."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from geolib._checks import angle_dtype, check_last, require

GATE_BIAS = 6.906768
"""The bias with which a gate starts at sigma(6.906768), about 0.999, for a memory of a thousand tokens."""


def log_gates(logits: Tensor, bias: float = 0.0) -> Tensor:
    """The logarithm of data-dependent gates, log sigma(logits + bias).

    Parameters
    ----------
    logits : Tensor, (...)
        W_gamma X, any real numbers.
    bias : float
        0 gives the paper's gates, near 1/2 at the start of training; ``GATE_BIAS`` gives gates near 0.999.

    Returns
    -------
    Tensor, (...)
        At most 0; float32, or float64 when logits is float64.

    Source: CS-gate, CS-GATE0.
    """
    return nn.functional.logsigmoid(logits.to(angle_dtype(logits)) + bias)


def memory_length(gate: float) -> float:
    """How many tokens a constant gate remembers: 1 + g + g^2 + ... = 1 / (1 - g).

    Parameters
    ----------
    gate : float
        In (0, 1).

    Returns
    -------
    float
        Tokens: 2 at a gate of 1/2, a thousand at 0.999.

    Source: CS-GATE0.
    """
    require(0 < gate < 1, "gate", gate, "it must lie between 0 and 1")
    return 1 / (1 - gate)


def log_decay(log_gates: Tensor) -> Tensor:
    """log b_ij: what the gates between a key and a later query multiply their score by, in logarithms.

    Parameters
    ----------
    log_gates : Tensor, (..., tokens)
        At most 0.

    Returns
    -------
    Tensor, (..., tokens, tokens)
        Row: query i; column: key j. The sum over j < k <= i, and -inf where j > i.

    Source: CS-gate, CS-A1.
    """
    check_gates(log_gates, tuple(log_gates.shape))
    return decay_of(log_gates.double().cumsum(-1)).to(angle_dtype(log_gates))


def decay_of(sums: Tensor) -> Tensor:
    """G_i - G_j on and below the diagonal, -inf above."""
    tokens = sums.shape[-1]
    future = torch.ones(tokens, tokens, dtype=torch.bool, device=sums.device).triu(1)
    return (sums[..., :, None] - sums[..., None, :]).masked_fill(future, float("-inf"))


def alibi_log_gates(slopes: Tensor, tokens: int) -> Tensor:
    """ALiBi as constant gates: log g = -m for each head.

    Parameters
    ----------
    slopes : Tensor, (heads,)
        m, at least 0.
    tokens : int

    Returns
    -------
    Tensor, (1, heads, tokens)
        ``log_decay`` of it is ALiBi's bias m (j - i).

    Source: CS-A1.
    """
    holds = slopes.dim() == 1 and bool((slopes >= 0).all())
    require(holds, "slopes", slopes.tolist(), "one number at least 0 for each head")
    return -slopes[None, :, None].expand(1, -1, tokens)


def rotation_rates(logits: Tensor) -> Tensor:
    """How fast each token turns relative to the fixed frequencies: beta = 1 + tanh(logits), between 0 and 2.

    Parameters
    ----------
    logits : Tensor, (...)
        W_beta X.

    Returns
    -------
    Tensor, (...)
        float32, or float64 when logits is float64.

    Source: CS-beta.
    """
    return 1 + logits.to(angle_dtype(logits)).tanh()


def turns_of(rates: Tensor, frequencies: Tensor) -> Tensor:
    """The turn of each pair at each token, beta_i theta.

    Parameters
    ----------
    rates : Tensor, (batch, heads, tokens)
        beta; ones give rotary embeddings.
    frequencies : Tensor, (d/2, 1)
        theta, radians per token, from ``document_frequencies``.

    Returns
    -------
    Tensor, (batch, heads, tokens, d/2)
        Radians.

    Source: CS-beta, CS-P1.
    """
    check_last(frequencies, 1, "frequencies")
    return rates[..., None] * frequencies[:, 0].to(rates.dtype)


def cumulative_angles(turns: Tensor, start: Tensor | None = None) -> Tensor:
    """mu_i = mu_(i-1) + turn_i, from mu = start before the first token.

    Parameters
    ----------
    turns : Tensor, (..., tokens, d/2)
        Radians.
    start : Tensor, (..., d/2), or None
        Zero when None.

    Returns
    -------
    Tensor, (..., tokens, d/2)
        Radians, float64.

    Source: CS-P1, CS-beta.
    """
    angles = turns.double().cumsum(-2)
    return angles if start is None else angles + start.double()[..., None, :]


def check_gates(log_gates: Tensor, shape: tuple[int, ...]) -> None:
    """Log gates of one shape, finite and at most 0."""
    came = tuple(log_gates.shape)
    require(came == shape, "log_gates", f"shape {came}", f"it must be {shape}")
    if torch.compiler.is_compiling():
        return
    good = bool((log_gates.isfinite() & (log_gates <= 0)).all())
    require(good, "log_gates", "a number above 0 or not finite", "gates lie in (0, 1]: logarithms finite, at most 0")
