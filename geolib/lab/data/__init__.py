"""The data sets, how images are augmented, and how documents are cut into windows."""

from geolib.lab.data.sets import load as load
