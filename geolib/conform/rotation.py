"""Laws of what turns queries and keys: relative scores, layouts, axes, sizes, digits."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from geolib.conform.core import Broken, CannotTry, NotApplicable, Target, drawn, law, near

FAR = 302
"""Cells of a row, beyond the whole numbers that bfloat16 has."""


def places(target: Target, *values: float, apart: int = 1) -> Tensor:
    """Positions of as many tokens; on each further axis the same numbers, ``apart`` tokens later."""
    row = torch.tensor(values)
    return row if target.axes == 1 else torch.stack([row.roll(axis * apart) for axis in range(target.axes)], -1)


def vectors(target: Target, tokens: int, seed: int = 0) -> Tensor:
    """Vectors for every head."""
    return drawn(1, target.heads, tokens, target.head_dim, seed=seed)


def carried(target: Target, module: Any, q: Tensor, k: Tensor, positions: Tensor, rows: int = 2) -> Any:
    """Queries and keys at positions, or as cells in so many rows where the target has grids alone."""
    if target.has("turn"):
        return target.turn(module, q, k, positions)
    return [target.grid(module, x, rows, x.shape[-2] // rows) for x in (q, k)]


def operators(target: Target, carry: Callable[[Tensor], Tensor], tokens: int) -> Tensor:
    """What is done to the vectors of the first head at each token, as matrices, (tokens, head_dim, head_dim)."""
    d = target.head_dim
    images = carry(torch.eye(d)[:, None, None].expand(d, target.heads, tokens, d).contiguous())
    return images.detach()[:, 0].permute(1, 2, 0).double()


def cells(target: Target, height: int, width: int) -> Tensor:
    """What is done at each cell of a grid, (height, width, head_dim, head_dim)."""
    module = target.made()
    made = operators(target, lambda x: target.grid(module, x, height, width), height * width)
    return made.unflatten(0, (height, width))


@law("relative")
def relative(target: Target, tokens: int, shift: float) -> None:
    """Scores do not change when all positions are shifted by the same amount."""
    q, k, scores = vectors(target, tokens), vectors(target, tokens, 1), []
    for start in (0.0, shift):
        a, b = target.turn(target.made(), q, k, places(target, *(start + 1.5 * i for i in range(tokens))))
        scores.append(a @ b.mT)
    near(scores[1], scores[0], f"scores of positions that are shifted by {shift}", 2e-5 + 2e-7 * shift)


@law("isometry")
def isometry(target: Target, tokens: int) -> None:
    """Vectors keep their lengths."""
    x, there = vectors(target, tokens), places(target, *(0.0, 1.5, 7.0, 4001.0, 2.0, 3.0)[:tokens])
    for y, what in zip(carried(target, target.made(), x, x, there), ("queries", "keys")):
        near(y.norm(dim=-1), x.norm(dim=-1), f"lengths of {what}", 1e-5)


@law("the zero place")
@law("homomorphism")
def addition(target: Target, steps: Sequence[float]) -> None:
    """Along each axis, steps one after the other turn as their sum does, and no step as position 0 does."""
    x, module = vectors(target, 1), target.made()
    for axis in range(target.axes):
        one = torch.eye(target.axes)[axis : axis + 1] if target.axes > 1 else torch.ones(1)
        both = x, x
        for step in steps:
            both = target.turn(module, *both, step * one)
        for got, wanted, what in zip(both, target.turn(module, x, x, sum(steps) * one), ("queries", "keys")):
            near(got, wanted, f"{what} after steps {steps} on axis {axis}", 1e-5 + 5e-7 * min(steps, default=0.0))


def pairs_of(matrices: Tensor) -> dict[int, int]:
    """Which feature turns with which; Broken where a matrix is no rotation, NotApplicable for larger blocks."""
    joined = ((matrices.abs() > 1e-5) | (matrices.mT.abs() > 1e-5)).any(0).fill_diagonal_(False)
    away = (matrices @ matrices.mT - torch.eye(len(joined))).abs().amax((0, 2))
    if away.max() > 1e-4:
        feature = int(away.argmax())
        raise Broken(f"feature {feature} is mixed with {joined[feature].nonzero().flatten().tolist()}: no rotation")
    if int(joined.sum(-1).max()) > 1:
        raise NotApplicable(f"features turn together in blocks of up to {int(joined.sum(-1).max()) + 1}")
    return {i: int(row.int().argmax()) for i, row in enumerate(joined) if row.any()}


@law("layout of pairs")
def layout(target: Target) -> str:
    """Queries and keys turn in the same pairs of features, and in those that are promised."""
    module, there, found = target.made(), places(target, *range(3, 60, 4)), []
    for i in (0, 1):
        found.append(pairs_of(operators(target, lambda x, i=i: carried(target, module, x, x, there, 3)[i], 15)))  # type: ignore[misc]
    if found[0] != found[1]:
        raise Broken(f"queries turn in the pairs {found[0]}, keys in {found[-1]}")
    count = len(found[0])
    kinds = {"interleaved": lambda i: i ^ 1, "half-split": lambda i: (i + count // 2) % count}
    named = [name for name, partner in kinds.items() if found[0] == {i: partner(i) for i in found[0]}]
    if target.layout in named:  # a single pair has every layout
        named = [target.layout]
    kind = named[0] if named else f"in the pairs {sorted(p for p in found[0].items() if p[0] < p[1])}"
    if target.layout not in (None, kind):
        raise Broken(f"the layout is {kind}, where {target.layout} is promised")
    return f"{kind}, {count} of {target.head_dim} features"


@law("the usual frequencies")
def frequencies(target: Target) -> None:
    """Pair j of d features turns by its position times base^(-2j / d), as the formula says in float64."""
    d, there = target.head_dim, places(target, 1.0, 2.5, 100.0)

    def planes(x: Tensor) -> Tensor:
        pairs = x.unflatten(-1, (-1, 2)) if target.layout == "interleaved" else x.unflatten(-1, (2, -1)).mT
        return torch.view_as_complex(pairs.double().contiguous())

    x, turns = vectors(target, 3), there[:, None] * (target.base or 1.0) ** (-torch.arange(0, d, 2).double() / d)
    wanted = planes(x) * torch.exp(1j * turns)
    for got, what in zip(target.turn(target.made(), x, x, there), ("queries", "keys")):
        near(torch.view_as_real(planes(got)), torch.view_as_real(wanted), f"{what}, and the formula", 1e-4)


@law("axis order")
def axes(target: Target, height: int, width: int) -> str:
    """A cell is turned by its row and by its column, in reading order, on grids that are not square."""
    made = cells(target, height, width)
    wanted = made[:, :1] @ torch.linalg.inv(made[0, 0]) @ made[:1]
    near(made, wanted, f"cells of {height} x {width}, and what their rows and their columns do", 1e-4)
    moved = [(line - made[0, 0]).abs().amax((0, 2)) > 1e-5 for line in (made[:, 0], made[0])]
    rows, columns = (features.nonzero().flatten().tolist() for features in moved)
    if min(height, width) < 3:  # with two rows a step may be a full turn
        return ""
    if not rows or not columns:
        raise Broken(f"nothing turns from one {'column' if rows else 'row'} to the next")
    first = "rows" if rows[0] < columns[0] else "columns" if columns[0] < rows[0] else "both axes"
    if target.first_axis not in (None, first):
        raise Broken(f"the first features turn with {first}, where {target.first_axis} is promised")
    return f"{first} first: rows turn features {rows}, columns {columns}"


@law("unit and origin")
def unit(target: Target, height: int, width: int) -> str:
    """Along an axis every step turns alike; where the first cell stands, and what a step is, is found out."""
    made = cells(target, height, width)
    for name, line in (("row", made[:, 0]), ("column", made[0])):
        steps = line[1:] @ torch.linalg.inv(line[:-1])
        near(steps, steps[:1].expand_as(steps), f"all steps from one {name} to the next, and the first", 1e-4)
    other = cells(target, height + 1, width + 2)
    kept = (other[:2, :2] - made[:2, :2]).abs().max() < 1e-4
    origin = (made[0, 0] - torch.eye(target.head_dim)).abs().max() < 1e-5
    where = "at the origin" if origin else "away from the origin"
    return f"the first cell stands {where}, and the unit {'is one cell' if kept else 'follows the size of the grid'}"


@law("class token and prefix")
def prefix(target: Target, count: int) -> None:
    """Tokens in front that have no place stay as they are, and change nothing for the others."""
    x, module = vectors(target, count + 6), target.made()
    got = target.prefix(module, x, 2, 3, count)
    near(got[..., :count, :], x[..., :count, :], "the tokens in front", 1e-6)
    near(got[..., count:, :], target.grid(module, x[..., count:, :], 2, 3), "the cells behind them")


@law("one count, other shapes")
@law("dynamic grids")
@law("texts of other lengths")
def other_sizes(target: Target, grids: Sequence[Any] = (), texts: Sequence[Any] = ()) -> None:
    """A module that has seen grids or texts of other sizes does what a fresh one does, and tells them apart."""
    module, counting, seen = target.made(), target.made(), list[tuple[Any, Tensor]]()
    for size in grids or texts:
        x = vectors(target, math.prod(size) if grids else size[0])
        if grids:
            got, wanted = (target.grid(m, x, *size) for m in (module, target.made()))
        else:
            there = places(target, *map(float, range(size[1], sum(size))))
            got, wanted = (target.turn(m, x, x, there)[0] for m in (module, target.made()))
            if target.has("count"):
                near(target.count(counting, x, size[1]), wanted, f"{size[0]} tokens counted from {size[1]} on", 1e-3)
        near(got, wanted, f"{size} after others, and at once")
        for other, result in seen:
            if other != size and result.shape == got.shape and (result - got).abs().max() < 1e-4:
                raise Broken(f"{other} and {size} are turned alike")
        seen.append((size, got))


@law("interpolation")
def interpolation(target: Target, old: Sequence[int], new: Sequence[int]) -> None:
    """A table that is resampled for another grid keeps its axes, and on its own grid it stays itself."""
    table, module = drawn(*old, 4), target.made()
    got = target.resample(module, table, old, new)
    if got.shape != (*new, 4):
        raise Broken(f"the table has the shape {tuple(got.shape)}, where {(*new, 4)} is asked for")
    if old == new:
        near(got, table, "a table for its own grid")
    for axis in (0, 1):
        flat = table.narrow(axis, 0, 1).expand_as(table).contiguous()
        one = target.resample(module, flat, old, new)
        near(one, one.narrow(axis, 0, 1).expand_as(one), f"a table that does not change along axis {axis}", 1e-4)


@law("angles under autocast")
@law("angles after half()")
@law("positions in bfloat16")
def rounded(target: Target, dtype: str, atol: float, autocast: bool = False) -> None:
    """Far from the origin, vectors are turned as in float32, up to the rounding of what comes out."""
    narrow, far = getattr(torch, dtype), places(target, 4001.0, 4002.0, 257.0)
    tokens = 3 if target.has("turn") else 2 * FAR
    what = "positions 4001, 4002 and 257" if target.has("turn") else f"rows of {FAR} cells"
    ways = {what: lambda module, x: carried(target, module, x, x, far)[0]}
    if target.has("count"):
        ways[f"{tokens} tokens counted from 4001 on"] = lambda module, x: target.count(module, x, 4001)
    for what, way in ways.items():
        x, module, wide = vectors(target, tokens).to(narrow), target.made(), target.made()
        module = target.cast(module, narrow) if dtype == "bfloat16" else Target.cast(target, module, narrow)
        for p in wide.parameters() if isinstance(wide, torch.nn.Module) else ():
            if p.requires_grad:  # what is learned is rounded with the model; a table must not be
                p.copy_(p.to(narrow))
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            got = way(module, x)
        near(got.float(), way(wide, x.float()), f"{what}, and in float32", atol)


@law("float64 in, float64 out")
def float64(target: Target) -> None:
    """In float64, scores depend on how far apart tokens are, to nine digits."""
    module, there = Target.cast(target, target.made(), torch.float64), torch.arange(0.25, 26 * FAR, 13)
    x = vectors(target, 1).double().expand(-1, -1, 2 * FAR, -1).contiguous()
    q, k = carried(target, module, x, x, places(target, *there.tolist(), apart=0).double())
    if q.dtype != torch.float64:
        raise Broken(f"{q.dtype} came out where float64 went in")
    scores = (q * k.roll(-7, -2)).sum(-1)
    near(scores[..., 290], scores[..., 3], "scores of tokens 290 and 297, and of tokens 3 and 10", 1e-9)


class _Wide(TorchDispatchMode):
    """Notes the first operation that makes float64."""

    seen = ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor) and out.dtype == torch.float64 and not self.seen:
            self.seen = str(func)
        return out


@law("no float64 on the way")
def narrow(target: Target) -> None:
    """Of float32 nothing in float64 is made."""
    module, x = target.made(), vectors(target, 4)
    with _Wide() as wide:
        carried(target, module, x, x, places(target, 0.0, 1.0, 2.0, 3.0))
    if wide.seen:
        raise CannotTry(f"{wide.seen} makes float64 on this CPU; a device without it would tell whether it does there")
