"""Charts: coordinates with a metric; what is checked of points; examples; lengths and frames."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from geolib._checks import check_last, check_positive, require

__all__ = [
    "Chart", "conformally_flat", "half_plane", "norm", "orthonormal_frame", "poincare_disk", "power_metric",
    "sphere_spherical", "sphere_stereographic", "torus",
]  # fmt: skip

Field = Callable[[Tensor], Tensor]  # a function of points


def _everywhere(points: Tensor) -> Tensor:
    """The margin of a chart without a boundary."""
    return torch.ones_like(points[..., 0])


@dataclass(frozen=True)
class Chart:
    """A coordinate chart of dimension ``dim`` with a Riemannian metric.

    ``metric`` gives its matrix (n, n) at one point (n,), differentiable; ``margin`` is a continuous function of points
    (..., n), positive inside the chart alone; ``periods`` has the period of each coordinate, 0 for one that does not
    come round. ``name`` stands in error messages. ``rtol`` and ``atol`` are the tolerances, relative and absolute, of
    every differential equation that is solved on the chart.

    >>> polar = Chart(2, lambda x: torch.diag(torch.stack([1 + 0 * x[0], x[0] ** 2])), lambda x: x[..., 0])
    >>> polar.metric_at(torch.tensor([3.0, 0.5])).tolist()
    [[1.0, 0.0], [0.0, 9.0]]
    """

    dim: int
    metric: Field
    margin: Field = _everywhere
    periods: tuple[float, ...] = ()
    name: str = "chart"
    rtol: float = 1e-10
    atol: float = 1e-12

    def __post_init__(self) -> None:
        require(self.dim >= 1, "dim", self.dim, "it must be at least 1")
        require(len(self.periods) in (0, self.dim), "periods", self.periods, f"one for each of {self.dim} coordinates")
        check_positive(self.rtol, "rtol")
        check_positive(self.atol, "atol")

    def within(self, rtol: float, atol: float) -> "Chart":
        """The same chart with other tolerances: looser for speed, tighter to measure an order of convergence."""
        return replace(self, rtol=rtol, atol=atol)

    def contains(self, points: Tensor) -> Tensor:
        """Whether each point (..., n) is finite and inside the chart."""
        return points.isfinite().all(-1) & (self.margin(points) > 0)

    def metric_at(self, points: Tensor) -> Tensor:
        """The metric's matrix (..., n, n) at each point.

        ValueError where it is not a finite, symmetric, positive definite (n, n) matrix, and outside the chart.
        """
        points = inside(self, points, "points")
        return check_metric(self, over_batch(self.metric)(points), points)


# Points and vectors of a chart, checked; functions of one point over batches ------------------------------------------


def over_batch(function: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    """A function of one point (n,), as a function of points (..., n)."""

    def batched(points: Tensor) -> Any:
        results = vmap(function)(points.reshape(-1, points.shape[-1]))
        several = isinstance(results, tuple)
        shaped = tuple(r.reshape((*points.shape[:-1], *r.shape[1:])) for r in (results if several else (results,)))
        return shaped if several else shaped[0]

    return batched


def coordinates(values: Tensor, dim: int, argument: str) -> Tensor:
    """Finite float64 entries, the last dimension of this size."""
    check_last(values, dim, argument)
    require(bool(values.isfinite().all()), argument, "entries that are not finite", "all must be finite")
    return values.double()


def inside(chart: Chart, points: Tensor, argument: str) -> Tensor:
    """Finite float64 points, all inside the chart."""
    points = coordinates(points, chart.dim, argument)
    outside = points[~chart.contains(points)]
    require(not len(outside), argument, outside[:1].tolist(), f"all points must lie inside the chart {chart.name!r}")
    return points


def check_metric(chart: Chart, g: Tensor, points: Tensor) -> Tensor:
    """The metric as it came, if it is one."""
    where, n = f"the metric of {chart.name!r} ", chart.dim
    require(g.shape[points.dim() - 1 :] == (n, n), "metric", g.shape, f"{where}must be ({n}, {n})")
    require(bool(g.isfinite().all()), "metric", "entries that are not finite", f"{where}must be finite in its chart")
    lopsided = bool(((g - g.mT).abs() > 1e-12 * g.abs().amax((-2, -1), keepdim=True)).any())
    require(not lopsided, "metric", "a matrix that is not symmetric", f"{where}must be symmetric")
    failed = points[torch.linalg.cholesky_ex(g).info > 0]
    came = f"a singular or indefinite matrix at {failed[:1].tolist()}"
    require(not len(failed), "metric", came, f"{where}must be positive definite")
    return g


def difference(chart: Chart, start: Tensor, end: Tensor) -> Tensor:
    """end - start, the shorter way round in each coordinate that has a period."""
    step = end - start
    for i, period in enumerate(chart.periods):
        if period:
            step[..., i] = torch.remainder(step[..., i] + period / 2, period) - period / 2
    return step


# The examples ---------------------------------------------------------------------------------------------------------


def _isotropic(factor: Field, margin: Field = _everywhere, name: str = "chart", dim: int = 2) -> Chart:
    """The metric that is a number at each point times |dx|^2."""
    return Chart(dim, lambda x: factor(x) * torch.eye(dim, dtype=x.dtype), margin, name=name)


def sphere_spherical(radius: float = 1.0) -> Chart:
    """The sphere without its poles, in colatitude and longitude (theta, phi): r^2 (d theta^2 + sin^2 theta d phi^2).

    Oriented by the outward normal; longitude has period 2 pi.
    Source: RF-PT.

    >>> sphere_spherical(2.0).metric_at(torch.tensor([math.pi / 2, 0.0])).tolist()
    [[4.0, 0.0], [0.0, 4.0]]
    """
    check_positive(radius, "radius")

    def metric(x: Tensor) -> Tensor:
        return radius**2 * torch.diag(torch.stack([torch.ones_like(x[0]), x[0].sin() ** 2]))

    def margin(x: Tensor) -> Tensor:
        return torch.minimum(x[..., 0], math.pi - x[..., 0])

    return Chart(2, metric, margin, (0.0, 2 * math.pi), "sphere, spherical coordinates")


def sphere_stereographic(radius: float = 1.0) -> Chart:
    """The sphere without its south pole, projected from there to the equator's plane: 4 |dx|^2 / (1 + |x|^2/r^2)^2.

    The north pole is the origin; oriented by the outward normal.
    Source: RF-PT.

    >>> sphere_stereographic().metric_at(torch.tensor([1.0, 0.0])).tolist()  # on the equator lengths are true
    [[1.0, 0.0], [0.0, 1.0]]
    """
    check_positive(radius, "radius")
    return _isotropic(lambda x: 4 / (1 + (x @ x) / radius**2) ** 2, name="sphere, stereographic")


def half_plane() -> Chart:
    """The hyperbolic plane as the upper half-plane y > 0: (dx^2 + dy^2) / y^2, of curvature -1.
    Source: RF-PT.

    >>> half_plane().metric_at(torch.tensor([5.0, 2.0])).tolist()
    [[0.25, 0.0], [0.0, 0.25]]
    """
    return _isotropic(lambda x: 1 / x[1] ** 2, lambda x: x[..., 1], "half-plane")


def poincare_disk() -> Chart:
    """The hyperbolic plane as the unit disk: 4 |dx|^2 / (1 - |x|^2)^2, of curvature -1.
    Source: RF-PT.

    >>> poincare_disk().contains(torch.tensor([[0.6, 0.6], [0.8, 0.8]])).tolist()
    [True, False]
    """
    return _isotropic(lambda x: 4 / (1 - x @ x) ** 2, lambda x: 1 - x.square().sum(-1), "Poincare disk")


def torus(major: float = 2.0, minor: float = 1.0) -> Chart:
    """The torus of revolution: minor^2 d theta^2 + (major + minor cos theta)^2 d phi^2.

    theta goes round the tube of radius ``minor``, 0 on the outer equator; phi goes round the axis, at the distance
    ``major`` > minor from the middle of the tube. Both have period 2 pi.
    Source: RF-PT.

    >>> torus().metric_at(torch.tensor([0.0, 1.0])).tolist()
    [[1.0, 0.0], [0.0, 9.0]]
    """
    check_positive(minor, "minor")
    require(math.isfinite(major) and major > minor, "major", major, f"it must be finite and above minor = {minor}")

    def metric(x: Tensor) -> Tensor:
        return torch.diag(torch.stack([minor**2 + 0 * x[0], (major + minor * x[0].cos()) ** 2]))

    return Chart(2, metric, periods=(2 * math.pi, 2 * math.pi), name="torus")


def conformally_flat(f: Field, dim: int = 2) -> Chart:
    """All of R^n with the metric e^{2f} |dx|^2, for a differentiable function f of one point (n,).
    Source: RF-6.

    >>> conformally_flat(lambda x: x[0] * math.log(2)).metric_at(torch.tensor([1.0, 5.0])).round(decimals=6).tolist()
    [[4.0, 0.0], [0.0, 4.0]]
    """
    return _isotropic(lambda x: (2 * f(x)).exp(), name="conformally flat", dim=dim)


def power_metric(log_scale: float, dim: int = 2) -> Chart:
    """R^n with the metric s^{x_1} |dx|^2, which grows by the factor s with each unit of the first coordinate.

    Flat in the plane. From dimension three on, planes orthogonal to x_1 have curvature -(log s)^2 / (4 s^{x_1}), those
    that contain its direction 0.
    Source: RF-6, RF-FLAT.

    >>> chart, at, (x, y, z) = power_metric(math.log(4), 3), torch.tensor([0.5, 0.0, 0.0]), torch.eye(3)
    >>> round(float(sectional_curvature(chart, at, y, z)), 6), round(float(sectional_curvature(chart, at, x, y)), 6)
    (-0.240227, 0.0)
    """
    return conformally_flat(lambda x: x[0] * log_scale / 2, dim)


# Lengths and frames ---------------------------------------------------------------------------------------------------


def norm(chart: Chart, points: Tensor, vectors: Tensor) -> Tensor:
    """The metric's length sqrt(v^T g v) of tangent vectors (..., n) attached at points (..., n).
    Source: RF-PT.

    >>> float(norm(half_plane(), torch.tensor([0.0, 2.0]), torch.tensor([3.0, 4.0])))
    2.5
    """
    vectors = coordinates(vectors, chart.dim, "vectors")
    return torch.einsum("...i,...ij,...j->...", vectors, chart.metric_at(points), vectors).sqrt()


def orthonormal_frame(chart: Chart, points: Tensor) -> Tensor:
    """A frame (..., n, n) at each point whose columns are orthonormal and keep the orientation: E^T g E = I.

    Upper triangular with a positive diagonal: the first column points along the first coordinate.
    Source: RF-5.

    >>> orthonormal_frame(half_plane(), torch.tensor([0.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 2.0]]
    """
    return torch.linalg.inv(torch.linalg.cholesky(chart.metric_at(points))).mT
