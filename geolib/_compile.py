"""What torch.compile must leave alone, what it takes as it is, and what is made again in the backward pass."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

Function = TypeVar("Function", bound=Callable[..., Any])


def uncompiled(function: Function) -> Function:
    """Break torch.compile's graph around a function.

    ``torch.compiler.disable`` used as a decorator loads the compiler, a second's work, when the module is imported;
    here that waits until something is compiled.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return torch.compiler.disable(function)(*args, **kwargs)
        return function(*args, **kwargs)

    return call  # type: ignore[return-value]


@contextmanager
def _untransformed() -> Iterator[None]:
    """Inside, tensors are plain ones: no numbers of a tracer, as in ``torch.export``, none of ``torch.vmap``."""
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes(), temporarily_clear_interpreter_stack(), torch._C.DisableTorchFunction():
        yield


def kept(size: int) -> Callable[[Function], Function]:
    """Keep the last few results of a function of sizes and devices; a compiled graph holds them as constants."""

    def decorate(function: Function) -> Function:
        @functools.lru_cache(maxsize=size)
        def cached(*args: Any) -> Any:
            # A table made in inference must serve training later, and one made on a default device any other.
            with torch.inference_mode(False), torch.device("cpu"), _untransformed():
                return function(*args)

        def constant(*args: Any) -> tuple[Any]:
            return (cached(*args),)  # a tensor alone would stand in the graph under one name for all tables

        # What torch.compiler.assume_constant_result sets; calling that would load the compiler here and now.
        constant._dynamo_marked_constant = True  # type: ignore[attr-defined]

        @functools.wraps(function)
        def call(*args: Any) -> Any:
            return constant(*args)[0]

        call.cache_clear, call.cache_info = cached.cache_clear, cached.cache_info  # type: ignore[attr-defined]
        return call  # type: ignore[return-value]

    return decorate


class Kept:
    """What was made last of some arguments: the first layer of a pass makes it, and those that ask after it share it.

    Tensors are the same where they are one object that no operation of PyTorch wrote to since; what is written through
    ``.data`` or NumPy is not seen. What is made without gradients, or in inference, serves there alone.

    >>> sums, x = Kept(), torch.ones(2)
    >>> first = sums(x.sum, x)
    >>> sums(x.sum, x) is first, sums(x.add_(1).sum, x)
    (True, tensor(4.))
    """

    _held: tuple[Any, ...] = ((), (), None)

    def __call__(self, make: Callable[[], Any], *of: Any) -> Any:
        places = [x.data_ptr() for x in of if type(x) in (Tensor, torch.nn.Parameter)]  # others may have none
        written = [(id(x), 0 if x.is_inference() else x._version) if isinstance(x, Tensor) else x for x in of]
        key = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), *written, *places
        held = self._held  # in one piece: another thread may ask for something else
        if held[0] != key:
            held = self._held = key, of, make()  # what is held has its number to itself
        return held[2]

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and files hold nothing: numbers of objects are true of these alone."""
        return Kept, ()


def keeps(*of: Tensor | None) -> bool:
    """Whether what is made of these may be kept: outside of graphs, traces, modes, captures and transforms."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or transformed() or forward_ad._current_level >= 0:
        return False
    if torch._C._len_torch_dispatch_stack():  # make_fx, FakeTensorMode
        return False
    on_gpu = any(x is not None and x.is_cuda for x in of)
    return not (on_gpu and torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())


is_exporting: Callable[[], bool] = getattr(torch.compiler, "is_exporting", lambda: False)
"""PyTorch 2.6 has no such function; its exports keep the operators of ``exponential``."""


def exported_up_to(tokens: Any) -> Any:
    """How many tokens an exported graph serves at most, where their number varies; None where it is fixed."""
    if not isinstance(tokens, torch.SymInt) or not is_exporting():
        return None
    return tokens.node.shape_env.bound_sympy(tokens.node.expr).upper


def transformed() -> bool:
    """Whether a transform of functions, ``torch.vmap`` or ``torch.func.grad``, is at work."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def recomputed(function: Callable[..., Any], *args: Any) -> Any:
    """function(*args), of which autograd keeps the arguments alone; a compiler decides for itself what to keep."""
    if torch.compiler.is_compiling() or not torch.is_grad_enabled() or transformed():
        return function(*args)
    from torch.utils.checkpoint import checkpoint

    return checkpoint(function, *args, use_reentrant=False, preserve_rng_state=False)
