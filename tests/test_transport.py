import math

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from geolib import transport
from geolib.encodings import build
from geolib.rotations import grid_positions, mixed_matrix, rotate_pairs

F64 = torch.float64
PLANES, DIM = 4, 8


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def _random(*shape):
    return torch.randn(shape, dtype=F64)


def _turn(a):
    return np.array([[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]])


def _mirror(a):
    return np.array([[math.cos(2 * a), math.sin(2 * a)], [math.sin(2 * a), -math.cos(2 * a)]])


def _blocks(*blocks):
    return scipy.linalg.block_diag(*blocks)


# Every preset as the paper writes it, in NumPy: (preset, M_m, T_m, score matrix between q_m and k_n). s > 0 scalar,
# S a vector of D scales, theta a vector of D/2 angles, X skew.


def _rotation(s, S, theta, X):
    return (
        transport.rotation_preset(torch.tensor(s, dtype=F64).log(), torch.from_numpy(theta)),
        lambda m: s**m * np.eye(DIM),
        lambda m: s ** (-m / 2) * _blocks(*(_turn(m * t) for t in theta)),
        lambda m, n: s ** ((m + n) / 2) * _blocks(*(_turn((m - n) * t) for t in theta)),  # RF-13
    )


def _skew(s, S, theta, X):
    return (
        transport.skew_preset(torch.tensor(s, dtype=F64).log(), torch.from_numpy(X)),
        lambda m: s**m * np.eye(DIM),
        lambda m: s ** (-m / 2) * scipy.linalg.expm(m * X),
        lambda m, n: s ** ((m + n) / 2) * scipy.linalg.expm((m - n) * X),  # RF-9
    )


def _diagonal(s, S, theta, X):
    return (
        transport.diagonal_preset(torch.from_numpy(S).log(), torch.from_numpy(theta)),
        lambda m: np.diag(S**m),
        lambda m: np.diag(S ** (-m / 2)) @ _blocks(*(_turn(m * t) for t in theta)),
        lambda m, n: np.diag(S ** (m / 2)) @ _blocks(*(_turn((m - n) * t) for t in theta)) @ np.diag(S ** (n / 2)),
    )


def _reflection(s, S, theta, X):
    return (
        transport.reflection_preset(torch.tensor(s, dtype=F64).log(), torch.from_numpy(theta)),
        lambda m: s**m * np.eye(DIM),
        lambda m: s ** (-m / 2) * _blocks(*(_mirror(m * t) for t in theta)),
        lambda m, n: s ** ((m + n) / 2) * _blocks(*(_mirror(m * t) @ _mirror(n * t) for t in theta)),
    )


