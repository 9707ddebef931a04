"""Christoffel symbols, geodesics, transport and holonomy against closed forms, R^3 and conserved quantities."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from often import close, double, refuses, vec
from scipy.spatial.transform import Rotation
from torch.func import jacfwd
from torch.testing import assert_close

from geolib import manifolds as mf
from geolib.rotations import rotation_matrix
from geolib.transport import rotation_preset, transports

torch.set_num_threads(1)
few = settings(deadline=None, max_examples=12)
coordinates = st.floats(-0.6, 0.6)
solved = partial(close, atol=1e-8)  # what comes out of a differential equation


def bumpy(x):
    """A conformal factor with no symmetry."""
    return 0.3 * (2 * x[0]).sin() * x[1] + 0.2 * x[0] ** 2


def bump_in_space(x):
    """A conformal factor of three dimensions with no symmetry."""
    return bumpy(x) + 0.2 * x[2] ** 2 + 0.1 * x[0] * x[2]


def skewed_metric(x):
    """A metric of three dimensions with no symmetry and no zero entries."""
    a, b, c = x
    none = 0 * a
    rows = (1 + 0.1 * b**2, none, none), (0.3 * c.sin(), 1.2 + 0.2 * a * b, none)
    rows = *rows, (0.2 * a, none + 0.1, 1 + 0.3 * (a + c).cos() ** 2)
    factor = torch.stack([torch.stack(row) for row in rows])
    return factor @ factor.T


SKEWED = mf.Chart(3, skewed_metric, name="skewed")
SURFACES = {
    "spherical": (mf.sphere_spherical(), vec(1.1, 0.4)),
    "stereographic": (mf.sphere_stereographic(), vec(0.3, -0.4)),
    "half-plane": (mf.half_plane(), vec(0.3, 1.2)),
    "disk": (mf.poincare_disk(), vec(0.2, -0.4)),
    "torus": (mf.torus(), vec(0.7, 0.2)),
    "bumpy": (mf.conformally_flat(bumpy), vec(0.2, 0.5)),
}


# The connection of the metric ----------------------------------------------------------------------------------------


@few
@given(coordinates, coordinates, coordinates)
def test_the_connection_is_without_torsion_and_keeps_the_metric(x, y, z):  # RF-PT
    point = vec(x, y, z)
    gamma, g = mf.christoffel(SKEWED, point), SKEWED.metric_at(point)
    close(gamma, gamma.transpose(-1, -2), 1e-12)
    for k, h in enumerate(1e-5 * torch.eye(3).double()):
        # Central differences, not automatic ones: d_k g_ij = Gamma_ik^l g_lj + Gamma_jk^l g_il.
        slope = (SKEWED.metric_at(point + h) - SKEWED.metric_at(point - h)) / 2e-5
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
    "conformal curvature": lambda x: mf.conformal_curvature(bumpy, x[..., :2]),
    "angle": lambda x: mf.rotation_angle(mf.torus(), x[..., :2], rotation_matrix(x[..., 2])),
    "latitude transport": lambda x: mf.latitude_transport(x[..., 0], x[..., 1]),
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
    if name not in ("angle", "spherical area"):  # closed forms keep the dtype that came
        assert together.dtype == torch.float64


# Curvature ------------------------------------------------------------------------------------------------------------


@few
@given(st.floats(0.2, 2.9), st.floats(0.5, 3.0))
def test_spheres_and_hyperbolic_planes_have_constant_curvature(theta, radius):  # RF-PT
    for chart, point, curvature in (
        (mf.sphere_spherical(radius), vec(theta, 1.0), radius**-2),
        (mf.sphere_stereographic(radius), vec(theta, 1), radius**-2),
        (mf.poincare_disk(), vec(theta / 5, 0.3), -1),
        (mf.half_plane(), vec(radius, theta), -1),
    ):
        close(mf.gaussian_curvature(chart, point), vec(curvature)[0], 1e-9)


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
    # By hand: f_xx + f_yy = -1.2 sin(2x) y + 0.4, and f as in bumpy.
    expected = -math.exp(-2 * bumpy(vec(x, y))) * (0.4 - 1.2 * math.sin(2 * x) * y)
    close(mf.gaussian_curvature(mf.conformally_flat(bumpy), vec(x, y)), vec(expected)[0])
    close(mf.conformal_curvature(bumpy, vec(x, y)), vec(expected)[0])


@pytest.mark.parametrize(("f", "dim"), [(bumpy, 2), (bump_in_space, 3)])
def test_conformal_christoffel_symbols_are_those_of_the_metric(f, dim):  # RF-FLAT
    points = 0.7 * double(5, dim)
    close(mf.conformal_christoffel(f, points), mf.christoffel(mf.conformally_flat(f, dim), points), 1e-12)


def test_a_metric_that_varies_can_be_flat():  # RF-FLAT, RF-6
    def harmonic(x):
        return x[0].exp() * x[1].cos() / 4 + 0.7 * x[0]

    points = double(5, 2)
    chart = mf.conformally_flat(harmonic)
    assert chart.metric_at(points)[:, 0, 0].std() > 0.1
    close(mf.gaussian_curvature(chart, points), torch.zeros(5, dtype=torch.float64))
    solved(mf.holonomy(chart, mf.circle(vec(0.3, 0.1), 0.5)), torch.eye(2).double())


def test_riemann_tensor_has_its_symmetries():  # RF-PT
    point = vec(0.3, -0.2, 0.5)
    tensor = torch.einsum("al,lkij->akij", SKEWED.metric_at(point), mf.riemann(SKEWED, point))
    assert tensor.abs().max() > 0.01
    close(tensor, -tensor.transpose(0, 1), 1e-12)
    close(tensor, tensor.permute(2, 3, 0, 1), 1e-12)
    close(tensor + tensor.permute(0, 2, 3, 1) + tensor.permute(0, 3, 1, 2), torch.zeros_like(tensor), 1e-12)


def test_sectional_curvature_depends_on_the_plane_alone():  # RF-FLAT
    point, u, v = vec(0.2, 0.3, -0.1), double(3), double(3)
    first = mf.sectional_curvature(SKEWED, point, u, v)
    solved(first, mf.sectional_curvature(SKEWED, point, 2 * v - u, 3 * u + v))
    long = vec(1e-9, 1, 1e9)[:, None]  # and not on lengths, each vector's own
    solved(mf.sectional_curvature(SKEWED, point, long * u, long.flip(0) * v), first.expand(3))
    solved(mf.sectional_curvature(SKEWED, point, u, u + 1e-6 * v), first)
    assert (first - mf.sectional_curvature(SKEWED, point, u, v + vec(1, 0, 0))).abs() > 1e-3


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


def test_frames_are_orthonormal_and_oriented():  # RF-5
    points = 0.5 * double(4, 3)
    frame = mf.orthonormal_frame(SKEWED, points)
    close(frame.mT @ SKEWED.metric_at(points) @ frame, torch.eye(3).double().expand(4, 3, 3), 1e-12)
    assert (torch.linalg.det(frame) > 0).all()


# Geodesics against closed forms ---------------------------------------------------------------------------------------


def embed_disk(points):
    """The hyperboloid's point over a point of the Poincare disk: (2x, 1 + |x|^2) / (1 - |x|^2)."""
    square = points.square().sum(-1, keepdim=True)
    return torch.cat([2 * points, 1 + square], -1) / (1 - square)


