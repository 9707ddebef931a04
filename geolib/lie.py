"""Rotations made by exponentials: skew matrices, their exp and log, and how far order matters.

Conventions
-----------
A *generator* is a real skew matrix, A^T = -A; its exponential is a rotation. Generators of block width b act on b
neighbouring features each: a head of dimension d has d/b blocks, and b must divide d. A block is stored as the
b(b-1)/2 entries of its strict upper triangle, row by row; the lower triangle is their negative. For b = 2 the entry u
is the matrix [[0, u], [-u, 0]], and exp of it is R(-u): it turns clockwise by u.

A token at position p (any number of axes) is turned by R(p) = exp(sum_i p_i A_i), with one generator A_i for each axis.

Exponentials are computed in float32, or in float64 when an input is float64, whatever autocast or the TF32 switch say.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.function import once_differentiable

from geolib._checks import angle_dtype, as_widest, check_floating, check_positions, check_positive, require
from geolib._precision import full_precision
from geolib.rotations import rotation_matrix

# The algebra --------------------------------------------------------------------------------------------------------


def _check_square(A: Tensor, argument: str) -> None:
    """Square matrices on the last two dimensions."""
    came = tuple(A.shape)
    require(A.dim() >= 2 and A.shape[-1] == A.shape[-2], argument, f"shape {came}", "it must be (..., n, n)")


def _check_skew(A: Tensor, argument: str) -> None:
    """Finite skew matrices, up to rounding."""
    _check_square(A, argument)
    with torch.no_grad():
        size, defect = (float(x.abs().max()) if x.numel() else 0.0 for x in (A, A + A.mT))
    require(math.isfinite(size), argument, "entries that are not finite", "all entries must be finite")
    require(defect <= 1e-5 * size, argument, f"|A + A^T| up to {defect:.3g}", "it must be skew: A^T = -A")


def _check_finite(x: Tensor, argument: str) -> None:
    """Numbers that are all finite."""
    require(bool(x.isfinite().all()), argument, "numbers that are not finite", "all must be finite")


def entry_count(width: int) -> int:
    """How many free entries a skew block of width b >= 2 has: b(b-1)/2, the dimension of so(b).

    Source: LR-par.

    >>> entry_count(8)
    28
    """
    require(width >= 2, "width", width, "a block has at least 2 rows")
    return width * (width - 1) // 2


def generator_parameters(head_dim: int, width: int, *, axes: int, heads: int, layers: int) -> int:
    """The number of learned entries in all generators of a model.

    layers * heads * axes * (head_dim / width) * width (width - 1) / 2, with the layers and heads that have generators
    of their own (1 where they share); ValueError unless the width is at least 2 and divides head_dim.

    Source: LR-par, LR-blk.

    >>> generator_parameters(64, 64, axes=2, heads=12, layers=12)
    580608
    """
    check_width(head_dim, width)
    return layers * heads * axes * (head_dim // width) * entry_count(width)


def check_width(head_dim: int, width: int) -> None:
    """Raise ValueError unless blocks of this width fill a head.

    Source: LR-blk.

    >>> check_width(64, 5)
    Traceback (most recent call last):
    ValueError: width: got 5; at least 2 and a divisor of head_dim 64
    """
    require(width >= 2 and head_dim % width == 0, "width", width, f"at least 2 and a divisor of head_dim {head_dim}")


def skew_matrix(entries: Tensor, width: int) -> Tensor:
    """The skew matrix, (..., width, width), with the given strict upper triangle, row by row.

    Source: LR-B5.

    >>> skew_matrix(torch.tensor([1.0, 2.0, 3.0]), width=3)
    tensor([[ 0.,  1.,  2.],
            [-1.,  0.,  3.],
            [-2., -3.,  0.]])
    """
    count, came = entry_count(width), tuple(entries.shape)
    holds = entries.dim() >= 1 and entries.shape[-1] == count
    require(holds, "entries", f"shape {came}", f"its last dimension must be {count} for width {width}")
    row, column = torch.triu_indices(width, width, 1, device=entries.device)
    # Place every entry by one gather from (entries, their negatives, zero): cheaper than two scattered writes.
    source = torch.full((width, width), 2 * count, device=entries.device)
    source[row, column] = torch.arange(count, device=entries.device)
    source[column, row] = torch.arange(count, 2 * count, device=entries.device)
    padded = torch.cat([entries, -entries, torch.zeros_like(entries[..., :1])], -1)
    return padded[..., source.flatten()].unflatten(-1, (width, width))


def upper_entries(A: Tensor) -> Tensor:
    """The strict upper triangle of skew (..., b, b), row by row: the inverse of ``skew_matrix``.

    Source: LR-B5.

    >>> upper_entries(skew_matrix(torch.tensor([1.0, 2.0, 3.0]), 3))
    tensor([1., 2., 3.])
    """
    _check_square(A, "A")
    row, column = torch.triu_indices(A.shape[-1], A.shape[-1], 1, device=A.device)
    return A[..., row, column]


def commutator(X: Tensor, Y: Tensor) -> Tensor:
    """The bracket [X, Y] = XY - YX of (..., n, n); skew for skew X and Y, and zero exactly when they commute.

    Source: LR-1, LR-2.

    >>> X, Y = (skew_matrix(torch.tensor(row), 3) for row in ([1.0, 0.0, 0.0], [0.0, 1.0, 0.0]))
    >>> upper_entries(commutator(X, Y))  # turns of different planes do not commute
    tensor([ 0.,  0., -1.])
    """
    X, Y = as_widest(X, Y)
    return X @ Y - Y @ X


def bch(X: Tensor, Y: Tensor, order: int = 3) -> Tensor:
    """The Baker-Campbell-Hausdorff series of log(exp X exp Y), cut after the given order, for X and Y (..., n, n).

    X + Y + 1/2 [X, Y] + 1/12 ([X, [X, Y]] + [Y, [Y, X]]), up to ``order`` factors, 1 to 3; with X and Y of size t the
    error is O(t^(order + 1)).

    Source: LR-1.

    >>> X, Y = 0.1 * skew_matrix(torch.randn(2, 6), 4)
    >>> [bool((exp_skew(bch(X, Y, order)) - exp_skew(X) @ exp_skew(Y)).norm() < 0.1**order) for order in (1, 2, 3)]
    [True, True, True]
    """
    require(order in (1, 2, 3), "order", order, "it must be 1, 2 or 3")
    total = X + Y
    if order >= 2:
        bracket = commutator(X, Y)
        total = total + bracket / 2
    if order == 3:
        total = total + commutator(X - Y, bracket) / 12
    return total


# exp and log --------------------------------------------------------------------------------------------------------

# Taylor's degree, and the largest |eigenvalue| at which its relative error stays below half a unit of the last place.
_TAYLOR = {torch.float32: (9, 0.84), torch.float64: (16, 0.81)}


# On a GPU, where reading numbers would wait for the device: as many squarings as serve up to 14,000 rad, where rounding
# A to float32 alone costs 1e-3 rad.
_FIXED_SQUARINGS = 14


def _readable(x: Tensor) -> bool:
    """Whether looking at the numbers neither waits for a device nor breaks a graph."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def _size(A: Tensor) -> Tensor:
    """A bound of the largest |eigenvalue| of each matrix, (N,)."""
    # Eigenvalues come in pairs +-i lambda, so lambda_max^2 <= |A|_F^2 / 2.
    return torch.linalg.vector_norm(A.detach(), dim=(-2, -1)) / math.sqrt(2)


