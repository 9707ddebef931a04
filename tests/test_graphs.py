"""Every method in one graph, exported, on the meta device, in narrow dtypes and under autocast."""

import copy

import pytest
import torch
import torch.nn.functional as F
from counted import Counting
from often import double
from test_placed import CASES, GRID, TOKENS, every_case, heads_of, scores, stirred
from torch.testing import assert_close

from geolib import exponential, lie
from geolib.attention import MultiHeadAttention, attention, attention_weights
from geolib.encodings import METHODS, ALiBi, RoPE, Sinusoidal, build
from geolib.lab.config import Config
from geolib.lab.vit import ViT
from geolib.recurrence import SympowAttention
from geolib.rotations import grid_positions


def model(name, options, **more):
    """A transformer of two layers on the digits, with a class token: 2x2 patches of 8x8 images."""
    torch.manual_seed(1)
    sizes = {"width": 16, "heads": 2, "layers": 2, "patch": 2, "pool": "cls"}
    return ViT(Config("digits", name, method_options=options, **(sizes | more)), (1, 8, 8), 10)


def differing_layers(options):
    """Whether each layer has scales or widths of its own."""
    return bool(options.get("per_layer") or options.get("lf"))


# One graph, exported, without numbers ---------------------------------------------------------------------------------


# A compass has the cells of its grid as keys: it knows no other number of tokens. Of two methods together a
# gate beside a rotation, and the power, which only stands around another.
LONGER = [name for name in [*METHODS, "rope+gauss", "rope+sympow"] if name != "compass"]


def own_ways(name):
    """The functions by which a method embeds, places and acts."""
    kind = type(build(name, width=16, heads=2, grid=(99,)))
    return kind.embed, kind.place, getattr(kind, "act", None)


# The first of each way; LieRE has one for width 2, too. The others go the same ways, and all are exported, below.
APART = [*{own_ways(name): name for name in reversed(LONGER)}.values(), "liere"]


@pytest.mark.parametrize(("name", "options"), [c for c in CASES if c[1] or c[0] in (*APART, "compass")], ids=str)
def test_a_model_is_one_graph(name, options):
    torch._dynamo.reset()  # it counts the models it has met, and gives up after eight
    # One layer, or two where they differ.
    net = model(name, options, layers=2 if differing_layers(options) else 1)
    images, learned = torch.randn(2, 1, 8, 8), list(net.parameters())
    plain, compiled = net(images), torch.compile(net, backend="aot_eager", fullgraph=True)(images)
    assert_close(compiled, plain, atol=2e-5, rtol=1e-4)
    slopes = (torch.autograd.grad(y.square().sum(), learned, allow_unused=True) for y in (compiled, plain))
    for a, b in zip(*slopes):
        assert (a is None) == (b is None)
        assert a is None or (a - b).norm() <= 1e-3 * b.norm() + 1e-6


@pytest.mark.parametrize(("name", "told"), [*((name, True) for name in APART), ("rope", False), ("liere", False)])
def test_texts_of_all_lengths_are_one_graph_or_two(name, told):
    """One with a symbol for the number; before it the first one's, where nobody has told that the number varies."""
    torch._dynamo.reset()
    encoding, graphs = build(name, width=16, heads=2, grid=(99,)), []

    def attend(q, k, v, x, positions, seen):
        x = encoding.embed(x, positions)
        whole = encoding.place(positions).layer(0).attention(q, k, v, x, causal=True)
        new = encoding.place(positions[-2:], keys=positions[1:]).layer(0).with_prefix_tokens(0, keys=1)
        return whole, new.attention(q[:, :, -2:], k, v, x, mask=seen)

    kept = lambda graph, _: graphs.append(graph) or graph  # noqa: E731
    compiled = torch.compile(attend, backend=kept, fullgraph=True)
    for tokens in (5, 6, 9, 13, 20):
        given = *torch.randn(3, 2, 2, tokens, 8), torch.randn(2, tokens, 16), torch.arange(tokens)
        given = *given, torch.rand(2, 1, 1, tokens) < 0.5
        for x, axis in zip(given, (2, 2, 2, 1, 0, 3)):
            if told:
                torch._dynamo.mark_dynamic(x, axis)  # an error where the graph takes it for a constant
        assert_close(compiled(*given), attend(*given), atol=1e-5, rtol=1e-4)
    assert len(graphs) == (1 if told else 2)


