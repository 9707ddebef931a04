"""How much memory a training step takes at full scale, by adding up what it allocates; no number is computed.

Tensors without numbers go through the step of the CPU, whose attention keeps no square of weights, as a GPU's kernels
do; symmetric powers take the forms of a GPU. Counted are weights, AdamW's moments, gradients and what the backward pass
keeps, and beside it a batch of the test; not counted are the data, the allocator's gaps, kernels' own room and a
recording of the step. Kernel by kernel: what a compiler does not keep is counted too.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from operator import attrgetter, itemgetter
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from geolib.lab.config import Config
from geolib.lab.data.sets import DATASETS
from geolib.lab.experiments import EXPERIMENTS, Experiment
from geolib.lab.gpt import GPT
from geolib.lab.optimiser import adamw
from geolib.lab.text_attention import Power
from geolib.lab.train import EVALUATION_BATCH, EVALUATION_TOKENS
from geolib.lab.vit import ViT
from geolib.recurrence import by_large_products, chunks, forms, fused

CPU = torch.device("cpu")
MODEL = attrgetter("dataset", "method", "layers", "width", "heads", "mlp_ratio", "patch", "batch", "context")
"""What memory depends on, beside the options of the method."""
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


@contextmanager
def forms_of_a_gpu() -> Iterator[None]:
    """Inside, symmetric powers on the CPU take the forms of a GPU, with a kernel that keeps what FlexAttention keeps.

    That is queries, keys, values, the output and a logarithm a row, as for plain attention; its numbers are not a
    power's.
    """

    def kernel(q: Tensor, k: Tensor, v: Tensor, modify: Any, mask: Any) -> tuple[Tensor, Tensor]:
        return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, True)

    with ExitStack() as changed:
        for owner, name, other in (
            (Power, "on_cpu", Power.on_gpu),
            (chunks, "by_chunks", by_large_products),
            (forms, "kernel_takes", lambda q, k, v: min(q.shape[-1], v.shape[-1]) >= fused.NARROWEST),
            (fused, "flex_kernel", lambda *settings: kernel),
            (fused, "_causal", lambda tokens, device: None),
        ):
            changed.enter_context(mock.patch.object(owner, name, other))
        yield


@contextmanager
def counted(config: Config) -> Iterator[tuple[GPT | ViT, Held]]:
    """The model without numbers, and what is held, its weights so far."""
    spec = DATASETS[config.dataset]
    model = GPT(config) if spec.is_text else ViT(config, spec.shape, CLASSES)
    with forms_of_a_gpu(), FakeTensorMode(allow_non_fake_inputs=True) as without_numbers, Held() as held:
        model._apply(without_numbers.from_tensor)
        for tensor in (*model.parameters(), *model.buffers()):
            held.hold(tensor.untyped_storage())
        yield model, held


def scores_of(model: GPT | ViT, config: Config, batch: int, bf16: bool) -> Tensor:
    """The model's output for a batch of zeros."""
    spec = DATASETS[config.dataset]
    x = torch.zeros(batch, config.context or 0, dtype=torch.long) if spec.is_text else torch.zeros(batch, *spec.shape)
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16, cache_enabled=False):
        return model(x).float().flatten(0, -2)


def peak(config: Config, bf16: bool) -> int:
    """The most bytes that two steps hold."""
    with counted(config) as (model, held):
        optimizer = adamw(model, config, CPU)
        for _ in range(2):
            optimizer.zero_grad()
            scores = scores_of(model, config, config.batch, bf16)
            F.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long)).backward()
            optimizer.step()
            del scores
    return held.peak


def peak_of_test(config: Config, bf16: bool) -> int:
    """The most bytes that a GPU's batch of the test holds, beside AdamW's moments and the last step's gradients."""
    batch = EVALUATION_TOKENS["cuda"] // config.context if config.context else EVALUATION_BATCH["cuda"]
    with counted(config) as (model, held), torch.no_grad():
        scores_of(model, config, max(1, batch), bf16)
    return held.peak + 3 * sum(4 * p.numel() for p in model.parameters())


def configurations(experiment: Experiment) -> list[tuple[str, Config]]:
    """Row and configuration of every model that differs, at full scale."""
    found: dict[Any, tuple[str, Config]] = {}
    for row, dataset in experiment.pairs("full") if "full" in experiment.scales else ():
        config = experiment.config("full", row, dataset, seed=0)
        found.setdefault((MODEL(config), repr(config.method_options)), (row, config))
    return list(found.values())


def run(names: tuple[str, ...] = tuple(EXPERIMENTS)) -> list[dict[str, Any]]:
    """Count; a row for each experiment of full scale, for its model that takes most.

    Rows have ``experiment``, ``row``, ``batch`` and, in GiB, ``bf16`` and ``fp32`` of a step, ``test_bf16`` and
    ``test_fp32`` of a batch of the test, by its model that takes most there.
    """
    rows = []
    for name in names:
        models = configurations(EXPERIMENTS[name])
        if models:
            most, row, config = max(((peak(config, False), row, config) for row, config in models), key=itemgetter(0))
            sizes = {"bf16": peak(config, True), "fp32": most}
            for key, bf16 in (("test_bf16", True), ("test_fp32", False)):
                sizes[key] = max(peak_of_test(config, bf16) for _, config in models)
            told = {key: round(size / 2**30, 2) for key, size in sizes.items()}
            rows.append({"experiment": name, "row": row, "batch": config.batch, **told})
    return rows
