"""Curves, parallel transport along them, and holonomy round loops."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.func import jvp

from geolib._checks import check_last, check_positive, check_tensor, require
from geolib.manifolds.charts import Chart, coordinates, difference, orthonormal_frame
from geolib.manifolds.curvature import christoffel

__all__ = [
    "Curve", "Path", "circle", "curvature_from_holonomy", "holonomy", "holonomy_angle", "parallel_transport",
    "polygon", "rotation_angle", "segment", "square_loop", "transport_matrix",
]  # fmt: skip

Curve = Callable[[Tensor], Tensor]
Path = Curve | Sequence[Curve]

# Curves ---------------------------------------------------------------------------------------------------------------


def segment(start: Tensor, end: Tensor) -> Curve:
    """The straight line of the chart from start to end, both (..., n).

    >>> segment(torch.tensor([0.0, 1.0]), torch.tensor([4.0, 1.0]))(torch.tensor(0.25)).tolist()
    [1.0, 1.0]
    """
    check_tensor(start, "start")
    check_tensor(end, "end")
    start, end = start.double(), end.double()
    return lambda t: start + t * (end - start)


def polygon(vertices: Tensor) -> list[Curve]:
    """The closed polygon with straight sides in the chart, through the vertices (k, ..., n) and back to the first.

    >>> sides = polygon(torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))
    >>> [side(torch.tensor(1.0)).tolist() for side in sides]
    [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    """
    check_tensor(vertices, "vertices")
    return [segment(a, b) for a, b in zip(vertices, vertices.roll(-1, 0))]


def square_loop(center: Tensor, side: float | Tensor) -> list[Curve]:
    """A square of the chart, counter-clockwise from its lower left corner.

    ``side`` is a coordinate length; several make a batch of squares.
    Source: RF-FLAT.

    >>> [edge(torch.tensor(0.0)).tolist() for edge in square_loop(torch.tensor([0.0, 0.0]), 2.0)]
    [[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]]
    """
    corners = torch.tensor([[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5]], dtype=torch.float64)
    reach = torch.as_tensor(side, dtype=torch.float64)[..., None]
    return polygon(torch.stack([coordinates(center, 2, "center") + reach * corner for corner in corners]))


def circle(center: Tensor, radius: float) -> Curve:
    """A circle of the chart, once round counter-clockwise from its rightmost point.

    >>> circle(torch.tensor([1.0, 0.0]), 2.0)(torch.tensor(0.25)).round(decimals=6).tolist()
    [1.0, 2.0]
    """
    center = coordinates(center, 2, "center")
    check_positive(radius, "radius")
    return lambda t: center + radius * torch.stack([(2 * math.pi * t).cos(), (2 * math.pi * t).sin()])


def _pieces(chart: Chart, path: Path) -> list[Curve]:
    """The path's curves, checked: right dimension, finite, inside the chart, joined end to end."""
    pieces = [path] if callable(path) else list(path)
    require(len(pieces) > 0, "path", "no curve", "it must be a curve or a sequence of curves")
    for index, curve in enumerate(pieces):
        _check_curve(chart, curve, f"path, piece {index}")
    for index, (before, after) in enumerate(itertools.pairwise(pieces)):
        gap = _gap(chart, before, after)
        require(gap < 1e-9, "path", f"a gap of {gap:.3g} after piece {index}", "each curve starts where the last ends")
    return pieces


def _gap(chart: Chart, before: Curve, after: Curve) -> float:
    """How far the start of one curve is from the end of another."""
    return difference(chart, before(_time(1.0)), after(_time(0.0))).abs().max().item()


def _time(t: float) -> Tensor:
    return torch.tensor(t, dtype=torch.float64)


def _moving(curve: Curve, t: float) -> tuple[Tensor, Tensor]:
    """Where the curve is at t, and its velocity."""
    point, velocity = jvp(curve, (_time(t),), (_time(1.0),))[:2]
    return point, velocity


def _check_curve(chart: Chart, curve: Curve, argument: str, samples: int = 65) -> None:
    """A curve of the right dimension whose samples are inside the chart; the error names the first that is not."""
    require(callable(curve), argument, type(curve).__name__, "a curve is a function of t")
    point = curve(_time(0.0))
    require(isinstance(point, Tensor), argument, type(point).__name__, "a curve returns a tensor")
    check_last(point, chart.dim, argument)
    times = torch.linspace(0, 1, samples, dtype=torch.float64)
    points = torch.stack([curve(t) for t in times]).double()
    outside = times[~chart.contains(points).reshape(samples, -1).all(-1)]
    if len(outside):
        left_chart(chart, argument, f"before t = {float(outside[0]):.9g}")
    chart.metric_at(points)
    middle, velocity = _moving(curve, 0.5)
    moved = (curve(_time(0.5001)) - middle).abs().max().item()
    hidden = moved > 1e-12 and not bool(velocity.any())
    allowed = "write it with torch operations on t, so that it can be differentiated"
    require(not hidden, argument, "a curve that moves while its derivative is 0", allowed)


# Differential equations -----------------------------------------------------------------------------------------------

_MOST_CALLS = 6_000  # of a differential equation's right side; a smooth problem takes a few hundred
_TOO_HARD = "it must not run into a singularity or the ideal boundary; or loosen the chart's rtol and atol"


def solve(
    chart: Chart, rate: Callable[[float, Tensor], Tensor], start: Tensor, times: Sequence[float]
) -> tuple[Tensor, float]:
    """Integrate a system from times[0] on: its states at the times it reached, and the last time it reached."""
    from scipy.integrate import solve_ivp

    graph = start.requires_grad and torch.is_grad_enabled()
    require(not graph, "point or velocity", "a tensor with a gradient", "SciPy solves this and passes none: detach it")
    calls = itertools.count()

    def flat_rate(t: float, y: Any) -> Any:
        require(next(calls) < _MOST_CALLS, "curve", f"{_MOST_CALLS} steps of the solver up to t = {t:.9g}", _TOO_HARD)
        return rate(t, torch.from_numpy(y).reshape(start.shape)).reshape(-1).numpy()

    dense = len(times) > 2  # an interpolant between the steps costs three more evaluations a step
    span, y = (times[0], times[-1]), start.reshape(-1).numpy(force=True)
    solution = solve_ivp(flat_rate, span, y, "DOP853", dense_output=dense, rtol=chart.rtol, atol=chart.atol)
    states = solution.sol(list(times)) if dense else solution.y[:, [0, -1]]
    return torch.from_numpy(states.T.copy()).reshape(-1, *start.shape), float(solution.t[-1])


def pull(chart: Chart, points: Tensor, velocity: Tensor, rows: Tensor) -> Tensor:
    """-Gamma(velocity, row): how the components of parallel vectors change along a curve.

    Outside the chart the answer is NaN: the solver rejects the step and comes as near to the boundary as it can.
    """
    if not bool(chart.contains(points).all()):
        return torch.full_like(rows, torch.nan)
    return -torch.einsum("...kij,...i,...aj->...ak", christoffel(chart, points), velocity, rows)


def basis_rows(points: Tensor) -> Tensor:
    """The coordinate basis at each point, one vector a row, (..., n, n)."""
    return torch.eye(points.shape[-1], dtype=torch.float64).expand(*points.shape, -1)


def left_chart(chart: Chart, argument: str, where: str) -> None:
    """The one error for every curve that leaves its chart."""
    require(False, argument, f"a curve that leaves the chart {where}", f"it must stay inside {chart.name!r}")


# Transport ------------------------------------------------------------------------------------------------------------


def _carry(chart: Chart, pieces: list[Curve], rows: Tensor) -> Tensor:
    """Parallel transport of rows (..., a, n) along a checked path."""
    for index, curve in enumerate(pieces):

        def rate(t: float, y: Tensor, curve: Curve = curve) -> Tensor:
            return pull(chart, *_moving(curve, t), y)

        states, reached = solve(chart, rate, rows, (0.0, 1.0))
        if reached < 1.0:
            left_chart(chart, f"path, piece {index}", f"at t = {reached:.9g}")
        rows = states[-1]
    return rows


def parallel_transport(chart: Chart, path: Path, vectors: Tensor) -> Tensor:
    """Carry tangent vectors along a path so that they stay parallel: dV^k/dt + Gamma^k_ij c'^i V^j = 0.

    Vectors (..., n) at the path's start, broadcast against a batch of paths, become vectors at its end. ValueError when
    the path leaves the chart (it says about where), has a gap, or has another dimension.
    Source: RF-PT.

    >>> across = segment(torch.tensor([0.0, 1.0]), torch.tensor([math.pi / 2, 1.0]))
    >>> parallel_transport(half_plane(), across, torch.tensor([0.0, 1.0])).round(decimals=6).tolist()
    [1.0, 0.0]
    """
    vectors = coordinates(vectors, chart.dim, "vectors")
    pieces = _pieces(chart, path)
    shape = torch.broadcast_shapes(vectors.shape, pieces[0](_time(0.0)).shape)
    return _carry(chart, pieces, vectors.expand(shape)[..., None, :])[..., 0, :]


def transport_matrix(chart: Chart, path: Path) -> Tensor:
    """The matrix (..., n, n) of parallel transport along a path; errors as ``parallel_transport``.
    Source: RF-PT, RF-1.

    >>> up = segment(torch.tensor([0.0, 1.0]), torch.tensor([0.0, 3.0]))
    >>> transport_matrix(half_plane(), up).round(decimals=6).tolist()  # lengths are kept: the ruler grew
    [[3.0, 0.0], [0.0, 3.0]]
    """
    pieces = _pieces(chart, path)
    return _carry(chart, pieces, basis_rows(pieces[0](_time(0.0)))).mT


def holonomy(chart: Chart, loop: Path) -> Tensor:
    """The matrix (..., n, n) of parallel transport once round a loop.

    ValueError when the loop does not end where it starts, coordinates taken modulo their periods, or as
    ``parallel_transport``.
    Source: RF-PT, RF-FLAT.

    >>> holonomy(sphere_stereographic(), circle(torch.zeros(2), 1.0)).round(decimals=6).tolist()  # round the equator
    [[1.0, 0.0], [0.0, 1.0]]
    """
    pieces = _pieces(chart, loop)
    gap = _gap(chart, pieces[-1], pieces[0])
    require(gap < 1e-9, "loop", f"a gap of {gap:.3g} between its end and its start", "a loop is closed")
    return _carry(chart, pieces, basis_rows(pieces[0](_time(0.0)))).mT


def rotation_angle(chart: Chart, point: Tensor, turn: Tensor) -> Tensor:
    """The angle, in (-pi, pi], of a rotation of a surface's tangent plane at points (..., 2).

    ``turn`` (..., 2, 2) acts in the coordinate basis and keeps the metric's lengths and the orientation: a holonomy.
    Source: RF-10.

    >>> quarter = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    >>> round(float(rotation_angle(half_plane(), torch.tensor([0.0, 2.0]), quarter)), 6)
    1.570796
    """
    require(chart.dim == 2, "chart", f"dimension {chart.dim}", "one angle describes a rotation in dimension 2 only")
    frame, turn = orthonormal_frame(chart, point), coordinates(turn, 2, "turn")
    matrix = torch.linalg.solve(frame, turn @ frame)
    return torch.atan2(matrix[..., 1, 0] - matrix[..., 0, 1], matrix[..., 0, 0] + matrix[..., 1, 1])


def holonomy_angle(chart: Chart, loop: Path) -> Tensor:
    """The angle, in (-pi, pi], by which parallel transport round a loop turns a surface's tangent plane.

    It is the integral of the curvature over the inside of a loop that runs counter-clockwise, modulo 2 pi; errors as
    ``holonomy``.
    Source: RF-PT, RF-FLAT.

    >>> cap = circle(torch.zeros(2), math.tan(math.pi / 6))  # colatitude 60 degrees: area 2 pi (1 - 1/2) = pi
    >>> round(abs(float(holonomy_angle(sphere_stereographic(), cap))), 6)
    3.141593
    """
    turn = holonomy(chart, loop)
    return rotation_angle(chart, (loop if callable(loop) else loop[0])(_time(0.0)), turn)


def curvature_from_holonomy(chart: Chart, point: Tensor, sides: Tensor) -> Tensor:
    """Holonomy angle over area, for small squares of the chart centred at a point: K(point) + O(side^2).

    The area of a square with a coordinate length of ``side`` counts as side^2 sqrt(det g(point)); one result for each
    of the sides (count,).
    Source: RF-FLAT (the contrast: a curved connection).

    >>> curvature_from_holonomy(half_plane(), torch.tensor([0.0, 1.0]), torch.tensor([0.1, 0.01])).round(decimals=4)
    tensor([-1.0025, -1.0000], dtype=torch.float64)
    """
    angles = holonomy_angle(chart.within(1e-12, 1e-14), square_loop(point, sides))
    return angles / (sides.double() ** 2 * torch.linalg.det(chart.metric_at(point)).sqrt())
