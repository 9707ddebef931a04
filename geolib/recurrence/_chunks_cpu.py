"""The engine of the chunked form on a CPU: what stays in a core's cache, made again in the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from geolib._compile import kept
from geolib._precision import full_precision
from geolib.recurrence._shared import Sums, gate_sums, power_of, transformed
from geolib.sympow import dimension, monomials, norm_functional

PARTS = 4
"""Into how many the queries of a chunk are cut: a part sees the keys up to its own end, so that less lies above the
diagonal."""

NARROW = 128
"""The fewest queries of a part: narrower products do not pay."""

GENTLE = 16.0
"""The largest sum of log gates whose exponential may stand outside the square of pairs: what it multiplies keeps its
digits and stays far from the ends of float32's range."""


def attend_on_cpu(
    q: Tensor, k: Tensor, v: Tensor, log_gates: Tensor | None, start: Tensor, power: int, chunk: int
) -> Sums:
    """The sums of the chunked form, chunk after chunk."""
    leading, dim = q.shape[:2], q.shape[-1]
    decay = _ChunkDecay.of(log_gates, q, chunk)
    # From here on tokens are the last dimension and heads are flat: the layout of long contiguous rows.
    columns = [t.flatten(0, 1).mT.contiguous() for t in (q, k, v)]
    root = monomials(dim, power, q.device).weight.sqrt().to(q.dtype)
    layout = _layout(dim, power)
    begin = (start.flatten(0, 1) / root)[..., layout.monomial]  # those that stand there twice have weight 0
    inside = _WithinChunks.apply(*columns, decay.sums, decay.first, power, chunk)
    through = (*columns[:2], columns[2] * decay.to_end, decay.whole, begin)
    older, last, bound, _ = _ThroughState.apply(*through, power, chunk, _recorded(*through))
    total = (inside + decay.from_start * older).mT.unflatten(0, leading)
    mass = decay.from_start.detach().squeeze(1) * bound.repeat_interleave(chunk, 1)[:, : q.shape[2]]
    floor = torch.finfo(q.dtype).eps * mass
    return Sums(total, (last[..., layout.place] * root).unflatten(0, leading), floor.unflatten(0, leading))


def attend_in_one_chunk(q: Tensor, k: Tensor, v: Tensor, log_gates: Tensor | None, power: int) -> Tensor:
    """sum_j B_ij V_j over the keys up to the query's, one chunk and no state; (batch, heads, tokens, width of v)."""
    gates = (None, None) if log_gates is None else gate_sums(log_gates.flatten(0, 1))
    columns = [t.flatten(0, 1).mT.contiguous() for t in (q, k, v)]
    return _WithinChunks.apply(*columns, *gates, power, q.shape[2]).mT.unflatten(0, q.shape[:2])


def _recorded(*tensors: Tensor) -> bool:
    """Whether a derivative may be asked for; under a transform of functions it may without a sign of it."""
    hidden = not torch.compiler.is_compiling() and transformed()
    return torch.is_grad_enabled() and (hidden or any(t.requires_grad for t in tensors))


class _Once(torch.autograd.Function):
    """An operator that has no derivative: asking for one is an error, under ``torch.func.grad`` too."""

    generate_vmap_rule = True

    @staticmethod
    def forward(operator: Any, *args: Any) -> Any:
        return operator(*args)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise RuntimeError("the chunked form is differentiable once on a CPU")


def _once(operator: Any, *args: Any) -> Any:
    """What a derivative is made of; a compiler takes the operator as it is."""
    return operator(*args) if torch.compiler.is_compiling() else _Once.apply(operator, *args)


