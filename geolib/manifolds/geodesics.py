"""Geodesics: shooting them, the shortest way from one point to another, and polygons made of them."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.func import grad, hessian, vmap

from geolib._checks import check_tensor, require
from geolib._compile import kept
from geolib.manifolds.charts import Chart, coordinates, difference, inside, norm, over_batch
from geolib.manifolds.transport import basis_rows, left_chart, pull, solve

__all__ = ["distance", "exponential", "geodesic", "geodesic_holonomy", "geodesic_transport", "logarithm"]

# Shooting -------------------------------------------------------------------------------------------------------------


def _shoot(chart: Chart, points: Tensor, rows: Tensor, times: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Follow the geodesics whose velocity is the first row and carry all rows along: positions, and rows, at times."""
    points = inside(chart, points, "point")
    points = points.expand(*rows.shape[:-2], -1)

    def rate(t: float, y: Tensor) -> Tensor:
        x, carried = y[..., 0, :], y[..., 1:, :]
        # A geodesic carries its own velocity: the first carried row is both.
        return torch.cat([y[..., 1:2, :], pull(chart, x, carried[..., 0, :], carried)], -2)

    states, reached = solve(chart, rate, torch.cat([points[..., None, :], rows], -2), times)
    if reached != times[-1]:
        left_chart(chart, "velocity", f"at t = {reached:.9g}")
    return states[..., 0, :], states[..., 1:, :]


def geodesic(chart: Chart, point: Tensor, velocity: Tensor, times: Tensor) -> tuple[Tensor, Tensor]:
    """The geodesic from a point with a velocity, both (..., n): x'' + Gamma(x', x') = 0.

    Positions and velocities, each (count, ..., n), at times (count,) that increase from the first, when the geodesic is
    at the point. ValueError when it leaves the chart (it says at which time).
    Source: RF-PT.

    >>> t = torch.tensor([0.0, 1.0, 2.0])
    >>> geodesic(half_plane(), torch.tensor([0.0, 1.0]), torch.tensor([0.0, 1.0]), t)[0][:, 1].round(decimals=4)
    tensor([1.0000, 2.7183, 7.3891], dtype=torch.float64)
    """
    point, velocity = coordinates(point, chart.dim, "point"), coordinates(velocity, chart.dim, "velocity")
    check_tensor(times, "times")
    rising = times.dim() == 1 and len(times) > 1 and bool((times.diff() > 0).all())
    require(rising, "times", times.tolist(), "at least two, increasing")
    rows = velocity.expand(torch.broadcast_shapes(velocity.shape, point.shape))[..., None, :]
    positions, carried = _shoot(chart, point, rows, times.tolist())
    return positions, carried[..., 0, :]


def exponential(chart: Chart, point: Tensor, velocity: Tensor) -> Tensor:
    """The exponential map: where the geodesic with this velocity is after unit time; errors as ``geodesic``.
    Source: RF-PT.

    >>> exponential(poincare_disk(), torch.zeros(2), torch.tensor([0.5, 0.0])).round(decimals=6).tolist()  # tanh(1/2)
    [0.462117, 0.0]
    """
    return geodesic(chart, point, velocity, torch.tensor([0.0, 1.0]))[0][-1]


# The shortest way -----------------------------------------------------------------------------------------------------


def logarithm(chart: Chart, start: Tensor, end: Tensor) -> Tensor:
    """The velocity of the geodesic from start to end in unit time that no small change of it makes shorter.

    A polygon from the straight line of the chart (the shorter way round in coordinates that come round) is shortened
    until nothing shortens it; polynomials of least energy near it make it exact. Where the metric bends no two
    geodesics back together, and on the sphere, this is the shortest of all. ValueError when none is found inside the
    chart, as where start and end see each other along many, or are both too near its ideal boundary.
    Source: RF-PT.

    >>> logarithm(half_plane(), torch.tensor([0.0, 1.0]), torch.tensor([0.0, math.e])).round(decimals=6).tolist()
    [0.0, 1.0]
    """
    start, end = torch.broadcast_tensors(inside(chart, start, "start"), inside(chart, end, "end"))
    end = start + difference(chart, start, end)
    polygon, shortest = _shortened(chart, start.reshape(-1, chart.dim), end.reshape(-1, chart.dim))
    velocity = _first_velocity(chart, polygon) if shortest else None
    if velocity is None:
        nothing = "no shortest geodesic between them was found inside the chart; take points nearer to each other"
        raise ValueError(f"end: got {end.tolist()} from start = {start.tolist()}; {nothing}")
    return velocity.reshape(start.shape)


