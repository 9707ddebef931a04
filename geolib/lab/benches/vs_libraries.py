"""Speed beside other libraries, where they are installed, in turns in one process, so that only ratios count.

Rotary embeddings of queries and keys, placed before: what a layer pays. Axial ones of an image. Attention with ALiBi.
Beside the times stands how far each result is from the same in float64. The kernels of flash-linear-attention need a
GPU and Triton, so its forms are not among them.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from geolib.encodings import ALiBi, HalfSplit, RoPE
from geolib.lab.benches.timing import in_turns
from geolib.lab.train import pick_device
from geolib.rotations import grid_positions

HEADS, DIM, SIDE = 8, 64, 14
ROTARY, HALF_SPLIT, IMAGE, BIAS = "RoPE, interleaved", "RoPE, half-split", "RoPE of an image", "ALiBi"
TOKENS = {
    ROTARY: (1, 196, 1024, 8192),
    HALF_SPLIT: (1, 196, 1024, 8192),
    IMAGE: (SIDE * SIDE,),
    BIAS: (1024, 4096),
}
Pair = tuple[Tensor, Tensor]
Work = Callable[[Tensor, Tensor], Pair]
OURS = "geolib"


def run(repeats: int = 15) -> list[dict[str, Any]]:
    """Measure. ``ratio``: time as a multiple of geolib's; ``error``: the largest, against float64.

    A row with ``missing`` names a library that could not be imported.
    """
    device, rows = pick_device(None).type, list[dict[str, Any]]()
    for what, contenders in TASKS.items():
        for tokens in TOKENS[what]:
            for dtype in (torch.float32, torch.bfloat16):
                rows += _compare(what, contenders, tokens, dtype, repeats, device)
    gone = {row["missing"]: row for row in rows if "missing" in row}
    return [row for row in rows if "missing" not in row] + list(gone.values())


def _compare(
    what: str, contenders: dict[str, Callable[..., Work]], tokens: int, dtype: torch.dtype, repeats: int, device: str
) -> Iterator[dict[str, Any]]:
    """The rows of one task: the same queries and keys to all."""
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, HEADS, tokens, DIM, generator=generator).to(device, dtype)
    works: dict[str, Work] = {}
    for who, make in contenders.items():
        try:
            works[who] = make(tokens, q)
        except ImportError:
            yield {"missing": who}
    exact = contenders[OURS](tokens, q.double())(q.double(), k.double())
    calls = max(1, 4096 // tokens)  # several in a turn where one is short
    taken = in_turns({who: partial(_several, work, q, k, calls) for who, work in works.items()}, repeats)
    common: dict[str, Any] = {"what": what, "tokens": tokens, "dtype": str(dtype).removeprefix("torch.")}
    for who, took in taken.items():
        error = max(float((x - y).abs().max()) for x, y in zip(works[who](q, k), exact))
        times = {"seconds": took["seconds"] / calls, "ratio": took["seconds"] / taken[OURS]["seconds"]}
        yield common | {"who": who, "version": _version(who)} | times | {"error": error}


def _several(work: Work, q: Tensor, k: Tensor, calls: int) -> None:
    for _ in range(calls):
        work(q, k)


def _version(who: str) -> str | None:
    """That of the distribution of a name; None where there is none."""
    try:
        return importlib.metadata.version(who)
    except importlib.metadata.PackageNotFoundError:
        return None


def table(rows: list[dict[str, Any]]) -> str:
    """A line a task and length, a column a library: time as a multiple of geolib's, float32 / bfloat16."""
    found = [row for row in rows if "missing" not in row]
    names = list(dict.fromkeys(row["who"] for row in found if row["who"] != OURS))
    versions = {row["who"]: row["version"] for row in found}
    heads = [f"{who} {versions[who] or ''}".strip() for who in names]
    lines = [f"| | tokens | {OURS}, ms | " + " | ".join(heads) + " |", "|---|--:|--:|" + "--:|" * len(names)]
    for what, tokens in dict.fromkeys((row["what"], row["tokens"]) for row in found):
        of = {(r["who"], r["dtype"]): r for r in found if (r["what"], r["tokens"]) == (what, tokens)}
        mine = " / ".join(f"{1000 * of[OURS, dtype]['seconds']:.3g}" for dtype in ("float32", "bfloat16"))
        theirs = (
            " / ".join(f"{of[who, dtype]['ratio']:.2g}" for dtype in ("float32", "bfloat16") if (who, dtype) in of)
            for who in names
        )
        lines.append(f"| {what} | {tokens:,} | {mine} | " + " | ".join(theirs) + " |")
    missing = [row["missing"] for row in rows if "missing" in row]
    return "\n".join(lines + ([f"\nNot installed here: {', '.join(missing)}."] if missing else []))


