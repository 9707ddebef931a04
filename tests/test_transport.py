"""Frames, tangent mappings and transports against the paper's formulas in NumPy, and what scores do under a shift."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from often import double, refuses, vec
from oracles import mirror, turn
from scipy.linalg import block_diag, expm, sqrtm
from torch.testing import assert_close

from geolib import transport
from geolib.encodings import build
from geolib.lie import skew_matrix
from geolib.rotations import grid_positions, mixed_matrix, rotate_pairs

PLANES, DIM = 4, 8
POSITIONS = vec(0.0, 1.0, 2.0, 3.5, -2.0)
PLACES = POSITIONS.tolist()

# Every preset as the paper writes it, in NumPy. s > 0 scalar, S a vector of D scales, theta of D/2 angles, X skew.

rng = np.random.default_rng(3)
X = rng.normal(size=(DIM, DIM))
X, S, theta = X - X.T, np.exp(0.2 * rng.normal(size=DIM)), rng.normal(size=PLANES)
SIGNS = np.array([-1, 1] * (PLANES // 2))  # RF-18


def turns(angles):
    return block_diag(*map(turn, angles))


def mirrors(angles):
    return block_diag(*map(mirror, angles))


def mixed(angles):
    return block_diag(*(kind(angle) for kind, angle in zip([turn, mirror] * (PLANES // 2), angles)))


def presets(s=0.8):
    """(preset, M_m, T_m, the matrix between q_m and k_n in their score) by name."""

    def scalar(preset, orthogonal, relative):  # M_m = s^m I
        return (
            preset,
            lambda m: s**m * np.eye(DIM),
            lambda m: s ** (-m / 2) * orthogonal(m),
            lambda m, n: s ** ((m + n) / 2) * relative(m, n),
        )

    log_s, log_S, angles = vec(s)[0].log(), torch.from_numpy(S).log(), torch.from_numpy(theta)
    return {
        "rotation": scalar(  # RF-13
            transport.rotation_preset(log_s, angles), lambda m: turns(m * theta), lambda m, n: turns((m - n) * theta)
        ),
        "skew": scalar(  # RF-9
            transport.skew_preset(log_s, torch.from_numpy(X)), lambda m: expm(m * X), lambda m, n: expm((m - n) * X)
        ),
        "reflection": scalar(
            transport.reflection_preset(log_s, angles),
            lambda m: mirrors(m * theta),
            lambda m, n: mirrors(m * theta) @ mirrors(n * theta),
        ),
        "mixed": scalar(
            transport.mixed_preset(log_s, angles),
            lambda m: mixed(m * theta),
            lambda m, n: mixed(m * theta) @ mixed(n * SIGNS * theta),
        ),
        "diagonal": (
            transport.diagonal_preset(log_S, angles),
            lambda m: np.diag(S**m),
            lambda m: np.diag(S ** (-m / 2)) @ turns(m * theta),
            lambda m, n: np.diag(S ** (m / 2)) @ turns((m - n) * theta) @ np.diag(S ** (n / 2)),
        ),
        "general": (
            transport.general_preset(log_S, angles),
            lambda m: turns(-m * theta) @ np.diag(S**m) @ turns(m * theta),  # RF-A1
            lambda m: turns(-m * theta) @ np.diag(S ** (-m / 2)),  # RF-A3
            lambda m, n: turns(-m * theta) @ np.diag(S ** ((m + n) / 2)) @ turns(n * theta),  # RF-A4
        ),
    }


@pytest.fixture(params=presets())
def case(request):
    return presets()[request.param]


def stacked(matrices):
    return torch.from_numpy(np.stack(list(matrices)))


def test_preset_metrics_and_frames_are_the_papers(case):  # RF-6, RF-7, RF-10, RF-16, RF-17, RF-A1, RF-A2, RF-A3
    preset, metric, frame, _ = case
    assert_close(preset.metrics(POSITIONS), stacked(map(metric, PLACES)))
    assert_close(preset.frames(POSITIONS), stacked(map(frame, PLACES)))


def test_presets_satisfy_the_compatibility_condition(case):  # RF-4, RF-5, RF-A3
    preset, *_ = case
    metrics, frames = preset.metrics(POSITIONS), preset.frames(POSITIONS)
    assert transport.compatibility(metrics, frames) < 1e-13
    # And with the identity as the common value, which the fast form needs.
    assert_close(transport.reference_metrics(metrics, frames), torch.eye(DIM).double().expand(5, -1, -1))
    # Seen through the transport, from anywhere, a metric is the metric.
    assert_close(transport.pulled_back_metrics(metrics, frames), metrics.expand(5, -1, -1, -1))


def test_fast_form_is_the_literal_form_is_the_closed_form(case):  # RF-9, RF-13, RF-14, RF-A4, RF-A5
    preset, _, _, closed = case
    q, k = double(2, 3, 5, DIM)
    expected = torch.einsum("bmi,mnij,bnj->bmn", q, stacked([[closed(m, n) for n in PLACES] for m in PLACES]), k)
    assert_close(preset.literal_scores(q, k, POSITIONS), expected)
    assert_close(preset.scores(q, k, POSITIONS), expected)


def test_pull_back_is_the_tangent_mapping(case):  # RF-2, RF-11, RF-18, RF-A5
    preset, _, frame, _ = case
    x = double(2, 5, DIM)
    expected = torch.linalg.solve(stacked(map(frame, PLACES)), x[..., None])[..., 0]
    assert_close(preset.pull_back(x, POSITIONS), expected)


def test_transport_keeps_lengths_and_inner_products(case):  # RF-1, RF-3
    preset, *_ = case
    metrics, p = preset.metrics(POSITIONS), transport.transports(preset.frames(POSITIONS))
    x, y = double(2, DIM)
    for m, n in np.ndindex(5, 5):
        before = transport.squared_length(x, metrics[n])
        assert_close(transport.squared_length(p[m, n] @ x, metrics[m]), before)
        assert_close((p[m, n] @ x) @ metrics[m] @ (p[m, n] @ y), x @ metrics[n] @ y)


def test_scalar_presets_transport_by_the_difference_of_positions():  # RF-8, RF-12
    for name, generator in (("rotation", block_diag(*([[0, -t], [t, 0]] for t in theta))), ("skew", X)):
        p = transport.transports(presets(0.7)[name][0].frames(POSITIONS))
        assert_close(p, stacked([[0.7 ** ((n - m) / 2) * expm((m - n) * generator) for n in PLACES] for m in PLACES]))


def test_transports_compose_and_invert():  # RF-2
    frames = double(4, 5, 5)
    p = transport.transports(frames)
    assert_close(p[0, 1] @ p[1, 3], p[0, 3], rtol=1e-9, atol=1e-9)
    assert_close(p[2, 1] @ p[1, 2], torch.eye(5).double(), rtol=1e-9, atol=1e-9)
    assert_close(transport.tangent_mappings(frames) @ frames, torch.eye(5).double().expand(4, -1, -1))


# Compatibility ------------------------------------------------------------------------------------------------------


def random_metrics(*shape):
    root = double(*shape, shape[-1])
    return root @ root.mT + 0.5 * torch.eye(shape[-1]).double()


@given(count=st.integers(1, 5), dim=st.integers(1, 6))
@settings(deadline=None, max_examples=15)
def test_inverse_root_of_any_metric_times_any_rotation_is_compatible(count, dim):  # RF-5
    metrics = random_metrics(count, dim)
    orthogonals = torch.linalg.qr(double(count, dim, dim)).Q
    frames = transport.compatible_frames(metrics, orthogonals)
    assert transport.compatibility(metrics, frames) < 1e-10
    # One matrix common to all tokens changes nothing.
    common = torch.eye(dim, dtype=torch.float64) + 0.1 * double(dim, dim)
    assert transport.compatibility(metrics, frames @ common) < 1e-9


def test_compatible_frames_are_all_of_them():  # RF-5
    metrics, common = random_metrics(3, 4).numpy(), random_metrics(4).numpy()
    # Frames with T^T M T = G from two Cholesky factors: no square root of a matrix.
    Q, target = torch.linalg.qr(double(4, 4)).Q.numpy(), np.linalg.cholesky(common).T
    frames = stacked(np.linalg.solve(np.linalg.cholesky(metric).T, Q @ target) for metric in metrics)
    assert transport.compatibility(torch.from_numpy(metrics), frames) < 1e-12
    orthogonal = stacked(map(sqrtm, metrics)) @ frames @ torch.from_numpy(np.linalg.inv(sqrtm(common)))
    assert_close(orthogonal.mT @ orthogonal, torch.eye(4).double().expand(3, -1, -1))


def test_compatibility_measures_the_deviation():  # RF-5
    frames = torch.eye(2).expand(2, -1, -1)
    assert transport.compatibility(frames * torch.tensor([1.0, 4.0])[:, None, None], frames).item() == 3 / 4


def test_scaling_inside_the_rotation_breaks_diagonal_metrics():  # RF-5, RF-6
    frames = stacked(turns(m * theta) @ np.diag(S ** (-m / 2)) for m in PLACES)
    assert transport.compatibility(stacked(np.diag(S**m) for m in PLACES), frames) > 0.1


def test_fast_form_needs_the_identity_as_common_value():  # RF-9
    metrics, common = random_metrics(4, 3), random_metrics(3)
    frames = transport.compatible_frames(metrics, torch.linalg.qr(double(4, 3, 3)).Q) @ torch.linalg.cholesky(common).mT
    assert transport.compatibility(metrics, frames) < 1e-10
    q, k = double(2, 4, 3)
    a, b = torch.einsum("mij,xmj->xmi", transport.tangent_mappings(frames), torch.stack([q, k]))
    literal = transport.literal_scores(q, k, metrics, frames)
    assert_close(literal, a @ common @ b.mT, rtol=1e-9, atol=1e-9)
    assert (literal - a @ b.mT).abs().max() > 0.1


# What the scores do under a shift -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rotation", "skew", "reflection", "mixed"])
@pytest.mark.parametrize("s", [1.0, 0.8, 1.1])
def test_shift_by_c_multiplies_scores_by_s_to_the_c(name, s):  # RF-13
    preset = presets(s)[name][0]
    q, k = double(2, 5, DIM)
    assert_close(preset.scores(q, k, POSITIONS + 3.0), s**3.0 * preset.scores(q, k, POSITIONS))


def test_general_metric_with_equal_scales_is_the_rotation_preset_with_the_opposite_sign():  # RF-A5
    theta, log_s, (q, k) = double(PLANES), vec(-0.2), double(2, 5, DIM)
    general = transport.general_preset(log_s.expand(DIM), theta)
    assert_close(general.scores(q, k, POSITIONS), transport.rotation_preset(log_s, -theta).scores(q, k, POSITIONS))


def test_scalar_s_cannot_stand_for_the_matrix_in_the_last_line_of_the_appendix():  # RF-A5
    theta, (q, k) = vec(0.4), double(2, 5, 2)
    scores = transport.general_preset(vec(-0.5, 0.3), theta).literal_scores(q, k, POSITIONS)
    a, b = (rotate_pairs(x, POSITIONS[:, None] * theta) for x in (q, k))
    # For a scalar every ratio to the unscaled score would be s^((m+n)/2).
    half_sum = (POSITIONS[:, None] + POSITIONS) / 2
    implied = ((scores / (a @ b.mT)).abs().log() / half_sum)[half_sum != 0]
    assert implied.max() - implied.min() > 0.1


# Findings -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("s", [1.0, 0.8, 1.2])
def test_reflections_score_as_rotations_by_the_doubled_angle(s):  # RF-REFL, RF-15, RF-16, RF-17
    theta, log_s, (q, k) = double(PLANES), vec(s)[0].log(), double(2, 5, DIM)
    mirrored, mixed = transport.reflection_preset(log_s, theta), transport.mixed_preset(log_s, theta)
    twice, every_other = (transport.rotation_preset(log_s, theta * vec(*by)) for by in ((2, 2, 2, 2), (1, 2, 1, 2)))
    assert_close(transport.equivalent_frequencies(theta), theta * vec(1, 2, 1, 2))
    assert_close(mirrored.literal_scores(q, k, POSITIONS), twice.scores(q, k, POSITIONS))
    assert_close(mixed.literal_scores(q, k, POSITIONS), every_other.scores(q, k, POSITIONS))
    assert_close(transport.transports(mirrored.frames(POSITIONS)), transport.transports(twice.frames(POSITIONS)))


def test_mixed_pairs_is_the_mixed_matrix():  # RF-17
    x, angles = double(3, DIM), double(3, PLANES)
    assert_close(transport.mixed_pairs(x, angles), torch.einsum("tij,tj->ti", mixed_matrix(angles), x))


def test_transpose_for_inverse_divides_scores_by_s_to_the_sum_of_positions():  # RF-INV
    q, k = double(2, 5, DIM)
    right = presets(0.8)["rotation"][0]
    wrong = transport.transposed_scores(q, k, right.frames(POSITIONS))
    assert_close(wrong, right.scores(q, k, POSITIONS) * 0.8 ** -(POSITIONS[:, None] + POSITIONS))


@pytest.mark.parametrize("make", [transport.rotation_preset, transport.diagonal_preset, transport.general_preset])
def test_transpose_for_inverse_inverts_every_scale_of_a_matrix_metric(make):  # RF-INV
    scales, angles, (q, k) = double(DIM) / 5, double(PLANES), double(2, 5, DIM)
    scales = scales[0] if make is transport.rotation_preset else scales
    wrong = transport.transposed_scores(q, k, make(scales, angles).frames(POSITIONS))
    assert_close(wrong, make(-scales, angles).scores(q, k, POSITIONS))  # what shrinks should grow


# Learnable parts, precision, errors ---------------------------------------------------------------------------------


def test_wide_queries_keep_their_digits_beside_a_narrow_generator():  # RF-9
    (q, k), preset = double(2, 3, 4), transport.skew_preset(torch.tensor(0.0), skew_matrix(torch.ones(6), 4))
    first = preset.scores(q, k, torch.arange(3.0))[0, 0]  # of the token at 0 nothing turns
    assert_close(first, q[0] @ k[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", presets())
def test_gradients_reach_scales_and_angles(name):  # RF-7, RF-9
    make = getattr(transport, f"{name}_preset")
    scales = double(4) / 10 if name in ("diagonal", "general") else double(1)[0] / 10
    angles = double(4, 4) if name == "skew" else double(2)
    inputs = [x.requires_grad_() for x in (scales, angles, double(3, 4), double(3, 4))]

    def scores(s, t, q, k):
        return make(s, t - t.T if name == "skew" else t).scores(q, k, POSITIONS[1:4])

    assert torch.autograd.gradcheck(scores, inputs)


def test_frames_that_stretch_and_then_turn_have_no_origin():  # RF-ORIGIN
    scales, angles, c = 0.3 * double(DIM), double(PLANES), 2.5
    preset, m = transport.diagonal_preset(scales, angles), 3 * double(6)
    q, k, back = double(6, DIM), double(6, DIM), (-scales * c / 2).exp()
    assert_close(preset.scores(back * q, back * k, m + c), preset.scores(q, k, m))


def movable(here, there):
    """Whether there @ B = C @ here, between all places, for invertible B and C: where not, the origin is seen."""
    dim = here.shape[-1]
    units = torch.eye(dim * dim).double().view(-1, dim, dim)
    both = torch.cat([there[:, :, None] @ units, -units @ here[:, :, None]], 2).transpose(0, 2).flatten(1)
    sides, sizes, _ = torch.linalg.svd(both, full_matrices=False)
    free = sides[:, sizes < 1e-8 * sizes[0]]
    mixed = (free @ double(free.shape[1])).view(2, dim, dim)
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
        each.data.copy_(0.3 * double(*each.shape))
    every = torch.eye(DIM).double()[None, :, None].expand(-1, -1, 9, -1)  # each unit vector at each place

    def scores(positions):  # the matrix between the query and the key of each two places
        q, k = encoding.place(positions).to_reference(every, every)
        return torch.einsum("imd,jnd->mnij", q[0], k[0])

    places = grid_positions(3, 3).double()
    assert movable(scores(places), scores(places + torch.tensor([1.3, 0.4]))) is not seen


def test_small_frames_are_not_singular():  # RF-5
    frames = torch.eye(3).expand(2, -1, -1) * 1e-30
    assert transport.tangent_mappings(frames).isfinite().all()


test_bad_input_names_the_argument = refuses(
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
)
