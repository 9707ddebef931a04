"""Score modifications for FlexAttention: pair by pair what the gates' and attenuations' matrices hold."""

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask
from torch.overrides import TorchFunctionMode
from torch.testing import assert_close
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from geolib.encodings import ALiBi, Attenuated, Composite, Gaussian, ManhattanDecay, Matrix, ScoreBias, Steps, build
from geolib.flex import flex_attend, with_prefix_tokens

pytestmark = pytest.mark.usefixtures("forgotten_graphs")
HEADS, DIM, TOKENS = 2, 16, 12


NAMES = [
    "none", "rope", "alibi", "rmt", "lf", "gauss", "sympow-gates", "compass", "riemannformer+lf", "rope+alibi",
    "gauss+lf", "rmt+lf", "rope+sympow", "sympow-gates+sympow",
]  # fmt: skip


def setting(name, batch=2, **options):
    torch.manual_seed(0)
    encoding = build(name, width=HEADS * DIM, heads=HEADS, grid=(3, 4), layers=1, **options)
    for p in encoding.parameters():
        torch.nn.init.normal_(p, std=0.3)
    encoding.requires_grad_(False)
    (q, k), v = torch.randn(2, batch, HEADS, TOKENS, DIM), torch.randn(batch, HEADS, TOKENS, 2 * DIM)
    positions = torch.rand(batch, TOKENS, 2) * 3
    return encoding, q, k, v, torch.randn(batch, TOKENS, HEADS * DIM), positions


def everywhere(mod, scores):
    """A modification at all pairs at once: FlexAttention's kernel calls it with one pair, or with a block of them."""
    return mod(scores, *torch.meshgrid(*map(torch.arange, scores.shape), indexing="ij"))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("samples", [False, True])
@pytest.mark.parametrize("queries", [TOKENS, 3])
def test_score_modifications_are_the_matrices(name, samples, queries):
    if name == "compass" and queries < TOKENS:
        pytest.skip("a compass reads queries where keys are")
    encoding, q, k, _, x, positions = setting(name)
    positions = positions if samples else positions[0]
    placed = encoding.place(positions[..., -queries:, :], keys=positions)
    scores = q[:, :, -queries:] @ k.mT
    gate, omega = placed.log_gate(x), placed.attenuation()
    wanted = scores if gate is None else scores + gate
    if "sympow" in name.split("+"):
        wanted = 2 * scores.abs().log() + (0 if gate is None else gate)
    mod, far = placed.as_score_mod(x), placed.as_attenuation_mod()
    assert (mod is None) == (wanted is scores)
    assert (far is None) == (omega is None)
    if mod is not None:
        assert_close(everywhere(mod, scores), wanted, atol=1e-5, rtol=1e-5)
    if far is not None:
        assert_close(everywhere(far, torch.zeros_like(scores)).exp(), omega.expand_as(scores), atol=1e-6, rtol=1e-5)


class Read(TorchFunctionMode):
    """What is made of tensors from outside that have gradients: (which, the function's name), and where it is read."""

    def __init__(self):
        super().__init__()
        self.made, self.inside, self.places = [], [], []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        own, result = {id(t) for t in self.inside}, func(*args, **(kwargs or {}))
        made = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor)]
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor) and id(t) not in own]
        learned = [(id(t), func.__name__) for t in given if made and t.requires_grad]
        self.made += learned
        self.places += tree_leaves(args[1:]) if learned else []
        self.inside += made
        return result


@pytest.mark.parametrize("samples", [False, True])
@pytest.mark.parametrize(
    "name", [name for name in NAMES if {"gauss", "lf", "sympow-gates", "compass"} & {*name.split("+")}]
)
def test_what_is_learned_is_indexed_once_and_has_the_gradients_of_the_matrix(name, samples):
    """On a GPU FlexAttention refuses to derive by a tensor that it indexes in two places, or changes before.

    In PyTorch 2.11 it does not compile what is read at a constant place.
    """
    encoding, q, k, _, x, positions = setting(name)
    encoding.requires_grad_(True)
    placed = encoding.place(positions if samples else positions[0])
    scores, omega = torch.zeros_like(q @ k.mT), placed.attenuation()
    if "sympow" in name.split("+"):
        scores += 1  # whose powers are 1
    far, options = None if omega is None else omega.log(), {"allow_unused": True, "retain_graph": True}
    kinds = [(placed.as_score_mod(x), placed.log_gate(x)), (placed.as_attenuation_mod(), far)]
    for mod, matrix in [kind for kind in kinds if kind[1] is not None and kind[1].requires_grad]:
        with Read() as read:
            pairs = everywhere(mod, scores)
        assert {function for _, function in read.made} == {"__getitem__"}
        assert len({tensor for tensor, _ in read.made}) == len(read.made)
        assert all(len(place.unique()) > 1 for place in read.places)
        seen, learned = matrix.isfinite().expand_as(pairs), [*encoding.parameters()]
        by = torch.randn_like(pairs)[seen]
        sums = [(numbers.expand_as(pairs)[seen] * by).sum() for numbers in (pairs, matrix)]
        ours, wanted = (torch.autograd.grad(each, learned, **options) for each in sums)
        assert any(slope is not None for slope in wanted)
        for one, other in zip(ours, wanted):
            assert (one is None) == (other is None)
            if one is not None:
                assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_matrices_of_ones_own_are_looked_up_entry_by_entry():
    gate, omega, scores = torch.randn(HEADS, 1, 5), torch.rand(2, 1, 4, 5), torch.randn(2, HEADS, 4, 5)
    inside, after = ScoreBias(Matrix(gate)), Attenuated(Matrix(omega.log()))
    placed = Composite([inside, after])
    assert_close(placed.attenuation(), omega)
    assert_close(everywhere(placed.as_score_mod(), scores), scores + gate)
    assert_close(everywhere(placed.as_attenuation_mod(), scores), scores + omega.log())
    assert after.as_score_mod() is inside.as_attenuation_mod() is None


