"""Symmetric powers of a vector space: the embedding, its dimension, and the maps that act on it.

Conventions
-----------
The p-th symmetric power Sym^p of R^d has one coordinate for each monomial of degree p in d variables, in the order of
``itertools.combinations_with_replacement(range(d), p)``: (0, 0), (0, 1), ..., (0, d-1), (1, 1), ... at p = 2. The
coordinate of the monomial with exponents a is sqrt(p! / (a_1! ... a_d!)) v^a. With this weight on both sides the inner
product of two embeddings is (v . w)^p, and the same coordinates are those of Sym^p as a subspace of the tensor power,
in an orthonormal basis. A map P of R^d therefore acts on them by a matrix, its *lift*, orthogonal when P is.

Whole numbers are promoted to the default float dtype: roots of multinomials are none. Where a matrix meets a point, the
wider float dtype decides. Index tables are made once for each (d, p) and device and kept for the last few pairs used.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from geolib._checks import as_floating, check_last, require
from geolib._compile import kept

# Sizes --------------------------------------------------------------------------------------------------------------


def dimension(dim: int, power: int) -> int:
    """The dimension of Sym^p of R^d: binom(d + p - 1, p).
    Source: CS-k.

    >>> dimension(64, 2), dimension(64, 4)
    (2080, 766480)
    """
    _check_sizes(dim, power)
    return math.comb(dim + power - 1, power)


def state_numbers(dim: int, power: int, value_dim: int | None = None) -> int:
    """How many numbers one head's recurrent state holds: S and Z together, (value_dim + 1) D; values have d features.
    Source: CS-size, CS-rec.

    >>> state_numbers(64, 2)
    135200
    """
    return ((dim if value_dim is None else value_dim) + 1) * dimension(dim, power)


def state_bytes(dim: int, power: int, layers: int, heads: int, bytes_per_number: int = 2) -> int:
    """The bytes of a model's recurrent state for one sequence; heads are counted in one layer, bfloat16 has 2 bytes.
    Source: CS-size.

    >>> state_bytes(64, 2, layers=12, heads=12)
    38937600
    """
    for name, came in (("layers", layers), ("heads", heads), ("bytes_per_number", bytes_per_number)):
        require(came >= 1, name, came, "it must be at least 1")
    return layers * heads * state_numbers(dim, power) * bytes_per_number


def direction_moment(dim: int, power: int) -> float:
    """The mean of (u . v)^t over directions u, for a unit vector v: 1 3 ... (t-1) / (d (d+2) ... (d+t-2)), 0 for odd t.

    So much weight does a random key get from the power t of its score, in the mean; N keys drown one of weight 1 near
    N = 1 / moment.
    Source: CS-k.

    >>> direction_moment(64, 2) == 1 / 64, round(1 / direction_moment(64, 4))
    (True, 1408)
    """
    _check_sizes(dim, power)
    if power % 2:
        return 0.0
    return math.prod(range(1, power, 2)) / math.prod(range(dim, dim + power, 2))


def tensor_determinant_exponent(dim: int, power: int) -> int:
    """The exponent e in det(P x ... x P) = det(P)^e on the tensor power: p d^(p-1).
    Source: CS-P3 (the paper prints p d).

    >>> tensor_determinant_exponent(3, 2), tensor_determinant_exponent(3, 4)
    (6, 108)
    """
    _check_sizes(dim, power)
    return power * dim ** (power - 1)


def lift_determinant_exponent(dim: int, power: int) -> int:
    """The exponent e in det(lift(P)) = det(P)^e on Sym^p: binom(d + p - 1, d), how often each coordinate occurs.
    Source: CS-P3.

    >>> lift_determinant_exponent(3, 2), round(float(lift(torch.diag(torch.tensor([1.0, 1.0, 2.0])), 2).det()))
    (4, 16)
    """
    _check_sizes(dim, power)
    return math.comb(dim + power - 1, dim)


def _check_sizes(dim: int, power: int) -> None:
    for name, came in (("dim", dim), ("power", power)):
        holds = isinstance(came, int) and not isinstance(came, bool) and came >= 1
        require(holds, name, came, "it must be a whole number of at least 1")


# Tables -------------------------------------------------------------------------------------------------------------


class Monomials(NamedTuple):
    """The monomials of degree p in d variables, in order, and how each is made from one of degree p - 1.

    ``first`` is the smallest variable of each (D,), ``rest`` where what is left without it stands among the monomials
    of degree p - 1 (D,), ``weight`` the multinomial coefficient p! / (a_1! ... a_d!), (D,) in float64. ``starts`` says
    for each variable i where the monomials of degree p - 1 in the variables i, i+1, ... begin: they end the list, so
    the monomials of degree p that begin with i are x_i times a tail.

    >>> table = monomials(2, 2)  # x^2, x y, y^2
    >>> table.first.tolist(), table.rest.tolist(), table.weight.tolist(), table.starts
    ([0, 0, 1], [0, 1, 1], [1.0, 2.0, 1.0], (0, 1))
    """

    first: Tensor
    rest: Tensor
    weight: Tensor
    starts: tuple[int, ...]


@kept(32)
def monomials(dim: int, power: int, device: torch.device = torch.device("cpu")) -> Monomials:  # noqa: B008
    """The table of the monomials of one degree on a device, made once and kept: do not write to it.
    Source: CS-k.

    >>> monomials(2, 3).weight.tolist()  # x^3, x^2 y, x y^2, y^3
    [1.0, 3.0, 3.0, 1.0]
    """
    _check_sizes(dim, power)
    if device.type != "cpu":
        table = monomials(dim, power)
        return Monomials(table.first.to(device), table.rest.to(device), _on(device, table.weight), table.starts)
    if power == 1:
        return Monomials(torch.arange(dim), torch.zeros(dim, dtype=torch.long), torch.ones(dim).double(), (0,) * dim)
    lower = monomials(dim, power - 1)
    # The lower degree is sorted by its first variable, so the tails begin where that variable reaches i.
    starts = torch.searchsorted(lower.first, torch.arange(dim))
    tails = [torch.arange(int(start), len(lower.first)) for start in starts]
    first = torch.repeat_interleave(torch.arange(dim), torch.tensor([len(tail) for tail in tails]))
    rest = torch.cat(tails)
    # p! / prod a! grows by p / a_i when x_i joins, a_i counting the new one.
    weight = lower.weight[rest] * power / _multiplicity(dim, power, first, rest)
    return Monomials(first, rest, weight, tuple(starts.tolist()))


def _multiplicity(dim: int, power: int, first: Tensor, rest: Tensor) -> Tensor:
    """How often each monomial, made of a variable and a monomial of degree p - 1, holds that variable."""
    lower = monomials(dim, power - 1)
    more = 1.0 if power == 2 else _multiplicity(dim, power - 1, lower.first, lower.rest)[rest]
    return 1 + more * (lower.first[rest] == first).double()


@kept(32)
def _root_weights(dim: int, power: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """The roots of the multinomial coefficients: the weights of an embedding's coordinates."""
    return monomials(dim, power, device).weight.sqrt().to(dtype)


