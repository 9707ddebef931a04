"""One step of training in two forms with one interface: eager, and captured as a CUDA graph.

A step is called with a batch's images and labels and returns the loss, which stays on the device. It computes the loss
and its gradient and lets the optimiser move the weights, whose learning rate was set before.

A small model's step is a few hundred short kernels, and launching them from Python takes longer than running them. A
CUDA graph launches them all at once; ``torch.compile`` makes fewer and longer ones of them. It may time several forms
of a kernel and keep the fastest, so a compiled run repeats to the last digit where the compiler's cache is the same.
"""

from __future__ import annotations

import gc
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from geolib.attention import Encoding

WARM_UPS = 3  # steps before a capture: libraries load, buffers are made, PyTorch compiles
COMPILE_STEPS = 20_000  # compiling takes up to a minute and saves a millisecond or two a step: longer runs gain by it

Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]


class EagerStep:
    """The step as one writes it down, kernel by kernel.

    ``form`` says how full batches are computed: "eager"; of ``CapturedStep`` also "captured" and "compiled and
    captured". ``why`` is the reason where a faster form was tried or is not possible; ``preparing_seconds`` is what
    compiling and recording took.
    """

    form, why, preparing_seconds = "eager", "", 0.0

    def __init__(self, model: nn.Module, loss: Loss, optimizer: torch.optim.Optimizer):
        self.model, self.loss, self.optimizer = model, loss, optimizer

    def __call__(self, images: Tensor, labels: Tensor) -> Tensor:
        """One step; the loss, ()."""
        loss = repeatably(lambda: self.backward(images, labels))
        self.optimizer.step()
        return loss

    def backward(self, images: Tensor, labels: Tensor) -> Tensor:
        """The loss, (), detached; its gradient is left in the parameters."""
        self.optimizer.zero_grad()
        loss = self.loss(self.model, images, labels)
        loss.backward()
        return loss.detach()


class _Narrowed(torch.autograd.Function):
    """Weights in bfloat16, all at once; their gradients come back in float32, all at once."""

    @staticmethod
    def forward(ctx: Any, *wide: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        return tuple(_copied(wide, torch.bfloat16))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        there = iter(_copied([grad for grad in grads if grad is not None], torch.float32))
        return tuple(None if grad is None else next(there) for grad in grads)


def _copied(tensors: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Copies in another dtype, by one kernel."""
    copies = [torch.empty_like(t, dtype=dtype) for t in tensors]
    if copies:
        torch._foreach_copy_(copies, list(tensors))
    return copies


def with_narrow_weights(model: nn.Module, inputs: Tensor) -> Tensor:
    """The model's output inside autocast to bfloat16, to the last digit; its linear maps' weights narrowed at once.

    Autocast narrows each weight by a kernel of its own, and widens each gradient by another: a fifth of a small model's
    kernels. What belongs to an encoding is left to it, for it may compute outside autocast.
    """
    left = {id(part) for one in model.modules() if isinstance(one, Encoding) for part in one.modules()}
    linear = [(n, one) for n, one in model.named_modules() if isinstance(one, nn.Linear) and id(one) not in left]
    weights = {f"{name}.{key}": weight for name, one in linear for key, weight in one.named_parameters()}
    return torch.func.functional_call(model, dict(zip(weights, _Narrowed.apply(*weights.values()))), (inputs,))


def repeatably(work: Callable[[], Tensor]) -> Tensor:
    """Do the work with repeatable algorithms alone; from the first one that has no such form on, with what there is.

    Asking for warnings from the beginning would not do: attention's backward pass then takes the form that adds in any
    order, although it has another.
    """
    try:
        return work()
    except RuntimeError as error:
        strict = (
            torch.are_deterministic_algorithms_enabled() and not torch.is_deterministic_algorithms_warn_only_enabled()
        )
        if not strict or "deterministic" not in str(error):
            raise
    torch.use_deterministic_algorithms(True, warn_only=True)
    return work()


class CapturedStep:
    """The step recorded once as a CUDA graph and replayed; batches of another size are taken eagerly.

    The recording is made at the first full batch, of ``size`` images. What cannot be recorded (a model that reads
    numbers back from the GPU) or compiled (no compiler for C on the machine) is found out there: the step then takes
    the next slower form and keeps the reason. No method of the registry is such a model. Where memory does not hold a
    smaller batch beside the recording, the recording is given up. The optimiser is ``capturable``, with its learning
    rate in a tensor on the device.
    """

    def __init__(self, model: nn.Module, loss: Loss, optimizer: torch.optim.Optimizer, size: int, compiles: bool):
        self.eagerly = EagerStep(model, loss, optimizer)
        self.size, self.compiles = size, compiles
        self.form, self.why, self.preparing_seconds = "eager", "no batch was full", 0.0
        self.full: Callable[[Tensor, Tensor], Tensor] | None = None

    def __call__(self, images: Tensor, labels: Tensor) -> Tensor:
        """One step; the loss, (), valid until the next step."""
        if len(labels) != self.size:
            return self.beside(images, labels)
        if self.full is None:
            before = time.monotonic()
            self.full = self.prepare(images, labels)
            self.preparing_seconds = time.monotonic() - before
        return self.full(images, labels)

    def beside(self, images: Tensor, labels: Tensor) -> Tensor:
        """The step on a batch that is not full, eagerly; without the recording where memory does not hold both."""
        recorded = self.full is not None and self.full is not self.eagerly
        try:
            return self.eagerly(images, labels)
        except (RuntimeError, MemoryError) as error:
            if not recorded or not is_out_of_memory(error):
                raise
            self.why = "; ".join(filter(None, [self.why, f"not {self.form} to the end: {_first_line(error)}"]))
        self.full, self.form = self.eagerly, "eager"  # after the error, whose frames hold what was computed
        give_back()
        return self.eagerly(images, labels)

    def prepare(self, images: Tensor, labels: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
        """The fastest form that works here."""
        model, loss, optimizer = self.eagerly.model, self.eagerly.loss, self.eagerly.optimizer
        reasons: list[str] = []
        for form in ("compiled and captured", "captured")[0 if self.compiles else 1 :]:
            try:
                fast = compiled(model) if form.startswith("compiled") else model
                with put_back(model, optimizer):
                    replay = Replay(EagerStep(fast, loss, optimizer), images, labels)  # type: ignore[arg-type]
                self.form, self.why = form, "; ".join(reasons)
                return replay
            except Exception as error:  # whatever it is, a slower form gives the same step
                reasons.append(f"not {form}: {_first_line(error)}")
            give_back()
        self.form, self.why = "eager", "; ".join(reasons)
        return self.eagerly


MODELS = 256  # that one process may compile; PyTorch gives up after eight


def compiled(model: nn.Module) -> nn.Module:
    """The model, compiled once in a process for all seeds of its method and shape, and once on a machine with a cache.

    What was compiled stays with the model's code, and another model of the same shape uses it. The compiler's files are
    kept below $XDG_CACHE_HOME for later processes, unless $TORCHINDUCTOR_CACHE_DIR names another place. A graph that
    breaks is an error, and noted, where it would be slow and say nothing.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "geolib" / "compiled"
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache))
    settings: Any = torch._dynamo.config
    settings.recompile_limit = max(settings.recompile_limit, MODELS)
    settings.accumulated_recompile_limit = max(settings.accumulated_recompile_limit, MODELS)
    return torch.compile(model, dynamic=False, fullgraph=True)  # type: ignore[return-value]


