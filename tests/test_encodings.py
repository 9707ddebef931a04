"""Methods of the registry keep the contract of the hooks; the first ones, and even powers in softmax's place."""

import math

import pytest
import torch
from torch.testing import assert_close

from geolib.attention import Encoding, MultiHeadAttention
from geolib.encodings import (
    METHODS,
    WRAPPERS,
    ALiBi,
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
from geolib.rotations import grid_positions, language_frequencies, to_half_split, to_interleaved

WIDTH, HEADS, HEAD_DIM = 48, 2, 24
GRIDS = [(9,), (3, 4), (2, 3, 2)]

every_method = pytest.mark.parametrize("name", METHODS)
every_name = pytest.mark.parametrize("name", [*METHODS, "riemannformer+lf", "alibi+lf", "rope-axial+gauss"])
every_grid = pytest.mark.parametrize("grid", GRIDS, ids=["1d", "2d", "3d"])


def method(name, grid, **options):
    torch.manual_seed(1)
    return build(name, width=WIDTH, heads=HEADS, grid=grid, layers=2, **options)


def heads_of(tokens, dtype=torch.float32):
    return torch.randn(2, HEADS, tokens, HEAD_DIM).to(dtype)


def run(encoding, x, positions, layer):
    return layer(encoding.embed(x, positions), encoding.place(positions).layer(0))


@every_method
@every_grid
def test_shapes_and_dtypes_are_kept(name, grid):
    positions, tokens = grid_positions(*grid), math.prod(grid)
    encoding = method(name, grid)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        x, q, k = torch.randn(2, tokens, WIDTH).to(dtype), heads_of(tokens, dtype), heads_of(tokens, dtype)
        embedded = encoding.embed(x, positions)
        q_ref, k_ref = encoding.place(positions).layer(1).to_reference(q, k)
        for before, after in ((x, embedded), (q, q_ref), (k, k_ref)):
            assert after.shape == before.shape
            assert after.dtype == dtype
            assert after.isfinite().all()


@every_name
@every_grid
def test_tokens_without_a_place_get_the_identity(name, grid):
    positions, tokens = grid_positions(*grid), math.prod(grid)
    encoding = method(name, grid)
    x, q, k = torch.randn(2, tokens + 2, WIDTH), heads_of(tokens + 2), heads_of(tokens + 2)
    at = encoding.place(positions).with_prefix_tokens(2).layer(0)
    q_ref, k_ref = at.to_reference(q, k)
    assert torch.equal(q_ref[:, :, :2], q[:, :, :2])
    assert torch.equal(k_ref[:, :, :2], k[:, :, :2])
    placed, _ = at.with_prefix_tokens(0).to_reference(q[:, :, 2:], k[:, :, 2:])
    assert_close(q_ref[:, :, 2:], placed)
    for hook, fill in ((at.log_gate(x), 0.0), (at.attenuation(), 1.0)):
        if hook is not None:
            whole = at.for_all(hook, q, k, fill)
            assert whole.shape[-2:] == (tokens + 2, tokens + 2)
            assert (whole[..., :2, :] == fill).all()
            assert (whole[..., :, :2] == fill).all()
            assert torch.equal(whole[..., 2:, 2:], hook)


@every_name
@every_grid
def test_parameters_get_gradients(name, grid):
    positions, tokens = grid_positions(*grid), math.prod(grid)
    encoding, layer = method(name, grid), MultiHeadAttention(WIDTH, HEADS)
    x = torch.randn(2, tokens, WIDTH)
    y, placed = encoding.embed(x, positions), encoding.place(positions)
    for index in range(2):
        y = y + layer(y, placed.layer(index))
    y.square().mean().backward()
    for parameter_name, parameter in encoding.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
        assert parameter.grad.abs().sum() > 0, parameter_name


def test_only_a_method_with_positions_breaks_permutation_equivariance():  # RF-PE
    positions, order = grid_positions(3, 4), torch.randperm(12)
    layer, x = MultiHeadAttention(WIDTH, HEADS).double(), torch.randn(2, 12, WIDTH, dtype=torch.float64)
    for name in METHODS:
        encoding = method(name, (3, 4)).double()
        same = torch.allclose(
            run(encoding, x[:, order], positions, layer), run(encoding, x, positions, layer)[:, order]
        )
        assert same == (name == "none"), name


# The first methods ---------------------------------------------------------------------------------------------------


def test_learned_vectors_start_with_the_deviation_asked_for_or_one():
    for asked, deviation in (({}, 1.0), ({"std": 0.02}, 0.02)):
        vectors = Learned(64, (16, 16), **asked).vectors
        assert vectors.std().item() == pytest.approx(deviation, rel=0.05)
        assert vectors.mean().abs() < 0.05 * deviation


@pytest.mark.parametrize("name", ["rope", "rope-axial"])
@every_grid
def test_rope_scores_survive_a_common_shift(name, grid):  # RF-13 with s = 1
    positions, tokens = grid_positions(*grid).double(), math.prod(grid)
    encoding, q, k = method(name, grid).double(), heads_of(tokens, torch.float64), heads_of(tokens, torch.float64)

    def scores(p):
        q_ref, k_ref = encoding.place(p).to_reference(q, k)
        return q_ref @ k_ref.transpose(-1, -2)

    assert_close(scores(positions + 17.5), scores(positions), atol=1e-9, rtol=0)


def test_turned_pairs_come_out_as_long_as_is_said_and_others_stay():
    usual, longer = (RoPE(language_frequencies(8), length, 8).place(torch.arange(5.0)) for length in (1.0, 1.5))
    q = torch.randn(1, 1, 5, 12)
    a, b = (placed.to_reference(q, q)[0] for placed in (usual, longer))
    assert_close(b[..., :8], 1.5 * a[..., :8])
    assert torch.equal(b[..., 8:], q[..., 8:])


@pytest.mark.parametrize("cell", [-1.0, -0.6, 3.0, 2.6])
def test_a_learned_position_off_the_grid_is_refused(cell):
    table = Learned(width=4, grid=(3, 3))
    with pytest.raises(IndexError, match=rf"got the cell \(0, {round(cell)}\); the grid has"):
        table.embed(torch.zeros(1, 1, 4), torch.tensor([[0.0, cell]]))
    inside = 0.4 if cell < 0 else 2.4
    assert table.embed(torch.zeros(1, 1, 4), torch.tensor([[0.0, -inside if cell < 0 else inside]])).isfinite().all()


@pytest.mark.parametrize("name", ["rope", "rope-axial", "riemannformer", "spherical", "learned", "lf"])
def test_a_grid_may_be_one_cell_wide_and_a_head_hold_one_triple(name):
    encoding, cells = build(name, width=12, heads=3, grid=(1, 5)), grid_positions(1, 5)
    q = torch.randn(1, 3, 5, 4)
    assert torch.isfinite(encoding.place(cells).attention(q, q, q, encoding.embed(torch.randn(1, 5, 12), cells))).all()


def test_scales_and_places_of_many_calls_at_once_are_those_of_one_after_another():
    """Inside vmap nobody may ask how large a number is."""
    encoding, cells = build("riemannformer", width=8, heads=1, grid=(6,)), torch.arange(6.0)
    q, scales = torch.randn(1, 1, 6, 8), torch.randn(3, *encoding.raw_scale.shape)

    def of_scale(scale):
        return torch.func.functional_call(Scores(encoding), {"encoding.raw_scale": scale}, (q, cells))

    def of_places(places):
        return Scores(encoding)(q, places)

    assert_close(torch.vmap(of_scale)(scales), torch.stack([of_scale(scale) for scale in scales]))
    moved = torch.stack([cells, cells + 3, 2 * cells])
    assert_close(torch.vmap(of_places)(moved), torch.stack([of_places(places) for places in moved]))


class Scores(torch.nn.Module):
    """Scores of equal queries and keys, carried by an encoding."""

    def __init__(self, encoding):
        super().__init__()
        self.encoding = encoding

    def forward(self, q, places):
        a, b = self.encoding.place(places).to_reference(q, q)
        return a @ b.mT


def test_a_gaussian_of_wide_positions_keeps_their_digits():  # RF-19
    cells = 1e8 + torch.arange(4, dtype=torch.float64)
    near, far = (build("gauss", width=8, heads=2, grid=(4,)).place(places) for places in (cells - 1e8, cells))
    assert_close(far.log_gate(torch.zeros(1, 4, 8)), near.log_gate(torch.zeros(1, 4, 8)))


def test_a_precision_that_is_not_learned_is_not_saved():
    kept = LocalityFocusing(Encoding(), heads=1, axes=2, sigma=1.0, learn_precision=False)
    assert "raw_precision" not in kept.state_dict()
    assert "raw_precision" in LocalityFocusing(Encoding(), heads=1, axes=2, sigma=1.0).state_dict()


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
    rope, at, (q, k) = (
        RoPE(torch.linspace(0.1, 1, 4)[:, None], rotary_dim=8),
        torch.rand(5, 1),
        torch.randn(2, 1, 2, 5, 16),
    )
    got = HalfSplit(rope, turned=16).place(at).to_reference(q, k)  # feature i stands beside i + 8
    for a, x in zip(got, rope.place(at).to_reference(to_interleaved(q), to_interleaved(k))):
        assert_close(a, to_half_split(x))
    for pairs in ((4, 8), (8, 4)):
        assert turned_features(Composed([RoPE(torch.ones(n, 1)) for n in pairs])) == 16


def test_powers_of_scores_go_around_the_others_wherever_they_stand_in_the_name():
    first, last = (method(f"rope+{after}", (9,)) for after in ("sympow+alibi", "alibi+sympow"))
    assert repr(first) == repr(last)
    assert isinstance(method("rope+lf+alibi", (9,)), Composed)  # the others in the order of the name
    assert isinstance(method("rope+alibi+lf", (9,)), LocalityFocusing)
    assert is_name("+".join(["rope", *WRAPPERS]))


def test_one_focus_a_layer_stands_around_what_the_encoding_has_for_that_layer():
    both = build("liere+lf", width=16, heads=2, grid=(4, 4), layers=3, lf={"per_layer": True})
    at, q = grid_positions(4, 4), torch.randn(1, 2, 16, 8)
    for index in range(3):
        alone = both.encoding.place(at).layer(index).to_reference(q, q)[0]
        assert torch.equal(both.place(at).layer(index).to_reference(q, q)[0], alone)
        focus = both.layers[index].place(at).attenuation()
        assert_close(both.place(at).layer(index).attenuation(), focus)


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


def test_powers_inside_something_that_would_take_softmax_are_refused():  # CS-att
    inside = HalfSplit(PowerScores(Encoding()))
    with pytest.raises(ValueError, match="encoding: got PowerScores inside"):
        LocalityFocusing(inside, heads=2, axes=1, sigma=1.0)
    with pytest.raises(ValueError, match="parts: got PowerScores inside"):
        Composed([ALiBi(2), inside])
    with pytest.raises(ValueError, match="encoding: got PowerScores inside"):
        PerLayerFocusing(inside, [])


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
    gate = wide(4, 4)
    assert_close(placed.attend(q, k, v, gate, True), placed.attend(q, k, v, log_gate=gate, causal=True))


def test_power_weights_ignore_the_scale_of_queries_and_keys_and_neither_overflow_nor_underflow():  # CS-att
    q, k = torch.randn(2, 1, 1, 6, 8).unbind(0)
    placed = PowerScores(Encoding(), 8).place(torch.zeros(6, 1))
    usual = placed.weights(q, k)
    for factor in (1e-12, 1e-3, 1e12):
        assert_close(placed.weights(factor * q, k), usual)
    assert_close(usual.sum(-1), torch.ones(1, 1, 6))


@pytest.mark.parametrize("inside", [ALiBi(2), Encoding()], ids=["gates", "no gates"])
def test_keys_may_stand_elsewhere_and_their_gates_go_into_a_fused_kernel(inside):  # CS-att, CS-FUSED
    queries, keys = torch.rand(3, 1), torch.rand(5, 1)
    q, k = torch.randn(1, 2, 3, 8), torch.randn(1, 2, 5, 8)
    placed = PowerScores(inside, 4).place(queries, keys)
    gate = inside.place(queries, keys).log_gate(None)
    expected = literal(q, k, 4, 0.0 if gate is None else gate)
    assert_close(placed.weights(q, k, placed.log_gate(None)), expected, atol=1e-5, rtol=1e-4)
    head, i, j = torch.meshgrid(torch.arange(2), torch.arange(3), torch.arange(5), indexing="ij")
    scores = placed.as_score_mod()((q @ k.mT)[0], 0, head, i, j)
    assert_close(scores.softmax(-1)[None], expected, atol=1e-5, rtol=1e-4)


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
    q, k, v = torch.randn(3, 1, 1, 4, 8).to(dtype).unbind(0)
    placed = PowerScores(Encoding(), 2).place(torch.zeros(4, 1))
    assert placed.attend(q, k, v).dtype == dtype
    assert placed.weights(q, k).dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


def test_no_keys_and_no_tokens_give_nothing():
    placed = PowerScores(Encoding()).place(torch.arange(0))
    assert placed.attention(*torch.randn(3, 1, 2, 0, 4).unbind()).shape == (1, 2, 0, 4)
    q, none = torch.randn(1, 2, 3, 4), torch.randn(1, 2, 0, 4)
    assert not placed.attend(q, none, none).any()
