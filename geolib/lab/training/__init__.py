"""Training: the loop, its step, the optimiser, the checkpoint, and what watches over them.

The room is not called ``train``: that is the function, ``geolib.lab.train``.
"""

from geolib.lab.training.device import pick_device
from geolib.lab.training.documents import Reading
from geolib.lab.training.loop import Run, train
from geolib.lab.training.optimiser import learning_rate
from geolib.lab.training.options import Options
from geolib.lab.training.watch import Diverged, Stopped

__all__ = ["Diverged", "Options", "Reading", "Run", "Stopped", "learning_rate", "pick_device", "train"]
