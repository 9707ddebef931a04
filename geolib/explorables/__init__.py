"""Figures under the reader's hand: one JavaScript module and one small Python class each.

    from geolib.explorables import RopeClock
    RopeClock(query=12, key=5)

They need anywidget (``pip install anywidget``), which is loaded with the first of them and not before. The traits of a
class are live both ways: setting one moves the picture, moving a slider sets it.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from geolib.explorables.circle import AttentionCircle
    from geolib.explorables.clock import RopeClock
    from geolib.explorables.commutator import TwoOrders
    from geolib.explorables.conformal import ConformalScale
    from geolib.explorables.gates import GateCurves
    from geolib.explorables.liere import LiereGrid
    from geolib.explorables.live import LiveModel
    from geolib.explorables.locality import LocalityFocus
    from geolib.explorables.maps import ScoreMaps
    from geolib.explorables.memory import LiveMemory
    from geolib.explorables.metric import GeneralMetric
    from geolib.explorables.mirrors import TwoMirrors
    from geolib.explorables.notebook import LabNotebook
    from geolib.explorables.page import PageLeft
    from geolib.explorables.plaquettes import Plaquettes
    from geolib.explorables.powers import EvenPowers
    from geolib.explorables.scale import ScaleSlider
    from geolib.explorables.skew import SkewExponential
    from geolib.explorables.spaces import ThreeSpaces
    from geolib.explorables.sphere import SphereTransport
    from geolib.explorables.state import ConformalState
    from geolib.explorables.time import StepTime

__all__ = [
    "AttentionCircle",
    "ConformalScale",
    "ConformalState",
    "EvenPowers",
    "GateCurves",
    "GeneralMetric",
    "LabNotebook",
    "LiereGrid",
    "LiveMemory",
    "LiveModel",
    "LocalityFocus",
    "PageLeft",
    "Plaquettes",
    "RopeClock",
    "ScaleSlider",
    "ScoreMaps",
    "SkewExponential",
    "SphereTransport",
    "StepTime",
    "ThreeSpaces",
    "TwoMirrors",
    "TwoOrders",
]

_MODULES = {
    "AttentionCircle": "circle",
    "ConformalScale": "conformal",
    "ConformalState": "state",
    "EvenPowers": "powers",
    "GateCurves": "gates",
    "GeneralMetric": "metric",
    "LabNotebook": "notebook",
    "LiereGrid": "liere",
    "LiveMemory": "memory",
    "LiveModel": "live",
    "LocalityFocus": "locality",
    "PageLeft": "page",
    "Plaquettes": "plaquettes",
    "RopeClock": "clock",
    "ScaleSlider": "scale",
    "ScoreMaps": "maps",
    "SkewExponential": "skew",
    "SphereTransport": "sphere",
    "StepTime": "time",
    "ThreeSpaces": "spaces",
    "TwoMirrors": "mirrors",
    "TwoOrders": "commutator",
}


def __getattr__(name: str) -> type:
    """Load an explorable's module when its class is first asked for."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    """The names a reader may complete."""
    return sorted(__all__)
