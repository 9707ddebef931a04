"""Attention as inner products, and the one interface through which positions enter it.

An encoding is a module with four hooks, each of which does nothing by default: it may add to the token embeddings
(``embed``), carry queries and keys to a common reference space (``to_reference``), add to the scores inside the softmax
(``log_gate``), and multiply the weights after it (``attenuation``). ``MultiHeadAttention`` calls the last three in
every layer; the model calls ``embed`` once.

Positions have one row for each *placed* token. A layer may hold more tokens than positions: the extra ones stand in
front (a CLS token, registers), have no place, and every hook leaves them as they are.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from geolib._checks import check_last, require


class Encoding(nn.Module):
    """How positions enter attention; this base class is the encoding that ignores them."""

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Token embeddings with their positions added.

        Parameters
        ----------
        x : Tensor, (batch, tokens, width)
        positions : Tensor, (placed tokens, axes)

        Returns
        -------
        Tensor, (batch, tokens, width)
        """
        return x

    def to_reference(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys carried to the reference space, T^-1 q and T^-1 k: their inner product is the score.

        Parameters
        ----------
        q, k : Tensor, (batch, heads, tokens, head_dim)
        positions : Tensor, (placed tokens, axes)

        Returns
        -------
        tuple of Tensor, each (batch, heads, tokens, head_dim)
            In the dtypes of q and k.

        Source: RF-9.
        """
        return q, k

    def log_gate(self, x: Tensor, positions: Tensor) -> Tensor | None:
        """What is added to the scores before the softmax, or None.

        Parameters
        ----------
        x : Tensor, (batch, tokens, width)
            The layer's input, for gates that depend on the data.
        positions : Tensor, (placed tokens, axes)

        Returns
        -------
        Tensor broadcastable to (batch, heads, tokens, tokens), or None
            Row: query; column: key.
        """
        return None

    def attenuation(self, positions: Tensor) -> Tensor | None:
        """What multiplies the weights after the softmax, or None.

        Parameters
        ----------
        positions : Tensor, (placed tokens, axes)

        Returns
        -------
        Tensor broadcastable to (heads, placed tokens, placed tokens), or None
            Attention extends it by ones for the tokens without a place.

        Source: RF-19.
        """
        return None

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, positions: Tensor, log_gate: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """Attention with this encoding's attenuation, of queries and keys that are in the reference space already.

        Not a hook: an encoding that knows a faster way to the same numbers takes it here.

        Parameters
        ----------
        q, k, v : Tensor, (batch, heads, tokens, head_dim)
        positions : Tensor, (placed tokens, axes)
        log_gate : Tensor broadcastable to (batch, heads, tokens, tokens), or None
        causal : bool

        Returns
        -------
        Tensor, (batch, heads, tokens, head_dim)

        Source: RF-19.
        """
        omega = extended(self.attenuation(positions), q.shape[-2])
        return attention(q, k, v, log_gate=log_gate, attenuation=omega, causal=causal)

    def layer(self, index: int) -> Encoding:
        """The encoding as layer ``index`` sees it; an encoding with parameters for each layer returns a view."""
        return self


def on_placed(act: Callable[[Tensor], Tensor], x: Tensor, positions: Tensor) -> Tensor:
    """Apply a map to the placed tokens and leave the tokens in front of them as they are.

    Parameters
    ----------
    act : function of a Tensor (..., placed tokens, dim) that returns one of the same shape
    x : Tensor, (..., tokens, dim)
    positions : Tensor, (placed tokens, axes)

    Returns
    -------
    Tensor, (..., tokens, dim)

    Raises
    ------
    ValueError
        When there are more positions than tokens.
    """
    tokens, placed = x.shape[-2], positions.shape[0]
    require(placed <= tokens, "positions", f"{placed} rows", f"x has {tokens} tokens, so at most {tokens}")
    if placed == tokens:
        return act(x)
    return torch.cat([x[..., : tokens - placed, :], act(x[..., tokens - placed :, :])], -2)


def extended(attenuation: Tensor | None, tokens: int) -> Tensor | None:
    """An attenuation of the placed tokens, with ones for those in front that have no place; None stays None.

    Parameters
    ----------
    attenuation : Tensor, (..., placed tokens, placed tokens), or None
    tokens : int
        All tokens.

    Returns
    -------
    Tensor, (..., tokens, tokens), or None
    """
    if attenuation is None:
        return None
    unplaced = tokens - attenuation.shape[-1]
    return F.pad(attenuation, (unplaced, 0, unplaced, 0), value=1.0)


def attention_weights(
    q: Tensor,
    k: Tensor,
    *,
    log_gate: Tensor | None = None,
    attenuation: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """The weights of attention, softmax(scale q k^T + log_gate) times attenuation, as a matrix.

    Parameters
    ----------
    q : Tensor, (..., queries, head_dim)
    k : Tensor, (..., keys, head_dim)
    log_gate, attenuation : Tensor, broadcastable to (..., queries, keys), or None
    causal : bool
        Query i sees keys 0 ... i + keys - queries (the last query sees all of them).
    scale : float or None
        1 / sqrt(head_dim) when None.

    Returns
    -------
    Tensor, (..., queries, keys)
        Rows sum to 1 when attenuation is None.

    Source: RF-19, RF-20.
    """
    check_last(k, q.shape[-1], "k")
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if log_gate is not None:
        scores = scores + log_gate
    if causal:
        scores = scores.masked_fill(_future(q, k), float("-inf"))
    weights = scores.softmax(-1)
    return weights if attenuation is None else weights * attenuation.to(weights.dtype)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    log_gate: Tensor | None = None,
    attenuation: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Scaled-dot-product attention with a gate inside the softmax and an attenuation after it.

    Parameters
    ----------
    q : Tensor, (..., queries, head_dim)
    k : Tensor, (..., keys, head_dim)
    v : Tensor, (..., keys, value_dim)
    log_gate, attenuation : Tensor, broadcastable to (..., queries, keys), or None
    causal : bool
        Query i sees keys 0 ... i + keys - queries (the last query sees all of them).
    scale : float or None
        1 / sqrt(head_dim) when None.

    Returns
    -------
    Tensor, (..., queries, value_dim)

    Notes
    -----
    Without an attenuation this is PyTorch's fused kernel; with one, the weights stand in memory.

    Source: RF-19, RF-20.
    """
    check_last(k, q.shape[-1], "k")
    require(v.shape[-2] == k.shape[-2], "v", f"{v.shape[-2]} tokens", f"k has {k.shape[-2]}; they must be equal")
    if attenuation is not None:
        weights = attention_weights(q, k, log_gate=log_gate, attenuation=attenuation, causal=causal, scale=scale)
        return weights @ v
    if not causal or (log_gate is None and q.shape[-2] == k.shape[-2]):
        mask = None if log_gate is None else log_gate.to(q.dtype)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, scale=scale)
    bias = torch.zeros((), dtype=q.dtype, device=q.device) if log_gate is None else log_gate.to(q.dtype)
    mask = bias.masked_fill(_future(q, k), float("-inf"))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)


