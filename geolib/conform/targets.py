"""Adapters of some libraries. What one of them does not promise stands here with where its pages or source say so."""

import importlib.util
import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import distribution
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from geolib.attention import Encoding
from geolib.conform.core import ABSENT, Target
from geolib.encodings import RoPE, build
from geolib.recurrence import SympowAttention, attention_form, chunked_form, recurrent_form
from geolib.rotations import grid_positions

WIDTH, HEADS, DIM = Target.heads * Target.head_dim, Target.heads, Target.head_dim
NAN = "A mask gives weight 0 to what stands at a token, and 0 times NaN is NaN: no page speaks of NaN."
UNSAID = "No page of the library speaks of compiling."


class OneLayer(nn.Module):
    """An encoding, and what makes queries, keys and values."""

    def __init__(self, encoding: Encoding):
        super().__init__()
        self.encoding, self.qkv = encoding, nn.Linear(WIDTH, 3 * WIDTH)


class Ours(Target):
    """RoPE for texts: a cache is keys as they are, values and positions."""

    library, title, layout, base = "geometry-of-attention", "rope", "interleaved", 10000.0
    positioned = padded = masked = True
    not_promised = {"NaN at padding": NAN}

    def make(self) -> Any:
        return OneLayer(RoPE.text(DIM))

    def turn(self, module: Any, q: Tensor, k: Tensor, positions: Tensor) -> Any:
        return module.encoding.place(positions).to_reference(q, k)

    def attend(self, module: Any, q: Tensor, k: Tensor, v: Tensor, positions: Tensor, mask: Any) -> Any:
        return module.encoding.place(positions).attention(q, k, v, mask=mask)

    def causal(self, module: Any, q: Tensor, k: Tensor, v: Tensor) -> Any:
        return Encoding().place(torch.zeros(1)).attention(q, k, v, causal=True)

    def run(self, module: Any, x: Tensor, cache: Any, positions: Any, mask: Any) -> Any:
        q, k, v = module.qkv(x).unflatten(-1, (3, HEADS, DIM)).permute(2, 0, 3, 1, 4)
        if positions is None:
            start = 0 if cache is None else cache[0].shape[2]
            positions = torch.arange(start, start + x.shape[1], device=x.device).expand(len(x), -1)
        held: Any = (k, v, positions[..., None])
        held = held if cache is None else self.join([cache, held])
        mask = mask if mask is None or mask.dim() == 4 else mask[:, None, None]
        placed = module.encoding.place(positions[..., None], keys=held[2])
        return placed.attention(q, *held[:2], causal=True, mask=mask).transpose(1, 2).flatten(2), held

    def keep(self, cache: Any, index: Tensor) -> Any:
        return tuple(part[..., index, :] for part in cache)

    def join(self, caches: Any) -> Any:
        return tuple(torch.cat(parts, -2) for parts in zip(*caches))


class OursGrid(Target):
    """A method of the registry on a grid."""

    library, axes, method = "geometry-of-attention", 2, ""

    def make(self) -> Any:
        return build(self.method, width=WIDTH, heads=HEADS, grid=(4, 4))

    def turn(self, module: Any, q: Tensor, k: Tensor, positions: Tensor) -> Any:
        return module.place(positions).layer(0).to_reference(q, k)

    def grid(self, module: Any, x: Tensor, height: int, width: int) -> Any:
        return self.prefix(module, x, height, width, 0)

    def prefix(self, module: Any, x: Tensor, height: int, width: int, count: int) -> Any:
        placed = module.place(grid_positions(height, width)).layer(0)
        return (placed.with_prefix_tokens(count) if count else placed).to_reference(x, x)[0]


def of_power_two(form: Callable[..., Any], q: Tensor, k: Tensor, v: Tensor, gates: Tensor, state: Any) -> Any:
    """One of our forms, as a target has them."""
    attended, state = form(q, k, v, 2, gates, state=state)
    return attended.output, state


