"""Frames, tangent mappings, and the transports they give between the tangent spaces of tokens.

A frame T_i takes the common reference space R^D to the tangent space at token i; its inverse T_i^-1 is the tangent
mapping. The transport from n to m is P_{n->m} = T_m T_n^-1. It keeps lengths, measured by the metrics M_n and M_m, when
T_n^T M_n T_n = T_m^T M_m T_m: the compatibility condition RF-5.

The score of a query at m and a key at n is <q_m, P_{n->m} k_n> in the metric M_m. Where the common value of RF-5 is the
identity, as in all presets below, it equals <T_m^-1 q_m, T_n^-1 k_n>: one map a token, then an ordinary inner product.

Positions are real numbers along one axis; with more axes each has its own planes (``geolib.encodings.RiemannFormer``).
Frames follow the paper's sign, T_m = s^(-m/2) R(m theta), so queries and keys turn by -m theta. RoPE, and the appendix
of the paper, turn them by +m theta.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from geolib._checks import angle_dtype, as_widest, check_even, check_finite, check_last, check_matrices, require
from geolib.conformal import diagonal_metric, general_metric, metric_root, scalar_metric
from geolib.lie import exp_skew
from geolib.rotations import (
    block_diagonal,
    inverse_mixed_angles,
    mixed_matrix,
    reflect_pairs,
    reflection_matrix,
    rotate_pairs,
    rotation_matrix,
)

# Frames and transports: the literal form ----------------------------------------------------------------------------


def check_invertible(matrices: Tensor, argument: str) -> None:
    """Refuse whole numbers, and matrices (..., d, d) that are not square, not finite, or singular in their precision.

    >>> check_invertible(torch.tensor([[1.0, 2.0], [2.0, 4.0]]), "frames")
    Traceback (most recent call last):
    ValueError: frames: got a singular matrix; every matrix must be invertible
    """
    check_matrices(matrices, argument)
    check_finite(matrices, argument)
    matrices = matrices.detach()
    inverse, failed = torch.linalg.inv_ex(matrices)
    # A ratio, not a size: s^(-m/2) alone makes a frame small, and no worse to invert.
    condition = torch.linalg.matrix_norm(matrices, 1) * torch.linalg.matrix_norm(inverse, 1)
    # Written so that a NaN in a failed inverse counts as singular.
    invertible = (failed == 0) & (condition < 1 / torch.finfo(matrices.dtype).eps)
    require(bool(invertible.all()), argument, "a singular matrix", "every matrix must be invertible")


def tangent_mappings(frames: Tensor) -> Tensor:
    """The tangent mappings T_i^-1 (..., d, d), from each tangent space to the reference space.

    ValueError for frames that are whole numbers, not square, not finite or singular.
    Source: RF-2.

    >>> tangent_mappings(torch.tensor([[2.0, 0.0], [0.0, 4.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    check_invertible(frames, "frames")
    return torch.linalg.inv(frames)


def transports(frames: Tensor) -> Tensor:
    """P_{n->m} = T_m T_n^-1 (tokens, tokens, d, d), entry [m, n], of frames (tokens, d, d).

    Errors as ``tangent_mappings``.
    Source: RF-2, RF-8, RF-12.

    >>> transports(torch.tensor([[[1.0]], [[2.0]]]))[1, 0].item()  # from token 0 to token 1
    2.0
    """
    return frames[:, None] @ tangent_mappings(frames)[None, :]


def squared_length(x: Tensor, metric: Tensor) -> Tensor:
    """x^T M x (...) of vectors (..., d) in metrics (..., d, d).
    Source: RF-1.

    >>> squared_length(torch.tensor([1.0, 2.0]), torch.tensor([[2.0, 0.0], [0.0, 3.0]])).item()
    14.0
    """
    x, metric = as_widest(x, metric)
    return torch.einsum("...i,...ij,...j->...", x, metric, x)


def pulled_back_metrics(metrics: Tensor, frames: Tensor) -> Tensor:
    """(T_n^-1)^T T_m^T M_m T_m T_n^-1: the metric at m as the tangent space at n sees it through the transport.

    Entry [m, n] of (tokens, tokens, d, d) is M_n for all m exactly when transports keep lengths.
    Source: RF-3, RF-4.

    >>> m, metrics = torch.arange(3.0), torch.tensor([1.0, 4.0, 16.0])[:, None, None]
    >>> pulled_back_metrics(metrics, metrics.rsqrt())[:, 1].flatten().tolist()  # M_1, from everywhere
    [4.0, 4.0, 4.0]
    """
    metrics, frames = as_widest(metrics, frames)
    p = transports(frames)
    return p.mT @ metrics[:, None] @ p


def reference_metrics(metrics: Tensor, frames: Tensor) -> Tensor:
    """T_i^T M_i T_i: metrics (..., d, d), read in the reference space through frames of the same shape.
    Source: RF-5.

    >>> reference_metrics(torch.tensor([[4.0]]), torch.tensor([[0.5]])).item()
    1.0
    """
    metrics, frames = as_widest(metrics, frames)
    return frames.mT @ metrics @ frames


def compatibility(metrics: Tensor, frames: Tensor) -> Tensor:
    """How far T_n^T M_n T_n is from T_m^T M_m T_m over all pairs of tokens: 0 when transports keep lengths.

    Metrics and frames are (tokens, d, d); the result is the largest difference of two corresponding entries as a share
    of the largest. ValueError when a metric is not symmetric positive definite, a frame is singular, or shapes differ.
    Source: RF-5.

    >>> metrics = torch.tensor([1.0, 4.0])[:, None, None]
    >>> compatibility(metrics, metrics.rsqrt()).item(), compatibility(metrics, metrics**0).item()
    (0.0, 0.75)
    """
    shapes = f"shapes {tuple(metrics.shape)} and {tuple(frames.shape)}"
    require(metrics.dim() == 3 and metrics.shape == frames.shape, "metrics and frames", shapes, "both (tokens, d, d)")
    metrics, frames = as_widest(metrics, frames)
    metric_root(metrics)
    check_invertible(frames, "frames")
    common = reference_metrics(metrics, frames)
    return (common.amax(0) - common.amin(0)).max() / common.abs().max()


def compatible_frames(metrics: Tensor, orthogonals: Tensor) -> Tensor:
    """Frames T_i = M_i^(-1/2) O_i, for which T_i^T M_i T_i = I; all are (tokens, d, d), each O_i orthogonal.

    All others are these times one matrix G^(1/2) common to all tokens, with T_i^T M_i T_i = G. ValueError when a metric
    is not symmetric positive definite.
    Source: RF-5.

    >>> quarter = rotation_matrix(torch.tensor([math.pi / 2]))
    >>> compatible_frames(torch.tensor([[[4.0, 0.0], [0.0, 1.0]]]), quarter).round(decimals=4).tolist()
    [[[0.0, -0.5], [1.0, 0.0]]]
    """
    metrics, orthogonals = as_widest(metrics, orthogonals)
    metric_root(metrics)
    values, axes = torch.linalg.eigh(metrics)
    return axes @ (values.rsqrt().unsqueeze(-1) * axes.mT) @ orthogonals


def literal_scores(q: Tensor, k: Tensor, metrics: Tensor, frames: Tensor) -> Tensor:
    """<q_m, P_{n->m} k_n> in the metric M_m, written out: q_m^T M_m T_m T_n^-1 k_n, with a row for each query.

    Queries and keys are (..., tokens, d), metrics and frames (tokens, d, d).
    Source: RF-9, RF-13.

    >>> metrics = torch.tensor([1.0, 4.0])[:, None, None]
    >>> literal_scores(torch.ones(2, 1), torch.ones(2, 1), metrics, metrics.rsqrt()).tolist()
    [[1.0, 2.0], [2.0, 4.0]]
    """
    q, k, metrics, frames = as_widest(q, k, metrics, frames)
    return torch.einsum("...mi,mij,mnjl,...nl->...mn", q, metrics, transports(frames), k)


# Presets ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Preset:
    """Metrics and frames given by formulas, with the fast form of their tangent mapping.

    ``metrics(positions)`` and ``frames(positions)`` are (tokens, d, d) at positions (tokens,), ``pull_back(x,
    positions)`` is T_m^-1 x_m for x as (..., tokens, d). Gradients reach the tensors that a preset is made of.

    >>> preset, m = rotation_preset(torch.tensor(-0.1), torch.tensor([0.5])), torch.arange(3.0)
    >>> q = k = torch.ones(3, 2)
    >>> torch.allclose(preset.scores(q, k, m), preset.literal_scores(q, k, m))
    True
    """

    metrics: Callable[[Tensor], Tensor]
    frames: Callable[[Tensor], Tensor]
    pull_back: Callable[[Tensor, Tensor], Tensor]

    def literal_scores(self, q: Tensor, k: Tensor, positions: Tensor) -> Tensor:
        """The scores q_m^T M_m T_m T_n^-1 k_n by matrices, (..., tokens, tokens). Source: RF-13."""
        return literal_scores(q, k, self.metrics(positions), self.frames(positions))

    def scores(self, q: Tensor, k: Tensor, positions: Tensor) -> Tensor:
        """The same scores as inner products <T_m^-1 q_m, T_n^-1 k_n>, (..., tokens, tokens). Source: RF-9, RF-14."""
        return self.pull_back(q, positions) @ self.pull_back(k, positions).mT


def scale_features(x: Tensor, log_factor: Tensor) -> Tensor:
    """x (..., tokens, d) times e^log_factor, computed in float32 or float64 and returned in x's dtype.
    Source: RF-14.

    >>> scale_features(torch.ones(1, 2), torch.tensor([0.0, math.log(3)])).tolist()
    [[1.0, 3.0]]
    """
    dtype = angle_dtype(x, log_factor)
    return (x.to(dtype) * log_factor.to(dtype).exp()).to(x.dtype)


def rotation_preset(log_scale: Tensor, frequencies: Tensor) -> Preset:
    """M_m = s^m I and T_m = s^(-m/2) diag(R(m theta_1), ..., R(m theta_{D/2})); RoPE, up to its sign, when s = 1.

    ``log_scale`` is log s, (); ``frequencies`` are theta, (d/2,) radians per unit of position.
    Source: RF-10, RF-11, RF-12, RF-13, RF-14.

    >>> preset = rotation_preset(torch.tensor(math.log(4)), torch.tensor([math.pi / 2]))
    >>> preset.frames(torch.tensor([1.0])).round(decimals=4).tolist()
    [[[0.0, -0.5], [0.5, 0.0]]]
    """
    return Preset(
        lambda m: scalar_metric(m, log_scale, 2 * len(frequencies)),
        lambda m: _column(-m / 2 * log_scale) * block_diagonal(rotation_matrix(m[:, None] * frequencies)),
        lambda x, m: scale_features(rotate_pairs(x, -m[:, None] * frequencies), (m / 2 * log_scale)[:, None]),
    )


def skew_preset(log_scale: Tensor, skew: Tensor) -> Preset:
    """M_m = s^m I and T_m = s^(-m/2) exp(m X), for a skew matrix X (d, d); ``log_scale`` is log s, ().

    ValueError when X is not skew.
    Source: RF-7, RF-8, RF-9.

    >>> preset = skew_preset(torch.tensor(0.0), torch.tensor([[0.0, -math.pi / 2], [math.pi / 2, 0.0]]))
    >>> preset.frames(torch.tensor([1.0])).round(decimals=4).tolist()
    [[[0.0, -1.0], [1.0, 0.0]]]
    """
    require(torch.equal(skew.mT, -skew), "skew", "a matrix with X^T != -X", "pass A - A^T of any square matrix A")
    return Preset(
        lambda m: scalar_metric(m, log_scale, skew.shape[-1]),
        lambda m: _column(-m / 2 * log_scale) * exp_skew(m[:, None, None] * skew),
        lambda x, m: scale_features(_act(exp_skew(-m[:, None, None] * skew), x), (m / 2 * log_scale)[:, None]),
    )


def diagonal_preset(log_scales: Tensor, frequencies: Tensor) -> Preset:
    """M_m = diag(s_1^m, ..., s_D^m) and T_m = M_m^(-1/2) R(m theta), the scales outside the rotation.

    ``log_scales`` are log s_i, (d,); ``frequencies`` are theta, (d/2,) radians per unit of position. The tangent
    mapping scales first and turns then: with unequal scales in a plane R(m theta) M_m^(-1/2) would break RF-5.
    Source: RF-5, RF-6.

    >>> preset = diagonal_preset(torch.tensor([math.log(4), 0.0]), torch.tensor([math.pi / 2]))
    >>> preset.frames(torch.tensor([1.0])).round(decimals=4).tolist()
    [[[0.0, -0.5], [1.0, 0.0]]]
    """
    check_last(log_scales, 2 * len(frequencies), "log_scales")
    return Preset(
        lambda m: diagonal_metric(m, log_scales),
        lambda m: diagonal_metric(-m / 2, log_scales) @ block_diagonal(rotation_matrix(m[:, None] * frequencies)),
        lambda x, m: rotate_pairs(scale_features(x, m[:, None] / 2 * log_scales), -m[:, None] * frequencies),
    )


def reflection_preset(log_scale: Tensor, frequencies: Tensor) -> Preset:
    """M_m = s^m I and T_m = s^(-m/2) diag(S(m theta_1), ..., S(m theta_{D/2})), with reflections S.

    ``log_scale`` is log s, (); ``frequencies`` are theta, (d/2,), radians by which the mirror lines turn per unit of
    position. The scores are those of ``rotation_preset`` with doubled angles: S(m theta) S(n theta) = R(2 (m - n)
    theta).
    Source: RF-15, RF-16, RF-REFL.

    >>> preset = reflection_preset(torch.tensor(0.0), torch.tensor([math.pi / 2]))
    >>> preset.frames(torch.tensor([1.0])).round(decimals=4).tolist()
    [[[-1.0, 0.0], [0.0, 1.0]]]
    """
    return Preset(
        lambda m: scalar_metric(m, log_scale, 2 * len(frequencies)),
        lambda m: _column(-m / 2 * log_scale) * block_diagonal(reflection_matrix(m[:, None] * frequencies)),
        lambda x, m: scale_features(reflect_pairs(x, m[:, None] * frequencies), (m / 2 * log_scale)[:, None]),
    )


def mixed_preset(log_scale: Tensor, frequencies: Tensor) -> Preset:
    """M_m = s^m I and T_m = s^(-m/2) times blocks diag(R(m theta_1), S(m theta_2)).

    ``log_scale`` is log s, (); ``frequencies`` are theta, (d/2,) for an even number of planes: even-numbered ones turn,
    odd-numbered ones are mirrored.
    Source: RF-17, RF-18.

    >>> preset = mixed_preset(torch.tensor(0.0), torch.tensor([math.pi, math.pi / 2]))
    >>> preset.frames(torch.tensor([1.0]))[0].diagonal().round(decimals=4).tolist()
    [-1.0, -1.0, -1.0, 1.0]
    """
    check_even(len(frequencies), "frequencies' length")
    return Preset(
        lambda m: scalar_metric(m, log_scale, 2 * len(frequencies)),
        lambda m: _column(-m / 2 * log_scale) * mixed_matrix(m[:, None] * frequencies),
        lambda x, m: scale_features(
            mixed_pairs(x, inverse_mixed_angles(m[:, None] * frequencies)), (m / 2 * log_scale)[:, None]
        ),
    )


def general_preset(log_scales: Tensor, frequencies: Tensor) -> Preset:
    """M_m = R(-m theta) S^m R(m theta) and T_m = R(-m theta) S^(-m/2), the appendix's general metric.

    ``log_scales`` are log s_i, (d,), entries 2j and 2j + 1 for plane j; ``frequencies`` are theta, (d/2,) radians per
    unit of position. The tangent mapping S^(m/2) R(m theta) turns first and scales then.
    Source: RF-A1, RF-A2, RF-A3, RF-A4, RF-A5.

    >>> preset = general_preset(torch.tensor([math.log(4), 0.0]), torch.tensor([math.pi / 2]))
    >>> preset.frames(torch.tensor([1.0])).round(decimals=4).tolist()
    [[[0.0, 1.0], [-0.5, 0.0]]]
    """
    check_last(log_scales, 2 * len(frequencies), "log_scales")
    return Preset(
        lambda m: general_metric(m, log_scales, frequencies),
        lambda m: block_diagonal(rotation_matrix(-m[:, None] * frequencies)) @ diagonal_metric(-m / 2, log_scales),
        lambda x, m: scale_features(rotate_pairs(x, m[:, None] * frequencies), m[:, None] / 2 * log_scales),
    )


def mixed_pairs(x: Tensor, angles: Tensor) -> Tensor:
    """Turn the even-numbered pairs of x (..., d), mirror the odd-numbered ones: the fast form of ``mixed_matrix``.

    The angles (..., d/2) are in radians.
    Source: RF-17.

    >>> mixed_pairs(torch.ones(4), torch.tensor([math.pi, math.pi / 2])).round(decimals=4).tolist()
    [-1.0, -1.0, -1.0, 1.0]
    """
    # S(a) = R(2a) S(0), and S(0) flips the sign of the second feature.
    flip = torch.tensor([1.0, 1.0, 1.0, -1.0], dtype=x.dtype, device=x.device).repeat(x.shape[-1] // 4)
    return rotate_pairs(x * flip, equivalent_frequencies(angles))


# Findings -----------------------------------------------------------------------------------------------------------


def equivalent_frequencies(frequencies: Tensor) -> Tensor:
    """The theta of ``rotation_preset`` that score as these (..., d/2) do in ``mixed_preset``: odd entries doubled.
    Source: RF-REFL.

    >>> equivalent_frequencies(torch.tensor([1.0, 2.0])).tolist()
    [1.0, 4.0]
    """
    check_even(frequencies.shape[-1], "frequencies' last dimension")
    doubled = torch.ones_like(frequencies)
    doubled[..., 1::2] = 2
    return frequencies * doubled


def transposed_scores(q: Tensor, k: Tensor, frames: Tensor) -> Tensor:
    """What comes out when T^T is used for T^-1: <T_m^T q_m, T_n^T k_n>, a mistake found in public code.

    Queries and keys are (..., tokens, d), frames (tokens, d, d). Where T = s^(-m/2) R(m theta) with s other than 1,
    every score is multiplied by s^-(m+n): the metric of 1/s, so that one meant to shrink far tokens blows them up.
    Source: RF-INV.

    >>> frames = torch.tensor([1.0, 2.0])[:, None, None]  # s = 1/4
    >>> transposed_scores(torch.ones(2, 1), torch.ones(2, 1), frames)[1, 1].item()  # instead of 1/4
    4.0
    """
    q, k, frames = as_widest(q, k, frames)
    return _act(frames.mT, q) @ _act(frames.mT, k).mT


def _column(log_factor: Tensor) -> Tensor:
    """e^log_factor as (tokens, 1, 1), to scale one matrix a token."""
    return log_factor.exp()[:, None, None]


def _act(matrices: Tensor, x: Tensor) -> Tensor:
    """One matrix a token on one vector a token, in x's dtype; (tokens, d, d) and (..., tokens, d)."""
    return torch.einsum("mij,...mj->...mi", *as_widest(matrices, x)).to(x.dtype)
