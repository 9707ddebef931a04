"""The models that stand in the page: small enough to be sent there, trained to read what a reader draws.

Each is trained on digits of 8x8 tokens that stand at the positions 0 ... 7 along both axes, and tested there, at
positions moved by 1 to 4 along both, and with its patches shuffled. The reader moves them by hand.
"""

from __future__ import annotations

from geolib.lab.experiments.papers.shifts import shift_table
from geolib.lab.experiments.plan import Experiment, Variant

SETTINGS = {"width": 32, "heads": 2, "layers": 2, "mlp_ratio": 2.0, "batch": 48, "lr": 3e-3, "warmup": 100}
MOVES = (1, 2, 3, 4)
HELD_OUT = 200

LIVE = Experiment(
    name="digits-live",
    about="the models that the page holds: digits read in place, moved by 1 to 4 patches, and shuffled",
    datasets=("digits-varied",),
    methods={
        "none": "none",
        "sinusoidal": "sinusoidal",
        "learned": "learned",
        "rope-axial": "RoPE, axial",
        "rope-mixed": "RoPE-Mixed",
        "liere-8": "LieRE, blocks of 8",
        "alibi": "ALiBi",
        "riemannformer": "RiemannFormer",
        "riemannformer+lf": "RiemannFormer, locality focusing",
    },
    variants={"liere-8": Variant("liere", {"block": 8})},
    settings={
        "smoke": {**SETTINGS, "epochs": 1, "train_size": 192, "test_size": 48, "shifts": MOVES},
        "cpu": {**SETTINGS, "epochs": 20, "test_size": HELD_OUT, "shifts": MOVES},
        "full": {**SETTINGS, "epochs": 60, "test_size": HELD_OUT, "shifts": MOVES},
    },
    seeds={"smoke": (0,), "cpu": (0,), "full": (0, 1, 2)},
    importance=3,
    tabulate=shift_table,
)

EXPERIMENTS = (LIVE,)
