"""LieRE's Table 5 as rows: what ``geolib.lab.experiments.papers.liere_flops`` counts."""

from geolib.lab.experiments.papers.liere_flops import flop_rows as run

__all__ = ["run"]
