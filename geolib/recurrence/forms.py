"""The attention form, the recurrent form, and what joins parts of a sum."""

from collections.abc import Sequence

import torch
from torch import Tensor

from geolib._checks import angle_dtype, require
from geolib._compile import uncompiled
from geolib._precision import full_precision
from geolib.recurrence._prepared import carried, prepared, turned
from geolib.recurrence._shared import (
    above_rounding,
    check_forms,
    decay_of,
    finite_part,
    gate_sums,
    normalised,
    power_of,
)
from geolib.recurrence.fused import fused_form, kernel_takes, score_modifier
from geolib.recurrence.gates import cumulative_angles
from geolib.recurrence.state import Attended, State, _nothing
from geolib.rotations import block_diagonal, rotation_matrix
from geolib.sympow import act, embed, norm_functional

__all__ = [
    "attention_form", "conformal_step", "merge", "recurrent_form", "recurrent_step", "softmax_form",
]  # fmt: skip

# The attention form -------------------------------------------------------------------------------------------------


def attention_form(
    q: Tensor, k: Tensor, v: Tensor, power: int, log_gates: Tensor | None = None, turns: Tensor | None = None
) -> Attended:
    """Symmetric-power attention by all pairs; shapes as in the package's conventions.

    ValueError for an odd power, whole numbers, shapes that do not agree, and log gates above 0. On a GPU
    ``fused_form`` computes it, without the matrix of pairs in memory, where its kernel takes the tensors.
    Source: CS-att, CS-gate, CS-conf.

    >>> q = torch.tensor([[[[1.0, 0.0], [0.6, 0.8]]]])
    >>> v = torch.tensor([[[[0.0], [1.0]]]])
    >>> attention_form(q, q, v, 2).output.flatten()  # the last query gives weights 0.36 and 1
    tensor([0.0000, 0.7353])
    """
    check_forms(q, k, v, power, log_gates, turns)
    if q.numel() == 0:
        return _nothing(q, k, v)
    if kernel_takes(q, k, v):
        return fused_form(q, k, v, power, log_gates, turns)
    with full_precision(q.device):
        dtype = angle_dtype(q, k, v)
        q, k = turned(q, k, None if turns is None else cumulative_angles(turns), dtype)
        values, spoilt = finite_part(v.to(dtype), log_gates)
        scores = q @ k.mT
        if log_gates is not None:
            # The decay's p-th root, so that one power takes both.
            decay = decay_of(gate_sums(log_gates)).to(dtype)
            scores = scores * (decay / power).exp()
        scores = scores.tril()
        # A common factor of a row cancels in the output; this one keeps its powers from overflow and underflow.
        row = scores.detach().abs().amax(-1, keepdim=True)
        row = torch.where(row == 0, 1.0, row)
        weights = power_of(scores / row, power)
        value, logarithm = normalised(weights @ values, weights.sum(-1), power * row.squeeze(-1).log())
        return Attended((value + spoilt).to(v.dtype), logarithm)


