"""Attention against float64 loops, and the contract of the hooks."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from geolib._written import LONGEST, pays
from geolib.attention import Encoding, MultiHeadAttention, Placed, attention, attention_weights, is_grouped
from geolib.rotations import grid_positions


def double(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def loop(q, k, v, log_gate=None, attenuation=None, causal=False):
    """Attention one number at a time."""
    out = torch.zeros(len(q), v.shape[1], dtype=torch.float64)
    for m in range(len(q)):
        seen = range(len(k) - len(q) + m + 1) if causal else range(len(k))
        weight = {}
        for n in seen:
            score = sum(float(q[m, i] * k[n, i]) for i in range(q.shape[1])) / math.sqrt(q.shape[1])
            weight[n] = math.exp(score + (0.0 if log_gate is None else float(log_gate[m, n])))
        total = sum(weight.values())
        for n in seen:
            out[m] += weight[n] / total * (1.0 if attenuation is None else float(attenuation[m, n])) * v[n]
    return out


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("attenuated", [False, True])
@pytest.mark.parametrize("queries", [5, 2])
def test_attention_is_the_loop(causal, gated, attenuated, queries):  # RF-19, RF-20
    q, k, v = double(queries, 6), double(5, 6), double(5, 3)
    log_gate = -double(queries, 5).abs() if gated else None
    attenuation = double(queries, 5).abs() if attenuated else None
    got = attention(q, k, v, log_gate=log_gate, attenuation=attenuation, causal=causal)
    assert_close(got, loop(q, k, v, log_gate, attenuation, causal))


def test_heads_are_repeated_where_some_are_shared_and_not_where_one_is_or_none():
    q, one, two = torch.zeros(1, 4, 5, 8), torch.zeros(1, 1, 5, 8), torch.zeros(1, 2, 5, 8)
    assert [is_grouped(q, k) for k in (one, two, q, two[0])] == [False, True, False, False]
    assert not is_grouped(q[0], two[0])


NARROW = {
    "plain": {},
    "scaled": {"scale": 0.9},
    "gated": {"log_gate": -torch.linspace(0, 2, 30).reshape(5, 6)},
    "attenuated": {"attenuation": torch.linspace(1, 0.1, 60).reshape(2, 5, 6)},
    "both": {"log_gate": -torch.linspace(0, 2, 60).reshape(2, 1, 5, 6), "attenuation": torch.linspace(1, 0, 6)},
    "causal": {"causal": True},
    "masked": {"mask": torch.arange(30).reshape(5, 6) % 4 > 0},
}


@pytest.mark.parametrize("name", NARROW)
def test_bfloat16_is_trained_as_float64_but_for_its_digits(name):
    options = NARROW[name]
    given = [torch.randn(2, 3, n, d).bfloat16() for n, d in ((5, 4), (6, 4), (6, 3))]
    tensors = [key for key in ("log_gate", "attenuation") if key in options]
    given += [options[key].expand((2, 1, 5, 6)) if name == "both" else options[key] for key in tensors]
    toward = torch.randn(2, 3, 5, 3)
    if name == "attenuated":
        given = [x[0] if x.dim() == 4 else x for x in given]
        given[:3], toward = [x[:2] for x in given[:3]], toward[0, :2]

    def run(dtype=None):
        leaves = [x.to(dtype or x.dtype).requires_grad_() for x in given]
        y = attention(*leaves[:3], **options | dict(zip(tensors, leaves[3:])))
        return y, torch.autograd.grad((y.double() * toward.double()).sum(), leaves)

    (y, gradients), (exact, wanted) = run(), run(torch.float64)
    assert y.dtype == torch.bfloat16
    assert ("WrittenOut" in y.grad_fn.name()) == (name not in ("causal", "masked"))
    for a, b, x in zip((y, *gradients), (exact, *wanted), (y, *given)):
        assert a.dtype == x.dtype
        assert (a - b).abs().max() <= 0.02 * b.abs().max()


def test_narrow_weights_are_dropped_as_wide_ones_are():
    q = torch.zeros(1, 1, 4, 8, dtype=torch.bfloat16, requires_grad=True)
    y = attention(q, q, torch.eye(4, dtype=torch.bfloat16)[None, None], dropout=0.5)
    assert set(y.flatten().tolist()) == {0.0, 0.5}


@pytest.mark.parametrize(
    ("queries", "keys", "short"), [(LONGEST, LONGEST, True), (LONGEST + 1, 2, False), (2, LONGEST + 1, False)]
)
def test_long_sequences_are_left_to_the_fused_kernel(queries, keys, short):
    q, k = (torch.zeros(2, tokens, 4, dtype=torch.bfloat16) for tokens in (queries, keys))
    assert pays(q, k, k, fused=True) == short
    assert pays(q, k, k, fused=False)  # the other choice has a matrix of weights as well
    y = attention(q.requires_grad_(), k, k)
    assert ("WrittenOut" in y.grad_fn.name()) == short


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_without_gates_it_is_the_fused_kernel_itself(dtype):
    q, k, v = torch.randn(3, 1, 2, 70, 8).to(dtype)
    with torch.no_grad():
        for causal in (False, True):
            wanted = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
            assert torch.equal(attention(q, k, v, causal=causal), wanted)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("wide", "narrow"), [(torch.float64, torch.float32), (torch.float32, torch.bfloat16)])
def test_a_gate_may_have_fewer_or_more_digits_than_the_queries(causal, wide, narrow):
    q, k, v, gate = (torch.randn(*shape).to(narrow) for shape in ((2, 5, 6), (2, 5, 6), (2, 5, 3), (5, 5)))
    wanted = attention(*(x.to(wide) for x in (q, k, v)), log_gate=gate.to(wide), causal=causal)
    assert_close(attention(*(x.to(wide) for x in (q, k, v)), log_gate=gate, causal=causal), wanted)
    if narrow == torch.float32:
        assert_close(attention(q, k, v, log_gate=gate.to(wide), causal=causal), wanted.to(narrow))


@pytest.mark.parametrize("causal", [False, True])
def test_the_weights_of_a_layer_are_those_it_adds_values_up_by(causal):
    class Reading(Placed):
        """A gate that depends on the data."""

        def log_gate(self, x):
            return x.mean(-1)[:, None, None].expand(-1, 1, x.shape[1], -1)

    layer, x, mask = MultiHeadAttention(8, 2, causal).double(), double(2, 5, 8), torch.rand(2, 1, 5, 5) < 0.7
    v = (x @ layer.qkv.weight[16:].mT).unflatten(-1, (2, 4)).transpose(1, 2)
    added = layer.weights(x, Reading(), mask) @ v
    assert_close(layer(x, Reading(), mask), layer.out(added.transpose(1, 2).flatten(2)))


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


def test_hooks_of_the_base_class_do_nothing():
    x, q, positions, encoding = double(2, 9, 8), double(2, 2, 9, 4), grid_positions(3, 3), Encoding()
    assert encoding.embed(x, positions) is x
    placed = encoding.place(positions)
    assert placed.to_reference(q, q) == (q, q)
    assert placed.log_gate(x) is None
    assert placed.attenuation() is None
    assert placed.layer(3) is placed


def test_attenuation_leaves_tokens_without_a_place_alone():  # RF-19
    class Blind(Placed):
        """Sees nothing of the four placed tokens."""

        def attenuation(self):
            return torch.zeros(4, 4)

    layer, x = MultiHeadAttention(8, 2).double(), double(1, 5, 8)
    got, plain = layer(x, Blind().with_prefix_tokens(1)), layer(x, Placed())
    assert_close(got[:, 0], plain[:, 0])  # the CLS token still sees everything
    weights_on_cls_only = got[:, 1:]
    assert not torch.allclose(weights_on_cls_only, plain[:, 1:])


@pytest.mark.parametrize("attend", [lambda q, k, **o: attention(q, k, k, **o), attention_weights])
@pytest.mark.parametrize("options", [{}, {"attenuation": torch.ones(3, 2)}, {"log_gate": torch.zeros(3, 2)}])
def test_a_causal_query_without_a_key_is_refused(attend, options):
    q, k = torch.randn(3, 4), torch.randn(2, 4)
    with pytest.raises(ValueError, match="q: got 3 queries for 2 keys"):
        attend(q, k, causal=True, **options)
    assert attend(q, k, **options).isfinite().all()  # every query sees every key
    equal = {name: x[:2] for name, x in options.items()}
    assert attend(q[:2], k, causal=True, **equal).isfinite().all()


@pytest.mark.parametrize("fill", [0.0, 1.0])
def test_what_stands_before_queries_and_what_before_keys_are_filled_apart(fill):
    table, q, k = torch.randn(2, 3, 4), torch.zeros(1, 2, 5, 4), torch.zeros(1, 2, 9, 4)
    found = Placed().with_prefix_tokens(2, keys=5).for_all(table, q, k, fill)
    wanted = torch.full((2, 5, 9), fill)
    wanted[:, 2:, 5:] = table
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("attenuated", [False, True])
def test_queries_keys_and_values_of_several_precisions_go_by_the_widest(attenuated):
    """With every option passed on; the result has the values' precision."""
    q, k, v = torch.randn(2, 2, 5, 4).bfloat16(), torch.randn(2, 2, 7, 4), torch.randn(2, 2, 7, 4).bfloat16()
    options = {"log_gate": torch.randn(5, 7), "causal": True, "scale": 0.3, "mask": torch.rand(2, 1, 5, 7) < 0.8}
    options |= {"attenuation": torch.rand(5, 7)} if attenuated else {}
    found = attention(q, k, v, **options)
    assert found.dtype == torch.bfloat16
    assert_close(found, attention(q.float(), k, v.float(), **options).bfloat16(), rtol=0.02, atol=0.02)


def test_flex_attention_gets_the_logarithm_of_an_attenuation_of_ones_own():
    class Half(Placed):
        def attenuation(self):
            return torch.full((1, 2, 2), 0.5)

    at = torch.tensor(0)
    found = Half().as_attenuation_mod()(torch.tensor(1.0), at, at, at, at)
    assert found.item() == pytest.approx(1 + math.log(0.5))
