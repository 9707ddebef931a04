"""Riemannian geometry one can compute: metrics, connections, geodesics, parallel transport, holonomy, curvature.

A manifold is given by a chart: a metric as a function of a point, and the region where it holds. All else follows from
the metric. Christoffel symbols come by automatic differentiation; geodesics and parallel transport solve their
differential equations with SciPy's Dormand-Prince method of order 8, whose error control takes ``rtol`` and ``atol``.

Conventions
-----------
Everything is float64. A point is ``(n,)``; leading dimensions are a batch. Vectors are given by their components in
the coordinate basis, on the last dimension; a matrix acts on columns. A *curve* is a function of a scalar tensor
t in [0, 1], written with torch operations, that returns a point (or a batch of points: a batch of curves, solved
together). A *path* is one curve or a sequence of curves, each starting where the one before it ends. Angles are in
radians, counter-clockwise in the chart's orientation.

    sphere = sphere_stereographic()
    loop = square_loop(torch.tensor([0.3, 0.2]), 0.1)
    holonomy_angle(sphere, loop)                    # the area inside
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import hessian, jacrev, jvp, vmap

from geolib._checks import check_last, check_positive, require

Curve = Callable[[Tensor], Tensor]
Path = Curve | Sequence[Curve]

MOST_CALLS = 6_000  # of a differential equation's right side; a smooth problem takes a few hundred
TOO_HARD = "it must not run into a singularity or the ideal boundary; or loosen rtol and atol"

# Charts -------------------------------------------------------------------------------------------------------------


def _everywhere(points: Tensor) -> Tensor:
    """The margin of a chart without a boundary."""
    return torch.ones_like(points[..., 0])


@dataclass(frozen=True)
class Chart:
    """A coordinate chart with a Riemannian metric.

    Parameters
    ----------
    dim : int
        The number n of coordinates.
    metric : function of a Tensor (n,) that returns a Tensor (n, n)
        The matrix of the metric at one point, differentiable.
    margin : function of a Tensor (..., n) that returns a Tensor (...)
        Continuous, and positive inside the chart alone.
    periods : tuple of float, or ()
        The period of each coordinate, 0 for one that does not come round; () when none does.
    name : str
        For error messages.

    Raises
    ------
    ValueError
        When dim is below 1 or periods has another length.
    """

    dim: int
    metric: Callable[[Tensor], Tensor]
    margin: Callable[[Tensor], Tensor] = _everywhere
    periods: tuple[float, ...] = ()
    name: str = "chart"

    def __post_init__(self) -> None:
        require(self.dim >= 1, "dim", self.dim, "it must be at least 1")
        require(len(self.periods) in (0, self.dim), "periods", self.periods, f"one for each of {self.dim} coordinates")

    def contains(self, points: Tensor) -> Tensor:
        """Whether each point is finite and inside the chart.

        Parameters
        ----------
        points : Tensor, (..., n)

        Returns
        -------
        Tensor of bool, (...)
        """
        return points.isfinite().all(-1) & (self.margin(points) > 0)

    def metric_at(self, points: Tensor) -> Tensor:
        """The metric's matrix at each point, checked.

        Parameters
        ----------
        points : Tensor, (..., n)

        Returns
        -------
        Tensor, (..., n, n)

        Raises
        ------
        ValueError
            For a point outside the chart, or where the metric has a wrong shape, is not finite, not symmetric, or not
            positive definite.
        """
        points = _inside(self, points, "points")
        return _check_metric(self, _over_batch(self.metric)(points), points)


def _over_batch(function: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    """A function of one point (n,), as a function of points (..., n)."""

    def batched(points: Tensor) -> Any:
        results = vmap(function)(points.reshape(-1, points.shape[-1]))
        several = isinstance(results, tuple)
        shaped = tuple(r.reshape((*points.shape[:-1], *r.shape[1:])) for r in (results if several else (results,)))
        return shaped if several else shaped[0]

    return batched


def _as_vectors(chart: Chart, values: Tensor, argument: str) -> Tensor:
    """Finite float64 vectors of the chart's dimension."""
    require(isinstance(values, Tensor), argument, type(values).__name__, "it must be a tensor")
    check_last(values, chart.dim, argument)
    require(bool(values.isfinite().all()), argument, "entries that are not finite", "all must be finite")
    return values.double()


def _inside(chart: Chart, points: Tensor, argument: str) -> Tensor:
    """Finite float64 points, all inside the chart."""
    points = _as_vectors(chart, points, argument)
    outside = points[~chart.contains(points)]
    require(not len(outside), argument, outside[:1].tolist(), f"all points must lie inside the chart {chart.name!r}")
    return points


def _check_metric(chart: Chart, g: Tensor, points: Tensor) -> Tensor:
    """The metric as it came, if it is one."""
    where, n = f"the metric of {chart.name!r} ", chart.dim
    require(g.shape[points.dim() - 1 :] == (n, n), "metric", f"shape {tuple(g.shape)}", f"{where}must be ({n}, {n})")
    require(bool(g.isfinite().all()), "metric", "entries that are not finite", f"{where}must be finite in its chart")
    lopsided = bool(((g - g.mT).abs() > 1e-12 * g.abs().amax((-2, -1), keepdim=True)).any())
    require(not lopsided, "metric", "a matrix that is not symmetric", f"{where}must be symmetric")
    failed = points[torch.linalg.cholesky_ex(g).info > 0]
    came = f"a singular or indefinite matrix at {failed[:1].tolist()}"
    require(not len(failed), "metric", came, f"{where}must be positive definite")
    return g


