"""Calls that look right and are not: each brings a warning, or gives the right numbers."""

import copy
import io
import warnings
from functools import partial

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from geolib.attention import MultiHeadAttention, attention
from geolib.encodings import METHODS, Composed, HalfSplit, LengthRoPE, RoPE, build
from geolib.flex import flex_attend
from geolib.masks import padding_mask
from geolib.recurrence import SympowAttention, chunked_form

SIX, X, Q, FAR = torch.arange(6), torch.randn(2, 6, 16), torch.randn(2, 2, 6, 8), 2**24 + 1
ROPE = RoPE.text(8).place(SIX)


def made(name, **options):
    torch.manual_seed(0)
    return build(name, **({"width": 16, "heads": 2, "grid": (6,), "layers": 1} | options))


def unlearned():
    with torch.no_grad():
        placed = Composed([made("liere", layers=2), made("alibi")]).place(SIX)
    placed.layer(1).attention(Q.clone().requires_grad_(), Q, Q)


WARNED = {
    "placed without gradients": (unlearned, "placed without gradients, so its encoding learns nothing"),
    "fractions": (lambda: RoPE.text(8).place(SIX.bfloat16() / 5), "positions in bfloat16 are fractions"),
    "far out": (lambda: RoPE.text(8).place((SIX + FAR).float()), "positions in float32 go beyond 16777216"),
    "a mask of samples": (lambda: ROPE.attention(*[Q[:1].expand(6, 2, 6, 8)] * 3, mask=SIX[:, None] >= SIX), "queries"),
    "a mask of samples' pairs": (lambda: ROPE.attention(Q, Q, Q, mask=torch.ones(2, 6, 6).bool()), "read as heads"),
}


@pytest.mark.parametrize("name", WARNED)
def test_it_brings_a_warning(name):
    call, said = WARNED[name]
    with pytest.warns(UserWarning, match=said):
        call()


def unheard():
    encoding, twos = made("riemannformer"), torch.ones(2, 1, 1, 6, dtype=torch.bool)
    with torch.no_grad():
        encoding.place(SIX).attention(Q, Q, Q, mask=twos)
        made("rope").place(SIX).attention(Q, Q, Q)
    made("rope").place(SIX.bfloat16()).attention(Q.clone().requires_grad_(), Q, Q, mask=padding_mask(SIX[:2], 6))


def test_what_is_right_brings_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        unheard()


# The right numbers ---------------------------------------------------------------------------------------------------


def attend(name, places=SIX, mask=None, one=False, rows=slice(None)):
    """What a method gives in attention: for one sample without its dimension, or some of the queries."""
    placed = made(name).place(places[rows], keys=places)
    q, x = (Q[0], X[:1]) if one else (Q, X)
    return placed.attention(q[..., rows, :], q, q, x, mask=mask)


def edited(name):
    places = SIX.float()
    placed = made(name).place(places)
    places.mul_(3)
    return placed.attention(Q, Q, Q, X)


def flex(name):
    with torch.no_grad():
        return flex_attend(made(name).place(SIX), Q, Q[:, :1], Q[:, :1], X)


def typed(name, queries, keys=torch.int64):
    """Positions that are far apart for a short dtype."""
    places = torch.tensor([-100, 0, 100, 50, -50, 7])
    return made(name).place(places.to(queries), keys=places.to(keys)).attention(Q, Q, Q)


def in_half(x):
    return chunked_form(Q, Q, torch.full_like(Q, x), 2)[1].to(torch.float16).S.isinf().any()


def pooled(rope):
    return rope.place(SIX[:0, None], SIX[:, None]).with_prefix_tokens(1, 0).to_reference(Q[:, :, :1], Q)[1]


