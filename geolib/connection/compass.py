"""An encoding whose transport is read from the data, step by step: curved on a grid, and its flat relatives."""

import copy
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from geolib._checks import angle_dtype, check_whole, require
from geolib._precision import without_autocast
from geolib.attention import Encoding, Placed, as_places, input_of
from geolib.connection.lattice import Connection, carried_scores, comb_frames, line_frames
from geolib.connection.steps import cayley_rotation

__all__ = ["TRANSPORTS", "Compass", "read_compass"]


class Compass(Encoding):
    """Vectors in space that travel from key to query, turned at every step by what the layer reads there.

    ``grid`` has the cells along each axis: keys are a whole grid in reading order, and their positions are counted, not
    read. ``vectors`` is how many travel in each head. Every token gives vectors u and w, and for each axis the axis and
    size v of a turn; the step that enters its cell along the axis is ``cayley_rotation(v)``. The sum of u_m^T P_{n->m}
    w_n is added to the scores. In even heads the path from n to m goes along axis 0 first, in odd heads along the last
    axis first: on an image both L-shaped paths. On a grid the steps are curved wherever the data make them so; a line
    has no loops. On two or more axes it is not causal: paths pass through later cells. ValueError for no head or
    vector, and for keys that are not the grid's.
    Source: RF-FLAT, CS-beta.

    >>> compass = Compass(width=8, heads=2, grid=(3, 3))
    >>> compass.place(torch.zeros(9, 2)).log_gate(torch.randn(4, 9, 8)).shape
    torch.Size([4, 2, 9, 9])
    """

    settings = ("heads", "grid", "vectors")

    def __init__(self, width: int, heads: int, grid: tuple[int, ...], vectors: int = 3):
        super().__init__()
        for argument, came in (("heads", heads), ("vectors", vectors), ("width", width)):
            check_whole(came, argument)
            require(came > 0, argument, came, "at least one")
        self.heads, self.grid, self.vectors = heads, tuple(grid), vectors
        self.W_u = nn.Linear(width, heads * vectors * 3, bias=False)
        self.W_w = nn.Linear(width, heads * vectors * 3, bias=False)
        self.W_turn = nn.Linear(width, heads * len(self.grid) * 3)

    def extra_repr(self) -> str:
        """What it is, beside its layers."""
        return f"heads={self.heads}, grid={self.grid}, vectors={self.vectors}"

    def place(self, positions: Tensor, keys: Tensor | None = None) -> Placed:
        """The compass; all that it adds comes with each layer's input."""
        positions, keys = as_places(positions, keys, len(self.grid))
        sizes = positions.shape[-2], (positions if keys is None else keys).shape[-2]
        cells = math.prod(self.grid)
        require(sizes[1] == cells, "keys", lambda: f"{sizes[1]} rows", f"the grid {self.grid} has {cells} cells")
        return _Read(self, sizes)

    def turns(self, x: Tensor) -> Tensor:
        """The turns v that x (batch, cells, width) asks for, (batch, heads, axes, cells, 3), float32 or float64."""
        v = self.W_turn(x).unflatten(-1, (self.heads, len(self.grid), 3)).permute(0, 2, 3, 1, 4)
        return v.to(angle_dtype(v))

    def scores(self, x: Tensor, still: Tensor | None = None) -> Tensor:
        """What is added to the scores of x (batch, cells, width), (batch, heads, cells, cells).

        ``still``, bool (batch or 1, cells), is True at cells that turn nothing, whatever their features.
        """
        u, w = (
            linear(x).unflatten(-1, (self.heads, self.vectors, 3)).transpose(1, 2) for linear in (self.W_u, self.W_w)
        )
        with without_autocast(x.device):
            v = self.turns(x)
            if still is not None:
                v = v.masked_fill(still[:, None, None, :, None], 0.0)
            return self.transported(u.to(v.dtype), w.to(v.dtype), v)

    def steps(self, v: Tensor) -> list[Tensor]:
        """The steps of turns (batch, heads, axes, cells, 3), for each axis (batch, heads, *cells, 3, 3)."""
        turns = cayley_rotation(v.unflatten(3, self.grid)).unbind(2)
        return [turn.narrow(2 + a, 1, n - 1) for a, (turn, n) in enumerate(zip(turns, self.grid))]

    def transported(self, u: Tensor, w: Tensor, v: Tensor) -> Tensor:
        """u_m^T P_{n->m} w_n along the paths of each head; u, w (batch, heads, cells, vectors, 3), v as ``turns``."""
        u, w = (x.unflatten(2, self.grid) for x in (u, w))
        steps = self.steps(v)
        return self.by_head(lambda h, order: _in_order(u[:, h], w[:, h], [step[:, h] for step in steps], order))

    def by_head(self, made: Callable[[slice, tuple[int, ...]], Tensor]) -> Tensor:
        """Made of the even heads with axis 0 first, of the odd ones with the last axis first, each in its place."""
        forward, heads = tuple(range(len(self.grid))), range(self.heads)
        parts = [made(slice(h, None, 2), order) for h, order in zip(heads, (forward, forward[::-1]))]
        return torch.stack([parts[h % 2][:, h // 2] for h in heads], 1)


def _in_order(u: Tensor, w: Tensor, steps: Sequence[Tensor], order: tuple[int, ...]) -> Tensor:
    """``carried_scores`` along the axes in this order; cells of the result in reading order."""
    axes = len(order)
    nodes = [2 + a for a in order]
    u, w, *steps = (x.permute(0, 1, *nodes, -2, -1) for x in (u, w, *(steps[a] for a in order)))
    scores = carried_scores(u, w, steps).unflatten(-1, u.shape[2:-2]).unflatten(2, u.shape[2:-2])
    back = [order.index(a) for a in range(axes)]
    scores = scores.permute(0, 1, *(2 + b for b in back), *(2 + axes + b for b in back))
    return scores.flatten(2 + axes).flatten(2, 1 + axes)


class CommutingCompass(Compass):
    """A compass that turns about one axis alone: steps commute, and a grid of them is still curved.
    Source: CS-beta, RF-FLAT.
    """

    def turns(self, x: Tensor) -> Tensor:
        """Turns about the third axis, as ``Compass.turns``: the last number alone is used."""
        v = super().turns(x)
        return torch.cat([torch.zeros_like(v[..., :2]), v[..., 2:]], -1)


class FrameCompass(Compass):
    """A flat compass: each cell has a frame read from its own data, and no way between two cells matters.
    Source: RF-2, RF-FLAT.
    """

    def frames(self, v: Tensor) -> Tensor:
        """T (batch, heads, cells, 3, 3) from turns (batch, heads, axes, cells, 3): the product over the axes."""
        frames, *others = cayley_rotation(v).unbind(2)
        for other in others:
            frames = other @ frames
        return frames

    def transported(self, u: Tensor, w: Tensor, v: Tensor) -> Tensor:
        """u_m^T T_m T_n^-1 w_n: one inner product of what both are in the reference space."""
        frames = self.frames(v)
        u, w = ((x @ frames).flatten(-2) for x in (u, w))  # rows of T^T x
        return u @ w.mT


class OrderCompass(FrameCompass):
    """A compass that travels along the cells in reading order, as along a line of text: flat, and not commuting.
    Source: CS-beta, RF-FLAT.
    """

    def frames(self, v: Tensor) -> Tensor:
        """Products of the steps from the first cell on; a step is the product of the turns of all axes."""
        return line_frames(super().frames(v)[..., 1:, :, :], -3)


class CombCompass(FrameCompass):
    """The compass made flat: steps along one axis count in the first line alone, and all transport goes round by it.

    In even heads the frame of a cell is the transport from the first cell along axis 0 first, in odd heads along the
    last axis first. On these paths, a comb, steps are those of ``Compass``; the others are as if they closed every
    square.
    Source: RF-2, RF-FLAT.
    """

    def frames(self, v: Tensor) -> Tensor:
        """Products of the steps along the comb."""
        steps = self.steps(v)
        return self.by_head(lambda h, order: comb_frames([step[:, h] for step in steps], order).flatten(2, -3))


TRANSPORTS: dict[str, type[Compass]] = {
    "paths": Compass,
    "commuting": CommutingCompass,
    "frames": FrameCompass,
    "order": OrderCompass,
    "comb": CombCompass,
}
"""The ways a compass can travel; only the first two are curved."""


def read_compass(compass: Compass, x: Tensor, head: int) -> Connection:
    """The steps of one head of a ``Compass`` for the cells' features x (cells, width), in float64.

    With ``CommutingCompass`` as well; the flat compasses have frames in place of steps: a ValueError.
    Source: RF-FLAT, CS-beta.

    >>> from geolib.connection import plaquettes
    >>> steps = read_compass(Compass(8, heads=1, grid=(3, 4)), torch.randn(12, 8), head=0)
    >>> steps.shape, plaquettes(steps).shape
    ((3, 4), torch.Size([2, 3, 3, 3]))
    """
    curved = isinstance(compass, Compass) and not isinstance(compass, FrameCompass)
    require(curved, "compass", type(compass).__name__, "one whose steps stand on a grid: Compass, CommutingCompass")
    wide = copy.deepcopy(compass).double()
    steps = wide.steps(wide.turns(x.detach().double()[None]).detach())
    return Connection(tuple(step[0, head] for step in steps))


class _Read(Placed):
    """A compass beside queries and keys that stand on its grid."""

    counts: tuple[int, int]

    def __init__(self, source: Compass, sizes: tuple[int, int]):
        self.source, self.counts, self.own = source, sizes, (1, source.heads)

    def log_gate(self, x: Tensor | None, still: Tensor | None = None) -> Tensor:
        """What is added to the scores, (batch, heads, queries, keys); the last query stands beside the last key."""
        queries, keys = self.counts
        x = input_of(x, keys, self.unplaced[1], self.source.W_u.in_features)
        return self.source.scores(x, still)[..., keys - queries :, :]

    def masked_log_gate(self, x: Tensor | None, mask: Tensor | None) -> Tensor:
        """The same; a token that no query may see counts as one that turns nothing."""
        hidden = None
        if x is not None and isinstance(mask, Tensor) and mask.dtype == torch.bool and 0 < mask.dim() <= 4:
            hidden = ~mask[(None,) * (4 - mask.dim())].flatten(1, 2).any(1)
            if hidden.shape[1] != x.shape[1] or len(hidden) not in (1, len(x)):
                return self.log_gate(x)  # such a mask is ``attend``'s to refuse
            x = x.masked_fill(hidden[..., None], 0.0)
            hidden = hidden[:, self.unplaced[1] :]
        return self.log_gate(x, hidden)
