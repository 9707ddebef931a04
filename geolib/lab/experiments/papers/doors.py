"""Does a model use positions, and through which door do they enter: digits cut into 16 patches, and then shuffled."""

from __future__ import annotations

from collections.abc import Iterable

from geolib.lab.experiments.papers.digits import SETTINGS
from geolib.lab.experiments.plan import Experiment
from geolib.lab.experiments.tables import by_row
from geolib.lab.experiments.text import Table, spread
from geolib.lab.records import Record


def door_table(experiment: Experiment, scale: str, records: Iterable[Record]) -> Table:
    """Accuracy of each row with its test images as they are and with their patches shuffled, in percent.

    Mean ± standard deviation over seeds.

    Source: RF-PE.
    """

    def columns(found: list[Record]) -> list[str]:
        shuffled = [record.learned["shuffled_accuracy"] for record in found]
        return [spread([record.accuracy for record in found]), spread(shuffled)]

    about = "test accuracy in %, patches in place and shuffled"
    return by_row(experiment, scale, records, about, ["positions", "in place", "shuffled"], columns)


SIXTEEN = {**SETTINGS, "patch": 2}

DOORS = Experiment(
    name="digits-doors",
    about="whether a model uses positions: 8x8 digits as 16 patches, tested in place and with their patches shuffled",
    datasets=("digits",),
    methods={
        "none": "none",
        "sinusoidal": "embedding: sinusoidal",
        "learned": "embedding: learned",
        "rope-axial": "inner product: RoPE, axial",
        "alibi": "weights, inside the softmax: ALiBi",
        "lf": "weights, after the softmax: locality focusing",
    },
    settings={
        "smoke": {**SIXTEEN, "epochs": 1, "train_size": 128, "test_size": 64},
        "cpu": {**SIXTEEN, "epochs": 10},
        "full": {**SIXTEEN, "epochs": 60},
    },
    seeds={"smoke": (0,), "cpu": (0, 1, 2), "full": (0, 1, 2, 3, 4)},
    importance=3,
    tabulate=door_table,
)

EXPERIMENTS = (DOORS,)
