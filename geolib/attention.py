"""Attention as inner products, and the one interface through which positions enter it.

An encoding may add to the token embeddings (``embed``). For everything else it is *placed*, once a pass: what depends
on positions alone is computed then, for all layers, and each layer attends by what comes out::

    x = encoding.embed(x, positions)                    # in the model's forward
    placed = encoding.place(positions)
    y = placed.layer(0).attention(q, k, v, x)           # in each layer, all that the encoding does there

``attention`` carries queries and keys to a common reference space (``to_reference``), adds to the scores inside the
softmax (``log_gate``) and multiplies the weights after it (``attenuation``). The parts are there for kernels of one's
own; one that is left out is missed by nothing.

Positions have one row for each token, alike for all samples or not. Tokens in front that have no place (a CLS token,
registers) are said, ``encoding.place(positions).with_prefix_tokens(1)``, and are left as they are.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad

from geolib import _written
from geolib._checks import (
    angle_dtype,
    as_widest,
    check_count,
    check_floating,
    check_heads,
    check_input,
    check_last,
    check_no_mask,
    check_scale,
    check_tensor,
    check_width,
    is_transformed,
    require,
    warn_of_rounding,
)
from geolib._checks import input_of as input_of
from geolib._compile import Kept, keeps
from geolib._precision import WideBuffers, without_autocast
from geolib._written import add_up as add_up
from geolib._written import is_grouped as is_grouped
from geolib._written import repeat_heads as repeat_heads
from geolib.masks import as_bias, hidden, visible
from geolib.masks import looked_up as looked_up

# A change of scores as FlexAttention takes it, (score, batch, head, query index, key index) to a score.
ScoreMod = Callable[..., Tensor]


class Placed:
    """An encoding at given positions, as layers use it; this base class is the one that ignores them.

    >>> q = k = torch.ones(1, 2, 3, 4)
    >>> Placed().to_reference(q, k)[0] is q
    True
    """

    unplaced: tuple[int, int] = (0, 0)
    """How many queries, and how many keys, stand in front without a place."""
    counts: tuple[int, int] | None = None
    """How many queries, and how many keys, are placed; None where positions do not matter."""
    own: tuple[int, int] = (1, 1)
    """For how many samples, and for how many heads, gates and attenuations of positions differ; 1 where for none."""
    parts: Sequence[Placed] = ()
    """The encodings that it is made of."""
    frozen = False
    """Whether it was placed without gradients by an encoding that learns."""
    lasting = True
    """Whether its gate depends on positions alone, one tensor in all layers; by default where none is defined."""
    _kept: Kept | None = None

    def __init_subclass__(cls, **given: Any):
        super().__init_subclass__(**given)
        base = next(base for base in cls.__mro__ if {"log_gate", "lasting"} & base.__dict__.keys())
        cls.lasting = base.__dict__.get("lasting", False)

    def with_prefix_tokens(self, unplaced: int, keys: int | None = None) -> Self:
        """The same behind tokens that have no place and stay as they are: a CLS token, registers, a prefix.

        ``unplaced`` queries, and as many keys, or ``keys`` of them (a cache that holds a prefix, new queries that do
        not). ValueError where a number is below 0.

        >>> Placed().with_prefix_tokens(1).unplaced, Placed().with_prefix_tokens(0, keys=4).unplaced
        ((1, 1), (0, 4))
        """
        both = unplaced, unplaced if keys is None else keys
        for argument, count in zip(("unplaced", "keys"), both):
            require(not isinstance(count, float) and count >= 0, argument, count, "a whole number, at least 0")
        other, parts = copy.copy(self), {part: part.with_prefix_tokens(*both) for part in dict.fromkeys(self.parts)}
        other.unplaced, other.parts = both, [parts[part] for part in self.parts]
        return other

    def attention(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        x: Tensor | None = None,
        causal: bool = False,
        *,
        mask: Tensor | None = None,
        dropout: float = 0.0,
        scale: float | None = None,
    ) -> Tensor:
        """Attention with all that the encoding does in a layer: ``to_reference``, ``log_gate`` and ``attend`` in turn.

        q and k come as the projections made them: no number tells keys that were carried already, as a cache may hold
        them, and those go to ``attend``. q, k, v are (batch, heads, tokens, features); keys and values may have fewer
        heads. x, (batch, tokens, width), is the layer's input, for gates that depend on the data; others do without.
        The mask, the dropout and the scale are those of ``geolib.attention.attention``.

        >>> from geolib.encodings import build
        >>> placed = build("rope+alibi", width=8, heads=2, grid=(5,)).place(torch.arange(5))
        >>> placed.attention(*torch.randn(3, 1, 2, 5, 4), causal=True).shape
        torch.Size([1, 2, 5, 4])

        Source: RF-9, RF-19, RF-20.
        """
        if x is not None:
            check_input(x, q, k)
        if self.frozen and torch.is_grad_enabled() and q.requires_grad:
            warnings.warn("this was placed without gradients, so its encoding learns nothing here", stacklevel=2)
        gate = self.masked_log_gate(x, mask)
        return self.attend(*self.to_reference(q, k), v, gate, causal, mask=mask, dropout=dropout, scale=scale)

    def to_reference(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """T^-1 q and T^-1 k, whose inner product is the score; (batch, heads, tokens, head_dim) as they came.
        Source: RF-9.
        """
        return q, k

    def log_gate(self, x: Tensor | None) -> Tensor | None:
        """What is added to the scores before the softmax, (queries, keys) or with dimensions before them.

        Those are broadcast to (batch, heads); queries and keys are the placed ones, each with a row or a column. x,
        (batch, tokens, width), is the layer's input, for gates that depend on the data; where keys stand elsewhere it
        has a row for each key.
        """
        return None

    def masked_log_gate(self, x: Tensor | None, mask: Tensor | None) -> Tensor | None:
        """``log_gate``, without what tokens that a query must not see put into gates made of several tokens.

        The mask is that of ``attention``, for all tokens, placed or not.
        """
        return self.log_gate(x)

    def attenuation(self) -> Tensor | None:
        """What multiplies the weights of placed tokens after the softmax, broadcastable as ``log_gate``.
        Source: RF-19.
        """
        return None

    def layer(self, index: int) -> Placed:
        """What layer ``index`` uses, where layers have parameters of their own."""
        return self

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        log_gate: Tensor | None = None,
        causal: bool = False,
        *,
        mask: Tensor | None = None,
        dropout: float = 0.0,
        scale: float | None = None,
    ) -> Tensor:
        """Attention of queries and keys that are in the reference space already, with the given gate.

        The last step of ``attention``, which does all of them. The mask, the dropout and the scale are those of
        ``geolib.attention.attention``; a mask is for all tokens, placed or not.
        Not a hook: a method that knows a faster way to the same numbers takes it here.
        """
        omega = self.attenuation()
        more = mask is not None or causal or (log_gate is not None and self.unplaced != (0, 0))
        if more and omega is None and self._keeps(q, k, v, log_gate, mask):
            _check_attended(q, k, v, None, None, dropout)
            of = log_gate, mask, causal, q.shape[:-1], k.shape[-2], self.unplaced, q.dtype, q.device
            self._kept = self._kept or Kept()
            bias, blind = self._kept(lambda: as_bias(q, k, self.for_all(log_gate, q, k, 0.0), causal, mask), *of)
            if causal or mask is not None:
                _check_alike(q, k, bias, None)
                check_scale(scale)
                if log_gate is None or q.dtype != torch.float32:  # else autocast may round it: ``attention`` knows
                    y = _by_kernel(q, k, v, bias, dropout, scale)
                    return y if blind is None else y.masked_fill(blind, 0.0)
            y = attention(q, k, v, log_gate=bias, scale=scale, dropout=dropout)
            return y if blind is None else y.masked_fill(blind, 0.0)
        gate = None if log_gate is None else self.for_all(log_gate, q, k, 0.0)
        omega = None if omega is None else self.for_all(omega, q, k, 1.0)
        return attention(
            q, k, v, log_gate=gate, attenuation=omega, causal=causal, scale=scale, mask=mask, dropout=dropout
        )

    def _keeps(self, q: Tensor, k: Tensor, v: Tensor, log_gate: Tensor | None, mask: Tensor | None) -> bool:
        """Whether what is added to the scores is made once for all layers: of positions, causal and mask alone."""
        if mask is None and log_gate is None and q.shape[-2] == k.shape[-2]:
            return False  # the kernel's own causal order
        alike = self.lasting and q.dtype == k.dtype == v.dtype and keeps(q) and self.log_gate(None) is log_gate
        return alike and not (isinstance(mask, Tensor) and mask.is_inference())  # nobody counts what is written there

    def weights(
        self,
        q: Tensor,
        k: Tensor,
        log_gate: Tensor | None = None,
        causal: bool = False,
        *,
        mask: Tensor | None = None,
        scale: float | None = None,
    ) -> Tensor:
        """The weights by which ``attend`` adds up the values, as a matrix; a method that changes one changes both."""
        gate, omega = self.for_all(log_gate, q, k, 0.0), self.for_all(self.attenuation(), q, k, 1.0)
        return attention_weights(q, k, log_gate=gate, attenuation=omega, causal=causal, scale=scale, mask=mask)

    def for_all(self, x: Tensor | None, q: Tensor, k: Tensor, fill: float) -> Tensor | None:
        """A gate or attenuation of the placed tokens for all of q and k: ``fill`` where one of a pair has no place.

        ValueError where there are more tokens, or fewer, than positions and ``with_prefix_tokens`` speak of.

        >>> Placed().with_prefix_tokens(1).for_all(torch.zeros(1, 1), torch.ones(2, 4), torch.ones(2, 4), 1.0)
        tensor([[1., 1.],
                [1., 0.]])
        """
        if x is None:
            return None
        if x.dim() > q.dim() > 2 and len(x) == 1:  # of one sample, whose queries lack its dimension
            x = x[0]
        for rows, tokens, front in zip(x.shape[-2:], (q.shape[-2], k.shape[-2]), self.unplaced):
            check_count(rows, tokens, front)
        heads, own = (t.shape[-3] if t.dim() > 2 else 1 for t in (q, x))
        require(q.dim() < 3 or own in (1, heads), "q", f"{heads} heads", f"the encoding has {own}")
        samples, own = (t.shape[-4] if t.dim() > 3 else 1 for t in (q, x))
        require(own in (1, samples), "q", f"{samples} samples", f"the encoding has {own}")
        queries, keys = self.unplaced
        return F.pad(x, (keys, 0, queries, 0), value=fill) if queries or keys else x

    def as_score_mod(self, x: Tensor | None = None) -> ScoreMod | None:
        """``log_gate`` as FlexAttention takes it: a function of (score, batch, head, query index, key index).

        Indices count placed tokens. None where there is no gate. Gates that depend on positions alone, and those of
        symmetric powers, are computed pair by pair from a few numbers a token; others are looked up in their matrix.
        """
        gate = self.log_gate(x)
        return None if gate is None else looked_up(gate)

    def as_attenuation_mod(self) -> ScoreMod | None:
        """The logarithm of ``attenuation`` in the same form; ``geolib.flex.flex_attend`` takes it out of the softmax.

        None where there is no attenuation.
        """
        omega = self.attenuation()
        return None if omega is None else looked_up(omega.log())


class Encoding(WideBuffers):
    """How positions enter attention; this base class is the encoding that ignores them.

    >>> x, positions = torch.randn(1, 9, 8), torch.zeros(9, 2)
    >>> MultiHeadAttention(width=8, heads=2)(x, Encoding().place(positions)).shape
    torch.Size([1, 9, 8])
    """

    def __init_subclass__(cls, **given: Any):
        super().__init_subclass__(**given)
        apart = cls.forward is nn.Module.forward and "FSDPModule" in [base.__name__ for base in cls.__mro__]
        require(not apart, "module", "an encoding by itself", "fully_shard the model whose forward places it")
        if "place" in cls.__dict__:
            cls.place = _watched(cls.place)  # type: ignore[method-assign]

    outermost = False
    """Whether it goes around all else and nothing around it, as what replaces softmax does."""

    @property
    def paired(self) -> int | None:
        """How many features of a head, the first ones, it turns in pairs; None where it turns none."""
        return None

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Token embeddings, (batch, tokens, width), with their positions added; once, before the layers.

        One position for each token: those without a place are put in front afterwards.
        """
        return x

    def place(self, positions: Tensor, keys: Tensor | None = None) -> Placed:
        """The encoding at these positions, (tokens, axes) or (batch, tokens, axes); once a pass, for all layers.

        One axis may come as a vector, (tokens,); that of each sample is ``position_ids[..., None]``. ``keys`` are the
        positions of keys that stand elsewhere than the queries, as in a cache or in another text.

        Queries after a cache stand where it ends, not at 0: ``place(torch.arange(n, n + 1), torch.arange(n + 1))``; no
        number tells one from the other. A query without a place that reads all keys, as of a pooling layer, is
        ``place(keys[:0], keys).with_prefix_tokens(1, 0)``.
        """
        return Placed()


