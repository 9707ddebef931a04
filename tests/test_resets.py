"""Resets: a log gate of -inf, packed documents and padding, against each document alone; transforms of the forms."""

import itertools
from functools import partial

import pytest
import torch
from often import double
from sequences import learned
from torch.nn.attention import flex_attention as flex
from torch.testing import assert_close

from geolib.masks import document_starts, starts_of
from geolib.recurrence import (
    SympowAttention,
    attention_form,
    by_chunks,
    by_large_products,
    chunked_form,
    chunked_with,
    conformal_step,
    empty_state,
    fused_form,
    log_decay,
    one_chunk_form,
    recurrent_form,
    softmax_form,
)
from geolib.recurrence._shared import RESET

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without:UserWarning")

CUTS = [0, 5, 6, 14, 16, 17]
DOCUMENTS = [slice(*ends) for ends in itertools.pairwise(CUTS)]
FIRST = torch.zeros(17, dtype=torch.bool)
FIRST[CUTS[:-1]] = True


@pytest.fixture(autouse=True)
def _derivatives(monkeypatch):
    # FlexAttention refuses derivatives on a CPU, although what it runs there uncompiled has them.
    monkeypatch.setattr(flex, "_validate_device", lambda *tensors: None)


inputs = partial(learned, tokens=17, gates=(2, 0))


def through(engine, chunk):
    return lambda *args: chunked_with(engine, *args, chunk=chunk)[0].output


FORMS = {
    "attention": lambda *args: attention_form(*args).output,
    "softmax": lambda *args: softmax_form(*args[:5]),
    "fused": lambda *args: fused_form(*args).output,
    "recurrent": lambda *args: recurrent_form(*args)[0].output,
    "one chunk": one_chunk_form,
    **{f"chunks of {n}": through(by_chunks, n) for n in (4, 64)},
    **{f"large products of {n}": through(by_large_products, n) for n in (4, 64)},
}
every_form = pytest.mark.parametrize("name", FORMS)


def each_alone(form, args, power):
    parts = ([t[:, :, document] for t in args] for document in DOCUMENTS)
    return torch.cat([form(*part[:3], power, *part[3:]) for part in parts], 2)


# The law: documents that are packed are documents alone --------------------------------------------------------------


@pytest.mark.parametrize("reset", [float("-inf"), -1e12, torch.finfo(torch.float32).min])
@pytest.mark.parametrize("power", [2, 4])
@every_form
def test_packed_documents_are_each_document_alone_forward_and_backward(name, power, reset):  # CS-gate
    form, args, alone = FORMS[name], inputs(), inputs()
    target = torch.randn_like(args[2])
    gates = torch.where(FIRST, reset, args[3])
    packed, apart = form(*args[:3], power, gates, args[4]), each_alone(form, alone, power)
    assert_close(packed, apart, rtol=1e-9, atol=1e-10)
    found = torch.autograd.grad((packed * target).sum(), args, allow_unused=True)
    wanted = torch.autograd.grad((apart * target).sum(), alone, allow_unused=True)
    for ours, expected in zip(found, wanted):
        assert (ours is None) == (expected is None)
        assert ours is None or (ours - expected).abs().max() <= 1e-8 * expected.abs().max()
    assert (found[3][..., FIRST] == 0).all()


@every_form
def test_what_is_forgotten_has_no_derivative(name):  # CS-gate
    args = inputs(dtype=torch.float32)
    gates = torch.where(FIRST, float("-inf"), args[3])
    last = FORMS[name](*args[:3], 2, gates, args[4])[:, :, 14:]
    for which, gradient in enumerate(torch.autograd.grad(last.sin().sum(), args, allow_unused=True)):
        if gradient is not None:
            assert gradient.isfinite().all()
            assert gradient[:, :, :14].abs().max() <= (0, 0, 0, 1e-12, 1e-5)[which]  # sums of turns are rounded


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@every_form
def test_the_most_negative_number_of_a_dtype_is_a_reset(name, dtype):  # CS-gate
    q, k, v, gates, turns = (t.detach() for t in inputs(dtype=dtype))
    args = q, k, v, 2, torch.where(FIRST, torch.finfo(dtype).min, gates), turns
    form = FORMS["softmax" if name == "softmax" else "attention"]
    exact = each_alone(form, [t.double() for t in (q, k, v, gates, turns)], 2)
    error = (FORMS[name](*args).double() - exact).norm() / exact.norm()
    assert error < (1e-3 if dtype == torch.float32 else 0.05)