def _squarings(A: Tensor) -> int:
    """How many halvings bring all eigenvalues within Taylor's reach; a fixed number where A cannot be read."""
    if A.numel() == 0 or not _readable(A):
        return _FIXED_SQUARINGS if A.numel() else 0
    largest, reach = float(_size(A).max()), _TAYLOR[A.dtype][1]
    return max(0, math.ceil(math.log2(largest / reach))) if reach < largest < math.inf else 0


def _product(X: Tensor, Y: Tensor, beta: float = 0.0, plus: Tensor | None = None) -> Tensor:
    """X Y + beta plus, for matrices (N, b, b), or for matrices above their derivatives, (N, 2b, b).

    [x; dx] [y; dy] = [xy; dx y + x dy].
    """
    b = X.shape[-1]
    Z = _sum_with_product(plus, X, Y[:, :b], beta)
    if X.shape[1] > b:
        Z[:, b:].add_(torch.bmm(X[:, :b], Y[:, b:]))
    return Z


def _sum_with_product(S: Tensor | None, X: Tensor, Y: Tensor, beta: float) -> Tensor:
    """beta S + X Y: a GPU adds for nothing; on a CPU small products that add take twice as long as others."""
    if S is None:
        return torch.bmm(X, Y)
    return torch.baddbmm(S, X, Y, beta=beta) if S.is_cuda else torch.bmm(X, Y).add_(S, alpha=beta)


def _taylor(B: Tensor) -> Tensor:
    """exp(B) - I by Taylor's polynomial in Paterson and Stockmeyer's grouping: ``step`` terms at a time.

    Each group is multiplied by B^step as often as there are groups below it.
    """
    degree = _TAYLOR[B.dtype][0]
    step = math.isqrt(degree)
    powers = [B]
    while len(powers) < step:
        powers.append(_product(powers[-1], B))

    def group(start: int) -> Tensor:
        total = powers[0] * (1 / math.factorial(start + 1))
        for j, power in enumerate(powers[1:], start=2):
            total = total.add_(power, alpha=1 / math.factorial(start + j))
        return total

    total = group(degree - step)
    for start in range(degree - 2 * step, -1, -step):
        total = _product(powers[-1], total, 1, group(start))
    return total


def _double(E: Tensor) -> Tensor:
    """From exp(B) - I to exp(2B) - I: carrying E, not I + E, keeps the digits of small rotations."""
    return _product(E, E, 2, E)


def _expm1(A: Tensor, squarings: int) -> Tensor:
    """exp(A) - I for (N, b, b), by scaling and squaring; NaN where the squarings do not reach.

    For A above a direction D, (N, 2b, b): exp(A) - I above the derivative of exp at A along D.
    """
    E = _taylor(A * 0.5**squarings)
    for _ in range(squarings):
        E = _double(E)
    if _readable(A):
        return E
    far = _size(A[:, : A.shape[-1]]) > _TAYLOR[A.dtype][1] * 2**squarings
    return E.masked_fill(far[:, None, None], math.nan)


