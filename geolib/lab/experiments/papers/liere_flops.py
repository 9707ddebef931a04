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
from geolib.encodings import LieRE
from geolib.lab.config import Config
from geolib.lab.experiments.papers.liere import BASE, ROWS, TINY
from geolib.lab.vit import ViT

SIZES: dict[str, dict[str, Any]] = {
    "tiny": TINY,
    "base": BASE,
    "large": {**BASE, "width": 1024, "heads": 16, "layers": 24},
}
METHODS = ("learned", "visionllama", "liere-2", "liere-8", "liere-64")
# Table 5: multiply-adds in G, and the percentage printed beside them. Source: LR-T5.
PAPER = {
    (size, method): pair
    for size, giga, percent in (
        ("tiny", (0.963, 0.963, 0.964, 0.968, 0.970), (None, 0.001, 0.104, 0.519, 0.727)),
        ("base", (5.607, 5.607, 5.609, 5.617, 5.684), (None, 0.002, 0.036, 0.178, 1.375)),
        ("large", (19.856, 19.856, 19.863, 19.882, 20.061), (None, 0.000, 0.035, 0.065, 1.033)),
    )
    for method, pair in zip(METHODS, zip(giga, percent))
}
# Where torch.matrix_exp takes which Taylor polynomial in float32, and the products each needs: the largest 1-norm that
# degree 1, 2, 4, 8, 12 and 18 serve. Beyond, the matrix is halved and the result squared as often.
_SERVED = ((1.193e-7, 0), (5.979e-4, 1), (5.117e-2, 2), (0.5801, 3), (1.462, 4), (3.010, 5))


def matrix_exp_products(norms: Tensor) -> Tensor:
    """How many products of matrices ``torch.matrix_exp`` makes for float32 matrices of these 1-norms.

    Those of the Taylor polynomial, and one for each squaring.

    >>> matrix_exp_products(torch.tensor([0.0, 1.0, 3.0, 100.0])).tolist()
    [0, 4, 5, 11]
    """
    limits = torch.tensor([limit for limit, _ in _SERVED], dtype=norms.dtype)
    degree = torch.bucketize(norms, limits).clamp(max=len(_SERVED) - 1)
    products = torch.tensor([count for _, count in _SERVED])[degree]
    squarings = (norms / _SERVED[-1][0]).clamp(min=1).log2().ceil().long()
    return products + squarings


def multiply_adds(call: Callable[[], Any]) -> int:
    """The multiply-adds of the products of matrices in a call, those inside the library's exponential among them."""
    inside = 0

    def expanded(A: Tensor, out_val: Tensor) -> int:
        nonlocal inside
        inside += multiply_adds(lambda: exponential.OPERATORS["geolib::expm1"](A))
        return 0

    expanded._get_raw = True
    with FlopCounterMode(display=False, custom_mapping={torch.ops.geolib.expm1: expanded}) as counter:
        call()
    return counter.get_total_flops() // 2 + inside  # the counter has two operations for each multiply-add


@cache
def counted(size: str, method: str) -> dict[str, int]:
    """What one image needs, by part, for a key of ``SIZES`` and a row of ``METHODS``, in multiply-adds; and parameters.

    products (of matrices, all but those of the exponential), turning (pairs by complex numbers, four real products
    each), exponential (ours) and matrix_exp (PyTorch's, for every token, layer, head and block); parameters are those
    of positions.

    >>> counted("tiny", "learned")["products"]  # the paper: 0.963 G
    960281088
    """
    torch.manual_seed(0)
    row = ROWS[method]
    config = Config("cifar100", row.method or method, row.options, **SIZES[size] | {"dropout": 0.0})
    # All layers are built: how often a generator is halved depends on its numbers, so no layer speaks for another.
    model = ViT(config, (3, 32, 32), 100).eval()
    encoding, positions, by_torch = model.encoding, model.positions, 0
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        placing = multiply_adds(lambda: encoding.place(positions))
        whole = multiply_adds(lambda: model(torch.zeros(1, 3, 32, 32)))
        if isinstance(encoding, LieRE) and encoding.width > 2:
            skew = encoding.skew() / encoding.unit[:, None, None]  # (layers, heads, blocks, axes, b, b)
            norms = torch.tensordot(positions, skew, dims=([1], [3])).abs().sum(-2).amax(-1)
            by_torch = int(matrix_exp_products(norms).sum()) * encoding.width**3
    return {
        "products": whole - placing,
        "turning": 4 * config.layers * len(positions) * config.width * (method in ("visionllama", "liere-2")),
        "exponential": placing,
        "matrix_exp": by_torch,
        "parameters": sum(p.numel() for p in encoding.parameters()),
    }


def flop_rows() -> list[dict[str, Any]]:
    """A row for each size and method: what was counted, in percent of absolute positions too, and the paper's numbers.

    Beside the keys of ``counted``: percent (products and turning beyond absolute positions), percent_with_exponential
    (ours), percent_with_matrix_exp, paper_g, paper_percent and paper_percent_of_its_g: what the paper's own G give, as
    far as their three decimals say.

    Source: LR-T5.
    """
    rows = []
    for size in SIZES:
        plain = counted(size, "learned")["products"]
        for method in METHODS:
            found, (giga, printed) = counted(size, method), PAPER[size, method]
            extra = found["products"] + found["turning"] - plain
            rows.append(
                {"size": size, "method": method, **found}
                | {"percent": 100 * extra / plain}
                | {f"percent_with_{key}": 100 * (extra + found[key]) / plain for key in ("exponential", "matrix_exp")}
                | {"paper_g": giga, "paper_percent": printed}
                | {"paper_percent_of_its_g": 100 * (giga / PAPER[size, "learned"][0] - 1)}
            )
    return rows


EXPERIMENTS = ()
