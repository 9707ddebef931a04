"""Encodings inside other libraries' models: timm's vision transformers, Hugging Face's language models.

``use_encoding(model, encoding)`` changes one model, keeps its weights and their names, and nothing else of the process.
Neither library is needed to import this module.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from geolib._checks import require
from geolib._precision import WideBuffers
from geolib.attention import Encoding, Placed, repeat_heads
from geolib.rotations import grid_positions

__all__ = ["HeldAttention", "HeldPositions", "HeldTokens", "use_encoding"]

_KEPT = {"qkv", "q_norm", "k_norm", "attn_drop", "norm", "gate", "proj", "proj_drop"}
_NAME = "geolib"


def use_encoding(model: Any, encoding: Encoding, positions: Tensor | None = None) -> Any:
    """The model itself, its attention with the encoding in it.

    Parameters
    ----------
    model : Module
        One of timm with ``blocks`` whose attention is timm's ``Attention``: query and key norms, gates, dropouts and
        masks stay. Or one of Hugging Face's library with ``rotary_emb`` and the attention interface (Llama and its
        kin): the encoding stands in place of its rotation, and is placed at its ``position_ids``.
    encoding : Encoding
        For head_dim and heads of the model. Pairs of Hugging Face's checkpoints are half-split: ``HalfSplit``.
    positions : Tensor, (tokens, axes), or None
        For timm: of the patches; rows and columns of the model's grid when None. Whole numbers keep their digits.

    Raises
    ------
    ValueError
        For a model of another kind, an attention of another kind inside, and an encoding that adds to embeddings: these
        models have their own. In a pass of a language model that caps its scores, or has sinks.

    Notes
    -----
    In a language model keys stay in the cache as they are and are carried in every step, so that gates, attenuations
    and heads of their own all work; the cache must grow with the text (the default does). Gates that read the layer's
    input do not get it there.

    >>> use_encoding(nn.Linear(2, 2), Encoding())
    Traceback (most recent call last):
    ValueError: model: got Linear; a timm model with blocks, or one of transformers with rotary_emb
    """
    inner = getattr(model, "model", model)
    if hasattr(inner, "rotary_emb") and hasattr(model, "set_attn_implementation"):
        return _in_language_model(model, inner, encoding)
    known = hasattr(model, "blocks") and hasattr(model, "patch_embed")
    require(known, "model", type(model).__name__, "a timm model with blocks, or one of transformers with rotary_emb")
    return _in_vision_model(model, encoding, positions)


# timm ----------------------------------------------------------------------------------------------------------------


class HeldPositions(WideBuffers):
    """An encoding at the patches of a picture, placed once a pass, behind the tokens that have no place."""

    positions: Tensor

    def __init__(self, encoding: Encoding, positions: Tensor, unplaced: int):
        super().__init__()
        self.encoding, self.unplaced = encoding, unplaced
        self.placed = Placed()
        self.register_buffer("positions", positions, persistent=False)

    def __getstate__(self) -> dict[str, Any]:
        """Copies and files have no pass going on."""
        return self.__dict__ | {"placed": Placed()}

    def layer(self, index: int) -> Placed:
        """What layer ``index`` uses; the first layer of a pass has it placed anew."""
        if index == 0:
            self.placed = self.encoding.place(self.positions).with_prefix_tokens(self.unplaced)
        return self.placed.layer(index)


class HeldAttention(nn.Module):
    """timm's attention with its own parts, and an encoding between the projections."""

    def __init__(self, theirs: Any, at: HeldPositions, index: int):
        super().__init__()
        parts = dict(theirs.named_children())
        odd = sorted(parts.keys() - _KEPT)
        kind = type(theirs).__name__
        require(kind == "Attention" and not odd, "model", f"attention {kind} with {odd}", "timm's Attention alone")
        for name, part in parts.items():
            self.add_module(name, part)
        self.heads, self.index = theirs.num_heads, index
        self.at = [at]  # in a list: a part of the model, not of each layer
        self.train(theirs.training)

    def forward(self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        """As timm's: (batch, tokens, width) to the same shape; the mask, of bool, is True where a query sees a key."""
        q, k, v = self._by("qkv", x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        q, k, dropout = self._by("q_norm", q), self._by("k_norm", k), self._modules.get("attn_drop")
        rate = float(dropout.p) if isinstance(dropout, nn.Dropout) and self.training else 0.0
        y = self.at[0].layer(self.index).attention(q, k, v, x, is_causal, mask=attn_mask, dropout=rate)
        y = self._by("norm", y.transpose(1, 2).flatten(2))
        if self._modules.get("gate") is not None:
            y = y * self._by("gate", x).sigmoid()
        return self._by("proj_drop", self._by("proj", y))

    def _by(self, part: str, x: Tensor) -> Tensor:
        """What a part makes of x; x itself where there is no such part."""
        module = self._modules.get(part)
        return x if module is None else module(x)


def _acts_in_attention(encoding: Encoding, positions: Tensor, width: int) -> None:
    """ValueError for an encoding that adds to embeddings."""
    probe = torch.zeros(1, len(positions), width)
    allowed = "one that acts in attention: it would not be asked for what it adds to embeddings"
    require(encoding.embed(probe, positions) is probe, "encoding", type(encoding).__name__, allowed)


def _in_vision_model(model: Any, encoding: Encoding, positions: Tensor | None) -> Any:
    """The encoding in every block of a timm model."""
    if positions is None:
        positions = grid_positions(*model.patch_embed.grid_size).long()
    _acts_in_attention(encoding, positions.cpu(), model.embed_dim)
    at = HeldPositions(encoding, positions, model.num_prefix_tokens)
    held = [HeldAttention(block.attn, at, index) for index, block in enumerate(model.blocks)]
    for block, attention in zip(model.blocks, held):
        block.attn = attention
    model.encoding = at.to(next(model.parameters()).device)
    return model


# Hugging Face transformers -------------------------------------------------------------------------------------------


class HeldTokens(nn.Module):
    """An encoding where a language model has its rotation: cosines of 1 and sines of 0, and the positions kept."""

    position_ids: Tensor

    def __init__(self, encoding: Encoding, features: int):
        super().__init__()
        self.encoding, self.features = encoding, features
        self.placed: dict[int, Placed] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Copies and files have no pass going on."""
        return self.__dict__ | {"placed": {}}

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """What leaves queries and keys as they are, (batch, tokens, features) twice."""
        self.position_ids, self.placed = position_ids, {}
        one = torch.ones(*position_ids.shape, self.features, dtype=x.dtype, device=x.device)
        return one, torch.zeros_like(one)

    def among(self, keys: int) -> Placed:
        """The encoding where the last tokens of so many ask: keys end where queries end, and stand side by side."""
        if keys not in self.placed:
            asking = self.position_ids
            before = torch.arange(1 - keys, 1, device=asking.device)
            others = None if keys == asking.shape[1] else (asking[:, -1:] + before)[..., None]
            self.placed[keys] = self.encoding.place(asking[..., None], keys=others)
        return self.placed[keys]


def _attend(
    module: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """What the attention interface asks for: the result as (batch, tokens, heads, features), and no weights."""
    for argument, came in (("softcap", softcap), ("s_aux", s_aux)):
        if came is not None:
            require(False, argument, getattr(came, "shape", came), "a model without it: scores would lack it here")
    placed = module.geolib_at[0].among(k.shape[2]).layer(module.layer_idx)
    k, v = (repeat_heads(x, q.shape[1]) for x in (k, v))
    causal = mask is None and getattr(module, "is_causal", True)
    y = placed.attention(q, k, v, None, causal, mask=mask, dropout=dropout, scale=scaling)
    return y.transpose(1, 2).contiguous(), None


def _in_language_model(model: Any, inner: Any, encoding: Encoding) -> Any:
    """The encoding where a model of transformers has its rotation, by the attention interface."""
    _acts_in_attention(encoding, torch.zeros(1, 1, dtype=torch.long), inner.config.hidden_size)
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    AttentionInterface.register(_NAME, _attend)
    AttentionMaskInterface.register(_NAME, sdpa_mask)
    own = inner.rotary_emb
    features = own.features if isinstance(own, HeldTokens) else 2 * len(own.inv_freq)
    held = HeldTokens(encoding, features).to(next(model.parameters()).device)
    inner.rotary_emb = held
    for layer in inner.layers:
        layer.self_attn.geolib_at = [held]  # in a list: a part of the model, not of each layer
    model.set_attn_implementation(_NAME)
    return model
