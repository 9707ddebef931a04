"""Matrix products in the full precision of their operands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Inside, products on the device keep their dtype: no autocast, and no TF32 on a GPU.

    Squaring a matrix k times multiplies a product's rounding error by 2^k, and a guard that stands at float32's epsilon
    is a thousand times too small for TF32's ten bits. Autocast is off in a compiled graph too; the TF32 switch is one
    of the process, which a graph meets as it stands when it runs: what must be exact there is one operator of its own.
    """
    with torch.autocast(device.type, enabled=False):
        if device.type != "cuda" or torch.compiler.is_compiling():
            yield
            return
        # From PyTorch 2.9 on the switch has a new name, and reading the old one after the new was set is an error.
        switch = torch.backends.cuda.matmul
        name, strict = ("fp32_precision", "ieee") if hasattr(switch, "fp32_precision") else ("allow_tf32", False)
        before = getattr(switch, name)
        setattr(switch, name, strict)
        try:
            yield
        finally:
            setattr(switch, name, before)
