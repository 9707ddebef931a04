"""A small vision transformer whose positions come from a method of ``geolib.encodings``."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from geolib import encodings
from geolib._precision import WideBuffers, numbered
from geolib.attention import MultiHeadAttention, Placed
from geolib.lab.config import Config
from geolib.lab.data.sets import Patch, patch_grid, patch_sides
from geolib.rotations import grid_positions


class Block(nn.Module):
    """A pre-norm transformer block: x + attention(norm(x)), then x + mlp(norm(x)), both with dropout."""

    def __init__(self, attention: nn.Module, width: int, hidden: int, dropout: float):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = attention
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, *placed: Placed) -> Tensor:
        """Apply both branches, (batch, tokens, width) to the same shape; ``placed`` is for the attention."""
        x = x + self.dropout(self.attention(self.norm1(x), *placed))
        return x + self.dropout(self.mlp(self.norm2(x)))


class ViT(WideBuffers):
    """Patches, an encoding by name, pre-norm blocks, a pooled token, a linear head.

    ``shape`` is (channels, *sizes) of an image, a volume or a clip, and positions have an axis for each size. What is
    pooled is the mean of all tokens, or with ``pool="cls"`` a class token in front, which has no position.
    """

    positions: Tensor

    @numbered
    def __init__(self, config: Config, shape: Sequence[int], classes: int):
        super().__init__()
        width, heads = config.width, config.heads
        self.patch: Patch = config.patch or 1
        grid = patch_grid(shape, self.patch)
        self.register_buffer("positions", grid_positions(*grid), persistent=False)
        self.embedding = nn.Linear(shape[0] * math.prod(patch_sides(self.patch, len(grid))), width)
        self.cls = nn.Parameter(0.02 * torch.randn(1, 1, width)) if config.pool == "cls" else None
        self.encoding = encodings.build(
            config.method, width=width, heads=heads, grid=grid, layers=config.layers, **config.method_options
        )
        hidden = round(config.mlp_ratio * width)
        self.blocks = nn.ModuleList(
            Block(MultiHeadAttention(width, heads), width, hidden, config.dropout) for _ in range(config.layers)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)
        self.dropout = nn.Dropout(config.dropout)

    def undecayed(self) -> list[nn.Parameter]:
        """List the parameters that weight decay spares whatever their shape: the class token and the encoding's."""
        return [*self.encoding.parameters(), *([] if self.cls is None else [self.cls])]

    def forward(self, images: Tensor) -> Tensor:
        """Compute the scores of the classes, (batch, classes), for standardised images (batch, channels, *sizes)."""
        # The sum that runs through all layers has the parameters' dtype, also where autocast narrows what is added.
        x = self.embedding(patches(images, self.patch)).to(self.norm.weight.dtype)
        x, placed = self.encoding.embed(x, self.positions), self.encoding.place(self.positions)
        if self.cls is not None:
            x, placed = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1), placed.with_prefix_tokens(1)
        x = self.dropout(x)
        for index, block in enumerate(self.blocks):
            x = block(x, placed.layer(index))
        x = self.norm(x)
        return self.head(x.mean(1) if self.cls is None else x[:, 0])


def patches(images: Tensor, patch: Patch) -> Tensor:
    """Cut images (batch, channels, *sizes) into patches, (batch, patches, channels * pixels), the last axis fastest.

    >>> patches(torch.arange(8.0).view(1, 1, 2, 2, 2), (1, 2, 2)).tolist()
    [[[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]]]
    """
    axes = images.dim() - 2
    for axis, pixels in enumerate(patch_sides(patch, axes), start=2):
        images = images.unfold(axis, pixels, pixels)
    cells, inside = range(2, 2 + axes), range(2 + axes, 2 + 2 * axes)
    return images.permute(0, *cells, 1, *inside).flatten(1 + axes).flatten(1, axes)
