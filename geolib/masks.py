"""Padding and packed documents: which tokens see one another, and where each stands.

Masks are of bool, True where a query may see a key, as ``placed.attend(..., mask=mask)`` and PyTorch take them. Causal
order is not part of them: it is attention's own argument, and both must hold.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from geolib._checks import angle_dtype, check_tensor, readable, require


def padding_mask(lengths: Tensor, tokens: int) -> Tensor:
    """Sequences padded on the right: every query sees the keys before its sequence's end, (batch, 1, 1, tokens).

    ``lengths``, (batch,), whole numbers; ValueError where one is below 0 or more than ``tokens``, on a CPU.

    >>> padding_mask(torch.tensor([1, 3]), 3)[:, 0, 0]
    tensor([[ True, False, False],
            [ True,  True,  True]])
    """
    check_tensor(lengths, "lengths")
    require(lengths.dim() == 1, "lengths", lengths.shape, "it must be (batch,)")
    whole = not lengths.is_floating_point() and lengths.dtype != torch.bool
    require(whole, "lengths", lengths.dtype, "lengths are whole numbers")
    if lengths.device.type == "cpu" and not torch.compiler.is_compiling() and len(lengths):
        shortest, longest = map(int, lengths.aminmax())
        require(shortest >= 0, "lengths", shortest, "at least 0")
        require(longest <= tokens, "lengths", longest, f"there are {tokens} tokens")
    return (torch.arange(tokens, device=lengths.device) < lengths[:, None])[:, None, None]


def document_mask(documents: Tensor) -> Tensor:
    """Documents packed one after another: a query sees the keys of its own, (batch or 1, 1, tokens, tokens).

    ``documents`` numbers the document of each token, (tokens,) or (batch, tokens): a document is a stretch of equal
    numbers. Padding is a document of its own.

    >>> document_mask(torch.tensor([7, 7, 9]))[0, 0]
    tensor([[ True,  True, False],
            [ True,  True, False],
            [False, False,  True]])
    """
    ids = _begins(_rows(documents)).cumsum(-1)
    return (ids[:, :, None] == ids[:, None, :])[:, None]


def document_positions(documents: Tensor) -> Tensor:
    """Positions that start at 0 with each document, in the shape of ``documents``, whole numbers.

    A document is a stretch of equal numbers. For ``place``, those of samples take ``[..., None]``.

    >>> document_positions(torch.tensor([7, 7, 9, 9, 9, 7]))
    tensor([0, 1, 0, 1, 2, 0])
    """
    ids = _rows(documents)
    index = torch.arange(ids.shape[1], device=ids.device)
    first = torch.where(_begins(ids), index, 0).cummax(-1).values
    return (index - first).reshape(documents.shape)


def document_starts(documents: Tensor) -> Tensor:
    """Where a document begins, bool in the shape of ``documents``: what ``SympowAttention`` takes as ``starts``.

    The first token begins one.

    >>> document_starts(torch.tensor([7, 7, 9, 9, 9, 7]))
    tensor([ True, False,  True, False, False,  True])
    """
    return _begins(_rows(documents)).reshape(documents.shape)


def starts_of(cu_seqlens: Tensor, tokens: int) -> Tensor:
    """The same from the boundaries of packed documents, (documents + 1,), whole numbers from 0 up to ``tokens``.

    What comes after the last boundary, padding, begins a document. Empty documents change nothing. ValueError for
    boundaries that fall, do not begin at 0 or end after ``tokens``, on a CPU.

    >>> starts_of(torch.tensor([0, 2, 5]), 6)
    tensor([ True, False,  True, False, False,  True])
    """
    check_tensor(cu_seqlens, "cu_seqlens")
    whole = not (cu_seqlens.is_floating_point() or cu_seqlens.is_complex() or cu_seqlens.dtype == torch.bool)
    came = f"{cu_seqlens.dtype} of shape {tuple(cu_seqlens.shape)}"
    require(whole and cu_seqlens.dim() == 1, "cu_seqlens", came, "it must be (documents + 1,) of whole numbers")
    if cu_seqlens.device.type == "cpu" and not torch.compiler.is_compiling():
        bounds = cu_seqlens.tolist()
        rises = bounds == sorted(bounds) and bounds[:1] == [0] and bounds[-1] <= tokens
        require(rises, "cu_seqlens", bounds, f"it must rise from 0 and end at most at the {tokens} tokens")
    return (torch.arange(tokens, device=cu_seqlens.device)[:, None] == cu_seqlens).any(-1)


def _begins(ids: Tensor) -> Tensor:
    """True where a token's number is not that of the token before, and at the first token."""
    begins = torch.ones_like(ids, dtype=torch.bool)
    begins[:, 1:] = ids[:, 1:] != ids[:, :-1]
    return begins


