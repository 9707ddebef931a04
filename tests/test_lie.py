"""Statements about skew matrices and their exponentials, each computed by two means."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from geolib import lie
from geolib.rotations import axial_frequencies, block_diagonal, grid_positions, plane_generator

modest = settings(deadline=None, max_examples=25)


def random_skew(width: int, *lead: int, size: float = 1.0, seed: int = 0) -> Tensor:
    numbers = np.random.default_rng(seed).normal(size=(*lead, width, width)) * size
    return torch.from_numpy(numbers - np.swapaxes(numbers, -1, -2)) / 2


def expm(A: Tensor) -> Tensor:
    """The oracle: SciPy's Pade exponential, one float64 matrix at a time."""
    flat = A.detach().double().reshape(-1, *A.shape[-2:]).numpy()
    return torch.from_numpy(np.stack([scipy.linalg.expm(a) for a in flat])).view(A.shape)


def expm_at(positions: Tensor, generators: Tensor) -> Tensor:
    """exp(sum_i p_i A_i) token by token, axis by axis."""
    return torch.stack([expm(sum(c * generators[..., i, :, :] for i, c in enumerate(p))) for p in positions.double()])


# The algebra


@modest
@given(width=st.integers(2, 9), lead=st.lists(st.integers(1, 3), max_size=2), seed=st.integers(0, 999))
def test_a_generator_is_the_upper_triangle_minus_its_transpose(width, lead, seed):  # LR-B5
    generator = torch.Generator().manual_seed(seed)
    entries = lie.uniform_entries(*lead, lie.entry_count(width), generator=generator)
    literal = torch.zeros(*lead, width, width)
    numbers = iter(range(lie.entry_count(width)))
    for row in range(width):
        for column in range(row + 1, width):
            literal[..., row, column] = entries[..., next(numbers)]
    A = lie.skew_matrix(entries, width)
    assert torch.equal(A, literal - literal.mT)
    assert torch.equal(lie.upper_entries(A), entries)


def test_entries_start_uniform_on_zero_to_two_pi():  # LR-B5
    entries = lie.uniform_entries(200_000, generator=torch.Generator().manual_seed(0)).double()
    assert torch.equal(entries, lie.uniform_entries(200_000, generator=torch.Generator().manual_seed(0)).double())
    assert 0 <= entries.min() < 1e-3
    assert 2 * math.pi - 1e-3 < entries.max() < 2 * math.pi
    # Mean pi, variance (2 pi)^2 / 12; six standard errors.
    assert abs(entries.mean() - math.pi) < 6 * 1.814 / 200_000**0.5
    assert abs(entries.var() - math.pi**2 / 3) < 0.05


