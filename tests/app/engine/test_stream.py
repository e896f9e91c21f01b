import numpy as np
import pytest

from app.engine.stream import Joiner, fade, trim

RATE_HZ = 24_000


def tone(seconds: float, level: float = 0.3) -> np.ndarray:
    return np.full(round(seconds * RATE_HZ), level, np.float32)


def silence(seconds: float) -> np.ndarray:
    return np.zeros(round(seconds * RATE_HZ), np.float32)


def test_trim_leaves_60_ms_of_silence_at_each_edge():
    sound = np.concatenate([silence(0.5), tone(1.0), silence(0.2)])
    assert len(trim(sound, RATE_HZ)) == round(1.12 * RATE_HZ)


def test_trim_keeps_every_loud_sample_where_silence_is_short():
    sound = np.concatenate([silence(0.01), tone(1.0)])
    np.testing.assert_array_equal(trim(sound, RATE_HZ), sound)


def test_trim_takes_less_than_minus_50_dbfs_for_silence():
    sound = np.concatenate([tone(0.5, 0.003), tone(0.1, -0.004), tone(0.5, 0.003)])
    assert len(trim(sound, RATE_HZ)) == round(0.22 * RATE_HZ)


def test_trim_shortens_an_utterance_of_nothing_but_silence():
    assert len(trim(silence(3.0), RATE_HZ)) == round(0.12 * RATE_HZ)


def test_fade_starts_and_ends_at_zero_and_leaves_the_middle_alone():
    sound = tone(0.1)
    faded = fade(sound, RATE_HZ)
    assert faded[0] == faded[-1] == 0
    np.testing.assert_array_equal(faded[120:-120], sound[120:-120])
    assert np.all(np.diff(faded[:120]) > 0)
    assert sound[0] != 0  # the input is not changed


@pytest.mark.parametrize("samples", [0, 1, 2, 3, 239, 241])
def test_fade_keeps_the_length_of_very_short_sounds(samples):
    assert len(fade(np.ones(samples, np.float32), RATE_HZ)) == samples


def test_joiner_puts_each_pause_between_the_utterances_it_was_asked_between():
    joiner = Joiner(RATE_HZ, 0.25)
    first = joiner.add(tone(0.5), 0.25)
    second = joiner.add(tone(0.5), 1.0)
    third = joiner.add(tone(0.5), 9.0)
    assert [len(part) for part in (first, second, third)] == [12_000, 18_000, 36_000]
    assert not second[:6000].any()
    assert second[6000:].any()


def test_joiner_makes_a_pause_where_the_text_asks_for_none_in_particular():
    joiner = Joiner(RATE_HZ, 0.25)
    joiner.add(tone(0.5), None)
    assert len(joiner.add(tone(0.5), None, last=True)) == round(0.75 * RATE_HZ)


def test_joiner_ends_with_a_pause_only_where_the_text_asks_for_it():
    assert len(Joiner(RATE_HZ, 0.25).add(tone(0.5), 1.0, last=True)) == round(1.5 * RATE_HZ)
    assert len(Joiner(RATE_HZ, 0.25).add(tone(0.5), None, last=True)) == round(0.5 * RATE_HZ)


def test_joiner_begins_with_a_pause_where_the_text_does():
    joiner = Joiner(RATE_HZ, 0.25)
    joiner.add(silence(0), 2.0)
    assert len(joiner.add(tone(0.5), None)) == round(2.5 * RATE_HZ)


def test_joiner_adds_the_pause_of_an_utterance_without_sound_to_the_one_before():
    joiner = Joiner(RATE_HZ, 0.25)
    joiner.add(tone(0.5), 0.25)
    assert not len(joiner.add(silence(0), 0.5))
    assert len(joiner.add(tone(0.5), 0.0)) == round(1.25 * RATE_HZ)
