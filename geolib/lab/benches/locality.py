"""Locality focusing: time and memory of its forms, and of attention with the Gaussian inside the softmax."""

from functools import partial
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from geolib import locality as lf
from geolib.lab.benches.timing import in_turns, peak
from geolib.lab.train import pick_device
from geolib.rotations import grid_positions

FORMS = {"literal": lf.focused_attention, "fused": lf.fused_focused_attention, "features": lf.focused_by_features}


def measured(side: int, heads: int, backward: bool, dim: int = 64, repeats: int = 5) -> list[dict[str, Any]]:
    """Measure focusing forward and backward, or forward beside other attention, on a grid of side x side tokens.

    ``speedup`` is over the literal form, ``multiple`` of plain attention's time, ``mib`` what a pass adds at most.
    """
    torch.manual_seed(0)
    device = pick_device(None)
    q, k, v = torch.randn(3, 1, heads, side**2, dim, device=device).requires_grad_(backward)
    p, sigma = grid_positions(side, side).to(device), torch.full((heads, 1), side / 8, device=device)
    inputs = q, k, v, p, sigma.requires_grad_(backward)
    if backward:
        step = lambda form: torch.autograd.grad(form(*inputs).sum(), (q, k, v, sigma))  # noqa: E731
        works: dict[str, Any] = {name: partial(step, form) for name, form in FORMS.items()}
    else:
        attend = partial(scaled_dot_product_attention, q, k, v)
        works = {"plain": attend, "gate, a given matrix": lambda: attend(lf.log_attenuation(p, sigma))}
        works |= {"gate, features": partial(lf.gated_by_features, *inputs)}
        works |= {f"focusing, {name}": partial(form, *inputs) for name, form in FORMS.items()}
    times, clock = in_turns(works, repeats), "cpu_seconds" if device.type == "cpu" else "seconds"
    about = {"tokens": side**2, "heads": heads, "dim": dim, "device": device.type, "threads": torch.get_num_threads()}
    rows = [{"form": name, **about, **took, "mib": peak(works[name], device)} for name, took in times.items()]
    base = rows[0][clock]
    return [row | ({"speedup": base / row[clock]} if backward else {"multiple": row[clock] / base}) for row in rows]


def run() -> list[dict[str, Any]]:
    """Measure 4,096 tokens and 8 heads forward and backward, then one head at three lengths. Source: RF-FUSED."""
    return [*measured(64, 8, True), *(row for side in (32, 64, 128) for row in measured(side, 1, False))]
