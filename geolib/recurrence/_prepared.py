"""What every form does first: one dtype, turned queries and keys, units in which nothing overflows."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from geolib._checks import angle_dtype, check_floating, readable, require
from geolib.recurrence._shared import RESET, exponent_of, precise, unit
from geolib.recurrence.gates import cumulative_angles
from geolib.recurrence.state import State, empty_state
from geolib.rotations import rotate_pairs
from geolib.sympow import dimension


class Prepared(NamedTuple):
    """The arguments of a form that goes through the state."""

    q: Tensor  # turned, of length 1
    k: Tensor  # turned, in units of 2^(exponent / p)
    v: Tensor
    log_scale: Tensor  # (batch, heads, tokens): what the logarithms of the normalisers lack
    S: Tensor
    Z: Tensor
    shift: Tensor  # (batch, heads): what takes S and Z to the new unit
    mu: Tensor
    exponent: Tensor


def turned(q: Tensor, k: Tensor, angles: Tensor | None, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Q' and K' in one dtype."""
    q, k = q.to(dtype), k.to(dtype)
    return (q, k) if angles is None else (rotate_pairs(q, angles), rotate_pairs(k, angles))


def prepared(
    state: State | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    power: int,
    log_gates: Tensor | None = None,
    turns: Tensor | None = None,
    chunk: int = 1,
) -> Prepared:
    """Everything in the dtype and the units of the computation; the state is read after every ``chunk`` tokens."""
    before = carried(state, q, v, power)
    narrow = angle_dtype(q, k, v, None if state is None else before.S)
    dtype = precise(q, narrow, q.shape[2], power, chunk, log_gates)
    # Where nothing turns any more the keys that came before may have.
    still = state is None or q.shape[-1] % 2 == 1 or (readable(before.mu) and not before.mu.any())
    standing = None if still else before.mu[:, :, None]
    angles = standing if turns is None else cumulative_angles(turns, before.mu)
    q, k = turned(q, k, angles, dtype)
    mu = before.mu if angles is None else angles[:, :, -1].contiguous()  # not a view that keeps all of them
    q, log_length = unit(q, power)
    start = (before.Z.new_zeros(q.shape[:2]) if before.exponent is None else before.exponent).to(dtype)
    if log_gates is not None:  # a state that is forgotten has no say in the unit
        start = start.masked_fill(log_gates[:, :, 0] <= RESET, float("-inf"))
    exponent = exponent_of(k, start, power)
    k = k / torch.exp2(exponent / power)[..., None, None]
    log_scale = log_length + math.log(2) * exponent[..., None]
    shift = torch.exp2(start - exponent)
    return Prepared(
        q, k, v.to(dtype), log_scale.to(narrow), before.S.to(dtype), before.Z.to(dtype), shift, mu, exponent
    )


def carried(state: State | None, q: Tensor, v: Tensor, power: int) -> State:
    """The state, empty for None; ValueError for one that does not fit queries and values."""
    if state is None:
        return empty_state(q, v, power)
    require(isinstance(state, State), "state", type(state).__name__, "a State; State(*parts) makes one of a tuple")
    big = dimension(q.shape[-1], power)
    for name, sizes in (("Z", (big,)), ("mu", (q.shape[-1] // 2,)), ("S", (v.shape[-1], big))):
        part, wanted = getattr(state, name), (*q.shape[:2], *sizes)
        check_floating(part, "state")
        narrow = name == "mu" and part.dtype != angle_dtype(part)
        require(not narrow, "state", f"mu in {part.dtype}", "angles in float32 or float64: State.to keeps them so")
        require(tuple(part.shape) == wanted, "state", f"{name} of shape {tuple(part.shape)}", f"it must be {wanted}")
    return state
