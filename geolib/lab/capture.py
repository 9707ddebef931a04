"""A training step on a GPU that is recorded once as a CUDA graph and replayed.

A small model's step is some hundred short kernels, and launching them from Python takes longer than running them. A
graph launches them all at once.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

Step = Callable[[Tensor, Tensor], Tensor]  # inputs and targets of a batch; the loss, (), on the device
WARM_UPS = 3  # steps before the recording: libraries load, buffers are made, PyTorch compiles


class CapturedStep:
    """Replays a step on full batches; takes it eagerly on batches of another size.

    The recording is made at the first full batch. The step must not read numbers back from the GPU (RuntimeError at the
    recording). The optimiser is ``capturable`` with its learning rate in a tensor on the device.
    """

    def __init__(self, step: Step, model: nn.Module, optimizer: torch.optim.Optimizer, size: int):
        self.step, self.model, self.optimizer, self.size = step, model, optimizer, size
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Take one step; the loss, (), valid until the next one."""
        if len(targets) != self.size:
            return self.step(inputs, targets)
        if self.graph is None:
            self.inputs, self.targets = inputs.clone(), targets.clone()
            with unchanged(self.model, self.optimizer):
                self.record()
        assert self.graph is not None
        self.inputs.copy_(inputs)
        self.targets.copy_(targets)
        self.graph.replay()
        return self.loss

    def record(self) -> None:
        """Take the step a few times on a stream of its own, then record it."""
        device = self.inputs.device
        side, mode = torch.cuda.Stream(device), torch.cuda.get_sync_debug_mode()
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch calls the mode below a prototype each time
            for number in range(WARM_UPS):
                # The last one with waiting forbidden, so that a step that waits for the GPU fails here.
                torch.cuda.set_sync_debug_mode("error" if number == WARM_UPS - 1 else mode)
                try:
                    self.step(self.inputs, self.targets)
                finally:
                    torch.cuda.set_sync_debug_mode(mode)
        torch.cuda.current_stream(device).wait_stream(side)
        self.optimizer.zero_grad()  # the gradients of the recording live in the graph's own memory
        gc.collect()  # recordings of earlier runs hold memory, and may wait in a cycle
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.loss = self.step(self.inputs, self.targets)
        self.graph = graph


def compiled(model: nn.Module) -> Any:
    """Compile a model, once in a process for all seeds of its method and shape; a graph that breaks is an error."""
    settings: Any = torch._dynamo.config  # type: ignore[attr-defined]
    settings.recompile_limit = max(settings.recompile_limit, 256)  # models; PyTorch gives up after eight
    settings.accumulated_recompile_limit = max(settings.accumulated_recompile_limit, 256)
    return torch.compile(model, dynamic=False, fullgraph=True)


@contextmanager
def unchanged(model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Inside, steps may be tried; after it, weights, moments and generators are as before, at the same addresses."""
    weights = {key: value.detach().clone() for key, value in model.state_dict().items()}
    moments = {p: {key: value.clone() for key, value in state.items()} for p, state in optimizer.state.items()}
    devices = sorted({p.device.index or 0 for p in model.parameters() if p.device.type == "cuda"})
    with torch.random.fork_rng(devices):
        yield
    with torch.no_grad():
        for key, value in model.state_dict().items():
            value.copy_(weights[key])
        for p, state in optimizer.state.items():
            for key, value in state.items():
                value.copy_(moments[p][key]) if p in moments else value.zero_()  # AdamW's state begins at zero
    optimizer.zero_grad()
