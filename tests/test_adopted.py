"""What an engineer tries who adopts the library: each call gives the right numbers, or is refused by name."""

import copy
import re

import pytest
import torch
from test_adapters import LONG, TOKENS, assert_near, held, model_of, vit
from torch.testing import assert_close

from geolib.adapters import use_encoding
from geolib.attention import attention
from geolib.encodings import HalfSplit, LengthRoPE, PerLayer, RoPE, build
from geolib.recurrence import SympowAttention

SIX, Q, X = torch.arange(6), torch.randn(2, 2, 6, 8), torch.randn(2, 6, 16)
THREE, AWAY = [torch.randn(3, 2, 6, 8)] * 2, SIX.to("meta")
MINUS = torch.tensor([[-4, -3, -2, 0, 1, 2, 3, 4, 5, 6, 7, 8]])
LONGER = {**LONG, "factor": 3.0, "rope_theta": 500.0, "short_mscale": 1.2, "long_mscale": 1.2}


def made(name, **more):
    return build(name, **({"width": 16, "heads": 2, "grid": (6,), "layers": 1} | more))


def of_text(change, text=TOKENS, **more):
    """A held model of text, after a change of it."""
    model = held(model_of("Llama"))
    return lambda: change(model)(text, **more)


def with_attention(model):
    model.set_attn_implementation("eager")
    return model


def with_heads_apart(model):
    cache = model(TOKENS[:, :5]).past_key_values
    cache.layers[0].keys[:, 1] = cache.layers[0].keys[:, 1].flip(1)
    return lambda text: model(text, past_key_values=cache)


def with_devices(model):
    own = model.model.rotary_emb.register_forward_hook
    own(lambda module, given, way: type(way)(x for x in way))  # as hooks of device_map do
    return model


