"""The codec at the frame rate: streams equal one piece, and no frame hears what comes after it."""

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from models.checkpoints import load_codec, read_codec_config, save_codec
from models.codecs.spectral import SpectralCodec
from models.config import CodecConfig, SpectralCodecConfig

SMALL = SpectralCodecConfig(
    width=16, ffn=24, dimension=8, codes=64, bands=20, encoder_layers=1, decoder_layers=2
)
FRAMES = 40


@pytest.fixture(scope="module")
def codec() -> SpectralCodec:
    torch.manual_seed(0)
    codec = SpectralCodec(SMALL).eval().requires_grad_(False)
    codec.quantizer.codebooks.normal_()
    for tensor in codec.state_dict().values():
        tensor.copy_(tensor.half())  # as it is stored
    return codec


def some_codes(frames: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(SMALL.codes, (frames, SMALL.levels), generator=generator)


def assert_close(found: Tensor, expected: Tensor) -> None:
    assert found.shape == expected.shape
    assert (found - expected).abs().max() <= 1e-5 * expected.abs().max()


@pytest.mark.parametrize("sizes", [[1] * FRAMES, [2] * 20, [7, 33], [15, 15, 10], [1, 9, 2, 28]])
def test_any_chunking_equals_one_piece(codec: SpectralCodec, sizes: list[int]) -> None:
    codes, stream = some_codes(FRAMES), codec.stream()
    pieces = [*(stream.push(piece) for piece in codes.split(sizes)), stream.finish()]
    assert_close(torch.cat(pieces), codec.decode(codes))


def test_a_frame_gives_its_samples_at_once(codec: SpectralCodec) -> None:
    stream = codec.stream()
    assert [len(stream.push(piece)) for piece in some_codes(6).split([1, 2, 3])] == [320, 640, 960]
    assert len(stream.finish()) == 0


def test_no_sample_depends_on_a_later_frame(codec: SpectralCodec) -> None:
    one, other = some_codes(FRAMES), some_codes(FRAMES, seed=1)
    other[:25] = one[:25]
    first, second = codec.decode(one), codec.decode(other)
    assert_close(first[: 25 * 320], second[: 25 * 320])
    assert not torch.allclose(first[25 * 320 :], second[25 * 320 :])


def test_noise_can_be_turned_down_when_decoding(codec: SpectralCodec) -> None:
    def decoded(noise_gain: float) -> Tensor:
        other = SpectralCodec(SMALL.model_copy(update={"noise_gain": noise_gain})).eval()
        other.load_state_dict(codec.state_dict())
        return other.decode(some_codes(FRAMES))

    none, all_of_it = decoded(0.0), decoded(1.0)
    assert torch.equal(all_of_it, codec.decode(some_codes(FRAMES)))
    assert_close(decoded(0.25), 0.75 * none + 0.25 * all_of_it)
    assert not torch.allclose(none, all_of_it)


def test_two_streams_do_not_disturb_each_other(codec: SpectralCodec) -> None:
    one, other = some_codes(20), some_codes(20, seed=1)
    first, second = codec.stream(), codec.stream()
    pairs = zip(one.split(5), other.split(5), strict=True)
    pieces = [(first.push(a), second.push(b)) for a, b in pairs]
    assert_close(torch.cat([a for a, _ in pieces]), codec.decode(one))
    assert_close(torch.cat([b for _, b in pieces]), codec.decode(other))


@pytest.mark.parametrize(("samples", "frames"), [(1, 1), (960, 3), (961, 4), (24_001, 76)])
def test_a_begun_frame_counts(codec: SpectralCodec, samples: int, frames: int) -> None:
    codes = codec.encode(torch.randn(samples) * 0.05)
    assert codes.shape == (frames, 4)
    assert codes.dtype == torch.int64
    assert len(codec.decode(codes)) == frames * 320


def test_fewer_levels_decode_the_sum_of_those_levels(codec: SpectralCodec) -> None:
    codes = some_codes(9)
    latent = sum(codec.quantizer.codebooks[level][codes[:, level]] for level in range(2))
    assert isinstance(latent, Tensor)
    with torch.inference_mode():
        assert_close(codec.decode(codes[:, :2]), codec.sound(latent[None])[0])


def test_gain_scales_the_input_and_unscales_the_output(codec: SpectralCodec) -> None:
    loud = SpectralCodec(SMALL.model_copy(update={"gain": 24.0})).eval()
    loud.load_state_dict(codec.state_dict())
    samples, codes = torch.randn(2000) * 0.05, some_codes(9)
    with torch.inference_mode():
        assert_close(loud.heard(samples[None]), codec.heard(samples[None] * 24))
    assert_close(loud.decode(codes) * 24, codec.decode(codes))


def test_windows_add_up_to_what_they_were_cut_from(codec: SpectralCodec) -> None:
    """Squared Hann windows sum to 3/2, but at the beginning, where the first ones are missing."""
    samples = torch.randn(1, 20 * 320 + 960)
    pieces = samples.unfold(-1, 1280, 320) * codec.window * codec.window
    joined = codec._overlap(pieces, None)
    assert_close(joined[:, 960:], 1.5 * samples[:, 960 : joined.shape[1]])


@pytest.mark.parametrize(
    "codes", [torch.zeros(0, 4), torch.zeros(3), torch.zeros(3, 5), torch.full((3, 4), 64),
              torch.full((3, 4), -1)],
)  # fmt: skip
def test_codes_that_are_none_are_refused(codec: SpectralCodec, codes: Tensor) -> None:
    with pytest.raises(ValueError, match="codes must"):
        codec.decode(codes.long())
    with pytest.raises(ValueError, match="codes must"):
        codec.stream().push(codes.long())


def test_samples_of_a_wrong_shape_are_refused(codec: SpectralCodec) -> None:
    for samples in (torch.zeros(0), torch.zeros(1, 100)):
        with pytest.raises(ValueError, match="samples must"):
            codec.encode(samples)


def test_the_window_is_hop_several_times() -> None:
    for window in (320, 1000):
        with pytest.raises(ValidationError, match="must be hop 320 twice or more often"):
            SpectralCodecConfig(window=window)


def test_a_folder_says_which_architecture_its_codec_has(codec: SpectralCodec, tmp_path) -> None:
    save_codec(tmp_path, codec)
    assert read_codec_config(tmp_path) == SMALL
    loaded = load_codec(tmp_path)
    assert isinstance(loaded, SpectralCodec)
    codes = some_codes(5)
    assert_close(loaded.decode(codes), codec.decode(codes))
    (tmp_path / "codec.json").write_text('{"levels": 2}')
    assert read_codec_config(tmp_path) == CodecConfig(levels=2)
