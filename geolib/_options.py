"""The options of the methods by name, for type checkers and for ``help``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict


class Options(TypedDict, total=False):
    """What ``build`` takes by name beside the sizes of a model; ``options_of`` has those of one method."""

    base: float
    std: float
    slopes: str | Sequence[float]
    turn: float
    law: str
    law_options: dict[str, float] | None
    far: float
    learn_angles: bool
    per_head: bool
    per_layer: bool
    per_position: bool
    sigma: float | None
    learn_precision: bool
    share: str
    block: int | None
    scale: float
    longest: float
    gate_bias: float
    transport: str
    vectors: int
    lf: dict[str, Any]
    gauss: dict[str, Any]
    alibi: dict[str, Any]
    rmt: dict[str, Any]
    sympow: dict[str, Any]
