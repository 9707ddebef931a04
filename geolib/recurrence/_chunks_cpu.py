"""The engine of the chunked form on a CPU: what stays in a core's cache, made again in the backward pass."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from geolib._compile import uncompiled
from geolib._precision import full_precision
from geolib.recurrence._shared import Sums, power_of
from geolib.sympow import dimension, monomials, norm_functional


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
    inside = _WithinChunks.apply(*columns, decay.sums, power, chunk)
    written = columns[2] * decay.to_end
    older, last = _ThroughState.apply(*columns[:2], written, decay.whole, start * root, power, chunk)
    total = (inside + decay.from_start * older).mT.unflatten(0, leading)
    carried = start[:, -1].detach() @ norm_functional(q.shape[-1], power, q.device).to(q.dtype)
    floor = torch.finfo(q.dtype).eps * _mass(columns[1], written, decay, carried, power, chunk)
    return Sums(total, (last / root).unflatten(0, leading), floor.unflatten(0, leading))


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
        for heads, tokens in _tiles(q, chunk):
            score, decay = _pairs(q, k, sums, heads, tokens)
            out[heads, :, tokens] = v[heads, :, tokens] @ (power_of(score, power).mul_(decay)).mT
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, sums = ctx.saved_tensors
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        dsums = None if sums is None else torch.empty_like(sums)
        with full_precision(q.device):
            for heads, tokens in _tiles(q, ctx.chunk):
                score, decay = _pairs(q, k, sums, heads, tokens)
                lower = power_of(score, ctx.power - 1).mul_(decay)
                weights = lower * score
                g = grad[heads, :, tokens]
                dv[heads, :, tokens] = g @ weights
                dweights = g.mT @ v[heads, :, tokens]
                if dsums is not None:
                    flow = weights.mul_(dweights)
                    dsums[heads, tokens] = (flow.sum(-1) - flow.sum(-2)).double()
                dscore = dweights.mul_(lower).mul_(ctx.power)
                dq[heads, :, tokens] = k[heads, :, tokens] @ dscore.mT
                dk[heads, :, tokens] = q[heads, :, tokens] @ dscore
        return dq, dk, dv, dsums, None, None


def _pairs(q: Tensor, k: Tensor, sums: Tensor | None, heads: slice, tokens: slice) -> tuple[Tensor, Tensor]:
    """Scores of one chunk, zero above the diagonal, and their decay (one where there are no gates)."""
    score = (q[heads, :, tokens].mT @ k[heads, :, tokens]).tril_()
    if sums is None:
        return score, score.new_ones(())
    local = sums[heads, tokens]
    # Differences first, in float64: a chunk may hold one gate near 0 among many near 1. Above the diagonal they may be
    # large, where the score is zero already.
    return score, (local[..., :, None] - local[..., None, :]).clamp_(max=0).to(score.dtype).exp_()


class _ThroughState(torch.autograd.Function):
    """The state's reading at every query, and the last state, in monomials without weights.

    The state R, (heads, width, D), starts at ``start``. In each chunk every query reads R m(Q) from the state before
    the chunk, m the monomials; then R becomes whole R + w (sum_j written_j m(K_j)^T), w the multinomial weights. So
    R m(Q) is a sum of written_j (Q . K_j)^p. Monomials are made in blocks, used and dropped.
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, written: Tensor, whole: Tensor, start: Tensor, power: int, chunk: int
    ) -> tuple[Tensor, Tensor]:
        reads = torch.zeros_like(written)
        weight = monomials(q.shape[1], power, q.device).weight.to(q.dtype)
        state, before = start.clone(), []
        for index, tokens in enumerate(_chunks(q, chunk)):
            old = state
            state = old * whole[:, index, None, None]
            before.append(old)
            for heads in _head_groups(q, chunk):
                here = (heads, slice(None), tokens)
                for block, m in _Columns(q[here], power).blocks():
                    reads[here] += old[heads, :, block.rows] @ m
                for block, m in _Columns(k[here], power).blocks():
                    state[heads, :, block.rows] += (written[here] @ m.mT).mul_(weight[block.rows])
        ctx.save_for_backward(q, k, written, whole, *before)
        ctx.power, ctx.chunk = power, chunk
        return reads, state

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dreads: Tensor, dstate: Tensor) -> tuple[Tensor | None, ...]:
        q, k, written, whole, *before = ctx.saved_tensors
        dq, dk, dwritten = torch.empty_like(q), torch.empty_like(k), torch.zeros_like(written)
        dwhole = torch.empty_like(whole)
        weight = monomials(q.shape[1], ctx.power, q.device).weight.to(q.dtype)
        with full_precision(q.device):
            for index, tokens in reversed(list(enumerate(_chunks(q, ctx.chunk)))):
                old = before[index]
                dwhole[:, index] = (dstate * old).sum((-2, -1))
                dnew = dstate * weight
                dstate = dstate * whole[:, index, None, None]
                for heads in _head_groups(q, ctx.chunk):
                    here = (heads, slice(None), tokens)
                    columns = _Columns(k[here], ctx.power)
                    for block, m in columns.blocks():
                        dwritten[here] += dnew[heads, :, block.rows] @ m
                        columns.pull(block, dnew[heads, :, block.rows].mT @ written[here])
                    dk[here] = columns.gradient()
                    columns = _Columns(q[here], ctx.power)
                    for block, m in columns.blocks():
                        dstate[heads, :, block.rows] += dreads[here] @ m.mT
                        columns.pull(block, old[heads, :, block.rows].mT @ dreads[here])
                    dq[here] = columns.gradient()
        return dq, dk, dwritten, dwhole, dstate, None, None


