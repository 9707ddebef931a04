"""Christoffel symbols, geodesics, transport and holonomy against closed forms, R^3 and conserved quantities."""

import itertools
import math
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from afresh import Started
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.func import jacfwd
from torch.testing import assert_close

from geolib import manifolds as mf
from geolib.manifolds._shortest import exact_velocity, first_velocity, shortened
from geolib.manifolds._solver import pull
from geolib.rotations import rotation_matrix
from geolib.transport import rotation_preset, transports

torch.set_num_threads(1)
few = settings(deadline=None, max_examples=12)
coordinates = st.floats(-0.6, 0.6)


def vec(*values):
    return torch.tensor(values, dtype=torch.float64)


def double(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def close(a, b, atol=1e-8):
    assert_close(a, b, atol=atol, rtol=0)


def bumpy(x):
    """A conformal factor with no symmetry."""
    return 0.3 * (2 * x[0]).sin() * x[1] + 0.2 * x[0] ** 2


def skewed_metric(x):
    """A metric of three dimensions with no symmetry and no zero entries."""
    root = torch.stack([1 + 0.1 * x[1] ** 2, 0.3 * x[2].sin(), 0.2 * x[0], 0 * x[0] + 0.1, 1.2 + 0.2 * x[0] * x[1]])
    lower = torch.zeros(3, 3, dtype=x.dtype)
    rows = [
        torch.stack([root[0], lower[0, 0], lower[0, 0]]),
        torch.stack([root[1], root[4], lower[0, 0]]),
        torch.stack([root[2], root[3], 1 + 0.3 * (x[0] + x[2]).cos() ** 2]),
    ]
    factor = torch.stack(rows)
    return factor @ factor.T


SKEWED = mf.Chart(3, skewed_metric, name="skewed")
POLAR = mf.Chart(
    2, lambda x: torch.diag(torch.stack([1 + 0 * x[0], x[0] ** 2])), lambda x: x[..., 0], (0.0, 2 * math.pi)
)
SURFACES = {
    "spherical": (mf.sphere_spherical(), vec(1.1, 0.4)),
    "stereographic": (mf.sphere_stereographic(), vec(0.3, -0.4)),
    "half-plane": (mf.half_plane(), vec(0.3, 1.2)),
    "disk": (mf.poincare_disk(), vec(0.2, -0.4)),
    "torus": (mf.torus(), vec(0.7, 0.2)),
    "bumpy": (mf.conformally_flat(bumpy), vec(0.2, 0.5)),
    "polar": (POLAR, vec(1.3, 0.2)),
}
every_surface = pytest.mark.parametrize(("chart", "point"), SURFACES.values(), ids=SURFACES)


# The connection of the metric ----------------------------------------------------------------------------------------


def test_christoffel_symbols_of_the_sphere():  # RF-PT
    theta = vec(0.4, 1.1, 2.5)
    gamma = mf.christoffel(mf.sphere_spherical(1.7), torch.stack([theta, vec(0.0, 1.0, 9.0)], -1))
    expected = torch.zeros(3, 2, 2, 2, dtype=torch.float64)
    expected[:, 0, 1, 1] = -theta.sin() * theta.cos()
    expected[:, 1, 0, 1] = expected[:, 1, 1, 0] = 1 / theta.tan()
    close(gamma, expected, 1e-12)


def test_christoffel_symbols_of_the_half_plane():  # RF-PT
    gamma = mf.christoffel(mf.half_plane(), vec(0.7, 2.0))
    expected = torch.zeros(2, 2, 2, dtype=torch.float64)
    expected[0, 0, 1] = expected[0, 1, 0] = expected[1, 1, 1] = -1 / 2.0
    expected[1, 0, 0] = 1 / 2.0
    close(gamma, expected, 1e-12)


@few
@given(coordinates, coordinates, coordinates)
def test_the_connection_is_without_torsion_and_keeps_the_metric(x, y, z):  # RF-PT
    point = vec(x, y, z)
    gamma, g = mf.christoffel(SKEWED, point), SKEWED.metric_at(point)
    close(gamma, gamma.transpose(-1, -2), 1e-12)
    h = 1e-5
    for k, direction in enumerate(h * torch.eye(3).double()):
        # Central differences, not automatic ones: d_k g_ij = Gamma_ik^l g_lj + Gamma_jk^l g_il.
        slope = (SKEWED.metric_at(point + direction) - SKEWED.metric_at(point - direction)) / (2 * h)
        turned = gamma[:, k, :].T @ g
        close(slope, turned + turned.T, 1e-8)


POINTWISE = {
    "metric": lambda x: SKEWED.metric_at(x),
    "christoffel": lambda x: mf.christoffel(SKEWED, x),
    "riemann": lambda x: mf.riemann(SKEWED, x),
    "sectional": lambda x: mf.sectional_curvature(SKEWED, x, x.roll(1, -1) + 1, x.cos()),
    "gaussian": lambda x: mf.gaussian_curvature(mf.torus(), x[..., :2]),
    "frame": lambda x: mf.orthonormal_frame(SKEWED, x),
    "norm": lambda x: mf.norm(SKEWED, x, x.cos()),
    "conformal christoffel": lambda x: mf.conformal_christoffel(bump_in_space, x),
    "conformal sectional": lambda x: mf.conformal_sectional_curvature(bump_in_space, x, x.roll(1, -1) + 1, x.cos()),
    "conformal curvature": lambda x: mf.conformal_curvature(bumpy, x[..., :2]),
    "angle": lambda x: mf.rotation_angle(mf.torus(), x[..., :2], rotation_matrix(x[..., 2])),
    "latitude transport": lambda x: mf.latitude_transport(x[..., 0], x[..., 1]),
    "great circle": lambda x: mf.great_circle(x, x.roll(1, -1) - 1, x[..., :1]),
    "hyperbola": lambda x: mf.hyperbola(x, x + vec(2, 1, 0).to(x), x[..., :1]),
    "spherical area": lambda x: mf.spherical_area(*(F.normalize(x.roll(i, -1) + i, dim=-1) for i in range(3))),
}


@pytest.mark.parametrize("name", POINTWISE)
@pytest.mark.parametrize("given", [torch.float64, torch.float32])
def test_many_points_at_once_are_what_each_is_alone(name, given):
    at, points = POINTWISE[name], (0.6 * torch.rand(2, 4, 3) + 0.1).to(given)
    together = at(points)
    assert together.shape[:2] == (2, 4)
    for i, j in ((0, 0), (0, 3), (1, 2)):
        assert_close(together[i, j], at(points[i, j]), rtol=1e-6, atol=1e-12)
    if name not in (
        "angle",
        "power transport",
        "spherical area",
        "great circle",
        "hyperbola",
    ):  # closed forms keep the dtype that came
        assert together.dtype == torch.float64


# Curvature ------------------------------------------------------------------------------------------------------------


@few
@given(st.floats(0.2, 2.9), st.floats(0.5, 3.0))
def test_sphere_has_curvature_one_over_radius_squared(theta, radius):  # RF-PT
    for chart, point in (
        (mf.sphere_spherical(radius), vec(theta, 1.0)),
        (mf.sphere_stereographic(radius), vec(theta, 1)),
    ):
        close(mf.gaussian_curvature(chart, point), vec(radius**-2)[0], 1e-9)


@few
@given(coordinates, coordinates)
def test_hyperbolic_plane_has_curvature_minus_one(x, y):  # RF-PT
    close(mf.gaussian_curvature(mf.poincare_disk(), vec(x, y)), vec(-1)[0], 1e-9)
    close(mf.gaussian_curvature(mf.half_plane(), vec(x, y + 1)), vec(-1)[0], 1e-9)


def test_curvature_of_the_torus_and_its_integral():  # RF-PT
    theta = torch.linspace(0, 2 * math.pi, 33, dtype=torch.float64)[:-1]
    points = torch.stack([theta, 0 * theta], -1)
    curvature = mf.gaussian_curvature(mf.torus(3.0, 1.2), points)
    close(curvature, mf.torus_curvature(theta, 3.0, 1.2), 1e-12)
    density = torch.linalg.det(mf.torus(3.0, 1.2).metric_at(points)).sqrt()
    close((curvature * density).sum(), vec(0)[0], 1e-12)  # Gauss and Bonnet: the torus has Euler number 0


@few
@given(coordinates, coordinates)
def test_conformal_curvature_is_minus_the_laplacian_rescaled(x, y):  # RF-FLAT
    point = vec(x, y)
    by_metric = mf.gaussian_curvature(mf.conformally_flat(bumpy), point)
    close(by_metric, mf.conformal_curvature(bumpy, point), 1e-10)
    # By hand: f_xx + f_yy = -1.2 sin(2x) y + 0.4, and f as in bumpy.
    f = 0.3 * math.sin(2 * x) * y + 0.2 * x * x
    close(by_metric, vec(-math.exp(-2 * f) * (0.4 - 1.2 * math.sin(2 * x) * y))[0], 1e-10)


def test_a_metric_that_varies_can_be_flat():  # RF-FLAT, RF-6
    def harmonic(x):
        return x[0].exp() * x[1].cos() / 4 + 0.7 * x[0]

    points = double(5, 2)
    chart = mf.conformally_flat(harmonic)
    assert chart.metric_at(points)[:, 0, 0].std() > 0.1
    close(mf.gaussian_curvature(chart, points), torch.zeros(5, dtype=torch.float64), 1e-10)
    close(mf.holonomy(chart, mf.circle(vec(0.3, 0.1), 0.5)), torch.eye(2).double())


def test_riemann_tensor_has_its_symmetries():  # RF-PT
    point = vec(0.3, -0.2, 0.5)
    tensor = torch.einsum("al,lkij->akij", SKEWED.metric_at(point), mf.riemann(SKEWED, point))
    assert tensor.abs().max() > 0.01
    close(tensor, -tensor.transpose(0, 1), 1e-12)
    close(tensor, tensor.permute(2, 3, 0, 1), 1e-12)
    close(tensor + tensor.permute(0, 2, 3, 1) + tensor.permute(0, 3, 1, 2), torch.zeros_like(tensor), 1e-12)


def test_three_sphere_has_constant_curvature():  # RF-PT
    chart = mf.conformally_flat(lambda x: (2 / (1 + x @ x)).log(), dim=3)
    point, (a, b, c) = vec(0.2, -0.5, 0.4), double(3, 3)
    g = chart.metric_at(point)
    turned = torch.einsum("lkij,k,i,j->l", mf.riemann(chart, point), c, a, b)
    close(turned, (b @ g @ c) * a - (a @ g @ c) * b, 1e-10)


# Geodesics against closed forms ---------------------------------------------------------------------------------------

TIMES = torch.linspace(0, 1.5, 4, dtype=torch.float64)


def push(embedding, point, velocity):
    """The derivative of an embedding, applied to a velocity."""
    return jacfwd(embedding)(point) @ velocity


@pytest.mark.parametrize(
    ("chart", "embedding", "closed_form", "point"),
    [
        (mf.sphere_spherical(), mf.embed_spherical, mf.great_circle, vec(1.2, 0.4)),
        (mf.sphere_stereographic(), mf.embed_stereographic, mf.great_circle, vec(0.2, -0.5)),
        (mf.poincare_disk(), mf.embed_disk, mf.hyperbola, vec(0.2, -0.5)),
        (mf.half_plane(), lambda x: mf.embed_disk(mf.half_plane_to_disk(x)), mf.hyperbola, vec(0.4, 1.5)),
    ],
    ids=["spherical", "stereographic", "disk", "half-plane"],
)
def test_geodesics_are_great_circles_and_hyperbolas(chart, embedding, closed_form, point):  # RF-PT
    velocity = vec(0.3, 0.5)
    positions, velocities = mf.geodesic(chart, point, velocity, TIMES)
    expected = closed_form(embedding(point), push(embedding, point, velocity), TIMES[:, None])
    close(embedding(positions), expected)
    close(mf.norm(chart, positions, velocities), mf.norm(chart, point, velocity).expand(4))


def test_geodesics_of_the_polar_plane_are_straight_lines():  # RF-PT
    def cartesian(x):
        return torch.stack([x[..., 0] * x[..., 1].cos(), x[..., 0] * x[..., 1].sin()], -1)

    point, velocity = vec(1.0, 0.3), vec(-0.4, 0.8)
    positions, _ = mf.geodesic(POLAR, point, velocity, TIMES)
    close(cartesian(positions), cartesian(point) + TIMES[:, None] * push(cartesian, point, velocity))


def test_geodesics_of_the_torus_keep_clairauts_constant():  # RF-PT
    chart = mf.torus(2.0, 0.8)
    positions, velocities = mf.geodesic(chart, vec(0.3, 0.0), vec(1.1, 0.6), 3 * TIMES)
    ring = 2.0 + 0.8 * positions[:, 0].cos()
    constant = ring**2 * velocities[:, 1]
    assert ring.max() - ring.min() > 0.2
    close(constant, constant[:1].expand(4))
    close(mf.norm(chart, positions, velocities), mf.norm(chart, positions[:1], velocities[:1]).expand(4))


def test_half_plane_geodesic_in_the_textbook_form():  # RF-PT
    # From (0, 1) with velocity (1, 0): (tanh t, 1 / cosh t), the unit half-circle.
    positions, _ = mf.geodesic(mf.half_plane(), vec(0, 1), vec(1, 0), TIMES)
    close(positions, torch.stack([TIMES.tanh(), 1 / TIMES.cosh()], -1))


def test_logarithm_undoes_the_exponential_map_in_a_batch():  # RF-PT
    starts, velocities = 0.3 * double(3, 2), 0.5 * double(3, 2)
    chart = mf.conformally_flat(bumpy)
    ends = mf.exponential(chart, starts, velocities)
    close(mf.logarithm(chart, starts, ends), velocities, 1e-7)
    close(ends[1], mf.exponential(chart, starts[1], velocities[1]))
    close(mf.exponential(chart, starts, velocities[1])[1], ends[1])  # one velocity for all


@pytest.mark.parametrize("name", ["sphere", "disk", "half-plane"])
def test_distances_against_closed_forms(name):  # RF-PT
    if name == "sphere":
        a, b = vec(0.2, 0.1), vec(-0.5, 0.6)
        expected = (mf.embed_stereographic(a) @ mf.embed_stereographic(b)).acos()
        close(mf.distance(mf.sphere_stereographic(), a, b), expected)
        close(mf.distance(mf.sphere_stereographic(3.0), 3 * a, 3 * b), 3 * expected)
    elif name == "disk":
        a, b = vec(0.2, 0.1), vec(-0.5, 0.6)
        w = (complex(*a) - complex(*b)) / (1 - complex(*a).conjugate() * complex(*b))
        close(mf.distance(mf.poincare_disk(), a, b), vec(2 * math.atanh(abs(w)))[0])
    else:
        a, b = vec(0.2, 1.1), vec(-0.5, 0.6)
        expected = (1 + (a - b).square().sum() / (2 * a[1] * b[1])).acosh()
        close(mf.distance(mf.half_plane(), a, b), expected)


@few
@given(coordinates, coordinates)
def test_cayleys_map_is_an_isometry(x, y):  # RF-PT
    point = vec(x, y + 1)
    slope = jacfwd(mf.half_plane_to_disk)(point)
    pulled_back = slope.T @ mf.poincare_disk().metric_at(mf.half_plane_to_disk(point)) @ slope
    close(pulled_back, mf.half_plane().metric_at(point), 1e-12)
    assert torch.linalg.det(slope) > 0


@few
@given(coordinates, coordinates)
def test_embeddings_are_isometries(x, y):  # RF-PT
    point, flat = vec(x, y), torch.eye(3).double()
    for chart, embedding, product in (
        (mf.sphere_stereographic(), mf.embed_stereographic, flat),
        (mf.poincare_disk(), mf.embed_disk, torch.diag(vec(1, 1, -1))),
    ):
        slope = jacfwd(embedding)(point)
        close(slope.T @ product @ slope, chart.metric_at(point), 1e-12)
        close(embedding(point) @ product @ embedding(point), product[2, 2], 1e-12)


# Parallel transport ---------------------------------------------------------------------------------------------------


def wavy(point):
    """A curve from a point with no symmetry."""
    return lambda t: point + torch.stack([0.3 * t + 0.1 * (3 * t).sin(), 0.2 * t**2 - 0.25 * t])


@every_surface
def test_transport_keeps_the_metrics_lengths_and_angles(chart, point):  # RF-PT, RF-1
    curve = wavy(point)
    matrix = mf.transport_matrix(chart, curve)
    start, end = (chart.metric_at(curve(vec(t)[0])) for t in (0, 1))
    close(matrix.T @ end @ matrix, start)


def test_transport_is_linear():  # RF-PT
    chart, curve = mf.conformally_flat(bumpy), wavy(vec(0.2, 0.5))
    u, v = double(2, 2)
    carried = mf.parallel_transport(chart, curve, torch.stack([u, v, 2 * u - 3 * v]))
    close(carried[2], 2 * carried[0] - 3 * carried[1])
    close(mf.parallel_transport(chart, curve, v), carried[1])
    close(mf.transport_matrix(chart, curve) @ u, carried[0])


def test_transport_depends_on_the_curve():  # RF-PT
    sphere, start, corner, end = mf.sphere_stereographic(), vec(0, 0), vec(1, 0), vec(1, 1)
    straight = mf.transport_matrix(sphere, mf.segment(start, end))
    bent = mf.transport_matrix(sphere, [mf.segment(start, corner), mf.segment(corner, end)])
    assert (straight - bent).abs().max() > 0.1
    flat = mf.conformally_flat(lambda x: 0 * x[0])
    close(mf.transport_matrix(flat, mf.segment(start, end)), torch.eye(2).double())


def test_transport_depends_on_the_track_and_not_on_the_speed():  # RF-PT
    chart, curve = mf.torus(), wavy(vec(0.7, 0.2))
    slowly = mf.transport_matrix(chart, lambda t: curve(t**2 * (3 - 2 * t)))
    close(slowly, mf.transport_matrix(chart, curve))
    back = mf.transport_matrix(chart, lambda t: curve(1 - t))
    close(back @ slowly, torch.eye(2).double())


@settings(deadline=None, max_examples=5)
@given(st.floats(0.3, 2.8), st.floats(-6, 6))
def test_transport_along_latitude_circles_has_a_closed_form(theta, phi):  # RF-PT
    curve = mf.segment(vec(theta, 0.5), vec(theta, 0.5 + phi))
    close(mf.transport_matrix(mf.sphere_spherical(2.0), curve), mf.latitude_transport(vec(theta)[0], vec(phi)[0]))


def test_latitude_transport_is_a_rotation_of_unit_vectors():  # RF-PT
    theta, phi = vec(0.8)[0], vec(2.1)[0]
    frame = mf.orthonormal_frame(mf.sphere_spherical(), torch.stack([theta, phi]))
    close(torch.linalg.solve(frame, mf.latitude_transport(theta, phi) @ frame), rotation_matrix(-phi * theta.cos()))


def test_transport_along_the_parallels_of_the_torus():  # RF-PT
    # With the profile rho(s) of a surface of revolution: the rotation by -rho'(s) times the longitude.
    chart, theta, phi = mf.torus(2.0, 0.8), 0.9, 2.3
    frame = mf.orthonormal_frame(chart, vec(theta, 0))
    matrix = mf.transport_matrix(chart, mf.segment(vec(theta, 0), vec(theta, phi)))
    close(torch.linalg.solve(frame, matrix @ frame), rotation_matrix(vec(math.sin(theta) * phi)[0]))


def extrinsic_transport(curve, vector, steps=400):
    """Transport on the unit sphere seen from space, V' = -(V . X') X, by Runge and Kutta's classical rule."""
    dt = 1.0 / steps

    def rate(t, v):
        h = 1e-6
        x, speed = curve(t), (curve(t + h) - curve(t - h)) / (2 * h)
        return -(v @ speed) * x

    for i in range(steps):
        t = i * dt
        a = rate(t, vector)
        b = rate(t + dt / 2, vector + dt / 2 * a)
        c = rate(t + dt / 2, vector + dt / 2 * b)
        d = rate(t + dt, vector + dt * c)
        vector = vector + dt / 6 * (a + 2 * b + 2 * c + d)
    return vector


def test_transport_agrees_with_the_sphere_seen_from_space():  # RF-PT
    point, vector = vec(0.2, -0.3), vec(0.4, 0.7)

    def track(t):  # the curve wavy(point) on the sphere, in NumPy
        x = np.array([0.2 + 0.3 * t + 0.1 * np.sin(3 * t), -0.3 + 0.2 * t**2 - 0.25 * t])
        return np.array([*(2 * x), 1 - x @ x]) / (1 + x @ x)

    expected = extrinsic_transport(track, push(mf.embed_stereographic, point, vector).numpy())
    curve = wavy(point)
    carried = mf.parallel_transport(mf.sphere_stereographic(), curve, vector)
    close(push(mf.embed_stereographic, curve(vec(1)[0]), carried), torch.from_numpy(expected), 1e-7)


def test_transport_along_a_great_circle_is_the_rotation_of_space():  # RF-PT
    sphere, point, velocity = mf.sphere_stereographic(), vec(0.2, -0.3), vec(0.4, 0.7)
    x, v = mf.embed_stereographic(point), push(mf.embed_stereographic, point, velocity)
    axis = torch.linalg.cross(x, v)
    cross = torch.stack([torch.linalg.cross(axis, e) for e in torch.eye(3).double()], -1)
    turn = torch.linalg.matrix_exp(cross)  # by the angle |v|
    end = mf.exponential(sphere, point, velocity)
    here, there = (jacfwd(mf.embed_stereographic)(p) for p in (point, end))
    close(there @ mf.geodesic_transport(sphere, point, velocity), turn @ here)


def test_geodesic_transport_carries_the_velocity_to_the_velocity():  # RF-PT
    chart, point, velocity = mf.torus(), vec(0.7, 0.2), vec(0.8, 0.5)
    positions, velocities = mf.geodesic(chart, point, velocity, vec(0, 1))
    close(positions[0], point)
    close(mf.geodesic_transport(chart, point, velocity) @ velocity, velocities[-1])


def test_transport_through_an_isometry_is_the_same_transport():  # RF-PT
    curve = wavy(vec(0.3, 1.2))
    matrix = mf.transport_matrix(mf.half_plane(), curve)
    image = mf.transport_matrix(mf.poincare_disk(), lambda t: mf.half_plane_to_disk(curve(t)))
    here, there = (jacfwd(mf.half_plane_to_disk)(curve(vec(t)[0])) for t in (0, 1))
    close(image @ here, there @ matrix)


def test_a_batch_of_curves_gives_what_each_gives_alone():  # RF-PT
    chart, starts, ends = mf.poincare_disk(), 0.3 * double(2, 3, 2), 0.3 * double(2, 3, 2)
    together = mf.transport_matrix(chart, mf.segment(starts, ends))
    assert together.shape == (2, 3, 2, 2)
    close(mf.parallel_transport(chart, mf.segment(starts, ends), vec(1, 2)), together @ vec(1, 2))
    close(together[1, 2], mf.transport_matrix(chart, mf.segment(starts[1, 2], ends[1, 2])))


def test_tighter_tolerances_give_smaller_errors():  # RF-PT
    curve, exact = mf.segment(vec(0.5, 0), vec(0.5, 6)), mf.latitude_transport(vec(0.5)[0], vec(6)[0])
    errors = [
        (mf.transport_matrix(mf.sphere_spherical().within(tol, tol), curve) - exact).abs().max().item()
        for tol in (1e-4, 1e-7, 1e-10)
    ]
    assert errors[0] > 30 * errors[1] > 900 * errors[2]
    assert errors[2] < 1e-8


# Holonomy -------------------------------------------------------------------------------------------------------------


def test_holonomy_of_a_latitude_circle_is_the_area_of_its_cap():  # RF-PT
    theta = 1.0
    angle = mf.holonomy_angle(mf.sphere_spherical(), mf.segment(vec(theta, 0), vec(theta, 2 * math.pi)))
    area = 2 * math.pi * (1 - math.cos(theta))
    close(angle, vec(math.remainder(area, 2 * math.pi))[0])


def test_holonomy_of_a_spherical_triangle_is_its_area():  # RF-PT, RF-FLAT
    corners = torch.stack([vec(0.1, 0.0), vec(0.9, 0.1), vec(0.3, 0.8)])
    turn = mf.geodesic_holonomy(mf.sphere_stereographic(), corners)
    area = mf.spherical_area(*mf.embed_stereographic(corners))
    assert 0.3 < area < 1
    close(mf.rotation_angle(mf.sphere_stereographic(), corners[0], turn), area)


def test_holonomy_of_the_octant_is_a_right_angle():  # RF-PT
    # The octant between the north pole and two points of the equator has area 4 pi / 8.
    corners = torch.stack([vec(0, 0), vec(1, 0), vec(0, 1)])
    turn = mf.geodesic_holonomy(mf.sphere_stereographic(), corners)
    close(turn, rotation_matrix(vec(math.pi / 2)[0]))


def test_holonomy_of_a_hyperbolic_triangle_is_minus_its_area():  # RF-PT
    corners = torch.stack([vec(0.1, 0.0), vec(0.7, 0.1), vec(0.2, 0.6)])
    turn = mf.geodesic_holonomy(mf.poincare_disk(), corners)
    area = mf.hyperbolic_area(*mf.embed_disk(corners))
    assert 0.3 < area < 1
    close(mf.rotation_angle(mf.poincare_disk(), corners[0], turn), -area)


def interior_angles(chart, corners):
    """The angles of a geodesic triangle, between the velocities at its corners."""
    others = torch.stack([corners.roll(1, 0), corners.roll(2, 0)])
    u, v = mf.logarithm(chart.within(1e-8, 1e-12), corners, others)
    g = chart.metric_at(corners)
    uv, uu, vv = (torch.einsum("ni,nij,nj->n", a, g, b) for a, b in ((u, v), (u, u), (v, v)))
    return (uv / (uu * vv).sqrt()).acos()


def test_areas_are_the_excess_and_the_defect_of_the_angles():  # RF-PT
    corners = torch.stack([vec(0.1, 0.0), vec(0.7, 0.1), vec(0.2, 0.6)])
    excess = interior_angles(mf.sphere_stereographic(), corners).sum() - math.pi
    close(mf.spherical_area(*mf.embed_stereographic(corners)), excess, 1e-6)
    defect = math.pi - interior_angles(mf.poincare_disk(), corners).sum()
    close(mf.hyperbolic_area(*mf.embed_disk(corners)), defect, 1e-6)
    shrunk = torch.tensor([1.0, 0.9, 0.8, 0.7]).double().view(2, 2, 1)
    each = [[mf.hyperbolic_area(*mf.embed_disk(s * corners)) for s in row] for row in shrunk]
    several = mf.hyperbolic_area(*(mf.embed_disk(shrunk * corner) for corner in corners))
    close(several, torch.stack([torch.stack(row) for row in each]))


def test_a_circle_begins_at_the_right_and_runs_counter_clockwise():
    circle = mf.circle(vec(1, 2), 3.0)
    for t, place in ((0.0, vec(4, 2)), (0.25, vec(1, 5)), (0.5, vec(-2, 2))):
        close(circle(torch.tensor(t, dtype=torch.float64)), place)


def test_what_is_no_curve_is_named_by_its_kind():
    with pytest.raises(ValueError, match="path, piece 0: got int; a curve is a function of t"):
        mf.transport_matrix(mf.half_plane(), [3])


def test_a_curve_that_stays_where_it_is_carries_nothing():
    close(mf.transport_matrix(mf.half_plane(), lambda t: vec(2, 3) + 0 * t), torch.eye(2).double())


@pytest.mark.parametrize("times", [vec(0, 1), vec(0, 0.5, 1), vec(0, 0.2, 0.5, 1)])
def test_a_geodesic_is_where_it_is_asked_for(times):
    positions, velocities = mf.geodesic(mf.half_plane(), vec(0, 1), vec(0, 1), times)
    close(positions, torch.stack([0 * times, times.exp()], -1))
    close(velocities, positions)


def test_the_usual_torus_is_twice_as_wide_as_thick():
    points = torch.stack([vec(0.3, 1), vec(2, -1)])
    close(mf.torus().metric_at(points), mf.torus(2.0, 1.0).metric_at(points), 0)
    close(mf.torus_curvature(points[:, 0]), mf.torus_curvature(points[:, 0], 2.0, 1.0), 0)


def test_holonomy_of_a_hyperbolic_circle_is_minus_its_area():  # RF-PT
    rho = 0.4
    area = 4 * math.pi * rho**2 / (1 - rho**2)  # 4 pi sinh^2(r/2) with rho = tanh(r/2)
    close(mf.holonomy_angle(mf.poincare_disk(), mf.circle(vec(0, 0), rho)), vec(-area)[0])


def test_holonomy_of_a_conformal_metric_is_minus_the_integral_of_the_laplacian():  # RF-FLAT
    chart = mf.conformally_flat(lambda x: 0.3 * x[0] ** 2 - 0.1 * x[1] ** 2 + x[0] * x[1] + 0.5 * x[1])
    corners = torch.stack([vec(-0.5, 0), vec(1, -0.3), vec(0.4, 1.1)])
    (ux, uy), (vx, vy) = corners[1] - corners[0], corners[2] - corners[0]
    close(mf.holonomy_angle(chart, mf.polygon(corners)), -0.4 * (ux * vy - uy * vx) / 2)


def test_holonomy_of_flat_space_is_the_identity_in_any_coordinates():  # RF-FLAT
    close(mf.holonomy(POLAR, mf.square_loop(vec(1.5, 0.4), 0.8)), torch.eye(2).double())
    close(mf.holonomy(POLAR, mf.segment(vec(1.5, 0), vec(1.5, 2 * math.pi))), torch.eye(2).double())


@pytest.mark.parametrize("name", ["stereographic", "disk", "torus", "bumpy"])
def test_holonomy_of_a_small_loop_is_curvature_times_area_to_second_order(name):  # RF-FLAT
    chart, point = SURFACES[name]
    sides = vec(0.2, 0.1, 0.05)
    errors = (mf.curvature_from_holonomy(chart, point, sides) - mf.gaussian_curvature(chart, point)).abs()
    orders = (errors[:-1] / errors[1:]).log2()
    assert errors[-1] < 0.02
    assert ((orders > 1.9) & (orders < 2.1)).all(), orders


def test_a_large_loop_of_the_half_plane_turns_by_its_area_to_all_digits():  # RF-FLAT, Gauss-Bonnet
    sides = vec(0.5, 1)  # the area of a square about (0, 1): the integral of 1/y^2 dx dy
    exact = -1 / (1 - sides**2 / 4)
    close(mf.curvature_from_holonomy(mf.half_plane(), vec(0, 1), sides), exact, 1e-9)


def test_holonomy_of_a_small_loop_is_the_curvature_tensor_to_first_order():  # RF-FLAT
    point, a, b = vec(0.3, -0.2, 0.5), vec(1, 0, 0), vec(0, 0, 1)
    curvature = mf.riemann(SKEWED, point)[:, :, 0, 2]
    sides = vec(0.02, 0.01, 0.005)[:, None]
    corners = [point + sides * edge for edge in (0 * a, a, a + b, b)]
    turns = mf.holonomy(SKEWED.within(1e-12, 1e-14), mf.polygon(torch.stack(corners)))
    estimate = (torch.eye(3) - turns) / sides[..., None] ** 2
    errors = (estimate - curvature).abs().amax((-2, -1))
    orders = (errors[:-1] / errors[1:]).log2()
    assert errors[-1] < 0.2 * curvature.abs().max()
    assert ((orders > 0.9) & (orders < 1.1)).all(), orders


def test_holonomy_round_two_loops_is_the_product():  # RF-FLAT
    chart, p = mf.torus(), torch.stack([vec(0.5, 0), vec(1.2, 0.1), vec(0.9, 0.8), vec(0.1, 0.6)])
    first, second = mf.polygon(p[:3]), mf.polygon(p[[0, 2, 3]])
    both, one, other, outer = (
        mf.holonomy(chart.within(1e-8, 1e-12), loop) for loop in (first + second, first, second, mf.polygon(p))
    )
    close(both, other @ one, 1e-6)
    close(both, outer, 1e-6)  # the diagonal is walked to and fro


def test_frames_are_orthonormal_and_oriented():  # RF-5
    points = 0.5 * double(4, 3)
    frame = mf.orthonormal_frame(SKEWED, points)
    close(frame.mT @ SKEWED.metric_at(points) @ frame, torch.eye(3).double().expand(4, 3, 3), 1e-12)
    assert (torch.linalg.det(frame) > 0).all()


# Conformally flat metrics in closed form ------------------------------------------------------------------------------


def bump_in_space(x):
    """A conformal factor of three dimensions with no symmetry."""
    return 0.3 * (2 * x[0]).sin() * x[1] + 0.2 * x[2] ** 2 + 0.1 * x[0] * x[2]


@pytest.mark.parametrize(("f", "dim"), [(bumpy, 2), (bump_in_space, 3)])
def test_conformal_christoffel_symbols_are_those_of_the_metric(f, dim):  # RF-FLAT
    points = 0.7 * double(5, dim)
    close(mf.conformal_christoffel(f, points), mf.christoffel(mf.conformally_flat(f, dim), points), 1e-12)


def test_conformal_sectional_curvature_is_that_of_the_metric():  # RF-FLAT
    points, u, v = 0.7 * double(5, 3), double(5, 3), double(5, 3)
    expected = mf.sectional_curvature(mf.conformally_flat(bump_in_space, 3), points, u, v)
    close(mf.conformal_sectional_curvature(bump_in_space, points, u, v), expected, 1e-10)
    assert expected.abs().min() > 1e-3


def test_sectional_curvature_depends_on_the_plane_alone():  # RF-FLAT
    point, u, v = vec(0.2, 0.3, -0.1), double(3), double(3)
    first = mf.sectional_curvature(SKEWED, point, u, v)
    close(first, mf.sectional_curvature(SKEWED, point, 2 * v - u, 3 * u + v))
    long = vec(1e-9, 1, 1e9)[:, None]  # and not on lengths, each vector's own
    close(mf.sectional_curvature(SKEWED, point, long * u, long.flip(0) * v), first.expand(3))
    again = mf.conformal_sectional_curvature(bump_in_space, point, long * u, long.flip(0) * v)
    close(again, mf.conformal_sectional_curvature(bump_in_space, point, u, v).expand(3))
    assert (first - mf.sectional_curvature(SKEWED, point, u, v + vec(1, 0, 0))).abs() > 1e-3


def test_sectional_curvature_of_a_surface_is_its_curvature_in_every_basis():  # RF-FLAT
    points = 0.5 * double(4, 2)
    close(mf.sectional_curvature(mf.poincare_disk(), 0.3 * points.tanh(), double(4, 2), double(4, 2)), vec(*[-1.0] * 4))
    close(mf.conformal_sectional_curvature(bumpy, points, double(2), double(2)), mf.conformal_curvature(bumpy, points))


def test_the_power_metric_is_flat_in_the_plane_and_curved_from_three_on():  # RF-FLAT
    log_s, at = math.log(0.6), vec(0.8, -0.3, 0.5, 0.1)
    across = -(log_s**2) / (4 * 0.6**0.8)
    for dim in (2, 3, 4):
        chart, axes = mf.power_metric(log_s, dim), torch.eye(dim).double()
        close(mf.sectional_curvature(chart, at[:dim], axes[0], axes[1]), vec(0)[0], 1e-12)
        if dim > 2:
            close(mf.sectional_curvature(chart, at[:dim], axes[1], axes[2]), vec(across)[0], 1e-12)
            a, b = torch.linalg.qr(double(dim, 2)).Q.mT  # between the two: 1 - a_1^2 - b_1^2
            between = across * (1 - a[0] ** 2 - b[0] ** 2)
            close(mf.sectional_curvature(chart, at[:dim], a, b), between, 1e-12)


@pytest.mark.parametrize("dim", [2, 3])
def test_transport_of_the_power_metric_along_the_first_axis(dim):  # RF-FLAT, RF-8
    log_s, n, m = math.log(0.6), vec(0.4)[0], vec(3.1)[0]
    start, end = (torch.cat([x[None], vec(0.2, -0.5)[: dim - 1]]) for x in (n, m))
    turned = mf.transport_matrix(mf.power_metric(log_s, dim), mf.segment(start, end))
    close(turned, 0.6 ** ((n - m) / 2) * torch.eye(dim).double())


# The shortest way -----------------------------------------------------------------------------------------------------


def angle_between(a, b):
    """The distance of two points of the stereographic chart, on the sphere."""
    a, b = mf.embed_stereographic(a), mf.embed_stereographic(b)
    return torch.atan2(torch.linalg.cross(a, b).norm(dim=-1), (a * b).sum(-1))


def test_far_points_of_the_sphere_have_the_shorter_arc():
    a = torch.stack([vec(0, 0), vec(1, 0.2)])
    b = torch.stack([vec(8, 0), vec(-1, 0)])
    expected = angle_between(a, b)
    assert expected.max() > 2.9
    sphere = mf.sphere_stereographic().within(1e-6, 1e-8)
    close(torch.stack([mf.distance(sphere, *pair) for pair in zip(a, b)]), expected, 1e-4)


def random_on_sphere(count):
    """Points of the sphere in both charts, in a region whose great circles pass no pole closely."""
    z, turn = 0.7 * (2 * torch.rand(count, dtype=torch.float64) - 1), 1.5 * torch.rand(count, dtype=torch.float64)
    return torch.stack([z.acos(), turn], -1), torch.stack([turn.cos(), turn.sin()], -1) * ((1 - z) / (1 + z)).sqrt()[
        :, None
    ]


@pytest.mark.parametrize(
    "chart", [mf.sphere_spherical(), mf.sphere_stereographic()], ids=["spherical", "stereographic"]
)
def test_random_pairs_of_the_sphere_have_their_distance(chart):  # RF-PT
    (polar, flat), (other_polar, other_flat) = random_on_sphere(8), random_on_sphere(8)
    pairs = (polar, other_polar) if chart.periods else (flat, other_flat)
    found = torch.stack([mf.distance(chart, *pair) for pair in zip(*pairs)])
    close(found, angle_between(flat, other_flat), 1e-8)


def sharply_bumped(x):
    return torch.exp(-30 * x @ x)


@pytest.mark.parametrize(
    ("chart", "start", "end"),
    [
        (mf.torus(), vec(0.3, 0.1), vec(1.5, 1.4)),
        (mf.half_plane(), vec(0, 1), vec(7, 1)),
        (mf.conformally_flat(sharply_bumped), vec(-0.5, 0.1), vec(0.6, 0.2)),
    ],
    ids=["torus", "half-plane", "bump"],
)
def test_polynomials_and_shooting_find_the_same_velocity(monkeypatch, chart, start, end):
    chart = chart.within(1e-9, 1e-11)
    polynomial = mf.logarithm(chart, start, end)
    monkeypatch.setattr("geolib.manifolds.geodesics.exact_velocity", lambda *_: None)
    close(polynomial, mf.logarithm(chart, start, end), 1e-7)
    monkeypatch.undo()
    monkeypatch.setattr("geolib.manifolds.geodesics.exponential", lambda *_: pytest.fail("polynomials are enough"))
    close(polynomial, mf.logarithm(chart, start, end), 0)


def test_shooting_finds_near_and_far_points_of_the_half_plane(monkeypatch):
    monkeypatch.setattr("geolib.manifolds.geodesics.exact_velocity", lambda *_: None)
    speed = vec(0.1, 0.4, 0.6)
    ends = torch.stack([speed.tanh(), 1 / speed.cosh()], -1)  # the unit half-circle
    velocities = mf.logarithm(mf.half_plane().within(1e-10, 1e-12), vec(0, 1), ends)
    close(velocities, torch.stack([speed, 0 * speed], -1), 1e-8)


def test_shooting_knows_the_unit_of_the_coordinates(monkeypatch):
    monkeypatch.setattr("geolib.manifolds.geodesics.exact_velocity", lambda *_: None)
    for unit in (1e-6, 1e6):
        chart, end = mf.half_plane().within(1e-9, 1e-9 * unit), unit * vec(math.tanh(0.5), 1 / math.cosh(0.5))
        close(mf.logarithm(chart, unit * vec(0, 1), end) / unit, vec(0.5, 0), 1e-6)


def test_shooting_at_several_points_takes_the_steps_that_it_takes_at_each(monkeypatch):
    monkeypatch.setattr("geolib.manifolds.geodesics.exact_velocity", lambda *_: None)
    sphere, start = mf.sphere_stereographic(), vec(0, 0)
    directions = torch.stack([vec(1, 0), vec(0.6, 0.8), vec(0, 1), vec(0.8, -0.6)])
    ends = torch.tensor([0.3, 0.5, math.tan(1.4), math.tan(1.4)]).double()[:, None] * directions
    exact = ends.norm(dim=-1, keepdim=True).atan() * directions
    guesses = vec(0.6, 1.4, 6 / 7, 1.09)[:, None] * exact  # the third steps too far at first, and goes back
    monkeypatch.setattr("geolib.manifolds.geodesics.shortened", lambda chart, a, b: (b, True))
    monkeypatch.setattr(
        "geolib.manifolds.geodesics.first_velocity",
        lambda b: guesses[torch.cdist(b, ends).argmin(1)],
    )

    def shot(at):
        tried = []

        def exact_exponential(chart, point, velocity):
            tried.append(velocity[0].clone())
            return velocity * (velocity.norm(dim=-1, keepdim=True).tan() / velocity.norm(dim=-1, keepdim=True))

        with monkeypatch.context() as patch:
            patch.setattr("geolib.manifolds.geodesics.exponential", exact_exponential)
            found = mf.logarithm(sphere, start.expand(at.shape), at)
        return torch.stack(tried), found

    together, found = shot(ends)
    assert 3 < len(together) < 11  # near the end a step squares the error
    for i, end in enumerate(ends):
        alone, velocity = shot(end)
        close(together[: len(alone), i], alone[: len(together)])
        close(found[i], velocity)
    close(found, exact)
    close(together[2, 2], together[:2, 2].mean(0))
    moved = (together[1:] - together[:-1]).norm(dim=-1) / together[:-1].norm(dim=-1)
    assert (moved < 0.25 + 1e-9).all()  # the first guess was near: no step runs away from it
    assert moved[0, 0] > 0.2499


def test_shooting_goes_back_by_half_where_a_step_leaves_the_chart_and_gives_up_after_two(monkeypatch):
    monkeypatch.setattr("geolib.manifolds.geodesics.exact_velocity", lambda *_: None)
    tries, tried = itertools.count(1), []

    def leaving(*args, at):
        tried.append(args[2][0])
        if next(tries) in at:
            raise ValueError
        return mf.exponential(*args)

    chart, end = mf.half_plane().within(1e-10, 1e-12), vec(math.tanh(0.5), 1 / math.cosh(0.5))
    monkeypatch.setattr("geolib.manifolds.geodesics.exponential", partial(leaving, at=[2]))
    close(mf.logarithm(chart, vec(0, 1), end), vec(0.5, 0))
    close(tried[2], (tried[0] + tried[1]) / 2)
    assert next(tries) > 3
    for at, last in (([1], 1), ([2, 4], 4)):
        tries = itertools.count(1)
        monkeypatch.setattr("geolib.manifolds.geodesics.exponential", partial(leaving, at=at))
        with pytest.raises(ValueError, match="no shortest geodesic"):
            mf.logarithm(chart, vec(0, 1), end)
        assert next(tries) == last + 1


def test_a_polynomial_near_a_saddle_of_the_energy_is_refused():
    sphere, times = mf.sphere_spherical(), torch.linspace(0, 4, 25, dtype=torch.float64)
    equator = torch.stack([torch.full_like(times, math.pi / 2), times], -1)  # longer than half a great circle
    assert exact_velocity(sphere, equator[None]) is None
    close(exact_velocity(sphere, 0.75 * equator[None] + vec(math.pi / 8, 0)), vec(0, 3)[None])


@pytest.mark.parametrize(
    ("chart", "start", "velocity"), [(mf.half_plane(), vec(0, 1), vec(1.8, 0)), (POLAR, vec(1, 2), vec(0.2, 0))]
)
def test_the_polygon_begins_with_nearly_the_velocity(chart, start, velocity):
    end = mf.exponential(chart, start, velocity)
    polygon, shortest = shortened(chart, start[None], end[None])
    assert shortest
    close(first_velocity(polygon), velocity[None], 0.02)
    close(exact_velocity(chart, polygon), velocity[None])  # polynomials begin where the polygon lies


def test_a_straight_line_that_is_shortest_is_left_as_it_is():
    calls = itertools.count()
    flat = mf.Chart(2, lambda x: (next(calls), torch.eye(2, dtype=x.dtype) + 0 * x[0])[1])
    polygon, shortest = shortened(flat, vec(0, 1)[None], vec(6, 4)[None])
    assert shortest
    line = torch.linspace(0, 1, 25, dtype=torch.float64)[:, None]
    close(polygon[0], vec(0, 1) + line * vec(6, 3), 1e-15)
    assert next(calls) < 10


def test_a_way_that_leaves_the_chart_is_refused():
    holed = mf.Chart(2, lambda x: torch.eye(2, dtype=x.dtype) + 0 * x[0], lambda x: x.norm(dim=-1) - 1, name="holed")
    close(mf.distance(holed, vec(-2, 1.5), vec(2, 1.5)), vec(4)[0])
    with pytest.raises(ValueError, match=r"end: got .*start = .*no shortest geodesic"):
        mf.distance(holed, vec(-2, 0.1), vec(2, 0.1))


# A strip along the equator, which is longer than half a great circle there: it can be left on either side.
STRIP = mf.Chart(2, mf.sphere_spherical().metric, lambda x: 1e-3 - (x[..., 0] - math.pi / 2).abs(), name="strip")
TOO_FAR = vec(math.pi / 2, 0)[None], vec(math.pi / 2, 4)[None]


def test_a_way_that_is_shortest_in_a_narrow_chart_alone_is_refused(monkeypatch):
    monkeypatch.setattr("geolib.manifolds._shortest.PIECES", 4)
    polygon, shortest = shortened(STRIP, *TOO_FAR)
    assert not shortest
    assert (polygon[..., 0] - math.pi / 2).abs().max() < 1e-3
    with pytest.raises(ValueError, match="no shortest geodesic"):
        mf.distance(STRIP, *TOO_FAR)


def test_a_way_that_must_stay_in_its_chart_goes_as_far_in_any_unit(monkeypatch):
    monkeypatch.setattr("geolib.manifolds._shortest.PIECES", 4)
    scaled = mf.Chart(2, lambda x: 2.0**24 * STRIP.metric(x), STRIP.margin)
    close(shortened(scaled, *TOO_FAR)[0], shortened(STRIP, *TOO_FAR)[0], 0)


def test_a_way_that_must_stay_in_its_chart_holds_no_other_back(monkeypatch):
    monkeypatch.setattr("geolib.manifolds._shortest.PIECES", 4)
    start, end = vec(math.pi / 2 - 5e-4, 0)[None], vec(math.pi / 2 + 5e-4, 1)[None]
    together, _ = shortened(STRIP, *(torch.cat(pair) for pair in zip(TOO_FAR, (start, end))))
    close(together[1:], shortened(STRIP, start, end)[0], 1e-7)


def test_far_points_of_the_half_plane_have_their_distance():
    start, chart = vec(0.3, 1.2), mf.half_plane().within(1e-7, 1e-9)
    turns = torch.arange(4) * math.pi / 2 + 0.2
    ends = mf.exponential(chart, start, 1.2 * 4 * torch.stack([turns.cos(), turns.sin()], -1))
    close(mf.distance(chart, start, ends), vec(4, 4, 4, 4), 1e-4)


def test_the_shortest_way_takes_the_same_steps_in_any_unit():
    unit, counts, found = mf.conformally_flat(sharply_bumped), [], []
    for metre, step in ((1.0, 1.0), (2.0**-12, 1.0), (2.0**12, 1.0), (1.0, 2.0**12)):  # of lengths, of coordinates
        calls = itertools.count()
        chart = mf.Chart(2, lambda x, m=metre, s=step, n=calls: (next(n), m * unit.metric(x / s))[1])
        found.append(mf.logarithm(chart, step * vec(-0.5, 0), step * vec(0.5, 0)) / step)
        counts.append(next(calls))
    assert found[0][1].abs() > 0.1  # the straight line, over the summit, is a saddle: the way goes round
    assert counts == [counts[0]] * 4
    close(torch.stack(found), found[0].expand(4, 2), 0)


@pytest.mark.parametrize("radius", [1e-3, 1e3])
def test_a_larger_sphere_has_the_same_geodesics_and_larger_distances(radius):  # RF-PT
    start, end = vec(1.1, 0.2), vec(0.7, 1.3)
    unit, sphere = mf.sphere_spherical(), mf.sphere_spherical(radius)
    close(mf.logarithm(sphere, start, end), mf.logarithm(unit, start, end))
    assert_close(mf.distance(sphere, start, end), radius * mf.distance(unit, start, end), rtol=1e-9, atol=0)


def test_the_parameter_of_a_curve_is_in_double_precision():  # a float32 parameter would round the curve
    given, times = set(), []

    def curve(t):
        given.add(t.dtype)
        times.append(float(t.detach()))
        return torch.stack([t, 1 + t])

    mf.transport_matrix(mf.half_plane().within(1e-3, 1e-3), curve)
    assert given == {torch.float64}
    assert (min(times), max(times)) == (0, 1)


@every_surface
def test_a_point_is_at_no_distance_from_itself(chart, point):  # RF-PT
    close(mf.logarithm(chart, point, point), vec(0, 0))
    close(mf.distance(chart, point, point), vec(0)[0])


def test_a_batch_of_pairs_has_the_distance_of_each():  # at one place, near and far, in lengths of many sizes
    start = torch.stack([vec(0, 1), vec(0, 1), vec(0, 1e-5), vec(0, 1)])
    end = torch.stack([vec(0, 1), vec(4, 1), vec(3e-5, 2e-5), vec(0.1, 1)])
    expected = (1 + (end - start).square().sum(-1) / (2 * start[:, 1] * end[:, 1])).acosh()
    close(mf.distance(mf.half_plane(), start, end), expected)


def test_a_line_has_the_distance_of_its_ruler():
    ruler = mf.Chart(1, lambda x: (2 * x).exp()[:, None])
    close(mf.distance(ruler, vec(0), vec(1)), vec(math.e - 1)[0])


def test_the_shorter_way_round_is_taken():
    equator = torch.stack([vec(math.pi / 2, 0.1), vec(math.pi / 2, 6.2)])
    close(mf.distance(mf.sphere_spherical(), *equator), vec(2 * math.pi - 6.1)[0])
    inner, meridian = torch.stack([vec(math.pi, 0.1), vec(math.pi, 6.2)]), torch.stack([vec(0.1, 2), vec(6.2, 2)])
    close(mf.distance(mf.torus(3.0, 1.2), *inner), vec(1.8 * (2 * math.pi - 6.1))[0])
    close(mf.distance(mf.torus(3.0, 1.2), *meridian), vec(1.2 * (2 * math.pi - 6.1))[0])


def test_a_coarse_polygon_leaves_a_summit_by_the_same_steps_in_any_unit(monkeypatch):
    monkeypatch.setattr("geolib.manifolds._shortest.PIECES", 6)
    found = []
    for unit in (1.0, 2.0**-24, 2.0**24):
        chart = mf.Chart(2, lambda x, u=unit: u * mf.conformally_flat(sharply_bumped).metric(x))
        polygon, shortest = shortened(chart, vec(-0.5, 0)[None], vec(0.5, 0)[None])
        assert shortest
        found.append(polygon)
    assert found[0].shape == (1, 7, 2)
    assert found[0][..., 1].abs().max() > 0.1  # the straight line, over the summit, is a saddle
    close(torch.cat(found), found[0].expand(3, 7, 2), 0)


def test_a_polynomial_is_found_in_any_unit_of_the_coordinates():
    flat, line = mf.Chart(2, lambda x: torch.eye(2, dtype=x.dtype) + 0 * x[0]), torch.linspace(0, 1, 25).double()
    for unit in (1e-6, 1e6):
        close(exact_velocity(flat, unit * torch.stack([line, 2 * line], -1)[None]) / unit, vec(1, 2)[None])


def test_shooting_finds_several_points_of_space_at_once(monkeypatch):
    monkeypatch.setattr("geolib.manifolds._shortest.PIECES", 6)
    monkeypatch.setattr("geolib.manifolds.geodesics.exact_velocity", lambda *_: None)
    space, speed = mf.conformally_flat(lambda x: -x[2].log(), 3).within(1e-6, 1e-8), vec(0.4, 0.2)  # hyperbolic
    away, up = speed.tanh(), 1 / speed.cosh()
    ends = torch.stack([torch.stack([away[0], 0 * up[0], up[0]]), torch.stack([0 * up[1], away[1], up[1]])])
    close(mf.logarithm(space, vec(0, 0, 1), ends), torch.stack([vec(0.4, 0, 0), vec(0, 0.2, 0)]), 1e-3)


def test_one_velocity_serves_many_points_and_one_vector_many_curves():  # RF-PT
    chart, points = mf.half_plane().within(1e-3, 1e-3), torch.stack([vec(0, 1), vec(2, 1)])  # moved along
    ends = mf.exponential(chart, points, vec(0.3, 0.2))
    close(ends[1] - ends[0], vec(2, 0))
    carried = mf.parallel_transport(chart, mf.segment(points, points + vec(0.3, 0.2)), vec(1, 0))
    close(carried[0], carried[1])


@pytest.mark.parametrize("size", [1e-9, 1e9])
def test_planes_are_spanned_by_vectors_of_any_length(size):  # RF-FLAT
    point, u = vec(0.1, 0.4, 0.2), torch.stack([vec(1, 2, 0), vec(0, 1, 1)])
    v = torch.stack([vec(0, 1, 3), vec(1, 0, 2)])
    longer = v * vec(size, 1)[:, None]
    for curvature in (partial(mf.sectional_curvature, SKEWED), partial(mf.conformal_sectional_curvature, bumpy)):
        assert_close(curvature(point, u, longer), curvature(point, u, v), rtol=1e-7, atol=0)
    with pytest.raises(ValueError, match="v: got a multiple of u"):
        mf.sectional_curvature(SKEWED, point, u[0], 0 * u[0])


def test_the_angle_of_a_holonomy_is_told_by_its_trace():  # RF-FLAT
    sphere = mf.sphere_spherical().within(1e-5, 1e-7)
    triangle = mf.polygon(torch.stack([vec(0.6, 0), vec(1.4, 0.1), vec(1.1, 1.2)]))
    close(2 * mf.holonomy_angle(sphere, triangle).cos(), mf.holonomy(sphere, triangle).trace(), 1e-4)


def test_what_has_a_gradient_is_followed_as_numbers():
    point, velocity = vec(0.1, 1.2), vec(0.3, 0.2).requires_grad_()
    chart = mf.half_plane().within(1e-3, 1e-3)
    close(mf.exponential(chart, point, velocity), mf.exponential(chart, point, velocity.detach()))


def test_a_curve_that_returns_no_tensor_is_told_by_what_it_returns():
    with pytest.raises(ValueError, match=r"^path, piece 0: got list; a curve returns a tensor$"):
        mf.transport_matrix(mf.half_plane(), lambda t: [t, t])


def test_a_square_is_of_the_side_that_is_given():
    corners = torch.stack([edge(vec(0)[0]) for edge in mf.square_loop(vec(1, 2), 0.1)])
    close(corners, torch.stack([vec(0.95, 1.95), vec(1.05, 1.95), vec(1.05, 2.05), vec(0.95, 2.05)]), 1e-15)


# Bad input ------------------------------------------------------------------------------------------------------------


def constant_metric(*rows):
    return mf.Chart(2, lambda x: torch.tensor(rows, dtype=torch.float64) + 0 * x[0], name="constant")


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        (((1.0, 1.0), (1.0, 1.0)), "singular or indefinite"),
        (((1.0, 0.0), (0.0, -1.0)), "singular or indefinite"),
        (((0.0, 0.0), (0.0, 0.0)), "singular or indefinite"),
        (((1.0, 0.5), (0.0, 1.0)), "not symmetric"),
        (((1.0, math.nan), (math.nan, 1.0)), "not finite"),
        (((1.0, 0.0, 0.0), (0.0, 1.0, 0.0)), "shape"),
    ],
)
@pytest.mark.parametrize("use", [mf.christoffel, mf.gaussian_curvature, mf.orthonormal_frame])
def test_matrices_that_are_no_metric_are_refused(rows, complaint, use):
    with pytest.raises(ValueError, match=f"metric: got .*{complaint}"):
        use(constant_metric(*rows), vec(0.1, 0.2))


