"""Causal attention by name against loops over pairs; decoding from a state against the whole pass; the small GPT."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from geolib import recurrence
from geolib.lab import Config, text_attention
from geolib.lab.gpt import GPT
from geolib.lab.probes.lm import generate, state_numbers_of
from geolib.lab.text_attention import METHODS, ONE_CHUNK, CausalAttention, attend
from geolib.rotations import document_frequencies

TINY = {"width": 16, "heads": 2, "layers": 2, "context": 16}
methods = pytest.mark.parametrize("method", METHODS)

pytestmark = pytest.mark.usefixtures("one_thread")


def wild(module, scale=0.5):
    """The module with large random parameters, so that no path through it is nearly idle."""
    generator = torch.Generator().manual_seed(0)
    for p in module.parameters():
        p.data.copy_(scale * torch.randn(p.shape, generator=generator))
    return module


def gpt(method, **options):
    return GPT(Config("documents", method, options, **TINY))


def bytes_of(*shape):
    return torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(0))


def numbers(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


# The definitions ----------------------------------------------------------------------------------------------------


def weight_of(layer, power):
    """What the kernel makes of a query and a key, both (d,)."""

    features = lambda x: torch.where(x > 0, x + 1, x.exp())  # noqa: E731
    return {
        "softmax": lambda q, k: (q @ k / math.sqrt(layer.dim)).exp(),
        "power": lambda q, k: (q @ k) ** power,
        "linear": lambda q, k: features(q) @ features(k),
    }[layer.kernel]


def by_pairs(layer, x, power=2):
    """The layer's output for one sequence, (tokens, width) in float64, from its weights alone, one pair at a time."""
    heads, dim, ones, rotation = layer.heads, layer.dim, x.new_ones(len(x)), layer.turning
    q, k, v = (x @ layer.qkv.weight.T).view(len(x), 3, heads, dim).unbind(1)
    out, weigh = torch.zeros(len(x), heads, dim, dtype=x.dtype), weight_of(layer, power)
    plane = torch.tensor([[0.0, -1], [1, 0]], dtype=x.dtype)
    for h in range(heads):
        gates = ones if layer.W_gamma is None else torch.sigmoid(x @ layer.W_gamma.weight[h] + layer.gate_bias)
        rates = 1 + torch.tanh(x @ rotation.W_beta.weight[h]) if hasattr(rotation, "W_beta") else ones
        skew = torch.zeros(dim, dim, dtype=x.dtype)
        if hasattr(rotation, "frequencies"):
            skew = torch.block_diag(*(f * plane for f in rotation.frequencies[:, 0]))
        turned = [torch.linalg.matrix_exp(total * skew) for total in rates.cumsum(0)]
        for i in range(len(x)):
            weights = torch.zeros(i + 1, dtype=x.dtype)
            for j in range(i + 1):
                weights[j] = weigh(turned[i] @ q[i, h], turned[j] @ k[j, h]) * gates[j + 1 : i + 1].prod()
            out[i, h] = weights @ v[: i + 1, h] / weights.sum()
    return out.flatten(1) @ layer.out.weight.T + layer.out.bias


