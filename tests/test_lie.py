"""Statements about skew matrices and their exponentials, each computed by two means."""

import itertools
import math

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from often import close, double, refuses, vec
from oracles import turn
from torch.testing import assert_close

from geolib import lie
from geolib.rotations import axial_frequencies, block_diagonal, grid_positions, plane_generator

modest = settings(deadline=None, max_examples=25)


def random_skew(width, *lead, size=1.0, seed=0):
    numbers = size * torch.from_numpy(np.random.default_rng(seed).normal(size=(*lead, width, width)))
    return (numbers - numbers.mT) / 2


def expm(A):
    """The oracle: SciPy's Pade exponential, in float64."""
    return torch.from_numpy(scipy.linalg.expm(A.detach().double().numpy()))


def expm_at(positions, generators):
    """exp(sum_i p_i A_i) token by token, axis by axis."""
    return torch.stack([expm(sum(c * generators[..., i, :, :] for i, c in enumerate(p))) for p in positions.double()])


def eye(width):
    return torch.eye(width, dtype=torch.float64)


def entries_of(width, *lead, seed):
    """Drawn as LieRE draws them."""
    return lie.uniform_entries(*lead, lie.entry_count(width), generator=torch.Generator().manual_seed(seed))


# The algebra


@modest
@given(width=st.integers(2, 9), lead=st.lists(st.integers(1, 3), max_size=2), seed=st.integers(0, 999))
def test_a_generator_is_the_upper_triangle_minus_its_transpose(width, lead, seed):  # LR-B5
    entries, literal = entries_of(width, *lead, seed=seed), torch.zeros(*lead, width, width)
    for i, (row, column) in enumerate(itertools.combinations(range(width), 2)):
        literal[..., row, column] = entries[..., i]
    A = lie.skew_matrix(entries, width)
    assert torch.equal(A, literal - literal.mT)
    assert torch.equal(lie.upper_entries(A), entries)


def test_entries_start_uniform_on_zero_to_two_pi():  # LR-B5
    entries, again = (lie.uniform_entries(200_000, generator=torch.Generator().manual_seed(0)) for _ in range(2))
    assert torch.equal(entries, again)
    entries = entries.double()
    assert 0 <= entries.min() < 1e-3
    assert 2 * math.pi - 1e-3 < entries.max() < 2 * math.pi
    # Mean pi, variance (2 pi)^2 / 12; six standard errors.
    assert abs(entries.mean() - math.pi) < 6 * 1.814 / 200_000**0.5
    assert abs(entries.var() - math.pi**2 / 3) < 0.05


