"""Symmetric-power attention: three forms against loops that read as the paper's equations do."""

import itertools
import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from often import double
from sequences import by_pairs, by_recurrence, heads_of, inputs, learned, well_conditioned
from torch.testing import assert_close

from geolib.recurrence import (
    Attended,
    State,
    attention_form,
    by_large_products,
    chunked_form,
    chunked_with,
    conformal_step,
    empty_state,
    log_decay,
    merge,
    one_chunk_form,
    recurrent_form,
    recurrent_step,
    softmax_form,
    turns_of,
)
from geolib.rotations import block_diagonal, document_frequencies, rotation_matrix
from geolib.sympow import lift

FORMS = {
    "attention": attention_form,
    "recurrent": lambda *args: recurrent_form(*args)[0],
    "chunked": lambda *args: chunked_form(*args, chunk=4)[0],
}
every_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def token(tensors, i):
    return [t[:, :, i] for t in tensors]


def of_any_chunk(chunk):
    return attention_form, FORMS["recurrent"], lambda *args: chunked_form(*args, chunk=chunk)[0]


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
    args = q, k, v, log_g, turns = inputs(**shape)
    Y, sums = heads_of(by_pairs, args, power)
    # Through a state, a small normaliser is a difference of large terms: errors are relative to its bound.
    bound = q.norm(dim=-1) ** power * (log_decay(log_g).exp() @ k.norm(dim=-1, keepdim=True) ** power)[..., 0]
    allowed = 1e-12 * (1 + bound / sums)
    for form in of_any_chunk(chunk):
        ours = form(q, k, v, power, log_g, turns)
        assert ((ours.output - Y).abs().amax(-1) <= allowed).all()
        assert ((ours.log_normaliser - sums.log()).abs() <= allowed).all()


@pytest.mark.parametrize("power", [2, 4])
def test_recurrent_and_chunked_forms_reach_the_state_of_the_recurrence(power):  # CS-rec, CS-2, CS-beta
    args = inputs(tokens=10)
    Y, *wanted = heads_of(by_recurrence, args, power)
    for form in (recurrent_form, partial(chunked_form, chunk=4)):
        attended, state = form(*args[:3], power, *args[3:])
        assert_close(attended.output, Y, rtol=1e-9, atol=1e-9)
        assert_close([*state[:3]], wanted)
        assert (state.exponent == 0).all()


def test_printed_score_without_the_transpose_is_not_what_the_recurrence_gives():  # CS-conf
    args = inputs(batch=1, heads=1, tokens=5)
    recurrence_says, right, printed = (
        heads_of(oracle, args, 2, **more)[0]
        for oracle, more in ((by_recurrence, {}), (by_pairs, {}), (by_pairs, {"transpose": False}))
    )
    assert_close(right, recurrence_says)
    assert (printed - recurrence_says).abs().max() > 0.1


@pytest.mark.parametrize("sharp", [0.01, 1.0, 60.0], ids=["gentle", "as drawn", "sharp"])
def test_gates_of_any_strength_give_one_answer_and_one_gradient(sharp):  # CS-chunk, CS-gate
    args = learned(tokens=17, dim=6)
    gates = sharp * args[3]
    wanted = attention_form(*args[:3], 4, gates, args[4]).output
    exact = torch.autograd.grad(wanted.sin().sum(), args, retain_graph=True)
    chunked = chunked_form(*args[:3], 4, gates, args[4], chunk=7)[0].output
    for ours in (chunked, one_chunk_form(*args[:3], 4, gates, args[4])):
        assert_close(ours, wanted, rtol=1e-6, atol=1e-8)
        for a, b in zip(torch.autograd.grad(ours.sin().sum(), args, retain_graph=True), exact):
            assert (a - b).abs().max() <= 1e-6 * b.abs().max()


