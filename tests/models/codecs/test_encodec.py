"""EnCodec equals the package `encodec`, and tensors that do not fit are named."""

from typing import Any

import pytest
import torch

from models.checkpoints.encodec import codec_from_encodec
from models.checkpoints.files import CheckpointError
from models.codecs.encodec import Encodec
from models.config import CodecConfig
from tests.models.codecs.oracle import random_encodec
from tests.models.codecs.test_codec import assert_close, streamed

OFFICIAL = CodecConfig()


@pytest.fixture(scope="module")
def oracle() -> Any:
    return random_encodec()


@pytest.fixture(scope="module")
def ported(oracle: Any) -> Encodec:
    return codec_from_encodec(oracle.state_dict(), OFFICIAL)


@pytest.mark.parametrize("samples", [320, 2000, 2240, 16_000, 24_001])
@torch.inference_mode()
def test_encoding_equals_the_encodec_package(oracle: Any, ported: Encodec, samples: int) -> None:
    x = torch.randn(samples, generator=torch.Generator().manual_seed(1)) * 0.1
    assert_close(ported.encoder(x[None, None]), oracle.encoder(x[None, None]), 1e-4)
    expected = oracle.encode(x[None, None])[0][0][0].T
    assert (ported.encode(x) == expected).float().mean() > 0.99  # ties of rounding may differ


@pytest.mark.parametrize("frames", [1, 3, 6, 7, 50])
@torch.inference_mode()
def test_decoding_equals_the_encodec_package(oracle: Any, ported: Encodec, frames: int) -> None:
    generator = torch.Generator().manual_seed(frames)
    codes = torch.randint(1024, (frames, 8), generator=generator)
    expected = oracle.decode([(codes.T[None], None)])[0, 0]
    assert_close(ported.decode(codes), expected)
    assert_close(streamed(ported, codes, [1] * frames), expected)


def test_missing_and_misshapen_encodec_tensors_are_named(oracle: Any) -> None:
    tensors = dict(oracle.state_dict())
    bias = "decoder.model.0.conv.conv.bias"
    with pytest.raises(CheckpointError, match=r"decoder\.model\.0\.conv\.conv\.bias is missing"):
        codec_from_encodec({name: t for name, t in tensors.items() if name != bias}, OFFICIAL)
    with pytest.raises(CheckpointError, match=r"has shape \[3\], expected \[512\]"):
        codec_from_encodec(tensors | {bias: torch.zeros(3)}, OFFICIAL)
    name = "decoder.model.0.conv.conv.weight_v"
    with pytest.raises(CheckpointError, match="weight_v is missing"):
        codec_from_encodec({key: t for key, t in tensors.items() if key != name}, OFFICIAL)
