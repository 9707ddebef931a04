"""Discrete connections against NumPy products and closed forms; flatness of the methods; steps read from data."""

import itertools
import math

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from methods import METHODS
from often import close, double, refuses, vec
from oracles import turn
from sequences import plane_rotations
from torch.testing import assert_close

from geolib import connection as cn
from geolib import manifolds as mf
from geolib import recurrence as rc
from geolib import sympow
from geolib.encodings import build
from geolib.rotations import plane_generator

torch.set_num_threads(1)
few = settings(deadline=None, max_examples=15)


def eye(size):
    return torch.eye(size, dtype=torch.float64)


def invertible(*shape, d):
    """Matrices with singular values near 1."""
    return eye(d) + 0.3 * double(*shape, d, d) / d**0.5


def skew(*shape, d, size=1.0):
    upper = size * double(*shape, d, d)
    return upper - upper.mT


def random_grid(*shape, d):
    """A connection with every step drawn at random: curved."""
    cells = [[n - (i == a) for i, n in enumerate(shape)] for a in range(len(shape))]
    return cn.Connection(tuple(invertible(*c, d=d) for c in cells))


def random_loop(shape, seed):
    """Straight from one random node to another, several times, and back to the first."""
    corners = np.random.default_rng(seed).integers(shape, size=(5, len(shape))).tolist()
    ways = [cn.straight_path(a, b)[1:] for a, b in itertools.pairwise([*corners, corners[0]])]
    return [tuple(corners[0]), *itertools.chain(*ways)]


def shapes(axes):
    return st.lists(st.integers(2, 4), min_size=axes, max_size=axes).map(tuple)


# Path-ordered products ------------------------------------------------------------------------------------------------


def test_transport_is_the_ordered_product_of_the_steps():  # RF-2
    grid = random_grid(3, 4, d=3)
    east, north = (s.numpy() for s in grid.steps)
    path = [(0, 1), (1, 1), (1, 2), (0, 2), (0, 1)]
    expected = np.linalg.inv(east[0, 2] @ north[0, 1]) @ north[1, 1] @ east[0, 1]
    close(cn.transport_along(grid, path), torch.from_numpy(expected))


def test_a_path_taken_backwards_gives_the_inverse():  # RF-2
    grid, path = random_grid(3, 3, 2, d=2), [(0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 1, 1), (2, 1, 1)]
    close(cn.transport_along(grid, path[::-1]) @ cn.transport_along(grid, path), eye(2))
    close(cn.transport_along(grid, path[:1]), eye(2))
    close(cn.holonomy(grid, path[:1]), eye(2))


def test_a_batch_of_connections_gives_what_each_gives_alone():
    batch = cn.Connection((invertible(5, 2, 2, 3, d=2), invertible(5, 2, 3, 2, d=2)))
    one, change = cn.Connection(tuple(s[3, 1] for s in batch.steps)), invertible(5, 2, 3, 3, d=2)
    assert batch.shape == one.shape == (3, 3)
    for made in (lambda c: cn.holonomy(c, cn.rectangle((0, 1), (2, 1))), cn.plaquettes, cn.to_frames):
        close(made(batch)[3, 1], made(one))
    for many, alone in zip(cn.gauge_transform(batch, change).steps, cn.gauge_transform(one, change[3, 1]).steps):
        close(many[3, 1], alone)


@pytest.mark.parametrize("axes", list(itertools.permutations(range(3), 2)))
def test_plaquettes_are_the_holonomies_of_the_unit_squares(axes):  # RF-FLAT
    grid, ahead = random_grid(2, 3, 4, d=3), [tuple(int(i == axis) for i in range(3)) for axis in axes]
    squares = cn.plaquettes(grid, *axes)
    assert squares.shape == (*(n - (i in axes) for i, n in enumerate((2, 3, 4))), 3, 3)
    for start in np.ndindex(*squares.shape[:3]):
        way = np.cumsum([start, *ahead, *np.negative(ahead)], 0)  # along the first axis, then along the second
        close(squares[start], cn.holonomy(grid, [tuple(node) for node in way.tolist()]))


# Flatness -------------------------------------------------------------------------------------------------------------


