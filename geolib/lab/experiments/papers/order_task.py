"""Does a curved transport help where the order of steps along a way decides: boards on which a ball is tipped."""

from __future__ import annotations

from geolib.lab.experiments.papers.digits import at_scales
from geolib.lab.experiments.plan import Experiment, Variant

SETTINGS = {"width": 32, "heads": 2, "layers": 1, "mlp_ratio": 2.0, "batch": 32, "lr": 5e-3, "warmup": 60}
_TWO_LAYERS = {scale: {"layers": 2} for scale in ("smoke", "cpu", "full")}
_ROWS = {
    "none": "none",
    "rope-axial": "RoPE, axial",
    "rope-axial-2": "RoPE, axial, two layers",
    "compass": "compass along both L-shaped paths (curved)",
    "compass-2": "the same, two layers",
    "compass-commuting": "compass about one axis (curved, commuting)",
    "compass-comb": "compass made flat: the same steps along a comb",
    "compass-order": "compass in reading order (flat)",
    "compass-frames": "compass of frames (flat; no places)",
}

TURNS = Experiment(
    name="grid-turns",
    about="which way a ball twists that is tipped along a row and then a column, or along a drawn staircase",
    datasets=("turns", "turns-stairs"),
    methods=_ROWS,
    variants={
        "rope-axial-2": Variant("rope-axial", settings=_TWO_LAYERS),
        "compass-2": Variant("compass", settings=_TWO_LAYERS),
        "compass-commuting": Variant("compass", {"transport": "commuting"}),
        "compass-comb": Variant("compass", {"transport": "comb"}),
        "compass-order": Variant("compass", {"transport": "order"}),
        "compass-frames": Variant("compass", {"transport": "frames"}),
    },
    settings=at_scales(SETTINGS, epochs=6),
    seeds={"smoke": (0,), "cpu": tuple(range(10)), "full": (0, 1, 2, 3, 4)},
    parts={
        "cpu": [(row, "turns") for row in _ROWS]
        + [(row, "turns-stairs") for row in ("rope-axial", "compass", "compass-comb", "compass-frames")]
    },
    against=(("compass", "compass-comb"), ("compass", "rope-axial")),
    importance=3,
)

_DIAL = ("compass", "compass-commuting", "compass-comb", "compass-order", "rope-axial")

DIAL = Experiment(
    name="grid-dial",
    about="the same boards, asked for counts of letters, for their order, and for sums of both",
    datasets=("turns-0", "turns-0.5", "turns-2", "turns"),
    methods={row: _ROWS[row] for row in _DIAL} | {"rope-mixed": "RoPE-Mixed", "liere": "LieRE"},
    variants={row: TURNS.variants[row] for row in _DIAL if row in TURNS.variants},
    settings=TURNS.settings,
    seeds=TURNS.seeds,
    against=(("compass", "compass-commuting"), ("compass", "compass-comb")),
    importance=2,
)

EXPERIMENTS = (TURNS, DIAL)