def test_each_metric_of_a_batch_is_symmetric_for_itself():
    bent = torch.tensor([[1.0, 1e-3], [0.0, 1.0]], dtype=torch.float64)
    chart = mf.Chart(2, lambda x: torch.where(x[0] > 0, 1e12 * torch.eye(2).double(), bent))
    with pytest.raises(ValueError, match="metric: got a matrix that is not symmetric"):
        chart.metric_at(torch.stack([vec(1, 0), vec(-1, 0)]))
    for unit in (1e-9, 1e9):
        rounded = torch.tensor([[1.0, 0.1], [0.1 * (1 + 4e-16), 1.0]], dtype=torch.float64)
        close(constant_metric(*(unit * rounded).tolist()).metric_at(vec(0, 0)), unit * rounded, 0)
        with pytest.raises(ValueError, match="metric: got a matrix that is not symmetric"):
            constant_metric(*(unit * bent).tolist()).metric_at(vec(0, 0))


def test_a_metric_that_degenerates_on_the_way_is_refused():
    chart = mf.Chart(2, lambda x: torch.diag(torch.stack([1 + 0 * x[0], 1 - x[0]])), name="closing")
    with pytest.raises(ValueError, match="metric: got a singular or indefinite"):
        mf.transport_matrix(chart, mf.segment(vec(0, 0), vec(2, 0.3)))


