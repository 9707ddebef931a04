"""Experiments: what is run, and the tables and statistics that come of it; by these names for notebooks."""

from geolib.lab.experiments.plan import Experiment
from geolib.lab.experiments.registry import EXPERIMENTS, find
from geolib.lab.experiments.stats import (
    PairedDifference,
    difference_error,
    mcnemar,
    paired_differences,
    sampling_error,
    verdict,
)
from geolib.lab.experiments.tables import cells_of, difference_table, table
from geolib.lab.experiments.text import Table

__all__ = [
    "EXPERIMENTS",
    "Experiment",
    "PairedDifference",
    "Table",
    "cells_of",
    "difference_error",
    "difference_table",
    "find",
    "mcnemar",
    "paired_differences",
    "sampling_error",
    "table",
    "verdict",
]
