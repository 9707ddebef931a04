"""Whether rounding the factors of products to bfloat16 costs accuracy: the same runs in either precision, seed by seed.

A seed gives both runs the same weights, order and augmentation; nothing but the rounding is between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from geolib.lab.config import PRECISIONS
from geolib.lab.experiments.papers.digits import ENCODINGS
from geolib.lab.experiments.papers.riemannformer import TABLE1
from geolib.lab.experiments.plan import Experiment, Variant

TITLES = {"rope-axial": "RoPE, axial", "riemannformer": "RiemannFormer"}


def compared(
    name: str,
    about: str,
    dataset: str,
    methods: tuple[str, ...],
    settings: Mapping[str, Mapping[str, Any]],
    seeds: Mapping[str, tuple[int, ...]],
) -> Experiment:
    """An experiment with a row for each method and precision, and the difference of a method's two."""
    rows = {f"{method}.{precision}": (method, precision) for method in methods for precision in PRECISIONS}
    return Experiment(
        name=name,
        about=about,
        datasets=(dataset,),
        methods={row: f"{TITLES[method]}, {precision}" for row, (method, precision) in rows.items()},
        variants={
            row: Variant(method, settings={scale: {"precision": precision} for scale in settings})
            for row, (method, precision) in rows.items()
        },
        against=tuple((f"{method}.bfloat16", f"{method}.float32") for method in methods),
        settings=settings,
        seeds=seeds,
        importance=4,
    )


PRECISION_DIGITS = compared(
    "precision",
    "products in float32 and in bfloat16: 8x8 digits as 64 tokens",
    "digits",
    ("rope-axial", "riemannformer"),
    {scale: ENCODINGS.settings[scale] for scale in ("smoke", "cpu")},
    {"smoke": (0,), "cpu": (0, 1, 2)},
)

PRECISION_CIFAR10 = compared(
    "precision-cifar10",
    "products in float32 and in bfloat16: a fifth of CIFAR-10",
    "cifar10",
    ("rope-axial",),
    {scale: TABLE1.settings[scale] for scale in ("smoke", "cpu")},
    {"smoke": (0,), "cpu": (0, 1, 2)},
)

EXPERIMENTS = (PRECISION_DIGITS, PRECISION_CIFAR10)
