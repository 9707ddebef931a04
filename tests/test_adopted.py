"""What an engineer tries who adopts the library: each call gives the right numbers, or is refused by name."""

import copy
import re

import pytest
import torch
from test_adapters import LONG, TOKENS, assert_near, held, model_of, vit
from torch.testing import assert_close

from geolib.adapters import use_encoding
from geolib.encodings import HalfSplit, LengthRoPE, PerLayer, RoPE, build
from geolib.flex import flex_attend
from geolib.recurrence import SympowAttention

SIX, Q, X = torch.arange(6), torch.randn(2, 2, 6, 8), torch.randn(2, 6, 16)
THREE, AWAY, PIECE = [torch.randn(3, 2, 6, 8)] * 2, SIX.to("meta"), [torch.arange(8), torch.arange(8, 12)]
LONGER = {**LONG, "factor": 3.0, "rope_theta": 500.0, "short_mscale": 1.2, "long_mscale": 1.2}


def made(name, **more):
    torch.manual_seed(0)
    return build(name, **({"width": 16, "heads": 2, "grid": (6,), "layers": 1} | more))


def text(change=lambda model: model, **more):
    """A held model of text, after a change of it, reads."""
    return lambda: (lambda model: (change(model), model(TOKENS, **more)))(held(model_of("Llama")))


def apart(model):
    cache = model(TOKENS).past_key_values
    cache.layers[0].keys[:, 1] = cache.layers[0].keys[:, 1].flip(1)
    model(TOKENS, past_key_values=cache)


def devices(model):  # what hooks of device_map do
    model.model.rotary_emb.register_forward_hook(lambda module, given, way: type(way)(x for x in way))


def newer(model):
    model.model.layers[0].self_attn = type(model.model.layers[0].self_attn)(model.config, 0)


def attend(name, places=SIX, mask=None, one=False, rows=slice(None)):
    """What a method gives in attention: for one sample without its dimension, or some of the queries."""
    placed = made(name).place(places[rows], keys=places)
    q, x = (Q[0], X[:1]) if one else (Q, X)
    return placed.attention(q[..., rows, :], q, q, x, mask=mask)


def edited(name):
    places = SIX.float()
    placed = made(name).place(places)
    places.mul_(3)
    return placed.attention(Q, Q, Q, X)


def flex(name):
    with torch.no_grad():
        return flex_attend(made(name).place(SIX), Q, Q[:, :1], Q[:, :1], X)


def pooled(rope):
    return rope.place(SIX[:0, None], SIX[:, None]).with_prefix_tokens(1, 0).to_reference(Q[:, :, :1], Q)[1]


