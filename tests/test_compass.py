"""Transport along named paths against products multiplied out, the compass and its relatives, what curvature costs."""

import copy
import functools
import itertools

import pytest
import torch
from often import close, double, refuses
from scipy.spatial.transform import Rotation
from torch.testing import assert_close

from geolib import connection as cn
from geolib.connection import TRANSPORTS
from geolib.encodings import build
from geolib.rotations import grid_positions

torch.set_num_threads(1)
GRIDS = [(5,), (3, 4), (2, 3, 2)]
every_grid = pytest.mark.parametrize("grid", GRIDS, ids=["1d", "2d", "3d"])


def cells_of(grid):
    return list(itertools.product(*map(range, grid)))


def connection_of(turns):
    """Steps that enter each node, (axes, *grid, d, d), as a connection."""
    return cn.Connection(tuple(turn.narrow(a, 1, turn.shape[a] - 1) for a, turn in enumerate(turns)))


# Rotations and products ------------------------------------------------------------------------------------------


def test_cayley_rotation_is_the_fraction_and_turns_by_twice_the_arc_tangent():
    v, one = double(20, 3), torch.eye(3).double()
    K = torch.linalg.cross(v[:, :, None].expand(20, 3, 3), one.expand(20, 3, 3), dim=1)
    close(cn.cayley_rotation(v), torch.linalg.solve(one - K, one + K))
    turned = torch.from_numpy(Rotation.from_matrix(cn.cayley_rotation(v)).as_rotvec())
    close(turned, 2 * v.norm(dim=-1, keepdim=True).atan() * torch.nn.functional.normalize(v))
    close(cn.cayley_rotation(torch.zeros(3).double()), one)


@every_grid
def test_carried_scores_are_transport_along_straight_paths(grid):  # RF-FLAT
    turns, u, w = cn.cayley_rotation(double(len(grid), *grid, 3)), double(*grid, 2, 3), double(*grid, 2, 3)
    steps = connection_of(turns)
    got = cn.carried_scores(u, w, steps.steps)
    close(cn.line_frames(turns[0][:0], 0), torch.eye(3).double().expand(1, *grid[1:], 3, 3))
    for (i, m), (j, n) in itertools.product(enumerate(cells_of(grid)), repeat=2):
        P = cn.transport_along(steps, cn.straight_path(n, m))
        close(got[i, j], (u[m] * (w[n] @ P.T)).sum())


# The compass ----------------------------------------------------------------------------------------------------


def compass(transport, grid, heads=3):
    torch.manual_seed(3)
    return build("compass", width=12, heads=heads, grid=grid, transport=transport).double()


def carried(encoding, transport, x, head):
    """P_{n->m} (3, 3) of one head as a function of two cells, products multiplied out."""
    axes, cells, way = len(encoding.grid), cells_of(encoding.grid), (-1) ** head
    v = (x @ encoding.W_turn.weight.T + encoding.W_turn.bias).reshape(*encoding.grid, 3, axes, 3).detach()
    v = v[..., head, :, :].movedim(-2, 0)
    turns = cn.cayley_rotation(v * torch.tensor([0.0, 0, 1]) if transport == "commuting" else v)
    steps = connection_of(turns)

    def along(n, m):
        return cn.transport_along(steps, [c[::way] for c in cn.straight_path(n[::way], m[::way])])

    if transport in ("paths", "commuting"):
        return along
    if transport == "comb":
        return lambda n, m: along(cells[0], m) @ along(cells[0], n).T
    own = [functools.reduce(lambda done, turn: turn @ done, turns[(slice(None), *cell)]) for cell in cells]
    if transport == "order":
        own = list(itertools.accumulate(own[1:], lambda done, turn: turn @ done, initial=torch.eye(3).double()))
    return lambda n, m: own[cells.index(m)] @ own[cells.index(n)].T


@every_grid
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_every_compass_carries_its_vectors_from_key_to_query(transport, grid):  # CS-beta, RF-FLAT
    encoding, positions = compass(transport, grid), grid_positions(*grid).double()
    x, cells = double(2, len(positions), 12), cells_of(grid)
    gates = encoding.place(positions).log_gate(x).detach()
    narrow = copy.deepcopy(encoding).bfloat16()  # what half precision reads is carried in float32
    assert narrow.turns(x.bfloat16()).dtype == narrow.scores(x.bfloat16()).dtype == torch.float32
    u, w = (linear(x[1]).detach().unflatten(-1, (3, 3, 3)) for linear in (encoding.W_u, encoding.W_w))
    for head in range(3):
        P = carried(encoding, transport, x[1], head)
        for (i, m), (j, n) in itertools.product(enumerate(cells), repeat=2):
            close(gates[1, head, i, j], (u[i, head] * (w[j, head] @ P(n, m).T)).sum())
    if transport in ("paths", "commuting"):
        along = cn.transport_along(cn.read_compass(encoding, x[1], 2), cn.straight_path(cells[0], cells[-1]))
        close(along, P(cells[0], cells[-1]))  # of the last head


def test_only_steps_on_a_grid_are_curved():  # RF-FLAT
    x = double(12, 12)
    for transport in ("paths", "commuting"):
        assert cn.flatness_defect(cn.read_compass(compass(transport, (3, 4)), x, 0)) > 0.1
    for transport in ("frames", "order", "comb"):
        with pytest.raises(ValueError, match="compass: got"):
            cn.read_compass(compass(transport, (3, 4)), x, 0)


