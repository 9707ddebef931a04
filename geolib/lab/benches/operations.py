"""How many operations a step of the model issues for each method: forward, loss and backward, without the optimiser.

A small model's step is launch-bound: its time grows with the operations, whatever their size. An operation is a call
that PyTorch dispatches once autograd has done its part; a *kernel* is one that computes, not a view of what is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from geolib.encodings import METHODS
from geolib.lab.config import Config
from geolib.lab.counting import Counting
from geolib.lab.vit import ViT


def count(method: str, sizes: dict[str, Any], options: dict[str, Any] | None = None) -> Counting:
    """The operations of one step on eight random images of CIFAR-10's shape."""
    torch.manual_seed(0)
    model = ViT(Config("cifar10", method, method_options=options or {}, **sizes), (3, 32, 32), 10)
    images, labels = torch.randn(8, 3, 32, 32), torch.zeros(8, dtype=torch.long)
    with Counting() as counting:
        F.cross_entropy(model(images), labels).backward()
    return counting


def run(methods: Sequence[str] = (*METHODS, "riemannformer+lf", "liere+lf")) -> list[dict[str, Any]]:
    """Count, for all of the registry, and with locality focusing where the paper has it, or for the methods named.

    The model has 64 patches of 4x4 pixels. ``above_none``: operations beyond those of a model that ignores positions.
    """
    sizes = {"layers": 6, "heads": 4, "width": 64, "patch": 4}
    none = count("none", sizes).operations.total()
    rows = []
    for name in dict.fromkeys(methods):
        counting = count(name, sizes)
        operations, kernels = counting.operations.total(), counting.kernels.total()
        rows.append({"method": name, "operations": operations, "kernels": kernels, "above_none": operations - none})
    return rows