def _watched(place: Callable[..., Placed]) -> Callable[..., Placed]:
    """``place``; what it makes without gradients knows that."""

    @wraps(place)
    def placing(self: Encoding, *given: Any, **named: Any) -> Placed:
        try:
            made = place(self, *given, **named)
        except RuntimeError as error:
            if "same device" in str(error) or "expected device" in str(error):
                raise ValueError(f"positions: got some on another device than the encoding's; {error}") from error
            raise
        has_parts = bool(self._parameters or self._modules)
        if has_parts and not torch.is_grad_enabled() and any(p.requires_grad for p in self.parameters()):
            for one in (made, *made.parts):
                one.frozen = True
        return made

    return placing


def as_places(positions: Tensor, keys: Tensor | None, axes: int | None = None) -> tuple[Tensor, Tensor | None]:
    """Positions that are placed and those of keys that stand elsewhere, (tokens, axes) or (batch, tokens, axes).

    The door of every ``place``: ValueError for other shapes, for what is not finite (on a CPU) and no real number; a
    warning for a dtype in which neighbours become one. One axis may come as a vector, (tokens,).

    >>> as_places(torch.arange(3.0), None)[0].shape
    torch.Size([3, 1])
    """
    places: list[Any] = [positions, keys]
    for i, argument in enumerate(("positions", "keys") if keys is not None else ("positions",)):
        x = places[i]
        if not isinstance(x, Tensor):
            check_tensor(x, argument)
        if x.dim() == 1 and axes in (None, 1):
            x = places[i] = x[:, None]
        axes = x.shape[-1] if axes is None and x.dim() else axes
        if x.dim() not in (2, 3) or x.shape[-1] != axes:
            hint = f"; for one axis and positions of each sample write {argument}[..., None]" if axes == 1 else ""
            allowed = f"it must be (tokens, axes) or (batch, tokens, axes) with axes = {axes}"
            require(False, argument, x.shape, allowed + hint)
        if x.dtype == torch.bool or x.is_complex():
            require(False, argument, x.dtype, "positions are real numbers")
        if not x.is_floating_point():  # differences of shorter ones would begin again beyond the largest number
            places[i] = x.long()
        if x.is_floating_point() and not torch.compiler.is_compiling():
            if not (reach := largest(x)) < float("inf"):
                require(False, argument, "inf or NaN", "positions must be finite")
            if (bits := torch.finfo(x.dtype).bits) < 32 or (bits == 32 and reach > 2**24):
                warn_of_rounding(x, argument)
    return places[0], places[1]


