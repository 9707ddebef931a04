"""Geodesics: shooting them, the shortest way from one point to another, and polygons made of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from geolib._checks import check_tensor, require
from geolib.manifolds._shortest import exact_velocity, first_velocity, shortened
from geolib.manifolds._solver import basis_rows, left_chart, pull, solve
from geolib.manifolds.charts import Chart, coordinates, difference, inside, norm

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
        left_chart(chart, "velocity", reached)
    return states[..., 0, :], states[..., 1:, :]


def geodesic(chart: Chart, point: Tensor, velocity: Tensor, times: Tensor) -> tuple[Tensor, Tensor]:
    """The geodesic from a point with a velocity, both (..., n): x'' + Gamma(x', x') = 0.

    Positions and velocities, each (count, ..., n), at times (count,) that increase from the first, when the geodesic is
    at the point. ValueError when it leaves the chart (it says at which time).

    >>> t = torch.tensor([0.0, 1.0, 2.0])
    >>> geodesic(half_plane(), torch.tensor([0.0, 1.0]), torch.tensor([0.0, 1.0]), t)[0][:, 1].round(decimals=4)
    tensor([1.0000, 2.7183, 7.3891], dtype=torch.float64)

    Source: RF-PT.
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

    >>> exponential(poincare_disk(), torch.zeros(2), torch.tensor([0.5, 0.0])).round(decimals=6).tolist()  # tanh(1/2)
    [0.462117, 0.0]

    Source: RF-PT.
    """
    return geodesic(chart, point, velocity, torch.tensor([0.0, 1.0]))[0][-1]


# The shortest way -----------------------------------------------------------------------------------------------------


def logarithm(chart: Chart, start: Tensor, end: Tensor) -> Tensor:
    """The velocity of the geodesic from start to end in unit time that no small change of it makes shorter.

    A polygon from the straight line of the chart (the shorter way round in coordinates that come round) is shortened
    until nothing shortens it; polynomials of least energy near it make it exact, or where they do not, Newton's method
    on the exponential map. Where the metric bends no two
    geodesics back together, and on the sphere, this is the shortest of all. ValueError when there is none inside the
    chart, or start and end see each other along many.

    >>> logarithm(half_plane(), torch.tensor([0.0, 1.0]), torch.tensor([0.0, math.e])).round(decimals=6).tolist()
    [0.0, 1.0]

    Source: RF-PT.
    """
    start, end = torch.broadcast_tensors(inside(chart, start, "start"), inside(chart, end, "end"))
    end = start + difference(chart, start, end)
    came = f"{end.tolist()} from start = {start.tolist()}"
    nothing = "no shortest geodesic between them was found inside the chart; take points nearer to each other"
    polygon, shortest = shortened(chart, start.reshape(-1, chart.dim), end.reshape(-1, chart.dim))
    require(shortest, "end", came, nothing)
    exact = exact_velocity(chart, polygon)
    if exact is not None:
        return exact.reshape(start.shape)
    velocity = first_velocity(polygon).reshape(start.shape)
    step = 1e-6
    probes = step * torch.cat([torch.zeros(1, chart.dim), torch.eye(chart.dim)]).double()
    probes = probes.reshape(-1, *[1] * (start.dim() - 1), chart.dim)
    best, least, failed = velocity, torch.full_like(start[..., :1], torch.inf), 0
    for _ in range(20):
        # One batch holds the geodesic and its neighbours, whose differences are the derivative of the exponential map.
        try:
            ends = exponential(chart, start, velocity + probes)
        except ValueError:  # one of them leaves the chart: go half of the way back
            failed += 1
            if velocity is best or failed > 1:  # a solver that fights a boundary takes seconds
                break
            velocity = (velocity + best) / 2
            continue
        miss = end - ends[0]
        if miss.abs().max() <= 1e2 * (chart.atol + chart.rtol * end.abs().max()):
            return velocity
        size = miss.norm(dim=-1, keepdim=True)
        better = size < least
        best, least = torch.where(better, velocity, best), torch.minimum(size, least)
        jacobian = ((ends[1:] - ends[0]) / step).movedim(0, -1)
        newton = torch.linalg.solve(jacobian, miss)
        longest = velocity.norm(dim=-1, keepdim=True) / 4  # the first guess was near: do not run away from it
        newton = newton * (longest / newton.norm(dim=-1, keepdim=True).clamp_min(1e-300)).clamp_max(1)
        # Where a step made it worse, go half of the way back.
        velocity = torch.where(better, velocity + newton, (velocity + best) / 2)
    require(False, "end", came, nothing)
    return velocity


def distance(chart: Chart, start: Tensor, end: Tensor) -> Tensor:
    """The length of the geodesic from start to end, both (..., n), that ``logarithm`` finds; errors as there.

    >>> round(float(distance(half_plane(), torch.tensor([0.0, 1.0]), torch.tensor([0.0, 20.0]))), 6)  # log 20
    2.995732

    Source: RF-PT.
    """
    return norm(chart, start, logarithm(chart, start, end))


# Transport along geodesics --------------------------------------------------------------------------------------------


def geodesic_transport(chart: Chart, point: Tensor, velocity: Tensor) -> Tensor:
    """The matrix (..., n, n) of parallel transport along the geodesic with this velocity, for unit time.

    Errors as ``geodesic``.

    >>> up = geodesic_transport(half_plane(), torch.tensor([0.0, 1.0]), torch.tensor([0.0, math.log(3)]))
    >>> up.round(decimals=6).tolist()
    [[3.0, 0.0], [0.0, 3.0]]

    Source: RF-PT.
    """
    velocity = coordinates(velocity, chart.dim, "velocity")
    rows = torch.cat([velocity[..., None, :], basis_rows(velocity)], -2)
    return _shoot(chart, point, rows, (0.0, 1.0))[1][-1][..., 1:, :].mT


def geodesic_holonomy(chart: Chart, vertices: Tensor) -> Tensor:
    """Parallel transport (n, n) once round the polygon of geodesics through the vertices (k, n), based at the first.

    On a surface, the rotation by the integral of the curvature over the inside: the area on the unit sphere, minus
    the area in the hyperbolic plane, for vertices in counter-clockwise order. Errors as ``logarithm``.

    >>> octant = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])  # an eighth of the sphere
    >>> geodesic_holonomy(sphere_stereographic(), octant).round(decimals=6).tolist()
    [[0.0, -1.0], [1.0, 0.0]]

    Source: RF-PT, RF-FLAT.
    """
    velocities = logarithm(chart, vertices, vertices.roll(-1, 0))
    around = torch.eye(chart.dim, dtype=torch.float64)
    for side in geodesic_transport(chart, vertices, velocities):
        around = side @ around
    return around
