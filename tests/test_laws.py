"""Laws that every method of the registry obeys, by hypothesis and by an oracle of its own.

Few examples run in ``make test``; ``HYPOTHESIS_PROFILE=many`` runs many.
"""

import math

import methods
import numpy as np
import oracles
import pytest
import torch
from torch.testing import assert_close

from geolib.attention import attention_weights
from geolib.encodings import METHODS, WRAPPERS, FocusedByBlocks, build
from geolib.rotations import grid_positions

F64 = torch.float64
GRIDS = [(7,), (3, 2), (2, 2, 2)]
HEADS, DIM = 2, 12
WRAPPED = [
    "alibi+lf",
    "rope+gauss",
    "rope-mixed+sympow",
    "sympow-gates+sympow",
    "lf+sympow",
    "rmt+sympow",
    "riemannformer-relative+alibi",
    "liere+rmt",
]
NAMES = [*METHODS, *WRAPPED, "riemannformer+lf", "liere+lf", "rope-axial+lf+alibi"]
every_name = pytest.mark.parametrize("name", NAMES)
every_grid = pytest.mark.parametrize("grid", GRIDS, ids=["1d", "2d", "3d"])


def stirred(name, grid, layers=2, **options):
    """A method in float64 whose parameters have left their start."""
    encoding = build(name, width=HEADS * DIM, heads=HEADS, grid=grid, layers=layers, **options).double()
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


def of_cells(name):
    """Whether a method knows the cells of its grid alone."""
    return methods.METHODS[name.split("+")[0]].of_cells


def is_smooth(name):
    """Whether there is a derivative by every position."""
    method, *wrappers = name.split("+")
    return methods.METHODS[method].smooth and all(methods.WRAPPERS[wrapper].smooth for wrapper in wrappers)


def weights_of(placed, q, k, x):
    """The weights of a layer, as attention makes them."""
    a, b = placed.to_reference(q, k)
    return placed.weights(a, b, placed.log_gate(x))


def test_every_method_and_wrapper_has_an_entry():
    assert set(METHODS) == set(methods.METHODS), "each name of the registry has an entry in tests/methods.py"
    assert set(WRAPPERS) == set(methods.WRAPPERS) == {word for name in NAMES for word in name.split("+")[1:]}


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
                expected = methods.oracle(name, encoding, grid, DIM, layer, head)
                wanted = oracles.weights(
                    expected, q[b, head].numpy(), k[b, head].numpy(), positions.numpy(), x[b].numpy()
                )
                np.testing.assert_allclose(got[head], wanted, atol=1e-12, rtol=1e-10)


@every_grid
@pytest.mark.parametrize("name", METHODS)
def test_embeddings_are_those_of_the_oracle(name, grid):
    encoding, (_, _, _, x, positions) = stirred(name, grid), drawn(grid)
    got = (encoding.embed(x, positions) - x).detach().numpy()
    added = methods.METHODS[name].added or (lambda encoding, width, p: np.zeros(width))
    for token, p in enumerate(positions.numpy()):
        wanted = added(encoding, HEADS * DIM, p)
        np.testing.assert_allclose(got[:, token], np.broadcast_to(wanted, got[:, token].shape), atol=1e-12)


# Precision ------------------------------------------------------------------------------------------------------------