# The examples: sphere, hyperbolic plane, torus, conformally flat -----------------------------------------------------


def sphere_spherical(radius: float = 1.0) -> Chart:
    """The sphere without its poles, in colatitude and longitude (theta, phi): r^2 (d theta^2 + sin^2 theta d phi^2).

    Parameters
    ----------
    radius : float

    Returns
    -------
    Chart
        Oriented by the outward normal; longitude has period 2 pi.

    Source: RF-PT.
    """
    check_positive(radius, "radius")

    def metric(x: Tensor) -> Tensor:
        return radius**2 * torch.diag(torch.stack([torch.ones_like(x[0]), x[0].sin() ** 2]))

    def margin(x: Tensor) -> Tensor:
        return torch.minimum(x[..., 0], math.pi - x[..., 0])

    return Chart(2, metric, margin, (0.0, 2 * math.pi), "sphere, spherical coordinates")


def sphere_stereographic(radius: float = 1.0) -> Chart:
    """The sphere without its south pole, projected from there to the equator's plane: 4 |dx|^2 / (1 + |x|^2/r^2)^2.

    Parameters
    ----------
    radius : float

    Returns
    -------
    Chart
        The north pole is the origin; oriented by the outward normal.

    Source: RF-PT.
    """
    check_positive(radius, "radius")

    def metric(x: Tensor) -> Tensor:
        return 4 / (1 + (x @ x) / radius**2) ** 2 * torch.eye(2, dtype=x.dtype)

    return Chart(2, metric, name="sphere, stereographic")


def half_plane() -> Chart:
    """The hyperbolic plane as the upper half-plane y > 0: (dx^2 + dy^2) / y^2.

    Returns
    -------
    Chart
        Curvature -1.

    Source: RF-PT.
    """
    return Chart(2, lambda x: torch.eye(2, dtype=x.dtype) / x[1] ** 2, lambda x: x[..., 1], name="half-plane")


def poincare_disk() -> Chart:
    """The hyperbolic plane as the unit disk: 4 |dx|^2 / (1 - |x|^2)^2.

    Returns
    -------
    Chart
        Curvature -1.

    Source: RF-PT.
    """
    return Chart(
        2,
        lambda x: 4 / (1 - x @ x) ** 2 * torch.eye(2, dtype=x.dtype),
        lambda x: 1 - x.square().sum(-1),
        name="Poincare disk",
    )


def torus(major: float = 2.0, minor: float = 1.0) -> Chart:
    """The torus of revolution: minor^2 d theta^2 + (major + minor cos theta)^2 d phi^2.

    Parameters
    ----------
    major : float
        From the axis to the middle of the tube, above minor.
    minor : float
        The tube's radius.

    Returns
    -------
    Chart
        theta goes round the tube, 0 on the outer equator; phi goes round the axis. Both have period 2 pi.

    Source: RF-PT.
    """
    check_positive(minor, "minor")
    require(math.isfinite(major) and major > minor, "major", major, f"it must be finite and above minor = {minor}")

    def metric(x: Tensor) -> Tensor:
        return torch.diag(torch.stack([minor**2 + 0 * x[0], (major + minor * x[0].cos()) ** 2]))

    return Chart(2, metric, periods=(2 * math.pi, 2 * math.pi), name="torus")


def conformally_flat(f: Callable[[Tensor], Tensor], dim: int = 2) -> Chart:
    """Flat space with its lengths rescaled from point to point: e^{2f} |dx|^2.

    Parameters
    ----------
    f : function of a Tensor (n,) that returns a scalar Tensor
        Twice differentiable.
    dim : int

    Returns
    -------
    Chart
        All of R^n. The scalar metric s^m I of RF-6, read as a metric on the positions, has f = (m/2) log s.

    Source: RF-6.
    """
    return Chart(dim, lambda x: (2 * f(x)).exp() * torch.eye(dim, dtype=x.dtype), name="conformally flat")


# What automatic differentiation gives: the connection and its curvature -----------------------------------------------


def _christoffel(chart: Chart) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """The map from one point (n,) to its Christoffel symbols and its metric."""

    def metric_twice(x: Tensor) -> tuple[Tensor, Tensor]:
        g = chart.metric(x)
        came, allowed = f"shape {tuple(g.shape)}", f"the metric of {chart.name!r} must be {chart.dim} x {chart.dim}"
        require(tuple(g.shape) == (chart.dim, chart.dim), "metric", came, allowed)
        return g, g

    def symbols(x: Tensor) -> tuple[Tensor, Tensor]:
        dg, g = jacrev(metric_twice, has_aux=True)(x)  # dg[a, b, c] is the derivative of g_ab along coordinate c
        lower = (dg.transpose(-1, -2) + dg - dg.permute(2, 0, 1)) / 2  # [l, i, j]
        # inv_ex: a singular metric gives no error here; the caller has checked, or will check, the metric.
        return torch.einsum("kl,lij->kij", torch.linalg.inv_ex(g).inverse, lower), g

    return symbols


