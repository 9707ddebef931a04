"""LieRE's Table 5, counted: the multiply-adds of one image's forward pass, with the exponential and without it.

The paper's 0.963, 5.607 and 19.856 G are multiply-adds of an image of CIFAR-100, half of what PyTorch counts.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from geolib import exponential
from geolib.lab.config import Config
from geolib.lab.experiments.papers.liere import BASE, PRINTED, TINY
from geolib.lab.vit import ViT

SIZES = {"tiny": TINY, "base": BASE, "large": {**BASE, "width": 1024, "heads": 16, "layers": 24}}


def multiply_adds(call: Callable[[], Any]) -> int:
    """The multiply-adds of the products of matrices in a call, those inside the library's exponential among them."""

    def of_exponential(A: Tensor, out_val: Tensor) -> int:
        return 2 * multiply_adds(lambda: exponential.OPERATORS["geolib::expm1"](A))

    of_exponential._get_raw = True  # type: ignore[attr-defined]  # it is given tensors, not their shapes
    with FlopCounterMode(display=False, custom_mapping={torch.ops.geolib.expm1: of_exponential}) as counter:
        call()
    return counter.get_total_flops() // 2


def run() -> list[dict[str, Any]]:
    """What one image needs at each size by each method: multiply-adds by part, and percent beyond absolute positions.

    products (of matrices, all but the exponential's), turning (pairs by complex numbers, four real products each) and
    exponential (for all tokens, once a pass whatever the batch); parameters are those of positions. percent is of
    products and turning, as the paper counts, percent_with_exponential of all. Source: LR-T5.
    """
    rows = []
    for size, settings in SIZES.items():
        plain = 0
        for method, row in PRINTED.items():  # absolute positions first
            torch.manual_seed(0)
            config = Config("cifar100", row.method or method, row.options, **settings | {"dropout": 0.0})
            # All layers are built: how often a generator is halved depends on its numbers, another in each layer.
            model = ViT(config, (3, 32, 32), 100).eval()
            with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
                placing = multiply_adds(partial(model.encoding.place, model.positions))
                products = multiply_adds(partial(model, torch.zeros(1, 3, 32, 32))) - placing
            pairs = config.layers * len(model.positions) * config.width  # of queries and keys
            turning = 4 * pairs if method in ("visionllama", "liere-2") else 0
            plain = plain or products
            extra = products + turning - plain
            parts = {"products": products, "turning": turning, "exponential": placing}
            percent = {"percent": 100 * extra / plain, "percent_with_exponential": 100 * (extra + placing) / plain}
            parameters = sum(p.numel() for p in model.encoding.parameters())
            rows.append({"size": size, "method": method, **parts, "parameters": parameters, **percent})
    return rows
