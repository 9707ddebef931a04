"""LieRE's block width on digits: heads of 12 features in blocks of 2 to 12, and how relative training leaves them."""

from __future__ import annotations

import math
from collections.abc import Iterable

from geolib.lab.experiments.papers.shifts import SHIFT, accuracies, deviations
from geolib.lab.experiments.plan import Experiment, Variant
from geolib.lab.experiments.tables import by_row
from geolib.lab.experiments.text import Table, spread
from geolib.lab.records import Record

WIDTHS = (2, 3, 4, 6, 12)  # all that divide a head of 12 features


def _equal_start(width: int) -> float:
    """The upper end of the uniform start for which the mean generator turns as fast as one of width 2 drawn to 2 pi.

    Source: LR-INIT.

    >>> _equal_start(2), _equal_start(12)
    (6.2832, 0.8272)
    """
    # The mean generator's top angle is high / 2 cot(pi / 2b): pi at b = 2.
    return round(2 * math.pi * math.tan(math.pi / (2 * width)), 4)


def _block_table(experiment: Experiment, scale: str, records: Iterable[Record]) -> Table:
    """Accuracy of each row in place and with its positions moved by 4 patches, its shift deviation, and two more.

    Mean ± standard deviation over seeds; accuracies in percent, shift deviations before and after training. The last
    two are accuracies with the nearest generators that commute, and with a random change as large.

    Source: LR-blk, LR-SHIFT.
    """

    def columns(found: list[Record]) -> list[str]:
        moved = [accuracies(record)[4] for record in found]
        read = [
            [r.learned[key] for r in found if key in r.learned] for key in ("commuting_accuracy", "shaken_accuracy")
        ]
        changed = [spread(each) or "-" for each in read]
        return [spread([record.accuracy for record in found]), spread(moved), *deviations(found), *changed]

    about = "test accuracy in %, and how far the rotations are from relative"
    header = ["method", "in place", "moved by 4", "deviation at the start", "trained", "commuting", "shaken"]
    return by_row(experiment, scale, records, about, header, columns)


# Settled before the runs that keep what moved and resized pictures make of other generators (``without_order``), 12
# pixels a side instead of 8. Expected: the commuting generators answer alike wherever they stand, so that moving them
# costs no picture but for rounding; in place and moved by 4 they are below the trained ones in every row, and so at 12
# pixels. What a projection costs tells of the order of turns only beside a random change as large. So "resized, the
# order of turns is used" counts as seen when at 12 pixels the commuting generators are below the shaken ones, with a
# paired 95 % interval over the three seeds above zero, in at least five of the eight rows; as refuted when they are
# above in five; else it is undecided.
BLOCKS = Experiment(
    name="digits-blocks",
    about="LieRE's block width on digits, 2 to 12 of a head's 12 features, from two starts; moved as in digits-shift",
    source="LR-blk",
    datasets=("digits",),
    methods={
        "none": "none",
        "rope-axial": "RoPE, axial",
        "rope-mixed": "RoPE-Mixed, its own start",
        **{f"liere-{b}": f"LieRE, width {b}" for b in WIDTHS},
        **{f"equal-{b}": f"LieRE, width {b}, equal start" for b in WIDTHS[1:]},
    },
    variants={
        **{f"liere-{b}": Variant("liere", {"block": b}) for b in WIDTHS},
        **{f"equal-{b}": Variant("liere", {"block": b, "scale": _equal_start(b)}) for b in WIDTHS[1:]},
    },
    against=(
        *((f"liere-{b}", "liere-2") for b in WIDTHS[1:]),
        *((f"equal-{b}", "liere-2") for b in WIDTHS[1:]),
        ("rope-mixed", "liere-2"),
        ("liere-2", "rope-axial"),
    ),
    settings=SHIFT.settings,
    seeds=SHIFT.seeds,
    chosen=(
        "Rows named by their width alone start as LieRE does, entries uniform on [0, 2 pi) with the image on the unit "
        "square. The equal start draws them from [0, 2 pi tan(pi / 2b)): then the mean generator's top angle is pi at "
        "every width b, as it is at b = 2."
    ),
    importance=3,
    tabulate=_block_table,
)

EXPERIMENTS = (BLOCKS,)
