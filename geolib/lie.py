"""Rotations made by exponentials: skew matrices, their exp and log, and how far order matters.

Conventions
-----------
A *generator* is a real skew matrix, A^T = -A; its exponential is a rotation. Generators of block width b act on b
neighbouring features each: a head of dimension d has d/b blocks, and b must divide d. A block is stored as the
b(b-1)/2 entries of its strict upper triangle, row by row; the lower triangle is their negative. For b = 2 the entry u
is the matrix [[0, u], [-u, 0]], and exp of it is R(-u): it turns clockwise by u.

A token at position p (any number of axes) is turned by R(p) = exp(sum_i p_i A_i), with one generator A_i for each axis.

The exponential itself, alone and at positions, stands in ``geolib.exponential``; its names are importable from here.
"""

import math

import torch
from torch import Tensor

from geolib._checks import (
    angle_dtype,
    as_widest,
    check_floating,
    check_positive,
    check_skew,
    check_square,
    require,
    wide,
)
from geolib._precision import full_precision
from geolib.exponential import OPERATORS as OPERATORS
from geolib.exponential import exp_skew as exp_skew
from geolib.exponential import find_rays as find_rays
from geolib.exponential import placed_rotations as placed_rotations
from geolib.exponential import position_rotations as position_rotations
from geolib.exponential import sine_quotients
from geolib.exponential import turn_blocks as turn_blocks

# The algebra --------------------------------------------------------------------------------------------------------


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

    >>> skew_matrix(torch.tensor([1.0, 2.0, 3.0]), width=3).tolist()
    [[0.0, 1.0, 2.0], [-1.0, 0.0, 3.0], [-2.0, -3.0, 0.0]]
    """
    count = entry_count(width)
    holds = entries.dim() >= 1 and entries.shape[-1] == count
    require(holds, "entries", entries.shape, f"its last dimension must be {count} for width {width}")
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
    check_square(A, "A")
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


# More exponentials, and log ----------------------------------------------------------------------------------------


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
    with full_precision(A.device):
        return _isoclinic_turn(left) @ _isoclinic_turn(right)


def isoclinic_parts(A: Tensor) -> tuple[Tensor, Tensor]:
    """The two commuting parts of skew (..., 4, 4), left and right: each squared is a multiple of the identity.

    The left part equals its Hodge dual, which exchanges the entries (1,2) and (3,4), (1,3) and (4,2), (1,4) and (2,3),
    the right one the negative of its own. ValueError unless A is skew and 4x4.
    Source: LR-A1.

    >>> left, right = isoclinic_parts(skew_matrix(torch.tensor([2.0, 0.0, 0.0, 0.0, 0.0, 0.0]), 4))
    >>> upper_entries(left), upper_entries(right)
    (tensor([1., 0., 0., 0., 0., 1.]), tensor([ 1.,  0.,  0.,  0.,  0., -1.]))
    """
    check_floating(A, "A")
    check_skew(A, "A")
    require(A.shape[-1] == 4, "A", A.shape, "it must be (..., 4, 4)")
    entries = upper_entries(A)  # 12, 13, 14, 23, 24, 34
    dual = entries.flip(-1) * torch.tensor([1.0, -1, 1, 1, -1, 1], dtype=A.dtype, device=A.device)
    return skew_matrix((entries + dual) / 2, 4), skew_matrix((entries - dual) / 2, 4)


def _isoclinic_turn(X: Tensor) -> Tensor:
    """exp(X) = cos l I + sin(l)/l X for X^2 = -l^2 I, (..., 4, 4)."""
    squared = X.square().sum((-1, -2))[..., None, None] / 4
    quotient, half = sine_quotients(squared)
    cosine = 1 - squared / 2 * half.square()
    return cosine * torch.eye(4, dtype=X.dtype, device=X.device) + quotient * X


def exp_pade(A: Tensor, degree: int = 6, squarings: int = 0) -> Tensor:
    """The diagonal Pade approximant of exp(A / 2^squarings), squared again as often: a rotation at every degree.

    For skew A (..., n, n) the approximant's denominator is the transpose of its numerator, so the quotient is
    orthogonal up to rounding, however coarse it is. Degree 1 is Cayley's transform. ValueError for a degree below 1 or
    a negative number of squarings.
    Source: LR-A1.

    >>> R = exp_pade(skew_matrix(torch.randn(28, dtype=torch.float64), 8), degree=2)
    >>> torch.allclose(R.mT @ R, torch.eye(8, dtype=torch.float64))
    True
    """
    check_floating(A, "A")
    check_skew(A, "A")
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

    >>> cayley(skew_matrix(torch.tensor([-2.0]), 2)).tolist()  # a quarter turn
    [[0.0, -1.0], [1.0, 0.0]]
    """
    return exp_pade(A, degree=1)


