"""Right stand-ins for what laws are about, and forty wrong ones, each keyed by the law that must catch it."""

import math

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

    def halves(self, x):
        return x.chunk(2, -1)

    def forward(self, x, positions):
        angle = self.angles(positions)
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        a, b = self.halves(x)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


class Text(Target):
    """A home-made RoPE."""

    layout = "half-split"
    module = Rope

    def make(self):
        return self.module()

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
        angle = torch.cat([self.angles(p) for p in self.at(height, width)], -1)
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        a, b = self.halves(x)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


class Image(Target):
    """A home-made axial RoPE, and a table that is resampled."""

    module = GridRope

    def make(self):
        return self.module()

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


class Decoder(Target):
    """A home-made layer with a cache."""

    positioned = padded = masked = True
    module = Heads

    def make(self):
        return self.module()

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
    not_promised = dict.fromkeys(
        ("one graph", "checkpointing", "gradients", "FSDP2", "DDP"), "It writes into its cache."
    )

    def run(self, module, x, cache, positions, mask):
        return module(x, self.static(module, len(x), 64) if cache is None else cache, positions, mask)

    def static(self, module, batch, slots):
        return {"k": torch.zeros(batch, 2, slots, 8), "v": torch.zeros(batch, 2, slots, 8), "length": 0}


class Masks(Target):
    """Attention with masks, causal, in a window."""

    module = Heads

    def make(self):
        return self.module()

    def attend(self, heads, q, k, v, positions, mask):
        seen = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool) if mask is None else mask
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


class States(Target):
    module = Gla
    stateless = ("parallel",)

    def make(self):
        return self.module()

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


class Recurrent(Target):
    padded = True
    module = Memory

    def make(self):
        return self.module()

    def run(self, module, x, cache, positions, mask):
        return module(x, cache, mask)


RIGHT = [Text, Image, Decoder, Static, Masks, States, Recurrent]
