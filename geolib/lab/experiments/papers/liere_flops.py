"""LieRE's Table 5, counted: the multiply-adds of one image's forward pass, with the exponential and without it.

The paper's 0.963, 5.607 and 19.856 G are multiply-adds, as many profilers count them, of an image of CIFAR-100. What
PyTorch's own profiler counts is halved for that. Nothing is trained: ``python -m geolib.lab table liere-flops`` counts
on any computer.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from geolib.encodings import LieRE
from geolib.lab.config import Config
from geolib.lab.counting import Counting
from geolib.lab.experiments.papers.liere import BASE, TINY, TITLES, blocks_of
from geolib.lab.experiments.plan import Pipeline, Variant
from geolib.lab.experiments.text import Table
from geolib.lab.records import Record
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


def _matrix_exp_products(norms: Tensor) -> Tensor:
    """How many products of matrices ``torch.matrix_exp`` makes for float32 matrices of these 1-norms.

    Those of the Taylor polynomial, and one for each squaring.

    >>> _matrix_exp_products(torch.tensor([0.0, 1.0, 3.0, 100.0])).tolist()
    [0, 4, 5, 11]
    """
    limits = torch.tensor([limit for limit, _ in _SERVED], dtype=norms.dtype)
    degree = torch.bucketize(norms, limits).clamp(max=len(_SERVED) - 1)
    products = torch.tensor([count for _, count in _SERVED])[degree]
    squarings = (norms / _SERVED[-1][0]).clamp(min=1).log2().ceil().long()
    return products + squarings


def _as_matrix_exp(encoding: LieRE, positions: Tensor) -> int:
    """Multiply-adds of an exponential by ``torch.matrix_exp`` for every token, layer, head and block."""
    skew = encoding.skew() / encoding.unit[:, None, None]  # (layers, heads, blocks, axes, b, b)
    sums = torch.tensordot(positions, skew, dims=([1], [3]))
    products = _matrix_exp_products(sums.abs().sum(-2).amax(-1))
    return int(products.sum()) * encoding.width**3


@cache
def counted(size: str, method: str) -> dict[str, int]:
    """What one image needs, by part, for a key of ``SIZES`` and a row of ``METHODS``, in multiply-adds; and parameters.

    products (of matrices, all but those of the exponential), turning (pairs by complex numbers), exponential (ours) and
    matrix_exp (PyTorch's, for every token); parameters are those of positions.

    >>> counted("tiny", "learned")["products"]  # the paper: 0.963 G
    960281088
    """
    torch.manual_seed(0)
    row = blocks_of(2, 8, 64).get(method, Variant(method))
    config = Config("cifar100", row.method, row.options, **SIZES[size] | {"dropout": 0.0})
    # All layers are built: how often a generator is halved depends on its numbers, so no layer speaks for another.
    model = ViT(config, (3, 32, 32), 100).eval()
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        with Counting() as placing:
            model.encoding.place(model.positions)
        with Counting() as whole:
            model(torch.zeros(1, 3, 32, 32))
        wide = isinstance(model.encoding, LieRE) and model.encoding.width > 2
        by_torch = _as_matrix_exp(model.encoding, model.positions) if wide else 0  # type: ignore[arg-type]
    return {
        "products": whole.products - placing.products,
        "turning": whole.turning,
        "exponential": placing.products,
        "matrix_exp": by_torch,
        "parameters": sum(p.numel() for p in model.encoding.parameters()),
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
            found = counted(size, method)
            extra = found["products"] + found["turning"] - plain
            percents = {
                "percent": extra,
                "percent_with_exponential": extra + found["exponential"],
                "percent_with_matrix_exp": extra + found["matrix_exp"],
            }
            giga, printed = PAPER[size, method]
            rows.append(
                {
                    "size": size,
                    "method": method,
                    **found,
                    **{name: 100 * value / plain for name, value in percents.items()},
                    "paper_g": giga,
                    "paper_percent": printed,
                    "paper_percent_of_its_g": 100 * (giga / PAPER[size, "learned"][0] - 1),
                }
            )
    return rows


def flop_table(scale: str, records: Sequence[Record]) -> list[Table]:
    """The count beside the paper's percentages."""
    rows = [
        [
            row["size"],
            TITLES[row["method"]],
            f"{(row['products'] + row['turning']) / 1e9:.3f}",
            f"{row['paper_g']:.3f}",
            f"{row['percent']:+.3f}",
            "" if row["paper_percent"] is None else f"{row['paper_percent']:+.3f}",
            f"{row['paper_percent_of_its_g']:+.2f}",
            f"{row['percent_with_exponential']:+.1f}",
            f"{row['percent_with_matrix_exp']:+.1f}",
        ]
        for row in flop_rows()
    ]
    header = ["size", "method", "G", "paper G", "%", "paper %", "% of paper's G", "% with ours", "% with matrix_exp"]
    notes = [
        "G: multiply-adds of one image's forward pass, products of matrices and the turning of pairs. %: beyond "
        "absolute positions; without the exponential, as the paper counts, then with ours (rays) and with "
        "torch.matrix_exp of every token, both once a pass whatever the batch.",
    ]
    return [Table("liere-flops: multiply-adds of inference on an image of CIFAR-100, 65 tokens", header, rows, notes)]


FLOPS = Pipeline(
    name="liere-flops",
    about="LieRE's Table 5: multiply-adds of inference, the exponential counted and not; nothing is trained",
    needs="nothing",
    scales=("full",),
    plan=lambda scale, records: [],
    tabulate=flop_table,
)

EXPERIMENTS = ()
PIPELINES = (FLOPS,)
