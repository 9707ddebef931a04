"""A small vision transformer whose positions come from a method of ``geolib.encodings``."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from geolib import encodings
from geolib._precision import WideBuffers
from geolib.attention import MultiHeadAttention, Placed
from geolib.lab.config import Config
from geolib.lab.data.sets import patch_grid
from geolib.rotations import grid_positions


class Block(nn.Module):
    """A pre-norm transformer block: x + attention(norm(x)), then x + mlp(norm(x)).

    Parameters
    ----------
    width, heads : int
    hidden : int
        Features inside the MLP.
    dropout : float
        On the output of both branches.
    """

    def __init__(self, width: int, heads: int, hidden: int, dropout: float):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = MultiHeadAttention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, placed: Placed) -> Tensor:
        """(batch, tokens, width) to the same shape."""
        x = x + self.dropout(self.attention(self.norm1(x), placed))
        return x + self.dropout(self.mlp(self.norm2(x)))


class ViT(WideBuffers):
    """Patches, an encoding by name, pre-norm blocks, a pooled token, a linear head.

    Parameters
    ----------
    config : Config
        Its width, heads, layers, mlp_ratio, patch, pool, dropout, method and method_options are used.
    shape : tuple of int
        (channels, height, width) of an image.
    classes : int

    Notes
    -----
    Pooling is the mean over all tokens, or with ``pool="cls"`` a class token in front, which has no position. Weights
    start as PyTorch starts them; the class token starts normal with deviation 0.02.
    """

    positions: Tensor

    def __init__(self, config: Config, shape: tuple[int, int, int], classes: int):
        super().__init__()
        self.patch = config.patch or 1
        grid = patch_grid(shape, self.patch)
        self.register_buffer("positions", grid_positions(*grid), persistent=False)
        self.embedding = nn.Linear(shape[0] * self.patch**2, config.width)
        self.cls = nn.Parameter(0.02 * torch.randn(1, 1, config.width)) if config.pool == "cls" else None
        self.encoding = encodings.build(
            config.method,
            width=config.width,
            heads=config.heads,
            grid=grid,
            layers=config.layers,
            **config.method_options,
        )
        hidden = round(config.mlp_ratio * config.width)
        self.blocks = nn.ModuleList(
            Block(config.width, config.heads, hidden, config.dropout) for _ in range(config.layers)
        )
        self.norm, self.head = nn.LayerNorm(config.width), nn.Linear(config.width, classes)
        self.dropout = nn.Dropout(config.dropout)

    def undecayed(self) -> list[nn.Parameter]:
        """Parameters that weight decay spares whatever their shape: the class token and the encoding's."""
        return [*self.encoding.parameters(), *([] if self.cls is None else [self.cls])]

    def forward(self, images: Tensor) -> Tensor:
        """Scores of the classes.

        Parameters
        ----------
        images : Tensor, (batch, channels, height, width)
            Float, standardised.

        Returns
        -------
        Tensor, (batch, classes)
        """
        # The sum that runs through all layers has the parameters' dtype, also where autocast narrows what is added.
        x = self.embedding(patches(images, self.patch)).to(self.embedding.weight.dtype)
        if self.cls is not None:
            x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1)
        x = self.dropout(self.encoding.embed(x, self.positions))
        placed = self.encoding.place(self.positions)
        for index, block in enumerate(self.blocks):
            x = block(x, placed.layer(index))
        x = self.norm(x)
        return self.head(x.mean(1) if self.cls is None else x[:, 0])


def patches(images: Tensor, side: int) -> Tensor:
    """Cut images into square patches, in reading order.

    Parameters
    ----------
    images : Tensor, (batch, channels, height, width)
    side : int
        Pixels along a patch's side; it divides height and width.

    Returns
    -------
    Tensor, (batch, patches, channels * side * side)
    """
    cut = images.unfold(2, side, side).unfold(3, side, side)  # (batch, channels, rows, columns, side, side)
    return cut.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)
