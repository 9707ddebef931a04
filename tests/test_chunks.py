"""The chunked form as large products, for GPUs: on the CPU against the other forms; on a GPU where there is one."""

import contextlib
from functools import partial

import pytest
import torch
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from geolib.encodings import build
from geolib.recurrence import (
    SympowAttention,
    _chunks_cpu,
    _chunks_gpu,
    _products,
    attention_form,
    by_large_products,
    chunked_form,
    chunks,
    conformal_step,
    empty_state,
    forms,
    read_state,
    recurrent_form,
    recurrent_step,
)
from geolib.recurrence._prepared import prepared
from geolib.recurrence._shared import finite_part, gate_sums, precise
from geolib.sympow import dimension, norm_functional

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
@pytest.mark.parametrize("chunk", [1, 5, 23, 40])
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


@pytest.mark.parametrize(("numbers", "scanned"), [(1, 1), (40, 2), (2**29, 3)])
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


def test_small_normalisers_of_large_products_stay_finite(large_products):
    q, k, v, log_gates, _ = (t.detach().clone() for t in inputs(tokens=40, dim=8, dtype=torch.float32))
    basis, _ = torch.linalg.qr(torch.randn(8, 8))
    q[..., :4], k[..., 4:] = 0, 0
    q, k = q @ basis.T, 100 * k @ basis.T  # orthogonal up to rounding
    q[:, :, 7] = 0
    args = [t.requires_grad_() for t in (q, k, v, log_gates)]
    attended = chunked_form(*args[:3], 4, args[3], chunk=8)[0]
    assert attended.log_normaliser.dtype == torch.float32
    assert attended.output.isfinite().all()
    assert (attended.output[:, :, 7] == 0).all()
    assert attended.output.abs().max() < 200 * v.abs().max()
    for gradient in torch.autograd.grad(attended.output.sum(), args):
        assert gradient.isfinite().all()


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


def test_factors_are_in_bfloat16_where_all_that_comes_is():
    half, single = torch.ones(1, dtype=torch.bfloat16), torch.ones(1)
    for given, products in (((half, half, half), torch.bfloat16), ((half, half, single), torch.float32)):
        assert chunks.by_large_products(*given, torch.float32).keywords["products"] == products


def test_what_is_nearly_orthogonal_in_bfloat16_stays_of_the_size_of_the_values(large_products):
    q, k, v, _, _ = (t.detach().clone() for t in inputs(1, 1, 64, 8, 2, dtype=torch.float32))
    basis, _ = torch.linalg.qr(torch.randn(8, 8))
    q[..., :4], k[..., 4:] = 0, 0
    args = [t.bfloat16() for t in (q @ basis.T, k @ basis.T, v)]
    assert chunked_form(*args, 2, chunk=8)[0].output.abs().max() < 20 * v.abs().max()


@pytest.mark.parametrize("power", [2, 4])
def test_both_engines_give_the_floor_of_the_same_bound(power):
    q, k, v, log_gates, _ = (t.detach() for t in inputs(tokens=13, dim=4))
    v[..., 2] = 1  # the column that counts
    start = torch.rand(2, 2, 3, dimension(4, power), dtype=torch.float64)
    wanted = _chunks_cpu.attend_on_cpu(q, k, v, log_gates, start, power, 5)
    ours = _chunks_gpu.attend_on_gpu(q, k, v, log_gates, start, power, 5, torch.float64)
    for a, b in zip(ours, wanted):
        assert_close(a, b, rtol=1e-12, atol=1e-15)
    mass = start[:, :, 2] @ norm_functional(4, power)  # the first chunk sees the carried state alone
    eps = torch.finfo(torch.float64).eps
    assert_close(ours.floor[:, :, 2], eps * mass * log_gates[:, :, :3].sum(-1).exp(), rtol=1e-12, atol=0)
    half = _chunks_gpu.attend_on_gpu(q, k, v, log_gates, start, power, 5, torch.bfloat16)
    rounding = torch.finfo(torch.bfloat16).eps / dimension(4, power) ** 0.5
    assert_close(half.floor / rounding, ours.floor / eps)


