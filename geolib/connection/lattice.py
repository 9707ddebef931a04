"""Discrete connections on a line or a grid: path-ordered products, holonomy, flatness, changes of gauge."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from geolib._checks import require

Node = tuple[int, ...]


@dataclass(frozen=True)
class Connection:
    """An invertible matrix for every step between neighbours of a line (one axis) or a grid (several).

    Parameters
    ----------
    steps : tuple of Tensor, one for each axis, each (..., *cells, d, d)
        ``steps[a][..., p, :, :]`` takes vectors at node p to the node after p along axis a; on axis a it has one cell
        less than the grid. Leading dimensions are a batch of connections.

    Raises
    ------
    ValueError
        For steps that fit no common grid, are not square, not finite or not invertible.

    Source: RF-FLAT.
    """

    steps: tuple[Tensor, ...]

    def __post_init__(self) -> None:
        require(len(self.steps) > 0, "steps", "none", "one tensor for each axis of the grid")
        for a, step in enumerate(self.steps):
            came = f"shape {tuple(step.shape)} on axis {a}"
            square = step.dim() >= self.axes + 2 and step.shape[-1] == step.shape[-2]
            require(square, "steps", came, f"it must be (..., {self.axes} grid dimensions, d, d)")
            require(step.shape[-1] == self.dim, "steps", came, f"every step must be {self.dim} x {self.dim}")
            fits = self._cells(a) == tuple(n - (i == a) for i, n in enumerate(self.shape))
            require(fits, "steps", came, f"a grid of {self.shape} has one step less along axis {a}")
            check_invertible(step, "steps")

    def _cells(self, axis: int) -> Node:
        return tuple(self.steps[axis].shape[-2 - self.axes : -2])

    @property
    def axes(self) -> int:
        """Number of axes of the grid."""
        return len(self.steps)

    @property
    def dim(self) -> int:
        """Dimension d of the vectors."""
        return self.steps[0].shape[-1]

    @property
    def shape(self) -> Node:
        """Nodes along each axis."""
        first = self._cells(0)
        return (first[0] + 1, *first[1:])

    def step(self, start: Node, end: Node) -> Tensor:
        """The matrix of one step between neighbours; backwards it is the inverse.

        Parameters
        ----------
        start, end : tuple of int

        Returns
        -------
        Tensor, (..., d, d)

        Raises
        ------
        ValueError
            For nodes off the grid or that are not neighbours.
        """
        for node in (start, end):
            inside = len(node) == self.axes and all(0 <= i < n for i, n in zip(node, self.shape))
            require(inside, "path", f"node {tuple(node)}", f"the grid has {self.shape} nodes, counted from 0")
        moves = [j - i for i, j in zip(start, end)]
        neighbours = sum(map(abs, moves)) == 1
        require(neighbours, "path", f"a step from {tuple(start)} to {tuple(end)}", "a step goes to a neighbour")
        axis = [abs(move) for move in moves].index(1)
        lower = start if moves[axis] == 1 else end
        # The grid's dimensions stand before the last two: bring them to the front to index them.
        matrix = self.steps[axis].movedim(tuple(range(-2 - self.axes, -2)), tuple(range(self.axes)))[tuple(lower)]
        return matrix if moves[axis] == 1 else torch.linalg.inv(matrix)


def check_invertible(matrices: Tensor, argument: str) -> None:
    """Finite square matrices (..., d, d), each with an inverse in floating point."""
    require(bool(matrices.isfinite().all()), argument, "entries that are not finite", "all must be finite")
    matrices = matrices.detach()
    inverse, failed = torch.linalg.inv_ex(matrices)
    condition = torch.linalg.matrix_norm(matrices, 1) * torch.linalg.matrix_norm(inverse, 1)
    # Written so that a NaN in a failed inverse counts as singular.
    invertible = (failed == 0) & (condition < 1 / torch.finfo(matrices.dtype).eps)
    require(bool(invertible.all()), argument, "a singular matrix", "every matrix must be invertible")


def transport_along(connection: Connection, path: Sequence[Node]) -> Tensor:
    """The path-ordered product: the matrices of the path's steps, the latest on the left.

    Parameters
    ----------
    connection : Connection
    path : sequence of nodes, each a tuple of int
        At least one; each is a neighbour of the one before.

    Returns
    -------
    Tensor, (..., d, d)
        Takes vectors at the first node to the last.

    Raises
    ------
    ValueError
        For an empty path, nodes off the grid or a step that skips a node.

    Source: RF-2, RF-FLAT.
    """
    require(len(path) > 0, "path", "no node", "it must have at least one")
    product = torch.eye(connection.dim, dtype=connection.steps[0].dtype, device=connection.steps[0].device)
    for start, end in itertools.pairwise(path):
        product = connection.step(start, end) @ product
    return product


def holonomy(connection: Connection, loop: Sequence[Node]) -> Tensor:
    """The path-ordered product once round a loop.

    Parameters
    ----------
    connection : Connection
    loop : sequence of nodes
        Its last node is its first.

    Returns
    -------
    Tensor, (..., d, d)
        Acts on vectors at the first node.

    Raises
    ------
    ValueError
        When the loop is not closed, or as ``transport_along``.

    Source: RF-FLAT.
    """
    require(tuple(loop[0]) == tuple(loop[-1]), "loop", f"ends {loop[0]} and {loop[-1]}", "a loop ends where it starts")
    return transport_along(connection, loop)


def straight_path(start: Node, end: Node) -> list[Node]:
    """The path that moves along axis 0 first, then along axis 1, and so on.

    Parameters
    ----------
    start, end : tuple of int

    Returns
    -------
    list of tuple of int
    """
    path, node = [tuple(start)], list(start)
    for axis, target in enumerate(end):
        while node[axis] != target:
            node[axis] += 1 if target > node[axis] else -1
            path.append(tuple(node))
    return path


def rectangle(corner: Node, sides: tuple[int, int]) -> list[Node]:
    """The loop round a rectangle of a two-dimensional grid: along axis 0, along axis 1, and back by each.

    Parameters
    ----------
    corner : tuple of int
        Where it starts and ends.
    sides : (int, int)
        Steps along axis 0 and axis 1.

    Returns
    -------
    list of tuple of int
        Counter-clockwise with axis 0 to the right and axis 1 upward.
    """
    i, j = corner
    opposite = (i + sides[0], j + sides[1])
    return straight_path(corner, opposite) + straight_path(opposite, corner)[1:]


def plaquettes(connection: Connection, first: int = 0, second: int = 1) -> Tensor:
    """The holonomy round every unit square of two axes, all at once.

    Parameters
    ----------
    connection : Connection
    first, second : int
        The axes: along the first, along the second, back along the first, back along the second.

    Returns
    -------
    Tensor, (..., *cells, d, d)
        One square less than nodes along both axes; entry p acts on vectors at node p.

    Raises
    ------
    ValueError
        For axes that are equal or not there.

    Source: RF-FLAT.
    """
    axes = connection.axes
    good = first != second and 0 <= first < axes and 0 <= second < axes
    require(good, "axes", (first, second), f"two different axes of the {axes} of the grid")
    along, up = connection.steps[first], connection.steps[second]

    def part(steps: Tensor, axis: int, offset: int) -> Tensor:
        return steps.narrow(axis - axes - 2, offset, connection.shape[axis] - 1)

    there = part(up, first, 1) @ part(along, second, 0)
    back = part(along, second, 1) @ part(up, first, 0)
    return torch.linalg.solve(back, there)


def flatness_defect(connection: Connection) -> Tensor:
    """How far the connection is from flat: the largest entry of |holonomy - I| over all unit squares; 0 on a line.

    Parameters
    ----------
    connection : Connection

    Returns
    -------
    Tensor, ()

    Source: RF-FLAT.
    """
    worst = connection.steps[0].new_zeros(())
    for first, second in itertools.combinations(range(connection.axes), 2):
        turn = plaquettes(connection, first, second)
        deviation = turn - torch.eye(connection.dim, dtype=turn.dtype, device=turn.device)
        worst = torch.maximum(worst, torch.cat([deviation.abs().flatten(), worst[None]]).max())
    return worst


def from_frames(frames: Tensor, axes: int) -> Connection:
    """The connection of a frame at every node: P_{n->m} = T_m T_n^-1. Its holonomy is the identity round every loop.

    Parameters
    ----------
    frames : Tensor, (..., *nodes, d, d)
        T at each node of a grid, from the reference space to the node's tangent space; invertible.
    axes : int
        How many of the dimensions before the last two are the grid's.

    Returns
    -------
    Connection

    Raises
    ------
    ValueError
        For frames of wrong shape, or that are not finite or not invertible.

    Source: RF-2, RF-8, RF-FLAT.
    """
    came = f"shape {tuple(frames.shape)}"
    square = axes >= 1 and frames.dim() >= axes + 2 and frames.shape[-1] == frames.shape[-2]
    require(square, "frames", came, f"it must be (..., {axes} grid dimensions, d, d)")
    check_invertible(frames, "frames")
    steps = []
    for axis in range(axes):
        d, count = axis - axes - 2, frames.shape[axis - axes - 2]
        # T_m T_n^-1, by solving X T_n = T_m.
        after, before = frames.narrow(d, 1, count - 1), frames.narrow(d, 0, count - 1)
        steps.append(torch.linalg.solve(before, after, left=False))
    return Connection(tuple(steps))


def to_frames(connection: Connection) -> Tensor:
    """Frames made by transport from the origin, along axis 0 first, then axis 1, and so on.

    On a grid, where every loop is made of unit squares, a flat connection is ``from_frames`` of these; for one that is
    not flat they reproduce only the steps of those paths.

    Parameters
    ----------
    connection : Connection

    Returns
    -------
    Tensor, (..., *nodes, d, d)
        The identity at the origin.

    Source: RF-FLAT (the converse).
    """
    axes = connection.axes
    frames = torch.eye(connection.dim, dtype=connection.steps[0].dtype, device=connection.steps[0].device)
    frames = frames.expand(*connection.steps[0].shape[: -2 - axes], *[1] * axes, -1, -1)
    for axis, steps in enumerate(connection.steps):
        d = axis - axes - 2
        # Paths leave this axis before they enter the later ones: steps at index 0 of those.
        for later in range(axis + 1, axes):
            steps = steps.narrow(later - axes - 2, 0, 1)
        rows = [frames]
        for i in range(steps.shape[d]):
            rows.append(steps.narrow(d, i, 1) @ rows[-1])
        frames = torch.cat(rows, d)
    return frames


def gauge_transform(connection: Connection, change: Tensor) -> Connection:
    """The same connection in other coordinates: a step from n to m becomes g_m P g_n^-1.

    Parameters
    ----------
    connection : Connection
    change : Tensor, (..., *nodes, d, d)
        g at every node, invertible.

    Returns
    -------
    Connection
        Its holonomy round a loop from n is g_n H g_n^-1: flat stays flat.

    Raises
    ------
    ValueError
        For a change of wrong shape, or that is not invertible.

    Source: RF-FLAT.
    """
    axes, tail = connection.axes, (*connection.shape, connection.dim, connection.dim)
    came = f"shape {tuple(change.shape)}"
    require(tuple(change.shape[-axes - 2 :]) == tail, "change", came, f"its last dimensions must be {tail}")
    check_invertible(change, "change")
    steps = []
    for axis, step in enumerate(connection.steps):
        d, count = axis - axes - 2, connection.shape[axis] - 1
        after, before = change.narrow(d, 1, count), change.narrow(d, 0, count)
        steps.append(torch.linalg.solve(before, after @ step, left=False))
    return Connection(tuple(steps))
