"""A small GPT on bytes, its attention by name, with one layer norm after the embedding as the paper's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor, nn

from geolib.lab.config import Config
from geolib.lab.data.documents import VOCABULARY
from geolib.lab.text_attention import CausalAttention, DecodeState
from geolib.lab.vit import Block


class _Reader(Block):
    """A block that goes on from what its attention, a ``CausalAttention``, carries."""

    def resume(self, x: Tensor, carry: DecodeState | None) -> tuple[Tensor, DecodeState]:
        """As ``forward``, from what is carried on; without dropout, which no reader has."""
        y, carry = self.attention.resume(self.norm1(x), carry)  # type: ignore[operator]
        x = x + y
        return x + self.mlp(self.norm2(x)), carry


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
            _Reader(CausalAttention(config.method, config.width, **options), config.width, hidden, dropout=0.0)
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

    def resume(
        self, tokens: Tensor, carries: Sequence[DecodeState | None] | None = None
    ) -> tuple[Tensor, list[DecodeState]]:
        """As ``forward``, from what each layer carries (None: nothing), and what each carries on.

        >>> model, tokens = GPT(Config("documents", "softmax", width=16, heads=2, context=8)), torch.arange(6)[None]
        >>> whole, carries = model(tokens), None
        >>> for i in range(6):
        ...     last, carries = model.resume(tokens[:, i : i + 1], carries)
        >>> torch.allclose(last[:, 0], whole[:, -1], atol=1e-4)
        True
        """
        x = self.entry(self.embedding(tokens)).to(self.embedding.weight.dtype)
        handed: list[DecodeState] = []
        for block, carry in zip(self.blocks, carries or [None] * len(self.blocks)):
            x, after = block.resume(x, carry)  # type: ignore[operator]
            handed.append(after)
        return self.head(self.norm(x)), handed

    def undecayed(self) -> Iterable[nn.Parameter]:
        """Parameters that weight decay spares whatever their shape: none."""
        return ()

    @property
    def attentions(self) -> list[CausalAttention]:
        """The layers' attention."""
        return [block.attention for block in self.blocks]  # type: ignore[misc]
