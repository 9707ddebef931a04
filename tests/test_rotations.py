"""Plane rotations and reflections against explicit matrices, matrix exponentials and complex numbers."""

import math

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from often import close, double, refuses, vec
from torch.testing import assert_close

from geolib import rotations as rot

reals = st.floats(-50, 50, allow_nan=False)
few = settings(deadline=None, max_examples=25)


def as_complex(x):
    """Each pair (a, b) as the number a + ib: an arithmetic the code under test does not use."""
    pairs = x.double().numpy()
    return pairs[..., 0::2] + 1j * pairs[..., 1::2]


# One plane -----------------------------------------------------------------------------------------------------------


@few
@given(reals)
def test_rotation_is_the_exponential_of_its_generator(a):  # RF-10, RF-7
    expected = scipy.linalg.expm(np.array([[0, -a], [a, 0]]))
    assert_close(rot.rotation_matrix(vec(a)[0]), torch.from_numpy(expected))


@few
@given(reals, st.integers(-6, 6))
def test_power_of_a_rotation_is_the_rotation_by_the_multiple(a, k):  # CS-Rk
    close(rot.rotation_matrix(vec(k * a)[0]), torch.linalg.matrix_power(rot.rotation_matrix(vec(a)[0]), k))


@few
@given(reals)
def test_reflection_is_the_householder_matrix_of_its_mirror_line(a):  # RF-15
    normal = np.array([-np.sin(a), np.cos(a)])  # orthogonal to the line at angle a
    assert_close(rot.reflection_matrix(vec(a)[0]), torch.from_numpy(np.eye(2) - 2 * np.outer(normal, normal)))


@few
@given(reals, reals)
def test_two_mirrors_make_a_rotation_and_a_mirror_after_a_rotation_a_mirror(a, b):  # RF-15
    a, b = vec(a, b)
    assert_close(rot.reflection_matrix(a / 2) @ rot.reflection_matrix(b / 2), rot.rotation_matrix(a - b))
    assert_close(rot.reflection_matrix(b) @ rot.rotation_matrix(a), rot.reflection_matrix(b - a / 2))


# Many planes ---------------------------------------------------------------------------------------------------------


@few
@given(st.integers(1, 6), st.integers(0, 3), st.sampled_from([torch.float32, torch.float64]))
def test_rotate_pairs_is_complex_multiplication(pairs, batch, dtype):  # RF-10, LR-A2
    x, angles = torch.randn(*[2] * batch, 5, 2 * pairs, dtype=dtype), torch.randn(5, pairs, dtype=dtype)
    got = rot.rotate_pairs(x, angles)
    assert got.dtype == dtype
    expected = torch.from_numpy(as_complex(x) * np.exp(1j * angles.double().numpy()))
    close(got.double(), torch.view_as_real(expected).flatten(-2), 1e-6 if dtype == torch.float32 else 1e-14)


def test_rotate_pairs_is_the_block_diagonal_matrix():  # RF-10, RF-11, RF-12
    x, angles, m, n = double(8), double(4), 3.5, -2.25
    frame, other = (rot.block_diagonal(rot.rotation_matrix(at * angles)) for at in (m, n))
    assert_close(rot.rotate_pairs(x, m * angles), frame @ x)
    assert_close(rot.rotate_pairs(x, -m * angles), torch.linalg.inv(frame) @ x)  # RF-11
    assert_close(rot.rotate_pairs(x, (m - n) * angles), frame @ torch.linalg.inv(other) @ x)  # RF-12


def test_generator_exponentiates_to_the_rotation_blocks():  # RF-7, LR-2
    angles = double(3)
    expected = scipy.linalg.expm(rot.plane_generator(angles).numpy())
    assert_close(rot.block_diagonal(rot.rotation_matrix(angles)), torch.from_numpy(expected))


def test_generators_on_common_planes_commute_and_their_exponentials_divide():  # LR-2
    u, v = rot.plane_generator(double(3)).numpy(), rot.plane_generator(double(3)).numpy()
    exp_u, exp_v, quotient = map(scipy.linalg.expm, (u, v, u - v))
    np.testing.assert_allclose(quotient, exp_u @ np.linalg.inv(exp_v), atol=1e-12)
    np.testing.assert_allclose(quotient, np.linalg.inv(exp_v) @ exp_u, atol=1e-12)


