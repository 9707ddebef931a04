"""Rotations of more than two features: LieRE's learned generators, and triples that turn in space."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from geolib._checks import angle_dtype, check_positive, check_tensor, check_whole, require, wide
from geolib._precision import full_precision
from geolib.attention import Encoding, Placed, as_places, largest
from geolib.encodings.composite import ByLayer
from geolib.encodings.rotary import Carried, at_both, cis, counts, for_heads, turn_pairs
from geolib.lie import entry_count, placed_rotations, skew_matrix, turn_blocks
from geolib.rotations import pair_angles

__all__ = ["LieRE", "SphericalRoPE"]


class LieRE(Encoding):
    """Rotations exp(sum_i p_i A_i) with learned skew generators A_i; block width 2 is RoPE-Mixed.

    Parameters
    ----------
    entries : Tensor, (layers or 1, heads or 1, blocks, axes, width (width - 1) / 2)
        Where the generators start: strict upper triangles, radians per unit of position. The size 1 means shared.
    width : int
        Block width b; blocks * b features are turned.
    layers : int or None
        Layers of the model, beyond which the encoding is refused; None: any number, if they share the generators.
    unit : sequence of float, or None
        Positions are divided by it, axis by axis. LieRE's own choice is the number of cells minus one, so that a
        training image spans [0, 1] and a larger one goes beyond. None: positions as they are.

    Notes
    -----
    One batched exponential makes the rotations of all layers; width 2 takes the angles themselves. They are computed in
    float32 from generators of any narrower dtype, whose rounding remains: 2^-9 of an angle in bfloat16.

    Weight decay would pull the rotations towards the identity: leave ``generators`` out of it.

    The unit is saved beside the generators, and a state of another unit (a model for another grid) is not loaded.

    Source: LR-A1, LR-blk, LR-B5, LR-3D, LR-CODE.

    >>> from geolib.lie import uniform_entries
    >>> lie = LieRE(uniform_entries(2, 1, 2, 1, 6), width=4, layers=2)  # 2 layers, 2 blocks of width 4, one axis
    >>> q, k = torch.randn(2, 1, 1, 3, 8)
    >>> a, b = lie.place(torch.arange(3.0)[:, None]).layer(1).to_reference(q, k)
    >>> torch.allclose(a.norm(dim=-1), q.norm(dim=-1))
    True
    """

    unit: Tensor

    def __init__(self, entries: Tensor, width: int, *, layers: int | None = None, unit: Sequence[float] | None = None):
        super().__init__()
        check_tensor(entries, "entries")
        check_whole(width, "width")
        check_whole(1 if layers is None else layers, "layers")
        came, count = entries.shape, entry_count(width)
        require(len(came) == 5 and came[-1] == count, "entries", came, f"(layers, heads, blocks, axes, {count})")
        require(came[0] in (1, layers), "entries", f"{came[0]} layers", f"1 or the {layers} layers of the model")
        unit = [1.0] * came[3] if unit is None else list(unit)
        require(len(unit) == came[3], "unit", unit, f"one number for each of the {came[3]} axes")
        for u in unit:
            check_positive(u, "unit")
        self.width, self.layers, self._given = width, layers, unit
        self.generators = nn.Parameter(entries.clone())
        self.register_buffer("unit", torch.tensor(unit, dtype=torch.float32))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *given: Any) -> None:
        """A state of another unit is refused: the generators are radians per unit. One without a unit loads as ever."""
        saved = state_dict.setdefault(f"{prefix}unit", torch.tensor(self._given, dtype=torch.float32))
        if not saved.is_meta and saved.tolist() != torch.tensor(self._given, dtype=torch.float32).tolist():
            allowed = f"this one has {self._given}: build it for the grid of training, and place larger grids beyond it"
            given[-1].append(f"{prefix}unit: got {saved.tolist()} in the state; {allowed}")
        super()._load_from_state_dict(state_dict, prefix, *given)

    @property
    def paired(self) -> int:
        return self.width * self.generators.shape[2]

    def extra_repr(self) -> str:
        layers, heads, blocks, axes, _ = self.generators.shape
        return f"width={self.width}, blocks={blocks}, axes={axes}, layers={self.layers}, own=({layers}, {heads})"

    def place(self, positions: Tensor, keys: Tensor | None = None) -> Placed:
        """The rotations of all layers, by one exponential; ``layer(i)`` takes its own."""
        positions, keys = as_places(positions, keys, self.generators.shape[3])
        act, table = (turn_pairs, self._turns) if self.width == 2 else (turn_blocks, self.rotations)
        query, key = at_both(table, positions, keys)
        sizes = counts(positions, keys)
        heads = self.generators.shape[1]
        own = [Carried(act, tables, sizes, heads) for tables in zip(query.unbind(0), key.unbind(0))]
        own[0].layers = self.layers
        return own[0] if len(own) == 1 else ByLayer(own)

    def skew(self) -> Tensor:
        """The generators as matrices, (layers or 1, heads or 1, blocks, axes, width, width), radians per unit."""
        return skew_matrix(self.generators, self.width)

    def rotations(self, positions: Tensor) -> Tensor:
        """The rotations of all layers, (layers or 1, [batch,] heads or 1, tokens, blocks, width, width).

        Float32 or float64.
        """
        dtype = angle_dtype(positions, self.generators)
        skew = self.skew().to(dtype) / self.unit[:, None, None]
        flat = placed_rotations(positions.flatten(0, -2), skew).permute(1, 2, 0, 3, 4, 5)
        return flat if positions.dim() == 2 else flat.unflatten(2, positions.shape[:2]).transpose(1, 2)

    def _turns(self, positions: Tensor) -> Tensor:
        """The turns of width 2, (layers or 1, [batch,] heads or 1, tokens, blocks, 2): the entry u turns by -u."""
        rates = -self.generators[..., 0].to(angle_dtype(positions, self.generators)) / self.unit
        if positions.dim() == 3:
            rates = rates.unsqueeze(1)
        return cis(pair_angles(for_heads(positions), rates))


class SphericalRoPE(Encoding):
    """Spherical RoPE: triples of features turn in space, about one coordinate axis for each axis of positions.

    Triple j turns about its first axis by p_1 theta_j, then about its second by p_2 theta_j, and so on in a circle. The
    turns do not commute, so from two axes on a score does not depend on n - m alone. Which turn comes first, and that
    frequencies are fixed, (triples,), is our reading. Features that fill no triple stay as they are.
    Source: LR-T1 (a row of ours).

    >>> quarter = SphericalRoPE(torch.tensor([math.pi / 2]), axes=2)
    >>> q = torch.tensor([[[[0.0, 1.0, 0.0]]]])  # about the first axis to the third, then about the second to the first
    >>> quarter.place(torch.tensor([[1.0, 1.0]])).to_reference(q, q)[0].round()
    tensor([[[[1., 0., 0.]]]])
    """

    frequencies: Tensor

    def __init__(self, frequencies: Tensor, axes: int):
        super().__init__()
        check_tensor(frequencies, "frequencies")
        holds = frequencies.dim() == 1 and frequencies.is_floating_point()
        require(holds, "frequencies", f"{frequencies.dtype}, {tuple(frequencies.shape)}", "floats, (triples,)")
        require(largest(frequencies) < float("inf"), "frequencies", "inf or NaN", "frequencies must be finite")
        check_whole(axes, "axes")
        self.axes = axes
        self.register_buffer("frequencies", frequencies, persistent=False)

    def extra_repr(self) -> str:
        return f"triples={len(self.frequencies)}, axes={self.axes}"

    def generators(self) -> Tensor:
        """The turn of each triple for a step along each axis, as skew matrices, (axes, triples, 3, 3)."""
        # About axis a from a + 1 to a + 2; of whole tensors, for numbers that are written down come from the host.
        axes = torch.eye(3, dtype=self.frequencies.dtype, device=self.frequencies.device)
        turned = axes.roll(-2, 0)[:, :, None] * axes.roll(-1, 0)[:, None]
        about = torch.stack([(turned - turned.mT)[a % 3] for a in range(self.axes)])
        return self.frequencies[:, None, None] * about[:, None]

    def rotations(self, positions: Tensor) -> Tensor:
        """The rotation of each triple, ([batch,] 1, tokens, triples, 3, 3), float32 or float64."""
        along, flat = self.generators(), positions.flatten(0, -2)
        flat = flat if flat.is_floating_point() else wide(flat)  # digits for large angles, as ``pair_angles``
        with full_precision(flat.device):
            turned, *others = (placed_rotations(flat[:, a : a + 1], along[a][:, None]) for a in range(self.axes))
            for other in others:
                turned = other @ turned
        return turned.unflatten(0, positions.shape[:-1]).unsqueeze(-5)

    def place(self, positions: Tensor, keys: Tensor | None = None) -> Placed:
        positions, keys = as_places(positions, keys, self.axes)
        return Carried(_turn_triples, at_both(self.rotations, positions, keys), counts(positions, keys))


def _turn_triples(x: Tensor, rotations: Tensor) -> Tensor:
    """As ``turn_blocks``; features beyond the last triple stay."""
    size = 3 * rotations.shape[-3]
    require(size <= x.shape[-1], "frequencies", f"{size // 3} triples", f"x has {x.shape[-1]} features")
    turned = turn_blocks(x[..., :size], rotations)
    return torch.cat([turned, x[..., size:]], -1) if size < x.shape[-1] else turned
