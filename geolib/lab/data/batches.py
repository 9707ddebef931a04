"""The batches of an epoch: images in a new order, augmented some batches ahead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

AHEAD_IMAGES = 8192  # augmented at a time on a GPU, where few large pieces of work are faster than many small ones


class Stream:
    """A stream of random numbers on the default generators, beside what they give to everybody else.

    ``marked`` are the generators' states when the present block of batches was begun.
    """

    def __init__(self, device: torch.device):
        self.devices = [device] if device.type == "cuda" else []
        self.states = self.marked = self._read()

    def seed(self, number: int) -> None:
        """Begin anew."""
        with torch.random.fork_rng(self.devices):
            torch.manual_seed(number)
            self.states = self.marked = self._read()

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Inside, the default generators go on where this stream stopped."""
        self.marked = self.states
        with torch.random.fork_rng(self.devices):
            self.resume(self.states)
            yield
            self.states = self._read()

    def resume(self, states: list[Tensor]) -> None:
        """Set the default generators to states as ``marked`` holds them."""
        torch.set_rng_state(states[0])
        for device, state in zip(self.devices, states[1:]):
            torch.cuda.set_rng_state(state, device)

    def _read(self) -> list[Tensor]:
        return [torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in self.devices)]


def batches_ahead(size: int, device: torch.device) -> int:
    """How many batches of so many images are augmented at a time on a device; one on a processor."""
    return max(1, AHEAD_IMAGES // size) if device.type == "cuda" else 1


def augmented(
    images: Tensor,
    labels: Tensor,
    order: Tensor,
    size: int,
    ahead: int,
    first: int,
    stream: Stream,
    augment: Callable[[Tensor], Tensor],
) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of augmented images and their labels, taken in an order, ``size`` images each; the last may be smaller.

    ``ahead`` batches, a block, are augmented at a time, with what the stream draws. It begins with batch ``first``,
    whose whole block is drawn again, so the stream must stand where that block began.
    """
    batches = order.split(size)
    for start in range(first - first % ahead, len(batches), ahead):
        rows = order[start * size : (start + ahead) * size]
        with stream.drawing():
            block = augment(images[rows]).split(size)
        for number in range(max(start, first), start + len(block)):
            yield block[number - start], labels[batches[number]]
