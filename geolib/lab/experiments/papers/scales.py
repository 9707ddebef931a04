"""Which way a learned scale goes: RiemannFormer's s on digits under its laws, started from both sides of 1.

The settings are those of ``digits-shift``, so that the two share the runs of the bounded law and of no scale at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from geolib.lab.experiments.papers.shifts import SHIFT
from geolib.lab.experiments.plan import Experiment, Variant
from geolib.lab.experiments.tables import by_row
from geolib.lab.experiments.text import Table, spread
from geolib.lab.records import Record

_LAST = 7  # the last position along an axis of 8 pixels


def start_of(row: str) -> float:
    """Where s starts in a row of ``digits-scale``; 1 where it is not learned.

    >>> round(start_of("free-above"), 4), start_of("rope-axial")
    (1.0152, 1.0)

    Source: RF-6a.
    """
    variant = SCALE.variants.get(row)
    if variant is None:
        return 1.0 if row == "rope-axial" else 0.9 ** (1 / _LAST)
    options = variant.options
    return options.get("far", 0.9) ** (1 / (_LAST - options.get("law_options", {}).get("origin", 0.0)))


def scales_of(record: Record) -> np.ndarray:
    """The learned s of a record, one for each head and axis, flat; empty where the method has none."""
    return np.ravel(record.learned.get("scales", []))


def _scale_table(experiment: Experiment, scale: str, records: Iterable[Record]) -> Table:
    """Where s started, where it ended, how many of its numbers went up, and the test accuracy in percent.

    Accuracies are mean ± standard deviation over seeds.

    Source: RF-6a.
    """
    rows = {cell: row for cell, (row, _) in experiment.cells(scale).items()}

    def columns(found: list[Record]) -> list[str]:
        s = np.concatenate([scales_of(record) for record in found])
        start = start_of(rows[found[0].config.cell])
        ends = f"{s.min():.4f} to {s.max():.4f}" if s.size else "not learned"
        up = f"{(s > start).sum()} of {s.size}" if s.size else ""
        return [f"{start:.4f}", ends, up, spread([record.accuracy for record in found])]

    header = ["s", "starts at", "ends between", "went up", "accuracy"]
    return by_row(experiment, scale, records, "the learned s, and the test accuracy in %", header, columns)


def _free(method: str = "riemannformer", **options: Any) -> Variant:
    return Variant(method, {"law": "free", **options})


# From the middle of an axis the exponents run from -3.5 to 3.5: half as far, so the root of ``far``.
_MIDDLE: dict[str, Any] = {"law_options": {"origin": _LAST / 2}}

SCALE = Experiment(
    name="digits-scale",
    about="which way a learned scale goes: digits, the free and the bounded law, from both sides of 1",
    source="RF-6a",
    datasets=("digits",),
    methods={
        "rope-axial": "1, not learned (RoPE, axial)",
        "riemannformer": "bounded",
        "riemannformer-far": "bounded, far from 1",
        "free-below": "free, from below 1",
        "free-above": "free, from above 1",
        "free-far-below": "free, from far below 1",
        "free-far-above": "free, from far above 1",
        "middle-below": "free, counted from the middle, from below 1",
        "middle-above": "free, counted from the middle, from above 1",
        "relative-below": "free, queries by s, keys by 1/s, from below 1",
        "relative-above": "free, queries by s, keys by 1/s, from above 1",
    },
    variants={
        "riemannformer-far": SHIFT.variants["riemannformer-far"],
        "free-below": _free(),
        "free-above": _free(far=1 / 0.9),
        "free-far-below": _free(far=0.5),
        "free-far-above": _free(far=2.0),
        "middle-below": _free(far=0.9**0.5, **_MIDDLE),
        "middle-above": _free(far=0.9**-0.5, **_MIDDLE),
        "relative-below": _free("riemannformer-relative"),
        "relative-above": _free("riemannformer-relative", far=1 / 0.9),
    },
    settings=SHIFT.settings,
    seeds=SHIFT.seeds,
    importance=3,
    tabulate=_scale_table,
)

EXPERIMENTS = (SCALE,)
