"""The kernels run on the GPU that there is, or else in Triton's interpreter on the CPU."""

import pytest
import torch

from tests.fixtures import sorted_as_on_a_gpu, without_gradients

# The ticket of a card reads no conftest above this one.
__all__ = ["sorted_as_on_a_gpu", "without_gradients"]


@pytest.fixture
def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
