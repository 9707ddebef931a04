"""LieRE's Table 5: operations of a forward pass, by size and method."""

from geolib.lab.experiments.papers.liere_flops import flop_rows as run  # noqa: F401
