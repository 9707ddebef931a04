"""Adapters of some libraries. What one of them does not promise stands here with where its pages or source say so."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from geolib.attention import Encoding
from geolib.conform.core import CannotTry, Target
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

    library, title, layout, positioned, padded, masked = (
        "geometry-of-attention",
        "rope",
        "interleaved",
        True,
        True,
        True,
    )
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
        if cache is not None:
            held = tuple(torch.cat(both, -2) for both in zip(cache, held))
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
        return self.turn(module, x, x, grid_positions(height, width))[0]

    def prefix(self, module: Any, x: Tensor, height: int, width: int, count: int) -> Any:
        placed = module.place(grid_positions(height, width)).layer(0)
        return placed.with_prefix_tokens(count).to_reference(x, x)[0]


class OursStates(Target):
    """Symmetric powers: three forms of one sum, and the layer, whose cache is a state."""

    library, title, padded, stateful, stateless = "geometry-of-attention", "sympow", True, True, ("attention",)

    def make(self) -> Any:
        return SympowAttention(WIDTH, HEADS, chunk=self.chunk)

    def forms(self, module: Any) -> Any:
        def of(form: Callable[..., Any]) -> Callable[..., Any]:
            def run(q: Tensor, k: Tensor, v: Tensor, gates: Tensor, state: Any) -> Any:
                attended, state = form(q, k, v, 2, gates, state=state)
                return attended.output, state

            return run

        attention = lambda q, k, v, gates, _: (attention_form(q, k, v, 2, gates).output, None)  # noqa: E731
        return {"recurrent": of(recurrent_form), "chunked": of(partial(chunked_form, chunk=4)), "attention": attention}

    def run(self, module: Any, x: Tensor, cache: Any, positions: Any, mask: Any) -> Any:
        return module(x, cache, mask=None if mask is None else mask[:, -x.shape[1] :])


def ours() -> list[Target]:
    """This library's."""
    own = "Generators of two axes do not commute, and then scores are not relative: chapter 12, and LieRE's paper."
    liere = {"relative": own, "axis order": own}
    axial = OursGrid(title="axial", method="rope-axial", layout="interleaved", first_axis="rows")
    return [Ours(), axial, OursGrid(title="liere", method="liere", not_promised=liere), OursStates()]


class Timm(Target):
    """One of timm's rotary modules for images."""

    library, half = "timm", False
    make: Any
    apply: Any
    layer: Any
    resampled: Any
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


class Llama(Target):
    """A Llama of one layer, its rotation, and PyTorch's attention as its models call it."""

    library, title, layout, positioned, padded, masked = "transformers", "llama", "half-split", True, True, True
    not_promised = {
        "NaN at padding": NAN,
        "float64 in, float64 out": "Angles are computed in float32 for every dtype (LlamaRotaryEmbedding.forward).",
        "meta device": "On the meta device, models are filled by from_pretrained (page Loading models).",
    }

    def make(self) -> Any:
        """Weights large enough that rotations show."""
        from transformers import LlamaConfig, LlamaModel

        sizes: dict[str, Any] = {
            "hidden_size": WIDTH,
            "intermediate_size": 16,
            "num_attention_heads": HEADS,
            "vocab_size": 8,
        }
        return LlamaModel(
            LlamaConfig(num_hidden_layers=1, initializer_range=0.3, max_position_embeddings=8192, **sizes)
        )

    def cast(self, module: Any, dtype: torch.dtype) -> Any:
        """As its pages have it, by a dtype beside the configuration."""
        from transformers import AutoModel

        return AutoModel.from_config(module.config, dtype=dtype)

    def turn(self, module: Any, q: Tensor, k: Tensor, positions: Tensor) -> Any:
        from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

        return apply_rotary_pos_emb(q, k, *module.rotary_emb(q, positions[None]))

    def attend(self, module: Any, q: Tensor, k: Tensor, v: Tensor, positions: Any, mask: Any) -> Any:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        if positions is not None:
            q, k = self.turn(module, q, k, positions)
        return sdpa_attention_forward(SimpleNamespace(), q, k, v, mask, is_causal=False)[0].transpose(1, 2)  # type: ignore[arg-type]

    def windowed(self, module: Any, q: Tensor, k: Tensor, v: Tensor, window: int | None) -> Any:
        from transformers.masking_utils import causal_mask_function, sdpa_mask, sliding_window_causal_mask_function

        seen = sliding_window_causal_mask_function(window) if window else causal_mask_function
        sizes: dict[str, Any] = {
            "batch_size": 1,
            "q_length": q.shape[2],
            "kv_length": k.shape[2],
            "q_offset": k.shape[2] - q.shape[2],
        }
        return self.attend(module, q, k, v, None, sdpa_mask(mask_function=seen, allow_is_causal_skip=False, **sizes))

    def causal(self, module: Any, q: Tensor, k: Tensor, v: Tensor) -> Any:
        return self.windowed(module, q, k, v, None)

    def run(self, module: Any, x: Tensor, cache: Any, positions: Any, mask: Any) -> Any:
        out = module(
            inputs_embeds=x, past_key_values=cache, position_ids=positions, attention_mask=mask, use_cache=True
        )
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


