import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from often import double, vec
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from geolib import locality
from geolib.encodings import build


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of a few rows, so that short sequences take several, the last of them ragged."""
    monkeypatch.setattr(locality, "_BLOCK_ENTRIES", {"cpu": 100})
    monkeypatch.setattr(locality, "_LEAST_ROWS", 3)


def widths(*shape):
    return 0.5 + torch.rand(shape, dtype=torch.float64)


def gaussian(positions, sigma, precision):
    """Omega of RF-21."""
    steps = positions[:, None] - positions
    return (-torch.einsum("mni,ij,mnj->mn", steps, precision, steps) / (2 * sigma[:, None] ** 2)).exp()


# The Gaussian -------------------------------------------------------------------------------------------------------


def test_whole_positions_keep_their_distances_and_narrow_widths_their_diagonal():  # RF-21, RF-22
    near, sigma = torch.tensor([[0], [60], [7]]), torch.tensor([60.0])
    q, k, v = torch.randn(3, 1, 1, 3, 4)
    assert_close(locality.attenuation(1_700_000_000 + near, sigma), locality.attenuation(near.float(), sigma))
    for focused in (locality.focused_attention, locality.fused_focused_attention):
        assert_close(focused(q, k, v, 1_700_000_000 + near, sigma), focused(q, k, v, near.float(), sigma))
    assert_close(locality.attenuation(near, torch.tensor([1e-20])), torch.eye(3))


@given(axes=st.integers(1, 3), tokens=st.integers(1, 6))
@settings(deadline=None, max_examples=15)
def test_attenuation_is_the_gaussian_of_the_distance_of_a(axes, tokens):  # RF-21
    positions, precision = double(tokens, axes), locality.precision_matrix(double(axes, axes))
    sigma = widths(tokens)
    for A, literal in ((precision, precision), (None, torch.eye(axes).double())):
        expected = gaussian(positions, sigma, literal)
        assert_close(locality.attenuation(positions, sigma, A), expected, rtol=1e-12, atol=1e-300)


@given(axes=st.integers(1, 4))
@settings(deadline=None, max_examples=8)
def test_free_numbers_give_every_positive_definite_matrix_once(axes):  # RF-21
    target = double(axes, axes)
    target = target @ target.T + 0.1 * torch.eye(axes).double()
    root = torch.linalg.cholesky(target)
    raw = root.tril(-1) + torch.diag(root.diagonal().log()) + double(axes, axes).triu(1)  # which is not used
    assert_close(locality.precision_matrix(raw), target)
    assert torch.linalg.eigvalsh(locality.precision_matrix(3 * double(axes, axes))).min() > 0


# The literal forms agree --------------------------------------------------------------------------------------------


def test_four_ways_to_write_locality_focusing_agree():  # RF-19, RF-20, RF-21, RF-22, RF-FUSED
    q, k, v, positions = double(1, 6, 4), double(1, 6, 4), double(1, 6, 5), double(6, 2)
    sigma, precision = widths(6), locality.precision_matrix(double(2, 2))
    omega, weights = gaussian(positions, sigma, precision), (q @ k.mT / 2).softmax(-1)
    expected = torch.zeros_like(v)
    for m, n in np.ndindex(6, 6):
        expected[0, m] += weights[0, m, n] * omega[m, n] * v[0, n]
    rows = torch.stack([locality.focus_one_query(weights[:, m], omega[m], v) for m in range(6)], 1)
    assert_close(rows, expected)
    assert_close(locality.bilateral_filter(weights, omega, v), expected)
    assert_close(locality.focused_attention(q, k, v, positions, sigma, precision), expected)
    assert_close(locality.focused_attention_by_lse(q, k, v, omega.log()), expected)


# The fused form -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_blocks", "poisoned_memory")
@pytest.mark.parametrize("unplaced", [0, 2])
@pytest.mark.parametrize("each", [(1,), (3, 1), (11,), (3, 11)], ids=["one", "head", "position", "head and position"])
@pytest.mark.parametrize("metrics", ["identity", "one", "per head"])
def test_fused_equals_literal_in_values_and_all_gradients(unplaced, each, metrics):  # RF-FUSED, RF-22
    placed, heads = 11, 3
    q, k, v = double(3, 2, heads, placed + unplaced, 4).requires_grad_().unbind(0)
    positions = double(placed, 3).requires_grad_()
    sigma = widths(*each).requires_grad_()
    raw = double(*((heads, 3, 3) if metrics == "per head" else (3, 3))).requires_grad_()
    precision = None if metrics == "identity" else locality.precision_matrix(raw)
    inputs = [q, k, v, positions, sigma] + ([] if metrics == "identity" else [raw])
    literal = locality.focused_attention(q, k, v, positions, sigma, precision)
    fused = locality.fused_focused_attention(q, k, v, positions, sigma, precision)
    assert_close(fused, literal)
    weights = torch.randn_like(literal)
    slopes = (torch.autograd.grad(y, inputs, weights, retain_graph=True) for y in (fused, literal))
    assert_close(*slopes, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fused_form_returns_the_dtype_of_its_queries(dtype):  # RF-FUSED
    q, k, v = torch.randn(3, 2, 20, 8).unbind(0)
    positions, sigma = torch.arange(20.0)[:, None], torch.tensor([[2.0], [5.0]])
    right = locality.focused_attention(q, k, v, positions, sigma)
    got = locality.fused_focused_attention(q.to(dtype), k.to(dtype), v, positions, sigma)
    assert got.dtype == dtype
    assert_close(got.float(), right, rtol=0, atol=1e-5 if dtype == torch.float32 else 0.03)


def test_fused_form_keeps_its_digits_in_float32_far_from_the_origin():  # RF-FUSED
    # An expansion of |p_m - p_n|^2 into inner products would be wrong by whole units in the exponent here.
    along = torch.arange(64.0)
    positions = torch.stack([4000 + along, along / 2 - 4000], -1)
    q, k, v = torch.randn(3, 1, 64, 8).unbind(0)
    sigma = torch.tensor([0.8], requires_grad=True)
    got = locality.fused_focused_attention(q, k, v, positions, sigma)
    exact = locality.focused_attention(*(x.double() for x in (q, k, v, positions, sigma)))
    assert_close(got.double(), exact, rtol=1e-4, atol=1e-6)
    gradient, right = (torch.autograd.grad(y.square().sum(), sigma)[0] for y in (got, exact))
    assert_close(gradient, right, rtol=1e-3, atol=0)


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
    q, k = double(2, heads, placed + unplaced, 4).requires_grad_().unbind(0)
    v, positions = double(heads, placed + unplaced, 11).requires_grad_(), double(placed, axes)
    sigma = widths(*((heads, 1) if per_head else (1,))).requires_grad_()
    precision = locality.precision_matrix(double(axes, axes))
    log_omega = locality.log_attenuation(positions, sigma, precision)
    gate = torch.nn.functional.pad(log_omega, (unplaced, 0, unplaced, 0))
    wanted = (
        ((q @ k.mT / 2 + gate).softmax(-1) @ v, locality.gated_by_features),
        (locality.focused_attention(q, k, v, positions, sigma, precision), locality.focused_by_features),
    )
    for right, call in wanted:
        got = call(q, k, v, positions, sigma, precision)
        assert_close(got, right)
        weights = torch.randn_like(right)
        slopes = (torch.autograd.grad(y, (q, v, sigma), weights, retain_graph=True) for y in (got, right))
        assert_close(*slopes, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("dtype", "unit"), [(torch.float32, 2.0**-24), (torch.bfloat16, 2.0**-8)])
@pytest.mark.parametrize("parts", [1, 2])
def test_rounded_features_err_by_a_power_of_the_unit_times_the_half_squares(dtype, unit, parts):  # RF-21
    positions = 40 * torch.rand(300, 2).double() + 1000  # far from the origin, which must not matter
    pair = locality.gaussian_features(positions, vec(1), None, parts, dtype)
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
FUSED = (locality.fused_focused_attention,)
EVERY = FUSED + BY_FEATURES


@pytest.mark.parametrize(
    ("calls", "changes", "message"),
    [
        (FUSED, {"k": torch.ones(2, 5, 4)}, r"k: got shape \(2, 5, 4\)"),
        (FUSED, {"v": torch.ones(2, 5, 4)}, r"v: got shape \(2, 5, 4\)"),
        (EVERY, {"positions": torch.zeros(7, 2)}, "positions: got 7 rows"),
        (FUSED, {"positions": torch.zeros(5)}, r"positions: got shape \(5,\)"),
        (FUSED, {"positions": torch.zeros(5, 0)}, r"positions: got shape \(5, 0\)"),
        (FUSED, {"sigma": torch.ones(2, 3)}, r"sigma: got shape \(2, 3\)"),
        (FUSED, {"sigma": torch.ones(3, 1)}, r"sigma: got leading shape \(3,\)"),
        (EVERY, {"sigma": torch.tensor([-1.0])}, "sigma: got a width"),
        (FUSED, {"sigma": torch.tensor([math.nan])}, "sigma: got a width"),
        (FUSED, {"sigma": torch.tensor([math.inf])}, "sigma: got a width"),
        (FUSED, {"precision": torch.eye(3)}, r"precision: got a matrix of \(3, 3\)"),
        (FUSED, {"precision": -torch.eye(2)}, "positive definite"),
        (FUSED, {"precision": torch.eye(2).expand(3, 2, 2)}, r"precision: got leading shape \(3,\)"),
        (BY_FEATURES, {"sigma": torch.ones(2, 5)}, "sigma: got .* must be 1"),
        (BY_FEATURES, {"parts": 0}, "parts: got 0"),
    ],
)
def test_bad_input_names_the_argument(calls, changes, message):
    for call in calls:
        call(**ARGUMENTS)
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
    with torch.autocast("cpu", torch.bfloat16):
        near, far = (locality.attenuation(x[:8, None] + 0.0, torch.ones(1), torch.eye(1)) for x in (p, p + 1000))
    assert_close(near, far)
    half = encoding.place(p).attention(q, k, v.bfloat16())
    assert half.dtype == torch.bfloat16
    two = encoding.place(p).attention(q, k, torch.cat([v, -v]))
    assert_close(two, torch.cat([wanted, -wanted]), atol=1e-5, rtol=1e-5)
