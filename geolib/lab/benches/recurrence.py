"""How fast symmetric-power attention is: the chunked form beside the attention form and PyTorch's fused attention.

Each measurement is forward and backward for one sequence, on the GPU where there is one. ``seconds`` is the median over
repeats of one run on an otherwise idle machine; ``cpu_seconds`` is processor time, which other programs disturb less.
Memory is what a fresh process grows by, or what the GPU held at most. Figures from different runs are not comparable:
use the ratios of one run. "chunk by chunk" and "large products" are the two engines of the chunked form, each on
whatever device is there; "compiled" is the second in one graph, with factors in bfloat16.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from geolib.lab.records import device_name
from geolib.lab.training import pick_device
from geolib.recurrence import attention_form, by_chunks, by_large_products, chunked_form, chunked_with

Inputs = tuple[Tensor, Tensor, Tensor, Tensor]


def _attention(q: Tensor, k: Tensor, v: Tensor, log_gates: Tensor) -> Tensor:
    return attention_form(q, k, v, 2).output


def _gated_attention(q: Tensor, k: Tensor, v: Tensor, log_gates: Tensor) -> Tensor:
    return attention_form(q, k, v, 2, log_gates).output


def _chunked(q: Tensor, k: Tensor, v: Tensor, log_gates: Tensor) -> Tensor:
    return chunked_form(q, k, v, 2)[0].output


def _gated_chunked(q: Tensor, k: Tensor, v: Tensor, log_gates: Tensor) -> Tensor:
    return chunked_form(q, k, v, 2, log_gates)[0].output


def _chunk_by_chunk(q: Tensor, k: Tensor, v: Tensor, log_gates: Tensor) -> Tensor:
    return chunked_with(by_chunks, q, k, v, 2, log_gates)[0].output


def _large_products(q: Tensor, k: Tensor, v: Tensor, log_gates: Tensor) -> Tensor:
    return chunked_with(by_large_products, q, k, v, 2, log_gates)[0].output


@cache
def _graph() -> Callable[..., Tensor]:
    return torch.compile(_large_products, fullgraph=True)


def _compiled(q: Tensor, k: Tensor, v: Tensor, log_gates: Tensor) -> Tensor:
    return _graph()(q.bfloat16(), k.bfloat16(), v.bfloat16(), log_gates)


def _fused_softmax(q: Tensor, k: Tensor, v: Tensor, log_gates: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


FORMS: dict[str, Callable[..., Tensor]] = {
    "attention": _attention,
    "gated attention": _gated_attention,
    "chunked": _chunked,
    "gated chunked": _gated_chunked,
    "chunk by chunk": _chunk_by_chunk,
    "large products": _large_products,
    "compiled": _compiled,
    "scaled_dot_product_attention": _fused_softmax,
}
QUADRATIC_IN_MEMORY = ("attention", "gated attention")


def inputs(heads: int, tokens: int, dim: int) -> Inputs:
    """Random queries, keys, values and log gates near 0.999, with gradients, as (1, heads, tokens, dim)."""
    g, device = torch.Generator().manual_seed(0), pick_device(None)
    q, k, v = (torch.randn(1, heads, tokens, dim, generator=g).to(device).requires_grad_() for _ in range(3))
    return q, k, v, (-0.002 * torch.rand(1, heads, tokens, generator=g)).to(device).requires_grad_()


def forward_backward(form: str, tensors: Inputs) -> None:
    """One forward and one backward pass; forms that hold all pairs take one head after the other, to fit in memory."""
    step = 1 if form in QUADRATIC_IN_MEMORY else tensors[0].shape[1]
    for head in range(0, tensors[0].shape[1], step):
        FORMS[form](*(t[:, head : head + step] for t in tensors)).sum().backward()
    if tensors[0].is_cuda:
        torch.cuda.synchronize()


def timed(form: str, heads: int, tokens: int, dim: int, repeats: int) -> dict[str, Any]:
    """Median times of one form at one length."""
    tensors = inputs(heads, tokens, dim)
    forward_backward(form, tensors if tensors[0].is_cuda else inputs(heads, min(tokens, 1024), dim))
    walls, cpus = [], []
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        forward_backward(form, tensors)
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return {"seconds": statistics.median(walls), "cpu_seconds": statistics.median(cpus)}


def _peak() -> float:
    """The largest resident size of this process so far, in MiB (Linux; getrusage would count its parent's)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def _grown(form: str, heads: int, tokens: int, dim: int) -> float:
    """MiB by which this process, or what it holds on a GPU, grows at most during one pass."""
    forward_backward(form, inputs(heads, 1024, dim))
    if torch.cuda.is_available():
        tensors = inputs(heads, tokens, dim)
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        forward_backward(form, tensors)
        return (torch.cuda.max_memory_allocated() - held) / 2**20
    before = _peak()
    forward_backward(form, inputs(heads, tokens, dim))
    return _peak() - before


def memory(form: str, heads: int, tokens: int, dim: int) -> float:
    """MiB that one pass of a form needs beyond a pass over 1,024 tokens, in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_grown, (form, heads, tokens, dim))


def run(
    heads: int = 8,
    dim: int = 64,
    compared: Sequence[int] = (4096, 8192, 16384),
    growth: Sequence[int] = (8192, 16384, 32768, 65536),
    quadratic: Sequence[int] = (8192,),
    repeats: int = 3,
) -> list[dict[str, Any]]:
    """Measure.

    Parameters
    ----------
    heads, dim : int
        Heads and features a head.
    compared : sequence of int
        Lengths at which the chunked form stands beside the fused softmax kernel.
    growth : sequence of int
        Lengths for time and memory of the chunked form alone.
    quadratic : sequence of int
        Lengths at which the attention form runs, and both engines of the chunked form.
    repeats : int

    Returns
    -------
    list of dict
        Rows with ``form``, ``tokens``, ``heads``, ``threads``, ``device`` and either times or ``mib``; then rows with
        ``ratio``, a description, and ``value``, by wall time, and ``cpu_value``, by processor time.

    Source: CS-chunk.
    """
    wanted = [
        (form, tokens) for tokens in compared for form in ("scaled_dot_product_attention", "chunked", "gated chunked")
    ]
    wanted += [(form, tokens) for tokens in quadratic for form in QUADRATIC_IN_MEMORY]
    wanted += [("chunked", tokens) for tokens in growth]
    wanted += [("chunked", tokens) for tokens in quadratic] + [("gated chunked", tokens) for tokens in quadratic]
    engines = ["chunk by chunk", "large products"]
    engines += ["compiled"] if torch.cuda.is_available() else []
    wanted += [(form, tokens) for tokens in quadratic for form in engines]
    about = {"heads": heads, "dim": dim, "threads": torch.get_num_threads(), "device": device_name(pick_device(None))}
    times = {which: timed(*which[:1], heads, which[1], dim, repeats) for which in dict.fromkeys(wanted)}
    rows = [{"form": form, "tokens": tokens, **about, **row} for (form, tokens), row in times.items()]
    rows += [{"form": "chunked", "tokens": t, **about, "mib": memory("chunked", heads, t, dim)} for t in growth]

    def ratio(above: tuple[str, int], below: tuple[str, int]) -> dict[str, Any]:
        name = f"{above[0]} at {above[1]} / {below[0]} at {below[1]}"
        value, cpu = (times[above][unit] / times[below][unit] for unit in ("seconds", "cpu_seconds"))
        return {"ratio": name, **about, "value": value, "cpu_value": cpu}

    for tokens in quadratic:
        rows.append(ratio(("attention", tokens), ("chunked", tokens)))
        rows.append(ratio(("gated attention", tokens), ("gated chunked", tokens)))
        rows += [ratio(("chunk by chunk", tokens), (form, tokens)) for form in engines[1:]]
    for tokens in compared:
        rows += [
            ratio(("scaled_dot_product_attention", tokens), (form, tokens)) for form in ("chunked", "gated chunked")
        ]
    rows += [ratio(("chunked", tokens), ("chunked", growth[0])) for tokens in growth[1:]]
    return rows
