"""How fast symmetric-power attention is: the chunked form beside the attention form and PyTorch's fused attention.

Each measurement is forward and backward for one sequence. ``seconds`` is the median over repeats of one run on an
otherwise idle machine; ``cpu_seconds`` is processor time, which other programs disturb less. Memory is what a fresh
process grows by. Figures from different runs are not comparable: use the ratios of one run.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from geolib.recurrence import attention_form, chunked_form

Inputs = tuple[Tensor, Tensor, Tensor, Tensor]


def _attention(q: Tensor, k: Tensor, v: Tensor, log_gates: Tensor) -> Tensor:
    return attention_form(q, k, v, 2).output


def _gated_attention(q: Tensor, k: Tensor, v: Tensor, log_gates: Tensor) -> Tensor:
    return attention_form(q, k, v, 2, log_gates).output


def _chunked(q: Tensor, k: Tensor, v: Tensor, log_gates: Tensor) -> Tensor:
    return chunked_form(q, k, v, 2)[0].output


def _gated_chunked(q: Tensor, k: Tensor, v: Tensor, log_gates: Tensor) -> Tensor:
    return chunked_form(q, k, v, 2, log_gates)[0].output


def _fused_softmax(q: Tensor, k: Tensor, v: Tensor, log_gates: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


FORMS: dict[str, Callable[..., Tensor]] = {
    "attention": _attention,
    "gated attention": _gated_attention,
    "chunked": _chunked,
    "gated chunked": _gated_chunked,
    "scaled_dot_product_attention": _fused_softmax,
}
QUADRATIC_IN_MEMORY = ("attention", "gated attention")


def inputs(heads: int, tokens: int, dim: int) -> Inputs:
    """Random queries, keys, values and log gates near 0.999, with gradients, as (1, heads, tokens, dim)."""
    g = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, heads, tokens, dim, generator=g).requires_grad_() for _ in range(3))
    return q, k, v, (-0.002 * torch.rand(1, heads, tokens, generator=g)).requires_grad_()


def forward_backward(form: str, tensors: Inputs) -> None:
    """One forward and one backward pass; forms that hold all pairs take one head after the other, to fit in memory."""
    step = 1 if form in QUADRATIC_IN_MEMORY else tensors[0].shape[1]
    for head in range(0, tensors[0].shape[1], step):
        FORMS[form](*(t[:, head : head + step] for t in tensors)).sum().backward()


def timed(form: str, heads: int, tokens: int, dim: int, repeats: int) -> dict[str, Any]:
    """Median times of one form at one length."""
    tensors = inputs(heads, tokens, dim)
    forward_backward(form, inputs(heads, min(tokens, 1024), dim))
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
    """MiB by which this process grows at most during one pass."""
    forward_backward(form, inputs(heads, 1024, dim))
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
        Lengths at which the attention form runs.
    repeats : int

    Returns
    -------
    list of dict
        Rows with ``form``, ``tokens``, ``heads``, ``threads`` and either times or ``mib``; then rows with ``ratio``, a
        description, and ``value``, by wall time, and ``cpu_value``, by processor time.

    Source: CS-chunk.
    """
    wanted = [
        (form, tokens) for tokens in compared for form in ("scaled_dot_product_attention", "chunked", "gated chunked")
    ]
    wanted += [(form, tokens) for tokens in quadratic for form in QUADRATIC_IN_MEMORY]
    wanted += [("chunked", tokens) for tokens in growth]
    wanted += [("chunked", tokens) for tokens in quadratic] + [("gated chunked", tokens) for tokens in quadratic]
    about = {"heads": heads, "dim": dim, "threads": torch.get_num_threads()}
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
    for tokens in compared:
        rows += [
            ratio(("scaled_dot_product_attention", tokens), (form, tokens)) for form in ("chunked", "gated chunked")
        ]
    rows += [ratio(("chunked", tokens), ("chunked", growth[0])) for tokens in growth[1:]]
    return rows
