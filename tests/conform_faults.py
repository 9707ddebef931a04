"""Right stand-ins for what laws are about, and what is planted into them, keyed by the law that must catch it."""

import math
import os

import torch
import torch.nn.functional as F
from torch import nn

from geolib.conform import Target


class Rope(nn.Module):
    """RoPE with half-split pairs, as most models have it."""

    def __init__(self, dim=8, base=100.0):
        super().__init__()
        self.register_buffer("theta", base ** -(torch.arange(0, dim, 2) / dim))

    def _apply(self, fn, recurse=True):
        theta = self.theta
        super()._apply(fn, recurse)
        if self.theta.dtype in (torch.float16, torch.bfloat16):
            self.theta = theta
        return self

    def angles(self, positions):
        return positions.to(self.theta.dtype)[..., None] * self.theta

    def forward(self, x, positions):
        return self.turned(x, self.angles(positions))

    def turned(self, x, angle):
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


class OfModule(Target):
    """A target whose module is made without arguments."""

    module = Rope

    def make(self):
        return self.module()


class Text(OfModule):
    """A home-made RoPE."""

    layout, base = "half-split", 100.0

    def turn(self, rope, q, k, positions):
        return rope(q, positions), rope(k, positions)

    def count(self, rope, x, offset):
        return rope(x, torch.arange(offset, offset + x.shape[-2], device=x.device))


class GridRope(Rope):
    """Half of the pairs for rows, half for columns; cells in reading order."""

    def __init__(self):
        super().__init__(4)

    def at(self, height, width):
        row, column = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        return row.flatten(), column.flatten()

    def forward(self, x, height, width):
        return self.turned(x, torch.cat([self.angles(p) for p in self.at(height, width)], -1))


class Image(OfModule):
    """A home-made axial RoPE, and a table that is resampled."""

    module = GridRope

    def grid(self, rope, x, height, width):
        return rope(x, height, width)

    def prefix(self, rope, x, height, width, count):
        return torch.cat([x[..., :count, :], rope(x[..., count:, :], height, width)], -2)

    def resample(self, rope, table, old, new):
        return F.interpolate(table.permute(2, 0, 1)[None], new, mode="bilinear", antialias=True)[0].permute(1, 2, 0)


class Heads(nn.Module):
    """Attention with a cache of turned keys, of values and of what may be seen."""

    def __init__(self):
        super().__init__()
        self.rope, self.qkv = Rope(), nn.Linear(16, 48)

    def forward(self, x, cache=None, positions=None, mask=None):
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        start, new = (0 if cache is None else self.length(cache)), x.shape[1]
        if positions is None:
            positions = torch.arange(start, start + new, device=x.device).expand(x.shape[0], -1)
        q, k = (self.rope(t, positions[:, None]) for t in (q, k))
        k, v, written = self.store(cache, k, v, start)
        seen = self.causal(new, start, k.shape[2]) & written
        if mask is not None:
            seen = seen & self.padded(mask, k.shape[2])
        y = self.attend(q, k, v, seen)
        return y.transpose(1, 2).flatten(2), cache if isinstance(cache, dict) else (k, v, start + new)

    def length(self, cache):
        return cache[2]

    def padded(self, mask, keys):
        mask = mask if mask.dim() == 4 else mask[:, None, None]
        return F.pad(mask, (0, keys - mask.shape[-1]), value=False)

    def store(self, cache, k, v, start):
        if cache is None:
            return k, v, True
        return torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2), True

    def causal(self, queries, start, keys):
        return torch.arange(keys) <= torch.arange(queries)[:, None] + start

    def attend(self, q, k, v, seen):
        scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~seen, -math.inf)
        scores = scores.masked_fill(~seen.any(-1, keepdim=True), 0.0)
        return scores.softmax(-1) @ v.masked_fill(~seen.any(-2, keepdim=True).mT, 0.0)


class Decoder(OfModule):
    """A home-made layer with a cache."""

    positioned = padded = masked = True
    module = Heads

    def run(self, module, x, cache, positions, mask):
        return module(x, cache, positions, mask)

    def keep(self, cache, index):
        return cache[0][:, :, index], cache[1][:, :, index], len(index)

    def join(self, caches):
        k, v, lengths = zip(*caches)
        return torch.cat(k, 2), torch.cat(v, 2), sum(lengths)


class Slots(Heads):
    """The same with slots that are written in their turn."""

    def length(self, cache):
        return cache["length"]

    def store(self, cache, k, v, start):
        new = slice(start, start + k.shape[2])
        cache["k"][:, :, new], cache["v"][:, :, new], cache["length"] = k, v, new.stop
        return cache["k"], cache["v"], self.written(cache)

    def written(self, cache):
        return torch.arange(cache["k"].shape[2]) < cache["length"]