class Replay:
    """A recorded step: each call copies a batch to where the recording reads it and launches the whole graph.

    The step is taken a few times before the recording, on a full batch: ``put_back`` undoes that.
    """

    def __init__(self, step: EagerStep, images: Tensor, labels: Tensor):
        self.images, self.labels = images.clone(), labels.clone()
        warm_up(lambda: step(self.images, self.labels), images.device)
        step.optimizer.zero_grad()  # the gradients of the recording live in the graph's own memory
        self.graph, self.loss = record(lambda: step(self.images, self.labels))

    def __call__(self, images: Tensor, labels: Tensor) -> Tensor:
        """One step; the loss, (), valid until the next one."""
        self.images.copy_(images)
        self.labels.copy_(labels)
        self.graph.replay()
        return self.loss


def record(work: Callable[[], Tensor]) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    """A CUDA graph of some work, which is not done now, and the tensor where each replay leaves its result."""
    gc.collect()  # the recordings of earlier runs hold memory, and may wait in a cycle
    graph = torch.cuda.CUDAGraph()
    with unharmed(), torch.cuda.graph(graph):
        result = work()
    return graph, result


@contextmanager
def unharmed() -> Iterator[None]:
    """Inside, a recording may fail; after it, PyTorch works on as if it had not been tried.

    A recording that broke off leaves its stream as the current one, and the random generator refuses to be used outside
    a recording: both are put back.
    """
    stream = torch.cuda.current_stream()
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    numbers = generator.get_state()
    try:
        yield
    except BaseException:
        torch.cuda.set_stream(stream)
        fresh = torch.Generator(generator.device)
        fresh.set_state(numbers)
        generator.graphsafe_set_state(fresh)
        torch.cuda.synchronize()
        raise


def warm_up(work: Callable[[], object], device: torch.device) -> None:
    """Do the work a few times beside the current stream, the last time with waiting for the GPU forbidden.

    RuntimeError when the work reads numbers back from the GPU: a recording could not repeat that.
    """
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    try:
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS - 1):
                work()
            with waiting_forbidden():
                work()
    finally:  # also after an error: what was begun still moves the weights, and they are put back next
        torch.cuda.current_stream(device).wait_stream(side)


@contextmanager
def waiting_forbidden() -> Iterator[None]:
    """Inside, a call that makes the host wait for the GPU is a RuntimeError."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch calls this mode a prototype each time
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(before)


def give_back() -> None:
    """What nobody uses any more goes back to the GPU, for work that needs pieces of another size."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory was lacking, on a GPU or on the host, where PyTorch has no error of its own for it."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    words = ("not enough memory", "can't allocate memory", "Cannot allocate memory", "out of memory")
    return isinstance(error, RuntimeError) and any(word in str(error) for word in words)


@contextmanager
def put_back(model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Inside, steps may be tried; after it, weights, moments and generators are as before, at the same addresses."""
    weights = {key: value.detach().clone() for key, value in model.state_dict().items()}
    moments = {p: {key: value.clone() for key, value in state.items()} for p, state in optimizer.state.items()}
    devices = sorted({p.device.index or 0 for p in model.parameters() if p.device.type == "cuda"})
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        with torch.no_grad():
            for key, value in model.state_dict().items():
                value.copy_(weights[key])
            for p, state in optimizer.state.items():
                for key, value in state.items():
                    value.copy_(moments[p][key]) if p in moments else value.zero_()  # AdamW's state begins at zero
        optimizer.zero_grad()


def _first_line(error: Exception) -> str:
    """What an error says, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:200]
