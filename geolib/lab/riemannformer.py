"""The name under which chapters know ``geolib.lab.experiments.papers.riemannformer``."""

from geolib.lab.experiments.papers.riemannformer import FROZEN, choose

__all__ = ["FROZEN", "choose"]
