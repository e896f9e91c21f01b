"""What a test computes as a service on a GPU does."""

from collections.abc import Iterator

import pytest
import torch

from samplers.ops import filters


@pytest.fixture(scope="module")
def without_gradients() -> Iterator[None]:
    """Compute as the service does: norm and GELU have forms of their own there."""
    with torch.inference_mode():
        yield


@pytest.fixture(scope="module")
def sorted_as_on_a_gpu(without_gradients: None) -> Iterator[None]:
    """Sort with torch: on a CPU `filters.descending` uses NumPy, which no graph could hold."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filters, "descending", lambda x: x.sort(-1, descending=True).values)
        yield
