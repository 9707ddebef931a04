"""Experiments: what is run, how long it takes, and the tables that come of it."""

from geolib.lab.experiments.estimates import Estimate, estimate, h100_seconds
from geolib.lab.experiments.plan import SCALES, Experiment, Variant
from geolib.lab.experiments.registry import EXPERIMENTS, find
from geolib.lab.experiments.statistics import PairedDifference, paired_differences, sampling_error
from geolib.lab.experiments.tables import difference_table, table
from geolib.lab.experiments.text import NO_METHOD, NO_RECORD, Table

__all__ = [
    "EXPERIMENTS",
    "NO_METHOD",
    "NO_RECORD",
    "SCALES",
    "Estimate",
    "Experiment",
    "PairedDifference",
    "Table",
    "Variant",
    "difference_table",
    "estimate",
    "find",
    "h100_seconds",
    "paired_differences",
    "sampling_error",
    "table",
]
