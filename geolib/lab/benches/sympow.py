"""Symmetric-power attention against softmax, from 1,024 to 65,536 tokens: time and memory.

All forms of one length take turns in one process, forward alone and forward with backward, with gates near 0.999
(softmax has none). Times are the best of their repeats, memory is what a pass adds at most. What would take longer than
a minute, or would not fit, is left out and says why. On a GPU inputs are bfloat16 and large products are compiled; on a
processor inputs are float32. The chunked form has two engines, chunk by chunk on a processor and large products on a
GPU; the one that is not usual there takes part under its name.

The authors' package ``retention`` takes part where it can be imported, its reference in PyTorch and on a GPU its
kernel: ``pip install retention==1.0.7``. Its authors publish, for one sequence, 8 heads of 64 features, p = 2,
bfloat16, 65,536 tokens and an H100, 16.8 ms forward with backward, and 49.7 ms for FlashAttention.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from geolib.lab.benches.timing import in_turns, peak
from geolib.lab.records import device_name
from geolib.lab.train import pick_device
from geolib.recurrence import attention_form, by_chunks, by_kernels, by_large_products, chunked_form, chunked_with
from geolib.recurrence.fused import TRITON

Inputs = tuple[Tensor, Tensor, Tensor, Tensor]
_LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768, 65536)
PATIENCE = 60.0  # seconds that one pass may take
_QUICK = 2.0  # seconds of a pass at the length before, beyond which one turn has to do
_ROOM = 0.5  # of the memory at hand, for the matrices of all pairs
PASSES = ("forward", "forward and backward")


class Form(NamedTuple):
    """A way to compute attention, and how its time grows when the tokens double."""

    attend: Callable[..., Tensor]
    growth: int


# The forms ----------------------------------------------------------------------------------------------------------


def _softmax(q: Tensor, k: Tensor, v: Tensor, log_gates: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def _attention(q: Tensor, k: Tensor, v: Tensor, log_gates: Tensor) -> Tensor:
    return attention_form(q, k, v, 2, log_gates).output


def _chunked(*tensors: Tensor, engine: Callable[..., Any] | None = None) -> Tensor:
    """The chunked form, by the engine that is usual on the device or by a certain one."""
    q, k, v, log_gates = tensors
    form = chunked_form if engine is None else partial(chunked_with, engine)
    return form(q, k, v, 2, log_gates)[0].output


_graph = cache(lambda: torch.compile(_chunked, fullgraph=True))


def _of_the_authors(module: str) -> Callable[..., Tensor]:
    """A function of their package; it has tokens before heads."""
    retain = importlib.import_module(module).power_retention

    def attend(q: Tensor, k: Tensor, v: Tensor, log_gates: Tensor) -> Tensor:
        tensors = (t.transpose(1, 2).contiguous() for t in (q, k, v, log_gates))
        return retain(*tensors, deg=2, chunk_size=min(1024, q.shape[2])).transpose(1, 2)

    return attend


def forms(device: torch.device) -> dict[str, Form]:
    """What takes part on a device, by name.

    >>> list(forms(torch.device("cpu")))[:3]
    ['scaled_dot_product_attention', 'attention form', 'chunked form']
    """
    on_gpu = device.type == "cuda"
    found = {
        "scaled_dot_product_attention": Form(_softmax, 4),
        "attention form": Form(_attention, 4),
        "chunked form": Form(_chunked, 2),
    }
    if on_gpu:
        found["chunked form, compiled"] = Form(lambda *tensors: _graph()(*tensors), 2)
        found["chunked form, chunk by chunk"] = Form(partial(_chunked, engine=by_chunks), 2)
        if TRITON:
            found["chunked form, kernels"] = Form(partial(_chunked, engine=by_kernels), 2)
    else:
        found["chunked form, large products"] = Form(partial(_chunked, engine=by_large_products), 2)
    if importlib.util.find_spec("retention") is not None:
        found["retention, reference"] = Form(_of_the_authors("retention.reference"), 2)
        if on_gpu:
            found["retention, kernel"] = Form(_of_the_authors("retention"), 2)
    return found


def inputs(heads: int, tokens: int, dim: int, device: torch.device) -> Inputs:
    """Random queries, keys and values, bfloat16 on a GPU, and log gates near 0.999, all with gradients."""
    draw, dtype = torch.Generator().manual_seed(0), torch.float32 if device.type == "cpu" else torch.bfloat16
    q, k, v = (torch.randn(1, heads, tokens, dim, generator=draw).to(device, dtype).requires_grad_() for _ in range(3))
    return q, k, v, (-0.002 * torch.rand(1, heads, tokens, generator=draw)).to(device).requires_grad_()


def passes(form: Form, tensors: Inputs) -> dict[str, Callable[[], None]]:
    """One pass forward, and one forward and backward; on a processor all pairs are those of one head at a time."""
    on_cpu = tensors[0].device.type == "cpu"
    step = 1 if form.attend is _attention and on_cpu else tensors[0].shape[1]
    parts = [tuple(t[:, h : h + step] for t in tensors) for h in range(0, tensors[0].shape[1], step)]

    def forward() -> None:
        with torch.no_grad():
            for part in parts:
                form.attend(*part)

    def both() -> None:
        for part in parts:
            form.attend(*part).sum().backward()
        for t in tensors:
            t.grad = None

    return dict(zip(PASSES, (forward, both)))


def pairs_fit(tokens: int, device: torch.device) -> bool:
    """Whether the plain attention form's matrices, some ten of one head, fit into the memory at hand."""
    if device.type == "cuda":
        return True  # no matrix of all pairs there
    lines = Path("/proc/meminfo").read_text().splitlines() if Path("/proc/meminfo").exists() else []
    free = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    return not free or 10 * 4 * tokens**2 < _ROOM * free[0]


