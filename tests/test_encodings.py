"""The first methods, half-split pairs, what stands around another method, and even powers in softmax's place."""

import pytest
import torch
from torch.testing import assert_close

from geolib.attention import Encoding, MultiHeadAttention
from geolib.encodings import (
    METHODS,
    WRAPPERS,
    Composed,
    HalfSplit,
    Learned,
    LieRE,
    LocalityFocusing,
    PerLayer,
    PerLayerFocusing,
    PowerScores,
    RiemannFormer,
    RiemannFormerGeneral,
    RoPE,
    Sinusoidal,
    build,
    is_name,
    turned_features,
)
from geolib.recurrence import attention_form
from geolib.rotations import grid_positions, to_half_split, to_interleaved


def test_only_a_method_with_positions_breaks_permutation_equivariance():  # RF-PE
    cells, order = grid_positions(3, 4).double(), torch.randperm(12)
    layer, x = MultiHeadAttention(48, 2).double(), torch.randn(2, 12, 48, dtype=torch.float64)
    for name in METHODS:
        encoding = build(name, width=48, heads=2, grid=(3, 4)).double()
        whole, moved = (layer(encoding.embed(y, cells), encoding.place(cells)) for y in (x, x[:, order]))
        assert torch.allclose(moved, whole[:, order]) == (name == "none"), name


# The first methods ---------------------------------------------------------------------------------------------------


def test_learned_vectors_start_with_the_deviation_asked_for_or_one():
    for asked, deviation in (({}, 1.0), ({"std": 0.02}, 0.02)):
        vectors = Learned(64, (16, 16), **asked).vectors
        assert vectors.std().item() == pytest.approx(deviation, rel=0.05)
        assert vectors.mean().abs() < 0.05 * deviation


@pytest.mark.parametrize(("cell", "inside"), [(-1.0, -0.4), (-0.6, -0.4), (3.0, 2.4), (2.6, 2.4)])
def test_a_learned_position_is_rounded_to_its_cell_and_refused_off_the_grid(cell, inside):
    table, x = Learned(width=4, grid=(3, 3)), torch.zeros(1, 1, 4)
    with pytest.raises(IndexError, match=rf"got the cell \(0, {round(cell)}\); the grid has"):
        table.embed(x, torch.tensor([[0.0, cell]]))
    assert torch.equal(table.embed(x, torch.tensor([[0.6, inside]]))[0, 0], table.vectors[1, round(inside)])


@pytest.mark.parametrize("name", ["rope", "rope-axial", "riemannformer", "spherical", "learned", "lf"])
def test_a_grid_may_be_one_cell_wide_and_a_head_hold_one_triple(name):
    encoding, cells = build(name, width=12, heads=3, grid=(1, 5)), grid_positions(1, 5)
    q = torch.randn(1, 3, 5, 4)
    assert torch.isfinite(encoding.place(cells).attention(q, q, q, encoding.embed(torch.randn(1, 5, 12), cells))).all()


def test_a_gaussian_of_wide_positions_keeps_their_digits():  # RF-19
    cells = 1e8 + torch.arange(4, dtype=torch.float64)
    near, far = (build("gauss", width=8, heads=2, grid=(4,)).place(places) for places in (cells - 1e8, cells))
    assert_close(far.log_gate(torch.zeros(1, 4, 8)), near.log_gate(torch.zeros(1, 4, 8)))


HALF_SPLIT = {
    "all pairs": lambda: RoPE(torch.linspace(0.1, 1, 8)[:, None]),
    "some pairs": lambda: RoPE(torch.linspace(0.1, 1, 4)[:, None], rotary_dim=8),
    "some pairs of two axes": lambda: RoPE(torch.linspace(0.1, 1, 8).view(4, 2), rotary_dim=8),
    "some pairs, not alone": lambda: Composed([RoPE(torch.linspace(0.1, 1, 4)[:, None], rotary_dim=8), Encoding()]),
    "scales": lambda: RiemannFormer(torch.linspace(0.1, 1, 8)[:, None], heads=1, start=0.8),
    "two scales": lambda: RiemannFormerGeneral(torch.linspace(0.1, 1, 8)[:, None], heads=2, start=0.8),
    "blocks": lambda: LieRE(torch.rand(1, 2, 2, 1, 28), 8),
    "small blocks": lambda: LieRE(torch.rand(1, 2, 8, 1, 1), 2),
}


