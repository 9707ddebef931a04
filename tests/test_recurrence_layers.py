"""The layer of symmetric-power attention, its gates, rates and decays, and how far back a gated state can be read."""

import itertools
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from often import vec
from sequences import by_pairs, inputs
from torch.testing import assert_close

from geolib.attention import MultiHeadAttention, attention_weights
from geolib.encodings import SympowEncoding
from geolib.recurrence import (
    GATE_BIAS,
    SympowAttention,
    alibi_log_gates,
    chunked_form,
    cumulative_angles,
    gate_for_distance,
    log_decay,
    log_gates,
    memory_length,
    recurrent_form,
    rotation_rates,
    signal_to_noise,
    turns_of,
)
from geolib.rotations import document_frequencies
from geolib.sympow import direction_moment, embed


def test_gates_and_rotations_add_the_printed_share_of_parameters():  # CS-cost
    layer = SympowAttention(768, 12)
    gates, rates = 12 * layer.W_gamma.weight.numel(), 12 * layer.W_beta.weight.numel()
    model = 124_439_808  # GPT-2 with tied embeddings
    assert f"{gates / model:.2%}" == "0.09%"
    assert f"{(gates + rates) / model:.2%}" == "0.18%"
    assert layer.W_gamma.weight.shape == layer.W_beta.weight.shape == (12, 768)


def test_a_layer_without_options_is_as_documented():  # CS-N
    layer = SympowAttention(16, 2)
    assert layer.qkv.bias is None
    assert_close(layer.frequencies, document_frequencies(8, 65536.0), rtol=0, atol=0)
    for made in (layer, SympowEncoding(16, 2, document_frequencies(8, 64))):  # constants are not saved
        assert not [name for name in made.state_dict() if "frequencies" in name]
    assert [name for name, _ in made.named_parameters()] == ["W_gamma.weight"]


def test_the_layer_goes_on_from_a_state_without_a_unit():  # CS-rec
    layer, x = SympowAttention(16, 4, key_heads=2, chunk=3), torch.randn(1, 7, 16)
    state = layer(x[:, :5])[1]
    assert_close(layer(x[:, 5:], state._replace(exponent=None))[0], layer(x[:, 5:], state)[0])


def test_layer_is_the_conformal_score_of_its_projections():  # CS-conf, CS-gate, CS-beta, CS-rec
    layer, x = SympowAttention(8, 2, longest=50.0, gate_bias=0.0, chunk=3).double(), torch.randn(1, 8, 8).double()
    with torch.no_grad():
        q, k, v = (layer.qkv(x)[0].view(8, 3, 2, 4)[:, part].transpose(0, 1).numpy() for part in range(3))
        gamma = torch.sigmoid(x[0] @ layer.W_gamma.weight.T).T.numpy()
        beta = (1 + torch.tanh(x[0] @ layer.W_beta.weight.T)).T.numpy()
        theta = np.array([2 * np.pi / 50 ** (2 * i / 4) for i in range(2)], dtype=np.float32).astype(float)
        heads = [by_pairs(q[h], k[h], v[h], 2, np.log(gamma[h]), beta[h][:, None] * theta)[0] for h in range(2)]
        expected = layer.out(torch.tensor(np.concatenate(heads, -1)))[None]
        whole, last = layer(x)
        assert_close(whole, expected)
        # In two parts, or token by token after a text.
        for cuts in ([4], [5], *(range(prompt, 8) for prompt in (1, 4, 6))):
            state = None
            for start, end in itertools.pairwise([0, *cuts, 8]):
                y, state = layer(x[:, start:end], state)
                assert_close(y, expected[:, start:end])
            assert_close(state.S, last.S)


def test_frequencies_from_the_current_length_change_the_past_and_pinned_ones_do_not():  # CS-N
    q, k, v, _, _ = inputs(tokens=64, dim=8)

    def outputs(tokens, longest):
        rates = torch.ones(2, 2, tokens, dtype=torch.float64)
        turns = turns_of(rates, document_frequencies(8, longest))
        return chunked_form(*(t[:, :, :tokens] for t in (q, k, v)), 2, None, turns)[0].output[:, :, :32]

    assert_close(outputs(64, 64.0), outputs(32, 64.0))  # N a constant of the model
    assert (outputs(64, 64.0) - outputs(32, 32.0)).abs().max() > 0.1  # N the length at hand


