"""Discrete connections against NumPy products and closed forms; the rows of the table against ledger and modules."""

import functools
import itertools
import math
from collections import Counter

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from measured import (
    measured_bilinear_form,
    measured_bilinear_forms,
    measured_log_attenuation,
    measured_log_attenuations,
    measured_log_gate,
    measured_log_gates,
)
from methods import METHODS, WITH_ROWS
from torch.testing import assert_close

from geolib import connection as cn
from geolib import manifolds as mf
from geolib import recurrence as rc
from geolib import sympow
from geolib.attention import Encoding, Placed
from geolib.encodings import RoPE, build
from geolib.rotations import plane_generator, reflect_pairs

torch.set_num_threads(1)
few = settings(deadline=None, max_examples=15)
places = st.floats(-20, 20)


def vec(*values):
    return torch.tensor(values, dtype=torch.float64)


def double(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def close(a, b, atol=1e-10):
    assert_close(a, b, atol=atol, rtol=0)


def invertible(*shape, d):
    """Matrices with singular values near 1."""
    return torch.eye(d).double() + 0.3 * double(*shape, d, d) / d**0.5


def skew(*shape, d, size=1.0):
    upper = size * double(*shape, d, d)
    return upper - upper.mT


def random_grid(*shape, d):
    """A connection with every step drawn at random: curved."""
    cells = [[n - (i == a) for i, n in enumerate(shape)] for a in range(len(shape))]
    return cn.Connection(tuple(invertible(*c, d=d) for c in cells))


def random_loop(shape, steps, seed):
    """A random walk, and a path straight back."""
    rng = np.random.default_rng(seed)
    node = tuple(int(rng.integers(n)) for n in shape)
    walk = [node]
    while len(walk) <= steps:
        axis, move = rng.integers(len(shape)), rng.choice([-1, 1])
        following = list(walk[-1])
        following[axis] += int(move)
        if 0 <= following[axis] < shape[axis]:
            walk.append(tuple(following))
    return walk + cn.straight_path(walk[-1], node)[1:]


def shapes(axes):
    return st.lists(st.integers(2, 4), min_size=axes, max_size=axes).map(tuple)


# Path-ordered products ------------------------------------------------------------------------------------------------


def test_transport_is_the_ordered_product_of_the_steps():  # RF-2
    grid = random_grid(3, 4, d=3)
    east, north = (s.numpy() for s in grid.steps)
    path = [(0, 1), (1, 1), (1, 2), (0, 2), (0, 1)]
    inv = np.linalg.inv
    expected = inv(north[0, 1]) @ inv(east[0, 2]) @ north[1, 1] @ east[0, 1]
    close(cn.transport_along(grid, path), torch.from_numpy(expected))


def test_a_path_taken_backwards_gives_the_inverse():  # RF-2
    grid, path = random_grid(3, 3, 2, d=2), [(0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 1, 1), (2, 1, 1)]
    close(cn.transport_along(grid, path[::-1]) @ cn.transport_along(grid, path), torch.eye(2).double())
    close(cn.transport_along(grid, path[:1]), torch.eye(2).double())
    close(cn.holonomy(grid, path[:1]), torch.eye(2).double())


def test_a_batch_of_connections_gives_what_each_gives_alone():
    steps = [invertible(5, 2, 2, 3, d=2), invertible(5, 2, 3, 2, d=2)]
    batch, one = cn.Connection(tuple(steps)), cn.Connection(tuple(s[3, 1] for s in steps))
    loop = cn.rectangle((0, 1), (2, 1))
    close(cn.holonomy(batch, loop)[3, 1], cn.holonomy(one, loop))
    close(cn.plaquettes(batch)[3, 1], cn.plaquettes(one))
    close(cn.to_frames(batch)[3, 1], cn.to_frames(one))
    change = invertible(5, 2, 3, 3, d=2)
    for many, alone in zip(cn.gauge_transform(batch, change).steps, cn.gauge_transform(one, change[3, 1]).steps):
        close(many[3, 1], alone)
    assert batch.shape == one.shape == (3, 3)


@pytest.mark.parametrize("axes", list(itertools.permutations(range(3), 2)))
def test_plaquettes_are_the_holonomies_of_the_unit_squares(axes):  # RF-FLAT
    grid, ahead = random_grid(2, 3, 4, d=3), [tuple(int(i == axis) for i in range(3)) for axis in axes]
    squares = cn.plaquettes(grid, *axes)
    assert squares.shape == (*(n - (i in axes) for i, n in enumerate((2, 3, 4))), 3, 3)
    for start in np.ndindex(*squares.shape[:3]):
        way = np.cumsum([start, *ahead, *np.negative(ahead)], 0)  # along the first axis, then along the second
        close(squares[start], cn.holonomy(grid, [tuple(node) for node in way.tolist()]))


def test_plaquettes_without_axes_are_of_the_first_two():  # RF-FLAT
    grid = random_grid(3, 4, d=2)
    for i, j in itertools.product(range(2), range(3)):
        close(cn.plaquettes(grid)[i, j], cn.holonomy(grid, cn.rectangle((i, j), (1, 1))))


# Flatness -------------------------------------------------------------------------------------------------------------


@few
@given(st.integers(1, 3).flatmap(shapes), st.integers(1, 4), st.integers(0, 10**6))
def test_a_connection_from_frames_has_no_holonomy(shape, d, seed):  # RF-FLAT
    connection = cn.from_frames(invertible(*shape, d=d), axes=len(shape))
    assert connection.shape == shape
    close(cn.holonomy(connection, random_loop(shape, 12, seed)), torch.eye(d).double(), 1e-8)
    close(cn.flatness_defect(connection), torch.zeros(()).double(), 1e-8)


def test_the_metric_varies_and_the_holonomy_stays_the_identity():  # RF-FLAT, RF-5, RF-1
    frames, core = invertible(3, 3, d=4), invertible(d=4)
    inverse = np.linalg.inv(frames.numpy())
    metrics = torch.from_numpy(inverse.swapaxes(-1, -2) @ (core.T @ core).numpy() @ inverse)
    assert (metrics[0, 0] - metrics[2, 2]).abs().max() > 0.1
    connection, path = cn.from_frames(frames, axes=2), [(0, 0), (0, 1), (1, 1), (2, 1), (2, 2)]
    carried = cn.transport_along(connection, path)
    close(carried.T @ metrics[2, 2] @ carried, metrics[0, 0])
    close(carried, frames[2, 2] @ torch.from_numpy(inverse[0, 0]))
    close(cn.holonomy(connection, cn.rectangle((0, 0), (2, 2))), torch.eye(4).double())


def test_a_flat_connection_on_a_grid_comes_from_frames():  # RF-FLAT
    flat = cn.gauge_transform(cn.from_frames(invertible(4, 3, 2, d=3), axes=3), invertible(4, 3, 2, d=3))
    frames = cn.to_frames(flat)
    close(frames[0, 0, 0], torch.eye(3).double())
    for again, step in zip(cn.from_frames(frames, axes=3).steps, flat.steps):
        close(again, step, 1e-8)
    close(frames[2, 1, 1], cn.transport_along(flat, cn.straight_path((0, 0, 0), (2, 1, 1))))


def test_a_curved_connection_does_not_come_from_frames():  # RF-FLAT
    curved = random_grid(3, 3, d=2)
    frames = cn.to_frames(curved)
    close(frames[2, 1], cn.transport_along(curved, [(0, 0), (1, 0), (2, 0), (2, 1)]))
    again = cn.from_frames(frames, axes=2)
    close(again.steps[1], curved.steps[1], 1e-8)  # the paths run along these,
    assert (again.steps[0][:, 1:] - curved.steps[0][:, 1:]).abs().max() > 0.1  # and not along those
    assert cn.flatness_defect(curved) > 0.1


def test_a_change_of_gauge_conjugates_the_holonomy():  # RF-FLAT
    curved, change, loop = random_grid(3, 3, d=3), invertible(3, 3, d=3), cn.rectangle((1, 0), (1, 2))
    changed = cn.gauge_transform(curved, change)
    g = change[1, 0].numpy()
    expected = g @ cn.holonomy(curved, loop).numpy() @ np.linalg.inv(g)
    close(cn.holonomy(changed, loop), torch.from_numpy(expected))


@few
@given(st.integers(2, 7), st.integers(0, 10**6))
def test_every_connection_on_a_line_is_flat(nodes, seed):  # RF-FLAT
    line = random_grid(nodes, d=3)
    close(cn.holonomy(line, random_loop((nodes,), 15, seed)), torch.eye(3).double(), 1e-7)
    assert cn.flatness_defect(line) == 0


# Curved connections ---------------------------------------------------------------------------------------------------


def test_data_dependent_rotations_turn_by_the_curl_of_their_rates():  # RF-FLAT, CS-beta
    beta, theta = (double(3, 4), double(4, 3)), vec(1.0, 0.3)
    grid = cn.turning_steps(beta, theta)
    curl = beta[0][:, :-1] + beta[1][1:] - beta[0][:, 1:] - beta[1][:-1]
    expected = [[scipy.linalg.block_diag(*(_turn(c * t) for t in theta)) for c in row] for row in curl]
    close(cn.plaquettes(grid), torch.from_numpy(np.array(expected)))
    assert cn.flatness_defect(grid) > 0.1
    # Stokes: a large rectangle turns by the sum over the squares inside.
    total = curl[0:2, 1:3].sum()
    close(cn.holonomy(grid, cn.rectangle((0, 1), (2, 2)))[:2, :2], torch.from_numpy(_turn(total)))


def _turn(angle):
    return scipy.linalg.expm(np.array([[0.0, -float(angle)], [float(angle), 0.0]]))


@pytest.mark.parametrize("pair", list(itertools.combinations(range(3), 2)))
@pytest.mark.parametrize("factor", [0.5, -1.0, 2.0])
def test_the_defect_sees_each_pair_of_axes_and_what_shrinks(pair, factor):  # RF-FLAT
    one = torch.eye(2, dtype=torch.float64)
    steps = [one.expand(*(2 - (i == axis) for i in range(3)), 2, 2).clone() for axis in range(3)]
    other = next(axis for axis in range(3) if axis not in pair)
    steps[pair[0]].select(pair[1], 1).mul_(factor)  # the same for all cells of the other axis: curved in one plane
    connection = cn.Connection(tuple(steps))
    turn = cn.plaquettes(connection, *pair)
    assert torch.equal(cn.flatness_defect(connection), (turn - one).abs().max())
    assert cn.flatness_defect(connection) > 0.4
    for flat in itertools.combinations(range(3), 2):
        if other in flat:
            close(cn.plaquettes(connection, *flat), one.expand_as(cn.plaquettes(connection, *flat)))


def test_rates_that_are_a_gradient_give_a_flat_connection():  # RF-FLAT
    potential = double(4, 4)
    flat = cn.turning_steps([potential.diff(dim=0), potential.diff(dim=1)], vec(1.0, 0.3))
    close(cn.flatness_defect(flat), torch.zeros(()).double())


def test_generators_that_do_not_commute_curve_the_grid():  # LR-A1, RF-FLAT
    a, b = skew(2, d=3, size=0.4)
    squares = cn.plaquettes(cn.generator_steps(torch.stack([a, b]), (3, 3)))
    exp = scipy.linalg.expm
    expected = torch.from_numpy(exp(-b.numpy()) @ exp(-a.numpy()) @ exp(b.numpy()) @ exp(a.numpy()))
    close(squares, expected.expand(2, 2, 3, 3))
    commuting = torch.stack([plane_generator(vec(0.3, 0.7)), plane_generator(vec(-1.1, 0.2))])
    close(cn.flatness_defect(cn.generator_steps(commuting, (3, 3))), torch.zeros(()).double())


def test_holonomy_of_small_generators_is_their_commutator_to_third_order():  # LR-1, RF-FLAT
    a, b = skew(2, d=3)
    errors = []
    for size in (0.04, 0.02, 0.01):
        square = cn.plaquettes(cn.generator_steps(size * torch.stack([a, b]), (2, 2)))[0, 0]
        errors.append((square - torch.eye(3) - size**2 * (b @ a - a @ b)).abs().max().item())
    orders = [math.log2(coarse / fine) for coarse, fine in itertools.pairwise(errors)]
    assert all(2.9 < order < 3.1 for order in orders), orders


def test_squares_of_the_sphere_turn_by_curvature_times_area():  # RF-PT, RF-FLAT
    grid = cn.levi_civita(mf.sphere_spherical(), torch.linspace(0.8, 1.4, 3), torch.linspace(0, 0.5, 2))
    for step in grid.steps:
        close(step @ step.mT, torch.eye(2).double().expand_as(step), 1e-8)
    squares, theta = cn.plaquettes(grid), torch.linspace(0.8, 1.4, 3).double()
    area = (theta[:-1].cos() - theta[1:].cos()) * 0.5  # of a cell of the sphere, exactly
    angle = torch.atan2(squares[..., 1, 0], squares[..., 0, 0])
    close(angle, area[:, None], 1e-7)


def test_the_discrete_curvature_converges_to_the_second_order():  # RF-FLAT
    chart, point, errors = mf.torus(), vec(0.7, 0.2), []
    for side in (0.2, 0.1, 0.05):
        ends = vec(-side / 2, side / 2)
        square = cn.plaquettes(cn.levi_civita(chart, point[0] + ends, point[1] + ends))[0, 0]
        area = side**2 * torch.linalg.det(chart.metric_at(point)).sqrt()
        errors.append((torch.atan2(square[1, 0], square[0, 0]) / area - mf.torus_curvature(point[0])).abs().item())
    orders = [math.log2(coarse / fine) for coarse, fine in itertools.pairwise(errors)]
    assert all(1.9 < order < 2.1 for order in orders), orders


def test_the_levi_civita_connection_of_a_flat_metric_is_flat():  # RF-FLAT
    chart = mf.conformally_flat(lambda x: 0.4 * x[0] - 0.3 * x[1] + x[0] * x[1])  # harmonic exponent
    close(cn.flatness_defect(cn.levi_civita(chart, vec(0, 0.5, 1), vec(0, 0.7))), torch.zeros(()).double(), 1e-8)


# The rows against the ledger's formulas, written with SciPy -----------------------------------------------------------


def expm(matrix):
    return torch.from_numpy(scipy.linalg.expm(matrix.detach().numpy()))


@few
@given(places, places)
def test_row_of_rope_is_the_rotation_by_the_difference(m, n):  # RF-13
    theta = vec(1.0, 0.1)
    blocks = scipy.linalg.block_diag(*(_turn((n - m) * t) for t in theta))
    row = cn.rope_row(theta[:, None])
    close(row.bilinear_form(vec(m), vec(n)), torch.from_numpy(blocks), 1e-9)
    close(row.log_scale(vec(m), vec(n)), torch.zeros(()).double())


@few
@given(places, places, st.floats(0.7, 1.2))
def test_row_of_riemannformer_is_the_metric_times_its_transport(m, n, s):  # RF-7, RF-8, RF-9
    x = skew(d=4, size=0.3)

    def frame(i):
        return s ** (-i / 2) * expm(i * x)

    expected = s**m * frame(m) @ torch.linalg.inv(frame(n))  # M_m T_m T_n^-1
    row = cn.riemannformer_row(x[None], lambda p: p[0] * math.log(s))
    assert_close(row.bilinear_form(vec(m), vec(n)), expected, rtol=1e-8, atol=1e-8)
    close(row.log_scale(vec(m), vec(n)), vec((m + n) / 2 * math.log(s))[0])


def test_row_of_riemannformer_takes_axes_and_any_scale_law():  # RF-S, RF-6a
    theta_x, theta_y, p, q = vec(0.3, 0), vec(0, 0.7), vec(2, 5), vec(1, -3)
    planes = torch.stack([plane_generator(theta_x), plane_generator(theta_y)])
    row = cn.riemannformer_row(planes, lambda p: (1 + p[0]).log())
    expected = math.sqrt(3 * 2) * scipy.linalg.block_diag(_turn(0.3 * 1), _turn(0.7 * 8))
    close(row.bilinear_form(p, q), torch.from_numpy(expected))


@few
@given(places, places)
def test_row_of_the_general_metric_is_the_metric_times_its_transport(m, n):  # RF-A1 to RF-A5
    theta, s = 0.37, np.array([0.95, 1.03])

    def metric(i):
        return _turn(-i * theta) @ np.diag(s**i) @ _turn(i * theta)

    def frame(i):
        return _turn(-i * theta) @ np.diag(s ** (-i / 2))

    np.testing.assert_allclose(frame(m).T @ metric(m) @ frame(m), np.eye(2), atol=1e-9)  # RF-5
    row = cn.riemannformer_general_row(vec(theta)[:, None], torch.from_numpy(s).log()[:, None])
    expected = metric(m) @ frame(m) @ np.linalg.inv(frame(n))
    close(row.bilinear_form(vec(m), vec(n)), torch.from_numpy(expected), 1e-9)


@few
@given(places, places, places, places)
def test_row_of_liere_is_the_product_of_two_exponentials(a, b, c, d):  # LR-A1
    generators = skew(2, d=4, size=0.2)
    turned = [expm(x * generators[0] + y * generators[1]) for x, y in ((a, b), (c, d))]
    close(cn.liere_row(generators).bilinear_form(vec(a, b), vec(c, d)), turned[0].T @ turned[1], 1e-9)


@pytest.mark.parametrize("angle", [1e-3, 0.01, 0.03, 0.049, 0.3])
def test_rows_keep_their_digits_at_small_angles(angle):  # RF-13, LR-A1
    expected, X = torch.from_numpy(_turn(angle)), plane_generator(vec(1.0))
    for row in (
        cn.rope_row(vec(1.0)[:, None]),
        cn.liere_row(X[None]),
        cn.riemannformer_row(-X[None], lambda p: 0 * p[0]),
    ):
        close(row.bilinear_form(vec(0), vec(angle)), expected, 1e-14)


def test_rows_of_alibi_and_locality_scale_without_turning():  # CS-A1, RF-21
    m, n, shape = vec(3, 1), vec(1, 2), vec(2.0, 0.5, 0.5, 1.0).reshape(2, 2)
    alibi, locality = cn.alibi_row(4, 0.25), cn.locality_row(4, 1.5, shape)
    for row in (alibi, locality, cn.none_row(4)):
        close(row.bilinear_form(m, n), torch.eye(4).double())
    close(alibi.log_scale(vec(7), vec(3)).exp(), vec(math.exp(-0.25) ** 4)[0])
    close(alibi.log_scale(m, n), vec(-0.25 * 3)[0])  # two steps along one axis, one along the other
    close(locality.log_scale(m, n), vec(-(2 * 4 - 2 * 0.5 * 2 + 1) / (2 * 1.5**2))[0])
    close(cn.locality_row(4, 1.5).log_scale(m, n), vec(-5 / 4.5)[0])
    assert (alibi.acts, locality.acts, cn.none_row(4).acts) == (cn.INSIDE, cn.AFTER, cn.SCORE)


def conformal_data(tokens=7):
    gates, rates = 0.5 + 0.5 * torch.rand(tokens).double(), 2 * torch.rand(tokens).double()
    return gates, rates, vec(0.9, 0.2)


def test_row_of_conformal_sympow_is_its_recurrence():  # CS-gate, CS-beta, CS-conf, CS-2
    gates, rates, theta = conformal_data()
    row, q, k, power = cn.conformal_row(gates.log(), rates, theta), double(4), double(7, 4), 4
    mu = rates.cumsum(0)
    for m, n in ((6, 0), (5, 2), (3, 3)):
        # Keys turned by mu_n, queries by mu_m, and every gate passed on the way.
        turned_q, turned_k = (
            torch.from_numpy(scipy.linalg.block_diag(*(_turn(mu[i] * t) for t in theta))) @ x
            for i, x in ((m, q), (n, k[n]))
        )
        expected = math.prod(gates[n + 1 : m + 1].tolist()) * (turned_q @ turned_k) ** power
        transport, scale = row.transport(vec(m), vec(n)), row.log_scale(vec(m), vec(n)).exp()
        close(scale * (q @ transport @ k[n]) ** power, expected)


def features(x, power):
    """phi(x) from its definition: sqrt(multinomial) times the monomials."""
    entries = []
    for index in itertools.combinations_with_replacement(range(len(x)), power):
        orders = len(set(itertools.permutations(index)))
        entries.append(math.sqrt(orders) * math.prod(x[i].item() for i in index))
    return vec(*entries)


@pytest.mark.parametrize("power", [2, 3])
def test_lifted_row_is_linear_in_the_features(power):  # CS-P3, CS-3
    gates, rates, theta = conformal_data()
    below = cn.conformal_row(gates.log(), rates, theta)
    lifted = cn.lifted_conformal_row(gates.log(), rates, theta, power)
    q, k = double(2, 4)
    matrix = lifted.bilinear_form(vec(5), vec(2))
    assert matrix.shape == (math.comb(4 + power - 1, power),) * 2
    expected = below.log_scale(vec(5), vec(2)).exp() * (q @ below.transport(vec(5), vec(2)) @ k) ** power
    close(features(q, power) @ matrix @ features(k, power), expected)


def symmetric_basis(dim, power):
    """An orthonormal basis of the symmetric tensors inside the p-fold tensor power, (d^p, D)."""
    columns = {m: i for i, m in enumerate(itertools.combinations_with_replacement(range(dim), power))}
    basis = torch.zeros(dim**power, len(columns), dtype=torch.float64)
    for row, index in enumerate(itertools.product(range(dim), repeat=power)):
        orders = math.factorial(power) / math.prod(math.factorial(c) for c in Counter(index).values())
        basis[row, columns[tuple(sorted(index))]] = orders**-0.5
    return basis


def symmetric_lift(matrix, power):
    """The lift by its definition: the tensor power of a matrix, restricted to the symmetric tensors."""
    basis, tensor_power = symmetric_basis(matrix.shape[-1], power), matrix.double()
    for _ in range(power - 1):
        tensor_power = torch.kron(tensor_power, matrix.double())
    return basis.T @ tensor_power @ basis


def unnormalised_weights(q, k, *arguments):
    """The weights B_ij of the attention form before it divides by their sum, (batch, heads, tokens, tokens)."""
    unit = torch.eye(k.shape[2]).double().expand(*k.shape[:2], -1, -1)
    attended = rc.attention_form(q, k, unit, *arguments)
    return attended.output * attended.log_normaliser.exp()[..., None]


@pytest.mark.parametrize("power", [2, 4])
def test_symmetric_power_attention_computes_its_rows(power):  # CS-conf, CS-gate, CS-beta, CS-P3, CS-3
    layer = rc.SympowAttention(8, 2, power, longest=40.0).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter += torch.randn_like(parameter)
    x = double(5, 8)
    q, k, v = (t.unflatten(-1, (2, 4)).transpose(0, 1)[None] for t in layer.qkv(x).detach().chunk(3, -1))
    B = unnormalised_weights(q, k, power, layer.log_gates(x[None]).detach(), layer.turns(x[None]).detach())
    expected = torch.zeros_like(B)
    for head in range(2):
        read = cn.read_conformal(layer, x, head)
        row, lifted = cn.conformal_row(*read), cn.lifted_conformal_row(*read, power)
        for n, m in itertools.combinations_with_replacement(range(5), 2):
            pair = vec(m), vec(n)
            plain = row.log_scale(*pair).exp() * (q[0, head, m] @ row.transport(*pair) @ k[0, head, n]) ** power
            features_q, features_k = features(q[0, head, m], power), features(k[0, head, n], power)
            size = (features_q.norm() * features_k.norm()).item()
            close(features_q @ lifted.bilinear_form(*pair) @ features_k, plain, 1e-12 * size)
            expected[0, head, m, n] = plain
    assert_close(B, expected, rtol=1e-8, atol=1e-10)
    # And the layer as a whole, in its chunked form: the rows' weights, normalised.
    y = (expected / expected.sum(-1, keepdim=True)) @ v
    assert_close(layer(x[None])[0], layer.out(y.transpose(1, 2).flatten(2)), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("power", [2, 4])
def test_the_conformal_state_holds_keys_transported_by_the_lifted_row(power):  # CS-3, CS-1
    gates, rates, theta = conformal_data(5)
    lifted, keys, values = (
        cn.lifted_conformal_row(gates.log(), rates, theta, power),
        double(5, 4),
        torch.eye(5).double(),
    )
    state = rc.empty_state(keys[None, None], values[None, None], power)
    for i in range(5):
        q, k, v = (t[None, None] for t in (double(4), keys[i], values[i]))
        _, state = rc.conformal_step(state, q, k, v, power, gates[i].log()[None, None], (rates[i] * theta)[None, None])
    for j in range(5):  # row j of S belongs to the value e_j, so to key j alone
        close(state.S[0, 0, j], lifted.bilinear_form(vec(4), vec(j)) @ features(keys[j], power))


@few
@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 10**6))
def test_the_two_lifts_agree_entry_by_entry(d, power, seed):  # CS-P3
    matrix = torch.randn(d, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    ours = [tuple(m) for m in itertools.combinations_with_replacement(range(d), power)]
    order = [ours.index(tuple(m)) for m in sympow.variables(d, power).tolist()]
    assert_close(symmetric_lift(matrix, power)[order][:, order], sympow.lift(matrix, power), rtol=1e-9, atol=1e-9)


# Flatness across the table --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grid", [(3, 3), (2, 3, 2)], ids=["2d", "3d"])
@pytest.mark.parametrize("name", WITH_ROWS)
def test_every_method_that_carries_by_frames_is_flat_on_a_grid(name, grid):  # RF-FLAT
    encoding, identity = randomised(name, grid, {}), torch.eye(HEAD_DIM).double()
    points = [torch.sort(6 * torch.rand(n).double()).values for n in grid]
    positions = torch.cartesian_prod(*points)
    for head in range(HEADS):
        rows = cn.rows_of(encoding, HEAD_DIM, head, double(len(positions), WIDTH), positions)
        connection = cn.implied_connection(joined(rows), *points)
        far = tuple(n - 1 for n in grid)
        loop = cn.straight_path((0,) * len(grid), far) + cn.straight_path(far, (0,) * len(grid))[1:]
        close(cn.holonomy(connection, loop), identity, 1e-8)
        close(cn.flatness_defect(connection), torch.zeros(()).double(), 1e-8)
        # Flat, and not for want of transport: a step is the identity in the methods that do not turn alone.
        still = (connection.steps[0] - identity).abs().max() < 1e-12
        assert still == (not METHODS[name].turns)


def test_implied_transport_is_that_of_the_frames():  # RF-2, RF-8, RF-A3
    generators, log_s, theta, log_S = skew(1, d=4), math.log(0.9), double(2, 1), 0.1 * double(4, 1)

    def conformal(i):
        return 0.9 ** (-i / 2) * expm(i * generators[0])

    def general(i):
        turn = torch.from_numpy(scipy.linalg.block_diag(*(_turn(-i * t) for t in theta[:, 0])))
        return turn @ torch.diag((-i / 2 * log_S[:, 0]).exp())

    rows = cn.riemannformer_row(generators, lambda p: p[0] * log_s), cn.riemannformer_general_row(theta, log_S)
    for row, frame in zip(rows, (conformal, general)):
        steps = cn.implied_connection(row.bilinear_form, vec(0.5, 1.7, 4)).steps[0]
        close(steps[0], frame(1.7) @ torch.linalg.inv(frame(0.5)))
        close(steps[1], frame(4) @ torch.linalg.inv(frame(1.7)))


def test_data_dependent_steps_are_flat_on_a_line():  # RF-FLAT, CS-1, CS-3
    gates, rates, theta = conformal_data(6)
    line, row = cn.conformal_steps(gates.log(), rates, theta), cn.conformal_row(gates.log(), rates, theta)
    back_and_forth = [(i,) for i in (1, 2, 3, 4, 5, 4, 3, 2, 3, 2, 1)]
    close(cn.holonomy(line, back_and_forth), torch.eye(4).double())
    close(cn.transport_along(line, cn.straight_path((1,), (5,))), row.bilinear_form(vec(5), vec(1)))
    for step, implied in zip(line.steps, cn.implied_connection(row.bilinear_form, torch.arange(6.0)).steps):
        close(step, implied)
    lifted, (a, b, c) = cn.lifted_conformal_row(gates.log(), rates, theta, 2), (vec(0), vec(4), vec(2))
    close(lifted.bilinear_form(b, c) @ lifted.bilinear_form(c, a), lifted.bilinear_form(b, a))


def test_data_dependent_steps_are_curved_on_a_grid():  # RF-FLAT, CS-1, CS-beta
    layer, x = rc.SympowAttention(8, 1, longest=40.0).double(), double(3, 4, 8)
    with torch.no_grad():
        layer.W_gamma.weight.normal_()
        layer.W_beta.weight.normal_()
    log_gates, rates, theta = cn.read_conformal(layer, x.flatten(0, 1), head=0)
    log_gates, rates = log_gates.reshape(3, 4), rates.reshape(3, 4)
    grid = cn.conformal_steps(log_gates, rates, theta)
    squares = cn.plaquettes(grid)
    for i, j in itertools.product(range(2), range(3)):
        gate = (log_gates[i + 1, j] - log_gates[i, j + 1]).exp()
        turn = scipy.linalg.block_diag(*(_turn((rates[i, j + 1] - rates[i + 1, j]) * t) for t in theta))
        assert_close(squares[i, j], gate * torch.from_numpy(turn), rtol=1e-9, atol=1e-12)
        # The gates give holonomy in R_>0, the turns in SO(d), and on Sym^p the lift of both.
        close(sympow.lift(squares[i, j], 2), gate**2 * sympow.lift(torch.from_numpy(turn), 2))
    assert cn.flatness_defect(grid) > 0.1


def flat_rows():
    gates, rates, theta = conformal_data()
    return {
        "none": cn.none_row(4),
        "rope": cn.rope_row(theta[:, None]),
        "liere": cn.liere_row(skew(1, d=4)),
        "riemannformer": cn.riemannformer_row(skew(1, d=4), lambda p: 0.1 * p[0]),
        "conformal": cn.conformal_row(gates.log(), rates, theta),
        "lifted": cn.lifted_conformal_row(gates.log(), rates, theta, 2),
    }


@pytest.mark.parametrize("name", flat_rows())
def test_the_transport_of_every_row_does_not_depend_on_the_way(name):  # RF-FLAT
    transport, (a, b, c) = flat_rows()[name].transport, (vec(1), vec(6), vec(3))
    close(transport(c, b) @ transport(b, a), transport(c, a))
    close(transport(a, c) @ transport(c, a), torch.eye(transport(a, a).shape[0]).double())


def test_liere_in_two_dimensions_is_flat_and_its_steps_multiplied_up_are_not():  # RF-FLAT, LR-A1
    generators = skew(2, d=4, size=0.3)
    row, (a, b, c) = cn.liere_row(generators), double(3, 2)
    close(row.transport(c, b) @ row.transport(b, a), row.transport(c, a))
    assert cn.flatness_defect(cn.generator_steps(generators, (3, 3))) > 0.01


# The rows against the modules -----------------------------------------------------------------------------------------


WIDTH, HEADS, HEAD_DIM = 32, 2, 16
GRIDS = [(5,), (2, 3), (2, 1, 2)]
OPTIONS = [
    ("riemannformer", {"learn_angles": True, "law": "slow", "per_layer": True}),
    ("riemannformer", {"learn_angles": True, "per_head": False}),
    ("riemannformer-general", {"learn_angles": True, "law": "slow"}),
    ("riemannformer-diagonal", {"learn_angles": True, "law": "free", "per_head": False}),
    ("riemannformer+lf", {"lf": {"learn_precision": False}}),
    ("liere", {"block": 8, "share": "heads"}),
    ("rope-mixed", {"share": "all"}),
    ("riemannformer+lf", {"lf": {"per_layer": True, "per_position": True}}),
    ("liere+lf", {"lf": {"per_layer": True}}),
    ("alibi+lf+lf", {}),
    ("rope-axial+gauss", {"gauss": {"per_layer": True, "per_position": True}}),
    ("rope-axial+alibi", {}),
    ("liere+rmt+lf", {"rmt": {"slopes": "alibi"}}),
]
CASES = [*((name, {}) for name in WITH_ROWS), *((f"{name}+lf", {}) for name in WITH_ROWS), *OPTIONS]
every_method = pytest.mark.parametrize(("name", "options"), CASES, ids=[f"{n}{o or ''}" for n, o in CASES])
every_grid = pytest.mark.parametrize("grid", GRIDS, ids=["1d", "2d", "3d"])


def randomised(name, grid, options):
    """A method of two layers in float64, with all that it learns, and its frequencies, drawn at random."""
    encoding = build(name, width=WIDTH, heads=HEADS, grid=grid, layers=2, **options).double()
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter += 0.4 * torch.randn_like(parameter)
        for buffer_name, buffer in encoding.named_buffers():
            # Not the units of position, whole numbers, and not which entries of the frequencies are zero.
            if buffer.is_floating_point() and not buffer_name.endswith("follows"):
                buffer *= 0.5 + torch.rand_like(buffer)
    return encoding


def document(grid):
    """Features and real places of as many tokens as the grid has cells; above -1, where the slow law begins."""
    tokens = math.prod(grid)
    return double(tokens, WIDTH), 6 * torch.rand(tokens, len(grid)).double() - 0.9


def joined(rows):
    """The one matrix of the score of several rows."""
    return lambda p_m, p_n: functools.reduce(torch.matmul, [row.bilinear_form(p_m, p_n) for row in rows])


@every_grid
@every_method
def test_every_method_computes_its_rows(name, options, grid):  # RF-9, RF-13, RF-21, RF-A5, LR-A1, LR-A2, CS-A1, CS-gate
    encoding, (x, positions) = randomised(name, grid, options), document(grid)
    gates = measured_log_gates(encoding, x, positions, layer=1)
    attenuations = measured_log_attenuations(encoding, positions, layer=1)
    forms = measured_bilinear_forms(encoding, positions, HEAD_DIM, HEADS, layer=1)
    rows = [cn.rows_of(encoding, HEAD_DIM, head, x, positions, layer=1) for head in range(HEADS)]
    for m, n in itertools.product(range(4), repeat=2):
        pair = positions[m], positions[n]
        for head in range(HEADS):
            close(forms[m, n, head], joined(rows[head])(*pair))
            close(gates[min(head, len(gates) - 1), m, n], sum(row.log_gate(*pair) for row in rows[head]))
            expected = sum(row.log_attenuation(*pair) for row in rows[head])
            assert_close(attenuations[min(head, len(attenuations) - 1), m, n], expected, rtol=1e-10, atol=1e-10)
    # Nothing is left that the rows do not say, but for the vectors that two methods add to the embeddings.
    adds = not torch.equal(encoding.embed(x[None], torch.zeros_like(positions))[0], x)
    assert adds == (METHODS[name.split("+")[0]].added is not None)


@pytest.mark.parametrize("name", WITH_ROWS)
def test_a_row_says_its_method_and_what_is_learned(name):
    encoding, (x, positions) = build(name, width=WIDTH, heads=HEADS, grid=(2, 3)), document((2, 3))
    rows, said = cn.rows_of(encoding, HEAD_DIM, 0, x, positions), METHODS[name].rows
    assert [(row.method, row.learned.removesuffix("; the frequencies in RoPE-Mixed")) for row in rows] == list(said)
    assert any(learned != "nothing" for _, learned in said) == any(True for _ in encoding.parameters())


def test_rows_of_documents_say_their_method_and_what_is_learned():
    data = conformal_data()
    for row, method in (
        (cn.conformal_row(*data), "conformal-sympow"),
        (cn.lifted_conformal_row(*data, 2), "conformal-sympow, lifted"),
    ):
        assert (row.method, row.acts) == (method, cn.SCORE)
        assert row.learned == "gates and rates, from the data along the path"


@every_grid
@pytest.mark.parametrize("name", [name for name in WITH_ROWS if not METHODS[name].of_data])
def test_gates_and_attenuations_of_a_pair_are_those_of_its_document(name, grid):  # CS-A1, RF-19
    encoding, (x, positions) = randomised(f"{name}+lf", grid, {}), document(grid)
    gates = measured_log_gates(encoding, x, positions, layer=1)
    attenuations = measured_log_attenuations(encoding, positions, layer=1)
    pair = positions[3], positions[1]
    close(measured_log_gate(encoding, *pair, WIDTH, layer=1), gates[:, 3, 1])
    close(measured_log_attenuation(encoding, *pair, layer=1), attenuations[:, 3, 1])


def test_gates_of_a_document_are_sigmoids_multiplied_along_its_tokens():  # CS-gate
    encoding, (x, positions) = randomised("sympow-gates", (2, 3), {}), document((2, 3))
    weights = encoding.W_gamma.weight[1].detach().numpy()
    sigmoid = 1 / (1 + np.exp(-(x.numpy() @ weights) - encoding.gate_bias))
    (row,) = cn.rows_of(encoding, HEAD_DIM, 1, x, positions)
    got = row.log_gate(positions[4], positions[1]).exp()
    close(got, torch.tensor(sigmoid[2] * sigmoid[3] * sigmoid[4]), 1e-12)
    assert row.log_gate(positions[1], positions[4]) == -torch.inf  # a later key


def test_mixed_frequencies_have_one_row_for_each_head():  # LR-blk
    frequencies, m, n = double(3, 4, 2), vec(2, 1), vec(-1, 4)
    measured = measured_bilinear_form(RoPE(frequencies), m, n, 8, heads=3)
    close(measured, torch.stack([cn.rope_row(f).bilinear_form(m, n) for f in frequencies]))


class Novel(Encoding):
    """A method that nobody gave a row."""


class Lopsided(Encoding):
    """An encoding that treats queries and keys differently, with a gate and an attenuation."""

    class Placed(Placed):
        def __init__(self, positions):
            self.positions = positions

        def to_reference(self, q, k):
            return reflect_pairs(q, self.positions), 2 * k

        def log_gate(self, x):
            return self.positions - 3 * self.positions.T

        def attenuation(self):
            return (self.positions - 2 * self.positions.T).exp()

    def place(self, positions, keys=None):
        return self.Placed(positions)


def test_measured_form_predicts_every_score():
    q, k = double(2, 1, 1, 1, 2)
    score = torch.einsum("...i,hij,...j->...", q, measured_bilinear_form(Lopsided(), vec(5), vec(2), 2), k)
    moved = Lopsided().place(vec(5, 2)[:, None]).to_reference(torch.cat([q, q], 2), torch.cat([k, k], 2))
    close(score[..., 0], (moved[0][..., 0, :] * moved[1][..., 1, :]).sum(-1))
    close(measured_log_gate(Lopsided(), vec(5), vec(2), 2), vec(5 - 6))
    close(measured_log_attenuation(Lopsided(), vec(5), vec(2)), vec(5 - 4))


# Bad input ------------------------------------------------------------------------------------------------------------

GRID = cn.from_frames(torch.eye(2).expand(3, 3, 2, 2), axes=2)


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: cn.Connection((double(3, 2, 3),)), "steps"),
        (lambda: cn.Connection((double(2, 3, 2, 2), double(2, 3, 2, 2))), "steps"),
        (lambda: cn.Connection((invertible(2, 3, d=2), invertible(3, 2, d=3))), "steps"),
        (lambda: cn.Connection((torch.zeros(3, 2, 2),)), "steps"),
        (lambda: cn.Connection((torch.full((3, 2, 2), math.nan),)), "steps"),
        (lambda: cn.from_frames(torch.arange(9.0).reshape(1, 3, 3), axes=1), "frames"),
        (lambda: cn.from_frames(double(3, 2, 3), axes=1), "frames"),
        (lambda: cn.from_frames(double(2, 2), axes=1), "frames"),
        (lambda: cn.gauge_transform(GRID, invertible(3, 2, d=2)), "change"),
        (lambda: cn.gauge_transform(GRID, torch.zeros(3, 3, 2, 2)), "change"),
        (lambda: cn.transport_along(GRID, []), "path"),
        (lambda: cn.transport_along(GRID, [(0, 0), (1, 1)]), "path"),
        (lambda: cn.transport_along(GRID, [(0, 2), (0, 3)]), "path"),
        (lambda: cn.transport_along(GRID, [(0, 0), (-1, 0)]), "path"),
        (lambda: cn.holonomy(GRID, [(0, 0), (0, 1)]), "loop"),
        (lambda: cn.Connection((torch.ones(2, 1, 1, dtype=torch.long),)), "steps"),
        (lambda: cn.from_frames(torch.ones(2, 1, 1, dtype=torch.long), axes=1), "frames"),
        (lambda: cn.gauge_transform(GRID, torch.eye(2, dtype=torch.long).expand(3, 3, 2, 2)), "change"),
        (lambda: cn.plaquettes(GRID, 0, 0), "axes"),
        (lambda: cn.plaquettes(GRID, 0, 2), "axes"),
        (lambda: cn.plaquettes(GRID, 2, 0), "axes"),
        (lambda: cn.generator_steps(skew(2, d=2), (3,)), "shape"),
        (lambda: cn.levi_civita(mf.torus(), vec(0, 1)), "coordinates"),
        (lambda: cn.levi_civita(mf.half_plane(), vec(0, 1), vec(-1, 1)), "points"),
        (lambda: cn.Row("x", None, None, "everywhere", ""), "acts"),
        (lambda: cn.locality_row(4, -1.0), "sigma"),
        (lambda: cn.conformal_row(*conformal_data()).log_scale(vec(1), vec(2)), "p_n"),
        (lambda: measured_bilinear_form(Encoding(), vec(1, 2), vec(1), 4), "p_m"),
        (lambda: cn.rows_of(Novel(), 8), "encoding"),
        (lambda: cn.rows_of(build("sympow-gates", width=8, heads=1, grid=(4,)), 8), "x"),
        (lambda: cn.rows_of(build("sympow-gates", width=8, heads=1, grid=(4,)), 8, 0, double(4, 8)), "positions"),
        (lambda: cn.rows_of(build("compass", width=8, heads=1, grid=(4,)), 8, 0, double(4, 8)), "positions"),
        (lambda: cn.rows_of(build("compass", width=8, heads=1, grid=(4,)), 8), "x"),
        (lambda: cn.rows_of(build("lf", width=8, heads=1, grid=(2,), per_position=True), 8), "positions"),
        (lambda: cn.gated_row(double(2), double(4, 1), vec(1, 2)[:, None]).log_gate(vec(1), vec(3)), "p"),
        (lambda: cn.gated_row(double(2), double(4, 1), vec(1, 1)[:, None]).log_gate(vec(1), vec(1)), "p"),
    ],
)
def test_bad_input_is_named(call, argument):
    with pytest.raises(ValueError, match=f"^{argument}: got ") as error:
        call()
    assert ("got None" in str(error.value)) == (argument in ("x", "positions"))  # it tells what came


def test_a_connection_without_steps_or_cells_and_a_loop_without_nodes_are_named_by_what_came():
    for steps, message in (
        ((), "steps: got none; one tensor for each axis of the grid$"),
        ((double(2, 2),) * 2, r"steps: got shape \(2, 2\) on axis 0; it must be \(..., 2 grid dimensions"),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            cn.Connection(steps)
    with pytest.raises(ValueError, match=r"^loop: got no node; it must have at least one$"):
        cn.holonomy(GRID, [])


def test_rows_of_rope_with_frequencies_of_each_head_are_that_heads():
    speeds = torch.rand(2, 4, 1)
    for head in range(2):
        (row,), (wanted,) = (cn.rows_of(RoPE(x), head_dim=8, head=head) for x in (speeds, speeds[head]))
        p, n = torch.tensor([0.3]), torch.tensor([2.0])
        assert_close(row.bilinear_form(p, n), wanted.bilinear_form(p, n))