@kept(32)
def variables(dim: int, power: int) -> Tensor:
    """The variables of every monomial in rising order, with repetition: (D, p) of int64. Do not write to it.

    These are the rows of ``itertools.combinations_with_replacement(range(d), p)``.
    Source: CS-k.

    >>> variables(2, 2).tolist()
    [[0, 0], [0, 1], [1, 1]]
    """
    table = monomials(dim, power)
    if power == 1:
        return table.first[:, None]
    return torch.cat([table.first[:, None], variables(dim, power - 1)[table.rest]], -1)


@kept(32)
def halves(dim: int, power: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Each monomial of even degree p as a product of two of degree p/2: where both stand, and its weight, (D,) each.

    >>> left, right, weight = halves(2, 4, torch.device("cpu"))  # x^4, x^3 y, ... of x^2, x y and y^2
    >>> left.tolist(), right.tolist(), weight.tolist()
    ([0, 0, 0, 1, 2], [0, 1, 2, 2, 2], [1.0, 4.0, 6.0, 4.0, 1.0])
    """
    rows, half = variables(dim, power), power // 2
    left, right = _place(rows[:, :half], dim), _place(rows[:, half:], dim)
    return left.to(device), right.to(device), monomials(dim, power, device).weight


def _place(rows: Tensor, dim: int) -> Tensor:
    """Where monomials, given as rows (..., p) of variables in rising order, stand in the list of their degree."""
    place = rows[..., -1]
    for degree in range(2, rows.shape[-1] + 1):
        table = monomials(dim, degree)
        begins = torch.searchsorted(table.first, torch.arange(dim))
        place = place + (begins - torch.tensor(table.starts))[rows[..., -degree]]
    return place


@kept(32)
def norm_functional(dim: int, power: int, device: torch.device = torch.device("cpu")) -> Tensor:  # noqa: B008
    """The vector n of Sym^p, a trace, with n . embed(v, p) = |v|^p for even p: (D,) of float64. Do not write to it.

    |v|^p = (sum v_i^2)^(p/2) is a combination of the monomials whose exponents are all even.
    Source: CS-k (used to bound the normaliser Z phi(Q) by |Q|^p n . Z).

    >>> v = torch.tensor([3.0, 4.0], dtype=torch.float64)
    >>> norm_functional(2, 4) @ embed(v, 4)  # 5^4
    tensor(625.0000, dtype=torch.float64)
    """
    even = isinstance(power, int) and power >= 2 and power % 2 == 0
    require(even, "power", power, "it must be a whole number, even and at least 2")
    half, whole = monomials(dim, power // 2), monomials(dim, power)
    # The square of a monomial of degree p/2 is a monomial of degree p.
    squares = _place(variables(dim, power // 2).repeat_interleave(2, -1), dim)
    functional = torch.zeros(len(whole.first), dtype=torch.float64)
    functional[squares] = half.weight / whole.weight[squares].sqrt()
    return _on(device, functional)


def _on(device: torch.device, x: Tensor) -> Tensor:
    """x on a device, in float32 where that has no float64."""
    try:
        return x.to(device)
    except TypeError:
        return x.float().to(device)


# The embedding ------------------------------------------------------------------------------------------------------


def embed(v: Tensor, power: int) -> Tensor:
    """The symmetric power embedding phi^p of v (..., d): (..., D), coordinates whose inner products are (v . w)^p.

    Any power from 1 on, odd ones too. ValueError for a lower power or one that is no whole number.
    Source: CS-k.

    >>> embed(torch.tensor([1.0, 2.0]), 2)
    tensor([1.0000, 2.8284, 4.0000])
    """
    v = as_floating(v, "v")
    require(v.dim() >= 1, "v", "shape ()", "it must be (..., d)")
    _check_sizes(v.shape[-1], power)
    products = v
    for degree in range(2, power + 1):
        table = monomials(v.shape[-1], degree, v.device)
        products = v[..., table.first] * products[..., table.rest]
    return products * _root_weights(v.shape[-1], power, v.device, v.dtype)


# Maps of Sym^p ------------------------------------------------------------------------------------------------------


def lift(matrix: Tensor, power: int) -> Tensor:
    """The matrix of Sym^p that a matrix (..., d, d) of R^d induces: lift(P) phi(k) = phi(P k), (..., D, D).

    It is multiplicative, lift(A B) = lift(A) lift(B); it takes transposes to transposes, so rotations to rotations.
    P may be singular. Differentiable; ValueError for a matrix that is not square.
    Source: CS-P3.

    >>> lift(torch.tensor([[1.0, 1.0], [0.0, 2.0]]), 2).tolist()
    [[1.0, 1.414214, 1.0], [0.0, 2.0, 2.828427], [0.0, 0.0, 4.0]]
    """
    matrix = _square(matrix)
    dim = matrix.shape[-1]
    _check_sizes(dim, power)
    # Row a of ``forms`` holds the coefficients of (P k)^a, a product of linear forms, in the monomials of k.
    forms = matrix
    for degree in range(2, power + 1):
        table = monomials(dim, degree, matrix.device)
        products = forms[..., table.rest, :, None] * matrix[..., table.first, None, :]
        landing = _raised(dim, degree - 1, matrix.device).flatten()
        empty = matrix.new_zeros(*products.shape[:-2], len(table.first))
        forms = empty.index_add(-1, landing, products.flatten(-2))
    root = _root_weights(dim, power, matrix.device, matrix.dtype)
    return root[:, None] * forms / root


@kept(32)
def _raised(dim: int, power: int, device: torch.device) -> Tensor:
    """Where x_j times each monomial of degree p stands among those of degree p + 1; (D, d)."""
    base = variables(dim, power)[:, None, :].expand(-1, dim, -1)
    added = torch.arange(dim)[None, :, None].expand(len(base), -1, -1)
    return _place(torch.cat([base, added], -1).sort(-1).values, dim).to(device)


def to_tensor(s: Tensor, dim: int, power: int) -> Tensor:
    """Coordinates (..., D) of Sym^p as a symmetric tensor with p indices: an isometry into the tensor power.
    Source: CS-P3 (Sym^p as a subspace of the tensor power).

    >>> to_tensor(embed(torch.tensor([1.0, 2.0]), 2), 2, 2).tolist()
    [[1.0, 2.0], [2.0, 4.0]]
    """
    check_last(s, dimension(dim, power), "s")
    s = as_floating(s, "s")
    root = _root_weights(dim, power, s.device, s.dtype)
    return (s / root)[..., _entries(dim, power, s.device)].unflatten(-1, (dim,) * power)


@kept(32)
def _entries(dim: int, power: int, device: torch.device) -> Tensor:
    """For each entry of a tensor with p indices, flattened, the monomial it belongs to; (d^p,)."""
    landing = torch.arange(dim)
    for degree in range(1, power):
        landing = _raised(dim, degree, torch.device("cpu"))[landing].flatten()
    return landing.to(device)


def act(matrix: Tensor, s: Tensor, power: int) -> Tensor:
    """Apply the lift of a matrix to points (..., D) of Sym^p without forming it: one index after the other.

    Leading dimensions broadcast. It takes p d^(p+1) multiply-adds where the matrix has D^2 numbers.
    Source: CS-P3, CS-3.

    >>> P, s = torch.tensor([[1.0, 1.0], [0.0, 2.0]]), embed(torch.tensor([1.0, 2.0]), 2)
    >>> torch.allclose(act(P, s, 2), lift(P, 2) @ s)
    True
    """
    matrix, s = _square(matrix), as_floating(s, "s")
    dtype, dim = torch.promote_types(matrix.dtype, s.dtype), matrix.shape[-1]
    matrix, tensor = matrix.to(dtype), to_tensor(s.to(dtype), dim, power).flatten(-power)
    for _ in range(power):
        # The last index is acted on and moved to the front: after p turns every index had its turn and its place.
        columns = tensor.unflatten(-1, (-1, dim)).transpose(-1, -2)
        tensor = (matrix @ columns).flatten(-2)
    sums = tensor.new_zeros(*tensor.shape[:-1], s.shape[-1]).index_add(-1, _entries(dim, power, s.device), tensor)
    return sums / _root_weights(dim, power, s.device, dtype)


def _square(matrix: Tensor) -> Tensor:
    """The matrix in a float dtype; ValueError for one that is not square."""
    matrix = as_floating(matrix, "matrix")
    came = matrix.shape
    require(len(came) >= 2 and came[-1] == came[-2], "matrix", came, "it must be square: (..., d, d)")
    return matrix
