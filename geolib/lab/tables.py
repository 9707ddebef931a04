"""The name under which chapters know ``geolib.lab.experiments.tables`` and ``statistics``."""

from geolib.lab.experiments.statistics import paired_differences, sampling_error
from geolib.lab.experiments.tables import cells_of, difference_table, table

__all__ = ["cells_of", "difference_table", "paired_differences", "sampling_error", "table"]