def christoffel(chart: Chart, points: Tensor) -> Tensor:
    """Christoffel symbols of the Levi-Civita connection, by automatic differentiation of the metric.

    Parameters
    ----------
    chart : Chart
    points : Tensor, (..., n)

    Returns
    -------
    Tensor, (..., n, n, n)
        Entry [k, i, j] is g^{kl} (d_i g_lj + d_j g_li - d_l g_ij) / 2, symmetric in i and j.

    Raises
    ------
    ValueError
        For a point outside the chart or a matrix there that is not a metric.

    Source: RF-PT.
    """
    points = _inside(chart, points, "points")
    symbols, g = _over_batch(_christoffel(chart))(points)
    _check_metric(chart, g, points)
    return symbols


def riemann(chart: Chart, points: Tensor) -> Tensor:
    """The curvature tensor, by differentiating the Christoffel symbols.

    Parameters
    ----------
    chart : Chart
    points : Tensor, (..., n)

    Returns
    -------
    Tensor, (..., n, n, n, n)
        Entry [l, k, i, j] is component l of R(d_i, d_j) d_k, so that the matrix R(d_i, d_j) is [:, :, i, j].

    Raises
    ------
    ValueError
        As ``christoffel``.

    Source: RF-PT, RF-FLAT.
    """
    chart.metric_at(points)
    symbols = _christoffel(chart)

    def at(x: Tensor) -> Tensor:
        derivative, (gamma, _) = jacrev(lambda y: (symbols(y)[0], symbols(y)), has_aux=True)(x)
        # half[l, k, i, j] = d_i Gamma^l_jk + Gamma^l_im Gamma^m_jk; the other half exchanges i and j.
        half = torch.einsum("ljki->lkij", derivative) + torch.einsum("lim,mjk->lkij", gamma, gamma)
        return half - half.transpose(-1, -2)

    return _over_batch(at)(points.double())


def gaussian_curvature(chart: Chart, points: Tensor) -> Tensor:
    """The curvature K of a surface: <R(d_1, d_2) d_2, d_1> / det g.

    Parameters
    ----------
    chart : Chart
        Of dimension 2.
    points : Tensor, (..., 2)

    Returns
    -------
    Tensor, (...)

    Raises
    ------
    ValueError
        When the dimension is not 2, or as ``christoffel``.

    Source: RF-PT.
    """
    require(chart.dim == 2, "chart", f"dimension {chart.dim}", "Gaussian curvature belongs to surfaces: dimension 2")
    g = chart.metric_at(points)
    return torch.einsum("...l,...l->...", g[..., 0, :], riemann(chart, points)[..., :, 1, 0, 1]) / torch.linalg.det(g)


# Lengths and frames ---------------------------------------------------------------------------------------------------


def norm(chart: Chart, points: Tensor, vectors: Tensor) -> Tensor:
    """The metric's length of tangent vectors, sqrt(v^T g v).

    Parameters
    ----------
    chart : Chart
    points : Tensor, (..., n)
        Where the vectors are attached.
    vectors : Tensor, (..., n)

    Returns
    -------
    Tensor, (...)

    Source: RF-PT.
    """
    vectors = _as_vectors(chart, vectors, "vectors")
    return torch.einsum("...i,...ij,...j->...", vectors, chart.metric_at(points), vectors).sqrt()


def orthonormal_frame(chart: Chart, points: Tensor) -> Tensor:
    """A frame at each point whose columns are orthonormal and keep the chart's orientation: E^T g E = I.

    Parameters
    ----------
    chart : Chart
    points : Tensor, (..., n)

    Returns
    -------
    Tensor, (..., n, n)
        Upper triangular with a positive diagonal: the first column points along the first coordinate.

    Source: RF-5.
    """
    return torch.linalg.inv(torch.linalg.cholesky(chart.metric_at(points))).mT


# Curves ---------------------------------------------------------------------------------------------------------------


def segment(start: Tensor, end: Tensor) -> Curve:
    """The straight line of the chart from start to end.

    Parameters
    ----------
    start, end : Tensor, (..., n)

    Returns
    -------
    Curve
    """
    start, end = start.double(), end.double()
    return lambda t: start + t * (end - start)


def polygon(vertices: Tensor) -> list[Curve]:
    """The closed polygon with straight sides in the chart, through the vertices and back to the first.

    Parameters
    ----------
    vertices : Tensor, (k, ..., n)

    Returns
    -------
    list of Curve
    """
    return [segment(a, b) for a, b in zip(vertices, vertices.roll(-1, 0))]


