"""One pass of another library's model, and what an encoding must do to take part in it."""

from typing import Any

import torch
from torch import Tensor

from geolib._checks import require
from geolib.attention import Encoding, Placed


class OnePass:
    """An encoding, placed once for a pass of a model, outside of what activation checkpointing runs twice."""

    turned = ""
    """By what queries and keys were turned on their way; empty where layers do that."""

    def __init__(self, encoding: Encoding, positions: Tensor, unplaced: int = 0):
        self.encoding, self.positions, self.unplaced = encoding, positions, unplaced
        self.placed = self._place()
        self.elsewhere: dict[Any, tuple[Tensor, Placed]] = {}
        self.with_gradients, self.twice = torch.is_grad_enabled(), False
        self.again = False  # whether a backward pass has run a layer again

    def _place(self) -> Placed:
        return self.encoding.place(self.positions).with_prefix_tokens(self.unplaced)

    def here(self, keys: Tensor | None = None, kind: Any = None) -> Placed:
        """What a layer uses; with keys of a cache, at these positions; placed once for layers of one kind.

        A layer that runs without gradients inside a pass with them runs again for them (reentrant checkpointing), in a
        backward pass of its own. That cannot go through what all layers share, so it is placed anew there.
        """
        known = self.elsewhere.get(kind)
        if keys is not None and known is not None and not torch.compiler.is_compiling():
            known = known if torch.equal(known[0], keys) else None  # a cache may drop others in each layer
        if keys is not None and known is None:
            known = self.elsewhere[kind] = keys, self.encoding.place(self.positions, keys=keys)
        if known is not None:
            return known[1]
        self.twice |= self.with_gradients and not torch.is_grad_enabled()
        return self._place() if self.twice and torch.is_grad_enabled() else self.placed


def check_acts(
    encoding: Encoding, positions: Tensor, x: Tensor, heads: list[tuple[int, int, int]], reads: bool = True
) -> None:
    """ValueError for an encoding that adds to embeddings, x, or fails in a layer of (index, heads, features)."""
    kind = type(encoding).__name__
    allowed = "one that acts in attention: it would not be asked for what it adds to embeddings"
    require(encoding.embed(x, positions) is x, "encoding", kind, allowed)
    try:
        placed = encoding.place(positions)
        for index, own, features in heads:
            q = torch.zeros(1, own, len(positions), features, device=x.device)
            placed.layer(index).attention(q, q, q, x if reads else None)
    except ValueError as error:
        lacks = "" if reads else ", which has text of any length and does not hand on its layers' input"
        raise ValueError(f"encoding: got {kind}; it does not fit the model{lacks} ({error})") from None
