"""Products in full precision: autocast and the TF32 switch are off inside, and as before afterwards."""

import pytest
import torch

from geolib._precision import full_precision

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def product(a, b):
    with full_precision(a.device):
        return a @ b


@pytest.mark.parametrize("compiled", [False, True])
def test_autocast_is_off_inside_and_on_again_afterwards(compiled):
    a, b = torch.randn(2, 8, 8)
    work = torch.compile(product, backend="aot_eager", fullgraph=True) if compiled else product
    with torch.autocast("cpu", torch.bfloat16):
        assert (a @ b).dtype == torch.bfloat16
        assert torch.equal(work(a, b), product(a, b))
        assert work(a, b).dtype == torch.float32
        assert (a @ b).dtype == torch.bfloat16


@pytest.fixture
def tf32():
    """TF32 allowed, by the switch's present name."""
    switch = torch.backends.cuda.matmul
    name = "fp32_precision" if hasattr(switch, "fp32_precision") else "allow_tf32"
    before = getattr(switch, name)
    allowed = "tf32" if name == "fp32_precision" else True
    setattr(switch, name, allowed)
    yield lambda: getattr(switch, name) == allowed
    setattr(switch, name, before)


def test_tf32_is_off_inside_and_as_it_was_afterwards(tf32):  # the switch is there without a GPU as well
    with full_precision(CPU):
        assert tf32()
    with full_precision(CUDA):
        assert not tf32()
    assert tf32()
    with pytest.raises(KeyError), full_precision(CUDA):
        raise KeyError
    assert tf32()
