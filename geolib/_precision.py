"""Digits that must not be lost: products in the full precision of their operands, buffers that stay wide."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from geolib._checks import angle_dtype


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Inside, operations on the device keep the dtypes of what they are given."""
    # The meta device has no autocast to turn off. (Asking torch what a device has breaks a graph in PyTorch 2.6.)
    return nullcontext() if device.type == "meta" else torch.autocast(device.type, enabled=False)


def full_precision(device: torch.device) -> AbstractContextManager[Any]:
    """Inside, products on the device keep their dtype: no autocast, and no TF32 on a GPU.

    Squaring a matrix k times multiplies a product's rounding error by 2^k, and a guard that stands at float32's epsilon
    is a thousand times too small for TF32's ten bits. Autocast is off in a compiled graph too; the TF32 switch is one
    of the process, which a graph meets as it stands when it runs: what must be exact there is one operator of its own.
    """
    if device.type != "cuda" or torch.compiler.is_compiling():
        return without_autocast(device)  # a generator's context would break a graph in PyTorch 2.6
    return _without_tf32(device)


@contextmanager
def _without_tf32(device: torch.device) -> Iterator[None]:
    """Inside, no autocast on the GPU and no TF32."""
    # From PyTorch 2.9 on the switch has a new name, and reading the old one after the new was set is an error.
    switch = torch.backends.cuda.matmul
    name, strict = ("fp32_precision", "ieee") if hasattr(switch, "fp32_precision") else ("allow_tf32", False)
    before = getattr(switch, name)
    setattr(switch, name, strict)
    try:
        with without_autocast(device):
            yield
    finally:
        setattr(switch, name, before)


def wide_default() -> torch.dtype:
    """The default dtype, or float32 where that is narrower: for constants that models in bfloat16 are built with.

    >>> wide_default()
    torch.float32
    """
    return torch.promote_types(torch.get_default_dtype(), torch.float32)


class WideBuffers(nn.Module):
    """A module whose buffers hold angles, frequencies or positions, which never become narrower than float32.

    ``bfloat16()``, ``half()`` and ``to(dtype)`` change the parameters alone: a frequency rounded to bfloat16 would be
    off by radians after some thousand tokens. ``double()`` and moves between devices act on buffers as on parameters.
    """

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        before = dict(self._buffers)
        super()._apply(fn, recurse)
        for name, x in self._buffers.items():
            wide = before[name]
            if x is not None and wide is not None and x.is_floating_point() and x.dtype != angle_dtype(x):
                self._buffers[name] = wide.to(x.device, angle_dtype(x))
        return self