class Mamba2(Target):
    """A Mamba 2 of one layer, without compiled kernels."""

    library, title, padded, stateful = "transformers", "mamba2", True, True
    not_promised = {
        "NaN at padding": "Padding is multiplied by 0 (apply_mask_to_padding_states), and no page speaks of NaN."
    }

    def make(self) -> Any:
        from transformers import Mamba2Config, Mamba2Model

        sizes: dict[str, Any] = {
            "hidden_size": WIDTH,
            "num_heads": 2,
            "head_dim": 16,
            "state_size": 8,
            "n_groups": 1,
            "vocab_size": 8,
        }
        return Mamba2Model(Mamba2Config(num_hidden_layers=1, chunk_size=4, **sizes))

    def run(self, module: Any, x: Tensor, cache: Any, positions: Any, mask: Any) -> Any:
        mask = None if mask is None else mask.long()[:, -x.shape[1] :]
        out = module(inputs_embeds=x, cache_params=cache, use_cache=True, attention_mask=mask)
        return out.last_hidden_state, out.cache_params


class RotaryTorch(Target):
    """RoPE of rotary-embedding-torch; its cache is keys as they are, here the input itself."""

    library, title, layout = "rotary-embedding-torch", "language", "interleaved"
    not_promised = {"dynamic sizes": UNSAID}

    def make(self) -> Any:
        from rotary_embedding_torch import RotaryEmbedding

        return RotaryEmbedding(dim=DIM)

    def turn(self, module: Any, q: Tensor, k: Tensor, positions: Tensor) -> Any:
        from rotary_embedding_torch import apply_rotary_emb

        angles = module(positions)
        return apply_rotary_emb(angles, q), apply_rotary_emb(angles, k)

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

    library, title = "rotary-embedding-torch", "pixels"
    not_promised = {"dynamic sizes": UNSAID}

    def make(self) -> Any:
        from rotary_embedding_torch import RotaryEmbedding

        return RotaryEmbedding(dim=DIM // 2, freqs_for="pixel", max_freq=10)

    def grid(self, module: Any, x: Tensor, height: int, width: int) -> Any:
        from rotary_embedding_torch import apply_rotary_emb

        return apply_rotary_emb(module.get_axial_freqs(height, width), x.unflatten(2, (height, width))).flatten(2, 3)


class XTransformers(Target):
    """RoPE of x-transformers, and a decoder of one layer, which is told how many tokens are new."""

    library, title, layout, padded = "x-transformers", "rope", "interleaved", True
    not_promised = {"NaN at padding": NAN}

    def make(self) -> Any:
        from x_transformers import Decoder

        options = {"attn_dim_head": DIM, "rotary_pos_emb": True, "rotary_emb_dim": DIM, "verbose": False}
        return Decoder(dim=WIDTH, depth=1, heads=HEADS, **options)

    def turn(self, module: Any, q: Tensor, k: Tensor, positions: Tensor) -> Any:
        from x_transformers.x_transformers import apply_rotary_pos_emb

        angles, _ = module.rotary_pos_emb(positions)
        return apply_rotary_pos_emb(q, angles), apply_rotary_pos_emb(k, angles)

    def run(self, module: Any, x: Tensor, cache: Any, positions: Any, mask: Any) -> Any:
        new = {} if cache is None else {"cache": cache, "cache_age": x.shape[1], "input_not_include_cache": True}
        return module(x, mask=mask, return_hiddens=True, **new)


class FlaForms(Target):
    """Gated linear attention of flash-linear-attention, by its plain forms, which need no GPU."""

    library, title, stateless = "fla-core", "simple-gla", ("parallel",)

    def make(self) -> Any:
        """The functions of one file: the package compiles kernels when it is imported."""
        found = importlib.util.find_spec("fla")
        if found is None or not found.submodule_search_locations:
            raise CannotTry("fla is not installed")
        path = Path(found.submodule_search_locations[0]) / "ops" / "simple_gla" / "naive.py"
        spec: Any = importlib.util.spec_from_file_location("fla_simple_gla_naive", path)
        sys.modules[spec.name] = plain = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(plain)
        chunk = partial(plain.naive_chunk_simple_gla, chunk_size=self.chunk, output_final_state=True)
        parallel = lambda *x, initial_state: plain.naive_parallel_simple_gla(*x)  # noqa: E731
        return {"recurrent": plain.naive_recurrent_simple_gla, "chunk": chunk, "parallel": parallel}

    def forms(self, module: Any) -> Any:
        """Tokens stand before heads there."""

        def of(form: Callable[..., Any]) -> Callable[..., Any]:
            def run(q: Tensor, k: Tensor, v: Tensor, gates: Tensor, state: Any) -> Any:
                y, state = form(*(t.transpose(1, 2) for t in (q, k, v, gates)), initial_state=state)
                return y.transpose(1, 2), state

            return run

        return {name: of(form) for name, form in module.items()}


class FlaLayers(Target):
    """Layers of flash-linear-attention, whose kernels need a GPU."""

    library, title, padded, stateful, run = "fla-core", "layers", True, True, True

    def made(self) -> Any:
        """Nothing without a GPU."""
        raise CannotTry("its kernels need a GPU, and there is none here")


TARGETS: dict[str, Callable[[], list[Target]]] = {
    "geolib": ours,
    "timm": timm,
    "transformers": lambda: [Llama(), Mamba2()],
    "x_transformers": lambda: [XTransformers()],
    "rotary_embedding_torch": lambda: [RotaryTorch(), RotaryTorchGrid()],
    "fla": lambda: [FlaForms(), FlaLayers()],
}
