"""Symmetric-power attention in three forms: attention, recurrent and chunked, with gates and data-dependent rotations.

For an even power p, with gates g_i in (0, 1] and cumulative rotations mu_i, all three compute::

    B_ij = b_ij (Q'_i . K'_j)^p,   b_ij = g_(j+1) ... g_i,   Q'_i = R(mu_i) Q_i,   K'_j = R(mu_j) K_j,   j <= i
    Y_i  = sum_j B_ij V_j / sum_j B_ij

The attention form takes time quadratic in the tokens. The recurrent form carries a state: S_i = g_i S_(i-1) + V_i
phi(K'_i)^T and Z_i = g_i Z_(i-1) + phi(K'_i)^T, and mu_i. The chunked form computes pairs inside a chunk as attention
does and everything older through the state, in time and memory linear in the tokens.

Conventions
-----------
Queries and keys are (batch, heads, tokens, d), values (batch, heads, tokens, value_dim), log gates (batch, heads,
tokens) and at most 0, turns (batch, heads, tokens, d/2) in radians: how far each pair turns from the token before.
``rotate_pairs`` with the angle mu is applied to queries and keys alike, so the score is Q_i . R(mu_i - mu_j)^T K_j.

Arithmetic is in float32 (float64 when an input is float64) outside autocast; sums of log gates and of turns are kept in
float64, because small differences of large sums are what is used. Outputs have the values' dtype.

Small normalisers
-----------------
The output does not depend on the length of a query. Where the normaliser is exactly zero (a query orthogonal to every
key it sees, or zero) the output is 0 and its logarithm is -inf. A normaliser read from a state is a difference of large
terms: below machine epsilon times its Cauchy-Schwarz bound |Q_i|^p sum_j b_ij |K_j|^p it consists of rounding errors,
and that multiple of the bound takes its place. Outputs and gradients then stay finite. The attention form has no such
terms and no such limit: there the weights of a nearly orthogonal query are those of its rounded scores.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from geolib._checks import angle_dtype, check_even, check_last, require
from geolib._compile import uncompiled
from geolib.attention import Encoding, on_placed
from geolib.rotations import block_diagonal, document_frequencies, pair_angles, rotate_pairs, rotation_matrix
from geolib.sympow import act, dimension, embed, monomials, norm_functional

GATE_BIAS = 6.906768
"""The bias with which a gate starts at sigma(6.906768), about 0.999, for a memory of a thousand tokens."""


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


# Gates and rotations ------------------------------------------------------------------------------------------------


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
    _check_gates(log_gates, tuple(log_gates.shape))
    return _log_decay(log_gates.double().cumsum(-1)).to(angle_dtype(log_gates))


def _log_decay(sums: Tensor) -> Tensor:
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


# The attention form -------------------------------------------------------------------------------------------------


def attention_form(
    q: Tensor, k: Tensor, v: Tensor, power: int, log_gates: Tensor | None = None, turns: Tensor | None = None
) -> Attended:
    """Symmetric-power attention by the matrix of all pairs.

    Parameters
    ----------
    q, k : Tensor, (batch, heads, tokens, d)
    v : Tensor, (batch, heads, tokens, value_dim)
    power : int
        p, even.
    log_gates : Tensor, (batch, heads, tokens), or None
        At most 0; None for no gates.
    turns : Tensor, (batch, heads, tokens, d/2), or None
        Radians; None for no rotations.

    Returns
    -------
    Attended

    Raises
    ------
    ValueError
        For an odd power or one below 2, shapes that do not agree, gates above 0 or not finite.

    Source: CS-att, CS-gate, CS-conf.
    """
    _check_forms(q, k, v, power, log_gates, turns)
    with _full_precision(q):
        q, k, values = _turned(q, k, v, turns)
        scores = q @ k.mT
        if log_gates is not None:
            # The decay's p-th root, so that one power takes both.
            decay = _log_decay(log_gates.double().cumsum(-1)).to(scores.dtype)
            scores = scores * (decay / power).exp()
        scores = scores.tril()
        # A common factor of a row cancels in the output; this one keeps its powers from overflow and underflow.
        row = scores.detach().abs().amax(-1, keepdim=True)
        row = torch.where(row > 0, row, 1.0)
        weights = _power(scores / row, power)
        normaliser = weights.sum(-1)
        return _normalised(weights @ values, normaliser, power * row.squeeze(-1).log(), v.dtype)


def softmax_form(q: Tensor, k: Tensor, v: Tensor, power: int, log_gates: Tensor | None = None) -> Tensor:
    """The attention form as a softmax: the weights are softmax_j(p log|Q_i . K_j| + log b_ij).

    Parameters
    ----------
    q, k : Tensor, (batch, heads, tokens, d)
    v : Tensor, (batch, heads, tokens, value_dim)
    power : int
        p, even.
    log_gates : Tensor, (batch, heads, tokens), or None

    Returns
    -------
    Tensor, (batch, heads, tokens, value_dim)
        NaN in a row whose scores are all exactly zero; ``attention_form`` has no such rows.

    Source: CS-FUSED.
    """
    _check_forms(q, k, v, power, log_gates, None)
    modify = score_modifier(power, log_gates)
    batch, head, i, j = (
        torch.arange(size, device=q.device).view([-1 if axis == place else 1 for place in range(4)])
        for axis, size in enumerate((*q.shape[:3], k.shape[2]))
    )
    return modify(q @ k.mT, batch, head, i, j).masked_fill(j > i, float("-inf")).softmax(-1) @ v


def score_modifier(power: int, log_gates: Tensor | None = None) -> Callable[..., Tensor]:
    """The change of scores with which a fused softmax kernel computes the attention form.

    Parameters
    ----------
    power : int
        p, even.
    log_gates : Tensor, (batch, heads, tokens), or None

    Returns
    -------
    function of (score, batch, head, query index, key index)
        p log|score| + log b_ij, as ``torch.nn.attention.flex_attention`` takes it; call that with ``scale=1`` and a
        causal mask.

    Source: CS-FUSED.
    """
    _check_power(power)
    sums = None if log_gates is None else log_gates.double().cumsum(-1)

    def modify(score: Tensor, batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
        powered = power * score.abs().log()
        return powered if sums is None else powered + (sums[batch, head, i] - sums[batch, head, j]).to(score.dtype)

    return modify


# The recurrent form -------------------------------------------------------------------------------------------------


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
    _check_power(power)
    heads, dtype = k.shape[:2], angle_dtype(k, v)
    big = dimension(k.shape[-1], power)
    return State(
        torch.zeros(*heads, v.shape[-1], big, dtype=dtype, device=k.device),
        torch.zeros(*heads, big, dtype=dtype, device=k.device),
        torch.zeros(*heads, k.shape[-1] // 2, dtype=torch.float64, device=k.device),
    )


def recurrent_step(
    state: State,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    power: int,
    log_gate: Tensor | None = None,
    turn: Tensor | None = None,
) -> tuple[Attended, State]:
    """One token of the recurrent form.

    Parameters
    ----------
    state : State
        Before the token.
    q, k : Tensor, (batch, heads, d)
    v : Tensor, (batch, heads, value_dim)
    power : int
    log_gate : Tensor, (batch, heads), or None
    turn : Tensor, (batch, heads, d/2), or None

    Returns
    -------
    tuple of Attended and State
        The output for this token, without a tokens dimension, and the state after it.

    Source: CS-rec, CS-gate, CS-2.
    """
    gates, turns = (None if t is None else t.unsqueeze(2) for t in (log_gate, turn))
    q, k, v = (t.unsqueeze(2) for t in (q, k, v))
    attended, state = recurrent_form(q, k, v, power, gates, turns, state)
    return Attended(attended.output.squeeze(2), attended.log_normaliser.squeeze(2)), state


@uncompiled
def recurrent_form(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    power: int,
    log_gates: Tensor | None = None,
    turns: Tensor | None = None,
    state: State | None = None,
) -> tuple[Attended, State]:
    """Symmetric-power attention one token at a time, through a state of fixed size.

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

    Returns
    -------
    tuple of Attended and State
        The state after the last token.

    Raises
    ------
    ValueError
        As ``attention_form``, and for a state of another shape.

    Source: CS-rec, CS-P1, CS-P2, CS-2.
    """
    _check_forms(q, k, v, power, log_gates, turns)
    state = _checked_state(state, q, v, power)
    with _full_precision(q):
        mu = state.mu if turns is None else cumulative_angles(turns, state.mu)[:, :, -1]
        q, k, values = _turned(q, k, v, turns, state.mu)
        gates = q.new_ones(q.shape[:3]) if log_gates is None else log_gates.to(q.dtype).exp()
        S, Z = state.S.to(q.dtype), state.Z.to(q.dtype)
        trace = norm_functional(q.shape[-1], power, q.device).to(Z)
        q, log_length = _unit(q, power)
        rows = []
        for i in range(q.shape[2]):
            S, Z = gates[:, :, i, None, None] * S, gates[:, :, i, None] * Z
            # The token's own pair by its score, not through the state: there it would drown in the older ones.
            own = _power((q[:, :, i] * k[:, :, i]).sum(-1), power)
            phi_q, phi_k = embed(q[:, :, i], power), embed(k[:, :, i], power)
            value = (S @ phi_q[..., None]).squeeze(-1) + own[..., None] * values[:, :, i]
            rows.append((value, (Z * phi_q).sum(-1) + own, (Z @ trace).detach()))
            S, Z = S + values[:, :, i, :, None] * phi_k[:, :, None, :], Z + phi_k
        value, normaliser, bound = (torch.stack(t, 2) for t in zip(*rows))
        normaliser = _above_rounding(normaliser, bound)
        return _normalised(value, normaliser, log_length, v.dtype), State(S, Z, mu)


def conformal_step(
    state: State,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    power: int,
    log_gate: Tensor,
    turn: Tensor,
) -> tuple[Tensor, State]:
    """One token by the conformal form of the update: the state is turned and shrunk, queries and keys stay as they are.

    Parameters
    ----------
    state : State
        In the frame of the token before: S R-bar(mu) and Z R-bar(mu) of the recurrent form's. Its mu is left alone.
    q, k : Tensor, (batch, heads, d)
    v : Tensor, (batch, heads, value_dim)
    power : int
    log_gate : Tensor, (batch, heads)
    turn : Tensor, (batch, heads, d/2)

    Returns
    -------
    tuple of Tensor, (batch, heads, value_dim), and State
        The output, and the state in this token's frame.

    Source: CS-1, CS-3.
    """
    _check_power(power)
    # The state's rows are multiplied by R-bar from the right: as columns, by its transpose, the lift of R(-turn).
    back = block_diagonal(rotation_matrix(-turn)).to(state.S.dtype)
    gate = log_gate.exp().to(state.S.dtype)
    phi_k, phi_q = embed(k, power), embed(q, power)
    S = gate[..., None, None] * act(back[:, :, None], state.S, power) + v[..., None] * phi_k[..., None, :]
    Z = gate[..., None] * act(back, state.Z, power) + phi_k
    normaliser = (Z * phi_q).sum(-1)
    output = _normalised((S @ phi_q[..., None]).squeeze(-1), normaliser, torch.zeros_like(normaliser), v.dtype).output
    return output, State(S, Z, state.mu)


# The chunked form ---------------------------------------------------------------------------------------------------


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
    _check_forms(q, k, v, power, log_gates, turns)
    state = _checked_state(state, q, v, power)
    chunk = practical_chunk(q.shape[-1], power) if chunk is None else chunk
    require(chunk >= 1, "chunk", chunk, "it must be at least 1")
    with _full_precision(q):
        mu = state.mu if turns is None else cumulative_angles(turns, state.mu)[:, :, -1]
        q, k, values = _turned(q, k, v, turns, state.mu)
        q, log_length = _unit(q, power)
        decay = _ChunkDecay.of(log_gates, q, chunk)
        # From here on tokens are the last dimension and heads are flat: the layout of long contiguous rows.
        columns = [
            t.flatten(0, 1).mT.contiguous() for t in (q, k, torch.cat([values, values.new_ones((*q.shape[:3], 1))], -1))
        ]
        packed = torch.cat([state.S, state.Z[:, :, None]], 2).flatten(0, 1).to(q.dtype)
        root = monomials(q.shape[-1], power, q.device).weight.sqrt().to(q.dtype)
        inside = _WithinChunks.apply(*columns, decay.sums, power, chunk)
        written = columns[2] * decay.to_end
        older, last = _ThroughState.apply(*columns[:2], written, decay.whole, packed * root, power, chunk)
        total = (inside + decay.from_start * older).mT.unflatten(0, q.shape[:2])
        last = (last / root).unflatten(0, q.shape[:2])
        carried = state.Z.detach().to(q.dtype) @ norm_functional(q.shape[-1], power, q.device).to(q.dtype)
        bound = _mass(columns[1], written, decay, carried.flatten(), power, chunk)
        normaliser = _above_rounding(total[..., -1], bound.view(q.shape[:3]))
        attended = _normalised(total[..., :-1], normaliser, log_length, v.dtype)
        return attended, State(last[:, :, :-1], last[:, :, -1], mu)


def practical_chunk(dim: int, power: int) -> int:
    """The chunk length used when none is given: the one with fewest multiply-adds, but long enough to be fast.

    Parameters
    ----------
    dim, power : int
        d and p.

    Returns
    -------
    int
        At least 512: shorter chunks leave matrix products too narrow to pay.

    Source: CS-CROSS.
    """
    return max(512, round(ideal_chunk(dim, power)))


class _ChunkDecay(NamedTuple):
    """What the gates do within chunks, heads flat: sums of log gates from the chunk's start, and their exponentials."""

    sums: Tensor | None  # (heads, tokens), float64
    from_start: Tensor  # (heads, 1, tokens): from the chunk's start to the token
    to_end: Tensor  # (heads, 1, tokens): from the token to the chunk's end
    whole: Tensor  # (heads, chunks)

    @classmethod
    def of(cls, log_gates: Tensor | None, q: Tensor, chunk: int) -> _ChunkDecay:
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


