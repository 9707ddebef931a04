"""Encodings inside real models of other libraries, small and random: what each computes, or a refusal that says why."""

import copy
import importlib
import pickle
import re
import warnings

import pytest
import torch
import vision
from torch.testing import assert_close

from geolib.adapters import use_encoding
from geolib.attention import Encoding
from geolib.encodings import HalfSplit, Learned, PerLayer, RoPE, build
from geolib.rotations import axial_frequencies, grid_positions

vision.import_torchvision()

SMALL = {
    "vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "initializer_range": 0.3, "max_position_embeddings": 32, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
EIGHT, FOUR, ENDLESS = {"head_dim": 8}, {"num_hidden_layers": 4}, {"max_position_embeddings": 512}
WINDOWS = {**FOUR, **EIGHT, "sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"] * 2}
WIDER = {**WINDOWS, "global_head_dim": 16, "hidden_size_per_layer_input": 4, "vocab_size_per_layer_input": 97}
TOKENS = torch.randint(3, 97, (2, 12), generator=torch.Generator().manual_seed(1))


def model_of(family, **more):
    """A model for text with random weights, also where they begin as ones and zeros."""
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, family + "Config", None) or pytest.skip(f"no {family} in this version")
    torch.manual_seed(0)
    head = "ForMaskedLM" if family == "ModernBert" else "ForCausalLM"
    model = getattr(transformers, family.removesuffix("Text") + head)(config(**{**SMALL, **more})).eval()
    for p in model.parameters():
        p.data += torch.rand_like(p) / 2 if p.dim() == 1 else 0.3 * torch.randn_like(p) * (p.std() < 0.05)
    return model