REFUSED = {
    "another attention": (of_text(with_attention), "model: got attention 'eager'; 'geolib': by another one"),
    "a cache of heads apart": (of_text(with_heads_apart), "past_key_values: got heads whose keys stand elsewhere"),
    "several devices": (of_text(with_devices), "model: got layers on several devices; one device"),
    "a row of positions": (of_text(lambda m: m, position_ids=torch.arange(12)), "position_ids: got shape (12,)"),
    "fewer positions": (of_text(lambda m: m, position_ids=SIX[None]), "position_ids: got shape (1, 6)"),
    "parts that turn unlike": (
        lambda: HalfSplit(PerLayer([RoPE.text(8), RoPE.text(8, rotary_dim=4)])),
        "turned: got None; parts turn [4, 8] features",
    ),
    "other samples of keys": (lambda: made("rope").place(SIX).attention(Q, *THREE), "k: got 3"),
    "of powers": (lambda: made("rope+sympow").place(SIX).attention(Q, *THREE), "k: got 3"),
    "positions elsewhere": (lambda: made("rope").place(AWAY), "positions: got some on another device"),
    "queries elsewhere": (lambda: made("rope").place(SIX).to_reference(Q.to("meta"), Q), "q: got a tensor on meta"),
    "of a bias": (lambda: made("alibi").place(AWAY), "positions: got some on meta; the encoding is on cpu"),
    "forward derivatives": (
        lambda: torch.func.jvp(lambda x: SympowAttention(16, 2)(x)[0], (X,), (X,)),
        "q: got forward derivatives; a backward pass",
    ),
    **{
        f"a mask of {kind}, {name}": (lambda n=name, m=m: made(n).place(SIX).attention(Q, Q, Q, X, mask=m), "mask: got")
        for name in ("sympow-gates", "compass")
        for kind, m in (("three samples", torch.ones(3, 1, 6, 6).bool()), ("words", "causal"))
    },
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_by_name(name):
    call, said = REFUSED[name]
    with pytest.raises(ValueError, match="^" + re.escape(said)):
        call()


def test_whole_numbers_in_float32_that_it_has_not_bring_a_warning():
    with pytest.warns(UserWarning, match="positions in float32 go beyond 16777216"):
        RoPE.text(8).place((SIX + 2**24).float())


# Models of text ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [{}, {"rope_parameters": {**LONGER, "original_max_position_embeddings": 64}}])
def test_cached_keys_may_stand_before_zero(more):
    theirs, pair = model_of("Llama", **more), []
    for model in (held(theirs), theirs):
        cache = model(TOKENS[:, :8], position_ids=MINUS[:, :8]).past_key_values
        pair.append(model(TOKENS[:, 8:], position_ids=MINUS[:, 8:], past_key_values=cache).logits)
    assert_near(*pair)


@pytest.mark.parametrize("trained", [8, 512])
def test_long_texts_of_a_model_that_turns_them_as_short_ones(trained):
    said = {**LONGER, "original_max_position_embeddings": trained}
    theirs = model_of("Phimoe", num_local_experts=4, rope_parameters=copy.deepcopy(said))
    assert_near(held(theirs)(TOKENS).logits, theirs(TOKENS).logits)
    theirs.config.rope_parameters["long_mscale"] = 1.3
    with pytest.raises(ValueError, match=r"config: got short_mscale, long_mscale \(1.2, 1.3\)"):
        RoPE.from_config(theirs.config)


def test_another_model_with_the_same_configuration_stays_as_it_is():
    ours = model_of("Llama")
    others, wanted = [type(ours)(ours.config).eval()], ours(TOKENS).logits
    use_encoding(ours, RoPE.from_config(ours.config))
    others.append(type(ours)(ours.config).eval())
    for other in others:
        other.load_state_dict(ours.state_dict())
        assert_near(other(TOKENS).logits, wanted)


def test_each_layer_of_a_cache_may_have_dropped_other_keys():
    theirs = model_of("Llama")
    pair = []
    for model in (held(theirs), theirs):
        cache = model(TOKENS[:, :8]).past_key_values
        for layer, kept in zip(cache.layers, ([0, 1, 5, 7], [0, 2, 3, 6])):
            layer.keys, layer.values = layer.keys[:, :, kept], layer.values[:, :, kept]
        more = {"position_ids": torch.arange(8, 12)[None], "past_key_values": cache}
        pair.append(model(TOKENS[:, 8:], attention_mask=torch.ones(2, 8), **more).logits)
    assert_near(*pair)


def test_a_model_is_read_where_no_other_has_been_held(tmp_path):
    from transformers import AttentionInterface

    model = held(model_of("Llama"))
    wanted = model(TOKENS).logits
    torch.save(model, tmp_path / "model.pt")
    AttentionInterface._global_mapping.pop("geolib")  # as in another process
    assert torch.equal(torch.load(tmp_path / "model.pt", weights_only=False)(TOKENS).logits, wanted)


# Models of pictures --------------------------------------------------------------------------------------------------


def test_a_model_of_pictures_is_traced_and_told_another_size():
    method = {"width": 32, "heads": 4, "grid": (8, 4), "layers": 3}
    encoding, picture, tokens = build("liere+lf", **method), torch.randn(1, 3, 64, 32), torch.randn(1, 33, 32)
    early, late = vit(), use_encoding(vit(), encoding)
    early.set_input_size((64, 32))
    late.set_input_size((64, 32))
    use_encoding(early, encoding)
    assert_close(late(picture), early(picture))
    assert_close(late.blocks(tokens), early.blocks(tokens))
    assert_close(torch.jit.trace(late, picture)(2 * picture), late(2 * picture))


# The library by itself -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["alibi", "rmt", "lf", "gauss", "rope+lf"])
@pytest.mark.parametrize("far", [2**24 + 1, -(2**24) - 1, 1_700_000_000])
def test_whole_positions_far_out_are_as_far_apart_as_they_are(name, far):
    encoding = made(name)
    near, there = (encoding.place(p).attention(Q, Q, Q) for p in (SIX, SIX + far))
    assert_close(there, near, atol=1e-5, rtol=1e-5)
    beside = encoding.place(SIX[4:] + far, keys=SIX + far)
    assert_close(beside.attention(Q[:, :, 4:], Q, Q), near[:, :, 4:], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["alibi", "rmt", "lf", "riemannformer", "rope"])
def test_positions_are_read_when_they_are_placed_and_in_every_dtype(name):
    encoding, places = made(name), SIX.float()
    wanted, placed = encoding.place(SIX).attention(Q, Q, Q), encoding.place(places)
    places.mul_(3)
    assert_close(placed.attention(Q, Q, Q), wanted)
    for dtype in (torch.uint8, torch.uint16, torch.uint32, torch.int8):
        assert_close(encoding.place(SIX.to(dtype)).attention(Q, Q, Q), wanted)


@pytest.mark.parametrize("name", ["rope", "alibi", "lf", "liere", "riemannformer", "rope+alibi"])
def test_attention_has_forward_and_second_derivatives(name):
    encoding, q, way = made(name).double(), Q.double(), torch.randn(2, 2, 6, 8).double()

    def at(t):
        return encoding.place(SIX).attention(q + t * way, q, q).square().sum()

    zero, step = torch.zeros(()).double(), 1e-4
    first = (at(zero + step) - at(zero - step)) / (2 * step)
    assert_close(torch.func.jvp(at, (zero,), (zero + 1,))[1], first, atol=1e-5, rtol=1e-5)
    second = (at(zero + step) - 2 * at(zero) + at(zero - step)) / step**2
    assert_close(torch.func.hessian(at)(zero), second, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("name", ["sympow-gates", "compass"])
def test_masks_of_gates_from_the_data_are_read_as_all_masks_are(name):
    placed, mask = made(name).place(SIX), torch.rand(2, 6, 6) > 0.3
    assert_close(placed.attention(Q, Q, Q, X, mask=torch.tensor(True)), placed.attention(Q, Q, Q, X))
    by_heads = placed.attention(Q, Q, Q, X, mask=mask[None].expand(2, 2, 6, 6))
    with pytest.warns(UserWarning, match="read as heads"):
        assert_close(placed.attention(Q, Q, Q, X, mask=mask), by_heads)
    assert_close(placed.attention(Q[0], Q[0], Q[0], X[:1]), placed.attention(Q, Q, Q, X)[0])


@pytest.mark.parametrize("longer", [None, RoPE.text(8).frequencies / 2])
def test_a_text_of_no_tokens_has_no_length(longer):
    rope = LengthRoPE(RoPE.text(8).frequencies, 4, longer, factor=2.0)
    assert rope.place(SIX[:0]).to_reference(Q[:, :, :0], Q[:, :, :0])[0].shape == (2, 2, 0, 8)
    pooled = rope.place(SIX[:0, None], SIX[:, None]).with_prefix_tokens(1, 0)
    keys = rope.place(SIX).to_reference(Q, Q)[1]
    assert_close(pooled.attention(Q[:, :, :1], Q, Q), attention(Q[:, :, :1], keys, Q))
