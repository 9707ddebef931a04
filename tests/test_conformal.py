import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from geolib import conformal
from geolib.rotations import block_diagonal, rotation_matrix

F64 = torch.float64


# Scale laws ---------------------------------------------------------------------------------------------------------


@given(w=st.floats(-20, 20), alpha=st.floats(0.01, 3))
@settings(deadline=None, max_examples=25)
def test_bounded_law_is_the_logarithm_of_its_fraction_and_below_one(w, alpha):  # RF-6a
    s = math.exp(w) / (math.exp(w) + alpha)
    log_s = conformal.bounded_log_scale(torch.tensor(w, dtype=F64), alpha).item()
    assert log_s == pytest.approx(math.log(s), rel=1e-6, abs=1e-15)
    assert log_s < 0


@pytest.mark.parametrize("w", [-40.0, -25.0, -18.0, 0.0, 12.0, 30.0])
def test_bounded_law_keeps_its_digits_where_the_fraction_loses_them(w):  # RF-6a
    with localcontext(prec=40):
        expected = float(-(1 + Decimal("0.1") * Decimal(-w).exp()).ln())
    for dtype, bound in ((F64, 1e-14), (torch.float32, 1e-6)):
        got = conformal.bounded_log_scale(torch.tensor(w, dtype=dtype)).item()
        assert abs(got - expected) <= bound * abs(expected)


@pytest.mark.parametrize("name", ["bounded", "free", "slow"])
@pytest.mark.parametrize("s", [0.05, 0.5, 0.99])
def test_every_law_starts_at_the_scale_it_is_asked_for(name, s):  # RF-6a
    law = conformal.SCALE_LAWS[name]()
    assert law.log_scale(law.raw(torch.tensor(s, dtype=F64))).exp().item() == pytest.approx(s, rel=1e-12)


def test_free_law_is_the_exponential_and_permits_growth():  # RF-6a
    law = conformal.free_law()
    w, m = torch.tensor(0.3, dtype=F64), torch.tensor([5.0], dtype=F64)
    assert (law.exponent(m) * law.log_scale(w)).exp().item() == pytest.approx(math.exp(0.3) ** 5)


@pytest.mark.parametrize("law", [conformal.free_law, conformal.bounded_law])
def test_an_origin_moves_the_place_of_the_identity_and_nothing_else(law):  # RF-6a
    plain, moved, m = law(), law(origin=3.5), torch.tensor([0.0, 3.5, 7.0], dtype=F64)
    assert torch.equal(plain.exponent(m), m)
    assert_close(moved.exponent(m), torch.tensor([-3.5, 0.0, 3.5], dtype=F64))
    w = torch.randn(4, dtype=F64)
    assert torch.equal(moved.log_scale(w), plain.log_scale(w))
    with pytest.raises(ValueError, match=r"^origin: got nan; it must be a finite number"):
        law(origin=math.nan)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("log_s", [-0.3, 0.002])
def test_reach_is_the_last_place_with_both_powers_in_range(dtype, log_s):  # RF-14
    limits, reach = torch.finfo(dtype), float(conformal.reach(torch.tensor(log_s, dtype=F64), dtype))
    for share, within in ((0.999, True), (1.001, False)):
        exponent = share * reach / 2 * abs(log_s)
        assert (exponent < math.log(limits.max) and -exponent > math.log(limits.tiny)) == within


def test_reach_without_a_scale_is_infinite_and_whole_numbers_have_none():  # RF-14
    assert conformal.reach(torch.zeros(2), torch.float32).isinf().all()
    with pytest.raises(ValueError, match=r"^dtype: got torch.int64"):
        conformal.reach(torch.ones(()), torch.int64)


@pytest.mark.parametrize("beta", [2.0, math.e, 10.0])
def test_slow_law_is_the_power_log_beta_of_the_position(beta):  # RF-6a
    m = torch.tensor([1.0, 2.0, 7.0, 4096.0], dtype=F64)
    # As a law, positions count from 0.
    metric = (conformal.slow_law(beta=beta).exponent(m - 1) * math.log(0.8)).exp()
    assert_close(metric, torch.from_numpy(0.8 ** (np.log(m.numpy()) / np.log(beta))))
    # The other way to read it: a power of the position, m^(log_beta s).
    assert_close(metric, m ** (math.log(0.8) / math.log(beta)))


# Metrics ------------------------------------------------------------------------------------------------------------


def test_scalar_and_diagonal_metrics_are_powers_of_their_scales():  # RF-6
    m = torch.tensor([0.0, 1.0, 2.5], dtype=F64)
    s = np.array([0.5, 2.0, 1.3])
    expected = np.stack([np.diag(s**i) for i in (0.0, 1.0, 2.5)])
    assert_close(conformal.diagonal_metric(m, torch.from_numpy(s).log()), torch.from_numpy(expected))
    scalar = np.stack([0.7**i * np.eye(3) for i in (0.0, 1.0, 2.5)])
    assert_close(conformal.scalar_metric(m, torch.tensor(0.7, dtype=F64).log(), 3), torch.from_numpy(scalar))


def test_general_metric_is_the_turned_diagonal_one():  # RF-A1
    m, s, theta = 3.0, np.array([0.6, 1.7]), 0.4
    c, n = math.cos(m * theta), math.sin(m * theta)
    back, forth = np.array([[c, n], [-n, c]]), np.array([[c, -n], [n, c]])
    got = conformal.general_metric(
        torch.tensor([m], dtype=F64), torch.from_numpy(s).log(), torch.tensor([theta], dtype=F64)
    )
    assert_close(got[0], torch.from_numpy(back @ np.diag(s**m) @ forth))


