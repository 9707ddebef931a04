"""Experiments: what is run, and the tables and statistics that come of it; those of ``experiments.papers`` by name."""

import importlib
import pkgutil

from geolib.lab.experiments import papers
from geolib.lab.experiments.plan import Experiment
from geolib.lab.experiments.stats import (
    PairedDifference,
    difference_error,
    disagreement,
    holm,
    mcnemar,
    paired_differences,
    sampling_error,
    verdict,
)
from geolib.lab.experiments.tables import Table, cells_of, difference_table, strongest, table
from geolib.lab.files import LabError

__all__ = ["EXPERIMENTS", "Experiment", "PairedDifference", "Table", "cells_of", "difference_error", "difference_table"]
__all__ += ["disagreement", "find", "holm", "mcnemar", "paired_differences", "sampling_error", "strongest", "table"]
__all__ += ["verdict"]


def collected() -> dict[str, Experiment]:
    """The experiments of every file in ``experiments.papers``, by name; LabError when two have one name."""
    names = sorted(module.name for module in pkgutil.iter_modules(papers.__path__))
    files = [importlib.import_module(f"{papers.__name__}.{name}") for name in names]
    found = [experiment for file in files for experiment in file.EXPERIMENTS]
    experiments = {experiment.name: experiment for experiment in found}
    if len(experiments) < len(found):
        raise LabError(f"two experiments have one name among {', '.join(e.name for e in found)}")
    return experiments


EXPERIMENTS: dict[str, Experiment] = collected()


def find(name: str) -> Experiment:
    """An experiment by name; LabError for an unknown one."""
    if name not in EXPERIMENTS:
        raise LabError(f"unknown experiment {name!r}; there are {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]
