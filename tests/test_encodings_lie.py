"""LieRE, RoPE-Mixed and VisionLLaMA's RoPE as encodings: what they compute, share, keep and refuse."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

import geolib.encodings
from geolib.encodings import LieRE, SphericalRoPE, build
from geolib.lie import entry_count, uniform_entries
from geolib.rotations import grid_positions, rescale_positions, rope

modest = settings(deadline=None, max_examples=20)


def queries(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    both = torch.from_numpy(np.random.default_rng(seed).normal(size=(2, *shape))).to(dtype)
    return both[0], both[1]


def literal_turn(x: Tensor, entries: Tensor, positions: Tensor, width: int) -> Tensor:
    """R(p) x token by token, feature block by feature block, with SciPy; x (batch, heads, tokens, d), entries of one
    layer as (heads, blocks, axes, count), positions already in their unit."""
    y = torch.zeros_like(x)
    for head in range(x.shape[1]):
        for t, p in enumerate(positions.double().numpy()):
            for block, of_axes in enumerate(entries[min(head, len(entries) - 1)].detach().double().numpy()):
                A = np.zeros((width, width))
                for c, triangle in zip(p, of_axes):
                    upper = np.zeros((width, width))
                    upper[np.triu_indices(width, 1)] = triangle
                    A += c * (upper - upper.T)
                R = torch.from_numpy(scipy.linalg.expm(A)).to(x.dtype)
                features = slice(block * width, (block + 1) * width)
                y[:, head, t, features] = x[:, head, t, features] @ R.T
    return y


def small(layers: int = 2, width: int = 4, heads: int = 2, axes: int = 2, seed: int = 0, **options) -> LieRE:
    generator = torch.Generator().manual_seed(seed)
    shape = (layers, heads, 8 // width, axes, entry_count(width))
    return LieRE(uniform_entries(*shape, generator=generator), width, layers=layers, **options)


def score(encoding, q: Tensor, k: Tensor, positions: Tensor) -> Tensor:
    q, k = encoding.place(positions).with_prefix_tokens(q.shape[-2] - len(positions)).to_reference(q, k)
    return q @ k.mT


# What they compute


@modest
@given(
    width=st.sampled_from([2, 3, 4, 6, 12]),
    axes=st.integers(1, 3),
    share=st.sampled_from(["none", "layers", "heads", "all"]),
    extra=st.integers(0, 2),
    seed=st.integers(0, 99),
)
def test_liere_turns_queries_and_keys_by_the_exponential_of_their_position(width, axes, share, extra, seed):
    # LR-A1, LR-blk, LR-3D
    torch.manual_seed(seed)
    grid = (2, 3, 2)[:axes]
    lie = build("liere", width=24, heads=2, grid=grid, layers=2, block=width, share=share)
    positions, unit = grid_positions(*grid), torch.tensor([1.0, 2.0, 1.0])[:axes]
    q, k = queries(2, 2, extra + len(positions), 12, seed=seed, dtype=torch.float64)
    for layer in range(2):
        entries = lie.generators[min(layer, len(lie.generators) - 1)]
        placed = lie.place(positions).with_prefix_tokens(extra).layer(layer)
        for x, turned in zip((q, k), placed.to_reference(q, k)):
            assert torch.equal(turned[:, :, :extra], x[:, :, :extra])  # tokens without a place
            expected = literal_turn(x[:, :, extra:], entries, positions / unit, width)
            assert_close(turned[:, :, extra:], expected, atol=2e-5, rtol=0)


@pytest.mark.parametrize("width", [2, 4])
def test_narrow_inputs_keep_their_dtype_and_the_exponential_its_digits(width):  # LR-B5
    lie = small(width=width, layers=1)
    q, k = queries(2, 2, 9, 8)
    exact = lie.place(grid_positions(3, 3)).to_reference(q.bfloat16().float(), k)[0]
    turned = lie.place(grid_positions(3, 3)).to_reference(q.bfloat16(), k.bfloat16())[0]
    assert turned.dtype == torch.bfloat16
    assert_close(turned.float(), exact, atol=0.05, rtol=0)


@pytest.mark.parametrize("default", [torch.float32, torch.float64])
@pytest.mark.parametrize("without", [False, True])
def test_a_state_of_the_same_unit_is_loaded_whatever_the_default_and_another_is_told(default, without):
    made = lambda unit: LieRE(torch.zeros(1, 1, 1, 1, 1, dtype=torch.float32), 2, unit=[unit])  # noqa: E731
    state, other = made(0.1).state_dict(), made(0.2)
    if without:  # as of a state that was saved before units were
        del state["unit"]
    torch.set_default_dtype(default)
    try:
        made(0.1).load_state_dict(state)
        if not without:
            with pytest.raises(RuntimeError, match=r"LieRE:\n\tunit: got \[0\.1.*\] in the state; this one"):
                other.load_state_dict(state)
    finally:
        torch.set_default_dtype(torch.float32)


def test_width_2_is_rope_with_learned_frequencies():  # LR-blk
    lie = small(width=2)
    positions = grid_positions(3, 4)
    q, k = queries(2, 2, 12, 8)
    for layer in range(2):
        frequencies = -lie.generators[layer, ..., 0]
        assert_close(
            lie.place(positions).layer(layer).to_reference(q, k),
            (rope(q, positions, frequencies), rope(k, positions, frequencies)),
        )
        # And of the same code as wider blocks: the closed form beside the matrices.
        R = lie.rotations(positions)[layer]
        assert_close((R @ q.unflatten(-1, (4, 2))[..., None]).flatten(-3), rope(q, positions, frequencies))


@pytest.mark.parametrize(("width", "exact"), [(2, True), (8, False)])
def test_scores_are_relative_at_width_2_and_only_there(width, exact):  # LR-SHIFT
    lie = small(layers=1, width=width, unit=[3.0, 3.0]).double()
    q, k = queries(1, 2, 16, 8, dtype=torch.float64)
    positions = grid_positions(4, 4).double()
    deviation = (score(lie, q, k, positions) - score(lie, q, k, positions + 1)).abs().max()
    assert (deviation < 1e-12) == exact
    assert exact or deviation > 0.1


@modest
@given(axes=st.integers(1, 3), seed=st.integers(0, 99))
def test_rope_mixed_and_visionllama_depend_on_differences_of_positions(axes, seed):  # LR-blk, LR-T1
    torch.manual_seed(seed)
    for name in ("rope-mixed", "visionllama"):
        encoding = build(name, width=32, heads=2, grid=(3,) * axes).double()
        positions = grid_positions(*(3,) * axes).double()
        q, k = queries(1, 2, len(positions), 16, seed=seed, dtype=torch.float64)
        shift = torch.tensor([0.5, -2.0, 3.0], dtype=torch.float64)[:axes]
        assert_close(score(encoding, q, k, positions), score(encoding, q, k, positions + shift), atol=1e-11, rtol=0)
        assert (score(encoding, q, k, positions) - q @ k.mT).abs().max() > 0.1


def test_rope_mixed_starts_along_one_random_direction_a_layer_and_head():  # LR-blk
    mixed = build("rope-mixed", width=128, heads=2, grid=(8, 8), layers=3)
    assert mixed.generators.shape == (3, 2, 32, 2, 1)
    frequencies = -mixed.generators[..., 0]
    magnitudes = torch.tensor([10 ** (-4 * i / 64) for i in range(16)]).repeat(2)
    assert_close(frequencies.norm(dim=-1), magnitudes.expand(3, 2, 32))
    x, y = frequencies[..., 0, :], frequencies[..., 16, :]  # the first pairs of the two halves
    assert_close((x * y).sum(-1), torch.zeros(3, 2), atol=1e-6, rtol=0)
    assert len(torch.unique(x.flatten(0, 1)[:, 0])) == 6


def test_visionllama_in_three_dimensions_leaves_the_pairs_that_do_not_fill_a_round():  # LR-3D
    encoding = build("visionllama", width=64, heads=1, grid=(2, 3, 3))
    q, k = queries(1, 1, 18, 64)
    turned, _ = encoding.place(grid_positions(2, 3, 3)).to_reference(q, k)
    assert torch.equal(turned[..., 60:], q[..., 60:])
    assert (turned[..., -1, 54:60] - q[..., -1, 54:60]).abs().min() > 0


@pytest.mark.parametrize("block", [2, 4])
def test_a_larger_image_extends_the_positions_or_squeezes_them(block):  # LR-F2
    lie = build("liere", width=16, heads=2, grid=(4, 4), block=block)
    trained = lie.rotations(grid_positions(4, 4)).unflatten(2, (4, 4))
    extended = lie.rotations(grid_positions(6, 6)).unflatten(2, (6, 6))
    squeezed = lie.rotations(rescale_positions(grid_positions(6, 6), (4, 4), (6, 6))).unflatten(2, (6, 6))
    assert_close(extended[:, :, :4, :4], trained, atol=1e-5, rtol=0)  # the same steps, more of them
    # Squeezed: cell 3 of 6 stands where cell 2 of 4 stood.
    assert_close(squeezed[:, :, ::3, ::3], trained[:, :, ::2, ::2], atol=1e-5, rtol=0)
    angle = lie.skew().norm(dim=(-1, -2)).max()
    assert (squeezed[:, :, 1, 0] - trained[:, :, 1, 0]).norm() > 1e-2 * angle


def test_turned_queries_and_keys_serve_linear_attention():  # LR-lin, with the features x itself
    lie = small(layers=1, width=8)
    q, k = lie.place(grid_positions(3, 3)).to_reference(*queries(1, 2, 9, 8))
    v = queries(1, 2, 9, 8, seed=1)[0]
    state, outputs = torch.zeros(1, 2, 8, 8), []
    for t in range(9):
        state = state + k[:, :, t, :, None] * v[:, :, t, None, :]
        outputs.append((q[:, :, t, None] @ state)[:, :, 0])
    assert_close(torch.stack(outputs, 2), (q @ k.mT).tril() @ v)


# What is learned and shared


@pytest.mark.parametrize(("block", "count"), [(64, 580_608), (8, 64_512), (2, 9_216)])
@pytest.mark.parametrize(("share", "divisor"), [("none", 1), ("layers", 12), ("heads", 12), ("all", 144)])
def test_parameters_of_vit_b_by_block_and_sharing(block, count, share, divisor):  # LR-par, LR-T2
    lie = build("liere", width=768, heads=12, grid=(8, 8), layers=12, block=block, share=share)
    assert sum(p.numel() for p in lie.parameters()) == count // divisor


def test_the_registry_starts_generators_uniform_and_the_image_on_the_unit_square():  # LR-B5
    lie = build("liere", width=384, heads=6, grid=(8, 5), layers=2, scale=1.0)
    assert 0 <= lie.generators.min() < 0.01
    assert 0.99 < lie.generators.max() < 1
    assert lie.generators.shape == (2, 6, 1, 2, 2016)
    assert lie.unit.tolist() == [7.0, 4.0]


@pytest.mark.parametrize("width", [2, 4])
def test_every_layer_turns_by_its_own_generators_and_learns_them(width):  # LR-CODE
    lie = small(layers=3, width=width)
    q, k = queries(2, 2, 9, 8)
    turned = [lie.place(grid_positions(3, 3)).layer(i).to_reference(q, k) for i in range(3)]
    assert all((turned[i][0] - turned[j][0]).abs().max() > 0.1 for i, j in [(0, 1), (0, 2), (1, 2)])
    sum((a * b.flip(2)).sum() for a, b in turned).backward()
    assert all(g.abs().max() > 1e-3 for g in lie.generators.grad)
    # The released code: every layer asks for layer 0's rotations, and the others' generators never learn.
    lie.generators.grad = None
    sum((a * b.flip(2)).sum() for a, b in [lie.place(grid_positions(3, 3)).layer(0).to_reference(q, k)] * 3).backward()
    assert lie.generators.grad[0].abs().max() > 1e-3
    assert lie.generators.grad[1:].abs().max() == 0


def test_a_model_with_layers_of_its_own_must_be_asked_for_one():  # LR-CODE
    with pytest.raises(RuntimeError, match="layer"):
        small(layers=2).place(grid_positions(3, 3)).to_reference(*queries(1, 2, 9, 8))


# Placed once a pass


@pytest.fixture
def exponentials(monkeypatch):
    """Counts the batched exponentials."""
    calls = []
    real = geolib.encodings.liere.placed_rotations

    def counted(*args):
        calls.append(args)
        return real(*args)

    monkeypatch.setattr(geolib.encodings.liere, "placed_rotations", counted)
    return calls


def forward(lie: LieRE, q: Tensor, k: Tensor, positions: Tensor) -> Tensor:
    """A pass through all layers, each layer's output feeding the next."""
    placed = lie.place(positions)
    for i in range(lie.layers):
        a, b = placed.layer(i).to_reference(q, k)
        q, k = a + 0.1 * b.flip(-2), b
    return (q * k.flip(-2)).sum()


