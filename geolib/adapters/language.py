"""Encodings inside Hugging Face's language models, by their attention interface.

An encoding that turns pairs as the model's own rotation does, and learns nothing, hands its cosines and sines to that.
For others these are 1 and 0, and on the way with them is the encoding, placed where this pass has its tokens. Their
keys go into the cache as they are, with their positions behind their features: whatever a cache does to keys (windows,
slots that are not written yet, beams, texts that are cut), it does to positions.
"""

from __future__ import annotations

import hashlib
import sys
import warnings
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from geolib._checks import readable, require
from geolib.adapters._passes import OnePass, check_acts
from geolib.attention import Encoding, Placed, repeat_heads
from geolib.encodings import KINDS, Carried, LengthRoPE, PerLayer, RoPE, turn_halves, turn_pairs, turned_features

_NAME = "geolib"
_SHIFTS = (0, 8, 16, 24)  # a position's digits in base 256: every dtype of keys has these whole numbers


class OnTheWay(tuple[Tensor, Tensor]):
    """The encoding in this pass on the way to layers; cosines and sines are NaN for layers that know nothing of it."""

    one: OnePass | None = None  # where hooks between devices make tuples anew, nothing
    still: tuple[Tensor, Tensor]  # cosines and sines for those that do: of the encoding, or what changes nothing


class HeldTokens(nn.Module):
    """An encoding where a language model has its rotation: ``own``, which is asked for shapes alone.

    ``in_pairs`` says how the model's own function, where it turns by these cosines, takes the features of a pair.
    """

    def __init__(self, encoding: Encoding, own: nn.Module, in_pairs: bool | None, turns: str):
        super().__init__()
        self.encoding, self.own, self.in_pairs, self.turns = encoding, own, in_pairs, turns

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Also in a process that has read the model from a file."""
        super().__setstate__(state)
        _make_known()

    def forward(self, x: Tensor, position_ids: Tensor, *given: Any, **named: Any) -> OnTheWay:
        """The encoding at position_ids, (batch, tokens) or with axes before; ValueError for other sizes than x's."""
        fits = position_ids.dim() > 1 and position_ids.shape[-1] == x.shape[-2]
        require(fits, "position_ids", position_ids.shape, lambda: f"(batch, tokens), here of {x.shape[-2]} tokens")
        samples, batch = position_ids.shape[-2], x.shape[-3]
        require(samples in (1, batch), "position_ids", f"{samples} samples", f"the input has {batch} samples")
        places = position_ids[..., None] if position_ids.dim() == 2 else position_ids.movedim(0, -1)
        one = OnePass(self.encoding, places)
        turns, in_pairs = _turns(one.placed), self.in_pairs
        if turns is not None and in_pairs is not None:
            cosines, sines = (_of_features(part, in_pairs).to(x.dtype) for part in turns.unbind(-1))
            one.turned = self.turns
        else:
            with torch.no_grad():
                cosines, sines = self.own(x, position_ids, *given, **named)
            cosines, sines = torch.ones_like(cosines), torch.zeros_like(sines)
        way = OnTheWay([torch.full_like(part, torch.nan) for part in (cosines, sines)])
        way.one, way.still = one, (cosines, sines)
        return way


def _turns(placed: Placed) -> Tensor | None:
    """The table by which all queries and keys turn, (samples, tokens, pairs, 2); None where there is more to it."""
    if type(placed) is not Carried or placed.act not in (turn_pairs, turn_halves) or placed.heads != 1:
        return None
    table, same = placed.tables
    return table.squeeze(1) if table is same and table.dim() == 5 and not table.requires_grad else None


def _of_features(x: Tensor, in_pairs: bool) -> Tensor:
    """Numbers of pairs for each of their features, which are neighbours or half the features apart."""
    return x.repeat_interleave(2, -1) if in_pairs else torch.cat([x, x], -1)


def _as_theirs(encoding: Encoding, own: Encoding, layer: nn.Module, places: Tensor) -> tuple[bool | None, str]:
    """Whether features of a pair are neighbours in what the model's own function takes; None if it turns otherwise.

    Where layers differ, or texts of another length turn otherwise, it is not asked. Behind it what the turns are, by
    which keys of another encoding are known.
    """
    theirs = getattr(sys.modules[type(layer).__module__], "apply_rotary_pos_emb", None)
    placed, parts = encoding.place(places[None]), (*own.modules(), *encoding.modules())
    turns = _turns(placed)
    if turns is None or theirs is None or any(isinstance(x, LengthRoPE | PerLayer) for x in parts):
        return None, ""
    if turned_features(encoding) != turned_features(own):  # it is handed the features that the model turns
        return None, ""
    q, k = torch.randn(2, 1, 2, len(places), 2 * turns.shape[-2], device=places.device)
    for in_pairs in (False, True):
        with suppress(RuntimeError, TypeError, ValueError):
            got = theirs(q, k, *(_of_features(x.float(), in_pairs) for x in turns.unbind(-1)))
            if all(torch.allclose(a, b, atol=1e-5) for a, b in zip(got, placed.to_reference(q, k))):
                numbers = (1e3 * turns).round().int().flatten().tolist()
                return in_pairs, hashlib.sha256(repr((in_pairs, numbers)).encode()).hexdigest()
    return None, ""


