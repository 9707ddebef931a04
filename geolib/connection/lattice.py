"""Discrete connections on a line or a grid: path-ordered products, holonomy, flatness, changes of gauge."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from geolib._checks import check_floating, require

__all__ = [
    "Connection",
    "Node",
    "check_invertible",
    "flatness_defect",
    "from_frames",
    "gauge_transform",
    "holonomy",
    "plaquettes",
    "rectangle",
    "straight_path",
    "to_frames",
    "transport_along",
]

Node = tuple[int, ...]


@dataclass(frozen=True)
class Connection:
    """An invertible matrix for every step between neighbours of a line (one axis) or a grid (several).

    Parameters
    ----------
    steps : tuple of Tensor, one for each axis, each (..., *cells, d, d)
        ``steps[a][..., p, :, :]`` takes vectors at node p to the node after p along axis a; on axis a it has one cell
        less than the grid. Leading dimensions are a batch of connections. ValueError for steps that fit no common grid,
        are whole numbers, not square, not finite or not invertible.

    >>> line = Connection((2 * torch.eye(2).expand(3, 2, 2),))
    >>> line.shape, line.step((1,), (2,)), line.step((2,), (1,))
    ((4,), tensor([[2., 0.],
            [0., 2.]]), tensor([[0.5000, 0.0000],
            [0.0000, 0.5000]]))

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
        """The matrix (..., d, d) of one step between neighbours; backwards it is the inverse."""
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
    """Finite square matrices (..., d, d), each with an inverse in floating point; otherwise a ValueError.

    >>> check_invertible(torch.zeros(2, 2), "frames")
    Traceback (most recent call last):
    ValueError: frames: got a singular matrix; every matrix must be invertible
    """
    check_floating(matrices, argument)
    require(bool(matrices.isfinite().all()), argument, "entries that are not finite", "all must be finite")
    matrices = matrices.detach()
    inverse, failed = torch.linalg.inv_ex(matrices)
    condition = torch.linalg.matrix_norm(matrices, 1) * torch.linalg.matrix_norm(inverse, 1)
    # Written so that a NaN in a failed inverse counts as singular.
    invertible = (failed == 0) & (condition < 1 / torch.finfo(matrices.dtype).eps)
    require(bool(invertible.all()), argument, "a singular matrix", "every matrix must be invertible")


def transport_along(connection: Connection, path: Sequence[Node]) -> Tensor:
    """The path-ordered product (..., d, d): the matrices of the path's steps, the latest on the left.

    It takes vectors at the first node to the last. ValueError for an empty path, nodes off the grid or a step that
    skips a node.

    >>> line = Connection((torch.tensor([[[2.0]], [[3.0]]]),))
    >>> transport_along(line, [(0,), (1,), (2,), (1,)])
    tensor([[2.]])

    Source: RF-2, RF-FLAT.
    """
    require(len(path) > 0, "path", "no node", "it must have at least one")
    product = torch.eye(connection.dim, dtype=connection.steps[0].dtype, device=connection.steps[0].device)
    for start, end in itertools.pairwise(path):
        product = connection.step(start, end) @ product
    return product


def holonomy(connection: Connection, loop: Sequence[Node]) -> Tensor:
    """The path-ordered product once round a loop, (..., d, d); it acts on vectors at the first node, which is the last.

    ValueError for a loop that is empty or not closed, and as ``transport_along``.

    >>> line = Connection((torch.tensor([[[2.0]], [[3.0]]]),))
    >>> holonomy(line, [(0,), (1,), (2,), (1,), (0,)])  # a line has no loops
    tensor([[1.]])

    Source: RF-FLAT.
    """
    require(len(loop) > 0, "loop", "no node", "it must have at least one")
    require(tuple(loop[0]) == tuple(loop[-1]), "loop", f"ends {loop[0]} and {loop[-1]}", "a loop ends where it starts")
    return transport_along(connection, loop)


def straight_path(start: Node, end: Node) -> list[Node]:
    """The path from node to node that moves along axis 0 first, then along axis 1, and so on.

    >>> straight_path((0, 1), (2, 0))
    [(0, 1), (1, 1), (2, 1), (2, 0)]
    """
    path, node = [tuple(start)], list(start)
    for axis, target in enumerate(end):
        while node[axis] != target:
            node[axis] += 1 if target > node[axis] else -1
            path.append(tuple(node))
    return path


def rectangle(corner: Node, sides: tuple[int, int]) -> list[Node]:
    """The loop from a corner along axis 0, along axis 1, and back by each, so many steps as the sides say.

    Counter-clockwise with axis 0 to the right and axis 1 upward.

    >>> rectangle((0, 0), (1, 1))
    [(0, 0), (1, 0), (1, 1), (0, 1), (0, 0)]
    """
    i, j = corner
    opposite = (i + sides[0], j + sides[1])
    return straight_path(corner, opposite) + straight_path(opposite, corner)[1:]


def plaquettes(connection: Connection, first: int = 0, second: int = 1) -> Tensor:
    """The holonomy round every unit square of two different axes, (..., *cells, d, d), all at once.

    Along the first axis, along the second, back by each; one square less than nodes along both. Entry p acts on vectors
    at node p.

    >>> right, up = torch.tensor([2.0, 3.0]), torch.tensor([1.0, 5.0])
    >>> plaquettes(Connection((right.view(1, 2, 1, 1), up.view(2, 1, 1, 1))))  # 2 * 5 / (3 * 1)
    tensor([[[[3.3333]]]])

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
    """How far a connection is from flat: the largest entry of |holonomy - I| over all unit squares; 0 on a line.

    >>> flatness_defect(from_frames(torch.randn(3, 3, 2, 2, dtype=torch.float64), axes=2)) < 1e-6
    tensor(True)

    Source: RF-FLAT.
    """
    worst = connection.steps[0].new_zeros(())
    for first, second in itertools.combinations(range(connection.axes), 2):
        turn = plaquettes(connection, first, second)
        deviation = turn - torch.eye(connection.dim, dtype=turn.dtype, device=turn.device)
        worst = torch.maximum(worst, torch.cat([deviation.abs().flatten(), worst[None]]).max())
    return worst


def from_frames(frames: Tensor, axes: int) -> Connection:
    """The connection of frames T (..., *nodes, d, d): P_{n->m} = T_m T_n^-1, with no holonomy round any loop.

    T takes the reference space to the node's tangent space; so many of the dimensions before the last two are the
    grid's as it has axes. ValueError for frames of wrong shape, whole numbers, not finite or not invertible.

    >>> from_frames(torch.tensor([[[1.0]], [[2.0]], [[6.0]]]), axes=1).steps[0].flatten()
    tensor([2., 3.])

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
    """Frames (..., *nodes, d, d) made by transport from the origin, along axis 0 first, then axis 1, and so on.

    The identity stands at the origin. On a grid, where every loop is made of unit squares, a flat connection is
    ``from_frames`` of these; for one that is not flat they reproduce only the steps of those paths.

    >>> to_frames(Connection((torch.tensor([[[2.0]], [[3.0]]]),))).flatten()
    tensor([1., 2., 6.])

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
    """The same connection in other coordinates: a step from n to m becomes g_m P g_n^-1, g (..., *nodes, d, d).

    Its holonomy round a loop from n is g_n H g_n^-1: flat stays flat. ValueError for a change of wrong shape, or that
    is not invertible.

    >>> line = Connection((torch.tensor([[[2.0]], [[3.0]]]),))
    >>> gauge_transform(line, torch.tensor([[[1.0]], [[0.5]], [[1.0]]])).steps[0].flatten()
    tensor([1., 6.])

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
