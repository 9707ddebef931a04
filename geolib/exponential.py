"""Rotations by exponentials, many at once: of skew matrices, and of generators at all positions.

A token at position p (any number of axes) is turned by R(p) = exp(sum_i p_i A_i), with one generator A_i for each axis;
how generators and their blocks are written is said in ``geolib.lie``, which hands these names on. Exponentials are
computed in float32, or in float64 when an input is float64, whatever autocast or the TF32 switch say.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geolib._checks import (
    angle_dtype,
    check_finite,
    check_floating,
    check_positions,
    check_skew,
    check_square,
    is_transformed,
    readable,
    require,
)
from geolib._compile import is_exporting
from geolib._precision import full_precision
from geolib.rotations import rotation_matrix

# exp ----------------------------------------------------------------------------------------------------------------

# Taylor's degree, and the largest |eigenvalue| at which its relative error stays below half a unit of the last place.
_TAYLOR = {torch.float32: (9, 0.84), torch.float64: (16, 0.81)}
# On a GPU, where reading numbers would wait for the device: as many squarings as serve while |A|_F / sqrt(2), the root
# of the sum of the squared angles, is up to 13,000 rad, where rounding A to float32 alone costs 1e-3 rad.
_FIXED_SQUARINGS = 14


def _size(A: Tensor) -> Tensor:
    """A bound of the largest |eigenvalue| of each matrix, (N,)."""
    # Eigenvalues come in pairs +-i lambda, so lambda_max^2 <= |A|_F^2 / 2.
    return torch.linalg.vector_norm(A.detach(), dim=(-2, -1)) / math.sqrt(2)


def _squarings(A: Tensor) -> int:
    """How many halvings bring all eigenvalues within Taylor's reach; a fixed number where A cannot be read."""
    while not torch.compiler.is_compiling() and torch._C._functorch.is_functorch_wrapped_tensor(A):
        A = torch._C._functorch.get_unwrapped(A)  # inside vmap, grad and jvp: all that it stands for
    if A.numel() == 0 or not readable(A):
        return _FIXED_SQUARINGS if A.numel() else 0
    largest, reach = float(_size(A).max()), _TAYLOR[A.dtype][1]
    return max(0, math.ceil(math.log2(largest / reach))) if reach < largest < math.inf else 0


def _product(X: Tensor, Y: Tensor, beta: float = 0.0, plus: Tensor | None = None) -> Tensor:
    """X Y + beta plus, for matrices (N, b, b), or for matrices above their derivatives, (N, 2b, b).

    [x; dx] [y; dy] = [xy; dx y + x dy].
    """
    b = X.shape[-1]
    if plus is None:
        Z = torch.bmm(X, Y[:, :b])
    elif X.is_cuda:
        Z = torch.baddbmm(plus, X, Y[:, :b], beta=beta)  # a GPU adds for nothing
    else:
        Z = torch.bmm(X, Y[:, :b]).add_(plus, alpha=beta)  # on a CPU small products that add take twice as long
    if X.shape[1] > b:
        Z[:, b:].add_(torch.bmm(X[:, :b], Y[:, b:]))
    return Z


def _taylor(B: Tensor) -> Tensor:
    """exp(B) - I by Taylor's polynomial in Paterson and Stockmeyer's grouping: ``step`` terms at a time."""
    degree = _TAYLOR[B.dtype][0]
    step = math.isqrt(degree)
    powers = [B]
    while len(powers) < step:
        powers.append(_product(powers[-1], B))

    def group(start: int) -> Tensor:
        total = powers[0] * (1 / math.factorial(start + 1))
        for j, power in enumerate(powers[1:], start=2):
            total = total.add_(power, alpha=1 / math.factorial(start + j))
        return total

    total = group(degree - step)
    for start in range(degree - 2 * step, -1, -step):
        total = _product(powers[-1], total, 1, group(start))
    return total


def _expm1(A: Tensor, squarings: int) -> Tensor:
    """exp(A) - I for (N, b, b), by scaling and squaring; NaN where the squarings do not reach.

    For A above a direction D, (N, 2b, b): exp(A) - I above the derivative of exp at A along D.
    """
    E = _taylor(A * 0.5**squarings)
    for _ in range(squarings):
        E = _product(E, E, 2, E)  # exp(2B) - I: carrying E, not I + E, keeps the digits of small rotations
    if readable(A):
        return E
    far = _size(A[:, : A.shape[-1]]) > _TAYLOR[A.dtype][1] * 2**squarings
    return E * torch.where(far, math.nan, 1.0)[:, None, None].to(E.dtype)  # and the gradient, NaN too


