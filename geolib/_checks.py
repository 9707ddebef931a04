"""Checks of arguments: a ValueError that names the argument, what came and what is allowed."""

import math
import warnings
from collections.abc import Callable
from functools import reduce
from numbers import Integral
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
    holds = not isinstance(value, float) and value > 0 and value % 2 == 0
    require(holds, argument, value, "it must be a positive even number: features come in pairs")


def check_whole(came: Any, argument: str) -> None:
    """A whole number, as a constructor is given it."""
    require(isinstance(came, Integral) and not isinstance(came, bool), argument, came, "it must be a whole number")


def check_heads(heads: Any, width: Any = None) -> None:
    """A whole number of heads that divides the width, where there is one."""
    check_whole(heads, "heads")
    if width is not None:
        check_whole(width, "width")
        require(heads > 0 and width % heads == 0, "heads", heads, f"it must divide the width {width}")


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
    """ValueError where a mask, or whole numbers, stand in the place of something else, for which they would do."""
    holds = x is None or (isinstance(x, Tensor) and x.is_floating_point())
    came = getattr(x, "dtype", type(x).__name__)
    require(holds, argument, came, f"{meant}, in floating point; a mask is handed over by name")


def as_floating(x: Any, argument: str) -> Tensor:
    """A tensor of real numbers: whole numbers in the default float dtype, anything else as it came."""
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


def readable(x: Tensor) -> bool:
    """Whether the numbers of x may be read at no one's cost: on a CPU, outside graphs, traces and batches of calls."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return False
    return type(x) in (Tensor, torch.nn.Parameter) and x.device.type == "cpu" and not is_transformed(x)


def is_transformed(x: Tensor) -> bool:
    """Whether x stands for another tensor inside vmap, grad or jvp, or carries a tangent."""
    if torch.compiler.is_compiling():
        return False
    return torch._C._functorch.is_functorch_wrapped_tensor(x) or forward_ad.unpack_dual(x).tangent is not None


def warn_of_rounding(x: Tensor, argument: str) -> None:
    """Positions in a dtype that does not have all whole numbers up to them, or fractions in one of few digits."""
    whole, kind = round(2 / torch.finfo(x.dtype).eps), str(x.dtype).removeprefix("torch.")
    far, read = x.shape[-1] == 1 and x.shape[-2] > whole + 1, readable(x) and x.numel() > 0
    if far or (read and float(x.abs().max()) > whole):
        text = f"{argument} in {kind} go beyond {whole}, from where on whole numbers are rounded: hand over integers"
        warnings.warn(text, stacklevel=4)
    elif read and torch.finfo(x.dtype).bits < 32 and bool((x != x.round()).any()):
        text = f"{argument} in {kind} are fractions of few digits, rounded by up to a {whole}th: hand over float32"
        warnings.warn(text, stacklevel=4)


def angle_dtype(*tensors: Tensor | None) -> torch.dtype:
    """float64 when any tensor is float64, float32 otherwise: the precision of angles, exponentials and logarithms."""
    return torch.float64 if any(t is not None and t.dtype == torch.float64 for t in tensors) else torch.float32


def wide(x: Tensor) -> Tensor:
    """x in float64, or in float32 where its device has none, as Apple's MPS."""
    try:
        return x.double()
    except (TypeError, RuntimeError):
        return x.float()


