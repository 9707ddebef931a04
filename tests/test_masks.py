"""Masks, dropout and shared heads: attention with them is the loop over the pairs that are left."""

import itertools
import math

import pytest
import torch
from torch.testing import assert_close

from geolib.attention import Encoding, Placed, attention, repeat_heads
from geolib.encodings import ALiBi, LocalityFocusing, build
from geolib.masks import document_mask, document_positions, padding_mask

F64 = torch.float64
BATCH, HEADS, GROUPS, QUERIES, KEYS, DIM = 2, 4, 2, 5, 7, 6


def case(seed=0, dtype=F64):
    g = torch.Generator().manual_seed(seed)
    shapes = ((HEADS, QUERIES), (GROUPS, KEYS), (GROUPS, KEYS))
    q, k, v = (torch.randn(BATCH, heads, tokens, DIM, generator=g, dtype=dtype) for heads, tokens in shapes)
    gate = torch.randn(HEADS, QUERIES, KEYS, generator=g, dtype=dtype)
    omega = torch.rand(HEADS, QUERIES, KEYS, generator=g, dtype=dtype)
    mask = torch.rand(BATCH, 1, QUERIES, KEYS, generator=g) < 0.6
    mask[1, 0, 2] = False  # a query that sees nothing
    return q, k, v, gate, omega, mask


def loop(q, k, v, gate, omega, mask, causal, scale=None):
    """One query at a time, in Python's own numbers; query head h reads the keys of head h GROUPS / HEADS."""
    y, factor = torch.zeros(*q.shape[:-1], v.shape[-1], dtype=F64), scale or 1 / math.sqrt(DIM)
    for b, h, i in itertools.product(range(BATCH), range(HEADS), range(QUERIES)):
        shared, last = h * k.shape[1] // HEADS, i + KEYS - QUERIES if causal else KEYS - 1
        seen = [j for j in range(last + 1) if mask is None or mask[b, 0, i, j]]
        scores = [factor * math.fsum((q[b, h, i] * k[b, shared, j]).tolist()) for j in seen]
        weights = [math.exp(s + (0 if gate is None else gate[h, i, j].item())) for s, j in zip(scores, seen)]
        for weight, j in zip(weights, seen):
            y[b, h, i] += weight / math.fsum(weights) * (1 if omega is None else omega[h, i, j]) * v[b, shared, j]
    return y


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("attenuated", [False, True])
def test_gradients_are_finite_where_a_query_sees_nothing(attenuated):
    q, k, v, gate, omega, mask = case()
    parts = [x.requires_grad_() for x in (q, k, v, gate)]
    y = attention(q, k, v, log_gate=gate, attenuation=omega if attenuated else None, mask=mask, causal=True)
    with torch.autograd.detect_anomaly():  # not even on the way, where a zero would hide it
        gradients = torch.autograd.grad(y.square().sum(), parts)
    assert all(g.isfinite().all() for g in gradients)
    assert (y[1, :, 2] == 0).all()
    assert (gradients[0][1, :, 2] == 0).all()


def test_gradients_of_shared_heads_and_masks_are_those_of_the_loop():
    q, k, v, gate, omega, mask = case()
    parts = [x.requires_grad_() for x in (q, k, v, gate, omega)]
    assert torch.autograd.gradcheck(lambda *x: attention(*x[:3], log_gate=x[3], attenuation=x[4], mask=mask), parts)


# Through a placed encoding -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", ["none", "rope", "alibi", "rmt", "lf", "gauss", "sympow-gates", "riemannformer+lf"])
def test_padding_changes_nothing(name, causal):
    """What padded tokens hold reaches no other token, in any method; each sequence is as it is alone."""
    encoding, lengths = build(name, width=HEADS * DIM, heads=HEADS, grid=(9,)).double(), torch.tensor([9, 6])
    q, k, v = torch.randn(3, 2, HEADS, 9, DIM, dtype=F64)
    x, positions = torch.randn(2, 9, HEADS * DIM, dtype=F64), torch.arange(9.0, dtype=F64)
    placed = encoding.place(positions)
    got = placed.attend(*placed.to_reference(q, k), v, placed.log_gate(x), causal=causal, mask=padding_mask(lengths, 9))
    alone = encoding.place(positions[:6])
    own = alone.to_reference(q[1:, :, :6], k[1:, :, :6])
    assert_close(got[1:, :, :6], alone.attend(*own, v[1:, :, :6], alone.log_gate(x[1:, :6]), causal=causal))


