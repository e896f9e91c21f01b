"""Sound in chunks is that of the whole, whatever its length, and asks little of the codec."""

import numpy as np
import pytest
import torch

from app.engine.sound.chunks import Chunks
from app.engine.sound.decoding import ChunkDecoder
from models.codecs.encodec import Encodec, EncodecStream
from models.config import CodecConfig

BLOCK = 15


@pytest.fixture(scope="module", params=["constant", "reflect"])
def codec(request: pytest.FixtureRequest) -> Encodec:
    torch.manual_seed(0)
    config = CodecConfig(codes=64, filters=2, dimension=8, lstm_layers=1, pad_mode=request.param)
    codec = Encodec(config).eval().requires_grad_(False)
    codec.quantizer.codebooks.normal_(0, 0.3)
    return codec


def some_codes(frames: int) -> torch.Tensor:
    return torch.randint(64, (frames, 8), generator=torch.Generator().manual_seed(frames))


def decoded(codec: Encodec, codes: torch.Tensor) -> np.ndarray:
    chunks, decoder = Chunks(BLOCK), ChunkDecoder(codec, BLOCK)
    samples = [decoder.push(chunk) for chunk in [*chunks.push(codes), chunks.rest()]]
    return np.concatenate([*samples, decoder.finish()])


@pytest.mark.parametrize("frames", [1, 6, 7, 8, 15, 16, 29, 30, 31, 44, 45, 61, 105, 106, 164])
def test_the_samples_are_those_of_decoding_the_whole(codec: Encodec, frames: int) -> None:
    codes = some_codes(frames)
    found = decoded(codec, codes)
    torch.testing.assert_close(torch.from_numpy(found), codec.decode(codes), atol=1e-6, rtol=1e-5)


@pytest.mark.slow
def test_few_lengths_are_ever_decoded(codec: Encodec, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths, push = set[int](), EncodecStream.push

    def counted(stream: EncodecStream, codes: torch.Tensor) -> torch.Tensor:
        lengths.add(len(codes))
        return push(stream, codes)

    monkeypatch.setattr(EncodecStream, "push", counted)
    for frames in range(BLOCK, 200):
        decoded(codec, some_codes(frames))
    assert lengths == {15, 30, 45, 60}