def as_widest(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors in the widest of their dtypes, so that no digit of any is lost on the way."""
    dtype = reduce(torch.promote_types, (t.dtype for t in tensors))
    return tuple(t.to(dtype) for t in tensors)


def check_square(A: Tensor, argument: str) -> None:
    """Square matrices on the last two dimensions."""
    require(A.dim() >= 2 and A.shape[-1] == A.shape[-2], argument, A.shape, "it must be (..., n, n)")


def check_matrices(A: Any, argument: str) -> None:
    """Square matrices of real floating-point numbers."""
    check_floating(A, argument)
    check_square(A, argument)


def check_skew(A: Tensor, argument: str) -> None:
    """Finite skew matrices, up to rounding; where numbers may not be read, the shape alone is looked at."""
    check_square(A, argument)
    if not readable(A):
        return
    if not A.numel():
        return
    with torch.no_grad():
        size, defect = (x.abs().amax((-1, -2)) for x in (A, A + A.mT))  # of each matrix
    require(bool(size.isfinite().all()), argument, "entries that are not finite", "all entries must be finite")
    skew = bool((defect <= 1e-5 * size).all())
    require(skew, argument, lambda: f"|A + A^T| up to {float(defect.max()):.3g}", "it must be skew: A^T = -A")


def check_finite(x: Tensor, argument: str) -> None:
    """Numbers that are all finite."""
    require(bool(x.isfinite().all()), argument, "numbers that are not finite", "all must be finite")


# What layers are given ------------------------------------------------------------------------------------------------

_HEADS = "(batch, heads, tokens, head_dim)"
_IN_FRONT = 16  # tokens that a message takes for a CLS token and registers


def check_input(x: Tensor | None, q: Tensor, k: Tensor) -> None:
    """The layer's input has a row for each key, and no mask stands in its place."""
    check_no_mask(x, "x", "the layer's input is (batch, tokens, width)")
    if x is not None:
        samples, tokens = q.shape[0] if q.dim() == 4 else 1, k.shape[-2]
        holds = x.dim() == 3 and x.shape[1] == tokens and (q.dim() < 4 or x.shape[0] == samples)
        meant = "the layer's input is (batch, tokens, width), here"
        require(holds, "x", x.shape, lambda: f"{meant} ({samples}, {tokens}, width); a mask is handed over by name")


def check_count(rows: int, tokens: int, unplaced: int) -> None:
    """A position for each token but those in front that are said to have none.

    >>> check_count(196, 197, 0)
    Traceback (most recent call last):
    ValueError: positions: got 196 rows; there are 197 tokens, and each needs a place: where the first 1 have none, ...
    """
    if rows + unplaced == tokens:
        return
    if unplaced:
        allowed = f"there are {tokens} tokens, the first {unplaced} without a place"
    elif rows < tokens:
        allowed = f"there are {tokens} tokens, and each needs a place: "
        if tokens - rows <= _IN_FRONT:
            allowed += f"where the first {tokens - rows} have none, placed.with_prefix_tokens({tokens - rows}); "
        else:
            allowed += "positions are (tokens, axes), those of each sample (batch, tokens, axes); "
        allowed += f"queries and keys are {_HEADS}"
    else:
        allowed = f"there are {tokens} tokens, so at most {tokens}; queries and keys are {_HEADS}"
    require(False, "positions", f"{rows} rows", allowed)


def check_width(x: Tensor, width: int) -> None:
    """A layer's input of real numbers and of as many features as the layer was made for."""
    check_floating(x, "x")
    require(x.shape[-1] == width, "x", lambda: f"{x.shape[-1]} features", f"the layer was made for the width {width}")


def check_scale(scale: float | None) -> None:
    """What multiplies scores: 0 would make all keys alike, a negative number would turn their order around."""
    if isinstance(scale, (int, float)) and not 0 < scale < math.inf:
        check_positive(scale, "scale")


def input_of(x: Tensor | None, rows: int, unplaced: int, width: int | None = None) -> Tensor:
    """The rows of the placed keys in x (batch, tokens, width), the layer's input; ValueError for another x.

    >>> input_of(torch.zeros(1, 5, 8), 4, 1, width=8).shape
    torch.Size([1, 4, 8])
    """
    needed = "the gates are made of the layer's input, (batch, tokens, width): placed.attention(q, k, v, x)"
    if not isinstance(x, Tensor) or x.dim() != 3:
        came = f"shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"x: got {came}; {needed}")
    if width is not None:
        check_width(x, width)
    check_count(rows, x.shape[1], unplaced)
    return x[:, unplaced:]