def test_on_its_comb_the_flat_compass_has_the_steps_of_the_curved_one():  # RF-FLAT
    curved, flat = (compass(transport, (3, 4), heads=2) for transport in ("paths", "comb"))
    x, vectors = double(1, 12, 12), double(2, 1, 2, 12, 3, 3)
    ways, comb = (c.transported(*vectors, c.turns(x)).detach().view(2, 3, 4, 3, 4) for c in (curved, flat))
    close(comb[0].diagonal(dim1=0, dim2=2), ways[0].diagonal(dim1=0, dim2=2))  # along rows
    close(comb[0, :, 0, :, 0], ways[0, :, 0, :, 0])  # and down the first column, in even heads
    close(comb[1].diagonal(dim1=1, dim2=3), ways[1].diagonal(dim1=1, dim2=3))  # in odd heads along columns
    close(comb[1, 0, :, 0], ways[1, 0, :, 0])  # and along the first row
    assert (comb - ways).abs().max() > 0.1


def test_frames_of_cells_alone_do_not_know_where_they_stand():  # RF-FLAT
    x, other = double(1, 12, 12), torch.randperm(12)
    for transport in TRANSPORTS:
        scores = compass(transport, (3, 4)).scores
        blind = (scores(x)[..., other, :][..., other] - scores(x[:, other])).abs().max() < 1e-12
        assert blind == (transport == "frames")


def test_the_steps_of_one_axis_commute_and_those_of_three_do_not():  # CS-beta
    x = double(12, 12)
    for transport in ("paths", "commuting"):
        one, other = cn.plaquettes(cn.read_compass(compass(transport, (3, 4)), x, 1)).flatten(0, 1)[:2]
        defect = (one @ other - other @ one).abs().max()
        assert defect < 1e-12 if transport == "commuting" else defect > 1e-2


@pytest.mark.parametrize(("transport", "rank"), [("paths", 9), ("frames", 3), ("order", 3), ("comb", 3)])
def test_the_way_matters_as_much_as_the_rank_of_all_transports(transport, rank):  # RF-FLAT
    """One inner product of three numbers for flat compasses; min(rows, columns) times as many for a curved one."""
    encoding, x = compass(transport, (3, 4), heads=1), double(1, 12, 12)
    basis = torch.eye(3).double().expand(1, 1, 12, 3, 3)
    scores = torch.zeros(12, 3, 12, 3).double()
    for a, b in itertools.product(range(3), repeat=2):
        u, w = basis[..., a : a + 1, :], basis[..., b : b + 1, :]
        scores[:, a, :, b] = encoding.transported(u, w, encoding.turns(x)).detach()[0, 0]
    assert torch.linalg.matrix_rank(scores.reshape(36, 36)) == rank


test_bad_input_is_named = refuses(
    (lambda: build("compass", width=8, heads=2, grid=(3, 3), transport="away"), "transport: got 'away'"),
    (lambda: cn.Compass(8, 2, (3, 3), vectors=0), "vectors: got 0"),
    (lambda: cn.Compass(8, 0, (3, 3)), "heads: got 0"),
    (lambda: cn.Compass(8, 2, (3, 3)).place(torch.zeros(5, 2)), "keys: got 5 rows"),
    (lambda: cn.cayley_rotation(torch.zeros(2)), "v: got shape"),
    (lambda: cn.carried_scores(torch.zeros(1, 3), torch.zeros(1, 3), []), "steps: got 0 axes"),
)


# A line with data-dependent steps --------------------------------------------------------------------------------


def test_householder_steps_are_flat_reflections_at_two_and_projections_at_one():  # RF-FLAT
    w, beta = double(6, 4), 2 * torch.rand(6).double()
    line = cn.householder_steps(w, beta)
    for m in range(1, 6):
        y = double(4)
        along = (y @ w[m]) * w[m] / (w[m] @ w[m])
        close(line.steps[0][m - 1] @ y, y - beta[m] * along)
    F = cn.to_frames(line)
    close(F[5] @ torch.linalg.inv(F[2]), cn.transport_along(line, cn.straight_path((2,), (5,))), 1e-7)
    mirror = cn.householder_steps(w, torch.full((6,), 2.0).double()).steps[0]
    close(mirror @ mirror, torch.eye(4).double().expand(5, 4, 4))
    with pytest.raises(ValueError, match="steps: got a singular matrix"):
        cn.householder_steps(w, torch.ones(6).double())


def test_a_compass_asked_by_the_last_cells_alone_reads_the_same_behind_keys_without_a_place():
    compass, x = build("compass", width=16, heads=2, grid=(3, 3)), torch.randn(2, 10, 16)
    places = torch.zeros(9, 2)
    whole = compass.place(places).with_prefix_tokens(1).log_gate(x)
    late = compass.place(places[7:], places).with_prefix_tokens(0, keys=1).log_gate(x)
    assert_close(late, whole[..., -2:, -9:])


def test_a_cell_that_no_query_may_see_turns_nothing():
    compass, x = build("compass", width=8, heads=1, grid=(3,), vectors=1), torch.randn(1, 3, 8)
    mask = torch.tensor([True, False, True])[None, None, None]
    got = compass.place(torch.zeros(3, 1)).masked_log_gate(x, mask)[0, 0, 2, 0]
    step = cn.cayley_rotation(compass.W_turn(x)[0, 2])
    assert_close(got, compass.W_u(x)[0, 2] @ step @ compass.W_w(x)[0, 0])
