"""Sound in chunks is that of the whole, whatever its length, and asks little of the codec."""

import pytest
import torch

from app.engine.sound.decoding import UtteranceSound
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


@pytest.mark.parametrize("frames", [1, 6, 7, 8, 15, 16, 29, 30, 31, 44, 45, 61, 105, 106, 164])
def test_the_samples_are_those_of_decoding_the_whole(codec: Encodec, frames: int) -> None:
    codes = some_codes(frames)
    found = UtteranceSound(codec, BLOCK).push(codes, ended=True)
    torch.testing.assert_close(torch.from_numpy(found), codec.decode(codes), atol=1e-6, rtol=1e-5)


def test_few_lengths_are_ever_decoded(codec: Encodec, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths, push = set[int](), EncodecStream.push

    def counted(stream: EncodecStream, codes: torch.Tensor) -> torch.Tensor:
        lengths.add(len(codes))
        return push(stream, codes)

    monkeypatch.setattr(EncodecStream, "push", counted)
    for frames in range(BLOCK, 200):
        UtteranceSound(codec, BLOCK).push(some_codes(frames), ended=True)
    assert lengths == {15, 30, 45, 60}
