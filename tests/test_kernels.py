"""The chunked form's kernels: without a GPU in Triton's interpreter on the CPU; skipped where Triton is not."""

import itertools
from functools import partial

import pytest
import torch
from counted import Counting
from torch.testing import assert_close

pytest.importorskip("triton")

from geolib.recurrence import (
    _kernels,
    attention_form,
    by_kernels,
    by_large_products,
    chunked_form,
    chunked_with,
    chunks,
)
from geolib.recurrence._chunks_gpu import attend_on_gpu
from geolib.recurrence._shared import gate_sums
from geolib.sympow import embed

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPE, NEAR = (torch.float32, 1e-4) if DEVICE == "cuda" else (torch.float64, 1e-12)
INTERPRETED = pytest.mark.skipif(DEVICE == "cuda", reason="a GPU takes bfloat16 alone")


def drawn(*shape, dtype=DTYPE):
    return torch.randn(*shape, dtype=torch.float64, device=DEVICE).to(dtype).requires_grad_()


def with_gradients(attended, state, args):
    loss = attended.output.sin().sum() + attended.log_normaliser.sin().sum() + state.S.sin().sum() + state.Z.cos().sum()
    return [*attended, state.S, state.Z, *torch.autograd.grad(loss, args)]


@pytest.mark.parametrize(("heads", "tokens", "dim", "values"), [(3, 19, 3, 2), (1, 19, 17, 18), (1, 65, 2, 1)])
def test_states_are_written_and_read_by_embeddings(heads, tokens, dim, values):  # CS-rec
    x, w = drawn(heads, 2, tokens, dim), drawn(heads, 2, tokens, values + 1)
    seen = drawn(heads, 2, values + 1, dim * (dim + 1) // 2)
    for ours, expected, args in (
        (_kernels.write(x, w), w.mT @ embed(x, 2), (x, w)),
        (_kernels.read(x, seen), embed(x, 2) @ seen.mT, (x, seen)),
    ):
        assert_close(ours, expected, rtol=NEAR, atol=NEAR)
        by = torch.randn_like(expected)
        assert_close(*(torch.autograd.grad(y, args, by) for y in (ours, expected)), rtol=NEAR, atol=NEAR)


@pytest.mark.parametrize("gated", [False, True])
def test_pairs_are_the_squares_of_scores_times_gates(gated):  # CS-att, CS-gate
    q, k, v = drawn(2, 1, 21, 3), drawn(2, 1, 21, 3), drawn(2, 1, 21, 5)
    log_gates = -torch.rand(2, 1, 21, dtype=torch.float64, device=DEVICE)
    log_gates[1, 0, 18] = float("-inf")  # a reset: nothing before it is seen
    kept = torch.ones(2, 1, 21, 21, dtype=DTYPE, device=DEVICE).tril()
    for i, j in itertools.combinations_with_replacement(range(21), 2) if gated else ():
        kept[..., j, i] = log_gates[..., i + 1 : j + 1].exp().prod(-1)
    sums = gate_sums(log_gates) if gated else (None, None)
    ours, expected = _kernels.pairs(q, k, v, *sums), ((q @ k.mT) ** 2 * kept) @ v
    assert_close(ours, expected, rtol=NEAR, atol=NEAR)
    by = torch.randn_like(expected)
    assert_close(*(torch.autograd.grad(y, (q, k, v), by) for y in (ours, expected)), rtol=NEAR, atol=NEAR)


@INTERPRETED
@pytest.mark.parametrize("chunk", [8, 40])
def test_kernels_equal_the_other_forms_with_gradients(chunk):  # CS-chunk, CS-gate, CS-beta
    q, k, v, turns = drawn(1, 2, 23, 4), drawn(1, 2, 23, 4), drawn(1, 2, 23, 3), drawn(1, 2, 23, 2)
    gates = torch.nn.functional.logsigmoid(drawn(1, 2, 23)).detach()
    gates[0, 1, 11] = float("-inf")
    args = (q, k, v, gates.requires_grad_(), turns)
    assert by_kernels(q, k, v, DTYPE).keywords == {"products": DTYPE, "kernels": _kernels}
    ours, others = (
        with_gradients(*chunked_with(by, *args[:3], 2, *args[3:], chunk=chunk), args)
        for by in (by_kernels, by_large_products)
    )
    assert_close(ours, others, rtol=1e-10, atol=1e-10)
    assert_close(ours[0], attention_form(*args[:3], 2, *args[3:]).output, rtol=1e-10, atol=1e-10)


def test_narrow_factors_add_up_in_float32():
    args = [drawn(1, 1, 40, 16, dtype=torch.bfloat16) for _ in "qkv"]
    wide = [t.detach().double().requires_grad_() for t in args]
    gates, target = torch.full((1, 1, 40), -0.05, device=DEVICE), drawn(1, 1, 40, 16).detach()

    def with_slopes(output, args):
        return [output, *torch.autograd.grad((output * target).sum(), args)]

    exact = with_slopes(attention_form(*wide, 2, gates.double()).output, wide)

    def away(by):
        found = with_slopes(chunked_with(by, *args, 2, gates, chunk=16)[0].output, args)
        return max(((a.double() - b).norm() / b.norm()).item() for a, b in zip(found, exact))

    def in_half(q, k, v, dtype):  # the interpreter's products of bfloat16 are none
        return partial(attend_on_gpu, products=torch.float16, kernels=_kernels)

    assert away(by_kernels if DEVICE == "cuda" else in_half) < 1.5 * away(by_large_products) < 0.02


def test_what_the_kernels_do_not_take_goes_by_large_products(monkeypatch):
    q = torch.randn(1, 1, 9, 4)
    with Counting() as counting:
        chunked_with(by_kernels, q, q, q, 4, chunk=4)
    assert not any("power" in name for name in counting.operations)
    taken = torch.func.vmap(lambda t: chunked_with(by_kernels, t, t, t, 2, chunk=4)[0].output)(q[None])
    assert_close(taken[0], attention_form(q, q, q, 2).output, rtol=1e-4, atol=1e-5)
    with monkeypatch.context() as without:
        without.setenv("TRITON_INTERPRET", "1")
        without.setattr(chunks, "TRITON", False)
        assert "kernels" not in by_kernels(q, q, q, torch.float32).keywords
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    wide = torch.empty(1, 1, 9, chunks.WIDEST + 1, dtype=torch.bfloat16)
    fits = wide[..., 1:]
    for query, value, taken in ((q, q, False), (wide, fits, False), (fits, wide, False), (fits, fits, True)):
        assert ("kernels" in by_kernels(query, query, value, torch.float32).keywords) is taken


@pytest.mark.parametrize("chosen", [False, True])
def test_a_gpu_takes_them_where_they_are_asked_for(monkeypatch, chosen):
    monkeypatch.setattr(chunks, "KERNELS", chosen)
    q = torch.empty(2, 3, 2048, 64, dtype=torch.bfloat16, device="meta").requires_grad_()
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda x: x.is_meta))
    with Counting() as counting:
        chunked_form(q, q, q, 2)[0].output.sum().backward()
    names = ("geolib::power_write", "geolib::power_read", "geolib::power_slope")
    assert all(counting.operations[name] == 2 * chosen for name in names)
    assert counting.operations["geolib::power_pairs_slope"] == chosen


@INTERPRETED
def test_they_are_differentiable_once():
    x = drawn(1, 1, 5, 2)
    (slope,) = torch.autograd.grad(_kernels.write(x, x).sin().sum(), x, create_graph=True)
    with pytest.raises((RuntimeError, NotImplementedError)):
        torch.autograd.grad(slope.sum(), x)
