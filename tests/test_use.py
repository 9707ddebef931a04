"""The page "Use it in your model": each cell by itself, and its examples in other libraries' models where these are."""

import copy
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import vision

from geolib.adapters import HeldPositions, HeldTokens, _attend, use_encoding
from geolib.attention import Encoding
from geolib.encodings import HalfSplit, Learned, RoPE, Sinusoidal, build
from geolib.rotations import grid_positions

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "book" / "use-in-your-model.ipynb"
CELLS = json.loads(PAGE.read_text("utf-8"))["cells"]
CODE = {cell["id"]: "".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "code" and cell["id"] != "setup"}
EXAMPLES = [
    example
    for cell in CELLS
    if cell["cell_type"] == "markdown"
    for example in re.findall(r"```python\n# runs with: (\w+)\n(.*?)```", "".join(cell["source"]), re.S)
]


@pytest.mark.parametrize("name", sorted({*CODE} - {"longer-plot"}))
def test_each_cell_runs_by_itself(name):
    """As a reader does who copies it alone; the picture is left to the book."""
    torch.manual_seed(0)
    names = {}
    exec(compile(CODE[name], name, "exec"), names)
    assert name != "agreement-table" or names["library"] == "fla-core"  # the table's last


@pytest.mark.parametrize(("library", "example"), EXAMPLES, ids=[library for library, _ in EXAMPLES])
def test_examples_in_other_libraries_models_run(library, example):
    vision.import_torchvision()
    pytest.importorskip(library)
    torch.manual_seed(0)
    exec(compile(example, library, "exec"), {})


def test_there_is_an_example_for_each_library_that_is_promised():
    assert [library for library, _ in EXAMPLES] == ["transformers", "timm"]
    assert all(len(line) <= 76 for _, example in EXAMPLES for line in example.splitlines())


# Other libraries' models ---------------------------------------------------------------------------------------------


