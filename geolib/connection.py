"""What joins the methods: transport from step to step, its holonomy, and the table of methods in closed form.

A discrete connection on a line or a grid gives every step between neighbours an invertible matrix; a step taken
backwards is the inverse. Along a path the matrices multiply up, the latest on the left. Round a loop the product is
the *holonomy*; a connection is *flat* when every loop gives the identity, so that the end point alone decides the
transport.

Two ways to make one::

    from_frames(T, axes=2)              # P_{n->m} = T_m T_n^-1: flat, whatever the frames
    Connection((east, north))           # steps given one by one: on a line flat, on a grid seldom

The second half of the module is the table "what joins them": one ``Row`` for each method, with the closed form of its
transport and scale as plain matrices; ``rows_of``, which fills a row with the parameters of a method's module; and the
functions that measure the same by running the module::

    encoding = build("rope-axial", width=48, heads=2, grid=(8, 8))
    (row,) = rows_of(encoding, head_dim=24, head=1)
    row.bilinear_form(m, n)                              # equals
    measured_bilinear_form(encoding, m, n, 24, heads=2)[1]
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from geolib._checks import check_positive, require
from geolib.attention import Encoding
from geolib.manifolds import Chart, orthonormal_frame, segment, transport_matrix
from geolib.rotations import block_diagonal, plane_generator, rotation_matrix

Node = tuple[int, ...]


def _exp(matrices: Tensor) -> Tensor:
    """exp of matrices (..., d, d)."""
    # Never of one alone: PyTorch 2.13 gives a single matrix of norm 0.01 to 0.05 as few as ten digits.
    return torch.linalg.matrix_exp(torch.stack([matrices, matrices]))[0]


# Discrete connections -----------------------------------------------------------------------------------------------


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


# Connections that are curved ------------------------------------------------------------------------------------------


def turning_steps(rates: Sequence[Tensor], frequencies: Tensor) -> Connection:
    """Steps that turn by an amount read from the data: a step along axis a from p is the rotation by rates[a][p] theta.

    Parameters
    ----------
    rates : sequence of Tensor, one for each axis, each (..., *cells)
        beta; one cell less than the grid along its own axis.
    frequencies : Tensor, (pairs,)
        theta, radians at rate 1.

    Returns
    -------
    Connection
        Flat on a line. On a grid the unit square at p turns pair j by theta_j times
        rates[0][p] + rates[1][p + e_0] - rates[0][p + e_1] - rates[1][p], the rates' curl.

    Source: CS-beta, RF-FLAT.
    """
    return Connection(tuple(block_diagonal(rotation_matrix(rate[..., None] * frequencies)) for rate in rates))


def conformal_steps(log_gates: Tensor, rates: Tensor, frequencies: Tensor) -> Connection:
    """Steps read from the data at the node they enter: gamma_m R(beta_m theta)^T for every step forward to node m.

    Parameters
    ----------
    log_gates : Tensor, (*nodes)
        log gamma at each node of a line or grid; a step backwards divides by the gate.
    rates : Tensor, (*nodes)
        beta.
    frequencies : Tensor, (pairs,)
        theta, radians at rate 1.

    Returns
    -------
    Connection
        On a line, the transport and scale of ``conformal_row``: flat. On a grid the unit square at p, with corners
        e = p + e_0 and n = p + e_1, has the holonomy gamma_e / gamma_n R((beta_n - beta_e) theta): it is curved
        wherever the data at e and n differ.

    Source: CS-1, CS-gate, CS-beta, RF-FLAT.
    """
    axes = range(rates.dim())
    turns = turning_steps([-rates.narrow(a, 1, rates.shape[a] - 1) for a in axes], frequencies)
    gates = [log_gates.narrow(a, 1, log_gates.shape[a] - 1).exp() for a in axes]
    return Connection(tuple(gate[..., None, None] * turn for gate, turn in zip(gates, turns.steps)))


def implied_connection(form: Callable[[Tensor, Tensor], Tensor], *coordinates: Tensor) -> Connection:
    """The transport that scores q_m^T B(m, n) k_n imply on a grid: P_{n->m} = M_m^-1 B(m, n), with M_m = B(m, m).

    Parameters
    ----------
    form : function of (p_m, p_n), each (axes,), that returns (d, d)
        B: ``Row.bilinear_form``, or what ``measured_bilinear_form`` gives.
    *coordinates : Tensor, (nodes,), one for each axis
        The grid's values along each axis.

    Returns
    -------
    Connection
        The steps forward; flat when B comes from frames, B(m, n) = T_m^-T T_n^-1.

    Source: RF-1, RF-2, RF-9, RF-FLAT.
    """
    points = torch.stack(torch.meshgrid(*coordinates, indexing="ij"), -1)
    steps = []
    for axis, count in enumerate(points.shape[:-1]):
        before, after = points.narrow(axis, 0, count - 1), points.narrow(axis, 1, count - 1)
        pairs = zip(after.reshape(-1, len(coordinates)), before.reshape(-1, len(coordinates)))
        matrices = torch.stack([torch.linalg.solve(form(m, m), form(m, n)) for m, n in pairs])
        steps.append(matrices.unflatten(0, after.shape[:-1]))
    return Connection(tuple(steps))


def generator_steps(generators: Tensor, shape: Node) -> Connection:
    """The same rotation exp(A_a) for every step along axis a.

    Parameters
    ----------
    generators : Tensor, (axes, d, d)
        A_a, skew.
    shape : tuple of int
        Nodes along each axis.

    Returns
    -------
    Connection
        Flat when the generators commute; otherwise every unit square has the holonomy
        exp(-A_1) exp(-A_0) exp(A_1) exp(A_0) = I + [A_1, A_0] + O(|A|^3).

    Source: LR-A1, RF-FLAT.
    """
    axes = generators.shape[0]
    require(len(shape) == axes, "shape", shape, f"one number of nodes for each of {axes} axes")
    turns = _exp(generators)
    cells = [tuple(n - (i == a) for i, n in enumerate(shape)) for a in range(axes)]
    return Connection(tuple(turns[a].expand(*cells[a], -1, -1) for a in range(axes)))


def levi_civita(chart: Chart, *coordinates: Tensor) -> Connection:
    """A manifold's own parallel transport along the coordinate lines of a grid, in orthonormal frames.

    Parameters
    ----------
    chart : Chart
    *coordinates : Tensor, (nodes,), one for each coordinate of the chart
        The grid's values along each axis, increasing.

    Returns
    -------
    Connection
        Orthogonal matrices, float64. On a surface a small square turns by curvature times area.

    Raises
    ------
    ValueError
        When the grid leaves the chart.

    Source: RF-PT, RF-FLAT.
    """
    require(len(coordinates) == chart.dim, "coordinates", len(coordinates), f"the chart has {chart.dim}")
    points = torch.stack(torch.meshgrid(*[c.double() for c in coordinates], indexing="ij"), -1)
    frames, steps = orthonormal_frame(chart, points), []
    for axis, count in enumerate(points.shape[:-1]):
        matrix = transport_matrix(chart, segment(points.narrow(axis, 0, count - 1), points.narrow(axis, 1, count - 1)))
        before, after = frames.narrow(axis, 0, count - 1), frames.narrow(axis, 1, count - 1)
        steps.append(torch.linalg.solve(after, matrix @ before))
    return Connection(tuple(steps))


# The table "what joins them" ------------------------------------------------------------------------------------------

SCORE, INSIDE, AFTER = "score", "inside softmax", "after softmax"


@dataclass(frozen=True)
class Row:
    """One method of the table: its score is scale(m, n) q_m^T transport(m, n) k_n.

    Parameters
    ----------
    method : str
    transport : function of (p_m, p_n), each (axes,), that returns (d, d)
        From the key's position n to the query's position m.
    log_scale : function of (p_m, p_n) that returns (), or (d,)
        The logarithm of the scale factor; one for each feature where the axes of a grid have scales of their own.
    acts : str
        Where the scale factor acts: it multiplies the "score"; it is a factor "inside softmax", its logarithm added to
        the score; or it multiplies the weights "after softmax".
    learned : str

    Source: RF-9, LR-A1, CS-3, CS-A1, RF-22 (the table of methods that joins them).
    """

    method: str
    transport: Callable[[Tensor, Tensor], Tensor]
    log_scale: Callable[[Tensor, Tensor], Tensor]
    acts: str
    learned: str

    def __post_init__(self) -> None:
        require(self.acts in (SCORE, INSIDE, AFTER), "acts", repr(self.acts), f"{SCORE!r}, {INSIDE!r} or {AFTER!r}")

    def bilinear_form(self, p_m: Tensor, p_n: Tensor) -> Tensor:
        """The matrix B of the score q_m^T B k_n, before any softmax.

        Parameters
        ----------
        p_m, p_n : Tensor, (axes,)
            Positions of the query and of the key.

        Returns
        -------
        Tensor, (d, d)
            The transport, times the scale where that acts on the score.
        """
        transport = self.transport(p_m, p_n)
        return transport * self.log_scale(p_m, p_n).exp() if self.acts == SCORE else transport

    def log_gate(self, p_m: Tensor, p_n: Tensor) -> Tensor:
        """What is added to the score inside the softmax, (); 0 when the scale acts elsewhere."""
        return self.log_scale(p_m, p_n) if self.acts == INSIDE else _unscaled(p_m, p_n)

    def log_attenuation(self, p_m: Tensor, p_n: Tensor) -> Tensor:
        """The logarithm of what multiplies the weight after the softmax, (); 0 when the scale acts elsewhere."""
        return self.log_scale(p_m, p_n) if self.acts == AFTER else _unscaled(p_m, p_n)


def _unscaled(p_m: Tensor, p_n: Tensor) -> Tensor:
    return torch.zeros((), dtype=torch.float64)


def _still(dim: int) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda p_m, p_n: torch.eye(dim, dtype=torch.float64)


def _combined(generators: Tensor, position: Tensor) -> Tensor:
    """sum_a p_a A_a in float64."""
    return torch.einsum("a,aij->ij", position.double(), generators.double())


def none_row(dim: int) -> Row:
    """Attention that ignores positions: the identity, unscaled.

    Source: RF-PE.
    """
    return Row("none", _still(dim), _unscaled, SCORE, "nothing")


def rope_row(frequencies: Tensor) -> Row:
    """RoPE, axial RoPE, VisionLLaMA's and RoPE-Mixed: exp of the plane generator at (p_n - p_m) . theta.

    Parameters
    ----------
    frequencies : Tensor, (pairs, axes)
        Learned in RoPE-Mixed.

    Returns
    -------
    Row
        q' = R(m theta) q gives R((n - m) theta): the table's R((m - n) theta) with RoPE's sign of theta.

    Source: LR-A2, CS-rot, RF-13.
    """

    def transport(p_m: Tensor, p_n: Tensor) -> Tensor:
        return _exp(plane_generator(frequencies.double() @ (p_n - p_m).double()))

    return Row("rope", transport, _unscaled, SCORE, "nothing; the frequencies in RoPE-Mixed")


def liere_row(generators: Tensor) -> Row:
    """LieRE: exp(P_m)^T exp(P_n) with P = sum_a p_a A_a, the product of two exponentials and not exp(P_n - P_m).

    Parameters
    ----------
    generators : Tensor, (axes, d, d)
        A_a, skew.

    Returns
    -------
    Row

    Source: LR-A1.
    """

    def transport(p_m: Tensor, p_n: Tensor) -> Tensor:
        back = _exp(-_combined(generators, p_m))
        return back @ _exp(_combined(generators, p_n))

    return Row("liere", transport, _unscaled, SCORE, "generators")


def alibi_row(dim: int, slope: float) -> Row:
    """ALiBi: the identity, and e^{-a |m - n|} inside the softmax.

    On a grid |m - n| is the sum over the axes, the number of steps between n and m: the factor is the product of one
    gate e^{-a} a step along any shortest path.

    Parameters
    ----------
    dim : int
    slope : float
        a of one head.

    Returns
    -------
    Row

    Source: CS-A1.
    """

    def log_scale(p_m: Tensor, p_n: Tensor) -> Tensor:
        return -slope * (p_m - p_n).double().abs().sum()

    return Row("alibi", _still(dim), log_scale, INSIDE, "nothing")


def riemannformer_row(generators: Tensor, log_metric: Callable[[Tensor], Tensor]) -> Row:
    """RiemannFormer: exp((m - n) X), scaled by s^{(m+n)/2}.

    Parameters
    ----------
    generators : Tensor, (axes, d, d)
        X for each axis, skew; ``plane_generator`` of theta for the preset of plane rotations. With several axes they
        must commute for this closed form to be the score.
    log_metric : function of a position (axes,) that returns (), or (d,)
        log of the factor of M_p = s^p I: ``lambda p: p[0] * log_s``, or another scale law. With several axes, one
        number for each feature: M_p is s_a^{p_a} I on the planes that turn along axis a.

    Returns
    -------
    Row

    Source: RF-6, RF-8, RF-9, RF-13, RF-S.
    """

    def transport(p_m: Tensor, p_n: Tensor) -> Tensor:
        return _exp(_combined(generators, p_m - p_n))

    def log_scale(p_m: Tensor, p_n: Tensor) -> Tensor:
        return (log_metric(p_m.double()) + log_metric(p_n.double())) / 2

    return Row("riemannformer", transport, log_scale, SCORE, "s, perhaps theta or X")


def _itself(p: Tensor) -> Tensor:
    return p


def riemannformer_general_row(
    frequencies: Tensor, log_scales: Tensor, exponent: Callable[[Tensor], Tensor] = _itself
) -> Row:
    """RiemannFormer with the general metric: R(-m theta) S^{(m+n)/2} R(n theta), the scale inside S.

    Parameters
    ----------
    frequencies : Tensor, (pairs, axes)
    log_scales : Tensor, (2 pairs, axes)
        log of S's diagonal, for each axis.
    exponent : function of a position (axes,) that returns (axes,)
        The powers of S, from a scale law; the position itself when not given.

    Returns
    -------
    Row
        Its transport includes M_m: it is the whole bilinear form.

    Source: RF-A1 to RF-A5, RF-6a.
    """

    def turn(angles: Tensor) -> Tensor:
        return _exp(plane_generator(angles))

    def transport(p_m: Tensor, p_n: Tensor) -> Tensor:
        p_m, p_n, theta = p_m.double(), p_n.double(), frequencies.double()
        stretch = torch.diag((log_scales.double() @ (exponent(p_m) + exponent(p_n)) / 2).exp())
        return turn(-theta @ p_m) @ stretch @ turn(theta @ p_n)

    return Row("riemannformer-general", transport, _unscaled, SCORE, "S and theta")


def riemannformer_diagonal_row(
    frequencies: Tensor, log_scales: Tensor, exponent: Callable[[Tensor], Tensor] = _itself
) -> Row:
    """RiemannFormer with a diagonal metric: S^{m/2} R((m - n) theta) S^{n/2}, the scales outside the rotation.

    Parameters
    ----------
    frequencies : Tensor, (pairs, axes)
    log_scales : Tensor, (2 pairs, axes)
        log of S's diagonal, for each axis.
    exponent : function of a position (axes,) that returns (axes,)
        The powers of S, from a scale law; the position itself when not given.

    Returns
    -------
    Row
        Its transport includes M_m: it is the whole bilinear form.

    Source: RF-5, RF-6, RF-6a.
    """

    def root(p: Tensor) -> Tensor:
        return torch.diag((log_scales.double() @ exponent(p.double()) / 2).exp())

    def transport(p_m: Tensor, p_n: Tensor) -> Tensor:
        turn = _exp(plane_generator(frequencies.double() @ (p_m - p_n).double()))
        return root(p_m) @ turn @ root(p_n)

    return Row("riemannformer-diagonal", transport, _unscaled, SCORE, "S and theta")


def locality_row(dim: int, sigma: float, shape: Tensor | None = None) -> Row:
    """Locality focusing: the identity, and exp(-|p_m - p_n|_A^2 / (2 sigma^2)) after the softmax.

    Parameters
    ----------
    dim : int
    sigma : float
        In units of position.
    shape : Tensor, (axes, axes), or None
        A, symmetric positive definite; None is the identity.

    Returns
    -------
    Row

    Source: RF-19 to RF-22.
    """
    check_positive(sigma, "sigma")

    def log_scale(p_m: Tensor, p_n: Tensor) -> Tensor:
        apart = (p_m - p_n).double()
        return -(apart @ (apart if shape is None else shape.double() @ apart)) / (2 * sigma**2)

    return Row("locality", _still(dim), log_scale, AFTER, "sigma, A")


def gated_row(log_gates: Tensor, frequencies: Tensor, positions: Tensor) -> Row:
    """RoPE's rotations and the gates of a document, multiplied up along its tokens and acting inside the softmax.

    Parameters
    ----------
    log_gates : Tensor, (tokens,)
        log gamma_k, passed on the step from token k - 1 to token k.
    frequencies : Tensor, (pairs, axes)
    positions : Tensor, (tokens, axes)
        Where the document's tokens stand, in their order and no two at one place: the row knows no other places.

    Returns
    -------
    Row
        A key after the query has log scale -inf.

    Source: CS-gate, CS-rot, CS-A1.
    """

    def log_scale(p_m: Tensor, p_n: Tensor) -> Tensor:
        m, n = _token_at(positions, p_m), _token_at(positions, p_n)
        if n > m:
            return torch.tensor(-torch.inf, dtype=torch.float64)
        return log_gates.double()[n + 1 : m + 1].sum()

    return Row("sympow-gates", rope_row(frequencies).transport, log_scale, INSIDE, "gates, from the data on the path")


def _token_at(positions: Tensor, place: Tensor) -> int:
    """The index of the one token at a place."""
    found = (positions == place).all(-1).nonzero()
    require(len(found) == 1, "p", place.tolist(), "it must be the position of one token of the document")
    return int(found.item())


def conformal_row(log_gates: Tensor, rates: Tensor, frequencies: Tensor) -> Row:
    """Conformal-sympow on R^d: rotations and gates multiplied up along the tokens between n and m.

    Parameters
    ----------
    log_gates : Tensor, (tokens,)
        log gamma_k; token k's gate is passed on the step from k - 1 to k.
    rates : Tensor, (tokens,)
        beta_k.
    frequencies : Tensor, (pairs,)
        theta, radians at rate 1.

    Returns
    -------
    Row
        Positions are token indices. Its scale multiplies the p-th power of q^T P k; the transport is
        R(c_mn theta)^T with c_mn the sum of beta_{n+1} ... beta_m: the paper prints it without the transpose.

    Source: CS-gate, CS-beta, CS-conf, CS-2.
    """
    line = turning_steps([-rates[1:].double()], frequencies.double())

    def transport(p_m: Tensor, p_n: Tensor) -> Tensor:
        return transport_along(line, straight_path((int(p_n.item()),), (int(p_m.item()),)))

    def log_scale(p_m: Tensor, p_n: Tensor) -> Tensor:
        m, n = int(p_m.item()), int(p_n.item())
        require(m >= n, "p_n", n, f"a gate is passed forward in time alone: it must be at most p_m = {m}")
        return log_gates.double()[n + 1 : m + 1].sum()

    return Row("conformal-sympow", transport, log_scale, SCORE, "gates and rates, from the data along the path")


def lifted_conformal_row(log_gates: Tensor, rates: Tensor, frequencies: Tensor, power: int) -> Row:
    """Conformal-sympow on Sym^p: the same transport, lifted; the score phi(q)^T B phi(k) is linear in phi.

    Parameters
    ----------
    log_gates, rates : Tensor, (tokens,)
    frequencies : Tensor, (pairs,)
    power : int
        p.

    Returns
    -------
    Row
        Of dimension binom(d + p - 1, p), in the order of ``symmetric_basis``.

    Source: CS-P3, CS-3.
    """
    below = conformal_row(log_gates, rates, frequencies)
    return Row(
        "conformal-sympow, lifted",
        lambda p_m, p_n: symmetric_lift(below.transport(p_m, p_n), power),
        below.log_scale,
        SCORE,
        below.learned,
    )


def symmetric_basis(dim: int, power: int) -> Tensor:
    """An orthonormal basis of the symmetric tensors inside the p-fold tensor power.

    Parameters
    ----------
    dim : int
        d.
    power : int
        p, at least 1.

    Returns
    -------
    Tensor, (d^p, binom(d + p - 1, p))
        Columns in the order of ``itertools.combinations_with_replacement(range(d), p)``. Its transpose takes
        x (x) ... (x) x to phi(x) with the weights sqrt(multinomial).

    Source: CS-k, CS-P3.
    """
    require(power >= 1, "power", power, "it must be at least 1")
    columns = {m: i for i, m in enumerate(itertools.combinations_with_replacement(range(dim), power))}
    basis = torch.zeros(dim**power, len(columns), dtype=torch.float64)
    for row, index in enumerate(itertools.product(range(dim), repeat=power)):
        orders = math.factorial(power) / math.prod(math.factorial(c) for c in Counter(index).values())
        basis[row, columns[tuple(sorted(index))]] = orders**-0.5
    return basis


def symmetric_lift(matrix: Tensor, power: int) -> Tensor:
    """The matrix P-bar on symmetric tensors with phi(P x) = P-bar phi(x), by restricting the tensor power of P.

    Parameters
    ----------
    matrix : Tensor, (d, d)
    power : int
        Costs d^{2p}: for small d, as a definition to compare with.

    Returns
    -------
    Tensor, (D, D)
        D = binom(d + p - 1, p), float64.

    Source: CS-P3.
    """
    basis, tensor_power = symmetric_basis(matrix.shape[-1], power), matrix.double()
    for _ in range(power - 1):
        tensor_power = torch.kron(tensor_power, matrix.double())
    return basis.T @ tensor_power @ basis


# A module's own rows --------------------------------------------------------------------------------------------------


class Reading(NamedTuple):
    """Which head's parameters are read, and the document where they depend on it.

    Attributes
    ----------
    head_dim, head : int
        Features of a head, and which one.
    x : Tensor, (tokens, width), or None
        What the layer reads.
    positions : Tensor, (tokens, axes), or None
    """

    head_dim: int
    head: int
    x: Tensor | None = None
    positions: Tensor | None = None


def rows_of(
    encoding: Encoding,
    head_dim: int,
    head: int = 0,
    x: Tensor | None = None,
    positions: Tensor | None = None,
) -> tuple[Row, ...]:
    """A method's rows with the present parameters of its module: its own, then one for each wrapper around it.

    Parameters
    ----------
    encoding : Encoding
        As one layer sees it, ``encoding.layer(index)``, where layers have parameters of their own.
    head_dim, head : int
        Features of a head, and which one.
    x : Tensor, (tokens, width), or None
        A document, for a method whose gates depend on it.
    positions : Tensor, (tokens, axes), or None
        Where its tokens stand, for a method with a parameter for each token.

    Returns
    -------
    tuple of Row
        The score's matrix is the product of their bilinear forms; what they add inside the softmax adds up, and so do
        the logarithms of what they multiply after it. Sinusoidal and learned vectors are added to the embeddings, so
        their rows carry the identity.

    Raises
    ------
    ValueError
        For a class that has no line in ``ROWS``, or one that needs a document and gets none.

    Source: RF-9, LR-A1, CS-3, CS-A1, RF-22 (the table of methods that joins them).
    """
    name = type(encoding).__name__
    require(name in ROWS, "encoding", name, f"the classes that have rows are {', '.join(ROWS)}")
    return ROWS[name](encoding, Reading(head_dim, head, x, positions))


def _read(parameter: Tensor) -> Tensor:
    return parameter.detach().double()


def _own(parameter: Tensor, head: int) -> Tensor:
    """One head's part of a parameter whose first dimension is the heads, or 1 where they share it."""
    return _read(parameter)[min(head, len(parameter) - 1)]


