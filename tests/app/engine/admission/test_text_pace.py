"""Sound waits for as long as its words would come too late, and no longer."""

import math

import pytest

from app.engine.admission import text_pace as module
from app.engine.admission.text_pace import KnownText, TextPace, held_s

CHUNKS = [(0.6, 0.2), (1.2, 0.4), (2.1, 0.8), (3.2, 1.4)]
CHAR_S = 0.06
SPEECH = 1 / CHAR_S  # characters a second of what is spoken as fast as it is written


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    return now


def heard_without_a_gap(known_s: float, pace: float, after_s: float) -> bool:
    """Whether a playback that begins so late has the words of every chunk in time."""
    arrives = [max(0.0, speech_s - known_s) / pace for speech_s, _ in CHUNKS]
    return all(
        at_s <= after_s + before_s for at_s, (_, before_s) in zip(arrives, CHUNKS, strict=True)
    )


def test_one_packet_has_no_pace(clock) -> None:
    pace = TextPace()
    assert pace.chars_per_s is None
    pace.note(40)
    assert pace.chars_per_s is None


def test_the_first_packet_is_there_when_the_clock_starts(clock) -> None:
    pace = TextPace()
    pace.note(100)
    for _ in range(4):
        clock[0] += 0.1
        pace.note(5)
    assert pace.chars_per_s == pytest.approx(50)


def test_a_packet_that_is_late_lowers_the_pace_before_it_comes(clock) -> None:
    pace = TextPace()
    for _ in range(5):
        pace.note(5)
        clock[0] += 0.1
    before = pace.chars_per_s
    assert before == pytest.approx(50)
    clock[0] += 1.9
    late = pace.chars_per_s
    assert late is not None
    assert late < 0.25 * 50


@pytest.mark.parametrize("pace", [1.3, 1.6, 2.0, 2.5, 4.0, 8.0])
@pytest.mark.parametrize("known_s", [0.2, 0.5, 1.0, 3.0])
def test_what_is_held_back_is_heard_without_a_gap(known_s, pace) -> None:
    wait_s = held_s(CHUNKS, KnownText(known_s, CHAR_S), pace * SPEECH, 0.05)
    assert heard_without_a_gap(known_s, pace, wait_s)
    assert wait_s < 3.0 / pace + 2.0


@pytest.mark.parametrize(
    ("known", "chars_per_s", "expected_s"),
    [
        (KnownText(0.2, CHAR_S), None, 0.0),
        (KnownText(0.2, CHAR_S, whole=True), 0.1, 0.0),
        (KnownText(0.2, CHAR_S), 0.9 * SPEECH, math.inf),
        (KnownText(9.0, CHAR_S), 2 * SPEECH, 0.0),
        (KnownText(0.2, CHAR_S), 100 * SPEECH, 0.0),
    ],
    ids=["unknown pace", "whole text", "slower than speech", "far ahead", "much faster"],
)
def test_when_nothing_is_to_be_waited_for_and_when_the_sentence_is(
    known, chars_per_s, expected_s
) -> None:
    assert held_s(CHUNKS, known, chars_per_s, 0.05) == expected_s


@pytest.mark.parametrize(("sampled_s", "expected_s"), [(0.1, 0.2), (0.7, 0.7)])
def test_what_is_sampled_is_known_for_sure(sampled_s, expected_s) -> None:
    assert KnownText(0.2, CHAR_S).sampled(sampled_s) == KnownText(expected_s, CHAR_S)