def push(embedding, point, velocity):
    """The derivative of an embedding, applied to a velocity."""
    return jacfwd(embedding)(point) @ velocity


def in_space(point, velocity, t, sign):
    """A great circle of the unit sphere (sign 1), or the hyperboloid's geodesic in Minkowski's space (sign -1)."""
    speed = (velocity @ (vec(1, 1, sign) * velocity)).sqrt()
    even, odd = (torch.cos, torch.sin) if sign > 0 else (torch.cosh, torch.sinh)
    return even(speed * t) * point + odd(speed * t) * velocity / speed


@pytest.mark.parametrize(
    ("name", "embedding", "sign"),
    [
        ("spherical", mf.embed_spherical, 1),
        ("stereographic", mf.embed_stereographic, 1),
        ("disk", embed_disk, -1),
        ("half-plane", lambda x: embed_disk(mf.half_plane_to_disk(x)), -1),
    ],
)
def test_geodesics_are_great_circles_and_hyperbolas(name, embedding, sign):  # RF-PT
    (chart, point), velocity = SURFACES[name], vec(0.3, 0.5)
    times = torch.linspace(0, 1.5, 4, dtype=torch.float64)
    positions, velocities = mf.geodesic(chart, point, velocity, times)
    expected = in_space(embedding(point), push(embedding, point, velocity), times[:, None], sign)
    solved(embedding(positions), expected)
    solved(mf.norm(chart, positions, velocities), mf.norm(chart, point, velocity).expand(4))