def test_a_curve_that_leaves_the_chart_is_caught_with_its_parameter():
    with pytest.raises(ValueError, match=r"path, piece 0: got a curve that leaves the chart at t = 0\.76923"):
        mf.transport_matrix(mf.poincare_disk(), mf.segment(vec(0, 0), vec(1.3, 0)))
    pieces = [mf.segment(vec(0, 1), vec(1, 1)), mf.segment(vec(1, 1), vec(1, -3))]
    with pytest.raises(ValueError, match=r"path, piece 0: .* leaves the chart at t = 0\.01;"):
        mf.transport_matrix(mf.poincare_disk(), mf.segment(vec(0, 0), vec(100, 0)))
    with pytest.raises(ValueError, match=r"path, piece 0: .* leaves the chart at t = 0\.5"):
        mf.transport_matrix(mf.sphere_spherical(), mf.segment(vec(math.pi - 1, 0), vec(math.pi + 1, 0)))
    with pytest.raises(ValueError, match=r"path, piece 1: .* leaves the chart at t = 0\.25"):
        mf.parallel_transport(mf.half_plane(), pieces, vec(1, 0))


def test_an_excursion_between_the_samples_is_caught_by_the_solver():
    def dip(t):  # below 0 for 0.5028 < t < 0.5128 only, between two of the samples 1/64 apart
        return torch.stack([t, 1 - 1.01 * torch.exp(-(((t - 0.5078) / 0.05) ** 2))])

    with pytest.raises(ValueError, match=r"path, piece 0: .* leaves the chart at t = 0\.502"):
        mf.parallel_transport(mf.half_plane().within(1e-3, 1e-3), dip, vec(1, 0))