# The other methods are exported below, as layers.
@pytest.mark.parametrize(("name", "options"), [c for c in CASES if c[1] or c[0] not in LONGER], ids=str)
def test_a_model_can_be_exported(name, options):
    net, images = model(name, options).eval(), torch.randn(2, 1, 8, 8)
    exported = torch.export.export(net, (images,)).module()
    other = torch.randn(2, 1, 8, 8)
    assert_close(exported(other), net(other), atol=2e-5, rtol=1e-4)


class Text(torch.nn.Module):
    """A layer for texts of any length."""

    def __init__(self, name):
        super().__init__()
        self.encoding = build(name, width=16, heads=2, grid=(99,))
        self.layer = MultiHeadAttention(16, 2, causal=True)

    def forward(self, x):
        positions = torch.arange(x.shape[1])
        return self.layer(self.encoding.embed(x, positions), self.encoding.place(positions).layer(0))


@pytest.mark.skipif(not hasattr(torch.compiler, "is_exporting"), reason="exports keep the library's operators")
@pytest.mark.parametrize("name", LONGER)
def test_an_exported_layer_takes_texts_of_all_lengths_and_needs_no_library(name):
    layer, tokens = Text(name).eval(), torch.export.Dim("tokens", min=2, max=64)
    exported = torch.export.export(layer, (torch.randn(2, 10, 16),), dynamic_shapes=({1: tokens},))
    assert not [node for node in exported.graph.nodes if "geolib" in str(node.target)]
    x = torch.randn(2, 17, 16)
    assert_close(exported.module()(x), layer(x), atol=2e-5, rtol=1e-4)


@every_case
def test_a_model_is_built_and_trained_without_numbers(name, options):
    """On the meta device there are none: reading one is an error, as it would make a GPU wait."""
    with torch.device("meta"):
        net = model(name, options)
        net(torch.empty(2, 1, 8, 8)).sum().backward()
    assert all(p.is_meta and p.grad is not None for p in net.encoding.parameters())


@every_case
@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.usefixtures("poisoned_memory")
def test_what_is_made_without_numbers_and_loaded_is_the_same(name, options, assign):
    """Tables are not in a state dict: they have to come back by themselves."""
    plain, images = model(name, options), torch.randn(2, 1, 8, 8)
    with torch.device("meta"):
        net = model(name, options)
    if not assign:
        net.bfloat16().float().to_empty(device="cpu")
    net.load_state_dict(copy.deepcopy(plain.state_dict()), assign=assign)
    assert torch.equal(net(images), plain(images))
    assert torch.equal(net.double()(images.double()), plain.double()(images.double()))


@pytest.mark.usefixtures("poisoned_memory")
def test_a_table_without_numbers_is_refused_and_one_with_them_stays():
    with torch.device("meta"):
        lost = RoPE(torch.ones(2, 1))
        with torch.device("cpu"):
            held = RoPE(torch.ones(2, 1))
    assert torch.equal(held.to_empty(device="cpu").frequencies, torch.ones(2, 1))
    for leave in (lambda: lost.load_state_dict({}, assign=True), lambda: lost.to_empty(device="cpu")):
        with pytest.raises(ValueError, match="frequencies: got a table without numbers; a tensor of the meta device"):
            leave()


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("name", ["text", "image", "sinusoidal", "alibi", "sympow"])
def test_what_makes_its_own_tables_remembers_them_on_the_meta_device(name):
    own = {"text": RoPE.text, "image": RoPE.image, "sinusoidal": Sinusoidal, "alibi": ALiBi}
    make = own.get(name, lambda size: SympowAttention(size, heads=2))
    with torch.device("meta"):
        made = make(8)
    assert all(x.is_meta for x in (*made.parameters(), *made.buffers()))
    for got, wanted in zip(copy.deepcopy(made).to_empty(device="cpu").buffers(), make(8).buffers(), strict=True):
        assert torch.equal(got, wanted)


