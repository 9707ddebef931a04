"""The experiments by name."""

from __future__ import annotations

from geolib.lab.experiments import digits, riemannformer, shifts
from geolib.lab.experiments.plan import Experiment
from geolib.lab.files import LabError

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment for experiment in (*digits.EXPERIMENTS, *shifts.EXPERIMENTS, *riemannformer.EXPERIMENTS)
}


def find(name: str) -> Experiment:
    """An experiment by name; LabError for an unknown one."""
    if name not in EXPERIMENTS:
        raise LabError(f"unknown experiment {name!r}; there are {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]
