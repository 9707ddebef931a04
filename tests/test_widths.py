"""Arguments of several precisions: the widest decides what is computed in, and the result is rounded once.

The oracle is the same call in float64, its result rounded to the precision that came out.
"""

import pytest
import torch

from geolib import attention, conformal, connection, lie, locality, recurrence, rotations, transport
from geolib._checks import as_widest

F16, F32, F64 = torch.float16, torch.float32, torch.float64


def plain(*shape):
    return torch.randn(*shape, dtype=F64)


def skew(n):
    return lie.skew_matrix(plain(3, n * (n - 1) // 2), n)


def widths(*shape):
    return 0.5 + torch.rand(*shape, dtype=F64)


def spd(*shape):
    root = plain(*shape, shape[-1])
    return root @ root.mT + torch.eye(shape[-1], dtype=F64)


def turns(*shape):
    return lie.exp_skew(lie.skew_matrix(plain(*shape, 3), 3))


def apart(q, k, v):
    """Queries, keys and values of these sizes at five tokens, one head."""
    return [plain(1, 5, q), plain(1, 5, k), plain(1, 5, v)]


def weights(q, k, gate, attenuation):
    return attention.attention_weights(q, k, log_gate=gate, attenuation=attenuation)


def attenuated(q, k, v, attenuation):
    return attention.attention(q, k, v, attenuation=attenuation)


def along(u, w, *entering):
    return connection.carried_scores(u, w, entering)


def pairs():
    """Queries, keys and values of five tokens; no score is near 0, where a state has fewer digits."""
    return [widths(1, 1, 5, 4), widths(1, 1, 5, 4), plain(1, 1, 5, 3)]


def after(form, q, k, v, before):
    """A form's output from a state on, whose last row counts."""
    state = recurrence.State(before[:, :, :-1], before[:, :, -1], torch.zeros(1, 1, 2, dtype=F64))
    return form(q, k, v, 2, state=state)[0].output


def one_step(q, k, v, before):
    """The first token's output by the conformal form, from a state on."""
    state = recurrence.State(before[:, :, :-1], before[:, :, -1], torch.zeros(1, 1, 2, dtype=F64))
    still = torch.zeros(1, 1), torch.zeros(1, 1, 2)
    return recurrence.conformal_step(state, *(t[:, :, 0] for t in (q, k, v)), 2, *still)[0]


# Functions whose arguments may differ in precision, with arguments drawn in float64: any of them may be the widest.
MIXED = {
    "conformal_matrix": (conformal.conformal_matrix, lambda: [plain(5), turns(5)]),
    "scalar_metric": (lambda p, s: conformal.scalar_metric(p, s, 3), lambda: [plain(5), plain(1)[0]]),
    "diagonal_metric": (conformal.diagonal_metric, lambda: [plain(5), plain(6)]),
    "general_metric": (conformal.general_metric, lambda: [plain(5), plain(6), plain(3)]),
    "scale_features": (transport.scale_features, lambda: [plain(5, 6), plain(5, 1)]),
    "scale_features, one factor": (transport.scale_features, lambda: [plain(5, 6), plain(1)[0]]),
    "squared_length": (transport.squared_length, lambda: [plain(5, 3), spd(5, 3)]),
    "pulled_back_metrics": (transport.pulled_back_metrics, lambda: [spd(5, 3), turns(5)]),
    "reference_metrics": (transport.reference_metrics, lambda: [spd(5, 3), turns(5)]),
    "compatibility": (transport.compatibility, lambda: [spd(5, 3), turns(5)]),
    "compatible_frames": (transport.compatible_frames, lambda: [spd(5, 3), turns(5)]),
    "literal_scores": (transport.literal_scores, lambda: [plain(5, 3), plain(5, 3), spd(5, 3), turns(5)]),
    "transposed_scores": (transport.transposed_scores, lambda: [plain(5, 3), plain(5, 3), turns(5)]),
    "rotate_pairs": (rotations.rotate_pairs, lambda: [plain(5, 6), plain(5, 3)]),
    "rope": (rotations.rope, lambda: [plain(5, 6), plain(5, 2), plain(3, 2)]),
    "whiten": (locality.whiten, lambda: [plain(5, 2), spd(2)]),
    "log_attenuation": (locality.log_attenuation, lambda: [plain(5, 2), widths(5)]),
    "attenuation, a precision": (locality.attenuation, lambda: [plain(5, 2), widths(5), spd(2)]),
    "focus_one_query": (locality.focus_one_query, lambda: [plain(5), plain(5), plain(5, 3)]),
    "bilateral_filter": (locality.bilateral_filter, lambda: [plain(4, 5), plain(4, 5), plain(5, 3)]),
    "focused_attention": (
        locality.focused_attention,
        lambda: [*apart(4, 4, 3), plain(5, 2), widths(5), spd(2)],
    ),
    "focused_attention_by_lse": (locality.focused_attention_by_lse, lambda: [*apart(4, 4, 3), plain(5, 5)]),
    "fused_focused_attention": (
        locality.fused_focused_attention,
        lambda: [*apart(4, 4, 3), plain(5, 2), widths(5)],
    ),
    "fused_focused_attention, a precision": (
        locality.fused_focused_attention,
        lambda: [*apart(4, 4, 4), plain(5, 2), widths(1), spd(2)],
    ),
    "commutator": (lie.commutator, lambda: [skew(4)[0], skew(4)[0]]),
    "relativity_defect": (lie.relativity_defect, lambda: [skew(4)[0], skew(4)[0]]),
    "position_rotations": (lie.position_rotations, lambda: [plain(5, 3), skew(4)]),
    "position_rotations, a grid": (
        lie.position_rotations,
        lambda: [0.1 * rotations.grid_positions(3, 3, 2), skew(4)],
    ),
    "attention_weights": (weights, lambda: [plain(5, 4), plain(6, 4), plain(5, 6), widths(5, 6)]),
    "add_up": (attention.add_up, lambda: [plain(5, 6), plain(6, 4)]),
    "carried_scores": (along, lambda: [plain(2, 2, 1, 3), plain(2, 2, 1, 3), turns(2, 2), turns(2, 2)]),
    "attention, attenuated": (attenuated, lambda: [plain(5, 4), plain(6, 4), plain(6, 3), widths(5, 6)]),
    "attention_form": (lambda *qkv: recurrence.attention_form(*qkv, 2).output, lambda: pairs()),
    "one_chunk_form": (lambda *qkv: recurrence.one_chunk_form(*qkv, 2), lambda: pairs()),
    "recurrent_form": (
        lambda *given: after(recurrence.recurrent_form, *given),
        lambda: [*pairs(), widths(1, 1, 4, 10)],
    ),
    "chunked_form": (lambda *given: after(recurrence.chunked_form, *given), lambda: [*pairs(), widths(1, 1, 4, 10)]),
    "conformal_step": (one_step, lambda: [*pairs(), widths(1, 1, 4, 10)]),
    "softmax_form": (
        lambda q, k, v, gates: recurrence.softmax_form(q, k, v, 2, gates),
        lambda: [*(x[None] for x in apart(4, 4, 3)), -widths(1, 1, 5)],
    ),
    "fused_form": (
        lambda q, k, v: recurrence.fused_form(q, k, v, 2, torch.full((1, 1, 5), -0.3)).output,
        lambda: [x[None] for x in apart(16, 16, 16)],
    ),
}
# Those that compute angles, exponentials or weights, whose arguments may be half as wide as float32, and others.
ANGLES = {
    *("scale_features", "rotate_pairs", "rope", "whiten", "log_attenuation", "attenuation"),
    *("focused_attention", "fused_focused_attention", "position_rotations", "attention_weights", "add_up"),
}
HALVES = {name: MIXED[name] for name in MIXED if name.partition(",")[0] in ANGLES} | {
    "attention": (attention.attention, lambda: [plain(5, 4), plain(6, 4), plain(6, 3)]),
    "exp_skew": (lie.exp_skew, lambda: [skew(5)]),
    "log_rotation": (lie.log_rotation, lambda: [lie.exp_skew(0.3 * skew(4))]),
    "reflect_pairs": (rotations.reflect_pairs, lambda: [plain(5, 6), plain(5, 3)]),
}


def once_rounded(function, arguments):
    """The result, and the one of the same numbers in float64 rounded to its precision."""
    result = function(*arguments)
    return result, function(*(a.double() for a in arguments)).to(result.dtype)


@pytest.mark.parametrize("name", MIXED)
def test_the_widest_argument_decides_what_is_computed_in(name):
    function, draw = MIXED[name]
    drawn = draw()
    for wide in range(len(drawn)):
        result, wanted = once_rounded(function, [a.double() if i == wide else a.float() for i, a in enumerate(drawn)])
        ulp = torch.finfo(result.dtype).eps / 2 if result.dtype == F32 else 1e-13
        assert (result - wanted).abs().max() <= 1.01 * ulp * wanted.abs().max(), f"argument {wide} in float64"


def test_two_half_precisions_meet_in_float32():
    given = torch.ones(1, dtype=F16), torch.ones(1, dtype=torch.bfloat16)
    assert [x.dtype for x in as_widest(*given)] == [F32, F32]
    assert [x.dtype for x in as_widest(given[0], given[0])] == [F16, F16]


@pytest.mark.parametrize("name", HALVES)
def test_what_comes_in_half_precision_is_rounded_once(name):
    function, draw = HALVES[name]
    result, wanted = once_rounded(function, [a.half() for a in draw()])
    ulp = torch.finfo(result.dtype).eps if result.dtype == F16 else 1e-5
    assert (result - wanted).abs().max() <= 0.51 * ulp * wanted.abs().max()