def test_logarithm_undoes_the_exponential_map_in_a_batch():  # RF-PT
    starts, velocities = 0.3 * double(3, 2), 0.5 * double(3, 2)
    chart = mf.conformally_flat(bumpy)
    ends = mf.exponential(chart, starts, velocities)
    close(mf.logarithm(chart, starts, ends), velocities, 1e-7)
    solved(ends[1], mf.exponential(chart, starts[1], velocities[1]))
    solved(mf.exponential(chart, starts, velocities[1])[1], ends[1])  # one velocity for all


@few
@given(coordinates, coordinates)
def test_cayleys_map_is_an_isometry(x, y):  # RF-PT
    point = vec(x, y + 1)
    slope = jacfwd(mf.half_plane_to_disk)(point)
    pulled_back = slope.T @ mf.poincare_disk().metric_at(mf.half_plane_to_disk(point)) @ slope
    close(pulled_back, mf.half_plane().metric_at(point), 1e-12)
    assert torch.linalg.det(slope) > 0


# Parallel transport ---------------------------------------------------------------------------------------------------


def wavy(point):
    """A curve from a point with no symmetry."""
    return lambda t: point + torch.stack([0.3 * t + 0.1 * (3 * t).sin(), 0.2 * t**2 - 0.25 * t])


@pytest.mark.parametrize(("chart", "point"), SURFACES.values(), ids=SURFACES)
def test_transport_keeps_the_metrics_lengths_and_angles(chart, point):  # RF-PT, RF-1
    curve = wavy(point)
    matrix = mf.transport_matrix(chart, curve)
    start, end = (chart.metric_at(curve(vec(t)[0])) for t in (0, 1))
    solved(matrix.T @ end @ matrix, start)


def test_transport_is_linear_and_depends_on_the_curve():  # RF-PT
    chart, curve = mf.conformally_flat(bumpy), wavy(vec(0.2, 0.5))
    u, v = double(2, 2)
    carried = mf.parallel_transport(chart, curve, torch.stack([u, v, 2 * u - 3 * v]))
    solved(carried[2], 2 * carried[0] - 3 * carried[1])
    solved(mf.transport_matrix(chart, lambda t: curve(t**2 * (3 - 2 * t))) @ u, carried[0])  # not on the speed
    sphere, start, corner, end = mf.sphere_stereographic(), vec(0, 0), vec(1, 0), vec(1, 1)
    bent = mf.transport_matrix(sphere, [mf.segment(start, corner), mf.segment(corner, end)])
    assert (mf.transport_matrix(sphere, mf.segment(start, end)) - bent).abs().max() > 0.1


@settings(deadline=None, max_examples=5)
@given(st.floats(0.3, 2.8), st.floats(-6, 6))
def test_transport_along_latitude_circles_has_a_closed_form(theta, phi):  # RF-PT
    curve = mf.segment(vec(theta, 0.5), vec(theta, 0.5 + phi))
    solved(mf.transport_matrix(mf.sphere_spherical(2.0), curve), mf.latitude_transport(vec(theta)[0], vec(phi)[0]))


def test_transport_along_a_great_circle_is_the_rotation_of_space():  # RF-PT
    sphere, point, velocity = mf.sphere_stereographic(), vec(0.2, -0.3), vec(0.4, 0.7)
    x, v = mf.embed_stereographic(point), push(mf.embed_stereographic, point, velocity)
    turn = torch.from_numpy(Rotation.from_rotvec(torch.linalg.cross(x, v)).as_matrix())  # by the angle |v|
    here, there = (jacfwd(mf.embed_stereographic)(p) for p in (point, mf.exponential(sphere, point, velocity)))
    solved(there @ mf.geodesic_transport(sphere, point, velocity), turn @ here)


