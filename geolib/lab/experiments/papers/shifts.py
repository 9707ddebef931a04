"""Where the difference of two positions is all that counts: digits, trained in one place and tested in another.

``digits-shift`` moves the positions and leaves the pixels: 8x8 digits trained at positions 0 ... 7 along both axes are
tested at c ... 7 + c. ``digits-field`` carries the picture across a blank field whose edges stay where they are.
"""

from __future__ import annotations

from collections.abc import Iterable

from geolib.lab.experiments.papers.digits import SEEDS, SETTINGS, at_scales
from geolib.lab.experiments.plan import Experiment, Variant
from geolib.lab.experiments.tables import by_row
from geolib.lab.experiments.text import Table, spread
from geolib.lab.records import Record

MOVES = (1, 2, 3, 4, 6, 8, 12, 16)  # patches: twice the grid at most


def accuracies(record: Record) -> dict[int, float]:
    """From each shift of a record of ``digits-shift`` or ``digits-field`` to the accuracy there, in [0, 1].

    Shift 0 is the test accuracy; carried pictures where the record has them, else moved positions.
    """
    found = record.learned.get("carried_accuracy", record.learned.get("moved_accuracy", ()))
    return {0: record.accuracy} | dict(zip(record.config.shifts, found))


def deviations(records: Iterable[Record]) -> list[str]:
    """The mean shift deviation before training and after it, in words for a table."""
    kept = list(records)
    return [
        f"{sum(each) / len(each):.3f}" if (each := [r.learned[key] for r in kept if key in r.learned]) else "-"
        for key in ("shift_deviation_start", "shift_deviation")
    ]


def shift_table(experiment: Experiment, scale: str, records: Iterable[Record]) -> Table:
    """Accuracy of each row where nothing moved and at the shifts that are powers of two, in percent."""
    shifts = [0, *(shift for shift in experiment.settings[scale]["shifts"] if shift.bit_count() == 1)]

    def columns(records: list[Record]) -> list[str]:
        found = [accuracies(record) for record in records]
        return [spread([each[shift] for each in found]) for shift in shifts]

    about = "test accuracy in % by how far the test stands from the training"
    return by_row(experiment, scale, records, about, ["method", *map(str, shifts)], columns)


SHIFT = Experiment(
    name="digits-shift",
    about="what relativity buys: digits trained at positions 0 to 7, tested at positions moved by c along both axes",
    datasets=("digits",),
    methods={
        "none": "none",
        "sinusoidal": "sinusoidal",
        "learned": "learned",
        "rope": "RoPE, reading order",
        "rope-axial": "RoPE, axial",
        "riemannformer": "RiemannFormer, s near 1",
        "riemannformer-far": "RiemannFormer, s near 0.9",
    },
    variants={"riemannformer-far": Variant("riemannformer", {"far": 0.5})},
    settings=at_scales({**SETTINGS, "shifts": MOVES}),
    seeds=SEEDS,
    importance=3,
    tabulate=shift_table,
)

FIELD = Experiment(
    name="digits-field",
    about="what relativity does not buy: digits trained in the corner of a blank field, tested elsewhere in it",
    datasets=("digits-field",),
    methods={"none": "none", "sinusoidal": "sinusoidal", "learned": "learned", "rope-axial": "RoPE, axial"},
    # As far as the field's blank part allows, in patches of 2x2 pixels.
    settings=at_scales({**SETTINGS, "shifts": (1, 2, 3, 4)}),
    seeds=SEEDS,
    importance=3,
    tabulate=shift_table,
)

EXPERIMENTS = (SHIFT, FIELD)
