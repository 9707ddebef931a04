"""The name under which chapters know ``geolib.lab.experiments.tables`` and ``statistics``."""

from geolib.lab.experiments.statistics import difference_error, mcnemar, paired_differences, sampling_error
from geolib.lab.experiments.tables import cells_of, difference_table, table

__all__ = [
    "cells_of",
    "difference_error",
    "difference_table",
    "mcnemar",
    "paired_differences",
    "sampling_error",
    "table",
]
