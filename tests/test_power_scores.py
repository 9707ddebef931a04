"""Even powers in softmax's place, as a wrapper of the registry: against the attention form, and as a citizen of it."""

import pytest
import torch
from torch.testing import assert_close

from geolib.attention import Encoding
from geolib.encodings import ALiBi, Composed, HalfSplit, LocalityFocusing, PerLayerFocusing, PowerScores
from geolib.recurrence import attention_form


def literal(q, k, power, gate=0.0, omega=1.0):
    """Weights written out: powers times gates over their sum, times the attenuation."""
    powers = (q @ k.mT) ** power * torch.as_tensor(gate).exp()
    return powers / powers.sum(-1, keepdim=True) * omega


def normal(*shape):
    return torch.randn(*shape, dtype=torch.float64)


@pytest.mark.parametrize("power", [2, 4, 6])
def test_causal_power_weights_are_the_attention_form(power):  # CS-att
    q, k, v = normal(3, 2, 3, 7, 4).unbind(0)
    placed = PowerScores(Encoding(), power).place(torch.zeros(7, 1))
    assert_close(placed.attend(q, k, v, causal=True), attention_form(q, k, v, power).output)


def test_powers_inside_something_that_would_take_softmax_are_refused():  # CS-att
    inside = HalfSplit(PowerScores(Encoding()))
    with pytest.raises(ValueError, match="encoding: got PowerScores inside"):
        LocalityFocusing(inside, heads=2, axes=1, sigma=1.0)
    with pytest.raises(ValueError, match="parts: got PowerScores inside"):
        Composed([ALiBi(2), inside])
    with pytest.raises(ValueError, match="encoding: got PowerScores inside"):
        PerLayerFocusing(inside, [])


def test_query_heads_share_the_keys_of_fewer_heads():  # CS-att
    q, k = normal(1, 4, 3, 6), normal(1, 2, 5, 6)
    placed = PowerScores(Encoding(), 2).place(torch.zeros(3, 1), torch.zeros(5, 1))
    assert_close(placed.weights(q, k), literal(q, k[:, [0, 0, 1, 1]], 2))


def test_all_that_weights_are_asked_for_values_are_added_up_by():  # CS-att
    q, k, v = normal(3, 1, 2, 4, 6).unbind(0)
    placed, mask = PowerScores(Encoding(), 2).place(torch.zeros(4, 1)), torch.ones(4, 4, dtype=torch.bool).triu(-1)
    for options in ({"log_gate": normal(4, 4)}, {"causal": True}, {"mask": mask}):
        assert_close(placed.attend(q, k, v, **options), placed.weights(q, k, **options) @ v)
        assert not torch.allclose(placed.attend(q, k, v, **options), placed.attend(q, k, v))
    assert_close(placed.attend(q, k, v, scale=0.3), placed.attend(q, k, v))
    gate = normal(4, 4)
    assert_close(placed.attend(q, k, v, gate, True), placed.attend(q, k, v, log_gate=gate, causal=True))


def test_power_weights_ignore_the_scale_of_queries_and_keys_and_neither_overflow_nor_underflow():  # CS-att
    q, k = torch.randn(2, 1, 1, 6, 8).unbind(0)
    placed = PowerScores(Encoding(), 8).place(torch.zeros(6, 1))
    usual = placed.weights(q, k)
    for factor in (1e-12, 1e-3, 1e12):
        assert_close(placed.weights(factor * q, k), usual)
    assert_close(usual.sum(-1), torch.ones(1, 1, 6))


@pytest.mark.parametrize("inside", [ALiBi(2), Encoding()], ids=["gates", "no gates"])
def test_keys_may_stand_elsewhere_and_their_gates_go_into_a_fused_kernel(inside):  # CS-att, CS-FUSED
    queries, keys = torch.rand(3, 1), torch.rand(5, 1)
    q, k = torch.randn(1, 2, 3, 8), torch.randn(1, 2, 5, 8)
    placed = PowerScores(inside, 4).place(queries, keys)
    gate = inside.place(queries, keys).log_gate(None)
    expected = literal(q, k, 4, 0.0 if gate is None else gate)
    assert_close(placed.weights(q, k, placed.log_gate(None)), expected, atol=1e-5, rtol=1e-4)
    head, i, j = torch.meshgrid(torch.arange(2), torch.arange(3), torch.arange(5), indexing="ij")
    scores = placed.as_score_mod()((q @ k.mT)[0], 0, head, i, j)
    assert_close(scores.softmax(-1)[None], expected, atol=1e-5, rtol=1e-4)


def test_a_query_of_zeros_gets_zeros_and_nan_stays_nan():  # CS-att
    q, k, v = torch.randn(3, 1, 1, 4, 8).unbind(0)
    placed = PowerScores(Encoding(), 2).place(torch.zeros(4, 1))
    q = q.clone().index_fill_(2, torch.tensor([1]), 0.0).requires_grad_()
    output = placed.attend(q, k, v)
    assert (output[0, 0, 1] == 0).all()
    output.square().sum().backward()
    assert q.grad.isfinite().all()
    broken = k.clone()
    broken[0, 0, 2] = float("nan")
    assert placed.attend(q, broken, v).isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_outputs_have_the_values_dtype(dtype):  # CS-att
    q, k, v = torch.randn(3, 1, 1, 4, 8).to(dtype).unbind(0)
    placed = PowerScores(Encoding(), 2).place(torch.zeros(4, 1))
    assert placed.attend(q, k, v).dtype == dtype
    assert placed.weights(q, k).dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


def test_no_keys_and_no_tokens_give_nothing():
    placed = PowerScores(Encoding()).place(torch.arange(0))
    assert placed.attention(*torch.randn(3, 1, 2, 0, 4).unbind()).shape == (1, 2, 0, 4)
    q, none = torch.randn(1, 2, 3, 4), torch.randn(1, 2, 0, 4)
    assert not placed.attend(q, none, none).any()
