"""Speeches are as loud as asked for, whatever they were, and no peak is cut off."""

import numpy as np
import pytest

from app.audio.delivery import Delivery, FileOptions
from app.audio.loudness import Leveller
from models.voices.loudness import loudness_lufs
from tests.app.audio.sounds import RATE_HZ, pushed, syllables

VOICES = [(0.25, 110), (0.5, 140), (1.0, 220), (3.0, 180)]  # gain, pitch in Hz
CEILING = 10 ** (-1 / 20)


def whole(sound, target_lufs, speed=1):
    delivery = Delivery(FileOptions("pcm", speed, target_lufs), RATE_HZ, whole=True)
    return pushed(delivery, sound, len(sound) or 1)


def streamed(sound, target_lufs, piece=4800, speed=1.0, likely_lufs=None):
    delivery = Delivery(FileOptions("pcm", speed, target_lufs), RATE_HZ, likely_lufs)
    return pushed(delivery, sound, piece)


def led(sound, target_lufs):
    """One of a voice that is likely to be quiet."""
    return streamed(sound, target_lufs, likely_lufs=-40.0)


@pytest.mark.parametrize("seconds", [0.3, 1, 4, 15])
@pytest.mark.parametrize(("gain", "pitch_hz"), VOICES)
def test_a_whole_speech_has_the_loudness_to_half_a_unit(gain, pitch_hz, seconds):
    sound = whole(syllables(seconds, gain, pitch_hz), -20.0)
    assert loudness_lufs(sound, RATE_HZ) == pytest.approx(-20, abs=0.5)


@pytest.mark.parametrize(("seconds", "units"), [(1, 3), (4, 2), (15, 2)])
def test_a_streamed_speech_comes_near_and_all_voices_equally(seconds, units):
    speeches = [streamed(syllables(seconds, gain, pitch), -20.0) for gain, pitch in VOICES]
    heard = [loudness_lufs(speech, RATE_HZ) for speech in speeches]
    assert heard == pytest.approx([-20] * len(VOICES), abs=units)
    assert max(heard) - min(heard) < 1


@pytest.mark.slow
@pytest.mark.parametrize("likely_lufs", [None, -25.0])
def test_what_is_streamed_does_not_depend_on_the_pieces(likely_lufs):
    sound = np.concatenate([np.zeros(20_000, np.float32), syllables(12, 0.3)])
    first, *others = (
        streamed(sound, -18.0, piece, likely_lufs=likely_lufs) for piece in (4800, 777, 10**6)
    )
    assert len(first) == len(sound)
    for other in others:
        np.testing.assert_array_equal(first, other)


@pytest.mark.parametrize("give", [whole, streamed])
def test_no_peak_is_cut_off(give):
    sound = syllables(3)
    sound[30_000:30_040] = 0.9  # a click, far over what the target leaves room for
    loud = give(sound, -12.0)
    assert np.abs(loud).max() <= CEILING + 1e-4
    flat = np.diff(np.flatnonzero(np.abs(loud) > CEILING - 1e-5))
    assert (flat == 1).sum() < 60


@pytest.mark.parametrize("give", [whole, streamed, led])
@pytest.mark.parametrize("seconds", [0, 0.1, 0.5, 3])
def test_silence_stays_silent(give, seconds):
    silence = np.zeros(round(seconds * RATE_HZ), np.float32)
    np.testing.assert_array_equal(give(silence, -16.0), silence)


def test_a_pause_before_the_first_word_does_not_count():
    word = syllables(2, 0.2)
    late = streamed(np.concatenate([np.zeros(12 * RATE_HZ, np.float32), word]), -20.0)
    np.testing.assert_allclose(late[12 * RATE_HZ :], streamed(word, -20.0), atol=0.02)
    assert loudness_lufs(late, RATE_HZ) == pytest.approx(-20, abs=2)


def test_the_gain_of_a_stream_has_no_steps():
    level = np.full(5 * RATE_HZ, 0.1, np.float32) * (1 + np.arange(5 * RATE_HZ) / RATE_HZ)
    tone = np.cos(2 * np.pi * 1000 * np.arange(len(level)) / RATE_HZ).astype(np.float32) * level
    gains = pushed(Leveller(-20.0, RATE_HZ), tone.astype(np.float32), 4800)[::12] / tone[::12]
    assert np.abs(np.diff(20 * np.log10(np.abs(gains)))).max() < 0.02


def test_what_is_nearly_silent_is_not_made_noise_of():
    noise = np.random.default_rng(0).normal(0, 5e-4, 2 * RATE_HZ).astype(np.float32)
    assert loudness_lufs(whole(noise, -16.0), RATE_HZ) < -35


@pytest.mark.parametrize("speed", [0.5, 1.0, 2.0])
def test_loudness_is_kept_at_any_speed(speed):
    sound = syllables(4)
    faster = whole(sound, -20, speed)
    assert len(faster) == round(len(sound) / speed)
    assert loudness_lufs(faster, RATE_HZ) == pytest.approx(-20, abs=1)
    live = streamed(sound, -20, speed=speed)
    assert len(live) == len(faster)


def test_what_asks_for_nothing_stays_to_the_bit():
    sound = syllables(1)
    np.testing.assert_array_equal(whole(sound, None), sound)
    np.testing.assert_array_equal(streamed(sound, None), sound)


def declining(seconds):
    """Speech that ends 4 dB under where it began, as people do."""
    fall_db = np.linspace(2, -2, round(seconds * RATE_HZ))
    return (syllables(seconds) * 10 ** (fall_db / 20)).astype(np.float32)


@pytest.mark.parametrize("seconds", [0.3, 1, 2, 5, 9])
def test_what_is_likely_beforehand_brings_a_stream_nearer(seconds):
    sound = declining(seconds)
    blind, near = (
        loudness_lufs(streamed(sound, -20.0, likely_lufs=likely), RATE_HZ)
        for likely in (None, loudness_lufs(sound, RATE_HZ))
    )
    assert near == pytest.approx(-20, abs=0.5)
    assert abs(near + 20) <= abs(blind + 20)


@pytest.mark.parametrize("wrong_by", [-10, 10])
def test_what_was_likely_and_wrong_is_left_behind_without_a_cut_peak(wrong_by):
    sound = syllables(20)
    likely = loudness_lufs(sound, RATE_HZ) + wrong_by
    heard = streamed(sound, -20.0, likely_lufs=likely)
    early, late = (loudness_lufs(part, RATE_HZ) for part in np.array_split(heard, [3 * RATE_HZ]))
    assert abs(late + 20) < 0.7 * abs(early + 20)
    assert np.abs(heard).max() <= CEILING + 1e-4
