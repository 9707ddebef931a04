"""Whether rounding the factors of products to bfloat16 costs accuracy: the same runs in either precision, seed by seed.

A seed gives both runs the same weights, order and augmentation; nothing but the rounding is between them.
"""

from __future__ import annotations

from geolib.lab.config import PRECISIONS
from geolib.lab.experiments.papers.digits import ENCODINGS
from geolib.lab.experiments.papers.riemannformer import TABLE1
from geolib.lab.experiments.plan import Experiment, Variant

TITLES = {"rope-axial": "RoPE, axial", "riemannformer": "RiemannFormer"}


def compared(name: str, about: str, methods: tuple[str, ...], like: Experiment) -> Experiment:
    """An experiment with a row for each method and precision, and the difference of a method's two.

    The data set is the first of another experiment, and the settings are those of its small scales.
    """
    rows = {f"{method}.{precision}": (method, precision) for method in methods for precision in PRECISIONS}
    settings = {scale: like.settings[scale] for scale in ("smoke", "cpu")}
    return Experiment(
        name=name,
        about=about,
        datasets=like.datasets[:1],
        methods={row: f"{TITLES[method]}, {precision}" for row, (method, precision) in rows.items()},
        variants={
            row: Variant(method, settings={scale: {"precision": precision} for scale in settings})
            for row, (method, precision) in rows.items()
        },
        against=tuple((f"{method}.bfloat16", f"{method}.float32") for method in methods),
        settings=settings,
        seeds={"smoke": (0,), "cpu": (0, 1, 2)},
        importance=4,
    )


PRECISION_DIGITS = compared(
    "precision",
    "products in float32 and in bfloat16: 8x8 digits as 64 tokens",
    ("rope-axial", "riemannformer"),
    ENCODINGS,
)

PRECISION_CIFAR10 = compared(
    "precision-cifar10",
    "products in float32 and in bfloat16: a fifth of CIFAR-10",
    ("rope-axial",),
    TABLE1,
)

EXPERIMENTS = (PRECISION_DIGITS, PRECISION_CIFAR10)
