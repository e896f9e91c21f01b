"""The codec: streams equal one piece, and everything equals the package `encodec`."""

from typing import Any

import pytest
import torch
from torch import Tensor

from models.checkpoints.encodec import codec_from_encodec
from models.checkpoints.files import CheckpointError
from models.codecs.encodec import Encodec
from models.config import CodecConfig
from tests.models.codecs.oracle import random_encodec

SMALL = {"filters": 4, "dimension": 16, "lstm_layers": 2, "codes": 64}
OFFICIAL = CodecConfig()


def small_codec(pad_mode: str, gain: float = 1.0) -> Encodec:
    torch.manual_seed(0)
    codec = Encodec(CodecConfig(pad_mode=pad_mode, gain=gain, **SMALL))
    codec.quantizer.codebooks.normal_()
    return codec.eval()


def some_codes(frames: int, levels: int = 8, codes: int = 64) -> Tensor:
    return torch.randint(codes, (frames, levels), generator=torch.Generator().manual_seed(frames))


def streamed(codec: Encodec, codes: Tensor, sizes: list[int]) -> Tensor:
    stream = codec.stream()
    return torch.cat([*(stream.push(piece) for piece in codes.split(sizes)), stream.finish()])


def assert_close(found: Tensor, expected: Tensor, relative: float = 1e-5) -> None:
    assert found.shape == expected.shape
    assert (found - expected).abs().max() <= relative * expected.abs().max()


@pytest.mark.parametrize("pad_mode", ["reflect", "constant"])
@pytest.mark.parametrize("chunk", [1, 2, 3, 4, 5, 6, 7, 8, 13, 40])
def test_any_chunking_equals_one_piece(pad_mode: str, chunk: int) -> None:
    codec, codes = small_codec(pad_mode), some_codes(40)
    sizes = [min(chunk, 40 - start) for start in range(0, 40, chunk)]
    assert_close(streamed(codec, codes, sizes), codec.decode(codes))


@pytest.mark.parametrize("pad_mode", ["reflect", "constant"])
def test_uneven_chunks_equal_one_piece(pad_mode: str) -> None:
    codec, codes = small_codec(pad_mode), some_codes(40)
    assert_close(streamed(codec, codes, [1, 9, 2, 20, 3, 5]), codec.decode(codes))


@pytest.mark.parametrize("pad_mode", ["reflect", "constant"])
@pytest.mark.parametrize("frames", [1, 2, 3, 4, 5, 6, 7])
def test_a_stream_that_ends_early_equals_one_piece(pad_mode: str, frames: int) -> None:
    codec, codes = small_codec(pad_mode), some_codes(frames)
    assert_close(streamed(codec, codes, [1] * frames), codec.decode(codes))


def test_two_streams_do_not_disturb_each_other() -> None:
    codec, one, other = small_codec("constant"), some_codes(20), some_codes(21)[:20]
    first, second = codec.stream(), codec.stream()
    pieces = [
        (first.push(a), second.push(b)) for a, b in zip(one.split(5), other.split(5), strict=True)
    ]
    assert_close(torch.cat([a for a, _ in pieces]), codec.decode(one))
    assert_close(torch.cat([b for _, b in pieces]), codec.decode(other))


def test_a_frame_is_hop_samples_and_a_begun_frame_counts() -> None:
    codec = small_codec("constant")
    hop = codec.config.hop
    assert len(codec.decode(some_codes(9))) == 9 * hop
    assert codec.encode(torch.randn(3 * hop)).shape == (3, 8)
    assert codec.encode(torch.randn(3 * hop + 1)).shape == (4, 8)


def test_fewer_levels_decode_the_sum_of_those_levels() -> None:
    codec, codes = small_codec("constant"), some_codes(9)
    latent = sum(codec.quantizer.codebooks[level][codes[:, level]] for level in range(3))
    assert isinstance(latent, Tensor)
    with torch.inference_mode():
        assert_close(codec.decode(codes[:, :3]), codec.decoder(latent.T[None])[0, 0])


def test_gain_scales_the_input_and_unscales_the_output() -> None:
    plain, loud = small_codec("constant"), small_codec("constant", gain=24.0)
    loud.load_state_dict(plain.state_dict())
    samples, codes = torch.randn(2000) * 0.05, some_codes(9)
    assert torch.equal(loud.encode(samples), plain.encode(samples * 24))
    assert_close(loud.decode(codes) * 24, plain.decode(codes))


@pytest.mark.parametrize(
    "codes", [torch.zeros(0, 8), torch.zeros(3), torch.zeros(3, 9), torch.full((3, 8), 64),
              torch.full((3, 8), -1)],
)  # fmt: skip
def test_codes_that_are_none_are_refused(codes: Tensor) -> None:
    codec = small_codec("constant")
    with pytest.raises(ValueError, match="codes must"):
        codec.decode(codes.long())
    with pytest.raises(ValueError, match="codes must"):
        codec.stream().push(codes.long())


def test_samples_of_a_wrong_shape_are_refused() -> None:
    for samples in (torch.zeros(0), torch.zeros(1, 100)):
        with pytest.raises(ValueError, match="samples must"):
            small_codec("constant").encode(samples)


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
    codes = some_codes(frames, codes=1024)
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
