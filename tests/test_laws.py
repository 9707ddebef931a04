"""Laws that every method of the registry obeys, and an oracle of its own for each."""

import copy
import math

import methods
import numpy as np
import oracles
import pytest
import torch
from torch.testing import assert_close

from geolib.encodings import METHODS, WRAPPERS, FocusedByBlocks, build
from geolib.rotations import grid_positions

F32, F64 = torch.float32, torch.float64
GRIDS = [(7,), (3, 2), (2, 2, 2)]
HEADS, DIM = 2, 12
WRAPPED = [
    *("alibi+lf", "rope+gauss", "rope-mixed+sympow", "sympow-gates+sympow", "lf+sympow", "rmt+sympow", "liere+rmt"),
    *("riemannformer-relative+alibi", "riemannformer+lf", "rmt+lf", "liere+lf", "rope-axial+lf+alibi"),
    "sympow-gates+alibi",
]
OPTIONED = {  # methods with options of theirs, by a name of their own
    "liere, planes": ("liere", {"block": 2, "share": "layers"}),
    "liere, threes": ("liere", {"block": 3, "share": "all"}),
    "liere, blocks": ("liere", {"block": 4, "share": "heads"}),
    "rope-mixed, shared": ("rope-mixed", {"share": "all"}),
    "liere+lf, by layer": ("liere+lf", {"share": "heads", "lf": {"per_layer": True}}),
    "lf, by query": ("lf", {"per_position": True, "per_layer": True}),
    "riemannformer, by layer": ("riemannformer", {"per_layer": True, "per_head": False}),
    "riemannformer, free": ("riemannformer", {"law": "free", "law_options": {"origin": 0.3}}),
}
NAMES = [*METHODS, *WRAPPED, *(name for name in OPTIONED if name != "riemannformer, free")]  # it has no oracle
every_name = pytest.mark.parametrize("name", NAMES)
every_grid = pytest.mark.parametrize("grid", GRIDS, ids=["1d", "2d", "3d"])


def plain(name):
    """The name in the registry."""
    return OPTIONED[name][0] if name in OPTIONED else name


def made(name, grid, **options):
    """A method of two layers, for heads of 12 features."""
    own = OPTIONED.get(name, (name, {}))[1]
    return build(plain(name), width=HEADS * DIM, heads=HEADS, grid=grid, layers=2, **own, **options)


def stirred(name, grid, **options):
    """A method in float64 whose parameters have left their start."""
    encoding = made(name, grid, **options).double()
    with torch.no_grad():
        for p in encoding.parameters():
            p += 0.2 * torch.randn_like(p)
    return encoding


def drawn(grid, batch=2):
    """Queries, keys, values of another width and inputs in float64, and where they stand."""
    tokens = math.prod(grid)
    q, k = torch.randn(2, batch, HEADS, tokens, DIM, dtype=F64)
    v = torch.randn(batch, HEADS, tokens, DIM + 4, dtype=F64)
    return q, k, v, torch.randn(batch, tokens, HEADS * DIM, dtype=F64), grid_positions(*grid).double()


def entries(name):
    """What the tests know of the parts of a name."""
    method, *wrappers = plain(name).split("+")
    return [methods.METHODS[method], *(methods.WRAPPERS[wrapper] for wrapper in wrappers)]


def of_cells(name):
    """Whether a method knows the cells of its grid alone."""
    return entries(name)[0].of_cells


def weights_of(placed, q, k, x):
    """The weights of a layer, as attention makes them."""
    a, b = placed.to_reference(q, k)
    return placed.weights(a, b, placed.log_gate(x))


def hooks(placed, q, k, x):
    """What a layer gets: queries, keys, and the gate and the attenuation where there are any."""
    return [y for y in (*placed.to_reference(q, k), placed.log_gate(x), placed.attenuation()) if y is not None]


def test_every_method_and_wrapper_has_an_entry():
    assert set(METHODS) == set(methods.METHODS), "each name of the registry has an entry in tests/methods.py"
    assert set(WRAPPERS) == set(methods.WRAPPERS) == {word for name in WRAPPED for word in name.split("+")[1:]}


# The numbers themselves -----------------------------------------------------------------------------------------------


@every_grid
@every_name
def test_weights_are_those_of_the_oracle(name, grid):
    encoding = stirred(name, grid)
    q, k, _, x, cells = drawn(grid)
    moved = [] if of_cells(name) else [cells + 0.37 * torch.randn_like(cells)]
    for positions in (cells, *moved):
        placed = encoding.place(positions)
        for layer in range(2):
            b = layer  # one sample for each layer: a batch is its samples, as a test below says
            got = weights_of(placed.layer(layer), q, k, x)[b].detach().numpy()
            for head in range(HEADS):
                expected = methods.oracle(plain(name), encoding, grid, DIM, layer, head)
                wanted = oracles.weights(
                    expected, q[b, head].numpy(), k[b, head].numpy(), positions.numpy(), x[b].numpy()
                )
                np.testing.assert_allclose(got[head], wanted, atol=1e-12, rtol=1e-10)


