"""Laws of what comes after one another: caches, masks and packing, states."""

import io
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from geolib.conform.core import Broken, NotApplicable, Target, drawn, law, near


def inputs(target: Target, tokens: int, batch: int = 1, seed: int = 0) -> Tensor:
    """What a layer reads."""
    return drawn(batch, tokens, target.heads * target.head_dim, seed=seed)


def attended(target: Target, tokens: int, batch: int = 1) -> list[Tensor]:
    """Queries, keys and values."""
    return [drawn(batch, target.heads, tokens, target.head_dim, seed=i) for i in range(3)]


def at(*positions: int) -> Tensor:
    """Positions of one sample, (1, tokens)."""
    return torch.tensor([positions])


def in_parts(
    target: Target, module: Any, x: Tensor, parts: Sequence[int], cache: Any = None, there: Any = None, mask: Any = None
) -> Tensor:
    """The outputs of a text in parts, with the cache handed on."""
    y, done = [], 0
    for end in torch.tensor(parts).cumsum(0).tolist():
        positions, seen = None if there is None else there[:, done:end], None if mask is None else mask[:, :end]
        out, cache = target.run(module, x[:, done:end], cache, positions, seen)
        y.append(out)
        done = end
    return torch.cat(y, 1)


@law("one token at a time")
@law("chunks")
@law("static cache")
def parts_of_a_text(target: Target, parts: Sequence[int], slots: int = 0) -> None:
    """A text in parts, with the cache handed on, gives what the whole text gives."""
    module, x = target.made(), inputs(target, sum(parts), 2)
    cache = target.static(module, 2, slots) if slots else None
    whole = target.run(module, x, None, None, None)[0]
    near(in_parts(target, module, x, parts, cache), whole, f"a text in parts {parts}, and as a whole", 1e-4)


@law("left padding")
def left_padding(target: Target, lengths: Sequence[int], more: int) -> None:
    """A text in a batch that is padded on the left, and goes on from there, gives what it gives alone."""
    module, tokens = target.made(), max(lengths)
    x = inputs(target, tokens + more, len(lengths))
    seen = torch.stack([torch.arange(tokens + more) >= tokens - n for n in lengths])
    there = (seen.long().cumsum(-1) - 1).clamp(min=0) if target.positioned else None
    y = in_parts(target, module, x, [tokens, *[1] * more], None, there, seen)
    for sample, n in enumerate(lengths):
        own = slice(sample, sample + 1), slice(tokens - n, None)
        near(y[own], target.run(module, x[own], None, None, None)[0], f"the text of {n} tokens, and alone", 1e-4)


@law("a cache with gaps")
@law("merged fragments")
@law("siblings of a tree")
def continued(target: Target, fragments: Sequence[int], then: Sequence[int], kept: Sequence[int] = ()) -> None:
    """After a cache that lost tokens or was joined of fragments, each next token sees what it sees in a whole text."""
    module, tokens = target.made(), sum(fragments)
    x, there = inputs(target, tokens + len(then)), at(*range(tokens)).split(list(fragments), 1)
    parts = zip(x[:, :tokens].split(list(fragments), 1), there)
    caches = [target.run(module, part, None, positions, None)[1] for part, positions in parts]
    cache, before = target.join(caches) if len(caches) > 1 else caches[0], kept or range(tokens)
    cache = target.keep(cache, torch.tensor(kept)) if kept else cache
    mask = torch.cat([torch.ones(len(then), len(before)), torch.eye(len(then))], 1).bool()[None, None]
    got = target.run(module, x[:, tokens:], cache, at(*then), mask if len(then) > 1 else None)[0]
    for i, position in enumerate(then):
        path, places = x[:, [*before, tokens + i]], at(*before, position)
        wanted = target.run(module, path, None, places, None)[0][:, -1]
        near(got[:, i], wanted, f"token {i} at position {position} after a cache, and in a text", 1e-4)


def masked(target: Target, module: Any, x: Sequence[Tensor], positions: Tensor, mask: Tensor | None) -> Tensor:
    """Attention, or the layer, with a mask of keys or of pairs; tokens along dimension -2."""
    if target.has("attend"):
        pairs = mask if mask is None or mask.dim() == 4 else mask.expand(1, 1, len(positions), -1)
        return target.attend(module, *x, positions, pairs)
    there = positions.long()[None] if target.positioned else None
    return target.run(module, x[0].transpose(1, 2).flatten(2), None, there, mask)[0]


