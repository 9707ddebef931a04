"""Every method placed once: at positions of all kinds, what is refused at the door, and what layers use."""

import importlib
import itertools
import math
import pkgutil
import re
import warnings
from functools import partial

import methods
import pytest
import torch
from torch.testing import assert_close

import geolib
from geolib.attention import Encoding, MultiHeadAttention, Placed, attention, attention_weights
from geolib.encodings import (
    METHODS,
    WRAPPERS,
    Attenuated,
    Composite,
    FocusedByBlocks,
    Gaussian,
    LengthRoPE,
    LocalityFocusing,
    Matrix,
    RoPE,
    build,
    options_of,
    turn_pairs,
)
from geolib.encodings.riemannformer import map_pairs
from geolib.encodings.rotary import PlacedHalfSplit
from geolib.flex import flex_attend
from geolib.rotations import grid_positions, language_frequencies, reflect_pairs, rotate_pairs

GRID, WIDTH, HEADS, TOKENS = (3, 4), 48, 2, 12
CASES = [(name, {}) for name in METHODS]
CASES += [
    ("riemannformer+lf", {}),
    ("rope+alibi", {}),
    ("liere", {"block": 8}),
    ("liere+lf", {"share": "heads", "lf": {"per_layer": True}}),
    ("riemannformer", {"per_layer": True, "law": "slow", "learn_angles": True}),
    ("rope-mixed", {"share": "all"}),
    ("lf", {"per_position": True, "per_layer": True}),
]
every_case = pytest.mark.parametrize(("name", "options"), CASES, ids=str)
# One width for each query belongs to the queries of training, so its queries are always all of them.
movable = pytest.mark.parametrize(("name", "options"), [c for c in CASES if "per_position" not in c[1]], ids=str)


def stirred(name, options, seed=1):
    """A method of two layers whose parameters have left their start."""
    torch.manual_seed(seed)
    encoding = build(name, width=WIDTH, heads=HEADS, grid=GRID, layers=2, **options)
    with torch.no_grad():
        for p in encoding.parameters():
            p += 0.3 * torch.randn_like(p)
    return encoding


def scores(placed, q, k, x):
    """What the softmax of one layer gets, and what multiplies its weights."""
    a, b = placed.to_reference(q, k)
    gate, omega = placed.for_all(placed.log_gate(x), q, k, 0.0), placed.for_all(placed.attenuation(), q, k, 1.0)
    return a @ b.mT + (0 if gate is None else gate), torch.ones(()) if omega is None else omega