def square_loop(center: Tensor, side: float | Tensor) -> list[Curve]:
    """A square of the chart, counter-clockwise from its lower left corner.

    Parameters
    ----------
    center : Tensor, (2,)
    side : float or Tensor, (...)
        Coordinate length; several sides make a batch of squares.

    Returns
    -------
    list of Curve

    Source: RF-FLAT.
    """
    check_last(center, 2, "center")
    corners = torch.tensor([[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5]], dtype=torch.float64)
    sides = torch.as_tensor(side, dtype=torch.float64)
    return polygon(torch.stack([center.double() + sides[..., None] * corner for corner in corners]))


def circle(center: Tensor, radius: float) -> Curve:
    """A circle of the chart, once round counter-clockwise from its rightmost point.

    Parameters
    ----------
    center : Tensor, (2,)
    radius : float

    Returns
    -------
    Curve
    """
    check_positive(radius, "radius")

    def curve(t: Tensor) -> Tensor:
        angle = 2 * math.pi * t
        return center.double() + radius * torch.stack([angle.cos(), angle.sin()])

    return curve


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
    """How far the start of one curve is from the end of another, coordinates taken modulo their periods."""
    step = after(_time(0.0)) - before(_time(1.0))
    for i, period in enumerate(chart.periods):
        if period:
            step[..., i] = torch.remainder(step[..., i] + period / 2, period) - period / 2
    return step.abs().max().item()


def _time(t: float) -> Tensor:
    return torch.tensor(t, dtype=torch.float64)


def _moving(curve: Curve, t: float) -> tuple[Tensor, Tensor]:
    """Where the curve is at t, and its velocity."""
    point, velocity = jvp(curve, (_time(t),), (_time(1.0),))[:2]
    return point, velocity


def _check_curve(chart: Chart, curve: Curve, argument: str, samples: int = 65) -> None:
    """A curve of the right dimension whose samples are inside the chart; the error says where it leaves."""
    point = curve(_time(0.0))
    require(isinstance(point, Tensor), argument, type(point).__name__, "a curve returns a tensor")
    check_last(point, chart.dim, argument)
    times = torch.linspace(0, 1, samples, dtype=torch.float64)
    points = torch.stack([curve(t) for t in times]).double()
    inside = chart.contains(points).reshape(samples, -1).all(-1)
    if not bool(inside.all()):
        first = int((~inside).nonzero()[0])
        _left_chart(chart, argument, _exit(chart, curve, times[max(first - 1, 0)].item(), times[first].item()))
    chart.metric_at(points)
    middle, velocity = _moving(curve, 0.5)
    moved = (curve(_time(0.5001)) - middle).abs().max().item()
    hidden = moved > 1e-12 and not bool(velocity.any())
    allowed = "write it with torch operations on t, so that it can be differentiated"
    require(not hidden, argument, "a curve that moves while its derivative is 0", allowed)


def _exit(chart: Chart, curve: Curve, inside: float, outside: float) -> float:
    """The parameter between the two at which the curve leaves the chart, by bisection."""
    while outside - inside > 1e-12:
        middle = (inside + outside) / 2
        stays = bool(chart.contains(curve(_time(middle))).all())
        inside, outside = (middle, outside) if stays else (inside, middle)
    return outside


def _left_chart(chart: Chart, argument: str, t: float) -> None:
    """The one error for every curve that leaves its chart."""
    require(False, argument, f"a curve that leaves the chart at t = {t:.9g}", f"it must stay inside {chart.name!r}")


# The differential equations -------------------------------------------------------------------------------------------


def _solve(
    rate: Callable[[float, Tensor], Tensor], start: Tensor, times: Sequence[float], rtol: float, atol: float
) -> tuple[Tensor, float]:
    """Integrate a system from times[0] on: its states at the times it reached, and the last time it reached."""
    from scipy.integrate import solve_ivp

    check_positive(rtol, "rtol")
    check_positive(atol, "atol")
    calls = itertools.count()

    def flat_rate(t: float, y: Any) -> Any:
        require(next(calls) < MOST_CALLS, "curve", f"{MOST_CALLS} steps of the solver up to t = {t:.9g}", TOO_HARD)
        return rate(t, torch.from_numpy(y).reshape(start.shape)).reshape(-1).numpy()

    dense = len(times) > 2  # an interpolant between the steps costs three more evaluations a step
    span, y = (times[0], times[-1]), start.reshape(-1).numpy(force=True)
    solution = solve_ivp(flat_rate, span, y, "DOP853", dense_output=dense, rtol=rtol, atol=atol)
    states = solution.sol(list(times)) if dense else solution.y[:, [0, -1]]
    return torch.from_numpy(states.T.copy()).reshape(-1, *start.shape), float(solution.t[-1])


def _pull(chart: Chart, points: Tensor, velocity: Tensor, rows: Tensor) -> Tensor:
    """-Gamma(velocity, row): how the components of parallel vectors change along a curve.

    Outside the chart the answer is NaN: the solver rejects the step and comes as near to the boundary as it can.
    """
    if not bool(chart.contains(points).all()):
        return torch.full_like(rows, torch.nan)
    return -torch.einsum("...kij,...i,...aj->...ak", christoffel(chart, points), velocity, rows)