def test_where_the_solver_stops_the_curve_has_left_the_chart(monkeypatch):
    rows = torch.eye(2).double()
    assert pull(mf.half_plane(), vec(0, -1), vec(1, 0), rows).isnan().all()
    monkeypatch.setattr("geolib.manifolds.transport.solve", lambda chart, rate, rows, times: (rows[None], 0.25))
    left = "path, piece 0: got a curve that leaves the chart at t = 0.25; it must stay inside 'half-plane'"
    with pytest.raises(ValueError, match=f"^{left}$"):
        mf.transport_matrix(mf.half_plane(), mf.segment(vec(0, 1), vec(1, 1)))


def test_a_geodesic_that_leaves_the_chart_is_caught_with_its_time():
    with pytest.raises(ValueError, match=r"velocity: got a curve that leaves the chart at t = (1;|0\.99999)"):
        mf.geodesic(mf.sphere_spherical(), vec(1, 0), vec(-1, 0), vec(0, 2))


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda c: mf.christoffel(c, vec(1, 2, 3)), "points"),
        (lambda c: mf.christoffel(c, vec(math.inf, 1)), "points"),
        (lambda c: mf.christoffel(c, vec(0, -1)), "points"),
        (lambda c: mf.parallel_transport(c, mf.segment(vec(0, 1), vec(1, 1)), vec(1, 2, 3)), "vectors"),
        (lambda c: mf.parallel_transport(c, mf.segment(vec(0, 1), vec(1, 1)), vec(1, math.nan)), "vectors"),
        (lambda c: mf.parallel_transport(c, mf.segment(vec(0, 1, 0), vec(1, 1, 0)), vec(1, 2)), "path, piece 0"),
        (lambda c: mf.parallel_transport(c, [], vec(1, 2)), "path"),
        (lambda c: mf.parallel_transport(c, lambda t: torch.tensor([2 * t, 1.0]), vec(1, 2)), "path, piece 0"),
        (lambda c: mf.parallel_transport(c, lambda t: [t, t], vec(1, 2)), "path, piece 0"),
        (lambda c: mf.parallel_transport(c, [mf.segment(vec(0, 1), vec(1, 1))] * 2, vec(1, 2)), "path"),
        (lambda c: mf.holonomy(c, mf.segment(vec(0, 1), vec(1, 1))), "loop"),
        (lambda c: c.within(0, 1e-12), "rtol"),
        (lambda c: c.within(1e-10, -1), "atol"),
        (lambda c: mf.exponential(c, vec(0, -1), vec(1, 0)), "point"),
        (lambda c: mf.exponential(c, vec(0, 1), vec(math.nan, 0)), "velocity"),
        (lambda c: mf.geodesic(c, vec(0, 1), vec(1, 0), vec(1, 0)), "times"),
        (lambda c: mf.logarithm(c, vec(0, 1), vec(0, -1)), "end"),
        (lambda c: mf.gaussian_curvature(SKEWED, vec(0, 1, 0)), "chart"),
        (lambda c: mf.rotation_angle(SKEWED, vec(0, 1, 0), torch.eye(3)), "chart"),
        (lambda c: mf.rotation_angle(c, vec(0, 1), torch.eye(3)), "turn"),
        (lambda c: mf.rotation_angle(c, vec(0, 1), torch.full((2, 2), math.nan)), "turn"),
        (lambda c: mf.Chart(0, lambda x: x), "dim"),
        (lambda c: mf.Chart(2, lambda x: x, periods=(1.0,)), "periods"),
        (lambda c: mf.sphere_spherical(-1.0), "radius"),
        (lambda c: mf.torus(1.0, 2.0), "major"),
        (lambda c: mf.circle(vec(0, 0), math.inf), "radius"),
        (lambda c: mf.square_loop(vec(0, 0, 0), 1.0), "center"),
        (lambda c: mf.sectional_curvature(SKEWED, vec(0, 1, 0), vec(1, 2, 0), vec(2, 4, 0)), "v"),
        (lambda c: mf.conformal_sectional_curvature(bumpy, vec(0, 1), vec(1, 2), vec(2, 4)), "v"),
        (lambda c: mf.conformal_sectional_curvature(bumpy, vec(0, 1), vec(1, 2, 3), vec(2, 4)), "u"),
        (lambda c: mf.conformal_sectional_curvature(bumpy, vec(0, 1), vec(1, 2), vec(2, 4, 3)), "v"),
        (lambda c: mf.conformal_sectional_curvature(bumpy, vec(0, math.nan), vec(1, 2), vec(2, 4)), "points"),
        (lambda c: mf.conformal_christoffel(bumpy, vec(0, math.inf)), "points"),
        (lambda c: mf.conformal_curvature(bumpy, vec(0, 1, 2)), "points"),
        (lambda c: mf.sectional_curvature(SKEWED, vec(0, 1, 0), vec(1, 2), vec(2, 4, 3)), "u"),
        (lambda c: mf.sectional_curvature(SKEWED, vec(0, 1, 0), vec(1, 2, 0), vec(2, 4)), "v"),
        (lambda c: mf.norm(c, vec(0, 1), vec(1, 2, 0)), "vectors"),
        (lambda c: mf.norm(c, vec(0, -1), vec(1, 2)), "points"),
        (lambda c: mf.geodesic_transport(c, vec(0, -1), vec(1, 2)), "point"),
        (lambda c: mf.geodesic_transport(c, vec(0, 1), vec(1, 2, 0)), "velocity"),
        (lambda c: mf.geodesic(c, vec(0, 1), vec(1, 0), vec(0)), "times"),
        (lambda c: mf.geodesic(c, vec(0, 1), vec(1, 0), vec(0, 1, 1)), "times"),
        (lambda c: mf.torus(1.0, 1.0), "major"),
        (lambda c: mf.torus(math.inf, 1.0), "major"),
        (lambda c: mf.torus(1.0, -1.0), "minor"),
        (lambda c: mf.sphere_stereographic(0.0), "radius"),
        (lambda c: mf.circle(vec(0, 0, 0), 1.0), "center"),
        (lambda c: mf.segment([0.0, 1.0], vec(0, 1)), "start"),
        (lambda c: mf.segment(vec(0, 1), [0.0, 1.0]), "end"),
        (lambda c: mf.polygon([[0.0, 1.0]]), "vertices"),
        (lambda c: mf.circle([0.0, 1.0], 1.0), "center"),
        (lambda c: mf.square_loop([0.0, 1.0], 1.0), "center"),
        (lambda c: mf.christoffel(c, [0.0, 1.0]), "points"),
        (lambda c: mf.geodesic(c, [0.0, 1.0], vec(1, 0), vec(0, 1)), "point"),
        (lambda c: mf.geodesic(c, vec(0, 1), vec(1, 0), [0, 1]), "times"),
        (lambda c: mf.distance(c, [0.0, 1.0], vec(0, 1)), "start"),
        (lambda c: mf.parallel_transport(c, [vec(0, 1)], vec(1, 0)), "path, piece 0"),
    ],
)
def test_bad_input_is_named(call, argument):
    with pytest.raises(ValueError, match=f"^{argument}: got (?!None;)"):  # and what came is told
        call(mf.half_plane())


