"""The vision transformer: patches of any number of axes, what is pooled, dropout, and what weight decay spares."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from geolib.attention import MultiHeadAttention, Placed
from geolib.encodings import METHODS
from geolib.lab import Config
from geolib.lab.vit import Block, ViT, patches

pools = pytest.mark.parametrize("pool", ["mean", "cls"])


def small(method="none", shape=(1, 8, 8), **settings):
    return ViT(Config("digits", method, **{"width": 16, "heads": 2} | settings), shape, 10)


@pytest.mark.parametrize(
    ("shape", "patch", "grid"),
    [((3, 8, 12), 4, (2, 3)), ((2, 6), 3, (2,)), ((1, 4, 4, 6), (2, 4, 3), (2, 1, 2)), ((2, 4, 4, 4), 2, (2, 2, 2))],
)
def test_patches_are_the_blocks_of_the_image_in_reading_order(shape, patch, grid):
    images = torch.randn(2, *shape)
    cut = patches(images, patch)
    sides = [patch] * len(grid) if isinstance(patch, int) else patch
    for number, cell in enumerate(np.ndindex(*grid)):
        block = tuple(slice(c * s, (c + 1) * s) for c, s in zip(cell, sides))
        assert torch.equal(cut[:, number], images[(slice(None), slice(None), *block)].flatten(1))
    model = small(shape=shape, patch=patch)
    assert model.positions.tolist() == [list(map(float, cell)) for cell in np.ndindex(*grid)]
    assert model(images).shape == (2, 10)


@pools
@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_every_parameter(method, pool):
    model = small(method, pool=pool)
    scores = model(torch.randn(3, 1, 8, 8))
    assert scores.shape == (3, 10)
    scores.square().sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


@pools
def test_the_class_token_is_pooled_and_without_one_the_mean_of_all_tokens(pool):
    model, images = small(pool=pool), torch.randn(3, 1, 8, 8)
    for block in model.blocks:  # so that nothing goes from one token to another
        for last in (block.attention.out, block.mlp[-1]):
            torch.nn.init.zeros_(last.weight)
            torch.nn.init.zeros_(last.bias)
    tokens = model.embedding(patches(images, 1)) if model.cls is None else model.cls.expand(3, -1, -1)
    assert_close(model(images), model.head(model.norm(tokens).mean(1)))


def test_dropout_acts_before_the_first_block_and_on_both_branches_of_each():
    x = torch.randn(2, 5, 8)
    assert torch.equal(Block(MultiHeadAttention(8, 2), 8, 16, dropout=1.0)(x, Placed()), x)
    model, entered = small(width=512, layers=1, patch=4, pool="cls", dropout=0.5), []
    model.blocks[0].register_forward_pre_hook(lambda block, given: entered.append(given[0].detach()))
    for training in (True, False):
        model.train(training)(torch.randn(4, 1, 8, 8))
    dropped, whole = ((x == 0).float().mean() for x in entered)
    assert 0.45 < dropped < 0.55
    assert whole == 0


def test_the_class_token_starts_small_and_it_and_the_encoding_are_spared_by_weight_decay():
    model = small("liere", width=512, pool="cls")
    assert 0.017 < float(model.cls.detach().std()) < 0.023
    spared = {id(p) for p in model.undecayed()}
    names = {name for name, p in model.named_parameters() if id(p) in spared}
    assert names == {"cls", "encoding.generators"}
