"""The layer of symmetric-power attention and its gates alone, against the sum over pairs of their projections."""

import itertools

import numpy as np
import torch
from sequences import by_pairs, inputs
from torch.testing import assert_close

from geolib.attention import MultiHeadAttention
from geolib.encodings import SympowEncoding
from geolib.recurrence import SympowAttention, chunked_form, turns_of
from geolib.rotations import document_frequencies


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


def test_the_layer_goes_on_from_a_state_without_a_unit_and_says_what_it_is():  # CS-rec
    layer, x = SympowAttention(16, 4, key_heads=2, chunk=3), torch.randn(1, 7, 16)
    assert "heads=4, key_heads=2, power=2, gate_bias=" in repr(layer)
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
        for cuts in (
            [4],
            [5],
            *(range(prompt, 8) for prompt in (1, 4, 6)),
        ):  # in two parts, or token by token after a text
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
