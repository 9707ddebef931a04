"""A training step stays on its device: it reads no number back, copies nothing from the host and makes nothing there.

A recorded step (a CUDA graph) can do none of the three, nor draw from a generator that the recording does not know. The
device here is ``meta``, which has shapes and no numbers, and says that it is a GPU, so that the forms for one are
taken: who asks for a number is refused, and who mixes it with the host's memory is seen.
"""

from collections import Counter

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from geolib import exponential, flex
from geolib.encodings import METHODS, build
from geolib.lab.config import Config
from geolib.lab.gpt import GPT
from geolib.lab.text_attention import METHODS as READERS
from geolib.lab.vit import ViT
from geolib.recurrence import _chunks_cpu, _products, forms, fused

OPERATORS = exponential.OPERATORS | _chunks_cpu.OPERATORS  # the library's own, by name
AWAY = torch.device("meta")
SHAPES = {"image": ((3, 16, 16), 4), "volume": ((1, 8, 8, 8), 4), "clip": ((1, 4, 8, 8), (2, 4, 4))}
NAMES = [*METHODS, "riemannformer+lf", "rope+alibi"]
PLANE_ONLY = {"visionllama", "compass", "spherical", "riemannformer-reflection"}
READ = [(method, {}) for method in READERS] + [
    ("sympow+gates", {"power": 4, "head_dim": 8}),
    ("conformal-sympow", {"power": 4, "head_dim": 8}),
    ("conformal-sympow", {"beta_scale": 0.0}),
]


@pytest.fixture(autouse=True)
def on_a_gpu(monkeypatch):
    """Tensors of ``meta`` say that they are on a GPU, in the backward pass too."""
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda x: x.is_meta))
    for owner, name in FROM_PYTHON:
        monkeypatch.setattr(owner, name, noted(getattr(owner, name), name))


FROM_PYTHON = [(torch, "tensor"), (torch, "as_tensor"), (torch, "from_numpy"), (torch.Tensor, "new_tensor")]
made = []  # the names of those that were called


def noted(function, name):
    def call(*args, **kwargs):
        made.append(name)
        return function(*args, **kwargs)

    return call


class Stays(TorchDispatchMode):
    """Operations that touch the host's memory, read numbers or draw from a generator of somebody's own, by name."""

    def __init__(self):
        super().__init__()
        self.strayed, self.operations = [], Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.name() in OPERATORS:  # the library's own, by what they are made of
            with self:
                return OPERATORS[func.name()](*args)
        result = func(*args, **(kwargs or {}))
        leaves = tree_leaves((args, kwargs, result))
        self.operations[func.name()] += 1
        own = any(isinstance(x, torch.Generator) for x in leaves)
        if own or func.name() in READS or any(x.device != AWAY for x in leaves if isinstance(x, torch.Tensor)):
            self.strayed.append(func.name())
        return result


class FromTheHost(TorchFunctionMode):
    """Notes a list that picks rows and a number that is written at one place: a GPU waits for a copy of either."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in (torch.Tensor.__getitem__, torch.Tensor.__setitem__):
            places = args[1] if isinstance(args[1], tuple) else (args[1],)
            made.extend("list" for place in places if isinstance(place, list | range | np.ndarray))
            if len(args) == 3 and isinstance(args[2], int | float) and args[0][args[1]].dim() == 0:
                made.append("number")
        return func(*args, **(kwargs or {}))


READS = {"aten::_local_scalar_dense", "aten::item", "aten::is_nonzero", "aten::nonzero"}


def watched(model, example, target, dtype=torch.bfloat16):
    """The second step of a model, whose tables were made in the first, without the optimiser's part."""
    model = model.to(AWAY, dtype)  # autocast passes meta by: products are in the dtype of the weights
    inputs = example.to(AWAY, dtype if example.is_floating_point() else None), target.to(AWAY)
    mean_loss(model, *inputs).backward()
    seen = Stays()
    made.clear()
    with seen, FromTheHost():
        mean_loss(model, *inputs).backward()
    seen.strayed += made
    return seen


def mean_loss(model, inputs, targets):
    return F.cross_entropy(model(inputs).float().flatten(0, -2), targets.flatten())


def strays(*settings):
    """What leaves the device in a step."""
    seen = watched(*settings)
    assert seen.operations.total() > 50
    return seen.strayed


def kinds_of(method):
    """The kinds of data that a method takes: it is placed in a clip as in a volume, so that one method has both."""
    return ["image"] if method in PLANE_ONLY else [*SHAPES] if method == "riemannformer+lf" else ["image", "volume"]


