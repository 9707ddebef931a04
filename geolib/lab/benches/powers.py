"""Powers 2 and 4 of scores by all pairs, with gates near 0.999, against softmax without any, on a processor."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from geolib.lab.benches.timing import in_turns, peak
from geolib.recurrence import one_chunk_form


def run(dim: int = 64, lengths: Sequence[int] = (2048, 4096, 8192, 16384), repeats: int = 2) -> list[dict[str, Any]]:
    """Measure two heads in float32; ``multiple`` is of softmax's time in the same pass. Source: CS-att, CS-cost."""
    rows, device = [], torch.device("cpu")
    for tokens in lengths:
        x = torch.randn(4, 1, 2, tokens, dim).requires_grad_()
        (q, k, v), gates, works = x[:3], -0.002 * x[3, ..., 0].sigmoid(), dict[tuple[str, str], Any]()
        forms = {f"one chunk, p = {p}": partial(one_chunk_form, q, k, v, p, gates) for p in (2, 4)}
        plain = {"scaled_dot_product_attention": partial(scaled_dot_product_attention, q, k, v, is_causal=True)}
        for name, form in (plain | forms).items():
            works[name, "forward"] = torch.no_grad()(form)
            both = lambda form=form, x=x: torch.autograd.grad(form().sum(), x, retain_graph=True)  # noqa: E731
            works[name, "forward and backward"] = both
        times = in_turns(works, repeats)
        for key, took in times.items():
            multiple = took["cpu_seconds"] / times[next(iter(plain)), key[1]]["cpu_seconds"]
            row = {"form": key[0], "pass": key[1], "tokens": tokens, "heads": 2, "dim": dim, **took}
            rows.append({**row, "multiple": multiple, "mib": peak(works[key], device)})
    return rows
