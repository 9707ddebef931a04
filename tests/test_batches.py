"""A batch is its samples: what takes leading dimensions gives for each of them what it gives for that one alone."""

import pytest
import torch
from torch.testing import assert_close

from geolib import attention, conformal, lie, locality, recurrence, rotations, sympow

F64 = torch.float64
LEAD = (2, 7)  # sizes that no other dimension has together


def plain(*shape):
    return torch.randn(*LEAD, *shape, dtype=F64)


def skew(n):
    return lie.skew_matrix(plain(n * (n - 1) // 2), n)


def rotation(n):
    return lie.exp_skew(0.3 * skew(n))


def metric(n):
    return (0.2 * (a := plain(n, n)) + 0.2 * a.mT).matrix_exp()


def gates(*shape):
    return -torch.rand(*LEAD, *shape, dtype=F64)


# Each function with its arguments, drawn with two leading dimensions.
CASES = {
    "rotation_matrix": (rotations.rotation_matrix, lambda: [plain()]),
    "reflection_matrix": (rotations.reflection_matrix, lambda: [plain()]),
    "block_diagonal": (rotations.block_diagonal, lambda: [plain(3, 2, 2)]),
    "plane_generator": (rotations.plane_generator, lambda: [plain(3)]),
    "mixed_matrix": (rotations.mixed_matrix, lambda: [plain(4)]),
    "inverse_mixed_angles": (rotations.inverse_mixed_angles, lambda: [plain(4)]),
    "rotate_pairs": (rotations.rotate_pairs, lambda: [plain(6), plain(3)]),
    "rotate_pairs, some": (rotations.rotate_pairs, lambda: [plain(6), plain(2)]),
    "reflect_pairs": (rotations.reflect_pairs, lambda: [plain(6), plain(3)]),
    "pair_angles": (rotations.pair_angles, lambda: [plain(5, 2), plain(3, 2)]),
    "rope": (rotations.rope, lambda: [plain(5, 6), plain(5, 2), plain(3, 2)]),
    "to_half_split": (rotations.to_half_split, lambda: [plain(6)]),
    "to_interleaved": (rotations.to_interleaved, lambda: [plain(6)]),
    "unit_ball": (lambda m: conformal.unit_ball(m, samples=5), lambda: [metric(2)]),
    "metric_root": (conformal.metric_root, lambda: [metric(3)]),
    "conformal_matrix": (conformal.conformal_matrix, lambda: [plain(), rotation(3)]),
    "conformal_factor": (conformal.conformal_factor, lambda: [plain(3, 3)]),
    "conformal_deviation": (conformal.conformal_deviation, lambda: [plain(3, 3)]),
    "skew_matrix": (lambda entries: lie.skew_matrix(entries, 4), lambda: [plain(6)]),
    "upper_entries": (lie.upper_entries, lambda: [skew(4)]),
    "commutator": (lie.commutator, lambda: [plain(3, 3), plain(3, 3)]),
    "bch": (lie.bch, lambda: [skew(3), skew(3)]),
    "exp_skew, a plane": (lie.exp_skew, lambda: [skew(2)]),
    "exp_skew, space": (lie.exp_skew, lambda: [skew(3)]),
    "exp_skew": (lie.exp_skew, lambda: [skew(5)]),
    "cayley": (lie.cayley, lambda: [skew(4)]),
    "log_rotation": (lie.log_rotation, lambda: [rotation(4)]),
    "spectrum": (lie.spectrum, lambda: [skew(5)]),
    "small_rotation_error": (lie.small_rotation_error, lambda: [skew(4)]),
    "plane_weights": (lie.plane_weights, lambda: [plain(4), skew(4)]),
    "relativity_defect": (lie.relativity_defect, lambda: [skew(4), skew(4)]),
    "first_order_defect": (lie.first_order_defect, lambda: [skew(4), skew(4)]),
    "focus_one_query": (locality.focus_one_query, lambda: [plain(5), plain(5), plain(5, 3)]),
    "precision_root": (locality.precision_root, lambda: [plain(2, 2)]),
    "precision_matrix": (locality.precision_matrix, lambda: [plain(2, 2)]),
    "attention_weights": (attention.attention_weights, lambda: [plain(5, 4), plain(6, 4)]),
    "attention": (attention.attention, lambda: [plain(5, 4), plain(6, 4), plain(6, 3)]),
    "attention, causal": (
        lambda *qkv: attention.attention(*qkv, causal=True),
        lambda: [plain(5, 4), plain(6, 4), plain(6, 3)],
    ),
    "log_decay": (recurrence.log_decay, lambda: [gates(5)]),
    "cumulative_angles": (recurrence.cumulative_angles, lambda: [plain(5, 2), plain(2)]),
    "log_gates": (recurrence.log_gates, lambda: [plain(5)]),
    "turns_of": (lambda rates: recurrence.turns_of(rates, torch.tensor([[1.0], [0.1]])), lambda: [plain(5)]),
    "embed": (lambda v: sympow.embed(v, 4), lambda: [plain(3)]),
    "turned_embedding": (lambda v, a: sympow.turned_embedding(v, a, 2), lambda: [plain(4), plain(2)]),
    "lift": (lambda m: sympow.lift(m, 2), lambda: [plain(3, 3)]),
    "to_tensor": (lambda s: sympow.to_tensor(s, 3, 2), lambda: [plain(6)]),
    "from_tensor": (lambda t: sympow.from_tensor(t, 2), lambda: [metric(3)]),
    "act": (lambda m, s: sympow.act(m, s, 2), lambda: [plain(3, 3), plain(6)]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_batch_is_its_samples(name):
    function, draw = CASES[name]
    arguments = draw()
    whole = function(*arguments)
    for i in range(LEAD[0]):
        for j in range(LEAD[1]):
            one = function(*(a[i, j] for a in arguments))
            for got, wanted in zip(*(x if isinstance(x, tuple) else (x,) for x in (whole, one))):
                assert_close(got[i, j], wanted, atol=1e-12, rtol=1e-10)