@pytest.mark.parametrize("pool", ["mean", "cls"])
@pytest.mark.parametrize(("method", "kind"), [(method, kind) for method in NAMES for kind in kinds_of(method)])
def test_a_step_on_images_volumes_and_clips_stays_on_the_device(method, kind, pool):
    shape, patch = SHAPES[kind]
    config = Config("cifar10", method, width=96, heads=2, layers=2, patch=patch, pool=pool)
    strayed = strays(ViT(config, shape, 10), torch.randn(4, *shape), torch.zeros(4, dtype=torch.long))
    assert strayed == []


@pytest.mark.parametrize(
    ("context", "dtype"), [(32, torch.bfloat16), (1500, torch.bfloat16), (1500, torch.float32)], ids=str
)
@pytest.mark.parametrize(("method", "options"), READ, ids=str)
def test_a_step_on_documents_stays_on_the_device(method, options, context, dtype):
    config = Config("books", method, method_options=options, width=32, heads=2, layers=2, context=context)
    tokens = torch.zeros(2, context, dtype=torch.long)
    assert strays(GPT(config), tokens, tokens, dtype) == []


def all_pairs(q, k, v, modify, mask):
    """What FlexAttention computes, with the matrix of pairs: its modifications and the mask by blocks are asked."""
    sizes = q.shape[0], q.shape[1], q.shape[2], k.shape[2]
    i, j, m, n = (torch.arange(size, device=AWAY) for size in sizes)
    pairs = i[:, None, None, None], j[:, None, None], m[:, None], n
    scores = q @ k.mT if modify is None else modify(q @ k.mT, *pairs)
    if mask is not None:
        scores = scores.masked_fill(~mask.mask_mod(*pairs), float("-inf"))
    asked.append(mask)
    return scores.softmax(-1).to(v.dtype) @ v, scores.logsumexp(-1)


asked = []  # the masks that it was called with


@pytest.fixture
def flex_without_kernel(monkeypatch):
    """FlexAttention's kernel, which no device without numbers has, stands aside; all around it is the library's."""
    for module in (flex, fused):
        monkeypatch.setattr(module, "flex_kernel", lambda *settings: all_pairs)
    monkeypatch.setattr(forms, "kernel_takes", lambda *tensors: True)
    asked.clear()


@pytest.mark.usefixtures("flex_without_kernel")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("unplaced", [0, 1])
@pytest.mark.parametrize("method", NAMES)
def test_flex_attention_of_a_method_stays_on_the_device(method, unplaced, dtype):
    encoding = build(method, width=96, heads=2, grid=(4, 4), layers=1).to(AWAY)
    q, k, v = (torch.randn(2, 2, 16 + unplaced, 48, device=AWAY, dtype=dtype, requires_grad=True) for _ in range(3))
    x = torch.randn(2, 16 + unplaced, 96, device=AWAY)
    made.clear()
    with Stays() as seen, FromTheHost():
        placed = encoding.place(torch.zeros(16, 2, device=AWAY)).with_prefix_tokens(unplaced)
        out = flex.flex_attend(placed, q, k, v, x)
        out.sum().backward()
    assert (out.shape, out.dtype, v.grad.shape) == (v.shape, dtype, v.shape)
    assert seen.strayed + made == []


@pytest.mark.usefixtures("flex_without_kernel")
@pytest.mark.parametrize(("method", "options"), [each for each in READ if "sympow" in each[0]], ids=str)
def test_flex_attention_of_symmetric_powers_stays_on_the_device(method, options):
    config = Config("books", method, method_options=options, width=32, heads=2, layers=2, context=160)
    tokens = torch.zeros(2, 160, dtype=torch.long)
    assert strays(GPT(config), tokens, tokens) == []
    assert len(asked) == 4  # two layers, two steps


def test_the_forms_for_a_gpu_are_taken():
    config = Config("books", "sympow+gates", width=32, heads=2, layers=1, context=1500)
    tokens = torch.zeros(2, 1500, dtype=torch.long)
    assert watched(GPT(config), tokens, tokens).operations["geolib::product"]
    factors = torch.empty(3, 2, 8, 8, dtype=torch.bfloat16, device=AWAY)
    with Stays() as seen:  # what it does on a GPU: narrow products with wide sums
        assert _products.product._init_fn(factors, factors).dtype == torch.float32
    assert seen.operations["aten::bmm.dtype"]
    assert seen.strayed == []


@pytest.mark.parametrize(("method", "options"), READ, ids=str)
def test_a_step_on_documents_is_one_graph(method, options):
    config = Config("books", method, method_options=options, width=32, heads=2, layers=1, context=32)
    model, tokens = GPT(config).to(AWAY), torch.zeros(2, 32, dtype=torch.long, device=AWAY)
    torch._dynamo.reset()  # it gives up after eight models of one code
    one = torch.compile(model, fullgraph=True, backend="eager")  # a graph that breaks is an error
    assert one(tokens).shape == (2, 32, 256)
