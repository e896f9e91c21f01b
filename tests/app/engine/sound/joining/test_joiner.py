import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engine.job import Samples
from app.engine.sound.joining.joiner import Joiner

RATE_HZ = 24_000
EDGE, FADE = 1440, 120


def tone(seconds: float, level: float = 0.3) -> Samples:
    return np.full(round(seconds * RATE_HZ), level, np.float32)


def silence(seconds: float) -> Samples:
    return np.zeros(round(seconds * RATE_HZ), np.float32)


def add(
    joiner: Joiner, samples: Samples, pause_after_s: float | None, *, last: bool = False
) -> Samples:
    """Give a joiner a whole utterance."""
    return np.concatenate([joiner.push(samples), joiner.finish(pause_after_s, last=last)])


def trimmed_and_faded(samples: Samples) -> Samples:
    """Trim and fade the whole, the slow and plain way."""
    loud = [place for place, sample in enumerate(samples) if abs(sample) > 10**-2.5]
    begin, end = (max(0, loud[0] - EDGE), loud[-1] + 1 + EDGE) if loud else (0, 2 * EDGE)
    sound = samples[begin:end].copy()
    fade = min(FADE, len(sound) // 2)
    ramp = np.linspace(0.0, 1.0, fade, endpoint=False, dtype=np.float32)
    sound[:fade] *= ramp
    sound[len(sound) - fade :] *= ramp[::-1]
    return sound


@pytest.mark.parametrize("rate", [0.25, 0.8, 1.5, 4.0])
def test_an_utterance_is_stretched_before_it_is_trimmed_and_pauses_are_not(rate: float):
    sound = np.concatenate([silence(0.5), tone(1.0), silence(0.6)])
    joiner = Joiner(RATE_HZ, 0.25)
    first = add(joiner, sound, None)
    parts = [joiner.push(part, rate) for part in np.array_split(sound, 7)]
    window_s = 0.02 + 0.026 / rate  # of the filter, which an edge is spread over
    assert joiner.trimmed / RATE_HZ == pytest.approx(0.5 / rate - 0.06, abs=window_s)
    second = np.concatenate([*parts, joiner.finish(None)])
    third = add(joiner, sound, None)
    assert joiner.samples == len(first) + len(second) + len(third)
    np.testing.assert_array_equal(third[6000:], first)
    lasts_s = (len(second) - 6000) / RATE_HZ
    assert lasts_s == pytest.approx(1.0 / rate + 0.12, abs=window_s)
    whole = Joiner(RATE_HZ, 0.25, pending_s=0.25)
    at_once = np.concatenate([whole.push(sound, rate), whole.finish(None)])
    np.testing.assert_array_equal(at_once, second)


RUNS = st.lists(
    st.tuples(
        st.integers(0, 245) | st.integers(0, 2000), st.sampled_from([0.0, 0.003, 0.004, -0.5])
    ),
    max_size=6,
)
"""Stretches of samples: how many, how loud; silences shorter and longer than the 60 ms."""


@given(RUNS, st.lists(st.integers(1, 3000), max_size=12))
def test_any_cut_into_pieces_gives_the_sound_of_the_whole(runs, pieces):
    stretches = [np.full(count, level, np.float32) for count, level in runs]
    samples = np.concatenate([silence(0), *stretches])
    expected, given = trimmed_and_faded(samples), samples.copy()
    joiner, parts = Joiner(RATE_HZ, 0.25), []
    for inputs in np.split(samples, np.cumsum(pieces)):
        parts.append(joiner.push(inputs))
    parts.append(joiner.finish(None))
    np.testing.assert_array_equal(np.concatenate(parts), expected)
    np.testing.assert_array_equal(samples, given)
    assert joiner.samples == sum(map(len, parts))


@given(st.lists(st.tuples(st.integers(0, 500), st.sampled_from([None, 0.0, 0.5])), max_size=5))
def test_pieces_of_several_utterances_join_as_whole_ones_do(utterances):
    whole, pieces = Joiner(RATE_HZ, 0.25), Joiner(RATE_HZ, 0.25)
    for number, (count, pause_s) in enumerate(utterances):
        sound, last = np.ones(count, np.float32), number + 1 == len(utterances)
        expected = add(whole, sound, pause_s, last=last)
        parts = [pieces.push(sample) for sample in np.split(sound, range(0, count, 100))]
        parts.append(pieces.finish(pause_s, last=last))
        np.testing.assert_array_equal(np.concatenate(parts), expected)


def test_all_but_the_last_5_ms_of_speech_is_given_at_once():
    joiner = Joiner(RATE_HZ, 0.25)
    assert len(joiner.push(tone(0.2))) == round(0.2 * RATE_HZ) - FADE
    assert len(joiner.push(tone(0.1))) == round(0.1 * RATE_HZ)


def test_silence_is_held_back_past_60_ms_until_something_follows():
    joiner = Joiner(RATE_HZ, 0.25)
    joiner.push(tone(0.2))
    assert len(joiner.push(silence(1.0))) == EDGE
    assert not len(joiner.push(silence(1.0)))
    assert len(joiner.push(tone(0.1))) == round(2.1 * RATE_HZ) - EDGE


@pytest.mark.parametrize(
    ("utterances", "lasts_s"),
    [
        ([(0.5, 0.25), (0.5, 1.0), (0.5, 9.0)], [0.5, 0.75, 1.5]),
        ([(0.5, None), (0.5, None)], [0.5, 0.75]),  # the text asks for none in particular
        ([(0.0, 2.0), (0.5, None)], [0.0, 2.5]),
        ([(0.5, 0.25), (0.0, 0.5), (0.5, 0.0)], [0.5, 0.0, 1.25]),  # one without sound
    ],
)
def test_a_pause_comes_before_the_next_sound_or_at_the_end_that_asks_for_it(utterances, lasts_s):
    joiner = Joiner(RATE_HZ, 0.25)
    for (seconds, pause_s), wanted_s in zip(utterances, lasts_s, strict=True):
        part = add(joiner, tone(seconds), pause_s)
        assert len(part) == round(wanted_s * RATE_HZ)
        pause = len(part) - round(seconds * RATE_HZ)
        assert not part[:pause].any()
        assert np.all(part[pause + 1 : -1])
    for pause_s, wanted_s in ((1.0, 1.5), (None, 0.5)):  # at the end, where the text asks for it
        assert len(add(Joiner(RATE_HZ, 0.25), tone(0.5), pause_s, last=True)) == wanted_s * RATE_HZ


def test_where_an_utterance_lies_is_known_when_it_ends() -> None:
    joiner = Joiner(RATE_HZ, 0.25)
    parts = [np.concatenate([silence(0.5), tone(1.0), silence(0.2)]), silence(0), tone(0.5)]
    pauses = [None, 0.5, None]
    sound, places = silence(0), []
    for part, pause_after_s in zip(parts, pauses, strict=True):
        sound = np.concatenate([sound, add(joiner, part, pause_after_s)])
        places.append((joiner.begin, joiner.end, joiner.trimmed))
    first, nothing, last = places
    assert first == (0, 26_880, 12_000 - EDGE)
    assert nothing == (26_880, 26_880, 0)
    assert last == (26_880 + round(0.75 * RATE_HZ), len(sound), 0)
    begin, end, trimmed = first
    shown = slice(begin + FADE, end - FADE)
    assert np.array_equal(sound[shown], parts[0][trimmed:][shown])
    assert not sound[first[1] : last[0]].any()
    assert sound[last[0] + FADE] == np.float32(0.3)