class Static(Decoder):
    module = Slots
    keep = join = None
    not_promised = dict.fromkeys(("one graph", "checkpointing", "gradients", "FSDP2", "DDP"), "It writes its cache.")

    def run(self, module, x, cache, positions, mask):
        return module(x, cache or self.static(module, len(x), 64), positions, mask)

    def static(self, module, batch, slots):
        return {"k": torch.zeros(batch, 2, slots, 8), "v": torch.zeros(batch, 2, slots, 8), "length": 0}


class Masks(OfModule):
    """Attention with masks, causal, in a window."""

    module = Heads

    def attend(self, heads, q, k, v, positions, mask):
        seen = torch.tensor(True).expand(q.shape[-2], k.shape[-2]) if mask is None else mask
        return heads.attend(heads.rope(q, positions), heads.rope(k, positions), v, seen)

    def causal(self, heads, q, k, v):
        return heads.attend(q, k, v, heads.causal(q.shape[-2], k.shape[-2] - q.shape[-2], k.shape[-2]))

    def windowed(self, heads, q, k, v, window):
        i = torch.arange(q.shape[-2])
        return heads.attend(q, k, v, (i <= i[:, None]) & (i > i[:, None] - window))


class Gla(nn.Module):
    """Linear attention with a gate a token, in three forms."""

    chunk = 4

    def decay(self, g):
        total = g.cumsum(-1)
        return (total[..., :, None] - total[..., None, :]).tril().exp().tril()

    def recurrent(self, q, k, v, g, state=None):
        S, y = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1]) if state is None else state, []
        for t in range(q.shape[2]):
            S = S * g[:, :, t, None, None].exp() + k[:, :, t, :, None] * v[:, :, t, None]
            y.append((q[:, :, t, None] @ S).squeeze(2))
        return (torch.stack(y, 2) if y else torch.zeros_like(v)), S

    def chunked(self, q, k, v, g, state=None):
        S, y = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1]) if state is None else state, [v[:, :, :0]]
        for start in range(0, q.shape[2], self.chunk):
            a, b, c, d = (t[:, :, start : start + self.chunk] for t in (q, k, v, g))
            y.append(self.parallel(a, b, c, d)[0] + (a * d.cumsum(-1)[..., None].exp()) @ S)
            S = self.carried(S, b, c, d)
        return torch.cat(y, 2), S

    def carried(self, S, k, v, g):
        total = g.cumsum(-1)
        return S * total[..., -1:, None].exp() + (k * (total[..., -1:] - total).exp()[..., None]).mT @ v

    def parallel(self, q, k, v, g, state=None):
        return (q @ k.mT * self.decay(g)) @ v, None


class States(OfModule):
    module = Gla
    stateless = ("parallel",)

    def forms(self, gla):
        return {name: getattr(gla, name) for name in ("recurrent", "chunked", "parallel")}


class Memory(nn.Module):
    """A layer that reads its text into a state, and passes padding."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def forward(self, x, state=None, mask=None):
        mask = None if mask is None else mask[:, -x.shape[1] :, None]
        x = x if mask is None else x.masked_fill(~mask, 0.0)
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        g = F.logsigmoid(q[..., 0])
        if mask is not None:
            k, g = self.hidden(k, g, mask.mT)
        gla = Gla()
        S = q.new_zeros(*q.shape[:2], 8, 8) if state is None else state
        y = gla.parallel(q, k, v, g)[0] + (q * g.cumsum(-1)[..., None].exp()) @ S
        return y.transpose(1, 2).flatten(2), gla.carried(S, k, v, g)

    def hidden(self, k, g, mask):
        return k.masked_fill(~mask[..., None], 0.0), g.masked_fill(~mask, 0.0)


class Recurrent(OfModule):
    padded = stateful = True
    module = Memory

    def run(self, module, x, cache, positions, mask):
        return module(x, cache, mask)


RIGHT = [Text, Image, Decoder, Static, Masks, States, Recurrent]


# Faults that are more than a method ---------------------------------------------------------------------------------


def kept(self, positions):
    """A table by length, whatever the positions."""
    self.tables = {**getattr(self, "tables", {})}
    return self.tables.setdefault(positions.shape[-1], Rope.angles(self, positions))


def counting(self, positions):
    """Each call turns a little further."""
    self.calls = getattr(self, "calls", 0) + 1
    return Rope.angles(self, positions * (1 + self.calls % 7))


class Remembering(Rope):
    """It keeps what it computed, with its graph."""

    def forward(self, x, positions):
        self.last = super().forward(x, positions)
        return self.last


class Closed(Rope):
    """It holds a function that cannot be written down."""

    def __init__(self):
        super().__init__()
        self.change = lambda x: x


class Learned(Rope):
    """Frequencies that are learned, and that get no derivative."""

    def __init__(self):
        super().__init__()
        self.theta = nn.Parameter(self._buffers.pop("theta"))

    def angles(self, positions):
        return positions.to(self.theta.dtype)[..., None] * self.theta.detach()


class Own(Rope):
    """Frequencies that differ from process to process, and that nobody knows of."""

    def angles(self, positions):
        return super().angles(positions) * (1 + os.getpid() % 97)


class Stale(Learned):
    """It holds its parameter in a list, beside the module's own."""

    def __init__(self):
        super().__init__()
        self.held = [self.theta]

    def angles(self, positions):
        return positions[..., None] * self.held[0]