@every_grid
@pytest.mark.parametrize("name", [*METHODS, *(f"sinusoidal+{wrapper}" for wrapper in WRAPPERS)])
def test_embeddings_are_those_of_the_oracle(name, grid):
    encoding, (_, _, _, x, positions) = stirred(name, grid), drawn(grid)
    got = (encoding.embed(x, positions) - x).detach().numpy()
    added = entries(name)[0].added or (lambda encoding, width, p: np.zeros(width))
    for token, p in enumerate(positions.numpy()):
        wanted = added(encoding, HEADS * DIM, p)
        np.testing.assert_allclose(got[:, token], np.broadcast_to(wanted, got[:, token].shape), atol=1e-12)


@every_grid
@every_name
def test_weights_are_relative_where_that_is_said(name, grid):  # RF-13, RF-21, CS-1, LR-SHIFT, LR-T1
    """A common shift of all positions changes no weight."""
    encoding, (q, k, _, x, positions) = stirred(name, grid), drawn(grid)
    here, there = (weights_of(encoding.place(p).layer(1), q, k, x) for p in (positions, positions + 2.5))
    if name == "liere, planes" or all(entry.relative >= len(grid) for entry in entries(name)):
        assert_close(there, here, atol=1e-9, rtol=1e-9)
    else:
        assert (there - here).abs().max() > 1e-3


# Precision ------------------------------------------------------------------------------------------------------------


@every_name
def test_neither_autocast_nor_float32_before_costs_digits(name):
    """Blocks of more than two features are matrix products with queries and keys, which autocast may round."""
    encoding, (q, k, _, x, positions), found = stirred(name, GRIDS[1]), drawn(GRIDS[1]), []
    near = 0.05 if name == "spherical" or (name.startswith("liere") and name != "liere, planes") else 0.0
    for dtype, own in ((F64, encoding), (F32, copy.deepcopy(encoding).float()), (F64, encoding)):
        given = [y.to(dtype) for y in (q, k, x)]
        for cast in (False, True):
            with torch.autocast("cpu", torch.bfloat16, enabled=cast):
                placed = own.place(31.7 + positions.to(dtype)).layer(0)
                found.append(hooks(placed, *given)[: 2 if entries(name)[0].of_data else None])
    for exact, cast in zip(found[::2], found[1::2]):
        assert_close(cast, exact, atol=near if exact[0].dtype == F32 else 0.0, rtol=0)
    assert_close(found[-1], found[0], atol=0, rtol=0)


