"""What the forms return, and what they carry from token to token."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from geolib._checks import angle_dtype, readable, require, wide
from geolib.recurrence._shared import check_power, precise
from geolib.sympow import dimension

__all__ = ["Attended", "State", "empty_state"]


class Attended(NamedTuple):
    """What one form of attention returns.

    Attributes
    ----------
    output : Tensor, (batch, heads, tokens, value_dim)
        Y, in the values' dtype.
    log_normaliser : Tensor, (batch, heads, tokens)
        log sum_j B_ij, float32 or float64; -inf where nothing was attended to.

    >>> q, v = torch.ones(1, 1, 3, 2), torch.tensor([[[[3.0], [5.0], [7.0]]]])
    >>> attended = attention_form(q, q, v, 2)
    >>> attended.output.flatten().tolist(), attended.log_normaliser.exp().flatten().round().tolist()
    ([3.0, 4.0, 5.0], [4.0, 8.0, 12.0])
    """

    output: Tensor
    log_normaliser: Tensor


class State(NamedTuple):
    """What the recurrent form carries from one token to the next; S and Z count in units of 2^exponent.
    Source: CS-rec, CS-P1, CS-2.

    Attributes
    ----------
    S : Tensor, (batch, heads, value_dim, D)
        sum_j b_ij V_j phi(K'_j)^T, D = binom(d + p - 1, p).
    Z : Tensor, (batch, heads, D)
        sum_j b_ij phi(K'_j)^T.
    mu : Tensor, (batch, heads, d/2)
        Radians turned so far, float64.
    exponent : Tensor, (batch, heads), or None
        0, as None is, unless the largest entry of K, to the power p, leaves 2^-16 ... 2^48: in their own units S and
        Z would then come near the ends of float32's range.

    >>> k = torch.tensor([[[[3.0, 1.0]]]])
    >>> state = recurrent_form(k, k, torch.ones(1, 1, 1, 1), 2)[1]
    >>> state.Z.flatten().tolist()  # 9, sqrt(2) 3 and 1
    [9.0, 4.2426, 1.0]
    """

    S: Tensor
    Z: Tensor
    mu: Tensor
    exponent: Tensor | None = None

    def to(self, *place: Any, **named: Any) -> "State":
        """The same on a device or in a dtype, as ``Tensor.to``; mu and exponent never become narrower than float32.

        ValueError where S or Z leave the range of a dtype, as they may that of float16.

        >>> empty_state(*torch.ones(2, 1, 1, 1, 2), power=2).to(torch.bfloat16).mu.dtype
        torch.float64
        """

        def wide(x: Tensor) -> Tensor:
            y = x.to(*place, **named)
            return y if y.dtype == angle_dtype(y) else x.to(y.device)

        exponent = None if self.exponent is None else wide(self.exponent)
        S, Z = self.S.to(*place, **named), self.Z.to(*place, **named)
        fits = S.dtype != torch.float16 or not any(
            readable(x) and bool((x.isinf() & ~y.isinf()).any()) for x, y in ((S, self.S), (Z, self.Z))
        )
        require(fits, "dtype", S.dtype, "one with the range of S and Z, as torch.bfloat16 has")
        return State(S, Z, wide(self.mu), exponent)

    def bfloat16(self) -> "State":
        """``to(torch.bfloat16)``."""
        return self.to(torch.bfloat16)


torch.serialization.add_safe_globals([State])  # so that ``torch.load`` reads it back with weights_only


def empty_state(k: Tensor, v: Tensor, power: int) -> State:
    """The zeros before the first token, for keys (batch, heads, tokens, d) and values of these shapes and dtypes.

    S and Z are float64 where keys or values are, and from the power 4 on, as those that follow token by token are.
    Source: CS-rec.

    >>> empty_state(torch.ones(1, 2, 5, 4), torch.ones(1, 2, 5, 3), power=2).S.shape
    torch.Size([1, 2, 3, 10])
    """
    check_power(power)
    heads, dtype = k.shape[:2], precise(k, angle_dtype(k, v), 1, power)
    big = dimension(k.shape[-1], power)
    return State(
        torch.zeros(*heads, v.shape[-1], big, dtype=dtype, device=k.device),
        torch.zeros(*heads, big, dtype=dtype, device=k.device),
        wide(torch.zeros(*heads, k.shape[-1] // 2, device=k.device)),
        torch.full(heads, float("-inf"), dtype=dtype, device=k.device),
    )


def _nothing(q: Tensor, k: Tensor, v: Tensor) -> Attended:
    """What no tokens attend to, shapes kept: for a batch or a text of length 0."""
    return Attended(v.clone(), (q * k).sum(-1).to(angle_dtype(q, k, v)))
