"""The engine of the chunked form on a CPU: what stays in a core's cache, made again in the backward pass."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from geolib._compile import kept, uncompiled
from geolib._precision import full_precision
from geolib.recurrence._shared import Sums, power_of
from geolib.sympow import dimension, monomials, norm_functional

PARTS = 4
"""Into how many the queries of a chunk are cut: a part sees the keys up to its own end, so that less lies above the
diagonal."""

NARROW = 128
"""The fewest queries of a part: narrower products do not pay."""

GENTLE = 16.0
"""The largest sum of log gates whose exponential may stand outside the square of pairs: what it multiplies keeps its
digits and stays far from the ends of float32's range."""


@uncompiled
def attend_on_cpu(
    q: Tensor, k: Tensor, v: Tensor, log_gates: Tensor | None, start: Tensor, power: int, chunk: int
) -> Sums:
    """The sums of the chunked form, chunk after chunk."""
    leading = q.shape[:2]
    decay = _ChunkDecay.of(log_gates, q, chunk)
    # From here on tokens are the last dimension and heads are flat: the layout of long contiguous rows.
    columns = [t.flatten(0, 1).mT.contiguous() for t in (q, k, v)]
    start = start.flatten(0, 1)
    root = monomials(q.shape[-1], power, q.device).weight.sqrt().to(q.dtype)
    layout = _layout(q.shape[-1], power)
    counts = (layout.weight > 0).to(q)
    inside = _WithinChunks.apply(*columns, decay.sums, power, chunk)
    written = columns[2] * decay.to_end
    older, last = _ThroughState.apply(
        *columns[:2], written, decay.whole, (start / root)[..., layout.monomial] * counts, power, chunk
    )
    total = (inside + decay.from_start * older).mT.unflatten(0, leading)
    carried = start[:, -1].detach() @ norm_functional(q.shape[-1], power, q.device).to(q.dtype)
    floor = torch.finfo(q.dtype).eps * _mass(columns[1], written, decay, carried, power, chunk)
    return Sums(total, (last[..., layout.place] * root).unflatten(0, leading), floor.unflatten(0, leading))


@uncompiled
def attend_in_one_chunk(q: Tensor, k: Tensor, v: Tensor, log_gates: Tensor | None, power: int) -> Tensor:
    """sum_j B_ij V_j over the keys up to the query's, one chunk and no state; (batch, heads, tokens, width of v)."""
    sums = None if log_gates is None else log_gates.double().cumsum(-1).flatten(0, 1)
    columns = [t.flatten(0, 1).mT.contiguous() for t in (q, k, v)]
    return _WithinChunks.apply(*columns, sums, power, q.shape[2]).mT.unflatten(0, q.shape[:2])


