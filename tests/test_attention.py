"""Attention against a loop in float64: gates, masks, shared heads, dropout, narrow numbers; and a layer's contract."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from often import double
from torch.testing import assert_close

from geolib import _written
from geolib._written import LONGEST
from geolib.attention import Encoding, MultiHeadAttention, Placed, attention, attention_weights, repeat_heads
from geolib.encodings import ALiBi, LocalityFocusing, PowerScores, build
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
    act = lambda q, k, v, gate, omega: attention(q, k, v, log_gate=gate, attenuation=omega, mask=mask)  # noqa: E731
    assert torch.autograd.gradcheck(act, parts, fast_mode=True)


@pytest.mark.parametrize("scale", [None, 0.9])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("attenuated", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_is_the_loop(causal, gated, attenuated, masked, scale):  # RF-19, RF-20
    q, k, v, gate, omega, mask = case()
    gate, omega, mask = gate if gated else None, omega if attenuated else None, mask if masked else None
    options = {"log_gate": gate, "attenuation": omega, "causal": causal, "mask": mask, "scale": scale}
    got = attention(q, k, v, **options)
    assert_close(got, loop(q, k, v, gate, omega, mask, causal, scale), atol=1e-12, rtol=1e-10)
    assert_close(attention_weights(q, k, **options) @ v.repeat_interleave(2, 1), got, atol=1e-12, rtol=1e-10)


def test_narrow_weights_are_dropped_as_wide_ones_are():
    q = torch.zeros(1, 1, 4, 8, dtype=torch.bfloat16, requires_grad=True)
    y = attention(q, q, torch.eye(4, dtype=torch.bfloat16)[None, None], dropout=0.5)
    assert set(y.flatten().tolist()) == {0.0, 0.5}


@pytest.mark.parametrize(("queries", "keys"), [(LONGEST, LONGEST), (LONGEST + 1, 2), (2, LONGEST + 1)])
def test_long_sequences_are_left_to_the_fused_kernel(queries, keys):
    q, k = (torch.zeros(2, tokens, 4, dtype=torch.bfloat16) for tokens in (queries, keys))
    assert ("WrittenOut" in attention(q.requires_grad_(), k, k).grad_fn.name()) == (max(queries, keys) == LONGEST)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_without_gates_it_is_the_fused_kernel_itself(dtype):
    q, k, v = torch.randn(3, 1, 2, 70, 8).to(dtype)
    with torch.no_grad():
        for causal in (False, True):
            wanted = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
            assert torch.equal(attention(q, k, v, causal=causal), wanted)


class Reading(Placed):
    """A gate that depends on the data."""

    def log_gate(self, x):
        return x.mean(-1)[:, None, None].expand(-1, 1, x.shape[1], -1)


FADING = build("sympow-gates", width=8, heads=2, grid=(5,)).double().place(torch.arange(5.0).double())


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("placed", [Reading(), FADING])  # whose gates are those of the tokens that a query sees
def test_the_weights_of_a_layer_are_those_it_adds_values_up_by(causal, placed):
    layer, x, mask = MultiHeadAttention(8, 2, causal).double(), double(2, 5, 8), torch.rand(2, 1, 5, 5) < 0.7
    v = (x @ layer.qkv.weight[16:].mT).unflatten(-1, (2, 4)).transpose(1, 2)
    added = layer.weights(x, placed, mask) @ v
    assert_close(layer(x, placed, mask), layer.out(added.transpose(1, 2).flatten(2)))


@pytest.mark.parametrize("options", [{}, {"log_gate": torch.zeros(5, 5)}, {"attenuation": torch.ones(5, 5)}])
def test_a_result_has_the_values_precision_whatever_queries_and_keys_have(options):
    q, k, v = torch.randn(3, 1, 2, 5, 4)
    assert attention(q, k.double(), v.bfloat16(), **options).dtype == torch.bfloat16
    assert attention(q.bfloat16(), k, v.double(), **options).dtype == F64


def test_a_layer_drops_weights_in_training_alone():
    layer, plain, x = MultiHeadAttention(16, 2, dropout=0.5), MultiHeadAttention(16, 2), torch.randn(1, 9, 16)
    plain.load_state_dict(layer.state_dict())
    assert not torch.allclose(layer(x, Placed()), plain(x, Placed()))
    assert_close(layer.eval()(x, Placed()), plain(x, Placed()))


@pytest.mark.parametrize("heads", [1, 3])
def test_attention_without_positions_is_permutation_equivariant(heads):  # RF-PE
    layer, x, order = MultiHeadAttention(24, heads).double(), double(2, 9, 24), torch.randperm(9)
    assert_close(layer(x[:, order], Placed()), layer(x, Placed())[:, order])


@pytest.mark.parametrize("layers", [1, 2])
def test_causal_attention_of_equal_tokens_has_equal_outputs(layers):  # RF-PE
    x, nowhere = torch.randn(1, 1, 16).expand(1, 9, 16), Encoding().place(torch.zeros(0, 1))
    for _ in range(layers):
        x = MultiHeadAttention(width=16, heads=2, causal=True)(x, nowhere)
    assert_close(x, x[:, :1].expand(1, 9, 16))


def test_a_causal_layer_counts_from_a_marked_first_token():  # RF-PE
    first = torch.eye(9)[:, :1]
    count = attention(torch.zeros(9, 4), torch.randn(9, 4), first, causal=True)
    assert_close(count[:, 0], 1 / torch.arange(1.0, 10))


def test_one_causal_layer_sees_the_past_as_a_bag_and_two_do_not():  # RF-PE
    one, two = (MultiHeadAttention(width=16, heads=2, causal=True).double() for _ in range(2))
    x, nowhere = torch.randn(1, 6, 16).double(), Encoding().place(torch.zeros(0, 1))
    swapped = x[:, [2, 0, 1, 3, 4, 5]]
    assert_close(one(swapped, nowhere)[:, 3:], one(x, nowhere)[:, 3:])
    assert not torch.allclose(two(one(swapped, nowhere), nowhere)[:, 3:], two(one(x, nowhere), nowhere)[:, 3:])


def test_attenuation_leaves_tokens_without_a_place_alone():  # RF-19
    class Blind(Placed):
        """Sees nothing of the four placed tokens."""

        def attenuation(self):
            return torch.zeros(4, 4)

    layer, x = MultiHeadAttention(8, 2).double(), double(1, 5, 8)
    got, plain = layer(x, Blind().with_prefix_tokens(1)), layer(x, Placed())
    assert_close(got[:, 0], plain[:, 0])  # the CLS token still sees everything
    assert not torch.allclose(got[:, 1:], plain[:, 1:])  # the others see it alone


@pytest.mark.parametrize("fill", [0.0, 1.0])
def test_what_stands_before_queries_and_what_before_keys_are_filled_apart(fill):
    table, q, k = torch.randn(2, 3, 4), torch.zeros(1, 2, 5, 4), torch.zeros(1, 2, 9, 4)
    found = Placed().with_prefix_tokens(2, keys=5).for_all(table, q, k, fill)
    wanted = torch.full((2, 5, 9), fill)
    wanted[:, 2:, 5:] = table
    assert torch.equal(found, wanted)


# Through a placed encoding -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rope", "alibi", "lf", "riemannformer", "rope+sympow"])
def test_packed_documents_are_as_they_are_alone(name):
    """A document is a stretch of equal numbers, for its positions and for what it sees; a number may come again."""
    encoding = build(name, width=HEADS * DIM, heads=HEADS, grid=(9,)).double()
    documents, lengths = torch.tensor([3, 3, 3, 3, 8, 8, 3, 3, 3]), (4, 2, 3)
    given, places = torch.randn(3, 1, HEADS, 9, DIM, dtype=F64), document_positions(documents)
    got = encoding.place(places.double()).attention(*given, causal=True, mask=document_mask(documents))
    for part, *own in zip(*(t.split(lengths, -2) for t in (got, *given))):
        one = encoding.place(torch.arange(float(part.shape[-2]), dtype=F64))
        assert_close(part, one.attention(*own, causal=True))


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


FOCUS = LocalityFocusing(Encoding(), 2, 1, 2.0)


def test_whole_places_beside_fractional_ones_of_float64_keep_their_digits():
    whole, wide = torch.tensor([2**24 + 1]), torch.tensor([2.0**24 + 1], dtype=F64)
    for places in ((whole, wide), (wide, whole)):
        assert ALiBi(1, slopes=[1.0]).place(*places).log_gate(None) == 0
        assert LocalityFocusing(Encoding(), 1, 1, 1.0).place(*places).attenuation() == 1


def test_powers_do_not_depend_on_a_number_added_to_a_row_of_gates():
    q, k, v = torch.randn(3, 1, 2, 4, 6).unbind(0)
    placed, mask = PowerScores(ALiBi(2)).place(torch.arange(4.0)), torch.ones(4, 4, dtype=torch.bool).tril()
    gate = placed.log_gate(None)
    for added in (500.0, -500.0):
        assert_close(placed.attend(q, k, v, gate + added, mask=mask), placed.attend(q, k, v, gate, mask=mask))


@pytest.mark.parametrize("encoding", [Encoding(), ALiBi(2), FOCUS, PowerScores(ALiBi(2))], ids=repr)
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


# Positions, heads and scales of others' models ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rope", "alibi", "riemannformer", "lf", "liere", "sympow-gates", "spherical"])
def test_one_axis_may_come_as_a_vector(name):
    encoding = build(name, width=24, heads=2, grid=(9,), layers=1)
    (q, k, v), x, column = torch.randn(3, 1, 2, 9, 12), torch.randn(1, 9, 24), torch.arange(9.0)[:, None]
    placed = [encoding.place(places[-4:], keys=places).layer(0) for places in (column, column[:, 0])]
    assert torch.equal(*(each.attention(q[:, :, -4:], k, v, x) for each in placed))


@pytest.mark.parametrize("name", ["liere", "riemannformer", "rope-mixed", "riemannformer-relative"])
def test_heads_of_an_encodings_own_are_not_shared_by_accident(name):
    q, k, v = torch.randn(1, 4, 5, 8), *torch.randn(2, 1, 2, 5, 8)
    own = build(name, width=32, heads=4, grid=(5,)).place(torch.arange(5.0)).layer(0)
    with pytest.raises(ValueError, match=r"k: got shape \(1, 2, 5, 8\); the encoding has 4 heads of its own"):
        own.attention(q, k, v)
    assert own.attention(q, repeat_heads(k, 4), repeat_heads(v, 4)).shape == q.shape
    shared = {"per_head": False} if "riemann" in name else {"share": "heads"}
    placed = build(name, width=32, heads=4, grid=(5,), **shared).place(torch.arange(5.0)).layer(0)
    assert_close(placed.attention(q, k, v), placed.attention(q, repeat_heads(k, 4), repeat_heads(v, 4)))


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
    q, k, v = torch.randn(3, 2, HEADS, 5, DIM, dtype=F64)
    x, positions = torch.randn(2, 5, HEADS * DIM, dtype=F64), torch.tensor([0.0, 1.0, 2.0, 2.0, 3.0], dtype=F64)
    branch = torch.tensor([0, 1, 3, 4])  # the tokens that the last one sees; token 2 is a sibling of token 3
    tree = torch.ones(5, 5, dtype=torch.bool).tril()
    tree[3:, 2] = False
    for prefix in (0, 1):  # the mask is for all tokens, placed or not
        whole = encoding.place(positions[prefix:]).with_prefix_tokens(prefix)
        alone = encoding.place(positions[branch][prefix:]).with_prefix_tokens(prefix)
        got = whole.attention(q, k, v, x, causal=True, mask=tree)
        own = alone.attention(q[:, :, branch], k[:, :, branch], v[:, :, branch], x[:, branch], causal=True)
        assert_close(got[:, :, branch], own, atol=1e-12, rtol=0)


# Written out for training in bfloat16 ---------------------------------------------------------------------------------


def parts(batch=3, heads=2, tokens=7, dim=6, dtype=torch.bfloat16):
    """Queries, keys and values as a layer has them: strided, narrow, large enough for uneven weights."""
    qkv = (2 * torch.randn(batch, tokens, 3, heads, dim)).to(dtype)
    return [part.transpose(1, 2) for part in qkv.unbind(2)]


def results(act, tensors, dtype):
    """What act makes of tensors in a dtype, and the gradients of a fixed product with it, in float64."""
    wide = torch.promote_types(dtype, torch.float32)
    leaves = [t.detach().to(dtype if i < 3 else wide).requires_grad_() for i, t in enumerate(tensors)]
    out = act(*leaves)
    out.backward(torch.linspace(-1, 1, out.numel()).view(out.shape).to(out.dtype))
    return [x.double() for x in (out.detach(), *(leaf.grad for leaf in leaves))]


OPTIONS = [{}, {"scale": 0.7}, {"causal": True}, {"mask": torch.arange(35).reshape(5, 7) % 4 > 0}]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda given: "".join(given))
@pytest.mark.parametrize("attenuated", [None, (5, 7), (2, 5, 7), (3, 2, 5, 7)])
@pytest.mark.parametrize("gated", [None, (5, 7), (2, 1, 7), (3, 1, 5, 7)])
@pytest.mark.parametrize("samples", [True, False])
def test_written_out_it_is_attention_with_all_its_gradients(samples, gated, attenuated, options):  # RF-19, RF-20
    shapes = {"log_gate": gated, "attenuation": attenuated}
    extra = {name: torch.rand(*shape) for name, shape in shapes.items() if shape and (samples or len(shape) < 4)}
    q, k, v = parts() if samples else (part[0] for part in parts())

    def act(q, k, v, *others):
        return attention(q, k, v, **options, **dict(zip(extra, others)))

    tensors = [q[..., :5, :], k, v, *extra.values()]
    exact = results(act, tensors, torch.float64)
    got = results(act, tensors, torch.bfloat16)
    # Factors of the last product are rounded to 8 bits, half a unit being 2^-9; gradients pass several such products.
    for x, y, name in zip(got, exact, ("output", "q", "k", "v", *extra)):
        assert (x - y).norm() < (2**-8 if name == "output" else 2**-5) * y.norm(), name


@pytest.mark.parametrize("piece", [1, 2 * 2 * 7 * 7])  # a sample at a time; two, and one is left
@pytest.mark.parametrize("attenuated", [(1, 2, 1, 7), (2, 7, 7), (3, 1, 7, 7)])
def test_written_out_in_pieces_nothing_changes(monkeypatch, attenuated, piece):
    def act(q, k, v, omega):
        return attention(q, k, v, attenuation=omega)

    tensors = [*parts(), torch.rand(*attenuated)]
    whole = results(act, tensors, torch.bfloat16)
    monkeypatch.setattr(_written, "_PIECE", piece)
    torch.testing.assert_close(results(act, tensors, torch.bfloat16), whole, rtol=1e-5, atol=1e-6)


def test_written_out_without_samples_gradients_are_zero():
    q, k, v, omega = *(part[:0].requires_grad_() for part in parts()), torch.rand(7, 7, requires_grad=True)
    attention(q, k, v, attenuation=omega).sum().backward()
    assert q.grad.shape == q.shape
    assert not omega.grad.any()


def test_written_out_scores_are_not_rounded():
    # Scores near 300 have a unit of 2 in bfloat16: rounded ones would give other weights altogether.
    q = torch.tensor([[[1.0, 16.0]]]).bfloat16().requires_grad_()
    k = torch.tensor([[[0.5, 18.75], [0.0, 18.75]]]).bfloat16()
    v = torch.eye(2)[None].bfloat16()
    expected = torch.sigmoid(torch.tensor([0.5, -0.5]))
    assert torch.allclose(attention(q, k, v, scale=1.0).float(), expected, atol=2**-9)
