"""Data: sets of images, how they are augmented, and the batches of an epoch."""

from geolib.lab.data.sets import load

__all__ = ["load"]
