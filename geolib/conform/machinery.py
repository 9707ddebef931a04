"""Laws of what is done to a module as a whole: graphs, copies, checkpoints, several processes, derivatives."""

import copy
import os
import pickle
import warnings
from collections.abc import Callable
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter
from torch.utils.checkpoint import checkpoint

from geolib.conform.core import Broken, CannotTry, NotApplicable, Target, drawn, law, near
from geolib.conform.rotation import carried
from geolib.conform.sequences import inputs

LONGEST = 90
"""Seconds that two processes have."""


class Layer(nn.Module):
    """A layer of attention around a target's module: what it does to queries, keys and values of an input.

    Tokens come in pairs: on a grid they are two rows.
    """

    def __init__(self, target: Target, inner: Any = None):
        super().__init__()
        self.target, self.inner = target, target.made() if inner is None else inner
        width = target.heads * target.head_dim
        torch.manual_seed(1)
        self.mix = nn.Linear(width, 3 * width)

    def forward(self, x: Tensor) -> Tensor:
        """The output for x, (batch, tokens, width)."""
        held, module, tokens = self.target, self.inner, x.shape[1]
        if held.has("run"):
            return held.run(module, self.mix(x)[..., : x.shape[-1]], None, None, None)[0]
        q, k, v = self.mix(x).unflatten(-1, (3, held.heads, held.head_dim)).permute(2, 0, 3, 1, 4)
        there = torch.arange(tokens, dtype=torch.float32)
        there = there if held.axes == 1 else torch.stack([there] * held.axes, -1)
        if held.has("forms"):
            gates = F.logsigmoid(q[..., 0])
            return list(held.forms(module).values())[-1](q, k, v, gates, None)[0].transpose(1, 2).flatten(2)
        if held.has("attend"):
            return held.attend(module, q, k, v, there, None).transpose(1, 2).flatten(2)
        q, k = carried(held, module, q, k, there)
        return F.scaled_dot_product_attention(q.to(v.dtype), k.to(v.dtype), v).transpose(1, 2).flatten(2)


@torch.enable_grad()
def derived(layer: nn.Module, x: Tensor, way: Callable[[Tensor], Tensor] | None = None) -> list[Tensor]:
    """An output and all its derivatives, by the input and by what is learned."""
    layer.zero_grad()
    leaf = x.clone().requires_grad_()
    y = (layer if way is None else way)(leaf)
    y.square().sum().backward()
    found = [leaf, *(p for p in layer.parameters() if p.requires_grad)]
    return [y, *(torch.zeros(()) if p.grad is None else p.grad for p in found)]


def same(got: list[Tensor], wanted: list[Tensor], what: str) -> None:
    """Outputs and derivatives agree."""
    for i, (a, b) in enumerate(zip(got, wanted, strict=True)):
        near(a, b, f"{what}, {'the output' if i == 0 else f'derivative {i - 1}'}", 1e-4)


def filled(target: Target, state: dict[str, Tensor]) -> nn.Module:
    """A module that is made on the meta device, and has NaN where nothing is written to it."""
    with torch.device("meta"):
        made: Any = target.make()
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)  # which fills memory with NaN
    try:
        made = made.to_empty(device="cpu").eval()
    finally:
        torch.use_deterministic_algorithms(before)
    if target.has("fill"):
        target.fill(made)
    made.load_state_dict(state)
    return made


COPIES: dict[str, Callable[[Target, nn.Module], Any]] = {
    "deepcopy": lambda _, module: copy.deepcopy(module),
    "pickle": lambda _, module: pickle.loads(pickle.dumps(module)),
    "meta": lambda target, module: filled(target, module.state_dict()),
}
WAYS: dict[str, Callable[[nn.Module], Any]] = {
    "compile": lambda layer: torch.compile(layer, backend="aot_eager", fullgraph=True),
    "checkpoint": lambda layer: partial(checkpoint, layer, use_reentrant=False),
    "reentrant checkpoint": lambda layer: partial(checkpoint, layer, use_reentrant=True),
}


@law("one graph")
@law("checkpointing")
def ways(target: Target, way: str) -> None:
    """Compiled without a break, or checkpointed in either way, it computes the same with the same derivatives."""
    torch._dynamo.reset()
    layer, x = Layer(target), inputs(target, 6, 2)
    wanted = derived(layer, x)
    same(derived(layer, x, WAYS[way](layer)), wanted, f"with {way} and without")


@law("deepcopy and pickle")
@law("meta device")
def copies(target: Target, way: str) -> None:
    """A copy, or a module made on the meta device and filled, computes the same, and does not change with the first."""
    layer, x = Layer(target), inputs(target, 6, 2)
    if not isinstance(layer.inner, nn.Module):
        raise NotApplicable("it is a function and holds nothing")
    wanted = derived(layer, x)
    other = COPIES[way](target, layer.inner)
    for p in layer.inner.parameters():
        p.add_(1.0)
    same(derived(Layer(target, other), x), wanted, f"{way} and the original")