@given(shapes, st.integers(0, 11), st.integers(1, 5))
@settings(deadline=None, max_examples=25)
def test_a_sequence_may_be_cut_anywhere_and_continued_from_the_state(shape, cut, chunk):  # CS-rec, CS-chunk
    args = inputs(**shape)
    tokens = args[0].shape[2]
    cut = min(cut, tokens - 1)
    whole, last = chunked_form(*args[:3], 2, *args[3:], chunk=chunk)
    for form in (recurrent_form, partial(chunked_form, chunk=chunk)):
        state, outputs = None, []
        for part in (slice(0, cut), slice(cut, tokens))[cut == 0 :]:
            q, k, v, log_g, turns = token(args, part)
            attended, state = form(q, k, v, 2, log_g, turns, state=state)
            outputs.append(attended.output)
        assert_close(torch.cat(outputs, 2), whole.output, rtol=1e-6, atol=1e-8)
        assert_close(state, last)


def test_all_forms_agree_with_rotary_embeddings():  # CS-P1, CS-rot, CS-Rk
    q, k, v, _, _ = inputs(batch=1, heads=1, dim=6)
    theta = document_frequencies(6, 100.0).double()
    R = block_diagonal(rotation_matrix(theta[:, 0]))
    R_to = torch.stack([torch.linalg.matrix_power(R, m) for m in range(q.shape[2])])
    turned = [torch.einsum("mij,bhmj->bhmi", R_to, x) for x in (q, k)]
    scores = (turned[0] @ turned[1].mT).tril() ** 2
    wanted = scores / scores.sum(-1, keepdim=True) @ v
    turns = turns_of(torch.ones(q.shape[:3]).double(), theta)
    for form in FORMS.values():
        assert_close(form(q, k, v, 2, None, turns).output, wanted)


def test_a_state_that_has_turned_goes_on_without_turns_where_it_stands():  # CS-rec, CS-P1
    q, k, v, log_g, turns = inputs(batch=1, heads=2, tokens=6, dim=4, value_dim=3, seed=1)
    turns[:, :, 3:] = 0
    for form in (recurrent_form, chunked_form):
        _, state = form(*token((q, k, v), slice(0, 3)), 2, log_g[:, :, :3], turns[:, :, :3])
        rest = [*token((q, k, v), slice(3, 6)), 2, log_g[:, :, 3:]]
        assert_close(form(*rest, state=state), form(*rest, turns[:, :, 3:], state=state))


def test_chunked_form_equals_attention_at_working_size():  # CS-chunk
    args = learned(batch=1, heads=1, tokens=1100, dim=64, value_dim=64, dtype=torch.float32)
    wanted, ours = attention_form(*args[:3], 2, *args[3:]), chunked_form(*args[:3], 2, *args[3:])[0]
    assert_close(ours.output, wanted.output, rtol=1e-3, atol=1e-4)
    assert_close(ours.log_normaliser, wanted.log_normaliser, rtol=1e-4, atol=1e-4)
    gradients = (torch.autograd.grad(y.output.square().sum(), args) for y in (ours, wanted))
    for a, b in zip(*gradients):
        assert (a - b).norm() <= 1e-4 * b.norm()


# Gradients ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("power", [2, 4])
def test_gradients_are_those_of_finite_differences(power):  # of one form: those of the others are equal, below
    args = inputs(batch=1, heads=2, tokens=6, dim=2, value_dim=2)
    args[3] = torch.linspace(-2, -0.1, 12, dtype=torch.float64).view(1, 2, 6)
    args = [t.requires_grad_() for t in args]
    assert torch.autograd.gradcheck(lambda q, k, v, g, t: tuple(attention_form(q, k, v, power, g, t)), args, atol=1e-4)


@given(shapes, st.sampled_from([2, 4]), st.integers(1, 12), st.booleans())
@settings(deadline=None, max_examples=20)
def test_gradients_of_all_inputs_are_equal_across_forms(shape, power, chunk, gated):
    args = learned(**shape)
    target = torch.randn_like(args[2])
    inner = args if gated else args[:3]
    found = []
    for form in of_any_chunk(chunk):
        attended = form(*inner[:3], power, *inner[3:])
        loss = (attended.output * target).sum() + attended.log_normaliser.sin().sum()
        found.append(torch.autograd.grad(loss, inner))
    # The state's rounding grows with the inverse of a small normaliser, and so does the gradient itself.
    scale = max(g.abs().max().item() for g in found[0])
    for gradient in found[1:]:
        for ours, expected in zip(gradient, found[0]):
            assert ((ours - expected).abs() <= 1e-7 * (1 + scale) ** 2).all()