def test_reflect_pairs_is_the_block_diagonal_of_reflections():  # RF-16
    x, angles = double(7, 6), double(7, 3)
    mirrors = rot.block_diagonal(rot.reflection_matrix(angles))
    assert_close(rot.reflect_pairs(x, angles), (mirrors @ x[..., None])[..., 0])


def test_mixed_blocks_turn_even_pairs_and_mirror_odd_ones():  # RF-17
    angles = double(4)
    kinds = [rot.rotation_matrix, rot.reflection_matrix] * 2
    assert_close(rot.mixed_matrix(angles), torch.block_diag(*(kind(a) for kind, a in zip(kinds, angles))))


def test_inverse_of_mixed_blocks_turns_back_and_keeps_the_mirrors():  # RF-18
    angles = double(5, 4)
    assert_close(rot.mixed_matrix(rot.inverse_mixed_angles(angles)), torch.linalg.inv(rot.mixed_matrix(angles)))


# Frequencies ---------------------------------------------------------------------------------------------------------


def near(frequencies, expected, rtol=1e-6):
    assert_close(frequencies.flatten().double(), torch.tensor([*expected], dtype=torch.float64), atol=0, rtol=rtol)


def test_language_frequencies():  # LR-A2
    near(rot.language_frequencies(64), (10000 ** (-2 * i / 64) for i in range(32)))


def test_document_frequencies_count_from_one():  # CS-rot
    near(rot.document_frequencies(16, 4096), (2 * math.pi / 4096 ** (2 * (i - 1) / 16) for i in range(1, 9)))


@few
@given(st.integers(1, 3), st.integers(3, 16))
def test_axial_pairs_follow_one_axis_each_in_blocks(axes, pairs):  # RF-S
    frequencies = rot.axial_frequencies(2 * pairs, axes)
    owner = frequencies.abs().argmax(-1)
    assert torch.equal((frequencies != 0).sum(-1), torch.ones(pairs, dtype=torch.long))
    assert torch.equal(owner, owner.sort().values)
    assert max(owner.bincount(minlength=axes)) - min(owner.bincount(minlength=axes)) <= 1
    for axis in range(axes):
        mine = frequencies[owner == axis, axis]
        near(mine, (100 ** (-i / len(mine)) for i in range(len(mine))))


def test_axial_rope_is_one_dimensional_rope_along_each_axis():  # RF-S
    x, y, (rows, columns) = double(4, 8), double(4, 8), rot.grid_positions(2, 2).double().unbind(-1)
    both = rot.rope(torch.cat([y, x], -1), torch.stack([rows, columns], -1), rot.axial_frequencies(16, 2))
    single = rot.language_frequencies(8, base=100.0)
    expected = torch.cat([rot.rope(y, rows[:, None], single), rot.rope(x, columns[:, None], single)], -1)
    assert_close(both, expected)


def test_alternating_pairs_share_a_frequency_between_axes():  # LR-T1, VisionLLaMA
    for axis, own in enumerate(rot.alternating_frequencies(16, 2).view(4, 2, 2).unbind(1)):
        assert (own[:, 1 - axis] == 0).all()
        near(own[:, axis], (10000 ** (-4 * i / 16) for i in range(4)))
    near(rot.alternating_frequencies(8, 1, base=500.0), (500.0 ** (-i / 4) for i in range(4)))


# Positions -----------------------------------------------------------------------------------------------------------


def test_grid_positions_run_in_reading_order():
    assert rot.grid_positions(2, 3).tolist() == [[y, x] for y in range(2) for x in range(3)]


def test_rescaled_positions_keep_the_trained_range():  # LR-F2
    grid = rot.rescale_positions(rot.grid_positions(16, 12), trained=(8, 6), size=(16, 12))
    assert_close(grid.amax(0), torch.tensor([7.5, 5.5]))


