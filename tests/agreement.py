"""How far this library's results are from other libraries' for the same numbers: the largest difference of each.

Each comparison runs where its library is installed: ``pip install "geometry-of-attention[others]"`` brings them.
``python tests/agreement.py FILE`` writes the record that the page *Use it in your model* reads. Both sides compute in
float32, so differences of some 1e-6 are rounding.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from geolib.attention import Encoding, Placed, attention
from geolib.encodings import ALiBi, HalfSplit, RoPE
from geolib.lab.benches import saved
from geolib.masks import padding_mask
from geolib.recurrence import log_decay
from geolib.rotations import (
    grid_positions,
    interpolated,
    language_frequencies,
    ntk_aware,
    ntk_by_parts,
    yarn_frequencies,
    yarn_length,
)

HEADS, TOKENS, DIM = 4, 24, 32

Pair = tuple[Tensor, Tensor]
"""What this library and the other one computed."""


@dataclass(frozen=True)
class Comparison:
    """A result of this library beside another library's."""

    package: str
    """The other library as it is imported."""
    distribution: str
    """The same as it is installed."""
    what: str
    both: Callable[[], Pair]


COMPARISONS: list[Comparison] = []


def _with(package: str, distribution: str, what: str) -> Callable[[Callable[[], Pair]], Callable[[], Pair]]:
    """Enter a comparison."""

    def enter(both: Callable[[], Pair]) -> Callable[[], Pair]:
        COMPARISONS.append(Comparison(package, distribution, what, both))
        return both

    return enter


def _queries(seed: int = 0, heads: int = HEADS, tokens: int = TOKENS) -> Tensor:
    return torch.randn(2, heads, tokens, DIM, generator=torch.Generator().manual_seed(seed))


def _turned(encoding: Encoding, x: Tensor, positions: Tensor) -> Tensor:
    return encoding.place(positions).to_reference(x, x)[0]


# rotary-embedding-torch: interleaved pairs ---------------------------------------------------------------------------


def _lucid(**options: Any) -> Any:
    from rotary_embedding_torch import RotaryEmbedding

    return RotaryEmbedding(dim=DIM, **options)


_rotary = ("rotary_embedding_torch", "rotary-embedding-torch")


def _rotated(frequencies: Tensor, **options: Any) -> Callable[[], Pair]:
    """Queries turned by frequencies of ours and by its module with these options."""

    def both() -> Pair:
        q = _queries()
        ours = _turned(RoPE(frequencies), q, torch.arange(float(TOKENS)))
        return ours, _lucid(**options).rotate_queries_or_keys(q)

    return both


_usual = language_frequencies(DIM)
_with(*_rotary, "RoPE of queries")(_rotated(_usual))
_with(*_rotary, "position interpolation")(_rotated(interpolated(_usual, 4.0), interpolate_factor=4.0))
_with(*_rotary, "NTK-aware scaling")(_rotated(ntk_aware(_usual, 4.0), theta_rescale_factor=4.0))


@_with(*_rotary, "queries beside a cache of keys")
def rotary_cache() -> Pair:
    """The last three queries, all keys: scores."""
    q, k = _queries(tokens=3), _queries(1)
    positions = torch.arange(float(TOKENS))
    a, b = RoPE(_usual).place(positions[-3:], keys=positions).to_reference(q, k)
    c, d = _lucid().rotate_queries_with_cached_keys(q, k)
    return a @ b.mT, c @ d.mT