@pytest.mark.parametrize("name", ["rope", "alibi", "lf", "riemannformer", "rope+sympow"])
def test_packed_documents_are_as_they_are_alone(name):
    encoding = build(name, width=HEADS * DIM, heads=HEADS, grid=(9,)).double()
    documents = torch.tensor([3, 3, 3, 3, 8, 8, 1, 1, 1])
    q, k, v = torch.randn(3, 1, HEADS, 9, DIM, dtype=F64)
    placed = encoding.place(document_positions(documents).double())
    got = placed.attend(
        *placed.to_reference(q, k), v, placed.log_gate(None), causal=True, mask=document_mask(documents)
    )
    for document in (3, 8, 1):
        at = documents == document
        one = encoding.place(torch.arange(float(at.sum()), dtype=F64))
        own = (t[:, :, at] for t in (q, k))
        assert_close(got[:, :, at], one.attend(*one.to_reference(*own), v[:, :, at], one.log_gate(None), causal=True))


def test_documents_of_each_sample_have_their_own_positions():
    documents = torch.tensor([[0, 0, 1, 1, 1], [5, 5, 5, 5, 2]])
    assert document_positions(documents).tolist() == [[0, 1, 0, 1, 2], [0, 1, 2, 3, 0]]
    for row, mask in zip(documents.tolist(), document_mask(documents)):
        assert mask[0].tolist() == [[a == b for b in row] for a in row]


def test_no_sequences_have_no_mask_and_empty_ones_hide_all():
    for tokens in (0, 3):
        assert padding_mask(torch.zeros(0, dtype=torch.long), tokens).shape == (0, 1, 1, tokens)
    assert not padding_mask(torch.tensor([0]), 3).any()


# Dropout -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", [Encoding(), ALiBi(2), LocalityFocusing(Encoding(), 2, 1, 2.0)])
def test_dropout_keeps_or_drops_each_weight_and_keeps_the_mean(encoding):
    """With the identity for values the output is the weights: each is 0 or, of probability 3/4, 4/3 of what it was."""
    tokens, draws = 6, 2000
    q, placed = torch.randn(1, 2, tokens, 4), encoding.place(torch.arange(float(tokens)))
    eye, gate = torch.eye(tokens).expand(draws, 2, tokens, tokens), placed.log_gate(None)
    many = q.expand(draws, -1, -1, -1)
    usual = placed.weights(q, q, gate).detach()
    got = placed.attend(many, many, eye, gate, dropout=0.25).detach()
    zero = got == 0
    assert_close(torch.where(zero, 0.0, got), torch.where(zero, 0.0, usual / 0.75).expand_as(got))
    assert_close(zero.float().mean(0), torch.full_like(usual[0], 0.25), atol=0.05, rtol=0)  # five standard errors
    with pytest.raises(ValueError, match=r"dropout: got 1.0; a probability"):
        Placed().attend(q, q, q, dropout=1.0)


# Positions, heads and scales of others' models ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rope", "alibi", "riemannformer", "lf", "liere", "sympow-gates", "spherical"])
def test_one_axis_may_come_as_a_vector(name):
    encoding = build(name, width=24, heads=2, grid=(9,), layers=1)
    q, k, v = torch.randn(3, 1, 2, 9, 12)
    x, column = torch.randn(1, 9, 24), torch.arange(9.0)[:, None]
    results = []
    for own, others in ((column[-4:], column), (column[-4:, 0], column[:, 0])):
        placed = encoding.place(own, keys=others).layer(0)
        a, b = placed.to_reference(q[:, :, -4:], k)
        results.append(placed.attend(a, b, v, placed.log_gate(x)))
    assert torch.equal(*results)


@pytest.mark.parametrize("name", ["rope", "alibi", "rope+lf", "sympow-gates"])
def test_a_cache_gives_token_by_token_what_a_pass_gives(name):
    """Keys are carried once, when they come, and stay in the cache so; gates and Gaussians look at all of them."""
    encoding, positions = build(name, width=24, heads=2, grid=(9,)).double(), torch.arange(9.0, dtype=F64)
    q, k, v = torch.randn(3, 2, 2, 9, 12, dtype=F64)
    x = torch.randn(2, 9, 24, dtype=F64)
    placed = encoding.place(positions)
    whole = placed.attend(*placed.to_reference(q, k), v, placed.log_gate(x), causal=True)
    cache = k[:, :, :0]
    for t in range(9):
        here = slice(t, t + 1)
        beside = encoding.place(positions[here], keys=positions[: t + 1])
        a, b = encoding.place(positions[here]).to_reference(q[:, :, here], k[:, :, here])
        cache = torch.cat([cache, b], 2)
        y = beside.attend(a, cache, v[:, :, : t + 1], beside.log_gate(x[:, : t + 1]), causal=True)
        assert_close(y, whole[:, :, here])


