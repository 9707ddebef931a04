"""How much memory a training step takes at full scale, by adding up what it allocates; no number is computed.

Tensors without numbers go through the step of the CPU, whose attention keeps no square of weights, as a GPU's kernels
do. Counted are weights, AdamW's moments, gradients and what the backward pass keeps; not counted are the data, the
allocator's gaps, kernels' own room and a recording of the step. Symmetric powers are left out: on a GPU another form
computes them.
"""

from __future__ import annotations

import weakref
from operator import attrgetter
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from geolib.lab.causal import METHODS
from geolib.lab.config import Config
from geolib.lab.data import DATASETS
from geolib.lab.experiments import EXPERIMENTS, Experiment
from geolib.lab.gpt import GPT
from geolib.lab.models import ViT
from geolib.lab.optimiser import adamw

CPU = torch.device("cpu")
MODEL = attrgetter("dataset", "method", "layers", "width", "heads", "mlp_ratio", "patch", "batch", "context")
"""What memory depends on, beside the options of the method."""
CARDS = (("T4", "fp32", 16), ("L4", "bf16", 24), ("A100, 40 GB", "bf16", 40), ("A100 or H100, 80 GB", "bf16", 80))
"""Cards, the precision of a run there, and their GB."""
CLASSES = 100  # of images, or as good as any other number


class Held(TorchDispatchMode):
    """The bytes of all tensors made inside that are still there, and the most there have been.

    >>> with Held() as held:
    ...     x = torch.zeros(1024)
    ...     y = torch.zeros(1024) + x
    >>> held.bytes, held.peak
    (8192, 12288)
    """

    def __init__(self) -> None:
        super().__init__()
        self.bytes = self.peak = 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do, and count new storages."""
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self.hold(tensor.untyped_storage())
        return result

    def hold(self, storage: torch.UntypedStorage) -> None:
        """Count a storage, once."""
        if storage._cdata not in self.known:
            self.known.add(storage._cdata)
            self.bytes += storage.nbytes()
            self.peak = max(self.peak, self.bytes)
            weakref.finalize(storage, self._drop, storage._cdata, storage.nbytes())

    def _drop(self, known: int, size: int) -> None:
        self.known.discard(known)
        self.bytes -= size


def peak(config: Config, bf16: bool) -> int:
    """The most bytes that two steps hold.

    >>> peak(Config("digits", "rope-axial", patch=1, batch=64), bf16=False) > 64 * peak(
    ...     Config("digits", "rope-axial", patch=1, batch=1), bf16=False) / 8
    True
    """
    spec, batch = DATASETS[config.dataset], config.batch
    model = GPT(config, spec.vocabulary) if spec.is_read else ViT(config, spec.shape, CLASSES)
    with FakeTensorMode() as without_numbers, Held() as held:
        model._apply(without_numbers.from_tensor)
        for tensor in (*model.parameters(), *model.buffers()):
            held.hold(tensor.untyped_storage())
        answers = torch.zeros(batch, *([config.context] if config.context else []), dtype=torch.long)
        x = answers if spec.is_read else torch.zeros(batch, *spec.shape)
        optimizer = adamw(model, config, CPU)
        for _ in range(2):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16, cache_enabled=False):
                scores = model(x)
            F.cross_entropy(scores.float().flatten(0, -2), answers.flatten()).backward()
            optimizer.step()
            del scores
    return held.peak


def smallest_card(sizes: dict[str, Any]) -> str:
    """The smallest card that a step's count fits on, in the precision it computes in.

    >>> smallest_card({"bf16": 15.1, "fp32": 28.4}), smallest_card({"bf16": 8.5, "fp32": 13.8})
    ('L4', 'T4')
    """
    return next((card for card, kind, room in CARDS if sizes[kind] * 2**30 < room * 1e9), "none")


def configurations(experiment: Experiment) -> list[tuple[str, Config]]:
    """Row and configuration of every model that differs, at full scale, where this can count it."""
    found: dict[Any, tuple[str, Config]] = {}
    for row, dataset in experiment.pairs("full") if "full" in experiment.scales else ():
        config = experiment.config("full", row, dataset, seed=0)
        if DATASETS[dataset].is_read and METHODS[config.method].kernel == "power":
            continue
        found.setdefault((MODEL(config), repr(config.method_options)), (row, config))
    return list(found.values())


def run(names: tuple[str, ...] = tuple(EXPERIMENTS)) -> list[dict[str, Any]]:
    """Count; a row for each experiment of full scale, for its model that takes most.

    Rows have ``experiment``, ``row``, ``batch`` and, in GiB, ``bf16`` and ``fp32``.
    """
    rows = []
    for name in names:
        counted = [(peak(config, False), row, config) for row, config in configurations(EXPERIMENTS[name])]
        if counted:
            most, row, config = max(counted, key=lambda each: each[0])
            sizes = {"bf16": peak(config, True), "fp32": most}
            told = {key: round(size / 2**30, 2) for key, size in sizes.items()}
            rows.append({"experiment": name, "row": row, "batch": config.batch, **told})
    return rows