@law("packed documents")
def documents(target: Target, lengths: Sequence[int]) -> None:
    """Documents in one row, each with positions of its own, give what they give alone."""
    x, module, places = attended(target, sum(lengths)), target.made(), [torch.arange(float(n)) for n in lengths]
    masks = [torch.ones(n, n).tril() for n in lengths]
    got = masked(target, module, x, torch.cat(places), torch.block_diag(*masks).bool()[None, None])
    for *own, part, there, mask in zip(*(t.split(list(lengths), -2) for t in (*x, got)), places, masks):
        wanted = masked(target, module, own, there, mask.bool()[None, None])
        near(part, wanted, f"a document of {len(there)} tokens beside others, and alone", 1e-4)


@law("padding inside")
@law("NaN at padding")
def padding(target: Target, tokens: int, hidden: int, by: float) -> None:
    """What stands at a token that nobody sees reaches nobody."""
    module, seen, there = target.made(), torch.arange(tokens) != hidden, torch.arange(float(tokens))
    x = attended(target, tokens)
    y = [
        masked(target, module, [t.masked_fill(~seen[:, None], inside) for t in x], there, seen[None])[..., seen, :]
        for inside in (0.0, by)
    ]
    if target.stateful and not target.has("attend") and math.isfinite(by):  # a state passes padding as it is
        alone = masked(target, module, [t[..., seen, :] for t in x], there, None)
        near(y[0], alone, f"without token {hidden}, and hidden", 1e-4)
    near(y[1], y[0], f"with {by} and with 0 at token {hidden}, which is hidden", 1e-4)


def softmax_loop(target: Target, q: Tensor, k: Tensor, v: Tensor, window: float) -> Tensor:
    """Attention to the last ``window`` keys up to each query, one query at a time, in float64."""
    rows, behind = [], k.shape[-2] - q.shape[-2]
    for i in range(q.shape[-2]):
        keys = [j for j in range(k.shape[-2]) if 0 <= i + behind - j < window]
        scores = (k[..., keys, :].double() @ q[..., i, :, None].double()).squeeze(-1) / math.sqrt(target.head_dim)
        rows.append((scores.softmax(-1)[..., None] * v[..., keys, :].double()).sum(-2))
    return torch.stack(rows, -2)


@law("causal")
@law("window")
def window(target: Target, queries: int, keys: int, window: int | None = None) -> str | None:
    """Attention to the tokens up to a query, or to the last of these, is a loop; the last query is at the last key."""
    module, (q, k, v) = target.made(), attended(target, keys)
    q, what = q[..., -queries:, :], f"{queries} queries, {keys} keys"
    if window is None:
        near(target.causal(module, q, k, v), softmax_loop(target, q, k, v, math.inf), what)
        return None
    got = target.windowed(module, q, k, v, window)
    if keys > window and (got - softmax_loop(target, q, k, v, window + 1)).abs().max() < 1e-5:
        return "the own token is not counted"
    near(got, softmax_loop(target, q, k, v, window), f"{what}, a window of {window}")
    return "the own token is counted"


GATES = {"ones": 0.0, "almost ones": -1e-7, "almost zeros": -30.0}


def gated(target: Target, tokens: int, gates: str) -> list[Tensor]:
    """Queries, keys, values and log gates of two samples."""
    usual = -drawn(2, target.heads, tokens, seed=3).abs()
    turns = torch.where(torch.arange(tokens) % 3 == 1, -80.0, 0.0).expand_as(usual)
    alike = torch.full_like(usual, GATES.get(gates, 0.0))
    return [*attended(target, tokens, 2), {"usual": usual, "in turn": turns}.get(gates, alike)]


@law("forms agree")
@law("gates near 0 and 1")
def forms(target: Target, tokens: int, gates: str = "usual") -> None:
    """All forms give what the first one gives, at lengths around a chunk of four and at none."""
    x = gated(target, tokens, gates)
    (first, slow), *others = target.forms(target.made()).items()
    if not others:
        raise NotApplicable(f"there is one form, {first}")
    wanted = slow(*x, None)[0]
    if not wanted.isfinite().all():
        raise Broken(f"{first} is not finite for {tokens} tokens")
    for name, form in others:
        near(form(*x, None)[0], wanted, f"{name} and {first} for {tokens} tokens", 1e-3)


@law("odd cuts")
@law("state saved and loaded")
def cuts(target: Target, cut: int, tokens: int, saved: bool = False) -> None:
    """A text in two parts, with the state handed on or read from a file, gives what the whole gives."""
    x = gated(target, tokens, "usual")
    for name, form in target.forms(target.made()).items():
        if name in target.stateless:
            continue
        first, state = form(*(t[:, :, :cut] for t in x), None)
        if saved:
            torch.save(state, file := io.BytesIO())
            state = torch.load(io.BytesIO(file.getvalue()), weights_only=False)
        parts = torch.cat([first, form(*(t[:, :, cut:] for t in x), state)[0]], 2)
        near(parts, form(*x, None)[0], f"{name} of {tokens} tokens, cut at {cut}, and as a whole", 1e-3)
