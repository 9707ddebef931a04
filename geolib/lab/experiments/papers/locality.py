"""Looking nearby: the same kernels of the distance inside the softmax and after it, with rotations and without.

``digits-locality`` has a token for each pixel, ``cifar10-locality`` patches that show edges: on the first a kernel of
the distance is all that tells where a token stands. ALiBi and the Manhattan decay have the same slopes, so that the
place of the kernel is all that differs.
"""

from __future__ import annotations

from geolib.lab.experiments.papers.digits import SEEDS, SETTINGS, at_scales
from geolib.lab.experiments.plan import Experiment, Variant

_KERNELS = {
    "lf": "Gaussian after: locality focusing",
    "gauss": "Gaussian inside: a gate",
    "rmt": "Manhattan decay after: RMT's equation",
    "alibi": "Manhattan decay inside: ALiBi",
}
_ROTATED = "rope-axial"
_SLOPES = {"slopes": "alibi"}

METHODS = {
    "none": "none",
    **_KERNELS,
    _ROTATED: "RoPE, axial",
    **{f"{_ROTATED}+{name}": f"RoPE, axial, and {title}" for name, title in _KERNELS.items()},
}
VARIANTS = {"rmt": Variant("rmt", _SLOPES), f"{_ROTATED}+rmt": Variant(f"{_ROTATED}+rmt", {"rmt": _SLOPES})}
# What the kernel's place is worth, what it is worth beside rotations, and what rotations are worth beside it.
AGAINST = (
    *(("lf", "gauss"), ("rmt", "alibi")),
    *((f"{_ROTATED}+lf", f"{_ROTATED}+gauss"), (f"{_ROTATED}+rmt", f"{_ROTATED}+alibi")),
    *((f"{_ROTATED}+{name}", _ROTATED) for name in _KERNELS),
    *((f"{_ROTATED}+{name}", name) for name in _KERNELS),
)
CHOSEN = (
    "Widths begin at half an axis, one a head, and are learned with one matrix of the ellipse for all heads; slopes "
    "are ALiBi's and fixed, inside and after alike; angles are axial with base 100."
)

LOCALITY_DIGITS = Experiment(
    name="digits-locality",
    about="looking nearby: kernels of the distance inside and after the softmax, with and without rotations, on digits",
    datasets=("digits",),
    methods={
        **METHODS,
        "rope-pair": "RoPE, one pair",
        "rope-pair+lf": "RoPE, one pair, and Gaussian after: locality focusing",
    },
    variants=VARIANTS,
    against=(*AGAINST, ("rope-pair+lf", "lf"), ("rope-pair+lf", "rope-pair")),
    settings=at_scales(SETTINGS),
    seeds=SEEDS,
    chosen=CHOSEN,
    importance=3,
)

LOCALITY_CIFAR10 = Experiment(
    name="cifar10-locality",
    about="looking nearby: kernels of the distance inside and after the softmax, with and without rotations, on CIFAR",
    datasets=("cifar10",),
    methods=METHODS,
    variants=VARIANTS,
    against=AGAINST,
    settings={
        "smoke": {"width": 32, "heads": 4, "layers": 1, "epochs": 1, "train_size": 256, "test_size": 128},
        # An eighth of the images and three layers: thirty runs in about half an hour of one core.
        "cpu": {
            "width": 48,
            "heads": 4,
            "layers": 3,
            "epochs": 6,
            "batch": 64,
            "augment": "crop-flip",
            "train_size": 6_000,
            "test_size": 2_000,
            "eval_every": 3,
        },
        "full": {
            "width": 256,
            "heads": 4,
            "layers": 6,
            "mlp_ratio": 4.0,
            "epochs": 200,
            "augment": "crop-flip",
            "eval_every": 10,
        },
    },
    seeds={"smoke": (0,), "cpu": (0, 1, 2), "full": (0, 1, 2)},
    chosen=CHOSEN,
    importance=4,
)

EXPERIMENTS = (LOCALITY_DIGITS, LOCALITY_CIFAR10)
