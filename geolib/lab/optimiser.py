"""The optimiser: AdamW, what decays, and the learning rate of a step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from geolib.lab.config import Config

if TYPE_CHECKING:
    from geolib.lab.gpt import GPT
    from geolib.lab.vit import ViT


def learning_rate(config: Config, step: int, total: int) -> float:
    """The rate of a step, 0 ... total - 1: linear warm-up, then constant or half a cosine down to zero.

    lr (step + 1) / warmup in the warm-up; then lr, or lr (1 + cos(pi t)) / 2 with t = (step - warmup) / (total -
    warmup).
    """
    if step < config.warmup:
        return config.lr * (step + 1) / config.warmup
    if config.schedule == "constant":
        return config.lr
    return config.lr * (1 + math.cos(math.pi * (step - config.warmup) / (total - config.warmup))) / 2


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of the next step, on a GPU in the tensor that a recorded step reads."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def adamw(model: ViT | GPT, config: Config, device: torch.device) -> torch.optim.Optimizer:
    """AdamW in one kernel; on a GPU one that a recording can hold, its learning rate in a tensor."""
    groups = _parameter_groups(model, config.weight_decay)
    on_gpu = device.type == "cuda"
    optimizer = torch.optim.AdamW(groups, lr=config.lr, fused=True, capturable=on_gpu)
    if on_gpu:
        for group in optimizer.param_groups:
            group["lr"] = torch.full((), config.lr, dtype=torch.float32, device=device)
    return optimizer


def _parameter_groups(model: ViT | GPT, weight_decay: float) -> list[dict[str, Any]]:
    """Matrices decay; vectors (biases, norms) and what the model names do not."""
    spared = {id(p) for p in model.undecayed()}
    decays = [p for p in model.parameters() if p.dim() >= 2 and id(p) not in spared]
    others = [p for p in model.parameters() if p.dim() < 2 or id(p) in spared]
    return [{"params": decays, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
