"""The attention form, the recurrent form, and what joins parts of a sum."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from geolib._checks import angle_dtype, require
from geolib._compile import uncompiled
from geolib.recurrence.gates import check_gates, cumulative_angles, decay_of
from geolib.recurrence.state import (
    Attended,
    State,
    above_rounding,
    check_forms,
    check_power,
    checked_state,
    full_precision,
    normalised,
    power_of,
    turned,
    unit,
)
from geolib.rotations import block_diagonal, rotate_pairs, rotation_matrix
from geolib.sympow import act, dimension, embed, norm_functional

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
    check_forms(q, k, v, power, log_gates, turns)
    with full_precision(q):
        q, k, values = turned(q, k, v, turns)
        scores = q @ k.mT
        if log_gates is not None:
            # The decay's p-th root, so that one power takes both.
            decay = decay_of(log_gates.double().cumsum(-1)).to(scores.dtype)
            scores = scores * (decay / power).exp()
        scores = scores.tril()
        # A common factor of a row cancels in the output; this one keeps its powers from overflow and underflow.
        row = scores.detach().abs().amax(-1, keepdim=True)
        row = torch.where(row > 0, row, 1.0)
        weights = power_of(scores / row, power)
        normaliser = weights.sum(-1)
        return normalised(weights @ values, normaliser, power * row.squeeze(-1).log(), v.dtype)


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
    check_forms(q, k, v, power, log_gates, None)
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
    check_power(power)
    sums = None if log_gates is None else log_gates.double().cumsum(-1)

    def modify(score: Tensor, batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
        powered = power * score.abs().log()
        return powered if sums is None else powered + (sums[batch, head, i] - sums[batch, head, j]).to(score.dtype)

    return modify


# The recurrent form -------------------------------------------------------------------------------------------------


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
    check_forms(q, k, v, power, log_gates, turns)
    state = checked_state(state, q, v, power)
    with full_precision(q):
        mu = state.mu if turns is None else cumulative_angles(turns, state.mu)[:, :, -1]
        q, k, values = turned(q, k, v, turns, state.mu)
        gates = q.new_ones(q.shape[:3]) if log_gates is None else log_gates.to(q.dtype).exp()
        S, Z = state.S.to(q.dtype), state.Z.to(q.dtype)
        trace = norm_functional(q.shape[-1], power, q.device).to(Z)
        q, log_length = unit(q, power)
        rows = []
        for i in range(q.shape[2]):
            S, Z = gates[:, :, i, None, None] * S, gates[:, :, i, None] * Z
            # The token's own pair by its score, not through the state: there it would drown in the older ones.
            own = power_of((q[:, :, i] * k[:, :, i]).sum(-1), power)
            phi_q, phi_k = embed(q[:, :, i], power), embed(k[:, :, i], power)
            value = (S @ phi_q[..., None]).squeeze(-1) + own[..., None] * values[:, :, i]
            rows.append((value, (Z * phi_q).sum(-1) + own, (Z @ trace).detach()))
            S, Z = S + values[:, :, i, :, None] * phi_k[:, :, None, :], Z + phi_k
        value, normaliser, bound = (torch.stack(t, 2) for t in zip(*rows))
        normaliser = above_rounding(normaliser, torch.finfo(normaliser.dtype).eps * bound)
        return normalised(value, normaliser, log_length, v.dtype), State(S, Z, mu)


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
    check_power(power)
    # The state's rows are multiplied by R-bar from the right: as columns, by its transpose, the lift of R(-turn).
    back = block_diagonal(rotation_matrix(-turn)).to(state.S.dtype)
    gate = log_gate.exp().to(state.S.dtype)
    phi_k, phi_q = embed(k, power), embed(q, power)
    S = gate[..., None, None] * act(back[:, :, None], state.S, power) + v[..., None] * phi_k[..., None, :]
    Z = gate[..., None] * act(back, state.Z, power) + phi_k
    normaliser = (Z * phi_q).sum(-1)
    output = normalised((S @ phi_q[..., None]).squeeze(-1), normaliser, torch.zeros_like(normaliser), v.dtype).output
    return output, State(S, Z, state.mu)


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
    check_power(power)
    wanted = (*q.shape[:2], dimension(q.shape[-1], power))
    require(tuple(state.Z.shape) == wanted, "state", f"Z of shape {tuple(state.Z.shape)}", f"Z must be {wanted}")
    if log_gates is not None:
        check_gates(log_gates, tuple(q.shape[:3]))
    with full_precision(q):
        dtype = angle_dtype(q)
        vectors = q.to(dtype) if turns is None else rotate_pairs(q.to(dtype), cumulative_angles(turns, state.mu))
        vectors, log_length = unit(vectors, power)
        phi = embed(vectors, power)
        normaliser = (phi @ state.Z[..., None]).squeeze(-1)
        trace = norm_functional(q.shape[-1], power, q.device).to(state.Z)
        bound = (state.Z @ trace).detach()[..., None]
        normaliser = above_rounding(normaliser, torch.finfo(normaliser.dtype).eps * bound)
        decayed = log_length if log_gates is None else log_length + log_gates.double().cumsum(-1).to(dtype)
        return normalised(phi @ state.S.mT, normaliser, decayed, q.dtype)


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
