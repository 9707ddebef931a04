"""The differential equations of curves on a chart, and the one error for a curve that leaves it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from geolib._checks import require
from geolib.manifolds.charts import Chart
from geolib.manifolds.curvature import christoffel

MOST_CALLS = 6_000  # of a differential equation's right side; a smooth problem takes a few hundred
TOO_HARD = "it must not run into a singularity or the ideal boundary; or loosen the chart's rtol and atol"


def solve(
    chart: Chart, rate: Callable[[float, Tensor], Tensor], start: Tensor, times: Sequence[float]
) -> tuple[Tensor, float]:
    """Integrate a system from times[0] on: its states at the times it reached, and the last time it reached."""
    from scipy.integrate import solve_ivp

    calls = itertools.count()

    def flat_rate(t: float, y: Any) -> Any:
        require(next(calls) < MOST_CALLS, "curve", f"{MOST_CALLS} steps of the solver up to t = {t:.9g}", TOO_HARD)
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


def left_chart(chart: Chart, argument: str, t: float) -> None:
    """The one error for every curve that leaves its chart."""
    require(False, argument, f"a curve that leaves the chart at t = {t:.9g}", f"it must stay inside {chart.name!r}")