class _ChunkDecay(NamedTuple):
    """What the gates do within chunks, heads flat: sums of log gates from the chunk's start, and their exponentials."""

    sums: Tensor | None  # (heads, tokens), float64, begun again at a reset
    first: Tensor | None  # (heads, tokens): the chunk's token from which on keys count
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
            return cls(None, None, one, one, q.new_ones(heads, chunks))
        padded = nn.functional.pad(log_gates.flatten(0, 1), (0, chunks * chunk - tokens))
        sums, first = gate_sums(padded.unflatten(-1, (chunks, chunk)))
        ends, cut = sums[..., -1:], first[..., -1:]

        def kept(logs: Tensor, lost: Tensor) -> Tensor:
            return logs.masked_fill(lost, float("-inf")).exp().to(q.dtype)

        def by_token(t: Tensor) -> Tensor:
            return t.flatten(-2)[:, :tokens]

        later = torch.arange(chunk, device=q.device) < cut
        from_start, to_end = by_token(kept(sums, first >= 0)), by_token(kept(ends - sums, later))
        whole = kept(ends, cut >= 0).squeeze(-1)
        return cls(by_token(sums), by_token(first), from_start[:, None], to_end[:, None], whole)


# Pairs of a chunk ---------------------------------------------------------------------------------------------------