def _rows(documents: Tensor) -> Tensor:
    """(tokens,) or (batch, tokens) as (batch or 1, tokens)."""
    check_tensor(documents, "documents")
    holds = documents.dim() in (1, 2)
    require(holds, "documents", documents.shape, "it must be (tokens,) or (batch, tokens)")
    return documents if documents.dim() == 2 else documents[None]


# What attention makes of them --------------------------------------------------------------------------------------


def visible(q: Tensor, k: Tensor, causal: bool, mask: Tensor | None) -> Tensor | None:
    """True where a query sees a key, broadcastable to (..., queries, keys); None where all see all.

    A mask (batch, keys) with as many queries as samples would be read as (queries, keys): it brings a warning.
    ValueError for a mask that is not of bool or has another shape, and where causal with more queries than keys.

    >>> visible(torch.zeros(2, 4), torch.zeros(2, 4), True, torch.tensor([False, True]))
    tensor([[False, False],
            [False,  True]])
    """
    if mask is not None:
        check_tensor(mask, "mask")
        allowed = "it must be of bool, True where a query sees a key; numbers are a gate, to be added to log_gate"
        require(mask.dtype == torch.bool, "mask", mask.dtype, allowed)
        pairs = (*q.shape[:-1], k.shape[-2])
        sizes = list(zip(reversed(mask.shape), reversed(pairs)))
        fits = all(m in (1, n) for m, n in sizes[:2]) and all(1 in (m, n) or m == n for m, n in sizes[2:])
        hint = "of (batch, keys) make mask[:, None, None]"
        require(fits, "mask", mask.shape, lambda: f"it must be broadcastable to {pairs}: {hint}")
        # No number tells samples from queries, or from heads.
        either = q.dim() == 4 and mask.dim() in (2, 3) and 1 < mask.shape[0] == q.shape[0]
        if either and not torch.compiler.is_compiling():
            read = "queries" if mask.dim() == 2 else "heads"
            text = f"mask of shape {tuple(mask.shape)}: its first dimension is read as {read}"
            warnings.warn(f"{text}, and the batch is as large; {hint}, else mask[None]", stacklevel=4)
    if not causal:
        return mask
    queries, keys = q.shape[-2], k.shape[-2]  # the last query stands beside the last key
    allowed = "where causal, the first would see no key"
    require(queries <= keys, "q", lambda: f"{queries} queries for {keys} keys", allowed)
    past = torch.ones(queries, keys, dtype=torch.bool, device=q.device).tril(keys - queries)
    return past if mask is None else mask & past


def hidden(scores: Tensor, seen: Tensor | None) -> Tensor:
    """Scores with -inf at keys that are not seen; a row that sees none stays, so that its softmax is finite.

    >>> hidden(torch.zeros(2, 2), torch.tensor([[True, False], [False, False]]))
    tensor([[0., -inf],
            [0., 0.]])
    """
    return scores if seen is None else scores.masked_fill(~seen & seen.any(-1, keepdim=True), float("-inf"))


def as_bias(
    q: Tensor, k: Tensor, gate: Tensor | None, causal: bool, mask: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """What is added to all scores, and the queries that see no key, (..., queries, 1); None where there are none.

    >>> as_bias(torch.zeros(2, 4), torch.zeros(2, 4), torch.ones(2, 2), True, None)[0]
    tensor([[1., -inf],
            [1., 1.]])
    """
    seen = visible(q, k, causal, mask)
    blind = None if mask is None else ~seen.any(-1, keepdim=True)  # type: ignore[union-attr]
    if blind is not None and readable(blind) and not blind.any():
        blind = None
    if seen is None:
        return gate, blind  # type: ignore[return-value]
    dtype = q.dtype if gate is None else angle_dtype(q)
    shut = hidden(torch.zeros(1, 1, dtype=dtype, device=q.device), seen)
    if gate is None or not (gate.requires_grad and torch.is_grad_enabled()):
        return shut if gate is None else hidden(gate.to(dtype), seen), blind
    # A sum, of which autograd keeps nothing: a layer that is computed twice finds it made, and must not miss more.
    return gate.to(dtype) + shut, blind


def looked_up(table: Tensor) -> Callable[..., Tensor]:
    """A score modification that adds an entry of a table broadcastable to (batch, heads, queries, keys).

    >>> looked_up(torch.tensor([[0.0, 5.0]]))(torch.tensor(1.0), 0, 0, 3, 1)
    tensor(6.)
    """
    table = table.reshape((1,) * (4 - table.dim()) + table.shape)
    spread = [size == 1 for size in table.shape]

    def modify(score: Tensor, *indices: Tensor) -> Tensor:
        # Times 0, not a number: inside a kernel all four indices are tensors.
        return score + table[tuple(i * 0 if one else i for i, one in zip(indices, spread))]

    return modify
