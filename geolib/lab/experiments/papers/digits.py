"""What a position is worth on scikit-learn's digits: an experiment that needs no download."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from geolib.lab.experiments.plan import Experiment

SETTINGS = {"width": 48, "heads": 4, "layers": 3, "mlp_ratio": 2.0, "batch": 24, "lr": 3e-3, "warmup": 60}
SEEDS = {"smoke": (0,), "cpu": (0, 1, 2), "full": (0, 1, 2, 3, 4)}


def at_scales(settings: Mapping[str, Any], epochs: int = 12) -> dict[str, dict[str, Any]]:
    """Settings by scale: a glimpse, the epochs that a laptop has time for, and sixty."""
    return {
        "smoke": {**settings, "epochs": 1, "train_size": 128, "test_size": 64},
        "cpu": {**settings, "epochs": epochs},
        "full": {**settings, "epochs": 60},
    }


ENCODINGS = Experiment(
    name="digits-encodings",
    about="what a position is worth: 8x8 digits as 64 tokens of one pixel",
    datasets=("digits",),
    methods={
        "none": "none",
        "sinusoidal": "sinusoidal",
        "learned": "learned",
        "rope": "RoPE, reading order",
        "rope-axial": "RoPE, axial",
    },
    settings=at_scales(SETTINGS),
    seeds=SEEDS,
    importance=3,
)

EXPERIMENTS = (ENCODINGS,)