class _ChunkDecay(NamedTuple):
    """What the gates do within chunks, heads flat: sums of log gates from the chunk's start, and their exponentials."""

    sums: Tensor | None  # (heads, tokens), float64
    from_start: Tensor  # (heads, 1, tokens): from the chunk's start to the token
    to_end: Tensor  # (heads, 1, tokens): from the token to the chunk's end
    whole: Tensor  # (heads, chunks)

    @classmethod
    def of(cls, log_gates: Tensor | None, q: Tensor, chunk: int) -> _ChunkDecay:
        """The decay of gates, heads flattened."""
        heads, tokens = q.shape[0] * q.shape[1], q.shape[2]
        chunks = -(-tokens // chunk)
        if log_gates is None:
            one = q.new_ones(heads, 1, 1)
            return cls(None, one, one, q.new_ones(heads, chunks))
        padded = nn.functional.pad(log_gates.double().flatten(0, 1), (0, chunks * chunk - tokens))
        sums = padded.unflatten(-1, (chunks, chunk)).cumsum(-1)
        ends = sums[..., -1:]

        def by_token(t: Tensor) -> Tensor:
            return t.flatten(-2)[:, None, :tokens].to(q.dtype)

        return cls(sums.flatten(-2)[:, :tokens], by_token(sums.exp()), by_token((ends - sums).exp()),
                   ends.squeeze(-1).exp().to(q.dtype))  # fmt: skip


def _mass(k: Tensor, written: Tensor, decay: _ChunkDecay, start: Tensor, power: int, chunk: int) -> Tensor:
    """The state's part of sum_j b_ij |K_j|^p at every token, (heads, tokens): the bound on its normaliser."""
    with torch.no_grad():
        mass, bounds = start, []
        lengths = power_of(k.square().sum(1), power // 2) * written[:, -1]
        for index, length in enumerate(lengths.split(chunk, -1)):
            bounds.append(mass[:, None].expand_as(length))
            mass = decay.whole[:, index] * mass + length.sum(-1)
        return decay.from_start.squeeze(1) * torch.cat(bounds, -1)


class _WithinChunks(torch.autograd.Function):
    """sum_j B_ij [V_j, 1] over the keys of the query's own chunk; pairs are made again in the backward pass."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, sums: Tensor | None, power: int, chunk: int) -> Tensor:
        ctx.save_for_backward(q, k, v, sums)
        ctx.power, ctx.chunk = power, chunk
        out = torch.empty_like(v)
        for pairs in _pairs(q, k, v, sums, chunk):
            out[pairs.rows] = (pairs.v @ pairs.gated(power_of(pairs.score, power)).mT).mul_(pairs.row)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, sums = ctx.saved_tensors
        dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        with full_precision(q.device):
            for pairs in _pairs(q, k, v, sums, ctx.chunk):
                g = grad[pairs.rows] * pairs.row
                lower = pairs.gated(power_of(pairs.score, ctx.power - 1))
                dscore = (g.mT @ pairs.v).mul_(lower).mul_(ctx.power)
                dq[pairs.rows] = k[pairs.columns] @ dscore.mT
                dk[pairs.columns] += q[pairs.rows] @ dscore
                dv[pairs.columns] += (g @ lower.mul_(pairs.score)).mul_(pairs.column)
        # What a gate multiplies: sum_j B_ij dB_ij = Q_i . dQ_i / p, and so for keys.
        dsums = None if sums is None else ((q * dq).sum(1) - (k * dk).sum(1)).double() / ctx.power
        return dq, dk, dv, dsums, None, None


class _Pairs(NamedTuple):
    """Queries of a part of a chunk and all keys that they see in it: the gates in the square, or at its sides."""

    rows: tuple[slice, ...]
    columns: tuple[slice, ...]
    score: Tensor  # (heads, queries, keys), zero above the diagonal
    decay: Tensor | None  # (heads, queries, keys)
    v: Tensor  # (heads, width, keys), times column
    row: Tensor  # (heads, 1, queries)
    column: Tensor  # (heads, 1, keys)

    def gated(self, weights: Tensor) -> Tensor:
        """Weights times what of the gates does not stand at the sides, in place."""
        return weights if self.decay is None else weights.mul_(self.decay)


def _pairs(q: Tensor, k: Tensor, v: Tensor, sums: Tensor | None, chunk: int) -> Iterator[_Pairs]:
    """All pairs of all chunks, tile by tile."""
    part = max(NARROW, -(-chunk // PARTS))
    group = max(2, 2**17 // (min(part, chunk) * chunk))  # more heads where chunks are short
    groups = [slice(start, start + group) for start in range(0, q.shape[0], group)]
    for tokens in _chunks(q, chunk):
        for heads in groups:
            for start in range(tokens.start, tokens.stop, part):
                stop = min(start + part, tokens.stop)
                rows = (heads, slice(None), slice(start, stop))
                columns = (heads, slice(None), slice(tokens.start, stop))
                score = (q[rows].mT @ k[columns]).tril_(start - tokens.start)
                yield _Pairs(rows, columns, score, *_decayed(v[columns], sums, heads, rows[2], columns[2]))


def _decayed(v: Tensor, sums: Tensor | None, heads: slice, rows: slice, columns: slice) -> tuple[Any, ...]:
    """The decay of pairs, the values, and what multiplies rows and columns of the square."""
    one = v.new_ones(())
    if sums is None:
        return None, v, one, one
    below, above = sums[heads, rows], sums[heads, columns]
    if (above[..., 0] - above[..., -1]).max() <= GENTLE:
        last = above[..., -1:]
        row, column = (t.exp().to(v.dtype)[:, None] for t in (below - last, last - above))
        return None, v * column, row, column
    # Differences first, in float64: a chunk may hold one gate near 0 among many near 1. Above the diagonal they may be
    # large, where the score is zero already.
    return (below[..., :, None] - above[..., None, :]).clamp_(max=0).to(v.dtype).exp_(), v, one, one


class _ThroughState(torch.autograd.Function):
    """The state's reading at every query, and the last state, in monomials without weights.

    The state U, (heads, width, rows of monomials), starts at ``start``. In each chunk every query reads (w U) m(Q) from
    the state before the chunk, m the monomials and w their multinomial weights; U becomes whole U + written m(K)^T. So
    (w U) m(Q) is a sum of written_j (Q . K_j)^p. Monomials are made in blocks, used and dropped.
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, written: Tensor, whole: Tensor, start: Tensor, power: int, chunk: int
    ) -> tuple[Tensor, Tensor]:
        reads = torch.zeros_like(written)
        weight = _layout(q.shape[1], power).weight.to(q)
        ctx.empty = not start.any()
        state, before = start.clone(), []
        for index, tokens in enumerate(_chunks(q, chunk)):
            before.append(state * weight)
            state *= whole[:, index, None, None]
            for heads in _head_groups(q, chunk):
                here = (heads, slice(None), tokens)
                if index > 0 or not ctx.empty:
                    read = torch.zeros_like(reads[here], memory_format=torch.contiguous_format)
                    for block, m in _Columns(q[here], power).blocks():
                        read.baddbmm_(before[index][heads, :, block.rows], m)
                    reads[here] = read
                put = written[here].contiguous()
                for block, m in _Columns(k[here], power).blocks():
                    state[heads, :, block.rows].baddbmm_(put, m.mT)
        ctx.save_for_backward(q, k, written, whole, *before)
        ctx.power, ctx.chunk = power, chunk
        return reads, state

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dreads: Tensor, dlast: Tensor) -> tuple[Tensor | None, ...]:
        q, k, written, whole, *before = ctx.saved_tensors
        dq, dk, dwritten = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(written)
        dwhole = torch.empty_like(whole)
        weight = _layout(q.shape[1], ctx.power).weight.to(q)
        # The derivative by the state over the weights: sums of products go into it as they are.
        flow = torch.where(weight > 0, dlast / weight, 0.0)
        with full_precision(q.device):
            for index, tokens in reversed(list(enumerate(_chunks(q, ctx.chunk)))):
                old, dnew = before[index], flow * weight
                dwhole[:, index] = torch.linalg.vecdot(flow.flatten(1), old.flatten(1))
                flow *= whole[:, index, None, None]
                for heads in _head_groups(q, ctx.chunk):
                    here = (heads, slice(None), tokens)
                    if index < len(before) - 1 or dlast.any():
                        columns, put = _Columns(k[here], ctx.power), written[here].contiguous()
                        dput = torch.zeros_like(put)
                        for block, m in columns.blocks():
                            dput.baddbmm_(dnew[heads, :, block.rows], m)
                            columns.pull(block, dnew[heads, :, block.rows].mT @ put)
                        dk[here], dwritten[here] = columns.gradient(), dput
                    if index > 0 or not ctx.empty or ctx.needs_input_grad[4]:
                        columns, dread = _Columns(q[here], ctx.power), dreads[here].contiguous()
                        for block, m in columns.blocks():
                            flow[heads, :, block.rows].baddbmm_(dread, m.mT)
                            columns.pull(block, old[heads, :, block.rows].mT @ dread)
                        dq[here] = columns.gradient()
        return dq, dk, dwritten, dwhole, flow * weight, None, None