@pytest.mark.parametrize("reset", [float("-inf"), RESET])
@every_form
def test_a_query_that_is_orthogonal_to_its_document_sees_nothing_of_the_one_before(name, reset):  # CS-FUSED
    k = torch.tensor([[1.0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0]]).double()[None, None]
    q, gates = k.roll(1, 2), torch.tensor([[[0.0, 0.0, reset]]]).double()
    output = FORMS[name](q, k, k + 1, 2, gates, torch.zeros(1, 1, 3, 2).double())
    assert ((output[0, 0, 2] == 0) | output[0, 0, 2].isnan()).all()  # the softmax as it stands has no such row


@pytest.mark.parametrize(("at", "end"), [(0, 5), (3, 5), (5, 6), (6, 14)])
@pytest.mark.parametrize("name", [name for name in FORMS if name not in ("softmax", "recurrent")])
def test_a_nan_ends_with_its_document(name, at, end):
    q, k, v, gates, turns = (t.detach() for t in inputs())
    v[0, 0, at, 1] = float("nan")
    output = FORMS[name](q, k, v, 2, torch.where(FIRST, float("-inf"), gates), turns)
    assert output[0, 0, :at].isfinite().all()
    assert output[0, 0, at:end, 1].isnan().all()
    for rest in (output[0, 0, end:], output[0, 0, :, [0, 2]], output[0, 1], output[1]):
        assert rest.isfinite().all()


def test_steps_know_resets():  # CS-rec, CS-3
    q, k, v, gates, turns = (t.detach() for t in inputs(tokens=8))
    gates[..., 5] = float("-inf")
    whole = attention_form(q, k, v, 2, gates, turns).output
    state = empty_state(k, v, 2)
    for i in range(8):
        output, state = conformal_step(state, *(t[:, :, i] for t in (q, k, v)), 2, gates[..., i], turns[:, :, i])
        assert_close(output, whole[:, :, i])
    assert_close(log_decay(gates)[..., 7, :5].exp(), torch.zeros(2, 2, 5).double())


# The layer ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key_heads", [1, 2, 4])
@pytest.mark.parametrize("chunk", [1, 4, None])
def test_the_layer_keeps_packed_documents_apart(chunk, key_heads):
    layer, x = SympowAttention(16, 4, chunk=chunk, key_heads=key_heads).double(), double(1, 17, 16)
    packed, last = layer(x, starts=starts_of(torch.tensor(CUTS), 17))
    for d in DOCUMENTS:
        alone, state = layer(x[:, d])
        assert_close(alone, packed[:, d])
    assert_close(layer(x[:, :1], last)[0], layer(x[:, :1], state)[0])


@pytest.mark.parametrize(("dtype", "size"), [(torch.float64, 1), (torch.float32, 1e30)])
def test_a_start_forgets_the_carried_state_of_its_sample_alone(dtype, size):  # however long its keys were
    layer, x = SympowAttention(16, 4).to(dtype), torch.randn(2, 6, 16, dtype=dtype)
    state, starts = layer(size * x)[1], torch.tensor([[True], [False]])
    ours = layer(x[:, :1], state, starts=starts)[0]
    assert_close(ours[0], layer(x[:1, :1])[0][0])
    assert_close(ours[1], layer(x[:, :1], state)[0][1])


