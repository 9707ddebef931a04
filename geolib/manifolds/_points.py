"""Points and vectors of a chart, checked; functions of one point over batches; differences that come round."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.func import vmap

from geolib._checks import check_last, require

if TYPE_CHECKING:
    from geolib.manifolds.charts import Chart


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
