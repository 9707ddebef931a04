"""Symmetric powers of a vector space: the embedding, its dimension, and the maps that act on it.

Conventions
-----------
The p-th symmetric power Sym^p of R^d has one coordinate for each monomial of degree p in d variables, in the order of
``itertools.combinations_with_replacement(range(d), p)``: (0, 0), (0, 1), ..., (0, d-1), (1, 1), ... at p = 2. The
coordinate of the monomial with exponents a is sqrt(p! / (a_1! ... a_d!)) v^a. With this weight on both sides the inner
product of two embeddings is (v . w)^p, and the same coordinates are those of Sym^p as a subspace of the tensor power,
in an orthonormal basis. A map P of R^d therefore acts on them by a matrix, its *lift*, orthogonal when P is.

Index tables are made once for each (d, p) and device and kept for the last few pairs used.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from geolib._checks import check_last, require
from geolib._compile import kept
from geolib.rotations import rotate_pairs

# Sizes --------------------------------------------------------------------------------------------------------------


def dimension(dim: int, power: int) -> int:
    """The dimension of Sym^p of R^d: binom(d + p - 1, p).

    Parameters
    ----------
    dim, power : int
        d and p, each at least 1.

    Returns
    -------
    int

    Source: CS-k.
    """
    _check_sizes(dim, power)
    return math.comb(dim + power - 1, power)


def state_numbers(dim: int, power: int, value_dim: int | None = None) -> int:
    """How many numbers one head's recurrent state holds: S and Z together, (value_dim + 1) D.

    Parameters
    ----------
    dim, power : int
        d and p.
    value_dim : int or None
        Features of a value; d when None.

    Returns
    -------
    int

    Source: CS-size, CS-rec.
    """
    return ((dim if value_dim is None else value_dim) + 1) * dimension(dim, power)


def state_bytes(dim: int, power: int, layers: int, heads: int, bytes_per_number: int = 2) -> int:
    """The size of a model's recurrent state.

    Parameters
    ----------
    dim, power : int
        d and p of each head; values have d features too.
    layers, heads : int
        Heads are counted in one layer.
    bytes_per_number : int
        2 for bfloat16.

    Returns
    -------
    int
        Bytes for one sequence.

    Source: CS-size.
    """
    for name, came in (("layers", layers), ("heads", heads), ("bytes_per_number", bytes_per_number)):
        require(came >= 1, name, came, "it must be at least 1")
    return layers * heads * state_numbers(dim, power) * bytes_per_number


def tensor_determinant_exponent(dim: int, power: int) -> int:
    """The exponent e in det(P x ... x P) = det(P)^e on the tensor power: p d^(p-1).

    Parameters
    ----------
    dim, power : int
        d and p.

    Returns
    -------
    int

    Source: CS-P3 (the paper prints p d).
    """
    _check_sizes(dim, power)
    return power * dim ** (power - 1)


def lift_determinant_exponent(dim: int, power: int) -> int:
    """The exponent e in det(lift(P)) = det(P)^e on Sym^p: binom(d + p - 1, d).

    Parameters
    ----------
    dim, power : int
        d and p.

    Returns
    -------
    int
        Every coordinate of R^d occurs p D / d times among the D monomials, and p D / d = binom(d + p - 1, d).

    Source: CS-P3.
    """
    _check_sizes(dim, power)
    return math.comb(dim + power - 1, dim)


def _check_sizes(dim: int, power: int) -> None:
    require(dim >= 1, "dim", dim, "it must be at least 1")
    require(power >= 1, "power", power, "it must be at least 1")


# Tables -------------------------------------------------------------------------------------------------------------


class Monomials(NamedTuple):
    """The monomials of degree p in d variables, in order, and how each is made from one of degree p - 1.

    Attributes
    ----------
    first : Tensor, (D,) of int64
        The smallest variable of each monomial.
    rest : Tensor, (D,) of int64
        Where what is left without it stands among the monomials of degree p - 1.
    weight : Tensor, (D,) of float64
        The multinomial coefficient p! / (a_1! ... a_d!).
    starts : tuple of int
        For each variable i, where the monomials of degree p - 1 in the variables i, i+1, ... begin. They end the list,
        so the monomials of degree p that begin with i are x_i times a tail.
    """

    first: Tensor
    rest: Tensor
    weight: Tensor
    starts: tuple[int, ...]


@kept(32)
def monomials(dim: int, power: int, device: torch.device = torch.device("cpu")) -> Monomials:  # noqa: B008
    """The table of the monomials of one degree, made once and kept.

    Parameters
    ----------
    dim, power : int
        d and p.
    device : torch.device
        Where the table stands.

    Returns
    -------
    Monomials
        Do not write to it.

    Source: CS-k.
    """
    _check_sizes(dim, power)
    if device.type != "cpu":
        table = monomials(dim, power)
        return Monomials(table.first.to(device), table.rest.to(device), table.weight.to(device), table.starts)
    with torch.inference_mode(False):  # a table made in inference must serve training later
        return _table(dim, power)


def _table(dim: int, power: int) -> Monomials:
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


def _degree_table(dim: int, power: int, x: Tensor) -> Monomials:
    return monomials(dim, power, x.device)


@kept(32)
def variables(dim: int, power: int) -> Tensor:
    """The variables of every monomial, with repetition, in rising order.

    Parameters
    ----------
    dim, power : int
        d and p.

    Returns
    -------
    Tensor, (D, p) of int64
        The rows of ``itertools.combinations_with_replacement(range(d), p)``. Do not write to it.

    Source: CS-k.
    """
    table = monomials(dim, power)
    if power == 1:
        return table.first[:, None]
    return torch.cat([table.first[:, None], variables(dim, power - 1)[table.rest]], -1)


@kept(32)
def halves(dim: int, power: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Each monomial of even degree p as a product of two of degree p/2.

    Parameters
    ----------
    dim, power : int
        d and p; p even.
    device : torch.device

    Returns
    -------
    tuple of Tensor, each (D,)
        Where its first and its last p/2 variables stand among the monomials of degree p/2, int64, and its weight.
    """
    with torch.inference_mode(False):
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
    """The vector n of Sym^p with n . embed(v, p) = |v|^p, for even p: a trace.

    Parameters
    ----------
    dim, power : int
        d and p; p even.
    device : torch.device
        Where the vector stands.

    Returns
    -------
    Tensor, (D,)
        float64. |v|^p = (sum v_i^2)^(p/2) is a combination of the monomials whose exponents are all even. It is made
        once and kept: do not write to it.

    Source: CS-k (used to bound the normaliser Z phi(Q) by |Q|^p n . Z).
    """
    require(power >= 2 and power % 2 == 0, "power", power, "it must be even and at least 2")
    with torch.inference_mode(False):
        half, whole = monomials(dim, power // 2), monomials(dim, power)
        # The square of a monomial of degree p/2 is a monomial of degree p.
        squares = _place(variables(dim, power // 2).repeat_interleave(2, -1), dim)
        functional = torch.zeros(len(whole.first), dtype=torch.float64)
        functional[squares] = half.weight / whole.weight[squares].sqrt()
        return functional.to(device)


# The embedding ------------------------------------------------------------------------------------------------------


def embed(v: Tensor, power: int) -> Tensor:
    """The symmetric power embedding phi^p: coordinates whose inner products are (v . w)^p.

    Parameters
    ----------
    v : Tensor, (..., d)
    power : int
        p, at least 1; odd powers are allowed here.

    Returns
    -------
    Tensor, (..., D)
        D = binom(d + p - 1, p), in v's dtype.

    Raises
    ------
    ValueError
        When power is below 1, or v is not a floating-point tensor with a last dimension.

    Source: CS-k.
    """
    require(v.dim() >= 1 and v.is_floating_point(), "v", f"{v.dtype} {tuple(v.shape)}", "it must be floats (..., d)")
    _check_sizes(v.shape[-1], power)
    products = v
    for degree in range(2, power + 1):
        table = _degree_table(v.shape[-1], degree, v)
        products = v[..., table.first] * products[..., table.rest]
    return products * _degree_table(v.shape[-1], power, v).weight.sqrt().to(v.dtype)


def turned_embedding(v: Tensor, angles: Tensor, power: int) -> Tensor:
    """The lift of a rotation of the coordinate planes, applied to an embedding: phi(R v), no D x D matrix formed.

    Parameters
    ----------
    v : Tensor, (..., d)
        d even, pairs interleaved.
    angles : Tensor, (..., d/2)
        Radians.
    power : int

    Returns
    -------
    Tensor, (..., D)
        Equal to lift(R) phi(v).

    Source: CS-P3.
    """
    return embed(rotate_pairs(v, angles), power)


# Maps of Sym^p ------------------------------------------------------------------------------------------------------


def lift(matrix: Tensor, power: int) -> Tensor:
    """The matrix of Sym^p that a matrix of R^d induces: lift(P) phi(k) = phi(P k).

    It is multiplicative, lift(A B) = lift(A) lift(B); it takes transposes to transposes, so rotations to rotations.

    Parameters
    ----------
    matrix : Tensor, (..., d, d)
        Any square matrix, singular ones included.
    power : int
        p, at least 1.

    Returns
    -------
    Tensor, (..., D, D)
        In matrix's dtype; differentiable.

    Raises
    ------
    ValueError
        When matrix is not square or power is below 1.

    Source: CS-P3.
    """
    _check_square(matrix)
    dim = matrix.shape[-1]
    _check_sizes(dim, power)
    # Row a of ``forms`` holds the coefficients of (P k)^a, a product of linear forms, in the monomials of k.
    forms = matrix
    for degree in range(2, power + 1):
        table = _degree_table(dim, degree, matrix)
        products = forms[..., table.rest, :, None] * matrix[..., table.first, None, :]
        size = len(table.first)
        landing = _raised(dim, degree - 1, matrix.device).flatten()
        empty = matrix.new_zeros(*products.shape[:-2], size)
        forms = empty.index_add(-1, landing, products.flatten(-2))
    root = _degree_table(dim, power, matrix).weight.sqrt().to(matrix.dtype)
    return root[:, None] * forms / root


@kept(32)
def _raised(dim: int, power: int, device: torch.device) -> Tensor:
    """Where x_j times each monomial of degree p stands among those of degree p + 1; (D, d)."""
    base = variables(dim, power)[:, None, :].expand(-1, dim, -1)
    added = torch.arange(dim)[None, :, None].expand(len(base), -1, -1)
    return _place(torch.cat([base, added], -1).sort(-1).values, dim).to(device)


def to_tensor(s: Tensor, dim: int, power: int) -> Tensor:
    """Coordinates of Sym^p as a symmetric tensor with p indices: an isometry into the tensor power.

    Parameters
    ----------
    s : Tensor, (..., D)
    dim, power : int
        d and p.

    Returns
    -------
    Tensor, (..., d, ..., d)
        p last dimensions of size d; ``embed(v, p)`` becomes v x ... x v.

    Source: CS-P3 (Sym^p as a subspace of the tensor power).
    """
    check_last(s, dimension(dim, power), "s")
    root = monomials(dim, power, s.device).weight.sqrt().to(s.dtype)
    return (s / root)[..., _entries(dim, power, s.device)].unflatten(-1, (dim,) * power)


def from_tensor(tensor: Tensor, power: int) -> Tensor:
    """Coordinates of the symmetric part of a tensor with p indices: the inverse of ``to_tensor`` on Sym^p.

    Parameters
    ----------
    tensor : Tensor, (..., d, ..., d)
        p last dimensions of size d.
    power : int

    Returns
    -------
    Tensor, (..., D)
        A tensor that is not symmetric is projected onto Sym^p.

    Source: CS-P3.
    """
    sizes = tuple(tensor.shape[-power:])
    require(power >= 1 and len(sizes) == power and len(set(sizes)) == 1, "tensor", f"shape {tuple(tensor.shape)}",
            f"its last {power} dimensions must be equal")  # fmt: skip
    dim = sizes[0]
    flat = tensor.flatten(-power)
    sums = flat.new_zeros(*flat.shape[:-1], dimension(dim, power))
    sums = sums.index_add(-1, _entries(dim, power, tensor.device), flat)
    return sums / monomials(dim, power, tensor.device).weight.sqrt().to(tensor.dtype)


@kept(32)
def _entries(dim: int, power: int, device: torch.device) -> Tensor:
    """For each entry of a tensor with p indices, flattened, the monomial it belongs to; (d^p,)."""
    landing = torch.arange(dim)
    for degree in range(1, power):
        landing = _raised(dim, degree, torch.device("cpu"))[landing].flatten()
    return landing.to(device)


def act(matrix: Tensor, s: Tensor, power: int) -> Tensor:
    """Apply the lift of a matrix to points of Sym^p without forming it: one index of the tensor after the other.

    Parameters
    ----------
    matrix : Tensor, (..., d, d)
    s : Tensor, (..., D)
        Leading dimensions broadcast against matrix's.
    power : int

    Returns
    -------
    Tensor, (..., D)
        lift(matrix, power) @ s, at p d^(p+1) multiply-adds where the matrix has D^2.

    Source: CS-P3, CS-3.
    """
    _check_square(matrix)
    dim = matrix.shape[-1]
    tensor = to_tensor(s, dim, power).flatten(-power)
    for _ in range(power):
        # The last index is acted on and moved to the front: after p turns every index had its turn and its place.
        columns = tensor.unflatten(-1, (-1, dim)).transpose(-1, -2)
        tensor = (matrix @ columns).flatten(-2)
    return from_tensor(tensor.unflatten(-1, (dim,) * power), power)


def _check_square(matrix: Tensor) -> None:
    came = tuple(matrix.shape)
    require(len(came) >= 2 and came[-1] == came[-2], "matrix", f"shape {came}", "it must be square: (..., d, d)")
