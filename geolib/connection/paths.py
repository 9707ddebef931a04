"""Transport between all pairs of nodes along named paths, with matrices and without making them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from geolib._checks import as_widest, check_last, require

__all__ = ["carried_scores", "cayley_rotation", "line_frames"]

_AT, _FROM = "ABCDEFGH", "abcdefgh"  # the query's coordinates and the key's, in Einstein sums


def cayley_rotation(v: Tensor) -> Tensor:
    """The rotation of space about v by 2 atan|v|, (..., 3) to (..., 3, 3): (I - K)^-1 (I + K), with K x = v x x.

    A quarter turn has |v| = 1; a half turn is approached and never reached. It is rational in v, so smooth at 0.

    >>> cayley_rotation(torch.tensor([0.0, 0.0, 1.0]))  # x to y
    tensor([[0., -1., 0.],
            [1., 0., 0.],
            [0., 0., 1.]])

    Source: RF-FLAT (steps read from data).
    """
    check_last(v, 3, "v")
    x, y, z = v.unbind(-1)
    o = torch.zeros_like(x)
    K = torch.stack([o, -z, y, z, o, -x, -y, x, o], -1).unflatten(-1, (3, 3))
    size = v.square().sum(-1)[..., None, None]
    one = torch.eye(3, dtype=v.dtype, device=v.device)
    return one + 2 / (1 + size) * (K + v[..., :, None] * v[..., None, :] - size * one)


def line_frames(entering: Tensor, dim: int) -> Tensor:
    """Products of steps from the first node of each line along a grid dimension, (..., *nodes, d, d).

    ``entering`` has a step for every node, the one that enters it along this dimension; that of a line's first node is
    not taken. With them the transport from i to j on one line is F_j F_i^-1, forward and back.

    >>> line_frames(torch.tensor([[[7.0]], [[2.0]], [[3.0]]]), 0).flatten()
    tensor([1., 2., 6.])

    Source: RF-FLAT.
    """
    one = torch.eye(entering.shape[-1], dtype=entering.dtype, device=entering.device)
    steps = entering.unbind(dim)
    frames = [one.expand_as(steps[0])]
    for step in steps[1:]:
        frames.append(step @ frames[-1])
    return torch.stack(frames, dim)


def carried_scores(u: Tensor, w: Tensor, entering: Sequence[Tensor]) -> Tensor:
    """u_m^T P_{n->m} w_n for all pairs of nodes of a grid, each w carried along axis 0 first, then axis 1, and so on.

    Parameters
    ----------
    u, w : Tensor, (..., *grid, vectors, d)
        Vectors at the query's node and at the key's; their products are added up.
    entering : sequence of Tensor, one for each axis, each (..., *grid, d, d)
        Orthogonal steps, the one that enters a node from the node before it along the axis.

    Returns
    -------
    Tensor, (..., nodes, nodes)
        Nodes in reading order; row: query.

    Notes
    -----
    No matrix is made for a pair. A curved grid has no frames, so a key has no single place to be brought to: it is
    brought to every coordinate of axis 0, then of axis 1, ... and meets the query on the last axis, where a line has
    frames. On an 8 x 8 grid that is 8 versions of each key.

    >>> turns = cayley_rotation(torch.randn(2, 3, 4, 3))
    >>> carried_scores(torch.randn(3, 4, 1, 3), torch.randn(3, 4, 1, 3), turns).shape
    torch.Size([12, 12])

    Source: RF-FLAT (what a path costs).
    """
    axes = len(entering)
    require(0 < axes <= len(_AT), "entering", f"{axes} axes", f"it must have 1 to {len(_AT)}")
    u, w, *entering = as_widest(u, w, *entering)
    at, start = _AT[:axes], _FROM[:axes]
    for a, steps in enumerate(entering):
        frames = line_frames(steps, a - axes - 2)
        before = at[:a] + start
        w = torch.einsum(f"...{at[:a] + start[a:]}yx,...{before}vy->...{before}vx", frames, w)
        if a < axes - 1:  # on to every coordinate of this axis, where the next one is entered
            after = at[: a + 1] + start
            w = torch.einsum(f"...{at[: a + 1] + start[a + 1 :]}xy,...{before}vy->...{after}vx", frames, w)
        else:
            u = torch.einsum(f"...{at}yx,...{at}vy->...{at}vx", frames, u)
    scores = torch.einsum(f"...{at}vx,...{at[:-1] + start}vx->...{at + start}", u, w)
    return scores.flatten(-axes).flatten(-axes - 1, -2)
