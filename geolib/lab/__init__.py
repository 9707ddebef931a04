"""The lab: data, a small vision transformer, a training loop, and a record of each run.

From a shell: ``python -m geolib.lab list``. In a notebook, after ``from geolib.lab import Config, run``::

    record = run(Config(dataset="digits", method="rope", epochs=8))
    record.accuracy                     # of the last epoch, on the test images, in [0, 1]
    record.curve("test_accuracy")       # epoch by epoch
"""

from geolib.lab.config import Config
from geolib.lab.data.sets import Dataset, load
from geolib.lab.files import LabError
from geolib.lab.records import Record, read_all, run
from geolib.lab.train import train

__all__ = ["Config", "Dataset", "LabError", "Record", "load", "read_all", "run", "train"]
