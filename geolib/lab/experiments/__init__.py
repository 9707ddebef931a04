"""Experiments: what is run, how long it takes, and the tables that come of it."""

from geolib.lab.experiments.estimates import Estimate, estimate
from geolib.lab.experiments.plan import SCALES, Experiment, Variant
from geolib.lab.experiments.registry import EXPERIMENTS, find
from geolib.lab.experiments.statistics import (
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
    "SCALES",
    "Estimate",
    "Experiment",
    "PairedDifference",
    "Table",
    "Variant",
    "cells_of",
    "difference_error",
    "difference_table",
    "estimate",
    "find",
    "mcnemar",
    "paired_differences",
    "sampling_error",
    "table",
    "verdict",
]