@pytest.mark.parametrize("name", HALF_SPLIT)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_half_split_pairs_are_carried_as_interleaved_ones(name, dtype):
    """With tokens in front that have no place, and vectors that lie across memory; in the vectors' precision."""
    inside = HALF_SPLIT[name]().to(torch.float64)
    half, turned = HalfSplit(inside), turned_features(inside)
    assert turned == (8 if "some" in name else 16)
    at = torch.rand(5, 2 if "two axes" in name else 1, dtype=torch.float64)
    q, k = torch.randn(2, 3, 7, 2, 16, dtype=torch.float64).transpose(2, 3).to(dtype)
    got = half.place(at).layer(0).with_prefix_tokens(2).to_reference(q, k)
    wide = [to_interleaved(x.double(), turned) for x in (q, k)]
    near = 1e-12 if dtype == torch.float64 else 2 * torch.finfo(dtype).eps
    for a, x in zip(got, inside.place(at).layer(0).with_prefix_tokens(2).to_reference(*wide)):
        assert a.dtype == dtype
        assert_close(a.double(), to_half_split(x, turned), atol=near, rtol=near)


def test_half_split_heads_have_pairs_that_stand_still_and_as_many_as_the_widest_part_turns():
    rope, at = RoPE(torch.linspace(0.1, 1, 4)[:, None], rotary_dim=8), torch.rand(5, 1)
    q, k = torch.randn(2, 1, 2, 5, 16)
    got = HalfSplit(rope, turned=16).place(at).to_reference(q, k)  # feature i stands beside i + 8
    for a, x in zip(got, rope.place(at).to_reference(to_interleaved(q), to_interleaved(k))):
        assert_close(a, to_half_split(x))
    for pairs in ((4, 8), (8, 4)):
        assert turned_features(Composed([RoPE(torch.ones(n, 1)) for n in pairs])) == 16


def test_powers_of_scores_go_around_the_others_wherever_they_stand_in_the_name():
    made = lambda name: build(name, width=48, heads=2, grid=(9,))  # noqa: E731
    assert repr(made("rope+sympow+alibi")) == repr(made("rope+alibi+sympow"))
    assert isinstance(made("rope+lf+alibi"), Composed)  # the others in the order of the name
    assert isinstance(made("rope+alibi+lf"), LocalityFocusing)
    assert is_name("+".join(["rope", *WRAPPERS]))


AROUND = {
    "composed": lambda inside, _: Composed([Encoding(), inside]),
    "half-split": lambda inside, _: HalfSplit(inside),
    "focused": lambda inside, _: LocalityFocusing(inside, 2, 2, 1.0),
    "by layer": lambda inside, other: PerLayer([inside, other]),
    "focused by layer": lambda inside, other: PerLayerFocusing(inside, [LocalityFocusing(other, 2, 2, 1.0)]),
}


@pytest.mark.parametrize("name", AROUND)
def test_what_stands_around_embeds_as_what_is_inside(name):
    x, places = torch.zeros(1, 3, 8), torch.tensor([[2.0, 1.0], [0.0, 2.0], [1.0, 1.0]])
    inside, other = Sinusoidal(8, axes=2), Sinusoidal(8, axes=2, base=10.0)
    assert torch.equal(AROUND[name](inside, other).embed(x, places), inside.embed(x, places))
    both = Composed([inside, other]).embed(x, places)
    assert torch.equal(both, inside.embed(x, places) + other.embed(x, places))


