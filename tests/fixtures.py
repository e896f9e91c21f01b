"""What tests of several packages compute, and on how small a disk."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

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


@contextmanager
def full_disk(most_bytes: int) -> Iterator[None]:
    """Let no file become larger, as where a disk fills up."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
