"""Attention of any placed encoding by PyTorch's FlexAttention, without a matrix of all pairs where none is needed.

``placed.as_score_mod(x)`` is the gate in the form that ``torch.nn.attention.flex_attention`` takes; it can be handed to
that function directly. What multiplies weights after the softmax has no place there. With lse(S) = log sum_n e^(S_mn),
however, softmax(S) Omega V is softmax(S + log Omega) V with row m scaled by e^(lse(S + log Omega) - lse(S)): two runs
of the kernel and their two log-sum-exps (RF-FUSED). ``flex_attend`` does both.
"""

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor

from geolib._checks import check_count, check_input, check_scale, require
from geolib.attention import Placed, ScoreMod
from geolib.attention import _check_attended as check_attended

BLOCK = 128
"""Tokens in a block of the causal mask, the kernel's own size."""


def flex_attend(
    placed: Placed,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    x: Tensor | None = None,
    causal: bool = False,
    *,
    block_mask: Any = None,
    scale: float | None = None,
) -> Tensor:
    """What ``placed.attention`` computes, (batch, heads, tokens, value_dim); q and k come as projections made them.

    Parameters
    ----------
    q, k, v : Tensor, (batch, heads, tokens, features)
        Keys and values may have fewer heads, which query heads share. Powers of 2 as numbers of features on a GPU.
    x : Tensor, (batch, tokens, width), or None
        The layer's input, for gates that depend on the data.
    causal : bool
        The last query sees all keys, each before it one less; with a block mask, both must hold.
    block_mask : BlockMask or None
        From ``torch.nn.attention.flex_attention.create_block_mask``: which pairs are seen.
    scale : float or None
        1 / sqrt(head_dim) when None; else above 0.

    Notes
    -----
    On a GPU the kernel is compiled at its first call. On a CPU PyTorch runs it uncompiled, holds all pairs, and has no
    derivative; there it serves to try a model out.

    >>> from geolib.encodings import ALiBi
    >>> placed, q = ALiBi(heads=2).place(torch.arange(5.0)), torch.randn(1, 2, 5, 16)
    >>> torch.allclose(flex_attend(placed, q, q, q, causal=True), placed.attention(q, q, q, causal=True), atol=1e-5)
    True

    Source: RF-FUSED, CS-FUSED.
    """
    front = placed.unplaced
    if placed.counts is not None:  # a kernel would read past the ends of tables
        for rows, tokens, first in zip(placed.counts, (q.shape[-2], k.shape[-2]), front):
            check_count(rows, tokens, first)
    check_input(x, q, k)
    check_attended(q, k, v, None, None, 0.0)
    for own, came, of in zip(placed.own, q.shape, ("samples", "heads")):
        require(own in (1, came), "q", f"{came} {of}", f"the encoding has {own}")
    check_scale(scale)
    if causal:
        queries, keys = q.shape[-2], k.shape[-2]
        alone = block_mask is None and queries == keys
        block_mask = past_blocks(keys, q.device) if alone else _seen_in_past(queries, keys, q.device, block_mask)
    q, k = placed.to_reference(q, k)
    kernel = flex_kernel(q.device.type, q.shape[-1] ** -0.5 if scale is None else scale, k.shape[1] < q.shape[1])
    gate, far = (with_prefix_tokens(mod, *front) for mod in (placed.as_score_mod(x), placed.as_attenuation_mod()))
    if far is None:
        return kernel(q, k, v, gate, block_mask)[0]
    both = far if gate is None else lambda score, *pair: far(gate(score, *pair), *pair)
    near, log_near = kernel(q, k, v, both, block_mask)
    _, log_all = kernel(q, k, v, gate, block_mask)
    kept = (log_near - log_all).exp().nan_to_num(0.0)  # a query that sees nothing: -inf less -inf
    return (near * kept[..., None]).to(v.dtype)


