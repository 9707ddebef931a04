"""Scale laws, conformal maps and the metrics made of them.

A metric here is a family of symmetric positive definite matrices M_m, one for each position m. The scalar one,
M_m = s^m I, changes lengths and keeps angles: a conformal deformation of Euclidean space. A conformal map x -> s R x
does the same to vectors.

Everything is held as log s. Powers are products of logarithms until the last step, so that s close to 1 keeps its
digits: in float32, s^m from a rounded s is wrong by m units in the last place, and s^m from log s is not.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from geolib._checks import (
    angle_dtype,
    as_widest,
    check_floating,
    check_last,
    check_matrices,
    check_positive,
    require,
    wide,
)
from geolib.rotations import block_diagonal, rotation_matrix

# Scale laws ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ScaleLaw:
    """How a learned number w becomes a scale s, and how positions become exponents.

    ``log_scale(w)`` is log s; ``raw(s)`` is the w that gives s; ``exponent(positions)`` is the power of s in the
    metric.
    Source: RF-6a.

    >>> law = bounded_law(alpha=0.1)
    >>> law.log_scale(law.raw(torch.tensor(0.9))).exp().item()
    0.9
    """

    log_scale: Callable[[Tensor], Tensor]
    raw: Callable[[Tensor], Tensor]
    exponent: Callable[[Tensor], Tensor]


def bounded_log_scale(w: Tensor, alpha: float = 0.1) -> Tensor:
    """log s of the law s = e^w / (e^w + alpha), which keeps s below 1; alpha > 0, in the paper's experiments 0.1.

    It is -log(1 + alpha e^-w), without forming s: exact to rounding for s near 0 and near 1 alike.
    Source: RF-6a.

    >>> bounded_log_scale(torch.tensor(0.0), alpha=1.0).exp().item()
    0.5
    """
    check_positive(alpha, "alpha")
    # The logistic function's logarithm; softplus turns linear above 20, which float64 can see.
    return F.logsigmoid(w - math.log(alpha))


def _bounded_raw(s: Tensor, alpha: float) -> Tensor:
    """The w with e^w / (e^w + alpha) = s, for s between 0 and 1, both excluded: log alpha + log s - log(1 - s)."""
    require(bool(((s > 0) & (s < 1)).all()), "s", _range(s), "this law reaches scales between 0 and 1, both excluded")
    return math.log(alpha) + s.log() - torch.log1p(-s)


def _free_raw(s: Tensor) -> Tensor:
    """The w with e^w = s, for finite s above 0."""
    require(bool(((s > 0) & s.isfinite()).all()), "s", _range(s), "scales must be finite and above 0")
    return s.log()


def _range(s: Tensor) -> str:
    """What came, for an error."""
    return f"values from {s.min().item():g} to {s.max().item():g}" if s.numel() else "no values"


def bounded_law(alpha: float = 0.1, origin: float = 0.0) -> ScaleLaw:
    """s = e^w / (e^w + alpha) < 1, to the power m - origin: the law of the paper's experiments.

    ``origin`` is the position where the metric is the identity, 0 or any real number.
    Source: RF-6a.

    >>> bounded_law(alpha=1.0).log_scale(torch.tensor(0.0)).exp().item()
    0.5
    """
    check_positive(alpha, "alpha")
    require(math.isfinite(origin), "origin", origin, "it must be a finite number")
    to_exponent = partial(_from_origin, origin=origin)
    return ScaleLaw(partial(bounded_log_scale, alpha=alpha), partial(_bounded_raw, alpha=alpha), to_exponent)


def free_law(origin: float = 0.0) -> ScaleLaw:
    """s = e^w, above or below 1, to the power m - origin.

    ``origin`` as in ``bounded_law``. From the middle of the positions, s tilts scores and keeps their mean logarithm.
    Source: RF-6a.

    >>> law = free_law(origin=3.5)
    >>> law.log_scale(torch.tensor(0.3)).item(), law.exponent(torch.tensor([0.0, 7.0])).tolist()
    (0.3, [-3.5, 3.5])
    """
    # Where log s is w; PyTorch's function by name, so that a module with a law can be pickled.
    return replace(bounded_law(origin=origin), log_scale=torch.positive, raw=_free_raw)


def slow_law(alpha: float = 0.1, beta: float = math.e) -> ScaleLaw:
    """s = e^w / (e^w + alpha) to the power log_beta(1 + m), for long sequences: it grows as a power of the position.

    beta, above 1, is the factor of 1 + m that raises the exponent by one. The paper counts positions from 1 and this
    library from 0, hence 1 + m.
    Source: RF-6a.

    >>> slow_law(beta=2.0).exponent(torch.tensor([0.0, 1.0, 7.0])).tolist()
    [0.0, 1.0, 3.0]
    """
    require(math.isfinite(beta) and beta > 1, "beta", beta, "it must be a finite number above 1")
    return replace(bounded_law(alpha), exponent=partial(_slow_from_zero, beta=beta))


def _from_origin(positions: Tensor, origin: float) -> Tensor:
    """m - origin; the positions themselves where nothing is to be moved."""
    positions = _wide(positions)
    return positions - origin if origin else positions


def _wide(positions: Tensor) -> Tensor:
    """Positions with room for the digits of what is computed from them: types narrower than float32 as float32."""
    return positions.to(angle_dtype(positions)) if positions.is_floating_point() else positions


def _slow_from_zero(positions: Tensor, beta: float) -> Tensor:
    """log_beta(1 + m); NaN at m <= -1, where a step on a GPU could not stop to look."""
    return _wide(positions).log1p() / math.log(beta)


SCALE_LAWS: dict[str, Callable[..., ScaleLaw]] = {"bounded": bounded_law, "free": free_law, "slow": slow_law}

# Metrics ------------------------------------------------------------------------------------------------------------


def scalar_metric(positions: Tensor, log_scale: Tensor, dim: int) -> Tensor:
    """M_m = s^m I (tokens, dim, dim) at positions (tokens,); ``log_scale`` is log s, ().
    Source: RF-6.

    >>> scalar_metric(torch.tensor([2.0]), torch.tensor(math.log(3)), 2).tolist()
    [[[9.0, 0.0], [0.0, 9.0]]]
    """
    positions, log_scale = as_widest(positions, log_scale)
    return (positions * log_scale).exp()[:, None, None] * torch.eye(dim, dtype=positions.dtype, device=positions.device)


def diagonal_metric(positions: Tensor, log_scales: Tensor) -> Tensor:
    """M_m = diag(s_1^m, ..., s_D^m) (tokens, dim, dim) at positions (tokens,); ``log_scales`` are log s_i, (dim,).
    Source: RF-6.

    >>> diagonal_metric(torch.tensor([2.0]), torch.tensor([2.0, 3.0]).log()).tolist()
    [[[4.0, 0.0], [0.0, 9.0]]]
    """
    return torch.diag_embed((positions[:, None] * log_scales).exp())


def general_metric(positions: Tensor, log_scales: Tensor, frequencies: Tensor) -> Tensor:
    """M_m = R(-m theta) S^m R(m theta) (tokens, dim, dim), a metric whose axes turn as its scales change.

    Positions are (tokens,); ``log_scales`` are log s_i, (dim,), entries 2j and 2j + 1 for plane j; ``frequencies`` are
    theta, (dim / 2,) radians per unit of position.
    Source: RF-A1, RF-A2.

    >>> quarter = torch.tensor([math.pi / 2])
    >>> general_metric(torch.tensor([1.0]), torch.tensor([2.0, 3.0]).log(), quarter).round(decimals=4).tolist()
    [[[3.0, 0.0], [0.0, 2.0]]]
    """
    check_last(log_scales, 2 * frequencies.shape[-1], "log_scales")
    positions, log_scales, frequencies = as_widest(positions, log_scales, frequencies)
    turn = block_diagonal(rotation_matrix(positions[:, None] * frequencies))
    return turn.mT @ diagonal_metric(positions, log_scales) @ turn


def unit_ball(metric: Tensor, samples: int = 200) -> Tensor:
    """The points (..., samples, 2) of length one in a metric (..., 2, 2): an ellipse, a circle if it is conformal.

    The first point is also the last. ValueError when the metric is not symmetric positive definite.
    Source: RF-6, RF-A1.

    >>> unit_ball(torch.tensor([[4.0, 0.0], [0.0, 1.0]]), samples=5).round(decimals=4).tolist()
    [[0.5, 0.0], [0.0, 1.0], [-0.5, 0.0], [0.0, -1.0], [0.5, 0.0]]
    """
    require(samples >= 2, "samples", samples, "at least 2 points make a curve")
    check_floating(metric, "metric")
    require(metric.shape[-2:] == (2, 2), "metric", metric.shape, "it must be (..., 2, 2)")
    root = metric_root(metric)
    turn = torch.linspace(0, 2 * math.pi, samples, dtype=metric.dtype, device=metric.device)
    # M = L L^T, so x = L^-T u has x^T M x = u^T u = 1.
    return torch.linalg.solve_triangular(root.mT, torch.stack([turn.cos(), turn.sin()]), upper=True).mT


def metric_root(metric: Tensor) -> Tensor:
    """The lower triangular L with M = L L^T, of metrics (..., d, d).

    ValueError when a matrix is not symmetric, or not positive definite.
    Source: RF-6.

    >>> metric_root(torch.tensor([[4.0, 2.0], [2.0, 2.0]])).tolist()
    [[2.0, 0.0], [1.0, 1.0]]
    """
    check_matrices(metric, "metric")
    gap, size = (x.abs().amax((-1, -2)) for x in (metric - metric.mT, metric))
    # Rounding of a product of a few matrices leaves a gap of this order.
    symmetric = gap <= 100 * torch.finfo(metric.dtype).eps * size
    require(bool(symmetric.all()), "metric", lambda: f"an asymmetry of {gap.max().item():.2g}", "it must be symmetric")
    root, failed = torch.linalg.cholesky_ex(metric)
    definite = not bool(failed.any())
    require(definite, "metric", "a matrix with an eigenvalue of 0 or below", "it must be positive definite")
    return root


# Conformal maps -----------------------------------------------------------------------------------------------------


def conformal_matrix(log_scale: Tensor, rotation: Tensor) -> Tensor:
    """The matrix s R (..., d, d) of a conformal map, from log s (...) and an orthogonal R.
    Source: CS-1.

    >>> conformal_matrix(torch.tensor(math.log(2)), torch.eye(2)).tolist()
    [[2.0, 0.0], [0.0, 2.0]]
    """
    log_scale, rotation = as_widest(log_scale, rotation)
    return log_scale.exp()[..., None, None] * rotation


def conformal_factor(matrix: Tensor) -> Tensor:
    """The scale s (...) of a conformal matrix (..., d, d): the root of the mean of its squared singular values.
    Source: CS-1.

    >>> conformal_factor(torch.tensor([[0.0, -3.0], [3.0, 0.0]])).item()
    3.0
    """
    squares = wide(matrix).square().sum((-1, -2))  # which a narrow dtype does not hold
    return (squares / matrix.shape[-1]).sqrt().to(torch.result_type(matrix, 1.0))


def conformal_deviation(matrix: Tensor) -> Tensor:
    """How far a matrix P (..., d, d) is from a conformal one: the largest entry of P^T P / s^2 - I, 0 for P = s R.

    ValueError for a zero matrix.
    Source: CS-1.

    >>> conformal_deviation(torch.tensor([[0.0, -3.0], [3.0, 0.0]])).item()
    0.0
    """
    factor = conformal_factor(matrix)
    require(bool((factor > 0).all()), "matrix", "a zero matrix", "a conformal map has a scale above 0")
    unit = matrix / factor[..., None, None]
    gram = unit.mT @ unit
    return (gram - torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)).abs().amax((-1, -2))


# Far from the origin ------------------------------------------------------------------------------------------------


def reach(log_scale: Tensor, dtype: torch.dtype) -> Tensor:
    """How far from the origin s^(m/2) and s^(-m/2) are both normal numbers of a dtype: the largest such m, as a real.

    ``log_scale`` is log s, of any shape; where it is 0 the reach is infinite. Beyond it a query's s^(m/2) and a key's
    s^(-m/2) are zero and infinity in one order or the other, although their product is 1.
    Source: RF-14.

    >>> reach(torch.tensor(1 / 1.1).log(), torch.float16).round().item()
    204.0
    """
    check_floating(torch.empty(0, dtype=dtype), "dtype")
    limits = torch.finfo(dtype)
    return 2 * min(math.log(limits.max), -math.log(limits.tiny)) / log_scale.abs()
