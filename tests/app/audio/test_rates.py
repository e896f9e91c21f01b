"""Sample rates of every format: the same sound, whole and streamed, however it is cut."""

import asyncio
from collections.abc import Iterable
from typing import get_args

import numpy as np
import pytest

from app.audio.delivery import FileOptions
from app.audio.formats import OPUS_RATES, AudioFormat
from app.audio.render_pool import RenderPool
from app.audio.rendering import Renderer
from app.engine.core import SampleRate
from app.engine.results import Samples
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


def rendered(output: FileOptions, pieces: Iterable[Samples], *, whole: bool = False) -> bytes:
    """Return the file of the tone, pushed in pieces."""

    async def render() -> bytes:
        pool = RenderPool(threads=1)
        renderer = Renderer((pool, "client"), output, MODEL_HZ, whole=whole)
        parts = [part for piece in pieces async for part in renderer.push(piece)]
        parts.append(await renderer.close())
        pool.close()
        assert renderer.audio_s == pytest.approx(SECONDS, abs=0.001)
        return b"".join(parts)

    return asyncio.run(render())


def streamed(output: FileOptions, seed: int) -> bytes:
    """Return the file of the tone, pushed in pieces of random lengths."""
    ends = np.cumsum(np.random.default_rng(seed).integers(1, 4000, len(TONE)))
    return rendered(output, np.split(TONE, ends[ends < len(TONE)]))


@pytest.mark.parametrize(("form", "rate"), CASES)
def test_every_format_has_every_rate_and_the_same_tone(form, rate) -> None:
    output = FileOptions(form, sample_rate=rate)
    whole = rendered(output, [TONE], whole=True)
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
    output = FileOptions(form, sample_rate=rate)
    assert streamed(output, 1) == streamed(output, 2)
    whole = rendered(output, [TONE], whole=True)
    assert streamed(output, 3) == whole


def test_telephones_formats_have_8_khz_unless_another_is_asked_for() -> None:
    for form in ("ulaw", "alaw"):
        assert len(streamed(FileOptions(form), 1)) == 8000
    assert len(streamed(FileOptions("ulaw", sample_rate=16_000), 1)) == 16_000
