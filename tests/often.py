"""What tests of mathematics say often: numbers in float64, that two of them agree, and that bad input is named."""

import pytest
import torch
from torch.testing import assert_close


def vec(*values):
    return torch.tensor(values, dtype=torch.float64)


def double(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def close(found, expected, atol=1e-10):
    assert_close(found, expected, atol=atol, rtol=0)


def refuses(*cases):
    """A test that each call is a ValueError that begins so; an argument's name alone says that it, and what came."""

    @pytest.mark.parametrize(("call", "begins"), cases)
    def refused(call, begins):
        with pytest.raises(ValueError, match=f"^{begins}" if ":" in begins else f"^{begins}: got (?!None;)"):
            call()

    return refused