def log_rotation(R: Tensor) -> Tensor:
    """The skew matrix of smallest angles whose exponential is R: the inverse of ``exp_skew`` below half a turn.

    R is (..., n, n); types narrower than float32 are computed in float32. ValueError when it is not a rotation, to
    within 1e-3 (rounded to bfloat16 it no longer is), or turns a plane by pi (to within 1e-3 rad). Differentiable.
    Source: LR-1 (what the Baker-Campbell-Hausdorff series is compared with).

    >>> A = skew_matrix(0.5 * torch.randn(6), 4)
    >>> torch.allclose(log_rotation(exp_skew(A)), A, atol=1e-5)
    True
    """
    check_floating(R, "R")
    check_square(R, "R")
    if R.numel() == 0:
        return R
    with full_precision(R.device):
        return _log_rotation(R.to(angle_dtype(R))).to(R.dtype)


def _log_rotation(R: Tensor) -> Tensor:
    """``log_rotation`` of a matrix in float32 or float64."""
    identity = torch.eye(R.shape[-1], dtype=R.dtype, device=R.device)
    with torch.no_grad():
        defect = float((R.mT @ R - identity).abs().max())
        require(defect < 1e-3, "R", f"|R^T R - I| up to {defect:.3g}", "it must be orthogonal")
        # |1 + e^(ia)| = 2 cos(a/2); a reflection has the eigenvalue -1 as well.
        gap = float(torch.linalg.svdvals(R + identity).min())
        allowed = "it must be a rotation, no plane turning by pi"
        require(gap > 1e-3, "R", f"an eigenvalue within {gap:.1g} of -1", allowed)
    root = R
    for _ in range(3):  # square roots, the orthogonal polar factors of I + R: then all angles are below pi/8
        root = identity + root
        for _ in range(15):  # Newton's iteration
            root = (root + torch.linalg.inv(root).mT) / 2
    # Z = tanh(A/2), and A = 2 artanh(Z) by its series.
    Z = torch.linalg.solve(identity + root, root - identity)
    Z = (Z - Z.mT) / 2
    square, term, total = Z @ Z, Z, Z
    for k in range(3, 25, 2):
        term = term @ square
        total = total + term / k
    return 16 * total


# Spectra ------------------------------------------------------------------------------------------------------------