def mixed(self, x, angle):
    """Angles in one layout, pairs in the other."""
    angle = angle.repeat_interleave(2, -1)
    a, b = x.chunk(2, -1)
    return x * angle.cos() + torch.cat([-b, a], -1) * angle.sin()


def neighbours(self, x, angle):
    """Interleaved pairs."""
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1).flatten(-2)


def branching(self, positions):
    """Angles by a number that is read back."""
    return Rope.angles(self, positions if positions.max() < 1e6 else positions / 2)


def hiding(by):
    """Values at hidden tokens are multiplied by weights from scores less this much."""
    return lambda self, q, k, v, seen: (q @ k.mT / 8**0.5 - torch.where(seen, 0.0, by)).softmax(-1) @ v


FAULTS = {
    "positions end at 2,048": ("relative", Text, {"angles": lambda self, p: Rope.angles(self, p.clamp(max=2048))}),
    "keys stay as they are": ("relative", Text, None, {"turn": lambda self, rope, q, k, p: (rope(q, p), k)}),
    "a sine lost its sign": (
        "isometry", Text,
        {"turned": lambda self, x, a: torch.where(torch.arange(8) < 4, *(Rope.turned(self, x, t) for t in (-a, a)))},
    ),
    "positions begin at 1": ("the zero place", Text, {"angles": lambda self, p: Rope.angles(self, p + 1)}),
    "angles grow with the logarithm": ("homomorphism", Text, {"angles": lambda self, p: Rope.angles(self, p.log1p())}),
    "angles in one layout, pairs in the other": ("layout of pairs", Text, {"turned": mixed}),
    "neighbours where halves are promised": ("layout of pairs", Text, {"turned": neighbours}),
    "keys in another layout": (
        "layout of pairs", Text, None,
        {"turn": lambda self, rope, q, k, p: (rope(q, p), neighbours(rope, k, rope.angles(p)))},
    ),
    "a base of its own": ("the usual frequencies", Text, {"angles": lambda self, p: p[..., None] * self.theta**0.9}),
    "tables by length": ("texts of other lengths", Text, {"angles": kept}),
    "no offset": (
        "texts of other lengths", Text, None, {"count": lambda self, rope, x, _: Text.count(self, rope, x, 0)}
    ),
    "angles by a product of matrices": (
        "angles under autocast", Text, {"angles": lambda self, p: p.float()[..., None] @ self.theta[None]}
    ),
    "a table in the model's dtype": ("angles after half()", Text, {"_apply": nn.Module._apply}),
    "positions in the model's dtype": (
        "positions in bfloat16", Text, {"forward": lambda self, x, p: Rope.forward(self, x, p.to(x.dtype))}
    ),
    "angles in float32": (
        "float64 in, float64 out", Text, {"angles": lambda self, p: p.float()[..., None] * self.theta.float()}
    ),
    "a number is read": ("one graph", Text, {"angles": branching}),
    "a graph a length": ("dynamic sizes", Text, {"angles": kept}),
    "a branch on the largest position": ("export", Text, {"angles": branching}),
    "calls are counted": ("checkpointing", Text, {"angles": counting}),
    "a graph is kept": ("deepcopy and pickle", Text, Remembering),
    "a function without a name": ("deepcopy and pickle", Text, Closed),
    "a table that no state dict has": (
        "meta device", Text, {"register_buffer": lambda self, name, x: Rope.register_buffer(self, name, x, False)}
    ),
    "no derivative": ("gradients", Text, Learned),
    "each process its own": ("DDP", Text, Own),
    "a parameter in a list": ("FSDP2", Text, Stale),
    "columns first": ("axis order", Image, {"at": lambda self, h, w: GridRope.at(self, w, h)[::-1]}),
    "one axis twice": ("axis order", Image, {"at": lambda self, h, w: (GridRope.at(self, h, w)[0],) * 2}),
    "rows further and further apart": (
        "unit and origin", Image,
        {"at": lambda self, h, w: [p ** (2 - i) for i, p in enumerate(GridRope.at(self, h, w))]},
    ),
    "the class token is a cell": (
        "class token and prefix", Image, None, {"prefix": lambda self, rope, x, h, w, n: rope(x, 1, x.shape[-2])}
    ),
    "the first grid's cells": (
        "dynamic grids", Image,
        {"at": lambda self, h, w: [
            part.repeat(9)[: h * w] for part in vars(self).setdefault("cells", GridRope.at(self, h, w))]},
    ),
    "tables by the number of cells": (
        "one count, other shapes", Image,
        {"at": lambda self, h, w: vars(self).setdefault("tables", {}).setdefault(h * w, GridRope.at(self, h, w))},
    ),
    "nothing to do for one count": (
        "interpolation", Image, None, {"resample": lambda self, rope, table, old, new: table.reshape(*new, -1)}
    ),
    "a cache that begins at 0": ("one token at a time", Decoder, {"length": lambda self, cache: 0}),
    "a mask without the cache": (
        "chunks", Decoder, {"causal": lambda self, queries, start, keys: Heads.causal(self, queries, 0, keys)}
    ),
    "positions by the cache's length": (
        "a cache with gaps", Decoder, None, {"run": lambda self, m, x, cache, p, mask: m(x, cache, None, mask)}
    ),
    "fragments that all begin at 0": (
        "merged fragments", Decoder, None,
        {"run": lambda self, m, x, cache, p, mask: m(x, cache, p if cache else None, mask)},
    ),
    "empty slots are seen": (
        "static cache", Static, {"written": lambda self, cache: True, "causal": lambda self, *sizes: torch.tensor(True)}
    ),
    "padding is seen": ("left padding", Decoder, {"padded": lambda self, mask, keys: torch.tensor(True)}),
    "the tree's mask is lost": (
        "siblings of a tree", Decoder,
        {"padded": lambda self, mask, keys: Heads.padded(self, mask, keys) if mask.dim() == 2 else torch.tensor(True)},
    ),
    "documents see each other": (
        "packed documents", Masks, None,
        {"attend": lambda self, m, q, k, v, p, mask: Masks.attend(self, m, q, k, v, p, None)},
    ),
    "hidden tokens count a little": ("padding inside", Masks, {"attend": hiding(3.0)}),
    "padding shrinks the state": (
        "padding inside", Recurrent, {"hidden": lambda self, k, g, mask: (Memory.hidden(self, k, g, mask)[0], g)}
    ),
    "zero times NaN": ("NaN at padding", Masks, {"attend": hiding(math.inf)}),
    "the diagonal begins at the wrong corner": (
        "causal", Masks, {"causal": lambda self, queries, start, keys: Heads.causal(self, queries, 0, keys)}
    ),
    "a window to both sides": (
        "window", Masks, None,
        {"windowed": lambda self, m, q, k, v, n: m.attend(
            q, k, v, (torch.arange(q.shape[-2]) - torch.arange(q.shape[-2])[:, None]).abs() < n)},
    ),
    "a state by the first gate": (
        "forms agree", States, {"carried": lambda self, S, k, v, g: Gla.carried(self, S, k, v, g.flip(-1))}
    ),
    "the state of the chunk before": (
        "odd cuts", States, {"chunked": lambda self, q, k, v, g, state=None: (
            Gla.chunked(self, q, k, v, g, state)[0],
            Gla.chunked(self, *(t[:, :, :-1] for t in (q, k, v, g)), state)[1])}
    ),
    "a quotient of small numbers": (
        "gates near 0 and 1", States,
        {"decay": lambda self, g: (g.cumsum(-1).exp()[..., :, None] / g.cumsum(-1).exp()[..., None, :]).tril()},
    ),
    "a state that cannot be written": (
        "state saved and loaded", States, {"recurrent": lambda self, q, k, v, g, state=None: (
            lambda y, S: (y, lambda: S))(*Gla.recurrent(self, q, k, v, g, state and state()))}
    ),
}  # fmt: skip


def planted(name):
    """The law that must catch a fault, and the target that has it."""
    law, target, module, *own = FAULTS[name]
    module = type("Wrong", (target.module,), module) if isinstance(module, dict) else module or target.module
    wrong = type("Wrong", (target,), {"module": module, **(own[0] if own else {})})
    return law, OfProcesses(module=module) if law in ("DDP", "FSDP2") else wrong()


class OfProcesses(Text):
    """A target that another process can make."""
