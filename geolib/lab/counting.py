"""Counting what PyTorch does: operations by name, kernels among them, and the numbers they write."""

from __future__ import annotations

from collections import Counter
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from geolib import exponential
from geolib.recurrence import _chunks_cpu

OPERATORS = exponential.OPERATORS | _chunks_cpu.OPERATORS


class Counting(TorchDispatchMode):
    """Counts operations by name; the library's own by what they are made of.

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


class Products(TorchDispatchMode):
    """Counts multiply-adds in products of matrices, by PyTorch's own formulas, and multiplications of complex numbers.

    Attributes
    ----------
    matrix : int
        Multiply-adds in products of matrices and in attention; the library's own by what they are made of.
    turning : int
        Real multiplications in products of complex numbers, four in each: how pairs of features are turned.

    Examples
    --------
    >>> import torch
    >>> with Products() as products:
    ...     made = torch.ones(2, 3) @ torch.ones(3, 5)
    >>> products.matrix
    30
    """

    def __init__(self) -> None:
        super().__init__()
        self.matrix = self.turning = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count and do."""
        if func.name() in OPERATORS:
            with self:
                return OPERATORS[func.name()](*args)
        result = func(*args, **(kwargs or {}))
        if formula := flop_registry.get(func.overloadpacket):
            self.matrix += formula(*args, **(kwargs or {}), out_val=result) // 2
        elif func.name() == "aten::mul.Tensor" and result.is_complex():
            self.turning += 4 * result.numel()
        return result
