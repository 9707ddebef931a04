"""Speed of rotary embeddings beside other libraries that are installed: what a layer pays for placed positions."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.metadata import distributions
from itertools import product
from math import isqrt
from typing import Any

import torch
from torch import Tensor

from geolib.encodings import HalfSplit, RoPE
from geolib.lab.benches.timing import in_turns
from geolib.lab.train import pick_device
from geolib.rotations import grid_positions

HEADS, DIM, LENGTHS = 8, 64, (1, 196, 1024, 4096)  # squares: an image's too
Works = Iterator[tuple[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]]]  # of queries and keys
both = lambda turn: lambda q, k: (turn(q), turn(k))  # noqa: E731


def _interleaved(q: Tensor) -> Works:
    yield "geolib", RoPE.text(DIM).place(torch.arange(float(q.shape[2]))).to_reference
    with suppress(ImportError):
        library = import_module("rotary_embedding_torch")
        yield "rotary-embedding-torch", both(library.RotaryEmbedding(DIM).rotate_queries_or_keys)
    with suppress(ImportError):
        module = import_module("x_transformers.x_transformers")
        angles, _ = module.RotaryEmbedding(DIM).forward_from_seq_len(q.shape[2])
        yield "x-transformers", both(partial(module.apply_rotary_pos_emb, freqs=angles))


def _half_split(q: Tensor) -> Works:
    positions = torch.arange(float(q.shape[2]))
    yield "geolib", HalfSplit(RoPE.text(DIM)).place(positions).to_reference
    with suppress(ImportError):
        turn = import_module("transformers.models.llama.modeling_llama").apply_rotary_pos_emb
        angles = torch.outer(positions, RoPE.text(DIM).frequencies[:, 0]).repeat(1, 2)[None]
        yield "transformers", partial(turn, cos=angles.cos().to(q), sin=angles.sin().to(q))


def _image(q: Tensor) -> Works:
    encoding, grid = RoPE.image(DIM, base=10_000.0), grid_positions(isqrt(q.shape[2]), isqrt(q.shape[2]))
    yield "geolib", encoding.place(grid).to_reference
    with suppress(ImportError):
        angles = (grid @ encoding.frequencies.mT).repeat_interleave(2, -1)
        turns = torch.cat([angles.sin(), angles.cos()], -1).to(q)
        yield "timm", both(partial(import_module("timm.layers").apply_rot_embed_cat, emb=turns))


TASKS = {"RoPE, interleaved": _interleaved, "RoPE, half-split": _half_split, "RoPE of an image": _image}


def run(repeats: int = 50) -> list[dict[str, Any]]:
    """Measure; ``ratio`` is a multiple of geolib's time."""
    rows, versions = [], {each.metadata["Name"]: each.version for each in distributions()}
    for (what, libraries), tokens, dtype in product(TASKS.items(), LENGTHS, (torch.float32, torch.bfloat16)):
        with pick_device(None):  # where all tensors are made
            q, k = torch.randn(2, 1, HEADS, tokens, DIM).to(dtype)
            works = {who: partial(work, q, k) for who, work in libraries(q)}
        times = in_turns(works, repeats)
        for who, took in times.items():
            row = {"what": what, "tokens": tokens, "dtype": str(dtype).removeprefix("torch."), "who": who}
            ratio = took["seconds"] / times["geolib"]["seconds"]
            rows.append({**row, "version": versions.get(who), "seconds": took["seconds"], "ratio": ratio})
    return rows
