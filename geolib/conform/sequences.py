"""Laws of what comes after one another: caches, masks and packing, states."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from geolib.conform.core import Broken, NotApplicable, Target, drawn, law, near


def inputs(target: Target, tokens: int, batch: int = 1, seed: int = 0) -> Tensor:
    """What a layer reads."""
    return drawn(batch, tokens, target.heads * target.head_dim, seed=seed)


def at(*positions: int) -> Tensor:
    """Positions of one sample, (1, tokens)."""
    return torch.tensor([positions])


# Caches ---------------------------------------------------------------------------------------------------------------


@law("one token at a time")
@law("chunks")
@law("static cache")
def parts_of_a_text(target: Target, parts: Sequence[int], slots: int = 0) -> None:
    """A text in parts, with the cache handed on, gives what the whole text gives."""
    module, x = target.made(), inputs(target, sum(parts), 2)
    cache, done = target.static(module, 2, slots) if slots else None, 0
    whole = target.run(module, x, None, None, None)[0]
    for tokens in parts:
        y, cache = target.run(module, x[:, done : done + tokens], cache, None, None)
        what = f"tokens {done} to {done + tokens - 1} of parts {tuple(parts)}, and as a whole"
        near(y, whole[:, done : done + tokens], what, 1e-4)
        done += tokens


@law("a cache with gaps")
def gaps(target: Target, kept: tuple[int, ...], then: int) -> None:
    """After tokens were dropped, a query sees the others where they stood."""
    module, x = target.made(), inputs(target, 7)
    cache = target.keep(target.run(module, x[:, :6], None, at(*range(6)), None)[1], torch.tensor(kept))
    got = target.run(module, x[:, 6:], cache, at(then), None)[0]
    wanted = target.run(module, x[:, [*kept, 6]], None, at(*kept, then), None)[0][:, -1:]
    near(got, wanted, f"position {then} after a cache of positions {kept}", 1e-4)


@law("merged fragments")
def merged(target: Target, cut: int, tokens: int) -> None:
    """Caches of two fragments, each made alone at its own positions, are the cache of the text."""
    module, x = target.made(), inputs(target, tokens + 1)
    spans = ((0, cut), (cut, tokens))
    caches = [target.run(module, x[:, a:b], None, at(*range(a, b)), None)[1] for a, b in spans]
    got = target.run(module, x[:, tokens:], target.join(caches), at(tokens), None)[0]
    wanted = target.run(module, x, None, at(*range(tokens + 1)), None)[0][:, -1:]
    near(got, wanted, f"the token after fragments {spans}", 1e-4)


@law("left padding")
def left_padding(target: Target, lengths: tuple[int, ...], more: int) -> None:
    """A text in a batch that is padded on the left, and goes on from there, gives what it gives alone."""
    module, tokens = target.made(), max(lengths)
    x, y = inputs(target, tokens + more, len(lengths)), []
    seen = torch.stack([torch.arange(tokens + more) >= tokens - n for n in lengths])
    there = (seen.long().cumsum(-1) - 1).clamp(min=0) if target.positioned else None
    cache = None
    for a, b in ((0, tokens), *((tokens + i, tokens + i + 1) for i in range(more))):
        out, cache = target.run(module, x[:, a:b], cache, None if there is None else there[:, a:b], seen[:, :b])
        y.append(out)
    for sample, n in enumerate(lengths):
        alone = target.run(module, x[sample : sample + 1, tokens - n :], None, None, None)[0]
        near(torch.cat(y, 1)[sample : sample + 1, tokens - n :], alone, f"the text of {n} tokens, and alone", 1e-4)


@law("siblings of a tree")
def siblings(target: Target, before: int) -> None:
    """Two tokens that go on from one text, at one position, do not see each other."""
    module, x = target.made(), inputs(target, before + 2)
    mask = torch.ones(1, 1, 2, before + 2, dtype=torch.bool)
    mask[..., before:] = torch.eye(2, dtype=torch.bool)
    cache = target.run(module, x[:, :before], None, at(*range(before)), None)[1]
    got = target.run(module, x[:, before:], cache, at(before, before), mask)[0]
    for i in (0, 1):
        path = x[:, [*range(before), before + i]]
        near(got[:, i : i + 1], target.run(module, path, None, None, None)[0][:, -1:], f"sibling {i}", 1e-4)


# Masks and packing ----------------------------------------------------------------------------------------------------


def attended(target: Target, tokens: int, seed: int = 0) -> list[Tensor]:
    """Queries, keys and values."""
    return [drawn(1, target.heads, tokens, target.head_dim, seed=seed + i) for i in range(3)]


def packed(target: Target, x: Sequence[Tensor], positions: Tensor, mask: Tensor) -> Tensor:
    """Attention, or the layer, with a mask; tokens along dimension -2."""
    module = target.made()
    if target.has("attend"):
        return target.attend(module, *x, positions, mask)
    return target.run(module, x[0].transpose(1, 2).flatten(2), None, positions.long()[None], mask)[0]


@law("packed documents")
def documents(target: Target, lengths: tuple[int, ...]) -> None:
    """Documents in one row, each with positions of its own, give what they give alone."""
    x, done = attended(target, sum(lengths)), 0
    blocks = torch.block_diag(*(torch.ones(n, n).tril() for n in lengths)).bool()[None, None]
    got = packed(target, x, torch.cat([torch.arange(float(n)) for n in lengths]), blocks)
    for n in lengths:
        own = [y[..., done : done + n, :] for y in x]
        wanted = packed(target, own, torch.arange(float(n)), torch.ones(1, 1, n, n).tril().bool())
        near(got[..., done : done + n, :], wanted, f"the document of {n} tokens from {done} on, and alone", 1e-4)
        done += n


@law("padding inside")
@law("NaN at padding")
def padding(target: Target, tokens: int, hidden: int, by: float) -> None:
    """What stands at a token that nobody sees reaches nobody."""
    module, seen, y = target.made(), torch.arange(tokens) != hidden, []
    for inside in (0.0, by):
        x = [t.masked_fill(~seen[:, None], inside) for t in attended(target, tokens)]
        if target.has("attend"):
            there, mask = torch.arange(float(tokens)), seen.expand(1, 1, tokens, tokens)
            y.append(target.attend(module, *x, there, mask)[..., seen, :])
        else:
            text = x[0].transpose(1, 2).flatten(2)
            y.append(target.run(module, text, None, None, seen[None])[0][:, seen])
    if not target.has("attend") and target.stateful:  # a state passes padding as it is
        near(y[0], target.run(module, text[:, seen], None, None, None)[0], f"without token {hidden}, and hidden", 1e-4)
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
def causal(target: Target, queries: int, keys: int) -> None:
    """Causal attention is a loop over queries, of which the last stands beside the last key."""
    q, k, v = attended(target, keys)
    got = target.causal(target.made(), q[..., -queries:, :], k, v)
    near(got, softmax_loop(target, q[..., -queries:, :], k, v, math.inf), f"{queries} queries, {keys} keys")


@law("window")
def window(target: Target, tokens: int, window: int) -> str:
    """Attention to the last tokens is a loop over queries; whether the own one is counted is found out."""
    q, k, v = attended(target, tokens)
    got = target.windowed(target.made(), q, k, v, window)
    beside = softmax_loop(target, q, k, v, window + 1)
    if tokens > window and (got - beside).abs().max() < 1e-5:
        return "the own token is not counted"
    near(got, softmax_loop(target, q, k, v, window), f"a window of {window} in {tokens} tokens")
    return "the own token is counted"


# States ---------------------------------------------------------------------------------------------------------------


def gated(target: Target, tokens: int, gates: str = "usual") -> list[Tensor]:
    """Queries, keys, values and log gates of two samples."""
    x = [drawn(2, target.heads, tokens, target.head_dim, seed=i) for i in range(3)]
    index = torch.arange(tokens).expand(2, target.heads, -1)
    kinds = {
        "usual": -drawn(2, target.heads, tokens, seed=3).abs(),
        "ones": torch.zeros(2, target.heads, tokens),
        "almost ones": torch.full((2, target.heads, tokens), -1e-7),
        "almost zeros": torch.full((2, target.heads, tokens), -30.0),
        "in turn": torch.where(index % 3 == 1, -80.0, 0.0),
    }
    return [*x, kinds[gates]]


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
    x = gated(target, tokens)
    for name, form in target.forms(target.made()).items():
        if name in target.stateless:
            continue
        whole = form(*x, None)[0]
        first, state = form(*(t[:, :, :cut] for t in x), None)
        if saved:
            torch.save(state, file := io.BytesIO())
            state = torch.load(io.BytesIO(file.getvalue()), weights_only=False)
        second = form(*(t[:, :, cut:] for t in x), state)[0]
        near(torch.cat([first, second], 2), whole, f"{name} of {tokens} tokens, cut at {cut}, and as a whole", 1e-3)
