"""Checks of arguments: a ValueError that names the argument, what came and what is allowed."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from geolib._package import refuse_a_mixture

refuse_a_mixture()


def require(holds: bool, argument: str, came: Any, allowed: str | Callable[[], str]) -> None:
    """Raise ValueError("argument: got came; allowed") unless the condition holds.

    Sizes come as a tensor's shape, or in a function that puts them into words: a size that is formatted becomes a
    constant of a compiled graph, so that every other number of tokens would have to be compiled again.

    >>> require(False, "x", torch.zeros(2, 3).shape, lambda: "it must be (tokens,)")
    Traceback (most recent call last):
    ValueError: x: got shape (2, 3); it must be (tokens,)
    """
    if not holds:
        came, allowed = (said() if callable(said) else said for said in (came, allowed))
        came = f"shape {tuple(came)}" if isinstance(came, torch.Size) else came
        raise ValueError(f"{argument}: got {came}; {allowed}")


def check_even(value: int, argument: str) -> None:
    """A dimension that splits into pairs."""
    require(value > 0 and value % 2 == 0, argument, value, "it must be a positive even number: features come in pairs")


def check_positive(value: float, argument: str) -> None:
    """A finite number above zero."""
    require(math.isfinite(value) and value > 0, argument, value, "it must be a finite number above 0")


def check_tensor(x: Any, argument: str) -> None:
    """A tensor, not a list or an array of numbers."""
    require(isinstance(x, Tensor), argument, type(x).__name__, "it must be a tensor")


def check_floating(x: Any, argument: str) -> None:
    """A tensor of real floating-point numbers: whole numbers would truncate what is computed from them."""
    check_tensor(x, argument)
    require(x.is_floating_point(), argument, x.dtype, "it must be floating point: call .float() or .double() on it")


def check_no_mask(x: Tensor | None, argument: str, meant: str) -> None:
    """ValueError where a mask, or whole numbers, stand in the place of something else, for which they would do.

    >>> check_no_mask(torch.ones(3, 3, dtype=torch.bool), "log_gate", "it is added to the scores")
    Traceback (most recent call last):
    ValueError: log_gate: got torch.bool; it is added to the scores, in floating point; a mask is handed over by name
    """
    holds = x is None or (isinstance(x, Tensor) and x.is_floating_point())
    came = getattr(x, "dtype", type(x).__name__)
    require(holds, argument, came, f"{meant}, in floating point; a mask is handed over by name")


def as_floating(x: Any, argument: str) -> Tensor:
    """A tensor of real numbers: whole numbers in the default float dtype, anything else as it came.

    >>> as_floating(torch.tensor([1, 2]), "v")
    tensor([1., 2.])
    """
    check_tensor(x, argument)
    require(not x.is_complex(), argument, x.dtype, "it must hold real numbers")
    return x if x.is_floating_point() else x.to(torch.get_default_dtype())


def check_last(x: Tensor, size: int, argument: str) -> None:
    """A tensor whose last dimension has the given size."""
    check_tensor(x, argument)
    require(x.dim() >= 1 and x.shape[-1] == size, argument, x.shape, f"its last dimension must be {size}")


def check_positions(positions: Tensor, axes: int) -> None:
    """Positions as (tokens, axes)."""
    check_tensor(positions, "positions")
    holds = positions.dim() == 2 and positions.shape[1] == axes
    require(holds, "positions", positions.shape, f"it must be (tokens, axes) with axes = {axes}")


def as_places(positions: Tensor, keys: Tensor | None, axes: int | None = None) -> tuple[Tensor, Tensor | None]:
    """Positions that are placed and those of keys that stand elsewhere, (tokens, axes) or (batch, tokens, axes).

    One axis may come as a vector, (tokens,).

    >>> as_places(torch.arange(3.0), None)[0].shape
    torch.Size([3, 1])
    """
    positions = _column(positions, "positions", axes)
    axes = positions.shape[-1] if axes is None and positions.dim() else axes
    keys = None if keys is None else _column(keys, "keys", axes)
    for argument, x in (("positions", positions), ("keys", keys)):
        if x is not None:
            holds = x.dim() in (2, 3) and x.shape[-1] == axes
            allowed = f"it must be (tokens, axes) or (batch, tokens, axes) with axes = {axes}"
            hint = f"; for one axis and positions of each sample write {argument}[..., None]" if axes == 1 else ""
            require(holds, argument, x.shape, allowed + hint)
            if not torch.compiler.is_compiling():
                _look_at(x, argument)
    return positions, keys


def readable(x: Tensor) -> bool:
    """Whether the numbers of x may be read at no one's cost: on a CPU, outside graphs, traces and batches of calls.

    >>> readable(torch.zeros(1)), readable(torch.zeros(1, device="meta"))
    (True, False)
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return False
    return type(x) in (Tensor, torch.nn.Parameter) and x.device.type == "cpu" and not is_transformed(x)


