"""Symmetric powers: embeddings, sizes and lifts, against itertools, Kronecker products and permanents."""

import functools
import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from often import double, refuses
from sequences import multinomial, phi
from torch.testing import assert_close

from geolib import sympow
from geolib.rotations import block_diagonal, rotate_pairs, rotation_matrix
from geolib.sympow import act, dimension, embed, lift

SIZES = [(1, 1), (1, 4), (2, 2), (2, 5), (3, 2), (3, 3), (3, 4), (4, 2), (5, 3), (2, 6)]


def words(dim, power):
    return list(itertools.combinations_with_replacement(range(dim), power))


def permanent(matrix):
    n = len(matrix)
    return sum(math.prod(matrix[i][s[i]] for i in range(n)) for s in itertools.permutations(range(n)))


def kronecker_power(matrix, power):
    return functools.reduce(torch.kron, [matrix] * power)


# The embedding ------------------------------------------------------------------------------------------------------


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 10_000), st.sampled_from([torch.float32, torch.float64]))
@settings(deadline=None, max_examples=25)
def test_inner_product_of_embeddings_is_the_power_of_the_inner_product(dim, power, seed, dtype):  # CS-k
    g = torch.Generator().manual_seed(seed)
    v, w = torch.randn(2, 3, 2, dim, dtype=torch.float64, generator=g) / dim**0.5
    exact = (v * w).sum(-1) ** power
    ours = (embed(v.to(dtype), power) * embed(w.to(dtype), power)).sum(-1)
    assert ours.dtype == dtype
    bound = (v.norm(dim=-1) * w.norm(dim=-1)) ** power  # rounding is relative to the lengths, not to the result
    assert ((ours.double() - exact).abs() <= 40 * torch.finfo(dtype).eps * bound).all()


@pytest.mark.parametrize(("dim", "power"), SIZES)
def test_coordinates_are_monomials_in_order_with_root_multinomial_weights(dim, power):  # CS-k
    v = double(dim)
    assert_close(embed(v, power), torch.from_numpy(phi(v.numpy(), power)))


def test_dimension_counts_the_monomials_and_is_far_below_the_tensor_power():  # CS-k
    for dim, power in SIZES:
        assert dimension(dim, power) == len(words(dim, power))
    assert dimension(64, 2) == 2080
    assert dimension(64, 4) == 766_480
    assert 64**4 / dimension(64, 4) > 21


def test_embedding_is_differentiable_at_zero_too():  # CS-k
    v = torch.stack([torch.zeros(3).double(), double(3)]).requires_grad_()
    for power in (1, 2, 4):
        assert torch.autograd.gradcheck(lambda x, p=power: embed(x, p), v)


@pytest.mark.parametrize(("dim", "power"), [(1, 2), (2, 2), (3, 4), (4, 4), (3, 6)])
def test_norm_is_linear_in_the_embedding(dim, power):  # CS-k
    v = double(5, dim)
    assert_close(embed(v, power) @ sympow.norm_functional(dim, power), v.norm(dim=-1) ** power)


# Lifts --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dim", "power"), SIZES)
def test_lift_carries_embeddings_as_the_matrix_carries_vectors(dim, power):  # CS-P3
    P, k = double(dim, dim), double(6, dim)
    assert_close(embed(k @ P.T, power), embed(k, power) @ lift(P, power).T)


@pytest.mark.parametrize(("dim", "power"), [(2, 2), (3, 2), (2, 3), (3, 3)])
def test_lift_has_permanents_as_entries(dim, power):  # CS-P3
    P = double(dim, dim)
    entry = lambda a, b: permanent([[P[i, j] for j in b] for i in a]) * math.sqrt(multinomial(a) * multinomial(b))  # noqa: E731
    expected = [[entry(a, b) / math.factorial(power) for b in words(dim, power)] for a in words(dim, power)]
    assert_close(lift(P, power), torch.tensor(expected, dtype=torch.float64))


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 10_000))
@settings(deadline=None, max_examples=25)
def test_lift_is_multiplicative_and_respects_transposes(dim, power, seed):  # CS-P3
    g = torch.Generator().manual_seed(seed)
    A, B = torch.randn(2, dim, dim, dtype=torch.float64, generator=g)
    assert_close(lift(A @ B, power), lift(A, power) @ lift(B, power))
    assert_close(lift(A.T, power), lift(A, power).T)
    Q = lift(torch.linalg.qr(A).Q, power)
    assert_close(Q @ Q.T, torch.eye(len(Q)).double())  # so rotations lift to rotations


@pytest.mark.parametrize(("dim", "power"), [(1, 3), (2, 2), (2, 3), (3, 2), (4, 2), (3, 4), (2, 5)])
def test_determinant_of_the_lift_is_a_power_of_the_determinant(dim, power):  # CS-P3
    P, exponent = double(dim, dim), sympow.lift_determinant_exponent(dim, power)
    (sign, size), (lifted_sign, lifted_size) = torch.linalg.slogdet(P), torch.linalg.slogdet(lift(P, power))
    assert_close(lifted_size, exponent * size)
    assert lifted_sign == sign**exponent


@pytest.mark.parametrize(("dim", "power"), [(2, 2), (3, 2), (2, 4), (3, 3), (4, 3)])
def test_determinant_on_the_tensor_power_has_exponent_p_d_to_the_p_minus_1(dim, power):  # CS-P3
    P = double(dim, dim)
    log_det, tensor_log_det = torch.linalg.slogdet(P)[1], torch.linalg.slogdet(kronecker_power(P, power))[1]
    assert_close(tensor_log_det, sympow.tensor_determinant_exponent(dim, power) * log_det)
    assert (sympow.tensor_determinant_exponent(dim, power) == power * dim) == (power == 2)  # as printed