def _filled(per_pair: Tensor, head_dim: int) -> Tensor:
    """Frequencies or rates (pairs, axes), with zeros for the pairs of a head that stay as they are."""
    return F.pad(per_pair, (0, 0, 0, head_dim // 2 - len(per_pair)))


def _embedded_rows(method: str, learned: str) -> Callable[[Any, Reading], tuple[Row, ...]]:
    return lambda encoding, reading: (replace(none_row(reading.head_dim), method=method, learned=learned),)


def _rope_rows(encoding: Any, reading: Reading) -> tuple[Row, ...]:
    return (rope_row(_filled(_read(encoding.frequencies), reading.head_dim)),)


def _alibi_rows(encoding: Any, reading: Reading) -> tuple[Row, ...]:
    return (alibi_row(reading.head_dim, _own(encoding.slopes, reading.head).item()),)


def _planes(encoding: Any, reading: Reading) -> tuple[Tensor, Tensor]:
    """The frequencies of one head of RiemannFormer and which axes each pair follows, (pairs, axes) both."""
    follows = _read(encoding.follows)
    learned = encoding.frequencies.dim() == 3
    frequencies = _own(encoding.frequencies, reading.head) if learned else _read(encoding.frequencies)
    return _filled(frequencies * follows, reading.head_dim), _filled(follows, reading.head_dim)


def _riemannformer_rows(encoding: Any, reading: Reading) -> tuple[Row, ...]:
    theta, follows = _planes(encoding, reading)
    theta = encoding.turns * theta  # mirrors turn the score twice as far as themselves
    rates = (follows * _own(encoding.log_scale(), reading.head)).repeat_interleave(2, 0)
    generators = torch.stack([plane_generator(along) for along in theta.unbind(-1)])
    return (riemannformer_row(generators, lambda p: rates @ encoding.law.exponent(p)),)


def _two_scale_rows(row: Callable[..., Row]) -> Callable[[Any, Reading], tuple[Row, ...]]:
    """The metrics with two scales for each plane."""

    def rows(encoding: Any, reading: Reading) -> tuple[Row, ...]:
        theta, follows = _planes(encoding, reading)
        scales = _filled(_own(encoding.log_scale(), reading.head), reading.head_dim).flatten()[:, None]
        return (row(theta, scales * follows.repeat_interleave(2, 0), encoding.law.exponent),)

    return rows


def _given(part: Tensor | None, argument: str) -> Tensor:
    """A part of the document that a row cannot do without."""
    if part is None:
        raise ValueError(f"{argument}: got None; this method's rows depend on the document")
    return part


def _locality_rows(encoding: Any, reading: Reading) -> tuple[Row, ...]:
    widths, shape = _own(encoding.sigma(), reading.head), _read(encoding.precision())
    rows = [locality_row(reading.head_dim, sigma.item(), shape) for sigma in widths]
    own = rows[0]
    if len(rows) > 1:  # one width for each query
        places = _given(reading.positions, "positions")
        own = replace(own, log_scale=lambda p_m, p_n: rows[_token_at(places, p_m)].log_scale(p_m, p_n))
    return *rows_of(encoding.encoding, *reading), own


def _liere_rows(encoding: Any, reading: Reading) -> tuple[Row, ...]:
    return _liere_layer_rows(encoding.layer(0), reading)


def _liere_layer_rows(encoding: Any, reading: Reading) -> tuple[Row, ...]:
    (source,), layer = encoding._source, encoding._index
    generators = _own(_own(source.skew(), layer), reading.head) / _read(source.unit)[:, None, None]
    if source.width == 2:  # planes, which commute
        frequencies = _filled(generators[..., 1, 0], reading.head_dim)
        return (replace(rope_row(frequencies), method="rope-mixed", learned="frequencies"),)
    whole = block_diagonal(generators.movedim(1, 0))  # (axes, d, d)
    still = reading.head_dim - whole.shape[-1]
    return (liere_row(F.pad(whole, (0, still, 0, still))),)


def _sympow_rows(encoding: Any, reading: Reading) -> tuple[Row, ...]:
    x, positions = _given(reading.x, "x"), _given(reading.positions, "positions")
    log_gates = F.logsigmoid(_read(x) @ _own(encoding.W_gamma.weight, reading.head) + encoding.gate_bias)
    return (gated_row(log_gates, _filled(_read(encoding.frequencies), reading.head_dim), positions),)


ROWS: dict[str, Callable[[Any, Reading], tuple[Row, ...]]] = {
    "Encoding": lambda encoding, reading: (none_row(reading.head_dim),),
    "Sinusoidal": _embedded_rows("sinusoidal", "nothing"),
    "Learned": _embedded_rows("learned", "a vector for each cell"),
    "RoPE": _rope_rows,
    "ALiBi": _alibi_rows,
    "RiemannFormer": _riemannformer_rows,
    "RiemannFormerReflection": _riemannformer_rows,
    "RiemannFormerGeneral": _two_scale_rows(riemannformer_general_row),
    "RiemannFormerDiagonal": _two_scale_rows(riemannformer_diagonal_row),
    "LocalityFocusing": _locality_rows,
    "LieRE": _liere_rows,
    "_LieRELayer": _liere_layer_rows,
    "SympowEncoding": _sympow_rows,
}
"""For each class of ``geolib.encodings``, by name, how its rows are read; a method of one's own is one line more."""


def read_conformal(layer: nn.Module, x: Tensor, head: int) -> tuple[Tensor, Tensor, Tensor]:
    """What one head of symmetric-power attention reads from a document: the arguments of ``conformal_row``.

    Parameters
    ----------
    layer : geolib.recurrence.SympowAttention
    x : Tensor, (tokens, width)
    head : int

    Returns
    -------
    tuple of Tensor: (tokens,), (tokens,) and (pairs,), float64
        log gamma_k = log sigma(W_gamma x_k + bias), beta_k = 1 + tanh(W_beta x_k), and theta.

    Source: CS-gate, CS-beta, CS-rot.
    """
    module: Any = layer
    log_gates = F.logsigmoid(_read(x) @ _own(module.W_gamma.weight, head) + module.gate_bias)
    rates = 1 + (_read(x) @ _own(module.W_beta.weight, head)).tanh()
    return log_gates, rates, _read(module.frequencies)[:, 0]


# What a method's module really computes -------------------------------------------------------------------------------


def _pair(p_m: Tensor, p_n: Tensor) -> Tensor:
    """Two tokens, the query's position and the key's, (2, axes)."""
    require(p_m.dim() == 1 and p_m.shape == p_n.shape, "p_m", f"shape {tuple(p_m.shape)}", "it must be (axes,), as p_n")
    return torch.stack([p_m, p_n])


def measured_bilinear_form(encoding: Encoding, p_m: Tensor, p_n: Tensor, head_dim: int, heads: int = 1) -> Tensor:
    """The matrix B with score = q_m^T B k_n, read off a module by feeding it basis vectors.

    Parameters
    ----------
    encoding : Encoding
    p_m, p_n : Tensor, (axes,)
        Positions of the query and of the key.
    head_dim : int
    heads : int

    Returns
    -------
    Tensor, (heads, head_dim, head_dim)
        float64; entry [h, i, j] is the score of query e_i with key e_j in head h.

    Source: RF-9, LR-A1, CS-3, CS-A1, RF-22 (the table of methods that joins them).
    """
    basis = torch.eye(head_dim, dtype=torch.float64)[:, None, None, :].expand(-1, heads, 2, -1)
    q, k = encoding.to_reference(basis, basis, _pair(p_m, p_n))
    return torch.einsum("ihd,jhd->hij", q[:, :, 0], k[:, :, 1]).detach()


def measured_log_gate(encoding: Encoding, p_m: Tensor, p_n: Tensor, width: int) -> Tensor:
    """What a module adds to the score of the query at m and the key at n inside the softmax, 0 for nothing.

    Parameters
    ----------
    encoding : Encoding
        One whose gate does not depend on the tokens' contents: it is given zeros.
    p_m, p_n : Tensor, (axes,)
    width : int
        Features of a token.

    Returns
    -------
    Tensor, broadcastable to (heads,)

    Source: CS-A1.
    """
    return measured_log_gates(encoding, torch.zeros(2, width, dtype=torch.float64), _pair(p_m, p_n))[..., 0, 1]


def measured_log_gates(encoding: Encoding, x: Tensor, positions: Tensor) -> Tensor:
    """What a module adds to the scores of a whole document inside the softmax, zeros for nothing.

    Parameters
    ----------
    encoding : Encoding
    x : Tensor, (tokens, width)
    positions : Tensor, (tokens, axes)

    Returns
    -------
    Tensor, (heads or 1, tokens, tokens)
        float64; row: query, column: key.

    Source: CS-gate, CS-A1.
    """
    tokens, gate = len(x), encoding.log_gate(x[None], positions)
    none = torch.zeros(1, tokens, tokens, dtype=torch.float64)
    return none if gate is None else gate.detach().double().reshape(-1, tokens, tokens)


def measured_log_attenuation(encoding: Encoding, p_m: Tensor, p_n: Tensor) -> Tensor:
    """The logarithm of what a module multiplies the weight of the key at n by, after the softmax; 0 for nothing.

    Parameters
    ----------
    encoding : Encoding
    p_m, p_n : Tensor, (axes,)

    Returns
    -------
    Tensor, broadcastable to (heads,)

    Source: RF-19.
    """
    return measured_log_attenuations(encoding, _pair(p_m, p_n))[..., 0, 1]


def measured_log_attenuations(encoding: Encoding, positions: Tensor) -> Tensor:
    """The logarithms of what a module multiplies the weights of a whole document by, after the softmax.

    Parameters
    ----------
    encoding : Encoding
    positions : Tensor, (tokens, axes)

    Returns
    -------
    Tensor, (heads or 1, tokens, tokens)
        float64; zeros for nothing.

    Source: RF-19, RF-22.
    """
    tokens, factor = len(positions), encoding.attenuation(positions)
    none = torch.zeros(1, tokens, tokens, dtype=torch.float64)
    return none if factor is None else factor.detach().double().log().reshape(-1, tokens, tokens)