def test_a_batch_of_curves_gives_what_each_gives_alone():  # RF-PT
    chart, starts, ends = mf.poincare_disk(), 0.3 * double(2, 3, 2), 0.3 * double(2, 3, 2)
    together = mf.transport_matrix(chart, mf.segment(starts, ends))
    assert together.shape == (2, 3, 2, 2)
    solved(mf.parallel_transport(chart, mf.segment(starts, ends), vec(1, 2)), together @ vec(1, 2))
    solved(together[1, 2], mf.transport_matrix(chart, mf.segment(starts[1, 2], ends[1, 2])))


def test_a_slanted_line_through_flat_planes_carries_as_riemannformer_does():  # RF-8
    log_s, theta, n, m = math.log(0.9), vec(0.8, -0.25), 2.0, 5.0
    preset = rotation_preset(vec(log_s)[0], theta)
    expected = transports(preset.frames(vec(n, m)))[1, 0]  # T_m T_n^-1
    plane = mf.power_metric(log_s, 2)
    for j in range(2):
        start, end = (vec(p, -2 * p * float(theta[j]) / log_s) for p in (n, m))
        block = slice(2 * j, 2 * j + 2)
        solved(mf.transport_matrix(plane, mf.segment(start, end)), expected[block, block])
        close(plane.metric_at(end), preset.metrics(vec(m))[0, block, block])
    straight = mf.segment(vec(n, 0.3, -1), vec(m, 0.3, -1))  # along the tokens, where space is curved
    solved(mf.transport_matrix(mf.power_metric(log_s, 3), straight), 0.9 ** ((n - m) / 2) * torch.eye(3).double())


# Holonomy -------------------------------------------------------------------------------------------------------------


def test_holonomy_of_a_spherical_triangle_is_its_area():  # RF-PT, RF-FLAT
    corners = torch.stack([vec(0.1, 0.0), vec(0.9, 0.1), vec(0.3, 0.8)])
    turn = mf.geodesic_holonomy(mf.sphere_stereographic(), corners)
    area = mf.spherical_area(*mf.embed_stereographic(corners))
    assert 0.3 < area < 1
    solved(mf.rotation_angle(mf.sphere_stereographic(), corners[0], turn), area)
    x, y, z = mf.embed_stereographic(corners).unbind(-1)
    polar = torch.stack([z.acos(), torch.atan2(y, x)], -1)  # in this chart turns of different places do not commute
    sphere = mf.sphere_spherical()
    solved(mf.rotation_angle(sphere, polar[0], mf.geodesic_holonomy(sphere, polar)), area)


def test_holonomy_is_the_integral_of_curvature():  # RF-PT, RF-FLAT
    latitude = mf.segment(vec(1, 0), vec(1, 2 * math.pi))  # its cap, modulo a full turn
    cap = math.remainder(2 * math.pi * (1 - math.cos(1)), 2 * math.pi)
    solved(mf.holonomy_angle(mf.sphere_spherical(), latitude), vec(cap)[0])
    chart = mf.conformally_flat(lambda x: 0.3 * x[0] ** 2 - 0.1 * x[1] ** 2 + x[0] * x[1] + 0.5 * x[1])
    corners = torch.stack([vec(-0.5, 0), vec(1, -0.3), vec(0.4, 1.1)])
    (ux, uy), (vx, vy) = corners[1] - corners[0], corners[2] - corners[0]
    solved(mf.holonomy_angle(chart, mf.polygon(corners)), -0.4 * (ux * vy - uy * vx) / 2)  # of minus the Laplacian


@pytest.mark.parametrize("name", ["stereographic", "disk", "torus", "bumpy"])
def test_holonomy_of_a_small_loop_is_curvature_times_area_to_second_order(name):  # RF-FLAT
    chart, point = SURFACES[name]
    sides = vec(0.2, 0.1, 0.05)
    errors = (mf.curvature_from_holonomy(chart, point, sides) - mf.gaussian_curvature(chart, point)).abs()
    assert errors[-1] < 0.02
    close((errors[:-1] / errors[1:]).log2(), vec(2, 2), 0.1)