def _mixed(s, S, theta, X):
    kinds = [_turn, _mirror] * (PLANES // 2)
    signs = [-1, 1] * (PLANES // 2)  # RF-18
    return (
        transport.mixed_preset(torch.tensor(s, dtype=F64).log(), torch.from_numpy(theta)),
        lambda m: s**m * np.eye(DIM),
        lambda m: s ** (-m / 2) * _blocks(*(kind(m * t) for kind, t in zip(kinds, theta))),
        lambda m, n: (
            s ** ((m + n) / 2)
            * _blocks(*(kind(m * t) @ kind(sign * n * t) for kind, sign, t in zip(kinds, signs, theta)))
        ),
    )


def _general(s, S, theta, X):
    def turn(m):
        return _blocks(*(_turn(m * t) for t in theta))

    return (
        transport.general_preset(torch.from_numpy(S).log(), torch.from_numpy(theta)),
        lambda m: turn(-m) @ np.diag(S**m) @ turn(m),  # RF-A1
        lambda m: turn(-m) @ np.diag(S ** (-m / 2)),  # RF-A3
        lambda m, n: turn(-m) @ np.diag(S ** ((m + n) / 2)) @ turn(n),  # RF-A4
    )


PRESETS = [_rotation, _skew, _diagonal, _reflection, _mixed, _general]


@pytest.fixture(params=PRESETS, ids=lambda make: make.__name__.strip("_"))
def case(request):
    rng = np.random.default_rng(3)
    a = rng.normal(size=(DIM, DIM))
    return request.param(0.8, np.exp(0.2 * rng.normal(size=DIM)), rng.normal(size=PLANES), a - a.T)


POSITIONS = torch.tensor([0.0, 1.0, 2.0, 3.5, -2.0], dtype=F64)


def test_preset_metrics_and_frames_are_the_papers(case):  # RF-6, RF-7, RF-10, RF-16, RF-17, RF-A1, RF-A2, RF-A3
    preset, metric, frame, _ = case
    assert_close(preset.metrics(POSITIONS), torch.from_numpy(np.stack([metric(m) for m in POSITIONS.tolist()])))
    assert_close(preset.frames(POSITIONS), torch.from_numpy(np.stack([frame(m) for m in POSITIONS.tolist()])))


def test_presets_satisfy_the_compatibility_condition(case):  # RF-4, RF-5, RF-A3
    preset, *_ = case
    metrics, frames = preset.metrics(POSITIONS), preset.frames(POSITIONS)
    assert transport.compatibility(metrics, frames) < 1e-13
    # And with the identity as the common value, which the fast form needs.
    assert_close(transport.reference_metrics(metrics, frames), torch.eye(DIM, dtype=F64).expand(5, -1, -1))
    # Seen through the transport, from anywhere, a metric is the metric.
    assert_close(transport.pulled_back_metrics(metrics, frames), metrics.expand(5, -1, -1, -1))


def test_fast_form_is_the_literal_form_is_the_closed_form(case):  # RF-9, RF-13, RF-14, RF-A4, RF-A5
    preset, _, _, closed = case
    q, k = _random(2, 3, 5, DIM)
    matrices = torch.from_numpy(np.stack([[closed(m, n) for n in POSITIONS.tolist()] for m in POSITIONS.tolist()]))
    expected = torch.stack(
        [torch.stack([(q[:, i] @ matrices[i, j] * k[:, j]).sum(-1) for j in range(5)], -1) for i in range(5)], 1
    )
    assert_close(preset.literal_scores(q, k, POSITIONS), expected)
    assert_close(preset.scores(q, k, POSITIONS), expected)


def test_pull_back_is_the_tangent_mapping(case):  # RF-2, RF-11, RF-18, RF-A5
    preset, _, frame, _ = case
    x = _random(2, 5, DIM)
    expected = np.stack([np.linalg.solve(frame(m), x[:, i].numpy().T).T for i, m in enumerate(POSITIONS.tolist())], 1)
    assert_close(preset.pull_back(x, POSITIONS), torch.from_numpy(expected))


def test_transport_keeps_lengths_and_inner_products(case):  # RF-1, RF-3
    preset, *_ = case
    metrics, p = preset.metrics(POSITIONS), transport.transports(preset.frames(POSITIONS))
    x, y = _random(2, DIM)
    for m, n in np.ndindex(5, 5):
        before = transport.squared_length(x, metrics[n])
        assert_close(transport.squared_length(p[m, n] @ x, metrics[m]), before)
        assert_close((p[m, n] @ x) @ metrics[m] @ (p[m, n] @ y), x @ metrics[n] @ y)


def test_scalar_presets_transport_by_the_difference_of_positions():  # RF-8, RF-12
    rng = np.random.default_rng(0)
    theta, a = rng.normal(size=PLANES), rng.normal(size=(DIM, DIM))
    for preset, generator in (
        (_rotation(0.7, None, theta, None)[0], _blocks(*(np.array([[0, -t], [t, 0]]) for t in theta))),
        (_skew(0.7, None, theta, a - a.T)[0], a - a.T),
    ):
        p = transport.transports(preset.frames(POSITIONS))
        for i, m in enumerate(POSITIONS.tolist()):
            for j, n in enumerate(POSITIONS.tolist()):
                expected = 0.7 ** ((n - m) / 2) * scipy.linalg.expm((m - n) * generator)
                assert_close(p[i, j], torch.from_numpy(expected))


def test_transports_compose_and_invert():  # RF-2
    frames = _random(4, 5, 5)
    p = transport.transports(frames)
    assert_close(p[0, 1] @ p[1, 3], p[0, 3], rtol=1e-9, atol=1e-9)
    assert_close(p[2, 1] @ p[1, 2], torch.eye(5, dtype=F64), rtol=1e-9, atol=1e-9)
    assert_close(transport.tangent_mappings(frames) @ frames, torch.eye(5, dtype=F64).expand(4, -1, -1))


# Compatibility ------------------------------------------------------------------------------------------------------


def _random_metrics(count, dim):
    root = _random(count, dim, dim)
    return root @ root.mT + 0.5 * torch.eye(dim, dtype=F64)


@given(count=st.integers(1, 5), dim=st.integers(1, 6))
@settings(deadline=None, max_examples=15)
def test_inverse_root_of_any_metric_times_any_rotation_is_compatible(count, dim):  # RF-5
    metrics = _random_metrics(count, dim)
    orthogonals = torch.linalg.qr(_random(count, dim, dim)).Q
    frames = transport.compatible_frames(metrics, orthogonals)
    assert transport.compatibility(metrics, frames) < 1e-10
    # One matrix common to all tokens changes nothing.
    common = torch.eye(dim, dtype=F64) + 0.1 * _random(dim, dim)
    assert transport.compatibility(metrics, frames @ common) < 1e-9


def test_compatible_frames_are_all_of_them():  # RF-5
    metrics = _random_metrics(3, 4)
    common = _random_metrics(1, 4)[0]
    frames = []
    for metric in metrics:  # frames with T^T M T = G from two Cholesky factors: no square root of a matrix
        lower, target = np.linalg.cholesky(metric.numpy()), np.linalg.cholesky(common.numpy())
        frames.append(
            np.linalg.solve(lower.T, np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0] @ target.T)
        )
    frames = torch.from_numpy(np.stack(frames))
    assert transport.compatibility(metrics, frames) < 1e-12
    root_m = torch.from_numpy(np.stack([scipy.linalg.sqrtm(m.numpy()) for m in metrics]))
    root_g = torch.from_numpy(np.linalg.inv(scipy.linalg.sqrtm(common.numpy())))
    orthogonal = root_m @ frames @ root_g
    assert_close(orthogonal.mT @ orthogonal, torch.eye(4, dtype=F64).expand(3, -1, -1))


def test_compatibility_measures_the_deviation():  # RF-5
    metrics = torch.stack([torch.eye(2, dtype=F64), 4 * torch.eye(2, dtype=F64)])
    frames = torch.eye(2, dtype=F64).expand(2, -1, -1)
    assert transport.compatibility(metrics, frames).item() == pytest.approx(3 / 4)
    incompatible = transport.transports(frames)[1, 0] @ torch.tensor([1.0, 0.0], dtype=F64)
    assert transport.squared_length(incompatible, metrics[1]) != 1


def test_scaling_inside_the_rotation_breaks_diagonal_metrics():  # RF-5, RF-6
    theta = np.array([0.3, 0.7])
    S = np.array([0.5, 1.5, 0.8, 1.2])
    metrics = torch.from_numpy(np.stack([np.diag(S**m) for m in range(3)]))
    frames = np.stack([_blocks(*(_turn(m * t) for t in theta)) @ np.diag(S ** (-m / 2)) for m in range(3)])
    assert transport.compatibility(metrics, torch.from_numpy(frames)) > 0.1


def test_fast_form_needs_the_identity_as_common_value():  # RF-9
    metrics = _random_metrics(4, 3)
    common = _random_metrics(1, 3)[0]
    orthogonals = torch.linalg.qr(_random(4, 3, 3)).Q
    frames = transport.compatible_frames(metrics, orthogonals) @ torch.linalg.cholesky(common).mT
    assert transport.compatibility(metrics, frames) < 1e-10
    q, k = _random(2, 4, 3)
    back = transport.tangent_mappings(frames)
    a, b = torch.einsum("mij,mj->mi", back, q), torch.einsum("mij,mj->mi", back, k)
    literal = transport.literal_scores(q, k, metrics, frames)
    assert_close(literal, a @ common @ b.mT, rtol=1e-9, atol=1e-9)
    assert (literal - a @ b.mT).abs().max() > 0.1


# What the scores do under a shift -----------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [_rotation, _skew, _reflection, _mixed])
@pytest.mark.parametrize("s", [1.0, 0.8, 1.1])
def test_shift_by_c_multiplies_scores_by_s_to_the_c(make, s):  # RF-13
    rng = np.random.default_rng(5)
    a = rng.normal(size=(DIM, DIM))
    preset = make(s, None, rng.normal(size=PLANES), a - a.T)[0]
    q, k = _random(2, 5, DIM)
    assert_close(preset.scores(q, k, POSITIONS + 3.0), s**3.0 * preset.scores(q, k, POSITIONS))


def test_general_metric_with_equal_scales_is_the_rotation_preset_with_the_opposite_sign():  # RF-A5
    theta, log_s = _random(PLANES), torch.tensor(-0.2, dtype=F64)
    q, k = _random(2, 5, DIM)
    general = transport.general_preset(log_s.expand(DIM), theta)
    assert_close(general.scores(q, k, POSITIONS), transport.rotation_preset(log_s, -theta).scores(q, k, POSITIONS))


def test_scalar_s_cannot_stand_for_the_matrix_in_the_last_line_of_the_appendix():  # RF-A5
    log_scales, theta = torch.tensor([-0.5, 0.3], dtype=F64), torch.tensor([0.4], dtype=F64)
    q, k = _random(2, 5, 2)
    preset = transport.general_preset(log_scales, theta)
    literal = preset.literal_scores(q, k, POSITIONS)
    turned = [rotate_pairs(x, POSITIONS[:, None] * theta) for x in (q, k)]
    # For a scalar every ratio to the unscaled score would be s^((m+n)/2): positive, and 1 at m = n = 0 only.
    ratio = literal / (turned[0] @ turned[1].mT)
    half_sum = (POSITIONS[:, None] + POSITIONS) / 2
    implied = ratio.abs().log() / half_sum
    implied = implied[half_sum != 0]
    assert implied.max() - implied.min() > 0.1
    assert_close(preset.scores(q, k, POSITIONS), literal)


# Findings -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("s", [1.0, 0.8, 1.2])
def test_reflections_score_as_rotations_by_the_doubled_angle(s):  # RF-REFL, RF-15, RF-16, RF-17
    theta, log_s = _random(PLANES), torch.tensor(math.log(s), dtype=F64)
    q, k = _random(2, 5, DIM)
    mirrored = transport.reflection_preset(log_s, theta)
    turned = transport.rotation_preset(log_s, 2 * theta)
    assert_close(mirrored.literal_scores(q, k, POSITIONS), turned.scores(q, k, POSITIONS))
    assert_close(transport.transports(mirrored.frames(POSITIONS)), transport.transports(turned.frames(POSITIONS)))
    mixed = transport.mixed_preset(log_s, theta)
    doubled = transport.equivalent_frequencies(theta)
    assert_close(doubled, theta * torch.tensor([1.0, 2.0, 1.0, 2.0], dtype=F64))
    turned = transport.rotation_preset(log_s, doubled)
    assert_close(mixed.literal_scores(q, k, POSITIONS), turned.scores(q, k, POSITIONS))


def test_mixed_pairs_is_the_mixed_matrix():  # RF-17
    x, angles = _random(3, DIM), _random(3, PLANES)
    assert_close(transport.mixed_pairs(x, angles), torch.einsum("tij,tj->ti", mixed_matrix(angles), x))


@pytest.mark.parametrize("s", [1.0, 0.8])
def test_transpose_for_inverse_divides_scores_by_s_to_the_sum_of_positions(s):  # RF-INV
    theta, log_s = _random(PLANES), torch.tensor(math.log(s), dtype=F64)
    q, k = _random(2, 5, DIM)
    right = transport.rotation_preset(log_s, theta)
    wrong = transport.transposed_scores(q, k, right.frames(POSITIONS))
    assert_close(wrong, right.scores(q, k, POSITIONS) * s ** -(POSITIONS[:, None] + POSITIONS))
    # What such a model computes is the preset with 1/s: a metric that grows where it should shrink.
    assert_close(wrong, transport.rotation_preset(-log_s, theta).scores(q, k, POSITIONS))


@pytest.mark.parametrize("make", [transport.diagonal_preset, transport.general_preset])
def test_transpose_for_inverse_inverts_every_scale_of_a_matrix_metric(make):  # RF-INV
    scales, theta = _random(DIM) / 5, _random(PLANES)
    q, k = _random(2, 5, DIM)
    wrong = transport.transposed_scores(q, k, make(scales, theta).frames(POSITIONS))
    assert_close(wrong, make(-scales, theta).scores(q, k, POSITIONS))


# Learnable parts, precision, errors ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rotation", "skew", "diagonal", "reflection", "mixed", "general"])
def test_gradients_reach_scales_and_angles(name):  # RF-7, RF-9
    make = getattr(transport, f"{name}_preset")
    scales = 0.1 * _random(4 if name in ("diagonal", "general") else 1).squeeze()
    angles = _random(4, 4) if name == "skew" else _random(2)
    inputs = [x.requires_grad_() for x in (scales, angles, _random(3, 4), _random(3, 4))]

    def scores(s, t, q, k):
        return make(s, t - t.T if name == "skew" else t).scores(q, k, POSITIONS[1:4])

    assert torch.autograd.gradcheck(scores, inputs)


def test_frames_that_stretch_and_then_turn_have_no_origin():  # RF-ORIGIN
    scales, angles, c = 0.3 * _random(DIM), _random(PLANES), 2.5
    preset, m = transport.diagonal_preset(scales, angles), 3 * _random(6)
    q, k, back = _random(6, DIM), _random(6, DIM), (-scales * c / 2).exp()
    assert_close(preset.scores(back * q, back * k, m + c), preset.scores(q, k, m))


def _movable(here, there):
    """Whether there @ B = C @ here, between all places, for invertible B and C: where not, the origin is seen."""
    dim = here.shape[-1]
    units = torch.eye(dim * dim, dtype=F64).view(-1, dim, dim)
    both = torch.cat([there[:, :, None] @ units, -units @ here[:, :, None]], 2).transpose(0, 2).flatten(1)
    sides, sizes, _ = torch.linalg.svd(both, full_matrices=False)
    free = sides[:, sizes < 1e-8 * sizes[0]]
    mixed = (free @ _random(free.shape[1])).view(2, dim, dim)
    return bool((torch.linalg.svdvals(mixed)[:, -1] > 1e-6).all())


@pytest.mark.parametrize(
    ("name", "options", "seen"),
    [
        ("rope-mixed", {}, False),
        ("riemannformer", {}, False),
        ("riemannformer", {"law": "slow"}, True),
        ("liere", {}, True),
        ("liere", {"block": 2}, False),
        ("spherical", {}, False),
        ("riemannformer-general", {}, True),
        ("riemannformer-diagonal", {}, False),
    ],
)
def test_which_methods_know_where_zero_is(name, options, seen):  # RF-ORIGIN
    encoding = build(name, width=DIM, heads=1, grid=(3, 3), **options).double()
    for each in encoding.parameters():
        each.data.copy_(0.3 * _random(*each.shape))
    every = torch.eye(DIM, dtype=F64)[None, :, None].expand(-1, -1, 9, -1)  # each unit vector at each place

    def scores(positions):  # the matrix between the query and the key of each two places
        q, k = encoding.place(positions).to_reference(every, every)
        return torch.einsum("imd,jnd->mnij", q[0], k[0])

    places = grid_positions(3, 3).double()
    assert _movable(scores(places), scores(places + torch.tensor([1.3, 0.4]))) is not seen


def test_small_frames_are_not_singular():  # RF-5
    frames = torch.eye(3).expand(2, -1, -1) * 1e-30
    assert transport.tangent_mappings(frames).isfinite().all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: transport.tangent_mappings(torch.ones(2, 2)), "frames: got a singular matrix"),
        (lambda: transport.tangent_mappings(torch.ones(2, 3)), r"frames: got shape \(2, 3\)"),
        (lambda: transport.compatibility(torch.eye(2)[None], torch.zeros(1, 2, 2)), "frames: got a singular matrix"),
        (lambda: transport.compatibility(torch.zeros(1, 2, 2), torch.eye(2)[None]), "metric: got .*positive definite"),
        (lambda: transport.compatibility(torch.eye(2)[None], torch.eye(3)[None]), "metrics and frames: got shapes"),
        (lambda: transport.compatible_frames(-torch.eye(2)[None], torch.eye(2)[None]), "metric: got"),
        (lambda: transport.skew_preset(torch.zeros(()), torch.eye(2)), "skew: got"),
        (lambda: transport.mixed_preset(torch.zeros(()), torch.ones(3)), "frequencies' length: got 3"),
        (lambda: transport.general_preset(torch.zeros(3), torch.ones(2)), "log_scales: got shape"),
        (lambda: transport.diagonal_preset(torch.zeros(3), torch.ones(2)), "log_scales: got shape"),
    ],
)
def test_bad_input_names_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()
