"""The engine of the chunked form on a GPU: few large products over all chunks at once, and one scan between them."""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from geolib._compile import recomputed
from geolib.recurrence._products import picked, product
from geolib.recurrence._shared import GateSums, Sums, cut, decay_of, following, gate_sums, in_parts, power_of, sides
from geolib.sympow import dimension, halves, monomials, norm_functional

NUMBERS = 2**29
"""How many numbers the largest intermediate may hold; what has more is made in parts."""

SCANNED = 64
"""Chunks that one product of the scan takes together: a product's work grows with their square."""


def attend_on_gpu(
    q: Tensor, k: Tensor, v: Tensor, log_gates: Tensor | None, start: Tensor, power: int, chunk: int,
    products: torch.dtype,
) -> Sums:  # fmt: skip
    """The sums of the chunked form, all chunks at once; its products are of the given dtype, summed in float32."""
    leading, dtype = q.shape[:3], q.dtype
    start = start.flatten(0, 1)
    lengths = power_of(cut(k.detach(), chunk).square().sum(-1), power // 2)
    q, k, v = (cut(t, chunk) for t in (q, k, v))
    gates = None if log_gates is None else gate_sums(cut(log_gates[..., None], chunk).squeeze(-1))
    near_q, near_k = (t.to(products) for t in ((q, k) if gates is None else following(q, k, gates.sums, power)))
    q, k, v = (t.to(products) for t in (q, k, v))
    from_start, to_end, ends = sides(gates, q)
    from_start, to_end = from_start.to(dtype), to_end.to(dtype)
    written = (v * to_end[..., None]).to(products)
    decays = _between(ends, dtype)
    near = None if gates is None else GateSums(gates.sums.detach(), gates.first)
    reads, last = _through(q, k, written, decays, start, power)
    pairs = _inside(near_q, near_k, v, near, power)
    total = pairs + from_start[..., None] * reads
    with torch.no_grad():
        trace = norm_functional(q.shape[-1], power, q.device).to(dtype)
        mass = (lengths * to_end).sum(-1)[..., None, None]
        bound = from_start * _scan(mass, decays, (start[:, -1] @ trace)[:, None, None])[0].squeeze(-1)
        # In bfloat16 the factors are rounded, each on its own: the errors of many terms add up like a random walk.
        terms = dimension(q.shape[-1], power) if products == torch.bfloat16 else 1
        floor = bound * (torch.finfo(products).eps / math.sqrt(terms))

    def whole(t: Tensor) -> Tensor:
        return t.flatten(1, 2)[:, : leading[2]].unflatten(0, leading[:2])

    return Sums(whole(total), last.unflatten(0, leading[:2]), whole(floor))


def _inside(q: Tensor, k: Tensor, v: Tensor, gates: GateSums | None, power: int) -> Tensor:
    """sum_j B_ij [V_j, 1] over the keys of the query's own chunk; the gates' derivative is that of q and k."""
    heads = max(1, NUMBERS // (q.shape[1] * q.shape[2] ** 2))
    split = [[None] * len(q)] * 2 if gates is None else [t.split(heads) for t in gates]
    parts = zip(q.split(heads), k.split(heads), v.split(heads), *split)
    return torch.cat([recomputed(_pairs, *part, power) for part in parts])


def _pairs(q: Tensor, k: Tensor, v: Tensor, sums: Tensor | None, first: Tensor | None, power: int) -> Tensor:
    weights = power_of(product(q, k.mT).tril(), power)
    if sums is not None and first is not None:
        weights = weights * _decay(sums, first, weights.dtype)
    return product(weights.to(v.dtype), v)


def _decay(sums: Tensor, first: Tensor, dtype: torch.dtype) -> Tensor:
    """exp(G_i - G_j) for all pairs, at most 1, 0 behind a reset; what it is above the diagonal does not matter."""
    large, *small = (part[..., :, None] - part[..., None, :] for part in in_parts(sums, dtype))
    hidden = torch.arange(sums.shape[-1], device=sums.device) < first[..., None]
    return sum(small, large).clamp(max=0).exp().masked_fill(hidden, 0.0)


def _through(
    q: Tensor, k: Tensor, written: Tensor, decays: list[Tensor], start: Tensor, power: int
) -> tuple[Tensor, Tensor]:
    """What every query reads of the state before its chunk, and the last state; monomials in blocks of bounded size."""
    left, right, weight = halves(q.shape[-1], power, q.device)
    root = weight.sqrt().to(start.dtype)
    q, k = _monomials(q, power // 2), _monomials(k, power // 2)
    rows = max(1, NUMBERS // q[..., 0].numel())
    blocks = zip(left.split(rows), right.split(rows), root.split(rows), start.split(rows, -1))
    reads, lasts = zip(*[recomputed(_block, q, k, written, *block, *decays) for block in blocks])
    return sum(reads), torch.cat(lasts, -1)  # type: ignore[return-value]


def _monomials(x: Tensor, power: int) -> Tensor:
    """All monomials of one degree, without weights."""
    out = x
    for degree in range(2, power + 1):
        table = monomials(x.shape[-1], degree, x.device)
        out = picked(x, table.first) * picked(out, table.rest)
    return out


def _block(
    q: Tensor, k: Tensor, written: Tensor, left: Tensor, right: Tensor, root: Tensor, start: Tensor, *decays: Tensor
) -> tuple[Tensor, Tensor]:
    """The part of some monomials, each a product of two of half the degree."""
    phi_q, phi_k = (picked(t, left) * picked(t, right) for t in (q, k))
    before, last = _scan(product(written.mT, phi_k) * root, decays, start)
    return product(phi_q, (before * root).to(phi_q.dtype).mT), last


def _between(ends: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """What is left of one chunk's state in a later one, for ``_scan``; ends, (heads, chunks), are in logarithms."""
    return [decay_of(gate_sums(F.pad(end, (1, 0)))).exp().to(dtype) for end in ends.split(SCANNED, 1)]


def _scan(update: Tensor, decays: Sequence[Tensor], start: Tensor) -> tuple[Tensor, Tensor]:
    """The state before every chunk and after the last: state' = exp(end) state + update.

    update is (heads, chunks, ...), decays those of ``_between``, start (heads, ...).
    """
    before, state = [], start[:, None]
    for new, decay in zip(update.split(SCANNED, 1), decays):
        states = product(decay, torch.cat([state, new], 1).flatten(2)).unflatten(2, update.shape[2:])
        before.append(states[:, :-1])
        state = states[:, -1:]
    return torch.cat(before, 1), state.squeeze(1)
