"""The libraries are set up for kernels that plan nothing, and for whole float32."""

from collections.abc import Iterator

import pytest
import torch

from gpu.library import set_up


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    matmul = torch.backends.cuda.matmul
    flags = torch.backends.cuda.cudnn_sdp_enabled(), torch.backends.cudnn.allow_tf32
    products = matmul.allow_tf32, matmul.allow_bf16_reduced_precision_reduction
    yield
    torch.backends.cuda.enable_cudnn_sdp(flags[0])
    torch.backends.cudnn.allow_tf32 = flags[1]
    matmul.allow_tf32, matmul.allow_bf16_reduced_precision_reduction = products


def test_attention_plans_nothing_and_products_and_convolutions_keep_all_bits() -> None:
    torch.backends.cuda.matmul.allow_tf32 = True  # unlike the others it may be off already
    set_up()
    assert not torch.backends.cuda.cudnn_sdp_enabled()
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.backends.cuda.matmul.allow_tf32
    assert not torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
