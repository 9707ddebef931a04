"""The experiments by name: all that the files in ``experiments.papers`` define."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

from geolib.lab.experiments import papers
from geolib.lab.experiments.plan import Experiment, Pipeline
from geolib.lab.files import LabError


def files() -> list[ModuleType]:
    """The modules in ``experiments.papers``, by name."""
    names = sorted(module.name for module in pkgutil.iter_modules(papers.__path__))
    return [importlib.import_module(f"{papers.__name__}.{name}") for name in names]


def collected() -> dict[str, Experiment]:
    """The experiments of every file; LabError when two have one name."""
    found = [experiment for file in files() for experiment in file.EXPERIMENTS]
    experiments = {experiment.name: experiment for experiment in found}
    if len(experiments) < len(found):
        raise LabError(f"two experiments have one name among {', '.join(e.name for e in found)}")
    return experiments


EXPERIMENTS: dict[str, Experiment] = collected()
PIPELINES: dict[str, Pipeline] = {
    pipeline.name: pipeline for file in files() for pipeline in getattr(file, "PIPELINES", ())
}


def find(name: str) -> Experiment:
    """An experiment by name; LabError for an unknown one."""
    if name not in EXPERIMENTS:
        raise LabError(f"unknown experiment {name!r}; there are {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]


def find_runnable(name: str) -> Experiment | Pipeline:
    """An experiment or a pipeline of several by name; LabError for an unknown one."""
    return PIPELINES[name] if name in PIPELINES else find(name)
