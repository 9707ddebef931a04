"""Biases, focusing and RiemannFormer: where they start, and what they are beside one another."""

import math

import pytest
import torch
from torch.testing import assert_close

from geolib import conformal, locality
from geolib.attention import Encoding, MultiHeadAttention
from geolib.encodings import ALiBi, LocalityFocusing, RiemannFormer, RiemannFormerRelative, RoPE, build
from geolib.rotations import axial_frequencies, grid_positions, language_frequencies

F64 = torch.float64
GRIDS = [(12,), (3, 4), (2, 3, 2)]
every_grid = pytest.mark.parametrize("grid", GRIDS, ids=str)


def made(name, grid=(3, 4), **options):
    return build(name, width=24, heads=2, grid=grid, **options)


def stirred(encoding):
    """Parameters moved off their start, so that equal ones cannot hide a wrong index."""
    with torch.no_grad():
        for p in encoding.parameters():
            p += 0.5 * torch.randn_like(p)
    return encoding.double()


def scores(encoding, q, k, positions, keys=None):
    a, b = encoding.place(positions, keys).to_reference(q, k)
    return a @ b.mT


# ALiBi --------------------------------------------------------------------------------------------------------------


def test_alibi_slopes_are_the_geometric_series():  # CS-A1
    assert ALiBi(8).slopes.tolist() == [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]
    assert ALiBi(3).slopes.tolist() == [2**-4, 2**-8, 2**-2]  # no power of two: those of 2, and every second one of 4
    assert ALiBi(12).slopes[8:].tolist() == ALiBi(16).slopes[:8:2].tolist()
    assert ALiBi(2, slopes=[0.5, 0.1]).slopes.tolist() == torch.tensor([0.5, 0.1]).tolist()


# RiemannFormer ------------------------------------------------------------------------------------------------------


@every_grid
@pytest.mark.parametrize("options", [{}, {"law": "slow", "learn_angles": True}, {"per_head": False}], ids=str)
def test_reflections_score_as_rotations(grid, options):  # RF-16, RF-REFL
    mirrors, turns = (made(name, grid, **options).double() for name in ("riemannformer-reflection", "riemannformer"))
    mirrors.raw_scale.data = turns.raw_scale.data = torch.randn_like(turns.raw_scale)
    q, k = torch.randn(2, 2, 2, 12, 12, dtype=F64)
    both = [encoding.place(grid_positions(*grid).double()).to_reference(q, k) for encoding in (mirrors, turns)]
    assert not torch.allclose(both[0][0], both[1][0])
    assert_close(*(a @ b.mT for a, b in both))


# Scales on one side, and their inverses on the other ----------------------------------------------------------------


@pytest.mark.parametrize("law", ["bounded", "free", "slow"])
def test_scales_apart_multiply_ropes_score_by_s_to_half_the_difference(law):  # RF-8, CS-1
    made = conformal.SCALE_LAWS[law]()
    encoding = stirred(RiemannFormerRelative(language_frequencies(8), 3, law=made, start=0.8))
    positions, keys = torch.tensor([0.0, 1.0, 4.5, 2.0], dtype=F64), torch.tensor([3.0, 0.5], dtype=F64)
    q, k = torch.randn(2, 3, 4, 8, dtype=F64), torch.randn(2, 3, 2, 8, dtype=F64)
    found = scores(encoding, q, k, positions[:, None], keys[:, None])
    back = RoPE(-language_frequencies(8).double())
    plain = scores(back, q, k, positions[:, None], keys[:, None])
    exponents = (made.exponent(positions)[:, None] - made.exponent(keys)) / 2
    assert_close(found, plain * (exponents * encoding.log_scale()[:, :, None]).exp())


