"""What is added to scores is made once a pass, and anew wherever something else would come out."""

import copy
import pickle

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

from geolib import attention as module
from geolib._compile import Kept
from geolib.attention import Placed, attention
from geolib.encodings import ALiBi, Composite, Matrix, PerLayer, ScoreBias, build

T, H, D = 12, 2, 8
QKV = torch.randn(3, 2, H, T, D, generator=torch.Generator().manual_seed(0))
LINE, ROWS = torch.arange(T), torch.arange(T)[:, None]
WINDOWS = [((ROWS - LINE).abs() < n) & (ROWS >= LINE) for n in (3, 6)]
NAMES = "alibi", "gauss", "alibi+gauss", "rope+alibi", "alibi+sympow"


@pytest.fixture
def made(monkeypatch):
    """How often a bias was made."""
    calls, make = [], module.as_bias
    monkeypatch.setattr(module, "as_bias", lambda *given: [calls.append(given), make(*given)][1])
    return calls


def placed_of(name, positions=LINE):
    return build(name, width=H * D, heads=H, grid=(T,), layers=2).place(positions)


def alone(placed, qkv, causal=False, mask=None):
    """The same with nothing kept: by the function."""
    q, k, v = qkv
    gate = placed.for_all(placed.log_gate(None), q, k, 0.0)
    return attention(*placed.to_reference(q, k), v, log_gate=gate, causal=causal, mask=mask)


@pytest.mark.parametrize("name", NAMES[:4])
def test_layers_share_it_and_another_mask_type_or_prefix_makes_a_new_one(name, made):
    placed, mask = placed_of(name), WINDOWS[0].clone()
    for causal, seen in ((True, None), (False, mask), (True, mask), (False, WINDOWS[1]), (True, WINDOWS[1])):
        before = len(made)
        for x in (QKV, QKV + 1):
            assert_close(placed.attention(*x, causal=causal, mask=seen), alone(placed, x, causal, seen))
        assert len(made) == before + 1
    mask[:, 1:] = False  # written to, and queries that see nothing
    for _ in range(2):
        assert_close(placed.attention(*QKV, mask=mask), alone(placed, QKV, False, mask))
    mask[:, 0] = False
    assert not placed.attention(*QKV, mask=mask).any()
    for x in (QKV.double(), QKV.bfloat16(), QKV[:, :1], QKV):
        assert_close(placed.attention(*x, causal=True), alone(placed, x, True))
    behind, longer = placed.with_prefix_tokens(1), torch.cat([QKV[..., :1, :], QKV], -2)
    for causal in (True, False, True):
        assert_close(behind.attention(*longer, causal=causal), alone(behind, longer, causal))


@pytest.mark.parametrize("name", NAMES)
def test_passes_at_other_positions_and_carried_keys_have_their_own(name):
    encoding, found = build(name, width=H * D, heads=H, grid=(T,)), []
    for places in (ROWS, 2 * ROWS, torch.stack([ROWS, 2 * ROWS])):
        placed = encoding.place(places)
        found += [placed.attention(*QKV, causal=True) for _ in range(2)]
        assert torch.equal(*found[-2:])
    assert not torch.allclose(found[0], found[2])
    assert_close(found[4], torch.stack([found[0][0], found[2][1]]))
    (q, k, v), step = QKV, encoding.place(LINE[-2:], keys=LINE)
    for _ in range(2):
        assert_close(step.attention(q[..., -2:, :], k, v, causal=True), found[0][..., -2:, :])


@pytest.mark.parametrize("mask", [None, WINDOWS[1]])
@pytest.mark.parametrize("name", ["gauss", "alibi+gauss"])
def test_learned_widths_have_their_gradient(name, mask):
    encoding, found = build(name, width=H * D, heads=H, grid=(T,)), []
    for layer in (
        lambda placed: placed.attention(*QKV, causal=True, mask=mask),
        lambda placed: alone(placed, QKV, True, mask),
        lambda placed: checkpoint(lambda: placed.attention(*QKV, causal=True, mask=mask), use_reentrant=False),
    ):
        placed = encoding.place(LINE)
        with torch.no_grad():  # which keeps one without gradients
            layer(placed)
        loss = sum(layer(placed).square().sum() for _ in range(3))
        found.append(torch.autograd.grad(loss, list(encoding.parameters()), allow_unused=True))
    for other in found[1:]:
        assert_close(found[0], other)


