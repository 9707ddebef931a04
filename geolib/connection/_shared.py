"""What the rooms share: exponentials, and which token stands at a place."""

from __future__ import annotations

import torch
from torch import Tensor

from geolib._checks import require


def exp(matrices: Tensor) -> Tensor:
    """exp of matrices (..., d, d)."""
    # Never of one alone: PyTorch 2.13 gives a single matrix of norm 0.01 to 0.05 as few as ten digits.
    return torch.linalg.matrix_exp(torch.stack([matrices, matrices]))[0]


def token_at(positions: Tensor, place: Tensor) -> int:
    """The index of the one token at a place."""
    found = (positions == place).all(-1).nonzero()
    require(len(found) == 1, "p", place.tolist(), "it must be the position of one token of the document")
    return int(found.item())
