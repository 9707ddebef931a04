"""A small GPT on bytes, its attention by name, with one layer norm after the embedding as the paper's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor, nn

from geolib.lab.config import Config
from geolib.lab.data.documents import VOCABULARY
from geolib.lab.text_attention import CausalAttention, DecodeState
from geolib.lab.vit import Block


class DecoderBlock(Block):
    """A block whose attention, a ``CausalAttention``, can go on from a state."""

    def resume(self, x: Tensor, state: DecodeState) -> tuple[Tensor, DecodeState]:
        """Apply both branches from a state to the one after it; without dropout, which no language model here has."""
        y, state = self.attention.resume(self.norm1(x), state)  # type: ignore[operator]
        x = x + y
        return x + self.mlp(self.norm2(x)), state


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
            DecoderBlock(CausalAttention(config.method, config.width, **options), config.width, hidden, dropout=0.0)
            for _ in range(config.layers)
        )
        self.norm, self.head = nn.LayerNorm(config.width), nn.Linear(config.width, VOCABULARY, bias=False)

    def embed(self, tokens: Tensor) -> Tensor:
        """Embed and normalise, in the parameters' dtype also under autocast: all layers add to this."""
        return self.entry(self.embedding(tokens)).to(self.embedding.weight.dtype)

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute the scores of the token that follows each, (batch, tokens) to (batch, tokens, vocabulary)."""
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    def resume(self, tokens: Tensor, states: Sequence[DecodeState] | None = None) -> tuple[Tensor, list[DecodeState]]:
        """Compute what ``forward`` does for tokens that follow those of the layers' states, and the states after them.

        >>> model, tokens = GPT(Config("documents", "softmax", width=16, heads=2, context=8)), torch.arange(6)[None]
        >>> whole, states = model(tokens), None
        >>> for i in range(6):
        ...     last, states = model.resume(tokens[:, i : i + 1], states)
        >>> torch.allclose(last[:, 0], whole[:, -1], atol=1e-4)
        True
        """
        x, after = self.embed(tokens), []
        blocks: Any = self.blocks
        for block, state in zip(blocks, states or [DecodeState()] * len(blocks)):
            x, state = block.resume(x, state)
            after.append(state)
        return self.head(self.norm(x)), after

    def undecayed(self) -> Iterable[nn.Parameter]:
        """List the parameters that weight decay spares whatever their shape: none."""
        return ()

    @property
    def attentions(self) -> list[CausalAttention]:
        """List the layers' attention."""
        return [block.attention for block in self.blocks]  # type: ignore[misc]