def largest(x: Tensor) -> float:
    """The largest size, NaN where a number is; 0 where it may not be read at no one's cost: graphs, vmap, a GPU.

    >>> largest(torch.tensor([1.0, -3.0])), largest(torch.ones(1, device="meta"))
    (3.0, 0.0)
    """
    own = type(x) in (Tensor, nn.Parameter) and x.device.type == "cpu" and not torch.jit.is_tracing()
    if not own or torch.compiler.is_compiling() or torch._C._functorch.is_functorch_wrapped_tensor(x):
        return 0.0
    return float(x.detach().abs().max()) if x.numel() else 0.0


def attention_weights(
    q: Tensor,
    k: Tensor,
    *,
    log_gate: Tensor | None = None,
    attenuation: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The weights of attention, softmax(scale q k^T + log_gate) times attenuation, as a matrix.

    Parameters
    ----------
    q, k : Tensor, (..., queries, head_dim) and (..., keys, head_dim)
        As (batch, heads, tokens, head_dim), keys may have fewer heads: see ``repeat_heads``.
    log_gate, attenuation : Tensor, broadcastable to (..., queries, keys), or None
    causal : bool
        Query i sees keys 0 ... i + keys - queries (the last query sees all of them). ValueError with more queries than
        keys: the first of them would see none.
    scale : float or None
        1 / sqrt(head_dim) when None; else above 0.
    mask : Tensor of bool, broadcastable to (..., queries, keys), or None
        True where a query may see a key, as PyTorch has it; with ``causal``, both must hold. A query that sees nothing
        has weights 0. One of (batch, keys) comes as ``mask[:, None, None]``. Numbers are a gate: part of ``log_gate``.

    Returns
    -------
    Tensor, (..., queries, keys)
        float32 or float64, whatever q's dtype and autocast: scores are not rounded. Rows sum to 1 without attenuation.

    Source: RF-19, RF-20.

    >>> q = torch.zeros(2, 4)
    >>> attention_weights(q, q, causal=True)
    tensor([[1.0000, 0.0000],
            [0.5000, 0.5000]])
    """
    _check_alike(q, k, log_gate, attenuation)
    check_scale(scale)
    seen = visible(q, k, causal, mask)
    if is_grouped(q, k):
        k = repeat_heads(k, q.shape[1])
    dtype = angle_dtype(q, k, log_gate, attenuation)
    with without_autocast(q.device):
        scores = (q.to(dtype) * (q.shape[-1] ** -0.5 if scale is None else scale)) @ k.to(dtype).mT
    if log_gate is not None:
        scores = scores + log_gate
    scores = hidden(scores, seen)
    if log_gate is None:
        weights = scores.softmax(-1)
    else:  # gates and mask together may close a row that neither closes alone
        closed = (scores == float("-inf")).all(-1, keepdim=True)
        weights = scores.masked_fill(closed, 0.0).softmax(-1).masked_fill(closed, 0.0)
    if mask is not None:
        weights = weights.masked_fill(~seen, 0.0)  # type: ignore[operator]
    return weights if attenuation is None else weights * attenuation


def _check_alike(q: Tensor, k: Tensor, log_gate: Tensor | None, attenuation: Tensor | None) -> None:
    """Keys with as many features as queries; a gate and an attenuation in floating point."""
    if not isinstance(k, Tensor) or k.dim() < 1 or k.shape[-1] != q.shape[-1]:
        check_last(k, q.shape[-1], "k")
    if log_gate is not None:
        check_no_mask(log_gate, "log_gate", "it is added to the scores")
    if attenuation is not None:
        check_no_mask(attenuation, "attenuation", "it multiplies the weights")


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    log_gate: Tensor | None = None,
    attenuation: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    mask: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Scaled-dot-product attention with a gate inside the softmax and an attenuation after it.

    Arguments are those of ``attention_weights``, with v as (..., keys, value_dim), with k's heads; the result, (...,
    queries, value_dim), has v's dtype. ``dropout`` is the probability with which a weight is set to 0, the others
    divided by what is left of 1: pass 0 in evaluation, as to PyTorch's function.

    Where gate and attenuation leave PyTorch's fused kernel exact, this is that kernel, in float32 with a gate for
    narrow q; with an attenuation the weights stand in memory. So they do where a processor trains in bfloat16, whose
    fused backward pass is slow, and with a gate inside vmap, grad and jvp, which the fused kernel does not let through,
    and in jvp without one. Derived twice backwards it asks for ``sdpa_kernel(SDPBackend.MATH)``. ValueError for whole
    numbers.
    Source: RF-19, RF-20.

    >>> q, v = torch.zeros(3, 4), torch.tensor([[0.0], [3.0], [6.0]])
    >>> attention(q, q, v, attenuation=torch.eye(3)).flatten()  # each token keeps a third of its own value
    tensor([0., 1., 2.])
    """
    _check_attended(q, k, v, log_gate, attenuation, dropout)
    if scale is not None:
        check_scale(scale)
    if causal and not torch.compiler.is_compiling() and 1 == q.shape[-2] <= k.shape[-2]:
        causal = False  # the last query sees all keys
    options: Any = {"log_gate": log_gate, "attenuation": attenuation, "causal": causal, "scale": scale, "mask": mask}
    if log_gate is not None and q.dtype == torch.float32 and not q.is_meta and torch.is_autocast_enabled(q.device.type):
        with without_autocast(q.device):  # which would round the gate
            return attention(q, k, v, dropout=dropout, **options)
    if not q.dtype == k.dtype == v.dtype and not torch.is_autocast_enabled(q.device.type):
        return attention(*as_widest(q, k, v), dropout=dropout, **options).to(v.dtype)
    forward = forward_ad._current_level >= 0  # of jvp and hessian, which the fused kernels have not
    literal = attenuation is not None or forward
    plain = q.dtype == torch.bfloat16 and not causal and mask is None and dropout == 0 and not forward
    if plain and _written.pays(q, k, v, fused=log_gate is None and not literal):
        factor = q.shape[-1] ** -0.5 if scale is None else scale
        with torch.autocast("cpu", enabled=False):
            return _written.WrittenOut.apply(q, k, v, factor, log_gate, attenuation)
    if literal or (log_gate is not None and any(is_transformed(x) for x in (q, k, v, log_gate))):
        weights = attention_weights(q.to(angle_dtype(q, v)), k, **options)
        return add_up(F.dropout(weights, dropout) if dropout else weights, v)
    gate = None if log_gate is None else log_gate.to(angle_dtype(q))
    if mask is None and (not causal or (gate is None and q.shape[-2] == k.shape[-2])):
        return _by_kernel(q, k, v, gate, dropout, scale, causal)
    seen = visible(q, k, causal, mask)
    gate = torch.zeros(1, 1, dtype=q.dtype, device=q.device) if gate is None else gate
    y = _by_kernel(q, k, v, hidden(gate, seen), dropout, scale)
    return y if mask is None else y.masked_fill(~seen.any(-1, keepdim=True), 0.0)  # type: ignore[union-attr]


def _by_kernel(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, dropout: float, scale: float | None, causal: bool = False
) -> Tensor:
    """PyTorch's fused kernel; what is added to scores is not rounded to a narrow q's dtype.

    In bfloat16 a large gate would be off by tens of percents of a weight.
    """
    if bias is not None and bias.dtype != q.dtype:
        with without_autocast(q.device):
            wide, keys, values = (x.to(bias.dtype) for x in (q, k, v))
            return _by_kernel(wide, keys, values, bias, dropout, scale).to(v.dtype)
    if bias is not None and bias.dim() < q.dim():
        bias = bias[(None,) * (q.dim() - bias.dim())]  # with fewer dimensions torch leaves its fused kernel
    grouped = q.dim() == k.dim() == 4 and bool(1 < k.shape[1] < q.shape[1])  # as is_grouped
    return F.scaled_dot_product_attention(q, k, v, bias, dropout, is_causal=causal, scale=scale, enable_gqa=grouped)


def _check_attended(
    q: Tensor, k: Tensor, v: Tensor, log_gate: Tensor | None, attenuation: Tensor | None, dropout: float
) -> None:
    """Real numbers; as many heads of keys and of values, and a whole number of query heads for each; a probability."""
    for argument, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor) or not x.is_floating_point():
            check_floating(x, argument)
    if q.dim() == k.dim() == v.dim() == 4:
        heads, own, of_values = q.shape[1], k.shape[1], v.shape[1]
        if heads not in (1, own) and (own == 0 or heads % own):
            require(False, "k", f"{own} heads", f"they must divide the {heads} of q")
        if own != of_values and own != 1 and of_values != 1:
            require(False, "v", f"{of_values} heads", f"k has {own}")
        for argument, x in (("k", k), ("v", v)):
            if x.shape[0] != q.shape[0] and 1 not in (x.shape[0], q.shape[0]):
                require(False, argument, f"{x.shape[0]} samples", f"q has {q.shape[0]}")
    _check_alike(q, k, log_gate, attenuation)
    if v.shape[-2] != k.shape[-2]:
        require(False, "v", f"{v.shape[-2]} tokens", f"k has {k.shape[-2]}; they must be equal")
    if not 0 <= dropout < 1:
        require(False, "dropout", dropout, "a probability, at least 0 and below 1")


