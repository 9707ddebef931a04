"""Adapters of some libraries. What a library does not promise is listed with where its own pages or source say so."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
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

WIDTH = Target.heads * Target.head_dim


class Named(Target):
    """A target whose class has its column's name."""

    title = ""

    @property
    def name(self) -> str:
        """What its column is called."""
        return self.title


# geolib ---------------------------------------------------------------------------------------------------------------


class _OneLayer(nn.Module):
    """An encoding, and what makes queries, keys and values."""

    def __init__(self, encoding: Encoding):
        super().__init__()
        self.encoding, self.qkv = encoding, nn.Linear(WIDTH, 3 * WIDTH)


class OursText(Named):
    """RoPE for texts, with a cache of keys as they are and of their positions."""

    library, title, layout = "geometry-of-attention", "rope", "interleaved"
    positioned = padded = masked = True

    def make(self) -> nn.Module:
        """An encoding and a layer around it."""
        return _OneLayer(RoPE.text(self.head_dim))

    def turn(self, module: Any, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """To the reference space."""
        return module.encoding.place(positions).to_reference(q, k)

    def attend(self, module: Any, q: Tensor, k: Tensor, v: Tensor, positions: Tensor, mask: Any) -> Tensor:
        """All that the encoding does in a layer."""
        return module.encoding.place(positions).attention(q, k, v, mask=mask)

    def causal(self, module: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Without positions."""
        return Encoding().place(torch.zeros(1)).attention(q, k, v, causal=True)

    def run(self, module: Any, x: Tensor, cache: Any, positions: Any, mask: Any) -> tuple[Tensor, Any]:
        """A cache is keys, values and their positions."""
        q, k, v = module.qkv(x).unflatten(-1, (3, self.heads, self.head_dim)).permute(2, 0, 3, 1, 4)
        if positions is None:
            positions = torch.arange(x.shape[1], device=x.device).expand(len(x), -1)
            positions = positions + (0 if cache is None else cache[0].shape[2])
        there = positions
        if cache is not None:
            k, v, there = (torch.cat(both, -1 if both[0].dim() == 2 else -2) for both in zip(cache, (k, v, positions)))
        placed = module.encoding.place(positions[..., None], keys=there[..., None])
        mask = mask if mask is None or mask.dim() == 4 else mask[:, None, None]
        return placed.attention(q, k, v, causal=True, mask=mask).transpose(1, 2).flatten(2), (k, v, there)

    def keep(self, cache: Any, index: Tensor) -> Any:
        """These tokens alone."""
        return cache[0][:, :, index], cache[1][:, :, index], cache[2][:, index]

    def join(self, caches: Any) -> Any:
        """One after another."""
        k, v, there = zip(*caches)
        return torch.cat(k, 2), torch.cat(v, 2), torch.cat(there, 1)


class OursGrid(Named):
    """A method of the registry on a grid."""

    library, axes = "geometry-of-attention", 2

    def __init__(self, title: str, method: str, **promised: Any):
        self.title, self.method = title, method
        for key, value in promised.items():
            setattr(self, key, value)

    def make(self) -> nn.Module:
        """By name."""
        return build(self.method, width=WIDTH, heads=self.heads, grid=(4, 4))

    def turn(self, module: Any, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """To the reference space."""
        return module.place(positions).layer(0).to_reference(q, k)

    def grid(self, module: Any, x: Tensor, height: int, width: int) -> Tensor:
        """At the cells of a grid."""
        return self.turn(module, x, x, grid_positions(height, width))[0]

    def prefix(self, module: Any, x: Tensor, height: int, width: int, count: int) -> Tensor:
        """Behind tokens without a place."""
        placed = module.place(grid_positions(height, width)).layer(0).with_prefix_tokens(count)
        return placed.to_reference(x, x)[0]


class OursStates(Named):
    """Symmetric powers: three forms of one sum, and the layer."""

    library, title, padded = "geometry-of-attention", "sympow", True
    stateless = ("attention",)

    def make(self) -> nn.Module:
        """The layer."""
        return SympowAttention(WIDTH, self.heads, chunk=self.chunk)

    def forms(self, module: Any) -> dict[str, Callable[..., tuple[Tensor, Any]]]:
        """The power 2."""

        def chunked(q: Tensor, k: Tensor, v: Tensor, gates: Tensor, state: Any) -> tuple[Tensor, Any]:
            attended, state = chunked_form(q, k, v, 2, gates, state=state, chunk=self.chunk)
            return attended.output, state

        def recurrent(q: Tensor, k: Tensor, v: Tensor, gates: Tensor, state: Any) -> tuple[Tensor, Any]:
            attended, state = recurrent_form(q, k, v, 2, gates, state=state)
            return attended.output, state

        attention = lambda q, k, v, gates, state: (attention_form(q, k, v, 2, gates).output, None)  # noqa: E731
        return {"recurrent": recurrent, "chunked": chunked, "attention": attention}

    def run(self, module: Any, x: Tensor, cache: Any, positions: Any, mask: Any) -> tuple[Tensor, Any]:
        """A cache is a state; the mask is that of the new tokens."""
        return module(x, cache, mask=None if mask is None else mask[:, -x.shape[1] :])


def ours() -> list[Target]:
    """This library's."""
    of_paper = "LieRE's generators do not commute, and its paper says that scores are then not relative to the digit."
    return [
        OursText(),
        OursGrid("axial", "rope-axial", layout="interleaved", first_axis="rows"),
        OursGrid("liere", "liere", not_promised={"relative": of_paper, "axis order": of_paper, "unit and origin": of_paper}),
        OursStates(),
    ]


# timm -----------------------------------------------------------------------------------------------------------------


class Timm(Named):
    """One of timm's rotary modules for images."""

    library = "timm"

    def __init__(self, title: str, make: Callable[[], nn.Module], half: bool, **promised: Any):
        self.title, self.make_it, self.half = title, make, half
        for key, value in promised.items():
            setattr(self, key, value)

    def make(self) -> nn.Module:
        """Without a shape, so that each call brings one."""
        return self.make_it()

    def grid(self, module: Any, x: Tensor, height: int, width: int) -> Tensor:
        """By a table of sines and cosines."""
        from timm.layers.pos_embed_sincos import apply_rot_embed_cat

        table = module.get_embed([height, width])
        return apply_rot_embed_cat(x, table[0] if table.dim() == 4 else table, half=self.half)

    def prefix(self, module: Any, x: Tensor, height: int, width: int, count: int) -> Tensor:
        """The queries that its attention layer hands on, with the identity for its projections."""
        from timm.layers.attention import AttentionRope

        layer = AttentionRope(WIDTH, self.heads, qkv_bias=False, num_prefix_tokens=count, rotate_half=self.half)
        layer.qkv.weight.data = torch.eye(WIDTH).repeat(3, 1)
        table = module.get_embed([height, width])
        with mock.patch.object(F, "scaled_dot_product_attention", side_effect=lambda q, k, v, **_: q):
            layer.proj = nn.Identity()
            y = layer(x.transpose(1, 2).flatten(2), rope=table[0] if table.dim() == 4 else table)
        return y.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def resample(self, module: Any, table: Tensor, old: Any, new: Any) -> Tensor:
        """Its learned tables for another grid."""
        from timm.layers import resample_abs_pos_embed

        return resample_abs_pos_embed(table.flatten(0, 1)[None], new, old, num_prefix_tokens=0).unflatten(1, new)[0]


def timm() -> list[Target]:
    """Frequencies that are fixed, learned for both axes, and of coordinates that end at the border."""
    from timm.layers.pos_embed_sincos import RotaryEmbeddingCat, RotaryEmbeddingDinoV3, RotaryEmbeddingMixed

    d = Target.head_dim
    return [
        Timm("axial", lambda: RotaryEmbeddingCat(d, in_pixels=False, temperature=100.0), False, layout="interleaved"),
        Timm("mixed", lambda: RotaryEmbeddingMixed(WIDTH, 1, Target.heads), False, layout="interleaved"),
        Timm("dinov3", lambda: RotaryEmbeddingDinoV3(d), True, layout="half-split"),
    ]


# transformers ---------------------------------------------------------------------------------------------------------


class Llama(Named):
    """A Llama of one layer, its rotation and its attention."""

    library, title, layout = "transformers", "llama", "half-split"
    positioned = padded = masked = True

    def make(self) -> nn.Module:
        """Weights large enough that rotations show."""
        from transformers import LlamaConfig, LlamaModel

        sizes = {"hidden_size": WIDTH, "intermediate_size": 16, "num_attention_heads": self.heads, "vocab_size": 8}
        return LlamaModel(LlamaConfig(num_hidden_layers=1, initializer_range=0.3, max_position_embeddings=8192, **sizes))

    def turn(self, module: Any, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """As its layers do."""
        from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

        return apply_rotary_pos_emb(q, k, *module.rotary_emb(q, positions[None]))

    def attend(self, module: Any, q: Tensor, k: Tensor, v: Tensor, positions: Tensor, mask: Any) -> Tensor:
        """By its interface to PyTorch's attention."""
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        if positions is not None:
            q, k = self.turn(module, q, k, positions)
        here = SimpleNamespace(num_key_value_groups=1, is_causal=False)
        return sdpa_attention_forward(here, q, k, v, mask, is_causal=False)[0].transpose(1, 2)  # type: ignore[arg-type]

    def windowed(self, module: Any, q: Tensor, k: Tensor, v: Tensor, window: int | None) -> Tensor:
        """By the masks that its models make."""
        from transformers.masking_utils import causal_mask_function, sdpa_mask, sliding_window_causal_mask_function

        seen = causal_mask_function if window is None else sliding_window_causal_mask_function(window)
        sizes = {"batch_size": 1, "q_length": q.shape[2], "kv_length": k.shape[2], "q_offset": k.shape[2] - q.shape[2]}
        return self.attend(module, q, k, v, None, sdpa_mask(mask_function=seen, allow_is_causal_skip=False, **sizes))

    def causal(self, module: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """The same without a window."""
        return self.windowed(module, q, k, v, None)

    def run(self, module: Any, x: Tensor, cache: Any, positions: Any, mask: Any) -> tuple[Tensor, Any]:
        """The whole model."""
        from transformers import DynamicCache

        cache = DynamicCache(config=module.config) if cache is None else cache
        out = module(inputs_embeds=x, past_key_values=cache, position_ids=positions, attention_mask=mask, use_cache=True)
        return out.last_hidden_state, cache

    def static(self, module: Any, batch: int, slots: int) -> Any:
        """Its cache of a fixed size."""
        from transformers import StaticCache

        return StaticCache(config=module.config, max_cache_len=slots)

    def keep(self, cache: Any, index: Tensor) -> Any:
        """These tokens alone."""
        layer = cache.layers[0]
        layer.keys, layer.values = layer.keys[:, :, index], layer.values[:, :, index]
        return cache

    def join(self, caches: Any) -> Any:
        """One after another."""
        first = caches[0].layers[0]
        first.keys = torch.cat([cache.layers[0].keys for cache in caches], 2)
        first.values = torch.cat([cache.layers[0].values for cache in caches], 2)
        return caches[0]


class Mamba2(Named):
    """A Mamba 2 of one layer, without compiled kernels."""

    library, title, padded = "transformers", "mamba2", True

    def make(self) -> nn.Module:
        """Two heads of 16 features."""
        from transformers import Mamba2Config, Mamba2Model

        sizes = {"hidden_size": WIDTH, "num_heads": 2, "head_dim": 16, "state_size": 8, "n_groups": 1, "vocab_size": 8}
        return Mamba2Model(Mamba2Config(num_hidden_layers=1, chunk_size=4, **sizes))

    def run(self, module: Any, x: Tensor, cache: Any, positions: Any, mask: Any) -> tuple[Tensor, Any]:
        """The whole model."""
        mask = None if mask is None else mask.long()[:, -x.shape[1] :]
        out = module(inputs_embeds=x, cache_params=cache, use_cache=True, attention_mask=mask)
        return out.last_hidden_state, out.cache_params


# Others ---------------------------------------------------------------------------------------------------------------


class RotaryTorch(Named):
    """RoPE of rotary-embedding-torch; its cache is keys as they are."""

    library, title, layout = "rotary-embedding-torch", "language", "interleaved"

    def make(self) -> nn.Module:
        """As its pages have it."""
        from rotary_embedding_torch import RotaryEmbedding

        return RotaryEmbedding(dim=self.head_dim)

    def turn(self, module: Any, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """At positions of one's own."""
        from rotary_embedding_torch import apply_rotary_emb

        angles = module(positions)
        return apply_rotary_emb(angles, q), apply_rotary_emb(angles, k)

    def count(self, module: Any, x: Tensor, offset: int) -> Tensor:
        """Counted."""
        return module.rotate_queries_or_keys(x, offset=offset)

    def run(self, module: Any, x: Tensor, cache: Any, positions: Any, mask: Any) -> tuple[Tensor, Any]:
        """Keys and values are the input."""
        x = x.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        keys = x if cache is None else torch.cat([cache, x], 2)
        q, k = module.rotate_queries_with_cached_keys(x, keys)
        seen = torch.ones(x.shape[2], keys.shape[2], dtype=torch.bool).tril(keys.shape[2] - x.shape[2])
        return F.scaled_dot_product_attention(q, k, keys, seen).transpose(1, 2).flatten(2), keys


class RotaryTorchGrid(Named):
    """Axial RoPE of rotary-embedding-torch."""

    library, title = "rotary-embedding-torch", "pixels"

    def make(self) -> nn.Module:
        """As its pages have it."""
        from rotary_embedding_torch import RotaryEmbedding

        return RotaryEmbedding(dim=self.head_dim // 2, freqs_for="pixel", max_freq=10)

    def grid(self, module: Any, x: Tensor, height: int, width: int) -> Tensor:
        """By angles of all cells."""
        from rotary_embedding_torch import apply_rotary_emb

        return apply_rotary_emb(module.get_axial_freqs(height, width), x.unflatten(2, (height, width))).flatten(2, 3)


class XTransformers(Named):
    """RoPE of x-transformers, and a decoder of one layer."""

    library, title, layout, padded = "x-transformers", "rope", "interleaved", True

    def make(self) -> nn.Module:
        """Without what comes after attention."""
        from x_transformers import Decoder

        return Decoder(dim=WIDTH, depth=1, heads=self.heads, attn_dim_head=self.head_dim, rotary_pos_emb=True, verbose=False,
                       rotary_emb_dim=self.head_dim)  # fmt: skip

    def turn(self, module: Any, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """As its layers do."""
        from x_transformers.x_transformers import apply_rotary_pos_emb

        angles, _ = module.rotary_pos_emb(positions)
        return apply_rotary_pos_emb(q, angles), apply_rotary_pos_emb(k, angles)

    def run(self, module: Any, x: Tensor, cache: Any, positions: Any, mask: Any) -> tuple[Tensor, Any]:
        """The decoder; with a cache it is told how many tokens are new."""
        new = {} if cache is None else {"cache": cache, "cache_age": x.shape[1], "input_not_include_cache": True}
        return module(x, mask=mask, return_hiddens=True, **new)


class FlaForms(Named):
    """Gated linear attention of flash-linear-attention, by its plain forms, which need no GPU."""

    library, title, stateless = "fla-core", "simple-gla", ("parallel",)

    def forms(self, module: Any) -> dict[str, Callable[..., tuple[Tensor, Any]]]:
        """Tokens stand before heads there."""
        plain = _plain_form("simple_gla")

        def of(name: str, **options: Any) -> Callable[..., tuple[Tensor, Any]]:
            def form(q: Tensor, k: Tensor, v: Tensor, gates: Tensor, state: Any) -> tuple[Tensor, Any]:
                given = options | ({"initial_state": state} if name != "parallel" else {})
                x = (t.transpose(1, 2) for t in (q, k, v, gates))
                y, state = getattr(plain, f"naive_{name}_simple_gla")(*x, **given)
                return y.transpose(1, 2), state

            return form

        chunked = of("chunk", chunk_size=self.chunk, output_final_state=True)
        return {"recurrent": of("recurrent"), "chunk": chunked, "parallel": of("parallel")}


class FlaLayer(Named):
    """A layer of flash-linear-attention, whose kernels need a GPU."""

    library, title, padded = "fla-core", "layers", True

    def made(self) -> Any:
        """None without a GPU."""
        raise CannotTry("its kernels need a GPU, and there is none here")

    def run(self, module: Any, x: Tensor, cache: Any, positions: Any, mask: Any) -> tuple[Tensor, Any]:
        """Not reached here."""
        raise CannotTry("its kernels need a GPU, and there is none here")


def _plain_form(operation: str) -> ModuleType:
    """The file of a plain form by itself: its package compiles kernels on import."""
    found = importlib.util.find_spec("fla")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("fla is not installed")
    path = Path(found.submodule_search_locations[0]) / "ops" / operation / "naive.py"
    spec = importlib.util.spec_from_file_location(f"fla_{operation}_naive", path)
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    return module


TARGETS: dict[str, Callable[[], list[Target]]] = {
    "geolib": ours,
    "timm": timm,
    "transformers": lambda: [Llama(), Mamba2()],
    "x_transformers": lambda: [XTransformers()],
    "rotary_embedding_torch": lambda: [RotaryTorch(), RotaryTorchGrid()],
    "fla": lambda: [FlaForms(), FlaLayer()],
}