def _in_pieces(made: Callable[..., Tensor], A: Tensor, *others: Tensor) -> Tensor:
    """Made of (N, b, b) and the like in pieces that fit a cache, each scaled by its own largest matrix."""
    limit = 2**26 if A.device.type == "cuda" else 2**18  # bytes of the matrices that go through all steps at once
    piece = max(1, limit // (A.element_size() * A.shape[-1] ** 2))
    with full_precision(A.device):
        result = torch.empty_like(A, memory_format=torch.contiguous_format)
        for *few, into in zip(*(t.split(piece) for t in (A, *others, result))):
            into.copy_(made(*few, _squarings(few[0])))
        return result


def _expm1_in_pieces(A: Tensor) -> Tensor:
    """exp(A) - I, (N, b, b)."""
    return _in_pieces(_expm1, A)


def _expm1_backward_in_pieces(A: Tensor, gradient: Tensor) -> Tensor:
    """The gradient in A, from A alone: nothing else is kept."""
    return _in_pieces(_expm1_adjoint, A, gradient)


def _expm1_adjoint(A: Tensor, gradient: Tensor, squarings: int) -> Tensor:
    """The gradient of <gradient, exp(A)> in A, (N, b, b): the derivative of exp at A^T along the gradient."""
    return _expm1(torch.cat([A.mT, gradient], 1), squarings)[:, A.shape[-1] :]


# One operator: a compiled or exported graph holds it whole, and it runs with TF32 and autocast off.
_lean_expm1 = torch.library.custom_op("geolib::expm1", _expm1_in_pieces, mutates_args=())
_lean_expm1_backward = torch.library.custom_op("geolib::expm1_backward", _expm1_backward_in_pieces, mutates_args=())
_lean_expm1.register_fake(lambda A: torch.empty_like(A, memory_format=torch.contiguous_format))
_lean_expm1_backward.register_fake(lambda A, _: torch.empty_like(A, memory_format=torch.contiguous_format))


def _expm1_gradient(ctx: Any, gradient: Tensor) -> Tensor:
    """By the operator, or, where the gradient will be differentiated itself, by what can be."""
    (A,) = ctx.saved_tensors
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        return _expm1_adjoint(A, gradient, _squarings(A))
    return _lean_expm1_backward(A, gradient)


_lean_expm1.register_autograd(_expm1_gradient, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))
OPERATORS: dict[str, Callable[..., Tensor]] = {
    "geolib::expm1": _expm1_in_pieces,
    "geolib::expm1_backward": _expm1_backward_in_pieces,
}
"""The operators that this module adds to PyTorch's, and what each is made of."""


def exp_skew(A: Tensor) -> Tensor:
    """The exponential of skew matrices (..., n, n): rotations, in A's dtype.

    Width 2 is R(a) in closed form, width 3 Rodrigues' formula; wider matrices take scaling, a Taylor polynomial and
    squaring of exp - I. Differentiable any number of times, at repeated eigenvalues too. The rounding error is about
    the largest |eigenvalue| times the dtype's unit: that of rounding A itself. Types narrower than float32 are computed
    in float32. ValueError when A is not square, and on a CPU when it is not skew or not finite.
    Source: LR-A1, LR-B5, NT-1.

    >>> A = torch.randn(8, 8, dtype=torch.float64)
    >>> R = exp_skew(A - A.mT)
    >>> torch.allclose(R.mT @ R, torch.eye(8, dtype=torch.float64)), R.det().round().item()
    (True, 1.0)
    """
    check_floating(A, "A")
    check_skew(A, "A")
    X, n = A.to(angle_dtype(A)), A.shape[-1]
    with full_precision(A.device):
        if n <= 3:
            result = _closed_form(X)
        else:
            flat = X.reshape(-1, n, n)
            result = (_expm1(flat, _squarings(flat)) + torch.eye(n, dtype=X.dtype, device=X.device)).view(A.shape)
    return result.to(A.dtype)


