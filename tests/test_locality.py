import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from geolib import locality
from geolib.encodings import build
from geolib.rotations import grid_positions

F64 = torch.float64


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of a few rows, so that short sequences take several, the last of them ragged."""
    monkeypatch.setattr(locality, "_BLOCK_ENTRIES", {"cpu": 100})
    monkeypatch.setattr(locality, "_LEAST_ROWS", 3)


def _random(*shape):
    return torch.randn(shape, dtype=F64)


def _bilateral_loop(q, k, v, positions, sigma, precision):
    """The sum of RF-21 for one head, written with loops over NumPy scalars."""
    q, k, v, p, a = (x.detach().numpy() for x in (q, k, v, positions, precision))
    out = np.zeros((len(q), v.shape[1]))
    for m in range(len(q)):
        weights = np.exp([q[m] @ k[n] / math.sqrt(q.shape[1]) for n in range(len(k))])
        for n in range(len(k)):
            step = p[m] - p[n]
            out[m] += weights[n] / weights.sum() * math.exp(-(step @ a @ step) / (2 * float(sigma[m]) ** 2)) * v[n]
    return torch.from_numpy(out)


# The Gaussian -------------------------------------------------------------------------------------------------------


@given(axes=st.integers(1, 3), tokens=st.integers(1, 6))
@settings(deadline=None, max_examples=15)
def test_attenuation_is_the_gaussian_of_the_distance_of_a(axes, tokens):  # RF-21
    positions, precision = _random(tokens, axes), locality.precision_matrix(_random(axes, axes))
    sigma = 0.5 + torch.rand(tokens, dtype=F64)
    got = locality.attenuation(positions, sigma, precision)
    plain, identity = (locality.attenuation(positions, sigma, A) for A in (None, torch.eye(axes, dtype=F64)))
    assert_close(plain, identity)
    for m, n in np.ndindex(tokens, tokens):
        step = (positions[m] - positions[n]).numpy()
        expected = math.exp(-(step @ precision.numpy() @ step) / (2 * sigma[m].item() ** 2))
        assert got[m, n].item() == pytest.approx(expected, rel=1e-12, abs=1e-300)


@given(axes=st.integers(1, 4))
@settings(deadline=None, max_examples=8)
def test_free_numbers_give_every_positive_definite_matrix_once(axes):  # RF-21
    target = _random(axes, axes)
    target = target @ target.T + 0.1 * torch.eye(axes, dtype=F64)
    root = torch.from_numpy(np.linalg.cholesky(target.numpy()))
    raw = root.tril(-1) + torch.diag(root.diagonal().log())
    assert_close(locality.precision_matrix(raw), target)
    assert_close(locality.precision_matrix(raw + torch.ones(axes, axes, dtype=F64).triu(1)), target)
    assert np.linalg.eigvalsh(locality.precision_matrix(3 * _random(axes, axes)).numpy()).min() > 0


# The literal forms agree --------------------------------------------------------------------------------------------


def test_four_ways_to_write_locality_focusing_agree():  # RF-19, RF-20, RF-21, RF-22, RF-FUSED
    q, k, v, positions = _random(1, 6, 4), _random(1, 6, 4), _random(1, 6, 5), _random(6, 2)
    sigma, precision = 0.5 + torch.rand(6, dtype=F64), locality.precision_matrix(_random(2, 2))
    expected = _bilateral_loop(q[0], k[0], v[0], positions, sigma, precision)[None]
    omega = locality.attenuation(positions, sigma, precision)
    weights = (q @ k.mT / 2).softmax(-1)
    rows = torch.stack([locality.focus_one_query(weights[:, m], omega[m], v) for m in range(6)], 1)
    assert_close(rows, expected)
    assert_close(locality.bilateral_filter(weights, omega, v), expected)
    assert_close(locality.focused_attention(q, k, v, positions, sigma, precision), expected)
    assert_close(locality.focused_attention_by_lse(q, k, v, omega.log()), expected)


def test_rows_no_longer_sum_to_one():  # RF-20
    positions = grid_positions(4, 4)
    q, k = torch.randn(2, 1, 16, 8)
    sums = locality.focused_attention(q, k, torch.ones(1, 16, 1), positions, torch.tensor([1.0]))
    assert (sums > 0).all()
    assert (sums < 0.9).all()
    wide = locality.focused_attention(q, k, torch.ones(1, 16, 1), positions, torch.tensor([1e4]))
    assert_close(wide, torch.ones(1, 16, 1), rtol=1e-5, atol=0)


def test_row_factor_is_the_share_of_weight_that_survives():  # RF-FUSED
    q, k, omega = _random(3, 4), _random(5, 4), torch.rand(3, 5, dtype=F64)
    kept = ((q @ k.mT / 2).softmax(-1) * omega).sum(-1, keepdim=True)
    assert_close(locality.focused_attention_by_lse(q, k, torch.ones(5, 1, dtype=F64), omega.log()), kept)


# The fused form -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_blocks", "poisoned_memory")
@pytest.mark.parametrize("unplaced", [0, 2])
@pytest.mark.parametrize("widths", ["one", "per head", "per position", "per head and position"])
@pytest.mark.parametrize("metrics", ["identity", "one", "per head"])
def test_fused_equals_literal_in_values_and_all_gradients(unplaced, widths, metrics):  # RF-FUSED, RF-22
    placed, heads = 11, 3
    q, k, v = _random(3, 2, heads, placed + unplaced, 4).requires_grad_().unbind(0)
    positions = _random(placed, 2).requires_grad_()
    shape = {"one": (1,), "per head": (heads, 1), "per position": (placed,), "per head and position": (heads, placed)}
    sigma = (0.5 + torch.rand(shape[widths], dtype=F64)).requires_grad_()
    raw = _random(*((heads, 2, 2) if metrics == "per head" else (2, 2))).requires_grad_()
    precision = None if metrics == "identity" else locality.precision_matrix(raw)
    inputs = [q, k, v, positions, sigma] + ([] if metrics == "identity" else [raw])
    literal = locality.focused_attention(q, k, v, positions, sigma, precision)
    fused = locality.fused_focused_attention(q, k, v, positions, sigma, precision)
    assert_close(fused, literal)
    weights = torch.randn_like(literal)
    expected = torch.autograd.grad(literal, inputs, weights, retain_graph=True)
    for got, right in zip(torch.autograd.grad(fused, inputs, weights), expected):
        assert_close(got, right, rtol=1e-9, atol=1e-11)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("metrics", [(), (3,)], ids=["one for all", "one for each head"])
def test_fused_gradients_are_the_numerical_ones(metrics):  # RF-FUSED
    inputs = [_random(1, 3, 5, 2), _random(1, 3, 5, 2), _random(1, 3, 5, 3), _random(4, 2), 1 + _random(3, 1) / 9]
    inputs = [x.requires_grad_() for x in [*inputs, _random(*metrics, 2, 2)]]

    def call(q, k, v, positions, sigma, raw):
        return locality.fused_focused_attention(q, k, v, positions, sigma, locality.precision_matrix(raw))

    assert torch.autograd.gradcheck(call, inputs)


@given(batch=st.integers(1, 3), heads=st.integers(1, 3), tokens=st.integers(1, 37), axes=st.integers(1, 3))
@settings(deadline=None, max_examples=15)
def test_fused_equals_literal_for_any_shape(batch, heads, tokens, axes):  # RF-FUSED
    q, k = _random(2, batch, heads, tokens, 4)
    v, positions, sigma = _random(batch, heads, tokens, 3), 2 * _random(tokens, axes), torch.full((heads, 1), 1.5)
    fused = locality.fused_focused_attention(q, k, v, positions, sigma)
    assert_close(fused, locality.focused_attention(q, k, v, positions, sigma.double()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fused_form_returns_the_dtype_of_its_queries(dtype):  # RF-FUSED
    q, k, v = torch.randn(3, 2, 20, 8).unbind(0)
    positions, sigma = torch.arange(20.0)[:, None], torch.tensor([[2.0], [5.0]])
    right = locality.focused_attention(q, k, v, positions, sigma)
    got = locality.fused_focused_attention(q.to(dtype), k.to(dtype), v.to(dtype), positions, sigma)
    assert got.dtype == dtype
    assert_close(got.float(), right, rtol=0, atol=1e-5 if dtype == torch.float32 else 0.03)


def test_fused_form_keeps_its_digits_in_float32_far_from_the_origin():  # RF-FUSED
    # An expansion of |p_m - p_n|^2 into inner products would be wrong by whole units in the exponent here.
    along = torch.arange(64.0)
    positions = torch.stack([4000 + along, along / 2 - 4000], -1)
    q, k, v = torch.randn(3, 1, 64, 8).unbind(0)
    sigma = torch.tensor([0.8], requires_grad=True)
    exact_sigma = torch.tensor([0.8], dtype=F64, requires_grad=True)
    got = locality.fused_focused_attention(q, k, v, positions, sigma)
    exact = locality.focused_attention(q.double(), k.double(), v.double(), positions.double(), exact_sigma)
    assert_close(got.double(), exact, rtol=1e-4, atol=1e-6)
    (gradient,) = torch.autograd.grad(got.square().sum(), sigma)
    (right,) = torch.autograd.grad(exact.square().sum(), exact_sigma)
    assert_close(gradient.double(), right, rtol=1e-3, atol=0)


class Largest(TorchDispatchMode):
    """The most numbers that one storage holds."""

    entries = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(x, torch.Tensor):
                self.entries = max(self.entries, x.untyped_storage().nbytes() // x.element_size())
        return out


def test_fused_form_never_makes_a_matrix_of_tokens_by_tokens(monkeypatch):  # RF-FUSED
    monkeypatch.setattr(locality, "_BLOCK_ENTRIES", {"cpu": 2**14})
    tokens, heads = 512, 2
    q, k, v = torch.randn(3, heads, tokens, 8).requires_grad_().unbind(0)
    positions, sigma = torch.arange(float(tokens))[:, None], torch.full((heads, 1), 9.0, requires_grad=True)
    seen = {}
    for call in (locality.fused_focused_attention, locality.focused_attention):
        with Largest() as largest:
            torch.autograd.grad(call(q, k, v, positions, sigma).sum(), (q, sigma))
        seen[call.__name__] = largest.entries
    assert seen["focused_attention"] >= heads * tokens**2
    assert seen["fused_focused_attention"] <= heads * tokens**2 // 8


# A Gaussian as features of queries and keys -------------------------------------------------------------------------


@pytest.mark.parametrize("unplaced", [0, 2])
@pytest.mark.parametrize("per_head", [False, True])
@pytest.mark.parametrize("axes", [1, 3])
def test_one_plain_call_is_the_gate_and_the_focusing(unplaced, per_head, axes):  # RF-FUSED, RF-21
    placed, heads = 7, 2
    q, k = _random(2, heads, placed + unplaced, 4).requires_grad_().unbind(0)
    v, positions = _random(heads, placed + unplaced, 11).requires_grad_(), _random(placed, axes)
    sigma = (0.5 + torch.rand(*((heads, 1) if per_head else (1,)), dtype=F64)).requires_grad_()
    precision = locality.precision_matrix(_random(axes, axes))
    log_omega = locality.log_attenuation(positions, sigma, precision)
    gate = torch.nn.functional.pad(log_omega, (unplaced, 0, unplaced, 0))
    wanted = (
        ((q @ k.mT / 2 + gate).softmax(-1) @ v, locality.gated_by_features),
        (locality.focused_attention(q, k, v, positions, sigma, precision), locality.focused_by_features),
    )
    for right, call in wanted:
        got = call(q, k, v, positions, sigma, precision)
        assert_close(got, right)
        weights, inputs = torch.randn_like(right), (q, v, sigma)
        gradients = [torch.autograd.grad(y, inputs, weights, retain_graph=True) for y in (got, right)]
        for mine, theirs in zip(*gradients):
            assert_close(mine, theirs, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("dtype", "unit"), [(torch.float32, 2.0**-24), (torch.bfloat16, 2.0**-8)])
@pytest.mark.parametrize("parts", [1, 2])
def test_rounded_features_err_by_a_power_of_the_unit_times_the_half_squares(dtype, unit, parts):  # RF-21
    positions = 40 * torch.rand(300, 2, dtype=F64) + 1000  # far from the origin, which must not matter
    pair = locality.gaussian_features(positions, torch.ones(1, dtype=F64), None, parts, dtype)
    a, b = (x.double() for x in pair)
    assert pair[0].dtype == pair[1].dtype == dtype
    assert a.shape == b.shape == (300, 2 + 2 * parts)
    u, half = a[:, :2], a[:, :2].square().sum(-1) / 2
    there = -(u[:, None] - u).square().sum(-1) / 2
    assert ((a @ b.T - there).abs() <= unit**parts * (half[:, None] + half) + 1e-12).all()
    centred = positions - (positions.amin(0) + positions.amax(0)) / 2
    assert ((u - centred).abs() <= unit * centred.abs()).all()


# Bad input ----------------------------------------------------------------------------------------------------------


ARGUMENTS = {**dict.fromkeys("qkv", torch.ones(2, 6, 4)), "positions": torch.zeros(5, 2), "sigma": torch.ones(2, 1)}
BY_FEATURES = (locality.gated_by_features, locality.focused_by_features)


@pytest.mark.parametrize(
    ("calls", "changes", "message"),
    [
        ((), {"k": torch.ones(2, 5, 4)}, r"k: got shape \(2, 5, 4\)"),
        ((), {"v": torch.ones(2, 5, 4)}, r"v: got shape \(2, 5, 4\)"),
        (BY_FEATURES, {"positions": torch.zeros(7, 2)}, "positions: got 7 rows"),
        ((), {"positions": torch.zeros(5)}, r"positions: got shape \(5,\)"),
        ((), {"positions": torch.zeros(5, 0)}, r"positions: got shape \(5, 0\)"),
        ((), {"sigma": torch.ones(2, 3)}, r"sigma: got shape \(2, 3\)"),
        ((), {"sigma": torch.ones(3, 1)}, r"sigma: got leading shape \(3,\)"),
        (BY_FEATURES, {"sigma": torch.tensor([-1.0])}, "sigma: got a width"),
        ((), {"sigma": torch.tensor([math.nan])}, "sigma: got a width"),
        ((), {"sigma": torch.tensor([math.inf])}, "sigma: got a width"),
        ((), {"precision": torch.eye(3)}, r"precision: got a matrix of \(3, 3\)"),
        ((), {"precision": -torch.eye(2)}, "positive definite"),
        ((), {"precision": torch.eye(2).expand(3, 2, 2)}, r"precision: got leading shape \(3,\)"),
    ],
)
def test_bad_input_names_the_argument(calls, changes, message):
    for call in (locality.fused_focused_attention, *calls):
        call(**ARGUMENTS)
        with pytest.raises(ValueError, match=message):
            call(**(ARGUMENTS | changes))


@pytest.mark.parametrize("call", BY_FEATURES)
def test_features_need_one_width_a_head_and_a_part(call):
    for changes, message in (({"sigma": torch.ones(2, 5)}, "sigma: got .* must be 1"), ({"parts": 0}, "parts: got 0")):
        with pytest.raises(ValueError, match=message):
            call(**(ARGUMENTS | changes))


# Nothing, and much -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(2, 0, 3), (0, 2, 4, 3), (1, 0, 4, 3)])
def test_fused_locality_of_nothing_is_nothing(shape):
    q = torch.ones(shape, requires_grad=True)
    positions = torch.zeros(shape[-2], 1)
    y = locality.fused_focused_attention(q, q, q, positions, torch.tensor([1.0]))
    assert y.shape == shape
    y.sum().backward()
    assert locality.fused_focused_attention(q, q, q.double(), positions, torch.tensor([1.0])).dtype == q.dtype


@pytest.mark.parametrize("tokens", [1023, 1024])
def test_long_and_short_sequences_keep_their_digits_under_autocast_and_take_the_same_shapes(tokens):
    """From 1,024 tokens on the form is another."""
    encoding, p = build("lf", width=8, heads=1, grid=(tokens,), sigma=20.0), torch.arange(tokens)
    q, k, v = (torch.randn(1, 1, tokens, 8).mul(2).requires_grad_() for _ in range(3))
    wanted = encoding.place(p).attention(q, k, v)
    slopes = torch.autograd.grad(wanted.square().sum(), (q, k, v))
    with torch.autocast("cpu", torch.bfloat16):
        y = encoding.place(p).attention(q, k, v)
    got = torch.autograd.grad(y.square().sum(), (q, k, v))
    assert_close(y, wanted, atol=1e-5, rtol=1e-5)
    assert_close(got, slopes, atol=1e-4, rtol=1e-4)
    half = encoding.place(p).attention(q, k, v.bfloat16())
    assert half.dtype == torch.bfloat16
    two = encoding.place(p).attention(q, k, torch.cat([v, -v]))
    assert_close(two, torch.cat([wanted, -wanted]), atol=1e-5, rtol=1e-5)
