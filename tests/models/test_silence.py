"""Which codes are silence."""

import pytest
import torch

from models.encodec import Encodec
from models.silence import silent_codes
from tests.toy.make_toy import CODEC


@pytest.fixture(scope="module")
def codec() -> Encodec:
    generator = torch.Generator().manual_seed(0)
    codec = Encodec(CODEC)
    with torch.no_grad():
        for tensor in codec.parameters():
            tensor.normal_(0, 0.1, generator=generator)
        codec.quantizer.codebooks.normal_(0, 0.3, generator=generator)
    return codec


def test_codes_of_no_sound_are_silent(codec: Encodec) -> None:
    silent = silent_codes(codec)
    assert silent.shape == (CODEC.codes,)
    assert silent.dtype == torch.bool
    assert silent[codec.encode(torch.zeros(9_600))[:, 0]].all()


def test_not_everything_is_silent_and_the_same_codec_gives_the_same(codec: Encodec) -> None:
    silent = silent_codes(codec)
    assert not silent.all()
    assert torch.equal(silent, silent_codes(codec))