def _mass(k: Tensor, written: Tensor, decay: _ChunkDecay, start: Tensor, power: int, chunk: int) -> Tensor:
    """The state's part of sum_j b_ij |K_j|^p at every token, (heads, tokens): the bound on its normaliser."""
    with torch.no_grad():
        mass, bounds = start, []
        lengths = _power(k.square().sum(1), power // 2) * written[:, -1]
        for index, length in enumerate(lengths.split(chunk, -1)):
            bounds.append(mass[:, None].expand_as(length))
            mass = decay.whole[:, index] * mass + length.sum(-1)
        return decay.from_start.squeeze(1) * torch.cat(bounds, -1)


class _WithinChunks(torch.autograd.Function):
    """sum_j B_ij [V_j, 1] over the keys of the query's own chunk; pairs are made again in the backward pass."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, sums: Tensor | None, power: int, chunk: int) -> Tensor:
        ctx.save_for_backward(q, k, v, sums)
        ctx.power, ctx.chunk = power, chunk
        out = torch.empty_like(v)
        for heads, tokens in _tiles(q, chunk):
            score, decay = _pairs(q, k, sums, heads, tokens)
            out[heads, :, tokens] = v[heads, :, tokens] @ (_power(score, power).mul_(decay)).mT
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, sums = ctx.saved_tensors
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        dsums = None if sums is None else torch.empty_like(sums)
        with torch.autocast(q.device.type, enabled=False):
            for heads, tokens in _tiles(q, ctx.chunk):
                score, decay = _pairs(q, k, sums, heads, tokens)
                lower = _power(score, ctx.power - 1).mul_(decay)
                weights = lower * score
                g = grad[heads, :, tokens]
                dv[heads, :, tokens] = g @ weights
                dweights = g.mT @ v[heads, :, tokens]
                if dsums is not None:
                    flow = weights.mul_(dweights)
                    dsums[heads, tokens] = (flow.sum(-1) - flow.sum(-2)).double()
                dscore = dweights.mul_(lower).mul_(ctx.power)
                dq[heads, :, tokens] = k[heads, :, tokens] @ dscore.mT
                dk[heads, :, tokens] = q[heads, :, tokens] @ dscore
        return dq, dk, dv, dsums, None, None


def _pairs(q: Tensor, k: Tensor, sums: Tensor | None, heads: slice, tokens: slice) -> tuple[Tensor, Tensor]:
    """Scores of one chunk, zero above the diagonal, and their decay (one where there are no gates)."""
    score = (q[heads, :, tokens].mT @ k[heads, :, tokens]).tril_()
    if sums is None:
        return score, score.new_ones(())
    local = sums[heads, tokens]
    # Differences first, in float64: a chunk may hold one gate near 0 among many near 1. Above the diagonal they may be
    # large, where the score is zero already.
    return score, (local[..., :, None] - local[..., None, :]).clamp_(max=0).to(score.dtype).exp_()


class _ThroughState(torch.autograd.Function):
    """The state's reading at every query, and the last state, in monomials without weights.

    The state R, (heads, width, D), starts at ``start``. In each chunk every query reads R m(Q) from the state before
    the chunk, m the monomials; then R becomes whole R + w (sum_j written_j m(K_j)^T), w the multinomial weights. So
    R m(Q) is a sum of written_j (Q . K_j)^p. Monomials are made in blocks, used and dropped.
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, written: Tensor, whole: Tensor, start: Tensor, power: int, chunk: int
    ) -> tuple[Tensor, Tensor]:
        reads = torch.zeros_like(written)
        weight = monomials(q.shape[1], power, q.device).weight.to(q.dtype)
        state, before = start.clone(), []
        for index, tokens in enumerate(_chunks(q, chunk)):
            old = state
            state = old * whole[:, index, None, None]
            before.append(old)
            for heads in _head_groups(q, chunk):
                here = (heads, slice(None), tokens)
                for block, m in _Columns(q[here], power).blocks():
                    reads[here] += old[heads, :, block.rows] @ m
                for block, m in _Columns(k[here], power).blocks():
                    state[heads, :, block.rows] += (written[here] @ m.mT).mul_(weight[block.rows])
        ctx.save_for_backward(q, k, written, whole, *before)
        ctx.power, ctx.chunk = power, chunk
        return reads, state

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dreads: Tensor, dstate: Tensor) -> tuple[Tensor | None, ...]:
        q, k, written, whole, *before = ctx.saved_tensors
        dq, dk, dwritten = torch.empty_like(q), torch.empty_like(k), torch.zeros_like(written)
        dwhole = torch.empty_like(whole)
        weight = monomials(q.shape[1], ctx.power, q.device).weight.to(q.dtype)
        with torch.autocast(q.device.type, enabled=False):
            for index, tokens in reversed(list(enumerate(_chunks(q, ctx.chunk)))):
                old = before[index]
                dwhole[:, index] = (dstate * old).sum((-2, -1))
                dnew = dstate * weight
                dstate = dstate * whole[:, index, None, None]
                for heads in _head_groups(q, ctx.chunk):
                    here = (heads, slice(None), tokens)
                    columns = _Columns(k[here], ctx.power)
                    for block, m in columns.blocks():
                        dwritten[here] += dnew[heads, :, block.rows] @ m
                        columns.pull(block, dnew[heads, :, block.rows].mT @ written[here])
                    dk[here] = columns.gradient()
                    columns = _Columns(q[here], ctx.power)
                    for block, m in columns.blocks():
                        dstate[heads, :, block.rows] += dreads[here] @ m.mT
                        columns.pull(block, old[heads, :, block.rows].mT @ dreads[here])
                    dq[here] = columns.gradient()
        return dq, dk, dwritten, dwhole, dstate, None, None


