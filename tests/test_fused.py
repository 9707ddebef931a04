"""The attention form by a fused softmax kernel: uncompiled on the CPU, and on a GPU where there is one."""

import numpy as np
import pytest
import sequences
import torch
from sequences import by_pairs
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


def inputs(tokens=150, dim=16, value_dim=16, dtype=torch.float64, device="cpu"):
    def draw(*shape):
        return torch.randn(2, 2, tokens, *shape, dtype=torch.float64)

    gates = torch.nn.functional.logsigmoid(2 * draw() + 3)
    drawn = draw(dim), draw(dim), draw(value_dim), gates, 0.1 * draw(dim // 2)
    return [t.to(device, dtype).requires_grad_() for t in drawn]


def detached(args):
    return [t.detach() for t in args]


@pytest.mark.parametrize("power", [2, 4])
@pytest.mark.parametrize("inner", [slice(3, 3), slice(3, 4), slice(3, 5)], ids=["plain", "gated", "gated and turned"])
def test_the_fused_kernel_has_outputs_and_gradients_of_the_plain_form(
    differentiable, power, inner
):  # CS-FUSED, CS-conf
    args = inputs()
    target, other = torch.randn(2, 2, 150, 16, dtype=torch.float64), torch.randn(2, 2, 150, dtype=torch.float64)
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
    assert_close(ours.output, wanted.output)
    assert_close(ours.log_normaliser, wanted.log_normaliser)
    gradients = [torch.autograd.grad(y.output.sin().sum(), args[:4]) for y in (ours, wanted)]
    for a, b in zip(*gradients):
        assert_close(a, b)
    assert (ours.output[0, 1] == 0).all()


def test_float32_gates_keep_small_differences_of_large_sums():  # CS-gate
    log_gates = -torch.rand(1, 1, 4000)
    log_gates[..., 2000:2100] = -1e4
    exact = log_gates.double().cumsum(-1)
    assert exact[..., -1] < -1e6
    modify = score_modifier(2, log_gates)
    for i, j in ((3999, 3998), (3999, 3000), (2500, 2100), (1999, 0)):
        where = [torch.tensor(index) for index in (0, 0, i, j)]
        ours = modify(torch.tensor(1.0), *where).double()
        assert_close(ours, (exact[0, 0, i] - exact[0, 0, j]), rtol=1e-6, atol=1e-6)
        rounded = exact.float()[0, 0, i] - exact.float()[0, 0, j]
        assert i < 2000 or (rounded.double() - ours).abs() > 1e-3  # what one part alone would give


def test_a_nan_among_the_values_reaches_no_earlier_token():
    q, k, v, log_gates, turns = detached(inputs(tokens=10))
    v[0, 0, 5, 1] = float("nan")
    output = fused_form(q, k, v, 2, log_gates, turns).output
    assert output[0, 0, 5:, 1].isnan().all()
    assert output[0, 0, :5].isfinite().all()
    assert output[0, 0, :, 2:].isfinite().all()
    assert output[1].isfinite().all()


@pytest.mark.parametrize(
    ("tokens", "dim", "value_dim", "dtype", "takes"),
    [
        (128, 16, 16, torch.bfloat16, True),
        (128, 16, 16, torch.float64, False),
        (127, 16, 16, torch.float32, False),
        (128, 8, 16, torch.float32, False),
        (128, 16, 8, torch.float32, False),
    ],
)
def test_what_the_kernel_takes_on_a_gpu(monkeypatch, tokens, dim, value_dim, dtype, takes):
    monkeypatch.setattr(fused, "TRITON", True)

    class There(torch.Tensor):
        device = torch.device("cuda")

    q, v = (torch.ones(1, 1, tokens, size, dtype=dtype).as_subclass(There) for size in (dim, value_dim))
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
    args = inputs(tokens, 64, 64, torch.float32, "cuda")
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
        args = inputs(tokens, 64, 64, torch.bfloat16, "cuda")
        attention_form(*args[:3], 2, args[3]).output.sum().backward()
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        attention_form(*args[:3], 2, args[3]).output.sum().backward()
        return torch.cuda.max_memory_allocated() - held

    assert grown(16384) < 5 * grown(4096)


@pytest.mark.parametrize("power", [2, 4])
def test_attention_form_is_a_softmax_of_logarithms(power):  # CS-FUSED
    args = sequences.inputs()
    for gates in (None, args[3]):
        assert_close(softmax_form(*args[:3], power, gates), attention_form(*args[:3], power, gates).output)
    flat = [t[0, 0].numpy() for t in args]
    wanted = by_pairs(*flat[:3], power, flat[3], 0 * flat[4])[0]
    assert_close(softmax_form(*args[:3], power, args[3])[0, 0], torch.tensor(wanted))


def test_modified_score_is_p_log_score_plus_log_decay():  # CS-FUSED
    log_g = sequences.inputs(batch=1, heads=2)[3]
    modify = score_modifier(4, log_g)
    for h, i, j in np.ndindex(2, 9, 9):
        if j <= i:
            score = torch.tensor(-1.7).double()
            expected = torch.log(score**4 * torch.prod(log_g[0, h, j + 1 : i + 1].exp()))
            assert_close(modify(score, *(torch.tensor(index) for index in (0, h, i, j))), expected)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_fused_kernel_with_a_modified_score_computes_the_attention_form():  # CS-FUSED
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    q, k, v, log_g, _ = sequences.inputs(tokens=12, dim=16, value_dim=16, dtype=torch.float32)
    mask = flex.create_block_mask(lambda b, h, i, j: i >= j, None, None, 12, 12, device="cpu")
    modify = score_modifier(2, log_g)
    ours = flex.flex_attention(q, k, v, score_mod=modify, block_mask=mask, scale=1.0)
    assert_close(ours, attention_form(q, k, v, 2, log_g).output, rtol=1e-4, atol=1e-5)