def test_a_flip_of_the_axis_inverts_the_scale():  # RF-13
    positions, (q, k) = torch.arange(8.0, dtype=F64)[:, None], torch.randn(2, 1, 1, 8, 8, dtype=F64)
    one, other = (RiemannFormer(language_frequencies(8), 1, s, conformal.free_law()).double() for s in (0.9, 1 / 0.9))
    mirror = torch.tensor([1.0, -1.0], dtype=F64).repeat(4)
    flipped = scores(one, q, k, 7 - positions)
    assert_close(flipped, 0.9**7 * scores(other, q * mirror, k * mirror, positions), rtol=1e-6, atol=1e-6)


def test_the_guard_of_scales_looks_at_every_token():  # RF-S
    method = RiemannFormer(torch.full((1, 2), 0.1), 1, law=conformal.free_law())
    with torch.no_grad():
        method.raw_scale.copy_(torch.tensor([[-0.1, 0.1]]))
    with pytest.raises(ValueError, match="positions: got"):
        method.place(torch.tensor([[-200.0, 200.0], [200.0, -200.0]]))
    method.place(torch.tensor([[200.0, 200.0], [-200.0, -200.0]]))  # what one axis gains the other loses


def test_beyond_its_reach_a_keys_factor_is_no_number():  # RF-14
    s = torch.tensor(1 / 1.1)
    encoding = RiemannFormerRelative(torch.full((1, 1), 1e-9), 1, float(s), conformal.free_law())
    encoding.longest = math.inf
    reach = conformal.reach(s.log(), torch.float32)
    for position, fine in ((0.99 * reach, True), (1.1 * reach, False)):
        q, k = encoding.place(position[None, None]).to_reference(*torch.ones(2, 1, 1, 1, 2))
        assert bool((q @ k.mT - 2).abs() < 1e-2) == fine


@every_grid
def test_riemannformer_with_s_one_is_axial_rope_with_the_opposite_sign(grid):  # RF-13
    axes, positions = len(grid), grid_positions(*grid).double()
    frequencies = axial_frequencies(12, axes, 100.0).double()
    free = RiemannFormer(frequencies, 2, start=1.0, law=conformal.free_law()).double()
    q, k = torch.randn(2, 1, 2, 12, 12, dtype=F64)
    for got, right in zip(
        free.place(positions).to_reference(q, k), RoPE(-frequencies).place(positions).to_reference(q, k)
    ):
        assert_close(got, right)


def test_angles_are_learned_along_their_axes_only_when_asked_for():  # RF-S
    fixed, learned = made("riemannformer"), made("riemannformer", learn_angles=True)
    assert [n for n, _ in fixed.named_parameters()] == ["raw_scale"]
    assert sorted(n for n, _ in learned.named_parameters()) == ["frequencies", "raw_scale"]
    q, k = torch.randn(2, 1, 2, 12, 12)
    a, b = learned.place(grid_positions(3, 4)).to_reference(q, k)
    assert_close(a, fixed.place(grid_positions(3, 4)).to_reference(q, k)[0])
    (a @ b.mT).square().sum().backward()
    gradient = learned.frequencies.grad
    assert (gradient[:, learned.follows == 0] == 0).all()
    assert (gradient[:, learned.follows == 1] != 0).all()


def test_positions_in_the_thousands_are_right_in_float32():  # RF-14
    positions = torch.arange(0.0, 8192.0, 97.0)[:, None]
    encoding = build("riemannformer", width=16, heads=1, grid=(8192,), far=1e-8)
    q, k = torch.randn(2, 1, 1, len(positions), 16)
    a, b = encoding.place(positions).to_reference(q, k)
    exact = encoding.double()
    c, d = exact.place(positions.double()).to_reference(q.double(), k.double())
    bound = c.abs() @ d.abs().mT
    # 8191 radians in float32 are good to about 1e-3; the scales add nothing to that.
    assert (((a @ b.mT).double() - c @ d.mT).abs() / bound).max() < 2e-3
    assert_close(a.norm(dim=-1).double(), c.norm(dim=-1), rtol=1e-5, atol=0)


# Locality focusing --------------------------------------------------------------------------------------------------


