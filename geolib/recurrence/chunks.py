"""The chunked form: pairs inside a chunk as attention, older tokens through the state."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from geolib._checks import angle_dtype, require
from geolib.recurrence._chunks_cpu import attend_on_cpu
from geolib.recurrence._chunks_gpu import attend_on_gpu
from geolib.recurrence.costs import practical_chunk
from geolib.recurrence.gates import cumulative_angles
from geolib.recurrence.state import (
    Attended,
    State,
    Sums,
    above_rounding,
    check_forms,
    checked_state,
    full_precision,
    normalised,
    turned,
    unit,
)


def chunked_form(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    power: int,
    log_gates: Tensor | None = None,
    turns: Tensor | None = None,
    state: State | None = None,
    chunk: int | None = None,
) -> tuple[Attended, State]:
    """Symmetric-power attention in chunks: pairs inside a chunk as attention, older tokens through the state.

    Parameters
    ----------
    q, k : Tensor, (batch, heads, tokens, d)
    v : Tensor, (batch, heads, tokens, value_dim)
    power : int
        p, even.
    log_gates : Tensor, (batch, heads, tokens), or None
    turns : Tensor, (batch, heads, tokens, d/2), or None
    state : State or None
        What earlier tokens left; empty when None.
    chunk : int or None
        Tokens in a chunk; the last chunk may be shorter. ``practical_chunk`` when None.

    Returns
    -------
    tuple of Attended and State
        The state after the last token.

    Raises
    ------
    ValueError
        As ``recurrent_form``, and for a chunk below 1.

    Notes
    -----
    Time and memory grow linearly with the tokens: embeddings are made again in the backward pass, not stored. What is
    stored beside the inputs is one state for each chunk. Differentiable once. ``torch.compile`` leaves it as it is.

    Source: CS-chunk, CS-2.
    """
    check_forms(q, k, v, power, log_gates, turns)
    state = checked_state(state, q, v, power)
    chunk = practical_chunk(q.shape[-1], power) if chunk is None else chunk
    require(chunk >= 1, "chunk", chunk, "it must be at least 1")
    with full_precision(q):
        attend = _engine(q, k, v)
        mu = state.mu if turns is None else cumulative_angles(turns, state.mu)[:, :, -1]
        q, k, values = turned(q, k, v, turns, state.mu)
        q, log_length = unit(q, power)
        counted = torch.cat([values, values.new_ones((*q.shape[:3], 1))], -1)
        start = torch.cat([state.S, state.Z[:, :, None]], 2).to(q.dtype)
        sums = attend(q, k, counted, log_gates, start, power, chunk)
        normaliser = above_rounding(sums.total[..., -1], sums.floor)
        attended = normalised(sums.total[..., :-1], normaliser, log_length, v.dtype)
        return attended, State(sums.last[:, :, :-1], sums.last[:, :, -1], mu)


def _engine(q: Tensor, k: Tensor, v: Tensor) -> Callable[..., Sums]:
    """How the device at hand computes the sums: the only place that asks for it."""
    if q.device.type == "cpu":
        return attend_on_cpu
    half = all(t.dtype == torch.bfloat16 for t in (q, k, v))
    return partial(attend_on_gpu, products=torch.bfloat16 if half else angle_dtype(q, k, v))