class OursStates(Target):
    """Symmetric powers: three forms of one sum, and the layer, whose cache is a state."""

    library, title, padded, stateful, stateless = "geometry-of-attention", "sympow", True, True, ("attention",)

    def make(self) -> Any:
        return SympowAttention(WIDTH, HEADS, chunk=self.chunk)

    def forms(self, module: Any) -> Any:
        attention = lambda q, k, v, gates, _: (attention_form(q, k, v, 2, gates).output, None)  # noqa: E731
        chunked = partial(of_power_two, partial(chunked_form, chunk=self.chunk))
        return {"recurrent": partial(of_power_two, recurrent_form), "chunked": chunked, "attention": attention}

    def run(self, module: Any, x: Tensor, cache: Any, positions: Any, mask: Any) -> Any:
        return module(x, cache, mask=None if mask is None else mask[:, -x.shape[1] :])


def ours() -> list[Target]:
    """This library's."""
    own = "Generators of two axes do not commute, and then scores are not relative: chapter 12, and LieRE's paper."
    axial = OursGrid(title="axial", method="rope-axial", layout="interleaved", first_axis="rows")
    liere = OursGrid(title="liere", method="liere", not_promised={"relative": own, "axis order": own})
    return [Ours(), axial, liere, OursStates()]


class Timm(Target):
    """One of timm's rotary modules for images."""

    library, half = "timm", False
    make = apply = layer = resampled = ABSENT
    not_promised = {"float64 in, float64 out": "Angles are computed in float32 (docstrings of get_embed)."}

    def fill(self, module: Any) -> None:
        module.init_non_persistent_buffers()

    def table(self, module: Any, height: int, width: int) -> Tensor:
        """Sines and cosines, of the first layer where there are several."""
        made = module.get_embed([height, width])
        return made[0] if made.dim() == 4 else made

    def grid(self, module: Any, x: Tensor, height: int, width: int) -> Any:
        return self.apply(x, self.table(module, height, width), half=self.half)

    def prefix(self, module: Any, x: Tensor, height: int, width: int, count: int) -> Any:
        """The queries that its attention layer hands on, with the identity for its projections."""
        layer = self.layer(WIDTH, HEADS, qkv_bias=False, num_prefix_tokens=count, rotate_half=self.half)
        layer.qkv.weight.data, layer.proj = torch.eye(WIDTH).repeat(3, 1), nn.Identity()
        with mock.patch.object(F, "scaled_dot_product_attention", side_effect=lambda q, k, v, **_: q):
            y = layer(x.transpose(1, 2).flatten(2), rope=self.table(module, height, width))
        return y.unflatten(-1, (HEADS, -1)).transpose(1, 2)

    def resample(self, module: Any, table: Tensor, old: Any, new: Any) -> Any:
        return self.resampled(table.flatten(0, 1)[None], new, old, num_prefix_tokens=0).unflatten(1, new)[0]


def timm() -> list[Target]:
    """Fixed frequencies, learned ones for both axes, and coordinates that end at the border."""
    from timm.layers import pos_embed_sincos as made
    from timm.layers import resample_abs_pos_embed
    from timm.layers.attention import AttentionRope

    of = partial(Timm, apply=made.apply_rot_embed_cat, layer=AttentionRope, resampled=resample_abs_pos_embed)
    axial = partial(made.RotaryEmbeddingCat, DIM, in_pixels=False, temperature=100.0)
    return [
        of(title="axial", make=axial, layout="interleaved", first_axis="rows"),
        of(title="mixed", make=partial(made.RotaryEmbeddingMixed, WIDTH, 1, HEADS), layout="interleaved"),
        of(title="dinov3", make=partial(made.RotaryEmbeddingDinoV3, DIM), half=True, layout="half-split"),
    ]


class Hub(Target):
    """A model of transformers, of one layer."""

    library, padded, sizes = "transformers", True, dict[str, Any]()

    def make(self) -> Any:
        from transformers import AutoConfig, AutoModel

        common = {"num_hidden_layers": 1, "hidden_size": WIDTH, "vocab_size": 8}
        return AutoModel.from_config(AutoConfig.for_model(self.title, **common, **self.sizes))

    def cast(self, module: Any, dtype: torch.dtype) -> Any:
        """As its pages have it, by a dtype beside the configuration."""
        from transformers import AutoModel

        return AutoModel.from_config(module.config, dtype=dtype)