def spectrum(A: Tensor) -> Tensor:
    """The angles lambda_j >= 0 of skew (..., n, n), whose eigenvalues are the pairs +-i lambda_j.

    (..., n // 2) in radians, largest first; an odd n leaves one more eigenvalue 0. The singular values of A are the
    same numbers, each twice.
    Source: NT-1, NT-2.

    >>> spectrum(skew_matrix(torch.tensor([3.0, 0.0, 0.0, 0.0, 0.0, 1.0]), 4))
    tensor([3., 1.])
    """
    check_skew(A, "A")
    # iA is Hermitian, its eigenvalues are -lambda and lambda.
    return torch.linalg.eigvalsh(1j * A).flip(-1)[..., : A.shape[-1] // 2].clamp(min=0)


def small_rotation_error(A: Tensor) -> Tensor:
    """The error of exp(A) by I + A, in the spectral norm: max_j |e^(i lambda_j) - 1 - i lambda_j|, below lambda^2 / 2.

    (...) for skew A (..., n, n).
    Source: NT-3.

    >>> round(small_rotation_error(skew_matrix(torch.tensor([0.1]), 2)).item(), 4)  # 0.1^2 / 2
    0.005
    """
    angle = spectrum(A)[..., 0]
    top = torch.where(angle > 0, angle, 1.0)  # at 0 the derivative of hypot is NaN
    # The error grows with lambda: its square has the derivative 2 lambda (1 - cos lambda) >= 0.
    return torch.where(angle > 0, torch.hypot(2 * (top / 2).sin().square(), top - top.sin()), 0.0 * angle)


def plane_weights(q: Tensor, A: Tensor) -> tuple[Tensor, Tensor]:
    """How a vector q (..., n) splits over the planes that a skew generator A (..., n, n) turns.

    q^T exp(t A) q = sum_j |c_j|^2 cos(lambda_j t): as two tokens move apart by t, a plane with a large angle lambda_j
    loses its likeness over short distances. Both results are (..., n): the angles with their signs, ascending, and
    |c_j|^2, which sum to |q|^2.
    Source: NT-4.

    >>> plane_weights(torch.tensor([3.0, 4.0]), skew_matrix(torch.tensor([2.0]), 2))
    (tensor([-2.,  2.]), tensor([12.5000, 12.5000]))
    """
    check_skew(A, "A")
    q, A = as_widest(q, A)
    angles, vectors = torch.linalg.eigh(1j * A)
    components = (vectors.mH @ q.to(vectors.dtype)[..., None])[..., 0]
    return angles, components.abs().square()


def decorrelation_length(angles: Tensor) -> Tensor:
    """The distance at which a plane's part of the score first reaches zero: pi / (2 |lambda|).

    Angles are in radians per unit of position, the result in units of position, infinite where nothing turns.
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
    (U, V), dtype = map(wide, (U, V)), torch.promote_types(U.dtype, V.dtype)  # it cancels: the result is of U V's size
    return (exp_skew(V).mT @ exp_skew(U) - exp_skew(U - V)).to(dtype)


def first_order_defect(V: Tensor, change: Tensor) -> Tensor:
    """The derivative of ``relativity_defect(V + t change, V)`` at t = 0, for V of any size.

    [(1 - e^(-ad V)) / ad V - 1] change, with ad V = [V, .]: to leading order -[V, change] / 2 for small V, but as large
    as the change itself once V is large. V and change are skew, (..., n, n).
    Source: LR-1.

    >>> V, change = torch.tensor([[1e-4], [1.0]]).unsqueeze(-1) * skew_matrix(torch.randn(2, 6), 4)
    >>> torch.allclose(first_order_defect(V, change), -commutator(V, change) / 2, atol=1e-6)
    True
    """
    for matrix, argument in ((V, "V"), (change, "change")):
        check_floating(matrix, argument)
        check_skew(matrix, argument)
    (V, change), n, dtype = map(wide, (V, change)), V.shape[-1], torch.promote_types(V.dtype, change.dtype)
    # exp of this block triangle holds exp(V) and, above it, the derivative of exp at V along the change.
    both = torch.cat([torch.cat([V, change], -1), torch.cat([torch.zeros_like(V), V], -1)], -2)
    E = torch.matrix_exp(both)
    return (E[..., :n, :n].mT @ E[..., :n, n:] - change).to(dtype)


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
    with full_precision(R.device):
        before, after = R[0].mT @ R[1], R[2].mT @ R[3]
    return torch.linalg.matrix_norm(after - before) / torch.linalg.matrix_norm(before)


def initial_top_angle(width: int, high: float = 2 * math.pi) -> float:
    """The largest angle of the mean generator when entries are drawn uniformly from [0, high), in radians.

    The mean is high/2 above the diagonal; its angles are high/2 cot((2j - 1) pi / 2b).
    Source: LR-INIT.

    >>> round(initial_top_angle(64), 1)
    128.0
    """
    require(width >= 2, "width", width, "a block has at least 2 rows")
    check_positive(high, "high")
    return high / 2 / math.tan(math.pi / (2 * width))


def uniform_entries(*shape: int, high: float = 2 * math.pi, generator: torch.Generator | None = None) -> Tensor:
    """Entries of generators as LieRE draws them: uniform on [0, high), 2 pi in the paper, in the default dtype.
    Source: LR-B5.

    >>> uniform_entries(2, 5, 28, high=1.0).shape
    torch.Size([2, 5, 28])
    """
    check_positive(high, "high")
    return high * torch.rand(*shape, generator=generator)


def mixed_frequencies(frequencies: Tensor, *lead: int, generator: torch.Generator | None = None) -> Tensor:
    """Frequencies turned by one random rotation of the axes for each head: RoPE-Mixed's start.

    From frequencies (pairs, axes), those of ``axial_frequencies(head_dim, axes, base=10)``, come (*lead, pairs, axes)
    in the same dtype, radians per unit of position; ``lead`` are layers and heads, say, and each draws its own
    rotation. The pairs of axis 0 then look along one random direction, those of axis 1 at a right angle to it.
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
    with full_precision(frequencies.device):
        return frequencies @ turn.to(frequencies)