def _expm1_in_pieces(A: Tensor) -> Tensor:
    """exp(A) - I, (N, b, b), in pieces that fit a cache."""
    with full_precision(A.device):
        # Each piece is scaled by its own largest matrix: near the origin fewer squarings will do.
        result = torch.empty_like(A, memory_format=torch.contiguous_format)
        for piece, into in zip(A.split(_piece(A)), result.split(_piece(A))):
            into.copy_(_expm1(piece, _squarings(piece)))
        return result


def _expm1_backward_in_pieces(A: Tensor, gradient: Tensor) -> Tensor:
    """The gradient in A, from A alone: nothing else is kept."""
    with full_precision(A.device):
        result = torch.empty_like(A, memory_format=torch.contiguous_format)
        for piece, g, into in zip(*(t.split(_piece(A)) for t in (A, gradient, result))):
            into.copy_(_expm1_adjoint(piece, g, _squarings(piece)))
        return result


def _expm1_adjoint(A: Tensor, gradient: Tensor, squarings: int) -> Tensor:
    """The gradient of <gradient, exp(A)> in A, (N, b, b): the derivative of exp at A^T along the gradient."""
    return _expm1(torch.cat([A.mT, gradient], 1), squarings)[:, A.shape[-1] :]


# One operator: a compiled or exported graph holds it whole, and it runs with TF32 and autocast off.
_operator = torch.library.custom_op("geolib::expm1", mutates_args=(), schema="(Tensor A) -> Tensor")
_lean_expm1 = _operator(_expm1_in_pieces)
_operator = torch.library.custom_op(
    "geolib::expm1_backward", mutates_args=(), schema="(Tensor A, Tensor gradient) -> Tensor"
)
_lean_expm1_backward = _operator(_expm1_backward_in_pieces)
_lean_expm1.register_fake(lambda A: torch.empty_like(A, memory_format=torch.contiguous_format))
_lean_expm1_backward.register_fake(lambda A, _: torch.empty_like(A, memory_format=torch.contiguous_format))
_lean_expm1.register_autograd(
    lambda ctx, gradient: _lean_expm1_backward(*ctx.saved_tensors, gradient),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)

OPERATORS: dict[str, Callable[..., Tensor]] = {
    "geolib::expm1": _expm1_in_pieces,
    "geolib::expm1_backward": _expm1_backward_in_pieces,
}
"""The operators that this module adds to PyTorch's, and what each is made of."""


