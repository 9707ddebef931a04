"""Products of matrices with exact sums, as one operator: a compiled graph cannot loosen them either."""

from typing import Any

import torch
from torch import Tensor

from geolib._precision import full_precision


def summed(dtype: torch.dtype) -> torch.dtype:
    """The dtype that products of a dtype add up in."""
    return torch.float32 if dtype == torch.bfloat16 else dtype


@torch.library.custom_op("geolib::product", mutates_args=())
def product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b for stacks of matrices with equal leading dimensions; bfloat16 comes back as the float32 it adds up in."""
    with full_precision(a.device):
        if a.dtype == torch.bfloat16 and a.is_cuda and hasattr(torch.ops.aten.bmm, "dtype"):
            stacked = torch.bmm(a.flatten(0, -3), b.flatten(0, -3), out_dtype=torch.float32)
            return stacked.unflatten(0, a.shape[:-2])
        return (a @ b).to(summed(a.dtype))


@product.register_fake
def _(a: Tensor, b: Tensor) -> Tensor:
    return a.new_empty(*a.shape[:-1], b.shape[-1], dtype=summed(a.dtype))


def _pull(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
    a, b = ctx.saved_tensors
    grad = grad.to(a.dtype)
    by_a = product(grad, b.mT).to(a.dtype) if ctx.needs_input_grad[0] else None
    by_b = product(a.mT, grad).to(b.dtype) if ctx.needs_input_grad[1] else None
    return by_a, by_b


product.register_autograd(_pull, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))


@product.register_vmap
def _(info: Any, places: tuple[int | None, ...], *factors: Tensor) -> tuple[Tensor, int]:
    """What is mapped over joins the leading dimensions of the stacks."""
    a, b = (
        t.expand(info.batch_size, *t.shape) if place is None else t.movedim(place, 0)
        for t, place in zip(factors, places)
    )
    return product(a, b), 0


class _Picked(torch.autograd.Function):
    """Entries of the last dimension, by index.

    The derivative adds up what was picked from one place. Few places are hit by many entries, where adding one by one
    queues up: there it is a product with the matrix of zeros and ones.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, index: Tensor) -> Tensor:
        return x.index_select(-1, index)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])
        ctx.places = inputs[0].shape[-1]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        if ctx.places > 256:
            return grad.new_zeros(*grad.shape[:-1], ctx.places).index_add(-1, index, grad), None
        ones = (index[:, None] == torch.arange(ctx.places, device=index.device)).to(grad.dtype)
        return product(grad.flatten(0, -2)[None], ones[None]).to(grad.dtype).view(*grad.shape[:-1], ctx.places), None


def picked(x: Tensor, index: Tensor) -> Tensor:
    """x[..., index]."""
    return _Picked.apply(x, index)