def test_nothing_is_kept_of_what_layers_do_not_share(made):
    class OfData(Placed):
        def log_gate(self, x):
            return x.mean() * torch.ones(T, T)

    both = Composite([OfData(), placed_of("alibi")])
    for _ in range(2):
        both.attention(*QKV, torch.ones(2, T, H * D), causal=True)
    own = PerLayer([ALiBi(H), ALiBi(H, [0.5, 0.25])]).place(LINE)
    for i in (0, 1, 0):
        assert_close(own.layer(i).attention(*QKV, causal=True), alone(own.layer(i), QKV, True))
    assert not made
    shared, longer = PerLayer([ALiBi(H)] * 3).place(LINE), torch.cat([QKV[..., :1, :], QKV], -2)
    for placed, x in ((shared, QKV), (shared.with_prefix_tokens(1), longer)):
        for i in range(3):
            placed.layer(i).attention(*x, causal=True)
    assert len(made) == 2


class OfInput:  # a mixin
    def log_gate(self, x):
        return x[:, None, None, :, 0] - x[:, None, :, None, 0]


@pytest.mark.parametrize("base", [Composite, Placed, ScoreBias])
def test_gates_of_the_input_in_classes_of_ones_own_are_those_of_each_layer(base):
    of = {Composite: [[placed_of("rope")]], ScoreBias: [Matrix(torch.zeros(T, T))], Placed: []}
    own = type("Own", (OfInput, base), {})(*of[base])
    for x in torch.randn(2, 2, T, 4):
        wanted = attention(*own.to_reference(*QKV[:2]), QKV[2], log_gate=own.log_gate(x), causal=True)
        assert_close(own.attention(*QKV, x, causal=True), wanted)


@pytest.mark.parametrize("strange", [torch.nan, torch.inf])
def test_numbers_of_pairs_that_are_not_seen_reach_nothing(strange):
    gate = torch.zeros(T, T)
    gate[:, -1] = strange
    for causal, mask in ((False, LINE < T - 1), (True, WINDOWS[1] & (LINE < T - 1))):
        got = ScoreBias(Matrix(gate)).attention(*QKV, causal=causal, mask=mask)
        assert_close(got, attention(*QKV, causal=causal, mask=mask))


def test_graphs_transforms_and_copies_keep_nothing_wrong():
    placed = placed_of("alibi")
    wanted = alone(placed, QKV, True, WINDOWS[1])
    read = lambda q, k, v, mask: placed.attention(q, k, v, causal=True, mask=mask)  # noqa: E731
    read(*QKV, WINDOWS[0])
    assert_close(torch.compile(read, backend="eager")(*QKV, WINDOWS[1]), wanted)
    assert_close(torch.vmap(read, (0, 0, 0, None))(*QKV[:, :, None], WINDOWS[1])[:, 0], wanted)
    assert_close(copy.deepcopy(placed).attention(*QKV, causal=True, mask=WINDOWS[1]), wanted)
    assert_close(make_fx(read)(*QKV, WINDOWS[0])(*QKV, WINDOWS[1]), wanted)
    with FakeTensorMode(allow_non_fake_inputs=True) as fake:
        placed_of("rope").attention(*map(fake.from_tensor, QKV), causal=True)
        read(*map(fake.from_tensor, QKV), fake.from_tensor(WINDOWS[1]))
    assert_close(read(*QKV, WINDOWS[1]), wanted)
    sums, x = Kept(), torch.ones(2)
    first = sums(x.sum, x)
    assert sums(x.sum, x) is first
    for other in (copy.deepcopy(sums), pickle.loads(pickle.dumps(sums))):  # numbers of objects are others there
        assert other(x.sum, x) is not first
    x.data = torch.zeros(2)
    assert sums(x.sum, x) == 0