class _Square(NamedTuple):
    """Some heads of one chunk; gates of slow heads stand at the sides of the square of pairs, and not in it."""

    heads: slice
    tokens: slice
    slow: bool

    @property
    def place(self) -> tuple[slice, ...]:
        """Where its columns stand."""
        return self.heads, slice(None), self.tokens

    def parts(self, chunk: int) -> Iterator[slice]:
        """The queries, a few at a time."""
        size = max(NARROW, -(-chunk // PARTS))
        for start in range(self.tokens.start, self.tokens.stop, size):
            yield slice(start, min(start + size, self.tokens.stop))


class _Sides(NamedTuple):
    """Which chunks of a head are slow, and what multiplies rows and columns of their squares, (heads, 1, tokens).

    Without gates no head is told of, so that all are slow, and nothing multiplies.
    """

    slow: list[list[bool]]
    row: Tensor | None
    column: Tensor | None

    @classmethod
    def of(cls, sums: Tensor | None, first: Tensor | None, q: Tensor, chunk: int) -> _Sides:
        """Decay before a chunk's end over that from its start."""
        if sums is None or first is None:
            return cls([], None, None)
        begins = torch.arange(0, q.shape[2], chunk, device=q.device)
        ends = (begins + chunk - 1).clamp(max=q.shape[2] - 1)
        last = sums[:, ends]
        slow = (sums[:, begins] - last <= GENTLE) & (first[:, begins] == first[:, ends])
        left = (sums - last.repeat_interleave(chunk, 1)[:, : q.shape[2]])[:, None]
        # Where heads are not slow these are never used; the limit keeps them finite.
        row = left.clamp(-GENTLE, GENTLE).to(q.dtype).exp()
        return cls(slow.tolist(), row, 1 / row)

    def squares(self, q: Tensor, chunk: int) -> Iterator[_Square]:
        """All chunks of all heads, a few heads at a time."""
        size = max(2, 2**17 // (min(NARROW, chunk) * chunk))  # more where chunks are short
        for index, tokens in enumerate(_chunks(q, chunk)):
            for start in range(0, q.shape[0], size):
                heads = slice(start, min(start + size, q.shape[0]))
                yield _Square(heads, tokens, all(row[index] for row in self.slow[heads]))


def _gated(weights: Tensor, sums: Tensor | None, first: Tensor | None, square: _Square, part: slice) -> Tensor:
    """Weights of a part of the queries times the decay of its pairs, in place; of slow heads as they are."""
    if square.slow or sums is None or first is None:
        return weights
    keys = sums[square.heads, square.tokens.start : part.stop]
    # Differences first, in float64: a chunk may hold one gate near 0 among many near 1. Above the diagonal they may be
    # large, where the score is zero already.
    logs = (sums[square.heads, part, None] - keys[:, None]).clamp_(max=0)
    index = torch.arange(keys.shape[1], device=keys.device)
    return weights.mul_(logs.to(weights.dtype).exp_().masked_fill_(index < first[square.heads, part, None], 0.0))


def _score(q: Tensor, k: Tensor, square: _Square, part: slice) -> tuple[Tensor, tuple[slice, ...], tuple[slice, ...]]:
    """Scores of a part of the queries, zero above the diagonal, and where queries and keys stand."""
    rows = (square.heads, slice(None), part)
    columns = (square.heads, slice(None), slice(square.tokens.start, part.stop))
    return (q[rows].mT @ k[columns]).tril_(part.start - square.tokens.start), rows, columns


def _within(
    q: Tensor, k: Tensor, v: Tensor, sums: Tensor | None, first: Tensor | None, power: int, chunk: int
) -> Tensor:
    """sum_j B_ij [V_j, 1] over the keys of the query's own chunk; pairs are made again in the backward pass."""
    out, sides = torch.empty_like(v), _Sides.of(sums, first, q, chunk)
    written = v if sides.column is None else v * sides.column
    with full_precision(q.device):
        for square in sides.squares(q, chunk):
            values = written if square.slow else v
            for part in square.parts(chunk):
                score, rows, columns = _score(q, k, square, part)
                out[rows] = values[columns] @ _gated(power_of(score, power), sums, first, square, part).mT
            if sides.row is not None and square.slow:
                out[square.place] *= sides.row[square.place]
    return out


def _within_backward(
    q: Tensor, k: Tensor, v: Tensor, sums: Tensor | None, first: Tensor | None, grad: Tensor, power: int, chunk: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The derivatives by queries, keys and values."""
    dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
    sides = _Sides.of(sums, first, q, chunk)
    written = v if sides.column is None else v * sides.column
    weighed = grad if sides.row is None else grad * sides.row
    with full_precision(q.device):
        for square in sides.squares(q, chunk):
            values, given = (written, weighed) if square.slow else (v, grad)
            for part in square.parts(chunk):
                score, rows, columns = _score(q, k, square, part)
                g = given[rows]
                lower = _gated(power_of(score, power - 1), sums, first, square, part)
                dscore = (g.mT @ values[columns]).mul_(lower).mul_(power)
                dq[rows] = k[columns] @ dscore.mT
                dk[columns] += q[rows] @ dscore
                dv[columns] += g @ lower.mul_(score)
            if sides.column is not None and square.slow:
                dv[square.place] *= sides.column[square.place]
    return dq, dk, dv


_KEYS = "Tensor q, Tensor k, Tensor v, Tensor? sums, Tensor? first"
within_chunks = torch.library.custom_op(
    "geolib::within_chunks", _within, mutates_args=(), schema=f"({_KEYS}, SymInt power, SymInt chunk) -> Tensor"
)
within_chunks_backward = torch.library.custom_op(
    "geolib::within_chunks_backward",
    _within_backward,
    mutates_args=(),
    schema=f"({_KEYS}, Tensor grad, SymInt power, SymInt chunk) -> (Tensor, Tensor, Tensor)",
)
within_chunks.register_fake(lambda q, k, v, *more: torch.empty_like(v))
within_chunks_backward.register_fake(lambda q, k, v, *more: tuple(torch.empty_like(t) for t in (q, k, v)))


class _WithinChunks(torch.autograd.Function):
    """The operator with its derivative, once; functions of functions see both."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        q: Tensor, k: Tensor, v: Tensor, sums: Tensor | None, first: Tensor | None, power: int, chunk: int
    ) -> Tensor:
        return within_chunks(q, k, v, sums, first, power, chunk)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:5])
        ctx.power, ctx.chunk = inputs[5:]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, sums, first = ctx.saved_tensors
        dq, dk, dv = _once(within_chunks_backward, q, k, v, sums, first, grad, ctx.power, ctx.chunk)
        # What a gate multiplies: sum_j B_ij dB_ij = Q_i . dQ_i / p, and so for keys.
        dsums = None if sums is None else ((q * dq).sum(1) - (k * dk).sum(1)).double() / ctx.power
        return dq, dk, dv, dsums, None, None, None


# Older tokens -------------------------------------------------------------------------------------------------------


def _through(
    q: Tensor, k: Tensor, written: Tensor, whole: Tensor, start: Tensor, power: int, chunk: int, keep: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The state's reading at every query, and the last state, in monomials without weights.

    The state U, (heads, width, rows of monomials), starts at ``start``. In each chunk every query reads (w U) m(Q) from
    the state before the chunk, m the monomials and w their multinomial weights; U becomes whole U + written m(K)^T. So
    (w U) m(Q) is a sum of written_j (Q . K_j)^p. Monomials are made in blocks, used and dropped.

    Then come sum_j b_ij |K_j|^p before every chunk, (heads, chunks), and the states that a derivative needs, w U before
    every chunk, where they are to be kept.
    """
    chunks, weight = _chunks(q, chunk), _layout(q.shape[1], power).weight.to(q)
    reads, state, empty = torch.zeros_like(written), start.clone(), not start.any()
    before = state.new_empty(state.shape[0], len(chunks) if keep else 0, *state.shape[1:])
    bound, trace = state.new_empty(state.shape[0], len(chunks)), _trace(q.shape[1], power).to(q)
    with full_precision(q.device):
        for index, tokens in enumerate(chunks):
            bound[:, index] = state[:, -1] @ trace
            old = state * weight
            if keep:
                before[:, index] = old
            state *= whole[:, index, None, None]
            for heads in _head_groups(q, chunk):
                here = (heads, slice(None), tokens)
                if index > 0 or not empty:
                    read = torch.zeros_like(reads[here], memory_format=torch.contiguous_format)
                    for block, m in _Columns(q[here], power).blocks():
                        read.baddbmm_(old[heads, :, block.rows], m)
                    reads[here] = read
                put = written[here].contiguous()
                for block, m in _Columns(k[here], power).blocks():
                    state[heads, :, block.rows].baddbmm_(put, m.mT)
    return reads, state, bound, before


def _through_backward(
    q: Tensor,
    k: Tensor,
    written: Tensor,
    whole: Tensor,
    before: Tensor,
    dreads: Tensor,
    dlast: Tensor,
    power: int,
    chunk: int,
    carried: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The derivatives by all tensors, by the start where it is ``carried``."""
    dq, dk, dwritten = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(written)
    dwhole = torch.empty_like(whole)
    weight = _layout(q.shape[1], power).weight.to(q)
    read_first = carried or bool(before[:, 0].any())
    # The derivative by the state over the weights: sums of products go into it as they are.
    flow = torch.where(weight > 0, dlast / weight, 0.0)
    with full_precision(q.device):
        for index, tokens in reversed(list(enumerate(_chunks(q, chunk)))):
            old, dnew = before[:, index], flow * weight
            dwhole[:, index] = torch.linalg.vecdot(flow.flatten(1), old.flatten(1))
            flow *= whole[:, index, None, None]
            for heads in _head_groups(q, chunk):
                here = (heads, slice(None), tokens)
                if index < before.shape[1] - 1 or dlast.any():
                    columns, put = _Columns(k[here], power), written[here].contiguous()
                    dput = torch.zeros_like(put)
                    for block, m in columns.blocks():
                        dput.baddbmm_(dnew[heads, :, block.rows], m)
                        columns.pull(block, dnew[heads, :, block.rows].mT @ put)
                    dk[here], dwritten[here] = columns.gradient(), dput
                if index > 0 or read_first:
                    columns, dread = _Columns(q[here], power), dreads[here].contiguous()
                    for block, m in columns.blocks():
                        flow[heads, :, block.rows].baddbmm_(dread, m.mT)
                        columns.pull(block, old[heads, :, block.rows].mT @ dread)
                    dq[here] = columns.gradient()
    return dq, dk, dwritten, dwhole, flow * weight


_WRITTEN = "Tensor q, Tensor k, Tensor written, Tensor whole"
through_state = torch.library.custom_op(
    "geolib::through_state",
    _through,
    mutates_args=(),
    schema=f"({_WRITTEN}, Tensor start, SymInt power, SymInt chunk, bool keep) -> (Tensor, Tensor, Tensor, Tensor)",
)
through_state_backward = torch.library.custom_op(
    "geolib::through_state_backward",
    _through_backward,
    mutates_args=(),
    schema=f"({_WRITTEN}, Tensor before, Tensor dreads, Tensor dlast, SymInt power, SymInt chunk, bool carried)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)


@through_state.register_fake
def _(q: Tensor, k: Tensor, written: Tensor, whole: Tensor, start: Tensor, power: int, chunk: int, keep: bool) -> Any:
    before = start.new_empty(start.shape[0], whole.shape[1] if keep else 0, *start.shape[1:])
    return torch.empty_like(written), torch.empty_like(start), torch.empty_like(whole), before


@through_state_backward.register_fake
def _(q: Tensor, k: Tensor, written: Tensor, whole: Tensor, before: Tensor, *more: Any) -> Any:
    dstart = before.new_empty(before.shape[0], *before.shape[2:])
    return *(torch.empty_like(t) for t in (q, k, written, whole)), dstart


class _ThroughState(torch.autograd.Function):
    """The operator with its derivative, once; functions of functions see both."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        q: Tensor, k: Tensor, written: Tensor, whole: Tensor, start: Tensor, power: int, chunk: int, keep: bool
    ) -> Any:
        return through_state(q, k, written, whole, start, power, chunk, keep)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[2:])
        ctx.save_for_backward(*inputs[:4], output[3])
        ctx.power, ctx.chunk = inputs[5:7]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        carried = ctx.needs_input_grad[4]
        found = _once(through_state_backward, *ctx.saved_tensors, *grads[:2], ctx.power, ctx.chunk, carried)
        return *found[:4], found[4] if carried else None, None, None, None


@kept(64)
def _trace(dim: int, power: int) -> Tensor:
    """The vector n with n . m(K) = |K|^p, for monomials in the rows of the state."""
    layout, trace = _layout(dim, power), norm_functional(dim, power)
    rows = torch.zeros(len(layout.weight), dtype=torch.float64)
    rows[layout.place] = trace * monomials(dim, power).weight.sqrt()
    return rows


def _by_heads(operator: Any, info: Any, places: tuple[int | None, ...], *args: Any) -> tuple[Any, Any]:
    """What is mapped over joins the heads, the first dimension of every tensor that the operator takes and gives."""

    def joined(x: Any, place: int | None) -> Any:
        if not isinstance(x, Tensor):
            return x
        x = x.expand(info.batch_size, *x.shape) if place is None else x.movedim(place, 0)
        return x.flatten(0, 1)

    out = operator(*(joined(x, place) for x, place in zip(args, places)))
    if isinstance(out, Tensor):
        return out.unflatten(0, (info.batch_size, -1)), 0
    return tuple(t.unflatten(0, (info.batch_size, -1)) for t in out), (0,) * len(out)


for _operator in (within_chunks, within_chunks_backward, through_state, through_state_backward):
    _operator.register_vmap(partial(_by_heads, _operator))

OPERATORS: dict[str, Callable[..., Any]] = {
    "geolib::within_chunks": _within,
    "geolib::within_chunks_backward": _within_backward,
    "geolib::through_state": _through,
    "geolib::through_state_backward": _through_backward,
}
"""The operators that this module adds to PyTorch's, and what each is made of."""


# Monomials in blocks ------------------------------------------------------------------------------------------------


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
    """Heads taken together: four on a CPU, whose numbers stay in the cache; as many as fit in a block on a GPU."""
    group = 4 if q.device.type == "cpu" else max(1, _block_numbers(q) // (512 * chunk))
    return [slice(start, start + group) for start in range(0, q.shape[0], group)]
