"""Symmetric-power attention against softmax: time and memory, with gates near 0.999, of which softmax has none.

All forms have p = 2 but one, all pairs by a few queries at a time on a processor.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from geolib.lab.benches.timing import in_turns, peak
from geolib.lab.records import device_name
from geolib.lab.train import pick_device
from geolib.recurrence import attention_form, by_chunks, by_large_products, chunked_form, chunked_with, one_chunk_form

LENGTHS, ALL_PAIRS_FIT, LONGEST = tuple(2**n for n in range(10, 17)), 8192, 16384


def forms(device: torch.device, tokens: int) -> dict[str, Callable[..., Tensor]]:
    """What takes part, by name: functions of queries, keys, values and log gates."""
    chunked = lambda form: lambda q, k, v, g: form(q, k, v, 2, g)[0].output  # noqa: E731
    found = {"scaled_dot_product_attention": lambda q, k, v, g: scaled_dot_product_attention(q, k, v, is_causal=True)}
    if device.type == "cuda" or tokens <= ALL_PAIRS_FIT:  # on a CPU it makes matrices of all pairs
        found["attention form"] = lambda q, k, v, g: attention_form(q, k, v, 2, g).output
    found["chunked form"] = chunked(chunked_form)
    if device.type == "cpu":
        if tokens <= LONGEST:
            found["one chunk, p = 4"] = lambda q, k, v, g: one_chunk_form(q, k, v, 4, g)
        return found | {"chunked form, large products": chunked(partial(chunked_with, by_large_products))}
    found["chunked form, compiled"] = torch.compile(found["chunked form"], fullgraph=True)
    found["chunked form, chunk by chunk"] = chunked(partial(chunked_with, by_chunks))
    return found


def run(dim: int = 64, lengths: Sequence[int] = LENGTHS, repeats: int = 3) -> list[dict[str, Any]]:
    """Measure 8 heads in bfloat16 on a GPU, 2 in float32 on a CPU, by ``form``. Source: CS-chunk, CS-FUSED, CS-cost."""
    rows, device = [], pick_device(None)
    heads, dtype = (2, torch.float32) if device.type == "cpu" else (8, torch.bfloat16)
    about = {"heads": heads, "dim": dim, "threads": torch.get_num_threads(), "device": device_name(device)}
    for tokens in lengths:
        torch.manual_seed(0)
        qkv = torch.randn(3, 1, heads, tokens, dim, device=device, dtype=dtype)
        inputs = [each.requires_grad_() for each in (*qkv, -0.002 * torch.rand(1, heads, tokens, device=device))]
        works: dict[tuple[str, str], Any] = {}
        for name, form in forms(device, tokens).items():
            works[name, "forward"] = torch.no_grad()(partial(form, *inputs))
            both = lambda form=form, x=inputs: torch.autograd.grad(form(*x).sum(), x, allow_unused=True)  # noqa: E731
            works[name, "forward and backward"] = both
        for key, took in in_turns(works, repeats).items():
            about |= {"form": key[0], "pass": key[1], "tokens": tokens}
            rows.append({**about, **took, "mib": peak(works[key], device)})
    return rows
