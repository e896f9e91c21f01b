"""Subtitles from the times of words."""

import re
from pathlib import Path

import pytest

from app.commands.errors import CommandError
from app.commands.speech.subtitles import check_subtitles, subtitles
from app.engine.job import WordTimes


def word(text: str, start_s: float, end_s: float, utterance: int = 0, **more) -> WordTimes:
    times = {"start_s": start_s, "end_s": end_s, "missing": False, "phonemes": None}
    return WordTimes(utterance=utterance, index=0, word=text, spoken=text, **times | more)


WORDS = [
    word("Hello", 0.04, 0.5),
    word("lost", 0.5, 0.5, missing=True),
    word("there", 0.5, 0.9996),
    word("You", 3723.25, 3724.5, 1),
]


def test_srt_has_a_numbered_cue_an_utterance() -> None:
    assert subtitles(WORDS, ".srt") == (
        "1\n00:00:00,040 --> 00:00:01,000\nHello there\n\n2\n01:02:03,250 --> 01:02:04,500\nYou\n"
    )


def test_vtt_has_its_head_and_points() -> None:
    assert subtitles(WORDS, ".VTT") == (
        "WEBVTT\n\n00:00:00.040 --> 00:00:01.000\nHello there\n\n"
        "01:02:03.250 --> 01:02:04.500\nYou\n"
    )


def test_a_long_utterance_has_several_cues_that_can_be_read() -> None:
    words = [word(f"word{n}", n / 2, n / 2 + 0.4) for n in range(60)]
    cues = subtitles(words, ".srt").strip().split("\n\n")
    lines = [cue.split("\n")[2:] for cue in cues]
    assert " ".join(line for cue in lines for line in cue).split() == [one.word for one in words]
    assert all(len(line) <= 42 for cue in lines for line in cue)
    assert max(map(len, lines)) == 2
    assert len(re.findall("-->", subtitles(words, ".srt"))) == len(cues) >= 5


def test_the_text_is_shown_as_it_was_written_on_two_lines_of_like_length() -> None:
    text = 'At 5:30 p.m. Dr. Smith paid $3.50—"too much," he said, and then he went home again.'
    written = [
        "At",
        "5:30 p.m.",
        "Dr.",
        "Smith",
        "paid",
        "$3.50—",
        '"too',
        'much,"',
        *text.split()[8:],
    ]
    words = [word(one, n / 4, n / 4 + 0.2) for n, one in enumerate(written)]
    cues = [cue.split("\n")[2:] for cue in subtitles(words, ".srt", text).strip().split("\n\n")]
    assert " ".join(line for cue in cues for line in cue) == text
    first, second = cues[0]
    assert max(len(first), len(second)) <= 42
    assert abs(len(first) - len(second)) < 12


def test_a_word_longer_than_a_line_is_cut() -> None:
    lines = subtitles([word("x" * 100, 0.0, 1.0)], ".vtt").splitlines()
    assert max(map(len, lines)) <= 42
    assert "".join(line for line in lines if set(line) == {"x"}) == "x" * 100


@pytest.mark.parametrize("name", ["a.txt", "a", "a.srt.gz"])
def test_another_format_is_refused(name) -> None:
    with pytest.raises(CommandError, match="subtitles"):
        check_subtitles(Path(name))
