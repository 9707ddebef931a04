"""A small GPT on bytes, its attention by name, with one layer norm after the embedding as the paper's."""

from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor, nn

from geolib.lab.config import Config
from geolib.lab.data.documents import VOCABULARY
from geolib.lab.text_attention import CausalAttention, DecodeState
from geolib.lab.vit import Block


class GPT(nn.Module):
    """An embedding, a layer norm, blocks without dropout, a norm and a linear head. Source: CS-F1.

    Options of a method are those of ``CausalAttention``; ``longest`` is the context when not given.
    """

    def __init__(self, config: Config):
        super().__init__()
        width, hidden = config.width, round(config.mlp_ratio * config.width)
        options = {"heads": config.heads, "longest": float(config.context or 1), **config.method_options}
        self.embedding, self.entry = nn.Embedding(VOCABULARY, width), nn.LayerNorm(width)
        self.blocks = nn.ModuleList(
            Block(CausalAttention(config.method, width, **options), width, hidden, 0.0) for _ in range(config.layers)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)

    def embed(self, tokens: Tensor) -> Tensor:
        """Embed and normalise, in the parameters' dtype also under autocast, as all layers add to it."""
        return self.entry(self.embedding(tokens)).to(self.embedding.weight.dtype)

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute the scores of the token that follows each, (batch, tokens) to (batch, tokens, vocabulary)."""
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    def resume(self, tokens: Tensor, states: Sequence[DecodeState] | None = None) -> tuple[Tensor, list[DecodeState]]:
        """Compute the scores for tokens that follow those of the layers' states, and the states after them."""
        x, after, blocks = self.embed(tokens), list[DecodeState](), list[Any](self.blocks)
        for block, state in zip(blocks, states or [DecodeState()] * len(blocks)):
            y, state = block.attention.resume(block.norm1(x), state)
            x = x + y
            x = x + block.mlp(block.norm2(x))
            after.append(state)
        return self.head(self.norm(x)), after

    def undecayed(self) -> Iterable[nn.Parameter]:
        """List the parameters that weight decay spares whatever their shape: none."""
        return ()

    @property
    def attentions(self) -> list[CausalAttention]:
        """The layers' attention, first to last."""
        return [block.attention for block in self.blocks]  # type: ignore[misc]
