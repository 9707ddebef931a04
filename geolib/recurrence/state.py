"""What the forms share: what they return and carry, the precision they compute in, the checks of their arguments."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from geolib._checks import angle_dtype, check_even, require
from geolib.recurrence.gates import check_gates, cumulative_angles
from geolib.rotations import rotate_pairs
from geolib.sympow import dimension


class Attended(NamedTuple):
    """What one form of attention returns.

    Attributes
    ----------
    output : Tensor, (batch, heads, tokens, value_dim)
        Y, in the values' dtype.
    log_normaliser : Tensor, (batch, heads, tokens)
        log sum_j B_ij, float32 or float64; -inf where nothing was attended to.
    """

    output: Tensor
    log_normaliser: Tensor


class State(NamedTuple):
    """What the recurrent form carries from one token to the next.

    Attributes
    ----------
    S : Tensor, (batch, heads, value_dim, D)
        sum_j b_ij V_j phi(K'_j)^T, D = binom(d + p - 1, p).
    Z : Tensor, (batch, heads, D)
        sum_j b_ij phi(K'_j)^T.
    mu : Tensor, (batch, heads, d/2)
        Radians turned so far, float64.

    Source: CS-rec, CS-P1, CS-2.
    """

    S: Tensor
    Z: Tensor
    mu: Tensor


class Sums(NamedTuple):
    """What an engine of the chunked form returns."""

    total: Tensor  # (batch, heads, tokens, value_dim + 1): sum_j B_ij [V_j, 1]
    last: Tensor  # (batch, heads, value_dim + 1, D): S and Z after the last token
    floor: Tensor  # (batch, heads, tokens): below it a normaliser consists of rounding errors


def empty_state(k: Tensor, v: Tensor, power: int) -> State:
    """The state before the first token.

    Parameters
    ----------
    k : Tensor, (batch, heads, tokens, d)
    v : Tensor, (batch, heads, tokens, value_dim)
        Their shapes, dtypes and devices are used, not their numbers.
    power : int

    Returns
    -------
    State
        Zeros.

    Source: CS-rec.
    """
    check_power(power)
    heads, dtype = k.shape[:2], angle_dtype(k, v)
    big = dimension(k.shape[-1], power)
    return State(
        torch.zeros(*heads, v.shape[-1], big, dtype=dtype, device=k.device),
        torch.zeros(*heads, big, dtype=dtype, device=k.device),
        torch.zeros(*heads, k.shape[-1] // 2, dtype=torch.float64, device=k.device),
    )


def full_precision(q: Tensor) -> torch.autocast:
    """Products as exact as their factors."""
    return torch.autocast(q.device.type, enabled=False)


def turned(
    q: Tensor, k: Tensor, v: Tensor, turns: Tensor | None, start: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Q', K' and V in the precision of the computation."""
    dtype = angle_dtype(q, k, v)
    q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    if turns is None:
        return q, k, v
    angles = cumulative_angles(turns, start)
    return rotate_pairs(q, angles), rotate_pairs(k, angles), v


def unit(q: Tensor, power: int) -> tuple[Tensor, Tensor]:
    """Queries at length 1, and p log of their length: it changes the normaliser and not the output.

    The length counts as a constant in derivatives. That is exact, because its effect cancels.
    """
    length = torch.linalg.vector_norm(q.detach(), dim=-1)
    length = torch.where(length > 0, length, 1.0)
    return q / length[..., None], power * length.log()


def above_rounding(normaliser: Tensor, floor: Tensor) -> Tensor:
    """A normaliser read from a state, or the floor of its rounding errors where it is less and not exactly 0."""
    return torch.where(normaliser == 0, 0.0, torch.maximum(normaliser, floor))


def normalised(value: Tensor, normaliser: Tensor, log_scale: Tensor, dtype: torch.dtype) -> Attended:
    """value / normaliser, 0 where that is 0; the logarithm of the normaliser with a factor put back."""
    some = normaliser > 0
    divisor = torch.where(some, normaliser, 1.0)
    logarithm = torch.where(some, divisor.log() + log_scale, float("-inf"))
    return Attended(torch.where(some[..., None], value / divisor[..., None], 0.0).to(dtype), logarithm)


def power_of(x: Tensor, power: int) -> Tensor:
    """x^p by repeated squaring: exact signs, no logarithm, a derivative at 0."""
    if power == 1:
        return x.clone()
    half = power_of(x, power // 2) if power > 3 else x
    return half * half if power % 2 == 0 else half * half * x


def check_power(power: int) -> None:
    """An even power of at least 2."""
    require(
        power >= 2 and power % 2 == 0, "power", power, "it must be even and at least 2, so that no weight is negative"
    )


def check_forms(q: Tensor, k: Tensor, v: Tensor, power: int, log_gates: Tensor | None, turns: Tensor | None) -> None:
    """The arguments that all forms take."""
    check_power(power)
    came = tuple(q.shape)
    require(
        q.dim() == 4 and q.numel() > 0, "q", f"shape {came}", "it must be (batch, heads, tokens, d), none of them 0"
    )
    require(k.shape == q.shape, "k", f"shape {tuple(k.shape)}", f"it must be q's, {came}")
    fits = v.dim() == 4 and v.shape[:3] == q.shape[:3] and v.numel() > 0
    require(fits, "v", f"shape {tuple(v.shape)}", f"it must be {(*came[:3], 'value_dim')}")
    if log_gates is not None:
        check_gates(log_gates, came[:3])
    if turns is not None:
        check_even(came[3], "q's last dimension")
        wanted = (*came[:3], came[3] // 2)
        require(tuple(turns.shape) == wanted, "turns", f"shape {tuple(turns.shape)}", f"it must be {wanted}")


def checked_state(state: State | None, q: Tensor, v: Tensor, power: int) -> State:
    """The state, empty for None."""
    if state is None:
        return empty_state(q, v, power)
    big = dimension(q.shape[-1], power)
    wanted = ((*q.shape[:2], v.shape[-1], big), (*q.shape[:2], big), (*q.shape[:2], q.shape[-1] // 2))
    came = tuple(tuple(t.shape) for t in state)
    require(came == wanted, "state", f"shapes {came}", f"S, Z and mu must be {wanted}")
    return state