ONCE = ("cos", "sin", "exp", "exp2", "log", "log1p", "softplus", "round", "abs", "geolib::expm1", "index_select")


@every_case
def test_what_depends_on_positions_alone_is_computed_once(name, options):
    """More layers take no more cosines, exponentials and distances, unless they have scales or widths of their own."""
    images, labels = torch.randn(2, 3, 32, 32), torch.tensor([1, 2])

    def issued(layers):
        sizes = {"layers": layers, "heads": 2, "width": 16, "patch": 8}
        net = ViT(Config("cifar10", name, options, **sizes), (3, 32, 32), 10)
        with Counting() as counting:
            F.cross_entropy(net(images), labels).backward()
        return {key: n for key, n in counting.operations.items() if key.removeprefix("aten::").split(".")[0] in ONCE}

    # 2 and 3 layers: with one, generators of its own are a batch of one less.
    assert (issued(3) == issued(2)) == (not differing_layers(options))


# Narrow dtypes --------------------------------------------------------------------------------------------------------


@every_case
@pytest.mark.parametrize("narrow", ["bfloat16", "half", "to"])
def test_narrow_models_keep_the_digits_of_their_constants(name, options, narrow):
    net = model(name, options)
    before = {key: x.clone() for key, x in net.named_buffers()}
    narrowed = net.to(torch.bfloat16) if narrow == "to" else getattr(net, narrow)()
    assert all(p.dtype in (torch.bfloat16, torch.half) for p in narrowed.parameters())
    for key, x in narrowed.named_buffers():
        assert torch.equal(x, before[key]), key
    assert all(x.dtype == torch.float64 for x in net.double().buffers() if x.is_floating_point())
    assert all(x.is_meta for x in net.to("meta", torch.bfloat16).buffers())


@pytest.mark.parametrize("name", ["riemannformer", "riemannformer-general", "rope-mixed", "liere", "lf"])
def test_learned_numbers_in_bfloat16_are_worked_with_in_float32(name):
    """Only the rounding of the parameters is left: the same model with rounded float32 parameters agrees."""
    encoding, positions, q = stirred(name, {}), grid_positions(*GRID), heads_of(1, TOKENS)
    narrow, rounded = copy.deepcopy(encoding).bfloat16(), copy.deepcopy(encoding)
    with torch.no_grad():
        for p in rounded.parameters():
            p.copy_(p.bfloat16())
    a, b = (e.place(positions).layer(0) for e in (narrow, rounded))
    for got, wanted in zip(scores(a, q, q, None), scores(b, q, q, None)):
        assert_close(got, wanted)


# Autocast -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hook", ["log_gate", "attenuation"])
def test_gated_and_attenuated_rows_are_as_exact_as_the_others_under_autocast(hook):
    g = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 3, 64, 32, generator=g).bfloat16() for _ in range(3))
    q = 4 * q  # scores far from zero, where bfloat16 has the coarsest steps
    nothing = {hook: torch.zeros(64, 64) if hook == "log_gate" else torch.ones(64, 64)}
    exact = attention(q.double(), k.double(), v.double())
    with torch.autocast("cpu", torch.bfloat16):
        errors = [(attention(q, k, v, **given).double() - exact).square().mean().sqrt() for given in ({}, nothing)]
        assert attention(q, k, v, **nothing).dtype == torch.bfloat16
        assert attention_weights(q, k, **nothing).dtype == torch.float32
    assert errors[1] < 1.05 * errors[0]