def afresh(lie: LieRE, q: Tensor, k: Tensor, positions: Tensor) -> Tensor:
    """The same with rotations computed for this pass and this layer alone."""
    for i in range(lie.layers):
        R = lie.rotations(positions)[i]
        a, b = ((R @ x.unflatten(-1, (-1, lie.width))[..., None]).flatten(-3) for x in (q, k))
        q, k = a + 0.1 * b.flip(-2), b
    return (q * k.flip(-2)).sum()


def test_a_pass_takes_one_exponential_for_all_layers(exponentials):  # LR-A1
    lie, positions = small(layers=4), grid_positions(3, 3)
    q, k = queries(2, 2, 9, 8)
    for passes in range(1, 4):
        forward(lie, q, k, positions).backward()
        assert len(exponentials) == passes
    ours, lie.generators.grad = lie.generators.grad, None
    afresh(lie, q, k, positions).backward()
    assert_close(ours, 3 * lie.generators.grad, atol=1e-4, rtol=1e-4)


# Spherical RoPE


@pytest.mark.parametrize("grid", [(5,), (3, 4), (2, 3, 2)], ids=["1d", "2d", "3d"])
def test_spherical_rope_is_relative_along_one_axis_and_on_no_grid(grid):
    sphere = build("spherical", width=16, heads=2, grid=grid).double()
    positions = grid_positions(*grid).double()
    q, k = queries(1, 2, len(positions), 8, dtype=torch.float64)
    change = (score(sphere, q, k, positions + 1.5) - score(sphere, q, k, positions)).abs().max()
    assert change < 1e-9 if len(grid) == 1 else change > 0.1
    turned, _ = sphere.place(positions).to_reference(q, k)
    assert torch.equal(turned[..., 6:], q[..., 6:])  # two triples of eight features
    assert_close(turned[..., :3].norm(dim=-1), q[..., :3].norm(dim=-1))


def test_spherical_rope_turns_about_the_first_axis_again_for_the_fourth():
    sphere, x = SphericalRoPE(torch.tensor([0.7]), axes=4), queries(1, 1, 1, 3)[0]
    first, fourth = (sphere.place(p[None]).to_reference(x, x)[0] for p in 2.0 * torch.eye(4)[[0, 3]])
    assert_close(fourth, first)
    assert not torch.allclose(fourth, x)


def test_two_encodings_made_of_one_tensor_learn_apart():
    entries = uniform_entries(1, 1, 1, 1, 1)
    first, second = LieRE(entries, 2), LieRE(entries, 2)
    with torch.no_grad():
        first.generators.add_(1)
    assert_close(second.generators.detach(), entries)
    assert_close(first.generators.detach(), entries + 1)
