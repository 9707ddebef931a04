"""Flat space with its lengths rescaled from point to point, e^{2f} |dx|^2: all of it in closed form.

``f`` is a function of one point (n,) that returns a scalar tensor, twice differentiable.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import grad, hessian

from geolib._checks import check_last
from geolib.manifolds.charts import Chart, coordinates, over_batch

__all__ = [
    "Scalar",
    "conformal_christoffel",
    "conformal_curvature",
    "conformally_flat",
    "power_metric",
]

Scalar = Callable[[Tensor], Tensor]


def conformally_flat(f: Scalar, dim: int = 2) -> Chart:
    """All of R^n with the metric e^{2f} |dx|^2.

    >>> conformally_flat(lambda x: x[0] * math.log(2)).metric_at(torch.tensor([1.0, 5.0])).round(decimals=6).tolist()
    [[4.0, 0.0], [0.0, 4.0]]

    Source: RF-6.
    """
    return Chart(dim, lambda x: (2 * f(x)).exp() * torch.eye(dim, dtype=x.dtype), name="conformally flat")


def conformal_christoffel(f: Scalar, points: Tensor) -> Tensor:
    """The Christoffel symbols (..., n, n, n) of e^{2f} |dx|^2 in closed form, ordered as ``christoffel``.

    Entry [k, i, j] is delta_ki d_j f + delta_kj d_i f - delta_ij d_k f.

    >>> conformal_christoffel(lambda x: -x[1].log(), torch.tensor([0.0, 2.0]))[1].tolist()  # the half-plane
    [[0.5, -0.0], [-0.0, -0.5]]

    Source: RF-FLAT.
    """
    slope = over_batch(grad(f))(coordinates(points, points.shape[-1], "points"))
    one = torch.eye(slope.shape[-1], dtype=torch.float64)
    spread = [torch.einsum(f"ab,...c->...{order}", one, slope) for order in ("abc", "acb", "cab")]
    return spread[0] + spread[1] - spread[2]


def conformal_curvature(f: Scalar, points: Tensor) -> Tensor:
    """The curvature of the plane metric e^{2f} |dx|^2 at points (..., 2) in closed form: K = -e^{-2f} (f_xx + f_yy).

    Zero where f is harmonic: the metric varies and is flat all the same.

    >>> conformal_curvature(lambda x: x[0] ** 2 - x[1] ** 2, torch.tensor([[0.3, 0.4], [2.0, 0.0]])).tolist()
    [-0.0, -0.0]

    Source: RF-FLAT.
    """
    check_last(points, 2, "points")
    laplacian = over_batch(hessian(f))(points.double()).diagonal(dim1=-2, dim2=-1).sum(-1)
    return -(-2 * over_batch(f)(points.double())).exp() * laplacian


# RiemannFormer's scalar metric, read as a metric on the positions -----------------------------------------------------


def power_metric(log_scale: float, dim: int = 2) -> Chart:
    """R^n with the metric s^{x_1} |dx|^2, which grows by the factor s with each unit of the first coordinate.

    Flat in the plane. From dimension three on, planes orthogonal to x_1 have curvature -(log s)^2 / (4 s^{x_1}), those
    that contain its direction 0.

    >>> chart, at, (x, y, z) = power_metric(math.log(4), 3), torch.tensor([0.5, 0.0, 0.0]), torch.eye(3)
    >>> round(float(sectional_curvature(chart, at, y, z)), 6), round(float(sectional_curvature(chart, at, x, y)), 6)
    (-0.240227, 0.0)

    Source: RF-6, RF-FLAT.
    """
    return conformally_flat(lambda x: x[0] * log_scale / 2, dim)
