"""A training step stays on its device: it reads no number back, copies nothing from the host and makes nothing there.

A recorded step (a CUDA graph) can do none of the three. The device here is ``meta``, which has shapes and no numbers:
who asks for one is refused, and who mixes it with the host's memory is seen.
"""

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from geolib.encodings import METHODS
from geolib.lab.causal import METHODS as READERS
from geolib.lab.config import Config
from geolib.lab.gpt import GPT
from geolib.lab.models import ViT

AWAY = torch.device("meta")
SHAPES = {"image": ((3, 16, 16), 4), "volume": ((1, 8, 8, 8), 4), "clip": ((1, 4, 8, 8), (2, 4, 4))}
NAMES = [*METHODS, "riemannformer+lf", "rope+alibi"]
PLANE_ONLY = {"visionllama", "compass", "spherical", "riemannformer-reflection"}
READ = [(method, {}) for method in READERS] + [
    ("sympow+gates", {"power": 4, "head_dim": 8}),
    ("conformal-sympow", {"power": 4, "head_dim": 8}),
    ("conformal-sympow", {"beta_scale": 0.0}),
]


class Stays(TorchDispatchMode):
    """Operations that touch the host's memory, by name."""

    def __init__(self):
        super().__init__()
        self.strayed, self.operations = [], 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        tensors = [x for x in tree_leaves((args, kwargs, result)) if isinstance(x, torch.Tensor)]
        self.operations += 1
        if any(x.device != AWAY for x in tensors):
            self.strayed.append(func.name())
        return result


def strays(model, example, target, dtype=torch.bfloat16):
    """What leaves the device in the second step of a model, whose tables were made in the first."""
    model, example, target = model.to(AWAY), example.to(AWAY), target.to(AWAY)
    for _ in range(2):
        with Stays() as watched:
            model.zero_grad()
            with torch.autocast("cpu", dtype, enabled=dtype is not None, cache_enabled=False):
                scores = model(example)
            F.cross_entropy(scores.float().flatten(0, -2), target.flatten()).backward()
    assert watched.operations > 50
    return watched.strayed


def axes_of(method):
    """The kinds of data that a method takes."""
    return ["image"] if method in PLANE_ONLY else list(SHAPES)


@pytest.mark.parametrize("pool", ["mean", "cls"])
@pytest.mark.parametrize(("method", "kind"), [(method, kind) for method in NAMES for kind in axes_of(method)])
def test_a_step_on_images_volumes_and_clips_stays_on_the_device(method, kind, pool):
    shape, patch = SHAPES[kind]
    config = Config("cifar10", method, width=96, heads=2, layers=2, patch=patch, pool=pool)
    strayed = strays(ViT(config, shape, 10), torch.randn(4, *shape), torch.zeros(4, dtype=torch.long))
    assert strayed == []


@pytest.mark.parametrize("context", [32, 300])
@pytest.mark.parametrize(("method", "options"), READ, ids=str)
def test_a_step_on_documents_stays_on_the_device(method, options, context):
    config = Config("books", method, method_options=options, width=32, heads=2, layers=2, context=context)
    tokens = torch.zeros(2, context, dtype=torch.long)
    assert strays(GPT(config), tokens, tokens) == []


class Leaves(torch.nn.Module):
    """A model with something behind it that leaves the device."""

    def __init__(self, fault):
        super().__init__()
        self.fault = fault
        self.vit = ViT(Config("cifar10", "rope", width=32, heads=2, layers=1, patch=4), (3, 16, 16), 10)

    def forward(self, x):
        return self.fault(self.vit(x))


IMAGES = torch.randn(4, 3, 16, 16), torch.zeros(4, dtype=torch.long)


def test_a_step_that_makes_something_on_the_host_is_seen():
    assert strays(Leaves(lambda x: x + torch.ones(10).to(AWAY)), *IMAGES)


@pytest.mark.parametrize("fault", [lambda x: x * x.sum().item(), lambda x: x.cpu().to(AWAY)], ids=["read", "copied"])
def test_a_step_that_reads_numbers_back_is_refused(fault):
    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
        strays(Leaves(fault), *IMAGES)


@pytest.mark.parametrize(("method", "options"), READ, ids=str)
def test_a_step_on_documents_is_one_graph(method, options):
    config = Config("books", method, method_options=options, width=32, heads=2, layers=1, context=32)
    model, tokens = GPT(config).to(AWAY), torch.zeros(2, 32, dtype=torch.long, device=AWAY)
    torch._dynamo.reset()  # it gives up after eight models of one code
    one = torch.compile(model, fullgraph=True, backend="eager")  # a graph that breaks is an error
    assert one(tokens).shape == (2, 32, 256)