@pytest.mark.parametrize("key_heads", [2, 4])
@pytest.mark.parametrize("where", [slice(0, 4), slice(5, 9), slice(2, 5)], ids=["left", "right", "between"])
def test_padding_is_neither_read_nor_written(where, key_heads):
    layer, x = SympowAttention(16, 4, chunk=3, key_heads=key_heads).double(), double(2, 9, 16)
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[0, where] = False
    padded = x.masked_fill(~mask[..., None], float("nan"))
    ours, state = layer(padded, mask=mask)
    wanted, alone = layer(x[:1, mask[0]])
    assert_close(ours[:1, mask[0]], wanted)
    assert_close(ours[0, where], layer.out.bias.expand_as(ours[0, where]))
    assert_close(ours[1:], layer(x[1:])[0])
    for a, b in zip(state, alone):
        assert_close(a[:1], b)
    still = layer(padded[:, :1], state, mask=torch.zeros(2, 1, dtype=torch.bool))[1]
    assert all(torch.equal(a, b) for a, b in zip(still, state))


@pytest.mark.parametrize("key_heads", [1, 2])
def test_the_state_of_shared_heads_is_carried_once(key_heads):
    layer, x = SympowAttention(16, 4, chunk=3, key_heads=key_heads).double(), double(2, 8, 16)
    whole, last = layer(x)
    assert last.S.shape[:2] == last.mu.shape[:2] == (2, key_heads)
    _, state = layer(x[:, :5])
    for t in range(5, 8):
        y, state = layer(x[:, t : t + 1], state)
        assert_close(y, whole[:, t : t + 1])
    # Heads of a group with their keys and gates written out are a layer without groups.
    d, full = 4, SympowAttention(16, 4, chunk=3).double()
    q, k, v = layer.qkv.weight.split([16, d * key_heads, d * key_heads])
    spread = [t.unflatten(0, (key_heads, d)).repeat_interleave(4 // key_heads, 0).flatten(0, 1) for t in (k, v)]
    full.qkv.weight.data = torch.cat([q, *spread]).detach()
    for name in ("W_gamma", "W_beta"):
        weight = getattr(layer, name).weight.repeat_interleave(4 // key_heads, 0)
        getattr(full, name).weight.data = weight.detach()
    full.out = layer.out
    assert_close(full(x)[0], whole)


@pytest.mark.parametrize("shape", [(2, 0), (0, 5), (0, 1), (0, 0)])
def test_no_token_and_no_sample_are_taken(shape):
    layer = SympowAttention(16, 4)
    x = torch.zeros(*shape, 16, requires_grad=True)
    y, state = layer(x)
    assert y.shape == x.shape
    y.sum().backward()
    assert state.S.shape[:2] == (shape[0], 4)
    before = layer(torch.randn(shape[0], 3, 16))[1]
    if shape[1] == 0:
        assert all(torch.equal(a, b) for a, b in zip(layer(x, before)[1], before))


def test_starts_are_those_of_documents_and_of_boundaries():
    documents = torch.tensor([[4, 4, 1, 1, 1], [0, 1, 1, 1, 1]])
    wanted = [[1, 0, 1, 0, 0], [1, 1, 0, 0, 0]]
    assert document_starts(documents).int().tolist() == wanted
    assert document_starts(documents[0]).int().tolist() == wanted[0]
    assert starts_of(torch.tensor([0, 2, 2, 5]), 5).int().tolist() == wanted[0]
    for bad in ([1, 3], [0, 4, 2], [0, 6], [], [0.0, 5.0]):
        with pytest.raises(ValueError, match=r"^cu_seqlens: got"):
            starts_of(torch.tensor(bad, dtype=None if bad else torch.long), 5)


# Powers from 4 on ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prompt", [1, 2])
def test_early_tokens_of_the_fourth_power_keep_their_digits(prompt):  # CS-rec
    q, k, v = (torch.randn(1, 4000, 6, 16) for _ in range(3))
    # Digits are lost where all keys so far stand across the query: of all heads the 160 where they do most.
    cosines = torch.einsum("bhid,bhjd->bhij", *(t / t.norm(dim=-1, keepdim=True) for t in (q, k)))
    worst_first = cosines.pow(4).tril().sum(-1).amin(-1)[0].argsort()[:160]
    q, k, v = (t[:, worst_first] for t in (q, k, v))
    exact = attention_form(*(t.double() for t in (q, k, v)), 4).output
    state, worst = None, 0.0
    for part in (slice(0, prompt), *(slice(i, i + 1) for i in range(prompt, 6))):
        form = recurrent_form if part.stop - part.start == 1 else chunked_form
        attended, state = form(*(t[:, :, part] for t in (q, k, v)), 4, state=state)
        worst = max(worst, (attended.output - exact[:, :, part]).abs().max().item())
    assert worst < 1e-4  # in float32 up to 2, and above 1e-2 in 4 heads of 1,000


@pytest.mark.parametrize("case", ["loop", "short chunks", "packed", "forgetting"])
def test_few_keys_of_the_fourth_power_keep_their_digits_in_longer_texts(case):  # CS-rec
    heads = 80 if case == "short chunks" else 400  # enough for one where float32 is beyond the bound
    q, k, v = (torch.randn(1, heads, 80, 8) for _ in range(3))
    gates = torch.zeros(1, heads, 80)
    if case == "packed":  # documents of three tokens, cut anywhere by chunks of 64
        gates[..., ::3] = float("-inf")
    if case == "forgetting":  # a key counts a twentieth after one token
        gates -= 3.0
    exact = attention_form(*(t.double() for t in (q, k, v)), 4, gates.double()).output
    chunk = {"loop": None, "short chunks": 2}.get(case, 64)
    form = recurrent_form if case == "loop" else partial(chunked_form, chunk=chunk)
    attended, state = form(q, k, v, 4, gates)
    assert (attended.output - exact).abs().max() < 1e-4  # a loop in float32: off by up to 1.2
    assert state.S.dtype == torch.float64


# Functions of functions ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", range(5))
@pytest.mark.parametrize("name", ["recurrent", "chunks of 4", "large products of 4", "one chunk"])
def test_forms_and_their_derivatives_may_be_mapped_over_one_argument(name, which):
    args = [t.detach() for t in inputs(batch=1, tokens=9)]
    several = torch.stack([args[which], args[which].flip(1), args[which].roll(1, 1)], -1)
    given = [several if i == which else t for i, t in enumerate(args)]
    each = [[part if i == which else t for i, t in enumerate(args)] for part in several.unbind(-1)]
    mapped = tuple(-1 if i == which else None for i in range(5))
    run = lambda q, k, v, g, a: FORMS[name](q, k, v, 2, g, a)  # noqa: E731
    assert_close(torch.vmap(run, mapped)(*given), torch.stack([run(*one) for one in each]))
    slopes = torch.func.grad(lambda *args: run(*args).sin().sum(), argnums=(0, 1, 2, 3, 4))
    if name.startswith("large"):  # an operator of PyTorch's library has no derivative under torch.func
        with pytest.raises(RuntimeError, match="functorch"):
            slopes(*each[0])
        return
    assert_close(torch.vmap(slopes, mapped)(*given), tuple(map(torch.stack, zip(*(slopes(*one) for one in each)))))


def test_the_layer_has_a_gradient_for_every_sample():
    layer, x = SympowAttention(16, 4, chunk=4).double(), double(3, 9, 16)
    loss = lambda x: layer(x[None])[0].sin().sum()  # noqa: E731
    assert torch.autograd.gradcheck(lambda x: layer(x[None])[0], x[0, :4].clone().requires_grad_())
    wanted = torch.autograd.grad(layer(x.requires_grad_())[0].sin().sum(), x)[0]
    assert_close(torch.vmap(torch.func.grad(loss))(x.detach()), wanted)
    with pytest.raises(RuntimeError, match="differentiable once"):
        torch.func.grad(lambda x: torch.func.grad(loss)(x).sum())(x[0].detach())


def test_a_prompt_is_one_graph_and_exports():
    layer, x = SympowAttention(16, 4, chunk=4), torch.randn(2, 9, 16)
    starts = torch.arange(9) == 5
    torch._dynamo.reset()
    exported = torch.export.export(layer, (x,), {"starts": starts}).module()  # first: tables must come out plain
    wanted, last = layer(x, starts=starts)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for run in (exported, compiled):
        ours, state = run(x, starts=starts)
        assert_close([ours, state.S], [wanted, last.S])
    x.requires_grad_()
    assert_close(*(torch.autograd.grad(run(x, starts=starts)[0].sin().sum(), x) for run in (compiled, layer)))