@pytest.mark.parametrize("gated", [False, True])
def test_all_products_are_made_in_the_dtype_that_is_asked_for(monkeypatch, gated):
    q, k, v, log_gates, _ = (t.detach().float() for t in inputs(tokens=13, dim=4))
    seen, inside, through = [], _chunks_gpu._inside, _chunks_gpu._through
    monkeypatch.setattr(_chunks_gpu, "_inside", lambda *args: seen.extend(args[:3]) or inside(*args))
    monkeypatch.setattr(_chunks_gpu, "_through", lambda *args: seen.extend(args[:3]) or through(*args))
    start = torch.zeros(2, 2, 3, dimension(4, 2))
    _chunks_gpu.attend_on_gpu(q, k, v, log_gates if gated else None, start, 2, 5, torch.bfloat16)
    assert [t.dtype for t in seen] == 6 * [torch.bfloat16]


@pytest.mark.parametrize("keep", [False, True])
def test_operators_of_chunks_give_what_they_promise(keep):
    q, k, v = (torch.randn(3, size, 13) for size in (4, 4, 3))
    through = q, k, v, torch.rand(3, 3), torch.randn(3, 3, dimension(4, 2)), 2, 5, keep
    torch.library.opcheck(_chunks_cpu.through_state, through, test_utils="test_faketensor")
    assert _chunks_cpu._through(*through)[3].shape[1] == 3 * keep  # what a derivative needs alone is kept for it
    if keep:
        sums, first = gate_sums(-torch.rand(3, 13))
        torch.library.opcheck(_chunks_cpu.within_chunks, (q, k, v, sums, first, 2, 5), test_utils="test_faketensor")
        pairs = lambda v: _chunks_cpu.within_chunks(q, k, v, sums, first, 2, 5)  # noqa: E731
        assert_close(torch.vmap(pairs, -1)(torch.stack([v, -v], -1)), torch.stack([pairs(v), pairs(-v)]))


