"""Attention against float64 loops, and the contract of the hooks."""

import math

import pytest
import test_masks
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from geolib._written import LONGEST
from geolib.attention import Encoding, MultiHeadAttention, Placed, attention, attention_weights, is_grouped


def double(*shape):
    return torch.randn(*shape, dtype=torch.float64)


@pytest.mark.parametrize("scale", [None, 0.9])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("attenuated", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_is_the_loop(causal, gated, attenuated, masked, scale):  # RF-19, RF-20
    q, k, v, gate, omega, mask = test_masks.case()
    gate, omega, mask = gate if gated else None, omega if attenuated else None, mask if masked else None
    options = {"log_gate": gate, "attenuation": omega, "causal": causal, "mask": mask, "scale": scale}
    got = attention(q, k, v, **options)
    assert_close(got, test_masks.loop(q, k, v, gate, omega, mask, causal, scale), atol=1e-12, rtol=1e-10)
    assert_close(attention_weights(q, k, **options) @ v.repeat_interleave(2, 1), got, atol=1e-12, rtol=1e-10)


def test_heads_are_repeated_where_some_are_shared_and_not_where_one_is_or_none():
    q, one, two = torch.zeros(1, 4, 5, 8), torch.zeros(1, 1, 5, 8), torch.zeros(1, 2, 5, 8)
    assert [is_grouped(q, k) for k in (one, two, q, two[0])] == [False, True, False, False]
    assert not is_grouped(q[0], two[0])


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
