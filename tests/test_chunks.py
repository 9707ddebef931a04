"""The chunked form as large products, for GPUs: on the CPU against the other forms; on a GPU where there is one."""

from functools import partial

import pytest
import torch
from counted import Counting
from sequences import learned
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


inputs = partial(learned, tokens=23, gates=(2, 1))


def gradients(attended, args):
    loss = attended.output.sin().sum() + attended.log_normaliser.sin().sum()
    return torch.autograd.grad(loss, args, allow_unused=True)


@pytest.mark.parametrize("power", [2, 4, 6])
@pytest.mark.parametrize("chunk", [5, 40])
@pytest.mark.parametrize("inner", [slice(3, 3), slice(3, 5)], ids=["plain", "gated and turned"])
def test_large_products_equal_the_other_forms_with_gradients(large_products, power, chunk, inner):  # CS-chunk
    args = inputs(dim=6)
    wanted = attention_form(*args[:3], power, *args[inner])
    ours = chunked_form(*args[:3], power, *args[inner], chunk=chunk)[0]
    # Sums of sixth powers cancel to a normaliser near 0 here, by as much as the order of the products decides.
    near = {"rtol": 1e-12 if power < 6 else 1e-11, "atol": 1e-12 if power < 6 else 1e-11}
    assert_close(ours.output, wanted.output, **near)
    assert_close(ours.log_normaliser, wanted.log_normaliser, **near)
    for a, b in zip(gradients(ours, args), gradients(wanted, args)):
        assert (a is None) == (b is None)
        if a is not None:
            assert (a - b).abs().max() <= 1e-11 * b.abs().max()


def test_parts_of_the_large_products_change_nothing(large_products, monkeypatch):  # CS-chunk
    args = inputs(dim=6)
    wanted, state = chunked_form(*args[:3], 4, *args[3:], chunk=3)
    expected = gradients(wanted, args)
    monkeypatch.setattr(_chunks_gpu, "NUMBERS", 40)
    monkeypatch.setattr(_chunks_gpu, "SCANNED", 2)
    ours, last = chunked_form(*args[:3], 4, *args[3:], chunk=3)
    assert_close(ours.output, wanted.output, rtol=1e-12, atol=1e-12)
    assert_close(last.S, state.S, rtol=1e-12, atol=1e-12)
    assert_close(gradients(ours, args), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("power", "dim"), [(2, 32), (4, 8)])
def test_products_of_bfloat16_keep_its_precision(large_products, power, dim):
    args = inputs(batch=1, tokens=300, dim=dim, value_dim=dim, dtype=torch.bfloat16)
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
        args = inputs(batch=1, tokens=tokens)
        return operations(lambda: chunked_form(*args[:3], 2, args[3], chunk=8)[0].output.sum().backward())

    few, many = both_ways(32), both_ways(512)
    assert few == many < 550


def test_a_recurrent_step_takes_few_operations_whatever_came_before():  # CS-rec, CS-cost
    args = inputs(batch=1, tokens=40, dim=64, value_dim=64, dtype=torch.float32)
    q, k, v, log_gates, turns = (t.detach() for t in args)
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
    assert_close(*(torch.autograd.grad(y[0].sum(), args) for y in (ours, plain)), rtol=1e-4, atol=1e-5)


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


def of_gpu(dim, dtype):
    return {"dim": dim, "value_dim": dim, "dtype": dtype, "device": "cuda"}


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
    args = [t.detach() for t in inputs(batch=1, heads=4, tokens=8192, **of_gpu(64, torch.bfloat16))]
    gates = -0.002 * torch.rand(1, 4, 8192, device="cuda")
    wanted = chunked_form(*(t.cpu().float() for t in args[:3]), 2, gates.cpu())[0].output
    ours = chunked_form(*args[:3], 2, gates)[0].output
    assert (ours.cpu().float() - wanted).norm() < 0.01 * wanted.norm()


@NEEDS_GPU
def test_tf32_that_a_user_allows_changes_nothing():
    args = [t.detach() for t in inputs(batch=1, tokens=300, **of_gpu(32, torch.float32))]
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
    args = inputs(batch=1, tokens=300, **of_gpu(16, torch.float32))

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