@pytest.mark.parametrize(("width", "count"), [(64, 580_608), (8, 64_512), (2, 9_216)])
def test_generators_of_vit_b_have_as_many_parameters_as_printed(width, count):  # LR-par
    counted = lie.generator_parameters(64, width, axes=2, heads=12, layers=12)
    assert (type(counted), counted) == (int, count)
    assert count == 12 * 12 * 2 * (64 // width) * torch.ones(width, width).triu(1).sum()  # above every diagonal


def test_the_bracket_is_skew_and_vanishes_for_commuting_generators():  # LR-2
    X, Y = random_skew(6, 2, seed=1)
    bracket = lie.commutator(X, Y)
    assert_close(bracket, -bracket.mT)
    assert bracket.abs().max() > 0.1
    close(lie.commutator(X, X @ X @ X), 0 * X, 1e-12)


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
    close(R.double(), expm(A), unit)
    close((R.mT @ R).double(), eye(width).expand(R.shape), unit)
    close(torch.det(R).double(), torch.ones(lead).double(), width * unit)


@pytest.mark.parametrize("width", [2, 3, 4, 7, "isoclinic"])
def test_gradients_of_exp_are_right_also_at_repeated_eigenvalues(width):  # LR-A1
    exp, width = (lie.exp_isoclinic, 4) if width == "isoclinic" else (lie.exp_skew, width)

    def rotation(entries):
        return exp(lie.skew_matrix(entries, width))

    equal = [plane_generator(torch.full((width // 2,), 0.7, dtype=torch.float64))] if width % 2 == 0 else []
    for A in [random_skew(width, size=size, seed=2) for size in (0.0, 1e-3, 1.0, 5.0)] + equal:
        assert torch.autograd.gradcheck(rotation, lie.upper_entries(A).requires_grad_())
    assert torch.autograd.gradgradcheck(rotation, lie.upper_entries(random_skew(width)).requires_grad_())


def test_exp_of_plane_generators_turns_the_planes():  # LR-2, LR-A1, LR-blk
    angles = vec(0.3, -2.0, 40.0)
    literal = torch.from_numpy(scipy.linalg.block_diag(*map(turn, angles)))
    close(lie.exp_skew(plane_generator(angles)), literal, 1e-13)
    entry = lie.skew_matrix(angles[:1], 2)  # clockwise, where it is an entry above the diagonal
    assert_close(lie.exp_skew(entry), literal[:2, :2].mT)


# log and Baker-Campbell-Hausdorff


@pytest.mark.parametrize("width", [2, 3, 5, 8])
def test_log_undoes_exp_below_half_a_turn(width):
    A = random_skew(width, 4, seed=6)
    A = A * (torch.tensor([1e-8, 0.5, 2.0, 3.0]) / lie.spectrum(A)[:, 0])[:, None, None]
    close(lie.log_rotation(expm(A)), A, 1e-11)
    close(lie.log_rotation(expm(A).float()), A.float(), 2e-4)
    assert lie.log_rotation(torch.eye(width).bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize("order", [1, 2, 3])
def test_bch_cut_after_order_n_errs_by_t_to_the_n_plus_1(order):  # LR-1
    X, Y = random_skew(5, 2, seed=8)
    errors = []
    for t in (0.04, 0.02, 0.01):
        # logm, by SciPy: an oracle that shares nothing with the series.
        exact = torch.from_numpy(scipy.linalg.logm((expm(t * X) @ expm(t * Y)).numpy()).real)
        errors.append(float((exact - lie.bch(t * X, t * Y, order)).norm()))
    assert [math.log2(a / b) for a, b in itertools.pairwise(errors)] == pytest.approx([order + 1] * 2, abs=0.15)


def test_exp_of_a_difference_misses_the_quotient_by_minus_half_the_bracket():  # LR-1
    U, V = random_skew(6, 2, seed=10)
    errors = []
    for t in (2e-2, 1e-2):
        difference = torch.linalg.inv(expm(t * V)) @ expm(t * U) - expm(t * (U - V))
        close(lie.relativity_defect(t * U, t * V), difference, 1e-13)
        errors.append(float((difference + t * t * (V @ U - U @ V) / 2).norm()))
        assert errors[-1] < 0.1 * float(difference.norm())
    assert 7 < errors[0] / errors[1] < 9  # what remains is of third order


@modest
@given(st.integers(1, 4))
def test_commuting_generators_give_the_quotient_exactly(pairs):  # LR-2
    numbers, basis = double(2, pairs), torch.linalg.qr(double(2 * pairs, 2 * pairs)).Q
    U, V = (basis @ plane_generator(a) @ basis.mT for a in numbers)
    quotient = expm(U) @ torch.linalg.inv(expm(V))
    close(lie.exp_skew(U - V), quotient, 1e-12)
    close(torch.linalg.inv(expm(V)) @ expm(U), quotient, 1e-12)
    close(lie.relativity_defect(U, V), 0 * U, 1e-12)
    close(lie.bch(U, V), U + V, 1e-12)


# Spectra


@modest
@given(st.integers(2, 9), st.integers(0, 999))
def test_eigenvalues_are_imaginary_pairs_and_singular_values_their_sizes_twice(n, seed):  # NT-1, NT-2
    A = random_skew(n, seed=seed)
    angles, eigenvalues = lie.spectrum(A), torch.linalg.eigvals(A)
    pairs = torch.cat([angles, -angles, torch.zeros(n % 2)])
    assert eigenvalues.real.abs().max() < 1e-12
    close(eigenvalues.imag.sort().values, pairs.sort().values, 1e-12)
    close(torch.linalg.svdvals(A), pairs.abs().sort(descending=True).values, 1e-12)


@pytest.mark.parametrize("n", [2, 5, 8])
def test_a_small_rotation_is_identity_plus_generator_up_to_half_the_squared_angle(n):  # NT-3
    A = random_skew(n, seed=n)
    for t in (1e-3, 0.1, 1.0, 6.0):
        literal = float(torch.linalg.matrix_norm(expm(t * A) - torch.eye(n) - t * A, 2))
        assert math.isclose(float(lie.small_rotation_error(t * A)), literal, rel_tol=1e-7, abs_tol=1e-14)
        bound = (t * float(lie.spectrum(A)[0])) ** 2 / 2
        assert literal <= bound * (1 + 1e-6)
        assert t > 1e-3 or math.isclose(literal, bound, rel_tol=1e-4)
    still = torch.zeros(n, n, dtype=torch.float64, requires_grad=True)
    close(torch.autograd.grad(lie.small_rotation_error(still), still)[0], torch.zeros(n, n).double())


@modest
@given(st.integers(2, 9), st.integers(0, 999))
def test_the_score_at_a_distance_is_a_sum_of_cosines(n, seed):  # NT-4
    A, q = random_skew(n, seed=seed), double(n)
    angles, weights = lie.plane_weights(q, A)
    for distance in (0.0, 0.3, 2.0, 11.0):
        close((weights * (angles * distance).cos()).sum(), q @ expm(distance * A) @ q, 1e-11)
    close(lie.plane_weights(q, A.float())[1].sum(), q @ q, 1e-11)  # in the wider dtype


def test_large_angles_are_local_and_small_angles_are_long_range():  # NT-4: the reverse of the notes' reading
    angles, distances = vec(2.0, 0.1), torch.linspace(0, 20, 201, dtype=torch.float64)
    turned = expm(distances[:, None, None] * plane_generator(angles))
    fast, slow = turned[:, 0, 0], turned[:, 2, 2]  # the scores of vectors that lie in one plane
    # The neighbours' score is what the plane resolves: a fast one tells them apart, a slow one hardly.
    assert fast[10] < 0 < slow[10]
    lengths = torch.stack([distances[(scores <= 0).nonzero()[0, 0]] for scores in (fast, slow)])
    assert lengths[0] < lengths[1] / 10
    close(lengths, lie.decorrelation_length(angles), 0.11)


def test_the_isoclinic_parts_commute_and_square_to_multiples_of_the_identity():  # LR-A1
    A = random_skew(4, 20, size=2.0, seed=31)
    left, right = lie.isoclinic_parts(A)
    assert_close(left + right, A)
    close(left @ right, right @ left, 1e-12)
    for square in (left @ left, right @ right):
        close(square, square[..., :1, :1] * eye(4), 1e-12)
        assert float(square[..., 0, 0].max()) < -0.01
    close(left[:, 0, 1], left[:, 2, 3], 1e-12)  # the left part is its own dual


@pytest.mark.parametrize("size", [0.0, 1e-9, 0.05, 1.0, 40.0])
def test_the_closed_form_of_width_four_is_the_exponential(size):  # LR-A1
    A = random_skew(4, 2, 5, size=size, seed=32)
    close(lie.exp_isoclinic(A), expm(A), 1e-13 * max(size, 1))
    close(lie.exp_isoclinic(A.float()), expm(A).float(), 3e-6 * max(size, 1))


@pytest.mark.parametrize("degree", [1, 2, 3, 6])
def test_pade_is_a_rotation_at_every_degree_and_errs_by_its_order(degree):  # LR-A1
    A = random_skew(6, 4, seed=33)
    coarse = lie.exp_pade(3 * A, degree)
    close(coarse.mT @ coarse, eye(6).expand_as(coarse), 1e-12)
    assert bool((torch.linalg.det(coarse) > 0.999).all())
    if degree < 6:
        errors = [(lie.exp_pade(t * A, degree) - expm(t * A)).norm() for t in (0.4, 0.2)]
        assert math.log2(errors[0] / errors[1]) == pytest.approx(2 * degree + 1, abs=0.15)
    else:
        close(lie.exp_pade(5 * A, degree, squarings=5), expm(5 * A), 1e-12)
        assert torch.equal(lie.exp_pade(A), lie.exp_pade(A, degree, squarings=0))


def test_cayley_turns_each_plane_by_twice_the_arc_tangent_of_half_its_angle():  # LR-A1
    A = random_skew(7, 3, size=2.0, seed=34)
    assert_close(lie.cayley(A), torch.linalg.inv(eye(7) - A / 2) @ (eye(7) + A / 2))
    assert_close(lie.spectrum(lie.log_rotation(lie.cayley(A))), 2 * torch.atan(lie.spectrum(A) / 2))


def test_the_first_order_defect_is_the_derivative_and_the_series_of_ad():  # LR-1
    V, change = random_skew(5, 2, seed=35)
    for size in (0.01, 1.0, 8.0):
        far = size * V
        total, term = torch.zeros_like(change), change
        for k in range(1, 150):
            term = -lie.commutator(far, term) / (k + 1)
            total = total + term
        close(lie.first_order_defect(far, change), total, 1e-8)
        missed = (total + lie.commutator(far, change) / 2).norm() / total.norm()  # by half the bracket
        assert missed < 0.03 if size == 0.01 else missed > 0.2
        plus, minus = (lie.relativity_defect(far + step * change, far) for step in (1e-5, -1e-5))
        close(lie.first_order_defect(far, change), (plus - minus) / 2e-5, 1e-7)
    small = 1e-5 * V, 1e-5 * change  # of the size of their product, which float32 keeps
    for defect in (lie.relativity_defect, lie.first_order_defect):
        assert_close(1e10 * defect(*(x.float() for x in small)), 1e10 * defect(*small).float(), rtol=1e-5, atol=1e-5)


SKEW_ALONE = [lie.exp_skew, lie.exp_pade, lie.cayley, lie.exp_isoclinic, lie.isoclinic_parts, lie.spectrum]
SKEW_ALONE += [lambda A: lie.plane_weights(torch.ones(len(A)), A)]


test_what_is_not_skew_is_refused_by_its_name = refuses(
    *((lambda f=f: f(torch.eye(4)), r"A: got \|A \+ A\^T\| up to 2") for f in SKEW_ALONE),
    *((lambda f=f: f(torch.ones(4, 3)), r"A: got shape \(4, 3\)") for f in SKEW_ALONE),
)


# Initialisation and relativity


@pytest.mark.parametrize(("width", "printed"), [(2, 3.14), (8, 15.8), (64, 128.0)])
def test_the_mean_initial_generator_has_top_angle_pi_cot(width, printed):  # LR-INIT
    mean = np.triu(np.full((width, width), math.pi), 1)
    top = np.abs(np.linalg.eigvals(mean - mean.T)).max()
    assert math.isclose(lie.initial_top_angle(width), top, rel_tol=1e-9)
    assert math.isclose(top, math.pi / math.tan(math.pi / (2 * width)), rel_tol=1e-9)
    assert abs(top - printed) < 0.06


@pytest.mark.parametrize("width", [2, 8])
def test_relative_deviation_under_a_shift_at_initialisation(width):  # LR-SHIFT
    p, q, shift = vec(0.1, 0.2), vec(0.4, 0.3), vec(0.2, 0.2)
    generators = lie.skew_matrix(entries_of(width, 6, 2, seed=3).double(), width)
    for A, deviation in zip(generators, lie.shift_deviation(generators, p, q, shift)):
        R = expm_at(torch.stack([p, q, p + shift, q + shift]), A)
        literal = (R[2].mT @ R[3] - R[0].mT @ R[1]).norm() / (R[0].mT @ R[1]).norm()
        close(deviation, literal)
        assert (deviation < 1e-12) == (width == 2)
    A = random_skew(width, seed=12) / width  # generators that commute are exactly relative
    assert lie.shift_deviation(torch.stack([A, A @ A @ A]), p, q, 10 * shift) < 1e-11


# Rotations at positions


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
    "off any grid": torch.from_numpy(np.random.default_rng(11).normal(size=(11, 2))),
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
        close(R, expm_at(positions, generators), atol)


def test_an_8x8_grid_lies_on_37_rays_and_the_origin():  # LR-A1
    def count(positions):
        return len(lie.find_rays(positions).primitives)

    coprime = {(i, j) for i in range(8) for j in range(8) if math.gcd(i, j) == 1}
    assert len(coprime) == 37
    assert {tuple(p) for p in lie.find_rays(grid_positions(8, 8)).primitives.tolist()} == coprime | {(0, 0)}
    for grid, step in itertools.product(
        (grid_positions(8, 8), grid_positions(8, 8).double()), (7.0, vec(7, 3).float())
    ):
        assert count(grid / step) == 38
    assert count(grid_positions(1000)) == 2
    assert count(double(5, 2)) == 5
    assert count(torch.tensor([[1000.0], [7000.0]])) == 2  # powers would cost more than they save


def test_autocast_does_not_touch_exponentials():  # LR-B5
    generators = random_skew(8, 2, size=6.0, seed=15).float()
    with torch.autocast("cpu", torch.bfloat16):
        R = lie.position_rotations(grid_positions(4, 4), generators)
        one = lie.exp_skew(generators)
        close(lie.log_rotation(lie.exp_skew(generators / 50)), generators / 50, 1e-5)
    assert R.dtype == one.dtype == torch.float32
    close(R.double(), expm_at(grid_positions(4, 4), generators), 1e-4)
    close(one.double(), expm(generators), 1e-5)


def test_rotations_at_positions_are_differentiated_twice_and_seen_through_by_transforms():  # LR-A1
    generators, tangents = random_skew(6, 2, 2, seed=18)
    positions = grid_positions(3, 4)
    rays = lie.find_rays(positions)
    assert rays.stages  # products along rays too
    weights = double(12, 6, 6)
    placed = lambda A: (lie.placed_rotations(positions, A, rays) * weights).sum().sin()  # noqa: E731
    one_by_one = lambda A: (  # noqa: E731
        (lie.exp_skew(torch.einsum("ta,aij->tij", positions.double(), A)) * weights).sum().sin()
    )
    wanted = torch.autograd.functional.hessian(one_by_one, generators)
    assert wanted.abs().max() > 1
    close(torch.autograd.functional.hessian(placed, generators), wanted, 1e-9)
    close(torch.func.jacrev(torch.func.grad(placed))(generators), wanted, 1e-9)
    slope = torch.func.grad(one_by_one)(generators)
    close(torch.func.vmap(torch.func.grad(placed))(generators[None])[0], slope)
    close(torch.func.jvp(placed, (generators,), (tangents,))[1], (slope * tangents).sum(), 1e-9)
    looked_up = lambda A: (lie.position_rotations(positions.double(), A) * weights).sum().sin()  # noqa: E731
    close(torch.func.grad(looked_up)(generators), slope, 1e-9)
    far = 1e5 * generators  # more squarings than a GPU takes unread
    close(torch.func.vmap(lie.exp_skew)(far), lie.exp_skew(far))
    turned = lambda A: (lie.exp_skew(A) * weights[:2]).sum()  # noqa: E731
    close(torch.func.grad(turned)(far), torch.autograd.functional.jacobian(turned, far))


def test_one_matrix_of_a_batch_that_is_not_skew_is_refused():  # LR-A1
    with pytest.raises(ValueError, match="A: got"):
        lie.exp_skew(torch.stack([torch.ones(4, 4), 1e6 * lie.skew_matrix(torch.ones(6), 4)]))


def test_positions_in_float64_are_not_moved_onto_a_grid():  # LR-A1
    positions, generators = torch.arange(9.0).double()[:, None] * (1 + 1e-8), random_skew(4, 1, size=5.0)
    positions[0] = 1e-3
    close(lie.position_rotations(positions, generators), expm_at(positions, generators), 1e-11)


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("tokens", [1, 5])
def test_turning_blocks_is_the_block_diagonal_product(heads, tokens):  # LR-A1, LR-blk
    R = expm(random_skew(4, heads, tokens, 2, seed=17))
    x = double(2, 3, tokens, 8)
    literal = (block_diagonal(R) @ x[..., None])[..., 0]
    assert_close(lie.turn_blocks(x, R), literal)
    assert lie.turn_blocks(x.bfloat16(), R).dtype == torch.bfloat16
    with torch.autocast("cpu", torch.bfloat16):
        assert lie.turn_blocks(x.float(), R).dtype == torch.float32


@modest
@given(axes=st.integers(1, 3), seed=st.integers(0, 99))
def test_mixed_frequencies_are_axial_ones_along_one_random_direction_a_head(axes, seed):  # LR-blk
    drawn = lambda table, *lead: lie.mixed_frequencies(table, *lead, generator=torch.Generator().manual_seed(seed))  # noqa: E731
    turns = drawn(torch.eye(axes), 4000)
    assert_close(turns @ turns.mT, torch.eye(axes).expand(4000, axes, axes))
    assert_close(torch.det(turns), torch.ones(4000))  # turned, not mirrored
    signs = (turns[:, 0] > 0).long() @ (2 ** torch.arange(axes))
    share = torch.bincount(signs, minlength=2**axes) / 4000  # all directions are drawn alike: six deviations
    assert axes == 1 or (share - 2.0**-axes).abs().max() < 6 * (2.0**-axes / 4000) ** 0.5
    axial, directions = axial_frequencies(24, axes, base=10), drawn(torch.eye(axes), 2, 5)
    assert_close(drawn(axial, 2, 5), axial @ directions)
    close(drawn(axial.double(), 5).norm(dim=-1), axial.double().norm(dim=-1).expand(5, 12), 1e-14)


# Bad input


TWO = torch.zeros(2, 2)
HALF_A_TURN = "R: got an eigenvalue within .* of -1; it must be a rotation, no plane"
test_what_does_not_fit_is_refused = refuses(
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
)


@pytest.mark.parametrize("width", [2, 4])
def test_generators_must_be_skew_up_to_rounding_and_everything_finite(width):
    generators, positions = lie.skew_matrix(torch.randn(2, lie.entry_count(width)), width), torch.randn(3, 2)
    bent, rounded = generators.clone(), generators.clone()
    bent[1, 0, 1] += 1e-3 * generators[1].abs().max()
    rounded[1, 0, 1] += 5e-6 * generators[1].abs().max()
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