class _Layer:
    """What an attention layer is handed beside its own: what is on the way, and a cache that keeps positions."""

    def __init__(self, one: OnePass, cache: Any):
        self._cache, self.one = cache, one
        self.keys: Tensor | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def update(self, k: Tensor, v: Tensor, index: int, *given: Any, **named: Any) -> tuple[Tensor, Tensor]:
        """As the cache's: all keys and values; where keys stand is kept here.

        ValueError for caches that round keys which have positions behind them.
        """
        if self.one.turned:
            if getattr(self._cache, "turned", None) != self.one.turned:
                allowed = "none, or the cache that this one filled (made anew of its tensors it is not known)"
                empty = self._cache.get_seq_length(index) == 0
                require(empty, "past_key_values", "keys of another encoding", allowed)
                self._cache.turned = self.one.turned
            return self._cache.update(k, v, index, *given, **named)
        places, shifts = self.one.positions, torch.tensor(_SHIFTS, device=k.device)
        require(not places.is_floating_point(), "position_ids", places.dtype, "whole numbers, where there is a cache")
        digits = ((places[..., None] >> shifts) & 255).flatten(-2)[:, None].expand(*k.shape[:3], -1).to(k.dtype)
        layer = self._cache.layers[index] if index < len(self._cache.layers) else None
        kind, before, features = type(layer).__name__, getattr(layer, "keys", None), k.shape[-1] + digits.shape[-1]
        require("Quantized" not in kind, "past_key_values", kind, "a cache that keeps keys as they are")
        own = before.shape[-1] if before is not None and before.dim() == 4 else features
        allowed = f"{features}, positions among them: use_encoding comes before the cache is filled"
        require(own == features, "past_key_values", f"keys of {own} features", allowed)
        keys, values = self._cache.update(torch.cat([k, digits], -1), v, index, *given, **named)
        if keys.shape[2] > k.shape[2]:  # else there is nothing but what came now
            kept = keys[..., k.shape[-1] :]
            alike = torch.compiler.is_compiling() or torch.equal(kept, kept[:, :1].expand_as(kept))
            require(alike, "past_key_values", "heads whose keys stand elsewhere", "a cache that keeps them together")
            kept = kept[:, 0].unflatten(-1, (-1, len(_SHIFTS))).long()
            self.keys = (kept << shifts).sum(-1).int().long()  # of 32 digits the first is the sign
        return keys[..., : k.shape[-1]], values


