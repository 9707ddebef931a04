"""LieRE, RoPE-Mixed, VisionLLaMA's RoPE and Spherical RoPE: where they start, what they share, keep and refuse."""

import pytest
import torch
from torch.testing import assert_close

from geolib.encodings import LieRE, SphericalRoPE, build
from geolib.lie import entry_count, uniform_entries
from geolib.rotations import grid_positions, rescale_positions, rope

CELLS = grid_positions(3, 3)


def queries(*shape):
    """Queries and keys."""
    return torch.randn(2, *shape).unbind()


def small(layers=2, width=4, **options):
    """LieRE for two heads of eight features on two axes."""
    return LieRE(uniform_entries(layers, 2, 8 // width, 2, entry_count(width)), width, layers=layers, **options)


# What they compute


@pytest.mark.parametrize("width", [2, 4])
def test_narrow_inputs_keep_their_dtype_and_the_exponential_its_digits(width):  # LR-B5
    placed, (q, k) = small(width=width, layers=1).place(CELLS), queries(2, 2, 9, 8)
    turned = placed.to_reference(q.bfloat16(), k.bfloat16())[0]
    assert turned.dtype == torch.bfloat16
    assert_close(turned.float(), placed.to_reference(q.bfloat16().float(), k)[0], atol=0.05, rtol=0)


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
    q, k = small(layers=1, width=8).place(CELLS).to_reference(*queries(1, 2, 9, 8))
    v, state, outputs = torch.randn(1, 2, 9, 8), torch.zeros(1, 2, 8, 8), []
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
    lie, (q, k) = small(layers=3, width=width), queries(2, 2, 9, 8)
    turned = [lie.place(CELLS).layer(i).to_reference(q, k) for i in range(3)]
    assert all((turned[i][0] - turned[j][0]).abs().max() > 0.1 for i, j in [(0, 1), (0, 2), (1, 2)])
    sum((a * b.flip(2)).sum() for a, b in turned).backward()
    assert all(g.abs().max() > 1e-3 for g in lie.generators.grad)
    # The released code: every layer asks for layer 0's rotations, and the others' generators never learn.
    lie.generators.grad = None
    sum((a * b.flip(2)).sum() for a, b in [lie.place(CELLS).layer(0).to_reference(q, k)] * 3).backward()
    assert lie.generators.grad[0].abs().max() > 1e-3
    assert lie.generators.grad[1:].abs().max() == 0


def test_a_model_with_layers_of_its_own_must_be_asked_for_one():  # LR-CODE
    with pytest.raises(RuntimeError, match="layer"):
        small(layers=2).place(CELLS).to_reference(*queries(1, 2, 9, 8))


# Spherical RoPE


def test_spherical_rope_turns_about_the_first_axis_again_for_the_fourth():
    sphere, x = SphericalRoPE(torch.tensor([0.7]), axes=4), torch.randn(1, 1, 1, 3)
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