# Through FlexAttention itself, which traces each modification that it meets: a second each -------------------------


@pytest.mark.parametrize(
    ("name", "queries", "keys"),  # how many of them stand in front, without a place
    [("rope", 0, 0), ("sympow-gates+sympow", 0, 0), ("rmt+lf", 0, 0), ("gauss+lf", 2, 2), ("alibi", 1, 3)],
)
def test_flex_attention_is_attention(name, queries, keys):
    encoding, q, k, v, x, positions = setting(name)
    placed = encoding.place(positions[:, keys:]).with_prefix_tokens(queries, keys=keys)
    q = q[:, :, keys - queries :]
    for causal in (False, True):
        wanted = placed.attention(q, k, v, x, causal)
        assert_close(flex_attend(placed, q, k, v, x, causal), wanted, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("behind", [0, 1])
@pytest.mark.parametrize("method", [ALiBi(8), ManhattanDecay(torch.linspace(0.1, 1, 8))])
def test_a_causal_block_mask_a_scale_and_shared_heads(method, behind):
    """With or without a query's own key: the first one sees nothing then, and gets nothing."""
    mask = create_block_mask(lambda b, h, i, j: i >= j + behind, None, None, 6, 6, device="cpu")
    q, k, v = torch.randn(1, 8, 6, DIM), torch.randn(1, 2, 6, DIM), torch.randn(1, 2, 6, DIM)
    placed, seen = method.place(torch.arange(6.0)), torch.ones(6, 6, dtype=torch.bool).tril(-behind)
    wanted = placed.attend(q, k, v, placed.log_gate(None), mask=seen, scale=0.4)
    near = create_block_mask(lambda b, h, i, j: (i - j < 9) & (i >= j + behind), None, None, 6, 6, device="cpu")
    for asked in ({"block_mask": mask}, {"causal": True, "block_mask": near}, *([] if behind else [{"causal": True}])):
        got = flex_attend(placed, q, k, v, **asked, scale=0.4)
        assert_close(got, wanted, atol=2e-5, rtol=1e-4)
        assert not behind or not got[:, :, 0].any()


@pytest.mark.parametrize("samples", [False, True])
@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("none", "rope", "rope+sympow")])
def test_other_heads_or_samples_than_the_encoding_has_are_refused(name, samples):
    """On a GPU the kernel would read past the ends of tables, or take the first heads' numbers for other heads."""
    encoding, q, k, v, x, positions = setting(name)
    placed = encoding.place(positions if samples else positions[0])
    for wrong in (1, HEADS + 1, 2 * HEADS):
        given = [t[:, :1].expand(-1, wrong, -1, -1) for t in (q, k, v)]
        with pytest.raises(ValueError, match=f"^q: got {wrong} heads; the encoding has {HEADS}$"):
            flex_attend(placed, *given, x)
    more = [t[:1].expand(3, *t.shape[1:]) for t in (q, k, v, x)]
    if samples and {"alibi", "rmt", "lf", "gauss"} & {*name.split("+")}:
        with pytest.raises(ValueError, match=r"^q: got 3 samples; the encoding has 2$"):
            flex_attend(placed, *more)
    else:
        with pytest.raises(ValueError, match=r"^x: got shape \(2, 12, 32\); .* here \(3, 12, width\)"):
            flex_attend(placed, *more[:3], x)


def test_one_placed_token_alone_is_looked_up_where_it_is():
    table = torch.tensor([[5.0]])
    modify = with_prefix_tokens(lambda score, batch, head, i, j: score + table[i, j], 2, 2)
    i, j = torch.arange(3)[:, None], torch.arange(3)
    wanted = torch.zeros(3, 3)
    wanted[2, 2] = 5
    assert torch.equal(modify(torch.zeros(3, 3), 0, 0, i, j), wanted)


@pytest.mark.parametrize("name", ["alibi", "rmt", "lf", "gauss"])
def test_no_matrix_is_made_where_none_is_asked_for(name, monkeypatch):
    def refuse(self):
        raise AssertionError("a matrix of all pairs")

    encoding, *_, positions = setting(name)
    for pairs in (Steps, Gaussian):
        monkeypatch.setattr(pairs, "computed", refuse)
    placed = encoding.place(positions)
    assert placed.as_score_mod() or placed.as_attenuation_mod()


@pytest.mark.parametrize("name", ["lf", "gauss", "alibi", "rmt"])
def test_what_is_kept_survives_activation_checkpointing(name):
    """A block that is computed a second time, for the backward pass, meets what the first pass kept."""
    encoding = build(name, width=16, heads=1, grid=(4,))
    q = torch.randn(1, 1, 4, 16, requires_grad=True)

    def gradients(call):
        placed = encoding.place(torch.arange(4.0))
        y = q
        for _ in range(2):
            y = call(lambda z: placed.attend(z, z, z, placed.log_gate(None)), y)
        return torch.autograd.grad(y.square().sum(), [q, *encoding.parameters()])

    wanted = gradients(lambda act, z: (torch.no_grad()(act)(z), act(z))[1])  # what was kept first has no gradient
    got = gradients(lambda act, z: checkpoint(act, z, use_reentrant=False))
    for a, b in zip(got, wanted):
        assert_close(a, b, atol=1e-5, rtol=1e-4)