def softmax_form(q: Tensor, k: Tensor, v: Tensor, power: int, log_gates: Tensor | None = None) -> Tensor:
    """The attention form's output as a softmax: the weights are softmax_j(p log|Q_i . K_j| + log b_ij).

    A row whose scores are all exactly zero is NaN; ``attention_form`` has no such rows. It holds all pairs, as the
    formula stands; ``fused_form`` does not.
    Source: CS-FUSED.

    >>> q, v = torch.randn(1, 1, 5, 4), torch.randn(1, 1, 5, 3)
    >>> torch.allclose(softmax_form(q, q, v, 2), attention_form(q, q, v, 2).output, atol=1e-5)
    True
    """
    check_forms(q, k, v, power, log_gates, None)
    narrow, dtype = v.dtype, angle_dtype(q, k, v, log_gates)
    q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    modify = score_modifier(power, *(() if log_gates is None else (log_gates.to(dtype),)))
    batch, head, i, j = (
        torch.arange(size, device=q.device).view([-1 if axis == place else 1 for place in range(4)])
        for axis, size in enumerate((*q.shape[:3], k.shape[2]))
    )
    with full_precision(q.device):
        weights = modify(q @ k.mT, batch, head, i, j).masked_fill(j > i, float("-inf")).softmax(-1)
        return (weights @ v).to(narrow)


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
    """One token of the recurrent form: its arguments and its output have no dimension of tokens.
    Source: CS-rec, CS-gate, CS-2.

    >>> q, v = torch.ones(1, 1, 2), torch.ones(1, 1, 3)
    >>> state = empty_state(q[:, :, None], v[:, :, None], 2)
    >>> attended, state = recurrent_step(state, q, q, 5 * v, 2)
    >>> attended.output.flatten(), state.Z.flatten()
    (tensor([5., 5., 5.]), tensor([1.0000, 1.4142, 1.0000]))
    """
    gates, turns = None if log_gate is None else log_gate[..., None], None if turn is None else turn[..., None, :]
    q, k, v = (t[..., None, :] for t in (q, k, v))
    attended, state = recurrent_form(q, k, v, power, gates, turns, state)
    return Attended(attended.output.squeeze(2), attended.log_normaliser.squeeze(2)), state


def recurrent_form(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    power: int,
    log_gates: Tensor | None = None,
    turns: Tensor | None = None,
    state: State | None = None,
) -> tuple[Attended, State]:
    """Symmetric-power attention one token at a time, from a carried state (None: empty) to the state after the last.

    ValueError as ``attention_form``, and for a state of another shape. ``torch.compile`` takes a single token into
    its graph and leaves a loop over several as it is.
    Source: CS-rec, CS-P1, CS-P2, CS-2.

    >>> q, v = torch.randn(1, 1, 5, 4), torch.randn(1, 1, 5, 3)
    >>> attended, state = recurrent_form(q, q, v, 2)
    >>> torch.allclose(attended.output, attention_form(q, q, v, 2).output, atol=1e-4)
    True
    """
    check_forms(q, k, v, power, log_gates, turns)
    if q.numel() == 0:
        return _nothing(q, k, v), carried(state, q, v, power)
    loop = _recur if q.shape[2] == 1 else uncompiled(_recur)
    return loop(q, k, v, power, log_gates, turns, state)


def _recur(
    q: Tensor, k: Tensor, v: Tensor, power: int, log_gates: Tensor | None, turns: Tensor | None, state: State | None
) -> tuple[Attended, State]:
    with full_precision(q.device):
        ready = prepared(state, q, k, v, power, log_gates, turns)
        S, Z, decay = ready.S, ready.Z, ready.shift
        gates = None if log_gates is None else log_gates.to(S.dtype).exp().unbind(2)
        trace = norm_functional(q.shape[-1], power, q.device).to(S.dtype)
        rows = []
        for i, (q_i, k_i, v_i) in enumerate(zip(ready.q.unbind(2), ready.k.unbind(2), ready.v.unbind(2))):
            decay = decay if gates is None else decay * gates[i]
            S, Z = decay[..., None, None] * S, decay[..., None] * Z
            # The token's own pair by its score, not through the state: there it would drown in the older ones.
            own = power_of((q_i * k_i).sum(-1), power)
            phi_q, phi_k = embed(torch.stack([q_i, k_i]), power)
            value = (S @ phi_q[..., None]).squeeze(-1) + own[..., None] * v_i
            rows.append((value, (Z * phi_q).sum(-1) + own, (Z @ trace).detach()))
            S, Z = S + v_i[..., None] * phi_k[..., None, :], Z + phi_k
            decay = torch.ones_like(decay)
        value, normaliser, bound = (torch.stack(t, 2) for t in zip(*rows))
        normaliser = above_rounding(normaliser, torch.finfo(S.dtype).eps * bound)
        value, logarithm = normalised(value, normaliser, ready.log_scale)
        return Attended(value.to(v.dtype), logarithm), State(S, Z, ready.mu, ready.exponent)


