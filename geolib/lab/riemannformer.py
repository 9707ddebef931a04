"""The name under which chapters know ``geolib.lab.experiments.riemannformer``."""

from geolib.lab.experiments.riemannformer import FROZEN, choose

__all__ = ["FROZEN", "choose"]