# Rotary embeddings --------------------------------------------------------------------------------------------------


def _turned(half_split: bool) -> Callable[[int, Tensor], Work]:
    def make(tokens: int, q: Tensor) -> Work:
        encoding = HalfSplit(RoPE.text(DIM)) if half_split else RoPE.text(DIM)
        return encoding.to(q.device).place(torch.arange(float(tokens), device=q.device)).to_reference

    return make


def _rotary_embedding_torch(tokens: int, q: Tensor) -> Work:
    turn = importlib.import_module("rotary_embedding_torch").RotaryEmbedding(DIM).to(q.device).rotate_queries_or_keys
    return lambda q, k: (turn(q), turn(k))


def _x_transformers(tokens: int, q: Tensor) -> Work:
    module = importlib.import_module("x_transformers.x_transformers")
    turns, scale = module.RotaryEmbedding(DIM).to(q.device).forward_from_seq_len(tokens)
    return lambda q, k: (module.apply_rotary_pos_emb(q, turns, scale), module.apply_rotary_pos_emb(k, turns, scale))


def _transformers(tokens: int, q: Tensor) -> Work:
    turn = importlib.import_module("transformers.models.llama.modeling_llama").apply_rotary_pos_emb
    angles = torch.outer(torch.arange(float(tokens)), RoPE.text(DIM).frequencies[:, 0].cpu())
    cos, sin = (f(torch.cat([angles, angles], -1))[None].to(q) for f in (torch.cos, torch.sin))
    return lambda q, k: turn(q, k, cos, sin)


# Images, and a bias -------------------------------------------------------------------------------------------------


def _image(tokens: int, q: Tensor) -> Work:
    return RoPE.image(DIM, base=10_000.0).to(q.device).place(grid_positions(SIDE, SIDE).to(q.device)).to_reference


def _timm(tokens: int, q: Tensor) -> Work:
    turn = importlib.import_module("timm.layers").apply_rot_embed_cat
    angles = (grid_positions(SIDE, SIDE) @ RoPE.image(DIM, base=10_000.0).frequencies.cpu().mT).repeat_interleave(2, -1)
    turns = torch.cat([angles.sin(), angles.cos()], -1).to(q)
    return lambda q, k: (turn(q, turns), turn(k, turns))


def _alibi(tokens: int, q: Tensor) -> Work:
    placed = ALiBi(HEADS).to(q.device).place(torch.arange(float(tokens), device=q.device))
    return lambda q, k: (placed.attention(q, k, k),) * 2


def _ready_bias(tokens: int, q: Tensor) -> Work:
    bias = ALiBi(HEADS).to(q.device).place(torch.arange(float(tokens), device=q.device)).log_gate(None)
    assert bias is not None
    ready = bias[None].to(q)
    return lambda q, k: (F.scaled_dot_product_attention(q, k, k, attn_mask=ready),) * 2


TASKS: dict[str, dict[str, Callable[..., Work]]] = {
    ROTARY: {
        OURS: _turned(half_split=False),
        "rotary-embedding-torch": _rotary_embedding_torch,
        "x-transformers": _x_transformers,
    },
    HALF_SPLIT: {OURS: _turned(half_split=True), "transformers": _transformers},
    IMAGE: {OURS: _image, "timm": _timm},
    BIAS: {OURS: _alibi, "torch, a ready bias": _ready_bias},
}