def test_encoding_gates_softmax_attention_by_the_data():  # CS-gate, CS-A1
    encoding, x = SympowEncoding(16, 2, document_frequencies(8, 64), gate_bias=0.0), torch.randn(1, 6, 16)
    positions = torch.arange(5.0)[:, None]
    placed, own = encoding.place(positions), x[:, 1:]  # a token in front has no place and no gate
    bias = placed.log_gate(own)
    assert bias.shape == (1, 2, 5, 5)
    g = torch.sigmoid(encoding.W_gamma(own))[0].T
    for h, i, j in np.ndindex(2, 5, 5):
        expected = g[h, j + 1 : i + 1].log().sum() if j <= i else torch.tensor(float("-inf"))
        assert_close(bias[0, h, i, j], expected, rtol=1e-5, atol=1e-6)
    # And so for the last queries, as a change of scores.
    late = encoding.place(positions[3:], positions)
    head, i, j = torch.meshgrid(torch.arange(2), torch.arange(2), torch.arange(5), indexing="ij")
    assert_close(late.as_score_mod(own)(torch.zeros(()), 0, head, i, j), bias[0, :, 3:], rtol=1e-5, atol=1e-6)
    assert_close(late.log_gate(own), bias[:, :, 3:])
    wide = encoding.double().place(positions[3:], positions)  # as many digits as the gates have
    scores = wide.as_score_mod(own.double())(torch.zeros((), dtype=torch.float64), 0, head, i, j)
    assert_close(scores, wide.log_gate(own.double())[0], rtol=0, atol=1e-14)
    encoding.float()
    layer, changed, placed = MultiHeadAttention(16, 2, causal=True), x.clone(), placed.with_prefix_tokens(1)
    changed[:, -1] += 1
    assert_close(layer(changed, placed)[:, :-1], layer(x, placed)[:, :-1])


def test_a_gate_that_shuts_hides_what_came_before_it_from_later_queries_of_its_head():  # CS-gate, CS-FUSED
    encoding, x = SympowEncoding(8, 2, document_frequencies(4, 64)), torch.randn(1, 6, 8)
    with torch.no_grad():
        encoding.W_gamma.weight[0] = torch.eye(8)[0]
    x[..., 0] = torch.tensor([0.0, 0.0, 0.0, -2e4, 0.0, 0.0])
    positions = torch.arange(6.0)[:, None]
    late = encoding.place(positions[2:], positions)
    bias = late.log_gate(x)[0]
    seen = torch.ones(2, 6, 6, dtype=torch.bool).tril()
    seen[0, 3:, :3] = False
    assert torch.equal(bias > float("-inf"), seen[:, 2:])
    head, i, j = torch.meshgrid(torch.arange(2), torch.arange(4), torch.arange(6), indexing="ij")
    assert_close(late.as_score_mod(x)(torch.zeros(()), 0, head, i, j), bias, rtol=1e-5, atol=1e-6)


# Gates, rates and decays ----------------------------------------------------------------------------------------------


ENDLESS = 10**7


@pytest.mark.parametrize(("distance", "tokens", "gate", "dim", "power"), [(3, 20, 0.9, 6, 2), (2, 12, 1.0, 4, 4)])
def test_signal_and_noise_are_those_of_pairs_that_are_stored_and_read(distance, tokens, gate, dim, power):  # CS-REACH
    draw = torch.Generator().manual_seed(0)
    k = F.normalize(torch.randn(6000, 1, tokens, dim, generator=draw, dtype=torch.float64), dim=-1)
    signs = torch.randint(0, 2, (6000, 1, tokens, 1), generator=draw).double() * 2 - 1
    _, state = recurrent_form(k, k, signs, power, torch.full((6000, 1, tokens), gate).double().log())
    H = state.S[:, 0, 0] * 2.0 ** state.exponent.view(-1, 1)
    at = tokens - 1 - distance
    read = (H * embed(k[:, 0, at], power)).sum(-1) * signs[:, 0, at, 0]
    assert float(read.mean()) == pytest.approx(gate**distance, abs=5 * float(read.std()) / 6000**0.5)
    found = gate ** (2 * distance) / float(read.var())
    assert found == pytest.approx(signal_to_noise(distance, tokens, gate, dim, power), rel=0.12)


