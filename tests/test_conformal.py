import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from often import double, refuses, vec
from oracles import turn
from torch.testing import assert_close

from geolib import conformal
from geolib.rotations import block_diagonal, rotation_matrix

# Scale laws ---------------------------------------------------------------------------------------------------------


@given(w=st.floats(-20, 20), alpha=st.floats(0.01, 3))
@settings(deadline=None, max_examples=25)
def test_bounded_law_is_the_logarithm_of_its_fraction_and_below_one(w, alpha):  # RF-6a
    log_s = conformal.bounded_log_scale(vec(w)[0], alpha).item()
    assert log_s == pytest.approx(math.log(math.exp(w) / (math.exp(w) + alpha)), rel=1e-6, abs=1e-15)
    assert log_s < 0


@pytest.mark.parametrize("w", [-40.0, -25.0, -18.0, 0.0, 12.0, 30.0])
def test_bounded_law_keeps_its_digits_where_the_fraction_loses_them(w):  # RF-6a
    with localcontext(prec=40):
        expected = float(-(1 + Decimal("0.1") * Decimal(-w).exp()).ln())
    for dtype, bound in ((torch.float64, 1e-14), (torch.float32, 1e-6)):
        got = conformal.bounded_log_scale(torch.tensor(w, dtype=dtype)).item()
        assert abs(got - expected) <= bound * abs(expected)


@pytest.mark.parametrize("name", ["bounded", "free", "slow"])
@pytest.mark.parametrize("s", [0.05, 0.5, 0.99])
def test_every_law_starts_at_the_scale_it_is_asked_for(name, s):  # RF-6a
    law = conformal.SCALE_LAWS[name]()
    assert law.log_scale(law.raw(vec(s))).exp().item() == pytest.approx(s, rel=1e-12)


def test_free_law_is_the_exponential_and_permits_growth():  # RF-6a
    law = conformal.free_law()
    assert (law.exponent(vec(5)) * law.log_scale(vec(0.3))).exp().item() == pytest.approx(math.exp(0.3) ** 5)


@pytest.mark.parametrize("law", [conformal.free_law, conformal.bounded_law])
def test_an_origin_moves_the_place_of_the_identity_and_nothing_else(law):  # RF-6a
    plain, moved, m, w = law(), law(origin=3.5), vec(0, 3.5, 7), double(4)
    assert torch.equal(plain.exponent(m), m)
    assert_close(moved.exponent(m), vec(-3.5, 0, 3.5))
    assert torch.equal(moved.log_scale(w), plain.log_scale(w))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("log_s", [-0.3, 0.002])
def test_reach_is_the_last_place_with_both_powers_in_range(dtype, log_s):  # RF-14
    limits, reach = torch.finfo(dtype), float(conformal.reach(vec(log_s), dtype))
    for share, within in ((0.999, True), (1.001, False)):
        exponent = share * reach / 2 * abs(log_s)
        assert (exponent < math.log(limits.max) and -exponent > math.log(limits.tiny)) == within
    assert conformal.reach(torch.zeros(2), dtype).isinf().all()  # without a scale


@pytest.mark.parametrize("beta", [2.0, math.e, 10.0])
def test_slow_law_is_the_power_log_beta_of_the_position(beta):  # RF-6a
    m = vec(1, 2, 7, 4096)
    metric = 0.8 ** conformal.slow_law(beta=beta).exponent(m - 1)  # the law counts positions from 0
    assert_close(metric, m ** (math.log(0.8) / math.log(beta)))  # s^(log_beta m), read as a power of the position


# Metrics ------------------------------------------------------------------------------------------------------------


def test_scalar_and_diagonal_metrics_are_powers_of_their_scales():  # RF-6
    m, s = vec(0.0, 1.0, 2.5), vec(0.5, 2.0, 1.3)
    assert_close(conformal.diagonal_metric(m, s.log()), torch.stack([torch.diag(s**i) for i in m]))
    scalar = torch.stack([0.7**i * torch.eye(3).double() for i in m])
    assert_close(conformal.scalar_metric(m, vec(0.7)[0].log(), 3), scalar)


