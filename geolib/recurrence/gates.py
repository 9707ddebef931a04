"""Gates and rotations that depend on the data: what they are, and how they add up along the tokens."""

import math

from torch import Tensor, nn

from geolib._checks import angle_dtype, check_last, require, wide
from geolib.recurrence._shared import check_count, check_gates, decay_of, gate_sums
from geolib.sympow import direction_moment

__all__ = [
    "GATE_BIAS", "alibi_log_gates", "cumulative_angles", "gate_for_distance", "log_decay", "log_gates",
    "memory_length", "rotation_rates", "signal_to_noise", "turns_of",
]  # fmt: skip

GATE_BIAS = 6.906768
"""The bias with which a gate starts at sigma(6.906768), about 0.999, for a memory of a thousand tokens."""


def log_gates(logits: Tensor, bias: float = 0.0) -> Tensor:
    """The logarithm of data-dependent gates, log sigma(logits + bias), in float32 or float64.

    Logits are W_gamma X. A bias of 0 gives the paper's gates, near 1/2 at the start of training.
    Source: CS-gate, CS-GATE0.

    >>> log_gates(torch.zeros(1)).exp(), log_gates(torch.zeros(1), GATE_BIAS).exp()
    (tensor([0.5000]), tensor([0.9990]))
    """
    return nn.functional.logsigmoid(logits.to(angle_dtype(logits)) + bias)


def memory_length(gate: float) -> float:
    """How many tokens a constant gate in (0, 1) remembers: 1 + g + g^2 + ... = 1 / (1 - g).
    Source: CS-GATE0.

    >>> memory_length(0.5), round(memory_length(0.999))
    (2.0, 1000)
    """
    require(0 < gate < 1, "gate", gate, "it must lie between 0 and 1")
    return 1 / (1 - gate)


def signal_to_noise(distance: int, tokens: int, gate: float, dim: int, power: int) -> float:
    """Squared signal over the variance of the noise when the value stored t tokens back is read with its own key.

    Of ``tokens`` pairs, keys are random directions of ``dim`` features and values random signs; each token multiplies
    the sum by the gate before it adds v phi(k)^T. The signal is g^t, the noise that of all other pairs:
    mean of (k . k')^(2p) times the sum of g^(2i) over their distances i. Infinite when there is no other pair.
    Source: CS-gate, CS-REACH.

    >>> signal_to_noise(distance=3, tokens=1409, gate=1.0, dim=64, power=2)  # (d (d + 2) / 3) / 1408
    1.0
    """
    check_count(tokens, "tokens")
    require(0 <= distance < tokens, "distance", distance, f"there are {tokens} tokens, so 0 to {tokens - 1}")
    require(0 < gate <= 1, "gate", gate, "it must be above 0 and at most 1")
    square = gate * gate
    nearer, farther = (
        count if square == 1 else (1 - square**count) / (1 - square) for count in (distance, tokens - distance - 1)
    )
    noise = direction_moment(dim, 2 * power) * (nearer + square ** (distance + 1) * farther)
    return math.inf if noise == 0 else square**distance / noise


def gate_for_distance(distance: float) -> float:
    """The constant gate with which the token t back is read best in an endless document: sqrt(t / (t + 1)), t above 0.
    Source: CS-REACH.

    >>> round(gate_for_distance(1) ** 2, 12), round(memory_length(gate_for_distance(100)))
    (0.5, 201)
    """
    require(0 < distance < math.inf, "distance", distance, "it must be a finite number above 0")
    return math.sqrt(distance / (distance + 1))


def log_decay(log_gates: Tensor) -> Tensor:
    """log b_ij for gates (..., tokens): what the gates between key j and a later query i multiply their score by.

    Rows are queries, columns keys: the sum over j < k <= i, and -inf where j > i or where a reset lies between.
    Source: CS-gate, CS-A1.

    >>> log_decay(torch.tensor([0.9, 0.5, 0.8]).log()).exp()
    tensor([[1.0000, 0.0000, 0.0000],
            [0.5000, 1.0000, 0.0000],
            [0.4000, 0.8000, 1.0000]])
    """
    check_gates(log_gates, tuple(log_gates.shape))
    return decay_of(gate_sums(log_gates)).to(angle_dtype(log_gates))


def alibi_log_gates(slopes: Tensor, tokens: int) -> Tensor:
    """ALiBi as constant gates (1, heads, tokens): log g = -m, for slopes m >= 0, one for each head.
    Source: CS-A1.

    >>> log_decay(alibi_log_gates(torch.tensor([0.5]), 3))[0, 0, 2]  # the bias m (j - i) of the last query
    tensor([-1.0000, -0.5000,  0.0000])
    """
    holds = slopes.dim() == 1 and bool((slopes >= 0).all())
    require(holds, "slopes", slopes.tolist(), "one number at least 0 for each head")
    return -slopes.to(angle_dtype(slopes))[None, :, None].expand(1, -1, tokens)


def rotation_rates(logits: Tensor) -> Tensor:
    """How fast each token turns relative to the fixed frequencies: beta = 1 + tanh(W_beta X), between 0 and 2.
    Source: CS-beta.

    >>> rotation_rates(torch.tensor([-9.0, 0.0, 9.0])).round()
    tensor([0., 1., 2.])
    """
    return 1 + logits.to(angle_dtype(logits)).tanh()


def turns_of(rates: Tensor, frequencies: Tensor) -> Tensor:
    """The turn beta_i theta of each pair at each token, in radians: (..., tokens) to (..., tokens, d/2).

    Frequencies are (d/2, 1), in radians per token, from ``document_frequencies``; rates of 1 give rotary embeddings.
    Source: CS-beta, CS-P1.

    >>> turns_of(torch.tensor([1.0, 2.0]), torch.tensor([[1.0], [0.1]]))
    tensor([[1.0000, 0.1000],
            [2.0000, 0.2000]])
    """
    check_last(frequencies, 1, "frequencies")
    dtype = angle_dtype(rates, frequencies)
    return rates[..., None].to(dtype) * frequencies[:, 0].to(dtype)


def cumulative_angles(turns: Tensor, start: Tensor | None = None) -> Tensor:
    """mu_i = mu_(i-1) + turn_i in float64, for turns (..., tokens, d/2), from start (..., d/2) or from 0.
    Source: CS-P1, CS-beta.

    >>> cumulative_angles(torch.tensor([[1.0], [0.5], [0.25]]), torch.tensor([2.0])).flatten()
    tensor([3.0000, 3.5000, 3.7500], dtype=torch.float64)
    """
    angles = wide(turns).cumsum(-2)
    return angles if start is None else angles + wide(start)[..., None, :]
