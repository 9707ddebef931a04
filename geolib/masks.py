"""Padding and packed documents: which tokens see one another, and where each stands.

Masks are of bool, True where a query may see a key, as ``placed.attend(..., mask=mask)`` and PyTorch take them. Causal
order is not part of them: it is attention's own argument, and both must hold.
"""

from __future__ import annotations

import torch
from torch import Tensor

from geolib._checks import check_tensor, require


def padding_mask(lengths: Tensor, tokens: int) -> Tensor:
    """Sequences padded on the right: every query sees the keys before its sequence's end, (batch, 1, 1, tokens).

    ``lengths``, (batch,), whole numbers; ValueError where one is more than ``tokens``, on a CPU.

    >>> padding_mask(torch.tensor([1, 3]), 3)[:, 0, 0]
    tensor([[ True, False, False],
            [ True,  True,  True]])
    """
    check_tensor(lengths, "lengths")
    require(lengths.dim() == 1, "lengths", f"shape {tuple(lengths.shape)}", "it must be (batch,)")
    if lengths.device.type == "cpu" and not torch.compiler.is_compiling():
        longest = int(lengths.max()) if len(lengths) else 0
        require(longest <= tokens, "lengths", longest, f"there are {tokens} tokens")
    return (torch.arange(tokens, device=lengths.device) < lengths[:, None])[:, None, None]


def document_mask(documents: Tensor) -> Tensor:
    """Documents packed one after another: a query sees the keys of its own, (batch or 1, 1, tokens, tokens).

    ``documents`` numbers the document of each token, (tokens,) or (batch, tokens). Padding is a document of its own.

    >>> document_mask(torch.tensor([7, 7, 9]))[0, 0]
    tensor([[ True,  True, False],
            [ True,  True, False],
            [False, False,  True]])
    """
    ids = _rows(documents)
    return (ids[:, :, None] == ids[:, None, :])[:, None]


def document_positions(documents: Tensor) -> Tensor:
    """Positions that start at 0 with each document, in the shape of ``documents``, whole numbers.

    A document is a stretch of equal numbers. For ``place``, those of samples take ``[..., None]``.

    >>> document_positions(torch.tensor([7, 7, 9, 9, 9, 7]))
    tensor([0, 1, 0, 1, 2, 0])
    """
    ids = _rows(documents)
    index = torch.arange(ids.shape[1], device=ids.device)
    begins = torch.ones_like(ids, dtype=torch.bool)
    begins[:, 1:] = ids[:, 1:] != ids[:, :-1]
    first = torch.where(begins, index, 0).cummax(-1).values
    return (index - first).reshape(documents.shape)


def _rows(documents: Tensor) -> Tensor:
    """(tokens,) or (batch, tokens) as (batch or 1, tokens)."""
    check_tensor(documents, "documents")
    holds = documents.dim() in (1, 2)
    require(holds, "documents", f"shape {tuple(documents.shape)}", "it must be (tokens,) or (batch, tokens)")
    return documents if documents.dim() == 2 else documents[None]
