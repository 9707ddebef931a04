"""Processes that train one model together, as ``torchrun`` starts them; alone, everything here does nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

Thing = TypeVar("Thing")


@dataclass(frozen=True)
class World:
    """The processes of a run, as one of them sees it.

    Parameters
    ----------
    rank, size : int
        This process' number, from 0, and how many there are.
    local : int
        Its number on its machine, which is that of its GPU.
    talk : process group or None
        For small things that stay on the host, so that no GPU waits for them.
    """

    rank: int = 0
    size: int = 1
    local: int = 0
    talk: Any = None

    @property
    def first(self) -> bool:
        """Whether this process writes, prints and looks at the clock for all."""
        return self.rank == 0

    def part(self, count: int) -> slice:
        """The part of a batch that is this process' own; parts differ by at most one image and may be empty."""
        return slice(self.rank * count // self.size, (self.rank + 1) * count // self.size)

    def add(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over all processes, in one exchange."""
        if self.size == 1:
            return
        flat = torch.cat([t.flatten() for t in tensors])
        dist.all_reduce(flat)
        for t, total in zip(tensors, flat.split([t.numel() for t in tensors])):
            t.copy_(total.view_as(t))

    def same(self, thing: Thing) -> Thing:
        """What the first process holds."""
        if self.size == 1:
            return thing
        box = [thing]
        dist.broadcast_object_list(box, src=0, group=self.talk)
        return box[0]

    def all(self, thing: Thing) -> list[Thing]:
        """What each process holds, by rank."""
        things: list[Any] = [thing] * self.size
        if self.size > 1:
            dist.all_gather_object(things, thing, group=self.talk)
        return things

    def agree(self, verdict: Thing | None) -> Thing | None:
        """The verdict of the lowest-numbered process that has one, or None."""
        if self.size == 1:
            return verdict
        some = torch.tensor([verdict is not None], dtype=torch.int32)
        dist.all_reduce(some, dist.ReduceOp.MAX, group=self.talk)
        if not some.item():
            return None
        return next(v for v in self.all(verdict) if v is not None)


@contextmanager
def joined(device_kind: str) -> Iterator[World]:
    """The world that torchrun's environment describes, joined for the duration unless it is already.

    Parameters
    ----------
    device_kind : str
        "cuda" or "cpu": what the gradients are exchanged on.
    """
    size = count()
    if size == 1:
        yield World()
        return
    mine = not dist.is_initialized()
    if mine:
        dist.init_process_group("nccl" if device_kind == "cuda" else "gloo")
    try:
        yield World(dist.get_rank(), size, local_rank(), _host_group())
    finally:
        if mine:
            dist.destroy_process_group()
            _groups.clear()


_groups: list[Any] = []  # the group for the host, made once


def _host_group() -> Any:
    if not _groups:
        _groups.append(dist.new_group(backend="gloo"))
    return _groups[0]


def count() -> int:
    """How many processes torchrun has started, on all machines; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", 1))


def number() -> int:
    """This process' number among them, 0 when it is alone."""
    return int(os.environ.get("RANK", 0))


def local_rank() -> int:
    """The process' number on its machine, 0 when it is alone."""
    return int(os.environ.get("LOCAL_RANK", 0))