def test_rope_score_is_the_rotation_by_the_difference():  # RF-13 with s = 1, CS-rot
    q, k = double(2, 3, 8), double(2, 3, 8)
    frequencies = torch.stack([rot.language_frequencies(8).double(), double(4, 1)])  # each head its own
    positions = vec(0.0, 7.5, -3.0)[:, None]
    got = rot.rope(q, positions, frequencies) @ rot.rope(k, positions, frequencies).mT
    for h, m, n in np.ndindex(2, 3, 3):
        turn = np.exp(1j * float(positions[n] - positions[m]) * frequencies[h, :, 0].numpy())
        expected = (as_complex(q[h, m]).conj() * turn * as_complex(k[h, n])).real.sum()
        assert float(got[h, m, n]) == pytest.approx(expected, abs=1e-12)


def test_partial_rotary_leaves_the_last_features():
    x, positions = double(5, 12), double(5, 1)
    got = rot.rope(x, positions, rot.language_frequencies(8))
    assert torch.equal(got[:, 8:], x[:, 8:])
    assert_close(got[:, :8], rot.rope(x[:, :8], positions, rot.language_frequencies(8)))


# Layouts -------------------------------------------------------------------------------------------------------------


def test_half_split_layout_rotates_as_rotate_half_does():
    x, angles = double(5, 8), double(5, 4)
    half = rot.to_half_split(x)
    twisted = torch.cat([-half[..., 4:], half[..., :4]], -1)
    cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)
    assert_close(rot.to_half_split(rot.rotate_pairs(x, angles)), half * cos + twisted * sin)
    assert torch.equal(rot.to_half_split(torch.arange(6.0)), torch.tensor([0.0, 2, 4, 1, 3, 5]))
    assert torch.equal(rot.to_interleaved(half), x)


# Precision, gradients, errors ----------------------------------------------------------------------------------------


def test_gradients():
    x, angles = double(3, 6).requires_grad_(), double(3, 3).requires_grad_()
    assert torch.autograd.gradcheck(rot.rotate_pairs, (x, angles))
    assert torch.autograd.gradcheck(rot.reflect_pairs, (x, angles))
    positions, frequencies = double(3, 2).requires_grad_(), double(3, 2).requires_grad_()
    assert torch.autograd.gradcheck(rot.rope, (x, positions, frequencies))


test_bad_input_names_the_argument_and_what_came = refuses(
    (lambda: rot.rotate_pairs(torch.ones(2, 5), torch.ones(2)), "x's last dimension: got 5"),
    (lambda: rot.rotate_pairs(torch.ones(2, 4), torch.ones(3)), "angles: got 3 angles"),
    (lambda: rot.reflect_pairs(torch.ones(3), torch.ones(1)), "x's last dimension: got 3"),
    (lambda: rot.mixed_matrix(torch.ones(3)), "angles' last dimension: got 3"),
    (lambda: rot.language_frequencies(7), "dim: got 7"),
    (lambda: rot.language_frequencies(8, base=-1.0), "base: got -1.0"),
    (lambda: rot.document_frequencies(8, float("inf")), "base: got inf"),
    (lambda: rot.axial_frequencies(4, 3), "axes: got 3"),
    (lambda: rot.alternating_frequencies(12, 4), "axes: got 4"),
    (lambda: rot.grid_positions(3, 0), r"sizes: got \(3, 0\)"),
    (lambda: rot.grid_positions(), r"sizes: got \(\)"),
    (lambda: rot.pair_angles(torch.ones(5), torch.ones(2, 1)), r"positions: got shape \(5,\)"),
    (lambda: rot.rope(torch.ones(5, 4), torch.ones(5, 3), torch.ones(2, 2)), r"positions: got shape \(5, 3\)"),
    (lambda: rot.rescale_positions(torch.ones(5, 2), (8, 8), (8,)), "size: got"),
    (lambda: rot.to_half_split(torch.ones(5)), "x's last dimension: got 5"),
    (lambda: rot.ntk_aware(torch.ones(4, 2), 2.0), r"frequencies: got shape \(4, 2\)"),
    (lambda: rot.ntk_aware(torch.ones(4, 1), -1.0), "factor: got -1.0"),
    (lambda: rot.interpolated(torch.ones(4, 1), 0.0), "factor: got 0.0"),
    (lambda: rot.ntk_by_parts(torch.ones(4, 1), 2.0, 8, slow=0.0), "slow: got 0.0"),
    (lambda: rot.yarn_frequencies(8, 2.0, 8, slow=0.0), "slow: got 0.0"),
    (lambda: rot.yarn_frequencies(8, 2.0, 8, base=1.0), "base: got 1.0"),
    (lambda: rot.to_interleaved(torch.ones(4), 6), "turned: got 6"),
    (lambda: rot.half_split_rows(torch.ones(6, 2), 4), "heads: got 4; it must divide the 6 rows"),
)


