"""Connections made of steps given one by one: from the data, from scores, from generators, from a manifold."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from geolib._checks import check_last, require
from geolib.connection.lattice import Connection, Node
from geolib.manifolds import Chart, orthonormal_frame, segment, transport_matrix
from geolib.rotations import block_diagonal, rotation_matrix

__all__ = [
    "cayley_rotation", "conformal_steps", "generator_steps", "householder_steps", "implied_connection",
    "levi_civita", "turning_steps",
]  # fmt: skip


def cayley_rotation(v: Tensor) -> Tensor:
    """The rotation of space about v by 2 atan|v|, (..., 3) to (..., 3, 3): (I - K)^-1 (I + K), with K x = v x x.

    A quarter turn has |v| = 1; a half turn is approached and never reached. It is rational in v, so smooth at 0.
    Source: RF-FLAT (steps read from data).

    >>> cayley_rotation(torch.tensor([0.0, 0.0, 1.0])).tolist()  # x to y
    [[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """
    check_last(v, 3, "v")
    x, y, z = v.unbind(-1)
    o = torch.zeros_like(x)
    K = torch.stack([o, -z, y, z, o, -x, -y, x, o], -1).unflatten(-1, (3, 3))
    size = v.square().sum(-1)[..., None, None]
    one = torch.eye(3, dtype=v.dtype, device=v.device)
    return one + 2 / (1 + size) * (K + v[..., :, None] * v[..., None, :] - size * one)


def turning_steps(rates: Sequence[Tensor], frequencies: Tensor) -> Connection:
    """Steps that turn by an amount read from the data: a step along axis a from p is the rotation by rates[a][p] theta.

    Rates beta (..., *cells) come for each axis, with one cell less than the grid along it; theta (pairs,) is in
    radians. Flat on a line. On a grid the unit square at p turns pair j by theta_j times rates[0][p] + rates[1][p +
    e_0] - rates[0][p + e_1] - rates[1][p], the rates' curl.
    Source: CS-beta, RF-FLAT.

    >>> line = turning_steps([torch.tensor([1.0, 2.0])], torch.tensor([math.pi / 2]))
    >>> line.steps[0][1].round(decimals=4).tolist()  # half a turn
    [[-1.0, 0.0], [-0.0, -1.0]]
    """
    return Connection(tuple(block_diagonal(rotation_matrix(rate[..., None] * frequencies)) for rate in rates))


def conformal_steps(log_gates: Tensor, rates: Tensor, frequencies: Tensor) -> Connection:
    """Steps read from the data at the node they enter: gamma_m R(beta_m theta)^T for every step forward to node m.

    Log gates and rates are (*nodes), frequencies theta (pairs,); a step backwards divides by the gate. On a line, the
    transport and scale of conformal symmetric-power attention: flat. On a grid the unit square at p, with corners
    e = p + e_0 and n = p + e_1, has the holonomy gamma_e / gamma_n R((beta_n - beta_e) theta): curved wherever the data
    at e and n differ.
    Source: CS-1, CS-gate, CS-beta, RF-FLAT.

    >>> conformal_steps(torch.tensor([0.0, 0.5]).log(), torch.tensor([7.0, 0.0]), torch.ones(1)).steps[0].tolist()
    [[[0.5, 0.0], [-0.0, 0.5]]]
    """
    axes = range(rates.dim())
    turns = turning_steps([-rates.narrow(a, 1, rates.shape[a] - 1) for a in axes], frequencies)
    gates = [log_gates.narrow(a, 1, log_gates.shape[a] - 1).exp() for a in axes]
    return Connection(tuple(gate[..., None, None] * turn for gate, turn in zip(gates, turns.steps)))


def householder_steps(w: Tensor, strength: Tensor) -> Connection:
    """PaTH's steps on a line: I - beta_m w_m w_m^T, w_m of unit length, for the step forward to node m.

    w (nodes, d) is read from the data and brought to unit length here, beta (nodes,) in (0, 2) too; those of node 0 are
    not taken. A step keeps lengths at beta = 0 and 2 alone; at beta = 1 it has no inverse, and is a ValueError.
    Source: RF-FLAT (a line with data-dependent steps).

    >>> householder_steps(torch.tensor([[1.0, 0.0], [3.0, 4.0]]), torch.tensor([1.0, 2.0])).steps[0].tolist()
    [[[0.28, -0.96], [-0.96, -0.28]]]
    """
    axis = w[1:] / w[1:].norm(dim=-1, keepdim=True)
    one = torch.eye(w.shape[-1], dtype=w.dtype, device=w.device)
    return Connection((one - strength[1:, None, None] * axis[:, :, None] * axis[:, None, :],))


def implied_connection(form: Callable[[Tensor, Tensor], Tensor], *coordinates: Tensor) -> Connection:
    """The transport that scores q_m^T B(m, n) k_n imply on a grid: P_{n->m} = M_m^-1 B(m, n), with M_m = B(m, m).

    B is a function of two positions (axes,); coordinates give the grid's values along each axis. Flat when B comes from
    frames, B(m, n) = T_m^-T T_n^-1.
    Source: RF-1, RF-2, RF-9, RF-FLAT.

    >>> from geolib.rotations import rotation_matrix
    >>> line = implied_connection(lambda m, n: rotation_matrix(n - m)[0], torch.tensor([0.0, math.pi]))
    >>> line.steps[0][0].round(decimals=4).tolist()  # half a turn
    [[-1.0, 0.0], [-0.0, -1.0]]
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
    """The same rotation exp(A_a) for every step along axis a of a grid with so many nodes; A (axes, d, d) is skew.

    Flat when the generators commute; otherwise every unit square has the holonomy
    exp(-A_1) exp(-A_0) exp(A_1) exp(A_0) = I + [A_1, A_0] + O(|A|^3).
    Source: LR-A1, RF-FLAT.

    >>> a, b = torch.zeros(2, 3, 3)
    >>> a[0, 1], a[1, 0], b[1, 2], b[2, 1] = -0.1, 0.1, -0.1, 0.1
    >>> plaquettes(generator_steps(torch.stack([a, b]), (2, 2)))[0, 0, 0, 2]  # about the commutator, -0.01
    tensor(-0.0100)
    """
    axes = generators.shape[0]
    require(len(shape) == axes, "shape", shape, f"one number of nodes for each of {axes} axes")
    # Never of one alone: PyTorch 2.13 gives a single matrix of norm 0.01 to 0.05 as few as ten digits.
    turns = torch.linalg.matrix_exp(torch.cat([generators, generators]))[:axes]
    cells = [tuple(n - (i == a) for i, n in enumerate(shape)) for a in range(axes)]
    return Connection(tuple(turns[a].expand(*cells[a], -1, -1) for a in range(axes)))


def levi_civita(chart: Chart, *coordinates: Tensor) -> Connection:
    """A manifold's own parallel transport along the coordinate lines of a grid, in orthonormal frames.

    Coordinates give the grid's increasing values along each axis; ValueError when the grid leaves the chart. Orthogonal
    matrices, float64. On a surface a small square turns by curvature times area.
    Source: RF-PT, RF-FLAT.

    >>> from geolib.manifolds import sphere_spherical
    >>> grid = levi_civita(sphere_spherical(), torch.tensor([1.5, 1.6]), torch.tensor([0.0, 0.1]))
    >>> plaquettes(grid)[0, 0, 1, 0]  # the sine of the area
    tensor(0.0100, dtype=torch.float64)
    """
    require(len(coordinates) == chart.dim, "coordinates", len(coordinates), f"the chart has {chart.dim}")
    points = torch.stack(torch.meshgrid(*[c.double() for c in coordinates], indexing="ij"), -1)
    frames, steps = orthonormal_frame(chart, points), []
    for axis, count in enumerate(points.shape[:-1]):
        matrix = transport_matrix(chart, segment(points.narrow(axis, 0, count - 1), points.narrow(axis, 1, count - 1)))
        before, after = frames.narrow(axis, 0, count - 1), frames.narrow(axis, 1, count - 1)
        steps.append(torch.linalg.solve(after, matrix @ before))
    return Connection(tuple(steps))
