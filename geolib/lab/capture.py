"""A training step on a GPU, recorded once as a CUDA graph, which launches some hundred short kernels at once."""

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

Step = Callable[[Tensor, Tensor], Tensor]  # inputs and targets of a batch; the loss, (), on the device


class CapturedStep:
    """A step, recorded at the first full batch and replayed on all; taken eagerly on batches of another size.

    A step that reads numbers back from the GPU is a RuntimeError. The optimiser's learning rate is a tensor there.
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
        """Take the step on a stream of its own until libraries are loaded and kernels compiled, then record it."""
        device = self.inputs.device
        side, mode = torch.cuda.Stream(device), torch.cuda.get_sync_debug_mode()
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch calls the mode below a prototype each time
            try:
                for forbidden in (mode, mode, "error"):  # the last one fails where a step waits for the GPU
                    torch.cuda.set_sync_debug_mode(forbidden)
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