def test_without_gates_only_the_length_counts():
    for distance in (0, 7, 49):
        assert signal_to_noise(distance, 50, 1.0, 8, 2) == pytest.approx(1 / (direction_moment(8, 4) * 49))
    assert signal_to_noise(0, 1, 1.0, 8, 2) == math.inf
    assert signal_to_noise(0, 3, 1e-9, 8, 2) == pytest.approx(1e18 / direction_moment(8, 4))
    assert signal_to_noise(2, 3, 0.9, 8, 2) == pytest.approx(0.81**2 / (direction_moment(8, 4) * (1 + 0.81)))


@pytest.mark.parametrize("distance", [1, 4, 30, 500])
def test_the_best_gate_for_a_distance_is_the_square_root_of_t_over_t_plus_one(distance):  # CS-REACH
    best = gate_for_distance(distance)
    top = signal_to_noise(distance, ENDLESS, best, 32, 2)
    near = [best * (1 - 1e-2 / distance), 1 - (1 - best) * 0.98]
    assert all(signal_to_noise(distance, ENDLESS, gate, 32, 2) < top for gate in near)
    length = (distance + 1) * (1 + 1 / distance) ** distance
    assert top == pytest.approx(1 / (direction_moment(32, 4) * (length - 1)))


def test_log_gates_are_the_logarithm_of_the_sigmoid_even_far_out():  # CS-gate
    logits = torch.tensor([-200.0, -3.0, 0.0, 4.0, 200.0])
    exact = -torch.log1p(torch.exp(-logits.double()))
    assert_close(log_gates(logits).double(), exact, rtol=1e-6, atol=1e-30)
    assert log_gates(logits.bfloat16()).dtype == torch.float32
    assert (log_gates(logits, bias=3.0) <= 0).all()


def test_gate_products_are_the_exponentials_of_log_decay():  # CS-gate
    log_g = inputs(batch=1, heads=1)[3]
    g, ours = log_g[0, 0].exp(), log_decay(log_g)[0, 0].exp()
    for i, j in np.ndindex(9, 9):
        expected = torch.prod(g[j + 1 : i + 1]) if j <= i else torch.tensor(0.0).double()
        assert_close(ours[i, j], expected)


def test_gates_start_at_a_memory_of_two_tokens_without_a_bias_and_of_a_thousand_with_it():  # CS-GATE0
    x = 0.01 * torch.randn(1, 4000, 32)
    for bias, tokens in ((0.0, 2.0), (GATE_BIAS, 1000.0)):
        layer = SympowAttention(32, 2, gate_bias=bias)
        torch.nn.init.normal_(layer.W_gamma.weight, std=0.02)
        g = layer.log_gates(x)
        # With equal scores the normaliser counts the keys that a query still sees.
        ones = torch.ones(1, 2, 4000, 2)
        seen = chunked_form(ones / 2**0.5, ones / 2**0.5, ones, 2, g)[0].log_normaliser.exp()[..., -1]
        assert_close(seen, torch.full_like(seen, tokens), rtol=0.03, atol=0)
        gate = torch.sigmoid(torch.tensor(bias)).item()
        assert memory_length(gate) == pytest.approx(tokens, rel=1e-3)


def test_rotation_rates_lie_between_0_and_2_and_angles_add_up():  # CS-beta
    logits = torch.tensor([[[-50.0, -1.0, 0.0, 0.5, 50.0]]]).double()
    beta = rotation_rates(logits)
    assert_close(beta, 2 * torch.sigmoid(2 * logits))
    theta = document_frequencies(4, 50.0)
    start = vec(0.3, -1.0)
    ours = cumulative_angles(turns_of(beta, theta), start[None, None])[0, 0]
    for i in range(5):
        assert_close(ours[i], start + beta[0, 0, : i + 1].sum() * theta[:, 0].double())
    assert_close(turns_of(torch.tensor([1, 2]), theta)[1], 2 * theta[:, 0])  # frequencies are no whole numbers


def test_alibi_is_scalar_gating_of_softmax_attention():  # CS-A1
    q, k, _, _, _ = inputs(batch=1, heads=2, tokens=6)
    assert (alibi_log_gates(torch.tensor([0.0, 1.0]), 3)[0, 0] == 0).all()  # a slope of 0 forgets nothing
    slopes = vec(0.5, 0.125)
    weights = attention_weights(q, k, log_gate=log_decay(alibi_log_gates(slopes, 6)), scale=1.0)
    for h, i in np.ndindex(2, 6):
        B = torch.stack([torch.exp(q[0, h, i] @ k[0, h, j] + slopes[h] * (j - i)) for j in range(i + 1)])
        assert_close(weights[0, h, i, : i + 1], B / B.sum())