def test_gradients_through_a_carried_state_are_those_of_the_uncut_sequence():  # CS-rec, CS-chunk
    args = learned(tokens=9)
    expected = torch.autograd.grad(attention_form(*args[:3], 2, *args[3:]).output[:, :, 5:].sin().sum(), args)
    for first, second in itertools.product((recurrent_form, chunked_form), repeat=2):
        q, k, v, log_g, turns = token(args, slice(0, 5))
        state = first(q, k, v, 2, log_g, turns)[1]
        q, k, v, log_g, turns = token(args, slice(5, 9))
        found = torch.autograd.grad(second(q, k, v, 2, log_g, turns, state)[0].output.sin().sum(), args)
        assert_close(found, expected, rtol=1e-6, atol=1e-8)


def test_gradient_by_the_carried_state_itself_is_right():  # CS-rec, CS-chunk
    q, k, v, log_g, turns = inputs(batch=1, heads=1, tokens=3, dim=2, value_dim=2)
    state = chunked_form(*inputs(batch=1, heads=1, tokens=6, dim=2, value_dim=2, seed=1)[:3], 2)[1]
    for form in (recurrent_form, partial(chunked_form, chunk=2), partial(chunked_with, by_large_products, chunk=2)):

        def through(S, Z, mu, form=form):
            attended, last = form(q, k, v, 2, log_g, turns, State(S, Z, mu))
            return *attended, *last  # fmt: skip

        assert torch.autograd.gradcheck(through, [t.clone().requires_grad_() for t in state[:3]])


# The conformal form ------------------------------------------------------------------------


@pytest.mark.parametrize("power", [2, 4])
def test_conformal_form_of_the_update_gives_the_same_output(power):  # CS-rec, CS-3, CS-1, CS-2
    args = inputs(tokens=6)
    wanted, last = recurrent_form(*args[:3], power, *args[3:])
    plain = turned = empty_state(*args[1:3], power)
    for i in range(6):
        q, k, v, log_g, turn = token(args, i)
        attended, plain = recurrent_step(plain, q, k, v, power, log_g, turn)
        assert_close([*attended], token(wanted, i))
        output, turned = conformal_step(turned, q, k, v, power, log_g, turn)
        assert_close(output, wanted.output[:, :, i], rtol=1e-6, atol=1e-8)
    assert_close(plain, last)
    lifted = lift(block_diagonal(rotation_matrix(last.mu)), power)
    assert_close(turned.S, last.S @ lifted)
    assert_close(turned.Z, (last.Z[..., None, :] @ lifted).squeeze(-2))


# Parts ---------------------------------------------------------------------------------------------------------------


def test_parts_merge_by_their_normalisers():  # CS-att, CS-rec
    scores, v = torch.rand(1, 1, 5, 9).double() + 0.1, double(1, 1, 9, 3)

    def part(keys):
        sums = scores[..., keys].sum(-1)
        return Attended(scores[..., keys] @ v[:, :, keys] / sums[..., None], sums.log())

    whole, nothing = part(slice(0, 9)), part(slice(0, 0))
    nothing = nothing._replace(output=torch.zeros_like(whole.output))
    for parts in ([part(slice(0, 4)), part(slice(4, 9))], [whole, nothing], [whole]):
        assert_close(merge(parts), whole)
    assert_close(merge([nothing, nothing]), nothing)
    weight = torch.zeros(1, dtype=whole.output.dtype, requires_grad=True)
    seen = [each._replace(log_normaliser=each.log_normaliser + weight) for each in (nothing, nothing)]
    assert torch.autograd.grad(merge(seen).output.sum(), weight)[0] == 0  # and not NaN