def _carry(chart: Chart, pieces: list[Curve], rows: Tensor, rtol: float, atol: float) -> Tensor:
    """Parallel transport of rows (..., a, n) along a checked path."""
    for index, curve in enumerate(pieces):

        def rate(t: float, y: Tensor, curve: Curve = curve) -> Tensor:
            return _pull(chart, *_moving(curve, t), y)

        states, reached = _solve(rate, rows, (0.0, 1.0), rtol, atol)
        if reached < 1.0:
            _left_chart(chart, f"path, piece {index}", reached)
        rows = states[-1]
    return rows


def parallel_transport(
    chart: Chart, path: Path, vectors: Tensor, *, rtol: float = 1e-10, atol: float = 1e-12
) -> Tensor:
    """Carry tangent vectors along a path so that they stay parallel: dV^k/dt + Gamma^k_ij c'^i V^j = 0.

    Parameters
    ----------
    chart : Chart
    path : Path
        Of points (..., n).
    vectors : Tensor, (..., n)
        At the path's start; broadcast against the path's batch.
    rtol, atol : float
        The solver's tolerances, relative and absolute.

    Returns
    -------
    Tensor, (..., n)
        At the path's end.

    Raises
    ------
    ValueError
        When the path leaves the chart (the message says at which parameter), has a gap or a wrong dimension, or when
        the metric on it is not one.

    Source: RF-PT.
    """
    vectors = _as_vectors(chart, vectors, "vectors")
    pieces = _pieces(chart, path)
    shape = torch.broadcast_shapes(vectors.shape, pieces[0](_time(0.0)).shape)
    return _carry(chart, pieces, vectors.expand(shape)[..., None, :], rtol, atol)[..., 0, :]


def _identity_rows(points: Tensor) -> Tensor:
    """The coordinate basis at each point, one vector a row, (..., n, n)."""
    return torch.eye(points.shape[-1], dtype=torch.float64).expand(*points.shape, -1)


def transport_matrix(chart: Chart, path: Path, *, rtol: float = 1e-10, atol: float = 1e-12) -> Tensor:
    """The matrix of parallel transport along a path.

    Parameters
    ----------
    chart : Chart
    path : Path
        Of points (..., n).
    rtol, atol : float

    Returns
    -------
    Tensor, (..., n, n)
        Takes components at the start to components at the end.

    Raises
    ------
    ValueError
        As ``parallel_transport``.

    Source: RF-PT, RF-1.
    """
    pieces = _pieces(chart, path)
    return _carry(chart, pieces, _identity_rows(pieces[0](_time(0.0))), rtol, atol).mT


def _closed(chart: Chart, loop: Path) -> list[Curve]:
    """The curves of a path, checked to be a loop."""
    pieces = _pieces(chart, loop)
    gap = _gap(chart, pieces[-1], pieces[0])
    require(gap < 1e-9, "loop", f"a gap of {gap:.3g} between its end and its start", "a loop is closed")
    return pieces


def holonomy(chart: Chart, loop: Path, *, rtol: float = 1e-10, atol: float = 1e-12) -> Tensor:
    """The matrix of parallel transport once round a loop.

    Parameters
    ----------
    chart : Chart
    loop : Path
        Ends where it starts, coordinates taken modulo their periods.
    rtol, atol : float

    Returns
    -------
    Tensor, (..., n, n)

    Raises
    ------
    ValueError
        When the loop is not closed, or as ``parallel_transport``.

    Source: RF-PT, RF-FLAT.
    """
    pieces = _closed(chart, loop)
    return _carry(chart, pieces, _identity_rows(pieces[0](_time(0.0))), rtol, atol).mT


def rotation_angle(chart: Chart, point: Tensor, turn: Tensor) -> Tensor:
    """The angle of a rotation of a surface's tangent plane, given in the coordinate basis.

    Parameters
    ----------
    chart : Chart
        Of dimension 2.
    point : Tensor, (..., 2)
    turn : Tensor, (..., 2, 2)
        Keeps the metric's lengths and the orientation: a holonomy.

    Returns
    -------
    Tensor, (...)
        Radians in (-pi, pi].

    Source: RF-10.
    """
    require(chart.dim == 2, "chart", f"dimension {chart.dim}", "one angle describes a rotation in dimension 2 only")
    frame = orthonormal_frame(chart, point)
    matrix = torch.linalg.solve(frame, turn @ frame)
    return torch.atan2(matrix[..., 1, 0] - matrix[..., 0, 1], matrix[..., 0, 0] + matrix[..., 1, 1])


def holonomy_angle(chart: Chart, loop: Path, *, rtol: float = 1e-10, atol: float = 1e-12) -> Tensor:
    """The angle by which parallel transport round a loop turns a surface's tangent plane.

    It is the integral of the curvature over the inside of a loop that runs counter-clockwise, modulo 2 pi.

    Parameters
    ----------
    chart : Chart
        Of dimension 2.
    loop : Path
    rtol, atol : float

    Returns
    -------
    Tensor, (...)
        Radians in (-pi, pi].

    Raises
    ------
    ValueError
        As ``holonomy``.

    Source: RF-PT, RF-FLAT.
    """
    turn = holonomy(chart, loop, rtol=rtol, atol=atol)
    return rotation_angle(chart, (loop if callable(loop) else loop[0])(_time(0.0)), turn)