def _future(q: Tensor, k: Tensor) -> Tensor:
    """True where a key comes after the query, the last query standing beside the last key; (queries, keys)."""
    queries, keys = q.shape[-2], k.shape[-2]
    return torch.ones(queries, keys, dtype=torch.bool, device=q.device).triu(1 + keys - queries)


class MultiHeadAttention(nn.Module):
    """Multi-head self-attention that leaves positions to an encoding.

    Parameters
    ----------
    width : int
        Features of a token; a multiple of heads.
    heads : int
    causal : bool
        Whether a token sees only itself and those before it.
    """

    def __init__(self, width: int, heads: int, causal: bool = False):
        super().__init__()
        require(heads > 0 and width % heads == 0, "heads", heads, f"it must divide the width {width}")
        self.heads, self.causal = heads, causal
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, positions: Tensor, encoding: Encoding) -> Tensor:
        """Attend.

        Parameters
        ----------
        x : Tensor, (batch, tokens, width)
        positions : Tensor, (placed tokens, axes)
        encoding : Encoding

        Returns
        -------
        Tensor, (batch, tokens, width)
        """
        q, k, v = self._heads(x, positions, encoding)
        y = encoding.attend(q, k, v, positions, log_gate=encoding.log_gate(x, positions), causal=self.causal)
        return self.out(y.transpose(1, 2).flatten(2))

    def weights(self, x: Tensor, positions: Tensor, encoding: Encoding) -> Tensor:
        """The weights by which ``forward`` adds up the values, as matrices.

        Parameters
        ----------
        x : Tensor, (batch, tokens, width)
        positions : Tensor, (placed tokens, axes)
        encoding : Encoding

        Returns
        -------
        Tensor, (batch, heads, tokens, tokens)
            Row: query. Rows sum to 1, or less where the encoding has an attenuation.

        Source: RF-19, RF-20.
        """
        q, k, _ = self._heads(x, positions, encoding)
        gate, omega = encoding.log_gate(x, positions), extended(encoding.attenuation(positions), x.shape[1])
        return attention_weights(q, k, log_gate=gate, attenuation=omega, causal=self.causal)

    def _heads(self, x: Tensor, positions: Tensor, encoding: Encoding) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and keys in the reference space, and values, (batch, heads, tokens, head_dim) each."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)  # (3, batch, heads, tokens, d)
        return *encoding.to_reference(q, k, positions), v