FOUR, LAST = torch.rand(2, 6, 6) > 0.3, slice(4, None)
ROPES = [LengthRoPE(RoPE.text(8).frequencies, 4, x, factor=2.0) for x in (None, RoPE.text(8).frequencies / 2)]
MIXED = (torch.int64, torch.float32), (torch.float64, torch.int32)
GATED, BIASED = ("sympow-gates", "compass"), ("alibi", "rmt", "lf", "gauss", "rope+lf")
RIGHT = {
    **{f"pooled, {i}": (pooled, (r,), r.place(SIX).to_reference(Q, Q)[1]) for i, r in enumerate(ROPES)},
    **{f"no tokens, {i}": (lambda r: r.place(SIX[:0]).counts, (r,), (0, 0)) for i, r in enumerate(ROPES)},
    **{f"a mask of no axes, {n}": (attend, (n, SIX, torch.tensor(True)), attend(n)) for n in GATED},
    **{f"heads, {n}": (attend, (n, SIX, FOUR), attend(n, SIX, FOUR[None].expand(2, 2, 6, 6))) for n in GATED},
    **{f"one sample, {n}": (attend, (n, SIX, None, True), attend(n)[0]) for n in GATED},
    **{f"one head of keys, {n}": (flex, (n,), made(n).place(SIX).attention(Q, Q[:, :1], Q[:, :1], X)) for n in GATED},
    **{f"edited later, {n}": (edited, (n,), attend(n)) for n in BIASED},
    **{f"{d}, {n}": (attend, (n, SIX.to(d)), attend(n)) for n in BIASED for d in (torch.uint8, torch.uint16)},
    **{f"int8, {n}": (typed, (n, torch.int8, torch.int8), typed(n, torch.int64)) for n in BIASED},
    **{f"mixed, {n}, {i}": (typed, (n, *ab), typed(n, torch.int64)) for n in BIASED for i, ab in enumerate(MIXED)},
    "inf was there": (in_half, (torch.inf,), torch.tensor(True)),
    **{f"far, {n}": (attend, (n, SIX + FAR, None, False, LAST), attend(n)[:, :, 4:]) for n in BIASED},
    **{f"years, {n}": (attend, (n, SIX - 100 * FAR, None, False, LAST), attend(n)[:, :, 4:]) for n in BIASED[:4]},
}