@every_name
def test_whole_positions_in_float32_or_whole_numbers_cost_wide_parameters_no_digits(name):
    encoding, (q, k, _, x, positions) = stirred(name, GRIDS[1]), drawn(GRIDS[1])
    wide, *others = (encoding.place(p).layer(1) for p in (positions, positions.float(), positions.long()))
    for narrow in others:
        assert_close(weights_of(narrow, q, k, x), weights_of(wide, q, k, x), atol=1e-13, rtol=1e-12)
    for p in (positions.float(), positions.long()):
        assert_close(encoding.embed(x, p), encoding.embed(x, positions), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("name", [name for name in (*NAMES, "riemannformer, free") if not of_cells(name)])
@pytest.mark.filterwarnings("ignore:positions in bfloat16 are fractions")
def test_positions_in_narrow_types_are_worked_with_in_float32(name):
    """Only the rounding of the positions themselves is left."""
    encoding, (q, k, _, x, positions) = stirred(name, GRIDS[1]).float(), drawn(GRIDS[1])
    q, k, x, positions = q.float(), k.float(), x.float(), (7.3 * positions).bfloat16()
    both = [[encoding.embed(x, p), *hooks(encoding.place(p).layer(1), q, k, x)] for p in (positions, positions.float())]
    assert_close(*both, atol=0, rtol=0)


@every_name
def test_narrow_numbers_are_near_and_keep_their_dtype(name):
    encoding, (q, k, _, x, positions) = stirred(name, GRIDS[1]), drawn(GRIDS[1])
    exact = weights_of(encoding.place(positions).layer(1), q, k, x).detach()
    placed = encoding.float().place(positions.float()).layer(1)
    for dtype in (F32, torch.bfloat16):
        a, b = placed.to_reference(q.to(dtype), k.to(dtype))
        assert a.dtype == b.dtype == encoding.embed(x.to(dtype), positions).dtype == dtype
        assert a.isfinite().all()
        assert b.isfinite().all()
    assert_close(weights_of(placed, q.float(), k.float(), x.float()).detach().double(), exact, atol=2e-5, rtol=2e-4)


# One or many, whole or in parts ---------------------------------------------------------------------------------------


@every_grid
@every_name
def test_a_batch_is_its_samples_and_a_call_leaves_no_trace(name, grid):
    encoding, (q, k, v, x, positions) = stirred(name, grid), drawn(grid, batch=3)
    placed = encoding.place(positions).layer(1)
    whole = placed.attention(q, k, v, x)
    for b in range(3):
        one = slice(b, b + 1)
        assert_close(whole[one], placed.attention(q[one], k[one], v[one], x[one]), atol=1e-13, rtol=1e-12)
    assert_close(placed.attention(q, k, v, x), whole, atol=0, rtol=0)


@every_grid
@every_name
def test_a_token_that_no_query_may_see_reaches_none(name, grid):  # NaN in the layer's input, anything in q, k and v
    encoding, (q, k, v, x, positions) = stirred(name, grid), drawn(grid)
    others = torch.arange(q.shape[-2]) != q.shape[-2] // 2
    placed, kept = encoding.place(positions).layer(1), []
    for inside in (0.0, 3.0):
        q, k, v = (y + inside * ~others[:, None] for y in (q, k, v))
        X = x.masked_fill(~others[:, None], math.nan) if inside else x
        kept.append(placed.attention(q, k, v, X, mask=others)[..., others, :])
    assert_close(*kept, atol=0, rtol=0)


@every_name
def test_weights_times_values_are_what_attend_returns_and_tokens_without_a_place_stay(name):
    encoding, (q, k, v, x, positions) = stirred(name, GRIDS[1]), drawn(GRIDS[1])
    alone = encoding.place(positions).layer(0)
    for extra in (0, 2):  # tokens in front that have no place
        Q, K, V = (torch.cat([torch.randn(2, HEADS, extra, y.shape[-1], dtype=F64), y], 2) for y in (q, k, v))
        X = torch.cat([torch.randn(2, extra, HEADS * DIM, dtype=F64), x], 1)
        placed = encoding.place(positions).with_prefix_tokens(extra).layer(0)
        assert_close(placed.attention(Q, K, V, X), weights_of(placed, Q, K, X) @ V, atol=1e-12, rtol=1e-10)
        for given, carried in zip((Q, K), placed.to_reference(Q, K)):
            assert torch.equal(carried[..., :extra, :], given[..., :extra, :])
        for front, own in zip(hooks(placed, Q, K, X), hooks(alone, q, k, x), strict=True):
            # Placed tokens are told by their own rows, as near as products in another layout of memory are.
            assert_close(front[..., -own.shape[-2] :, :], own, atol=1e-13, rtol=1e-13)


@every_name
def test_the_form_for_long_sequences_computes_the_same(name, monkeypatch):  # RF-FUSED
    encoding, (q, k, v, x, positions), results = stirred(name, GRIDS[1]), drawn(GRIDS[1]), []
    q, k, v = (torch.cat([y[..., :1, :], y], 2) for y in (q, k, v))  # behind a token without a place
    learned = [y.requires_grad_() for y in (q, k, v, *encoding.parameters())]
    for least in (1, len(positions) + 1):
        monkeypatch.setattr(FocusedByBlocks, "least", least)
        placed = encoding.place(positions).with_prefix_tokens(1)
        found = [placed.layer(i).attention(q, k, v, torch.cat([x[:, :1], x], 1)) for i in range(2)]
        options = {"allow_unused": True, "materialize_grads": True}
        results.append([*found, *torch.autograd.grad(sum(y.sin().sum() for y in found), learned, **options)])
    assert_close(*results, atol=1e-12, rtol=1e-10)


@every_name
def test_memory_layout_does_not_matter(name):
    encoding, (q, k, _, x, positions) = stirred(name, GRIDS[2]), drawn(GRIDS[2])
    wanted = weights_of(encoding.place(positions).layer(0), q, k, x)
    strided = [y.transpose(1, 3).contiguous().transpose(1, 3) for y in (q, k)]
    apart = torch.stack([positions, -positions], -1)[..., 0]
    assert not apart.is_contiguous()
    got = weights_of(encoding.place(apart).layer(0), *strided, x.mT.contiguous().mT)
    assert_close(got, wanted, atol=1e-13, rtol=1e-12)


# Gradients ------------------------------------------------------------------------------------------------------------


class Pass(torch.nn.Module):
    """One pass through an encoding, as a function of where tokens stand and of what they hold."""

    def __init__(self, encoding, q, k, v):
        super().__init__()
        self.encoding, self.qkv = encoding, (q, k, v)

    def forward(self, positions, x):
        y = self.encoding.embed(x, positions)
        out = self.encoding.place(positions).layer(1).attention(*self.qkv, y)
        return out.square().sum() + y.square().sum()


@every_name
def test_gradients_are_the_numerical_ones(name):
    grid = (2, 2)
    learned = {"learn_angles": True} if name in METHODS and name.startswith("riemannformer") else {}
    encoding, (q, k, v, x, positions) = stirred(name, grid, **learned), drawn(grid, batch=1)
    one = Pass(encoding, q, k, v)
    names, parameters = [key for key, _ in one.named_parameters()], [*one.parameters()]
    if not of_cells(name):
        positions = positions + 0.1 * torch.rand_like(positions)

    def loss(positions, x, *values):
        return torch.func.functional_call(one, dict(zip(names, values)), (positions, x))

    leaves = [y.detach().clone().requires_grad_() for y in (positions, x, *parameters)]
    leaves[0].requires_grad_(not of_cells(name) and all(entry.smooth for entry in entries(name)))
    assert torch.autograd.gradcheck(loss, leaves, atol=1e-6, fast_mode=True)
