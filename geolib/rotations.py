"""Rotations and reflections of planes, and the position encodings made of them.

Conventions
-----------
Vectors are columns in the mathematics; code acts on the last dimension. A vector of even dimension ``d`` is ``d/2``
pairs, interleaved: pair ``j`` is the features ``(2j, 2j+1)``. The rotation ``R(a)`` turns counter-clockwise by ``a``
radians; the reflection ``S(a)`` mirrors in the line through the origin at angle ``a``. In formulas::

    R(a) = [[cos a, -sin a],      S(a) = [[cos 2a,  sin 2a],
            [sin a,  cos a]]              [sin 2a, -cos 2a]]

Every two-dimensional encoding here is one matrix of *frequencies*, shaped (pairs, axes): pair ``j`` of a token at
position ``p`` is turned by ``sum_i p_i frequencies[j, i]`` radians. RoPE, axial RoPE, VisionLLaMA's RoPE and RoPE-Mixed
differ in this matrix alone.

Angles, sines and cosines are computed in float32, or in float64 when an input is float64, whatever autocast says; a
turned vector comes back in its own dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Integral

import torch
from torch import Tensor

from geolib._checks import angle_dtype, check_even, check_floating, check_positions, check_positive, require, wide

# Matrices: the literal form of every statement ----------------------------------------------------------------------


def rotation_matrix(angle: Tensor) -> Tensor:
    """The rotation R(a) of the plane, (..., 2, 2), by angles (...) in radians, counter-clockwise.
    Source: RF-10.

    >>> rotation_matrix(torch.tensor(math.pi / 2)).round(decimals=4).tolist()
    [[0.0, -1.0], [1.0, 0.0]]
    """
    cos, sin = angle.cos(), angle.sin()
    return torch.stack([torch.stack([cos, -sin], -1), torch.stack([sin, cos], -1)], -2)


def reflection_matrix(angle: Tensor) -> Tensor:
    """The reflection S(a), (..., 2, 2), in the line through the origin at angle a: determinant -1, its own inverse.
    Source: RF-15.

    >>> reflection_matrix(torch.tensor(math.pi / 4)).round(decimals=4).tolist()  # swaps the coordinates
    [[0.0, 1.0], [1.0, 0.0]]
    """
    cos, sin = (2 * angle).cos(), (2 * angle).sin()
    return torch.stack([torch.stack([cos, sin], -1), torch.stack([sin, -cos], -1)], -2)


def block_diagonal(blocks: Tensor) -> Tensor:
    """Square blocks (..., count, b, b) along the diagonal of one matrix (..., count b, count b), zeros elsewhere.
    Source: RF-10, RF-17.

    >>> block_diagonal(torch.tensor([[[1.0]], [[2.0]]])).tolist()
    [[1.0, 0.0], [0.0, 2.0]]
    """
    holds = blocks.dim() >= 3 and blocks.shape[-1] == blocks.shape[-2]
    require(holds, "blocks", blocks.shape, "it must be (..., count, b, b)")
    count, b = blocks.shape[-3], blocks.shape[-1]
    identity = torch.eye(count, dtype=blocks.dtype, device=blocks.device)
    # Entry (block i, row r, block j, column c) is blocks[i, r, c] where i = j.
    spread = blocks.unsqueeze(-2) * identity[:, None, :, None]
    return spread.reshape(*blocks.shape[:-3], count * b, count * b)


def plane_generator(angles: Tensor) -> Tensor:
    """The skew matrix X (..., d, d) with exp(X) = diag(R(a_1), ..., R(a_{d/2})), from angles (..., d/2) in radians.

    Its blocks are [[0, -a_j], [a_j, 0]]; any two such matrices commute, so exp(U - V) = exp(U) exp(V)^-1.
    Source: RF-7, LR-2.

    >>> plane_generator(torch.tensor([0.5])).tolist()
    [[0.0, -0.5], [0.5, 0.0]]
    """
    zero = torch.zeros_like(angles)
    return block_diagonal(torch.stack([torch.stack([zero, -angles], -1), torch.stack([angles, zero], -1)], -2))


def mixed_matrix(angles: Tensor) -> Tensor:
    """Blocks diag(R(a_1), S(a_2)), (..., d, d): even-numbered pairs turn, odd-numbered pairs are mirrored.

    The angles (..., d/2) are radians, for an even number of pairs.
    Source: RF-17. The inverse (RF-18) is ``mixed_matrix(inverse_mixed_angles(angles))``.

    >>> mixed_matrix(torch.tensor([math.pi, 0.0])).diagonal().tolist()
    [-1.0, -1.0, 1.0, -1.0]
    """
    check_even(angles.shape[-1], "angles' last dimension")
    turns = rotation_matrix(angles[..., 0::2])
    mirrors = reflection_matrix(angles[..., 1::2])
    return block_diagonal(torch.stack([turns, mirrors], -3).flatten(-4, -3))


def inverse_mixed_angles(angles: Tensor) -> Tensor:
    """The angles (..., d/2) of the inverse of ``mixed_matrix``: rotations turn back, reflections stay.
    Source: RF-18.

    >>> inverse_mixed_angles(torch.tensor([0.5, 0.7])).tolist()
    [-0.5, 0.7]
    """
    signs = torch.ones_like(angles)
    signs[..., 0::2] = -1
    return angles * signs


# Vectors: the fast form ---------------------------------------------------------------------------------------------


def rotate_pairs(x: Tensor, angles: Tensor) -> Tensor:
    """Turn each interleaved pair of features of x (..., d) by its angle: R(a_j) (x_{2j}, x_{2j+1}), in x's dtype.

    Angles (..., r/2), in radians counter-clockwise, broadcast against x's leading dimensions. With r < d only the first
    r features turn (partial rotary) and the others pass through. ValueError when d is odd, or there are more than d/2
    angles.
    Source: RF-10, LR-A2.

    >>> rotate_pairs(torch.tensor([1.0, 0.0, 5.0, 6.0]), torch.tensor([math.pi / 2])).round(decimals=4).tolist()
    [0.0, 1.0, 5.0, 6.0]
    """
    check_floating(x, "x")
    dim, turned = x.shape[-1], 2 * angles.shape[-1]
    check_even(dim, "x's last dimension")
    require(turned <= dim, "angles", f"{turned // 2} angles", f"x has {dim // 2} pairs, so at most {dim // 2} angles")
    dtype = angle_dtype(x, angles)
    cos, sin = angles.to(dtype).cos(), angles.to(dtype).sin()
    first, second = x[..., :turned].to(dtype).unflatten(-1, (-1, 2)).unbind(-1)
    pairs = torch.stack([cos * first - sin * second, sin * first + cos * second], -1).flatten(-2).to(x.dtype)
    return pairs if turned == dim else torch.cat([pairs, x[..., turned:].expand(*pairs.shape[:-1], -1)], -1)


def reflect_pairs(x: Tensor, angles: Tensor) -> Tensor:
    """Mirror each interleaved pair of x (..., d) in the line at its angle (..., d/2): S(a_j) (x_{2j}, x_{2j+1}).
    Source: RF-15, RF-16 (with s = 1).

    >>> reflect_pairs(torch.tensor([1.0, 2.0]), torch.tensor([math.pi / 4])).round(decimals=4).tolist()
    [2.0, 1.0]
    """
    check_floating(x, "x")
    check_even(x.shape[-1], "x's last dimension")
    # S(a) = R(2a) S(0), and S(0) flips the sign of the second feature.
    flip = torch.tensor([1.0, -1.0], dtype=x.dtype, device=x.device).repeat(x.shape[-1] // 2)
    return rotate_pairs(x * flip, 2 * angles)


# Frequencies: how fast each pair turns along each axis --------------------------------------------------------------


def _geometric(count: int, base: float) -> Tensor:
    """base^(-i/count), i = 0 ... count-1, in float64."""
    if not 0 < base < math.inf:
        check_positive(base, "base")
    return base ** (-torch.arange(count, dtype=torch.float64) / count)


def language_frequencies(dim: int, base: float = 10000.0) -> Tensor:
    """RoPE's frequencies for text, theta_i = base^(-2i/d) for i = 0 ... d/2 - 1: (dim/2, 1), radians per token.

    The slowest pair takes nearly 2 pi base tokens for a full turn.
    Source: LR-A2.

    >>> language_frequencies(4, base=100.0).flatten().tolist()
    [1.0, 0.1]
    """
    if isinstance(dim, float) or dim <= 0 or dim % 2:
        check_even(dim, "dim")
    return _geometric(dim // 2, base)[:, None].float()


def document_frequencies(dim: int, longest: float) -> Tensor:
    """Frequencies tied to the longest document, theta_i = 2 pi / N^(2(i-1)/d) for i = 1 ... d/2: (dim/2, 1).

    In radians per token. N is ``longest``, in tokens. Keep it constant: the rotations change with it.
    Source: CS-rot.

    >>> (document_frequencies(4, longest=100) / (2 * math.pi)).flatten().tolist()
    [1.0, 0.1]
    """
    check_even(dim, "dim")
    require(longest > 1, "longest", longest, "tokens of the longest document, more than 1")
    return (2 * math.pi * _geometric(dim // 2, longest))[:, None].float()


def axial_frequencies(dim: int, axes: int, base: float = 100.0) -> Tensor:
    """Each axis turns its own block of pairs: the first pairs follow axis 0, the next axis 1, and so on.

    (dim/2, axes), radians per unit of position, with one non-zero entry a row; blocks differ by at most one pair when
    ``axes`` does not divide dim/2. A base of 100 suits integer patch indices of images; 10000 leaves most pairs nearly
    still on an 8x8 grid.
    Source: RF-S.

    >>> axial_frequencies(8, axes=2).tolist()
    [[1.0, 0.0], [0.1, 0.0], [0.0, 1.0], [0.0, 0.1]]
    """
    if isinstance(dim, float) or dim <= 0 or dim % 2:
        check_even(dim, "dim")
    if isinstance(axes, float) or not 1 <= axes <= dim // 2:
        require(False, "axes", axes, f"dim {dim} has {dim // 2} pairs, so 1 to {dim // 2} axes")
    frequencies = torch.zeros(dim // 2, axes, dtype=torch.float64)
    for axis, pairs in enumerate(torch.arange(dim // 2).tensor_split(axes)):
        frequencies[pairs, axis] = _geometric(len(pairs), base)
    return frequencies.float()


def alternating_frequencies(dim: int, axes: int, base: float = 10000.0) -> Tensor:
    """VisionLLaMA's layout: pair j follows axis j mod axes, so neighbours share a frequency and differ in axis.

    (dim/2, axes), radians per unit of position, with one non-zero entry a row; dim/2 is a multiple of ``axes``.
    Source: LR-T1 (the VisionLLaMA column).

    >>> alternating_frequencies(8, axes=2).tolist()
    [[1.0, 0.0], [0.0, 1.0], [0.01, 0.0], [0.0, 0.01]]
    """
    check_even(dim, "dim")
    require(axes >= 1 and dim // 2 % axes == 0, "axes", axes, f"it must divide the {dim // 2} pairs of dim {dim}")
    shared = _geometric(dim // 2 // axes, base)
    return (shared[:, None, None] * torch.eye(axes, dtype=torch.float64)).flatten(0, 1).float()


# Longer contexts than trained: the same pairs, turning more slowly --------------------------------------------------


def interpolated(frequencies: Tensor, factor: float) -> Tensor:
    """Position interpolation: all pairs turn ``factor`` times as slowly, as if positions were divided by it.

    Frequencies are (pairs, axes), in radians per unit of position, and so is the result.

    >>> interpolated(torch.tensor([[1.0], [0.1]]), 4.0).flatten()
    tensor([0.2500, 0.0250])
    """
    check_positive(factor, "factor")
    return frequencies / factor


def ntk_aware(frequencies: Tensor, factor: float) -> Tensor:
    """NTK-aware scaling: the fastest pair stays, the slowest turns ``factor`` times as slowly, geometric between them.

    For ``language_frequencies(d, base)`` it is the base times factor^(d / (d - 2)). Frequencies are (pairs, 1), at
    least two, the fastest first. The dynamic variant has factor * tokens / trained - (factor - 1) for the factor beyond
    the trained length.

    >>> ntk_aware(torch.tensor([[1.0], [0.1], [0.01]]), 4.0).flatten()
    tensor([1.0000, 0.0500, 0.0025])
    """
    check_positive(factor, "factor")
    pairs, axes = frequencies.shape
    require(pairs >= 2 and axes == 1, "frequencies", frequencies.shape, "it must be (pairs, 1), from 2 pairs on")
    share = torch.arange(pairs, dtype=torch.float64, device=frequencies.device) / (pairs - 1)
    return (frequencies.double() * factor ** -share[:, None]).to(frequencies.dtype)


def ntk_by_parts(frequencies: Tensor, factor: float, trained: int, slow: float = 1.0, fast: float = 32.0) -> Tensor:
    """Pairs that turn often within the trained context stay, those that turn seldom are slowed by ``factor``.

    ``trained`` is the context of training in tokens. A pair of frequency theta goes around trained theta / (2 pi) times
    in it: at least ``fast`` times, it stays; at most ``slow`` times, it is interpolated; linear in that number between
    them. It is the formula of the paper on YaRN; Llama 3.1 has it with ``fast=4``.

    >>> ntk_by_parts(torch.tensor([[6.0], [0.15], [0.006]]), 8.0, trained=100, fast=4.0).flatten().tolist()
    [6.0, 0.079445, 0.00075]
    """
    check_positive(factor, "factor")
    check_positive(trained, "trained")
    require(0 < slow < fast, "slow", slow, f"above 0 and below fast, {fast}")
    wide = frequencies.double()
    kept = ((trained * wide / (2 * math.pi) - slow) / (fast - slow)).clamp(0, 1)
    return (kept * wide + (1 - kept) * wide / factor).to(frequencies.dtype)


def yarn_frequencies(
    dim: int,
    factor: float,
    trained: int,
    base: float = 10000.0,
    slow: float = 1.0,
    fast: float = 32.0,
    truncate: bool = True,
) -> Tensor:
    """YaRN's frequencies as published models have them, (dim/2, 1): linear in the pair's index between two pairs.

    Where ``ntk_by_parts``, the paper's formula, is linear in how often a pair goes around within ``trained`` tokens,
    the authors' code, and the checkpoints made with it, are linear in the index, from the last whole index at which
    pairs go around at least ``fast`` times to the first at which they do so at most ``slow`` times; without
    ``truncate``, a word of their configurations, from and to the fraction of an index at which they do. YaRN also makes
    queries and keys longer: ``RoPE(yarn_frequencies(...), length=yarn_length(factor))``.

    >>> slowed = language_frequencies(64) / yarn_frequencies(64, 4.0, trained=2048)
    >>> slowed[[0, 14, 31], 0]
    tensor([1.0000, 1.5294, 4.0000])
    """
    check_positive(factor, "factor")
    check_positive(trained, "trained")
    require(0 < slow < fast, "slow", slow, f"above 0 and below fast, {fast}")
    require(base > 1, "base", base, "above 1, so that later pairs turn more slowly")
    check_even(dim, "dim")
    usual = _geometric(dim // 2, base)[:, None]
    first, last = (dim * math.log(trained / (2 * math.pi * around)) / (2 * math.log(base)) for around in (fast, slow))
    ends = (math.floor(first), math.ceil(last)) if truncate else (first, last)
    low, high = max(ends[0], 0), min(ends[1], dim - 1)
    index = torch.arange(dim // 2, dtype=torch.float64)[:, None]
    slowed = ((index - low) / max(high - low, 1e-3)).clamp(0, 1)
    return (usual * (1 - slowed) + usual / factor * slowed).float()


def yarn_length(factor: float, mscale: float = 1.0, mscale_all_dim: float = 0.0) -> float:
    """How much longer YaRN makes queries and keys, 0.1 log(factor) + 1, so that scores grow by its square.

    1 for factors up to 1. Configurations that name them have (0.1 mscale log(factor) + 1) / (0.1 mscale_all_dim
    log(factor) + 1) here, and some models a scale of scores beside it.

    >>> round(yarn_length(4.0), 4), yarn_length(40.0, mscale=0.7, mscale_all_dim=0.7)
    (1.1386, 1.0)
    """
    check_positive(factor, "factor")
    grown = 0.1 * math.log(max(factor, 1.0))
    return (mscale * grown + 1.0) / (mscale_all_dim * grown + 1.0)


# Positions and angles -----------------------------------------------------------------------------------------------


def grid_positions(*sizes: int) -> Tensor:
    """Integer positions (cells, axes) of a grid's cells, in the order of a flattened array: the last axis runs fastest.

    ``grid_positions(8, 8)`` is for an 8x8 image: column 0 is the row index y, column 1 the column index x.

    >>> grid_positions(2, 2).tolist()
    [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
    """
    if not sizes or not all(isinstance(s, Integral) and s > 0 for s in sizes):
        require(False, "sizes", sizes, "one positive whole number of cells for each axis")
    axes = [torch.arange(s, dtype=torch.float32) for s in sizes]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).flatten(0, -2)


def rescale_positions(positions: Tensor, trained: Sequence[int], size: Sequence[int]) -> Tensor:
    """Positions (tokens, axes) on a grid of another size, squeezed into the trained range: positions * trained / size.

    ``trained`` and ``size`` count the cells along each axis, at training and now.
    Source: LR-F2 (the rescaled variant; the other one leaves the positions as they are).

    >>> rescale_positions(torch.tensor([[8.0, 12.0]]), trained=(8, 8), size=(16, 16)).tolist()
    [[4.0, 6.0]]
    """
    require(len(trained) == len(size), "size", tuple(size), f"one entry for each of the {len(trained)} trained axes")
    check_positions(positions, len(trained))
    for n in (*trained, *size):
        check_positive(n, "trained and size")
    ratio = torch.tensor([t / s for t, s in zip(trained, size)], dtype=angle_dtype(positions), device=positions.device)
    return positions * ratio


def pair_angles(positions: Tensor, frequencies: Tensor) -> Tensor:
    """The angle of each pair at each position, sum_i p_i frequencies[j, i]: (..., tokens, pairs), in radians.

    Positions are (..., tokens, axes), any real numbers; for an offset (keys in a cache) add it to them. Frequencies are
    (..., pairs, axes), radians per unit of position. Leading dimensions (heads, say) are broadcast.
    Source: RF-S, LR-A1 (block width 2).

    >>> pair_angles(torch.tensor([[2.0, 3.0]]), torch.tensor([[0.5, 0.0], [0.0, 0.1]])).tolist()
    [[1.0, 0.3]]
    """
    axes = frequencies.shape[-1]
    if positions.dim() < 2 or positions.shape[-1] != axes:
        require(False, "positions", positions.shape, f"it must be (..., tokens, axes) with axes = {axes}")
    # Whole numbers beyond 2^24 have no place in float32.
    narrow = positions.is_floating_point() and torch.float64 not in (positions.dtype, frequencies.dtype)
    places = positions.float() if narrow else wide(positions)
    if axes == 1:
        return places * frequencies.to(places.dtype).mT
    # A sum of products, not a matrix product: autocast would run that in bfloat16, and angles need their digits.
    return (places[..., :, None, :] * frequencies.to(places.dtype)[..., None, :, :]).sum(-1)


def rope(x: Tensor, positions: Tensor, frequencies: Tensor) -> Tensor:
    """Rotary position encoding: R(p . frequencies) x at every token, in x's dtype.

    Applied to queries and keys alike it makes the score of a query at m and a key at n depend on n - m alone: (R(m)q) .
    (R(n)k) = q . R(n - m) k.

    x is (..., tokens, d), positions (tokens, axes), frequencies (r/2, axes), or (heads, r/2, axes) for x as (...,
    heads, tokens, d); ValueError when x has fewer heads or tokens than the angles. With float32 positions x is off by
    at most 1e-4 of its length at position 1e3 and a tenth at 1e6. Positions in float64, or whole numbers, keep it to
    2e-7 of its length for the same frequencies. A device without float64 (MPS) takes all positions as float32.
    Source: LR-A2, CS-rot, RF-13 with s = 1 (there with the opposite sign of theta).

    >>> q, k = rope(torch.ones(2, 2), torch.tensor([[3.0], [5.0]]), torch.tensor([[0.5]]))
    >>> round(float(q @ k), 4), round(2 * math.cos(1.0), 4)
    (1.0806, 1.0806)
    """
    angles = pair_angles(positions, frequencies.to(angle_dtype(x, frequencies)))
    turned, lead = rotate_pairs(x, angles), angles.shape[:-1]
    there = "one vector for each head and position"
    require(turned.shape == x.shape, "x", x.shape, lambda: f"{there}, {tuple(lead)} and the features")
    return turned


# Layouts ------------------------------------------------------------------------------------------------------------


def to_half_split(x: Tensor, turned: int | None = None) -> Tensor:
    """From interleaved pairs (2i, 2i+1) to half-split pairs (i, i + d/2), on the last dimension.

    With ``turned`` only that many features, the first ones, hold pairs (partial rotary) and the others stay. For a
    projection's weights see ``half_split_rows``.

    >>> to_half_split(torch.tensor([0, 1, 2, 3])).tolist(), to_half_split(torch.tensor([0, 1, 2, 3, 8, 9]), 4).tolist()
    ([0, 2, 1, 3], [0, 2, 1, 3, 8, 9])
    """
    return _reordered(x, turned, (-1, 2))


def to_interleaved(x: Tensor, turned: int | None = None) -> Tensor:
    """From half-split pairs (i, i + d/2) to interleaved pairs (2i, 2i+1): the inverse of ``to_half_split``.

    >>> to_interleaved(torch.tensor([0, 2, 1, 3])).tolist()
    [0, 1, 2, 3]
    """
    return _reordered(x, turned, (2, -1))


def _reordered(x: Tensor, turned: int | None, table: tuple[int, int]) -> Tensor:
    """The first features read as a table of this shape, its rows and columns exchanged."""
    if turned is not None and turned != x.shape[-1]:
        require(turned <= x.shape[-1], "turned", turned, f"x has {x.shape[-1]} features")
        return torch.cat([_reordered(x[..., :turned], None, table), x[..., turned:]], -1)
    check_even(x.shape[-1], "x's last dimension")
    return x.unflatten(-1, table).transpose(-1, -2).flatten(-2)


def half_split_rows(weight: Tensor, heads: int, turned: int | None = None) -> Tensor:
    """A projection's weight (heads d, width), or its bias (heads d,), so that what it gives has half-split pairs.

    For the projections of queries and of keys, each with its number of heads; those of values and outputs stay.

    >>> half_split_rows(torch.arange(8), heads=2).tolist()
    [0, 2, 1, 3, 4, 6, 5, 7]
    """
    return _rows(weight, heads, turned, to_half_split)


def interleaved_rows(weight: Tensor, heads: int, turned: int | None = None) -> Tensor:
    """A projection of a checkpoint with half-split pairs ("rotate_half") for this library's order of pairs.

    The inverse of ``half_split_rows``, and for the same tensors.

    >>> interleaved_rows(torch.arange(8), heads=2).tolist()
    [0, 2, 1, 3, 4, 6, 5, 7]
    """
    return _rows(weight, heads, turned, to_interleaved)


def _rows(weight: Tensor, heads: int, turned: int | None, order: Callable[[Tensor, int | None], Tensor]) -> Tensor:
    """An order of the features of each head, applied to the rows of a weight."""
    rows = weight.shape[0]
    require(heads > 0 and rows % heads == 0, "heads", heads, f"it must divide the {rows} rows of the weight")
    return order(weight.unflatten(0, (heads, -1)).movedim(1, -1), turned).movedim(-1, 1).flatten(0, 1)
