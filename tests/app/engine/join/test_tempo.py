"""Another tempo changes how long a speech is and nothing else.

That it does not depend on the pieces is said by `test_joiner`.
"""

import numpy as np
import psutil
import pytest

from app.engine.join.tempo import Tempo
from tests.app.audio.sounds import RATE_HZ, pushed, syllables

SPEEDS = [0.25, 0.5, 0.8, 1.1, 1.5, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("speed", SPEEDS)
@pytest.mark.parametrize("samples", [0, 1, 100, 4800, 50_001])
def test_it_is_as_long_as_it_should_be_to_the_sample(speed, samples):
    out = pushed(Tempo(speed, RATE_HZ), syllables(3)[:samples], 4800)
    assert len(out) == round(samples / speed)


@pytest.mark.parametrize("speed", SPEEDS)
def test_speech_at_another_tempo_keeps_its_pitch(speed):
    sound = np.sin(2 * np.pi * 200 * np.arange(3 * RATE_HZ) / RATE_HZ).astype(np.float32)
    out = pushed(Tempo(speed, RATE_HZ), sound, 4800)
    spectrum = np.abs(np.fft.rfft(out * np.hanning(len(out)), 2**20))
    assert spectrum.argmax() * RATE_HZ / 2**20 == pytest.approx(200, abs=2)


@pytest.mark.parametrize("speed", SPEEDS)
def test_the_last_word_is_whole_and_in_its_place(speed):
    word = slice(40_000, 44_800)
    sound = np.zeros(46_240, np.float32)  # with 60 ms of silence after it, as every utterance has
    sound[word] = syllables(0.2)
    out = pushed(Tempo(speed, RATE_HZ), sound, 4800)
    loud = np.flatnonzero(np.abs(out) > 0.02 * np.abs(sound).max()) / RATE_HZ
    early_s, late_s = 0.1, 0.03
    assert -early_s < loud[0] - word.start / speed / RATE_HZ < late_s
    assert -early_s < loud[-1] - word.stop / speed / RATE_HZ < late_s
    energy = np.square(out).sum() * speed
    assert energy == pytest.approx(np.square(sound).sum(), rel=0.35)


@pytest.mark.parametrize("speed", SPEEDS)
def test_sound_comes_out_while_more_goes_in(speed):
    tempo = Tempo(speed, RATE_HZ)
    given = sum(len(tempo.push(syllables(0.2))) for _ in range(5))
    assert given / RATE_HZ > 0.7 / speed


def test_changing_the_tempo_starts_no_threads():
    before = psutil.Process().num_threads()
    kept = [Tempo(3, RATE_HZ) for _ in range(8)]
    assert psutil.Process().num_threads() == before
    assert kept