def _closed_form(X: Tensor) -> Tensor:
    """exp of skew (..., n, n), n at most 3.

    At 3 it is I + sin(a)/a X + (1 - cos a)/a^2 X^2, a the length of the axis vector.
    """
    if X.shape[-1] < 3:
        return torch.ones_like(X) if X.shape[-1] == 1 else rotation_matrix(X[..., 1, 0])
    squared = X.square().sum((-1, -2)) / 2
    first, half = (part[..., None, None] for part in sine_quotients(squared))
    return torch.eye(3, dtype=X.dtype, device=X.device) + first * X + half.square() / 2 * (X @ X)


def sine_quotients(squared: Tensor) -> tuple[Tensor, Tensor]:
    """sin(a)/a and sin(a/2)/(a/2) from a^2, in one pass: with cosines, 1 - cos a = a^2/2 times the second's square.

    >>> whole, half = sine_quotients(torch.tensor([0.0, math.pi**2]))
    >>> whole.abs() < 1e-6, half
    (tensor([False,  True]), tensor([1.0000, 0.6366]))
    """
    both = torch.stack([squared, squared / 4])
    # Near zero the quotients come from their series in a^2: the square root has no derivative there.
    near = both < 1e-2
    angle = torch.where(near, torch.ones_like(both), both).sqrt()
    small = torch.where(near, both, torch.zeros_like(both))
    quotient = torch.zeros_like(small)
    for k in range(6, -1, -1):
        quotient = quotient * small + (-1) ** k / math.factorial(2 * k + 1)
    whole, half = torch.where(near, quotient, angle.sin() / angle)
    return whole, half


# Rotations at positions ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rays:
    """Positions as whole multiples of a few: p = k u, and R(ku) = R(u)^k costs one product instead of an exponential.

    ``stages`` are pairs of index vectors: stage by stage, the products of the rotations they point to are appended to
    the rotations at ``primitives``; ``place`` says which one each token takes.

    >>> find_rays(torch.tensor([[1.0], [2.0]])).primitives
    tensor([[1.]])
    """

    primitives: Tensor
    stages: tuple[tuple[Tensor, Tensor], ...]
    place: Tensor


def _whole_multiples(positions: np.ndarray, unit: float) -> tuple[np.ndarray, np.ndarray] | None:
    """(whole numbers, step of each axis) with positions = numbers * step, or None where there is no such step."""
    size = np.where(positions == 0, np.inf, np.abs(positions)).min(0, initial=np.inf)
    for step in (np.ones_like(size), np.where(np.isfinite(size), size, 1.0)):
        ratio = positions / step
        whole = np.rint(ratio)
        # Positions are rounded; beyond a few units in the last place they are not on the ray.
        if np.all(np.abs(ratio - whole) <= 2 * unit * np.abs(ratio)) and np.all(np.abs(whole) < 2**31):
            return whole.astype(np.int64), step
    return None


