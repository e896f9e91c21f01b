"""What the kernel samples of plain rows is what the sampler samples, on the same table."""

from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from samplers.cuda import kernel
from samplers.ops.sample import stream_key, uniform
from tests.samplers.plain_rows import GREEDY, KNOBS, PENALISED, assert_sampled_as_by_the_sampler

pytestmark = [
    pytest.mark.usefixtures("sorted_as_on_a_gpu"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # NumPy's, of NaN and wrapping
]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("knobs", [KNOBS, pytest.param(PENALISED, marks=pytest.mark.slow), GREEDY])
def test_rows_are_sampled_as_by_the_sampler(seed: int, knobs: Any, device: torch.device) -> None:
    assert_sampled_as_by_the_sampler(kernel.sample, knobs, [seed], device)


def test_the_noise_has_the_same_bits(device: torch.device) -> None:
    import triton
    import triton.language as tl

    @triton.jit  # type: ignore[untyped-decorator]
    def noise_kernel(key, length, attempt, out, SIZE: tl.constexpr):
        ids = tl.arange(0, SIZE)
        tl.store(out + ids, kernel.uniform(tl.load(key), tl.load(length), tl.load(attempt), ids))

    for number in range(20):
        key, length, attempt = stream_key(number, number, 0), 7 * number, number % 3  # type: ignore[arg-type]
        out = torch.zeros(1024, device=device)
        given = (torch.tensor([one], device=device) for one in (key, length, attempt))
        noise_kernel[(1,)](*given, out, 1024)
        expected = uniform(torch.tensor([[key]]), 1024, step=length, attempt=attempt)
        assert torch.equal(out.cpu(), expected[0])