class Theirs(torch.nn.Module):
    """timm's ``Attention`` in its own words, with all its parts."""

    def __init__(self, width=16, heads=2):
        super().__init__()
        self.num_heads, per = heads, width // heads
        self.qkv, self.gate, self.proj = (torch.nn.Linear(width, n * width) for n in (3, 1, 1))
        self.q_norm, self.k_norm, self.norm = (torch.nn.LayerNorm(n) for n in (per, per, width))
        self.attn_drop, self.proj_drop = torch.nn.Dropout(0.3), torch.nn.Dropout(0.2)
        for norm in (self.q_norm, self.k_norm, self.norm):
            torch.nn.init.normal_(norm.weight)

    def forward(self, x, attn_mask=None):
        gate = self.gate(x).sigmoid()
        q, k, v = self.qkv(x).reshape(*x.shape[:2], 3, self.num_heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        y = torch.nn.functional.scaled_dot_product_attention(
            self.q_norm(q), self.k_norm(k), v, attn_mask=attn_mask, dropout_p=0.3 if self.training else 0.0
        )
        return self.proj_drop(self.proj(self.norm(y.transpose(1, 2).flatten(2)) * gate))


Theirs.__name__ = "Attention"


class Vision(torch.nn.Module):
    """As much of a timm model as is looked at: a grid of 2 x 3 patches behind one class token."""

    def __init__(self):
        super().__init__()
        self.patch_embed = torch.nn.Identity()
        self.patch_embed.grid_size, self.embed_dim, self.num_prefix_tokens = (2, 3), 16, 1
        self.blocks = torch.nn.ModuleList(torch.nn.ModuleDict({"attn": Theirs()}) for _ in range(2))
        for block in self.blocks:
            block.attn = block["attn"]

    def forward(self, x, mask=None):
        for block in self.blocks:
            x = x + block.attn(x, attn_mask=mask)
        return x


@pytest.mark.parametrize("training", [False, True])
def test_a_vision_model_keeps_all_parts_of_its_attention(training):
    torch.manual_seed(1)
    plain, held, x, mask = Vision().train(training), Vision(), torch.randn(2, 7, 16), torch.ones(7, 7).tril().bool()
    held.load_state_dict(plain.state_dict())
    held = use_encoding(held.train(training), Encoding())
    assert held.state_dict().keys() == plain.state_dict().keys()
    torch.manual_seed(2)
    wanted = plain(x, mask)
    torch.manual_seed(2)
    if training:  # dropped at other places by another kernel: some numbers are dropped
        assert not torch.allclose(held(x, mask), held(x, mask))
    else:
        torch.testing.assert_close(held(x, mask), wanted)


def test_a_vision_model_places_once_a_pass_behind_its_class_token():
    method = build("liere+lf", width=16, heads=2, grid=(2, 3), layers=2)
    calls, place = [], method.place
    method.place = lambda *given: calls.append(1) or place(*given)
    model, x = use_encoding(Vision().eval(), method), torch.randn(2, 7, 16)
    plain = Vision().eval()
    plain.load_state_dict(model.state_dict(), strict=False)
    assert not torch.allclose(model(x), plain(x))
    assert calls == [1]
    assert {*method.parameters()} <= {*model.parameters()}
    with pytest.raises(ValueError, match="positions: got 6 rows; there are 10 tokens"):
        model(torch.randn(1, 10, 16))


def test_a_vision_model_is_refused_where_something_would_be_lost():
    odd = Vision()
    odd.blocks[1].attn.bias_table = torch.nn.Linear(2, 2)
    with pytest.raises(ValueError, match=r"model: got attention Attention with .*bias_table"):
        use_encoding(odd, Encoding())
    with pytest.raises(ValueError, match="encoding: got Learned"):
        use_encoding(Vision(), build("learned", width=16, heads=2, grid=(2, 3)))
    with pytest.raises(ValueError, match="model: got Linear"):
        use_encoding(torch.nn.Linear(2, 2), Encoding())


@pytest.mark.parametrize("prefix", [0, 1, 3])
@pytest.mark.parametrize("given", [False, True])
def test_each_block_of_a_vision_model_attends_as_its_layer_does(prefix, given):
    """Behind the tokens that have no place, at the positions that are given, with a mask and left to right."""
    torch.manual_seed(3)
    model, method = Vision(), build("liere+lf", width=16, heads=2, grid=(2, 3), layers=2)
    model.num_prefix_tokens = prefix
    positions = 2.0 * grid_positions(2, 3) if given else None
    seen, x = torch.rand(7, 6 + prefix, 6 + prefix)[:2, None] < 0.7, torch.randn(2, 6 + prefix, 16)
    placed = method.place(grid_positions(2, 3) if positions is None else positions).with_prefix_tokens(prefix)
    parts = [block.attn for block in model.blocks]
    use_encoding(model.eval(), method, positions)
    for _ in range(2):  # a second pass is as the first
        for index, (theirs, block) in enumerate(zip(parts, model.blocks)):
            q, k, v = theirs.qkv(x).reshape(*x.shape[:2], 3, 2, -1).permute(2, 0, 3, 1, 4)
            wanted = placed.layer(index).attention(theirs.q_norm(q), theirs.k_norm(k), v, x, True, mask=seen)
            wanted = theirs.norm(wanted.transpose(1, 2).flatten(2)) * theirs.gate(x).sigmoid()
            torch.testing.assert_close(block.attn(x, attn_mask=seen, is_causal=True), theirs.proj(wanted))


def test_a_model_that_has_learned_can_be_copied_and_saved():
    model = use_encoding(Vision(), build("riemannformer", width=16, heads=2, grid=(2, 3)))
    model(torch.randn(2, 7, 16)).sum().backward()
    other = copy.deepcopy(model).eval()
    x = torch.randn(1, 7, 16)
    torch.testing.assert_close(other(x), model.eval()(x))
    assert other.blocks[0].attn.at[0] is other.blocks[1].attn.at[0] is not model.blocks[0].attn.at[0]


# As much of transformers as is looked at: where attention is registered, and a model that asks for it.


def llama():
    vision.import_torchvision()
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.15,
    )
    return transformers.LlamaForCausalLM(config).eval()