@pytest.mark.filterwarnings("ignore:mask of shape")
@pytest.mark.parametrize("name", RIGHT)
def test_it_gives_the_right_numbers(name):
    call, given, wanted = RIGHT[name]
    assert_close(call(*given), wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", [*GATED, "rope", "alibi", "lf", "gauss", "liere", "riemannformer"])
def test_attention_has_forward_and_second_derivatives(name):
    encoding, q, zero, step = made(name).double(), Q.double(), torch.zeros(()).double(), 1e-4

    def at(t, placed=None):
        placed = placed or encoding.place(SIX)
        return placed.attention(q + t * q.sin(), q, q, X.double()).square().sum()

    after, here, before = (at(zero + x) for x in (step, 0, -step))
    for act in (at, partial(at, placed=encoding.place(SIX))):
        assert_close(torch.func.jvp(act, (zero,), (zero + 1,))[1], (after - before) / (2 * step), atol=1e-5, rtol=1e-5)
    assert_close(torch.func.hessian(at)(zero), (after - 2 * here + before) / step**2, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("name", METHODS)
def test_a_query_without_a_place_reads_all_keys_as_they_are(name):
    encoding = made(name)
    places, pooled = SIX[:, None], Q[:, :, :1]
    placed = encoding.place(places[:0], places).with_prefix_tokens(1, 0)
    carried = encoding.place(places).to_reference(Q, Q)[1]
    assert_close(placed.attention(pooled, Q, Q, X), attention(pooled, carried, Q), atol=1e-6, rtol=1e-5)


def test_partial_rotary_that_is_said_leaves_the_other_features():
    rope, (q, _) = RoPE.text(8, rotary_dim=4), RoPE.text(8, rotary_dim=4).place(SIX).to_reference(Q, Q)
    assert (repr(rope), rope.paired) == ("RoPE(pairs=2, axes=1, rotary_dim=4)", 4)
    assert torch.equal(q[..., 4:], Q[..., 4:])
    assert_close(q[..., :4], RoPE.text(4).place(SIX).to_reference(Q[..., :4], Q[..., :4])[0])


class WithoutFloat64(TorchFunctionMode):
    """Refuses float64 as Apple's MPS does, at the functions that a program calls."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        return refusing(function(*args, **(kwargs or {})), function)


class WithoutFloat64Inside(TorchDispatchMode):
    """The same at the operations that PyTorch dispatches, those of backward passes too."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return refusing(function(*args, **(kwargs or {})), function)


def refusing(result, function):
    if any(isinstance(x, torch.Tensor) and x.dtype == torch.float64 for x in tree_leaves(result)):
        raise TypeError(f"Cannot convert a MPS Tensor to float64 dtype as MPS doesn't support it: {function}")
    return result


@pytest.mark.parametrize("mode", [WithoutFloat64, WithoutFloat64Inside])
@pytest.mark.parametrize("name", [*METHODS, "rope+lf", "rope+sympow", "dynamic NTK"])
def test_whole_positions_need_no_float64(name, mode):
    encoding = LengthRoPE(RoPE.text(8).frequencies, 4, factor=2.0) if name == "dynamic NTK" else made(name)
    results = []
    for here in (warnings.catch_warnings(), mode()):
        with here:
            results.append(encoding.place(SIX).attention(Q, Q, Q, encoding.embed(X, SIX)))
    assert_close(*results, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("mode", [WithoutFloat64, WithoutFloat64Inside])
@pytest.mark.parametrize("power", [2, 4])
@pytest.mark.parametrize("tokens", [5, 100])
def test_symmetric_powers_need_no_float64(tokens, power, mode):
    layer, text = SympowAttention(16, 2, power), torch.randn(1, tokens, 16)
    wanted = layer(text)[0]
    with mode():
        y, state = layer(text[:, :-1])
        last, _ = layer(text[:, -1:], state)
        y.sum().backward()
    assert_close(torch.cat([y, last], 1), wanted, atol=1e-4, rtol=1e-3)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("name", ["rope", "lf", "liere", "riemannformer+lf", "compass", "sympow-gates", "rope+sympow"])
def test_a_model_can_be_traced(name):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoding, self.layer = made(name), MultiHeadAttention(16, 2)

        def forward(self, x, positions):
            return self.layer(self.encoding.embed(x, positions), self.encoding.place(positions))

    net, other = Net().eval(), torch.randn(3, 6, 16)
    assert_close(torch.jit.trace(net, (X, SIX))(other, SIX), net(other, SIX), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("power", [2, 4])
def test_a_layer_of_powers_is_exported_for_texts_of_all_lengths_in_one_chunk(power):
    layer, lengths = SympowAttention(16, 2, power, chunk=2048).eval(), torch.export.Dim("tokens", min=2, max=2048)
    given, options = (torch.randn(1, 600, 16),), {"dynamic_shapes": ({1: lengths},), "strict": False}
    graph = torch.export.export(layer, given, **options).module()
    for tokens in (2, 65, 1300):
        text = torch.randn(1, tokens, 16)
        assert_close(graph(text)[0], layer(text)[0], atol=1e-4, rtol=1e-3)
    layer.chunk = None
    with pytest.raises(ValueError, match="chunk: got 512; an exported graph takes lengths that vary, here up to 2048"):
        torch.export.export(layer, given, **options)


def test_an_encoding_sharded_by_itself_is_refused(tmp_path):
    from torch.distributed import destroy_process_group, init_process_group
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        with pytest.raises(ValueError, match="module: got an encoding by itself; fully_shard the model whose forward"):
            fully_shard(made("riemannformer"), mesh=init_device_mesh("cpu", (1,)))
    finally:
        destroy_process_group()


# What a file does not say --------------------------------------------------------------------------------------------


def through_a_file(saved):
    file = io.BytesIO()
    torch.save(saved, file)
    file.seek(0)
    return torch.load(file)  # with weights_only


GRID = {"grid": (4, 4), "layers": 2}
UNLIKE = {
    "power": (lambda: SympowAttention(16, 2), lambda: SympowAttention(16, 2, 4), "power: got 2 .* has 4"),
    "longest": (lambda: SympowAttention(16, 2), lambda: SympowAttention(16, 2, longest=9.0), "frequencies: got 0.39"),
    "bias": (
        lambda: SympowAttention(16, 2),
        lambda: SympowAttention(16, 2, gate_bias=0.0),
        "gate_bias: got 6.9.* has 0",
    ),
    "heads": (lambda: MultiHeadAttention(16, 2), lambda: MultiHeadAttention(16, 4), "heads: got 2 .* has 4"),
    "layout": (lambda: HalfSplit(RoPE.text(8)), lambda: RoPE.text(8), "class: got 'HalfSplit' .* has 'RoPE'"),
    **{
        " and ".join((one, other, *more)): (partial(made, one, **GRID), partial(made, other, **(GRID | more)), said)
        for one, other, more, said in (
            ("riemannformer", "riemannformer", {"base": 7.0}, "frequencies: got"),
            ("riemannformer", "riemannformer", {"law": "free"}, "law: got"),
            ("riemannformer", "riemannformer", {"law_options": {"alpha": 0.5}}, "law: got"),
            ("riemannformer-general", "riemannformer-diagonal", {}, "class: got 'RiemannFormerGeneral'"),
            ("rope-axial+lf", "rope+lf", {}, "encoding.frequencies: got"),
            ("rope", "rope", {"grid": (8, 8)}, "frequencies: got 4 .* has 8"),
            ("rope", "alibi", {}, "class: got 'RoPE' .* has 'ALiBi'"),
            ("rope+alibi", "rope", {}, "class: got 'Composed'"),
            ("lf", "gauss", {}, "class: got 'LocalityFocusing' .* has 'GaussianGate'"),
            ("alibi", "alibi", {"slopes": (0.1, 0.2)}, "slopes: got"),
            ("rope+sympow", "rope+sympow", {"sympow": {"power": 4}}, "power: got 2 .* has 4"),
            ("compass", "compass", {"grid": (2, 8)}, r"grid: got \(4, 4\) .* has \(2, 8\)"),
        )
    },
}


@pytest.mark.parametrize("name", UNLIKE)
def test_a_state_is_not_loaded_into_another_method(name):
    make, other, said = UNLIKE[name]
    state = through_a_file(nn.ModuleDict({"net": make()}).state_dict())
    for change in (lambda net: net, nn.Module.double, nn.Module.bfloat16, copy.deepcopy):
        change(nn.ModuleDict({"net": make()})).load_state_dict(state)
    with pytest.raises(RuntimeError, match=rf"net\.{said}.*make it as it was saved"):
        nn.ModuleDict({"net": other()}).load_state_dict(state)
    nn.ModuleDict({"net": other()}).load_state_dict(dict(state))  # as one that an earlier version saved


@pytest.mark.parametrize("key_heads", [1, 2])
def test_a_state_of_powers_is_saved_and_cast(key_heads):
    safetensors = pytest.importorskip("safetensors.torch")
    layer = SympowAttention(16, 2, key_heads=key_heads)
    for tokens in (1, 5, 600):
        with torch.no_grad():
            _, state = layer(torch.randn(1, tokens, 16))
        read = through_a_file(state)
        assert type(read) is type(state)
        assert safetensors.load(safetensors.save(state._asdict())).keys() == {*state._fields}
        for cast in (state.bfloat16(), state.to("cpu", torch.bfloat16)):
            assert (cast.S.dtype, cast.Z.dtype, cast.mu.dtype) == (torch.bfloat16, torch.bfloat16, torch.float64)
            assert torch.equal(cast.mu, state.mu)
        assert layer(X[:1], cast)[0].isfinite().all()