def curvature_from_holonomy(chart: Chart, point: Tensor, sides: Tensor) -> Tensor:
    """Holonomy angle over area, for small squares of the chart centred at a point: K(point) + O(side^2).

    Parameters
    ----------
    chart : Chart
        Of dimension 2.
    point : Tensor, (2,)
    sides : Tensor, (count,)
        Coordinate lengths.

    Returns
    -------
    Tensor, (count,)
        The angle divided by side^2 sqrt(det g(point)).

    Raises
    ------
    ValueError
        As ``holonomy``.

    Source: RF-FLAT (the contrast: a curved connection).
    """
    angles = holonomy_angle(chart, square_loop(point, sides), rtol=1e-12, atol=1e-14)
    return angles / (sides.double() ** 2 * torch.linalg.det(chart.metric_at(point)).sqrt())


# Geodesics ------------------------------------------------------------------------------------------------------------


def _shoot(
    chart: Chart, points: Tensor, rows: Tensor, times: Sequence[float], rtol: float, atol: float
) -> tuple[Tensor, Tensor]:
    """Follow the geodesics whose velocity is the first row and carry all rows along: positions, and rows, at times."""
    points = _inside(chart, points, "point")
    points = points.expand(*rows.shape[:-2], -1)

    def rate(t: float, y: Tensor) -> Tensor:
        x, carried = y[..., 0, :], y[..., 1:, :]
        # A geodesic carries its own velocity: the first carried row is both.
        return torch.cat([y[..., 1:2, :], _pull(chart, x, carried[..., 0, :], carried)], -2)

    states, reached = _solve(rate, torch.cat([points[..., None, :], rows], -2), times, rtol, atol)
    if reached != times[-1]:
        _left_chart(chart, "velocity", reached)
    return states[..., 0, :], states[..., 1:, :]


def geodesic(
    chart: Chart, point: Tensor, velocity: Tensor, times: Tensor, *, rtol: float = 1e-10, atol: float = 1e-12
) -> tuple[Tensor, Tensor]:
    """The geodesic from a point with a velocity: x'' + Gamma(x', x') = 0.

    Parameters
    ----------
    chart : Chart
    point, velocity : Tensor, (..., n)
    times : Tensor, (count,)
        Increasing from the first, at which the geodesic is at the point.
    rtol, atol : float

    Returns
    -------
    tuple of Tensor, each (count, ..., n)
        Positions and velocities. Between the solver's steps they are interpolated to seventh order.

    Raises
    ------
    ValueError
        When the geodesic leaves the chart (the message says at which time), or for arguments of wrong shape.

    Source: RF-PT.
    """
    velocity = _as_vectors(chart, velocity, "velocity")
    rising = times.dim() == 1 and len(times) > 1 and bool((times.diff() > 0).all())
    require(rising, "times", times.tolist(), "at least two, increasing")
    rows = velocity.expand(torch.broadcast_shapes(velocity.shape, point.shape))[..., None, :]
    positions, carried = _shoot(chart, point, rows, times.tolist(), rtol, atol)
    return positions, carried[..., 0, :]


def exponential(chart: Chart, point: Tensor, velocity: Tensor, *, rtol: float = 1e-10, atol: float = 1e-12) -> Tensor:
    """The exponential map: where the geodesic with this velocity is after unit time.

    Parameters
    ----------
    chart : Chart
    point, velocity : Tensor, (..., n)
    rtol, atol : float

    Returns
    -------
    Tensor, (..., n)

    Raises
    ------
    ValueError
        As ``geodesic``.

    Source: RF-PT.
    """
    return geodesic(chart, point, velocity, torch.tensor([0.0, 1.0]), rtol=rtol, atol=atol)[0][-1]


def logarithm(chart: Chart, start: Tensor, end: Tensor, *, rtol: float = 1e-10, atol: float = 1e-12) -> Tensor:
    """The velocity of a geodesic that goes from start to end in unit time, by Newton's method on the exponential map.

    Parameters
    ----------
    chart : Chart
    start, end : Tensor, (..., n)
    rtol, atol : float

    Returns
    -------
    Tensor, (..., n)
        The one that Newton's method finds from the straight line of the chart: the shortest when the points are near.

    Raises
    ------
    ValueError
        When no geodesic is found, or as ``geodesic``.

    Source: RF-PT.
    """
    start, end = torch.broadcast_tensors(_inside(chart, start, "start"), _inside(chart, end, "end"))
    velocity, step = _chord(chart, start, end), 1e-6
    probes = step * torch.cat([torch.zeros(1, chart.dim), torch.eye(chart.dim)]).double()
    probes = probes.reshape(-1, *[1] * (start.dim() - 1), chart.dim)
    best, least = velocity, torch.full_like(start[..., :1], torch.inf)
    for _ in range(30):
        # One batch holds the geodesic and its neighbours, whose differences are the derivative of the exponential map.
        ends = exponential(chart, start, velocity + probes, rtol=rtol, atol=atol)
        miss = end - ends[0]
        if miss.abs().max() <= 1e2 * (atol + rtol * end.abs().max()):
            return velocity
        size = miss.norm(dim=-1, keepdim=True)
        better = size < least
        best, least = torch.where(better, velocity, best), torch.minimum(size, least)
        jacobian = ((ends[1:] - ends[0]) / step).movedim(0, -1)
        # Where a step made it worse, go half of the way back.
        velocity = torch.where(better, velocity + torch.linalg.solve(jacobian, miss), (velocity + best) / 2)
    require(False, "end", end.tolist(), "no geodesic was found from start; take points nearer to each other")
    return velocity