class Llama(Hub):
    """A Llama, its rotation, and PyTorch's attention as models call it; weights are large, so that turns show."""

    title, layout, base, positioned, masked = "llama", "half-split", 10000.0, True, True
    sizes = {"intermediate_size": 16, "num_attention_heads": HEADS, "initializer_range": 0.3}
    not_promised = {
        "NaN at padding": NAN,
        "float64 in, float64 out": "Angles are computed in float32 for every dtype (LlamaRotaryEmbedding.forward).",
        "meta device": "On the meta device, models are filled by from_pretrained (page Loading models).",
    }

    def turn(self, module: Any, q: Tensor, k: Tensor, positions: Tensor) -> Any:
        from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

        return apply_rotary_pos_emb(q, k, *module.rotary_emb(q, positions[None]))

    def attend(self, module: Any, q: Tensor, k: Tensor, v: Tensor, positions: Any, mask: Any) -> Any:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        if positions is not None:
            q, k = self.turn(module, q, k, positions)
        layer: Any = SimpleNamespace()
        return sdpa_attention_forward(layer, q, k, v, mask, is_causal=False)[0].transpose(1, 2)

    def windowed(self, module: Any, q: Tensor, k: Tensor, v: Tensor, window: int | None) -> Any:
        from transformers import masking_utils as masks

        seen = masks.sliding_window_causal_mask_function(window) if window else masks.causal_mask_function
        queries, keys, made = q.shape[2], k.shape[2], partial(masks.sdpa_mask, 1, mask_function=seen)
        mask = made(q_length=queries, kv_length=keys, q_offset=keys - queries, allow_is_causal_skip=False)
        return self.attend(module, q, k, v, None, mask)

    def causal(self, module: Any, q: Tensor, k: Tensor, v: Tensor) -> Any:
        return self.windowed(module, q, k, v, None)

    def run(self, module: Any, x: Tensor, cache: Any, positions: Any, mask: Any) -> Any:
        held = {"past_key_values": cache, "use_cache": True}
        out = module(inputs_embeds=x, position_ids=positions, attention_mask=mask, **held)
        return out.last_hidden_state, out.past_key_values

    def static(self, module: Any, batch: int, slots: int) -> Any:
        from transformers import StaticCache

        return StaticCache(config=module.config, max_cache_len=slots)

    def keep(self, cache: Any, index: Tensor) -> Any:
        layer = cache.layers[0]
        layer.keys, layer.values = layer.keys[:, :, index], layer.values[:, :, index]
        return cache

    def join(self, caches: Any) -> Any:
        first, layers = caches[0].layers[0], [cache.layers[0] for cache in caches]
        first.keys, first.values = (torch.cat([getattr(x, name) for x in layers], 2) for name in ("keys", "values"))
        return caches[0]


class Mamba2(Hub):
    """A Mamba 2, without compiled kernels."""

    title, stateful = "mamba2", True
    sizes = {"num_heads": 2, "head_dim": 16, "state_size": 8, "n_groups": 1, "chunk_size": 4}
    not_promised = {
        "NaN at padding": "Padding is multiplied by 0 (apply_mask_to_padding_states), and no page speaks of NaN."
    }

    def run(self, module: Any, x: Tensor, cache: Any, positions: Any, mask: Any) -> Any:
        mask = None if mask is None else mask.long()[:, -x.shape[1] :]
        out = module(inputs_embeds=x, cache_params=cache, use_cache=True, attention_mask=mask)
        return out.last_hidden_state, out.cache_params


class RotaryTorch(Target):
    """RoPE of rotary-embedding-torch; its cache is keys as they are, here the input itself."""

    library, title, layout, base = "rotary-embedding-torch", "language", "interleaved", 10000.0
    not_promised = {"dynamic sizes": UNSAID}
    make = apply = ABSENT

    def turn(self, module: Any, q: Tensor, k: Tensor, positions: Tensor) -> Any:
        angles = module(positions)
        return self.apply(angles, q), self.apply(angles, k)

    def count(self, module: Any, x: Tensor, offset: int) -> Any:
        return module.rotate_queries_or_keys(x, offset=offset)

    def run(self, module: Any, x: Tensor, cache: Any, positions: Any, mask: Any) -> Any:
        x = x.unflatten(-1, (HEADS, -1)).transpose(1, 2)
        keys = x if cache is None else torch.cat([cache, x], 2)
        q, k = module.rotate_queries_with_cached_keys(x, keys)
        seen = torch.ones(x.shape[2], keys.shape[2], dtype=torch.bool).tril(keys.shape[2] - x.shape[2])
        return F.scaled_dot_product_attention(q, k, keys, seen).transpose(1, 2).flatten(2), keys