@few
@given(st.integers(1, 3).flatmap(shapes), st.integers(1, 4), st.integers(0, 10**6))
def test_a_connection_from_frames_has_no_holonomy(shape, d, seed):  # RF-FLAT
    connection = cn.from_frames(invertible(*shape, d=d), axes=len(shape))
    assert connection.shape == shape
    close(cn.holonomy(connection, random_loop(shape, seed)), eye(d), 1e-8)
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
    close(cn.holonomy(connection, cn.rectangle((0, 0), (2, 2))), eye(4))


def test_a_flat_connection_on_a_grid_comes_from_frames():  # RF-FLAT
    flat = cn.gauge_transform(cn.from_frames(invertible(4, 3, 2, d=3), axes=3), invertible(4, 3, 2, d=3))
    frames = cn.to_frames(flat)
    close(frames[0, 0, 0], eye(3))
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
    close(cn.holonomy(line, random_loop((nodes,), seed)), eye(3), 1e-7)
    assert cn.flatness_defect(line) == 0


# Curved connections ---------------------------------------------------------------------------------------------------


def test_data_dependent_rotations_turn_by_the_curl_of_their_rates():  # RF-FLAT, CS-beta
    beta, theta = (double(3, 4), double(4, 3)), vec(1.0, 0.3)
    grid = cn.turning_steps(beta, theta)
    curl = beta[0][:, :-1] + beta[1][1:] - beta[0][:, 1:] - beta[1][:-1]
    expected = [[plane_rotations(c * theta) for c in row] for row in curl]
    close(cn.plaquettes(grid), torch.from_numpy(np.array(expected)))
    assert cn.flatness_defect(grid) > 0.1
    potential = double(4, 4)  # rates that are a gradient have no curl
    flat = cn.turning_steps([potential.diff(dim=0), potential.diff(dim=1)], theta)
    close(cn.flatness_defect(flat), torch.zeros(()).double())
    # Stokes: a large rectangle turns by the sum over the squares inside.
    total = curl[0:2, 1:3].sum()
    close(cn.holonomy(grid, cn.rectangle((0, 1), (2, 2)))[:2, :2], torch.from_numpy(turn(total)))


@pytest.mark.parametrize("pair", list(itertools.combinations(range(3), 2)))
@pytest.mark.parametrize("factor", [0.5, -1.0, 2.0])
def test_the_defect_sees_each_pair_of_axes_and_what_shrinks(pair, factor):  # RF-FLAT
    one = eye(2)
    steps = [one.expand(*(2 - (i == axis) for i in range(3)), 2, 2).clone() for axis in range(3)]
    other = next(axis for axis in range(3) if axis not in pair)
    steps[pair[0]].select(pair[1], 1).mul_(factor)  # the same for all cells of the other axis: curved in one plane
    connection = cn.Connection(tuple(steps))
    assert torch.equal(cn.flatness_defect(connection), (cn.plaquettes(connection, *pair) - one).abs().max())
    assert cn.flatness_defect(connection) > 0.4
    for axis in pair:
        flat = cn.plaquettes(connection, axis, other)
        close(flat, one.expand_as(flat))


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
    assert all(2.9 < math.log2(coarse / fine) < 3.1 for coarse, fine in itertools.pairwise(errors)), errors


def test_squares_of_the_sphere_turn_by_curvature_times_area():  # RF-PT, RF-FLAT
    grid = cn.levi_civita(mf.sphere_spherical(), torch.linspace(0.8, 1.4, 3), torch.linspace(0, 0.5, 2))
    for step in grid.steps:
        close(step @ step.mT, eye(2).expand_as(step), 1e-8)
    squares, theta = cn.plaquettes(grid), torch.linspace(0.8, 1.4, 3).double()
    area = (theta[:-1].cos() - theta[1:].cos()) * 0.5  # of a cell of the sphere, exactly
    angle = torch.atan2(squares[..., 1, 0], squares[..., 0, 0])
    close(angle, area[:, None], 1e-7)


# Flatness of the methods, and steps read from data -------------------------------------------------------------------

WIDTH, HEADS, HEAD_DIM = 32, 2, 16