class _Block(NamedTuple):
    """Neighbouring monomials: those whose smallest variable is one of a few."""

    variables: range
    rows: slice
    sizes: tuple[int, ...]  # rows of each variable


class _Columns:
    """The monomials of many vectors at once, as (heads, D, tokens), a block at a time, and their derivative.

    The monomials of degree p that begin with x_i are x_i times a tail of those of degree p - 1: long contiguous
    products, no gathering.
    """

    def __init__(self, x: Tensor, power: int):
        self.x, self.power = x, power
        self.variables = x.split(1, 1)
        self.lower = [x]  # degrees 1 ... p - 1
        for degree in range(2, power):
            self.lower.append(self._products(_whole(x.shape[1], degree), degree))
        self.dx: list[Tensor | None] = [None] * x.shape[1]
        self.dlower: list[Tensor] = []

    def _products(self, block: _Block, degree: int) -> Tensor:
        """A block of monomials of one degree, (heads, rows, tokens)."""
        lower = self.lower[degree - 2]
        out = lower.new_empty(lower.shape[0], sum(block.sizes), lower.shape[2])
        for i, size, part in zip(block.variables, block.sizes, out.split(block.sizes, 1)):
            torch.mul(self.variables[i], lower[:, -size:], out=part)
        return out

    def _pull(self, block: _Block, degree: int, grad: Tensor) -> None:
        lower, dlower = self.lower[degree - 2], self.dlower[degree - 2]
        for i, size, part in zip(block.variables, block.sizes, grad.split(block.sizes, 1)):
            own = (part * lower[:, -size:]).sum(1, keepdim=True)
            self.dx[i] = own if self.dx[i] is None else self.dx[i] + own
            dlower[:, -size:].addcmul_(part, self.variables[i])

    def blocks(self) -> Iterator[tuple[_Block, Tensor]]:
        """The monomials, block by block."""
        limit = max(1, _block_numbers(self.x) // (self.x.shape[0] * self.x.shape[2]))
        for block in _blocks(self.x.shape[1], self.power, limit):
            yield block, self._products(block, self.power)

    def pull(self, block: _Block, grad: Tensor) -> None:
        """Take in the derivative by one block's monomials."""
        if not self.dlower:
            self.dlower = [torch.zeros_like(lower) for lower in self.lower]
        self._pull(block, self.power, grad)

    def gradient(self) -> Tensor:
        """The derivative by the vectors, once every block was pulled."""
        for degree in range(self.power - 1, 1, -1):
            self._pull(_whole(self.x.shape[1], degree), degree, self.dlower[degree - 1])
        return torch.cat(self.dx, 1).add_(self.dlower[0])  # type: ignore[arg-type]


@lru_cache(maxsize=256)
def _blocks(dim: int, power: int, limit: int) -> tuple[_Block, ...]:
    """All monomials, cut between variables into blocks of at most ``limit`` rows where one variable's rows allow it."""
    lower = dimension(dim, power - 1)
    sizes = [lower - start for start in monomials(dim, power).starts]
    ends = [0, *itertools.accumulate(sizes)]
    blocks, first = [], 0
    for last in range(1, dim + 1):
        if last == dim or ends[last + 1] - ends[first] > limit:
            blocks.append(_Block(range(first, last), slice(ends[first], ends[last]), tuple(sizes[first:last])))
            first = last
    return tuple(blocks)


def _whole(dim: int, power: int) -> _Block:
    """All monomials in one block."""
    return _blocks(dim, power, dimension(dim, power))[0]


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


def _tiles(q: Tensor, chunk: int) -> list[tuple[slice, slice]]:
    """Heads and tokens whose pairs are made at a time: more heads where chunks are short."""
    group = max(2, 2**17 // chunk**2)
    heads = [slice(start, start + group) for start in range(0, q.shape[0], group)]
    return [(some, tokens) for tokens in _chunks(q, chunk) for some in heads]