def conformal_step(
    state: State, q: Tensor, k: Tensor, v: Tensor, power: int, log_gate: Tensor, turn: Tensor
) -> tuple[Tensor, State]:
    """One token by the conformal form of the update: the state is turned and shrunk, queries and keys stay as they are.

    The state comes in the frame of the token before, S R-bar(mu) and Z R-bar(mu) of the recurrent form's, and leaves
    in this token's; its mu is left alone. Shapes and ValueErrors as in ``recurrent_step``.
    Source: CS-1, CS-3.

    >>> k, gate, turn = torch.tensor([[[1.0, 0.0]]]), torch.tensor([[0.5]]).log(), torch.tensor([[[math.pi / 2]]])
    >>> state = empty_state(k[:, :, None], k[:, :, None], 2)
    >>> for _ in range(2):
    ...     output, state = conformal_step(state, k, k, k, 2, gate, turn)
    >>> state.Z.flatten().round(decimals=4)  # the first key, now halved, points along the other axis
    tensor([1.0000, 0.0000, 0.5000])
    """
    one_q, one_k, one_v = (t[..., None, :] for t in (q, k, v))
    check_forms(one_q, one_k, one_v, power, log_gate[..., None], turn[..., None, :])
    with full_precision(q.device):
        at_rest = carried(state, one_q, one_v, power)
        at_rest = at_rest._replace(mu=torch.zeros_like(at_rest.mu))  # the frame has turned with it
        ready = prepared(at_rest, one_q, one_k, one_v, power, log_gate[..., None])
        dtype = ready.S.dtype
        phi_q, phi_k = embed(torch.cat([ready.q, ready.k], 2), power).unbind(2)
        # The state's rows are multiplied by R-bar from the right: as columns, by its transpose, the lift of R(-turn).
        back = block_diagonal(rotation_matrix(-turn)).to(dtype)
        gate = log_gate.to(dtype).exp() * ready.shift
        older = gate[..., None] * act(back, ready.Z, power)
        bound = (older @ norm_functional(q.shape[-1], power, q.device).to(dtype)).detach()
        S = gate[..., None, None] * act(back[:, :, None], ready.S, power) + ready.v.mT * phi_k[..., None, :]
        Z = older + phi_k
        normaliser = above_rounding((Z * phi_q).sum(-1), torch.finfo(dtype).eps * bound)
        output, _ = normalised((S @ phi_q[..., None]).squeeze(-1), normaliser, torch.zeros_like(normaliser))
        return output.to(v.dtype), State(S, Z, state.mu, ready.exponent)


# Parts that belong together -----------------------------------------------------------------------------------------


def merge(parts: Sequence[Attended]) -> Attended:
    """Attention over several disjoint sets of keys from the attention over each, for the same queries.

    Outputs are averaged with their normalisers as weights.
    Source: CS-att.

    >>> one = Attended(torch.tensor([[[[1.0]]]]), torch.tensor([[[3.0]]]).log())
    >>> other = Attended(torch.tensor([[[[5.0]]]]), torch.tensor([[[1.0]]]).log())
    >>> merge([one, other]).output.item()
    2.0
    """
    require(len(parts) > 0, "parts", "none", "at least one")
    logs = torch.stack([part.log_normaliser for part in parts])
    nothing = (logs == float("-inf")).all(0)  # no part attended to anything: any finite total gives weights of 0
    total = logs.masked_fill(nothing, 0.0).logsumexp(0)
    weights = (logs - total).exp()
    output = sum(weight[..., None] * part.output for weight, part in zip(weights, parts))
    return Attended(output.to(parts[0].output.dtype), total.masked_fill(nothing, float("-inf")))  # type: ignore[union-attr]