def test_a_gate_keeps_its_digits_under_autocast_beside_float32_queries():
    q, v, gate = torch.zeros(1, 1, 2, 8), torch.eye(2)[None, None], torch.tensor([[100.0, 100.3], [0.0, 0.0]])
    wanted = attention(q, q, v, log_gate=gate)
    for given in ({}, {"mask": torch.ones(2, 2, dtype=torch.bool)}):
        with torch.autocast("cpu", torch.bfloat16):
            got = attention(q, q, v, log_gate=gate, **given)
        assert_close(got, wanted, atol=1e-6, rtol=0)


@pytest.mark.parametrize("trained", [True, False])
def test_a_gate_is_not_rounded_to_the_queries_dtype(trained):
    q = torch.zeros(1, 2, 8, dtype=torch.bfloat16)
    v = torch.eye(2, dtype=torch.bfloat16)[None]
    gate = torch.tensor([[100.0, 100.3], [0.0, 0.0]])  # the steps of bfloat16 there are half a unit
    with torch.set_grad_enabled(trained):
        got = attention(q, q, v, log_gate=gate)[0, 0]
    assert_close(got.float(), gate[0].softmax(-1), atol=2e-3, rtol=0)


# The exponential of a GPU ---------------------------------------------------------------------------------------------


@pytest.fixture
def unread(monkeypatch):
    """As on a GPU: no number is looked at."""
    monkeypatch.setattr(exponential, "readable", lambda x: False)


@pytest.mark.parametrize("size", [0.0, 1e-6, 1.0, 300.0, 13_000.0])
def test_a_fixed_number_of_squarings_is_as_exact(unread, size):
    A = lie.skew_matrix(double(6, 28), 8)
    A = size * A / (A.square().sum((-1, -2), keepdim=True) / 2).sqrt()
    wanted = torch.matrix_exp(A)
    got = lie.position_rotations(torch.ones(1, 1), A.float()[:, None])[0]
    assert (got - wanted).norm(dim=(-1, -2)).max() < 1.5e-7 * size + 1e-6
    exact = lie.position_rotations(torch.ones(1, 1).double(), A[:, None])[0]
    assert (exact - wanted).norm(dim=(-1, -2)).max() < 1e-15 * (size + 10) * 10


def test_what_the_squarings_do_not_reach_is_nan_and_the_rest_is_not(unread):
    A = lie.skew_matrix(torch.randn(2, 28), 8)
    A = A / (A.square().sum((-1, -2), keepdim=True) / 2).sqrt() * torch.tensor([13_000.0, 15_000.0])[:, None, None]
    got = lie.position_rotations(torch.ones(1, 1), A[:, None])[0]
    assert got[0].isfinite().all()
    assert got[1].isnan().all()


def test_gradients_of_the_fixed_squarings_are_those_of_matrix_exp(unread):
    entries, positions, weights = double(2, 2, 6).requires_grad_(), double(5, 2), double(5, 2, 4, 4)

    def gradient(rotations):
        return torch.autograd.grad((rotations * weights).sum(), entries, retain_graph=True)[0]

    A = lie.skew_matrix(entries, 4)
    wanted = gradient(torch.matrix_exp(torch.einsum("ta,haij->thij", positions, A)))
    assert_close(gradient(lie.position_rotations(positions, A)), wanted, atol=1e-10, rtol=1e-9)
    weights = 1e9 * weights  # it is the angles that must be within reach, not the gradient
    assert_close(gradient(lie.position_rotations(positions, A)), 1e9 * wanted, atol=1e-1, rtol=1e-9)


@pytest.mark.parametrize("turned", [False, True])
def test_the_exponential_is_a_lawful_operator_however_matrices_lie_in_memory(turned):
    A = lie.skew_matrix(double(3, 6), 4)
    A = A.mT if turned else A
    torch.library.opcheck(torch.ops.geolib.expm1_backward.default, (A, A), test_utils="test_faketensor")
    torch.library.opcheck(torch.ops.geolib.expm1.default, (A.requires_grad_(),))
