"""A small GPT on bytes, its attention by name, with one layer norm after the embedding as the paper's."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn

from geolib.lab.causal import CausalAttention
from geolib.lab.config import Config
from geolib.lab.data.documents import VOCABULARY
from geolib.lab.models import Block


class GPT(nn.Module):
    """An embedding, a layer norm, blocks, a norm and a linear head.

    Options of a method are those of ``CausalAttention``; ``heads`` among them is for that method alone, and ``longest``
    is the context when it is not given.

    Source: CS-F1.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.embedding, self.entry = nn.Embedding(VOCABULARY, config.width), nn.LayerNorm(config.width)
        options = {"heads": config.heads, "longest": float(config.context or 1), **config.method_options}
        hidden = round(config.mlp_ratio * config.width)
        self.blocks = nn.ModuleList(
            Block(CausalAttention(config.method, config.width, **options), config.width, hidden, dropout=0.0)
            for _ in range(config.layers)
        )
        self.norm, self.head = nn.LayerNorm(config.width), nn.Linear(config.width, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of the token that follows each, (batch, tokens) to (batch, tokens, vocabulary)."""
        # The sum that runs through all layers has the parameters' dtype, also where autocast narrows what is added.
        x = self.entry(self.embedding(tokens)).to(self.embedding.weight.dtype)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    def undecayed(self) -> Iterable[nn.Parameter]:
        """Parameters that weight decay spares whatever their shape: none."""
        return ()

    @property
    def attentions(self) -> list[CausalAttention]:
        """The layers' attention."""
        return [block.attention for block in self.blocks]  # type: ignore[misc]
