"""What tries the kernel that samples sees the mistakes that such kernels have."""

from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")

from samplers.cuda import kernel
from tests.gpu.faults import changed
from tests.samplers.plain_rows import GREEDY, assert_sampled_as_by_the_sampler

pytestmark = [
    pytest.mark.usefixtures("without_gradients"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # NumPy's, of NaN
]
FAULTS = [
    ("x += tl.load(bias + ids, inside, 0.0)", "pass"),
    ("back < span, -1", "back < span - 1, -1"),
    ("row * SIZE, codes + row * codes_stride", "row * SIZE, codes"),
    ("if tl.load(own + ONCE) > 0:", "if True:"),
    ("tl.store(sums + ids, tl.zeros_like(ids).to(tl.int64), inside)", "pass"),
    ("(x > 0) | (mode == RAW)", "mode == RAW"),
    ("tl.where(mode == ADDITIVE, x - lowered, x * factor)", "x * factor"),
    ("(count > 0).to(tl.float32) *", "count.to(tl.float32) *"),
    ("(length < tl.load(own + LEAST)", "(length <= tl.load(own + LEAST)"),
]
"""What of the source becomes what."""


@pytest.mark.slow
@pytest.mark.parametrize(("right", "wrong"), FAULTS)
def test_a_mistake_in_the_kernel_is_seen(
    right: str, wrong: str, tmp_path: Path, device: torch.device
) -> None:
    module = changed(kernel, right, wrong, tmp_path / "faulty.py")
    with pytest.raises(AssertionError):
        assert_sampled_as_by_the_sampler(module.sample, GREEDY, range(8), device)
