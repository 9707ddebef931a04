"""Data: sets of images, how they are augmented, and the batches of an epoch."""

from geolib.lab.data.sets import DATASETS, FOLDER_VARIABLE, Dataset, Spec, load, patch_grid, prepare, spec

__all__ = ["DATASETS", "FOLDER_VARIABLE", "Dataset", "Spec", "load", "patch_grid", "prepare", "spec"]
