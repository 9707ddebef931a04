"""The rows of a method, filled with the parameters of its module."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from geolib._checks import require
from geolib.attention import Encoding
from geolib.connection._shared import token_at
from geolib.connection.lattice import Connection, straight_path, transport_along
from geolib.connection.paths import cayley_rotation
from geolib.connection.rows import (
    AFTER,
    INSIDE,
    Row,
    alibi_row,
    gated_row,
    liere_row,
    locality_row,
    none_row,
    riemannformer_diagonal_row,
    riemannformer_general_row,
    riemannformer_relative_row,
    riemannformer_row,
    rope_row,
    spherical_row,
)
from geolib.rotations import block_diagonal, plane_generator

__all__ = ["ROWS", "Reading", "read_compass", "read_conformal", "rows_of"]


class Reading(NamedTuple):
    """Which head's parameters are read, and the document where they depend on it.

    Attributes
    ----------
    head_dim, head : int
        Features of a head, and which one.
    x : Tensor, (tokens, width), or None
        What the layer reads.
    positions : Tensor, (tokens, axes), or None
    layer : int
        Whose parameters, where layers have their own.

    >>> Reading(head_dim=24, head=1).layer
    0
    """

    head_dim: int
    head: int
    x: Tensor | None = None
    positions: Tensor | None = None
    layer: int = 0


def rows_of(
    encoding: Encoding,
    head_dim: int,
    head: int = 0,
    x: Tensor | None = None,
    positions: Tensor | None = None,
    layer: int = 0,
) -> tuple[Row, ...]:
    """A method's rows with the present parameters of its module: its own, then one for each wrapper around it.

    The score's matrix is the product of their bilinear forms; what they add inside the softmax adds up, and so do the
    logarithms of what they multiply after it. Sinusoidal and learned vectors are added to the embeddings, so their rows
    carry the identity. Arguments as of ``Reading``: x and positions for methods whose parameters depend on the
    document. ValueError for a class that has no line in ``ROWS``, or one that needs a document and gets none.

    >>> from geolib.encodings import build
    >>> encoding = build("alibi", width=48, heads=2, grid=(8,))
    >>> (row,) = rows_of(encoding, head_dim=24, head=1)
    >>> row.method, row.log_gate(torch.tensor([3.0]), torch.tensor([1.0])) == -2 * encoding.slopes[1].item()
    ('alibi', tensor(True))

    Source: RF-9, LR-A1, CS-3, CS-A1, RF-22 (the table of methods that joins them).
    """
    name = type(encoding).__name__
    require(name in ROWS, "encoding", name, f"the classes that have rows are {', '.join(ROWS)}")
    return ROWS[name](encoding, Reading(head_dim, head, x, positions, layer))


def _read(parameter: Tensor) -> Tensor:
    return parameter.detach().double()


def _own(parameter: Tensor, head: int) -> Tensor:
    """One head's part of a parameter whose first dimension is the heads, or 1 where they share it."""
    return _read(parameter)[min(head, len(parameter) - 1)]


