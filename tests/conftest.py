"""Shared fixtures: seeded randomness, and fresh memory filled with NaN so that unwritten values show."""

import pytest
import torch


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.fixture
def poisoned_memory():
    """Uninitialised tensors hold NaN while the test runs."""
    previous = torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = previous