REFUSED = {
    "another attention": (text(lambda m: m.set_attn_implementation("eager")), "model: got attention 'eager'; 'geolib'"),
    "heads of a cache": (text(apart), "past_key_values: got heads whose keys stand elsewhere"),
    "several devices": (text(devices), "model: got layers on several devices; one device"),
    "a newer layer": (text(newer), "model: got NaN in LlamaAttention; where it is newer than the encoding"),
    "a row of positions": (text(position_ids=torch.arange(12)), "position_ids: got shape (12,)"),
    "fewer positions": (text(position_ids=SIX[None]), "position_ids: got shape (1, 6)"),
    "two turns": (lambda: HalfSplit(PerLayer([RoPE.text(8), RoPE.text(8, rotary_dim=4)])), "turned: got None; parts"),
    "lengths of heads": (lambda: LengthRoPE(torch.ones(2, 4, 1), 4), "frequencies: got shape (2, 4, 1)"),
    "other samples of keys": (lambda: made("rope").place(SIX).attention(Q, *THREE), "k: got 3 samples; q has 2"),
    "of powers": (lambda: made("rope+sympow").place(SIX).attention(Q, *THREE), "k: got 3 samples; q has 2"),
    "a scale": (lambda: made("rope+sympow").place(SIX).attention(Q, Q, Q, scale=-1.0), "scale: got -1.0"),
    "positions elsewhere": (lambda: made("rope").place(AWAY), "positions: got some on another device"),
    "queries elsewhere": (lambda: made("rope").place(SIX).to_reference(Q.to("meta"), Q), "q: got a tensor on meta"),
    "of a bias": (lambda: made("alibi").place(AWAY), "positions: got some on meta; the encoding is on cpu"),
    "jvp": (
        lambda: torch.func.jvp(lambda x: SympowAttention(16, 2)(x)[0], (X,), (X,)),
        "q: got forward derivatives; a backward pass",
    ),
    "float16": (lambda: SympowAttention(16, 2)(3e3 * X)[1].to(torch.float16), "dtype: got torch.float16; one with"),
    "values": (lambda: flex_attend(made("rope").place(SIX), Q, Q, Q[:, :, :5]), "v: got 5 tokens; k has 6"),
    "mask, gates": (lambda: attend("sympow-gates", SIX, torch.ones(3, 1, 6, 6).bool()), "mask: got shape (3, 1, 6, 6)"),
    "mask, compass": (lambda: attend("compass", SIX, torch.ones(3, 1, 6, 6).bool()), "mask: got shape (3, 1, 6, 6)"),
    "words, gates": (lambda: attend("sympow-gates", SIX, "causal"), "mask: got str"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_by_name(name):
    call, said = REFUSED[name]
    with pytest.raises(ValueError, match="^" + re.escape(said)):
        call()


def dropped(cache):
    for layer, kept in zip(cache.layers, ([0, 1, 5, 7], [0, 2, 3, 6])):
        layer.keys, layer.values = layer.keys[:, :, kept], layer.values[:, :, kept]


@pytest.mark.parametrize(("shift", "keys", "change"), [(-4, 12, len), (0, 8, dropped)])
def test_cached_keys_may_stand_before_zero_and_differ_by_layers(shift, keys, change):
    theirs, pair = model_of("Llama", rope_parameters={**LONGER, "original_max_position_embeddings": 64}), []
    for model in (held(theirs), theirs):
        cache = model(TOKENS[:, :8], position_ids=PIECE[0][None] + shift).past_key_values
        change(cache.layers if change is len else cache)
        more = {"attention_mask": torch.ones(2, keys), "past_key_values": cache}
        pair.append(model(TOKENS[:, 8:], position_ids=PIECE[1][None] + shift, **more).logits)
    assert_near(*pair)


@pytest.mark.parametrize("trained", [8, 512])
def test_a_model_that_turns_long_texts_as_short_ones(trained):
    said = {**LONGER, "original_max_position_embeddings": trained}
    theirs = model_of("Phimoe", num_local_experts=4, rope_parameters=copy.deepcopy(said))
    assert_near(held(theirs)(TOKENS).logits, theirs(TOKENS).logits)
    theirs.config.rope_parameters["long_mscale"] = 1.3
    with pytest.raises(ValueError, match=r"config: got short_mscale, long_mscale \(1.2, 1.3\)"):
        RoPE.from_config(theirs.config)


def test_models_of_the_same_configuration_and_of_another_process_are_right(tmp_path):
    ours = model_of("Llama")
    others, wanted = [type(ours)(ours.config).eval()], ours(TOKENS).logits
    use_encoding(ours, RoPE.from_config(ours.config))
    for other in (*others, type(ours)(ours.config).eval()):
        other.load_state_dict(ours.state_dict())
        assert_near(other(TOKENS).logits, wanted)
    torch.save(ours, tmp_path / "model.pt")
    pytest.importorskip("transformers").AttentionInterface._global_mapping.pop("geolib")  # as in another process
    assert_near(torch.load(tmp_path / "model.pt", weights_only=False)(TOKENS).logits, wanted)


def test_a_model_of_pictures_is_traced_and_told_another_size():
    encoding, picture = build("liere+lf", width=32, heads=4, grid=(8, 4), layers=3), torch.randn(1, 3, 64, 32)
    early, late, tokens = vit(), use_encoding(vit(), encoding), torch.randn(1, 33, 32)
    early.set_input_size((64, 32))
    late.set_input_size((64, 32))
    use_encoding(early, encoding)
    assert_close((late(picture), late.blocks(tokens)), (early(picture), early.blocks(tokens)))
    assert_close(torch.jit.trace(late, picture)(2 * picture), late(2 * picture))


FOUR, LAST, FAR = torch.rand(2, 6, 6) > 0.3, slice(4, None), 2**24 + 1
ROPES = [LengthRoPE(RoPE.text(8).frequencies, 4, x, factor=2.0) for x in (None, RoPE.text(8).frequencies / 2)]
GATED, BIASED = ("sympow-gates", "compass"), ("alibi", "rmt", "lf", "gauss", "rope+lf")
RIGHT = {
    **{f"pooled, {i}": (pooled, (r,), r.place(SIX).to_reference(Q, Q)[1]) for i, r in enumerate(ROPES)},
    **{f"no tokens, {i}": (lambda r: r.place(SIX[:0]).counts, (r,), (0, 0)) for i, r in enumerate(ROPES)},
    **{f"a mask of no axes, {n}": (attend, (n, SIX, torch.tensor(True)), attend(n)) for n in GATED},
    **{f"heads, {n}": (attend, (n, SIX, FOUR), attend(n, SIX, FOUR[None].expand(2, 2, 6, 6))) for n in GATED},
    **{f"one sample, {n}": (attend, (n, SIX, None, True), attend(n)[0]) for n in GATED},
    **{f"one head of keys, {n}": (flex, (n,), made(n).place(SIX).attention(Q, Q[:, :1], Q[:, :1], X)) for n in GATED},
    **{f"edited later, {n}": (edited, (n,), attend(n)) for n in BIASED},
    **{f"{d}, {n}": (attend, (n, SIX.to(d)), attend(n)) for n in BIASED for d in (torch.uint8, torch.uint16)},
    **{f"far, {n}": (attend, (n, SIX + FAR, None, False, LAST), attend(n)[:, :, 4:]) for n in BIASED},
    **{f"years, {n}": (attend, (n, SIX - 100 * FAR, None, False, LAST), attend(n)[:, :, 4:]) for n in BIASED[:4]},
}


@pytest.mark.filterwarnings("ignore:mask of shape")
@pytest.mark.parametrize("name", RIGHT)
def test_it_gives_the_right_numbers(name):
    call, given, wanted = RIGHT[name]
    assert_close(call(*given), wanted, atol=1e-4, rtol=1e-4)


def test_whole_numbers_that_float32_has_not_bring_a_warning():
    with pytest.warns(UserWarning, match="positions in float32 go beyond 16777216"):
        RoPE.text(8).place((SIX + FAR).float())


@pytest.mark.parametrize("name", ["rope", "alibi", "lf", "liere", "riemannformer"])
def test_attention_has_forward_and_second_derivatives(name):
    encoding, q, zero, step = made(name).double(), Q.double(), torch.zeros(()).double(), 1e-4

    def at(t):
        return encoding.place(SIX).attention(q + t * q.sin(), q, q).square().sum()

    after, here, before = (at(zero + x) for x in (step, 0, -step))
    assert_close(torch.func.jvp(at, (zero,), (zero + 1,))[1], (after - before) / (2 * step), atol=1e-5, rtol=1e-5)
    assert_close(torch.func.hessian(at)(zero), (after - 2 * here + before) / step**2, atol=1e-3, rtol=1e-3)
