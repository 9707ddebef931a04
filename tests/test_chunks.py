"""The chunked form as large products, for GPUs: on the CPU against the other forms; on a GPU where there is one."""

from functools import partial

import pytest
import torch
from counted import Counting
from torch.testing import assert_close

from geolib.recurrence import (
    _chunks_gpu,
    attention_form,
    chunked_form,
    chunks,
    empty_state,
    recurrent_form,
    recurrent_step,
)

NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture
def large_products(monkeypatch):
    """The GPU's engine on the CPU."""

    monkeypatch.setattr(chunks, "by_chunks", chunks.by_large_products)


def inputs(batch=2, heads=2, tokens=23, dim=4, value_dim=3, dtype=torch.float64, device="cpu"):
    def draw(*shape):
        return torch.randn(batch, heads, tokens, *shape, dtype=torch.float64)

    gates = torch.nn.functional.logsigmoid(2 * draw() + 1)
    drawn = draw(dim), draw(dim), draw(value_dim), gates, draw(dim // 2)
    return [t.to(device, dtype).requires_grad_() for t in drawn]


def gradients(attended, args):
    loss = attended.output.sin().sum() + attended.log_normaliser.sin().sum()
    return torch.autograd.grad(loss, args, allow_unused=True)


@pytest.mark.parametrize("power", [2, 4, 6])
@pytest.mark.parametrize("chunk", [5, 40])
@pytest.mark.parametrize("inner", [slice(3, 3), slice(3, 5)], ids=["plain", "gated and turned"])
def test_large_products_equal_the_other_forms_with_gradients(large_products, power, chunk, inner):  # CS-chunk
    args = inputs(dim=6)
    wanted, ours = (
        attention_form(*args[:3], power, *args[inner]),
        chunked_form(*args[:3], power, *args[inner], chunk=chunk)[0],
    )
    # Sums of sixth powers cancel to a normaliser near 0 here, by as much as the order of the products decides.
    near = {"rtol": 1e-12 if power < 6 else 1e-11, "atol": 1e-12 if power < 6 else 1e-11}
    assert_close(ours.output, wanted.output, **near)
    assert_close(ours.log_normaliser, wanted.log_normaliser, **near)
    for a, b in zip(gradients(ours, args), gradients(wanted, args)):
        assert (a is None) == (b is None)
        if a is not None:
            assert (a - b).abs().max() <= 1e-11 * b.abs().max()


@pytest.mark.parametrize(("numbers", "scanned"), [(40, 2)])
def test_parts_of_the_large_products_change_nothing(large_products, monkeypatch, numbers, scanned):  # CS-chunk
    args = inputs(dim=6)
    wanted, state = chunked_form(*args[:3], 4, *args[3:], chunk=3)
    expected = gradients(wanted, args)
    monkeypatch.setattr(_chunks_gpu, "NUMBERS", numbers)
    monkeypatch.setattr(_chunks_gpu, "SCANNED", scanned)
    ours, last = chunked_form(*args[:3], 4, *args[3:], chunk=3)
    assert_close(ours.output, wanted.output, rtol=1e-12, atol=1e-12)
    assert_close(last.S, state.S, rtol=1e-12, atol=1e-12)
    for a, b in zip(gradients(ours, args), expected):
        assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_large_products_carry_the_state_in_and_out(large_products):  # CS-rec, CS-chunk
    args = inputs()
    expected, last = recurrent_form(*args[:3], 2, *args[3:])
    early, late = ([t[:, :, part] for t in args] for part in (slice(0, 10), slice(10, 23)))
    state = chunked_form(*early[:3], 2, *early[3:], chunk=4)[1]
    attended, state = chunked_form(*late[:3], 2, *late[3:], state, chunk=4)
    assert_close(attended.output, expected.output[:, :, 10:], rtol=1e-9, atol=1e-11)
    for ours, wanted in zip(state, last):
        assert_close(ours, wanted, rtol=1e-12, atol=1e-12)
    loss, whole = attended.output.sin().sum(), expected.output[:, :, 10:].sin().sum()
    for a, b in zip(torch.autograd.grad(loss, args), torch.autograd.grad(whole, args)):
        assert_close(a, b, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(("power", "dim"), [(2, 32), (4, 8)])
def test_products_of_bfloat16_keep_its_precision(large_products, power, dim):
    args = inputs(1, 2, 300, dim, dim, dtype=torch.bfloat16)
    exact = [t.detach().double().requires_grad_() for t in args]
    wanted = attention_form(*exact[:3], power, *exact[3:]).output
    ours = chunked_form(*args[:3], power, *args[3:], chunk=64)[0].output
    assert ours.dtype == torch.bfloat16
    assert (ours.double() - wanted).norm() < 0.01 * wanted.norm()
    target = torch.randn_like(wanted)
    got = torch.autograd.grad((ours.double() * target).sum(), args)
    for a, b in zip(got, torch.autograd.grad((wanted * target).sum(), exact)):
        assert (a.double() - b).norm() < 0.08 * b.norm()  # few keys count here: small normalisers make large gradients


def operations(run):
    run()  # tables are made once
    with Counting() as counting:
        run()
    return counting.operations.total()


def test_large_products_take_as_many_operations_for_many_chunks_as_for_few(large_products):  # CS-chunk
    def both_ways(tokens):
        args = inputs(1, 2, tokens)
        return operations(lambda: chunked_form(*args[:3], 2, args[3], chunk=8)[0].output.sum().backward())

    few, many = both_ways(32), both_ways(512)
    assert few == many < 550


def test_a_recurrent_step_takes_few_operations_whatever_came_before():  # CS-rec, CS-cost
    q, k, v, log_gates, turns = (t.detach() for t in inputs(1, 2, 40, 64, 64, torch.float32))
    one, counts = [t[:, :, 0] for t in (q, k, v)], []
    for tokens in (1, 39):
        state = recurrent_form(*(t[:, :, :tokens] for t in (q, k, v)), 2)[1]
        counts.append(
            operations(lambda state=state: recurrent_step(state, *one, 2, log_gates[:, :, 0], turns[:, :, 0]))
        )
    assert counts[0] == counts[1] <= 150
    whole = [t[:, :, :1] for t in (q, k, v)]
    assert operations(lambda: chunked_form(*whole, 2, log_gates[..., :1], turns[:, :, :1], state)) > counts[0]


def test_large_products_compile_into_one_graph(large_products):
    def run(*a):
        attended, state = chunked_form(*a[:3], 2, *a[3:], chunk=4)
        return attended.output, state.S

    torch._dynamo.reset()
    args = inputs(tokens=11, dtype=torch.float32)
    plain, ours = run(*args), torch.compile(run, fullgraph=True, backend="aot_eager")(*args)
    assert_close(ours, plain)
    for a, b in zip(torch.autograd.grad(ours[0].sum(), args), torch.autograd.grad(plain[0].sum(), args)):
        assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("chunk", [5, 23])
def test_a_state_of_zeros_has_its_derivative(chunk):  # CS-rec, CS-chunk
    args = inputs(dim=6)
    zeros = empty_state(args[1], args[2], 2)
    zeros = zeros._replace(S=zeros.S.requires_grad_(), Z=zeros.Z.requires_grad_(), exponent=None)
    found = []
    for form in (partial(chunked_form, chunk=chunk), recurrent_form):
        attended, _ = form(*args[:3], 2, *args[3:], state=zeros)
        found.append(torch.autograd.grad(attended.output.sin().sum(), (zeros.S, zeros.Z)))
    assert found[1][0].abs().max() > 0.01
    assert_close(found[0], found[1])


# On a GPU -----------------------------------------------------------------------------------------------------------


@NEEDS_GPU
@pytest.mark.parametrize("power", [2, 4])
def test_gpu_equals_cpu(power):
    args = inputs(tokens=50, dim=6)
    there = [t.detach().cuda().requires_grad_() for t in args]
    (wanted, last), (ours, state) = (chunked_form(*a[:3], power, *a[3:], chunk=8) for a in (args, there))
    assert_close(ours.output.cpu(), wanted.output, rtol=1e-12, atol=1e-12)
    for a, b in zip(state, last):
        assert_close(a.cpu(), b, rtol=1e-12, atol=1e-12)
    for a, b in zip(gradients(ours, there), gradients(wanted, args)):
        assert_close(a.cpu(), b, rtol=1e-9, atol=1e-10)


@NEEDS_GPU
def test_gpu_in_bfloat16_is_near_the_exact_form_at_working_size():
    args = [t.detach() for t in inputs(1, 4, 8192, 64, 64, torch.bfloat16, "cuda")]
    gates = -0.002 * torch.rand(1, 4, 8192, device="cuda")
    wanted = chunked_form(*(t.cpu().float() for t in args[:3]), 2, gates.cpu())[0].output
    ours = chunked_form(*args[:3], 2, gates)[0].output
    assert (ours.cpu().float() - wanted).norm() < 0.01 * wanted.norm()


@NEEDS_GPU
def test_tf32_that_a_user_allows_changes_nothing():
    args = [t.detach() for t in inputs(1, 2, 300, 32, 32, torch.float32, "cuda")]
    runs = {
        "attention": lambda: attention_form(*args[:3], 2, *args[3:]).output,
        "recurrent": lambda: recurrent_form(*args[:3], 2, *args[3:])[0].output,
        "chunked": lambda: chunked_form(*args[:3], 2, *args[3:], chunk=64)[0].output,
        "compiled": torch.compile(lambda: chunked_form(*args[:3], 2, *args[3:], chunk=64)[0].output, fullgraph=True),
    }
    plain = {name: run() for name, run in runs.items()}
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        for name, run in runs.items():
            assert_close(run(), plain[name], rtol=1e-6, atol=1e-6)
    finally:
        torch.set_float32_matmul_precision(before)


@NEEDS_GPU
def test_gpu_reads_no_number_back_and_compiles():
    args = inputs(1, 2, 300, 16, 16, torch.float32, "cuda")

    def run():
        attended, _ = chunked_form(*args[:3], 2, *args[3:], chunk=64)
        return torch.autograd.grad(attended.output.square().mean(), args)

    plain = run()
    torch.cuda.set_sync_debug_mode("error")
    try:
        run()
    finally:
        torch.cuda.set_sync_debug_mode("default")

    def loss(*a):
        return chunked_form(*a[:3], 2, *a[3:], chunk=64)[0].output.square().mean()

    for a, b in zip(torch.autograd.grad(torch.compile(loss, fullgraph=True)(*args), args), plain):
        assert (a - b).abs().max() <= 1e-4 * b.abs().max()


# Parts, each by itself ------------------------------------------------------------------------------------------------


def test_a_derivative_of_a_function_is_that_of_its_output():
    """Under ``torch.func`` nothing says beforehand that a derivative will be asked for."""
    q, k, v, gates, _ = (t.detach() for t in inputs())

    def loss(v):
        return chunked_form(q, k, v, 2, gates, chunk=5)[0].output.sin().sum()

    wanted = torch.autograd.grad(loss(v.requires_grad_()), v)[0]
    assert_close(torch.func.grad(loss)(v.detach()), wanted)