def heads_of(batch, tokens):
    return torch.randn(batch, HEADS, tokens, WIDTH // HEADS)


# One call, and a place for every token -------------------------------------------------------------------------------


COMPOSED = {"rope+alibi", "riemannformer+lf", "gauss+lf", "rope+sympow", "sympow-gates+sympow"}


@pytest.mark.parametrize("name", sorted({*METHODS, *COMPOSED} - {"none", "sinusoidal", "learned"}))
def test_tokens_that_have_no_place_are_said(name):
    """A picture of more patches than positions is no reason to shift them all."""
    encoding, x = build(name, width=WIDTH, heads=HEADS, grid=GRID, layers=2), torch.randn(1, 16, WIDTH)
    placed, q = encoding.place(grid_positions(*GRID)).layer(0), heads_of(1, 16)
    for front, keys in ((0, 0), (1, 1), (4, 3), (5, 5)):
        with pytest.raises(ValueError, match="positions: got 12 rows; there are 16 tokens"):
            placed.with_prefix_tokens(front, keys).attention(q, q, q, x)
    with pytest.raises(ValueError, match="positions: got 12 rows; there are 16 tokens"):
        flex_attend(placed, q[:, :, :TOKENS], q, q, x)  # before a kernel reads past its tables
    with pytest.raises(ValueError, match=re.escape("where the first 4 have none, placed.with_prefix_tokens(4)")):
        placed.attention(q, q, q, x)
    assert placed.with_prefix_tokens(4).attention(q, q, q, x).shape == q.shape


@every_case
def test_a_mask_in_the_place_of_the_layers_input_or_of_a_gate_is_refused(name, options):
    """As PyTorch's function has it, fourth; it would do nothing there, or be added to the scores as ones."""
    placed = stirred(name, options).place(grid_positions(*GRID)).layer(0)
    q, mask = heads_of(1, TOKENS), torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
    for attend in (placed.attention, partial(flex_attend, placed)):
        with pytest.raises(ValueError, match=r"^x: got torch\.bool; .* a mask is handed over by name"):
            attend(q, q, q, mask)


@pytest.mark.parametrize("wrong", [torch.ones(5, 5, dtype=torch.bool), torch.ones(5, 5, dtype=torch.int64)])
def test_a_gate_and_an_attenuation_are_no_masks(wrong):
    q, placed = torch.randn(1, 2, 5, 8), RoPE.text(8).place(torch.arange(5))
    for attend in (partial(attention, q, q, q), partial(attention_weights, q, q)):
        for argument in ("log_gate", "attenuation"):
            with pytest.raises(ValueError, match=rf"^{argument}: got torch\.\w+; .* a mask is handed over by name"):
                attend(**{argument: wrong})
    for attend in (partial(placed.attend, q, q, q), partial(placed.weights, q, q)):
        with pytest.raises(ValueError, match=r"^log_gate: got torch\.\w+; .* a mask is handed over by name"):
            attend(wrong)


WRONG = {
    "truth values": (torch.ones(TOKENS, 2, dtype=torch.bool), "got torch.bool; positions are real numbers"),
    "complex": (torch.ones(TOKENS, 2) + 0j, "got torch.complex64; positions are real numbers"),
    "NaN": (torch.full((TOKENS, 2), math.nan), "got inf or NaN"),
    "infinite": (torch.full((TOKENS, 2), -math.inf), "got inf or NaN"),
    "another axis": (torch.zeros(TOKENS, 3), f"got shape ({TOKENS}, 3)"),
    "one axis": (torch.zeros(TOKENS, 1), f"got shape ({TOKENS}, 1)"),
    "a vector of one axis": (torch.zeros(TOKENS), f"got shape ({TOKENS},)"),
    "a number": (torch.zeros(()), "got shape ()"),
    "two batches": (torch.zeros(1, 1, TOKENS, 2), f"got shape (1, 1, {TOKENS}, 2)"),
    "a list": ([[0.0, 0.0]], "got list; it must be a tensor"),
}


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("name", sorted(set(METHODS) - {"none"}))
def test_wrong_positions_are_refused_at_the_door(name, kind):
    encoding, (wrong, message) = build(name, width=WIDTH, heads=HEADS, grid=GRID, layers=2), WRONG[kind]
    message = re.escape(message)
    if "ax" in kind and methods.METHODS[name].any_axes:
        pytest.skip("any number of axes will do")
    if type(encoding).place is Encoding.place:  # what is added to embeddings
        with pytest.raises(ValueError, match=f"^positions: {message}"):
            encoding.embed(torch.zeros(1, TOKENS, WIDTH), wrong)
        return
    with pytest.raises(ValueError, match=f"^positions: {message}"):
        encoding.place(wrong)
    with pytest.raises(ValueError, match=f"^keys: {message}"):
        encoding.place(grid_positions(*GRID), keys=wrong)


def test_tokens_before_heads_are_refused():
    """(batch, tokens, heads, head_dim), as flash-attn has it, would turn by heads."""
    for tokens, heads in ((1, 4), (12, 4)):
        placed, q = RoPE(language_frequencies(16)).place(torch.arange(tokens)), torch.randn(2, tokens, heads, 16)
        with pytest.raises(ValueError, match=r"queries and keys are \(batch, heads, tokens, head_dim\)"):
            placed.attention(q, q, q)
        assert placed.attention(*[q.transpose(1, 2)] * 3).shape == (2, heads, tokens, 16)


# Positions of all kinds -----------------------------------------------------------------------------------------------


def alike(a, b):
    """Numbers of several shapes are the same where one is spread over the other."""
    shape = torch.broadcast_shapes(a.shape, b.shape)
    assert_close(a.expand(shape), b.expand(shape), atol=1e-4, rtol=1e-4)


@every_case
def test_positions_may_differ_from_sample_to_sample(name, options):
    encoding, x = stirred(name, options), torch.randn(2, TOKENS + 1, WIDTH)
    positions = torch.stack([grid_positions(*GRID), grid_positions(*GRID).flip(0)])
    q, k = heads_of(2, TOKENS + 1), heads_of(2, TOKENS + 1)
    whole, embedded = encoding.place(positions).with_prefix_tokens(1), encoding.embed(x[:, 1:], positions)
    for i, own in enumerate(positions):
        one = slice(i, i + 1)
        assert_close(embedded[one], encoding.embed(x[one, 1:], own))
        for layer in range(2):
            got = scores(whole.layer(layer), q, k, x)
            alone = scores(encoding.place(own).with_prefix_tokens(1).layer(layer), q[one], k[one], x[one])
            for a, b in zip(got, alone):
                alike(a[one] if a.dim() == 4 else a, b)


@movable
def test_queries_and_keys_may_stand_at_different_positions(name, options):
    """The last queries beside a cache of keys get the last rows of what all tokens get."""
    encoding, x = stirred(name, options), torch.randn(2, TOKENS + 1, WIDTH)
    positions, q, k = grid_positions(*GRID), heads_of(2, TOKENS + 1), heads_of(2, TOKENS + 1)
    samples = positions.expand(2, -1, -1)
    for layer in range(2):
        score, omega = scores(encoding.place(positions).with_prefix_tokens(1).layer(layer), q, k, x)
        for own, all_ in ((positions[-3:], positions), (samples[:, -3:], samples)):
            beside = encoding.place(own, keys=all_).with_prefix_tokens(0, keys=1).layer(layer)
            found = scores(beside, q[:, :, -3:], k, x)
            alike(found[0], score[:, :, -3:])
            alike(found[1], omega[..., -3:, :] if omega.dim() else omega)


@pytest.mark.parametrize("name", ["rope", "rope-mixed", "spherical", "alibi", "riemannformer"])
def test_whole_positions_far_out_are_as_exact_as_those_in_float64(name):
    encoding, far, q = build(name, width=WIDTH, heads=HEADS, grid=(9,)), torch.arange(9_991, 10_000), heads_of(1, 9)
    whole, wide = (scores(encoding.place(p), q, q, None)[0] for p in (far, far.double()))
    assert_close(whole, wide.to(whole.dtype), atol=1e-5, rtol=1e-5)


def test_a_text_is_as_long_as_its_keys_reach():
    rope, x = LengthRoPE(language_frequencies(8), trained=4, factor=2.0), torch.randn(1, 1, 9, 8)
    whole, first = rope.place(torch.arange(9)), rope.place(torch.arange(2), keys=torch.arange(9))
    assert_close(first.to_reference(x[..., :2, :], x)[0], whole.to_reference(x, x)[0][..., :2, :])


# What would go wrong without a word ----------------------------------------------------------------------------------


def test_narrow_positions_beyond_their_whole_numbers_are_warned_of():
    rope, alibi = RoPE.text(16), build("alibi", width=8, heads=2, grid=(4,))
    for encoding, far in itertools.product((rope, alibi), (torch.arange(1000), torch.tensor([500, 501]))):
        with pytest.warns(UserWarning, match="positions in bfloat16 go beyond 256"):
            encoding.place(far.bfloat16())
    with pytest.warns(UserWarning, match="keys in float16 go beyond 2048"):
        rope.place(torch.arange(3), keys=torch.arange(2100).half())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for fine in (torch.arange(1000), torch.arange(1000).float(), torch.arange(257).bfloat16()):
            rope.place(fine)
        RoPE.image(8).place(grid_positions(20, 20).bfloat16())


@pytest.mark.parametrize("kind", ["", "-general", "-diagonal", "-reflection", "-relative"])
def test_scales_are_refused_where_vectors_would_grow_out_of_all_bounds(kind):
    """Those that stay relative reach farther, to both sides."""
    encoding, q = build(f"riemannformer{kind}", width=16, heads=2, grid=(64,)), torch.ones(1, 2, 3, 8)
    for far in (-60000, 60000) if kind == "-relative" else (-20000,):
        with pytest.raises(ValueError, match=rf"positions: got \[{far}\] to .* scales are sound up to 1e\+"):
            encoding.place(torch.tensor([far]))
        with pytest.raises(ValueError, match="keys: got"):
            encoding.place(torch.arange(3), keys=torch.tensor([far]))
    for sound in ([-20000, 0, 300],) if kind == "-relative" else ([-300, 0, 300], [0, 10**6, 10**7]):
        assert all(x.isfinite().all() for x in encoding.place(torch.tensor(sound)).to_reference(q, q))


@pytest.mark.parametrize("name", ["sympow-gates", "compass"])
def test_gates_that_are_read_from_the_data_ask_for_them(name):
    placed = build(name, width=WIDTH, heads=HEADS, grid=GRID).place(grid_positions(*GRID))
    q, ahead, x = heads_of(1, TOKENS), heads_of(1, TOKENS + 1), torch.randn(1, TOKENS + 1, WIDTH)
    for wrong, said in (
        (None, "x: got None"),
        (x[0, 1:], r"x: got shape \(12, 48\)"),
        (x, r"x: got shape \(1, 13, 48\); .* here \(1, 12, width\)"),
    ):
        with pytest.raises(ValueError, match=said):
            placed.attention(q, q, q, wrong)
    with pytest.raises(ValueError, match="positions: got 12 rows; there are 13 tokens"):
        placed.log_gate(x)
    gate = placed.with_prefix_tokens(1).log_gate(x)  # the first row belongs to a token without a place
    assert torch.equal(gate, placed.log_gate(x[:, 1:]))
    assert placed.with_prefix_tokens(1).attention(ahead, ahead, ahead, x).shape == ahead.shape


@pytest.mark.parametrize(
    ("name", "tokens"), [*((n, 12) for n in ("none", "rope", "alibi", "lf", "rope+sympow")), ("lf", 1100)]
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_whole_numbers_are_refused_by_every_method(name, tokens, place):
    """Of a long text too, where focusing goes by blocks: what came out was cut to whole numbers there."""
    placed = build(name, width=WIDTH, heads=HEADS, grid=(tokens,)).place(torch.arange(tokens))
    tensors = [heads_of(1, tokens) for _ in range(3)]
    tensors[place] = tensors[place].long()
    with pytest.raises(ValueError, match=f"^{'qkv'[place]}: got torch.int64; it must be floating point"):
        placed.attention(*tensors)


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("name", METHODS)
def test_samples_may_be_mapped_over_with_the_placing_inside_or_before(name, inside):
    """Inside, positions are another number for each: nobody may ask how large one is."""
    method, cells = build(name, width=WIDTH, heads=HEADS, grid=GRID).double(), grid_positions(*GRID).double()
    given = *(heads_of(3, TOKENS)[:, None].double() for _ in range(3)), torch.randn(3, 1, TOKENS, WIDTH).double()
    given, before = (*given, torch.stack([cells, cells.flip(0), cells + 0.5])), method.place(cells)
    act = lambda q, k, v, x, at: (method.place(at) if inside else before).attention(q, k, v, x)  # noqa: E731
    mapped, each = torch.vmap(act)(*given), torch.stack([act(*one) for one in zip(*given)])
    assert_close(mapped, each)
    if learned := [p for p in method.parameters() if each.requires_grad]:
        options = {"retain_graph": True, "materialize_grads": True}
        ours, theirs = (torch.autograd.grad(y.sin().sum(), learned, **options) for y in (mapped, each))
        assert_close(ours, theirs)


@pytest.mark.parametrize("name", [name for name, entry in methods.METHODS.items() if entry.keys and not entry.added])
def test_methods_with_other_numbers_are_mapped_over_as_an_ensemble(name):
    members, x = [stirred(name, {}, seed).double() for seed in range(3)], torch.randn(1, TOKENS, WIDTH).double()
    (q, k, v), cells = heads_of(3, TOKENS)[:, None].double(), grid_positions(*GRID).double()

    class Once(torch.nn.Module):
        def __init__(self, encoding):
            super().__init__()
            self.encoding = encoding

        def forward(self):
            return self.encoding.place(cells).layer(1).attention(q, k, v, x)

    one, (parameters, buffers) = Once(members[0]), torch.func.stack_module_state([Once(each) for each in members])
    mapped = torch.vmap(lambda *state: torch.func.functional_call(one, state, ()))(parameters, buffers)
    assert_close(mapped, torch.stack([Once(each)() for each in members]))


def test_masks_of_every_shape_that_fits_are_taken():
    placed, given = build("alibi", width=8, heads=2, grid=(5,)).place(torch.arange(5)), torch.randn(3, 2, 2, 5, 4)
    for shape in ((5,), (5, 5), (1, 5), (2, 5, 5), (2, 1, 1, 5), (2, 2, 5, 5)):
        assert placed.attention(*given, mask=torch.ones(shape, dtype=torch.bool)).shape == (2, 2, 5, 4)


@pytest.mark.parametrize("name", [*METHODS, *(f"rope+{wrapper}" for wrapper in WRAPPERS)])
def test_options_are_listed_with_their_defaults(name):
    listed, sizes = options_of(name), {"width": 48, "heads": 2, "grid": (3, 4), "layers": 2}
    torch.manual_seed(0)
    plain = build(name, **sizes)
    torch.manual_seed(0)
    spelled = build(name, **sizes, **listed)
    assert repr(spelled) == repr(plain)
    for a, b in zip(spelled.state_dict().values(), plain.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def public_modules():
    """Those that an engineer imports from: not the lab, the explorables, the chapters' checkers, or ones with a _."""
    names = (each.name for each in pkgutil.walk_packages(geolib.__path__, "geolib."))
    away = ("geolib.lab", "geolib.explorables", "geolib.check", "geolib.connection.", "geolib.manifolds.")
    return [name for name in names if not name.startswith(away) and not name.rpartition(".")[2].startswith("_")]


@pytest.mark.parametrize("name", public_modules())
def test_public_names_are_listed(name):
    module = importlib.import_module(name)
    own = {name for name, x in vars(module).items() if getattr(x, "__module__", None) == module.__name__}
    public = {name for name in own if not name.startswith("_")}
    listed = getattr(module, "__all__", public)
    assert public <= set(listed)
    assert all(hasattr(module, name) for name in listed)


# The maps -------------------------------------------------------------------------------------------------------------


LAYOUTS = {
    "whole": lambda table: table[..., :8].bfloat16(),
    "every other feature": lambda table: table[..., ::2][..., :8],
    "an odd offset": lambda table: table.double()[..., 3:11],
    "a transpose": lambda table: table[..., :8].mT.contiguous().mT,
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_turned_pairs_are_rotations_however_x_lies_in_memory(layout):
    x, angles = LAYOUTS[layout](torch.randn(2, 7, 20)), torch.randn(7, 4)
    turns = torch.stack([angles.cos(), angles.sin()], -1)
    assert_close(turn_pairs(x, turns), rotate_pairs(x, angles))
    compiled = torch.compile(turn_pairs, backend="aot_eager", fullgraph=True)
    assert_close(compiled(x, turns), rotate_pairs(x, angles))
    own, other = torch.stack([turns[..., 0], -turns[..., 0]], -1), turns[..., 1:].expand(-1, -1, 2)
    assert_close(map_pairs(x, (own.flatten(-2), other.flatten(-2))), reflect_pairs(x, angles / 2))


def test_half_split_heads_attend_as_those_inside():
    q, k, v = torch.randn(3, 1, HEADS, 5, 8)
    gate, mask = torch.randn(HEADS, 5, 5), torch.rand(5, 5) < 0.7
    inside = stirred("lf", {}).place(grid_positions(*GRID)[:5])
    around = PlacedHalfSplit(inside)
    assert_close(around.attend(q, k, v, gate, True, mask=mask), inside.attend(q, k, v, gate, True, mask=mask))
    assert_close(around.weights(q, k, gate, True, mask=mask), inside.weights(q, k, gate, True, mask=mask))


def test_a_method_of_ones_own_is_one_class():
    """Weights that are cut off beyond a distance, as design.md's user would write it."""

    class Window(Encoding):
        def place(self, positions, keys=None):
            near = (positions[:, None] - positions).abs().amax(-1) <= 1
            return type("Cut", (Placed,), {"attenuation": lambda self: near.float()})()

    placed = Window().place(torch.arange(4.0)[:, None]).with_prefix_tokens(1)
    weights = MultiHeadAttention(8, 2).weights(torch.randn(1, 5, 8), placed)
    assert (weights[..., 1, 3:] == 0).all()
    assert (weights[..., 0, :] > 0).all()  # the token without a place sees all
    far, i = Window().place(torch.arange(4.0)[:, None]).as_attenuation_mod(), torch.arange(4)
    assert_close(far(torch.ones(4, 4), i[0], i[0], i[:, None], i), 1 + ((i[:, None] - i).abs() <= 1).log())


def test_heads_may_come_without_samples():
    own, two, shared = (RoPE(torch.randn(*heads, 4, 1)).place(torch.arange(5.0)) for heads in ((3,), (2,), ()))
    q, k = torch.randn(2, 2, 3, 5, 8)
    for whole, one in zip(own.to_reference(q, k), own.to_reference(q[1], k[1])):
        assert_close(one, whole[1])
    for whole, one in zip(shared.to_reference(q, k), shared.to_reference(q[1, 2], k[1, 2])):
        assert_close(one, whole[1, 2])
    for heads, placed in ((3, own), (2, two)):
        with pytest.raises(ValueError, match=rf"q: got shape \(5, 8\); the encoding has {heads} heads of its own"):
            placed.to_reference(q[1, 2], k[1, 2])


@pytest.mark.parametrize("lead", [(), (1,), (2, 1)])
def test_a_long_sequence_is_focused_with_and_without_batch_and_heads(lead):
    placed = LocalityFocusing(Encoding(), heads=1, axes=1, sigma=1.0).place(torch.rand(1024, 1) * 9)
    q, k, v = torch.randn(3, *lead, 1024, 8)
    wanted = attention(q, k, v, attenuation=placed.attenuation())
    assert_close(placed.attend(q, k, v), wanted, atol=1e-5, rtol=1e-4)


def test_a_long_sequence_is_taken_by_blocks_where_its_keys_are_its_queries(monkeypatch):  # RF-FUSED
    focus, taken = LocalityFocusing(Encoding(), heads=2, axes=1, sigma=1.5), []
    short, long, others = torch.rand(1023, 1), torch.rand(1024, 1), torch.rand(1024, 1)
    assert type(focus.place(short)) is Composite
    assert type(focus.place(long)) is FocusedByBlocks
    assert type(focus.place(long, others)) is Composite
    monkeypatch.setattr("geolib.encodings.bias.fused_focused_attention", lambda q, *more: taken.append(q) or q)
    focus.place(long).attention(*torch.randn(3, 1, 2, 1024, 8))
    assert len(taken) == 1
    whole = focus.place(torch.cat([long, others])).attenuation()
    assert_close(focus.place(long, others).attenuation(), whole[..., :1024, 1024:])


def focused(inner, u, rate):
    return Composite([inner, Attenuated(Gaussian(*u, rate))])


def by_blocks(q, k, v, u, rate, form=FocusedByBlocks):
    return form(Placed(), (u, u), rate).with_prefix_tokens(1).attend(q, k, v)


literally = partial(by_blocks, form=focused)


def focusing_numbers():
    u, rate = torch.randn(6, 2, dtype=torch.float64), torch.tensor([[0.3], [0.7]], dtype=torch.float64)
    return [*torch.randn(3, 1, 2, 7, 4, dtype=torch.float64), u, rate]


def test_the_form_by_blocks_is_differentiated_twice():  # RF-FUSED
    numbers = [x.requires_grad_() for x in focusing_numbers()]
    towards = torch.randn(1, 2, 7, 4, dtype=torch.float64)
    found = []
    for form in (by_blocks, literally):
        once = torch.autograd.grad((form(*numbers) * towards).sum(), numbers, create_graph=True)
        found.append([*once, *torch.autograd.grad(sum(x.square().sum() for x in once), numbers)])
    assert_close(found[0], found[1])


def test_the_form_by_blocks_is_literal_inside_transforms():  # RF-22
    q, k, v, u, rate = focusing_numbers()
    many = torch.randn(3, *q.shape, dtype=torch.float64)
    one = lambda form: lambda q: form(q, k, v, u, rate)  # noqa: E731
    mapped = torch.vmap(one(by_blocks))(many)
    assert_close(mapped, torch.stack([one(literally)(each) for each in many]))
    for derivative in (lambda f: torch.func.jvp(f, (q,), (k,)), lambda f: torch.func.vjp(f, q)[1](v)):
        assert_close(*(derivative(one(form)) for form in (by_blocks, literally)))


OPTIONS = {"log_gate": torch.linspace(-1, 1, 36).double().view(6, 6).sin(), "causal": True, "scale": 0.1}
OPTIONS |= {"dropout": 0.5, "mask": torch.ones(6, 6, dtype=torch.bool).tril(1)}


@pytest.mark.parametrize("option", OPTIONS)
def test_the_form_by_blocks_is_the_literal_one_with_every_option(option):
    *given, u, rate = focusing_numbers()
    given, options = [x[:, :, 1:] for x in given], {option: OPTIONS[option]}
    for inner in (Placed(), Attenuated(Matrix(-torch.rand(6, 6, dtype=torch.float64)))):
        forms = focused(inner, (u, u), rate), FocusedByBlocks(inner, (u, u), rate)
        literal, got = ((torch.manual_seed(3), form.attend(*given, **options))[1] for form in forms)
        assert_close(got, literal)
        assert not torch.allclose(literal, forms[0].attend(*given))


def test_a_matrix_says_whose_own_it_is_and_one_row_is_for_every_query():
    """Else FlexAttention would refuse heads and samples for which it holds, or read beyond it."""
    alike, each = Matrix(torch.zeros(4, 5)), Matrix(torch.zeros(2, 3, 4, 5))
    assert (alike.own, each.own, Matrix(torch.zeros(3, 4, 5)).own) == ((1, 1), (2, 3), (1, 3))
    assert (alike.counts, Matrix(torch.zeros(2, 5)).counts) == ((4, 5), (2, 5))
    assert Matrix(torch.zeros(2, 1, 1, 5)).counts is Matrix(torch.zeros(4, 1)).counts is None