class _Block(NamedTuple):
    """Neighbouring monomials: those whose smallest variable is one of a few."""

    variables: range
    rows: slice
    sizes: tuple[int, ...]  # rows of each variable


class _Columns:
    """The monomials of many vectors at once, as (heads, D, tokens), a block at a time, and their derivative.

    The monomials of degree p that begin with x_i are x_i times a tail of those of degree p - 1: long contiguous
    products, no gathering.
    """

    def __init__(self, x: Tensor, power: int):
        self.x, self.power = x, power
        self.variables = x.split(1, 1)
        self.lower = [x]  # degrees 1 ... p - 1
        for degree in range(2, power):
            self.lower.append(self._products(_whole(x.shape[1], degree), degree))
        self.dx: list[Tensor | None] = [None] * x.shape[1]
        self.dlower: list[Tensor] = []

    def _products(self, block: _Block, degree: int) -> Tensor:
        """A block of monomials of one degree, (heads, rows, tokens)."""
        lower = self.lower[degree - 2]
        out = lower.new_empty(lower.shape[0], sum(block.sizes), lower.shape[2])
        for i, size, part in zip(block.variables, block.sizes, out.split(block.sizes, 1)):
            torch.mul(self.variables[i], lower[:, -size:], out=part)
        return out

    def _pull(self, block: _Block, degree: int, grad: Tensor) -> None:
        lower, dlower = self.lower[degree - 2], self.dlower[degree - 2]
        for i, size, part in zip(block.variables, block.sizes, grad.split(block.sizes, 1)):
            own = (part * lower[:, -size:]).sum(1, keepdim=True)
            self.dx[i] = own if self.dx[i] is None else self.dx[i] + own
            dlower[:, -size:].addcmul_(part, self.variables[i])

    def blocks(self) -> Iterator[tuple[_Block, Tensor]]:
        """The monomials, block by block."""
        limit = max(1, _block_numbers(self.x) // (self.x.shape[0] * self.x.shape[2]))
        for block in _blocks(self.x.shape[1], self.power, limit):
            yield block, self._products(block, self.power)

    def pull(self, block: _Block, grad: Tensor) -> None:
        """Take in the derivative by one block's monomials."""
        if not self.dlower:
            self.dlower = [torch.zeros_like(lower) for lower in self.lower]
        self._pull(block, self.power, grad)

    def gradient(self) -> Tensor:
        """The derivative by the vectors, once every block was pulled."""
        for degree in range(self.power - 1, 1, -1):
            self._pull(_whole(self.x.shape[1], degree), degree, self.dlower[degree - 1])
        return torch.cat(self.dx, 1).add_(self.dlower[0])  # type: ignore[arg-type]


@lru_cache(maxsize=256)
def _blocks(dim: int, power: int, limit: int) -> tuple[_Block, ...]:
    """All monomials, cut between variables into blocks of at most ``limit`` rows where one variable's rows allow it."""
    lower = dimension(dim, power - 1)
    sizes = [lower - start for start in monomials(dim, power).starts]
    ends = [0, *itertools.accumulate(sizes)]
    blocks, first = [], 0
    for last in range(1, dim + 1):
        if last == dim or ends[last + 1] - ends[first] > limit:
            blocks.append(_Block(range(first, last), slice(ends[first], ends[last]), tuple(sizes[first:last])))
            first = last
    return tuple(blocks)


def _whole(dim: int, power: int) -> _Block:
    """All monomials in one block."""
    return _blocks(dim, power, dimension(dim, power))[0]


def _block_numbers(x: Tensor) -> int:
    """How many numbers a block should hold: what stays in a core's cache, or what fills a GPU."""
    return 2**19 if x.device.type == "cpu" else 2**27


def _chunks(q: Tensor, chunk: int) -> list[slice]:
    tokens = q.shape[-1]
    return [slice(start, min(start + chunk, tokens)) for start in range(0, tokens, chunk)]


def _head_groups(q: Tensor, chunk: int) -> list[slice]:
    """Heads taken together: two on a CPU, whose numbers stay in the cache; as many as fit in a block on a GPU."""
    group = 2 if q.device.type == "cpu" else max(1, _block_numbers(q) // (512 * chunk))
    return [slice(start, start + group) for start in range(0, q.shape[0], group)]


def _tiles(q: Tensor, chunk: int) -> list[tuple[slice, slice]]:
    return [(heads, tokens) for tokens in _chunks(q, chunk) for heads in _head_groups(q, chunk)]


# Parts that belong together -----------------------------------------------------------------------------------------


def read_state(
    state: State, q: Tensor, power: int, log_gates: Tensor | None = None, turns: Tensor | None = None
) -> Attended:
    """What queries read of a carried state alone: the part of the sum that lies before the first of them.

    Parameters
    ----------
    state : State
    q : Tensor, (batch, heads, tokens, d)
    power : int
    log_gates : Tensor, (batch, heads, tokens), or None
    turns : Tensor, (batch, heads, tokens, d/2), or None
        The gates and turns of the queries' tokens, as in the other forms.

    Returns
    -------
    Attended
        ``merge`` joins it with ``attention_form`` over the tokens themselves.

    Source: CS-rec, CS-2.
    """
    _check_power(power)
    wanted = (*q.shape[:2], dimension(q.shape[-1], power))
    require(tuple(state.Z.shape) == wanted, "state", f"Z of shape {tuple(state.Z.shape)}", f"Z must be {wanted}")
    if log_gates is not None:
        _check_gates(log_gates, tuple(q.shape[:3]))
    with _full_precision(q):
        dtype = angle_dtype(q)
        vectors = q.to(dtype) if turns is None else rotate_pairs(q.to(dtype), cumulative_angles(turns, state.mu))
        vectors, log_length = _unit(vectors, power)
        phi = embed(vectors, power)
        normaliser = (phi @ state.Z[..., None]).squeeze(-1)
        trace = norm_functional(q.shape[-1], power, q.device).to(state.Z)
        bound = (state.Z @ trace).detach()[..., None]
        normaliser = _above_rounding(normaliser, bound)
        decayed = log_length if log_gates is None else log_length + log_gates.double().cumsum(-1).to(dtype)
        return _normalised(phi @ state.S.mT, normaliser, decayed, q.dtype)


def merge(parts: Sequence[Attended]) -> Attended:
    """Attention over several sets of keys from the attention over each.

    Parameters
    ----------
    parts : sequence of Attended
        The same queries, disjoint keys.

    Returns
    -------
    Attended
        Outputs averaged with their normalisers as weights.

    Source: CS-att.
    """
    require(len(parts) > 0, "parts", "none", "at least one")
    logs = torch.stack([part.log_normaliser for part in parts])
    total = logs.logsumexp(0)
    # Where no part attended to anything all logarithms are -inf; any finite number then gives weights of 0.
    weights = (logs - torch.where(total.isinf(), 0.0, total)).exp()
    output = sum(weight[..., None] * part.output for weight, part in zip(weights, parts))
    return Attended(output.to(parts[0].output.dtype), total)  # type: ignore[union-attr]


# Shared by the forms ------------------------------------------------------------------------------------------------


def _full_precision(q: Tensor) -> torch.autocast:
    return torch.autocast(q.device.type, enabled=False)


def _turned(
    q: Tensor, k: Tensor, v: Tensor, turns: Tensor | None, start: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Q', K' and V in the precision of the computation."""
    dtype = angle_dtype(q, k, v)
    q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    if turns is None:
        return q, k, v
    angles = cumulative_angles(turns, start)
    return rotate_pairs(q, angles), rotate_pairs(k, angles), v


def _unit(q: Tensor, power: int) -> tuple[Tensor, Tensor]:
    """Queries at length 1, and p log of their length: it changes the normaliser and not the output.

    The length counts as a constant in derivatives. That is exact, because its effect cancels.
    """
    length = torch.linalg.vector_norm(q.detach(), dim=-1)
    length = torch.where(length > 0, length, 1.0)
    return q / length[..., None], power * length.log()


def _above_rounding(normaliser: Tensor, bound: Tensor) -> Tensor:
    """A normaliser read from a state, or eps times its bound where it is less than that and not exactly 0."""
    limit = torch.finfo(normaliser.dtype).eps * bound
    return torch.where(normaliser == 0, 0.0, torch.maximum(normaliser, limit))


def _normalised(value: Tensor, normaliser: Tensor, log_scale: Tensor, dtype: torch.dtype) -> Attended:
    """value / normaliser, 0 where that is 0; the logarithm of the normaliser with a factor put back."""
    some = normaliser > 0
    divisor = torch.where(some, normaliser, 1.0)
    logarithm = torch.where(some, divisor.log() + log_scale, float("-inf"))
    return Attended(torch.where(some[..., None], value / divisor[..., None], 0.0).to(dtype), logarithm)


def _power(x: Tensor, power: int) -> Tensor:
    """x^p by repeated squaring: exact signs, no logarithm, a derivative at 0."""
    if power == 1:
        return x.clone()
    half = _power(x, power // 2) if power > 3 else x
    return half * half if power % 2 == 0 else half * half * x


def _check_power(power: int) -> None:
    require(
        power >= 2 and power % 2 == 0, "power", power, "it must be even and at least 2, so that no weight is negative"
    )


def _check_gates(log_gates: Tensor, shape: tuple[int, ...]) -> None:
    came = tuple(log_gates.shape)
    require(came == shape, "log_gates", f"shape {came}", f"it must be {shape}")
    if torch.compiler.is_compiling():
        return
    good = bool((log_gates.isfinite() & (log_gates <= 0)).all())
    require(good, "log_gates", "a number above 0 or not finite", "gates lie in (0, 1]: logarithms finite, at most 0")


def _check_forms(q: Tensor, k: Tensor, v: Tensor, power: int, log_gates: Tensor | None, turns: Tensor | None) -> None:
    _check_power(power)
    came = tuple(q.shape)
    require(
        q.dim() == 4 and q.numel() > 0, "q", f"shape {came}", "it must be (batch, heads, tokens, d), none of them 0"
    )
    require(k.shape == q.shape, "k", f"shape {tuple(k.shape)}", f"it must be q's, {came}")
    fits = v.dim() == 4 and v.shape[:3] == q.shape[:3] and v.numel() > 0
    require(fits, "v", f"shape {tuple(v.shape)}", f"it must be {(*came[:3], 'value_dim')}")
    if log_gates is not None:
        _check_gates(log_gates, came[:3])
    if turns is not None:
        check_even(came[3], "q's last dimension")
        wanted = (*came[:3], came[3] // 2)
        require(tuple(turns.shape) == wanted, "turns", f"shape {tuple(turns.shape)}", f"it must be {wanted}")


def _checked_state(state: State | None, q: Tensor, v: Tensor, power: int) -> State:
    if state is None:
        return empty_state(q, v, power)
    big = dimension(q.shape[-1], power)
    wanted = ((*q.shape[:2], v.shape[-1], big), (*q.shape[:2], big), (*q.shape[:2], q.shape[-1] // 2))
    came = tuple(tuple(t.shape) for t in state)
    require(came == wanted, "state", f"shapes {came}", f"S, Z and mu must be {wanted}")
    return state


# What the forms cost ------------------------------------------------------------------------------------------------


class Work(NamedTuple):
    """Multiplications for one head and one sequence, by what they serve; each comes with at most one addition.

    Attributes
    ----------
    products : int
        Inner products and products with values.
    powers : int
        Raising scores to the power, or making embeddings.
    gates : int
        Products of gates, and what they multiply.

    Source: CS-CROSS.
    """

    products: int
    powers: int
    gates: int

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self)


def attention_work(tokens: int, dim: int, power: int) -> Work:
    """What the attention form costs, values as wide as keys.

    Parameters
    ----------
    tokens, dim, power : int
        t, d and p.

    Returns
    -------
    Work
        t(t+1)/2 pairs: d for the score, p - 1 for its power, d for the value. Gates: t(t-1)/2 to multiply the weights
        of pairs of different tokens, (t-1)(t-2)/2 for the products b_ij = b_(i-1)j g_i. Divisions are not counted.

    Source: CS-CROSS.
    """
    pairs = tokens * (tokens + 1) // 2
    return Work(2 * dim * pairs, (power - 1) * pairs, (tokens - 1) ** 2)


def embedding_work(dim: int, power: int) -> int:
    """What one embedding costs: one multiplication for each monomial of degree 2 ... p, and one for each weight.

    Parameters
    ----------
    dim, power : int
        d and p.

    Returns
    -------
    int

    Source: CS-CROSS.
    """
    return sum(dimension(dim, degree) for degree in range(2, power + 1)) + dimension(dim, power)


def recurrent_work(tokens: int, dim: int, power: int) -> Work:
    """What the recurrent form costs, values as wide as keys.

    Parameters
    ----------
    tokens, dim, power : int
        t, d and p.

    Returns
    -------
    Work
        For each token dD to write, (d+1)D to read and two embeddings; (d+1)D for the gate, from the second token on.

    Source: CS-CROSS, CS-cost (a step is O(dD)).
    """
    big = dimension(dim, power)
    gates = (tokens - 1) * (dim + 1) * big
    return Work(tokens * (2 * dim + 1) * big, 2 * tokens * embedding_work(dim, power), gates)


def chunked_work(tokens: int, dim: int, power: int, chunk: int) -> Work:
    """What the chunked form costs, values as wide as keys.

    Parameters
    ----------
    tokens, dim, power : int
        t, d and p.
    chunk : int
        c; the last chunk may be shorter.

    Returns
    -------
    Work
        Attention inside each chunk; outside, every token but the last chunk's is written to the state ((d+1)D) and
        every token but the first chunk's reads it ((d+1)D). Gates: c - 1 products to a chunk's start and to its end,
        d + 1 for each token written and each reading, and (d+1)D for each chunk the state passes whole.

    Source: CS-chunk, CS-CROSS.
    """
    require(chunk >= 1, "chunk", chunk, "it must be at least 1")
    chunk = min(chunk, tokens)
    chunks, last = -(-tokens // chunk), (tokens - 1) % chunk + 1
    full, ragged = attention_work(chunk, dim, power), attention_work(last, dim, power)
    moved = 2 * tokens - chunk - last  # tokens written plus tokens that read
    state = (dim + 1) * dimension(dim, power)
    return Work(
        (chunks - 1) * full.products + ragged.products + moved * state,
        (chunks - 1) * full.powers + ragged.powers + moved * embedding_work(dim, power),
        (chunks - 1) * full.gates + ragged.gates + moved * (dim + 2) - 2 * (chunks - 1) + max(0, chunks - 2) * state,
    )


def ideal_chunk(dim: int, power: int) -> float:
    """The chunk length with the fewest multiplications in a long sequence, as a real number.

    Parameters
    ----------
    dim, power : int
        d and p.

    Returns
    -------
    float
        sqrt((d+1) D / (d + (p-1)/2 + 1)), about sqrt(D): a longer chunk has more pairs, a shorter one passes the state
        on more often.

    Source: CS-CROSS.
    """
    # Per token: c (d + (p-1)/2 + 1) for the pairs with their gates, (d+1) D / c to pass the state on.
    return math.sqrt(((dim + 1) * dimension(dim, power)) / (dim + (power - 1) / 2 + 1))


def best_chunk(tokens: int, dim: int, power: int) -> int:
    """The chunk length with the fewest multiplications, exactly.

    Parameters
    ----------
    tokens, dim, power : int
        t, d and p.

    Returns
    -------
    int
        t itself (one chunk: the attention form) in short sequences.

    Source: CS-CROSS.
    """
    near = range(1, min(tokens, 4 * math.ceil(ideal_chunk(dim, power))) + 1)
    return min((*near, tokens), key=lambda chunk: chunked_work(tokens, dim, power, chunk).total)


def crossing_length(dim: int, power: int, parts: Sequence[str] = Work._fields) -> int:
    """The shortest sequence for which the recurrent form costs no more than the attention form.

    Parameters
    ----------
    dim, power : int
        d and p.
    parts : sequence of str
        What is counted: names of ``Work``'s fields. ``("products",)`` alone crosses near 2D; with gates, near 3D.

    Returns
    -------
    int
        Tokens.

    Source: CS-CROSS.
    """
    require(len(parts) > 0 and set(parts) <= set(Work._fields), "parts", tuple(parts), f"among {Work._fields}")

    def gain(tokens: int) -> int:
        attention, recurrent = attention_work(tokens, dim, power), recurrent_work(tokens, dim, power)
        return sum(getattr(attention, part) - getattr(recurrent, part) for part in parts)

    low, high = 0, 1
    while gain(high) < 0:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if gain(middle) < 0 else (low, middle)
    return high


# Layers -------------------------------------------------------------------------------------------------------------


class SympowAttention(nn.Module):
    """Causal multi-head attention by symmetric powers, with gates and rotations that depend on the data.

    Parameters
    ----------
    width : int
        Features of a token; a multiple of heads, with an even number of features a head.
    heads : int
    power : int
        p, even.
    longest : float
        N in the frequencies 2 pi / N^(2(i-1)/d): a constant of the model, not the length at hand.
    gate_bias : float
        ``GATE_BIAS`` starts gates at 0.999; 0 starts them at 1/2, as the paper's formula has it.
    chunk : int or None
        Tokens in a chunk; ``practical_chunk`` when None.

    Notes
    -----
    ``W_gamma`` and ``W_beta`` hold one row of ``width`` numbers for each head.

    Source: CS-gate, CS-beta, CS-conf, CS-cost, CS-GATE0, CS-N.
    """

    frequencies: Tensor

    def __init__(
        self,
        width: int,
        heads: int,
        power: int = 2,
        longest: float = 65536.0,
        gate_bias: float = GATE_BIAS,
        chunk: int | None = None,
    ):
        super().__init__()
        require(heads > 0 and width % heads == 0, "heads", heads, f"it must divide the width {width}")
        _check_power(power)
        self.heads, self.power, self.gate_bias, self.chunk = heads, power, gate_bias, chunk
        self.register_buffer("frequencies", document_frequencies(width // heads, longest), persistent=False)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width)
        self.W_gamma = nn.Linear(width, heads, bias=False)
        self.W_beta = nn.Linear(width, heads, bias=False)

    def log_gates(self, x: Tensor) -> Tensor:
        """log gamma for each head and token.

        Parameters
        ----------
        x : Tensor, (batch, tokens, width)

        Returns
        -------
        Tensor, (batch, heads, tokens)
        """
        return log_gates(self.W_gamma(x).transpose(1, 2), self.gate_bias)

    def turns(self, x: Tensor) -> Tensor:
        """beta theta for each head, token and pair.

        Parameters
        ----------
        x : Tensor, (batch, tokens, width)

        Returns
        -------
        Tensor, (batch, heads, tokens, head_dim / 2)
            Radians.
        """
        return turns_of(rotation_rates(self.W_beta(x).transpose(1, 2)), self.frequencies)

    def forward(self, x: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Attend, from a carried state on.

        Parameters
        ----------
        x : Tensor, (batch, tokens, width)
        state : State or None
            What earlier tokens left; empty when None.

        Returns
        -------
        tuple of Tensor, (batch, tokens, width), and State
        """
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)  # (3, batch, heads, tokens, d)
        attended, state = chunked_form(q, k, v, self.power, self.log_gates(x), self.turns(x), state, self.chunk)
        return self.out(attended.output.transpose(1, 2).flatten(2)), state


class SympowEncoding(Encoding):
    """The gates and the fixed rotations of symmetric-power attention, as an encoding for softmax attention.

    Queries and keys turn by the document's frequencies; what the gates between a key and a query multiply the score by
    is added in logarithms. The gates look at the past only, so a query gives -inf to later keys; on a grid, tokens come
    in reading order.

    Parameters
    ----------
    width, heads : int
    frequencies : Tensor, (pairs, axes)
        Radians per unit of position: ``document_frequencies``, times the strides of the axes on a grid.
    gate_bias : float

    Notes
    -----
    Rotations that depend on the data need the layer's input where queries turn; ``SympowAttention`` has them.

    Source: CS-gate, CS-rot, CS-A1.
    """

    frequencies: Tensor

    def __init__(self, width: int, heads: int, frequencies: Tensor, gate_bias: float = GATE_BIAS):
        super().__init__()
        require(heads > 0 and width % heads == 0, "heads", heads, f"it must divide the width {width}")
        self.gate_bias = gate_bias
        self.register_buffer("frequencies", frequencies, persistent=False)
        self.W_gamma = nn.Linear(width, heads, bias=False)

    def to_reference(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys, turned."""
        angles = pair_angles(positions, self.frequencies)
        return (
            on_placed(lambda placed: rotate_pairs(placed, angles), q, positions),
            on_placed(lambda placed: rotate_pairs(placed, angles), k, positions),
        )

    def log_gate(self, x: Tensor, positions: Tensor) -> Tensor:
        """log b_ij between placed tokens and 0 for the others, (batch, heads, tokens, tokens)."""
        unplaced = x.shape[1] - positions.shape[0]
        gates = log_gates(self.W_gamma(x[:, unplaced:]).transpose(1, 2), self.gate_bias)
        return nn.functional.pad(log_decay(gates), (unplaced, 0, unplaced, 0))