def _filled(per_pair: Tensor, head_dim: int) -> Tensor:
    """Frequencies or rates (pairs, axes), with zeros for the pairs of a head that stay as they are."""
    return F.pad(per_pair, (0, 0, 0, head_dim // 2 - len(per_pair)))


def _embedded_rows(method: str, learned: str, encoding: Any, reading: Reading) -> tuple[Row, ...]:
    return (replace(none_row(reading.head_dim), method=method, learned=learned),)


def _rope_rows(encoding: Any, reading: Reading) -> tuple[Row, ...]:
    frequencies = encoding.frequencies
    per_pair = _own(frequencies, reading.head) if frequencies.dim() == 3 else _read(frequencies)
    return (rope_row(_filled(per_pair, reading.head_dim)),)


def _alibi_rows(encoding: Any, reading: Reading) -> tuple[Row, ...]:
    return (alibi_row(reading.head_dim, _own(encoding.slopes, reading.head).item()),)


def _manhattan_rows(encoding: Any, reading: Reading) -> tuple[Row, ...]:
    (row,) = _alibi_rows(encoding, reading)
    return (replace(row, method="rmt", acts=AFTER),)


def _gate_rows(encoding: Any, reading: Reading) -> tuple[Row, ...]:
    *inner, own = _locality_rows(encoding, reading)
    return *inner, replace(own, method="gauss", acts=INSIDE)


def _composed_rows(encoding: Any, reading: Reading) -> tuple[Row, ...]:
    return tuple(row for part in encoding.parts for row in rows_of(part, *reading))


def _planes(encoding: Any, reading: Reading) -> tuple[Tensor, Tensor]:
    """The frequencies of one head of RiemannFormer and which axes each pair follows, (pairs, axes) both."""
    follows = _read(encoding.follows)
    learned = encoding.frequencies.dim() == 3
    frequencies = _own(encoding.frequencies, reading.head) if learned else _read(encoding.frequencies)
    return _filled(frequencies * follows, reading.head_dim), _filled(follows, reading.head_dim)


def _one_scale_rows(row: Callable[..., Row], encoding: Any, reading: Reading) -> tuple[Row, ...]:
    """The metrics with one scale for each axis."""
    theta, follows = _planes(encoding, reading)
    theta = encoding.turns * theta  # mirrors turn the score twice as far as themselves
    rates = (follows * _own(encoding.log_scale(), reading.head)).repeat_interleave(2, 0)
    generators = torch.stack([plane_generator(along) for along in theta.unbind(-1)])
    return (row(generators, lambda p: rates @ encoding.law.exponent(p)),)


def _two_scale_rows(row: Callable[..., Row], encoding: Any, reading: Reading) -> tuple[Row, ...]:
    """The metrics with two scales for each plane."""
    theta, follows = _planes(encoding, reading)
    scales = _filled(_own(encoding.log_scale(), reading.head), reading.head_dim).flatten()[:, None]
    return (row(theta, scales * follows.repeat_interleave(2, 0), encoding.law.exponent),)


def _given(part: Tensor | None, argument: str) -> Tensor:
    """A part of the document that a row cannot do without."""
    if part is None:
        raise ValueError(f"{argument}: got None; this method's rows depend on the document")
    return part


def _locality_rows(encoding: Any, reading: Reading) -> tuple[Row, ...]:
    widths, shape = _own(encoding.sigma(), reading.head), _read(encoding.precision())
    rows = [locality_row(reading.head_dim, sigma.item(), shape) for sigma in widths]
    own = rows[0]
    if len(rows) > 1:  # one width for each query
        places = _given(reading.positions, "positions")
        own = replace(own, log_scale=lambda p_m, p_n: rows[token_at(places, p_m)].log_scale(p_m, p_n))
    return *rows_of(encoding.encoding, *reading), own


def _per_layer_rows(encoding: Any, reading: Reading) -> tuple[Row, ...]:
    return rows_of(encoding.layers[reading.layer], *reading)


def _per_layer_focusing_rows(encoding: Any, reading: Reading) -> tuple[Row, ...]:
    return *rows_of(encoding.encoding, *reading), rows_of(encoding.layers[reading.layer], *reading)[-1]


def _liere_rows(encoding: Any, reading: Reading) -> tuple[Row, ...]:
    generators = _own(_own(encoding.skew(), reading.layer), reading.head) / _read(encoding.unit)[:, None, None]
    if encoding.width == 2:  # planes, which commute
        frequencies = _filled(generators[..., 1, 0], reading.head_dim)
        return (replace(rope_row(frequencies), method="rope-mixed", learned="frequencies"),)
    whole = block_diagonal(generators.movedim(1, 0))  # (axes, d, d)
    still = reading.head_dim - whole.shape[-1]
    return (liere_row(F.pad(whole, (0, still, 0, still))),)


def _spherical_rows(encoding: Any, reading: Reading) -> tuple[Row, ...]:
    whole = block_diagonal(_read(encoding.generators()))  # (axes, d, d)
    still = reading.head_dim - whole.shape[-1]
    return (spherical_row(F.pad(whole, (0, still, 0, still))),)


def _sympow_rows(encoding: Any, reading: Reading) -> tuple[Row, ...]:
    x, positions = _given(reading.x, "x"), _given(reading.positions, "positions")
    log_gates = F.logsigmoid(_read(x) @ _own(encoding.W_gamma.weight, reading.head) + encoding.gate_bias)
    return (gated_row(log_gates, _filled(_read(encoding.frequencies), reading.head_dim), positions),)


def read_compass(compass: nn.Module, x: Tensor, head: int) -> Connection:
    """The steps of one head of a ``Compass`` for the cells' features x (cells, width), in float64.

    With ``CommutingCompass`` as well; the flat compasses have frames in place of steps: a ValueError.

    >>> from geolib.connection import Compass, plaquettes
    >>> steps = read_compass(Compass(8, heads=1, grid=(3, 4)), torch.randn(12, 8), head=0)
    >>> steps.shape, plaquettes(steps).shape
    ((3, 4), torch.Size([2, 3, 3, 3]))

    Source: RF-FLAT, CS-beta.
    """
    module: Any = compass
    name, curved = type(compass).__name__, ("Compass", "CommutingCompass")
    require(name in curved, "compass", name, f"one whose steps stand on a grid: {', '.join(curved)}")
    return _steps(module, x, head)


def _steps(compass: Any, x: Tensor, head: int) -> Connection:
    """The steps that one head of a compass reads from x (cells, width)."""
    turns = cayley_rotation(_turns(compass, x, head).unflatten(1, compass.grid))
    return Connection(tuple(turn.narrow(a, 1, compass.grid[a] - 1) for a, turn in enumerate(turns)))


def _turns(compass: Any, x: Tensor, head: int) -> Tensor:
    """The turns v (axes, cells, 3) that one head of a compass reads from x (cells, width)."""
    linear, axes = compass.W_turn, len(compass.grid)
    per_head = (_read(x) @ _read(linear.weight).T + _read(linear.bias)).unflatten(-1, (compass.heads, axes, 3))
    v = per_head[:, head].transpose(0, 1)
    return v * torch.tensor([0.0, 0.0, 1.0]) if type(compass).__name__ == "CommutingCompass" else v


def _frames(compass: Any, x: Tensor, head: int) -> list[Tensor]:
    """Frames (3, 3) of the cells of a flat compass."""
    if type(compass).__name__ == "CombCompass":
        steps, cells = _steps(compass, x, head), list(itertools.product(*map(range, compass.grid)))
        return [_carried(steps, cells[0], cell, head) for cell in cells]
    turns = cayley_rotation(_turns(compass, x, head)).unbind(1)
    own = [functools.reduce(lambda done, turn: turn @ done, each) for each in turns]
    if type(compass).__name__ == "FrameCompass":
        return own
    return list(itertools.accumulate(own[1:], lambda done, turn: turn @ done, initial=torch.eye(3).double()))


def _carried(steps: Connection, start: tuple[int, ...], end: tuple[int, ...], head: int) -> Tensor:
    """Transport along axis 0 first in even heads, along the last axis first in odd ones."""
    way = 1 if head % 2 == 0 else -1
    return transport_along(steps, [c[::way] for c in straight_path(start[::way], end[::way])])


def _compass_rows(encoding: Any, reading: Reading) -> tuple[Row, ...]:
    x, positions, head = _given(reading.x, "x"), _given(reading.positions, "positions"), reading.head
    u, w = (
        (_read(x) @ _read(linear.weight).T).unflatten(-1, (encoding.heads, encoding.vectors, 3))[:, head]
        for linear in (encoding.W_u, encoding.W_w)
    )
    if type(encoding).__name__ in ("FrameCompass", "OrderCompass", "CombCompass"):
        frames = _frames(encoding, x, head)

        def transport(m: int, n: int) -> Tensor:
            return frames[m] @ frames[n].T
    else:
        steps, cells = read_compass(encoding, x, head), list(itertools.product(*map(range, encoding.grid)))

        def transport(m: int, n: int) -> Tensor:
            return _carried(steps, cells[n], cells[m], head)

    def log_scale(p_m: Tensor, p_n: Tensor) -> Tensor:
        m, n = token_at(positions, p_m), token_at(positions, p_n)
        return (u[m] * (w[n] @ transport(m, n).T)).sum()

    learned = "vectors and turns, from the data along the path"
    return (replace(none_row(reading.head_dim), method="compass", log_scale=log_scale, acts=INSIDE, learned=learned),)


ROWS: dict[str, Callable[[Any, Reading], tuple[Row, ...]]] = {
    "Encoding": lambda encoding, reading: (none_row(reading.head_dim),),
    "Sinusoidal": functools.partial(_embedded_rows, "sinusoidal", "nothing"),
    "Learned": functools.partial(_embedded_rows, "learned", "a vector for each cell"),
    "RoPE": _rope_rows,
    "ALiBi": _alibi_rows,
    "RiemannFormer": functools.partial(_one_scale_rows, riemannformer_row),
    "RiemannFormerReflection": functools.partial(_one_scale_rows, riemannformer_row),
    "RiemannFormerRelative": functools.partial(_one_scale_rows, riemannformer_relative_row),
    "RiemannFormerGeneral": functools.partial(_two_scale_rows, riemannformer_general_row),
    "RiemannFormerDiagonal": functools.partial(_two_scale_rows, riemannformer_diagonal_row),
    "LocalityFocusing": _locality_rows,
    "GaussianGate": _gate_rows,
    "ManhattanDecay": _manhattan_rows,
    "Composed": _composed_rows,
    "LieRE": _liere_rows,
    "SphericalRoPE": _spherical_rows,
    "PerLayer": _per_layer_rows,
    "PerLayerFocusing": _per_layer_focusing_rows,
    "SympowEncoding": _sympow_rows,
    "Compass": _compass_rows,
    "CommutingCompass": _compass_rows,
    "FrameCompass": _compass_rows,
    "OrderCompass": _compass_rows,
    "CombCompass": _compass_rows,
}
"""For each class of ``geolib.encodings``, by name, how its rows are read; a method of one's own is one line more."""


def read_conformal(layer: nn.Module, x: Tensor, head: int) -> tuple[Tensor, Tensor, Tensor]:
    """What one head of ``SympowAttention`` reads from a document x (tokens, width): the arguments of ``conformal_row``.

    log gamma_k = log sigma(W_gamma x_k + bias), beta_k = 1 + tanh(W_beta x_k), and theta, in float64.

    >>> from geolib.recurrence import SympowAttention
    >>> log_gates, rates, theta = read_conformal(SympowAttention(8, heads=2), torch.zeros(3, 8), head=0)
    >>> log_gates.exp(), rates
    (tensor([0.9990, 0.9990, 0.9990], dtype=torch.float64), tensor([1., 1., 1.], dtype=torch.float64))

    Source: CS-gate, CS-beta, CS-rot.
    """
    module: Any = layer
    log_gates = F.logsigmoid(_read(x) @ _own(module.W_gamma.weight, head) + module.gate_bias)
    rates = 1 + (_read(x) @ _own(module.W_beta.weight, head)).tanh()
    return log_gates, rates, _read(module.frequencies)[:, 0]