@lru_cache(maxsize=8)
@torch.inference_mode(False)  # a mask made in inference must serve training later
def past_blocks(tokens: int, device: torch.device) -> Any:
    """The causal mask by blocks, found without a matrix of pairs.

    Blocks before the diagonal are full; a last row of blocks that is not whole counts as partial.

    >>> past_blocks(300, torch.device("cpu")).kv_num_blocks[0, 0].tolist()  # of 128 tokens, partly seen
    [1, 1, 3]
    """
    from torch.nn.attention.flex_attention import BlockMask

    row = torch.arange(-(-tokens // BLOCK), dtype=torch.int32, device=device)
    whole, blocks = row < tokens // BLOCK, len(row)
    every = row.repeat(blocks, 1)
    return BlockMask.from_kv_blocks(
        torch.where(whole, 1, row + 1).int()[None, None],
        torch.where(whole[:, None], (row[:, None] + every) % blocks, every).int()[None, None],
        torch.where(whole, row, 0).int()[None, None],
        every[None, None],
        BLOCK_SIZE=BLOCK,
        mask_mod=lambda batch, head, i, j: i >= j,
        seq_lengths=(tokens, tokens),
    )


@lru_cache(maxsize=8)
@torch.inference_mode(False)
def _seen_in_past(queries: int, keys: int, device: torch.device, seen: Any) -> Any:
    """A block mask, with causal order where the last query stands beside the last key; it is made of all pairs."""
    from torch.nn.attention.flex_attention import and_masks, create_block_mask

    require(queries <= keys, "q", f"{queries} queries for {keys} keys", "where causal, the first would see no key")

    def past(batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return j <= i + (keys - queries)

    if seen is None:
        return create_block_mask(past, None, None, queries, keys, device)
    both, blocks = and_masks(past, seen.mask_mod), seen.BLOCK_SIZE
    return create_block_mask(both, seen.shape[0], seen.shape[1], queries, keys, device, BLOCK_SIZE=blocks)


def with_prefix_tokens(mod: ScoreMod | None, queries: int, keys: int) -> ScoreMod | None:
    """A modification for placed tokens behind so many without a place, whose scores stay as they are.

    >>> mod = with_prefix_tokens(lambda score, batch, head, i, j: score + 10 * i + j, 1, 1)
    >>> mod(torch.tensor(0.5), 0, 0, torch.tensor(3), torch.tensor(2))
    tensor(21.5000)
    """
    if mod is None or queries == keys == 0:
        return mod

    def modify(score: Tensor, batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
        placed = (i >= queries) & (j >= keys)
        p, n = torch.where(placed, i - queries, 0), torch.where(placed, j - keys, 0)
        return torch.where(placed, mod(score, batch, head, p, n), score)

    return modify


@cache
def flex_kernel(device: str, scale: float, grouped: bool) -> Callable[..., tuple[Tensor, Tensor]]:
    """FlexAttention, and the logarithm of its normaliser; importing it loads the compiler, which waits until here.

    Called with q, k, v, a score modification or None, and a block mask or None.

    >>> q = torch.zeros(1, 1, 2, 16)
    >>> flex_kernel("cpu", 1.0, False)(q, q, q, None, None)[1].exp()  # two scores of 0
    tensor([[[2., 2.]]])
    """
    from torch.nn.attention import flex_attention as module

    # How this version of PyTorch is asked for the logarithm.
    asked = {"return_aux": module.AuxRequest(lse=True)} if hasattr(module, "AuxRequest") else {"return_lse": True}
    options: dict[str, Any] = {"scale": scale, "enable_gqa": grouped, **asked}

    def attend(q: Tensor, k: Tensor, v: Tensor, modify: ScoreMod | None, mask: Any) -> tuple[Tensor, Tensor]:
        output, more = module.flex_attention(q, k, v, score_mod=modify, block_mask=mask, **options)
        return output, getattr(more, "lse", more)

    # Lengths that vary compile into one kernel: with a kernel for each, the compiler gives up and all pairs are made.
    return torch.compile(attend) if device == "cuda" else attend