# The shortest way -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("radius", [1.0, 3.0])
def test_random_pairs_of_the_sphere_have_their_distance(radius):  # RF-PT
    z, turn = (
        1.4 * torch.rand(2, 5).double() - 0.7,
        1.5 * torch.rand(2, 5).double(),
    )  # far from great circles near poles
    flat = torch.stack([turn.cos(), turn.sin()], -1) * ((1 - z) / (1 + z)).sqrt()[..., None]
    expected = radius * F.cosine_similarity(*mf.embed_stereographic(flat), -1).acos()
    solved(mf.distance(mf.sphere_spherical(radius), *torch.stack([z.acos(), turn], -1)), expected)
    solved(mf.distance(mf.sphere_stereographic(radius), *(radius * flat)), expected)


def test_a_batch_of_pairs_has_the_distance_of_each():  # at one place, near and far, in lengths of many sizes
    start = torch.stack([vec(0, 1), vec(0, 1), vec(0, 1e-5), vec(0, 1), vec(0, 1e-3), vec(0, 1e7)])
    end = torch.stack([vec(0, 1), vec(4, 1), vec(3e-5, 2e-5), vec(0.1, 1), vec(0.05, 1e-3), vec(1e7, 1e7)])
    expected = (1 + (end - start).square().sum(-1) / (2 * start[:, 1] * end[:, 1])).acosh()
    solved(mf.distance(mf.half_plane(), start, end), expected)
    moved = (mf.half_plane_to_disk(x[[1, 3]]) for x in (start, end))
    solved(mf.distance(mf.poincare_disk(), *moved), expected[[1, 3]])


def test_the_shorter_way_round_is_taken():
    around, halfway = 2 * math.pi - 6.1, math.pi / 2  # from 0.1 to 6.2
    for chart, start, end, radius in (
        (mf.sphere_spherical(), vec(halfway, 0.1), vec(halfway, 6.2), 1),
        (mf.torus(3.0, 1.2), vec(math.pi, 0.1), vec(math.pi, 6.2), 1.8),  # the inner equator
        (mf.torus(3.0, 1.2), vec(0.1, 2), vec(6.2, 2), 1.2),
    ):
        solved(mf.distance(chart, start, end), vec(radius * around)[0])


def test_the_shortest_way_goes_round_a_summit_in_any_unit():
    bumped = mf.conformally_flat(lambda x: torch.exp(-30 * x @ x))
    charts = (mf.Chart(2, lambda x, unit=unit: unit * bumped.metric(x)) for unit in (1.0, 2.0**-24, 2.0**24))
    found = torch.stack([mf.logarithm(chart, vec(-0.5, 0), vec(0.5, 0)) for chart in charts])
    assert found[0, 1].abs() > 0.1  # the straight line, over the summit, is a saddle
    close(found, found[0].expand(3, 2), 1e-9)


# Bad input ------------------------------------------------------------------------------------------------------------


def test_what_scipy_solves_refuses_a_gradient_which_it_would_drop():
    with pytest.raises(ValueError, match="got a tensor with a gradient"):
        mf.exponential(mf.half_plane(), vec(0, 1), vec(0.1, 0.2).requires_grad_())


def test_a_way_that_leaves_the_chart_is_refused():
    holed = mf.Chart(2, lambda x: torch.eye(2, dtype=x.dtype) + 0 * x[0], lambda x: x.norm(dim=-1) - 1, name="holed")
    solved(mf.distance(holed, vec(-2, 1.5), vec(2, 1.5)), vec(4)[0])
    with pytest.raises(ValueError, match=r"end: got .*start = .*no shortest geodesic"):
        mf.distance(holed, vec(-2, 0.1), vec(2, 0.1))


def constant(*rows):
    return mf.Chart(2, lambda x: vec(*rows) + 0 * x[0])


test_matrices_that_are_no_metric_are_refused = refuses(
    *(
        (lambda use=use, chart=chart: use(chart, vec(0.1, 0.2)), f"metric: got .*{complaint}")
        for use in (mf.christoffel, mf.gaussian_curvature, mf.orthonormal_frame)
        for chart, complaint in (
            (constant((1, 1), (1, 1)), "singular or indefinite"),
            (constant((1, 0), (0, -1)), "singular or indefinite"),
            (constant((1, 0.5), (0, 1)), "not symmetric"),
            (constant((1, math.nan), (math.nan, 1)), "not finite"),
            (constant((1, 0, 0), (0, 1, 0)), "shape"),
        )
    )
)