class _Tile(NamedTuple):
    """Products of a few neighbouring variables and the last ``size`` monomials of the degree below."""

    variables: slice
    size: int

    @property
    def rows(self) -> int:
        """How many products."""
        return (self.variables.stop - self.variables.start) * self.size


class _Block(NamedTuple):
    """Neighbouring tiles, and where their rows stand among all."""

    tiles: tuple[_Tile, ...]
    rows: slice


class _Layout(NamedTuple):
    """All tiles of one degree: every monomial at least once, in few long products.

    A tile of several variables holds some monomials twice. The second time they have no weight.
    """

    tiles: tuple[_Tile, ...]
    monomial: Tensor  # (rows,): which one stands in each row
    place: Tensor  # (D,): the row in which a monomial counts
    weight: Tensor  # (rows,): its multinomial coefficient, 0 where it does not count


def _tiles(dim: int, power: int, width: int) -> tuple[_Tile, ...]:
    """Tiles of that many variables."""
    lower, starts = dimension(dim, power - 1), monomials(dim, power).starts
    return tuple(_Tile(slice(i, min(i + width, dim)), lower - starts[i]) for i in range(0, dim, width))


@kept(64)
def _layout(dim: int, power: int) -> _Layout:
    """The layout of the state: tiles of a sixteenth of the variables, to double as few monomials."""
    table, lower = monomials(dim, power), dimension(dim, power - 1)
    tiles = _tiles(dim, power, max(1, dim // 16))
    first = torch.searchsorted(table.first, torch.arange(dim))  # where each variable's monomials begin
    index, counts = [], []
    for tile in tiles:
        for i in range(tile.variables.start, tile.variables.stop):
            tail = torch.arange(lower - tile.size, lower) - table.starts[i]
            index.append((first[i] + tail).clamp(min=0))
            counts.append(tail >= 0)
    rows, counted = torch.cat(index), torch.cat(counts)
    place = counted.nonzero().flatten()
    place = place[rows[place].argsort()]
    return _Layout(tiles, rows, place, table.weight[rows] * counted)


class _Columns:
    """The monomials of many vectors at once, as (heads, rows, tokens), a block at a time, and their derivative.

    The monomials of degree p that begin with x_i are x_i times a tail of those of degree p - 1: long contiguous
    products, no gathering.
    """

    def __init__(self, x: Tensor, power: int):
        x = x.contiguous()  # rows far apart would fall on one another in the cache
        self.x, self.power = x, power
        self.lower = [x]  # degrees 1 ... p - 1
        for degree in range(2, power):
            self.lower.append(self._products(_tiles(x.shape[1], degree, 1), degree))
        self.dx = torch.empty(0)
        self.dlower: list[Tensor] = []

    def _products(self, tiles: tuple[_Tile, ...], degree: int) -> Tensor:
        """The monomials of some tiles of one degree, (heads, rows, tokens)."""
        lower = self.lower[degree - 2]
        sizes = [tile.rows for tile in tiles]
        out = lower.new_empty(lower.shape[0], sum(sizes), lower.shape[2])
        for tile, part in zip(tiles, out.split(sizes, 1)):
            torch.mul(
                self.x[:, tile.variables, None], lower[:, None, -tile.size :], out=part.unflatten(1, (-1, tile.size))
            )
        return out

    def _pull(self, tiles: tuple[_Tile, ...], degree: int, grad: Tensor) -> None:
        lower, dlower = self.lower[degree - 2], self.dlower[degree - 2]
        for tile, part in zip(tiles, grad.split([tile.rows for tile in tiles], 1)):
            square = part.unflatten(1, (-1, tile.size))
            self.dx[:, tile.variables] += (square * lower[:, None, -tile.size :]).sum(2)
            below = dlower[:, -tile.size :]
            for x, row in zip(self.x[:, tile.variables].split(1, 1), square.unbind(1)):
                below.addcmul_(row, x)

    def blocks(self) -> Iterator[tuple[_Block, Tensor]]:
        """The monomials, block by block."""
        limit = max(1, _block_numbers(self.x) // (self.x.shape[0] * self.x.shape[2]))
        for block in _blocks(self.x.shape[1], self.power, limit):
            yield block, self._products(block.tiles, self.power)

    def pull(self, block: _Block, grad: Tensor) -> None:
        """Take in the derivative by one block's monomials."""
        if not self.dlower:
            self.dx = torch.zeros_like(self.x)
            self.dlower = [torch.zeros_like(lower) for lower in self.lower]
        self._pull(block.tiles, self.power, grad)

    def gradient(self) -> Tensor:
        """The derivative by the vectors, once every block was pulled."""
        for degree in range(self.power - 1, 1, -1):
            self._pull(_tiles(self.x.shape[1], degree, 1), degree, self.dlower[degree - 1])
        return self.dx.add_(self.dlower[0])


@lru_cache(maxsize=256)
def _blocks(dim: int, power: int, limit: int) -> tuple[_Block, ...]:
    """All tiles, in blocks of at most ``limit`` rows where one tile's rows allow it."""
    blocks: list[_Block] = []
    for tile in _layout(dim, power).tiles:
        rows = slice(blocks[-1].rows.stop if blocks else 0, 0)
        if blocks and blocks[-1].rows.stop - blocks[-1].rows.start + tile.rows <= limit:
            last = blocks.pop()
            blocks.append(_Block((*last.tiles, tile), slice(last.rows.start, last.rows.stop + tile.rows)))
        else:
            blocks.append(_Block((tile,), slice(rows.start, rows.start + tile.rows)))
    return tuple(blocks)


def _block_numbers(x: Tensor) -> int:
    """How many numbers a block should hold: what stays in a core's cache, or what fills a GPU."""
    return 2**19 if x.device.type == "cpu" else 2**27


def _chunks(q: Tensor, chunk: int) -> list[slice]:
    tokens = q.shape[-1]
    return [slice(start, min(start + chunk, tokens)) for start in range(0, tokens, chunk)]


def _head_groups(q: Tensor, chunk: int) -> list[slice]:
    """Heads taken together: two on a CPU, whose numbers stay in the cache; as many as fit in a block on a GPU."""
    group = 2 if q.device.type == "cpu" else max(1, _block_numbers(q) // (512 * chunk))
    return [slice(start, start + group) for start in range(0, q.shape[0], group)]