@pytest.mark.parametrize(("width", "count"), [(64, 580_608), (8, 64_512), (2, 9_216)])
def test_generators_of_vit_b_have_as_many_parameters_as_printed(width, count):  # LR-par
    counted = lie.generator_parameters(64, width, axes=2, heads=12, layers=12)
    assert (type(counted), counted) == (int, count)
    # By counting the entries above the diagonal of every block.
    above = int(torch.ones(width, width).triu(1).sum())
    assert 12 * 12 * 2 * (64 // width) * above == count


def test_the_bracket_is_skew_and_vanishes_for_commuting_generators():  # LR-2
    X, Y = random_skew(6, 2, seed=1)
    bracket = lie.commutator(X, Y)
    assert_close(bracket, -bracket.mT)
    assert bracket.abs().max() > 0.1
    assert_close(lie.commutator(X, X @ X @ X), torch.zeros_like(X), atol=1e-12, rtol=0)


# exp


@modest
@given(
    width=st.integers(1, 10),
    lead=st.sampled_from([(), (3,), (2, 2)]),
    size=st.sampled_from([0.0, 1e-6, 0.1, 1.0, 30.0]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    seed=st.integers(0, 99),
)
def test_exp_is_the_matrix_exponential_and_a_rotation(width, lead, size, dtype, seed):  # LR-A1, NT-1
    A = random_skew(width, *lead, size=size, seed=seed).to(dtype)
    R = lie.exp_skew(A)
    assert R.dtype == dtype
    unit = torch.finfo(dtype).eps * max(1.0, float(A.abs().sum(-1).max())) * 100  # SciPy's rounding included
    assert_close(R.double(), expm(A), atol=unit, rtol=0)
    assert_close((R.mT @ R).double(), torch.eye(width).double().expand(R.shape), atol=unit, rtol=0)
    assert_close(torch.det(R).double(), torch.ones(lead).double(), atol=width * unit, rtol=0)


@pytest.mark.parametrize("width", [2, 3, 4, 7, "isoclinic"])
def test_gradients_of_exp_are_right_also_at_repeated_eigenvalues(width):  # LR-A1
    exp, width = (lie.exp_isoclinic, 4) if width == "isoclinic" else (lie.exp_skew, width)

    def rotation(entries):
        return exp(lie.skew_matrix(entries, width))

    equal = plane_generator(torch.full((width // 2,), 0.7, dtype=torch.float64)) if width % 2 == 0 else None
    for A in [random_skew(width, size=size, seed=2) for size in (0.0, 1e-3, 1.0, 5.0)] + ([] if width % 2 else [equal]):
        assert torch.autograd.gradcheck(rotation, lie.upper_entries(A).requires_grad_())
    assert torch.autograd.gradgradcheck(rotation, lie.upper_entries(random_skew(width)).requires_grad_())


def test_exp_of_plane_generators_turns_the_planes():  # LR-2, LR-A1, LR-blk
    angles = torch.tensor([0.3, -2.0, 40.0], dtype=torch.float64)
    cos, sin = angles.cos(), angles.sin()
    literal = block_diagonal(torch.stack([torch.stack([cos, -sin], -1), torch.stack([sin, cos], -1)], -2))
    assert_close(lie.exp_skew(plane_generator(angles)), literal, atol=1e-13, rtol=0)
    entry = lie.skew_matrix(angles[:1], 2)  # clockwise, where it is an entry above the diagonal
    assert_close(lie.exp_skew(entry), literal[:2, :2].mT)


# log and Baker-Campbell-Hausdorff


@pytest.mark.parametrize("width", [2, 3, 5, 8])
def test_log_undoes_exp_below_half_a_turn(width):
    A = random_skew(width, 4, seed=6)
    A = A * (torch.tensor([1e-8, 0.5, 2.0, 3.0]) / lie.spectrum(A)[:, 0])[:, None, None]
    assert_close(lie.log_rotation(expm(A)), A, atol=1e-11, rtol=0)
    oracle = np.stack([scipy.linalg.logm(r).real for r in expm(A).numpy()])
    assert_close(lie.log_rotation(expm(A)), torch.from_numpy(oracle), atol=1e-8, rtol=0)
    assert_close(lie.log_rotation(expm(A).float()), A.float(), atol=2e-4, rtol=0)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_bch_cut_after_order_n_errs_by_t_to_the_n_plus_1(order):  # LR-1
    X, Y = random_skew(5, 2, seed=8)
    errors = []
    for t in (0.04, 0.02, 0.01):
        # logm, by SciPy: an oracle that shares nothing with the series.
        exact = torch.from_numpy(scipy.linalg.logm((expm(t * X) @ expm(t * Y)).numpy()).real)
        errors.append(float((exact - lie.bch(t * X, t * Y, order)).norm()))
    measured = [math.log2(errors[i] / errors[i + 1]) for i in range(2)]
    assert all(abs(m - (order + 1)) < 0.15 for m in measured), measured


def test_exp_of_a_difference_misses_the_quotient_by_minus_half_the_bracket():  # LR-1
    U, V = random_skew(6, 2, seed=10)
    errors = []
    for t in (2e-2, 1e-2):
        quotient = torch.linalg.inv(expm(t * V)) @ expm(t * U)
        difference = quotient - expm(t * (U - V))
        assert_close(lie.relativity_defect(t * U, t * V), difference, atol=1e-13, rtol=0)
        predicted = -(t * t) * (V @ U - U @ V) / 2
        errors.append(float((difference - predicted).norm()))
        assert errors[-1] < 0.1 * float(difference.norm())
    assert 7 < errors[0] / errors[1] < 9  # what remains is of third order


@modest
@given(st.integers(1, 4), st.integers(0, 999))
def test_commuting_generators_give_the_quotient_exactly(pairs, seed):  # LR-2
    numbers = torch.from_numpy(np.random.default_rng(seed).normal(size=(2, pairs)))
    basis = torch.from_numpy(scipy.linalg.qr(np.random.default_rng(seed).normal(size=(2 * pairs, 2 * pairs)))[0])
    U, V = (basis @ plane_generator(a) @ basis.mT for a in numbers)
    quotient = expm(U) @ torch.linalg.inv(expm(V))
    assert_close(lie.exp_skew(U - V), quotient, atol=1e-12, rtol=0)
    assert_close(torch.linalg.inv(expm(V)) @ expm(U), quotient, atol=1e-12, rtol=0)
    assert_close(lie.relativity_defect(U, V), torch.zeros_like(U), atol=1e-12, rtol=0)
    assert_close(lie.bch(U, V), U + V, atol=1e-12, rtol=0)


# Spectra


@modest
@given(st.integers(2, 9), st.integers(0, 999))
def test_eigenvalues_are_imaginary_pairs_and_singular_values_their_sizes_twice(n, seed):  # NT-1, NT-2
    A = random_skew(n, seed=seed)
    eigenvalues = np.linalg.eigvals(A.numpy())
    assert np.abs(eigenvalues.real).max() < 1e-12
    angles = lie.spectrum(A).numpy()
    pairs = np.concatenate([angles, -angles, np.zeros(n % 2)])
    np.testing.assert_allclose(np.sort(eigenvalues.imag), np.sort(pairs), atol=1e-12)
    twice = np.sort(np.concatenate([angles, angles, np.zeros(n % 2)]))
    np.testing.assert_allclose(np.sort(np.linalg.svd(A.numpy(), compute_uv=False)), twice, atol=1e-12)


@pytest.mark.parametrize("n", [2, 5, 8])
def test_a_small_rotation_is_identity_plus_generator_up_to_half_the_squared_angle(n):  # NT-3
    A = random_skew(n, seed=n)
    for t in (1e-3, 0.1, 1.0, 6.0):
        literal = float(torch.linalg.matrix_norm(expm(t * A) - torch.eye(n) - t * A, 2))
        top = t * float(lie.spectrum(A)[0])
        assert math.isclose(float(lie.small_rotation_error(t * A)), literal, rel_tol=1e-7, abs_tol=1e-14)
        assert literal <= top**2 / 2 * (1 + 1e-6)
    top = 1e-3 * float(lie.spectrum(A)[0])
    assert math.isclose(float(lie.small_rotation_error(1e-3 * A)), top**2 / 2, rel_tol=1e-4)


@modest
@given(st.integers(2, 9), st.integers(0, 999))
def test_the_score_at_a_distance_is_a_sum_of_cosines(n, seed):  # NT-4
    A, q = random_skew(n, seed=seed), torch.from_numpy(np.random.default_rng(seed).normal(size=n))
    angles, weights = lie.plane_weights(q, A)
    for distance in (0.0, 0.3, 2.0, 11.0):
        literal = q @ expm(distance * A) @ q
        assert_close((weights * (angles * distance).cos()).sum(), literal, atol=1e-11, rtol=0)


def test_large_angles_are_local_and_small_angles_are_long_range():  # NT-4: the reverse of the notes' reading
    slow, fast = 0.1, 2.0
    A = plane_generator(torch.tensor([fast, slow], dtype=torch.float64))
    distances = torch.linspace(0, 20, 201, dtype=torch.float64)
    lengths = {}
    for name, q in {"fast": [1.0, 0, 0, 0], "slow": [0, 0, 1.0, 0]}.items():
        v = torch.tensor(q, dtype=torch.float64)
        scores = torch.stack([v @ expm(d * A) @ v for d in distances])
        lengths[name] = float(distances[(scores <= 0).nonzero()[0, 0]])
        # The neighbours' score is what the plane resolves: a fast one tells them apart, a slow one hardly.
        assert (scores[10] < 0) == (name == "fast")
    assert lengths["fast"] < lengths["slow"] / 10
    predicted = lie.decorrelation_length(torch.tensor([fast, slow]))
    assert_close(torch.tensor([lengths["fast"], lengths["slow"]]), predicted, atol=0.11, rtol=0)


def test_the_isoclinic_parts_commute_and_square_to_multiples_of_the_identity():  # LR-A1
    A = random_skew(4, 20, size=2.0, seed=31)
    left, right = lie.isoclinic_parts(A)
    assert_close(left + right, A)
    assert_close(left @ right, right @ left, atol=1e-12, rtol=0)
    for part in (left, right):
        square = part @ part
        assert_close(square, square[..., :1, :1] * torch.eye(4, dtype=torch.float64), atol=1e-12, rtol=0)
        assert float(square[..., 0, 0].max()) < -0.01
    # The two angles of A are the sum and the difference of the parts' sizes.
    sizes = torch.stack([(-(part @ part)[..., 0, 0]).sqrt() for part in (left, right)])
    assert_close(lie.spectrum(A), torch.stack([sizes.sum(0), (sizes[0] - sizes[1]).abs()], -1))


@pytest.mark.parametrize("size", [0.0, 1e-9, 0.05, 1.0, 40.0])
def test_the_closed_form_of_width_four_is_the_exponential(size):  # LR-A1
    A = random_skew(4, 2, 5, size=size, seed=32)
    assert_close(lie.exp_isoclinic(A), expm(A), atol=1e-13 * max(size, 1), rtol=0)
    assert_close(lie.exp_isoclinic(A.float()), expm(A).float(), atol=3e-6 * max(size, 1), rtol=0)


@pytest.mark.parametrize("degree", [1, 2, 3, 6])
def test_pade_is_a_rotation_at_every_degree_and_errs_by_its_order(degree):  # LR-A1
    A = random_skew(6, 4, seed=33)
    coarse = lie.exp_pade(3 * A, degree)
    eye = torch.eye(6, dtype=torch.float64)
    assert_close(coarse.mT @ coarse, eye.expand_as(coarse), atol=1e-12, rtol=0)
    assert bool((torch.linalg.det(coarse) > 0.999).all())
    if degree < 6:
        errors = [(lie.exp_pade(t * A, degree) - expm(t * A)).norm() for t in (0.4, 0.2)]
        assert math.log2(errors[0] / errors[1]) == pytest.approx(2 * degree + 1, abs=0.15)
    else:
        assert_close(lie.exp_pade(5 * A, degree, squarings=5), expm(5 * A), atol=1e-12, rtol=0)
        assert torch.equal(lie.exp_pade(A), lie.exp_pade(A, degree, squarings=0))


def test_cayley_turns_each_plane_by_twice_the_arc_tangent_of_half_its_angle():  # LR-A1
    A = random_skew(7, 3, size=2.0, seed=34)
    eye = torch.eye(7, dtype=torch.float64)
    assert_close(lie.cayley(A), torch.linalg.inv(eye - A / 2) @ (eye + A / 2))
    assert_close(lie.spectrum(lie.log_rotation(lie.cayley(A))), 2 * torch.atan(lie.spectrum(A) / 2))


def test_the_first_order_defect_is_the_derivative_and_the_series_of_ad():  # LR-1
    V, change = random_skew(5, 2, seed=35)
    for size in (0.01, 1.0, 8.0):
        far = size * V
        total, term = torch.zeros_like(change), change
        for k in range(1, 150):
            term = -lie.commutator(far, term) / (k + 1)
            total = total + term
        assert_close(lie.first_order_defect(far, change), total, atol=1e-8, rtol=0)
        step = 1e-5
        plus, minus = (lie.relativity_defect(far + s * step * change, far) for s in (1, -1))
        assert_close(lie.first_order_defect(far, change), (plus - minus) / (2 * step), atol=1e-7, rtol=0)


SKEW_ALONE = [lie.exp_skew, lie.exp_pade, lie.cayley, lie.exp_isoclinic, lie.isoclinic_parts, lie.spectrum]


@pytest.mark.parametrize("function", [*SKEW_ALONE, lambda A: lie.plane_weights(torch.ones(len(A)), A)])
def test_what_is_not_skew_is_refused_by_its_name(function):
    for wrong, came in ((torch.eye(4), "|A + A^T| up to 2"), (torch.ones(4, 3), "shape (4, 3)")):
        with pytest.raises(ValueError, match=f"^A: got {re.escape(came)}"):
            function(wrong)


# Initialisation and relativity


@pytest.mark.parametrize(("width", "printed"), [(2, 3.14), (8, 15.8), (64, 128.0)])
def test_the_mean_initial_generator_has_top_angle_pi_cot(width, printed):  # LR-INIT
    mean = np.triu(np.full((width, width), math.pi), 1)
    top = np.abs(np.linalg.eigvals(mean - mean.T)).max()
    assert math.isclose(lie.initial_top_angle(width), top, rel_tol=1e-9)
    assert math.isclose(top, math.pi / math.tan(math.pi / (2 * width)), rel_tol=1e-9)
    assert abs(top - printed) < 0.06
    # The mean of drawn generators tends to it.
    draws = lie.skew_matrix(
        lie.uniform_entries(2000, lie.entry_count(width), generator=torch.Generator().manual_seed(1)), width
    )
    assert math.isclose(float(lie.spectrum(draws.mean(0))[0]), top, rel_tol=0.02)


@pytest.mark.parametrize(
    ("width", "low", "high"), [(2, 0.0, 1e-12), (8, 0.2, 0.3), (64, 0.55, 0.68)], ids=["b=2", "b=8", "b=64"]
)
def test_relative_deviation_under_a_shift_at_initialisation(width, low, high):  # LR-SHIFT
    p, q, shift = (torch.tensor(x, dtype=torch.float64) for x in ([0.1, 0.2], [0.4, 0.3], [0.2, 0.2]))
    generators = lie.skew_matrix(
        lie.uniform_entries(60, 2, lie.entry_count(width), generator=torch.Generator().manual_seed(3)).double(), width
    )
    A = random_skew(width, seed=12) / width  # generators that commute are exactly relative
    assert lie.shift_deviation(torch.stack([A, A @ A @ A]), p, q, 10 * shift) < 1e-11
    deviation = lie.shift_deviation(generators, p, q, shift)
    assert low <= float(deviation.mean()) <= high
    one = generators[0]
    R = expm_at(torch.stack([p, q, p + shift, q + shift]), one)
    literal = (R[2].mT @ R[3] - R[0].mT @ R[1]).norm() / (R[0].mT @ R[1]).norm()
    assert_close(deviation[0], literal, atol=1e-10, rtol=0)


# Rotations at positions


def off_grid(tokens: int, axes: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(tokens).normal(size=(tokens, axes)))


POSITIONS = {
    "a line": grid_positions(9),
    "a grid": grid_positions(5, 7),
    "a volume": grid_positions(3, 4, 5),
    "a grid over [0, 1]": grid_positions(8, 8) / 7,
    "a grid in float64": grid_positions(6, 6).double() / 5,
    "a grid squeezed": grid_positions(6, 6) * (4 / 6),
    "both signs": grid_positions(7, 7) - 3,
    "away from the origin": grid_positions(3, 3) + 5,
    "close to the origin": grid_positions(3, 3) / 10_000,
    "off any grid": off_grid(11, 2),
    "near a grid": grid_positions(4, 4).double() + 5e-4 * (grid_positions(4, 4) >= 2),
    "one token": torch.tensor([[3.0, 6.0]]),
    "the origin": torch.zeros(2, 3),
    "nothing": torch.zeros(0, 2),
}


@pytest.mark.parametrize("name", POSITIONS)
@pytest.mark.parametrize("width", [2, 3, 4])
def test_rotations_at_positions_are_exponentials_of_the_sum_over_axes(name, width):  # LR-A1, LR-3D
    positions = POSITIONS[name]
    generators = random_skew(width, 2, positions.shape[1], seed=13)
    R = lie.position_rotations(positions, generators)
    assert R.shape == (len(positions), 2, width, width)
    assert R.dtype == torch.float64
    if len(positions):
        # Off by no more than the rounding of positions that are a grid's in float32.
        atol = 1e-5 if positions.dtype == torch.float32 and (positions != positions.round()).any() else 1e-11
        assert_close(R, expm_at(positions, generators), atol=atol, rtol=0)


def test_an_8x8_grid_lies_on_37_rays_and_the_origin():  # LR-A1
    rays = lie.find_rays(grid_positions(8, 8))
    coprime = {(i, j) for i in range(8) for j in range(8) if math.gcd(i, j) == 1}
    assert len(coprime) == 37
    assert {tuple(int(c) for c in p) for p in rays.primitives.tolist()} == coprime | {(0, 0)}
    for grid in (grid_positions(8, 8), grid_positions(8, 8).double()):
        for step in (7.0, torch.tensor([7.0, 3.0])):
            assert len(lie.find_rays(grid / step).primitives) == 38
    assert len(lie.find_rays(grid_positions(1000)).primitives) == 2
    assert len(lie.find_rays(off_grid(5, 2)).primitives) == 5
    assert (
        len(lie.find_rays(torch.tensor([[1000.0], [7000.0]])).primitives) == 2
    )  # powers would cost more than they save


def test_autocast_does_not_touch_exponentials():  # LR-B5
    generators = random_skew(8, 2, size=6.0, seed=15).float()
    with torch.autocast("cpu", torch.bfloat16):
        R = lie.position_rotations(grid_positions(4, 4), generators)
        one = lie.exp_skew(generators)
    assert R.dtype == one.dtype == torch.float32
    assert_close(R.double(), expm_at(grid_positions(4, 4), generators), atol=1e-4, rtol=0)
    assert_close(one.double(), expm(generators), atol=1e-5, rtol=0)


def test_rotations_at_positions_are_differentiated_twice_and_seen_through_by_transforms():  # LR-A1
    generators, tangents = random_skew(6, 2, 2, seed=18)
    positions = grid_positions(3, 4)
    rays = lie.find_rays(positions)
    assert rays.stages  # products along rays too
    weights = torch.randn(12, 6, 6, generator=torch.Generator().manual_seed(8), dtype=torch.float64)

    def placed(A):
        return (lie.placed_rotations(positions, A, rays) * weights).sum().sin()

    def one_by_one(A):
        return (lie.exp_skew(torch.tensordot(positions.double(), A, dims=([1], [0]))) * weights).sum().sin()

    wanted = torch.autograd.functional.hessian(one_by_one, generators)
    assert wanted.abs().max() > 1
    assert_close(torch.autograd.functional.hessian(placed, generators), wanted, atol=1e-9, rtol=0)
    assert_close(torch.func.jacrev(torch.func.grad(placed))(generators), wanted, atol=1e-9, rtol=0)
    slope = torch.func.grad(one_by_one)(generators)
    assert_close(torch.func.vmap(torch.func.grad(placed))(generators[None])[0], slope, atol=1e-10, rtol=0)
    tangent = torch.func.jvp(placed, (generators,), (tangents,))[1]
    assert_close(tangent, (slope * tangents).sum(), atol=1e-9, rtol=0)


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("tokens", [1, 5])
def test_turning_blocks_is_the_block_diagonal_product(heads, tokens):  # LR-A1, LR-blk
    R = expm(random_skew(4, heads, tokens, 2, seed=17))
    x = off_grid(2 * 3 * tokens, 8).view(2, 3, tokens, 8)
    literal = (block_diagonal(R) @ x[..., None])[..., 0]
    assert_close(lie.turn_blocks(x, R), literal)
    assert lie.turn_blocks(x.bfloat16(), R).dtype == torch.bfloat16
    with torch.autocast("cpu", torch.bfloat16):
        assert lie.turn_blocks(x.float(), R).dtype == torch.float32


@modest
@given(axes=st.integers(1, 3), seed=st.integers(0, 99))
def test_mixed_frequencies_are_axial_ones_along_one_random_direction_a_head(axes, seed):  # LR-blk
    axial = axial_frequencies(24, axes, base=10)
    mixed = lie.mixed_frequencies(axial, 2, 5, generator=torch.Generator().manual_seed(seed))
    assert mixed.shape == (2, 5, 12, axes)
    assert_close(mixed.norm(dim=-1), axial.norm(dim=-1).expand(2, 5, 12))
    blocks = mixed.tensor_split(axes, dim=2)
    directions = torch.stack([block[:, :, 0] for block in blocks], -2)  # the first magnitude is 1
    for axis, block in enumerate(blocks):
        magnitudes = torch.tensor([10 ** (-i / (12 / axes)) for i in range(12 // axes)])
        assert_close(block, magnitudes[:, None] * directions[:, :, axis, None])
    assert_close(directions @ directions.mT, torch.eye(axes).expand(2, 5, axes, axes))
    assert_close(torch.det(directions), torch.ones(2, 5))  # turned, not mirrored
    exact = lie.mixed_frequencies(axial.double(), 5)
    assert_close(exact.norm(dim=-1), axial.double().norm(dim=-1).expand(5, 12), atol=1e-14, rtol=0)
    turns = lie.mixed_frequencies(torch.eye(axes), 4000, generator=torch.Generator().manual_seed(seed))
    signs = (turns[:, 0] > 0).long() @ (2 ** torch.arange(axes))
    share = torch.bincount(signs, minlength=2**axes) / 4000  # all directions are drawn alike: six deviations
    assert axes == 1 or (share - 2.0**-axes).abs().max() < 6 * (2.0**-axes / 4000) ** 0.5
    if axes > 1:
        assert len({tuple(d) for d in directions[:, :, 0].flatten(0, 1).tolist()}) == 10


# Bad input


TWO = torch.zeros(2, 2)
HALF_A_TURN = "R: got an eigenvalue within .* of -1; it must be a rotation, no plane"
REFUSED = [
    (lambda: lie.upper_entries(torch.zeros(3, 2)), r"A: got shape \(3, 2\)"),
    (lambda: lie.exp_skew(torch.full((4, 4), math.nan)), "A: .*finite"),
    (lambda: lie.exp_isoclinic(torch.zeros(3, 3)), r"A: got shape \(3, 3\); it must be \(\.\.\., 4, 4\)"),
    (lambda: lie.exp_pade(TWO, 0), "degree: got 0; at least 1"),
    (lambda: lie.first_order_defect(TWO, torch.eye(2)), "change: got"),
    (lambda: lie.position_rotations(torch.ones(2, 3), torch.zeros(2, 4, 4)), "positions: got"),
    (lambda: lie.find_rays(torch.tensor([[math.nan]])), "positions: .*finite"),
    (lambda: lie.skew_matrix(torch.zeros(5), 4), "entries: got"),
    (lambda: lie.generator_parameters(64, 7, axes=2, heads=1, layers=1), "width: got"),
    (lambda: lie.turn_blocks(torch.zeros(1, 1, 2, 6), torch.zeros(1, 2, 2, 4, 4)), r"x: got shape \(1, 1, 2, 6\)"),
    (lambda: lie.log_rotation(1.01 * torch.eye(3)), r"R: got \|R\^T R - I\| up to .*; it must be orthogonal$"),
    (lambda: lie.log_rotation(torch.diag(torch.tensor([-1.0, -1.0, 1.0]))), HALF_A_TURN),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        call()


@pytest.mark.parametrize("width", [2, 4])
def test_generators_must_be_skew_up_to_rounding_and_everything_finite(width):
    generators, positions = lie.skew_matrix(torch.randn(2, lie.entry_count(width)), width), torch.randn(3, 2)
    bent, rounded = generators.clone(), generators.clone()
    bent[1, 0, 1] += 1e-3 * generators.abs().max()
    rounded[1, 0, 1] += 5e-6 * generators.abs().max()
    assert lie.position_rotations(positions, rounded).isfinite().all()
    for wrong in (bent, torch.full_like(generators, math.nan)):
        with pytest.raises(ValueError, match="generators: got"):
            lie.position_rotations(positions, wrong)
    with pytest.raises(ValueError, match="positions: got"):
        lie.position_rotations(positions / 0, generators)


@pytest.mark.parametrize("width", [2, 3, 4, 5])
def test_the_gradient_reaches_positions(width):
    generators = lie.skew_matrix(0.7 * torch.randn(2, lie.entry_count(width), dtype=torch.float64), width)
    grid = torch.cartesian_prod(torch.arange(3.0), torch.arange(2.0)).double().requires_grad_()  # on rays, but for this
    assert torch.autograd.gradcheck(lambda p: lie.position_rotations(p, generators), grid)