@_with(*_rotary, "RoPE on a grid of pixels")
def rotary_axial() -> Pair:
    """Frequencies along each axis of 4 x 6 cells that span [-1, 1]."""
    rotary, q = _lucid(freqs_for="pixel", max_freq=10), _queries()
    from rotary_embedding_torch import apply_rotary_emb

    theirs = apply_rotary_emb(rotary.get_axial_freqs(4, 6), torch.cat([q, q], -1).unflatten(2, (4, 6)))
    bands = torch.linspace(1.0, 5.0, DIM // 2) * math.pi
    zero = torch.zeros_like(bands)
    frequencies = torch.cat([torch.stack([bands, zero], -1), torch.stack([zero, bands], -1)])
    positions = grid_positions(4, 6) / torch.tensor([3.0, 5.0]) * 2 - 1
    return _turned(RoPE(frequencies), torch.cat([q, q], -1), positions), theirs.flatten(2, 3)


# x-transformers ------------------------------------------------------------------------------------------------------


@_with("x_transformers", "x-transformers", "RoPE of half a head's features")
def x_rotary() -> Pair:
    """Partial rotary, interleaved pairs."""
    from x_transformers.x_transformers import RotaryEmbedding, apply_rotary_pos_emb

    q, (freqs, _) = _queries(), RotaryEmbedding(DIM // 2).forward_from_seq_len(TOKENS)
    ours = _turned(RoPE.text(DIM, rotary_dim=DIM // 2), q, torch.arange(float(TOKENS)))
    return ours, apply_rotary_pos_emb(q, freqs)


@_with("x_transformers", "x-transformers", "ALiBi's penalty, 8 heads")
def x_alibi() -> Pair:
    """The gate for all pairs."""
    from x_transformers.x_transformers import AlibiPositionalBias

    gate = ALiBi(8).place(torch.arange(float(TOKENS))).as_score_mod()
    index = [torch.arange(n).view([-1 if a == p else 1 for p in range(3)]) for a, n in enumerate((8, TOKENS, TOKENS))]
    return gate(torch.zeros(()), 0, *index), AlibiPositionalBias(8)(TOKENS, TOKENS)  # type: ignore[misc]


# timm ----------------------------------------------------------------------------------------------------------------


@_with("timm", "timm", "RoPE on a grid, scores")
def timm_axial() -> Pair:
    """Its axial embedding has both axes in turn for each band, ours in blocks: scores do not know the difference."""
    from timm.layers import apply_rot_embed_cat, build_rotary_pos_embed

    sin, cos = build_rotary_pos_embed([4, 6], dim=DIM, temperature=100.0, in_pixels=False)
    q, k = _queries(), _queries(1)
    c, d = (apply_rot_embed_cat(x, torch.cat([sin, cos], -1)) for x in (q, k))
    bands = 100.0 ** (-torch.arange(DIM // 4) / (DIM // 4))
    zero = torch.zeros_like(bands)
    frequencies = torch.cat([torch.stack([bands, zero], -1), torch.stack([zero, bands], -1)])
    a, b = RoPE(frequencies).place(grid_positions(4, 6)).to_reference(q, k)
    return a @ b.mT, c @ d.mT


@_with("timm", "timm", "a vision transformer with its attention replaced")
def timm_vit() -> Pair:
    """Class scores of two small layers, positions left to timm's own table."""
    import timm

    torch.manual_seed(0)
    options = {"img_size": 32, "patch_size": 8, "num_classes": 10, "depth": 2}
    vit = timm.create_model("vit_tiny_patch16_224", **options).eval()
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        for block in vit.blocks:
            block.attn.qkv.weight *= 8  # so that scores show in the result
        theirs = vit(images)
        for block in vit.blocks:
            block.attn = _Replaced(block.attn)
        return vit(images), theirs


class _Replaced(torch.nn.Module):
    """timm's weights around ``Placed.attend``."""

    def __init__(self, theirs: Any):
        super().__init__()
        self.theirs = theirs

    def forward(self, x: Tensor, **_: Any) -> Tensor:
        q, k, v = self.theirs.qkv(x).unflatten(-1, (3, self.theirs.num_heads, -1)).permute(2, 0, 3, 1, 4)
        return self.theirs.proj(Placed().attend(q, k, v).transpose(1, 2).flatten(2))


# Hugging Face transformers: half-split pairs -------------------------------------------------------------------------


def _llama(**rope: Any) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=HEADS * DIM,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        num_key_value_heads=2,
        max_position_embeddings=64,
        rope_parameters={"rope_theta": 10000.0, "rope_type": "default"} | rope,
        initializer_range=0.15,  # large enough that scores, and with them rotations, show in the logits
        attn_implementation="eager",
    )
    return LlamaForCausalLM(config).eval()


class _Place(torch.nn.Module):
    """Where Llama makes cosines and sines once a pass, an encoding is placed."""

    def __init__(self, encoding: Encoding):
        super().__init__()
        self.encoding = encoding

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Placed, None]:
        return self.encoding.place(position_ids[..., None]), None


def _both_llamas(rope: dict[str, Any], encoding: Encoding, inputs: dict[str, Tensor], seen: Tensor) -> Pair:
    """Logits at tokens that are seen: theirs, and those of the same weights with our encoding for their rotation."""
    from transformers.models.llama import modeling_llama

    model, own = _llama(**rope), modeling_llama.apply_rotary_pos_emb
    with torch.no_grad():
        theirs = model(**inputs).logits
        model.model.rotary_emb = _Place(encoding)
        modeling_llama.apply_rotary_pos_emb = lambda q, k, placed, _: placed.to_reference(q, k)
        try:
            return model(**inputs).logits[seen], theirs[seen]
        finally:
            modeling_llama.apply_rotary_pos_emb = own


def _text(tokens: int = TOKENS) -> dict[str, Tensor]:
    return {"input_ids": torch.randint(256, (2, tokens), generator=torch.Generator().manual_seed(2))}


_hub = ("transformers", "transformers")
_all = torch.ones(2, TOKENS, dtype=torch.bool)
SCALINGS: dict[str, tuple[dict[str, Any], RoPE]] = {
    "Llama's logits, four query heads on two heads of keys": ({}, RoPE(_usual)),
    "Llama's logits, position interpolation": ({"rope_type": "linear", "factor": 4.0}, RoPE(interpolated(_usual, 4.0))),
    "Llama's logits, Llama 3.1's scaling": (
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
        RoPE(ntk_by_parts(_usual, 8.0, 32, fast=4.0)),
    ),
    "Llama's logits, YaRN": (
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
        RoPE(yarn_frequencies(DIM, 4.0, 32), length=yarn_length(4.0)),
    ),
}


def llamas(rope: dict[str, Any], encoding: RoPE) -> Callable[[], Pair]:
    """Logits of a Llama with the rotation of a configuration and with an encoding of ours."""
    return lambda: _both_llamas(rope, HalfSplit(encoding), _text(), _all)


for _what, (_rope, _encoding) in SCALINGS.items():
    _with(*_hub, _what)(llamas(_rope, _encoding))


@_with(*_hub, "Llama's logits past its context, dynamic NTK")
def llama_dynamic() -> Pair:
    """80 tokens where 64 were trained: the factor follows the length."""
    factor = 4.0 * 80 / 64 - 3.0
    encoding, seen = HalfSplit(RoPE(ntk_aware(_usual, factor))), torch.ones(2, 80, dtype=torch.bool)
    return _both_llamas({"rope_type": "dynamic", "factor": 4.0}, encoding, _text(80), seen)


@_with(*_hub, "Llama's logits, padded on the left, own positions of each sample")
def llama_padded() -> Pair:
    """Positions begin at 0 with each text."""
    mask = padding_mask(torch.tensor([TOKENS, 15]), TOKENS)[:, 0, 0].flip(-1)
    places = (mask.long().cumsum(-1) - 1).clamp(min=0)
    inputs = _text() | {"attention_mask": mask.long(), "position_ids": places}
    return _both_llamas({}, HalfSplit(RoPE(_usual)), inputs, mask)


@_with(*_hub, "Llama's attention, padded, shared heads")
def llama_attention() -> Pair:
    """Its plain attention function beside ``Placed.attend`` with a mask."""
    from transformers.models.llama.modeling_llama import eager_attention_forward

    q, k, v = _queries(), _queries(1, heads=2), _queries(2, heads=2)
    mask = padding_mask(torch.tensor([TOKENS, 15]), TOKENS) & torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
    module = torch.nn.Module()
    module.num_key_value_groups = 2  # type: ignore[assignment]
    added = torch.zeros(mask.shape).masked_fill(~mask, float("-inf"))
    theirs, _ = eager_attention_forward(module, q, k, v, added, DIM**-0.5)
    ours = Placed().attend(q, k, v, causal=True, mask=padding_mask(torch.tensor([TOKENS, 15]), TOKENS))
    return ours.transpose(1, 2), theirs


# flash-linear-attention: its plain forms, which need no GPU ----------------------------------------------------------


def _plain_form(operation: str) -> ModuleType:
    """The file of a plain form by itself: its package compiles kernels on import."""
    found = importlib.util.find_spec("fla")
    assert found is not None
    assert found.submodule_search_locations
    path = Path(found.submodule_search_locations[0]) / "ops" / operation / "naive.py"
    spec = importlib.util.spec_from_file_location(f"fla_{operation}_naive", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@_with("fla", "fla-core", "softmax attention with gates (FoX), shared heads")
def fla_forgetting() -> Pair:
    """Gates between a key and a query as one number a token."""
    q, k, v = _queries(), _queries(1, heads=2), _queries(2, heads=2)
    gates = torch.nn.functional.logsigmoid(_queries(3)[..., 0] + 3)
    naive = _plain_form("forgetting_attn").naive_forgetting_attn
    theirs = naive(*(x.transpose(1, 2) for x in (q, k, v, gates)))
    return attention(q, k, v, log_gate=log_decay(gates), causal=True), theirs.transpose(1, 2)


def installed(comparison: Comparison) -> str | None:
    """The version of a comparison's library here, or None."""
    try:
        return version(comparison.distribution) if importlib.util.find_spec(comparison.package) else None
    except PackageNotFoundError:
        return None


def difference(comparison: Comparison) -> tuple[float, float]:
    """The largest difference of the two results, and the largest number among them; nan where shapes differ."""
    ours, theirs = comparison.both()
    if ours.shape != theirs.shape:
        return math.nan, math.nan
    return (ours - theirs).abs().max().item(), theirs.abs().max().item()


def rows() -> Iterator[dict[str, Any]]:
    """The differences from each library that is installed, with its version and the largest number compared."""
    for comparison in COMPARISONS:
        if found := installed(comparison):
            away, largest = difference(comparison)
            about = {"library": comparison.distribution, "version": found, "what": comparison.what}
            yield about | {"difference": away, "largest": largest}


if __name__ == "__main__":
    saved.write(saved.measured("agreement", list(rows())), Path(sys.argv[1]))
