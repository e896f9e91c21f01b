"""Samples to containers."""

from io import BytesIO

import soundfile

from app.engine.job import Samples


def wav(samples: Samples, sample_rate_hz: int) -> bytes:
    """Return a WAV file of 16 bits.

    Args:
        samples: ``[N]`` in [-1, 1]; what lies outside is clipped.
        sample_rate_hz: Samples in a second.
    """
    file = BytesIO()
    soundfile.write(file, samples, sample_rate_hz, format="WAV", subtype="PCM_16")
    return file.getvalue()