# Numbers in float32 --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["near 0", "near 1", "mixed"])
def test_float32_holds_over_8192_steps(kind):  # CS-gate, CS-2
    g = torch.Generator().manual_seed(1)
    tokens, dim = 8192, 2
    # A common component keeps scores away from zero: the question here is gates and lengths, not cancellation.
    q, k = (torch.randn(1, 1, tokens, dim, generator=g) * 0.3 + 1 for _ in range(2))
    v = torch.randn(1, 1, tokens, 2, generator=g)
    pick, size, other = torch.rand(3, 1, 1, tokens, generator=g)
    log_g = torch.where(pick < {"near 0": 1.0, "near 1": 0.0, "mixed": 0.01}[kind], -100 * size, -1e-5 * other)
    turns = 1e-3 * torch.rand(1, 1, tokens, dim // 2, generator=g)
    with np.errstate(under="ignore"):
        expected = heads_of(by_recurrence, (q, k, v, log_g, turns), 2)[0].float()
    args = [t.requires_grad_() for t in (q, k, v, log_g, turns)]
    ours = chunked_form(*args[:3], 2, *args[3:])[0].output
    assert_close(ours, expected, rtol=1e-3, atol=2e-4)
    for gradient in torch.autograd.grad(ours.square().sum(), args):
        assert gradient.isfinite().all()
    if kind == "mixed":
        with torch.no_grad():
            assert_close(recurrent_form(*args[:3], 2, *args[3:])[0].output, expected, rtol=1e-3, atol=2e-4)
            late = token(args, slice(-2048, None))
            ours, wanted = attention_form(*late[:3], 2, *late[3:]).output[:, :, -512:], expected[:, :, -512:]
            assert_close(ours, wanted, rtol=1e-3, atol=2e-4)


@every_form
def test_queries_orthogonal_to_all_keys_give_zero(form):
    q, k, v, log_g, _ = inputs(tokens=10, dtype=torch.float32)
    q[..., :2], k[..., 2:] = 0, 0  # exactly orthogonal
    args = [t.requires_grad_() for t in (q, k, v, log_g)]
    attended = form(*args[:3], 2, args[3])
    assert_close(attended.output, torch.zeros_like(v))
    assert (attended.log_normaliser == float("-inf")).all()
    for gradient in torch.autograd.grad(attended.output.sum(), args):
        assert gradient.isfinite().all()


@every_form
def test_output_does_not_depend_on_the_lengths_of_queries(form):  # CS-att
    q, k, v, log_g, _ = inputs()
    lengths = torch.rand(*q.shape[:3], 1, dtype=torch.float64) + 0.1
    plain, longer = form(q, k, v, 4, log_g), form(lengths * q, k, v, 4, log_g)
    assert_close(longer.output, plain.output)
    assert_close(longer.log_normaliser, plain.log_normaliser + 4 * lengths.squeeze(-1).log())
    q, k, v, log_g, _ = well_conditioned(dtype=torch.float32)
    plain = form(q, k, v, 2, log_g)
    for exponent in (-70, 70):  # the squares of the lengths leave the range of float32
        ours = form(2.0**exponent * q, k, v, 2, log_g)
        assert_close(ours.output, plain.output, rtol=1e-5, atol=1e-6)
        shifted = plain.log_normaliser + 2 * exponent * math.log(2)
        assert_close(ours.log_normaliser, shifted, rtol=1e-4, atol=1e-3)


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
    for form in FORMS.values():
        assert_close(form(q, k, v, 2, log_g).output[0, 0, -1, 0].double(), expected, rtol=1e-5, atol=0)


@every_form
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


@every_form
@pytest.mark.parametrize(("size", "power"), [(1e19, 2), (1e-12, 4), (1e8, 6)])
def test_keys_of_any_size_give_the_same_output(form, size, power):  # CS-att
    q, k, v, log_g, turns = well_conditioned(tokens=12)
    exact = attention_form(q, k, v, power, log_g, turns)
    sizes = torch.tensor([[1.0, size], [size, 1.0]], dtype=torch.float64)  # each head's keys have a size of their own
    ours = form(q.float(), (sizes[..., None, None] * k).float(), v.float(), power, log_g.float(), turns.float())
    assert_close(ours.output, exact.output.float(), rtol=1e-4, atol=1e-5)
    logs = exact.log_normaliser + power * sizes.log()[..., None]
    assert_close(ours.log_normaliser, logs.float(), rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("size", [1e19, 1e-23])
def test_a_state_of_keys_of_any_size_is_carried_on(size):  # CS-rec, CS-3
    args = well_conditioned(tokens=12)
    args[1] = size * args[1]
    whole = attention_form(*args[:3], 2, *args[3:])
    early, late = (token([t.float() for t in args], part) for part in (slice(0, 7), slice(7, 12)))
    for first, second in itertools.product((recurrent_form, chunked_form), repeat=2):
        state = first(*early[:3], 2, *early[3:])[1]
        assert state.S.isfinite().all()
        assert (state.exponent == 0).all() == (size == 1)
        ours, _ = second(*late[:3], 2, *late[3:], state=state)
        assert_close(ours.output.double(), whole.output[:, :, 7:], rtol=1e-4, atol=1e-5)
        assert_close(ours.log_normaliser.double(), whole.log_normaliser[:, :, 7:], rtol=1e-3, atol=1e-2)
    state = empty_state(early[1], early[2], 2)
    for i in range(7):
        q, k, v, log_g, turn = token(early, i)
        output, state = conformal_step(state, q, k, v, 2, log_g, turn)
        assert_close(output.double(), whole.output[:, :, i], rtol=1e-4, atol=1e-5)


def test_half_precision_comes_back_as_it_went_in_and_autocast_changes_nothing():
    q, k, v, log_g, turns = args = inputs(dtype=torch.float32)
    state, step = recurrent_form(*args[:3], 2)[1], token(args, 0)
    step.insert(3, 2)
    runs = [lambda form=form: form(*args[:3], 2, log_g, turns).output for form in FORMS.values()]
    runs += [lambda: conformal_step(state, *step)[0], lambda: softmax_form(*args[:3], 2, log_g)]
    runs += [lambda: chunked_with(by_large_products, *args[:3], 2, log_g, turns)[0].output]
    for run in runs:
        wanted = run()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert_close(run(), wanted, rtol=1e-4, atol=1e-5)
    half = [t.bfloat16() for t in (q, k, v)]
    for more in ((), (log_g, turns)):  # products of bfloat16 add up in float32, and are rounded at the end alone
        for form in FORMS.values():
            low, exact = form(*half, 2, *more), form(*(t.float() for t in half), 2, *more)
            assert_close(low.output, exact.output.bfloat16(), rtol=0, atol=0)
            assert_close(low.log_normaliser, exact.log_normaliser)
        low, exact = one_chunk_form(*half, 2, *more), one_chunk_form(*(t.float() for t in half), 2, *more)
        assert_close(low, exact.bfloat16(), rtol=0, atol=0)


def test_chunked_form_stores_memory_linear_in_the_tokens():  # CS-chunk
    def stored(tokens):
        total = 0

        def pack(t):
            nonlocal total
            total += t.numel() * t.element_size()
            return t

        args = learned(batch=1, heads=1, tokens=tokens, dtype=torch.float32)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            chunked_form(*args[:3], 2, *args[3:], chunk=64)
        return total

    small, middle, large = stored(512), stored(1024), stored(2048)
    assert large - middle == pytest.approx(2 * (middle - small), rel=1e-3)


def test_a_normaliser_of_rounding_errors_has_no_derivative():  # CS-rec
    k = torch.tensor([1.0, 0.0]).repeat(1, 1, 70, 1).requires_grad_()  # q is all but orthogonal to every key
    q = torch.tensor([1e-5, 1.0]).expand(1, 1, 70, 2)
    attended, _ = recurrent_form(q, k, torch.ones(1, 1, 70, 1), 2)
    (slope,) = torch.autograd.grad(attended.log_normaliser[:, :, 40:].sum(), k)
    assert slope.abs().max() < 1e-6