def is_transformed(x: Tensor) -> bool:
    """Whether x stands for another tensor inside vmap, grad or jvp, or carries a tangent.

    >>> torch.vmap(lambda x: x + is_transformed(x))(torch.zeros(2))
    tensor([1., 1.])
    """
    if torch.compiler.is_compiling():
        return False
    return torch._C._functorch.is_functorch_wrapped_tensor(x) or forward_ad.unpack_dual(x).tangent is not None


def _look_at(positions: Tensor, argument: str) -> None:
    """ValueError for positions that are no numbers; a warning for a dtype in which neighbours become one."""
    real = positions.dtype != torch.bool and not positions.is_complex()
    require(real, argument, positions.dtype, "positions are real numbers")
    if not positions.is_floating_point():
        return
    read = readable(positions) and positions.numel() > 0
    if read:
        require(bool(positions.isfinite().all()), argument, "inf or NaN", "positions must be finite")
    if torch.finfo(positions.dtype).bits < 32:
        whole = round(2 / torch.finfo(positions.dtype).eps)
        far = positions.shape[-1] == 1 and positions.shape[-2] > whole + 1
        if far or (read and float(positions.abs().max()) > whole):
            kind = str(positions.dtype).removeprefix("torch.")
            text = (
                f"{argument} in {kind} go beyond {whole}, from where on whole numbers are rounded: hand over integers"
            )
            warnings.warn(text, stacklevel=4)


def _column(x: Any, argument: str, axes: int | None) -> Tensor:
    """A vector of positions along the only axis as a column; anything else as it came."""
    check_tensor(x, argument)
    return x[:, None] if x.dim() == 1 and axes in (None, 1) else x


def angle_dtype(*tensors: Tensor | None) -> torch.dtype:
    """float64 when any tensor is float64, float32 otherwise: the precision of angles, exponentials and logarithms."""
    return torch.float64 if any(t is not None and t.dtype == torch.float64 for t in tensors) else torch.float32


def as_widest(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors in the widest of their dtypes, so that no digit of any is lost on the way.

    >>> a, b = as_widest(torch.ones(1), torch.ones(1, dtype=torch.float64))
    >>> a.dtype, b.dtype
    (torch.float64, torch.float64)
    """
    dtype = reduce(torch.promote_types, (t.dtype for t in tensors))
    return tuple(t.to(dtype) for t in tensors)


def check_square(A: Tensor, argument: str) -> None:
    """Square matrices on the last two dimensions."""
    require(A.dim() >= 2 and A.shape[-1] == A.shape[-2], argument, A.shape, "it must be (..., n, n)")


def check_skew(A: Tensor, argument: str) -> None:
    """Finite skew matrices, up to rounding; on a GPU and inside a graph the shape alone is looked at."""
    check_square(A, argument)
    if not readable(A):
        return
    with torch.no_grad():
        size, defect = (float(x.abs().max()) if x.numel() else 0.0 for x in (A, A + A.mT))
    require(math.isfinite(size), argument, "entries that are not finite", "all entries must be finite")
    require(defect <= 1e-5 * size, argument, f"|A + A^T| up to {defect:.3g}", "it must be skew: A^T = -A")


def check_finite(x: Tensor, argument: str) -> None:
    """Numbers that are all finite."""
    require(bool(x.isfinite().all()), argument, "numbers that are not finite", "all must be finite")