@pytest.mark.parametrize("name", ["liere", "riemannformer", "rope-mixed", "riemannformer-relative"])
def test_heads_of_an_encodings_own_are_not_shared_by_accident(name):
    q, k, v = torch.randn(1, 4, 5, 8), *torch.randn(2, 1, 2, 5, 8)
    own = build(name, width=32, heads=4, grid=(5,)).place(torch.arange(5.0)).layer(0)
    with pytest.raises(ValueError, match=r"k: got shape \(1, 2, 5, 8\); the encoding has 4 heads of its own"):
        own.to_reference(q, k)
    a, b = own.to_reference(q, repeat_heads(k, 4))
    assert own.attend(a, b, repeat_heads(v, 4)).shape == q.shape
    shared = {"per_head": False} if "riemann" in name else {"share": "heads"}
    placed = build(name, width=32, heads=4, grid=(5,), **shared).place(torch.arange(5.0)).layer(0)
    a, b = placed.to_reference(q, k)
    wide = placed.to_reference(q, repeat_heads(k, 4))
    assert_close(placed.attend(a, b, v), placed.attend(*wide, repeat_heads(v, 4)))


def test_a_document_whose_number_comes_again_is_another_one():
    """As for its positions: a document is a stretch of equal numbers."""
    documents = torch.tensor([0, 0, 1, 1, 0, 0])
    assert torch.equal(document_mask(documents), document_mask(torch.tensor([0, 0, 1, 1, 2, 2])))
    assert document_positions(documents)[4:].tolist() == [0, 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gates_and_padding_in_front_close_a_row_together(dtype):
    """Causal gates let padding see padding alone, and the mask hides that: zeros, and no NaN in a derivative."""
    encoding = build("sympow-gates", width=16, heads=2, grid=(6,)).to(dtype)
    q, k, v = (torch.randn(1, 2, 6, 8, dtype=dtype).requires_grad_() for _ in range(3))
    x, seen = torch.randn(1, 6, 16, dtype=dtype), torch.arange(6) >= 2
    y = encoding.place(torch.arange(6)).attention(q, k, v, x, mask=seen)
    alone = encoding.place(torch.arange(6)[2:]).attention(*(t[:, :, 2:] for t in (q, k, v)), x[:, 2:])
    assert not y[:, :, :2].any()
    assert_close(y[:, :, 2:], alone, atol=2e-2, rtol=2e-2)
    assert all(g.isfinite().all() for g in torch.autograd.grad(y.sum(), (q, k, v)))


@pytest.mark.parametrize("omega", [None, torch.ones(3, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_gate_that_closes_a_row_gives_zeros(dtype, omega):
    """Also in training, where a processor writes narrow numbers out."""
    q, k, v = (torch.randn(1, 1, 3, 4, dtype=dtype).requires_grad_() for _ in range(3))
    gate = torch.zeros(3, 3).index_fill(0, torch.tensor(1), float("-inf"))
    y = attention(q, k, v, log_gate=gate, attenuation=omega)
    assert_close(y[..., [0, 2], :], attention(q, k, v)[..., [0, 2], :], atol=1e-2, rtol=1e-2)
    assert not y[..., 1, :].any()
    assert all(g.isfinite().all() for g in torch.autograd.grad(y.sum(), (q, k, v)))


def test_a_gate_leaves_out_what_its_query_must_not_see():  # siblings of a tree, and padding between
    encoding = build("sympow-gates", width=HEADS * DIM, heads=HEADS, grid=(9,)).double()
    q, k, v = torch.randn(3, 2, HEADS, 4, DIM, dtype=F64)
    x, positions = torch.randn(2, 4, HEADS * DIM, dtype=F64), torch.tensor([0.0, 1.0, 1.0, 2.0], dtype=F64)
    branch = torch.tensor([0, 2, 3])  # the tokens that the last one sees; token 1 is a sibling of token 2
    tree = torch.ones(4, 4, dtype=torch.bool).tril()
    tree[2:, 1] = False
    got = encoding.place(positions).attention(q, k, v, x, causal=True, mask=tree)
    alone = encoding.place(positions[branch])
    own = alone.attention(q[:, :, branch], k[:, :, branch], v[:, :, branch], x[:, branch], causal=True)
    assert_close(got[:, :, branch], own, atol=1e-12, rtol=0)
    prefixed = encoding.place(positions[1:]).with_prefix_tokens(1)  # the mask is for all tokens, placed or not
    placed = encoding.place(positions[branch][1:]).with_prefix_tokens(1)
    got = prefixed.attention(q, k, v, x, causal=True, mask=tree)
    own = placed.attention(q[:, :, branch], k[:, :, branch], v[:, :, branch], x[:, branch], causal=True)
    assert_close(got[:, :, branch], own, atol=1e-12, rtol=0)
