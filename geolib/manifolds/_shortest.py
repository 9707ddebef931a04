"""Curves of least energy between two points: a polygon finds the shortest way, a polynomial makes it exact."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor
from torch.func import grad, hessian, vmap

from geolib.manifolds.charts import Chart, over_batch

PIECES = 24  # of the polygon that finds the shortest way
DEGREES = (12, 20, 32, 48, 72, 96)  # of the polynomials, until two agree


def shortened(chart: Chart, start: Tensor, end: Tensor) -> tuple[Tensor, bool]:
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
        return PIECES / 4 * torch.einsum("pi,pij,pj->", steps, g[1:] + g[:-1], steps)

    parts = torch.linspace(0, 1, PIECES + 1, dtype=torch.float64)[1:-1, None]
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


def first_velocity(polygon: Tensor) -> Tensor:
    """The velocity (batch, n) with which polygons (batch, points, n) begin, to second order."""
    return PIECES * (-3 * polygon[:, 0] + 4 * polygon[:, 1] - polygon[:, 2]) / 2


# The polynomial -------------------------------------------------------------------------------------------------------


@lru_cache
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


def exact_velocity(chart: Chart, polygon: Tensor) -> Tensor | None:
    """The first velocity (batch, n) of the curves of least energy near polygons of least energy, (batch, points, n).

    Polynomials of rising degree, each by Newton's method from the one before, until two agree to the chart's tolerance.
    The curvatures of their energy must be positive. None where no two agree.
    """
    from numpy.polynomial import chebyshev

    uniform = torch.from_numpy(chebyshev.chebvander(torch.linspace(-1, 1, polygon.shape[1]).double().numpy(), 10))
    coefficients, before = torch.linalg.pinv(uniform) @ polygon, None
    ends = polygon[:, [0, -1]]
    for degree in DEGREES:
        _, _, first, at_nodes, _ = _basis(degree)
        x = at_nodes[:, : coefficients.shape[1]] @ coefficients
        x[:, [0, -1]] = ends
        solved = _least(chart, x, degree)
        if solved is None:  # the curve bends too much for so few nodes
            continue
        velocity = (first @ solved)[:, 0]
        error = torch.inf if before is None else (velocity - before).abs().max()
        if error <= 10 * (chart.atol + chart.rtol * velocity.abs().max()):
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
        if step.abs().max() <= 1e-9 * x.abs().max():  # the next step would be its square
            return x
    return None