# Even powers in softmax's place ---------------------------------------------------------------------------------------


def literal(q, k, power, gate=0.0, omega=1.0):
    """Weights written out: powers times gates over their sum, times the attenuation."""
    powers = (q @ k.mT) ** power * torch.as_tensor(gate).exp()
    return powers / powers.sum(-1, keepdim=True) * omega


def wide(*shape):
    return torch.randn(*shape, dtype=torch.float64)


@pytest.mark.parametrize("power", [2, 4, 6])
def test_causal_power_weights_are_the_attention_form(power):  # CS-att
    q, k, v = wide(3, 2, 3, 7, 4).unbind(0)
    placed = PowerScores(Encoding(), power).place(torch.zeros(7, 1))
    assert_close(placed.attend(q, k, v, causal=True), attention_form(q, k, v, power).output)


def test_query_heads_share_the_keys_of_fewer_heads():  # CS-att
    q, k = wide(1, 4, 3, 6), wide(1, 2, 5, 6)
    placed = PowerScores(Encoding(), 2).place(torch.zeros(3, 1), torch.zeros(5, 1))
    assert_close(placed.weights(q, k), literal(q, k[:, [0, 0, 1, 1]], 2))


def test_all_that_weights_are_asked_for_values_are_added_up_by():  # CS-att
    q, k, v = wide(3, 1, 2, 4, 6).unbind(0)
    placed, mask = PowerScores(Encoding(), 2).place(torch.zeros(4, 1)), torch.ones(4, 4, dtype=torch.bool).triu(-1)
    for options in ({"log_gate": wide(4, 4)}, {"causal": True}, {"mask": mask}):
        assert_close(placed.attend(q, k, v, **options), placed.weights(q, k, **options) @ v)
        assert not torch.allclose(placed.attend(q, k, v, **options), placed.attend(q, k, v))
    assert_close(placed.attend(q, k, v, scale=0.3), placed.attend(q, k, v))


def test_power_weights_ignore_the_scale_of_queries_and_keys_and_neither_overflow_nor_underflow():  # CS-att
    q, k = torch.randn(2, 1, 1, 6, 8).unbind(0)
    placed = PowerScores(Encoding(), 8).place(torch.zeros(6, 1))
    usual = placed.weights(q, k)
    for factor in (1e-12, 1e-3, 1e12):
        assert_close(placed.weights(factor * q, k), usual)
    assert_close(usual.sum(-1), torch.ones(1, 1, 6))


def test_a_query_of_zeros_gets_zeros_and_nan_stays_nan():  # CS-att
    q, k, v = torch.randn(3, 1, 1, 4, 8).unbind(0)
    placed = PowerScores(Encoding(), 2).place(torch.zeros(4, 1))
    q = q.clone().index_fill_(2, torch.tensor([1]), 0.0).requires_grad_()
    output = placed.attend(q, k, v)
    assert (output[0, 0, 1] == 0).all()
    output.square().sum().backward()
    assert q.grad.isfinite().all()
    broken = k.clone()
    broken[0, 0, 2] = float("nan")
    assert placed.attend(q, broken, v).isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_outputs_have_the_values_dtype(dtype):  # CS-att
    q, k, v = torch.randn(3, 1, 1, 4, 8, dtype=dtype)
    placed = PowerScores(Encoding(), 2).place(torch.zeros(4, 1))
    assert placed.attend(q, k, v).dtype == dtype
    assert placed.weights(q, k).dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


def test_no_keys_and_no_tokens_give_nothing():
    placed = PowerScores(Encoding()).place(torch.arange(0))
    assert placed.attention(*torch.randn(3, 1, 2, 0, 4).unbind()).shape == (1, 2, 0, 4)
    q, none = torch.randn(1, 2, 3, 4), torch.randn(1, 2, 0, 4)
    assert not placed.attend(q, none, none).any()
