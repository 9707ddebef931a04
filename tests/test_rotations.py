"""Plane rotations and reflections against explicit matrices, matrix exponentials and complex numbers."""

import math

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from geolib import rotations as rot

reals = st.floats(-50, 50, allow_nan=False)
few = settings(deadline=None, max_examples=25)


def double(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def as_complex(x):
    """Each pair (a, b) as the number a + ib: an arithmetic the code under test does not use."""
    pairs = x.double().numpy()
    return pairs[..., 0::2] + 1j * pairs[..., 1::2]


def as_pairs(z):
    return torch.from_numpy(np.stack([z.real, z.imag], -1).reshape(*z.shape[:-1], -1))


# One plane -----------------------------------------------------------------------------------------------------------


@few
@given(reals)
def test_rotation_is_the_exponential_of_its_generator(a):  # RF-10, RF-7
    expected = scipy.linalg.expm(np.array([[0, -a], [a, 0]]))
    assert_close(rot.rotation_matrix(torch.tensor(a, dtype=torch.float64)), torch.from_numpy(expected))


@few
@given(reals, st.integers(-6, 6))
def test_power_of_a_rotation_is_the_rotation_by_the_multiple(a, k):  # CS-Rk
    matrix = rot.rotation_matrix(torch.tensor(a, dtype=torch.float64))
    expected = torch.linalg.matrix_power(matrix, k)
    assert_close(rot.rotation_matrix(torch.tensor(k * a, dtype=torch.float64)), expected, atol=1e-10, rtol=0)


@few
@given(reals)
def test_reflection_is_the_householder_matrix_of_its_mirror_line(a):  # RF-15
    normal = np.array([-np.sin(a), np.cos(a)])  # orthogonal to the line at angle a
    mirror = rot.reflection_matrix(torch.tensor(a, dtype=torch.float64))
    assert_close(mirror, torch.from_numpy(np.eye(2) - 2 * np.outer(normal, normal)))
    assert_close(torch.det(mirror), torch.tensor(-1.0).double())
    assert_close(mirror @ mirror, torch.eye(2).double())


@few
@given(reals, reals)
def test_two_mirrors_make_a_rotation_and_a_mirror_after_a_rotation_a_mirror(a, b):  # RF-15
    a, b = torch.tensor([a, b], dtype=torch.float64)
    assert_close(rot.reflection_matrix(a / 2) @ rot.reflection_matrix(b / 2), rot.rotation_matrix(a - b))
    assert_close(rot.reflection_matrix(b) @ rot.rotation_matrix(a), rot.reflection_matrix(b - a / 2))


# Many planes ---------------------------------------------------------------------------------------------------------


@few
@given(st.integers(1, 6), st.integers(0, 3), st.sampled_from([torch.float32, torch.float64]))
def test_rotate_pairs_is_complex_multiplication(pairs, batch, dtype):  # RF-10, LR-A2
    x, angles = torch.randn(*[2] * batch, 5, 2 * pairs, dtype=dtype), torch.randn(5, pairs, dtype=dtype)
    expected = as_pairs(as_complex(x) * np.exp(1j * angles.double().numpy()))
    got = rot.rotate_pairs(x, angles)
    assert got.dtype == dtype
    assert_close(got.double(), expected, atol=1e-6 if dtype == torch.float32 else 1e-14, rtol=0)


def test_rotate_pairs_is_the_block_diagonal_matrix():  # RF-10, RF-11, RF-12
    x, m, n = double(8), 3.5, -2.25
    angles = double(4)
    frame = rot.block_diagonal(rot.rotation_matrix(m * angles))
    other = rot.block_diagonal(rot.rotation_matrix(n * angles))
    assert_close(rot.rotate_pairs(x, m * angles), frame @ x)
    assert_close(rot.rotate_pairs(x, -m * angles), torch.linalg.inv(frame) @ x)  # RF-11
    assert_close(rot.rotate_pairs(x, (m - n) * angles), frame @ torch.linalg.inv(other) @ x)  # RF-12


def test_generator_exponentiates_to_the_rotation_blocks():  # RF-7, LR-2
    angles = double(3)
    expected = scipy.linalg.expm(rot.plane_generator(angles).numpy())
    assert_close(rot.block_diagonal(rot.rotation_matrix(angles)), torch.from_numpy(expected))


def test_generators_on_common_planes_commute_and_their_exponentials_divide():  # LR-2
    u, v = rot.plane_generator(double(3)).numpy(), rot.plane_generator(double(3)).numpy()
    exp_u, exp_v = scipy.linalg.expm(u), scipy.linalg.expm(v)
    np.testing.assert_allclose(u @ v, v @ u, atol=1e-14)
    np.testing.assert_allclose(scipy.linalg.expm(u - v), exp_u @ np.linalg.inv(exp_v), atol=1e-12)
    np.testing.assert_allclose(scipy.linalg.expm(u - v), np.linalg.inv(exp_v) @ exp_u, atol=1e-12)


def test_reflect_pairs_is_the_block_diagonal_of_reflections():  # RF-16
    x, angles = double(7, 6), double(7, 3)
    mirrors = rot.block_diagonal(rot.reflection_matrix(angles))
    assert_close(rot.reflect_pairs(x, angles), (mirrors @ x[..., None])[..., 0])


def test_mixed_blocks_turn_even_pairs_and_mirror_odd_ones():  # RF-17
    angles = double(4)
    expected = torch.block_diag(
        rot.rotation_matrix(angles[0]),
        rot.reflection_matrix(angles[1]),
        rot.rotation_matrix(angles[2]),
        rot.reflection_matrix(angles[3]),
    )
    assert_close(rot.mixed_matrix(angles), expected)


def test_inverse_of_mixed_blocks_turns_back_and_keeps_the_mirrors():  # RF-18
    angles = double(5, 4)
    assert_close(rot.mixed_matrix(rot.inverse_mixed_angles(angles)), torch.linalg.inv(rot.mixed_matrix(angles)))


def test_reflection_blocks_score_as_rotations_by_the_doubled_angle():  # RF-REFL
    q, k, angles, m, n = double(8), double(8), double(4), 5.0, 2.0
    mirrored = q @ rot.block_diagonal(rot.reflection_matrix(m * angles)).T
    mirrored = mirrored @ rot.block_diagonal(rot.reflection_matrix(n * angles)) @ k
    # The score q^T S(m a)^T S(n a) k is a rotation by 2(m - n) a, here by complex numbers.
    turned = (as_complex(q).conj() * np.exp(2j * (m - n) * angles.numpy()) * as_complex(k)).real.sum()
    assert float(mirrored) == pytest.approx(turned, abs=1e-12)


# Frequencies ---------------------------------------------------------------------------------------------------------


def test_language_frequencies():  # LR-A2
    expected = [10000 ** (-2 * i / 64) for i in range(32)]
    assert_close(rot.language_frequencies(64)[:, 0].double(), torch.tensor(expected).double(), atol=1e-7, rtol=1e-6)


def test_document_frequencies_count_from_one():  # CS-rot
    expected = [2 * math.pi / 4096 ** (2 * (i - 1) / 16) for i in range(1, 9)]
    assert_close(rot.document_frequencies(16, 4096)[:, 0].double(), torch.tensor(expected).double(), atol=0, rtol=1e-6)


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
        expected = [100 ** (-i / len(mine)) for i in range(len(mine))]
        assert_close(mine, torch.tensor(expected, dtype=torch.float32))


def test_axial_rope_is_one_dimensional_rope_along_each_axis():  # RF-S
    x, y, (rows, columns) = double(4, 8), double(4, 8), rot.grid_positions(2, 2).double().unbind(-1)
    both = rot.rope(torch.cat([y, x], -1), torch.stack([rows, columns], -1), rot.axial_frequencies(16, 2))
    single = rot.language_frequencies(8, base=100.0)
    expected = torch.cat([rot.rope(y, rows[:, None], single), rot.rope(x, columns[:, None], single)], -1)
    assert_close(both, expected)


def test_alternating_pairs_share_a_frequency_between_axes():  # LR-T1, VisionLLaMA
    frequencies = rot.alternating_frequencies(16, 2)
    slower = rot.alternating_frequencies(8, 1, base=500.0).flatten()
    assert torch.equal(slower, torch.tensor([500.0 ** (-i / 4) for i in range(4)], dtype=torch.float64).float())
    for pair in range(8):
        expected = torch.zeros(2)
        expected[pair % 2] = 10000 ** (-4 * (pair // 2) / 16)
        assert_close(frequencies[pair], expected, rtol=1e-7, atol=0)


# Positions -----------------------------------------------------------------------------------------------------------


def test_grid_positions_run_in_reading_order():
    expected = torch.tensor([[y, x] for y in range(2) for x in range(3)]).float()
    assert torch.equal(rot.grid_positions(2, 3), expected)


def test_rescaled_positions_keep_the_trained_range():  # LR-F2
    grid = rot.rescale_positions(rot.grid_positions(16, 12), trained=(8, 6), size=(16, 12))
    assert_close(grid.amax(0), torch.tensor([7.5, 5.5]))


def test_rope_score_is_the_rotation_by_the_difference():  # RF-13 with s = 1, CS-rot
    q, k = double(2, 3, 8), double(2, 3, 8)
    frequencies = torch.stack([rot.language_frequencies(8).double(), double(4, 1)])  # each head its own
    positions = torch.tensor([[0.0], [7.5], [-3.0]]).double()
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


def test_converters_are_inverse_and_keep_inner_products():
    x, y = double(3, 10), double(3, 10)
    assert torch.equal(rot.to_interleaved(rot.to_half_split(x)), x)
    assert torch.equal(rot.to_half_split(torch.arange(6.0)), torch.tensor([0.0, 2, 4, 1, 3, 5]))
    assert_close((rot.to_half_split(x) * rot.to_half_split(y)).sum(-1), (x * y).sum(-1))


# Precision, gradients, errors ----------------------------------------------------------------------------------------


def test_gradients():
    x, angles = double(3, 6).requires_grad_(), double(3, 3).requires_grad_()
    assert torch.autograd.gradcheck(rot.rotate_pairs, (x, angles))
    assert torch.autograd.gradcheck(rot.reflect_pairs, (x, angles))
    positions, frequencies = double(3, 2).requires_grad_(), double(3, 2).requires_grad_()
    assert torch.autograd.gradcheck(rot.rope, (x, positions, frequencies))


@pytest.mark.parametrize(
    ("call", "message"),
    [
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
    ],
)
def test_bad_input_names_the_argument_and_what_came(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# What was silently wrong once -------------------------------------------------------------------------------------


def test_far_positions_hold_as_far_as_the_docstring_says():
    x, theta = torch.randn(1, 64), rot.language_frequencies(64)
    for position, bound in ((1e3, 1e-4), (1e6, 0.1)):
        at = torch.tensor([[position]])
        exact = rot.rope(x.double(), at.double(), theta.double())
        assert (rot.rope(x, at, theta) - exact).abs().max() < bound * x.norm()
        assert (rot.rope(x, at.long(), theta) - exact).abs().max() < 2e-7 * x.norm()
        assert (rot.rope(x, at.double(), theta) - exact).abs().max() < 2e-7 * x.norm()


# Longer contexts, each frequency by itself in Python's own numbers -------------------------------------------------


@pytest.mark.parametrize("factor", [2.0, 8.0])
def test_ntk_aware_scaling_is_a_larger_base(factor):
    dim, base = 64, 500.0
    wanted = [(base * factor ** (dim / (dim - 2))) ** (-2 * i / dim) for i in range(dim // 2)]
    got = rot.ntk_aware(rot.language_frequencies(dim, base), factor)
    assert_close(got.flatten().double(), torch.tensor(wanted, dtype=torch.float64), atol=0, rtol=1e-6)
    assert_close(got[-1], rot.interpolated(rot.language_frequencies(dim, base), factor)[-1])


@pytest.mark.parametrize(("slow", "fast"), [(1.0, 32.0), (1.0, 4.0), (2.0, 3.0)])
def test_scaling_by_parts_looks_at_how_often_a_pair_goes_around(slow, fast):
    dim, base, factor, trained = 64, 10000.0, 8.0, 512
    got = rot.ntk_by_parts(rot.language_frequencies(dim, base), factor, trained, slow, fast).flatten().tolist()
    kinds = set()
    for i, scaled in enumerate(got):
        theta = base ** (-2 * i / dim)
        around = trained / (2 * math.pi / theta)  # wavelengths that fit into the trained context
        if around < slow:
            kind, wanted = "interpolated", theta / factor
        elif around > fast:
            kind, wanted = "kept", theta
        else:
            share = (around - slow) / (fast - slow)
            kind, wanted = "between", (1 - share) * theta / factor + share * theta
        kinds.add(kind)
        assert math.isclose(scaled, wanted, rel_tol=1e-5), i
    assert kinds == {"interpolated", "kept", "between"}


@pytest.mark.parametrize(("dim", "base", "trained"), [(64, 10000.0, 2048), (128, 1e6, 32768), (32, 500.0, 100)])
def test_yarn_is_linear_between_two_indices(dim, base, trained):
    factor = 4.0
    got = rot.yarn_frequencies(dim, factor, trained, base).flatten().tolist()

    def around(i):  # how often the pair of a real index goes around within the trained context
        return trained * base ** (-2 * i / dim) / (2 * math.pi)

    low = max([i for i in range(-dim, dim) if around(i) >= 32 and i >= 0], default=0)
    high = min(i for i in range(-dim, 2 * dim) if around(i) <= 1)
    for i, scaled in enumerate(got):
        share = min(max((i - low) / (high - low), 0), 1)
        theta = base ** (-2 * i / dim)
        assert math.isclose(scaled, (1 - share) * theta + share * theta / factor, rel_tol=7e-8), i  # rounded once


def test_yarn_lengthens_queries_and_keys():
    assert math.isclose(rot.yarn_length(16.0), 0.1 * math.log(16) + 1)
    assert rot.yarn_length(0.5) == 1


# Checkpoints ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turned", [None, 4])
def test_converted_rows_project_to_the_other_order(turned):
    heads, dim, width = 3, 8, 5
    weight, bias, x = torch.randn(heads * dim, width), torch.randn(heads * dim), torch.randn(7, width)
    usual = (x @ weight.T + bias).unflatten(-1, (heads, dim))
    half = x @ rot.half_split_rows(weight, heads, turned).T + rot.half_split_rows(bias, heads, turned)
    last = dim if turned is None else turned
    for j in range(last // 2):  # pair j is (j, j + last/2) in the one order and (2j, 2j + 1) in the other
        assert torch.equal(half.unflatten(-1, (heads, dim))[..., j], usual[..., 2 * j])
        assert torch.equal(half.unflatten(-1, (heads, dim))[..., j + last // 2], usual[..., 2 * j + 1])
    assert torch.equal(half.unflatten(-1, (heads, dim))[..., last:], usual[..., last:])
    assert torch.equal(rot.interleaved_rows(rot.half_split_rows(weight, heads, turned), heads, turned), weight)
    assert torch.equal(rot.interleaved_rows(rot.half_split_rows(bias, heads, turned), heads, turned), bias)