def test_focusing_starts_at_half_the_longest_axis_with_the_identity():  # RF-21
    focusing = made("lf", (3, 8))
    assert_close(focusing.sigma(), torch.full((2, 1), 4.0))
    assert_close(focusing.precision(), torch.eye(2))
    assert_close(made("rope+alibi+lf", lf={"sigma": 1.25}).sigma(), torch.full((2, 1), 1.25))


def test_focusing_twice_multiplies():  # RF-19
    once, other = LocalityFocusing(Encoding(), 2, 2, 2.0), LocalityFocusing(Encoding(), 2, 2, 3.0)
    both, one, two = (
        encoding.place(grid_positions(3, 4)).attenuation()
        for encoding in (LocalityFocusing(other, 2, 2, 2.0), once, other)
    )
    assert_close(both, one * two)


# Inside the softmax, and RMT's decay -------------------------------------------------------------------------------


def test_rmts_slopes_are_those_of_its_published_decays():
    expected = torch.tensor([1 - 2 ** (-2 - 4 * h / 5) for h in range(5)])
    assert_close(locality.rmt_slopes(5).neg().exp(), expected)


def test_one_turning_pair_keeps_no_symmetry_of_the_square():  # RF-TURN
    positions, x = grid_positions(4, 4).to(F64), torch.randn(1, 16, 24, dtype=F64)
    attend = MultiHeadAttention(24, 2).double()
    picture = x.unflatten(1, (4, 4))
    square = [y.rot90(i, (1, 2)).flatten(1, 2) for y in (picture, picture.transpose(1, 2)) for i in range(4)]
    for name, kept in (("lf", 8), ("rope-pair", 1), ("rope-pair+lf", 1)):
        placed = made(name, (4, 4)).double().place(positions)
        means = [attend(y, placed).mean(1) for y in square]
        assert sum(torch.allclose(y, means[0], atol=1e-9) for y in means) == kept


# Layers, names, errors ----------------------------------------------------------------------------------------------


def test_locality_alone_does_not_see_a_half_turn():  # RF-TURN, RF-21
    positions, x = grid_positions(3, 4).to(F64), torch.randn(2, 12, 24, dtype=F64)
    attend = MultiHeadAttention(24, 2).double()
    turned = {}
    for name in ("lf", "rope-axial+lf"):  # with another A, and a width a head
        encoding = stirred(made(name))
        # In reading order the half turn of a full grid takes the tokens backwards.
        turned[name] = (attend(x.flip(1), encoding.place(positions)), attend(x, encoding.place(positions)).flip(1))
    assert_close(*turned["lf"])
    assert not torch.allclose(*turned["rope-axial+lf"], atol=1e-3)


def test_hooks_without_a_layer_are_refused_where_layers_differ():
    q, placed = torch.randn(1, 2, 12, 12), made("riemannformer", layers=2, per_layer=True).place(grid_positions(3, 4))
    for hook, given in ((placed.to_reference, (q, q)), (placed.log_gate, (q,)), (placed.attenuation, ())):
        with pytest.raises(RuntimeError, match=r"placed\.layer"):
            hook(*given)


@pytest.mark.parametrize("name", ["riemannformer", "riemannformer-general"])
@pytest.mark.parametrize("law", ["bounded", "free", "slow"])
@pytest.mark.parametrize("grid", [(2, 9), (9, 2), (65536,), (2, 3, 8)], ids=str)
def test_the_metric_starts_at_what_is_asked_for_at_the_end_of_the_longest_axis(name, law, grid):  # RF-S, RF-6a
    for far, asked in ((0.9, {}), (0.7, {"far": 0.7})):
        method = build(name, width=48, heads=2, grid=grid, law=law, **asked)
        metric = (method.law.exponent(torch.tensor(max(grid) - 1.0)) * method.log_scale()).exp()
        assert_close(metric, torch.full_like(metric, far), atol=2e-5, rtol=0)