class MultiHeadAttention(WideBuffers):
    """Multi-head self-attention that leaves positions to an encoding.

    Parameters
    ----------
    width, heads : int
        Features of a token, a multiple of the heads.
    causal : bool
        Whether a token sees only itself and those before it.
    dropout : float
        The probability with which a weight is set to 0 in training.
    """

    settings = ("heads", "causal")

    def __init__(self, width: int, heads: int, causal: bool = False, dropout: float = 0.0):
        super().__init__()
        check_heads(heads, width)
        require(0 <= dropout < 1, "dropout", dropout, "a probability, at least 0 and below 1")
        self.heads, self.causal, self.dropout = heads, causal, dropout
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, placed: Placed, mask: Tensor | None = None) -> Tensor:
        """Attend: (batch, tokens, width) to the same shape; the mask as in ``attention``.

        >>> layer = MultiHeadAttention(width=8, heads=2)
        >>> layer(torch.randn(1, 5, 8), Placed()).shape
        torch.Size([1, 5, 8])
        """
        require(isinstance(placed, Placed), "placed", type(placed).__name__, "encoding.place(positions) makes one")
        require(x.dim() == 3, "x", x.shape, "it must be (batch, tokens, width)")
        check_width(x, self.qkv.in_features)
        dropout = self.dropout if self.training else 0.0
        y = placed.attention(*self._heads(x), x, self.causal, mask=mask, dropout=dropout)
        return self.out(y.transpose(1, 2).flatten(2))

    def extra_repr(self) -> str:
        """What it is, beside its two layers."""
        return f"heads={self.heads}, causal={self.causal}, dropout={self.dropout}"

    def weights(self, x: Tensor, placed: Placed, mask: Tensor | None = None) -> Tensor:
        """The weights by which ``forward`` adds up the values, (batch, heads, queries, keys).
        Source: RF-19, RF-20.
        """
        q, k, _ = self._heads(x)
        gate = placed.masked_log_gate(x, mask)
        return placed.weights(*placed.to_reference(q, k), gate, self.causal, mask=mask)

    def _heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, (batch, heads, tokens, head_dim) each."""
        parts = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(2)  # each (batch, tokens, heads, head_dim)
        q, k, v = (part.transpose(1, 2) for part in parts)
        return q, k, v
