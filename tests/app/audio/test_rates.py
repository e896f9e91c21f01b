"""Sample rates of every format: the same sound, whole and streamed, however it is cut."""

from typing import get_args

import numpy as np
import pytest

from app.audio.formats import OPUS_RATES, AudioFormat, SampleRate
from app.audio.rendering import OutputOptions, StreamRenderer, render_in_steps
from tests.app.tools.decoding import decoded

MODEL_HZ = 24_000
TONE_HZ = 440
SECONDS = 1.0
TONE = (0.5 * np.sin(2 * np.pi * TONE_HZ * np.arange(MODEL_HZ) / MODEL_HZ)).astype(np.float32)
HEADERLESS = {"pcm", "ulaw", "alaw"}
CASES = [
    (form, rate)
    for form in get_args(AudioFormat)
    for rate in get_args(SampleRate)
    if form != "opus" or rate in OPUS_RATES
]


def streamed(output: OutputOptions, seed: int) -> bytes:
    """Return the file of the tone, pushed in pieces of random lengths."""
    renderer, chance, at = StreamRenderer(output, MODEL_HZ), np.random.default_rng(seed), 0
    file = b""
    while at < len(TONE):
        length = int(chance.integers(1, 4000))
        file += renderer.push(TONE[at : at + length])
        at += length
    file += renderer.close()
    assert renderer.audio_s == pytest.approx(SECONDS, abs=0.001)
    return file


@pytest.mark.parametrize(("form", "rate"), CASES)
def test_every_format_has_every_rate_and_the_same_tone(form, rate) -> None:
    output = OutputOptions(form, sample_rate=rate)
    whole = b"".join(part for part, _ in render_in_steps([TONE], MODEL_HZ, output))
    for file in (whole, streamed(output, 1)):
        sound, told_hz = decoded(file, rate if form in HEADERLESS else None, form)
        assert told_hz == (48_000 if form == "opus" else rate)
        assert len(sound) / told_hz == pytest.approx(SECONDS, abs=0.2)
        middle = sound[len(sound) // 4 : 3 * len(sound) // 4]
        spectrum = np.abs(np.fft.rfft(middle * np.hanning(len(middle)), 1 << 18))
        assert np.argmax(spectrum) * told_hz / (1 << 18) == pytest.approx(TONE_HZ, abs=1)
        assert np.abs(middle).max() == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize("rate", get_args(SampleRate))
@pytest.mark.parametrize("form", sorted(HEADERLESS))
def test_the_bytes_do_not_depend_on_the_chunks(form, rate) -> None:
    output = OutputOptions(form, sample_rate=rate)
    assert streamed(output, 1) == streamed(output, 2)
    whole = b"".join(part for part, _ in render_in_steps([TONE], MODEL_HZ, output))
    assert streamed(output, 3) == whole


def test_telephones_formats_have_8_khz_unless_another_is_asked_for() -> None:
    for form in ("ulaw", "alaw"):
        assert len(streamed(OutputOptions(form), 1)) == 8000
    assert len(streamed(OutputOptions("ulaw", sample_rate=16_000), 1)) == 16_000
