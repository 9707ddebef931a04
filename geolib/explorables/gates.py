"""Gates and rates: a curve drawn over time, the memory it leaves, and the clock it winds."""

import math

from geolib.explorables._widget import Explorable, Real, Reals, Whole, assemble

_TOKENS = range(1, 33)


class GateCurves(Explorable):
    """Gates and rates of 32 tokens as curves to draw, the decay b_ij as a map, and the clock that the rates turn.

    A key j keeps b_ij = gamma_(j+1) ... gamma_i of its weight for query i, and token i remembers sum_j b_ij tokens.
    log b_ij against i - j is straight exactly when the gates are constant: ALiBi's line with gamma = e^(-m). The hand
    stands at mu_i = mu_(i-1) + beta_i theta; rates of 1 make it RoPE's.

    Parameters
    ----------
    gamma : sequence of float
        The 32 gates, 0.001 to 1. The default is ALiBi's e^(-1/8) with a reset at token 13.
    beta : sequence of float
        The 32 rates, 0 to 2. The default runs ahead of RoPE for half the time and returns.
    token : int
        i, 1 to 32: the query whose row, memory and hand are shown.
    theta : float
        Degrees a token at rate 1, 0 to 180.

    Raises
    ------
    ValueError
        When a value is out of its range, or a curve has not 32 values.

    Source: CS-gate, CS-A1, CS-beta, CS-GATE0. The map is ``geolib.recurrence.log_decay(log(gamma)).exp()``, the
    constant gates ``alibi_log_gates``, the hand ``cumulative_angles(turns_of(beta, theta))``; the memory of a constant
    gate tends to ``memory_length(gamma)``.
    """

    _esm = assemble("gates.js")

    gamma = Reals([0.05 if i == 13 else math.exp(-1 / 8) for i in _TOKENS], low=0.001, high=1)
    beta = Reals([1 + 0.8 * math.sin(2 * math.pi * i / 32) for i in _TOKENS], low=0, high=2)
    token = Whole(24, low=1, high=32)
    theta = Real(10.0, low=0, high=180)
