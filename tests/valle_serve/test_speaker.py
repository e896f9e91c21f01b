"""A program that speaks without a server: the same samples as the service sends."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile

from app.engine.errors import UnknownVoice, VoiceExists
from app.main import create_app
from app.settings import Settings
from models.voices.recording import RecordingError
from tests.app.tools.serving import served
from valle_serve import Speaker

TEXT = "Hello there. It is late."
KNOBS = {"seed": 7, "temperature": 0.8, "max_duration_s": 1.5}


@pytest.fixture(scope="module")
def speaker(toy: Path) -> Iterator[Speaker]:
    with Speaker.load(toy, device="cpu") as speaker:
        yield speaker


def test_the_samples_are_those_of_the_service(speaker: Speaker, toy: Path, tmp_path: Path) -> None:
    wanted = {"input": TEXT, "response_format": "pcm", "stream": True} | KNOBS
    with served(create_app(Settings(model=str(toy), device="cpu"))) as client:
        sent = np.frombuffer(client.post("/tts", json=wanted).content, "<i2")
    speech = speaker.speak(TEXT, **KNOBS)
    assert speech.samples.dtype == np.float32
    assert len(speech.samples) == len(sent)
    assert speech.result.seed == 7
    for lossless in ("a.wav", "a.flac"):
        speech.save(tmp_path / lossless)
        assert np.array_equal(soundfile.read(tmp_path / lossless, dtype="int16")[0], sent)


def test_a_stream_comes_in_parts_that_are_the_whole(speaker: Speaker) -> None:
    parts = list(speaker.stream(TEXT, **KNOBS))
    assert len(parts) > 1
    assert np.array_equal(np.concatenate(parts), speaker.speak(TEXT, **KNOBS).samples)


def test_a_recording_is_a_voice_until_the_speaker_is_closed(toy: Path, tmp_path: Path) -> None:
    path = tmp_path / "Anna.wav"
    noise = np.random.default_rng(0).normal(0, 0.1, 48_000)
    soundfile.write(path, np.clip(noise, -1, 1), 24_000)
    with Speaker.load(toy, device="cpu") as speaker:
        assert speaker.add_voice(path) == "anna"
        assert "anna" in speaker.voices
        assert speaker.speak("Hi.", voice="anna", **KNOBS).result.voice == "anna"
        with pytest.raises(VoiceExists):
            speaker.add_voice(path)
    with Speaker.load(toy, device="cpu") as another:
        assert "anna" not in another.voices


@pytest.mark.parametrize("suffix", ["wav", "flac", "mp3", "ogg"])
def test_it_is_saved_as_the_suffix_says(speaker: Speaker, tmp_path: Path, suffix: str) -> None:
    speech = speaker.speak(TEXT, **KNOBS)
    path = tmp_path / f"a.{suffix}"
    speech.save(path)
    samples, rate_hz = soundfile.read(path)
    assert rate_hz == speech.sample_rate_hz
    assert abs(len(samples) - len(speech.samples)) < 3000


def test_what_is_wrong_is_said_by_name(speaker: Speaker, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="temprature"):
        speaker.speak(TEXT, temprature=1.0)
    with pytest.raises(UnknownVoice, match="nobody"):
        speaker.speak(TEXT, voice="nobody")
    path = tmp_path / "a.wav"
    path.write_text("no sound")
    with pytest.raises(RecordingError):
        speaker.add_voice(path)
    with pytest.raises(ValueError, match="devise"):
        Speaker.load(devise="cpu")