def test_general_metric_is_the_turned_diagonal_one():  # RF-A1
    m, s, theta = 3.0, np.array([0.6, 1.7]), 0.4
    got = conformal.general_metric(vec(m), torch.from_numpy(s).log(), vec(theta))
    assert_close(got[0], torch.from_numpy(turn(-m * theta) @ np.diag(s**m) @ turn(m * theta)))


def test_scalar_metric_keeps_angles_and_the_general_one_does_not():  # RF-6, RF-A1
    m = vec(1, 2, 3)
    scalar, general = conformal.scalar_metric(m, vec(-0.5)[0], 2), conformal.general_metric(m, vec(-0.5, 0.2), vec(0.3))
    assert conformal.conformal_deviation(scalar).max() < 1e-14
    assert conformal.conformal_deviation(general).min() > 0.1


def test_unit_ball_has_length_one_and_the_axes_of_its_metric():  # RF-A1
    metric = conformal.general_metric(vec(1, 4), vec(-0.5, 0.8), vec(0.3))
    ball = conformal.unit_ball(metric, 20001)
    assert_close(torch.einsum("msi,mij,msj->ms", ball, metric, ball), torch.ones(2, 20001).double())
    values, radii = torch.linalg.eigvalsh(metric), ball.norm(dim=-1)
    assert_close(radii.amax(-1), values[:, 0] ** -0.5, rtol=1e-5, atol=0)
    assert_close(radii.amin(-1), values[:, 1] ** -0.5, rtol=1e-5, atol=0)
    assert_close(ball[:, 0], ball[:, -1])


# Conformal maps -----------------------------------------------------------------------------------------------------


def test_conformal_matrix_scales_every_inner_product_alike():  # CS-1
    (x, y), rotation = double(2, 8), block_diagonal(rotation_matrix(double(4)))
    matrix = conformal.conformal_matrix(vec(0.4)[0], rotation)
    assert_close(matrix, math.exp(0.4) * rotation)
    assert_close((matrix @ x) @ (matrix @ y), math.exp(0.8) * (x @ y))


def test_factor_and_deviation_recognise_conformal_matrices():  # CS-1
    orthogonal = torch.linalg.qr(double(4, 5, 5)).Q
    assert_close(conformal.conformal_factor(0.3 * orthogonal), vec(0.3).expand(4))
    assert conformal.conformal_factor(300 * torch.eye(2).half()).item() == 300  # whose square float16 has not
    assert conformal.conformal_deviation(0.3 * orthogonal).max() < 1e-14
    # diag(1, 2): s^2 = 5/2, so the gram matrix over s^2 is diag(2/5, 8/5).
    assert conformal.conformal_deviation(torch.diag(vec(1, 2))).item() == pytest.approx(0.6)


# Far from the origin ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("s", [0.985, 1.01])
def test_factors_from_logarithms_are_right_in_float32_at_positions_in_the_thousands(s):  # RF-14
    m, log_s = torch.arange(0.0, 6000.0, 37.0), math.log(s)
    exact = (m.double() * log_s).exp()
    normal = exact.log10().abs() < 37
    assert normal.float().mean() > 0.9
    got = conformal.scalar_metric(m, torch.tensor(log_s), 1).flatten().double()
    assert (got / exact - 1)[normal].abs().max() < 3e-5  # rounding of the exponent, up to 88 in size
    # A scale rounded to float32 before the power is worse by orders of magnitude.
    rounded = torch.tensor(s).pow(m[-1]).double()
    assert abs(rounded / exact[-1] - 1) > 1e-5 or s == 1.01


# Bad input ----------------------------------------------------------------------------------------------------------


test_bad_input_names_the_argument = refuses(
    (lambda: conformal.free_law(origin=math.nan), "origin: got nan"),
    (lambda: conformal.bounded_law(origin=math.inf), "origin: got inf"),
    (lambda: conformal.reach(torch.ones(()), torch.int64), "dtype: got torch.int64"),
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
)