@pytest.mark.parametrize(
    ("chart", "name"),
    [
        (mf.sphere_spherical(), "sphere, spherical coordinates"),
        (mf.half_plane(), "half-plane"),
        (mf.poincare_disk(), "Poincare disk"),
        (mf.Chart(2, lambda x: x, lambda x: -x[..., 0].square()), "chart"),
    ],
)
def test_a_point_outside_is_told_with_its_chart(chart, name):
    complaint = rf"^points: got \[\[-1.0, -2.0\]\]; all points must lie inside the chart '{name}'$"
    with pytest.raises(ValueError, match=complaint):
        mf.christoffel(chart, torch.stack([vec(0.5, 0.5), vec(-1, -2), vec(-3, -2)][name == "chart" :]))


def test_a_chart_has_no_boundary_and_a_point_is_outside_alone():
    points = torch.stack([vec(0, 0), vec(0, 1), vec(0, math.inf)])
    assert mf.half_plane().contains(points).tolist() == [False, True, False]


def test_charts_have_names():
    made = mf.sphere_spherical, mf.sphere_stereographic, mf.half_plane, mf.poincare_disk, mf.torus
    names = ["sphere, spherical coordinates", "sphere, stereographic", "half-plane", "Poincare disk", "torus"]
    assert [chart().name for chart in made] == names
    assert mf.conformally_flat(bumpy).name == "conformally flat"


