from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from torch import Tensor, nn

from models.codecs.interface import Codec
from models.config import CodecConfig
from models.voices.voice import BuiltinVoices, PromptCodes, Voice, VoiceError, read_mono

CPU = torch.device("cpu")


class CountingCodec(Codec):
    """Encodes everything as zeros, one frame each 320 samples; counts how often it is asked."""

    def __init__(self, weight: float = 1.0) -> None:
        super().__init__()
        self.config, self.calls = CodecConfig(), 0
        self.weight = nn.Parameter(torch.tensor([weight]))

    def encode(self, samples: Tensor, **_: bool) -> Tensor:
        self.calls += 1
        frames = -(-len(samples) // self.config.hop)
        return torch.zeros(frames, self.config.levels, dtype=torch.int64)

    def sound(self, *_: object) -> Tensor:
        raise NotImplementedError


def frames(codes: Tensor | None) -> int:
    assert codes is not None
    return len(codes)


def write(path: Path, seconds: float = 1.0, rate_hz: int = 24_000, channels: int = 1) -> Path:
    path.parent.mkdir(exist_ok=True)
    shape = (round(seconds * rate_hz), channels)
    soundfile.write(path, np.full(shape, 0.25, np.float32), rate_hz)
    return path


def test_voices_are_listed_by_name_with_what_their_cards_say(tmp_path):
    write(tmp_path / "zoe.flac")
    write(tmp_path / "adam.flac")
    (tmp_path / "adam.json").write_text('{"title": "Adam", "transcript": "Good morning."}')
    adam, zoe = BuiltinVoices(tmp_path)
    assert (adam.name, adam.title, adam.transcript) == ("adam", "Adam", "Good morning.")
    assert (zoe.name, zoe.language, zoe.owner) == ("zoe", "en", None)


def test_a_folder_without_voices_has_the_models_own(tmp_path):
    voices = BuiltinVoices(tmp_path / "none")
    assert [voice.name for voice in voices] == ["default"]
    assert voices.default.audio is None


def test_the_default_is_the_one_so_named_else_the_one_that_says_so_else_the_first(tmp_path):
    write(tmp_path / "adam.flac")
    voices = BuiltinVoices(tmp_path)
    assert voices.default is voices["default"] is voices["adam"]
    assert "default" in voices
    assert [voice.name for voice in voices] == ["adam"]
    write(tmp_path / "zoe.flac")
    assert BuiltinVoices(tmp_path).default.name == "adam"
    (tmp_path / "zoe.json").write_text('{"is_default": true}')
    assert BuiltinVoices(tmp_path).default.name == "zoe"
    write(tmp_path / "default.flac")
    assert BuiltinVoices(tmp_path).default.name == "default"


@pytest.mark.parametrize("name", ["../adam", "adam.flac", "/etc/passwd", "ADAM", "", "adam\0", "."])
def test_no_name_reaches_the_file_system(tmp_path, name):
    write(tmp_path / "adam.flac")
    voices = BuiltinVoices(tmp_path)
    assert name not in voices
    with pytest.raises(KeyError):
        voices[name]


@pytest.mark.parametrize("name", ["Adam", "a b", "-a", "ä", "a" * 65])
def test_a_name_that_is_not_plain_is_refused(tmp_path, name):
    write(tmp_path / f"{name}.flac")
    with pytest.raises(VoiceError, match="name"):
        BuiltinVoices(tmp_path)


@pytest.mark.parametrize("card", ["{", '{"sex": "f"}', '{"language": 5}', '{"name": "eve"}'])
def test_a_card_that_is_not_valid_is_an_error_that_names_the_file(tmp_path, card):
    write(tmp_path / "adam.flac")
    (tmp_path / "adam.json").write_text(card)
    with pytest.raises(VoiceError, match=r"adam\.json"):
        BuiltinVoices(tmp_path)


@pytest.mark.parametrize(("rate_hz", "channels"), [(24_000, 1), (16_000, 1), (44_100, 2)])
def test_audio_becomes_mono_at_the_codecs_rate(tmp_path, rate_hz, channels):
    samples = read_mono(write(tmp_path / "a.flac", 1.0, rate_hz, channels), 24_000)
    assert samples.dtype == np.float32
    assert samples.shape == (24_000,)
    np.testing.assert_allclose(samples[2000:-2000], 0.25, atol=1e-3)


def test_at_most_12_seconds_are_read(tmp_path):
    assert len(read_mono(write(tmp_path / "a.flac", 14.0), 24_000)) == 12 * 24_000


@pytest.mark.parametrize("content", [b"", b"no sound at all"])
def test_audio_that_cannot_be_read_is_an_error_that_names_the_file(tmp_path, content):
    file = tmp_path / "a.flac"
    file.write_bytes(content)
    with pytest.raises(VoiceError, match=r"a\.flac"):
        read_mono(file, 24_000)


def test_codes_are_derived_once_a_recording_and_owner_and_cut_to_what_the_model_hears(tmp_path):
    short, long = write(tmp_path / "a.flac", 1.0), write(tmp_path / "b.flac", 2.0)
    voices = [
        *2 * [Voice(name="a", audio=short)],
        *(Voice(name="a", audio=short, owner=owner) for owner in ("one", "two")),
        Voice(name="a", audio=short, digest="a" * 64),
        Voice(name="a", audio=long, digest="b" * 64),
    ]
    codec = CountingCodec()
    prompts = PromptCodes(codec, CPU, max_frames=100)
    assert [frames(prompts.of(voice)) for voice in voices] == [75, 75, 75, 75, 75, 100]
    assert codec.calls == 5


def test_a_model_without_prompts_never_asks_the_codec(tmp_path):
    codec = CountingCodec()
    voice = Voice(name="a", audio=write(tmp_path / "a.flac"))
    assert PromptCodes(codec, CPU, max_frames=0).of(voice) is None
    assert PromptCodes(codec, CPU, max_frames=225).of(Voice(name="default")) is None
    assert codec.calls == 0


def test_codes_kept_are_bounded(tmp_path):
    audio = write(tmp_path / "a.flac", 0.1)
    codec = CountingCodec()
    prompts = PromptCodes(codec, CPU, max_frames=225)
    for number in range(65):
        prompts.of(Voice(name=f"v{number}", audio=audio))
    prompts.of(Voice(name="v64", audio=audio))
    assert codec.calls == 65
    prompts.of(Voice(name="v0", audio=audio))
    assert codec.calls == 66


def test_a_recording_that_was_opened_needs_its_file_no_more(tmp_path):
    audio = write(tmp_path / "a.flac", 1.0)
    voice = Voice(name="a", audio=audio, digest="a" * 64, recording=audio.read_bytes())
    audio.unlink()
    assert frames(PromptCodes(CountingCodec(), CPU, max_frames=225).of(voice)) == 75
    assert "fLaC" not in repr(voice)


def test_a_recording_that_is_damaged_is_an_error_that_tells_no_path():
    voice = Voice(name="a", audio=Path("/secret/a.flac"), digest="a" * 64, recording=b"none")
    with pytest.raises(VoiceError, match=r"^an uploaded voice: "):
        PromptCodes(CountingCodec(), CPU, max_frames=225).of(voice)


def test_audio_without_samples_is_an_error_that_names_the_file(tmp_path):
    with pytest.raises(VoiceError, match=r"a\.wav: no samples"):
        read_mono(write(tmp_path / "a.wav", 0.0), 24_000)