@every_name
def test_float64_in_one_place_is_not_lost_to_float32_in_another(name):
    grid = GRIDS[1]
    encoding, (q, k, _, x, positions) = stirred(name, grid), drawn(grid)
    exact = weights_of(encoding.place(positions).layer(0), q, k, x)
    again = encoding.place(positions).layer(0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a, b = again.to_reference(q, k)
    assert a.dtype == b.dtype == F64
    scores = attention_weights(*encoding.place(positions).layer(0).to_reference(q, k))
    assert_close(attention_weights(a, b), scores, atol=1e-13, rtol=1e-12)
    # float32 first does not colour what comes after.
    encoding.place(positions.float()).layer(0).to_reference(q.float(), k.float())
    assert torch.equal(weights_of(encoding.place(positions).layer(0), q, k, x), exact)


@every_name
def test_whole_positions_in_float32_or_whole_numbers_cost_wide_parameters_no_digits(name):
    encoding, (q, k, _, x, positions) = stirred(name, GRIDS[1]), drawn(GRIDS[1])
    wide, *others = (encoding.place(p).layer(1) for p in (positions, positions.float(), positions.long()))
    for narrow in others:
        assert_close(weights_of(narrow, q, k, x), weights_of(wide, q, k, x), atol=1e-13, rtol=1e-12)
    for p in (positions.float(), positions.long()):
        assert_close(encoding.embed(x, p), encoding.embed(x, positions), atol=1e-6, rtol=1e-6)


@every_name
def test_float32_is_near_and_keeps_its_dtype(name):
    grid = GRIDS[1]
    encoding, (q, k, _, x, positions) = stirred(name, grid), drawn(grid)
    exact = weights_of(encoding.place(positions).layer(1), q, k, x).detach()
    narrow = encoding.float().place(positions.float()).layer(1)
    a, b = narrow.to_reference(q.float(), k.float())
    assert a.dtype == b.dtype == torch.float32
    assert_close(weights_of(narrow, q.float(), k.float(), x.float()).detach().double(), exact, atol=2e-5, rtol=2e-4)


# One or many, whole or in parts ---------------------------------------------------------------------------------------


@every_grid
@every_name
def test_a_batch_is_its_samples_and_a_call_leaves_no_trace(name, grid):
    encoding, (q, k, v, x, positions) = stirred(name, grid), drawn(grid, batch=3)
    placed = encoding.place(positions).layer(1)
    whole = placed.attend(*placed.to_reference(q, k), v, log_gate=placed.log_gate(x))
    for b in range(3):
        one = slice(b, b + 1)
        alone = placed.attend(*placed.to_reference(q[one], k[one]), v[one], log_gate=placed.log_gate(x[one]))
        assert_close(whole[one], alone, atol=1e-13, rtol=1e-12)
    assert_close(placed.attend(*placed.to_reference(q, k), v, log_gate=placed.log_gate(x)), whole, atol=0, rtol=0)


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
def test_weights_times_values_are_what_attend_returns(name):
    encoding, (q, k, v, x, positions) = stirred(name, GRIDS[1]), drawn(GRIDS[1])
    for extra in (0, 2):  # tokens in front that have no place
        Q, K, V = (torch.cat([torch.randn(2, HEADS, extra, y.shape[-1], dtype=F64), y], 2) for y in (q, k, v))
        X = torch.cat([torch.randn(2, extra, HEADS * DIM, dtype=F64), x], 1)
        placed = encoding.place(positions).with_prefix_tokens(extra).layer(0)
        got = placed.attend(*placed.to_reference(Q, K), V, log_gate=placed.log_gate(X))
        assert_close(got, weights_of(placed, Q, K, X) @ V, atol=1e-12, rtol=1e-10)
        alone = encoding.place(positions).layer(0)  # placed tokens are told by their own rows
        for front, own in zip(
            (*placed.to_reference(Q, K), placed.log_gate(X)), (*alone.to_reference(q, k), alone.log_gate(x))
        ):
            if own is not None or front is not None:  # as near as products in another layout of memory are
                assert_close(front[..., -own.shape[-2] :, :], own, atol=1e-13, rtol=1e-13)


@every_name
def test_the_form_for_long_sequences_computes_the_same(name, monkeypatch):
    encoding, (q, k, v, x, positions) = stirred(name, GRIDS[1]), drawn(GRIDS[1])
    results = []
    for least in (1, len(positions) + 1):
        monkeypatch.setattr(FocusedByBlocks, "least", least)
        results.append([encoding.place(positions).layer(layer).attention(q, k, v, x) for layer in range(2)])
    for long, short in zip(*results):
        assert_close(long, short, atol=1e-12, rtol=1e-10)


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


@pytest.mark.parametrize("name", [name for name in NAMES if not of_cells(name)])
def test_gradients_are_the_numerical_ones(name):
    grid = (2, 2)
    encoding, (q, k, v, x, positions) = (
        stirred(name, grid, learn_angles=True)
        if (name.startswith("riemannformer") and "+" not in name)
        else stirred(name, grid),
        drawn(grid, batch=1),
    )
    positions = positions + 0.1 * torch.rand_like(positions)
    names, parameters = zip(*encoding.named_parameters()) if list(encoding.parameters()) else ((), ())

    def loss(positions, x, *values):
        def run(q):
            placed = encoding.place(positions).layer(1)
            y = encoding.embed(x, positions)
            out = placed.attend(*placed.to_reference(q, k), v, log_gate=placed.log_gate(y))
            return out.square().sum() + y.square().sum()

        if not names:
            return run(q)
        return torch.func.functional_call(_Runs(encoding, run), {f"encoding.{n}": p for n, p in zip(names, values)}, q)

    leaves = [y.detach().clone().requires_grad_() for y in (positions, x, *parameters)]
    leaves[0].requires_grad_(is_smooth(name))
    assert torch.autograd.gradcheck(loss, leaves, atol=1e-6, fast_mode=True)


class _Runs(torch.nn.Module):
    """A function of one argument beside the encoding whose parameters it uses."""

    def __init__(self, encoding, run):
        super().__init__()
        self.encoding, self.run = encoding, run

    def forward(self, q):
        return self.run(q)