@pytest.mark.parametrize(("method", "options"), [*((name, {}) for name in METHODS), ("sympow+gates", {"power": 4})])
def test_every_method_is_its_sum_over_pairs(method, options):  # CS-att, CS-conf, CS-rot, CS-F3
    layer = wild(CausalAttention(method, 8, 2, longest=32.0, gate_bias=1.0, head_dim=6, **options).double())
    x = numbers(2, 9, 8)
    assert_close(layer(x), torch.stack([by_pairs(layer, row, **options) for row in x]), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("method", ["sympow", "conformal-sympow"])
def test_a_long_window_takes_chunks_and_a_short_one_none_to_the_same_numbers(method, monkeypatch):  # CS-chunk
    layer, calls = wild(CausalAttention(method, 8, 2, longest=700.0).double(), 0.3), []
    for name in ("one_chunk_form", "chunked_form"):
        usual = getattr(recurrence, name)
        monkeypatch.setattr(recurrence, name, lambda *a, n=name, f=usual, **o: calls.append(n) or f(*a, **o))
    x, found = numbers(1, ONE_CHUNK + 70, 8).requires_grad_(), []
    for limit in (ONE_CHUNK, 10_000):
        monkeypatch.setattr(text_attention, "ONE_CHUNK", limit)
        y = layer(x)
        found.append((y, *torch.autograd.grad(y.square().sum(), x)))
    assert calls == ["chunked_form", "one_chunk_form"]
    for chunks, whole in zip(*found):
        assert_close(chunks, whole, rtol=1e-6, atol=1e-8)


def test_off_the_cpu_pairs_are_taken_up_to_where_the_state_costs_less(monkeypatch):  # CS-CROSS
    result, crossing = SimpleNamespace(output="by pairs"), recurrence.crossing_length(4, 2)
    monkeypatch.setattr(recurrence, "attention_form", lambda *given: result)
    monkeypatch.setattr(recurrence, "chunked_form", lambda *given, chunk: (SimpleNamespace(output=chunk), None))
    windows = [[torch.empty(1, 1, n, 4, device="meta")] * 3 for n in (crossing, crossing + 1)]
    found = [attend("power", 2, *window, None) for window in windows]
    assert found == ["by pairs", None]  # in chunks of the length that is usual there


# Decoding -----------------------------------------------------------------------------------------------------------


@methods
def test_decoding_from_a_state_is_the_whole_pass(method):  # CS-P1, CS-P2, CS-2
    model, tokens = wild(gpt(method, gate_bias=4.0).double(), 0.3), bytes_of(1, 300)
    whole = model(tokens)
    for cuts in ([1] * 12, [131, 1, 2, 129, 37], [300]):
        rows, states = [], None
        for part in tokens[:, : sum(cuts)].split(cuts, 1):
            scores, states = model.resume(part, states)
            rows.append(scores)
        assert_close(torch.cat(rows, 1), whole[:, : sum(cuts)], rtol=1e-6, atol=1e-8)


@methods
def test_a_later_byte_changes_no_earlier_score(method):
    model, tokens = wild(gpt(method), 0.3), bytes_of(1, 16)
    before = model(tokens)
    for place in (15, 9, 3):
        changed = tokens.clone()
        changed[0, place] = (changed[0, place] + 1) % 256
        after = model(changed)
        assert_close(after[:, :place], before[:, :place], rtol=0, atol=1e-5)
        assert (after[:, place:] - before[:, place:]).abs().amax() > 1e-3


def test_generated_text_is_what_the_whole_pass_would_choose():
    model, prompt = wild(gpt("conformal-sympow"), 0.3), torch.tensor(list(b"the cat"))
    so_far = prompt
    for token in generate(model, prompt, 12, temperature=1e-6):
        assert int(model(so_far[None])[0, -1].argmax()) == int(token)
        so_far = torch.cat([so_far, token[None]])
    drawn = [generate(model, prompt, 12, 1.0, seed).tolist() for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert generate(model, prompt, 0).shape == (0,)


def test_a_temperature_is_a_root_of_the_shares():
    shares = torch.tensor([0.6, 0.3, 0.1])
    constant = SimpleNamespace(resume=lambda tokens, states: (shares.log()[None, None], states))
    drawn = generate(constant, torch.zeros(1, dtype=torch.long), 4000, temperature=0.5)
    assert_close(drawn.bincount(minlength=3) / 4000, shares**2 / (shares**2).sum(), atol=0.03, rtol=0)


# Sizes and starts ---------------------------------------------------------------------------------------------------


@methods
def test_carried_numbers_are_constant_and_counted(method):  # CS-size
    model, kernel = gpt(method), METHODS[method].kernel
    read = {"softmax": lambda kv: kv[:2], "power": lambda state: (state.S, state.Z), "linear": lambda state: (state,)}
    held = []
    for tokens in (20, 40):
        _, states = model.resume(bytes_of(1, tokens))
        held.append(sum(t.numel() for state in states for t in read[kernel](state.cache)))
    assert (held[0] < held[1]) == (kernel == "softmax")
    assert state_numbers_of(model) == (None if kernel == "softmax" else held[0])
    if kernel == "power":
        assert held[0] == held[1] == 2 * 2 * (8 + 1) * 36


def test_frequencies_and_the_starts_of_gates_and_rates_are_those_asked_for():  # CS-GATE0, CS-N
    for options, longest in (({}, 16.0), ({"longest": 300.0}, 300.0)):
        assert_close(gpt("fox", **options).attentions[1].turning.frequencies, document_frequencies(8, longest).float())
    x = torch.randn(2, 5, 16)
    layer = CausalAttention("conformal-sympow", 16, 2, 64.0, gate_bias=0.0, beta_scale=0.0)
    assert torch.equal(layer.turning.rates(x), torch.ones(2, 2, 5))
    layer.W_gamma.weight.data.zero_()
    assert_close(layer.log_gates(x).exp(), torch.full((2, 2, 5), 0.5))
    usual = CausalAttention("conformal-sympow", 16, 2, 64.0)
    assert usual.turning.rates(x).std() > 0.05
    assert_close(usual.log_gates(x).exp().mean().item(), 0.999, atol=1e-3, rtol=0)


@methods
def test_models_of_a_seed_start_from_one_embedding_train_every_parameter_and_keep_their_saved_keys(method):
    torch.manual_seed(3)
    model = gpt(method)
    torch.manual_seed(3)
    assert torch.equal(model.embedding.weight, nn.Embedding(256, 16).weight)
    tokens = bytes_of(4, 17)
    nn.functional.cross_entropy(model(tokens[:, :-1]).mT, tokens[:, 1:]).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())
    wanted = {"qkv.weight", "out.weight", "out.bias"} | ({"W_gamma.weight"} if METHODS[method].gates else set())
    wanted |= {"turning.W_beta.weight"} if METHODS[method].rotation is text_attention.DataRotation else set()
    assert set(model.blocks[1].attention.state_dict()) == wanted


def test_what_cannot_be_built_is_named():
    for arguments, says in (
        (("path", 8, 2), "method: got 'path'; there are none, softmax"),
        (("sympow", 16, 3), "heads: got 3; it must divide the width 16"),
        (("softmax", 6, 2), "head_dim: got 3"),
    ):
        with pytest.raises(ValueError, match=says):
            CausalAttention(*arguments, longest=8.0)
