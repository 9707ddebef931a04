"""Counts the operations that PyTorch dispatches, by name; the library's own count as one."""

from collections import Counter

from torch.utils._python_dispatch import TorchDispatchMode


class Counting(TorchDispatchMode):
    """``operations``: how often each was called inside."""

    def __init__(self):
        super().__init__()
        self.operations = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.operations[func.name()] += 1
        return func(*args, **(kwargs or {}))