def _hand_on(module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Before an attention layer: what is on the way goes on to ``_attend``, and the cache keeps positions."""
    way = next((x for x in (*given, *named.values()) if isinstance(x, OnTheWay)), None)
    if way is None:
        return None
    name = getattr(getattr(module, "config", None), "_attn_implementation", _NAME)
    require(name == _NAME, "model", f"attention {name!r}", f"{_NAME!r}: by another one tokens have no positions")
    require(way.one is not None, "model", "layers on several devices", "one device: device_map makes inputs anew")
    layer = _Layer(way.one, named.get("past_key_values"))  # type: ignore[arg-type]
    more = {"past_key_values": layer} if named.get("past_key_values") is not None else {}
    given = tuple(way.still if x is way else x for x in given)
    return given, {**{key: way.still if x is way else x for key, x in named.items()}, **more, _NAME: layer}


def _attend(
    module: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **more: Any,
) -> tuple[Tensor, None]:
    """What the attention interface asks for: the result as (batch, tokens, heads, features), and no weights."""
    for argument in ("softcap", "s_aux"):
        came = more.get(argument)
        if came is not None:
            require(False, argument, getattr(came, "shape", came), "a model without it: scores would lack it here")
    layer, is_causal = more.get(_NAME), more.get("is_causal")
    if layer is None and _hand_on not in module._forward_pre_hooks.values():  # another model with this configuration
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        new, allowed = readable(q) and bool(q.isnan().any()), "where it is newer than the encoding, use_encoding again"
        require(not new, "model", f"NaN in {type(module).__name__}", allowed)
        return sdpa_attention_forward(module, q, k, v, attention_mask, scaling=scaling, **more)
    require(layer is not None, "model", type(module).__name__, "layers that take position_embeddings")
    cache = type(layer._cache).__module__ if layer else ""
    own = cache.startswith("transformers.")  # another's may drop other keys in each layer
    kind = k.shape[2], more.get("sliding_window"), getattr(module, "is_sliding", None), own or module.layer_idx
    placed = layer.one.here(layer.keys, kind).layer(module.layer_idx)  # type: ignore[union-attr]
    turned = layer.one.turned  # type: ignore[union-attr]
    k, v = (k, v) if turned else (repeat_heads(x, q.shape[1]) for x in (k, v))
    causal = attention_mask is None and (getattr(module, "is_causal", True) if is_causal is None else is_causal)
    gate = placed.log_gate(None)
    if attention_mask is not None and attention_mask.is_floating_point():  # of one's own: numbers are added to scores
        gate, attention_mask = attention_mask if gate is None else gate + attention_mask, None
    q, k = (q, k) if turned else placed.to_reference(q, k)
    y = placed.attend(q, k, v, gate, causal, mask=attention_mask, dropout=more.get("dropout", 0.0), scale=scaling)
    return y.transpose(1, 2).contiguous(), None


def _mask(q_length: int, kv_length: int, allow_is_causal_skip: bool = True, **named: Any) -> Any:
    """As for PyTorch's attention, written out where several queries and the keys are not the same tokens."""
    from transformers.masking_utils import sdpa_mask

    skip = allow_is_causal_skip and q_length in (1, kv_length)
    return sdpa_mask(q_length=q_length, kv_length=kv_length, allow_is_causal_skip=skip, **named)


def _make_known() -> None:
    """This attention and its mask, where the library looks for them."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    AttentionInterface.register(_NAME, _attend)
    AttentionMaskInterface.register(_NAME, _mask)


def language_part(model: nn.Module) -> Any:
    """The part of a model that has layers and a rotation for all of them; None where there is none, or several."""
    parts = [part for part in model.modules() if hasattr(part, "rotary_emb") and hasattr(part, "layers")]
    return parts[0] if len(parts) == 1 and hasattr(parts[0], "set_attn_implementation") else None


def in_language_model(part: Any, encoding: Encoding) -> None:
    """Put the encoding where a model of transformers has its rotation; ValueError where that would lose something."""
    config, device = part.config, next(part.parameters()).device
    with torch.device("cpu"):
        own = RoPE.from_config(config)
    cap = getattr(config, "attn_logit_softcapping", None)
    require(cap is None, "model", f"attn_logit_softcapping {cap}", "a model that does not cap its scores")
    shares = hasattr(part, "_maybe_slice_kv_shared_inputs")
    cut = getattr(config, "num_kv_shared_layers", 0) if shares else 0
    require(not cut, "model", f"num_kv_shared_layers {cut}", "0: such layers are handed some of the queries alone")
    layers = [x for x in part.layers.modules() if hasattr(x, "layer_idx") and hasattr(x, "head_dim")]
    heads = [(x.layer_idx, config.num_attention_heads, x.head_dim) for x in layers]
    axes = 3 if {"chunks", "rounds"} & {*KINDS[config.model_type].split()} else 1
    places = torch.arange(2, device=device)[:, None].expand(-1, axes)
    check_acts(encoding.to(device), places, torch.zeros(1, 2, config.hidden_size, device=device), heads, reads=False)
    theirs: tuple[bool | None, str] = None, ""
    if device.type != "meta":
        _compare(encoding, own.to(device), places, heads, config)
        some = torch.tensor([[0, 0, 0], [1, 2, 4], [3, 5, 4], [999, 99, 9]], device=device)[:, :axes]
        theirs = _as_theirs(encoding, own, layers[0], some)
    held = isinstance(part.rotary_emb, HeldTokens)
    part.rotary_emb = HeldTokens(encoding, part.rotary_emb.own if held else part.rotary_emb, *theirs)
    for layer in (x for x in layers if _hand_on not in x._forward_pre_hooks.values()):
        layer.register_forward_pre_hook(_hand_on, with_kwargs=True)
    _make_known()
    part.set_attn_implementation(_NAME)


def _compare(encoding: Encoding, own: Encoding, places: Tensor, heads: list[tuple[int, int, int]], config: Any) -> None:
    """Warn where an encoding does something else than the model's own, in short texts or long ones."""
    chance = torch.Generator().manual_seed(0)
    for far in (3, (getattr(config, "max_position_embeddings", None) or 1) + 3):
        steps = torch.tensor([[0, 0, 0], [1, 2, 4], [3, 5, 4], [far, 1, far]], device=places.device)
        both = [each.place(steps[:, : places.shape[1]]) for each in (encoding, own)]
        for index, count, features in heads:
            q, k, v = torch.randn(3, 1, count, 4, features, generator=chance).to(places.device)
            ours, theirs = (placed.layer(index).attention(q, k, v).detach() for placed in both)
            if (ours - theirs).abs().max() > 1e-4:
                text = f"in layer {index} this encoding gives other numbers than RoPE.from_config(model.config), by "
                warnings.warn(
                    text + "which the model has learned to read: a slip, or to be trained anew?", stacklevel=4
                )
                return
