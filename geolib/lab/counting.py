"""Counting what PyTorch does: operations by name, kernels among them, what they write, and multiply-adds."""

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

    An operation is a call that PyTorch dispatches once autograd has done its part; a kernel is one that computes, not a
    view of what is there. ``numbers`` are what kernels have written. ``products`` are multiply-adds of matrices and
    attention by PyTorch's own formulas, ``turning`` the real multiplications in products of complex numbers, four in
    each: how pairs of features are turned.

    >>> import torch
    >>> with Counting() as counting:
    ...     total = (torch.ones(2, 3).t() @ torch.ones(2, 5)).sum()
    >>> counting.operations.total(), counting.kernels.total(), counting.numbers, counting.products
    (5, 4, 32, 30)
    """

    def __init__(self) -> None:
        super().__init__()
        self.operations: Counter[str] = Counter()
        self.kernels: Counter[str] = Counter()
        self.numbers = self.products = self.turning = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count and do."""
        name, kwargs = func.name(), kwargs or {}
        if name in OPERATORS:
            with self:
                return OPERATORS[name](*args)
        self.operations[name] += 1
        result = func(*args, **kwargs)
        if not func.is_view:
            self.kernels[name] += 1
            self._count_kernel(func, args, kwargs, result)
        return result

    def _count_kernel(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """What it writes, and its multiply-adds."""
        made = _tensors(result)
        self.numbers += sum(t.numel() for t in made)
        if formula := flop_registry.get(func.overloadpacket):
            self.products += formula(*args, **kwargs, out_val=result) // 2
        elif func.name() == "geolib::product":
            self.products += made[0].numel() * args[0].shape[-1]
        elif func.name() == "aten::mul.Tensor" and result.is_complex():
            self.turning += 4 * result.numel()


def _tensors(tree: Any) -> list[Tensor]:
    """The tensors in what a call gives; by hand, for torch's own walk takes longer than most calls."""
    if isinstance(tree, Tensor):
        return [tree]
    return [leaf for each in tree for leaf in _tensors(each)] if isinstance(tree, list | tuple) else []
