"""Digits that must not be lost: products in the full precision of their operands, buffers that stay wide."""

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from geolib._checks import angle_dtype, require

Make = TypeVar("Make", bound=Callable[..., Any])


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Inside, operations on the device keep the dtypes of what they are given."""
    # The meta device has no autocast to turn off. (Asking torch what a device has breaks a graph in PyTorch 2.6.)
    return nullcontext() if device.type == "meta" else torch.autocast(device.type, enabled=False)


def full_precision(device: torch.device) -> AbstractContextManager[Any]:
    """Inside, products on the device keep their dtype: no autocast, and no TF32 on a GPU.

    Squaring a matrix k times multiplies a product's rounding error by 2^k, and a guard that stands at float32's epsilon
    is a thousand times too small for TF32's ten bits. Autocast is off in a compiled graph too; the TF32 switch is one
    of the process, which a graph meets as it stands when it runs: what must be exact there is one operator of its own.
    """
    if device.type != "cuda" or torch.compiler.is_compiling():
        return without_autocast(device)  # a generator's context would break a graph in PyTorch 2.6
    return _without_tf32(device)


@contextmanager
def _without_tf32(device: torch.device) -> Iterator[None]:
    """Inside, no autocast on the GPU and no TF32."""
    # From PyTorch 2.9 on the switch has a new name, and reading the old one after the new was set is an error.
    switch = torch.backends.cuda.matmul
    name, strict = ("fp32_precision", "ieee") if hasattr(switch, "fp32_precision") else ("allow_tf32", False)
    before = getattr(switch, name)
    setattr(switch, name, strict)
    try:
        with without_autocast(device):
            yield
    finally:
        setattr(switch, name, before)


def wide_default() -> torch.dtype:
    """The default dtype, or float32 where that is narrower: for constants that models in bfloat16 are built with."""
    return torch.promote_types(torch.get_default_dtype(), torch.float32)


class WideBuffers(nn.Module):
    """A module whose buffers hold angles, frequencies or positions, which never become narrower than float32.

    ``bfloat16()``, ``half()`` and ``to(dtype)`` change the parameters alone: a frequency rounded to bfloat16 would be
    off by radians after some thousand tokens. ``double()`` and moves between devices act on buffers as on parameters.
    Their numbers, which no state dict has, outlast ``to_empty`` and the meta device: see ``numbered``.

    The metadata of a state dict, which ``torch.save`` keeps, say what the module is: its class, its ``settings`` and
    those numbers. A state that says otherwise is not loaded; one that says nothing, as ``dict(state)``, is.
    """

    settings: tuple[str, ...] = ()
    """Attributes that make it what it is beside parameters and buffers."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        before, numbers = dict(self._buffers), self.__dict__.setdefault("_numbers", {})
        super()._apply(fn, recurse)
        for name, x in self._buffers.items():
            wide = before[name]
            if x is None or wide is None:
                continue
            if x.is_meta and not wide.is_meta:
                numbers[name] = wide
            elif wide.is_meta and not x.is_meta:
                wide = self._remembered(name, wide)
            if x.is_floating_point() and x.dtype != angle_dtype(x):
                self._buffers[name] = wide.to(x.device, angle_dtype(x))
            elif type(x) is Tensor and x is not wide and not wide.is_meta:
                x.copy_(wide)  # ``to_empty`` brings no numbers
        return self

    def told(self) -> dict[str, Any]:
        """What it is, beside what a state dict holds."""
        kind = next(each.__name__ for each in type(self).__mro__ if not each.__module__.startswith("torch."))
        known, numbers = {"class": kind, **{name: getattr(self, name) for name in self.settings}}, self.__dict__
        for name in self._non_persistent_buffers_set:
            x = self._buffers[name]
            if x is not None and x.is_meta:
                x = numbers.get("_numbers", {}).get(name, x)
            known[name] = None if x is None else x.detach()
        return known

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if hasattr(destination, "_metadata"):
            destination._metadata.setdefault(prefix[:-1], {})["geolib"] = self.told()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, metadata: Any, *given: Any) -> None:
        said, own = metadata.get("geolib", {}), self.told()
        for name in sorted(said.keys() & own.keys()):
            if told := _difference(said[name], own[name]):
                text = f"{prefix}{name}: got {told[0]} in the state; this one has {told[1]}: make it as it was saved,"
                given[-1].append(f"{text} or load dict(state), which does not say it")
        super()._load_from_state_dict(state_dict, prefix, metadata, *given)
        for name, x in self._buffers.items():
            if metadata.get("assign_to_params_buffers") and x is not None and x.is_meta:
                self._buffers[name] = self._remembered(name, x).to(dtype=x.dtype)

    def _remembered(self, name: str, x: Tensor) -> Tensor:
        """What a buffer on the meta device held before; ValueError where it held nothing and no state dict will."""
        wide = self.__dict__.get("_numbers", {}).get(name, x)
        found = not wide.is_meta or name not in self._non_persistent_buffers_set
        allowed = 'a tensor of the meta device has none: make it, or the encoding, under torch.device("cpu")'
        require(found, name, "a table without numbers", allowed)
        return wide


def _difference(saved: Any, own: Any) -> tuple[str, str] | None:
    """Two settings or tables in words, tables by the entry where they differ most; None where they are the same."""
    tables = isinstance(saved, Tensor) + isinstance(own, Tensor)
    if tables < 2:
        words = ["a table" if isinstance(x, Tensor) else repr(x) for x in (saved, own)]
        return None if tables == 0 and saved == own else (words[0], words[1])
    if saved.is_meta or own.is_meta:
        return None
    saved, own = saved.cpu().double(), own.cpu().double()
    if saved.shape != own.shape:
        return f"a table {tuple(saved.shape)}", f"{tuple(own.shape)}"
    most = (saved - own).abs().flatten().argmax() if saved.numel() else 0
    alike = torch.allclose(saved, own, rtol=1e-5, atol=1e-12)
    return None if alike else (f"{float(saved.flatten()[most]):.6g}", f"{float(own.flatten()[most]):.6g}")


def numbered(make: Make) -> Make:
    """Make an encoding on the CPU where the default device is meta, and move it there: it remembers its tables."""

    @functools.wraps(make)
    def made(*args: Any, **named: Any) -> Any:
        if not torch.empty(0).is_meta:
            return make(*args, **named)
        with torch.device("cpu"):
            encoding = make(*args, **named)
        (args[0] if encoding is None else encoding).to("meta")
        return encoding

    return made  # type: ignore[return-value]
