"""Symmetric-power attention: three forms against loops that read as the paper's equations do."""

import itertools
import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from geolib import recurrence
from geolib.attention import MultiHeadAttention, attention_weights
from geolib.recurrence import (
    GATE_BIAS,
    Attended,
    State,
    SympowAttention,
    SympowEncoding,
    Work,
    _chunks_cpu,
    attention_form,
    attention_work,
    best_chunk,
    by_large_products,
    chunked_form,
    chunked_with,
    chunked_work,
    chunks,
    conformal_step,
    crossing_length,
    cumulative_angles,
    empty_state,
    forms,
    ideal_chunk,
    layers,
    log_decay,
    log_gates,
    merge,
    one_chunk_form,
    read_state,
    recurrent_form,
    recurrent_step,
    recurrent_work,
    rotation_rates,
    softmax_form,
    turns_of,
)
from geolib.recurrence._shared import gate_sums
from geolib.rotations import block_diagonal, document_frequencies, rotation_matrix
from geolib.sympow import dimension, lift, monomials, norm_functional

# Oracles: NumPy in float64, one head at a time, written as the equations stand ---------------------------------------


def plane_rotations(angles):
    R = np.zeros((2 * len(angles), 2 * len(angles)))
    for j, a in enumerate(angles):
        R[2 * j : 2 * j + 2, 2 * j : 2 * j + 2] = [[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]
    return R


def phi(v, p):
    words = itertools.combinations_with_replacement(range(len(v)), p)
    return np.array(
        [
            math.sqrt(math.factorial(p) / math.prod(math.factorial(w.count(i)) for i in set(w)))
            * math.prod(v[i] for i in w)
            for w in words
        ]
    )


def by_pairs(Q, K, V, p, log_g, turns, transpose=True):
    """B_ij = b_ij (Q_i^T R(c_ij theta)^T K_j)^p, Y_i = sum_j B_ij V_j / sum_j B_ij; also the row sums."""
    Y, sums = np.zeros_like(V), np.zeros(len(V))
    for i in range(len(V)):
        B = np.zeros(len(V))
        for j in range(i + 1):
            b = np.prod(np.exp(log_g[j + 1 : i + 1]))
            R = plane_rotations(turns[j + 1 : i + 1].sum(0))
            B[j] = b * (Q[i] @ (R.T if transpose else R) @ K[j]) ** p
        sums[i] = B.sum()
        Y[i] = B @ V / sums[i]
    return Y, sums


def by_recurrence(Q, K, V, p, log_g, turns):
    """S_i = g_i S_(i-1) + V_i phi(R(mu_i) K_i)^T, Z_i likewise, Y_i = S_i phi(R(mu_i) Q_i) / Z_i phi(R(mu_i) Q_i)."""
    size = math.comb(Q.shape[1] + p - 1, p)
    S, Z, mu = np.zeros((V.shape[1], size)), np.zeros(size), np.zeros(turns.shape[1])
    Y = np.zeros_like(V)
    for i in range(len(V)):
        mu = mu + turns[i]
        R = plane_rotations(mu)
        key, query = phi(R @ K[i], p), phi(R @ Q[i], p)
        S = np.exp(log_g[i]) * S + np.outer(V[i], key)
        Z = np.exp(log_g[i]) * Z + key
        Y[i] = S @ query / (Z @ query)
    return Y, (S, Z, mu)


def heads_of(oracle, tensors, *more):
    """An oracle over all batches and heads; its results stacked, as tensors."""
    flat = [t.detach().double().flatten(0, 1).numpy() for t in tensors]
    return [oracle(*(t[h] for t in flat[:3]), *more, *(t[h] for t in flat[3:])) for h in range(len(flat[0]))]


def inputs(batch=2, heads=2, tokens=9, dim=4, value_dim=3, dtype=torch.float64, seed=0):
    g = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(batch, heads, tokens, *shape, dtype=torch.float64, generator=g)  # noqa: E731
    log_g = torch.nn.functional.logsigmoid(3 * draw())
    return [t.to(dtype) for t in (draw(dim), draw(dim), draw(value_dim), log_g, draw(dim // 2))]


def attention_only(*args):
    return attention_form(*args)


def recurrent_only(*args):
    return recurrent_form(*args)[0]


def chunked_only(*args):
    return chunked_form(*args, chunk=4)[0]


FORMS = [attention_only, recurrent_only, chunked_only]

shapes = st.fixed_dictionaries(
    {
        "batch": st.integers(1, 2),
        "heads": st.integers(1, 3),
        "tokens": st.integers(1, 11),
        "dim": st.sampled_from([2, 4]),
        "value_dim": st.integers(1, 4),
        "seed": st.integers(0, 10_000),
    }
)


# Three forms, one answer --------------------------------------------------------------------------------------------


@given(shapes, st.sampled_from([2, 4, 6]), st.integers(1, 12))
@settings(deadline=None, max_examples=25)
def test_three_forms_equal_the_sum_over_pairs(shape, power, chunk):  # CS-att, CS-gate, CS-conf, CS-P2, CS-chunk
    args = inputs(**shape)
    q, k, v, log_g, turns = args
    results = heads_of(by_pairs, args[:3] + args[3:], power)
    Y = torch.tensor(np.stack([r[0] for r in results])).view_as(v)
    logs = torch.tensor(np.log(np.stack([r[1] for r in results]))).view_as(log_g)
    # Through a state, a small normaliser is a difference of large terms: errors are relative to its bound.
    bound = (
        power * q.norm(dim=-1).log() + (log_decay(log_g).exp() @ k.norm(dim=-1, keepdim=True) ** power)[..., 0].log()
    )
    loss = (bound - logs).exp()
    for form in (*FORMS[:2], lambda *a: chunked_form(*a, chunk=chunk)[0]):
        ours = form(q, k, v, power, log_g, turns)
        assert ((ours.output - Y).abs().amax(-1) <= 1e-12 * (1 + loss)).all()
        assert ((ours.log_normaliser - logs).abs() <= 1e-12 * (1 + loss)).all()


@pytest.mark.parametrize("power", [2, 4])
def test_recurrent_and_chunked_forms_reach_the_state_of_the_recurrence(power):  # CS-rec, CS-2, CS-beta
    args = inputs(tokens=10)
    q, k, v, log_g, turns = args
    results = heads_of(by_recurrence, args, power)
    Y = torch.tensor(np.stack([r[0] for r in results])).view_as(v)
    wanted = State(*(torch.tensor(np.stack([r[1][part] for r in results])).unflatten(0, (2, 2)) for part in range(3)))
    for form in (recurrent_form, lambda *a: chunked_form(*a, chunk=4)):
        attended, state = form(q, k, v, power, log_g, turns)
        assert_close(attended.output, Y, rtol=1e-9, atol=1e-9)
        for ours, expected in zip(state[:3], wanted[:3]):
            assert_close(ours, expected)
        assert (state.exponent == 0).all()


def test_recurrent_and_attention_forms_agree_with_rotary_embeddings():  # CS-P1, CS-rot, CS-Rk
    q, k, v, _, _ = args = inputs(dim=6)
    theta = document_frequencies(6, 100.0)
    turns = turns_of(torch.ones(q.shape[:3], dtype=torch.float64), theta.double())
    by_power = np.zeros(v.shape)
    R = plane_rotations(theta[:, 0].double().numpy())
    for b, h in np.ndindex(2, 2):
        Q, K, V = (t[b, h].numpy() for t in args[:3])
        for i in range(len(V)):
            B = [(Q[i] @ np.linalg.matrix_power(R, i - j).T @ K[j]) ** 2 for j in range(i + 1)]
            by_power[b, h, i] = B @ V[: i + 1] / sum(B)
    for form in FORMS:
        assert_close(form(q, k, v, 2, None, turns).output, torch.tensor(by_power))


def test_printed_score_without_the_transpose_is_not_what_the_recurrence_gives():  # CS-conf
    args = inputs(batch=1, heads=1, tokens=5)
    flat = [t[0, 0].numpy() for t in args]
    recurrence_says = by_recurrence(*flat[:3], 2, *flat[3:])[0]
    np.testing.assert_allclose(by_pairs(*flat[:3], 2, *flat[3:])[0], recurrence_says)
    assert np.abs(by_pairs(*flat[:3], 2, *flat[3:], transpose=False)[0] - recurrence_says).max() > 0.1


def test_even_powers_make_the_weights_a_distribution():  # CS-att
    q, k, v, log_g, turns = inputs(tokens=7, value_dim=7)
    v = torch.eye(7, dtype=torch.float64).expand_as(v)  # the output is then the row of weights
    for form in FORMS:
        A = form(q, k, v, 4, log_g, turns).output
        assert (A > -1e-9).all()
        assert_close(A.sum(-1), torch.ones_like(log_g))
        assert_close(A.triu(1), torch.zeros_like(A))


@given(shapes, st.integers(0, 11), st.integers(1, 5))
@settings(deadline=None, max_examples=25)
def test_a_sequence_may_be_cut_anywhere_and_continued_from_the_state(shape, cut, chunk):  # CS-rec, CS-chunk
    args = inputs(**shape)
    tokens = args[0].shape[2]
    cut = min(cut, tokens - 1)
    whole, last = chunked_form(*args[:3], 2, *args[3:], chunk=chunk)
    for form in (recurrent_form, lambda *a, **kw: chunked_form(*a, **kw, chunk=chunk)):
        state, outputs = None, []
        for part in (slice(0, cut), slice(cut, tokens)):
            if part.stop > part.start:
                q, k, v, log_g, turns = (t[:, :, part] for t in args)
                attended, state = form(q, k, v, 2, log_g, turns, state=state)
                outputs.append(attended.output)
        assert_close(torch.cat(outputs, 2), whole.output, rtol=1e-6, atol=1e-8)
        for ours, expected in zip(state, last):
            assert_close(ours, expected)


def test_one_step_at_a_time_is_the_recurrent_form():  # CS-rec
    args = inputs(tokens=5)
    whole, last = recurrent_form(*args[:3], 4, *args[3:])
    state = empty_state(*args[1:3], 4)
    for i in range(5):
        q, k, v, log_g, turn = (t[:, :, i] for t in args)
        attended, state = recurrent_step(state, q, k, v, 4, log_g, turn)
        assert_close(attended.output, whole.output[:, :, i])
        assert_close(attended.log_normaliser, whole.log_normaliser[:, :, i])
    assert_close(state.S, last.S)
    assert_close(state.mu, last.mu)


def test_the_carried_state_has_minimal_dimension():  # CS-k, CS-rec
    q, k, v, _, _ = inputs(dim=6)
    for form in (recurrent_form, chunked_form):
        state = form(q, k, v, 4)[1]
        assert state.S.shape == (2, 2, 3, math.comb(6 + 3, 4))
        assert state.Z.shape == (2, 2, dimension(6, 4))


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("power", [2, 4])
def test_no_form_reads_unwritten_memory(power):
    args = [t.requires_grad_() for t in inputs(tokens=11, heads=3)]
    grads = []
    for form in FORMS:
        attended = form(*args[:3], power, *args[3:])
        grads.append(torch.autograd.grad(attended.output.square().sum(), args))
    for gradient in grads[1:]:
        for ours, expected in zip(gradient, grads[0]):
            assert_close(ours, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_tables_made_in_inference_serve_training(form):
    for table in (_chunks_cpu._layout, monomials, norm_functional):
        table.cache_clear()
    args = [t.requires_grad_() for t in inputs()]
    with torch.inference_mode():
        form(*args[:3], 2, *args[3:])
    form(*args[:3], 2, *args[3:]).output.square().sum().backward()
    assert all(t.grad.any() for t in args)


@pytest.mark.parametrize("numbers", [1, 100, 2**20])
@pytest.mark.parametrize("power", [2, 4])
def test_blocks_of_monomials_change_nothing(monkeypatch, numbers, power):  # CS-chunk
    args = [t.requires_grad_() for t in inputs(tokens=7, dim=6)]
    wanted = attention_form(*args[:3], power, *args[3:]).output
    monkeypatch.setattr(_chunks_cpu, "_block_numbers", lambda x: numbers)
    ours = chunked_form(*args[:3], power, *args[3:], chunk=3)[0].output
    assert_close(ours, wanted, rtol=1e-6, atol=1e-8)
    for a, b in zip(torch.autograd.grad(ours.sin().sum(), args), torch.autograd.grad(wanted.sin().sum(), args)):
        assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("narrow", [1, 2, 128])
@pytest.mark.parametrize("sharp", [0.01, 1.0, 60.0], ids=["gentle", "as drawn", "sharp"])
def test_parts_of_a_chunk_and_gates_of_any_strength_change_nothing(monkeypatch, narrow, sharp):  # CS-chunk, CS-gate
    args = [t.requires_grad_() for t in inputs(tokens=17, dim=6)]
    gates = sharp * args[3]
    wanted = attention_form(*args[:3], 4, gates, args[4])
    monkeypatch.setattr(_chunks_cpu, "NARROW", narrow)
    grads = [torch.autograd.grad(wanted.output.sin().sum(), args, retain_graph=True)]
    chunked = chunked_form(*args[:3], 4, gates, args[4], chunk=7)[0].output
    for ours in (chunked, recurrence.one_chunk_form(*args[:3], 4, gates, args[4])):
        assert_close(ours, wanted.output, rtol=1e-6, atol=1e-8)
        grads.append(torch.autograd.grad(ours.sin().sum(), args, retain_graph=True))
    for found in grads[1:]:
        for a, b in zip(found, grads[0]):
            assert (a - b).abs().max() <= 1e-6 * b.abs().max()


@pytest.mark.parametrize(("dim", "power", "width"), [(5, 2, 2), (6, 4, 4), (32, 2, 2), (4, 6, 1)])
def test_tiles_hold_every_monomial_once_with_its_weight(monkeypatch, dim, power, width):  # CS-k
    tiles = _chunks_cpu._tiles
    _chunks_cpu._layout.cache_clear()
    monkeypatch.setattr(_chunks_cpu, "_tiles", lambda d, p, _: tiles(d, p, width))
    layout = _chunks_cpu._layout(dim, power)
    _chunks_cpu._layout.cache_clear()
    x = torch.randn(dim, dtype=torch.float64)
    table = monomials(dim, power)
    plain = x
    for degree in range(2, power + 1):
        step = monomials(dim, degree)
        lower, plain = plain, x[step.first] * plain[step.rest]
    rows = torch.cat([torch.outer(x[t.variables], lower[-t.size :]).flatten() for t in layout.tiles])
    counts = layout.weight > 0
    assert_close(rows[layout.place], plain)
    assert_close(rows[counts], plain[layout.monomial[counts]])
    assert_close(layout.weight[layout.place], table.weight)
    assert counts.sum() == len(plain)
    assert len(rows) > len(plain) or width == 1


def test_chunked_form_equals_attention_at_working_size():  # CS-chunk
    args = [
        t.requires_grad_() for t in inputs(batch=1, heads=1, tokens=1100, dim=64, value_dim=64, dtype=torch.float32)
    ]
    wanted, ours = attention_form(*args[:3], 2, *args[3:]), chunked_form(*args[:3], 2, *args[3:])[0]
    assert_close(ours.output, wanted.output, rtol=1e-3, atol=1e-4)
    assert_close(ours.log_normaliser, wanted.log_normaliser, rtol=1e-4, atol=1e-4)
    gradients = (torch.autograd.grad(y.output.square().sum(), args) for y in (ours, wanted))
    for a, b in zip(*gradients):
        assert (a - b).norm() <= 1e-4 * b.norm()


# Gradients ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("power", [2, 4])
def test_gradients_are_those_of_finite_differences(form, power):
    args = [t.requires_grad_() for t in inputs(batch=1, heads=2, tokens=6, dim=2, value_dim=2)]
    args[3] = torch.linspace(-2, -0.1, 12, dtype=torch.float64).view(1, 2, 6).requires_grad_()
    assert torch.autograd.gradcheck(lambda q, k, v, g, t: tuple(form(q, k, v, power, g, t)), args, atol=1e-4)


@given(shapes, st.sampled_from([2, 4]), st.integers(1, 12), st.booleans())
@settings(deadline=None, max_examples=20)
def test_gradients_of_all_inputs_are_equal_across_forms(shape, power, chunk, gated):
    args = [t.requires_grad_() for t in inputs(**shape)]
    target = torch.randn(args[2].shape, dtype=torch.float64)
    inner = slice(0, 5) if gated else slice(0, 3)
    found = []
    for form in (*FORMS[:2], lambda *a: chunked_form(*a, chunk=chunk)[0]):
        attended = form(*args[:3], power, *args[3:]) if gated else form(*args[:3], power)
        loss = (attended.output * target).sum() + attended.log_normaliser.sin().sum()
        found.append(torch.autograd.grad(loss, args[inner]))
    # The state's rounding grows with the inverse of a small normaliser, and so does the gradient itself.
    scale = max(g.abs().max().item() for g in found[0])
    for gradient in found[1:]:
        for ours, expected in zip(gradient, found[0]):
            assert ((ours - expected).abs() <= 1e-7 * (1 + scale) ** 2).all()


def test_gradients_through_a_carried_state_are_those_of_the_uncut_sequence():  # CS-rec, CS-chunk
    args = [t.requires_grad_() for t in inputs(tokens=9)]
    expected = torch.autograd.grad(attention_form(*args[:3], 2, *args[3:]).output[:, :, 5:].sin().sum(), args)
    for first, second in itertools.product((recurrent_form, chunked_form), repeat=2):
        q, k, v, log_g, turns = (t[:, :, :5] for t in args)
        state = first(q, k, v, 2, log_g, turns)[1]
        q, k, v, log_g, turns = (t[:, :, 5:] for t in args)
        found = torch.autograd.grad(second(q, k, v, 2, log_g, turns, state)[0].output.sin().sum(), args)
        for ours, wanted in zip(found, expected):
            assert_close(ours, wanted, rtol=1e-6, atol=1e-8)


def test_a_carried_state_that_is_a_constant_has_its_part_in_the_derivatives():  # CS-rec, CS-chunk
    args = [t.requires_grad_() for t in inputs(tokens=9)]
    kept = [torch.cat([t[:, :, :5].detach(), t[:, :, 5:]], 2) for t in args]
    expected = torch.autograd.grad(attention_form(*kept[:3], 2, *kept[3:]).output[:, :, 5:].sin().sum(), args)
    early, late = ([t[:, :, part] for t in args] for part in (slice(0, 5), slice(5, 9)))
    state = State(*(part.detach() for part in recurrent_form(*early[:3], 2, *early[3:])[1]))
    for form in (recurrent_form, partial(chunked_form, chunk=3), partial(chunked_with, by_large_products, chunk=3)):
        output = form(*late[:3], 2, *late[3:], state=state)[0].output
        for ours, wanted in zip(torch.autograd.grad(output.sin().sum(), args), expected):
            assert_close(ours, wanted, rtol=1e-6, atol=1e-8)


def test_gradient_by_the_carried_state_itself_is_right():  # CS-rec, CS-chunk
    q, k, v, log_g, turns = inputs(batch=1, heads=1, tokens=3, dim=2, value_dim=2)
    state = chunked_form(*inputs(batch=1, heads=1, tokens=6, dim=2, value_dim=2, seed=1)[:3], 2)[1]
    for form in (recurrent_form, partial(chunked_form, chunk=2), partial(chunked_with, by_large_products, chunk=2)):

        def through(S, Z, mu, form=form):
            attended, last = form(q, k, v, 2, log_g, turns, State(S, Z, mu))
            return *attended, *last  # fmt: skip

        assert torch.autograd.gradcheck(through, [t.clone().requires_grad_() for t in state[:3]])


# Gates, rotations, ALiBi, the conformal form ------------------------------------------------------------------------


def test_log_gates_are_the_logarithm_of_the_sigmoid_even_far_out():  # CS-gate
    logits = torch.tensor([-200.0, -3.0, 0.0, 4.0, 200.0])
    exact = -torch.log1p(torch.exp(-logits.double()))
    assert_close(log_gates(logits).double(), exact, rtol=1e-6, atol=1e-30)
    assert log_gates(logits.bfloat16()).dtype == torch.float32
    assert (log_gates(logits, bias=3.0) <= 0).all()


def test_gate_products_are_the_exponentials_of_log_decay():  # CS-gate
    log_g = inputs(batch=1, heads=1)[3]
    g = log_g[0, 0].exp()
    ours = log_decay(log_g)[0, 0].exp()
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
        assert recurrence.memory_length(gate) == pytest.approx(tokens, rel=1e-3)


def test_rotation_rates_lie_between_0_and_2_and_angles_add_up():  # CS-beta
    logits = torch.tensor([[[-50.0, -1.0, 0.0, 0.5, 50.0]]]).double()
    beta = rotation_rates(logits)
    assert_close(beta, 2 * torch.sigmoid(2 * logits))
    theta = document_frequencies(4, 50.0)
    mu, start = torch.tensor([0.3, -1.0]).double(), torch.tensor([[[0.3, -1.0]]]).double()
    ours = cumulative_angles(turns_of(beta, theta), start)[0, 0]
    for i in range(5):
        mu = mu + beta[0, 0, i] * theta[:, 0].double()
        assert_close(ours[i], mu)


def test_alibi_is_scalar_gating_of_softmax_attention():  # CS-A1
    q, k, _, _, _ = inputs(batch=1, heads=2, tokens=6)
    assert (recurrence.alibi_log_gates(torch.tensor([0.0, 1.0]), 3)[0, 0] == 0).all()  # a slope of 0 forgets nothing
    slopes = torch.tensor([0.5, 0.125]).double()
    gates = recurrence.alibi_log_gates(slopes, 6)
    assert gates.shape == (1, 2, 6)
    weights = attention_weights(q, k, log_gate=log_decay(gates), scale=1.0)
    for h, i in np.ndindex(2, 6):
        B = [torch.exp(q[0, h, i] @ k[0, h, j] + slopes[h] * (j - i)) for j in range(i + 1)]
        gated = [torch.exp(-slopes[h]) ** (i - j) * torch.exp(q[0, h, i] @ k[0, h, j]) for j in range(i + 1)]
        assert_close(torch.stack(B), torch.stack(gated))
        assert_close(weights[0, h, i, : i + 1], torch.stack(B) / sum(B))


@pytest.mark.parametrize("power", [2, 4])
def test_conformal_form_of_the_update_gives_the_same_output(power):  # CS-3, CS-1, CS-2
    args = inputs(tokens=6)
    wanted, last = recurrent_form(*args[:3], power, *args[3:])
    state = empty_state(*args[1:3], power)
    for i in range(6):
        q, k, v, log_g, turn = (t[:, :, i] for t in args)
        output, state = conformal_step(state, q, k, v, power, log_g, turn)
        assert_close(output, wanted.output[:, :, i], rtol=1e-6, atol=1e-8)
    lifted = lift(block_diagonal(rotation_matrix(last.mu)), power)
    assert_close(state.S, last.S @ lifted)
    assert_close(state.Z, (last.Z[..., None, :] @ lifted).squeeze(-2))


def test_conformal_update_multiplies_the_state_by_a_scaled_rotation():  # CS-1, CS-3
    args = inputs(batch=1, heads=1, tokens=1)
    q, k, v, log_g, turn = (t[:, :, 0] for t in args)
    before = chunked_form(*inputs(batch=1, heads=1, seed=1)[:3], 2)[1]
    after = conformal_step(before, q, k, v, 2, log_g, turn)[1]
    sR = math.exp(log_g.item()) * lift(torch.tensor(plane_rotations(turn[0, 0].numpy())), 2)
    expected = before.S[0, 0] @ sR + torch.outer(v[0, 0], torch.tensor(phi(k[0, 0].numpy(), 2)))
    assert_close(after.S[0, 0], expected)


# One softmax ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("power", [2, 4])
def test_attention_form_is_a_softmax_of_logarithms(power):  # CS-FUSED
    args = inputs()
    for gates in (None, args[3]):
        assert_close(softmax_form(*args[:3], power, gates), attention_form(*args[:3], power, gates).output)
    flat = [t[0, 0].numpy() for t in args]
    wanted = by_pairs(*flat[:3], power, flat[3], 0 * flat[4])[0]
    assert_close(softmax_form(*args[:3], power, args[3])[0, 0], torch.tensor(wanted))


def test_modified_score_is_p_log_score_plus_log_decay():  # CS-FUSED
    log_g = inputs(batch=1, heads=2)[3]
    modify = recurrence.score_modifier(4, log_g)
    for h, i, j in np.ndindex(2, 9, 9):
        if j <= i:
            score = torch.tensor(-1.7).double()
            expected = torch.log(score**4 * torch.prod(log_g[0, h, j + 1 : i + 1].exp()))
            assert_close(modify(score, *(torch.tensor(index) for index in (0, h, i, j))), expected)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_fused_kernel_with_a_modified_score_computes_the_attention_form():  # CS-FUSED
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    q, k, v, log_g, _ = inputs(tokens=12, dim=16, value_dim=16, dtype=torch.float32)
    mask = flex.create_block_mask(lambda b, h, i, j: i >= j, None, None, 12, 12, device="cpu")
    modify = recurrence.score_modifier(2, log_g)
    ours = flex.flex_attention(q, k, v, score_mod=modify, block_mask=mask, scale=1.0)
    assert_close(ours, attention_form(q, k, v, 2, log_g).output, rtol=1e-4, atol=1e-5)


# Parts ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("power", [2, 4])
def test_parts_merge_by_their_normalisers(power):  # CS-att, CS-rec
    args = inputs(tokens=9)
    whole = attention_form(*args[:3], power, *args[3:])
    early, late = ([t[:, :, part] for t in args] for part in (slice(0, 5), slice(5, 9)))
    state = chunked_form(*early[:3], power, *early[3:])[1]
    parts = [attention_form(*late[:3], power, *late[3:]), read_state(state, late[0], power, *late[3:])]
    merged = merge(parts)
    assert_close(merged.output, whole.output[:, :, 5:], rtol=1e-7, atol=1e-9)
    assert_close(merged.log_normaliser, whole.log_normaliser[:, :, 5:])


def test_a_part_that_attended_to_nothing_changes_nothing():
    q, k, v, log_g, _ = inputs()
    part = attention_form(q, k, v, 2, log_g)
    nothing = Attended(torch.zeros_like(v), torch.full_like(log_g, float("-inf")))
    assert_close(merge([part, nothing]).output, part.output)
    assert_close(merge([part]), part)
    assert_close(merge([nothing, nothing]).output, nothing.output)
    state = empty_state(k, v, 2)
    assert_close(read_state(state, q, 2), nothing)


# Numbers in float32 --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["near 0", "near 1", "mixed"])
def test_float32_holds_over_8192_steps(kind):  # CS-gate, CS-2
    g = torch.Generator().manual_seed(1)
    tokens, dim = 8192, 2
    # A common component keeps scores away from zero: the question here is gates and lengths, not cancellation.
    q, k = (torch.randn(1, 1, tokens, dim, generator=g) * 0.3 + 1 for _ in range(2))
    v = torch.randn(1, 1, tokens, 2, generator=g)
    near_0, near_1 = -100 * torch.rand(1, 1, tokens, generator=g), -1e-5 * torch.rand(1, 1, tokens, generator=g)
    pick = {"near 0": 1.0, "near 1": 0.0, "mixed": 0.01}[kind]
    log_g = torch.where(torch.rand(1, 1, tokens, generator=g) < pick, near_0, near_1)
    turns = 1e-3 * torch.rand(1, 1, tokens, dim // 2, generator=g)
    with np.errstate(under="ignore"):
        flat = [t[0, 0].double().numpy() for t in (q, k, v, log_g, turns)]
        Y = by_recurrence(*flat[:3], 2, *flat[3:])[0]
    expected = torch.tensor(Y).float()[None, None]
    args = [t.requires_grad_() for t in (q, k, v, log_g, turns)]
    ours = chunked_form(*args[:3], 2, *args[3:])[0].output
    assert_close(ours, expected, rtol=1e-3, atol=2e-4)
    for gradient in torch.autograd.grad(ours.square().sum(), args):
        assert gradient.isfinite().all()
    if kind == "mixed":
        with torch.no_grad():
            assert_close(recurrent_form(*args[:3], 2, *args[3:])[0].output, expected, rtol=1e-3, atol=2e-4)
            late = [t[:, :, -2048:] for t in args]
            assert_close(
                attention_form(*late[:3], 2, *late[3:]).output[:, :, -512:],
                expected[:, :, -512:],
                rtol=1e-3,
                atol=2e-4,
            )


@pytest.mark.parametrize("form", FORMS)
def test_queries_orthogonal_to_all_keys_give_zero(form):
    q, k, v, log_g, _ = inputs(tokens=10, dtype=torch.float32)
    q[..., :2], k[..., 2:] = 0, 0  # exactly orthogonal
    args = [t.requires_grad_() for t in (q, k, v, log_g)]
    attended = form(*args[:3], 2, args[3])
    assert_close(attended.output, torch.zeros_like(v))
    assert (attended.log_normaliser == float("-inf")).all()
    for gradient in torch.autograd.grad(attended.output.sum(), args):
        assert gradient.isfinite().all()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("power", [2, 4])
def test_queries_nearly_orthogonal_to_all_keys_give_finite_numbers(form, power):
    q, k, v, log_g, _ = inputs(tokens=40, dim=8, dtype=torch.float32)
    basis, _ = torch.linalg.qr(torch.randn(8, 8))
    q[..., :4], k[..., 4:] = 0, 0
    q, k = q @ basis.T, 100 * k @ basis.T  # orthogonal up to rounding
    q[:, :, 7] = 0
    args = [t.requires_grad_() for t in (q, k, v, log_g)]
    attended = form(*args[:3], power, args[3])
    assert attended.output.isfinite().all()
    assert (attended.output[:, :, 7] == 0).all()
    assert attended.output.abs().max() < 200 * v.abs().max()
    for gradient in torch.autograd.grad(attended.output.sum(), args):
        assert gradient.isfinite().all()


def test_attention_form_does_not_overflow_where_the_powers_would():  # CS-att
    q, k, v, log_g, _ = inputs(dtype=torch.float32)
    exact = attention_form(q.double(), k.double(), v.double(), 6, log_g.double())
    for scale in (1e-10, 1e10):
        ours = attention_form(scale * q, scale * k, v, 6, log_g)
        assert_close(ours.output, exact.output.float(), rtol=1e-4, atol=1e-5)
        shift = 6 * 2 * math.log(scale)
        assert_close(ours.log_normaliser, exact.log_normaliser.float() + shift, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("form", FORMS)
def test_output_does_not_depend_on_the_lengths_of_queries(form):  # CS-att
    q, k, v, log_g, _ = inputs()
    lengths = torch.rand(*q.shape[:3], 1, dtype=torch.float64) + 0.1
    plain, longer = form(q, k, v, 4, log_g), form(lengths * q, k, v, 4, log_g)
    assert_close(longer.output, plain.output)
    assert_close(longer.log_normaliser, plain.log_normaliser + 4 * lengths.squeeze(-1).log())
    q, k, v, log_g, _ = well_conditioned(dtype=torch.float32)
    plain = form(q, k, v, 2, log_g)
    for exponent in (-70, 70):  # the squares of the lengths leave the range of float32
        assert_close(form(2.0**exponent * q, k, v, 2, log_g).output, plain.output, rtol=1e-5, atol=1e-6)


def test_a_sharp_gate_among_slow_ones_keeps_its_neighbours_exact():  # CS-gate
    tokens = 600
    q = k = torch.ones(1, 1, tokens, 2)
    v = torch.arange(tokens, dtype=torch.float32).view(1, 1, tokens, 1)
    log_g = torch.full((1, 1, tokens), -0.01)
    log_g[..., 200:300] = -1e4  # sums of a million, differences of a hundredth
    weights = torch.exp(torch.tensor(-0.01).double() * torch.arange(300).double())
    expected = (weights * torch.arange(599, 299, -1)).sum() / weights.sum()
    # Token 299 is the last before the slow gates begin: it still counts with exp(-3).
    expected = (expected * weights.sum() + math.exp(-3.0) * 299) / (weights.sum() + math.exp(-3.0))
    for form in FORMS:
        assert_close(form(q, k, v, 2, log_g).output[0, 0, -1, 0].double(), expected, rtol=1e-5, atol=0)


def test_sharp_gates_in_one_chunk_leave_the_others_exact():  # CS-gate
    q, k, v, log_g, _ = well_conditioned(batch=1, heads=1, tokens=12, dtype=torch.float32)
    log_g = 0.01 * log_g
    log_g[..., 1] = -200  # exp(200) is no number of float32
    ours, exact = chunked_form(q, k, v, 2, log_g, chunk=4)[0], attention_form(q, k, v, 2, log_g)
    assert_close(ours.output, exact.output, rtol=1e-4, atol=1e-5)
    assert_close(ours.log_normaliser, exact.log_normaliser, rtol=1e-4, atol=1e-5)


def test_a_state_of_small_keys_reads_as_one_of_large():  # CS-att
    q, k, v, log_g, _ = well_conditioned(tokens=5, dtype=torch.float32)
    large, small = (read_state(recurrent_form(q, size * k, v, 2, log_g)[1], q, 2) for size in (1.0, 2.0**-7))
    assert_close(small.output, large.output, rtol=1e-5, atol=1e-6)
    assert_close(small.log_normaliser, large.log_normaliser - 14 * math.log(2), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_nan_reaches_every_row_that_sees_it(form, which):
    args = inputs(tokens=10)
    args[which][0, 0, 5, 1] = float("nan")
    attended = form(*args[:3], 2, *args[3:])
    rows = slice(5, 6) if which == 0 else slice(5, None)  # a query's own row, or all that see the key or the value
    assert attended.output[0, 0, rows].isnan().any(-1).all()
    assert attended.log_normaliser[0, 0, rows].isnan().all() or which == 2
    assert attended.output[0, 0, :5].isfinite().all()
    assert which < 2 or attended.output[0, 0, :, [0, 2]].isfinite().all()  # other features of the value
    assert attended.output[0, 1].isfinite().all()
    assert attended.output[1].isfinite().all()


def test_a_nan_in_a_carried_state_is_read_as_nan():
    q, k, v, log_g, turns = inputs(tokens=6)
    k[0, 0, 2, 1] = float("nan")
    state = recurrent_form(q, k, v, 2)[1]
    part = read_state(state, q, 2)
    assert part.output[0, 0].isnan().all()
    assert merge([part, part]).output[0, 0].isnan().all()
    one = [t[:, :, 0] for t in (q, q, v)]
    assert conformal_step(state, *one, 2, log_g[:, :, 0], turns[:, :, 0])[0][0, 0].isnan().all()


def well_conditioned(**shape):
    """A common component keeps scores away from zero: the question is sizes, not cancellation."""
    q, k, v, log_g, turns = inputs(**shape)
    return [0.3 * q + 1, 0.3 * k + 1, v, log_g, 0.1 * turns]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("size", "power"), [(1e19, 2), (1e-23, 2), (1e10, 4), (1e-12, 4), (1e8, 6)])
def test_keys_of_any_size_give_the_same_output(form, size, power):  # CS-att
    q, k, v, log_g, turns = well_conditioned(tokens=12)
    exact = attention_form(q, k, v, power, log_g, turns)
    sizes = torch.tensor([[1.0, size], [size, 1.0]], dtype=torch.float64)  # each head's keys have a size of their own
    ours = form(q.float(), (sizes[..., None, None] * k).float(), v.float(), power, log_g.float(), turns.float())
    assert_close(ours.output, exact.output.float(), rtol=1e-4, atol=1e-5)
    logs = exact.log_normaliser + power * sizes.log()[..., None]
    assert_close(ours.log_normaliser, logs.float(), rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("size", [1e19, 1e-23, 1.0])
def test_a_state_of_keys_of_any_size_is_carried_on(size):  # CS-rec, CS-3
    args = well_conditioned(tokens=12)
    args[1] = size * args[1]
    whole = attention_form(*args[:3], 2, *args[3:])
    early, late = ([t.float()[:, :, part] for t in args] for part in (slice(0, 7), slice(7, 12)))
    for first, second in itertools.product((recurrent_form, chunked_form), repeat=2):
        state = first(*early[:3], 2, *early[3:])[1]
        assert state.S.isfinite().all()
        assert (state.exponent == 0).all() == (size == 1)
        ours, _ = second(*late[:3], 2, *late[3:], state=state)
        assert_close(ours.output.double(), whole.output[:, :, 7:], rtol=1e-4, atol=1e-5)
        assert_close(ours.log_normaliser.double(), whole.log_normaliser[:, :, 7:], rtol=1e-3, atol=1e-2)
        part = read_state(state, late[0], 2, *late[3:])
        merged = merge([part, attention_form(*late[:3], 2, *late[3:])])
        assert_close(merged.output.double(), whole.output[:, :, 7:], rtol=1e-4, atol=1e-5)
    state = empty_state(early[1], early[2], 2)
    for i in range(7):
        q, k, v, log_g, turn = (t[:, :, i] for t in early)
        output, state = conformal_step(state, q, k, v, 2, log_g, turn)
        assert_close(output.double(), whole.output[:, :, i], rtol=1e-4, atol=1e-5)


def test_larger_keys_after_small_ones_take_the_state_to_their_unit():
    args = well_conditioned(tokens=12)
    args[1] = args[1] * torch.logspace(-4, 12, 12, dtype=torch.float64)[:, None]
    whole, outputs, state = attention_form(*args[:3], 2, *args[3:]), [], None
    for i in range(12):
        attended, state = recurrent_form(*(t.float()[:, :, i : i + 1] for t in args[:3]), 2,
                                         *(t.float()[:, :, i : i + 1] for t in args[3:]), state)  # fmt: skip
        outputs.append(attended.output)
    assert (state.exponent == 64).all()
    assert_close(torch.cat(outputs, 2).double(), whole.output, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("log2", "exponent"), [(-10, -64), (-8, 0), (23, 0), (24, 64), (-math.inf, 0)])
def test_the_exponent_is_0_over_a_wide_range_of_keys(log2, exponent):
    q, k, v, _, _ = inputs(batch=1, heads=1, tokens=3)
    k = k / k.abs().max() * 2.0**log2
    for form in (recurrent_form, chunked_form):
        assert form(q, k, v, 2)[1].exponent.item() == exponent


def test_smaller_keys_after_large_ones_stay_in_their_unit():
    args = well_conditioned(tokens=12)
    args[1] = args[1] * torch.logspace(8, 2, 12, dtype=torch.float64)[:, None]
    args[3] = torch.zeros_like(args[3])
    whole = attention_form(*args[:3], 2, *args[3:])
    early, late = ([t.float()[:, :, part] for t in args] for part in (slice(0, 3), slice(3, 12)))
    for form in (recurrent_form, chunked_form):
        state = form(*early[:3], 2, *early[3:])[1]
        ours, last = form(*late[:3], 2, *late[3:], state=state)
        assert (state.exponent == 64).all()
        assert (last.exponent == 64).all()
        assert_close(ours.output.double(), whole.output[:, :, 3:], rtol=1e-4, atol=1e-5)


def test_float64_queries_read_a_float32_state_in_float64():
    args = inputs(tokens=8, dtype=torch.float32)
    state = recurrent_form(*(t[:, :, :5] for t in args[:3]), 2, *(t[:, :, :5] for t in args[3:]))[1]
    q, _, _, log_g, turns = (t[:, :, 5:].double() for t in args)
    wanted = read_state(State(*(None if t is None else t.double() for t in state)), q, 2, log_g, turns)
    for ours, exact in zip(read_state(state, q, 2, log_g, turns), wanted):
        assert ours.dtype == torch.float64
        assert_close(ours, exact, rtol=1e-12, atol=1e-12)
    assert read_state(state, q.float(), 2, log_g, turns.float()).log_normaliser.dtype == torch.float32


def test_a_float64_state_makes_the_computation_float64():
    args = inputs(tokens=8)
    whole = attention_form(*args[:3], 2, *args[3:])
    state = recurrent_form(*(t[:, :, :5] for t in args[:3]), 2, *(t[:, :, :5] for t in args[3:]))[1]
    late = [t[:, :, 5:].float() for t in args]
    for form in (recurrent_form, chunked_form):
        attended, last = form(*late[:3], 2, *late[3:], state=state)
        assert attended.output.dtype == torch.float32
        assert last.S.dtype == attended.log_normaliser.dtype == torch.float64
        assert_close(attended.output, whole.output[:, :, 5:].float(), rtol=1e-5, atol=1e-5)
    part = read_state(state, late[0], 2, *late[3:])
    wide = read_state(state, late[0].double(), 2, *late[3:])
    assert_close(part.log_normaliser, wide.log_normaliser, rtol=1e-13, atol=1e-13)
    merged = merge([part, attention_form(*late[:3], 2, *late[3:])])
    assert_close(merged.output, whole.output[:, :, 5:].float(), rtol=1e-4, atol=1e-5)
    one = [t[:, :, 0] for t in late]
    output, turned = conformal_step(state, *one[:3], 2, *one[3:])
    assert output.dtype == torch.float32
    assert turned.S.dtype == torch.float64


@pytest.mark.parametrize("wide", [0, 1, 2])
def test_every_form_computes_in_the_widest_of_queries_keys_and_values(wide):
    args = [t.double() if i == wide else t.float() for i, t in enumerate(inputs()[:3])]
    log_g = inputs(dtype=torch.float32)[3]
    exact = attention_form(*(t.double() for t in args), 2, log_g)
    for form in FORMS:
        ours = form(*args, 2, log_g)
        assert ours.output.dtype == args[2].dtype
        assert_close(ours.log_normaliser, exact.log_normaliser, rtol=1e-11, atol=1e-11)
    narrow = empty_state(args[0].float(), args[2].float(), 2)
    for form in (recurrent_form, chunked_form):
        assert {part.dtype for part in form(*args, 2, log_g, state=narrow)[1]} == {torch.float64}
    output = one_chunk_form(*args, 2, log_g)
    assert_close(output, exact.output.to(args[2].dtype), rtol=1e-6, atol=1e-6)


def test_gates_of_any_precision_leave_the_state_in_that_of_the_keys():
    q, k, v, log_g, _ = inputs(dtype=torch.float32)
    for gates in (log_g.double(), log_g.bfloat16()):
        ours = attention_form(q, k, v, 2, gates)
        for form in (recurrent_form, chunked_form):
            attended, state = form(q, k, v, 2, gates)
            assert state.S.dtype == state.Z.dtype == torch.float32
            assert_close(attended.output, ours.output, rtol=1e-4, atol=1e-5)
    assert log_decay(log_g).dtype == torch.float32
    one = [t[:, :, 0] for t in (q, k, v, log_g)]
    state = empty_state(q, v, 2)
    for gate in (one[3], one[3].double()):
        last = conformal_step(state, *one[:3], 2, gate, torch.zeros(2, 2, 2).double())[1]
        assert last.S.dtype == last.Z.dtype == torch.float32
    logit = torch.tensor(0.3).half()
    assert_close(rotation_rates(logit), 1 + logit.float().tanh(), rtol=1e-6, atol=0)
    assert turns_of(torch.ones(2), torch.ones(3, 1).double()).dtype == torch.float32


def test_a_loop_over_several_tokens_is_hidden_and_one_token_is_not(monkeypatch):
    q, k, v, *_ = inputs(tokens=3)
    monkeypatch.setattr(forms, "uncompiled", lambda function: lambda *args: "left as it is")
    assert isinstance(recurrent_form(q[:, :, :1], k[:, :, :1], v[:, :, :1], 2)[0], Attended)
    assert recurrent_form(q, k, v, 2) == recurrent_form(q[:, :, 1:], k[:, :, 1:], v[:, :, 1:], 2) == "left as it is"


@pytest.mark.parametrize("size", [1e-12, 1e12])
def test_one_chunk_takes_queries_and_keys_of_any_size(size):
    q, k, v, log_g, turns = inputs(dtype=torch.float32)
    usual = one_chunk_form(q, k, v, 4, log_g, turns)
    assert_close(one_chunk_form(q, size * k, v, 4, log_g, turns), usual, rtol=1e-4, atol=1e-5)
    assert_close(one_chunk_form(size * q, k, v, 4, log_g, turns), usual, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("form", [one_chunk_form, lambda *args: attention_form(*args).output])
def test_an_infinite_value_has_its_sign_in_the_output(form):
    q, k, v, *_ = inputs(tokens=6)
    v[:, :, 2, 0], v[:, :, 3, 1] = math.inf, -math.inf
    output = form(q, k, v, 2)
    assert (output[:, :, 2:, 0] == math.inf).all()
    assert (output[:, :, 3:, 1] == -math.inf).all()
    assert output[:, :, :2].isfinite().all()


def test_an_infinite_value_is_infinite_in_the_output_and_in_the_state():
    k = torch.ones(1, 1, 3, 2)
    for form in (recurrent_form, chunked_form):
        attended, state = form(k, k, math.inf * k, 2)
        assert attended.output.isposinf().all()
        assert state.S.isposinf().all()


def test_a_single_number_is_a_sequence():
    one = torch.full((1, 1, 1, 1), 3.0)
    for form in (attention_form, recurrence.fused_form):
        attended = form(one, one, 5 * one, 2)
        assert attended.output.item() == pytest.approx(15)
        assert attended.log_normaliser.exp().item() == pytest.approx(81)
    for form in (recurrent_form, chunked_form):
        attended, state = form(one, one, 5 * one, 2)
        assert attended.output.item() == 15
        assert attended.log_normaliser.exp().item() == pytest.approx(81)
        assert (state.Z.item(), state.S.item()) == (9, 135)
    assert one_chunk_form(one, one, 5 * one, 2).item() == 15


def test_the_tables_of_a_step_stand_where_the_state_is(monkeypatch):
    places = []
    monkeypatch.setattr(forms, "norm_functional", lambda *args: places.append(args[2:]) or norm_functional(*args))
    q, gate, turn = (torch.empty(1, 1, *shape, device="meta") for shape in ((4,), (), (2,)))
    state = empty_state(q[:, :, None], q[:, :, None], 2)
    output, last = conformal_step(state, q, q, q, 2, gate, turn)
    assert output.device == last.S.device == q.device
    assert places == [(q.device,)]


def test_decays_of_a_chunk_have_the_values_dtype():
    smooth, steep = torch.full((2, 1, 6), -0.01).double()
    steep[0, 3] = -1e3
    for log_g in (smooth, steep):
        sums, first = gate_sums(log_g)
        sides = _chunks_cpu._Sides.of(sums, first, torch.ones(1, 2, 6), 6)
        assert sides.slow == [[log_g is smooth]]
        assert sides.row.dtype == sides.column.dtype == torch.float32
        (square,) = sides.squares(torch.ones(1, 2, 6), 6)
        inside = _chunks_cpu._gated(torch.ones(1, 6, 6), sums, first, square, slice(0, 6))
        assert inside.dtype == torch.float32
        assert (inside == 1).all() == (log_g is smooth)
    there = [t.to("meta") for t in (torch.ones(1, 6, 6), sums, first)]
    assert _chunks_cpu._gated(*there, square, slice(0, 6)).device == there[0].device


def test_a_long_chunk_is_cut_into_four_and_squares_of_pairs_stay_in_the_cache():
    q, heads = torch.zeros(9, 2, 1000), slice(0, 9)
    for chunk, rows in ((100, [100]), (400, [128, 128, 128, 16]), (1000, 4 * [250])):
        parts = _chunks_cpu._Square(heads, slice(0, chunk), True).parts(chunk)
        assert [part.stop - part.start for part in parts] == rows
    for chunk, together in ((100, 9), (250, 4), (1000, 2)):  # 2**17 pairs, of two heads at least
        squares = list(_chunks_cpu._Sides.of(None, None, q, chunk).squares(q, chunk))
        assert squares[0].heads == slice(0, together)


def test_blocks_of_monomials_stay_in_the_cache_and_fill_a_gpu():
    sizes = [monomials.numel() for _, monomials in _chunks_cpu._Columns(torch.zeros(2, 24, 100), 4).blocks()]
    assert max(sizes) <= 2**19
    assert len(sizes) < 2 * sum(sizes) / 2**19 + 1  # two neighbours would not fit
    pairs = _chunks_cpu._head_groups(torch.zeros(5, 4, 64), 64)
    assert [(group.start, group.stop) for group in pairs] == [(0, 4), (4, 8)]
    for chunk, heads in ((2**16, 4), (2**20, 1)):  # 2**27 numbers, in rows of 512
        groups = _chunks_cpu._head_groups(torch.zeros(9, 4, 64, device="meta"), chunk)
        assert [(group.start, group.stop) for group in groups] == [(i, i + heads) for i in range(0, 9, heads)]


def test_half_precision_comes_back_as_it_went_in_and_autocast_changes_nothing():
    q, k, v, log_g, turns = inputs(dtype=torch.float32)
    expected = attention_form(q, k, v, 2, log_g, turns).output
    for form in FORMS:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert_close(form(q, k, v, 2, log_g, turns).output, expected, rtol=1e-4, atol=1e-5)
        half = [t.bfloat16() for t in (q, k, v)]
        for more in ((), (log_g, turns)):  # products of bfloat16 add up in float32, and are rounded at the end alone
            low, exact = form(*half, 2, *more), form(*(t.float() for t in half), 2, *more)
            assert_close(low.output, exact.output.bfloat16(), rtol=0, atol=0)
            assert_close(low.log_normaliser, exact.log_normaliser)
    for more in ((), (log_g, turns)):
        low, exact = one_chunk_form(*half, 2, *more), one_chunk_form(*(t.float() for t in half), 2, *more)
        assert_close(low, exact.bfloat16(), rtol=0, atol=0)


def test_the_work_of_the_chunked_form_is_linear_in_the_tokens(monkeypatch):  # CS-chunk
    monkeypatch.setattr(_chunks_cpu, "within_chunks", _chunks_cpu._within)  # an operator would hide its products
    monkeypatch.setattr(_chunks_cpu, "through_state", _chunks_cpu._through)

    def work(tokens):
        with FlopCounterMode(display=False) as counted:
            chunked_form(*inputs(batch=1, heads=1, tokens=tokens)[:3], 2, chunk=8)
        return counted.get_total_flops()

    assert work(64) - work(32) == 2 * (work(32) - work(16)) > 0


def test_a_chunk_is_as_long_as_features_and_power_have_it(monkeypatch):
    seen = []
    monkeypatch.setattr(chunks, "practical_chunk", lambda *sizes: seen.append(sizes) or 5)
    args = inputs(tokens=7, dim=6)
    assert_close(chunked_form(*args[:3], 4)[1], chunked_form(*args[:3], 4, chunk=5)[1], rtol=0, atol=0)
    assert seen == [(6, 4)]


def test_chunked_form_stores_memory_linear_in_the_tokens():  # CS-chunk
    def stored(tokens):
        total = 0

        def pack(t):
            nonlocal total
            total += t.numel() * t.element_size()
            return t

        args = [t.requires_grad_() for t in inputs(batch=1, heads=1, tokens=tokens, dtype=torch.float32)]
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            chunked_form(*args[:3], 2, *args[3:], chunk=64)
        return total

    small, middle, large = stored(512), stored(1024), stored(2048)
    assert large - middle == pytest.approx(2 * (middle - small), rel=1e-3)


@pytest.mark.parametrize("form", [attention_only, chunked_only])
def test_compiled_forms_equal_the_plain_ones(form):
    args = [t.requires_grad_() for t in inputs(tokens=6, dtype=torch.float32)]
    compiled = torch.compile(lambda *a: form(*a[:3], 2, *a[3:]).output, backend="aot_eager")
    plain, ours = form(*args[:3], 2, *args[3:]).output, compiled(*args)
    assert_close(ours, plain)
    for a, b in zip(torch.autograd.grad(ours.sum(), args), torch.autograd.grad(plain.sum(), args)):
        assert_close(a, b, rtol=1e-4, atol=1e-5)


# Costs ---------------------------------------------------------------------------------------------------------------


class Counted:
    """A number that counts the multiplications it takes part in, by a label."""

    counts: dict[str, int] = {}  # noqa: RUF012
    label = ""

    def __mul__(self, other):
        Counted.counts[Counted.label] = Counted.counts.get(Counted.label, 0) + 1
        return Counted()

    def __add__(self, other):
        return Counted()

    __radd__ = __add__


def counting(label):
    Counted.label = label


def row(n):
    return [Counted() for _ in range(n)]


def dot(a, b):
    return sum((x * y for x, y in zip(a, b)), Counted())


def one_embedding(v, power):
    counting("powers")
    monomial = {(i,): v[i] for i in range(len(v))}
    for _ in range(power - 1):
        monomial = {(i, *w): v[i] * m for w, m in monomial.items() for i in range(w[0] + 1)}
    return [m * Counted() for m in monomial.values()]


def attend_by_scalars(tokens, dim, power):
    keys, values, decays = [], [], []
    for _ in range(tokens):
        q, g = row(dim), Counted()
        counting("gates")
        decays = [g if b is None else b * g for b in decays] + [None]
        keys.append(row(dim))
        values.append(row(dim))
        weights = []
        for key, b in zip(keys, decays):
            counting("products")
            score = dot(q, key)
            counting("powers")
            weight = score
            for _ in range(power - 1):
                weight = weight * score
            counting("gates")
            weights.append(weight if b is None else weight * b)
        counting("products")
        for value, weight in zip(values, weights):
            [weight * x for x in value]


def recur_by_scalars(tokens, dim, power):
    for i in range(tokens):
        q, key, value = one_embedding(row(dim), power), one_embedding(row(dim), power), row(dim)
        if i == 0:
            Z, S = key, [row(len(key)) for _ in range(dim)]
        else:
            counting("gates")
            Z, S = [z * Counted() for z in Z], [[s * Counted() for s in r] for r in S]
        counting("products")
        [[x * m for m in key] for x in value]
        [dot(r, q) for r in [*S, Z]]


def chunk_by_scalars(tokens, dim, power, chunk):
    sizes = [min(chunk, tokens - start) for start in range(0, tokens, chunk)]
    big = dimension(dim, power)
    for index, size in enumerate(sizes):
        attend_by_scalars(size, dim, power)
        first, last = index == 0, index == len(sizes) - 1
        from_start = to_end = None
        for _ in range(size):
            if not first:
                q = one_embedding(row(dim), power)
                counting("products")
                read = [dot(row(big), q) for _ in range(dim + 1)]
                counting("gates")
                from_start = Counted() if from_start is None else from_start * Counted()
                [from_start * x for x in read]
            if not last:
                key = one_embedding(row(dim), power)
                counting("gates")
                to_end = Counted() if to_end is None else to_end * Counted()
                written = [to_end * x for x in row(dim + 1)]
                counting("products")
                [[x * m for m in key] for x in written]
        if not first and not last:
            counting("gates")
            [[s * Counted() for s in row(big)] for _ in range(dim + 1)]


def counts_of(run, *args):
    Counted.counts = {}
    run(*args)
    return tuple(Counted.counts.get(name, 0) for name in ("products", "powers", "gates"))


@pytest.mark.parametrize(("tokens", "dim", "power"), [(1, 2, 2), (5, 3, 2), (4, 2, 4), (7, 2, 6)])
def test_work_of_attention_and_recurrent_forms_is_what_a_loop_over_numbers_counts(tokens, dim, power):  # CS-CROSS
    assert counts_of(attend_by_scalars, tokens, dim, power) == attention_work(tokens, dim, power)
    assert counts_of(recur_by_scalars, tokens, dim, power) == recurrent_work(tokens, dim, power)


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 8, 20])
def test_work_of_the_chunked_form_is_what_a_loop_over_numbers_counts(chunk):  # CS-CROSS, CS-chunk
    for tokens, dim, power in ((8, 3, 2), (7, 2, 4), (1, 2, 2)):
        assert counts_of(chunk_by_scalars, tokens, dim, power, chunk) == chunked_work(tokens, dim, power, chunk)


@pytest.mark.parametrize(("dim", "power"), [(1, 2), (4, 2), (8, 2), (3, 4), (64, 2)])
def test_best_chunk_has_the_least_work_of_all(dim, power):  # CS-CROSS
    for tokens in (1, 7, 100, 999, 12_000):
        work = [chunked_work(tokens, dim, power, chunk).total for chunk in range(1, tokens + 1)]
        assert chunked_work(tokens, dim, power, best_chunk(tokens, dim, power)).total == min(work)


@pytest.mark.parametrize(("dim", "power"), [(8, 2), (64, 2), (8, 4)])
def test_ideal_chunk_is_the_square_root_law(dim, power):  # CS-CROSS
    tokens = 3_628_800  # divisible by many lengths
    near = best_chunk(tokens, dim, power)
    least, ideal = (chunked_work(tokens, dim, power, c).total for c in (near, round(ideal_chunk(dim, power))))
    assert ideal <= 1.0001 * least
    assert ideal_chunk(dim, power) == pytest.approx(math.sqrt(dimension(dim, power)), rel=0.1)


@pytest.mark.parametrize(("dim", "power"), [(1, 2), (2, 4), (3, 6), (8, 2)])
def test_ideal_chunk_is_where_the_work_of_a_token_is_least(dim, power):  # CS-CROSS
    tokens, lengths = 10**12, np.array([1, 2, 4])
    work = [chunked_work(tokens, dim, power, int(c)).total / tokens for c in lengths]
    pairs, passing, _ = np.linalg.solve(np.stack([lengths, 1 / lengths, np.ones(3)], -1), work)  # a c + b / c + const
    # A chunk of c tokens has (c - 1)^2 products of gates, less two: what is left beside c^2 - 2 c is -1.
    assert ideal_chunk(dim, power) ** 2 * pairs == pytest.approx(passing + 1, rel=1e-6)


def test_work_is_counted_in_whole_numbers_of_any_size():  # CS-CROSS
    tokens = 10**12
    last = [after - before for after, before in zip(attention_work(tokens, 1, 2), attention_work(tokens - 1, 1, 2))]
    first = [after - before for after, before in zip(attention_work(3, 1, 2), attention_work(2, 1, 2))]
    assert [a - b for a, b in zip(last, first)] == [(tokens - 3) * n for n in (2, 1, 2)]
    assert all(type(part) is int for part in (*attention_work(7, 4, 2), *chunked_work(7, 4, 2, 2)))


def test_recurrent_form_overtakes_attention_near_twice_the_state_without_gates():  # CS-CROSS
    for power, about in ((2, 4160), (4, 1.5e6)):
        crossing = crossing_length(64, power, ("products",))
        assert crossing == pytest.approx(2 * dimension(64, power), rel=0.01)
        assert crossing == pytest.approx(about, rel=0.03)
        assert attention_work(crossing, 64, power).products >= recurrent_work(crossing, 64, power).products
        assert attention_work(crossing - 1, 64, power).products < recurrent_work(crossing - 1, 64, power).products
    assert crossing_length(64, 2) == pytest.approx(3 * dimension(64, 2), rel=0.04)


def test_crossing_length_is_the_first_by_brute_force():  # CS-CROSS
    for dim, power in ((1, 2), (2, 2), (3, 4), (8, 2)):
        first = next(t for t in itertools.count(1) if attention_work(t, dim, power).total >= recurrent_work(t, dim, power).total)  # fmt: skip  # noqa: E501
        assert crossing_length(dim, power) == first
    least = []
    for dim, part in itertools.product(range(1, 9), range(len(Work._fields))):
        gains = (attention_work(t, dim, 2)[part] - recurrent_work(t, dim, 2)[part] for t in itertools.count(1))
        first, gain = next((t, gain) for t, gain in enumerate(gains, start=1) if gain >= 0)
        assert crossing_length(dim, 2, (Work._fields[part],)) == first
        least.append(gain)
    assert 0 in least  # where both cost the same, the state is taken
    assert crossing_length(4, 2, ("gates",)) == 1  # before the second token nothing is gated


def test_chunked_form_costs_least_of_the_three_beyond_the_crossing():  # CS-CROSS
    for tokens in (8_192, 65_536):
        chunked = chunked_work(tokens, 64, 2, best_chunk(tokens, 64, 2)).total
        assert chunked < recurrent_work(tokens, 64, 2).total < attention_work(tokens, 64, 2).total
    assert best_chunk(2_048, 64, 2) == 2_048  # in short sequences the best chunk is the whole
    assert recurrence.practical_chunk(64, 2) == 512
    assert recurrence.practical_chunk(64, 4) == round(ideal_chunk(64, 4)) > 512


def test_one_recurrent_step_costs_a_constant_times_d_times_the_state():  # CS-cost
    for dim in (8, 64, 256):
        for power in (2, 4):
            step = recurrent_work(1001, dim, power).total - recurrent_work(1000, dim, power).total
            assert 3 <= step / (dim * dimension(dim, power)) <= 3 + (2 + 2 * power) / dim + 1e-9


# The layer -----------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("mapped", [(0, None), (None, 0)])
def test_positions_that_may_not_be_read_are_taken_as_they_come(mapped):
    positions = [torch.arange(4.0, 6.0), torch.arange(6.0)]
    given = [torch.stack([t, t]) if where == 0 else t for t, where in zip(positions, mapped)]
    turn = lambda *args: GATED.place(*args).to_reference(torch.ones(1, 1, 2, 8), torch.ones(1, 1, 6, 8))[0]  # noqa: E731
    assert_close(torch.vmap(turn, mapped)(*given), torch.stack([turn(*positions)] * 2))


def test_a_state_that_does_not_fit_is_told_by_its_part():
    wide = empty_state(torch.ones(2, 2, 3, 6), torch.ones(2, 2, 3, 3), 2)
    for state, part in ((wide, "Z"), (STATE._replace(mu=wide.mu), "mu")):
        with pytest.raises(ValueError, match=f"^state: got {part} of shape"):
            read_state(state, torch.ones(2, 2, 3, 4), 2)


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


def test_a_layer_may_have_one_head_and_takes_its_chunk(monkeypatch):
    layer, x, seen = SympowAttention(8, 1, chunk=2), torch.randn(1, 5, 8), []
    watched = lambda *args, chunk: seen.append(chunk) or chunked_form(*args, chunk=chunk)  # noqa: E731
    monkeypatch.setattr(layers, "chunked_form", watched)
    layer(x)
    layer(x[:, :1])
    assert seen == [2]
    assert sorted(name for name, _ in layer.named_parameters()) == [
        "W_beta.weight", "W_gamma.weight", "out.bias", "out.weight", "qkv.weight",
    ]  # fmt: skip


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


# Bad input -----------------------------------------------------------------------------------------------------------


def bad(**changes):
    q, k, v, log_g, turns = inputs(tokens=3)
    args = {"q": q, "k": k, "v": v, "power": 2, "log_gates": log_g, "turns": turns, **changes}
    return [args[name] for name in ("q", "k", "v", "power", "log_gates", "turns")]


STATE = empty_state(torch.ones(2, 2, 3, 4), torch.ones(2, 2, 3, 3), 2)
GATED = SympowEncoding(8, 1, document_frequencies(8, 64))
ONE = torch.ones(2, 2, 4), torch.ones(2, 2, 4), torch.ones(2, 2, 3)


@pytest.mark.parametrize("form", [attention_form, recurrent_form, chunked_form])
@pytest.mark.parametrize(
    ("named", "came"),
    [
        ("power", 3),
        ("power", 1),
        ("power", -2),
        ("power", 2.0),
        ("q", torch.ones(2, 2, 3, 4, dtype=torch.long)),
        ("k", torch.ones(2, 2, 3, 4, dtype=torch.long)),
        ("v", torch.ones(2, 2, 3, 3, dtype=torch.long)),
        ("log_gates", torch.zeros(2, 2, 3, dtype=torch.long)),
        ("turns", torch.zeros(2, 2, 3, 2, dtype=torch.long)),
        ("q", torch.ones(2, 3, 4)),
        ("k", torch.ones(2, 2, 3, 5)),
        ("k", torch.ones(2, 2, 4, 4)),
        ("v", torch.ones(2, 2, 4, 3)),
        ("log_gates", torch.full((2, 2, 3), 0.1)),
        ("log_gates", torch.full((2, 2, 3), float("nan"))),
        ("log_gates", torch.zeros(2, 3)),
        ("turns", torch.zeros(2, 2, 3, 4)),
    ],
)
def test_bad_arguments_of_the_forms_are_named(form, named, came):
    with pytest.raises(ValueError, match=f"^{named}: got "):
        form(*bad(**{named: came}))


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: chunked_form(*bad(), chunk=0), "chunk"),
        (lambda: chunked_form(*bad(), chunk=2.5), "chunk"),
        (lambda: conformal_step(STATE, *ONE, 2, torch.full((2, 2), 0.1), torch.zeros(2, 2, 2)), "log_gates"),
        (lambda: conformal_step(STATE, *ONE, 2, torch.zeros(2), torch.zeros(2, 2, 2)), "log_gates"),
        (lambda: conformal_step(STATE, *ONE, 2, torch.zeros(2, 2), torch.zeros(2, 2, 3)), "turns"),
        (lambda: conformal_step(STATE, *ONE, 4, torch.zeros(2, 2), torch.zeros(2, 2, 2)), "state"),
        (lambda: read_state(STATE, torch.ones(2, 2, 4), 2), "q"),
        (lambda: read_state(STATE, torch.ones(2, 2, 3, 4), 2.0), "power"),
        (lambda: read_state(STATE, torch.ones(2, 2, 3, 4, dtype=torch.long), 2), "q"),
        (lambda: read_state(STATE, torch.ones(2, 2, 3, 4), 2, None, torch.zeros(2, 2, 3, 3)), "turns"),
        (lambda: SympowAttention(16, 2, chunk=2.5), "chunk"),
        (lambda: chunked_form(*bad(), state=empty_state(torch.ones(2, 2, 3, 6), torch.ones(2, 2, 3, 3), 2)), "state"),
        (lambda: recurrent_form(*bad(), state=empty_state(torch.ones(2, 2, 3, 4), torch.ones(2, 2, 3, 3), 4)), "state"),
        (lambda: recurrent_form(torch.ones(1, 1, 2, 3), torch.ones(1, 1, 2, 3), torch.ones(1, 1, 2, 3), 2,
                                turns=torch.ones(1, 1, 2, 1)), "q's last dimension"),
        (lambda: recurrence.memory_length(1.0), "gate"),
        (lambda: recurrence.memory_length(0.0), "gate"),
        (lambda: attention_form(*(torch.ones(2, 0, 3, 4),) * 3, 2), "q"),
        (lambda: attention_form(*(torch.ones(2, 2, 3, 0),) * 3, 2), "q"),
        (lambda: SympowAttention(16, 4, key_heads=3), "key_heads"),
        (lambda: SympowAttention(16, 4, key_heads=0), "key_heads"),
        (lambda: SympowAttention(16, 4)(torch.zeros(2, 3, 16), mask=torch.ones(2, 4, dtype=torch.bool)), "mask"),
        (lambda: SympowAttention(16, 4)(torch.zeros(2, 3, 16), mask=torch.ones(2, 3)), "mask"),
        (lambda: SympowAttention(16, 4)(torch.zeros(2, 3, 16), mask=torch.ones(2, 1, 3, 3, dtype=torch.bool)), "mask"),
        (lambda: chunked_form(*bad(), state=empty_state(torch.ones(2, 2, 3, 4), torch.ones(2, 2, 3, 5), 2)), "state"),
        (lambda: read_state(STATE._replace(Z=STATE.Z.long()), torch.ones(2, 2, 3, 4), 2), "state"),
        (lambda: SympowAttention(16, 4)(torch.zeros(2, 3, 16), starts=torch.zeros(3, 3, dtype=torch.bool)), "starts"),
        (lambda: GATED.place(torch.arange(2.0), torch.arange(6.0)), "positions"),
        (lambda: GATED.place(torch.arange(6.0), torch.arange(2.0)), "positions"),
        (lambda: GATED.place(torch.arange(2.0)).log_gate(None), "x"),
        (lambda: GATED.place(torch.arange(2.0)).as_score_mod(), "x"),
        (lambda: attention_form(*(torch.ones(2, 2, 3, 4),) * 2, torch.ones(2, 2, 3, 0), 2), "v"),
        (lambda: recurrence.one_chunk_form(*bad(turns=torch.zeros(2, 2, 3, 3))), "turns"),
        (lambda: recurrence.alibi_log_gates(torch.tensor([-1.0]), 3), "slopes"),
        (lambda: log_decay(torch.ones(3)), "log_gates"),
        (lambda: turns_of(torch.ones(1, 1, 3), torch.ones(2)), "frequencies"),
        (lambda: SympowAttention(16, 3), "heads"),
        (lambda: SympowAttention(16, 2, power=3), "power"),
        (lambda: SympowAttention(6, 2), "dim"),
        (lambda: chunked_form(*bad(), chunk=True), "chunk"),
        (lambda: chunked_work(10, 4, 2, 0), "chunk"),
        (lambda: chunked_work(10, 4, 2, 2.5), "chunk"),
        (lambda: chunked_work(10.5, 4, 2, 2), "tokens"),
        (lambda: attention_work(0, 4, 2), "tokens"),
        (lambda: recurrent_work(2.0, 4, 2), "tokens"),
        (lambda: best_chunk(0, 4, 2), "tokens"),
        (lambda: crossing_length(4, 2, ("time",)), "parts"),
        (lambda: crossing_length(4, 2, ()), "parts"),
        (lambda: recurrence.one_chunk_form(*bad(log_gates=torch.full((2, 2, 3), 0.1))), "log_gates"),
        (lambda: recurrence.fused_form(*bad(log_gates=torch.full((2, 2, 3), 0.1))), "log_gates"),
        (lambda: SympowEncoding(16, 3, document_frequencies(8, 64)), "heads"),
        (lambda: SympowEncoding(16, 0, document_frequencies(8, 64)), "heads"),
        (lambda: SympowAttention(16, 0), "heads"),
        (lambda: SympowEncoding(8, 1, document_frequencies(8, 64)).place(torch.zeros(3, 2)), "positions"),
        (lambda: softmax_form(*bad(log_gates=torch.full((2, 2, 3), 0.1))[:5]), "log_gates"),
    ],
)  # fmt: skip
def test_bad_input_is_named(call, named):
    with pytest.raises(ValueError, match=f"^{named}: got "):
        call()


def test_no_parts_are_named_as_such():
    with pytest.raises(ValueError, match=r"^parts: got none; at least one"):
        merge([])


@pytest.mark.parametrize(
    ("keys", "values", "state"),
    [("float64", "float32", "float64"), ("float32", "float64", "float64"), 2 * ("half",) + ("float32",)],
)
def test_an_empty_state_is_as_wide_as_the_wider_of_keys_and_values_and_stands_with_the_keys(
    keys, values, state
):  # CS-rec
    k, v = torch.ones(1, 2, 3, 4, dtype=getattr(torch, keys)), torch.ones(1, 2, 3, 3, dtype=getattr(torch, values))
    parts = empty_state(k, v, 2)
    assert [part.dtype for part in parts] == [getattr(torch, dtype) for dtype in (state, state, "float64", state)]
    assert [tuple(part.shape) for part in parts] == [(1, 2, 3, 10), (1, 2, 10), (1, 2, 2), (1, 2)]
    assert {part.device for part in empty_state(k.to("meta"), v.to("meta"), 2)} == {torch.device("meta")}


def test_a_normaliser_of_rounding_errors_has_no_derivative():  # CS-rec
    k = torch.tensor([1.0, 0.0]).repeat(1, 1, 70, 1).requires_grad_()  # q is all but orthogonal to every key
    q = torch.tensor([1e-5, 1.0]).expand(1, 1, 70, 2)
    attended, _ = recurrent_form(q, k, torch.ones(1, 1, 70, 1), 2)
    (slope,) = torch.autograd.grad(attended.log_normaliser[:, :, 40:].sum(), k)
    assert slope.abs().max() < 1e-6