def test_far_positions_hold_as_far_as_the_docstring_says():
    x, theta = torch.randn(1, 64), rot.language_frequencies(64)
    for position, bound in ((1e3, 1e-4), (1e6, 0.1)):
        at = torch.tensor([[position]])
        exact = rot.rope(x.double(), at.double(), theta.double())
        for there, within in ((at, bound), (at.long(), 2e-7), (at.double(), 2e-7)):
            assert (rot.rope(x, there, theta) - exact).abs().max() < within * x.norm()


# Longer contexts, each frequency by itself in Python's own numbers -------------------------------------------------


@pytest.mark.parametrize("factor", [2.0, 8.0])
def test_ntk_aware_scaling_is_a_larger_base(factor):
    dim, base = 64, 500.0
    got = rot.ntk_aware(rot.language_frequencies(dim, base), factor)
    near(got, ((base * factor ** (dim / (dim - 2))) ** (-2 * i / dim) for i in range(dim // 2)))
    assert_close(got[-1], rot.interpolated(rot.language_frequencies(dim, base), factor)[-1])


@pytest.mark.parametrize(("slow", "fast"), [(1.0, 32.0), (1.0, 4.0), (2.0, 3.0)])
def test_scaling_by_parts_looks_at_how_often_a_pair_goes_around(slow, fast):
    dim, base, factor, trained = 64, 10000.0, 8.0, 512
    thetas = [base ** (-2 * i / dim) for i in range(dim // 2)]
    around = [trained / (2 * math.pi / theta) for theta in thetas]  # wavelengths that fit into the trained context
    kept = [0 if turns < slow else 1 if turns > fast else (turns - slow) / (fast - slow) for turns in around]
    assert kept[0] == 1
    assert kept[-1] == 0
    assert any(0 < share < 1 for share in kept)
    got = rot.ntk_by_parts(rot.language_frequencies(dim, base), factor, trained, slow, fast)
    near(got, ((1 - share) * theta / factor + share * theta for share, theta in zip(kept, thetas)), 1e-5)


@pytest.mark.parametrize(("dim", "base", "trained"), [(64, 10000.0, 2048), (128, 1e6, 32768), (32, 500.0, 100)])
def test_yarn_is_linear_between_two_indices(dim, base, trained):
    def around(i):  # how often the pair of a real index goes around within the trained context
        return trained * base ** (-2 * i / dim) / (2 * math.pi)

    low = max((i for i in range(dim) if around(i) >= 32), default=0)
    high = min(i for i in range(2 * dim) if around(i) <= 1)
    slowed = (min(max((i - low) / (high - low), 0), 1) for i in range(dim // 2))
    wanted = ((1 - share + share / 4) * base ** (-2 * i / dim) for i, share in enumerate(slowed))
    near(rot.yarn_frequencies(dim, 4.0, trained, base), wanted, 7e-8)  # rounded once


def test_yarn_lengthens_queries_and_keys():
    assert (rot.yarn_length(16.0), rot.yarn_length(0.5)) == (pytest.approx(0.1 * math.log(16) + 1), 1)


# Checkpoints ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turned", [None, 4])
def test_converted_rows_project_to_the_other_order(turned):
    heads, dim, width = 3, 8, 5
    weight, bias, x = torch.randn(heads * dim, width), torch.randn(heads * dim), torch.randn(7, width)
    rows, biases = (rot.half_split_rows(t, heads, turned) for t in (weight, bias))
    usual, half = ((x @ w.T + b).unflatten(-1, (heads, dim)) for w, b in ((weight, bias), (rows, biases)))
    last = dim if turned is None else turned
    # Pair j is (j, j + last/2) in the one order and (2j, 2j + 1) in the other.
    order = [*range(0, last, 2), *range(1, last, 2), *range(last, dim)]
    assert torch.equal(half, usual[..., order])
    assert torch.equal(rot.interleaved_rows(rows, heads, turned), weight)
    assert torch.equal(rot.interleaved_rows(biases, heads, turned), bias)