def test_scalar_metric_keeps_angles_and_the_general_one_does_not():  # RF-6, RF-A1
    m = torch.arange(1.0, 4.0, dtype=F64)
    turn = torch.tensor([0.3], dtype=F64)
    scalar = conformal.scalar_metric(m, torch.tensor(-0.5, dtype=F64), 2)
    general = conformal.general_metric(m, torch.tensor([-0.5, 0.2], dtype=F64), turn)
    assert conformal.conformal_deviation(scalar).max() < 1e-14
    assert conformal.conformal_deviation(general).min() > 0.1


def test_unit_ball_has_length_one_and_the_axes_of_its_metric():  # RF-A1
    metric = conformal.general_metric(
        torch.tensor([1.0, 4.0], dtype=F64), torch.tensor([-0.5, 0.8], dtype=F64), torch.tensor([0.3], dtype=F64)
    )
    ball = conformal.unit_ball(metric, 20001)
    assert ball.shape == (2, 20001, 2)
    assert_close(torch.einsum("msi,mij,msj->ms", ball, metric, ball), torch.ones(2, 20001, dtype=F64))
    values = np.linalg.eigvalsh(metric.numpy())
    radii = ball.norm(dim=-1)
    assert_close(radii.amax(-1), torch.from_numpy(values[:, 0] ** -0.5), rtol=1e-5, atol=0)
    assert_close(radii.amin(-1), torch.from_numpy(values[:, 1] ** -0.5), rtol=1e-5, atol=0)
    assert_close(ball[:, 0], ball[:, -1])


# Conformal maps -----------------------------------------------------------------------------------------------------


def test_conformal_matrix_scales_every_inner_product_alike():  # CS-1
    x, y = torch.randn(2, 8, dtype=F64)
    rotation = block_diagonal(rotation_matrix(torch.randn(4, dtype=F64)))
    matrix = conformal.conformal_matrix(torch.tensor(0.4, dtype=F64), rotation)
    assert_close(matrix, math.exp(0.4) * rotation)
    assert_close((matrix @ x) @ (matrix @ y), math.exp(0.8) * (x @ y))


def test_factor_and_deviation_recognise_conformal_matrices():  # CS-1
    orthogonal = torch.linalg.qr(torch.randn(4, 5, 5, dtype=F64)).Q
    assert_close(conformal.conformal_factor(0.3 * orthogonal), torch.full((4,), 0.3, dtype=F64))
    assert conformal.conformal_deviation(0.3 * orthogonal).max() < 1e-14
    # diag(1, 2): s^2 = 5/2, so the gram matrix over s^2 is diag(2/5, 8/5).
    assert conformal.conformal_deviation(torch.diag(torch.tensor([1.0, 2.0], dtype=F64))).item() == pytest.approx(0.6)


# Far from the origin ------------------------------------------------------------------------------------------------


def _exact(q, k, log_q, log_k):
    """Scores by a float64 loop on logarithms."""
    dots = q.double().numpy() @ k.double().numpy().T
    total = log_q.double().numpy()[:, None] + log_k.double().numpy()[None]
    with np.errstate(over="ignore"):
        return torch.from_numpy(np.sign(dots) * np.exp(np.log(np.abs(dots)) + total))


@pytest.mark.parametrize("s", [0.985, 1.01])
def test_factors_from_logarithms_are_right_in_float32_at_positions_in_the_thousands(s):  # RF-14
    m, log_s = torch.arange(0.0, 6000.0, 37.0), math.log(s)
    q, k = torch.randn(2, len(m), 16)
    factor = (m / 2 * log_s).exp()[:, None]
    exact = _exact(q, k, m / 2 * log_s, m / 2 * log_s)
    normal = exact.abs().log10().abs() < 37
    assert normal.float().mean() > 0.9
    got = ((factor * q) @ (factor * k).T).double()
    # Rounding of the exponent, up to 88 in size, and cancellation inside the inner products.
    error = (got - exact).abs() / (_exact(q.abs(), k.abs(), m / 2 * log_s, m / 2 * log_s))
    assert error[normal].max() < 3e-5
    # A scale rounded to float32 before the power is worse by orders of magnitude.
    rounded = torch.tensor(s).pow(m[-1]).double()
    assert abs(rounded / math.exp(float(m[-1]) * log_s) - 1) > 1e-5 or s == 1.01


# Bad input ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: conformal.bounded_log_scale(torch.zeros(1), -0.1), "alpha: got -0.1"),
        (lambda: conformal.free_law().raw(torch.tensor([-2.0])), "s: got .*above 0"),
        (lambda: conformal.free_law().raw(torch.tensor([math.inf])), "s: got .*finite"),
        (lambda: conformal.slow_law(beta=1.0), "beta: got 1.0"),
        (lambda: conformal.unit_ball(torch.zeros(2, 2)), "metric: got .*positive definite"),
        (lambda: conformal.unit_ball(torch.eye(3)), r"metric: got shape \(3, 3\)"),
        (lambda: conformal.unit_ball(torch.eye(2), 1), "samples: got 1"),
        (lambda: conformal.metric_root(torch.tensor([[1.0, 1.0], [0.0, 1.0]])), "metric: got an asymmetry"),
        (lambda: conformal.conformal_deviation(torch.zeros(2, 2)), "matrix: got a zero matrix"),
        (lambda: conformal.general_metric(torch.ones(1), torch.ones(3), torch.ones(1)), "log_scales: got shape"),
    ],
)
def test_bad_input_names_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()
