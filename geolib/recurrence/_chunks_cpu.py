"""The engine of the chunked form on a CPU: a few heads and tokens at a time, so that what is made stays in the cache.

With the embedding phi(x) of a vector x there are two ways through a state M, and one through the pairs of a chunk; all
take stacks of chunks, (chunks, tokens, features):

    write   M = sum_t w_t phi(x_t)^T                         slope   the derivative of w_t . M phi(x_t) by x_t
    read    y_t = M phi(x_t)                                 pairs   y_i = sum_(j <= i) exp(G_i - G_j) (q_i . k_j)^p v_j

The derivative of read by M is a write, that of write by w a read. Neither embeddings nor pairs are kept: the backward
pass makes them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from geolib._checks import readable
from geolib._precision import full_precision
from geolib.recurrence._shared import Sums, cut, following, gate_sums, power_of, sides
from geolib.sympow import _root_weights, dimension, monomials, norm_functional

CACHED = 2**19
"""How many numbers stay in a core's cache."""

NARROW = 128
"""How many queries take their part of a chunk's pairs together: narrower products do not pay."""

GENTLE = 16.0
"""The largest sum of log gates whose exponential may stand outside the square of pairs: what it multiplies keeps its
digits and stays far from the ends of float32's range."""


def attend_on_cpu(
    q: Tensor, k: Tensor, v: Tensor, log_gates: Tensor | None, start: Tensor, power: int, chunk: int
) -> Sums:
    """The sums of the chunked form: the pairs of every chunk, what it writes, the states before it, what it reads."""
    leading = q.shape[:3]
    empty = readable(start) and not (start.requires_grad or bool(start.any()))
    state, own, end = start.flatten(0, 1), None, q.new_ones(())
    if log_gates is not None:
        whole = gate_sums(log_gates).sums  # by these queries, keys and the last state are derived; the rest is constant
        q, k = following(q, k, whole, power)
        end = 1 + (whole - whole.detach())[:, :, -1].to(q.dtype).flatten()[:, None, None]
        own = gate_sums(cut(log_gates.detach()[..., None], chunk).squeeze(-1))
    q, k, v = (cut(t, chunk) for t in (q, k, v))
    from_start, to_end, kept = (t.to(q.dtype) for t in sides(own, q))
    total = _stacked(_PAIRS, q, k, v, *(own or (None, None)), power)
    written = v * to_end[..., None]
    states, kept = [state], kept.exp()[..., None, None]
    for new, left in zip(_stacked(_WRITE, k[:, :-1], written[:, :-1], power).unbind(1), kept.unbind(1)):
        states.append(left * states[-1] + new)
    last = end * (kept[:, -1] * states[-1] + _WRITE(k[:, -1], written[:, -1], power))
    before, first = torch.stack(states, 1), int(empty)  # of an empty state nothing is read
    read = from_start[:, first:, :, None] * _stacked(_READ, q[:, first:], before[:, first:], power)
    total = torch.cat([total[:, :first], total[:, first:] + read], 1)
    trace = norm_functional(q.shape[-1], power, q.device).to(q.dtype)
    floor = torch.finfo(q.dtype).eps * from_start * (before[:, :, -1].detach() @ trace)[..., None]
    total, floor = (t.flatten(1, 2)[:, : leading[2]].unflatten(0, leading[:2]) for t in (total, floor))
    return Sums(total, last.unflatten(0, leading[:2]), floor)


def attend_in_one_chunk(q: Tensor, k: Tensor, v: Tensor, log_gates: Tensor | None, power: int) -> Tensor:
    """sum_j B_ij V_j over the keys up to the query's, one chunk and no state; (batch, heads, tokens, width of v)."""
    if log_gates is None:
        return _stacked(_PAIRS, q, k, v, None, None, power)
    sums, first = gate_sums(log_gates)
    return _stacked(_PAIRS, *following(q, k, sums, power), v, sums.detach(), first, power)