def _chord(chart: Chart, start: Tensor, end: Tensor) -> Tensor:
    """A first guess at the logarithm: along the chart's straight line, with that line's length (by Simpson's rule)."""
    along = end - start
    speeds = [norm(chart, start + t * along, along) for t in (0.0, 0.5, 1.0)]
    length = (speeds[0] + 4 * speeds[1] + speeds[2]) / 6
    return along * (length / speeds[0].clamp_min(1e-300))[..., None]


def distance(chart: Chart, start: Tensor, end: Tensor) -> Tensor:
    """The length of the geodesic from start to end that ``logarithm`` finds.

    Parameters
    ----------
    chart : Chart
    start, end : Tensor, (..., n)

    Returns
    -------
    Tensor, (...)

    Raises
    ------
    ValueError
        As ``logarithm``.

    Source: RF-PT.
    """
    return norm(chart, start, logarithm(chart, start, end))


def geodesic_transport(
    chart: Chart, point: Tensor, velocity: Tensor, *, rtol: float = 1e-10, atol: float = 1e-12
) -> Tensor:
    """The matrix of parallel transport along the geodesic with this velocity, for unit time.

    Parameters
    ----------
    chart : Chart
    point, velocity : Tensor, (..., n)
    rtol, atol : float

    Returns
    -------
    Tensor, (..., n, n)

    Raises
    ------
    ValueError
        As ``geodesic``.

    Source: RF-PT.
    """
    velocity = _as_vectors(chart, velocity, "velocity")
    rows = torch.cat([velocity[..., None, :], _identity_rows(velocity)], -2)
    return _shoot(chart, point, rows, (0.0, 1.0), rtol, atol)[1][-1][..., 1:, :].mT


def geodesic_holonomy(chart: Chart, vertices: Tensor, *, rtol: float = 1e-10, atol: float = 1e-12) -> Tensor:
    """Parallel transport once round the polygon whose sides are geodesics, based at the first vertex.

    Parameters
    ----------
    chart : Chart
    vertices : Tensor, (k, n)
        In order; each near enough to the next for ``logarithm``.
    rtol, atol : float

    Returns
    -------
    Tensor, (n, n)
        On a surface, the rotation by the integral of the curvature over the inside: the area on the unit sphere, minus
        the area in the hyperbolic plane, for vertices in counter-clockwise order.

    Raises
    ------
    ValueError
        As ``logarithm``.

    Source: RF-PT, RF-FLAT.
    """
    velocities = logarithm(chart, vertices, vertices.roll(-1, 0), rtol=rtol, atol=atol)
    around = torch.eye(chart.dim, dtype=torch.float64)
    for side in geodesic_transport(chart, vertices, velocities, rtol=rtol, atol=atol):
        around = side @ around
    return around


# Closed forms: what the computations above must agree with ------------------------------------------------------------


def latitude_transport(colatitude: Tensor, longitude: Tensor) -> Tensor:
    """Parallel transport along a circle of latitude of the sphere, in closed form.

    Parameters
    ----------
    colatitude : Tensor, (...)
        Radians, between 0 and pi.
    longitude : Tensor, (...)
        Radians travelled eastward.

    Returns
    -------
    Tensor, (..., 2, 2)
        In the coordinate basis of ``sphere_spherical``: on unit vectors (south, east), the rotation by
        -longitude cos(colatitude).

    Source: RF-PT.
    """
    angle, sin = -longitude.double() * colatitude.double().cos(), colatitude.double().sin()
    rows = [torch.stack([angle.cos(), -angle.sin() * sin], -1), torch.stack([angle.sin() / sin, angle.cos()], -1)]
    return torch.stack(rows, -2)


def conformal_curvature(f: Callable[[Tensor], Tensor], points: Tensor) -> Tensor:
    """The curvature of the plane metric e^{2f} |dx|^2 in closed form: K = -e^{-2f} (f_xx + f_yy).

    Parameters
    ----------
    f : function of a Tensor (2,) that returns a scalar Tensor
    points : Tensor, (..., 2)

    Returns
    -------
    Tensor, (...)
        Zero where f is harmonic: the metric varies and is flat all the same.

    Source: RF-FLAT.
    """
    check_last(points, 2, "points")
    laplacian = _over_batch(hessian(f))(points.double()).diagonal(dim1=-2, dim2=-1).sum(-1)
    return -(-2 * _over_batch(f)(points.double())).exp() * laplacian


