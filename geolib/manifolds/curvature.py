"""The connection of a metric and its curvature, by automatic differentiation; of e^{2f} |dx|^2 in closed form."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import grad, hessian, jacrev

from geolib._checks import check_last, require
from geolib.manifolds.charts import Chart, check_metric, coordinates, inside, over_batch

__all__ = [
    "christoffel", "conformal_christoffel", "conformal_curvature", "gaussian_curvature", "riemann",
    "sectional_curvature",
]  # fmt: skip


def _symbols(chart: Chart) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
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
    """Christoffel symbols (..., n, n, n) of the Levi-Civita connection.

    Entry [k, i, j] is g^{kl} (d_i g_lj + d_j g_li - d_l g_ij) / 2, symmetric in i and j.
    Source: RF-PT.

    >>> christoffel(half_plane(), torch.tensor([0.0, 2.0]))[1].tolist()  # of the coordinate y
    [[0.5, 0.0], [0.0, -0.5]]
    """
    points = inside(chart, points, "points")
    symbols, g = over_batch(_symbols(chart))(points)
    check_metric(chart, g, points)
    return symbols


def riemann(chart: Chart, points: Tensor) -> Tensor:
    """The curvature tensor (..., n, n, n, n), by differentiating the Christoffel symbols.

    Entry [l, k, i, j] is component l of R(d_i, d_j) d_k, so that the matrix R(d_i, d_j) is [:, :, i, j].
    Source: RF-PT, RF-FLAT.

    >>> riemann(half_plane(), torch.tensor([0.0, 2.0]))[:, :, 0, 1].tolist()
    [[0.0, -0.25], [0.25, 0.0]]
    """
    chart.metric_at(points)
    symbols = _symbols(chart)

    def at(x: Tensor) -> Tensor:
        derivative, (gamma, _) = jacrev(lambda y: (symbols(y)[0], symbols(y)), has_aux=True)(x)
        # half[l, k, i, j] = d_i Gamma^l_jk + Gamma^l_im Gamma^m_jk; the other half exchanges i and j.
        half = torch.einsum("ljki->lkij", derivative) + torch.einsum("lim,mjk->lkij", gamma, gamma)
        return half - half.transpose(-1, -2)

    return over_batch(at)(points.double())


def sectional_curvature(chart: Chart, points: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """The curvature <R(u, v) v, u> / (|u|^2 |v|^2 - <u, v>^2) of the plane of two tangent vectors (..., n).

    ValueError when they lie on one line.
    Source: RF-FLAT.

    >>> x, y = torch.eye(2)
    >>> float(sectional_curvature(half_plane(), torch.tensor([0.0, 2.0]), x, x + 3 * y))
    -1.0
    """
    u, v, g = coordinates(u, chart.dim, "u"), coordinates(v, chart.dim, "v"), chart.metric_at(points)
    uu, uv, vv = (torch.einsum("...i,...ij,...j->...", a, g, b) for a, b in ((u, u), (u, v), (v, v)))
    v = v - (uv / uu)[..., None] * u  # at right angles nothing cancels
    high = torch.einsum("...i,...ij,...j->...", v, g, v)
    require(bool((high > 1e-14 * vv).all()), "v", "a multiple of u", "u and v must span a plane")
    bent = torch.einsum("...lkij,...k,...i,...j->...l", riemann(chart, points), v, u, v)
    return torch.einsum("...i,...ij,...j->...", u, g, bent) / (uu * high)


def gaussian_curvature(chart: Chart, points: Tensor) -> Tensor:
    """The curvature K of a surface, a chart of dimension 2: <R(d_1, d_2) d_2, d_1> / det g.
    Source: RF-PT.

    >>> float(gaussian_curvature(half_plane(), torch.tensor([0.0, 2.0])))
    -1.0
    """
    require(chart.dim == 2, "chart", f"dimension {chart.dim}", "Gaussian curvature belongs to surfaces: dimension 2")
    along, across = torch.eye(2, dtype=torch.float64)
    return sectional_curvature(chart, points, along, across)


# Of flat space rescaled, in closed form; f is a function of one point (n,), twice differentiable ----------------------


def conformal_christoffel(f: Callable[[Tensor], Tensor], points: Tensor) -> Tensor:
    """The Christoffel symbols (..., n, n, n) of e^{2f} |dx|^2 in closed form, ordered as ``christoffel``.

    Entry [k, i, j] is delta_ki d_j f + delta_kj d_i f - delta_ij d_k f.
    Source: RF-FLAT.

    >>> conformal_christoffel(lambda x: -x[1].log(), torch.tensor([0.0, 2.0]))[1].tolist()  # the half-plane
    [[0.5, -0.0], [-0.0, -0.5]]
    """
    slope = over_batch(grad(f))(coordinates(points, points.shape[-1], "points"))
    one = torch.eye(slope.shape[-1], dtype=torch.float64)
    spread = [torch.einsum(f"ab,...c->...{order}", one, slope) for order in ("abc", "acb", "cab")]
    return spread[0] + spread[1] - spread[2]


def conformal_curvature(f: Callable[[Tensor], Tensor], points: Tensor) -> Tensor:
    """The curvature of the plane metric e^{2f} |dx|^2 at points (..., 2) in closed form: K = -e^{-2f} (f_xx + f_yy).

    Zero where f is harmonic: the metric varies and is flat all the same.
    Source: RF-FLAT.

    >>> conformal_curvature(lambda x: x[0] ** 2 - x[1] ** 2, torch.tensor([[0.3, 0.4], [2.0, 0.0]])).tolist()
    [-0.0, -0.0]
    """
    check_last(points, 2, "points")
    laplacian = over_batch(hessian(f))(points.double()).diagonal(dim1=-2, dim2=-1).sum(-1)
    return -(-2 * over_batch(f)(points.double())).exp() * laplacian
