"""The attention form by a fused softmax kernel: uncompiled on the CPU, and on a GPU where there is one."""

import math
from functools import partial

import numpy as np
import pytest
import sequences
import torch
from often import vec
from sequences import by_pairs, heads_of
from torch.nn.attention import flex_attention as flex
from torch.testing import assert_close

from geolib.recurrence import attention_form, fused, fused_form, kernel_takes, score_modifier, softmax_form

NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
pytestmark = [
    pytest.mark.usefixtures("forgotten_graphs"),
    pytest.mark.filterwarnings("ignore:flex_attention called without:UserWarning"),
]


@pytest.fixture
def differentiable(monkeypatch):
    """FlexAttention refuses derivatives on a CPU, although what it runs there uncompiled has them."""
    monkeypatch.setattr(flex, "_validate_device", lambda *tensors: None)


inputs = partial(sequences.learned, tokens=150, dim=16, value_dim=16, gates=(2, 3))


@pytest.mark.parametrize("power", [2, 4])
@pytest.mark.parametrize("inner", [slice(3, 3), slice(3, 4), slice(3, 5)], ids=["plain", "gated", "gated and turned"])
def test_the_fused_kernel_has_outputs_and_gradients_of_the_plain_form(
    differentiable, power, inner
):  # CS-FUSED, CS-conf
    args = inputs()
    target, other = torch.randn_like(args[2]), torch.randn_like(args[3])
    found = []
    for form in (attention_form, fused_form):
        attended = form(*args[:3], power, *args[inner])
        loss = (attended.output * target).sum() + (attended.log_normaliser * other).sum()
        found.append((*attended, *torch.autograd.grad(loss, args[: inner.stop])))
    for ours, wanted in zip(found[1], found[0]):
        assert (ours - wanted).abs().max() <= 1e-10 * wanted.abs().max()


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-4), (torch.bfloat16, 0.03)])
def test_the_fused_kernel_keeps_the_precision_of_its_inputs(differentiable, dtype, error):
    args = [t.detach().to(dtype).requires_grad_() for t in inputs()]
    args[3:] = [t.detach().float().requires_grad_() for t in args[3:]]
    exact = [t.detach().double().requires_grad_() for t in args]
    target, grads = torch.randn(2, 2, 150, 16), []
    ours, wanted = fused_form(*args[:3], 2, *args[3:]), attention_form(*exact[:3], 2, *exact[3:])
    assert ours.output.dtype == dtype
    assert ours.log_normaliser.dtype == torch.float32
    for attended, tensors in ((ours, args), (wanted, exact)):
        grads.append(torch.autograd.grad((attended.output * target).sum(), tensors))
        assert all(g.dtype == t.dtype for g, t in zip(grads[-1], tensors))
    assert (ours.output.double() - wanted.output).norm() <= error * wanted.output.norm()
    for a, b in zip(*grads):
        assert (a.double() - b).norm() <= 3 * error * b.norm()


def test_a_zero_score_has_weight_0_and_derivative_0(differentiable):  # CS-FUSED
    args = inputs(tokens=20)
    keys = args[1].detach().clone()
    keys[0, 0, 3], keys[0, 1] = 0, 0  # one key, and all keys of a head
    args[1] = keys.requires_grad_()
    ours, wanted = fused_form(*args[:3], 2, args[3]), attention_form(*args[:3], 2, args[3])
    assert_close(ours, wanted)
    assert_close(*(torch.autograd.grad(y.output.sin().sum(), args[:4]) for y in (ours, wanted)))
    assert (ours.output[0, 1] == 0).all()


def test_float32_gates_keep_small_differences_of_large_sums():  # CS-gate
    log_gates = -torch.rand(1, 1, 4000)
    log_gates[..., 2000:2100] = -1e4
    exact, modify = log_gates.double().cumsum(-1)[0, 0], score_modifier(2, log_gates)
    assert exact[-1] < -1e6
    for i, j in ((3999, 3998), (3999, 3000), (2500, 2100), (1999, 0)):
        ours = modify(torch.tensor(1.0), *map(torch.tensor, (0, 0, i, j))).double()
        assert_close(ours, exact[i] - exact[j], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("tokens", "dims", "dtype", "takes"),
    [
        (128, (16, 16), torch.bfloat16, True),
        (128, (16, 16), torch.float64, False),
        (127, (16, 16), torch.float32, False),
        (128, (8, 16), torch.float32, False),
        (128, (16, 8), torch.float32, False),
    ],
)
def test_what_the_kernel_takes_on_a_gpu(monkeypatch, tokens, dims, dtype, takes):
    monkeypatch.setattr(fused, "TRITON", True)

    class There(torch.Tensor):
        device = torch.device("cuda")

    q, v = (torch.ones(1, 1, tokens, size, dtype=dtype).as_subclass(There) for size in dims)
    assert kernel_takes(q, q, v) == takes
    for wide in range(3):  # one float64 among the three is enough
        assert not kernel_takes(*(t.double() if i == wide else t for i, t in enumerate((q, q, v))))
    monkeypatch.setattr(fused, "TRITON", False)
    assert not kernel_takes(q, q, v)


# On a GPU -----------------------------------------------------------------------------------------------------------


@NEEDS_GPU
@pytest.mark.parametrize("tokens", [128, 1000])
@pytest.mark.parametrize("power", [2, 4])
def test_the_gpu_takes_the_kernel_and_agrees_with_the_plain_form(tokens, power):
    args = inputs(tokens=tokens, dim=64, value_dim=64, dtype=torch.float32, device="cuda")
    exact = [t.detach().double().requires_grad_() for t in args]
    assert kernel_takes(*args[:3])
    assert not kernel_takes(*exact[:3])
    ours, wanted = (attention_form(*a[:3], power, *a[3:]) for a in (args, exact))
    assert (ours.output - wanted.output).norm() <= 1e-3 * wanted.output.norm()
    target = torch.randn_like(wanted.output)
    grads = [torch.autograd.grad((y.output * target).sum(), a) for y, a in ((ours, args), (wanted, exact))]
    for a, b in zip(*grads):
        assert (a - b).norm() <= 1e-2 * b.norm()


@NEEDS_GPU
def test_memory_of_the_kernel_grows_with_the_tokens_and_not_with_their_square():
    def grown(tokens):
        args = inputs(tokens=tokens, dim=64, value_dim=64, dtype=torch.bfloat16, device="cuda")
        attention_form(*args[:3], 2, args[3]).output.sum().backward()
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        attention_form(*args[:3], 2, args[3]).output.sum().backward()
        return torch.cuda.max_memory_allocated() - held

    assert grown(16384) < 5 * grown(4096)


@pytest.mark.parametrize("power", [2, 4])
def test_attention_form_is_a_softmax_of_logarithms(power):  # CS-FUSED
    args = sequences.inputs()
    wanted = heads_of(by_pairs, [*args[:4], 0 * args[4]], power)[0]
    assert_close(softmax_form(*args[:3], power, args[3]), wanted)
    assert_close(softmax_form(*args[:3], power), attention_form(*args[:3], power).output)


def test_modified_score_is_p_log_score_plus_log_decay():  # CS-FUSED
    log_g = sequences.inputs(batch=1, heads=2)[3]
    modify = score_modifier(4, log_g)
    for h, i, j in np.ndindex(2, 9, 9):
        if j <= i:
            expected = math.log(1.7**4) + log_g[0, h, j + 1 : i + 1].sum()
            assert_close(modify(vec(-1.7)[0], *map(torch.tensor, (0, h, i, j))), expected)
