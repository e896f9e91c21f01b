"""Fixtures of tests that play what is recorded from a tape."""

from collections.abc import Iterator

import pytest
import torch

from samplers.ops import filters
from tests.capture.tape import Tape


@pytest.fixture(scope="module")
def sorted_as_on_a_gpu() -> Iterator[None]:
    """On a CPU `filters.descending` sorts by NumPy, which no graph could hold."""
    with pytest.MonkeyPatch.context() as patch, torch.inference_mode():
        patch.setattr(filters, "descending", lambda x: x.sort(-1, descending=True).values)
        yield


@pytest.fixture(scope="module")
def tape() -> Tape:
    return Tape()
