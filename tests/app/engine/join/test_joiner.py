import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engine.join.joiner import Joiner
from app.engine.results import Samples

RATE_HZ = 24_000
EDGE, FADE = 1440, 120


def tone(seconds: float, level: float = 0.3) -> Samples:
    return np.full(round(seconds * RATE_HZ), level, np.float32)


def silence(seconds: float) -> Samples:
    return np.zeros(round(seconds * RATE_HZ), np.float32)


def trimmed_and_faded(samples: Samples) -> tuple[int, Samples]:
    """Trim and fade the whole, the slow and plain way; return where it begins, too."""
    loud = [place for place, sample in enumerate(samples) if abs(sample) > 10**-2.5]
    begin, end = (max(0, loud[0] - EDGE), loud[-1] + 1 + EDGE) if loud else (0, 2 * EDGE)
    sound = samples[begin:end].copy()
    fade = min(FADE, len(sound) // 2)
    ramp = np.linspace(0.0, 1.0, fade, endpoint=False, dtype=np.float32)
    sound[:fade] *= ramp
    sound[len(sound) - fade :] *= ramp[::-1]
    return begin, sound


@pytest.mark.parametrize("rate", [0.25, 0.8, 1.5, 4.0])
def test_an_utterance_is_stretched_before_it_is_trimmed_and_pauses_are_not(rate: float):
    sound = np.concatenate([silence(0.5), tone(1.0), silence(0.6)])
    joiner = Joiner(RATE_HZ, 0.25)
    first = np.concatenate([joiner.push(sound), joiner.finish(None)])
    pieces = np.split(sound, range(333, len(sound), 333))
    parts = [joiner.push(piece, rate) for piece in pieces]
    window_s = 0.02 + 0.026 / rate  # of the filter, which an edge is spread over
    assert joiner.trimmed / RATE_HZ == pytest.approx(0.5 / rate - 0.06, abs=window_s)
    second = np.concatenate([*parts, joiner.finish(None)])
    third = np.concatenate([joiner.push(sound), joiner.finish(None)])
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


PAUSES, PIECES = st.sampled_from([None, 0.0, 0.5]), st.lists(st.integers(1, 3000), max_size=12)


@given(st.lists(st.tuples(RUNS, PAUSES, PIECES), max_size=4), st.booleans())
def test_utterances_in_any_pieces_join_as_they_do_whole_with_pauses_before_the_next_sound(
    utterances, ends
):
    joiner, expected, found = Joiner(RATE_HZ, 0.25), [silence(0)], [silence(0)]
    pause_s = 0.0
    for number, (runs, after_s, pieces) in enumerate(utterances, start=1):
        stretches = [np.full(count, level, np.float32) for count, level in runs]
        samples, last = np.concatenate([silence(0), *stretches]), ends and number == len(utterances)
        given, (trimmed, sound) = samples.copy(), trimmed_and_faded(samples)
        if len(samples):
            expected += [silence(pause_s), sound]
            pause_s = 0.25 if after_s is None else after_s
        else:  # the pauses around it add up
            pause_s += after_s or 0.0
        if last and after_s is not None:
            expected.append(silence(pause_s))
        found += map(joiner.push, np.split(samples, np.cumsum(pieces)))
        found.append(joiner.finish(after_s, last=last))
        np.testing.assert_array_equal(samples, given)
        assert (joiner.trimmed, joiner.samples) == (trimmed, sum(map(len, found)))
        np.testing.assert_array_equal(np.concatenate(found)[joiner.begin : joiner.end], sound)
    np.testing.assert_array_equal(np.concatenate(found), np.concatenate(expected))


def test_speech_but_its_last_5_ms_is_given_at_once_and_silence_past_60_ms_when_more_follows():
    joiner = Joiner(RATE_HZ, 0.25)
    assert len(joiner.push(tone(0.2))) == round(0.2 * RATE_HZ) - FADE
    assert len(joiner.push(tone(0.1))) == round(0.1 * RATE_HZ)
    assert len(joiner.push(silence(1.0))) == EDGE
    assert not len(joiner.push(silence(1.0)))
    assert len(joiner.push(tone(0.1))) == round(2.1 * RATE_HZ) - EDGE
