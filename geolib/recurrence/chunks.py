"""The chunked form: pairs inside a chunk as attention, older tokens through the state."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from geolib._checks import require
from geolib._compile import uncompiled
from geolib.recurrence._chunks_cpu import ThroughState, WithinChunks
from geolib.recurrence.costs import practical_chunk
from geolib.recurrence.gates import cumulative_angles
from geolib.recurrence.state import (
    Attended,
    State,
    above_rounding,
    check_forms,
    checked_state,
    full_precision,
    normalised,
    power_of,
    turned,
    unit,
)
from geolib.sympow import monomials, norm_functional


@uncompiled
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
        mu = state.mu if turns is None else cumulative_angles(turns, state.mu)[:, :, -1]
        q, k, values = turned(q, k, v, turns, state.mu)
        q, log_length = unit(q, power)
        decay = ChunkDecay.of(log_gates, q, chunk)
        # From here on tokens are the last dimension and heads are flat: the layout of long contiguous rows.
        columns = [
            t.flatten(0, 1).mT.contiguous() for t in (q, k, torch.cat([values, values.new_ones((*q.shape[:3], 1))], -1))
        ]
        packed = torch.cat([state.S, state.Z[:, :, None]], 2).flatten(0, 1).to(q.dtype)
        root = monomials(q.shape[-1], power, q.device).weight.sqrt().to(q.dtype)
        inside = WithinChunks.apply(*columns, decay.sums, power, chunk)
        written = columns[2] * decay.to_end
        older, last = ThroughState.apply(*columns[:2], written, decay.whole, packed * root, power, chunk)
        total = (inside + decay.from_start * older).mT.unflatten(0, q.shape[:2])
        last = (last / root).unflatten(0, q.shape[:2])
        carried = state.Z.detach().to(q.dtype) @ norm_functional(q.shape[-1], power, q.device).to(q.dtype)
        bound = mass(columns[1], written, decay, carried.flatten(), power, chunk)
        normaliser = above_rounding(total[..., -1], bound.view(q.shape[:3]))
        attended = normalised(total[..., :-1], normaliser, log_length, v.dtype)
        return attended, State(last[:, :, :-1], last[:, :, -1], mu)


class ChunkDecay(NamedTuple):
    """What the gates do within chunks, heads flat: sums of log gates from the chunk's start, and their exponentials."""

    sums: Tensor | None  # (heads, tokens), float64
    from_start: Tensor  # (heads, 1, tokens): from the chunk's start to the token
    to_end: Tensor  # (heads, 1, tokens): from the token to the chunk's end
    whole: Tensor  # (heads, chunks)

    @classmethod
    def of(cls, log_gates: Tensor | None, q: Tensor, chunk: int) -> ChunkDecay:
        """The decay of gates, heads flattened."""
        heads, tokens = q.shape[0] * q.shape[1], q.shape[2]
        chunks = -(-tokens // chunk)
        if log_gates is None:
            one = q.new_ones(heads, 1, 1)
            return cls(None, one, one, q.new_ones(heads, chunks))
        padded = nn.functional.pad(log_gates.double().flatten(0, 1), (0, chunks * chunk - tokens))
        sums = padded.unflatten(-1, (chunks, chunk)).cumsum(-1)
        ends = sums[..., -1:]

        def by_token(t: Tensor) -> Tensor:
            return t.flatten(-2)[:, None, :tokens].to(q.dtype)

        return cls(sums.flatten(-2)[:, :tokens], by_token(sums.exp()), by_token((ends - sums).exp()),
                   ends.squeeze(-1).exp().to(q.dtype))  # fmt: skip


def mass(k: Tensor, written: Tensor, decay: ChunkDecay, start: Tensor, power: int, chunk: int) -> Tensor:
    """The state's part of sum_j b_ij |K_j|^p at every token, (heads, tokens): the bound on its normaliser."""
    with torch.no_grad():
        mass, bounds = start, []
        lengths = power_of(k.square().sum(1), power // 2) * written[:, -1]
        for index, length in enumerate(lengths.split(chunk, -1)):
            bounds.append(mass[:, None].expand_as(length))
            mass = decay.whole[:, index] * mass + length.sum(-1)
        return decay.from_start.squeeze(1) * torch.cat(bounds, -1)