def dip(t):
    """Below 0 for 0.5028 < t < 0.5128 only, between two of the samples 1/64 apart."""
    return torch.stack([t, 1 - 1.01 * torch.exp(-(((t - 0.5078) / 0.05) ** 2))])


@pytest.mark.parametrize(
    ("chart", "path", "where"),
    [
        (mf.poincare_disk(), mf.segment(vec(0, 0), vec(1.3, 0)), "0: .* before t = 0.78125"),  # at 1 / 1.3
        (mf.sphere_spherical(), mf.segment(vec(math.pi - 1, 0), vec(math.pi + 1, 0)), "0: .* before t = 0.5"),
        (mf.half_plane(), mf.polygon(torch.stack([vec(0, 1), vec(1, 1), vec(1, -3)])), "1: .* before t = 0.25"),
        (mf.half_plane().within(1e-3, 1e-3), dip, r"0: .* at t = 0\.502"),  # the solver meets it
    ],
)
def test_a_curve_that_leaves_the_chart_is_caught_and_about_where(chart, path, where):
    with pytest.raises(ValueError, match=f"path, piece {where}"):
        mf.parallel_transport(chart, path, vec(1, 0))


PLANE = mf.half_plane()
test_bad_input_is_named = refuses(
    (lambda: mf.christoffel(PLANE, vec(1, 2, 3)), "points"),
    (lambda: mf.parallel_transport(PLANE, mf.segment(vec(0, 1), vec(1, 1)), vec(1, 2, 3)), "vectors"),
    (lambda: mf.parallel_transport(PLANE, mf.segment(vec(0, 1, 0), vec(1, 1, 0)), vec(1, 2)), "path, piece 0"),
    (lambda: mf.parallel_transport(PLANE, [], vec(1, 2)), "path"),
    (lambda: mf.parallel_transport(PLANE, [mf.segment(vec(0, 1), vec(1, 1))] * 2, vec(1, 2)), "path"),
    (lambda: mf.holonomy(PLANE, mf.segment(vec(0, 1), vec(1, 1))), "loop"),
    (lambda: PLANE.within(0, 1e-12), "rtol"),
    (lambda: mf.exponential(PLANE, vec(0, -1), vec(1, 0)), "point"),
    (lambda: mf.exponential(PLANE, vec(0, 1), vec(math.nan, 0)), "velocity"),
    (lambda: mf.geodesic(PLANE, vec(0, 1), vec(1, 0), vec(1, 0)), "times"),
    (lambda: mf.logarithm(PLANE, vec(0, 1), vec(0, -1)), "end"),
    (lambda: mf.gaussian_curvature(SKEWED, vec(0, 1, 0)), "chart"),
    (lambda: mf.rotation_angle(SKEWED, vec(0, 1, 0), torch.eye(3)), "chart"),
    (lambda: mf.rotation_angle(PLANE, vec(0, 1), torch.eye(3)), "turn"),
    (lambda: mf.Chart(2, lambda x: x, periods=(1.0,)), "periods"),
    (lambda: mf.sphere_spherical(-1.0), "radius"),
    (lambda: mf.torus(1.0, 2.0), "major"),
    (lambda: mf.square_loop(vec(0, 0, 0), 1.0), "center"),
    (lambda: mf.sectional_curvature(SKEWED, vec(0, 1, 0), vec(1, 2, 0), vec(2, 4, 0)), "v"),
    (lambda: mf.segment([0.0, 1.0], vec(0, 1)), "start"),
    (lambda: mf.polygon([[0.0, 1.0]]), "vertices"),
    (lambda: mf.geodesic(PLANE, vec(0, 1), vec(1, 0), [0, 1]), "times"),
    (lambda: mf.parallel_transport(PLANE, [vec(0, 1)], vec(1, 0)), "path, piece 0"),
    (lambda: mf.transport_matrix(PLANE, lambda t: torch.stack([t.detach(), 1 + 0 * t])), "path, piece 0"),
)
