"""What the tests know of each registered method and wrapper, in one place: a new one is an entry here.

The tests that run over the registry read these entries, and say what is missing where a name has none. The oracles, in
``oracles.py``, are the methods again by other means; that of a new method may stand here as well.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import oracles

from geolib.encodings import PerLayer

# The model whose saved keys the entries hold.
SAVED = {"width": 48, "heads": 2, "grid": (3, 4), "layers": 2}


@dataclass(frozen=True)
class Method:
    """One name of the registry.

    Attributes
    ----------
    oracle : function of (encoding, grid, dim, layer, head) that returns an ``oracles.Oracle``
        The method again, in float64, one query and one key at a time.
    keys : mapping from a saved key to its shape, for the model ``SAVED``
        None of them may be renamed or dropped: a saved model would not load.
    options : mapping from each of its options to a value away from the default
    turns : bool
        Whether queries and keys are changed on their way to the reference space.
    added : function of (encoding, width, position) that returns what is added to the embeddings, or None
    any_axes : bool
        Whether it takes positions with any number of axes, whatever its grid has.
    of_cells : bool
        Whether positions can only be whole numbers on the grid.
    of_data : bool
        Whether gates are read from what the layer reads.
    smooth : bool
        Whether its numbers have a derivative by every position: not |m - n|, where both are the same.
    relative : number
        On how many axes at most its weights depend on differences of positions alone.
    """

    oracle: Callable[..., oracles.Oracle]
    keys: Mapping[str, Sequence[int]] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    turns: bool = False
    added: Callable[..., Any] | None = None
    any_axes: bool = False
    of_cells: bool = False
    of_data: bool = False
    smooth: bool = True
    relative: float = math.inf


@dataclass(frozen=True)
class Wrapper:
    """What may follow a method's name: its oracle around that of the method inside, and its options."""

    oracle: Callable[..., oracles.Oracle]
    inside: Callable[[Any], Any] = lambda encoding: encoding.encoding
    options: Mapping[str, Any] = field(default_factory=dict)
    smooth: bool = True
    relative: float = math.inf


def alone(oracle):
    """The oracle of a wrapper around nothing."""
    return lambda encoding, grid, dim, *place: oracle(oracles.Oracle(encoding, grid, dim), encoding, grid, dim, *place)


def sines(encoding, width, p):
    """Sines and cosines in turn, at the frequencies of axial RoPE."""
    pairs = oracles.axial(width, len(p), 10000.0)
    return np.array([f(p[axis] * theta) for theta, axis in pairs for f in (math.sin, math.cos)])


def own_vector(encoding, width, p):
    """The vector of a cell."""
    return oracles.number(encoding.vectors)[tuple(p.astype(int))]


FOCUSED = {"sigma": 0.7, "per_position": True, "per_layer": True, "learn_precision": False}
FOCUSED_KEYS = {"log_sigma": (2, 1), "raw_precision": (2, 2)}
METRIC = {"base": 7.0, "law": "slow", "law_options": {"alpha": 0.5}, "far": 0.5}
METRIC |= {"learn_angles": True, "per_head": False, "per_layer": True}


def riemannian(oracle, scales=(2, 2)):
    """An entry of RiemannFormer's kind."""
    return Method(oracle, {"raw_scale": scales}, METRIC, turns=True, relative=0)


METHODS = {
    "none": Method(oracles.Oracle),
    "sinusoidal": Method(oracles.Oracle, options={"base": 7.0}, added=sines),
    "learned": Method(
        oracles.Oracle, keys={"vectors": (3, 4, 48)}, options={"std": 0.2}, added=own_vector, of_cells=True
    ),
    "rope": Method(oracles.Rope, options={"base": 7.0}, turns=True),
    "rope-axial": Method(oracles.Axial, options={"base": 7.0}, turns=True),
    "visionllama": Method(oracles.Visionllama, options={"base": 7.0}, turns=True),
    "rope-pair": Method(oracles.RopePair, options={"turn": 0.9}, turns=True),
    "spherical": Method(oracles.Spherical, options={"base": 7.0}, turns=True, relative=1),
    "alibi": Method(oracles.Alibi, options={"slopes": (0.5, 0.1)}, smooth=False),
    "rmt": Method(oracles.Rmt, options={"slopes": "alibi"}, smooth=False),
    "liere": Method(
        oracles.LieRE,
        keys={"generators": (2, 2, 1, 2, 276)},
        options={"block": 4, "share": "all", "scale": 0.5},
        turns=True,
        relative=1,
    ),
    "rope-mixed": Method(
        oracles.RopeMixed, keys={"generators": (2, 2, 12, 2, 1)}, options={"base": 7.0, "share": "all"}, turns=True
    ),
    "riemannformer": riemannian(oracles.Riemannian),
    "riemannformer-general": riemannian(oracles.RiemannianGeneral, (2, 12, 2)),
    "riemannformer-diagonal": riemannian(oracles.RiemannianDiagonal, (2, 12, 2)),
    "riemannformer-reflection": riemannian(oracles.RiemannianReflection),
    "riemannformer-relative": replace(riemannian(oracles.RiemannianRelative), relative=math.inf),
    "sympow-gates": Method(
        oracles.SympowGates,
        keys={"W_gamma.weight": (2, 48)},
        options={"longest": 50.0, "gate_bias": 0.0},
        turns=True,
        of_data=True,
    ),
    # It carries vectors of its own, inside the softmax: tests/test_compass.py.
    "compass": Method(
        oracles.CompassPaths,
        keys={"W_u.weight": (18, 48), "W_w.weight": (18, 48), "W_turn.weight": (12, 48), "W_turn.bias": (12,)},
        options={"transport": "frames", "vectors": 2},
        of_data=True,
        smooth=False,
    ),
    "lf": Method(alone(oracles.Focused), keys=FOCUSED_KEYS, options=FOCUSED),
    "gauss": Method(alone(oracles.Gauss), keys=FOCUSED_KEYS, options=FOCUSED),
}


def first_part(encoding):
    """What is composed with another."""
    return encoding.parts[0]


WRAPPERS = {
    "lf": Wrapper(oracles.Focused, options=FOCUSED),
    "gauss": Wrapper(oracles.Gauss, options=FOCUSED),
    "sympow": Wrapper(oracles.Powered, options={"power": 4}),
    "alibi": Wrapper(oracles.WithAlibi, first_part, {"slopes": (0.5, 0.1)}, smooth=False),
    "rmt": Wrapper(oracles.WithRmt, first_part, {"slopes": "alibi"}, smooth=False),
}


def oracle(name, encoding, grid, dim, layer=0, head=0):
    """The oracle of a name in the registry, with wrappers or without; of a layer's own where each has one."""
    *inner, last = name.split("+")
    own = encoding.layers[layer] if isinstance(encoding, PerLayer) else encoding
    if not inner:
        return METHODS[last].oracle(own, grid, dim, layer, head)
    inside = oracle("+".join(inner), WRAPPERS[last].inside(encoding), grid, dim, layer, head)
    return WRAPPERS[last].oracle(inside, own, grid, dim, layer, head)