def distance(chart: Chart, start: Tensor, end: Tensor) -> Tensor:
    """The length of the geodesic from start to end, both (..., n), that ``logarithm`` finds; errors as there.
    Source: RF-PT.

    >>> round(float(distance(half_plane(), torch.tensor([0.0, 1.0]), torch.tensor([0.0, 20.0]))), 6)  # log 20
    2.995732
    """
    return norm(chart, start, logarithm(chart, start, end))


_PIECES = 24  # of the polygon that finds the shortest way
_DEGREES = (12, 20, 32, 48, 72, 96, 144, 216)  # of the polynomials, until two agree


def _shortened(chart: Chart, start: Tensor, end: Tensor) -> tuple[Tensor, bool]:
    """The polygons (batch, points, n) of least energy between points (batch, n), and whether each is a minimum.

    Damped Newton steps, with the energy's curvatures taken without their signs so that a saddle repels. At a minimum
    all are positive: then no point of the geodesic is conjugate to its start (Morse), and neighbours are longer.
    """
    a, b, n = start, end, chart.dim

    def points(inner: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return torch.cat([a[None], inner.reshape(-1, n), b[None]])

    def energy(inner: Tensor, a: Tensor, b: Tensor) -> Tensor:
        x = points(inner, a, b)
        steps, g = x.diff(dim=0), over_batch(chart.metric)(x)
        # The metric at both ends of a step: by its value at the middle, a leap over far space would cost nothing.
        return _PIECES / 4 * torch.einsum("pi,pij,pj->", steps, g[1:] + g[:-1], steps)

    parts = torch.linspace(0, 1, _PIECES + 1, dtype=torch.float64)[1:-1, None]
    inner = (a[:, None] + parts * (b - a)[:, None]).flatten(1)
    value, damping = vmap(energy)(inner, a, b), torch.zeros(len(a), 1, dtype=torch.float64)
    for _ in range(100):
        slope = vmap(grad(energy))(inner, a, b)
        bends, axes = torch.linalg.eigh(vmap(hessian(energy))(inner, a, b))
        sizes = bends.abs().clamp_min(1e-300) + damping * bends.abs().amax(-1, keepdim=True)
        along = (axes.mT @ slope[..., None])[..., 0]
        gain = (along.square() / sizes).sum(-1)
        still = gain <= 1e-9 * value
        if bool((still & (bends[:, 0] > 0)).all()):
            break
        # At a saddle nothing pulls: a push along the direction in which the energy falls most.
        along[:, 0] = torch.where(still, 0.1 * (value * sizes[:, 0]).sqrt(), along[:, 0])
        moved = inner - (axes @ (along / sizes)[..., None])[..., 0]
        reached = vmap(energy)(moved, a, b)
        valid = chart.contains(vmap(points)(moved, a, b)).all(-1)
        better = valid & (reached <= value)
        inner = torch.where(better[:, None], moved, inner)
        value = torch.where(better, reached, value)
        damping = torch.where(better[:, None], (damping / 10 - 1e-9).clamp_min(0), (10 * damping).clamp_min(1e-6))
    return vmap(points)(inner, a, b), bool((still & (bends[:, 0] > 0)).all())


# The polynomial -------------------------------------------------------------------------------------------------------


@kept(8)
def _basis(degree: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """What turns a polynomial's values at its nodes into other numbers.

    Into its values, and its derivatives, where an integral looks; into its derivative at time 0. Then what turns its
    Chebyshev coefficients into values at the nodes, and the integral's weights.
    """
    from numpy.polynomial import chebyshev, legendre

    nodes = chebyshev.chebpts2(degree + 1)
    looks, weights = legendre.leggauss(2 * degree)
    at_nodes = torch.from_numpy(chebyshev.chebvander(nodes, degree))
    slopes = torch.from_numpy(2 * chebyshev.chebder(torch.eye(degree + 1).double().numpy()))  # time is (1 + x) / 2
    value = torch.from_numpy(chebyshev.chebvander(looks, degree))
    derivative = torch.from_numpy(chebyshev.chebvander(looks, degree - 1)) @ slopes
    first = torch.from_numpy(chebyshev.chebvander(torch.tensor([-1.0]).double().numpy(), degree - 1)) @ slopes
    from_values = torch.linalg.inv(at_nodes)
    return value @ from_values, derivative @ from_values, first @ from_values, at_nodes, torch.from_numpy(weights) / 2


def _first_velocity(chart: Chart, polygon: Tensor) -> Tensor | None:
    """The first velocity (batch, n) of the curves of least energy near polygons of least energy, (batch, points, n).

    Polynomials of rising degree, each by Newton's method from the one before, until two agree to the chart's tolerance.
    The curvatures of their energy must be positive. None where no two agree.
    """
    from numpy.polynomial import chebyshev

    uniform = torch.from_numpy(chebyshev.chebvander(torch.linspace(-1, 1, polygon.shape[1]).double().numpy(), 10))
    coefficients, before = torch.linalg.pinv(uniform) @ polygon, None
    ends = polygon[:, [0, -1]]
    for degree in _DEGREES:
        _, _, first, at_nodes, _ = _basis(degree)
        x = at_nodes[:, : coefficients.shape[1]] @ coefficients
        x[:, [0, -1]] = ends
        solved = _least(chart, x, degree)
        if solved is None:  # the curve bends too much for so few nodes
            continue
        velocity = (first @ solved)[:, 0]
        if before is not None:
            error, size = (velocity - before).abs().amax(-1), velocity.abs().amax(-1)  # of each curve
            if bool((error <= 10 * (chart.atol + chart.rtol * size)).all()):
                return velocity
        coefficients, before = torch.linalg.solve(at_nodes, solved), velocity
    return None


def _least(chart: Chart, x: Tensor, degree: int) -> Tensor | None:
    """Values (batch, nodes, n) of the polynomial of least energy with these ends, by Newton's method from near it."""
    value, derivative, _, _, weights = _basis(degree)
    both = torch.stack([value, derivative])[..., 1:-1]  # the ends stay
    batch, n = len(x), chart.dim

    def energy(state: Tensor) -> Tensor:
        return state[n:] @ chart.metric(state[:n]) @ state[n:] / 2

    steepest, bend = vmap(vmap(grad(energy))), vmap(vmap(hessian(energy)))
    for _ in range(12):
        states = torch.cat([value @ x, derivative @ x], -1)
        if not bool(chart.contains(states[..., :n]).all()):
            return None
        slope = torch.einsum("q,cqi,bqca->bia", weights, both, steepest(states).unflatten(-1, (2, n)))
        bends = bend(states).reshape(batch, -1, 2, n, 2, n)
        curvature = torch.einsum("q,cqi,bqcadz,dqj->biajz", weights, both, bends, both)
        root, failed = torch.linalg.cholesky_ex(curvature.reshape(batch, slope[0].numel(), -1))
        if bool(failed.any()) or not bool(root.isfinite().all()):
            return None
        step = torch.cholesky_solve(slope.reshape(batch, -1, 1), root).reshape(slope.shape)
        x[:, 1:-1] -= step
        if bool((step.abs().amax((1, 2)) <= 1e-9 * x.abs().amax((1, 2))).all()):  # the next would be its square
            return x
    return None


# Transport along geodesics --------------------------------------------------------------------------------------------


def geodesic_transport(chart: Chart, point: Tensor, velocity: Tensor) -> Tensor:
    """The matrix (..., n, n) of parallel transport along the geodesic with this velocity, for unit time.

    Errors as ``geodesic``.
    Source: RF-PT.

    >>> up = geodesic_transport(half_plane(), torch.tensor([0.0, 1.0]), torch.tensor([0.0, math.log(3)]))
    >>> up.round(decimals=6).tolist()
    [[3.0, 0.0], [0.0, 3.0]]
    """
    velocity = coordinates(velocity, chart.dim, "velocity")
    rows = torch.cat([velocity[..., None, :], basis_rows(velocity)], -2)
    return _shoot(chart, point, rows, (0.0, 1.0))[1][-1][..., 1:, :].mT


def geodesic_holonomy(chart: Chart, vertices: Tensor) -> Tensor:
    """Parallel transport (n, n) once round the polygon of geodesics through the vertices (k, n), based at the first.

    On a surface, the rotation by the integral of the curvature over the inside: the area on the unit sphere, minus
    the area in the hyperbolic plane, for vertices in counter-clockwise order. Errors as ``logarithm``.
    Source: RF-PT, RF-FLAT.

    >>> octant = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])  # an eighth of the sphere
    >>> geodesic_holonomy(sphere_stereographic(), octant).round(decimals=6).tolist()
    [[0.0, -1.0], [1.0, 0.0]]
    """
    velocities = logarithm(chart, vertices, vertices.roll(-1, 0))
    around = torch.eye(chart.dim, dtype=torch.float64)
    for side in geodesic_transport(chart, vertices, velocities):
        around = side @ around
    return around