@torch.inference_mode(False)  # what comes out may serve a pass with gradients later
def find_rays(positions: Tensor) -> Rays:
    """Group positions (tokens, axes) by the rays through the origin on which they lie.

    Only positions on a regular grid through the origin repeat along rays; where grouping would cost more than it saves,
    each token has a ray of its own. ValueError when positions are not (tokens, axes) or not finite.
    Source: LR-A1.

    >>> grid = torch.cartesian_prod(torch.arange(8.0), torch.arange(8.0))
    >>> len(find_rays(grid).primitives)  # 64 cells on 37 rays, and the origin
    38
    """
    require(positions.dim() == 2, "positions", positions.shape, "it must be (tokens, axes)")
    values = positions.detach().to("cpu", angle_dtype(positions)).numpy().astype("float64")
    check_finite(positions.detach(), "positions")
    device, tokens = positions.device, len(values)
    found = _whole_multiples(values, torch.finfo(angle_dtype(positions)).eps) if tokens else None
    if found is None:
        return _alone(positions)
    whole, step = found
    multiple = np.maximum(np.gcd.reduce(whole, axis=1), 1)
    rays, owner = np.unique(whole // multiple[:, None], axis=0, return_inverse=True)
    # Short rays first: pieces of similar size need the same number of squarings.
    order = np.argsort(np.square(rays * step).sum(1), kind="stable")
    rays, owner = rays[order], np.argsort(order)[owner.reshape(-1)]
    longest = np.zeros(len(rays), dtype=np.int64)
    np.maximum.at(longest, owner, multiple)
    if longest.sum() > tokens:
        return _alone(positions)
    slot, stages, reach = {(ray, 1): ray for ray in range(len(rays))}, [], 1
    while reach < longest.max():
        # All powers from reach + 1 to 2 reach in one product: R^k = R^reach R^(k - reach).
        new = [(r, k) for r in range(len(rays)) for k in range(reach + 1, min(2 * reach, longest[r]) + 1)]
        pair = ([slot[r, reach] for r, _ in new], [slot[r, k - reach] for r, k in new])
        stages.append(tuple(torch.tensor(side, device=device) for side in pair))
        slot.update({key: len(slot) + i for i, key in enumerate(new)})
        reach *= 2
    place = torch.tensor([slot[r, k] for r, k in zip(owner.tolist(), multiple.tolist())], device=device)
    primitives = torch.tensor((rays * step).tolist(), dtype=angle_dtype(positions), device=device)
    return Rays(primitives, tuple((left, right) for left, right in stages), place)


def _alone(positions: Tensor) -> Rays:
    """One ray a token."""
    return Rays(positions, (), torch.arange(positions.shape[0], device=positions.device))


def position_rotations(positions: Tensor, generators: Tensor, rays: Rays | None = None) -> Tensor:
    """The rotation of every token under every generator: R(p) = exp(sum_i p_i A_i), in float32 or float64.

    From positions (tokens, axes) and skew generators (..., axes, b, b), those of all layers, heads and blocks in one
    batch, come (tokens, ..., b, b). ``rays`` says how positions repeat; where None it is looked up on a CPU, for
    positions without a gradient. ValueError on a CPU when the generators are not skew, or when they or the positions
    are not finite; elsewhere nothing is read.

    Memory for the backward pass is one matrix a point of a ray and generator, not one for each step of the exponential;
    differentiable any number of times, and seen through by vmap, grad and jvp. On a ray the k-th power stands for
    exp(k u): for positions that are a grid's in float32 the two differ by the rounding of p. On a GPU the squarings are
    as many as serve while the squared angles of a rotation sum to at most 13,000^2; beyond, it is NaN.
    Source: LR-A1, LR-B5, LR-3D.

    >>> from geolib.lie import skew_matrix
    >>> A = skew_matrix(torch.randn(2, 6), 4)  # two axes
    >>> R = position_rotations(torch.tensor([[0.0, 0.0], [1.0, 2.0]]), A)
    >>> torch.equal(R[0], torch.eye(4)), torch.allclose(R[1], exp_skew(A[0] + 2 * A[1]), atol=1e-5)
    (True, True)
    """
    check_square(generators, "generators")
    require(generators.dim() >= 3, "generators", generators.shape, "it must be (..., axes, b, b)")
    check_positions(positions, generators.shape[-3])
    if readable(generators):
        check_skew(generators, "generators")
        check_finite(positions, "positions")
    return placed_rotations(positions, generators, rays)


def placed_rotations(positions: Tensor, generators: Tensor, rays: Rays | None = None) -> Tensor:
    """As ``position_rotations``, for generators that are skew as they are made: nothing is checked, no number is read.
    Source: LR-A1.

    >>> placed_rotations(torch.zeros(3, 2), torch.zeros(2, 4, 4)).shape
    torch.Size([3, 4, 4])
    """
    b, lead = generators.shape[-1], generators.shape[:-3]
    if b <= 3:
        return _closed_form(_algebra_element(positions, generators))
    if rays is None:
        # Rays are made of numbers: a gradient in the positions would end there, and inside vmap or grad none is read.
        alone = positions.requires_grad or not readable(positions) or is_transformed(generators)
        places = positions.to(angle_dtype(positions, generators))
        rays = _alone(places) if alone else find_rays(places)
    with full_precision(generators.device):
        elements = _algebra_element(rays.primitives, generators).reshape(-1, b, b)
        shape, sides = (rays.primitives.shape[0], math.prod(lead), b, b), sum(rays.stages, ())
        # An operator is opaque to vmap, grad, jvp and ONNX, and an exported model would need this library.
        if is_transformed(elements) or torch.jit.is_tracing() or torch.onnx.is_in_onnx_export() or is_exporting():
            R = _along_rays(_expm1(elements, _squarings(elements)).view(shape), rays.place, sides)
        else:
            E = _lean_expm1(elements).view(shape)
            made = _OnRays.apply if E.requires_grad else _OnRays.forward  # compilers fail at what needs no gradient
            R, _ = made(E, elements, rays.place, *sides)
        return R.view(rays.place.shape[0], *lead, b, b)


def _algebra_element(positions: Tensor, generators: Tensor) -> Tensor:
    """sum_i p_i A_i, (tokens, ..., b, b), in float32 or float64."""
    dtype = angle_dtype(positions, generators)
    with full_precision(generators.device):
        return torch.tensordot(positions.to(dtype), generators.to(dtype), dims=([1], [generators.dim() - 3]))


class _OnRays(torch.autograd.Function):
    """Rotations of all tokens, (tokens, n, b, b), and of all slots, from exp - I at the primitives.

    ``sides`` are left, right, left, ... of the stages. All slots share one tensor, and their gradients another: copies
    would take longer than products. A, of which E is exp(A) - I, is there for second derivatives.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(E: Tensor, A: Tensor, place: Tensor, *sides: Tensor) -> tuple[Tensor, Tensor]:
        known = len(E)
        R = E.new_empty(known + sum(map(len, sides[::2])), *E.shape[1:])
        R[:known] = E
        R[:known].diagonal(dim1=-2, dim2=-1).add_(1)
        for left, right in zip(sides[::2], sides[1::2]):
            R[known : known + len(left)] = R.index_select(0, left) @ R.index_select(0, right)
            known += len(left)
        return R.index_select(0, place), R

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
        E, *others = inputs
        ctx.primitives = E.shape[:2]
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(output[1], *others)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        R, A, place, *sides = ctx.saved_tensors
        others = (None,) * (2 + len(sides))
        if gradient is None:
            return None, *others
        if torch.is_grad_enabled():  # the gradient will be differentiated
            E = _expm1(A, _squarings(A)).unflatten(0, ctx.primitives)
            return *torch.autograd.grad(_along_rays(E, place, sides), E, gradient, create_graph=True), *others
        with full_precision(R.device):
            total = torch.zeros_like(R).index_add_(0, place, gradient)
            known = len(R)
            for left, right in zip(sides[-2::-2], sides[::-2]):
                known -= len(left)
                g = total[known : known + len(left)]
                total.index_add_(0, left, g @ R.index_select(0, right).mT)
                total.index_add_(0, right, R.index_select(0, left).mT @ g)
        return total[: ctx.primitives[0]], *others


def _along_rays(E: Tensor, place: Tensor, sides: Sequence[Tensor]) -> Tensor:
    """The rotations of ``_OnRays``, by steps that can be differentiated again."""
    R = E + torch.eye(E.shape[-1], dtype=E.dtype, device=E.device)
    for left, right in zip(sides[::2], sides[1::2]):
        R = torch.cat([R, R[left] @ R[right]])
    return R[place]


def turn_blocks(x: Tensor, rotations: Tensor) -> Tensor:
    """Turn each block of features by its own rotation.

    x is (batch, heads, tokens, blocks * b) and keeps shape and dtype; rotations are ([batch,] heads or 1, tokens,
    blocks, b, b), cast to that dtype.
    Source: LR-A1, LR-B5.

    >>> turn_blocks(torch.tensor([[[[1.0, 0.0]]]]), rotation_matrix(torch.tensor([[[math.pi / 2]]]))).round()
    tensor([[[[-0., 1.]]]])
    """
    blocks, b = rotations.shape[-3], rotations.shape[-1]
    holds = x.dim() == 4 and x.shape[-1] == blocks * b
    require(holds, "x", x.shape, f"it must be (batch, heads, tokens, {blocks * b})")
    split, turn = x.unflatten(-1, (blocks, b)), rotations.to(x.dtype)
    if turn.dim() == 6:
        y = torch.einsum("zhtnj,zhtnij->zhtni", split, turn)
    elif turn.shape[0] == 1:
        # Heads that share their rotations stand side by side with the batch in one product.
        y = torch.einsum("zhtnj,tnij->zhtni", split, turn[0])
    else:
        y = torch.einsum("zhtnj,htnij->zhtni", split, turn)
    return y.flatten(-2).to(x.dtype)