def test_angles_of_charts_come_round_after_a_whole_turn():
    round_once = 2 * math.pi
    assert mf.sphere_spherical().periods == (0, round_once)
    assert mf.torus().periods == (round_once, round_once)


def test_a_slanted_line_through_flat_planes_carries_as_riemannformer_does():  # RF-8
    log_s, theta, n, m = math.log(0.9), torch.tensor([0.8, -0.25], dtype=torch.float64), 2.0, 5.0
    preset = rotation_preset(torch.tensor(log_s, dtype=torch.float64), theta)
    expected = transports(preset.frames(vec(n, m)))[1, 0]  # T_m T_n^-1
    plane = mf.power_metric(log_s, 2)
    for j in range(2):
        token = lambda p, j=j: vec(p, -2 * p * float(theta[j]) / log_s)  # noqa: E731
        carried = mf.transport_matrix(plane, mf.segment(token(n), token(m)))
        block = slice(2 * j, 2 * j + 2)
        assert torch.allclose(carried, expected[block, block], atol=1e-9)
        assert torch.allclose(plane.metric_at(token(m)), preset.metrics(vec(m))[0, block, block])
        assert abs(float(mf.gaussian_curvature(plane, token(m)))) < 1e-12


def test_import_does_not_load_scipy(tmp_path):
    program = "import sys, geolib.manifolds, geolib.connection; sys.exit('scipy' in sys.modules)"
    assert Started(tmp_path, program).wait() == 0


def test_a_polygon_of_geodesics_keeps_lengths_in_a_chart_that_is_not_conformal():
    chart = mf.sphere_spherical()
    corners = torch.tensor([[1.0, 0.0], [1.4, 0.3], [0.7, 0.8]], dtype=torch.float64)
    turn, g = mf.geodesic_holonomy(chart, corners), chart.metric_at(corners[0])
    assert_close(turn.mT @ g @ turn, g, atol=1e-7, rtol=1e-7)