def randomised(name, grid):
    """A method in float64, with all that it learns, and its frequencies, drawn at random."""
    encoding = build(name, width=WIDTH, heads=HEADS, grid=grid).double()
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter += 0.4 * torch.randn_like(parameter)
        for label, buffer in encoding.named_buffers():
            if label.endswith("frequencies"):
                buffer *= 0.5 + torch.rand_like(buffer)
    return encoding.requires_grad_(False)


def measured(encoding, positions, head):
    """B with score = q_m^T B k_n, read off by feeding basis vectors, (queries, keys, head_dim, head_dim)."""
    basis = eye(HEAD_DIM)[:, None, None].expand(-1, HEADS, len(positions), -1)
    q, k = encoding.place(positions).layer(0).to_reference(basis, basis)
    return torch.einsum("imd,jnd->mnij", q[:, head], k[:, head])


@pytest.mark.parametrize("grid", [(3, 3), (2, 3, 2)], ids=["2d", "3d"])
@pytest.mark.parametrize("name", [name for name in METHODS if name != "compass"])
def test_every_method_that_carries_by_frames_is_flat_on_a_grid(name, grid):  # RF-FLAT
    encoding, identity = randomised(name, grid), eye(HEAD_DIM)
    points = [torch.arange(n).double() for n in grid] if METHODS[name].of_cells else [6 * double(n) for n in grid]
    for head in range(HEADS):

        def form(m, n, head=head):
            return measured(encoding, torch.stack([m, n]), head)[0, 1]

        connection = cn.implied_connection(form, *points)
        far = tuple(n - 1 for n in grid)
        loop = cn.straight_path((0,) * len(grid), far) + cn.straight_path(far, (0,) * len(grid))[1:]
        close(cn.holonomy(connection, loop), identity, 1e-7)
        close(cn.flatness_defect(connection), torch.zeros(()).double(), 1e-7)
        # Flat, and not for want of transport: a step is the identity in the methods that do not turn alone.
        still = (connection.steps[0] - identity).abs().max() < 1e-12
        assert still == (not METHODS[name].turns)


def test_implied_transport_is_that_of_the_frames():  # RF-2, RF-8, RF-A3
    X, theta, S = skew(d=4).numpy(), double(2), (0.1 * double(4)).exp().numpy()

    def conformal(i):
        return 0.9 ** (-i / 2) * scipy.linalg.expm(i * X), 0.9**i * np.eye(4)

    def general(i):
        back = plane_rotations(-i * theta)
        return back @ np.diag(S ** (-i / 2)), back @ np.diag(S**i) @ back.T

    for pair in (conformal, general):

        def form(m, n, pair=pair):
            (T, M), (U, _) = pair(m.item()), pair(n.item())
            return torch.from_numpy(M @ T @ np.linalg.inv(U))

        steps = cn.implied_connection(form, vec(0.5, 1.7, 4)).steps[0]
        for step, (n, m) in zip(steps, ((0.5, 1.7), (1.7, 4))):
            close(step, torch.from_numpy(pair(m)[0] @ np.linalg.inv(pair(n)[0])))


def conformal_layer(power=2, heads=1):
    """A layer in float64 whose gates and turns depend on the data."""
    layer = rc.SympowAttention(8, heads, power, longest=40.0).double().requires_grad_(False)
    layer.W_gamma.weight.normal_()
    layer.W_beta.weight.normal_()
    return layer


@pytest.mark.parametrize("power", [2, 4])
def test_symmetric_power_attention_carries_keys_along_its_steps(power):  # CS-conf, CS-gate, CS-beta, CS-2, CS-3
    layer, x = conformal_layer(power, heads=2), double(5, 8)
    q, k, v = (t.unflatten(-1, (2, 4)).transpose(0, 1) for t in layer.qkv(x).chunk(3, -1))
    weights = torch.zeros(2, 5, 5).double()
    for head in range(2):
        # Gates and rates by their formulas: a sigmoid, and 1 + tanh.
        gates = 1 / (1 + (-(x @ layer.W_gamma.weight[head]) - layer.gate_bias).exp())
        rates = 1 + (x @ layer.W_beta.weight[head]).tanh()
        line = cn.conformal_steps(gates.log(), rates, layer.frequencies[:, 0])
        for n, m in itertools.combinations_with_replacement(range(5), 2):
            scale, carried = gates[n + 1 : m + 1].prod(), cn.transport_along(line, cn.straight_path((n,), (m,)))
            weights[head, m, n] = scale * (q[head, m] @ (carried / scale) @ k[head, n]) ** power
    y = (weights / weights.sum(-1, keepdim=True)) @ v
    assert_close(layer(x[None])[0][0], layer.out(y.transpose(0, 1).flatten(1)), rtol=1e-7, atol=1e-8)