class RotaryTorchGrid(Target):
    """Axial RoPE of rotary-embedding-torch."""

    library, title, not_promised = "rotary-embedding-torch", "pixels", RotaryTorch.not_promised
    make = apply = ABSENT

    def grid(self, module: Any, x: Tensor, height: int, width: int) -> Any:
        return self.apply(module.get_axial_freqs(height, width), x.unflatten(2, (height, width))).flatten(2, 3)


def rotary() -> list[Target]:
    """Its RoPE for texts, and that for pixels."""
    from rotary_embedding_torch import RotaryEmbedding, apply_rotary_emb

    pixels = partial(RotaryEmbedding, dim=DIM // 2, freqs_for="pixel", max_freq=10)
    text = RotaryTorch(make=partial(RotaryEmbedding, dim=DIM), apply=apply_rotary_emb)
    return [text, RotaryTorchGrid(make=pixels, apply=apply_rotary_emb)]


class XTransformers(Target):
    """RoPE of x-transformers, and a decoder of one layer, which is told how many tokens are new."""

    library, title, layout, base, padded = "x-transformers", "rope", "interleaved", 10000.0, True
    not_promised = {"NaN at padding": NAN}
    make = apply = ABSENT

    def turn(self, module: Any, q: Tensor, k: Tensor, positions: Tensor) -> Any:
        angles, _ = module.rotary_pos_emb(positions)
        return self.apply(q, angles), self.apply(k, angles)

    def run(self, module: Any, x: Tensor, cache: Any, positions: Any, mask: Any) -> Any:
        new = {} if cache is None else {"cache": cache, "cache_age": x.shape[1], "input_not_include_cache": True}
        return module(x, mask=mask, return_hiddens=True, **new)


def x_transformers() -> list[Target]:
    """Its decoder."""
    from x_transformers.x_transformers import Decoder, apply_rotary_pos_emb

    options = {"attn_dim_head": DIM, "rotary_pos_emb": True, "rotary_emb_dim": DIM, "verbose": False}
    make = partial(Decoder, dim=WIDTH, depth=1, heads=HEADS, **options)
    return [XTransformers(make=make, apply=apply_rotary_pos_emb)]


def tokens_first(form: Callable[..., Any], *told: Any) -> Any:
    """One of its forms, in which tokens stand before heads, as a target has them."""
    y, state = form(*(t.transpose(1, 2) for t in told[:4]), initial_state=told[4])
    return y.transpose(1, 2), state


class FlaForms(Target):
    """Gated linear attention of flash-linear-attention, by its plain forms, which need no GPU."""

    library, title, stateless = "fla-core", "simple-gla", ("parallel",)

    def make(self) -> Any:
        """The functions of one file: the package compiles kernels when it is imported."""
        path = str(distribution("fla-core").locate_file("fla/ops/simple_gla/naive.py"))
        spec: Any = importlib.util.spec_from_file_location("fla_simple_gla_naive", path)
        sys.modules[spec.name] = plain = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(plain)
        return plain

    def forms(self, plain: Any) -> Any:
        chunk = partial(plain.naive_chunk_simple_gla, chunk_size=self.chunk, output_final_state=True)
        parallel = lambda *x, initial_state: plain.naive_parallel_simple_gla(*x)  # noqa: E731
        made = {"recurrent": plain.naive_recurrent_simple_gla, "chunk": chunk, "parallel": parallel}
        return {name: partial(tokens_first, form) for name, form in made.items()}


TARGETS: dict[str, Callable[[], list[Target]]] = {
    "geolib": ours,
    "timm": timm,
    "transformers": lambda: [Llama(), Mamba2()],
    "x_transformers": x_transformers,
    "rotary_embedding_torch": rotary,
    "fla": lambda: [FlaForms()],
}
