"""A sound file is complete in every format, whatever was written to it."""

from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from app.audio.formats import AudioFormat
from app.audio.rendering import OutputOptions
from app.commands.speech.sound_file import SoundFile
from tests.app.tools.decoding import decoded

RATE_HZ = 24_000


@pytest.mark.parametrize("form", get_args(AudioFormat))
@pytest.mark.parametrize("loudness_lufs", [None, -20.0])
@pytest.mark.parametrize("samples", [0, 4800])
def test_it_holds_what_was_written_and_nothing_is_left_beside_it(
    tmp_path: Path, form: AudioFormat, loudness_lufs: float | None, samples: int
) -> None:
    out = tmp_path / f"a.{form}"
    output = OutputOptions(form=form, speed=1.5, loudness_lufs=loudness_lufs)
    file = SoundFile(out, output, RATE_HZ)
    file.push(np.full(samples, 0.1, np.float32))
    file.close()
    file.abandon()
    assert [path.name for path in tmp_path.iterdir()] == [out.name]
    told = None if form not in {"pcm", "ulaw", "alaw"} else output.rate_hz(RATE_HZ)
    read, rate_hz = decoded(out.read_bytes(), told, form)
    assert -1e-3 < len(read) / rate_hz - samples / 1.5 / RATE_HZ <= 0.13  # three frames of AAC