def held(model, encoding=None):
    """A copy of the model with an encoding in it, its own by default, and then without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if encoding else "error", UserWarning)
        return use_encoding(copy.deepcopy(model), encoding or RoPE.from_config(model.config))


def assert_near(ours, theirs, within=5e-6):
    assert float((ours - theirs).detach().abs().max()) <= within * float(theirs.detach().abs().max())


# Language models -----------------------------------------------------------------------------------------------------

FAMILIES = {
    "Llama": {}, "Mistral": {"sliding_window": 4}, "Phi": {}, "Phi3": {"partial_rotary_factor": 0.5}, "Olmo2": {},
    "Qwen2": {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}, "Qwen3": EIGHT,
    "Olmo3": WINDOWS, "OlmoHybrid": FOUR, "Granite": {}, "Glm": EIGHT, "Glm4": EIGHT, "SmolLM3": FOUR, "Cohere": {},
    "Cohere2": WINDOWS, "Exaone4": WINDOWS, "StableLm": {}, "Ernie4_5": {}, "Gemma": EIGHT, "Gemma3Text": WINDOWS,
    "Gemma4Text": WIDER,
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_a_configuration_says_what_its_model_computes(family):
    """In one pass, and behind padding through caches that grow and caches of fixed size."""
    theirs = model_of(family, **FAMILIES[family])
    ours, mask = held(theirs), (torch.arange(12) >= torch.tensor([[0], [4]])).long()
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    assert_near(ours(TOKENS).logits, theirs(TOKENS).logits)
    for more in ({}, {"cache_implementation": "static"}):
        options = {"attention_mask": mask, "max_new_tokens": 6, "do_sample": False, **more}
        assert torch.equal(ours.generate(TOKENS, **options), theirs.generate(TOKENS, **options))


def test_a_model_that_reads_both_ways_is_served():
    theirs = model_of("ModernBert", **FOUR, local_attention=4, global_attn_every_n_layers=2, cls_token_id=1)
    assert_near(held(theirs)(TOKENS).logits, theirs(TOKENS).logits)


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}
LONG = {"rope_type": "longrope", "short_factor": [1.0, 1.2, 1.5, 2.0], "long_factor": [1.0, 2.0, 3.0, 4.0]}
LONGER = {**LONG, "factor": 3.0, "rope_theta": 500.0, "short_mscale": 1.2, "long_mscale": 1.2}
SCALINGS = [
    {"rope_type": "default", "rope_theta": 500.0},
    {"rope_type": "linear", "factor": 4.0},
    {"rope_type": "dynamic", "factor": 4.0},
    YARN,
    {**YARN, "original_max_position_embeddings": 512, "beta_fast": 4.0, "beta_slow": 0.5, "truncate": False},
    {**YARN, "mscale": 0.7, "mscale_all_dim": 0.3},
    {**YARN, "attention_factor": 1.3},
    {**YARN, "rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    {"rope_type": "proportional", "partial_rotary_factor": 0.5, "factor": 2.0},
    {**LONG, "original_max_position_embeddings": 12},
    {**LONG, "original_max_position_embeddings": 8},
    {**LONG, "original_max_position_embeddings": 8, "attention_factor": 1.2, "factor": 2.0},
]


@pytest.mark.parametrize("said", SCALINGS, ids=lambda said: said["rope_type"])
@pytest.mark.parametrize("words", ["rope_parameters", "rope_scaling"])
def test_every_scaling_of_rotations_is_read(said, words):
    more = {words: {"rope_theta": 1e4, **said}}
    if said["rope_type"] == "dynamic":
        more["max_position_embeddings"] = 8 if words == "rope_scaling" else 32
    theirs = model_of("Llama", **copy.deepcopy(more))
    assert_near(held(theirs)(TOKENS).logits, theirs(TOKENS).logits)
    rotary, (q, k) = theirs.model.rotary_emb, torch.randn(2, 2, 4, 12, 8)
    turn = importlib.import_module(type(rotary).__module__).apply_rotary_pos_emb
    got = RoPE.from_config(theirs.config).place(torch.arange(12)).to_reference(q, k)
    assert_close(got, turn(q, k, *rotary(q, torch.arange(12)[None])), atol=5e-6, rtol=1e-6)


@pytest.mark.parametrize("trained", [8, 512])
def test_a_model_that_turns_long_texts_as_short_ones(trained):
    said = {**LONGER, "original_max_position_embeddings": trained}
    theirs = model_of("Phimoe", num_local_experts=4, rope_parameters=copy.deepcopy(said))
    assert_near(held(theirs)(TOKENS).logits, theirs(TOKENS).logits)
    theirs.config.rope_parameters["long_mscale"] = 1.3
    with pytest.raises(ValueError, match=r"config: got short_mscale, long_mscale \(1.2, 1.3\)"):
        RoPE.from_config(theirs.config)


@pytest.mark.parametrize(
    ("family", "sections"), [("Qwen2VL", [1, 1, 2]), ("Qwen2_5_VL", [1, 2, 1]), ("Qwen3VL", [2, 1, 1])]
)
def test_positions_on_three_axes_are_those_of_the_model(family, sections):
    transformers = pytest.importorskip("transformers")
    config = type(getattr(transformers, family + "Config")().text_config)
    said = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": sections}
    torch.manual_seed(0)
    theirs = getattr(transformers, family + "TextModel")(config(**SMALL, **EIGHT, rope_parameters=said)).eval()
    ours, places = held(theirs), torch.randint(0, 12, (3, 2, 12)).sort(-1).values
    assert_near(ours(TOKENS).last_hidden_state, theirs(TOKENS).last_hidden_state)
    wanted = theirs(TOKENS, position_ids=places).last_hidden_state
    assert_near(ours(TOKENS, position_ids=places).last_hidden_state, wanted)
    cache = ours(TOKENS[:, :5], position_ids=places[..., :5]).past_key_values
    got = ours(TOKENS[:, 5:], position_ids=places[..., 5:], past_key_values=cache).last_hidden_state
    assert_near(got, wanted[:, 5:])


REFUSED = [
    ("DeepseekV3", {}, "model_type 'deepseek_v3'; its rotations"),
    ("Llama4Text", {**EIGHT, "intermediate_size_mlp": 16}, "model_type 'llama4_text'; its rotations"),
    ("GptOss", EIGHT, "model_type 'gpt_oss'; its rotations"),
    ("HunYuanDenseV1", EIGHT, "model_type 'hunyuan_v1_dense'; its"),  # norms with weights after the turn
    ("Gemma2", EIGHT, "attn_logit_softcapping 50.0; a model that does not cap"),
    ("Gemma4Text", {**WIDER, "num_kv_shared_layers": 2}, "num_kv_shared_layers 2; 0"),
    ("Bloom", {}, "BloomForCausalLM; timm's VisionTransformer, or a language model"),
    ("Falcon", {}, "FalconForCausalLM; timm's"),
]


@pytest.mark.parametrize(("family", "more", "said"), REFUSED, ids=[family for family, *_ in REFUSED])
def test_a_language_model_of_another_kind_is_refused(family, more, said):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "num_attention_heads": 4} if family in ("Bloom", "Falcon") else {**SMALL, **FOUR}
    config = getattr(transformers, family + "Config")(**{**sizes, **more})
    with torch.device("meta"):
        model = getattr(transformers, family.removesuffix("Text") + "ForCausalLM")(config)
    with pytest.raises(ValueError, match=f"(model|config): got {said}"):
        use_encoding(model, RoPE.text(8))


def test_encodings_that_do_not_fit_are_refused_and_others_are_named():
    theirs = model_of("Llama")
    for encoding, said in (
        (Learned(32, (12,)), "encoding: got Learned; one that acts in attention"),
        (RoPE.text(16), "encoding: got RoPE; it does not fit the model.*8 pairs"),
        (build("alibi", width=24, heads=3, grid=(12,)), "got ALiBi; it does not fit the model.*got 4 heads"),
        (build("sympow-gates", width=32, heads=4, grid=(12,)), "does not hand on its layers' input"),
        (PerLayer([Encoding()]), "there are 1 layers"),
        ("rope", "encoding: got str"),
    ):
        with pytest.raises(ValueError, match=said):
            held(theirs, encoding)
    for encoding in (RoPE.text(8), HalfSplit(RoPE.text(8, 500.0)), build("rope+alibi", width=32, heads=4, grid=(12,))):
        with pytest.warns(UserWarning, match=r"in layer 0 this encoding gives other numbers than RoPE.from_config"):
            ours = use_encoding(copy.deepcopy(theirs), encoding)
        use_encoding(ours, RoPE.from_config(theirs.config))  # in its place
        assert_near(ours(TOKENS).logits, theirs(TOKENS).logits)
    with pytest.raises(ValueError, match=r"config: got model_type 'bert'; .* served are afmoe"):
        RoPE.from_config(pytest.importorskip("transformers").BertConfig())


def apart(model):
    use_encoding(model, build("alibi", width=32, heads=4, grid=(12,)))  # RoPE turns keys before they are kept
    cache = model(TOKENS).past_key_values
    cache.layers[0].keys[:, 1] = cache.layers[0].keys[:, 1].flip(1)
    return {"past_key_values": cache}


def several_devices(model):  # what hooks of device_map do
    model.model.rotary_emb.register_forward_hook(lambda module, given, way: type(way)(x for x in way))


def newer(model):
    model.model.layers[0].self_attn = type(model.model.layers[0].self_attn)(model.config, 0)


MISUSED = {
    "another attention": (lambda m: m.set_attn_implementation("eager"), "model: got attention 'eager'; 'geolib'"),
    "heads of a cache": (apart, "past_key_values: got heads whose keys stand elsewhere"),
    "several devices": (several_devices, "model: got layers on several devices; one device"),
    "a newer layer": (newer, "model: got NaN in LlamaAttention; where it is newer than the encoding"),
    "a row": (lambda _: {"position_ids": torch.arange(12)}, "position_ids: got shape (12,)"),
    "fewer": (lambda _: {"position_ids": torch.arange(6)[None]}, "position_ids: got shape (1, 6)"),
    "more": (lambda _: {"position_ids": torch.zeros(3, 12).long()}, "position_ids: got 3 samples; the input has 2"),
}


@pytest.mark.filterwarnings("ignore:in layer 0 this encoding gives other numbers")
@pytest.mark.parametrize("name", MISUSED)
def test_a_held_model_refuses_what_it_cannot_read_right(name):
    model, (change, said) = held(model_of("Llama")), MISUSED[name]
    more = change(model) or {}
    with pytest.raises(ValueError, match="^" + re.escape(said)):
        model(TOKENS, **more)


def test_a_mask_of_numbers_is_added_beside_the_encodings_gate():
    ours = held(model_of("Llama"), build("alibi", width=32, heads=4, grid=(12,)))
    past = torch.full((12, 12), -torch.inf).triu(1)[None, None]
    assert_near(ours(TOKENS, attention_mask=past).logits, ours(TOKENS).logits)


def test_a_model_that_is_read_from_a_folder_takes_its_encoding_from_the_file_beside_it(tmp_path):
    encoding, again = (build("riemannformer+lf", width=32, heads=4, grid=(12,)) for _ in range(2))
    for p in encoding.parameters():
        torch.nn.init.normal_(p, std=0.3)
    ours = held(model_of("Llama"), encoding)
    ours.save_pretrained(tmp_path)
    torch.save(encoding.state_dict(), tmp_path / "encoding.pt")
    plain = type(ours).from_pretrained(tmp_path).eval()
    assert not torch.allclose(plain(TOKENS).logits, ours(TOKENS).logits)
    again.load_state_dict(torch.load(tmp_path / "encoding.pt"))
    assert torch.equal(held(plain, again)(TOKENS).logits, ours(TOKENS).logits)
    other = build("riemannformer+lf", width=32, heads=4, grid=(12,), base=7.0)
    with pytest.raises(RuntimeError, match=r"encoding\.frequencies: got"):
        other.load_state_dict(torch.load(tmp_path / "encoding.pt"))


# Caches --------------------------------------------------------------------------------------------------------------

PLACES = torch.tensor([[0, 5, 6, 9, 10, 500, 501, 502], [3, 4, 5, 6, 20, 21, 22, 23]])


def reading(model, sizes, cache=None, change=lambda cache: None):
    """The logits of a text read a piece at a time, with something done to the cache after the first."""
    got, start = [], 0
    for size in sizes:
        here = slice(start, start + size)
        told = model(TOKENS[:, here], position_ids=PLACES[:, here], past_key_values=cache, use_cache=True)
        cache, start = told.past_key_values, start + size
        got.append(told.logits.float())
        if len(got) == 1:
            change(cache)
    return torch.cat(got, 1)


@pytest.mark.parametrize("name", [None, "rope+alibi", "liere", "riemannformer+lf"])
def test_cached_keys_stay_at_the_positions_that_they_were_given(name):
    theirs = model_of("Llama", **ENDLESS)
    ours = held(theirs, name and build(name, width=32, heads=4, grid=(12,), layers=2))
    wanted = (ours if name else theirs)(TOKENS[:, :8], position_ids=PLACES).logits
    assert_near(reading(ours, (2, 1, 3, 2)), wanted, 2e-5)


def test_caches_of_fixed_size_beams_and_texts_that_change_places_are_served():
    transformers, theirs = pytest.importorskip("transformers"), model_of("Llama", **ENDLESS)
    ours = held(theirs)
    large = transformers.StaticCache(config=theirs.config, max_cache_len=32)
    assert_near(reading(ours, (5, 1, 2), large), theirs(TOKENS[:, :8], position_ids=PLACES).logits)
    order = torch.tensor([1, 0])
    assert_near(*(reading(m, (5, 3), change=lambda cache: cache.reorder_cache(order)) for m in (ours, theirs)))
    for text, more in ((TOKENS, {"num_beams": 3}), (TOKENS[:1], {"prompt_lookup_num_tokens": 2})):
        assert torch.equal(*(m.generate(text, max_new_tokens=8, do_sample=False, **more) for m in (ours, theirs)))
    for others in (theirs, held(theirs, RoPE.text(8, base=9e3))):
        with pytest.raises(ValueError, match="past_key_values: got keys of another encoding"):
            ours(TOKENS, past_key_values=others(TOKENS).past_key_values)
    twin = held(theirs)  # as in another process
    cache = pickle.loads(pickle.dumps(twin(TOKENS[:, :8]).past_key_values))
    assert_near(ours(TOKENS[:, 8:], past_key_values=cache).logits, theirs(TOKENS).logits[:, 8:])
    ours.bfloat16()  # which has not all of these positions; their digits it has
    assert_near(reading(ours, (5, 3)), ours(TOKENS[:, :8], position_ids=PLACES).logits.float(), 2e-2)


def dropped(cache):
    for layer, kept in zip(cache.layers, ([0, 1, 5, 7], [0, 2, 3, 6])):
        layer.keys, layer.values = layer.keys[:, :, kept], layer.values[:, :, kept]


@pytest.mark.parametrize(("shift", "keys", "change"), [(-4, 12, id), (0, 8, dropped)])
def test_cached_keys_may_stand_before_zero_and_differ_by_layers(shift, keys, change):
    theirs, pair = model_of("Llama", rope_parameters={**LONGER, "original_max_position_embeddings": 64}), []
    for model in (held(theirs), theirs):
        cache = model(TOKENS[:, :8], position_ids=torch.arange(8)[None] + shift).past_key_values
        change(cache)
        more = {"attention_mask": torch.ones(2, keys), "past_key_values": cache}
        pair.append(model(TOKENS[:, 8:], position_ids=torch.arange(8, 12)[None] + shift, **more).logits)
    assert_near(*pair)


@pytest.mark.filterwarnings("ignore:in layer 0 this encoding gives other numbers")
def test_a_cache_of_ones_own_may_drop_others_in_each_layer_also_compiled():
    class Drops(pytest.importorskip("transformers").DynamicCache):
        def update(self, k, v, index, *given, **named):
            came, (k, v) = k.shape[2], super().update(k, v, index, *given, **named)
            kept = [i for i in range(k.shape[2]) if came > 1 or i != 1 + 3 * index]
            return k[:, :, kept], v[:, :, kept]

    ours, found = held(model_of("Llama"), build("rope+alibi", width=32, heads=4, grid=(12,))), []
    for run in (ours.forward, torch.compile(ours.forward, backend="eager")):
        cache = Drops()
        ours(TOKENS[:, :8], past_key_values=cache)
        found.append(run(TOKENS[:, 8:9], past_key_values=cache).logits)
    assert_near(*found)


HALF = {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}


@pytest.mark.parametrize(("family", "turned", "more"), [("Llama", None, {}), ("Llama", 4, {}), ("Phi", None, HALF)])
@pytest.mark.filterwarnings("ignore:in layer 0 this encoding gives other numbers")
def test_an_encoding_turns_as_many_features_as_it_says(family, turned, more):
    ours = held(model_of(family, **more), HalfSplit(RoPE.text(8, rotary_dim=turned)))
    way, apart = ours(TOKENS).logits, copy.deepcopy(ours)
    apart.model.rotary_emb.in_pairs = None  # turned in the layers
    assert_near(way, apart(TOKENS).logits)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("name", ["liere", "riemannformer+lf"])
def test_a_checkpointed_language_model_has_the_same_gradients(reentrant, name):
    found = []
    for again in (False, True):
        torch.manual_seed(3)
        model = held(model_of("Llama"), build(name, width=32, heads=4, grid=(12,), layers=2)).train()
        if again:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
            model.enable_input_require_grads()
        loss = model(TOKENS, labels=TOKENS).loss + model(TOKENS.flip(1), labels=TOKENS).loss  # two passes at once
        loss.backward()
        found.append([p.grad for p in model.parameters()])
    assert_close(*found, atol=1e-6, rtol=1e-4)


def test_models_of_the_same_configuration_are_right_and_one_is_saved_for_another_process_copied_and_compiled(tmp_path):
    ours = model_of("Llama")
    others, wanted = [type(ours)(ours.config).eval()], ours(TOKENS).logits
    use_encoding(ours, RoPE.from_config(ours.config))
    for other in (*others, type(ours)(ours.config).eval()):
        other.load_state_dict(ours.state_dict())
        assert_near(other(TOKENS).logits, wanted)
    torch.save(ours, tmp_path / "model.pt")
    pytest.importorskip("transformers").AttentionInterface._global_mapping.pop("geolib")  # as in another process
    read = torch.load(tmp_path / "model.pt", weights_only=False)
    assert_near(read(TOKENS).logits, wanted)
    read = torch.compile(copy.deepcopy(read), backend="eager", fullgraph=True)
    assert_near(read(TOKENS, use_cache=False).logits, wanted)


# timm's vision transformers ------------------------------------------------------------------------------------------

PICTURES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(2))


def vit(name="vit_tiny_patch16_224", **more):
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    sizes = {"img_size": 32, "patch_size": 8, "num_classes": 5, "depth": 3, "embed_dim": 32, "num_heads": 4}
    return timm.create_model(name, **{**sizes, "init_values": 1.0, **more}).eval()


@pytest.mark.parametrize(
    "more",
    [
        {"qk_norm": True, "scale_attn_norm": True}, {"class_token": False, "global_pool": "avg"}, {"reg_tokens": 4},
        {"dynamic_img_size": True}, {"name": "deit_tiny_distilled_patch16_224"},
        {"name": "vit_base_patch16_siglip_224"},
    ],
)  # fmt: skip
def test_a_vision_model_keeps_all_of_its_own(more):
    theirs = vit(**more)
    for p in theirs.parameters():  # norms of queries and of keys begin alike
        p.data += 0.1 * torch.rand_like(p)
    ours, count = use_encoding(copy.deepcopy(theirs), Encoding()), 16 + theirs.num_prefix_tokens
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    assert_close(ours(PICTURES), theirs(PICTURES))
    for options in ({"is_causal": True}, {"attn_mask": torch.ones(count, count).tril(2).bool()}):
        assert_close(ours.forward_features(PICTURES, **options), theirs.forward_features(PICTURES, **options))


OTHERS = (
    "beit_base_patch16_224 samvit_base_patch16_224 xcit_tiny_12_p16_224 crossvit_tiny_240 hiera_tiny_224 "
    "eva02_tiny_patch14_224 vit_relpos_small_patch16_224 vit_base_patch16_rope_224 naflexvit_base_patch16_gap "
    "swin_tiny_patch4_window7_224 vit_base_patch16_xp_224"
)


@pytest.mark.parametrize("name", OTHERS.split())
def test_a_vision_model_with_positions_or_attention_of_its_own_is_refused(name):
    timm = pytest.importorskip("timm")
    with torch.device("meta"):
        model = timm.create_model(name)
    with pytest.raises(ValueError, match=r"model: got .*; timm's (VisionTransformer|Attention)"):
        use_encoding(model, Encoding())


@pytest.mark.parametrize("size", [(16, 64), (64, 16), (24, 40)])
def test_a_picture_of_another_shape_has_its_own_rows_and_columns(size):
    """16 x 64 has as many patches as 32 x 32. Each block attends as its layer does, written out."""
    grid, x = (size[0] // 8, size[1] // 8), torch.randn(1, 3, *size)
    encoding, seen = build("liere+lf", width=32, heads=4, grid=(4, 4), layers=3), []
    ours, plain = use_encoding(vit(dynamic_img_size=True), encoding), vit(dynamic_img_size=True)
    placed = encoding.place(grid_positions(*grid)).with_prefix_tokens(1)

    def compare(attention, given, y):
        layer = plain.blocks[attention.index].attn
        q, k, v = layer.qkv(given[0]).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        wanted = placed.layer(attention.index).attention(q, k, v, given[0])
        assert_close(y, layer.proj(wanted.transpose(1, 2).flatten(2)))
        seen.append(attention.index)

    for block in ours.blocks:
        block.attn.register_forward_hook(compare)
    ours(x)
    ours.forward_intermediates(x)
    ours.blocks = ours.blocks[1:]
    ours(x)
    assert seen == [0, 1, 2, 0, 1, 2, 1, 2]
    turned = lambda rows, columns: grid_positions(rows, columns).flip(-1)  # noqa: E731
    with pytest.raises(AssertionError):
        use_encoding(ours, encoding, turned)(x)
    with pytest.raises(ValueError, match=f"positions: got a picture of {grid[0]} x {grid[1]} patches; 4 x 4"):
        use_encoding(ours, RoPE.image(8), grid_positions(4, 4))(x)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("name", ["liere", "riemannformer+lf"])
def test_a_checkpointed_vision_model_has_the_same_gradients(reentrant, name):
    found, wide = [], torch.randn(1, 3, 16, 32)
    pytest.importorskip("timm.layers").set_reentrant_ckpt(reentrant)
    for again in (False, True):
        torch.manual_seed(3)
        encoding = build(name, width=32, heads=4, grid=(4, 4), layers=3)
        model = use_encoding(vit(dynamic_img_size=True).train(), encoding)
        model.set_grad_checkpointing(again)
        loss = model(PICTURES).square().sum() + model(wide).sin().sum() + model(PICTURES.flip(2)).sum()
        with torch.no_grad():
            model(PICTURES)
        loss.backward()
        model(PICTURES.reshape(2, 3, 16, 64)).sum().backward()  # as many patches
        found.append([p.grad for p in model.parameters()])
    assert_close(*found, atol=1e-5, rtol=1e-4)
    loss = model(PICTURES).sum() + model(PICTURES.reshape(2, 3, 16, 64)).sum()
    with pytest.raises(ValueError, match="one at a time: with checkpointing"):
        loss.backward()


def test_a_vision_model_refuses_what_does_not_fit_and_places_anew_in_each_pass():
    for options, encoding, positions, said in (
        ({}, Learned(32, (4, 4)), None, "encoding: got Learned; one that acts"),
        ({}, RoPE.text(8), None, "it does not fit the model"),
        ({}, build("rmt", width=24, heads=3, grid=(4, 4)), None, "got 4 heads; the encoding has 3"),
        ({}, RoPE.image(8), grid_positions(3, 3), r"positions: got shape \(9, 2\); \(tokens, axes\), a row for each"),
        ({"patch_drop_rate": 0.5}, Encoding(), None, "model: got PatchDropout"),
    ):
        with pytest.raises(ValueError, match=said):
            use_encoding(vit(**options), encoding, positions)
    with pytest.raises(ValueError, match="model: got Linear"):
        use_encoding(torch.nn.Linear(2, 2), Encoding())
    encoding, x = build("riemannformer", width=32, heads=4, grid=(4, 4)), torch.randn(1, 17, 32)
    ours = use_encoding(vit(), encoding)
    before = ours(PICTURES), ours.blocks(x)
    with torch.no_grad():
        encoding.raw_scale += 1.0
    assert not any(torch.equal(*pair) for pair in zip(before, (ours(PICTURES), ours.blocks(x))))
    assert_close(copy.deepcopy(ours)(PICTURES), ours(PICTURES))


def test_a_model_of_pictures_is_traced_and_told_another_size():
    encoding, picture = build("liere+lf", width=32, heads=4, grid=(8, 4), layers=3), torch.randn(1, 3, 64, 32)
    early, late, tokens = vit(), use_encoding(vit(), encoding), torch.randn(1, 33, 32)
    early.set_input_size((64, 32))
    late.set_input_size((64, 32))
    use_encoding(early, encoding)
    assert_close((late(picture), late.blocks(tokens)), (early(picture), early.blocks(tokens)))
    use_encoding(late, encoding, grid_positions(8, 4))  # once more, for pictures of this size
    assert_close(late(picture), early(picture))
    assert_close(torch.jit.trace(late, picture)(2 * picture), late(2 * picture))


# Other libraries' rotations ------------------------------------------------------------------------------------------


def test_orders_of_axes_and_coordinates_of_timm_are_a_line_each():
    layers, q = pytest.importorskip("timm.layers"), torch.randn(2, 4, 15, 16)
    for indexing, places in (("ij", grid_positions(3, 5)), ("xy", grid_positions(3, 5).flip(-1))):
        theirs = layers.RotaryEmbeddingCat(16, temperature=100.0, in_pixels=False, grid_indexing=indexing)
        wanted = layers.apply_rot_embed_cat(q, theirs.get_embed([3, 5]))
        assert_close(RoPE.image(16).place(places).to_reference(q, q)[0], wanted)
    theirs = layers.RotaryEmbeddingDinoV3(16).eval()
    rope = HalfSplit(RoPE(2 * torch.pi * axial_frequencies(16, axes=2, base=100.0)))
    centred = 2 * (grid_positions(3, 5) + 0.5) / torch.tensor([3, 5]) - 1
    got, moved = (rope.place(centred + shift).to_reference(q, q)[0] for shift in (0.0, 0.3))
    assert_close(got, layers.apply_rot_embed_cat(q, theirs.get_embed([3, 5]), half=True), atol=1e-5, rtol=1e-5)
    assert_close(moved @ moved.mT, got @ got.mT, atol=1e-4, rtol=1e-4)  # a shift changes no score