def torus_curvature(theta: Tensor, major: float = 2.0, minor: float = 1.0) -> Tensor:
    """The curvature of the torus in closed form: cos theta / (minor (major + minor cos theta)).

    Parameters
    ----------
    theta : Tensor, (...)
        The angle round the tube, 0 on the outer equator.
    major, minor : float

    Returns
    -------
    Tensor, (...)

    Source: RF-PT.
    """
    return theta.cos() / (minor * (major + minor * theta.cos()))


def embed_spherical(points: Tensor) -> Tensor:
    """The unit sphere's point with this colatitude and longitude.

    Parameters
    ----------
    points : Tensor, (..., 2)

    Returns
    -------
    Tensor, (..., 3)
    """
    theta, phi = points.unbind(-1)
    return torch.stack([theta.sin() * phi.cos(), theta.sin() * phi.sin(), theta.cos()], -1)


def embed_stereographic(points: Tensor) -> Tensor:
    """The unit sphere's point over a point of the stereographic chart: (2x, 1 - |x|^2) / (1 + |x|^2).

    Parameters
    ----------
    points : Tensor, (..., 2)

    Returns
    -------
    Tensor, (..., 3)
    """
    square = points.square().sum(-1, keepdim=True)
    return torch.cat([2 * points, 1 - square], -1) / (1 + square)


def embed_disk(points: Tensor) -> Tensor:
    """The hyperboloid's point over a point of the Poincare disk: (2x, 1 + |x|^2) / (1 - |x|^2).

    Parameters
    ----------
    points : Tensor, (..., 2)

    Returns
    -------
    Tensor, (..., 3)
        (X, Y, Z) with X^2 + Y^2 - Z^2 = -1 and Z > 0.
    """
    square = points.square().sum(-1, keepdim=True)
    return torch.cat([2 * points, 1 + square], -1) / (1 - square)


def half_plane_to_disk(points: Tensor) -> Tensor:
    """Cayley's isometry from the half-plane to the Poincare disk: w = (z - i) / (z + i).

    Parameters
    ----------
    points : Tensor, (..., 2)

    Returns
    -------
    Tensor, (..., 2)
        (0, 1) goes to the centre.
    """
    x, y = points.unbind(-1)
    return torch.stack([x**2 + y**2 - 1, -2 * x], -1) / (x**2 + (y + 1) ** 2)[..., None]


def great_circle(point: Tensor, velocity: Tensor, t: Tensor) -> Tensor:
    """The unit sphere's geodesic in closed form: cos(|v|t) X + sin(|v|t) v/|v|.

    Parameters
    ----------
    point, velocity : Tensor, (..., 3)
        X of length 1 and v orthogonal to it.
    t : Tensor, broadcastable to (..., 1)

    Returns
    -------
    Tensor, (..., 3)

    Source: RF-PT.
    """
    speed = velocity.norm(dim=-1, keepdim=True)
    return (speed * t).cos() * point + (speed * t).sin() * velocity / speed


def minkowski(a: Tensor, b: Tensor) -> Tensor:
    """The inner product of the space in which the hyperboloid lies: a_1 b_1 + a_2 b_2 - a_3 b_3.

    Parameters
    ----------
    a, b : Tensor, (..., 3)

    Returns
    -------
    Tensor, (...)
    """
    return a[..., 0] * b[..., 0] + a[..., 1] * b[..., 1] - a[..., 2] * b[..., 2]


def hyperbola(point: Tensor, velocity: Tensor, t: Tensor) -> Tensor:
    """The hyperboloid's geodesic in closed form: cosh(|v|t) X + sinh(|v|t) v/|v|.

    Parameters
    ----------
    point, velocity : Tensor, (..., 3)
        X on the hyperboloid and v orthogonal to it, for the product ``minkowski``, which also gives |v|.
    t : Tensor, broadcastable to (..., 1)

    Returns
    -------
    Tensor, (..., 3)

    Source: RF-PT.
    """
    speed = minkowski(velocity, velocity).sqrt()[..., None]
    return (speed * t).cosh() * point + (speed * t).sinh() * velocity / speed


def spherical_area(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """The area of a triangle of great circles: tan(area/2) = det(a, b, c) / (1 + a.b + b.c + c.a).

    Parameters
    ----------
    a, b, c : Tensor, (..., 3)
        Corners on the unit sphere.

    Returns
    -------
    Tensor, (...)
        Positive when the corners run counter-clockwise seen from outside.

    Source: RF-PT.
    """
    volume = torch.linalg.det(torch.stack([a, b, c], -1))
    return 2 * torch.atan2(volume, 1 + (a * b).sum(-1) + (b * c).sum(-1) + (c * a).sum(-1))


def hyperbolic_area(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """The area of a hyperbolic triangle: tan(area/2) = det(a, b, c) / (1 - <a,b> - <b,c> - <c,a>).

    Parameters
    ----------
    a, b, c : Tensor, (..., 3)
        Corners on the hyperboloid; the products are ``minkowski``.

    Returns
    -------
    Tensor, (...)
        Positive when the corners run counter-clockwise in the disk.

    Source: RF-PT.
    """
    volume = torch.linalg.det(torch.stack([a, b, c], -1))
    return 2 * torch.atan2(volume, 1 - minkowski(a, b) - minkowski(b, c) - minkowski(c, a))
