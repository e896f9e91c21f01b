# ruff: noqa: RUF001 - IPA is full of letters that look like Latin ones
"""Subtitles from the times of words."""

import re
from pathlib import Path

import pytest

from app.commands.errors import CommandError
from app.commands.speech.subtitles import check_subtitles, subtitles
from app.engine.results import WordTimes


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


ADDRESS = "https://download.example.com/whl/cu121/torch-2.4.1-cp311-linux_x86_64.whl"


def test_a_word_that_was_spoken_in_several_pieces_is_shown_once() -> None:
    text = f"See {ADDRESS}, then."
    words = [
        word("See", 0.0, 0.3),
        word(f"{ADDRESS},", 0.3, 2.0),
        word(f"{ADDRESS},", 2.0, 4.0, 1),
        word(f"{ADDRESS},", 4.0, 6.0, 2),
        word("then.", 6.0, 6.5, 2),
    ]
    cues = [cue.split("\n")[1:] for cue in subtitles(words, ".srt", text).strip().split("\n\n")]
    assert "".join(line for _, *lines in cues for line in lines).count("download") == 1
    assert all(len(line) <= 42 for _, *lines in cues for line in lines)
    # in lines that end behind its marks, and until its last piece has ended
    assert [cue[1:] for cue in cues] == [
        ["See"],
        ["https://download.example.com/whl/cu121/", "torch-2.4.1-cp311-linux_x86_64.whl,"],
        ["then."],
    ]
    assert cues[1][0].endswith("00:00:06,000")


def test_a_word_that_was_written_twice_is_shown_twice() -> None:
    words = [word("very", 0.0, 0.3), word("very", 0.3, 0.6, 1), word("good", 0.6, 1.0, 1)]
    shown = subtitles(words, ".srt", "very very good")
    assert shown.count("very") == 2


def test_a_dash_between_words_and_inline_phonemes_are_shown_without_brackets() -> None:
    words = [
        word(one, n / 2, n / 2 + 0.4) for n, one in enumerate(["Say", "[[həlˈoʊ]]", "code", "now"])
    ]
    assert "Say həlˈoʊ code — now\n" in subtitles(words, ".vtt", "Say [[həlˈoʊ]] code — now")


@pytest.mark.parametrize("name", ["a.txt", "a", "a.srt.gz"])
def test_another_format_is_refused(name) -> None:
    with pytest.raises(CommandError, match="subtitles"):
        check_subtitles(Path(name))
