"""LieRE's Table 5, counted: the multiply-adds of one image's forward pass, with the exponential and without it.

The paper's 0.963, 5.607 and 19.856 G are multiply-adds, as many profilers count them, of an image of CIFAR-100: half of
what PyTorch's own counts. Nothing is trained: ``python -m geolib.lab bench flops`` counts on any computer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from geolib import exponential
from geolib.lab.config import Config
from geolib.lab.experiments.papers.liere import BASE, ROWS, TINY
from geolib.lab.vit import ViT

SIZES = {"tiny": TINY, "base": BASE, "large": {**BASE, "width": 1024, "heads": 16, "layers": 24}}
METHODS = ("learned", "visionllama", "liere-2", "liere-8", "liere-64")


def multiply_adds(call: Callable[[], Any]) -> int:
    """The multiply-adds of the products of matrices in a call, those inside the library's exponential among them."""

    def of_exponential(A: Tensor, out_val: Tensor) -> int:
        return 2 * multiply_adds(lambda: exponential.OPERATORS["geolib::expm1"](A))

    of_exponential._get_raw = True  # type: ignore[attr-defined]  # it is given tensors, not their shapes
    with FlopCounterMode(display=False, custom_mapping={torch.ops.geolib.expm1: of_exponential}) as counter:
        call()
    return counter.get_total_flops() // 2


@cache
def counted(size: str, method: str) -> dict[str, int]:
    """What one image needs, by part, for a key of ``SIZES`` and a row of ``METHODS``, in multiply-adds; and parameters.

    products (of matrices, all but those of the exponential), turning (pairs by complex numbers, four real products
    each) and exponential (for all tokens, once a pass whatever the batch); parameters are those of positions.

    >>> counted("tiny", "learned")["products"]  # the paper: 0.963 G
    960281088
    """
    torch.manual_seed(0)
    row = ROWS[method]
    config = Config("cifar100", row.method or method, row.options, **SIZES[size] | {"dropout": 0.0})
    # All layers are built: how often a generator is halved depends on its numbers, so no layer speaks for another.
    model = ViT(config, (3, 32, 32), 100).eval()
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        placing = multiply_adds(lambda: model.encoding.place(model.positions))
        whole = multiply_adds(lambda: model(torch.zeros(1, 3, 32, 32)))
    pairs = config.layers * len(model.positions) * config.width  # of queries and keys
    return {
        "products": whole - placing,
        "turning": 4 * pairs if method in ("visionllama", "liere-2") else 0,
        "exponential": placing,
        "parameters": sum(p.numel() for p in model.encoding.parameters()),
    }


def flop_rows() -> list[dict[str, Any]]:
    """A row for each size and method: what was counted, and in percent beyond absolute positions.

    Beside the keys of ``counted``: percent (products and turning, as the paper counts) and percent_with_exponential.

    Source: LR-T5.
    """
    rows = []
    for size in SIZES:
        plain = counted(size, "learned")["products"]
        for method in METHODS:
            found = counted(size, method)
            extra = found["products"] + found["turning"] - plain
            percents = {"percent": extra, "percent_with_exponential": extra + found["exponential"]}
            shares = {name: 100 * adds / plain for name, adds in percents.items()}
            rows.append({"size": size, "method": method, **found, **shares})
    return rows


EXPERIMENTS = ()