def _piece(A: Tensor) -> int:
    """How many matrices to carry through all steps at once: about 256 KiB of them on a CPU, 64 MiB on a GPU."""
    limit = 2**26 if A.device.type == "cuda" else 2**18
    return max(1, limit // (A.element_size() * A.shape[-1] ** 2))


def exp_skew(A: Tensor) -> Tensor:
    """The exponential of skew matrices (..., n, n): rotations, in A's dtype.

    ValueError when A is not square, not skew or not finite.

    Notes
    -----
    Width 2 is R(a) in closed form, width 3 Rodrigues' formula; wider matrices take scaling, a Taylor polynomial and
    squaring of exp - I. Differentiable any number of times, at repeated eigenvalues too. The rounding error is about
    the largest |eigenvalue| times the dtype's unit: that of rounding A itself. Types narrower than float32 are computed
    in float32.

    Source: LR-A1, LR-B5, NT-1.

    >>> R = exp_skew(skew_matrix(torch.randn(28, dtype=torch.float64), 8))
    >>> torch.allclose(R.mT @ R, torch.eye(8, dtype=torch.float64)), R.det().round().item()
    (True, 1.0)
    """
    check_floating(A, "A")
    _check_skew(A, "A")
    X, n = A.to(angle_dtype(A)), A.shape[-1]
    with full_precision(A.device):
        if n <= 3:
            result = _closed_form(X)
        else:
            flat = X.reshape(-1, n, n)
            result = (_expm1(flat, _squarings(flat)) + torch.eye(n, dtype=X.dtype, device=X.device)).view(A.shape)
    return result.to(A.dtype)


def _closed_form(X: Tensor) -> Tensor:
    """exp of skew (..., n, n), n at most 3."""
    if X.shape[-1] == 1:
        return torch.ones_like(X)
    return rotation_matrix(X[..., 1, 0]) if X.shape[-1] == 2 else _rodrigues(X)


def _rodrigues(X: Tensor) -> Tensor:
    """I + sin(a)/a X + (1 - cos a)/a^2 X^2 for skew (..., 3, 3), a the length of the axis vector."""
    squared = X.square().sum((-1, -2)) / 2
    # Near zero the quotients come from their series in a^2: the square root has no derivative there.
    near = squared < 1e-2
    angle = torch.where(near, torch.ones_like(squared), squared).sqrt()
    small = torch.where(near, squared, torch.zeros_like(squared))
    first, second = torch.zeros_like(small), torch.zeros_like(small)
    for k in range(6, -1, -1):
        first = first * small + (-1) ** k / math.factorial(2 * k + 1)
        second = second * small + (-1) ** k / math.factorial(2 * k + 2)
    first = torch.where(near, first, angle.sin() / angle)[..., None, None]
    second = torch.where(near, second, 2 * (angle / 2).sin().square() / angle.square())[..., None, None]
    return torch.eye(3, dtype=X.dtype, device=X.device) + first * X + second * (X @ X)


def exp_isoclinic(A: Tensor) -> Tensor:
    """The exponential of skew (..., 4, 4) in closed form, as a product of two rotations that commute.

    A is the sum of its two isoclinic parts L and N, with L^2 = -l^2 I and N^2 = -n^2 I, and exp(A) = (cos l I +
    sin(l)/l L)(cos n I + sin(n)/n N): one turns all vectors by l, the other by n, to opposite hands.

    Source: LR-A1.

    >>> A = skew_matrix(torch.randn(6, dtype=torch.float64), 4)
    >>> torch.allclose(exp_isoclinic(A), torch.matrix_exp(A))
    True
    """
    left, right = isoclinic_parts(A)
    return _isoclinic_turn(left) @ _isoclinic_turn(right)


def isoclinic_parts(A: Tensor) -> tuple[Tensor, Tensor]:
    """The two commuting parts of skew (..., 4, 4), left and right: each squared is a multiple of the identity.

    The Hodge dual exchanges the entries (1,2) and (3,4), (1,3) and (4,2), (1,4) and (2,3); the left part equals its
    dual, the right one the negative of its dual. ValueError unless A is skew and 4x4.

    Source: LR-A1.

    >>> left, right = isoclinic_parts(skew_matrix(torch.tensor([2.0, 0.0, 0.0, 0.0, 0.0, 0.0]), 4))
    >>> upper_entries(left), upper_entries(right)
    (tensor([1., 0., 0., 0., 0., 1.]), tensor([ 1.,  0.,  0.,  0.,  0., -1.]))
    """
    check_floating(A, "A")
    _check_skew(A, "A")
    require(A.shape[-1] == 4, "A", f"shape {tuple(A.shape)}", "it must be (..., 4, 4)")
    entries = upper_entries(A)  # 12, 13, 14, 23, 24, 34
    dual = torch.stack([entries[..., 5], -entries[..., 4], entries[..., 3], entries[..., 2], -entries[..., 1],
                        entries[..., 0]], -1)  # fmt: skip
    return skew_matrix((entries + dual) / 2, 4), skew_matrix((entries - dual) / 2, 4)


def _isoclinic_turn(X: Tensor) -> Tensor:
    """exp(X) = cos l I + sin(l)/l X for X^2 = -l^2 I, (..., 4, 4)."""
    squared = X.square().sum((-1, -2)) / 4
    cosine, quotient = (part[..., None, None] for part in _cos_and_quotient(squared))
    return cosine * torch.eye(4, dtype=X.dtype, device=X.device) + quotient * X


def _cos_and_quotient(squared: Tensor) -> tuple[Tensor, Tensor]:
    """cos(l) and sin(l)/l from l^2; by their series near zero, where the square root has no derivative."""
    near = squared < 1e-2
    angle = torch.where(near, torch.ones_like(squared), squared).sqrt()
    small = torch.where(near, squared, torch.zeros_like(squared))
    cosine, quotient = torch.zeros_like(small), torch.zeros_like(small)
    for k in range(6, -1, -1):
        cosine = cosine * small + (-1) ** k / math.factorial(2 * k)
        quotient = quotient * small + (-1) ** k / math.factorial(2 * k + 1)
    return torch.where(near, cosine, angle.cos()), torch.where(near, quotient, angle.sin() / angle)


def exp_pade(A: Tensor, degree: int = 6, squarings: int = 0) -> Tensor:
    """The diagonal Pade approximant of exp(A / 2^squarings), squared again as often: a rotation at every degree.

    For skew A (..., n, n) the approximant's denominator is the transpose of its numerator, so the quotient is
    orthogonal up to rounding, however coarse it is. Degree 1 is Cayley's transform. ValueError for a degree below 1 or
    a negative number of squarings.

    Source: LR-A1.

    >>> A = skew_matrix(torch.randn(28, dtype=torch.float64), 8)
    >>> R = exp_pade(A, degree=2)
    >>> torch.allclose(R.mT @ R, torch.eye(8, dtype=torch.float64))
    True
    >>> torch.allclose(exp_pade(A, degree=6, squarings=4), torch.matrix_exp(A))
    True
    """
    check_floating(A, "A")
    _check_skew(A, "A")
    require(degree >= 1, "degree", degree, "at least 1")
    require(squarings >= 0, "squarings", squarings, "at least 0")
    X = A.to(angle_dtype(A)) * 0.5**squarings
    identity = torch.eye(A.shape[-1], dtype=X.dtype, device=A.device)
    with full_precision(A.device):
        numerator = identity * _pade(degree, degree)
        for k in range(degree - 1, -1, -1):
            numerator = X @ numerator + _pade(degree, k) * identity
        R = torch.linalg.solve(numerator.mT, numerator)
        for _ in range(squarings):
            R = R @ R
    return R.to(A.dtype)


def _pade(degree: int, k: int) -> float:
    """The coefficient of x^k in the numerator of exp's diagonal Pade approximant."""
    return math.comb(degree, k) * math.factorial(2 * degree - k) / math.factorial(2 * degree)


def cayley(A: Tensor) -> Tensor:
    """Cayley's transform (I - A/2)^-1 (I + A/2) of skew (..., n, n): a rotation whose planes turn by 2 atan(lambda/2).

    No plane reaches a half turn, so every rotation without the eigenvalue -1 has exactly one A; against exp(A) the
    angles are short by lambda^3 / 12 to leading order.

    Source: LR-A1.

    >>> quarter = cayley(skew_matrix(torch.tensor([-2.0]), 2))
    >>> torch.allclose(quarter, rotation_matrix(torch.tensor(math.pi / 2)), atol=1e-6)
    True
    """
    return exp_pade(A, degree=1)


def log_rotation(R: Tensor) -> Tensor:
    """The skew matrix of smallest angles whose exponential is R: the inverse of ``exp_skew`` below half a turn.

    R is (..., n, n); types narrower than float32 are computed in float32. ValueError when it is not a rotation, to
    within 1e-3 (rounded to bfloat16 it no longer is), or turns a plane by pi (to within 1e-3 rad).

    Notes
    -----
    Three square roots bring all angles below pi/8; each is the orthogonal polar factor of I + R, by Newton's iteration.
    Then Z = (R - I)(R + I)^-1 = tanh(A/2), and A = 2 artanh(Z) by its series. Differentiable.

    Source: LR-1 (what the Baker-Campbell-Hausdorff series is compared with).

    >>> A = skew_matrix(0.5 * torch.randn(6), 4)
    >>> torch.allclose(log_rotation(exp_skew(A)), A, atol=1e-5)
    True
    """
    check_floating(R, "R")
    _check_square(R, "R")
    if R.numel() == 0:
        return R
    narrow, R = R.dtype, R.to(angle_dtype(R))
    identity = torch.eye(R.shape[-1], dtype=R.dtype, device=R.device)
    with torch.no_grad():
        defect = float((R.mT @ R - identity).abs().max())
        require(defect < 1e-3, "R", f"|R^T R - I| up to {defect:.3g}", "it must be orthogonal")
        # |1 + e^(ia)| = 2 cos(a/2); a reflection has the eigenvalue -1 as well.
        gap = float(torch.linalg.svdvals(R + identity).min())
        require(
            gap > 1e-3, "R", f"an eigenvalue within {gap:.1g} of -1", "it must be a rotation, no plane turning by pi"
        )
    root = R
    for _ in range(3):
        root = _polar(identity + root)
    Z = torch.linalg.solve(identity + root, root - identity)
    Z = (Z - Z.mT) / 2
    square, term, total = Z @ Z, Z, Z
    for k in range(3, 25, 2):
        term = term @ square
        total = total + term / k
    return (16 * total).to(narrow)


def _polar(M: Tensor) -> Tensor:
    """The orthogonal factor of M's polar decomposition, by Newton's iteration."""
    for _ in range(15):
        M = (M + torch.linalg.inv(M).mT) / 2
    return M


# Spectra ------------------------------------------------------------------------------------------------------------


def spectrum(A: Tensor) -> Tensor:
    """The angles lambda_j >= 0 of skew (..., n, n), whose eigenvalues are the pairs +-i lambda_j.

    (..., n // 2) in radians, largest first; an odd n leaves one more eigenvalue 0. The singular values of A are the
    same numbers, each twice.

    Source: NT-1, NT-2.

    >>> spectrum(skew_matrix(torch.tensor([3.0, 0.0, 0.0, 0.0, 0.0, 1.0]), 4))
    tensor([3., 1.])
    """
    _check_skew(A, "A")
    # iA is Hermitian, its eigenvalues are -lambda and lambda.
    return torch.linalg.eigvalsh(1j * A).flip(-1)[..., : A.shape[-1] // 2].clamp(min=0)


def small_rotation_error(A: Tensor) -> Tensor:
    """The error of exp(A) by I + A, in the spectral norm: max_j |e^(i lambda_j) - 1 - i lambda_j|, below lambda^2 / 2.

    (...) for skew A (..., n, n).

    Source: NT-3.

    >>> error = small_rotation_error(skew_matrix(torch.tensor([0.1]), 2)).item()
    >>> 0.004 < error < 0.1**2 / 2
    True
    """
    top = spectrum(A)[..., 0]
    # The error grows with lambda: its square has the derivative 2 lambda (1 - cos lambda) >= 0.
    return torch.hypot(2 * (top / 2).sin().square(), top - top.sin())


def plane_weights(q: Tensor, A: Tensor) -> tuple[Tensor, Tensor]:
    """How a vector q (..., n) splits over the planes that a skew generator A (..., n, n) turns.

    q^T exp(t A) q = sum_j |c_j|^2 cos(lambda_j t): as two tokens move apart by t, a plane with a large angle lambda_j
    loses its likeness over short distances, a plane with a small one over long distances. Both results are (..., n):
    the angles with their signs, ascending, and |c_j|^2, which sum to |q|^2.

    Source: NT-4.

    >>> angles, weights = plane_weights(torch.tensor([3.0, 4.0]), skew_matrix(torch.tensor([2.0]), 2))
    >>> angles, weights
    (tensor([-2.,  2.]), tensor([12.5000, 12.5000]))
    """
    _check_skew(A, "A")
    angles, vectors = torch.linalg.eigh(1j * A)
    components = (vectors.mH @ q.to(vectors.dtype)[..., None])[..., 0]
    return angles, components.abs().square()


def decorrelation_length(angles: Tensor) -> Tensor:
    """The distance at which a plane's part of the score first reaches zero: pi / (2 |lambda|).

    Angles are in radians per unit of position, the result in units of position; infinite for a plane that does not
    turn. Large angles mean short range.

    Source: NT-4.

    >>> decorrelation_length(torch.tensor([math.pi, 0.0]))
    tensor([0.5000,    inf])
    """
    return math.pi / (2 * angles.abs())


# How relative the scores are ----------------------------------------------------------------------------------------


def relativity_defect(U: Tensor, V: Tensor) -> Tensor:
    """exp(V)^-1 exp(U) - exp(U - V): what non-commuting generators add to a purely relative rotation.

    U and V are skew, (..., n, n). It is -[V, U] / 2 to second order, and zero when U and V commute.

    Source: LR-1, LR-2.

    >>> U = skew_matrix(torch.randn(6, dtype=torch.float64), 4)
    >>> torch.allclose(relativity_defect(U, 3 * U), torch.zeros(4, 4, dtype=torch.float64))
    True
    """
    U, V = as_widest(U, V)
    return exp_skew(V).mT @ exp_skew(U) - exp_skew(U - V)


def first_order_defect(V: Tensor, change: Tensor) -> Tensor:
    """The derivative of ``relativity_defect(V + t change, V)`` at t = 0, for V of any size.

    [(1 - e^(-ad V)) / ad V - 1] change, with ad V = [V, .]: to leading order -[V, change] / 2 for small V, but as large
    as the change itself once V is large. V and change are skew, (..., n, n).

    Source: LR-1.

    >>> V, change = skew_matrix(torch.randn(2, 6, dtype=torch.float64), 4)
    >>> short = 1e-4 * V
    >>> torch.allclose(first_order_defect(short, change), -commutator(short, change) / 2, atol=1e-6)
    True
    """
    for matrix, argument in ((V, "V"), (change, "change")):
        check_floating(matrix, argument)
        _check_skew(matrix, argument)
    n = V.shape[-1]
    # exp of this block triangle holds exp(V) and, above it, the derivative of exp at V along the change.
    both = torch.cat([torch.cat([V, change], -1), torch.cat([torch.zeros_like(V), V], -1)], -2)
    E = torch.matrix_exp(both)
    return E[..., :n, :n].mT @ E[..., :n, n:] - change


def shift_deviation(generators: Tensor, p: Tensor, q: Tensor, shift: Tensor) -> Tensor:
    """How much R(p)^T R(q) changes when both positions (axes,) move alike: the relative Frobenius distance.

    (...) for skew generators (..., axes, b, b): 0 for an encoding of relative positions alone, sqrt(2) on average for
    unrelated rotations.

    Source: LR-SHIFT.

    >>> turns = skew_matrix(torch.randn(2, 1), 2)  # width 2: rotations of a plane commute
    >>> shift_deviation(turns, *torch.randn(3, 2)).item() < 1e-5
    True
    """
    R = position_rotations(torch.stack([p, q, p + shift, q + shift]), generators)
    before, after = R[0].mT @ R[1], R[2].mT @ R[3]
    return torch.linalg.matrix_norm(after - before) / torch.linalg.matrix_norm(before)


def initial_top_angle(width: int, high: float = 2 * math.pi) -> float:
    """The largest angle of the mean generator when entries are drawn uniformly from [0, high), in radians.

    The mean is high/2 above the diagonal; its angles are high/2 cot((2j - 1) pi / 2b), the first of which is pi
    cot(pi / 2b) for high = 2 pi.

    Source: LR-INIT.

    >>> round(initial_top_angle(64), 1)
    128.0
    """
    require(width >= 2, "width", width, "a block has at least 2 rows")
    check_positive(high, "high")
    return high / 2 / math.tan(math.pi / (2 * width))


def uniform_entries(*shape: int, high: float = 2 * math.pi, generator: torch.Generator | None = None) -> Tensor:
    """Entries of generators as LieRE draws them: float32, uniform on [0, high), 2 pi in the paper.

    Source: LR-B5.

    >>> uniform_entries(2, 5, 28, high=1.0).shape
    torch.Size([2, 5, 28])
    """
    check_positive(high, "high")
    return high * torch.rand(*shape, generator=generator)


def mixed_frequencies(frequencies: Tensor, *lead: int, generator: torch.Generator | None = None) -> Tensor:
    """Frequencies turned by one random rotation of the axes for each head: RoPE-Mixed's start.

    Parameters
    ----------
    frequencies : Tensor, (pairs, axes)
        ``axial_frequencies(head_dim, axes, base=10)``: then the pairs of axis 0 look along one random direction, those
        of axis 1 at a right angle to it.
    *lead : int
        Layers and heads, say: each draws its own rotation.

    Returns
    -------
    Tensor, (*lead, pairs, axes)
        Radians per unit of position, in the dtype of ``frequencies``.

    Source: LR-blk (block width 2).

    >>> turned = mixed_frequencies(torch.eye(2), 3)
    >>> torch.allclose(turned.norm(dim=-1), torch.ones(3, 2))
    True
    """
    axes = frequencies.shape[-1]
    # A Gaussian matrix has no preferred direction, so its orthogonal factor, signs fixed, has none either.
    Q, upper = torch.linalg.qr(torch.randn(*lead, axes, axes, generator=generator, dtype=torch.float64))
    Q = Q * upper.diagonal(dim1=-2, dim2=-1).sign()[..., None, :]
    turn = torch.cat([Q[..., :1] * Q.det()[..., None, None], Q[..., 1:]], -1)
    return frequencies @ turn.to(frequencies)


# Rotations at positions ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rays:
    """Positions as whole multiples of a few: p = k u, and R(ku) = R(u)^k costs one product instead of an exponential.

    ``stages`` are pairs of index vectors: stage by stage, the products of the rotations they point to are appended to
    the rotations at ``primitives``; ``place`` says which one each token takes.

    >>> rays = Rays(torch.tensor([[1.0]]), ((torch.tensor([0]), torch.tensor([0])),), torch.tensor([1]))
    >>> A = skew_matrix(torch.randn(1, 6, dtype=torch.float64), 4)
    >>> torch.allclose(position_rotations(torch.tensor([[2.0]]), A, rays)[0], exp_skew(2 * A[0]))
    True
    """

    primitives: Tensor
    stages: tuple[tuple[Tensor, Tensor], ...]
    place: Tensor


def _whole_multiples(positions: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """(whole numbers, step of each axis) with positions = numbers * step, or None where there is no such step."""
    size = np.where(positions == 0, np.inf, np.abs(positions)).min(0, initial=np.inf)
    for step in (np.ones_like(size), np.where(np.isfinite(size), size, 1.0)):
        ratio = positions / step
        whole = np.rint(ratio)
        # Positions in float32 are rounded; beyond a few units in the last place they are not on the ray.
        if np.all(np.abs(ratio - whole) <= 2.0**-22 * np.abs(ratio)) and np.all(np.abs(whole) < 2**31):
            return whole.astype(np.int64), step
    return None


@torch.inference_mode(False)  # what comes out may serve a pass with gradients later
def find_rays(positions: Tensor) -> Rays:
    """Group positions (tokens, axes) by the rays through the origin on which they lie.

    Only positions on a regular grid through the origin repeat along rays; where grouping would cost more than it saves,
    each token has a ray of its own. ValueError when positions are not (tokens, axes) or not finite.

    Source: LR-A1.

    >>> grid = torch.cartesian_prod(torch.arange(8.0), torch.arange(8.0))
    >>> len(find_rays(grid).primitives)  # 64 cells on 37 rays, and the origin
    38
    """
    require(positions.dim() == 2, "positions", f"shape {tuple(positions.shape)}", "it must be (tokens, axes)")
    values = positions.detach().cpu().double().numpy()
    _check_finite(positions.detach(), "positions")
    device, tokens = positions.device, len(values)
    found = _whole_multiples(values) if tokens else None
    if found is None:
        return _alone(positions)
    whole, step = found
    multiple = np.maximum(np.gcd.reduce(whole, axis=1), 1)
    rays, owner = np.unique(whole // multiple[:, None], axis=0, return_inverse=True)
    # Short rays first: pieces of similar size need the same number of squarings.
    order = np.argsort(np.square(rays * step).sum(1), kind="stable")
    rays, owner = rays[order], np.argsort(order)[owner.reshape(-1)]
    longest = np.zeros(len(rays), dtype=np.int64)
    np.maximum.at(longest, owner, multiple)
    if longest.sum() > tokens:
        return _alone(positions)
    slot, stages, reach = {(ray, 1): ray for ray in range(len(rays))}, [], 1
    while reach < longest.max():
        # All powers from reach + 1 to 2 reach in one product: R^k = R^reach R^(k - reach).
        new = [(r, k) for r in range(len(rays)) for k in range(reach + 1, min(2 * reach, longest[r]) + 1)]
        pair = ([slot[r, reach] for r, _ in new], [slot[r, k - reach] for r, k in new])
        stages.append(tuple(torch.tensor(side, device=device) for side in pair))
        slot.update({key: len(slot) + i for i, key in enumerate(new)})
        reach *= 2
    place = torch.tensor([slot[r, k] for r, k in zip(owner.tolist(), multiple.tolist())], device=device)
    primitives = torch.from_numpy(rays * step).to(device, angle_dtype(positions))
    return Rays(primitives, tuple((left, right) for left, right in stages), place)


def _alone(positions: Tensor) -> Rays:
    """One ray a token."""
    return Rays(positions, (), torch.arange(len(positions), device=positions.device))


def position_rotations(positions: Tensor, generators: Tensor, rays: Rays | None = None) -> Tensor:
    """The rotation of every token under every generator: R(p) = exp(sum_i p_i A_i), in float32 or float64.

    Parameters
    ----------
    positions : Tensor, (tokens, axes)
    generators : Tensor, (..., axes, b, b)
        Skew matrices: those of all layers, heads and blocks go through one batch. ValueError on a CPU when they are not
        skew, or when they or the positions are not finite; elsewhere nothing is read.
    rays : Rays or None
        How positions repeat. When None it is looked up on a CPU, for positions without a gradient.

    Returns
    -------
    Tensor, (tokens, ..., b, b)

    Notes
    -----
    Memory for the backward pass is one matrix a point of a ray and generator, not one for each step of the exponential;
    differentiable once. On a ray the k-th power stands for exp(k u): for positions that are a grid's in float32 the two
    differ by the rounding of p. On a GPU the squarings are as many as serve up to 14,000 rad; beyond, it is NaN.

    Source: LR-A1, LR-B5, LR-3D.

    >>> A = skew_matrix(torch.randn(2, 6), 4)  # two axes
    >>> R = position_rotations(torch.tensor([[0.0, 0.0], [1.0, 2.0]]), A)
    >>> torch.equal(R[0], torch.eye(4)), torch.allclose(R[1], exp_skew(A[0] + 2 * A[1]), atol=1e-5)
    (True, True)
    """
    _check_square(generators, "generators")
    require(generators.dim() >= 3, "generators", f"shape {tuple(generators.shape)}", "it must be (..., axes, b, b)")
    check_positions(positions, generators.shape[-3])
    if _readable(generators):
        _check_skew(generators, "generators")
        _check_finite(positions, "positions")
    return placed_rotations(positions, generators, rays)


def placed_rotations(positions: Tensor, generators: Tensor, rays: Rays | None = None) -> Tensor:
    """As ``position_rotations``, for generators that are skew as they are made: nothing is checked, no number is read.

    Source: LR-A1.

    >>> A = skew_matrix(torch.randn(2, 6), 4)
    >>> placed_rotations(torch.zeros(3, 2), A).shape
    torch.Size([3, 4, 4])
    """
    b, lead = generators.shape[-1], generators.shape[:-3]
    if b <= 3:
        return _closed_form(_algebra_element(positions, generators))
    if rays is None:
        # Rays are made of numbers: a gradient in the positions would end there.
        alone = positions.requires_grad or not _readable(positions)
        places = positions.to(angle_dtype(positions, generators))
        rays = _alone(places) if alone else find_rays(places)
    with full_precision(generators.device):
        elements = _algebra_element(rays.primitives, generators).reshape(-1, b, b)
        _refuse_tangents(elements)
        E = _lean_expm1(elements).view(len(rays.primitives), math.prod(lead), b, b)
        R, _ = _OnRays.apply(E, rays.place, *sum(rays.stages, ()))
        return R.view(len(rays.place), *lead, b, b)


def _refuse_tangents(A: Tensor) -> None:
    """An operator loses the tangents of forward-mode differentiation without a word."""
    if not torch.compiler.is_compiling() and forward_ad.unpack_dual(A).tangent is not None:
        raise NotImplementedError(
            "rotations of positions have derivatives in reverse mode only; in forward mode exp_skew has one"
        )


def _algebra_element(positions: Tensor, generators: Tensor) -> Tensor:
    """sum_i p_i A_i, (tokens, ..., b, b), in float32 or float64."""
    dtype = angle_dtype(positions, generators)
    with full_precision(generators.device):
        return torch.tensordot(positions.to(dtype), generators.to(dtype), dims=([1], [generators.dim() - 3]))


class _OnRays(torch.autograd.Function):
    """Rotations of all tokens, (tokens, n, b, b), and of all slots, from exp - I at the primitives.

    ``sides`` are left, right, left, ... of the stages. By hand, so that all slots share one tensor, and their gradients
    another: copies would take longer than products.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(E: Tensor, place: Tensor, *sides: Tensor) -> tuple[Tensor, Tensor]:
        known = len(E)
        R = E.new_empty(known + sum(map(len, sides[::2])), *E.shape[1:])
        R[:known] = E
        R[:known].diagonal(dim1=-2, dim2=-1).add_(1)
        for left, right in zip(sides[::2], sides[1::2]):
            R[known : known + len(left)] = R.index_select(0, left) @ R.index_select(0, right)
            known += len(left)
        return R.index_select(0, place), R

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
        E, *indices = inputs
        ctx.primitives = len(E)
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(output[1], *indices)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        R, place, *sides = ctx.saved_tensors
        if gradient is None:
            return (None,) * (2 + len(sides))
        with full_precision(R.device):
            total = torch.zeros_like(R).index_add_(0, place, gradient)
            known = len(R)
            for left, right in zip(sides[-2::-2], sides[::-2]):
                known -= len(left)
                g = total[known : known + len(left)]
                total.index_add_(0, left, g @ R.index_select(0, right).mT)
                total.index_add_(0, right, R.index_select(0, left).mT @ g)
        return total[: ctx.primitives], None, *(None for _ in sides)


def turn_blocks(x: Tensor, rotations: Tensor) -> Tensor:
    """Turn each block of features by its own rotation.

    x is (batch, heads, tokens, blocks * b) and keeps shape and dtype; rotations are ([batch,] heads or 1, tokens,
    blocks, b, b), cast to that dtype.

    Source: LR-A1, LR-B5.

    >>> quarter = exp_skew(skew_matrix(torch.tensor([math.pi / 2]), 2))
    >>> turn_blocks(torch.tensor([[[[1.0, 0.0]]]]), quarter.view(1, 1, 1, 2, 2)).round()
    tensor([[[[-0., -1.]]]])
    """
    blocks, b = rotations.shape[-3], rotations.shape[-1]
    came = tuple(x.shape)
    holds = x.dim() == 4 and x.shape[-1] == blocks * b
    require(holds, "x", f"shape {came}", f"it must be (batch, heads, tokens, {blocks * b})")
    split, turn = x.unflatten(-1, (blocks, b)), rotations.to(x.dtype)
    if turn.dim() == 6:
        y = torch.einsum("zhtnj,zhtnij->zhtni", split, turn)
    elif turn.shape[0] == 1:
        # Heads that share their rotations stand side by side with the batch in one product.
        y = torch.einsum("zhtnj,tnij->zhtni", split, turn[0])
    else:
        y = torch.einsum("zhtnj,htnij->zhtni", split, turn)
    return y.flatten(-2).to(x.dtype)
