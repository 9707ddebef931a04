"""Attention written out for training in bfloat16 on a CPU: its results and gradients against float64."""

import pytest
import torch

from geolib import _written
from geolib.attention import attention


def parts(batch=3, heads=2, tokens=7, dim=6, dtype=torch.bfloat16):
    """Queries, keys and values as a layer has them: strided, narrow, large enough for uneven weights."""
    qkv = (2 * torch.randn(batch, tokens, 3, heads, dim)).to(dtype)
    return [part.transpose(1, 2) for part in qkv.unbind(2)]


def results(act, tensors, dtype):
    """What act makes of tensors in a dtype, and the gradients of a fixed product with it, in float64."""
    leaves = [
        t.detach().to(dtype if i < 3 else torch.promote_types(dtype, torch.float32)) for i, t in enumerate(tensors)
    ]
    leaves = [leaf.requires_grad_() for leaf in leaves]
    out = act(*leaves)
    out.backward(torch.linspace(-1, 1, out.numel()).view(out.shape).to(out.dtype))
    return [x.double() for x in (out.detach(), *(leaf.grad for leaf in leaves))]


@pytest.mark.parametrize("scale", [None, 0.7])
@pytest.mark.parametrize("attenuated", [None, (7, 7), (2, 7, 7), (3, 2, 7, 7)])
@pytest.mark.parametrize("gated", [None, (7, 7), (2, 1, 7), (3, 1, 7, 7)])
def test_written_out_it_is_attention_with_all_its_gradients(gated, attenuated, scale):  # RF-19, RF-20
    extra = {}
    if gated:
        extra["log_gate"] = -torch.randn(*gated).abs()
    if attenuated:
        extra["attenuation"] = torch.rand(*attenuated)

    def act(q, k, v, *others):
        return attention(q, k, v, scale=scale, **dict(zip(extra, others)))

    tensors = [*parts(), *extra.values()]
    exact = results(act, tensors, torch.float64)
    got = results(act, tensors, torch.bfloat16)
    # The factors of the last product are rounded to 8 bits, half a unit being 2^-9; gradients pass two such products.
    for x, y, name in zip(got, exact, ("output", "q", "k", "v", *extra)):
        assert (x - y).norm() < (2**-8 if name == "output" else 2**-6.5) * y.norm(), name


@pytest.mark.parametrize("piece", [1, 2 * 2 * 7 * 7])  # a sample at a time; two, and one is left
@pytest.mark.parametrize("attenuated", [(7, 7), (1, 2, 1, 7), (2, 7, 7), (3, 1, 7, 7)])
def test_written_out_in_pieces_nothing_changes(monkeypatch, attenuated, piece):
    tensors = [*parts(), torch.rand(*attenuated)]

    def act(q, k, v, omega):
        return attention(q, k, v, attenuation=omega)

    whole = results(act, tensors, torch.bfloat16)
    monkeypatch.setattr(_written, "_PIECE", piece)
    for x, y in zip(results(act, tensors, torch.bfloat16), whole):
        torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-6)


def test_written_out_without_samples_gradients_are_zero():
    q, k, v, omega = *(part[:0].requires_grad_() for part in parts()), torch.rand(7, 7, requires_grad=True)
    attention(q, k, v, attenuation=omega).sum().backward()
    assert q.grad.shape == q.shape
    assert not omega.grad.any()
    heads = [*(part[0] for part in parts()), torch.rand(2, 7, 7)]  # without a dimension of samples

    def act(q, k, v, omega):
        return attention(q, k, v, attenuation=omega)

    for x, y in zip(results(act, heads, torch.bfloat16), results(act, heads, torch.float64)):
        assert (x - y).norm() < 2**-6.5 * y.norm()


def test_written_out_scores_are_not_rounded():
    # Scores near 300 have a unit of 2 in bfloat16: rounded ones would give other weights altogether.
    q = torch.tensor([[[1.0, 16.0]]]).bfloat16().requires_grad_()
    k = torch.tensor([[[0.5, 18.75], [0.0, 18.75]]]).bfloat16()
    v = torch.eye(2)[None].bfloat16()
    assert _written.pays(q, k, v, fused=True)
    expected = torch.sigmoid(torch.tensor([0.5, -0.5]))
    assert torch.allclose(attention(q, k, v, scale=1.0).float(), expected, atol=2**-9)


def test_it_is_written_out_where_a_processor_trains_in_bfloat16():
    q = parts()[0]
    long = torch.zeros(1, 1, _written.LONGEST + 1, 2, dtype=torch.bfloat16)
    assert _written.pays(q, q, q, fused=True)
    assert not _written.pays(q.float(), q.float(), q.float(), fused=True)
    assert not _written.pays(long, long, long, fused=True)
    assert _written.pays(long, long, long, fused=False)
    assert not _written.pays(q, q[:1], q, fused=True)
    with torch.no_grad():
        assert not _written.pays(q, q, q, fused=True)
