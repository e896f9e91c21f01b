"""The kernels run on the GPU that there is, or else in Triton's interpreter on the CPU."""

import pytest
import torch


@pytest.fixture
def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