# The run ------------------------------------------------------------------------------------------------------------


def run(
    heads: int | None = None,
    dim: int = 64,
    lengths: Sequence[int] = _LENGTHS,
    repeats: int = 3,
    patience: float = PATIENCE,
) -> list[dict[str, Any]]:
    """Measure: rows by ``form``, ``pass`` and ``tokens``, timed or skipped.

    Lengths rise; ``repeats`` is the turns of each form at each length, one where passes take seconds; ``patience`` the
    seconds that a pass may take, by what it took at the length before. There are 8 heads on a GPU, 2 on a processor.

    Source: CS-chunk, CS-FUSED, CS-cost.
    """
    device = pick_device(None)
    heads = heads or (8 if device.type == "cuda" else 2)
    about = {"heads": heads, "dim": dim, "threads": torch.get_num_threads(), "device": device_name(device)}
    known = forms(device)
    last: dict[tuple[str, str], tuple[int, float]] = {}
    rows: list[dict[str, Any]] = []
    for tokens in lengths:
        tensors, works = inputs(heads, tokens, dim, device), {}
        for name, form in known.items():
            for which, work in passes(form, tensors).items():
                reason = _reason(form, last.get((name, which)), tokens, device, patience)
                if reason:
                    rows.append({"form": name, "pass": which, "tokens": tokens, **about, "skipped": reason})
                else:
                    works[name, which] = work
        slow = any(time > _QUICK for _, time in last.values())
        for (name, which), took in in_turns(works, 1 if slow else repeats).items():
            last[name, which] = (tokens, took["cpu_seconds"] if device.type == "cpu" else took["seconds"])
            mib = peak(works[name, which], device)
            rows.append({"form": name, "pass": which, "tokens": tokens, **about, **took, "mib": mib})
    return rows


def _reason(
    form: Form, last: tuple[int, float] | None, tokens: int, device: torch.device, patience: float
) -> str | None:
    """Why a pass is left out, if it is."""
    if form.attend is _attention and not pairs_fit(tokens, device):
        return "all pairs do not fit"
    if last is not None and (expected := last[1] * form.growth ** math.log2(tokens / last[0])) > patience:
        return f"about {expected:.0f} s"
    return None


# What is shown ------------------------------------------------------------------------------------------------------


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Times forward with backward in milliseconds of the clock, and memory, a line for each length.

    >>> row = {"form": "a", "pass": "forward and backward", "tokens": 8, "seconds": 0.5, "mib": 3.0}
    >>> print(table([row, {**row, "tokens": 16, "skipped": "about 90 s"}]))
    tokens                 a
         8  500.0 ms   3 MiB
        16        about 90 s
    """
    both = [row for row in rows if row["pass"] == PASSES[1]]
    names = list(dict.fromkeys(row["form"] for row in both))
    cells = {(row["form"], row["tokens"]): _cell(row) for row in both}
    width = max([18, *(2 + len(text) for text in (*cells.values(), *names))])
    lines = ["tokens" + "".join(name.rjust(width) for name in names)]
    for tokens in dict.fromkeys(row["tokens"] for row in both):
        lines.append(f"{tokens:6d}" + "".join(cells.get((name, tokens), "").rjust(width) for name in names))
    return "\n".join(lines)


def _cell(row: dict[str, Any]) -> str:
    if "skipped" in row:
        return row["skipped"]
    memory = "" if row["mib"] is None else f"   {row['mib']:.0f} MiB"
    return f"{1e3 * row['seconds']:.1f} ms{memory}"
