"""The codec at the frame rate: streams equal one piece, and no frame hears what comes after it."""

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from models.checkpoints.builtin import load_codec, read_codec_config, save_codec
from models.codecs.spectral import SpectralCodec
from models.config import CodecConfig, SpectralCodecConfig
from tests.models.codecs.test_codec import FRAMES, assert_close, make, some_codes


@pytest.fixture(scope="module")
def codec() -> SpectralCodec:
    codec = make("spectral")
    assert isinstance(codec, SpectralCodec)
    for tensor in codec.state_dict().values():
        tensor.copy_(tensor.half())  # as it is stored
    return codec


def test_a_frame_gives_its_samples_at_once(codec: SpectralCodec) -> None:
    stream, pieces = codec.stream(), some_codes(codec, 6).split([1, 2, 3])
    assert [len(stream.push(piece)) for piece in pieces] == [320, 640, 960]
    assert len(stream.finish()) == 0


def test_no_sample_depends_on_a_later_frame(codec: SpectralCodec) -> None:
    one, other = some_codes(codec, FRAMES), some_codes(codec, FRAMES, seed=1)
    other[:25] = one[:25]
    first, second = codec.decode(one), codec.decode(other)
    assert_close(first[: 25 * 320], second[: 25 * 320])
    assert not torch.allclose(first[25 * 320 :], second[25 * 320 :])


def test_noise_can_be_turned_down_when_decoding(codec: SpectralCodec) -> None:
    codes = some_codes(codec, FRAMES)

    def decoded(noise_gain: float) -> Tensor:
        other = SpectralCodec(codec.config.model_copy(update={"noise_gain": noise_gain})).eval()
        other.load_state_dict(codec.state_dict())
        return other.decode(codes)

    none, all_of_it = decoded(0.0), decoded(1.0)
    assert torch.equal(all_of_it, codec.decode(codes))
    assert_close(decoded(0.25), 0.75 * none + 0.25 * all_of_it)
    assert not torch.allclose(none, all_of_it)


def test_windows_add_up_to_what_they_were_cut_from(codec: SpectralCodec) -> None:
    """Squared Hann windows sum to 3/2, but at the beginning, where the first ones are missing."""
    samples = torch.randn(1, 20 * 320 + 960)
    pieces = samples.unfold(-1, 1280, 320) * codec.window * codec.window
    joined = codec._overlap(pieces, None)
    assert_close(joined[:, 960:], 1.5 * samples[:, 960 : joined.shape[1]])


def test_the_window_is_hop_several_times() -> None:
    for window in (320, 1000):
        with pytest.raises(ValidationError, match="must be hop 320 twice or more often"):
            SpectralCodecConfig(window=window)


def test_a_folder_says_which_architecture_its_codec_has(codec: SpectralCodec, tmp_path) -> None:
    save_codec(tmp_path, codec)
    assert read_codec_config(tmp_path) == codec.config
    loaded = load_codec(tmp_path)
    assert isinstance(loaded, SpectralCodec)
    codes = some_codes(codec, 5)
    assert_close(loaded.decode(codes), codec.decode(codes))
    (tmp_path / "codec.json").write_text('{"levels": 2}')
    assert read_codec_config(tmp_path) == CodecConfig(levels=2)
