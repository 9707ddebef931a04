"""Does a model use positions, and through which door do they enter: digits cut into 16 patches, and then shuffled."""

from __future__ import annotations

from collections.abc import Iterable

from geolib.lab.experiments.papers.digits import SEEDS, SETTINGS, at_scales
from geolib.lab.experiments.plan import Experiment
from geolib.lab.experiments.tables import by_row
from geolib.lab.experiments.text import Table, spread
from geolib.lab.records import Record


def _door_table(experiment: Experiment, scale: str, records: Iterable[Record]) -> Table:
    """Accuracy of each row with its test images as they are and with their patches shuffled, in percent.

    Mean ± standard deviation over seeds.

    Source: RF-PE.
    """

    def columns(found: list[Record]) -> list[str]:
        shuffled = [record.learned["shuffled_accuracy"] for record in found]
        return [spread([record.accuracy for record in found]), spread(shuffled)]

    about = "test accuracy in %, patches in place and shuffled"
    return by_row(experiment, scale, records, about, ["positions", "in place", "shuffled"], columns)


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
    settings=at_scales({**SETTINGS, "patch": 2}, epochs=10),
    seeds=SEEDS,
    importance=3,
    tabulate=_door_table,
)

EXPERIMENTS = (DOORS,)
