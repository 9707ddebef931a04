"""Laws of what is done to a module as a whole: graphs, copies, checkpoints, several processes, derivatives."""

from __future__ import annotations

import copy
import os
import pickle
import socket
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from geolib.conform.core import Broken, CannotTry, NotApplicable, Target, drawn, law, near
from geolib.conform.sequences import inputs

LONGEST = 90  # seconds that two processes have
ANY = ("turn", "grid", "attend", "run", "forms")


class Layer(nn.Module):
    """A layer of attention around a target's module: what it does to queries, keys and values of an input.

    Tokens come in pairs: on a grid they are two rows.
    """

    def __init__(self, target: Target):
        super().__init__()
        self.target, self.inner = target, target.made()
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
        if held.has("turn"):
            q, k = held.turn(module, q, k, there)
        else:
            q, k = (held.grid(module, t, 2, tokens // 2) for t in (q, k))
        return F.scaled_dot_product_attention(q.to(v.dtype), k.to(v.dtype), v).transpose(1, 2).flatten(2)


@torch.enable_grad()
def derived(layer: nn.Module, x: Tensor, way: Callable[[Tensor], Tensor] | None = None) -> list[Tensor]:
    """An output and all its derivatives, by the input and by what is learned."""
    leaf, learned = x.clone().requires_grad_(), [p for p in layer.parameters() if p.requires_grad]
    y = (layer if way is None else way)(leaf)
    found = torch.autograd.grad(y.square().sum(), [leaf, *learned], allow_unused=True)
    return [y, *(g if g is not None else torch.zeros(()) for g in found)]


def same(got: list[Tensor], wanted: list[Tensor], what: str) -> None:
    """Outputs and derivatives agree."""
    for i, (a, b) in enumerate(zip(got, wanted, strict=True)):
        near(a, b, f"{what}, {'the output' if i == 0 else f'derivative {i - 1}'}", 1e-4)


@law("one graph")
def graph(target: Target) -> None:
    """It compiles without a break, and computes the same with the same derivatives."""
    torch._dynamo.reset()
    layer, x = Layer(target), inputs(target, 6, 2)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    same(derived(layer, x, compiled), derived(layer, x), "compiled and not")


@law("dynamic sizes")
def sizes(target: Target) -> str:
    """Compiled, it takes every length without a graph for each."""
    torch._dynamo.reset()
    layer, graphs = Layer(target), []

    def kept(made: torch.fx.GraphModule, _: Any) -> Any:
        graphs.append(made)
        return made

    compiled = torch.compile(layer, backend=kept, fullgraph=True)
    for tokens in (6, 10, 14, 22, 30):
        x = inputs(target, tokens, 2)
        with torch.no_grad():
            near(compiled(x), layer(x), f"{tokens} tokens, compiled and not", 1e-4)
    if len(graphs) > 3:
        raise Broken(f"{len(graphs)} graphs for 5 lengths")
    return f"{len(graphs)} graphs for 5 lengths"


@law("export")
def export(target: Target) -> None:
    """It can be exported, and computes the same."""
    layer = Layer(target).eval()
    exported = torch.export.export(layer, (inputs(target, 6, 2),)).module()
    other = inputs(target, 6, 2, seed=5)
    near(exported(other), layer(other), "exported and not", 1e-4)


@law("checkpointing")
@torch.enable_grad()
def checkpointing(target: Target, reentrant: bool) -> None:
    """With activation checkpointing, of both kinds, output and derivatives stay."""
    layer, x = Layer(target), inputs(target, 6, 2)
    wanted = derived(layer, x)
    leaf = x.clone().requires_grad_()
    y = checkpoint(layer, leaf, use_reentrant=reentrant)
    y.square().sum().backward()
    found = [leaf, *(p for p in layer.parameters() if p.requires_grad)]
    same([y, *(p.grad if p.grad is not None else torch.zeros(()) for p in found)], wanted, "checkpointed and not")


@law("deepcopy and pickle")
def copies(target: Target, way: str) -> None:
    """A copy of a module that was used computes the same, and does not change with it."""
    layer, x = Layer(target), inputs(target, 6, 2)
    if not isinstance(layer.inner, nn.Module):
        raise NotApplicable("it is a function and holds nothing")
    wanted = derived(layer, x)
    other = copy.copy(layer)
    other._modules = dict(layer._modules)
    other.inner = copy.deepcopy(layer.inner) if way == "deepcopy" else pickle.loads(pickle.dumps(layer.inner))
    with torch.no_grad():
        for p in layer.inner.parameters():
            p.add_(1.0)
    same(derived(other, x), wanted, f"{way} and the original")


@contextmanager
def _poisoned() -> Iterator[None]:
    """Memory that nothing was written to holds NaN."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


@law("meta device")
def meta(target: Target) -> None:
    """Made on the meta device and filled from a state dict, it computes what one that was made at once computes."""
    layer, x = Layer(target), inputs(target, 6, 2)
    if not isinstance(layer.inner, nn.Module):
        raise NotApplicable("it is a function and holds nothing")
    with torch.device("meta"):
        empty = target.make()
    with _poisoned():
        empty = empty.to_empty(device="cpu").eval()  # type: ignore[union-attr]
    if target.has("fill"):
        target.fill(empty)
    empty.load_state_dict(layer.inner.state_dict())
    wanted = layer(x)
    layer.inner = empty
    near(layer(x), wanted, "filled later, and made at once", 1e-4)


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


# Two processes --------------------------------------------------------------------------------------------------------


def _worker(rank: int, port: int, target: Target, way: str, answer: Any) -> None:
    """One of two processes: derivatives of the mean over its half of a batch, gathered."""
    warnings.simplefilter("ignore")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    try:
        layer, x = Layer(target), inputs(target, 6, 4)
        learned = [p for p in layer.parameters() if p.requires_grad]
        used = torch.autograd.grad(layer(x).square().sum(), learned, allow_unused=True)
        for p, derivative in zip(learned, used):  # DDP waits for all that is learned
            p.requires_grad_(derivative is not None)
        if way == "DDP":
            held: Any = nn.parallel.DistributedDataParallel(layer)
        else:
            from torch.distributed.fsdp import fully_shard

            held = fully_shard(layer)
        y = held(x[2 * rank : 2 * rank + 2])
        (y.square().sum() / 2).backward()
        grads = [p.grad for p in layer.parameters() if p.requires_grad]
        grads = [g.full_tensor() if hasattr(g, "full_tensor") else g for g in grads]  # type: ignore[union-attr]
        answer.send([t.detach().numpy() if t is not None else None for t in (y, *grads)])
    except Exception as error:  # of any kind: the target's code is not ours
        answer.send(f"{type(error).__name__}: {error}")
    finally:
        dist.destroy_process_group()


@law("DDP")
@law("FSDP2")
@torch.enable_grad()
def processes(target: Target, way: str) -> None:
    """Two processes, each with half of a batch, find the outputs and the derivatives of one."""
    if not (dist.is_available() and dist.is_gloo_available()):
        raise CannotTry("this build of PyTorch has no gloo")
    layer, x = Layer(target), inputs(target, 6, 4)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(["geolib.conform", "torch.distributed.fsdp"])
    pipes = [context.Pipe(duplex=False) for _ in (0, 1)]
    workers = [context.Process(target=_worker, args=(rank, port, target, way, pipes[rank][1])) for rank in (0, 1)]
    found: list[Any] = []
    try:
        for worker, (_, writer) in zip(workers, pipes):
            worker.start()
            writer.close()
        for reader, _ in pipes:
            if not reader.poll(LONGEST):
                raise CannotTry(f"two processes gave no answer in {LONGEST} s")
            found.append(reader.recv())
            if isinstance(found[-1], str):
                raise Broken(found[-1])
    except EOFError:
        raise CannotTry("another process cannot make the target") from None
    finally:
        for worker in workers:
            worker.kill()
    y = layer(x)
    (y.square().sum() / 4).backward()
    near(torch.cat([torch.from_numpy(found[rank][0]) for rank in (0, 1)]), y, "outputs of two processes", 1e-4)
    for i, grad in enumerate(p.grad for p in layer.parameters() if p.grad is not None):
        near(torch.from_numpy(found[0][i + 1]), grad, f"derivative {i} of two processes", 1e-4)