@pytest.mark.parametrize(("dim", "power"), [(2, 2), (3, 2), (3, 3), (2, 4)])
def test_symmetric_power_is_an_invariant_subspace_of_the_tensor_power(dim, power):  # CS-P3
    P, s, k = double(dim, dim), double(dimension(dim, power)), double(dim)
    tensor = sympow.to_tensor(s, dim, power)
    assert_close(tensor.norm(), s.norm())  # an isometry
    assert_close(sympow.to_tensor(embed(k, power), dim, power).flatten(), kronecker_power(k, power))
    moved = (kronecker_power(P, power) @ tensor.flatten()).reshape((dim,) * power)
    for order in itertools.permutations(range(power)):
        assert_close(moved.permute(order), moved)  # still symmetric
    assert_close(moved, sympow.to_tensor(lift(P, power) @ s, dim, power))


@pytest.mark.parametrize(("dim", "power"), SIZES)
def test_action_without_the_matrix_equals_the_lift(dim, power):  # CS-P3, CS-3
    P, s = double(2, 1, dim, dim), double(2, 3, dimension(dim, power))
    assert_close(act(P, s, power), (lift(P, power) @ s[..., None]).squeeze(-1))
    assert act(P, s.float(), power).dtype == torch.float64


@pytest.mark.parametrize(("dim", "power"), [(2, 2), (4, 3), (6, 2)])
def test_the_lift_of_a_rotation_of_planes_turns_the_embedding(dim, power):  # CS-P3, LR-lin
    angles, v = double(dim // 2), double(5, dim)
    R = lift(block_diagonal(rotation_matrix(angles)), power)
    assert_close(embed(rotate_pairs(v, angles), power), embed(v, power) @ R.T)


@pytest.mark.parametrize("power", [2, 3])
def test_lifted_rotations_compose_by_adding_angles(power):  # CS-Rk
    angles = double(2)
    R = block_diagonal(rotation_matrix(angles))
    assert_close(torch.linalg.matrix_power(lift(R, power), 5), lift(block_diagonal(rotation_matrix(5 * angles)), power))


def test_gradients_pass_through_lift_and_action():  # CS-P3
    P, s = double(3, 3).requires_grad_(), double(2, 6).requires_grad_()
    assert torch.autograd.gradcheck(lambda m: lift(m, 2), P)
    assert torch.autograd.gradcheck(lambda m, x: act(m, x, 2), (P, s))


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (lambda v: embed(v, 3), [(5, 3)]),
        (lambda P: lift(P, 2), [(3, 3)]),
        (lambda P, s: act(P, s, 2), [(3, 3), (4, 6)]),
        (lambda s: sympow.to_tensor(s, 3, 2), [(4, 6)]),
    ],
)
def test_whole_numbers_are_promoted_to_the_default_float_dtype(function, shapes):  # CS-k, CS-P3
    parts = [torch.randint(-3, 4, shape) for shape in shapes]
    got = function(*parts)
    assert got.dtype == torch.get_default_dtype()
    assert torch.equal(got, function(*(part.float() for part in parts)))
    assert (got != got.round()).any()  # roots: truncation would show


@pytest.mark.parametrize(("dim", "degree"), [(1, 2), (2, 2), (2, 4), (3, 6), (5, 4), (16, 8)])
def test_direction_moment_is_the_mean_power_of_one_coordinate_of_a_direction(dim, degree):  # CS-k
    # A coordinate of a direction has the density (1 - x^2)^((d-3)/2); in one dimension it is 1 or -1.
    if dim == 1:
        assert sympow.direction_moment(dim, degree) == 1
        return
    beta = lambda a, b: math.gamma(a) * math.gamma(b) / math.gamma(a + b)  # noqa: E731
    exact = beta((degree + 1) / 2, (dim - 1) / 2) / beta(1 / 2, (dim - 1) / 2)
    assert sympow.direction_moment(dim, degree) == pytest.approx(exact, rel=1e-12)
    assert sympow.direction_moment(dim, degree + 1) == 0


# Sizes --------------------------------------------------------------------------------------------------------------


def test_state_of_the_124m_model_has_the_printed_sizes():  # CS-size
    assert f"{sympow.state_bytes(64, 2, 12, 12) / 1e6:.0f} MB" == "39 MB"
    assert f"{sympow.state_bytes(64, 4, 12, 12) / 1e9:.0f} GB" == "14 GB"
    assert sympow.state_bytes(64, 2, 12, 12) == 144 * 65 * 2080 * 2
    assert sympow.state_numbers(4, 2, value_dim=7) == 8 * 10


test_bad_input_is_named = refuses(
    (lambda: dimension(0, 2), "dim"),
    (lambda: dimension(3, 0), "power"),
    (lambda: embed(torch.ones(3), 0), "power"),
    (lambda: dimension(3, 2.0), "power"),
    (lambda: embed([1.0, 2.0], 2), "v"),
    (lambda: lift(torch.eye(3, dtype=torch.complex64), 2), "matrix"),
    (lambda: act(torch.ones(3), torch.ones(6), 2), "matrix"),
    (lambda: act(torch.eye(3), torch.ones(5), 2), "s"),
    (lambda: sympow.norm_functional(3, 3), "power"),
)
