from io import BytesIO

import numpy as np
import pytest
import soundfile

from app.audio.rendering import encode_file


@pytest.mark.parametrize("samples", [0, 1, 24_000])
def test_wav_holds_every_sample_to_16_bits(samples):
    sound = np.random.default_rng(0).uniform(-0.9, 0.9, samples).astype(np.float32)
    read, rate_hz = soundfile.read(BytesIO(encode_file(sound, "wav", 24_000)), dtype="float32")
    assert rate_hz == 24_000
    assert read.shape == sound.shape
    np.testing.assert_allclose(read, sound, atol=2**-15)


def test_wav_clips_instead_of_wrapping_around():
    read, _ = soundfile.read(BytesIO(encode_file(np.array([2.0, -2.0], np.float32), "wav", 24_000)))
    np.testing.assert_allclose(read, [1, -1], atol=1e-4)