def test_data_dependent_steps_are_flat_on_a_line():  # RF-FLAT, CS-1, CS-3
    gates, rates, theta = 0.5 + 0.5 * torch.rand(6).double(), 2 * torch.rand(6).double(), vec(0.9, 0.2)
    line = cn.conformal_steps(gates.log(), rates, theta)
    back_and_forth = [(i,) for i in (1, 2, 3, 4, 5, 4, 3, 2, 3, 2, 1)]
    close(cn.holonomy(line, back_and_forth), eye(4))
    back = torch.from_numpy(plane_rotations(-rates[2:].sum() * theta))  # R(c theta)^T
    close(cn.transport_along(line, cn.straight_path((1,), (5,))), gates[2:].prod() * back)


def test_data_dependent_steps_are_curved_on_a_grid():  # RF-FLAT, CS-1, CS-beta
    layer, x = conformal_layer(), double(12, 8)
    log_gates, theta = layer.log_gates(x[None])[0, 0].reshape(3, 4), layer.frequencies[:, 0]
    rates = (layer.turns(x[None])[0, 0, :, 0] / theta[0]).reshape(3, 4)
    grid = cn.conformal_steps(log_gates, rates, theta)
    squares = cn.plaquettes(grid)
    for i, j in itertools.product(range(2), range(3)):
        gate = (log_gates[i + 1, j] - log_gates[i, j + 1]).exp()
        turned = torch.from_numpy(plane_rotations((rates[i, j + 1] - rates[i + 1, j]) * theta))
        assert_close(squares[i, j], gate * turned, rtol=1e-9, atol=1e-12)
        # The gates give holonomy in R_>0, the turns in SO(d), and on Sym^p the lift of both.
        close(sympow.lift(squares[i, j], 2), gate**2 * sympow.lift(turned, 2))
    assert cn.flatness_defect(grid) > 0.1


# Bad input ------------------------------------------------------------------------------------------------------------

GRID = cn.from_frames(torch.eye(2).expand(3, 3, 2, 2), axes=2)


test_bad_input_is_named = refuses(
    (lambda: cn.Connection(()), "steps"),
    (lambda: cn.Connection((double(3, 2, 3),)), "steps"),
    (lambda: cn.holonomy(GRID, []), "loop"),
    (lambda: cn.Connection((invertible(2, 3, d=2), invertible(3, 2, d=3))), "steps"),
    (lambda: cn.Connection((torch.zeros(3, 2, 2),)), "steps"),
    (lambda: cn.gauge_transform(GRID, invertible(3, 2, d=2)), "change"),
    (lambda: cn.gauge_transform(GRID, torch.zeros(3, 3, 2, 2)), "change"),
    (lambda: cn.transport_along(GRID, []), "path"),
    (lambda: cn.transport_along(GRID, [(0, 0), (1, 1)]), "path"),
    (lambda: cn.transport_along(GRID, [(0, 0), (-1, 0)]), "path"),
    (lambda: cn.holonomy(GRID, [(0, 0), (0, 1)]), "loop"),
    (lambda: cn.from_frames(torch.ones(2, 1, 1, dtype=torch.long), axes=1), "frames"),
    (lambda: cn.plaquettes(GRID, 0, 0), "axes"),
    (lambda: cn.generator_steps(skew(2, d=2), (3,)), "shape"),
    (lambda: cn.levi_civita(mf.half_plane(), vec(0, 1), vec(-1, 1)), "points"),
)
