"""Discrete connections on a line or a grid: path-ordered products, holonomy, flatness, changes of gauge."""

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from geolib._checks import as_widest, require
from geolib.transport import check_invertible

__all__ = [
    "Connection", "Node", "carried_scores", "flatness_defect", "from_frames", "gauge_transform", "holonomy",
    "line_frames", "plaquettes", "rectangle", "straight_path", "to_frames", "transport_along",
]  # fmt: skip

Node = tuple[int, ...]


@dataclass(frozen=True)
class Connection:
    """An invertible matrix for every step between neighbours of a line (one axis) or a grid (several).

    There is one tensor (..., *cells, d, d) for each axis: ``steps[a][..., p, :, :]`` takes vectors at node p to the
    node after p along axis a, and on axis a it has one cell less than the grid. Leading dimensions are a batch of
    connections. ValueError for steps that fit no common grid, are whole numbers, not square, not finite or not
    invertible.
    Source: RF-FLAT.

    >>> line = Connection((2 * torch.eye(2).expand(3, 2, 2),))
    >>> line.shape, line.step((1,), (2,)).tolist(), line.step((2,), (1,)).tolist()
    ((4,), [[2.0, 0.0], [0.0, 2.0]], [[0.5, 0.0], [0.0, 0.5]])
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


def transport_along(connection: Connection, path: Sequence[Node]) -> Tensor:
    """The path-ordered product (..., d, d): the matrices of the path's steps, the latest on the left.

    It takes vectors at the first node to the last. ValueError for an empty path, nodes off the grid or a step that
    skips a node.
    Source: RF-2, RF-FLAT.

    >>> line = Connection((torch.tensor([[[2.0]], [[3.0]]]),))
    >>> transport_along(line, [(0,), (1,), (2,), (1,)])
    tensor([[2.]])
    """
    require(len(path) > 0, "path", "no node", "it must have at least one")
    product = torch.eye(connection.dim, dtype=connection.steps[0].dtype, device=connection.steps[0].device)
    for start, end in itertools.pairwise(path):
        product = connection.step(start, end) @ product
    return product


def holonomy(connection: Connection, loop: Sequence[Node]) -> Tensor:
    """The path-ordered product once round a loop, (..., d, d); it acts on vectors at the first node, which is the last.

    ValueError for a loop that is empty or not closed, and as ``transport_along``.
    Source: RF-FLAT.

    >>> line = Connection((torch.tensor([[[2.0]], [[3.0]]]),))
    >>> holonomy(line, [(0,), (1,), (2,), (1,), (0,)])  # a line has no loops
    tensor([[1.]])
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
    Source: RF-FLAT.

    >>> right, up = torch.tensor([2.0, 3.0]), torch.tensor([1.0, 5.0])
    >>> plaquettes(Connection((right.view(1, 2, 1, 1), up.view(2, 1, 1, 1))))  # 2 * 5 / (3 * 1)
    tensor([[[[3.3333]]]])
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
    Source: RF-FLAT.

    >>> flatness_defect(from_frames(torch.randn(3, 3, 2, 2, dtype=torch.float64), axes=2)) < 1e-6
    tensor(True)
    """
    turns = [plaquettes(connection, *pair).flatten(0, -3) for pair in itertools.combinations(range(connection.axes), 2)]
    one = torch.eye(connection.dim, dtype=connection.steps[0].dtype, device=connection.steps[0].device)
    return (torch.cat([one[None], *turns]) - one).abs().max()


def from_frames(frames: Tensor, axes: int) -> Connection:
    """The connection of frames T (..., *nodes, d, d): P_{n->m} = T_m T_n^-1, with no holonomy round any loop.

    T takes the reference space to the node's tangent space; so many of the dimensions before the last two are the
    grid's as it has axes. ValueError for frames of wrong shape, whole numbers, not finite or not invertible.
    Source: RF-2, RF-8, RF-FLAT.

    >>> from_frames(torch.tensor([[[1.0]], [[2.0]], [[6.0]]]), axes=1).steps[0].flatten()
    tensor([2., 3.])
    """
    square = axes >= 1 and frames.dim() >= axes + 2 and frames.shape[-1] == frames.shape[-2]
    require(square, "frames", frames.shape, f"it must be (..., {axes} grid dimensions, d, d)")
    check_invertible(frames, "frames")
    steps = []
    for axis in range(axes):
        d, count = axis - axes - 2, frames.shape[axis - axes - 2]
        # T_m T_n^-1, by solving X T_n = T_m.
        after, before = frames.narrow(d, 1, count - 1), frames.narrow(d, 0, count - 1)
        steps.append(torch.linalg.solve(before, after, left=False))
    return Connection(tuple(steps))


def line_frames(steps: Tensor, dim: int) -> Tensor:
    """Products of the steps along a grid dimension from the first node of each line, (..., *nodes, d, d).

    Steps are those of a ``Connection``, one less than there are nodes along this dimension. The transport from i to j
    on one line is F_j F_i^-1, forward and back.
    Source: RF-FLAT.

    >>> line_frames(torch.tensor([[[2.0]], [[3.0]]]), 0).flatten()
    tensor([1., 2., 6.])
    """
    size = list(steps.shape)
    del size[dim]
    frames = [torch.eye(size[-1], dtype=steps.dtype, device=steps.device).expand(size)]
    for step in steps.unbind(dim):
        frames.append(step @ frames[-1])
    return torch.stack(frames, dim)


def comb_frames(steps: Sequence[Tensor], order: Sequence[int]) -> Tensor:
    """Frames (..., *nodes, d, d) made by transport from the origin along the axes in this order."""
    lines = []
    for done, axis in enumerate(order, 1):
        along = steps[axis]
        for later in order[done:]:  # entered after this axis is left: only the steps at index 0 of those count
            along = along.narrow(later - len(steps) - 2, 0, 1)
        lines.append(line_frames(along, axis - len(steps) - 2))
    return functools.reduce(lambda before, line: line @ before, lines)


def to_frames(connection: Connection) -> Tensor:
    """Frames (..., *nodes, d, d) made by transport from the origin, along axis 0 first, then axis 1, and so on.

    The identity stands at the origin. On a grid, where every loop is made of unit squares, a flat connection is
    ``from_frames`` of these; for one that is not flat they reproduce only the steps of those paths.
    Source: RF-FLAT (the converse).

    >>> to_frames(Connection((torch.tensor([[[2.0]], [[3.0]]]),))).flatten()
    tensor([1., 2., 6.])
    """
    return comb_frames(connection.steps, range(connection.axes))


def gauge_transform(connection: Connection, change: Tensor) -> Connection:
    """The same connection in other coordinates: a step from n to m becomes g_m P g_n^-1, g (..., *nodes, d, d).

    Its holonomy round a loop from n is g_n H g_n^-1: flat stays flat. ValueError for a change of wrong shape, or that
    is not invertible.
    Source: RF-FLAT.

    >>> line = Connection((torch.tensor([[[2.0]], [[3.0]]]),))
    >>> gauge_transform(line, torch.tensor([[[1.0]], [[0.5]], [[1.0]]])).steps[0].flatten()
    tensor([1., 6.])
    """
    axes, tail = connection.axes, (*connection.shape, connection.dim, connection.dim)
    require(change.shape[-axes - 2 :] == tail, "change", change.shape, f"its last dimensions must be {tail}")
    check_invertible(change, "change")
    steps = []
    for axis, step in enumerate(connection.steps):
        d, count = axis - axes - 2, connection.shape[axis] - 1
        after, before = change.narrow(d, 1, count), change.narrow(d, 0, count)
        steps.append(torch.linalg.solve(before, after @ step, left=False))
    return Connection(tuple(steps))


_AT, _FROM = "ABCDEFGH", "abcdefgh"  # the query's coordinates and the key's, in Einstein sums


def carried_scores(u: Tensor, w: Tensor, steps: Sequence[Tensor]) -> Tensor:
    """u_m^T P_{n->m} w_n for all pairs of nodes of a grid, each w carried along axis 0 first, then axis 1, and so on.

    Vectors u at the query's node and w at the key's are (..., *grid, vectors, d), and their products are added up.
    Steps are those of a ``Connection``, and orthogonal. The result is (..., nodes, nodes), nodes in reading order, with
    a row for each query.

    No matrix is made for a pair. A curved grid has no frames, so a key has no single place to be brought to: it is
    brought to every coordinate of axis 0, then of axis 1, ... and meets the query on the last axis, where a line has
    frames. On an 8 x 8 grid that is 8 versions of each key.
    Source: RF-FLAT (what a path costs).

    >>> right, up = cayley_rotation(torch.randn(3, 3, 3)), cayley_rotation(torch.randn(4, 2, 3))
    >>> carried_scores(torch.randn(4, 3, 1, 3), torch.randn(4, 3, 1, 3), [right, up]).shape
    torch.Size([12, 12])
    """
    axes = len(steps)
    require(0 < axes <= len(_AT), "steps", f"{axes} axes", f"it must have 1 to {len(_AT)}")
    u, w, *steps = as_widest(u, w, *steps)
    at, start = _AT[:axes], _FROM[:axes]
    for a, along in enumerate(steps):
        frames = line_frames(along, a - axes - 2)
        before = at[:a] + start
        w = torch.einsum(f"...{at[:a] + start[a:]}yx,...{before}vy->...{before}vx", frames, w)
        if a < axes - 1:  # on to every coordinate of this axis, where the next one is entered
            after = at[: a + 1] + start
            w = torch.einsum(f"...{at[: a + 1] + start[a + 1 :]}xy,...{before}vy->...{after}vx", frames, w)
        else:
            u = torch.einsum(f"...{at}yx,...{at}vy->...{at}vx", frames, u)
    scores = torch.einsum(f"...{at}vx,...{at[:-1] + start}vx->...{at + start}", u, w)
    return scores.flatten(-axes).flatten(-axes - 1, -2)
