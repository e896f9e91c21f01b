"""Sound with the ups and downs of speech, for tests that need a recording and no words."""

import io

import numpy as np
import soundfile
from numpy.typing import NDArray


def speech_like(
    seconds: float = 2.0, rate_hz: int = 24_000, *, seed: int = 0, level: float = 0.1
) -> NDArray[np.float64]:
    """Return ``[N]``: coloured noise in syllables of a quarter of a second."""
    count = round(seconds * rate_hz)
    noise = np.random.default_rng(seed).normal(0, 1, count)
    coloured = np.convolve(noise, np.ones(8) / 8, mode="same")
    syllables = 0.6 + 0.4 * np.sin(2 * np.pi * 4 * np.arange(count) / rate_hz + seed)
    return np.clip(level * coloured * syllables, -0.97, 0.97)


def packed(
    samples: NDArray[np.float64], rate_hz: int = 24_000, format: str = "WAV", subtype: str = ""
) -> bytes:
    """Return a file of samples ``[N]`` or ``[N, channels]``."""
    file = io.BytesIO()
    soundfile.write(file, samples, rate_hz, format=format, subtype=subtype or None)
    return file.getvalue()


def silent_file(seconds: int, format: str, rate_hz: int = 24_000) -> bytes:
    """Return a file of silence, however long; some formats make little of it."""
    file = io.BytesIO()
    with soundfile.SoundFile(file, "w", rate_hz, 1, format=format) as out:
        for _ in range(seconds // 60):
            out.write(np.zeros(60 * rate_hz, np.float32))
    return file.getvalue()