@law("dynamic sizes")
def sizes(target: Target) -> str:
    """Compiled, it takes every length without a graph for each."""
    torch._dynamo.reset()
    layer, graphs = Layer(target), CompileCounter()
    compiled = torch.compile(layer, backend=graphs, fullgraph=True)
    for tokens in (6, 10, 14, 22, 30):
        x = inputs(target, tokens, 2)
        near(compiled(x), layer(x), f"{tokens} tokens, compiled and not", 1e-4)
    if graphs.frame_count > 3:
        raise Broken(f"{graphs.frame_count} graphs for 5 lengths")
    return f"{graphs.frame_count} graphs for 5 lengths"


@law("export")
def export(target: Target) -> None:
    """It can be exported, and computes the same."""
    layer, other = Layer(target).eval(), inputs(target, 6, 2, seed=5)
    exported = torch.export.export(layer, (inputs(target, 6, 2),)).module()
    near(exported(other), layer(other), "exported and not", 1e-4)


@law("gradients")
@torch.enable_grad()
def gradients(target: Target) -> None:
    """Derivatives are limits of differences, along directions of the input and of what is learned."""
    layer, x, step = Layer(target), inputs(target, 4), 3e-3
    leaves = [x.requires_grad_(), *(p for p in layer.parameters() if p.requires_grad)]
    weights = drawn(*layer(x).shape, seed=9)
    found = torch.autograd.grad((layer(x) * weights).sum(), leaves, allow_unused=True)
    for i, (leaf, grad) in enumerate(zip(leaves, found)):
        way, values = F.normalize(drawn(leaf.numel(), seed=i + 10), dim=0).view_as(leaf), []
        with torch.no_grad():
            for sign in (1, -2):
                leaf += sign * step * way
                values.append((layer(x) * weights).sum(dtype=torch.float64))
            leaf += step * way
        wanted = (values[0] - values[1]) / (2 * step)
        got = torch.zeros(()) if grad is None else (grad * way).sum()
        near(got, wanted, f"derivative {i} and a difference", 1e-2)


def used(target: Target) -> tuple[Layer, Tensor]:
    """A layer and its input; nothing is learned that has no derivative, for DDP waits for all that is learned."""
    layer, x = Layer(target), inputs(target, 6, 4)
    learned = [p for p in layer.parameters() if p.requires_grad]
    for p, found in zip(learned, torch.autograd.grad(layer(x).square().sum(), learned, allow_unused=True)):
        p.requires_grad_(found is not None)
    return layer, x


def work(rank: int, folder: str, target: Target, way: str) -> None:
    """One of two processes: the output for its half of a batch, and derivatives of the mean over processes."""
    from torch.distributed.fsdp import fully_shard

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    layer, x = used(target)
    held: Any = nn.parallel.DistributedDataParallel(layer) if way == "DDP" else fully_shard(layer)
    found = derived(layer, x[2 * rank : 2 * rank + 2], held)
    whole = [t.full_tensor() if hasattr(t, "full_tensor") else t for t in found]
    torch.save([t.detach() for t in whole], f"{folder}/{rank}")
    dist.barrier()
    os._exit(0)  # what gloo does at the end of a process waits for its threads, now and then for ever


@law("DDP")
@law("FSDP2")
@torch.enable_grad()
def processes(target: Target, way: str) -> None:
    """Two processes, each with half of a batch, find the outputs and the derivatives of one."""
    if not (dist.is_available() and dist.is_gloo_available()):
        raise CannotTry("this build of PyTorch has no gloo")
    layer, x = used(target)
    mp.set_forkserver_preload(["geolib.conform", "torch.distributed.fsdp"])
    with TemporaryDirectory() as folder:
        workers = mp.start_processes(work, (folder, target, way), 2, join=False, start_method="forkserver")
        try:
            if not any(workers.join(LONGEST) for _ in range(2)):  # it returns when one process ends
                raise CannotTry(f"two processes gave no answer in {LONGEST} s")
        except mp.ProcessRaisedException as error:
            raise Broken(str(error).strip().splitlines()[-1]) from None
        except mp.ProcessExitedException:
            raise CannotTry("another process cannot make the target") from None
        finally:
            for worker in workers.processes:
                worker.kill()
        found = [torch.load(f"{folder}/{rank}") for rank in (0, 1)]
    halves = [torch.cat(both) for both in list(zip(*found))[:2]]
    same([*halves, *(2 * grad for grad in found[0][2:])], derived(layer, x), "two processes and one")