def _stacked(operator: Callable[..., Tensor], *args: Tensor | int | None) -> Tensor:
    """An operator for (heads, chunks, ...)."""
    stacks = (t.flatten(0, 1) if isinstance(t, Tensor) else t for t in args)
    return operator(*stacks).unflatten(0, args[0].shape[:2])  # type: ignore[union-attr]


def _few_at_a_time(function: Callable[..., Any]) -> Callable[..., Any]:
    """Of the chunks of a stack as many at a time as the cache holds with what a few of their tokens make."""

    def all_of(*args: Any) -> Any:
        (tokens, dim), power = args[0].shape[1:], args[-1]
        pairs = function in (_pairs, _pairs_slope)
        made = 2 * tokens * NARROW if pairs else min(tokens, _tokens(dim, power)) * dimension(dim, power)
        size = max(1, CACHED // made)
        parts = ([t] * -(-len(args[0]) // size) if t is None else t.split(size) for t in args[:-1])
        with full_precision(args[0].device):
            found = [function(*part, power) for part in zip(*parts)]
        return torch.cat(found) if isinstance(found[0], Tensor) else tuple(map(torch.cat, zip(*found)))

    return all_of


# Through the state --------------------------------------------------------------------------------------------------


def _tokens(dim: int, power: int) -> int:
    """How many tokens' embeddings are made together."""
    return max(NARROW // 2, 2 * CACHED // dimension(dim, power))


def _columns(power: int, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """A few tokens of each at a time, as columns: (chunks, features, tokens), in long contiguous rows."""
    for parts in zip(*(t.split(_tokens(tensors[0].shape[-1], power), 1) for t in tensors)):
        yield tuple(t.mT.contiguous() for t in parts)


def _monomials(x: Tensor, power: int) -> list[Tensor]:
    """Those of degrees 1 ... p of columns, without weights.

    Those that begin with x_i are x_i times a tail of the degree before: long products, no gathering.
    """
    found = [x]
    for degree in range(2, power + 1):
        lower, starts = found[-1], monomials(x.shape[1], degree).starts
        sizes = [lower.shape[1] - start for start in starts]
        found.append(x.new_empty(x.shape[0], sum(sizes), x.shape[2]))
        for i, (start, part) in enumerate(zip(starts, found[-1].split(sizes, 1))):
            torch.mul(x[:, i : i + 1], lower[:, start:], out=part)
    return found


def _write(x: Tensor, w: Tensor, power: int) -> Tensor:
    root = _root_weights(x.shape[-1], power, x.device, x.dtype)
    state = x.new_zeros(x.shape[0], w.shape[-1], len(root))
    for columns, put in _columns(power, x, w):
        state.baddbmm_(put, _monomials(columns, power)[-1].mT)
    return state.mul_(root)


def _read(x: Tensor, state: Tensor, power: int) -> Tensor:
    state = state * _root_weights(x.shape[-1], power, x.device, x.dtype)
    return torch.cat([(state @ _monomials(columns, power)[-1]).mT for (columns,) in _columns(power, x)], 1)


def _slope(x: Tensor, w: Tensor, state: Tensor, power: int) -> Tensor:
    state, found = (state * _root_weights(x.shape[-1], power, x.device, x.dtype)).mT, []
    for columns, put in _columns(power, x, w):
        lower, by, by_x = _monomials(columns, power - 1), state @ put, torch.zeros_like(columns)
        for degree in range(power, 1, -1):
            below, by_below = lower[degree - 2], torch.zeros_like(lower[degree - 2])
            starts = monomials(x.shape[-1], degree).starts
            for i, (start, part) in enumerate(zip(starts, by.split([below.shape[1] - s for s in starts], 1))):
                by_x[:, i] += (part * below[:, start:]).sum(1)
                by_below[:, start:].addcmul_(part, columns[:, i : i + 1])
            by = by_below
        found.append((by_x + by).mT)
    return torch.cat(found, 1)


# Pairs --------------------------------------------------------------------------------------------------------------


def _parts(
    q: Tensor, k: Tensor, sums: Tensor | None, first: Tensor | None
) -> Iterator[tuple[slice, slice, Tensor, Tensor | None]]:
    """A few queries at a time and the keys up to theirs: scores, and the gates where they stand inside."""
    for start in range(0, q.shape[1], NARROW):  # more rows would leave the cache
        stop = min(start + NARROW, q.shape[1])
        rows, keys, gates = slice(start, stop), slice(0, stop), None
        score = q[:, rows] @ k[:, keys].mT
        score[:, :, start:].tril_()
        if sums is not None and first is not None:
            # Differences first, in float64: a chunk may hold one gate near 0 among many near 1.
            logs = (sums[:, rows, None] - sums[:, None, keys]).clamp_(max=0)
            hidden = torch.arange(stop, device=q.device) < first[:, rows, None]
            gates = logs.to(q.dtype).exp_().masked_fill_(hidden, 0.0)
        yield rows, keys, score, gates


def _gentle(sums: Tensor | None, first: Tensor | None, q: Tensor) -> Tensor | None:
    """What stands at the sides of squares in place of gates inside, (chunks, tokens, 1), where all gates allow it."""
    if sums is None or first is None:
        return q.new_ones(())
    slow = (sums[:, 0] - sums[:, -1] <= GENTLE) & (first[:, 0] == first[:, -1])
    return (sums - sums[:, -1:]).to(q.dtype).exp()[..., None] if bool(slow.all()) else None


def _pairs(q: Tensor, k: Tensor, v: Tensor, sums: Tensor | None, first: Tensor | None, power: int) -> Tensor:
    if (side := _gentle(sums, first, q)) is not None:
        sums, v = None, v / side
    out = []
    for _, keys, score, gates in _parts(q, k, sums, first):
        squares = power.bit_length() - 1
        weights = power_of(score, power) if power != 2**squares else score
        for _ in range(squares if weights is score else 0):
            weights.square_()  # where it stands
        out.append((weights if gates is None else weights.mul_(gates)) @ v[:, keys])
    return torch.cat(out, 1) if side is None else side * torch.cat(out, 1)


def _pairs_slope(
    q: Tensor, k: Tensor, v: Tensor, sums: Tensor | None, first: Tensor | None, by: Tensor, power: int
) -> tuple[Tensor, Tensor, Tensor]:
    if (side := _gentle(sums, first, q)) is not None:
        sums, v, by = None, v / side, by * side
    by_q, by_k, by_v = (torch.zeros_like(t) for t in (q, k, v))
    for rows, keys, score, gates in _parts(q, k, sums, first):
        lower = power_of(score, power - 1)
        lower = lower if gates is None else lower.mul_(gates)
        by_score = (by[:, rows] @ v[:, keys].mT).mul_(lower).mul_(power)
        by_q[:, rows] = by_score @ k[:, keys]
        by_k[:, keys] += by_score.mT @ q[:, rows]
        by_v[:, keys] += lower.mul_(score).mT @ by[:, rows]
    return by_q, by_k, by_v if side is None else by_v / side


# Operators, each with its derivative, once ---------------------------------------------------------------------------

_KEYS = "Tensor q, Tensor k, Tensor v, Tensor? sums, Tensor? first"
_MADE: dict[str, tuple[Callable[..., Any], str, Callable[..., Any]]] = {
    "write": (_write, "(Tensor x, Tensor w, SymInt power) -> Tensor",
              lambda x, w, power: x.new_empty(len(x), w.shape[-1], dimension(x.shape[-1], power))),
    "read": (_read, "(Tensor x, Tensor state, SymInt power) -> Tensor",
             lambda x, state, power: x.new_empty(*x.shape[:2], state.shape[1])),
    "slope": (_slope, "(Tensor x, Tensor w, Tensor state, SymInt power) -> Tensor",
              lambda x, *more: torch.empty_like(x)),
    "pairs": (_pairs, f"({_KEYS}, SymInt power) -> Tensor", lambda q, k, v, *more: torch.empty_like(v)),
    "pairs_slope": (_pairs_slope, f"({_KEYS}, Tensor by, SymInt power) -> (Tensor, Tensor, Tensor)",
                    lambda q, k, v, *more: tuple(torch.empty_like(t) for t in (q, k, v))),
}  # fmt: skip
OPERATORS = {f"geolib::{name}": _few_at_a_time(function) for name, (function, *_) in _MADE.items()}
"""The operators that this module adds to PyTorch's, and what each is made of."""


def _operator(name: str) -> Any:
    """A graph holds it whole; what ``torch.vmap`` maps over joins the chunks of the stack."""
    schema, fake = _MADE[name][1:]
    operator = torch.library.custom_op(f"geolib::{name}", OPERATORS[f"geolib::{name}"], mutates_args=(), schema=schema)
    operator.register_fake(fake)

    @operator.register_vmap
    def _(info: Any, places: tuple[int | None, ...], *args: Any) -> tuple[Any, Any]:
        def joined(x: Any, place: int | None) -> Any:
            if not isinstance(x, Tensor):
                return x
            return (x.expand(info.batch_size, *x.shape) if place is None else x.movedim(place, 0)).flatten(0, 1)

        out = operator(*map(joined, args, places))
        if isinstance(out, Tensor):
            return out.unflatten(0, (info.batch_size, -1)), 0
        return tuple(t.unflatten(0, (info.batch_size, -1)) for t in out), (0,) * len(out)

    return getattr(torch.ops.geolib, name).default


def _derived(function: Callable[..., Any], pull: Callable[..., Any]) -> Callable[..., Any]:
    """A function of tensors and a power whose derivatives are pull(by its value, tensors, power)."""

    class Derived(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(*args: Any) -> Any:
            return function(*args)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            ctx.save_for_backward(*inputs[:-1])
            ctx.power = inputs[-1]

        @staticmethod
        def backward(ctx: Any, *by: Tensor) -> tuple[Tensor | None, ...]:
            saved = ctx.saved_tensors  # read once: non-reentrant checkpointing unpacks them no second time
            found = pull(*by, *saved, ctx.power)
            return *found, *(None,) * (len(saved) + 1 - len(found))

    def apply(*args: Any) -> Any:
        """A compiler takes the operator as it is where nothing asks for a derivative."""
        sought = torch.is_grad_enabled() and any(isinstance(t, Tensor) and t.requires_grad for t in args)
        return Derived.apply(*args) if sought or not torch.compiler.is_compiling() else function(*args)

    return apply


def _refused(*args: Any) -> Any:
    raise RuntimeError("the chunked form is differentiable once on a CPU")


def _once(operator: Callable[..., Any]) -> Callable[..., Any]:
    """The same without a derivative; a compiler takes the operator as it is."""
    refusing = _derived(operator, _refused)
    return lambda *args: (operator if torch.compiler.is_compiling() else refusing)(*args)


_write_op, _read_op, _pairs_op = map(_operator, ("write", "read", "pairs"))
_write_once, _read_once, _slope_once, _pairs_once = map(
    _once, (_write_op, _read_op, _operator("slope"), _operator("pairs_slope"))
)
_WRITE = _derived(_write_op, lambda by, x, w, p: (_slope_once(x, w, by, p), _read_once(x, by, p)))
_READ = _derived(_read_op, lambda by, x, state, p: (_slope_once(x, by, state, p), _write_once(x, by, p)))
_PAIRS = _derived(_pairs_op, lambda by, *given: _pairs_once(*given[:-1], by, given[-1]))