def test_a_language_model_reads_padded_texts_and_goes_on_from_its_cache():
    theirs, ours = llama(), use_encoding(llama(), HalfSplit(RoPE.text(16)))
    tokens, mask = torch.randint(3, 256, (2, 12)), torch.ones(2, 12, dtype=torch.long)
    mask[1, :4] = 0
    options = {"attention_mask": mask, "max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    assert torch.equal(theirs.generate(tokens, **options), ours.generate(tokens, **options))
    assert theirs.state_dict().keys() == ours.state_dict().keys()


@pytest.mark.parametrize("name", ["rope", "rope+alibi", "liere+lf"])
@pytest.mark.parametrize("padded", [0, 3])
def test_a_language_model_reads_on_from_its_cache_several_tokens_at_a_time(name, padded):
    """As in one pass, behind padding too."""
    model = use_encoding(llama(), build(name, width=64, heads=4, grid=(12,)))
    tokens, mask = torch.randint(3, 256, (2, 12)), torch.ones(2, 12, dtype=torch.long)
    mask[1, :padded] = 0
    places = (mask.cumsum(1) - 1).clamp(min=0)
    cache, got = None, []
    for here in (slice(0, 5), slice(5, 9), slice(9, 10), slice(10, 12)):
        more = {"attention_mask": mask[:, : here.stop], "position_ids": places[:, here]}
        told = model(tokens[:, here], past_key_values=cache, use_cache=True, **more)
        cache, got = told.past_key_values, [*got, told.logits]
    whole = model(tokens, attention_mask=mask, position_ids=places).logits
    seen = mask.bool()
    torch.testing.assert_close(torch.cat(got, 1)[seen], whole[seen], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("given", "came"),
    [({"softcap": 30.0}, "softcap: got 30.0"), ({"s_aux": torch.ones(4)}, r"s_aux: got shape \(4,\)")],
)
def test_what_changes_scores_beside_the_encoding_is_refused(given, came):
    q, held = torch.randn(1, 4, 3, 8), HeldTokens(RoPE.text(8), 8)
    held(q, torch.arange(3)[None])
    layer = SimpleNamespace(geolib_at=[held], layer_idx=0)
    nothing = dict.fromkeys(given)
    assert _attend(layer, q, q, q, None, 1.0, sliding_window=None, **nothing)[0].shape == (1, 3, 4, 8)
    with pytest.raises(ValueError, match=came + "; a model without it"):
        _attend(layer, q, q, q, None, 1.0, **given)


def test_each_pass_places_anew():
    encoding = build("riemannformer", width=8, heads=1, grid=(4,))
    held, q = HeldPositions(encoding, torch.arange(4.0)[:, None], 1), torch.ones(1, 1, 5, 8)
    before = held.layer(0).to_reference(q, q)[0]
    with torch.no_grad():
        encoding.raw_scale += 1.0
    assert torch.equal(held.layer(1).to_reference(q, q)[0], before)
    assert not torch.equal(held.layer(0).to_reference(q, q)[0], before)


def test_a_language_model_refuses_what_it_would_not_ask():
    """Vectors added to embeddings: nothing in its layers would call ``embed``."""
    model = SimpleNamespace(rotary_emb=None, set_attn_implementation=None, config=SimpleNamespace(hidden_size=8))
    for encoding in (Learned(8, (4,)), Sinusoidal(8)):
        with pytest.raises(ValueError, match=f"encoding: got {type(encoding).__name__}; one that acts in attention"):
            use_encoding(model, encoding)
