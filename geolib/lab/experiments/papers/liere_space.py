"""LieRE's experiments with three axes: voxels of objects, and clips of digits that move in place of UCF101."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from geolib.lab.experiments.papers.liere import (
    AGAINST,
    CHOSEN,
    MODEL,
    TINY,
    TITLES,
    block_titles,
    blocks_of,
    deviation_table,
)
from geolib.lab.experiments.plan import Experiment, Variant

_ROWS = ("learned", "visionllama", "liere-2", "liere-8", "liere-64", "rope-axial", "spherical", "none")
_PAIRS = tuple(pair for pair in AGAINST if set(pair) <= set(_ROWS))
# Appendix B.2: batches of 64. Volumes and clips are not augmented; the azimuths of an object are views of their own.
_FULL: dict[str, Any] = {**TINY, "batch": 64, "augment": "none"}

# Voxels -------------------------------------------------------------------------------------------------------------

_VOXELS: dict[str, Any] = {**MODEL, "epochs": 5, "batch": 32, "train_size": 1500, "test_size": 740, "eval_every": 5}
# All azimuths of all objects, minutes a run on one core. Settled before the first seed: with one seed a difference of
# two rows counts as seen from 7 points on, two standard errors; at the CPU scale seeds scatter a difference by up to
# 2.6 points, and other test objects would by 3, were two models to disagree on one in six of 185 whose views err
# together. With three seeds: `verdict` of the 95 % interval of the differences at equal seeds. Where these scatter by 2
# points it reaches 5 to either side: the paper's steps on films, 1.3 and 2.0, could not be told from 0, its 7 on images
# from RoPE to RoPE-Mixed would be seen.
_ALL_VOXELS = {**_VOXELS, "epochs": 12, "train_size": None, "test_size": None, "eval_every": 4}
_FINE = {scale: {"patch": 4} for scale in ("smoke", "cpu", "full")}
_FINE_ROWS = ("learned", "visionllama", "liere-2", "liere-8", "liere-64", "none")
_VOXEL_VARIANTS = blocks_of(2, 4, 8, 12, 16, 32, 64)


def _fine(row: str) -> Variant:
    """A row with patches of 4 voxels."""
    of = _VOXEL_VARIANTS.get(row, Variant(row))
    return Variant(of.method, of.options, _FINE)


VOXELS = Experiment(
    name="liere-voxels",
    about="positions in space: ModelNet10's objects as voxels, tested on objects held out; block widths; fine patches",
    source="LR-3D, LR-F4a",
    datasets=("modelnet10",),
    methods={row: TITLES[row] for row in _ROWS}
    | {f"liere-{b}": f"LieRE, width {b} (ours)" for b in (4, 12, 16, 32)}
    | {f"{row}@4": f"{TITLES[row]}, patches of 4 voxels" for row in _FINE_ROWS},
    variants=_VOXEL_VARIANTS | {f"{row}@4": _fine(row) for row in _FINE_ROWS},
    against=_PAIRS,
    settings={
        "smoke": {**_VOXELS, "layers": 1, "epochs": 1, "train_size": 64, "test_size": 32},
        "cpu": _VOXELS,
        "laptop": _ALL_VOXELS,
        "full": {**_FULL, "epochs": 50},
    },
    seeds={"smoke": (0,), "cpu": (0, 1, 2), "laptop": (0, 1, 2), "full": (0, 1, 2)},
    parts={
        "smoke": [(row, "modelnet10") for row in (*_ROWS, "learned@4", "liere-8@4")],
        "cpu": [(row, "modelnet10") for row in _ROWS],
        "laptop": [(row, "modelnet10") for row in _ROWS[:5]],
        "full": [
            (row, "modelnet10")
            for row in (*_ROWS, "liere-4", "liere-16", "liere-32", *(f"{row}@4" for row in _FINE_ROWS))
        ],
    },
    chosen=f"{CHOSEN} The paper has no voxels: sizes and settings are those of its videos, 50 epochs of all azimuths.",
    importance=2,
    tabulate=deviation_table,
)

_ONE_SEED = replace(VOXELS, seeds={"smoke": (0,), "cpu": (0,)}, parts={})

VOXEL_BLOCKS = replace(
    _ONE_SEED,
    name="liere-voxel-blocks",
    about="LieRE's block width with three axes: ModelNet10's voxels",
    source="LR-F4a",
    methods=block_titles((2, 4, 8, 12, 64)),
    against=tuple((f"liere-{b}", "liere-2") for b in (4, 8, 12, 64)),
    importance=3,
)

_BOTH = [f"{row}{fine}" for row in ("liere-8", "learned", "none") for fine in ("@4", "")]

VOXEL_PATCHES = replace(
    _ONE_SEED,
    name="liere-voxel-patches",
    about="voxels in patches of 4 beside patches of 8: 512 tokens an object beside 64",
    source="LR-3D",
    methods={row: VOXELS.methods[row] for row in _BOTH},
    against=tuple((f"{row}@4", row) for row in ("liere-8", "learned", "none")),
    parts={scale: [(row, "modelnet10") for row in _BOTH] for scale in ("smoke", "cpu")},
    importance=4,
)

# Motion -------------------------------------------------------------------------------------------------------------

_MOTION: dict[str, Any] = {**MODEL, "epochs": 5, "batch": 32, "train_size": 1600, "test_size": 1000}

MOTION = Experiment(
    name="liere-motion",
    about="positions in space and time: clips of a digit that moves, the class is its path; in place of UCF101",
    source="LR-3D, LR-T1",
    datasets=("motion",),
    methods={row: TITLES[row] for row in _ROWS},
    variants=blocks_of(2, 8, 64),
    against=_PAIRS,
    settings={
        "smoke": {**_MOTION, "layers": 1, "epochs": 1, "train_size": 64, "test_size": 32},
        "cpu": _MOTION,
        "full": {**_FULL, "epochs": 50},
    },
    seeds={"smoke": (0,), "cpu": (0, 1, 2), "full": (0, 1, 2)},
    chosen=f"{CHOSEN} The clips are rendered and stand in for UCF101: no number of the paper is theirs.",
    importance=2,
    tabulate=deviation_table,
)

EXPERIMENTS = (VOXELS, VOXEL_BLOCKS, VOXEL_PATCHES, MOTION)
