"""Encodings inside timm's vision transformers."""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from geolib._checks import require
from geolib._precision import WideBuffers
from geolib.adapters._passes import OnePass, check_acts
from geolib.attention import Encoding, Placed
from geolib.rotations import grid_positions

Positions = Tensor | Callable[[int, int], Tensor] | None
"""Of patches: (tokens, axes), or what makes them of the numbers of rows and columns, or these themselves (None)."""


class HeldPositions(WideBuffers):
    """An encoding at the patches of a picture, placed once a pass, behind the tokens that have no place."""

    positions: Tensor | None

    def __init__(self, encoding: Encoding, positions: Positions, patches: Any, unplaced: int):
        super().__init__()
        self.grid: tuple[int, int] = tuple(patches.grid_size)
        self.unplaced = unplaced
        self.patches = [patches]  # in a list: a part of the model alone, which may be told another size
        self.now: OnePass | None = None
        self.before: dict[tuple[int, int], OnePass] = {}  # passes whose gradients may be asked for, by their grids
        self.hold(encoding, positions)

    def hold(self, encoding: Encoding, positions: Positions) -> None:
        """Hold this encoding, in place of another."""
        self.encoding, self.make = encoding, positions if callable(positions) else None
        self.register_buffer("positions", positions if isinstance(positions, Tensor) else None, persistent=False)

    def __getstate__(self) -> dict[str, Any]:
        """Copies and files have no pass going on."""
        return self.__dict__ | {"now": None, "before": {}}

    def at(self, rows: int, columns: int, device: torch.device) -> Tensor:
        """The positions of a grid of patches; ValueError where those that were given are of another grid."""
        made = self.positions
        if made is None:
            made = (self.make(rows, columns) if self.make else grid_positions(rows, columns).long()).to(device)
        elif (rows, columns) != self.grid:
            fixed = f"{self.grid[0]} x {self.grid[1]}: for others, positions is a function of rows and columns, or None"
            require(False, "positions", f"a picture of {rows} x {columns} patches", fixed)
        holds = made.dim() > 1 and made.shape[-2] == rows * columns
        require(holds, "positions", made.shape, f"(tokens, axes), a row for each of {rows} x {columns} patches")
        return made

    def start(self, patches: Any, given: tuple[Tensor], made: Tensor) -> None:
        """Place the encoding where the picture has its patches: after they are embedded."""
        rows, columns = patches.dynamic_feat_size(given[0].shape[-2:])
        if isinstance(rows, Tensor):  # in a trace
            rows, columns = int(rows), int(columns)
        self.now = self._pass(rows, columns, made.device)
        if torch.is_grad_enabled():
            self.before = {key: old for key, old in self.before.items() if not old.again} | {(rows, columns): self.now}

    def stop(self, norm: nn.Module, given: Any) -> None:
        """Forget what is of this pass alone: before the norm behind the blocks."""
        self.now = None

    def layer(self, index: int, x: Tensor) -> Placed:
        """What layer ``index`` uses for x, (batch, tokens, width), also where a backward pass runs it again."""
        here = self.now
        if here is None and not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1:
            grids = [grid for grid in self.before if grid[0] * grid[1] + self.unplaced == x.shape[1]]
            allowed = "one at a time: with checkpointing, go backward between pictures with as many patches"
            require(len(grids) < 2, "x", f"passes of {grids} patches", allowed)
            here = self.before[grids[0]] if grids else None
        if here is None:
            rows, columns = self.patches[0].grid_size
            return self._pass(rows, columns, x.device).placed.layer(index)
        here.again |= self.now is None
        return here.here().layer(index)

    def _pass(self, rows: int, columns: int, device: torch.device) -> OnePass:
        return OnePass(self.encoding, self.at(rows, columns, device), self.unplaced)


class HeldAttention(nn.Module):
    """timm's attention with its own parts, and an encoding between the projections."""

    def __init__(self, theirs: Any, at: HeldPositions, index: int):
        super().__init__()
        for name, part in theirs.named_children():
            self.add_module(name, part)
        self.heads, self.scale, self.index = theirs.num_heads, theirs.scale, index
        self.at = [at]  # in a list: a part of the model, not of each layer
        self.train(theirs.training)

    def forward(self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        """As timm's: (batch, tokens, width) to the same shape; the mask, of bool, is True where a query sees a key."""
        q, k, v = self._by("qkv", x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        q, k, dropout = self._by("q_norm", q), self._by("k_norm", k), self._modules.get("attn_drop")
        rate = float(dropout.p) if isinstance(dropout, nn.Dropout) and self.training else 0.0
        placed = self.at[0].layer(self.index, x)
        y = placed.attention(q, k, v, x, is_causal, mask=attn_mask, dropout=rate, scale=self.scale)
        y = self._by("norm", y.transpose(1, 2).flatten(2))
        if self._modules.get("gate") is not None:
            y = y * self._by("gate", x).sigmoid()
        return self._by("proj_drop", self._by("proj", y))

    def _by(self, part: str, x: Tensor) -> Tensor:
        """What a part makes of x; x itself where there is no such part."""
        module = self._modules.get(part)
        return x if module is None else module(x)


def in_vision_model(model: Any, encoding: Encoding, positions: Positions) -> None:
    """Put the encoding in every block of a timm model; ValueError where that would lose something of the model's."""
    theirs: Any = sys.modules.get("timm.models.vision_transformer")
    allowed = "timm's VisionTransformer, or a language model of transformers with rotary_emb for all layers;"
    allowed += " others have positions, or an attention, of their own"
    known = theirs is not None and isinstance(model, theirs.VisionTransformer)
    require(known, "model", type(model).__name__, allowed)
    attentions = [getattr(block, "attn", block) for block in model.blocks]
    for attention in attentions:
        kind = type(attention)
        require(kind in (theirs.Attention, HeldAttention), "model", f"attention {kind.__name__}", "timm's Attention")
    kept = isinstance(model.patch_drop, nn.Identity)
    require(kept, "model", type(model.patch_drop).__name__, "a model that keeps all patches, patch_drop_rate=0")
    held = getattr(model, "encoding", None)
    device = next(model.parameters()).device
    at = HeldPositions(encoding, positions, model.patch_embed, model.num_prefix_tokens).to(device)
    counts = [a.heads if isinstance(a, HeldAttention) else a.num_heads for a in attentions]
    sizes = [(index, own, a.qkv.out_features // 3 // own) for index, (own, a) in enumerate(zip(counts, attentions))]
    places = at.at(at.grid[0], at.grid[1], device)
    check_acts(encoding, places, torch.zeros(1, len(places), model.embed_dim, device=device), sizes)
    if isinstance(held, HeldPositions):
        held.hold(encoding, positions if at.make else at.positions)
        held.grid, held.patches, held.unplaced = at.grid, at.patches, at.unplaced
        for index, attention in enumerate(attentions):
            attention.index = index
        return
    for index, block in enumerate(model.blocks):
        block.attn = HeldAttention(block.attn, at, index)
    model.encoding = at
    model.patch_embed.register_forward_hook(at.start)
    model.norm.register_forward_pre_hook(at.stop)