@pytest.mark.parametrize(("tokens", "chunk"), [(64, 4), (12, 6)])
def test_pairs_are_made_in_parts_of_bounded_size(monkeypatch, tokens, chunk):
    q, k, v, *_ = (t.detach() for t in inputs(batch=1, heads=6, tokens=tokens, dim=4))
    sizes, pairs = [], _chunks_gpu._pairs
    monkeypatch.setattr(_chunks_gpu, "_pairs", lambda *args: sizes.append(args[0].shape[:3]) or pairs(*args))
    monkeypatch.setattr(_chunks_gpu, "NUMBERS", 2 * tokens * chunk)
    _chunks_gpu.attend_on_gpu(
        q, k, v, None, torch.zeros(1, 6, v.shape[-1], dimension(4, 2)).double(), 2, chunk, q.dtype
    )
    assert sizes == 3 * [(2, tokens // chunk, chunk)]


def test_without_gradients_nothing_is_kept_for_them(monkeypatch):
    q, k, v, *_ = (t.detach() for t in inputs(tokens=13, dim=4))
    monkeypatch.setattr("torch.utils.checkpoint.checkpoint", None)
    with torch.no_grad():
        _chunks_gpu.attend_on_gpu(q, k, v, None, torch.zeros(2, 2, 3, dimension(4, 2)).double(), 2, 5, q.dtype)
        assert not _chunks_cpu._recorded(q, v.clone().requires_grad_())
    assert not _chunks_cpu._recorded(q, v)
    assert _chunks_cpu._recorded(q, v.clone().requires_grad_())


@pytest.mark.parametrize("gated", [False, True])
def test_large_products_and_their_tables_stand_where_the_queries_are(monkeypatch, gated):
    places = []
    for name in ("monomials", "halves", "norm_functional"):
        table = getattr(_chunks_gpu, name)
        monkeypatch.setattr(_chunks_gpu, name, lambda *args, table=table: places.append(args[2:]) or table(*args))
    q, k, v, log_gates, _ = inputs(1, 2, 7, 4, 3, torch.float32, "meta")
    start = torch.empty(1, 2, 3, dimension(4, 4), device="meta")
    sums = _chunks_gpu.attend_on_gpu(q, k, v, log_gates if gated else None, start, 4, 3, torch.float32)
    assert {(t.device, t.dtype) for t in sums} == {(q.device, torch.float32)}
    assert len(places) >= 4
    assert set(places) == {(q.device,)}
    sums = _chunks_cpu.attend_on_cpu(q, k, v, log_gates if gated else None, start, 4, 3)
    assert {(t.device, t.dtype) for t in sums} == {(q.device, torch.float32)}


def test_embeddings_of_large_products_are_made_again_and_not_stored(large_products):  # CS-chunk
    args, sizes = inputs(1, 1, 64, 8), []

    def pack(t):
        sizes.append(t.numel())
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        chunked_form(*args[:3], 4, *args[3:], chunk=32)
    assert max(sizes) < 64 * dimension(8, 4) / 3


class Counted(TorchDispatchMode):
    """Operations as PyTorch hands them to a device."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


def operations(run):
    run()  # tables are made once
    with Counted() as counted:
        run()
    return len(counted.names)


def test_large_products_take_as_many_operations_for_many_chunks_as_for_few(large_products):  # CS-chunk
    def both_ways(tokens):
        args = inputs(1, 2, tokens)
        return operations(lambda: chunked_form(*args[:3], 2, args[3], chunk=8)[0].output.sum().backward())

    few, many = both_ways(32), both_ways(512)
    assert few == many < 550


def test_one_token_through_the_layer_takes_the_recurrent_form(monkeypatch):  # CS-rec
    layer, x = SympowAttention(16, 2, longest=100.0).double(), torch.randn(2, 6, 16).double()
    with torch.no_grad():
        whole, last = layer(x)
        _, state = layer(x[:, :5])
        for name in ("chunked_form", "recurrent_form"):
            monkeypatch.setattr(f"geolib.recurrence.layers.{name}", None if name == "chunked_form" else recurrent_form)
        one, state = layer(x[:, 5:], state)
        assert_close(one, whole[:, 5:], rtol=1e-9, atol=1e-10)
        assert_close(state.S, last.S, rtol=1e-12, atol=1e-12)
        assert operations(lambda: layer(x[:, :1], state)) < 200


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


@pytest.mark.parametrize(("power", "backend"), [(2, "aot_eager"), (4, "eager")])
def test_large_products_compile_into_one_graph(large_products, backend, power):
    def run(*a):
        attended, state = chunked_form(*a[:3], power, *a[3:], chunk=4)
        return attended.output, state.S

    torch._dynamo.reset()
    args = inputs(tokens=11, dtype=torch.float32)
    plain, ours = run(*args), torch.compile(run, fullgraph=True, backend=backend)(*args)
    assert_close(ours, plain)
    for a, b in zip(torch.autograd.grad(ours[0].sum(), args), torch.autograd.grad(plain[0].sum(), args)):
        assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_one_token_compiles_into_one_graph():
    layer, x = SympowAttention(8, 2), torch.randn(1, 5, 8)
    with torch.no_grad():
        state = layer(x[:, :4])[1]
        wanted, last = layer(x[:, 4:], state)
        ours, state = torch.compile(layer, fullgraph=True, backend="aot_eager")(x[:, 4:], state)
    assert_close(ours, wanted)
    assert_close(state.S, last.S)


def test_the_product_of_exact_sums_is_the_product():
    a, b = (torch.randn(3, 2, 4, 4, dtype=torch.float64).requires_grad_() for _ in range(2))
    torch.library.opcheck(_products.product, (a, b))
    assert_close(_products.product(a, b.mT), a @ b.mT)
    assert torch.autograd.gradcheck(_products.product, (a, b))
    assert torch.autograd.gradcheck(_products.product, (a, b.detach()))
    half = _products.product(a.bfloat16(), b.bfloat16())
    assert half.dtype == torch.float32
    assert_close(half, (a.bfloat16().float() @ b.bfloat16().float()), rtol=0.01, atol=0.05)


def test_the_product_keeps_full_precision_forward_and_backward(monkeypatch):
    a, b = (torch.randn(1, 2, 2, requires_grad=True) for _ in range(2))
    devices = []
    monkeypatch.setattr(_products, "full_precision", lambda device: devices.append(device) or contextlib.nullcontext())
    _products.product(a, b).sum().backward()
    assert devices == 3 * [a.device]


@pytest.mark.parametrize("places", [3, 300])
def test_picked_entries_have_the_derivative_of_indexing(places):
    x = torch.randn(2, 4, places, dtype=torch.float64, requires_grad=True)
    index = torch.tensor([2, 0, 2, 1])
    ours, wanted = _products.picked(x, index), x[..., index]
    assert torch.equal(ours, wanted)
    weights = torch.randn_like(ours)
    assert_close(*(torch.autograd.grad((y * weights).sum(), x) for y in (ours, wanted)))
    there = torch.empty_like(x, device="meta").requires_grad_()
    assert torch.autograd.grad(_products.picked(there, index.to("meta")).sum(), there)[0].device == there.device


def test_every_product_keeps_full_precision(monkeypatch, large_products):
    inside = []

    class Watch:
        def __init__(self, device):
            pass

        def __enter__(self):
            inside.append(True)

        def __exit__(self, *error):
            inside.pop()

    for module in (forms, chunks, _products):
        monkeypatch.setattr(module, "full_precision", Watch)

    class Products(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if function.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.bmm, torch.ops.aten.mv):
                assert inside, f"{function} outside full precision"
                self.seen += 1
            return function(*args, **(kwargs or {}))

    q, k, v, log_gates, turns = (t.detach() for t in inputs())
    state = recurrent_form(q, k, v, 2)[1]
    one = [t[:, :, 0] for t in (q, k, v)]
    for run in (
        lambda: attention_form(q, k, v, 2, log_gates, turns),
        lambda: forms.softmax_form(q, k, v, 2, log_gates),
        lambda: recurrent_form(q, k, v, 2, log_gates, turns),
        lambda: chunked_form(q, k, v, 2, log_gates, turns, chunk=4),
        lambda: read_state(state, q, 2),
        lambda: conformal_step(state, *one, 2, log_gates[:, :, 0], turns[:, :, 0]),
    ):
        with Products() as products:
            run()
        assert products.seen > 0 or run.__code__.co_names[0] == "chunked_form"  # there an operator hides them


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


@pytest.mark.parametrize("power", [2, 4])
def test_chunks_without_gates_have_the_derivatives_of_all_pairs(power):  # CS-chunk
    args = inputs()[:3]
    wanted, ours = attention_form(*args, power), chunked_form(*args, power, chunk=5)[0]
    for a, b in zip(gradients(ours, args), gradients(wanted, args)):
        assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_a_derivative_of_a_function_is_that_of_its_output():
    """Under ``torch.func`` nothing says beforehand that a derivative will be asked for."""
    q, k, v, gates, _ = (t.detach() for t in inputs())

    def loss(v):
        return chunked_form(q, k, v, 2, gates, chunk=5)[0].output.sin().sum()

    wanted = torch.autograd.grad(loss(v.requires_grad_()), v)[0]
    assert_close(torch.func.grad(loss)(v.detach()), wanted)


def test_states_are_kept_for_a_derivative_alone():
    q, k, v, _, _ = (t.detach().flatten(0, 1).mT.contiguous() for t in inputs(dim=4)[:3] + inputs()[3:])
    rows = len(_chunks_cpu._layout(4, 2).weight)
    given = q, k, v, q.new_ones(4, 5), q.new_zeros(4, v.shape[1], rows), 2, 5
    assert [_chunks_cpu._through(*given, keep)[3].shape[1] for keep in (False, True)] == [0, 5]


@pytest.mark.parametrize("dim", [5, 20, 40])
def test_tiles_hold_each_monomial_where_the_layout_says(dim):
    """From 17 features on a tile is of several variables."""
    x, layout = torch.randn(2, dim, 7, dtype=torch.float64), _chunks_cpu._layout(dim, 2)
    products = torch.cat([m for _, m in _chunks_cpu._Columns(x, 2).blocks()], 1)
    pairs = [x[:, i] * x[:, j] * (1 if i == j else 2) for i in range(dim) for j in range(i, dim)]
    found = (products * layout.weight.to(x)[:, None]).square().sum(1)
    assert_close(found, torch.stack(pairs).square().sum(0))


@pytest.mark.parametrize("numbers", [1, 2**29])
def test_a_last_state_in_parts_is_the_whole(large_products, monkeypatch, numbers):
    monkeypatch.setattr(_chunks_gpu, "NUMBERS", numbers)
    args = [t.detach() for t in inputs(batch=1, heads=1, tokens=7)]
    state, wanted = chunked_form(*args[:3], 2, *args[3:], chunk=3)[1], recurrent_form(*args[:3], 2, *args[3:])[1]
    assert_close(state.S, wanted.S)


def test_products_add_up_in_the_wide_dtype_and_no_wider():
    dtypes = (torch.bfloat16, torch.float32, torch.float64)
    assert [_products._summed(dtype) for dtype in dtypes] == [torch.float32, torch.float32, torch.float64]


@pytest.mark.parametrize("asked", [0, 1])
def test_a_product_has_the_derivative_of_the_factor_that_wants_one(asked):
    factors = [torch.randn(2, 3, 4), torch.randn(2, 4, 5)]
    factors[asked].requires_grad_()
    got, wanted = (torch.autograd.grad(out.sin().sum(), factors[asked])[0]
                   for out in (_products.product(*factors), factors[0] @ factors[1]))  # fmt: skip
    assert_close(got, wanted)


def test_the_fourth_power_is_wide_where_a_state_holds_few_keys():
    """By how long a chunk is, and by what gates leave of it."""
    closed = torch.zeros(1, 1, 1000)
    closed[..., ::10] = -50.0
    kept = torch.full((1, 1, 1000), -1e-3)
    wide, narrow = torch.float64, torch.float32
    assert [precise(narrow, 1000, 4, chunk) for chunk in (15, 16, 64)] == [wide, narrow, narrow]
    assert [precise(narrow, 1000, 4, 64, gates) for gates in (closed, kept)] == [wide, narrow]
    assert [precise(narrow, tokens, 4, 64) for tokens in (64, 65)] == [wide, narrow]
    assert precise(narrow, 10, 2, 1, closed) == narrow
    q, k, v, _, _ = (t.detach()[:1, :1] for t in inputs(tokens=1000, dtype=narrow))
    assert [prepared(None, q, k, v, 4, gates, None, 64).q.dtype for gates in (closed, kept)] == [wide, narrow]


def test_what_is_not_finite_is_told_from_there_on_and_nothing_before():
    v = torch.tensor([[1.0], [2.0], [float("inf")], [3.0]])
    finite, spoilt = finite_part(v)
    assert finite.flatten().tolist() == [1, 2, 0, 3]
    assert spoilt.flatten().tolist() == [0, 0, float("inf"), float("inf")]


@pytest.mark.parametrize("asked", [False, True])
def test_only_who_asks_for_kernels_gets_them_on_a_gpu(monkeypatch, asked):
    """The meta device stands for a GPU here: neither is a CPU."""
    args, taken = [t.detach().to("meta") for t in inputs()[:3]], []
    monkeypatch.setattr(chunks, "KERNELS", asked)
    for name in ("by_kernels", "by_large_products"):
        monkeypatch.setattr(chunks, name, lambda *given, name=name: taken.append(name) or by_large_products(*given))
    chunked_form(*args, 2, chunk=5)
    assert taken == ["by_kernels" if asked else "by_large_products"]


def test_gates_of_the_data_are_for_samples_of_any_number():
    layer = build("sympow-gates", width=16, heads=2, grid=(5,)).place(torch.arange(5)).layer(0)
    assert layer.own == (1, 2)
