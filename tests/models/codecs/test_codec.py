"""What every codec does: streams equal one piece, alone and in rows; bad input is refused."""

from typing import Any

import pytest
import torch
from torch import Tensor

from models.codecs.encodec import Encodec
from models.codecs.spectral import SpectralCodec
from models.codecs.streaming import StreamTable
from models.config import CodecConfig, SpectralCodecConfig

pytestmark = pytest.mark.usefixtures("without_gradients")

KINDS = ("constant", "reflect", "spectral")
FRAMES, HOP, CODES = 40, 320, 64


def make(kind: str, **changes: Any) -> Encodec | SpectralCodec:
    torch.manual_seed(0)
    if kind == "spectral":
        config = SpectralCodecConfig(
            width=16, ffn=24, dimension=8, codes=CODES, bands=20, encoder_layers=1, decoder_layers=2
        )
        made: Encodec | SpectralCodec = SpectralCodec(config.model_copy(update=changes))
    else:
        other = CodecConfig(pad_mode=kind, filters=4, dimension=16, lstm_layers=2, codes=CODES)
        made = Encodec(other.model_copy(update=changes))
    made.quantizer.codebooks.normal_()
    return made.eval().requires_grad_(False)


@pytest.fixture(scope="module", params=KINDS)
def codec(request: pytest.FixtureRequest) -> Encodec | SpectralCodec:
    return make(request.param)


def some_codes(codec: Encodec | SpectralCodec, frames: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(CODES, (frames, codec.config.levels), generator=generator)


def assert_close(found: Tensor, expected: Tensor, relative: float = 1e-5) -> None:
    """Compare samples, the largest difference with the largest sample."""
    assert found.shape == expected.shape
    assert (found - expected).abs().max() <= relative * expected.abs().max()


def streamed(codec: Encodec | SpectralCodec, codes: Tensor, sizes: list[int]) -> Tensor:
    stream = codec.stream()
    return torch.cat([*(stream.push(piece) for piece in codes.split(sizes)), stream.finish()])


SIZES = [
    *([min(chunk, FRAMES - at) for at in range(0, FRAMES, chunk)] for chunk in (*range(1, 9), 13)),
    *([FRAMES], [1, 9, 2, 20, 3, 5], [7, 33], [15, 15, 10]),
    *([1] * frames for frames in range(1, 8)),  # with reflect padding the first 7 come together
]


@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: f"{sum(sizes)} by {sizes[0]}")
def test_any_chunking_equals_one_piece(codec, sizes: list[int]) -> None:
    codes = some_codes(codec, sum(sizes))
    assert_close(streamed(codec, codes, sizes), codec.decode(codes))


@pytest.mark.parametrize(
    ("samples", "frames"), [(1, 1), (3 * HOP, 3), (3 * HOP + 1, 4), (24_001, 76)]
)
def test_a_frame_is_hop_samples_and_a_begun_frame_counts(codec, samples: int, frames: int) -> None:
    codes = codec.encode(torch.randn(samples) * 0.05)
    assert codes.shape == (frames, codec.config.levels)
    assert codes.dtype == torch.int64
    assert len(codec.decode(codes)) == frames * HOP


def test_fewer_levels_decode_the_sum_of_those_levels(codec) -> None:
    codes = some_codes(codec, 9)
    latent = sum(codec.quantizer.codebooks[level][codes[:, level]] for level in range(3))
    assert isinstance(latent, Tensor)
    assert_close(codec.decode(codes[:, :3]), codec.sound(latent[None])[0])


@pytest.mark.parametrize("kind", KINDS)
def test_gain_scales_the_input_and_unscales_the_output(kind: str) -> None:
    plain, loud = make(kind), make(kind, gain=24.0)
    loud.load_state_dict(plain.state_dict())
    samples, codes = torch.randn(2000) * 0.05, some_codes(plain, 9)
    assert torch.equal(loud.encode(samples), plain.encode(samples * 24))
    assert_close(loud.decode(codes) * 24, plain.decode(codes))


def test_codes_and_samples_that_are_none_are_refused(codec) -> None:
    levels = codec.config.levels
    for codes in (
        torch.zeros(0, levels), torch.zeros(3), torch.zeros(3, levels + 1),
        torch.full((3, levels), CODES), torch.full((3, levels), -1),
    ):  # fmt: skip
        for refuse in (codec.decode, codec.stream().push):
            with pytest.raises(ValueError, match="codes must"):
                refuse(codes.long())
    for samples in (torch.zeros(0), torch.zeros(1, 100)):
        with pytest.raises(ValueError, match="samples must"):
            codec.encode(samples)


def test_what_a_row_held_before_a_stream_began_is_not_heard() -> None:
    own = make("constant")
    latent = torch.randn(1, 15, own.config.dimension)
    table, row, yes = StreamTable(own, latent, 1), torch.tensor([0]), torch.tensor([True])
    state = table.read(row, yes)
    own.sound(latent * torch.nan, state)
    table.write(row, state)
    assert not own.sound(latent, table.read(row, ~yes)).isfinite().all()
    found = own.sound(latent, table.read(row, yes))
    assert torch.equal(found, own.sound(latent, table.read(row, yes)))
    assert_close(found, own.sound(latent))
