"""Counting what PyTorch does: operations by name, kernels among them, and the numbers they write."""

from __future__ import annotations

from collections import Counter
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from geolib.lie import OPERATORS


class Counting(TorchDispatchMode):
    """Counts operations by name; those of ``geolib.lie`` by what they are made of.

    Attributes
    ----------
    operations, kernels : Counter
        An operation is a call that PyTorch dispatches once autograd has done its part; a kernel is one that computes,
        not a view of what is there.
    numbers : int
        What the kernels have written.

    Examples
    --------
    >>> import torch
    >>> with Counting() as counting:
    ...     total = torch.ones(2, 3).t().sum()
    >>> counting.operations.total(), counting.kernels.total(), counting.numbers
    (3, 2, 7)
    """

    def __init__(self) -> None:
        super().__init__()
        self.operations: Counter[str] = Counter()
        self.kernels: Counter[str] = Counter()
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count and do."""
        name = func.name()
        if name in OPERATORS:
            with self:
                return OPERATORS[name](*args)
        self.operations[name] += 1
        self.kernels[name] += not func.is_view
        result = func(*args, **(kwargs or {}))
        if not func.is_view:
            made = result if isinstance(result, tuple | list) else (result,)
            self.numbers += sum(t.numel() for t in made if isinstance(t, Tensor))
        return result
